//! Where this process stands.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use substrate_sys::environment;

/// The working directory, as `PWD` says it when that is true, so that links stay as typed.
pub fn working_directory(env: &[CString]) -> std::io::Result<PathBuf> {
    let real = std::env::current_dir()?;
    let same = |path: &Path| {
        let (a, b) = (
            std::fs::metadata(path).ok()?,
            std::fs::metadata(&real).ok()?,
        );
        Some(a.dev() == b.dev() && a.ino() == b.ino())
    };
    let named = environment::get(env, "PWD").map(|value| PathBuf::from(OsStr::from_bytes(value)));
    Ok(named
        .filter(|path| path.is_absolute() && same(path) == Some(true))
        .unwrap_or(real))
}
