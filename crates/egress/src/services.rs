//! What every part of the gate's loop works with.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use substrate_sys::epoll::{self, Epoll};
use substrate_sys::inet::{self, Kind};

use super::config::{GateConfig, Shared};
use super::dns::Query;
use super::pool::Pool;
use super::record::{Reason, Refusal};
use super::resolver::Resolver;
use super::rules::Rules;
use super::slab::Key;
use super::who::Who;

/// What an epoll token belongs to.
pub mod tag {
    /// The handle's wake-up.
    pub const WAKE: u8 = 0;
    /// Queries by datagram.
    pub const DNS: u8 = 1;
    /// New query streams.
    pub const DNS_LISTENER: u8 = 2;
    /// A query stream.
    pub const DNS_STREAM: u8 = 3;
    /// New connections of the world.
    pub const LISTENER: u8 = 4;
    /// New connections to published ports.
    pub const PUBLISHED: u8 = 5;
    /// The side of a connection that was accepted.
    pub const NEAR: u8 = 6;
    /// The side that was dialled.
    pub const FAR: u8 = 7;
    /// A connect under way.
    pub const ATTEMPT: u8 = 8;
    /// The host's resolver.
    pub const RESOLVER: u8 = 9;
    /// The log of rejected packets.
    pub const LOG: u8 = 10;
}

/// Who asked a query.
#[derive(Debug, Clone, Copy)]
pub enum Client {
    /// A datagram from there.
    Datagram(SocketAddr),
    /// A stream.
    Stream(Key),
}

/// Who waits for the host's resolver.
#[derive(Debug)]
pub enum Waiter {
    /// A connection that wants to be dialled.
    Dial(Key),
    /// A query that wants to be answered.
    Query(Box<Query>, Client),
}

/// Both ends of what somebody tried, as far as they can be told.
pub type Ends = Option<(Kind, SocketAddr, SocketAddr)>;

/// Rules, names and books, and the resolver of the host.
pub struct Services {
    /// Where every socket is watched.
    pub epoll: Epoll,
    /// What the handle sees too.
    pub shared: Arc<Shared>,
    /// What the gate was started with.
    pub config: GateConfig,
    /// The lists in force.
    pub rules: Rules,
    /// Which name each synthetic address stands for.
    pub pool: Pool,
    /// The host's names.
    pub resolver: Resolver,
    /// Who waits for which of its lookups.
    pub waiters: HashMap<Key, Vec<Waiter>>,
    who: Who,
}

impl Services {
    /// With nothing under way; `diag` tells of the world's sockets.
    pub fn new(
        config: GateConfig,
        shared: Arc<Shared>,
        diag: Option<OwnedFd>,
    ) -> io::Result<Services> {
        let files = config.host_files.clone();
        Ok(Services {
            epoll: Epoll::new()?,
            shared,
            rules: config.rules.clone(),
            pool: Pool::default(),
            resolver: Resolver::new(files, &config.resolve, config.refresh, tag::RESOLVER),
            waiters: HashMap::new(),
            who: Who::new(diag),
            config,
        })
    }

    /// Records a refusal, and who tried when it is the first of its kind.
    pub fn record(
        &mut self,
        host: &str,
        port: u16,
        reason: Reason,
        enforced: bool,
        who: Ends,
        now: Duration,
    ) {
        let new = self.shared.ledger().is_new(host, port, &reason);
        let program = match who {
            Some((kind, from, to)) if new => self.who.holds(kind, from, to, now),
            _ => None,
        };
        let host = host.to_owned();
        self.shared.ledger().refused(Refusal {
            host,
            port,
            reason,
            program,
            enforced,
            count: 1,
        });
    }
}

/// Reported once per change; the connection remembers what it was told.
pub const SOCKET_EVENTS: u32 = epoll::READ | epoll::WRITE | epoll::READ_CLOSED | epoll::EDGE;

/// Closes with a reset, so that the program notices at once.
pub fn reset(fd: &OwnedFd) {
    let _ = inet::reset_on_close(fd.as_fd());
}
