//! Reading the trace back: streaming, in bounded memory, over all rotated files.
//!
//! Lines that cannot be understood are skipped and counted. A filter looks at the raw
//! bytes of a line first; only lines that may fit are parsed.

mod filter;
mod find;
mod follow;
mod lines;
mod span;
pub(crate) mod words;

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub use substrate_text::time::parse as parse_time;

use crate::Error;
use crate::files::open_plain;
use crate::rotate::{CURRENT, numbers, rotated};
use filter::Sieve;
pub use filter::{Exit, Filter};
pub use find::{FindError, SpanEvents};
pub use follow::Follow;
use lines::{Backward, Forward, Line};
pub use span::{
    Record, RecordedOutput, RecordedReplay, RecordedStdin, RecordedStream, RecordedTool, Span,
};

/// Which event comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As they were written.
    OldestFirst,
    /// The other way round.
    NewestFirst,
}

/// Lines that were looked at and not understood.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    /// An unfinished last line.
    pub torn: u64,
    /// Lines that are not events.
    pub foreign: u64,
    /// Lines longer than [`crate::MAX_LINE`].
    pub oversized: u64,
}

impl Skipped {
    /// How many lines in all.
    pub fn total(&self) -> u64 {
        self.torn + self.foreign + self.oversized
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "skipped {} unreadable lines of the trace ({} torn, {} foreign, {} too long)",
            self.total(),
            self.torn,
            self.foreign,
            self.oversized
        )
    }
}

/// The files of a trace as they were when it was opened.
#[derive(Debug)]
pub struct Reader {
    /// Newest first.
    files: Vec<TraceFile>,
}

#[derive(Debug)]
struct TraceFile {
    path: PathBuf,
    file: File,
    changed: Option<SystemTime>,
}

impl Reader {
    /// Opens the trace of a home. A home without a trace reads as an empty one.
    pub fn open(home: &Path) -> Result<Self, Error> {
        let current = home.join(CURRENT);
        let newest = numbers(home).last().copied().unwrap_or(0);
        // Newest first and one further than seen: while files are rotated they move
        // that way, so one may be met twice but none is missed.
        let rotated = (1..=newest + 1).map(|number| rotated(&current, number));
        let paths: Vec<PathBuf> = std::iter::once(current.clone()).chain(rotated).collect();
        Self::from_files(&paths)
    }

    /// Reads the given files, newest first; those that do not exist are left out.
    pub fn from_files(paths: &[PathBuf]) -> Result<Self, Error> {
        let mut files = Vec::new();
        let mut seen = Vec::new();
        for path in paths {
            let (file, found) = match open_plain(path, File::options().read(true)) {
                Ok(opened) => opened,
                Err(Error::Open { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            let id = (found.dev(), found.ino());
            if !seen.contains(&id) {
                seen.push(id);
                files.push(TraceFile {
                    path: path.clone(),
                    file,
                    changed: found.modified().ok(),
                });
            }
        }
        Ok(Self { files })
    }

    /// The events that fit the filter.
    pub fn records(&self, order: Order, filter: &Filter) -> Records<'_> {
        let mut files: VecDeque<&TraceFile> = self
            .files
            .iter()
            // Nothing was appended since, so nothing in it is newer.
            .filter(|file| match (filter.since, file.changed) {
                (Some(since), Some(changed)) => changed >= since,
                _ => true,
            })
            .collect();
        if order == Order::OldestFirst {
            files.make_contiguous().reverse();
        }
        Records {
            files,
            order,
            sieve: Sieve::new(filter),
            source: None,
            skipped: Skipped::default(),
        }
    }

    /// The direct children of a span, oldest first.
    pub fn children(&self, span_id: &str) -> Records<'_> {
        let filter = Filter {
            parent: Some(span_id.to_owned()),
            ..Filter::default()
        };
        self.records(Order::OldestFirst, &filter)
    }
}

/// An iteration over events; [`Records::skipped`] tells afterwards what was left out.
#[derive(Debug)]
pub struct Records<'a> {
    files: VecDeque<&'a TraceFile>,
    order: Order,
    sieve: Sieve,
    source: Option<(&'a Path, Source<'a>)>,
    skipped: Skipped,
}

#[derive(Debug)]
enum Source<'a> {
    Forward(Forward<'a>),
    Backward(Backward<'a>),
}

impl Records<'_> {
    /// What could not be understood so far, among the lines that had to be looked at.
    pub fn skipped(&self) -> Skipped {
        self.skipped
    }

    fn step(&mut self) -> Result<Option<Step>, Error> {
        let (path, source) = match &mut self.source {
            Some(source) => source,
            None => {
                let Some(next) = self.files.pop_front() else {
                    return Ok(None);
                };
                let source = match self.order {
                    Order::OldestFirst => Source::Forward(Forward::new(&next.file)),
                    Order::NewestFirst => {
                        Source::Backward(Backward::new(&next.file).map_err(|source| {
                            Error::Read {
                                path: next.path.clone(),
                                source,
                            }
                        })?)
                    }
                };
                self.source.insert((&next.path, source))
            }
        };
        let line = match source {
            Source::Forward(lines) => lines.next_line(),
            Source::Backward(lines) => lines.next_line(),
        };
        let line = line.map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        Ok(Some(match line {
            None => Step::EndOfFile,
            Some(line) => examine(&self.sieve, line, &mut self.skipped)
                .map_or(Step::Nothing, |record| Step::Record(Box::new(record))),
        }))
    }
}

enum Step {
    Record(Box<Record>),
    Nothing,
    EndOfFile,
}

/// The event in a line, if it fits; what cannot be understood is counted.
fn examine(sieve: &Sieve, line: Line<'_>, skipped: &mut Skipped) -> Option<Record> {
    let (bytes, torn) = match line {
        Line::Oversized => {
            skipped.oversized += 1;
            return None;
        }
        Line::Whole(bytes) => (bytes, false),
        Line::Unfinished(bytes) => (bytes, true),
    };
    if bytes.iter().all(u8::is_ascii_whitespace) || !sieve.may_fit(bytes) {
        return None;
    }
    match Record::parse(bytes) {
        Some(record) => sieve.fits(&record.span).then_some(record),
        None if torn => {
            skipped.torn += 1;
            None
        }
        None => {
            skipped.foreign += 1;
            None
        }
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.step() {
                Ok(Some(Step::Record(record))) => return Some(Ok(*record)),
                Ok(Some(Step::Nothing)) => {}
                Ok(Some(Step::EndOfFile)) => self.source = None,
                Ok(None) => return None,
                Err(error) => {
                    // A file that cannot be read does not keep the others from it.
                    self.source = None;
                    return Some(Err(error));
                }
            }
        }
    }
}
