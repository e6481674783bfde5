//! Completion, by asking the engine.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustyline::completion::Pair;

use super::keys;
use super::words::{self, Command};
use crate::engine::{Bound, Engine, OwnsTerminal, Then, quote};
use crate::gate::Gate;

const PATIENCE: Duration = Duration::from_secs(4);
const MOST: usize = 5000;

/// What can stand in place of the word before the cursor, and where that starts. `None` where the shell's own
/// completion wants the terminal, which it does not have here.
pub fn complete(
    engine: &mut Engine,
    gate: &dyn Gate,
    cwd: &Path,
    line: &str,
    cursor: usize,
) -> Result<(usize, Vec<Pair>), WantsTerminal> {
    let text = line.get(..cursor).unwrap_or(line);
    let command = words::command_at_end(text);
    let Some(word) = command.words.last() else {
        return Ok((cursor, Vec::new()));
    };
    let known: Vec<OsString> = command
        .words
        .iter()
        .map(|word| OsString::from_vec(keys::to_bytes(&word.plain)))
        .collect();
    if command.words.len() > 1 && !command.redirection {
        let offered = gate.complete(&known);
        if !offered.is_empty() {
            return Ok((word.start, plain_pairs(&offered, word.open_quote)));
        }
    }
    let breaks = breaks(engine);
    let asked = Asked {
        target: words::target(text, &breaks),
        breaks,
        cwd,
        at_end: cursor == line.len(),
    };
    let in_command =
        command.words.len() == 1 && !command.redirection && asked.target.start <= command.start + 1;
    let mut offer = Offer::default();
    if command.words.len() > 1 && !command.redirection {
        match programmable(engine, &asked, &command, line, cursor)? {
            Some(found) => offer = found,
            None => offer.wants = Wants::ANYTHING,
        }
    } else {
        offer.wants = Wants::ANYTHING;
    }
    if offer.names.is_empty() && offer.wants.bash {
        offer.take(asked.by_bash(engine, in_command));
    }
    if offer.names.is_empty() && offer.wants.files {
        let only = match (in_command, asked.target.plain.contains('/')) {
            (false, _) => Only::Anything,
            (true, true) => Only::Programs,
            (true, false) => Only::Directories,
        };
        offer.take(asked.files(engine, only));
    } else if offer.wants.more_directories || offer.names.is_empty() && offer.wants.directories {
        offer.take(asked.files(engine, Only::Directories));
    }
    Ok((asked.target.start, asked.pairs(engine, offer)))
}

/// A completion function wants keys and a screen of its own, as fzf does.
#[derive(Debug)]
pub struct WantsTerminal(pub Question);

/// What the shell's own completion is asked: the arguments of `__substrate_complete`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The arguments.
    pub words: Vec<Vec<u8>>,
    /// Where in the line what it answers goes.
    pub start: usize,
}

impl Question {
    /// As something that is bound to a key.
    pub fn as_bound(&self) -> Bound {
        let mut command = b"__substrate_complete_here".to_vec();
        for word in &self.words {
            command.push(b' ');
            command.extend_from_slice(&quote::ansi_c(word));
        }
        Bound {
            keys: b"\t".to_vec(),
            command,
            then: Then::Complete,
        }
    }
}

/// What kinds of names are looked for where the shell's own completion has none.
#[derive(Clone, Copy, Default)]
struct Wants {
    bash: bool,
    files: bool,
    directories: bool,
    more_directories: bool,
}

impl Wants {
    const ANYTHING: Self = Self {
        bash: true,
        files: true,
        directories: false,
        more_directories: false,
    };
}

/// Which files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Only {
    Anything,
    Programs,
    Directories,
}

/// Names, and how they are put into the line.
#[derive(Clone, Default)]
struct Offer {
    names: Vec<String>,
    /// They are files: quoted, and directories get a slash.
    files: bool,
    no_quotes: bool,
    no_space: bool,
    wants: Wants,
}

impl Offer {
    fn of(names: Vec<String>) -> Self {
        Self {
            names,
            ..Self::default()
        }
    }

    fn files(names: Vec<String>) -> Self {
        Self {
            names,
            files: true,
            ..Self::default()
        }
    }

    fn take(&mut self, more: Self) {
        self.files |= more.files;
        self.no_space |= more.no_space;
        self.names.extend(more.names);
    }
}

/// What is asked for.
struct Asked<'a> {
    target: words::Target,
    breaks: String,
    cwd: &'a Path,
    /// The cursor is at the end of the line.
    at_end: bool,
}

