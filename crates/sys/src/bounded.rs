//! Reading a file that somebody else may have put there: without waiting for anybody, only what is
//! a file, and no more of it than is asked for.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Whether the last name of a path may be a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// It may, and what it leads to counts.
    Follow,
    /// It may not.
    Refuse,
}

/// Why a file was not read.
#[derive(Debug)]
pub enum Unread {
    /// It is a pipe, a device, a directory or anything else that is no file.
    NotRegular,
    /// It has more than this many bytes.
    TooLarge(u64),
    /// The kernel's reason.
    Io(io::Error),
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unread::NotRegular => write!(f, "it is not a regular file"),
            Unread::TooLarge(limit) => write!(f, "it has more than {limit} bytes"),
            Unread::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Unread {}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Unread {
        Unread::Io(error)
    }
}

impl From<Unread> for io::Error {
    fn from(unread: Unread) -> io::Error {
        match unread {
            Unread::Io(error) => error,
            Unread::NotRegular => io::Error::new(io::ErrorKind::InvalidInput, unread),
            Unread::TooLarge(_) => io::Error::new(io::ErrorKind::FileTooLarge, unread),
        }
    }
}

/// Opens a file for reading. What is no file is not waited for: a pipe without a writer, a device
/// that is not ready, a file that another process has a lease on.
pub fn open(path: impl AsRef<Path>, links: Links) -> Result<File, Unread> {
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    if links == Links::Refuse {
        flags |= OFlags::NOFOLLOW;
    }
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    regular(file)
}

/// Opens a file of a directory for reading, by the same rules, and no link.
pub fn open_at(dir: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<File> {
    Ok(file_at(dir, name)?)
}

fn file_at(dir: impl AsFd, name: impl AsRef<OsStr>) -> Result<File, Unread> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    regular(File::from(crate::at::open(dir, name, flags)?))
}

/// Reads a file whole, if it has no more than `limit` bytes.
pub fn read(path: impl AsRef<Path>, links: Links, limit: u64) -> Result<Vec<u8>, Unread> {
    read_open(&open(path, links)?, limit)
}

/// Reads a file of a directory whole, if it has no more than `limit` bytes and is no link.
pub fn read_at(dir: impl AsFd, name: impl AsRef<OsStr>, limit: u64) -> Result<Vec<u8>, Unread> {
    read_open(&file_at(dir, name)?, limit)
}

/// Reads the rest of an open file, if that is no more than `limit` bytes. It may grow meanwhile.
pub fn read_open(file: &File, limit: u64) -> Result<Vec<u8>, Unread> {
    if file.metadata()?.len() > limit {
        return Err(Unread::TooLarge(limit));
    }
    let mut content = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut content)?;
    match content.len() as u64 > limit {
        true => Err(Unread::TooLarge(limit)),
        false => Ok(content),
    }
}

/// Only what is a file.
fn regular(file: File) -> Result<File, Unread> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(Unread::NotRegular),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"twelve bytes").unwrap();
        assert_eq!(read(&path, Links::Follow, 12).unwrap(), b"twelve bytes");
        assert!(matches!(
            read(&path, Links::Follow, 11),
            Err(Unread::TooLarge(11))
        ));
        File::create(&path).unwrap().set_len(3 << 30).unwrap();
        assert!(matches!(
            read(&path, Links::Refuse, 1 << 20),
            Err(Unread::TooLarge(_))
        ));
    }

    #[test]
    fn nothing_is_waited_for_and_no_device_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let handle = File::open(dir.path()).unwrap();
        crate::at::mkfifo(&handle, "pipe", 0o600).unwrap();
        symlink("/dev/zero", dir.path().join("zero")).unwrap();
        symlink("pipe", dir.path().join("link")).unwrap();
        for name in ["pipe", "zero", "link", "."] {
            let read = read(dir.path().join(name), Links::Follow, 10);
            assert!(matches!(read, Err(Unread::NotRegular)), "{name} {read:?}");
        }
        assert!(matches!(
            read_at(&handle, "pipe", 1),
            Err(Unread::NotRegular)
        ));
        assert!(matches!(read_at(&handle, "link", 1), Err(Unread::Io(_))));
        let refused = read(dir.path().join("zero"), Links::Refuse, 1);
        assert!(matches!(refused, Err(Unread::Io(_))));
    }
}
