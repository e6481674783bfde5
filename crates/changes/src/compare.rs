//! Compares two names once a walk has paired them: content, metadata, attributes; and hashes
//! what is new.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use substrate_sys::{at, bounded, reflink};

use crate::change::{Change, ChangeKind, WalkError, owner_differs};
use crate::copy::open_own;
use crate::entry::{
    Attributes, Entry, Moment, NodeKind, attributes, is_absent, open_attributes, own_attributes,
};

const BUFFER: usize = 64 * 1024;

/// A difference that may still need its content looked at.
pub(crate) struct Item {
    pub change: Change,
    pub work: Work,
}

/// What is still to be done about an item.
pub(crate) enum Work {
    /// Nothing.
    Done,
    /// Compare two names of the same type.
    Compare(Arc<OwnedFd>, Arc<OwnedFd>, OsString),
    /// Compare a regular file with one of that name on the host, if there is one; neither has
    /// been looked at yet.
    Files(Arc<OwnedFd>, Option<Arc<OwnedFd>>, OsString),
    /// Only the digest of the new one is missing.
    Digest(Arc<OwnedFd>, OsString),
    /// Turned out to be no difference.
    Drop,
}

/// How names are compared.
pub(crate) struct Task {
    pub overlay: bool,
    pub hash: bool,
    pub since: Option<Moment>,
    pub copier: Option<(u32, u32)>,
    pub same_links: bool,
    pub shown: Arc<Path>,
}

/// Some names, and what came of them.
pub(crate) struct Batch {
    pub task: Task,
    pub items: Vec<Item>,
    pub result: Result<(), WalkError>,
}

impl Batch {
    pub(crate) fn work(&mut self) {
        let (task, mut buffers) = (&self.task, Buffers::default());
        let mut items = self.items.iter_mut();
        self.result = items.try_for_each(|item| task.run(item, &mut buffers));
    }
}

impl Task {
    fn run(&self, item: &mut Item, buffers: &mut Buffers) -> Result<(), WalkError> {
        let work = std::mem::replace(&mut item.work, Work::Done);
        let change = &mut item.change;
        let done = match work {
            Work::Done | Work::Drop => return Ok(()),
            Work::Digest(upper, name) => {
                digest_of(&upper, &name, change.new.as_ref(), self.overlay, buffers).map(|digest| {
                    change.digest = digest;
                    Work::Done
                })
            }
            Work::Compare(upper, lower, name) => {
                self.compare(change, &upper, &lower, &name, buffers)
            }
            Work::Files(upper, lower, name) => {
                self.files(change, &upper, lower.as_ref(), &name, buffers)
            }
        };
        match done {
            Ok(work) => {
                item.work = work;
                Ok(())
            }
            // It went away while we looked: then it is not there to be reported.
            Err(e) if is_absent(&e) => {
                item.work = Work::Drop;
                Ok(())
            }
            Err(source) => Err(WalkError::Io {
                step: "compare",
                path: self.shown.join(&item.change.path),
                source,
            }),
        }
    }

    /// Looks at both first.
    fn files(
        &self,
        change: &mut Change,
        upper: &Arc<OwnedFd>,
        lower: Option<&Arc<OwnedFd>>,
        name: &OsStr,
        buffers: &mut Buffers,
    ) -> io::Result<Work> {
        let new = Entry::from(&at::stat(upper, name)?);
        change.new = Some(new);
        if let Some(lower) = lower {
            change.old = Entry::look(lower, name)?;
        }
        if self.since.is_some_and(|since| new.ctime < since) {
            return Ok(Work::Drop);
        }
        let kind = match (&change.old, lower) {
            (Some(old), Some(lower)) if old.kind == new.kind => {
                return self.compare(change, upper, lower, name, buffers);
            }
            (None, _) => ChangeKind::Created,
            _ => ChangeKind::TypeChanged,
        };
        change.kind = kind;
        if self.hash {
            change.digest = digest_of(upper, name, Some(&new), self.overlay, buffers)?;
        }
        Ok(Work::Done)
    }

