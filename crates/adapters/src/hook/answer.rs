//! The verdict in a client's own words.

use serde_json::{Map, Value, json};

use super::event::{Event, Happening};
use crate::client::Client;

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Nothing is in its way; what the client itself asks its user stays as it is.
    Pass,
    /// It may not happen, and why.
    Deny(String),
    /// A person is to be asked, and why.
    Ask(String),
    /// It may happen with these arguments.
    Rewrite(Map<String, Value>),
}

impl Client {
    /// Whether a hook can have the client ask its user.
    pub fn asks(self) -> bool {
        matches!(self, Client::Claude | Client::Cursor | Client::Copilot)
    }

    /// Whether a hook can change the arguments of a call.
    pub fn rewrites(self) -> bool {
        matches!(
            self,
            Client::Claude | Client::Codex | Client::Gemini | Client::Copilot
        )
    }
}

/// What is written to standard output, if anything.
pub fn in_words_of(client: Client, event: &Event, verdict: &Verdict) -> Option<Value> {
    match client {
        Client::Claude => claude(event, verdict, None),
        // It changes no argument without a permission.
        Client::Codex => claude(event, verdict, Some("allow")),
        Client::Gemini => gemini(event, verdict),
        Client::Cursor => Some(cursor(event, verdict)),
        Client::Opencode => opencode(verdict),
        // It also sends events in Claude's form, and hears an answer in both.
        Client::Copilot if event.name.starts_with(char::is_uppercase) => {
            claude(event, verdict, Some("allow"))
        }
        Client::Copilot if event.name == "permissionRequest" => refused(verdict),
        Client::Copilot => copilot(verdict),
    }
}

/// `rewritten` is what goes with other arguments: Claude Code itself needs no word, and with none what it asks
/// its user stays as it is.
fn claude(event: &Event, verdict: &Verdict, rewritten: Option<&str>) -> Option<Value> {
    if event.name == "PermissionRequest" {
        return refused(verdict).map(|decision| {
            json!({ "hookSpecificOutput": { "hookEventName": event.name, "decision": decision } })
        });
    }
    let specific = match verdict {
        Verdict::Pass => return None,
        Verdict::Deny(why) => json!({
            "permissionDecision": "deny", "permissionDecisionReason": why,
        }),
        Verdict::Ask(why) => json!({
            "permissionDecision": "ask", "permissionDecisionReason": why,
        }),
        Verdict::Rewrite(input) => json!({ "updatedInput": input }),
    };
    let Value::Object(mut specific) = specific else {
        return None;
    };
    if let (Verdict::Rewrite(_), Some(word)) = (verdict, rewritten) {
        specific.insert("permissionDecision".to_owned(), json!(word));
    }
    specific.insert("hookEventName".to_owned(), json!(event.name));
    Some(json!({ "hookSpecificOutput": specific }))
}

/// The answer to a client that is about to ask its user: a no, or nothing, because the question stands anyway.
fn refused(verdict: &Verdict) -> Option<Value> {
    match verdict {
        Verdict::Deny(why) => Some(json!({ "behavior": "deny", "message": why })),
        Verdict::Pass | Verdict::Ask(_) | Verdict::Rewrite(_) => None,
    }
}

fn gemini(event: &Event, verdict: &Verdict) -> Option<Value> {
    match verdict {
        Verdict::Pass => None,
        Verdict::Deny(why) | Verdict::Ask(why) => {
            Some(json!({ "decision": "deny", "reason": why }))
        }
        Verdict::Rewrite(input) => Some(json!({
            "hookSpecificOutput": { "hookEventName": event.name, "tool_input": input },
        })),
    }
}

/// It waits for an answer to everything. Permission is given by no answer: what it asks its user stays as it is.
fn cursor(event: &Event, verdict: &Verdict) -> Value {
    if !matches!(event.happening, Happening::Before(_)) {
        return json!({ "continue": true });
    }
    let (permission, why) = match verdict {
        Verdict::Pass => return json!({ "continue": true }),
        Verdict::Deny(why) => ("deny", why.clone()),
        Verdict::Ask(why) => ("ask", why.clone()),
        Verdict::Rewrite(_) => ("deny", "it cannot be run as it is".to_owned()),
    };
    json!({ "permission": permission, "user_message": why, "agent_message": why })
}

fn opencode(verdict: &Verdict) -> Option<Value> {
    match verdict {
        Verdict::Pass => None,
        Verdict::Deny(why) | Verdict::Ask(why) => {
            Some(json!({ "decision": "deny", "reason": why }))
        }
        Verdict::Rewrite(_) => {
            Some(json!({ "decision": "deny", "reason": "it cannot be run as it is" }))
        }
    }
}

fn copilot(verdict: &Verdict) -> Option<Value> {
    match verdict {
        Verdict::Pass => None,
        Verdict::Deny(why) => {
            Some(json!({ "permissionDecision": "deny", "permissionDecisionReason": why }))
        }
        Verdict::Ask(why) => {
            Some(json!({ "permissionDecision": "ask", "permissionDecisionReason": why }))
        }
        Verdict::Rewrite(input) => {
            Some(json!({ "permissionDecision": "allow", "modifiedArgs": input }))
        }
    }
}
