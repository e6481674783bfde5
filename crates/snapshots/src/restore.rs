//! Making a directory look as it did.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use substrate_sys::{at, openat2};
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
/// out stays as it is, unless it stands where a directory was: every step is taken from an open directory below
/// `place`, so that no link that somebody left there leads out.
pub fn restore(store: &Store, now: &Tree, then: &Tree, place: &Path) -> Result<u64, RestoreError> {
    let root = at::open_dir_path(place).map_err(failed(place))?;
    let mut changes = 0;
    // What is below goes before what it is below of.
    for (path, entry) in now.entries.iter().rev() {
        let same_kind = then.entries.get(path).is_some_and(|old| {
            matches!((&old.kind, &entry.kind), (Kind::Dir, Kind::Dir)) || old == entry
        });
        if same_kind {
            continue;
        }
        remove(&root, path, &entry.kind).map_err(failed(&place.join(path)))?;
        changes += u64::from(!then.entries.contains_key(path));
    }
    for (path, entry) in &then.entries {
        let whole = place.join(path);
        match now.entries.get(path) {
            Some(same) if same == entry && same.modified == entry.modified => continue,
            // Only the time of writing differs.
            Some(same) if same == entry => {}
            _ => {
                put(store, &root, path, entry, &whole)?;
                changes += 1;
            }
        }
        if matches!(entry.kind, Kind::File(_)) {
            let dated = parent(&root, path)
                .and_then(|(dir, name)| at::set_mtime(dir, name, entry.modified));
            dated.map_err(failed(&whole))?;
        }
    }
    Ok(changes)
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RestoreError + '_ {
    |source| RestoreError::Io {
        path: path.to_owned(),
        source,
    }
}

/// The directory that a path lies in, opened, and its name there.
fn parent<'p>(root: &OwnedFd, path: &'p Path) -> io::Result<(OwnedFd, &'p OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let dir = openat2::dir_beneath(root, path.parent().unwrap_or(Path::new("")))?;
    Ok((dir, name))
}

fn remove(root: &OwnedFd, path: &Path, kind: &Kind) -> io::Result<()> {
    let (dir, name) = parent(root, path)?;
    match kind {
        // One that still has ignored names in it stays for them.
        Kind::Dir => at::rmdir(dir, name).or_else(|error| match error.kind() {
            io::ErrorKind::DirectoryNotEmpty => Ok(()),
            _ => Err(error),
        }),
        _ => at::unlink(dir, name),
    }
}

fn put(
    store: &Store,
    root: &OwnedFd,
    path: &Path,
    entry: &Entry,
    whole: &Path,
) -> Result<(), RestoreError> {
    let (dir, name) = parent(root, path).map_err(failed(whole))?;
    match &entry.kind {
        Kind::Dir => {
            make_dir(&dir, name).map_err(failed(whole))?;
            at::chmod(dir, name, entry.mode).map_err(failed(whole))
        }
        Kind::Link(target) => {
            clear(&dir, name).map_err(failed(whole))?;
            at::symlink(target, dir, name).map_err(failed(whole))
        }
        Kind::File(hash) => {
            let content = match store.content(hash) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(RestoreError::Gone(whole.to_owned()));
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                    return Err(RestoreError::Altered(whole.to_owned()));
                }
                read => read.map_err(failed(whole))?,
            };
            clear(&dir, name).map_err(failed(whole))?;
            let mut file = at::create_new(&dir, name, 0o600).map_err(failed(whole))?;
            file.write_all(&content).map_err(failed(whole))?;
            file.set_permissions(Permissions::from_mode(entry.mode))
                .map_err(failed(whole))
        }
    }
}

/// A directory of that name: the one that is there, or a new one. Whatever else is there, a link that no snapshot
/// knows of among it, goes.
fn make_dir(dir: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match at::open_dir(dir, name) {
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(_) => at::unlink(dir, name)?,
    }
    at::mkdir(dir, name, 0o700)
}

/// Removes what no snapshot knows of and stands in the way; a directory with ignored names in it does not go.
fn clear(dir: &OwnedFd, name: &OsStr) -> io::Result<()> {
    match at::stat(dir, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => at::unlink(dir, name).or_else(|_| at::rmdir(dir, name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fs;

    /// Links that are in no snapshot, because they are ignored, stand where a directory and a file were.
    #[test]
    fn nothing_is_put_behind_a_link_that_leads_out() {
        let top = tempfile::tempdir().unwrap();
        let (place, outside) = (top.path().join("place"), top.path().join("outside"));
        for dir in [&place, &outside] {
            fs::create_dir(dir).unwrap();
        }
        fs::set_permissions(&outside, Permissions::from_mode(0o700)).unwrap();
        let store = Store::open(&top.path().join("home"));
        let entry = |kind, mode| Entry {
            kind,
            mode,
            modified: (0, 0),
        };
        let then = Tree {
            entries: BTreeMap::from([
                ("cfg".into(), entry(Kind::Dir, 0o755)),
                ("cfg/inner".into(), entry(Kind::Dir, 0o755)),
                ("link".into(), entry(Kind::Link("elsewhere".into()), 0o777)),
            ]),
            ..Tree::default()
        };
        for link in ["cfg", "link"] {
            std::os::unix::fs::symlink(&outside, place.join(link)).unwrap();
        }
        restore(&store, &Tree::default(), &then, &place).unwrap();
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
        let mode = outside.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(place.join("cfg/inner").is_dir());
        assert!(!place.join("cfg").is_symlink());
        assert_eq!(
            fs::read_link(place.join("link")).unwrap(),
            Path::new("elsewhere")
        );
    }
}
