//! What a world had changed when it finished, and against which state of the host.
//!
//! An overlay does not note what the lower file was when it was copied up, so two rules find
//! out whether the host changed meanwhile. While the world ran: a host file whose `ctime` is
//! later than the world's creation was changed. After it finished: the stamp (inode, length,
//! `mtime`, `ctime`) recorded here no longer fits. And what was not recorded as changed is not
//! the world's doing, even if the copy in the upper directory differs from the host by now.

use crate::change::Conflict;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::change::{Change, ChangeKind};
use crate::entry::{Entry, Moment, NodeKind};
use crate::pending::{Meta, Pending, PendingError, io_error};
use crate::root::RootKind;
use substrate_text::wire;

const RECORD: &str = "changes.jsonl";

/// The state of a host name when the world finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    kind: NodeKind,
    dev: u64,
    ino: u64,
    size: u64,
    mode: u32,
    mtime: Moment,
    ctime: Moment,
}

impl From<&Entry> for Stamp {
    fn from(e: &Entry) -> Self {
        Self {
            kind: e.kind,
            dev: e.dev,
            ino: e.ino,
            size: e.size,
            mode: e.mode,
            mtime: e.mtime,
            ctime: e.ctime,
        }
    }
}

impl Stamp {
    /// Whether the name still is what it was. A directory's times change with every name in
    /// it, and those are looked at one by one.
    fn fits(&self, now: &Entry) -> bool {
        if self.kind == NodeKind::Dir {
            return (self.kind, self.dev, self.ino, self.mode)
                == (now.kind, now.dev, now.ino, now.mode);
        }
        *self == Self::from(now)
    }
}

/// One line of the record.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    #[serde(rename = "r")]
    root: usize,
    #[serde(rename = "p", with = "wire")]
    path: PathBuf,
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    old: Option<Stamp>,
    /// The host changed it while the world ran.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    raced: bool,
}

/// Writes the record while the changes pass by, in order.
pub(crate) struct Recorder {
    /// Made with the first change: where nothing changed there is nothing to keep a record for.
    out: Option<BufWriter<File>>,
    temp: PathBuf,
    path: PathBuf,
    created: Moment,
    fine: bool,
    /// What was recorded before somebody looked around in the result, and since when he did.
    earlier: Option<(Record, Moment)>,
}

impl Recorder {
    pub(crate) fn new(pending: &Pending) -> Result<Self, PendingError> {
        let path = pending.dir().join(RECORD);
        let temp = path.with_extension("tmp");
        let earlier = match pending.meta().explored {
            Some(since) => Some((Record::open(pending)?, since)),
            None => None,
        };
        let mut recorder = Self {
            out: None,
            temp,
            path,
            created: pending.meta().created,
            fine: pending.meta().fine,
            earlier: earlier.filter(|(record, _)| record.lines.is_some()),
        };
        let mut roots = pending.meta().roots.iter();
        if pending.meta().explored.is_some() || roots.any(|root| root.kind == RootKind::Copy) {
            // An older record is replaced, and a copy differs as soon as the host changes.
            recorder.out()?;
        }
        Ok(recorder)
    }

    fn out(&mut self) -> Result<&mut BufWriter<File>, PendingError> {
        if self.out.is_none() {
            let file = File::create(&self.temp).map_err(io_error("write", &self.temp))?;
            self.out = Some(BufWriter::new(file));
        }
        self.out
            .as_mut()
            .ok_or_else(|| io_error("write", &self.temp)(std::io::ErrorKind::NotFound.into()))
    }

    /// Takes a change down; says whether it is the world's doing. What was known before keeps
    /// its line, so that the state of the host then stays the one to compare with.
    pub(crate) fn note(&mut self, root: usize, change: &Change) -> Result<bool, PendingError> {
        if let Some((record, since)) = &mut self.earlier {
            if let Some(line) = record.line_of(root, &change.path)? {
                self.put(&line)?;
                return Ok(true);
            }
            let since = *since;
            if change.new.is_some_and(|new| new.ctime < since) {
                return Ok(false);
            }
        }
        let line = Line {
            root,
            path: change.path.clone(),
            old: change.old.as_ref().map(Stamp::from),
            raced: raced(self.created, self.fine, change.old.as_ref()),
        };
        self.put(&line)?;
        Ok(true)
    }

    fn put(&mut self, line: &Line) -> Result<(), PendingError> {
        let out = self.out()?;
        serde_json::to_writer(&mut *out, line)
            .map_err(std::io::Error::from)
            .and_then(|()| out.write_all(b"\n"))
            .map_err(io_error("write", &self.temp))
    }

    pub(crate) fn close(self) -> Result<(), PendingError> {
        let Some(mut out) = self.out else {
            return Ok(());
        };
        out.flush().map_err(io_error("write", &self.temp))?;
        fs::rename(&self.temp, &self.path).map_err(io_error("replace", &self.path))
    }
}

/// Whether the host changed a name after the world was made. Directories change with what is
/// in them and are not judged by their times.
fn raced(created: Moment, fine: bool, old: Option<&Entry>) -> bool {
    old.is_some_and(|old| !old.is_dir() && (old.ctime > created || fine && old.ctime == created))
}

/// Reads the record alongside a walk that meets the same paths in the same order.
pub(crate) struct Record {
    lines: Option<std::io::Lines<BufReader<File>>>,
    path: PathBuf,
    next: Option<Line>,
    created: Moment,
    fine: bool,
    /// Directories above the current path that the host lost, until they are handed on.
    lost: Vec<(usize, PathBuf, Option<Change>)>,
    /// The last directory that the world removed as a whole.
    removed: Option<(usize, PathBuf)>,
}

