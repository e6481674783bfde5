//! One JSON text a message, with descriptors, over a socket that keeps message boundaries. What is too
//! long for a message travels as a file in memory.

use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use serde::Serialize;
use serde::de::DeserializeOwned;
use substrate_sys::{bounded, memfd, scm};

/// Texts up to this length are sent as they are.
const SHORT: usize = 32 * 1024;
/// No text is longer: arguments and environment together are bounded by the kernel.
const LONGEST: u64 = 16 << 20;
/// Most descriptors of one message.
pub(crate) const MAX_FDS: usize = 40;

/// What a message begins with.
const IN_PLACE: u8 = b'=';
const IN_A_FILE: u8 = b'@';

/// One end of a conversation.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

impl Channel {
    /// Over this socket.
    pub fn new(socket: OwnedFd) -> Channel {
        Channel(socket)
    }

    /// Sends a message.
    pub fn send(&self, message: &impl Serialize, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        if text.len() <= SHORT {
            return scm::send(
                self.0.as_fd(),
                &[&[IN_PLACE], text.as_slice()].concat(),
                fds,
            );
        }
        let file = memfd::sealed(c"message", &text)?;
        let mut all = vec![file.as_fd()];
        all.extend(fds);
        scm::send(self.0.as_fd(), &[IN_A_FILE], &all)
    }

    /// Takes the next message; `None` when the other side is gone.
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let mut bytes = vec![0; SHORT + 1];
        let mut fds = [const { None }; MAX_FDS + 1];
        let flags = scm::RecvFlags::empty();
        let arrived = match scm::receive(self.0.as_fd(), &mut bytes, &mut fds, flags) {
            // Who ended with something unread is gone as well.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            other => other?,
        };
        if arrived.length == 0 {
            return Ok(None);
        }
        if arrived.cut {
            return Err(invalid("a message is too long"));
        }
        let mut fds: Vec<OwnedFd> = fds.into_iter().flatten().collect();
        let text = match bytes.first() {
            Some(&IN_PLACE) => bytes.get(1..arrived.length).unwrap_or_default().to_vec(),
            Some(&IN_A_FILE) if !fds.is_empty() => in_file(fds.remove(0))?,
            _ => return Err(invalid("this is no message")),
        };
        Ok(Some((serde_json::from_slice(&text)?, fds)))
    }
}

fn in_file(file: OwnedFd) -> io::Result<Vec<u8>> {
    let mut file = File::from(file);
    file.rewind()?;
    Ok(bounded::read_open(&file, LONGEST)?)
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use substrate_init::control;

    #[test]
    fn short_and_long_messages_arrive_whole_with_their_descriptors() {
        let (a, b) = control::pair().unwrap();
        let (a, b) = (Channel::new(a), Channel::new(b));
        for length in [0, 100, SHORT, 3 * SHORT, 1 << 20] {
            let text = "x".repeat(length);
            a.send(&text, &[a.as_fd(), b.as_fd()]).unwrap();
            let (received, fds) = b.receive::<String>().unwrap().unwrap();
            assert!(received == text && fds.len() == 2, "{length}");
        }
        drop(a);
        assert!(b.receive::<String>().unwrap().is_none());
    }

    #[test]
    fn what_is_no_message_is_an_error_and_ends_nothing() {
        let (a, b) = control::pair().unwrap();
        let b = Channel::new(b);
        for bytes in [&b"x"[..], b"=", b"={", b"@", b"=\xff", b"=1"] {
            scm::send(a.as_fd(), bytes, &[]).unwrap();
            assert!(b.receive::<String>().is_err(), "{bytes:?}");
        }
        scm::send(a.as_fd(), &vec![b'='; SHORT + 2], &[]).unwrap();
        assert!(b.receive::<String>().is_err());
        // A descriptor that is no file in memory.
        scm::send(a.as_fd(), b"@", &[a.as_fd()]).unwrap();
        assert!(b.receive::<String>().is_err());
        scm::send(a.as_fd(), b"=\"y\"", &[]).unwrap();
        assert_eq!(b.receive::<String>().unwrap().unwrap().0, "y");
    }
}
