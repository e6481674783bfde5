//! Facts about this machine, looked up when a judgement asks and remembered for its duration.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use substrate_compiled::paths::Variables;
use substrate_policy::Facts;
use substrate_sys::real_path::real_path;

use crate::home::{Home, bytes};
use crate::project;

/// How a program start looks from inside the world that it happens in.
pub trait Seen {
    /// The file as the start names it, and the file that is.
    fn program(&self) -> (&[u8], &[u8]);
    /// An absolute path with every link resolved, as far as it exists there.
    fn real(&self, path: &Path) -> Option<PathBuf>;
    /// Where the line began that led to it: its project is the world's.
    fn began(&self) -> &Path;
}

/// What was looked up, for one directory and one `PATH`.
#[derive(Debug, Default)]
pub struct Looked {
    project: OnceCell<Option<PathBuf>>,
    programs: RefCell<HashMap<Vec<u8>, Option<Vec<u8>>>>,
    found: RefCell<Found>,
    real: RefCell<HashMap<Vec<u8>, Option<Vec<u8>>>>,
}

/// The files that plain names were found to mean along `PATH`, links not followed.
pub type Found = HashMap<Vec<u8>, Option<PathBuf>>;

/// The machine as it is.
pub struct Machine<'a> {
    cwd: &'a Path,
    session_start: &'a Path,
    home: &'a Home,
    other_homes: Vec<Vec<u8>>,
    search_path: &'a OsStr,
    seen: Option<&'a dyn Seen>,
    guarded: Cell<bool>,
    looked: Rc<Looked>,
}

impl<'a> Machine<'a> {
    /// Facts for a line that starts in `cwd` with this `PATH`.
    pub fn new(
        cwd: &'a Path,
        session_start: &'a Path,
        home: &'a Home,
        search_path: &'a OsStr,
    ) -> Self {
        Self {
            cwd,
            session_start,
            home,
            other_homes: Vec::new(),
            search_path,
            seen: None,
            guarded: Cell::new(false),
            looked: Rc::default(),
        }
    }

    /// The same with what was looked up a moment ago, in this directory and along this `PATH`.
    #[must_use]
    pub fn having_looked(mut self, looked: Rc<Looked>) -> Self {
        self.looked = looked;
        self
    }

    /// The same where the variable `HOME` may name another directory than the passwd entry.
    #[must_use]
    pub fn with_home(mut self, variable: Option<&[u8]>) -> Self {
        if let Some(home) = self.home.other(variable)
            && !self.other_homes.contains(&home)
        {
            self.other_homes.push(home);
        }
        self
    }

    /// The same for a program start inside a world.
    #[must_use]
    pub fn seen_by(mut self, seen: &'a dyn Seen) -> Self {
        self.seen = Some(seen);
        self.guarded.set(true);
        self
    }

    /// Says that every program start is judged by itself where the line will run.
    pub fn set_guarded(&self) {
        self.guarded.set(true);
    }

    /// The project, as a path.
    pub fn project_path(&self) -> Option<&Path> {
        self.looked
            .project
            .get_or_init(|| {
                let from = self.seen.map_or(self.cwd, Seen::began);
                project::find(from, self.session_start, &self.home.user)
            })
            .as_deref()
    }
}

impl Variables for Machine<'_> {
    fn home(&self) -> Option<&[u8]> {
        Some(bytes(&self.home.user))
    }

    fn other_homes(&self) -> &[Vec<u8>] {
        &self.other_homes
    }

    fn project(&self) -> Option<&[u8]> {
        self.project_path().map(bytes)
    }

    fn substrate_home(&self) -> Option<&[u8]> {
        Some(bytes(&self.home.path))
    }
}

impl Machine<'_> {
    /// What was found along `PATH` for the judgement, so that the same is started.
    pub fn take_found(&self) -> Found {
        self.looked.found.take()
    }
}

