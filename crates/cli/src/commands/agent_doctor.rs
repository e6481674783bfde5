//! What `doctor` says of the clients that are set up: whether the settings stand, and whether the very command
//! in them answers when it is started as the client starts it.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use substrate_adapters::Client;
use substrate_adapters::hook::CANARY;
use substrate_adapters::setup::{self, Record, Scope, Standing, Want};
use substrate_broker::Home;
use substrate_sys::bounded::{self, Links};
use substrate_text::visible;

use crate::commands::agent_setup::words;

/// What was found of one setup.
pub enum Found {
    /// It is as it should be.
    Good(String),
    /// It works, with a limit that is named.
    Limited(String),
    /// It does not work.
    Bad(String),
}

/// A client answers for its user at least so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// One line of the report for each setup, as it stands in the project here.
pub fn checks(home: &Home, project: Option<&Path>) -> Vec<Found> {
    match setup::list(home) {
        Ok(records) => records
            .iter()
            .map(|record| check(record, project))
            .collect(),
        Err(error) => vec![Found::Bad(visible(error.to_string().as_bytes()))],
    }
}

fn check(record: &Record, project: Option<&Path>) -> Found {
    let title = setup::title(record.client, record.scope, &record.root);
    let say = |text: &str| visible(format!("{title}: {text}").as_bytes());
    let standing = setup::standing(record);
    if !matches!(standing, Standing::Stands | Standing::Edited(_)) {
        return Found::Bad(say(&words(&standing)));
    }
    if let Err(problem) = canary(record) {
        return Found::Bad(say(&problem));
    }
    let mut remarks: Vec<String> = limits(record, project);
    if let Standing::Edited(_) = standing {
        remarks.insert(0, words(&standing));
    }
    match remarks.is_empty() {
        true => Found::Good(say("set up, and its hook answers")),
        false => Found::Limited(say(&remarks.join("; "))),
    }
}

/// Starts what the settings name, as the client does, with a call that means nothing and has to be answered
/// like any other: an unknown tool is a question or a refusal, and a broken payload is status 2.
fn canary(record: &Record) -> Result<(), String> {
    let commands = commands(record);
    if record.client == Client::Opencode {
        return door(record);
    }
    let Some(command) = commands.first() else {
        return Err("its settings name no hook of ours".to_owned());
    };
    let (status, _, said) = start(command, b"{\"canary\": ")?;
    if status != Some(2) {
        let said = String::from_utf8_lossy(&said).into_owned();
        return Err(format!(
            "`{command}` does not answer as it should (status {status:?}, {said}): the client goes on without it"
        ));
    }
    let (status, answer, said) = start(command, before(record.client).to_string().as_bytes())?;
    let whole = serde_json::from_slice::<Value>(&answer).is_ok_and(|answer| answer.is_object());
    match (status, answer.is_empty(), whole) {
        (Some(0), true, _) | (Some(0), false, true) => Ok(()),
        _ => Err(format!(
            "`{command}` cannot judge: {}",
            String::from_utf8_lossy(&said).trim()
        )),
    }
}

/// The commands that were written as hooks, those before a call first.
fn commands(record: &Record) -> Vec<String> {
    let wants = record.files.iter().flat_map(|written| &written.wants);
    let mut found: Vec<String> = wants
        .filter_map(|want| match want {
            Want::Element(names, value) => Some((names.last()?, value)),
            Want::Field(..) => None,
        })
        .filter(|(name, _)| matches!(name.as_str(), "PreToolUse" | "BeforeTool" | "preToolUse"))
        .filter_map(|(_, value)| {
            let inner = &value["hooks"][0]["command"];
            [inner, &value["command"], &value["bash"]]
                .into_iter()
                .find_map(Value::as_str)
        })
        .map(str::to_owned)
        .collect();
    found.dedup();
    found
}

/// A call of a tool that nobody has.
fn before(client: Client) -> Value {
    match client {
        Client::Gemini => {
            json!({ "hook_event_name": "BeforeTool", "tool_name": CANARY, "tool_input": {} })
        }
        Client::Cursor => {
            json!({ "hook_event_name": "preToolUse", "tool_name": CANARY, "tool_input": {} })
        }
        Client::Copilot => json!({ "toolName": CANARY, "toolArgs": {} }),
        _ => {
            json!({ "hook_event_name": "PreToolUse", "tool_name": CANARY, "tool_input": {} })
        }
    }
}

