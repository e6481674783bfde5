//! Where the writes to held places go: an overlay, whose copy-up holds what is written, and a copy of the whole where no overlay can serve.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::id_maps::MapsBy;
use crate::layout::{Layout, What};
use crate::mountinfo::{self, Mount};
use crate::steps::HeldAs;
use substrate_changes::copy;
use substrate_changes::pending::Pending;
use substrate_changes::root::{Root, RootKind};
use substrate_world::error::{Cause, WorldError};

/// How many entries are looked at for owners that a user namespace cannot express.
const LOOKED_AT: usize = 4096;
/// More than this is not copied for one command.
const MOST_COPIED: u64 = 500_000;

/// Gives every held place somewhere to write to. One overlay serves what lies below a place that is
/// held anyway: making and removing them is most of what a short command costs. Places that
/// `no_overlay` names, with the reason, are copied; what is apart from the policy's roots is then
/// left read-only instead.
pub fn hold(
    layout: &mut Layout,
    pending: &mut Pending,
    mounts: &[Mount],
    maps: MapsBy,
    no_overlay: &BTreeMap<PathBuf, String>,
) -> Result<BTreeMap<PathBuf, HeldAs>, WorldError> {
    let mut held = BTreeMap::new();
    let places: Vec<(PathBuf, bool)> = layout
        .places
        .iter()
        .filter_map(|(path, what)| match what {
            What::Held { apart } => Some((path.clone(), *apart)),
            _ => None,
        })
        .collect();
    let earlier = pending.meta().roots.clone();
    reject_lost(layout, &earlier)?;
    // Overlays on what is apart from the policy's roots, by their numbers.
    let mut around: Vec<(PathBuf, usize)> = Vec::new();
    for (path, apart) in places {
        if let Some(root) = earlier.iter().find(|root| root.open.contains(&path)) {
            fix(layout, &root.target, &path);
            continue;
        }
        let reason = no_overlay
            .get(&path)
            .cloned()
            .or_else(|| unfit(&path, apart, mounts, maps));
        if let Some(root) = earlier.iter().find(|root| root.target == path) {
            let again = open_again(pending, root, reason)?;
            if let HeldAs::Copy(copy) = &again {
                forget_uncopied(layout, &path, copy);
            }
            held.insert(path, again);
            continue;
        }
        // A diff is named by the place that the command works in, which stays a root of its own.
        let works_here = pending.meta().cwd.starts_with(&path);
        let outer = lies_in(layout, &path);
        let outer = around
            .iter()
            .find(|(place, _)| Some(place) == outer.as_ref());
        match (reason, outer) {
            (None, Some((outer, number))) if !apart && !works_here => {
                fix(layout, outer, &path);
                pending.open_below(*number, path);
            }
            (None, _) => {
                let paths = pending.add_root(&path, RootKind::Overlay, apart)?;
                if apart {
                    around.push((path.clone(), paths.index));
                }
                let (upper, work) = (paths.upper, paths.work);
                held.insert(path, HeldAs::Overlay { upper, work });
            }
            (Some(reason), _) if apart => {
                layout.leave_read_only(&path);
                layout
                    .notes
                    .push(format!("{} is read-only: {reason}", path.display()));
            }
            (Some(reason), _) => {
                let copy = copy_whole(pending, &path, &reason)?;
                layout
                    .notes
                    .push(format!("{} is a copy: {reason}", path.display()));
                forget_uncopied(layout, &path, &copy);
                held.insert(path, HeldAs::Copy(copy));
            }
        }
    }
    Ok(held)
}

/// The nearest place above a path; what is only fixed there is none.
fn lies_in(layout: &Layout, path: &Path) -> Option<PathBuf> {
    let mut above = path.ancestors().skip(1);
    let place = above.find(|dir| {
        let what = layout.places.get(*dir);
        what.is_some_and(|what| *what != What::Fixed)
    });
    place.map(Path::to_owned)
}

/// Fixes a place inside the overlay around it, with all directories between the two: one of them
/// could otherwise be moved away, and another put where it was.
fn fix(layout: &mut Layout, outer: &Path, place: &Path) {
    layout.places.insert(place.to_owned(), What::Fixed);
    for dir in place.ancestors().skip(1).take_while(|dir| *dir != outer) {
        layout.places.entry(dir.to_owned()).or_insert(What::Fixed);
    }
}

/// What an earlier world wrote must be seen where it was written, or not at all, and what was
/// inside what may be written must be so today.
fn reject_lost(layout: &Layout, earlier: &[Root]) -> Result<(), WorldError> {
    let held = |path: &Path| match layout.places.get(path) {
        Some(What::Held { apart }) => Some(*apart),
        _ => None,
    };
    let lost = earlier.iter().find_map(|root| {
        let open = root.open.iter().find(|open| held(open) != Some(false));
        let target = Some(&root.target).filter(|target| held(target).is_none());
        target.or(open)
    });
    match lost {
        None => Ok(()),
        Some(path) => Err(WorldError::Again {
            path: path.clone(),
            reason: "today's policy lays that place out in another way".to_owned(),
        }),
    }
}

