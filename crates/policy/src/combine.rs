//! The terms of two policies at once: whatever either of them withholds is withheld.

use std::path::PathBuf;

use crate::hosts::in_network;
use crate::terms::{HomeMode, HostPattern, HostRule, Limits, NetSpec, WorldSpec};

impl WorldSpec {
    /// These terms, narrowed by those of another policy. What is not about permission stays ours.
    #[must_use]
    pub fn narrowed(mut self, other: &WorldSpec) -> Self {
        self.mode = self.mode.max(other.mode);
        self.read = common_subtrees(&self.read, &other.read);
        self.write = common_subtrees(&self.write, &other.write);
        self.share = common_subtrees(&self.share, &other.share);
        unite(&mut self.hide, &other.hide);
        unite(&mut self.protect, &other.protect);
        self.net.narrow(&other.net);
        if other.home_mode == HomeMode::ReadOnly {
            self.home_mode = HomeMode::ReadOnly;
        }
        self.sockets.retain(|path| other.sockets.contains(path));
        self.publish.retain(|port| other.publish.contains(port));
        self.allow_ptrace &= other.allow_ptrace;
        self.allow_userns &= other.allow_userns;
        self.limits = self.limits.narrowed(other.limits);
        self
    }
}

impl NetSpec {
    fn narrow(&mut self, other: &NetSpec) {
        // A policy that leaves the host's network in place says nothing about hosts.
        match (self.isolate, other.isolate) {
            (true, true) => self.allowed = common_hosts(&self.allowed, &other.allowed),
            (false, true) => self.allowed.clone_from(&other.allowed),
            (_, false) => {}
        }
        self.isolate |= other.isolate;
        unite(&mut self.denied, &other.denied);
        self.resolve.retain(|entry| other.resolve.contains(entry));
        self.bytes_per_sec = smaller(self.bytes_per_sec, other.bytes_per_sec);
        self.total_bytes = smaller(self.total_bytes, other.total_bytes);
    }
}

impl Limits {
    /// The smaller of each.
    #[must_use]
    pub fn narrowed(self, other: Limits) -> Limits {
        Limits {
            cpu_milli: smaller(self.cpu_milli, other.cpu_milli),
            memory: smaller(self.memory, other.memory),
            pids: smaller(self.pids, other.pids),
            seconds: smaller(self.seconds, other.seconds),
            tokens: smaller(self.tokens, other.tokens),
        }
    }
}

fn unite<T: Clone + PartialEq>(ours: &mut Vec<T>, theirs: &[T]) {
    for item in theirs {
        if !ours.contains(item) {
            ours.push(item.clone());
        }
    }
}

fn smaller<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The subtrees that lie in both lists: of two that overlap, the inner one.
fn common_subtrees(ours: &[PathBuf], theirs: &[PathBuf]) -> Vec<PathBuf> {
    let mut common = Vec::new();
    for (one, others) in [(ours, theirs), (theirs, ours)] {
        for path in one {
            if others.iter().any(|other| path.starts_with(other)) && !common.contains(path) {
                common.push(path.clone());
            }
        }
    }
    common
}

/// The hosts that both lists name: of two entries that overlap, the narrower one.
fn common_hosts(ours: &[HostRule], theirs: &[HostRule]) -> Vec<HostRule> {
    let mut common: Vec<HostRule> = Vec::new();
    for (one, others) in [(ours, theirs), (theirs, ours)] {
        for rule in one {
            let mut wider = others
                .iter()
                .filter(|other| other.contains(rule))
                .peekable();
            if wider.peek().is_none() {
                continue;
            }
            let rule = HostRule {
                internal: rule.internal && wider.any(|other| other.internal),
                ..rule.clone()
            };
            if !common.contains(&rule) {
                common.push(rule);
            }
        }
    }
    common
}

