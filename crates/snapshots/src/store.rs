//! Contents by their hash and trees by theirs, below `snapshots` in Substrate's home.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};
use substrate_sys::bounded::{self, Links};
use substrate_sys::reflink;

use crate::tree::{Kind, Tree, TreeId};

/// What was written in this time may belong to a snapshot that is still being taken.
const FRESH: Duration = Duration::from_secs(3600);

/// The place where snapshots are kept.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    /// The file system refused to share blocks; not asked again.
    copies: bool,
    made: u64,
}

/// What [`Store::collect`] removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Collected {
    /// Trees.
    pub trees: u64,
    /// Contents.
    pub objects: u64,
    /// How much room they took.
    pub bytes: u64,
}

impl Store {
    /// The store of a home; it is made when something is put into it.
    pub fn open(home: &Path) -> Self {
        Self {
            dir: home.join("snapshots"),
            copies: false,
            made: 0,
        }
    }

    fn object(&self, hash: &[u8; 32]) -> PathBuf {
        let name = hex(hash);
        self.dir.join("objects").join(&name[..2]).join(&name[2..])
    }

    fn tree_path(&self, id: &str) -> Option<PathBuf> {
        let legal = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        legal.then(|| self.dir.join("trees").join(id))
    }

    /// Where the cache of a project lies.
    pub(crate) fn cache_path(&self, root: &Path) -> PathBuf {
        use std::os::unix::ffi::OsStrExt;
        let name = substrate_trace::sha256_hex(root.as_os_str().as_bytes());
        self.dir.join("cache").join(name)
    }

    /// Where the hashes of programs are remembered.
    pub(crate) fn tools_path(&self) -> PathBuf {
        self.dir.join("tools")
    }

    /// A tree that was kept; `None` when it is gone or damaged.
    pub fn tree(&self, id: &str) -> Option<Tree> {
        let bytes = fs::read(self.tree_path(id)?).ok()?;
        (substrate_trace::sha256_hex(&bytes) == id)
            .then(|| Tree::decode(&bytes))
            .flatten()
    }

    pub(crate) fn has_tree(&self, id: &str) -> bool {
        self.tree_path(id).is_some_and(|path| path.exists())
    }

    /// Keeps a tree.
    pub(crate) fn put_tree(&mut self, tree: &Tree) -> io::Result<TreeId> {
        let (bytes, id) = tree.encode();
        if let Some(path) = self.tree_path(&id)
            && !path.exists()
        {
            self.put(&path, |file| file.write_all(&bytes))?;
        }
        Ok(id)
    }

    /// A content that was kept; one that is not as it was put there is an error.
    pub fn content(&self, hash: &[u8; 32]) -> io::Result<Vec<u8>> {
        let content = fs::read(self.object(hash))?;
        match <[u8; 32]>::from(Sha256::digest(&content)) == *hash {
            true => Ok(content),
            false => Err(io::Error::from(io::ErrorKind::InvalidData)),
        }
    }

    /// Keeps the content of an open file, of which there must not be more than `limit` bytes, and
    /// answers its hash.
    pub(crate) fn put_file(&mut self, from: File, limit: u64) -> io::Result<[u8; 32]> {
        if !self.copies {
            match self.clone_file(&from, limit) {
                Ok(hash) => return Ok(hash),
                Err(_) => self.copies = true,
            }
        }
        let content = bounded::read_open(&from, limit)?;
        let hash: [u8; 32] = Sha256::digest(&content).into();
        let path = self.object(&hash);
        if !path.exists() {
            self.put(&path, |file| file.write_all(&content))?;
        }
        Ok(hash)
    }

    /// Shares the blocks of a file first and hashes what was shared, which nobody changes.
    fn clone_file(&mut self, from: &File, limit: u64) -> io::Result<[u8; 32]> {
        let aside = self.aside()?;
        let shared = new_file(&aside).and_then(|to| reflink::clone_whole(from, &to));
        let content = shared.and_then(|()| Ok(bounded::read(&aside, Links::Refuse, limit)?));
        let hash: [u8; 32] = match content {
            Ok(content) => Sha256::digest(&content).into(),
            Err(error) => {
                let _ = fs::remove_file(&aside);
                return Err(error);
            }
        };
        let path = self.object(&hash);
        make_dirs(path.parent().unwrap_or(&self.dir))?;
        fs::rename(&aside, &path)?;
        Ok(hash)
    }

