//! Carries out the steps of a plan, forward and back. Every function here can be called again
//! after a crash at any point and goes on from what it finds on the file system.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use substrate_sys::at::{self, Rename};
use substrate_sys::{getdents, openat2};

use crate::apply_error::ApplyError;
use crate::copy::{Copier, Source, Sync};
use crate::diff::{Counter, DiffError, base_of};
use crate::entry::{Attributes, Entry, NodeKind, is_absent, own_attributes, set_attributes};
use crate::journal::{Action, Journal, Step};
use crate::observer::Observer;
use crate::pending::{Pending, io_error};
use crate::remove::remove;
use crate::root::{Root, RootKind};
use crate::selection::{Selection, handles};
use crate::trail::Trail;
use substrate_world::progress::Stage;

/// Up to this many entries are brought to the disk one by one, more all at once.
const SYNC_SINGLY: u64 = 64;

/// Why a step did not succeed; where it happened decides what that means.
#[derive(Debug)]
pub(crate) enum Failure {
    Io {
        step: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    HostMoved(PathBuf),
    Interrupted,
    Other(ApplyError),
}

impl Failure {
    /// Before anything was visible.
    pub(crate) fn staging(self) -> ApplyError {
        match self {
            Failure::Io { path, source, .. } => ApplyError::Staging { path, source },
            other => other.committing(),
        }
    }

    /// With part of it visible.
    pub(crate) fn committing(self) -> ApplyError {
        match self {
            Failure::Io { step, path, source } => ApplyError::Step { step, path, source },
            Failure::HostMoved(path) => ApplyError::HostMoved(path),
            Failure::Interrupted => ApplyError::Interrupted,
            Failure::Other(error) => error,
        }
    }

    /// On the way back.
    pub(crate) fn undoing(self) -> ApplyError {
        self.committing()
    }
}

impl From<DiffError> for Failure {
    fn from(error: DiffError) -> Self {
        Failure::Other(error.into())
    }
}

pub(crate) type Done<T = ()> = Result<T, Failure>;

/// Works through one plan.
pub(crate) struct Worker<'a, 'w> {
    pub(crate) pending: &'a Pending,
    pub(crate) journal: &'a Journal,
    pub(crate) hosts: Vec<Arc<OwnedFd>>,
    pub(crate) uppers: Vec<Arc<OwnedFd>>,
    pub(crate) backups: Arc<OwnedFd>,
    pub(crate) watch: &'a mut Observer<'w>,
    parent: Option<(usize, PathBuf, Arc<OwnedFd>)>,
    pub(crate) owners_kept: u64,
}

impl<'a, 'w> Worker<'a, 'w> {
    pub(crate) fn new(
        pending: &'a Pending,
        journal: &'a Journal,
        watch: &'a mut Observer<'w>,
    ) -> Result<Self, ApplyError> {
        let mut hosts = Vec::new();
        let mut uppers = Vec::new();
        for root in &pending.meta().roots {
            let (host, upper) = handles(root)?;
            hosts.push(host);
            uppers.push(upper);
        }
        let backups = journal.backups();
        let backups = at::open_dir_path(&backups).map_err(io_error("open", &backups))?;
        Ok(Self {
            pending,
            journal,
            hosts,
            uppers,
            backups: Arc::new(backups),
            watch,
            parent: None,
            owners_kept: 0,
        })
    }

    pub(crate) fn point(&mut self, step: &'static str) -> Result<(), ApplyError> {
        self.watch.point(step)
    }

    pub(crate) fn crash(&mut self, step: &'static str) -> Done {
        self.watch.point(step).map_err(|_| Failure::Interrupted)
    }

    pub(crate) fn root(&self, step: &Step) -> &'a Root {
        &self.pending.meta().roots[step.root]
    }

    pub(crate) fn fail(
        &self,
        what: &'static str,
        step: &Step,
    ) -> impl FnOnce(io::Error) -> Failure + use<> {
        let path = base_of(self.root(step)).join(&step.path);
        move |source| Failure::Io {
            step: what,
            path,
            source,
        }
    }

