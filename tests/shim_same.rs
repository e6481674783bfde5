//! Bare and shimmed, the same tool does the same: output, status, signals, terminal, environment.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use crate::shim_support::{OBSERVE, Rig, has, keeps_endings, told};
use substrate_sys::process_group::{self, Placement, signal};
use substrate_sys::terminal;

const SHELLS: [&str; 3] = ["bash", "dash", "zsh"];

/// How a shim can start its tool here.
fn modes(test: &str) -> Vec<&'static str> {
    if keeps_endings() {
        return vec!["exec", "spawn"];
    }
    crate::common::skip(
        test,
        "this kernel tells no endings to watchers, so tools are started as children",
    );
    vec!["spawn"]
}

/// Tools that take everything apart that they are given.
const OWN: &[(&str, &str)] = &[
    ("show-args", "#!/bin/sh\nprintf '<%s>' \"$@\"; echo\n"),
    (
        "show-fds",
        "#!/bin/sh\nfor n in 0 1 2 3 4 5 6 7 8 9; do [ -e /proc/$$/fd/$n ] && echo $n; done; true\n",
    ),
    (
        "show-self",
        "#!/bin/sh\nnice; ulimit -n; ulimit -c; cat /proc/$$/oom_score_adj; pwd\nexec grep -E '^(Sig(Blk|Ign|Cgt)|Umask|NoNewPrivs)' /proc/self/status\n",
    ),
    ("fails", "#!/bin/sh\necho to stderr >&2\nexit \"${1:-1}\"\n"),
    ("dies", "#!/bin/sh\nkill -\"$1\" $$\nsleep 5\n"),
    (
        "no-interpreter",
        "echo a script without a first line: \"$@\"\n",
    ),
    (
        "calls-itself",
        "#!/bin/sh\n[ \"$1\" -gt 0 ] && exec calls-itself $(($1 - 1)); echo bottom\n",
    ),
];

const SHIMMED: &[&str] = &[
    "show-args",
    "show-fds",
    "show-self",
    "fails",
    "dies",
    "no-interpreter",
    "calls-itself",
    "cat",
    "ls",
    "env",
    "git",
    "grep",
    "head",
    "id",
    "make",
    "python3",
    "sed",
    "seq",
    "sh",
    "sleep",
    "sort",
    "true",
    "false",
    "tty",
    "wc",
    "yes",
    "bash",
    "tr",
    "xargs",
    "find",
    "dirname",
    "node",
    "perl",
    "awk",
    "stty",
];

/// Lines that every shell reads the same way.
const LINES: &[&str] = &[
    "show-args a 'b c' '' '*' \"$(printf 'x\\ny')\"",
    "show-fds",
    "show-fds 5</dev/null 7>/dev/null",
    "show-fds <&-",
    "show-fds 2>&-",
    "cat <&- ; echo $?",
    "echo out | cat >&- ; echo $?",
    "ls /nonexistent-file >&2 2>&- ; echo $?",
    "show-self",
    "umask 027; show-self",
    "ulimit -c 0; ulimit -n 100; show-self",
    "trap '' INT TERM PIPE; show-self",
    "cd /; show-self",
    "fails; echo $?",
    "fails 200; echo $?",
    "fails 3 || echo failed",
    "dies TERM; echo $?",
    "dies KILL; echo $?",
    "(dies HUP); echo $?",
    "no-interpreter x y",
    "calls-itself 3",
    "yes | head -n 3; true",
    "seq 100000 | head -n 1",
    "seq 5 | sort -r | tr '\\n' ' '",
    "printf 'b\\na\\n' | sort | cat -n",
    "cat /nonexistent; echo $?",
    "ls /nonexistent; echo $?",
    "grep -c root /etc/passwd",
    "git --version",
    "git rev-parse --is-inside-work-tree; echo $?",
    "git no-such-subcommand; echo $?",
    "git -c alias.x='!git --version' x",
    "python3 -c 'import sys; print(sys.argv, sys.executable, sys.prefix)' a",
    "python3 -c 'import os; os.abort()' 2>/dev/null; echo $?",
    "node -e 'console.log(process.argv0, process.execPath)'",
    "perl -e 'print \"$0 $^X\\n\"'",
    "echo 'print(1)' | python3",
    "sh -c 'echo $0 $1' name arg",
    "bash -c 'echo $$ | wc -l; type -t cat'",
    "find /etc/passwd -exec cat {} + | wc -l",
    "printf 'a b' | xargs -n1 show-args",
    "x=$(sleep 0 & wait; echo done); echo $x",
    "sleep 0 & wait $!; echo $?",
    "exec fails 9",
    "no-such-tool-anywhere 2>/dev/null; echo $?",
    "env -i PATH=\"$PATH\" show-args clean",
    "make -f /dev/null 2>&1; echo $?",
    "printf 'all:\\n\\t@show-args from make; false\\n' | make -f - 2>/dev/null; echo $?",
];

