//! Isolated commands as people meet them: run, look, look around, take over, bring back, throw away.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use crate::common::{Sandbox, skip};
use crate::person::Person;

const OPEN: &str = "mode: observe\nfs: { write: [\"$PROJECT/**\"] }\n";

/// A sandbox, unless this machine has no full worlds.
pub fn sandbox(test: &str) -> Option<Sandbox> {
    let sandbox = Sandbox::with_policy(OPEN);
    if !sandbox.run(["world", "doctor"]).status.success() {
        skip(test, "this machine has no full worlds");
        return None;
    }
    fs::write(sandbox.project().join("file"), "before\n").unwrap();
    Some(sandbox)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a shell line isolated, with more arguments before it.
fn isolated(sandbox: &Sandbox, more: &[&str], line: &str) -> Output {
    let arguments = ["run", "--isolated"].iter().chain(more);
    sandbox.run(arguments.chain(&["--", "sh", "-c", line]).copied())
}

fn explore(sandbox: &Sandbox, line: &str) -> Output {
    sandbox.run(["world", "explore", "-", "--", "sh", "-c", line])
}

fn states(sandbox: &Sandbox) -> Vec<String> {
    let output = sandbox.run(["world", "status", "--json"]);
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).unwrap();
    rows.iter()
        .map(|row| row["state"].as_str().unwrap().to_owned())
        .collect()
}

fn content(sandbox: &Sandbox, name: &str) -> Option<String> {
    fs::read_to_string(sandbox.project().join(name)).ok()
}

#[test]
fn what_the_notice_says_to_run_next_works() {
    let Some(sandbox) = sandbox("what_the_notice_says_to_run_next_works") else {
        return;
    };
    let output = isolated(&sandbox, &[], "echo after > file; echo new > made; exit 3");
    assert_eq!(output.status.code(), Some(3));
    let said = text(&output.stderr);
    assert_eq!(content(&sandbox, "file").unwrap(), "before\n");
    assert_eq!(said.lines().count(), 1, "{said}");
    let commands: Vec<Vec<&str>> = said
        .split('`')
        .filter(|part| part.starts_with("substrate world"))
        .map(|part| part.split_whitespace().skip(1).collect())
        .collect();
    assert_eq!(commands.len(), 2, "{said}");
    let diff = sandbox.run(&commands[0]);
    let shown = text(&diff.stdout);
    assert!(diff.status.success() && shown.contains("+after"), "{shown}");
    let apply = sandbox.run(&commands[1]);
    assert!(apply.status.success(), "{}", text(&apply.stderr));
    assert_eq!(content(&sandbox, "file").unwrap(), "after\n");
    assert_eq!(content(&sandbox, "made").unwrap(), "new\n");
    assert_eq!(states(&sandbox), ["applied"]);
    let undo = sandbox.run(["world", "undo", "-"]);
    assert!(undo.status.success(), "{}", text(&undo.stderr));
    assert_eq!(content(&sandbox, "file").unwrap(), "before\n");
    assert_eq!(content(&sandbox, "made"), None);
    assert!(sandbox.run(["world", "discard", "-"]).status.success());
    assert!(states(&sandbox).is_empty());
}

