//! What changed between two trees, in the shape that spans carry.

use substrate_trace::FsDiff;

use crate::tree::{Entry, Kind, Tree, TreeId};

/// Names that a diff lists one by one.
const LISTED: usize = 1000;

/// The changes from one tree to a later one; `after_id` names the later one.
pub fn difference(before: &Tree, after: &Tree, after_id: &TreeId) -> FsDiff {
    let mut diff = FsDiff {
        root: after.root.clone(),
        strategy: "snapshot".to_owned(),
        tree_hash: Some(after_id.clone()),
        ..FsDiff::default()
    };
    let is_dir = |entry: &Entry| entry.kind == Kind::Dir;
    let mut count = 0;
    let mut list = |names: &mut Vec<_>, path| {
        count += 1;
        if count <= LISTED {
            names.push(after.root.join(path));
        }
    };
    for (path, new) in &after.entries {
        match before.entries.get(path) {
            None if is_dir(new) => list(&mut diff.created_dirs, path),
            None => list(&mut diff.writes, path),
            Some(old) if old != new => list(&mut diff.mods, path),
            Some(_) => {}
        }
    }
    for path in before.entries.keys() {
        if !after.entries.contains_key(path) {
            list(&mut diff.deletes, path);
        }
    }
    if count > LISTED {
        diff.truncated = true;
        diff.summary = Some(format!("{count} names (truncated, see tree_hash)"));
    }
    diff
}
