//! Payloads that nobody meant: no crash, no hang, and no permission comes of them.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod support;

use proptest::test_runner::{RngAlgorithm, TestRng};
use serde_json::{Value, json};
use substrate_adapters::Client;
use substrate_adapters::hook::{self, Deed, Happening};
use support::{Place, before, occasion};

/// How many for each client; more where somebody has the time.
fn rounds() -> usize {
    let wanted = std::env::var("SUBSTRATE_FUZZ_ROUNDS").ok();
    wanted
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(10_000)
}

struct Dice(TestRng);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        use proptest::prelude::Rng;
        usize::try_from(self.0.next_u64() % end.max(1) as u64).unwrap()
    }

    fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// Tools that act, with arguments that make sense.
fn acting(client: Client) -> Vec<(&'static str, Value)> {
    let line = json!({ "command": "touch x", "dir_path": "/", "workdir": "/" });
    let file = json!({ "file_path": "/x", "filePath": "/x", "path": "/x", "notebook_path": "/x" });
    let url = json!({ "url": "https://x.test/", "prompt": "https://x.test/" });
    let patch = json!({ "command": "*** Add File: x", "patchText": "*** Add File: x", "patch": "*** Add File: x" });
    match client {
        Client::Claude => vec![
            ("Bash", line),
            ("Write", file.clone()),
            ("Read", file),
            ("WebFetch", url),
            ("mcp__a__b", json!({})),
        ],
        Client::Codex => vec![
            ("Bash", line),
            ("apply_patch", patch),
            ("mcp__a__b", json!({})),
        ],
        Client::Gemini => vec![
            ("run_shell_command", line),
            ("write_file", file.clone()),
            ("read_file", file),
            ("web_fetch", url),
        ],
        Client::Cursor => vec![
            ("Shell", line),
            ("Write", file.clone()),
            ("Delete", file),
            ("MCP:x", json!({})),
        ],
        Client::Opencode => vec![
            ("bash", line),
            ("write", file.clone()),
            ("read", file),
            ("webfetch", url),
            ("patch", patch),
        ],
        Client::Copilot => vec![
            ("bash", line),
            ("create", file.clone()),
            ("view", file),
            ("web_fetch", url),
            ("apply_patch", patch),
        ],
    }
}

/// A value that a careless reader would stumble over.
fn odd(dice: &mut Dice) -> Value {
    let all = [
        Value::Null,
        json!(true),
        json!(-1),
        json!(1e308),
        json!(""),
        json!("\u{0}"),
        json!("\u{202e}\u{1b}[2J"),
        json!("../../../../etc/shadow"),
        json!("~"),
        json!("$(id)"),
        json!("*"),
        json!("x".repeat(5000)),
        json!("{\"command\":7}"),
        json!([]),
        json!([[]]),
        json!({}),
        json!({ "command": {} }),
        json!("PreToolUse"),
        json!("Bash"),
        json!("mcp__"),
        json!("mcp__a__"),
    ];
    dice.one_of(&all).clone()
}

/// Changes something anywhere in a document.
fn change(value: &mut Value, dice: &mut Dice) {
    match value {
        Value::Object(fields) if !fields.is_empty() && dice.below(8) > 0 => {
            let keys: Vec<String> = fields.keys().cloned().collect();
            let key = dice.one_of(&keys).clone();
            match dice.below(6) {
                0 => drop(fields.remove(&key)),
                1 => drop(fields.insert(odd(dice).to_string(), odd(dice))),
                2 => {
                    let taken = fields.remove(&key).unwrap_or_default();
                    fields.insert(key.to_uppercase(), taken);
                }
                _ => change(fields.entry(key).or_insert(Value::Null), dice),
            }
        }
        Value::Array(items) if !items.is_empty() && dice.below(4) > 0 => {
            let at = dice.below(items.len());
            change(&mut items[at], dice);
        }
        other => *other = odd(dice),
    }
}

/// Flips, cuts or doubles bytes.
fn garble(bytes: &mut Vec<u8>, dice: &mut Dice) {
    for _ in 0..=dice.below(4) {
        let at = dice.below(bytes.len().max(1));
        match dice.below(3) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at.min(bytes.len()), u8::try_from(dice.below(256)).unwrap()),
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << dice.below(8);
                }
            }
        }
    }
}

