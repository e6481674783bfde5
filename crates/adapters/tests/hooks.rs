//! Every tool of every client, and the answers in their words.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends at the first surprise"
)]

mod support;

use serde_json::{Value, json};
use substrate_adapters::Client;
use substrate_adapters::hook::{self, Deed, Happening};
use support::{Place, before, occasion};

/// What a call does: its name, then a line or effects; `?` where nobody knows them all.
fn deed(client: Client, payload: &Value) -> Result<String, String> {
    let event = hook::read(client, occasion(client), payload.to_string().as_bytes());
    let event = event.map_err(|error| error.to_string())?;
    let Happening::Before(call) = event.happening else {
        panic!("{payload} is no call")
    };
    Ok(match call.deed {
        Deed::Line {
            text, directory, ..
        } => {
            let directory =
                directory.map_or(String::new(), |path| format!(" in {}", path.display()));
            format!(
                "{}: {}{directory}",
                call.name,
                String::from_utf8(text).unwrap()
            )
        }
        Deed::Effects { effects, known } => {
            let effects: Vec<String> = effects.iter().map(|effect| effect.text()).collect();
            let sign = if known { "" } else { "?" };
            format!("{}: {}{sign}", call.name, effects.join(" "))
        }
    })
}

#[test]
fn every_kind_of_tool_is_understood() {
    use Client::{Claude, Codex, Copilot, Cursor, Gemini, Opencode};
    let patch = "*** Begin Patch\n*** Update File: a\n*** Delete File: b\n*** End Patch";
    for (client, tool, input, wanted) in [
        (
            Claude,
            "Bash",
            json!({ "command": "ls -l" }),
            "claude:Bash: ls -l",
        ),
        (
            Claude,
            "Write",
            json!({ "file_path": "/p/x", "content": "" }),
            "claude:Write: write:/p/x",
        ),
        (
            Claude,
            "Edit",
            json!({ "file_path": "/p/x" }),
            "claude:Edit: write:/p/x",
        ),
        (
            Claude,
            "MultiEdit",
            json!({ "file_path": "/p/x", "edits": [] }),
            "claude:MultiEdit: write:/p/x",
        ),
        (
            Claude,
            "NotebookEdit",
            json!({ "notebook_path": "/p/n.ipynb" }),
            "claude:NotebookEdit: write:/p/n.ipynb",
        ),
        (
            Claude,
            "Read",
            json!({ "file_path": "/p/x" }),
            "claude:Read: read:/p/x",
        ),
        (
            Claude,
            "Glob",
            json!({ "pattern": "**/*.rs", "path": "/q" }),
            "claude:Glob: read:recursive:/q",
        ),
        (
            Claude,
            "Grep",
            json!({ "pattern": "/etc/x" }),
            "claude:Grep: read:recursive:.",
        ),
        (
            Claude,
            "WebFetch",
            json!({ "url": "https://a.test/x", "prompt": "" }),
            "claude:WebFetch: connect:a.test:443",
        ),
        (
            Claude,
            "WebSearch",
            json!({ "query": "x" }),
            "claude:WebSearch: connect:api.anthropic.com:443",
        ),
        (Claude, "Agent", json!({ "prompt": "x" }), "claude:Agent: "),
        (
            Claude,
            "mcp__github__create_issue",
            json!({}),
            "mcp:github/create_issue: ?",
        ),
        (Claude, "Teleport", json!({}), "claude:Teleport: ?"),
        (
            Codex,
            "Bash",
            json!({ "command": "make" }),
            "codex:Bash: make",
        ),
        (
            Codex,
            "apply_patch",
            json!({ "command": patch }),
            "codex:apply_patch: write:a delete:b",
        ),
        (
            Codex,
            "write_stdin",
            json!({ "session_id": 1, "chars": "rm x\n" }),
            "codex:write_stdin: run_code:stdin",
        ),
        (
            Codex,
            "write_stdin",
            json!({ "session_id": 1 }),
            "codex:write_stdin: ",
        ),
        (Codex, "mcp__s__t", json!({}), "mcp:s/t: ?"),
        (
            Gemini,
            "run_shell_command",
            json!({ "command": "ls", "dir_path": "sub" }),
            "gemini:run_shell_command: ls in sub",
        ),
        (
            Gemini,
            "replace",
            json!({ "file_path": "x" }),
            "gemini:replace: write:x",
        ),
        (
            Gemini,
            "web_fetch",
            json!({ "prompt": "see http://a.test" }),
            "gemini:web_fetch: connect:a.test:80",
        ),
        (
            Gemini,
            "glob",
            json!({ "pattern": "*" }),
            "gemini:glob: read:recursive:.",
        ),
        (
            Gemini,
            "save_memory",
            json!({ "fact": "x" }),
            "gemini:save_memory: write:~/.gemini/GEMINI.md",
        ),
        (
            Cursor,
            "Shell",
            json!({ "command": "ls" }),
            "cursor:Shell: ls",
        ),
        (
            Cursor,
            "Write",
            json!({ "file_path": "/p/x" }),
            "cursor:Write: write:/p/x",
        ),
        (
            Cursor,
            "Delete",
            json!({ "path": "/p/x" }),
            "cursor:Delete: delete:/p/x",
        ),
        (Cursor, "MCP:query", json!({}), "mcp:cursor/query: ?"),
        (
            Opencode,
            "bash",
            json!({ "command": "ls", "workdir": "/w" }),
            "opencode:bash: ls in /w",
        ),
        (
            Opencode,
            "edit",
            json!({ "filePath": "/p/x" }),
            "opencode:edit: write:/p/x",
        ),
        (
            Opencode,
            "webfetch",
            json!({ "url": "file:///etc/shadow" }),
            "opencode:webfetch: read:/etc/shadow",
        ),
        (
            Copilot,
            "bash",
            json!({ "command": "ls" }),
            "copilot:bash: ls",
        ),
        (
            Copilot,
            "create",
            json!({ "path": "/p/x", "file_text": "" }),
            "copilot:create: write:/p/x",
        ),
        (
            Copilot,
            "grep",
            json!({ "pattern": "x", "paths": ["/a", "b"] }),
            "copilot:grep: read:recursive:/a read:recursive:b",
        ),
        (
            Copilot,
            "github-get_me",
            json!({}),
            "copilot:github-get_me: ?",
        ),
    ] {
        let payload = before(client, tool, input, "/p");
        assert_eq!(deed(client, &payload).unwrap(), wanted, "{payload}");
    }
}

