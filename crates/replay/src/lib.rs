//! Run it again: what a project looked like before a command, kept so that the command can
//! start from there once more.

mod accept;
mod again;
mod ahead;
mod capture;
mod codec;
mod difference;
mod ignore;
mod outcome;
mod overlaid;
mod past;
mod restore;
mod snapshot;
mod stage;
mod stat_cache;
mod store;
mod tools;
mod tree;

pub use accept::{Accepted, accept};
pub use again::{Again, ReplayError, Run};
pub use capture::{COPY, Capture};
pub use difference::difference;
pub use outcome::{Difference, Outcome, Warning};
pub use overlaid::after;
pub use past::{Past, Refusal};
pub use restore::{RestoreError, restore};
pub use snapshot::{Limits, SnapshotError, Taken, take};
pub use store::{Collected, Store};
pub use tools::tools;
pub use tree::{Entry, Kind, Tree, TreeId};
