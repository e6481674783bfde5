//! Serving the stub resolver over datagrams and streams.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use substrate_sys::epoll;
use substrate_sys::inet::{self, Kind};

use super::dns::{self, Query, Unreadable, code};
use super::engine::{Engine, tag};
use super::record::Reason;
use super::resolver::{Begun, Found};
use super::rules::Target;
use super::slab::Key;
use super::stub::{self, Decision};

/// Query streams at one time; the oldest makes room for a new one.
const MAX_STREAMS: usize = 64;
/// Lookups that may wait for the host's resolver at one time.
const MAX_WAITING: usize = 2048;
const DATAGRAMS: usize = 256;

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

/// A stream of queries.
#[derive(Debug)]
pub struct DnsStream {
    fd: OwnedFd,
    peer: SocketAddr,
    input: Vec<u8>,
    output: Vec<u8>,
}

/// Who is at the other end of a query, as far as that can be told.
type Who = Option<(Kind, SocketAddr, SocketAddr)>;

/// The answer when the budget is used up.
fn spent(query: &Query) -> Vec<u8> {
    query.fail(code::FAILURE, Some(&Reason::Budget.to_string()))
}

impl Engine {
    pub(super) fn on_dns(&mut self, now: Duration) {
        let mut buffer = [0u8; 4096];
        for _ in 0..DATAGRAMS {
            match self.udp.recv_from(&mut buffer) {
                Ok((n, from)) => self.on_query(&buffer[..n], Client::Datagram(from), from, now),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // An earlier answer could not be delivered; the error belongs to that one.
                Err(_) => {}
            }
        }
    }

    pub(super) fn on_dns_listener(&mut self) {
        while let Ok(fd) = inet::accept(self.tcp.as_fd()) {
            let Ok(peer) = inet::peer_address(fd.as_fd()) else {
                continue;
            };
            if self.streams.len() >= MAX_STREAMS
                && let Some(oldest) = self.stream_keys.pop_front()
            {
                self.streams.remove(oldest);
            }
            let stream = DnsStream {
                fd,
                peer,
                input: Vec::new(),
                output: Vec::new(),
            };
            let key = self.streams.insert(stream);
            self.stream_keys.push_back(key);
            let Some(stream) = self.streams.get_mut(key) else {
                continue;
            };
            let token = key.token(tag::DNS_STREAM);
            let events = epoll::READ | epoll::WRITE | epoll::EDGE;
            if self.epoll.add(stream.fd.as_fd(), token, events).is_err() {
                self.drop_stream(key);
            }
        }
    }

    fn drop_stream(&mut self, key: Key) {
        self.streams.remove(key);
        self.stream_keys.retain(|k| *k != key);
    }

    pub(super) fn on_dns_stream(&mut self, key: Key, now: Duration) {
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
                        self.on_query(&message, Client::Stream(key), peer, now);
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

    fn on_query(&mut self, bytes: &[u8], client: Client, from: SocketAddr, now: Duration) {
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
        match stub::decide(&query, &self.rules, &self.pool) {
            Decision::Reply(reply) => self.send_answer(client, Some(&query), reply),
            Decision::Refuse {
                reply,
                name,
                reason,
            } => {
                self.record(&name, 0, reason, true, who, now);
                self.send_answer(client, Some(&query), reply);
            }
            Decision::Find { name, would } => {
                if let Some(reason) = would {
                    self.record(&name, 0, reason, false, who, now);
                }
                if !self.rules.lists_name(&name) && !self.pay_for(&name, who, now) {
                    return self.send_answer(client, Some(&query), spent(&query));
                }
                let target = Target::Name(name.as_str().into());
                let proxied = [80, 443]
                    .iter()
                    .any(|port| self.config.proxies.choose(&target, *port).is_some());
                if proxied {
                    return self.answer_found(&query, client, &name, now);
                }
                match self.resolver.look_up(&name, &self.epoll, now) {
                    Begun::Ready(found) => self.answer_lookup(&query, client, &found, now),
                    Begun::Pending(job) => self.wait_for(job, query, client),
                }
            }
            Decision::Relay { name, would } => {
                if let Some(reason) = would {
                    self.record(&name, 0, reason, false, who, now);
                }
                if !self.pay_for(&name, who, now) {
                    return self.send_answer(client, Some(&query), spent(&query));
                }
                let job = self.resolver.relay(&name, query.kind, &self.epoll, now);
                self.wait_for(job, query, client);
            }
        }
    }

    /// Takes a name that is about to leave the machine from the budget: its labels can carry anything.
    fn pay_for(&mut self, name: &str, who: Who, now: Duration) -> bool {
        let (budget, bytes) = (&self.config.budget, name.len() as u64);
        if self.rules.observe {
            if budget.count(bytes) {
                self.record(name, 0, Reason::Budget, false, who, now);
            }
            return true;
        }
        if budget.take_all(bytes) {
            return true;
        }
        let (used, total) = (budget.used(), budget.total().unwrap_or(0));
        self.shared.ledger().budget_exceeded(used, total);
        self.record(name, 0, Reason::Budget, true, who, now);
        false
    }

    fn wait_for(&mut self, job: Key, query: Query, client: Client) {
        if self.waiters.values().map(Vec::len).sum::<usize>() >= MAX_WAITING {
            let reply = query.fail(code::FAILURE, None);
            return self.send_answer(client, Some(&query), reply);
        }
        self.waiters
            .entry(job)
            .or_default()
            .push(Waiter::Query(Box::new(query), client));
    }

    /// Answers a query once the host has said whether the name exists.
    pub(super) fn answer_lookup(
        &mut self,
        query: &Query,
        client: Client,
        found: &Found,
        now: Duration,
    ) {
        let reply = match found {
            Found::Addresses { .. } => {
                let name = super::rules::normalise(&query.name).unwrap_or_default();
                return self.answer_found(query, client, &name, now);
            }
            Found::NoName => query.fail(code::NO_NAME, None),
            Found::Failed => query.fail(code::FAILURE, None),
        };
        self.send_answer(client, Some(query), reply);
    }

    fn answer_found(&mut self, query: &Query, client: Client, name: &str, now: Duration) {
        let reply = match stub::found(query, name, &mut self.pool) {
            Some(reply) => reply,
            None => {
                self.record(name, 0, Reason::Full, true, None, now);
                query.fail(code::FAILURE, Some(&Reason::Full.to_string()))
            }
        };
        self.send_answer(client, Some(query), reply);
    }

    /// Answers a query with what the host's resolver said.
    pub(super) fn answer_relay(&mut self, query: &Query, client: Client, answer: Option<&[u8]>) {
        let reply = match answer {
            Some(answer) => query.relay(answer),
            None => query.fail(code::FAILURE, None),
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
