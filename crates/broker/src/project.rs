//! `$PROJECT`: the work tree around a directory.

use std::path::{Path, PathBuf};

const MARKERS: [&str; 4] = [".git", ".hg", ".svn", ".jj"];

/// The root of the enclosing work tree, else the directory where the session started. Never `/`,
/// the home directory or one of its parents: then there is no project.
pub fn find(cwd: &Path, session_start: &Path, home: &Path) -> Option<PathBuf> {
    let root = cwd
        .ancestors()
        .find(|directory| MARKERS.iter().any(|marker| directory.join(marker).exists()));
    let project = root.unwrap_or(session_start);
    (!home.starts_with(project)).then(|| project.to_owned())
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
