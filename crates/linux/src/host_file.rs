//! A file, device or pipe of the host that a command has as a stream.

use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use substrate_sys::{flags, streams};

/// A file of the host as the world may have it: on a read-only mount of its own.
#[derive(Debug)]
pub struct Stream {
    pub(crate) identity: (u64, u64),
    handle: OwnedFd,
}

impl Stream {
    /// One that the first process of a world handed out.
    pub(crate) fn new(handle: OwnedFd) -> io::Result<Stream> {
        let stat = substrate_sys::at::stat(&handle, "")?;
        Ok(Stream {
            identity: (stat.dev, stat.ino),
            handle,
        })
    }

    /// Opens it again as it was opened.
    pub(crate) fn open(&self, named: &Named) -> io::Result<File> {
        let path = format!("/proc/self/fd/{}", self.handle.as_raw_fd());
        let wait = named.flags & flags::O_NONBLOCK;
        let file = File::options()
            .read(named.reads)
            .write(named.writes)
            // The other end of a named pipe need not be there at this moment.
            .custom_flags(named.flags & flags::O_APPEND | flags::O_NONBLOCK | flags::O_NOCTTY)
            .open(path)?;
        if wait == 0 {
            substrate_sys::poll::set_blocking(&file)?;
        }
        let meta = file.metadata()?;
        if (meta.dev(), meta.ino()) != named.identity {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(file)
    }
}

/// The mode that a descriptor of `/dev/null` was opened with, for a stream to which the world can
/// open its own instead.
pub(crate) fn null_mode(number: i32, fd: BorrowedFd<'_>) -> Option<i32> {
    let meta = File::from(fd.try_clone_to_owned().ok()?).metadata().ok()?;
    let null = meta.file_type().is_char_device() && meta.rdev() == streams::NULL;
    match null && (0..3).contains(&number) {
        true => Some(streams::opened_with(fd).ok()? & flags::O_ACCMODE),
        false => None,
    }
}

/// A file, device or pipe of the host that has a name.
pub(crate) struct Named {
    pub(crate) identity: (u64, u64),
    /// Where it is, if that can be told.
    pub(crate) path: Option<PathBuf>,
    pub(crate) regular: bool,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    pub(crate) flags: i32,
}

/// Finds out what a descriptor leads to; nothing for what has no name on the host, which nobody
/// else can meet. A file that is open both ways serves the way that its number is used.
pub(crate) fn look(number: i32, fd: BorrowedFd<'_>) -> io::Result<Option<Named>> {
    let file = File::from(fd.try_clone_to_owned()?);
    let meta = file.metadata()?;
    let kind = meta.file_type();
    if meta.nlink() == 0 || kind.is_socket() || fd.is_terminal() {
        return Ok(None);
    }
    let path = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()))?;
    if kind.is_fifo() && !path.is_absolute() {
        return Ok(None);
    }
    let identity = (meta.dev(), meta.ino());
    let same = |path: &PathBuf| {
        fs::symlink_metadata(path).is_ok_and(|now| (now.dev(), now.ino()) == identity)
    };
    let flags = streams::opened_with(fd)?;
    let regular = kind.is_file();
    let mut reads = flags & flags::O_ACCMODE != flags::O_WRONLY;
    let mut writes = flags & flags::O_ACCMODE != flags::O_RDONLY;
    if regular && reads && writes {
        writes = matches!(number, 1 | 2);
        reads = !writes;
    }
    Ok(Some(Named {
        identity,
        path: Some(path).filter(same),
        regular,
        reads,
        writes,
        flags,
    }))
}