    fn aside(&mut self) -> io::Result<PathBuf> {
        let dir = self.dir.join("new");
        make_dirs(&dir)?;
        self.made += 1;
        Ok(dir.join(format!("{}-{}", std::process::id(), self.made)))
    }

    /// Writes a file aside and gives it its name when it is whole.
    pub(crate) fn put(
        &mut self,
        path: &Path,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        let aside = self.aside()?;
        let written = new_file(&aside).and_then(|mut file| write(&mut file));
        let named = written
            .and_then(|()| make_dirs(path.parent().unwrap_or(&self.dir)))
            .and_then(|()| fs::rename(&aside, path));
        if named.is_err() {
            let _ = fs::remove_file(&aside);
        }
        named
    }

    /// Removes every tree that is not wanted, and every content that no tree has any more.
    pub fn collect(&self, wanted: &HashSet<TreeId>) -> io::Result<Collected> {
        let mut done = Collected::default();
        let mut needed = HashSet::new();
        for path in names(&self.dir.join("trees"))? {
            let id = path.file_name().unwrap_or_default().to_string_lossy();
            if wanted.contains(id.as_ref()) || is_fresh(&path) {
                let tree = self.tree(&id);
                for entry in tree.iter().flat_map(|tree| tree.entries.values()) {
                    if let Kind::File(hash) = entry.kind {
                        needed.insert(self.object(&hash));
                    }
                }
            } else {
                done.bytes += remove(&path)?;
                done.trees += 1;
            }
        }
        for dir in names(&self.dir.join("objects"))? {
            for path in names(&dir)? {
                if !needed.contains(&path) && !is_fresh(&path) {
                    done.bytes += remove(&path)?;
                    done.objects += 1;
                }
            }
        }
        for path in names(&self.dir.join("new"))? {
            if !is_fresh(&path) {
                done.bytes += remove(&path)?;
            }
        }
        if done.objects > 0 {
            // They say of contents that they are kept, which may no longer be so.
            for path in names(&self.dir.join("cache"))? {
                remove(&path)?;
            }
        }
        Ok(done)
    }
}

/// The most that snapshots may take, unless nobody knows how large the disk is.
const MOST: u64 = 1 << 30;
/// They take no larger part of the disk than one in so many.
const SHARE: u64 = 50;
/// How often they are looked at.
const EVERY: Duration = Duration::from_secs(3600);

impl Store {
    /// Keeps the store within its share of the disk, once an hour: the oldest snapshots go first.
    pub fn shrink_now_and_then(&self) -> io::Result<Collected> {
        let stamp = self.dir.join("shrunk");
        if is_fresh_for(&stamp, EVERY) || !self.dir.is_dir() {
            return Ok(Collected::default());
        }
        fs::write(&stamp, b"")?;
        let room = substrate_sys::statvfs::size(&self.dir).map_or(MOST, |size| size / SHARE);
        self.shrink(room.min(MOST))
    }

    /// Removes the oldest trees, and what only they have, until the rest takes no more than this.
    pub fn shrink(&self, most: u64) -> io::Result<Collected> {
        let mut trees = Vec::new();
        for path in names(&self.dir.join("trees"))? {
            let written = fs::symlink_metadata(&path).and_then(|meta| meta.modified());
            trees.push((written.unwrap_or(SystemTime::UNIX_EPOCH), path));
        }
        trees.sort();
        let (mut used, mut kept, mut wanted) = (0, HashSet::new(), HashSet::new());
        for (_, path) in trees.iter().rev() {
            let id = path.file_name().unwrap_or_default().to_string_lossy();
            let Some(tree) = self.tree(&id) else {
                continue;
            };
            used += fs::symlink_metadata(path).map_or(0, |meta| meta.len());
            for entry in tree.entries.values() {
                if let Kind::File(hash) = entry.kind
                    && kept.insert(hash)
                {
                    used += fs::symlink_metadata(self.object(&hash)).map_or(0, |meta| meta.len());
                }
            }
            if used > most {
                break;
            }
            wanted.insert(id.into_owned());
        }
        match wanted.len() == trees.len() {
            true => Ok(Collected::default()),
            false => self.collect(&wanted),
        }
    }

