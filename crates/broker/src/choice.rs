//! Which policy is meant, and where its compiled form is kept.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use substrate_compiled::file::checksum;
use substrate_policy::{Policy, policy::Bytes};
use substrate_sys::flags::{O_CLOEXEC, O_NOFOLLOW};
use substrate_sys::mmap::MappedFile;

use crate::home::Home;

/// The administrator's policy: a floor for everyone.
pub const FLOOR: &str = "/etc/substrate/policy.yaml";

/// Which policy is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The one in use: what `active` names, else `default`.
    Active,
    /// A policy by id.
    Name(String),
    /// A policy file.
    File(PathBuf),
    /// A shipped policy as it was shipped, whatever lies in the user's home.
    Shipped(&'static str),
}

impl Choice {
    /// What `--policy` names: a path when it looks like one, else an id.
    pub fn parse(text: &OsStr) -> Self {
        let path = Path::new(text);
        match text.to_str() {
            Some(name) if is_id(name) => Choice::Name(name.to_owned()),
            _ => Choice::File(std::path::absolute(path).unwrap_or_else(|_| path.to_owned())),
        }
    }

    /// A name for the cache file that no other choice has.
    pub fn key(&self) -> Vec<u8> {
        match self {
            Choice::Active => b"active".to_vec(),
            Choice::Name(name) => [b"name:", name.as_bytes()].concat(),
            Choice::File(path) => [b"file:", path.as_os_str().as_bytes()].concat(),
            Choice::Shipped(name) => [b"shipped:", name.as_bytes()].concat(),
        }
    }
}

impl Choice {
    /// Where the compiled form is kept. The second half of the name is the directory of the home itself:
    /// in a copy of it the compiled forms still speak of the original's files.
    pub fn cache_file(&self, home: &Home) -> PathBuf {
        let place = fs::metadata(&home.path).map_or([0, 0], |home| [home.dev(), home.ino()]);
        let place = checksum(place.map(u64::to_le_bytes).as_flattened());
        let choice = checksum(&self.key());
        home.cache()
            .join(format!("{choice:016x}-{place:016x}.policy"))
    }
}

/// Opens a compiled policy, if it is ours, whole and nobody else can change it. Whether it is still
/// fresh is for the caller to ask.
pub fn open_compiled(path: &Path) -> Option<Policy> {
    let mapped: Bytes = Arc::new(MappedFile::open(&own_file(path)?).ok()?);
    Policy::open(mapped).ok()
}

/// The same as a copy in memory, for whoever holds it for long: a mapping goes with the file's end.
pub fn read_compiled(path: &Path) -> Option<Policy> {
    let copied: Bytes = Arc::new(MappedFile::copy(&own_file(path)?).ok()?);
    Policy::open(copied).ok()
}

fn own_file(path: &Path) -> Option<fs::File> {
    let file = fs::OpenOptions::new()
        .read(true)
        .custom_flags(O_NOFOLLOW | O_CLOEXEC)
        .open(path)
        .ok()?;
    let meta = file.metadata().ok()?;
    let ours = meta.uid() == substrate_sys::identity::user_id()
        && meta.mode() & 0o022 == 0
        && meta.is_file();
    ours.then_some(file)
}

/// Whether a text may be a policy's id.
pub fn is_id(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// Name of the policy in use.
pub fn active(home: &Home) -> String {
    let text = fs::read_to_string(home.active()).unwrap_or_default();
    let name = text.trim();
    if is_id(name) {
        name.to_owned()
    } else {
        "default".to_owned()
    }
}
