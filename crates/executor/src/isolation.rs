//! What a person asks for by name about an isolated command, on top of what the policy says.

use std::path::PathBuf;

use substrate_policy::terms::{PathPattern, WorldSpec};
use substrate_world::backend::Held;

/// The wishes of `run --isolated` and `world explore`; shims have none. None of them loosens the policy: what is
/// written is held back, and what may not be read stays out of sight.
#[derive(Debug, Default)]
pub struct Isolation {
    /// Further places that can be written to; absolute.
    pub write: Vec<PathBuf>,
    /// Further places that are not there; absolute.
    pub hide: Vec<PathBuf>,
    /// A person asked by name, so that the result is kept unless he decides otherwise.
    pub keep: bool,
    /// No network at all, not even what the policy allows.
    pub no_net: bool,
    /// What an earlier command left, to be worked on; its places are in `write`.
    pub again: Option<Held>,
}

impl Isolation {
    /// The terms with these wishes.
    pub fn narrow(&self, spec: &WorldSpec) -> WorldSpec {
        let mut spec = spec.clone();
        spec.hold.extend(self.write.iter().cloned());
        spec.hide
            .extend(self.hide.iter().map(|path| PathPattern::of(path)));
        spec.net.isolate |= self.no_net;
        spec
    }
}
