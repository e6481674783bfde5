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
    /// What a request is, whatever comes before the last words of its path. What is not known to cost nothing
    /// costs what its language usually does: providers add requests by the month.
    pub fn kind(self, method: &str, path: &str) -> Kind {
        let free = ["/count_tokens", ":countTokens", "/input_tokens", "/models"];
        let looks = matches!(method, "GET" | "HEAD" | "OPTIONS" | "DELETE");
        if looks || free.iter().any(|end| path.ends_with(end)) {
            return Kind::Plain;
        }
        match self {
            Wire::Anthropic => Kind::Messages,
            Wire::Openai if path.ends_with("/chat/completions") => Kind::Chat,
            Wire::Openai => Kind::Responses,
            Wire::Gemini => Kind::Generate,
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
