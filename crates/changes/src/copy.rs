//! Copying files and trees with everything that belongs to them: content (shared blocks
//! where possible, holes kept), mode, times, symlinks, hard links, user attributes.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use substrate_sys::{at, bounded, getdents, openat2, reflink};

use crate::entry::{Entry, NodeKind, attributes, is_whiteout, own_attributes, set_attributes};
use crate::trail::Trail;

/// Below this size, reading and writing costs no more than asking for anything better.
const SMALL: u64 = 32 * 1024;

/// What a copy is taken from, and how much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// An overlay's upper directory: whiteouts and the overlay's own attributes stay behind,
    /// and so do setuid and setgid bits.
    Upper,
    /// A copy that a world has worked on: setuid and setgid bits stay behind.
    Worked,
    /// A tree to be kept exactly.
    Exact,
}

/// How far what is copied is brought to the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    /// Not at all.
    No,
    /// Writing it out is begun, so that its blocks are in place before a later rename is: waiting
    /// for thousands of files, or for all that others wrote, would take minutes.
    Begin,
    /// Each file and directory is waited for.
    Each,
}

/// Copies trees, remembering hard links between all files that it has copied.
pub(crate) struct Copier<'a> {
    source: Source,
    /// Which paths are taken along; a directory may be left out while something in it is not.
    keep: &'a dyn Fn(&Path) -> bool,
    /// Called with each entry that was copied; an error ends the copying there.
    copied: &'a mut dyn FnMut(&Path, &Entry) -> io::Result<()>,
    /// What the paths that are copied to start from.
    base: Arc<OwnedFd>,
    /// Where a file with several names was put first.
    links: HashMap<(u64, u64), PathBuf>,
    /// The path that was being copied last, for messages.
    pub(crate) last: PathBuf,
    clone: bool,
    sync: Sync,
    /// Owners that could not be set, which only root may do.
    pub(crate) owners_kept: u64,
}

impl<'a> Copier<'a> {
    pub(crate) fn new(
        source: Source,
        base: Arc<OwnedFd>,
        keep: &'a dyn Fn(&Path) -> bool,
        copied: &'a mut dyn FnMut(&Path, &Entry) -> io::Result<()>,
    ) -> Self {
        Self {
            source,
            base,
            last: PathBuf::new(),
            keep,
            copied,
            links: HashMap::new(),
            clone: true,
            sync: Sync::No,
            owners_kept: 0,
        }
    }

    /// Also brings what it writes to the disk.
    pub(crate) fn synced(mut self, sync: Sync) -> Self {
        self.sync = sync;
        self
    }

    /// Says that a file with several names already lies there, below the base.
    pub(crate) fn known_link(&mut self, entry: &Entry, path: PathBuf) {
        self.links.insert((entry.dev, entry.ino), path);
    }

