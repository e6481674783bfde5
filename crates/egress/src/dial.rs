//! Dialling on the host: find the addresses, refuse those that must not be reached, try the
//! rest side by side, and speak to the user's proxy where there is one.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use substrate_sys::epoll;
use substrate_sys::inet::{self, Flag, Kind};

use super::conn::{Check, Origin};
use super::engine::{Engine, SOCKET_EVENTS, tag};
use super::flow::Side;
use super::http::Forward;
use super::proxy::Proxy;
use super::record::Reason;
use super::resolver::{Begun, Found};
use super::rules::Target;
use super::serve_dns::Waiter;
use super::slab::Key;
use super::special;

/// The head start of each address before the next one is tried as well (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(250);
/// How long a dial may take in all.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the list of this machine's own addresses is believed.
const OWN_ADDRESSES: Duration = Duration::from_secs(10);
const MAX_PROXY_REPLY: usize = 16 * 1024;

/// A dial under way.
#[derive(Debug)]
pub struct Dial {
    addresses: VecDeque<SocketAddr>,
    attempts: Vec<Key>,
    next_at: Option<Duration>,
    deadline: Duration,
    resolving: bool,
    proxy: Option<Proxy>,
    handshake: Option<Handshake>,
    error: Option<io::Error>,
}

#[derive(Debug)]
struct Handshake {
    fd: OwnedFd,
    request: Vec<u8>,
    sent: usize,
}

/// A connect that has not finished.
#[derive(Debug)]
pub struct Attempt {
    conn: Key,
    fd: OwnedFd,
}

impl Dial {
    fn new(now: Duration) -> Dial {
        Dial {
            addresses: VecDeque::new(),
            attempts: Vec::new(),
            next_at: None,
            deadline: now + PATIENCE,
            resolving: false,
            proxy: None,
            handshake: None,
            error: None,
        }
    }

    /// The next moment at which time alone changes something.
    pub fn next_timer(&self) -> Option<Duration> {
        let next = self.next_at.filter(|_| !self.addresses.is_empty());
        Some(next.map_or(self.deadline, |n| n.min(self.deadline)))
    }

    /// How requests must be put, when they go to a forwarding proxy.
    pub fn forward(&self, target: &Target, port: u16) -> Option<Forward> {
        let proxy = self.proxy.as_ref().filter(|_| port == 80)?;
        let origin = match target {
            Target::Address(IpAddr::V6(v6)) => format!("http://[{v6}]"),
            other => format!("http://{other}"),
        };
        Some(Forward {
            origin,
            authorization: proxy.authorization.clone(),
        })
    }
}

