//! What passed, what was refused and why; kept per host and port, told to a listener as it happens.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::net::IpAddr;

pub use substrate_trace::NetUse;

/// Why an attempt was refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No entry of `net.allowed` names it.
    NotAllowed,
    /// An entry of `net.denied` names it.
    Denied(String),
    /// The host is allowed, this port is not.
    PortNotAllowed,
    /// A synthetic address that stands for no name.
    UnknownAddress,
    /// The name leads to an address that must be listed to be reached.
    SpecialAddress(IpAddr, &'static str),
    /// The TLS server name is another one.
    ServerName(String),
    /// The TLS hello names no server.
    NoServerName,
    /// The TLS hello hides the server name.
    HiddenServerName,
    /// The TLS hello announces data that come before its answer.
    EarlyData,
    /// An HTTP request is for another host.
    HttpHost(String),
    /// An HTTP request that cannot be checked.
    HttpRequest(&'static str),
    /// Neither TLS nor HTTP/1, on an entry without a port.
    Protocol,
    /// The session has no bytes left.
    Budget,
    /// Only TCP is carried.
    NotTcp(&'static str),
    /// The pool of addresses is used up.
    Full,
}

impl Reason {
    /// A short word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Reason::NotAllowed => "not-allowed",
            Reason::Denied(_) => "denied",
            Reason::PortNotAllowed => "port-not-allowed",
            Reason::UnknownAddress => "unknown-address",
            Reason::SpecialAddress(..) => "special-address",
            Reason::ServerName(_) => "tls-server-name",
            Reason::NoServerName => "tls-no-server-name",
            Reason::HiddenServerName => "tls-hidden-server-name",
            Reason::EarlyData => "tls-early-data",
            Reason::HttpHost(_) => "http-host",
            Reason::HttpRequest(_) => "http-request",
            Reason::Protocol => "protocol",
            Reason::Budget => "budget",
            Reason::NotTcp(_) => "not-tcp",
            Reason::Full => "full",
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::NotAllowed => f.write_str("not in net.allowed"),
            Reason::Denied(rule) => write!(f, "denied by net.denied `{rule}`"),
            Reason::PortNotAllowed => {
                f.write_str("net.allowed has the host, but not this port; write `host:port`")
            }
            Reason::UnknownAddress => f.write_str("the address stands for no name"),
            Reason::SpecialAddress(address, kind) => write!(
                f,
                "leads to {address} ({kind}), which must be listed in net.allowed or net.resolve"
            ),
            Reason::ServerName(name) => write!(f, "the TLS server name is `{name}`"),
            Reason::NoServerName => f.write_str("the TLS hello names no server"),
            Reason::HiddenServerName => f.write_str(
                "the TLS hello hides the server name (ECH); write `host:443` to pass it",
            ),
            Reason::EarlyData => f.write_str(
                "the TLS hello comes with early data (0-RTT), behind which nothing can be checked; write `host:443` to pass it",
            ),
            Reason::HttpHost(host) => write!(f, "an HTTP request on it is for `{host}`"),
            Reason::HttpRequest(what) => write!(f, "an HTTP request on it {what}"),
            Reason::Protocol => {
                f.write_str("neither TLS nor HTTP/1; write `host:port` for other protocols")
            }
            Reason::Budget => f.write_str("Egress budget exceeded"),
            Reason::NotTcp(protocol) => write!(f, "{protocol} is not carried, only TCP is"),
            Reason::Full => f.write_str("the world has looked up too many names"),
        }
    }
}

/// A program that tried something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// Its process id, as the host sees it.
    pub pid: i32,
    /// The file that it runs.
    pub path: OsString,
}

/// One kind of refusal, however often it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Name or address.
    pub host: String,
    /// Port; 0 for a name that was only looked up.
    pub port: u16,
    /// Why.
    pub reason: Reason,
    /// Who tried first, where known.
    pub program: Option<Program>,
    /// False in `observe`: it passed and would have been refused.
    pub enforced: bool,
    /// How often.
    pub count: u64,
}

