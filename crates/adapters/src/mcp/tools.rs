//! The tools: what they are called, what they take, and which command of ours each is.

use serde_json::{Map, Value, json};

use super::kept::Kept;
use super::wire::{Refusal, invalid};

/// What a model should know before it uses them.
pub const INSTRUCTIONS: &str = "Runs commands under the user's policy. `run` judges a line, contains it where the policy says so, and records it; a refusal (exit 126) names the rule. `explain` says beforehand what would become of a line. What an isolated line wrote is held back: `diff` shows it, `apply` says how a person takes it over.";

/// What is to be done for a call.
#[derive(Debug, PartialEq, Eq)]
pub enum Plan {
    /// Our program with these arguments.
    Start(Vec<String>),
    /// More of an answer that was cut.
    Rest {
        /// Which.
        handle: u64,
        /// From where.
        offset: usize,
    },
}

/// The tools, as clients list them.
pub fn list() -> Value {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let tool =
        |name: &str, title: &str, about: &str, fields: Value, required: &[&str], reads: bool| {
            json!({
                "name": name, "title": title, "description": about,
                "inputSchema": {
                    "type": "object", "properties": fields, "required": required,
                    "additionalProperties": false,
                },
                "annotations": { "readOnlyHint": reads, "openWorldHint": false },
            })
        };
    json!([
        tool(
            "run",
            "Run a line",
            "Runs a line of bash as the policy permits and answers with its exit status and output. 126 means that the policy refused it, with the rule and its reason. Writes of an isolated line are held back; the output names the result.",
            json!({
                "line": text("The line, as you would type it"),
                "isolated": { "type": "boolean", "description": "Run it in a fresh world whose writes are held back, whatever the policy says" },
            }),
            &["line"],
            false
        ),
        tool(
            "explain",
            "Explain a line",
            "Says what would become of a line and why, without running it: verdict, commands, effects, rules with file and line.",
            json!({ "line": text("The line") }),
            &["line"],
            true
        ),
        tool(
            "diff",
            "Show held changes",
            "Shows what an isolated line changed and what is held back, as a patch.",
            json!({ "result": text("The id that `run` named, a part of it, or `-` for the newest") }),
            &["result"],
            true
        ),
        tool(
            "apply",
            "Ask for changes to be taken over",
            "Says what taking held changes over would do. A person takes them over at a terminal of his own; this does not.",
            json!({ "result": text("The id that `run` named, a part of it, or `-` for the newest") }),
            &["result"],
            true
        ),
        tool(
            "replay",
            "Run a recorded command again",
            "Runs a recorded command again in a fresh world and says what differs.",
            json!({ "span": text("The id of its span, or a part of it") }),
            &["span"],
            false
        ),
        tool(
            "trace",
            "Search what happened",
            "Commands that ran or were refused, newest last, as JSON lines.",
            json!({
                "text": text("Only commands with this text in them"),
                "last": { "type": "integer", "minimum": 1, "maximum": 1000, "description": "How many; 20 without it" },
            }),
            &[],
            true
        ),
        tool(
            "rest",
            "Read on",
            "More of an answer that was cut, by the handle that it named.",
            json!({
                "handle": { "type": "integer", "minimum": 1 },
                "offset": { "type": "integer", "minimum": 0, "description": "The byte to begin with" },
            }),
            &["handle"],
            true
        ),
    ])
}

