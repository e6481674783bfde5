//! What clients tell, as they really do it, and a broker to judge it.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "every test file uses its own part of this"
)]

use std::ffi::CString;
use std::path::PathBuf;

use serde_json::{Value, json};
use substrate_adapters::Client;
use substrate_adapters::hook::Surroundings;
use substrate_broker::{Broker, Caller, Choice, Home, Options};

pub struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    pub fn with_policy(body: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["home/policies", "project/.git"] {
            std::fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        std::fs::write(directory.path().join("home/clients.json"), "{}\n").unwrap();
        let text = format!("id: test\nname: Test\n{body}");
        std::fs::write(directory.path().join("home/policies/test.yaml"), text).unwrap();
        Self { directory }
    }

    pub fn project(&self) -> PathBuf {
        self.directory.path().join("project")
    }

    pub fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    pub fn broker(&self) -> Broker {
        let home = Home {
            path: self.home(),
            user: self.directory.path().to_owned(),
        };
        let options = Options {
            choice: Choice::Name("test".to_owned()),
            ceilings: Vec::new(),
            require_approval: false,
            world: None,
            home_variable: None,
            unattended: false,
            session_start: self.project(),
            caller: Caller::own(),
        };
        Broker::open(home, options).unwrap()
    }

    pub fn around(&self, variables: &[(&str, &str)]) -> Surroundings {
        let entry = |(name, value): &(&str, &str)| CString::new(format!("{name}={value}")).unwrap();
        let path = ("PATH", "/usr/bin:/bin");
        Surroundings {
            env: std::iter::once(&path).chain(variables).map(entry).collect(),
            cwd: self.project(),
            program: "/opt/it is/substrate".into(),
        }
    }

    pub fn events(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.home().join("trace.jsonl")).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

/// The call of a tool as a client tells it before it happens.
pub fn before(client: Client, tool: &str, input: Value, cwd: &str) -> Value {
    match client {
        Client::Claude => json!({
            "session_id": "s", "transcript_path": "/t", "cwd": cwd, "permission_mode": "default",
            "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": input,
            "tool_use_id": "toolu_1",
        }),
        Client::Codex => json!({
            "session_id": "s", "turn_id": "t", "transcript_path": null, "cwd": cwd, "model": "m",
            "permission_mode": "bypassPermissions", "hook_event_name": "PreToolUse",
            "tool_name": tool, "tool_input": input, "tool_use_id": "call_1",
        }),
        Client::Gemini => json!({
            "session_id": "s", "transcript_path": "/t", "cwd": cwd, "hook_event_name": "BeforeTool",
            "timestamp": "2026-11-01T00:00:00Z", "tool_name": tool, "tool_input": input,
        }),
        Client::Cursor => json!({
            "conversation_id": "s", "generation_id": "g", "hook_event_name": "preToolUse",
            "workspace_roots": [cwd], "cwd": cwd, "tool_name": tool, "tool_input": input,
            "tool_use_id": "t",
        }),
        Client::Opencode => json!({
            "event": "tool.execute.before", "sessionID": "s", "callID": "c", "cwd": cwd,
            "tool": tool, "args": input,
        }),
        Client::Copilot => json!({
            "sessionId": "s", "timestamp": 1_795_000_000, "cwd": cwd, "toolName": tool,
            "toolArgs": input,
        }),
    }
}

/// How a client's settings name the occasion.
pub fn occasion(client: Client) -> Option<&'static str> {
    (client == Client::Copilot).then_some("preToolUse")
}
