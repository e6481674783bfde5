//! What the world of an agent has besides the policy's terms.

use std::path::PathBuf;

use substrate_egress::service::Service;
use substrate_policy::terms::{HostRule, PathPattern, WorldSpec};

/// What the world of an agent has besides the policy's terms. A person who starts an agent lets its program
/// have this much; what the policy hides or denies stays hidden and denied.
#[derive(Clone, Default)]
pub struct Hosting {
    /// Files of the client that are real in every world of it; absolute.
    pub write: Vec<PathBuf>,
    /// Files of the client that it may read; absolute.
    pub read: Vec<PathBuf>,
    /// Files that stay as they are within those; absolute.
    pub protect: Vec<PathBuf>,
    /// Hosts that it reaches by name.
    pub hosts: Vec<HostRule>,
    /// Hosts that it does not reach by name, because it reaches them through a gate.
    pub withdrawn: Vec<HostRule>,
    /// Ports of its loopback that are served from outside.
    pub services: Vec<Service>,
    /// How long it may take, in seconds.
    pub seconds: Option<u32>,
    /// What of what a person would expect does not hold, for the record.
    pub not_held: Vec<String>,
}

impl Hosting {
    /// The terms with this.
    pub fn dress(&self, spec: &mut WorldSpec) {
        // A port that is served for it alone is on a loopback of its own.
        spec.net.isolate = true;
        spec.net.allowed.extend(self.hosts.iter().cloned());
        spec.net.denied.extend(self.withdrawn.iter().cloned());
        spec.read
            .extend(self.read.iter().chain(&self.write).cloned());
        spec.write.extend(self.write.iter().cloned());
        spec.share.extend(self.write.iter().cloned());
        let protect: Vec<PathPattern> = self
            .protect
            .iter()
            .map(|path| PathPattern::of(path))
            .collect();
        spec.protect.extend(protect);
        spec.limits.seconds = match (spec.limits.seconds, self.seconds) {
            (Some(policy), Some(wanted)) => Some(policy.min(wanted)),
            (policy, wanted) => policy.or(wanted),
        };
    }
}
