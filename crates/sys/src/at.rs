//! Calls on names below an open directory. None of them follows a symlink in the last component.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;

use rustix::fs::{
    self, AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, StatxFlags, Timespec, Timestamps,
    UTIME_OMIT, Uid,
};

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

/// The metadata of a name, or of the directory itself when the name is empty.
pub fn stat(dir: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<Stat> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    let s = fs::statat(dir, name.as_ref(), flags)?;
    let moment = |sec, nsec| (sec, u32::try_from(nsec).unwrap_or(0));
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
    #[allow(
        clippy::unnecessary_cast,
        reason = "the type differs between architectures"
    )]
    fs::fstatfs(dir).is_ok_and(|info| STAMPING.contains(&(info.f_type as u64 & 0xFFFF_FFFF)))
}

/// Opens a name with `O_NOFOLLOW` and `O_CLOEXEC` added to the flags.
pub(crate) fn open(dir: impl AsFd, name: impl AsRef<OsStr>, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat(dir, name.as_ref(), flags, Mode::empty())?)
}

/// Opens a directory for reading its entries.
pub fn open_dir(dir: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<OwnedFd> {
    open(dir, name, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Opens a directory by its path; symlinks on the way are followed, one at the end is not.
pub fn open_dir_path(path: impl AsRef<OsStr>) -> io::Result<OwnedFd> {
    open_dir(CWD, path)
}

/// Makes a new file and opens it for writing; fails if the name is taken.
pub fn create_new(dir: impl AsFd, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = fs::openat(dir, name.as_ref(), flags, Mode::from_raw_mode(mode))?;
    Ok(File::from(made))
}

/// Makes a directory.
pub fn mkdir(dir: impl AsFd, name: impl AsRef<OsStr>, mode: u32) -> io::Result<()> {
    Ok(fs::mkdirat(dir, name.as_ref(), Mode::from_raw_mode(mode))?)
}

/// Makes a fifo.
pub fn mkfifo(dir: impl AsFd, name: impl AsRef<OsStr>, mode: u32) -> io::Result<()> {
    let mode = Mode::from_raw_mode(mode);
    Ok(fs::mknodat(dir, name.as_ref(), FileType::Fifo, mode, 0)?)
}

/// Makes a symlink called `name` that points to `target`.
pub fn symlink(
    target: impl AsRef<OsStr>,
    dir: impl AsFd,
    name: impl AsRef<OsStr>,
) -> io::Result<()> {
    Ok(fs::symlinkat(target.as_ref(), dir, name.as_ref())?)
}

/// Where a symlink points to.
pub fn readlink(dir: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<OsString> {
    let target = fs::readlinkat(dir, name.as_ref(), Vec::with_capacity(512))?;
    Ok(OsString::from_vec(target.into_bytes()))
}

/// Removes a name that is not a directory.
pub fn unlink(dir: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<()> {
    Ok(fs::unlinkat(dir, name.as_ref(), AtFlags::empty())?)
}

/// Removes an empty directory.
pub fn rmdir(dir: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<()> {
    Ok(fs::unlinkat(dir, name.as_ref(), AtFlags::REMOVEDIR)?)
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
        Rename::Replace => RenameFlags::empty(),
        Rename::NoReplace => RenameFlags::NOREPLACE,
        Rename::Exchange => RenameFlags::EXCHANGE,
    };
    Ok(fs::renameat_with(
        from,
        old.as_ref(),
        to,
        new.as_ref(),
        flags,
    )?)
}

/// Gives a file a second name.
pub fn link(
    from: impl AsFd,
    old: impl AsRef<OsStr>,
    to: impl AsFd,
    new: impl AsRef<OsStr>,
) -> io::Result<()> {
    Ok(fs::linkat(
        from,
        old.as_ref(),
        to,
        new.as_ref(),
        AtFlags::empty(),
    )?)
}

/// Sets the mode of a name that is not a symlink. Works on files nobody may open.
pub fn chmod(dir: impl AsFd, name: impl AsRef<OsStr>, mode: u32) -> io::Result<()> {
    // fchmodat follows symlinks; a handle that was opened without following does not.
    let handle = open(dir, itself(name.as_ref()), OFlags::PATH)?;
    let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
    Ok(fs::chmod(path, Mode::from_raw_mode(mode))?)
}

/// Sets the owner of a name.
pub fn chown(dir: impl AsFd, name: impl AsRef<OsStr>, uid: u32, gid: u32) -> io::Result<()> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    let (user, group) = (Uid::from_raw_unchecked(uid), Gid::from_raw_unchecked(gid));
    Ok(fs::chownat(
        dir,
        name.as_ref(),
        Some(user),
        Some(group),
        flags,
    )?)
}

/// Sets the time of the last change of the content; the time of the last access stays.
pub fn set_mtime(dir: impl AsFd, name: impl AsRef<OsStr>, mtime: (i64, u32)) -> io::Result<()> {
    let moment = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let times = Timestamps {
        last_access: moment(0, UTIME_OMIT),
        last_modification: moment(mtime.0, mtime.1.into()),
    };
    let name = itself(name.as_ref());
    Ok(fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Where a call takes no empty name, "." is the same directory.
fn itself(name: &OsStr) -> &OsStr {
    match name.is_empty() {
        true => OsStr::new("."),
        false => name,
    }
}

/// The mount that an open file or directory was reached through; names can be moved only
/// within one. `None` where the kernel does not say.
pub fn mount_id(fd: impl AsFd) -> Option<u64> {
    let told = fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    let known = StatxFlags::from_bits_retain(told.stx_mask).contains(StatxFlags::MNT_ID);
    known.then_some(told.stx_mnt_id)
}
