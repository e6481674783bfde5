//! What of a stream can be refused before it runs in a world. Whatever follows a program, or `read`, may be
//! its data. Data is not refused; were it a command, the world's guard would judge the start by the same rules.

use std::ffi::OsStr;
use std::path::Path;

use substrate_broker::{Answer, Around, Evaluation};
use substrate_command::{Extent, first_command, is_builtin};
use substrate_executor::session::Session;
use substrate_policy::Reason;
use substrate_trace::Verdict;

use super::request;

/// The text without lines that may be data and that only rules about program starts refuse. A text that nothing
/// refuses stays as it is.
pub fn without_doubtful(session: &Session, text: &[u8], cwd: &Path) -> Vec<u8> {
    let search_path = session.search_path();
    let judge = |text: &[u8]| judge(session, text, cwd, &search_path);
    if matches!(judge(text).answer, Answer::Allow(_)) {
        return text.to_vec();
    }
    let mut kept = Vec::new();
    let mut rest = text;
    let mut in_doubt = false;
    while !rest.is_empty() {
        let length = match first_command(rest) {
            Extent::Whole(length) => length,
            Extent::Open | Extent::Unclear => rest.len(),
        };
        let (command, after) = rest.split_at(length.clamp(1, rest.len()));
        let evaluation = judge(command);
        if !(in_doubt && is_the_guards(&evaluation)) {
            kept.extend_from_slice(command);
        }
        in_doubt |= may_read(&evaluation);
        rest = after;
    }
    kept
}

fn judge(session: &Session, text: &[u8], cwd: &Path, search_path: &OsStr) -> Evaluation {
    let request = request(text, cwd, search_path, Around::Nothing);
    session.broker.evaluate(&request)
}

/// Whether the guard of a world would come to the same: every reason is about a program that is started.
fn is_the_guards(evaluation: &Evaluation) -> bool {
    let starts = |reason: &Reason| {
        let invocation = reason
            .invocation
            .and_then(|at| evaluation.line.invocations.get(at));
        let name = invocation.and_then(|invocation| invocation.argv.first()?.value());
        let unread = reason.rule.list == "commands.on_unparsed";
        let is_program = name.is_some_and(|name| !is_builtin(name));
        unread
            || is_program
                && reason.rule.list.starts_with("commands.")
                && !reason.rule.pattern.contains('|')
    };
    let mut against = evaluation
        .judgement
        .reasons
        .iter()
        .filter(|reason| reason.verdict != Verdict::Allow);
    against.all(starts)
}

/// Builtins that read, or run what does.
const READERS: [&[u8]; 10] = [
    b".",
    b"builtin",
    b"command",
    b"eval",
    b"exec",
    b"mapfile",
    b"read",
    b"readarray",
    b"select",
    b"source",
];

/// Whether something of a command may take what follows it.
fn may_read(evaluation: &Evaluation) -> bool {
    let line = &evaluation.line;
    let reads = |name: &[u8]| !is_builtin(name) || READERS.contains(&name);
    let mut names = line
        .invocations
        .iter()
        .filter_map(|invocation| invocation.argv.first());
    !line.complete() || names.any(|name| name.value().is_none_or(reads))
}
