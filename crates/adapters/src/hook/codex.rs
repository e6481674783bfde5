//! Codex: events in Claude's form.

use serde_json::{Map, Value};

use substrate_command::Effect;

use super::event::{Deed, Event, Happening};
use super::tools::{Meaning, Table};
use super::{claude, patch};

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
    let mut event = claude::read_as("codex", TOOLS, event, told)?;
    if let Happening::Before(call) | Happening::After { call, .. } = &mut event.happening
        && let Deed::Line { text, itself, .. } = &mut call.deed
    {
        *itself = patched(&String::from_utf8_lossy(text));
    }
    Ok(event)
}

/// The program that Codex carries out itself where it stands in a line.
const PATCHERS: [&str; 2] = ["apply_patch", "applypatch"];

/// What a line does that Codex takes for a patch. One whose files cannot be seen may change any.
fn patched(line: &str) -> Option<(Vec<Effect>, bool)> {
    let is_one =
        PATCHERS.iter().any(|name| line.contains(name)) || line.contains("*** Begin Patch");
    is_one.then(|| match patch::effects(line) {
        Ok(effects) => (effects, true),
        Err(_) => (Vec::new(), false),
    })
}
