//! `substrate replay`: the same is the same, what differs is named, and nothing else is run.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use crate::common::{Sandbox, skip};

const POLICY: &str = "mode: observe\nfs: { write: [\"$PROJECT/**\"], protect: [] }\ncommands:\n  denied: [\"forbidden *\"]\n";

/// Runs lines and replays each; answers the exit codes and what was said.
fn replayed(sandbox: &Sandbox, arguments: &[&str]) -> (Option<i32>, String) {
    let output = sandbox.run(["replay"].iter().chain(arguments));
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status.code(), said)
}

fn no_worlds(sandbox: &Sandbox, test: &str) -> bool {
    let works = sandbox.run(["world", "doctor"]).status.success();
    if !works {
        skip(test, "this machine has no full worlds");
    }
    !works
}

fn recorded(line: &str) -> Sandbox {
    let sandbox = Sandbox::with_policy(POLICY);
    std::fs::write(sandbox.project().join("input"), "b\na\n").unwrap();
    std::fs::write(sandbox.project().join("old"), "old\n").unwrap();
    sandbox.run(["-c", line]);
    sandbox
}

#[test]
fn what_is_repeated_is_the_same() {
    for line in [
        "/bin/true",
        "exit 7",
        "echo hello",
        "sort input > sorted",
        "rm old; mkdir -p a/b; echo x > a/b/c",
        "chmod 700 input",
        "cat input | tr a-z A-Z > upper; false",
        "kill -9 $$",
        "ln -s input link; mv old new",
    ] {
        let sandbox = recorded(line);
        if no_worlds(&sandbox, "what_is_repeated_is_the_same") {
            return;
        }
        let before = std::fs::read_dir(sandbox.project()).unwrap().count();
        for _ in 0..2 {
            let (code, said) = replayed(&sandbox, &["--last", "--verbose"]);
            assert_eq!(code, Some(0), "{line}: {said}");
            assert!(
                said.contains("\nsame (exit and files only)\n")
                    && said.contains("[replay] world: full"),
                "{said}"
            );
        }
        let after = std::fs::read_dir(sandbox.project()).unwrap().count();
        assert_eq!(before, after, "{line} touched the host");
    }
}

#[test]
fn it_starts_from_the_files_of_then() {
    let sandbox = recorded("sort input > sorted");
    if no_worlds(&sandbox, "it_starts_from_the_files_of_then") {
        return;
    }
    let input = sandbox.project().join("input");
    std::fs::write(&input, "other\n").unwrap();
    std::fs::remove_file(sandbox.project().join("old")).unwrap();
    let (code, said) = replayed(&sandbox, &["-"]);
    assert_eq!(
        (code, said.as_str()),
        (Some(0), "same (exit and files only)\n")
    );
    assert_eq!(std::fs::read_to_string(&input).unwrap(), "other\n");
    assert!(!sandbox.project().join("old").exists());
}

