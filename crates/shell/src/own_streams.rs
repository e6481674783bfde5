//! The standard streams of this process.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use substrate_executor::front::OwnStreams;
use substrate_runtime::inherit;
use substrate_sys::streams;
use substrate_trace::Stdin;

/// Those that this process was started with.
pub struct Inherited;

impl OwnStreams for Inherited {
    fn copy(&self, number: u8) -> io::Result<OwnedFd> {
        match number {
            0 => io::stdin().as_fd().try_clone_to_owned(),
            1 => io::stdout().as_fd().try_clone_to_owned(),
            _ => io::stderr().as_fd().try_clone_to_owned(),
        }
    }

    fn replace(&self, number: u8, with: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        streams::replace(number, with)
    }

    fn put_back(&self, number: u8, before: OwnedFd) -> io::Result<()> {
        streams::put_back(number, before)
    }
}

/// What standard input is, without looking into it.
pub fn stdin_kind() -> Stdin {
    if inherit::was_closed(0) {
        return Stdin::None;
    }
    let Some(status) = stdin_file().and_then(|file| file.metadata().ok()) else {
        return Stdin::Unknown;
    };
    let kind = status.file_type();
    match () {
        () if kind.is_fifo() || kind.is_socket() => Stdin::Pipe,
        () if kind.is_char_device() && status.rdev() == streams::NULL => Stdin::None,
        () if kind.is_char_device() && io::stdin().is_terminal() => Stdin::Tty,
        () => Stdin::Unknown,
    }
}

/// Standard input, whose position a copy shares.
pub fn stdin_file() -> Option<File> {
    Inherited.copy(0).ok().map(File::from)
}
