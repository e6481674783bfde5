//! Looking names up on the host, without blocking: `hosts`, then the servers of `resolv.conf`.
//!
//! A resolver of our own, because a static binary has no name service switch.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use substrate_sys::epoll::{self, Epoll};
use substrate_sys::inet::{self, Kind};

use super::dns::{self, Rcode, Rtype};
use super::slab::{Key, Slab};

/// Where the host keeps its resolver's configuration.
#[derive(Debug, Clone)]
pub struct HostFiles {
    /// `resolv.conf`.
    pub resolv_conf: PathBuf,
    /// `hosts`.
    pub hosts: PathBuf,
}

impl Default for HostFiles {
    fn default() -> HostFiles {
        HostFiles {
            resolv_conf: "/etc/resolv.conf".into(),
            hosts: "/etc/hosts".into(),
        }
    }
}

impl HostFiles {
    /// The servers that names are looked up at.
    pub fn servers(&self) -> Vec<SocketAddr> {
        let text = std::fs::read_to_string(&self.resolv_conf).unwrap_or_default();
        Conf::parse(&text).servers
    }
}

/// The outcome of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Addresses; `fixed` when the policy itself gave them.
    Addresses {
        /// In the order they came.
        list: Vec<IpAddr>,
        /// Given by `net.resolve`.
        fixed: bool,
    },
    /// There is no such name, or it has no address.
    NoName,
    /// No server answered.
    Failed,
}

/// A lookup that was begun.
#[derive(Debug)]
pub enum Begun {
    /// The answer was at hand.
    Ready(Found),
    /// It will be finished under this key.
    Pending(Key),
}

/// Something that finished.
#[derive(Debug)]
pub enum Finished {
    /// A lookup.
    Lookup(Key, Found),
    /// A relayed query; `None` when no server answered.
    Raw(Key, Option<Vec<u8>>),
}

/// Answers that failed to refresh are still used this long.
const STALE: Duration = Duration::from_secs(300);
const NEGATIVE: Duration = Duration::from_secs(2);
const CACHED: usize = 8192;
/// After the first family has answered, the other one gets this long.
const GRACE: Duration = Duration::from_millis(300);

#[derive(Debug, Clone)]
struct Cached {
    found: Found,
    fresh_until: Duration,
    usable_until: Duration,
}

#[derive(Debug)]
struct Job {
    name: String,
    /// Fully qualified names to try, last first.
    candidates: Vec<String>,
    kinds: Vec<Rtype>,
    raw: Option<Vec<u8>>,
    waiting: Vec<Key>,
    addresses: Vec<IpAddr>,
    ttl: u32,
    said_no: bool,
    deadline: Option<Duration>,
}

#[derive(Debug)]
struct Exchange {
    job: Key,
    query: Vec<u8>,
    servers: Vec<SocketAddr>,
    tries: u32,
    timeout: Duration,
    deadline: Duration,
    socket: Option<OwnedFd>,
    stream: Option<Stream>,
}

#[derive(Debug, Default)]
struct Stream {
    written: usize,
    read: Vec<u8>,
}

/// The resolver's state; driven by the gate's loop.
#[derive(Debug)]
pub struct Resolver {
    files: HostFiles,
    fixed: HashMap<String, Vec<IpAddr>>,
    refresh: Duration,
    cache: HashMap<String, Cached>,
    pending: HashMap<String, Key>,
    jobs: Slab<Job>,
    exchanges: Slab<Exchange>,
    live: Vec<Key>,
    tag: u8,
    random: RandomState,
    serial: u64,
}

impl Resolver {
    /// A resolver with fixed answers; its sockets are registered under `tag`.
    pub fn new(
        files: HostFiles,
        resolve: &[(String, IpAddr)],
        refresh: Duration,
        tag: u8,
    ) -> Resolver {
        let mut fixed: HashMap<String, Vec<IpAddr>> = HashMap::new();
        for (name, address) in resolve {
            fixed
                .entry(name.to_ascii_lowercase())
                .or_default()
                .push(*address);
        }
        Resolver {
            files,
            fixed,
            refresh,
            cache: HashMap::new(),
            pending: HashMap::new(),
            jobs: Slab::default(),
            exchanges: Slab::default(),
            live: Vec::new(),
            tag,
            random: RandomState::new(),
            serial: 0,
        }
    }

