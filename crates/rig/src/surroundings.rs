//! What a program that a test starts finds around it, wherever the test was started from.

use std::ffi::OsString;
use std::process::Command;

/// The programs of this machine without an installed Substrate and its shims.
pub fn search_path() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let own = |dir: &std::path::PathBuf| dir.join("substrate").exists() || dir.ends_with("shims");
    let kept = std::env::split_paths(&path).filter(|dir| !own(dir));
    std::env::join_paths(kept).unwrap_or(path)
}

/// How long a program of a test may live, so that every test has an end.
const LIFETIME: u32 = 600;

/// Signals, mask of signals and mask of modes as a login gives them: the background of a script leaves
/// SIGINT ignored, and everything below it with that.
pub fn as_from_a_login(command: &mut Command) {
    substrate_sys::start::as_from_a_login(command, LIFETIME);
}
