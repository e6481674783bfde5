//! What is allowed: policies and tool models in, judgements out. Pure.
//!
//! Without the `load` feature only compiled policies can be opened and judged by; that is what the
//! shim links. With it, policy files are read, checked and compiled.

pub mod budget;
mod combine;
pub mod facts;
#[cfg(feature = "load")]
mod flows;
pub mod hosts;
pub mod judge;
mod judge_effects;
mod judge_tools;
mod judgement;
#[cfg(feature = "load")]
mod load;
pub mod policy;
pub mod settings;
pub mod terms;
pub mod way_on;

pub use facts::Facts;
pub use judge::{covers, directory_of, judge, unapproved};
pub use judgement::{Judgement, Reason};
#[cfg(feature = "load")]
pub use load::*;
pub use policy::{List, Policy};
