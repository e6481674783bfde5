//! The hook of a client: what it tells before it does something becomes a request, and the verdict
//! is said in the client's own words.
//!
//! Most clients go on when a hook fails. So whatever is wrong here ends in exit status 2, which all of
//! them take for a refusal, and what is written to standard output is a whole answer or nothing.

mod answer;
mod claude;
mod codex;
mod conversation;
mod copilot;
mod cursor;
mod event;
mod fields;
mod gemini;
mod judge;
mod opencode;
mod patch;
mod tools;

use std::ffi::CString;
use std::path::PathBuf;

use serde_json::Value;
use substrate_broker::Broker;

pub use answer::Verdict;
pub use conversation::newest_call;
pub use event::{Call, Deed, Event, Happening};

use crate::client::Client;

/// Longer than anything that a client tells; a file that is written stands in it whole.
pub const LONGEST: usize = 64 << 20;

/// A tool that no client has, by which `doctor` tries a hook. Calls of it are judged like any other, and leave
/// no trace.
pub const CANARY: &str = "SubstrateCanary";

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The client wrote something that makes no sense.
    #[error("{client} told the hook something that cannot be understood: {problem}")]
    Payload {
        /// Which client.
        client: Client,
        /// What is wrong.
        problem: String,
    },
    /// Nothing may happen unrecorded where the policy enforces.
    #[error("this cannot be recorded: {0}")]
    Unrecorded(String),
}

/// What a hook knows beside what the client tells.
pub struct Surroundings {
    /// The environment of the hook, which is the client's.
    pub env: Vec<CString>,
    /// Where the hook runs.
    pub cwd: PathBuf,
    /// The program that a rewritten call runs through.
    pub program: PathBuf,
}

/// Understands what a client tells. `event` is how its settings name the occasion, where the client does
/// not say so itself.
pub fn read(client: Client, event: Option<&str>, payload: &[u8]) -> Result<Event, HookError> {
    let wrong = |problem: String| HookError::Payload { client, problem };
    if payload.len() > LONGEST {
        return Err(wrong(format!("it has more than {LONGEST} bytes")));
    }
    let value: Value = serde_json::from_slice(payload).map_err(|error| wrong(error.to_string()))?;
    let Value::Object(fields) = value else {
        return Err(wrong("it is no JSON object".to_owned()));
    };
    let read = match client {
        Client::Claude => claude::read,
        Client::Codex => codex::read,
        Client::Gemini => gemini::read,
        Client::Cursor => cursor::read,
        Client::Opencode => opencode::read,
        Client::Copilot => copilot::read,
    };
    read(event, &fields).map_err(wrong)
}

/// Judges what a client tells, records it, and gives what to write to standard output: a whole JSON
/// document, or nothing.
pub fn run(
    client: Client,
    event: &Event,
    broker: &Broker,
    around: &Surroundings,
) -> Result<Option<String>, HookError> {
    let verdict = judge::judge(client, event, broker, around)?;
    Ok(answer::in_words_of(client, event, &verdict).map(|answer| answer.to_string()))
}

/// The directory in which what a client tells would happen.
pub fn directory(event: &Event, around: &Surroundings) -> PathBuf {
    event.cwd.clone().unwrap_or_else(|| around.cwd.clone())
}
