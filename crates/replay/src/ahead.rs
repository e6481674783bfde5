//! Looking at files ahead of a walk, on the processors that it does not use: in a large project
//! nearly all the time goes into asking the kernel about one file after the other.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use substrate_sys::{at, identity};

use crate::stat_cache::{Cursor, Stamp};

/// A part of a cache for which another thread is worth its start: some two hundred files.
const WORTH: usize = 24 << 10;

/// More would only wait for each other.
const MOST: usize = 4;

/// What a look ahead goes by.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub cache: &'a [u8],
    /// The root of the project.
    pub root: BorrowedFd<'a>,
    /// What was changed later than this may have changed again without a trace.
    pub settled: u64,
    /// When it is not worth going on.
    pub deadline: Instant,
}

/// Answers, in the order of the cache, which files are as it has them.
pub(crate) struct Ahead<'scope> {
    parts: std::vec::IntoIter<Part<'scope>>,
    next: Option<Part<'scope>>,
    /// Where the records of files that are as they were begin, and how many of these were passed.
    same: Vec<usize>,
    passed: usize,
}

struct Part<'scope> {
    start: usize,
    thread: ScopedJoinHandle<'scope, Vec<usize>>,
}

impl<'scope> Ahead<'scope> {
    /// Starts to look at all parts but the first, which is the walk's own.
    pub fn start<'env: 'scope>(scope: &'scope Scope<'scope, 'env>, view: View<'env>) -> Self {
        let length = view.cache.len();
        let count = match (length / WORTH).min(MOST) {
            0 | 1 => 1,
            wanted => identity::processors().min(wanted),
        };
        let range = |number: usize| length * number / count..length * (number + 1) / count;
        let parts = (1..count).filter_map(|number| {
            let range = range(number);
            let start = range.start;
            let builder = std::thread::Builder::new().stack_size(128 << 10);
            let thread = builder
                .spawn_scoped(scope, move || look(view, &range))
                .ok()?;
            Some(Part { start, thread })
        });
        let mut parts = parts.collect::<Vec<_>>().into_iter();
        Self {
            next: parts.next(),
            parts,
            same: Vec::new(),
            passed: 0,
        }
    }

    /// Whether the file whose record begins here is known to be as it was. Asked in the order of the
    /// cache.
    pub fn is_same(&mut self, record: usize) -> bool {
        while let Some(part) = self.next.take_if(|part| part.start <= record) {
            self.same = part.thread.join().unwrap_or_default();
            self.passed = 0;
            self.next = self.parts.next();
        }
        let before = self.same[self.passed..]
            .iter()
            .take_while(|at| **at < record);
        self.passed += before.count();
        self.same.get(self.passed) == Some(&record)
    }
}

/// The records that begin in a part of the cache and whose files are as they say. Whether a record
/// still counts, because its directory does, is for the walk to find out.
fn look(view: View<'_>, part: &Range<usize>) -> Vec<usize> {
    let mut same = Vec::new();
    let mut cursor = Cursor::new(view.cache);
    let mut open: Option<(&[u8], _)> = None;
    while let Some(known) = cursor.next() {
        let at = known.range.start;
        if at >= part.end || (same.len() % 64 == 63 && Instant::now() > view.deadline) {
            break;
        }
        if at < part.start || known.stamp.is_dir() || known.stamp.changed >= view.settled {
            continue;
        }
        let slash = known.path.iter().rposition(|byte| *byte == b'/');
        let (directory, name) = match slash {
            Some(at) => (&known.path[..at], &known.path[at + 1..]),
            None => (&[][..], known.path),
        };
        let stat = if directory.is_empty() {
            at::stat(view.root, OsStr::from_bytes(name))
        } else {
            if open.as_ref().is_none_or(|(path, _)| *path != directory) {
                let found = at::open_dir(view.root, OsStr::from_bytes(directory));
                open = found.ok().map(|found| (directory, found));
            }
            let Some((_, dir)) = &open else { continue };
            at::stat(dir, OsStr::from_bytes(name))
        };
        if stat.is_ok_and(|stat| Stamp::of(&stat) == known.stamp) {
            same.push(at);
        }
    }
    same
}
