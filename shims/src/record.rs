//! The spans of a shim.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use substrate_broker::env::SUBSTRATE_AGENT_ID;
use substrate_runtime::supervise::Ending;
use substrate_sys::environment;
use substrate_trace::{
    Completion, Component, Enforced, Environment, Event, FsDiff, Key, PARENT_SPAN_VAR, ParentSpan,
    Redactor, ReplayContext, Retention, SessionId, SpanId, SpanInfo, Writer,
};

/// How far back the trace is read when a circle is looked for.
const TAIL: u64 = 16 << 10;

/// Starts that lie further back than this are no circle, in milliseconds.
const RECENT: u64 = 2000;

/// How often one process may start the same tool in quick succession before that is a circle.
const PATIENCE: usize = 8;

/// The span that encloses this command, as the environment names it.
pub fn parent(env: &[CString]) -> Option<ParentSpan> {
    std::str::from_utf8(environment::get(env, PARENT_SPAN_VAR)?)
        .ok()?
        .parse()
        .ok()
}

/// A span for a shim, with what is known before anything is judged.
pub fn span(
    parent: Option<ParentSpan>,
    env: &[CString],
    cwd: &Path,
    argv: Vec<OsString>,
) -> SpanInfo {
    let session = parent.map_or_else(SessionId::new, |parent| parent.session);
    let mut span = SpanInfo::new(Component::Shim, session, parent.map(|parent| parent.span));
    if let Some(agent) = environment::get(env, SUBSTRATE_AGENT_ID).filter(|value| !value.is_empty())
    {
        span.agent_id = String::from_utf8_lossy(agent).into_owned();
    }
    span.cwd = cwd.to_owned();
    span.cmd = substrate_text::command_line(&argv);
    span.argv = argv;
    span.place = Some("direct");
    span
}

/// What a replay of the span needs.
pub fn replay_context(
    span: &SpanInfo,
    env: &[CString],
    policy_hash: Option<String>,
    key: Option<&Key>,
) -> ReplayContext {
    let variables = env.iter().filter_map(|entry| {
        let entry = entry.as_bytes();
        let at = entry.iter().position(|byte| *byte == b'=')?;
        Some((
            OsString::from_vec(entry[..at].to_vec()),
            OsString::from_vec(entry[at + 1..].to_vec()),
        ))
    });
    ReplayContext {
        env: Environment::record(variables, key),
        umask: substrate_sys::identity::umask(),
        cwd: span.cwd.clone(),
        policy_id: span.policy_id.clone(),
        policy_hash,
        ..ReplayContext::default()
    }
}

/// The environment for what this span starts.
pub fn child_env(span: &SpanInfo, env: &[CString]) -> Vec<CString> {
    let mut child = env.to_vec();
    let parent = ParentSpan {
        session: span.session_id,
        span: span.span_id,
    };
    environment::set(&mut child, PARENT_SPAN_VAR, parent.to_string().as_bytes());
    child
}

/// Opens the trace.
pub fn open(home: &Path, redact: &[String]) -> Result<Writer, substrate_trace::Error> {
    Writer::open_with(home, Retention::default(), Redactor::new(redact))
}

/// Writes the end of a span; `replay` adds what a replay of it needs. Nobody is left to hear about a
/// failure, and a home that is gone by now is not made anew.
pub fn complete(
    home: &Path,
    redact: &[String],
    span: &SpanInfo,
    ended: (Option<Ending>, Duration),
    replay: impl FnOnce(Option<&Key>) -> Option<ReplayContext>,
) {
    if !home.is_dir() {
        return;
    }
    let (ending, duration) = ended;
    let done = Completion {
        exit: ending.map(Ending::status),
        signal: match ending {
            Some(Ending::Signal(signal)) => Some(signal),
            _ => None,
        },
        duration,
        enforced: Some(Enforced {
            exec: "shims".to_owned(),
            ..Enforced::default()
        }),
        // Two walks over the project would cost more than most tools.
        fs_diff: Some(FsDiff {
            strategy: "skipped".to_owned(),
            summary: Some("a shim takes no snapshot".to_owned()),
            root: span.cwd.clone(),
            ..FsDiff::default()
        }),
        ..Completion::default()
    };
    if let Ok(writer) = open(home, redact) {
        let mut span = span.clone();
        span.replay = replay(writer.key().ok());
        let _ = writer.write(&Event::command_complete(&span, &done));
    }
}

