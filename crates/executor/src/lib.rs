//! One command from request to record, for anybody: judge, ask, begin, place, run, settle, finish.

pub mod approval;
pub mod contained;
mod copies;
pub mod front;
pub mod guarded;
pub mod isolation;
pub mod network;
pub mod oneshot;
pub mod preview;
pub mod recording;
pub mod session;
pub mod snapshot;
mod switches;
pub mod worlds;
