//! What the service tells of itself, its worlds and its agents.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::execute::Budget;
use crate::{Bytes, version};

/// What there is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Capabilities {
    /// The version of this document.
    #[serde(default = "version")]
    pub v: u32,
    /// What `substrate --version` says.
    pub version: String,
    /// The versions of the documents that are understood.
    pub api: Vec<u32>,
    /// What worlds are made with.
    pub backend: String,
    /// The routes.
    pub routes: Vec<String>,
    /// What a request may hold and how much runs at once.
    pub limits: Limits,
}

/// What a request may hold and how much runs at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body_bytes: u64,
    /// Bytes of each output stream in an answer.
    pub output_bytes: u64,
    /// Commands at once; more wait.
    pub commands: u64,
    /// Worlds that are kept at once.
    pub worlds: u64,
}

/// How the service is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The version of this document.
    #[serde(default = "version")]
    pub v: u32,
    /// What `substrate --version` says.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// How long it has run.
    pub uptime_ms: u64,
    /// Commands that run now.
    pub running: u64,
    /// Questions that wait for a person.
    pub waiting: u64,
    /// Worlds that were made.
    pub worlds_made: u32,
    /// How often one that was there already served.
    pub worlds_reused: u32,
    /// Resident memory, in bytes.
    pub memory_bytes: u64,
    /// The worlds that are kept.
    pub worlds: Vec<World>,
}

/// A world that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct World {
    /// Its id.
    pub id: String,
    /// For whose commands.
    pub agent_id: String,
    /// In which project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<Bytes>,
    /// Under which policy.
    pub policy: String,
    /// What holds it.
    pub level: String,
    /// Where it can write.
    pub write: Vec<Bytes>,
    /// Its memory and number of processes are limited to this, where they are.
    pub limits: Vec<String>,
    /// Commands that run in it now.
    pub running: u64,
    /// Commands that ran in it.
    pub served: u64,
    /// How long it has been there.
    pub age_ms: u64,
    /// How long nobody has used it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
}

/// All worlds that are kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Worlds {
    /// The version of this document.
    #[serde(default = "version")]
    pub v: u32,
    /// The oldest first.
    pub worlds: Vec<World>,
}

/// A world to be made before it is needed, or to be ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorldRequest {
    /// The version of this document.
    #[serde(default = "version")]
    pub v: u32,
    /// For whose commands.
    #[serde(default)]
    pub agent_id: Option<String>,
    /// In the project of this directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Bytes>,
    /// Beside the policy in use, this one counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}

/// How many worlds were ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ended {
    /// The version of this document.
    #[serde(default = "version")]
    pub v: u32,
    /// Their ids.
    pub ended: Vec<String>,
}

/// Somebody who acts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Agent {
    /// By which it is known.
    pub agent_id: String,
    /// Commands that it started.
    pub execs: u64,
    /// Milliseconds that they ran.
    pub runtime_ms: u64,
    /// Bytes that left.
    pub egress_bytes: u64,
    /// What it may use in all.
    pub budget: Budget,
}

/// Everybody who acted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Agents {
    /// The version of this document.
    #[serde(default = "version")]
    pub v: u32,
    /// By their ids.
    pub agents: Vec<Agent>,
}
