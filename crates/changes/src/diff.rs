//! What a world changed: every change with its standing, and the bounded shape for the trace.

use std::cell::Cell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use substrate_sys::{access, at, openat2};
use substrate_trace::FsDiff;
use substrate_world::error::{Cause, WorldError};
use substrate_world::progress::{OnProgress, Progress, Stage};
use thiserror::Error;

use crate::change::Conflict;
use crate::change::{Change, ChangeKind, WalkError};
use crate::compare::{self, Buffers};
use crate::pending::{Pending, PendingError};
use crate::record::{Record, Recorder};
use crate::root::{Root, RootKind};
use crate::walk::{self, Options};

/// Files that a diff lists one by one.
pub const MAX_FILES: usize = 1000;
/// New directories that a diff lists one by one.
pub const MAX_DIRS: usize = 100;

/// Why a diff could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DiffError {
    /// The trees could not be compared.
    #[error(transparent)]
    Walk(#[from] WalkError),
    /// The result itself is in trouble.
    #[error(transparent)]
    Pending(#[from] PendingError),
    /// The caller ended it.
    #[error("stopped")]
    Stopped,
}

impl From<DiffError> for WorldError {
    fn from(error: DiffError) -> Self {
        WorldError::Held(Cause::new(error))
    }
}

/// One change of a world, with the root that it happened below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Number of the root in the result's description.
    pub root: usize,
    /// The change.
    pub change: Change,
    /// Why it cannot simply be applied.
    pub conflict: Option<Conflict>,
}

/// Where the paths of a root's changes start from on the host.
pub fn base_of(root: &Root) -> &Path {
    if root.single {
        root.target.parent().unwrap_or(&root.target)
    } else {
        &root.target
    }
}

/// The absolute host path of a change.
pub fn host_path(root: &Root, change: &Change) -> PathBuf {
    let base = base_of(root);
    if change.path.as_os_str().is_empty() {
        return base.to_owned();
    }
    base.join(&change.path)
}

/// Looks at what a finished world changed and returns the shape for its span. The first time
/// also records against which state of the host, so call it as soon as the command is done.
/// With `hash`, `tree_hash` is given for short diffs too.
pub fn settle(
    pending: &Pending,
    hash: bool,
    progress: OnProgress<'_>,
) -> Result<FsDiff, DiffError> {
    let hashing = Cell::new(hash);
    let mut summary = Summary::new(pending, &hashing);
    let mut count = Counter::new(Stage::Comparing, None, progress);
    let options = Options {
        hash: Some(&hashing),
        same_links: false,
    };
    if Record::exists(pending) {
        examine(pending, options, &mut count, &mut |found| {
            summary.add(found.root, found.change);
        })?;
        return Ok(summary.finish());
    }
    let mut recorder = Recorder::new(pending)?;
    for (number, root) in pending.meta().roots.iter().enumerate() {
        walk::walk(root, options, &mut |change| -> Result<(), DiffError> {
            if recorder.note(number, &change)? {
                summary.add(number, change);
            }
            count.one()
        })?;
    }
    recorder.close()?;
    Ok(summary.finish())
}

/// Hands on every change of a result that is the world's own doing, in order.
pub fn visit(
    pending: &Pending,
    progress: OnProgress<'_>,
    sink: &mut dyn FnMut(Found),
) -> Result<(), DiffError> {
    let mut count = Counter::new(Stage::Comparing, None, progress);
    examine(pending, Options::default(), &mut count, sink)
}

/// All changes of a result that are the world's own doing, in order.
pub fn changes(pending: &Pending, progress: OnProgress<'_>) -> Result<Vec<Found>, DiffError> {
    let mut all = Vec::new();
    visit(pending, progress, &mut |found| all.push(found))?;
    Ok(all)
}

/// What an apply of a result can come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Everything lies outside what the policy lets be written.
    pub all_held: bool,
    /// Nothing of it is in a place that this process may write.
    pub all_barred: bool,
    /// One of those places.
    pub barred: Option<PathBuf>,
}

