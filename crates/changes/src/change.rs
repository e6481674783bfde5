//! One difference between what the host has and what a world left.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::entry::Entry;

/// Why two trees could not be compared.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WalkError {
    /// A step failed on one name.
    #[error("cannot {step} {}: {source}", path.display())]
    Io {
        /// What was being done.
        step: &'static str,
        /// Where.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The overlay was mounted with options that worlds never use.
    #[error(
        "{} was written by an overlay mounted with {option}; its result can only be discarded",
        path.display()
    )]
    Foreign {
        /// The upper name that shows it.
        path: PathBuf,
        /// The option.
        option: &'static str,
    },
}

/// What happened to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// It is new.
    Created,
    /// Its content changed.
    Modified,
    /// Only its mode, owner, times or attributes changed.
    Meta,
    /// It became something else, such as a file that was a directory.
    TypeChanged,
    /// It is gone.
    Deleted,
    /// Nothing, but it shares its inode with a name that did change.
    Same,
}

impl ChangeKind {
    /// The word used in JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            ChangeKind::Created => "created",
            ChangeKind::Modified => "modified",
            ChangeKind::Meta => "meta",
            ChangeKind::TypeChanged => "type_changed",
            ChangeKind::Deleted => "deleted",
            ChangeKind::Same => "same",
        }
    }
}

/// What differs between the old and the new state of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fields {
    /// The content of a file, or where a symlink points to.
    pub content: bool,
    /// The permission bits.
    pub mode: bool,
    /// User or group.
    pub owner: bool,
    /// The time of the last change of the content.
    pub times: bool,
    /// User attributes or access lists; not looked at where the content differs.
    pub attributes: bool,
}

impl Fields {
    pub(crate) fn any(self) -> bool {
        self.content || self.mode || self.owner || self.times || self.attributes
    }
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The name, relative to its root; empty for the root itself.
    pub path: PathBuf,
    /// What happened.
    pub kind: ChangeKind,
    /// What the host has.
    pub old: Option<Entry>,
    /// What the world left.
    pub new: Option<Entry>,
    /// What differs, where both exist.
    pub fields: Fields,
    /// Hash of the new content and attributes, where hashes were asked for.
    pub digest: Option<[u8; 32]>,
}

impl Change {
    /// Whether it is about a directory, the new one where both exist.
    pub fn is_dir(&self) -> bool {
        self.new.or(self.old).is_some_and(|e| e.is_dir())
    }
}

/// Whether the world gave a name to somebody else. An ordinary user's copies are all his own,
/// whoever the originals belong to, and nobody in a world can give them away.
pub(crate) fn owner_differs(new: &Entry, old: &Entry, copier: Option<(u32, u32)>) -> bool {
    let own = copier.is_some_and(|copier| copier.0 != 0 && copier == (new.uid, new.gid));
    !own && (new.uid, new.gid) != (old.uid, old.gid)
}

/// Why a change cannot simply be put on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Conflict {
    /// The host changed the same name while the world ran.
    ChangedMeanwhile,
    /// The host changed the same name after the world had finished.
    ChangedSince,
    /// The name is taken on the host by something that was not there.
    AppearedSince,
    /// The name is gone on the host.
    VanishedSince,
    /// The directory it belongs into is gone on the host.
    ParentGone,
    /// Another file system is mounted there, which the world did not see.
    OtherMount,
}

impl Conflict {
    /// The reason in a few words.
    pub fn as_str(self) -> &'static str {
        match self {
            Conflict::ChangedMeanwhile => "changed on the host while the world ran",
            Conflict::ChangedSince => "changed on the host since",
            Conflict::AppearedSince => "appeared on the host since",
            Conflict::VanishedSince => "vanished on the host since",
            Conflict::ParentGone => "its directory is gone on the host",
            Conflict::OtherMount => "another file system is mounted there",
        }
    }
}
