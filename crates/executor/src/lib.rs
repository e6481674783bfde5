//! One command from request to record, for anybody: judge, ask, begin, place, run, settle, finish.

pub mod approval;
pub mod contained;
mod copies;
mod elsewhere;
pub mod exit_status;
pub mod front;
pub mod grant;
pub mod guarded;
pub mod hosted;
pub mod hosting;
pub mod isolation;
pub mod job;
pub mod limits;
pub mod line;
pub mod network;
pub mod oneshot;
pub mod preview;
pub mod questions;
pub mod recording;
pub mod session;
pub mod shell_path;
pub mod snapshot;
mod switches;
mod time_limit;
pub mod variables;
pub mod walk;
pub mod worlds;
