//! What an allowed command may do: plain data that the runner must take along.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

pub use substrate_trace::Mode;

/// Where an allowed command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "load", derive(serde::Serialize, serde::Deserialize))]
pub enum Place {
    /// On the host, as any shell would start it.
    Direct,
    /// In a fresh world; its writes are held back as a diff.
    Isolated(Box<WorldSpec>),
    /// In the world of the session; its writes to the project are real.
    Session(Box<WorldSpec>),
}

impl Place {
    /// The name used in JSON and messages.
    pub fn name(&self) -> &'static str {
        match self {
            Place::Direct => "direct",
            Place::Isolated(_) => "isolated",
            Place::Session(_) => "session",
        }
    }
}

/// Everything a world needs to know. Variables are resolved, paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "load", derive(serde::Serialize, serde::Deserialize))]
pub struct WorldSpec {
    /// Id of the policy that asked for it.
    pub policy_id: String,
    /// Whether the policy enforces; an observing world passes every name and records.
    pub mode: Mode,
    /// The project, when there is one.
    #[cfg_attr(feature = "load", serde(with = "substrate_text::wire::optional"))]
    pub project: Option<PathBuf>,
    /// The user's home directory.
    #[cfg_attr(feature = "load", serde(with = "substrate_text::wire"))]
    pub home: PathBuf,
    /// Substrate's own home; never visible inside.
    #[cfg_attr(feature = "load", serde(with = "substrate_text::wire"))]
    pub substrate_home: PathBuf,
    /// Subtrees that may be read. `/` means everything.
    #[cfg_attr(feature = "load", serde(with = "substrate_text::wire::list"))]
    pub read: Vec<PathBuf>,
    /// Subtrees that may be written.
    #[cfg_attr(feature = "load", serde(with = "substrate_text::wire::list"))]
    pub write: Vec<PathBuf>,
    /// Further subtrees whose writes an isolated world holds back, apart from those of `write`.
    /// What may not be read is not held either.
    #[cfg_attr(feature = "load", serde(with = "substrate_text::wire::list"))]
    pub hold: Vec<PathBuf>,
    /// Path globs that are taken away from read and write.
    pub hide: Vec<PathPattern>,
    /// Path globs that stay read-only inside what is writable.
    pub protect: Vec<PathPattern>,
    /// Host paths put in as they are, also below `/tmp` and `/run`, which are otherwise private.
    #[cfg_attr(feature = "load", serde(with = "substrate_text::wire::list"))]
    pub share: Vec<PathBuf>,
    /// Network terms.
    pub net: NetSpec,
    /// What happens to `$HOME` outside `write`.
    pub home_mode: HomeMode,
    /// Unix sockets let in by path.
    #[cfg_attr(feature = "load", serde(with = "substrate_text::wire::list"))]
    pub sockets: Vec<PathBuf>,
    /// TCP ports of the world reachable from the host's loopback.
    pub publish: Vec<u16>,
    /// Debuggers may run inside; turns the exec re-check off.
    pub allow_ptrace: bool,
    /// Further user namespaces may be made inside.
    pub allow_userns: bool,
    /// Resource limits.
    pub limits: Limits,
    /// What to do with the result of an isolated command.
    pub on_finish: OnFinish,
}

/// An absolute path pattern: a fixed directory and a glob below it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "load", derive(serde::Serialize, serde::Deserialize))]
pub struct PathPattern {
    /// The whole pattern, absolute; `*` stays within a component, `**` crosses them.
    pub glob: Vec<u8>,
    /// The leading components without wildcards.
    #[cfg_attr(feature = "load", serde(with = "substrate_text::wire"))]
    pub base: PathBuf,
}

impl PathPattern {
    /// The pattern that fits this path and what is below it, whatever characters it has.
    pub fn of(path: &Path) -> PathPattern {
        let mut glob = Vec::new();
        for byte in path.as_os_str().as_bytes() {
            if matches!(byte, b'*' | b'?' | b'[' | b'\\') {
                glob.push(b'\\');
            }
            glob.push(*byte);
        }
        PathPattern {
            glob,
            base: path.to_owned(),
        }
    }
}

/// Network terms of a world.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[cfg_attr(feature = "load", derive(serde::Serialize, serde::Deserialize))]
pub struct NetSpec {
    /// The world has its own network; false leaves the host's in place.
    pub isolate: bool,
    /// Allowed hosts; client sets are already resolved.
    pub allowed: Vec<HostRule>,
    /// Denied hosts; beat `allowed`.
    pub denied: Vec<HostRule>,
    /// Fixed answers, the only way to a private address.
    pub resolve: Vec<(String, std::net::IpAddr)>,
    /// Bytes a second, over all connections.
    pub bytes_per_sec: Option<u64>,
    /// Bytes in all for the session.
    pub total_bytes: Option<u64>,
    /// How long an answer of the host's resolver is used again.
    pub refresh_secs: u64,
}

/// A host entry of the policy.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "load", derive(serde::Serialize, serde::Deserialize))]
pub struct HostRule {
    /// The entry as written, for messages.
    pub written: String,
    /// What it names.
    pub host: HostPattern,
    /// Ports; `None` means 80 and 443, with the protocol checked.
    pub ports: Option<(u16, u16)>,
    /// It may lead to an address of an internal network: settings of the user's own name it.
    #[cfg_attr(feature = "load", serde(default))]
    pub internal: bool,
}

/// What a host entry names. Names are lower case, IDNA-encoded, without a trailing dot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "load", derive(serde::Serialize, serde::Deserialize))]
pub enum HostPattern {
    /// Any name (`*`).
    Any,
    /// This name only.
    Name(String),
    /// One or more labels below this name (`*.example.com`).
    Below(String),
    /// An address or network, listed as such.
    Network(std::net::IpAddr, u8),
    /// The loopback of the machine that worlds run on (`host-loopback`), in place of a world's own.
    HostLoopback,
}

/// What happens to `$HOME` outside `fs.write`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "load", derive(serde::Serialize, serde::Deserialize))]
pub enum HomeMode {
    /// An overlay, kept for the session.
    #[default]
    Overlay,
    /// Read-only.
    ReadOnly,
}

/// Resource limits of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "load", derive(serde::Serialize, serde::Deserialize))]
pub struct Limits {
    /// CPUs in thousandths: 1500 is one and a half.
    pub cpu_milli: Option<u32>,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Number of processes and threads.
    pub pids: Option<u32>,
    /// Seconds that one command may take.
    pub seconds: Option<u32>,
    /// Tokens that an agent in it may have models read and write.
    #[cfg_attr(feature = "load", serde(default))]
    pub tokens: Option<u64>,
}

impl Limits {
    /// Those that there are, in words.
    pub fn words(&self) -> Vec<String> {
        let Limits {
            cpu_milli,
            memory,
            pids,
            seconds,
            tokens,
        } = self;
        [
            cpu_milli.map(|cpu| format!("cpu {}.{:03}", cpu / 1000, cpu % 1000)),
            memory.map(|memory| format!("memory {memory}")),
            pids.map(|pids| format!("pids {pids}")),
            seconds.map(|seconds| format!("time {seconds} s")),
            tokens.map(|tokens| format!("tokens {tokens}")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// What to do with the result of an isolated command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "load", derive(serde::Serialize, serde::Deserialize))]
pub enum OnFinish {
    /// Ask at a terminal; without one, see `Mode`.
    #[default]
    Ask,
    /// Keep it for later.
    Keep,
    /// Apply it at once.
    Apply,
    /// Throw it away.
    Discard,
}
