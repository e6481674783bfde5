//! Putting what a world left on the host: everything is checked first, then staged, then moved
//! into place, and can be undone.

use crate::apply_error::ApplyError;
use crate::observer::Observer;
use crate::selection::Selection;
use crate::selection::handles;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use substrate_sys::{at, bounded, openat2};

use crate::change::Conflict;
use crate::change::{Change, ChangeKind};
use crate::commit::{Failure, Worker};
use crate::copy::open_own;
use crate::diff::{self, Counter, Found, host_path};
use crate::entry::{NodeKind, attributes, has_capability};
use crate::journal::{self, Action, Header, Journal, Opened, Step, Unchanged};
use crate::pending::{Pending, PendingError, State, io_error};
use crate::remove::remove_path;
use crate::risk::{self, Contents, Flag};
use crate::root::RootKind;
use crate::walk::Options;
use substrate_world::progress::{OnProgress, Stage};

pub use crate::risk::RunsLater;

/// Largest `package.json` that is read to see whether its scripts changed.
const MANIFEST_LIMIT: u64 = 4 << 20;

/// What is to be applied.
#[derive(Debug, Clone, Default)]
pub struct ApplyOptions {
    /// Absolute host paths; each takes everything below it along. None means all.
    pub paths: Vec<PathBuf>,
    /// Also what lies outside what the policy lets be written. Chosen paths need no such leave.
    pub held: bool,
    /// Overwrite what changed on the host meanwhile; `undo` brings it back.
    pub force: bool,
}

/// What an apply would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Check {
    /// Names that the host changed too.
    pub conflicts: Vec<(PathBuf, Conflict)>,
    /// Files that can run later.
    pub flags: Vec<Flag>,
    /// Sockets and devices, which are left out.
    pub skipped: Vec<PathBuf>,
    /// Number of changes, without those that are left out.
    pub changes: u64,
    /// Bytes of new content.
    pub bytes: u64,
}

/// What an apply or undo has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// What was found before.
    pub check: Check,
    /// Names whose owner or group could not be set, which only root may do.
    pub owners_kept: u64,
    /// Whether nothing of the result is left to be applied.
    pub whole: bool,
}

/// Says what an apply would do, and changes nothing.
pub fn check(
    pending: &Pending,
    options: &ApplyOptions,
    progress: OnProgress<'_>,
) -> Result<Check, ApplyError> {
    diff::ensure_recorded(pending)?;
    Ok(Plan::make(pending, options, progress)?.check)
}

/// Puts a result on the host. On conflict nothing happens, unless forced; a failure while
/// staging leaves nothing behind; one while committing can be resumed or undone.
pub fn apply(
    pending: &mut Pending,
    options: &ApplyOptions,
    watch: &mut Observer<'_>,
) -> Result<Applied, ApplyError> {
    let _lock = pending.lock()?;
    match pending.meta().state {
        State::Applying => return Err(ApplyError::Unfinished("apply")),
        State::Undoing => return Err(ApplyError::Unfinished("undo")),
        State::Discarded => return Err(ApplyError::Discarded),
        _ if pending.is_running() => return Err(ApplyError::Running),
        State::Running | State::Finished | State::Applied => {}
    }
    diff::ensure_recorded(pending)?;
    let plan = Plan::make(pending, options, watch.progress)?;
    if !plan.check.conflicts.is_empty() && !options.force {
        return Err(ApplyError::Conflicts(plan.check.conflicts));
    }
    let whole = plan.header.whole;
    if plan.steps.is_empty() {
        if whole {
            pending.update(|m| m.state = State::Applied)?;
        }
        return Ok(Applied {
            check: plan.check,
            owners_kept: 0,
            whole,
        });
    }
    let number = pending.meta().applies + 1;
    discard_journal(pending, number)?;
    let journal = Journal::write(pending, number, plan.header, plan.steps)?;
    watch.point("plan written")?;
    pending.update(|m| {
        m.state = State::Applying;
        m.applies = number;
    })?;
    watch.point("state written")?;
    let owners_kept = carry_out(pending, &journal, watch)?;
    Ok(Applied {
        check: plan.check,
        owners_kept,
        whole,
    })
}

/// The result of a command at or below a directory of which something was applied last and not
/// undone since.
pub fn last(home: &Path, here: &Path) -> Result<Option<Pending>, PendingError> {
    let applied = Pending::list(home)?
        .into_iter()
        .filter(|pending| pending.meta().applies > 0 && pending.meta().cwd.starts_with(here));
    Ok(applied.max_by_key(|pending| journal::begun(pending, pending.meta().applies)))
}

