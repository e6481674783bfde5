//! What the stub resolver answers: names the policy allows get their synthetic address, the
//! rest get a "no" at once. Nothing about a refused name ever leaves the machine.

use super::dns::{Query, Rcode, Record, Rtype, reverse_address};
use super::pool::Pool;
use super::record::Reason;
use super::rules::{Rules, normalise};

/// What to do about a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// This is the answer.
    Reply(Vec<u8>),
    /// The answer says no, and the refusal is recorded.
    Refuse {
        /// The answer.
        reply: Vec<u8>,
        /// The name asked for.
        name: String,
        /// Why not.
        reason: Reason,
    },
    /// Ask the host whether the name exists, then call [`found`].
    Find {
        /// The name.
        name: String,
        /// Set in `observe` when the name would have been refused.
        would: Option<Reason>,
    },
    /// Ask the host for these records and relay them.
    Relay {
        /// The name.
        name: String,
        /// Set in `observe` when the name would have been refused.
        would: Option<Reason>,
    },
}

/// Decides one query.
pub fn decide(query: &Query, rules: &Rules, pool: &Pool) -> Decision {
    let refuse = |name: String, reason: Reason| Decision::Refuse {
        reply: query.fail(Rcode::NXDOMAIN, Some(&reason.to_string())),
        name,
        reason,
    };
    let Some(name) = normalise(&query.name) else {
        return Decision::Reply(query.fail(Rcode::NXDOMAIN, None));
    };
    if name == "localhost" || name.ends_with(".localhost") {
        return Decision::Reply(match query.kind {
            Rtype::A => query.answer(&[Record::A(std::net::Ipv4Addr::LOCALHOST)]),
            Rtype::AAAA => query.answer(&[Record::Aaaa(std::net::Ipv6Addr::LOCALHOST)]),
            _ => query.answer(&[]),
        });
    }
    if name.ends_with(".arpa") {
        return Decision::Reply(reverse(query, &name, pool));
    }
    let host = match query.kind {
        Rtype::TXT | Rtype::SRV | Rtype::MX => service_host(&name),
        _ => &name,
    };
    let against = rules.judge_name(host);
    if let Some(reason) = against.clone()
        && !rules.observe
    {
        return refuse(name, reason);
    }
    match query.kind {
        Rtype::A | Rtype::AAAA | Rtype::ANY => Decision::Find {
            name,
            would: against,
        },
        Rtype::TXT | Rtype::SRV | Rtype::MX => Decision::Relay {
            name,
            would: against,
        },
        // HTTPS and SVCB carry address hints and keys for hidden names; other types are rare.
        _ => Decision::Reply(query.answer(&[])),
    }
}

/// Longest label of a service or protocol, with its underscore.
const SERVICE_LABEL: usize = 16;

/// `_service._proto.host` and `_name.host` belong to their host. More or longer labels would carry
/// whatever somebody puts into them to the name servers of a host that is listed exactly.
fn service_host(name: &str) -> &str {
    let mut host = name;
    for _ in 0..2 {
        match host.split_once('.') {
            Some((label, rest)) if label.starts_with('_') && label.len() <= SERVICE_LABEL => {
                host = rest;
            }
            _ => break,
        }
    }
    host
}

fn reverse(query: &Query, name: &str, pool: &Pool) -> Vec<u8> {
    let Some(address) = reverse_address(name) else {
        return query.fail(Rcode::NXDOMAIN, None);
    };
    let found = if address.is_loopback() {
        Some("localhost".to_owned())
    } else {
        pool.name(address).map(|n| n.to_string())
    };
    match found {
        Some(name) if query.kind == Rtype::PTR => query.answer(&[Record::Ptr(name)]),
        Some(_) => query.answer(&[]),
        None => query.fail(Rcode::NXDOMAIN, None),
    }
}

/// The answer for a name that exists; `None` when the pool has no address left.
pub fn found(query: &Query, name: &str, pool: &mut Pool) -> Option<Vec<u8>> {
    let (v4, v6) = pool.addresses(name)?;
    Some(match query.kind {
        Rtype::A => query.answer(&[Record::A(v4)]),
        Rtype::AAAA => query.answer(&[Record::Aaaa(v6)]),
        _ => query.answer(&[Record::A(v4), Record::Aaaa(v6)]),
    })
}

