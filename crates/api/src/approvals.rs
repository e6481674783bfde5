//! Questions that wait for a person.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Bytes, version};

/// A question that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Waiting {
    /// By which it is answered.
    pub id: String,
    /// Whose command it is about.
    pub agent_id: String,
    /// The attempt that waits.
    pub attempt: String,
    /// The command as written.
    pub cmd: Bytes,
    /// Where it would run.
    pub cwd: Bytes,
    /// The question in full, with everything that a stranger wrote made visible.
    pub text: String,
    /// The patterns that an answer for longer would remember.
    pub patterns: Vec<String>,
    /// Whether an answer can be remembered.
    pub can_be_remembered: bool,
    /// How long it has waited.
    pub waited_ms: u64,
}

/// All questions that wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitingList {
    /// The version of this document.
    #[serde(default = "version")]
    pub v: u32,
    /// The oldest first.
    pub waiting: Vec<Waiting>,
}

/// What is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// This once.
    Once,
    /// No.
    Refuse,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The version of this document.
    #[serde(default = "version")]
    pub v: u32,
    /// What is answered.
    pub answer: Choice,
}

/// Who an answer came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// A client that no session encloses, for its user.
    Client,
}

/// That an answer was taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Answered {
    /// The version of this document.
    #[serde(default = "version")]
    pub v: u32,
    /// The question.
    pub id: String,
    /// What was answered.
    pub answer: Choice,
    /// By whom.
    pub by: By,
}
