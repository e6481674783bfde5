//! Tools that look at how they were called, and tools that call each other: the same behind shims.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shim_support::{ENFORCE, OBSERVE, Rig, has, keeps_endings, told};
use serde_json::Value;

const SHELLS: [&str; 3] = ["bash", "dash", "zsh"];

/// The shells that are here; the others are counted as skipped.
fn shells(test: &str) -> Vec<&'static str> {
    let (here, missing): (Vec<&str>, Vec<&str>) = SHELLS.into_iter().partition(|name| has(name));
    for shell in missing {
        crate::common::skip(test, &format!("{shell} is not installed"));
    }
    here
}

/// How a shim can start its tool here.
fn modes() -> &'static [&'static str] {
    if keeps_endings() {
        &["exec", "spawn"]
    } else {
        &["spawn"]
    }
}

/// Runs lines bare and shimmed in every shell, and wants the same of both.
fn same_everywhere(test: &str, rig: &Rig, lines: &[&str], prepare: impl Fn(&mut Command)) {
    for shell in shells(test) {
        for line in lines {
            let run = |shimmed: bool, mode: &str| {
                let mut command = rig.command(shell, shimmed);
                command.args(["-c", line]).env("SUBSTRATE_SHIM_MODE", mode);
                prepare(&mut command);
                told(&command.output().unwrap())
            };
            let bare = run(false, "exec");
            for mode in modes() {
                assert_eq!(run(true, mode), bare, "{shell} {mode}: {line}");
            }
        }
    }
}

/// A multi-call program as rustup's proxies are: the name decides what it is, and as a proxy it puts
/// its own directory first on `PATH` and becomes the tool of its toolchain.
const PROXY: &str = r#"
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char self[4096], path[8192], tool[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0) return 99;
    self[length] = 0;
    char *name = basename(strdup(argv[0]));
    char *home = dirname(self);
    if (!strcmp(name, "rustup")) { printf("rustup itself\n"); return 0; }
    if (strcmp(name, "rustc") && strcmp(name, "cargo")) {
        fprintf(stderr, "error: unknown proxy name: '%s'\n", name);
        return 1;
    }
    snprintf(path, sizeof path, "%s:%s", home, getenv("PATH"));
    setenv("PATH", path, 1);
    setenv("RUSTUP_TOOLCHAIN", "stable", 1);
    snprintf(tool, sizeof tool, "%s/toolchains/stable/%s", home, name);
    execv(tool, argv);
    perror(tool);
    return 127;
}
"#;

#[test]
fn proxies_that_go_by_their_name_keep_it() {
    let test = "proxies_that_go_by_their_name_keep_it";
    if !has("cc") {
        crate::common::skip(test, "there is no C compiler");
        return;
    }
    let rig = Rig::new(OBSERVE, &[], &["sh"]);
    fs::write(rig.sandbox.project().join("proxy.c"), PROXY).unwrap();
    let built = rig
        .command("cc", false)
        .args(["-w", "-o"])
        .arg(rig.bin.join("rustup"))
        .arg("proxy.c")
        .output();
    assert!(
        built.as_ref().is_ok_and(|built| built.status.success()),
        "{built:?}"
    );
    // Links of both kinds, as the installer makes them.
    symlink("rustup", rig.bin.join("cargo")).unwrap();
    fs::hard_link(rig.bin.join("rustup"), rig.bin.join("rustc")).unwrap();
    symlink("rustup", rig.bin.join("unknown")).unwrap();
    let stable = rig.bin.join("toolchains/stable");
    fs::create_dir_all(&stable).unwrap();
    crate::common::script(
        &stable.join("rustc"),
        "#!/bin/sh\necho \"rustc of $RUSTUP_TOOLCHAIN: $*\"\nexit 7\n",
    );
    crate::common::script(
        &stable.join("cargo"),
        "#!/bin/sh\necho \"cargo: $*\"\nrustc --crate-name x\n",
    );
    let output = rig.shim(["install", "rustup", "cargo", "rustc", "unknown"]);
    assert!(output.status.success(), "{output:?}");
    same_everywhere(
        test,
        &rig,
        &[
            "rustc --version; echo $?",
            "cargo build --release; echo $?",
            "rustup; echo $?",
            "unknown x; echo $?",
            "sh -c 'cargo a b || exit 9'; echo $?",
            "exec cargo test",
        ],
        |_| (),
    );
}