#[test]
fn both_doctors_tell_what_worlds_are_worth_here() {
    let Some(sandbox) = sandbox("both_doctors_tell_what_worlds_are_worth_here") else {
        return;
    };
    let output = sandbox.run(["world", "doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["level"], "full");
    let rows = report["checks"].as_array().unwrap();
    for what in [
        "user namespaces",
        "overlays",
        "Landlock",
        "system call filters",
        "answering system calls with descriptors",
        "control groups",
    ] {
        let row = rows.iter().find(|row| row["check"] == what);
        let row = row.unwrap_or_else(|| panic!("{what} is missing: {report}"));
        assert!(row["works"] == true || row["fix"].is_string(), "{row}");
    }
    let output = sandbox.run(["doctor"]);
    let said = text(&output.stdout);
    let line = said.lines().find(|line| line.contains(" worlds "));
    assert!(
        line.is_some_and(|line| line.contains("level full")),
        "{said}"
    );
}

#[test]
fn what_changes_nothing_leaves_nothing() {
    let Some(sandbox) = sandbox("what_changes_nothing_leaves_nothing") else {
        return;
    };
    let output = isolated(&sandbox, &[], "cat file; touch x; rm x");
    assert_eq!(text(&output.stdout), "before\n");
    assert_eq!(text(&output.stderr), "");
    let left = || -> Vec<PathBuf> {
        let all = fs::read_dir(sandbox.home().join("worlds")).unwrap();
        let dirs = all.flatten().map(|entry| entry.path());
        dirs.filter(|path| path.is_dir()).collect()
    };
    // Its directories lie aside, beside those for the next command, and nobody lists them.
    assert!(states(&sandbox).is_empty());
    assert_eq!(left().len(), 2, "{:?}", left());
    isolated(&sandbox, &[], "true");
    assert!(states(&sandbox).is_empty());
    assert_eq!(left().len(), 3, "{:?}", left());
    let aside = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(".aside-")
    };
    assert!(left().iter().all(aside), "{:?}", left());
    assert!(sandbox.run(["world", "gc"]).status.success());
    assert_eq!(left(), Vec::<PathBuf>::new());
}

#[test]
fn what_was_applied_last_is_undone_as_the_message_says() {
    let Some(sandbox) = sandbox("what_was_applied_last_is_undone_as_the_message_says") else {
        return;
    };
    let file = sandbox.project().join("file");
    let none = sandbox.run(["world", "undo"]);
    assert_eq!(none.status.code(), Some(1), "{}", text(&none.stderr));
    isolated(&sandbox, &[], "echo after > file");
    let applied = text(&sandbox.run(["world", "apply", "-"]).stdout);
    assert_eq!(
        applied,
        "1 change applied; `substrate world undo` brings the old state back\n"
    );
    assert_eq!(fs::read_to_string(&file).unwrap(), "after\n");
    // A newer result, of which nothing was applied.
    isolated(&sandbox, &[], "echo other > other");
    let undone = sandbox.run(["world", "undo"]);
    assert_eq!(text(&undone.stdout), "1 change undone\n");
    assert_eq!(fs::read_to_string(&file).unwrap(), "before\n");

    // Of one result a part, of another all, of the first the rest; back again in that order.
    let project = sandbox.project();
    isolated(&sandbox, &[], "echo 1 > one; echo 3 > three");
    let first = newest(&sandbox);
    let apply = |id: &str, path: &str| {
        let path = project.join(path);
        let applied = sandbox.run(["world", "apply", id, path.to_str().unwrap()]);
        assert!(applied.status.success(), "{}", text(&applied.stderr));
    };
    apply(&first, "one");
    isolated(&sandbox, &[], "echo 2 > two");
    apply(&newest(&sandbox), "two");
    apply(&first, "three");
    for gone in ["three", "two", "one"] {
        assert!(project.join(gone).exists(), "{gone}");
        assert!(sandbox.run(["world", "undo"]).status.success());
        assert!(!project.join(gone).exists(), "{gone}");
    }
}

#[test]
fn only_what_was_applied_here_is_undone_and_what_was_left_out_does_not_count() {
    const NAME: &str = "only_what_was_applied_here_is_undone_and_what_was_left_out_does_not_count";
    let Some(sandbox) = sandbox(NAME) else {
        return;
    };
    isolated(&sandbox, &[], "echo after > file");
    assert!(sandbox.run(["world", "apply", "-"]).status.success());
    let other = sandbox.home().parent().unwrap().join("other");
    fs::create_dir_all(other.join(".git")).unwrap();
    let there = |arguments: &[&str]| {
        let mut command = sandbox.substrate();
        command.current_dir(&other).args(arguments);
        command.output().unwrap()
    };
    let bind = "import socket; socket.socket(socket.AF_UNIX).bind('s')";
    let made = there(&["run", "--isolated", "--", "python3", "-c", bind]);
    assert!(made.status.success(), "{made:?}");
    let applied = text(&there(&["world", "apply", "-"]).stdout);
    assert!(
        applied.ends_with("0 changes applied, 1 left out\n"),
        "{applied}"
    );
    let undone = there(&["world", "undo"]);
    assert_eq!(undone.status.code(), Some(1), "{undone:?}");
    let said = text(&undone.stderr);
    assert!(said.contains("nothing was applied in"), "{said}");
    assert_eq!(content(&sandbox, "file").unwrap(), "after\n");
    let id = said.split("world undo ").nth(1).unwrap();
    let id = id.split('`').next().unwrap();
    assert!(there(&["world", "undo", id]).status.success());
    assert_eq!(content(&sandbox, "file").unwrap(), "before\n");
}

/// The id of the newest result.
fn newest(sandbox: &Sandbox) -> String {
    let status = text(&sandbox.run(["world", "status", "--json"]).stdout);
    let rows: serde_json::Value = serde_json::from_str(&status).unwrap();
    let last = rows.as_array().unwrap().last().unwrap();
    last["world"].as_str().unwrap().to_owned()
}

#[test]
fn wishes_are_granted_and_slips_are_named() {
    let Some(sandbox) = sandbox("wishes_are_granted_and_slips_are_named") else {
        return;
    };
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    let odd = outside.path().join("odd *[?]\\ name");
    fs::create_dir(&odd).unwrap();
    fs::write(odd.join("secret"), "secret\n").unwrap();
    fs::write(outside.path().join("seen"), "seen\n").unwrap();
    let path = |path: &PathBuf| path.to_str().unwrap().to_owned();
    let (place, hidden) = (path(&outside.path().to_owned()), path(&odd));

    // Without the wish the place is read-only; with it, its writes are held, and apart.
    let line = format!("echo x > '{place}/made' && cat '{place}/made'");
    assert!(!isolated(&sandbox, &[], &line).status.success());
    let output = isolated(&sandbox, &["--write", &place], &line);
    assert_eq!(text(&output.stdout), "x\n", "{}", text(&output.stderr));
    assert!(!outside.path().join("made").exists());
    let apply = sandbox.run(["world", "apply", "-"]);
    assert_eq!(apply.status.code(), Some(1));
    assert!(text(&apply.stdout).contains("--held"));
    assert!(!outside.path().join("made").exists(), "held needs --held");
    let held = sandbox.run(["world", "apply", "-", "--held"]);
    assert!(held.status.success(), "{}", text(&held.stderr));
    assert!(outside.path().join("made").exists());

    let line = format!("cat '{place}/seen'; cat '{hidden}/secret'");
    let output = isolated(&sandbox, &["--hide", &hidden], &line);
    assert_eq!(text(&output.stdout), "seen\n");
    let both = ["--hide", &hidden, "--write", &place];
    assert_eq!(text(&isolated(&sandbox, &both, &line).stdout), "seen\n");

    let more = ["--setenv", "A=1=2", "--setenv", "B=", "--chdir", &place];
    let output = isolated(&sandbox, &more, "pwd; echo \"$A|${B-unset}|$PWD\"");
    assert_eq!(text(&output.stdout), format!("{place}\n1=2||{place}\n"));

    for (arguments, code, reason) in [
        (vec!["--write", "/no/such"], 125, "--write /no/such"),
        (vec!["--hide", "/no/such"], 125, "--hide /no/such"),
        (vec!["--chdir", "/no/such"], 125, "--chdir /no/such"),
        (vec!["--setenv", "x"], 2, "NAME=VALUE"),
        (vec!["--setenv", "=x"], 2, "NAME=VALUE"),
    ] {
        let output = isolated(&sandbox, &arguments, "true");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(reason), "{said}");
    }
    for flag in [&["--write", "/"][..], &["--hide", "/"], &["--no-net"]] {
        let output = sandbox.run(["run"].iter().chain(flag).chain(&["--", "true"]));
        assert_eq!(output.status.code(), Some(2), "{flag:?} needs --isolated");
    }
}