/// Codex carries out a patch itself wherever it sees one in a line, and no program starts.
#[test]
fn a_patch_in_a_line_of_codex_is_judged_as_one() {
    let place = Place::with_policy(
        "mode: enforce\nfs: { write: ['$PROJECT/**'] }\nworld: { enabled: 'off' }\n",
    );
    let patch = |path: &str| format!("*** Begin Patch\n*** Add File: {path}\n+x\n*** End Patch");
    let run = |line: String| answer(&place, Client::Codex, "Bash", json!({ "command": line }));
    assert_eq!(
        run(format!("apply_patch <<'EOF'\n{}\nEOF", patch("inside"))),
        None
    );
    for line in [
        format!("apply_patch <<'EOF'\n{}\nEOF", patch("/etc/x")),
        format!("cd sub && applypatch <<EOF\n{}\nEOF", patch("/etc/x")),
        format!("apply_patch '{}'", patch("../../x")),
        "apply_patch \"$(cat patch)\"".to_owned(),
    ] {
        let answer = run(line.clone()).unwrap_or_default();
        assert_eq!(
            answer["hookSpecificOutput"]["permissionDecision"], "deny",
            "{line}"
        );
    }
}

/// What a client is about to ask its user it asks, or it is told no in the form that the occasion has.
#[test]
fn permissions_are_given_by_no_answer() {
    let place = Place::with_policy(POLICY);
    let answer = |client: Client, told: Value| -> Option<Value> {
        let event = hook::read(client, occasion(client), told.to_string().as_bytes()).unwrap();
        let answer = hook::run(client, &event, &place.broker(), &place.around(&[])).unwrap();
        answer.map(|text| serde_json::from_str(&text).unwrap())
    };
    let cwd = place.project();
    let shell = |line: &str| json!({ "hook_event_name": "beforeShellExecution", "command": line, "cwd": cwd });
    let passed = answer(Client::Cursor, shell("ls")).unwrap();
    assert_eq!(passed, json!({ "continue": true }));
    assert_eq!(
        answer(Client::Cursor, shell("sudo id")).unwrap()["permission"],
        "deny"
    );
    let told = answer(Client::Cursor, json!({ "hook_event_name": "stop" })).unwrap();
    assert_eq!(told, json!({ "continue": true }));
    let unheard = json!({ "hook_event_name": "beforeEverything", "command": "ls" });
    assert!(hook::read(Client::Cursor, None, unheard.to_string().as_bytes()).is_err());

    let request = |line: &str| json!({ "hook_event_name": "PermissionRequest", "tool_name": "Bash", "tool_input": { "command": line }, "cwd": cwd });
    for client in [Client::Claude, Client::Codex] {
        let said = answer(client, request("sudo id")).unwrap();
        let decision = &said["hookSpecificOutput"]["decision"];
        assert_eq!(decision["behavior"], "deny", "{said}");
        assert!(
            decision["message"].as_str().unwrap().contains("sudo *"),
            "{said}"
        );
        assert_eq!(answer(client, request("ls")), None);
        // Who cannot have its user asked refuses what a person would have to approve.
        let asked = answer(client, request("git push origin"));
        assert_eq!(asked.is_none(), client.asks(), "{asked:?}");
    }
}

