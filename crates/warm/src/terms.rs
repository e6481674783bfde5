//! For whom, and on which terms, a world is kept.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use substrate_broker::{Broker, Caller, Choice, Options};
use substrate_policy::terms::{HomeMode, WorldSpec};
use substrate_text::wire;
use substrate_trace::sha256_hex;

/// A policy as it was chosen: by name or file; the one in use where there is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen(#[serde(with = "wire::optional")] Option<OsString>);

impl Chosen {
    fn of(choice: &Choice) -> Option<Chosen> {
        match choice {
            Choice::Active => Some(Chosen(None)),
            Choice::Name(name) => Some(Chosen(Some(name.into()))),
            Choice::File(path) => Some(Chosen(Some(path.as_os_str().to_owned()))),
            // Of a home that is broken or new; nobody else could open the same.
            Choice::Shipped(_) => None,
        }
    }

    fn choice(&self) -> Choice {
        self.0.as_deref().map_or(Choice::Active, Choice::parse)
    }
}

/// For whom, and on which terms, a world is kept: whoever differs in any of this gets another world.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// What it may do.
    pub spec: WorldSpec,
    /// Which policy was chosen.
    pub choice: Chosen,
    /// Policies that must not be loosened.
    pub ceilings: Vec<Chosen>,
    /// What all of them say, by their hashes.
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

/// What the policies of a broker say, by their hashes.
pub(crate) fn said(broker: &Broker) -> String {
    let hashes = broker.in_force();
    let hashes: Vec<&str> = hashes.iter().map(|policy| policy.sha256.as_str()).collect();
    hashes.join(" ")
}

impl Terms {
    /// Those of a session for one of its agents.
    pub fn of(broker: &Broker, spec: &WorldSpec, agent: &str) -> Option<Terms> {
        let options = broker.options();
        let ceilings = options.ceilings.iter().map(Chosen::of);
        let directory = |path: &PathBuf| std::fs::metadata(path).ok();
        let project = spec.project.as_ref().and_then(directory);
        Some(Terms {
            spec: spec.clone(),
            world: options.world.clone(),
            choice: Chosen::of(&options.choice)?,
            ceilings: ceilings.collect::<Option<_>>()?,
            policy: said(broker),
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
        let session_start = self.spec.project.clone();
        Options {
            choice: self.choice.choice(),
            ceilings: self.ceilings.iter().map(Chosen::choice).collect(),
            require_approval: self.require_approval,
            world: self.world.clone(),
            home_variable: self.home_variable.clone(),
            unattended: self.spec.home_mode == HomeMode::ReadOnly,
            session_start: session_start.unwrap_or_else(|| self.spec.home.clone()),
            caller,
        }
    }
}
