//! Settings files: read as what they are, replaced in one step.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use substrate_broker::Home;
use substrate_sys::at::{self, Rename};
use substrate_sys::bounded::{self, Links};
use substrate_sys::openat2;
use substrate_sys::real_path::real_path;

use super::plan::{Link, Scope};
use super::{Problem, SetupError};

/// No settings are larger.
const LONGEST: u64 = 8 << 20;

fn failed(path: &Path, error: io::Error) -> SetupError {
    SetupError::File {
        path: path.to_owned(),
        error,
    }
}

/// Where settings lie, and who may have put links there.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// In the user's own home, whose links are his.
    User,
    /// In a project, which is somebody else's work: below its root no link is followed.
    Project(&'a Path),
}

impl Place<'_> {
    /// Of a scope and its root.
    pub fn of(scope: Scope, root: &Path) -> Place<'_> {
        match scope {
            Scope::User => Place::User,
            Scope::Project => Place::Project(root),
        }
    }

    /// The directory of a file, opened, and its name there; directories that are missing are made if that is wanted.
    fn open(self, path: &Path, make: bool) -> io::Result<(OwnedFd, OsString)> {
        let target = match self {
            Place::User => real_path(path).unwrap_or_else(|_| path.to_owned()),
            Place::Project(_) => path.to_owned(),
        };
        let directory = target.parent().ok_or(io::ErrorKind::NotFound)?;
        let name = target
            .file_name()
            .ok_or(io::ErrorKind::NotFound)?
            .to_owned();
        let open = match self {
            Place::User => {
                if make {
                    fs::create_dir_all(directory)?;
                }
                at::open_dir_path(real_path(directory)?)?
            }
            Place::Project(root) => {
                let below = directory.strip_prefix(root);
                let below = below.map_err(|_| io::ErrorKind::InvalidInput)?;
                beneath(&at::open_dir_path(real_path(root)?)?, below, make)?
            }
        };
        Ok((open, name))
    }
}

/// A directory below another, with no link on the way.
fn beneath(root: &OwnedFd, below: &Path, make: bool) -> io::Result<OwnedFd> {
    let mut done = PathBuf::new();
    for name in below.components() {
        let above = openat2::dir_beneath(root, &done)?;
        done.push(name);
        if make {
            match at::mkdir(above, name, 0o755) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
    }
    openat2::dir_beneath(root, below)
}

/// The text of a settings file; `None` where there is none.
pub fn read(path: &Path, place: Place<'_>) -> Result<Option<String>, SetupError> {
    let absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let (dir, name) = match place.open(path, false) {
        Err(error) if absent(&error) => return Ok(None),
        opened => opened.map_err(|error| failed(path, error))?,
    };
    text_at(&dir, &name, path)
}

fn text_at(dir: &OwnedFd, name: &OsStr, path: &Path) -> Result<Option<String>, SetupError> {
    let opened = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
    let bytes = match bounded::read(&opened, Links::Refuse, LONGEST) {
        Ok(bytes) => bytes,
        Err(error) => {
            let error = io::Error::from(error);
            return match error.kind() {
                io::ErrorKind::NotFound => Ok(None),
                _ => Err(failed(path, error)),
            };
        }
    };
    let text = String::from_utf8(bytes).map_err(|_| SetupError::Settings {
        path: path.to_owned(),
        problem: Problem::NotJson("it is not UTF-8".to_owned()),
    })?;
    Ok(Some(text))
}

/// Puts a text in a file's place, with the file's rights, unless it is not what it was when somebody agreed to that.
pub fn write(
    path: &Path,
    place: Place<'_>,
    before: Option<&str>,
    text: &str,
) -> Result<(), SetupError> {
    let (dir, name) = place
        .open(path, true)
        .map_err(|error| failed(path, error))?;
    if text_at(&dir, &name, path)?.as_deref() != before {
        return Err(changed(path));
    }
    let put = || -> io::Result<()> {
        let mode = at::stat(&dir, &name).map_or(0o600, |stat| stat.mode & 0o777);
        let mut aside = name.clone();
        aside.push(format!(".substrate-{}", std::process::id()));
        let mut file = at::create_new(&dir, &aside, 0o600)?;
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
            .and_then(|()| file.sync_all())
            .and_then(|()| at::rename(&dir, &aside, &dir, &name, Rename::Replace));
        if written.is_err() {
            let _ = at::unlink(&dir, &aside);
        }
        written
    };
    put().map_err(|error| failed(path, error))
}

fn changed(path: &Path) -> SetupError {
    let text = "it was changed meanwhile, so it was left alone; try again";
    failed(path, io::Error::other(text))
}

/// Removes a file that we made, if it still is what it was when somebody agreed to that.
pub fn remove(path: &Path, place: Place<'_>, before: Option<&str>) -> Result<(), SetupError> {
    let absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let (dir, name) = match place.open(path, false) {
        Err(error) if absent(&error) => return Ok(()),
        opened => opened.map_err(|error| failed(path, error))?,
    };
    if before.is_some() && text_at(&dir, &name, path)?.as_deref() != before {
        return Err(changed(path));
    }
    match at::unlink(&dir, &name) {
        Err(error) if !absent(&error) => Err(failed(path, error)),
        _ => Ok(()),
    }
}

/// The directories above a file that are not there yet, outermost first.
pub fn missing_directories(path: &Path) -> Vec<PathBuf> {
    let above = path.ancestors().skip(1);
    let mut missing: Vec<PathBuf> = above
        .take_while(|directory| !directory.exists())
        .map(Path::to_owned)
        .collect();
    missing.reverse();
    missing
}

/// Makes a link in our home that a client starts as a program.
pub fn link(home: &Home, link: &Link) -> Result<(), SetupError> {
    let make = || -> io::Result<()> {
        if let Some(directory) = link.path.parent() {
            home.ensure(directory)?;
        }
        if fs::read_link(&link.path).is_ok_and(|target| target == link.target) {
            return Ok(());
        }
        match fs::remove_file(&link.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        symlink(&link.target, &link.path)
    };
    make().map_err(|error| failed(&link.path, error))
}
