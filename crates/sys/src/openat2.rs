//! Opening a path strictly below a directory: no symlink, no `..` on the way, and no other mount
//! where that is asked for.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;

use crate::at;

/// Longest part of a path handed to the kernel at once; its own limit is 4096.
const PART: usize = 3000;

/// Whether another mount may lie on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mounts {
    Any,
    One,
}

/// Opens a directory below `root` as a handle (`O_PATH`). Fails with `EXDEV` at a way out, with
/// `ELOOP` at a symlink. An empty path is the root itself.
pub fn dir_beneath(root: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    walk(root.as_fd(), path, Mounts::Any)
}

/// The same, failing with `EXDEV` at another mount as well.
pub fn dir_beneath_on_mount(root: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    walk(root.as_fd(), path, Mounts::One)
}

fn walk(root: BorrowedFd<'_>, path: &Path, mounts: Mounts) -> io::Result<OwnedFd> {
    let mut at: Option<OwnedFd> = None;
    let mut part = PathBuf::new();
    for component in path.components() {
        let Component::Normal(name) = component else {
            return Err(Errno::XDEV.into());
        };
        if part.as_os_str().len() + name.len() > PART {
            at = Some(step(at.as_ref(), root, &part, mounts)?);
            part = PathBuf::new();
        }
        part.push(name);
    }
    if part.as_os_str().is_empty() {
        part.push(".");
    }
    step(at.as_ref(), root, &part, mounts)
}

fn step(
    at: Option<&OwnedFd>,
    root: BorrowedFd<'_>,
    part: &Path,
    mounts: Mounts,
) -> io::Result<OwnedFd> {
    let dir = at.map_or(root, AsFd::as_fd);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut resolve =
        ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    resolve.set(ResolveFlags::NO_XDEV, mounts == Mounts::One);
    match openat2(dir, part, flags, Mode::empty(), resolve) {
        // Kernels before 5.6, and filters that do not know the call.
        Err(Errno::NOSYS | Errno::PERM) => by_name(dir, part, mounts),
        other => Ok(other?),
    }
}

/// Whether links are followed on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// As the kernel does for a process whose root this is; those of `/proc` fail with `ELOOP`.
    Follow,
    /// The same, and another mount than the root's own fails with `EXDEV`.
    FollowOnMount,
    /// The last one stays as it is.
    KeepLast,
    /// Any link fails with `ELOOP`.
    Refuse,
}

/// Opens what a path means to a process that has `root` as its root, as a handle (`O_PATH`).
pub fn in_root(root: impl AsFd, path: &OsStr, links: Links) -> io::Result<OwnedFd> {
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    flags.set(OFlags::NOFOLLOW, links == Links::KeepLast);
    let mut resolve = ResolveFlags::IN_ROOT;
    resolve.set(ResolveFlags::NO_SYMLINKS, links == Links::Refuse);
    resolve.set(ResolveFlags::NO_XDEV, links == Links::FollowOnMount);
    Ok(openat2(root, path, flags, Mode::empty(), resolve)?)
}

/// The same walk one name at a time.
fn by_name(dir: BorrowedFd<'_>, part: &Path, mounts: Mounts) -> io::Result<OwnedFd> {
    let mut current = dir.try_clone_to_owned()?;
    for name in part.components() {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let next = at::open(&current, name.as_os_str(), flags)?;
        if mounts == Mounts::One && at::mount_id(&next) != at::mount_id(&current) {
            return Err(Errno::XDEV.into());
        }
        current = next;
    }
    Ok(current)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};

    #[test]
    fn nothing_leads_out_and_no_symlink_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        let root = File::open(dir.path()).unwrap();
        let error = |path: &str| {
            dir_beneath(&root, Path::new(path))
                .err()
                .and_then(|e| e.raw_os_error())
        };
        assert_eq!(error("a/b"), None);
        assert_eq!(error(""), None);
        assert_eq!(error("link/b"), Some(libc::ELOOP));
        assert_eq!(error("a/../.."), Some(libc::EXDEV));
        assert_eq!(error("/etc"), Some(libc::EXDEV));
        assert_eq!(error("a/none"), Some(libc::ENOENT));
    }

    #[test]
    fn a_root_holds_its_links() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/file"), "").unwrap();
        std::os::unix::fs::symlink("/a/file", dir.path().join("absolute")).unwrap();
        std::os::unix::fs::symlink("../../../etc/passwd", dir.path().join("a/out")).unwrap();
        let root = File::open(dir.path()).unwrap();
        let open = |path: &str, links| in_root(&root, OsStr::new(path), links);
        let file = fs::metadata(dir.path().join("a/file")).unwrap();
        let found = at::stat(open("/absolute", Links::Follow).unwrap(), "").unwrap();
        assert_eq!(found.ino, std::os::unix::fs::MetadataExt::ino(&file));
        let error = |path: &str, links| open(path, links).err().and_then(|e| e.raw_os_error());
        assert_eq!(error("/a/out", Links::Follow), Some(libc::ENOENT));
        assert_eq!(error("/absolute", Links::Refuse), Some(libc::ELOOP));
        assert_eq!(error("/absolute", Links::KeepLast), None);
        assert_eq!(error("/a/none", Links::Refuse), Some(libc::ENOENT));
    }

    #[test]
    fn walking_by_name_answers_alike() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        let root = File::open(dir.path()).unwrap();
        let opened = by_name(root.as_fd(), Path::new("a/b"), Mounts::One).unwrap();
        let same = dir_beneath(&root, Path::new("a/b")).unwrap();
        assert_eq!(at::stat(&opened, "").unwrap(), at::stat(&same, "").unwrap());
        assert!(by_name(root.as_fd(), Path::new("link/b"), Mounts::Any).is_err());
        if Path::new("/proc/self").exists() {
            let top = File::open("/").unwrap();
            let proc = Path::new("proc");
            for refused in [
                by_name(top.as_fd(), proc, Mounts::One),
                dir_beneath_on_mount(&top, proc),
            ] {
                let error = refused.unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EXDEV));
            }
            by_name(top.as_fd(), proc, Mounts::Any).unwrap();
            dir_beneath(&top, proc).unwrap();
        }
    }

    #[test]
    fn paths_longer_than_the_kernel_takes_are_walked_in_parts() {
        let dir = tempfile::tempdir().unwrap();
        let name = "n".repeat(200);
        let mut at = File::open(dir.path()).unwrap();
        let mut path = PathBuf::new();
        for _ in 0..40 {
            at::mkdir(&at, &name, 0o700).unwrap();
            at = at::open_dir(&at, &name).unwrap().into();
            path.push(&name);
        }
        let root = File::open(dir.path()).unwrap();
        let found = dir_beneath(&root, &path).unwrap();
        assert_eq!(
            at::stat(&found, "").unwrap().ino,
            at::stat(&at, "").unwrap().ino
        );
    }
}
