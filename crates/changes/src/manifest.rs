//! The names that a copy had when the world began: one short hash each.

use std::collections::HashSet;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use substrate_sys::getdents::{self, EntryType};

use crate::entry::Entry;
use crate::root::Root;
use crate::trail::Trail;

/// The names of a copy.
#[derive(Debug)]
pub(crate) struct Manifest(HashSet<u64>);

impl Manifest {
    /// Reads the names of a root's copy; `None` if none were noted.
    pub(crate) fn read(root: &Root) -> io::Result<Option<Self>> {
        match fs::read(path_of(root)) {
            Ok(bytes) => Ok(Some(Self(
                bytes
                    .chunks_exact(8)
                    .map(|c| c.iter().fold(0, |n, &b| n << 8 | u64::from(b)))
                    .collect(),
            ))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether the copy had this name, relative to its root.
    pub(crate) fn has(&self, path: &Path) -> bool {
        self.0.contains(&hash(path))
    }
}

/// Where the names of a root's copy are kept.
pub(crate) fn path_of(root: &Root) -> PathBuf {
    root.work.with_file_name("names")
}

/// Notes all names below a directory; a single file has none.
pub(crate) fn write(top: &Path, to: &Path) -> io::Result<()> {
    let mut out = BufWriter::new(fs::File::create(to)?);
    if !fs::symlink_metadata(top)?.is_dir() {
        return out.flush();
    }
    let mut trail = Trail::open(top)?;
    let mut path = PathBuf::new();
    let mut open = vec![getdents::read_dir(trail.here()?)?];
    while let Some(rest) = open.last_mut() {
        let Some((name, kind)) = rest.pop() else {
            open.pop();
            if !open.is_empty() {
                trail.leave();
                path.pop();
            }
            continue;
        };
        path.push(&name);
        out.write_all(&hash(&path).to_be_bytes())?;
        let dir = match kind {
            EntryType::Dir => true,
            EntryType::Unknown => Entry::look(trail.here()?, &name)?.is_some_and(|e| e.is_dir()),
            EntryType::File | EntryType::Other => false,
        };
        if dir {
            let mode = Entry::look(trail.here()?, &name)?.map_or(0o700, |e| e.mode);
            trail.enter_own(&name, mode)?;
            open.push(getdents::read_dir(trail.here()?)?);
        } else {
            path.pop();
        }
    }
    out.flush()
}

fn hash(path: &Path) -> u64 {
    let digest = Sha256::digest(path.as_os_str().as_bytes());
    digest.iter().take(8).fold(0, |n, &b| n << 8 | u64::from(b))
}