#[test]
fn output_and_status_are_the_same_in_every_shell() {
    let test = "output_and_status_are_the_same_in_every_shell";
    let tools: Vec<&str> = SHIMMED
        .iter()
        .copied()
        .filter(|tool| has(tool) || OWN.iter().any(|(own, _)| own == tool))
        .collect();
    let rig = Rig::new(OBSERVE, OWN, &tools);
    for shell in SHELLS {
        if !has(shell) {
            crate::common::skip(test, &format!("{shell} is not installed"));
            continue;
        }
        for line in LINES {
            let tool = line.split_whitespace().next().unwrap();
            if SHIMMED.contains(&tool) && !tools.contains(&tool) {
                crate::common::skip(test, &format!("{tool} is not installed"));
                continue;
            }
            let run = |shimmed: bool, mode: &str| -> Output {
                let mut command = rig.command(shell, shimmed);
                command.args(["-c", line]).env("SUBSTRATE_SHIM_MODE", mode);
                command.output().unwrap()
            };
            for mode in modes(test) {
                assert_eq!(
                    told(&run(true, mode)),
                    told(&run(false, mode)),
                    "{shell} {mode}: {line}"
                );
            }
        }
    }
}

#[test]
fn the_environment_differs_by_one_variable() {
    let rig = Rig::new(OBSERVE, &[], &["env"]);
    for mode in modes("the_environment_differs_by_one_variable") {
        let run = |shimmed: bool| {
            let mut command = rig.command("env", true);
            if !shimmed {
                command = rig.command("/usr/bin/env", true);
            }
            let text = command
                .env("SUBSTRATE_SHIM_MODE", mode)
                .env("ODD", "a\nb=c")
                .env("", "x")
                .output()
                .unwrap()
                .stdout;
            String::from_utf8(text).unwrap()
        };
        let (bare, shimmed) = (run(false), run(true));
        let kept: String = shimmed
            .split_inclusive('\n')
            .filter(|line| !line.starts_with("SUBSTRATE_PARENT_SPAN=ses_"))
            .collect();
        assert_eq!(kept, bare, "{mode}");
        assert_eq!(shimmed.lines().count(), bare.lines().count() + 1, "{mode}");
    }
}