    pub(crate) fn moved(&self, step: &Step) -> Failure {
        Failure::HostMoved(base_of(self.root(step)).join(&step.path))
    }

    /// The directory that a step works in.
    pub(crate) fn dir(&mut self, step: &Step) -> Done<Arc<OwnedFd>> {
        if let Some((root, path, dir)) = &self.parent
            && (*root, path.as_path()) == (step.root, step.parent())
        {
            return Ok(Arc::clone(dir));
        }
        let dir = openat2::dir_beneath(&self.hosts[step.root], step.parent())
            .map_err(self.fail("open the directory of", step))?;
        let dir = Arc::new(dir);
        self.parent = Some((step.root, step.parent().to_owned(), Arc::clone(&dir)));
        Ok(dir)
    }

    // Staging.

    /// Copies everything that is to appear next to where it belongs, and what cannot be moved
    /// to the backups as well. After this, committing needs no further space for content.
    pub(crate) fn stage(&mut self) -> Done {
        self.sweep_files()?;
        self.open_dirs()?;
        self.crash("directories opened")?;
        let (journal, meta) = (self.journal, self.pending.meta());
        let how = self.how_synced();
        let header = &journal.header;
        let selection = Selection {
            paths: &header.chosen,
            held: header.held,
        };
        let mut done = 0;
        for (number, root) in meta.roots.iter().enumerate() {
            let base = base_of(root).to_owned();
            let keep = |path: &Path| {
                let path = base.join(path);
                selection.wants(root, &path) || selection.leads_on(&path)
            };
            let mut crash = self.watch.crash.take();
            let mut count = Counter::new(
                Stage::Staging,
                Some(header.entries),
                &mut *self.watch.progress,
            )
            .after(done);
            let mut copied = |_: &Path, _: &Entry| {
                if crash.as_mut().is_some_and(|c| c("entry copied")) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                count.one().map_err(io::Error::other)
            };
            let source = match root.kind {
                RootKind::Overlay => Source::Upper,
                RootKind::Copy => Source::Worked,
            };
            let mut copier =
                Copier::new(source, Arc::clone(&self.hosts[number]), &keep, &mut copied)
                    .synced(how);
            for same in header.unchanged.iter().filter(|u| u.root == number) {
                copier.known_link(&same.upper, same.path.clone());
            }
            let result = stage_root(journal, number, &self.uppers[number], &mut copier);
            let (last, kept) = (copier.last.clone(), copier.owners_kept);
            self.owners_kept += kept;
            done = count.done();
            self.watch.crash = crash;
            result.map_err(|e| interrupted("copy", base.join(last), e))?;
        }
        self.stage_backups()?;
        self.sync()?;
        self.crash("synced")
    }

    /// Keeps exact copies of what a rename cannot carry to the backups.
    fn stage_backups(&mut self) -> Done {
        for (n, step) in self.journal.steps.iter().enumerate() {
            let needed = matches!(step.action, Action::Replace | Action::Delete);
            if !needed || step.movable {
                continue;
            }
            let dir = self.dir(step)?;
            let name = backup_name(n);
            self.copy_exact(step, &dir, &step.name(), &self.backups.clone(), &name)?;
            self.crash("backup copied")?;
        }
        Ok(())
    }

    pub(crate) fn copy_exact(
        &mut self,
        step: &Step,
        from: &Arc<OwnedFd>,
        name: &OsStr,
        to: &Arc<OwnedFd>,
        new_name: &OsStr,
    ) -> Done {
        let mut copied = |_: &Path, _: &Entry| Ok(());
        let mut copier = Copier::new(Source::Exact, Arc::clone(to), &|_| true, &mut copied)
            .synced(self.how_synced());
        copier
            .copy(from, name, Path::new(new_name), Path::new(""))
            .map_err(self.fail("keep a copy of", step))
    }

