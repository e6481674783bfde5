//! `substrate` as a shell that runs one thing: what comes out, how it ends, what is recorded.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::process::{Output, Stdio};

use crate::common::{Sandbox, script};

const ENFORCE: &str = "mode: enforce\nworld: { enabled: \"off\" }\nfs: { write: [\"/**\"], protect: [] }\ncommands:\n  denied:\n    - { pattern: \"forbidden *\", reason: \"because\" }\n";

#[test]
fn endings_are_the_commands_own() {
    let sandbox = Sandbox::new();
    for (line, code) in [
        ("exit 7", 7),
        ("/bin/true", 0),
        ("/bin/false", 1),
        ("true && false", 1),
        ("no-such-command-here", 127),
        ("./no-such-file", 127),
        ("/tmp", 126),
    ] {
        let output = sandbox.run(["-c", line]);
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
    }
    for (line, signal) in [
        ("kill -9 $$", 9),
        ("kill -TERM $$", 15),
        ("sh -c 'kill -9 $$'; kill -INT $$", 2),
    ] {
        let output = sandbox.run(["-c", line]);
        assert_eq!(output.status.signal(), Some(signal), "{line}: {output:?}");
    }
}

#[test]
fn streams_are_untouched() {
    let sandbox = Sandbox::new();
    let all: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    for line in ["cat", "cat | cat", "/bin/cat"] {
        let mut child = sandbox
            .substrate()
            .args(["-c", line])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let sent = all.clone();
        let writer = std::thread::spawn(move || input.write_all(&sent));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap().unwrap();
        assert!(output.stdout == all, "{line} changed what passed through");
        assert!(
            output.stderr.is_empty(),
            "{line} said {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn arguments_are_those_of_bash() {
    let sandbox = Sandbox::new();
    for arguments in [
        &["-c", "echo $0 $1 $#", "name", "a", "b"][..],
        &["-c", "--", "echo $0", "x"],
        &["-ec", "false; echo not reached"],
        &["-o", "pipefail", "-c", "false | true; echo $?"],
        &["-uc", "echo $undefined; echo not reached"],
        &["-xc", "echo traced"],
        &["-c", "-e", "false; echo not reached"],
        &["+e", "-c", "false; echo reached"],
        &["-c", ""],
        &["-c", "   "],
        &["-c", "# only a comment"],
        &["-O", "extglob", "-c", "echo !(x)"],
        &["--norc", "--noprofile", "-c", "echo $-"],
        &["+c", "echo plus"],
        &["-c", "+", "echo after a plus"],
        &["-c", "-", "echo after a dash"],
        &["-norc", "-c", "echo one dash"],
        &["-o"],
        &["+O"],
        &["--debugger", "-c", "echo debugged"],
        &["--dump-strings", "-c", "echo $\"translated\""],
        &["-i", "+i", "-c", "case $- in *i*) echo interactive;; esac"],
    ] {
        let ours = sandbox.run(arguments);
        let mut bash = std::process::Command::new("bash");
        sandbox.prepare(&mut bash);
        let theirs = bash.args(arguments).output().unwrap();
        assert_eq!(ours.status.code(), theirs.status.code(), "{arguments:?}");
        assert_eq!(
            sandbox.normal(&ours.stdout),
            sandbox.normal(&theirs.stdout),
            "{arguments:?}"
        );
        assert_eq!(
            sandbox.normal(&ours.stderr),
            sandbox.normal(&theirs.stderr),
            "{arguments:?}"
        );
    }
}

const DENY_PRINTF: &str = "mode: enforce\nworld: { enabled: \"off\" }\nfs: { write: [\"/**\"], protect: [] }\ncommands:\n  denied:\n    - { pattern: \"printf *\" }\n";

/// Words that an argument vector may consist of; those that print say which of them ran.
const ARGUMENTS: &[&[&str]] = &[
    &["-c"],
    &["-c"],
    &["+c"],
    &["-ec"],
    &["-e"],
    &["+e"],
    &["-u"],
    &["-O", "extglob"],
    &["+o", "nounset"],
    &["-o", "pipefail"],
    &["-oc", "pipefail"],
    &["-s"],
    &["--norc"],
    &["-noprofile"],
    &["--posix"],
    &["--"],
    &["--"],
    &["-"],
    &["+"],
    &["-o"],
    &["printf 'ran one %s %s' \"$0\" $#"],
    &["printf 'ran two %s %s' \"$0\" $#"],
    &["printf 'ran three %s %s' \"$0\" $#"],
    &["name"],
];

#[test]
fn what_is_judged_is_what_bash_would_run() {
    let open = Sandbox::new();
    let denying = Sandbox::with_policy(DENY_PRINTF);
    let marker = |output: &[u8]| {
        let text = String::from_utf8_lossy(output).into_owned();
        text.find("ran ").map(|at| text[at..].to_owned())
    };
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % below as u64).unwrap()
    };
    let mut vectors: Vec<Vec<&str>> = vec![
        vec!["-c", "--", "--", "printf 'ran one'", "a"],
        vec!["-c", "+", "printf 'ran one'"],
        vec!["-c", "--", "-", "printf 'ran one'"],
        vec!["-c", "--", "-x", "printf 'ran one'"],
    ];
    for _ in 0..150 {
        let mut vector = if next(3) > 0 { vec!["-c"] } else { Vec::new() };
        for _ in 0..next(6) + 1 {
            vector.extend(ARGUMENTS[next(ARGUMENTS.len())]);
        }
        vectors.push(vector);
    }
    let mut ran = 0;
    for vector in &vectors {
        let mut bash = std::process::Command::new("bash");
        open.prepare(&mut bash);
        let theirs = bash.args(vector).output().unwrap();
        // Where bash refuses long options, those after others, they are taken here.
        if theirs.status.code() != Some(2) {
            let ours = open.run(vector);
            assert_eq!(marker(&ours.stdout), marker(&theirs.stdout), "{vector:?}");
            assert_eq!(ours.status.success(), theirs.status.success(), "{vector:?}");
        }
        ran += usize::from(marker(&theirs.stdout).is_some());
        let denied = denying.run(vector);
        assert_eq!(marker(&denied.stdout), None, "{vector:?} ran unjudged");
    }
    assert!(ran > 20, "only {ran} vectors ran anything");
}

