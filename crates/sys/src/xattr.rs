//! Extended attributes of a name below an open directory; a symlink is not followed.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;

use crate::at;

/// The names of all attributes, or nothing where the file system has none.
pub fn list(dir: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<Vec<Vec<u8>>> {
    let path = path_of(&dir, name.as_ref())?;
    split(grown(|buffer| {
        // SAFETY: `path` is a C string, and the buffer is writable for the length given.
        unsafe { libc::llistxattr(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) }
    }))
}

/// The names in what the kernel answered.
fn split(answer: io::Result<Vec<u8>>) -> io::Result<Vec<Vec<u8>>> {
    match answer {
        Ok(names) => Ok(names
            .split(|&b| b == 0)
            .filter(|n| !n.is_empty())
            .map(<[u8]>::to_vec)
            .collect()),
        Err(e) if e.raw_os_error() == Some(libc::ENOTSUP) => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

/// The value of one attribute; `None` if it is not set.
pub fn get(
    dir: impl AsFd,
    name: impl AsRef<OsStr>,
    attribute: &[u8],
) -> io::Result<Option<Vec<u8>>> {
    let path = path_of(&dir, name.as_ref())?;
    let attribute = CString::new(attribute)?;
    present(grown(|buffer| {
        // SAFETY: both names are C strings, and the buffer is writable for the length given.
        unsafe {
            libc::lgetxattr(
                path.as_ptr(),
                attribute.as_ptr(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
            )
        }
    }))
}

/// A value, if there is one.
fn present(answer: io::Result<Vec<u8>>) -> io::Result<Option<Vec<u8>>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENODATA | libc::ENOTSUP)) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The names of all attributes of an open file, or nothing where the file system has none.
pub fn list_open(file: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    split(grown(|buffer| {
        let fd = file.as_fd().as_raw_fd();
        // SAFETY: the descriptor is borrowed, and the buffer is writable for the length given.
        unsafe { libc::flistxattr(fd, buffer.as_mut_ptr().cast(), buffer.len()) }
    }))
}

/// The value of one attribute of an open file; `None` if it is not set.
pub fn get_open(file: impl AsFd, attribute: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let attribute = CString::new(attribute)?;
    present(grown(|buffer| {
        let fd = file.as_fd().as_raw_fd();
        // SAFETY: the descriptor is borrowed, the name is a C string, and the buffer is
        // writable for the length given.
        unsafe {
            libc::fgetxattr(
                fd,
                attribute.as_ptr(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
            )
        }
    }))
}

/// Sets one attribute.
pub fn set(
    dir: impl AsFd,
    name: impl AsRef<OsStr>,
    attribute: &[u8],
    value: &[u8],
) -> io::Result<()> {
    let path = path_of(&dir, name.as_ref())?;
    let attribute = CString::new(attribute)?;
    // SAFETY: both names are C strings, and the value is readable for the length given.
    at::check(unsafe {
        libc::lsetxattr(
            path.as_ptr(),
            attribute.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    })
}

/// Removes one attribute.
pub fn remove(dir: impl AsFd, name: impl AsRef<OsStr>, attribute: &[u8]) -> io::Result<()> {
    let path = path_of(&dir, name.as_ref())?;
    let attribute = CString::new(attribute)?;
    // SAFETY: both names are C strings that live through the call.
    at::check(unsafe { libc::lremovexattr(path.as_ptr(), attribute.as_ptr()) })
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
fn grown(mut call: impl FnMut(&mut [u8]) -> isize) -> io::Result<Vec<u8>> {
    let mut buffer = [0_u8; 256];
    let n = call(&mut buffer);
    if let Ok(length) = usize::try_from(n) {
        return Ok(buffer[..length].to_vec());
    }
    let mut error = io::Error::last_os_error();
    let mut large = vec![0_u8; 4096];
    while error.raw_os_error() == Some(libc::ERANGE) && large.len() <= 1 << 17 {
        if let Ok(length) = usize::try_from(call(&mut large)) {
            large.truncate(length);
            return Ok(large);
        }
        error = io::Error::last_os_error();
        large.resize(large.len() * 2, 0);
    }
    Err(error)
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
