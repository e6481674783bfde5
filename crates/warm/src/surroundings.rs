//! What a command would have of the process that runs it, and cannot have in a world that another process
//! made: such a command runs in a world of its own.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;

use substrate_sys::{fdlimit, limit};

/// Namespaces that a world shares with whoever made it, or that decide what it shows.
const NAMESPACES: [&str; 6] = ["mnt", "net", "pid", "user", "ipc", "uts"];

static OWN: OnceLock<Surroundings> = OnceLock::new();

/// What a process is in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Surroundings {
    namespaces: Vec<Option<String>>,
    root: Option<(u64, u64)>,
    limits: Vec<Option<(u64, u64)>>,
    nice: Option<i32>,
}

impl Surroundings {
    /// Of a process.
    fn of(pid: u32) -> Surroundings {
        let link = |name: &str| fs::read_link(format!("/proc/{pid}/ns/{name}"));
        let namespace = |name: &&str| Some(link(name).ok()?.to_string_lossy().into_owned());
        let root = fs::metadata(format!("/proc/{pid}/root")).ok();
        Surroundings {
            namespaces: NAMESPACES.iter().map(namespace).collect(),
            root: root.map(|root| (root.dev(), root.ino())),
            limits: limit::ALL
                .iter()
                .map(|kind| limit::of(pid, *kind).ok())
                .collect(),
            nice: limit::niceness(pid).ok(),
        }
    }

    /// Of this process, as what it starts gets them: nothing changes them while it serves.
    fn own() -> Surroundings {
        let mut own = Surroundings::of(std::process::id());
        // A gate of ours may have raised this one for itself alone.
        let mut limits = limit::ALL.iter().zip(&mut own.limits);
        if let Some((_, limit)) = limits.find(|(kind, _)| **kind == limit::DESCRIPTORS) {
            *limit = Some(fdlimit::handed_on());
        }
        own
    }

    /// In what a process differs from this one, if in anything.
    pub(crate) fn differ(pid: u32) -> Option<String> {
        let (own, other) = (OWN.get_or_init(Surroundings::own), Surroundings::of(pid));
        let what = match () {
            () if own.namespaces != other.namespaces || own.root != other.root => {
                "it has other namespaces"
            }
            () if own.limits != other.limits => "it has other resource limits",
            () if own.nice != other.nice => "it has another priority",
            () => return None,
        };
        Some(format!("the service cannot stand in for who asks: {what}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn is_asleep(child: &Child) -> bool {
        let name = fs::read_to_string(format!("/proc/{}/comm", child.id()));
        name.is_ok_and(|name| name.trim() == "sleep")
    }

    #[test]
    fn limits_and_priority_are_seen_and_ordinary_children_are_alike() {
        for (line, alike) in [
            ("exec sleep 100", true),
            ("ulimit -n 100; exec sleep 100", false),
            ("ulimit -c 0; ulimit -S -f 1000; exec sleep 100", false),
            ("exec nice -n 5 sleep 100", false),
        ] {
            let mut child = Command::new("sh").args(["-c", line]).spawn().unwrap();
            // Until the shell has become what it starts.
            for _ in 0..500 {
                if is_asleep(&child) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            let found = Surroundings::differ(child.id());
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(found.is_none(), alike, "{line}: {found:?}");
        }
    }
}