#[test]
fn a_program_that_only_a_shell_can_run_is_run_as_bash_runs_it() {
    let sandbox = Sandbox::new();
    script(&sandbox.project().join("bare"), "echo \"bare $1\"\n");
    let output = sandbox.run(["-c", "./bare word"]);
    assert_eq!(output.stdout, b"bare word\n", "{output:?}");
    let long = format!("/{}", "a".repeat(300));
    assert_eq!(sandbox.run(["-c", &long]).status.code(), Some(126));
}

#[test]
fn interactive_without_a_terminal_is_what_bash_makes_of_it() {
    let sandbox = Sandbox::new();
    let path = sandbox.project().join("flags.sh");
    std::fs::write(&path, "case $- in *i*) echo interactive;; esac\n").unwrap();
    let output = sandbox.run(["-i".as_ref(), path.as_os_str()]);
    assert_eq!(output.stdout, b"interactive\n", "{output:?}");
    let input = std::fs::File::open(&path).unwrap();
    let output = sandbox.substrate().arg("-i").stdin(input).output().unwrap();
    assert_eq!(output.stdout, b"interactive\n", "{output:?}");
}

#[test]
fn a_login_shell_reads_the_profile() {
    let sandbox = Sandbox::new();
    let home = sandbox.home();
    std::fs::write(
        home.parent().unwrap().join(".bash_profile"),
        "export FROM_PROFILE=yes\n",
    )
    .unwrap();
    for arguments in [
        &["-lc", "echo $FROM_PROFILE"][..],
        &["--login", "-c", "echo $FROM_PROFILE"],
    ] {
        let output = sandbox.run(arguments);
        assert_eq!(output.stdout, b"yes\n", "{arguments:?}");
    }
    let mut login = sandbox.substrate();
    std::os::unix::process::CommandExt::arg0(&mut login, "-substrate");
    let output = login.args(["-c", "echo $FROM_PROFILE"]).output().unwrap();
    assert_eq!(output.stdout, b"yes\n");
}

