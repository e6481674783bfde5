//! From the policy's network terms to the steps inside the namespace.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use substrate_policy::terms::{HostPattern, Mode, NetSpec};
use substrate_sys::inet::{Flag, Kind};
use substrate_sys::netlink;

use substrate_init::netplan::{Action, NetPlan, Role, Step, When};
use substrate_init::{nft, routes};

use super::pool;

/// Where the stub resolver listens; `resolv.conf` names it.
pub const STUB: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 53);

/// Where the stub of a world listens on this machine. Where the host has no `resolv.conf`, none
/// can be laid over it, and then every resolver asks this address.
fn stub() -> Ipv4Addr {
    match std::fs::symlink_metadata("/etc/resolv.conf") {
        Ok(_) => STUB,
        Err(_) => Ipv4Addr::LOCALHOST,
    }
}
/// The gate's port on the stub's address, and on the world's own IPv6 address.
const GATE_PORT: u16 = 54;
/// Listeners without nftables, one for each port.
const MAX_PORTS: usize = 128;
/// Connections to published ports at one time, in each family.
const DIALERS: usize = 48;
const BACKLOG: i32 = 4096;

/// A namespace with nothing but `lo`.
pub fn loopback_only() -> NetPlan {
    NetPlan {
        steps: vec![loopback_up()],
    }
}