    /// Brings the names that were changed to the disk: those of a small plan directory by
    /// directory, those of a large one with the one sync that a journaling file system needs
    /// for all that came before.
    pub(crate) fn sync(&mut self) -> Done {
        let steps = &self.journal.steps;
        let mut last = None;
        for step in steps.iter().filter(|_| self.how_synced() == Sync::Each) {
            if last == Some((step.root, step.parent())) {
                continue;
            }
            last = Some((step.root, step.parent()));
            let synced = openat2::dir_beneath(&self.hosts[step.root], step.parent())
                .and_then(|dir| at::open_dir(dir, "."))
                .and_then(|dir| File::from(dir).sync_all());
            match synced {
                // Closed to us by now, as the world wanted.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
                other => other.map_err(self.fail("sync the directory of", step))?,
            }
        }
        for (number, host) in self.hosts.iter().enumerate() {
            if steps.iter().any(|s| s.root == number) {
                let synced = host.try_clone().and_then(|dir| File::from(dir).sync_all());
                synced.map_err(|source| Failure::Io {
                    step: "sync",
                    path: self.pending.meta().roots[number].target.clone(),
                    source,
                })?;
            }
        }
        Ok(())
    }

    fn how_synced(&self) -> Sync {
        match self.journal.header.entries <= SYNC_SINGLY {
            true => Sync::Each,
            false => Sync::Begin,
        }
    }

    /// Takes away everything that staging left; nothing of it was visible.
    pub(crate) fn sweep(&mut self) -> Done {
        self.sweep_files()?;
        self.close_dirs()
    }

    fn sweep_files(&mut self) -> Done {
        for (n, step) in self.journal.steps.iter().enumerate() {
            // A directory that is gone took what was staged in it along.
            let Ok(dir) = self.dir(step) else { continue };
            if Entry::look(&dir, self.journal.temp(n)).is_ok_and(|e| e.is_none()) {
                continue;
            }
            remove(&dir, &self.journal.temp(n)).map_err(self.fail("tidy up beside", step))?;
        }
        let names = getdents::read_dir(
            at::open_dir(&self.backups, ".")
                .map_err(|e| interrupted("open", self.journal.backups(), e))?,
        )
        .map_err(|e| interrupted("list", self.journal.backups(), e))?;
        for (name, _) in names {
            remove(&self.backups, &name)
                .map_err(|e| interrupted("remove", self.journal.backups().join(&name), e))?;
        }
        Ok(())
    }

    /// Opens directories whose mode keeps us out, for the time of the work.
    pub(crate) fn open_dirs(&mut self) -> Done {
        for opened in &self.journal.header.opened {
            self.chmod_dir(opened.root, &opened.path, opened.mode | 0o700)?;
        }
        Ok(())
    }

    /// Gives them their mode back, unless the plan itself gives them another.
    pub(crate) fn close_dirs(&mut self) -> Done {
        for opened in self.journal.header.opened.iter().rev() {
            let staged = self.journal.is_staged();
            let planned = self
                .journal
                .steps
                .iter()
                .any(|s| s.is_dir_meta() && (s.root, &s.path) == (opened.root, &opened.path));
            if !(staged && planned) {
                self.chmod_dir(opened.root, &opened.path, opened.mode)?;
            }
        }
        Ok(())
    }

    pub(crate) fn chmod_dir(&mut self, root: usize, path: &Path, mode: u32) -> Done {
        match openat2::dir_beneath(&self.hosts[root], path.parent().unwrap_or(Path::new(""))) {
            Ok(dir) => match at::chmod(dir, path.file_name().unwrap_or_default(), mode) {
                Err(e) if !is_absent(&e) => {
                    Err(interrupted("change the mode of", path.to_owned(), e))
                }
                _ => Ok(()),
            },
            Err(e) if is_absent(&e) => Ok(()),
            Err(e) => Err(interrupted("open", path.to_owned(), e)),
        }
    }

    // Committing.