    /// Looks up the addresses of a name.
    pub fn look_up(&mut self, name: &str, epoll: &Epoll, now: Duration) -> Begun {
        if let Some(list) = self.fixed.get(name) {
            return Begun::Ready(Found::Addresses {
                list: list.clone(),
                fixed: true,
            });
        }
        if name == "localhost" {
            let list = vec![
                IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
                IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
            ];
            return Begun::Ready(Found::Addresses { list, fixed: false });
        }
        if let Some(cached) = self.cache.get(name)
            && cached.fresh_until > now
        {
            return Begun::Ready(cached.found.clone());
        }
        if let Some(key) = self.pending.get(name) {
            return Begun::Pending(*key);
        }
        let list = hosts_entry(&read(&self.files.hosts), name);
        if !list.is_empty() {
            return Begun::Ready(Found::Addresses { list, fixed: false });
        }
        let conf = Conf::parse(&read(&self.files.resolv_conf));
        let mut candidates = vec![name.to_owned()];
        if !name.contains('.') {
            candidates.extend(conf.search.iter().rev().map(|s| format!("{name}.{s}")));
        }
        let key = self.begin(
            name,
            candidates,
            &[Rtype::A, Rtype::AAAA],
            &conf,
            epoll,
            now,
        );
        self.pending.insert(name.to_owned(), key);
        Begun::Pending(key)
    }

    /// Asks for other records, to be relayed as they are.
    pub fn relay(&mut self, name: &str, kind: Rtype, epoll: &Epoll, now: Duration) -> Key {
        let conf = Conf::parse(&read(&self.files.resolv_conf));
        self.begin(name, vec![name.to_owned()], &[kind], &conf, epoll, now)
    }

    fn begin(
        &mut self,
        name: &str,
        mut candidates: Vec<String>,
        kinds: &[Rtype],
        conf: &Conf,
        epoll: &Epoll,
        now: Duration,
    ) -> Key {
        let first = candidates.pop().unwrap_or_else(|| name.to_owned());
        let job = self.jobs.insert(Job {
            name: name.to_owned(),
            candidates,
            kinds: kinds.to_vec(),
            raw: None,
            waiting: Vec::new(),
            addresses: Vec::new(),
            ttl: u32::MAX,
            said_no: false,
            deadline: None,
        });
        self.ask(job, &first, conf, epoll, now);
        job
    }

    fn ask(&mut self, job: Key, name: &str, conf: &Conf, epoll: &Epoll, now: Duration) {
        let kinds = self
            .jobs
            .get_mut(job)
            .map(|j| j.kinds.clone())
            .unwrap_or_default();
        for kind in kinds {
            self.serial += 1;
            let mut hasher = self.random.build_hasher();
            hasher.write_u64(self.serial);
            let query = dns::write_query(hasher.finish() as u16, name, kind);
            let tries = conf.attempts * conf.servers.len() as u32;
            let exchange = self.exchanges.insert(Exchange {
                job,
                tries: query.as_ref().map_or(0, |_| tries),
                query: query.unwrap_or_default(),
                servers: conf.servers.clone(),
                timeout: conf.timeout,
                deadline: now,
                socket: None,
                stream: None,
            });
            self.live.push(exchange);
            if let Some(job) = self.jobs.get_mut(job) {
                job.waiting.push(exchange);
            }
            // With a deadline of now, the next tick sends it or gives up.
            self.send(exchange, epoll, now);
        }
    }

    /// Sends to the next server; false when none is left.
    fn send(&mut self, key: Key, epoll: &Epoll, now: Duration) -> bool {
        let tag = self.tag;
        let Some(exchange) = self.exchanges.get_mut(key) else {
            return false;
        };
        exchange.stream = None;
        while exchange.tries > 0 && !exchange.servers.is_empty() {
            exchange.tries -= 1;
            let server = exchange.servers[0];
            exchange.servers.rotate_left(1);
            let sent = inet::socket(Kind::Udp, server.is_ipv6()).and_then(|socket| {
                inet::connect(socket.as_fd(), &server)?;
                inet::send(socket.as_fd(), &exchange.query)?;
                epoll.add(socket.as_fd(), key.token(tag), epoll::READ)?;
                Ok(socket)
            });
            if let Ok(socket) = sent {
                exchange.socket = Some(socket);
                exchange.deadline = now + exchange.timeout;
                return true;
            }
        }
        exchange.socket = None;
        exchange.deadline = now;
        false
    }

