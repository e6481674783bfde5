//! Taking a snapshot: a walk that reads only what has changed since the last one.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use substrate_compiled::glob::{self, Slash};
use substrate_sys::at::{self, Stat};
use substrate_sys::getdents;
use thiserror::Error;

use crate::ignore::{Rules, Stack};
use crate::stat_cache::{Cursor, Known, Stamp, write_head, write_record};
use crate::store::Store;
use crate::tree::{Entry, Kind, Tree, TreeId};

const TYPE: u32 = 0o170_000;
/// Directories of version control are its own business.
const CONTROL: [&[u8]; 4] = [b".git", b".hg", b".svn", b".jj"];

/// Whether a name is that of a directory of version control.
pub(crate) fn is_control(name: &OsStr) -> bool {
    CONTROL.contains(&name.as_bytes())
}

/// A file that changed so shortly before it was read may change again within the same tick of
/// its clock.
const TICK: u64 = 50_000_000;

/// What a snapshot may cost, and what it must not touch.
#[derive(Debug, Clone)]
pub struct Limits {
    /// How long it may take. What was read by then is not read again the next time.
    pub time: Duration,
    /// The largest file that is kept.
    pub file: u64,
    /// How many names.
    pub names: usize,
    /// Globs for what is never read, with all that is below it: for whole paths, or, without
    /// a slash, for names.
    pub private: Vec<Vec<u8>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Duration::from_millis(400),
            file: 64 << 20,
            names: 200_000,
            private: Vec::new(),
        }
    }
}

impl Limits {
    /// Without the globs that nothing below a root can fit, so that most names need no look at any.
    fn below(&self, root: &Path) -> Vec<Vec<u8>> {
        let plain = |pattern: &[u8]| !pattern.iter().any(|byte| b"*?[\\".contains(byte));
        let elsewhere = |pattern: &[u8]| {
            pattern.contains(&b'/')
                && plain(pattern)
                && !Path::new(OsStr::from_bytes(pattern)).starts_with(root)
        };
        let kept = self.private.iter().filter(|pattern| !elsewhere(pattern));
        kept.cloned().collect()
    }

    pub(crate) fn is_private(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().as_bytes();
        self.private.iter().any(|pattern| {
            let text = match pattern.contains(&b'/') {
                true => path.as_os_str().as_bytes(),
                false => name,
            };
            glob::matches(pattern, text, Slash::Separator)
        })
    }
}

/// What came of it.
#[derive(Debug)]
pub enum Taken {
    /// A snapshot, and its tree where that had to be made; else the store has it.
    Whole(TreeId, Option<Tree>),
    /// None, and why.
    Skipped(String),
}

/// Why there is no snapshot.
#[derive(Debug, Error)]
#[error("cannot {doing} {}: {source}", path.display())]
pub struct SnapshotError {
    doing: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SnapshotError {
    let path = path.to_owned();
    move |source| SnapshotError {
        doing,
        path,
        source,
    }
}

/// Takes a snapshot of everything below a root that is not ignored.
pub fn take(store: &mut Store, root: &Path, limits: &Limits) -> Result<Taken, SnapshotError> {
    let started = Instant::now();
    if root.ancestors().any(|above| limits.is_private(above)) {
        return Ok(Taken::Skipped("the project is private".to_owned()));
    }
    let cache_path = store.cache_path(root);
    // A cache that cannot be understood is an empty one.
    let cache = fs::read(&cache_path).unwrap_or_default();
    let cursor = Cursor::new(&cache);
    let (before_id, before_taken) = (cursor.id.to_owned(), cursor.taken);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let taken = now.map_or(0, |now| now.as_nanos() as u64);
    let limits = &Limits {
        private: limits.below(root),
        ..limits.clone()
    };
    let mut walk = Walk {
        store,
        limits,
        root,
        deadline: started + limits.time,
        cursor,
        before_taken,
        rules: Stack::default(),
        found: Vec::new(),
        fresh: 0,
        over: None,
    };
    if let Ok(text) = fs::read(root.join(".git/info/exclude")) {
        walk.rules.push(0, Rules::parse(&text));
    }
    let dir = at::open_dir_path(root).map_err(failed("open", root))?;
    walk.dir(dir.as_fd(), &mut Vec::new())?;
    let (found, over, fresh, mut cursor) = (walk.found, walk.over, walk.fresh, walk.cursor);
    if let Some(reason) = over {
        if fresh > 0 {
            // What was read is known the next time; what was not reached is as it was.
            let mut bytes = Vec::new();
            write_head(&mut bytes, taken, "");
            encode(&mut bytes, &found, &cache);
            while let Some(known) = cursor.peek() {
                if known.stamp.changed + TICK < before_taken {
                    bytes.extend_from_slice(&cache[known.range.clone()]);
                }
                cursor.next();
            }
            let _ = store.put(&cache_path, |file| file.write_all(&bytes));
        }
        return Ok(Taken::Skipped(reason));
    }
    let gone = cursor.passed || cursor.peek().is_some();
    if fresh == 0 && !gone && store.has_tree(&before_id) {
        return Ok(Taken::Whole(before_id, None));
    }
    let entries = found.iter().filter_map(|slot| match slot {
        Slot::New(path, _, entry) => Some((path.clone(), entry.clone())),
        Slot::Known(range) => {
            let known = Known::parse(&cache, range.start)?;
            let path = PathBuf::from(OsStr::from_bytes(known.path));
            Some((path, known.entry()?))
        }
    });
    let tree = Tree {
        root: root.to_owned(),
        entries: entries.collect(),
    };
    let id = store
        .put_tree(&tree)
        .map_err(failed("keep a snapshot of", root))?;
    let mut bytes = Vec::new();
    write_head(&mut bytes, taken, &id);
    encode(&mut bytes, &found, &cache);
    store
        .put(&cache_path, |file| file.write_all(&bytes))
        .map_err(failed("write", &cache_path))?;
    Ok(Taken::Whole(id, Some(tree)))
}

/// One name of the snapshot: a record of the cache that still holds, or what was read.
enum Slot {
    Known(std::ops::Range<usize>),
    New(PathBuf, Stamp, Entry),
}

fn encode(out: &mut Vec<u8>, found: &[Slot], cache: &[u8]) {
    for slot in found {
        match slot {
            Slot::Known(range) => out.extend_from_slice(&cache[range.clone()]),
            Slot::New(path, stamp, entry) => write_record(out, path, stamp, entry),
        }
    }
}

/// Goes through directories in the order of the cache, so that both are read once, side by side.
struct Walk<'a> {
    store: &'a mut Store,
    limits: &'a Limits,
    root: &'a Path,
    deadline: Instant,
    cursor: Cursor<'a>,
    before_taken: u64,
    rules: Stack,
    found: Vec<Slot>,
    /// Names that are not as the cache has them.
    fresh: usize,
    /// Why it was given up.
    over: Option<String>,
}

