//! What a world's files look like: a policy's terms laid over the host's tree as one sorted
//! list of places. Nothing is mounted here; `steps` turns the list into system calls.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use substrate_policy::terms::{HomeMode, Mode, PathPattern, WorldSpec};
use substrate_sys::mount::Expected;
use substrate_sys::real_path::real_path;

use crate::expand::{self, Expansion};
use crate::ground::{Astray, Ground};
use crate::mountinfo::{self, Mount};
use substrate_world::error::WorldError;

/// Directories that every world has to itself.
const PRIVATE: [&str; 2] = ["/run", "/tmp"];
/// One that it has to itself where it may write there.
const EVERYBODYS: &str = "/var/tmp";

/// Whether writes to the project are held back or real.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Writes are held back.
    Isolated,
    /// Writes to `fs.write` are real.
    Session,
}

/// What the world sees at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// An empty directory of its own.
    Private,
    /// The device files that programs expect.
    Devices,
    /// Its own processes.
    Proc,
    /// The kernel's view of its own network and of the machine, read-only.
    Sys,
    /// The host's file or directory.
    Host {
        /// Changes are real.
        writable: bool,
    },
    /// The host's directory; changes are held back.
    Held {
        /// Outside what the policy lets be written.
        apart: bool,
    },
    /// What is already there, read-only.
    Protected,
    /// What is already there, fixed in its place: its parent of a protected path could
    /// otherwise be renamed away and made anew.
    Anchored,
    /// A part of the held place around it, fixed where it is: what may be written there is told
    /// from the rest by path, so nothing must be linked, moved or put in its place across the border.
    Fixed,
    /// Nothing: an empty directory that cannot be entered.
    NoDirectory,
    /// Nothing: an empty file.
    NoFile,
    /// A file with these contents, read-only.
    File(Vec<u8>),
}

impl What {
    /// Whether what lies below comes from here and not from the host.
    fn is_own(&self) -> bool {
        matches!(
            self,
            What::Private
                | What::Devices
                | What::Proc
                | What::Sys
                | What::NoDirectory
                | What::NoFile
                | What::File(_)
        )
    }

    fn is_writable(&self) -> bool {
        matches!(
            self,
            What::Private
                | What::Devices
                | What::Host { writable: true }
                | What::Held { .. }
                | What::Anchored
                | What::Fixed
        )
    }
}

/// The places of a world, parents before what is below them.
#[derive(Debug, Default)]
pub struct Layout {
    /// Absolute paths without symlinks.
    pub places: BTreeMap<PathBuf, What>,
    /// What the policy asked for and could not be laid out, for people.
    pub notes: Vec<String>,
    /// Hidden paths that do not exist yet.
    pub missing_hidden: Vec<PathBuf>,
    /// Protected names that nothing has yet, where the world writes the host's own files.
    pub absent: BTreeSet<PathBuf>,
    /// What was found at hidden paths.
    hidden: BTreeMap<PathBuf, Expected>,
    /// Subtrees that may be read.
    pub read: Vec<PathBuf>,
    /// What the policy lets in of the host's, sockets among it.
    pub admitted: Vec<PathBuf>,
}

/// What is known about the host.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// Its mounts.
    pub mounts: Vec<Mount>,
    /// Unix sockets that take connections.
    pub sockets: Vec<PathBuf>,
    /// Files that the world's network needs other contents for.
    pub files: Vec<(PathBuf, Vec<u8>)>,
}

