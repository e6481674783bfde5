//! What a shim decides: the same as the shell, at any depth, whatever the environment says.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::shim_support::{ENFORCE, OBSERVE, Rig, keeps_endings};

const FAKE_GIT: (&str, &str) = ("git", "#!/bin/sh\necho git ran: \"$@\"\n");

#[test]
fn a_denied_tool_does_not_start_and_says_why() {
    let rig = Rig::new(ENFORCE, &[FAKE_GIT], &["git"]);
    let output = rig.sh("git push origin main");
    assert_eq!(output.status.code(), Some(126));
    assert!(output.stdout.is_empty());
    let text = rig.sandbox.normal(&output.stderr);
    assert_eq!(
        text,
        "🔒 denied by policy 'test' (git push *, /sandbox/home/policies/test.yaml:8): no pushing\n"
    );
    let events = rig.sandbox.trace();
    assert_eq!(events.len(), 1, "{events:?}");
    let event = &events[0];
    assert_eq!(event["event_type"], "policy_violation");
    assert_eq!(event["outcome"], "deny");
    assert_eq!(event["component"], "shim");
    assert_eq!(
        event["argv"],
        serde_json::json!(["git", "push", "origin", "main"])
    );
    assert_eq!(event["rule"]["pattern"], "git push *");

    let output = rig
        .command("/bin/sh", true)
        .args(["-c", "git push"])
        .env("LANG", "C")
        .output()
        .unwrap();
    assert!(
        output
            .stderr
            .starts_with(b"substrate: denied by policy 'test' (git push *"),
        "{output:?}"
    );
}

#[test]
fn an_allowed_tool_leaves_two_linked_spans() {
    let rig = Rig::new(ENFORCE, &[FAKE_GIT], &["git", "make", "sh"]);
    fs::write(
        rig.sandbox.project().join("Makefile"),
        "all:\n\t@git status\n",
    )
    .unwrap();
    for mode in ["exec", "spawn"] {
        let _ = fs::remove_file(rig.sandbox.home().join("trace.jsonl"));
        if mode == "exec" && !keeps_endings() {
            crate::common::skip(
                "an_allowed_tool_leaves_two_linked_spans",
                "this kernel tells no endings to watchers",
            );
            continue;
        }
        let output = rig
            .command("make", true)
            .env("SUBSTRATE_SHIM_MODE", mode)
            .output()
            .unwrap();
        assert_eq!(output.stdout, b"git ran: status\n", "{output:?}");
        let done = rig.completed(2);
        let of = |name: &str| done.iter().find(|event| event["argv"][0] == name).unwrap();
        let (make, git) = (of("make"), of("git"));
        assert_eq!(git["parent_span"], make["span_id"]);
        assert_eq!(git["session_id"], make["session_id"]);
        assert_eq!(make["parent_span"], serde_json::Value::Null);
        for event in &done {
            assert_eq!(
                (&event["exit"], &event["signal"]),
                (&0.into(), &serde_json::Value::Null),
                "{event}"
            );
            assert_eq!(event["component"], "shim");
            assert_eq!(event["verdict"], "allow");
            assert_eq!(event["policy_id"], "test");
            assert_eq!(event["enforced"]["exec"], "shims");
            let starts = rig.sandbox.events("command_start");
            let start = starts
                .iter()
                .find(|start| start["span_id"] == event["span_id"])
                .unwrap();
            assert_eq!(start["argv"], event["argv"]);
        }
    }
}