#[test]
fn scripts_run_with_their_arguments() {
    let sandbox = Sandbox::new();
    let path = sandbox.project().join("a script.sh");
    std::fs::write(&path, "echo \"$0|$1|$2\"\nexit 3\n").unwrap();
    let output = sandbox.run([path.as_os_str(), "one two".as_ref(), "-c".as_ref()]);
    assert_eq!(
        output.stdout,
        format!("{}|one two|-c\n", path.display()).as_bytes()
    );
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(sandbox.run(["missing.sh"]).status.code(), Some(127));
}

#[test]
fn a_script_is_judged_by_what_it_says() {
    let sandbox = Sandbox::with_policy(ENFORCE);
    let path = sandbox.project().join("bad.sh");
    std::fs::write(&path, "echo before\nif true; then forbidden thing; fi\n").unwrap();
    let output = sandbox.run([&path]);
    assert_eq!(output.status.code(), Some(126));
    assert_eq!(output.stdout, b"", "nothing of the script may have run");
}

#[test]
fn commands_come_from_standard_input() {
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .substrate()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"echo one\nx=2\nif true; then\necho $x\nfi\nexit 5\necho never\n")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\n2\n");
    assert_eq!(output.status.code(), Some(5));
}

fn piped(command: &mut std::process::Command, input: &str) -> std::process::Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stream = child.stdin.take().unwrap();
    let text = input.to_owned();
    let writer = std::thread::spawn(move || {
        let _ = stream.write_all(text.as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

#[test]
fn what_a_stopped_reader_leaves_is_judged() {
    let sandbox = Sandbox::with_policy(ENFORCE);
    script(&sandbox.project().join("forbidden"), "echo ran\n");
    let mut stream =
        "PATH=.:$PATH\ncat <&0 >/dev/null & p=$!; sleep 0.02; kill -STOP $p; sleep 0.3; kill -KILL $p\n"
            .to_owned();
    stream.push_str(&"forbidden thing\n".repeat(8_000));
    let output = piped(&mut sandbox.substrate(), &stream);
    assert!(!String::from_utf8_lossy(&output.stdout).contains("ran"));
}

#[test]
fn what_read_leaves_of_a_line_is_recorded() {
    let sandbox = Sandbox::with_policy("mode: observe\n");
    let output = piped(&mut sandbox.substrate(), "read -n1 x\nxecho left-over\n");
    assert_eq!(output.stdout, b"left-over\n");
    let trace = sandbox.run(["trace"]);
    let trace = String::from_utf8_lossy(&trace.stdout).into_owned();
    assert!(trace.contains("echo left-over"), "{trace}");
}

/// Streams of commands and data.
const STREAMS: &[&str] = &[
    "false\necho $?\n",
    "read x\nhello\necho $x\n",
    "echo a \\\ntouch made\nls\n",
    "cat\ndata\nmore data\n",
    "cat <<E\n$HOME\nE\necho $LINENO\n",
    "head -c 5 >/dev/null\nxxxxxecho hi\n",
    "read -n 3 x\nabcecho $x\necho z\n",
    "read -N 4 x\nabc\necho \"$x\"\n",
    "while read a; do echo \"<$a>\"; done\n1\n2\n",
    "f() {\n read y\n echo got $y\n}\nf\nline for f\necho $LINENO $0 $- ${BASH_SOURCE[0]}\n",
    "true | false\necho ${PIPESTATUS[*]} $_\n",
    "(sleep 0.05; cat)\nlate data\n",
    ". /dev/stdin\necho sourced\n",
    "exec </dev/stdin\necho hi\nread x\nfoo\necho $x\n",
    "echo 'two\nlines'\necho $LINENO\n",
    "mapfile -t a\nx\ny\n",
    "exit 5\necho never",
    "echo no newline",
];

#[test]
fn a_stream_is_read_as_bash_reads_it() {
    for policy in ["mode: observe\n", ENFORCE] {
        let sandbox = Sandbox::with_policy(policy);
        for stream in STREAMS {
            let ours = piped(&mut sandbox.substrate(), stream);
            let mut bash = std::process::Command::new("bash");
            sandbox.prepare(&mut bash);
            let theirs = piped(&mut bash, stream);
            assert_eq!(
                sandbox.normal(&ours.stdout),
                sandbox.normal(&theirs.stdout),
                "{stream:?}: {ours:?}"
            );
            assert_eq!(ours.status.code(), theirs.status.code(), "{stream:?}");
        }
    }
}

#[test]
fn what_runs_of_a_stream_was_judged_as_it_runs() {
    let sandbox = Sandbox::with_policy(ENFORCE);
    script(
        &sandbox.project().join("forbidden"),
        "#!/bin/sh\necho RAN\n",
    );
    let run = |stream: &str| {
        let mut command = sandbox.substrate();
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", sandbox.project().display()));
        piped(&mut command, stream)
    };
    for stream in [
        "forbidden x\necho $?\n",
        "head -c 5 >/dev/null\nxxxxxforbidden x\necho $?\n",
        "read -n 4 y\necho forbidden x\nforbidden y\necho $?\n",
        "read y\ncat <<E\nforbidden x\nE\necho 126\n",
        "read -N 5 y\necho forbidden x\nforbidden y\necho 126\n",
        "exec </dev/stdin\nforbidden x\necho $?\n",
        "echo a; forbidden \\\n x\necho $?\n",
    ] {
        let output = run(stream);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!said.contains("RAN"), "{stream:?}: {said}");
        assert!(said.contains("126"), "the rest of {stream:?} runs: {said}");
    }
    let output = run("echo one\nforbidden \\\n x\necho $? $LINENO\ncat\nforbidden z\n");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said, "one\n126 4\nforbidden z\n");
}

#[test]
fn nobody_takes_the_rest_of_a_stream_to_run_it_unjudged() {
    let sandbox = Sandbox::with_policy(ENFORCE);
    script(
        &sandbox.project().join("forbidden"),
        "#!/bin/sh\necho RAN\n",
    );
    std::fs::write(sandbox.project().join("more"), "forbidden x\n").unwrap();
    let run = |options: &[&str], stream: &str| {
        let mut command = sandbox.substrate();
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", sandbox.project().display()));
        command.args(options);
        let output = piped(&mut command, stream);
        (
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    for (options, stream, why) in [
        (
            &[][..],
            "bash\nforbidden x\necho $?\n",
            "rest of standard input",
        ),
        (
            &[],
            "sh -s a\nforbidden x\necho $?\n",
            "rest of standard input",
        ),
        (
            &[],
            "cat | sh\nforbidden x\necho $?\n",
            "rest of standard input",
        ),
        (
            &[],
            "exec bash\nforbidden x\necho $?\n",
            "rest of standard input",
        ),
        (&[], "exec < more\necho $?\n", "from somewhere else"),
        (
            &[],
            "exec 4< more\nexec <&4\necho $?\n",
            "from somewhere else",
        ),
        (
            &[],
            "shopt -s expand_aliases\nalias x=forbidden\nx y\necho 126\n",
            "replace words",
        ),
        (
            &[],
            "set -o posix\nalias x=forbidden\nx y\necho 126\n",
            "replace words",
        ),
        (
            &["-i"],
            "alias x=forbidden\nx y\necho 126\n",
            "replace words",
        ),
        (
            &[],
            "set -o history -H\nset +H\necho 126\n",
            "replace words",
        ),
    ] {
        let (said, complained) = run(options, stream);
        assert!(!said.contains("RAN"), "{stream:?}: {said}{complained}");
        assert!(said.contains("126"), "{stream:?}: {said}{complained}");
        assert!(complained.contains(why), "{stream:?}: {complained}");
    }
    // History is not expanded where a line is judged as it stands.
    let (said, _) = run(&["-i"], "echo for'bidden x'; echo 126\n!ec\n");
    assert!(!said.contains("RAN"), "{said}");
    // Where nothing is refused, everything is as under bash.
    let open = Sandbox::with_policy("mode: observe\n");
    let output = piped(&mut open.substrate(), "bash\necho inner-$((1+1))\n");
    assert_eq!(output.stdout, b"inner-2\n");
}

#[test]
fn a_command_of_a_stream_is_complete_when_it_is_over() {
    let sandbox = Sandbox::with_policy("mode: observe\n");
    let mut child = sandbox
        .substrate()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"echo ready; sleep 30\n").unwrap();
    let mut byte = [0];
    child
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut byte)
        .unwrap();
    let starts = sandbox.events("command_start");
    assert!(
        starts
            .iter()
            .any(|event| event["cmd"] == "echo ready; sleep 30")
    );
    assert_eq!(sandbox.events("command_complete").len(), 0);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_command_does_not_outlive_a_substrate_that_is_killed() {
    let sandbox = Sandbox::with_policy("mode: observe\nworld: { enabled: off }\n");
    for arguments in [
        &["-c", "sleep 100"][..],
        &["run", "--", "sleep", "100"],
        &[],
    ] {
        let mut child = sandbox
            .substrate()
            .args(arguments)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"exec sleep 100\n").unwrap();
        let own = child.id();
        let started = || -> Option<u32> {
            let path = format!("/proc/{own}/task/{own}/children");
            let children = std::fs::read_to_string(path).ok()?;
            let child = children.split_whitespace().next()?.parse().ok()?;
            let words = std::fs::read(format!("/proc/{child}/cmdline")).ok()?;
            words.starts_with(b"sleep\0").then_some(child)
        };
        let found = eventually(started);
        child.kill().unwrap();
        child.wait().unwrap();
        let gone = || {
            let stat = std::fs::read_to_string(format!("/proc/{found}/stat"));
            (!stat.is_ok_and(|stat| !stat.contains(") Z "))).then_some(())
        };
        eventually(gone);
    }
}

/// Waits until something is there.
fn eventually<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let start = std::time::Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < std::time::Duration::from_secs(30));
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_refusal_names_the_rule() {
    let sandbox = Sandbox::with_policy(ENFORCE);
    let output = sandbox.run(["-c", "forbidden thing"]);
    assert_eq!(output.status.code(), Some(126));
    assert_eq!(
        sandbox.normal(&output.stderr),
        "🔒 denied by policy 'test' (forbidden *, /sandbox/home/policies/test.yaml:8): because\n"
    );
    let plain = sandbox
        .substrate()
        .env("LANG", "C")
        .args(["-c", "forbidden"])
        .output()
        .unwrap();
    assert_eq!(
        sandbox.normal(&plain.stderr),
        "substrate: denied by policy 'test' (forbidden *, /sandbox/home/policies/test.yaml:8): because\n"
    );
    let violations = sandbox.events("policy_violation");
    assert_eq!(violations.len(), 2);
    assert_eq!(violations[0]["outcome"], "deny");
    assert_eq!(violations[0]["rule"]["pattern"], "forbidden *");
    assert_eq!(violations[0]["rule"]["line"], 8);
    assert_eq!(sandbox.events("command_start").len(), 0);
}

