//! Helpers for tests that need other processes: the test binary starts itself.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses its own part, and helpers of tests may panic"
)]

use std::path::Path;
use std::process::{Child, Command, Stdio};

use substrate_trace::{Component, SessionId, SpanInfo};

/// Names the home that a child process works in.
pub const HOME: &str = "TRACE_TEST_HOME";

/// Starts the ignored test `name` of this binary as a process of its own.
pub fn child(name: &str, home: &Path) -> Child {
    command(name, home).spawn().unwrap()
}

pub fn command(name: &str, home: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--quiet"]);
    command.env(HOME, home).stdout(Stdio::null());
    command
}

pub fn span(cmd: &str) -> SpanInfo {
    let mut span = SpanInfo::new(Component::Shell, SessionId::new(), None);
    span.policy_id = "default".into();
    span.cwd = "/srv/project".into();
    span.cmd = cmd.into();
    span
}

pub fn lines(home: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(home.join("trace.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