impl Engine {
    /// Begins to dial for a connection of the world.
    pub(super) fn begin_dial(&mut self, key: Key, now: Duration) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let Origin::World { target, port, .. } = &conn.origin else {
            return;
        };
        let (target, port) = (target.clone(), *port);
        let mut dial = Dial::new(now);
        dial.proxy = match &target {
            Target::Name(name) if self.config.resolve.iter().any(|(n, _)| **name == **n) => None,
            target => self.config.proxies.choose(target, port).cloned(),
        };
        let name = match (&dial.proxy, &target) {
            (Some(proxy), _) => proxy.host.clone(),
            (None, target) => target.to_string(),
        };
        dial.resolving = true;
        conn.dial = Some(dial);
        let begun = match name.parse::<IpAddr>() {
            Ok(ip) => Begun::Ready(Found::Addresses {
                list: vec![ip],
                fixed: false,
            }),
            Err(_) => self.resolver.look_up(&name, &self.epoll, now),
        };
        match begun {
            Begun::Ready(found) => self.dial_found(key, found, now),
            Begun::Pending(job) => self.waiters.entry(job).or_default().push(Waiter::Dial(key)),
        }
    }

    /// The addresses are known: sort out those that must not be dialled.
    pub(super) fn dial_found(&mut self, key: Key, found: Found, now: Duration) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let (
            Origin::World {
                target,
                port,
                observed,
                ..
            },
            Some(dial),
        ) = (&conn.origin, &mut conn.dial)
        else {
            return;
        };
        let (target, port, observed) = (target.clone(), *port, *observed);
        dial.resolving = false;
        let (list, fixed) = match found {
            Found::Addresses { list, fixed } => (list, fixed),
            Found::NoName => return self.unreachable(key, "there is no such name"),
            Found::Failed => return self.unreachable(key, "no resolver of the host answered"),
        };
        if let Some(proxy) = &dial.proxy {
            let port = proxy.port;
            dial.addresses = interleave(list)
                .map(|ip| SocketAddr::new(ip, port))
                .collect();
            return self.next_attempt(key, now);
        }
        let mut against = None;
        let mut good = Vec::new();
        for ip in list {
            match self.judge_address(&target, ip, port, fixed, now) {
                None => good.push(ip),
                Some(reason) => against = against.or(Some((ip, reason))),
            }
        }
        if good.is_empty()
            && let Some((ip, reason)) = against
        {
            if !self.rules.observe {
                return self.refuse_conn(key, reason, now);
            }
            if !observed {
                self.record(&target.to_string(), port, reason, false, None, now);
            }
            good.push(ip);
        }
        let Some(dial) = self.conns.get_mut(key).and_then(|c| c.dial.as_mut()) else {
            return;
        };
        dial.addresses = interleave(good)
            .map(|ip| SocketAddr::new(ip, port))
            .collect();
        self.next_attempt(key, now);
    }

    /// What speaks against dialling this very address.
    fn judge_address(
        &mut self,
        target: &Target,
        ip: IpAddr,
        port: u16,
        fixed: bool,
        now: Duration,
    ) -> Option<Reason> {
        if let Some(denied) = self.rules.denies_address(ip, port) {
            return Some(denied);
        }
        let listed = fixed
            || matches!(target, Target::Name(name) if &**name == "localhost")
            || self.rules.lists_address(ip, port);
        if listed {
            return None;
        }
        if let Some(kind) = special::kind(ip) {
            return Some(Reason::SpecialAddress(ip, kind));
        }
        if self.own_addresses.1.is_empty() || self.own_addresses.0 + OWN_ADDRESSES < now {
            self.own_addresses = (now, inet::interface_addresses().unwrap_or_default());
        }
        let own = self.own_addresses.1.contains(&ip);
        own.then_some(Reason::SpecialAddress(ip, "this machine's own"))
    }

    /// Starts the next connect that can be started.
    fn next_attempt(&mut self, key: Key, now: Duration) {
        loop {
            let Some(dial) = self.conns.get_mut(key).and_then(|c| c.dial.as_mut()) else {
                return;
            };
            let Some(address) = dial.addresses.pop_front() else {
                if dial.attempts.is_empty() && dial.handshake.is_none() {
                    let error = dial.error.take().map(|e| e.to_string());
                    self.unreachable(key, error.as_deref().unwrap_or("it has no address"));
                }
                return;
            };
            dial.next_at = Some(now + HEAD_START);
            let begun = inet::socket(Kind::Tcp, address.is_ipv6()).and_then(|fd| {
                inet::set(fd.as_fd(), Flag::NoDelay)?;
                inet::set(fd.as_fd(), Flag::KeepAlive)?;
                inet::connect(fd.as_fd(), &address)?;
                Ok(fd)
            });
            match begun.and_then(|fd| self.watch_attempt(key, fd)) {
                Ok(()) => return,
                Err(e) => {
                    if let Some(dial) = self.conns.get_mut(key).and_then(|c| c.dial.as_mut()) {
                        dial.error = Some(e);
                    }
                }
            }
        }
    }

    fn watch_attempt(&mut self, key: Key, fd: OwnedFd) -> io::Result<()> {
        let attempt = self.attempts.insert(Attempt { conn: key, fd });
        let Some(stored) = self.attempts.get_mut(attempt) else {
            return Ok(());
        };
        let token = attempt.token(tag::ATTEMPT);
        let watched = self
            .epoll
            .add(stored.fd.as_fd(), token, epoll::WRITE | epoll::EDGE);
        if let Err(e) = watched {
            self.attempts.remove(attempt);
            return Err(e);
        }
        if let Some(dial) = self.conns.get_mut(key).and_then(|c| c.dial.as_mut()) {
            dial.attempts.push(attempt);
        }
        Ok(())
    }

    /// A connect succeeded or failed.
    pub(super) fn on_attempt(&mut self, attempt: Key, now: Duration) {
        let Some(Attempt { conn: key, fd }) = self.attempts.remove(attempt) else {
            return;
        };
        let result =
            inet::take_error(fd.as_fd()).and_then(|()| inet::peer_address(fd.as_fd()).map(|_| ()));
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let published = matches!(conn.origin, Origin::Published { .. });
        let Some(dial) = conn.dial.as_mut() else {
            return;
        };
        dial.attempts.retain(|k| *k != attempt);
        match result {
            Err(e) if published => {
                dial.error = Some(e);
                self.return_dialer(fd);
                self.try_world(key);
            }
            Err(e) => {
                dial.error = Some(e);
                self.next_attempt(key, now);
            }
            Ok(()) => {
                for other in std::mem::take(&mut dial.attempts) {
                    self.attempts.remove(other);
                }
                dial.addresses.clear();
                if dial.proxy.is_some() {
                    dial.handshake = Some(Handshake {
                        fd,
                        request: Vec::new(),
                        sent: 0,
                    });
                } else {
                    self.connected(key, fd);
                }
            }
        }
        self.enqueue(key);
    }

    fn connected(&mut self, key: Key, fd: OwnedFd) {
        // Still registered from the attempt or the handshake; the token must change.
        if self
            .epoll
            .modify(fd.as_fd(), key.token(tag::FAR), SOCKET_EVENTS)
            .is_err()
        {
            return self.close(key, true);
        }
        if let Some(conn) = self.conns.get_mut(key) {
            conn.dial = None;
            conn.far = Some(Side::new(fd));
        }
    }

    /// Moves a dial on as far as time and the proxy let it.
    pub(super) fn advance_dial(&mut self, key: Key, now: Duration) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let Some(dial) = &mut conn.dial else { return };
        if dial.deadline <= now {
            return self.unreachable(key, "it did not answer in time");
        }
        if dial.handshake.is_some() {
            // Only the client's first bytes tell whether its requests can be forwarded.
            let forwarding = match (&conn.check, &conn.origin) {
                (Check::Undecided, Origin::World { port: 80, .. }) => return,
                (Check::Http(_), Origin::World { port: 80, .. }) => true,
                _ => false,
            };
            return self.shake_hands(key, forwarding);
        }
        let due = dial.next_at.is_some_and(|at| at <= now);
        if due && !dial.resolving && !dial.addresses.is_empty() {
            self.next_attempt(key, now);
        }
    }

    /// Asks the proxy for a tunnel and waits for its answer, taking not one byte more.
    fn shake_hands(&mut self, key: Key, forwarding: bool) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let (Some(dial), Origin::World { target, port, .. }) = (&mut conn.dial, &conn.origin)
        else {
            return;
        };
        let (Some(mut hands), Some(proxy)) = (dial.handshake.take(), &dial.proxy) else {
            return;
        };
        if forwarding {
            return self.connected(key, hands.fd);
        }
        if hands.request.is_empty() {
            hands.request = proxy.connect_request(target, *port);
            let token = key.token(tag::FAR);
            if self
                .epoll
                .modify(hands.fd.as_fd(), token, SOCKET_EVENTS)
                .is_err()
            {
                return self.close(key, true);
            }
        }
        while hands.sent < hands.request.len() {
            match inet::send(hands.fd.as_fd(), &hands.request[hands.sent..]) {
                Ok(n) => hands.sent += n,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    dial.handshake = Some(hands);
                    return;
                }
                Err(e) => return self.unreachable(key, &format!("the proxy: {e}")),
            }
        }
        let mut reply = vec![0u8; MAX_PROXY_REPLY];
        match inet::receive(hands.fd.as_fd(), &mut reply, true) {
            Ok(n) => {
                let end = reply[..n].windows(4).position(|w| w == b"\r\n\r\n");
                match end {
                    Some(end) => {
                        let status = reply[..end].get(9..12).unwrap_or(b"???");
                        if status != b"200" {
                            let status = String::from_utf8_lossy(status).into_owned();
                            return self.unreachable(key, &format!("the proxy said {status}"));
                        }
                        let _ = inet::receive(hands.fd.as_fd(), &mut reply[..end + 4], false);
                        self.connected(key, hands.fd);
                    }
                    None if n == 0 || n == MAX_PROXY_REPLY => {
                        self.unreachable(key, "the proxy's answer makes no sense");
                    }
                    None => dial.handshake = Some(hands),
                }
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => dial.handshake = Some(hands),
            Err(e) => self.unreachable(key, &format!("the proxy: {e}")),
        }
    }

    /// Gives a connection up that cannot be made.
    fn unreachable(&mut self, key: Key, why: &str) {
        if let Some(conn) = self.conns.get_mut(key) {
            // A published port where nothing listens yet is for its client to notice.
            if let Origin::World { target, port, .. } = &conn.origin {
                // The number of the error is of no use to a person.
                let why = why.split(" (os error").next().unwrap_or(why);
                let text = format!("{target}:{port}: {why}");
                self.shared.ledger().unreachable(text);
                if !self.rules.observe {
                    // Taken to look at, and never passed.
                    self.config.budget.give_back(conn.up.moved as usize);
                }
            }
        }
        self.close(key, true);
    }

    /// Forgets a dial; a dialer of the world goes back to where it came from.
    pub(super) fn drop_dial(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let published = matches!(conn.origin, Origin::Published { .. });
        let Some(dial) = conn.dial.take() else { return };
        for attempt in dial.attempts {
            if let Some(attempt) = self.attempts.remove(attempt)
                && published
            {
                self.return_dialer(attempt.fd);
            }
        }
    }

    /// Dials a port of the world itself, with one of the sockets that were made inside.
    pub(super) fn dial_world(&mut self, key: Key, port: u16, now: Duration) {
        let Some(conn) = self.conns.get_mut(key) else {
            return;
        };
        let mut dial = Dial::new(now);
        let both = [
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ];
        dial.addresses = both.map(|ip| SocketAddr::new(ip, port)).into();
        conn.dial = Some(dial);
        self.try_world(key);
    }

    fn try_world(&mut self, key: Key) {
        loop {
            let Some(dial) = self.conns.get_mut(key).and_then(|c| c.dial.as_mut()) else {
                return;
            };
            let Some(address) = dial.addresses.pop_front() else {
                let error = dial.error.take().map(|e| e.to_string());
                return self.unreachable(key, error.as_deref().unwrap_or("no dialer is free"));
            };
            // A socket whose last port still lingers at that address cannot connect there yet;
            // another one has another port.
            for _ in 0..self.dialers(address.is_ipv6()).len() {
                let Some(fd) = self.dialers(address.is_ipv6()).pop_front() else {
                    break;
                };
                let begun = inet::connect(fd.as_fd(), &address);
                match begun {
                    Ok(_) => {
                        if let Err(e) = self.watch_attempt(key, fd) {
                            self.unreachable(key, &e.to_string());
                        }
                        return;
                    }
                    Err(e) => {
                        let again = e.kind() == io::ErrorKind::AddrNotAvailable;
                        self.return_dialer(fd);
                        if let Some(dial) = self.conns.get_mut(key).and_then(|c| c.dial.as_mut()) {
                            dial.error = Some(e);
                        }
                        if !again {
                            break;
                        }
                    }
                }
            }
        }
    }

    fn dialers(&mut self, v6: bool) -> &mut VecDeque<OwnedFd> {
        if v6 {
            &mut self.dialers6
        } else {
            &mut self.dialers4
        }
    }

    /// Puts a dialer back, unconnected.
    pub(super) fn return_dialer(&mut self, fd: OwnedFd) {
        let _ = self.epoll.remove(fd.as_fd());
        let _ = inet::disconnect(fd.as_fd());
        let _ = inet::take_error(fd.as_fd());
        let v6 = inet::local_address(fd.as_fd()).is_ok_and(|a| a.is_ipv6());
        self.dialers(v6).push_back(fd);
    }
}

/// IPv6 first, then the families in turn, each in the order given.
fn interleave(list: Vec<IpAddr>) -> impl Iterator<Item = IpAddr> {
    let (v6, v4): (Vec<_>, Vec<_>) = list.into_iter().partition(IpAddr::is_ipv6);
    let (mut v6, mut v4) = (v6.into_iter(), v4.into_iter());
    std::iter::from_fn(move || {
        std::mem::swap(&mut v6, &mut v4);
        v4.next().or_else(|| v6.next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        let ip = |t: &str| t.parse::<IpAddr>().unwrap();
        let list = ["1.1.1.1", "1.1.1.2", "1.1.1.3", "::1", "::2"]
            .map(ip)
            .to_vec();
        let order: Vec<_> = interleave(list).map(|i| i.to_string()).collect();
        assert_eq!(order, ["::1", "1.1.1.1", "::2", "1.1.1.2", "1.1.1.3"]);
        assert_eq!(interleave(vec![]).count(), 0);
    }
}
