//! `substrate policy …` and the promises of `docs/policy.md`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::io::Write;
use std::process::Stdio;

use crate::common::Sandbox;
use serde_json::{Value, json};

fn explain(sandbox: &Sandbox, policy: &str, line: &str) -> Value {
    let output = sandbox.run(["policy", "explain", "--json", "--policy", policy, line]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// The rows of the pattern table: list, pattern, lines that match, lines that do not.
fn table() -> Vec<(String, String, Vec<String>, Vec<String>)> {
    let page = include_str!("../docs/policy.md");
    let code = |cell: &str| -> Vec<String> {
        cell.split('`')
            .skip(1)
            .step_by(2)
            .map(|text| text.replace("\\|", "|"))
            .collect()
    };
    let rows: Vec<_> = page
        .lines()
        .filter(|line| line.starts_with("| denied |") || line.starts_with("| allowed |"))
        .map(|line| {
            // A bar inside code is written `\|`.
            let line = line.replace("\\|", "\u{1}");
            let cells: Vec<String> = line
                .split('|')
                .map(|cell| cell.trim().replace('\u{1}', "\\|"))
                .collect();
            (
                cells[1].clone(),
                code(&cells[2]).remove(0),
                code(&cells[3]),
                code(&cells[4]),
            )
        })
        .collect();
    assert!(rows.len() > 10);
    rows
}

#[test]
fn the_pattern_table_is_true() {
    let sandbox = Sandbox::new();
    for (list, pattern, matching, others) in table() {
        let text = json!({"id": "t", "name": "T", "commands": {list.clone(): [pattern.clone()]}})
            .to_string();
        sandbox.policy("t", &text);
        let hit = |line: &str| {
            let answer = explain(&sandbox, "t", line);
            let name = format!("commands.{list}");
            answer["reasons"].as_array().unwrap().iter().any(|reason| {
                reason["rule"]["list"] == *name
                    && reason["rule"]["pattern"] == *pattern
                    && (list != "allowed" || reason["verdict"] == "allow")
            })
        };
        for line in matching {
            assert!(hit(&line), "{list} `{pattern}` does not match `{line}`");
        }
        for line in others {
            assert!(!hit(&line), "{list} `{pattern}` matches `{line}`");
        }
    }
}

#[test]
fn explain_keeps_its_contract() {
    let sandbox = Sandbox::new();
    let answer = explain(&sandbox, "restricted", "env A=1 sudo id && ls");
    for key in [
        "v", "verdict", "isolate", "place", "mode", "policy", "reasons", "commands", "error",
    ] {
        assert!(answer.get(key).is_some(), "{key} is missing");
    }
    assert_eq!(answer["verdict"], "deny");
    assert_eq!(answer["mode"], "enforce");
    assert_eq!(answer["policy"]["id"], "restricted");
    let reason = answer["reasons"]
        .as_array()
        .unwrap()
        .iter()
        .find(|reason| reason["rule"]["pattern"] == "sudo *")
        .unwrap();
    assert_eq!(reason["argv"], json!(["sudo", "id"]));
    assert_eq!(reason["via"], json!(["env"]));
    assert_eq!(reason["rule"]["list"], "commands.denied");
    assert_eq!(reason["rule"]["file"], "builtin:default.yaml");
    assert!(reason["rule"]["line"].as_u64().unwrap() > 0);
    assert!(
        answer["commands"]
            .as_array()
            .unwrap()
            .iter()
            .any(|command| command["argv"] == json!(["ls"]))
    );
}

#[test]
fn explain_reads_lines() {
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .substrate()
        .args(["policy", "explain", "--jsonl", "--policy", "restricted"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = "{\"command\":\"ls\",\"id\":7}\n\n{\"command\":\"sudo ls\",\"cwd\":\"/tmp\"}\n{\"command\":{\"b64\":\"bHMg/w==\"}}\nnot json\n{\"nothing\":1}\n";
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let answers: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), 5);
    assert_eq!(
        (&answers[0]["id"], &answers[0]["verdict"]),
        (&json!(7), &json!("allow"))
    );
    assert_eq!(answers[1]["verdict"], "deny");
    assert_eq!(answers[2]["commands"][0]["argv"][1], json!({"b64": "/w=="}));
    assert!(
        answers[3]["error"]
            .as_str()
            .unwrap()
            .starts_with("not JSON")
    );
    assert_eq!(
        answers[4]["error"],
        "`command` must be a string or {\"b64\": …}"
    );
}

#[test]
fn the_default_policy_has_the_values_that_were_asked_for() {
    let sandbox = Sandbox::new();
    let output = sandbox.run(["policy", "show", "default", "--json"]);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let policy = &shown["policy"];
    assert_eq!(policy["mode"], "observe");
    assert_eq!(policy["fs"]["read"], json!(["/**"]));
    assert_eq!(
        policy["fs"]["write"],
        json!([
            "$PROJECT/**",
            "/tmp/**",
            "$HOME/.cache/**",
            "$HOME/.npm/**",
            "$HOME/.cargo/**"
        ])
    );
    assert_eq!(
        policy["net"]["egress_budget"],
        json!({"bytes_per_sec": 10485760, "total_bytes": 1073741824})
    );
    assert_eq!(
        policy["net"]["dns"],
        json!({"pinned": true, "refresh_secs": 60})
    );
    assert_eq!(
        policy["commands"]["isolated"],
        json!([
            "pip install *",
            "npm install *",
            "cargo install *",
            "go get *",
            "gem install *"
        ])
    );
    assert_eq!(
        policy["approval"]["auto_approve"],
        json!(["git *", "cargo build", "cargo test", "npm test", "make"])
    );
    assert_eq!(
        policy["world"]["limits"],
        json!({"cpu": "2", "memory": "2Gi"})
    );
    let denied: Vec<&str> = policy["commands"]["denied"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|rule| rule["pattern"].as_str())
        .collect();
    for pattern in ["sudo *", "rm -rf /", "chmod 777 *"] {
        assert!(denied.contains(&pattern), "{pattern}");
    }
}

#[test]
fn shipped_policies_load_and_list() {
    let sandbox = Sandbox::new();
    let output = sandbox.run(["policy", "list", "--json"]);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = rows.as_array().unwrap();
    for id in ["default", "restricted", "dev", "agent", "ci", "locked"] {
        let row = rows
            .iter()
            .find(|row| row["id"] == id)
            .unwrap_or_else(|| panic!("{id} is not listed"));
        assert!(row["error"].is_null(), "{row}");
    }
}

#[test]
fn the_restricted_policy_refuses_sudo() {
    let sandbox = Sandbox::new();
    let output = sandbox.run(["--policy", "restricted", "-c", "sudo apt update"]);
    assert_eq!(output.status.code(), Some(126));
    assert!(String::from_utf8_lossy(&output.stderr).contains("denied"));
}

#[test]
fn nothing_inside_loosens_what_encloses_it() {
    let sandbox = Sandbox::new();
    let binary = env!("CARGO_BIN_EXE_substrate");
    sandbox.policy("strict", "id: strict\nname: S\nmode: enforce\nworld: { enabled: \"off\" }\ncommands: { denied: [\"forbidden *\"] }\nfs: { write: [\"/**\"] }\n");
    sandbox.policy("loose", "id: loose\nname: L\nmode: observe\n");
    for inner in [
        format!("{binary} --policy loose -c 'sh -c \"$0\" forbidden'"),
        format!("x=for; {binary} --policy loose -c \"${{x}}bidden\""),
        format!("x=for; SUBSTRATE_HOME=/nonexistent {binary} -c \"${{x}}bidden\""),
        format!("x=for; env -i PATH=\"$PATH\" {binary} -c \"${{x}}bidden\""),
    ] {
        let output = sandbox.run(["--policy", "strict", "-c", &inner]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("denied by policy"), "{inner}: {said}");
    }
}

#[test]
fn a_copied_home_is_judged_by_its_own_policy() {
    let original = Sandbox::with_policy("mode: observe\n");
    let judged = |sandbox: &Sandbox| sandbox.run(["run", "--", "date"]).status.code();
    assert_eq!(judged(&original), Some(0));
    let copy = Sandbox::new();
    let mut copying = std::process::Command::new("cp");
    copying.args(["-a", "--no-target-directory"]);
    copying.arg(original.home()).arg(copy.home());
    assert!(copying.status().unwrap().success());
    let denied = "id: test\nname: Test\nmode: enforce\ncommands: { denied: [\"date *\"] }\n";
    copy.policy("test", denied);
    assert_eq!(judged(&copy), Some(126));
    assert_eq!(judged(&original), Some(0));
    let compiled = std::fs::read_dir(copy.home().join("cache")).unwrap();
    assert_eq!(compiled.count(), 1, "what came with the copy is gone");
}

#[test]
fn schemas_are_json() {
    let sandbox = Sandbox::new();
    for name in ["policy", "tool", "span"] {
        let output = sandbox.run(["policy", "schema", name]);
        let schema: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(schema["$schema"].is_string(), "{name}");
    }
}

#[test]
fn verdict_files_are_scored() {
    let sandbox = Sandbox::new();
    let file = sandbox.project().join("v.jsonl");
    std::fs::write(&file, "{\"command\":\"sudo id\",\"expect\":\"guard\"}\n{\"command\":\"ls\",\"expect\":\"pass\"}\n{\"command\":\"ls\",\"expect\":\"guard\"}\n").unwrap();
    let output = sandbox.run([
        "policy".as_ref(),
        "test".as_ref(),
        file.as_os_str(),
        "--policy".as_ref(),
        "restricted".as_ref(),
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "guard came out as allow: ls\nguard 1/2 (0.5000)\npass  1/1 (1.0000), asked 0.0000, isolated 0.0000, of these in a fresh world 0.0000\n"
    );
}

#[test]
fn completions_and_manual_are_printed() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish"] {
        let output = sandbox.run(["completions", shell]);
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("explain"),
            "{shell}"
        );
    }
    assert!(String::from_utf8_lossy(&sandbox.run(["man"]).stdout).contains(".TH substrate"));
}