#[test]
fn what_differs_is_named() {
    let sandbox = recorded("date +%N > now; test ! -e /sandbox-marker");
    if no_worlds(&sandbox, "what_differs_is_named") {
        return;
    }
    let (code, said) = replayed(&sandbox, &["-"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.starts_with("different (exit and files only)\n")
            && said.contains("now has another content"),
        "{said}"
    );
    let output = sandbox
        .substrate()
        .args(["--replay", "-", "--replay-verbose"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let (_, said) = replayed(&sandbox, &["-", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(answer["same"], false);
    assert_eq!(answer["differences"][0]["what"], "file");
}

#[test]
fn nothing_is_run_that_was_not_recorded() {
    let sandbox = recorded("echo genuine > made");
    let path = sandbox.home().join("trace.jsonl");
    let genuine = std::fs::read_to_string(&path).unwrap();
    let (start, end) = genuine.trim_end().rsplit_once('\n').unwrap();
    let id = sandbox.events("command_complete")[0]["span_id"].clone();
    let id = id.as_str().unwrap();
    let foreign = {
        let other = recorded("echo foreign > made");
        let text = std::fs::read_to_string(other.home().join("trace.jsonl")).unwrap();
        let theirs = other.events("command_complete")[0]["span_id"].clone();
        let line = text.trim_end().rsplit_once('\n').unwrap().1.to_owned();
        line.replace(theirs.as_str().unwrap(), id)
    };
    let unsigned = {
        let at = end.rfind(",\"digest\":\"").unwrap();
        format!("{},\"digest\":null}}}}", &end[..at])
    };
    let edited = end.replace("echo genuine", "echo altered");
    for (what, trace) in [
        ("edited", format!("{start}\n{edited}\n")),
        (
            "edited, after the genuine one",
            format!("{start}\n{end}\n{edited}\n"),
        ),
        (
            "with another exit",
            format!("{start}\n{}\n", end.replace("\"exit\":0", "\"exit\":1")),
        ),
        (
            "with a doubled member",
            format!(
                "{start}\n{}\n",
                end.replacen("{\"v\"", "{\"cmd\":\"x\",\"v\"", 1)
            ),
        ),
        (
            "with another directory",
            format!("{start}\n{}\n", end.replace("/project\"", "/home\"")),
        ),
        ("cut", format!("{start}\n{}\n", &end[..end.len() - 10])),
        (
            "cut within the command",
            format!("{start}\n{}\n", &end[..end.find("genuine").unwrap()]),
        ),
        ("without a digest", format!("{start}\n{unsigned}\n")),
        ("of another home", format!("{start}\n{foreign}\n")),
        (
            "of another home, after the genuine one",
            format!("{start}\n{end}\n{foreign}\n"),
        ),
        (
            "with a space in it",
            format!("{start}\n{}\n", end.replacen(",\"exit\"", ", \"exit\"", 1)),
        ),
        ("only begun", format!("{start}\n")),
    ] {
        std::fs::write(&path, &trace).unwrap();
        let (code, said) = replayed(&sandbox, &[id, "--keep"]);
        assert_eq!(code, Some(125), "{what}: {said}");
        let worlds = std::fs::read_dir(sandbox.home().join("worlds"));
        assert!(
            worlds.is_err() || worlds.unwrap().count() == 0,
            "{what} was run"
        );
    }
    // The same line twice says nothing new.
    std::fs::write(&path, format!("{start}\n{end}\n{end}\n")).unwrap();
    if !no_worlds(&sandbox, "nothing_is_run_that_was_not_recorded") {
        let (code, said) = replayed(&sandbox, &[id]);
        assert_eq!(code, Some(0), "{said}");
    }

    std::fs::write(&path, &genuine).unwrap();
    std::fs::remove_dir_all(sandbox.home().join("snapshots/trees")).unwrap();
    let (code, said) = replayed(&sandbox, &["-"]);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("snapshot") && said.contains("gone"), "{said}");

    let sandbox = recorded("echo --password=hunter2hunter2");
    let (code, said) = replayed(&sandbox, &["-"]);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("secrets"), "{said}");
}

#[test]
fn a_snapshot_that_was_tampered_with_is_not_used() {
    let sandbox = Sandbox::with_policy(POLICY);
    if no_worlds(&sandbox, "a_snapshot_that_was_tampered_with_is_not_used") {
        return;
    }
    crate::common::script(
        &sandbox.project().join("build.sh"),
        "#!/bin/sh\necho built\n",
    );
    sandbox.run(["-c", "./build.sh"]);
    std::fs::remove_file(sandbox.project().join("build.sh")).unwrap();
    let mut changed = 0;
    for dir in std::fs::read_dir(sandbox.home().join("snapshots/objects")).unwrap() {
        for file in std::fs::read_dir(dir.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if std::fs::read(&path).unwrap().starts_with(b"#!/bin/sh") {
                std::fs::write(&path, "#!/bin/sh\necho evil\n").unwrap();
                changed += 1;
            }
        }
    }
    assert_eq!(changed, 1);
    let (code, said) = replayed(&sandbox, &["-"]);
    assert_eq!(code, Some(125), "{said}");
    assert!(said.contains("altered"), "{said}");
}

/// Where a tool may lie so that worlds see it.
fn tool(sandbox: &Sandbox) -> std::path::PathBuf {
    let bin = sandbox.home().parent().unwrap().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let share = format!(
        "write: [\"$PROJECT/**\"], share: [\"{}/**\"]",
        bin.display()
    );
    let policy = POLICY.replace("write: [\"$PROJECT/**\"]", &share);
    sandbox.policy("test", &format!("id: test\nname: Test\n{policy}"));
    bin.join("tool")
}

/// Runs lines as one session, as an agent does that passes on its span.
fn session(sandbox: &Sandbox, lines: &[&str]) -> String {
    let (session, span) = (
        substrate_trace::SessionId::new(),
        substrate_trace::SpanId::new(),
    );
    for line in lines {
        let mut command = sandbox.substrate();
        command.env("SUBSTRATE_PARENT_SPAN", format!("{session}/{span}"));
        command.args(["--record", "-c", line]).output().unwrap();
    }
    session.to_string()
}

#[test]
fn a_session_is_replayed_on_its_own_results() {
    let sandbox = Sandbox::with_policy(POLICY);
    if no_worlds(&sandbox, "a_session_is_replayed_on_its_own_results") {
        return;
    }
    let project = sandbox.project();
    std::fs::write(project.join(".gitignore"), "*.o\n").unwrap();
    let tool = tool(&sandbox);
    crate::common::script(&tool, "#!/bin/sh\necho two\n");
    let second = format!("{} >> log", tool.display());
    let id = session(
        &sandbox,
        &[
            "echo one > log; echo ignored > x.o",
            &second,
            "wc -l < log; cat x.o; rm log",
            "ls",
        ],
    );
    // What was ignored and what is there today must not matter to what the session itself made.
    std::fs::remove_file(project.join("x.o")).unwrap();
    std::fs::write(project.join("log"), "today\n").unwrap();
    let (code, said) = replayed(&sandbox, &["--session", &id]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("4 of 4: 4 the same"), "{said}");
    assert_eq!(
        std::fs::read_to_string(project.join("log")).unwrap(),
        "today\n"
    );
    assert!(!project.join("x.o").exists());

    crate::common::script(&tool, "#!/bin/sh\necho 2\n");
    let (code, said) = replayed(&sandbox, &["--session", "-", "--verbose"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("2 of 4: 1 the same, 1 different; stopped, 2 not run"),
        "{said}"
    );
    assert!(
        said.contains("log has another content") && said.contains("+2"),
        "{said}"
    );
    let worlds = std::fs::read_dir(sandbox.home().join("worlds"));
    let results = worlds.into_iter().flatten().flatten().filter(|entry| {
        // What lies aside is empty.
        !entry.file_name().to_string_lossy().starts_with(".aside-")
    });
    let left = results.count();
    let stages = std::fs::read_dir(sandbox.home().join("snapshots/stage"))
        .unwrap()
        .count();
    assert_eq!((left, stages), (0, 0), "what a replay made is gone with it");
}

#[test]
fn a_session_goes_on_from_what_others_changed_in_between() {
    let sandbox = Sandbox::with_policy(POLICY);
    if no_worlds(
        &sandbox,
        "a_session_goes_on_from_what_others_changed_in_between",
    ) {
        return;
    }
    let session = substrate_trace::SessionId::new();
    let parent = format!("{session}/{}", substrate_trace::SpanId::new());
    let run = |line: &str| {
        let mut command = sandbox.substrate();
        command.env("SUBSTRATE_PARENT_SPAN", &parent);
        command.args(["-c", line]).output().unwrap();
    };
    run("echo one > file");
    std::fs::write(sandbox.project().join("file"), "edited\n").unwrap();
    run("cp file copy");
    let (code, said) = replayed(&sandbox, &["--session", "-", "--verbose"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("warn: files: 1 names were changed by something else"),
        "{said}"
    );
}

#[test]
fn several_are_replayed_each_on_its_own_files() {
    let sandbox = Sandbox::with_policy(POLICY);
    if no_worlds(&sandbox, "several_are_replayed_each_on_its_own_files") {
        return;
    }
    for line in [
        "echo 1 > a",
        "cat a; echo 2 > a",
        "date +%N > b",
        "cat a; rm a",
    ] {
        sandbox.run(["-c", line]);
    }
    let (code, said) = replayed(&sandbox, &["--last", "4"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("4 of 4: 3 the same, 1 different"), "{said}");
    let (code, said) = replayed(&sandbox, &["--last", "1"]);
    assert_eq!((code, said.contains("same")), (Some(0), true), "{said}");
    let (code, said) = replayed(&sandbox, &["--since", "1h", "--json"]);
    assert_eq!((code, said.lines().count()), (Some(1), 4), "{said}");
    let (code, said) = replayed(&sandbox, &["--session", "-"]);
    assert_eq!((code, said.contains("1 of 1")), (Some(0), true), "{said}");
    let (code, said) = replayed(&sandbox, &["--since", "2001-01-01", "--last", "2"]);
    assert_eq!((code, said.contains("2 of 2")), (Some(1), true), "{said}");
}

#[test]
fn a_new_result_can_be_accepted() {
    let sandbox = Sandbox::with_policy(POLICY);
    if no_worlds(&sandbox, "a_new_result_can_be_accepted") {
        return;
    }
    let tool = tool(&sandbox);
    crate::common::script(&tool, "#!/bin/sh\necho one > made; echo out\n");
    let line = tool.display().to_string();
    sandbox.run(["--record", "-c", &line]);
    let id = sandbox.events("command_complete")[0]["span_id"].clone();
    let id = id.as_str().unwrap();
    crate::common::script(&tool, "#!/bin/sh\necho two > made; echo other; exit 3\n");
    assert_eq!(replayed(&sandbox, &[id]).0, Some(1));
    let (code, said) = replayed(&sandbox, &[id, "--update"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.starts_with("updated\n") && said.contains("exit: it was 0, now it is 3"),
        "{said}"
    );
    let (code, said) = replayed(&sandbox, &[id, "--verbose"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("warn: tool"), "{said}");
    crate::common::script(&tool, "#!/bin/sh\necho one > made; echo out\n");
    assert_eq!(
        replayed(&sandbox, &[id]).0,
        Some(1),
        "the old result is not the record any more"
    );
    // Accepting what is the same writes nothing.
    crate::common::script(&tool, "#!/bin/sh\necho two > made; echo other; exit 3\n");
    let before = sandbox.trace().len();
    assert_eq!(replayed(&sandbox, &[id, "--update"]).0, Some(0));
    assert_eq!(sandbox.trace().len(), before);
    // It ran once, whatever became its record, and every list of what ran says so.
    for arguments in [
        &["trace", "list", "--json"][..],
        &["trace", "list", "--json", "--last", "9"],
        &["trace", "export", "--csv"],
    ] {
        let said = sandbox.run(arguments).stdout;
        let said = String::from_utf8(said).unwrap();
        assert_eq!(said.matches(id).count(), 1, "{arguments:?}: {said}");
    }
    let stats = sandbox.run(["trace", "stats", "--json"]).stdout;
    let stats: serde_json::Value = serde_json::from_slice(&stats).unwrap();
    assert_eq!(stats["spans"], 1, "{stats}");
}

#[test]
fn what_a_replay_keeps_has_a_name() {
    let sandbox = Sandbox::with_policy(POLICY);
    if no_worlds(&sandbox, "what_a_replay_keeps_has_a_name") {
        return;
    }
    sandbox.run(["--record", "-c", "echo one > made"]);
    let (code, said) = replayed(&sandbox, &["-", "--keep"]);
    assert_eq!(code, Some(0), "{said}");
    let output = sandbox.run(["world", "status"]).stdout;
    let status = String::from_utf8(output).unwrap();
    let name = status.split_whitespace().nth(1).unwrap();
    assert_eq!(name.len(), 12, "{status}");
    let diff = sandbox.run(["world", "diff", name, "--patch"]).stdout;
    let diff = String::from_utf8(diff).unwrap();
    assert!(diff.contains("b/made"), "{name}: {diff}");
}

#[test]
fn a_policy_without_worlds_cannot_replay() {
    let sandbox = recorded("echo x > x");
    let off = format!("{POLICY}world: {{ enabled: \"off\" }}\n");
    let file = sandbox.policy("none", &format!("id: none\nname: None\n{off}"));
    let (code, said) = replayed(&sandbox, &["-", "--policy", file.to_str().unwrap()]);
    assert!(matches!(code, Some(0 | 125)), "{code:?} {said}");
}

#[test]
fn what_is_denied_today_is_not_run() {
    let sandbox = recorded("forbidden thing; echo ran > ran");
    let strict = POLICY.replace("observe", "enforce");
    let file = sandbox.policy("strict", &format!("id: strict\nname: Strict\n{strict}"));
    let (code, said) = replayed(&sandbox, &["-", "--policy", file.to_str().unwrap()]);
    assert_eq!(code, Some(126), "{said}");
    assert!(said.contains("forbidden *"), "{said}");
}

#[test]
fn the_verdict_says_what_was_compared() {
    let sandbox = Sandbox::with_policy(POLICY);
    if no_worlds(&sandbox, "the_verdict_says_what_was_compared") {
        return;
    }
    // Without a work tree there is no snapshot, so neither files nor output are known.
    std::fs::remove_dir(sandbox.project().join(".git")).unwrap();
    sandbox.run(["-c", "true; echo x > new"]);
    let (code, said) = replayed(&sandbox, &["--last"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("same (exit only)\n"), "{said}");

    std::fs::create_dir(sandbox.project().join(".git")).unwrap();
    let line = ["--record", "-c", "true; echo x > made"];
    assert!(
        sandbox
            .substrate()
            .args(line)
            .output()
            .unwrap()
            .status
            .success()
    );
    std::fs::remove_file(sandbox.project().join("made")).unwrap();
    let (_, said) = replayed(&sandbox, &["--last"]);
    assert_eq!(said, "same\n", "everything was compared");
    let (_, said) = replayed(&sandbox, &["--last", "--json"]);
    let answer: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        answer["compared"],
        serde_json::json!(["exit", "output", "files"])
    );
    let made = sandbox.project().join("made");
    assert_eq!(answer["fs_diff"]["writes"][0], made.to_str().unwrap());
    let scope = format!("fs.write:{}", made.display());
    assert!(
        answer["scopes"].as_array().unwrap().contains(&scope.into()),
        "{said}"
    );
}

#[test]
fn a_changed_policy_is_told_unasked() {
    let sandbox = recorded("true; echo x > new");
    if no_worlds(&sandbox, "a_changed_policy_is_told_unasked") {
        return;
    }
    std::fs::remove_file(sandbox.project().join("new")).unwrap();
    sandbox.policy("test", &format!("id: test\nname: Test again\n{POLICY}"));
    let (code, said) = replayed(&sandbox, &["--last"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("  drift: policy: 'test' has another content now"),
        "{said}"
    );
}
