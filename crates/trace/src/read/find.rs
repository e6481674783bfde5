//! Finding one span by a name that a person types.

use std::fmt;

use super::filter::{Filter, names_span};
use super::{Order, Reader, Record};
use crate::Error;

/// Fewer letters than this name too many spans.
const SHORTEST: usize = 4;

/// How many candidates an error lists.
const LISTED: usize = 8;

/// All events of one span, oldest first.
#[derive(Debug, Clone)]
pub struct SpanEvents {
    /// Its id.
    pub id: String,
    /// Its events.
    pub events: Vec<Record>,
}

impl SpanEvents {
    /// The event that tells most: how it ended, else how far it came.
    pub fn main(&self) -> Option<&Record> {
        ["command_complete", "builtin_command", "command_start"]
            .iter()
            .find_map(|kind| self.event(kind))
            .or(self.events.last())
    }

    /// The newest event of a type.
    pub fn event(&self, event_type: &str) -> Option<&Record> {
        let mut events = self.events.iter().rev();
        events.find(|record| record.span.event_type == event_type)
    }
}

/// Why no span was found.
#[derive(Debug)]
pub enum FindError {
    /// The trace has no span yet.
    Empty,
    /// The text cannot name a span.
    NotAnId {
        /// The text.
        text: String,
    },
    /// No span has this name.
    Unknown {
        /// The text.
        text: String,
    },
    /// Several spans have this name.
    Ambiguous {
        /// The text.
        text: String,
        /// Some of the spans.
        ids: Vec<String>,
    },
    /// The trace cannot be read.
    Read(Error),
}

impl fmt::Display for FindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the trace is empty"),
            Self::NotAnId { text } => write!(
                f,
                "'{}' cannot name a span; give an id (spn_…), at least {SHORTEST} letters of its beginning or end, or - for the last",
                text.escape_debug()
            ),
            Self::Unknown { text } => write!(
                f,
                "no span '{text}' in the trace; `substrate trace list` shows what there is"
            ),
            Self::Ambiguous { text, ids } => {
                write!(f, "'{text}' names several spans: {}", ids.join(", "))
            }
            Self::Read(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read(error) => Some(error),
            _ => None,
        }
    }
}

impl Reader {
    /// The span that a text names: an id, enough of its beginning or end, or `-` for
    /// the last one.
    pub fn find(&self, text: &str) -> Result<SpanEvents, FindError> {
        if text == "-" {
            let id = self.last_span()?;
            return self.find(&id);
        }
        let bare = text.strip_prefix("spn_").unwrap_or(text);
        let legal = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
        if !(SHORTEST..=36).contains(&bare.len()) || !bare.bytes().all(legal) {
            return Err(FindError::NotAnId {
                text: text.to_owned(),
            });
        }
        let filter = Filter {
            span: Some(text.to_owned()),
            ..Filter::default()
        };
        let mut ids: Vec<String> = Vec::new();
        let mut events = Vec::new();
        for record in self.records(Order::OldestFirst, &filter) {
            let record = record.map_err(FindError::Read)?;
            if !ids.contains(&record.span.span_id) {
                ids.push(record.span.span_id.clone());
            }
            match ids.len() {
                1 => events.push(record),
                LISTED => break,
                _ => {}
            }
        }
        match ids.len() {
            0 => Err(FindError::Unknown {
                text: text.to_owned(),
            }),
            1 => Ok(SpanEvents {
                id: ids.remove(0),
                events,
            }),
            _ => Err(FindError::Ambiguous {
                text: text.to_owned(),
                ids,
            }),
        }
    }

    /// The id of the span that ran last.
    fn last_span(&self) -> Result<String, FindError> {
        let filter = Filter {
            event_types: [
                "command_complete",
                "command_start",
                "builtin_command",
                "policy_violation",
            ]
            .map(str::to_owned)
            .to_vec(),
            ..Filter::default()
        };
        for record in self.records(Order::NewestFirst, &filter) {
            let id = record.map_err(FindError::Read)?.span.span_id;
            // A foreign id could not be looked up.
            if names_span(&id, "spn_") {
                return Ok(id);
            }
        }
        Err(FindError::Empty)
    }
}