#[test]
fn without_network_there_is_none_whatever_the_policy_allows() {
    let Some(sandbox) = sandbox("without_network_there_is_none_whatever_the_policy_allows") else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    sandbox.policy(
        "test",
        &format!("id: test\nname: T\nmode: observe\nfs: {{ write: [\"$PROJECT/**\"] }}\nnet: {{ allowed: [\"host-loopback:{port}\"] }}\n"),
    );
    let line = format!("exec 3<>/dev/tcp/localhost/{port} && echo reached");
    let run = |more: &[&str]| {
        let arguments = ["run", "--isolated"].iter().chain(more);
        sandbox.run(arguments.chain(&["--", "bash", "-c", &line]).copied())
    };
    assert_eq!(text(&run(&[]).stdout), "reached\n", "the policy allows it");
    let output = run(&["--no-net"]);
    assert_eq!(text(&output.stdout), "", "{}", text(&output.stderr));
    let event = sandbox.events("command_complete").pop().unwrap();
    assert_eq!(event["enforced"]["net"], "closed");
}

#[test]
fn what_may_not_be_read_is_not_opened_by_a_wish_to_write() {
    let Some(sandbox) = sandbox("what_may_not_be_read_is_not_opened_by_a_wish_to_write") else {
        return;
    };
    let outside = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(outside.path().join("secret"), "secret\n").unwrap();
    sandbox.policy(
        "test",
        "id: test\nname: T\nmode: enforce\nfs: { read: [\"$PROJECT/**\"], outside: allow }\n",
    );
    let place = outside.path().to_str().unwrap();
    let line = format!("cat '{place}/secret'; cat file");
    let output = isolated(&sandbox, &["--write", place], &line);
    assert_eq!(text(&output.stdout), "before\n", "{}", text(&output.stderr));
}

