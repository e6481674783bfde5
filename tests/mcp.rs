//! `substrate mcp` as clients start it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::Sandbox;

const POLICY: &str = "mode: enforce\nworld: { enabled: 'off', on_finish: keep }\nfs: { write: ['$PROJECT/**'] }\ncommands: { denied: ['sudo *'] }\n";

struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn start(sandbox: &Sandbox) -> Client {
        let mut child = sandbox
            .substrate()
            .arg("mcp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Client {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn say(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.input
            .as_mut()
            .unwrap()
            .write_all(line.as_bytes())
            .unwrap();
    }

    fn hear(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}"))
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.say(&json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }));
        let answer = self.hear();
        assert_eq!(
            (&answer["jsonrpc"], &answer["id"]),
            (&json!("2.0"), &json!(7))
        );
        answer
    }

    /// The text that a tool answers, and whether it failed.
    fn call(&mut self, tool: &str, arguments: Value) -> (String, bool) {
        let answer = self.ask(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        );
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str();
        let text = text.unwrap_or_else(|| panic!("{answer}")).to_owned();
        (text, result["isError"] == true)
    }

    fn begin(sandbox: &Sandbox) -> Client {
        let mut client = Client::start(sandbox);
        let info = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "tester", "version": "1" } });
        client.ask("initialize", info);
        client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    fn end(mut self) {
        drop(self.input.take());
        let begin = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(begin.elapsed() < Duration::from_secs(10), "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn revisions_are_agreed_on_and_tools_are_listed() {
    let sandbox = Sandbox::with_policy(POLICY);
    for (wanted, spoken) in [
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ] {
        let mut client = Client::start(&sandbox);
        let answer = client.ask("initialize", json!({ "protocolVersion": wanted }));
        assert_eq!(answer["result"]["protocolVersion"], spoken);
        assert!(answer["result"]["capabilities"]["tools"].is_object());
        assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
        let tools = client.ask("tools/list", json!({}));
        for tool in tools["result"]["tools"].as_array().unwrap() {
            jsonschema_is_sound(&tool["inputSchema"]);
        }
        // What another revision asks first is no method here; clients go on with `initialize`.
        assert_eq!(
            client.ask("server/discover", json!({}))["error"]["code"],
            -32601
        );
        client.end();
    }
}

fn jsonschema_is_sound(schema: &Value) {
    assert_eq!(schema["type"], "object");
    assert_eq!(schema["additionalProperties"], false);
    for name in schema["required"].as_array().unwrap() {
        assert!(schema["properties"][name.as_str().unwrap()].is_object());
    }
}

#[test]
fn lines_run_as_the_policy_permits_and_leave_their_spans() {
    let sandbox = Sandbox::with_policy(POLICY);
    let mut client = Client::begin(&sandbox);
    let (text, failed) = client.call("run", json!({ "line": "printf '%s' hello; exit 3" }));
    assert!(
        text.starts_with("hello") && text.ends_with("[exit 3]") && failed,
        "{text}"
    );
    let (text, failed) = client.call("run", json!({ "line": "sudo id" }));
    assert!(
        text.contains("denied by policy 'test' (sudo *") && text.contains("[exit 126]") && failed,
        "{text}"
    );
    let (text, _) = client.call("explain", json!({ "line": "sudo id" }));
    assert!(text.contains("\"verdict\":\"deny\""), "{text}");
    let (text, failed) = client.call("run", json!({ "line": "printf '\\033[2J\\a'" }));
    assert!(
        text.contains("\\u{1b}[2J") && !text.contains('\u{1b}') && !failed,
        "{text}"
    );
    let (text, _) = client.call("trace", json!({ "text": "sudo" }));
    assert!(text.contains("policy_violation"), "{text}");
    client.end();
    let events = sandbox.trace();
    assert!(
        events.iter().all(|event| event["agent_id"] == "tester"),
        "{events:?}"
    );
}

#[test]
fn what_a_client_may_not_do_it_cannot_do_here() {
    let sandbox = Sandbox::with_policy(POLICY);
    let mut client = Client::begin(&sandbox);
    let (text, failed) = client.call(
        "run",
        json!({ "line": "echo new > made", "isolated": true }),
    );
    if failed && text.contains("world") {
        crate::common::skip("what_a_client_may_not_do_it_cannot_do_here", &text);
        return;
    }
    let (text, _) = client.call("diff", json!({ "result": "-" }));
    assert!(text.contains("+new"), "{text}");
    client.call("apply", json!({ "result": "-" }));
    assert!(!sandbox.project().join("made").exists());
    for (tool, arguments) in [
        ("apply", json!({ "result": "--force" })),
        ("diff", json!({ "result": "-", "more": 1 })),
        ("run", json!({ "line": "ls", "policy": "none" })),
        ("approve", json!({})),
    ] {
        let answer = client.ask(
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        );
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    client.end();
}

#[test]
fn long_answers_are_cut_and_read_on() {
    let sandbox = Sandbox::with_policy(POLICY);
    let mut client = Client::begin(&sandbox);
    let (text, _) = client.call(
        "run",
        json!({ "line": "seq 1 20000; head -c 100M /dev/zero" }),
    );
    assert!(
        text.len() < 100_000 && text.contains("`rest` with handle 1"),
        "{}",
        text.len()
    );
    let offset = text
        .split("offset ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap();
    let offset: usize = offset.parse().unwrap();
    let (more, _) = client.call("rest", json!({ "handle": 1, "offset": offset }));
    assert!(more.len() > 1000 && more.contains("reads on"));
    client.end();
}

#[test]
fn calls_go_side_by_side_and_can_be_called_off() {
    let sandbox = Sandbox::with_policy(POLICY);
    let mut client = Client::begin(&sandbox);
    let begin = Instant::now();
    let long = json!({ "name": "run", "arguments": { "line": "sleep 60" }, "_meta": { "progressToken": "p" } });
    client.say(&json!({ "jsonrpc": "2.0", "id": "long", "method": "tools/call", "params": long }));
    let (text, _) = client.call("run", json!({ "line": "echo quick" }));
    assert!(text.contains("quick"));
    let news = client.hear();
    assert_eq!(
        (&news["method"], &news["params"]["progressToken"]),
        (&json!("notifications/progress"), &json!("p"))
    );
    client.say(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": "long" } }));
    assert_eq!(client.ask("ping", json!({}))["result"], json!({}));
    client.end();
    assert!(begin.elapsed() < Duration::from_secs(30));
}

#[test]
fn an_end_of_the_client_ends_what_runs_for_it() {
    let sandbox = Sandbox::with_policy(POLICY);
    let mut client = Client::begin(&sandbox);
    let call = json!({ "name": "run", "arguments": { "line": "sleep 61" } });
    client.say(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call }));
    std::thread::sleep(Duration::from_millis(200));
    client.end();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(10) {
        if sandbox.events("command_complete").len() == 1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("it still runs");
}
