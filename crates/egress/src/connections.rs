//! The connections of a gate: taken in, moved on when something happens to them, and ended.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use substrate_sys::epoll;
use substrate_sys::inet::Kind;

use super::conn::{At, Conn, Ending, Next};
use super::dial::{Dial, Dialled, Dialler, Origin};
use super::flow::{Pipes, Side};
use super::record::Reason;
use super::resolver::Found;
use super::services::{Ends, SOCKET_EVENTS, Services, reset, tag};
use super::slab::{Key, Slab};

/// Every connection, and what they take turns with.
pub struct Connections {
    conns: Slab<Conn>,
    dialler: Dialler,
    pipes: Pipes,
    ready: VecDeque<Key>,
    timers: BinaryHeap<Reverse<(Duration, Key)>>,
    buffer: Vec<u8>,
}

impl Connections {
    /// None yet; `dialers` are sockets with which ports of the world are dialled.
    pub fn new(pipes: usize, dialers: Vec<OwnedFd>, services: &Services) -> Connections {
        Connections {
            conns: Slab::default(),
            dialler: Dialler::new(dialers, services),
            pipes: Pipes::new(pipes),
            ready: VecDeque::new(),
            timers: BinaryHeap::new(),
            buffer: vec![0; 64 * 1024],
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.conns.len()
    }

    /// Whether nothing that the world sent is still under way.
    pub fn have_sent_all(&self) -> bool {
        self.conns.iter().all(Conn::has_sent_all)
    }

    /// Whether a port of the world can be dialled now.
    pub fn reach_world(&self) -> bool {
        self.dialler.reaches_world()
    }

    /// The next moment at which one of them has to be looked at; at once when one waits for its turn.
    pub fn next_deadline(&self) -> Option<Duration> {
        match self.ready.is_empty() {
            true => self.timers.peek().map(|Reverse((at, _))| *at),
            false => Some(Duration::ZERO),
        }
    }

    /// Takes one in and begins to dial for it.
    pub fn open(&mut self, services: &mut Services, conn: Conn, now: Duration) {
        let key = self.conns.insert(conn);
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let (fd, token) = (conn.near.fd.as_fd(), key.token(tag::NEAR));
        if services.epoll.add(fd, token, SOCKET_EVENTS).is_err() {
            self.conns.remove(key);
            return;
        }
        let mut dial = Dial::new(key, now);
        let dialled = self.dialler.begin(services, &mut dial, &conn.origin, now);
        conn.dial = Some(dial);
        self.after_dial(services, key, dialled, now);
        self.advance(services, key, now);
    }

    /// Something happened to the accepted or to the dialled side.
    pub fn on_side(&mut self, key: Key, near: bool, what: u32) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let side = if near {
            Some(&mut conn.near)
        } else {
            conn.far.as_mut()
        };
        // Without a far side the event is for a proxy that is still being asked.
        if let Some(side) = side {
            // Errors and hang-ups show themselves when the socket is next used.
            let gone = what & (epoll::ERROR | epoll::HANG_UP) != 0;
            side.readable |= gone || what & (epoll::READ | epoll::READ_CLOSED) != 0;
            side.writable |= gone || what & epoll::WRITE != 0;
            conn.failed |= what & epoll::ERROR != 0;
        }
        self.enqueue(key);
    }

    /// A connect succeeded or failed.
    pub fn on_attempt(&mut self, services: &mut Services, attempt: Key, now: Duration) {
        let Some(key) = self.dialler.connection(attempt) else {
            return;
        };
        self.with_dial(services, key, now, |dialler, services, dial, conn| {
            dialler.attempted(services, dial, attempt, &conn.origin, now)
        });
        self.enqueue(key);
    }

    /// The host said where a name leads.
    pub fn on_found(&mut self, services: &mut Services, key: Key, found: Found, now: Duration) {
        self.with_dial(services, key, now, |dialler, services, dial, conn| {
            dialler.found(services, dial, &conn.origin, found, now)
        });
        self.enqueue(key);
    }

