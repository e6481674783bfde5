//! Who we are, and what that lets us do.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The effective user and group.
pub fn identity() -> (u32, u32) {
    // SAFETY: plain system calls without pointers that cannot fail.
    unsafe { (libc::geteuid(), libc::getegid()) }
}

/// Whether the effective user may write to a path.
pub fn writable(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: `path` is a C string that outlives the call.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) == 0 }
}
