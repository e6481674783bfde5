//! The gate's loop: one thread, one epoll, every socket of a world.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use substrate_policy::terms::Mode;
use substrate_sys::epoll::{self, Epoll, Events};
use substrate_sys::inet::{self, Kind};
use substrate_sys::{netlink, splice};

use super::conn::{Conn, Origin};
use super::dial::Attempt;
use super::flow::{Pipes, Side};
use super::gate::{GateConfig, Shared, Sockets, affordable};
use super::packets;
use super::pool::Pool;
use super::record::{Reason, Refusal};
use super::resolver::{Finished, Resolver};
use super::rules::{Rules, Target};
use super::serve_dns::{DnsStream, Waiter};
use super::slab::{Key, Slab};
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

const ACCEPT_TURN: usize = 64;
/// How long a world that has ended may still send.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long accepting rests when descriptors run out.
const REST: Duration = Duration::from_millis(50);
/// How often changed terms are looked for, by the real clock.
const LOOK: Duration = Duration::from_millis(500);

/// Everything the thread owns.
pub struct Engine {
    pub(super) epoll: Epoll,
    pub(super) shared: Arc<Shared>,
    pub(super) config: GateConfig,
    pub(super) rules: Rules,
    pub(super) pool: Pool,
    pub(super) resolver: Resolver,
    pub(super) who: Who,
    pub(super) conns: Slab<Conn>,
    pub(super) attempts: Slab<Attempt>,
    pub(super) streams: Slab<DnsStream>,
    pub(super) stream_keys: VecDeque<Key>,
    pub(super) waiters: HashMap<Key, Vec<Waiter>>,
    pub(super) pipes: Pipes,
    pub(super) dialers4: VecDeque<OwnedFd>,
    pub(super) dialers6: VecDeque<OwnedFd>,
    pub(super) ready: VecDeque<Key>,
    pub(super) timers: BinaryHeap<Reverse<(Duration, Key)>>,
    pub(super) buffer: Vec<u8>,
    pub(super) own_addresses: (Duration, Vec<std::net::IpAddr>),
    pub(super) udp: UdpSocket,
    pub(super) tcp: OwnedFd,
    listeners: Vec<OwnedFd>,
    published: Vec<(u16, OwnedFd)>,
    log: Option<OwnedFd>,
    accepting: bool,
    publishing: bool,
    resting_until: Option<Duration>,
    max_connections: usize,
}

impl Engine {
    pub(super) fn new(
        sockets: Sockets,
        config: GateConfig,
        shared: Arc<Shared>,
    ) -> io::Result<Engine> {
        let epoll = Epoll::new()?;
        let number = |i: usize, tag: u8| u64::from(tag) << 56 | i as u64;
        epoll.add(shared.wake.as_fd(), number(0, tag::WAKE), epoll::READ)?;
        epoll.add(sockets.udp.as_fd(), number(0, tag::DNS), epoll::READ)?;
        epoll.add(
            sockets.tcp.as_fd(),
            number(0, tag::DNS_LISTENER),
            epoll::READ,
        )?;
        if let Some(log) = &sockets.log {
            epoll.add(log.as_fd(), number(0, tag::LOG), epoll::READ)?;
        }
        let resolver = Resolver::new(
            config.host_files.clone(),
            &config.resolve,
            config.refresh,
            tag::RESOLVER,
        );
        let (connections, pipes) = affordable();
        let mut engine = Engine {
            epoll,
            shared,
            max_connections: config.max_connections.unwrap_or(connections),
            rules: config.rules.clone(),
            config,
            pool: Pool::default(),
            resolver,
            who: Who::new(sockets.diag),
            conns: Slab::default(),
            attempts: Slab::default(),
            streams: Slab::default(),
            stream_keys: VecDeque::new(),
            waiters: HashMap::new(),
            pipes: Pipes::new(pipes),
            dialers4: VecDeque::new(),
            dialers6: VecDeque::new(),
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            buffer: Vec::new(),
            own_addresses: (Duration::ZERO, Vec::new()),
            udp: UdpSocket::from(sockets.udp),
            tcp: sockets.tcp,
            listeners: sockets.listeners,
            published: sockets.published,
            log: sockets.log,
            accepting: false,
            publishing: false,
            resting_until: None,
        };
        for fd in sockets.dialers {
            engine.return_dialer(fd);
        }
        engine.watch_listeners()?;
        Ok(engine)
    }

