//! What a world's files look like: a policy's terms laid over the host's tree as one sorted
//! list of places. Nothing is mounted here; `steps` turns the list into system calls.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use substrate_policy::terms::{HomeMode, WorldSpec};
use substrate_sys::real_path::real_path;

use crate::expand::{self, Expansion};
use crate::mountinfo::{self, Mount};

/// Directories that every world has to itself.
const PRIVATE: [&str; 2] = ["/run", "/tmp"];

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

/// Lays out a world.
pub fn lay_out(spec: &WorldSpec, placement: Placement, host: &Host) -> Layout {
    let mut layout = Layout::default();
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
    let writable = layout.write_roots(spec);
    for root in &writable {
        if layout.places.get(root).is_some_and(What::is_own) || root.starts_with("/dev") {
            // `/tmp` and `/dev/shm` in `fs.write` mean the world's own, which are writable anyway.
            continue;
        }
        if root == Path::new("/var/tmp") {
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
        layout.put_held(spec);
    }
    layout.put_project(spec);
    layout.put_home(spec);
    for path in &spec.share {
        match real_path(path) {
            Ok(real) => {
                let writable = writable.iter().any(|root| real.starts_with(root));
                layout.places.insert(real, What::Host { writable });
            }
            Err(error) => layout.note("share", path, &error.to_string()),
        }
    }
    layout.admit_sockets(spec);
    layout.protect(spec, placement);
    layout.hide(spec, host);
    layout.hide_sockets(spec, host);
    for (path, content) in &host.files {
        layout.put_file(path, content);
    }
    layout
}

impl Layout {
    fn note(&mut self, what: &str, path: &Path, why: &str) {
        self.notes.push(format!("{what} {}: {why}", path.display()));
    }

    /// The roots of `fs.write`, real paths, outermost only. A missing one is made if it is the
    /// user's to make.
    fn write_roots(&mut self, spec: &WorldSpec) -> Vec<PathBuf> {
        let mut roots = Vec::new();
        for path in &spec.write {
            if path == Path::new("/") {
                roots.extend(top_level());
                continue;
            }
            if fs::symlink_metadata(path).is_err()
                && path.starts_with(&spec.home)
                && path.parent().is_some_and(is_ours)
            {
                use std::os::unix::fs::DirBuilderExt;
                let _ = fs::DirBuilder::new().mode(0o700).create(path);
            }
            match real_path(path) {
                Ok(real) if real == Path::new("/") => roots.extend(top_level()),
                Ok(real) => roots.push(real),
                Err(error) => self.note("write", path, &error.to_string()),
            }
        }
        roots.sort();
        roots.dedup();
        let mut outermost: Vec<PathBuf> = Vec::new();
        for root in roots {
            // A root below a private directory is not covered by it.
            let covered = outermost.iter().any(|outer| {
                root.starts_with(outer) && !self.places.get(outer).is_some_and(What::is_own)
            });
            if !covered {
                outermost.push(root);
            }
        }
        outermost
    }

    /// What is held besides the roots of `fs.write`.
    fn put_held(&mut self, spec: &WorldSpec) {
        let mut found = Vec::new();
        for path in &spec.hold {
            match real_path(path) {
                Ok(real) if real == Path::new("/") => found.extend(top_level()),
                Ok(real) if spec.read.iter().any(|root| real.starts_with(root)) => found.push(real),
                Ok(_) => self.note("write", path, "is outside what fs.read names"),
                Err(error) => self.note("write", path, &error.to_string()),
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
    }

    /// A project in a directory that the world has to itself would not be there at all, even
    /// where the policy only keeps it from being written.
    fn put_project(&mut self, spec: &WorldSpec) {
        let Some(Ok(real)) = spec.project.as_ref().map(real_path) else {
            return;
        };
        let covered = matches!(self.nearest(&real), Some((place, What::Private)) if place != real);
        if covered && spec.read.iter().any(|root| real.starts_with(root)) {
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
        if home != Path::new("/") && !covered && !self.places.contains_key(&home) {
            self.places.insert(home, What::Held { apart: true });
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

    fn admit_sockets(&mut self, spec: &WorldSpec) {
        for path in &spec.sockets {
            match real_path(path) {
                Ok(real) => {
                    self.places.insert(real, What::Host { writable: false });
                }
                Err(error) => self.note("socket", path, &error.to_string()),
            }
        }
    }

    fn protect(&mut self, spec: &WorldSpec, placement: Placement) {
        let found = expand::expand(&spec.protect);
        self.note_cut_short("protect", &found);
        for path in real_paths(&found) {
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
                for dir in path.ancestors().skip(1).take_while(|dir| *dir != place) {
                    self.places.entry(dir.to_owned()).or_insert(What::Anchored);
                }
            }
        }
    }

    /// What must not be seen, wherever it can be seen.
    fn hide(&mut self, spec: &WorldSpec, host: &Host) {
        let found = expand::expand(&spec.hide);
        self.note_cut_short("hide", &found);
        let mut hidden = real_paths(&found);
        hidden.extend(real_path(&spec.substrate_home));
        for path in hidden {
            for alias in mountinfo::aliases(&host.mounts, &path) {
                self.hide_one(&alias);
            }
            self.hide_one(&path);
        }
        self.missing_hidden = found.missing;
    }

    fn hide_one(&mut self, path: &Path) {
        self.drop_below(path);
        self.places.remove(path);
        // The kernel shows much of the same in the world's own view of it.
        let kernel = matches!(self.nearest(path), Some((_, What::Proc | What::Sys)));
        if !self.shows_host(path) && !kernel {
            return;
        }
        let what = match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_dir() => What::NoDirectory,
            Ok(_) => What::NoFile,
            Err(_) => return,
        };
        self.places.insert(path.to_owned(), what);
    }

    fn drop_below(&mut self, path: &Path) {
        self.places
            .retain(|place, _| place == path || !place.starts_with(path));
    }

    fn hide_sockets(&mut self, spec: &WorldSpec, host: &Host) {
        let admitted: Vec<PathBuf> = spec
            .sockets
            .iter()
            .chain(&spec.share)
            .filter_map(|path| real_path(path).ok())
            .collect();
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

    fn note_cut_short(&mut self, what: &str, found: &Expansion) {
        if let Some(path) = &found.cut_short {
            self.note(what, path, "too many files; the rest was not searched");
        }
    }
}

/// Real paths of what was found: a mount goes to what a symlink names, and the link itself
/// says nothing that must be hidden.
fn real_paths(found: &Expansion) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = found
        .paths
        .iter()
        .filter_map(|path| real_path(path).ok())
        .filter(|path| path != Path::new("/"))
        .collect();
    paths.sort();
    paths.dedup();
    paths
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
