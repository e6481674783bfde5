//! The one door to standard output. A reader that went away is no error: `substrate trace | head`.

use std::io::{self, Write};

/// Writes text to standard output; whoever closed the pipe has seen enough.
pub fn print(text: &str) -> io::Result<()> {
    write(text.as_bytes())
}

/// Writes bytes to standard output.
pub fn write(bytes: &[u8]) -> io::Result<()> {
    match try_write(bytes) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes bytes to standard output and tells when nobody reads them any more.
pub fn try_write(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}