#[test]
fn looking_around_adds_to_the_result_and_touches_nothing_else() {
    let Some(sandbox) = sandbox("looking_around_adds_to_the_result_and_touches_nothing_else")
    else {
        return;
    };
    isolated(
        &sandbox,
        &[],
        "echo one > a; echo two > b; echo after > file",
    );
    let output = explore(
        &sandbox,
        "cat a file; rm a; echo three > c; echo more >> file; exit 4",
    );
    assert_eq!(output.status.code(), Some(4), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "one\nafter\n");
    assert_eq!(content(&sandbox, "file").unwrap(), "before\n");
    assert_eq!(states(&sandbox), ["waiting"]);
    // A second look finds what the first one left.
    let again = explore(&sandbox, "cat c file; ls a");
    assert_eq!(text(&again.stdout), "three\nafter\nmore\n");
    let diff = sandbox.run(["world", "diff", "-", "--json"]);
    let shown = text(&diff.stdout);
    assert!(shown.contains("/c") && shown.contains("/b"), "{shown}");
    assert!(!shown.contains("project/a\""), "{shown}");
    let apply = sandbox.run(["world", "apply", "-"]);
    assert!(apply.status.success(), "{}", text(&apply.stdout));
    assert_eq!(content(&sandbox, "file").unwrap(), "after\nmore\n");
    assert_eq!(content(&sandbox, "c").unwrap(), "three\n");
    assert_eq!(content(&sandbox, "a"), None);
    let late = explore(&sandbox, "true");
    assert_eq!(late.status.code(), Some(125));
    assert!(text(&late.stderr).contains("it was applied"));
}

#[test]
fn a_look_around_keeps_what_the_host_did_a_conflict() {
    let Some(sandbox) = sandbox("a_look_around_keeps_what_the_host_did_a_conflict") else {
        return;
    };
    isolated(&sandbox, &[], "echo after > file; echo one > a");
    fs::write(sandbox.project().join("file"), "host\n").unwrap();
    explore(&sandbox, "cat file; echo more >> file; echo two > b");
    let apply = sandbox.run(["world", "apply", "-"]);
    let said = text(&apply.stdout);
    assert_eq!(apply.status.code(), Some(1), "{said}");
    assert!(
        said.contains("conflict:") && said.contains("/file"),
        "{said}"
    );
    assert_eq!(content(&sandbox, "file").unwrap(), "host\n");
    // What nobody else touched can be taken by itself.
    let chosen = sandbox.run(["world", "apply", "-", "b"]);
    assert!(chosen.status.success(), "{}", text(&chosen.stderr));
    assert_eq!(content(&sandbox, "b").unwrap(), "two\n");
    let part = explore(&sandbox, "true");
    assert!(text(&part.stderr).contains("a part of it was applied"));
}

