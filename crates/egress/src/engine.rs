//! The gate's loop: one thread, one epoll, every socket of a world.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use substrate_policy::terms::Mode;
use substrate_sys::epoll::{self, Epoll, Events};
use substrate_sys::errno::{EMFILE, ENFILE, ENOBUFS, ENOMEM};
use substrate_sys::inet::{self, Kind};
use substrate_sys::{netlink, splice};

use super::config::{GateConfig, Shared, affordable};
use super::conn::Conn;
use super::connections::Connections;
use super::dial::Origin;
use super::flow::Side;
use super::packets;
use super::pool::Pool;
use super::record::Reason;
use super::resolver::Finished;
use super::rules::{Rules, Target};
use super::serve_dns::DnsServer;
use super::services::{Services, Waiter, reset, tag};
use super::slab::Key;

const ACCEPT_TURN: usize = 64;
/// How long a world that has ended may still send.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long accepting rests when descriptors run out.
const REST: Duration = Duration::from_millis(50);
/// How often changed terms are looked for, by the real clock.
const LOOK: Duration = Duration::from_millis(500);

/// The sockets of a world, by what they are for.
pub struct Sockets {
    /// Queries by datagram.
    pub udp: OwnedFd,
    /// Queries by stream.
    pub tcp: OwnedFd,
    /// Where connections come in.
    pub listeners: Vec<OwnedFd>,
    /// Tells of the world's sockets.
    pub diag: Option<OwnedFd>,
    /// Tells of rejected packets.
    pub log: Option<OwnedFd>,
    /// With which ports of the world are dialled.
    pub dialers: Vec<OwnedFd>,
    /// Listeners on the host, and the ports of the world that they lead to.
    pub published: Vec<(u16, OwnedFd)>,
}

/// Everything the thread owns.
pub struct Engine {
    services: Services,
    dns: DnsServer,
    connections: Connections,
    listeners: Vec<OwnedFd>,
    published: Vec<(u16, OwnedFd)>,
    log: Option<OwnedFd>,
    accepting: bool,
    publishing: bool,
    resting_until: Option<Duration>,
    max_connections: usize,
}

impl Engine {
    /// Takes over the sockets of a world.
    pub fn new(sockets: Sockets, config: GateConfig, shared: Arc<Shared>) -> io::Result<Engine> {
        let (connections, pipes) = affordable();
        let max_connections = config.max_connections.unwrap_or(connections);
        let services = Services::new(config, shared, sockets.diag)?;
        let whole = |tag: u8| u64::from(tag) << 56;
        let wake = services.shared.wake.as_fd();
        services.epoll.add(wake, whole(tag::WAKE), epoll::READ)?;
        if let Some(log) = &sockets.log {
            services
                .epoll
                .add(log.as_fd(), whole(tag::LOG), epoll::READ)?;
        }
        let mut engine = Engine {
            dns: DnsServer::new(sockets.udp, sockets.tcp, &services)?,
            connections: Connections::new(pipes, sockets.dialers, &services),
            services,
            listeners: sockets.listeners,
            published: sockets.published,
            log: sockets.log,
            accepting: false,
            publishing: false,
            resting_until: None,
            max_connections,
        };
        engine.watch_listeners()?;
        Ok(engine)
    }