#[test]
fn endings_are_recorded_as_they_were() {
    let rig = Rig::new(
        OBSERVE,
        &[(
            "ends",
            "#!/bin/sh\ncase $1 in sig) kill -$2 $$;; *) exit $1;; esac\n",
        )],
        &["ends"],
    );
    for mode in ["exec", "spawn"] {
        if mode == "exec" && !keeps_endings() {
            crate::common::skip(
                "endings_are_recorded_as_they_were",
                "this kernel tells no endings to watchers",
            );
            continue;
        }
        let _ = fs::remove_file(rig.sandbox.home().join("trace.jsonl"));
        for arguments in [
            &["0"][..],
            &["3"],
            &["255"],
            &["sig", "KILL"],
            &["sig", "TERM"],
        ] {
            let run = |shimmed| {
                let mut command = rig.command("ends", shimmed);
                command
                    .args(arguments)
                    .env("SUBSTRATE_SHIM_MODE", mode)
                    .status()
                    .unwrap()
            };
            assert_eq!(run(true), run(false), "{arguments:?} {mode}");
        }
        let mut seen: Vec<(String, Option<i64>, Option<i64>)> = rig
            .completed(5)
            .iter()
            .map(|event| {
                (
                    event["cmd"].as_str().unwrap().to_owned(),
                    event["exit"].as_i64(),
                    event["signal"].as_i64(),
                )
            })
            .collect();
        seen.sort();
        let expected = [
            ("ends 0", Some(0), None),
            ("ends 255", Some(255), None),
            ("ends 3", Some(3), None),
            ("ends sig KILL", Some(137), Some(9)),
            ("ends sig TERM", Some(143), Some(15)),
        ];
        assert_eq!(
            seen,
            expected.map(|(cmd, exit, signal)| (cmd.to_owned(), exit, signal)),
            "{mode}"
        );
    }
}

#[test]
fn nested_commands_are_denied_at_any_depth() {
    let rig = Rig::new(
        ENFORCE,
        &[FAKE_GIT],
        &["git", "make", "sh", "env", "python3"],
    );
    fs::write(
        rig.sandbox.project().join("Makefile"),
        "deep:\n\t@sh -c 'true; env sh -c \"git push\"'\n",
    )
    .unwrap();
    fs::write(
        rig.sandbox.project().join("deep.py"),
        "import subprocess\nraise SystemExit(subprocess.call(['make', 'deep']))\n",
    )
    .unwrap();
    let output = rig.sh("make deep");
    assert_eq!(
        output.status.code(),
        Some(2),
        "make reports its own failure: {output:?}"
    );
    assert!(
        !String::from_utf8_lossy(&output.stdout).contains("git ran"),
        "{output:?}"
    );
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("denied by policy 'test' (git push *"),
        "{output:?}"
    );
    let output = rig.sh("python3 deep.py");
    assert!(
        !String::from_utf8_lossy(&output.stdout).contains("git ran"),
        "{output:?}"
    );
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("denied by policy 'test' (git push *"),
        "{output:?}"
    );
}

#[test]
fn no_variable_skips_the_check() {
    let rig = Rig::new(
        &format!("{ENFORCE}shims: {{ allow_bypass: false }}\n"),
        &[FAKE_GIT],
        &["git"],
    );
    let elsewhere = tempfile::tempdir().unwrap();
    let path = elsewhere.path().to_str().unwrap();
    for (name, value) in [
        ("SHIM_BYPASS", "1"),
        (
            "SUBSTRATE_PARENT_SPAN",
            "ses_01890a5d-ac96-7000-8000-000000000000/spn_01890a5d-ac96-7000-8000-000000000000",
        ),
        ("SUBSTRATE_PARENT_SPAN", "garbage"),
        ("SUBSTRATE_HOME", path),
        ("HOME", path),
        ("SUBSTRATE_WORLD", "disabled"),
        ("SUBSTRATE_SHIM_MODE", "spawn"),
        ("SUBSTRATE_SHIM_MODE", "exec"),
        ("SUBSTRATE_AGENT_ID", "root"),
        ("LD_PRELOAD", "/nonexistent.so"),
    ] {
        let output = rig
            .command("git", true)
            .arg("push")
            .env(name, value)
            .output()
            .unwrap();
        assert_eq!(
            output.status.code(),
            Some(126),
            "{name}={value}: {output:?}"
        );
        assert!(output.stdout.is_empty(), "{name}={value}");
    }
    let output = rig
        .command("git", true)
        .arg("push")
        .env_clear()
        .env("PATH", rig.path(true))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(126), "{output:?}");
}

