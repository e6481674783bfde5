//! Takes the steps of a plan back. As forward, every function can be called again after a crash
//! at any point and goes on from what it finds.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use substrate_sys::at::{self, Rename};
use substrate_sys::{getdents, openat2};

use crate::apply_error::ApplyError;
use crate::commit::{Done, Ticker, Worker, backup_name, trail_to};
use crate::compare::{Buffers, same_leaf};
use crate::diff::base_of;
use crate::entry::{Entry, NodeKind};
use crate::journal::{Action, Step};
use crate::record;
use crate::remove::remove;
use crate::selection::Selection;
use crate::trail::Trail;
use substrate_world::progress::Stage;

impl Worker<'_, '_> {
    /// Undoes every step that was done; returns how many steps the plan had.
    pub(crate) fn undo(&mut self) -> Done<u64> {
        self.open_applied()?;
        self.crash("directories opened")?;
        let order = self.journal.order();
        let mut tell = Ticker::new(Stage::Undoing, order.len());
        let (last, first): (Vec<usize>, Vec<usize>) = order
            .iter()
            .rev()
            .partition(|&&n| self.journal.steps[n].is_dir_meta());
        for n in first.into_iter().chain(last) {
            let step = &self.journal.steps[n];
            self.heal(n, step)?;
            match step.action {
                Action::Create => self.uncreate(n, step)?,
                Action::Replace => self.unreplace(n, step)?,
                Action::Delete => self.undelete(n, step)?,
                Action::Meta => self.unmeta(step)?,
            }
            self.crash("step undone")?;
            tell.one(self.watch);
        }
        for opened in self.journal.header.opened.iter().rev() {
            self.chmod_dir(opened.root, &opened.path, opened.mode)?;
        }
        self.sync()?;
        // As many as the apply said, where a new directory with all in it is one step.
        let steps = self.journal.steps.len() as u64;
        Ok(steps.max(self.journal.header.entries))
    }

    /// Opens what the apply had opened, and what it left closed.
    fn open_applied(&mut self) -> Done {
        self.open_dirs()?;
        for step in self.journal.steps.iter().filter(|s| s.is_dir_meta()) {
            if let Ok(dir) = self.dir(step)
                && let Some(now) = self.look(step, &dir, &step.name())?
            {
                self.chmod_dir(step.root, &step.path, now.mode | 0o700)?;
            }
        }
        Ok(())
    }

    /// Closes it again, as the apply had left it.
    fn close_applied(&mut self) -> Done {
        self.close_dirs()?;
        for step in self.journal.steps.iter().filter(|s| s.is_dir_meta()) {
            if let Some(new) = step.new {
                self.chmod_dir(step.root, &step.path, new.mode)?;
            }
        }
        Ok(())
    }

    fn uncreate(&mut self, n: usize, step: &Step) -> Done {
        let (dir, name, temp) = (self.dir(step)?, step.name(), self.journal.temp(n));
        // Still staged means never put in place, and then the name is somebody else's.
        if self.look(step, &dir, &temp)?.is_none() && self.look(step, &dir, &name)?.is_some() {
            self.rename(step, (&dir, &name), (&dir, &temp), Rename::NoReplace)?;
            self.crash("moved aside")?;
        }
        remove(&dir, &temp).map_err(self.fail("remove", step))
    }

    fn unreplace(&mut self, n: usize, step: &Step) -> Done {
        let (dir, name, temp) = (self.dir(step)?, step.name(), self.journal.temp(n));
        let old = step.old.ok_or_else(|| self.moved(step))?;
        let (staged, now) = (self.look(step, &dir, &temp)?, self.look(step, &dir, &name)?);
        let (backups, backup) = (Arc::clone(&self.backups), backup_name(n));
        if now.is_some_and(|now| is_back(&old, &now)) {
            // Not begun, or already back.
        } else if staged.is_some_and(|there| there.same_inode(&old)) {
            self.swap(n, step, (&dir, &temp), (&dir, &name))?;
            self.crash("exchanged")?;
        } else if self.look(step, &backups, &backup)?.is_some() {
            if step.movable {
                self.back(n, step, (&backups, &backup), (&dir, &name), now.is_some())?;
            } else {
                remove(&dir, &temp).map_err(self.fail("tidy up beside", step))?;
                self.copy_exact(step, &backups, &backup, &dir, &temp)?;
                self.crash("copied back")?;
                self.back(n, step, (&dir, &temp), (&dir, &name), now.is_some())?;
            }
            self.crash("exchanged")?;
        }
        remove(&dir, &temp).map_err(self.fail("tidy up beside", step))?;
        self.crash("tidied up")?;
        remove(&backups, &backup).map_err(self.fail("remove the backup of", step))
    }

