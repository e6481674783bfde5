//! A descriptor that becomes readable after a time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// Rings once when it is set, until somebody has heard it.
#[derive(Debug)]
pub struct Alarm(OwnedFd);

impl Alarm {
    /// One that is not set.
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Alarm(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Rings after this time, instead of whenever it would have.
    pub fn ring_in(&self, time: Duration) {
        // A time of zero would silence it.
        let time = time.max(Duration::from_nanos(1));
        let once = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: time.subsec_nanos().into(),
            },
        };
        // It fails only for values that a duration cannot have.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once);
    }

    /// Whether it rang; it is quiet then.
    pub fn heard(&self) -> bool {
        rustix::io::read(&self.0, &mut [0u8; 8]).is_ok_and(|got| got == 8)
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
