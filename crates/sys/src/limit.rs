//! Resources that can be limited for each process.
#![allow(
    clippy::unnecessary_cast,
    reason = "the C libraries disagree about the type of these numbers"
)]

/// Processes of a user.
pub const PROCESSES: u32 = libc::RLIMIT_NPROC as u32;
/// Private writable memory.
pub const DATA: u32 = libc::RLIMIT_DATA as u32;

/// Every kind but the time without a pause, which carries a mark.
pub const ALL: [u32; 15] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14];

/// Open descriptors.
pub const DESCRIPTORS: u32 = libc::RLIMIT_NOFILE as u32;

/// The soft and hard limit of a process.
pub fn of(pid: u32, kind: u32) -> std::io::Result<(u64, u64)> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let process = libc::pid_t::try_from(pid).map_err(std::io::Error::other)?;
    // SAFETY: no new limit is given, and the old one goes to a variable of ours.
    let rc = unsafe { libc::prlimit(process, kind as _, std::ptr::null(), &raw mut limit) };
    match rc {
        0 => Ok((limit.rlim_cur as u64, limit.rlim_max as u64)),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// How nice a process is to others.
pub fn niceness(pid: u32) -> std::io::Result<i32> {
    let process = i32::try_from(pid).map_err(std::io::Error::other)?;
    let process = crate::pidfd::number(process)?;
    Ok(rustix::process::getpriority_process(Some(process))?)
}
