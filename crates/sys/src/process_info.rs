//! What the kernel tells about a process through its descriptor: its parent, and after its end how
//! it ended, even to those who are not its parent.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use crate::pidfd;

/// Has processes below this one that lose their parent become its children instead of somebody else's.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(
        rustix::process::getpid(),
    ))?)
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It exited with this status.
    Exit(i32),
    /// This signal ended it.
    Signal(i32),
}

impl Ending {
    /// The status that a shell shows: the exit status, or 128 and the signal.
    pub fn status(self) -> i32 {
        match self {
            Ending::Exit(status) => status,
            Ending::Signal(signal) => 128 + signal,
        }
    }
}

/// `struct pidfd_info` of linux/pidfd.h, in its first size.
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    pid: u32,
    tgid: u32,
    ppid: u32,
    ids: [u32; 8],
    exit_code: i32,
}

const PIDFD_GET_INFO: Opcode = opcode::read_write::<Info>(0xFF, 11);
const PIDFD_INFO_PID: u64 = 1;
const PIDFD_INFO_EXIT: u64 = 1 << 3;

fn ask(process: BorrowedFd<'_>, what: u64) -> io::Result<Info> {
    let mut info = Info {
        mask: what,
        ..Info::default()
    };
    // SAFETY: the request's number names the size of `Info`, which the kernel fills.
    unsafe { ioctl(process, Updater::<PIDFD_GET_INFO, Info>::new(&mut info)) }?;
    Ok(info)
}

/// The parent of a process; 0 when it has none that we can see.
pub fn parent(pid: u32) -> io::Result<u32> {
    let process = pidfd::open(pid.cast_signed())?;
    Ok(ask(process.as_fd(), PIDFD_INFO_PID)?.ppid)
}

/// How a process ended; `None` while it has not been reaped, or where the kernel does not tell.
pub fn ending(process: BorrowedFd<'_>) -> io::Result<Option<Ending>> {
    let info = ask(process, PIDFD_INFO_EXIT)?;
    if info.mask & PIDFD_INFO_EXIT == 0 {
        return Ok(None);
    }
    let status = info.exit_code;
    Ok(Some(if libc::WIFSIGNALED(status) {
        Ending::Signal(libc::WTERMSIG(status))
    } else {
        Ending::Exit(libc::WEXITSTATUS(status))
    }))
}

/// Whether the kernel is new enough to keep endings; a quick look before it is tried for real.
pub fn keeps_endings() -> bool {
    version(rustix::system::uname().release().to_bytes()) >= Some((6, 15))
}

fn version(release: &[u8]) -> Option<(u32, u32)> {
    let text = std::str::from_utf8(release).ok()?;
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Waits until a process has ended and was reaped, or for so long; whether it was.
pub fn wait_reaped(process: BorrowedFd<'_>, patience: Option<Duration>) -> io::Result<bool> {
    // Asking for nothing leaves hang-up, which comes with the reaping.
    let mut entry = [PollFd::from_borrowed_fd(process, PollFlags::empty())];
    let patience = patience.and_then(|time| Timespec::try_from(time).ok());
    Ok(retry_on_intr(|| poll(&mut entry, patience.as_ref()))? > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(version(b"6.15.0-rc1"), Some((6, 15)));
        assert_eq!(version(b"5.4"), Some((5, 4)));
        assert!(version(b"6.9.1") < Some((6, 15)));
        assert_eq!(version(b"what"), None);
    }

    #[test]
    fn our_parent_is_known_where_the_kernel_tells() {
        if keeps_endings() {
            assert_eq!(
                parent(std::process::id()).unwrap(),
                std::os::unix::process::parent_id()
            );
        }
    }
}
