//! Compares what a world left with the host, name by name, and reports every difference once,
//! in the order of the paths.
//!
//! Two ways down: where an overlay's upper directory *merges* with the lower one, a missing
//! name means unchanged; where it is opaque, or is a copy, both sides are compared in *full*
//! and a missing name means deleted.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use substrate_sys::getdents::{self, EntryType};
use substrate_sys::{access, at};

use crate::change::{Change, ChangeKind, Fields, WalkError, owner_differs};
use crate::compare::{Batch, Item, Task, Work, attributes_differ};
use crate::entry::{Entry, Moment, is_absent, is_whiteout, own_attributes};
use crate::manifest::Manifest;
use crate::root::{Root, RootKind};
use crate::trail::Trail;
use crate::work_queue::WorkQueue;

/// Differences that are worked out together.
const BATCH: usize = 128;
/// Directories whose handles a batch may hold.
const BATCH_DIRS: usize = 8;
/// Batches that another thread may be ahead of what is handed on.
const AHEAD: usize = 7;
/// Fewer names than this are not worth another thread.
const WORTH_A_THREAD: usize = 48;
/// From this many names on, the lower directory is read as a whole.
const WORTH_LISTING: usize = 16;

/// How a walk goes about it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options<'a> {
    /// Whether digests are wanted; looked at before every batch.
    pub hash: Option<&'a std::cell::Cell<bool>>,
    /// Also report unchanged names of files with several names.
    pub same_links: bool,
}

/// Reports every difference of one root.
pub(crate) fn walk<E: From<WalkError>>(
    root: &Root,
    options: Options<'_>,
    sink: &mut dyn FnMut(Change) -> Result<(), E>,
) -> Result<(), E> {
    let mut walker = Walker::new(root, options)?;
    let ahead = WorkQueue::new(Batch::work);
    std::thread::scope(|scope| {
        let (mut helper, mut work) = (None, 0);
        loop {
            let more = walker.fill()?;
            work += walker.work();
            if helper.is_none() && work >= WORTH_A_THREAD {
                helper = Some(ahead.begin(scope));
            }
            ahead.add(walker.take_batch());
            // Going up closes some directories again, so nothing in them may be left undone.
            let left = if more && !walker.closes { AHEAD } else { 0 };
            while ahead.len() > left
                && let Some(batch) = ahead.take()
            {
                hand_on(batch, sink)?;
            }
            if !more {
                return Ok(());
            }
        }
    })
}

