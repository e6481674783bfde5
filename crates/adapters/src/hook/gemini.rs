//! Gemini CLI.

use serde_json::{Map, Value};

use super::event::{Event, Happening};
use super::tools::{self, Meaning, Table};
use super::{claude, fields};

const TOOLS: Table = &[
    ("run_shell_command", Meaning::Shell("command", "dir_path")),
    ("write_file", Meaning::Writes(&["file_path"])),
    ("replace", Meaning::Writes(&["file_path"])),
    ("read_file", Meaning::Reads("file_path")),
    ("read_many_files", Meaning::Searches("", "include")),
    ("list_directory", Meaning::Searches("dir_path", "")),
    ("glob", Meaning::Searches("dir_path", "pattern")),
    (
        "grep_search",
        Meaning::Searches("dir_path", "include_pattern"),
    ),
    (
        "search_file_content",
        Meaning::Searches("dir_path", "include"),
    ),
    ("web_fetch", Meaning::FetchesAll("prompt")),
    (
        "google_web_search",
        Meaning::AsksProvider("generativelanguage.googleapis.com"),
    ),
    ("save_memory", Meaning::Has("write:~/.gemini/GEMINI.md")),
    ("read_background_output", Meaning::Nothing),
    ("list_background_processes", Meaning::Nothing),
    ("activate_skill", Meaning::Nothing),
    ("ask_user", Meaning::Nothing),
    ("complete_task", Meaning::Nothing),
    ("delegate_to_agent", Meaning::Nothing),
    ("enter_plan_mode", Meaning::Nothing),
    ("exit_plan_mode", Meaning::Nothing),
    ("get_internal_docs", Meaning::Nothing),
    ("invoke_agent", Meaning::Nothing),
    ("update_topic", Meaning::Nothing),
    ("write_todos", Meaning::Nothing),
];

/// Understands an event.
pub fn read(event: Option<&str>, told: &Map<String, Value>) -> Result<Event, String> {
    let name = match fields::optional(told, "hook_event_name")? {
        Some(name) => name,
        None => event.ok_or("`hook_event_name` is missing")?,
    };
    let call = || {
        let input = fields::object(told, "tool_input")?;
        let mcp = fields::object(told, "mcp_context")?;
        match mcp.is_empty() {
            true => tools::call("gemini", TOOLS, fields::text(told, "tool_name")?, input),
            false => tools::mcp_call(
                fields::text(&mcp, "server_name")?,
                fields::text(&mcp, "tool_name")?,
                input,
            ),
        }
    };
    let happening = match name {
        "AfterTool" => Happening::After {
            call: call()?,
            failed: told
                .get("tool_response")
                .is_some_and(|response| response.get("error").is_some()),
        },
        _ if name == "BeforeTool" || told.contains_key("tool_name") => Happening::Before(call()?),
        _ => Happening::Told(claude::word(name), claude::detail(told)),
    };
    Ok(Event {
        name: name.to_owned(),
        happening,
        session: fields::name(told, "session_id"),
        call: fields::name(told, "tool_call_id"),
        agent: fields::name(told, "agent_id"),
        cwd: fields::directory(told, "cwd")?,
    })
}
