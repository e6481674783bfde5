//! Making the result of a replay the record of its span.

use std::ffi::OsString;
use std::path::PathBuf;

use substrate_trace::{
    Completion, Component, Environment, Event, Mode, Output, ReplayContext, SpanInfo, Stdin,
    Verdict, Writer,
};
use substrate_world::backend::Status;

use crate::outcome::Outcome;
use crate::past::Past;

/// Today's circumstances, which the record takes over with the result.
#[derive(Debug)]
pub struct Accepted {
    /// The policy that judged it.
    pub policy_id: String,
    /// Its hash.
    pub policy_hash: String,
    /// Whether it enforces.
    pub mode: Mode,
    /// The kernel and what held it.
    pub world_image_version: String,
    /// The programs.
    pub tools: Vec<(PathBuf, String)>,
}

/// Writes the result as the newest end of the span, which is what later replays compare with.
/// Answers false when the span's ids cannot be understood.
pub fn accept(
    writer: &Writer,
    past: &Past,
    outcome: &Outcome,
    now: Accepted,
) -> Result<bool, substrate_trace::Error> {
    let (Ok(session), Ok(span_id)) = (past.span.session_id.parse(), past.span.span_id.parse())
    else {
        return Ok(false);
    };
    let parent = past.span.parent_span.as_deref();
    let parent = parent.and_then(|parent| parent.parse().ok());
    let mut span = SpanInfo::new(Component::Replay, session, parent);
    span.span_id = span_id;
    span.policy_id = now.policy_id.clone();
    span.mode = now.mode;
    if let Some(agent) = &past.span.agent_id {
        span.agent_id.clone_from(agent);
    }
    span.cwd.clone_from(&past.cwd);
    span.cmd = past.line();
    span.argv = past.argv().unwrap_or_default().to_vec();
    span.verdict = past.span.verdict.as_deref().and_then(Verdict::from_word);
    span.rule.clone_from(&past.span.rule);
    span.place = Some("isolated");
    let stored: Vec<(OsString, OsString)> = past.env();
    let stdin = past.context.stdin.as_ref();
    let kept = outcome.trees.as_ref();
    span.replay = Some(ReplayContext {
        env: Environment {
            stored,
            hash: past.context.env_hash.clone(),
        },
        umask: past.context.umask.unwrap_or(0o022),
        cwd: past.cwd.clone(),
        policy_id: now.policy_id,
        policy_hash: Some(now.policy_hash),
        world_image_version: Some(now.world_image_version),
        stdin: match stdin.map(|stdin| (stdin.kind.as_str(), &stdin.digest, stdin.bytes)) {
            Some(("none", ..)) => Stdin::None,
            Some(("tty", ..)) => Stdin::Tty,
            Some(("pipe", ..)) => Stdin::Pipe,
            Some(("content", Some(digest), Some(bytes))) => Stdin::Content {
                digest: digest.clone(),
                bytes,
            },
            _ => Stdin::Unknown,
        },
        base_tree: kept.map(|(base, _)| base.clone()),
        tools: now.tools,
        ..ReplayContext::default()
    });
    let mode = past.span.output.as_ref().map(|then| then.mode.as_str());
    let [mut stdout, mut stderr] = outcome.output.clone();
    if mode != Some("bounded") {
        (stdout.copy, stderr.copy) = (None, None);
    }
    let done = Completion {
        exit: Some(outcome.status.code()),
        signal: match outcome.status {
            Status::Signaled(signal) => Some(signal),
            Status::Exited(_) => None,
        },
        duration: outcome.duration,
        enforced: Some(outcome.enforced.clone()),
        scopes_used: outcome.scopes.iter().map(OsString::from).collect(),
        fs_diff: outcome.fs_diff.clone(),
        // What was not wanted then is not wanted now.
        output: match mode {
            None | Some("off") => Output::Off,
            Some(_) => Output::Recorded {
                stdout: Some(stdout),
                stderr: (!outcome.merged).then_some(stderr),
                merged: outcome.merged,
            },
        },
        ..Completion::default()
    };
    writer.write(&Event::command_complete(&span, &done))?;
    Ok(true)
}
