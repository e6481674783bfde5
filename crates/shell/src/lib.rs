//! The shell: the path of a line, one-shots and scripts, the engine and its front end.

pub mod approval;
pub mod contained;
mod copies;
pub mod engine;
pub mod gate;
pub mod guarded;
pub mod isolation;
pub mod network;
pub mod notice;
pub mod oneshot;
mod past;
mod preview;
pub mod progress;
pub mod prompt_gate;
pub mod recording;
pub mod repl;
pub mod session;
pub mod session_world;
mod settle;
pub mod snapshot;
pub mod standard_input;
mod switches;
pub mod watch;
