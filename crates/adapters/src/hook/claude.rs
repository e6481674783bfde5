//! Claude Code. Its form of an event is also that of others.

use serde_json::{Map, Value};

use super::event::{Event, Happening};
use super::fields;
use super::tools::{self, Meaning, Table};

const TOOLS: Table = &[
    ("Bash", Meaning::Shell("command", "")),
    // Watches the output of a line.
    ("Monitor", Meaning::Shell("command", "")),
    ("PowerShell", Meaning::Shell("command", "")),
    ("Write", Meaning::Writes(&["file_path"])),
    ("Edit", Meaning::Writes(&["file_path"])),
    ("MultiEdit", Meaning::Writes(&["file_path"])),
    ("NotebookEdit", Meaning::Writes(&["notebook_path"])),
    ("Read", Meaning::Reads("file_path")),
    ("NotebookRead", Meaning::Reads("notebook_path")),
    ("LS", Meaning::Reads("path")),
    ("Glob", Meaning::Searches("path", "pattern")),
    ("Grep", Meaning::Searches("path", "glob")),
    ("WebFetch", Meaning::Fetches("url")),
    ("WebSearch", Meaning::AsksProvider("api.anthropic.com")),
    ("CronCreate", Meaning::Has("write:schedule")),
    ("EnterWorktree", Meaning::Has("write:git-worktree")),
    ("ExitWorktree", Meaning::Has("delete:git-worktree")),
    ("Agent", Meaning::Nothing),
    ("Task", Meaning::Nothing),
    ("TaskCreate", Meaning::Nothing),
    ("TaskGet", Meaning::Nothing),
    ("TaskList", Meaning::Nothing),
    ("TaskOutput", Meaning::Nothing),
    ("TaskStop", Meaning::Nothing),
    ("TaskUpdate", Meaning::Nothing),
    ("AskUserQuestion", Meaning::Nothing),
    ("BashOutput", Meaning::Nothing),
    ("KillShell", Meaning::Nothing),
    ("CronDelete", Meaning::Nothing),
    ("CronList", Meaning::Nothing),
    ("EnterPlanMode", Meaning::Nothing),
    ("ExitPlanMode", Meaning::Nothing),
    ("ListAgents", Meaning::Nothing),
    ("ReportFindings", Meaning::Nothing),
    ("ScheduleWakeup", Meaning::Nothing),
    ("SendMessage", Meaning::Nothing),
    ("Skill", Meaning::Nothing),
    ("SlashCommand", Meaning::Nothing),
    ("StructuredOutput", Meaning::Nothing),
    ("TodoWrite", Meaning::Nothing),
    ("ToolSearch", Meaning::Nothing),
    ("Workflow", Meaning::Nothing),
];

/// Understands an event.
pub fn read(event: Option<&str>, told: &Map<String, Value>) -> Result<Event, String> {
    read_as("claude", TOOLS, event, told)
}

/// The same for a client that speaks in this form and has other tools.
pub fn read_as(
    client: &str,
    table: Table,
    event: Option<&str>,
    told: &Map<String, Value>,
) -> Result<Event, String> {
    let name = match fields::optional(told, "hook_event_name")? {
        Some(name) => name,
        None => event.ok_or("`hook_event_name` is missing")?,
    };
    let call = || {
        let tool = fields::text(told, "tool_name")?;
        let input = fields::object(told, "tool_input")?;
        match tools::mcp_name(tool) {
            Some((server, tool)) => tools::mcp_call(server, tool, input),
            None => tools::call(client, table, tool, input),
        }
    };
    let happening = match name {
        "PreToolUse" | "PermissionRequest" => Happening::Before(call()?),
        "PostToolUse" | "PostToolUseFailure" => Happening::After {
            call: call()?,
            failed: name == "PostToolUseFailure",
        },
        // Whatever the occasion is called: a tool is about to be called, so it is judged.
        _ if told.contains_key("tool_name") => Happening::Before(call()?),
        _ => Happening::Told(word(name), detail(told)),
    };
    Ok(Event {
        name: name.to_owned(),
        happening,
        session: fields::name(told, "session_id"),
        call: fields::name(told, "tool_use_id"),
        agent: fields::name(told, "agent_id"),
        cwd: fields::directory(told, "cwd")?,
    })
}

/// Our word for an occasion.
pub fn word(event: &str) -> &'static str {
    match event {
        "SessionStart" | "sessionStart" => "session_start",
        "SessionEnd" | "sessionEnd" => "session_end",
        "UserPromptSubmit" | "BeforeAgent" | "beforeSubmitPrompt" | "userPromptSubmitted" => {
            "prompt"
        }
        "Stop" | "AfterAgent" | "stop" | "agentStop" => "turn_end",
        "SubagentStart" | "subagentStart" => "subagent_start",
        "SubagentStop" | "subagentStop" => "subagent_end",
        "PreCompact" | "PreCompress" | "preCompact" => "compact",
        _ => "notification",
    }
}

/// How much of a text the trace holds.
const LONGEST: usize = 4096;

/// What there is to say about an occasion.
pub fn detail(told: &Map<String, Value>) -> Option<String> {
    const KEYS: [&str; 6] = [
        "prompt",
        "reason",
        "source",
        "agent_type",
        "trigger",
        "message",
    ];
    let text = KEYS.iter().find_map(|key| told.get(*key)?.as_str())?;
    Some(text.chars().take(LONGEST).collect())
}