/// Puts what an earlier world wrote back over the place it was written to.
fn open_again(
    pending: &Pending,
    root: &Root,
    no_overlay: Option<String>,
) -> Result<HeldAs, WorldError> {
    let failed = |reason: String| WorldError::Again {
        path: root.target.clone(),
        reason,
    };
    let now = fs::symlink_metadata(&root.target).map_err(|error| failed(error.to_string()))?;
    if (now.dev(), now.ino()) != root.identity {
        return Err(failed(
            "it is not the same directory any more that the world worked on".to_owned(),
        ));
    }
    match (root.kind, no_overlay) {
        (RootKind::Copy, _) => Ok(HeldAs::Copy(root.upper.clone())),
        (RootKind::Overlay, Some(reason)) => Err(failed(reason)),
        (RootKind::Overlay, None) => {
            pending.renew_work(root)?;
            Ok(HeldAs::Overlay {
                upper: root.upper.clone(),
                work: root.work.clone(),
            })
        }
    }
}

/// Sockets and devices are not copied; a place for one has nothing to be mounted on.
fn forget_uncopied(layout: &mut Layout, path: &Path, copy: &Path) {
    layout.places.retain(|place, _| {
        place == path
            || place
                .strip_prefix(path)
                .map_or(true, |below| fs::symlink_metadata(copy.join(below)).is_ok())
    });
}

/// Copies a place so that a world can write to it.
pub fn copy_whole(pending: &mut Pending, path: &Path, reason: &str) -> Result<PathBuf, WorldError> {
    let paths = pending.add_root(path, RootKind::Copy, false)?;
    if paths.upper.starts_with(path) {
        return Err(WorldError::Copy {
            path: path.to_owned(),
            reason: reason.to_owned(),
            source: Cause::new("it holds Substrate's own files, among them this copy"),
        });
    }
    let mut progress = |count: u64| {
        if count > MOST_COPIED {
            return Err(io::Error::other(format!(
                "it has more than {MOST_COPIED} entries"
            )));
        }
        Ok(())
    };
    copy::clone_tree(path, &paths.upper, &mut progress).map_err(|source| WorldError::Copy {
        path: path.to_owned(),
        reason: reason.to_owned(),
        source: source.into(),
    })?;
    pending.mark_copied(paths.index)?;
    Ok(paths.upper)
}

/// Why an overlay on this place would fail or, worse, fail later.
fn unfit(path: &Path, apart: bool, mounts: &[Mount], maps: MapsBy) -> Option<String> {
    if !path.is_dir() {
        return Some("an overlay covers directories only".to_owned());
    }
    if let Some(mount) = mountinfo::below(mounts, path) {
        let at = mount.at.display();
        return Some(format!("{at} is mounted below it"));
    }
    match maps {
        MapsBy::Owner => None,
        MapsBy::World(user, group) => {
            // The whole of `$HOME` is too much to look at; a file there that cannot be copied
            // up fails by itself.
            let most = if apart { 1 } else { LOOKED_AT };
            foreign(path, user, group, most)
                .map(|path| format!("{} belongs to somebody else", path.display()))
        }
    }
}

/// The first path of a tree, searched breadth-first, whose owner or group is not this one.
fn foreign(root: &Path, user: u32, group: u32, most: usize) -> Option<PathBuf> {
    let mut queue = VecDeque::from([root.to_owned()]);
    let mut looked = 0;
    while let Some(path) = queue.pop_front() {
        looked += 1;
        if looked > most {
            return None;
        }
        let Ok(meta) = fs::symlink_metadata(&path) else {
            continue;
        };
        if meta.uid() != user || meta.gid() != group {
            return Some(path);
        }
        if meta.is_dir()
            && let Ok(entries) = fs::read_dir(&path)
        {
            let room = (most - looked).saturating_sub(queue.len());
            queue.extend(entries.flatten().take(room).map(|entry| entry.path()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use substrate_changes::pending::{NewPending, make_ready};

    use super::*;

    #[test]
    fn a_copy_finds_nothing_in_its_way() {
        let (home, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(target.path().join("file"), b"x").unwrap();
        fs::create_dir(home.path().join("worlds")).unwrap();
        make_ready(home.path()).unwrap();
        let new = NewPending {
            world_id: "wld_1".to_owned(),
            span_id: "spn_1".to_owned(),
            policy_id: "default".to_owned(),
            cwd: "/".into(),
            cmd: "true".into(),
        };
        let mut pending = Pending::create(home.path(), new).unwrap();
        let copy = copy_whole(&mut pending, target.path(), "a test").unwrap();
        assert_eq!(fs::read(copy.join("file")).unwrap(), b"x");
    }
}
