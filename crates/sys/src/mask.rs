//! The signal mask as the kernel has it. C libraries leave the signals that they use themselves out of
//! what they tell, each its own: a mask that went through one would come back with fewer.

use std::io;
use std::ptr;

/// Signals, one bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mask(u64);

impl Mask {
    /// Every signal there is, those of the C library too: not for a thread that has others beside it for
    /// longer than a moment, or they wait for it for ever.
    pub const ALL: Mask = Mask(u64::MAX);

    /// No signal.
    pub const NONE: Mask = Mask(0);

    /// These signals.
    pub fn of(signals: impl IntoIterator<Item = i32>) -> Mask {
        Mask(
            signals
                .into_iter()
                .fold(0, |all, signal| all | 1 << (signal - 1)),
        )
    }

    /// Blocks these signals as well; gives what was blocked before.
    pub fn block(self) -> Mask {
        let mut before = Mask::NONE;
        change(libc::SIG_BLOCK, self, &raw mut before);
        before
    }

    /// Lets these signals through; gives what was blocked before.
    pub fn unblock(self) -> Mask {
        let mut before = Mask::NONE;
        change(libc::SIG_UNBLOCK, self, &raw mut before);
        before
    }

    /// Blocks these signals and no others. Makes one system call and nothing else.
    pub fn set(self) {
        change(libc::SIG_SETMASK, self, ptr::null_mut());
    }
}

fn change(how: i32, mask: Mask, before: *mut Mask) {
    // SAFETY: the kernel reads and writes the eight bytes that it is told of; `before` may be null.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            how,
            &raw const mask,
            before,
            size_of::<Mask>(),
        )
    };
    debug_assert_eq!(rc, 0, "{}", io::Error::last_os_error());
}

/// Runs something while no signal can interrupt it.
pub fn without_signals<T>(action: impl FnOnce() -> T) -> T {
    let before = Mask::ALL.block();
    let result = action();
    before.set();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_signal_gets_lost() {
        // The first real-time signal of programs that glibc starts.
        let (first, usual) = (34, libc::SIGUSR1);
        let before = Mask::of([first, usual]).block();
        let both = Mask::NONE.block();
        without_signals(|| assert_eq!(Mask::NONE.block().0 | KEPT, u64::MAX));
        assert_eq!(Mask::NONE.block(), both);
        assert_eq!(both.0 & !before.0, Mask::of([first, usual]).0 & !before.0);
        before.set();
        assert_eq!(Mask::NONE.block(), before);
    }

    /// What the kernel never blocks.
    const KEPT: u64 = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
}
