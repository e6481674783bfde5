//! Run it again: a span in a fresh world, from the files as they were, compared with what happened
//! the first time.

mod accept;
mod again;
mod outcome;
mod past;
mod stage;

pub use accept::{Accepted, accept};
pub use again::{Again, ReplayError, Run};
pub use outcome::{Difference, Outcome, Warning};
pub use past::{Past, Refusal};
