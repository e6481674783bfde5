//! Why a result was not applied, or not undone.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::change::Conflict;
use crate::diff::DiffError;
use crate::pending::PendingError;

/// Why a result was not applied, or not undone.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The result could not be compared with the host.
    #[error(transparent)]
    Diff(#[from] DiffError),
    /// The result itself is in trouble.
    #[error(transparent)]
    Pending(#[from] PendingError),
    /// The command has not finished.
    #[error("the command still runs; wait for it or stop it")]
    Running,
    /// The result was thrown away.
    #[error("this result was discarded")]
    Discarded,
    /// An earlier apply or undo was interrupted.
    #[error("an earlier {0} of this result was interrupted; finish it first, or undo it")]
    Unfinished(&'static str),
    /// There is nothing to go back from.
    #[error("nothing of this result was applied")]
    NotApplied,
    /// Nothing at or below a chosen path changed.
    #[error("the world changed nothing at {}", .0.display())]
    NotChanged(PathBuf),
    /// The directory that the world worked on is no longer there.
    #[error("{} is not the directory any more that the world worked on", .0.display())]
    RootReplaced(PathBuf),
    /// The host changed the same names.
    #[error("{} of the names changed on the host too; nothing was applied", .0.len())]
    Conflicts(Vec<(PathBuf, Conflict)>),
    /// New content could not be laid ready.
    #[error("cannot prepare {}: {source}; nothing on the host was changed", path.display())]
    Staging {
        /// The name that it was for.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A step failed half-way through.
    #[error(
        "cannot {step} {}: {source}; what was done so far stays: finish the apply or undo it",
        path.display()
    )]
    Step {
        /// What was being done.
        step: &'static str,
        /// To which host path.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The host changed a name between the check and the step.
    #[error(
        "{} changed on the host just now; finish the apply or undo it",
        .0.display()
    )]
    HostMoved(PathBuf),
    /// The host changed names since they were applied.
    #[error("{} of the names changed on the host since they were applied; nothing was undone", .0.len())]
    UndoConflicts(Vec<PathBuf>),
    /// The watcher ended it there, as a crash would.
    #[error("ended between two steps")]
    Interrupted,
}
