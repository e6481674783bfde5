//! One connection through the gate, from its first byte to its last, as a state machine.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use substrate_policy::budget::{Budget, Grant};
use substrate_sys::inet;

use super::config::Shared;
use super::dial::{Dial, Origin};
use super::flow::{Flow, Pipes, Side, Turn};
use super::http::{self, Authority, Requests};
use super::record::Reason;
use super::rules::{Rules, Target, normalise};
use super::tls::{self, Progress};

/// A client that says nothing for this long, on an entry without a port, is let go.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a client has to take the reason of its refusal.
const FAREWELL: Duration = Duration::from_secs(2);
/// How often a connection without budget is looked at until what is paid for has arrived.
const ARRIVAL: Duration = Duration::from_millis(20);

/// What is known about the client's protocol.
#[derive(Debug)]
pub enum Check {
    /// Anything passes.
    Nothing,
    /// The first byte will tell.
    Undecided,
    /// TLS: bytes that wait for the rest of the hello.
    Tls(tls::Peek, Vec<u8>),
    /// HTTP/1.
    Http(Requests),
}

/// A connection.
#[derive(Debug)]
pub struct Conn {
    /// Who opened it.
    pub origin: Origin,
    /// The accepted side.
    pub near: Side,
    /// The dialled side, once it is there.
    pub far: Option<Side>,
    /// From near to far.
    pub up: Flow,
    /// From far to near.
    pub down: Flow,
    /// What the client still has to prove.
    pub check: Check,
    /// The dial under way.
    pub dial: Option<Dial>,
    /// It waits in the ready queue.
    pub queued: bool,
    /// The next moment it must be looked at.
    pub timer: Option<Duration>,
    /// A socket reported an error.
    pub failed: bool,
    silent_until: Option<Duration>,
    later: Option<Duration>,
    farewell: Option<Duration>,
    /// Nothing more is taken in; until then what is under way may arrive.
    cut: Option<Duration>,
    settled: (u64, u64),
    /// There was a far side.
    reached: bool,
    /// Bytes taken from the client that have not passed yet.
    withheld: usize,
    /// Those bytes, once something spoke against them.
    unchecked: Vec<u8>,
}

/// What a look at a connection led to.
pub enum Next {
    /// Nothing to do before the next event.
    Wait,
    /// More to do, after others.
    Again,
    /// It is over.
    Finished,
    /// It is over, and both sides are told so abruptly.
    Abort,
    /// This speaks against it.
    Refuse(Reason),
    /// The budget is used up, and so many bytes wanted to pass.
    Exhausted(u64),
}

/// What becomes of a connection that is refused.
pub enum Ending {
    /// It is closed at once.
    Close,
    /// The client is told first.
    Farewell,
    /// What was paid for arrives first.
    Cut,
}

impl Conn {
    /// A connection that was just accepted; `checked` clients must name their target.
    pub fn new(origin: Origin, near: Side, checked: bool, now: Duration) -> Conn {
        Conn {
            origin,
            near,
            far: None,
            up: Flow::default(),
            down: Flow::default(),
            check: if checked {
                Check::Undecided
            } else {
                Check::Nothing
            },
            dial: None,
            queued: false,
            timer: None,
            failed: false,
            silent_until: checked.then_some(now + SILENCE),
            later: None,
            farewell: None,
            cut: None,
            settled: (0, 0),
            reached: false,
            withheld: 0,
            unchecked: Vec::new(),
        }
    }

    /// Writes the bytes that passed since the last call into the books; says how many.
    pub fn settle(&mut self, shared: &Shared) -> u64 {
        // What waits for a host that may never answer has not passed yet.
        self.reached |= self.far.is_some();
        if !self.reached {
            return 0;
        }
        let (up, down) = (
            self.up.moved - self.settled.0,
            self.down.moved - self.settled.1,
        );
        if (up, down) == (0, 0) {
            return 0;
        }
        self.settled = (self.up.moved, self.down.moved);
        match &self.origin {
            Origin::World { target, port, .. } => {
                shared.ledger().passed(&target.to_string(), *port, up, down);
            }
            Origin::Published { port } => shared.ledger().published(*port, down, up),
        }
        up + down
    }

    /// Whether nothing that the world sent is still under way.
    pub fn has_sent_all(&self) -> bool {
        self.up.closed || matches!(self.origin, Origin::Published { .. })
    }

