//! `substrate agent setup`: settings of clients, written and taken back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;

use crate::common::Sandbox;

const CLIENTS: [(&str, &str, &str); 6] = [
    (
        "claude",
        ".claude/settings.json",
        ".claude/settings.local.json",
    ),
    ("codex", ".codex/hooks.json", ".codex/hooks.json"),
    ("gemini", ".gemini/settings.json", ".gemini/settings.json"),
    ("cursor", ".cursor/hooks.json", ".cursor/hooks.json"),
    (
        "opencode",
        ".config/opencode/opencode.json",
        "opencode.json",
    ),
    (
        "copilot",
        ".copilot/hooks/substrate.json",
        ".github/hooks/substrate.json",
    ),
];

fn setup(sandbox: &Sandbox, words: &[&str]) -> Output {
    sandbox.run([&["agent", "setup"], words, &["--yes"]].concat())
}

fn said(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn user(sandbox: &Sandbox) -> PathBuf {
    sandbox.home().parent().unwrap().to_owned()
}

/// Every file below a directory, without Substrate's home, and the directories.
fn everything(top: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut all = Vec::new();
    let mut waiting = vec![top.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            if path == top.join("home") || path.ends_with(".git") {
                continue;
            }
            match entry.file_type().unwrap().is_dir() {
                true => {
                    all.push((path.clone(), None));
                    waiting.push(path);
                }
                false => all.push((path.clone(), Some(fs::read(&path).unwrap()))),
            }
        }
    }
    all.sort();
    all
}

#[test]
fn what_was_there_comes_back_byte_for_byte() {
    for (client, for_user, for_project) in CLIENTS {
        for (scope, file) in [("--user", for_user), ("--project", for_project)] {
            for before in [
                None,
                Some("{}"),
                Some("{\n\t\"x\" : [ 1,2 ],\r\n  \"hooks\": { }}\n\n"),
            ] {
                let sandbox = Sandbox::with_policy("mode: enforce\n");
                let top = match scope {
                    "--user" => user(&sandbox),
                    _ => sandbox.project(),
                };
                let path = top.join(file);
                if let Some(before) = before {
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                    fs::write(&path, before).unwrap();
                }
                let was = everything(&user(&sandbox));
                let output = setup(&sandbox, &[client, scope]);
                assert!(
                    output.status.success(),
                    "{client} {scope}: {}",
                    said(&output)
                );
                let written = fs::read(&path).unwrap();
                let value: Value = serde_json::from_slice(&written).unwrap();
                assert!(value.to_string().contains("substrate"), "{value}");
                if before.is_some_and(|before| before.contains('x')) {
                    assert!(String::from_utf8_lossy(&written).contains("\t\"x\" : [ 1,2 ]"));
                }
                // Once more changes nothing, and undoing leads back past both.
                let again = said(&setup(&sandbox, &[client, scope]));
                assert!(again.contains("set up already"), "{again}");
                assert_eq!(fs::read(&path).unwrap(), written);
                let undone = setup(&sandbox, &[client, scope, "--undo"]);
                assert!(undone.status.success(), "{}", said(&undone));
                assert_eq!(
                    everything(&user(&sandbox)),
                    was,
                    "{client} {scope} {before:?}"
                );
                let twice = setup(&sandbox, &[client, scope, "--undo"]);
                assert_eq!(twice.status.code(), Some(1));
            }
        }
    }
}

#[test]
fn what_somebody_changed_since_stays_when_it_is_undone() {
    let sandbox = Sandbox::with_policy("mode: enforce\n");
    let path = user(&sandbox).join(".claude/settings.json");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "{ \"model\": \"a\" }\n").unwrap();
    setup(&sandbox, &["claude"]);
    let text = fs::read_to_string(&path).unwrap().replace("\"a\"", "\"b\"");
    fs::write(&path, text).unwrap();
    assert!(said(&setup(&sandbox, &["claude", "--undo"])).contains("without Substrate"));
    let rest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(rest, serde_json::json!({ "model": "b" }));
}

