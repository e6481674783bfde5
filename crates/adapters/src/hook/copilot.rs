//! GitHub Copilot CLI. It does not say what the occasion is; its settings do.

use serde_json::{Map, Value};

use super::event::{Event, Happening};
use super::tools::{self, Meaning, Table};
use super::{claude, fields};

const TOOLS: Table = &[
    ("bash", Meaning::Shell("command", "")),
    ("write_bash", Meaning::Types("input")),
    ("view", Meaning::Searches("path", "")),
    ("create", Meaning::Writes(&["path"])),
    ("edit", Meaning::Writes(&["path"])),
    ("str_replace", Meaning::Writes(&["path"])),
    ("str_replace_editor", Meaning::Writes(&["path"])),
    ("insert", Meaning::Writes(&["path"])),
    ("apply_patch", Meaning::Patches("patch")),
    ("grep", Meaning::Searches("paths", "glob")),
    ("rg", Meaning::Searches("paths", "glob")),
    ("glob", Meaning::Searches("paths", "pattern")),
    ("web_fetch", Meaning::Fetches("url")),
    ("web_search", Meaning::AsksProvider("api.githubcopilot.com")),
    ("show_file", Meaning::Reads("path")),
    ("read_bash", Meaning::Nothing),
    ("stop_bash", Meaning::Nothing),
    ("list_bash", Meaning::Nothing),
    ("ask_user", Meaning::Nothing),
    ("exit_plan_mode", Meaning::Nothing),
    ("fetch_copilot_cli_documentation", Meaning::Nothing),
    ("list_agents", Meaning::Nothing),
    ("read_agent", Meaning::Nothing),
    ("report_intent", Meaning::Nothing),
    ("session_store_sql", Meaning::Nothing),
    ("skill", Meaning::Nothing),
    ("sql", Meaning::Nothing),
    ("task", Meaning::Nothing),
    ("task_complete", Meaning::Nothing),
    ("update_todo", Meaning::Nothing),
    ("write_agent", Meaning::Nothing),
];

/// Understands an event.
pub fn read(event: Option<&str>, told: &Map<String, Value>) -> Result<Event, String> {
    if told.contains_key("hook_event_name") {
        return claude::read_as("copilot", TOOLS, event, told);
    }
    let name = match fields::optional(told, "hookName")? {
        Some(name) => name,
        None => event.ok_or("the occasion is not said: `substrate hook copilot EVENT`")?,
    };
    let call = || {
        let tool = fields::text(told, "toolName")?;
        let arguments = if told.contains_key("toolArgs") {
            "toolArgs"
        } else {
            "toolInput"
        };
        let input = fields::object(told, arguments)?;
        tools::call("copilot", TOOLS, tool, input)
    };
    let failed = || {
        let result = told.get("toolResult");
        result.is_some_and(|result| result["resultType"] != "success")
    };
    let happening = match name {
        "postToolUse" | "postToolUseFailure" => Happening::After {
            call: call()?,
            failed: failed() || name == "postToolUseFailure",
        },
        _ if name == "preToolUse" || told.contains_key("toolName") => Happening::Before(call()?),
        _ => Happening::Told(claude::word(name), claude::detail(told)),
    };
    Ok(Event {
        name: name.to_owned(),
        happening,
        session: fields::name(told, "sessionId"),
        call: fields::name(told, "toolCallId"),
        agent: None,
        cwd: fields::directory(told, "cwd")?,
    })
}