    /// Copies one name and everything below it to a path below the base. `path` is what
    /// `keep` and `copied` get to see.
    pub(crate) fn copy(
        &mut self,
        from: &Arc<OwnedFd>,
        name: &OsStr,
        to: &Path,
        path: &Path,
    ) -> io::Result<()> {
        self.last = path.to_owned();
        let (Some(parent), Some(new_name)) = (to.parent(), to.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let stat = at::stat(from, name)?;
        let entry = Entry::from(&stat);
        if self.source == Source::Upper && is_whiteout(&stat) {
            return Ok(());
        }
        let target = Arc::new(openat2::dir_beneath(&self.base, parent)?);
        if !entry.is_dir() {
            return self.leaf(from, name, &entry, &target, to);
        }
        let mut down = Descent {
            from: Trail::new(from.try_clone()?),
            to: Trail::new(target.try_clone()?),
            path: path.to_owned(),
            to_path: to.to_owned(),
            open: Vec::new(),
        };
        self.enter(&mut down, name, new_name, entry)?;
        while let Some(level) = down.open.last_mut() {
            let Some(name) = level.rest.pop() else {
                self.leave(&mut down)?;
                continue;
            };
            self.last = down.path.join(&name);
            let here = down.from.here()?;
            let stat = at::stat(&here, &name)?;
            let entry = Entry::from(&stat);
            if self.source == Source::Upper && is_whiteout(&stat) || !(self.keep)(&self.last) {
                continue;
            }
            if entry.is_dir() {
                down.path.push(&name);
                down.to_path.push(&name);
                self.enter(&mut down, &name, &name, entry)?;
            } else {
                let target = down.to.here()?;
                self.leaf(&here, &name, &entry, &target, &down.to_path.join(&name))?;
            }
        }
        Ok(())
    }

    fn enter(
        &mut self,
        down: &mut Descent,
        name: &OsStr,
        new_name: &OsStr,
        entry: Entry,
    ) -> io::Result<()> {
        if self.source == Source::Exact {
            down.from.enter(name)?;
        } else {
            down.from.enter_own(name, entry.mode)?;
        }
        at::mkdir(down.to.here()?, new_name, 0o700)?;
        down.to.enter(new_name)?;
        let mut rest: Vec<OsString> = getdents::read_dir(down.from.here()?)?
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        rest.sort_unstable_by(|a, b| b.cmp(a));
        down.open.push(Level { entry, rest });
        Ok(())
    }

    fn leave(&mut self, down: &mut Descent) -> io::Result<()> {
        let Some(level) = down.open.pop() else {
            return Ok(());
        };
        let (from, to) = (down.from.here()?, down.to.here()?);
        let (own, _) = attributes(&from, "", self.source == Source::Upper)?;
        set_attributes(&to, "", &own)?;
        self.owner(&to, OsStr::new(""), &level.entry)?;
        if self.sync == Sync::Each {
            File::from(at::open_dir(&to, ".")?).sync_all()?;
        }
        at::set_mtime(&to, "", (level.entry.mtime.0, level.entry.mtime.1))?;
        at::chmod(&to, "", level.entry.safe_mode())?;
        (self.copied)(&down.path, &level.entry)?;
        down.from.leave();
        down.to.leave();
        down.path.pop();
        down.to_path.pop();
        Ok(())
    }

    fn leaf(
        &mut self,
        from: &Arc<OwnedFd>,
        name: &OsStr,
        entry: &Entry,
        to: &Arc<OwnedFd>,
        to_path: &Path,
    ) -> io::Result<()> {
        let new_name = to_path.file_name().unwrap_or_default();
        if entry.nlink > 1 && entry.kind == NodeKind::File {
            if self.linked(entry, to, new_name) {
                return (self.copied)(&self.last, entry);
            }
            self.links
                .insert((entry.dev, entry.ino), to_path.to_owned());
        }
        match entry.kind {
            NodeKind::File => {
                let source = match self.source {
                    Source::Exact => bounded::open_at(from, name)?,
                    Source::Upper | Source::Worked => open_own(from, name, entry.mode)?,
                };
                let target = at::create_new(to, new_name, 0o600)?;
                self.content(&source, &target, entry)?;
                let (own, _) = match self.source {
                    Source::Exact => attributes(from, name, false)?,
                    Source::Worked => own_attributes(from, name, false, entry.mode)?,
                    Source::Upper => own_attributes(from, name, true, entry.mode)?,
                };
                set_attributes(to, new_name, &own)?;
                match self.sync {
                    Sync::No => {}
                    Sync::Begin => match reflink::start_writeback(&target) {
                        Err(e) if e.kind() == io::ErrorKind::StorageFull => return Err(e),
                        // Not every file system can, and none has to.
                        _ => {}
                    },
                    Sync::Each => target.sync_all()?,
                }
            }
            NodeKind::Symlink => at::symlink(at::readlink(from, name)?, to, new_name)?,
            NodeKind::Fifo => at::mkfifo(to, new_name, 0o600)?,
            // A socket is only alive with the process that bound it, and no device can be
            // made in a world; the diff names both as left out.
            NodeKind::Socket | NodeKind::Device | NodeKind::Dir => return Ok(()),
        }
        self.owner(to, new_name, entry)?;
        if entry.kind != NodeKind::Symlink {
            let mode = match self.source {
                Source::Exact => entry.mode,
                Source::Upper | Source::Worked => entry.safe_mode(),
            };
            at::chmod(to, new_name, mode)?;
        }
        at::set_mtime(to, new_name, (entry.mtime.0, entry.mtime.1))?;
        (self.copied)(&self.last, entry)
    }

    /// Gives a file that was already copied under another name this one too. Where links are
    /// refused a second copy serves.
    fn linked(&self, entry: &Entry, to: &Arc<OwnedFd>, new_name: &OsStr) -> bool {
        let Some(first) = self.links.get(&(entry.dev, entry.ino)) else {
            return false;
        };
        let parent = first.parent().unwrap_or(Path::new(""));
        openat2::dir_beneath(&self.base, parent)
            .and_then(|dir| at::link(dir, first.file_name().unwrap_or_default(), to, new_name))
            .is_ok()
    }

    fn owner(&mut self, dir: &Arc<OwnedFd>, name: &OsStr, entry: &Entry) -> io::Result<()> {
        let now = at::stat(dir, name)?;
        if (now.uid, now.gid) == (entry.uid, entry.gid) {
            return Ok(());
        }
        match at::chown(dir, name, entry.uid, entry.gid) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                self.owners_kept += 1;
                Ok(())
            }
            other => other,
        }
    }

    fn content(&mut self, from: &File, to: &File, entry: &Entry) -> io::Result<()> {
        if entry.size == 0 {
            return Ok(());
        }
        if self.clone {
            match reflink::clone_whole(from, to) {
                Ok(()) => return Ok(()),
                // Asked once: a file system that cannot share blocks will not learn it.
                Err(_) => self.clone = false,
            }
        }
        if entry.size <= SMALL {
            let mut buffer = Vec::with_capacity(entry.size as usize + 1);
            from.take(SMALL).read_to_end(&mut buffer)?;
            let mut target = to;
            return target.write_all(&buffer);
        }
        copy_data(from, to)?;
        // A hole at the end is only a length.
        to.set_len(entry.size)
    }
}

