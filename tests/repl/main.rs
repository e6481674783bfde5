//! The shell that people live in, on real terminals.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../terminal/mod.rs"]
mod terminal;

mod bulk;
mod editing;
mod engine;
mod jobs;
mod judged;
mod tools;
