//! What a project looked like around a command: where a replay starts from, and what the
//! command changed.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use substrate_broker::{Broker, project};
use substrate_changes::pending::Pending;
use substrate_compiled::paths::{self, Values};
use substrate_policy::settings::Snapshots;
use substrate_snapshots::{Limits, Store, Taken, Tree, TreeId, difference, take};
use substrate_trace::{FsDiff, SpanInfo};

use crate::session::Session;

/// Nobody feels this, before a command and after it. Code that is not optimised takes about so much longer.
const UNFELT: Duration = Duration::from_millis(if cfg!(debug_assertions) { 100 } else { 5 });
/// What somebody waits who wants snapshots of large projects.
const PATIENT: Duration = Duration::from_millis(400);

/// The project before a command.
pub struct Before {
    root: PathBuf,
    limits: Limits,
    store: Store,
    taken: Result<(TreeId, Option<Tree>), String>,
    /// The policy wants changed files to be recorded.
    files: bool,
}

impl Before {
    /// Takes a snapshot of the work tree around a directory, where there is one and the policy
    /// wants it, and notes it in the span.
    pub fn take(session: &Session, span: &mut SpanInfo) -> Option<Self> {
        let details = session.broker.last_details();
        let home = session.broker.home();
        let time = match details.trace.snapshot {
            Snapshots::Off => return None,
            Snapshots::Auto => UNFELT,
            Snapshots::Full => PATIENT,
        };
        // Only a real work tree: what a session happens to start in may be anything.
        let root = project::find(&span.cwd, Path::new("/"), &home.user)?;
        let limits = Limits {
            time,
            private: private(&session.broker, Some(&root)),
            ..Limits::default()
        };
        let mut store = Store::open(&home.path);
        let taken = snapshot(&mut store, &root, &limits);
        if let (Ok((id, _)), Some(replay)) = (&taken, &mut span.replay) {
            replay.base_tree = Some(id.clone());
        }
        Some(Self {
            root,
            limits,
            store,
            taken,
            files: details.trace.files,
        })
    }

    /// Keeps the project as an isolated world left it, and names it; it is the same tree where nothing
    /// was changed.
    pub fn after_world(mut self, pending: &Pending, changed: bool) -> Option<TreeId> {
        let (id, before) = self.taken.ok().filter(|_| self.files)?;
        if !changed {
            return Some(id);
        }
        let before = before.or_else(|| self.store.tree(&id))?;
        match substrate_snapshots::after(&mut self.store, &before, pending, &self.limits) {
            Ok(Taken::Whole(id, _)) => Some(id),
            Ok(Taken::Skipped(_)) | Err(_) => None,
        }
    }

    /// What changed since, and what a world held back beside the project.
    pub fn changes_with(self, held: Option<FsDiff>) -> Option<FsDiff> {
        let root = self.root.clone();
        let Some(mut changes) = self.changes() else {
            return held;
        };
        let take_over = |to: &mut Vec<PathBuf>, from: Vec<PathBuf>| {
            to.extend(from.into_iter().filter(|path| !path.starts_with(&root)));
        };
        let held = held.unwrap_or_default();
        take_over(&mut changes.writes, held.writes);
        take_over(&mut changes.mods, held.mods);
        take_over(&mut changes.deletes, held.deletes);
        take_over(&mut changes.created_dirs, held.created_dirs);
        Some(changes)
    }

    /// What changed since, if that is to be recorded. Without two snapshots it says why there
    /// is nothing to say.
    pub fn changes(mut self) -> Option<FsDiff> {
        if !self.files {
            return None;
        }
        let store = &mut self.store;
        let result = self.taken.and_then(|(before_id, before)| {
            let (id, after) = snapshot(store, &self.root, &self.limits)?;
            if id == before_id {
                return Ok(FsDiff {
                    root: self.root.clone(),
                    strategy: "snapshot".to_owned(),
                    tree_hash: Some(id),
                    ..FsDiff::default()
                });
            }
            let lost = || "the snapshot was removed meanwhile".to_owned();
            let before = before.or_else(|| store.tree(&before_id)).ok_or_else(lost)?;
            let after = after.or_else(|| store.tree(&id)).ok_or_else(lost)?;
            Ok(difference(&before, &after, &id))
        });
        Some(result.unwrap_or_else(|why| FsDiff {
            root: self.root,
            strategy: "skipped".to_owned(),
            summary: Some(why),
            ..FsDiff::default()
        }))
    }
}

/// Keeps snapshots within their share of the disk, now and then, when nobody waits for it any more.
pub fn keep_within_share(session: &Session) {
    // What cannot be removed is found again the next time.
    let _ = Store::open(&session.broker.home().path).shrink_now_and_then();
}

/// Globs for what no snapshot of a project may read: what the policy calls private, and what is
/// Substrate's own.
pub fn private(broker: &Broker, root: Option<&Path>) -> Vec<Vec<u8>> {
    let (details, home) = (broker.last_details(), broker.home());
    let other_homes = broker.other_homes();
    let vars = &Values {
        home: Some(home.user.as_os_str().as_bytes()),
        other_homes: &other_homes,
        project: root.map(|root| root.as_os_str().as_bytes()),
        substrate_home: Some(home.path.as_os_str().as_bytes()),
    };
    let own = home.path.as_os_str().as_bytes().to_vec();
    let ignored = details.privacy.ignore_paths.iter().flat_map(|path| {
        let path = path.strip_suffix("/**").unwrap_or(path);
        paths::expand_all(path.as_bytes(), vars).map(Cow::into_owned)
    });
    ignored.chain([own]).collect()
}

fn snapshot(
    store: &mut Store,
    root: &Path,
    limits: &Limits,
) -> Result<(TreeId, Option<Tree>), String> {
    match take(store, root, limits) {
        Ok(Taken::Whole(id, tree)) => Ok((id, tree)),
        Ok(Taken::Skipped(why)) => Err(why),
        Err(error) => Err(error.to_string()),
    }
}
