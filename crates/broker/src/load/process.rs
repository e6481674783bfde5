//! What the kernel says about processes.

use std::fs;
use std::io::Read;

/// A chain longer than any real one would be a loop.
const MAX_CHAIN: usize = 512;

/// The parts of `/proc/PID/stat` that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The parent; 0 when there is none that we can see.
    pub parent: u32,
    /// The leader of its process group.
    pub group: u32,
    /// The leader of the session.
    pub session: u32,
    /// The controlling terminal as a device number; 0 when there is none.
    pub terminal: u64,
    /// The process group that has this terminal; 0 when there is none.
    pub foreground: u32,
    /// When it started, in ticks since the machine did.
    pub start: u64,
    /// It has ended, and only its parent has not looked yet.
    pub ended: bool,
}

impl Stat {
    /// Of a process by id, or of `self`.
    pub fn of(pid: &str) -> Option<Self> {
        // The file is one short line; std would ask for its size and then read it in small steps.
        let mut buffer = [0; 1024];
        let length = fs::File::open(format!("/proc/{pid}/stat"))
            .ok()?
            .read(&mut buffer)
            .ok()?;
        Self::parse(buffer.get(..length)?)
    }

    fn parse(line: &[u8]) -> Option<Self> {
        // The command name is in parentheses and may hold anything, so the last one counts.
        let name_end = line.iter().rposition(|byte| *byte == b')')?;
        let fields = std::str::from_utf8(line.get(name_end + 1..)?).ok()?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<i64>().ok();
        Some(Self {
            parent: u32::try_from(number(1)?).ok()?,
            group: u32::try_from(number(2)?).ok()?,
            session: u32::try_from(number(3)?).ok()?,
            terminal: u64::try_from(number(4)?).ok()?,
            foreground: u32::try_from(number(5)?).unwrap_or(0),
            start: u64::try_from(number(19)?).ok()?,
            ended: matches!(fields.first(), Some(&("Z" | "X"))),
        })
    }
}

/// A whole file of `/proc`. Such files tell no size, and std would read them in small steps.
pub fn read_whole(path: &str) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::with_capacity(16 * 1024);
    fs::File::open(path)?
        .take(u64::MAX)
        .read_to_end(&mut content)?;
    Ok(content)
}

/// The processes above one, nearest first.
pub fn chain_of(pid: u32) -> impl Iterator<Item = u32> {
    std::iter::successors(parent_of(pid), |pid| parent_of(*pid))
        .take_while(|pid| *pid > 0)
        .take(MAX_CHAIN)
}

/// The parent of a process: as its descriptor tells it, else as it is written in `/proc`, which takes
/// the kernel several times as long.
fn parent_of(pid: u32) -> Option<u32> {
    substrate_sys::process_info::parent(pid)
        .ok()
        .or_else(|| Stat::of(&pid.to_string()).map(|stat| stat.parent))
}

/// A process that can be told from a later one with the same number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its number.
    pub pid: u32,
    /// When it started.
    pub start: u64,
    /// Which run of the machine that was.
    pub boot: String,
}

impl Identity {
    /// Of a running process.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self {
            pid,
            start: Stat::of(&pid.to_string())?.start,
            boot: boot(),
        })
    }

    /// Whether that process still runs.
    pub fn is_alive(&self) -> bool {
        Identity::of(self.pid).is_some_and(|now| now == *self)
    }
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Caller;

    #[test]
    fn a_name_may_hold_anything() {
        let line = b"7 (a ) b) S 3 7 5 34817 6 4194304 0 0 0 0 0 0 0 0 20 0 1 0 991 0 0";
        assert_eq!(
            Stat::parse(line),
            Some(Stat {
                parent: 3,
                group: 7,
                session: 5,
                terminal: 34817,
                foreground: 6,
                start: 991,
                ended: false,
            })
        );
        assert_eq!(Stat::parse(b"7 (x"), None);
    }

    #[test]
    fn we_are_below_our_parent() {
        let parent = std::os::unix::process::parent_id();
        assert_eq!(chain_of(std::process::id()).next(), Some(parent));
        assert!(Caller::own().is_below(&Identity::of(parent).unwrap()));
        let mut other = Identity::of(std::process::id()).unwrap();
        other.start += 1;
        assert!(!other.is_alive() && !Caller::own().is_below(&other));
    }
}
