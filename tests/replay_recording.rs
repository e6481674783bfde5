//! What is recorded around a command, and what is left alone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::io::Read;
use std::process::Stdio;

use crate::common::{Sandbox, skip};
use serde_json::Value;

const BASE: &str = "mode: observe\nfs: { write: [\"$PROJECT/**\"], protect: [] }\n";

fn with_output(mode: &str) -> Sandbox {
    Sandbox::with_policy(&format!("{BASE}trace: {{ output: \"{mode}\" }}\n"))
}

fn last(sandbox: &Sandbox) -> Value {
    sandbox.events("command_complete").pop().unwrap()
}

fn no_worlds(sandbox: &Sandbox, test: &str) -> bool {
    let works = sandbox.run(["world", "doctor"]).status.success();
    if !works {
        skip(test, "this machine has no full worlds");
    }
    !works
}

#[test]
fn pipes_of_a_direct_command_are_left_alone() {
    let sandbox = with_output("bounded");
    let output = sandbox.run(["-c", "readlink /proc/self/fd/1; echo x"]);
    assert_eq!(last(&sandbox)["output"]["mode"], "off");
    // The command had the very pipe that this test reads from, so it is the only writer's name.
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("pipe:["));
}

#[test]
fn record_follows_pipes() {
    let sandbox = with_output("off");
    let output = sandbox.run(["--record", "-c", "echo out; echo err >&2; exit 4"]);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(
        (&output.stdout[..], &output.stderr[..]),
        (&b"out\n"[..], &b"err\n"[..])
    );
    let recorded = &last(&sandbox)["output"];
    assert_eq!(recorded["mode"], "bounded");
    for (stream, text) in [("stdout", "out\n"), ("stderr", "err\n")] {
        assert_eq!(recorded[stream]["bytes"], 4);
        assert_eq!(recorded[stream]["via"], "pipe");
        assert_eq!(recorded[stream]["copy"], text);
    }
    sandbox.run(["run", "--record", "--", "echo", "again"]);
    assert_eq!(last(&sandbox)["output"]["stdout"]["copy"], "again\n");
    // Without the flag nothing is kept.
    sandbox.run(["-c", "echo out"]);
    assert_eq!(last(&sandbox)["output"]["mode"], "off");
}

#[test]
fn both_streams_in_one_pipe_stay_in_order() {
    let sandbox = with_output("off");
    let (mut from, end) = std::io::pipe().unwrap();
    let mut command = sandbox.substrate();
    command.args([
        "--record",
        "-c",
        "for i in 1 2 3; do echo $i; echo $i >&2; done",
    ]);
    command.stdout(end.try_clone().unwrap()).stderr(end);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut text = String::new();
    from.read_to_string(&mut text).unwrap();
    child.wait().unwrap();
    assert_eq!(text, "1\n1\n2\n2\n3\n3\n");
    let recorded = &last(&sandbox)["output"];
    assert_eq!(recorded["merged"], true);
    assert_eq!(recorded["stdout"]["copy"], text);
    assert_eq!(recorded["stderr"], Value::Null);
}

#[test]
fn a_reader_that_goes_away_is_felt() {
    let sandbox = with_output("off");
    let mut command = sandbox.substrate();
    command
        .args(["--record", "-c", "yes"])
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut first = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"y\n");
    let status = child.wait().unwrap();
    use std::os::unix::process::ExitStatusExt;
    assert!(
        status.signal() == Some(13) || status.code() == Some(1),
        "{status:?}"
    );
}

#[test]
fn files_are_read_afterwards() {
    let sandbox = with_output("digest");
    let path = sandbox.home().join("out");
    std::fs::write(&path, "before\n").unwrap();
    let append = std::fs::File::options().append(true).open(&path).unwrap();
    let mut command = sandbox.substrate();
    command.args(["-c", "echo after"]).stdout(append);
    assert!(command.status().unwrap().success());
    let recorded = last(&sandbox)["output"].clone();
    assert_eq!(recorded["mode"], "digest");
    assert_eq!(recorded["stdout"]["bytes"], 6);
    assert_eq!(recorded["stdout"]["via"], "file");
    assert_eq!(recorded["stdout"]["copy"], Value::Null);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "before\nafter\n");

    // The same text has the same digest wherever it goes.
    let fresh = std::fs::File::create(sandbox.home().join("fresh")).unwrap();
    let mut command = sandbox.substrate();
    command.args(["-c", "echo after"]).stdout(fresh);
    command.status().unwrap();
    assert_eq!(
        last(&sandbox)["output"]["stdout"]["digest"],
        recorded["stdout"]["digest"]
    );
}

#[test]
fn what_runs_in_a_world_is_followed() {
    let sandbox = with_output("bounded");
    if no_worlds(&sandbox, "what_runs_in_a_world_is_followed") {
        return;
    }
    let output = sandbox.run([
        "run",
        "--isolated",
        "--",
        "sh",
        "-c",
        "echo in; echo kept > kept",
    ]);
    assert_eq!(output.stdout, b"in\n", "{output:?}");
    let span = last(&sandbox);
    assert_eq!(span["output"]["stdout"]["copy"], "in\n");
    let context = &span["replay_context"];
    assert!(context["after_tree"].is_string(), "{span}");
    assert!(
        context["world_image_version"]
            .as_str()
            .unwrap()
            .ends_with("/full"),
        "{span}"
    );
    let replayed = sandbox.run(["replay", "-", "--verbose"]);
    assert_eq!(replayed.status.code(), Some(0), "{replayed:?}");
}

