//! Mounts through file descriptors: trees are taken, changed while nobody sees them, and put
//! in place. Nothing here allocates, so all of it may run between clone and exec.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, StatVfsMountFlags, fstat, fstatvfs, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
    open_tree, unmount,
};
use rustix::process::{chdir, fchdir, pivot_root};

/// Read-only.
pub const RDONLY: u64 = 0x1;
/// Setuid bits and file capabilities have no effect.
pub const NOSUID: u64 = 0x2;
/// Device files cannot be opened.
pub const NODEV: u64 = 0x4;
/// Programs cannot be started.
pub const NOEXEC: u64 = 0x8;

const AT_RECURSIVE: u32 = 0x8000;

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

/// A detached copy of the mount at `path`, with what is mounted below it when `recursive`. A symlink
/// anywhere in `path` is an error, as in [`attach`].
pub fn clone_tree(path: &CStr, recursive: bool) -> io::Result<OwnedFd> {
    clone_at(&open_place(path)?, recursive)
}

fn clone_at(place: &OwnedFd, recursive: bool) -> io::Result<OwnedFd> {
    let mut flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    flags.set(OpenTreeFlags::AT_RECURSIVE, recursive);
    Ok(open_tree(place, c"", flags)?)
}

/// Mounts what is at `path` on itself, with these attributes. The path is looked up once: a copy of one
/// directory must not land on another that took its name.
pub fn fix(path: &CStr, attributes: u64) -> io::Result<()> {
    let place = open_place(path)?;
    let tree = clone_at(&place, true)?;
    if attributes != 0 {
        let what = Change {
            set: attributes,
            clear: 0,
            private: false,
            recursive: true,
        };
        change_tree(tree.as_fd(), what)?;
    }
    attach_at(tree.as_fd(), &place)
}

/// Opens a path without following any symlink, for use as a place to mount on.
pub fn open_place(path: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(CWD, path, flags, Mode::empty(), resolve)?)
}

/// Puts a detached tree in place. A symlink anywhere in `path` is an error: the layout was
/// computed for the resolved path, so a link means that somebody changed it meanwhile.
pub fn attach(tree: BorrowedFd<'_>, path: &CStr) -> io::Result<()> {
    attach_at(tree, &open_place(path)?)
}

/// What must be at a path that is to be covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Whatever there is; what is not there needs no cover.
    Anything,
    /// Something.
    Something,
    /// The file with this device and number: a cover on anything else would cover nothing.
    Same(u64, u64),
}

/// Puts a detached tree over a path. Fails with `ESTALE` when something else is there by now.
pub fn cover(tree: BorrowedFd<'_>, path: &CStr, expected: Expected) -> io::Result<()> {
    let place = match open_place(path) {
        Err(error) if expected == Expected::Anything && error.kind() == io::ErrorKind::NotFound => {
            return Ok(());
        }
        other => other?,
    };
    if let Expected::Same(device, number) = expected
        && identity(&place)? != (device, number)
    {
        return Err(Errno::STALE.into());
    }
    attach_at(tree, &place)
}

fn identity(file: &OwnedFd) -> io::Result<(u64, u64)> {
    let stat = fstat(file)?;
    Ok((stat.st_dev, stat.st_ino))
}

fn attach_at(tree: BorrowedFd<'_>, place: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(tree, c"", place, c"", flags)?)
}

/// Takes away what was put on a path last. Whoever still uses it keeps it until they are done.
pub fn detach(path: &CStr) -> io::Result<()> {
    Ok(unmount(
        path,
        UnmountFlags::DETACH | UnmountFlags::NOFOLLOW,
    )?)
}

/// What to change about a mount or a whole tree of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// Attributes to set.
    pub set: u64,
    /// Attributes to clear.
    pub clear: u64,
    /// Cut the tree off from mounts made elsewhere.
    pub private: bool,
    /// Also everything mounted below.
    pub recursive: bool,
}

/// By number, because rustix does not have it.
fn change(dir: i32, path: &CStr, extra: u32, change: Change) -> io::Result<()> {
    let attr = MountAttr {
        set: change.set,
        clear: change.clear,
        propagation: if change.private { libc::MS_PRIVATE } else { 0 },
        userns: 0,
    };
    let flags = extra | if change.recursive { AT_RECURSIVE } else { 0 };
    // SAFETY: `path` and `attr` outlive the call, and the size is that of `attr`.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir,
            path.as_ptr(),
            flags,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    match rc {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Changes the mount at a path.
pub fn change_at(path: &CStr, what: Change) -> io::Result<()> {
    change(libc::AT_FDCWD, path, 0, what)
}

/// Changes a detached tree.
pub fn change_tree(tree: BorrowedFd<'_>, what: Change) -> io::Result<()> {
    change(tree.as_raw_fd(), c"", libc::AT_EMPTY_PATH as u32, what)
}

/// A filesystem that is being put together.
pub struct NewFilesystem(OwnedFd);

impl NewFilesystem {
    /// Starts one of this kind, `tmpfs` for one.
    pub fn open(kind: &CStr) -> io::Result<NewFilesystem> {
        fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)
            .map(NewFilesystem)
            .map_err(Into::into)
    }

    /// Sets a parameter; without a value it is a flag.
    pub fn set(&self, key: &CStr, value: Option<&CStr>) -> io::Result<()> {
        match value {
            Some(value) => fsconfig_set_string(&self.0, key, value)?,
            None => fsconfig_set_flag(&self.0, key)?,
        }
        Ok(())
    }

    /// Makes it: a detached mount with these attributes.
    pub fn mount(self, attributes: u64) -> io::Result<OwnedFd> {
        fsconfig_create(&self.0)?;
        let attributes = MountAttrFlags::from_bits_retain(attributes as u32);
        Ok(fsmount(&self.0, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
    }
}

/// Fails with EROFS when a filesystem cannot be written, as an overlay whose work directory
/// could not be used: the kernel mounts it all the same, read-only.
pub fn check_writable(tree: BorrowedFd<'_>) -> io::Result<()> {
    match is_read_only(tree)? {
        true => Err(Errno::ROFS.into()),
        false => Ok(()),
    }
}

/// Whether the mount that a handle was opened through can only be read.
pub fn is_read_only(handle: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(fstatvfs(handle)?.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Makes `tree` the root and drops the old one. `place` is any directory; it is covered only
/// for the moment between the two calls.
pub fn pivot(tree: BorrowedFd<'_>, place: &CStr) -> io::Result<()> {
    attach(tree, place)?;
    fchdir(tree)?;
    pivot_root(c".", c".")?;
    unmount(c".", UnmountFlags::DETACH)?;
    Ok(chdir(c"/")?)
}
