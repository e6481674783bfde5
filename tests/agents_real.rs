//! The clients of agents themselves, run by `substrate agent run` in a world, talking through the gate to a
//! scripted model: the work is done, the forbidden is refused, the key stays outside, every token is counted.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use substrate_model_script::{Answer, Options, Script, Server, Usage};

use crate::common::{Sandbox, script, skip};
use crate::real_agents::program;

const KEY: &str = "sk-the-real-one-9e1f44";

/// What each answer says to have cost.
const COSTS: [Usage; 3] = [
    Usage {
        input: 1000,
        output: 10,
    },
    Usage {
        input: 2000,
        output: 20,
    },
    Usage {
        input: 3000,
        output: 30,
    },
];

fn answers() -> Vec<Answer> {
    let all = [
        Answer::shell("echo made-by-agent > made.txt && env > environment.txt"),
        Answer::shell("sudo touch forbidden.txt"),
        Answer::text("all done"),
    ];
    let with = |(answer, usage)| Answer {
        usage: Some(usage),
        ..answer
    };
    all.into_iter().zip(COSTS).map(with).collect()
}

/// How each client is called, with what it needs to know of the model.
fn words(client: &str) -> &'static [&'static str] {
    match client {
        "claude" => &["--permission-mode", "bypassPermissions"],
        "codex" => &["-m", "gpt-5.1-codex"],
        "gemini" => &["-m", "gemini-2.5-flash"],
        "opencode" => &["--model", "anthropic/claude-sonnet-4-5"],
        _ => &[],
    }
}

fn variables(client: &str, url: &str) -> Vec<(&'static str, String)> {
    let key = KEY.to_owned();
    match client {
        "claude" => vec![
            ("ANTHROPIC_API_KEY", key),
            ("ANTHROPIC_BASE_URL", url.to_owned()),
            ("IS_SANDBOX", "1".to_owned()),
        ],
        "codex" => vec![
            ("OPENAI_API_KEY", key),
            ("OPENAI_BASE_URL", format!("{url}/v1")),
        ],
        "gemini" => vec![
            ("GEMINI_API_KEY", key),
            ("GOOGLE_GEMINI_BASE_URL", url.to_owned()),
            ("GEMINI_CLI_TRUST_WORKSPACE", "true".to_owned()),
        ],
        "opencode" => vec![
            ("ANTHROPIC_API_KEY", key),
            ("ANTHROPIC_BASE_URL", url.to_owned()),
            ("OPENCODE_DISABLE_MODELS_FETCH", "1".to_owned()),
            ("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1".to_owned()),
        ],
        _ => vec![
            ("COPILOT_PROVIDER_API_KEY", key),
            ("COPILOT_PROVIDER_BASE_URL", format!("{url}/v1")),
            ("COPILOT_MODEL", "scripted".to_owned()),
        ],
    }
}

/// Puts a client on a `PATH` of its own and gives it what it asks for at its first start.
fn install(client: &str, found: &Path, sandbox: &Sandbox) -> PathBuf {
    let bin = sandbox.project().join("bin");
    fs::create_dir(&bin).unwrap();
    let runner = if client == "gemini" { "node " } else { "" };
    let text = format!("#!/bin/sh\nexec {runner}'{}' \"$@\"\n", found.display());
    script(&bin.join(client), &text);
    if client == "gemini" {
        let home = sandbox.home().parent().unwrap().join(".gemini");
        fs::create_dir(&home).unwrap();
        let settings = json!({"security": {"auth": {"selectedType": "gemini-api-key"}}});
        fs::write(home.join("settings.json"), settings.to_string()).unwrap();
    }
    bin
}