    /// When the next tick is due.
    pub fn next_deadline(&mut self) -> Option<Duration> {
        let mut next: Option<Duration> = None;
        for key in &self.live {
            let Some(exchange) = self.exchanges.get_mut(*key) else {
                continue;
            };
            let job = self.jobs.get_mut(exchange.job).and_then(|j| j.deadline);
            let due = job.map_or(exchange.deadline, |d| d.min(exchange.deadline));
            next = Some(next.map_or(due, |n| n.min(due)));
        }
        next
    }

    /// Handles everything that is due.
    pub fn tick(&mut self, epoll: &Epoll, now: Duration) -> Vec<Finished> {
        let mut finished = Vec::new();
        for key in self.live.clone() {
            let Some(exchange) = self.exchanges.get_mut(key) else {
                continue;
            };
            let (job, deadline) = (exchange.job, exchange.deadline);
            let grace_over = self
                .jobs
                .get_mut(job)
                .is_some_and(|j| j.deadline.is_some_and(|d| d <= now));
            if grace_over || (deadline <= now && !self.send(key, epoll, now)) {
                finished.extend(self.done(key, None, epoll, now));
            }
        }
        finished
    }

    /// Handles an event on one of the sockets.
    pub fn on_event(&mut self, key: Key, epoll: &Epoll, now: Duration) -> Option<Finished> {
        let exchange = self.exchanges.get_mut(key)?;
        if exchange.stream.is_some() {
            return self.on_stream(key, epoll, now);
        }
        let mut buffer = [0u8; 4096];
        loop {
            let exchange = self.exchanges.get_mut(key)?;
            let socket = exchange.socket.as_ref()?;
            match inet::receive(socket.as_fd(), &mut buffer, false) {
                Ok(n) if dns::answers(&exchange.query, &buffer[..n]) => {
                    let response = dns::read_response(&buffer[..n]);
                    let again = match &response {
                        Some(r) if r.truncated => return self.retry_by_tcp(key, epoll, now),
                        Some(r) => !matches!(r.rcode, Rcode::NOERROR | Rcode::NXDOMAIN),
                        None => true,
                    };
                    if again && self.send(key, epoll, now) {
                        return None;
                    }
                    let answer = (!again).then(|| buffer[..n].to_vec());
                    return self.done(key, answer, epoll, now);
                }
                // Not an answer to our question: someone guesses. Keep waiting.
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return None,
                Err(_) => {
                    if self.send(key, epoll, now) {
                        return None;
                    }
                    return self.done(key, None, epoll, now);
                }
            }
        }
    }

    fn retry_by_tcp(&mut self, key: Key, epoll: &Epoll, now: Duration) -> Option<Finished> {
        let tag = self.tag;
        let exchange = self.exchanges.get_mut(key)?;
        // The server that was just asked is the last one after the rotation.
        let server = *exchange.servers.last()?;
        let begun = inet::socket(Kind::Tcp, server.is_ipv6()).and_then(|socket| {
            inet::connect(socket.as_fd(), &server)?;
            epoll.add(
                socket.as_fd(),
                key.token(tag),
                epoll::READ | epoll::WRITE | epoll::EDGE,
            )?;
            Ok(socket)
        });
        match begun {
            Ok(socket) => {
                exchange.socket = Some(socket);
                exchange.stream = Some(Stream::default());
                exchange.deadline = now + exchange.timeout;
                None
            }
            Err(_) => self.done(key, None, epoll, now),
        }
    }

    fn on_stream(&mut self, key: Key, epoll: &Epoll, now: Duration) -> Option<Finished> {
        let exchange = self.exchanges.get_mut(key)?;
        let (socket, stream) = (exchange.socket.as_ref()?, exchange.stream.as_mut()?);
        let mut request = (exchange.query.len() as u16).to_be_bytes().to_vec();
        request.extend(&exchange.query);
        while stream.written < request.len() {
            match inet::send(socket.as_fd(), &request[stream.written..]) {
                Ok(n) => stream.written += n,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return None,
                Err(e) if e.kind() == std::io::ErrorKind::NotConnected => return None,
                Err(_) => return self.done(key, None, epoll, now),
            }
        }
        let mut buffer = [0u8; 4096];
        loop {
            match inet::receive(socket.as_fd(), &mut buffer, false) {
                Ok(0) => return self.done(key, None, epoll, now),
                Ok(n) => stream.read.extend(&buffer[..n]),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return None,
                Err(_) => return self.done(key, None, epoll, now),
            }
            if let Some((length, body)) = stream.read.split_first_chunk::<2>()
                && let Some(body) = body.get(..usize::from(u16::from_be_bytes(*length)))
            {
                let answer = dns::answers(&exchange.query, body).then(|| body.to_vec());
                return self.done(key, answer, epoll, now);
            }
        }
    }