#[test]
fn signals_reach_the_tool_and_its_end_is_its_own() {
    let tool = "#!/bin/bash\ntrap 'echo got INT' INT; trap 'echo got HUP' HUP; trap 'echo got WINCH' WINCH; trap 'echo got USR1' USR1; trap 'echo got TERM; exit 7' TERM\nexec 3<> <(:)\n# Read whole before the first signal comes, which bash's reader does not bear everywhere.\necho ready; while :; do read -r -t 0.05 <&3; done\n";
    let rig = Rig::new(OBSERVE, &[("listens", tool)], &["listens"]);
    for mode in modes("signals_reach_the_tool_and_its_end_is_its_own") {
        let run = |shimmed: bool| {
            let mut command = rig.command("listens", shimmed);
            command
                .env("SUBSTRATE_SHIM_MODE", mode)
                .stdout(Stdio::piped())
                .process_group(0);
            let mut child = command.spawn().unwrap();
            let pid = i32::try_from(child.id()).unwrap();
            let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
            let mut seen = String::new();
            let mut line = |seen: &mut String| std::io::BufRead::read_line(&mut out, seen).unwrap();
            line(&mut seen);
            for number in [signal::INT, signal::HUP, signal::WINCH] {
                process_group::send(pid, number).unwrap();
                line(&mut seen);
            }
            // A stop is seen by whoever waits, and going on goes on.
            process_group::send(pid, signal::TSTP).unwrap();
            let stopped = format!("{:?}", process_group::change_of(pid, true).unwrap());
            seen.push_str(if stopped.contains("Stopped") {
                "stopped\n"
            } else {
                &stopped
            });
            process_group::send(pid, signal::CONT).unwrap();
            process_group::send(pid, signal::INT).unwrap();
            line(&mut seen);
            process_group::send(pid, signal::TERM).unwrap();
            line(&mut seen);
            (seen, child.wait().unwrap().code())
        };
        assert_eq!(run(true), run(false), "{mode}");
    }
    for mode in modes("signals_reach_the_tool_and_its_end_is_its_own") {
        for number in [
            signal::INT,
            signal::TERM,
            signal::HUP,
            signal::KILL,
            signal::QUIT,
            signal::PIPE,
        ] {
            let run = |shimmed: bool| {
                let mut command = rig.command("sleep", shimmed);
                let mut child = command
                    .arg("60")
                    .env("SUBSTRATE_SHIM_MODE", mode)
                    .process_group(0)
                    .spawn()
                    .unwrap();
                let pid = i32::try_from(child.id()).unwrap();
                // Only a tool that runs can be compared: a signal may also end a shim that decides.
                let comm = format!("/proc/{pid}/cmdline");
                while !fs::read(&comm).is_ok_and(|text| text.ends_with(b"sleep\x0060\0")) {
                    std::thread::yield_now();
                }
                process_group::send(pid, number).unwrap();
                child.wait().unwrap()
            };
            assert_eq!(run(true), run(false), "{mode} {number}");
        }
    }
}

/// A dialogue with an interactive shell in a terminal of its own.
fn dialogue(
    rig: &Rig,
    shell: &[&str],
    shimmed: bool,
    mode: &str,
    steps: &[(&str, &str)],
) -> Vec<String> {
    let pty = terminal::open_pty().unwrap();
    let mut command = rig.command(shell[0], shimmed);
    command
        .args(&shell[1..])
        .env("PS1", "READY> ")
        .env("PROMPT", "READY> ")
        .env("SUBSTRATE_SHIM_MODE", mode);
    let clone = || Stdio::from(pty.slave.try_clone().unwrap());
    command.stdin(clone()).stdout(clone()).stderr(clone());
    let placement = Placement {
        foreground_of: None,
        session_on: Some(pty.slave.as_fd()),
        descriptors: Vec::new(),
    };
    let pid = process_group::spawn(command, &placement).unwrap();
    drop(pty.slave);
    substrate_sys::poll::set_nonblocking(pty.master.as_fd()).unwrap();
    let mut master = fs::File::from(pty.master);
    let mut seen = Vec::new();
    let mut text = String::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    let wait_for = |master: &fs::File, wanted: &str, text: &mut String| {
        while !text.contains(wanted) {
            assert!(
                Instant::now() < deadline,
                "waited for {wanted:?} in {text:?}"
            );
            let mut buffer = [0; 4096];
            match process_group::read(master, &mut buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Ok(0) | Err(_) => break,
                Ok(count) => text.push_str(&String::from_utf8_lossy(&buffer[..count])),
            }
        }
    };
    for (typed, answer) in steps {
        wait_for(&master, "READY> ", &mut text);
        text.clear();
        master.write_all(typed.as_bytes()).unwrap();
        for part in answer.split('|') {
            if let Some(keys) = part.strip_prefix("keys:") {
                // The tool must have the terminal before keys mean anything to it.
                let foreground = |master: &fs::File| terminal::foreground(master).unwrap_or(pid);
                while foreground(&master) == pid {
                    assert!(
                        Instant::now() < deadline,
                        "{typed:?} never got the terminal"
                    );
                    std::thread::sleep(Duration::from_millis(2));
                }
                std::thread::sleep(Duration::from_millis(50));
                master.write_all(keys.as_bytes()).unwrap();
            } else if !part.is_empty() {
                wait_for(&master, part, &mut text);
            }
        }
        wait_for(&master, "READY> ", &mut text);
        seen.push(
            text.replace('\r', "")
                .lines()
                .filter(|line| !line.contains("READY>"))
                .map(|line| format!("{line}\n"))
                .collect(),
        );
    }
    let _ = master.write_all(b"exit\n");
    let _ = process_group::send(pid, signal::HUP);
    while matches!(process_group::change_of(pid, true), Ok(Some(change)) if format!("{change:?}").contains("Stopped"))
    {
    }
    seen
}