/// The real thing, where it is installed; asked for versions only.
#[test]
fn the_real_rustup_is_the_same() {
    let test = "the_real_rustup_is_the_same";
    let user = std::env::var_os("HOME")
        .map(PathBuf::from)
        .unwrap_or_default();
    let cargo = std::env::var_os("CARGO_HOME").map_or_else(|| user.join(".cargo"), PathBuf::from);
    let toolchains =
        std::env::var_os("RUSTUP_HOME").map_or_else(|| user.join(".rustup"), PathBuf::from);
    let proxies = cargo.join("bin");
    if !proxies.join("rustup").exists() || !proxies.join("rustc").exists() {
        crate::common::skip(test, "rustup is not installed");
        return;
    }
    let rig = Rig::new(OBSERVE, &[], &["sh"]);
    for name in ["rustup", "rustc", "cargo"] {
        symlink(proxies.join(name), rig.bin.join(name)).unwrap();
    }
    assert!(
        rig.shim(["install", "rustup", "rustc", "cargo"])
            .status
            .success()
    );
    let toolchain = std::env::var_os("RUSTUP_TOOLCHAIN");
    let lines = [
        "rustc --version; echo $?",
        "cargo --version; echo $?",
        "rustc --no-such-option 2>/dev/null; echo $?",
    ];
    same_everywhere(test, &rig, &lines, |command| {
        command
            .env("CARGO_HOME", &cargo)
            .env("RUSTUP_HOME", &toolchains);
        if let Some(toolchain) = &toolchain {
            command.env("RUSTUP_TOOLCHAIN", toolchain);
        }
    });
}

#[test]
fn a_real_busybox_is_every_one_of_its_applets() {
    let test = "a_real_busybox_is_every_one_of_its_applets";
    let Some(busybox) = ["/bin/busybox", "/usr/bin/busybox"]
        .into_iter()
        .find(|path| Path::new(path).is_file())
    else {
        crate::common::skip(test, "busybox is not installed");
        return;
    };
    let rig = Rig::new(OBSERVE, &[], &["sh"]);
    let applets = [
        "busybox",
        "ash",
        "cat",
        "echo",
        "ls",
        "sort",
        "wc",
        "false",
        "sed",
        "no-such-applet",
    ];
    fs::copy(busybox, rig.bin.join("busybox")).unwrap();
    for (number, applet) in applets.iter().enumerate().skip(1) {
        // By symbolic link, or by hard link: both are usual.
        match number % 2 {
            0 => symlink("busybox", rig.bin.join(applet)).unwrap(),
            _ => fs::hard_link(rig.bin.join("busybox"), rig.bin.join(applet)).unwrap(),
        }
    }
    let output = rig.shim(["install"].iter().chain(&applets));
    assert!(output.status.success(), "{output:?}");
    same_everywhere(
        test,
        &rig,
        &[
            "printf 'b\\na\\n' | sort | cat; echo $?",
            "busybox echo an applet by argument",
            "busybox no-such; echo $?",
            "no-such-applet; echo $?",
            "ash -c 'echo in ash: $0; ls /nonexistent; echo $?; false; echo $?' name",
            "ash -c 'busybox sh -c \"exit 5\"'; echo $?",
            "echo one two | wc -w",
            "sed --help 2>&1 | sed -n 1p",
            "false || echo failed",
            "ls -d / /etc",
        ],
        |_| (),
    );
}

#[test]
fn virtual_environments_stay_themselves() {
    let test = "virtual_environments_stay_themselves";
    if !has("python3") {
        crate::common::skip(test, "python3 is not installed");
        return;
    }
    let rig = Rig::new(OBSERVE, &[], &["python3", "env"]);
    let made = rig
        .command("python3", false)
        .args(["-m", "venv", "--without-pip", "env"])
        .output()
        .unwrap();
    if !made.status.success() {
        crate::common::skip(test, "python3 has no venv module");
        return;
    }
    // Not every system has a `python` of its own.
    let real = ["/usr/local/bin/python3", "/usr/bin/python3"];
    let real = real.into_iter().find(|path| Path::new(path).exists());
    symlink(real.unwrap(), rig.bin.join("python")).unwrap();
    assert!(rig.shim(["install", "python"]).status.success());
    let bin = rig.sandbox.project().join("env/bin");
    let head = format!("#!{}/python3\n", bin.display());
    crate::common::script(
        &bin.join("console-script"),
        &format!("{head}import sys\nprint(sys.prefix, sys.argv)\nraise SystemExit(3)\n"),
    );
    // Where the shims come before the environment, as when it was activated first, and behind it.
    let shims = rig.shims();
    let line = |order: &str, rest: &str| {
        let (bin, shims) = (bin.display(), shims.display());
        match order {
            "before" => format!(
                "case $PATH in {shims}*) PATH={shims}:{bin}:$PATH;; *) PATH={bin}:$PATH;; esac; {rest}"
            ),
            _ => format!(". env/bin/activate; {rest}"),
        }
    };
    const WHO: &str = "import sys; print(sys.executable, sys.prefix, sys.base_prefix, sys.argv)";
    for order in ["before", "behind"] {
        let lines: Vec<String> = [
            format!("python -c '{WHO}' a; echo $?"),
            format!("python3 -c '{WHO}' b; echo $?"),
            "console-script x; echo $?".to_owned(),
            "python -m venv --without-pip inner && inner/bin/python -c 'import sys; print(sys.prefix)'; rm -r inner".to_owned(),
            "python -c 'import subprocess; print(subprocess.call([\"python3\", \"-c\", \"import sys; print(sys.prefix); sys.exit(4)\"]))'".to_owned(),
            "python -c 'import subprocess, sys; print(subprocess.call([sys.executable, \"-c\", \"import sys; print(sys.prefix); sys.exit(4)\"]))'".to_owned(),
        ]
        .iter()
        .map(|rest| line(order, rest))
        .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        same_everywhere(test, &rig, &lines, |_| ());
    }
}

