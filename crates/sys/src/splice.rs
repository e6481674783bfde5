//! Moving bytes between descriptors without copying them through this process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A pipe as a kernel-side buffer: read end, write end; non-blocking, close-on-exec.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0i32; 2];
    // SAFETY: `fds` has room for the two descriptors.
    let rc = unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both were just returned by the kernel and nobody else owns them.
    Ok(unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) })
}

/// Makes reads and writes wait, as programs expect it of what they inherit.
pub fn set_blocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain system calls without pointers.
    unsafe {
        let flags = libc::fcntl(fd.as_raw_fd(), libc::F_GETFL);
        if flags < 0 || libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags & !libc::O_NONBLOCK) < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Asks for another size of a pipe; returns the size that it has now.
pub fn set_pipe_size(pipe: BorrowedFd<'_>, bytes: i32) -> usize {
    // SAFETY: plain system calls without pointers.
    let size = unsafe {
        match libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) {
            -1 => libc::fcntl(pipe.as_raw_fd(), libc::F_GETPIPE_SZ),
            set => set,
        }
    };
    usize::try_from(size).unwrap_or(4096)
}

/// Moves up to `length` bytes; one of the two descriptors must be a pipe.
pub fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, length: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    // SAFETY: null offsets are legal and mean the descriptors' own positions.
    let moved = unsafe {
        libc::splice(
            from.as_raw_fd(),
            std::ptr::null_mut(),
            to.as_raw_fd(),
            std::ptr::null_mut(),
            length,
            flags,
        )
    };
    if moved < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(moved as usize)
    }
}

/// Blocks every signal in the calling thread: splicing has no way to say "no SIGPIPE".
pub fn block_signals() -> io::Result<()> {
    // SAFETY: an all-zero sigset_t is valid memory, filled by sigfillset; the mask of this
    // thread alone is changed.
    let rc = unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut())
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(rc))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn bytes_go_through_a_pipe_unchanged() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let (c, mut d) = UnixStream::pair().unwrap();
        let (read, write) = pipe().unwrap();
        assert!(set_pipe_size(write.as_fd(), 1 << 17) >= 4096);
        a.write_all(b"through the pipe").unwrap();
        assert_eq!(splice(b.as_fd(), write.as_fd(), 1 << 16).unwrap(), 16);
        assert_eq!(splice(read.as_fd(), c.as_fd(), 1 << 16).unwrap(), 16);
        let mut out = [0; 16];
        d.read_exact(&mut out).unwrap();
        assert_eq!(&out, b"through the pipe");
        let error = splice(read.as_fd(), c.as_fd(), 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