#[test]
fn what_comes_on_standard_input_stays_commands_and_data() {
    let Some(sandbox) = sandbox("what_comes_on_standard_input_stays_commands_and_data") else {
        return;
    };
    let long = "x".repeat(200_000);
    for (stream, said) in [
        ("false\necho $? $0\n".to_owned(), "1 bash\n".to_owned()),
        (
            "read x\ntouch made\necho \"<$x>\"\ncat\nrest\n".to_owned(),
            "<touch made>\nrest\n".to_owned(),
        ),
        (format!("wc -c\n{long}\n"), "200001\n".to_owned()),
    ] {
        let path = sandbox.home().join("stream");
        std::fs::write(&path, stream).unwrap();
        let mut command = sandbox.substrate();
        command.env("SUBSTRATE_WORLD", "enabled");
        command.stdin(std::fs::File::open(&path).unwrap());
        let output = command.output().unwrap();
        assert_eq!(text(&output.stdout), said, "{}", text(&output.stderr));
    }
    assert_eq!(content(&sandbox, "made"), None);
}

#[test]
fn a_diff_of_lines_that_end_otherwise_is_a_patch() {
    let test = "a_diff_of_lines_that_end_otherwise_is_a_patch";
    let Some(sandbox) = sandbox(test) else {
        return;
    };
    let old: &[u8] = b"one\rtwo\rthree\nfour\r\nfive\x0bsix\xe2\x80\xa8\n";
    for new in [
        &b"one\rTWO\rthree\nfour\r\nfive\x0bsix\xe2\x80\xa8\n"[..],
        b"one\rtwo\rthree\nfour\nfive\x0bsix\xe2\x80\xa8\nmore\r",
        b"\r",
        b"one\rtwo\rthree",
    ] {
        fs::write(sandbox.project().join("file"), old).unwrap();
        fs::write(sandbox.project().join("new"), new).unwrap();
        isolated(&sandbox, &[], "cat new > file");
        let diff = sandbox.run(["world", "diff", "-"]).stdout;
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("file"), old).unwrap();
        fs::write(place.path().join("patch"), &diff).unwrap();
        let mut git = std::process::Command::new("git");
        let applied = git
            .args(["apply", "patch"])
            .current_dir(place.path())
            .output();
        let Ok(applied) = applied else {
            return skip(test, "git is missing");
        };
        let why = format!("{}\n{}", diff.escape_ascii(), text(&applied.stderr));
        assert!(applied.status.success(), "{why}");
        assert_eq!(fs::read(place.path().join("file")).unwrap(), new, "{why}");
        assert!(sandbox.run(["world", "discard", "-"]).status.success());
    }
}