/// Looks at what an apply of a result can come to, without trying it.
pub fn outlook(pending: &Pending, progress: OnProgress<'_>) -> Result<Outlook, DiffError> {
    let mut count = Counter::new(Stage::Comparing, None, progress);
    let how = Options {
        hash: None,
        same_links: true,
    };
    let (mut any, mut open, mut writable) = (false, false, false);
    let mut barred = None;
    // Many changes lie in one directory.
    let mut known: Option<(PathBuf, bool)> = None;
    examine(pending, how, &mut count, &mut |found| {
        let root = &pending.meta().roots[found.root];
        let change = &found.change;
        if change.kind == ChangeKind::Same {
            return;
        }
        any = true;
        let path = host_path(root, change);
        open |= !root.holds_change(&path, change);
        if writable {
            return;
        }
        // What is new is made in the nearest directory that is there.
        let directory = path.ancestors().skip(1).find(|above| above.is_dir());
        let directory = directory.unwrap_or(&path).to_owned();
        let may = match &known {
            Some((at, may)) if *at == directory => *may,
            _ => access::writable(&directory),
        };
        writable |= may;
        if !may {
            barred.get_or_insert_with(|| directory.clone());
        }
        known = Some((directory, may));
    })?;
    Ok(Outlook {
        all_held: any && !open,
        all_barred: any && !writable,
        barred,
    })
}

pub(crate) fn examine(
    pending: &Pending,
    options: Options<'_>,
    count: &mut Counter<'_>,
    sink: &mut dyn FnMut(Found),
) -> Result<(), DiffError> {
    if pending.meta().explored.is_some() {
        // Whoever looked around in it did not live to record what he changed.
        ensure_recorded(pending)?;
    }
    let mut record = Record::open(pending)?;
    for (number, root) in pending.meta().roots.iter().enumerate() {
        walk::walk(root, options, &mut |change| -> Result<(), DiffError> {
            record.judge(number, change, &mut |root, change, conflict| {
                sink(Found {
                    root,
                    change,
                    conflict,
                });
            })?;
            count.one()
        })?;
    }
    Ok(())
}

/// Makes sure that a result which no longer runs has its changes recorded.
pub(crate) fn ensure_recorded(pending: &Pending) -> Result<(), DiffError> {
    if !pending.is_running() && !Record::exists(pending) {
        settle(pending, false, &mut |_| true)?;
    }
    Ok(())
}

/// Counts entries and tells now and then.
pub(crate) struct Counter<'a> {
    now: Progress,
    tell: OnProgress<'a>,
}

impl<'a> Counter<'a> {
    const EVERY: u64 = 64;

    pub(crate) fn new(stage: Stage, total: Option<u64>, tell: OnProgress<'a>) -> Self {
        Self {
            now: Progress {
                stage,
                done: 0,
                total,
            },
            tell,
        }
    }

    pub(crate) fn one(&mut self) -> Result<(), DiffError> {
        self.now.done += 1;
        if self.now.done.is_multiple_of(Self::EVERY) && !(self.tell)(self.now) {
            return Err(DiffError::Stopped);
        }
        Ok(())
    }

    /// Goes on counting after what was done before.
    pub(crate) fn after(mut self, done: u64) -> Self {
        self.now.done = done;
        self
    }

    /// Entries done so far.
    pub(crate) fn done(&self) -> u64 {
        self.now.done
    }
}

/// Builds the bounded shape while the changes pass by.
struct Summary<'a> {
    roots: &'a [Root],
    diff: FsDiff,
    files: u64,
    dirs: u64,
    listed: usize,
    hash: Sha256,
    hashing: &'a Cell<bool>,
    /// What was seen before hashing began, in order; never more than can be listed.
    unhashed: Vec<(usize, Change)>,
    buffers: Buffers,
}