    /// Puts everything in place.
    pub(crate) fn commit(&mut self) -> Done {
        let order = self.journal.order();
        let mut tell = Ticker::new(Stage::Committing, order.len());
        for n in order {
            let step = &self.journal.steps[n];
            self.heal(n, step)?;
            match step.action {
                Action::Create => self.create(n, step)?,
                Action::Replace => self.replace(n, step)?,
                Action::Delete => self.delete(n, step)?,
                Action::Meta => self.meta(step)?,
            }
            self.crash("step done")?;
            tell.one(self.watch);
        }
        self.close_dirs()?;
        self.crash("directories closed")?;
        self.sync()
    }

    fn create(&mut self, n: usize, step: &Step) -> Done {
        let (dir, name, temp) = (self.dir(step)?, step.name(), self.journal.temp(n));
        let (staged, now) = (self.look(step, &dir, &temp)?, self.look(step, &dir, &name)?);
        match (staged, now) {
            (Some(_), None) => self.rename(step, (&dir, &temp), (&dir, &name), Rename::NoReplace),
            (None, Some(_)) => Ok(()),
            _ => Err(self.moved(step)),
        }
    }

    fn replace(&mut self, n: usize, step: &Step) -> Done {
        let (dir, name, temp) = (self.dir(step)?, step.name(), self.journal.temp(n));
        let (staged, now) = (self.look(step, &dir, &temp)?, self.look(step, &dir, &name)?);
        let old = step.old.ok_or_else(|| self.moved(step))?;
        match (staged, now) {
            (None, Some(now)) if !now.same_inode(&old) => return Ok(()),
            (Some(_), Some(now)) if unchanged(&old, &now) => {
                self.swap(n, step, (&dir, &temp), (&dir, &name))?;
                self.crash("exchanged")?;
            }
            (Some(there), Some(_)) if there.same_inode(&old) => {}
            _ => return Err(self.moved(step)),
        }
        self.put_away(n, step, &dir, &temp, &old)
    }

    fn delete(&mut self, n: usize, step: &Step) -> Done {
        let (dir, name, temp) = (self.dir(step)?, step.name(), self.journal.temp(n));
        let old = step.old.ok_or_else(|| self.moved(step))?;
        match self.look(step, &dir, &name)? {
            Some(now) if unchanged(&old, &now) => {
                if step.movable {
                    return self.put_away(n, step, &dir, &name, &old);
                }
                self.rename(step, (&dir, &name), (&dir, &temp), Rename::NoReplace)?;
                self.crash("moved aside")?;
            }
            None => {}
            Some(_) => return Err(self.moved(step)),
        }
        remove(&dir, &temp).map_err(self.fail("remove", step))
    }

    /// Moves what was there to the backups, or removes it where a copy is kept already.
    fn put_away(
        &mut self,
        n: usize,
        step: &Step,
        dir: &Arc<OwnedFd>,
        name: &OsStr,
        old: &Entry,
    ) -> Done {
        if !step.movable {
            return remove(dir, name).map_err(self.fail("remove", step));
        }
        let backups = Arc::clone(&self.backups);
        let backup = backup_name(n);
        self.rename(step, (dir, name), (&backups, &backup), Rename::NoReplace)?;
        if old.is_dir() {
            at::chmod(&backups, &backup, old.mode).map_err(self.fail("keep the mode of", step))?;
        }
        Ok(())
    }

    fn meta(&mut self, step: &Step) -> Done {
        let (dir, name) = (self.dir(step)?, step.name());
        let (Some(old), Some(new)) = (step.old, step.new) else {
            return Ok(());
        };
        match self.look(step, &dir, &name)? {
            Some(now) if now.same_inode(&old) => {}
            _ => return Err(self.moved(step)),
        }
        let mut trail =
            trail_to(&self.uppers[step.root], step.parent()).map_err(self.fail("read", step))?;
        let upper = trail.here().map_err(self.fail("read", step))?;
        let overlay = self.root(step).kind == RootKind::Overlay;
        let (own, _) =
            own_attributes(&upper, &name, overlay, new.mode).map_err(self.fail("read", step))?;
        // Rights that the host had given itself stay.
        let mode = new.safe_mode() | new.mode & old.mode & 0o6000;
        self.set_meta(step, &dir, &new, mode, &own)
    }

