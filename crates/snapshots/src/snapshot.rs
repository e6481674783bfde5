//! Taking a snapshot: a walk that reads only what has changed since the last one.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use substrate_compiled::file::checksum;
use substrate_compiled::glob::{self, Slash};
use substrate_sys::at::{self, Stat};
use substrate_sys::bounded::{self, Links};
use substrate_sys::getdents;
use substrate_sys::mmap::MappedFile;
use thiserror::Error;

use crate::ignore::{self, EXCLUDE, Rules, Stack};
use crate::prefetch::{Ahead, Meeting, View};
use crate::stat_cache::{Cursor, Head, Known, Stamp, write_record};
use crate::store::Store;
use crate::tree::{Entry, Kind, Tree, TreeId};

const TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
/// More than this is written only with a whole snapshot.
const LARGE_CACHE: usize = 1 << 20;
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

    /// Whether a snapshot that was taken by other limits holds something that these keep out.
    pub fn keep_out_of(&self, tree: &Tree) -> bool {
        let private = |name: &Path| {
            let parts = name.ancestors().filter(|part| !part.as_os_str().is_empty());
            parts
                .into_iter()
                .any(|part| self.is_private(&tree.root.join(part)))
        };
        tree.entries.keys().any(|name| private(name))
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
    // A cache that cannot be understood is an empty one. Whoever writes one replaces the file.
    let mapped = fs::File::open(&cache_path).and_then(|file| MappedFile::open(&file));
    let cache = mapped.as_ref().map_or(&[][..], MappedFile::as_ref);
    let cursor = Cursor::new(cache);
    let before = cursor.head;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let limits = &Limits {
        private: limits.below(root),
        ..limits.clone()
    };
    let Some(excluded) = ignore::rules(bounded::read(
        root.join(EXCLUDE),
        Links::Follow,
        ignore::LIMIT,
    )) else {
        return Ok(Taken::Skipped(ignore::too_long(Path::new(EXCLUDE))));
    };
    let parts = limits.private.iter().chain([&excluded]);
    let filter = parts.fold(0, |sum: u64, part| sum.rotate_left(1) ^ checksum(part));
    let head = Head {
        taken: now.map_or(0, |now| now.as_nanos() as u64),
        filter,
        id: "",
    };
    let dir = at::open_dir_path(root).map_err(failed("open", root))?;
    let stat = at::stat(&dir, "").map_err(failed("look at", root))?;
    let (settled, deadline) = (before.taken.saturating_sub(TICK), started + limits.time);
    let same = before.filter == filter;
    let view = View {
        cache,
        root: dir.as_fd(),
        settled,
        deadline,
    };
    let meeting = Meeting::default();
    let walk = std::thread::scope(|scope| {
        let mut walk = Walk {
            store,
            limits,
            root,
            device: at::stamps_directories(&dir).then_some(stat.dev),
            deadline,
            cursor,
            ahead: Ahead::start(scope, &meeting, view),
            settled,
            rules: Stack::default(),
            found: Vec::new(),
            count: 0,
            fresh: 0,
            stale: !same,
            over: None,
        };
        walk.rules.push(0, Rules::parse(&excluded));
        let top = walk.cursor.find(b"");
        walk.dir(dir.as_fd(), &mut Vec::new(), &stat, top, same)?;
        Ok(walk.done())
    })?;
    let Done {
        found,
        mut cursor,
        fresh,
        stale,
        over,
    } = walk;
    if let Some(reason) = over {
        // Writing a large cache takes longer than what it would save the next time.
        if fresh > 0 && cache.len() < LARGE_CACHE {
            // What was read is known the next time; what was not reached is as it was. Another
            // filter makes sure that all names are looked for.
            let mut bytes = Vec::new();
            let filter = !filter;
            Head { filter, ..head }.put(&mut bytes);
            encode(&mut bytes, &found, cache);
            while let Some(known) = cursor.next() {
                if known.stamp.changed < settled {
                    bytes.extend_from_slice(&cache[known.range]);
                }
            }
            let _ = store.put(&cache_path, |file| file.write_all(&bytes));
        }
        return Ok(Taken::Skipped(reason));
    }
    let gone = cursor.passed || cursor.peek().is_some();
    let unchanged = fresh == 0 && !gone && store.has_tree(before.id);
    let tree = (!unchanged).then(|| tree(root, &found, cache));
    let id = match &tree {
        None => before.id.to_owned(),
        Some(tree) => store
            .put_tree(tree)
            .map_err(failed("keep a snapshot of", root))?,
    };
    if stale || !unchanged {
        let mut bytes = Vec::new();
        Head { id: &id, ..head }.put(&mut bytes);
        encode(&mut bytes, &found, cache);
        store
            .put(&cache_path, |file| file.write_all(&bytes))
            .map_err(failed("write", &cache_path))?;
    }
    Ok(Taken::Whole(id, tree))
}

