//! Who decides: finds the policies that apply, gathers facts about the machine, and turns a request
//! into a verdict that carries its terms.
//!
//! Without the `load` feature only what the shim needs is built: facts, homes, and compiled policies.

#[cfg(feature = "load")]
pub mod approvals;
#[cfg(feature = "load")]
pub mod broker;
#[cfg(feature = "load")]
pub mod cache;
#[cfg(feature = "load")]
pub mod caller;
pub mod choice;
#[cfg(feature = "load")]
pub mod egress;
#[cfg(feature = "load")]
pub mod enclosure;
pub mod env;
#[cfg(feature = "load")]
pub mod error;
pub mod facts;
#[cfg(feature = "load")]
pub mod ground;
pub mod home;
#[cfg(feature = "load")]
pub mod lookup;
#[cfg(feature = "load")]
pub mod moment;
#[cfg(feature = "load")]
pub mod person;
#[cfg(feature = "load")]
pub mod policies;
#[cfg(feature = "load")]
pub mod process;
pub mod profile;
pub mod project;
#[cfg(feature = "load")]
pub mod state_file;
#[cfg(feature = "load")]
pub mod trust;
#[cfg(feature = "load")]
mod world_terms;

#[cfg(feature = "load")]
pub use broker::{
    Answer, Broker, Evaluation, Explanation, Input, Lasting, Options, Origin, Request, Start, Terms,
};
#[cfg(feature = "load")]
pub use caller::Caller;
pub use choice::Choice;
#[cfg(feature = "load")]
pub use error::BrokerError;
pub use home::Home;
#[cfg(feature = "load")]
pub use moment::Moment;
#[cfg(feature = "load")]
pub use policies::{Note, PolicyInfo};