    fn back(
        &mut self,
        n: usize,
        step: &Step,
        from: (&Arc<OwnedFd>, &OsStr),
        to: (&Arc<OwnedFd>, &OsStr),
        taken: bool,
    ) -> Done {
        match taken {
            true => self.swap(n, step, from, to),
            false => self.rename(step, from, to, Rename::NoReplace),
        }
    }

    fn undelete(&mut self, n: usize, step: &Step) -> Done {
        let (dir, name, temp) = (self.dir(step)?, step.name(), self.journal.temp(n));
        let (backups, backup) = (Arc::clone(&self.backups), backup_name(n));
        let now = self.look(step, &dir, &name)?;
        let kept = self.look(step, &backups, &backup)?;
        if kept.is_some() && now.is_none() {
            if step.movable {
                self.rename(step, (&backups, &backup), (&dir, &name), Rename::NoReplace)?;
                if let Some(old) = step.old.filter(Entry::is_dir) {
                    at::chmod(&dir, &name, old.mode)
                        .map_err(self.fail("change the mode of", step))?;
                }
            } else {
                remove(&dir, &temp).map_err(self.fail("tidy up beside", step))?;
                self.copy_exact(step, &backups, &backup, &dir, &temp)?;
                self.crash("copied back")?;
                self.rename(step, (&dir, &temp), (&dir, &name), Rename::NoReplace)?;
            }
            self.crash("moved back")?;
        }
        remove(&dir, &temp).map_err(self.fail("tidy up beside", step))?;
        remove(&backups, &backup).map_err(self.fail("remove the backup of", step))
    }

    fn unmeta(&mut self, step: &Step) -> Done {
        let dir = self.dir(step)?;
        let Some(old) = step.old else { return Ok(()) };
        match self.look(step, &dir, &step.name())? {
            Some(now) if now.same_inode(&old) => {}
            // Gone or another: there is nothing left that could get its metadata back.
            _ => return Ok(()),
        }
        self.set_meta(step, &dir, &old, old.mode, &(&step.attributes).into())
    }

    /// The host paths that are no longer what the apply made of them.
    pub(crate) fn changed_since(&mut self) -> Done<Vec<PathBuf>> {
        let mut changed = Vec::new();
        let closed = self.is_closed_somewhere();
        if closed {
            self.open_applied()?;
        }
        let mut buffers = Buffers::default();
        for (n, step) in self.journal.steps.iter().enumerate() {
            let Ok(dir) = self.dir(step) else {
                changed.push(base_of(self.root(step)).join(&step.path));
                continue;
            };
            // What a crash kept from being put in place is not there to be compared.
            if self.look(step, &dir, &self.journal.temp(n))?.is_some() {
                continue;
            }
            let now = self.look(step, &dir, &step.name())?;
            let fits = match (step.action, now, step.new, step.old) {
                (Action::Delete, now, _, Some(old)) => now.is_none_or(|now| old.untouched(&now)),
                (Action::Meta, Some(now), Some(new), Some(old)) => {
                    now.same_inode(&old) && (now.size, now.kind) == (new.size, new.kind)
                }
                (Action::Replace, Some(now), _, Some(old)) if is_back(&old, &now) => true,
                (_, Some(_), ..) => self
                    .still_ours(step, &dir, &mut buffers)
                    .map_err(self.fail("compare", step))?,
                _ => false,
            };
            if !fits {
                changed.push(base_of(self.root(step)).join(&step.path));
            }
        }
        if closed && !changed.is_empty() {
            self.close_applied()?;
        }
        Ok(changed)
    }

