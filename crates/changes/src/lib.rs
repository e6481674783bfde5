//! What a world left: its changes as a diff, applied, undone, thrown away.

pub mod apply;
pub mod apply_error;
pub mod change;
mod commit;
mod compare;
pub mod copy;
pub mod diff;
pub mod entry;
pub mod gc;
mod journal;
mod manifest;
pub mod observer;
pub mod owner;
pub mod patch;
pub mod pending;
mod record;
pub mod remove;
pub mod risk;
pub mod root;
mod selection;
mod trail;
mod undo;
mod walk;
mod work_queue;
