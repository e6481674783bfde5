//! For whom, and on which terms, a world is kept.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use substrate_broker::{Broker, Caller, Choice, Options};
use substrate_policy::terms::WorldSpec;
use substrate_text::wire;
use substrate_trace::sha256_hex;

/// For whom, and on which terms, a world is kept: whoever differs in any of this gets another world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// What it may do.
    pub spec: WorldSpec,
    /// Which policy was chosen; the one in use where there is nothing.
    #[serde(with = "wire::optional")]
    pub choice: Option<OsString>,
    /// What that policy says, by its hash.
    pub policy: String,
    /// `SUBSTRATE_WORLD`, which can turn worlds on.
    #[serde(with = "wire::optional")]
    pub world: Option<OsString>,
    /// Everything needs an approval.
    pub require_approval: bool,
    /// What `HOME` says, which decides what `~` means.
    #[serde(with = "wire::optional")]
    pub home_variable: Option<OsString>,
    /// Whose commands run there.
    pub agent: String,
    /// Its project, by what the kernel calls the directory.
    pub project: Option<(u64, u64)>,
}

impl Terms {
    /// Those of a session for one of its agents.
    pub fn of(broker: &Broker, spec: &WorldSpec, agent: &str) -> Option<Terms> {
        let options = broker.options();
        let choice = match &options.choice {
            Choice::Active => None,
            Choice::Name(name) => Some(name.into()),
            Choice::File(path) => Some(path.as_os_str().to_owned()),
            // Of a home that is broken or new; nobody else could open the same.
            Choice::Shipped(_) => return None,
        };
        let directory = |path: &PathBuf| std::fs::metadata(path).ok();
        let project = spec.project.as_ref().and_then(directory);
        // What a session encloses has worlds of that session.
        options.ceilings.is_empty().then(|| Terms {
            spec: spec.clone(),
            world: options.world.clone(),
            choice,
            policy: broker.info().sha256.clone(),
            require_approval: options.require_approval,
            home_variable: options.home_variable.clone(),
            agent: agent.to_owned(),
            project: project.map(|project| (project.dev(), project.ino())),
        })
    }

    /// A name that no other terms have.
    pub fn key(&self) -> String {
        // What was read from a message or made here says the same; only such terms are compared.
        let text = serde_json::to_vec(self).unwrap_or_default();
        sha256_hex(&text)
    }

    /// How a broker is set up that judges by them.
    pub fn options(&self, caller: Caller) -> Options {
        let choice = self.choice.as_deref();
        let session_start = self.spec.project.clone();
        Options {
            choice: choice.map_or(Choice::Active, Choice::parse),
            ceilings: Vec::new(),
            require_approval: self.require_approval,
            world: self.world.clone(),
            home_variable: self.home_variable.clone(),
            session_start: session_start.unwrap_or_else(|| self.spec.home.clone()),
            caller,
        }
    }
}
