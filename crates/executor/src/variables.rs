//! An environment in the form that others take it in.

use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use substrate_broker::Meaning;

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

/// What an environment makes of the words of a command; `at_first` is how it was when nothing had changed it yet.
pub fn meaning(environment: &[(OsString, OsString)], at_first: &[(OsString, OsString)]) -> Meaning {
    let pairs = environment
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    Meaning::of(pairs, |name| {
        let first = at_first.iter().find(|(known, _)| known.as_bytes() == name);
        first.map(|(_, value)| value.as_bytes())
    })
}