    pub(crate) fn set_meta(
        &mut self,
        step: &Step,
        dir: &Arc<OwnedFd>,
        wanted: &Entry,
        mode: u32,
        own: &Attributes,
    ) -> Done {
        let name = step.name();
        let now = at::stat(dir, &name).map_err(self.fail("look at", step))?;
        if (now.uid, now.gid) != (wanted.uid, wanted.gid) {
            match at::chown(dir, &name, wanted.uid, wanted.gid) {
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => self.owners_kept += 1,
                other => other.map_err(self.fail("change the owner of", step))?,
            }
        }
        if wanted.kind != NodeKind::Symlink {
            if matches!(wanted.kind, NodeKind::File | NodeKind::Dir) {
                // Attributes can only be read and set on what we may read and write.
                at::chmod(dir, &name, mode | 0o600)
                    .map_err(self.fail("change the mode of", step))?;
                set_attributes(dir, &name, own)
                    .map_err(self.fail("set the attributes of", step))?;
            }
            at::chmod(dir, &name, mode).map_err(self.fail("change the mode of", step))?;
        }
        if wanted.kind != NodeKind::Dir {
            at::set_mtime(dir, &name, (wanted.mtime.0, wanted.mtime.1))
                .map_err(self.fail("set the times of", step))?;
        }
        Ok(())
    }

    // Names.

    pub(crate) fn look(
        &self,
        step: &Step,
        dir: &Arc<OwnedFd>,
        name: &OsStr,
    ) -> Done<Option<Entry>> {
        Entry::look(dir, name).map_err(self.fail("look at", step))
    }

    /// Moves a name. A directory can only change its parent if we may write into it.
    pub(crate) fn rename(
        &mut self,
        step: &Step,
        from: (&Arc<OwnedFd>, &OsStr),
        to: (&Arc<OwnedFd>, &OsStr),
        how: Rename,
    ) -> Done {
        rename_forced(from, to, how).map_err(self.fail("put in place", step))
    }

    /// Lets two names change places, at once where the file system can.
    pub(crate) fn swap(
        &mut self,
        n: usize,
        step: &Step,
        one: (&Arc<OwnedFd>, &OsStr),
        two: (&Arc<OwnedFd>, &OsStr),
    ) -> Done {
        let exchanged = match self.watch.exchange {
            true => rename_forced(one, two, Rename::Exchange),
            false => Err(io::ErrorKind::Unsupported.into()),
        };
        match exchanged {
            Err(e) if is_unsupported(&e) => {
                let aside = self.journal.aside(n);
                self.rename(step, two, (two.0, &aside), Rename::Replace)?;
                self.crash("moved aside")?;
                self.rename(step, one, two, Rename::Replace)?;
                self.crash("moved in")?;
                self.rename(step, (two.0, &aside), one, Rename::Replace)
            }
            other => other.map_err(self.fail("put in place", step)),
        }
    }

    /// Completes an exchange that was interrupted on a file system that cannot do it at once.
    pub(crate) fn heal(&mut self, n: usize, step: &Step) -> Done {
        let (aside, temp, name) = (self.journal.aside(n), self.journal.temp(n), step.name());
        if name.is_empty() {
            return Ok(());
        }
        let dir = self.dir(step)?;
        if self.look(step, &dir, &aside)?.is_none() {
            return Ok(());
        }
        let to = match self.look(step, &dir, &name)? {
            None => &name,
            Some(_) => &temp,
        };
        self.rename(step, (&dir, &aside), (&dir, to), Rename::Replace)
    }
}

