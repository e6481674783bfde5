//! Calls on names below an open directory. None of them follows a symlink in the last component.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What `fstatat` says about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Stat {
    pub dev: u64,
    pub ino: u64,
    pub mode: u32,
    pub nlink: u64,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
    pub size: u64,
    pub blocks: u64,
    pub mtime: (i64, u32),
    pub ctime: (i64, u32),
}

/// How `renameat2` treats a target that exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rename {
    /// It is replaced.
    Replace,
    /// It makes the call fail.
    NoReplace,
    /// The two names change places.
    Exchange,
}

/// Runs `call` with `name` as a C string, without allocating for ordinary names.
pub(crate) fn with_name<T>(
    name: &OsStr,
    call: impl FnOnce(&CStr) -> io::Result<T>,
) -> io::Result<T> {
    let bytes = name.as_bytes();
    let mut short = [0_u8; 300];
    if bytes.len() < short.len() {
        short[..bytes.len()].copy_from_slice(bytes);
        let text = CStr::from_bytes_with_nul(&short[..=bytes.len()])
            .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        return call(text);
    }
    let text = CString::new(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    call(&text)
}

pub(crate) fn check(rc: libc::c_int) -> io::Result<()> {
    if rc < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

pub(crate) fn take_fd(rc: libc::c_int) -> io::Result<OwnedFd> {
    check(rc)?;
    // SAFETY: the kernel has just returned this descriptor to us, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(rc) })
}

fn raw(dir: &impl AsFd) -> libc::c_int {
    dir.as_fd().as_raw_fd()
}

/// The metadata of a name, or of the directory itself when the name is empty.
pub fn stat(dir: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<Stat> {
    let mut out = MaybeUninit::<libc::stat>::uninit();
    with_name(name.as_ref(), |name| {
        // SAFETY: `name` is a C string and `out` a writable stat, both live through the call.
        check(unsafe {
            libc::fstatat(
                raw(&dir),
                name.as_ptr(),
                out.as_mut_ptr(),
                libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH,
            )
        })
    })?;
    // SAFETY: the call succeeded, so the kernel has filled the whole struct.
    let s = unsafe { out.assume_init() };
    let moment = |sec: i64, nsec: i64| (sec, u32::try_from(nsec).unwrap_or(0));
    Ok(Stat {
        dev: s.st_dev,
        ino: s.st_ino,
        mode: s.st_mode,
        nlink: s.st_nlink,
        uid: s.st_uid,
        gid: s.st_gid,
        rdev: s.st_rdev,
        size: u64::try_from(s.st_size).unwrap_or(0),
        blocks: u64::try_from(s.st_blocks).unwrap_or(0),
        mtime: moment(s.st_mtime, s.st_mtime_nsec),
        ctime: moment(s.st_ctime, s.st_ctime_nsec),
    })
}

/// Local file systems that change a directory's times whenever a name in it comes, goes or is
/// replaced: ext2 to ext4, xfs, btrfs, tmpfs, f2fs, zfs, and overlayfs over these.
const STAMPING: [u64; 7] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0x0102_1994,
    0xF2F5_2010,
    0x2FC1_2FC1,
    0x794C_7630,
];

/// Whether the times of directories on this file system tell that their names are as they were.
pub fn stamps_directories(dir: impl AsFd) -> bool {
    let mut info = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: an all-zero statfs is valid, and it is writable for the call.
    let kind = unsafe {
        if libc::fstatfs(raw(&dir), info.as_mut_ptr()) < 0 {
            return false;
        }
        info.assume_init().f_type
    };
    #[allow(
        clippy::unnecessary_cast,
        reason = "the type differs between architectures"
    )]
    STAMPING.contains(&(kind as u64 & 0xFFFF_FFFF))
}

/// Opens a name with `O_NOFOLLOW` and `O_CLOEXEC` added to the flags.
pub(crate) fn open(
    dir: impl AsFd,
    name: impl AsRef<OsStr>,
    flags: i32,
    mode: u32,
) -> io::Result<OwnedFd> {
    with_name(name.as_ref(), |name| {
        // SAFETY: `name` is a C string that lives through the call.
        take_fd(unsafe {
            libc::openat(
                raw(&dir),
                name.as_ptr(),
                flags | libc::O_NOFOLLOW | libc::O_CLOEXEC,
                mode,
            )
        })
    })
}

