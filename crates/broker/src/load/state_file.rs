//! Small state that several shells share: read whole and checked, replaced whole under a lock.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};
use substrate_sys::flags::{O_CLOEXEC, O_NOFOLLOW, O_NONBLOCK};
use substrate_text::wire::Bytes;
use substrate_trace::Key;

use crate::home::Home;

/// Changes with every change of what the entries mean.
const VERSION: u64 = 1;
const MAX_BYTES: u64 = 4 << 20;

/// Links are not followed, and a pipe that nobody writes to cannot hold up a shell.
const PLAIN: i32 = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

/// Why a state file is not believed, or cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// It cannot be opened, read or replaced.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Somebody else owns it or could have written to it.
    #[error("{path} is not believed: {problem}")]
    Unsafe {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// It is cut short or not ours.
    #[error("{path} is damaged ({problem}); nothing in it counts. Remove it to start anew")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// It was written by another version.
    #[error(
        "{path} has version {version}, and this Substrate knows version {VERSION}; nothing in it counts here"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: String,
    },
    /// The key of the home cannot be had.
    #[error("{0}")]
    Key(#[from] substrate_trace::Error),
}

/// One such file.
#[derive(Debug, Clone)]
pub struct StateFile {
    home: Home,
    path: PathBuf,
    purpose: &'static str,
}

impl StateFile {
    /// A file of a home; `name` also keeps its digests apart from those of other files.
    pub fn new(home: &Home, name: &'static str) -> Self {
        Self {
            path: home.path.join(format!("{name}.json")),
            home: home.clone(),
            purpose: name,
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its entries. A file that does not exist has none; one that is not right is an error, and the
    /// caller goes on as if it had none.
    pub fn read(&self) -> Result<Vec<Value>, StateError> {
        let failed = |error| StateError::File {
            path: self.path.clone(),
            error,
        };
        let file = match fs::OpenOptions::new()
            .read(true)
            .custom_flags(PLAIN)
            .open(&self.path)
        {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(error)),
        };
        let meta = file.metadata().map_err(failed)?;
        if let Some(problem) = self.problem_with(&meta) {
            return Err(StateError::Unsafe {
                path: self.path.clone(),
                problem,
            });
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES)
            .read_to_end(&mut bytes)
            .map_err(failed)?;
        self.parse(&bytes)
    }

    fn problem_with(&self, meta: &fs::Metadata) -> Option<String> {
        let uid = substrate_sys::identity::user_id();
        if let Some(problem) = self.home.unsafe_ownership() {
            Some(problem)
        } else if !meta.is_file() {
            Some("it is not a regular file; remove it to start anew".to_owned())
        } else if meta.len() > MAX_BYTES {
            Some(format!(
                "it is larger than {MAX_BYTES} bytes; remove it to start anew"
            ))
        } else if meta.uid() != uid {
            Some(format!(
                "it belongs to user {}, not to {uid}; remove it to start anew",
                meta.uid()
            ))
        } else if meta.mode() & 0o077 != 0 {
            let mode = meta.mode() & 0o777;
            Some(format!(
                "others may use it (mode {mode:03o}); look at it, then `chmod 600` it"
            ))
        } else {
            None
        }
    }

    fn parse(&self, bytes: &[u8]) -> Result<Vec<Value>, StateError> {
        let damaged = |problem: String| StateError::Damaged {
            path: self.path.clone(),
            problem,
        };
        let whole: Value =
            serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
        let version = whole.get("v").cloned().unwrap_or_default();
        if version.as_u64() != Some(VERSION) {
            return Err(StateError::Foreign {
                path: self.path.clone(),
                version: version.to_string(),
            });
        }
        let Some(Value::Array(entries)) = whole.get("entries") else {
            return Err(damaged("`entries` is missing".to_owned()));
        };
        let key = Key::existing(&self.home.path)?;
        if whole.get("digest").and_then(Value::as_str) != Some(&self.digest(&key, entries)) {
            return Err(damaged(
                "Substrate did not write it as it stands".to_owned(),
            ));
        }
        Ok(entries.clone())
    }

    fn digest(&self, key: &Key, entries: &[Value]) -> String {
        let text = Value::Array(entries.to_vec()).to_string();
        key.sign(
            &format!("substrate {} {VERSION}", self.purpose),
            text.as_bytes(),
        )
    }

    /// Changes the entries: nobody else reads or writes in between, and a crash leaves the old file.
    pub fn update<T>(&self, change: impl FnOnce(&mut Vec<Value>) -> T) -> Result<T, StateError> {
        let _lock = self.lock()?;
        let mut entries = self.read()?;
        let result = change(&mut entries);
        self.replace(&entries)?;
        Ok(result)
    }

    /// Starts anew, whatever is there.
    pub fn clear(&self) -> Result<(), StateError> {
        let _lock = self.lock()?;
        self.replace(&[])
    }

    fn lock(&self) -> Result<fs::File, StateError> {
        let path = self.path.with_extension("lock");
        let failed = |error| StateError::File {
            path: path.clone(),
            error,
        };
        self.home.ensure(&self.home.path).map_err(failed)?;
        let file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(PLAIN)
            .open(&path)
            .map_err(failed)?;
        file.lock().map_err(failed)?;
        Ok(file)
    }

    fn replace(&self, entries: &[Value]) -> Result<(), StateError> {
        let key = Key::load(&self.home.path)?;
        let whole = json!({"v": VERSION, "entries": entries, "digest": self.digest(&key, entries)});
        let aside = self
            .path
            .with_extension(format!("new.{}", std::process::id()));
        let written = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(PLAIN)
            .open(&aside)
            .and_then(|mut file| {
                file.write_all(format!("{whole:#}\n").as_bytes())?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&aside, &self.path));
        written.map_err(|error| {
            let _ = fs::remove_file(&aside);
            StateError::File {
                path: self.path.clone(),
                error,
            }
        })
    }
}

/// Bytes in JSON: a string, or `{"b64": …}`.
pub(crate) fn bytes_json(bytes: &[u8]) -> Value {
    json!(Bytes(bytes.to_vec()))
}

/// Bytes from JSON.
pub(crate) fn json_bytes(value: &Value) -> Option<Vec<u8>> {
    Bytes::deserialize(value).ok().map(|bytes| bytes.0)
}

/// Seconds since 1970.
pub fn now() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}
