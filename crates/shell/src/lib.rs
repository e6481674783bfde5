//! The shell: the engine, its front end, and what standard input says.

pub mod arrival;
pub mod asking;
mod baggage;
mod blocked;
pub mod engine;
pub mod gate;
mod menu;
pub mod names;
pub mod notice;
mod own_streams;
mod passage;
mod past;
pub mod policy_watch;
pub mod progress;
pub mod prompt_gate;
pub mod repl;
pub mod session_world;
pub mod standard_input;
pub mod terminal_front;
