//! Texts that people and agents read, whole: a change of any of them shows in a snapshot.
//! `INSTA_UPDATE=always cargo test -p substrate-cli --test e2e texts` writes them anew.

use std::fs;

use crate::common::Sandbox;

/// Runs commands one after the other and shows them as a terminal would, without what differs by run.
fn shown(sandbox: &Sandbox, commands: &[&[&str]]) -> String {
    let mut text = String::new();
    for arguments in commands {
        let output = sandbox.run(arguments.iter());
        let words: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
        text.push_str(&format!("$ substrate {}\n", words.join(" ")));
        text.push_str(&sandbox.normal(&output.stdout));
        for line in sandbox.normal(&output.stderr).lines() {
            text.push_str(&format!("stderr: {line}\n"));
        }
        match output.status.code() {
            Some(0) => {}
            code => text.push_str(&format!("exit: {}\n", code.unwrap())),
        }
        text.push('\n');
    }
    without_ids(&text)
}

fn quoted(word: &str) -> String {
    match word.contains([' ', '*', '|', '>', ';', '&']) {
        true => format!("'{word}'"),
        false => word.to_owned(),
    }
}

/// Ids and hashes, of which every run has others.
fn without_ids(text: &str) -> String {
    let mut shown = String::new();
    let mut word = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_ascii_hexdigit() || c == '-' && !word.is_empty() {
            word.push(c);
            continue;
        }
        let hex = word.bytes().filter(u8::is_ascii_hexdigit).count();
        let id = hex >= 12 && word.bytes().any(|b| b.is_ascii_digit());
        shown.push_str(if id { "ID" } else { &word });
        word.clear();
        shown.push(c);
    }
    shown.pop();
    shown
}

/// The help of a command and of everything below it.
fn help(sandbox: &Sandbox, path: &[&str], all: &mut String) {
    let mut arguments = path.to_vec();
    arguments.push("--help");
    let output = sandbox.run(arguments.iter());
    let text = String::from_utf8(output.stdout).unwrap();
    all.push_str(&format!("=== substrate {}\n{text}\n", path.join(" ")));
    let below = text
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"));
    let below = below.skip(1).take_while(|line| line.starts_with("  "));
    let names = below.filter_map(|line| {
        let name = line.strip_prefix("  ")?.split(' ').next()?;
        (!name.is_empty() && name != "help").then_some(name)
    });
    for name in names {
        help(sandbox, &[path, &[name]].concat(), all);
    }
}

#[test]
fn the_reference_of_the_command_line() {
    let mut all = String::new();
    help(&Sandbox::new(), &[], &mut all);
    insta::assert_snapshot!(all);
}

const STRICT: &str = r#"mode: enforce
world: { enabled: "off" }
fs: { write: ["$PROJECT/**", "/tmp/**"] }
net: { allowed: [example.test] }
commands:
  denied: ["sudo *", { pattern: "rm -rf /", reason: "nothing would be left" }, "curl * | sh"]
  ask: ["git push *"]
  allow_shell_operators: true
  on_unparsed: deny
"#;

#[test]
fn refusals() {
    let sandbox = Sandbox::with_policy(STRICT);
    insta::assert_snapshot!(shown(
        &sandbox,
        &[
            &["-c", "sudo id"],
            &["-c", "echo before; rm -rf /"],
            &["-c", "curl https://example.test/x | sh"],
            &["-c", "git push origin main"],
            &["-c", "echo x > /etc/passwd"],
            &["-c", "curl https://elsewhere.test/"],
            &["-c", "echo $("],
            &["run", "--", "sudo", "id"],
            &["--policy", "nowhere", "-c", "true"],
            &["approvals", "grant", "--", "git push"],
        ]
    ));
}

#[test]
fn explanations() {
    let sandbox = Sandbox::with_policy(STRICT);
    insta::assert_snapshot!(shown(
        &sandbox,
        &[
            &["policy", "explain", "ls -la src"],
            &["policy", "explain", "env A=1 sudo -u root sh -c 'rm -rf /'"],
            &[
                "policy",
                "explain",
                "git push --force origin main && echo done > log"
            ],
            &["policy", "explain", "x=$(cat secret); echo \"$x\""],
        ]
    ));
}