#[test]
fn the_bypass_works_where_it_is_permitted_and_is_recorded() {
    let rig = Rig::new(ENFORCE, &[FAKE_GIT], &["git"]);
    for (value, runs) in [
        (None, false),
        (Some("0"), false),
        (Some("true"), false),
        (Some(""), false),
        (Some("1"), true),
    ] {
        let mut command = rig.command("git", true);
        command.arg("push");
        if let Some(value) = value {
            command.env("SHIM_BYPASS", value);
        }
        let output = command.output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(if runs { 0 } else { 126 }),
            "{value:?}: {output:?}"
        );
    }
    let done = rig.completed(1);
    assert_eq!(done[0]["reason"], "SHIM_BYPASS=1");
    assert_eq!(
        done[0]["degraded"],
        serde_json::json!(["the check was bypassed"])
    );
}

#[test]
fn observing_runs_and_records_what_would_have_been() {
    let rig = Rig::new(
        &format!("{OBSERVE}  ask: [\"git tag *\"]\n"),
        &[FAKE_GIT],
        &["git"],
    );
    for (line, outcome) in [("git push", "would_deny"), ("git tag v1", "would_ask")] {
        let output = rig.sh(line);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        let events = rig.sandbox.events("policy_violation");
        assert_eq!(events.last().unwrap()["outcome"], outcome, "{line}");
    }
    let by_shim = rig.completed(2);
    // Whichever way a command comes, its start and its end name the same rule.
    for (at, line) in ["git push", "git tag v1"].iter().enumerate() {
        let mut shell = rig.sandbox.substrate();
        let shell = shell.env("PATH", rig.path(false)).args(["-c", line]);
        assert_eq!(shell.output().unwrap().status.code(), Some(0), "{line}");
        let start = rig.sandbox.events("command_start");
        let done = rig.sandbox.events("command_complete");
        for event in [start.last().unwrap(), done.last().unwrap()] {
            for field in ["rule", "verdict"] {
                assert_eq!(event[field], by_shim[at][field], "{line}: {event}");
            }
        }
    }
}

#[test]
fn an_isolated_tool_keeps_the_span_of_its_shim() {
    let policy = OBSERVE.replace("  denied:", "  isolated: [\"expr *\"]\n  denied:");
    let rig = Rig::new(&policy, &[], &["expr"]);
    let output = rig.sh("expr 1 + 1");
    assert_eq!(output.stdout, b"2\n", "{output:?}");
    let done = rig.completed(1);
    let starts = rig.sandbox.events("command_start");
    assert_eq!((starts.len(), done.len()), (1, 1), "one command, one span");
    assert_eq!(starts[0]["span_id"], done[0]["span_id"]);
    for event in [&starts[0], &done[0]] {
        assert_eq!(event["component"], "shim", "{event}");
        assert_eq!(event["place"], "isolated", "{event}");
    }
}

#[test]
fn the_shim_and_the_shell_agree() {
    let policy = format!(
        "{ENFORCE}    - {{ pattern: \"/usr/bin/env -i *\", reason: \"by path\" }}\n    - \"rm -rf /\"\n    - \"chmod 777 *\"\n  ask: [\"git tag *\"]\neffects:\n  denied: [\"write:/etc/**\"]\n"
    );
    let tools = [
        "git", "rm", "chmod", "env", "sh", "cp", "tee", "xargs", "find", "nice", "timeout", "true",
    ];
    let rig = Rig::new(&policy, &[FAKE_GIT], &tools);
    for argv in [
        &["git", "status"][..],
        &["git", "push"],
        &["git", "-C", "/tmp", "push", "--force"],
        &["git", "tag", "v1"],
        &["rm", "-r", "-f", "//"],
        &["rm", "--no-preserve-root", "-rf", "/", "/tmp/x"],
        &["chmod", "-R", "777", "/nonexistent"],
        &["env", "-i", "true"],
        &["env", "git", "push"],
        &["nice", "-n", "5", "git", "push"],
        &["timeout", "5", "git", "push"],
        &["sh", "-c", "git push"],
        &["sh", "-c", "true && git push"],
        &["sh", "-c", "echo $(git push)"],
        &["cp", "/dev/null", "/etc/substrate-test-nonexistent"],
        &["tee", "/etc/substrate-test-nonexistent"],
        &["xargs", "git", "push"],
        &["find", "/nonexistent", "-exec", "git", "push", ";"],
        &["true"],
    ] {
        let shim = rig
            .command(argv[0], true)
            .args(&argv[1..])
            .output()
            .unwrap();
        let mut shell = rig.sandbox.substrate();
        let shell = shell
            .env("PATH", rig.path(false))
            .args(["run", "--"])
            .args(argv)
            .output()
            .unwrap();
        let refusal = |text: &[u8]| {
            let text = String::from_utf8_lossy(text).into_owned();
            text.lines()
                .find(|line| line.contains("denied by policy"))
                .map(str::to_owned)
        };
        assert_eq!(
            refusal(&shim.stderr),
            refusal(&shell.stderr),
            "{argv:?}\nshim {shim:?}\nshell {shell:?}"
        );
        assert_eq!(
            shim.status.code(),
            shell.status.code(),
            "{argv:?}\nshim {shim:?}\nshell {shell:?}"
        );
    }
}

