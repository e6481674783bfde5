//! What a client told, in our words.

use std::path::PathBuf;

use serde_json::{Map, Value};
use substrate_command::Effect;

/// Something that happens in a client.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The client's own name for the occasion.
    pub name: String,
    /// What happens.
    pub happening: Happening,
    /// What the client calls its conversation.
    pub session: Option<String>,
    /// What it calls the call of a tool.
    pub call: Option<String>,
    /// What it calls its sub-agent.
    pub agent: Option<String>,
    /// Where it is.
    pub cwd: Option<PathBuf>,
}

/// What happens.
#[derive(Debug, Clone, PartialEq)]
pub enum Happening {
    /// A tool is about to be called.
    Before(Call),
    /// A tool was called.
    After {
        /// The call.
        call: Call,
        /// Whether it failed.
        failed: bool,
    },
    /// Something else, for the trace: a word of ours and a text.
    Told(&'static str, Option<String>),
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The tool as policies name it.
    pub name: String,
    /// What it does.
    pub deed: Deed,
    /// Its arguments, as the client wrote them.
    pub input: Map<String, Value>,
}

/// What a call does.
#[derive(Debug, Clone, PartialEq)]
pub enum Deed {
    /// It runs a line in a shell.
    Line {
        /// The line.
        text: Vec<u8>,
        /// The directory, where the call names one.
        directory: Option<PathBuf>,
        /// The argument that holds the line.
        key: &'static str,
        /// What the client does by itself when it sees this line, and whether that is all.
        itself: Option<(Vec<Effect>, bool)>,
    },
    /// Anything else, by its effects.
    Effects {
        /// They.
        effects: Vec<Effect>,
        /// Whether they are all there are.
        known: bool,
    },
}
