//! One place whose writes are held back.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::change::{Change, ChangeKind};
use crate::entry::Moment;
use substrate_text::wire;

/// How the writes of a root are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RootKind {
    /// The upper directory of an overlay over the target.
    Overlay,
    /// A copy of the target.
    Copy,
}

impl RootKind {
    /// The word used as `strategy` of a diff.
    pub fn as_str(self) -> &'static str {
        match self {
            RootKind::Overlay => "overlay",
            RootKind::Copy => "copy",
        }
    }
}

/// One place whose writes are held back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// The host path, absolute and without symlinks.
    #[serde(with = "wire")]
    pub target: PathBuf,
    /// Where the writes lie: the overlay's upper directory, or the copy.
    #[serde(with = "wire")]
    pub upper: PathBuf,
    /// The overlay's work directory.
    #[serde(with = "wire")]
    pub work: PathBuf,
    /// How they are held.
    pub kind: RootKind,
    /// Outside what the policy lets be written: shown apart, applied only when asked for.
    pub held: bool,
    /// Places below a held target that the policy lets be written all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "wire::list")]
    pub open: Vec<PathBuf>,
    /// Whether the target is a single file rather than a directory.
    #[serde(default)]
    pub single: bool,
    /// Device and inode of the target when the world started.
    pub identity: (u64, u64),
    /// When the copy was complete; what changed in it later was the world.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copied: Option<Moment>,
}

impl Root {
    /// Whether a path of the host lies outside what the policy lets be written.
    pub fn holds(&self, path: &Path) -> bool {
        self.held && !self.open.iter().any(|open| path.starts_with(open))
    }

    /// Whether a change is outside what the policy lets be written. What may be written in a place
    /// may not put something else in its place, but the host may have lost it.
    pub(crate) fn holds_change(&self, path: &Path, change: &Change) -> bool {
        let same = match change.kind {
            ChangeKind::Meta => true,
            ChangeKind::Created => change.is_dir(),
            _ => false,
        };
        self.holds(path) || self.held && !same && self.open.iter().any(|open| path == open)
    }
}