/// What the user's shell breaks words at.
fn breaks(engine: &mut Engine) -> String {
    let answer = engine.ask(&[b"__substrate_breaks"], PATIENCE);
    let answer = answer.map(|answer| keys::to_text(&answer));
    answer
        .filter(|breaks| !breaks.is_empty())
        .unwrap_or_else(|| words::BREAKS.to_owned())
}

impl Asked<'_> {
    /// Variables, users, hosts, commands and patterns, as bash completes by itself.
    fn by_bash(&self, engine: &mut Engine, in_command: bool) -> Offer {
        let target = &self.target;
        let raw = target.raw.as_str();
        let mut ask = |words: &[&[u8]]| {
            let answer = engine.ask(words, PATIENCE).unwrap_or_default();
            let names = lines(&answer).into_iter();
            let names = names.map(|name| keys::to_text(name.as_bytes()));
            names
                .filter(|name| !name.starts_with("__substrate_"))
                .collect::<Vec<String>>()
        };
        if target.quote != Some('\'')
            && let Some(name) = raw.strip_prefix('$')
        {
            let (open, name, close) = match name.strip_prefix('{') {
                Some(name) => ("${", name, "}"),
                None => ("$", name, ""),
            };
            if !name.starts_with('(') {
                let names = ask(&[b"compgen", b"-v", b"--", name.as_bytes()]);
                let names: Vec<String> = names
                    .iter()
                    .map(|name| format!("{open}{name}{close}"))
                    .collect();
                if !names.is_empty() {
                    return Offer::of(names);
                }
            }
        }
        if target.quote.is_none()
            && let Some(name) = raw.strip_prefix('~')
            && !name.contains('/')
        {
            let names = ask(&[b"compgen", b"-u", b"--", name.as_bytes()]);
            if !names.is_empty() {
                return Offer::files(names.iter().map(|name| format!("~{name}")).collect());
            }
        }
        if let Some(name) = raw.strip_prefix('@') {
            let names = ask(&[b"compgen", b"-A", b"hostname", b"--", name.as_bytes()]);
            if !names.is_empty() {
                return Offer::of(names.iter().map(|name| format!("@{name}")).collect());
            }
        }
        let plain = keys::to_bytes(&target.plain);
        if in_command && !target.plain.contains('/') {
            let names = ask(&[b"compgen", b"-c", b"--", &plain]);
            if !names.is_empty() {
                return Offer::of(names);
            }
        }
        if target.quote.is_none() && raw.contains(['*', '?', '[']) {
            let names = ask(&[b"compgen", b"-G", raw.as_bytes()]);
            // Several of them would have to take the place of one.
            if names.len() == 1 {
                return Offer::files(names);
            }
        }
        Offer::default()
    }

    /// Files that start like the text.
    fn files(&self, engine: &mut Engine, only: Only) -> Offer {
        let plain = &self.target.plain;
        let (head, base) = match plain.rfind('/') {
            Some(at) => plain.split_at(at + 1),
            None => ("", plain.as_str()),
        };
        let directory = match head {
            "" => self.cwd.to_path_buf(),
            head => self.resolve(engine, head),
        };
        let base = keys::to_bytes(base);
        let Ok(entries) = std::fs::read_dir(directory) else {
            return Offer::default();
        };
        let wanted = entries.flatten().filter(|entry| {
            let name = entry.file_name();
            let name = name.as_bytes();
            name.starts_with(&base) && (!name.starts_with(b".") || base.starts_with(b"."))
        });
        let fits = |path: &Path| {
            let data = std::fs::metadata(path);
            let is_directory = data.as_ref().is_ok_and(std::fs::Metadata::is_dir);
            match only {
                Only::Anything => true,
                Only::Directories => is_directory,
                Only::Programs => is_directory || is_executable(path),
            }
        };
        let mut names = Vec::new();
        for entry in wanted.take(MOST * 4) {
            if fits(&entry.path()) {
                let name = keys::to_text(entry.file_name().as_bytes());
                names.push(format!("{head}{name}"));
            }
            if names.len() >= MOST {
                break;
            }
        }
        Offer::files(names)
    }

    /// Where a name leads that may begin with a tilde or have variables in it, as those of the line do.
    fn resolve(&self, engine: &mut Engine, name: &str) -> PathBuf {
        let mut path = Vec::new();
        let mut rest = name;
        let unquoted = self.target.quote.is_none();
        if name.starts_with('~') && self.target.raw.starts_with('~') && unquoted {
            let end = name.find('/').unwrap_or(name.len());
            let (user, below) = name.split_at(end);
            let safe = user
                .chars()
                .skip(1)
                .all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
            if safe
                && let Some(home) =
                    engine.ask(&[b"__substrate_directory", user.as_bytes()], PATIENCE)
            {
                path.extend_from_slice(&home);
                rest = below;
            }
        }
        if self.expands() && rest.contains('$') {
            let answer = engine.ask(&[b"__substrate_value", rest.as_bytes()], PATIENCE);
            path.extend(answer.unwrap_or_default());
        } else {
            path.extend_from_slice(&keys::to_bytes(rest));
        }
        self.cwd.join(OsString::from_vec(path))
    }

    /// Whether variables in the text mean something.
    fn expands(&self) -> bool {
        let mut escaped = false;
        let mut means = false;
        for character in self.target.raw.chars() {
            means |= character == '$' && !escaped;
            escaped = character == '\\' && !escaped;
        }
        self.target.quote != Some('\'') && means
    }

    /// How much at the beginning of a name is no name but means one.
    fn kept(&self, name: &str) -> usize {
        let end = name.rfind('/').unwrap_or(name.len());
        let head = name.get(..end).unwrap_or_default();
        match (&self.target.raw, self.expands()) {
            (raw, true) if raw.starts_with('$') || head.contains('$') => end,
            (raw, _) if name.starts_with('~') && raw.starts_with('~') => {
                name.find('/').unwrap_or(name.len())
            }
            _ => 0,
        }
    }

    /// The names as they are put into the line: one as a whole, of several what they have in common.
    fn pairs(&self, engine: &mut Engine, mut offer: Offer) -> Vec<Pair> {
        offer.names.sort();
        offer.names.dedup();
        let quote = self.target.quote;
        let quoted = |name: &str| match offer.files && !offer.no_quotes {
            true => words::quote_match(name, self.kept(name), quote, &self.breaks),
            false => name.to_owned(),
        };
        if let [name] = offer.names.as_slice() {
            let is_directory = offer.files && self.resolve(engine, name).is_dir();
            let mut replacement = quoted(name);
            // What needs its quotes gets them closed, a directory too.
            let needed = replacement != *name || words::needs_quotes(name, self.kept(name));
            if is_directory {
                let bare = replacement.trim_end_matches('/').len();
                if offer.files && needed && quote.is_some() {
                    replacement.truncate(bare);
                    replacement.extend(quote);
                }
                if !replacement.ends_with('/') {
                    replacement.push('/');
                }
            } else if self.at_end {
                replacement.extend(quote);
                if !offer.no_space {
                    replacement.push(' ');
                }
            }
            return vec![Pair {
                display: name.clone(),
                replacement,
            }];
        }
        let common = quoted(&common_start(&offer.names));
        let shown = |name: &String, engine: &mut Engine| {
            if !offer.files {
                return name.clone();
            }
            let slash = match self.resolve(engine, name).is_dir() && !name.ends_with('/') {
                true => "/",
                false => "",
            };
            let end = name.trim_end_matches('/');
            let base = end.rfind('/').map_or(end, |at| &end[at + 1..]);
            format!("{base}{slash}")
        };
        let names = offer.names.iter().take(MOST);
        names
            .map(|name| Pair {
                display: shown(name, engine),
                replacement: common.clone(),
            })
            .collect()
    }
}

