//! The files of a project at one moment, by content.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::codec::{Reader, put_bytes};

/// Names a tree: the SHA-256 of what it consists of, in hexadecimal.
pub type TreeId = String;

const MAGIC: &[u8] = b"substrate tree 2\n";

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A file; the SHA-256 of its content.
    File([u8; 32]),
    /// A symlink and where it points to.
    Link(OsString),
    /// A directory.
    Dir,
}

/// One name of a tree. Two are equal whenever they were written.
#[derive(Debug, Clone, Eq)]
pub struct Entry {
    /// What it is.
    pub kind: Kind,
    /// Its permission bits; those of a symlink mean nothing and are zero.
    pub mode: u32,
    /// When a file was written, which builds go by: seconds and nanoseconds.
    pub modified: (i64, u32),
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.mode == other.mode
    }
}

/// The names below a root, without what was ignored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tree {
    /// Where it was.
    pub root: PathBuf,
    /// Relative names, sorted.
    pub entries: BTreeMap<PathBuf, Entry>,
}

impl Tree {
    /// The form in which it is kept, and its name.
    pub(crate) fn encode(&self) -> (Vec<u8>, TreeId) {
        let mut out = MAGIC.to_vec();
        put_bytes(&mut out, self.root.as_os_str().as_bytes());
        for (path, entry) in &self.entries {
            put_bytes(&mut out, path.as_os_str().as_bytes());
            put_entry(&mut out, entry);
        }
        let id = substrate_trace::sha256_hex(&out);
        (out, id)
    }

    /// Understands what [`Tree::encode`] wrote; `None` when it is anything else.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes.strip_prefix(MAGIC)?);
        let mut tree = Tree {
            root: path(reader.bytes()?),
            entries: BTreeMap::new(),
        };
        while !reader.0.is_empty() {
            let name = path(reader.bytes()?);
            let plain = |part| matches!(part, std::path::Component::Normal(_));
            // A tree is put in place below its root and nowhere else.
            if !name.components().all(plain) {
                return None;
            }
            tree.entries.insert(name, entry(&mut reader)?);
        }
        Some(tree)
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    Path::new(std::ffi::OsStr::from_bytes(bytes)).to_owned()
}

pub(crate) fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    out.extend_from_slice(&entry.mode.to_le_bytes());
    match &entry.kind {
        Kind::Dir => out.push(b'd'),
        Kind::File(hash) => {
            out.push(b'f');
            out.extend_from_slice(hash);
            out.extend_from_slice(&entry.modified.0.to_le_bytes());
            out.extend_from_slice(&entry.modified.1.to_le_bytes());
        }
        Kind::Link(target) => {
            out.push(b'l');
            put_bytes(out, target.as_bytes());
        }
    }
}

pub(crate) fn entry(reader: &mut Reader<'_>) -> Option<Entry> {
    let mode = reader.u32()?;
    let mut modified = (0, 0);
    let kind = match reader.array::<1>()? {
        [b'd'] => Kind::Dir,
        [b'f'] => {
            let hash = reader.array()?;
            modified = (reader.array().map(i64::from_le_bytes)?, reader.u32()?);
            Kind::File(hash)
        }
        [b'l'] => Kind::Link(OsString::from_vec(reader.bytes()?.to_vec())),
        _ => return None,
    };
    Some(Entry {
        kind,
        mode,
        modified,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let file = Entry {
            kind: Kind::File([7; 32]),
            mode: 0o755,
            modified: (1, 2),
        };
        let link = Entry {
            kind: Kind::Link("../x".into()),
            mode: 0,
            modified: (0, 0),
        };
        let odd = PathBuf::from(OsString::from_vec(b"a/\xff\n".to_vec()));
        Tree {
            root: "/p".into(),
            entries: BTreeMap::from([(odd, file), ("l".into(), link)]),
        }
    }

    #[test]
    fn what_is_written_comes_back() {
        let (bytes, id) = tree().encode();
        assert_eq!(Tree::decode(&bytes), Some(tree()));
        assert_eq!(id.len(), 64);
        for end in 0..bytes.len() {
            assert_ne!(Tree::decode(&bytes[..end]), Some(tree()), "{end}");
        }
    }

    #[test]
    fn names_cannot_lead_out() {
        for name in ["/etc/passwd", "../x", "a/../../x"] {
            let mut bad = tree();
            let (_, entry) = bad.entries.pop_first().unwrap();
            bad.entries.insert(name.into(), entry);
            assert_eq!(Tree::decode(&bad.encode().0), None, "{name}");
        }
    }
}
