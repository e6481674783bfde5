//! Running a recorded command again and comparing what happens with what happened.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use substrate_changes::diff::{self, DiffError};
use substrate_changes::gc;
use substrate_changes::pending::{Pending, PendingError};
use substrate_policy::terms::WorldSpec;
use substrate_trace::{Key, Redactor, Stream, Via};
use substrate_world::backend::{ExecJob, ExecPlace, ExecResult, Stdio, WorldBackend};
use substrate_world::error::WorldError;
use thiserror::Error;

use crate::outcome::Outcome;
use crate::past::Past;
use crate::stage::{self, Stage};
use substrate_snapshots::{
    Capture, Limits, RestoreError, SnapshotError, Store, Taken, Tree, TreeId, difference, restore,
    take,
};

/// Why running it again failed.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The files of then could not be put in place.
    #[error("cannot lay the snapshot over {}: {source}", path.display())]
    Stage {
        /// The project.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of then could not be put back.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// The project cannot be read.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The project is too large.
    #[error("the project cannot be compared: {0}")]
    TooLarge(String),
    /// A snapshot went away while it was used.
    #[error("the snapshot {0} was removed meanwhile")]
    Lost(TreeId),
    /// The world failed.
    #[error(transparent)]
    World(#[from] WorldError),
    /// Its result cannot be found.
    #[error(transparent)]
    Pending(#[from] PendingError),
    /// Its result cannot be read.
    #[error(transparent)]
    Diff(#[from] DiffError),
    /// What it left cannot be kept.
    #[error("cannot keep what it left for the comparison: {0}")]
    After(#[source] io::Error),
    /// A pipe could not be made.
    #[error("cannot collect the output: {0}")]
    Output(#[source] io::Error),
}

/// How one span is run.
pub struct Run<'a> {
    /// Makes its world.
    pub backend: &'a dyn WorldBackend,
    /// The terms of today's policy.
    pub spec: &'a WorldSpec,
    /// Paths that snapshots must not read.
    pub private: Vec<Vec<u8>>,
    /// Its environment.
    pub env: Vec<(OsString, OsString)>,
    /// What it reads; nothing otherwise.
    pub stdin: Option<File>,
    /// It goes on from what the one before left.
    pub chained: bool,
    /// The result stays.
    pub keep: bool,
}

/// What a span starts from.
#[derive(Default)]
struct Ground {
    /// The project, where there is one.
    base: Option<(TreeId, Tree)>,
    /// How many names were put back.
    restored: u64,
    /// It is what an earlier span left.
    went_on: bool,
}

/// Runs spans again.
pub struct Again<'a> {
    home: &'a Path,
    key: &'a Key,
    redactor: &'a Redactor,
    stages: Vec<Stage>,
    /// Results that stages stand on.
    held: Vec<Pending>,
}

impl<'a> Again<'a> {
    /// For spans of a home.
    pub fn new(home: &'a Path, key: &'a Key, redactor: &'a Redactor) -> Self {
        Self {
            home,
            key,
            redactor,
            stages: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Runs it in a fresh world on the files of then, and compares. The process has mounts of
    /// its own afterwards.
    pub fn run(&mut self, past: &Past, run: Run<'_>) -> Result<Outcome, ReplayError> {
        let mut store = Store::open(self.home);
        let limits = Limits {
            time: Duration::from_secs(120),
            private: run.private.clone(),
            ..Limits::default()
        };
        if !run.chained {
            self.clear();
        }
        let Ground {
            base,
            restored,
            went_on,
        } = self.prepare(past, &run, &mut store, &limits)?;
        let started = Instant::now();
        let (_spec, keep, chained) = (run.spec, run.keep, run.chained);
        let merged = past
            .span
            .output
            .as_ref()
            .is_some_and(|output| output.merged);
        let (result, output) = self.exec(past, run, merged)?;
        let mut outcome = Outcome {
            differences: Vec::new(),
            warnings: Vec::new(),
            enforced: result.enforced.clone(),
            scopes: result.scopes_used.clone(),
            restored,
            status: result.status,
            duration: started.elapsed(),
            output,
            merged,
            trees: None,
            fs_diff: None,
            kept: None,
            compared: Vec::new(),
        };
        if went_on && restored > 0 {
            let text = format!("{restored} names were changed by something else before it");
            outcome.warn("files", text);
        }
        let terminal = past.context.stdin.as_ref().map(|stdin| stdin.kind.as_str()) == Some("tty");
        outcome.compare_end(&past.span, terminal);
        outcome.compare_output(&past.span, self.redactor);
        outcome.compare_scopes(&past.span);
        let mut pending = match &result.held {
            Some(held) => Some(Pending::of(held)?),
            None => None,
        };
        compare_files(
            past,
            base.as_ref(),
            pending.as_ref(),
            &mut outcome,
            &mut store,
            &limits,
            self.redactor,
        )?;
        if let Some(pending) = pending.take() {
            if keep {
                outcome.kept = Some(result.world.to_string());
            }
            self.carry_on(pending, chained, keep, &mut outcome)?;
        }
        Ok(outcome)
    }

    /// Puts the files of then in place.
    fn prepare(
        &mut self,
        past: &Past,
        run: &Run<'_>,
        store: &mut Store,
        limits: &Limits,
    ) -> Result<Ground, ReplayError> {
        let Some(root) = &past.root else {
            return Ok(Ground::default());
        };
        let known = self.stages.iter().any(|stage| stage.root == *root);
        if !known && (!past.here || run.chained) {
            let stage = Stage::cover(self.home, root).map_err(|source| ReplayError::Stage {
                path: root.clone(),
                source,
            })?;
            self.stages.push(stage);
        }
        let (now_id, now) = snapshot(store, root, limits)?;
        match (&past.base, &past.context.base_tree) {
            (Some(base), Some(id)) if !past.here => {
                let restored = restore(store, &now, base, root)?;
                Ok(Ground {
                    base: Some((id.clone(), base.clone())),
                    restored,
                    went_on: known,
                })
            }
            _ => Ok(Ground {
                base: Some((now_id, now)),
                restored: 0,
                went_on: known,
            }),
        }
    }

    fn exec(
        &self,
        past: &Past,
        run: Run<'_>,
        merged: bool,
    ) -> Result<(ExecResult, [Stream; 2]), ReplayError> {
        let failed = ReplayError::Output;
        let (out, out_end) = io::pipe().map_err(failed)?;
        let (err, err_end) = match merged {
            true => (None, OwnedFd::from(out_end.try_clone().map_err(failed)?)),
            false => {
                let (err, end) = io::pipe().map_err(failed)?;
                (Some(err), end.into())
            }
        };
        let stdin = match run.stdin {
            Some(file) => file,
            None => File::open("/dev/null").map_err(failed)?,
        };
        let request = past.request(run.env);
        let streams = Stdio::Given([stdin.into(), out_end.into(), err_end]).into();
        let collect = |from: io::PipeReader| -> JoinHandle<Capture> {
            std::thread::spawn(move || {
                let mut capture = Capture::new(true);
                // What could be read until then is what there is.
                let _ = capture.feed_from(from);
                capture
            })
        };
        let (out, err) = (collect(out), err.map(collect));
        let job = ExecJob {
            request: &request,
            streams: &streams,
        };
        let result = run.backend.exec(ExecPlace::fresh(run.spec), job);
        // The ends that were lent to the world must be closed, or nobody sees the end.
        drop(streams);
        let output = [Some(out), err].map(|thread| {
            let capture = thread.and_then(|thread| thread.join().ok());
            capture.unwrap_or_default().stream(self.key, Via::Pipe)
        });
        Ok((result?, output))
    }

    /// What a span left stays until the next one has gone on from it, or goes.
    fn carry_on(
        &mut self,
        mut pending: Pending,
        chained: bool,
        keep: bool,
        outcome: &mut Outcome,
    ) -> Result<(), ReplayError> {
        if !chained {
            if !keep && let Err(error) = gc::discard(&mut pending) {
                outcome.warn("world", error.to_string());
            }
            return Ok(());
        }
        for stage in &mut self.stages {
            let roots = &pending.meta().roots;
            if let Some(root) = roots.iter().find(|root| root.target == stage.root) {
                stage
                    .push(&root.upper)
                    .map_err(|source| ReplayError::Stage {
                        path: stage.root.clone(),
                        source,
                    })?;
            }
        }
        if !keep {
            self.held.push(pending);
        }
        Ok(())
    }

    /// Takes away what was put over projects, and the results it stood on.
    fn clear(&mut self) {
        self.stages.clear();
        for mut pending in self.held.drain(..) {
            // What cannot be removed is found by `world gc`.
            let _ = gc::discard(&mut pending);
        }
    }

    /// Prepares for several spans: what this needs must be done while there is one thread.
    pub fn several(&self) -> io::Result<()> {
        stage::own_mounts()
    }
}

impl Drop for Again<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

fn snapshot(
    store: &mut Store,
    root: &Path,
    limits: &Limits,
) -> Result<(TreeId, Tree), ReplayError> {
    match take(store, root, limits)? {
        Taken::Whole(id, tree) => match tree.or_else(|| store.tree(&id)) {
            Some(tree) => Ok((id, tree)),
            None => Err(ReplayError::Lost(id)),
        },
        Taken::Skipped(why) => Err(ReplayError::TooLarge(why)),
    }
}

fn compare_files(
    past: &Past,
    base: Option<&(TreeId, Tree)>,
    pending: Option<&Pending>,
    outcome: &mut Outcome,
    store: &mut Store,
    limits: &Limits,
    redactor: &Redactor,
) -> Result<(), ReplayError> {
    let changed = match pending {
        Some(pending) => Some(diff::settle(pending, true, &mut |_| true)?),
        None => None,
    };
    let mut left = None;
    if let Some((base_id, base)) = base {
        let (id, tree) = match pending {
            Some(pending) => match substrate_snapshots::after(store, base, pending, limits) {
                Ok(Taken::Whole(id, tree)) => match tree.or_else(|| store.tree(&id)) {
                    Some(tree) => (id, tree),
                    None => return Err(ReplayError::Lost(id)),
                },
                Ok(Taken::Skipped(why)) => return Err(ReplayError::TooLarge(why)),
                Err(error) => return Err(ReplayError::After(error)),
            },
            None => (base_id.clone(), base.clone()),
        };
        outcome.fs_diff = Some(difference(base, &tree, &id));
        outcome.trees = Some((base_id.clone(), id));
        left = Some(tree);
    } else {
        outcome.fs_diff = changed.clone();
    }
    let Some(then) = &past.span.fs_diff else {
        outcome.warn(
            "files",
            "changed files were not recorded, so they are not compared",
        );
        return Ok(());
    };
    if then.strategy == "skipped" {
        let why = then.summary.as_deref().unwrap_or("for an unknown reason");
        let text = format!("changed files were not recorded ({why}), so they are not compared");
        outcome.warn("files", text);
        return Ok(());
    }
    let project = match (&past.after, &left) {
        (Some(then), Some(now)) => {
            let before = [past.base.as_ref(), base.map(|(_, base)| base)];
            outcome.compares("files");
            outcome.compare_trees(store, before, [then, now], redactor);
            Some(then.root.as_path())
        }
        _ => None,
    };
    let changed = changed.unwrap_or_default();
    match (then.strategy.as_str(), project) {
        ("overlay" | "copy" | "overlay+copy", known) => {
            outcome.compares("files");
            outcome.compare_diffs(then, &changed, known);
        }
        (_, Some(_)) => {}
        (strategy, None) => outcome.warn(
            "files",
            format!("the files after it are not kept ('{strategy}'), so they are not compared"),
        ),
    }
    Ok(())
}
