//! Judging what commands do: against `fs` and `net`, and against the rules on effects.

use std::cell::RefCell;

use substrate_command::{Action, Cwd, Effect, Invocation, Line, Object, Piece, Source, Word};
use substrate_compiled::glob::{self, Slash};
use substrate_compiled::paths;
use substrate_trace::{RuleRef, Verdict};

use crate::facts::Facts;
use crate::hosts::Host;
use crate::judgement::Reason;
use crate::settings::{EffectPattern, EffectRules, HostEntry, ObjectPattern, PathEntry};

/// Adds what effects give reason for; `policy` is the id of the policy that the rules are from, `direct` are the
/// commands whose programs somebody vouches for.
pub(crate) fn reasons(
    settings: &EffectRules,
    policy: &str,
    line: &Line,
    direct: &[usize],
    facts: &dyn Facts,
    reasons: &mut Vec<Reason>,
) {
    let context = Context {
        settings,
        policy,
        facts,
    };
    let mut seen: Vec<(usize, Seen<'_>)> = Vec::new();
    let opens_names = opens_names(line);
    for (index, invocation) in line.invocations.iter().enumerate() {
        let cwd = directory(&invocation.cwd, facts);
        for effect in &invocation.effects {
            if effect.is_unknown_program()
                && (direct.contains(&index) || is_of_the_project(invocation, cwd.as_deref(), facts))
            {
                continue;
            }
            let effect = Seen {
                effect,
                place: place(&effect.object, cwd.as_deref(), facts),
                classes: RefCell::default(),
                opens_names,
            };
            context.judge_lists(index, &effect, reasons);
            seen.push((index, effect));
        }
    }
    for rule in &settings.effects {
        let mut hit = None;
        let all = rule.steps.iter().all(|step| {
            let found = seen.iter().find(|(_, effect)| context.fits(step, effect));
            hit = found.map(|(index, _)| *index).or(hit);
            found.is_some()
        });
        if all {
            reasons.push(Reason {
                verdict: rule.verdict,
                invocation: hit,
                rule: rule.rule.clone(),
            });
        }
    }
}

/// Whether the program is one of the project's own: it is looked at where it is written. What the name
/// leads to counts, so that a link in the project stands for what it points to.
fn is_of_the_project(invocation: &Invocation, cwd: Option<&[u8]>, facts: &dyn Facts) -> bool {
    let typed = invocation.argv.first().and_then(Word::value);
    let (Some(typed), Some(project)) = (typed, facts.project()) else {
        return false;
    };
    let Some(cwd) = cwd.or(typed.starts_with(b"/").then_some(b"/".as_slice())) else {
        return false;
    };
    let path = facts.program(typed, cwd).or_else(|| {
        typed
            .contains(&b'/')
            .then(|| paths::absolute(cwd, typed))
            .map(|path| facts.real(&path).unwrap_or(path))
    });
    path.is_some_and(|path| {
        paths::beneath(project, &path)
            || facts
                .real(project)
                .is_some_and(|project| paths::beneath(&project, &path))
    })
}

/// The directory an invocation runs in, when that is known.
pub(crate) fn directory(cwd: &Cwd, facts: &dyn Facts) -> Option<Vec<u8>> {
    match cwd {
        Cwd::Start => Some(facts.cwd().to_vec()),
        Cwd::Moved(steps) => steps
            .iter()
            .try_fold(facts.cwd().to_vec(), |directory, step| {
                step.value().map(|step| paths::absolute(&directory, step))
            }),
        Cwd::Unknown => None,
    }
}

/// An effect and where it happens.
struct Seen<'a> {
    effect: &'a Effect,
    place: PathSide,
    /// Which classes it touches, as far as that was asked: several rules speak of the same ones.
    classes: RefCell<Vec<(&'a str, bool)>>,
    /// The line opens files whose names only the run will tell.
    opens_names: bool,
}

impl Seen<'_> {
    /// Whether it is this that is done; whoever runs a file reads it, and names that are listed may be those
    /// that are opened (`find … | xargs cat`).
    fn does(&self, action: Action) -> bool {
        let runs_file = matches!(self.effect.object, Object::Code(Source::File, _));
        let listed = self.effect.action == Action::List && self.opens_names;
        self.effect.action == action || ((runs_file || listed) && action == Action::Read)
    }
}