    fn compare(
        &self,
        change: &mut Change,
        upper: &Arc<OwnedFd>,
        lower: &Arc<OwnedFd>,
        name: &OsStr,
        buffers: &mut Buffers,
    ) -> io::Result<Work> {
        let (Some(new), Some(old)) = (change.new, change.old) else {
            return Ok(Work::Done);
        };
        change.fields.mode = new.kind != NodeKind::Symlink && new.mode != old.mode;
        change.fields.owner = owner_differs(&new, &old, self.copier);
        change.fields.times = new.mtime != old.mtime;
        match new.kind {
            NodeKind::File if new.size == old.size && new.size > 0 => {
                self.contents(change, upper, lower, name, buffers)?;
            }
            NodeKind::File if new.size == 0 && old.size == 0 => {
                let (own, _) = own_attributes(upper, name, self.overlay, new.mode)?;
                change.fields.attributes = attributes_differ(lower, name, &own)?;
            }
            NodeKind::File => change.fields.content = true,
            NodeKind::Symlink => {
                change.fields.content = at::readlink(upper, name)? != at::readlink(lower, name)?;
            }
            _ => {}
        }
        if !change.fields.any() {
            if self.same_links && new.nlink > 1 && new.kind == NodeKind::File {
                change.kind = ChangeKind::Same;
                return Ok(Work::Done);
            }
            return Ok(Work::Drop);
        }
        if !change.fields.content {
            change.kind = ChangeKind::Meta;
        }
        if self.hash && change.digest.is_none() {
            change.digest = digest_of(upper, name, Some(&new), self.overlay, buffers)?;
        }
        Ok(Work::Done)
    }

    /// Compares two files of the same length, hashing the new one on the way.
    fn contents(
        &self,
        change: &mut Change,
        upper: &Arc<OwnedFd>,
        lower: &Arc<OwnedFd>,
        name: &OsStr,
        buffers: &mut Buffers,
    ) -> io::Result<()> {
        let (Some(new), fields) = (change.new, &mut change.fields) else {
            return Ok(());
        };
        let theirs = match bounded::open_at(lower, name) {
            Ok(file) => file,
            // What we may not read on the host counts as different.
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                fields.content = true;
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let ours = open_own(upper, name, new.mode)?;
        let mut hash = self.hash.then(Sha256::new);
        let mut blocks = Blocks::new(new.size);
        while let Some(at) = blocks.next(&[&ours, &theirs])? {
            let n = fill_at(&ours, room(&mut buffers.one), at)?;
            if let Some(hash) = &mut hash {
                blocks.update(hash, at, &buffers.one[..n]);
            }
            if !fields.content {
                let m = fill_at(&theirs, room(&mut buffers.two), at)?;
                fields.content = buffers.one[..n] != buffers.two[..m];
            }
            if n == 0 || fields.content && hash.is_none() {
                break;
            }
        }
        if fields.content && hash.is_none() {
            return Ok(());
        }
        let own = file_attributes(&ours, (upper, name), self.overlay, new.mode)?;
        if !fields.content {
            let theirs = open_attributes(&theirs, false)?;
            fields.attributes = own != theirs;
        }
        change.digest = hash.map(|hash| with_attributes(hash, &own));
        Ok(())
    }
}

/// Two buffers, used over and over.
#[derive(Default)]
pub(crate) struct Buffers {
    one: Vec<u8>,
    two: Vec<u8>,
}

/// A buffer, made when it is first needed: most results have no file to compare.
fn room(buffer: &mut Vec<u8>) -> &mut [u8] {
    if buffer.is_empty() {
        buffer.resize(BUFFER, 0);
    }
    buffer
}

/// From this length on only those parts of a file are read that hold something. What a file says that
/// it has costs nothing, and could keep us busy for days.
const LONG: u64 = 256 << 20;

/// The blocks of a file that count, in order.
struct Blocks {
    size: u64,
    next: u64,
}

impl Blocks {
    fn new(size: u64) -> Blocks {
        Blocks { size, next: 0 }
    }

    fn is_long(&self) -> bool {
        self.size >= LONG
    }

    /// Where the next one begins, in which one of these files of the same length has data.
    fn next(&mut self, files: &[&File]) -> io::Result<Option<u64>> {
        let mut at = Some(self.next);
        if self.is_long() {
            let mut starts = Vec::new();
            for file in files {
                starts.extend(reflink::next_data(file, self.next)?.map(|(start, _)| start));
            }
            let block = |start: u64| (start - start % BUFFER as u64).max(self.next);
            at = starts.into_iter().min().map(block);
        }
        let at = at.filter(|at| *at < self.size);
        self.next = at.map_or(self.size, |at| at.saturating_add(BUFFER as u64));
        Ok(at)
    }