    /// One exchange is over; finishes its job when it was the last.
    fn done(
        &mut self,
        key: Key,
        answer: Option<Vec<u8>>,
        epoll: &Epoll,
        now: Duration,
    ) -> Option<Finished> {
        let exchange = self.exchanges.remove(key)?;
        self.live.retain(|k| *k != key);
        let job_key = exchange.job;
        let job = self.jobs.get_mut(job_key)?;
        job.waiting.retain(|k| *k != key);
        if let Some(response) = answer.as_deref().and_then(dns::read_response) {
            job.said_no |= response.rcode == Rcode::NXDOMAIN || response.records.is_empty();
            for record in &response.records {
                job.ttl = job.ttl.min(record.ttl);
                job.addresses.extend(record.address);
            }
        }
        if job.kinds.len() == 1 {
            job.raw = answer;
        }
        if !job.waiting.is_empty() {
            if !job.addresses.is_empty() {
                job.deadline = Some(now + GRACE);
            }
            return None;
        }
        if job.addresses.is_empty()
            && job.raw.is_none()
            && let Some(next) = job.candidates.pop()
        {
            job.deadline = None;
            let conf = Conf::parse(&read(&self.files.resolv_conf));
            self.ask(job_key, &next, &conf, epoll, now);
            return None;
        }
        let job = self.jobs.remove(job_key)?;
        if job.kinds.len() == 1 {
            return Some(Finished::Raw(job_key, job.raw));
        }
        self.pending.remove(&job.name);
        let found = self.conclude(job, now);
        Some(Finished::Lookup(job_key, found))
    }

    fn conclude(&mut self, job: Job, now: Duration) -> Found {
        let found = if !job.addresses.is_empty() {
            Found::Addresses {
                list: job.addresses,
                fixed: false,
            }
        } else if job.said_no {
            Found::NoName
        } else {
            // Better an address that was right a moment ago than none.
            return match self.cache.get(&job.name) {
                Some(old) if old.usable_until > now => old.found.clone(),
                _ => Found::Failed,
            };
        };
        let fresh = match found {
            Found::NoName => NEGATIVE,
            _ => self.refresh.min(Duration::from_secs(job.ttl.max(1).into())),
        };
        let usable = if found == Found::NoName {
            NEGATIVE
        } else {
            STALE.max(fresh)
        };
        if self.cache.len() >= CACHED {
            self.cache.retain(|_, c| c.usable_until > now);
            if self.cache.len() >= CACHED {
                self.cache.clear();
            }
        }
        let cached = Cached {
            found: found.clone(),
            fresh_until: now + fresh,
            usable_until: now + usable,
        };
        self.cache.insert(job.name, cached);
        found
    }
}

fn read(path: &std::path::Path) -> String {
    std::fs::read(path)
        .map(|b| String::from_utf8_lossy(&b).into_owned())
        .unwrap_or_default()
}

/// The addresses that a hosts file gives a name.
fn hosts_entry(text: &str, name: &str) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or("");
        let mut words = line.split_whitespace();
        let Some(address) = words.next().and_then(|w| w.parse().ok()) else {
            continue;
        };
        if words.any(|w| w.trim_end_matches('.').eq_ignore_ascii_case(name)) {
            found.push(address);
        }
    }
    found
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Conf {
    servers: Vec<SocketAddr>,
    search: Vec<String>,
    timeout: Duration,
    attempts: u32,
}

impl Conf {
    fn parse(text: &str) -> Conf {
        let mut conf = Conf {
            servers: Vec::new(),
            search: Vec::new(),
            timeout: Duration::from_secs(3),
            attempts: 2,
        };
        for line in text.lines() {
            let line = line.split(['#', ';']).next().unwrap_or("");
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    if let Some(server) = words.next().and_then(parse_server) {
                        conf.servers.push(server);
                    }
                }
                Some("search" | "domain") => {
                    conf.search = words
                        .map(|w| w.trim_end_matches('.').to_lowercase())
                        .collect();
                }
                Some("options") => {
                    for option in words {
                        let number = |p| option.strip_prefix(p).and_then(|n: &str| n.parse().ok());
                        if let Some(n) = number("timeout:") {
                            conf.timeout = Duration::from_secs(u64::clamp(n, 1, 30));
                        } else if let Some(n) = number("attempts:") {
                            conf.attempts = n.clamp(1, 5) as u32;
                        }
                    }
                }
                _ => {}
            }
        }
        conf.servers.truncate(3);
        if conf.servers.is_empty() {
            conf.servers.push(SocketAddr::from(([127, 0, 0, 1], 53)));
        }
        conf
    }
}