/// Whether a line lists names and opens files that only the run will name.
fn opens_names(line: &Line) -> bool {
    let effects = || {
        let all = line.invocations.iter();
        all.flat_map(|invocation| &invocation.effects)
    };
    let unnamed = |effect: &Effect| {
        effect.action != Action::List
            && match &effect.object {
                Object::Path(word) | Object::Code(_, word) => {
                    matches!(word.pieces.first(), Some(Piece::Unknown(_)))
                }
                _ => false,
            }
    };
    effects().any(|effect| effect.action == Action::List) && effects().any(unnamed)
}

/// Where a path effect happens, as far as that is known.
enum PathSide {
    /// Not a path.
    NoPath,
    /// Exactly here; the second form has links resolved.
    At(Vec<u8>, Option<Vec<u8>>),
    /// Everything in this directory.
    ChildrenOf(Vec<u8>),
    /// Somewhere below this directory; the second form has a made-up name for what is unknown.
    Below(Vec<u8>, Option<Vec<u8>>),
    /// Nobody knows. Were it relative it would be in this directory; and with made-up names for what is
    /// unknown it would be one of these.
    Unknown(Option<Vec<u8>>, Vec<Vec<u8>>),
}

impl PathSide {
    /// Whether an expanded pattern and the place have something in common.
    fn meets(&self, pattern: &[u8], trees: bool) -> bool {
        let hit = |path: &[u8]| paths::covers(pattern, path);
        let inside = |path: &[u8]| {
            trees && {
                let base = glob::literal_prefix(pattern);
                let base = base.strip_suffix(b"/").unwrap_or(base);
                base.len() > 1 && paths::beneath(path, base)
            }
        };
        match self {
            PathSide::NoPath => false,
            PathSide::Unknown(near, samples) => {
                let near = near.as_deref();
                near.is_some_and(|near| names_child(pattern, near) || hit(near))
                    || samples.iter().any(|sample| hit(sample))
            }
            PathSide::At(path, real) => [Some(path), real.as_ref()]
                .into_iter()
                .flatten()
                .any(|path| hit(path) || inside(path)),
            PathSide::ChildrenOf(path) => hit(path) || inside(path) || names_child(pattern, path),
            PathSide::Below(path, sample) => {
                (hit(path) && pattern.ends_with(b"/**")) || sample.as_deref().is_some_and(hit)
            }
        }
    }
}

fn place(object: &Object, cwd: Option<&[u8]>, facts: &dyn Facts) -> PathSide {
    let (Object::Path(word) | Object::Code(Source::File, word)) = object else {
        return PathSide::NoPath;
    };
    if word.value().is_some_and(is_harmless_device) {
        return PathSide::NoPath;
    }
    let resolve = |path: &[u8]| {
        // Models name files of the home directory so, and tools find it by the variable; whoever
        // really has a `~` in front of a slash can do with a strict reading.
        let home = facts.other_homes().first().map(Vec::as_slice);
        if let (Some(rest), Some(home)) = (path.strip_prefix(b"~/"), home.or(facts.home())) {
            return Some(paths::absolute(home, rest));
        }
        let base = if path.starts_with(b"/") {
            Some(&b"/"[..])
        } else {
            cwd
        };
        base.map(|base| paths::absolute(base, path))
    };
    if let Some(value) = word.value() {
        return match resolve(value) {
            Some(path) => {
                let real = facts.real(&path).filter(|real| *real != path);
                PathSide::At(path, real)
            }
            None => PathSide::Unknown(None, vec![paths::absolute(b"/x", value)]),
        };
    }
    let known = word.known_prefix();
    let directory = match known.iter().rposition(|byte| *byte == b'/') {
        Some(0) => resolve(b"/"),
        Some(slash) => resolve(&known[..slash]),
        // `*.o` is below the working directory, `$x/a` is anywhere.
        None if !word.has_unknown() => resolve(b"."),
        None => None,
    };
    match directory {
        None => unknown(word, cwd, facts),
        // A word that may climb out by `..` is still judged by where it starts.
        Some(directory) if !word.has_unknown() && is_everything(word, known) => {
            PathSide::ChildrenOf(directory)
        }
        Some(directory) => PathSide::Below(directory, resolve(&sample(&word.pieces))),
    }
}

