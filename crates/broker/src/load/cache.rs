//! Compiled policies on disk: used while they are fresh, made anew when they are not.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use substrate_compiled::file::Parts;
use substrate_compiled::stamp;
use substrate_policy::Policy;
use substrate_policy::compile::{self, Inputs};

use super::error::BrokerError;
use super::lookup::{self, Looked};
use crate::choice::{Choice, open_compiled};
use crate::home::Home;

/// A policy, and how it was come by.
pub struct Loaded {
    /// The policy.
    pub policy: Policy,
    /// Why it is not the newest version of its file: the last good one is used.
    pub stale: Option<BrokerError>,
}

/// Loads a policy: from the cache while that is fresh, else from its files.
pub fn load(choice: &Choice, home: &Home) -> Result<Loaded, BrokerError> {
    let path = choice.cache_file(home);
    let cached = open_compiled(&path);
    if let Some(policy) = cached
        .as_ref()
        .filter(|policy| policy.stamp().is_ok_and(stamp::is_fresh))
    {
        return Ok(Loaded {
            policy: policy.clone(),
            stale: None,
        });
    }
    match attempt(choice, home).result {
        Ok(bytes) => {
            // A cache that cannot be written costs time, not safety.
            let _ = store(&path, &bytes, home);
            let policy = Policy::open(Arc::new(bytes)).map_err(BrokerError::Compiled)?;
            Ok(Loaded {
                policy,
                stale: None,
            })
        }
        Err(error) => match cached {
            Some(policy) => Ok(Loaded {
                policy,
                stale: Some(error),
            }),
            None => Err(error),
        },
    }
}

/// Compiles a policy from its files, without looking at the cache.
pub fn make(choice: &Choice, home: &Home) -> Result<Vec<u8>, BrokerError> {
    attempt(choice, home).result
}

/// What came of compiling a policy.
pub struct Attempt {
    /// The compiled policy.
    pub result: Result<Vec<u8>, BrokerError>,
    /// What the files looked like, whether or not they were any good.
    pub stamp: Vec<u8>,
    /// The files and directories that were looked at.
    pub looked: Vec<PathBuf>,
}

/// Compiles a policy from its files and tells which those were.
pub fn attempt(choice: &Choice, home: &Home) -> Attempt {
    let looked = RefCell::new(Looked::default());
    // The binary brings the shipped policies and models, so another binary is another source.
    if let Ok(binary) = fs::read_link("/proc/self/exe") {
        looked.borrow_mut().add(&binary);
    }
    let parts = parts(choice, home, &looked);
    let (stamp, looked) = looked.into_inner().finish();
    Attempt {
        result: parts.map(|mut parts| {
            parts.stamp.clone_from(&stamp);
            parts.seal()
        }),
        stamp,
        looked,
    }
}

fn parts(choice: &Choice, home: &Home, looked: &RefCell<Looked>) -> Result<Parts, BrokerError> {
    let source = lookup::find(choice, home, &mut looked.borrow_mut())?;
    // A shipped policy is what is left when the user's files are in ruins, so it needs none of them.
    let shipped = matches!(choice, Choice::Shipped(_));
    let tools = match shipped {
        true => Vec::new(),
        false => lookup::tools(home, &mut looked.borrow_mut())?,
    };
    let clients = clients(home, &mut looked.borrow_mut());
    let find = |id: &str| match shipped {
        true => Ok(compile::shipped(id)),
        false => {
            lookup::by_id(id, home, &mut looked.borrow_mut()).map_err(|error| error.to_string())
        }
    };
    let output = compile::compile(
        source,
        &Inputs {
            find: &find,
            tools: &tools,
            clients: &clients,
        },
    )?;
    Ok(output.parts)
}

/// Hosts that client sets stand for, as `substrate init` and `doctor` found them.
pub fn clients(home: &Home, looked: &mut Looked) -> BTreeMap<String, Vec<String>> {
    let path = home.clients();
    looked.add(&path);
    fs::read(&path)
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok())
        .unwrap_or_default()
}

/// Replaces the cache file at once, so that no reader sees half of it.
pub(crate) fn store(path: &Path, bytes: &[u8], home: &Home) -> io::Result<()> {
    home.ensure(&home.cache())?;
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_extension(format!("new.{}.{count}", std::process::id()));
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&temporary, path));
    match written {
        Ok(()) => forget_others(path),
        Err(_) => drop(fs::remove_file(&temporary)),
    }
    written
}

/// Removes what was compiled for the same choice of another home: this one was copied from it, or lies
/// on a file system that has got another number.
fn forget_others(path: &Path) {
    let choice = |path: &Path| Some(path.file_name()?.to_str()?.split_once('-')?.0.to_owned());
    let (Some(directory), Some(own)) = (path.parent(), choice(path)) else {
        return;
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for other in entries.map(|entry| entry.path()) {
        let whole = other.extension().is_some_and(|kind| kind == "policy");
        if whole && other != path && choice(&other) == Some(own.clone()) {
            let _ = fs::remove_file(other);
        }
    }
}
