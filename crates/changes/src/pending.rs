//! The results of isolated worlds that nobody has settled yet, one directory each.
//!
//! `<home>/worlds/<wld_id>/meta.json` says where the result came from and where its
//! writes lie; the writes themselves are below it, one numbered directory a root. How the
//! command ended, and that the result was thrown away, is told by symlinks beside it: replacing a file makes some file systems
//! write it out at once, and every isolated command would wait for that; a symlink is whole or
//! not there, and has room on a full disk.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use substrate_world::backend::Held;
use substrate_world::error::{Cause, WorldError};
use thiserror::Error;

use substrate_sys::real_path::real_path;
use substrate_sys::{at, clock};
use substrate_trace::WorldId;

use crate::entry::Moment;
use crate::manifest;
use crate::owner::Owner;
use crate::root::{Root, RootKind};
use substrate_text::wire;

pub(crate) const META: &str = "meta.json";
const EXIT: &str = "exit";
const NO_EXIT: &str = "-";
/// What the names of results start with that nobody needs any more. No id starts like this.
const ASIDE: &str = ".aside-";
/// Fresh directories for the next result, made while nobody waits. It is aside too: whoever clears up
/// takes it for rubbish.
const READY: &str = ".aside-ready";
/// The mode of an upper directory. Most directories are like this, and need not be changed then.
const UPPER: u32 = 0o755;
/// Its being there says that the result was thrown away.
pub(crate) const DISCARDED: &str = "discarded";

/// What went wrong with a pending result.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PendingError {
    /// A step on the file system failed.
    #[error("cannot {step} {}: {source}", path.display())]
    Io {
        /// What was being done.
        step: &'static str,
        /// To which path.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The description of a result cannot be understood.
    #[error("{} is damaged ({reason}); `substrate world gc` removes it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// No result has this id.
    #[error("no pending result is called {0:?}; `substrate world status` lists them")]
    Unknown(String),
    /// Several results start like this.
    #[error("{id:?} could be any of {}; give more of the id", candidates.join(", "))]
    Ambiguous {
        /// What was asked for.
        id: String,
        /// The world ids it could mean.
        candidates: Vec<String>,
    },
    /// Another process is working on this result.
    #[error("another substrate is working on {}; try again when it is done", .0.display())]
    Busy(PathBuf),
    /// Nobody can look around in it now.
    #[error("this result cannot be explored: {0}")]
    NotExplorable(&'static str),
    /// An id that cannot be a directory name.
    #[error("{0:?} is not a world id")]
    BadId(String),
}

impl From<PendingError> for WorldError {
    fn from(error: PendingError) -> Self {
        WorldError::Held(Cause::new(error))
    }
}

pub(crate) fn io_error(step: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PendingError {
    let path = path.to_owned();
    move |source| PendingError::Io { step, path, source }
}

/// How far a result has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The command still runs, or its owner died with it.
    Running,
    /// The command is done and its writes wait for a decision.
    Finished,
    /// An apply was begun; it can be finished or undone.
    Applying,
    /// Everything is on the host; the backups for `undo` are kept.
    Applied,
    /// An undo was begun; it can only be finished.
    Undoing,
    /// Thrown away; what is left is rubbish.
    Discarded,
}

/// What is known about a pending result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// Version of this shape.
    pub v: u32,
    /// The world.
    pub world_id: String,
    /// The span of the command.
    pub span_id: String,
    /// When the world was made, in the clock of the file system.
    pub created: Moment,
    /// Whether `created` is finer than a tick, so that a later change is never stamped earlier.
    pub fine: bool,
    /// The policy that asked for the world.
    pub policy_id: String,
    /// Where the command ran.
    #[serde(with = "wire")]
    pub cwd: PathBuf,
    /// The command line.
    #[serde(with = "wire")]
    pub cmd: OsString,
    /// How far it has come.
    pub state: State,
    /// Exit status of the command, 128+n for a signal.
    pub exit: Option<i32>,
    /// The process that runs the world.
    pub owner: Owner,
    /// The places whose writes are held.
    pub roots: Vec<Root>,
    /// Number of the newest apply that has not been undone.
    #[serde(default)]
    pub applies: u32,
    /// Since when somebody has looked around in it with a shell: what was recorded of its
    /// changes may be out of date.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explored: Option<Moment>,
}