fn hand_on<E: From<WalkError>>(
    batch: Batch,
    sink: &mut dyn FnMut(Change) -> Result<(), E>,
) -> Result<(), E> {
    batch.result?;
    for item in batch.items {
        if !matches!(item.work, Work::Drop) {
            sink(item.change)?;
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Merge,
    Full,
}

struct Frame {
    names: std::vec::IntoIter<Name>,
    way: Way,
    upper: bool,
    lower: bool,
}

struct Name {
    name: OsString,
    /// What the upper directory says it is; nothing if it is not there.
    upper: Option<EntryType>,
    /// What the lower directory says it is, if it was read: nothing if it is not there.
    lower: Option<Option<EntryType>>,
}

struct Walker<'a> {
    options: Options<'a>,
    overlay: bool,
    /// For copies: what was last changed before this moment was not touched by the world.
    since: Option<Moment>,
    /// For copies: whom they belong to.
    copier: Option<(u32, u32)>,
    /// For copies: the names that the world had before it.
    had: Option<Manifest>,
    shown: Arc<Path>,
    upper: Trail,
    lower: Trail,
    path: PathBuf,
    frames: Vec<Frame>,
    batch: Vec<Item>,
    dirs: usize,
    /// The next step up closes a directory again.
    closes: bool,
}

impl<'a> Walker<'a> {
    fn new(root: &Root, options: Options<'a>) -> Result<Self, WalkError> {
        let open = |path: &Path| {
            Trail::open(path).map_err(|source| WalkError::Io {
                step: "open",
                path: path.to_owned(),
                source,
            })
        };
        let single = root.single;
        let parent = |path: &Path| path.parent().unwrap_or(Path::new("/")).to_owned();
        let (upper, lower) = if single {
            (open(&parent(&root.upper))?, open(&parent(&root.target))?)
        } else {
            (open(&root.upper)?, open(&root.target)?)
        };
        let had = match root.kind {
            RootKind::Copy if !single => Manifest::read(root).map_err(|source| WalkError::Io {
                step: "read the names of",
                path: root.upper.clone(),
                source,
            })?,
            _ => None,
        };
        let mut walker = Self {
            options,
            had,
            overlay: root.kind == RootKind::Overlay,
            copier: (root.kind == RootKind::Copy).then(access::identity),
            since: root.copied.filter(|_| root.kind == RootKind::Copy),
            shown: if single {
                parent(&root.target).into()
            } else {
                root.target.as_path().into()
            },
            upper,
            lower,
            path: PathBuf::new(),
            frames: Vec::new(),
            batch: Vec::new(),
            dirs: 0,
            closes: false,
        };
        let merge = walker.overlay || single;
        walker.top(single, if merge { Way::Merge } else { Way::Full })?;
        Ok(walker)
    }

    /// The root itself, whose own metadata may have changed too.
    fn top(&mut self, single: bool, way: Way) -> Result<(), WalkError> {
        let (upper, lower) = (
            self.at("open", |w| w.upper.here())?,
            self.at("open", |w| w.lower.here())?,
        );
        let look = |fd: &Arc<OwnedFd>| Entry::look(fd, "");
        let new = self.at("look at", |_| look(&upper))?;
        let old = self.at("look at", |_| look(&lower))?;
        let (Some(new), Some(old)) = (new, old) else {
            return Ok(());
        };
        if !single {
            self.directory_pair(&upper, &lower, OsStr::new(""), new, old, way)?;
        } else {
            self.push_frame(way)?;
        }
        Ok(())
    }

    /// Goes on until there is enough for a batch, or one has to be done before it goes on; says whether
    /// there is more.
    fn fill(&mut self) -> Result<bool, WalkError> {
        while let Some(frame) = self.frames.last_mut() {
            if let Some(name) = frame.names.next() {
                self.path.push(&name.name);
                if !self.visit(&name)? {
                    self.path.pop();
                }
            } else {
                let (upper, lower) = (frame.upper, frame.lower);
                if upper && self.upper.is_forced() && !self.closes {
                    self.closes = true;
                    return Ok(true);
                }
                self.closes = false;
                self.frames.pop();
                // The frame of the root stands on the roots of both trails.
                if !self.frames.is_empty() {
                    if upper {
                        self.upper.leave();
                    }
                    if lower {
                        self.lower.leave();
                    }
                    self.path.pop();
                }
            }
            if self.batch.len() >= BATCH || self.dirs >= BATCH_DIRS {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Looks at one name; says whether it went down into it.
    fn visit(&mut self, name: &Name) -> Result<bool, WalkError> {
        let Some(frame) = self.frames.last() else {
            return Ok(false);
        };
        let (way, has_upper, has_lower) = (frame.way, frame.upper, frame.lower);
        let file = name.name.as_os_str();
        if has_upper && name.upper == Some(EntryType::File) {
            let lower = match name.lower {
                _ if !has_lower => Some(None),
                Some(None) => Some(None),
                Some(Some(EntryType::File)) => Some(Some(self.at("open", |w| w.lower.here())?)),
                _ => None,
            };
            if let Some(lower) = lower {
                // Nothing to go down into, so the other thread can do all of it.
                let upper = self.at("open", |w| w.upper.here())?;
                let work = Work::Files(upper, lower, file.to_owned());
                self.found(ChangeKind::Modified, None, None, work);
                return Ok(false);
            }
        }
        let mut new = None;
        let mut upper = None;
        if has_upper && name.upper.is_some() {
            let here = self.at("open", |w| w.upper.here())?;
            let stat = self.at("look at", |_| optional(at::stat(&here, file)))?;
            new = stat
                .filter(|s| !(self.overlay && is_whiteout(s)))
                .map(|s| Entry::from(&s));
            upper = Some(here);
        }
        let mut old = None;
        let mut lower = None;
        if has_lower {
            let here = self.at("open", |w| w.lower.here())?;
            old = self.at("look at", |_| Entry::look(&here, file))?;
            lower = Some(here);
        }
        let untouched = |e: &Entry| self.since.is_some_and(|since| e.ctime < since);
        match (new, old) {
            (None, None) => Ok(false),
            (None, Some(old)) => {
                // Below what the world deleted, everything goes with it, or is a conflict.
                let known = |had: &Manifest| !has_upper || had.has(&self.path);
                if !self.had.as_ref().is_none_or(known) {
                    return Ok(false);
                }
                self.found(ChangeKind::Deleted, Some(old), None, Work::Done);
                if !old.is_dir() {
                    return Ok(false);
                }
                self.descend(file, Way::Full, None, Some(&old))
            }
            (Some(new), None) => {
                if !untouched(&new) {
                    self.created(ChangeKind::Created, new, None, upper, file);
                }
                if !new.is_dir() {
                    return Ok(false);
                }
                self.descend(file, Way::Full, Some(&new), None)
            }
            (Some(new), Some(old)) if new.kind != old.kind => {
                if !untouched(&new) {
                    self.created(ChangeKind::TypeChanged, new, Some(old), upper, file);
                } else if !new.is_dir() {
                    return Ok(false);
                }
                let (new, old) = (
                    Some(&new).filter(|e| e.is_dir()),
                    Some(&old).filter(|e| e.is_dir()),
                );
                if new.is_none() && old.is_none() {
                    return Ok(false);
                }
                self.descend(file, Way::Full, new, old)
            }
            (Some(new), Some(old)) => {
                let (Some(upper), Some(lower)) = (upper, lower) else {
                    return Ok(false);
                };
                if new.is_dir() {
                    return self.directory_pair(&upper, &lower, file, new, old, way);
                }
                if !untouched(&new) {
                    let work = Work::Compare(upper, lower, file.to_owned());
                    self.found(ChangeKind::Modified, Some(old), Some(new), work);
                }
                Ok(false)
            }
        }
    }

    fn directory_pair(
        &mut self,
        upper: &Arc<OwnedFd>,
        lower: &Arc<OwnedFd>,
        name: &OsStr,
        new: Entry,
        old: Entry,
        way: Way,
    ) -> Result<bool, WalkError> {
        let (own, marks) = self.at("read the attributes of", |w| {
            own_attributes(upper, name, w.overlay, new.mode)
        })?;
        for (set, option) in [
            (marks.redirect, "redirect_dir"),
            (marks.metacopy, "metacopy"),
        ] {
            if set {
                let path = self.shown.join(&self.path);
                return Err(WalkError::Foreign { path, option });
            }
        }
        if self.since.is_none_or(|since| new.ctime >= since) {
            let attributes = self.at("read the attributes of", |_| {
                attributes_differ(lower, name, &own)
            })?;
            // A directory's times change with every name in it, so they say nothing.
            let fields = Fields {
                mode: new.mode != old.mode,
                owner: owner_differs(&new, &old, self.copier),
                attributes,
                ..Fields::default()
            };
            if fields.any() {
                self.found(ChangeKind::Meta, Some(old), Some(new), Work::Done);
                if let Some(item) = self.batch.last_mut() {
                    item.change.fields = fields;
                }
            }
        }
        let way = if marks.opaque { Way::Full } else { way };
        if name.is_empty() {
            self.push_frame(way)?;
            return Ok(true);
        }
        self.descend(name, way, Some(&new), Some(&old))
    }

    /// Goes down into the sides that are given; says whether it did.
    fn descend(
        &mut self,
        name: &OsStr,
        way: Way,
        new: Option<&Entry>,
        old: Option<&Entry>,
    ) -> Result<bool, WalkError> {
        if let Some(new) = new {
            self.at("open", |w| w.upper.enter_own(name, new.mode))?;
        }
        let mut lower = false;
        if old.is_some() {
            match self.lower.enter(name) {
                Ok(()) => lower = true,
                // What we may not list on the host cannot have been changed through us either.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied || is_absent(&e) => {}
                Err(e) => return Err(self.error("open", e)),
            }
        }
        if new.is_none() && !lower {
            return Ok(false);
        }
        let names = self.names(way, new.is_some(), lower)?;
        self.dirs += 1;
        self.frames.push(Frame {
            names: names.into_iter(),
            way,
            upper: new.is_some(),
            lower,
        });
        Ok(true)
    }

    /// The root, which exists on both sides.
    fn push_frame(&mut self, way: Way) -> Result<(), WalkError> {
        let names = self.names(way, true, true)?;
        self.frames.push(Frame {
            names: names.into_iter(),
            way,
            upper: true,
            lower: true,
        });
        Ok(())
    }

    /// The names to look at where one stands, sorted.
    fn names(&mut self, way: Way, upper: bool, lower: bool) -> Result<Vec<Name>, WalkError> {
        let mut names = Vec::new();
        if upper {
            let found = self.at("list", |w| getdents::read_dir(w.upper.here()?))?;
            names.extend(found.into_iter().map(|(name, kind)| Name {
                name,
                upper: Some(kind),
                lower: None,
            }));
        }
        // Where much changed, one look at the lower directory saves one for each name.
        let full = way == Way::Full || !upper;
        if lower && (full || names.len() >= WORTH_LISTING) {
            let found = self.at("list", |w| getdents::read_dir(w.lower.here()?))?;
            for name in &mut names {
                name.lower = Some(None);
            }
            names.extend(found.into_iter().map(|(name, kind)| Name {
                name,
                upper: None,
                lower: Some(Some(kind)),
            }));
        }
        names.sort_unstable_by(|a, b| {
            (&a.name, b.upper.is_some()).cmp(&(&b.name, a.upper.is_some()))
        });
        names.dedup_by(|later, first| {
            let same = later.name == first.name;
            if same {
                first.lower = later.lower;
            }
            same
        });
        if !full {
            names.retain(|name| name.upper.is_some());
        }
        Ok(names)
    }

    fn created(
        &mut self,
        kind: ChangeKind,
        new: Entry,
        old: Option<Entry>,
        upper: Option<Arc<OwnedFd>>,
        name: &OsStr,
    ) {
        let work = match upper {
            Some(upper) if self.hashes() => Work::Digest(upper, name.to_owned()),
            _ => Work::Done,
        };
        self.found(kind, old, Some(new), work);
    }

    fn found(&mut self, kind: ChangeKind, old: Option<Entry>, new: Option<Entry>, work: Work) {
        self.batch.push(Item {
            change: Change {
                path: self.path.clone(),
                kind,
                old,
                new,
                fields: Fields::default(),
                digest: None,
            },
            work,
        });
    }

    fn hashes(&self) -> bool {
        self.options.hash.is_some_and(std::cell::Cell::get)
    }

    /// How many names of the batch still need a look.
    fn work(&self) -> usize {
        let work = |item: &&Item| !matches!(item.work, Work::Done);
        self.batch.iter().filter(work).count()
    }

    fn take_batch(&mut self) -> Batch {
        self.dirs = 0;
        Batch {
            task: Task {
                overlay: self.overlay,
                hash: self.hashes(),
                since: self.since,
                copier: self.copier,
                same_links: self.options.same_links,
                shown: self.shown.clone(),
            },
            items: std::mem::take(&mut self.batch),
            result: Ok(()),
        }
    }

    fn at<T>(
        &mut self,
        step: &'static str,
        call: impl FnOnce(&mut Self) -> io::Result<T>,
    ) -> Result<T, WalkError> {
        call(self).map_err(|e| self.error(step, e))
    }

    fn error(&self, step: &'static str, source: io::Error) -> WalkError {
        WalkError::Io {
            step,
            path: self.shown.join(&self.path),
            source,
        }
    }
}

fn optional<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(e) if is_absent(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::NodeKind;

    #[test]
    fn a_copy_of_somebody_elses_file_is_not_a_change_of_its_owner() {
        let entry = |uid, gid| Entry {
            kind: NodeKind::File,
            mode: 0o644,
            uid,
            gid,
            size: 0,
            mtime: Moment(0, 0),
            ctime: Moment(0, 0),
            dev: 1,
            ino: 1,
            nlink: 1,
        };
        let (mine, roots) = (entry(1000, 1000), entry(0, 0));
        assert!(!owner_differs(&mine, &roots, Some((1000, 1000))));
        assert!(owner_differs(&entry(1000, 50), &roots, Some((1000, 1000))));
        assert!(
            owner_differs(&mine, &roots, None),
            "an overlay keeps owners"
        );
        assert!(
            owner_differs(&roots, &mine, Some((0, 0))),
            "root's copies too"
        );
        assert!(!owner_differs(&mine, &mine, Some((0, 0))));
    }
}
