//! A project by content: what it looked like at a moment, kept so that a command can start from
//! there once more.

mod capture;
mod codec;
mod difference;
mod ignore;
mod overlaid;
mod prefetch;
mod restore;
mod snapshot;
mod stat_cache;
mod store;
mod tools;
mod tree;

pub use capture::{COPY, Capture};
pub use difference::difference;
pub use overlaid::{after, in_control};
pub use restore::{RestoreError, restore};
pub use snapshot::{Limits, SnapshotError, Taken, take};
pub use store::{Collected, Store};
pub use tools::tools;
pub use tree::{Entry, Kind, Tree, TreeId};
