//! Signals as a descriptor, for a loop that also waits for other things.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};

use crate::mask::Mask;

/// Signals that are taken from a descriptor instead of interrupting; the mask that the thread
/// had comes back when this is dropped.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
    before: Mask,
}

impl Signals {
    /// Blocks these signals in this thread and opens a descriptor for them. Threads made
    /// before keep their own mask.
    pub fn take(signals: &[i32]) -> io::Result<Signals> {
        // SAFETY: the set is initialised by the call that takes it; the descriptor is new.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            let before = Mask::of(signals.iter().copied()).block();
            let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                let error = io::Error::last_os_error();
                before.set();
                return Err(error);
            }
            Ok(Signals {
                fd: OwnedFd::from_raw_fd(fd),
                before,
            })
        }
    }

    /// The next signal, if one has come.
    pub fn next(&self) -> io::Result<Option<i32>> {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.fd, &mut info) {
            // The number comes first.
            Ok(got) if got == info.len() => Ok(info.first_chunk().map(|n| i32::from_ne_bytes(*n))),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.before.set();
    }
}

/// Stops this process as Ctrl-Z would, until somebody continues it.
pub fn stop_self() {
    let _ = kill_process(getpid(), Signal::STOP);
}

/// The terminal is gone.
pub const HANGUP: i32 = libc::SIGHUP;
/// Ctrl-C.
pub const INTERRUPT: i32 = libc::SIGINT;
/// Ctrl-\.
pub const QUIT: i32 = libc::SIGQUIT;
/// The end, without a word.
pub const KILL: i32 = libc::SIGKILL;
/// A polite request to end.
pub const TERMINATE: i32 = libc::SIGTERM;
/// Free for programs.
pub const USER_1: i32 = libc::SIGUSR1;
/// Free for programs.
pub const USER_2: i32 = libc::SIGUSR2;
/// Ctrl-Z.
pub const TERMINAL_STOP: i32 = libc::SIGTSTP;
/// Stops without asking.
pub const STOP: i32 = libc::SIGSTOP;
/// Goes on after a stop.
pub const CONTINUE: i32 = libc::SIGCONT;
/// The terminal has another size.
pub const WINDOW_CHANGE: i32 = libc::SIGWINCH;
