//! Mounts through file descriptors: trees are taken, changed while nobody sees them, and put
//! in place. Nothing here allocates, so all of it may run between clone and exec.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Read-only.
pub const RDONLY: u64 = 0x1;
/// Setuid bits and file capabilities have no effect.
pub const NOSUID: u64 = 0x2;
/// Device files cannot be opened.
pub const NODEV: u64 = 0x4;
/// Programs cannot be started.
pub const NOEXEC: u64 = 0x8;

const OPEN_TREE_CLONE: u32 = 1;
const AT_RECURSIVE: u32 = 0x8000;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 0x4;
const MOVE_MOUNT_T_EMPTY_PATH: u32 = 0x40;
const FSOPEN_CLOEXEC: u32 = 1;
const FSMOUNT_CLOEXEC: u32 = 1;
const FSCONFIG_SET_FLAG: u32 = 0;
const FSCONFIG_SET_STRING: u32 = 1;
const FSCONFIG_CMD_CREATE: u32 = 6;
const RESOLVE_NO_MAGICLINKS: u64 = 0x02;
const RESOLVE_NO_SYMLINKS: u64 = 0x04;

#[repr(C)]
struct MountAttr {
    set: u64,
    clear: u64,
    propagation: u64,
    userns: u64,
}

#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

fn owned(rc: libc::c_long) -> io::Result<OwnedFd> {
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(rc as i32) })
}

fn done(rc: libc::c_long) -> io::Result<()> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// A detached copy of the mount at `path`, with what is mounted below it when `recursive`. A symlink
/// anywhere in `path` is an error, as in [`attach`].
pub fn clone_tree(path: &CStr, recursive: bool) -> io::Result<OwnedFd> {
    clone_at(&open_place(path)?, recursive)
}

fn clone_at(place: &OwnedFd, recursive: bool) -> io::Result<OwnedFd> {
    let mut flags = OPEN_TREE_CLONE | libc::O_CLOEXEC as u32 | libc::AT_EMPTY_PATH as u32;
    if recursive {
        flags |= AT_RECURSIVE;
    }
    let dir = place.as_raw_fd();
    // SAFETY: the path is the empty C string; the descriptor is open.
    owned(unsafe { libc::syscall(libc::SYS_open_tree, dir, c"".as_ptr(), flags) })
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
    let how = OpenHow {
        flags: (libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW) as u64,
        mode: 0,
        resolve: RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    // SAFETY: `path` and `how` outlive the call, and the size is that of `how`.
    owned(unsafe {
        libc::syscall(
            libc::SYS_openat2,
            libc::AT_FDCWD,
            path.as_ptr(),
            &raw const how,
            size_of::<OpenHow>(),
        )
    })
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
        Err(error)
            if expected == Expected::Anything && error.raw_os_error() == Some(libc::ENOENT) =>
        {
            return Ok(());
        }
        other => other?,
    };
    if let Expected::Same(device, number) = expected
        && identity(&place)? != (device, number)
    {
        return Err(io::Error::from_raw_os_error(libc::ESTALE));
    }
    attach_at(tree, &place)
}

fn identity(file: &OwnedFd) -> io::Result<(u64, u64)> {
    // SAFETY: an all-zero stat is valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is writable for the call.
    done(unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) }.into())?;
    Ok((stat.st_dev, stat.st_ino))
}

fn attach_at(tree: BorrowedFd<'_>, place: &OwnedFd) -> io::Result<()> {
    // SAFETY: both paths are the empty C string; the descriptors are open.
    done(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            place.as_raw_fd(),
            c"".as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH,
        )
    })
}

/// Takes away what was put on a path last. Whoever still uses it keeps it until they are done.
pub fn detach(path: &CStr) -> io::Result<()> {
    // SAFETY: `path` is a C string that outlives the call.
    let rc = unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) };
    done(rc.into())
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

fn change(dir: i32, path: &CStr, extra: u32, change: Change) -> io::Result<()> {
    let attr = MountAttr {
        set: change.set,
        clear: change.clear,
        propagation: if change.private { libc::MS_PRIVATE } else { 0 },
        userns: 0,
    };
    let flags = extra | if change.recursive { AT_RECURSIVE } else { 0 };
    // SAFETY: `path` and `attr` outlive the call, and the size is that of `attr`.
    done(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            dir,
            path.as_ptr(),
            flags,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    })
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
        // SAFETY: `kind` is a C string that outlives the call.
        let rc = unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC) };
        owned(rc).map(NewFilesystem)
    }

    fn configure(&self, command: u32, key: Option<&CStr>, value: Option<&CStr>) -> io::Result<()> {
        let pointer = |text: Option<&CStr>| text.map_or(std::ptr::null(), CStr::as_ptr);
        // SAFETY: key and value are null or C strings that outlive the call.
        done(unsafe {
            libc::syscall(
                libc::SYS_fsconfig,
                self.0.as_raw_fd(),
                command,
                pointer(key),
                pointer(value),
                0,
            )
        })
    }

    /// Sets a parameter; without a value it is a flag.
    pub fn set(&self, key: &CStr, value: Option<&CStr>) -> io::Result<()> {
        let command = match value {
            Some(_) => FSCONFIG_SET_STRING,
            None => FSCONFIG_SET_FLAG,
        };
        self.configure(command, Some(key), value)
    }

    /// Makes it: a detached mount with these attributes.
    pub fn mount(self, attributes: u64) -> io::Result<OwnedFd> {
        self.configure(FSCONFIG_CMD_CREATE, None, None)?;
        // SAFETY: plain system call without pointers.
        owned(unsafe {
            libc::syscall(
                libc::SYS_fsmount,
                self.0.as_raw_fd(),
                FSMOUNT_CLOEXEC,
                attributes as u32,
            )
        })
    }
}

/// Fails with EROFS when a filesystem cannot be written, as an overlay whose work directory
/// could not be used: the kernel mounts it all the same, read-only.
pub fn check_writable(tree: BorrowedFd<'_>) -> io::Result<()> {
    match is_read_only(tree)? {
        true => Err(io::Error::from_raw_os_error(libc::EROFS)),
        false => Ok(()),
    }
}

/// Whether the mount that a handle was opened through can only be read.
pub fn is_read_only(handle: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: an all-zero statvfs is valid.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is writable for the call.
    done(unsafe { libc::fstatvfs(handle.as_raw_fd(), &raw mut stat) }.into())?;
    Ok(stat.f_flag & libc::ST_RDONLY != 0)
}

/// Makes `tree` the root and drops the old one. `place` is any directory; it is covered only
/// for the moment between the two calls.
pub fn pivot(tree: BorrowedFd<'_>, place: &CStr) -> io::Result<()> {
    attach(tree, place)?;
    // SAFETY: plain system calls on C strings; the tree's descriptor is open.
    unsafe {
        done(libc::fchdir(tree.as_raw_fd()).into())?;
        done(libc::syscall(
            libc::SYS_pivot_root,
            c".".as_ptr(),
            c".".as_ptr(),
        ))?;
        done(libc::umount2(c".".as_ptr(), libc::MNT_DETACH).into())?;
        done(libc::chdir(c"/".as_ptr()).into())
    }
}
