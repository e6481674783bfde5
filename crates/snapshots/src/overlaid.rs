//! A project as an isolated world left it: the snapshot before it, and what the world changed.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use substrate_changes::change::ChangeKind;
use substrate_changes::diff::{self, Found};
use substrate_changes::pending::Pending;
use substrate_changes::root::Root;
use substrate_sys::bounded::{self, Links};

use crate::ignore::{self, EXCLUDE, Rules, Stack};
use crate::snapshot::{Limits, Taken, is_control};
use crate::store::Store;
use crate::tree::{Entry, Kind, Tree};

/// The project after a world that started from `base`, kept like a snapshot.
pub fn after(
    store: &mut Store,
    base: &Tree,
    pending: &Pending,
    limits: &Limits,
) -> io::Result<Taken> {
    let mut view = View {
        tree: base.clone(),
        limits,
        roots: &pending.meta().roots,
        ignores: HashMap::new(),
    };
    let mut over: Option<String> = None;
    let mut failed: Option<io::Error> = None;
    let stop = std::cell::Cell::new(false);
    let visited = diff::visit(pending, &mut |_| !stop.get(), &mut |found| {
        if over.is_some() || failed.is_some() {
            return;
        }
        match view.apply(store, &found) {
            Ok(None) => {}
            Ok(why) => over = why,
            Err(error) => failed = Some(error),
        }
        stop.set(over.is_some() || failed.is_some());
    });
    if let Some(error) = failed {
        return Err(error);
    }
    if let Some(why) = over {
        return Ok(Taken::Skipped(why));
    }
    visited.map_err(io::Error::other)?;
    let id = store.put_tree(&view.tree)?;
    Ok(Taken::Whole(id, Some(view.tree)))
}

struct View<'a> {
    tree: Tree,
    limits: &'a Limits,
    roots: &'a [Root],
    /// What each directory's `.gitignore` says, as the world left it.
    ignores: HashMap<PathBuf, Option<Vec<u8>>>,
}

impl View<'_> {
    /// Takes over one change; answers why the project cannot be kept, if so.
    fn apply(&mut self, store: &mut Store, found: &Found) -> io::Result<Option<String>> {
        let root = &self.roots[found.root];
        let host = diff::host_path(root, &found.change);
        let Ok(path) = host.strip_prefix(&self.tree.root).map(Path::to_owned) else {
            return Ok(None);
        };
        let own = path.as_os_str().is_empty() || in_control(&path);
        if own || host.ancestors().any(|above| self.limits.is_private(above)) {
            return Ok(None);
        }
        match self.ignored(root, &path, found.change.is_dir()) {
            Ok(false) => {}
            Ok(true) => return Ok(None),
            Err(why) => return Ok(Some(why)),
        }
        let source = match root.single {
            true => root.upper.clone(),
            false => root.upper.join(&found.change.path),
        };
        let new = match found.change.kind {
            ChangeKind::Same => return Ok(None),
            ChangeKind::Deleted => None,
            _ => Some(fs::symlink_metadata(&source)?),
        };
        let kind = match &new {
            Some(meta) if meta.is_dir() => Some(Kind::Dir),
            Some(meta) if meta.is_symlink() => {
                Some(Kind::Link(fs::read_link(&source)?.into_os_string()))
            }
            Some(meta) if meta.is_file() && meta.len() > self.limits.file => {
                let most = self.limits.file;
                let why = format!("{} has more than {most} bytes", path.display());
                return Ok(Some(why));
            }
            Some(meta) if meta.is_file() => Some(Kind::File(
                store.put_file(bounded::open(&source, Links::Refuse)?, self.limits.file)?,
            )),
            _ => None,
        };
        if kind != Some(Kind::Dir) {
            self.tree.entries.retain(|name, _| !name.starts_with(&path));
        }
        if let (Some(kind), Some(meta)) = (kind, new) {
            let mode = match kind {
                Kind::Link(_) => 0,
                _ => meta.mode() & 0o7777,
            };
            let modified = match kind {
                Kind::File(_) => (meta.mtime(), meta.mtime_nsec() as u32),
                _ => (0, 0),
            };
            let entry = Entry {
                kind,
                mode,
                modified,
            };
            self.tree.entries.insert(path, entry);
        }
        Ok(match self.tree.entries.len() > self.limits.names {
            true => Some(format!("more than {} names", self.limits.names)),
            false => None,
        })
    }

    /// Whether the project's own rules leave the name, or a directory above it, out; or why nobody
    /// can tell.
    fn ignored(&mut self, root: &Root, path: &Path, is_dir: bool) -> Result<bool, String> {
        let mut stack = Stack::default();
        let excluded = bounded::read(self.tree.root.join(EXCLUDE), Links::Follow, ignore::LIMIT);
        let excluded =
            ignore::rules(excluded).ok_or_else(|| ignore::too_long(Path::new(EXCLUDE)))?;
        stack.push(0, Rules::parse(&excluded));
        let mut above = PathBuf::new();
        let mut parts = path.components().peekable();
        while let Some(part) = parts.next() {
            let depth = above.as_os_str().len();
            let rules = self.rules_of(root, &above).as_deref();
            let rules = rules.ok_or_else(|| ignore::too_long(&above.join(".gitignore")))?;
            stack.push(depth, Rules::parse(rules));
            above.push(part);
            if stack.ignores(above.as_os_str(), parts.peek().is_some() || is_dir) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The rules of a directory; `None` when they are too long to be read.
    fn rules_of(&mut self, root: &Root, dir: &Path) -> &Option<Vec<u8>> {
        let project = &self.tree.root;
        self.ignores.entry(dir.to_owned()).or_insert_with(|| {
            let host = project.join(dir).join(".gitignore");
            let within = host.strip_prefix(&root.target);
            let written = within.ok().map(|path| root.upper.join(path));
            let file =
                match written.and_then(|path| Some((fs::symlink_metadata(&path).ok()?, path))) {
                    Some((meta, path)) if meta.is_file() => path,
                    Some(_) => return Some(Vec::new()),
                    None => host,
                };
            ignore::rules(bounded::read(file, Links::Refuse, ignore::LIMIT))
        })
    }
}

/// Whether a path lies in a directory of version control.
pub fn in_control(path: &Path) -> bool {
    path.components().any(|part| is_control(part.as_os_str()))
}