struct Descent {
    from: Trail,
    to: Trail,
    path: PathBuf,
    to_path: PathBuf,
    open: Vec<Level>,
}

struct Level {
    entry: Entry,
    rest: Vec<OsString>,
}

/// Copies the stretches that hold data.
fn copy_data(from: &File, to: &File) -> io::Result<()> {
    let mut offset = 0;
    while let Some((start, end)) = reflink::next_data(from, offset)? {
        let mut at = start;
        while at < end {
            match reflink::copy_range(from, to, at, end - at) {
                Ok(0) => break,
                Ok(n) => at += n,
                Err(e) if e.raw_os_error() == Some(substrate_sys::errno::ENOSPC) => return Err(e),
                Err(_) => at = copy_by_hand(from, to, at, end)?,
            }
        }
        offset = end;
    }
    Ok(())
}

fn copy_by_hand(from: &File, to: &File, start: u64, end: u64) -> io::Result<u64> {
    use std::os::unix::fs::FileExt;
    let mut buffer = vec![0_u8; 256 * 1024];
    let mut at = start;
    while at < end {
        let want = usize::try_from(end - at).map_or(buffer.len(), |n| n.min(buffer.len()));
        let n = from.read_at(&mut buffer[..want], at)?;
        if n == 0 {
            break;
        }
        to.write_all_at(&buffer[..n], at)?;
        at += n as u64;
    }
    Ok(end)
}

/// Opens a file of our own for reading even if its mode forbids that to us.
pub(crate) fn open_own(dir: impl AsFd, name: &OsStr, mode: u32) -> io::Result<File> {
    let dir = dir.as_fd();
    match bounded::open_at(dir, name) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            at::chmod(dir, name, mode | 0o400)?;
            let opened = bounded::open_at(dir, name);
            at::chmod(dir, name, mode)?;
            opened
        }
        other => other,
    }
}

/// Gives an upper directory the mode, owner, times and attributes of the lower one.
pub(crate) fn copy_dir_meta(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (at::open_dir_path(from)?, at::open_dir_path(to)?);
    let entry = Entry::from(&at::stat(&from, "")?);
    let (own, _) = attributes(&from, "", false)?;
    set_attributes(&to, "", &own)?;
    let now = at::stat(&to, "")?;
    if (now.uid, now.gid) != (entry.uid, entry.gid)
        && substrate_sys::identity::effective_user_id() == 0
    {
        at::chown(&to, "", entry.uid, entry.gid)?;
    }
    if Entry::from(&now).mode != entry.mode {
        at::chmod(&to, "", entry.mode)?;
    }
    at::set_mtime(&to, "", (entry.mtime.0, entry.mtime.1))
}

/// Copies a file or tree exactly, sharing blocks where the file system can: what a world works
/// on where an overlay cannot serve. `to` must not exist. `progress` gets the number of
/// entries so far and may end the copying with an error.
pub fn clone_tree(
    from: &Path,
    to: &Path,
    progress: &mut dyn FnMut(u64) -> io::Result<()>,
) -> io::Result<()> {
    let name = |path: &Path| {
        path.file_name()
            .map(OsStr::to_owned)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
    };
    let (from_name, to_name) = (name(from)?, name(to)?);
    let parent = |path: &Path| match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => at::open_dir_path(parent),
        _ => at::open_dir_path("."),
    };
    let (from, base) = (Arc::new(parent(from)?), Arc::new(parent(to)?));
    let mut count = 0;
    let mut copied = |_: &Path, _: &Entry| {
        count += 1;
        progress(count)
    };
    let mut copier = Copier::new(Source::Exact, base, &|_| true, &mut copied);
    copier
        .copy(&from, &from_name, Path::new(&to_name), Path::new(""))
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", copier.last.display())))
}
