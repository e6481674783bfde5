//! What is allowed: policies and tool models in, judgements out. Pure.
//!
//! Without the `load` feature only compiled policies can be opened and judged by; that is what the
//! shim links. With it, policy files are read, checked and compiled.

pub mod budget;
mod combine;
#[cfg(feature = "load")]
pub mod compile;
#[cfg(feature = "load")]
pub mod diagnostic;
#[cfg(feature = "load")]
mod document;
pub mod facts;
pub mod hosts;
pub mod judge;
mod judge_effects;
#[cfg(feature = "load")]
pub mod pattern;
pub mod policy;
pub mod settings;
pub mod terms;
#[cfg(feature = "load")]
pub mod tools;
#[cfg(feature = "load")]
pub mod yaml;

pub use facts::Facts;
pub use judge::{Judgement, Reason, covers, directory_of, judge, unapproved};
pub use policy::{List, Policy};