#[test]
fn other_occasions_of_clients() {
    let shell = json!({ "hook_event_name": "beforeShellExecution", "command": "ls", "cwd": "/p" });
    assert_eq!(deed(Client::Cursor, &shell).unwrap(), "cursor:Shell: ls");
    let read =
        json!({ "hook_event_name": "beforeReadFile", "file_path": "/p/.env", "content": "" });
    assert_eq!(
        deed(Client::Cursor, &read).unwrap(),
        "cursor:Read: read:/p/.env"
    );
    let tool = json!({ "hook_event_name": "beforeMCPExecution", "tool_name": "q", "tool_input": "{\"a\":1}", "url": "http://x" });
    assert_eq!(deed(Client::Cursor, &tool).unwrap(), "mcp:cursor/q: ?");
    let mcp = json!({ "hook_event_name": "BeforeTool", "tool_name": "s_t", "tool_input": {}, "mcp_context": { "server_name": "s", "tool_name": "t" } });
    assert_eq!(deed(Client::Gemini, &mcp).unwrap(), "mcp:s/t: ?");
    // An occasion that we do not know, with a tool in it, is judged like any other.
    let unheard = json!({ "hook_event_name": "BeforeEverything", "tool_name": "Write", "tool_input": { "file_path": "/x" } });
    assert_eq!(
        deed(Client::Claude, &unheard).unwrap(),
        "claude:Write: write:/x"
    );
    let arguments =
        json!({ "sessionId": "s", "toolName": "bash", "toolArgs": "{\"command\":\"ls\"}" });
    assert_eq!(
        deed(Client::Copilot, &arguments).unwrap(),
        "copilot:bash: ls"
    );
}

#[test]
fn what_makes_no_sense_is_an_error() {
    for (client, payload) in [
        (Client::Claude, json!([])),
        (Client::Claude, json!({})),
        (Client::Claude, json!({ "hook_event_name": 1 })),
        (
            Client::Claude,
            before(Client::Claude, "Write", json!({}), "/p"),
        ),
        (
            Client::Claude,
            before(Client::Claude, "Bash", json!({ "command": ["a", 1] }), "/p"),
        ),
        (
            Client::Claude,
            before(
                Client::Claude,
                "Bash",
                json!({ "command": "a\u{0}b" }),
                "/p",
            ),
        ),
        (Client::Claude, before(Client::Claude, "", json!({}), "/p")),
        (
            Client::Claude,
            before(Client::Claude, "Wri\u{1b}te", json!({}), "/p"),
        ),
        (
            Client::Claude,
            before(
                Client::Claude,
                "Read",
                json!({ "file_path": "x" }),
                "relative",
            ),
        ),
        (
            Client::Codex,
            before(
                Client::Codex,
                "apply_patch",
                json!({ "command": "nothing" }),
                "/p",
            ),
        ),
        (
            Client::Copilot,
            json!({ "toolName": "bash", "toolArgs": "no json" }),
        ),
        (
            Client::Cursor,
            json!({ "hook_event_name": "beforeReadFile" }),
        ),
        (Client::Opencode, json!({})),
    ] {
        assert!(deed(client, &payload).is_err(), "{client} {payload}");
    }
    let deep = "[".repeat(100_000);
    assert!(hook::read(Client::Claude, None, deep.as_bytes()).is_err());
}

