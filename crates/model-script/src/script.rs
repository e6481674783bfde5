//! What the model will say.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A script: conversations, told apart by what the user says in them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The first that a request belongs to answers it.
    pub conversations: Vec<Conversation>,
}

/// Answers in order. Which one is next is read from the history that a request carries, so that a client
/// may ask twice, resume, or talk in several conversations at once.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversation {
    /// A text that a message of the user contains; empty for any.
    #[serde(default)]
    pub prompt: String,
    /// After the last the model says `done`.
    pub answers: Vec<Answer>,
}

/// One answer of the model.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// What it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The tools that it calls, all in one turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
    /// A line for the shell tool of the client, whatever it is called there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// What it says to have cost; otherwise a quarter of the bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// An HTTP status other than 200: the request fails with it, each time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Milliseconds before anything is sent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delay_ms: u64,
    /// The connection ends in the middle of the answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// One call of a tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The tool, by the client's name for it.
    pub tool: String,
    /// Its arguments: an object, or a text for tools that take a text.
    #[serde(default)]
    pub input: Value,
    /// The name space of the tool, in the Responses format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Tokens, in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Read.
    pub input: u64,
    /// Written.
    pub output: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Script {
    /// One conversation for whatever is said.
    pub fn of(answers: Vec<Answer>) -> Self {
        Self {
            conversations: vec![Conversation {
                prompt: String::new(),
                answers,
            }],
        }
    }
}

impl Answer {
    /// It says a text.
    pub fn text(text: &str) -> Self {
        Self {
            text: Some(text.to_owned()),
            ..Self::default()
        }
    }

    /// It runs a line in the client's shell tool.
    pub fn shell(line: &str) -> Self {
        Self {
            shell: Some(line.to_owned()),
            ..Self::default()
        }
    }

    /// It calls a tool.
    pub fn call(tool: &str, input: Value) -> Self {
        Self {
            calls: vec![Call {
                tool: tool.to_owned(),
                input,
                namespace: None,
            }],
            ..Self::default()
        }
    }

    /// Its calls for a client that offers these tools.
    pub(crate) fn calls_for(&self, offered: &[String]) -> Vec<Call> {
        let shell = self.shell.as_deref().map(|line| shell_call(line, offered));
        self.calls.iter().cloned().chain(shell).collect()
    }

    /// Whether it calls tools.
    pub(crate) fn is_call(&self) -> bool {
        self.shell.is_some() || !self.calls.is_empty()
    }
}

/// A line for the shell tool that is among those offered.
fn shell_call(line: &str, offered: &[String]) -> Call {
    const SHELLS: [&str; 7] = [
        "Bash",
        "bash",
        "exec_command",
        "shell_command",
        "shell",
        "run_shell_command",
        "local_shell",
    ];
    let tool = SHELLS
        .into_iter()
        .find(|name| offered.iter().any(|offer| offer == name))
        .unwrap_or("Bash");
    let input = match tool {
        "exec_command" => json!({ "cmd": line }),
        "shell" | "local_shell" => json!({ "command": ["bash", "-lc", line] }),
        "shell_command" => json!({ "command": line }),
        _ => json!({ "command": line, "description": "scripted" }),
    };
    Call {
        tool: tool.to_owned(),
        input,
        namespace: None,
    }
}
