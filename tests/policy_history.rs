//! `policy whatif` and `policy learn`: the past as a test of policies.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::process::Output;

use crate::common::Sandbox;
use serde_json::Value;

const OPEN: &str =
    "mode: observe\nworld: { enabled: \"off\" }\nfs: { write: [\"/**\"], protect: [] }\n";

fn text(output: &Output, status: i32) -> String {
    assert_eq!(output.status.code(), Some(status), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(output: &Output, status: i32) -> Value {
    serde_json::from_str(&text(output, status)).unwrap()
}

#[test]
fn whatif_names_what_another_policy_would_decide_differently() {
    let sandbox = Sandbox::with_policy(OPEN);
    for _ in 0..3 {
        sandbox.run(["-c", "/bin/echo one"]);
    }
    sandbox.run(["-c", "/bin/true | /bin/cat"]);
    sandbox.run(["run", "--", "/bin/echo", "two words"]);
    let strict = sandbox.policy(
        "strict",
        "id: strict\nname: Strict\nextends: test\nmode: enforce\ncommands:\n  denied: [\"echo one\"]\n  ask: [\"echo 'two words'\"]\n",
    );
    let strict = strict.to_str().unwrap();

    let shown = text(&sandbox.run(["policy", "whatif", strict]), 1);
    let first = shown.lines().next().unwrap();
    for part in ["allow -> deny", "3x", "/bin/echo one"] {
        assert!(first.contains(part), "{shown}");
    }
    assert!(shown.contains("by commands.denied `echo one`"), "{shown}");
    assert!(
        shown.ends_with("2 of 3 commands (5 runs) would be decided differently\n"),
        "{shown}"
    );

    let found = json(&sandbox.run(["policy", "whatif", "strict", "--json"]), 1);
    let changes = found["changes"].as_array().unwrap();
    assert_eq!(changes[0]["to"], "deny");
    assert_eq!(changes[0]["count"], 3);
    assert_eq!(changes[1]["to"], "ask");
    assert_eq!(changes[1]["cmd"], "/bin/echo 'two words'");

    // The same rules that only observe decide differently in name only, and that is said.
    sandbox.policy(
        "watch",
        "id: watch\nname: Watch\nextends: test\ncommands: { denied: [\"echo one\"] }\n",
    );
    let found = json(&sandbox.run(["policy", "whatif", "watch", "--json"]), 1);
    assert_eq!(found["changes"][0]["to"], "would_deny");

    let same = text(&sandbox.run(["policy", "whatif", "test"]), 0);
    assert!(same.starts_with("0 of 3 commands"), "{same}");
    let none = text(
        &sandbox.run(["policy", "whatif", "strict", "--until", "2001-01-01"]),
        0,
    );
    assert!(none.starts_with("0 of 0 commands"), "{none}");
}

#[test]
fn learn_proposes_what_lets_the_past_pass_and_nothing_more() {
    let sandbox = Sandbox::with_policy(
        "mode: observe\nworld: { enabled: \"off\" }\nfs: { read: [\"/**\"], write: [\"$PROJECT/**\"], protect: [] }\nnet: { allowed: [known.test] }\ncommands: { allowed: [\"true\"], denied: [\"false *\"] }\n",
    );
    let outside = sandbox.home().parent().unwrap().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let touched = outside.join("file").to_str().unwrap().to_owned();
    for line in [
        "/bin/true",
        "/bin/echo hello",
        "/bin/cat one",
        "/bin/cat two",
        "/bin/cat three",
        &format!("/bin/touch {touched}"),
        "/bin/false --really",
    ] {
        sandbox.run(["-c", line]);
    }
    let strict = "id: strict\nname: Strict\nextends: test\nmode: enforce\n";
    sandbox.policy("strict", strict);
    let found = json(
        &sandbox.run(["policy", "learn", "--policy", "strict", "--json"]),
        1,
    );
    let additions: Vec<(String, String)> = found["additions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| {
            let cell = |name: &str| row[name].as_str().unwrap().to_owned();
            (cell("list"), cell("entry"))
        })
        .collect();
    let wanted = [
        ("commands.allowed", "/bin/cat *".to_owned()),
        ("commands.allowed", "/bin/echo hello".to_owned()),
        ("commands.allowed", format!("/bin/touch {touched}")),
        ("fs.write", touched.clone()),
    ];
    let wanted: Vec<(String, String)> = wanted
        .into_iter()
        .map(|(list, entry)| (list.to_owned(), entry))
        .collect();
    assert_eq!(additions, wanted, "{found}");
    assert_eq!(found["refused"], 6, "{found}");
    assert_eq!(found["pass_with_additions"], 5, "{found}");
    let stays = found["stay_refused"].as_array().unwrap();
    assert_eq!(stays.len(), 1);
    assert!(
        stays[0]["rule"].as_str().unwrap().contains("`false *`"),
        "{found}"
    );

    // What is printed is a patch that makes a policy, and the policy does what was said.
    let learn = |more: &[&str]| {
        let mut arguments = vec!["policy", "learn", "--policy", "strict"];
        arguments.extend(more);
        sandbox.run(arguments)
    };
    let shown = text(&learn(&[]), 1);
    assert!(shown.starts_with("--- /dev/null\n+++ "), "{shown}");
    assert!(shown.contains("+extends: strict\n"), "{shown}");
    assert!(!sandbox.home().join("policies/learned.yaml").exists());
    text(&learn(&["--save", "--yes"]), 1);
    for (line, verdict) in [
        ("/bin/echo hello", "allow"),
        ("/bin/echo other", "deny"),
        ("/bin/cat anything", "allow"),
        ("/bin/false --really", "deny"),
    ] {
        let answer = json(
            &sandbox.run(["policy", "explain", "--policy", "learned", "--json", line]),
            0,
        );
        assert_eq!(answer["verdict"], verdict, "{line}");
    }
    let leftovers: Vec<_> = std::fs::read_dir(sandbox.home())
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(".learn"))
        .collect();
    assert!(leftovers.is_empty(), "{leftovers:?}");
}

