//! Clocks that the standard library does not read.

use std::io;
use std::time::Duration;

/// The time since the machine started: the same in every process, and never running backwards.
pub fn since_boot() -> Duration {
    let mut spec = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live, writable timespec for the length of the call, and this
    // clock exists on every kernel that has worlds, so that the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut spec) };
    Duration::new(
        u64::try_from(spec.tv_sec).unwrap_or(0),
        u32::try_from(spec.tv_nsec).unwrap_or(0),
    )
}

/// The clock that file systems stamp inodes with: seconds and nanoseconds since the epoch, as of the last tick.
pub fn realtime_coarse() -> io::Result<(i64, u32)> {
    let mut spec = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live, writable timespec for the length of the call.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut spec) };
    if rc != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((spec.tv_sec, u32::try_from(spec.tv_nsec).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn the_clock_since_boot_runs_forwards() {
        let first = super::since_boot();
        assert!(!first.is_zero() && super::since_boot() >= first);
    }

    #[test]
    fn the_coarse_clock_never_runs_ahead_of_the_fine_one() {
        let (sec, nsec) = super::realtime_coarse().unwrap();
        let fine = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        assert!((sec as u64, nsec) <= (fine.as_secs(), fine.subsec_nanos()));
        assert!(nsec < 1_000_000_000);
    }
}
