//! `$PROJECT`: the work tree around a directory.

use std::path::{Path, PathBuf};

use substrate_sys::bounded::{self, Links};
use substrate_sys::real_path::real_path;

const MARKERS: [&str; 4] = [".git", ".hg", ".svn", ".jj"];

/// The root of the enclosing work tree, else the directory where the session started. Never `/`,
/// the home directory or one of its parents: then there is no project.
pub fn find(cwd: &Path, session_start: &Path, home: &Path) -> Option<PathBuf> {
    let root = cwd.ancestors().find(|directory| is_root(directory));
    let project = root.unwrap_or(session_start);
    (!home.starts_with(project)).then(|| project.to_owned())
}

/// Whether a directory is the root of a work tree.
pub fn is_root(directory: &Path) -> bool {
    MARKERS.iter().any(|marker| directory.join(marker).exists())
}

/// Longest file of git's that is read for a commit; packed references of large repositories are longer, and
/// then there is none.
const GIT_FILE: u64 = 1 << 20;

/// The commit that is checked out in the repository which a file lies in.
pub fn commit(file: &Path) -> Option<String> {
    let real = real_path(file).ok()?;
    let dot_git = real
        .ancestors()
        .skip(1)
        .map(|directory| directory.join(".git"))
        .find(|path| path.exists())?;
    let read = |path: &Path| {
        let text = bounded::read(path, Links::Follow, GIT_FILE).ok()?;
        String::from_utf8(text).ok()
    };
    let directory = match dot_git.is_dir() {
        true => dot_git,
        false => {
            let text = read(&dot_git)?;
            let target = text.trim().strip_prefix("gitdir: ")?.to_owned();
            dot_git.parent()?.join(target)
        }
    };
    let common = match read(&directory.join("commondir")) {
        Some(text) => directory.join(text.trim()),
        None => directory.clone(),
    };
    let head = read(&directory.join("HEAD"))?;
    let head = head.trim();
    let found = match head.strip_prefix("ref: ") {
        None => Some(head.to_owned()),
        Some(name) if name.split('/').any(|part| part == "..") => None,
        Some(name) => read(&common.join(name))
            .map(|text| text.trim().to_owned())
            .or_else(|| {
                let packed = read(&common.join("packed-refs"))?;
                let line = packed
                    .lines()
                    .find(|line| line.split_once(' ').is_some_and(|(_, of)| of == name))?;
                Some(line.split(' ').next()?.to_owned())
            }),
    };
    found
        .filter(|id| matches!(id.len(), 40 | 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_trees() {
        let top = tempfile::tempdir().unwrap();
        let repo = top.path().join("repo");
        std::fs::create_dir_all(repo.join("a/b")).unwrap();
        std::fs::create_dir(repo.join(".git")).unwrap();
        let home = Path::new("/home/u");
        assert_eq!(
            find(&repo.join("a/b"), top.path(), home),
            Some(repo.clone())
        );
        assert_eq!(
            find(top.path(), top.path(), home),
            Some(top.path().to_owned())
        );
    }

    #[test]
    fn the_commit_of_the_repository_around_a_file() {
        let top = tempfile::tempdir().unwrap();
        let file = top.path().join("policies/x.yaml");
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, "").unwrap();
        assert_eq!(commit(&file), None);
        let git = top.path().join(".git");
        std::fs::create_dir_all(git.join("refs/heads")).unwrap();
        let id = "0123456789abcdef0123456789abcdef01234567";
        let cases = [
            (id.to_owned(), "", Some(id)),
            ("ref: refs/heads/main".to_owned(), "", None),
            ("ref: refs/heads/main".to_owned(), id, Some(id)),
            ("ref: ../../secret".to_owned(), id, None),
            ("nonsense".to_owned(), "", None),
        ];
        for (head, reference, expected) in cases {
            std::fs::write(git.join("HEAD"), format!("{head}\n")).unwrap();
            let _ = std::fs::remove_file(git.join("refs/heads/main"));
            if !reference.is_empty() {
                std::fs::write(git.join("refs/heads/main"), format!("{reference}\n")).unwrap();
            }
            assert_eq!(commit(&file).as_deref(), expected, "{head}");
        }
        std::fs::remove_file(git.join("refs/heads/main")).ok();
        std::fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        let packed = format!("# pack-refs with: peeled\n{id} refs/heads/main\n");
        std::fs::write(git.join("packed-refs"), packed).unwrap();
        assert_eq!(commit(&file).as_deref(), Some(id));
    }

    #[test]
    fn home_and_root_are_no_projects() {
        let home = Path::new("/home/u");
        for start in ["/", "/home", "/home/u"] {
            assert_eq!(
                find(Path::new(start), Path::new(start), home),
                None,
                "{start}"
            );
        }
    }
}
