//! The network of a world: names that were allowed, and nothing else.
//!
//! The world's namespace has only `lo`. A stub resolver gives each allowed name a synthetic
//! address; nftables hand every TCP connection to a listener that was passed out to this
//! process, which knows the name from the address, checks it, dials on the host and copies.

mod config;
mod conn;
mod connections;
mod dial;
pub mod dns;
mod engine;
mod flow;
mod gate;
pub mod gated;
pub mod http;
pub mod network;
mod packets;
mod plan;
pub mod pool;
pub mod proxy;
pub mod record;
mod resolver;
pub mod rules;
mod serve_dns;
pub mod service;
mod services;
mod slab;
pub mod special;
mod stub;
pub mod tls;
mod who;

pub use config::{Clock, Follow, GateConfig, Listener, most_connections};
pub use gate::{Gate, GateError};
pub use plan::{STUB, loopback_only};
pub use proxy::Proxies;
pub use record::{Event, NetReport, Program, Reason, Refusal};
pub use resolver::HostFiles;

pub use substrate_policy::budget::Budget;
use substrate_policy::terms::{Mode, NetSpec};

use substrate_init::netplan::NetPlan;

/// What a world's namespace needs done, and what its gate needs to know. `publish` are ports
/// of the world that the host's loopback reaches.
pub fn plan(spec: &NetSpec, mode: Mode, publish: &[u16]) -> (NetPlan, GateConfig) {
    let steps = plan::steps(spec, mode, publish, true);
    (steps, GateConfig::new(spec, mode, publish))
}

/// The same without nftables: one listener for each port that the policy lists. Used where the
/// kernel has none, which the plan finds out by itself; this is for choosing it.
pub fn plan_without_nftables(spec: &NetSpec, mode: Mode, publish: &[u16]) -> (NetPlan, GateConfig) {
    let steps = plan::steps(spec, mode, publish, false);
    (steps, GateConfig::new(spec, mode, publish))
}

/// What `/etc/resolv.conf` says in a world.
pub const RESOLV_CONF: &str = "nameserver 127.0.0.53\noptions edns0 trust-ad\n";

/// What `/etc/hosts` says in a world: the host's own entries would lead around the stub.
pub fn hosts_file(host_name: &str) -> String {
    format!("127.0.0.1 localhost {host_name}\n::1 localhost ip6-localhost ip6-loopback\n")
}

/// What `/etc/nsswitch.conf` says in a world: as on the host, but names come from files and DNS.
pub fn nsswitch_conf(host: &str) -> String {
    let is_hosts = |line: &&str| line.trim_start().starts_with("hosts:");
    let mut text: String = host
        .lines()
        .filter(|l| !is_hosts(l))
        .flat_map(|l| [l, "\n"])
        .collect();
    text.push_str("hosts: files dns\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_service_keeps_everything_but_hosts() {
        let host = "passwd: files systemd\nhosts: mymachines resolve [!UNAVAIL=return] dns\n";
        assert_eq!(
            nsswitch_conf(host),
            "passwd: files systemd\nhosts: files dns\n"
        );
        assert_eq!(nsswitch_conf(""), "hosts: files dns\n");
    }
}
