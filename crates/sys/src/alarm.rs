//! A descriptor that becomes readable after a time.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Rings once when it is set, until somebody has heard it.
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    /// One that is not set.
    pub fn new() -> io::Result<Alarm> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: plain system call without pointers.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just returned this descriptor and nobody else owns it.
        Ok(Alarm(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Rings after this time, instead of whenever it would have.
    pub fn ring_in(&self, time: Duration) {
        // A time of zero would silence it.
        let time = time.max(Duration::from_nanos(1));
        let value = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: libc::timespec {
                tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: time.subsec_nanos().into(),
            },
        };
        // SAFETY: `value` is read by the call; a null old value is legal. It fails only for values
        // that a duration cannot have.
        unsafe {
            libc::timerfd_settime(
                self.0.as_raw_fd(),
                0,
                &raw const value,
                std::ptr::null_mut(),
            )
        };
    }

    /// Whether it rang; it is quiet then.
    pub fn heard(&self) -> bool {
        let mut count = [0u8; 8];
        // SAFETY: the pointer and length describe `count`.
        let got = unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
        got == 8
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rings_once_and_when_it_was_last_told_to() {
        let alarm = Alarm::new().unwrap();
        assert!(!alarm.heard());
        alarm.ring_in(Duration::ZERO);
        while !alarm.heard() {}
        assert!(!alarm.heard());
        alarm.ring_in(Duration::ZERO);
        alarm.ring_in(Duration::from_secs(3600));
        assert!(!alarm.heard());
    }
}