    /// Whether a directory that steps work in keeps us out.
    fn is_closed_somewhere(&mut self) -> bool {
        let steps = &self.journal.steps;
        let denied = |step: &Step| {
            openat2::dir_beneath(&self.hosts[step.root], step.parent())
                .and_then(|dir| Entry::look(dir, step.name()))
                .is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
        };
        substrate_sys::identity::effective_user_id() != 0 && steps.iter().any(denied)
    }

    /// Whether a name and everything below it is what the world left.
    fn still_ours(
        &self,
        step: &Step,
        host: &Arc<OwnedFd>,
        buffers: &mut Buffers,
    ) -> io::Result<bool> {
        let root = self.root(step);
        let header = &self.journal.header;
        let selection = Selection {
            paths: &header.chosen,
            held: header.held,
        };
        let mut pair = (
            trail_to(&self.uppers[step.root], step.parent())?,
            Trail::new(host.try_clone()?),
        );
        let mut path = step.parent().to_owned();
        let mut rest = vec![vec![step.name()]];
        while let Some(names) = rest.last_mut() {
            let Some(name) = names.pop() else {
                rest.pop();
                if !rest.is_empty() {
                    pair.0.leave();
                    pair.1.leave();
                    path.pop();
                }
                continue;
            };
            let (ours, theirs) = (pair.0.here()?, pair.1.here()?);
            let (Some(new), Some(now)) = (Entry::look(&ours, &name)?, Entry::look(&theirs, &name)?)
            else {
                return Ok(false);
            };
            if !new.is_dir() {
                let same = same_leaf((&ours, &name, &new), (&theirs, &name, &now), buffers)?;
                if !same {
                    return Ok(false);
                }
                continue;
            }
            if !now.is_dir() || new.mode != now.mode {
                return Ok(false);
            }
            pair.0.enter_own(&name, new.mode)?;
            pair.1.enter_own(&name, now.mode)?;
            path.push(&name);
            let keep = |name: &OsString| {
                let path = base_of(root).join(&path).join(name);
                selection.wants(root, &path) || selection.leads_on(&path)
            };
            let mut ours = Vec::new();
            let here = pair.0.here()?;
            for (name, _) in getdents::read_dir(&here)? {
                let stat = at::stat(&here, &name)?;
                let left_out = match Entry::from(&stat).kind {
                    // Whiteouts are devices.
                    NodeKind::Socket | NodeKind::Device => true,
                    _ => !keep(&name),
                };
                if !left_out {
                    ours.push(name);
                }
            }
            let mut theirs: Vec<OsString> = getdents::read_dir(pair.1.here()?)?
                .into_iter()
                .map(|(name, _)| name)
                .collect();
            ours.sort_unstable();
            theirs.sort_unstable();
            if ours != theirs {
                return Ok(false);
            }
            rest.push(ours);
        }
        Ok(true)
    }

    /// Records the state of everything that was put back, so that it does not count as changed
    /// by the host.
    pub(crate) fn restamp(&mut self) -> Result<(), ApplyError> {
        let touched: HashMap<(usize, &Path), bool> = self
            .journal
            .steps
            .iter()
            .map(|s| ((s.root, s.path.as_path()), s.forced))
            .collect();
        let hosts = &self.hosts;
        record::restamp(self.pending, &mut |root, path| {
            let forced = path.ancestors().find_map(|a| touched.get(&(root, a)))?;
            let parent = path.parent().unwrap_or(Path::new(""));
            let now = openat2::dir_beneath(&hosts[root], parent)
                .and_then(|dir| Entry::look(dir, path.file_name().unwrap_or_default()))
                .ok()
                .flatten();
            Some((now, *forced))
        })?;
        Ok(())
    }
}

/// Whether a name holds what it held before the apply. Being moved changes the `ctime`, and
/// inode numbers are used again, so neither alone tells.
fn is_back(old: &Entry, now: &Entry) -> bool {
    old.same_inode(now)
        && (old.is_dir() || (old.kind, old.size, old.mtime) == (now.kind, now.size, now.mtime))
}
