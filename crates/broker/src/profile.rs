//! Profiles: a file in a directory names the policy for it and for everything below.

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use substrate_sys::flags::{O_CLOEXEC, O_NONBLOCK};

use crate::choice::is_id;

/// The name of the file.
pub const NAME: &str = ".substrate-profile";

/// A name needs no more.
const MAX_BYTES: u64 = 4096;

/// What the nearest profile of a directory says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Profile {
    /// It names a policy.
    Named {
        /// The file.
        path: PathBuf,
        /// What stands in it, byte for byte.
        content: Vec<u8>,
        /// The policy.
        policy: String,
    },
    /// It is ours and cannot be followed; what it asks for is not known, so little is allowed.
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// It is somebody else's: he has no say here, not even to forbid.
    Foreign {
        /// The file.
        path: PathBuf,
        /// Who owns it.
        owner: u32,
    },
}

impl Profile {
    /// The file.
    pub fn path(&self) -> &Path {
        match self {
            Profile::Named { path, .. }
            | Profile::Broken { path, .. }
            | Profile::Foreign { path, .. } => path,
        }
    }
}

/// Whether there is a profile for a directory at all, for those who cannot judge by one.
pub fn present(directory: &Path) -> bool {
    nearest(directory).is_some()
}

/// The nearest profile of a directory.
pub fn find(directory: &Path) -> Option<Profile> {
    nearest(directory).map(|(path, meta)| read(path, &meta))
}

fn nearest(directory: &Path) -> Option<(PathBuf, fs::Metadata)> {
    directory.ancestors().find_map(|directory| {
        let path = directory.join(NAME);
        let meta = fs::symlink_metadata(&path).ok()?;
        Some((path, meta))
    })
}

fn read(path: PathBuf, link: &fs::Metadata) -> Profile {
    let own = [0, substrate_sys::identity::effective_user_id()];
    if !own.contains(&link.uid()) {
        let owner = link.uid();
        return Profile::Foreign { path, owner };
    }
    let file = match open(&path) {
        Ok(file) => file,
        Err(problem) => return Profile::Broken { path, problem },
    };
    let mut content = Vec::new();
    let problem = match file.metadata() {
        Err(error) => plain(&error),
        // A link of ours to a file of somebody else's is his file.
        Ok(meta) if !own.contains(&meta.uid()) => {
            let owner = meta.uid();
            return Profile::Foreign { path, owner };
        }
        Ok(meta) if meta.is_dir() => "it is a directory".to_owned(),
        Ok(meta) if meta.file_type().is_fifo() => "it is a pipe".to_owned(),
        Ok(meta) if !meta.is_file() => "it is not a regular file".to_owned(),
        Ok(meta) if meta.len() > MAX_BYTES => too_large(),
        Ok(_) => match file.take(MAX_BYTES + 1).read_to_end(&mut content) {
            Err(error) => plain(&error),
            Ok(_) if content.len() as u64 > MAX_BYTES => too_large(),
            Ok(_) => match name_in(&content) {
                Ok(policy) => {
                    return Profile::Named {
                        path,
                        content,
                        policy,
                    };
                }
                Err(problem) => problem,
            },
        },
    };
    Profile::Broken { path, problem }
}

/// Opens without waiting for anybody: a pipe without a writer must not hold up a shell.
fn open(path: &Path) -> Result<fs::File, String> {
    let opened = fs::OpenOptions::new()
        .read(true)
        .custom_flags(O_NONBLOCK | O_CLOEXEC)
        .open(path);
    opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "it is a link to nothing".to_owned(),
        io::ErrorKind::PermissionDenied => "it cannot be read".to_owned(),
        _ => plain(&error),
    })
}

fn name_in(content: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(content.trim_ascii())
        .map_err(|_| "it does not hold text".to_owned())?;
    if text.is_empty() {
        return Err("it is empty; it must name a policy".to_owned());
    }
    if !is_id(text) {
        let shown: String = text
            .chars()
            .take(40)
            .flat_map(char::escape_default)
            .collect();
        return Err(format!(
            "`{shown}` is not the name of a policy: lower-case letters, digits and dashes"
        ));
    }
    Ok(text.to_owned())
}

fn too_large() -> String {
    format!("it is larger than {MAX_BYTES} bytes; it must hold one name")
}

fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(set_up: impl FnOnce(&Path)) -> String {
        let top = tempfile::tempdir().unwrap();
        set_up(&top.path().join(NAME));
        match find(top.path()) {
            Some(Profile::Broken { problem, .. }) => problem,
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn bad_files_have_names() {
        use std::os::unix::fs::symlink;
        let text = |text: &'static [u8]| problem(move |path| fs::write(path, text).unwrap());
        assert!(text(b"").contains("empty"));
        assert!(text(b" \n").contains("empty"));
        assert!(text(b"../../x\n").contains("`../../x` is not the name"));
        assert!(text(b"\xff\xfe").contains("not hold text"));
        assert!(text(b"a\nb").contains("is not the name"));
        assert!(text(&[b'a'; 5000]).contains("larger than"));
        assert!(problem(|path| fs::create_dir(path).unwrap()).contains("directory"));
        assert!(
            problem(|path| symlink("/nowhere/at/all", path).unwrap()).contains("link to nothing")
        );
        assert!(problem(|path| symlink("/dev/null", path).unwrap()).contains("not a regular file"));
        assert!(
            problem(|path| {
                let sparse = fs::File::create(path).unwrap();
                sparse.set_len(10 << 20).unwrap();
            })
            .contains("larger than")
        );
        let pipe = problem(|path| {
            let made = std::process::Command::new("mkfifo").arg(path).status();
            assert!(made.unwrap().success());
        });
        assert!(pipe.contains("pipe"), "{pipe}");
    }

    #[test]
    fn the_nearest_one_counts() {
        let top = tempfile::tempdir().unwrap();
        let deep = top.path().join("a/b/c");
        fs::create_dir_all(&deep).unwrap();
        assert!(!present(&deep));
        fs::write(top.path().join(NAME), "outer\n").unwrap();
        let policy = |directory: &Path| match find(directory) {
            Some(Profile::Named { policy, .. }) => policy,
            other => format!("{other:?}"),
        };
        assert_eq!(policy(&deep), "outer");
        fs::write(top.path().join("a/b").join(NAME), "inner").unwrap();
        assert_eq!(policy(&deep), "inner");
        assert_eq!(policy(&top.path().join("a")), "outer");
        assert_eq!(policy(&top.path().join("a/b/not/there")), "inner");
    }
}
