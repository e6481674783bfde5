//! Reading a directory through its descriptor, in few calls.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;

use rustix::fs::{FileType, RawDir};

/// What a directory says about the type of an entry; some file systems say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum EntryType {
    File,
    Dir,
    Other,
    Unknown,
}

/// All entries of an open directory but `.` and `..`, in the directory's own order.
pub fn read_dir(dir: impl AsFd) -> io::Result<Vec<(OsString, EntryType)>> {
    let mut found = Vec::new();
    // Most directories fill little of it; what is not filled is not touched.
    let mut buffer: Vec<u8> = Vec::with_capacity(32 * 1024);
    let mut entries = RawDir::new(dir, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            let kind = match entry.file_type() {
                FileType::RegularFile => EntryType::File,
                FileType::Directory => EntryType::Dir,
                FileType::Unknown => EntryType::Unknown,
                _ => EntryType::Other,
            };
            found.push((OsString::from_vec(name.to_vec()), kind));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn all_entries_of_a_large_directory_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..2000 {
            File::create(dir.path().join(format!("a file with a longer name {n}"))).unwrap();
        }
        fs::create_dir(dir.path().join("sub")).unwrap();
        let odd = OsString::from_vec(b"\n\xff".to_vec());
        File::create(dir.path().join(&odd)).unwrap();
        let all = read_dir(File::open(dir.path()).unwrap()).unwrap();
        assert_eq!(all.len(), 2002);
        assert!(all.contains(&(odd, EntryType::File)));
        assert!(all.contains(&(OsString::from("sub"), EntryType::Dir)));
    }
}
