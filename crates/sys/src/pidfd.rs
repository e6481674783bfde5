//! Processes by descriptor, which never comes to mean another process.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, WaitId, WaitIdOptions, pidfd_getfd, pidfd_open,
    pidfd_send_signal, waitid,
};

/// `PIDFD_THREAD`: as `O_EXCL`.
const THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);
/// `__WALL`: children that send no signal too.
const ALL: WaitIdOptions = WaitIdOptions::from_bits_retain(libc::__WALL as u32);

/// Opens a descriptor for a process.
pub fn open(pid: i32) -> io::Result<OwnedFd> {
    open_with(pid, PidfdFlags::empty())
}

/// Opens a thread, whose descriptors may be its own. Kernels before 6.9 know processes only.
pub fn open_thread(thread: i32) -> io::Result<OwnedFd> {
    open_with(thread, THREAD)
}

fn open_with(process: i32, flags: PidfdFlags) -> io::Result<OwnedFd> {
    Ok(pidfd_open(number(process)?, flags)?)
}

/// One process or group, by its number; 0 and what is below it mean several.
pub(crate) fn number(number: i32) -> Result<Pid, Errno> {
    let one = (number > 0).then_some(number);
    one.and_then(Pid::from_raw).ok_or(Errno::INVAL)
}

/// A copy of a descriptor of another process.
pub fn descriptor(process: BorrowedFd<'_>, number: i32) -> io::Result<OwnedFd> {
    Ok(pidfd_getfd(process, number, PidfdGetfdFlags::empty())?)
}

/// Sends SIGKILL; a process that has ended is no error.
pub fn kill(process: BorrowedFd<'_>) -> io::Result<()> {
    match pidfd_send_signal(process, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sends a signal; a process that has ended is no error.
pub fn send(process: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    let signal = Signal::from_named_raw(number).ok_or(Errno::INVAL)?;
    match pidfd_send_signal(process, signal) {
        Ok(()) | Err(Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether a process has not ended yet. As long as it has not, its number is its own.
pub fn is_alive(process: BorrowedFd<'_>) -> bool {
    let mut entry = [PollFd::from_borrowed_fd(process, PollFlags::IN)];
    retry_on_intr(|| poll(&mut entry, Some(&Timespec::default()))) == Ok(0)
}

/// Waits until a child has ended and buries it; one that is already buried is no error.
pub fn wait(process: BorrowedFd<'_>) -> io::Result<()> {
    let ended = WaitIdOptions::EXITED | ALL;
    match retry_on_intr(|| waitid(WaitId::PidFd(process), ended)) {
        Ok(_) | Err(Errno::CHILD) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
