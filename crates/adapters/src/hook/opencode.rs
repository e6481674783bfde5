//! OpenCode. It has no hooks that run a program; this is what a plugin of its passes on from
//! `tool.execute.before`: `{"tool", "sessionID", "callID", "args", "cwd"}`.

use serde_json::{Map, Value};

use super::event::{Event, Happening};
use super::tools::{self, Meaning, Table};
use super::{claude, fields};

const TOOLS: Table = &[
    ("bash", Meaning::Shell("command", "workdir")),
    ("write", Meaning::Writes(&["filePath"])),
    ("edit", Meaning::Writes(&["filePath"])),
    ("multiedit", Meaning::Writes(&["filePath"])),
    ("patch", Meaning::Patches("patchText")),
    ("apply_patch", Meaning::Patches("patchText")),
    ("read", Meaning::Reads("filePath")),
    ("list", Meaning::Searches("path", "")),
    ("glob", Meaning::Searches("path", "pattern")),
    ("grep", Meaning::Searches("path", "include")),
    ("webfetch", Meaning::Fetches("url")),
    ("websearch", Meaning::AsksProvider("mcp.exa.ai")),
    ("codesearch", Meaning::AsksProvider("mcp.exa.ai")),
    ("batch", Meaning::Nothing),
    ("invalid", Meaning::Nothing),
    ("question", Meaning::Nothing),
    ("skill", Meaning::Nothing),
    ("task", Meaning::Nothing),
    ("todoread", Meaning::Nothing),
    ("todowrite", Meaning::Nothing),
];

/// Understands an event.
pub fn read(event: Option<&str>, told: &Map<String, Value>) -> Result<Event, String> {
    let name = match fields::optional(told, "event")? {
        Some(name) => name,
        None => event.unwrap_or("tool.execute.before"),
    };
    let call = || {
        let tool = fields::text(told, "tool")?;
        tools::call("opencode", TOOLS, tool, fields::object(told, "args")?)
    };
    let happening = match name {
        "tool.execute.after" => Happening::After {
            call: call()?,
            failed: false,
        },
        _ if name == "tool.execute.before" || told.contains_key("tool") => {
            Happening::Before(call()?)
        }
        _ => Happening::Told(claude::word(name), claude::detail(told)),
    };
    Ok(Event {
        name: name.to_owned(),
        happening,
        session: fields::name(told, "sessionID"),
        call: fields::name(told, "callID"),
        agent: None,
        cwd: fields::directory(told, "cwd")?,
    })
}
