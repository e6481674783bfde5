//! Who asks, as the kernel knows it. Whether a session encloses somebody, which grants count for him
//! and whether a person is there are questions about a [`Caller`], never about the process that
//! happens to answer them.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use substrate_sys::{identity, marker, peer, pidfd};

use super::enclosure::{self, Ancestor, OwnHome, Trace};
use super::process::{Identity, Stat, chain_of};
use crate::env::SUBSTRATE_AGENT_ID;
use crate::home::{Home, NoHome};

/// A process on whose behalf something is asked.
#[derive(Debug, Clone)]
pub struct Caller {
    pid: u32,
    uid: u32,
    origin: Origin,
}

#[derive(Debug, Clone)]
enum Origin {
    /// This very process.
    Own,
    /// The other end of a socket of ours.
    Peer {
        /// Keeps the id from being given to another process unnoticed.
        pidfd: Arc<OwnedFd>,
    },
}

/// What encloses this process, once somebody has looked.
static OWN: OnceLock<Option<Trace>> = OnceLock::new();

impl Caller {
    /// This process asks for itself.
    pub fn own() -> Self {
        Self {
            pid: std::process::id(),
            uid: identity::effective_user_id(),
            origin: Origin::Own,
        }
    }

    /// Whoever is connected to this socket asks. One that has ended is an error, so that no later
    /// process with its id is taken for it.
    pub fn peer(socket: impl AsFd) -> io::Result<Self> {
        let peer = peer::of(socket)?;
        let caller = Self {
            pid: peer.pid,
            uid: peer.uid,
            origin: Origin::Peer {
                pidfd: Arc::new(peer.pidfd),
            },
        };
        match caller.is_alive() {
            true => Ok(caller),
            false => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its user.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Whether it is this very process.
    pub fn is_own(&self) -> bool {
        matches!(self.origin, Origin::Own)
    }

    /// Whether it still runs.
    pub fn is_alive(&self) -> bool {
        match &self.origin {
            Origin::Own => true,
            Origin::Peer { pidfd } => pidfd::is_alive(pidfd.as_fd()),
        }
    }

    /// By what the session around it shows itself, if one encloses it; also one that only its own first
    /// environment tells of. Whoever has ended counts as enclosed: what was read may be another's.
    pub fn enclosure(&self) -> Option<Trace> {
        let look = || enclosure::trace_of_a_session(self.pid, || self.is_marked());
        let found = match self.origin {
            // What a process was started below it stays below, also when nobody can see it any more.
            Origin::Own => *OWN.get_or_init(look),
            Origin::Peer { .. } => look(),
        };
        found.or_else(|| (!self.is_alive()).then_some(Trace::Gone))
    }

    /// Whether this process runs in a world, as the mount table says here. What is not marked is in none. Of a peer this is
    /// never believed: he can have mounted what he likes, and whoever runs his commands stands outside.
    pub fn is_in_world(&self) -> bool {
        self.is_own() && self.is_marked() && enclosure::in_a_world(self.pid)
    }

    /// The Substrate processes above it, nearest first.
    pub fn ancestors(&self) -> Vec<Ancestor> {
        enclosure::ancestors(self.pid)
    }

    /// The home of whoever encloses it, or the one that it names itself when nobody does.
    pub fn home(&self, ancestors: &[Ancestor], own: OwnHome<'_>) -> Result<Home, NoHome> {
        enclosure::home(ancestors, own, || self.is_marked())
    }

    /// Whether a session or a shim has marked it. What cannot be asked counts as marked.
    pub fn is_marked(&self) -> bool {
        match self.origin {
            Origin::Own => enclosure::marked(),
            Origin::Peer { .. } => marker::of(self.pid).map_or(true, |mark| mark.is_some()),
        }
    }

    /// The agent whose session is around it: the name that the outermost Substrate process above it was started with.
    /// Nothing below that process can change it.
    pub fn agent(&self) -> Option<OsString> {
        let outermost = self.ancestors().pop()?;
        enclosure::variable(outermost.pid, SUBSTRATE_AGENT_ID)
    }

    /// Whether it is this process or one below it.
    pub fn is_below(&self, process: &Identity) -> bool {
        std::iter::once(self.pid)
            .chain(chain_of(self.pid))
            .any(|pid| pid == process.pid)
            && process.is_alive()
            && self.is_alive()
    }

    /// It, told apart from a later process with the same id.
    pub fn identity(&self) -> Option<Identity> {
        Identity::of(self.pid).filter(|_| self.is_alive())
    }

    /// The leader of its terminal's session, where that is above it.
    pub fn leader(&self) -> Option<Identity> {
        let leader = Stat::of(&self.pid.to_string())?.session;
        Identity::of(leader).filter(|leader| self.is_below(leader))
    }

    /// The process whose life is the session: the leader of the terminal's session in which the
    /// outermost Substrate process above it runs. Neither a variable nor a `setsid` below that
    /// process leads to another one.
    pub fn session(&self) -> Option<Identity> {
        let ancestors = self.ancestors();
        let outermost = ancestors.last().map_or(self.pid, |ancestor| ancestor.pid);
        let leader = Stat::of(&outermost.to_string())?.session;
        // A leader that is gone, or that another namespace hides, leaves the process to itself.
        Identity::of(leader)
            .or_else(|| Identity::of(outermost))
            .filter(|_| self.is_alive())
    }
}
