//! Cursor.

use serde_json::{Map, Value, json};

use super::event::{Event, Happening};
use super::tools::{self, Meaning, Table};
use super::{claude, fields};

const TOOLS: Table = &[
    ("Shell", Meaning::Shell("command", "cwd")),
    ("Write", Meaning::Writes(&["file_path", "path"])),
    ("Edit", Meaning::Writes(&["file_path", "path"])),
    ("Delete", Meaning::Deletes(&["file_path", "path"])),
    ("NotebookEdit", Meaning::Writes(&["notebook_path", "path"])),
    ("Read", Meaning::Reads("file_path")),
    ("Grep", Meaning::Searches("path", "glob")),
    ("Glob", Meaning::Searches("path", "pattern")),
    ("LS", Meaning::Searches("path", "")),
    ("WebFetch", Meaning::Fetches("url")),
    ("WebSearch", Meaning::AsksProvider("api2.cursor.sh")),
    ("Task", Meaning::Nothing),
    ("TodoWrite", Meaning::Nothing),
];

/// Understands an event.
pub fn read(event: Option<&str>, told: &Map<String, Value>) -> Result<Event, String> {
    let name = match fields::optional(told, "hook_event_name")? {
        Some(name) => name,
        None => event.ok_or("`hook_event_name` is missing")?,
    };
    let happening = match name {
        "beforeShellExecution" => Happening::Before(shell(told)?),
        "afterShellExecution" => after(shell(told)?, false),
        "beforeMCPExecution" => Happening::Before(mcp(told)?),
        "afterMCPExecution" => after(mcp(told)?, false),
        "beforeReadFile" | "beforeTabFileRead" => Happening::Before(file("Read", told)?),
        "afterFileEdit" | "afterTabFileEdit" => after(file("Write", told)?, false),
        "postToolUse" | "postToolUseFailure" => after(call(told)?, name == "postToolUseFailure"),
        _ if name == "preToolUse" || told.contains_key("tool_name") => {
            Happening::Before(call(told)?)
        }
        "beforeSubmitPrompt" => Happening::Told(claude::word(name), claude::detail(told)),
        // Something that is about to happen and that nobody here knows how to judge.
        _ if name.starts_with("before") => return Err(format!("`{name}` is not known")),
        _ => Happening::Told(claude::word(name), claude::detail(told)),
    };
    let roots = told.get("workspace_roots").and_then(Value::as_array);
    let root = roots.and_then(|roots| roots.first()?.as_str());
    let root = root.filter(|root| root.starts_with('/')).map(Into::into);
    Ok(Event {
        name: name.to_owned(),
        happening,
        session: fields::name(told, "conversation_id"),
        call: fields::name(told, "tool_use_id"),
        agent: fields::name(told, "subagent_id"),
        cwd: fields::directory(told, "cwd")?.or(root),
    })
}

fn after(call: super::Call, failed: bool) -> Happening {
    Happening::After { call, failed }
}

fn own(tool: &str, input: Map<String, Value>) -> Result<super::Call, String> {
    tools::call("cursor", TOOLS, tool, input)
}

fn shell(told: &Map<String, Value>) -> Result<super::Call, String> {
    let mut input = Map::new();
    input.insert("command".to_owned(), json!(fields::text(told, "command")?));
    own("Shell", input)
}

fn file(tool: &str, told: &Map<String, Value>) -> Result<super::Call, String> {
    let mut input = Map::new();
    input.insert(
        "file_path".to_owned(),
        json!(fields::text(told, "file_path")?),
    );
    own(tool, input)
}

/// The server is known by its command or address only, so rules see it as `cursor`.
fn mcp(told: &Map<String, Value>) -> Result<super::Call, String> {
    let tool = fields::text(told, "tool_name")?;
    let input = fields::object(told, "tool_input")?;
    match tools::mcp_name(tool) {
        Some((server, tool)) => tools::mcp_call(server, tool, input),
        None => tools::mcp_call("cursor", tool.trim_start_matches("MCP:"), input),
    }
}

fn call(told: &Map<String, Value>) -> Result<super::Call, String> {
    let tool = fields::text(told, "tool_name")?;
    if tool.starts_with("MCP:") || tool.starts_with("mcp__") {
        return mcp(told);
    }
    own(tool, fields::object(told, "tool_input")?)
}