/// Lays out a world. What the policy asks for and cannot be held is refused where it enforces.
pub fn lay_out(spec: &WorldSpec, placement: Placement, host: &Host) -> Result<Layout, WorldError> {
    let mut layout = Layout::default();
    let ground = Ground::of(spec);
    layout.read = layout.lead("fs.read", &spec.read, spec, &ground)?;
    layout.places.insert("/dev".into(), What::Devices);
    layout.places.insert("/proc".into(), What::Proc);
    layout.places.insert("/sys".into(), What::Sys);
    for path in PRIVATE {
        if let Ok(real) = real_path(path)
            && real != Path::new("/")
        {
            layout.places.insert(real, What::Private);
        }
    }
    let writable = layout.write_roots(spec, &ground)?;
    for root in &writable {
        if layout.places.get(root).is_some_and(What::is_own) || root.starts_with("/dev") {
            // `/tmp` and `/dev/shm` in `fs.write` mean the world's own, which are writable anyway.
            continue;
        }
        if root == Path::new(EVERYBODYS) {
            // Everybody's, as `/tmp` is; others' files there are nobody's business.
            layout.places.insert(root.clone(), What::Private);
            continue;
        }
        let what = match placement {
            Placement::Isolated => What::Held { apart: false },
            Placement::Session => What::Host { writable: true },
        };
        layout.places.insert(root.clone(), what);
    }
    if placement == Placement::Isolated {
        layout.put_held(spec, &ground)?;
    }
    layout.put_project(spec);
    layout.put_home(spec);
    for real in layout.lead("fs.share", &spec.share, spec, &ground)? {
        let writable = writable.iter().any(|root| real.starts_with(root));
        layout.places.insert(real.clone(), What::Host { writable });
        layout.admitted.push(real);
    }
    for real in layout.lead("world.sockets", &spec.sockets, spec, &ground)? {
        let what = What::Host { writable: false };
        layout.places.insert(real.clone(), what);
        layout.admitted.push(real);
    }
    // A `.git` that is a file marks a work tree inside the project, and is fixed as that.
    let marks: Vec<PathPattern> = spec
        .project
        .iter()
        .map(|project| marks_below(project))
        .collect();
    let [mut protected, hidden, mut marks] = expand::expand([&spec.protect, &spec.hide, &marks]);
    marks.paths.retain(|path| path.is_file());
    protected.paths.append(&mut marks.paths);
    layout.protect(spec, placement, protected)?;
    layout.hide(spec, host, hidden)?;
    layout.hide_sockets(host);
    for (path, content) in &host.files {
        layout.put_file(path, content);
    }
    Ok(layout)
}

fn marks_below(project: &Path) -> PathPattern {
    let mut pattern = PathPattern::of(project);
    pattern.glob.extend(b"/**/.git");
    pattern
}

impl Layout {
    fn note(&mut self, what: &str, path: &Path, why: &str) {
        self.notes.push(format!("{what} {}: {why}", path.display()));
    }

    /// What cannot be held as the policy says: refused where it enforces, else noted.
    fn give_up(&mut self, spec: &WorldSpec, not_held: NotHeld<'_>) -> Result<(), WorldError> {
        let NotHeld {
            setting,
            path,
            reason,
        } = not_held;
        if spec.mode == Mode::Enforce {
            return Err(WorldError::NotHeld {
                setting: setting.into(),
                path: path.to_owned(),
                reason,
            });
        }
        self.note(setting, path, &reason);
        Ok(())
    }

    /// Where the paths of a setting lead; what leads nowhere is noted, what leads astray is no part
    /// of the world.
    fn lead(
        &mut self,
        setting: &'static str,
        paths: &[PathBuf],
        spec: &WorldSpec,
        ground: &Ground,
    ) -> Result<Vec<PathBuf>, WorldError> {
        let mut found = Vec::new();
        for path in paths {
            match ground.resolve(path) {
                Ok(real) => found.push(real),
                Err(Astray::Missing(error)) => self.note(setting, path, &error.to_string()),
                Err(astray) => {
                    let reason = astray.to_string();
                    let not_held = NotHeld {
                        setting,
                        path,
                        reason,
                    };
                    self.give_up(spec, not_held)?;
                }
            }
        }
        Ok(found)
    }

    /// The roots of `fs.write`, real paths, outermost only. A missing one is made if it is the
    /// user's to make.
    fn write_roots(
        &mut self,
        spec: &WorldSpec,
        ground: &Ground,
    ) -> Result<Vec<PathBuf>, WorldError> {
        for path in &spec.write {
            make_root(path, spec, ground);
        }
        let mut roots = Vec::new();
        for real in self.lead("fs.write", &spec.write, spec, ground)? {
            match real == Path::new("/") {
                true => roots.extend(top_level()),
                false => roots.push(real),
            }
        }
        roots.sort();
        roots.dedup();
        let mut outermost: Vec<PathBuf> = Vec::new();
        for root in roots {
            // A root below a private directory is not covered by it.
            let covered = outermost.iter().any(|outer| {
                let own = self.places.get(outer).is_some_and(What::is_own);
                root.starts_with(outer) && !own && outer != Path::new(EVERYBODYS)
            });
            if !covered {
                outermost.push(root);
            }
        }
        Ok(outermost)
    }

