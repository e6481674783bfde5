//! The broker itself, and what only it needs: policies as files, approvals, trust, who asks.

pub mod answer;
pub mod approvals;
pub mod broker;
pub mod cache;
pub mod caller;
pub mod egress;
pub mod enclosure;
pub mod error;
pub mod explained;
pub mod ground;
pub mod lookup;
pub mod meaning;
pub mod moment;
pub mod person;
pub mod policies;
pub mod process;
pub mod request;
pub mod state_file;
pub mod trust;
mod world_terms;

pub use answer::{Answer, Evaluation, Explanation, Terms};
pub use broker::Broker;
pub use caller::Caller;
pub use error::BrokerError;
pub use meaning::{Around, Meaning};
pub use moment::Moment;
pub use policies::{Note, PolicyInfo};
pub use request::{Input, Lasting, Options, Origin, Request, Start};
