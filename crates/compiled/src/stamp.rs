//! Which files a compiled policy was made from, and whether they still are what they were.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::codec::{Decoder, Encoder};

/// The files, as they were looked at. A path that was missing counts: its appearance is a change.
#[derive(Debug, Default)]
pub struct Stamp {
    entries: Encoder,
    count: usize,
}

impl Stamp {
    /// Adds a file or directory as it is now.
    pub fn add(&mut self, path: &Path) {
        self.count += 1;
        self.entries.bytes(path.as_os_str().as_bytes());
        self.entries.option(look(path), |to, look| {
            for value in look {
                to.u64(value);
            }
        });
    }

    /// Its byte form.
    pub fn finish(self) -> Vec<u8> {
        let mut all = Encoder::new();
        all.count(self.count);
        all.raw(&self.entries.finish());
        all.finish()
    }
}

/// Whether every file is as it was. Broken bytes are not fresh.
pub fn is_fresh(stamp: &[u8]) -> bool {
    let mut from = Decoder::new(stamp);
    let mut check = || -> Option<bool> {
        for _ in 0..from.count()? {
            let path = Path::new(OsStr::from_bytes(from.bytes()?));
            let then = from.option(|from| {
                Some([
                    from.u64()?,
                    from.u64()?,
                    from.u64()?,
                    from.u64()?,
                    from.u64()?,
                    from.u64()?,
                ])
            })?;
            if look(path) != then {
                return Some(false);
            }
        }
        Some(true)
    };
    check().unwrap_or(false)
}

/// What tells one state of a file from another; the change time cannot be set back.
fn look(path: &Path) -> Option<[u64; 6]> {
    let meta = fs::metadata(path).ok()?;
    let nanos = |seconds: i64, nanos: i64| {
        (seconds as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(nanos as u64)
    };
    Some([
        meta.dev(),
        meta.ino(),
        meta.size(),
        nanos(meta.mtime(), meta.mtime_nsec()),
        nanos(meta.ctime(), meta.ctime_nsec()),
        u64::from(meta.mode()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_noticed() {
        let directory =
            std::env::temp_dir().join(format!("substrate-stamp-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (file, missing) = (directory.join("a"), directory.join("b"));
        fs::write(&file, "one").unwrap();
        let stamp = |paths: &[&Path]| {
            let mut stamp = Stamp::default();
            paths.iter().for_each(|path| stamp.add(path));
            stamp.finish()
        };
        let (first, second) = (stamp(&[&file]), stamp(&[&missing]));
        assert!(is_fresh(&first) && is_fresh(&second));
        fs::write(&missing, "now it is there").unwrap();
        assert!(is_fresh(&first) && !is_fresh(&second));
        fs::remove_file(&file).unwrap();
        assert!(!is_fresh(&first));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn garbage_is_not_fresh() {
        assert!(!is_fresh(b""));
        assert!(!is_fresh(&[255; 40]));
    }
}
