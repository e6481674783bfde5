//! The clients of agents that we know.

use std::fmt;
use std::str::FromStr;

/// A client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Client {
    /// Claude Code
    Claude,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
    /// Cursor
    Cursor,
    /// OpenCode
    Opencode,
    /// GitHub Copilot CLI
    Copilot,
}

impl Client {
    /// All of them.
    pub const ALL: [Client; 6] = [
        Client::Claude,
        Client::Codex,
        Client::Gemini,
        Client::Cursor,
        Client::Opencode,
        Client::Copilot,
    ];

    /// The name that commands and policies use.
    pub fn name(self) -> &'static str {
        match self {
            Client::Claude => "claude",
            Client::Codex => "codex",
            Client::Gemini => "gemini",
            Client::Cursor => "cursor",
            Client::Opencode => "opencode",
            Client::Copilot => "copilot",
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no client of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no client `{0}`; known are claude, codex, gemini, cursor, opencode, copilot")]
pub struct NoClient(String);

impl FromStr for Client {
    type Err = NoClient;

    fn from_str(name: &str) -> Result<Self, NoClient> {
        let known = Client::ALL.into_iter().find(|client| client.name() == name);
        known.ok_or_else(|| {
            NoClient(
                name.chars()
                    .take(64)
                    .collect::<String>()
                    .escape_debug()
                    .to_string(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for client in Client::ALL {
            assert_eq!(client.to_string().parse(), Ok(client));
        }
        let error = "cursor-agent\u{1b}".parse::<Client>().unwrap_err();
        assert!(error.to_string().contains("`cursor-agent\\u{1b}`"));
    }
}