/// The steps for these terms. `publish` are ports of the world that the host may dial.
pub fn steps(spec: &NetSpec, mode: Mode, publish: &[u16], nftables: bool) -> NetPlan {
    let observe = mode == Mode::Observe;
    let own4 = IpAddr::V4(pool::OWN_V4);
    let own6 = IpAddr::V6(pool::OWN_V6);
    let mut steps = vec![
        loopback_up(),
        required(request("address of the world", routes::address(own4))),
        request("IPv6 address of the world", routes::address(own6)),
    ];

    let (loopback, mut gated) = listed(spec);
    gated.push(pool::V4);
    gated.push(pool::V6);
    let v4 = SocketAddr::new(STUB.into(), GATE_PORT);
    let v6 = SocketAddr::new(own6, GATE_PORT);
    let rules = nft::Rules {
        listeners: vec![v4, v6],
        own: vec![own4, own6],
        gated: gated.clone(),
        loopback,
        everything: observe,
        log: true,
    };
    let bare = nft::Rules {
        listeners: vec![v4],
        log: false,
        ..rules.clone()
    };
    if nftables {
        for rules in [rules, bare] {
            let message = nft::transaction(&rules);
            let action = Action::Request {
                protocol: netlink::NETFILTER,
                message,
                acks: 1,
            };
            let mut step = step("nftables", action);
            step.when = When::NotRedirected;
            step.redirects = true;
            steps.push(step);
        }
    }

    // With nftables every address is local, so that whatever is not allowed is seen and
    // rejected; without, only what the gate serves has a route.
    let any = [
        (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        (IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0),
    ];
    for (nets, when) in [
        (&any[..], When::Redirected),
        (&gated[..], When::NotRedirected),
    ] {
        for &(net, prefix) in nets {
            let source = if net.is_ipv4() { own4 } else { own6 };
            let mut step = request("route", routes::local_route(net, prefix, source));
            step.when = when;
            step.required = net.is_ipv4();
            steps.push(step);
        }
    }

    let dns = SocketAddr::new(stub().into(), 53);
    steps.push(required(socket(
        "stub resolver",
        Kind::Udp,
        &[],
        dns,
        0,
        Role::DnsUdp,
    )));
    let reuse = &[Flag::ReuseAddress];
    steps.push(required(socket(
        "stub resolver",
        Kind::Tcp,
        reuse,
        dns,
        64,
        Role::DnsTcp,
    )));

    let transparent = [Flag::ReuseAddress, Flag::TransparentV4, Flag::Local];
    let gate = socket("gate", Kind::Tcp, &transparent, v4, BACKLOG, Role::Listener);
    let mut gate = required(gate);
    gate.when = When::Redirected;
    steps.push(gate);
    let transparent = [
        Flag::ReuseAddress,
        Flag::OnlyV6,
        Flag::TransparentV6,
        Flag::Local,
    ];
    let mut gate = socket(
        "IPv6 gate",
        Kind::Tcp,
        &transparent,
        v6,
        BACKLOG,
        Role::Listener,
    );
    gate.when = When::Redirected;
    steps.push(gate);
    for port in ports(spec) {
        for (ip, flags) in [
            (any[0].0, &[Flag::ReuseAddress, Flag::Local][..]),
            (
                any[1].0,
                &[Flag::ReuseAddress, Flag::OnlyV6, Flag::Local][..],
            ),
        ] {
            let address = SocketAddr::new(ip, port);
            let mut gate = socket("gate", Kind::Tcp, flags, address, BACKLOG, Role::Listener);
            gate.when = When::NotRedirected;
            steps.push(gate);
        }
    }

    steps.push(channel(
        "socket list",
        netlink::SOCK_DIAG,
        Vec::new(),
        Role::Diag,
    ));
    let mut log = channel("packet log", netlink::NETFILTER, nft::bind_log(), Role::Log);
    log.when = When::Redirected;
    steps.push(log);
    if !publish.is_empty() {
        // A socket that once spoke IPv4 as IPv6 never speaks IPv6 again, so there are two sorts.
        for (ip, flags) in [(any[0].0, &[][..]), (any[1].0, &[Flag::OnlyV6][..])] {
            let address = SocketAddr::new(ip, 0);
            let dialer = socket("dialer", Kind::Tcp, flags, address, 0, Role::Dialer);
            steps.extend(std::iter::repeat_n(dialer, DIALERS));
        }
    }
    NetPlan { steps }
}

/// The ports of the host's loopback, and other networks, that the policy lists as such.
fn listed(spec: &NetSpec) -> (Vec<nft::LoopbackPorts>, Vec<(IpAddr, u8)>) {
    let mut loopback = Vec::new();
    let mut networks = Vec::new();
    for rule in &spec.allowed {
        let hosts = match &rule.host {
            HostPattern::HostLoopback => vec![
                (IpAddr::V4(Ipv4Addr::LOCALHOST), 32),
                (IpAddr::V6(Ipv6Addr::LOCALHOST), 128),
            ],
            // A world's loopback is its own.
            HostPattern::Network(..) if rule.is_own_loopback() => continue,
            HostPattern::Network(net, bits) => {
                networks.push((*net, *bits));
                continue;
            }
            _ => continue,
        };
        for (net, bits) in hosts {
            match rule.ports {
                Some(ports) => loopback.push((net, bits, ports)),
                None => loopback.extend([(net, bits, (80, 80)), (net, bits, (443, 443))]),
            }
        }
    }
    (loopback, networks)
}

/// The ports that get a listener where nftables are missing.
fn ports(spec: &NetSpec) -> Vec<u16> {
    let mut ports = vec![80, 443];
    for (low, high) in spec.allowed.iter().filter_map(|r| r.ports) {
        ports.extend((low..=high).take(MAX_PORTS));
    }
    let mut seen = std::collections::HashSet::new();
    ports.retain(|port| seen.insert(*port));
    ports.truncate(MAX_PORTS / 2);
    ports
}

fn step(what: &'static str, action: Action) -> Step {
    Step {
        what,
        action,
        when: When::Always,
        required: false,
        redirects: false,
        role: None,
    }
}

fn required(mut step: Step) -> Step {
    step.required = true;
    step
}

fn loopback_up() -> Step {
    required(request("loopback", routes::loopback_up()))
}

fn request(what: &'static str, message: Vec<u8>) -> Step {
    step(
        what,
        Action::Request {
            protocol: netlink::ROUTE,
            message,
            acks: 1,
        },
    )
}

fn channel(what: &'static str, protocol: netlink::Protocol, message: Vec<u8>, role: Role) -> Step {
    let mut step = step(
        what,
        Action::Channel {
            protocol,
            message,
            acks: 1,
        },
    );
    step.role = Some(role);
    step
}

fn socket(
    what: &'static str,
    kind: Kind,
    flags: &[Flag],
    address: SocketAddr,
    backlog: i32,
    role: Role,
) -> Step {
    let flags = flags.to_vec();
    let mut step = step(
        what,
        Action::Socket {
            kind,
            flags,
            address,
            backlog,
        },
    );
    step.role = Some(role);
    step
}
