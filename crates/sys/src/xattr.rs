//! Extended attributes of a name below an open directory; a symlink is not followed.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{self, XattrFlags};
use rustix::io::Errno;

/// The names of all attributes, or nothing where the file system has none.
pub fn list(dir: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<Vec<Vec<u8>>> {
    let path = path_of(&dir, name.as_ref())?;
    split(grown(|buffer| fs::llistxattr(&path, buffer)))
}

/// The names in what the kernel answered.
fn split(answer: Result<Vec<u8>, Errno>) -> io::Result<Vec<Vec<u8>>> {
    match answer {
        Ok(names) => Ok(names
            .split(|&b| b == 0)
            .filter(|n| !n.is_empty())
            .map(<[u8]>::to_vec)
            .collect()),
        Err(Errno::NOTSUP) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// The value of one attribute; `None` if it is not set.
pub fn get(
    dir: impl AsFd,
    name: impl AsRef<OsStr>,
    attribute: &[u8],
) -> io::Result<Option<Vec<u8>>> {
    let path = path_of(&dir, name.as_ref())?;
    present(grown(|buffer| fs::lgetxattr(&path, attribute, buffer)))
}

/// A value, if there is one.
fn present(answer: Result<Vec<u8>, Errno>) -> io::Result<Option<Vec<u8>>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The names of all attributes of an open file, or nothing where the file system has none.
pub fn list_open(file: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    split(grown(|buffer| fs::flistxattr(&file, buffer)))
}

/// The value of one attribute of an open file; `None` if it is not set.
pub fn get_open(file: impl AsFd, attribute: &[u8]) -> io::Result<Option<Vec<u8>>> {
    present(grown(|buffer| fs::fgetxattr(&file, attribute, buffer)))
}

/// Sets one attribute.
pub fn set(
    dir: impl AsFd,
    name: impl AsRef<OsStr>,
    attribute: &[u8],
    value: &[u8],
) -> io::Result<()> {
    let path = path_of(&dir, name.as_ref())?;
    Ok(fs::lsetxattr(&path, attribute, value, XattrFlags::empty())?)
}

/// Removes one attribute.
pub fn remove(dir: impl AsFd, name: impl AsRef<OsStr>, attribute: &[u8]) -> io::Result<()> {
    let path = path_of(&dir, name.as_ref())?;
    Ok(fs::lremovexattr(&path, attribute)?)
}

/// There is no `getxattrat` before Linux 6.13; the directory's entry in `/proc` serves as one.
fn path_of(dir: &impl AsFd, name: &OsStr) -> io::Result<CString> {
    let mut path = format!("/proc/self/fd/{}/", dir.as_fd().as_raw_fd()).into_bytes();
    if name.is_empty() {
        path.push(b'.');
    }
    path.extend_from_slice(name.as_bytes());
    Ok(CString::new(path)?)
}

/// Calls with a larger buffer until the answer fits.
fn grown(mut call: impl FnMut(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = [0_u8; 256];
    let mut answer = call(&mut buffer).map(|length| buffer[..length].to_vec());
    let mut size = 4096;
    while answer == Err(Errno::RANGE) && size <= 1 << 17 {
        let mut large = vec![0_u8; size];
        answer = call(&mut large).map(|length| {
            large.truncate(length);
            large
        });
        size *= 2;
    }
    answer
}

/// The attribute that carries file capabilities.
pub const CAPABILITY: &CStr = c"security.capability";

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn attributes_come_back_and_go() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "x").unwrap();
        let at = File::open(dir.path()).unwrap();
        let value = vec![0_u8; 900];
        set(&at, "f", b"user.one", &value).unwrap();
        set(&at, "f", b"user.two", b"").unwrap();
        let mut names = list(&at, "f").unwrap();
        names.retain(|n| n.starts_with(b"user."));
        names.sort();
        assert_eq!(names, [b"user.one".to_vec(), b"user.two".to_vec()]);
        assert_eq!(get(&at, "f", b"user.one").unwrap(), Some(value));
        assert_eq!(get(&at, "f", b"user.two").unwrap(), Some(Vec::new()));
        remove(&at, "f", b"user.one").unwrap();
        assert_eq!(get(&at, "f", b"user.one").unwrap(), None);
        let open = File::open(dir.path().join("f")).unwrap();
        assert!(list_open(&open).unwrap().contains(&b"user.two".to_vec()));
        assert_eq!(get_open(&open, b"user.two").unwrap(), Some(Vec::new()));
        assert_eq!(get_open(&open, b"user.one").unwrap(), None);
        set(&at, "", b"user.dir", b"d").unwrap();
        assert_eq!(get(&at, "", b"user.dir").unwrap(), Some(b"d".to_vec()));
    }

    #[test]
    fn a_symlink_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), "x").unwrap();
        std::os::unix::fs::symlink("f", dir.path().join("l")).unwrap();
        let at = File::open(dir.path()).unwrap();
        set(&at, "f", b"user.one", b"1").unwrap();
        assert_eq!(get(&at, "l", b"user.one").unwrap(), None);
        assert!(set(&at, "l", b"user.one", b"2").is_err());
    }
}