const POLICY: &str = "mode: enforce
fs: { write: ['$PROJECT/**'] }
world: { enabled: 'off' }
commands: { denied: [{ pattern: 'sudo *', reason: 'no' }], ask: ['git push *'], isolated: ['npm install *'] }
";

fn answer(place: &Place, client: Client, tool: &str, input: Value) -> Option<Value> {
    let payload = before(client, tool, input, place.project().to_str().unwrap());
    let event = hook::read(client, occasion(client), payload.to_string().as_bytes()).unwrap();
    let answer = hook::run(client, &event, &place.broker(), &place.around(&[])).unwrap();
    answer.map(|text| serde_json::from_str(&text).unwrap())
}

#[test]
fn refusals_are_said_in_the_clients_words() {
    let place = Place::with_policy(POLICY);
    let sudo = json!({ "command": "sudo id" });
    let why = "denied by policy 'test' (sudo *, ";
    let claude = answer(&place, Client::Claude, "Bash", sudo.clone()).unwrap();
    let said = &claude["hookSpecificOutput"];
    assert_eq!(said["hookEventName"], "PreToolUse");
    assert_eq!(said["permissionDecision"], "deny");
    assert!(
        said["permissionDecisionReason"]
            .as_str()
            .unwrap()
            .starts_with(why),
        "{said}"
    );
    let codex = answer(&place, Client::Codex, "Bash", sudo.clone()).unwrap();
    assert_eq!(codex["hookSpecificOutput"]["permissionDecision"], "deny");
    let gemini = answer(&place, Client::Gemini, "run_shell_command", sudo.clone()).unwrap();
    assert_eq!(gemini["decision"], "deny");
    let cursor = answer(&place, Client::Cursor, "Shell", sudo.clone()).unwrap();
    assert_eq!(cursor["permission"], "deny");
    let opencode = answer(&place, Client::Opencode, "bash", sudo.clone()).unwrap();
    assert_eq!(opencode["decision"], "deny");
    let copilot = answer(&place, Client::Copilot, "bash", sudo).unwrap();
    assert_eq!(copilot["permissionDecision"], "deny");

    let events = place.events();
    assert_eq!(events.len(), 6);
    for (event, client) in events.iter().zip(Client::ALL) {
        assert_eq!(event["event_type"], "policy_violation");
        assert_eq!(event["component"], "hook");
        assert!(
            Client::ALL
                .iter()
                .any(|one| event["client"]["name"] == one.name()),
            "{client}"
        );
        assert_eq!(event["rule"]["list"], "commands.denied");
        assert_eq!(event["cmd"], "sudo id");
    }
}

#[test]
fn who_can_ask_asks_and_the_others_refuse_with_a_way_to_go_on() {
    let place = Place::with_policy(POLICY);
    let push = json!({ "command": "git push origin" });
    let claude = answer(&place, Client::Claude, "Bash", push.clone()).unwrap();
    assert_eq!(claude["hookSpecificOutput"]["permissionDecision"], "ask");
    let cursor = answer(&place, Client::Cursor, "Shell", push.clone()).unwrap();
    assert_eq!(cursor["permission"], "ask");
    let copilot = answer(&place, Client::Copilot, "bash", push.clone()).unwrap();
    assert_eq!(copilot["permissionDecision"], "ask");
    for (client, tool) in [
        (Client::Codex, "Bash"),
        (Client::Gemini, "run_shell_command"),
        (Client::Opencode, "bash"),
    ] {
        let text = answer(&place, client, tool, push.clone())
            .unwrap()
            .to_string();
        assert!(
            text.contains("deny") && text.contains("substrate approvals grant"),
            "{text}"
        );
    }
}

