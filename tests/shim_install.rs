//! `substrate shim`: making, listing and removing shims, and nothing that is not ours.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::shim_support::{OBSERVE, Rig, has};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn installing_twice_is_installing_once() {
    let rig = Rig::new(OBSERVE, &[("mine", "#!/bin/sh\n")], &["true", "mine"]);
    let shims = rig.shims();
    let inode = |name: &str| fs::metadata(shims.join(name)).unwrap().ino();
    let before = inode(".shim");
    assert_eq!((inode("true"), inode("mine")), (before, before));
    let mode = fs::metadata(&shims).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700);
    let output = rig.shim(["install", "true", "mine"]);
    assert!(
        text(&output.stdout).contains("2 shims") && text(&output.stdout).contains("0 of them new"),
        "{output:?}"
    );
    assert_eq!(inode(".shim"), before);
    assert_eq!(rig.shim(["list"]).stdout, b"mine\ntrue\n");
    assert!(
        rig.sandbox
            .home()
            .join("cache")
            .read_dir()
            .unwrap()
            .next()
            .is_some(),
        "policies are compiled"
    );
}

#[test]
fn the_shim_is_small_and_static() {
    let rig = Rig::new(OBSERVE, &[], &["true"]);
    let binary = fs::read(rig.shims().join(".shim")).unwrap();
    let report: serde_json::Value =
        serde_json::from_slice(&rig.shim(["status", "--json"]).stdout).unwrap();
    if report["target"].as_str().unwrap().ends_with("musl") {
        assert!(binary.len() < 512 << 10, "{} bytes", binary.len());
        assert!(
            !binary.windows(9).any(|part| part == b"/ld-linux"),
            "it needs no loader"
        );
    } else {
        crate::common::skip(
            "the_shim_is_small_and_static",
            "the musl target is not installed",
        );
    }
}

#[test]
fn an_outdated_shim_is_renewed() {
    let rig = Rig::new(OBSERVE, &[], &["true"]);
    let old = fs::read(rig.shims().join(".shim")).unwrap();
    let other = substrate_shim::tool::marked(b"older version");
    fs::remove_file(rig.shims().join("true")).unwrap();
    crate::common::script(&rig.shims().join("true"), "");
    fs::write(rig.shims().join("true"), &other).unwrap();
    assert!(text(&rig.shim(["status"]).stdout).contains("outdated"));
    assert!(rig.shim(["install"]).status.success());
    assert_eq!(fs::read(rig.shims().join("true")).unwrap(), old);
}

#[test]
fn foreign_files_are_left_alone() {
    let rig = Rig::new(OBSERVE, &[], &["true"]);
    let foreign = rig.shims().join("cat");
    fs::write(&foreign, "mine").unwrap();
    for arguments in [&["install", "cat"][..], &["remove", "cat"]] {
        let output = rig.shim(arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains("left alone"), "{output:?}");
        assert_eq!(fs::read(&foreign).unwrap(), b"mine");
    }
    assert_eq!(rig.shim(["list"]).stdout, b"true\n");
    assert!(rig.shim(["remove", "--all"]).status.success());
    assert_eq!(
        fs::read(&foreign).unwrap(),
        b"mine",
        "and the directory stays with it"
    );
}

#[test]
fn removing_leaves_nothing() {
    let rig = Rig::new(OBSERVE, &[], &["true", "cat"]);
    assert!(rig.shim(["remove", "cat"]).status.success());
    assert!(
        rig.shim(["remove", "cat"]).status.success(),
        "what is gone is gone"
    );
    assert_eq!(rig.shim(["list"]).stdout, b"true\n");
    assert!(rig.shim(["remove", "true"]).status.success());
    assert!(!rig.shims().exists());
}

#[test]
fn names_that_cannot_be() {
    let rig = Rig::new(OBSERVE, &[], &["true"]);
    for (name, code) in [
        ("../x", 2),
        (".x", 2),
        ("", 2),
        ("substrate", 2),
        ("no-such-tool-anywhere", 1),
    ] {
        let output = rig.shim(["install", name]);
        assert_eq!(output.status.code(), Some(code), "{name}: {output:?}");
    }
    assert_eq!(rig.shim(["list"]).stdout, b"true\n");
}

#[test]
fn a_preset_takes_what_is_there() {
    let rig = Rig::new(OBSERVE, &[], &["true"]);
    assert!(rig.shim(["install", "--preset", "agent"]).status.success());
    let list = text(&rig.shim(["list"]).stdout);
    for tool in ["rm", "chmod", "cp", "mv"] {
        assert!(list.lines().any(|line| line == tool), "{tool} in {list}");
    }
    assert_eq!(list.lines().any(|line| line == "doas"), has("doas"));
}

