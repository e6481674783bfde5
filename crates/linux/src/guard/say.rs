//! Telling whoever started a program why it does not run.

use std::fs;
use std::os::fd::AsFd;

use substrate_sys::{foreign, pidfd};

/// Longest text: a pipe takes so much whole or not at all.
const LONGEST: usize = 4000;

/// Puts a line on the standard error of a process. Where that cannot be done, or would have to
/// wait, the answer of the call has to do.
pub(super) fn on_stderr(process: i32, text: &str) {
    let mut line = text.as_bytes().to_vec();
    line.truncate(LONGEST);
    line.push(b'\n');
    let stderr = pidfd::open(leader(process).unwrap_or(process))
        .and_then(|pidfd| pidfd::descriptor(pidfd.as_fd(), 2));
    if let Ok(stderr) = stderr {
        let _ = foreign::write_line(&stderr, &line);
    }
}

/// The process that a thread belongs to.
pub(super) fn leader(thread: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}