#[test]
fn learn_takes_refused_names_from_the_network_record() {
    let sandbox = Sandbox::with_policy(
        "mode: observe\nworld: { enabled: \"off\" }\nfs: { write: [\"/**\"], protect: [] }\nnet: { allowed: [known.test] }\n",
    );
    sandbox.run(["-c", "/bin/true net"]);
    let trace = sandbox.home().join("trace.jsonl");
    let recorded = std::fs::read_to_string(&trace).unwrap();
    let used = r#""net":[{"host":"index.test","port":443,"tx":0,"rx":0,"refused":2},{"host":"db.test","port":5432,"tx":0,"rx":0,"refused":1},{"host":"known.test","port":443,"tx":9,"rx":9,"refused":1}],"fs_diff""#;
    std::fs::write(&trace, recorded.replace("\"fs_diff\"", used)).unwrap();
    let found = json(&sandbox.run(["policy", "learn", "--json"]), 1);
    let entries: Vec<&str> = found["additions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["entry"].as_str().unwrap())
        .collect();
    assert_eq!(entries, ["db.test:5432", "index.test"], "{found}");
    assert_eq!(found["pass_with_additions"], 1, "{found}");
}

#[test]
fn learn_vouches_for_programs_that_were_contained() {
    let sandbox = Sandbox::with_policy(
        "mode: observe\nworld: { enabled: \"off\" }\nfs: { write: [\"/**\"], protect: [] }\n",
    );
    let tool = sandbox.home().parent().unwrap().join("frobnicate");
    std::fs::write(&tool, "#!/bin/sh\n").unwrap();
    let line = format!("sh {} x", tool.display());
    sandbox.run(["-c", &line]);
    let line = format!("{} x", tool.display());
    sandbox.run(["-c", &line]);
    sandbox.policy(
        "contains",
        "id: contains\nname: Contains\nextends: test\nmode: enforce\neffects: { isolated: [\"exec:unknown\"] }\n",
    );
    let learn = ["policy", "learn", "--policy", "contains"];
    let found = json(&sandbox.run([&learn[..], &["--json"]].concat()), 0);
    assert_eq!(found["refused"], 0, "{found}");
    assert_eq!(found["contained"], 1, "{found}");
    assert_eq!(found["additions"][0]["list"], "commands.direct", "{found}");
    text(&sandbox.run([&learn[..], &["--save", "--yes"]].concat()), 0);
    for (policy, isolate) in [("contains", true), ("learned", false)] {
        let explain = ["policy", "explain", "--policy", policy, "--json", &line];
        assert_eq!(
            json(&sandbox.run(explain), 0)["isolate"],
            isolate,
            "{policy}"
        );
    }
}

#[test]
fn a_guarded_program_cannot_save_what_it_learned() {
    let sandbox = Sandbox::with_policy(
        "mode: enforce\nworld: { enabled: \"off\" }\nfs: { write: [\"/**\"], protect: [] }\ncommands: { allowed: [\"substrate *\"] }\n",
    );
    sandbox.run(["-c", "/bin/echo refused"]);
    let own = env!("CARGO_BIN_EXE_substrate");
    let line = format!("{own} policy learn --save --yes");
    let output = sandbox.run(["-c", &line]);
    assert_ne!(output.status.code(), Some(0), "{output:?}");
    assert!(!sandbox.home().join("policies/learned.yaml").exists());
}

#[test]
fn a_command_of_the_past_is_judged_in_its_own_project_and_home() {
    let sandbox = Sandbox::with_policy(OPEN);
    let places = tempfile::tempdir().unwrap();
    for name in ["plain", "elsewhere", "home"] {
        std::fs::create_dir(places.path().join(name)).unwrap();
    }
    let home = places.path().join("home");
    let run = |directory: &str, arguments: &[&str]| {
        let mut command = sandbox.substrate();
        command.current_dir(places.path().join(directory));
        command.env("HOME", &home).args(arguments).output().unwrap()
    };
    // No work tree: the project is where the command was started.
    run("plain", &["-c", "touch made"]);
    run("plain", &["-c", "touch ~/notes"]);
    sandbox.policy(
        "strict",
        "id: strict\nname: Strict\nmode: enforce\nfs: { read: [\"/**\"], write: [\"$PROJECT/**\"] }\n",
    );
    for from in ["plain", "elsewhere"] {
        let found = json(&run(from, &["policy", "whatif", "strict", "--json"]), 1);
        let changes = found["changes"].as_array().unwrap();
        assert_eq!(changes.len(), 1, "{from}: {found}");
        assert_eq!(changes[0]["cmd"], "touch ~/notes", "{from}: {found}");
    }
}
