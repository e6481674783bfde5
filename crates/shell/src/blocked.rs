//! What a blocked process waits for, as the kernel tells it.

use std::fs;
use std::path::PathBuf;

/// Parts of a shell's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// The program itself and its static data.
    Image,
    /// The stack.
    Stack,
    /// Whatever it has allocated.
    Other,
}

/// What an address of the shell belongs to; its parser reads into nothing but the heap.
pub fn memory(process: i32, address: u64) -> Memory {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let mut before_heap = true;
    for line in maps.lines() {
        before_heap &= !line.ends_with("[heap]");
        let range = line
            .split(' ')
            .next()
            .and_then(|range| range.split_once('-'));
        let number = |text| u64::from_str_radix(text, 16).ok();
        let Some((Some(from), Some(to))) = range.map(|(a, b)| (number(a), number(b))) else {
            continue;
        };
        if (from..to).contains(&address) {
            return match before_heap {
                true => Memory::Image,
                false if line.ends_with("[stack]") => Memory::Stack,
                false => Memory::Other,
            };
        }
    }
    Memory::Other
}

/// What runs in a shell's own process group beside it: the children of its subshells, and no jobs.
pub fn companions(shell: i32) -> Vec<i32> {
    let group = |process: i32| {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        rest.split_whitespace().nth(2)?.parse::<i32>().ok()
    };
    let Some(own) = group(shell) else {
        return Vec::new();
    };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let all = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    all.filter(|process| *process != shell && group(*process) == Some(own))
        .collect()
}

/// Whether a process has opened a terminal.
pub fn has_a_terminal(process: i32) -> bool {
    let open = fs::read_dir(format!("/proc/{process}/fd"));
    let mut links = open
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    links.any(|link| link.starts_with("/dev/pts") || link.starts_with("/dev/tty"))
}

/// A system call that a process is blocked in.
pub struct Call {
    number: u64,
    /// Its first arguments.
    pub arguments: [u64; 3],
}

#[cfg(target_arch = "x86_64")]
mod numbers {
    pub const READ: u64 = 0;
    /// readv, poll, select, pselect6, ppoll, epoll_wait, epoll_pwait, splice, epoll_pwait2
    pub const SEVERAL: &[u64] = &[19, 7, 23, 270, 271, 232, 281, 275, 441];
}
#[cfg(not(target_arch = "x86_64"))]
mod numbers {
    pub const READ: u64 = 63;
    /// readv, pselect6, ppoll, epoll_pwait, splice, epoll_pwait2
    pub const SEVERAL: &[u64] = &[65, 72, 73, 22, 76, 441];
}

impl Call {
    /// `None` for a process that runs, is gone, or may not be looked at.
    pub fn of(process: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{process}/syscall")).ok()?;
        let mut fields = text.split_ascii_whitespace();
        let number = fields.next()?.parse().ok()?;
        let mut argument = || {
            let text = fields.next()?.strip_prefix("0x")?;
            u64::from_str_radix(text, 16).ok()
        };
        Some(Self {
            number,
            arguments: [argument()?, argument()?, argument()?],
        })
    }

    /// Whether it reads one descriptor.
    pub fn is_read(&self) -> bool {
        self.number == numbers::READ
    }

    /// Whether it may wait for any of several descriptors.
    pub fn looks_at_several(&self) -> bool {
        numbers::SEVERAL.contains(&self.number)
    }
}

/// Where a process that is blocked in a read wants to have the bytes, how many, and the file that they come from.
pub fn reading(process: i32) -> Option<(u64, u64, PathBuf)> {
    let call = Call::of(process).filter(Call::is_read)?;
    let [descriptor, address, count] = call.arguments;
    let from = fs::read_link(format!("/proc/{process}/fd/{descriptor}")).ok()?;
    Some((address, count, from))
}