#[cfg(test)]
mod tests {
    use super::super::dns::{read_query, read_response, write_query};
    use super::*;
    use substrate_policy::terms::{HostPattern, HostRule, Mode, NetSpec};

    fn rules(mode: Mode) -> Rules {
        let host = HostPattern::Name("a.test".into());
        let allowed = vec![HostRule {
            written: "a.test".into(),
            host,
            ports: None,
            internal: false,
        }];
        Rules::new(
            &NetSpec {
                allowed,
                ..NetSpec::default()
            },
            mode,
        )
    }

    fn ask(name: &str, kind: Rtype, mode: Mode) -> Decision {
        let query = read_query(&write_query(1, name, kind).unwrap()).unwrap();
        decide(&query, &rules(mode), &Pool::default())
    }

    fn rcode(decision: &Decision) -> Rcode {
        match decision {
            Decision::Reply(r) | Decision::Refuse { reply: r, .. } => {
                read_response(r).unwrap().rcode
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_listed_names_are_looked_up() {
        let find = Decision::Find {
            name: "a.test".into(),
            would: None,
        };
        assert_eq!(ask("a.test", Rtype::A, Mode::Enforce), find);
        assert_eq!(ask("A.TEST", Rtype::AAAA, Mode::Enforce), find);
        for (name, kind) in [
            ("b.test", Rtype::A),
            ("x.a.test", Rtype::TXT),
            ("_x._tcp.b.test", Rtype::SRV),
            ("_x._y._z.a.test", Rtype::TXT),
            ("_a-label-too-long._tcp.a.test", Rtype::TXT),
            ("x._tcp.a.test", Rtype::TXT),
            ("_x._tcp.a.test", Rtype::A),
        ] {
            let decision = ask(name, kind, Mode::Enforce);
            assert!(
                matches!(decision, Decision::Refuse { .. }),
                "{name}: {decision:?}"
            );
            assert_eq!(rcode(&decision), Rcode::NXDOMAIN);
        }
        let srv = ask("_pg._tcp.a.test", Rtype::SRV, Mode::Enforce);
        assert_eq!(
            srv,
            Decision::Relay {
                name: "_pg._tcp.a.test".into(),
                would: None
            }
        );
    }

    #[test]
    fn observing_looks_everything_up_and_remembers_what_it_would_refuse() {
        let would = Some(Reason::NotAllowed);
        let find = Decision::Find {
            name: "b.test".into(),
            would,
        };
        assert_eq!(ask("b.test", Rtype::A, Mode::Observe), find);
    }

    #[test]
    fn service_bindings_reverse_names_and_nonsense_stay_inside() {
        let nothing = ask("a.test", Rtype::HTTPS, Mode::Enforce);
        assert!(
            matches!(&nothing, Decision::Reply(r) if read_response(r).unwrap().records.is_empty())
        );
        assert_eq!(
            rcode(&ask("8.8.8.8.in-addr.arpa", Rtype::PTR, Mode::Observe)),
            Rcode::NXDOMAIN
        );
        assert_eq!(
            rcode(&ask("10.0.0.1", Rtype::A, Mode::Observe)),
            Rcode::NXDOMAIN
        );
        let local = ask("localhost", Rtype::A, Mode::Enforce);
        assert_eq!(rcode(&local), Rcode::NOERROR);
        let mut pool = Pool::default();
        let (v4, _) = pool.addresses("a.test").unwrap();
        let [a, b, c, d] = v4.octets();
        let name = format!("{d}.{c}.{b}.{a}.in-addr.arpa");
        let query = read_query(&write_query(1, &name, Rtype::PTR).unwrap()).unwrap();
        let Decision::Reply(reply) = decide(&query, &rules(Mode::Enforce), &pool) else {
            panic!()
        };
        assert!(reply.windows(8).any(|w| w == b"\x01a\x04test\0"));
    }
}
