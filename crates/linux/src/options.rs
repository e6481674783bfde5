//! What may be chosen about worlds besides their policy.

use substrate_trace::Level;

use crate::limits::Groups;

/// What may be chosen about worlds besides their policy.
#[derive(Debug, Clone)]
pub struct Options {
    /// Nothing stronger than this is tried.
    pub ceiling: Level,
    /// Where control groups come from.
    pub groups: Groups,
    /// A new root instead of the host's made read-only.
    pub heavy: bool,
    /// Copies instead of overlays.
    pub no_overlay: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            ceiling: Level::Full,
            groups: Groups::Discover,
            heavy: false,
            no_overlay: false,
        }
    }
}
