//! Who we are to the file system, and what that lets us do.

use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::{getegid, geteuid};

/// The effective user and group.
pub fn identity() -> (u32, u32) {
    (geteuid().as_raw(), getegid().as_raw())
}

/// Whether the effective user may write to a path.
pub fn writable(path: &Path) -> bool {
    accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}