    /// Whether the protocol is known, or nobody asks.
    pub fn is_decided(&self) -> bool {
        !matches!(self.check, Check::Undecided)
    }

    /// Whether it waits because bytes pass too fast.
    pub fn is_slowed(&self) -> bool {
        self.later.is_some() && self.cut.is_none()
    }

    /// Whether its requests can be put to a forwarding proxy; `None` until its first bytes tell.
    pub fn forwards(&self) -> Option<bool> {
        match (&self.check, &self.origin) {
            (Check::Undecided, Origin::World { port: 80, .. }) => None,
            (Check::Http(_), Origin::World { port: 80, .. }) => Some(true),
            _ => Some(false),
        }
    }

    /// Begins to end: tells the client why in its own protocol, if it can be told.
    pub fn refuse(&mut self, reason: &Reason, text: &str, now: Duration) -> Ending {
        let ending = self.farewell.is_some() || self.cut.is_some();
        if *reason == Reason::Budget && !ending {
            self.cut = Some(now + FAREWELL);
            return Ending::Cut;
        }
        let message = match &self.check {
            _ if ending || !self.down.is_empty() => Vec::new(),
            Check::Http(_) => http::refusal(text),
            Check::Tls(..) => tls::ALERT.to_vec(),
            Check::Nothing | Check::Undecided => Vec::new(),
        };
        if message.is_empty() {
            return Ending::Close;
        }
        self.down.queue(&message);
        self.farewell = Some(now + FAREWELL);
        Ending::Farewell
    }

    /// Bytes taken from the client to look at, which will never pass.
    pub fn take_withheld(&mut self) -> usize {
        std::mem::take(&mut self.withheld)
    }

    /// The next moment at which time alone changes something.
    pub fn next_timer(&self) -> Option<Duration> {
        let dial = self.dial.as_ref().and_then(Dial::next_timer);
        let silent = self.silent_until.filter(|_| !self.is_decided());
        [dial, silent, self.later, self.farewell]
            .into_iter()
            .flatten()
            .min()
    }
}

/// What a step may use.
pub struct At<'a> {
    /// Pipes that are free.
    pub pipes: &'a mut Pipes,
    /// What may pass, where that is limited.
    pub budget: Option<&'a Budget>,
    /// The lists in force.
    pub rules: &'a Rules,
    /// Room to read into.
    pub buffer: &'a mut Vec<u8>,
    /// The time.
    pub now: Duration,
}

impl Conn {
    /// Does what can be done now.
    pub fn step(&mut self, at: &mut At<'_>) -> Next {
        if let Some(until) = self.farewell {
            return self.say_farewell(until, at);
        }
        if let Some(until) = self.cut {
            return self.pass_the_rest(until, at.now);
        }
        if std::mem::take(&mut self.failed) {
            let broken = |side: &Side| inet::take_error(side.fd.as_fd()).is_err();
            if broken(&self.near) || self.far.as_ref().is_some_and(broken) {
                return Next::Abort;
            }
        }
        if !self.is_decided() && self.silent_until.is_some_and(|until| until <= at.now) {
            return Next::Finished;
        }
        match self.later {
            Some(later) if later > at.now => return Next::Wait,
            _ => self.later = None,
        }
        let up = match (&self.check, &mut self.far) {
            (Check::Nothing, Some(far)) => {
                self.up
                    .pump(&mut self.near, far, at.pipes, at.budget, at.now)
            }
            (Check::Nothing, None) => Turn::Idle,
            _ => match self.pump_checked(at) {
                Ok(turn) => turn,
                Err(reason) => return Next::Refuse(reason),
            },
        };
        let down = match &mut self.far {
            Some(far) => self
                .down
                .pump(far, &mut self.near, at.pipes, at.budget, at.now),
            None => Turn::Idle,
        };
        if self.up.closed && self.down.closed {
            return Next::Finished;
        }
        let mut next = Next::Wait;
        for turn in [up, down] {
            match turn {
                Turn::Idle => {}
                Turn::More => next = Next::Again,
                Turn::Later(wait) => {
                    let until = at.now + wait;
                    self.later = Some(self.later.map_or(until, |l| l.min(until)));
                }
                Turn::Broken => return Next::Abort,
                Turn::Exhausted(bytes) => return Next::Exhausted(bytes),
            }
        }
        next
    }