/// What the maker of a world knows when it asks for a place for the writes.
#[derive(Debug, Clone)]
pub struct NewPending {
    /// The world.
    pub world_id: String,
    /// The span of the command.
    pub span_id: String,
    /// The policy that asked for the world.
    pub policy_id: String,
    /// Where the command runs.
    pub cwd: PathBuf,
    /// The command line.
    pub cmd: OsString,
}

/// Where the writes of a root go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootPaths {
    /// Number of the root within the result.
    pub index: usize,
    /// Upper directory, made with the mode, owner and times of the target; or where the copy goes.
    pub upper: PathBuf,
    /// Work directory on the same file system.
    pub work: PathBuf,
}

/// The result of one isolated world.
#[derive(Debug, Clone)]
pub struct Pending {
    dir: PathBuf,
    meta: Meta,
    /// The description on disk is this one.
    saved: bool,
}

impl Pending {
    /// Makes the directory of a new result. Its moment of creation is what later changes of
    /// the host are measured against, so call this before the world can read anything. Its
    /// description is written with [`Pending::begin`].
    pub fn create(home: &Path, new: NewPending) -> Result<Self, PendingError> {
        check_id(&new.world_id)?;
        let worlds = worlds_dir(home);
        private_dir_all(&worlds)?;
        let dir = worlds.join(&new.world_id);
        if !take_ready(&worlds, &dir) {
            private_dir(&dir).map_err(io_error("make the directory", &dir))?;
        }
        let (created, fine) = now_on(&dir)?;
        Ok(Self {
            meta: Meta {
                v: 1,
                world_id: new.world_id,
                span_id: new.span_id,
                created,
                fine,
                policy_id: new.policy_id,
                cwd: new.cwd,
                cmd: new.cmd,
                state: State::Running,
                exit: None,
                owner: Owner::current(),
                roots: Vec::new(),
                applies: 0,
                explored: None,
            },
            dir,
            saved: false,
        })
    }

    /// Writes the description down, once all roots are there and before the world starts.
    pub fn begin(&mut self) -> Result<(), PendingError> {
        if self.saved {
            return Ok(());
        }
        // Not synced: until something is applied, losing a result to a power failure
        // loses nothing of the host's, and an overlay mounted `volatile` is lost anyway.
        self.save(false)
    }

    /// Adds a place whose writes are to be held. The target must exist.
    pub fn add_root(
        &mut self,
        target: &Path,
        kind: RootKind,
        held: bool,
    ) -> Result<RootPaths, PendingError> {
        let dir = self.dir.clone();
        self.add_root_in(&dir, target, kind, held)
    }

    /// Notes that the policy lets a place below a held root be written.
    pub fn open_below(&mut self, root: usize, place: PathBuf) {
        if let Some(root) = self.meta.roots.get_mut(root) {
            root.open.push(place);
            self.saved = false;
        }
    }

    /// As [`Pending::add_root`], with the writes kept below `store`, for a target whose
    /// writes cannot be held in Substrate's home.
    pub fn add_root_in(
        &mut self,
        store: &Path,
        target: &Path,
        kind: RootKind,
        held: bool,
    ) -> Result<RootPaths, PendingError> {
        let target = real_path(target).map_err(io_error("find", target))?;
        let host = fs::symlink_metadata(&target).map_err(io_error("look at", &target))?;
        let index = self.meta.roots.len();
        let base = if store == self.dir {
            store.to_owned()
        } else {
            store.join(format!("{}-{index}", self.meta.world_id))
        };
        let [work, upper] = places(&base, index);
        let upper = match (kind, target.file_name()) {
            (RootKind::Copy, Some(name)) if !host.is_dir() => upper.join(name),
            _ => upper,
        };
        match kind {
            RootKind::Overlay => {
                private_dir_all(&work)?;
                upper_dir(&upper).map_err(io_error("make the directory", &upper))?;
                // The upper directory's own metadata is what the world sees on the root.
                crate::copy::copy_dir_meta(&target, &upper)
                    .map_err(io_error("copy the metadata of", &target))?;
            }
            RootKind::Copy => {
                // A copy is made where nothing is yet.
                let _ = fs::remove_dir(&upper);
                private_dir_all(upper.parent().unwrap_or(&base))?;
            }
        }
        self.meta.roots.push(Root {
            target,
            upper: upper.clone(),
            work: work.clone(),
            kind,
            held,
            open: Vec::new(),
            single: !host.is_dir(),
            identity: (host.dev(), host.ino()),
            copied: None,
        });
        self.saved = false;
        if kind == RootKind::Copy {
            // Copying takes its time, and nobody must take the result for rubbish meanwhile.
            self.begin()?;
        }
        Ok(RootPaths { index, upper, work })
    }

