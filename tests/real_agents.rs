//! The clients of agents themselves, set up by `substrate agent setup` and talking to a scripted model: what the
//! policy forbids does not happen, what it permits does, whatever the tool.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use substrate_model_script::{Answer, Call, Conversation, Options, Script, Server};

use crate::common::{Sandbox, skip};

/// The versions that `scripts/fetch-agents` fetches, and the program in each.
const CLIENTS: [(&str, &str); 5] = [
    ("claude", "claude-2.1.326/package/claude"),
    (
        "codex",
        "codex-0.169.0-linux-x64/package/vendor/x86_64-unknown-linux-musl/bin/codex",
    ),
    ("gemini", "gemini-0.61.0/package/bundle/gemini.js"),
    ("opencode", "opencode-1.18.33/package/bin/opencode"),
    ("copilot", "copilot-1.0.102/package/copilot"),
];

const POLICY: &str = "mode: enforce
world: { enabled: 'off' }
fs: { write: ['$PROJECT/**', '/tmp/**', '$HOME/**'], hide: ['$HOME/secret'] }
net: { allowed: ['allowed.test'], unlisted: deny }
commands: { denied: ['sudo *', 'touch forbidden*'], ask: ['git push *'] }
effects: { denied: ['write:**/forbidden*', 'delete:**/kept*', 'read:**/hidden*'] }
tools: { default: deny }
";

pub fn program(client: &str) -> Option<PathBuf> {
    let cache = std::env::var_os("SUBSTRATE_AGENTS")
        .map(PathBuf::from)
        .or_else(|| {
            let home = std::env::var_os("HOME")?;
            Some(Path::new(&home).join(".cache/substrate-agents"))
        })?;
    let (_, path) = CLIENTS.iter().find(|(name, _)| *name == client)?;
    Some(cache.join(path)).filter(|path| path.exists())
}

/// A client with a home of its own, and the model that it talks to.
struct Rig {
    client: &'static str,
    program: PathBuf,
    sandbox: Sandbox,
    server: Server,
}

impl Rig {
    fn new(
        client: &'static str,
        test: &str,
        answers: impl Fn(&Path) -> Vec<Answer>,
    ) -> Option<Rig> {
        let Some(program) = program(client) else {
            let reason = format!("{client} is not here; scripts/fetch-agents fetches it");
            // They are large and belong to others, so only who says where they are has to have them.
            match std::env::var_os("SUBSTRATE_AGENTS") {
                Some(_) => skip(test, &reason),
                None => substrate_rig::does_not_apply(test, &reason),
            }
            return None;
        };
        let sandbox = Sandbox::with_policy(POLICY);
        let server = Server::start(Script::of(answers(&sandbox.project())), &Options::default());
        let rig = Rig {
            client,
            program,
            server: server.unwrap(),
            sandbox,
        };
        rig.configure();
        Some(rig)
    }

