//! The starts that a world's first process makes for its owner, known to the guard among all others.
//!
//! The process that is about to become a command says so itself, over a socket that no command has,
//! before it makes the call that the guard is asked about: so the word is there before the question.
//! The kernel tells who spoke, in the numbers of whoever listens, and the descriptor that comes along
//! tells whether that process still lives. There is nothing that could be seen and used again.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::process::getpid;

use crate::control::{self, Kind, Message};
use substrate_sys::pidfd;

/// Processes that are about to become commands of the owner.
#[derive(Debug)]
pub struct OwnStarts {
    socket: OwnedFd,
    announced: Mutex<Vec<Announced>>,
}

#[derive(Debug)]
struct Announced {
    pid: i32,
    process: OwnedFd,
    /// What its owner calls the command.
    tag: u32,
}

impl OwnStarts {
    /// With the end of the first process.
    pub fn pair() -> io::Result<(OwnStarts, OwnedFd)> {
        let (socket, theirs) = control::pair()?;
        let own = OwnStarts {
            socket,
            announced: Mutex::default(),
        };
        Ok((own, theirs))
    }

    /// The tag of the command that a thread is about to become which asks to start something, once for each.
    pub fn take(&self, thread: i32) -> Option<u32> {
        let announced = self.announced.lock();
        let mut announced = announced.unwrap_or_else(PoisonError::into_inner);
        while let Ok(Some(mut received)) = control::receive_now(self.socket.as_fd()) {
            let process = received.fds[0].take();
            announced.extend(process.map(|process| Announced {
                pid: received.pid,
                process,
                tag: received.message.id,
            }));
        }
        // The number of one that was killed on its way may come to mean another.
        announced.retain(|announced| pidfd::is_alive(announced.process.as_fd()));
        let found = announced.iter().position(|known| known.pid == thread)?;
        Some(announced.swap_remove(found).tag)
    }
}

/// Says that this process is about to become a command. Allocates nothing.
pub(crate) fn announce(guard: BorrowedFd<'_>, tag: u32) -> io::Result<()> {
    let process = pidfd::open(getpid().as_raw_nonzero().get())?;
    let mut message = Message::new(Kind::Starting);
    message.id = tag;
    message.send(guard, &[process.as_fd()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_start_is_own_once_and_only_for_who_announced_it() {
        let (own, guard) = OwnStarts::pair().unwrap();
        let me = std::process::id().cast_signed();
        assert_eq!(own.take(me), None);
        announce(guard.as_fd(), 7).unwrap();
        assert_eq!(own.take(me + 1), None);
        assert_eq!(own.take(me), Some(7));
        assert_eq!(own.take(me), None);
        announce(guard.as_fd(), 8).unwrap();
        announce(guard.as_fd(), 9).unwrap();
        let mut taken = [own.take(me), own.take(me)];
        taken.sort();
        assert_eq!(taken, [Some(8), Some(9)]);
        assert_eq!(own.take(me), None);
    }

    #[test]
    fn the_number_of_a_process_that_died_on_its_way_is_nobodys() {
        let (own, guard) = OwnStarts::pair().unwrap();
        let me = std::process::id().cast_signed();
        let mut process = Command::new("sleep").arg("100").spawn().unwrap();
        let fd = pidfd::open(process.id().cast_signed()).unwrap();
        // The sender here is always this process.
        let message = Message::new(Kind::Starting);
        message.send(guard.as_fd(), &[fd.as_fd()]).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!(own.take(me), None);
    }
}
