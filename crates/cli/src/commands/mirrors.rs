//! Whether what package clients fetch from can be reached by what the policy lets worlds reach: the gate's own
//! rules, and a connection from this machine, as the gate would make it.

use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use substrate_broker::Broker;
use substrate_broker::facts::Machine;
use substrate_egress::rules::{Rules, Target};
use substrate_egress::special;
use substrate_policy::terms::{HostPattern, HostRule};

/// How long a host may take to be found and reached.
const PATIENCE: Duration = Duration::from_secs(3);
/// Of each set, so many hosts are tried.
const TRIED: usize = 3;
/// Where clients connect to by default.
const HTTPS: u16 = 443;

/// What is wrong with hosts of the policy's sets, one sentence for each.
pub fn problems(broker: &Broker) -> Vec<String> {
    let Ok(effects) = broker.policy().effects() else {
        return Vec::new();
    };
    let cwd = std::env::current_dir().unwrap_or_default();
    let facts = Machine::new(&cwd, &cwd, broker.home(), std::ffi::OsStr::new(""));
    let spec = broker.world_spec(&facts);
    let rules = Rules::new(&spec.net, spec.mode);
    let sets = effects
        .net
        .allowed
        .iter()
        .filter(|entry| entry.rule.is_none());
    let hosts = sets.flat_map(|set| {
        let members = set.members.iter().take(TRIED);
        members.filter_map(|member| Some((set.written.clone(), named(member)?)))
    });
    let (tell, told) = mpsc::channel();
    let mut waited_for = 0;
    for (set, (name, port)) in hosts {
        let (tell, rules) = (tell.clone(), rules.clone());
        waited_for += 1;
        // A resolver that does not answer keeps its thread, and nobody else.
        thread::spawn(move || {
            let problem = problem(&rules, &name, port);
            let _ = tell.send(problem.map(|problem| format!("{set}: {name} {problem}")));
        });
    }
    drop(tell);
    let mut problems: Vec<String> = Vec::new();
    for _ in 0..waited_for {
        match told.recv_timeout(PATIENCE * 2) {
            Ok(problem) => problems.extend(problem),
            Err(_) => {
                problems.push("a name server does not answer".to_owned());
                break;
            }
        }
    }
    problems.sort();
    problems
}

fn named(rule: &HostRule) -> Option<(String, u16)> {
    let port = rule.ports.map_or(HTTPS, |(first, _)| first);
    match &rule.host {
        HostPattern::Name(name) => Some((name.clone(), port)),
        _ => None,
    }
}

fn problem(rules: &Rules, name: &str, port: u16) -> Option<String> {
    let target = Target::Name(name.into());
    if let Some(reason) = rules.judge(&target, port).against {
        return Some(format!("is refused by the gate ({reason})"));
    }
    let addresses: Vec<SocketAddr> = match (name, port).to_socket_addrs() {
        Ok(found) => found.collect(),
        Err(error) => return Some(format!("is not found ({error})")),
    };
    let refused = |address: &SocketAddr| refused(rules, &target, *address);
    if let Some((address, kind)) = addresses
        .iter()
        .find_map(|address| Some((address.ip(), refused(address)?)))
    {
        return Some(format!(
            "leads to {address} ({kind}), which the gate refuses unless it is listed"
        ));
    }
    let reached = addresses
        .iter()
        .map(|address| TcpStream::connect_timeout(address, PATIENCE));
    let mut error = None;
    for attempt in reached {
        match attempt {
            Ok(_) => return None,
            Err(failed) => error = Some(failed),
        }
    }
    error.map(|error| format!("cannot be reached ({error})"))
}

/// What kind of address it is, where the gate does not dial such.
fn refused(rules: &Rules, target: &Target, address: SocketAddr) -> Option<&'static str> {
    let kind = special::kind(address.ip())?;
    let lifted = special::is_internal(kind) && rules.is_internal(target)
        || rules.lists_address(address.ip(), address.port());
    (!lifted).then_some(kind)
}

#[cfg(test)]
mod tests {
    use substrate_policy::terms::{Mode, NetSpec};

    use super::*;

    fn rules(internal: bool, name: &str, port: u16) -> Rules {
        let spec = NetSpec {
            allowed: vec![HostRule {
                written: name.to_owned(),
                host: HostPattern::Name(name.to_owned()),
                ports: Some((port, port)),
                internal,
            }],
            ..NetSpec::default()
        };
        Rules::new(&spec, Mode::Enforce)
    }

    #[test]
    fn what_the_gate_would_refuse_is_said() {
        let target = Target::Name("a.test".into());
        let kind = |internal, address: &str| {
            refused(
                &rules(internal, "a.test", 443),
                &target,
                address.parse().unwrap(),
            )
        };
        assert_eq!(kind(false, "10.0.0.1:443"), Some("private"));
        // The user's own settings name it.
        assert_eq!(kind(true, "10.0.0.1:443"), None);
        assert_eq!(kind(true, "127.0.0.1:443"), Some("loopback"));
        assert_eq!(kind(false, "1.1.1.1:443"), None);
        let told = problem(&rules(false, "a.test", 1), "b.test", 1).unwrap();
        assert!(told.contains("refused by the gate"), "{told}");
    }
}
