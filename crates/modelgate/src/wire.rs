//! The languages that clients speak to models, and which of their requests is which.

use std::fmt;

/// Whose language a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wire {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's Responses and Chat Completions.
    Openai,
    /// Gemini's generateContent.
    Gemini,
}

/// What a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Anthropic's `messages`.
    Messages,
    /// OpenAI's `responses`.
    Responses,
    /// `chat/completions`.
    Chat,
    /// `generateContent`, streamed or not.
    Generate,
    /// Something that costs no tokens.
    Plain,
}

impl Wire {
    /// What a request to this path is, whatever comes before its last words.
    pub fn kind(self, path: &str) -> Kind {
        let ends = |end: &str| path.ends_with(end);
        match self {
            Wire::Anthropic if ends("/messages") => Kind::Messages,
            Wire::Openai if ends("/responses") => Kind::Responses,
            Wire::Openai if ends("/chat/completions") => Kind::Chat,
            Wire::Gemini if ends(":generateContent") || ends(":streamGenerateContent") => {
                Kind::Generate
            }
            _ => Kind::Plain,
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Wire::Anthropic => "anthropic",
            Wire::Openai => "openai",
            Wire::Gemini => "gemini",
        })
    }
}

impl Kind {
    /// Whether its answer says what it cost.
    pub fn costs(self) -> bool {
        self != Kind::Plain
    }
}
