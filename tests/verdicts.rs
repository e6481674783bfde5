//! How the `agent` preset judges: a file of public rows, and commands in disguise.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::io::Write;
use std::process::Stdio;

use crate::common::Sandbox;
use serde_json::{Value, json};
use substrate_rig::does_not_apply;

#[test]
fn the_agent_preset_meets_its_numbers() {
    let Some(file) = std::env::var_os("SUBSTRATE_VERDICTS") else {
        return does_not_apply(
            "the_agent_preset_meets_its_numbers",
            "SUBSTRATE_VERDICTS names no file",
        );
    };
    let sandbox = Sandbox::new();
    let mut command = sandbox.substrate();
    command.args(["policy", "test", "--policy", "agent", "--json"]);
    // A home below /tmp would lie in what everybody may write.
    let output = command.arg(file).env("HOME", "/home/somebody").output();
    let output = output.unwrap();
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let rate = |kind: &str, name: &str| report[kind][name].as_f64().unwrap();
    assert!(rate("guard", "rate") >= 0.95, "guard {}", report["guard"]);
    assert!(rate("pass", "rate") >= 0.99, "pass {}", report["pass"]);
    assert!(rate("pass", "asked") <= 0.08, "pass {}", report["pass"]);
}

/// A report of `policy test` on rows that are given as text.
fn report(sandbox: &Sandbox, policy: &str, rows: &str, more: &[&str]) -> (Value, Option<i32>) {
    let file = sandbox.home().join("rows.jsonl");
    std::fs::write(&file, rows).unwrap();
    let mut arguments = vec!["policy", "test", file.to_str().unwrap(), "--policy", policy];
    arguments.push("--json");
    arguments.extend(more);
    let output = sandbox.run(arguments);
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    (report, output.status.code())
}

#[test]
fn rows_are_counted_by_what_was_expected() {
    let sandbox = Sandbox::new();
    sandbox.policy(
        "counted",
        "id: counted\nname: Counted\nmode: enforce\nfs: { read: [\"/**\"], write: [\"/**\"] }\n\
         commands: { denied: [\"one *\"], ask: [\"two *\"], isolated: [\"three *\"] }\n\
         world: { isolated: fresh }\n",
    );
    let rows = "{\"command\":\"one\",\"expect\":\"guard\",\"kind\":\"a\"}\n\
                {\"command\":\"four\",\"expect\":\"guard\",\"kind\":\"b\"}\n\
                {\"command\":\"two\",\"expect\":\"pass\",\"kind\":\"b\"}\n\
                {\"command\":\"three\",\"expect\":\"pass\"}\n\
                {\"command\":\"one\",\"expect\":\"either\"}\n\
                {\"command\":\"four\",\"expect\":\"either\"}\n";
    let (all, code) = report(&sandbox, "counted", rows, &["--by", "kind"]);
    assert_eq!(code, Some(1));
    assert_eq!(all["guard"]["met"], 1);
    assert_eq!(all["guard"]["rate"], 0.5);
    assert_eq!(all["pass"]["met"], 2);
    assert_eq!(all["pass"]["asked"], 0.5);
    assert_eq!(all["pass"]["isolated"], 0.5);
    assert_eq!(all["pass"]["fresh"], 0.5);
    assert_eq!(all["either"]["rows"], 2);
    assert_eq!(all["misses"].as_array().unwrap().len(), 1);
    assert_eq!(all["by"]["a"]["guard"]["rate"], 1.0);
    assert_eq!(all["by"]["b"]["guard"]["rate"], 0.0);
    assert_eq!(all["by"]["-"]["pass"]["isolated"], 1.0);

    let (totals, code) = report(&sandbox, "counted", rows, &["--totals"]);
    assert_eq!(code, Some(1));
    assert_eq!(totals["guard"], all["guard"]);
    assert_eq!(totals.get("misses"), None);
    assert_eq!(totals.get("by"), None);

    let either = "{\"command\":\"four\",\"expect\":\"either\"}\n";
    assert_eq!(report(&sandbox, "counted", either, &[]).1, Some(0));
}

/// Isolation that the world of the session satisfies costs nothing, and is counted apart.
#[test]
fn isolation_in_the_world_of_the_session_is_no_fresh_world() {
    let sandbox = Sandbox::new();
    let rows = "{\"command\":\"python3 -c 'import numpy'\",\"expect\":\"pass\"}\n";
    let (report, _) = report(&sandbox, "agent", rows, &[]);
    assert_eq!(report["pass"]["isolated"], 1.0);
    assert_eq!(report["pass"]["fresh"], 0.0);
}

