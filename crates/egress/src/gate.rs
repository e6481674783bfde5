//! The gate: a thread that serves a world's network for as long as this handle lives.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use substrate_init::netplan::{NetFds, Role};
use substrate_policy::budget::Budget;
use substrate_policy::terms::{Mode, NetSpec};
use substrate_sys::epoll::EventFd;

use super::config::{DESCRIPTORS, GateConfig, Shared};
use super::engine::{Engine, Sockets};
use super::record::{Ledger, NetReport};
use super::rules::Rules;

/// Why a gate could not be started.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The kernel refused something that every gate needs.
    #[error("cannot start the network gate: {0}")]
    Start(#[source] std::io::Error),
    /// The world sent no socket of this kind.
    #[error("the world's network set-up is incomplete: no {0}")]
    Missing(&'static str),
    /// A published port is taken on the host.
    #[error(
        "cannot publish port {0} on the host's loopback: {1}; stop what uses it, or take it out of world.publish"
    )]
    Publish(u16, #[source] std::io::Error),
}

/// The world's sockets, sorted.
fn sort(fds: NetFds, publish: &[u16]) -> Result<Sockets, GateError> {
    let (mut udp, mut tcp, mut diag, mut log) = (None, None, None, None);
    let (mut listeners, mut dialers) = (Vec::new(), Vec::new());
    for (role, fd) in fds.sockets {
        match role {
            Role::DnsUdp => udp = Some(fd),
            Role::DnsTcp => tcp = Some(fd),
            Role::Listener => listeners.push(fd),
            Role::Diag => diag = Some(fd),
            Role::Log => log = Some(fd),
            Role::Dialer => dialers.push(fd),
            // Whoever serves it has taken it already.
            Role::Service(_) => {}
        }
    }
    let mut published = Vec::new();
    for &port in publish {
        let v4 = listen(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port))
            .map_err(|e| GateError::Publish(port, e))?;
        published.push((port, v4));
        // A host without IPv6 is served by the other one.
        if let Ok(v6) = listen(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), port)) {
            published.push((port, v6));
        }
    }
    Ok(Sockets {
        udp: udp.ok_or(GateError::Missing("stub resolver"))?,
        tcp: tcp.ok_or(GateError::Missing("stub resolver over TCP"))?,
        listeners,
        diag,
        log,
        dialers,
        published,
    })
}

fn listen(address: SocketAddr) -> std::io::Result<OwnedFd> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener.into())
}

/// A running gate. When it is dropped, or its thread dies, the world's network is dead: the
/// listeners live nowhere else.
pub struct Gate {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    redirected: bool,
    budget: Arc<Budget>,
}

impl Gate {
    /// Starts serving the sockets of a world.
    pub fn start(fds: NetFds, mut config: GateConfig) -> Result<Gate, GateError> {
        // One descriptor for each end of a connection: the usual soft limit is soon used up.
        let _ = substrate_sys::fdlimit::raise(DESCRIPTORS);
        let redirected = fds.redirected;
        let budget = Arc::clone(&config.budget);
        let sockets = sort(fds, &config.publish)?;
        let shared = Arc::new(Shared {
            wake: EventFd::new().map_err(GateError::Start)?,
            stop: AtomicBool::new(false),
            drain: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            ledger: Mutex::new(Ledger::new(config.listener.take())),
            rules: Mutex::new(None),
        });
        let engine = Engine::new(sockets, config, Arc::clone(&shared)).map_err(GateError::Start)?;
        let thread = std::thread::Builder::new()
            .name("egress".to_owned())
            .spawn(move || engine.run())
            .map_err(GateError::Start)?;
        Ok(Gate {
            shared,
            thread: Some(thread),
            redirected,
            budget,
        })
    }

    /// Whether every port reaches the gate; otherwise only those that the policy lists.
    pub fn redirected(&self) -> bool {
        self.redirected
    }

    /// Whether the gate still serves.
    pub fn is_alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|t| !t.is_finished())
    }

    /// What was seen since this was called last.
    pub fn report(&self) -> NetReport {
        self.shared.ledger().take()
    }

    /// Puts other lists in force at once; connections that they do not allow are cut. Addresses,
    /// networks and `localhost` ports that are new take effect with the next world.
    pub fn set_rules(&self, spec: &NetSpec, mode: Mode) {
        let rules = Rules::new(spec, mode);
        self.budget.set_limits(spec.bytes_per_sec, spec.total_bytes);
        *self
            .shared
            .rules
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(rules);
        self.shared.wake.signal();
    }

    /// Ends the world's network and says what is left to say.
    pub fn finish(mut self) -> NetReport {
        self.stop();
        self.shared.ledger().take()
    }

    /// The same for a world whose programs are gone: what they sent last is still passed on, as
    /// the kernel would have done, for a second at most.
    pub fn finish_gently(mut self) -> NetReport {
        self.shared.ended.store(true, Ordering::Release);
        self.drain();
        self.join();
        self.shared.ledger().take()
    }

    /// Says that the programs of the world are about to be gone.
    pub fn drain(&self) {
        self.shared.drain.store(true, Ordering::Release);
        self.shared.wake.signal();
    }

    fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake.signal();
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            self.shared
                .ledger()
                .failed("the gate's thread panicked".to_owned());
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.stop();
    }
}
