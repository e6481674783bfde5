//! `POST /v1/explain`: what would become of a command. Nothing runs, and nothing is recorded.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Bytes, version};

/// A command that is asked about.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExplainRequest {
    /// The version of this document.
    #[serde(default = "version")]
    pub v: u32,
    /// Who would act. Required.
    #[serde(default)]
    pub agent_id: Option<String>,
    /// A line for a shell; either this or `argv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmd: Option<Bytes>,
    /// A program and its arguments, which no shell reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<Bytes>>,
    /// Where; the home directory without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<Bytes>,
    /// A policy that counts beside the one in use; the stricter answer holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}