#[test]
fn a_session_world_has_its_changes_from_snapshots() {
    let policy =
        "mode: enforce\nfs: { write: [\"$PROJECT/**\"], protect: [] }\nworld: { enabled: on }\n";
    let sandbox = Sandbox::with_policy(policy);
    if no_worlds(&sandbox, "a_session_world_has_its_changes_from_snapshots") {
        return;
    }
    let output = sandbox.run(["-c", "echo x > made"]);
    assert!(output.status.success(), "{output:?}");
    let span = last(&sandbox);
    assert_eq!(span["place"], "session", "{span}");
    assert_eq!(span["fs_diff"]["strategy"], "snapshot", "{span}");
    let made = sandbox.project().join("made");
    assert_eq!(span["fs_diff"]["writes"][0], made.to_str().unwrap());
    let replayed = sandbox.run(["replay", "-"]);
    assert_eq!(replayed.status.code(), Some(0), "{replayed:?}");
}

#[test]
fn the_programs_that_a_line_names_are_recorded() {
    let sandbox = with_output("off");
    sandbox.run(["-c", "sort /dev/null | uniq; cd .; no-such-program"]);
    let span = last(&sandbox);
    let tools = span["replay_context"]["tools"].as_array().unwrap().clone();
    let names: Vec<&str> = tools
        .iter()
        .map(|tool| tool["path"].as_str().unwrap().rsplit('/').next().unwrap())
        .collect();
    assert_eq!(names, ["bash", "sort", "uniq"], "{span}");
    assert!(
        tools
            .iter()
            .all(|tool| tool["sha256"].as_str().unwrap().len() == 64)
    );
    assert_eq!(span["replay_context"]["stdin"]["kind"], "none");
    let image = span["replay_context"]["world_image_version"]
        .as_str()
        .unwrap();
    assert!(
        image.starts_with("linux-") && image.ends_with("/direct"),
        "{image}"
    );
}

#[test]
fn what_cannot_be_found_leaves_a_span_too() {
    let sandbox = with_output("off");
    let output = sandbox.run(["-c", "no-such-program --flag"]);
    assert_eq!(output.status.code(), Some(127));
    let span = last(&sandbox);
    assert_eq!(
        (&span["cmd"], &span["exit"]),
        (&"no-such-program --flag".into(), &127.into())
    );
}

#[test]
fn a_line_outside_a_work_tree_costs_nothing() {
    let sandbox = with_output("off");
    std::fs::remove_dir(sandbox.project().join(".git")).unwrap();
    sandbox.run(["-c", "true"]);
    let span = last(&sandbox);
    assert_eq!(span["fs_diff"], Value::Null);
    assert_eq!(span["replay_context"]["tools"], Value::Null);
    assert!(!sandbox.home().join("snapshots").exists());
}

/// Secrets in the forms that the trace knows, each with the part that must not be kept.
const SECRETS: &[(&str, &str)] = &[
    (
        "token ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
        "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789",
    ),
    ("AKIAIOSFODNN7EXAMPLX is the id", "IOSFODNN7EXAMPLX"),
    (
        "Authorization: Bearer abcdef0123456789abcdef",
        "abcdef0123456789abcdef",
    ),
    (
        "fetching https://me:sup3rs3cret@example.com/x",
        "sup3rs3cret",
    ),
    ("PASSWORD=correcthorsebattery", "correcthorsebattery"),
    ("--password hunter2hunter2", "hunter2hunter2"),
    ("\"api_key\": \"k3yk3yk3yk3y\"", "k3yk3yk3yk3y"),
    ("password: opensesame99", "opensesame99"),
    (
        "it's odd, don't you think: DB_TOKEN=quotedquoted77",
        "quotedquoted77",
    ),
    ("Cookie: session=cookiecookie55", "cookiecookie55"),
    (
        "-----BEGIN PRIVATE KEY-----\nMIIBVgIBADANBgkq\n-----END PRIVATE KEY-----",
        "MIIBVgIBADANBgkq",
    ),
    ("my own form: internal-4711-x", "internal-4711-x"),
];

#[test]
fn secrets_that_are_printed_are_kept_nowhere_in_the_trace() {
    let policy = format!("{BASE}trace: {{ output: bounded, redact: [\"internal-*\"] }}\n");
    for (text, secret) in SECRETS {
        let sandbox = Sandbox::with_policy(&policy);
        // Outside the project, whose files are kept as they are.
        let file = sandbox.home().parent().unwrap().join("printed");
        std::fs::write(&file, format!("{text}\n")).unwrap();
        let output = sandbox.run(["--record", "-c", "cat ~/printed; cat ~/printed >&2"]);
        assert!(
            String::from_utf8_lossy(&output.stdout).contains(secret),
            "{text}"
        );
        let trace = std::fs::read_to_string(sandbox.home().join("trace.jsonl")).unwrap();
        assert!(trace.contains("[redacted]"), "{text}: {trace}");
        for arguments in [
            &["trace", "--json"][..],
            &["trace", "show", "-"],
            &["trace", "show", "-", "--json"],
            &["trace", "export", "--csv"],
            &["trace", "export", "--otlp-json"],
            &["trace", "grep"],
            &["replay", "-", "--verbose"],
            &["replay", "-", "--json"],
        ] {
            let shown = sandbox.run(arguments);
            let said = [shown.stdout, shown.stderr].concat();
            assert!(
                !String::from_utf8_lossy(&said).contains(secret),
                "{arguments:?} {text}"
            );
        }
        assert!(!trace.contains(secret), "{text}: {trace}");
        // Nor can it be guessed from the digest: that is no plain hash of what was printed.
        let plain = substrate_trace::sha256_hex(format!("{text}\n").as_bytes());
        assert!(!trace.contains(&plain), "{text}");
    }
}

#[test]
fn record_needs_something_to_follow() {
    let sandbox = with_output("off");
    let output = sandbox.run(["--record"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("--record"), "{said}");
}
