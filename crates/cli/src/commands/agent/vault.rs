//! Keys before worlds: a world's first process begins as a copy of the process that makes it. So that no key
//! is in that copy, the keys go into a file in memory that is mapped nowhere, and this process becomes the
//! same program once more, without them. The gate reads its key when the world is there.

use std::ffi::{CString, OsString};
use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

use substrate_agents::{Descriptor, choose, keys};
use substrate_broker::env::SUBSTRATE_AGENT_VAULT;
use substrate_executor::variables::variables;
use substrate_sys::{environment, memfd};

use crate::failure::Failure;

/// Tells the second program which variable had the key, and where the key is.
const VAULT: &str = SUBSTRATE_AGENT_VAULT;
const LONGEST_KEY: usize = 64 << 10;

/// A key that is in no process's memory.
#[derive(Clone)]
pub struct Key {
    /// The variable that it was in.
    pub variable: String,
    file: Arc<OwnedFd>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.variable)
    }
}

impl Key {
    /// The key itself. From here on it is in memory.
    pub fn read(&self) -> std::io::Result<String> {
        let content = memfd::content(&self.file, LONGEST_KEY)?;
        String::from_utf8(content).map_err(std::io::Error::other)
    }
}

/// Takes a key over from the program before, and its trace out of the environment.
pub fn open(env: &mut Vec<CString>) -> Result<Option<Key>, Failure> {
    let Some(told) = environment::get(env, VAULT) else {
        return Ok(None);
    };
    let told = String::from_utf8_lossy(told).into_owned();
    let prefix = format!("{VAULT}=");
    env.retain(|entry| !entry.as_bytes().starts_with(prefix.as_bytes()));
    let wrong = || Failure::Usage(format!("{VAULT} is Substrate's own to set"));
    let (number, variable) = told.split_once(':').ok_or_else(wrong)?;
    let number = number.parse().map_err(|_| wrong())?;
    let file = memfd::take_over(number).map_err(|_| wrong())?;
    Ok(Some(Key {
        variable: variable.to_owned(),
        file: Arc::new(file),
    }))
}

/// Where a key for this agent is in the environment, becomes the same program without it; comes back only
/// where there is none.
pub fn lock(
    descriptor: &Descriptor,
    env: &[CString],
    arguments: &[OsString],
) -> Result<(), Failure> {
    let set = |name: &str| {
        let value = environment::get(env, name)?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    let Ok(chosen) = choose(descriptor, set) else {
        return Ok(());
    };
    let file = memfd::sealed(c"key", chosen.credential.value.as_bytes())?;
    let number = memfd::hand_on(&file)?;
    let kept = variables(env).into_iter().filter(|(name, value)| {
        !keys::may_be_key(&name.to_string_lossy(), &value.to_string_lossy())
    });
    let mut command = Command::new(std::env::current_exe()?);
    if let Some(name) = arguments.first() {
        command.arg0(name);
    }
    let error = command
        .args(arguments.iter().skip(1))
        .env_clear()
        .envs(kept)
        .env(VAULT, format!("{number}:{}", chosen.variable))
        .exec();
    Err(error.into())
}
