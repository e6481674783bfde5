//! Rights for Landlock, which gives subtrees and cannot take away below what it gave.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

use substrate_sys::landlock;

use crate::c_text::c;

/// Look at it and run it.
pub(crate) const READ: u64 = landlock::READ_FILE | landlock::READ_DIR | landlock::EXECUTE;
/// Whatever the kernel knows.
pub(crate) const ALL: u64 = u64::MAX;

/// Gives access to a tree except what is hidden: siblings of hidden paths get it one by one,
/// their parents can only be listed. Names that appear later next to them fail closed.
pub(crate) fn around(
    path: &Path,
    hidden: &BTreeSet<PathBuf>,
    access: u64,
    rights: &mut Vec<(CString, u64)>,
) {
    if hidden.contains(path) {
        return;
    }
    if !hidden.iter().any(|hide| hide.starts_with(path)) {
        rights.push((c(path), access));
        return;
    }
    rights.push((c(path), landlock::READ_DIR));
    let Ok(entries) = fs::read_dir(path) else {
        return;
    };
    for entry in entries.flatten() {
        // A symlink gives no access by itself, and following it would give what it names.
        if !entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            around(&entry.path(), hidden, access, rights);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_are_given_and_parents_only_listed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for path in ["a/secret", "a/open", "b"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        std::os::unix::fs::symlink("a", root.join("link")).unwrap();
        let hidden = BTreeSet::from([root.join("a/secret"), root.join("a/later")]);
        let mut rights = Vec::new();
        around(root, &hidden, READ, &mut rights);
        rights.sort();
        let list = landlock::READ_DIR;
        let mut expected = vec![(c(root), list)];
        for (path, access) in [("a", list), ("a/open", READ), ("b", READ)] {
            expected.push((c(&root.join(path)), access));
        }
        assert_eq!(rights, expected);
    }
}
