//! Serving the stub resolver over datagrams and streams.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use substrate_sys::epoll;
use substrate_sys::inet::{self, Kind};

use super::dns::{self, Query, Rcode, Unreadable};
use super::record::Reason;
use super::resolver::{Begun, Found};
use super::rules::{Target, normalise};
use super::services::{Client, Ends, Services, Waiter, tag};
use super::slab::{Key, Slab};
use super::stub::{self, Decision};

/// Query streams at one time; the oldest makes room for a new one.
const MAX_STREAMS: usize = 64;
/// Lookups that may wait for the host's resolver at one time.
const MAX_WAITING: usize = 2048;
const DATAGRAMS: usize = 256;

/// A stream of queries.
#[derive(Debug)]
struct Stream {
    fd: OwnedFd,
    peer: SocketAddr,
    input: Vec<u8>,
    output: Vec<u8>,
}

/// The answer when the budget is used up.
fn spent(query: &Query) -> Vec<u8> {
    query.fail(Rcode::SERVFAIL, Some(&Reason::Budget.to_string()))
}

/// The stub resolver's sockets, and who speaks to them.
#[derive(Debug)]
pub struct DnsServer {
    udp: UdpSocket,
    tcp: OwnedFd,
    streams: Slab<Stream>,
    /// The streams, oldest first.
    order: VecDeque<Key>,
}

impl DnsServer {
    /// Serves these sockets of the world.
    pub fn new(udp: OwnedFd, tcp: OwnedFd, services: &Services) -> io::Result<DnsServer> {
        let whole = |tag: u8| u64::from(tag) << 56;
        services
            .epoll
            .add(udp.as_fd(), whole(tag::DNS), epoll::READ)?;
        services
            .epoll
            .add(tcp.as_fd(), whole(tag::DNS_LISTENER), epoll::READ)?;
        Ok(DnsServer {
            udp: UdpSocket::from(udp),
            tcp,
            streams: Slab::default(),
            order: VecDeque::new(),
        })
    }