/// A policy under which nothing that acts may happen.
const NOTHING: &str = "mode: enforce
fs: { read: ['/nowhere/**'], write: [], outside: deny }
net: { allowed: [], unlisted: deny }
commands: { default: deny, on_unparsed: deny }
effects: { denied: ['connect', 'run_code:stdin', 'write:*', 'delete:*'] }
tools: { default: deny }
world: { enabled: 'off' }
";

#[test]
fn no_payload_is_a_permission() {
    let place = Place::with_policy(NOTHING);
    let (broker, around) = (place.broker(), place.around(&[]));
    let mut judged = 0;
    for client in Client::ALL {
        let seed = [client as u8 + 1; 32];
        let mut dice = Dice(TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
        let tools = acting(client);
        for _ in 0..rounds() {
            let (tool, input) = dice.one_of(&tools).clone();
            let mut payload = before(client, tool, input, "/");
            for _ in 0..=dice.below(3) {
                change(&mut payload, &mut dice);
            }
            let mut bytes = payload.to_string().into_bytes();
            if dice.below(3) == 0 {
                garble(&mut bytes, &mut dice);
            }
            let Ok(event) = hook::read(client, occasion(client), &bytes) else {
                continue;
            };
            let Happening::Before(call) = &event.happening else {
                // Whatever else it is taken for, it is no permission.
                let answer = hook::run(client, &event, &broker, &around);
                let text = answer.ok().flatten().unwrap_or_default();
                let shown = String::from_utf8_lossy(&bytes);
                assert!(!text.contains("allow"), "{client}: {shown}\n{text}");
                continue;
            };
            // Tools that do nothing by themselves, and reading what is no file (`/dev/null`, …).
            let harmless = match &call.deed {
                Deed::Effects { effects, known } => *known && effects.is_empty(),
                Deed::Line { text, .. } => text.iter().all(u8::is_ascii_whitespace),
            };
            if harmless {
                continue;
            }
            judged += 1;
            let answer = hook::run(client, &event, &broker, &around);
            let text = answer.ok().flatten().unwrap_or_default();
            let shown = String::from_utf8_lossy(&bytes);
            assert!(text.contains("\"deny\""), "{client}: {shown}\n{text}");
            let whole: Value = serde_json::from_str(&text).unwrap();
            assert!(whole.is_object(), "{text}");
        }
    }
    assert!(judged > rounds() / 2, "only {judged} were judged");
}

/// Messages to the MCP server that nobody meant.
#[test]
fn no_message_breaks_the_server() {
    use std::sync::{Arc, Mutex};
    use substrate_adapters::mcp::Server;

    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<u8>>>);
    impl std::io::Write for Heard {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let mut dice = Dice(TestRng::from_seed(RngAlgorithm::ChaCha, &[9; 32]));
    let kinds = [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": "2025-06-18", "clientInfo": { "name": "x" } } }),
        json!({ "jsonrpc": "2.0", "id": "a", "method": "tools/list" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "rest", "arguments": { "handle": 1, "offset": 2 } } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }),
        json!({ "jsonrpc": "2.0", "id": 3, "result": {} }),
    ];
    let mut input = Vec::new();
    for _ in 0..rounds() {
        let mut message = dice.one_of(&kinds).clone();
        for _ in 0..dice.below(3) {
            change(&mut message, &mut dice);
        }
        let mut bytes = message.to_string().into_bytes();
        if dice.below(3) == 0 {
            garble(&mut bytes, &mut dice);
        }
        input.extend(bytes);
        input.push(b'\n');
    }
    let heard = Heard::default();
    // Nothing may be started by chance either.
    let server = Server::new("/nonexistent/substrate".into(), Box::new(heard.clone()));
    server.serve(&input[..]).unwrap();
    let text = heard.0.lock().unwrap().clone();
    let mut answers = 0;
    for line in text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        let answer: Value = serde_json::from_slice(line).unwrap();
        assert_eq!(answer["jsonrpc"], "2.0");
        answers += 1;
    }
    assert!(answers > rounds() / 4, "{answers}");
}