    /// Gives an overlay that is mounted again an empty work directory: one that was mounted
    /// `volatile` before is refused.
    pub fn renew_work(&self, root: &Root) -> Result<(), PendingError> {
        crate::remove::remove_path(&root.work).map_err(io_error("remove", &root.work))?;
        private_dir_all(&root.work)
    }

    /// Notes that somebody is about to look around in the result. Refuses where its changes
    /// are, in part or as a whole, on the host already.
    pub fn explore(&mut self) -> Result<PendingLock, PendingError> {
        let lock = self.lock()?;
        let refused = match self.meta.state {
            _ if self.is_running() => Some("its command still runs"),
            State::Discarded => Some("it was discarded"),
            State::Applied => Some("it was applied"),
            State::Applying | State::Undoing => Some("an apply of it was interrupted"),
            State::Running | State::Finished if self.meta.applies > 0 => {
                Some("a part of it was applied; undo that first")
            }
            State::Running | State::Finished => None,
        };
        if let Some(why) = refused {
            return Err(PendingError::NotExplorable(why));
        }
        let (now, _) = now_on(&self.dir)?;
        self.meta.state = State::Finished;
        self.meta.owner = Owner::current();
        // Several visits count as one that began with the first, if the last was cut short.
        self.meta.explored = self.meta.explored.or(Some(now));
        self.save(false)?;
        Ok(lock)
    }

    /// Notes that what was recorded of its changes is up to date again.
    pub fn explored(&mut self) -> Result<(), PendingError> {
        self.meta.explored = None;
        self.save(false)
    }

    /// Notes that the copy of a root is complete and the world may start to change it, and
    /// which names it has: what the host makes later is not among them, so the world did not
    /// delete it.
    pub fn mark_copied(&mut self, index: usize) -> Result<(), PendingError> {
        let (now, _) = now_on(&self.dir)?;
        if let Some(root) = self.meta.roots.get_mut(index) {
            root.copied = Some(now);
            let names = manifest::path_of(root);
            manifest::write(&root.upper, &names).map_err(io_error("list", &root.upper))?;
        }
        self.save(false)
    }