fn tree(root: &Path, found: &[Part], cache: &[u8]) -> Tree {
    let mut tree = Tree {
        root: root.to_owned(),
        ..Tree::default()
    };
    let mut add = |path: &[u8], entry: Entry| {
        if !path.is_empty() {
            let path = PathBuf::from(OsStr::from_bytes(path));
            tree.entries.insert(path, entry);
        }
    };
    for part in found {
        match part {
            Part::New(path, .., entry) => add(path, entry.clone()),
            Part::Known(range) => {
                let mut at = range.start;
                while at < range.end
                    && let Some(known) = Known::parse(cache, at)
                {
                    at = known.range.end;
                    if let Some(entry) = known.entry() {
                        add(known.path, entry);
                    }
                }
            }
        }
    }
    tree
}

/// A part of the snapshot: records of the cache that still hold, or a name that was read.
enum Part {
    Known(std::ops::Range<usize>),
    New(Vec<u8>, Stamp, Option<Stamp>, Entry),
}

fn encode(out: &mut Vec<u8>, found: &[Part], cache: &[u8]) {
    for part in found {
        match part {
            Part::Known(range) => out.extend_from_slice(&cache[range.clone()]),
            Part::New(path, stamp, ignores, entry) => {
                let path = Path::new(OsStr::from_bytes(path));
                write_record(out, path, stamp, ignores.as_ref(), entry);
            }
        }
    }
}

/// Goes through directories in the order of the cache, so that both are read once, side by side. The
/// names of a directory whose times are as they were come from the cache.
struct Walk<'a, 'scope> {
    store: &'a mut Store,
    limits: &'a Limits,
    root: &'a Path,
    /// The file system on which the times of directories mean something.
    device: Option<u64>,
    deadline: Instant,
    cursor: Cursor<'a>,
    ahead: Ahead<'scope>,
    /// What was changed later than this may have changed again without a trace.
    settled: u64,
    rules: Stack,
    found: Vec<Part>,
    count: usize,
    /// Names that are not as the cache has them.
    fresh: usize,
    /// The cache says something about a directory that no longer holds.
    stale: bool,
    /// Why it was given up.
    over: Option<String>,
}

/// What a walk has found.
struct Done<'a> {
    found: Vec<Part>,
    cursor: Cursor<'a>,
    fresh: usize,
    stale: bool,
    over: Option<String>,
}

