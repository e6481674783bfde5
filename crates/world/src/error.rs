//! Why there is no world, or no command in it, in words that need no backend to be understood.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use substrate_text::wire;
use substrate_trace::{Level, WorldId};
use thiserror::Error;

/// Words that are known beforehand where the error is made, and read where it came from elsewhere.
pub type Words = Cow<'static, str>;

/// What the system said, as it can be sent elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// The system's number for it, where it was the system.
    pub errno: Option<i32>,
    /// In words.
    pub text: String,
}

impl Cause {
    /// Something that is no error of the system.
    pub fn new(error: impl fmt::Display) -> Cause {
        Cause {
            errno: None,
            text: error.to_string(),
        }
    }

    /// What kind of error of the system it is.
    pub fn kind(&self) -> io::ErrorKind {
        let kind = |errno| io::Error::from_raw_os_error(errno).kind();
        self.errno.map_or(io::ErrorKind::Other, kind)
    }
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Cause {
        Cause {
            errno: error.raw_os_error(),
            text: error.to_string(),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Cause {}

impl WorldError {
    /// That something failed on this side: `cannot {what}: {why}`.
    pub fn own(what: &'static str) -> impl Fn(io::Error) -> WorldError + Copy {
        move |error| WorldError::Own(what.into(), error.into())
    }
}

/// Why a world or a command in it did not come about.
#[derive(Debug, Clone, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum WorldError {
    /// Namespaces are not to be had.
    #[error("cannot make namespaces: {0}; `substrate world doctor` tells why and what to do")]
    Namespaces(#[source] Cause),
    /// The id maps were refused.
    #[error("cannot write the id maps of the world: {0}; `substrate world doctor` tells more")]
    Maps(#[source] Cause),
    /// A step inside the world failed.
    #[error("making the world: cannot {doing}{}: {source}", named(path))]
    Step {
        /// What was being done.
        doing: Words,
        /// With which path.
        #[serde(with = "wire::optional")]
        path: Option<PathBuf>,
        /// Why it failed.
        source: Cause,
    },
    /// The network of the world could not be prepared.
    #[error("making the world's network: {0}")]
    Network(String),
    /// The first process of the world ended without a word.
    #[error("the world ended while it was being made; memory or process limits may be too low")]
    Died,
    /// Something on this side failed.
    #[error("cannot {0}: {1}")]
    Own(Words, #[source] Cause),
    /// What a world left, or the place for it.
    #[error(transparent)]
    Held(Cause),
    /// A copy that stands in for an overlay.
    #[error("cannot copy {}, which no overlay can cover ({reason}): {source}", path.display())]
    Copy {
        /// What was copied.
        #[serde(with = "wire")]
        path: PathBuf,
        /// Why no overlay serves.
        reason: String,
        /// Why it failed.
        source: Cause,
    },
    /// What an earlier world left cannot be put in place as it was.
    #[error("what was written below {} cannot be opened again: {reason}", path.display())]
    Again {
        /// The place it was written to.
        #[serde(with = "wire")]
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A control group.
    #[error("cannot limit the world through {}: {source}", path.display())]
    Group {
        /// The file or directory.
        #[serde(with = "wire")]
        path: PathBuf,
        /// Why it failed.
        source: Cause,
    },
    /// The policy asks for more than this machine gives.
    #[error(
        "the policy asks for a world, and this machine gives level `{level}`: {reason}; \
         `substrate world doctor` tells what to do"
    )]
    TooWeak {
        /// What it gives.
        level: Level,
        /// Why no more.
        reason: String,
    },
    /// A setting of the policy cannot be held as it says.
    #[error("the policy's `{setting}` cannot be held: {} {reason}", path.display())]
    NotHeld {
        /// The setting.
        setting: Words,
        /// The path that it is about.
        #[serde(with = "wire")]
        path: PathBuf,
        /// Why it cannot, and what to do.
        reason: String,
    },
    /// Whoever asked for the command does not want it to begin.
    #[error("the command was called off before it began")]
    CalledOff,
    /// A standard stream would lead out of the world.
    #[error("descriptor {0} is a directory, which would lead out of the world")]
    OpenDirectory(i32),
    /// A standard stream could be sent out of the world with.
    #[error(
        "descriptor {0} is a unix datagram socket, by which sockets of the host could be reached"
    )]
    OpenDatagrams(i32),
    /// No such program.
    #[error("{}: not found", .0.display())]
    NotFound(#[serde(with = "wire")] PathBuf),
    /// The command did not start.
    #[error("cannot start {} in the world ({doing}): {source}", program.display())]
    Start {
        /// The program.
        #[serde(with = "wire")]
        program: PathBuf,
        /// How far it came.
        doing: Words,
        /// Why not further.
        source: Cause,
    },
    /// The working directory is not there in the world.
    #[error("{}: {source} in the world; `fs.read`, `fs.hide` or a private /tmp may be why", path.display())]
    Cwd {
        /// The directory.
        #[serde(with = "wire")]
        path: PathBuf,
        /// Why it cannot be entered.
        source: Cause,
    },
    /// Its changes are not complete yet.
    #[error("the world {0} still runs; its changes are known when it has ended")]
    Running(WorldId),
    /// The world is gone.
    #[error("the world {0} is not there any more")]
    Gone(WorldId),
}

fn named(path: &Option<PathBuf>) -> String {
    path.as_ref()
        .map_or_else(String::new, |path| format!(" {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_the_same_after_a_journey() {
        let error = WorldError::Step {
            doing: "mount".into(),
            path: Some("/proc".into()),
            source: io::Error::from_raw_os_error(1).into(),
        };
        let sent = serde_json::to_string(&error).unwrap();
        let read: WorldError = serde_json::from_str(&sent).unwrap();
        assert_eq!(read.to_string(), error.to_string());
        let WorldError::Step { source, .. } = read else {
            panic!("{read}");
        };
        assert_eq!(source.kind(), io::ErrorKind::PermissionDenied);
    }
}
