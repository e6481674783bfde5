//! Where worlds come from: the seam to whatever makes them.

use std::sync::Arc;

use substrate_broker::Broker;
use substrate_changes::gc::Leftover;
use substrate_egress::gated::{Following, OnEvent};
use substrate_egress::service::Service;
use substrate_policy::budget::Cells;
use substrate_starts::ExecJudge;
use substrate_world::backend::WorldBackend;

use crate::front::Front;
use crate::line::Line;

/// Makes backends; a session has one of these, and nothing that runs commands knows which.
pub trait Worlds: Send + Sync {
    /// A backend whose worlds are overseen like this.
    fn backend(&self, oversight: Oversight) -> Box<dyn WorldBackend>;

    /// What its worlds left behind elsewhere than below Substrate's home.
    fn leftovers(&self) -> Vec<Leftover>;

    /// Whether somebody may keep the worlds that lines of a broker run in. He starts the commands then, and
    /// whoever runs them is marked only when he starts something himself.
    fn may_be_kept(&self, _: &Broker) -> bool {
        false
    }
}

/// Who looks at what happens in a world.
#[derive(Default)]
pub struct Oversight {
    /// Judges every program start, where that has a say.
    pub judge: Option<Arc<dyn ExecJudge>>,
    /// Hears of the network; without it worlds have none.
    pub network: Option<Wire>,
    /// What it takes to run the command in a world that somebody keeps, where that is wanted.
    pub borrowing: Option<Borrowing>,
}

/// What it takes to run a command in a world that somebody keeps.
pub struct Borrowing {
    /// Who decides.
    pub broker: Broker,
    /// Whom it is run for.
    pub front: Arc<dyn Front>,
    /// The line.
    pub line: Line,
    /// How long the policy lets one command take; its terms may say less.
    pub seconds: Option<u32>,
}

/// The host's end of a world's network.
pub struct Wire {
    /// Told of what a gate refuses or limits, from the gate's own thread; must be quick.
    pub on_event: OnEvent,
    /// Where spent bytes are counted.
    pub spent: Cells,
    /// Finds terms that got stricter while a command runs.
    pub following: Option<Following>,
    /// Ports of the world's own loopback that are served from outside.
    pub services: Vec<Service>,
}
