//! Finding policies: by name in the user's directory and among the shipped ones, or as a file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use substrate_compiled::stamp::Stamp;
use substrate_policy::compile;
use substrate_policy::diagnostic::SourceFile;
use substrate_sys::bounded::{self, Links, Unread};

use super::error::BrokerError;
use crate::choice::{Choice, active, is_id};
use crate::home::Home;

const MAX_BYTES: u64 = 4 << 20;

/// The paths whose change would change the answer, each as it was before it was read, so that an
/// edit in between is noticed later.
#[derive(Debug, Default)]
pub struct Looked {
    stamp: Stamp,
    paths: Vec<PathBuf>,
}

impl Looked {
    /// Adds a path that is about to be read.
    pub fn add(&mut self, path: &Path) {
        self.stamp.add(path);
        self.paths.push(path.to_owned());
    }

    /// What they looked like.
    pub fn finish(self) -> (Vec<u8>, Vec<PathBuf>) {
        (self.stamp.finish(), self.paths)
    }
}

/// The text of a policy; notes the paths whose change would change the answer.
pub fn find(choice: &Choice, home: &Home, looked: &mut Looked) -> Result<SourceFile, BrokerError> {
    let name = match choice {
        Choice::File(path) => {
            looked.add(path);
            return read(path);
        }
        Choice::Name(name) => name.clone(),
        Choice::Shipped(name) => {
            return compile::shipped(name).ok_or_else(|| BrokerError::NoPolicy((*name).to_owned()));
        }
        Choice::Active => {
            looked.add(&home.active());
            active(home)
        }
    };
    by_id(&name, home, looked)?.ok_or(BrokerError::NoPolicy(name))
}

/// A policy by id: the user's own before the shipped one.
pub fn by_id(
    id: &str,
    home: &Home,
    looked: &mut Looked,
) -> Result<Option<SourceFile>, BrokerError> {
    if !is_id(id) {
        return Ok(None);
    }
    let path = home.policies().join(format!("{id}.yaml"));
    looked.add(&path);
    match read(&path) {
        Ok(file) => return Ok(Some(file)),
        Err(BrokerError::Read { error, .. })
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) => {}
        // What is shipped is known in a world as well, which shows nothing of Substrate's home.
        Err(error) => {
            let shipped = hidden_by_a_world(home).then(|| compile::shipped(id));
            return shipped.flatten().map(Some).ok_or(error);
        }
    }
    Ok(compile::shipped(id))
}

/// Whether this process runs in a world that keeps Substrate's home from it. The session around it judges and
/// records all the same, and nobody inside can make it look like this.
pub fn hidden_by_a_world(home: &Home) -> bool {
    let denied = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    fs::read_dir(&home.path).is_err_and(denied) && crate::Caller::own().is_in_world()
}

/// Reads a policy file, bounded, and refuses what is not a regular file.
pub fn read(path: &Path) -> Result<SourceFile, BrokerError> {
    let failed = |error| BrokerError::Read {
        path: path.to_owned(),
        error,
    };
    let bytes = bounded::read(path, Links::Follow, MAX_BYTES).map_err(|unread| match unread {
        Unread::TooLarge(_) => BrokerError::TooLarge(path.to_owned()),
        unread => failed(unread.into()),
    })?;
    let text = String::from_utf8(bytes).map_err(|_| BrokerError::NotText(path.to_owned()))?;
    Ok(SourceFile {
        name: path.display().to_string(),
        path: Some(path.to_owned()),
        text,
    })
}

/// The user's tool models, in the order of their names.
pub fn tools(home: &Home, looked: &mut Looked) -> Result<Vec<SourceFile>, BrokerError> {
    let directory = home.tools();
    looked.add(&directory);
    let Ok(entries) = fs::read_dir(&directory) else {
        return Ok(Vec::new());
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        })
        .collect();
    paths.sort();
    for path in &paths {
        looked.add(path);
    }
    paths.iter().map(|path| read(path)).collect()
}
