//! Hearing of names that come into being in a directory.

use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};

/// Becomes readable when something appears in a watched directory.
#[derive(Debug)]
pub struct Arrivals(OwnedFd);

impl Arrivals {
    /// Watches nothing yet.
    pub fn new() -> io::Result<Arrivals> {
        let flags = CreateFlags::CLOEXEC | CreateFlags::NONBLOCK;
        Ok(Arrivals(inotify::init(flags)?))
    }

    /// Watches a directory for what is made in it or moved to it.
    pub fn watch(&self, dir: impl AsRef<OsStr>) -> io::Result<()> {
        let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        inotify::add_watch(&self.0, dir.as_ref(), flags)?;
        Ok(())
    }

    /// Takes note of everything that was heard so far.
    pub fn clear(&self) {
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.0, &mut room);
        while events.next().is_ok() {}
    }
}

impl AsFd for Arrivals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poll::{self, Wanted};
    use std::time::{Duration, Instant};

    #[test]
    fn what_is_made_or_moved_there_is_heard_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("old"), "").unwrap();
        let arrivals = Arrivals::new().unwrap();
        arrivals.watch(dir.path()).unwrap();
        let heard = || {
            let end = Instant::now() + Duration::from_millis(1);
            let ready = poll::wait_until(&mut [Wanted::read(arrivals.as_fd())], Some(end));
            arrivals.clear();
            ready.unwrap()[0]
        };
        assert!(!heard());
        std::fs::write(dir.path().join("old"), "more").unwrap();
        assert!(!heard());
        std::fs::write(dir.path().join("new"), "").unwrap();
        assert!(heard());
        std::fs::write(other.path().join("x"), "").unwrap();
        std::fs::rename(other.path().join("x"), dir.path().join("x")).unwrap();
        assert!(heard());
        assert!(!heard());
    }
}