/// A server behind an `ssh` that runs what it is asked for right here.
const SSH: &str = "#!/bin/sh\n[ -e refuse ] && { echo 'ssh: refused' >&2; exit 255; }\nfor last; do :; done\nexec sh -c \"$last\"\n";

/// The spans from a named tool upwards, as tool and status.
fn ancestry(done: &[Value], tool: &str) -> Vec<(String, i64)> {
    let mut found = Vec::new();
    let mut next = done.iter().find(|event| event["argv"][0] == tool);
    while let Some(event) = next {
        found.push((
            event["argv"][0].as_str().unwrap().to_owned(),
            event["exit"].as_i64().unwrap(),
        ));
        next = done
            .iter()
            .find(|above| above["span_id"] == event["parent_span"]);
    }
    found
}

/// A project whose script makes git ask a server, from node, from a shell.
fn nested(policy: &str) -> Rig {
    let rig = Rig::new(
        policy,
        &[("ssh", SSH)],
        &["npm", "node", "sh", "git", "ssh"],
    );
    let project = rig.sandbox.project();
    let server = project.join("server.git");
    fs::remove_dir_all(project.join(".git")).unwrap();
    for step in [
        &["init", "-q", "."][..],
        &["init", "-q", "--bare", "server.git"],
    ] {
        assert!(
            rig.command("git", false)
                .args(step)
                .status()
                .unwrap()
                .success()
        );
    }
    fs::write(
        project.join("package.json"),
        format!(
            r#"{{"name": "deep", "version": "1.0.0", "scripts": {{"ask": "node ask.js", "say": "git ls-remote ssh://server{}"}}}}"#,
            server.display()
        ),
    )
    .unwrap();
    fs::write(
        project.join("ask.js"),
        "const run = require('child_process').spawnSync('sh', ['-c', 'npm run --silent say'], { stdio: 'inherit' });\nprocess.exit(run.status);\n",
    )
    .unwrap();
    rig
}

#[test]
fn npm_node_sh_git_and_ssh_nest() {
    let test = "npm_node_sh_git_and_ssh_nest";
    if !["npm", "node", "git"].into_iter().all(has) {
        crate::common::skip(test, "npm, node or git is not installed");
        return;
    }
    let rig = nested(OBSERVE);
    let refuse = rig.sandbox.project().join("refuse");
    let trace = rig.sandbox.home().join("trace.jsonl");
    for shell in shells(test) {
        // The server answers, and then it refuses.
        for (refused, statuses) in [(false, [0, 0]), (true, [255, 128])] {
            let _ = fs::remove_file(&refuse);
            if refused {
                fs::write(&refuse, "").unwrap();
            }
            let run = |shimmed: bool, mode: &str| {
                let mut command = rig.command(shell, shimmed);
                command
                    .args(["-c", "npm run --silent say; echo $?"])
                    .env("SUBSTRATE_SHIM_MODE", mode);
                told(&command.output().unwrap())
            };
            let bare = run(false, "exec");
            assert!(bare.2.ends_with(&format!("{}\n", statuses[1])), "{bare:?}");
            for mode in modes() {
                let _ = fs::remove_file(&trace);
                assert_eq!(run(true, mode), bare, "{shell} {mode} {refused}");
                // What the server ran is below ssh, and is there only when it answered.
                let done = rig.completed(if refused { 5 } else { 6 });
                let [ssh, others] = statuses;
                let named = |tool: &str, status| (tool.to_owned(), status);
                assert_eq!(
                    ancestry(&done, "ssh"),
                    [
                        named("ssh", ssh),
                        named("git", others),
                        named("sh", others),
                        named("node", others),
                        named("npm", others)
                    ],
                    "{shell} {mode}: {done:?}"
                );
                let sessions: Vec<&Value> = done.iter().map(|event| &event["session_id"]).collect();
                assert!(
                    sessions.iter().all(|session| *session == sessions[0]),
                    "{done:?}"
                );
            }
        }
    }
}

#[test]
fn a_tool_at_the_bottom_of_many_is_still_denied() {
    let test = "a_tool_at_the_bottom_of_many_is_still_denied";
    if !["npm", "node", "git"].into_iter().all(has) {
        crate::common::skip(test, "npm, node or git is not installed");
        return;
    }
    let policy = ENFORCE
        .replace("git push *", "ssh *")
        .replace("no pushing", "no servers");
    let rig = nested(&policy);
    for shell in shells(test) {
        let output = rig
            .command(shell, true)
            .args(["-c", "npm run --silent ask"])
            .output()
            .unwrap();
        let notes = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(128), "{shell}: {output:?}");
        assert!(
            notes.contains("denied by policy 'test' (ssh *"),
            "{shell}: {notes}"
        );
    }
    let violations = rig.sandbox.events("policy_violation");
    assert_eq!(violations.len(), shells(test).len(), "{violations:?}");
    assert!(
        violations.iter().all(|event| event["argv"][0] == "ssh"),
        "{violations:?}"
    );
}
