//! Other people's words for the same requests: what the clients of agents tell their hooks is a line or a
//! call of a tool, judged by the same broker and recorded in the same trace; and what makes them tell it.

pub mod client;
pub mod hook;
pub mod mcp;
pub mod setup;

pub use client::Client;
