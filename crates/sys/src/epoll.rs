//! epoll and eventfd, as thin as they can be.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Something can be read, or the peer is gone.
pub const READ: u32 = libc::EPOLLIN as u32;
/// Something can be written.
pub const WRITE: u32 = libc::EPOLLOUT as u32;
/// The peer will send no more.
pub const READ_CLOSED: u32 = libc::EPOLLRDHUP as u32;
/// An error is pending; always reported.
pub const ERROR: u32 = libc::EPOLLERR as u32;
/// Both directions are gone; always reported.
pub const HANG_UP: u32 = libc::EPOLLHUP as u32;
/// Report changes instead of states.
pub const EDGE: u32 = libc::EPOLLET as u32;

/// An epoll instance.
#[derive(Debug)]
pub struct Epoll(OwnedFd);

/// Room for what one wait returns.
pub struct Events {
    buffer: Vec<libc::epoll_event>,
    filled: usize,
}

impl Events {
    /// Room for `n` events a wait.
    pub fn with_capacity(n: usize) -> Events {
        Events {
            buffer: vec![libc::epoll_event { events: 0, u64: 0 }; n.max(1)],
            filled: 0,
        }
    }

    /// The token and events of everything the last wait returned.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.buffer[..self.filled].iter().map(|e| (e.u64, e.events))
    }
}

impl Epoll {
    /// A new instance, close-on-exec.
    pub fn new() -> io::Result<Epoll> {
        // SAFETY: plain system call without pointers.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just returned by the kernel and nobody else owns it.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Watches `fd`; its events carry `token`. Closing the last copy of `fd` ends the watch.
    pub fn add(&self, fd: BorrowedFd<'_>, token: u64, events: u32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, events)
    }

    /// Changes what `fd` is watched for.
    pub fn modify(&self, fd: BorrowedFd<'_>, token: u64, events: u32) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, events)
    }

    /// Ends the watch of `fd`.
    pub fn remove(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn control(&self, op: i32, fd: BorrowedFd<'_>, token: u64, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: `event` lives for the call; both descriptors are open.
        let rc = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), op, fd.as_raw_fd(), &raw mut event) };
        if rc < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Waits for events, at most `timeout` (rounded up to milliseconds); a signal counts as none.
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        let ms = match timeout {
            None => -1,
            Some(t) => i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX),
        };
        events.filled = 0;
        // SAFETY: the pointer and length describe the buffer, which is writable for the call.
        let n = unsafe {
            libc::epoll_wait(
                self.0.as_raw_fd(),
                events.buffer.as_mut_ptr(),
                i32::try_from(events.buffer.len()).unwrap_or(i32::MAX),
                ms,
            )
        };
        if n < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted {
                Ok(())
            } else {
                Err(error)
            };
        }
        events.filled = n as usize;
        Ok(())
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
        // SAFETY: plain system call without pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just returned by the kernel and nobody else owns it.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Wakes the waiter. A full counter wakes as well, so nothing can go wrong here.
    pub fn signal(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: the pointer and length describe `one`.
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// Sets the counter back to zero.
    pub fn clear(&self) {
        let mut value = [0u8; 8];
        // SAFETY: the pointer and length describe `value`, which is writable.
        unsafe { libc::read(self.0.as_raw_fd(), value.as_mut_ptr().cast(), value.len()) };
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
