//! What a replay found, for a person and for a program.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use substrate_executor::recording;
use substrate_replay::{Outcome, Past};
use substrate_text::visible;
use substrate_text::wire::Bytes;
use substrate_trace::{FsDiff, Stream};

use crate::commands::trace::look::{self, Look, Tint};

/// How long a command is shown beside its verdict.
const WIDTH: usize = 60;

/// One word that sums it up.
pub fn verdict(outcome: &Outcome, updated: bool) -> (&'static str, Tint) {
    match (outcome.is_same(), updated) {
        (true, _) => ("same", Tint::Good),
        (false, true) => ("updated", Tint::Odd),
        (false, false) => ("different", Tint::Bad),
    }
}

/// What the verdict is about, where that is not all there is: nobody should take silence for agreement.
pub fn compared(outcome: &Outcome) -> String {
    let compared = &outcome.compared;
    let all = ["exit", "output", "files"];
    match compared.as_slice() {
        [] => " (nothing could be compared)".to_owned(),
        _ if all.iter().all(|what| compared.contains(what)) => String::new(),
        [only] => format!(" ({only} only)"),
        some => format!(" ({} only)", some.join(" and ")),
    }
}

/// What is not as it was around it and bears on every comparison; the rest is told with `--verbose`.
pub fn drift(outcome: &Outcome) -> String {
    let told = |what: &str| matches!(what, "policy" | "kernel" | "level");
    let warnings = outcome.warnings.iter().filter(|warning| told(warning.what));
    warnings
        .map(|warning| {
            let line = format!("{}: {}", warning.what, warning.text);
            format!("  drift: {}\n", visible(line.as_bytes()))
        })
        .collect()
}

/// A line about one of several spans.
pub fn head(look: &Look, past: &Past, word: (&str, Tint), compared: &str) -> String {
    let id = look::short(&past.span.span_id);
    let command = look.cut(&look::command(&past.span), WIDTH);
    let verdict = look.tint(word.1, &format!("{:<9}", format!("{}{compared}", word.0)));
    format!("{id}  {verdict}  {command}\n")
}

/// Where it ran, what it used, and what is not as it was.
pub fn verbose(outcome: &Outcome) -> String {
    let held = &outcome.enforced;
    let mut text = format!(
        "[replay] world: {}: fs {}, net {}, exec {}\n",
        held.level, held.fs, held.net, held.exec
    );
    let scopes = match scopes(outcome) {
        scopes if scopes.is_empty() => "none".to_owned(),
        scopes => scopes.join(", "),
    };
    text.push_str(&format!(
        "[replay] scopes: {}\n",
        visible(scopes.as_bytes())
    ));
    text.push_str(&format!("[replay] files put back: {}\n", outcome.restored));
    for warning in &outcome.warnings {
        let line = format!("{}: {}", warning.what, warning.text);
        text.push_str(&format!("[replay] warn: {}\n", visible(line.as_bytes())));
    }
    text
}

/// What differs, line by line.
pub fn differences(look: &Look, outcome: &Outcome) -> String {
    let mut text = String::new();
    for difference in &outcome.differences {
        let line = format!("{}: {}", difference.what, difference.text);
        text.push_str(&format!("  {}\n", visible(line.as_bytes())));
        for line in difference.diff.iter().flat_map(|diff| diff.lines()) {
            let tint = match line.as_bytes().first() {
                Some(b'-') => Tint::Bad,
                Some(b'+') => Tint::Good,
                _ => Tint::Dim,
            };
            let line = look::clean(OsStr::new(line));
            text.push_str(&format!("    {}\n", look.tint(tint, &line)));
        }
    }
    if let Some(world) = &outcome.kept {
        text.push_str(&format!("kept: substrate world diff {world}\n"));
    }
    text
}

/// What it used: whom it reached, and what it wrote.
fn scopes(outcome: &Outcome) -> Vec<String> {
    let written = recording::write_scopes(outcome.fs_diff.as_ref());
    let written = written.map(|scope| visible(scope.as_bytes()));
    outcome.scopes.iter().cloned().chain(written).collect()
}

/// What it changed this time.
fn changes(diff: &FsDiff) -> Value {
    let path = |path: &Path| json!(Bytes(path.as_os_str().as_bytes().to_vec()));
    let paths = |paths: &[PathBuf]| paths.iter().map(|one| path(one)).collect::<Vec<_>>();
    json!({
        "root": path(&diff.root),
        "writes": paths(&diff.writes),
        "mods": paths(&diff.mods),
        "deletes": paths(&diff.deletes),
        "created_dirs": paths(&diff.created_dirs),
        "truncated": diff.truncated,
        "strategy": diff.strategy,
        "tree_hash": diff.tree_hash,
        "summary": diff.summary,
    })
}

/// Everything, as one object.
pub fn json(past: &Past, outcome: &Outcome, updated: bool) -> Value {
    let differences = outcome.differences.iter().map(|difference| {
        json!({
            "what": difference.what,
            "text": difference.text,
            "diff": difference.diff,
        })
    });
    let warnings = outcome.warnings.iter();
    let warnings = warnings.map(|warning| json!({"what": warning.what, "text": warning.text}));
    let stream = |stream: &Stream| json!({"bytes": stream.bytes, "digest": stream.digest});
    let [stdout, stderr] = &outcome.output;
    let held = &outcome.enforced;
    json!({
        "span_id": past.span.span_id,
        "verdict": verdict(outcome, updated).0,
        "same": outcome.is_same(),
        "exit": outcome.status.code(),
        "differences": differences.collect::<Vec<_>>(),
        "warnings": warnings.collect::<Vec<_>>(),
        "world": {"level": held.level.as_str(), "fs": held.fs, "net": held.net, "exec": held.exec},
        "compared": outcome.compared,
        "scopes": scopes(outcome),
        "fs_diff": outcome.fs_diff.as_ref().map(changes),
        "restored": outcome.restored,
        "stdout": stream(stdout),
        "stderr": stream(stderr),
        "merged": outcome.merged,
        "kept": outcome.kept,
    })
}