/// What all of several names begin with.
fn common_start(names: &[String]) -> String {
    let Some((first, rest)) = names.split_first() else {
        return String::new();
    };
    let mut length = first.len();
    for name in rest {
        let same = first
            .char_indices()
            .zip(name.chars())
            .find(|((_, a), b)| a != b)
            .map_or(first.len().min(name.len()), |((at, _), _)| at);
        length = length.min(same);
    }
    first.get(..length).unwrap_or_default().to_owned()
}

/// The completion that the user's shell has for this command; `None` if it has none.
fn programmable(
    engine: &mut Engine,
    asked: &Asked<'_>,
    command: &Command,
    line: &str,
    cursor: usize,
) -> Result<Option<Offer>, WantsTerminal> {
    let Some(text) = line.get(command.start..) else {
        return Ok(None);
    };
    let before = line.get(command.start..cursor).unwrap_or(text);
    let mut list = words::completion_words(before, &asked.breaks);
    let target = &asked.target;
    let mut typed = &target.raw;
    let mut whole = text.to_owned();
    let mut point = before.len();
    // While readline completes, file names lose their quotes on the way to who looks them up.
    if target.quote.is_some() || target.raw.contains(['\\', '\'', '"']) {
        typed = &target.plain;
        if let Some(last) = list.last_mut() {
            // They find the word in the line, too.
            let at = before.len().saturating_sub(last.len());
            whole = format!(
                "{}{typed}{}",
                before.get(..at).unwrap_or_default(),
                text.get(before.len()..).unwrap_or_default()
            );
            point = at + typed.len();
            last.clone_from(typed);
        }
    }
    let number = list.len().saturating_sub(1).to_string();
    let mut question: Vec<Vec<u8>> = vec![
        number.into_bytes(),
        point.to_string().into_bytes(),
        keys::to_bytes(&whole),
        keys::to_bytes(typed),
    ];
    question.extend(list.iter().map(|word| keys::to_bytes(word)));
    let mut call: Vec<&[u8]> = vec![b"__substrate_complete"];
    call.extend(question.iter().map(Vec::as_slice));
    let answer = match engine.ask_unless(&call, PATIENCE) {
        Ok(answer) => answer,
        Err(OwnsTerminal) => {
            return Err(WantsTerminal(Question {
                words: question,
                start: asked.target.start,
            }));
        }
    };
    let Some(answer) = answer else {
        // It was ended; what else there is would look like its answer.
        return Ok(Some(Offer::default()));
    };
    let mut offer = offered(&answer);
    if let Some(offer) = &mut offer
        && target.quote.is_some()
        && (target.raw.starts_with('~') || target.raw.starts_with('$') && !target.raw.contains('/'))
    {
        // Within quotes the functions see no variable and no home.
        offer.names.clear();
    }
    Ok(offer)
}

