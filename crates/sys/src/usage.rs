//! What processes have used, as the kernel counts it.

use std::mem::MaybeUninit;
use std::time::Duration;

/// Time on the processors and the most memory that one process held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// In user mode and in the kernel.
    pub cpu: Duration,
    /// Bytes; of the largest process.
    pub memory: u64,
}

/// What children that were waited for have used, with what was waited for below them.
pub fn of_children() -> Usage {
    let mut used = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `used` is large enough, and zeroes are a usage too.
    let used = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, used.as_mut_ptr());
        used.assume_init()
    };
    let time = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let micros = u64::try_from(time.tv_usec).unwrap_or(0);
        Duration::from_secs(seconds) + Duration::from_micros(micros)
    };
    Usage {
        cpu: time(used.ru_utime) + time(used.ru_stime),
        memory: u64::try_from(used.ru_maxrss).unwrap_or(0) * 1024,
    }
}

/// Time that a process and the children it waited for have used; `None` when it is gone.
pub fn cpu_of(process: i32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    // utime, stime, cutime and cstime.
    let ticks: u64 = rest
        .split_whitespace()
        .skip(11)
        .take(4)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Some(Duration::from_millis(ticks * 10))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn what_a_child_has_used_is_counted() {
        let before = super::of_children();
        let own = super::cpu_of(std::process::id().cast_signed()).unwrap();
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let ended = std::process::Command::new("sh")
            .args(["-c", script])
            .status();
        assert!(ended.unwrap().success());
        let used = super::of_children();
        assert!(used.cpu > before.cpu + Duration::from_millis(5), "{used:?}");
        assert!(used.memory > 100 << 10, "{used:?}");
        let now = super::cpu_of(std::process::id().cast_signed()).unwrap();
        assert!(now > own, "{now:?}");
        assert_eq!(super::cpu_of(i32::MAX), None);
    }
}
