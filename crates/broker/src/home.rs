//! Substrate's home directory and what lies in it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use substrate_compiled::paths;

/// The home directory of Substrate and of its user.
#[derive(Debug, Clone)]
pub struct Home {
    /// `~/.substrate`, or what `SUBSTRATE_HOME` says.
    pub path: PathBuf,
    /// The user's own home directory.
    pub user: PathBuf,
}

/// There is no home directory for this user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoHome(pub u32);

impl Home {
    /// Finds the home. Variables count only where nothing encloses us: `SUBSTRATE_HOME`, and `HOME` for
    /// the user's own; the passwd entry says the rest.
    pub fn find(
        variable: Option<&OsStr>,
        home: Option<&OsStr>,
        enclosed: impl FnOnce() -> bool,
    ) -> Result<Self, NoHome> {
        let uid = substrate_sys::identity::user_id();
        let enclosed = enclosed();
        let user = home
            .filter(|_| !enclosed)
            .and_then(|home| named_home(home, uid))
            .or_else(|| user_home(uid));
        match variable.filter(|value| !value.is_empty()) {
            Some(value) if !enclosed => {
                let path = std::path::absolute(value).map_err(|_| NoHome(uid))?;
                let user = user
                    .or_else(|| path.parent().map(Path::to_owned))
                    .ok_or(NoHome(uid))?;
                Ok(Self { path, user })
            }
            _ => {
                let user = user.ok_or(NoHome(uid))?;
                Ok(Self {
                    path: user.join(".substrate"),
                    user,
                })
            }
        }
    }

    /// The home that the variable `HOME` names, where that is another one. What is relative or empty
    /// is no directory that anybody could mean.
    pub fn other(&self, variable: Option<&[u8]>) -> Option<Vec<u8>> {
        let named = variable.filter(|value| value.starts_with(b"/"))?;
        let named = paths::absolute(b"/", named);
        (named != bytes(&self.user)).then_some(named)
    }

    /// Policies of the user.
    pub fn policies(&self) -> PathBuf {
        self.path.join("policies")
    }

    /// Tool models of the user.
    pub fn tools(&self) -> PathBuf {
        self.path.join("tools")
    }

    /// Compiled policies.
    pub fn cache(&self) -> PathBuf {
        self.path.join("cache")
    }

    /// Hosts that the package clients of this machine use.
    pub fn clients(&self) -> PathBuf {
        self.path.join("clients.json")
    }

    /// Name of the policy in use, when it is not `default`.
    pub fn active(&self) -> PathBuf {
        self.path.join("active")
    }

    /// Shims.
    pub fn shims(&self) -> PathBuf {
        self.path.join("shims")
    }

    /// Makes a private directory below the home, and the home itself.
    pub fn ensure(&self, directory: &Path) -> io::Result<()> {
        for path in [self.path.as_path(), directory] {
            match fs::DirBuilder::new().mode(0o700).create(path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What is wrong with the owner or mode of the home, in words; `None` when all is well.
    pub fn unsafe_ownership(&self) -> Option<String> {
        let meta = fs::metadata(&self.path).ok()?;
        let uid = substrate_sys::identity::user_id();
        if meta.uid() != uid {
            return Some(format!(
                "{} belongs to user {}, not to {uid}",
                self.path.display(),
                meta.uid()
            ));
        }
        let mode = meta.permissions().mode() & 0o777;
        (mode & 0o022 != 0).then(|| {
            format!(
                "{} can be written by others (mode {mode:03o})",
                self.path.display()
            )
        })
    }
}

/// The home that `HOME` names, where that is a directory of this user: `sudo` and its like leave the variable
/// of somebody else. For a user without a passwd entry, as containers with made-up ids have, it need only
/// be there.
fn named_home(home: &OsStr, uid: u32) -> Option<PathBuf> {
    let path = Path::new(home);
    let named = path.is_absolute() && path != Path::new("/");
    let meta = fs::metadata(path)
        .ok()
        .filter(|meta| named && meta.is_dir())?;
    let own = meta.uid() == uid || user_home(uid).is_none();
    own.then(|| PathBuf::from(OsStr::from_bytes(&paths::absolute(b"/", home.as_bytes()))))
}

/// The home directory in the passwd entry: the local file first, then whatever `getent` knows.
fn user_home(uid: u32) -> Option<PathBuf> {
    let local = fs::read("/etc/passwd")
        .ok()
        .and_then(|text| home_in(&text, uid));
    local.or_else(|| {
        let output = std::process::Command::new("getent")
            .arg("passwd")
            .arg(uid.to_string())
            .output()
            .ok()?;
        home_in(&output.stdout, uid)
    })
}

fn home_in(passwd: &[u8], uid: u32) -> Option<PathBuf> {
    let uid = uid.to_string();
    passwd.split(|byte| *byte == b'\n').find_map(|entry| {
        let fields: Vec<&[u8]> = entry.split(|byte| *byte == b':').collect();
        let home = fields
            .get(5)
            .filter(|_| fields.get(2) == Some(&uid.as_bytes()))?;
        home.starts_with(b"/")
            .then(|| PathBuf::from(OsString::from_vec(home.to_vec())))
    })
}

/// Paths as bytes, for the judge.
pub fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_counts_where_it_is_ours_and_nothing_encloses_us() {
        let uid = substrate_sys::identity::user_id();
        let directory = tempfile::tempdir().unwrap();
        let named = Some(directory.path().as_os_str());
        let free = Home::find(None, named, || false).unwrap();
        assert_eq!(free.user, directory.path());
        assert_eq!(free.path, directory.path().join(".substrate"));
        let own = user_home(uid).map(|home| home.join(".substrate"));
        let passwd = |named: Option<&OsStr>, enclosed: bool| {
            Home::find(None, named, || enclosed)
                .ok()
                .map(|home| home.path)
        };
        assert_eq!(passwd(named, true), own, "what encloses us does not ask");
        for other in ["relative", "", "/", "/nonexistent/home"] {
            assert_eq!(passwd(Some(OsStr::new(other)), false), own, "{other}");
        }
        let chosen = Home::find(Some(OsStr::new("/x/y")), named, || false).unwrap();
        assert_eq!(
            (chosen.path, chosen.user),
            ("/x/y".into(), directory.path().into())
        );
    }

    #[test]
    fn a_home_of_somebody_else_is_not_ours() {
        if substrate_sys::identity::user_id() != 0 {
            // Root's own directory belongs to somebody else, and we have a passwd entry or are nobody.
            let uid = substrate_sys::identity::user_id();
            let foreign = named_home(OsStr::new("/root"), uid);
            assert_eq!(
                foreign.is_some(),
                user_home(uid).is_none() && Path::new("/root").is_dir()
            );
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(directory.path(), Some(1234), None).unwrap();
        assert_eq!(named_home(directory.path().as_os_str(), 0), None);
    }

    #[test]
    fn passwd_entries() {
        let text = b"root:x:0:0:root:/root:/bin/sh\nu:x:1000:1000::/home/u:/bin/sh\nbad:x:7:7::relative:/bin/sh\n";
        assert_eq!(home_in(text, 1000), Some("/home/u".into()));
        assert_eq!(home_in(text, 7), None);
        assert_eq!(home_in(text, 5), None);
    }
}
