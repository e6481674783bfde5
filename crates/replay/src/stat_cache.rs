//! What the last snapshot of a project found, so that names which are as they were need not be
//! read: records in the order of their paths, gone through once.

use std::cmp::Ordering;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use substrate_sys::at::Stat;

use crate::codec::{Reader, put_bytes};
use crate::tree::{Entry, entry, put_entry};

const MAGIC: &[u8] = b"substrate stat cache 3\n";

/// What tells that a name is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    size: u64,
    modified: u64,
    pub changed: u64,
    mode: u32,
}

impl Stamp {
    pub fn of(stat: &Stat) -> Self {
        let nanos = |(seconds, nanos): (i64, u32)| {
            (seconds.max(0) as u64).wrapping_mul(1_000_000_000) + u64::from(nanos)
        };
        let is_dir = stat.mode & 0o170_000 == 0o040_000;
        let unless_dir = |value| if is_dir { 0 } else { value };
        Self {
            inode: stat.ino,
            size: unless_dir(stat.size),
            modified: unless_dir(nanos(stat.mtime)),
            changed: unless_dir(nanos(stat.ctime)),
            mode: stat.mode,
        }
    }
}

/// Begins a cache.
pub(crate) fn write_head(out: &mut Vec<u8>, taken: u64, id: &str) {
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&taken.to_le_bytes());
    put_bytes(out, id.as_bytes());
}

/// Adds a name.
pub(crate) fn write_record(out: &mut Vec<u8>, path: &Path, stamp: &Stamp, entry: &Entry) {
    put_bytes(out, path.as_os_str().as_bytes());
    for number in [stamp.inode, stamp.size, stamp.modified, stamp.changed] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    out.extend_from_slice(&stamp.mode.to_le_bytes());
    let mut bytes = Vec::new();
    put_entry(&mut bytes, entry);
    put_bytes(out, &bytes);
}

/// A record of the cache.
#[derive(Debug, Clone)]
pub(crate) struct Known<'a> {
    /// Where it lies.
    pub range: Range<usize>,
    pub path: &'a [u8],
    pub stamp: Stamp,
    entry: &'a [u8],
}

impl<'a> Known<'a> {
    /// The record that begins at a place; `None` for what is none.
    pub fn parse(cache: &'a [u8], at: usize) -> Option<Self> {
        let mut reader = Reader(cache.get(at..)?);
        let path = reader.bytes()?;
        let stamp = Stamp {
            inode: reader.u64()?,
            size: reader.u64()?,
            modified: reader.u64()?,
            changed: reader.u64()?,
            mode: reader.u32()?,
        };
        let entry = reader.bytes()?;
        Some(Self {
            range: at..cache.len() - reader.0.len(),
            path,
            stamp,
            entry,
        })
    }

    /// What the name stood for.
    pub fn entry(&self) -> Option<Entry> {
        entry(&mut Reader(self.entry))
    }
}

/// Goes through a cache.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    cache: &'a [u8],
    current: Option<Known<'a>>,
    /// When the snapshot began.
    pub taken: u64,
    /// The snapshot.
    pub id: &'a str,
    /// A record was passed that nobody asked for: its name is gone.
    pub passed: bool,
}

impl<'a> Cursor<'a> {
    /// At the first record; a cache that cannot be understood has none.
    pub fn new(cache: &'a [u8]) -> Self {
        let head = || {
            let mut reader = Reader(cache.strip_prefix(MAGIC)?);
            let taken = reader.u64()?;
            let id = std::str::from_utf8(reader.bytes()?).ok()?;
            Some((taken, id, cache.len() - reader.0.len()))
        };
        let (taken, id, at) = head().unwrap_or((0, "", cache.len()));
        Self {
            cache,
            current: Known::parse(cache, at),
            taken,
            id,
            passed: false,
        }
    }

    /// The record it is at.
    pub fn peek(&self) -> Option<&Known<'a>> {
        self.current.as_ref()
    }

    /// Goes to the next record.
    pub fn next(&mut self) {
        let end = self.current.take().map(|known| known.range.end);
        self.current = end.and_then(|end| Known::parse(self.cache, end));
    }

    /// The record of a path that comes after all that were asked for before.
    pub fn find(&mut self, path: &[u8]) -> Option<Known<'a>> {
        loop {
            match order(self.peek()?.path, path) {
                Ordering::Less => {
                    self.passed = true;
                    self.next();
                }
                Ordering::Equal => {
                    let found = self.current.clone();
                    self.next();
                    return found;
                }
                Ordering::Greater => return None,
            }
        }
    }
}

/// A directory, then all that is below it, then its next neighbour, as paths are ordered.
fn order(one: &[u8], other: &[u8]) -> Ordering {
    let ranked = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
    one.iter().map(ranked).cmp(other.iter().map(ranked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Kind;
    use std::path::PathBuf;

    #[test]
    fn records_are_found_in_the_order_of_paths() {
        let names = ["a", "a/b", "a/b/c", "a.b", "a0", "b"];
        let mut sorted: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
        sorted.sort();
        assert_eq!(sorted, names.map(PathBuf::from));
        let stamp = Stamp {
            inode: 1,
            size: 2,
            modified: 3,
            changed: 4,
            mode: 5,
        };
        let entry = Entry {
            kind: Kind::Dir,
            mode: 0o700,
            modified: (0, 0),
        };
        let mut cache = Vec::new();
        write_head(&mut cache, 9, "id");
        for name in names {
            write_record(&mut cache, Path::new(name), &stamp, &entry);
        }
        let mut cursor = Cursor::new(&cache);
        assert_eq!((cursor.id, cursor.taken), ("id", 9));
        for name in ["a", "a/b/c", "a/x", "a0", "c"] {
            let found = cursor.find(name.as_bytes());
            assert_eq!(found.is_some(), names.contains(&name), "{name}");
            if let Some(found) = found {
                assert_eq!((found.stamp, found.entry()), (stamp, Some(entry.clone())));
            }
        }
        assert!(cursor.passed && cursor.peek().is_none());
        // What is cut or foreign has no records rather than wrong ones.
        for end in 0..cache.len() {
            let mut cursor = Cursor::new(&cache[..end]);
            while let Some(known) = cursor.peek() {
                assert!(names.iter().any(|name| name.as_bytes() == known.path));
                cursor.next();
            }
        }
    }
}