/// What the shell's completion has answered: its options, then the names.
fn offered(answer: &[u8]) -> Option<Offer> {
    let mut fields = answer.split(|&byte| byte == 0);
    let options = String::from_utf8_lossy(fields.next()?).into_owned();
    let options: Vec<&str> = options.split(' ').collect();
    if options.first() != Some(&"spec") {
        return None;
    }
    let has = |name: &str| options.contains(&name);
    let names = fields.filter(|candidate| !candidate.is_empty()).take(MOST);
    Some(Offer {
        names: names.map(keys::to_text).collect(),
        files: has("filenames"),
        no_quotes: has("noquote"),
        no_space: has("nospace"),
        wants: Wants {
            bash: has("bashdefault"),
            files: has("default"),
            directories: has("dirnames"),
            more_directories: has("plusdirs"),
        },
    })
}

/// The line with what a completion that had the terminal has answered, and the cursor in it.
pub fn with_answer(
    answer: &[u8],
    question: &Question,
    line: &str,
    cursor: usize,
) -> Option<(String, usize)> {
    let answer: Vec<u8> = answer
        .iter()
        .map(|byte| if *byte == 1 { 0 } else { *byte })
        .collect();
    let offer = offered(&answer)?;
    let head = line.get(..question.start)?;
    let tail = line.get(cursor..)?;
    let [name] = offer.names.as_slice() else {
        return None;
    };
    let typed = line.get(question.start..cursor)?;
    if name == typed {
        return None;
    }
    let mut word = match offer.files && !offer.no_quotes {
        true => words::quote_match(name, 0, None, words::BREAKS),
        false => name.clone(),
    };
    if !offer.no_space && tail.is_empty() {
        word.push(' ');
    }
    let at = head.len() + word.len();
    Some((format!("{head}{word}{tail}"), at))
}

fn plain_pairs(names: &[OsString], open_quote: Option<char>) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = names
        .iter()
        .filter(|name| !name.as_bytes().starts_with(b"__substrate_"))
        .map(|name| {
            let name = keys::to_text(name.as_bytes());
            let quote = open_quote.map(String::from).unwrap_or_default();
            Pair {
                replacement: format!("{quote}{}{quote} ", words::quote_name(&name, open_quote)),
                display: name,
            }
        })
        .collect();
    pairs.sort_by(|a, b| a.display.cmp(&b.display));
    pairs.dedup_by(|a, b| a.display == b.display);
    pairs
}

fn lines(answer: &[u8]) -> Vec<OsString> {
    answer
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .take(MOST)
        .map(|line| OsString::from_vec(line.to_vec()))
        .collect()
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|data| data.permissions().mode() & 0o111 != 0)
}