    /// Notes that another world of the same session goes on with it; nobody can decide about it meanwhile.
    pub fn reopen(&mut self) -> Result<(), PendingError> {
        let path = self.dir.join(EXIT);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io_error("remove", &path)(error));
            }
            _ => {}
        }
        self.meta.state = State::Running;
        self.meta.exit = None;
        self.meta.owner = Owner::current();
        self.save(false)
    }

    /// Notes that the command is done; its writes now wait for a decision.
    pub fn finish(&mut self, exit: Option<i32>) -> Result<(), PendingError> {
        let first = self.saved && self.meta.state == State::Running;
        self.meta.exit = exit;
        self.meta.state = State::Finished;
        if !first {
            return self.save(false);
        }
        let path = self.dir.join(EXIT);
        let text = exit.map_or_else(|| NO_EXIT.to_owned(), |exit| exit.to_string());
        symlink(text, &path).map_err(io_error("write", &path))
    }

    /// Reads the result in `dir`.
    pub fn load(dir: &Path) -> Result<Self, PendingError> {
        let path = dir.join(META);
        let bytes = fs::read(&path).map_err(io_error("read", &path))?;
        let damaged = |reason: String| PendingError::Damaged {
            path: path.clone(),
            reason,
        };
        let meta: Meta = serde_json::from_slice(&bytes).map_err(|e| damaged(e.to_string()))?;
        if meta.v != 1 {
            return Err(damaged(format!("version {} is not known", meta.v)));
        }
        let mut pending = Self {
            dir: dir.to_owned(),
            meta,
            saved: true,
        };
        if pending.meta.state == State::Running
            && let Some(exit) = ending(dir)
        {
            pending.meta.state = State::Finished;
            pending.meta.exit = exit;
        }
        if fs::symlink_metadata(dir.join(DISCARDED)).is_ok() {
            pending.meta.state = State::Discarded;
        }
        Ok(pending)
    }

    /// All results that can be read, oldest first. Damaged ones are left to `gc`.
    pub fn list(home: &Path) -> Result<Vec<Self>, PendingError> {
        let mut all: Vec<Self> = dirs(&worlds_dir(home))?
            .iter()
            .filter_map(|dir| Self::load(dir).ok())
            .collect();
        all.sort_by(|a, b| {
            (a.meta.created, &a.meta.world_id).cmp(&(b.meta.created, &b.meta.world_id))
        });
        Ok(all)
    }

    /// What a world held back.
    pub fn of(held: &Held) -> Result<Self, PendingError> {
        Self::load(&worlds_dir(&held.home).join(held.world.to_string()))
    }

    /// What others know it by.
    pub fn held(&self) -> Option<Held> {
        let home = self.dir.parent().and_then(Path::parent)?;
        Some(Held {
            world: self.meta.world_id.parse().ok()?,
            home: home.to_owned(),
        })
    }

    /// The result with this span id or world id: all of it, or a start or end that only one has.
    pub fn find(home: &Path, id: &str) -> Result<Self, PendingError> {
        let named = worlds_dir(home).join(id);
        if check_id(id).is_ok() && named.is_dir() {
            return Self::load(&named);
        }
        let all = Self::list(home)?;
        let exact = |p: &&Self| p.meta.world_id == id || p.meta.span_id == id;
        if let Some(found) = all.iter().find(exact) {
            return Ok(found.clone());
        }
        // Ids made within the same minute share their start, so their end is what we show.
        let fits = |full: &str| {
            let bare = full.split_once('_').map_or(full, |(_, rest)| rest);
            !id.is_empty() && (full.starts_with(id) || bare.starts_with(id) || bare.ends_with(id))
        };
        let mut near: Vec<Self> = all
            .into_iter()
            .filter(|p| fits(&p.meta.world_id) || fits(&p.meta.span_id))
            .collect();
        match (near.pop(), near.is_empty()) {
            (None, _) => Err(PendingError::Unknown(id.to_owned())),
            (Some(only), true) => Ok(only),
            (Some(last), false) => {
                near.push(last);
                Err(PendingError::Ambiguous {
                    id: id.to_owned(),
                    candidates: near.into_iter().map(|p| p.meta.world_id).collect(),
                })
            }
        }
    }

    /// The directory of this result.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What is known about it.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Whether the command still runs, or somebody looks around in what it left.
    pub fn is_running(&self) -> bool {
        let busy = self.meta.state == State::Running || self.meta.explored.is_some();
        busy && self.meta.owner.is_alive()
    }

    /// Takes this result for oneself until the lock is dropped, and reads it anew.
    pub fn lock(&mut self) -> Result<PendingLock, PendingError> {
        // The directory itself: a file to lock could not be made on a full disk.
        let path = &self.dir;
        let file = File::open(path).map_err(io_error("open", path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(PendingError::Busy(self.dir.clone())),
            Err(fs::TryLockError::Error(e)) => return Err(io_error("lock", path)(e)),
        }
        *self = Self::load(&self.dir)?;
        Ok(PendingLock { file })
    }

    /// Writes a change of the description so that it survives a crash.
    pub(crate) fn update(&mut self, change: impl FnOnce(&mut Meta)) -> Result<(), PendingError> {
        change(&mut self.meta);
        self.save(true)
    }

    /// Notes that the result is thrown away. Should a power failure undo that, it is there again.
    pub fn forsake(&mut self) -> Result<(), PendingError> {
        self.meta.state = State::Discarded;
        let path = self.dir.join(DISCARDED);
        match symlink(NO_EXIT, &path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other.map_err(io_error("write", &path)),
        }
    }

    /// Takes the result out of the list by another name, which is all that is left of it to be seen.
    pub(crate) fn put_aside(&self) -> io::Result<()> {
        fs::rename(
            &self.dir,
            self.dir
                .with_file_name(format!("{ASIDE}{}", self.meta.world_id)),
        )
    }

    fn save(&mut self, durable: bool) -> Result<(), PendingError> {
        let text = serde_json::to_vec(&self.meta)
            .map_err(|e| io_error("describe", &self.dir)(e.into()))?;
        let path = self.dir.join(META);
        if durable || path.exists() {
            write_atomically(&path, &text, durable)?;
        } else {
            write_new(&path, &text)?;
        }
        self.saved = true;
        Ok(())
    }
}