#[test]
fn status_tells_what_each_shim_is_worth() {
    let rig = Rig::new(OBSERVE, &[("gone", "#!/bin/sh\n")], &["true", "gone"]);
    fs::remove_file(rig.bin.join("gone")).unwrap();
    let report = |path: std::ffi::OsString| -> serde_json::Value {
        let mut command = rig.sandbox.substrate();
        let output = command
            .env("PATH", path)
            .args(["shim", "status", "--json"])
            .output()
            .unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let seen = report(rig.path(true));
    assert_eq!(seen["on_path"], 0);
    assert_eq!(seen["shims"][0]["state"], "dead");
    assert_eq!(seen["shims"][1]["state"], "active");
    assert!(
        seen["shims"][1]["target"]
            .as_str()
            .unwrap()
            .ends_with("/true")
    );
    let seen = report(rig.path(false));
    assert_eq!(seen["on_path"], serde_json::Value::Null);
    assert_eq!(seen["shims"][1]["state"], "defeated");
    let mut behind = rig.path(false);
    behind.push(":");
    behind.push(rig.shims());
    let seen = report(behind.clone());
    assert_eq!(seen["shims"][1]["state"], "defeated");
    let mut command = rig.sandbox.substrate();
    let output = command
        .env("PATH", behind)
        .args(["shim", "status"])
        .output()
        .unwrap();
    assert!(
        text(&output.stdout).contains("defeats the shims of true"),
        "{output:?}"
    );
}

#[test]
fn the_rc_line_puts_shims_first_and_only_once() {
    let rig = Rig::new(OBSERVE, &[], &["true"]);
    let shims = rig.shims();
    for shell in ["bash", "dash", "zsh", "fish"] {
        if !has(shell) {
            crate::common::skip(
                "the_rc_line_puts_shims_first_and_only_once",
                &format!("{shell} is not installed"),
            );
            continue;
        }
        let name = if shell == "dash" { "sh" } else { shell };
        let line = text(&rig.shim(["init", name]).stdout);
        for agent in ["Claude Code", "Codex", "Gemini CLI", "Cursor"] {
            assert!(line.contains(agent), "{agent}");
        }
        let show = if shell == "fish" {
            "string join : $PATH"
        } else {
            "printf '%s\\n' \"$PATH\""
        };
        let script = format!("{line}\n{line}\n{show}\n");
        let output = rig
            .command(shell, false)
            .args(["-c", &script])
            .output()
            .unwrap();
        let path = text(&output.stdout);
        assert!(
            path.starts_with(&format!("{}:", shims.display())),
            "{shell}: {output:?}"
        );
        assert_eq!(
            path.matches(shims.to_str().unwrap()).count(),
            1,
            "{shell}: {path}"
        );
    }
}

#[test]
fn shims_are_not_changed_from_inside() {
    let rig = Rig::new(
        OBSERVE,
        &[(
            "inside",
            "#!/bin/sh\nexec \"$SUBSTRATE\" shim remove --all\n",
        )],
        &["inside"],
    );
    let output = rig
        .command("inside", true)
        .env("SUBSTRATE", env!("CARGO_BIN_EXE_substrate"))
        .env("SUBSTRATE_HOME", rig.sandbox.home())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(rig.shims().join("inside").exists());
}

/// Whoever has lost his parents and his variables is still known by his mark.
#[test]
fn an_orphan_of_a_shim_changes_nothing_either() {
    let rig = Rig::new(
        OBSERVE,
        &[(
            "leaves-an-orphan",
            "#!/bin/sh\n(setsid env -i SUBSTRATE_HOME=\"$HERE\" SUBSTRATE=\"$SUBSTRATE\" sh -c 'while [ \"$(ps -o ppid= -p $$ | tr -d \" \")\" != 1 ]; do sleep 0.1; done; \"$SUBSTRATE\" shim remove --all; echo $? > \"$0\"' \"$1\" > /dev/null 2>&1 &)\n",
        )],
        &["leaves-an-orphan"],
    );
    let told = rig.sandbox.project().join("status");
    let output = rig
        .command("leaves-an-orphan", true)
        .arg(&told)
        .env("SUBSTRATE", env!("CARGO_BIN_EXE_substrate"))
        .env("HERE", rig.sandbox.home())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let status = loop {
        let text = fs::read_to_string(&told).unwrap_or_default();
        if text.ends_with('\n') {
            break text;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "the orphan never answered"
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert_eq!(status, "1\n");
    assert!(rig.shims().join("leaves-an-orphan").exists());
}
