//! Calls of tools that are no commands: what agents do by their own means, and by those of MCP servers.

use crate::effect::{Action, Effect, Object, Source};
use crate::line::{Called, Invocation, Line};
use crate::model::RESOURCES;
use crate::sniff;
use crate::word::Word;

/// A call of a tool, by its effects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Whose tool, and which: `claude:Write`, `mcp:github/create_issue`.
    pub name: String,
    /// What it does.
    pub effects: Vec<Effect>,
    /// Whether the effects are all there are; nobody knows what a tool without a manifest does.
    pub known: bool,
}

impl ToolCall {
    /// The call in the form that is judged: one step that has effects and no words.
    pub fn line(&self) -> Line {
        let step = Invocation {
            effects: self.effects.clone(),
            ..Invocation::default()
        };
        Line {
            invocations: vec![step],
            called: Some(Called {
                name: self.name.clone(),
                known: self.known,
            }),
            ..Line::default()
        }
    }
}

impl Effect {
    /// What fetching a URL does: a connection, or reading a file.
    pub fn of_url(url: &[u8]) -> Vec<Effect> {
        let mut effects = Vec::new();
        sniff::url(&Word::literal(url), &mut effects);
        effects
    }

    /// Reads an effect as effect rules write them: `write:/x`, `delete:recursive:./x`, `connect:HOST:443`,
    /// `write:remote`, `run_code:inline`, `privilege`. A path begins with `/`, `~`, or `.`.
    pub fn parse(text: &str) -> Option<Effect> {
        let (action, rest) = text.split_once(':').unwrap_or((text, ""));
        let action = Action::from_name(action)?;
        let (recursive, rest) = match rest.strip_prefix("recursive:") {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let object = match action {
            Action::Connect if rest.is_empty() => Object::Unspecified,
            Action::Connect => {
                let mut found = Vec::new();
                sniff::host(&Word::literal(rest.as_bytes()), &mut found);
                return found.pop();
            }
            Action::RunCode if rest.starts_with(['/', '~', '.']) => {
                Object::Code(Source::File, Word::literal(rest.as_bytes()))
            }
            Action::RunCode => Object::Code(Source::from_name(rest)?, Word::default()),
            Action::Privilege | Action::Listen | Action::Exec if rest.is_empty() => {
                Object::Unspecified
            }
            _ if rest.starts_with(['/', '~', '.']) => Object::Path(Word::literal(rest.as_bytes())),
            _ => {
                let known = RESOURCES.iter().find(|(name, _)| *name == rest)?;
                Object::Resource(known.0.to_owned())
            }
        };
        Some(Effect {
            action,
            object,
            recursive,
        })
    }

    /// The effect in the words of effect rules: `delete:recursive:/x`.
    pub fn text(&self) -> String {
        let mut text = self.action.name().to_owned();
        if self.recursive {
            text.push_str(":recursive");
        }
        let object = match &self.object {
            Object::Path(word) => String::from_utf8_lossy(&word.text()).into_owned(),
            Object::Host { host, port } => {
                let host = String::from_utf8_lossy(&host.text()).into_owned();
                port.map_or(host.clone(), |port| format!("{host}:{port}"))
            }
            Object::Port(port) => port.map_or_else(String::new, |port| port.to_string()),
            Object::Code(source, _) => source.name().to_owned(),
            Object::Resource(name) => name.clone(),
            Object::Unspecified => String::new(),
        };
        if !object.is_empty() {
            text.push(':');
            text.push_str(&object);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_read_as_they_are_written() {
        for text in [
            "write:/p/x",
            "read:~/.ssh/id_rsa",
            "delete:recursive:./build",
            "connect:example.com:443",
            "connect:example.com",
            "connect",
            "write:remote",
            "run_code:inline",
            "privilege",
        ] {
            let effect = Effect::parse(text);
            assert_eq!(effect.map(|effect| effect.text()).as_deref(), Some(text));
        }
        let url = Effect::parse("connect:https://user@example.com/x").unwrap();
        assert_eq!(url.text(), "connect:example.com:443");
        for wrong in [
            "",
            "writes:/x",
            "write:x",
            "write",
            "run_code:somewhere",
            "delete:moon",
        ] {
            assert_eq!(Effect::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_call_is_one_step_without_words() {
        let call = ToolCall {
            name: "claude:Write".to_owned(),
            effects: vec![Effect::parse("write:/x").unwrap()],
            known: true,
        };
        let line = call.line();
        assert!(line.complete() && line.plain.is_none());
        assert!(line.invocations[0].argv.is_empty());
        assert_eq!(line.invocations[0].effects, call.effects);
    }

    #[test]
    fn a_file_by_url_is_a_file() {
        let texts = |url: &str| -> Vec<String> {
            Effect::of_url(url.as_bytes())
                .iter()
                .map(Effect::text)
                .collect()
        };
        assert_eq!(texts("file:///etc/shadow"), ["read:/etc/shadow"]);
        assert_eq!(texts("https://a.example/x?y"), ["connect:a.example:443"]);
    }
}