/// Has a client work and looks at what became of it.
fn works_in_a_world(client: &'static str) {
    let test = format!("{client}_works_in_a_world");
    let Some(found) = program(client) else {
        return skip(
            &test,
            &format!("{client} is not here; scripts/fetch-agents fetches it"),
        );
    };
    let place = found.ancestors().nth(2).unwrap();
    let policy = format!(
        "mode: enforce\nfs: {{ write: ['$PROJECT/**'], share: ['{}'], outside: allow }}\n\
         net: {{ allowed: ['localhost:*', '127.0.0.1:*'], unlisted: allow }}\n\
         commands: {{ denied: ['sudo *'] }}\n",
        place.parent().unwrap_or(place).display()
    );
    let sandbox = Sandbox::with_policy(&policy);
    let server = Server::start(Script::of(answers()), &Options::default()).unwrap();
    let bin = install(client, &found, &sandbox);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut command = sandbox.substrate();
    command
        .args([
            "agent",
            "run",
            "--policy",
            "test",
            "--timeout",
            "120s",
            "-p",
            "go",
            "--json",
            client,
        ])
        .args(words(client))
        .env("PATH", path)
        .env("SHELL", "/bin/bash")
        .envs(variables(client, &server.url()));
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let end: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{client}: {errors}"));
    assert_eq!(end["outcome"], "completed", "{client}: {end:#} {errors}");
    assert_eq!(end["key"], "outside");
    look_at_the_project(client, &sandbox, &end);
    look_at_the_record(client, &sandbox, &end);
    look_at_the_tokens(client, &server, &end);
}

fn look_at_the_project(client: &str, sandbox: &Sandbox, end: &Value) {
    let project = sandbox.project();
    let made = fs::read_to_string(project.join("made.txt")).unwrap_or_default();
    assert_eq!(made, "made-by-agent\n", "{client}: {end:#}");
    assert!(!project.join("forbidden.txt").exists(), "{client}");
    let environment = fs::read_to_string(project.join("environment.txt")).unwrap();
    assert!(!environment.contains(KEY), "{client}: {environment}");
    let mut created: Vec<&str> = end["changes"]["created"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|path| path.as_str()?.rsplit('/').next())
        .collect();
    created.sort_unstable();
    assert_eq!(
        created,
        ["environment.txt", "made.txt"],
        "{client}: its own state is in no diff: {}",
        end["changes"]["created"]
            .as_array()
            .unwrap()
            .iter()
            .find(|path| !path.to_string().contains("/project/"))
            .unwrap_or(&Value::Null)
    );
}

fn look_at_the_record(client: &str, sandbox: &Sandbox, end: &Value) {
    let refused = end["refused"].as_array().unwrap().iter();
    let by_rule = refused.filter(|refusal| refusal["why"] == "commands.denied `sudo *`");
    assert!(by_rule.count() >= 1, "{client}: {end:#}");
    for event in sandbox.trace() {
        assert_eq!(event["agent_id"], client, "{event}");
        assert!(!event.to_string().contains(KEY), "{event}");
    }
}

fn look_at_the_tokens(client: &str, server: &Server, end: &Value) {
    let requests = server.requests();
    let costing: Vec<&Value> = requests
        .iter()
        .filter(|request| request["method"] == "POST")
        .collect();
    // Requests of its own, such as for a title, have no step; they cost what the model makes of their length.
    let steps: Vec<u64> = costing
        .iter()
        .filter_map(|request| request["step"].as_u64())
        .collect();
    let cost = |step: &u64| {
        let usage = COSTS[usize::try_from(*step).unwrap()];
        usage.input + usage.output
    };
    let expected: u64 = steps.iter().map(cost).sum();
    let total = end["usage"]["total"].as_u64().unwrap();
    match steps.len() == costing.len() {
        true => assert_eq!(total, expected, "{client}, to the digit: {end:#}"),
        false => assert!(total > expected, "{client}: {end:#}"),
    }
    assert!(steps.len() >= COSTS.len(), "{client}: {steps:?}");
    assert_eq!(end["usage"]["charged"], 0, "{client}");
    for request in costing {
        assert!(
            request.to_string().contains(KEY),
            "{client}: the gate has put the key in"
        );
        assert!(!request.to_string().contains("substrate-puts"), "{client}");
    }
}

#[test]
fn claude_works_in_a_world() {
    works_in_a_world("claude");
}

#[test]
fn codex_works_in_a_world() {
    works_in_a_world("codex");
}

#[test]
fn gemini_works_in_a_world() {
    works_in_a_world("gemini");
}

#[test]
fn opencode_works_in_a_world() {
    works_in_a_world("opencode");
}

#[test]
fn copilot_works_in_a_world() {
    works_in_a_world("copilot");
}