    /// Answers the queries that came as datagrams.
    pub fn on_datagrams(&mut self, services: &mut Services, now: Duration) {
        let mut buffer = [0u8; 4096];
        for _ in 0..DATAGRAMS {
            match self.udp.recv_from(&mut buffer) {
                Ok((n, from)) => {
                    let client = Client::Datagram(from);
                    self.on_query(services, &buffer[..n], client, from, now);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // An earlier answer could not be delivered; the error belongs to that one.
                Err(_) => {}
            }
        }
    }

    /// Takes in new streams.
    pub fn on_listener(&mut self, services: &Services) {
        while let Ok(fd) = inet::accept(self.tcp.as_fd()) {
            let Ok(peer) = inet::peer_address(fd.as_fd()) else {
                continue;
            };
            if self.streams.len() >= MAX_STREAMS
                && let Some(oldest) = self.order.pop_front()
            {
                self.streams.remove(oldest);
            }
            let stream = Stream {
                fd,
                peer,
                input: Vec::new(),
                output: Vec::new(),
            };
            let key = self.streams.insert(stream);
            self.order.push_back(key);
            let Some(stream) = self.streams.get_mut(key) else {
                continue;
            };
            let token = key.token(tag::DNS_STREAM);
            let events = epoll::READ | epoll::WRITE | epoll::EDGE;
            if services
                .epoll
                .add(stream.fd.as_fd(), token, events)
                .is_err()
            {
                self.drop_stream(key);
            }
        }
    }

    fn drop_stream(&mut self, key: Key) {
        self.streams.remove(key);
        self.order.retain(|k| *k != key);
    }

    /// Reads from a stream, and writes what waits for it.
    pub fn on_stream(&mut self, services: &mut Services, key: Key, now: Duration) {
        let mut buffer = [0u8; 4096];
        loop {
            let Some(stream) = self.streams.get_mut(key) else {
                return;
            };
            match inet::receive(stream.fd.as_fd(), &mut buffer, false) {
                Ok(0) => return self.drop_stream(key),
                Ok(n) => {
                    stream.input.extend_from_slice(&buffer[..n]);
                    let peer = stream.peer;
                    while let Some(message) = self.next_message(key) {
                        self.on_query(services, &message, Client::Stream(key), peer, now);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return self.drop_stream(key),
            }
        }
        self.flush_stream(key);
    }

    fn next_message(&mut self, key: Key) -> Option<Vec<u8>> {
        let input = &mut self.streams.get_mut(key)?.input;
        let length = usize::from(u16::from_be_bytes(*input.first_chunk()?));
        if input.len() < 2 + length {
            return None;
        }
        let message = input[2..2 + length].to_vec();
        input.drain(..2 + length);
        Some(message)
    }

    fn flush_stream(&mut self, key: Key) {
        let Some(stream) = self.streams.get_mut(key) else {
            return;
        };
        while !stream.output.is_empty() {
            match inet::send(stream.fd.as_fd(), &stream.output) {
                Ok(n) => {
                    stream.output.drain(..n);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return self.drop_stream(key),
            }
        }
        // A client that asks and never reads has had its chance.
        if self
            .streams
            .get_mut(key)
            .is_some_and(|s| s.output.len() > 256 * 1024)
        {
            self.drop_stream(key);
        }
    }

    fn on_query(
        &mut self,
        services: &mut Services,
        bytes: &[u8],
        client: Client,
        from: SocketAddr,
        now: Duration,
    ) {
        let query = match dns::read_query(bytes) {
            Ok(query) => query,
            Err(Unreadable::Ignore) => return,
            Err(Unreadable::Reply(reply)) => return self.send_answer(client, None, reply),
        };
        let kind = match client {
            Client::Datagram(_) => Kind::Udp,
            Client::Stream(_) => Kind::Tcp,
        };
        let who = self.udp.local_addr().ok().map(|stub| (kind, from, stub));
        let decision = stub::decide(&query, &services.rules, &services.pool);
        if let Decision::Find { name, would } | Decision::Relay { name, would } = &decision
            && let Some(reason) = would
        {
            services.record(name, 0, reason.clone(), false, who, now);
        }
        match decision {
            Decision::Reply(reply) => self.send_answer(client, Some(&query), reply),
            Decision::Refuse {
                reply,
                name,
                reason,
            } => {
                services.record(&name, 0, reason, true, who, now);
                self.send_answer(client, Some(&query), reply);
            }
            Decision::Find { name, .. } => {
                if !services.rules.lists_name(&name) && !pay_for(services, &name, who, now) {
                    return self.send_answer(client, Some(&query), spent(&query));
                }
                if is_proxied(services, &name) {
                    return self.answer_found(services, &query, client, &name, now);
                }
                match services.resolver.look_up(&name, &services.epoll, now) {
                    Begun::Ready(found) => {
                        self.answer_lookup(services, &query, client, &found, now)
                    }
                    Begun::Pending(job) => self.wait_for(services, job, query, client),
                }
            }
            Decision::Relay { name, .. } => {
                if !pay_for(services, &name, who, now) {
                    return self.send_answer(client, Some(&query), spent(&query));
                }
                let job = services
                    .resolver
                    .relay(&name, query.kind, &services.epoll, now);
                self.wait_for(services, job, query, client);
            }
        }
    }

    fn wait_for(&mut self, services: &mut Services, job: Key, query: Query, client: Client) {
        if services.waiters.values().map(Vec::len).sum::<usize>() >= MAX_WAITING {
            let reply = query.fail(Rcode::SERVFAIL, None);
            return self.send_answer(client, Some(&query), reply);
        }
        let waiter = Waiter::Query(Box::new(query), client);
        services.waiters.entry(job).or_default().push(waiter);
    }

    /// Answers a query once the host has said whether the name exists.
    pub fn answer_lookup(
        &mut self,
        services: &mut Services,
        query: &Query,
        client: Client,
        found: &Found,
        now: Duration,
    ) {
        let reply = match found {
            Found::Addresses { .. } => {
                let name = normalise(&query.name).unwrap_or_default();
                return self.answer_found(services, query, client, &name, now);
            }
            Found::NoName => query.fail(Rcode::NXDOMAIN, None),
            Found::Failed => query.fail(Rcode::SERVFAIL, None),
        };
        self.send_answer(client, Some(query), reply);
    }

    fn answer_found(
        &mut self,
        services: &mut Services,
        query: &Query,
        client: Client,
        name: &str,
        now: Duration,
    ) {
        let reply = match stub::found(query, name, &mut services.pool) {
            Some(reply) => reply,
            None => {
                services.record(name, 0, Reason::Full, true, None, now);
                query.fail(Rcode::SERVFAIL, Some(&Reason::Full.to_string()))
            }
        };
        self.send_answer(client, Some(query), reply);
    }

    /// Answers a query with what the host's resolver said.
    pub fn answer_relay(&mut self, query: &Query, client: Client, answer: Option<&[u8]>) {
        let reply = match answer {
            Some(answer) => query.relay(answer),
            None => query.fail(Rcode::SERVFAIL, None),
        };
        self.send_answer(client, Some(query), reply);
    }

    fn send_answer(&mut self, client: Client, query: Option<&Query>, reply: Vec<u8>) {
        match client {
            Client::Datagram(to) => {
                let reply = match query {
                    Some(query) => query.fit_udp(reply),
                    None => reply,
                };
                // A client that is gone needs no answer; a full buffer makes it ask again.
                let _ = self.udp.send_to(&reply, to);
            }
            Client::Stream(key) => {
                if let Some(stream) = self.streams.get_mut(key) {
                    stream.output.extend((reply.len() as u16).to_be_bytes());
                    stream.output.extend(reply);
                    self.flush_stream(key);
                }
            }
        }
    }
}

/// Whether a name is for a proxy of the user's to find.
fn is_proxied(services: &Services, name: &str) -> bool {
    let target = Target::Name(name.into());
    [80, 443]
        .iter()
        .any(|port| services.config.proxies.choose(&target, *port).is_some())
}

/// Takes a name that is about to leave the machine from the budget: its labels can carry anything.
fn pay_for(services: &mut Services, name: &str, who: Ends, now: Duration) -> bool {
    let (budget, bytes) = (&services.config.budget, name.len() as u64);
    if services.rules.observe {
        if budget.count(bytes) {
            services.record(name, 0, Reason::Budget, false, who, now);
        }
        return true;
    }
    if budget.take_all(bytes) {
        return true;
    }
    let (used, total) = (budget.used(), budget.total().unwrap_or(0));
    services.shared.ledger().budget_exceeded(bytes, used, total);
    services.record(name, 0, Reason::Budget, true, who, now);
    false
}
