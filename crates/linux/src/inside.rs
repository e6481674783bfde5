//! What a command has to know of its world.

use std::path::{Path, PathBuf};

use substrate_trace::{Level, WorldId};

use crate::host_file::Stream;
use crate::layout::Layout;

/// What a command has to know of its world.
#[derive(Clone, Copy)]
pub(crate) struct Inside<'a> {
    pub world: WorldId,
    pub level: Level,
    pub layout: &'a Layout,
    /// Files of the host as the world may have them.
    pub streams: &'a [Stream],
    /// Where a directory of the host is found inside, when that is elsewhere.
    pub moved: &'a [(PathBuf, PathBuf)],
    /// Where temporary files go, when that is not the usual place.
    pub scratch: Option<&'a Path>,
    /// A gate is the way to the network.
    pub gated: bool,
    pub substrate_home: &'a Path,
}

impl Inside<'_> {
    /// Where a path of the host is found inside.
    pub(crate) fn moved(&self, path: &Path) -> PathBuf {
        let known = self.moved.iter().find(|(host, _)| path.starts_with(host));
        match known.and_then(|(host, inside)| Some((path.strip_prefix(host).ok()?, inside))) {
            Some((rest, inside)) if rest.as_os_str().is_empty() => inside.clone(),
            Some((rest, inside)) => inside.join(rest),
            None => path.to_owned(),
        }
    }
}