#[test]
fn what_cannot_be_understood_is_left_alone() {
    for (client, file, text, word) in [
        (
            "claude",
            ".claude/settings.json",
            "{ // mine\n}",
            "ignores this file",
        ),
        (
            "claude",
            ".claude/settings.json",
            "{ \"hooks\": 7 }",
            "of another kind",
        ),
        (
            "claude",
            ".claude/settings.json",
            "{ \"hooks\": {}, \"hooks\": {} }",
            "twice",
        ),
        (
            "claude",
            ".claude/settings.json",
            "{ \"env\": { \"CLAUDE_CODE_SHELL_PREFIX\": \"/mine\" } }",
            "is \"/mine\" already",
        ),
        ("gemini", ".gemini/settings.json", "not json", "not JSON"),
        (
            "opencode",
            ".config/opencode/opencode.json",
            "{ \"shell\": \"/bin/zsh\" }",
            "already",
        ),
    ] {
        let sandbox = Sandbox::with_policy("mode: enforce\n");
        let path = user(&sandbox).join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        let output = setup(&sandbox, &[client]);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(said(&output).contains(word), "{}", said(&output));
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    // Clients that read comments keep theirs.
    let sandbox = Sandbox::with_policy("mode: enforce\n");
    let path = sandbox.project().join(".gemini/settings.json");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "{\n  // mine\n  \"ui\": {}, // too\n}\n").unwrap();
    assert!(setup(&sandbox, &["gemini", "--project"]).status.success());
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("// mine") && text.contains("// too") && text.contains("BeforeTool"));
}

#[test]
fn a_project_cannot_lead_the_pen_elsewhere() {
    let sandbox = Sandbox::with_policy("mode: enforce\n");
    let elsewhere = user(&sandbox).join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("victim.json"), "{}").unwrap();
    fs::create_dir(sandbox.project().join(".claude")).unwrap();
    let link = sandbox.project().join(".claude/settings.local.json");
    std::os::unix::fs::symlink(elsewhere.join("victim.json"), link).unwrap();
    assert_eq!(
        setup(&sandbox, &["claude", "--project"]).status.code(),
        Some(1)
    );
    std::os::unix::fs::symlink(&elsewhere, sandbox.project().join(".gemini")).unwrap();
    assert_eq!(
        setup(&sandbox, &["gemini", "--project"]).status.code(),
        Some(1)
    );
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    assert_eq!(
        fs::read_to_string(elsewhere.join("victim.json")).unwrap(),
        "{}"
    );

    // A user may keep his settings elsewhere; the link stays one.
    fs::create_dir(user(&sandbox).join(".claude")).unwrap();
    let own = user(&sandbox).join(".claude/settings.json");
    std::os::unix::fs::symlink(elsewhere.join("victim.json"), &own).unwrap();
    assert!(setup(&sandbox, &["claude"]).status.success());
    assert!(fs::symlink_metadata(&own).unwrap().is_symlink());
    assert!(fs::read_to_string(&own).unwrap().contains("hook claude"));
}

#[test]
fn nothing_is_written_without_a_word() {
    let sandbox = Sandbox::with_policy("mode: enforce\n");
    let was = everything(&user(&sandbox));
    let dry = sandbox.run(["agent", "setup", "claude", "--dry-run"]);
    assert!(
        dry.status.success() && said(&dry).contains("+ "),
        "{}",
        said(&dry)
    );
    // No terminal, no `--yes`.
    assert_eq!(
        sandbox.run(["agent", "setup", "claude"]).status.code(),
        Some(1)
    );
    assert_eq!(setup(&sandbox, &["clod"]).status.code(), Some(2));
    assert_eq!(everything(&user(&sandbox)), was);
    // From inside a session it is refused, by the policy and by itself.
    let inside = sandbox.run(["-c", "substrate agent setup claude --yes"]);
    assert_eq!(inside.status.code(), Some(126), "{}", said(&inside));
    let sneaky = format!(
        "{} agent setup claude --yes",
        env!("CARGO_BIN_EXE_substrate")
    );
    sandbox.run(["-c", &format!("x=agent; {}", sneaky.replace("agent", "$x"))]);
    assert_eq!(everything(&user(&sandbox)), was);
}

fn doctor(sandbox: &Sandbox) -> Vec<(String, String)> {
    let output = sandbox.run(["doctor", "--json"]);
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = rows.as_array().unwrap().iter();
    rows.filter(|row| row["check"] == "agent client")
        .map(|row| {
            let text = |key: &str| row[key].as_str().unwrap().to_owned();
            (text("state"), text("found"))
        })
        .collect()
}

