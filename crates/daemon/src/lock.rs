//! One service a home: whoever holds the lock is it, and the file says who that is.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use substrate_sys::flags;

/// The name of the file, beside the sockets.
pub const FILE: &str = "service.lock";

/// Longest text that is believed.
const LONGEST: u64 = 256;

/// The lock, held as long as this lives.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes it; nothing when another service has it.
    pub fn take(directory: &Path, version: &str) -> io::Result<Option<Lock>> {
        let path = directory.join(FILE);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options
            .mode(0o600)
            .custom_flags(flags::O_NOFOLLOW | flags::O_CLOEXEC)
            .open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        file.set_len(0)?;
        writeln!(file, "{} {version}", std::process::id())?;
        Ok(Some(Lock { file, path }))
    }

    /// Whether the lock still stands where others look for it.
    pub fn stands(&self) -> bool {
        let same = || -> io::Result<bool> {
            let (ours, there) = (
                self.file.metadata()?,
                std::fs::symlink_metadata(&self.path)?,
            );
            Ok((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
        };
        same().unwrap_or(false)
    }
}

/// The service that runs: its process and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its process id.
    pub pid: u32,
    /// What `--version` says there.
    pub version: String,
}

/// Who holds the lock of a home, if somebody does.
pub fn holder(directory: &Path) -> io::Result<Option<Holder>> {
    let mut options = OpenOptions::new();
    let opened = options
        .read(true)
        .custom_flags(flags::O_NOFOLLOW | flags::O_CLOEXEC)
        .open(directory.join(FILE));
    let mut file = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    if file.try_lock_shared().is_ok() {
        return Ok(None);
    }
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(LONGEST).read_to_string(&mut text)?;
    let (pid, version) = text.trim().split_once(' ').unwrap_or_default();
    Ok(pid.parse().ok().map(|pid| Holder {
        pid,
        version: version.to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_it_and_the_others_learn_who() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(holder(dir.path()).unwrap(), None);
        let lock = Lock::take(dir.path(), "1.2.3").unwrap().unwrap();
        assert!(Lock::take(dir.path(), "1.2.3").unwrap().is_none());
        let held = holder(dir.path()).unwrap().unwrap();
        assert_eq!(
            (held.pid, held.version.as_str()),
            (std::process::id(), "1.2.3")
        );
        assert!(lock.stands());
        std::fs::remove_file(dir.path().join(FILE)).unwrap();
        assert!(!lock.stands());
        drop(lock);
        assert_eq!(holder(dir.path()).unwrap(), None);
    }
}
