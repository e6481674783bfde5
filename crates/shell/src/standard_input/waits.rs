//! Who waits for more of what a shell reads: the shell itself for a command, or somebody for data.
//!
//! Commands and data come through one pipe. What the kernel tells about a blocked read decides: bash
//! reads commands into a buffer on its heap, and its `read` into its stack or its image; a program is
//! another process. A read that fits neither is taken for one of commands.

use std::fs;

use crate::blocked::{self, Call, Memory};

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

/// A shell and the pipe that it reads.
pub struct Watched {
    process: i32,
    /// What `/proc/PID/fd/N` shows for the pipe.
    pipe: String,
    /// Where bash keeps what it reads commands into, once it was seen.
    buffer: Option<u64>,
    /// An interactive bash reads commands into its image, too: whatever it reads may be one.
    interactive: bool,
}

impl Watched {
    /// A shell that reads the pipe which is our own standard input.
    pub fn new(process: i32, interactive: bool) -> Self {
        let pipe = fs::read_link("/proc/self/fd/0").unwrap_or_default();
        Self {
            process,
            pipe: pipe.display().to_string(),
            buffer: None,
            interactive,
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
        if self.interactive || self.buffer == Some(address) {
            return Waits::Shell;
        }
        match (blocked::memory(self.process, address), count) {
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

    /// Whether a program that the shell has started waits.
    pub fn programs(&self) -> Waits {
        let mut perhaps = false;
        let mut processes = children(self.process);
        while let Some(process) = processes.pop() {
            processes.extend(children(process));
            let Some(call) = Call::of(process) else {
                continue;
            };
            if call.is_read() && self.is_pipe(process, call.arguments[0]) && sleeps(process) {
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

/// Whether a process sleeps. One that was stopped in a read takes nothing, and the shell would run it.
fn sleeps(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    after_name.trim_start().starts_with('S')
}

fn children(process: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let text = text.unwrap_or_default();
    text.split_ascii_whitespace()
        .filter_map(|child| child.parse().ok())
        .collect()
}

/// Whether this kernel lets us see what a process waits for.
pub fn can_be_seen(process: i32) -> bool {
    fs::read_to_string(format!("/proc/{process}/syscall")).is_ok()
}