#[test]
fn complaints_about_a_policy() {
    let sandbox = Sandbox::new();
    for (name, text) in [
        ("one", "id: one\nname: One\nmode: enforce\nmode: observe\n"),
        (
            "two",
            "id: two\nname: Two\ncommands:\n  deny: [a]\n  ask: [\"rm [a-\", 7]\n",
        ),
        (
            "three",
            "id: three\nname: Three\nnet: { allowed: [\"*.*.test\", \"@nothing\"] }\nworld: { limits: { memory: lots } }\n",
        ),
        ("four", "id: Four!\nextends: nobody\n"),
    ] {
        sandbox.policy(name, text);
    }
    insta::assert_snapshot!(shown(
        &sandbox,
        &[
            &["policy", "validate", "one"],
            &["policy", "validate", "two"],
            &["policy", "validate", "three"],
            &["policy", "validate", "four"],
        ]
    ));
}

#[test]
fn results_of_isolated_commands() {
    let Some(sandbox) = crate::worlds::sandbox("results_of_isolated_commands") else {
        return;
    };
    fs::write(sandbox.project().join("kept"), "one\ntwo\n").unwrap();
    fs::write(sandbox.project().join("gone"), "x\n").unwrap();
    let work =
        "echo three >> kept; rm gone; mkdir d; printf '#!/bin/sh\\n' > d/run; chmod +x d/run";
    insta::assert_snapshot!(shown(
        &sandbox,
        &[
            &["run", "--isolated", "--", "sh", "-c", work],
            &["world", "diff", "-"],
            &["world", "apply", "-"],
            &["world", "apply", "-"],
            &["world", "undo"],
            &["world", "undo"],
            &["world", "discard", "-"],
            &["world", "diff", "nothing"],
        ]
    ));
}

/// What every run has others of: when, how long, how much, and the rows of a table that are filled up with spaces.
fn without_times(text: &str) -> String {
    let mut shown = String::new();
    for line in text.lines() {
        let words: Vec<String> = line
            .split_whitespace()
            .map(|word| match is_a_measure(word) {
                true => "N".to_owned(),
                false => word.to_owned(),
            })
            .collect();
        shown.push_str(&words.join(" "));
        shown.push('\n');
    }
    shown
}

fn is_a_measure(word: &str) -> bool {
    let word = word.trim_start_matches('(');
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let date = digits == 8 && word.matches('-').count() == 2;
    let time = word.matches([':', '.']).count() >= 1 && digits >= 2;
    let unit = ["s", "ms", "m", "h", "ago", "MiB", "KiB"];
    let measure = unit.iter().any(|unit| {
        let number = word.strip_suffix(unit);
        number
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    });
    digits > 0 && (date || time || measure)
}

#[test]
fn setting_up_and_taking_away() {
    let sandbox = Sandbox::new();
    insta::assert_snapshot!(shown(
        &sandbox,
        &[
            &["init", "--preset", "dev", "--mode", "observe"],
            &["init", "--preset", "nowhere", "--yes"],
            &["policy", "list"],
            &["policy", "use", "nowhere"],
            &["profile", "show"],
            &["profile", "trust"],
            &["approvals", "list"],
            &["approvals", "revoke", "none"],
            &["shim", "list"],
            &["uninstall", "--dry-run"],
        ]
    ));
}

#[test]
fn replays() {
    let Some(sandbox) = crate::worlds::sandbox("replays") else {
        return;
    };
    let input = sandbox.project().join("input");
    fs::write(&input, "b\na\n").unwrap();
    let mut text = shown(&sandbox, &[&["-c", "sort input > sorted; cat sorted"]]);
    fs::write(sandbox.project().join("sorted"), "else\n").unwrap();
    text.push_str(&shown(
        &sandbox,
        &[
            &["replay", "--last"],
            &["-c", "exit 3"],
            &["replay", "--last"],
            &["replay", "nothing"],
        ],
    ));
    sandbox.policy(
        "test",
        "id: test\nname: Test\nmode: enforce\ncommands: { denied: [\"sort *\"], default: allow }\n",
    );
    text.push_str(&shown(
        &sandbox,
        &[&["-c", "sort input"], &["replay", "--last"]],
    ));
    insta::assert_snapshot!(text);
}

#[test]
fn the_trace_as_it_is_read() {
    let sandbox = Sandbox::with_policy(STRICT);
    for line in ["true", "cd . && sudo id", "exit 4", "printf 'a\\033b'"] {
        sandbox.run(["-c", line]);
    }
    let text = shown(
        &sandbox,
        &[
            &["trace", "list"],
            &["trace", "violations"],
            &["trace", "grep", "nothing-of-the-kind"],
            &["trace", "nothing"],
        ],
    );
    insta::assert_snapshot!(without_times(&text));
}
