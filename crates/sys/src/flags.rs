//! Constants that std's open options need and do not name.

/// Do not follow a symbolic link at the end of the path.
pub const O_NOFOLLOW: i32 = libc::O_NOFOLLOW;
/// Close on exec.
pub const O_CLOEXEC: i32 = libc::O_CLOEXEC;
/// Every write goes to the end.
pub const O_APPEND: i32 = libc::O_APPEND;
/// Do not wait for the other side of a FIFO, or for data.
pub const O_NONBLOCK: i32 = libc::O_NONBLOCK;
/// A terminal that is opened does not become the controlling one.
pub const O_NOCTTY: i32 = libc::O_NOCTTY;
/// The part of the flags that tells reading and writing.
pub const O_ACCMODE: i32 = libc::O_ACCMODE;
/// Opened for reading only.
pub const O_RDONLY: i32 = libc::O_RDONLY;
/// Opened for writing only.
pub const O_WRONLY: i32 = libc::O_WRONLY;
/// Only a handle: nothing can be read or written through it.
pub const O_PATH: i32 = libc::O_PATH;
/// Only a directory.
pub const O_DIRECTORY: i32 = libc::O_DIRECTORY;