/// What a listener is told as it happens; repetitions are only counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Something was refused, or would have been.
    Refused(Refusal),
    /// The byte budget is used up; connections are cut.
    BudgetExceeded {
        /// Bytes that wanted to pass.
        bytes: u64,
        /// Bytes used.
        used: u64,
        /// The limit.
        total: u64,
    },
    /// A connection waited for the byte rate for the first time.
    RateLimited {
        /// The limit.
        bytes_per_sec: u64,
    },
    /// Something allowed could not be reached, and why.
    Unreachable(String),
    /// Something about the host's set-up is not used, and why.
    Problem(String),
    /// The gate itself failed; the world's network is closed from here on.
    Failed(String),
}

/// Everything a gate saw since it was asked last.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NetReport {
    /// Bytes and refusals per host and port.
    pub uses: Vec<NetUse>,
    /// Refusals by kind.
    pub refusals: Vec<Refusal>,
    /// Refusals of further kinds, of which only the number was kept.
    pub refusals_not_kept: u64,
    /// Connections through published ports.
    pub published: Vec<NetUse>,
    /// Allowed targets that could not be reached, and why.
    pub unreachable: Vec<String>,
    /// Why the gate ended early, if it did.
    pub failure: Option<String>,
}

impl NetReport {
    /// `tcp:host:port` of everything that was reached.
    pub fn scopes(&self) -> Vec<String> {
        let reached = |u: &&NetUse| u.tx > 0 || u.rx > 0;
        self.uses
            .iter()
            .filter(reached)
            .map(|u| format!("tcp:{}:{}", u.host, u.port))
            .collect()
    }
}

/// Kinds of entries kept; a world must not be able to fill the host's memory.
const KEPT: usize = 4096;

type Listener = Box<dyn FnMut(&Event) + Send>;

/// The books of a gate.
pub struct Ledger {
    uses: BTreeMap<(String, u16), NetUse>,
    published: BTreeMap<u16, NetUse>,
    refusals: Vec<Refusal>,
    known: HashMap<(String, u16, &'static str), usize>,
    not_kept: u64,
    budget_told: bool,
    rate_told: bool,
    unreachable: Vec<String>,
    failure: Option<String>,
    listener: Option<Listener>,
}

impl Ledger {
    /// Empty books; `listener` is called from the gate's thread and must be quick.
    pub fn new(listener: Option<Listener>) -> Ledger {
        Ledger {
            uses: BTreeMap::new(),
            published: BTreeMap::new(),
            refusals: Vec::new(),
            known: HashMap::new(),
            not_kept: 0,
            budget_told: false,
            rate_told: false,
            unreachable: Vec::new(),
            failure: None,
            listener,
        }
    }

    fn entry(&mut self, host: &str, port: u16) -> &mut NetUse {
        let mut key = (host.to_owned(), port);
        if self.uses.len() >= KEPT && !self.uses.contains_key(&key) {
            key = ("*".to_owned(), 0);
        }
        let (host, port) = (key.0.clone(), key.1);
        self.uses.entry(key).or_insert(NetUse {
            host,
            port,
            tx: 0,
            rx: 0,
            refused: 0,
        })
    }

    /// Counts bytes that passed.
    pub fn passed(&mut self, host: &str, port: u16, tx: u64, rx: u64) {
        let entry = self.entry(host, port);
        entry.tx += tx;
        entry.rx += rx;
    }

    /// Counts bytes of a published port, seen from the world.
    pub fn published(&mut self, port: u16, tx: u64, rx: u64) {
        let entry = self.published.entry(port).or_default();
        entry.host = "localhost".to_owned();
        entry.port = port;
        entry.tx += tx;
        entry.rx += rx;
    }

    /// Whether this kind of refusal is new; only then is it worth finding out who tried.
    pub fn is_new(&self, host: &str, port: u16, reason: &Reason) -> bool {
        !self
            .known
            .contains_key(&(host.to_owned(), port, reason.code()))
    }

    /// Records a refusal.
    pub fn refused(&mut self, refusal: Refusal) {
        if refusal.enforced {
            self.entry(&refusal.host, refusal.port).refused += 1;
        }
        let key = (refusal.host.clone(), refusal.port, refusal.reason.code());
        match self.known.get(&key) {
            Some(index) => {
                if let Some(kept) = self.refusals.get_mut(*index) {
                    kept.count += 1;
                }
            }
            None if self.known.len() >= KEPT => self.not_kept += 1,
            None => {
                self.tell(&Event::Refused(refusal.clone()));
                self.known.insert(key, self.refusals.len());
                self.refusals.push(refusal);
            }
        }
    }

