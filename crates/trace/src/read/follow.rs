//! New events as they are written.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use memchr::memchr;

use super::filter::{Filter, Sieve};
use super::lines::Line;
use super::{Record, Skipped, examine};
use crate::files::open_plain;
use crate::rotate::{CURRENT, numbers, rotated};
use crate::{Error, MAX_LINE};

/// Reads what is appended to a trace, across rotations.
#[derive(Debug)]
pub struct Follow {
    home: PathBuf,
    sieve: Sieve,
    file: Option<Followed>,
    /// The beginning of a line whose end is not there yet.
    partial: Vec<u8>,
    oversized: bool,
    skipped: Skipped,
}

#[derive(Debug)]
struct Followed {
    path: PathBuf,
    file: File,
    id: (u64, u64),
    offset: u64,
}

impl Follow {
    /// Follows the trace of a home from its present end.
    pub fn from_end(home: &Path, filter: &Filter) -> Result<Self, Error> {
        let mut follow = Self {
            home: home.to_owned(),
            sieve: Sieve::new(filter),
            file: None,
            partial: Vec::new(),
            oversized: false,
            skipped: Skipped::default(),
        };
        follow.file = open(&home.join(CURRENT))?;
        if let Some(followed) = &mut follow.file {
            let found = followed.file.metadata();
            followed.offset = found.map_or(0, |found| found.len());
        }
        Ok(follow)
    }

    /// What could not be understood so far.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    /// The events that were written since the last call; never waits.
    pub fn poll(&mut self) -> Result<Vec<Record>, Error> {
        let mut records = Vec::new();
        self.drain(&mut records)?;
        for newer in self.newer_files()? {
            // What was written before the rename was noticed.
            self.drain(&mut records)?;
            self.file = Some(newer);
            self.partial.clear();
            self.oversized = false;
            self.drain(&mut records)?;
        }
        Ok(records)
    }

    /// The files that came after the one being read, oldest first.
    fn newer_files(&self) -> Result<Vec<Followed>, Error> {
        let current = self.home.join(CURRENT);
        let mut newer = Vec::new();
        let paths = numbers(&self.home)
            .into_iter()
            .map(|number| rotated(&current, number));
        for path in std::iter::once(current.clone()).chain(paths) {
            let Some(found) = open(&path)? else {
                continue;
            };
            match &self.file {
                Some(followed) if followed.id == found.id => {
                    newer.reverse();
                    return Ok(newer);
                }
                _ => newer.push(found),
            }
            // Without a file to go on from, only the current one is new.
            if self.file.is_none() {
                return Ok(newer);
            }
        }
        // The one being read is gone; so go on with the current one.
        newer.truncate(1);
        Ok(newer)
    }

    fn drain(&mut self, records: &mut Vec<Record>) -> Result<(), Error> {
        let Some(followed) = &mut self.file else {
            return Ok(());
        };
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = match followed.file.read_at(&mut buffer, followed.offset) {
                Ok(0) => return Ok(()),
                Ok(read) => read,
                Err(source) => {
                    return Err(Error::Read {
                        path: followed.path.clone(),
                        source,
                    });
                }
            };
            followed.offset += read as u64;
            let mut rest = &buffer[..read];
            while let Some(newline) = memchr(b'\n', rest) {
                self.partial.extend_from_slice(&rest[..newline]);
                rest = &rest[newline + 1..];
                let line = match std::mem::take(&mut self.oversized) {
                    true => Line::Oversized,
                    false => Line::Whole(&self.partial),
                };
                records.extend(examine(&self.sieve, line, &mut self.skipped));
                self.partial.clear();
            }
            self.partial.extend_from_slice(rest);
            if self.partial.len() > MAX_LINE {
                self.oversized = true;
                self.partial.clear();
            }
        }
    }
}

fn open(path: &Path) -> Result<Option<Followed>, Error> {
    match open_plain(path, File::options().read(true)) {
        Ok((file, found)) => Ok(Some(Followed {
            path: path.to_owned(),
            file,
            id: (found.dev(), found.ino()),
            offset: 0,
        })),
        Err(Error::Open { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