    /// What is held besides the roots of `fs.write`.
    fn put_held(&mut self, spec: &WorldSpec, ground: &Ground) -> Result<(), WorldError> {
        let mut found = Vec::new();
        for real in self.lead("write", &spec.hold, spec, ground)? {
            if real == Path::new("/") {
                found.extend(top_level());
            } else if self.may_read(&real) {
                found.push(real);
            } else {
                self.note("write", &real, "is outside what fs.read names");
            }
        }
        // Outermost first, so that what lies below a held place is held by it.
        found.sort();
        for root in found {
            let held = matches!(self.nearest(&root), Some((_, What::Held { .. })));
            if !held && !self.places.contains_key(&root) {
                self.places.insert(root, What::Held { apart: true });
            }
        }
        Ok(())
    }

    /// A project in a directory that the world has to itself would not be there at all, even
    /// where the policy only keeps it from being written.
    fn put_project(&mut self, spec: &WorldSpec) {
        let Some(Ok(real)) = spec.project.as_ref().map(real_path) else {
            return;
        };
        let covered = matches!(self.nearest(&real), Some((place, What::Private)) if place != real);
        if covered && self.may_read(&real) {
            self.places.insert(real, What::Host { writable: false });
        }
    }

    /// The rest of `$HOME`: an overlay that is kept apart, unless the policy wants it as it is.
    fn put_home(&mut self, spec: &WorldSpec) {
        if spec.home_mode == HomeMode::ReadOnly {
            return;
        }
        let Ok(home) = real_path(&spec.home) else {
            return;
        };
        let covered = self.nearest(&home).is_some_and(|(_, what)| {
            matches!(what, What::Held { .. } | What::Host { writable: true })
        });
        // Nothing could be read back that is written where nothing may be read.
        let below = self.read.iter().any(|root| root.starts_with(&home));
        let covered = covered || !(below || self.may_read(&home));
        if home != Path::new("/") && !covered && !self.places.contains_key(&home) {
            self.places.insert(home, What::Held { apart: true });
        }
    }

    /// Whether all of a path may be read.
    fn may_read(&self, path: &Path) -> bool {
        self.read.iter().any(|root| path.starts_with(root))
    }

    /// The parts of a place that may be read.
    pub fn readable(&self, place: &Path) -> Vec<PathBuf> {
        if self.may_read(place) {
            return vec![place.to_owned()];
        }
        let below = self.read.iter().filter(|root| root.starts_with(place));
        below.cloned().collect()
    }

    /// Leaves a place as the host has it, read-only. In a directory of the world's own it has to be put
    /// in for that.
    pub fn leave_read_only(&mut self, place: &Path) {
        self.places.remove(place);
        if self.shows_host(place) {
            return;
        }
        for part in self.readable(place) {
            let what = What::Host { writable: false };
            self.places.entry(part).or_insert(what);
        }
    }

    /// The place that a path belongs to: itself or the nearest above.
    pub fn nearest(&self, path: &Path) -> Option<(&Path, &What)> {
        path.ancestors().find_map(|dir| {
            self.places
                .get_key_value(dir)
                .map(|(place, what)| (place.as_path(), what))
        })
    }

    /// Hidden paths that do not exist and whose directory the world cannot write: if the host
    /// makes one, it must not show. Where the world may write, its own new files need the
    /// right that would have to be withheld.
    pub fn gaps(&self) -> BTreeSet<PathBuf> {
        let real = |path: &PathBuf| {
            let parent = real_path(path.parent()?).ok()?;
            Some(parent.join(path.file_name()?))
        };
        self.missing_hidden
            .iter()
            .filter_map(real)
            .filter(|path| {
                let near = self.nearest(path);
                !near.is_some_and(|(_, what)| what.is_own() || what.is_writable())
            })
            .collect()
    }

