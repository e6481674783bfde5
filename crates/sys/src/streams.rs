//! The standard streams of this process, which what it starts inherits.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::fcntl_getfl;
use rustix::io::fcntl_dupfd_cloexec;

/// The number of the device `/dev/null`, wherever it lies.
pub const NULL: u64 = 0x103;

/// Puts a descriptor in the place of a standard stream, and answers what was there.
pub fn replace(number: u8, with: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let number = i32::from(number);
    // SAFETY: copying a descriptor does nothing to it, and of a closed one it fails.
    let before = fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(number) }, 3)?;
    put(with, number)?;
    Ok(before)
}

/// Gives a standard stream back what [`replace`] took from it.
pub fn put_back(number: u8, before: OwnedFd) -> io::Result<()> {
    put(before.as_fd(), i32::from(number))
}

/// Writes to a descriptor by its number, which whoever started us has chosen; one that is not open is an error.
pub fn write_to(number: i32, bytes: &[u8]) -> io::Result<()> {
    if number < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: copying a descriptor does nothing to it, and of a closed one it fails.
    let copy = fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(number) }, 3)?;
    crate::poll::write_all(&copy, bytes)
}

/// The flags that a descriptor was opened with, as far as they can still be told.
pub fn opened_with(fd: BorrowedFd<'_>) -> io::Result<i32> {
    Ok(fcntl_getfl(fd)?.bits().cast_signed())
}

/// By libc: rustix puts a descriptor only where something owns the number.
fn put(from: BorrowedFd<'_>, number: i32) -> io::Result<()> {
    // SAFETY: nothing in Rust owns the numbers of the standard streams; what they lead to changes
    // in one step.
    if unsafe { libc::dup2(from.as_raw_fd(), number) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
