//! Waiting for a handful of descriptors, and plain reads and writes on borrowed ones.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::{Errno, retry_on_intr};

/// A descriptor and what it is waited for.
pub struct Wanted<'a>(PollFd<'a>);

impl<'a> Wanted<'a> {
    /// Until it can be read, or its other side is gone.
    pub fn read(fd: BorrowedFd<'a>) -> Wanted<'a> {
        Wanted(PollFd::from_borrowed_fd(fd, PollFlags::IN))
    }

    /// Until it can be read or written.
    pub fn both(fd: BorrowedFd<'a>) -> Wanted<'a> {
        Wanted(PollFd::from_borrowed_fd(fd, PollFlags::IN | PollFlags::OUT))
    }
}

/// Waits until one is ready and tells which are.
pub fn wait(wanted: &mut [Wanted<'_>]) -> io::Result<Vec<bool>> {
    wait_until(wanted, None)
}

/// Waits until one is ready, or until a moment has come, and tells which are.
pub fn wait_until(wanted: &mut [Wanted<'_>], end: Option<Instant>) -> io::Result<Vec<bool>> {
    let mut entries: Vec<PollFd<'_>> = wanted.iter().map(|wanted| wanted.0.clone()).collect();
    retry_on_intr(|| {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        poll(&mut entries, left)
    })?;
    Ok(ready(&entries))
}

/// How many bytes of a pipe or terminal nobody has read yet.
pub fn unread(fd: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(fd)?)
}

/// Waits until one of the descriptors can be read or is closed, for so long at most; the answer is in
/// their order. A signal ends the waiting, and then none is ready.
pub fn readable(
    descriptors: &[BorrowedFd<'_>],
    timeout: Option<Duration>,
) -> io::Result<Vec<bool>> {
    let mut entries: Vec<PollFd<'_>> = descriptors
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    match poll(&mut entries, timeout) {
        Ok(_) => Ok(ready(&entries)),
        Err(Errno::INTR) => Ok(vec![false; descriptors.len()]),
        Err(error) => Err(error.into()),
    }
}

fn ready(entries: &[PollFd<'_>]) -> Vec<bool> {
    entries.iter().map(|e| !e.revents().is_empty()).collect()
}

fn poll(entries: &mut [PollFd<'_>], timeout: Option<Duration>) -> rustix::io::Result<usize> {
    // A time that the kernel does not know is as good as none.
    let timeout = timeout.and_then(|time| Timespec::try_from(time).ok());
    rustix::event::poll(entries, timeout.as_ref())
}

/// Makes reads and writes return at once.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&fd)?;
    Ok(fcntl_setfl(fd, flags | OFlags::NONBLOCK)?)
}

/// Makes reads and writes wait, as programs expect it of what they inherit.
pub fn set_blocking(fd: impl AsFd) -> io::Result<()> {
    let flags = fcntl_getfl(&fd)?;
    Ok(fcntl_setfl(fd, flags - OFlags::NONBLOCK)?)
}

/// Reads what is there into the buffer, through interruptions.
pub fn read(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(retry_on_intr(|| rustix::io::read(&fd, &mut *buffer))?)
}

/// Writes what a descriptor takes at once.
pub fn write(fd: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| rustix::io::write(&fd, bytes))?)
}

/// Writes everything, waiting where the descriptor does not take it at once.
pub fn write_all(fd: impl AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(&fd, bytes) {
            Ok(sent) => bytes = bytes.get(sent..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(&fd, PollFlags::OUT)], None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Whether a descriptor is a directory, or a path that was opened without access.
pub fn leads_elsewhere(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let kind = FileType::from_raw_mode(fstat(fd)?.st_mode);
    Ok(kind == FileType::Directory || fcntl_getfl(fd)?.contains(OFlags::PATH))
}