    /// Adds a block to a hash. Of a long file, one of zeroes is as good as none, wherever they come from.
    fn update(&self, hash: &mut Sha256, at: u64, block: &[u8]) {
        if self.is_long() {
            if block.iter().all(|byte| *byte == 0) {
                return;
            }
            hash.update(at.to_le_bytes());
        }
        hash.update(block);
    }
}

/// Reads from a place until the buffer is full or the file ends.
fn fill_at(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}

/// Whether a host name has other attributes than `own`, as far as the world could see them.
pub(crate) fn attributes_differ(
    dir: &Arc<OwnedFd>,
    name: &OsStr,
    own: &Attributes,
) -> io::Result<bool> {
    match attributes(dir, name, false) {
        Ok((theirs, _)) => Ok(*own != theirs),
        // The world could not read them either, so it has not changed them.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Err(e) => Err(e),
    }
}

/// Whether a name of the world's and a name of the host's now hold the same: what an apply
/// puts in place, compared again when it is to be undone.
pub(crate) fn same_leaf(
    upper: (&Arc<OwnedFd>, &OsStr, &Entry),
    host: (&Arc<OwnedFd>, &OsStr, &Entry),
    buffers: &mut Buffers,
) -> io::Result<bool> {
    let (new, old) = (upper.2, host.2);
    if new.kind != old.kind {
        return Ok(false);
    }
    match new.kind {
        NodeKind::Symlink => Ok(at::readlink(upper.0, upper.1)? == at::readlink(host.0, host.1)?),
        NodeKind::File => {
            if (new.size, new.mtime, new.safe_mode()) != (old.size, old.mtime, old.mode) {
                return Ok(false);
            }
            let theirs = match bounded::open_at(host.0, host.1) {
                Ok(theirs) => theirs,
                // Its mode keeps even us out, as the world wanted; the rest agrees.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Ok(true),
                Err(e) => return Err(e),
            };
            let ours = open_own(upper.0, upper.1, new.mode)?;
            let mut blocks = Blocks::new(new.size);
            while let Some(at) = blocks.next(&[&ours, &theirs])? {
                let n = fill_at(&ours, room(&mut buffers.one), at)?;
                let m = fill_at(&theirs, room(&mut buffers.two), at)?;
                if n == 0 || buffers.one[..n] != buffers.two[..m] {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ => Ok(true),
    }
}

/// Hash of the content and attributes of a name.
pub(crate) fn digest_of(
    dir: &Arc<OwnedFd>,
    name: &OsStr,
    entry: Option<&Entry>,
    overlay: bool,
    buffers: &mut Buffers,
) -> io::Result<Option<[u8; 32]>> {
    let Some(entry) = entry else {
        return Ok(None);
    };
    let mut hash = Sha256::new();
    let own = match entry.kind {
        NodeKind::File if entry.size > 0 => {
            let file = open_own(dir, name, entry.mode)?;
            let mut blocks = Blocks::new(entry.size);
            while let Some(at) = blocks.next(&[&file])? {
                let n = fill_at(&file, room(&mut buffers.one), at)?;
                blocks.update(&mut hash, at, &buffers.one[..n]);
                if n == 0 {
                    break;
                }
            }
            file_attributes(&file, (dir, name), overlay, entry.mode)?
        }
        NodeKind::File | NodeKind::Dir => own_attributes(dir, name, overlay, entry.mode)?.0,
        NodeKind::Symlink => {
            hash.update(at::readlink(dir, name)?.as_bytes());
            Attributes::new()
        }
        _ => Attributes::new(),
    };
    Ok(Some(with_attributes(hash, &own)))
}

/// The attributes of an open file of our own; a closed mode keeps us from reading them even so.
fn file_attributes(
    file: &File,
    (dir, name): (&Arc<OwnedFd>, &OsStr),
    overlay: bool,
    mode: u32,
) -> io::Result<Attributes> {
    match open_attributes(file, overlay) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            Ok(own_attributes(dir, name, overlay, mode)?.0)
        }
        other => other,
    }
}

fn with_attributes(mut hash: Sha256, own: &Attributes) -> [u8; 32] {
    for (attribute, value) in own {
        for part in [attribute, value] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    hash.finalize().into()
}

/// Reads until the buffer is full, `left` bytes were read or the file ends. Knowing the length
/// saves the call that only says that nothing is left.
pub(crate) fn fill(file: &mut File, buffer: &mut [u8], left: u64) -> io::Result<usize> {
    let want = usize::try_from(left).map_or(buffer.len(), |n| n.min(buffer.len()));
    let mut filled = 0;
    while filled < want {
        match file.read(&mut buffer[filled..want]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}
