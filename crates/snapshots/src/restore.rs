//! Making a directory look as it did.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use substrate_sys::at;
use thiserror::Error;

use crate::store::Store;
use crate::tree::{Entry, Kind, Tree};

/// Why a tree could not be put in place.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// A content of the snapshot is not there any more.
    #[error("the snapshot's content of {} is gone; it was pruned", .0.display())]
    Gone(PathBuf),
    /// A content of the snapshot is another one.
    #[error("the snapshot's content of {} was altered", .0.display())]
    Altered(PathBuf),
    /// A file could not be changed.
    #[error("cannot put back {}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Changes what is below `place` from how it is, `now`, to how it was, `then`. What both leave
/// out stays as it is.
pub fn restore(store: &Store, now: &Tree, then: &Tree, place: &Path) -> Result<u64, RestoreError> {
    let mut changes = 0;
    // What is below goes before what it is below of.
    for (path, entry) in now.entries.iter().rev() {
        let same_kind = then.entries.get(path).is_some_and(|old| {
            matches!((&old.kind, &entry.kind), (Kind::Dir, Kind::Dir)) || old == entry
        });
        if same_kind {
            continue;
        }
        let whole = place.join(path);
        let removed = match entry.kind {
            // One that still has ignored names in it stays for them.
            Kind::Dir => fs::remove_dir(&whole).or_else(|error| match error.kind() {
                io::ErrorKind::DirectoryNotEmpty => Ok(()),
                _ => Err(error),
            }),
            _ => fs::remove_file(&whole),
        };
        removed.map_err(|source| RestoreError::Io {
            path: whole,
            source,
        })?;
        changes += u64::from(!then.entries.contains_key(path));
    }
    for (path, entry) in &then.entries {
        let whole = place.join(path);
        match now.entries.get(path) {
            Some(same) if same == entry && same.modified == entry.modified => continue,
            // Only the time of writing differs.
            Some(same) if same == entry => {}
            _ => {
                put(store, &whole, entry)?;
                changes += 1;
            }
        }
        if matches!(entry.kind, Kind::File(_)) {
            date(&whole, entry).map_err(|source| RestoreError::Io {
                path: whole,
                source,
            })?;
        }
    }
    Ok(changes)
}

fn date(path: &Path, entry: &Entry) -> io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default();
    at::set_mtime(at::open_dir_path(parent)?, name, entry.modified)
}

fn put(store: &Store, path: &Path, entry: &Entry) -> Result<(), RestoreError> {
    let failed = |source| RestoreError::Io {
        path: path.to_owned(),
        source,
    };
    match &entry.kind {
        Kind::Dir => match fs::create_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(failed)?,
        },
        Kind::Link(target) => return symlink(target, path).map_err(failed),
        Kind::File(hash) => {
            let content = match store.content(hash) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(RestoreError::Gone(path.to_owned()));
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(RestoreError::Altered(path.to_owned()));
                }
                read => read.map_err(failed)?,
            };
            let mut file = File::create_new(path).map_err(failed)?;
            file.write_all(&content).map_err(failed)?;
        }
    }
    fs::set_permissions(path, Permissions::from_mode(entry.mode)).map_err(failed)
}
