//! What a service is made of.

use std::sync::Arc;
use std::time::Duration;

use substrate_broker::{Caller, Choice, Home};
use substrate_executor::worlds::Worlds;
use substrate_warm::keep::Bounds;

/// How a service is set up.
pub struct Setup {
    /// The home that it serves.
    pub home: Home,
    /// Where its worlds come from.
    pub worlds: Arc<dyn Worlds>,
    /// How many are kept, and for how long.
    pub bounds: Bounds,
    /// Ends when nobody has needed it for this long; never without.
    pub idle: Option<Duration>,
    /// What `--version` says.
    pub version: String,
    /// The policies of the sessions around somebody.
    pub ceilings: fn(&Caller) -> Vec<Choice>,
}
