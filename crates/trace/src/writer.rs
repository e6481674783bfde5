//! The trace file: one `write` for each event, safe beside any number of other writers.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::files::{open_private, private_dir};
use crate::redact::Redactor;
use crate::rotate::{self, Retention};
use crate::{Error, Event, Key};

/// Appends events to the trace of one home.
#[derive(Debug)]
pub struct Writer {
    home: PathBuf,
    path: PathBuf,
    retention: Retention,
    redactor: Redactor,
    key: OnceLock<Result<Key, Error>>,
    open: Mutex<Open>,
}

/// The file that was current when it was opened.
#[derive(Debug)]
struct Open {
    file: File,
    id: (u64, u64),
    /// Its size, when it was opened just now and nothing was written since.
    fresh: Option<u64>,
}

impl Writer {
    /// Opens the trace of a home, which is made if need be.
    pub fn open(home: &Path) -> Result<Self, Error> {
        Self::open_with(home, Retention::default(), Redactor::default())
    }

    /// Opens the trace with limits and further patterns to redact.
    pub fn open_with(home: &Path, retention: Retention, redactor: Redactor) -> Result<Self, Error> {
        private_dir(home)?;
        let path = home.join(rotate::CURRENT);
        Ok(Self {
            open: Mutex::new(Open::new(&path)?),
            home: home.to_owned(),
            path,
            retention,
            redactor,
            key: OnceLock::new(),
        })
    }

    /// The key of this home. Without it events are recorded all the same, but their
    /// spans cannot be replayed.
    pub fn key(&self) -> Result<&Key, &Error> {
        self.key.get_or_init(|| Key::load(&self.home)).as_ref()
    }

    /// What takes secrets out of the events.
    pub fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// Appends one event; when this returns `Ok`, the whole line is in the file.
    pub fn write(&self, event: &Event<'_>) -> Result<(), Error> {
        let key = event.is_signed().then(|| self.key().ok()).flatten();
        let line = event.line(&self.redactor, key)?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut size = match open.fresh.take() {
                Some(size) => size,
                None => open.follow(&self.path)?,
            };
            if size > 0 && size + line.len() as u64 > self.retention.max_bytes {
                rotate::rotate(&self.path, open.id, self.retention);
                size = open.follow(&self.path)?;
            }
            open.append(&self.path, &line, size)?;
            // Retention may have removed the file in between; then the line went with it.
            if open.file.metadata().map_or(1, |found| found.nlink()) > 0 {
                return Ok(());
            }
        }
    }
}

impl Open {
    fn new(path: &Path) -> Result<Self, Error> {
        let mut options = OpenOptions::new();
        let (file, found) = open_private(path, options.read(true).append(true).create(true))?;
        Ok(Self {
            file,
            id: (found.dev(), found.ino()),
            fresh: Some(found.len()),
        })
    }

    /// Opens the current file if this is no longer it; gives the current one's size.
    fn follow(&mut self, path: &Path) -> Result<u64, Error> {
        match std::fs::symlink_metadata(path) {
            Ok(found) if (found.dev(), found.ino()) == self.id => Ok(found.len()),
            _ => {
                *self = Self::new(path)?;
                Ok(self.fresh.take().unwrap_or_default())
            }
        }
    }

    fn size(&self) -> u64 {
        self.file.metadata().map_or(0, |found| found.len())
    }

    /// Writes the line in one piece, which the kernel keeps whole beside other
    /// writers. Behind a torn line a newline comes first, so that only the torn
    /// one is lost.
    fn append(&mut self, path: &Path, line: &[u8], size: u64) -> Result<(), Error> {
        let torn = self.ends_torn(size);
        let glued;
        let piece = if torn {
            glued = [b"\n", line].concat();
            &glued
        } else {
            line
        };
        let failed = |written, source| Error::Write {
            path: path.to_owned(),
            written,
            length: piece.len(),
            source,
        };
        let written = loop {
            match self.file.write(piece) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(0, error)),
                Ok(written) => break written,
            }
        };
        if written == piece.len() {
            return Ok(());
        }
        // The rest may not follow: others write in between. What is there becomes a
        // line of its own; if even that fails, the next writer sees the torn end.
        let source = match self.file.write(b"\n") {
            Ok(_) => io::Error::new(ErrorKind::WriteZero, "the write was cut short"),
            Err(error) => error,
        };
        Err(failed(written, source))
    }

    /// Whether the file ends in the middle of a line that nobody is writing any more.
    /// A long line grows visibly while it is written; changing the mode takes the same
    /// lock as writing, so it returns only when a write seen half done is over.
    fn ends_torn(&self, mut size: u64) -> bool {
        let mut before = None;
        loop {
            let Some(last) = size.checked_sub(1) else {
                return false;
            };
            let mut byte = [0];
            // A file that just shrank, or cannot be read, is treated as whole.
            let read = self.file.read_at(&mut byte, last).unwrap_or(0);
            if read == 0 || byte[0] == b'\n' {
                return false;
            }
            if before == Some(size) {
                return true;
            }
            before = Some(size);
            let _ = self.file.set_permissions(Permissions::from_mode(0o600));
            size = self.size();
        }
    }
}