    /// Records that an allowed target could not be reached.
    pub fn unreachable(&mut self, text: String) {
        if self.unreachable.len() < KEPT && !self.unreachable.contains(&text) {
            self.tell(&Event::Unreachable(text.clone()));
            self.unreachable.push(text);
        }
    }

    /// Records that the budget is used up.
    pub fn budget_exceeded(&mut self, bytes: u64, used: u64, total: u64) {
        if !std::mem::replace(&mut self.budget_told, true) {
            self.tell(&Event::BudgetExceeded { bytes, used, total });
        }
    }

    /// Records that a connection has to wait for the rate.
    pub fn rate_limited(&mut self, bytes_per_sec: u64) {
        if !std::mem::replace(&mut self.rate_told, true) {
            self.tell(&Event::RateLimited { bytes_per_sec });
        }
    }

    /// Records that the gate cannot go on.
    pub fn failed(&mut self, why: String) {
        self.tell(&Event::Failed(why.clone()));
        self.failure = Some(why);
    }

    fn tell(&mut self, event: &Event) {
        if let Some(listener) = &mut self.listener {
            listener(event);
        }
    }

    /// What was recorded since the last call. From here on everything is told once more, because
    /// the next command of the world has to be told as well.
    pub fn take(&mut self) -> NetReport {
        self.known.clear();
        (self.budget_told, self.rate_told) = (false, false);
        NetReport {
            uses: std::mem::take(&mut self.uses).into_values().collect(),
            refusals: std::mem::take(&mut self.refusals),
            refusals_not_kept: std::mem::take(&mut self.not_kept),
            published: std::mem::take(&mut self.published).into_values().collect(),
            unreachable: std::mem::take(&mut self.unreachable),
            failure: self.failure.clone(),
        }
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger")
            .field("uses", &self.uses)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    fn refusal(host: &str, port: u16, reason: Reason) -> Refusal {
        Refusal {
            host: host.into(),
            port,
            reason,
            program: None,
            enforced: true,
            count: 1,
        }
    }

    #[test]
    fn repetitions_are_counted_and_told_once() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&told);
        let mut ledger = Ledger::new(Some(Box::new(move |e: &Event| {
            sink.lock().unwrap().push(e.clone())
        })));
        for _ in 0..3 {
            ledger.refused(refusal("b.test", 0, Reason::NotAllowed));
        }
        ledger.refused(refusal("b.test", 443, Reason::NotAllowed));
        ledger.passed("a.test", 443, 10, 20);
        for _ in 0..2 {
            ledger.unreachable("c.test:443: connection refused".to_owned());
        }
        let report = ledger.take();
        let unreachable = Event::Unreachable("c.test:443: connection refused".to_owned());
        assert_eq!(told.lock().unwrap().len(), 3);
        assert!(told.lock().unwrap().contains(&unreachable));
        assert_eq!(report.refusals.len(), 2);
        assert_eq!(report.refusals[0].count, 3);
        assert_eq!(report.scopes(), ["tcp:a.test:443"]);
        let of = |h: &str, p| {
            report
                .uses
                .iter()
                .find(|u| u.host == h && u.port == p)
                .unwrap()
        };
        assert_eq!(of("b.test", 0).refused, 3);
        assert_eq!((of("a.test", 443).tx, of("a.test", 443).rx), (10, 20));

        ledger.refused(refusal("b.test", 0, Reason::NotAllowed));
        let next = ledger.take();
        assert_eq!(next.refusals[0].count, 1);
        assert_eq!(
            told.lock().unwrap().len(),
            4,
            "the next command is told too"
        );
        assert!(next.scopes().is_empty());
    }

    #[test]
    fn a_flood_of_names_is_bounded_and_still_counted() {
        let mut ledger = Ledger::new(None);
        for i in 0..KEPT + 500 {
            ledger.refused(refusal(&format!("h{i}.test"), 0, Reason::NotAllowed));
        }
        let report = ledger.take();
        assert_eq!(report.refusals.len(), KEPT);
        assert_eq!(report.refusals_not_kept, 500);
        assert_eq!(
            report.uses.iter().map(|u| u.refused).sum::<u64>(),
            (KEPT + 500) as u64
        );
        assert!(report.uses.len() <= KEPT + 1);
    }
}
