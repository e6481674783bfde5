//! Which paths of a result take part.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use substrate_sys::at;

use crate::apply_error::ApplyError;
use crate::change::Change;
use crate::diff::base_of;
use crate::pending::io_error;
use crate::root::Root;

/// Which paths take part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Selection<'a> {
    pub paths: &'a [PathBuf],
    pub held: bool,
}

impl Selection<'_> {
    /// Whether this path was asked for.
    pub(crate) fn wants(&self, root: &Root, path: &Path) -> bool {
        if self.paths.is_empty() {
            return self.held || !root.holds(path);
        }
        self.paths.iter().any(|chosen| path.starts_with(chosen))
    }

    /// The same for a change, which may be more than its path lets be written.
    pub(crate) fn wants_change(&self, root: &Root, path: &Path, change: &Change) -> bool {
        let held = self.paths.is_empty() && root.holds_change(path, change);
        self.wants(root, path) && (self.held || !held)
    }

    /// Whether something below this path was asked for.
    pub(crate) fn leads_on(&self, path: &Path) -> bool {
        self.paths.iter().any(|chosen| chosen.starts_with(path))
    }
}

/// The host's and the world's side of a root, as directories.
pub(crate) fn handles(root: &Root) -> Result<(Arc<OwnedFd>, Arc<OwnedFd>), ApplyError> {
    let base = base_of(root);
    let open = |path: &Path| at::open_dir_path(path).map_err(io_error("open", path));
    let host = open(base)?;
    if !root.single {
        let now = fs::symlink_metadata(base).map_err(io_error("look at", base))?;
        if (now.dev(), now.ino()) != root.identity {
            return Err(ApplyError::RootReplaced(root.target.clone()));
        }
    }
    let upper = match root.single {
        true => open(root.upper.parent().unwrap_or(&root.upper))?,
        false => open(&root.upper)?,
    };
    Ok((Arc::new(host), Arc::new(upper)))
}
