//! What is known about one file or directory: its metadata and extended attributes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};
use substrate_sys::at::{self, Stat};
use substrate_sys::xattr;

const SETID: u32 = 0o6000;

/// A moment as file systems record it: seconds since the epoch and nanoseconds.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub struct Moment(pub i64, pub u32);

impl Moment {
    pub(crate) fn changed(meta: &Metadata) -> Self {
        Self(meta.ctime(), u32::try_from(meta.ctime_nsec()).unwrap_or(0))
    }
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symlink.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A unix socket.
    Socket,
    /// A block or character device.
    Device,
}

impl NodeKind {
    /// The word used in JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            NodeKind::File => "file",
            NodeKind::Dir => "dir",
            NodeKind::Symlink => "symlink",
            NodeKind::Fifo => "fifo",
            NodeKind::Socket => "socket",
            NodeKind::Device => "device",
        }
    }
}

/// The metadata of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// What it is.
    pub kind: NodeKind,
    /// Permission bits, `07777`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// When the content last changed.
    pub mtime: Moment,
    /// When anything last changed; nobody can set this one.
    pub ctime: Moment,
    /// Device that it lies on.
    pub dev: u64,
    /// Number on that device.
    pub ino: u64,
    /// Number of names.
    pub nlink: u64,
}

