//! Settings files: read as what they are, replaced in one step.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use substrate_broker::Home;
use substrate_sys::bounded::{self, Links};
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

/// The text of a settings file; `None` where there is none. A project is somebody else's work, so no link
/// in it is followed.
pub fn read(path: &Path, scope: Scope) -> Result<Option<String>, SetupError> {
    let links = match scope {
        Scope::User => Links::Follow,
        Scope::Project => Links::Refuse,
    };
    if scope == Scope::Project
        && let Some(parent) = path.parent()
        && fs::symlink_metadata(parent).is_ok_and(|meta| !meta.is_dir())
    {
        let error = io::Error::new(io::ErrorKind::NotADirectory, "its directory is none");
        return Err(failed(path, error));
    }
    let bytes = match bounded::read(path, links, LONGEST) {
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

/// Puts a text in a file's place, with the file's rights. Where the user's own file is a link, what it
/// leads to is replaced.
pub fn write(path: &Path, text: &str) -> Result<(), SetupError> {
    let target = real_path(path).unwrap_or_else(|_| path.to_owned());
    let put = || -> io::Result<()> {
        let directory = target.parent().ok_or(io::ErrorKind::NotFound)?;
        fs::create_dir_all(directory)?;
        let mode = fs::metadata(&target).map_or(0o600, |meta| meta.mode() & 0o777);
        let mut name = target.file_name().unwrap_or_default().to_owned();
        name.push(format!(".substrate-{}", std::process::id()));
        let aside = directory.join(name);
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&aside)?;
        let written = file
            .write_all(text.as_bytes())
            .and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&aside, &target));
        if written.is_err() {
            let _ = fs::remove_file(&aside);
        }
        written
    };
    put().map_err(|error| failed(path, error))
}

/// Removes a file that we made.
pub fn remove(path: &Path) -> Result<(), SetupError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path, error)),
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