#[test]
fn every_part_of_a_line_is_judged() {
    let sandbox = Sandbox::with_policy(ENFORCE);
    for line in [
        "true; forbidden",
        "a=$(forbidden)",
        "(forbidden)",
        "echo x | forbidden",
        "if forbidden; then :; fi",
        "f() { forbidden; }; f",
        "bash -c 'forbidden'",
        "env A=1 nohup forbidden",
        "echo `forbidden`",
        "cat <(forbidden)",
        "f''orbidden",
        "$'\\x66orbidden'",
    ] {
        assert_eq!(sandbox.run(["-c", line]).status.code(), Some(126), "{line}");
    }
    assert_eq!(sandbox.run(["-c", "echo forbidden"]).stdout, b"forbidden\n");
}

#[test]
fn observing_runs_and_records() {
    let sandbox = Sandbox::with_policy("mode: observe\ncommands: { denied: [\"echo *\"] }\n");
    let output = sandbox.run(["-c", "echo hi"]);
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(0), &b"hi\n"[..])
    );
    assert_eq!(output.stderr, b"");
    assert_eq!(
        sandbox.events("policy_violation")[0]["outcome"],
        "would_deny"
    );
    assert_eq!(sandbox.events("command_complete")[0]["exit"], 0);
}

#[test]
fn an_agent_that_is_refused_is_told_how_to_go_on_and_a_person_is_not() {
    let sandbox = Sandbox::with_policy(
        "mode: enforce\nworld: { enabled: 'off' }\nfs: { write: ['$PROJECT/**'] }\ncommands: { denied: ['uname *'], ask: ['id *'] }\n",
    );
    for (line, way) in [
        ("uname", "take another way"),
        ("id", "a person's yes"),
        ("touch /etc/x", "inside the project"),
    ] {
        let person = sandbox.run(["-c", line]);
        let mut agent = sandbox.substrate();
        let agent = agent.env("SUBSTRATE_AGENT_ID", "bot").args(["-c", line]);
        let agent = agent.output().unwrap();
        let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(
            (person.status.code(), agent.status.code()),
            (Some(126), Some(126))
        );
        assert!(!said(&person).contains(way), "{line}: {}", said(&person));
        assert!(said(&agent).contains(way), "{line}: {}", said(&agent));
    }
    let mut allowed = sandbox.substrate();
    let allowed = allowed.env("SUBSTRATE_AGENT_ID", "bot").arg("allowed");
    let said = String::from_utf8(allowed.output().unwrap().stdout).unwrap();
    assert!(said.contains("refused again"), "{said}");
}

