//! What the policy's host lists say about a name or address and a port.

use std::net::IpAddr;

use substrate_policy::hosts;
use substrate_policy::terms::{HostPattern, HostRule, Mode, NetSpec};

use super::record::Reason;

/// Where a connection wants to go.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// A name, in the form that rules are written in.
    Name(std::sync::Arc<str>),
    /// An address that stands for no name.
    Address(IpAddr),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Name(name) => f.write_str(name),
            Target::Address(address) => write!(f, "{address}"),
        }
    }
}

/// The answer to one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What speaks against it.
    pub against: Option<Reason>,
    /// The protocol must name the target itself (an entry without a port).
    pub checked: bool,
}

/// The lists, ready to be asked.
#[derive(Debug, Clone)]
pub struct Rules {
    allowed: Vec<HostRule>,
    denied: Vec<HostRule>,
    /// Nothing is refused, only recorded.
    pub observe: bool,
}

impl Rules {
    /// The lists of a policy.
    pub fn new(spec: &NetSpec, mode: Mode) -> Rules {
        Rules {
            allowed: spec.allowed.clone(),
            denied: spec.denied.clone(),
            observe: mode == Mode::Observe,
        }
    }

    /// Judges an attempt to reach a port.
    pub fn judge(&self, target: &Target, port: u16) -> Verdict {
        let refuse = |against| Verdict {
            against: Some(against),
            checked: false,
        };
        if let Some(rule) = self.denied.iter().find(|r| {
            closes(&r.host, target) && r.ports.is_none_or(|p| (p.0..=p.1).contains(&port))
        }) {
            return refuse(Reason::Denied(rule.written.clone()));
        }
        let mut named = false;
        let mut checked = false;
        for rule in self.allowed.iter().filter(|r| opens(&r.host, target)) {
            named = true;
            match rule.ports {
                Some((low, high)) if (low..=high).contains(&port) => {
                    return Verdict {
                        against: None,
                        checked: false,
                    };
                }
                None if port == 80 || port == 443 => checked = true,
                _ => {}
            }
        }
        match (checked, named) {
            (true, _) => Verdict {
                against: None,
                checked: true,
            },
            (false, true) => refuse(Reason::PortNotAllowed),
            (false, false) => refuse(Reason::NotAllowed),
        }
    }

    /// Whether a name may be looked up at all: some port of it may be reached.
    pub fn judge_name(&self, name: &str) -> Option<Reason> {
        let target = Target::Name(name.into());
        let denied = |r: &&HostRule| r.ports.is_none() && closes(&r.host, &target);
        if let Some(rule) = self.denied.iter().find(denied) {
            return Some(Reason::Denied(rule.written.clone()));
        }
        let allowed = self.allowed.iter().any(|r| opens(&r.host, &target));
        (!allowed).then_some(Reason::NotAllowed)
    }

    /// Whether a name is listed itself, so that looking it up tells its name servers nothing else.
    pub fn lists_name(&self, name: &str) -> bool {
        let is = |rule: &HostRule| matches!(&rule.host, HostPattern::Name(known) if known == name);
        self.allowed.iter().any(is)
    }

    /// Whether settings of the user's own name this host, so that it may lie in an internal network.
    pub fn is_internal(&self, target: &Target) -> bool {
        let mut allowed = self.allowed.iter();
        allowed.any(|rule| rule.internal && opens(&rule.host, target))
    }

    /// Whether an address is listed as such for a port, which lifts the ban on special ones.
    pub fn lists_address(&self, address: IpAddr, port: u16) -> bool {
        let target = Target::Address(address);
        self.judge(&target, port).against.is_none()
    }

    /// The entry that denies an address, whatever name led to it.
    pub fn denies_address(&self, address: IpAddr, port: u16) -> Option<Reason> {
        match self.judge(&Target::Address(address), port).against {
            Some(denied @ Reason::Denied(_)) => Some(denied),
            _ => None,
        }
    }
}

/// What the gate dials is the host's, so a loopback is the host's too, and only its own entry opens it.
fn opens(pattern: &HostPattern, target: &Target) -> bool {
    match target {
        _ if is_loopback(target) => *pattern == HostPattern::HostLoopback,
        Target::Name(name) => pattern.allows_name(name),
        Target::Address(address) => pattern.allows_address(*address),
    }
}

fn closes(pattern: &HostPattern, target: &Target) -> bool {
    let named = match target {
        Target::Name(name) => pattern.allows_name(name),
        Target::Address(address) => pattern.allows_address(*address),
    };
    matches!(pattern, HostPattern::Any)
        || named
        || (is_loopback(target) && pattern.allows_name("localhost"))
}