impl Walk<'_> {
    fn dir(&mut self, dir: BorrowedFd<'_>, path: &mut Vec<u8>) -> Result<(), SnapshotError> {
        let mut names = getdents::read_dir(dir).map_err(failed("read", &self.whole(path)))?;
        names.sort_unstable_by(|(one, _), (other, _)| one.as_bytes().cmp(other.as_bytes()));
        let depth = self.rules.len();
        if names.iter().any(|(name, _)| name == ".gitignore")
            && let Ok(mut file) = at::open_read(dir, ".gitignore")
        {
            let mut text = Vec::new();
            if file.read_to_end(&mut text).is_ok() {
                self.rules.push(path.len(), Rules::parse(&text));
            }
        }
        let length = path.len();
        for (name, _) in names {
            if self.over.is_some() {
                break;
            }
            if is_control(&name) {
                continue;
            }
            if length > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            // A name that went away meanwhile is no part of the snapshot.
            if let Ok(stat) = at::stat(dir, &name) {
                self.name(dir, &name, path, &stat)?;
            }
            path.truncate(length);
        }
        self.rules.truncate(depth);
        Ok(())
    }

    fn whole(&self, path: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(path))
    }

    fn name(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &OsStr,
        path: &mut Vec<u8>,
        stat: &Stat,
    ) -> Result<(), SnapshotError> {
        let is_dir = stat.mode & TYPE == 0o040_000;
        if self.rules.ignores(OsStr::from_bytes(path), is_dir) {
            return Ok(());
        }
        if !self.limits.private.is_empty() && self.limits.is_private(&self.whole(path)) {
            return Ok(());
        }
        if self.found.len() >= self.limits.names {
            self.over = Some(format!("more than {} names", self.limits.names));
            return Ok(());
        }
        if self.found.len().is_multiple_of(64) && Instant::now() > self.deadline {
            let time = self.limits.time.as_millis();
            self.over = Some(format!("it would take longer than {time} ms"));
            return Ok(());
        }
        let stamp = Stamp::of(stat);
        let settled = is_dir || stamp.changed + TICK < self.before_taken;
        match self.cursor.find(path) {
            Some(known) if known.stamp == stamp && settled => {
                self.found.push(Slot::Known(known.range));
            }
            _ => {
                let Some(entry) = self.read(dir, name, path, stat)? else {
                    return Ok(());
                };
                self.fresh += 1;
                let path = PathBuf::from(OsString::from_vec(path.clone()));
                self.found.push(Slot::New(path, stamp, entry));
            }
        }
        if is_dir {
            match at::open_dir(dir, name) {
                Ok(below) => self.dir(below.as_fd(), path)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed("open", &self.whole(path))(error)),
            }
        }
        Ok(())
    }

    /// What a name stands for now; `None` for what cannot be kept: sockets, pipes, devices.
    fn read(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &OsStr,
        path: &[u8],
        stat: &Stat,
    ) -> Result<Option<Entry>, SnapshotError> {
        let mode = stat.mode & 0o7777;
        let whole = self.whole(path);
        let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let kind = match stat.mode & TYPE {
            0o040_000 => Kind::Dir,
            0o120_000 => match at::readlink(dir, name) {
                Ok(target) => Kind::Link(target),
                Err(error) if gone(&error) => return Ok(None),
                Err(error) => return Err(failed("read", &whole)(error)),
            },
            0o100_000 if stat.size > self.limits.file => {
                let most = self.limits.file;
                self.over = Some(format!("{} has more than {most} bytes", whole.display()));
                return Ok(None);
            }
            0o100_000 => {
                match at::open_read(dir, name).and_then(|file| self.store.put_file(file)) {
                    Ok(hash) => Kind::File(hash),
                    Err(error) if gone(&error) => return Ok(None),
                    Err(error) => return Err(failed("keep", &whole)(error)),
                }
            }
            _ => return Ok(None),
        };
        let mode = if matches!(kind, Kind::Link(_)) {
            0
        } else {
            mode
        };
        let modified = match kind {
            Kind::File(_) => stat.mtime,
            _ => (0, 0),
        };
        Ok(Some(Entry {
            kind,
            mode,
            modified,
        }))
    }
}
