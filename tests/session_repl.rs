//! The tests of the prompt once more, with the engine in the world of an enforcing session.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod terminal;

#[path = "repl/engine.rs"]
mod engine;
#[path = "repl/jobs.rs"]
mod jobs;