    /// Reads from the client, and passes on what has been checked.
    fn pump_checked(&mut self, at: &mut At<'_>) -> Result<Turn, Reason> {
        loop {
            match &mut self.far {
                Some(far) => match self.up.drain(far) {
                    Ok(true) => self.up.close_if_done(far),
                    Ok(false) => return Ok(Turn::Idle),
                    Err(_) => return Ok(Turn::Broken),
                },
                None if !self.up.is_empty() => return Ok(Turn::Idle),
                None => {}
            }
            if self.up.ended || !self.near.readable {
                return Ok(Turn::Idle);
            }
            let want = at.buffer.len();
            let grant = match at.budget.map(|b| b.take(want, at.now)) {
                None => want,
                Some(Grant::Bytes(n)) => n,
                Some(Grant::Later(wait)) => return Ok(Turn::Later(wait)),
                Some(Grant::Exhausted) => {
                    let waiting = inet::available(self.near.fd.as_fd()).unwrap_or(0);
                    return Ok(Turn::Exhausted(waiting as u64));
                }
            };
            let got = inet::receive(self.near.fd.as_fd(), &mut at.buffer[..grant], false);
            let used = got.as_ref().map_or(0, |n| *n);
            if let Some(budget) = at.budget {
                budget.give_back(grant - used);
            }
            match got {
                Ok(0) => self.up.ended = true,
                Ok(n) => {
                    self.withheld += n;
                    self.look(&at.buffer[..n], at.rules)?;
                    if matches!(self.check, Check::Nothing) {
                        return Ok(Turn::More);
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.near.readable = false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Ok(Turn::Broken),
            }
        }
    }

    fn look(&mut self, bytes: &[u8], rules: &Rules) -> Result<(), Reason> {
        let Origin::World { target, port, .. } = &self.origin else {
            return Ok(());
        };
        if let (Check::Undecided, Some(&first)) = (&self.check, bytes.first()) {
            if tls::Peek::begins_with(first) {
                self.check = Check::Tls(tls::Peek::default(), Vec::new());
            } else if Requests::begins_with(first) {
                let forward = self.dial.as_ref().and_then(|d| d.forward(target, *port));
                self.check = Check::Http(Requests::new(forward));
            } else {
                self.unchecked.extend_from_slice(bytes);
                return Err(Reason::Protocol);
            }
        }
        let mut out = Vec::new();
        let result = match &mut self.check {
            Check::Tls(peek, held) => {
                held.extend_from_slice(bytes);
                match peek.look(held, |name| judge_name(target, *port, name, rules)) {
                    Progress::More => Ok(()),
                    Progress::Pass(n) => {
                        out.extend(held.drain(..n));
                        Ok(())
                    }
                    Progress::Done => {
                        out.append(held);
                        self.check = Check::Nothing;
                        Ok(())
                    }
                    Progress::Refuse(reason) => {
                        self.unchecked.append(held);
                        Err(reason)
                    }
                }
            }
            Check::Http(requests) => {
                let before = requests.held().to_vec();
                let judge = |authority: Authority<'_>| judge_host(target, *port, authority, rules);
                let result = requests.feed(bytes, &mut out, judge);
                if result.is_err() {
                    // Without rewriting, what passed is the beginning of what came.
                    let all = before.iter().chain(bytes);
                    self.unchecked.extend(all.skip(out.len()));
                }
                result
            }
            Check::Nothing | Check::Undecided => Ok(()),
        };
        self.withheld = self.withheld.saturating_sub(out.len());
        self.up.moved += out.len() as u64;
        self.up.queue(&out);
        result
    }

    /// Lets everything pass from here on, beginning with what was held back.
    pub fn stop_checking(&mut self) {
        self.check = Check::Nothing;
        let held = std::mem::take(&mut self.unchecked);
        self.withheld = 0;
        self.up.moved += held.len() as u64;
        self.up.queue(&held);
    }

    /// Delivers what is paid for; a reset right away would take some of it back.
    fn pass_the_rest(&mut self, until: Duration, now: Duration) -> Next {
        let mut arrived = matches!(self.down.drain(&mut self.near), Ok(true));
        let mut ends = vec![&self.near];
        if let Some(far) = &mut self.far {
            arrived &= matches!(self.up.drain(far), Ok(true));
            ends.push(far);
        }
        arrived &= ends
            .iter()
            .all(|side| inet::unsent(side.fd.as_fd()).is_ok_and(|bytes| bytes == 0));
        if arrived || now >= until {
            return Next::Abort;
        }
        self.later = Some(until.min(now + ARRIVAL));
        Next::Wait
    }

    fn say_farewell(&mut self, until: Duration, at: &mut At<'_>) -> Next {
        match self.down.drain(&mut self.near) {
            Ok(true) => {
                self.down.ended = true;
                self.down.close_if_done(&self.near);
            }
            Ok(false) => {}
            Err(_) => return Next::Finished,
        }
        // Unread bytes would turn the close into a reset, which may overtake the message.
        loop {
            match inet::receive(self.near.fd.as_fd(), at.buffer, false) {
                Ok(0) => return Next::Finished,
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => return Next::Finished,
            }
        }
        if at.now >= until {
            Next::Finished
        } else {
            Next::Wait
        }
    }
}

/// What speaks against a TLS server name on a connection to `target`.
fn judge_name(target: &Target, port: u16, name: Option<&[u8]>, rules: &Rules) -> Option<Reason> {
    let shown = |name: &[u8]| Reason::ServerName(String::from_utf8_lossy(name).into_owned());
    match (target, name) {
        (Target::Name(_), None) => Some(Reason::NoServerName),
        // An address that is listed as such may be spoken to without a name.
        (Target::Address(_), None) => None,
        (_, Some(name)) => match normalise(name) {
            Some(said) if says(target, port, &said, rules) => None,
            _ => Some(shown(name)),
        },
    }
}

/// What speaks against the host of an HTTP request on a connection to `target`.
fn judge_host(
    target: &Target,
    port: u16,
    authority: Authority<'_>,
    rules: &Rules,
) -> Option<Reason> {
    let said = String::from_utf8_lossy(authority.host).into_owned();
    let right_port = authority.port.is_none_or(|p| p == port);
    let right_host = match (target, said.parse::<IpAddr>()) {
        (Target::Address(address), Ok(ip)) => ip == *address,
        (Target::Name(_), Ok(_)) => false,
        (_, Err(_)) => {
            normalise(authority.host).is_some_and(|said| says(target, port, &said, rules))
        }
    };
    (!right_port || !right_host).then(|| match authority.port {
        Some(port) => Reason::HttpHost(format!("{said}:{port}")),
        None => Reason::HttpHost(said),
    })
}

/// A name must be the target itself; at a listed address, any name that is allowed by itself.
fn says(target: &Target, port: u16, said: &str, rules: &Rules) -> bool {
    match target {
        Target::Name(name) => **name == *said,
        Target::Address(_) => rules
            .judge(&Target::Name(said.into()), port)
            .against
            .is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use substrate_policy::terms::{HostPattern, HostRule, Mode, NetSpec};

    #[test]
    fn names_must_be_the_target_and_at_listed_addresses_be_allowed() {
        let host = HostPattern::Name("a.test".into());
        let allowed = vec![HostRule {
            written: "a.test".into(),
            host,
            ports: None,
            internal: false,
        }];
        let rules = Rules::new(
            &NetSpec {
                allowed,
                ..NetSpec::default()
            },
            Mode::Enforce,
        );
        let name = Target::Name("a.test".into());
        let address = Target::Address("192.0.2.1".parse().unwrap());
        let tls = |t: &Target, n: Option<&[u8]>| judge_name(t, 443, n, &rules).is_none();
        assert!(tls(&name, Some(b"A.Test")) && tls(&name, Some(b"a.test.")));
        assert!(
            !tls(&name, None) && !tls(&name, Some(b"b.test")) && !tls(&name, Some(b"192.0.2.1"))
        );
        assert!(tls(&address, None) && tls(&address, Some(b"a.test")));
        assert!(!tls(&address, Some(b"b.test")));
        let http = |t: &Target, text: &str| {
            let authority = http::parse_authority(text.as_bytes()).unwrap();
            judge_host(t, 80, authority, &rules).is_none()
        };
        assert!(http(&name, "a.test") && http(&name, "A.TEST.:80"));
        assert!(!http(&name, "a.test:8080") && !http(&name, "b.test") && !http(&name, "192.0.2.1"));
        assert!(http(&address, "192.0.2.1") && http(&address, "a.test"));
        assert!(!http(&address, "192.0.2.2") && !http(&address, "b.test"));
    }
}
