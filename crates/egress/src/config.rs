//! What a gate is told before it starts, and what its handle and its thread share.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use substrate_policy::budget::Budget;
use substrate_policy::terms::{Mode, NetSpec};
use substrate_sys::epoll::EventFd;

use super::proxy::Proxies;
use super::record::{Event, Ledger};
use super::resolver::HostFiles;
use super::rules::Rules;

/// The time since some moment, the same for all gates of a session; never runs backwards.
pub type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Told of events as they happen, from the gate's thread.
pub type Listener = Box<dyn FnMut(&Event) + Send>;

/// Looks for other terms than before, from the gate's thread, now and then while it serves; must be
/// quick.
pub type Follow = Box<dyn FnMut() -> Option<NetSpec> + Send>;

/// Everything the gate needs to know.
pub struct GateConfig {
    /// The lists in force at first.
    pub rules: Rules,
    /// Names with addresses of the policy's own.
    pub resolve: Vec<(String, std::net::IpAddr)>,
    /// How long an answer of a resolver is believed at most.
    pub refresh: Duration,
    /// Ports of the world that the host's loopback reaches.
    pub publish: Vec<u16>,
    /// Bytes that may pass; replace it to share one budget among the worlds of a session.
    pub budget: Arc<Budget>,
    /// The user's own proxies.
    pub proxies: Proxies,
    /// Where the host's resolver is configured.
    pub host_files: HostFiles,
    /// Who is told of events.
    pub listener: Option<Listener>,
    /// Who knows when the policy changes.
    pub follow: Option<Follow>,
    /// The clock that rates and timeouts go by.
    pub clock: Clock,
    /// Connections at one time; further ones wait to be accepted. `None`: what the limit of open
    /// files allows.
    pub max_connections: Option<usize>,
}

impl GateConfig {
    /// The configuration for a policy's terms, with the host's own resolver and no proxy.
    pub fn new(spec: &NetSpec, mode: Mode, publish: &[u16]) -> GateConfig {
        GateConfig {
            rules: Rules::new(spec, mode),
            resolve: spec.resolve.clone(),
            refresh: Duration::from_secs(spec.refresh_secs.max(1)),
            publish: publish.to_vec(),
            budget: Arc::new(Budget::new(spec.bytes_per_sec, spec.total_bytes)),
            proxies: Proxies::default(),
            host_files: HostFiles::default(),
            listener: None,
            follow: None,
            clock: Arc::new(substrate_sys::clock::since_boot),
            max_connections: None,
        }
    }
}

/// Descriptors that a gate wants; the hard limit may be lower.
pub const DESCRIPTORS: u64 = 1 << 16;

/// How many connections and pipes this process has descriptors for: three quarters of them go
/// to connections, two each, and the rest to pipes.
pub fn affordable() -> (usize, usize) {
    shares(substrate_sys::fdlimit::get().0)
}

/// How many connections of a world can be open at one time on this machine.
pub fn most_connections() -> usize {
    let (soft, hard) = substrate_sys::fdlimit::get();
    shares(soft.max(hard.min(DESCRIPTORS))).0
}

fn shares(soft: u64) -> (usize, usize) {
    const OTHERS: u64 = 128;
    let free = usize::try_from(soft.saturating_sub(OTHERS))
        .unwrap_or(usize::MAX)
        .min(1 << 16);
    ((free / 8 * 3).max(16), (free / 8).max(4))
}

/// What the handle and the thread share.
pub struct Shared {
    /// Wakes the thread.
    pub wake: EventFd,
    /// The thread is to end at once.
    pub stop: AtomicBool,
    /// The world ends: what it sent last is passed on, nothing else.
    pub drain: AtomicBool,
    /// That was all; who has not sent it by now has no more than a moment.
    pub ended: AtomicBool,
    /// The books.
    pub ledger: Mutex<Ledger>,
    /// Other lists, to be put in force.
    pub rules: Mutex<Option<Rules>>,
}

impl Shared {
    /// The books.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
