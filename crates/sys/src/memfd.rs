//! Files in memory.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

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
