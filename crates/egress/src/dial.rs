//! Dialling on the host: find the addresses, refuse those that must not be reached, try the
//! rest side by side, and speak to the user's proxy where there is one.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use substrate_sys::epoll;
use substrate_sys::inet::{self, Flag, Kind};

use super::http::Forward;
use super::proxy::Proxy;
use super::record::Reason;
use super::resolver::{Begun, Found};
use super::rules::Target;
use super::services::{SOCKET_EVENTS, Services, Waiter, tag};
use super::slab::{Key, Slab};
use super::special;

/// The head start of each address before the next one is tried as well (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(250);
/// How long a dial may take in all.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the list of this machine's own addresses is believed.
const OWN_ADDRESSES: Duration = Duration::from_secs(10);
const MAX_PROXY_REPLY: usize = 16 * 1024;

/// Who opened the connection.
#[derive(Debug)]
pub enum Origin {
    /// A program of the world.
    World {
        /// Where it wants to go.
        target: Target,
        /// The port there.
        port: u16,
        /// Its own address, in the world.
        from: SocketAddr,
        /// What it dialled, in the world.
        to: SocketAddr,
        /// It would have been refused.
        observed: bool,
    },
    /// A program of the host, through a published port.
    Published {
        /// The port.
        port: u16,
    },
}

/// How far a dial has come.
#[derive(Debug)]
pub enum Dialled {
    /// It waits for something.
    Going,
    /// Here is the other side.
    Connected(OwnedFd),
    /// Nothing that may be reached was found.
    Refused(Reason),
    /// Nobody was reached, and why.
    Unreachable(String),
    /// The kernel refused something that has to work.
    Broken,
}

impl Dialled {
    fn unreachable(why: &str) -> Dialled {
        Dialled::Unreachable(why.to_owned())
    }
}

