//! An environment in the form that others take it in.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStringExt;

/// An environment as names and values.
pub fn variables(env: &[CString]) -> Vec<(OsString, OsString)> {
    let split = |entry: &CString| {
        let entry = entry.as_bytes();
        let at = entry.iter().position(|byte| *byte == b'=')?;
        Some((
            OsString::from_vec(entry[..at].to_vec()),
            OsString::from_vec(entry[at + 1..].to_vec()),
        ))
    };
    env.iter().filter_map(split).collect()
}
