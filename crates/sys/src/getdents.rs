//! Reading a directory through its descriptor, in few calls.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;

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
    loop {
        // SAFETY: the buffer is writable for the length given.
        let n = unsafe {
            libc::syscall(
                libc::SYS_getdents64,
                dir.as_fd().as_raw_fd(),
                buffer.as_mut_ptr(),
                buffer.capacity(),
            )
        };
        let filled = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        if filled == 0 {
            return Ok(found);
        }
        // SAFETY: the kernel has just written that many bytes, which is at most the capacity.
        unsafe { buffer.set_len(filled) };
        parse(&buffer, &mut found);
    }
}

/// Records are `ino: u64, next: u64, length: u16, type: u8`, then the name and zeroes.
fn parse(mut records: &[u8], found: &mut Vec<(OsString, EntryType)>) {
    while records.len() > 19 {
        let length = usize::from(u16::from_ne_bytes([records[16], records[17]]));
        if length < 20 || length > records.len() {
            return;
        }
        let name = records[19..length].split(|&b| b == 0).next().unwrap_or(&[]);
        if name != b"." && name != b".." {
            let kind = match records[18] {
                libc::DT_REG => EntryType::File,
                libc::DT_DIR => EntryType::Dir,
                libc::DT_UNKNOWN => EntryType::Unknown,
                _ => EntryType::Other,
            };
            found.push((OsString::from_vec(name.to_vec()), kind));
        }
        records = &records[length..];
    }
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