/// A dial under way.
#[derive(Debug)]
pub struct Dial {
    conn: Key,
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
struct Attempt {
    conn: Key,
    fd: OwnedFd,
}

impl Dial {
    /// One that has not begun, for this connection.
    pub fn new(conn: Key, now: Duration) -> Dial {
        Dial {
            conn,
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

/// What all dials of a gate share.
#[derive(Debug)]
pub struct Dialler {
    attempts: Slab<Attempt>,
    /// Sockets of the world with which its ports can be dialled, for each family.
    dialers: [VecDeque<OwnedFd>; 2],
    own_addresses: (Duration, Vec<IpAddr>),
}

impl Dialler {
    /// With these sockets of the world.
    pub fn new(dialers: Vec<OwnedFd>, services: &Services) -> Dialler {
        let mut dialler = Dialler {
            attempts: Slab::default(),
            dialers: Default::default(),
            own_addresses: (Duration::ZERO, Vec::new()),
        };
        for fd in dialers {
            dialler.take_back(services, fd);
        }
        dialler
    }

    /// Whether a port of the world can be dialled now.
    pub fn reaches_world(&self) -> bool {
        !self.dialers[0].is_empty()
    }

    /// Begins to dial.
    pub fn begin(
        &mut self,
        services: &mut Services,
        dial: &mut Dial,
        origin: &Origin,
        now: Duration,
    ) -> Dialled {
        let (target, port) = match origin {
            Origin::World { target, port, .. } => (target, *port),
            Origin::Published { port } => {
                let both = [
                    IpAddr::V4(Ipv4Addr::LOCALHOST),
                    IpAddr::V6(Ipv6Addr::LOCALHOST),
                ];
                dial.addresses = both.map(|ip| SocketAddr::new(ip, *port)).into();
                return self.try_world(services, dial);
            }
        };
        let (resolve, proxies) = (&services.config.resolve, &services.config.proxies);
        dial.proxy = match target {
            Target::Name(name) if resolve.iter().any(|(n, _)| **name == **n) => None,
            target => proxies.choose(target, port).cloned(),
        };
        let name = match &dial.proxy {
            Some(proxy) => proxy.host.clone(),
            None => target.to_string(),
        };
        dial.resolving = true;
        let begun = match name.parse::<IpAddr>() {
            Ok(ip) => Begun::Ready(Found::Addresses {
                list: vec![ip],
                fixed: false,
            }),
            Err(_) => services.resolver.look_up(&name, &services.epoll, now),
        };
        match begun {
            Begun::Ready(found) => self.found(services, dial, origin, found, now),
            Begun::Pending(job) => {
                let waiting = services.waiters.entry(job).or_default();
                waiting.push(Waiter::Dial(dial.conn));
                Dialled::Going
            }
        }
    }

    /// The addresses are known: sort out those that must not be dialled.
    pub fn found(
        &mut self,
        services: &mut Services,
        dial: &mut Dial,
        origin: &Origin,
        found: Found,
        now: Duration,
    ) -> Dialled {
        let Origin::World {
            target,
            port,
            observed,
            ..
        } = origin
        else {
            return Dialled::Going;
        };
        dial.resolving = false;
        let (list, fixed) = match found {
            Found::Addresses { list, fixed } => (list, fixed),
            Found::NoName => return Dialled::unreachable("there is no such name"),
            Found::Failed => return Dialled::unreachable("no resolver of the host answered"),
        };
        if let Some(proxy) = &dial.proxy {
            let port = proxy.port;
            let addresses = interleave(list).map(|ip| SocketAddr::new(ip, port));
            dial.addresses = addresses.collect();
            return self.next_attempt(services, dial, now);
        }
        let mut against = None;
        let mut good = Vec::new();
        for ip in list {
            match self.judge_address(services, target, ip, *port, fixed, now) {
                None => good.push(ip),
                Some(reason) => against = against.or(Some((ip, reason))),
            }
        }
        if good.is_empty()
            && let Some((ip, reason)) = against
        {
            if !services.rules.observe {
                return Dialled::Refused(reason);
            }
            if !observed {
                services.record(&target.to_string(), *port, reason, false, None, now);
            }
            good.push(ip);
        }
        let addresses = interleave(good).map(|ip| SocketAddr::new(ip, *port));
        dial.addresses = addresses.collect();
        self.next_attempt(services, dial, now)
    }

    /// What speaks against dialling this very address.
    fn judge_address(
        &mut self,
        services: &Services,
        target: &Target,
        ip: IpAddr,
        port: u16,
        fixed: bool,
        now: Duration,
    ) -> Option<Reason> {
        if let Some(denied) = services.rules.denies_address(ip, port) {
            return Some(denied);
        }
        let listed = fixed
            || matches!(target, Target::Name(name) if &**name == "localhost")
            || services.rules.lists_address(ip, port);
        if listed {
            return None;
        }
        if let Some(kind) = special::kind(ip)
            && !(special::is_internal(kind) && services.rules.is_internal(target))
        {
            return Some(Reason::SpecialAddress(ip, kind));
        }
        if self.own_addresses.1.is_empty() || self.own_addresses.0 + OWN_ADDRESSES < now {
            self.own_addresses = (now, inet::interface_addresses().unwrap_or_default());
        }
        let own = self.own_addresses.1.contains(&ip);
        own.then_some(Reason::SpecialAddress(ip, "this machine's own"))
    }

    /// Starts the next connect that can be started.
    fn next_attempt(&mut self, services: &Services, dial: &mut Dial, now: Duration) -> Dialled {
        loop {
            let Some(address) = dial.addresses.pop_front() else {
                if !dial.attempts.is_empty() || dial.handshake.is_some() {
                    return Dialled::Going;
                }
                let error = dial.error.take().map(|e| e.to_string());
                return Dialled::unreachable(error.as_deref().unwrap_or("it has no address"));
            };
            dial.next_at = Some(now + HEAD_START);
            let begun = inet::socket(Kind::Tcp, address.is_ipv6()).and_then(|fd| {
                inet::set(fd.as_fd(), Flag::NoDelay)?;
                inet::set(fd.as_fd(), Flag::KeepAlive)?;
                inet::connect(fd.as_fd(), &address)?;
                Ok(fd)
            });
            match begun.and_then(|fd| self.watch_attempt(services, dial, fd)) {
                Ok(()) => return Dialled::Going,
                Err(e) => dial.error = Some(e),
            }
        }
    }

    fn watch_attempt(
        &mut self,
        services: &Services,
        dial: &mut Dial,
        fd: OwnedFd,
    ) -> io::Result<()> {
        let conn = dial.conn;
        let attempt = self.attempts.insert(Attempt { conn, fd });
        let Some(stored) = self.attempts.get_mut(attempt) else {
            return Ok(());
        };
        let (token, events) = (attempt.token(tag::ATTEMPT), epoll::WRITE | epoll::EDGE);
        if let Err(e) = services.epoll.add(stored.fd.as_fd(), token, events) {
            self.attempts.remove(attempt);
            return Err(e);
        }
        dial.attempts.push(attempt);
        Ok(())
    }

    /// The connection that a connect is for.
    pub fn connection(&mut self, attempt: Key) -> Option<Key> {
        self.attempts.get_mut(attempt).map(|attempt| attempt.conn)
    }

    /// A connect succeeded or failed.
    pub fn attempted(
        &mut self,
        services: &Services,
        dial: &mut Dial,
        attempt: Key,
        origin: &Origin,
        now: Duration,
    ) -> Dialled {
        let Some(Attempt { fd, .. }) = self.attempts.remove(attempt) else {
            return Dialled::Going;
        };
        dial.attempts.retain(|k| *k != attempt);
        let result =
            inet::take_error(fd.as_fd()).and_then(|()| inet::peer_address(fd.as_fd()).map(|_| ()));
        match result {
            Err(e) if matches!(origin, Origin::Published { .. }) => {
                dial.error = Some(e);
                self.take_back(services, fd);
                self.try_world(services, dial)
            }
            Err(e) => {
                dial.error = Some(e);
                self.next_attempt(services, dial, now)
            }
            Ok(()) => {
                for other in std::mem::take(&mut dial.attempts) {
                    self.attempts.remove(other);
                }
                dial.addresses.clear();
                if dial.proxy.is_none() {
                    return dial.connected(services, fd);
                }
                dial.handshake = Some(Handshake {
                    fd,
                    request: Vec::new(),
                    sent: 0,
                });
                Dialled::Going
            }
        }
    }

    /// Moves a dial on as far as time and the proxy let it. `forwards` says whether the client's
    /// requests can be put to a proxy as they are, once that is known.
    pub fn advance(
        &mut self,
        services: &Services,
        dial: &mut Dial,
        origin: &Origin,
        forwards: Option<bool>,
        now: Duration,
    ) -> Dialled {
        if dial.deadline <= now {
            return Dialled::unreachable("it did not answer in time");
        }
        if let Some(hands) = dial.handshake.take() {
            return match forwards {
                None => {
                    dial.handshake = Some(hands);
                    Dialled::Going
                }
                Some(true) => dial.connected(services, hands.fd),
                Some(false) => dial.shake_hands(services, origin, hands),
            };
        }
        let due = dial.next_at.is_some_and(|at| at <= now);
        match due && !dial.resolving && !dial.addresses.is_empty() {
            true => self.next_attempt(services, dial, now),
            false => Dialled::Going,
        }
    }

    /// Forgets a dial; a dialer of the world goes back to where it came from.
    pub fn forget(&mut self, services: &Services, dial: Dial, origin: &Origin) {
        for attempt in dial.attempts {
            if let Some(attempt) = self.attempts.remove(attempt)
                && matches!(origin, Origin::Published { .. })
            {
                self.take_back(services, attempt.fd);
            }
        }
    }

    /// Dials a port of the world itself, with one of the sockets that were made inside.
    fn try_world(&mut self, services: &Services, dial: &mut Dial) -> Dialled {
        while let Some(address) = dial.addresses.pop_front() {
            let family = usize::from(address.is_ipv6());
            // A socket whose last port still lingers at that address cannot connect there yet;
            // another one has another port.
            for _ in 0..self.dialers[family].len() {
                let Some(fd) = self.dialers[family].pop_front() else {
                    break;
                };
                match inet::connect(fd.as_fd(), &address) {
                    Ok(_) => {
                        return match self.watch_attempt(services, dial, fd) {
                            Ok(()) => Dialled::Going,
                            Err(e) => Dialled::unreachable(&e.to_string()),
                        };
                    }
                    Err(e) => {
                        let again = e.kind() == io::ErrorKind::AddrNotAvailable;
                        self.take_back(services, fd);
                        dial.error = Some(e);
                        if !again {
                            break;
                        }
                    }
                }
            }
        }
        let error = dial.error.take().map(|e| e.to_string());
        Dialled::unreachable(error.as_deref().unwrap_or("no dialer is free"))
    }

    /// Puts a dialer back, unconnected.
    pub fn take_back(&mut self, services: &Services, fd: OwnedFd) {
        let _ = services.epoll.remove(fd.as_fd());
        let _ = inet::disconnect(fd.as_fd());
        let _ = inet::take_error(fd.as_fd());
        let v6 = inet::local_address(fd.as_fd()).is_ok_and(|a| a.is_ipv6());
        self.dialers[usize::from(v6)].push_back(fd);
    }
}

impl Dial {
    fn connected(&self, services: &Services, fd: OwnedFd) -> Dialled {
        // Still registered from the attempt or the handshake; the token must change.
        let token = self.conn.token(tag::FAR);
        match services.epoll.modify(fd.as_fd(), token, SOCKET_EVENTS) {
            Ok(()) => Dialled::Connected(fd),
            Err(_) => Dialled::Broken,
        }
    }

    /// Asks the proxy for a tunnel and waits for its answer, taking not one byte more.
    fn shake_hands(
        &mut self,
        services: &Services,
        origin: &Origin,
        mut hands: Handshake,
    ) -> Dialled {
        let (Some(proxy), Origin::World { target, port, .. }) = (&self.proxy, origin) else {
            return Dialled::Going;
        };
        if hands.request.is_empty() {
            hands.request = proxy.connect_request(target, *port);
            let token = self.conn.token(tag::FAR);
            let watched = services
                .epoll
                .modify(hands.fd.as_fd(), token, SOCKET_EVENTS);
            if watched.is_err() {
                return Dialled::Broken;
            }
        }
        let answered = hands.say().and_then(|()| hands.hear());
        match answered {
            Ok(None) => self.connected(services, hands.fd),
            Ok(Some(why)) => Dialled::Unreachable(why),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.handshake = Some(hands);
                Dialled::Going
            }
            Err(e) => Dialled::Unreachable(format!("the proxy: {e}")),
        }
    }
}

impl Handshake {
    fn say(&mut self) -> io::Result<()> {
        while self.sent < self.request.len() {
            self.sent += inet::send(self.fd.as_fd(), &self.request[self.sent..])?;
        }
        Ok(())
    }

    /// Takes a whole answer, and says what is wrong with it.
    fn hear(&self) -> io::Result<Option<String>> {
        let mut reply = vec![0u8; MAX_PROXY_REPLY];
        let n = inet::receive(self.fd.as_fd(), &mut reply, true)?;
        let Some(end) = reply[..n].windows(4).position(|w| w == b"\r\n\r\n") else {
            return match n == 0 || n == MAX_PROXY_REPLY {
                true => Ok(Some("the proxy's answer makes no sense".to_owned())),
                false => Err(io::ErrorKind::WouldBlock.into()),
            };
        };
        let status = reply[..end].get(9..12).unwrap_or(b"???");
        if status != b"200" {
            let status = String::from_utf8_lossy(status);
            return Ok(Some(format!("the proxy said {status}")));
        }
        inet::receive(self.fd.as_fd(), &mut reply[..end + 4], false)?;
        Ok(None)
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
