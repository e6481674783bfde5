//! Passing descriptors over a unix socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// The kernel's own limit of descriptors in one message.
pub const MAX_FDS: usize = 253;

/// `cmsghdr` wants its natural alignment; a union of bytes would not have it.
#[repr(align(8))]
struct Control([u8; 16 + MAX_FDS * 4 + 8]);

/// Sends bytes and descriptors in one message; allocates nothing.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[RawFd]) -> io::Result<()> {
    if fds.len() > MAX_FDS || bytes.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut control = Control([0; 16 + MAX_FDS * 4 + 8]);
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: an all-zero msghdr is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !fds.is_empty() {
        let payload = u32::try_from(size_of_val(fds)).unwrap_or(0);
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: CMSG_SPACE and CMSG_LEN only compute; the first header lies within `control`,
        // which is aligned and has room for MAX_FDS descriptors.
        unsafe {
            message.msg_controllen = libc::CMSG_SPACE(payload) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(payload) as _;
            std::ptr::copy_nonoverlapping(
                fds.as_ptr().cast::<u8>(),
                libc::CMSG_DATA(header),
                payload as usize,
            );
        }
    }
    loop {
        // SAFETY: every pointer in `message` refers to a local that is alive here.
        let sent =
            unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        if sent >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Receives one message: how many bytes, and the descriptors, close-on-exec.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut control = Control([0; 16 + MAX_FDS * 4 + 8]);
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: an all-zero msghdr is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    let got = loop {
        // SAFETY: every pointer in `message` refers to a local that is alive and writable here.
        let got =
            unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
        if got >= 0 {
            break got as usize;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    let mut fds = Vec::new();
    // SAFETY: the kernel filled `control` up to msg_controllen; the macros stay within it, and
    // every descriptor found there is new and owned by nobody else.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let length = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                for i in 0..length / size_of::<RawFd>() {
                    let raw = libc::CMSG_DATA(header)
                        .cast::<RawFd>()
                        .add(i)
                        .read_unaligned();
                    fds.push(OwnedFd::from_raw_fd(raw));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok((got, fds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_arrive_in_order_and_alive() {
        let (a, b) = UnixStream::pair().unwrap();
        let pairs: Vec<_> = (0..20).map(|_| UnixStream::pair().unwrap()).collect();
        let raw: Vec<RawFd> = pairs.iter().map(|(x, _)| x.as_raw_fd()).collect();
        send(a.as_fd(), b"hello", &raw).unwrap();
        let mut bytes = [0; 16];
        let (n, fds) = receive(b.as_fd(), &mut bytes).unwrap();
        assert_eq!(&bytes[..n], b"hello");
        assert_eq!(fds.len(), 20);
        for (i, (fd, (_, other))) in fds.into_iter().zip(&pairs).enumerate() {
            UnixStream::from(fd).write_all(&[i as u8]).unwrap();
            let mut got = [99];
            (&mut &*other).read_exact(&mut got).unwrap();
            assert_eq!(got, [i as u8]);
        }
    }

    #[test]
    fn too_many_and_none_are_told_apart() {
        let (a, b) = UnixStream::pair().unwrap();
        assert!(send(a.as_fd(), b"x", &[0; MAX_FDS + 1]).is_err());
        send(a.as_fd(), b"x", &[]).unwrap();
        let (n, fds) = receive(b.as_fd(), &mut [0; 4]).unwrap();
        assert_eq!((n, fds.len()), (1, 0));
        drop(a);
        assert_eq!(receive(b.as_fd(), &mut [0; 4]).unwrap().0, 0);
    }
}
