//! Copying the content of a file: shared blocks where the file system can, data only elsewhere.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// Makes `to` share all blocks of `from`. Fails with `EOPNOTSUPP`, `EXDEV` or `EINVAL` where that cannot be.
pub fn clone_whole(from: impl AsFd, to: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::ioctl_ficlone(to, from)?)
}

/// Copies up to `length` bytes at `offset` within the kernel; returns how many.
pub fn copy_range(from: impl AsFd, to: impl AsFd, offset: u64, length: u64) -> io::Result<u64> {
    let (mut source, mut target) = (offset, offset);
    let most = usize::try_from(length.min(1 << 30)).unwrap_or(1 << 30);
    let (source, target) = (Some(&mut source), Some(&mut target));
    let copied = rustix::fs::copy_file_range(from, source, to, target, most)?;
    Ok(copied as u64)
}

/// Has the kernel begin to write a file's content to the disk, without waiting for it. By libc, because
/// rustix does not have it.
pub fn start_writeback(file: impl AsFd) -> io::Result<()> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed, so it stays open through the call.
    match unsafe { libc::sync_file_range(fd, 0, 0, libc::SYNC_FILE_RANGE_WRITE) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The next stretch of data at or after `offset`, as start and end; `None` when only a hole follows.
pub fn next_data(file: impl AsFd, offset: u64) -> io::Result<Option<(u64, u64)>> {
    let start = match seek(&file, SeekFrom::Data(offset)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let end = seek(&file, SeekFrom::Hole(start))?;
    Ok(Some((start, end)))
}
