//! Who decides: finds the policies that apply, gathers facts about the machine, and turns a request
//! into a verdict that carries its terms.
//!
//! Without the `load` feature only what the shim needs is built: facts, homes, and compiled policies.

pub mod choice;
pub mod env;
pub mod facts;
pub mod home;
#[cfg(feature = "load")]
mod load;
pub mod profile;
pub mod project;

pub use choice::Choice;
pub use home::Home;
#[cfg(feature = "load")]
pub use load::*;