#[test]
fn a_glob_over_a_directory_of_secrets_reads_them() {
    let sandbox = Sandbox::new();
    for line in ["cat ~/.ssh/*", "cp ~/.ssh/* .", "cat ~/.ssh/id_rsa"] {
        assert_ne!(
            explain(&sandbox, "agent", line)["verdict"],
            "allow",
            "{line}"
        );
    }
    for line in ["cat *", "grep -n x src/*", "ls ~/*"] {
        assert_eq!(
            explain(&sandbox, "agent", line)["verdict"],
            "allow",
            "{line}"
        );
    }
}

#[test]
fn a_policy_cannot_extend_itself() {
    let sandbox = Sandbox::new();
    let output = sandbox.run(["policy", "init", "default", "--yes"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(!sandbox.home().join("policies/default.yaml").exists());
}

#[test]
fn explain_does_not_say_that_a_refused_line_runs() {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.project().join(".substrate-profile"), "restricted\n").unwrap();
    let output = sandbox.run(["policy", "explain", "sudo id"]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.starts_with("deny"), "{shown}");
    assert!(!shown.contains("it runs"), "{shown}");
}

#[test]
fn calls_of_tools_are_explained_as_lines_are() {
    let policy = "mode: enforce\nfs: { write: ['$PROJECT/**'] }\ntools: { denied: [{ pattern: 'mcp:a/*', reason: 'not here' }] }\n";
    let sandbox = Sandbox::with_policy(policy);
    let ask = |arguments: &[&str]| {
        let output = sandbox.run([&["policy", "explain", "--json"], arguments].concat());
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rule = answer["reasons"][0]["rule"]["list"].clone();
        (
            answer["verdict"].clone(),
            rule,
            answer["commands"][0]["effects"].clone(),
        )
    };
    let denied = ask(&["--tool", "mcp:a/x"]);
    assert_eq!(denied, (json!("deny"), json!("tools.denied"), json!([])));
    let outside = ask(&["--tool", "claude:Write", "--effect", "write:/etc/x"]);
    let wanted = (json!("deny"), json!("fs.write"), json!(["write:/etc/x"]));
    assert_eq!(outside, wanted);
    let text = sandbox.run(["policy", "explain", "--tool", "mcp:b/y"]);
    let text = sandbox.normal(&text.stdout);
    assert!(
        text.contains("mcp:b/y") && text.contains("nobody says what mcp:b/y does"),
        "{text}"
    );
    let wrong = sandbox.run([
        "policy",
        "explain",
        "--tool",
        "claude:X",
        "--effect",
        "writes:/x",
    ]);
    assert_eq!(wrong.status.code(), Some(2));

    let mut child = sandbox.substrate();
    let mut child = child
        .args(["policy", "explain", "--jsonl"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = "{\"tool\":\"claude:Write\",\"effects\":[\"write:./x\"],\"id\":1}\n{\"tool\":7}\n";
    child
        .stdin
        .take()
        .unwrap()
        .write_all(lines.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let answers: Vec<Value> = output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(
        (&answers[0]["verdict"], &answers[0]["id"]),
        (&json!("allow"), &json!(1))
    );
    assert!(
        answers[1]["error"]
            .as_str()
            .unwrap()
            .contains("`tool` must be a string")
    );
}
