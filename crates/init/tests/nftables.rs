//! The bytes that make a world's nftables, compared with what `nft` itself reads of them.

// A failed step is a failed test.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use substrate_init::nft::{Rules, transaction};
use substrate_rig::skip;
use substrate_sys::netlink;

/// Says to a copy of this test that it runs in a network namespace of its own.
const INSIDE: &str = "SUBSTRATE_TEST_NFTABLES";

/// Runs the test again in a network of its own. As root the first copy could do that itself, but not
/// beside other threads.
fn in_a_network(test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let probe = Command::new("unshare")
        .args(["-Urn", "nft", "list", "ruleset"])
        .output();
    if !probe.is_ok_and(|output| output.status.success()) {
        return skip(
            test,
            "needs nft, nftables in the kernel and user namespaces",
        );
    }
    let again = Command::new("unshare")
        .arg("-Urn")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "1")
        .status()
        .unwrap();
    assert!(again.success());
}

/// What `nft` does with these words and this on its standard input.
fn nft(words: &[&str], input: &str) -> String {
    let mut child = Command::new("nft")
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "nft {words:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Sends the rules to the kernel, and asks `nft` what it has now.
fn listed(rules: &Rules) -> String {
    let channel = netlink::open(netlink::NETFILTER).unwrap();
    netlink::transact(channel.as_fd(), &transaction(rules), 1).unwrap();
    nft(&["--stateless", "list", "ruleset"], "")
}

/// The rules are what `nft` itself makes of a text. Both are listed by it, because its words differ
/// from one version to the next.
fn compare(rules: &Rules, meant: &str) {
    let ours = listed(rules);
    nft(&["flush", "ruleset"], "");
    nft(&["-f", "-"], meant);
    let theirs = nft(&["--stateless", "list", "ruleset"], "");
    assert_eq!(ours, theirs);
    assert!(ours.contains("chain output"));
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Everything that rules can be made from.
fn everything() -> Rules {
    let own6 = ip("fd73:7562:7374::c613:fffe");
    Rules {
        listeners: vec![
            SocketAddr::new(ip("127.0.0.53"), 54),
            SocketAddr::new(own6, 54),
        ],
        own: vec![ip("198.19.255.254"), own6],
        gated: vec![
            (ip("198.18.0.0"), 15),
            (ip("10.1.2.3"), 32),
            (ip("fd73:7562:7374::"), 96),
        ],
        loopback: vec![
            (Ipv4Addr::LOCALHOST.into(), 32, (5432, 5433)),
            (Ipv6Addr::LOCALHOST.into(), 128, (8000, 8999)),
        ],
        everything: false,
        log: true,
    }
}

#[test]
fn the_kernel_reads_the_rules_as_they_are_meant() {
    in_a_network("the_kernel_reads_the_rules_as_they_are_meant", || {
        compare(&everything(), include_str!("nftables.txt"));
    });
}

#[test]
fn observing_lets_all_of_tcp_to_the_gate_and_nothing_is_logged_where_it_cannot_be() {
    let test = "observing_lets_all_of_tcp_to_the_gate_and_nothing_is_logged_where_it_cannot_be";
    in_a_network(test, || {
        let rules = Rules {
            listeners: vec![SocketAddr::new(ip("127.0.0.53"), 54)],
            own: vec![ip("198.19.255.254")],
            gated: Vec::new(),
            loopback: Vec::new(),
            everything: true,
            log: false,
        };
        compare(&rules, include_str!("nftables_observed.txt"));
    });
}

#[test]
fn rules_that_are_sent_again_stand_beside_what_is_there() {
    let test = "rules_that_are_sent_again_stand_beside_what_is_there";
    in_a_network(test, || {
        let once = listed(&everything());
        let twice = listed(&everything());
        let count = |text: &str| text.lines().filter(|line| line.contains("daddr")).count();
        assert_eq!(count(&twice), 2 * count(&once));
    });
}
