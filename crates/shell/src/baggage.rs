//! What lies in `/tmp` of a session's world while the next one is made.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use substrate_changes::copy;
use substrate_changes::pending::worlds_dir;
use substrate_changes::remove::remove_path;
use substrate_sys::statvfs;
use substrate_trace::WorldId;

/// More than this stays behind: it is copied twice, and nobody waits for a download to be moved.
const MOST_BYTES: u64 = 64 << 20;
/// So do more names than this.
const MOST_NAMES: u64 = 10_000;

/// A copy of `/tmp`, among the results of worlds, where `gc` finds what a crash leaves.
pub struct Baggage {
    dir: PathBuf,
}

/// `/tmp` as a process in the world has it.
fn tmp_of(process: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{process}/root/tmp"))
}

impl Baggage {
    /// Takes what lies there; nothing if there is nothing, an error where it is too much or cannot be read.
    pub fn pack(home: &Path, process: i32) -> io::Result<Option<Baggage>> {
        let from = tmp_of(process);
        let used = statvfs::used(&from).unwrap_or_default();
        if used > MOST_BYTES {
            return Err(io::Error::other("it is more than 64 MiB"));
        }
        if fs::read_dir(&from)?.next().is_none() {
            return Ok(None);
        }
        let baggage = Baggage {
            dir: worlds_dir(home).join(WorldId::new().to_string()),
        };
        fs::DirBuilder::new().mode(0o700).create(&baggage.dir)?;
        copy_names(&from, &baggage.dir)?;
        Ok(Some(baggage))
    }

    /// Puts it into the `/tmp` of a process in the next world.
    pub fn unpack(self, process: i32) -> io::Result<()> {
        copy_names(&self.dir, &tmp_of(process))
    }
}

impl Drop for Baggage {
    fn drop(&mut self) {
        let _ = remove_path(&self.dir);
    }
}

/// Sockets and devices are left out, as by every copy; a name that is taken stays as it is.
fn copy_names(from: &Path, to: &Path) -> io::Result<()> {
    let mut names = 0;
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        let before = names;
        let mut progress = |count| {
            names = before + count;
            match names > MOST_NAMES {
                true => Err(io::Error::other("it has more than 10,000 names")),
                false => Ok(()),
            }
        };
        match copy::clone_tree(&from.join(&name), &to.join(&name), &mut progress) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            copied => copied?,
        }
    }
    Ok(())
}