#[test]
fn data_on_standard_input_is_not_refused_as_commands() {
    let Some(sandbox) = sandbox("data_on_standard_input_is_not_refused_as_commands") else {
        return;
    };
    sandbox.policy(
        "strict",
        "id: strict\nname: Strict\nmode: enforce\nfs: { read: [\"/**\"], write: [\"$PROJECT/**\"] }\n\
         commands: { denied: [\"forbidden *\", \"uname *\", \"wc * | sort *\", \"export *\"] }\n",
    );
    let run = |stream: &str| {
        let mut command = sandbox.substrate();
        command.args(["--policy", "strict"]);
        let path = sandbox.home().join("stream");
        std::fs::write(&path, stream).unwrap();
        command.stdin(std::fs::File::open(&path).unwrap());
        let output = command.output().unwrap();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    for (stream, status, said) in [
        ("read x\nuname -a\necho \"<$x>\"\n", 0, "<uname -a>\n"),
        (
            "cat\nforbidden thing\nit's (no) shell &&\n",
            0,
            "forbidden thing\nit's (no) shell &&\n",
        ),
        // Were it a command, the guard would have it.
        ("cat /dev/null\nuname -a\necho $?\n", 0, "126\n"),
        // What stands before anything could read is a command, and nothing of the text runs.
        ("echo one\nuname -a\n", 126, ""),
        // What no guard sees is refused, data or not.
        ("cat /dev/null\nwc -l | sort\n", 126, ""),
        ("cat /dev/null\nexport A=1\n", 126, ""),
    ] {
        let (code, out, err) = run(stream);
        assert_eq!(
            (code, out.as_str()),
            (Some(status), said),
            "{stream:?}: {err}"
        );
    }
}

#[test]
fn a_look_around_that_is_killed_loses_nothing() {
    let Some(sandbox) = sandbox("a_look_around_that_is_killed_loses_nothing") else {
        return;
    };
    isolated(&sandbox, &[], "echo one > a");
    let mut command = sandbox.substrate();
    command.args(["world", "explore", "-", "--", "sh", "-c"]);
    command.arg("echo two > b; echo ready; read x");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
    assert_eq!(states(&sandbox), ["running"]);
    for (arguments, why) in [
        (["world", "apply", "-"], "still runs"),
        (["world", "discard", "-"], "still runs"),
        (["world", "explore", "-"], "still runs"),
    ] {
        let refused = sandbox.run(arguments);
        assert!(!refused.status.success(), "{arguments:?}");
        assert!(text(&refused.stderr).contains(why), "{arguments:?}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(sandbox.run(["world", "gc"]).status.success());
    assert_eq!(states(&sandbox), ["waiting"]);
    let apply = sandbox.run(["world", "apply", "-"]);
    assert!(apply.status.success(), "{}", text(&apply.stderr));
    assert_eq!(content(&sandbox, "a").unwrap(), "one\n");
    assert_eq!(content(&sandbox, "b").unwrap(), "two\n");
}

#[test]
fn a_person_looks_around_in_a_shell_and_then_decides() {
    let Some(sandbox) = sandbox("a_person_looks_around_in_a_shell_and_then_decides") else {
        return;
    };
    isolated(&sandbox, &[], "echo one > a");
    let mut command = sandbox.substrate();
    command.args(["world", "explore", "-"]).env("TERM", "xterm");
    command.env("PS1", "inside$ ");
    let mut person = Person::start(command);
    person.sees("inside what `sh -c");
    person.types("tty; cat a; echo two > b\n");
    person.sees("/dev/pts/0");
    person.sees("one");
    person.types("exit\n");
    person.sees("[a]pply, show [d]iff, [k]eep");
    person.types("d\n");
    person.sees("+two");
    person.sees("[a]pply");
    person.types("a\n");
    let (status, screen) = person.end();
    assert_eq!(status, 0, "{screen}");
    assert_eq!(content(&sandbox, "a").unwrap(), "one\n");
    assert_eq!(content(&sandbox, "b").unwrap(), "two\n");
    assert_eq!(states(&sandbox), ["applied"]);
}

/// Runs with arguments, and stops the test should it take longer than anybody would wait.
fn in_time<'a>(sandbox: &Sandbox, arguments: impl IntoIterator<Item = &'a str>) -> Output {
    let mut command = std::process::Command::new("timeout");
    command.arg("30").arg(env!("CARGO_BIN_EXE_substrate"));
    sandbox.prepare(&mut command);
    let output = command.args(arguments).output().unwrap();
    assert_ne!(output.status.code(), Some(124), "{output:?}");
    output
}

#[test]
fn files_of_the_project_that_never_end_hold_up_no_command() {
    let Some(sandbox) = sandbox("files_of_the_project_that_never_end_hold_up_no_command") else {
        return;
    };
    let line =
        "mkdir -p .git/info bin; rm -f .git/info/exclude .gitignore .substrate-profile bin/tool; ";
    let ways = [
        "mkfifo .git/info/exclude",
        "ln -s /dev/zero .git/info/exclude",
        "truncate -s 3G .git/info/exclude",
        "mkfifo .gitignore",
        "ln -s /dev/zero .gitignore",
        "truncate -s 3G .gitignore",
        "mkfifo bin/tool",
        "ln -s /dev/zero bin/tool",
    ];
    for way in ways {
        let made = std::process::Command::new("sh")
            .args(["-c", &format!("{line}{way}")])
            .current_dir(sandbox.project())
            .status();
        assert!(made.unwrap().success());
        let direct = in_time(&sandbox, ["-c", "echo fine; command -v ./bin/tool; true"]);
        assert!(text(&direct.stdout).contains("fine"), "{way} {direct:?}");
        let words = ["run", "--isolated", "--", "sh", "-c", "echo x >> made"];
        let held = in_time(&sandbox, words);
        assert!(held.status.success(), "{way} {held:?}");
        let applied = in_time(&sandbox, ["world", "apply", "-"]);
        assert!(applied.status.success(), "{way} {applied:?}");
    }
}

#[test]
fn a_file_that_is_mostly_a_hole_is_held_shown_and_brought_back_in_time() {
    let Some(sandbox) =
        sandbox("a_file_that_is_mostly_a_hole_is_held_shown_and_brought_back_in_time")
    else {
        return;
    };
    let line = "truncate -s 1T big; printf middle | dd of=big bs=1 seek=500G conv=notrunc";
    let held = in_time(&sandbox, ["run", "--isolated", "--", "sh", "-c", line]);
    assert!(held.status.success(), "{held:?}");
    for arguments in [&["world", "diff", "-"][..], &["world", "apply", "-"]] {
        let output = in_time(&sandbox, arguments.iter().copied());
        assert!(output.status.success(), "{output:?}");
    }
    let path = sandbox.project().join("big");
    assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 40);
    let mut middle = [0; 6];
    let file = fs::File::open(&path).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut middle, 500 << 30).unwrap();
    assert_eq!(&middle, b"middle");
    // The same again changes nothing, which takes a look at both.
    let line = "touch big; printf middle | dd of=big bs=1 seek=500G conv=notrunc";
    let again = in_time(&sandbox, ["run", "--isolated", "--", "sh", "-c", line]);
    assert!(again.status.success(), "{again:?}");
}