    fn user(&self) -> PathBuf {
        self.sandbox.home().parent().unwrap().to_owned()
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.user().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// What the client needs to talk to the scripted model.
    fn configure(&self) {
        let url = self.server.url();
        match self.client {
            "codex" => self.write(
                ".codex/config.toml",
                &format!("model_provider = \"scripted\"\nmodel = \"gpt-5.1-codex\"\napproval_policy = \"never\"\nsandbox_mode = \"danger-full-access\"\n[model_providers.scripted]\nname = \"scripted\"\nbase_url = \"{url}/v1\"\nwire_api = \"responses\"\nenv_key = \"SCRIPTED_KEY\"\nrequest_max_retries = 0\nstream_max_retries = 0\n[analytics]\nenabled = false\n"),
            ),
            "gemini" => self.write(
                ".gemini/settings.json",
                "{\"security\":{\"auth\":{\"selectedType\":\"gemini-api-key\"}}}",
            ),
            "opencode" => self.write(
                ".config/opencode/opencode.json",
                &json!({
                    "model": "scripted/m", "small_model": "scripted/m",
                    "provider": { "scripted": {
                        "npm": "@ai-sdk/openai-compatible", "name": "scripted",
                        "options": { "baseURL": format!("{url}/v1"), "apiKey": "x" },
                        "models": { "m": { "name": "m" } },
                    } },
                })
                .to_string(),
            ),
            _ => {}
        }
    }

    fn setup(&self) {
        let output = self.sandbox.run(["agent", "setup", self.client, "--yes"]);
        assert!(output.status.success(), "{output:?}");
    }

    fn run(&self) -> Output {
        self.run_with(&["-p", "go", "--permission-mode", "bypassPermissions"])
    }

    /// Runs it; the words are for Claude Code.
    fn run_with(&self, words: &[&str]) -> Output {
        let url = self.server.url();
        let mut command = match self.client {
            "gemini" => {
                let mut node = Command::new("node");
                node.arg(&self.program);
                node
            }
            _ => Command::new(&self.program),
        };
        self.sandbox.prepare(&mut command);
        command
            .stdin(Stdio::null())
            .env("HOME", self.user())
            .env("SHELL", "/bin/bash")
            .env("NO_PROXY", "127.0.0.1");
        match self.client {
            "claude" => command
                .args(words)
                .env("ANTHROPIC_BASE_URL", &url)
                .env("ANTHROPIC_API_KEY", "x")
                .env("DISABLE_AUTOUPDATER", "1")
                .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
                .env("IS_SANDBOX", "1"),
            "codex" => command
                .args([
                    "exec",
                    "--dangerously-bypass-hook-trust",
                    "--skip-git-repo-check",
                    "go",
                ])
                .env("SCRIPTED_KEY", "x"),
            "gemini" => command
                .args(["-m", "gemini-2.5-flash", "-p", "go", "--yolo"])
                .env("GEMINI_API_KEY", "x")
                .env("GOOGLE_GEMINI_BASE_URL", &url)
                .env("GEMINI_CLI_TRUST_WORKSPACE", "true"),
            "opencode" => command
                .args(["run", "go"])
                .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
                .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
                .env("OPENCODE_DISABLE_LSP_DOWNLOAD", "1")
                .env("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
            _ => command
                .args(["-p", "go", "--allow-all-tools"])
                .env("COPILOT_PROVIDER_BASE_URL", format!("{url}/v1"))
                .env("COPILOT_PROVIDER_API_KEY", "x")
                .env("COPILOT_MODEL", "scripted")
                .env("COPILOT_OFFLINE", "true")
                .env("COPILOT_AUTO_UPDATE", "false"),
        };
        command.output().unwrap()
    }

    /// What every request of the client held, as one text: the results of its tools are in it.
    fn heard(&self) -> String {
        let requests = self.server.requests();
        requests.last().map(Value::to_string).unwrap_or_default()
    }
}

/// Writes a file by a client's own tool.
fn write(client: &str, path: &Path) -> Answer {
    let (tool, input) = match client {
        "claude" => ("Write", json!({ "file_path": path, "content": "x" })),
        "codex" => {
            let patch = format!(
                "*** Begin Patch\n*** Add File: {}\n+x\n*** End Patch",
                path.display()
            );
            return Answer::shell(&format!("apply_patch <<'EOF'\n{patch}\nEOF"));
        }
        "gemini" => ("write_file", json!({ "file_path": path, "content": "x" })),
        "opencode" => ("write", json!({ "filePath": path, "content": "x" })),
        _ => ("create", json!({ "path": path, "file_text": "x" })),
    };
    Answer::call(tool, input)
}

/// Reads a file by a client's own tool, where it has one.
fn read(client: &str, path: &Path) -> Answer {
    let (tool, input) = match client {
        "claude" => ("Read", json!({ "file_path": path })),
        "codex" => return Answer::shell(&format!("cat {}", path.display())),
        "gemini" => ("read_file", json!({ "file_path": path })),
        "opencode" => ("read", json!({ "filePath": path })),
        _ => ("view", json!({ "path": path })),
    };
    Answer::call(tool, input)
}

fn answers(client: &str, project: &Path) -> Vec<Answer> {
    let mut all = Vec::new();
    for number in 0..4 {
        all.push(Answer::shell(&format!("touch allowed-{number}")));
        all.push(Answer::shell(&format!("touch forbidden-{number}")));
        all.push(write(
            client,
            &project.join(format!("allowed-file-{number}")),
        ));
        all.push(write(
            client,
            &project.join(format!("forbidden-file-{number}")),
        ));
    }
    all.extend([
        Answer::shell("sudo touch forbidden-as-root"),
        Answer::shell("sh -c 'touch forbidden-nested'"),
        Answer::shell("x=forbidden-by-variable; touch $x"),
        Answer::shell("rm -f kept"),
        read(client, &project.join("hidden")),
        read(client, &project.join("shown")),
        Answer::shell("touch allowed-at-the-end"),
    ]);
    all
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Runs the whole script and compares what is there afterwards. `own_tools`: the client's own tools can be
/// held by its settings.
fn what_is_forbidden_does_not_happen(client: &'static str, own_tools: bool) {
    let test = format!("what_is_forbidden_does_not_happen({client})");
    let Some(rig) = Rig::new(client, &test, |project| answers(client, project)) else {
        return;
    };
    let project = rig.sandbox.project();
    for (name, text) in [
        ("kept", "kept"),
        ("hidden", "the-hidden-text"),
        ("shown", "the-shown-text"),
    ] {
        fs::write(project.join(name), text).unwrap();
    }
    rig.setup();
    let output = rig.run();
    let names = names(&project);
    let shown = format!("{names:?}\n{}", String::from_utf8_lossy(&output.stderr));
    for number in 0..4 {
        for kind in ["", "file-"] {
            assert!(
                names.contains(&format!("allowed-{kind}{number}")),
                "{shown}"
            );
            let held = kind.is_empty() || own_tools;
            assert_eq!(
                names.contains(&format!("forbidden-{kind}{number}")),
                !held,
                "{shown}"
            );
        }
    }
    for name in [
        "forbidden-as-root",
        "forbidden-nested",
        "forbidden-by-variable",
    ] {
        assert!(!names.contains(&name.to_owned()), "{shown}");
    }
    assert!(names.contains(&"kept".to_owned()), "{shown}");
    assert!(names.contains(&"allowed-at-the-end".to_owned()), "{shown}");
    let heard = rig.heard();
    assert!(heard.contains("the-shown-text"));
    assert_eq!(heard.contains("the-hidden-text"), !own_tools, "{heard}");
    assert!(heard.contains("denied by policy 'test'"), "{heard}");

    // One session of the trace holds the conversation.
    let events = rig.sandbox.trace();
    assert!(!events.is_empty());
    let refused = events
        .iter()
        .filter(|event| event["outcome"] == "deny")
        .count();
    assert!(refused >= if own_tools { 12 } else { 7 }, "{refused}");
    if own_tools {
        let sessions: std::collections::BTreeSet<&str> = events
            .iter()
            .filter_map(|event| event["session_id"].as_str())
            .collect();
        assert_eq!(sessions.len(), 1, "{sessions:?}");
    }
}

#[test]
fn claude_is_held() {
    what_is_forbidden_does_not_happen("claude", true);
}

#[test]
fn codex_is_held() {
    what_is_forbidden_does_not_happen("codex", true);
}

#[test]
fn gemini_is_held() {
    what_is_forbidden_does_not_happen("gemini", true);
}

#[test]
fn copilot_is_held() {
    what_is_forbidden_does_not_happen("copilot", true);
}

/// Its shell goes through us; its own tools are for its permissions and for a world, as docs/adapters.md says.
#[test]
fn the_shell_of_opencode_is_held() {
    what_is_forbidden_does_not_happen("opencode", false);
}

/// The hook is gone, fails or says nonsense: with the shell prefix no line runs unguarded, and the docs say what
/// becomes of the other tools.
#[test]
fn without_its_hook_the_door_of_claude_still_stands() {
    for broken in [
        "/nonexistent/substrate hook claude",
        "exit 1",
        "echo '{'",
        "sleep 60",
    ] {
        let test = "without_its_hook_the_door_of_claude_still_stands";
        let answers = |_: &Path| {
            vec![
                Answer::shell("touch forbidden-0"),
                Answer::shell("touch allowed-0"),
            ]
        };
        let Some(rig) = Rig::new("claude", test, answers) else {
            return;
        };
        rig.setup();
        let path = rig.user().join(".claude/settings.json");
        let mut settings: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        settings["hooks"] = json!({ "PreToolUse": [{ "matcher": "*", "hooks": [
            { "type": "command", "command": broken, "timeout": 1 }
        ] }] });
        fs::write(&path, settings.to_string()).unwrap();
        rig.run();
        let names = names(&rig.sandbox.project());
        assert!(
            !names.contains(&"forbidden-0".to_owned()),
            "{broken}: {names:?}"
        );
    }
}

/// Without the door a line that has to be isolated is rewritten, and the client runs it so.
#[test]
fn lines_are_rewritten_where_clients_let_it() {
    for client in ["claude", "codex", "gemini", "copilot"] {
        let test = format!("lines_are_rewritten_where_clients_let_it({client})");
        let answers = |_: &Path| {
            vec![
                Answer::shell("touch isolated-0"),
                Answer::text("that is all"),
            ]
        };
        let Some(rig) = Rig::new(client, &test, answers) else {
            continue;
        };
        rig.sandbox.policy("test", "id: test\nname: T\nmode: enforce\nworld: { enabled: 'off', on_finish: keep }\nfs: { write: ['$PROJECT/**', '/tmp/**', '$HOME/**'] }\ncommands: { isolated: ['touch isolated*'] }\n");
        let world = rig.sandbox.run(["run", "--isolated", "--", "true"]);
        if !world.status.success() {
            skip(&test, "no worlds here");
            return;
        }
        rig.setup();
        if client == "claude" {
            let path = rig.user().join(".claude/settings.json");
            let mut settings: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            settings["env"]
                .as_object_mut()
                .unwrap()
                .remove("CLAUDE_CODE_SHELL_PREFIX");
            fs::write(&path, settings.to_string()).unwrap();
        }
        let output = rig.run();
        let names = names(&rig.sandbox.project());
        assert!(
            !names.contains(&"isolated-0".to_owned()),
            "{client}: {output:?}"
        );
        let place = |event: &Value| {
            event["event_type"] == "command_complete" && event["place"] == "isolated"
        };
        let ran = rig.sandbox.trace().iter().any(place);
        assert!(ran, "{client}: {}\n{output:?}", rig.heard());
    }
}

/// Several calls in one turn are judged one by one.
#[test]
fn calls_side_by_side_are_judged_one_by_one() {
    let call = |line: &str| Call {
        tool: "Bash".to_owned(),
        input: json!({ "command": line, "description": "x" }),
        namespace: None,
    };
    let answers = |_: &Path| {
        let calls = (0..6).map(|number| match number % 2 {
            0 => call(&format!("touch allowed-{number}")),
            _ => call(&format!("touch forbidden-{number}")),
        });
        vec![Answer {
            calls: calls.collect(),
            ..Answer::default()
        }]
    };
    let Some(rig) = Rig::new(
        "claude",
        "calls_side_by_side_are_judged_one_by_one",
        answers,
    ) else {
        return;
    };
    rig.setup();
    rig.run();
    let names = names(&rig.sandbox.project());
    let begun = |with: &str| names.iter().filter(|name| name.starts_with(with)).count();
    assert_eq!((begun("allowed"), begun("forbidden")), (3, 0), "{names:?}");
}

/// What the client asks its user stays as it is: a line that the policy permits or has rewritten is not thereby
/// approved, and without a user Claude Code runs none that it would have asked about.
#[test]
fn what_claude_asks_itself_it_still_asks() {
    let answers = |_: &Path| {
        vec![
            Answer::shell("touch isolated-0"),
            Answer::shell("touch allowed-0"),
        ]
    };
    let Some(rig) = Rig::new("claude", "what_claude_asks_itself_it_still_asks", answers) else {
        return;
    };
    rig.sandbox.policy("test", "id: test\nname: T\nmode: enforce\nworld: { enabled: 'off', on_finish: apply }\nfs: { write: ['/**'] }\ncommands: { isolated: ['touch isolated*'] }\n");
    rig.setup();
    let path = rig.user().join(".claude/settings.json");
    let mut settings: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    settings["env"]
        .as_object_mut()
        .unwrap()
        .remove("CLAUDE_CODE_SHELL_PREFIX");
    settings["permissions"] = json!({ "defaultMode": "default" });
    fs::write(&path, settings.to_string()).unwrap();
    rig.run_with(&["-p", "go"]);
    let made = names(&rig.sandbox.project());
    assert!(made.iter().all(|name| name.starts_with('.')), "{made:?}");
}

/// A sub-agent is asked about like its parent, and its calls say whose they are.
#[test]
fn calls_of_sub_agents_are_judged_too() {
    let Some(mut rig) = Rig::new("claude", "calls_of_sub_agents_are_judged_too", |_| {
        Vec::new()
    }) else {
        return;
    };
    let child = Conversation {
        prompt: "the work of a child".to_owned(),
        answers: vec![
            Answer::shell("touch forbidden-0"),
            write("claude", &rig.sandbox.project().join("forbidden-1")),
            Answer::shell("touch allowed-0"),
            Answer::text("the child is done"),
        ],
    };
    let task = json!({ "description": "d", "prompt": "the work of a child", "subagent_type": "general-purpose" });
    let parent = Conversation {
        prompt: String::new(),
        answers: vec![Answer::call("Agent", task), Answer::text("that is all")],
    };
    let script = Script {
        conversations: vec![child, parent],
    };
    rig.server = Server::start(script, &Options::default()).unwrap();
    rig.configure();
    rig.setup();
    rig.run();
    let names = names(&rig.sandbox.project());
    assert!(names.contains(&"allowed-0".to_owned()), "{names:?}");
    assert!(
        !names.iter().any(|name| name.starts_with("forbidden")),
        "{names:?}"
    );
    let refused = rig.sandbox.events("policy_violation");
    assert_eq!(refused.len(), 2);
    assert!(
        refused
            .iter()
            .all(|event| event["client"]["agent"].is_string()),
        "{refused:?}"
    );
}