/// How many matches on `PATH` have led back to this shim. A wrapper that looks for "the other git"
/// finds the shim, which finds the wrapper: the same process starts the same tool again and again,
/// and the trace shows it. Running a program of the same name once more is no circle.
pub fn circles(home: &Path, parent: Option<ParentSpan>, tool: &[u8]) -> usize {
    let Some(parent) = parent else { return 0 };
    let now = SpanId::new().millis();
    if now.saturating_sub(parent.span.millis()) > RECENT {
        return 0;
    }
    let tail = tail(&home.join("trace.jsonl")).unwrap_or_default();
    let head = format!("\"pid\":{},", std::process::id());
    starts(&tail, parent.span, head.as_bytes(), tool, now) / PATIENCE
}

fn tail(trace: &Path) -> std::io::Result<Vec<u8>> {
    let file = File::open(trace)?;
    let start = file.metadata()?.len().saturating_sub(TAIL);
    let mut bytes = vec![0; TAIL as usize];
    let read = file.read_at(&mut bytes, start)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Follows the spans upwards while they are recent starts of this tool by this process.
fn starts(tail: &[u8], mut span: SpanId, pid: &[u8], tool: &[u8], now: u64) -> usize {
    let argv = [b"\"argv\":[\"", tool, b"\""].concat();
    let start = b"\"event_type\":\"command_start\"";
    let mut count = 0;
    while now.saturating_sub(span.millis()) <= RECENT {
        let own = format!("\"span_id\":\"{span}\",\"parent_span\":");
        let line = tail.split(|byte| *byte == b'\n').find(|line| {
            contains(line, start).is_some() && contains(line, own.as_bytes()).is_some()
        });
        let fits = |line: &&[u8]| contains(line, pid).is_some() && contains(line, &argv).is_some();
        let Some(line) = line.filter(fits) else { break };
        count += 1;
        let above = contains(line, own.as_bytes())
            .and_then(|at| line.get(at + own.len() + 1..at + own.len() + 41))
            .and_then(|id| std::str::from_utf8(id).ok()?.parse().ok());
        match above {
            Some(above) => span = above,
            None => break,
        }
    }
    count
}

fn contains(text: &[u8], part: &[u8]) -> Option<usize> {
    let (first, last) = (*part.first()?, text.len().checked_sub(part.len())?);
    let mut at = 0;
    while at <= last {
        at += text[at..=last].iter().position(|byte| *byte == first)?;
        if text[at..].starts_with(part) {
            return Some(at);
        }
        at += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_shows_in_the_trace() {
        let home = tempfile::tempdir().unwrap();
        let writer = open(home.path(), &[]).unwrap();
        let mut parent = None;
        for round in 0..2 * PATIENCE {
            assert_eq!(circles(home.path(), parent, b"git"), round / PATIENCE);
            assert_eq!(circles(home.path(), parent, b"gi"), 0);
            let span = span(parent, &[], Path::new("/"), vec!["git".into(), "x".into()]);
            writer.write(&Event::command_start(&span)).unwrap();
            parent = Some(ParentSpan {
                session: span.session_id,
                span: span.span_id,
            });
        }
    }

    #[test]
    fn other_processes_are_no_circle() {
        let home = tempfile::tempdir().unwrap();
        let writer = open(home.path(), &[]).unwrap();
        let mut parent = None;
        for _ in 0..2 * PATIENCE {
            let mut span = span(parent, &[], Path::new("/"), vec!["git".into()]);
            span.pid = 1;
            writer.write(&Event::command_start(&span)).unwrap();
            parent = Some(ParentSpan {
                session: span.session_id,
                span: span.span_id,
            });
        }
        assert_eq!(circles(home.path(), parent, b"git"), 0);
    }
}
