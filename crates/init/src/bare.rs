//! What the processes of a world's making share before they have become anything else.
//!
//! Their rule: after the clone, the other threads of the process are gone and may have left the allocator
//! locked. So nothing allocates, takes a lock, panics or returns; everything that is needed was prepared
//! before as C strings, numbers and descriptors. rustix keeps to that as long as it gets C strings.

use std::io;
use std::os::fd::{AsRawFd, RawFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// Ends the process without running anything of the parent's.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: plain system call without pointers.
    unsafe { libc::_exit(code) }
}

/// The number of an error, for a message.
pub(crate) fn number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Descriptors of the parent that stay open would be doors: to its directories past every
/// mount, and to the control sockets of other worlds, which then would not notice its end.
pub(crate) fn close_all_but(keep: &[RawFd]) {
    let mut from = 3u32;
    for fd in keep.iter().map(|fd| *fd as u32).filter(|fd| *fd >= 3) {
        if fd > from {
            close_range(from, fd - 1, 0);
        }
        from = fd + 1;
    }
    close_range(from, u32::MAX, 0);
}

/// All descriptors above the standard ones end with this program.
pub(crate) fn close_on_exec() {
    close_range(3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
}

fn close_range(first: u32, last: u32, flags: u32) {
    // SAFETY: plain system call without pointers; what owns these descriptors is the parent's, and is
    // never dropped here.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) };
}

/// Brings up the loopback interface of this network.
pub(crate) fn loopback_up() -> io::Result<()> {
    let (kind, flags) = (SocketType::DGRAM, SocketFlags::CLOEXEC);
    let fd = socket_with(AddressFamily::INET, kind, flags, None)?;
    // SAFETY: an all-zero ifreq is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which is what is passed.
    match unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