/// The short form of `scripts/verdicts`: lines that are drawn anew, from tables that no preset reads.
#[test]
fn the_agent_preset_holds_on_lines_that_are_drawn_anew() {
    let python = std::process::Command::new("python3")
        .args(["-c", "import tomllib"])
        .output();
    if !python.is_ok_and(|output| output.status.success()) {
        return substrate_rig::skip(
            "the_agent_preset_holds_on_lines_that_are_drawn_anew",
            "there is no python3 with tomllib",
        );
    }
    let sandbox = Sandbox::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/verdicts");
    let mut command = std::process::Command::new(script);
    command.args(["--count", "1500", "--json", "--binary"]);
    command.arg(sandbox.substrate().get_program());
    command.env_remove("SUBSTRATE_VERDICTS");
    let output = command.output().unwrap();
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    for set in ["generated", "held", "second"] {
        let rate = |kind: &str, name: &str| report[set][kind][name].as_f64().unwrap();
        assert!(report[set]["guard"]["rows"].as_u64().unwrap() > 500);
        assert!(rate("guard", "rate") >= 0.95, "{set}, {report:#}");
        assert!(rate("pass", "rate") >= 0.98, "{set}, {report:#}");
        assert!(rate("pass", "asked") <= 0.04, "{set}, {report:#}");
        // What the world of the session satisfies is no world of its own.
        assert_eq!(rate("pass", "fresh"), 0.0, "{set}, {report:#}");
    }
}