fn is_loopback(target: &Target) -> bool {
    match target {
        Target::Name(name) => &**name == "localhost",
        Target::Address(address) => hosts::is_loopback(*address),
    }
}

/// A host name as rules are written: lower case, without a trailing dot. `None` for what is no
/// name: empty or overlong labels, other characters, or an address in disguise.
pub fn normalise(name: &[u8]) -> Option<String> {
    let name = name.strip_suffix(b".").unwrap_or(name);
    if name.is_empty() || name.len() > 253 {
        return None;
    }
    for label in name.split(|b| *b == b'.') {
        let plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
        if label.is_empty() || label.len() > 63 || !label.iter().all(plain) {
            return None;
        }
    }
    let last = name.rsplit(|b| *b == b'.').next().unwrap_or(name);
    // inet_aton reads `127.1`, `0x7f.1` and `2130706433` as addresses.
    let number = last.iter().all(u8::is_ascii_digit)
        || (last.len() > 1 && last[0] == b'0' && matches!(last[1], b'x' | b'X'));
    if number {
        return None;
    }
    String::from_utf8(name.to_ascii_lowercase()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use substrate_policy::hosts::Host;

    /// Hosts and entries that meet often enough to be worth comparing.
    const WORDS: &[&str] = &[
        "a.test",
        "b.test",
        "x.a.test",
        "test",
        "localhost",
        "host-loopback:1",
        "127.0.0.1",
        "::1",
        "10.0.0.7",
        "10.0.0.0/8",
        "fd00::/8",
        "fd00::7",
        "*",
        "*.test",
        "*.a.test",
        "xa.test",
        "2130706433",
        "A.TEST.",
        "127.0.0.0/8",
    ];

    fn entry() -> impl Strategy<Value = HostRule> {
        let ports = prop_oneof![
            Just(None),
            Just(Some((443, 443))),
            Just(Some((1, 65535))),
            Just(Some((20, 90)))
        ];
        (proptest::sample::select(WORDS), ports).prop_map(|(word, ports)| HostRule {
            // The host's loopback is never without.
            ports: ports.or(word.starts_with("host").then_some((80, 80))),
            ..HostRule::parse(word).unwrap_or_else(|_| HostRule::parse("b.test").unwrap())
        })
    }

    proptest! {
        /// What the line says about a host that it knows is what the gate says when it is dialled.
        #[test]
        fn line_and_gate_agree(
            allowed in proptest::collection::vec(entry(), 0..4),
            denied in proptest::collection::vec(entry(), 0..3),
            word in proptest::sample::select(WORDS),
            port in proptest::sample::select(&[22u16, 80, 443, 5432][..]),
        ) {
            let Some(host) = Host::parse(word) else { return Ok(()) };
            let loopback = match &host {
                Host::Name(name) => name == "localhost",
                Host::Address(ip) => hosts::is_loopback(*ip),
            };
            // A world's loopback is its own; what the gate may dial is the host's.
            let counts = |r: &&HostRule| !loopback || r.host == HostPattern::HostLoopback;
            let line = allowed.iter().filter(counts).any(|r| r.allows(&host, Some(port)))
                && !denied.iter().any(|r| r.denies(&host, Some(port)));
            let rules = Rules { allowed, denied, observe: false };
            // As the gate itself finds the target of a connection.
            let target = match host {
                Host::Name(name) => Target::Name(name.as_str().into()),
                Host::Address(ip) if ip.is_loopback() => Target::Name("localhost".into()),
                Host::Address(ip) => Target::Address(ip),
            };
            let address_denied = match &target {
                Target::Address(ip) => rules.denies_address(*ip, port).is_some(),
                Target::Name(_) => matches!(
                    Host::parse(word),
                    Some(Host::Address(ip)) if rules.denies_address(ip, port).is_some()
                ),
            };
            let gate = rules.judge(&target, port).against.is_none() && !address_denied;
            prop_assert_eq!(line, gate);
        }
    }

    fn rule(written: &str, host: HostPattern, ports: Option<(u16, u16)>) -> HostRule {
        HostRule {
            written: written.into(),
            host,
            ports,
            internal: false,
        }
    }

    fn rules() -> Rules {
        let name = |n: &str| HostPattern::Name(n.into());
        Rules {
            allowed: vec![
                rule("a.test", name("a.test"), None),
                rule(
                    "*.below.test",
                    HostPattern::Below("below.test".into()),
                    None,
                ),
                rule("db.test:5432", name("db.test"), Some((5432, 5432))),
                rule("both.test", name("both.test"), None),
                rule("both.test:443", name("both.test"), Some((443, 443))),
                rule(
                    "10.0.0.0/8:22",
                    HostPattern::Network("10.0.0.0".parse().unwrap(), 8),
                    Some((22, 22)),
                ),
                rule("gist.a.test", name("gist.a.test"), None),
                rule("half.test", name("half.test"), None),
            ],
            denied: vec![
                rule("gist.a.test", name("gist.a.test"), None),
                rule("half.test:80", name("half.test"), Some((80, 80))),
                rule(
                    "10.9.0.0/16",
                    HostPattern::Network("10.9.0.0".parse().unwrap(), 16),
                    None,
                ),
            ],
            observe: false,
        }
    }

    fn ask(target: &str, port: u16) -> Verdict {
        let target = match target.parse() {
            Ok(address) => Target::Address(address),
            Err(_) => Target::Name(target.into()),
        };
        rules().judge(&target, port)
    }

    #[test]
    fn entries_open_what_they_name_and_nothing_beside_it() {
        let pass = |checked| Verdict {
            against: None,
            checked,
        };
        let refuse = |against| Verdict {
            against: Some(against),
            checked: false,
        };
        assert_eq!(ask("a.test", 443), pass(true));
        assert_eq!(ask("a.test", 80), pass(true));
        assert_eq!(ask("a.test", 22), refuse(Reason::PortNotAllowed));
        assert_eq!(ask("b.test", 443), refuse(Reason::NotAllowed));
        assert_eq!(ask("x.a.test", 443), refuse(Reason::NotAllowed));
        assert_eq!(ask("nota.test", 443), refuse(Reason::NotAllowed));
        assert_eq!(ask("x.below.test", 443), pass(true));
        assert_eq!(ask("x.y.below.test", 443), pass(true));
        assert_eq!(ask("below.test", 443), refuse(Reason::NotAllowed));
        assert_eq!(ask("xbelow.test", 443), refuse(Reason::NotAllowed));
        assert_eq!(ask("db.test", 5432), pass(false));
        assert_eq!(ask("db.test", 443), refuse(Reason::PortNotAllowed));
        assert_eq!(ask("both.test", 443), pass(false));
        assert_eq!(ask("both.test", 80), pass(true));
        assert_eq!(
            ask("gist.a.test", 443),
            refuse(Reason::Denied("gist.a.test".into()))
        );
        assert_eq!(
            ask("half.test", 80),
            refuse(Reason::Denied("half.test:80".into()))
        );
        assert_eq!(ask("half.test", 443), pass(true));
        assert_eq!(ask("10.1.1.1", 22), pass(false));
        assert_eq!(ask("10.1.1.1", 80), refuse(Reason::PortNotAllowed));
        assert_eq!(
            ask("10.9.1.1", 22),
            refuse(Reason::Denied("10.9.0.0/16".into()))
        );
    }

    #[test]
    fn a_star_opens_names_but_neither_addresses_nor_the_hosts_loopback() {
        let any = Rules {
            allowed: vec![rule("*", HostPattern::Any, Some((1, 65535)))],
            denied: vec![],
            observe: false,
        };
        assert_eq!(any.judge(&Target::Name("x.test".into()), 9).against, None);
        assert!(
            any.judge(&Target::Name("localhost".into()), 9)
                .against
                .is_some()
        );
        assert!(
            any.judge(&Target::Address("8.8.8.8".parse().unwrap()), 9)
                .against
                .is_some()
        );
        assert_eq!(any.judge_name("x.test"), None);
    }

    #[test]
    fn a_name_may_be_looked_up_when_some_port_may_be_reached() {
        let rules = rules();
        assert_eq!(rules.judge_name("db.test"), None);
        assert_eq!(rules.judge_name("half.test"), None);
        assert!(rules.judge_name("gist.a.test").is_some());
        assert!(rules.judge_name("other.test").is_some());
    }

    #[test]
    fn names_are_folded_and_addresses_in_disguise_are_none() {
        assert_eq!(normalise(b"A.Test.").as_deref(), Some("a.test"));
        assert_eq!(
            normalise(b"_srv._tcp.a.test").as_deref(),
            Some("_srv._tcp.a.test")
        );
        for bad in [
            "",
            ".",
            "a..b",
            "127.0.0.1",
            "127.1",
            "0x7f.0x1",
            "2130706433",
            "a b",
            "a/b",
            "é.test",
            "::1",
        ] {
            assert_eq!(normalise(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(normalise("a".repeat(64).as_bytes()), None);
    }
}
