//! Which events are wanted, and a fast no for lines that cannot be among them.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use memchr::memmem::{self, Finder};

use super::span::Span;
use crate::glob;
use crate::json::escape;
use substrate_text::time::Utc;

/// How lines of our own writer begin; the time follows, then the type.
const BEGIN: &[u8] = b"{\"v\":1,\"ts\":\"";
const TIME: usize = 24;
const TYPE: &[u8] = b"\",\"event_type\":\"";

/// What an exit status must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// This one.
    Is(i32),
    /// Any but zero.
    Failed,
}

/// Conditions that must all hold; the default has none.
///
/// Texts match anywhere and exactly. With a `*` or `?` in them they are globs and must
/// match as a whole.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// In the command line, or in one of its words.
    pub command: Option<Vec<u8>>,
    /// The working directory is this one or below it.
    pub cwd: Option<PathBuf>,
    /// The exit status.
    pub exit: Option<Exit>,
    /// The verdict, or the outcome of a violation or approval.
    pub verdict: Option<String>,
    /// The actor.
    pub agent: Option<String>,
    /// A path that was changed: this one or one below it, or a glob.
    pub path: Option<PathBuf>,
    /// A host that was talked to: this one, or a glob.
    pub host: Option<String>,
    /// Not before.
    pub since: Option<SystemTime>,
    /// Not after.
    pub until: Option<SystemTime>,
    /// One of these types; empty means any.
    pub event_types: Vec<String>,
    /// The session.
    pub session: Option<String>,
    /// The span, its beginning or its end.
    pub span: Option<String>,
    /// The enclosing span.
    pub parent: Option<String>,
    /// Only what ran: not the result of a replay that became the record of its span later.
    pub ran: bool,
}

/// A filter with what it takes to reject most lines unparsed.
#[derive(Debug)]
pub(super) struct Sieve {
    filter: Filter,
    needles: Vec<Needle>,
    /// Times as our writer spells them; they sort as text.
    since: Option<String>,
    until: Option<String>,
}

#[derive(Debug)]
struct Needle {
    finder: Finder<'static>,
    /// The text may be hidden in base64.
    bytes: bool,
}

impl Sieve {
    pub(super) fn new(filter: &Filter) -> Self {
        let mut sieve = Self {
            filter: filter.clone(),
            needles: Vec::new(),
            since: filter.since.map(|at| Utc(at).to_string()),
            until: filter.until.map(|at| Utc(at).to_string()),
        };
        sieve.field("parent_span", filter.parent.as_deref(), "\"");
        sieve.field("session_id", filter.session.as_deref(), "\"");
        sieve.field("agent_id", filter.agent.as_deref(), "\"");
        if let Some(Exit::Is(status)) = filter.exit {
            sieve.needle(format!("\"exit\":{status},").into_bytes(), false);
        }
        sieve.text(filter.span.as_deref().map(str::as_bytes), false);
        sieve.text(filter.verdict.as_deref().map(str::as_bytes), false);
        sieve.text(filter.command.as_deref(), true);
        sieve.text(filter.host.as_deref().map(str::as_bytes), true);
        sieve.text(filter.cwd.as_ref().map(|p| p.as_os_str().as_bytes()), true);
        sieve.text(filter.path.as_ref().map(|p| p.as_os_str().as_bytes()), true);
        sieve
    }

    fn field(&mut self, key: &str, value: Option<&str>, end: &str) {
        if let Some(value) = value {
            let mut needle = format!("\"{key}\":\"").into_bytes();
            escape(value, &mut needle);
            needle.extend_from_slice(end.as_bytes());
            self.needle(needle, false);
        }
    }

    /// A text that must occur; of a glob, its longest part without wildcards.
    fn text(&mut self, text: Option<&[u8]>, bytes: bool) {
        let longest = text.and_then(|text| {
            let parts = text.split(|byte| matches!(byte, b'*' | b'?'));
            parts.max_by_key(|part| part.len())
        });
        // What is not UTF-8 can only be in base64, where it cannot be searched.
        if let Some(Ok(text)) = longest.map(std::str::from_utf8) {
            let mut needle = Vec::new();
            escape(text, &mut needle);
            self.needle(needle, bytes);
        }
    }

