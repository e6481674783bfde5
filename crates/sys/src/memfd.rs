//! Files in memory.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use rustix::io::{Errno, FdFlags, fcntl_setfd, pread};

/// A file in memory with this content that nobody, not even its owner, can change.
pub fn sealed(name: &CStr, content: &[u8]) -> io::Result<OwnedFd> {
    with(MemfdFlags::empty(), name, content)
}

/// The same for a program, which machines may forbid.
pub fn program(name: &CStr, content: &[u8]) -> io::Result<OwnedFd> {
    match with(MemfdFlags::EXEC, name, content) {
        // Before Linux 6.3 there is no such flag, and every file in memory may be run.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => sealed(name, content),
        made => made,
    }
}

/// Has a file in memory be there in the program that this process becomes, under this number.
pub fn hand_on(fd: &OwnedFd) -> io::Result<RawFd> {
    fcntl_setfd(fd, FdFlags::empty())?;
    Ok(fd.as_raw_fd())
}

/// Takes over a file in memory that the program before this one handed on under this number. What is no
/// sealed file in memory was not.
pub fn take_over(number: RawFd) -> io::Result<OwnedFd> {
    if number < 3 {
        return Err(Errno::BADF.into());
    }
    // SAFETY: the number is only asked about here, and a number that is not open is an error.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    let wanted = SealFlags::WRITE | SealFlags::SEAL;
    if !fcntl_get_seals(borrowed)?.contains(wanted) {
        return Err(Errno::BADF.into());
    }
    fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    // SAFETY: it is open, it came from the program before, and whoever takes it over does so once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// What a file in memory has in it, up to this many bytes.
pub fn content(fd: &OwnedFd, most: usize) -> io::Result<Vec<u8>> {
    let mut content = vec![0; most];
    let length = pread(fd, &mut content, 0)?;
    content.truncate(length);
    Ok(content)
}

fn with(flags: MemfdFlags, name: &CStr, content: &[u8]) -> io::Result<OwnedFd> {
    let fd = memfd_create(
        name,
        flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?;
    crate::poll::write_all(&fd, content)?;
    let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
    fcntl_add_seals(&fd, seals)?;
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sealed_file_in_memory_is_taken_over() {
        let fd = sealed(c"x", b"content").unwrap();
        let number = hand_on(&fd).unwrap();
        std::mem::forget(fd);
        let taken = take_over(number).unwrap();
        assert_eq!(content(&taken, 100).unwrap(), b"content");
        assert_eq!(content(&taken, 3).unwrap(), b"con");
        let (pipe, _other) = io::pipe().unwrap();
        for number in [0, 2, pipe.as_raw_fd(), 9_999] {
            assert!(take_over(number).is_err(), "{number}");
        }
    }
}
