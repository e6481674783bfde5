//! Paths and words as the kernel takes them.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path as the kernel takes it. Paths come from the kernel or were checked before, so a NUL
/// byte cannot be in one; cutting there would still only make the step fail.
pub(crate) fn c(path: &Path) -> CString {
    c_bytes(path.as_os_str())
}

/// A word as the kernel takes it.
pub(crate) fn text(value: &str) -> CString {
    c_bytes(OsStr::new(value))
}

fn c_bytes(value: &OsStr) -> CString {
    let bytes: Vec<u8> = value
        .as_bytes()
        .iter()
        .copied()
        .take_while(|b| *b != 0)
        .collect();
    CString::new(bytes).unwrap_or_default()
}
