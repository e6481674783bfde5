//! What came of running a command again: what differs from the record, and what could not be
//! compared.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use similar::TextDiff;
use substrate_trace::read::{RecordedStream, Span};
use substrate_trace::{Enforced, FsDiff, Redactor, Stream};
use substrate_world::backend::Status;

use substrate_snapshots::{Entry, Kind, Store, Tree, TreeId, in_control};

/// Differences that are listed one by one.
const LISTED: usize = 200;
/// Lines of a text that are shown of a difference.
const SHOWN: usize = 40;
/// The largest content that is compared line by line.
const TEXT: usize = 256 << 10;

/// One thing that is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// `exit`, `signal`, `stdout`, `stderr`, `file` or `scope`.
    pub what: &'static str,
    /// In a sentence.
    pub text: String,
    /// Line by line, where both sides are known; without secrets.
    pub diff: Option<String>,
}

/// Something around the command that is not as it was, or that cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// `policy`, `environment`, `kernel`, `level`, `tool`, `stdin`, `files`, `output`, `exit` or
    /// `world`.
    pub what: &'static str,
    /// In a sentence.
    pub text: String,
}

impl Warning {
    /// A warning.
    pub fn new(what: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { what, text }
    }
}

/// What came of running it again.
#[derive(Debug)]
pub struct Outcome {
    /// What differs; empty means the same.
    pub differences: Vec<Difference>,
    /// What is not as it was around it, or could not be compared.
    pub warnings: Vec<Warning>,
    /// What held it.
    pub enforced: Enforced,
    /// What it used.
    pub scopes: Vec<String>,
    /// How much of the project had to be put back.
    pub restored: u64,
    /// How it ended.
    pub status: Status,
    /// How long it ran.
    pub duration: Duration,
    /// Standard output and standard error.
    pub output: [Stream; 2],
    /// Both streams went to one place.
    pub merged: bool,
    /// The project that it started from, and the one that it left.
    pub trees: Option<(TreeId, TreeId)>,
    /// What it changed.
    pub fs_diff: Option<FsDiff>,
    /// The world whose result was kept.
    pub kept: Option<String>,
    /// What could be compared: `exit`, `output`, `files`, `network`.
    pub compared: Vec<&'static str>,
}

impl Outcome {
    /// Whether everything that could be compared is as it was.
    pub fn is_same(&self) -> bool {
        self.differences.is_empty()
    }

    pub(crate) fn compares(&mut self, what: &'static str) {
        if !self.compared.contains(&what) {
            self.compared.push(what);
        }
    }

    pub(crate) fn differ(&mut self, what: &'static str, text: impl Into<String>) {
        self.differ_by(what, text, None);
    }

    fn differ_by(&mut self, what: &'static str, text: impl Into<String>, diff: Option<String>) {
        let text = text.into();
        self.differences.push(Difference { what, text, diff });
    }

    pub(crate) fn warn(&mut self, what: &'static str, text: impl Into<String>) {
        self.warnings.push(Warning::new(what, text));
    }

    /// With `told`, only the status that a shell showed is known of the past, not the signal.
    pub(crate) fn compare_end(&mut self, then: &Span, told: bool) {
        let Some(exit) = then.exit else {
            return self.warn(
                "exit",
                "how it ended was not recorded, so it is not compared",
            );
        };
        self.compared.push("exit");
        let code = self.status.code();
        if exit != code {
            self.differ("exit", format!("it was {exit}, now it is {code}"));
        }
        let signal = match self.status {
            Status::Signaled(signal) => Some(signal),
            Status::Exited(_) => None,
        };
        if then.signal != signal && !told {
            let shown = |value: Option<i32>| value.map_or("none".to_owned(), |v| v.to_string());
            let text = format!("it was {}, now it is {}", shown(then.signal), shown(signal));
            self.differ("signal", text);
        }
    }

    pub(crate) fn compare_output(&mut self, then: &Span, redactor: &Redactor) {
        let Some(recorded) = then.output.as_ref().filter(|output| output.mode != "off") else {
            return self.warn(
                "output",
                "what it printed was not recorded, so it is not compared",
            );
        };
        let [stdout, stderr] = self.output.clone();
        let streams = [
            ("stdout", &recorded.stdout, stdout),
            ("stderr", &recorded.stderr, stderr),
        ];
        for (what, then, now) in streams {
            match then {
                Some(then) if then.via.as_deref() == Some("terminal") => {
                    let text = format!("{what} was a terminal, so it is not compared");
                    self.warn("output", text);
                }
                Some(then) => {
                    self.compares("output");
                    self.compare_stream(what, then, &now, redactor);
                }
                None if recorded.merged => {}
                None => self.warn("output", format!("{what} was not recorded")),
            }
        }
    }

    fn compare_stream(
        &mut self,
        what: &'static str,
        then: &RecordedStream,
        now: &Stream,
        redactor: &Redactor,
    ) {
        if then.digest == now.digest {
            return;
        }
        let text = match then.bytes == now.bytes {
            true => format!("{} bytes as before, but others", now.bytes),
            false => format!("{} bytes, now {}", then.bytes, now.bytes),
        };
        let shown = then.copy.as_ref().zip(now.copy.as_ref());
        let diff =
            shown.and_then(|(then, now)| lines(then.as_encoded_bytes(), &redactor.output(now)));
        self.differ_by(what, text, diff);
    }

