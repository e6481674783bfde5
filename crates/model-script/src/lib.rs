//! A model for tests: a server on loopback that answers the four wire formats of agent clients from a
//! script, streamed and not, and remembers what it was asked.

mod http;
mod script;
mod server;
mod talk;
mod wire;

pub use script::{Answer, Call, Conversation, Script, Usage};
pub use server::{Options, Server};