/// Finishes an apply or undo that was interrupted; says whether there was one.
pub fn resume(pending: &mut Pending, watch: &mut Observer<'_>) -> Result<bool, ApplyError> {
    let _lock = pending.lock()?;
    match pending.meta().state {
        State::Applying => {
            let number = pending.meta().applies;
            match Journal::read(pending, number)? {
                Some(journal) => {
                    carry_out(pending, &journal, watch)?;
                }
                None => step_back(pending)?,
            }
            Ok(true)
        }
        State::Undoing => {
            go_back(pending, watch)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Brings back what the newest apply replaced, removed or changed, also when it was
/// interrupted. Refuses where the host changed since, unless forced.
pub fn undo(
    pending: &mut Pending,
    force: bool,
    watch: &mut Observer<'_>,
) -> Result<u64, ApplyError> {
    let _lock = pending.lock()?;
    match pending.meta().state {
        State::Discarded => return Err(ApplyError::Discarded),
        State::Undoing => return go_back(pending, watch),
        _ if pending.meta().applies == 0 => return Err(ApplyError::NotApplied),
        _ => {}
    }
    let number = pending.meta().applies;
    let Some(journal) = Journal::read(pending, number)? else {
        step_back(pending)?;
        return Ok(0);
    };
    if journal.is_staged() && !force {
        let mut worker = Worker::new(pending, &journal, watch)?;
        let changed = worker.changed_since().map_err(Failure::undoing)?;
        if !changed.is_empty() {
            return Err(ApplyError::UndoConflicts(changed));
        }
    }
    pending.update(|m| m.state = State::Undoing)?;
    watch.point("state written")?;
    go_back(pending, watch)
}

/// Stages and commits a plan from wherever it stands.
fn carry_out(
    pending: &mut Pending,
    journal: &Journal,
    watch: &mut Observer<'_>,
) -> Result<u64, ApplyError> {
    let mut worker = Worker::new(pending, journal, watch)?;
    if !journal.is_staged() {
        match worker.stage() {
            Ok(()) => {}
            Err(Failure::Interrupted) => return Err(ApplyError::Interrupted),
            Err(failure) => {
                // Nothing is visible yet, so this is as if it had never begun.
                worker.sweep().map_err(Failure::committing)?;
                step_back(pending)?;
                return Err(failure.staging());
            }
        }
        journal.mark_staged()?;
        worker.point("marked as staged")?;
    }
    worker.commit().map_err(Failure::committing)?;
    let owners_kept = worker.owners_kept;
    pending.update(|m| {
        m.state = match journal.header.whole {
            true => State::Applied,
            false => State::Finished,
        };
    })?;
    watch.point("state written")?;
    Ok(owners_kept)
}

/// Undoes the newest apply from wherever it stands.
fn go_back(pending: &mut Pending, watch: &mut Observer<'_>) -> Result<u64, ApplyError> {
    let number = pending.meta().applies;
    let mut undone = 0;
    if let Some(journal) = Journal::read(pending, number)? {
        let mut worker = Worker::new(pending, &journal, watch)?;
        if journal.is_staged() {
            undone = worker.undo().map_err(Failure::undoing)?;
        } else {
            worker.sweep().map_err(Failure::undoing)?;
        }
        worker.restamp()?;
        worker.point("stamps written")?;
    }
    step_back(pending)?;
    Ok(undone)
}

/// Forgets the newest apply.
fn step_back(pending: &mut Pending) -> Result<(), ApplyError> {
    let number = pending.meta().applies;
    pending.update(|m| {
        m.state = State::Finished;
        m.applies = number.saturating_sub(1);
    })?;
    discard_journal(pending, number)
}

fn discard_journal(pending: &Pending, number: u32) -> Result<(), ApplyError> {
    let dir = journal::dir_of(pending, number);
    Ok(remove_path(&dir).map_err(io_error("remove", &dir))?)
}

/// The steps of an apply, and what is to be said about them.
struct Plan {
    check: Check,
    header: Header,
    steps: Vec<Step>,
}

impl Plan {
    fn make(
        pending: &Pending,
        options: &ApplyOptions,
        progress: OnProgress<'_>,
    ) -> Result<Self, ApplyError> {
        let mut planner = Planner::new(pending, options)?;
        let mut count = Counter::new(Stage::Comparing, None, progress);
        let how = Options {
            hash: None,
            same_links: true,
        };
        let mut failed = None;
        diff::examine(pending, how, &mut count, &mut |found| {
            if failed.is_none() {
                failed = planner.add(found).err();
            }
        })?;
        match failed {
            Some(error) => Err(error),
            None => planner.finish(),
        }
    }
}

/// What is known about a host directory that steps work in.
struct Parent {
    root: usize,
    path: PathBuf,
    conflict: Option<Conflict>,
    /// Whether names can be moved between it and the backups.
    movable: bool,
}

struct Planner<'a> {
    pending: &'a Pending,
    options: &'a ApplyOptions,
    hosts: Vec<Arc<OwnedFd>>,
    uppers: Vec<Arc<OwnedFd>>,
    /// The mount that backups are kept on.
    keep: Option<u64>,
    check: Check,
    header: Header,
    steps: Vec<Step>,
    left_out: bool,
    seen: BTreeSet<PathBuf>,
    /// The last directory that was looked into.
    parent: Option<Parent>,
}

impl<'a> Planner<'a> {
    fn new(pending: &'a Pending, options: &'a ApplyOptions) -> Result<Self, ApplyError> {
        let mut hosts = Vec::new();
        let mut uppers = Vec::new();
        let keep = at::open_dir_path(pending.dir()).map_err(io_error("open", pending.dir()))?;
        for root in &pending.meta().roots {
            let (host, upper) = handles(root)?;
            hosts.push(host);
            uppers.push(upper);
        }
        Ok(Self {
            pending,
            options,
            hosts,
            uppers,
            keep: at::mount_id(&keep),
            check: Check::default(),
            header: Header {
                v: 1,
                chosen: options.paths.clone(),
                held: options.held,
                ..Header::default()
            },
            steps: Vec::new(),
            left_out: false,
            seen: BTreeSet::new(),
            parent: None,
        })
    }

    fn add(&mut self, found: Found) -> Result<(), ApplyError> {
        let Found {
            root: number,
            change,
            conflict,
        } = found;
        let root = &self.pending.meta().roots[number];
        if change.kind == ChangeKind::Same {
            if let Some(upper) = change.new {
                self.header.unchanged.push(Unchanged {
                    root: number,
                    path: change.path,
                    upper,
                });
            }
            return Ok(());
        }
        let path = host_path(root, &change);
        let selection = Selection {
            paths: &self.options.paths,
            held: self.options.held,
        };
        let wanted = selection.wants_change(root, &path, &change);
        // A new directory is needed for what was chosen in it.
        let needed = selection.leads_on(&path)
            && change.new.is_some_and(|e| e.is_dir())
            && matches!(change.kind, ChangeKind::Created | ChangeKind::TypeChanged);
        if !wanted && !needed {
            self.left_out = true;
            return Ok(());
        }
        if !wanted {
            self.left_out = true;
        }
        for chosen in self.options.paths.iter().filter(|c| path.starts_with(c)) {
            self.seen.insert(chosen.clone());
        }
        let left_out = change
            .new
            .is_some_and(|e| matches!(e.kind, NodeKind::Socket | NodeKind::Device));
        self.check.changes += u64::from(!left_out);
        self.check.bytes += change
            .new
            .filter(|_| change.kind != ChangeKind::Meta)
            .map_or(0, |e| e.size);
        let conflict = conflict.or(self.parent_conflict(number, &change)?);
        if let Some(conflict) = conflict {
            self.check.conflicts.push((path.clone(), conflict));
        }
        if left_out {
            self.check.skipped.push(path);
            return Ok(());
        }
        let contents = Files {
            host: &self.hosts[number],
            upper: &self.uppers[number],
            change: &change,
        };
        for reason in risk::runs_later(&path, &change, &contents) {
            self.check.flags.push(Flag {
                path: path.clone(),
                reason,
            });
        }
        if !self.is_covered(number, &change) {
            self.step(number, change, conflict.is_some())?;
        }
        Ok(())
    }

    /// Whether the last step already takes this along: everything below what is created,
    /// replaced or removed as a whole.
    fn is_covered(&self, root: usize, change: &Change) -> bool {
        self.steps.last().is_some_and(|step| {
            step.root == root && step.action != Action::Meta && change.path.starts_with(&step.path)
        })
    }

    fn step(&mut self, root: usize, change: Change, forced: bool) -> Result<(), ApplyError> {
        let action = match change.kind {
            ChangeKind::Created => Action::Create,
            ChangeKind::Modified | ChangeKind::TypeChanged => Action::Replace,
            ChangeKind::Meta => Action::Meta,
            ChangeKind::Deleted => Action::Delete,
            ChangeKind::Same => return Ok(()),
        };
        let mut step = Step {
            root,
            path: change.path,
            action,
            old: change.old,
            new: change.new,
            attributes: Default::default(),
            movable: self.parent.as_ref().is_some_and(|p| p.movable),
            forced,
        };
        if action == Action::Meta {
            let dir = openat2::dir_beneath(&self.hosts[root], step.parent());
            let (own, _) = dir
                .and_then(|dir| attributes(dir, step.name(), false))
                .map_err(|source| ApplyError::Staging {
                    path: step.path.clone(),
                    source,
                })?;
            step.attributes = (&own).into();
            // A file that stays in place can be given further names.
            if let Some(upper) = step.new.filter(|e| e.nlink > 1 && e.kind == NodeKind::File) {
                self.header.unchanged.push(Unchanged {
                    root,
                    path: step.path.clone(),
                    upper,
                });
            }
        }
        self.steps.push(step);
        Ok(())
    }

    /// Looks whether the directory of a change can be reached on the host, and notes it if it
    /// has to be opened for us.
    fn parent_conflict(
        &mut self,
        root: usize,
        change: &Change,
    ) -> Result<Option<Conflict>, ApplyError> {
        let parent = change.path.parent().unwrap_or(Path::new(""));
        if self.is_covered(root, change) {
            return Ok(None);
        }
        if let Some(known) = &self.parent
            && (known.root, known.path.as_path()) == (root, parent)
        {
            return Ok(known.conflict);
        }
        let host = &self.hosts[root];
        // An overlay does not show what is mounted below its lower directory; a copy has it.
        let dir = match self.pending.meta().roots[root].kind {
            RootKind::Overlay => openat2::dir_beneath_on_mount(host, parent),
            RootKind::Copy => openat2::dir_beneath(host, parent),
        };
        let mut movable = false;
        let conflict = match dir {
            Ok(dir) => {
                let stat = at::stat(&dir, "").map_err(|source| ApplyError::Staging {
                    path: change.path.clone(),
                    source,
                })?;
                let me = substrate_sys::identity::effective_user_id();
                if me != 0 && stat.uid == me && stat.mode & 0o300 != 0o300 {
                    self.header.opened.push(Opened {
                        root,
                        path: parent.to_owned(),
                        mode: stat.mode & 0o7777,
                    });
                }
                movable = self.keep.is_some() && self.keep == at::mount_id(&dir);
                None
            }
            Err(e) if e.kind() == io::ErrorKind::CrossesDevices => Some(Conflict::OtherMount),
            Err(_) => Some(Conflict::ParentGone),
        };
        self.parent = Some(Parent {
            root,
            path: parent.to_owned(),
            conflict,
            movable,
        });
        Ok(conflict)
    }

    fn finish(mut self) -> Result<Plan, ApplyError> {
        if let Some(nothing) = self.options.paths.iter().find(|p| !self.seen.contains(*p)) {
            return Err(ApplyError::NotChanged(nothing.clone()));
        }
        self.header.whole = !self.left_out;
        self.header.entries = self.check.changes;
        Ok(Plan {
            check: self.check,
            header: self.header,
            steps: self.steps,
        })
    }
}

/// The two sides of one change, read when a name alone does not decide.
struct Files<'a> {
    host: &'a Arc<OwnedFd>,
    upper: &'a Arc<OwnedFd>,
    change: &'a Change,
}

impl Files<'_> {
    fn dir(&self, side: &OwnedFd) -> Option<OwnedFd> {
        let parent = self.change.path.parent().unwrap_or(Path::new(""));
        openat2::dir_beneath(side, parent).ok()
    }

    fn name(&self) -> &OsStr {
        self.change.path.file_name().unwrap_or_default()
    }
}

impl Contents for Files<'_> {
    fn read(&self) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let all = |file: fs::File| {
            let mut text = Vec::new();
            file.take(MANIFEST_LIMIT).read_to_end(&mut text).ok()?;
            Some(text)
        };
        let old = self
            .change
            .old
            .and_then(|_| bounded::open_at(self.dir(self.host)?, self.name()).ok())
            .and_then(all);
        let new = self
            .change
            .new
            .and_then(|e| open_own(self.dir(self.upper)?, self.name(), e.mode).ok())
            .and_then(all);
        (old, new)
    }

    fn has_capability(&self) -> bool {
        self.dir(self.upper)
            .is_some_and(|dir| has_capability(dir, self.name()))
    }
}