#[test]
fn no_result_that_can_run_later_is_applied_by_itself() {
    const NAME: &str = "no_result_that_can_run_later_is_applied_by_itself";
    let Some(sandbox) = sandbox(NAME) else {
        return;
    };
    let policy = format!(
        "id: test\nname: Test\n{OPEN}world: {{ on_finish: apply }}\ncommands: {{ isolated: [\"sh *\"] }}\n"
    );
    sandbox.policy("test", &policy);
    let held = [
        (
            "mkdir evil; echo ../evil > .git/commondir",
            ".git/commondir",
        ),
        (
            "mkdir -p .git/info; echo '* filter=x' > .git/info/attributes",
            ".git/info/attributes",
        ),
        ("ln -s ../evil .git/hooks", ".git/hooks"),
        ("echo '* diff=x' > .gitattributes", ".gitattributes"),
        (
            "mkdir .claude; echo '{}' > .claude/settings.json",
            ".claude/settings.json",
        ),
        ("echo 'fn main() {}' > build.rs", "build.rs"),
        ("printf 'true\\n' > run; chmod 755 run", "run"),
    ];
    for (line, name) in held {
        let output = sandbox.run(["run", "--", "sh", "-c", line]);
        let said = text(&output.stderr);
        assert!(
            said.contains(name) && said.contains("world apply"),
            "{line} {said}"
        );
        let there = fs::symlink_metadata(sandbox.project().join(name));
        assert!(there.is_err(), "{line} was applied");
    }
    let line = "mkdir -p .git/objects/ab .git/refs/heads; echo x > .git/refs/heads/main; \
                echo x > .git/objects/ab/c; echo 'ref: refs/heads/main' > .git/HEAD; echo x > notes";
    let output = sandbox.run(["run", "--", "sh", "-c", line]);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(content(&sandbox, "notes").unwrap(), "x\n");
    assert_eq!(content(&sandbox, ".git/refs/heads/main").unwrap(), "x\n");
}

#[test]
fn what_several_write_to_one_file_stays_in_order() {
    let Some(sandbox) = sandbox("what_several_write_to_one_file_stays_in_order") else {
        return;
    };
    // Neither world may write there, so the bytes are carried over.
    let out = sandbox.home().parent().unwrap().join("out");
    let commands = [
        "$S run --isolated -- sh -c 'echo b; sleep 1; echo c >&2'",
        "$S -c 'echo b; sleep 1; echo c >&2'",
        "$S run -- sh -c 'echo b; sleep 1; echo c >&2'",
    ];
    for command in commands {
        // Another one writes to the same open file while the command waits.
        let line = format!(
            "(echo a; {command} & sleep 0.5; echo x; wait; echo d) > \"$OUT\" 2>&1; \
             (echo a; {command}; echo d) >> \"$OUT\" 2>&1"
        );
        let mut shell = std::process::Command::new("sh");
        sandbox.prepare(&mut shell);
        shell.args(["-c", &line]);
        shell
            .env("S", env!("CARGO_BIN_EXE_substrate"))
            .env("OUT", &out);
        assert!(shell.status().unwrap().success());
        let written = fs::read_to_string(&out).unwrap();
        let lines: Vec<&str> = written.lines().collect();
        assert_eq!(lines.join(" "), "a b x c d a b c d", "{command}");
    }
}
