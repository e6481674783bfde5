//! Worlds that outlive a command: who keeps them, who borrows them, and what these say to each other.
//!
//! A service keeps the world of a session, with its guard and its gate, after the command that it was
//! made for. Whoever runs the next command there judges, records and relays it himself, as ever; only the world is
//! borrowed. A world serves one user, project, policy and agent, and never anybody whom a session encloses.

pub mod borrow;
mod channel;
pub mod keep;
pub mod lend;
pub mod sockets;
mod surroundings;
pub mod terms;
mod words;
pub mod worlds;