/// How the command of a result ended, if that was noted.
fn ending(dir: &Path) -> Option<Option<i32>> {
    let note = fs::read_link(dir.join(EXIT)).ok()?;
    match note.to_str()? {
        NO_EXIT => Some(None),
        number => number.parse().ok().map(Some),
    }
}

/// Holds a result against other processes while it lives.
#[derive(Debug)]
pub struct PendingLock {
    file: File,
}

impl Drop for PendingLock {
    fn drop(&mut self) {
        // Closing is not enough: a process that another thread is just starting may still hold
        // the same open file.
        let _ = self.file.unlock();
    }
}

/// The directory that holds all pending results.
pub fn worlds_dir(home: &Path) -> PathBuf {
    home.join("worlds")
}

/// What was put aside and is still there.
pub(crate) fn aside(home: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(worlds_dir(home)).into_iter().flatten();
    entries
        .flatten()
        .filter(|entry| is_aside(&entry.file_name()))
        .map(|entry| entry.path())
        .collect()
}

/// Makes directories ready for the next result, if there are none yet: a file system may take longer
/// for that than a short command runs. No world has seen them before.
pub fn make_ready(home: &Path) -> io::Result<()> {
    let worlds = worlds_dir(home);
    let ready = worlds.join(READY);
    if ready.exists() {
        return Ok(());
    }
    // By a name that nobody else gives; until it is ready, whoever finds it may remove it.
    let new = worlds.join(format!("{READY}-{}", WorldId::new()));
    private_dir(&new)?;
    let [work, upper] = places(&new, 0);
    private_dir(&work)?;
    private_dir(&upper)?;
    fs::set_permissions(&upper, fs::Permissions::from_mode(UPPER))?;
    // Fails where somebody else was faster: a directory replaces only an empty one.
    fs::rename(&new, ready)
}

/// Makes what is ready the directory of a new result.
fn take_ready(worlds: &Path, dir: &Path) -> bool {
    let ready = worlds.join(READY);
    let ours = |ready: &Path| -> io::Result<bool> {
        let ready = at::open_dir_path(ready)?;
        // A directory without a description counts as new by its time.
        at::set_mtime(&ready, "", clock::realtime_coarse()?)?;
        Ok(at::stat(&ready, "")?.uid == substrate_sys::identity::effective_user_id())
    };
    ours(&ready).unwrap_or(false) && fs::rename(ready, dir).is_ok()
}

/// Whether this waits for the next result.
pub(crate) fn is_ready(dir: &Path) -> bool {
    dir.ends_with(READY)
}

/// Where the writes to a root go, and what an overlay needs beside them.
fn places(base: &Path, index: usize) -> [PathBuf; 2] {
    ["work", "upper"].map(|name| base.join(format!("{name}-{index}")))
}

fn is_aside(name: &OsStr) -> bool {
    name.as_bytes().starts_with(ASIDE.as_bytes())
}

/// The directories in a directory, sorted; none if it is not there. What was put aside counts as gone.
pub(crate) fn dirs(dir: &Path) -> Result<Vec<PathBuf>, PendingError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(io_error("list", dir)(e)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io_error("list", dir))?;
        if entry.file_type().is_ok_and(|t| t.is_dir()) && !is_aside(&entry.file_name()) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Writes a file that is not there yet.
fn write_new(path: &Path, bytes: &[u8]) -> Result<(), PendingError> {
    OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(bytes))
        .map_err(io_error("write", path))
}

/// Replaces a file in one step; `durable` also brings it past a power failure.
pub(crate) fn write_atomically(
    path: &Path,
    bytes: &[u8],
    durable: bool,
) -> Result<(), PendingError> {
    let temp = path.with_extension("tmp");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&temp)
        .map_err(io_error("write", &temp))?;
    file.write_all(bytes).map_err(io_error("write", &temp))?;
    if durable {
        file.sync_all().map_err(io_error("sync", &temp))?;
    }
    fs::rename(&temp, path).map_err(io_error("replace", path))?;
    if durable && let Some(dir) = path.parent() {
        File::open(dir)
            .and_then(|d| d.sync_all())
            .map_err(io_error("sync", dir))?;
    }
    Ok(())
}

fn private_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o700).create(dir)
}

fn upper_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .mode(UPPER)
        .recursive(true)
        .create(dir)
}

fn private_dir_all(dir: &Path) -> Result<(), PendingError> {
    fs::DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(dir)
        .map_err(io_error("make the directory", dir))
}