    /// Whether the host's file at this path can be seen in the world.
    fn shows_host(&self, path: &Path) -> bool {
        !self.nearest(path).is_some_and(|(_, what)| what.is_own())
    }

    fn protect(
        &mut self,
        spec: &WorldSpec,
        placement: Placement,
        found: Expansion,
    ) -> Result<(), WorldError> {
        for path in self.whole("fs.protect", spec, &found)? {
            let Some((place, what)) = self.nearest(&path) else {
                continue;
            };
            if !what.is_writable() || what.is_own() {
                continue;
            }
            let place = place.to_owned();
            self.drop_below(&path);
            self.places.insert(path.clone(), What::Protected);
            if placement == Placement::Session {
                self.anchor(&path, &place);
            }
        }
        if placement == Placement::Session {
            for path in found.missing.iter().chain(&found.absent) {
                self.keep_out(path);
            }
        }
        Ok(())
    }

    /// Notes a protected path that does not exist, if it would be made in the host's own directories. Those that
    /// are there on the way stay where they are: renamed away, they would make room for others.
    fn keep_out(&mut self, path: &Path) {
        let there = path.ancestors().skip(1).find_map(|dir| {
            let below = path.strip_prefix(dir).ok()?;
            Some((real_path(dir).ok()?, below))
        });
        let Some((dir, below)) = there else { return };
        let real = dir.join(below);
        let Some((place, what)) = self.nearest(&real) else {
            return;
        };
        if !what.is_writable() || what.is_own() || self.is_held(&real) {
            return;
        }
        let place = place.to_owned();
        let way = dir.ancestors().take_while(|dir| *dir != place);
        for dir in way.map(Path::to_owned).collect::<Vec<_>>() {
            self.places.entry(dir).or_insert(What::Anchored);
        }
        self.absent.insert(real);
    }

    /// Fixes the directories between a path and the place that it lies in: one of them could
    /// otherwise be renamed, and the path with it.
    fn anchor(&mut self, path: &Path, place: &Path) {
        for dir in path.ancestors().skip(1).take_while(|dir| *dir != place) {
            self.places.entry(dir.to_owned()).or_insert(What::Anchored);
        }
    }

    /// What must not be seen, wherever it can be seen.
    fn hide(&mut self, spec: &WorldSpec, host: &Host, found: Expansion) -> Result<(), WorldError> {
        let mut hidden = self.whole("fs.hide", spec, &found)?;
        hidden.extend(real_path(&spec.substrate_home));
        for path in hidden {
            for alias in mountinfo::aliases(&host.mounts, &path) {
                self.hide_one(&alias);
            }
            self.hide_one(&path);
        }
        self.missing_hidden = found.missing;
        Ok(())
    }

    fn hide_one(&mut self, path: &Path) {
        self.drop_below(path);
        self.places.remove(path);
        // The kernel shows much of the same in the world's own view of it.
        let kernel = matches!(self.nearest(path), Some((_, What::Proc | What::Sys)));
        if !self.shows_host(path) && !kernel {
            return;
        }
        let Ok(meta) = fs::symlink_metadata(path) else {
            return;
        };
        let place = self.nearest(path).filter(|(_, what)| what.is_writable());
        if let Some(place) = place.map(|(place, _)| place.to_owned()) {
            self.anchor(path, &place);
        }
        if !kernel {
            // An overlay or a copy gives its files other numbers.
            let expected = match self.is_held(path) {
                true => Expected::Something,
                false => Expected::Same(meta.dev(), meta.ino()),
            };
            self.hidden.insert(path.to_owned(), expected);
        }
        let what = match meta.is_dir() {
            true => What::NoDirectory,
            false => What::NoFile,
        };
        self.places.insert(path.to_owned(), what);
    }

    /// What must be at a hidden path when it is covered. Who renames a directory while a world is made
    /// must not have the cover land elsewhere.
    pub fn expected(&self, path: &Path) -> Expected {
        // Sockets come and go, and not every process or device of the host is there in the world.
        self.hidden.get(path).copied().unwrap_or(Expected::Anything)
    }

    /// Whether a path is seen through an overlay or a copy.
    fn is_held(&self, path: &Path) -> bool {
        let mut places = path.ancestors().filter_map(|dir| self.places.get(dir));
        let over = |what: &&What| !matches!(what, What::Anchored | What::Fixed | What::Protected);
        matches!(places.find(over), Some(What::Held { .. }))
    }

