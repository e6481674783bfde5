//! The words between the owner of a world and its first process: fixed-size messages with
//! descriptors over a socket pair that keeps message boundaries. Allocates nothing.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use substrate_sys::scm;

/// Most descriptors that one message carries.
pub(crate) const MAX_FDS: usize = 32;

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// To the world: the id maps are written.
    Go = 1,
    /// To the world: start a command. Descriptors: events, request, then the command's own.
    Start = 2,
    /// To the world: send signal `a` to command `id`.
    Signal = 3,
    /// From the world: step `a` failed with errno `b`, and the world ends.
    Failed = 10,
    /// From the world: step `a`, which it can do without, failed with errno `b`.
    Missing = 11,
    /// From the world: step `a` gave the descriptor that comes along.
    Export = 12,
    /// From the world: every step is done.
    Ready = 13,
    /// About a command: here is the master of its terminal.
    Terminal = 14,
    /// About a command: it is about to become its program; the sender's pid says who it is.
    Starting = 15,
    /// About a command: it could not be started; `a` is the stage, `b` the errno.
    NotStarted = 16,
    /// About a command: it ended with wait status `a`; `b` says whether it was the last process of
    /// its world.
    Ended = 17,
    /// About a command: signal `a` stopped it.
    Stopped = 18,
}

impl Kind {
    fn from_number(n: u32) -> Option<Kind> {
        use Kind::*;
        [
            Go, Start, Signal, Failed, Missing, Export, Ready, Terminal, Starting, NotStarted,
            Ended, Stopped,
        ]
        .into_iter()
        .find(|kind| *kind as u32 == n)
    }
}

/// One message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Message {
    pub kind: Kind,
    pub id: u32,
    pub a: i32,
    pub b: i32,
}

impl Message {
    pub(crate) fn new(kind: Kind) -> Message {
        Message {
            kind,
            id: 0,
            a: 0,
            b: 0,
        }
    }

    pub(crate) fn send(self, socket: BorrowedFd<'_>, fds: &[RawFd]) -> io::Result<()> {
        let mut bytes = [0u8; 16];
        for (place, value) in
            bytes
                .chunks_exact_mut(4)
                .zip([self.kind as u32, self.id, self.a as u32, self.b as u32])
        {
            place.copy_from_slice(&value.to_ne_bytes());
        }
        scm::send(socket, &bytes, fds)
    }

    fn from_bytes(bytes: &[u8; 16]) -> Option<Message> {
        let word = |i: usize| {
            bytes
                .get(4 * i..)
                .and_then(<[u8]>::first_chunk)
                .map_or(0, |b| u32::from_ne_bytes(*b))
        };
        Some(Message {
            kind: Kind::from_number(word(0))?,
            id: word(1),
            a: word(2) as i32,
            b: word(3) as i32,
        })
    }
}

/// What came in.
pub(crate) struct Received {
    pub message: Message,
    pub fds: [Option<OwnedFd>; MAX_FDS],
    /// The sender as the kernel saw it, where the socket asks for that.
    pub pid: i32,
}

/// Takes one message; `None` when the other side is gone.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<Received>> {
    receive_with(socket, 0)
}

/// Takes one message that is there already; `None` when there is none.
pub(crate) fn receive_now(socket: BorrowedFd<'_>) -> io::Result<Option<Received>> {
    match receive_with(socket, libc::MSG_DONTWAIT) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        other => other,
    }
}

fn receive_with(socket: BorrowedFd<'_>, flags: i32) -> io::Result<Option<Received>> {
    let flags = flags | libc::MSG_CMSG_CLOEXEC;
    #[repr(align(8))]
    struct Control([u8; 64 + 4 * MAX_FDS + 32]);
    let mut control = Control([0; 64 + 4 * MAX_FDS + 32]);
    let mut bytes = [0u8; 16];
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
        let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        if got >= 0 {
            break got as usize;
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            // A peer that ended with something unread is told of once, before what it had still said.
            io::ErrorKind::Interrupted | io::ErrorKind::ConnectionReset => {}
            _ => return Err(error),
        }
    };
    if got == 0 {
        return Ok(None);
    }
    let mut fds = [const { None }; MAX_FDS];
    let mut pid = 0;
    let mut count = 0;
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
                    let fd = OwnedFd::from_raw_fd(raw);
                    if let Some(place) = fds.get_mut(count) {
                        *place = Some(fd);
                        count += 1;
                    }
                }
            } else if (*header).cmsg_level == libc::SOL_SOCKET
                && (*header).cmsg_type == libc::SCM_CREDENTIALS
            {
                pid = libc::CMSG_DATA(header)
                    .cast::<libc::ucred>()
                    .read_unaligned()
                    .pid;
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    match Message::from_bytes(&bytes) {
        Some(message) if got == bytes.len() => Ok(Some(Received { message, fds, pid })),
        _ => Err(io::Error::from_raw_os_error(libc::EBADMSG)),
    }
}

/// A pair of connected sockets that keep message boundaries; the first tells who sends.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: `fds` has room for the two descriptors.
    let rc = unsafe {
        libc::socketpair(
            libc::AF_UNIX,
            libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
            0,
            fds.as_mut_ptr(),
        )
    };
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned these two and nobody else owns them.
    let pair = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
    let on: i32 = 1;
    // SAFETY: the pointer and length describe `on`.
    let rc = unsafe {
        libc::setsockopt(
            pair.0.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PASSCRED,
            (&raw const on).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_last_words_of_one_who_did_not_listen_are_heard() {
        let (ours, theirs) = pair().unwrap();
        Message::new(Kind::Start).send(ours.as_fd(), &[]).unwrap();
        Message::new(Kind::Failed)
            .send(theirs.as_fd(), &[])
            .unwrap();
        drop(theirs);
        let heard = receive(ours.as_fd()).unwrap().unwrap();
        assert_eq!(heard.message.kind, Kind::Failed);
        assert!(receive(ours.as_fd()).unwrap().is_none());
    }
}
