//! Files in memory.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A file in memory with this content that nobody, not even its owner, can change.
pub fn sealed(name: &CStr, content: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: `name` is a valid C string; the result is checked before it is owned.
    let fd =
        unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: memfd_create just returned this descriptor and nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    crate::process_group::write_all(&fd, content)?;
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: F_ADD_SEALS takes an int; the descriptor is owned.
    if unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(fd)
}
