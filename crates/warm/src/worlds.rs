//! Worlds that are borrowed where somebody keeps one, and made where nobody does.

use std::sync::Arc;

use substrate_broker::Broker;
use substrate_changes::gc::Leftover;
use substrate_executor::worlds::{Oversight, Worlds};
use substrate_world::backend::WorldBackend;

use crate::borrow::{Lender, Warm};

/// Other worlds, with a lender beside them.
pub struct Borrowed {
    cold: Arc<dyn Worlds>,
    lender: Arc<dyn Lender>,
}

impl Borrowed {
    /// What the lender has nothing for is made by the other.
    pub fn new(cold: Arc<dyn Worlds>, lender: Arc<dyn Lender>) -> Borrowed {
        Borrowed { cold, lender }
    }
}

impl Worlds for Borrowed {
    fn backend(&self, mut oversight: Oversight) -> Box<dyn WorldBackend> {
        let borrowing = oversight.borrowing.take();
        let cold = self.cold.backend(oversight);
        match borrowing {
            Some(borrowing) => Box::new(Warm::new(cold, Arc::clone(&self.lender), borrowing)),
            None => cold,
        }
    }

    fn leftovers(&self) -> Vec<Leftover> {
        self.cold.leftovers()
    }

    /// What a session encloses has worlds of that session.
    fn may_be_kept(&self, broker: &Broker) -> bool {
        broker.reuses_worlds() && broker.caller().enclosure().is_none()
    }
}
