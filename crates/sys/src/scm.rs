//! Passing descriptors over a unix socket.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, retry_on_intr};
pub use rustix::net::RecvFlags;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// The kernel's own limit of descriptors in one message.
pub const MAX_FDS: usize = 253;

/// Sends bytes and descriptors in one message; allocates nothing.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    if bytes.is_empty() {
        return Err(Errno::INVAL.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL.into());
    }
    let parts = [IoSlice::new(bytes)];
    retry_on_intr(|| sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// What came in one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// How many bytes were there for us.
    pub length: usize,
    /// More bytes came than there was room for.
    pub cut: bool,
    /// The sender as the kernel numbers it here, where the socket asks for that; 0 for one that this
    /// process namespace does not show.
    pub sender: i32,
}

/// Receives one message: its bytes, and as many descriptors as there is room for, close-on-exec; the rest
/// is closed. Allocates nothing.
///
/// Not by rustix, which says of the number of a sender that it is not 0.
pub fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    fds: &mut [Option<OwnedFd>],
    flags: RecvFlags,
) -> io::Result<Arrived> {
    let mut control = Control([0; CONTROL]);
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
    let flags = (flags | RecvFlags::CMSG_CLOEXEC).bits().cast_signed();
    let length = retry_on_intr(|| {
        // SAFETY: every pointer in `message` refers to a local that is alive and writable here.
        let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        let failed = || Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO);
        usize::try_from(got).map_err(|_| failed())
    })?;
    let mut room = fds.iter_mut();
    let mut arrived = Arrived {
        length,
        cut: message.msg_flags & libc::MSG_TRUNC != 0,
        sender: 0,
    };
    // SAFETY: the kernel filled `control` up to msg_controllen; the macros stay within it, and
    // every descriptor found there is new and owned by nobody else.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            let payload = libc::CMSG_DATA(header);
            match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                    let length = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                    for at in 0..length / size_of::<RawFd>() {
                        let number = payload.cast::<RawFd>().add(at).read_unaligned();
                        let fd = OwnedFd::from_raw_fd(number);
                        if let Some(place) = room.next() {
                            *place = Some(fd);
                        }
                    }
                }
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                    arrived.sender = payload.cast::<libc::ucred>().read_unaligned().pid;
                }
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok(arrived)
}

/// Room for as many descriptors as a message can have, and for who sent it.
const CONTROL: usize = 16 + MAX_FDS * 4 + 4 + 16 + 16;

/// `cmsghdr` wants its natural alignment; an array of bytes would not have it.
#[repr(align(8))]
struct Control([u8; CONTROL]);

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
        let sent: Vec<_> = pairs.iter().map(|(x, _)| x.as_fd()).collect();
        send(a.as_fd(), b"hello", &sent).unwrap();
        let mut bytes = [0; 16];
        let mut fds = [const { None }; MAX_FDS];
        let arrived = receive(b.as_fd(), &mut bytes, &mut fds, RecvFlags::empty()).unwrap();
        assert_eq!(&bytes[..arrived.length], b"hello");
        assert_eq!((arrived.cut, arrived.sender), (false, 0));
        let fds: Vec<OwnedFd> = fds.into_iter().flatten().collect();
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
        let mut fds = [const { None }; 1];
        let mut receive = || receive(b.as_fd(), &mut [0; 4], &mut fds, RecvFlags::empty());
        send(a.as_fd(), b"x", &[a.as_fd(); MAX_FDS + 1]).unwrap_err();
        send(a.as_fd(), b"", &[]).unwrap_err();
        send(a.as_fd(), b"x", &[]).unwrap();
        let arrived = receive().unwrap();
        assert_eq!((arrived.length, arrived.cut), (1, false));
        drop(a);
        assert_eq!(receive().unwrap().length, 0);
        assert!(fds[0].is_none());
    }

    #[test]
    fn what_does_not_fit_is_cut_off() {
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let kind = rustix::net::SocketType::SEQPACKET;
        let (a, b) =
            rustix::net::socketpair(rustix::net::AddressFamily::UNIX, kind, flags, None).unwrap();
        send(a.as_fd(), b"longer", &[]).unwrap();
        send(a.as_fd(), b"fits", &[a.as_fd(); 3]).unwrap();
        let mut fds = [const { None }; 2];
        for (cut, descriptors) in [(true, 0), (false, 2)] {
            let arrived = receive(b.as_fd(), &mut [0; 4], &mut fds, RecvFlags::empty()).unwrap();
            assert_eq!((arrived.length, arrived.cut), (4, cut));
            assert_eq!(fds.iter().flatten().count(), descriptors);
        }
    }
}
