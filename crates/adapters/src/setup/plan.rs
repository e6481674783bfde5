//! What is written for each client. All of it is data: names of occasions, and what stands below them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use substrate_broker::Home;

use super::document::Want;
use crate::client::Client;

/// For whom a client is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// The user, everywhere.
    User,
    /// One project.
    Project,
}

impl Scope {
    /// Its word in records.
    pub fn word(self) -> &'static str {
        match self {
            Scope::User => "user",
            Scope::Project => "project",
        }
    }
}

/// Where everything lies.
#[derive(Debug, Clone)]
pub struct Program {
    /// Our program.
    pub path: PathBuf,
    /// Our home.
    pub home: Home,
}

/// What is to stand in which files.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The client.
    pub client: Client,
    /// For whom.
    pub scope: Scope,
    /// The directory of the user's settings for it, or the project.
    pub root: PathBuf,
    /// Settings files.
    pub files: Vec<Wanted>,
    /// Links in our home that the settings name.
    pub links: Vec<Link>,
    /// What a person has to know or to do.
    pub notes: Vec<&'static str>,
}

/// What is to stand in one file.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The file.
    pub path: PathBuf,
    /// What.
    pub wants: Vec<Want>,
}

/// A link.
#[derive(Debug, Clone)]
pub struct Link {
    /// Where it is.
    pub path: PathBuf,
    /// Where it leads.
    pub target: PathBuf,
}

/// How long a client waits for a hook of ours, in seconds. Ours answers in milliseconds and gives up long
/// before: most clients go on when the time is over.
const PATIENCE: u32 = 30;

impl Program {
    /// The command that a client starts as its hook. It names our home where that is not the usual one.
    pub fn hook(&self, client: Client, occasion: Option<&str>) -> String {
        let words = [
            self.path.as_os_str(),
            "hook".as_ref(),
            client.name().as_ref(),
        ];
        let words: Vec<_> = words
            .into_iter()
            .chain(occasion.map(AsRef::as_ref))
            .collect();
        let command = substrate_text::command_line(&words);
        let home = match self.has_usual_home() {
            true => String::new(),
            false => {
                let path = substrate_text::command_line(&[&self.home.path]);
                format!("SUBSTRATE_HOME={} ", path.to_string_lossy())
            }
        };
        format!("{home}{}", command.to_string_lossy())
    }

    fn has_usual_home(&self) -> bool {
        self.home.path == self.home.user.join(".substrate")
    }

    /// The name under which Claude Code starts every line.
    pub fn claude_shell(&self) -> PathBuf {
        self.home.path.join("doors").join(CLAUDE_SHELL)
    }
}

/// The name of the door that stands in front of Claude Code's shell.
pub const CLAUDE_SHELL: &str = "claude-shell";

