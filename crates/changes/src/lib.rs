//! What a world left: its changes as a diff, applied, undone, thrown away.

mod ahead;
pub mod apply;
mod commit;
mod compare;
pub mod copy;
pub mod diff;
pub mod entry;
pub mod gc;
mod journal;
mod manifest;
pub mod patch;
pub mod pending;
mod record;
pub mod remove;
pub mod risk;
mod trail;
mod undo;
mod walk;
mod wire;