/// A path of which not even the start is known.
fn unknown(word: &Word, cwd: Option<&[u8]>, facts: &dyn Facts) -> PathSide {
    let Some((Piece::Unknown(first), rest)) = word.pieces.split_first() else {
        return PathSide::Unknown(None, Vec::new());
    };
    if rest.is_empty() {
        return PathSide::Unknown(cwd.map(<[u8]>::to_vec), Vec::new());
    }
    let rest = sample(rest);
    let mut samples = vec![paths::absolute(b"/", &[b"/x", rest.as_slice()].concat())];
    // The home of a user by name: it may be ours.
    if first.starts_with(b"~") {
        let homes = facts.home().into_iter();
        let homes = homes.chain(facts.other_homes().iter().map(Vec::as_slice));
        samples.extend(homes.map(|home| paths::absolute(b"/", &[home, &rest].concat())));
    }
    PathSide::Unknown(None, samples)
}

/// A path with a made-up name for what is unknown.
fn sample(pieces: &[Piece]) -> Vec<u8> {
    pieces
        .iter()
        .flat_map(|piece| match piece {
            Piece::Known(bytes) => bytes.as_slice(),
            Piece::Glob(_) | Piece::Unknown(_) => b"x",
        })
        .copied()
        .collect()
}

/// Whether a pattern such as `**/.ssh/id_*` names files of this very directory. Patterns for files of any
/// directory do not count: they would make a secret of every `*`. Nor do hidden files, which `*` leaves out.
fn names_child(pattern: &[u8], directory: &[u8]) -> bool {
    let mut parts = pattern.rsplit(|byte| *byte == b'/');
    let (Some(name), Some(parent)) = (parts.next(), parts.next()) else {
        return false;
    };
    if parent.is_empty() || glob::is_pattern(parent) || name == b"**" || name.starts_with(b".") {
        return false;
    }
    let sample: Vec<u8> = name
        .iter()
        .map(|byte| {
            if matches!(byte, b'*' | b'?') {
                b'x'
            } else {
                *byte
            }
        })
        .collect();
    paths::covers(pattern, &paths::absolute(directory, &sample))
}

/// Devices that swallow or make up data, and the caller's own streams: using them changes nothing.
fn is_harmless_device(path: &[u8]) -> bool {
    let Some(name) = path.strip_prefix(b"/dev/") else {
        return false;
    };
    matches!(
        name,
        b"null"
            | b"zero"
            | b"full"
            | b"random"
            | b"urandom"
            | b"tty"
            | b"stdin"
            | b"stdout"
            | b"stderr"
    ) || name.starts_with(b"fd/")
}

/// `dir/*`, `dir/.*`, `dir/**`: the glob is the whole last component.
fn is_everything(word: &Word, known: &[u8]) -> bool {
    let tail = &known[known
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |slash| slash + 1)..];
    matches!(tail, b"" | b".")
        && word
            .pieces
            .iter()
            .skip_while(|piece| matches!(piece, Piece::Known(_)))
            .all(|piece| match piece {
                Piece::Glob(glob) => glob.iter().all(|byte| matches!(byte, b'*' | b'.' | b'?')),
                Piece::Known(rest) => rest.as_slice() == b"/",
                Piece::Unknown(_) => false,
            })
}

/// The class of what a machine consists of.
const SYSTEM: &str = "system";

/// What a pattern begins with before anything is left open.
fn prefix(pattern: &[u8]) -> &[u8] {
    let prefix = glob::literal_prefix(pattern);
    prefix.strip_suffix(b"/").unwrap_or(prefix)
}

struct Context<'a> {
    settings: &'a EffectRules,
    policy: &'a str,
    facts: &'a dyn Facts,
}