/// Opens a directory for reading its entries.
pub fn open_dir(dir: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<OwnedFd> {
    open(dir, name, libc::O_RDONLY | libc::O_DIRECTORY, 0)
}

/// Opens a directory by its path; symlinks on the way are followed, one at the end is not.
pub fn open_dir_path(path: impl AsRef<OsStr>) -> io::Result<OwnedFd> {
    // SAFETY: AT_FDCWD is not a descriptor that could be closed; the kernel knows it as the
    // working directory.
    let cwd = unsafe { BorrowedFd::borrow_raw(libc::AT_FDCWD) };
    open_dir(cwd, path)
}

/// What is said of a pipe, a device, a directory or anything else that is no file.
pub(crate) const NOT_REGULAR: &str = "it is not a regular file";

/// Opens a file for reading; never waits for a fifo's writer and never takes a terminal. What is no
/// regular file is an error.
pub fn open_read(dir: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<File> {
    let flags = libc::O_RDONLY | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = File::from(open(dir, name, flags, 0)?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, NOT_REGULAR)),
    }
}

/// Makes a new file and opens it for writing; fails if the name is taken.
pub fn create_new(dir: impl AsFd, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
    open(dir, name, flags, mode).map(File::from)
}

/// Makes a directory.
pub fn mkdir(dir: impl AsFd, name: impl AsRef<OsStr>, mode: u32) -> io::Result<()> {
    with_name(name.as_ref(), |name| {
        // SAFETY: `name` is a C string that lives through the call.
        check(unsafe { libc::mkdirat(raw(&dir), name.as_ptr(), mode) })
    })
}

/// Makes a fifo.
pub fn mkfifo(dir: impl AsFd, name: impl AsRef<OsStr>, mode: u32) -> io::Result<()> {
    with_name(name.as_ref(), |name| {
        // SAFETY: `name` is a C string that lives through the call.
        check(unsafe { libc::mkfifoat(raw(&dir), name.as_ptr(), mode) })
    })
}

/// Makes a symlink called `name` that points to `target`.
pub fn symlink(
    target: impl AsRef<OsStr>,
    dir: impl AsFd,
    name: impl AsRef<OsStr>,
) -> io::Result<()> {
    with_name(target.as_ref(), |target| {
        with_name(name.as_ref(), |name| {
            // SAFETY: both are C strings that live through the call.
            check(unsafe { libc::symlinkat(target.as_ptr(), raw(&dir), name.as_ptr()) })
        })
    })
}

