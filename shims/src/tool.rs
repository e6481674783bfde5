//! Finding the real tool behind a shim.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::installed::FileId;

/// Ends every installed shim, of this version or another; ELF does not mind.
pub const MARK: &[u8] = b"\0substrate-shim\0\n";

/// The mark lies on a multiple of this, so that nearly all other files are known by their size not to
/// be shims, and need not be opened.
const UNIT: u64 = 256;

/// A binary as it is installed.
pub fn marked(binary: &[u8]) -> Vec<u8> {
    let mut marked = binary.to_vec();
    marked.resize(binary.len().next_multiple_of(UNIT as usize), 0);
    marked.extend_from_slice(MARK);
    marked
}

/// Where programs are when `PATH` says nothing.
pub const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Tools that look for themselves by `argv[0]` on `PATH`, where they would find the shim and take
/// its directory for theirs: a python would lose its virtual environment.
const LOOK_FOR_THEMSELVES: [&str; 2] = ["python", "pypy"];

/// Why there is no tool to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// Nothing of that name is on `PATH`.
    NotFound,
    /// There is a file, and it may not be executed.
    NotExecutable(PathBuf),
    /// Everything of that name was tried, and each ended at the shim again.
    Circle(PathBuf),
}

/// Finds the tool: the next match on `PATH` that is no shim. `passed` matches were tried before and
/// led back here.
pub fn find(
    tool: &OsStr,
    search_path: Option<&OsStr>,
    cwd: &Path,
    own: FileId,
    passed: usize,
) -> Result<PathBuf, Missing> {
    let path = match search_path {
        Some(path) if !path.is_empty() => path.as_bytes(),
        _ => DEFAULT_PATH.as_bytes(),
    };
    let mut seen: Vec<FileId> = Vec::new();
    let mut missing = Missing::NotFound;
    for directory in path.split(|byte| *byte == b':') {
        let directory = if directory.is_empty() {
            b"."
        } else {
            directory
        };
        let candidate = cwd.join(OsStr::from_bytes(directory)).join(tool);
        let Ok(meta) = fs::metadata(&candidate) else {
            continue;
        };
        let found = (meta.dev(), meta.ino());
        if !meta.is_file() || found == own || seen.contains(&found) {
            continue;
        }
        if meta.permissions().mode() & 0o111 == 0 {
            if missing == Missing::NotFound {
                missing = Missing::NotExecutable(candidate);
            }
            continue;
        }
        if is_shim(&candidate, &meta) {
            continue;
        }
        if seen.len() == passed {
            return Ok(candidate);
        }
        seen.push(found);
        missing = Missing::Circle(candidate);
    }
    Err(missing)
}

/// Whether a file is a shim, whoever installed it: two of them would call each other for ever.
pub fn is_shim(path: &Path, meta: &Metadata) -> bool {
    if meta.len() % UNIT != MARK.len() as u64 {
        return false;
    }
    let start = meta.len() - MARK.len() as u64;
    let mut end = [0; MARK.len()];
    File::open(path)
        .and_then(|file| file.read_exact_at(&mut end, start))
        .is_ok()
        && end == MARK
}

/// The `PATH` by which the tool is judged: its own directory first, and without shims, so that rules
/// which name a path mean the tool and not the shim.
pub fn judged_path(target: &Path, search_path: Option<&OsStr>, shims: &Path) -> OsString {
    let directory = target
        .parent()
        .unwrap_or(Path::new("/"))
        .as_os_str()
        .as_bytes();
    let rest = search_path.unwrap_or(OsStr::new(DEFAULT_PATH)).as_bytes();
    let mut judged = directory.to_vec();
    for entry in rest
        .split(|byte| *byte == b':')
        .filter(|entry| *entry != shims.as_os_str().as_bytes() && *entry != directory)
    {
        judged.push(b':');
        judged.extend_from_slice(entry);
    }
    OsString::from_vec(judged)
}

