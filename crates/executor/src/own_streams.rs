//! What the standard streams of this process lead to.

use std::fs::{File, Metadata};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use substrate_runtime::inherit;
use substrate_sys::streams;
use substrate_trace::Stdin;

/// What standard input is, without looking into it.
pub fn stdin_kind() -> Stdin {
    if inherit::was_closed(0) {
        return Stdin::None;
    }
    let stdin = io::stdin();
    let Ok(status) = status(stdin.as_fd()) else {
        return Stdin::Unknown;
    };
    let kind = status.file_type();
    match () {
        () if kind.is_fifo() || kind.is_socket() => Stdin::Pipe,
        () if kind.is_char_device() && status.rdev() == streams::NULL => Stdin::None,
        () if kind.is_char_device() && stdin.is_terminal() => Stdin::Tty,
        () => Stdin::Unknown,
    }
}

/// What a descriptor leads to.
pub fn status(fd: BorrowedFd<'_>) -> io::Result<Metadata> {
    File::from(fd.try_clone_to_owned()?).metadata()
}
