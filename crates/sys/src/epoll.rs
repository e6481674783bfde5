//! epoll and eventfd, as thin as they can be.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;

/// Something can be read, or the peer is gone.
pub const READ: u32 = EventFlags::IN.bits();
/// Something can be written.
pub const WRITE: u32 = EventFlags::OUT.bits();
/// The peer will send no more.
pub const READ_CLOSED: u32 = EventFlags::RDHUP.bits();
/// An error is pending; always reported.
pub const ERROR: u32 = EventFlags::ERR.bits();
/// Both directions are gone; always reported.
pub const HANG_UP: u32 = EventFlags::HUP.bits();
/// Report changes instead of states.
pub const EDGE: u32 = EventFlags::ET.bits();

/// An epoll instance.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// Room for what one wait returns.
pub struct Events(Vec<Event>);

impl Events {
    /// Room for `n` events a wait.
    pub fn with_capacity(n: usize) -> Events {
        Events(Vec::with_capacity(n.max(1)))
    }

    /// The token and events of everything the last wait returned.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.0.iter().map(|event| {
            let (data, flags) = (event.data, event.flags);
            (data.u64(), flags.bits())
        })
    }
}

impl Epoll {
    /// A new instance, close-on-exec.
    pub fn new() -> io::Result<Epoll> {
        Ok(Epoll(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Watches `fd`; its events carry `token`. Closing the last copy of `fd` ends the watch.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, events: u32) -> io::Result<()> {
        let events = EventFlags::from_bits_retain(events);
        Ok(epoll::add(self, fd, EventData::new_u64(token), events)?)
    }

    /// Changes what `fd` is watched for.
    pub fn modify(&self, fd: BorrowedFd<'_>, token: u64, events: u32) -> io::Result<()> {
        let events = EventFlags::from_bits_retain(events);
        Ok(epoll::modify(self, fd, EventData::new_u64(token), events)?)
    }

    /// Ends the watch of `fd`.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        Ok(epoll::delete(self, fd)?)
    }

    /// Waits for events, at most `timeout` (rounded up to milliseconds); a signal counts as none.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        // A time that the kernel does not know is as good as none.
        let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
        events.0.clear();
        match epoll::wait(self, spare_capacity(&mut events.0), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A counter that wakes who waits for it.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A counter at zero, non-blocking.
    pub fn new() -> io::Result<EventFd> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(EventFd(eventfd(0, flags)?))
    }

    /// Wakes the waiter. A full counter wakes as well, so nothing can go wrong here.
    pub fn signal(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Sets the counter back to zero.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eventfd_wakes_and_can_be_cleared() {
        let epoll = Epoll::new().unwrap();
        let wake = EventFd::new().unwrap();
        epoll.add(wake.as_fd(), 7, READ).unwrap();
        let mut events = Events::with_capacity(4);
        epoll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert_eq!(events.iter().count(), 0);
        wake.signal();
        wake.signal();
        epoll.wait(&mut events, None).unwrap();
        assert_eq!(events.iter().collect::<Vec<_>>(), vec![(7, READ)]);
        wake.clear();
        epoll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert_eq!(events.iter().count(), 0);
    }
}
