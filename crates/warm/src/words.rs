//! What a keeper of worlds and a borrower say to each other: one JSON text a message, descriptors beside it.

use serde::{Deserialize, Serialize};
use substrate_broker::approvals::Approved;
use substrate_executor::front::{Given, Kind};
use substrate_executor::line::Line;
use substrate_trace::{Enforced, WorldId};
use substrate_world::backend::{ExecRequest, Used};
use substrate_world::error::WorldError;

use crate::terms::Terms;

/// The version of these words.
pub(crate) const VERSION: u32 = 1;

/// From a borrower.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToKeeper {
    /// Runs a command in a world on these terms. Its descriptors come along.
    Borrow(Box<Borrow>),
    /// Sends a signal to it.
    Signal(i32),
    /// Whether a pattern covers what was asked about.
    Fits(usize, String),
    /// What a person answered.
    Answer(Given),
    /// It has ended.
    Ended,
}

/// A command for a kept world.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Borrow {
    /// [`VERSION`].
    pub v: u32,
    pub terms: Terms,
    pub request: ExecRequest,
    pub line: Line,
    /// The numbers of the descriptors that come along.
    pub numbers: Vec<i32>,
    /// A terminal of the world for the other standard streams, of this size.
    pub terminal: Option<(u16, u16)>,
    /// A person is there who could be asked.
    pub attended: bool,
}

/// From the keeper.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToBorrower {
    /// There is no world for this, for a reason that says nothing about the command.
    Cold(String),
    /// The command is not what runs: it could not be started.
    NotStarted(WorldError),
    /// It runs. Where its news come from, and the master of its terminal if it has one, come along.
    Started(Started),
    /// Something that a person should know.
    Say(Kind, String),
    /// A program start needs a person's word.
    Ask(Asked),
    /// The answer to [`ToKeeper::Fits`].
    Fit(Result<(), String>),
    /// What the world used meanwhile.
    Used(Used),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Started {
    pub pid: i32,
    pub world: WorldId,
    pub enforced: Enforced,
}

/// A question, as far as the side that puts it has to know it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    pub text: String,
    pub can_be_remembered: bool,
    pub proposed: Vec<Approved>,
}
