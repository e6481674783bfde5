//! `trace.jsonl` becomes `trace.1.jsonl`, that one `trace.2.jsonl`, and so on.
//!
//! Files are only renamed and removed, never copied or cut: whoever still holds one
//! open goes on writing into a file that readers know.

use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::files::open_private;

/// How large the trace may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// A file that would grow past this is rotated away first.
    pub max_bytes: u64,
    /// How many files there may be, the current one included; at least two.
    pub files: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            max_bytes: 64 << 20,
            files: 8,
        }
    }
}

/// The name of the file that is written to.
pub(crate) const CURRENT: &str = "trace.jsonl";
const LOCK: &str = "trace.lock";

/// The name of a file that was rotated `number` times.
pub(crate) fn rotated(current: &Path, number: u32) -> PathBuf {
    current.with_file_name(format!("trace.{number}.jsonl"))
}

/// The numbers of the rotated files of a home, smallest and so newest first.
pub(crate) fn numbers(home: &Path) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir(home) else {
        return Vec::new();
    };
    let mut numbers: Vec<u32> = entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let number = name
                .to_str()?
                .strip_prefix("trace.")?
                .strip_suffix(".jsonl")?;
            // `trace.01.jsonl` is not ours.
            let value: u32 = number.parse().ok()?;
            (value > 0 && value.to_string() == number).then_some(value)
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Rotates the current file away if it is still the one with this id. Whoever does
/// not get the lock leaves the work to the one who has it. Nothing here may fail a
/// write: a file that cannot be renamed just grows.
pub(crate) fn rotate(current: &Path, id: (u64, u64), retention: Retention) {
    let Some(home) = current.parent() else {
        return;
    };
    let lock = open_private(
        &home.join(LOCK),
        OpenOptions::new().write(true).create(true).truncate(false),
    );
    let Ok((lock, _)) = lock else {
        return;
    };
    if lock.try_lock().is_err() {
        return;
    }
    let same =
        std::fs::symlink_metadata(current).is_ok_and(|found| (found.dev(), found.ino()) == id);
    if same {
        shift(home, current, retention.files.max(2));
    }
    // A process forked meanwhile holds a copy of this descriptor, which would keep the lock after us.
    let _ = lock.unlock();
}

/// Moves the files up, beginning at a free number, so that no rename hits a file:
/// a crash in between leaves a gap and loses nothing.
fn shift(home: &Path, current: &Path, files: u32) {
    let taken = numbers(home);
    for &number in taken
        .iter()
        .rev()
        .take_while(|&&number| number >= files - 1)
    {
        let _ = std::fs::remove_file(rotated(current, number));
    }
    let free = (1..files)
        .find(|number| !taken.contains(number) || *number == files - 1)
        .unwrap_or(1);
    for number in (1..free).rev() {
        if std::fs::rename(rotated(current, number), rotated(current, number + 1)).is_err() {
            return;
        }
    }
    let _ = std::fs::rename(current, rotated(current, 1));
}

/// Removes rotated files, oldest first, until the rotated files hold at most `bytes`
/// and none was written to last before `oldest`. The current file stays. Gives back
/// how many files and bytes went.
pub fn prune(
    home: &Path,
    bytes: u64,
    oldest: Option<std::time::SystemTime>,
) -> std::io::Result<(u32, u64)> {
    let current = home.join(CURRENT);
    let mut removed = (0, 0);
    let mut total = 0;
    for number in numbers(home) {
        let path = rotated(&current, number);
        let found = std::fs::symlink_metadata(&path)?;
        total += found.len();
        let old = oldest.is_some_and(|oldest| found.modified().is_ok_and(|at| at < oldest));
        if total > bytes || old {
            std::fs::remove_file(&path)?;
            removed = (removed.0 + 1, removed.1 + found.len());
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(home: &Path) -> Vec<(u32, String)> {
        let current = home.join(CURRENT);
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let mut files = vec![(0, read(current.clone()))];
        files.extend(
            numbers(home)
                .iter()
                .map(|&n| (n, read(rotated(&current, n)))),
        );
        files
    }

    fn rotate_now(home: &Path, content: &str, files: u32) {
        let current = home.join(CURRENT);
        std::fs::write(&current, content).unwrap();
        let found = current.metadata().unwrap();
        let retention = Retention {
            max_bytes: 1,
            files,
        };
        rotate(&current, (found.dev(), found.ino()), retention);
    }

    #[test]
    fn files_move_up_and_the_oldest_goes() {
        let temp = tempfile::tempdir().unwrap();
        for content in ["a", "b", "c", "d"] {
            rotate_now(temp.path(), content, 3);
        }
        let expected = [(0, ""), (1, "d"), (2, "c")].map(|(n, s)| (n, s.to_owned()));
        assert_eq!(files(temp.path()), expected);
    }

    #[test]
    fn gaps_are_filled_and_surplus_files_go() {
        let temp = tempfile::tempdir().unwrap();
        for (number, content) in [(1, "one"), (3, "three"), (9, "nine")] {
            std::fs::write(rotated(&temp.path().join(CURRENT), number), content).unwrap();
        }
        std::fs::write(temp.path().join("trace.01.jsonl"), "foreign").unwrap();
        rotate_now(temp.path(), "new", 5);
        let expected =
            [(0, ""), (1, "new"), (2, "one"), (3, "three")].map(|(n, s)| (n, s.to_owned()));
        assert_eq!(files(temp.path()), expected);
    }

    #[test]
    fn a_file_that_was_rotated_by_someone_else_stays() {
        let temp = tempfile::tempdir().unwrap();
        let current = temp.path().join(CURRENT);
        std::fs::write(&current, "x").unwrap();
        rotate(&current, (0, 0), Retention::default());
        assert_eq!(files(temp.path()), [(0, "x".to_owned())]);

        let lock = std::fs::File::create(temp.path().join(LOCK)).unwrap();
        lock.lock().unwrap();
        rotate_now(temp.path(), "y", 3);
        assert_eq!(files(temp.path()), [(0, "y".to_owned())]);
    }

    #[test]
    fn pruning_keeps_the_newest() {
        let temp = tempfile::tempdir().unwrap();
        for content in ["aaaa", "bb", "cc", "dd"] {
            rotate_now(temp.path(), content, 9);
        }
        assert_eq!(prune(temp.path(), 5, None).unwrap(), (2, 6));
        assert_eq!(numbers(temp.path()), [1, 2]);
        let future = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
        assert_eq!(prune(temp.path(), 99, Some(future)).unwrap(), (2, 4));
        assert_eq!(prune(&temp.path().join("none"), 0, None).unwrap(), (0, 0));
    }
}
