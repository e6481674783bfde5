//! Processes by descriptor, which never comes to mean another process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// `P_PIDFD` of waitid(2).
const P_PIDFD: libc::idtype_t = 3;

/// Opens a descriptor for a process.
pub fn open(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain system call without pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Opens a thread, whose descriptors may be its own. Kernels before 6.9 know processes only.
pub fn open_thread(thread: i32) -> io::Result<OwnedFd> {
    const PIDFD_THREAD: libc::c_int = libc::O_EXCL;
    // SAFETY: plain system call without pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, thread, PIDFD_THREAD) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A copy of a descriptor of another process.
pub fn descriptor(process: BorrowedFd<'_>, number: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain system call without pointers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Sends SIGKILL; a process that has ended is no error.
pub fn kill(process: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a null siginfo is legal.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            libc::SIGKILL,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    if rc < 0 {
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ESRCH) {
            return Err(error);
        }
    }
    Ok(())
}

/// Whether a process has not ended yet. As long as it has not, its number is its own.
pub fn is_alive(process: BorrowedFd<'_>) -> bool {
    let mut entry = libc::pollfd {
        fd: process.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    loop {
        // SAFETY: the pointer and count describe `entry`.
        let rc = unsafe { libc::poll(&raw mut entry, 1, 0) };
        if rc >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return rc == 0;
        }
    }
}

/// Waits until a child has ended and buries it; one that is already buried is no error.
pub fn wait(process: BorrowedFd<'_>) -> io::Result<()> {
    loop {
        // SAFETY: an all-zero siginfo is valid.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // SAFETY: `info` is writable for the call.
        let rc = unsafe {
            libc::waitid(
                P_PIDFD,
                process.as_raw_fd() as libc::id_t,
                &raw mut info,
                libc::WEXITED | libc::__WALL,
            )
        };
        if rc == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ECHILD) => return Ok(()),
            _ => return Err(error),
        }
    }
}
