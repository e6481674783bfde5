//! Looking at files ahead of a walk, on the processors that it does not use: in a large project
//! nearly all the time goes into asking the kernel about one file after the other.

use std::ffi::OsStr;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use substrate_sys::{at, identity};

use crate::stat_cache::{Cursor, Known, Stamp};

/// The cache is gone through in pieces of so many bytes: some hundred files.
const PIECE: usize = 16 << 10;

/// More threads would only wait for each other.
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

/// Where the walk is, and how many pieces from the front nobody has taken. Helpers take pieces from
/// the back; where both meet, at worst one piece is looked at twice.
#[derive(Default)]
pub(crate) struct Meeting {
    walk: AtomicUsize,
    untaken: AtomicUsize,
}

/// Answers, in the order of the cache, which files are as it has them.
pub(crate) struct Ahead<'scope> {
    meeting: &'scope Meeting,
    helpers: Vec<ScopedJoinHandle<'scope, Vec<usize>>>,
    /// Where the records of files that are as they were begin, and how many of these were passed.
    same: Vec<usize>,
    passed: usize,
}

impl<'scope> Ahead<'scope> {
    /// Starts to look at the cache from its end, while the walk begins at its start.
    pub fn start<'env: 'scope>(
        scope: &'scope Scope<'scope, 'env>,
        meeting: &'env Meeting,
        view: View<'env>,
    ) -> Self {
        let pieces = view.cache.len().div_ceil(PIECE);
        meeting.untaken.store(pieces, Ordering::Relaxed);
        let threads = match pieces / 2 {
            0 | 1 => 1,
            worth => identity::processors().min(worth).min(MOST),
        };
        let helper = |_| {
            let builder = std::thread::Builder::new().stack_size(128 << 10);
            let look = move || look(view, meeting);
            builder.spawn_scoped(scope, look).ok()
        };
        Self {
            meeting,
            helpers: (1..threads).filter_map(helper).collect(),
            same: Vec::new(),
            passed: 0,
        }
    }

    /// Whether the file whose record begins here is known to be as it was. Asked in the order of the
    /// cache.
    pub fn is_same(&mut self, record: usize) -> bool {
        self.meeting.walk.store(record, Ordering::Relaxed);
        if !self.helpers.is_empty()
            && record / PIECE >= self.meeting.untaken.load(Ordering::Relaxed)
        {
            let found = self.helpers.drain(..).map(ScopedJoinHandle::join);
            self.same = found.flatten().flatten().collect();
            self.same.sort_unstable();
        }
        let before = self.same[self.passed..]
            .iter()
            .take_while(|at| **at < record);
        self.passed += before.count();
        self.same.get(self.passed) == Some(&record)
    }
}

impl Drop for Ahead<'_> {
    fn drop(&mut self) {
        // Whoever still looks need not go on.
        self.meeting.untaken.store(0, Ordering::Relaxed);
    }
}

/// The records whose files are as they say, of the pieces that the walk has not come to. Whether a
/// record still counts, because its directory does, is for the walk to find out.
fn look(view: View<'_>, meeting: &Meeting) -> Vec<usize> {
    let mut same = Vec::new();
    // Where the first record of each piece begins.
    let mut starts: Vec<usize> = Vec::new();
    let mut cursor = Cursor::new(view.cache);
    while let Some(known) = cursor.next() {
        while starts.len() <= known.range.start / PIECE {
            starts.push(known.range.start);
        }
    }
    while Instant::now() < view.deadline {
        let less = |untaken: usize| untaken.checked_sub(1);
        let taken = meeting
            .untaken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let Ok(piece) = taken.map(|untaken| untaken - 1) else {
            break;
        };
        if meeting.walk.load(Ordering::Relaxed) / PIECE >= piece {
            break;
        }
        if let Some(start) = starts.get(piece) {
            look_at(view, *start, (piece + 1) * PIECE, &mut same);
        }
    }
    same
}

/// Adds the records from one place to another whose files are as they say.
fn look_at(view: View<'_>, start: usize, end: usize, same: &mut Vec<usize>) {
    let mut next = Known::parse(view.cache, start);
    let mut open: Option<(&[u8], _)> = None;
    while let Some(known) = next.take_if(|known| known.range.start < end) {
        next = Known::parse(view.cache, known.range.end);
        if known.stamp.is_dir() || known.stamp.changed >= view.settled {
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
            same.push(known.range.start);
        }
    }
}
