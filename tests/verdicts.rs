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
    let output = sandbox.run([
        "policy".as_ref(),
        "test".as_ref(),
        file.as_os_str(),
        "--policy".as_ref(),
        "agent".as_ref(),
        "--json".as_ref(),
    ]);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let rate = |kind: &str, name: &str| report[kind][name].as_f64().unwrap();
    assert!(rate("guard", "rate") >= 0.95, "guard {}", report["guard"]);
    assert!(rate("pass", "rate") >= 0.99, "pass {}", report["pass"]);
    assert!(rate("pass", "asked") <= 0.08, "pass {}", report["pass"]);
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