impl Context<'_> {
    /// What `fs` and `net` say.
    fn judge_lists(&self, index: usize, seen: &Seen<'_>, reasons: &mut Vec<Reason>) {
        let mut add = |verdict: Verdict, rule: RuleRef| {
            if verdict > Verdict::Allow {
                reasons.push(Reason {
                    verdict,
                    invocation: Some(index),
                    rule,
                });
            }
        };
        match (&seen.effect.action, &seen.effect.object) {
            (
                Action::Read | Action::List | Action::Write | Action::Delete | Action::Chmod,
                Object::Path(word),
            )
            | (Action::RunCode, Object::Code(Source::File, word)) => {
                if let Some((verdict, rule)) = self.path_rule(seen, word) {
                    add(verdict, rule);
                }
            }
            (Action::Connect, Object::Host { host, port }) => {
                if let Some((verdict, rule)) = self.host_rule(host, *port) {
                    add(verdict, rule);
                }
            }
            _ => {}
        }
    }

    fn path_rule(&self, seen: &Seen<'_>, word: &Word) -> Option<(Verdict, RuleRef)> {
        let fs = &self.settings.fs;
        let reads = seen.does(Action::Read) || seen.does(Action::List);
        let shown = String::from_utf8_lossy(&word.text()).into_owned();
        // That a file is there is no secret, and a world does not even show that.
        let contents = seen.effect.action != Action::List || seen.opens_names;
        if let Some(entry) = fs
            .hide
            .iter()
            .filter(|_| contents)
            .find(|entry| self.touches(&entry.pattern, &seen.place, false))
        {
            return Some((
                Verdict::Deny,
                entry.reference("fs.hide", format!("{shown} is hidden by this policy")),
            ));
        }
        if !reads
            && let Some(entry) = fs
                .protect
                .iter()
                .find(|entry| self.touches(&entry.pattern, &seen.place, false))
        {
            return Some((
                Verdict::Deny,
                entry.reference(
                    "fs.protect",
                    format!("{shown} is protected against changes"),
                ),
            ));
        }
        let (name, list) = if reads {
            ("fs.read", &fs.read)
        } else {
            ("fs.write", &fs.write)
        };
        if self.covered(list, &seen.place) {
            return None;
        }
        // A list that is empty is written nowhere.
        let at = list.first().cloned().unwrap_or_else(|| PathEntry {
            file: format!("policy:{}", self.policy),
            ..PathEntry::default()
        });
        let entry = PathEntry {
            pattern: shown.clone(),
            ..at
        };
        let verb = if reads { "read" } else { "changed" };
        Some((
            fs.outside.verdict(),
            entry.reference(name, format!("{shown} is outside what may be {verb}")),
        ))
    }

    /// Whether a list covers a place; what nobody knows is left to the world.
    fn covered(&self, list: &[PathEntry], place: &PathSide) -> bool {
        let covers = |path: &[u8]| {
            list.iter().any(|entry| {
                paths::expand(entry.pattern.as_bytes(), self.facts).is_some_and(|pattern| {
                    (paths::covers(&pattern, path) || self.real_base_covers(&pattern, path))
                        && !self.is_only_around_a_home(&pattern, path)
                })
            })
        };
        match place {
            PathSide::NoPath | PathSide::Unknown(..) => true,
            PathSide::At(path, real) => match real {
                Some(real) => covers(real),
                None => covers(path),
            },
            PathSide::ChildrenOf(path) | PathSide::Below(path, _) => covers(path),
        }
    }

    /// Whether a pattern covers a path only because the variable `HOME` names a directory in what it
    /// covers: `/tmp/**` does not mean the home of somebody whose `HOME` is `/tmp/x`, unless it means homes.
    fn is_only_around_a_home(&self, pattern: &[u8], path: &[u8]) -> bool {
        let around = |home: &[u8]| {
            let base = pattern.strip_suffix(b"/**").unwrap_or(pattern);
            base.len() < home.len() && paths::beneath(base, home)
        };
        let others = self.facts.other_homes().iter();
        let mut around_other = others.filter(|home| paths::beneath(home, path));
        around_other.any(|home| around(home)) && !self.facts.home().is_some_and(around)
    }

    /// `/tmp/**` also covers what `/tmp` really is.
    fn real_base_covers(&self, pattern: &[u8], path: &[u8]) -> bool {
        pattern
            .strip_suffix(b"/**")
            .filter(|base| !glob::is_pattern(base))
            .and_then(|base| self.facts.real(base))
            .is_some_and(|real| paths::beneath(&real, path))
    }

    /// Whether a pattern and a place have something in common. A change to a whole tree also
    /// touches what lies in it when `trees` says so.
    fn touches(&self, pattern: &str, place: &PathSide, trees: bool) -> bool {
        paths::expand_all(pattern.as_bytes(), self.facts)
            .any(|pattern| place.meets(&pattern, trees))
    }

    /// Of the patterns that name a place the last one decides: one behind `!` takes it out. A place of which not everything
    /// is known is taken out by nothing.
    fn touches_class(&self, name: &str, place: &PathSide, trees: bool) -> bool {
        let classes = self.settings.classes.iter();
        let patterns = classes
            .filter(|(known, _)| known == name)
            .flat_map(|(_, patterns)| patterns);
        let mut touched = false;
        for pattern in patterns {
            match pattern.strip_prefix('!') {
                Some(exception) if touched => touched = !self.is_wholly(exception, place),
                Some(_) => {}
                None => {
                    touched = touched
                        || self.touches(pattern, place, trees)
                            && !(name == SYSTEM && self.is_given(pattern.as_bytes(), place));
                }
            }
        }
        touched
    }

    /// Whether everything that a place may be is what a pattern names.
    fn is_wholly(&self, pattern: &str, place: &PathSide) -> bool {
        let covered = |path: &Vec<u8>| {
            paths::expand_all(pattern.as_bytes(), self.facts)
                .any(|pattern| paths::covers(&pattern, path))
        };
        match place {
            PathSide::At(path, real) => covered(path) && real.as_ref().is_none_or(covered),
            PathSide::ChildrenOf(path) | PathSide::Below(path, _) => {
                pattern.ends_with("/**") && covered(path)
            }
            PathSide::NoPath | PathSide::Unknown(..) => false,
        }
    }

    /// Whether `fs.write` gives a part of what a pattern means by name, and a place lies there: a project below
    /// `/opt` is no part of the system, nor is `/var/tmp` where the policy says so. `/**` names nothing.
    fn is_given(&self, pattern: &[u8], place: &PathSide) -> bool {
        let around = prefix(pattern);
        let gives = |path: &[u8]| {
            self.settings.fs.write.iter().any(|entry| {
                paths::expand(entry.pattern.as_bytes(), self.facts).is_some_and(|given| {
                    let base = prefix(&given);
                    base.len() > around.len()
                        && paths::beneath(around, base)
                        && (paths::covers(&given, path) || self.real_base_covers(&given, path))
                })
            })
        };
        let is_or_is_elsewhere = |path: &Vec<u8>| match paths::beneath(around, path) {
            true => gives(path),
            false => !paths::beneath(path, around),
        };
        match place {
            PathSide::NoPath | PathSide::Unknown(..) => false,
            PathSide::At(path, other) | PathSide::Below(path, other) => {
                is_or_is_elsewhere(path) && other.as_ref().is_none_or(is_or_is_elsewhere)
            }
            PathSide::ChildrenOf(path) => gives(path),
        }
    }

    fn host_rule(&self, host: &Word, port: Option<u16>) -> Option<(Verdict, RuleRef)> {
        let net = &self.settings.net;
        if !net.given {
            return None;
        }
        let value = host.value()?;
        let host = String::from_utf8_lossy(value).into_owned();
        let shown = port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
        if let Some(entry) = net
            .denied
            .iter()
            .find(|entry| entry.names(&host, port, true))
        {
            return Some((
                Verdict::Deny,
                entry.reference("net.denied", format!("{shown} is a denied host")),
            ));
        }
        if net
            .allowed
            .iter()
            .any(|entry| entry.names(&host, port, false))
        {
            return None;
        }
        let at = net.allowed.first();
        let rule = RuleRef {
            list: "net.allowed".to_owned(),
            pattern: host,
            file: at
                .map(|entry| entry.file.clone())
                .unwrap_or_else(|| format!("policy:{}", self.policy))
                .into(),
            line: at.map_or(0, |entry| entry.line),
            reason: Some(format!("{shown} is not an allowed host")),
            policy: None,
        };
        Some((net.unlisted.verdict(), rule))
    }

    /// Whether an effect is what a pattern means.
    fn fits<'s>(&'s self, pattern: &'s EffectPattern, seen: &Seen<'s>) -> bool {
        if !seen.does(pattern.action) || (pattern.recursive && !seen.effect.recursive) {
            return false;
        }
        let trees = seen.effect.recursive;
        match (&pattern.object, &seen.effect.object) {
            (ObjectPattern::Any, _) => true,
            (ObjectPattern::Path(path), Object::Path(_) | Object::Code(Source::File, _)) => {
                self.touches(path, &seen.place, trees)
            }
            (ObjectPattern::Class(name), Object::Path(_) | Object::Code(Source::File, _)) => {
                let known = |(class, _): &&(&str, bool)| class == name;
                let before = seen
                    .classes
                    .borrow()
                    .iter()
                    .find(known)
                    .map(|known| known.1);
                before.unwrap_or_else(|| {
                    let touched = self.touches_class(name, &seen.place, trees);
                    seen.classes.borrow_mut().push((name, touched));
                    touched
                })
            }
            (ObjectPattern::Outside, Object::Path(_)) => {
                let fs = &self.settings.fs;
                let list = if matches!(pattern.action, Action::Read | Action::List) {
                    &fs.read
                } else {
                    &fs.write
                };
                !self.covered(list, &seen.place)
            }
            (ObjectPattern::Dynamic, Object::Path(_)) => {
                matches!(seen.place, PathSide::Unknown(..))
            }
            (ObjectPattern::Dynamic, Object::Host { host, .. }) => !host.is_literal(),
            (ObjectPattern::Dynamic, Object::Unspecified) => pattern.action == Action::Connect,
            (ObjectPattern::Dynamic, Object::Code(source, _)) => *source == Source::Dynamic,
            (ObjectPattern::Unlisted, Object::Unspecified) => true,
            (ObjectPattern::Unlisted, Object::Host { host, port }) => {
                host.value().is_none_or(|value| {
                    let host = String::from_utf8_lossy(value);
                    !self
                        .settings
                        .net
                        .allowed
                        .iter()
                        .any(|entry| entry.names(&host, *port, false))
                })
            }
            (ObjectPattern::Host(rule), Object::Host { host, port }) => host
                .value()
                .and_then(|value| Host::parse(&String::from_utf8_lossy(value)))
                .is_some_and(|host| rule.denies(&host, *port)),
            (ObjectPattern::Source(source), Object::Code(seen, _)) => source == seen,
            (ObjectPattern::Resource(name), Object::Resource(seen)) => {
                glob::matches(name.as_bytes(), seen.as_bytes(), Slash::Ordinary)
            }
            _ => false,
        }
    }
}

impl PathEntry {
    fn reference(&self, list: &str, reason: String) -> RuleRef {
        RuleRef {
            list: list.to_owned(),
            pattern: self.pattern.clone(),
            file: self.file.clone().into(),
            line: self.line,
            reason: Some(reason),
            policy: None,
        }
    }
}

impl HostEntry {
    /// Whether the entry names the host; a client set also names itself, as tool models do.
    fn names(&self, host: &str, port: Option<u16>, denies: bool) -> bool {
        if host.starts_with('@') {
            return self.written == host;
        }
        let host = Host::parse(host);
        self.rule.iter().chain(&self.members).any(|rule| {
            host.as_ref().is_some_and(|host| match denies {
                true => rule.denies(host, port),
                false => rule.allows(host, port),
            })
        })
    }

    fn reference(&self, list: &str, reason: String) -> RuleRef {
        RuleRef {
            list: list.to_owned(),
            pattern: self.written.clone(),
            file: self.file.clone().into(),
            line: self.line,
            reason: Some(reason),
            policy: None,
        }
    }
}