    /// Connections are known only of what ran in a world.
    pub(crate) fn compare_scopes(&mut self, then: &Span) {
        let world = then.place.as_deref().is_some_and(|place| place != "direct");
        if !world || then.enforced.is_none() {
            return;
        }
        self.compares("network");
        let reached = |text: &str| text.starts_with("tcp:") || text.starts_with("udp:");
        let before: BTreeSet<String> = then
            .scopes_used
            .iter()
            .map(|scope| scope.to_string_lossy().into_owned())
            .filter(|scope| reached(scope))
            .collect();
        let now = self.scopes.iter().filter(|scope| reached(scope));
        let now: BTreeSet<String> = now.cloned().collect();
        for scope in before.difference(&now) {
            self.differ("scope", format!("{scope} was used, now it is not"));
        }
        for scope in now.difference(&before) {
            self.differ("scope", format!("{scope} was not used, now it is"));
        }
    }

    /// Compares the project after it with the project after it then; `before` and `after` are of
    /// then and now.
    pub(crate) fn compare_trees(
        &mut self,
        store: &Store,
        before: [Option<&Tree>; 2],
        after: [&Tree; 2],
        redactor: &Redactor,
    ) {
        let [then, now] = after;
        let mut paths: BTreeSet<&Path> = then.entries.keys().map(AsRef::as_ref).collect();
        paths.extend(now.entries.keys().map(|path| path.as_path()));
        for before in before.iter().flatten() {
            paths.extend(before.entries.keys().map(|path| path.as_path()));
        }
        // What neither of them changed is not their doing, whatever it was.
        let touched = |before: Option<&Tree>, after: &Tree, path: &Path| {
            before.is_none_or(|before| before.entries.get(path) != after.entries.get(path))
        };
        let mut more = 0;
        for path in paths {
            let (old, new) = (then.entries.get(path), now.entries.get(path));
            if old == new || !touched(before[0], then, path) && !touched(before[1], now, path) {
                continue;
            }
            if self.differences.len() >= LISTED {
                more += 1;
                continue;
            }
            let text = match (old, new) {
                (Some(_), None) => "is missing".to_owned(),
                (None, _) => "was not there".to_owned(),
                (Some(old), Some(new)) => changed(old, new),
            };
            let whole = now.root.join(path);
            let diff = diff_of(store, old, new, redactor);
            self.differ_by("file", format!("{} {text}", whole.display()), diff);
        }
        if more > 0 {
            self.differ("file", format!("{more} more"));
        }
    }

    /// Compares names of changed files; those below `known` were compared by content.
    pub(crate) fn compare_diffs(&mut self, then: &FsDiff, now: &FsDiff, known: Option<&Path>) {
        let listed = self.differences.len();
        let counts =
            |path: &Path| !known.is_some_and(|root| path.starts_with(root)) && !in_control(path);
        for (then, now, what) in [
            (&then.writes, &now.writes, "created"),
            (&then.mods, &now.mods, "changed"),
            (&then.deletes, &now.deletes, "deleted"),
            (&then.created_dirs, &now.created_dirs, "created"),
        ] {
            for path in then
                .iter()
                .filter(|path| counts(path) && !now.contains(path))
            {
                self.differ(
                    "file",
                    format!("{} was {what}, now it is not", path.display()),
                );
            }
            for path in now
                .iter()
                .filter(|path| counts(path) && !then.contains(path))
            {
                self.differ(
                    "file",
                    format!("{} was not {what}, now it is", path.display()),
                );
            }
        }
        let hashed = then.tree_hash.is_some() && then.tree_hash != now.tree_hash;
        if known.is_none() && hashed && self.differences.len() == listed {
            self.differ("file", "the same files have another content or mode");
        }
    }
}

fn changed(old: &Entry, new: &Entry) -> String {
    let name = |kind: &Kind| match kind {
        Kind::File(_) => "file",
        Kind::Link(_) => "symlink",
        Kind::Dir => "directory",
    };
    match (&old.kind, &new.kind) {
        (Kind::Link(old), Kind::Link(new)) => {
            format!("led to {}, now to {}", old.display(), new.display())
        }
        (old, new) if name(old) != name(new) => {
            format!("was a {}, now it is a {}", name(old), name(new))
        }
        (one, other) if one == other => format!("had mode {:04o}, now {:04o}", old.mode, new.mode),
        _ => "has another content".to_owned(),
    }
}

/// What two files have for lines, where both are texts and still kept.
fn diff_of(
    store: &Store,
    old: Option<&Entry>,
    new: Option<&Entry>,
    redactor: &Redactor,
) -> Option<String> {
    let content = |entry: Option<&Entry>| match entry.map(|entry| &entry.kind) {
        Some(Kind::File(hash)) => store.content(hash).ok(),
        None => Some(Vec::new()),
        Some(_) => None,
    };
    let (old, new) = (content(old)?, content(new)?);
    match old == new {
        true => None,
        false => lines(&redactor.output(&old), &redactor.output(&new)),
    }
}

/// A diff of two texts; `None` when one of them is none, or all that differs is not shown.
fn lines(old: &[u8], new: &[u8]) -> Option<String> {
    if old.len().max(new.len()) > TEXT {
        return None;
    }
    let (old, new) = (
        std::str::from_utf8(old).ok()?,
        std::str::from_utf8(new).ok()?,
    );
    if old == new || old.contains('\0') || new.contains('\0') {
        return None;
    }
    let diff = TextDiff::from_lines(old, new);
    let text = diff.unified_diff().context_radius(1).to_string();
    let mut shown: Vec<&str> = text.lines().take(SHOWN).collect();
    if text.lines().count() > SHOWN {
        shown.push("…");
    }
    Some(shown.join("\n"))
}
