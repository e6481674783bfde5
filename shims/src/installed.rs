//! Where this shim is installed and which tool it stands for. Both come from the file that was
//! executed, never from a variable.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use substrate_sys::real_path::real_path;

/// The one binary that all shims of a directory are links to.
pub const BINARY: &str = ".shim";

/// A link to the full `substrate`.
pub const SUBSTRATE: &str = ".substrate";

/// A link to the user's home directory, as the passwd entry had it.
pub const USER_HOME: &str = ".home";

/// Device and inode of a file.
pub type FileId = (u64, u64);

/// A shim in its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// Substrate's home, above the directory.
    pub home: PathBuf,
    /// The tool's name.
    pub tool: OsString,
    /// The binary.
    pub id: FileId,
}

impl Installed {
    /// The directory of the shims.
    pub fn directory(&self) -> PathBuf {
        self.home.join("shims")
    }
}

/// The file a path leads to.
pub fn id(path: &Path) -> Option<FileId> {
    fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// Finds out where we are installed. What was executed is known by the kernel's word for it, by
/// `argv[0]` when we interpret a script, and by our own mapping when neither leads to us.
pub fn locate(first_argument: Option<&OsStr>) -> Option<Installed> {
    let executed =
        substrate_runtime::inherit::exec_path().map(|path| OsStr::from_bytes(path.to_bytes()));
    if let Some(found) = executed.and_then(|path| at(Path::new(path), None)) {
        return Some(found);
    }
    let own = id(Path::new("/proc/self/exe"));
    let named = first_argument.filter(|name| name.as_bytes().contains(&b'/'));
    named
        .and_then(|path| at(Path::new(path), own))
        .or_else(|| at(&fs::read_link("/proc/self/exe").ok()?, own))
}

/// Reads a path as a shim: its directory holds the binary that it is a link to.
fn at(path: &Path, own: Option<FileId>) -> Option<Installed> {
    let path = std::path::absolute(path).ok()?;
    let found = id(&path)?;
    if own.is_some_and(|own| own != found) {
        return None;
    }
    // A link from elsewhere stands for the shim that it leads to.
    beside(&path, found).or_else(|| beside(&real_path(&path).ok()?, found))
}

fn beside(path: &Path, found: FileId) -> Option<Installed> {
    let (directory, tool) = (path.parent()?, path.file_name()?);
    let genuine = tool != BINARY
        && directory.file_name() == Some(OsStr::new("shims"))
        && id(&directory.join(BINARY)) == Some(found);
    genuine.then(|| Installed {
        home: directory.parent().unwrap_or(directory).to_owned(),
        tool: tool.to_owned(),
        id: found,
    })
}

/// Where a link of the directory leads, for [`SUBSTRATE`] and [`USER_HOME`].
pub fn pointer(directory: &Path, name: &str) -> Option<PathBuf> {
    fs::read_link(directory.join(name))
        .ok()
        .filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn farm() -> tempfile::TempDir {
        let top = tempfile::tempdir().unwrap();
        let shims = top.path().join("home/shims");
        fs::create_dir_all(&shims).unwrap();
        fs::write(shims.join(BINARY), "binary").unwrap();
        fs::hard_link(shims.join(BINARY), shims.join("git")).unwrap();
        symlink(BINARY, shims.join("npm")).unwrap();
        symlink("home/shims/git", top.path().join("g")).unwrap();
        fs::write(shims.join("foreign"), "binary").unwrap();
        top
    }

    #[test]
    fn links_of_every_kind_are_recognised() {
        let top = farm();
        let home = top.path().join("home").canonicalize().unwrap();
        for (path, tool) in [
            ("home/shims/git", "git"),
            ("home/shims/npm", "npm"),
            ("g", "git"),
        ] {
            let found = at(&top.path().join(path), None).unwrap();
            assert_eq!(
                (found.home.canonicalize().unwrap(), found.tool),
                (home.clone(), OsString::from(tool)),
                "{path}"
            );
        }
    }

    #[test]
    fn other_files_are_not_shims() {
        let top = farm();
        for path in [
            "home/shims/foreign",
            "home/shims/.shim",
            "home/shims/none",
            "home",
        ] {
            assert_eq!(at(&top.path().join(path), None), None, "{path}");
        }
        assert_eq!(
            at(&top.path().join("home/shims/git"), Some((0, 0))),
            None,
            "not what runs"
        );
    }

    #[test]
    fn pointers_are_absolute() {
        let top = farm();
        let shims = top.path().join("home/shims");
        assert_eq!(pointer(&shims, SUBSTRATE), None);
        symlink("relative", shims.join(USER_HOME)).unwrap();
        symlink("/opt/substrate", shims.join(SUBSTRATE)).unwrap();
        assert_eq!(pointer(&shims, SUBSTRATE), Some("/opt/substrate".into()));
        assert_eq!(pointer(&shims, USER_HOME), None);
    }
}
