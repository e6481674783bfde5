//! Moving bytes between descriptors without copying them through this process.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with};

/// A pipe as a kernel-side buffer: read end, write end; non-blocking, close-on-exec.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?)
}

/// Asks for another size of a pipe; returns the size that it has now.
pub fn set_pipe_size(pipe: BorrowedFd<'_>, bytes: usize) -> usize {
    let set = fcntl_setpipe_size(pipe, bytes);
    set.or_else(|_| fcntl_getpipe_size(pipe)).unwrap_or(4096)
}

/// Moves up to `length` bytes; one of the two descriptors must be a pipe.
pub fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, length: usize) -> io::Result<usize> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    Ok(rustix::pipe::splice(from, None, to, None, length, flags)?)
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
