//! Codex: events in Claude's form.

use serde_json::{Map, Value};

use super::claude;
use super::event::Event;
use super::tools::{Meaning, Table};

const TOOLS: Table = &[
    ("Bash", Meaning::Shell("command", "workdir")),
    ("exec_command", Meaning::Shell("cmd", "workdir")),
    ("shell", Meaning::Shell("command", "workdir")),
    ("shell_command", Meaning::Shell("command", "workdir")),
    (
        "local_shell",
        Meaning::Shell("command", "working_directory"),
    ),
    ("write_stdin", Meaning::Types("chars")),
    ("apply_patch", Meaning::Patches("command")),
    ("view_image", Meaning::Reads("path")),
    ("web_search", Meaning::AsksProvider("api.openai.com")),
    ("update_plan", Meaning::Nothing),
    ("request_user_input", Meaning::Nothing),
    ("spawn_agent", Meaning::Nothing),
    ("send_input", Meaning::Nothing),
    ("resume_agent", Meaning::Nothing),
    ("wait_agent", Meaning::Nothing),
    ("wait", Meaning::Nothing),
    ("close_agent", Meaning::Nothing),
    ("get_goal", Meaning::Nothing),
    ("create_goal", Meaning::Nothing),
    ("update_goal", Meaning::Nothing),
];

/// Understands an event.
pub fn read(event: Option<&str>, told: &Map<String, Value>) -> Result<Event, String> {
    claude::read_as("codex", TOOLS, event, told)
}
