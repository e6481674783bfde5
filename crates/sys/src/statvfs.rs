//! How large file systems are.

use std::path::Path;

/// How much of the file system that a path lies in is taken, in bytes.
pub fn used(path: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(path).ok()?;
    let blocks = found.f_blocks.saturating_sub(found.f_bfree);
    blocks.checked_mul(found.f_frsize)
}

/// The size of the file system that a path lies in, in bytes.
pub fn size(path: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(path).ok()?;
    found.f_blocks.checked_mul(found.f_frsize)
}
