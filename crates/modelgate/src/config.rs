//! What a gate is told.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use substrate_egress::Proxies;

use crate::ledger::Ledger;
use crate::paths::Route;
use crate::url::Url;
use crate::usage::Usage;
use crate::wire::Wire;

/// Where a gate leads, and what may go through it.
pub struct GateConfig {
    /// The one host that it dials.
    pub upstream: Url,
    /// Whose certificates are believed.
    pub roots: Roots,
    /// The user's own proxies.
    pub proxies: Proxies,
    /// What paths begin with on the world's side, where the host's own base stands outside.
    pub base: String,
    /// The language that is spoken.
    pub wire: Wire,
    /// What may pass; paths as the world's side has them.
    pub routes: Vec<Route>,
    /// Put into every request; without one, requests leave without.
    pub credential: Option<Credential>,
    /// Whether what cannot be read or is not allowed is refused, or only told.
    pub enforce: bool,
    /// What may be spent.
    pub ledger: Arc<Ledger>,
    /// What an answer may cost of which the request does not say how long it may become.
    pub longest_answer: u64,
    /// Decides about what a provider is asked to fetch.
    pub judge: Arc<dyn Judge>,
    /// Told of what passes.
    pub on_event: OnEvent,
}

/// Whose certificates are believed.
#[derive(Debug, Clone)]
pub enum Roots {
    /// Those that this machine believes; `SSL_CERT_FILE` and `SSL_CERT_DIR` name others.
    System,
    /// Those in a file.
    File(PathBuf),
}

/// A key and how it is sent.
#[derive(Clone)]
pub struct Credential {
    /// The name of the header.
    pub header: String,
    /// Its value.
    pub value: String,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({})", self.header)
    }
}

/// What a request asks the provider to do in the client's place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// To connect to this host.
    Host(String, u16),
    /// To connect wherever the model likes, with this tool.
    Anywhere(String),
    /// To use something that lies at the provider: a file, a store, a connector.
    Stored(String),
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reach::Host(host, port) => write!(f, "{host}:{port}, fetched by the provider"),
            Reach::Anywhere(tool) => write!(f, "any host, by the provider's `{tool}`"),
            Reach::Stored(what) => write!(f, "`{what}`, which lies at the provider"),
        }
    }
}

/// Decides about what a provider is asked to fetch.
pub trait Judge: Send + Sync {
    /// Whether it may; else why not, in words for the client.
    fn connect(&self, reach: &Reach) -> Result<(), String>;
}

/// Told of what passes, from the threads that serve; must be quick.
pub type OnEvent = Arc<dyn Fn(&Event) + Send + Sync>;

/// Something that happened at a gate. Nothing of what was asked or answered is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An answer passed.
    Answered {
        /// The model that was asked for, where the request names one.
        model: Option<String>,
        /// What it cost, where the answer said so.
        usage: Option<Usage>,
        /// The status of the answer.
        status: u16,
    },
    /// A request did not leave.
    Refused {
        /// What it was.
        what: String,
        /// Why.
        why: String,
    },
    /// A request left that an enforcing gate would have refused.
    WouldRefuse {
        /// What it was.
        what: String,
        /// Why.
        why: String,
    },
    /// The tokens did not suffice.
    RanOut {
        /// What the request may cost at most.
        wanted: u64,
        /// Spent and reserved.
        used: u64,
        /// How many there are in all.
        limit: u64,
    },
    /// An answer broke off; what was reserved for it is charged.
    Broke(String),
    /// The host was not reached.
    Unreachable(String),
}
