//! How large file systems are.

use std::path::Path;

/// The size of the file system that a path lies in, in bytes.
pub fn size(path: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(path).ok()?;
    found.f_blocks.checked_mul(found.f_frsize)
}