#[test]
fn doctor_starts_the_very_command_and_notices_what_is_gone() {
    let sandbox = Sandbox::with_policy("mode: enforce\n");
    assert!(doctor(&sandbox).is_empty());
    setup(&sandbox, &["claude"]);
    let path = user(&sandbox).join(".claude/settings.json");
    let [(state, found)] = &doctor(&sandbox)[..] else {
        panic!()
    };
    assert_eq!(state, "ok", "{found}");
    assert!(sandbox.trace().is_empty(), "a canary leaves no trace");

    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("PreToolUse", "PreToolUze")).unwrap();
    let [(state, found)] = &doctor(&sandbox)[..] else {
        panic!()
    };
    assert!(state == "bad" && found.contains("gone"), "{found}");
    fs::write(&path, format!("// new\n{text}")).unwrap();
    let [(state, found)] = &doctor(&sandbox)[..] else {
        panic!()
    };
    assert!(state == "bad" && found.contains("ignores"), "{found}");
    fs::write(&path, text.replacen('{', "{ \"disableAllHooks\": true,", 1)).unwrap();
    let [(state, found)] = &doctor(&sandbox)[..] else {
        panic!()
    };
    assert!(
        state == "limited" && found.contains("switches hooks off"),
        "{found}"
    );

    // What a project brings along goes before what its user has set.
    fs::write(&path, &text).unwrap();
    let project = sandbox.project().join(".claude");
    fs::create_dir(&project).unwrap();
    let other = "{ \"env\": { \"CLAUDE_CODE_SHELL_PREFIX\": \"/bin/env\" } }";
    fs::write(project.join("settings.json"), other).unwrap();
    let [(state, found)] = &doctor(&sandbox)[..] else {
        panic!()
    };
    assert!(
        state == "limited" && found.contains("another shell prefix"),
        "{found}"
    );
}

#[test]
fn the_door_runs_lines_and_knows_our_hook() {
    let policy = "mode: enforce\nworld: { enabled: 'off' }\ncommands: { denied: ['sudo *'] }\n";
    let sandbox = Sandbox::with_policy(policy);
    setup(&sandbox, &["claude"]);
    let text = fs::read_to_string(user(&sandbox).join(".claude/settings.json")).unwrap();
    let settings: Value = serde_json::from_str(&text).unwrap();
    let door = settings["env"]["CLAUDE_CODE_SHELL_PREFIX"]
        .as_str()
        .unwrap()
        .to_owned();
    let hook = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
        .as_str()
        .unwrap()
        .to_owned();
    let through = |line: &str, payload: &str| {
        let mut command = std::process::Command::new(&door);
        sandbox.prepare(&mut command);
        let mut child = command
            .arg(line)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        use std::io::Write;
        let _ = child.stdin.take().unwrap().write_all(payload.as_bytes());
        child.wait_with_output().unwrap()
    };
    let ran = through("eval 'printf hello' < /dev/null", "");
    assert_eq!(ran.stdout, b"hello", "{}", said(&ran));
    let refused = through("true && eval 'sudo id' < /dev/null && pwd -P", "");
    assert_eq!(refused.status.code(), Some(126), "{}", said(&refused));
    assert_eq!(through(&hook, "{").status.code(), Some(2));
    let payload = "{\"hook_event_name\":\"PreToolUse\",\"tool_name\":\"Bash\",\"tool_input\":{\"command\":\"sudo id\"}}";
    let answer: Value = serde_json::from_slice(&through(&hook, payload).stdout).unwrap();
    assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "deny");
    // Anything else that looks like it is a line like any other.
    let more = through(&format!("{hook}; sudo id"), "{");
    assert_eq!(more.status.code(), Some(126), "{}", said(&more));
    let mut none = std::process::Command::new(&door);
    sandbox.prepare(&mut none);
    assert_eq!(none.output().unwrap().status.code(), Some(126));
}

#[test]
fn uninstall_takes_every_setup_back() {
    let sandbox = Sandbox::with_policy("mode: enforce\n");
    let was = everything(&user(&sandbox));
    for (client, ..) in CLIENTS {
        assert!(setup(&sandbox, &[client]).status.success());
        assert!(setup(&sandbox, &[client, "--project"]).status.success());
    }
    let dry = said(&sandbox.run(["uninstall", "--dry-run"]));
    assert_eq!(dry.matches("out of the settings of").count(), 12, "{dry}");
    let output = sandbox.run(["uninstall", "--yes"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(everything(&user(&sandbox)), was);
}
