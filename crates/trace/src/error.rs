//! What can go wrong between an event and the disk.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why an event was not recorded, or not wholly.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The home directory cannot be made or looked at.
    Home {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file cannot be opened.
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else stands where a plain file or directory is expected.
    WrongKind {
        /// The path.
        path: PathBuf,
        /// What was expected.
        wanted: &'static str,
    },
    /// The file or directory belongs to another user.
    Owner {
        /// The path.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        us: u32,
    },
    /// Others may write to it, and that cannot be changed.
    Exposed {
        /// The path.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// What the system said to the attempt to change them.
        source: io::Error,
    },
    /// Our own user id cannot be found out.
    Identity {
        /// What the system said.
        source: io::Error,
    },
    /// The event did not reach the disk as one whole line.
    Write {
        /// The trace file.
        path: PathBuf,
        /// Bytes that were written before it failed.
        written: usize,
        /// Bytes of the line.
        length: usize,
        /// What the system said.
        source: io::Error,
    },
    /// A trace file cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The event is longer than readers accept.
    TooLong {
        /// Bytes of the line.
        length: usize,
    },
    /// The key file holds something else than a key.
    KeyDamaged {
        /// The key file.
        path: PathBuf,
    },
    /// No random bytes for a new key.
    Random {
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Home { path, source } => {
                write!(f, "cannot use the directory {}: {source}", path.display())
            }
            Self::Open { path, source } => write!(f, "cannot open {}: {source}", path.display()),
            Self::WrongKind { path, wanted } => write!(
                f,
                "{} is not {wanted}; move it away and it will be made anew",
                path.display()
            ),
            Self::Owner { path, owner, us } => write!(
                f,
                "{} belongs to user {owner}, not to {us}; remove it or give it to user {us}",
                path.display()
            ),
            Self::Exposed { path, mode, source } => write!(
                f,
                "others may write to {} (mode {mode:04o}) and that cannot be changed: {source}",
                path.display()
            ),
            Self::Identity { source } => write!(
                f,
                "cannot find out the own user id from /proc/self: {source}; is /proc mounted?"
            ),
            Self::Write {
                path,
                written,
                length,
                source,
            } => write!(
                f,
                "cannot record to {}: {source} ({written} of {length} bytes written)",
                path.display()
            ),
            Self::Read { path, source } => write!(f, "cannot read {}: {source}", path.display()),
            Self::TooLong { length } => write!(
                f,
                "cannot record an event of {length} bytes; the limit is {} bytes",
                crate::MAX_LINE
            ),
            Self::KeyDamaged { path } => write!(
                f,
                "{} does not hold a key of 32 bytes; remove it, and older spans can no longer be replayed",
                path.display()
            ),
            Self::Random { source } => {
                write!(f, "cannot read random bytes from /dev/urandom: {source}")
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Home { source, .. }
            | Self::Open { source, .. }
            | Self::Exposed { source, .. }
            | Self::Identity { source }
            | Self::Write { source, .. }
            | Self::Read { source, .. }
            | Self::Random { source } => Some(source),
            Self::WrongKind { .. }
            | Self::Owner { .. }
            | Self::TooLong { .. }
            | Self::KeyDamaged { .. } => None,
        }
    }
}