#[test]
fn what_is_isolated_is_run_through_us_where_the_client_lets_it() {
    let place = Place::with_policy(POLICY);
    let install = json!({ "command": "npm install 'x y'", "description": "d" });
    let line = |input: &Value| input["command"].as_str().unwrap().to_owned();
    let claude = answer(&place, Client::Claude, "Bash", install.clone()).unwrap();
    let input = &claude["hookSpecificOutput"]["updatedInput"];
    assert_eq!(input["description"], "d");
    let rewritten = line(input);
    assert!(
        rewritten.starts_with("SUBSTRATE_PARENT_SPAN=ses_"),
        "{rewritten}"
    );
    assert!(
        rewritten.contains(" SUBSTRATE_AGENT_ID=claude '/opt/it is/substrate' -c -- "),
        "{rewritten}"
    );
    let gemini = answer(&place, Client::Gemini, "run_shell_command", install.clone()).unwrap();
    assert!(line(&gemini["hookSpecificOutput"]["tool_input"]).contains("substrate' -c"));
    let copilot = answer(&place, Client::Copilot, "bash", install.clone()).unwrap();
    assert!(line(&copilot["modifiedArgs"]).contains("substrate' -c"));
    let cursor = answer(&place, Client::Cursor, "Shell", install).unwrap();
    assert_eq!(cursor["permission"], "deny");
    assert!(
        cursor["agent_message"]
            .as_str()
            .unwrap()
            .contains("substrate -c")
    );
}

#[test]
fn what_is_permitted_is_left_to_the_client_and_recorded_with_its_end() {
    let place = Place::with_policy(POLICY);
    let path = place.project().join("x");
    let input = json!({ "file_path": path });
    assert_eq!(answer(&place, Client::Claude, "Write", input.clone()), None);
    let mut after = before(
        Client::Claude,
        "Write",
        input,
        place.project().to_str().unwrap(),
    );
    after["hook_event_name"] = json!("PostToolUse");
    let event = hook::read(Client::Claude, None, after.to_string().as_bytes()).unwrap();
    hook::run(Client::Claude, &event, &place.broker(), &place.around(&[])).unwrap();
    let prompt = json!({ "session_id": "s", "cwd": "/", "hook_event_name": "UserPromptSubmit", "prompt": "do it" });
    let event = hook::read(Client::Claude, None, prompt.to_string().as_bytes()).unwrap();
    hook::run(Client::Claude, &event, &place.broker(), &place.around(&[])).unwrap();

    let events = place.events();
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["event_type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["command_start", "command_complete", "agent_event"]);
    assert_eq!(events[0]["span_id"], events[1]["span_id"]);
    assert!(
        events
            .iter()
            .all(|event| event["session_id"] == events[0]["session_id"])
    );
    assert_eq!(events[0]["tool"], "claude:Write");
    assert_eq!(
        events[0]["effects"],
        json!([format!("write:{}", path.display())])
    );
    assert_eq!(
        events[0]["client"],
        json!({ "name": "claude", "session": "s", "call": "toolu_1" })
    );
    assert_eq!(
        (&events[2]["action"], &events[2]["detail"]),
        (&json!("prompt"), &json!("do it"))
    );
}

#[test]
fn a_session_around_the_client_is_the_session_of_its_calls() {
    let place = Place::with_policy(POLICY);
    let parent =
        "ses_01a1e27c-3188-7000-b8a9-93e4bd02e1dc/spn_01a1e27c-3188-7001-a3f9-38e3debc9c61";
    let around = place.around(&[
        ("SUBSTRATE_PARENT_SPAN", parent),
        ("SUBSTRATE_AGENT_ID", "coder"),
    ]);
    let payload = before(
        Client::Codex,
        "Bash",
        json!({ "command": "ls" }),
        place.project().to_str().unwrap(),
    );
    let event = hook::read(Client::Codex, None, payload.to_string().as_bytes()).unwrap();
    hook::run(Client::Codex, &event, &place.broker(), &around).unwrap();
    let event = &place.events()[0];
    assert_eq!(
        event["parent_span"],
        "spn_01a1e27c-3188-7001-a3f9-38e3debc9c61"
    );
    assert_eq!(
        event["session_id"],
        "ses_01a1e27c-3188-7000-b8a9-93e4bd02e1dc"
    );
    assert_eq!(event["agent_id"], "coder");
}

#[test]
fn nothing_is_permitted_unrecorded_where_the_policy_enforces() {
    let place = Place::with_policy(POLICY);
    let broker = place.broker();
    std::fs::create_dir(place.home().join("trace.jsonl")).unwrap();
    let payload = before(Client::Claude, "Bash", json!({ "command": "ls" }), "/");
    let event = hook::read(Client::Claude, None, payload.to_string().as_bytes()).unwrap();
    let error = hook::run(Client::Claude, &event, &broker, &place.around(&[])).unwrap_err();
    assert!(error.to_string().contains("cannot be recorded"), "{error}");
}