impl Entry {
    /// Looks at a name, or at the directory itself when the name is empty; `None` if there is none.
    pub(crate) fn look(dir: impl AsFd, name: impl AsRef<OsStr>) -> io::Result<Option<Self>> {
        match at::stat(dir, name) {
            Ok(stat) => Ok(Some(Self::from(&stat))),
            Err(e) if is_absent(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Whether this is the very same inode.
    pub fn same_inode(&self, other: &Self) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }

    /// Whether nothing can have happened to it between the two looks.
    pub fn untouched(&self, later: &Self) -> bool {
        let stamp = |e: &Self| (e.kind, e.size, e.mtime, e.ctime);
        self.same_inode(later) && stamp(self) == stamp(later)
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == NodeKind::Dir
    }

    /// Whether it runs with its owner's or group's rights.
    pub fn is_setid(&self) -> bool {
        self.kind == NodeKind::File && self.mode & SETID != 0
    }

    /// The mode that is carried to the host: setuid and setgid of files are not.
    pub(crate) fn safe_mode(&self) -> u32 {
        match self.kind {
            NodeKind::Dir => self.mode,
            _ => self.mode & !SETID,
        }
    }
}

impl From<&Stat> for Entry {
    fn from(stat: &Stat) -> Self {
        let kind = match stat.mode & 0o170_000 {
            0o040_000 => NodeKind::Dir,
            0o100_000 => NodeKind::File,
            0o120_000 => NodeKind::Symlink,
            0o010_000 => NodeKind::Fifo,
            0o140_000 => NodeKind::Socket,
            _ => NodeKind::Device,
        };
        Self {
            kind,
            mode: stat.mode & 0o7777,
            uid: stat.uid,
            gid: stat.gid,
            size: if kind == NodeKind::Dir { 0 } else { stat.size },
            mtime: Moment(stat.mtime.0, stat.mtime.1),
            ctime: Moment(stat.ctime.0, stat.ctime.1),
            dev: stat.dev,
            ino: stat.ino,
            nlink: stat.nlink,
        }
    }
}

/// Whether an overlay marks a lower name as deleted with this: a character device 0:0.
pub(crate) fn is_whiteout(stat: &Stat) -> bool {
    stat.mode & 0o170_000 == 0o020_000 && stat.rdev == 0
}

/// Whether the error says that the name, or a directory on its way, is not there.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// Extended attributes that belong to the user, by name.
pub(crate) type Attributes = BTreeMap<Vec<u8>, Vec<u8>>;

/// What an overlay noted on a name of its upper directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// The lower directory does not show through.
    pub opaque: bool,
    /// The directory was renamed by reference; never set with the options worlds use.
    pub redirect: bool,
    /// The content still lies in the lower file; never set with the options worlds use.
    pub metacopy: bool,
}

/// The user's attributes and access lists of a name. With `overlay`, what the overlay itself
/// noted is told apart. `user.overlay.*` are never among them: on the host they would be taken for
/// notes of an overlay, so a world neither brings one nor takes one away.
pub(crate) fn attributes(
    dir: impl AsFd,
    name: impl AsRef<OsStr>,
    overlay: bool,
) -> io::Result<(Attributes, Marks)> {
    let (dir, name) = (dir.as_fd(), name.as_ref());
    sort_out(xattr::list(dir, name)?, overlay, &|attribute| {
        xattr::get(dir, name, attribute)
    })
}

/// The same for an open file, which costs less.
pub(crate) fn open_attributes(file: &File, overlay: bool) -> io::Result<Attributes> {
    let names = xattr::list_open(file)?;
    let (found, _) = sort_out(names, overlay, &|a| xattr::get_open(file, a))?;
    Ok(found)
}

/// Reads the value of one attribute.
type Get<'a> = dyn Fn(&[u8]) -> io::Result<Option<Vec<u8>>> + 'a;

fn sort_out(names: Vec<Vec<u8>>, overlay: bool, get: &Get<'_>) -> io::Result<(Attributes, Marks)> {
    let mut found = Attributes::new();
    let mut marks = Marks::default();
    for attribute in names {
        let internal = |prefix: &[u8]| {
            attribute
                .strip_prefix(prefix)
                .filter(|_| overlay)
                .map(<[u8]>::to_vec)
        };
        let mark = internal(b"user.overlay.").or_else(|| internal(b"trusted.overlay."));
        let own = match mark.as_deref() {
            None => attribute.clone(),
            Some(b"opaque") => {
                marks.opaque = get(&attribute)?.as_deref() == Some(b"y");
                continue;
            }
            Some(b"redirect") => {
                marks.redirect = true;
                continue;
            }
            Some(b"metacopy") => {
                marks.metacopy = true;
                continue;
            }
            Some(_) => continue,
        };
        let carried = own.starts_with(b"user.") && !own.starts_with(b"user.overlay.")
            || own == b"system.posix_acl_access"
            || own == b"system.posix_acl_default";
        if carried && let Some(value) = get(&attribute)? {
            found.insert(own, value);
        }
    }
    Ok((found, marks))
}

/// The same for a name of our own whose mode, `mode`, may keep even us from reading.
pub(crate) fn own_attributes(
    dir: impl AsFd,
    name: impl AsRef<OsStr>,
    overlay: bool,
    mode: u32,
) -> io::Result<(Attributes, Marks)> {
    let (dir, name) = (dir.as_fd(), name.as_ref());
    match attributes(dir, name, overlay) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            at::chmod(dir, name, mode | 0o400)?;
            let found = attributes(dir, name, overlay);
            at::chmod(dir, name, mode)?;
            found
        }
        other => other,
    }
}

/// Whether a file carries capabilities, which are never brought to the host.
pub(crate) fn has_capability(dir: impl AsFd, name: impl AsRef<OsStr>) -> bool {
    matches!(
        xattr::get(dir, name, xattr::CAPABILITY.to_bytes()),
        Ok(Some(_))
    )
}

/// Makes the user's attributes of a name exactly `wanted`.
pub(crate) fn set_attributes(
    dir: impl AsFd,
    name: impl AsRef<OsStr>,
    wanted: &Attributes,
) -> io::Result<()> {
    let (dir, name) = (dir.as_fd(), name.as_ref());
    let (present, _) = attributes(dir, name, false)?;
    for (attribute, value) in wanted {
        if present.get(attribute) != Some(value) {
            xattr::set(dir, name, attribute, value)?;
        }
    }
    for attribute in present.keys().filter(|a| !wanted.contains_key(*a)) {
        xattr::remove(dir, name, attribute)?;
    }
    Ok(())
}