/// Where a client looks for its user's settings: it goes by variables, as this does.
pub fn settings_directory(
    client: Client,
    home: &Path,
    variable: impl Fn(&str) -> Option<OsString>,
) -> PathBuf {
    let (name, below, usual) = match client {
        Client::Claude => ("CLAUDE_CONFIG_DIR", "", ".claude"),
        Client::Codex => ("CODEX_HOME", "", ".codex"),
        Client::Gemini => ("", "", ".gemini"),
        Client::Cursor => ("", "", ".cursor"),
        Client::Opencode => ("XDG_CONFIG_HOME", "opencode", ".config/opencode"),
        Client::Copilot => ("COPILOT_HOME", "", ".copilot"),
    };
    let named = variable(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    named.map_or_else(|| home.join(usual), |path| path.join(below))
}

/// What setting a client up takes. `root` is the directory of the user's settings for it, or the project.
pub fn plan(client: Client, scope: Scope, root: &Path, program: &Program) -> Plan {
    let mut plan = Plan {
        client,
        scope,
        root: root.to_owned(),
        files: Vec::new(),
        links: Vec::new(),
        notes: Vec::new(),
    };
    match client {
        Client::Claude => claude(&mut plan, program),
        Client::Codex => codex(&mut plan, program),
        Client::Gemini => gemini(&mut plan, program),
        Client::Cursor => cursor(&mut plan, program),
        Client::Opencode => opencode(&mut plan, program),
        Client::Copilot => copilot(&mut plan, program),
    }
    plan
}

impl Plan {
    /// Wants this in a file of the user's settings, or in one of the project.
    fn file(&mut self, user: &str, project: &str, wants: Vec<Want>) {
        let path = self.root.join(match self.scope {
            Scope::User => user,
            Scope::Project => project,
        });
        self.files.push(Wanted { path, wants });
    }
}

fn names(all: &[&str]) -> Vec<String> {
    all.iter().map(|name| (*name).to_owned()).collect()
}

/// One element for each occasion, below `hooks`.
fn hooks(occasions: &[&str], element: impl Fn(&str) -> Value) -> Vec<Want> {
    let want = |occasion: &&str| Want::Element(names(&["hooks", occasion]), element(occasion));
    occasions.iter().map(want).collect()
}

fn claude(plan: &mut Plan, program: &Program) {
    const TOOLS: [&str; 3] = ["PreToolUse", "PostToolUse", "PostToolUseFailure"];
    const OTHERS: [&str; 7] = [
        "SessionStart",
        "SessionEnd",
        "UserPromptSubmit",
        "Stop",
        "SubagentStart",
        "SubagentStop",
        "PreCompact",
    ];
    let command = program.hook(Client::Claude, None);
    let hook = json!([{ "type": "command", "command": command, "timeout": PATIENCE }]);
    let mut wants = hooks(&TOOLS, |_| json!({ "matcher": "*", "hooks": hook }));
    wants.extend(hooks(&OTHERS, |_| json!({ "hooks": hook })));
    let door = program.claude_shell();
    let shell = door.to_string_lossy().into_owned();
    wants.push(Want::Field(
        names(&["env", "CLAUDE_CODE_SHELL_PREFIX"]),
        json!(shell),
    ));
    if !program.has_usual_home() {
        let home = program.home.path.to_string_lossy().into_owned();
        wants.push(Want::Field(names(&["env", "SUBSTRATE_HOME"]), json!(home)));
    }
    plan.links.push(Link {
        path: door,
        target: program.path.clone(),
    });
    // The settings of a project that are its user's own: the command names a file of this machine.
    plan.file("settings.json", ".claude/settings.local.json", wants);
}

fn codex(plan: &mut Plan, program: &Program) {
    const TOOLS: [&str; 2] = ["PreToolUse", "PostToolUse"];
    const OTHERS: [&str; 3] = ["SessionStart", "UserPromptSubmit", "Stop"];
    let command = program.hook(Client::Codex, None);
    let hook = json!([{ "type": "command", "command": command, "timeout": PATIENCE }]);
    let mut wants = hooks(&TOOLS, |_| json!({ "matcher": ".*", "hooks": hook }));
    wants.extend(hooks(&OTHERS, |_| json!({ "hooks": hook })));
    plan.file("hooks.json", ".codex/hooks.json", wants);
    plan.notes.push("Codex passes over hooks that nobody has trusted, without a word: start `codex`, enter `/hooks`, and trust these");
}

fn gemini(plan: &mut Plan, program: &Program) {
    const TOOLS: [&str; 2] = ["BeforeTool", "AfterTool"];
    const OTHERS: [&str; 5] = [
        "SessionStart",
        "SessionEnd",
        "BeforeAgent",
        "AfterAgent",
        "PreCompress",
    ];
    let command = program.hook(Client::Gemini, None);
    let hook = json!([{
        "type": "command", "name": "substrate", "command": command, "timeout": PATIENCE * 1000,
    }]);
    let mut wants = hooks(&TOOLS, |_| json!({ "matcher": ".*", "hooks": hook }));
    wants.extend(hooks(&OTHERS, |_| json!({ "hooks": hook })));
    plan.file("settings.json", ".gemini/settings.json", wants);
    if plan.scope == Scope::Project {
        plan.notes
            .push("Gemini CLI heeds the settings of a project only where the folder is trusted");
    }
}

fn cursor(plan: &mut Plan, program: &Program) {
    const BEFORE: [&str; 4] = [
        "preToolUse",
        "beforeShellExecution",
        "beforeMCPExecution",
        "beforeReadFile",
    ];
    const OTHERS: [&str; 8] = [
        "postToolUse",
        "postToolUseFailure",
        "sessionStart",
        "sessionEnd",
        "beforeSubmitPrompt",
        "subagentStart",
        "subagentStop",
        "stop",
    ];
    let command = program.hook(Client::Cursor, None);
    let mut wants = vec![Want::Field(names(&["version"]), json!(1))];
    wants.extend(hooks(
        &BEFORE,
        |_| json!({ "command": command, "timeout": PATIENCE, "failClosed": true }),
    ));
    wants.extend(hooks(
        &OTHERS,
        |_| json!({ "command": command, "timeout": PATIENCE }),
    ));
    plan.file("hooks.json", ".cursor/hooks.json", wants);
}

fn opencode(plan: &mut Plan, program: &Program) {
    let shell = program.path.to_string_lossy().into_owned();
    let want = Want::Field(names(&["shell"]), json!(shell));
    plan.file("opencode.json", "opencode.json", vec![want]);
    plan.notes.push("OpenCode has no hooks that start a program: its shell goes through Substrate, its own tools (write, edit, webfetch) do not; its `permission` settings and a world hold those");
}

fn copilot(plan: &mut Plan, program: &Program) {
    const OCCASIONS: [&str; 7] = [
        "preToolUse",
        "postToolUse",
        "sessionStart",
        "sessionEnd",
        "userPromptSubmitted",
        "agentStop",
        "subagentStop",
    ];
    let mut wants = vec![Want::Field(names(&["version"]), json!(1))];
    wants.extend(hooks(&OCCASIONS, |occasion| {
        let command = program.hook(Client::Copilot, Some(occasion));
        json!({ "type": "command", "bash": command, "timeoutSec": PATIENCE })
    }));
    plan.file(
        "hooks/substrate.json",
        ".github/hooks/substrate.json",
        wants,
    );
    if plan.scope == Scope::Project {
        plan.notes.push(
            "Copilot passes over the hooks of a folder that nobody has trusted, without a word",
        );
    }
}
