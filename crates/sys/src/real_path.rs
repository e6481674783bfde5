//! Where a path really leads.

use std::io;
use std::path::{Path, PathBuf};

/// The path without links, `.` and `..`. Some C libraries keep two slashes at its start; with one, the same
/// place is always the same bytes.
pub fn real_path(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    Ok(path.as_ref().canonicalize()?.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_slash_at_the_start() {
        let top = tempfile::tempdir().unwrap();
        let top = real_path(top.path()).unwrap();
        let twice = format!("/{}", top.display());
        let link = top.join("link");
        std::os::unix::fs::symlink(&twice, &link).unwrap();
        for path in [Path::new(&twice), &link] {
            assert_eq!(real_path(path).unwrap().as_os_str(), top.as_os_str());
        }
        assert_eq!(real_path("//").unwrap().as_os_str(), "/");
    }
}