fn check_id(id: &str) -> Result<(), PendingError> {
    let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if id.is_empty() || id.len() > 200 || !id.as_bytes().iter().all(plain) {
        return Err(PendingError::BadId(id.to_owned()));
    }
    Ok(())
}

/// The moment that the file system of `dir` would stamp a change with now, and whether it is
/// finer than a tick. Looking at an inode makes newer kernels stamp its next change from the
/// fine clock, and every change after that, anywhere, with nothing earlier.
fn now_on(dir: &Path) -> Result<(Moment, bool), PendingError> {
    let look = || fs::symlink_metadata(dir).map_err(io_error("look at", dir));
    let tick = || clock::realtime_coarse().map_err(io_error("read the clock for", dir));
    look()?;
    let before = tick()?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))
        .map_err(io_error("change the mode of", dir))?;
    let after = tick()?;
    let now = Moment::changed(&look()?);
    let fine = ![before, after].contains(&(now.0, now.1));
    Ok((now, fine))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    #[test]
    fn what_is_ready_serves_one_new_result() {
        let home = tempfile::tempdir().unwrap();
        let target = tempfile::tempdir().unwrap();
        fs::write(target.path().join("file"), "x").unwrap();
        let inode = |path: &Path| fs::metadata(path).unwrap().ino();
        let ready = worlds_dir(home.path()).join(READY);
        private_dir_all(ready.parent().unwrap()).unwrap();
        make_ready(home.path()).unwrap();
        make_ready(home.path()).unwrap();
        assert_eq!(aside(home.path()), [ready.as_path()]);
        let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
        File::open(&ready).unwrap().set_modified(long_ago).unwrap();
        let was = (inode(&ready), inode(&ready.join("upper-0")));

        let mut first = Pending::create(home.path(), new("wld_1", "s")).unwrap();
        let made = fs::metadata(first.dir()).unwrap();
        assert!(made.modified().unwrap() > long_ago + std::time::Duration::from_secs(3000));
        assert_eq!(made.mode() & 0o7777, 0o700);
        let root = first
            .add_root(target.path(), RootKind::Overlay, false)
            .unwrap();
        assert_eq!((inode(first.dir()), inode(&root.upper)), was);
        assert!(!ready.exists());
        let second = Pending::create(home.path(), new("wld_2", "s")).unwrap();
        assert_eq!(fs::read_dir(second.dir()).unwrap().count(), 0);
    }

    fn new(world: &str, span: &str) -> NewPending {
        NewPending {
            world_id: world.to_owned(),
            span_id: span.to_owned(),
            policy_id: "default".to_owned(),
            cwd: OsString::from_vec(b"/p\xff".to_vec()).into(),
            cmd: OsString::from_vec(b"echo '\xfe\n'".to_vec()),
        }
    }

    #[test]
    fn a_result_is_found_again_with_every_byte() {
        let home = tempfile::tempdir().unwrap();
        let project = home.path().join("project");
        fs::create_dir(&project).unwrap();
        fs::set_permissions(&project, fs::Permissions::from_mode(0o751)).unwrap();
        let mut made = Pending::create(home.path(), new("wld_1", "spn_1")).unwrap();
        let paths = made.add_root(&project, RootKind::Overlay, true).unwrap();
        made.begin().unwrap();
        assert!(Pending::find(home.path(), "spn_1").unwrap().is_running());
        made.finish(Some(3)).unwrap();
        let found = Pending::find(home.path(), "spn_1").unwrap();
        assert_eq!(found.meta(), made.meta());
        assert_eq!(found.meta().cmd.as_bytes(), b"echo '\xfe\n'");
        assert_eq!(
            (found.meta().state, found.meta().exit),
            (State::Finished, Some(3))
        );
        assert!(found.meta().roots[0].held);
        let mode = |p: &Path| fs::metadata(p).unwrap().mode() & 0o7777;
        assert_eq!(mode(found.dir()), 0o700);
        assert_eq!(
            mode(&paths.upper),
            0o751,
            "the world sees the mode of the target"
        );
        assert!(paths.work.is_dir());
    }

    #[test]
    fn ids_may_be_shortened_while_they_are_unique() {
        let home = tempfile::tempdir().unwrap();
        for (world, span) in [("wld_aa11", "spn_x1"), ("wld_aa22", "spn_y1")] {
            let mut made = Pending::create(home.path(), new(world, span)).unwrap();
            made.begin().unwrap();
        }
        let world = |id: &str| Pending::find(home.path(), id).map(|p| p.meta.world_id);
        assert_eq!(world("wld_aa1").unwrap(), "wld_aa11");
        assert_eq!(world("aa2").unwrap(), "wld_aa22");
        assert_eq!(world("spn_y").unwrap(), "wld_aa22");
        assert_eq!(
            world("a11").unwrap(),
            "wld_aa11",
            "the end is shown to people"
        );
        assert!(
            matches!(world("wld_aa"), Err(PendingError::Ambiguous { candidates, .. }) if candidates.len() == 2)
        );
        assert!(matches!(world("zz"), Err(PendingError::Unknown(_))));
        assert!(matches!(world(""), Err(PendingError::Unknown(_))));
    }

    #[test]
    fn an_id_never_leads_out_of_the_home() {
        let home = tempfile::tempdir().unwrap();
        for bad in ["", "../x", "a/b", ".", "a\0"] {
            let made = Pending::create(home.path(), new(bad, "spn"));
            assert!(matches!(made, Err(PendingError::BadId(_))), "{bad:?}");
        }
    }

    #[test]
    fn two_cannot_work_on_one_result() {
        let home = tempfile::tempdir().unwrap();
        let mut one = Pending::create(home.path(), new("wld_1", "spn_1")).unwrap();
        one.begin().unwrap();
        let mut two = one.clone();
        let lock = one.lock().unwrap();
        assert!(matches!(two.lock(), Err(PendingError::Busy(_))));
        one.update(|m| m.state = State::Applied).unwrap();
        drop(lock);
        let _lock = two.lock().unwrap();
        assert_eq!(
            two.meta().state,
            State::Applied,
            "the lock brings the newest state"
        );
    }

    #[test]
    fn an_odd_note_of_the_end_is_no_end() {
        let home = tempfile::tempdir().unwrap();
        let mut made = Pending::create(home.path(), new("wld_1", "spn_1")).unwrap();
        made.begin().unwrap();
        let note = made.dir().join(EXIT);
        for odd in ["x", "1 2", "/etc/passwd"] {
            symlink(odd, &note).unwrap();
            let found = Pending::load(made.dir()).unwrap();
            assert_eq!(found.meta.state, State::Running, "{odd:?}");
            fs::remove_file(&note).unwrap();
        }
        made.finish(None).unwrap();
        let found = Pending::load(made.dir()).unwrap();
        assert_eq!((found.meta.state, found.meta.exit), (State::Finished, None));
    }

    #[test]
    fn only_what_waits_can_be_explored_and_nobody_else_gets_it_meanwhile() {
        let home = tempfile::tempdir().unwrap();
        let mut made = Pending::create(home.path(), new("wld_1", "spn_1")).unwrap();
        made.begin().unwrap();
        assert!(matches!(
            made.explore(),
            Err(PendingError::NotExplorable(_))
        ));
        made.finish(Some(0)).unwrap();
        let lock = made.explore().unwrap();
        assert!(Pending::load(made.dir()).unwrap().is_running());
        assert!(matches!(made.clone().lock(), Err(PendingError::Busy(_))));
        made.explored().unwrap();
        drop(lock);
        assert!(!Pending::load(made.dir()).unwrap().is_running());
        made.update(|m| m.applies = 1).unwrap();
        assert!(matches!(
            made.explore(),
            Err(PendingError::NotExplorable(_))
        ));
    }

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_id() {
        let me = Owner::current();
        assert!(me.is_alive());
        let other = Owner {
            start: me.start + 1,
            ..me
        };
        assert!(!other.is_alive());
        assert_eq!(Owner::of_mark(&me.mark("wld.1")), Some(me));
        for other in ["wld_1", "a.1", "a.b.c", "1.2"] {
            assert_eq!(Owner::of_mark(other), None, "{other}");
        }
    }

    #[test]
    fn the_moment_of_creation_separates_before_from_after() {
        let home = tempfile::tempdir().unwrap();
        let early = home.path().join("early");
        fs::write(&early, "x").unwrap();
        let made = Pending::create(home.path(), new("wld_1", "spn_1")).unwrap();
        let changed = |p: &Path| Moment::changed(&fs::metadata(p).unwrap());
        assert!(changed(&early) <= made.meta.created);
        fs::write(&early, "y").unwrap();
        assert!(changed(&early) >= made.meta.created);
    }
}
