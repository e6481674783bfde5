//! Signals as a descriptor, for a loop that also waits for other things.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::mask::Mask;

/// Signals that are taken from a descriptor instead of interrupting; the mask that the thread
/// had comes back when this is dropped.
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
        // SAFETY: an all-zero record is valid.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let length = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the pointer and length describe `info`.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), length) };
        if got < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        Ok((got as usize == length).then_some(info.ssi_signo as i32))
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
    // SAFETY: plain system call without pointers.
    unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
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