    pub(super) fn run(mut self) {
        // Signals are the business of the thread that owns the world; and splicing into a
        // socket whose peer is gone raises SIGPIPE.
        if let Err(e) = splice::block_signals() {
            return self
                .shared
                .ledger()
                .failed(format!("blocking signals: {e}"));
        }
        self.buffer = vec![0; 64 * 1024];
        let mut events = Events::with_capacity(512);
        let mut draining = false;
        let mut next_look = Instant::now() + LOOK;
        // By the real clock: a world's end must not wait for one that stands still.
        let mut drained_by: Option<Instant> = None;
        loop {
            let now = (self.config.clock)();
            let look = self.follow(&mut next_look, now);
            let mut timeout = self.timeout(now).into_iter().chain(look).min();
            if draining && self.conns.iter().all(Conn::has_sent_all) {
                return self.settle_all();
            } else if self.shared.ended.load(Ordering::Acquire) && draining {
                let by = *drained_by.get_or_insert_with(|| Instant::now() + LAST_WORDS);
                let left = by.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return self.settle_all();
                }
                timeout = Some(timeout.map_or(left, |timeout| timeout.min(left)));
            } else if self.shared.drain.load(Ordering::Acquire) && !draining {
                draining = true;
                // A connection that waits to be accepted has words of its own.
                timeout = Some(Duration::ZERO);
            }
            if let Err(e) = self.epoll.wait(&mut events, timeout) {
                self.shared
                    .ledger()
                    .failed(format!("waiting for events: {e}"));
                return;
            }
            if self.shared.stop.load(Ordering::Acquire) {
                self.settle_all();
                return;
            }
            let now = (self.config.clock)();
            for (token, what) in events.iter() {
                self.dispatch(token, what, now);
            }
            self.run_timers(now);
            for finished in self.resolver.tick(&self.epoll, now) {
                self.resolved(finished, now);
            }
            for _ in 0..self.ready.len() {
                let Some(key) = self.ready.pop_front() else {
                    break;
                };
                if let Some(conn) = self.conns.get_mut(key) {
                    conn.queued = false;
                }
                self.advance(key, now);
            }
            if let Err(e) = self.watch_listeners() {
                self.shared
                    .ledger()
                    .failed(format!("watching the listeners: {e}"));
                return;
            }
        }
    }

    fn timeout(&mut self, now: Duration) -> Option<Duration> {
        if !self.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let timer = self.timers.peek().map(|Reverse((at, _))| *at);
        let next = [timer, self.resolver.next_deadline(), self.resting_until];
        next.into_iter()
            .flatten()
            .min()
            .map(|at| at.saturating_sub(now))
    }

    fn dispatch(&mut self, token: u64, what: u32, now: Duration) {
        let (tag, key) = Key::from_token(token);
        match tag {
            tag::WAKE => self.on_wake(now),
            tag::DNS => self.on_dns(now),
            tag::DNS_LISTENER => self.on_dns_listener(),
            tag::DNS_STREAM => self.on_dns_stream(key, now),
            tag::LISTENER => self.on_listener(token as u32 as usize, now),
            tag::PUBLISHED => self.on_published(token as u32 as usize, now),
            tag::NEAR | tag::FAR => self.on_side(key, tag == tag::NEAR, what),
            tag::ATTEMPT => self.on_attempt(key, now),
            tag::RESOLVER => {
                if let Some(finished) = self.resolver.on_event(key, &self.epoll, now) {
                    self.resolved(finished, now);
                }
            }
            tag::LOG => self.on_log(now),
            _ => {}
        }
    }

    fn on_wake(&mut self, now: Duration) {
        self.shared.wake.clear();
        let new = self
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
        let follow = self.config.follow.as_mut()?;
        let left = next.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            return Some(left);
        }
        *next = Instant::now() + LOOK;
        if let Some(spec) = follow() {
            let mode = match self.rules.observe {
                true => Mode::Observe,
                false => Mode::Enforce,
            };
            let budget = &self.config.budget;
            budget.set_limits(spec.bytes_per_sec, spec.total_bytes);
            self.take_rules(Rules::new(&spec, mode), now);
        }
        Some(LOOK)
    }

    /// Puts other lists in force and cuts the connections that they do not allow.
    fn take_rules(&mut self, rules: Rules, now: Duration) {
        self.rules = rules;
        for key in self.conns.keys() {
            let Some(conn) = self.conns.get_mut(key) else {
                continue;
            };
            let Origin::World { target, port, .. } = &conn.origin else {
                continue;
            };
            let (target, port) = (target.clone(), *port);
            if let Some(reason) = self.rules.judge(&target, port).against
                && !self.rules.observe
            {
                self.refuse_conn(key, reason, now);
            }
        }
    }

    /// Watches the listeners exactly while there is room for another connection.
    fn watch_listeners(&mut self) -> io::Result<()> {
        let now = (self.config.clock)();
        if self.resting_until.is_some_and(|until| until <= now) {
            self.resting_until = None;
        }
        let free = self.resting_until.is_none() && self.conns.len() < self.max_connections;
        if free != self.accepting {
            for (i, fd) in self.listeners.iter().enumerate() {
                let token = u64::from(tag::LISTENER) << 56 | i as u64;
                watch(&self.epoll, fd, token, free)?;
            }
            self.accepting = free;
        }
        let free = free && !self.dialers4.is_empty();
        if free != self.publishing {
            for (i, (_, fd)) in self.published.iter().enumerate() {
                let token = u64::from(tag::PUBLISHED) << 56 | i as u64;
                watch(&self.epoll, fd, token, free)?;
            }
            self.publishing = free;
        }
        Ok(())
    }

    fn on_listener(&mut self, index: usize, now: Duration) {
        for _ in 0..ACCEPT_TURN {
            if self.conns.len() >= self.max_connections {
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
            match self.pool.name(ip) {
                Some(name) => Target::Name(name),
                None => {
                    let who = Some((Kind::Tcp, from, to));
                    self.record(
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
        let verdict = self.rules.judge(&target, port);
        let who = Some((Kind::Tcp, from, to));
        let mut observed = false;
        if let Some(reason) = verdict.against {
            self.record(
                &target.to_string(),
                port,
                reason,
                !self.rules.observe,
                who,
                now,
            );
            if !self.rules.observe {
                return reset(&fd);
            }
            observed = true;
        }
        if self.config.budget.exhausted() && !self.rules.observe {
            self.record(&target.to_string(), port, Reason::Budget, true, who, now);
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
        if let Some(key) = self.admit(conn) {
            self.begin_dial(key, now);
            self.advance(key, now);
        }
    }

    fn on_published(&mut self, index: usize, now: Duration) {
        for _ in 0..ACCEPT_TURN {
            if self.dialers4.is_empty() || self.conns.len() >= self.max_connections {
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
                    if let Some(key) = self.admit(conn) {
                        self.dial_world(key, port, now);
                        self.advance(key, now);
                    }
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

    fn admit(&mut self, conn: Conn) -> Option<Key> {
        let key = self.conns.insert(conn);
        let fd = &self.conns.get_mut(key)?.near.fd;
        if self
            .epoll
            .add(fd.as_fd(), key.token(tag::NEAR), SOCKET_EVENTS)
            .is_err()
        {
            self.conns.remove(key);
            return None;
        }
        Some(key)
    }

    fn on_side(&mut self, key: Key, near: bool, what: u32) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let side = if near {
            Some(&mut conn.near)
        } else {
            conn.far.as_mut()
        };
        // Without a far side the event is for a proxy that is still being asked.
        let Some(side) = side else {
            return self.enqueue(key);
        };
        // Errors and hang-ups show themselves when the socket is next used.
        let gone = what & (epoll::ERROR | epoll::HANG_UP) != 0;
        side.readable |= gone || what & (epoll::READ | epoll::READ_CLOSED) != 0;
        side.writable |= gone || what & epoll::WRITE != 0;
        conn.failed |= what & epoll::ERROR != 0;
        self.enqueue(key);
    }

    pub(super) fn enqueue(&mut self, key: Key) {
        if let Some(conn) = self.conns.get_mut(key)
            && !std::mem::replace(&mut conn.queued, true)
        {
            self.ready.push_back(key);
        }
    }

    pub(super) fn schedule(&mut self, key: Key, at: Option<Duration>) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        if let Some(at) = at
            && conn.timer.is_none_or(|old| at < old)
        {
            conn.timer = Some(at);
            self.timers.push(Reverse((at, key)));
        }
    }

    fn run_timers(&mut self, now: Duration) {
        while let Some(Reverse((at, key))) = self.timers.peek().copied() {
            if at > now {
                break;
            }
            self.timers.pop();
            if let Some(conn) = self.conns.get_mut(key)
                && conn.timer == Some(at)
            {
                conn.timer = None;
                self.enqueue(key);
            }
        }
    }

    fn on_log(&mut self, now: Duration) {
        let mut buffer = [0u8; 8192];
        for _ in 0..ACCEPT_TURN {
            let Some(log) = &self.log else { return };
            const DONT_WAIT: i32 = 0x40;
            let Ok(got) = netlink::receive(log.as_fd(), &mut buffer, DONT_WAIT) else {
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
                let host = match self.pool.name(ip) {
                    Some(name) => name.to_string(),
                    None => ip.to_string(),
                };
                let who = kind.map(|kind| (kind, attempt.from, attempt.to));
                self.record(&host, attempt.to.port(), reason, true, who, now);
            }
        }
    }

    /// Records a refusal, and who tried when it is the first of its kind.
    pub(super) fn record(
        &mut self,
        host: &str,
        port: u16,
        reason: Reason,
        enforced: bool,
        who: Option<(Kind, SocketAddr, SocketAddr)>,
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

    fn resolved(&mut self, finished: Finished, now: Duration) {
        let key = match &finished {
            Finished::Lookup(key, _) | Finished::Raw(key, _) => *key,
        };
        for waiter in self.waiters.remove(&key).unwrap_or_default() {
            match (waiter, &finished) {
                (Waiter::Dial(conn), Finished::Lookup(_, found)) => {
                    self.dial_found(conn, found.clone(), now);
                    self.enqueue(conn);
                }
                (Waiter::Query(query, client), Finished::Lookup(_, found)) => {
                    self.answer_lookup(&query, client, found, now);
                }
                (Waiter::Query(query, client), Finished::Raw(_, answer)) => {
                    self.answer_relay(&query, client, answer.as_deref());
                }
                (Waiter::Dial(conn), Finished::Raw(..)) => self.enqueue(conn),
            }
        }
    }

    /// Counts what every open connection has passed, before everything is closed.
    fn settle_all(&mut self) {
        for key in self.conns.keys() {
            if let Some(conn) = self.conns.get_mut(key) {
                let _ = conn.settle(&self.shared);
            }
        }
    }
}

/// Reported once per change; the connection remembers what it was told.
pub const SOCKET_EVENTS: u32 = epoll::READ | epoll::WRITE | epoll::READ_CLOSED | epoll::EDGE;

fn watch(epoll: &Epoll, fd: &OwnedFd, token: u64, on: bool) -> io::Result<()> {
    if on {
        epoll.add(fd.as_fd(), token, epoll::READ)
    } else {
        epoll.remove(fd.as_fd())
    }
}

/// Closes with a reset, so that the program notices at once.
pub fn reset(fd: &OwnedFd) {
    let _ = inet::reset_on_close(fd.as_fd());
}

fn exhausted(error: &io::Error) -> bool {
    const ENOMEM: i32 = 12;
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const ENOBUFS: i32 = 105;
    matches!(
        error.raw_os_error(),
        Some(ENOMEM | ENFILE | EMFILE | ENOBUFS)
    )
}