/// Stages the steps of one root.
fn stage_root(
    journal: &Journal,
    root: usize,
    upper: &Arc<OwnedFd>,
    copier: &mut Copier<'_>,
) -> io::Result<()> {
    for (n, step) in journal.steps.iter().enumerate() {
        if step.root != root || !matches!(step.action, Action::Create | Action::Replace) {
            continue;
        }
        copier.last = step.path.clone();
        let to = step.parent().join(journal.temp(n));
        // A handle can be had of a directory that nothing can be looked up in.
        let from = openat2::dir_beneath(upper, step.parent())
            .and_then(|dir| at::stat(&dir, step.name()).map(|_| dir));
        let copied = match from {
            Ok(from) => copier.copy(&Arc::new(from), &step.name(), &to, &step.path),
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                let mut trail = trail_to(upper, step.parent())?;
                copier.copy(&trail.here()?, &step.name(), &to, &step.path)
            }
            Err(e) => Err(e),
        };
        copied?;
    }
    Ok(())
}

/// Goes down to a directory of the world's, opening what it closed for as long as one is there.
pub(crate) fn trail_to(upper: &Arc<OwnedFd>, path: &Path) -> io::Result<Trail> {
    let mut trail = Trail::new(upper.try_clone()?);
    for name in path {
        let mode = at::stat(trail.here()?, name)?.mode & 0o7777;
        trail.enter_own(name, mode)?;
    }
    Ok(trail)
}

fn rename_forced(
    from: (&Arc<OwnedFd>, &OsStr),
    to: (&Arc<OwnedFd>, &OsStr),
    how: Rename,
) -> io::Result<()> {
    match at::rename(from.0, from.1, to.0, to.1, how) {
        Err(e)
            if e.kind() == io::ErrorKind::PermissionDenied
                && substrate_sys::identity::effective_user_id() != 0 => {}
        Err(e) if how == Rename::NoReplace && is_unsupported(&e) => {
            if Entry::look(to.0, to.1)?.is_some() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            return at::rename(from.0, from.1, to.0, to.1, Rename::Replace);
        }
        other => return other,
    }
    let closed = |at: (&Arc<OwnedFd>, &OsStr)| -> io::Result<Option<u32>> {
        Ok(Entry::look(at.0, at.1)?
            .filter(|e| e.is_dir() && e.mode & 0o200 == 0)
            .map(|e| e.mode))
    };
    let modes = [closed(from)?, closed(to)?];
    for (at, mode) in [from, to].iter().zip(modes) {
        if let Some(mode) = mode {
            at::chmod(at.0, at.1, mode | 0o600)?;
        }
    }
    at::rename(from.0, from.1, to.0, to.1, how)?;
    // Each mode goes with its directory to the other name.
    for (at, mode) in [to, from].iter().zip(modes) {
        if let Some(mode) = mode {
            at::chmod(at.0, at.1, mode)?;
        }
    }
    Ok(())
}

fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
    )
}

/// Whether a host name is still what the plan saw. A directory moves as a whole to where it
/// can be had back, so what is in it does not matter here.
fn unchanged(old: &Entry, now: &Entry) -> bool {
    match old.kind {
        NodeKind::Dir => old.same_inode(now),
        _ => old.untouched(now),
    }
}

pub(crate) fn backup_name(step: usize) -> OsString {
    step.to_string().into()
}

fn interrupted(step: &'static str, path: PathBuf, source: io::Error) -> Failure {
    // No system call that is used here ends like this, only the watcher of a copy.
    if source.kind() == io::ErrorKind::Interrupted {
        return Failure::Interrupted;
    }
    Failure::Io { step, path, source }
}

/// Tells how many steps are done.
pub(crate) struct Ticker {
    now: substrate_world::progress::Progress,
}

impl Ticker {
    pub(crate) fn new(stage: Stage, total: usize) -> Self {
        Self {
            now: substrate_world::progress::Progress {
                stage,
                done: 0,
                total: Some(total as u64),
            },
        }
    }

    pub(crate) fn one(&mut self, watch: &mut Observer<'_>) {
        self.now.done += 1;
        // Between commits there is no safe point to end at, so the answer does not count.
        (watch.progress)(self.now);
    }
}