    /// Removes every tree that `is_private` names, and every content that only such trees have, however new.
    /// Spans that name them cannot be replayed any more.
    pub fn purge(&self, is_private: &dyn Fn(&Tree) -> bool) -> io::Result<Collected> {
        let mut done = Collected::default();
        let (mut needed, mut suspects) = (HashSet::new(), HashSet::new());
        for path in names(&self.dir.join("trees"))? {
            let id = path.file_name().unwrap_or_default().to_string_lossy();
            let Some(tree) = self.tree(&id) else {
                continue;
            };
            let bad = is_private(&tree);
            let contents = tree.entries.values().filter_map(|entry| match entry.kind {
                Kind::File(hash) => Some(self.object(&hash)),
                _ => None,
            });
            match bad {
                true => suspects.extend(contents),
                false => needed.extend(contents),
            }
            if bad {
                done.bytes += remove(&path)?;
                done.trees += 1;
            }
        }
        for path in suspects.difference(&needed) {
            // One that is gone already is as it should be.
            if path.exists() {
                done.bytes += remove(path)?;
                done.objects += 1;
            }
        }
        if done.trees > 0 {
            // They say of contents that they are kept, which is no longer so.
            for path in names(&self.dir.join("cache"))? {
                remove(&path)?;
            }
        }
        Ok(done)
    }
}

fn new_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

fn make_dirs(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

fn names(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Ok(entries) => entries.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn is_fresh(path: &Path) -> bool {
    is_fresh_for(path, FRESH)
}

fn is_fresh_for(path: &Path, time: Duration) -> bool {
    let changed = fs::symlink_metadata(path).and_then(|meta| meta.modified());
    changed.is_ok_and(|at| SystemTime::now().duration_since(at).unwrap_or_default() < time)
}

fn remove(path: &Path) -> io::Result<u64> {
    let length = fs::symlink_metadata(path)?.len();
    fs::remove_file(path)?;
    Ok(length)
}

pub(crate) fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Entry;
    use std::collections::BTreeMap;

    #[test]
    fn the_oldest_go_when_there_is_no_room() {
        let home = tempfile::tempdir().unwrap();
        let mut store = Store::open(home.path());
        let old = SystemTime::now() - FRESH * 2;
        let mut ids = Vec::new();
        for age in (0..4_u32).rev() {
            let file = home.path().join("file");
            fs::write(&file, vec![age as u8; 10_000]).unwrap();
            let hash = store.put_file(File::open(&file).unwrap(), 1 << 20).unwrap();
            let entry = Entry {
                kind: Kind::File(hash),
                mode: 0o644,
                modified: (0, 0),
            };
            let tree = Tree {
                root: "/p".into(),
                entries: BTreeMap::from([("f".into(), entry)]),
            };
            let id = store.put_tree(&tree).unwrap();
            for path in [store.tree_path(&id).unwrap(), store.object(&hash)] {
                let file = File::options().append(true).open(path).unwrap();
                file.set_modified(old - Duration::from_secs(u64::from(age)))
                    .unwrap();
            }
            ids.push((id, hash));
        }
        assert_eq!(store.shrink(1 << 20).unwrap(), Collected::default());
        let gone = store.shrink(25_000).unwrap();
        assert_eq!((gone.trees, gone.objects), (2, 2));
        let left: Vec<bool> = ids.iter().map(|(id, _)| store.has_tree(id)).collect();
        assert_eq!(left, [false, false, true, true], "the newest stay");
        assert!(store.content(&ids[3].1).is_ok() && store.content(&ids[0].1).is_err());
    }
}