/// What the tool gets as `argv[0]`: what we got, unless that leads to the shim.
pub fn first_argument(tool: &OsStr, given: &OsStr, target: &Path, own: FileId) -> OsString {
    let path = given.as_bytes().contains(&b'/');
    let leads_here = path && crate::installed::id(Path::new(given)) == Some(own);
    let looks = !path
        && LOOK_FOR_THEMSELVES
            .iter()
            .any(|name| tool.as_bytes().starts_with(name.as_bytes()));
    if leads_here || looks {
        target.as_os_str().to_owned()
    } else {
        given.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executable(path: &Path, content: &[u8]) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    struct Setup {
        top: tempfile::TempDir,
        own: FileId,
    }

    impl Setup {
        /// Two homes with shims of different versions, a link farm, and two tools.
        fn new() -> Self {
            let top = tempfile::tempdir().unwrap();
            let at = |name: &str| top.path().join(name);
            executable(&at("a/git"), &marked(b"one"));
            executable(&at("b/git"), &marked(&[b'x'; 300]));
            fs::create_dir(at("farm")).unwrap();
            std::os::unix::fs::symlink("../b/git", at("farm/git")).unwrap();
            executable(&at("real/git"), b"#!/bin/sh\n");
            executable(&at("other/git"), b"x");
            fs::create_dir(at("link")).unwrap();
            fs::hard_link(at("real/git"), at("link/git")).unwrap();
            fs::create_dir_all(at("directory/git")).unwrap();
            executable(&at("plain/git"), b"no");
            fs::set_permissions(at("plain/git"), fs::Permissions::from_mode(0o644)).unwrap();
            let own = crate::installed::id(&at("a/git")).unwrap();
            Self { top, own }
        }

        fn find(&self, path: &str, passed: usize) -> Result<String, Missing> {
            let found = find(
                OsStr::new("git"),
                Some(OsStr::new(path)),
                self.top.path(),
                self.own,
                passed,
            )?;
            Ok(found
                .strip_prefix(self.top.path())
                .unwrap()
                .display()
                .to_string())
        }
    }

    #[test]
    fn the_next_match_that_is_no_shim() {
        let setup = Setup::new();
        for path in [
            "a:real",
            "a:a:b:farm:real",
            "real:a",
            "farm:a:directory:plain:real",
            "none::real",
        ] {
            assert_eq!(setup.find(path, 0), Ok("real/git".to_owned()), "{path}");
        }
        assert_eq!(setup.find("a:b:farm:directory", 0), Err(Missing::NotFound));
        assert_eq!(
            setup.find("a:plain", 0),
            Err(Missing::NotExecutable(setup.top.path().join("plain/git")))
        );
    }

    #[test]
    fn a_circle_moves_on_and_ends() {
        let setup = Setup::new();
        assert_eq!(
            setup.find("a:real:link:other", 1),
            Ok("other/git".to_owned())
        );
        assert!(matches!(
            setup.find("a:real:link:other", 2),
            Err(Missing::Circle(_))
        ));
    }

    #[test]
    fn the_current_directory_counts_where_path_names_it() {
        let setup = Setup::new();
        let real = setup.top.path().join("real");
        for path in [".", "", ":/none", "/none:"] {
            let found = find(
                OsStr::new("git"),
                Some(OsStr::new(path)),
                &real,
                setup.own,
                0,
            );
            // An empty PATH means the usual places, where there may or may not be one.
            if !path.is_empty() {
                assert_eq!(
                    found.unwrap().canonicalize().unwrap(),
                    real.join("git").canonicalize().unwrap(),
                    "{path:?}"
                );
            }
        }
        assert!(find(OsStr::new("sh"), Some(OsStr::new("")), &real, setup.own, 0).is_ok());
        assert!(find(OsStr::new("sh"), None, &real, setup.own, 0).is_ok());
    }

    #[test]
    fn judged_by_a_path_without_shims() {
        let judged = judged_path(
            Path::new("/usr/bin/git"),
            Some(OsStr::new("/h/shims:/bin:/usr/bin:/h/shims")),
            Path::new("/h/shims"),
        );
        assert_eq!(judged, "/usr/bin:/bin");
    }

    #[test]
    fn first_arguments() {
        let setup = Setup::new();
        let shim = setup.top.path().join("a/git");
        let target = Path::new("/v/bin/git");
        let given =
            |tool: &str, name: &OsStr| first_argument(OsStr::new(tool), name, target, setup.own);
        assert_eq!(given("git", OsStr::new("git")), "git");
        assert_eq!(given("bash", OsStr::new("-bash")), "-bash");
        assert_eq!(given("git", OsStr::new("/some/other")), "/some/other");
        assert_eq!(given("git", shim.as_os_str()), "/v/bin/git");
        assert_eq!(given("python3.11", OsStr::new("python3.11")), "/v/bin/git");
    }
}