/// An address, with `%interface` for link-local servers, or (not standard, but unambiguous)
/// an address with a port.
fn parse_server(word: &str) -> Option<SocketAddr> {
    if let Ok(ip) = word.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip, 53));
    }
    if let Some((ip, zone)) = word.split_once('%') {
        let index = std::fs::read_to_string(format!("/sys/class/net/{zone}/ifindex")).ok()?;
        let scope = index.trim().parse().ok()?;
        let ip = ip.parse().ok()?;
        return Some(std::net::SocketAddrV6::new(ip, 53, 0, scope).into());
    }
    word.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_files_are_read_as_libc_does() {
        let text = "127.0.0.1 localhost\n10.0.0.5\tdb.internal DB # x\nfe80::1%eth0 z\n::1 db\n";
        let ip = |t: &str| t.parse::<IpAddr>().unwrap();
        assert_eq!(hosts_entry(text, "db"), [ip("10.0.0.5"), ip("::1")]);
        assert_eq!(hosts_entry(text, "db.internal"), [ip("10.0.0.5")]);
        assert_eq!(hosts_entry(text, "x"), Vec::<IpAddr>::new());
    }

    #[test]
    fn resolver_configuration() {
        let conf = Conf::parse(
            "# c\nnameserver 192.0.2.1\nnameserver 2001:db8::1\nnameserver x\n\
             search corp.test. b.test\noptions timeout:1 attempts:3 edns0\n",
        );
        assert_eq!(
            conf.servers,
            [
                "192.0.2.1:53".parse().unwrap(),
                "[2001:db8::1]:53".parse().unwrap()
            ]
        );
        assert_eq!(conf.search, ["corp.test", "b.test"]);
        assert_eq!((conf.timeout, conf.attempts), (Duration::from_secs(1), 3));
        assert_eq!(Conf::parse("").servers, ["127.0.0.1:53".parse().unwrap()]);
    }

    use std::io::{Read, Write};
    use std::net::{TcpListener, UdpSocket};
    use substrate_sys::epoll::Events;

    /// What a server does with a query; `None` is silence.
    type Habit = Box<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send>;

    fn server(habit: Habit) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((n, from)) = socket.recv_from(&mut buffer) {
                if let Some(reply) = habit(&buffer[..n]) {
                    let _ = socket.send_to(&reply, from);
                }
            }
        });
        address
    }

    fn reply(query: &[u8], address: &str) -> Vec<u8> {
        let read = dns::read_query(query).unwrap();
        match (address.parse().unwrap(), read.kind) {
            (IpAddr::V4(v4), Rtype::A) => read.answer(&[dns::Record::A(v4)]),
            _ => read.answer(&[]),
        }
    }

    struct Rig {
        resolver: Resolver,
        epoll: Epoll,
        now: Duration,
        dir: tempfile::TempDir,
    }

    impl Rig {
        fn new(servers: &[SocketAddr]) -> Rig {
            let dir = tempfile::tempdir().unwrap();
            let files = HostFiles {
                resolv_conf: dir.path().join("resolv.conf"),
                hosts: dir.path().join("hosts"),
            };
            let resolver = Resolver::new(files, &[], Duration::from_secs(60), 9);
            let epoll = Epoll::new().unwrap();
            let rig = Rig {
                resolver,
                epoll,
                now: Duration::ZERO,
                dir,
            };
            rig.configure(servers);
            rig
        }

        fn configure(&self, servers: &[SocketAddr]) {
            let mut text = "search corp.test\noptions timeout:1 attempts:1\n".to_owned();
            for server in servers {
                text.push_str(&format!("nameserver {server}\n"));
            }
            std::fs::write(self.dir.path().join("resolv.conf"), text).unwrap();
        }

        /// Looks a name up; the clock moves only while nothing else does.
        fn ask(&mut self, name: &str) -> Found {
            let key = match self.resolver.look_up(name, &self.epoll, self.now) {
                Begun::Ready(found) => return found,
                Begun::Pending(key) => key,
            };
            let mut events = Events::with_capacity(8);
            for _ in 0..200 {
                self.epoll
                    .wait(&mut events, Some(Duration::from_millis(50)))
                    .unwrap();
                let mut done = Vec::new();
                for (token, _) in events.iter() {
                    let (_, exchange) = Key::from_token(token);
                    done.extend(self.resolver.on_event(exchange, &self.epoll, self.now));
                }
                if events.iter().count() == 0 {
                    self.now += Duration::from_millis(400);
                }
                done.extend(self.resolver.tick(&self.epoll, self.now));
                for finished in done {
                    if let Finished::Lookup(k, found) = finished {
                        assert_eq!(k, key);
                        return found;
                    }
                }
            }
            panic!("no answer for {name}");
        }
    }

    fn addresses(text: &str) -> Found {
        Found::Addresses {
            list: vec![text.parse().unwrap()],
            fixed: false,
        }
    }

    #[test]
    fn a_silent_server_is_passed_over_and_a_wrong_answer_ignored() {
        let silent = server(Box::new(|_| None));
        let forger = server(Box::new(|query| {
            let mut wrong = reply(query, "6.6.6.6");
            wrong[0] ^= 1;
            Some(wrong)
        }));
        let broken = server(Box::new(|query| {
            Some(dns::read_query(query).unwrap().fail(Rcode::SERVFAIL, None))
        }));
        let good = server(Box::new(|query| Some(reply(query, "9.9.9.1"))));
        for first in [silent, forger, broken] {
            let mut rig = Rig::new(&[first, good]);
            assert_eq!(rig.ask("a.test"), addresses("9.9.9.1"));
        }
        assert_eq!(Rig::new(&[silent]).ask("a.test"), Found::Failed);
    }

    #[test]
    fn short_names_are_searched_for_and_long_ones_are_not() {
        let good = server(Box::new(|query| {
            let read = dns::read_query(query).unwrap();
            Some(match read.name.as_slice() {
                b"db.corp.test" => reply(query, "9.9.9.2"),
                _ => read.fail(Rcode::NXDOMAIN, None),
            })
        }));
        let mut rig = Rig::new(&[good]);
        assert_eq!(rig.ask("db"), addresses("9.9.9.2"));
        assert_eq!(rig.ask("other"), Found::NoName);
        assert_eq!(rig.ask("db.corp"), Found::NoName);
    }

    #[test]
    fn answers_are_kept_refreshed_and_used_a_while_after_the_servers_fell_silent() {
        let silent = server(Box::new(|_| None));
        let old = server(Box::new(|query| Some(reply(query, "9.9.9.3"))));
        let new = server(Box::new(|query| Some(reply(query, "9.9.9.4"))));
        let mut rig = Rig::new(&[old]);
        assert_eq!(rig.ask("a.test"), addresses("9.9.9.3"));
        rig.configure(&[new]);
        assert_eq!(
            rig.ask("a.test"),
            addresses("9.9.9.3"),
            "its time to live is 30 seconds"
        );
        rig.now += Duration::from_secs(31);
        assert_eq!(rig.ask("a.test"), addresses("9.9.9.4"));
        rig.configure(&[silent]);
        rig.now += Duration::from_secs(200);
        assert_eq!(rig.ask("a.test"), addresses("9.9.9.4"));
        rig.now += Duration::from_secs(200);
        assert_eq!(rig.ask("a.test"), Found::Failed);
    }

    #[test]
    fn a_truncated_answer_is_fetched_by_tcp() {
        let stream = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = stream.local_addr().unwrap();
        let udp = UdpSocket::bind(address).unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((n, from)) = udp.recv_from(&mut buffer) {
                let mut cut = reply(&buffer[..n], "6.6.6.6");
                cut[2] |= 2;
                let _ = udp.send_to(&cut, from);
            }
        });
        std::thread::spawn(move || {
            for mut stream in stream.incoming().flatten() {
                let mut length = [0; 2];
                stream.read_exact(&mut length).unwrap();
                let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
                stream.read_exact(&mut query).unwrap();
                let answer = reply(&query, "9.9.9.5");
                let mut out = (answer.len() as u16).to_be_bytes().to_vec();
                out.extend(answer);
                for byte in out {
                    stream.write_all(&[byte]).unwrap();
                }
            }
        });
        assert_eq!(Rig::new(&[address]).ask("a.test"), addresses("9.9.9.5"));
    }
}