    fn drop_below(&mut self, path: &Path) {
        self.places
            .retain(|place, _| place == path || !place.starts_with(path));
    }

    fn hide_sockets(&mut self, host: &Host) {
        let admitted = self.admitted.clone();
        for path in &host.sockets {
            let Ok(real) = real_path(path) else {
                continue;
            };
            let is_socket = fs::symlink_metadata(&real).is_ok_and(|m| m.file_type().is_socket());
            if !is_socket || admitted.iter().any(|known| real.starts_with(known)) {
                continue;
            }
            for seen in mountinfo::aliases(&host.mounts, &real)
                .into_iter()
                .chain([real])
            {
                if self.shows_host(&seen) {
                    self.places.insert(seen, What::NoFile);
                }
            }
        }
    }

    fn put_file(&mut self, path: &Path, content: &[u8]) {
        let real = where_it_leads(path);
        if !self.shows_host(&real) || fs::symlink_metadata(&real).is_ok() {
            self.places.insert(real, What::File(content.to_owned()));
        } else {
            self.note("file", path, "is not there, so it cannot be replaced");
        }
    }

    /// The real paths of what a setting's patterns stand for, which must be all of them: a mount goes
    /// to what a symlink names, and the link itself says nothing that must be hidden.
    fn whole(
        &mut self,
        setting: &'static str,
        spec: &WorldSpec,
        found: &Expansion,
    ) -> Result<Vec<PathBuf>, WorldError> {
        let mut unknown = found.cut_short.clone();
        let mut paths = Vec::new();
        for path in &found.paths {
            match real_path(path) {
                Ok(real) if real != Path::new("/") => paths.push(real),
                Ok(_) => {}
                Err(error) => unknown = unknown.or(expand::closed(path, &error)),
            }
        }
        if let Some((path, reason)) = unknown {
            let not_held = NotHeld {
                setting,
                path: &path,
                reason,
            };
            self.give_up(spec, not_held)?;
        }
        paths.sort();
        paths.dedup();
        Ok(paths)
    }
}

/// What cannot be held as the policy says.
struct NotHeld<'a> {
    setting: &'static str,
    path: &'a Path,
    reason: String,
}

/// Makes a root that is not there yet, if it lies in the home and is the user's to make.
fn make_root(path: &Path, spec: &WorldSpec, ground: &Ground) {
    use std::os::unix::fs::DirBuilderExt;
    if fs::symlink_metadata(path).is_ok() || !path.starts_with(&spec.home) {
        return;
    }
    if let Some(parent) = path.parent() {
        make_root(parent, spec, ground);
    }
    let parent = path.parent().and_then(|dir| ground.resolve(dir).ok());
    if let (Some(parent), Some(name)) = (parent, path.file_name())
        && is_ours(&parent)
    {
        let _ = fs::DirBuilder::new().mode(0o700).create(parent.join(name));
    }
}

/// Follows symlinks as far as they go, also to a file that is not there: the host's resolver
/// file often is a link into `/run`.
fn where_it_leads(path: &Path) -> PathBuf {
    const MOST_LINKS: usize = 16;
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        if let Ok(real) = real_path(&path) {
            return real;
        }
        let Ok(to) = fs::read_link(&path) else {
            break;
        };
        let Some(Ok(dir)) = path.parent().map(real_path) else {
            break;
        };
        path = lexical(&dir.join(to));
    }
    path
}

/// A path without `.` and `..`, which no directory has to exist for.
fn lexical(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// The directories of `/` that are not special, for a policy that lets all be written.
fn top_level() -> Vec<PathBuf> {
    let special = ["boot", "dev", "lost+found", "proc", "run", "sys", "tmp"];
    let Ok(entries) = fs::read_dir("/") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter(|entry| !special.iter().any(|name| entry.file_name() == *name))
        .map(|entry| entry.path())
        .collect()
}

fn is_ours(dir: &Path) -> bool {
    fs::metadata(dir).is_ok_and(|meta| meta.uid() == substrate_sys::access::identity().0)
}