    fn needle(&mut self, text: Vec<u8>, bytes: bool) {
        if !text.is_empty() {
            let finder = Finder::new(&text).into_owned();
            self.needles.push(Needle { finder, bytes });
        }
    }

    /// Whether the line must be parsed to know. A line that another program has laid
    /// out always must.
    pub(super) fn may_fit(&self, line: &[u8]) -> bool {
        let Some(rest) = line.strip_prefix(BEGIN) else {
            return true;
        };
        let Some((time, rest)) = rest.split_at_checked(TIME) else {
            return true;
        };
        let Some(kind) = rest.strip_prefix(TYPE) else {
            return true;
        };
        let early = self.since.as_ref().is_some_and(|at| time < at.as_bytes());
        let late = self.until.as_ref().is_some_and(|at| time > at.as_bytes());
        let types = &self.filter.event_types;
        let other_type = !types.is_empty()
            && !types.iter().any(|wanted| {
                kind.strip_prefix(wanted.as_bytes())
                    .is_some_and(|rest| rest.starts_with(b"\""))
            });
        if early || late || other_type {
            return false;
        }
        if self.filter.exit == Some(Exit::Failed) && memmem::find(kind, b"\"exit\":0,").is_some() {
            return false;
        }
        self.needles.iter().all(|needle| {
            needle.finder.find(kind).is_some()
                || needle.bytes && memmem::find(kind, b"{\"b64\":").is_some()
        })
    }

    /// Whether a parsed event is wanted.
    pub(super) fn fits(&self, span: &Span) -> bool {
        let filter = &self.filter;
        holds(&filter.command, |text| command(span, text))
            && holds(&filter.cwd, |dir| {
                span.cwd.as_ref().is_some_and(|cwd| cwd.starts_with(dir))
            })
            && holds(&filter.exit, |exit| match exit {
                Exit::Is(status) => span.exit == Some(*status),
                Exit::Failed => span.exit.is_some_and(|status| status != 0),
            })
            && holds(&filter.verdict, |word| {
                span.verdict.as_ref() == Some(word) || span.outcome.as_ref() == Some(word)
            })
            && holds(&filter.agent, |agent| span.agent_id.as_ref() == Some(agent))
            && holds(&filter.path, |path| span.paths().any(|p| touches(p, path)))
            && holds(&filter.host, |host| span.hosts().any(|h| is_host(h, host)))
            && (filter.since.is_none() && filter.until.is_none()
                || span.time().is_some_and(|at| {
                    holds(&filter.since, |since| at >= *since)
                        && holds(&filter.until, |until| at <= *until)
                }))
            && (filter.event_types.is_empty() || filter.event_types.contains(&span.event_type))
            && holds(&filter.session, |id| span.session_id == *id)
            && holds(&filter.span, |id| names_span(&span.span_id, id))
            && holds(&filter.parent, |id| span.parent_span.as_ref() == Some(id))
            && !(filter.ran && span.event_type == "command_complete" && span.component == "replay")
    }
}

fn holds<T>(condition: &Option<T>, check: impl FnOnce(&T) -> bool) -> bool {
    condition.as_ref().is_none_or(check)
}

/// Whether a text names this id: whole, its beginning with or without the prefix, or
/// its end, which is where ids made one after another differ most.
pub(super) fn names_span(id: &str, text: &str) -> bool {
    let bare = id.strip_prefix("spn_").unwrap_or(id);
    id.starts_with(text) || bare.starts_with(text) || id.ends_with(text)
}

fn is_glob(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'*' | b'?'))
}

fn command(span: &Span, text: &[u8]) -> bool {
    let fits = |command: &[u8]| match is_glob(text) {
        true => glob::matches(text, command),
        false => memmem::find(command, text).is_some(),
    };
    let argv = span.argv.iter().flatten();
    argv.chain(&span.cmd).any(|text| fits(text.as_bytes()))
}

fn touches(path: &Path, wanted: &Path) -> bool {
    let text = wanted.as_os_str().as_bytes();
    match is_glob(text) {
        true => glob::matches(text, path.as_os_str().as_bytes()),
        false => path.starts_with(wanted),
    }
}

fn is_host(host: &str, wanted: &str) -> bool {
    match is_glob(wanted.as_bytes()) {
        true => glob::matches(wanted.as_bytes(), host.as_bytes()),
        false => host == wanted,
    }
}