    /// Serves until it is told to stop.
    pub fn run(mut self) {
        // Signals are the business of the thread that owns the world; and splicing into a
        // socket whose peer is gone raises SIGPIPE.
        if let Err(e) = splice::block_signals() {
            return self
                .services
                .shared
                .ledger()
                .failed(format!("blocking signals: {e}"));
        }
        let mut events = Events::with_capacity(512);
        let mut draining = false;
        let mut next_look = Instant::now() + LOOK;
        // By the real clock: a world's end must not wait for one that stands still.
        let mut drained_by: Option<Instant> = None;
        loop {
            let now = (self.services.config.clock)();
            let look = self.follow(&mut next_look, now);
            let mut timeout = self.timeout(now).into_iter().chain(look).min();
            if draining && self.connections.have_sent_all() {
                return self.connections.settle_all(&self.services);
            } else if self.services.shared.ended.load(Ordering::Acquire) && draining {
                let by = *drained_by.get_or_insert_with(|| Instant::now() + LAST_WORDS);
                let left = by.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return self.connections.settle_all(&self.services);
                }
                timeout = Some(timeout.map_or(left, |timeout| timeout.min(left)));
            } else if self.services.shared.drain.load(Ordering::Acquire) && !draining {
                draining = true;
                // A connection that waits to be accepted has words of its own.
                timeout = Some(Duration::ZERO);
            }
            if let Err(e) = self.services.epoll.wait(&mut events, timeout) {
                self.services
                    .shared
                    .ledger()
                    .failed(format!("waiting for events: {e}"));
                return;
            }
            if self.services.shared.stop.load(Ordering::Acquire) {
                return self.connections.settle_all(&self.services);
            }
            let now = (self.services.config.clock)();
            for (token, what) in events.iter() {
                self.dispatch(token, what, now);
            }
            self.connections.run_timers(now);
            let services = &mut self.services;
            for finished in services.resolver.tick(&services.epoll, now) {
                self.resolved(finished, now);
            }
            self.connections.run_ready(&mut self.services, now);
            if let Err(e) = self.watch_listeners() {
                self.services
                    .shared
                    .ledger()
                    .failed(format!("watching the listeners: {e}"));
                return;
            }
        }
    }

    fn timeout(&mut self, now: Duration) -> Option<Duration> {
        let resolver = self.services.resolver.next_deadline();
        [
            self.connections.next_deadline(),
            resolver,
            self.resting_until,
        ]
        .into_iter()
        .flatten()
        .min()
        .map(|at| at.saturating_sub(now))
    }

    fn dispatch(&mut self, token: u64, what: u32, now: Duration) {
        let (tag, key) = Key::from_token(token);
        match tag {
            tag::WAKE => self.on_wake(now),
            tag::DNS => self.dns.on_datagrams(&mut self.services, now),
            tag::DNS_LISTENER => self.dns.on_listener(&self.services),
            tag::DNS_STREAM => self.dns.on_stream(&mut self.services, key, now),
            tag::LISTENER => self.on_listener(token as u32 as usize, now),
            tag::PUBLISHED => self.on_published(token as u32 as usize, now),
            tag::NEAR | tag::FAR => self.connections.on_side(key, tag == tag::NEAR, what),
            tag::ATTEMPT => self.connections.on_attempt(&mut self.services, key, now),
            tag::RESOLVER => {
                let services = &mut self.services;
                if let Some(finished) = services.resolver.on_event(key, &services.epoll, now) {
                    self.resolved(finished, now);
                }
            }
            tag::LOG => self.on_log(now),
            _ => {}
        }
    }

    fn on_wake(&mut self, now: Duration) {
        self.services.shared.wake.clear();
        let new = self
            .services
            .shared
            .rules
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(rules) = new {
            self.take_rules(rules, now);
        }
    }

    /// Asks for changed terms when it is time to, and says how long until the next time.
    fn follow(&mut self, next: &mut Instant, now: Duration) -> Option<Duration> {
        let follow = self.services.config.follow.as_mut()?;
        let left = next.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Some(left);
        }
        *next = Instant::now() + LOOK;
        if let Some(spec) = follow() {
            let mode = match self.services.rules.observe {
                true => Mode::Observe,
                false => Mode::Enforce,
            };
            let budget = &self.services.config.budget;
            budget.set_limits(spec.bytes_per_sec, spec.total_bytes);
            self.take_rules(Rules::new(&spec, mode), now);
        }
        Some(LOOK)
    }

    /// Puts other lists in force and cuts the connections that they do not allow.
    fn take_rules(&mut self, rules: Rules, now: Duration) {
        self.services.rules = rules;
        self.connections.judge_again(&mut self.services, now);
    }

    /// Watches the listeners exactly while there is room for another connection.
    fn watch_listeners(&mut self) -> io::Result<()> {
        let now = (self.services.config.clock)();
        if self.resting_until.is_some_and(|until| until <= now) {
            self.resting_until = None;
        }
        let free = self.resting_until.is_none() && self.connections.len() < self.max_connections;
        if free != self.accepting {
            for (i, fd) in self.listeners.iter().enumerate() {
                let token = u64::from(tag::LISTENER) << 56 | i as u64;
                watch(&self.services.epoll, fd, token, free)?;
            }
            self.accepting = free;
        }
        let free = free && self.connections.reach_world();
        if free != self.publishing {
            for (i, (_, fd)) in self.published.iter().enumerate() {
                let token = u64::from(tag::PUBLISHED) << 56 | i as u64;
                watch(&self.services.epoll, fd, token, free)?;
            }
            self.publishing = free;
        }
        Ok(())
    }

    fn on_listener(&mut self, index: usize, now: Duration) {
        for _ in 0..ACCEPT_TURN {
            if self.connections.len() >= self.max_connections {
                return;
            }
            let Some(listener) = self.listeners.get(index) else {
                return;
            };
            match inet::accept(listener.as_fd()) {
                Ok(fd) => self.on_connection(fd, now),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if exhausted(&e) => {
                    self.resting_until = Some(now + REST);
                    return;
                }
                // The client was gone before it was accepted.
                Err(_) => {}
            }
        }
    }

    /// A program of the world connected: find out where to, and whether it may.
    fn on_connection(&mut self, fd: OwnedFd, now: Duration) {
        let (Ok(to), Ok(from)) = (
            inet::local_address(fd.as_fd()),
            inet::peer_address(fd.as_fd()),
        ) else {
            return;
        };
        let _ = inet::set(fd.as_fd(), inet::Flag::NoDelay);
        let (ip, port) = (to.ip().to_canonical(), to.port());
        let target = if Pool::covers(ip) {
            match self.services.pool.name(ip) {
                Some(name) => Target::Name(name),
                None => {
                    let who = Some((Kind::Tcp, from, to));
                    self.services.record(
                        &ip.to_string(),
                        port,
                        Reason::UnknownAddress,
                        true,
                        who,
                        now,
                    );
                    return reset(&fd);
                }
            }
        } else if ip.is_loopback() {
            Target::Name("localhost".into())
        } else {
            Target::Address(ip)
        };
        let verdict = self.services.rules.judge(&target, port);
        let who = Some((Kind::Tcp, from, to));
        let mut observed = false;
        if let Some(reason) = verdict.against {
            self.services.record(
                &target.to_string(),
                port,
                reason,
                !self.services.rules.observe,
                who,
                now,
            );
            if !self.services.rules.observe {
                return reset(&fd);
            }
            observed = true;
        }
        if self.services.config.budget.exhausted() && !self.services.rules.observe {
            self.services
                .record(&target.to_string(), port, Reason::Budget, true, who, now);
            return reset(&fd);
        }
        let conn = Conn::new(
            Origin::World {
                target,
                port,
                from,
                to,
                observed,
            },
            Side::new(fd),
            verdict.checked,
            now,
        );
        self.connections.open(&mut self.services, conn, now);
    }

    fn on_published(&mut self, index: usize, now: Duration) {
        for _ in 0..ACCEPT_TURN {
            if !self.connections.reach_world() || self.connections.len() >= self.max_connections {
                return;
            }
            let Some((port, listener)) = self.published.get(index) else {
                return;
            };
            let port = *port;
            match inet::accept(listener.as_fd()) {
                Ok(fd) => {
                    let _ = inet::set(fd.as_fd(), inet::Flag::NoDelay);
                    let conn = Conn::new(Origin::Published { port }, Side::new(fd), false, now);
                    self.connections.open(&mut self.services, conn, now);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if exhausted(&e) => {
                    self.resting_until = Some(now + REST);
                    return;
                }
                Err(_) => {}
            }
        }
    }

    fn on_log(&mut self, now: Duration) {
        let mut buffer = [0u8; 8192];
        for _ in 0..ACCEPT_TURN {
            let Some(log) = &self.log else { return };
            let Ok(got) = netlink::receive_now(log.as_fd(), &mut buffer) else {
                return;
            };
            for attempt in packets::read(&buffer[..got]) {
                let reason = attempt.other.map_or(Reason::NotAllowed, Reason::NotTcp);
                let kind = match attempt.other {
                    None => Some(Kind::Tcp),
                    Some("UDP") => Some(Kind::Udp),
                    Some(_) => None,
                };
                let ip = attempt.to.ip();
                let host = match self.services.pool.name(ip) {
                    Some(name) => name.to_string(),
                    None => ip.to_string(),
                };
                let who = kind.map(|kind| (kind, attempt.from, attempt.to));
                self.services
                    .record(&host, attempt.to.port(), reason, true, who, now);
            }
        }
    }

    /// Tells those who waited for a lookup of the host's resolver.
    fn resolved(&mut self, finished: Finished, now: Duration) {
        let key = match &finished {
            Finished::Lookup(key, _) | Finished::Raw(key, _) => *key,
        };
        let (services, dns) = (&mut self.services, &mut self.dns);
        for waiter in services.waiters.remove(&key).unwrap_or_default() {
            match (waiter, &finished) {
                (Waiter::Dial(conn), Finished::Lookup(_, found)) => {
                    self.connections
                        .on_found(services, conn, found.clone(), now);
                }
                (Waiter::Query(query, client), Finished::Lookup(_, found)) => {
                    dns.answer_lookup(services, &query, client, found, now);
                }
                (Waiter::Query(query, client), Finished::Raw(_, answer)) => {
                    dns.answer_relay(&query, client, answer.as_deref());
                }
                // Nobody dials with what is relayed.
                (Waiter::Dial(_), Finished::Raw(..)) => {}
            }
        }
    }
}

fn watch(epoll: &Epoll, fd: &OwnedFd, token: u64, on: bool) -> io::Result<()> {
    if on {
        epoll.add(fd.as_fd(), token, epoll::READ)
    } else {
        epoll.remove(fd.as_fd())
    }
}

fn exhausted(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(ENOMEM | ENFILE | EMFILE | ENOBUFS)
    )
}
