//! What the clock on the wall shows: the zone that `TZ` or the machine names.

use std::mem::MaybeUninit;
use std::time::{SystemTime, UNIX_EPOCH};

/// A moment as people here write it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalTime {
    /// Year, month from 1, day from 1.
    pub date: (i32, i32, i32),
    /// Hour, minute, second.
    pub time: (i32, i32, i32),
    /// Minutes east of UTC.
    pub offset: i64,
}

impl LocalTime {
    /// The moment here; `None` where the C library cannot say.
    pub fn of(at: SystemTime) -> Option<Self> {
        let seconds = at.duration_since(UNIX_EPOCH).ok()?.as_secs();
        // What the C library counts seconds in has another name on each.
        let seconds = seconds.try_into().ok()?;
        let mut local = MaybeUninit::<libc::tm>::zeroed();
        // SAFETY: both point to values of their types, and the result is only read when the call says so.
        let local = unsafe {
            match libc::localtime_r(&raw const seconds, local.as_mut_ptr()).is_null() {
                true => return None,
                false => local.assume_init(),
            }
        };
        Some(Self {
            date: (local.tm_year + 1900, local.tm_mon + 1, local.tm_mday),
            time: (local.tm_hour, local.tm_min, local.tm_sec),
            offset: local.tm_gmtoff / 60,
        })
    }

    /// To the second, with the offset.
    pub fn full(&self) -> String {
        let (hour, minute, second) = self.time;
        format!(
            "{} {hour:02}:{minute:02}:{second:02} {}",
            self.day(),
            self.zone()
        )
    }

    /// To the minute, with the offset.
    pub fn short(&self) -> String {
        let (hour, minute, _) = self.time;
        format!("{} {hour:02}:{minute:02} {}", self.day(), self.zone())
    }

    /// The time of day.
    pub fn clock(&self) -> String {
        let (hour, minute, second) = self.time;
        format!("{hour:02}:{minute:02}:{second:02}")
    }

    fn day(&self) -> String {
        let (year, month, day) = self.date;
        format!("{year:04}-{month:02}-{day:02}")
    }

    fn zone(&self) -> String {
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.abs();
        format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::LocalTime;

    #[test]
    fn times_are_written_with_their_offset() {
        let at = LocalTime {
            date: (2026, 3, 1),
            time: (9, 5, 7),
            offset: -210,
        };
        assert_eq!(at.full(), "2026-03-01 09:05:07 -03:30");
        assert_eq!(at.short(), "2026-03-01 09:05 -03:30");
        assert_eq!(at.clock(), "09:05:07");
    }
}