/// Where a symlink points to.
pub fn readlink(dir: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<OsString> {
    let mut buffer = vec![0_u8; 512];
    loop {
        let length = with_name(name.as_ref(), |name| {
            // SAFETY: `name` is a C string, and the buffer is writable for the length given.
            let n = unsafe {
                libc::readlinkat(
                    raw(&dir),
                    name.as_ptr(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                )
            };
            usize::try_from(n).map_err(|_| io::Error::last_os_error())
        })?;
        // A full buffer may hold only the first part of the target.
        if length < buffer.len() {
            buffer.truncate(length);
            return Ok(OsString::from_vec(buffer));
        }
        buffer.resize(buffer.len() * 2, 0);
    }
}

/// Removes a name that is not a directory.
pub fn unlink(dir: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<()> {
    remove(&dir, name.as_ref(), 0)
}

/// Removes an empty directory.
pub fn rmdir(dir: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<()> {
    remove(&dir, name.as_ref(), libc::AT_REMOVEDIR)
}

fn remove(dir: &impl AsFd, name: &OsStr, flags: libc::c_int) -> io::Result<()> {
    with_name(name, |name| {
        // SAFETY: `name` is a C string that lives through the call.
        check(unsafe { libc::unlinkat(raw(dir), name.as_ptr(), flags) })
    })
}

/// Moves a name from one directory to another of the same mount.
pub fn rename(
    from: impl AsFd,
    old: impl AsRef<OsStr>,
    to: impl AsFd,
    new: impl AsRef<OsStr>,
    how: Rename,
) -> io::Result<()> {
    let flags = match how {
        Rename::Replace => 0,
        Rename::NoReplace => libc::RENAME_NOREPLACE,
        Rename::Exchange => libc::RENAME_EXCHANGE,
    };
    with_name(old.as_ref(), |old| {
        with_name(new.as_ref(), |new| {
            // SAFETY: both are C strings that live through the call.
            let rc = unsafe {
                libc::syscall(
                    libc::SYS_renameat2,
                    raw(&from),
                    old.as_ptr(),
                    raw(&to),
                    new.as_ptr(),
                    flags,
                )
            };
            check(libc::c_int::try_from(rc).unwrap_or(-1))
        })
    })
}

/// Gives a file a second name.
pub fn link(
    from: impl AsFd,
    old: impl AsRef<OsStr>,
    to: impl AsFd,
    new: impl AsRef<OsStr>,
) -> io::Result<()> {
    with_name(old.as_ref(), |old| {
        with_name(new.as_ref(), |new| {
            // SAFETY: both are C strings that live through the call.
            check(unsafe { libc::linkat(raw(&from), old.as_ptr(), raw(&to), new.as_ptr(), 0) })
        })
    })
}

/// Sets the mode of a name that is not a symlink. Works on files nobody may open.
pub fn chmod(dir: impl AsFd, name: impl AsRef<OsStr>, mode: u32) -> io::Result<()> {
    // fchmodat follows symlinks; a handle that was opened without following does not.
    let handle = if name.as_ref().is_empty() {
        open(dir, ".", libc::O_PATH, 0)?
    } else {
        open(dir, name, libc::O_PATH, 0)?
    };
    let path = CString::new(format!("/proc/self/fd/{}", handle.as_raw_fd()))?;
    // SAFETY: `path` is a C string that lives through the call.
    check(unsafe { libc::chmod(path.as_ptr(), mode) })
}

/// Sets the owner of a name.
pub fn chown(dir: impl AsFd, name: impl AsRef<OsStr>, uid: u32, gid: u32) -> io::Result<()> {
    with_name(name.as_ref(), |name| {
        // SAFETY: `name` is a C string that lives through the call.
        check(unsafe {
            libc::fchownat(
                raw(&dir),
                name.as_ptr(),
                uid,
                gid,
                libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH,
            )
        })
    })
}

/// Sets the time of the last change of the content; the time of the last access stays.
pub fn set_mtime(dir: impl AsFd, name: impl AsRef<OsStr>, mtime: (i64, u32)) -> io::Result<()> {
    let times = [
        libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_OMIT,
        },
        libc::timespec {
            tv_sec: mtime.0,
            tv_nsec: i64::from(mtime.1),
        },
    ];
    // The C library refuses an empty name, and "." is the same directory.
    let name = match name.as_ref() {
        name if name.is_empty() => OsStr::new("."),
        name => name,
    };
    with_name(name, |name| {
        // SAFETY: `name` is a C string and `times` an array of two, both live through the call.
        check(unsafe {
            libc::utimensat(
                raw(&dir),
                name.as_ptr(),
                times.as_ptr(),
                libc::AT_SYMLINK_NOFOLLOW,
            )
        })
    })
}

/// The mount that an open file or directory was reached through; names can be moved only
/// within one. `None` where the kernel does not say.
pub fn mount_id(fd: impl AsFd) -> Option<u64> {
    let mut out = MaybeUninit::<libc::statx>::uninit();
    // By number: std names the C library's function as one that may be missing, and in a static
    // binary it then is.
    // SAFETY: the empty name is a C string and `out` a writable statx, both live through the call.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_statx,
            raw(&fd),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_MNT_ID,
            out.as_mut_ptr(),
        )
    };
    if rc != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so the kernel has filled the whole struct.
    let statx = unsafe { out.assume_init() };
    (statx.stx_mask & libc::STATX_MNT_ID != 0).then_some(statx.stx_mnt_id)
}

/// The user whose rights this process acts with.
pub fn effective_uid() -> u32 {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}