impl HostRule {
    /// Whether everything that the other entry names is named by this one as well.
    fn contains(&self, other: &HostRule) -> bool {
        let ports = match (self.ports, other.ports) {
            (None, None) => true,
            (Some((from, to)), Some((low, high))) => from <= low && high <= to,
            // Without ports an entry means 80 and 443 with the protocol checked, which is narrower.
            (Some((from, to)), None) => from <= 80 && 443 <= to,
            (None, Some(_)) => false,
        };
        let host = match (&self.host, &other.host) {
            (HostPattern::Any, HostPattern::Any | HostPattern::Below(_)) => true,
            (HostPattern::Below(a), HostPattern::Below(b)) => a == b || self.host.allows_name(b),
            (_, HostPattern::Name(name)) => self.host.allows_name(name),
            (HostPattern::HostLoopback, HostPattern::HostLoopback) => true,
            (HostPattern::Network(network, bits), HostPattern::Network(inner, inner_bits)) => {
                bits <= inner_bits && in_network(*inner, *network, *bits)
            }
            _ => false,
        };
        ports && host
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terms::PathPattern;

    fn hosts(entries: &[&str]) -> Vec<HostRule> {
        entries
            .iter()
            .map(|entry| HostRule::parse(entry).unwrap())
            .collect()
    }

    fn paths(entries: &[&str]) -> Vec<PathBuf> {
        entries.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn the_inner_subtree_is_common() {
        assert_eq!(
            common_subtrees(&paths(&["/", "/a"]), &paths(&["/a/b", "/c"])),
            paths(&["/a/b", "/c"])
        );
        assert!(common_subtrees(&paths(&["/a"]), &paths(&["/ab"])).is_empty());
        assert!(common_subtrees(&paths(&["/a"]), &[]).is_empty());
    }

    #[test]
    fn the_narrower_host_is_common() {
        let common = |a: &[&str], b: &[&str]| -> Vec<String> {
            common_hosts(&hosts(a), &hosts(b))
                .into_iter()
                .map(|rule| rule.written)
                .collect()
        };
        assert_eq!(
            common(&["*.example.com"], &["a.example.com"]),
            ["a.example.com"]
        );
        assert_eq!(
            common(&["*"], &["*.example.com", "db.test:5432"]),
            ["*.example.com"]
        );
        assert_eq!(common(&["10.0.0.0/8"], &["10.1.0.0/16"]), ["10.1.0.0/16"]);
        assert_eq!(
            common(&["host-loopback:*"], &["host-loopback:5432"]),
            ["host-loopback:5432"]
        );
        assert!(common(&["localhost:*", "*:*"], &["host-loopback:5432"]).is_empty());
        assert!(common(&["example.com"], &["*.example.com"]).is_empty());
        assert!(common(&["example.com:22"], &["example.com"]).is_empty());
        assert_eq!(
            common(&["db.test:1-6000"], &["db.test:5432"]),
            ["db.test:5432"]
        );
    }

    #[test]
    fn nothing_is_gained_by_narrowing() {
        let hide = PathPattern {
            glob: b"/h/.ssh/**".to_vec(),
            base: "/h/.ssh".into(),
        };
        let ours = WorldSpec {
            read: paths(&["/"]),
            write: paths(&["/p", "/tmp"]),
            hide: vec![hide.clone()],
            allow_ptrace: true,
            publish: vec![80, 81],
            limits: Limits {
                pids: Some(10),
                ..Limits::default()
            },
            ..WorldSpec::default()
        };
        let theirs = WorldSpec {
            read: paths(&["/"]),
            write: paths(&["/p/build"]),
            publish: vec![81],
            limits: Limits {
                pids: Some(20),
                memory: Some(5),
                ..Limits::default()
            },
            ..WorldSpec::default()
        };
        let both = ours.narrowed(&theirs);
        assert_eq!(both.write, paths(&["/p/build"]));
        assert_eq!(both.hide, [hide]);
        assert_eq!((both.allow_ptrace, both.publish), (false, vec![81]));
        assert_eq!((both.limits.pids, both.limits.memory), (Some(10), Some(5)));
    }
}
