//! Who waits for more of what a shell reads: the shell itself for a command, or somebody for data.
//!
//! Commands and data come through one pipe. What the kernel tells about a blocked read decides: bash
//! reads commands into a buffer on its heap, and its `read` into its stack or its image; a program is
//! another process. A read that fits neither is taken for one of commands.

use std::fs;

/// Who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// The shell, for a command.
    Shell,
    /// A program, or a builtin of the shell, for up to this many bytes.
    Reader(usize),
    /// Perhaps a program, which looks at several descriptors.
    Perhaps,
    /// Nobody.
    Nobody,
}

/// Parts of a shell's memory.
enum Memory {
    Image,
    Stack,
    Other,
}

/// A shell and the pipe that it reads.
pub struct Watched {
    process: i32,
    /// What `/proc/PID/fd/N` shows for the pipe.
    pipe: String,
    /// Where bash keeps what it reads commands into, once it was seen.
    buffer: Option<u64>,
}

impl Watched {
    /// A shell that reads the pipe which is our own standard input.
    pub fn new(process: i32) -> Self {
        let pipe = fs::read_link("/proc/self/fd/0").unwrap_or_default();
        Self {
            process,
            pipe: pipe.display().to_string(),
            buffer: None,
        }
    }

    /// Whether the shell itself waits, and for what; the pipe is empty.
    pub fn shell(&mut self) -> Waits {
        match Call::of(self.process) {
            Some(call) if call.is_read() => self.told_by(&call),
            _ => Waits::Nobody,
        }
    }

    fn told_by(&mut self, call: &Call) -> Waits {
        let [descriptor, address, count] = call.arguments;
        if descriptor != 0 && !self.is_pipe(self.process, descriptor) {
            return Waits::Nobody;
        }
        if self.buffer == Some(address) {
            return Waits::Shell;
        }
        match (self.memory(address), count) {
            (Memory::Image, _) | (Memory::Stack, 1) => {
                Waits::Reader(usize::try_from(count).unwrap_or(1).max(1))
            }
            // `. /dev/stdin` reads many at once there, and runs them.
            (Memory::Stack, _) => Waits::Shell,
            (Memory::Other, _) => {
                self.buffer = Some(address);
                Waits::Shell
            }
        }
    }

    /// What an address of the shell belongs to; its parser reads into nothing but the heap.
    fn memory(&self, address: u64) -> Memory {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.process)).unwrap_or_default();
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

    /// Whether a program that the shell has started waits.
    pub fn programs(&self) -> Waits {
        let mut perhaps = false;
        let mut processes = children(self.process);
        while let Some(process) = processes.pop() {
            processes.extend(children(process));
            let Some(call) = Call::of(process) else {
                continue;
            };
            if call.is_read() && self.is_pipe(process, call.arguments[0]) {
                return Waits::Reader(usize::try_from(call.arguments[2]).unwrap_or(1).max(1));
            }
            perhaps |= call.looks_at_several() && self.is_pipe(process, 0);
        }
        match perhaps {
            true => Waits::Perhaps,
            false => Waits::Nobody,
        }
    }

    fn is_pipe(&self, process: i32, descriptor: u64) -> bool {
        fs::read_link(format!("/proc/{process}/fd/{descriptor}"))
            .is_ok_and(|path| path.as_os_str() == self.pipe.as_str())
    }
}

fn children(process: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let text = text.unwrap_or_default();
    text.split_ascii_whitespace()
        .filter_map(|child| child.parse().ok())
        .collect()
}

/// A system call that a process is blocked in.
struct Call {
    number: u64,
    arguments: [u64; 3],
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
    fn of(process: i32) -> Option<Self> {
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

    fn is_read(&self) -> bool {
        self.number == numbers::READ
    }

    fn looks_at_several(&self) -> bool {
        numbers::SEVERAL.contains(&self.number)
    }
}

/// Whether this kernel lets us see what a process waits for.
pub fn can_be_seen(process: i32) -> bool {
    fs::read_to_string(format!("/proc/{process}/syscall")).is_ok()
}
