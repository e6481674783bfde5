//! A process, told apart from a later one with the same id.

use serde::{Deserialize, Serialize};
use substrate_sys::kernel_file;

/// A process, told apart from a later one with the same id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot, field 22 of `/proc/<pid>/stat`.
    pub start: u64,
}

impl Owner {
    /// This process.
    pub fn current() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start: start_time(pid).unwrap_or(0),
        }
    }

    /// Whether that very process still runs.
    pub fn is_alive(self) -> bool {
        start_time(self.pid) == Some(self.start)
    }

    /// A name for something that goes with this process, by which it is found if it does not.
    pub fn mark(self, name: &str) -> String {
        format!("{name}.{}.{}", self.pid, self.start)
    }

    /// The process in whose name something was made.
    pub fn of_mark(name: &str) -> Option<Self> {
        let mut parts = name.rsplitn(3, '.');
        let (start, pid) = (parts.next()?, parts.next()?);
        parts.next()?;
        Some(Self {
            pid: pid.parse().ok()?,
            start: start.parse().ok()?,
        })
    }
}

/// When a process started; `None` if there is none or it is only waiting to be reaped.
fn start_time(pid: u32) -> Option<u64> {
    let stat = kernel_file::read(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so count from its end.
    let rest = &stat[stat.iter().rposition(|&b| b == b')')? + 1..];
    let mut fields = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
    match fields.next()? {
        "Z" | "X" => None,
        _ => fields.nth(18)?.parse().ok(),
    }
}
