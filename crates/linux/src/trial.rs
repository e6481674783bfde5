//! Worlds of steps alone, made to see what this machine gives.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use substrate_init::launch::{self, LaunchError, Maps, NewNetwork, Plan};
use substrate_sys::namespace::Namespaces;
use substrate_sys::{landlock, seccomp};
use substrate_trace::WorldId;

use crate::id_maps::MapsBy;
use crate::layout::Layout;
use crate::steps::{HeldAs, Recipe, Steps};

/// One line of the doctor's table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// What was tried.
    pub what: &'static str,
    /// Whether it is there.
    pub works: bool,
    /// What was found: a version, a place, or why not.
    pub found: String,
    /// What to do about it.
    pub fix: Option<String>,
}

/// Makes a world of steps alone and ends it.
pub(crate) fn attempt(
    namespaces: Namespaces,
    maps: Option<Maps>,
    network: Option<NewNetwork>,
    steps: Steps,
) -> Result<(), (String, io::Error)> {
    let plan = Plan {
        namespaces,
        maps,
        network,
        steps: steps.steps,
        slots: steps.slots,
        ptmx: c"/dev/ptmx".to_owned(),
        one_shot: true,
        die_with_thread: true,
    };
    let told = |error: LaunchError| match error {
        LaunchError::Own(what, error) => (what.to_owned(), error),
        LaunchError::Clone(error) => ("clone".to_owned(), error),
        LaunchError::Maps(error) => ("write the id maps".to_owned(), error),
        LaunchError::Died => ("start".to_owned(), io::Error::other("it ended at once")),
        LaunchError::Step { number, error, .. } => {
            let label = steps.labels.get(number);
            let doing = label.map_or("take a step", |label| label.doing.as_str());
            let path = label.and_then(|label| label.path.as_ref());
            let path = path.map_or_else(String::new, |path| format!(" {}", path.display()));
            (format!("{doing}{path}"), error)
        }
    };
    launch::launch(plan).map(drop).map_err(told)
}

/// The recipe of a world without places of its own.
pub(crate) fn recipe<'a>(
    layout: &'a Layout,
    held: &'a BTreeMap<PathBuf, HeldAs>,
    maps: MapsBy,
) -> Recipe<'a> {
    Recipe {
        id: WorldId::new(),
        layout,
        streams: &[],
        held,
        maps,
        own_network: true,
        network: None,
        groups: Vec::new(),
        process_limits: Vec::new(),
        private_size: None,
        mask_sys: false,
        heavy: false,
        landlock_abi: landlock::abi(),
        filter: seccomp::Options::default(),
    }
}