/// The shell that the settings name has to be there and be us.
fn door(record: &Record) -> Result<(), String> {
    let wants = record.files.iter().flat_map(|written| &written.wants);
    let shell = wants.into_iter().find_map(|want| match want {
        Want::Field(names, value) if names.last().is_some_and(|name| name == "shell") => {
            value.as_str()
        }
        _ => None,
    });
    let Some(shell) = shell else {
        return Err("its settings name no shell of ours".to_owned());
    };
    let ours = std::env::current_exe().ok();
    let same = ours.is_some_and(|ours| real(&ours) == real(Path::new(shell)));
    match same {
        true => Ok(()),
        false => Err(format!(
            "{shell} is not this program: `substrate agent setup` writes it anew"
        )),
    }
}

fn real(path: &Path) -> Option<std::path::PathBuf> {
    substrate_sys::real_path::real_path(path).ok()
}

type Started = (Option<i32>, Vec<u8>, Vec<u8>);

fn start(command: &str, payload: &[u8]) -> Result<Started, String> {
    let failed = |error: std::io::Error| format!("`{command}`: {error}");
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    if let Some(mut input) = child.stdin.take() {
        // It may have heard enough before the end.
        let _ = input.write_all(payload);
    }
    let end = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) => break status,
            None if Instant::now() > end => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("`{command}` does not answer in time"));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    let read = |from: Option<&mut dyn Read>| {
        let mut all = Vec::new();
        from.map(|from| from.take(1 << 20).read_to_end(&mut all));
        all
    };
    let said = read(child.stderr.as_mut().map(|from| from as &mut dyn Read));
    let answer = read(child.stdout.as_mut().map(|from| from as &mut dyn Read));
    Ok((status.code(), answer, said))
}

/// What does not hold though everything is as it was written.
fn limits(record: &Record, project: Option<&Path>) -> Vec<String> {
    let mut found = Vec::new();
    let directory = &record.root;
    match (record.client, record.scope) {
        (Client::Codex, Scope::User)
            if !mentions(&directory.join("config.toml"), "trusted_hash") =>
        {
            found.push("nobody has trusted the hook in Codex (`/hooks`), which passes over it without a word".to_owned());
        }
        (Client::Codex, Scope::Project) => found.push(
            "Codex heeds it only where the project and the hook are trusted (`/hooks`)".to_owned(),
        ),
        (Client::Opencode, _) => {
            found.push("the shell goes through Substrate; OpenCode's own tools do not".to_owned())
        }
        (Client::Copilot, Scope::Project) => {
            found.push("Copilot heeds it only where the folder is trusted".to_owned())
        }
        (Client::Gemini, Scope::Project) => {
            found.push("Gemini CLI heeds it only where the folder is trusted".to_owned())
        }
        _ => {}
    }
    for file in shadows(record, project) {
        let text = bounded::read(&file, Links::Follow, 8 << 20).unwrap_or_default();
        let settings: Value = serde_json::from_slice(&text).unwrap_or_default();
        if settings["disableAllHooks"] == true || settings["allowManagedHooksOnly"] == true {
            found.push(format!("{} switches hooks off", file.display()));
        }
        let prefix = &settings["env"]["CLAUDE_CODE_SHELL_PREFIX"];
        if prefix
            .as_str()
            .is_some_and(|prefix| !prefix.ends_with(setup::CLAUDE_SHELL))
        {
            found.push(format!("{} has another shell prefix", file.display()));
        }
    }
    found
}

/// Files whose settings go before those that were written.
fn shadows(record: &Record, project: Option<&Path>) -> Vec<std::path::PathBuf> {
    if record.client != Client::Claude {
        return Vec::new();
    }
    let mut files = vec!["/etc/claude-code/managed-settings.json".into()];
    if record.scope == Scope::User {
        files.push(record.root.join("settings.json"));
    }
    // What a project says goes before what its user says.
    let own = (record.scope == Scope::Project).then_some(record.root.as_path());
    for project in project.into_iter().chain(own) {
        files.extend(
            [".claude/settings.json", ".claude/settings.local.json"].map(|file| project.join(file)),
        );
    }
    files.sort();
    files.dedup();
    files
}

fn mentions(path: &Path, word: &str) -> bool {
    let text = bounded::read(path, Links::Follow, 8 << 20).unwrap_or_default();
    String::from_utf8_lossy(&text).contains(word)
}