#[test]
fn a_session_with_a_policy_of_its_own_holds_inside_shims() {
    let rig = Rig::new(OBSERVE, &[FAKE_GIT], &["git"]);
    rig.sandbox.policy("strict", "id: strict\nname: Strict\nmode: enforce\nworld: { enabled: \"off\" }\nfs: { write: [\"/**\"], protect: [] }\ncommands:\n  denied: [\"git fetch *\"]\n");
    let script = rig.bin.join("indirect");
    crate::common::script(
        &script,
        "#!/bin/sh\nunset SUBSTRATE_PARENT_SPAN\ngit fetch\n",
    );
    let mut command = rig.sandbox.substrate();
    let output = command
        .env("PATH", rig.path(true))
        .args(["--policy", "strict", "-c", "indirect; true"])
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("denied by policy"),
        "{output:?}"
    );
    assert!(
        !String::from_utf8_lossy(&output.stdout).contains("git ran"),
        "{output:?}"
    );
    let output = rig.sh("git fetch");
    assert_eq!(
        output.stdout, b"git ran: fetch\n",
        "nothing encloses this one: {output:?}"
    );
}

/// The home of the shim isolates what the home of the session around it asks about: the stricter counts, once.
#[test]
fn what_a_shim_isolates_is_still_asked_about_by_the_session_of_another_home() {
    let policy = OBSERVE.replace("  denied:", "  isolated: [\"expr *\"]\n  denied:");
    let rig = Rig::new(&policy, &[], &["expr"]);
    let around = crate::common::Sandbox::with_policy(
        "mode: enforce\nworld: { enabled: \"off\" }\nfs: { write: [\"/**\"], protect: [] }\ncommands:\n  ask: [\"expr *\"]\n",
    );
    crate::common::script(&rig.bin.join("indirect"), "#!/bin/sh\nexpr 1 + 1\n");
    let output = rig
        .sandbox
        .substrate()
        .env("PATH", rig.path(true))
        .env("SUBSTRATE_HOME", around.home())
        .args(["-c", "indirect; true"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("expr *"), "{output:?}");
    assert!(
        !String::from_utf8_lossy(&output.stdout).contains('2'),
        "{output:?}"
    );
    // By itself it is isolated, and runs.
    assert_eq!(rig.sh("expr 1 + 1").stdout, b"2\n");
}

#[test]
fn an_edited_policy_holds_for_the_next_command() {
    let rig = Rig::new(OBSERVE, &[FAKE_GIT], &["git"]);
    assert_eq!(rig.sh("git push").status.code(), Some(0));
    rig.sandbox
        .policy("test", &format!("id: test\nname: Test\n{ENFORCE}"));
    assert_eq!(rig.sh("git push").status.code(), Some(126));
    rig.sandbox
        .policy("test", &format!("id: test\nname: Test\n{OBSERVE}"));
    assert_eq!(rig.sh("git push").status.code(), Some(0));
}

/// Makes the link to the full `substrate` lead nowhere.
fn relink(rig: &Rig) {
    let path = rig.shims().join(".substrate");
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/nonexistent/substrate", &path).unwrap();
}

/// Faults of Substrate's own files, one at a time.
/// A fault by name, and how it is made.
type Fault = (&'static str, fn(&Rig));

fn faults() -> Vec<Fault> {
    fn caches(rig: &Rig) -> Vec<std::path::PathBuf> {
        fs::read_dir(rig.sandbox.home().join("cache"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    }
    vec![
        ("cache cut short", |rig| {
            for path in caches(rig) {
                let bytes = fs::read(&path).unwrap();
                fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
            }
        }),
        ("cache overwritten", |rig| {
            caches(rig)
                .iter()
                .for_each(|path| fs::write(path, "not a policy").unwrap())
        }),
        ("cache empty", |rig| {
            caches(rig)
                .iter()
                .for_each(|path| fs::write(path, "").unwrap())
        }),
        ("cache writable by others", |rig| {
            for path in caches(rig) {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
            }
        }),
        ("cache gone", |rig| {
            fs::remove_dir_all(rig.sandbox.home().join("cache")).unwrap()
        }),
        ("cache is a file", |rig| {
            fs::remove_dir_all(rig.sandbox.home().join("cache")).unwrap();
            fs::write(rig.sandbox.home().join("cache"), "").unwrap();
        }),
        ("substrate gone", |rig| relink(rig)),
        ("pointer gone", |rig| {
            fs::remove_file(rig.shims().join(".substrate")).unwrap()
        }),
        ("key damaged", |rig| {
            fs::write(rig.sandbox.home().join("key"), "short").unwrap()
        }),
    ]
}

#[test]
fn faults_do_not_change_what_is_decided() {
    for (name, fault) in faults() {
        let rig = Rig::new(OBSERVE, &[FAKE_GIT], &["git"]);
        fault(&rig);
        let output = rig.sh("git push");
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(0), &b"git ran: push\n"[..]),
            "{name}: {output:?}"
        );

        let rig = Rig::new(ENFORCE, &[FAKE_GIT], &["git"]);
        fault(&rig);
        let output = rig.sh("git push");
        assert!(output.stdout.is_empty(), "{name}: {output:?}");
        assert!(
            matches!(output.status.code(), Some(125 | 126)),
            "{name}: {output:?}"
        );
        assert!(
            !output.stderr.is_empty(),
            "{name}: a refusal names its cause"
        );
    }
}

#[test]
fn without_cache_and_substrate_the_mode_decides() {
    let gone = |rig: &Rig| {
        fs::remove_dir_all(rig.sandbox.home().join("cache")).unwrap();
        relink(rig);
    };
    // A policy that nobody can read any more may be one that enforces.
    let rig = Rig::new(OBSERVE, &[FAKE_GIT], &["git"]);
    gone(&rig);
    let output = rig.sh("git status");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("substrate shim install"),
        "{output:?}"
    );
    // The built-in default observes for certain.
    fs::remove_file(rig.sandbox.home().join("active")).unwrap();
    let output = rig.sh("git status");
    assert_eq!(output.stdout, b"git ran: status\n", "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("runs unchecked"),
        "{output:?}"
    );
    let done = rig.completed(1);
    assert!(
        done[0]["degraded"][0]
            .as_str()
            .unwrap()
            .starts_with("unchecked"),
        "{done:?}"
    );
}

#[test]
fn an_unwritable_trace_stops_only_where_the_policy_is_enforced() {
    for (policy, code, ran) in [(OBSERVE, 0, true), (ENFORCE, 125, false)] {
        let rig = Rig::new(policy, &[FAKE_GIT], &["git"]);
        let trace = rig.sandbox.home().join("trace.jsonl");
        let _ = fs::remove_file(&trace);
        fs::create_dir(&trace).unwrap();
        let output = rig.sh("git status");
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert_eq!(!output.stdout.is_empty(), ran, "{output:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("recorded"),
            "{output:?}"
        );
    }
}

#[test]
fn odd_starts() {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::process::CommandExt;
    let rig = Rig::new(
        OBSERVE,
        &[("show", "#!/bin/sh\nprintf '%s|' \"$@\"\n")],
        &["show", "true"],
    );
    let shim = rig.shims().join("show");

    let run = |path: Option<&str>| {
        let mut command = rig.command(&shim, true);
        match path {
            Some(path) => command.env("PATH", path),
            None => command.env_remove("PATH"),
        };
        command.arg("x").current_dir(&rig.bin).output().unwrap()
    };
    assert_eq!(
        run(Some(".")).stdout,
        b"x|",
        "PATH with the current directory"
    );
    assert_eq!(run(Some(":")).stdout, b"x|", "PATH with empty entries");
    let missing = run(Some("/nonexistent"));
    assert_eq!(
        (missing.status.code(), missing.stderr.as_slice()),
        (Some(127), &b"show: command not found\n"[..])
    );
    let own = rig
        .command(rig.shims().join("true"), true)
        .env("PATH", "")
        .status()
        .unwrap();
    assert_eq!(own.code(), Some(0), "an empty PATH");
    let own = rig
        .command(rig.shims().join("true"), true)
        .env_remove("PATH")
        .status()
        .unwrap();
    assert_eq!(own.code(), Some(0), "no PATH");

    let word = std::ffi::OsStr::from_bytes(b"\xff\xfe caf\xc3\xa9");
    let output = rig.command("show", true).arg(word).output().unwrap();
    assert_eq!(output.stdout, b"\xff\xfe caf\xc3\xa9|");
    let large = "x".repeat(100_000);
    let output = rig
        .command("show", true)
        .args(std::iter::repeat_n(&large, 19))
        .output()
        .unwrap();
    assert_eq!(
        output.stdout.len(),
        19 * 100_001,
        "{:?} {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let output = rig.command(&shim, true).arg0("").arg("y").output().unwrap();
    assert_eq!(output.stdout, b"y|", "an empty argv[0]");

    let gone = tempfile::tempdir().unwrap();
    let line = format!("cd {0} && rmdir {0} && show z", gone.path().display());
    let output = rig.sh(&line);
    assert_eq!(
        output.stdout, b"z|",
        "a working directory that is gone: {output:?}"
    );
}

#[test]
fn wrappers_that_look_for_the_other_tool_do_not_loop() {
    // Finds the first git on PATH that is not itself, which is the shim.
    let wrapper = "#!/bin/sh\nIFS=:\nfor d in $PATH; do [ \"$d/git\" != \"$0\" ] && [ -x \"$d/git\" ] && exec \"$d/git\" \"$@\"; done\n";
    let rig = Rig::new(OBSERVE, &[("git", wrapper)], &["git"]);
    let other = rig.sandbox.project().join("other");
    fs::create_dir(&other).unwrap();
    crate::common::script(&other.join("git"), "#!/bin/sh\necho the other one\n");
    let path = format!(
        "{}:{}:{}:/usr/bin:/bin",
        rig.shims().display(),
        rig.bin.display(),
        other.display()
    );
    let output = rig.command("git", true).env("PATH", path).output().unwrap();
    assert_eq!(output.stdout, b"the other one\n", "{output:?}");
    let path = format!("{}:{}", rig.shims().display(), rig.bin.display());
    let output = rig.command("git", true).env("PATH", path).output().unwrap();
    assert_eq!(output.status.code(), Some(126), "{output:?}");
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("circle"),
        "{output:?}"
    );
}

#[test]
fn a_directory_with_a_profile_is_left_to_the_full_check() {
    let rig = Rig::new(ENFORCE, &[FAKE_GIT], &["git"]);
    fs::write(rig.sandbox.project().join(".substrate-profile"), "test\n").unwrap();
    assert_eq!(rig.sh("git push").status.code(), Some(126));
    let output = rig.sh("mkdir -p below && cd below && git status");
    assert_eq!(output.stdout, b"git ran: status\n", "{output:?}");
    // Without the full check nothing can be decided there.
    relink(&rig);
    let output = rig.sh("git status");
    assert_eq!(output.status.code(), Some(125), "{output:?}");
}
