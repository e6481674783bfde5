//! Wrong, broken and hostile input: a clear message, no panic, nothing lost, nobody locked out.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::process::Stdio;

use crate::common::{Sandbox, skip};

/// What a policy file's mistake looks like to the person who made it.
fn complaint(text: &str) -> String {
    let sandbox = Sandbox::new();
    let path = sandbox.project().join("p.yaml");
    std::fs::write(&path, text).unwrap();
    let output = sandbox.run(["policy".as_ref(), "validate".as_ref(), path.as_os_str()]);
    assert_eq!(output.status.code(), Some(1), "{text:?} was accepted");
    sandbox
        .normal(&output.stdout)
        .replace("/sandbox/project/", "")
}

#[test]
fn a_key_given_twice() {
    insta::assert_snapshot!(complaint("id: a\nname: A\nmode: observe\nmode: enforce\n"), @r"
    Policy validation error: p.yaml:4:1: `mode` is given twice, first on line 3
     --> p.yaml:4:1
      |
    4 | mode: enforce
      | ^^^^
      help: remove one of them
    Policy validation failed
    ");
}

#[test]
fn an_unknown_key() {
    insta::assert_snapshot!(complaint("id: a\nname: A\ncommands:\n  deny: [\"sudo *\"]\n"), @r#"
    Policy validation error: p.yaml:4:3: `deny` is not a known key here
     --> p.yaml:4:3
      |
    4 |   deny: ["sudo *"]
      |   ^^^^
      help: did you mean `denied`?
    Policy validation failed
    "#);
}

#[test]
fn a_pattern_that_cannot_be_right() {
    insta::assert_snapshot!(complaint("id: a\nname: A\ncommands:\n  denied: [\"rm [a-\"]\n"), @r#"
    Policy validation error: p.yaml:4:12: `[a-`: unclosed character class; missing ']'
     --> p.yaml:4:12
      |
    4 |   denied: ["rm [a-"]
      |            ^^^^^^^^
    Policy validation failed
    "#);
}

#[test]
fn a_wrong_example() {
    insta::assert_snapshot!(
        complaint("id: a\nname: A\ncommands:\n  denied:\n    - pattern: \"rm -rf /\"\n      match: [\"rm -rf /tmp\"]\n"), @r#"
    Policy validation error: p.yaml:6:15: the rule `rm -rf /` does not match its example `rm -rf /tmp`
     --> p.yaml:6:15
      |
    6 |       match: ["rm -rf /tmp"]
      |               ^^^^^^^^^^^^^
    Policy validation failed
    "#);
}

#[test]
fn wrong_types_and_values() {
    for (text, part) in [
        ("id: Default_1\nname: A\n", "`id` does not have the form"),
        ("id: a\n", "`name` is missing"),
        (
            "id: a\nname: A\nmode: sometimes\n",
            "`mode` must be one of observe, enforce",
        ),
        (
            "id: a\nname: A\nworld: { limits: { memory: 2G } }\n",
            "write for example \"512Mi\" or \"2Gi\"",
        ),
        (
            "id: a\nname: A\nworld: { limits: { cpu: two } }\n",
            "`cpu` must be a number of CPUs",
        ),
        (
            "id: a\nname: A\nworld: { enable_preload: true }\n",
            "preload telemetry is not part of Substrate",
        ),
        (
            "id: a\nname: A\nmode: observe\nnet: { dns: { pinned: false } }\n",
            "names are always pinned",
        ),
        (
            "id: a\nname: A\nmode: enforce\nnet: { dns: { pinned: false } }\n",
            "names are always pinned",
        ),
        (
            "id: a\nname: A\nnet: { allow_udp: [x:1] }\n",
            "UDP cannot be let out of a world",
        ),
        (
            "id: a\nname: A\nnet: { allowed: [\"https://x.example\"] }\n",
            "is not a host",
        ),
        (
            "id: a\nname: A\nnet: { allowed: [\"localhost:5432\"] }\n",
            "for this machine's write `host-loopback:5432`",
        ),
        (
            "id: a\nname: A\nnet: { allowed: [\"127.0.0.0/8:1-99\"] }\n",
            "the loopback of a world is its own",
        ),
        (
            "id: a\nname: A\nnet: { allowed: [\"host-loopback\"] }\n",
            "needs its ports",
        ),
        (
            "id: a\nname: A\nnet: { allowed: [\"@nope\"] }\n",
            "there is no client set `@nope`",
        ),
        (
            "id: a\nname: A\nmode: enforce\nfs: { write: [\"/a/*/b\"] }\n",
            "worlds know whole subtrees only",
        ),
        (
            "id: a\nname: A\nfs: { write: [\"relative\"] }\n",
            "is not an absolute path",
        ),
        (
            "id: a\nname: A\nfs: { hide: [\"**/.env\"] }\n",
            "the whole machine would have to be searched for this",
        ),
        (
            "id: a\nname: A\nfs: { protect: [\"/*/x\"] }\n",
            "begin with a directory",
        ),
        (
            "id: a\nname: A\neffects: { denied: [\"destroy:/\"] }\n",
            "`destroy` is not an effect",
        ),
        (
            "id: a\nname: A\neffects: { denied: [\"read:@nope\"] }\n",
            "there is no path class `@nope`",
        ),
        (
            "id: a\nname: A\ncommands: { denied: [\"@nope *\"] }\n",
            "there is no set `@nope`",
        ),
        (
            "id: a\nname: A\ncommands: { denied: [\"a && b\"] }\n",
            "is not part of a pattern",
        ),
        (
            "id: a\nname: A\nextends: nowhere\n",
            "there is no policy `nowhere`",
        ),
        (
            "id: a\nname: A\nx: &anchor 1\n",
            "anchors (`&name`) are not allowed",
        ),
        ("id: a\nname: !tag A\n", "tags (`!name`) are not allowed"),
        ("id: a\nname: A\n---\nid: b\n", "a second YAML document"),
        (
            "id: a\nname: A\ntrace: { output: all }\n",
            "`output` must be one of off, digest, bounded",
        ),
        ("", "the file is empty"),
        ("[", "p.yaml:"),
        ("id: a\nname: \"unclosed\n", "p.yaml:"),
    ] {
        let said = complaint(text);
        assert!(said.contains(part), "{text:?} was answered with\n{said}");
    }
}

#[test]
fn an_unquoted_cpu_number_works() {
    let sandbox = Sandbox::new();
    let path = sandbox.policy("a", "id: a\nname: A\nworld: { limits: { cpu: 2 } }\n");
    assert_eq!(
        sandbox
            .run(["policy".as_ref(), "validate".as_ref(), path.as_os_str()])
            .status
            .code(),
        Some(0)
    );
}

#[test]
fn extends_in_a_circle() {
    let sandbox = Sandbox::new();
    sandbox.policy("a", "id: a\nname: A\nextends: b\n");
    sandbox.policy("b", "id: b\nname: B\nextends: a\n");
    let output = sandbox.run(["policy", "validate", "a"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        sandbox
            .normal(&output.stdout)
            .contains("goes round in a circle"),
        "{output:?}"
    );
}

#[test]
fn files_that_are_no_policies() {
    let sandbox = Sandbox::new();
    let project = sandbox.project();
    std::fs::write(project.join("binary.yaml"), [0xff, 0xfe, 0, 1]).unwrap();
    std::fs::write(project.join("large.yaml"), vec![b'#'; 10 << 20]).unwrap();
    std::fs::create_dir(project.join("directory.yaml")).unwrap();
    for (name, part) in [
        ("./binary.yaml", "is not UTF-8 text"),
        ("./large.yaml", "is too large for a policy"),
        ("./directory.yaml", "it is not a regular file"),
        ("./missing.yaml", "No such file"),
    ] {
        let output = sandbox.run(["--policy", name, "-c", "echo ran"]);
        assert_eq!(output.status.code(), Some(125), "{name}: {output:?}");
        assert_eq!(output.stdout, b"", "{name}");
        assert!(
            sandbox.normal(&output.stderr).contains(part),
            "{name}: {output:?}"
        );
    }
}

#[test]
fn a_half_written_policy_leaves_the_last_good_one() {
    let sandbox = Sandbox::with_policy(
        "mode: enforce\nworld: { enabled: \"off\" }\ncommands: { denied: [\"forbidden *\"] }\n",
    );
    assert_eq!(sandbox.run(["-c", "forbidden"]).status.code(), Some(126));
    sandbox.policy("test", "id: test\nname: Te\nmode: enf");
    let output = sandbox.run(["-c", "forbidden"]);
    assert_eq!(output.status.code(), Some(126));
    let said = sandbox.normal(&output.stderr);
    assert!(
        said.contains("`mode` must be one of") && said.contains("the last good version"),
        "{said}"
    );
}

#[test]
fn long_and_deep_lines() {
    let sandbox = Sandbox::new();
    let long = format!("echo {} | wc -c", "x".repeat(100_000));
    assert_eq!(sandbox.run(["-c", &long]).stdout, b"100001\n");
    let project = sandbox.project();
    let enforce = "id: e\nname: E\nmode: enforce\nworld: { enabled: \"off\" }\n";
    sandbox.policy("e", enforce);
    for text in [
        format!("echo {}", "x ".repeat(600_000)),
        "(".repeat(100_000),
        "$(".repeat(100_000),
    ] {
        let path = project.join("line.sh");
        std::fs::write(&path, &text).unwrap();
        let output = sandbox.run(["--policy".as_ref(), "e".as_ref(), path.as_os_str()]);
        assert_eq!(
            output.status.code(),
            Some(126),
            "{:?}",
            sandbox.normal(&output.stderr)
        );
    }
}

#[test]
fn a_trace_that_is_already_there_survives_everything() {
    let sandbox = Sandbox::new();
    sandbox.run(["-c", "echo first"]);
    let before = std::fs::read(sandbox.home().join("trace.jsonl")).unwrap();
    sandbox.policy("default", "broken: [");
    sandbox.run(["-c", "echo second"]);
    sandbox.run(["--policy", "nowhere", "-c", "echo third"]);
    let after = std::fs::read(sandbox.home().join("trace.jsonl")).unwrap();
    assert!(after.starts_with(&before));
}

#[test]
fn a_home_that_cannot_be_written() {
    in_namespace(
        "a_home_that_cannot_be_written",
        "mount -t tmpfs -o ro none \"$SUBSTRATE_HOME\"",
        "Read-only file system",
    );
}

#[test]
fn a_full_disk() {
    let fill = "mount -t tmpfs -o size=64k none \"$SUBSTRATE_HOME\"; chmod 700 \"$SUBSTRATE_HOME\"; head -c 1M /dev/zero > \"$SUBSTRATE_HOME/fill\" 2>/dev/null";
    in_namespace("a_full_disk", fill, "No space left");
}

/// Observing runs with a warning, enforcing refuses, both without a panic. File modes do not stop
/// root, so the home is made unusable by a mount in a namespace of the test's own.
fn in_namespace(test: &str, setup: &str, expected: &str) {
    let sandbox = Sandbox::new();
    let binary = env!("CARGO_BIN_EXE_substrate");
    let enforce = sandbox.project().join("e.yaml");
    std::fs::write(
        &enforce,
        "id: e\nname: E\nmode: enforce\nworld: { enabled: \"off\" }\n",
    )
    .unwrap();
    let text = format!(
        "{setup}; {binary} -c 'echo observed'; echo status $?; {binary} --policy {} -c 'echo enforced'; echo status $?",
        enforce.display()
    );
    let mut command = std::process::Command::new("unshare");
    sandbox.prepare(&mut command);
    let output = command
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &text])
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        return skip(test, "there is no unshare program");
    };
    let (out, err) = (
        sandbox.normal(&output.stdout),
        sandbox.normal(&output.stderr),
    );
    if err.starts_with("unshare:") {
        return skip(test, &format!("no user namespaces: {err}"));
    }
    assert_eq!(out, "observed\nstatus 0\nstatus 125\n", "{err}");
    assert!(err.contains(expected), "{err}");
    assert!(!err.contains("panicked"), "{err}");
}