#[test]
fn builtins_leave_spans() {
    let sandbox = Sandbox::new();
    sandbox.run(["-c", "cd /; export A=1"]);
    let commands: Vec<String> = sandbox
        .events("builtin_command")
        .iter()
        .map(|event| event["cmd"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(commands, ["cd /", "export A=1"]);
}

#[test]
fn spans_nest() {
    let sandbox = Sandbox::new();
    let inner = format!("{} -c /bin/true", env!("CARGO_BIN_EXE_substrate"));
    sandbox.run(["-c", &inner]);
    let spans = sandbox.events("command_complete");
    assert_eq!(spans.len(), 2);
    assert_eq!(spans[0]["parent_span"], spans[1]["span_id"]);
    assert_eq!(spans[0]["session_id"], spans[1]["session_id"]);
    assert!(spans[1]["parent_span"].is_null());
}

#[test]
fn run_takes_words_as_they_are() {
    let sandbox = Sandbox::with_policy(ENFORCE);
    let output = sandbox.run(["run", "--", "printf", "%s|", "a b", "$x", "*"]);
    assert_eq!(output.stdout, b"a b|$x|*|");
    assert_eq!(
        sandbox.run(["run", "--", "forbidden"]).status.code(),
        Some(126)
    );
    assert_eq!(
        sandbox
            .run(["run", "--", "no-such-command-here"])
            .status
            .code(),
        Some(127)
    );
    assert_eq!(sandbox.run(["run"]).status.code(), Some(2));
    assert_eq!(sandbox.events("command_complete")[0]["argv"][2], "a b");
}

#[test]
fn bytes_that_are_not_text_survive() {
    let sandbox = Sandbox::new();
    let odd = OsString::from_vec(b"a\xff\xfeb".to_vec());
    let directory = sandbox.project().join(&odd);
    std::fs::create_dir(&directory).unwrap();
    let line = OsString::from_vec(b"printf %s \"$ODD\" 'x\xff'".to_vec());
    let output = sandbox
        .substrate()
        .current_dir(&directory)
        .env("ODD", &odd)
        .arg("-c")
        .arg(&line)
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"a\xff\xfebx\xff");
    let output = sandbox
        .substrate()
        .args(["run", "--", "printf", "%s"])
        .arg(&odd)
        .output()
        .unwrap();
    assert_eq!(output.stdout, odd.as_bytes());
    let span = &sandbox.events("command_complete")[0];
    assert!(span["cmd"]["b64"].is_string(), "{span}");
    assert!(span["cwd"]["b64"].is_string(), "{span}");
}

#[test]
fn signals_reach_the_command() {
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .substrate()
        .args([
            "-c",
            "trap 'echo got it; exit 9' TERM; echo ready; while :; do sleep 0.05; done",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = child.stdout.take().unwrap();
    let mut ready = [0; 6];
    output.read_exact(&mut ready).unwrap();
    let status = std::process::Command::new("kill")
        .arg(child.id().to_string())
        .status()
        .unwrap();
    assert!(status.success());
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "got it\n");
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn a_closed_pipe_ends_the_writer() {
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .substrate()
        .args(["-c", "yes"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut some = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(13));
}

#[test]
fn make_and_git_can_use_it_as_their_shell() {
    let sandbox = Sandbox::new();
    let project = sandbox.project();
    let shell = env!("CARGO_BIN_EXE_substrate");
    std::fs::write(
        project.join("Makefile"),
        format!("SHELL = {shell}\nall:\n\t@echo made by $$0; x=1; echo $$x\n"),
    )
    .unwrap();
    let mut make = std::process::Command::new("make");
    sandbox.prepare(&mut make);
    let output = make.arg("-s").output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).lines().last(),
        Some("1"),
        "{output:?}"
    );

    script(&project.join("edit"), "#!/bin/sh\necho text > \"$1\"\n");
    let mut git = std::process::Command::new("git");
    sandbox.prepare(&mut git);
    let line = "git init -q . && git config user.email a@b.c && git config user.name n && GIT_EDITOR=./edit git commit -q --allow-empty && git log --format=%s";
    git.env("SHELL", shell);
    let output = sandbox.run(["-c", line]);
    assert_eq!(output.stdout, b"text\n", "{output:?}");
}

#[test]
fn usage_mistakes_are_two() {
    let sandbox = Sandbox::new();
    let output = sandbox.run(["-c"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        sandbox.normal(&output.stderr),
        "substrate: -c: option requires an argument\nsubstrate: `substrate --help` lists what there is\n"
    );
    assert_eq!(sandbox.run(["--no-such-option"]).status.code(), Some(2));
}

#[test]
fn short_options_that_stand_alone_ask_about_substrate() {
    let sandbox = Sandbox::new();
    let version = sandbox.run(["-V"]);
    assert!(version.stdout.starts_with(b"substrate "), "{version:?}");
    let help = sandbox.run(["-h"]);
    assert!(
        String::from_utf8_lossy(&help.stdout).contains("Usage:"),
        "{help:?}"
    );
    let bash = sandbox.run(["-h", "-c", "echo $-"]);
    assert!(
        String::from_utf8_lossy(&bash.stdout).contains('h'),
        "{bash:?}"
    );
}

#[test]
fn a_refusal_names_the_command_that_it_is_about() {
    let sandbox = Sandbox::with_policy(
        "mode: enforce\ncommands: { denied: [\"mv *\"] }\nworld: { enabled: off }\n",
    );
    let said = |line: &str| {
        let output = sandbox.run(["-c", line]);
        assert_eq!(output.status.code(), Some(126), "{line}");
        String::from_utf8(output.stderr).unwrap()
    };
    let one = said("mv a b");
    assert!(
        one.trim_end().ends_with("Command explicitly denied"),
        "{one}"
    );
    let several = said("ls; true && (echo x | mv a 'b c'$'\\e[31m')");
    assert!(several.contains("it is about `mv a b c"), "{several}");
    assert!(!several.contains('\u{1b}'), "{several:?}");
    let long = said(&format!("true; mv {}", "x".repeat(1000)));
    assert!(long.contains(" …`") && long.len() < 600, "{long}");
}

#[test]
fn a_command_on_standard_input_is_complete_when_it_has_ended() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.substrate();
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let text = b"sleep 0.3\nread word\ndata\necho \"$word\"\n";
    child.stdin.take().unwrap().write_all(text).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"data\n");
    let events = sandbox.trace();
    let at = |kind: &str, cmd: &str| {
        let found = |event: &serde_json::Value| event["event_type"] == kind && event["cmd"] == cmd;
        let at = events.iter().position(found);
        at.unwrap_or_else(|| panic!("{kind} {cmd}: {events:?}"))
    };
    let slept = at("command_complete", "sleep 0.3");
    assert!(slept < at("command_start", "read word"));
    assert!(
        events[slept]["duration_ms"].as_f64().unwrap() >= 300.0,
        "{}",
        events[slept]
    );
}
