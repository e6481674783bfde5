//! The shell: the engine, its front end, and what standard input says.

pub mod engine;
pub mod gate;
mod past;
pub mod prompt_gate;
pub mod repl;
pub mod session_world;
pub mod standard_input;
