//! The worlds of this machine, for everything that runs commands.

use substrate_changes::gc::Leftover;
use substrate_egress::gated;
use substrate_executor::worlds::{Oversight, Worlds};
use substrate_linux::{Linux, limits};
use substrate_world::backend::WorldBackend;

/// Worlds made by the kernel of this machine.
pub struct ThisMachine;

impl Worlds for ThisMachine {
    fn backend(&self, oversight: Oversight) -> Box<dyn WorldBackend> {
        let mut backend = Linux::default();
        if let Some(judge) = oversight.judge {
            backend = backend.with_guard(judge);
        }
        if let Some(wire) = oversight.network {
            let networks = gated::networks(wire.on_event, wire.spent, wire.following);
            backend = backend.with_network(networks);
        }
        Box::new(backend)
    }

    fn leftovers(&self) -> Vec<Leftover> {
        limits::leftovers()
    }
}
