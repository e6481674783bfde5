//! The mounts of this process, and where else the files below a path can be seen.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use substrate_sys::kernel_file;

/// One mount, as `/proc/self/mountinfo` tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Its number.
    pub id: u32,
    /// The number of the mount it lies on.
    pub parent: u32,
    /// `major:minor` of the filesystem.
    pub device: String,
    /// Which directory of the filesystem is seen here.
    pub root: PathBuf,
    /// Where it is seen.
    pub at: PathBuf,
    /// The kind of filesystem.
    pub kind: String,
    /// What it was made from; for some filesystems any text.
    pub source: String,
    /// Options of the filesystem itself.
    pub options: String,
}

/// All mounts that this process can see, in the order they were made.
pub fn read() -> io::Result<Vec<Mount>> {
    Ok(parse(&kernel_file::read("/proc/self/mountinfo")?))
}

/// Understands the text of a mountinfo file; lines that are not whole are left out.
pub fn parse(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n')
        .filter_map(parse_line)
        .collect()
}

fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut words = line.split(|byte| *byte == b' ');
    let mut text = || Some(String::from_utf8_lossy(words.next()?).into_owned());
    let (id, parent, device) = (text()?, text()?, text()?);
    let (root, at) = (words.next()?, words.next()?);
    let mut rest = words.skip_while(|word| *word != b"-").skip(1);
    let mut text = || Some(String::from_utf8_lossy(&unescape(rest.next()?)).into_owned());
    Some(Mount {
        id: id.parse().ok()?,
        parent: parent.parse().ok()?,
        device,
        root: path(root),
        at: path(at),
        kind: text()?,
        source: text()?,
        options: text().unwrap_or_default(),
    })
}

fn path(word: &[u8]) -> PathBuf {
    OsString::from_vec(unescape(word)).into()
}

/// Space, tab, newline and backslash are written as three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let octal = |digits: &[u8]| {
            digits.iter().try_fold(0u32, |n, d| {
                (b'0'..=b'7')
                    .contains(d)
                    .then(|| n * 8 + u32::from(d - b'0'))
            })
        };
        match (first, after.get(..3).and_then(octal)) {
            (b'\\', Some(code)) => {
                out.push(code as u8);
                rest = &after[3..];
            }
            _ => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

/// The mount that a path without symlinks lies on: of those whose place is a prefix of it, the
/// one that is reached by going down from the root.
pub fn covering<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let ids: Vec<u32> = mounts.iter().map(|m| m.id).collect();
    let mut current = mounts
        .iter()
        .find(|m| m.at == Path::new("/") && !ids.contains(&m.parent))
        .or_else(|| mounts.iter().find(|m| m.at == Path::new("/")))?;
    loop {
        // The nearest mount on top of the current one: a shallower place hides deeper ones.
        let next = mounts
            .iter()
            .filter(|m| m.parent == current.id && m.id != current.id && path.starts_with(&m.at))
            .min_by_key(|m| m.at.as_os_str().as_bytes().len());
        match next {
            Some(mount) => current = mount,
            None => return Some(current),
        }
    }
}

/// Other paths under which what is at `path` can be seen, through other mounts of the same
/// filesystem. `path` is without symlinks.
pub fn aliases(mounts: &[Mount], path: &Path) -> Vec<PathBuf> {
    let Some(own) = covering(mounts, path) else {
        return Vec::new();
    };
    let Ok(below) = path.strip_prefix(&own.at) else {
        return Vec::new();
    };
    let inside = join(&own.root, below);
    let mut found = Vec::new();
    for other in mounts.iter().filter(|m| m.device == own.device) {
        let candidate = if let Ok(rest) = inside.strip_prefix(&other.root) {
            join(&other.at, rest)
        } else if other.root.starts_with(&inside) {
            // Only a part of what is at `path`, mounted on its own.
            other.at.clone()
        } else {
            continue;
        };
        let seen = covering(mounts, &candidate).is_some_and(|m| m.id == other.id);
        if seen && candidate != path && !candidate.starts_with(path) {
            found.push(candidate);
        }
    }
    found.sort();
    found.dedup();
    found
}

/// `join` without the trailing slash that an empty rest would leave.
fn join(base: &Path, rest: &Path) -> PathBuf {
    if rest.as_os_str().is_empty() {
        base.to_owned()
    } else {
        base.join(rest)
    }
}

/// The first mount that lies below a path, if any.
pub fn below<'a>(mounts: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    mounts
        .iter()
        .find(|m| m.at.starts_with(path) && m.at != path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
22 27 0:21 / /proc rw - proc proc rw\n\
40 27 254:0 /home/u/.ssh /mnt/keys rw shared:1 - ext4 /dev/vda rw\n\
41 27 254:0 /home /srv/h\\040ome rw - ext4 /dev/vda rw\n\
42 27 0:50 / /data rw - tmpfs data rw\n\
43 42 254:0 / /data/all rw - ext4 /dev/vda rw\n\
44 27 254:0 /home/u/.ssh/sub /opt/sub rw - ext4 /dev/vda rw\n\
45 27 254:0 / /hidden rw - ext4 /dev/vda rw\n\
46 45 0:51 / /hidden rw - tmpfs x rw\n";

    #[test]
    fn lines_are_understood_with_their_escapes() {
        let mounts = parse(TABLE);
        assert_eq!(mounts.len(), 9);
        assert_eq!(mounts[3].at, Path::new("/srv/h ome"));
        assert_eq!(mounts[2].kind, "ext4");
        assert!(parse(b"garbage\n12 x\n").is_empty());
    }

    #[test]
    fn every_other_way_to_the_same_files_is_found() {
        let mounts = parse(TABLE);
        assert_eq!(
            aliases(&mounts, Path::new("/home/u/.ssh")),
            [
                "/data/all/home/u/.ssh",
                "/mnt/keys",
                "/opt/sub",
                "/srv/h ome/u/.ssh",
            ]
            .map(PathBuf::from),
            "and not through /hidden, which another mount covers"
        );
        assert!(aliases(&mounts, Path::new("/data/x")).is_empty());
    }

    #[test]
    fn the_mount_of_a_path_is_the_topmost() {
        let mounts = parse(TABLE);
        let id = |path: &str| covering(&mounts, Path::new(path)).map(|m| m.id);
        assert_eq!(id("/usr"), Some(27));
        assert_eq!(id("/data/all/usr"), Some(43));
        assert_eq!(id("/hidden/x"), Some(46));
        assert_eq!(id("/datax"), Some(27));
        assert_eq!(below(&mounts, Path::new("/data")).map(|m| m.id), Some(43));
    }
}