    /// Looks at those whose time has come.
    pub fn run_timers(&mut self, now: Duration) {
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

    /// Gives each that has something to do its turn.
    pub fn run_ready(&mut self, services: &mut Services, now: Duration) {
        for _ in 0..self.ready.len() {
            let Some(key) = self.ready.pop_front() else {
                break;
            };
            if let Some(conn) = self.conns.get_mut(key) {
                conn.queued = false;
            }
            self.advance(services, key, now);
        }
    }

    /// Cuts those that the lists in force do not allow.
    pub fn judge_again(&mut self, services: &mut Services, now: Duration) {
        for key in self.conns.keys() {
            let Some(conn) = self.conns.get_mut(key) else {
                continue;
            };
            let Origin::World { target, port, .. } = &conn.origin else {
                continue;
            };
            if let Some(reason) = services.rules.judge(target, *port).against
                && !services.rules.observe
            {
                self.refuse(services, key, reason, now);
            }
        }
    }

    /// Counts what every open connection has passed, before everything is closed.
    pub fn settle_all(&mut self, services: &Services) {
        for key in self.conns.keys() {
            if let Some(conn) = self.conns.get_mut(key) {
                let _ = conn.settle(&services.shared);
            }
        }
    }

    fn enqueue(&mut self, key: Key) {
        if let Some(conn) = self.conns.get_mut(key)
            && !std::mem::replace(&mut conn.queued, true)
        {
            self.ready.push_back(key);
        }
    }

    fn schedule(&mut self, key: Key, at: Option<Duration>) {
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

    /// Has something done with the dial of a connection, if it is still under way.
    fn with_dial(
        &mut self,
        services: &mut Services,
        key: Key,
        now: Duration,
        what: impl FnOnce(&mut Dialler, &mut Services, &mut Dial, &Conn) -> Dialled,
    ) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let Some(mut dial) = conn.dial.take() else {
            return;
        };
        let dialled = what(&mut self.dialler, services, &mut dial, conn);
        conn.dial = Some(dial);
        self.after_dial(services, key, dialled, now);
    }

    fn after_dial(&mut self, services: &mut Services, key: Key, dialled: Dialled, now: Duration) {
        match dialled {
            Dialled::Going => {}
            Dialled::Connected(fd) => {
                if let Some(conn) = self.conns.get_mut(key) {
                    conn.dial = None;
                    conn.far = Some(Side::new(fd));
                }
            }
            Dialled::Refused(reason) => self.refuse(services, key, reason, now),
            Dialled::Unreachable(why) => self.give_up(services, key, &why),
            Dialled::Broken => self.close(services, key, true),
        }
    }

    /// Does whatever can be done for a connection now.
    fn advance(&mut self, services: &mut Services, key: Key, now: Duration) {
        self.with_dial(services, key, now, |dialler, services, dial, conn| {
            dialler.advance(services, dial, &conn.origin, conn.forwards(), now)
        });
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let observe = services.rules.observe;
        let free = observe || matches!(conn.origin, Origin::Published { .. });
        let mut at = At {
            pipes: &mut self.pipes,
            budget: (!free).then_some(&*services.config.budget),
            rules: &services.rules,
            buffer: &mut self.buffer,
            now,
        };
        let undecided = !conn.is_decided();
        let next = conn.step(&mut at);
        // A proxy may wait to be told what kind of client this is.
        let decided = undecided && conn.is_decided() && conn.dial.is_some();
        let passed = conn.settle(&services.shared);
        let (timer, slowed) = (conn.next_timer(), conn.is_slowed());
        if observe {
            count_observed(services, conn, passed, now);
        }
        match next {
            Next::Wait => {
                if slowed && let Some(rate) = services.config.budget.rate() {
                    services.shared.ledger().rate_limited(rate);
                }
                self.schedule(key, timer);
                if decided {
                    self.enqueue(key);
                }
            }
            Next::Again => self.enqueue(key),
            Next::Finished => self.close(services, key, false),
            Next::Abort => self.close(services, key, true),
            Next::Refuse(reason) => self.refuse(services, key, reason, now),
            Next::Exhausted(bytes) => {
                let budget = &services.config.budget;
                let (used, total) = (budget.used(), budget.total().unwrap_or(0));
                services.shared.ledger().budget_exceeded(bytes, used, total);
                self.refuse(services, key, Reason::Budget, now);
            }
        }
    }

    /// Records why a connection is refused, tells the client in its own protocol, and ends it.
    /// In `observe` it is only recorded, and goes on unchecked.
    fn refuse(&mut self, services: &mut Services, key: Key, reason: Reason, now: Duration) {
        let observe = services.rules.observe;
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let Some((host, port, who)) = tried(&conn.origin) else {
            return;
        };
        services.record(&host, port, reason.clone(), !observe, who, now);
        if observe {
            conn.stop_checking();
            return self.enqueue(key);
        }
        services.config.budget.give_back(conn.take_withheld());
        let text = format!("{host}:{port} refused: {reason}");
        match conn.refuse(&reason, &text, now) {
            Ending::Close => return self.close(services, key, true),
            Ending::Farewell => self.drop_far(services, key),
            Ending::Cut => {}
        }
        self.enqueue(key);
    }

    /// Gives a connection up that cannot be made.
    fn give_up(&mut self, services: &Services, key: Key, why: &str) {
        // A published port where nothing listens yet is for its client to notice.
        if let Some(conn) = self.conns.get_mut(key)
            && let Origin::World { target, port, .. } = &conn.origin
        {
            // The number of the error is of no use to a person.
            let why = why.split(" (os error").next().unwrap_or(why);
            let text = format!("{target}:{port}: {why}");
            services.shared.ledger().unreachable(text);
            if !services.rules.observe {
                // Taken to look at, and never passed.
                services.config.budget.give_back(conn.up.moved as usize);
            }
        }
        self.close(services, key, true);
    }

    /// Ends a connection; `abruptly` both sides get a reset instead of an end.
    fn close(&mut self, services: &Services, key: Key, abruptly: bool) {
        if let Some(conn) = self.conns.get_mut(key) {
            if let Some(dial) = conn.dial.take() {
                self.dialler.forget(services, dial, &conn.origin);
            }
            if abruptly {
                reset(&conn.near.fd);
                conn.far.as_ref().inspect(|far| reset(&far.fd));
            }
        }
        self.drop_far(services, key);
        self.conns.remove(key);
    }

    /// Gives the far side up; a dialer goes back to where it came from.
    fn drop_far(&mut self, services: &Services, key: Key) {
        if let Some(conn) = self.conns.get_mut(key)
            && let Some(far) = conn.far.take()
            && matches!(conn.origin, Origin::Published { .. })
        {
            self.dialler.take_back(services, far.fd);
        }
    }
}

/// What a program of the world tried.
fn tried(origin: &Origin) -> Option<(String, u16, Ends)> {
    match origin {
        Origin::World {
            target,
            port,
            from,
            to,
            ..
        } => Some((target.to_string(), *port, Some((Kind::Tcp, *from, *to)))),
        Origin::Published { .. } => None,
    }
}

/// In `observe` bytes pass unasked; what would have been too many is recorded.
fn count_observed(services: &mut Services, conn: &Conn, passed: u64, now: Duration) {
    if let Some((host, port, who)) = tried(&conn.origin)
        && services.config.budget.count(passed)
    {
        services.record(&host, port, Reason::Budget, false, who, now);
    }
}
