//! From a client's tool and its arguments to what the call does. Which argument says what is data, one
//! table for each client.

use std::path::PathBuf;

use serde_json::{Map, Value};
use substrate_command::{Action, Effect, Object, Source, Word};

use super::event::{Call, Deed};
use super::{fields, patch};

/// What the arguments of a tool mean.
#[derive(Debug, Clone, Copy)]
pub enum Meaning {
    /// It runs the line in this argument, in the directory of the other where that is given.
    Shell(&'static str, &'static str),
    /// It types this argument into a program that runs.
    Types(&'static str),
    /// It writes the files in these arguments.
    Writes(&'static [&'static str]),
    /// It deletes the files in these arguments.
    Deletes(&'static [&'static str]),
    /// It reads the file in this argument.
    Reads(&'static str),
    /// It looks at everything below the directory of the first argument (the current one without it), as
    /// far as the pattern of the second leads.
    Searches(&'static str, &'static str),
    /// It fetches the URL in this argument.
    Fetches(&'static str),
    /// It fetches every URL in the text of this argument.
    FetchesAll(&'static str),
    /// It has its provider do something on the network, by this host.
    AsksProvider(&'static str),
    /// It changes the files that a patch in this argument names.
    Patches(&'static str),
    /// It has this effect, whatever its arguments are.
    Has(&'static str),
    /// It does nothing to the machine by itself; what comes of it comes by other calls.
    Nothing,
}

/// A table of a client's tools.
pub type Table = &'static [(&'static str, Meaning)];

/// The call of one of a client's own tools. A tool that the table does not have does nobody knows what.
pub fn call(
    client: &str,
    table: Table,
    tool: &str,
    input: Map<String, Value>,
) -> Result<Call, String> {
    let known = table.iter().find(|(name, _)| *name == tool);
    let deed = match known {
        Some((_, meaning)) => meaning
            .deed(&input)
            .map_err(|problem| format!("{tool}: {problem}"))?,
        None => Deed::Effects {
            effects: Vec::new(),
            known: false,
        },
    };
    Ok(Call {
        name: format!("{client}:{}", plain(tool)?),
        deed,
        input,
    })
}

/// The call of a tool of an MCP server. Only a manifest could say what it does.
pub fn mcp_call(server: &str, tool: &str, input: Map<String, Value>) -> Result<Call, String> {
    Ok(Call {
        name: format!("mcp:{}/{}", plain(server)?, plain(tool)?),
        deed: Deed::Effects {
            effects: Vec::new(),
            known: false,
        },
        input,
    })
}

/// Server and tool in `mcp__SERVER__TOOL`.
pub fn mcp_name(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("mcp__")?.split_once("__")
}

/// A name that can stand in a rule and in the trace.
fn plain(name: &str) -> Result<&str, String> {
    let fits = |c: char| c.is_alphanumeric() || "-_.:/ @".contains(c);
    match !name.is_empty() && name.len() <= 256 && name.chars().all(fits) {
        true => Ok(name),
        false => Err("the name of the tool is none".to_owned()),
    }
}

impl Meaning {
    fn deed(self, input: &Map<String, Value>) -> Result<Deed, String> {
        let effects = match self {
            Meaning::Shell(line, directory) => return shell(line, directory, input),
            Meaning::Types(key) => typed(fields::optional(input, key)?),
            Meaning::Writes(keys) => all_paths(Action::Write, input, keys)?,
            Meaning::Deletes(keys) => all_paths(Action::Delete, input, keys)?,
            Meaning::Reads(key) => paths(Action::Read, input, key)?,
            Meaning::Searches(directory, pattern) => searched(input, directory, pattern)?,
            Meaning::Fetches(key) => Effect::of_url(fields::text(input, key)?.as_bytes()),
            Meaning::FetchesAll(key) => fetched(fields::text(input, key)?),
            Meaning::AsksProvider(host) => vec![connection(host)],
            Meaning::Patches(key) => patch::effects(fields::text(input, key)?)?,
            Meaning::Has(effect) => Effect::parse(effect).into_iter().collect(),
            Meaning::Nothing => Vec::new(),
        };
        // Something that is said to have an effect and has none was not understood.
        let known = !effects.is_empty() || matches!(self, Meaning::Nothing | Meaning::Types(_));
        Ok(Deed::Effects { effects, known })
    }
}

fn shell(
    line: &'static str,
    directory: &'static str,
    input: &Map<String, Value>,
) -> Result<Deed, String> {
    let text = match input.get(line) {
        // An argument vector; a shell in it is seen through when the line is read.
        Some(Value::Array(_)) => {
            let words = fields::texts(input, line)?;
            substrate_text::command_line(&words).into_encoded_bytes()
        }
        _ => fields::text(input, line)?.as_bytes().to_vec(),
    };
    let directory = match directory {
        "" => None,
        key => fields::optional(input, key)?.filter(|path| !path.is_empty()),
    };
    Ok(Deed::Line {
        text,
        directory: directory.map(PathBuf::from),
        key: line,
        itself: None,
    })
}

fn path(action: Action, path: &str) -> Effect {
    Effect::path(action, Word::literal(path))
}

fn paths(action: Action, input: &Map<String, Value>, key: &str) -> Result<Vec<Effect>, String> {
    let all = fields::texts(input, key)?;
    match all.iter().any(|path| path.is_empty()) {
        true => Err(format!("`{key}` is empty")),
        false => Ok(all.into_iter().map(|one| path(action, one)).collect()),
    }
}

/// The paths in those of the arguments that are there; one of them has to be.
fn all_paths(
    action: Action,
    input: &Map<String, Value>,
    keys: &[&str],
) -> Result<Vec<Effect>, String> {
    let there = keys.iter().filter(|key| input.contains_key(**key));
    let found: Result<Vec<_>, _> = there.map(|key| paths(action, input, key)).collect();
    let found = found?.concat();
    match (found.is_empty(), keys) {
        (false, _) => Ok(found),
        (true, [key, ..]) => Err(format!("`{key}` is missing")),
        (true, []) => Ok(found),
    }
}

/// What typing into a program does: it runs what nobody has seen. Typing nothing only looks.
fn typed(text: Option<&str>) -> Vec<Effect> {
    let code = Object::Code(Source::Stdin, Word::default());
    match text {
        None | Some("") => Vec::new(),
        Some(_) => vec![Effect::new(Action::RunCode, code)],
    }
}

/// Everything below the directory, and below where a pattern such as `../x/**` or `/etc/*` leads.
fn searched(
    input: &Map<String, Value>,
    directory: &str,
    pattern: &str,
) -> Result<Vec<Effect>, String> {
    let directories = match input.get(directory) {
        None | Some(Value::Null) => vec!["."],
        Some(_) => fields::texts(input, directory)?,
    };
    let patterns = match (pattern, input.get(pattern)) {
        ("", _) | (_, None | Some(Value::Null)) => Vec::new(),
        _ => fields::texts(input, pattern)?,
    };
    let mut effects = Vec::new();
    for directory in directories {
        let directory = if directory.is_empty() { "." } else { directory };
        effects.push(below(directory));
        for pattern in patterns.iter().flat_map(|pattern| alternatives(pattern)) {
            let known = pattern
                .split(['*', '?', '[', '{', '!', '('])
                .next()
                .unwrap_or_default();
            let known = known
                .rsplit_once('/')
                .map_or("", |(directory, _)| directory);
            match pattern {
                _ if pattern.starts_with('/') => effects.push(below(&format!("/{known}"))),
                _ if pattern.starts_with('~') => effects.push(below(known)),
                // A way up may also stand behind a wildcard.
                _ if pattern.contains("..") => effects.push(below("/")),
                _ => {}
            }
        }
    }
    Ok(effects)
}

/// What a pattern with braces may begin with.
fn alternatives(pattern: &str) -> Vec<&str> {
    match pattern.strip_prefix('{') {
        Some(rest) => rest.split([',', '}']).collect(),
        None => vec![pattern],
    }
}

fn below(directory: &str) -> Effect {
    Effect {
        recursive: true,
        ..path(Action::Read, directory)
    }
}

/// Connections to every URL in a text; without any, nobody knows where to.
fn fetched(text: &str) -> Vec<Effect> {
    let ends = |c: char| c.is_whitespace() || "<>\"'`()[]{}".contains(c);
    let urls = text.split(ends).filter(|word| word.contains("://"));
    let found: Vec<Effect> = urls
        .flat_map(|url| Effect::of_url(url.as_bytes()))
        .collect();
    match found.is_empty() {
        true => vec![Effect::new(Action::Connect, Object::Unspecified)],
        false => found,
    }
}

fn connection(host: &str) -> Effect {
    let host = Word::literal(host);
    let port = Some(443);
    Effect::new(Action::Connect, Object::Host { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn effects(meaning: Meaning, input: Value) -> Result<Vec<String>, String> {
        let Value::Object(input) = input else {
            panic!("no object")
        };
        match meaning.deed(&input)? {
            Deed::Effects { effects, .. } => Ok(effects.iter().map(Effect::text).collect()),
            Deed::Line { .. } => panic!("a line"),
        }
    }

    #[test]
    fn searches_reach_as_far_as_their_patterns() {
        let glob = Meaning::Searches("path", "pattern");
        for (input, wanted) in [
            (json!({}), &["read:recursive:."][..]),
            (json!({ "path": "/etc" }), &["read:recursive:/etc"]),
            (json!({ "pattern": "src/**/*.rs" }), &["read:recursive:."]),
            (
                json!({ "pattern": "/etc/ssh/*" }),
                &["read:recursive:.", "read:recursive://etc/ssh"],
            ),
            (
                json!({ "pattern": "*/../../x" }),
                &["read:recursive:.", "read:recursive:/"],
            ),
            (
                json!({ "pattern": "{a,/root/.ssh/*}" }),
                &["read:recursive:.", "read:recursive://root/.ssh"],
            ),
        ] {
            assert_eq!(effects(glob, input.clone()).unwrap(), wanted, "{input}");
        }
    }

    #[test]
    fn fetches_name_their_hosts() {
        let all = Meaning::FetchesAll("prompt");
        let prompt = json!({ "prompt": "compare (https://a.test/x) with http://b.test:8080/" });
        let wanted = ["connect:a.test:443", "connect:b.test:8080"];
        assert_eq!(effects(all, prompt).unwrap(), wanted);
        assert_eq!(
            effects(all, json!({ "prompt": "look" })).unwrap(),
            ["connect"]
        );
        let one = Meaning::Fetches("url");
        let file = json!({ "url": "file:///etc/shadow" });
        assert_eq!(effects(one, file).unwrap(), ["read:/etc/shadow"]);
    }

    #[test]
    fn what_is_missing_or_of_another_kind_is_refused() {
        let write = Meaning::Writes(&["file_path"]);
        for input in [
            json!({}),
            json!({ "file_path": 7 }),
            json!({ "file_path": "" }),
            json!({ "file_path": [] }),
            json!({ "file_path": ["a", 7] }),
            json!({ "file_path": "a\u{0}b" }),
            json!({ "file_path": null }),
        ] {
            assert!(effects(write, input.clone()).is_err(), "{input}");
        }
    }
}