impl<'a> Walk<'a, '_> {
    fn done(self) -> Done<'a> {
        Done {
            found: self.found,
            cursor: self.cursor,
            fresh: self.fresh,
            stale: self.stale,
            over: self.over,
        }
    }

    /// Goes through a directory, whose own record is `known`; `same` says that what is left out here
    /// is what was left out then.
    fn dir(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &mut Vec<u8>,
        stat: &Stat,
        known: Option<Known<'a>>,
        same: bool,
    ) -> Result<(), SnapshotError> {
        let stamp = Stamp::of(stat);
        let settled = |stamp: &Stamp| stamp.changed < self.settled;
        let as_it_was = self.device == Some(stat.dev)
            && settled(&stamp)
            && known.as_ref().is_some_and(|known| known.stamp == stamp);
        let has_none = as_it_was && known.as_ref().is_some_and(|known| known.ignores.is_none());
        let ignores = match has_none {
            true => None,
            false => at::stat(dir, ".gitignore").ok().as_ref().map(Stamp::of),
        };
        let depth = self.rules.len();
        if ignores.is_some() {
            match ignore::rules(bounded::read_at(dir, ".gitignore", ignore::LIMIT)) {
                Some(text) => self.rules.push(path.len(), Rules::parse(&text)),
                None => {
                    let path = Path::new(OsStr::from_bytes(path)).join(".gitignore");
                    self.over = Some(ignore::too_long(&path));
                    return Ok(());
                }
            }
        }
        let same = same
            && known.as_ref().is_some_and(|known| known.ignores == ignores)
            && ignores.as_ref().is_none_or(settled);
        let names_hold = same && as_it_was;
        match known.filter(|_| names_hold) {
            Some(known) => self.keep(known.range),
            None => {
                self.stale = true;
                let entry = Entry {
                    kind: Kind::Dir,
                    mode: stat.mode & 0o7777,
                    modified: (0, 0),
                };
                self.add(Part::New(path.clone(), stamp, ignores, entry));
            }
        }
        if names_hold {
            self.names_of_cache(dir, path)?;
        } else {
            self.names_of_disk(dir, path, same)?;
        }
        self.rules.truncate(depth);
        Ok(())
    }

    fn names_of_cache(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &mut Vec<u8>,
    ) -> Result<(), SnapshotError> {
        let length = path.len();
        while self.over.is_none()
            && let Some((known, name)) = self.cursor.child(path)
        {
            if self.ahead.is_same(known.range.start) && !self.is_over() {
                self.keep(known.range);
                continue;
            }
            extend(path, name);
            match at::stat(dir, OsStr::from_bytes(name)) {
                Ok(stat) => {
                    self.name(dir, OsStr::from_bytes(name), path, &stat, Some(known), true)?
                }
                Err(_) => self.cursor.passed = true,
            }
            path.truncate(length);
        }
        Ok(())
    }

    fn names_of_disk(
        &mut self,
        dir: BorrowedFd<'_>,
        path: &mut Vec<u8>,
        same: bool,
    ) -> Result<(), SnapshotError> {
        let mut names = getdents::read_dir(dir).map_err(failed("read", &self.whole(path)))?;
        names.sort_unstable_by(|(one, _), (other, _)| one.as_bytes().cmp(other.as_bytes()));
        let length = path.len();
        for (name, _) in names {
            if self.over.is_some() {
                break;
            }
            if is_control(&name) {
                continue;
            }
            extend(path, name.as_bytes());
            // A name that went away meanwhile is no part of the snapshot.
            if let Ok(stat) = at::stat(dir, &name)
                && !self.leaves_out(path, &stat)
            {
                let known = self.cursor.find(path);
                self.name(dir, &name, path, &stat, known, same)?;
            }
            path.truncate(length);
        }
        Ok(())
    }

    fn whole(&self, path: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(path))
    }

    fn leaves_out(&self, path: &[u8], stat: &Stat) -> bool {
        let is_dir = stat.mode & TYPE == DIRECTORY;
        self.rules.ignores(OsStr::from_bytes(path), is_dir)
            || (!self.limits.private.is_empty() && self.limits.is_private(&self.whole(path)))
    }

    /// Whether this is more, or takes longer, than it may.
    fn is_over(&mut self) -> bool {
        if self.count >= self.limits.names {
            self.over = Some(format!("more than {} names", self.limits.names));
        } else if self.count % 8 == 1 && Instant::now() > self.deadline {
            let time = self.limits.time.as_millis();
            self.over = Some(format!("it would take longer than {time} ms"));
        }
        self.over.is_some()
    }

    fn add(&mut self, part: Part) {
        self.found.push(part);
        self.count += 1;
    }

    /// Keeps a record of the cache, in one piece with the one before it.
    fn keep(&mut self, range: std::ops::Range<usize>) {
        self.count += 1;
        match self.found.last_mut() {
            Some(Part::Known(last)) if last.end == range.start => last.end = range.end,
            _ => self.found.push(Part::Known(range)),
        }
    }

    fn name(
        &mut self,
        dir: BorrowedFd<'_>,
        name: &OsStr,
        path: &mut Vec<u8>,
        stat: &Stat,
        known: Option<Known<'a>>,
        same: bool,
    ) -> Result<(), SnapshotError> {
        if self.is_over() {
            return Ok(());
        }
        if stat.mode & TYPE == DIRECTORY {
            // A directory is as it was when its mode is; what is in it is another question.
            if known
                .as_ref()
                .is_none_or(|known| known.stamp.mode != stat.mode)
            {
                self.fresh += 1;
            }
            return match at::open_dir(dir, name) {
                Ok(below) => self.dir(below.as_fd(), path, stat, known, same),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(failed("open", &self.whole(path))(error)),
            };
        }
        let stamp = Stamp::of(stat);
        match known {
            Some(known) if known.stamp == stamp && stamp.changed < self.settled => {
                self.keep(known.range);
            }
            _ => {
                if let Some(entry) = self.read(dir, name, path, stat)? {
                    self.fresh += 1;
                    self.add(Part::New(path.clone(), stamp, None, entry));
                }
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
                match bounded::open_at(dir, name)
                    .and_then(|file| self.store.put_file(file, self.limits.file))
                {
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

fn extend(path: &mut Vec<u8>, name: &[u8]) {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
}
