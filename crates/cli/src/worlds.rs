//! The worlds of this machine, for everything that runs commands.

use std::ffi::CString;
use std::sync::Arc;

use substrate_broker::Broker;
use substrate_changes::gc::Leftover;
use substrate_egress::gated;
use substrate_egress::service::with_services;
use substrate_executor::front::Kind;
use substrate_executor::session::Session;
use substrate_executor::worlds::{Oversight, Worlds};
use substrate_linux::{Linux, limits};
use substrate_shell::notice::Notices;
use substrate_shell::terminal_front::Terminal;
use substrate_warm::worlds::Borrowed;
use substrate_world::backend::WorldBackend;

use crate::service::{self, Keepers};

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
            let networks = with_services(networks, wire.services);
            backend = backend.with_network(networks);
        }
        Box::new(backend)
    }

    fn leftovers(&self) -> Vec<Leftover> {
        limits::leftovers()
    }
}

/// Begins a session and says what a person should know about its policies.
pub fn begin(broker: Broker, env: Vec<CString>, notices: Notices) -> Session {
    begin_with(broker, env, notices, Arc::new(ThisMachine))
}

/// The same for one command, whose world the service may have.
pub fn begin_once(broker: Broker, env: Vec<CString>, notices: Notices) -> Session {
    let worlds: Arc<dyn Worlds> = match service::is_wanted() {
        true => {
            let keepers = Arc::new(Keepers::of(broker.home()));
            Arc::new(Borrowed::new(Arc::new(ThisMachine), keepers))
        }
        false => Arc::new(ThisMachine),
    };
    begin_with(broker, env, notices, worlds)
}

fn begin_with(
    broker: Broker,
    env: Vec<CString>,
    notices: Notices,
    worlds: Arc<dyn Worlds>,
) -> Session {
    for warning in broker.take_warnings() {
        notices.say(Kind::Warning, &warning);
    }
    Session::begin(broker, env, Arc::new(Terminal::new(notices)), worlds)
}
