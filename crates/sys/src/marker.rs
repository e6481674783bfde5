//! A mark that a process and everything it starts carry for life: a hard limit below infinity. It
//! survives a new session, a new parent, a new namespace and any other program, and only a
//! privileged process of the whole machine can lift it.
#![allow(
    clippy::unnecessary_cast,
    reason = "the C libraries disagree about the type of these numbers"
)]

use std::io;

/// Microseconds of real-time scheduling without a pause: two hundred thousand years, so the limit
/// itself never acts.
const SESSION: u64 = 0x5355_4253_5452_4154;

/// What a shim starts has a higher one: it is below Substrate, and below no session. The limit can
/// only be lowered, so nobody passes for less enclosed than he is.
const SHIM: u64 = SESSION + 1;

/// The mount source of a world's `/dev` starts with this; the world's id follows. Nobody inside can make
/// or take away such a mount.
pub const WORLD_SOURCE: &str = "substrate:";

/// Who has marked a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A session, somewhere above it. Any lower limit counts as well: whoever is marked can set one.
    Session,
    /// A shim, and no session.
    Shim,
}

/// Marks this process; answers by whom it was marked before.
pub fn set(mark: Mark) -> io::Result<Option<Mark>> {
    let wanted = match mark {
        Mark::Session => SESSION,
        Mark::Shim => SHIM,
    };
    let before = limit(None)?;
    if before.rlim_max as u64 > wanted {
        let marked = libc::rlimit {
            rlim_cur: before.rlim_cur.min(wanted as libc::rlim_t),
            rlim_max: wanted as libc::rlim_t,
        };
        limit(Some(&marked))?;
    }
    Ok(read(before))
}

/// By whom this process is marked.
pub fn get() -> io::Result<Option<Mark>> {
    limit(None).map(read)
}

/// By whom another process is marked.
pub fn of(pid: u32) -> io::Result<Option<Mark>> {
    limit_of(pid, None).map(read)
}

fn read(limit: libc::rlimit) -> Option<Mark> {
    match limit.rlim_max {
        libc::RLIM_INFINITY => None,
        max if max as u64 > SESSION => Some(Mark::Shim),
        _ => Some(Mark::Session),
    }
}

fn limit(new: Option<&libc::rlimit>) -> io::Result<libc::rlimit> {
    limit_of(0, new)
}

fn limit_of(pid: u32, new: Option<&libc::rlimit>) -> io::Result<libc::rlimit> {
    let mut old = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let new = new.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: `new` is null or a limit that outlives the call, and `old` is writable.
    let rc = unsafe {
        libc::prlimit(
            pid as libc::pid_t,
            libc::RLIMIT_RTTIME as _,
            new,
            &raw mut old,
        )
    };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because a mark is for life.
    #[test]
    fn a_mark_only_gets_stricter() {
        let before = get().unwrap();
        assert_eq!(set(Mark::Shim).unwrap(), before);
        let shim = before.unwrap_or(Mark::Shim);
        assert_eq!(get().unwrap(), Some(shim));
        assert_eq!(set(Mark::Session).unwrap(), Some(shim));
        assert_eq!(set(Mark::Shim).unwrap(), Some(Mark::Session));
        assert_eq!(get().unwrap(), Some(Mark::Session));
    }
}
