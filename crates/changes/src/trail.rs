//! A way down into a directory tree, of any depth, with a bounded number of open handles.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use substrate_sys::{at, openat2};

/// Directories nearest the end that stay open; the others are found again when needed.
const KEPT: usize = 24;

/// Open directories from a root down to where one stands.
#[derive(Debug)]
pub(crate) struct Trail {
    root: Arc<OwnedFd>,
    levels: Vec<Level>,
}

#[derive(Debug)]
struct Level {
    name: OsString,
    handle: Option<Arc<OwnedFd>>,
    restore: Option<u32>,
}

impl Trail {
    /// Starts at an open directory.
    pub(crate) fn new(root: OwnedFd) -> Self {
        Self {
            root: Arc::new(root),
            levels: Vec::new(),
        }
    }

    /// Starts at a path, which must be a directory and not a symlink.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self::new(at::open_dir_path(path)?))
    }

    /// The directory one stands in.
    pub(crate) fn here(&mut self) -> io::Result<Arc<OwnedFd>> {
        match self.levels.last() {
            None => return Ok(Arc::clone(&self.root)),
            Some(Level {
                handle: Some(handle),
                ..
            }) => return Ok(Arc::clone(handle)),
            Some(_) => {}
        }
        let path: PathBuf = self.levels.iter().map(|level| &level.name).collect();
        let found = openat2::dir_beneath(&self.root, &path)?;
        let handle = Arc::new(at::open_dir(&found, ".")?);
        if let Some(level) = self.levels.last_mut() {
            level.handle = Some(Arc::clone(&handle));
        }
        Ok(handle)
    }

    /// Goes down into a child.
    pub(crate) fn enter(&mut self, name: &OsStr) -> io::Result<()> {
        let handle = at::open_dir(self.here()?, name)?;
        self.push(name, handle, None);
        Ok(())
    }

    /// Goes down into a child of our own even if its mode forbids that to us; the mode is put
    /// back on the way up.
    pub(crate) fn enter_own(&mut self, name: &OsStr, mode: u32) -> io::Result<()> {
        if mode & 0o500 == 0o500 || substrate_sys::identity::effective_user_id() == 0 {
            return self.enter(name);
        }
        let here = self.here()?;
        at::chmod(&here, name, mode | 0o700)?;
        match at::open_dir(&here, name) {
            Ok(handle) => {
                self.push(name, handle, Some(mode));
                Ok(())
            }
            Err(e) => {
                at::chmod(&here, name, mode)?;
                Err(e)
            }
        }
    }

    /// Whether going up from here puts back a mode that keeps us out.
    pub(crate) fn is_forced(&self) -> bool {
        self.levels.last().is_some_and(|l| l.restore.is_some())
    }

    fn push(&mut self, name: &OsStr, handle: OwnedFd, restore: Option<u32>) {
        if let Some(far) = self.levels.len().checked_sub(KEPT) {
            self.levels[far].handle = None;
        }
        self.levels.push(Level {
            name: name.to_owned(),
            handle: Some(Arc::new(handle)),
            restore,
        });
    }

    /// Goes back up.
    pub(crate) fn leave(&mut self) {
        if let Some(mode) = self.levels.last().and_then(|level| level.restore)
            && let Ok(here) = self.here()
        {
            // The directory may be gone by now, and then there is no mode to put back.
            let _ = at::chmod(here, "", mode);
        }
        self.levels.pop();
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        while !self.levels.is_empty() {
            self.leave();
        }
    }
}
