//! The formats: what a request says, and how an answer is written, one file each.

mod anthropic;
mod chat;
mod gemini;
mod responses;

use serde_json::{Value, json};

use crate::talk::{Asked, Told};

/// A format that clients speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire {
    /// `POST /v1/messages`
    Anthropic,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1beta/models/M:generateContent` and `:streamGenerateContent`
    Gemini,
}

/// What stands behind a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// The model answers.
    Answer(Wire),
    /// How many tokens a request has.
    Count(Wire),
    /// Which models there are.
    Models,
}

impl Endpoint {
    /// By the path, without its query.
    pub fn of(path: &str) -> Option<Self> {
        let endpoint = match path {
            _ if path.ends_with("/messages/count_tokens") => Endpoint::Count(Wire::Anthropic),
            _ if path.ends_with(":countTokens") => Endpoint::Count(Wire::Gemini),
            _ if path.ends_with("/messages") => Endpoint::Answer(Wire::Anthropic),
            _ if path.ends_with("/responses") => Endpoint::Answer(Wire::Responses),
            _ if path.ends_with("/chat/completions") => Endpoint::Answer(Wire::Chat),
            _ if path.ends_with("enerateContent") => Endpoint::Answer(Wire::Gemini),
            _ if path.ends_with("/models") => Endpoint::Models,
            _ => return None,
        };
        Some(endpoint)
    }
}

impl Wire {
    /// What a request says.
    pub fn read(self, path: &str, body: &Value) -> Asked {
        match self {
            Wire::Anthropic => anthropic::read(body),
            Wire::Responses => responses::read(body),
            Wire::Chat => chat::read(body),
            Wire::Gemini => gemini::read(path, body),
        }
    }

    /// The answer in one piece.
    pub fn whole(self, asked: &Asked, told: &Told) -> Value {
        match self {
            Wire::Anthropic => anthropic::whole(asked, told),
            Wire::Responses => responses::whole(asked, told),
            Wire::Chat => chat::whole(asked, told),
            Wire::Gemini => gemini::whole(told),
        }
    }

    /// The answer as server-sent events.
    pub fn events(self, asked: &Asked, told: &Told) -> Vec<String> {
        match self {
            Wire::Anthropic => anthropic::events(asked, told),
            Wire::Responses => responses::events(asked, told),
            Wire::Chat => chat::events(asked, told),
            Wire::Gemini => vec![event(None, &gemini::whole(told))],
        }
    }

    /// The answer to how many tokens a request has.
    pub fn count(self, tokens: u64) -> Value {
        match self {
            Wire::Gemini => json!({ "totalTokens": tokens }),
            _ => json!({ "input_tokens": tokens }),
        }
    }

    /// What a failed request is answered with.
    pub fn failure(self, status: u16) -> Value {
        let message = format!("the script says {status}");
        match self {
            Wire::Anthropic => {
                json!({ "type": "error", "error": { "type": "api_error", "message": message } })
            }
            Wire::Gemini => json!({ "error": { "code": status, "message": message } }),
            Wire::Responses | Wire::Chat => {
                json!({ "error": { "type": "server_error", "message": message } })
            }
        }
    }
}

/// One server-sent event.
fn event(name: Option<&str>, data: &Value) -> String {
    let name = name.map_or_else(String::new, |name| format!("event: {name}\n"));
    format!("{name}data: {data}\n\n")
}

/// One whose name also stands in its data.
fn typed(data: &Value) -> String {
    event(data["type"].as_str(), data)
}

/// A text in two pieces, as it would stream.
fn halves(text: &str) -> Vec<&str> {
    let middle = (0..=text.len() / 2)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    let (first, rest) = text.split_at(middle);
    [first, rest]
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect()
}

/// Names of the tools in a list, wherever in an entry they stand.
fn names(tools: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for tool in tools.as_array().into_iter().flatten() {
        let name = [&tool["name"], &tool["function"]["name"], &tool["type"]];
        let name = name.into_iter().find_map(Value::as_str);
        found.extend(name.map(str::to_owned));
        found.extend(names(&tool["functionDeclarations"]));
        found.extend(names(&tool["tools"]));
    }
    found
}