impl<'a> Summary<'a> {
    fn new(pending: &'a Pending, hashing: &'a Cell<bool>) -> Self {
        let meta = pending.meta();
        let roots = meta.roots.as_slice();
        let main = roots
            .iter()
            .filter(|r| !r.held && meta.cwd.starts_with(&r.target))
            .max_by_key(|r| r.target.components().count())
            .or_else(|| roots.iter().find(|r| !r.held))
            .or(roots.first());
        let has = |kind| roots.iter().any(|r| r.kind == kind);
        Self {
            roots,
            diff: FsDiff {
                root: main.map(|r| r.target.clone()).unwrap_or_default(),
                strategy: match (has(RootKind::Overlay), has(RootKind::Copy)) {
                    (true, true) => "overlay+copy",
                    (false, true) => "copy",
                    _ => "overlay",
                }
                .to_owned(),
                ..FsDiff::default()
            },
            files: 0,
            dirs: 0,
            listed: 0,
            hash: Sha256::new(),
            hashing,
            unhashed: Vec::new(),
            buffers: Buffers::default(),
        }
    }

    fn add(&mut self, root: usize, change: Change) {
        *if change.is_dir() {
            &mut self.dirs
        } else {
            &mut self.files
        } += 1;
        self.list(root, &change);
        if self.diff.truncated {
            self.hashing.set(true);
        }
        if !self.hashing.get() {
            self.unhashed.push((root, change));
            return;
        }
        for (root, earlier) in std::mem::take(&mut self.unhashed) {
            self.feed(root, &earlier);
        }
        self.feed(root, &change);
    }

    fn list(&mut self, root: usize, change: &Change) {
        let list = match change.kind {
            ChangeKind::Created if change.is_dir() => {
                if self.diff.created_dirs.len() < MAX_DIRS {
                    let path = host_path(&self.roots[root], change);
                    self.diff.created_dirs.push(path);
                } else {
                    self.diff.truncated = true;
                }
                return;
            }
            ChangeKind::Created => &mut self.diff.writes,
            ChangeKind::Modified | ChangeKind::Meta | ChangeKind::TypeChanged => {
                &mut self.diff.mods
            }
            ChangeKind::Deleted => &mut self.diff.deletes,
            ChangeKind::Same => return,
        };
        if self.listed < MAX_FILES {
            list.push(host_path(&self.roots[root], change));
            self.listed += 1;
        } else {
            self.diff.truncated = true;
        }
    }

    /// Takes a change into the hash: what was done to which name, and what is there now, but
    /// neither times nor inode numbers, so that the same work twice gives the same hash.
    fn feed(&mut self, root: usize, change: &Change) {
        let digest = change.digest.or_else(|| self.digest(root, change));
        let path = host_path(&self.roots[root], change);
        let path = path.as_os_str().as_bytes();
        self.hash.update((path.len() as u64).to_le_bytes());
        self.hash.update(path);
        self.hash.update([change.kind as u8]);
        if let Some(new) = &change.new {
            self.hash.update([new.kind as u8]);
            self.hash.update(new.mode.to_le_bytes());
            self.hash.update(new.size.to_le_bytes());
        }
        self.hash.update(digest.unwrap_or_default());
    }

    /// What was found before hashes were wanted is looked up again by its path.
    fn digest(&mut self, root: usize, change: &Change) -> Option<[u8; 32]> {
        let root = &self.roots[root];
        let top = match root.single {
            true => root.upper.parent()?,
            false => root.upper.as_path(),
        };
        let mut read = || -> io::Result<Option<[u8; 32]>> {
            let parent = change.path.parent().unwrap_or(Path::new(""));
            let dir = Arc::new(openat2::dir_beneath(at::open_dir_path(top)?, parent)?);
            let name = change.path.file_name().unwrap_or(OsStr::new(""));
            let overlay = root.kind == RootKind::Overlay;
            compare::digest_of(&dir, name, change.new.as_ref(), overlay, &mut self.buffers)
        };
        read().ok().flatten()
    }

    fn finish(mut self) -> FsDiff {
        if self.hashing.get() {
            let hex = self.hash.finalize();
            let hex: String = hex.iter().map(|byte| format!("{byte:02x}")).collect();
            self.diff.tree_hash = Some(format!("sha256:{hex}"));
        }
        if self.diff.truncated {
            self.diff.summary = Some(format!(
                "{} dirs, {} files (truncated, see tree_hash)",
                self.dirs, self.files
            ));
        }
        self.diff
    }
}
