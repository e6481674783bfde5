//! How our programs begin, allocate and end.

pub mod arena;
pub mod entry;
pub mod fault;
pub mod heap;
pub mod inherit;
mod spin_lock;
pub mod supervise;
pub mod watch;
