//! Copying the content of a file: shared blocks where the file system can, data only elsewhere.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::at::check;

/// Makes `to` share all blocks of `from`. Fails with `EOPNOTSUPP`, `EXDEV` or `EINVAL` where that cannot be.
pub fn clone_whole(from: impl AsFd, to: impl AsFd) -> io::Result<()> {
    // SAFETY: FICLONE takes a descriptor as its argument; both stay open through the call.
    check(unsafe {
        libc::ioctl(
            to.as_fd().as_raw_fd(),
            libc::FICLONE,
            from.as_fd().as_raw_fd(),
        )
    })
}

/// Copies up to `length` bytes at `offset` within the kernel; returns how many.
pub fn copy_range(from: impl AsFd, to: impl AsFd, offset: u64, length: u64) -> io::Result<u64> {
    let mut source = offset.cast_signed();
    let mut target = source;
    // By number, as in `at::mount_id`.
    // SAFETY: both offsets are live and writable, and both descriptors stay open through the call.
    let n = unsafe {
        libc::syscall(
            libc::SYS_copy_file_range,
            from.as_fd().as_raw_fd(),
            &raw mut source,
            to.as_fd().as_raw_fd(),
            &raw mut target,
            usize::try_from(length.min(1 << 30)).unwrap_or(1 << 30),
            0_u32,
        )
    };
    u64::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Has the kernel begin to write a file's content to the disk, without waiting for it.
pub fn start_writeback(file: impl AsFd) -> io::Result<()> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: the descriptor is borrowed, so it stays open through the call.
    check(unsafe { libc::sync_file_range(fd, 0, 0, libc::SYNC_FILE_RANGE_WRITE) })
}

/// The next stretch of data at or after `offset`, as start and end; `None` when only a hole follows.
pub fn next_data(file: impl AsFd, offset: u64) -> io::Result<Option<(u64, u64)>> {
    let seek = |from: i64, whence| {
        // SAFETY: the descriptor is borrowed, so it stays open through the call.
        let n = unsafe { libc::lseek(file.as_fd().as_raw_fd(), from, whence) };
        u64::try_from(n).map_err(|_| io::Error::last_os_error())
    };
    let start = match seek(offset.cast_signed(), libc::SEEK_DATA) {
        Ok(start) => start,
        Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return Ok(None),
        Err(e) => return Err(e),
    };
    let end = seek(start.cast_signed(), libc::SEEK_HOLE)?;
    Ok(Some((start, end)))
}
