//! Trust in profiles: a person has looked at one and wants it to replace the policy in use, as long
//! as neither the file nor the policy that it names changes.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::caller::Caller;
use super::process::Identity;
use super::state_file::{StateError, StateFile, bytes_json, json_bytes};
use crate::home::Home;

/// A profile that is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trusted {
    /// The profile's file.
    pub path: PathBuf,
    /// The policy that it names.
    pub policy: String,
    /// SHA-256 of the file.
    pub content_sha256: String,
    /// SHA-256 over the policy and everything it extends.
    pub policy_sha256: String,
    /// Since when, in seconds since 1970.
    pub since: u64,
    /// Only as long as this process runs.
    pub session: Option<Identity>,
}

impl Trusted {
    fn is_current(&self) -> bool {
        self.session.as_ref().is_none_or(Identity::is_alive)
    }

    fn to_json(&self) -> Value {
        json!({
            "path": bytes_json(self.path.as_os_str().as_bytes()),
            "policy": self.policy,
            "content_sha256": self.content_sha256,
            "policy_sha256": self.policy_sha256,
            "since": self.since,
            "session": self.session.as_ref().map(|process| json!({"pid": process.pid, "start": process.start, "boot": process.boot})),
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
        let session = match value.get("session") {
            None | Some(Value::Null) => None,
            Some(process) => Some(Identity {
                pid: u32::try_from(process.get("pid")?.as_u64()?).ok()?,
                start: process.get("start")?.as_u64()?,
                boot: process.get("boot")?.as_str()?.to_owned(),
            }),
        };
        Some(Self {
            path: PathBuf::from(OsStr::from_bytes(&json_bytes(value.get("path")?)?)),
            policy: text("policy")?,
            content_sha256: text("content_sha256")?,
            policy_sha256: text("policy_sha256")?,
            since: value.get("since")?.as_u64()?,
            session,
        })
    }
}

/// Why a profile that was trusted once is not any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nobody has trusted it.
    Untrusted,
    /// It is as it was when it was trusted.
    Trusted,
    /// The file, or the policy that it names, has changed since.
    Changed,
}

/// The trusted profiles of a home.
#[derive(Debug, Clone)]
pub struct Trust {
    file: StateFile,
    caller: Caller,
}

impl Trust {
    /// Those of a home that count for this caller.
    pub fn new(home: &Home, caller: Caller) -> Self {
        Self {
            file: StateFile::new(home, "trust"),
            caller,
        }
    }

    /// All of them.
    pub fn list(&self) -> Result<Vec<Trusted>, StateError> {
        let entries = self.file.read()?;
        Ok(entries
            .iter()
            .filter_map(Trusted::from_json)
            .filter(Trusted::is_current)
            .collect())
    }

    /// Trusts a profile as it is now.
    pub fn add(&self, trusted: &Trusted) -> Result<(), StateError> {
        self.file.update(|entries| {
            retain(entries, |old| old.path != trusted.path && old.is_current());
            entries.push(trusted.to_json());
        })
    }

    /// Takes the trust in a profile back; answers whether there was any.
    pub fn revoke(&self, path: &Path) -> Result<bool, StateError> {
        self.file.update(|entries| {
            let before = entries.len();
            retain(entries, |old| old.path != path);
            entries.len() < before
        })
    }

    /// Forgets everything, also a file that is damaged.
    pub fn clear(&self) -> Result<(), StateError> {
        self.file.clear()
    }

    /// How a profile stands. The path, the file's content and the content of the policy with everything
    /// that it extends must be what they were.
    pub fn standing(
        &self,
        path: &Path,
        content: &[u8],
        policy_sha256: &str,
    ) -> Result<Standing, StateError> {
        let content_sha256 = substrate_trace::sha256_hex(content);
        let known: Vec<Trusted> = self
            .list()?
            .into_iter()
            .filter(|trusted| {
                let session = trusted.session.as_ref();
                trusted.path == path && session.is_none_or(|session| self.caller.is_below(session))
            })
            .collect();
        let same = |trusted: &Trusted| {
            trusted.content_sha256 == content_sha256 && trusted.policy_sha256 == policy_sha256
        };
        Ok(if known.is_empty() {
            Standing::Untrusted
        } else if known.iter().any(same) {
            Standing::Trusted
        } else {
            Standing::Changed
        })
    }
}

fn retain(entries: &mut Vec<Value>, keep: impl Fn(&Trusted) -> bool) {
    entries.retain(|entry| Trusted::from_json(entry).is_some_and(|trusted| keep(&trusted)));
}
