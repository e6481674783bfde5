//! The standard streams of this process, which what it starts inherits.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The number of the device `/dev/null`, wherever it lies.
pub const NULL: u64 = 0x103;

/// Puts a descriptor in the place of a standard stream, and answers what was there.
pub fn replace(number: u8, with: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let number = i32::from(number);
    // SAFETY: copying a descriptor to the first free number touches no memory.
    let before = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3) };
    if before < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor and nobody else owns it.
    let before = unsafe { OwnedFd::from_raw_fd(before) };
    put(with, number)?;
    Ok(before)
}

/// Gives a standard stream back what [`replace`] took from it.
pub fn put_back(number: u8, before: OwnedFd) -> io::Result<()> {
    use std::os::fd::AsFd;
    put(before.as_fd(), i32::from(number))
}

/// The flags that a descriptor was opened with, as far as they can still be told.
pub fn opened_with(fd: BorrowedFd<'_>) -> io::Result<i32> {
    // SAFETY: plain system call without pointers.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) } {
        -1 => Err(io::Error::last_os_error()),
        flags => Ok(flags),
    }
}

/// Makes reads and writes of an open file wait, even if it was opened not to.
pub fn wait_for_data(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = opened_with(fd)? & !libc::O_NONBLOCK;
    // SAFETY: plain system call without pointers.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn put(from: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    // SAFETY: nothing in Rust owns the numbers of the standard streams; what they lead to changes
    // in one step.
    if unsafe { libc::dup2(from.as_raw_fd(), number) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