impl Facts for Machine<'_> {
    fn cwd(&self) -> &[u8] {
        bytes(self.cwd)
    }

    fn program(&self, typed: &[u8], cwd: &[u8]) -> Option<Vec<u8>> {
        if let Some((name, file)) = self.seen.map(Seen::program)
            && name == typed
        {
            return Some(file.to_vec());
        }
        if let Some(known) = self.looked.programs.borrow().get(typed) {
            return known.clone();
        }
        let found = find_program(
            OsStr::from_bytes(typed),
            self.search_path,
            Path::new(OsStr::from_bytes(cwd)),
        );
        // What a relative path names depends on the directory, so only plain names are remembered.
        let plain = !typed.contains(&b'/');
        if plain {
            let mut all = self.looked.found.borrow_mut();
            all.insert(typed.to_vec(), found.clone());
        }
        let found = found.map(|path| resolve(&path).unwrap_or(path).into_os_string().into_vec());
        if plain {
            self.looked
                .programs
                .borrow_mut()
                .insert(typed.to_vec(), found.clone());
        }
        found
    }

    fn real(&self, path: &[u8]) -> Option<Vec<u8>> {
        if let Some(known) = self.looked.real.borrow().get(path) {
            return known.clone();
        }
        let path_of = Path::new(OsStr::from_bytes(path));
        let found = match self.seen {
            Some(seen) => seen.real(path_of),
            None => resolve(path_of),
        };
        let found = found.map(|path| path.into_os_string().into_vec());
        self.looked
            .real
            .borrow_mut()
            .insert(path.to_vec(), found.clone());
        found
    }

    fn guarded(&self) -> bool {
        self.guarded.get()
    }
}

/// The file that runs for a name, by `PATH`, or for a path.
pub fn find_program(typed: &OsStr, search_path: &OsStr, cwd: &Path) -> Option<PathBuf> {
    if typed.is_empty() {
        return None;
    }
    if typed.as_bytes().contains(&b'/') {
        let path = cwd.join(typed);
        return fs::metadata(&path)
            .is_ok_and(|meta| meta.is_file())
            .then_some(path);
    }
    search_path
        .as_bytes()
        .split(|byte| *byte == b':')
        .find_map(|directory| {
            let directory = if directory.is_empty() {
                b"."
            } else {
                directory
            };
            let candidate = cwd.join(OsStr::from_bytes(directory)).join(typed);
            is_executable(&candidate).then_some(candidate)
        })
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// How many links one path may lead through, as in the kernel.
const MAX_LINKS: usize = 40;

/// The path without links, as `realpath` gives it. That one is the C library's and brings its
/// allocator to life, which costs a shim more than the rest of the question.
fn canonicalize(path: &Path) -> io::Result<PathBuf> {
    if !path.is_absolute() {
        return real_path(path);
    }
    let backwards = |path: &Path| -> Vec<OsString> {
        let names = path.components().rev();
        names.map(|name| name.as_os_str().to_owned()).collect()
    };
    let mut real = PathBuf::from("/");
    let mut rest = backwards(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        // The root is no link and has no parent; a parent is that of what was resolved so far.
        if name == ".." {
            real.pop();
            continue;
        }
        if name == "/" {
            real = PathBuf::from("/");
            continue;
        }
        real.push(&name);
        match fs::read_link(&real) {
            Ok(_) if links == MAX_LINKS => return Err(io::ErrorKind::InvalidInput.into()),
            Ok(target) => {
                links += 1;
                real.pop();
                rest.extend(backwards(&target));
            }
            // It is there, and it is no link.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
            Err(error) => return Err(error),
        }
    }
    Ok(real)
}

/// A path with links resolved; of what does not exist yet, the part that does.
pub fn resolve(path: &Path) -> Option<PathBuf> {
    if let Ok(real) = canonicalize(path) {
        return Some(real);
    }
    let mut missing: Vec<OsString> = vec![path.file_name()?.to_owned()];
    let mut directory = path.parent()?;
    loop {
        if let Ok(mut real) = canonicalize(directory) {
            real.extend(missing.iter().rev());
            return Some(real);
        }
        missing.push(directory.file_name()?.to_owned());
        directory = directory.parent()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_resolved_as_realpath_does_it() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/file"), "").unwrap();
        symlink("a/b", at("relative")).unwrap();
        symlink(at("a"), at("absolute")).unwrap();
        symlink("relative/../b/file", at("through")).unwrap();
        symlink("loop", at("loop")).unwrap();
        symlink("missing", at("dangling")).unwrap();
        for name in [
            "a/b/file",
            "relative/file",
            "relative/..",
            "absolute/b/../b/./file",
            "through",
            "..//./a",
            "loop",
            "loop/x",
            "dangling",
            "a/b/file/x",
            "missing",
            "",
        ] {
            assert_eq!(
                canonicalize(&at(name)).ok(),
                at(name).canonicalize().ok(),
                "{name}"
            );
        }
        assert_eq!(canonicalize(Path::new("/")).unwrap(), Path::new("/"));
    }
}