/// What a call of `tools/call` asks for.
pub fn plan(params: &Map<String, Value>, kept: &Kept) -> Result<Plan, Refusal> {
    let name = params.get("name").and_then(Value::as_str);
    let name = name.ok_or_else(|| invalid("`name` is missing"))?;
    let none = Map::new();
    let arguments = match params.get("arguments") {
        None | Some(Value::Null) => &none,
        Some(Value::Object(arguments)) => arguments,
        Some(_) => return Err(invalid("`arguments` must be an object")),
    };
    let start = |words: &[&str]| Plan::Start(words.iter().map(|word| (*word).to_owned()).collect());
    let text = |key: &str| text(arguments, key);
    // An id that begins with a dash would be an option.
    let id = |key: &str| match text(key)? {
        id if id != "-" && id.starts_with('-') => Err(invalid(format!("`{key}` is no id"))),
        id => Ok(id),
    };
    let (plan, known): (Plan, &[&str]) = match name {
        "run" => {
            let line = text("line")?;
            let plan = match arguments.get("isolated") {
                None | Some(Value::Null | Value::Bool(false)) => start(&["-c", "--", line]),
                Some(Value::Bool(true)) => start(&["run", "--isolated", "--", "bash", "-c", line]),
                Some(_) => return Err(invalid("`isolated` must be true or false")),
            };
            (plan, &["line", "isolated"])
        }
        "explain" => (
            start(&["policy", "explain", "--json", "--", text("line")?]),
            &["line"],
        ),
        "diff" => (
            start(&["world", "diff", "--patch", id("result")?]),
            &["result"],
        ),
        "apply" => (
            start(&["world", "apply", "--dry-run", id("result")?]),
            &["result"],
        ),
        "replay" => (start(&["replay", id("span")?]), &["span"]),
        "trace" => {
            let last = number(arguments, "last")?
                .unwrap_or(20)
                .clamp(1, 1000)
                .to_string();
            let plan = match arguments.get("text") {
                None | Some(Value::Null) => start(&["trace", "list", "--json", "--last", &last]),
                Some(_) => start(&[
                    "trace",
                    "grep",
                    "--json",
                    "--last",
                    &last,
                    "--",
                    text("text")?,
                ]),
            };
            (plan, &["text", "last"])
        }
        "rest" => {
            let handle =
                number(arguments, "handle")?.ok_or_else(|| invalid("`handle` is missing"))?;
            if !kept.has(handle) {
                return Err(invalid("there is no such handle, or no longer"));
            }
            let offset = number(arguments, "offset")?.unwrap_or(0);
            let offset = usize::try_from(offset).unwrap_or(usize::MAX);
            (Plan::Rest { handle, offset }, &["handle", "offset"])
        }
        _ => return Err(invalid("there is no such tool")),
    };
    match arguments.keys().find(|key| !known.contains(&key.as_str())) {
        Some(_) => Err(invalid(format!("`{name}` takes {} only", known.join(", ")))),
        None => Ok(plan),
    }
}

fn text<'a>(arguments: &'a Map<String, Value>, key: &str) -> Result<&'a str, Refusal> {
    match arguments.get(key).and_then(Value::as_str) {
        Some(text) if !text.contains('\0') => Ok(text),
        Some(_) => Err(invalid(format!("`{key}` holds a zero byte"))),
        None => Err(invalid(format!("`{key}` must be a text"))),
    }
}

fn number(arguments: &Map<String, Value>, key: &str) -> Result<Option<u64>, Refusal> {
    match arguments.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let number = value.as_u64().map(Some);
            number.ok_or_else(|| invalid(format!("`{key}` must be a number")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(value: Value) -> Result<Plan, Refusal> {
        let Value::Object(params) = value else {
            panic!("no object")
        };
        plan(&params, &Kept::default())
    }

    #[test]
    fn every_tool_that_is_listed_is_one() {
        for tool in list().as_array().unwrap() {
            let refused = planned(json!({ "name": tool["name"], "arguments": { "x": 1 } }));
            let refused = format!("{:?}", refused.unwrap_err());
            assert!(!refused.contains("no such tool"), "{tool}: {refused}");
        }
    }

    #[test]
    fn words_of_a_client_are_never_options() {
        for arguments in [
            json!({ "name": "diff", "arguments": { "result": "--json" } }),
            json!({ "name": "apply", "arguments": { "result": "--force" } }),
            json!({ "name": "replay", "arguments": { "span": "-v" } }),
            json!({ "name": "run", "arguments": { "line": "ls", "policy": "x" } }),
            json!({ "name": "run", "arguments": { "line": "a\u{0}b" } }),
            json!({ "name": "run", "arguments": { "line": 7 } }),
            json!({ "name": "rest", "arguments": { "handle": 1 } }),
            json!({ "name": "nothing" }),
            json!({}),
        ] {
            assert!(planned(arguments.clone()).is_err(), "{arguments}");
        }
        let run = planned(json!({ "name": "run", "arguments": { "line": "--policy x" } }));
        let words = ["-c", "--", "--policy x"].map(str::to_owned).to_vec();
        assert_eq!(run, Ok(Plan::Start(words)));
        let newest = planned(json!({ "name": "diff", "arguments": { "result": "-" } }));
        assert!(newest.is_ok());
    }
}
