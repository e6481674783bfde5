//! One command from request to record, for anybody: judge, ask, begin, place, run, settle, finish.

pub mod approval;
pub mod contained;
mod copies;
pub mod guarded;
pub mod isolation;
pub mod network;
pub mod notice;
pub mod oneshot;
pub mod preview;
pub mod progress;
pub mod recording;
pub mod session;
pub mod settle;
pub mod snapshot;
mod switches;
pub mod watch;
