//! Waiting for a handful of descriptors, and plain reads and writes on borrowed ones.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Instant;

/// A descriptor and what it is waited for.
pub struct Wanted<'a> {
    fd: BorrowedFd<'a>,
    events: libc::c_short,
}

impl<'a> Wanted<'a> {
    /// Until it can be read, or its other side is gone.
    pub fn read(fd: BorrowedFd<'a>) -> Wanted<'a> {
        Wanted {
            fd,
            events: libc::POLLIN,
        }
    }

    /// Until it can be read or written.
    pub fn both(fd: BorrowedFd<'a>) -> Wanted<'a> {
        Wanted {
            fd,
            events: libc::POLLIN | libc::POLLOUT,
        }
    }
}

/// Waits until one is ready and tells which are.
pub fn wait(wanted: &mut [Wanted<'_>]) -> io::Result<Vec<bool>> {
    wait_until(wanted, None)
}

/// Waits until one is ready, or until a moment has come, and tells which are.
pub fn wait_until(wanted: &mut [Wanted<'_>], end: Option<Instant>) -> io::Result<Vec<bool>> {
    let mut entries: Vec<libc::pollfd> = wanted
        .iter()
        .map(|w| libc::pollfd {
            fd: w.fd.as_raw_fd(),
            events: w.events,
            revents: 0,
        })
        .collect();
    loop {
        let patience = end.map_or(-1, |end| {
            let left = end.saturating_duration_since(Instant::now()).as_millis();
            // Rounded up, so that waiting again before the moment has come does not spin.
            i32::try_from(left).map_or(i32::MAX, |left| left.saturating_add(1))
        });
        // SAFETY: the pointer and count describe `entries`.
        let rc = unsafe {
            libc::poll(
                entries.as_mut_ptr(),
                entries.len() as libc::nfds_t,
                patience,
            )
        };
        if rc >= 0 {
            return Ok(entries.iter().map(|e| e.revents != 0).collect());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Makes reads and writes return at once.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain system calls without pointers.
    unsafe {
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        if flags < 0 || libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// One read.
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and length describe `buffer`, which is writable for the call.
    let got = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// Writes everything, waiting where the descriptor does not take it at once.
pub fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // SAFETY: the pointer and length describe `bytes`.
        let sent = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(sent) {
            Ok(sent) => bytes = bytes.get(sent..).unwrap_or(&[]),
            Err(_) => {
                let error = io::Error::last_os_error();
                match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock => {
                        let mut entry = libc::pollfd {
                            fd: fd.as_raw_fd(),
                            events: libc::POLLOUT,
                            revents: 0,
                        };
                        // SAFETY: the pointer and count describe `entry`.
                        unsafe { libc::poll(&raw mut entry, 1, -1) };
                    }
                    _ => return Err(error),
                }
            }
        }
    }
    Ok(())
}

/// Whether a descriptor is a directory, or a path that was opened without access.
pub fn leads_elsewhere(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: an all-zero stat is valid and writable for the call.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        if libc::fstat(fd.as_raw_fd(), &raw mut stat) < 0 {
            return Err(io::Error::last_os_error());
        }
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        Ok(stat.st_mode & libc::S_IFMT == libc::S_IFDIR || flags & libc::O_PATH != 0)
    }
}
