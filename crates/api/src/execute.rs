//! `POST /v1/execute`: one command, judged, contained and recorded as everywhere.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use substrate_trace::RuleRef;

use crate::{Bytes, version};

/// A command to run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecuteRequest {
    /// The version of this document.
    #[serde(default = "version")]
    pub v: u32,
    /// Who acts. Required.
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
    /// Variables beside those of the service.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Bytes>,
    /// A policy that counts beside the one in use; the stricter answer holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// On a terminal, whose output comes as `stdout_b64`.
    #[serde(default)]
    pub pty: bool,
    /// In a fresh world that holds its writes back, whatever the policy says.
    #[serde(default)]
    pub isolated: bool,
    /// What it reads; nothing without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin_b64: Option<String>,
    /// What the agent may use in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// How long this command may run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub timeout_ms: Option<u64>,
    /// What happens when a person has to be asked.
    #[serde(default)]
    pub approval: Approval,
    /// How long a question waits for its answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub approval_timeout_ms: Option<u64>,
    /// Run only if the policy in use is still this one, by the hash that answers and spans name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect_policy: Option<String>,
}

/// What happens when a person has to be asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// The request waits for the answer.
    #[default]
    Wait,
    /// The request is answered with 202 and a place to ask again.
    Later,
    /// The command is refused.
    Refuse,
}

/// What an agent may use in all; what it used before counts. The smallest budget that was ever given holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_execs: Option<u64>,
    /// Milliseconds that commands ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runtime_ms: Option<u64>,
    /// Bytes that left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_egress_bytes: Option<u64>,
}

/// What came of a command.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExecuteResponse {
    /// The version of this document.
    #[serde(default = "version")]
    pub v: u32,
    /// As a shell shows it: 128+n after a signal, 126 when it was refused.
    #[serde(default = "unknown_exit")]
    pub exit: i32,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Its span in the trace.
    #[serde(default)]
    pub span_id: String,
    /// What it wrote.
    #[serde(default)]
    pub stdout_b64: String,
    /// What it complained about.
    #[serde(default)]
    pub stderr_b64: String,
    /// There was more than is here.
    #[serde(default, skip_serializing_if = "is_false")]
    pub truncated: bool,
    /// What it used: `fs.write:/p/x`, `tcp:host:443`.
    #[serde(default)]
    pub scopes_used: Vec<Bytes>,
    /// What it changed, where that is known and anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fs_diff: Option<Value>,
    /// How it was judged.
    #[serde(default)]
    pub verdict: Verdict,
    /// What a person at a terminal would have been told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// The limit that ended it: `timeout_ms`, `budget.max_runtime_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// How long it ran.
    #[serde(default)]
    pub duration_ms: u64,
    /// The attempt, by which `GET /v1/attempts/{id}` tells of it again.
    #[serde(default)]
    pub attempt: String,
}

fn unknown_exit() -> i32 {
    1
}

fn is_false(value: &bool) -> bool {
    !value
}

/// How a command was judged, and by which rule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// `allow`, `isolate`, `ask` or `deny`.
    #[serde(default)]
    pub verdict: String,
    /// Where it ran: `direct`, `isolated` or `session`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The policy, by its id.
    #[serde(default)]
    pub policy: String,
    /// What that policy says, by its hash.
    #[serde(default)]
    pub policy_sha256: String,
    /// The rule that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What to do instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// A rule, and where it stands.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rule {
    /// The list that it is in.
    pub list: String,
    /// As written.
    pub pattern: String,
    /// The file.
    pub file: Bytes,
    /// The line there.
    pub line: u64,
}

impl From<&RuleRef> for Rule {
    fn from(rule: &RuleRef) -> Rule {
        Rule {
            list: rule.list.clone(),
            pattern: rule.pattern.clone(),
            file: rule.file.clone().into_os_string().into(),
            line: rule.line.into(),
        }
    }
}

/// An attempt that is not over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pending {
    /// The version of this document.
    #[serde(default = "version")]
    pub v: u32,
    /// The attempt: `GET /v1/attempts/{id}` asks again.
    pub attempt: String,
    /// What it waits for.
    pub state: State,
    /// The question that a person has to answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<String>,
}

/// How far an attempt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// A person has to be asked.
    Asking,
    /// The command runs, or is about to.
    Running,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_seed_sends_is_understood_and_what_nobody_knows_is_refused() {
        let text = r#"{"cmd":"npm test","agent_id":"claude"}"#;
        let request: ExecuteRequest = serde_json::from_str(text).unwrap();
        assert_eq!((request.v, request.pty), (1, false));
        assert_eq!(request.cmd.unwrap().as_slice(), b"npm test");
        let text = r#"{"cmd":"x","agent_id":"a","scopes":[]}"#;
        let error = serde_json::from_str::<ExecuteRequest>(text).unwrap_err();
        assert!(
            error.to_string().contains("unknown field `scopes`"),
            "{error}"
        );
    }

    #[test]
    fn an_answer_without_changes_has_no_fs_diff_and_a_poor_one_is_read() {
        let text = serde_json::to_string(&ExecuteResponse::default()).unwrap();
        assert!(!text.contains("fs_diff"), "{text}");
        let poor: ExecuteResponse = serde_json::from_str("{}").unwrap();
        assert_eq!((poor.exit, poor.fs_diff), (1, None));
    }
}