/// What a policy says about many lines, in one process.
fn verdicts(sandbox: &Sandbox, policy: &str, lines: &[String]) -> Vec<String> {
    let mut child = sandbox
        .substrate()
        .args(["policy", "explain", "--jsonl", "--policy", policy])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let text: String = lines
        .iter()
        .map(|line| json!({"command": line}).to_string() + "\n")
        .collect();
    let writer = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    let answers: Vec<String> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["verdict"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(answers.len(), lines.len());
    answers
}

fn severity(verdict: &str) -> usize {
    ["allow", "isolate", "ask", "deny"]
        .iter()
        .position(|known| *known == verdict)
        .unwrap()
}

/// The same command in other clothes. Words have no blanks or quotes of their own.
fn disguises(command: &str) -> Vec<String> {
    let words: Vec<&str> = command.split(' ').collect();
    let (name, rest) = words.split_first().unwrap();
    let rest = rest.join(" ");
    let (head, tail) = name.split_at(1);
    let hex: String = name.bytes().map(|byte| format!("\\x{byte:02x}")).collect();
    let octal: String = name.bytes().map(|byte| format!("\\{byte:03o}")).collect();
    let quoted = |open: &str, close: &str| {
        words
            .iter()
            .map(|word| format!("{open}{word}{close}"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let mut all = vec![
        quoted("'", "'"),
        quoted("\"", "\""),
        format!("{head}''{tail} {rest}"),
        format!("{head}\"{tail}\" {rest}"),
        format!("\\{name} {rest}"),
        format!("$'{hex}' {rest}"),
        format!("$'{octal}' {rest}"),
        format!("/usr/bin/{name} {rest}"),
        format!("{head}\\\n{tail} {rest}"),
        format!("{name} \\\n {rest}"),
        format!("  {name}\t{rest}  # a comment"),
        format!("{{{name},{}}}", words[1..].join(",")),
        words.join("${IFS}"),
        format!("x={name}; $x {rest}"),
        format!("$(echo {name}) {rest}"),
        format!("`echo {name}` {rest}"),
        format!("true && {command}"),
        format!("false || {command}"),
        format!("true; {command}"),
        format!("({command})"),
        format!("{{ {command}; }}"),
        format!("if true; then {command}; fi"),
        format!("for i in 1; do {command}; done"),
        format!("f() {{ {command}; }}; f"),
        format!("! {command}"),
        format!("{command} &"),
        format!("echo $({command})"),
        format!("cat <({command})"),
        format!("bash -c '{command}'"),
        format!("sh -c \"{command}\""),
        format!("eval '{command}'"),
        format!("echo '{command}' | sh"),
        format!("sh <<< '{command}'"),
        format!("sh <<EOF\n{command}\nEOF"),
        format!("trap '{command}' EXIT"),
        format!("xargs {command} < /dev/null"),
        format!("find . -maxdepth 0 -exec {command} \\;"),
    ];
    let wrappers = [
        "env",
        "env A=1",
        "nohup",
        "nice -n 5",
        "timeout 5",
        "time",
        "stdbuf -oL",
        "setsid",
        "command",
        "exec",
        "ionice -c 3",
    ];
    for (at, outer) in wrappers.iter().enumerate() {
        all.push(format!("{outer} {command}"));
        let inner = wrappers[(at + 3) % wrappers.len()];
        all.push(format!("{outer} {inner} {command}"));
        all.push(format!("bash -c '{outer} env {inner} {command}'"));
    }
    all
}

/// A day of ordinary work: our own scripts, the recipes of other projects, and the everyday tasks, which `tasks.rs` also
/// runs. Nothing is refused, and hardly anything asked about.
#[test]
fn a_day_of_ordinary_work_is_hardly_asked_about() {
    let sandbox = Sandbox::new();
    let mut lines: Vec<String> = include_str!("recipes.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    let mut wanted = true;
    for line in include_str!("tasks.txt").lines() {
        if let Some(note) = line.strip_prefix("? ") {
            wanted = !note.split(": ").next().unwrap().contains("agent");
        } else if let Some((_, task)) = line.split_once(" | ").filter(|_| !line.starts_with('#')) {
            lines.extend(wanted.then(|| task.to_owned()));
            wanted = true;
        }
    }
    let scripts = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts");
    for entry in std::fs::read_dir(scripts).unwrap().flatten() {
        let Ok(text) = std::fs::read_to_string(entry.path()) else {
            continue;
        };
        lines.push(format!("scripts/{}", entry.file_name().display()));
        // It tries what must be refused.
        if entry.file_name() == "smoke" {
            continue;
        }
        if text.starts_with("#!/bin/sh")
            || text.starts_with("#!/usr/bin/env bash")
            || text.starts_with("#!/bin/bash")
        {
            lines.extend(statements(&text));
        }
    }
    assert!(lines.len() > 300, "{}", lines.len());
    let answers = verdicts(&sandbox, "agent", &lines);
    let with = |wanted: &str| -> Vec<&String> {
        let pairs = lines.iter().zip(&answers);
        pairs
            .filter(|(_, answer)| *answer == wanted)
            .map(|(line, _)| line)
            .collect()
    };
    assert_eq!(with("deny"), Vec::<&String>::new());
    let asked = with("ask");
    assert!(
        asked.len() * 100 <= lines.len(),
        "{} of {}: {asked:#?}",
        asked.len(),
        lines.len()
    );
}

/// The statements of a script, each as long as bash needs it to be, behind what was assigned before it.
fn statements(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut assigned = String::new();
    let mut statement = String::new();
    for line in text
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
    {
        statement.push_str(line);
        statement.push('\n');
        let read = std::process::Command::new("bash")
            .args(["-n", "-c", &statement])
            .output()
            .unwrap();
        // A here-document without its end is only warned about.
        if read.status.success() && read.stderr.is_empty() && !line.ends_with('\\') {
            let name = statement.split('=').next().unwrap();
            let sets = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let whole = format!("{assigned}{statement}");
            if sets && statement.contains('=') {
                assigned.push_str(&statement);
            }
            statement.clear();
            // What only the administrator may do is refused.
            all.extend(Some(whole).filter(|whole| !whole.contains("apt-get install")));
        }
    }
    assert_eq!(statement, "", "a script ends in the middle of a statement");
    all.retain(|statement| !statement.trim().is_empty());
    all
}

#[test]
fn a_disguise_changes_nothing_for_the_better() {
    let sandbox = Sandbox::new();
    let denied = [
        "rm -rf /",
        "rm -rf /etc",
        "rm -r -f /usr",
        "mkfs.ext4 /dev/sda1",
        "dd if=/dev/zero of=/dev/sda",
        "shutdown now",
        "useradd evil",
        "chmod -R 777 /",
    ];
    for command in denied {
        let mut lines = vec![command.to_owned()];
        lines.extend(disguises(command));
        let answers = verdicts(&sandbox, "agent", &lines);
        let original = severity(&answers[0]);
        assert!(
            original >= severity("ask"),
            "{command} is only {}",
            answers[0]
        );
        for (line, answer) in lines.iter().zip(&answers) {
            assert!(
                severity(answer) >= original,
                "`{command}` is {}, but `{line}` is {answer}",
                answers[0]
            );
        }
    }
}

#[test]
fn a_disguise_does_not_make_harmless_commands_guilty() {
    let sandbox = Sandbox::new();
    for command in [
        "ls -la src",
        "git status",
        "cargo test",
        "grep -rn pattern src",
        "npm test",
        "python3 -m pytest tests",
    ] {
        let mut lines = vec![command.to_owned()];
        lines.extend(disguises(command));
        let answers = verdicts(&sandbox, "agent", &lines);
        for (line, answer) in lines.iter().zip(&answers) {
            assert_ne!(answer, "deny", "`{line}`");
        }
    }
}

#[test]
fn text_is_not_a_command() {
    let sandbox = Sandbox::new();
    let lines: Vec<String> = [
        "git commit -m \"remove rm -rf / from docs\"",
        "echo 'sudo rm -rf /'",
        "cat > notes.md <<'EOF'\nrun sudo rm -rf / to clean up\nEOF",
        "grep -rn 'curl | sh' docs",
        "# sudo rm -rf /\nls",
        "printf '%s\\n' 'mkfs.ext4 /dev/sda'",
    ]
    .map(str::to_owned)
    .to_vec();
    for (line, answer) in lines.iter().zip(verdicts(&sandbox, "agent", &lines)) {
        assert_eq!(answer, "allow", "`{line}`");
    }
}
