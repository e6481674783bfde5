//! What the last snapshot of a project found, so that names which are as they were need not be
//! read: records in the order of their paths, gone through once.

use std::cmp::Ordering;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use substrate_sys::at::Stat;

use crate::codec::{Reader, put_bytes};
use crate::tree::{Entry, entry, put_entry};

const MAGIC: &[u8] = b"substrate stat cache 4\n";

/// What tells that a name is as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub inode: u64,
    size: u64,
    modified: u64,
    pub changed: u64,
    pub mode: u32,
}

impl Stamp {
    pub fn of(stat: &Stat) -> Self {
        let nanos = |(seconds, nanos): (i64, u32)| {
            (seconds.max(0) as u64).wrapping_mul(1_000_000_000) + u64::from(nanos)
        };
        Self {
            inode: stat.ino,
            size: stat.size,
            modified: nanos(stat.mtime),
            changed: nanos(stat.ctime),
            mode: stat.mode,
        }
    }

    pub fn is_dir(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }

    fn put(&self, out: &mut Vec<u8>) {
        for number in [self.inode, self.size, self.modified, self.changed] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.mode.to_le_bytes());
    }

    fn get(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self {
            inode: reader.u64()?,
            size: reader.u64()?,
            modified: reader.u64()?,
            changed: reader.u64()?,
            mode: reader.u32()?,
        })
    }
}

/// What a cache says about the snapshot as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Head<'a> {
    /// When the snapshot began, in nanoseconds since 1970.
    pub taken: u64,
    /// What it left out on the word of others than the project's own files.
    pub filter: u64,
    /// The snapshot.
    pub id: &'a str,
}

impl<'a> Head<'a> {
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.taken.to_le_bytes());
        out.extend_from_slice(&self.filter.to_le_bytes());
        put_bytes(out, self.id.as_bytes());
    }

    fn get(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self {
            taken: reader.u64()?,
            filter: reader.u64()?,
            id: std::str::from_utf8(reader.bytes()?).ok()?,
        })
    }
}

/// Adds a name; `ignores` is what the `.gitignore` of a directory looks like. The root has the empty
/// name.
pub(crate) fn write_record(
    out: &mut Vec<u8>,
    path: &Path,
    stamp: &Stamp,
    ignores: Option<&Stamp>,
    entry: &Entry,
) {
    put_bytes(out, path.as_os_str().as_bytes());
    stamp.put(out);
    out.push(u8::from(ignores.is_some()));
    if let Some(ignores) = ignores {
        ignores.put(out);
    }
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
    pub ignores: Option<Stamp>,
    entry: &'a [u8],
}

impl<'a> Known<'a> {
    /// The record that begins at a place; `None` for what is none.
    pub fn parse(cache: &'a [u8], at: usize) -> Option<Self> {
        let mut reader = Reader(cache.get(at..)?);
        let path = reader.bytes()?;
        let stamp = Stamp::get(&mut reader)?;
        let ignores = match reader.array()? {
            [0] => None,
            [1] => Some(Stamp::get(&mut reader)?),
            _ => return None,
        };
        let entry = reader.bytes()?;
        Some(Self {
            range: at..cache.len() - reader.0.len(),
            path,
            stamp,
            ignores,
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
    /// What it says about the whole.
    pub head: Head<'a>,
    /// A record was passed that nobody asked for: its name is gone.
    pub passed: bool,
}

impl<'a> Cursor<'a> {
    /// At the first record; a cache that cannot be understood has none.
    pub fn new(cache: &'a [u8]) -> Self {
        let head = || {
            let mut reader = Reader(cache.strip_prefix(MAGIC)?);
            let head = Head::get(&mut reader)?;
            Some((head, cache.len() - reader.0.len()))
        };
        let (head, at) = head().unwrap_or((Head::default(), cache.len()));
        Self {
            cache,
            current: Known::parse(cache, at),
            head,
            passed: false,
        }
    }

    /// The record it is at.
    pub fn peek(&self) -> Option<&Known<'a>> {
        self.current.as_ref()
    }

    /// Takes the record it is at and goes to the next.
    pub fn next(&mut self) -> Option<Known<'a>> {
        let taken = self.current.take();
        let end = taken.as_ref().map(|known| known.range.end);
        self.current = end.and_then(|end| Known::parse(self.cache, end));
        taken
    }

    /// The record of a path that comes after all that were asked for before.
    pub fn find(&mut self, path: &[u8]) -> Option<Known<'a>> {
        loop {
            match order(self.peek()?.path, path) {
                Ordering::Less => {
                    self.passed = true;
                    self.next();
                }
                Ordering::Equal => return self.next(),
                Ordering::Greater => return None,
            }
        }
    }

    /// The next record for a name in a directory, with that name; records of deeper names that
    /// nobody has taken are passed.
    pub fn child(&mut self, directory: &[u8]) -> Option<(Known<'a>, &'a [u8])> {
        loop {
            let below = self.peek()?.path.strip_prefix(directory)?;
            let name = match directory {
                [] => below,
                _ => below.strip_prefix(b"/")?,
            };
            let known = self.next()?;
            if !name.is_empty() && !name.contains(&b'/') {
                return Some((known, name));
            }
            self.passed = true;
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
        let head = Head {
            taken: 9,
            filter: 8,
            id: "id",
        };
        let mut cache = Vec::new();
        head.put(&mut cache);
        for name in names {
            let ignores = (name == "a").then_some(&stamp);
            write_record(&mut cache, Path::new(name), &stamp, ignores, &entry);
        }
        let mut cursor = Cursor::new(&cache);
        assert_eq!(cursor.head, head);
        for name in ["a", "a/b/c", "a/x", "a0", "c"] {
            let found = cursor.find(name.as_bytes());
            assert_eq!(found.is_some(), names.contains(&name), "{name}");
            if let Some(found) = found {
                assert_eq!((found.stamp, found.entry()), (stamp, Some(entry.clone())));
            }
        }
        assert!(cursor.passed && cursor.peek().is_none());
        // The same, directory by directory.
        let mut cursor = Cursor::new(&cache);
        let mut children = |directory: &str| {
            let mut names = Vec::new();
            while let Some((known, name)) = cursor.child(directory.as_bytes()) {
                assert_eq!(known.ignores.is_some(), name == b"a");
                names.push(String::from_utf8_lossy(name).into_owned());
                if directory.is_empty() && name == b"a" {
                    break;
                }
            }
            names
        };
        assert_eq!(children(""), ["a"]);
        assert_eq!(children("a"), ["b"], "what is below `b` is passed");
        assert_eq!(children(""), ["a.b", "a0", "b"]);
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
