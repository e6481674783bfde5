//! The only way from a world to a model.
//!
//! An agent's client gets a base URL on its world's own loopback and a key that means nothing. The gate
//! takes those connections outside, lets through what the descriptor of the client lists, puts the real
//! key in, speaks TLS to one host, and reads the usage of answers as they pass. Of what is asked and
//! answered it keeps nothing.

mod answer;
mod body;
mod client;
mod config;
mod dial;
mod exchange;
mod gate;
mod head;
mod ledger;
mod paths;
mod refusal;
mod request;
mod sse;
mod tools;
mod url;
mod usage;
mod wire;

pub use config::{Credential, Event, GateConfig, Judge, OnEvent, Reach, Roots};
pub use gate::Gate;
pub use ledger::{Ledger, Limit, RanOut, Spent};
pub use paths::{Route, RouteError};
pub use sse::SseReader;
pub use tools::reaches;
pub use url::{Url, UrlError};
pub use usage::{Meter, Usage};
pub use wire::{Kind, Wire};