#[test]
fn job_control_is_the_same_in_a_terminal() {
    let test = "job_control_is_the_same_in_a_terminal";
    let rig = Rig::new(OBSERVE, &[], &["sleep", "cat", "stty", "tty", "python3"]);
    for (shell, arguments) in [
        (
            "bash",
            &["bash", "--norc", "--noprofile", "--noediting", "-i"][..],
        ),
        ("dash", &["dash", "-i"]),
        (
            "zsh",
            &[
                "zsh",
                "-f",
                "-i",
                "+o",
                "zle",
                "+o",
                "prompt_sp",
                "+o",
                "prompt_cr",
            ],
        ),
    ] {
        if !has(shell) {
            crate::common::skip(test, &format!("{shell} is not installed"));
            continue;
        }
        let steps = [
            ("sleep 100\n", "keys:\x03"),
            ("echo status $?\n", "status"),
            ("sleep 100\n", "keys:\x1a"),
            ("jobs\n", "sleep"),
            ("fg\n", "keys:\x03"),
            ("echo status $?\n", "status"),
            ("cat\n", "keys:typed\n\x04"),
            ("sleep 100\n", "keys:\x1c"),
            ("echo status $?\n", "status"),
            ("stty size\n", "0"),
        ];
        for mode in modes(test) {
            let bare = dialogue(&rig, arguments, false, mode, &steps);
            let shimmed = dialogue(&rig, arguments, true, mode, &steps);
            assert_eq!(shimmed, bare, "{shell} {mode}");
        }
    }
}

#[test]
fn tools_that_look_at_themselves_find_themselves() {
    let rig = Rig::new(OBSERVE, &[], &["python3", "env"]);
    if !has("python3") {
        crate::common::skip(
            "tools_that_look_at_themselves_find_themselves",
            "python3 is not installed",
        );
        return;
    }
    // A virtual environment behind the shims keeps its prefix.
    let venv = rig.sandbox.project().join("venv");
    fs::create_dir_all(venv.join("bin")).unwrap();
    let real = ["/usr/bin/python3", "/usr/local/bin/python3"]
        .into_iter()
        .find(|path| fs::metadata(path).is_ok())
        .unwrap();
    std::os::unix::fs::symlink(real, venv.join("bin/python3")).unwrap();
    fs::write(
        venv.join("pyvenv.cfg"),
        format!(
            "home = {}\n",
            std::path::Path::new(real).parent().unwrap().display()
        ),
    )
    .unwrap();
    let path = |shimmed: bool| {
        let shims = if shimmed {
            format!("{}:", rig.shims().display())
        } else {
            String::new()
        };
        format!("{shims}{}:/usr/bin:/bin", venv.join("bin").display())
    };
    let script = rig.sandbox.project().join("script");
    crate::common::script(
        &script,
        "#!/usr/bin/env python3\nimport sys\nprint(sys.executable, sys.prefix, sys.argv[1:])\n",
    );
    let run = |shimmed: bool| {
        told(
            &rig.command(&script, shimmed)
                .env("PATH", path(shimmed))
                .arg("a")
                .output()
                .unwrap(),
        )
    };
    assert_eq!(run(true), run(false));
    // A script whose first line names the shim itself.
    crate::common::script(
        &script,
        &format!(
            "#!{}/python3\nimport sys\nprint(sys.argv[1:])\n",
            rig.shims().display()
        ),
    );
    let output = rig.command(&script, true).arg("b").output().unwrap();
    assert_eq!(output.stdout, b"['b']\n", "{output:?}");
}

#[test]
fn which_and_type_see_both() {
    let rig = Rig::new(OBSERVE, &[], &["cat"]);
    let output = rig
        .command("bash", true)
        .args(["-c", "type -a cat"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], format!("cat is {}/cat", rig.shims().display()));
    assert!(lines[1].ends_with("/bin/cat"), "{text}");
}
