//! The words between the owner of a world and its first process: fixed-size messages with
//! descriptors over a socket pair that keeps message boundaries. Allocates nothing.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, socketpair, sockopt};
use substrate_sys::scm;

/// Most descriptors that one message carries.
pub const MAX_FDS: usize = 32;

/// What a message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// To the world: the id maps are written.
    Go = 1,
    /// To the world: start a command. Descriptors: events, request, the starter if the start is judged, then
    /// the command's own.
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

/// Stages of starting a command inside a world, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Stage {
    /// The request did not arrive whole.
    Receive = 1,
    /// A terminal could not be made.
    Terminal = 2,
    /// No process could be made.
    Fork = 3,
    /// The terminal could not be taken over.
    TakeTerminal = 4,
    /// A descriptor could not be put in place.
    Descriptors = 5,
    /// The working directory could not be entered.
    Cwd = 6,
    /// The program could not be executed.
    Exec = 7,
}

impl Stage {
    pub(crate) fn from_number(n: i32) -> Stage {
        [
            Stage::Receive,
            Stage::Terminal,
            Stage::Fork,
            Stage::TakeTerminal,
            Stage::Descriptors,
            Stage::Cwd,
        ]
        .into_iter()
        .find(|stage| *stage as i32 == n)
        .unwrap_or(Stage::Exec)
    }
}

/// One message.
#[derive(Debug, Clone, Copy)]
pub struct Message {
    /// What it says.
    pub kind: Kind,
    /// The command that it is about.
    pub id: u32,
    /// See [`Kind`].
    pub a: i32,
    /// See [`Kind`].
    pub b: i32,
}

impl Message {
    /// One that says nothing else.
    pub fn new(kind: Kind) -> Message {
        Message {
            kind,
            id: 0,
            a: 0,
            b: 0,
        }
    }

    /// Sends it, with descriptors.
    pub fn send(self, socket: BorrowedFd<'_>, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
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
#[derive(Debug)]
pub struct Received {
    /// The message.
    pub message: Message,
    /// The descriptors that came along.
    pub fds: [Option<OwnedFd>; MAX_FDS],
    /// The sender as the kernel saw it, where the socket asks for that.
    pub pid: i32,
}

/// Takes one message; `None` when the other side is gone.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<Received>> {
    receive_with(socket, RecvFlags::empty())
}

/// Takes one message that is there already; `None` when there is none.
pub fn receive_now(socket: BorrowedFd<'_>) -> io::Result<Option<Received>> {
    match receive_with(socket, RecvFlags::DONTWAIT) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        other => other,
    }
}

fn receive_with(socket: BorrowedFd<'_>, flags: RecvFlags) -> io::Result<Option<Received>> {
    let mut bytes = [0u8; 16];
    let mut fds = [const { None }; MAX_FDS];
    let arrived = loop {
        match scm::receive(socket, &mut bytes, &mut fds, flags) {
            // A peer that ended with something unread is told of once, before what it had still said.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            other => break other?,
        }
    };
    if arrived.length == 0 {
        return Ok(None);
    }
    match Message::from_bytes(&bytes) {
        Some(message) if arrived.length == bytes.len() && !arrived.cut => Ok(Some(Received {
            message,
            fds,
            pid: arrived.sender,
        })),
        _ => Err(Errno::BADMSG.into()),
    }
}

/// A pair of connected sockets that keep message boundaries; the first tells who sends.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let pair = socketpair(AddressFamily::UNIX, kind, flags, None)?;
    sockopt::set_socket_passcred(&pair.0, true)?;
    Ok(pair)
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