impl Record {
    pub(crate) fn open(pending: &Pending) -> Result<Self, PendingError> {
        let path = pending.dir().join(RECORD);
        let lines = match File::open(&path) {
            Ok(file) => Some(BufReader::new(file).lines()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
            Err(e) => return Err(io_error("read", &path)(e)),
        };
        let Meta { created, fine, .. } = *pending.meta();
        let mut record = Self {
            lines,
            path,
            next: None,
            created,
            fine,
            lost: Vec::new(),
            removed: None,
        };
        record.advance()?;
        Ok(record)
    }

    /// Whether there is one that is up to date.
    pub(crate) fn exists(pending: &Pending) -> bool {
        pending.meta().explored.is_none() && pending.dir().join(RECORD).exists()
    }

    /// The line of this path, if it has one; paths must be asked for in order.
    fn line_of(&mut self, root: usize, path: &Path) -> Result<Option<Line>, PendingError> {
        self.skip_to(root, path)?;
        let found = |next: &Line| (next.root, next.path.as_path()) == (root, path);
        Ok(self.next.take_if(|next| found(next)))
    }

    /// Goes on to the first line that is not before this path.
    fn skip_to(&mut self, root: usize, path: &Path) -> Result<(), PendingError> {
        let before = |next: &Line| (next.root, next.path.as_path()) < (root, path);
        while self.lines.is_some() && self.next.as_ref().is_none_or(before) {
            if !self.advance()? {
                break;
            }
        }
        Ok(())
    }

    /// Whether the world removed a directory above this path.
    fn goes(&self, root: usize, path: &Path) -> bool {
        let above = |(r, dir): &(usize, PathBuf)| *r == root && path.starts_with(dir);
        self.removed.as_ref().is_some_and(above)
    }

    /// Reads the next line; says whether there was one.
    fn advance(&mut self) -> Result<bool, PendingError> {
        self.next = None;
        let Some(line) = self.lines.as_mut().and_then(Iterator::next) else {
            return Ok(false);
        };
        let text = line.map_err(io_error("read", &self.path))?;
        let line = serde_json::from_str(&text).map_err(|e| PendingError::Damaged {
            path: self.path.clone(),
            reason: e.to_string(),
        })?;
        self.next = Some(line);
        Ok(true)
    }

    /// Hands on the changes that are the world's, each with its conflict.
    pub(crate) fn judge(
        &mut self,
        root: usize,
        change: Change,
        sink: &mut dyn FnMut(usize, Change, Option<Conflict>),
    ) -> Result<(), PendingError> {
        if self.lines.is_none() {
            let conflict = raced(self.created, self.fine, change.old.as_ref())
                .then_some(Conflict::ChangedMeanwhile);
            sink(root, change, conflict);
            return Ok(());
        }
        let key = (root, change.path.as_path());
        self.skip_to(key.0, key.1)?;
        let line = self
            .next
            .as_ref()
            .filter(|n| (n.root, n.path.as_path()) == key);
        self.lost
            .retain(|(r, dir, _)| *r == root && change.path.starts_with(dir));
        let Some(line) = line else {
            match change.kind {
                // New on the host; it is only in the way where its directory goes.
                ChangeKind::Deleted if self.goes(root, &change.path) => {
                    sink(root, change, Some(Conflict::AppearedSince));
                }
                ChangeKind::Created | ChangeKind::TypeChanged if change.is_dir() => {
                    self.lost.push((root, change.path.clone(), Some(change)));
                }
                ChangeKind::Same => sink(root, change, None),
                _ => {}
            }
            return Ok(());
        };
        let conflict = match (&line.old, &change.old) {
            _ if line.raced => Some(Conflict::ChangedMeanwhile),
            (None, None) => None,
            (Some(then), Some(now)) if then.fits(now) => None,
            (Some(_), Some(_)) => Some(Conflict::ChangedSince),
            (None, Some(_)) => Some(Conflict::AppearedSince),
            (Some(_), None) => Some(Conflict::VanishedSince),
        };
        for (root, _, dir) in &mut self.lost {
            if let Some(dir) = dir.take() {
                sink(*root, dir, Some(Conflict::VanishedSince));
            }
        }
        if change.old.is_some_and(|e| e.is_dir())
            && matches!(change.kind, ChangeKind::Deleted | ChangeKind::TypeChanged)
            && !self.goes(root, &change.path)
        {
            self.removed = Some((root, change.path.clone()));
        }
        let conflict = conflict.or((!self.lost.is_empty()).then_some(Conflict::ParentGone));
        sink(root, change, conflict);
        Ok(())
    }
}

/// Answers, for a name that was put back, what it is now and whether its conflict remains.
type Fresh<'a> = dyn FnMut(usize, &Path) -> Option<(Option<Entry>, bool)> + 'a;

/// Notes the present state of the names that an undo has put back, so that they do not count
/// as changed by the host.
pub(crate) fn restamp(pending: &Pending, fresh: &mut Fresh<'_>) -> Result<(), PendingError> {
    let mut record = Record::open(pending)?;
    let mut out = Recorder::new(pending)?;
    while let Some(mut line) = record.next.take() {
        if let Some((now, conflict)) = fresh(line.root, &line.path) {
            line.old = now.as_ref().map(Stamp::from);
            line.raced = conflict;
        }
        out.put(&line)?;
        record.advance()?;
    }
    out.close()
}
