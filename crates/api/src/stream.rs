//! `GET /v1/stream`: a command on a terminal, over a WebSocket. Binary frames are the terminal's bytes, both
//! ways; text frames are the documents here.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::execute::{ExecuteRequest, ExecuteResponse};
use crate::version;

/// The first text frame of a client: what is to run, and how large the terminal is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Open {
    /// The command.
    pub execute: ExecuteRequest,
    /// The terminal.
    #[serde(default)]
    pub size: Size,
    /// How long the command goes on when nobody is connected.
    #[serde(default = "lease")]
    pub lease_ms: u64,
}

/// What a lease is without another wish.
fn lease() -> u64 {
    60_000
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Size {
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub columns: u16,
}

impl Default for Size {
    fn default() -> Size {
        Size {
            rows: 24,
            columns: 80,
        }
    }
}

/// A later text frame of a client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Control {
    /// The terminal has another size from now on.
    Resize(Size),
    /// End the command.
    End(End),
}

/// Nothing more to say about it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct End {}

/// A text frame of the service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// The terminal is there: `?terminal=ID&since=OFFSET` comes back to it.
    Terminal(Place),
    /// Bytes before this offset are gone.
    Skipped(Place),
    /// Something that a person at a terminal would have been told.
    Notice(String),
    /// The command has ended; nothing follows.
    Exit(Box<ExecuteResponse>),
    /// It cannot be run; nothing follows.
    Error(crate::errors::Problem),
}

/// A place in what a terminal showed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// The version of this document.
    #[serde(default = "version")]
    pub v: u32,
    /// The terminal.
    pub terminal: String,
    /// How many bytes came before.
    pub offset: u64,
}
