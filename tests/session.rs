//! The world of an enforcing session: its limits, its level, and what a changed policy means for it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::path::Path;
use std::process::Output;

use crate::common::Sandbox;
use crate::person::Person;

const ENFORCE: &str =
    "mode: enforce\nfs:\n  read: [\"/**\"]\n  write: [\"$PROJECT/**\", \"/tmp/**\"]\n";

fn said(output: &Output) -> String {
    format!(
        "{}{}({})",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        output.status
    )
}

fn limited(limits: &str) -> Sandbox {
    Sandbox::with_policy(&format!("{ENFORCE}world:\n  limits: {{ {limits} }}\n"))
}

/// Whether control groups can be had, which alone limit a world as a whole.
fn groups(sandbox: &Sandbox, test: &str) -> bool {
    sandbox.run(["-c", "true"]);
    let done = sandbox.events("command_complete");
    let limits = done.last().unwrap()["enforced"]["limits"].to_string();
    let there = limits.contains("cgroup");
    if !there {
        crate::common::skip(test, &format!("limits here are {limits}"));
    }
    there
}

/// A prompt in the session's world.
fn prompt(sandbox: &Sandbox) -> Person {
    let mut command = sandbox.substrate();
    std::fs::write(sandbox.project().join("rc"), "PS1='ready> '\n").unwrap();
    command.args(["-i", "--rcfile", "rc"]).env("TERM", "xterm");
    let mut person = Person::start(command);
    person.sees("ready> ");
    person
}

fn change(sandbox: &Sandbox, text: &str) {
    sandbox.policy("test", &format!("id: test\nname: Test\n{text}"));
}

#[test]
fn a_fork_bomb_ends_itself() {
    let sandbox = limited("pids: 40");
    if !groups(&sandbox, "fork bomb") {
        return;
    }
    let output = sandbox.run([
        "-c",
        "python3 -c 'import os,time\ntry:\n  while True:\n    if os.fork() == 0: time.sleep(1); os._exit(0)\n\
         except OSError: os._exit(9)'",
    ]);
    assert_eq!(output.status.code(), Some(9), "{}", said(&output));
    assert!(
        said(&output).contains("world.limits.pids"),
        "{}",
        said(&output)
    );
    assert_eq!(
        sandbox.events("rate_limit")[0]["limit"],
        "world.limits.pids"
    );
}

#[test]
fn a_memory_hog_ends_itself() {
    let sandbox = limited("memory: 48Mi");
    if !groups(&sandbox, "memory hog") {
        return;
    }
    let output = sandbox.run(["-c", "python3 -c 'x = bytearray(200 << 20)'; echo after $?"]);
    assert!(said(&output).contains("after 137"), "{}", said(&output));
    assert!(
        said(&output).contains("world.limits.memory"),
        "{}",
        said(&output)
    );
}

#[test]
fn a_command_that_takes_too_long_is_ended() {
    let sandbox = limited("time: 1s");
    let output = sandbox.run(["-c", "sleep 1000"]);
    assert!(!output.status.success());
    assert!(
        said(&output).contains("world.limits.time"),
        "{}",
        said(&output)
    );
    // One that does not listen is ended all the same.
    let output = sandbox.run(["-c", "trap '' TERM INT; sleep 1000; sleep 1000"]);
    assert!(said(&output).contains("signal: 9"), "{}", said(&output));
    assert!(sandbox.run(["-c", "true"]).status.success());
}

#[test]
fn a_line_at_the_prompt_that_takes_too_long_is_ended() {
    let sandbox = limited("time: 1s");
    let mut person = prompt(&sandbox);
    for line in [
        "sleep 1000",
        "while :; do sleep 0.1; done",
        "while :; do :; done",
        "sh -c \"trap '' INT TERM; sleep 1000; sleep 1000\"",
    ] {
        person.types(&format!("{line}\r"));
        person.sees("world.limits.time");
        person.sees("ready> ");
    }
    person.types("echo alive-$((2+2))\r");
    person.sees("alive-4");
}

#[test]
fn the_span_tells_what_held() {
    let sandbox = Sandbox::with_policy(ENFORCE);
    let mut person = prompt(&sandbox);
    person.types("touch made; echo done-$((1+1))\r");
    person.sees("done-2");
    person.types("exit\r");
    person.end();
    let done = sandbox.events("command_complete");
    let span = &done[0];
    assert_eq!(span["place"], "session");
    assert!(span["world_id"].as_str().unwrap().starts_with("wld_"));
    assert_eq!(span["enforced"]["level"], "full");
    assert_eq!(span["enforced"]["exec"], "guard");
    assert!(sandbox.project().join("made").exists());
    let events = sandbox.events("world_event");
    assert_eq!(events[0]["action"], "started");
    assert_eq!(events.last().unwrap()["action"], "ended");
}

#[test]
fn what_a_line_shows_is_recorded_where_it_passes_through_us() {
    let sandbox = Sandbox::with_policy(&format!("{ENFORCE}trace: {{ output: bounded }}\n"));
    let mut person = prompt(&sandbox);
    for line in ["/bin/echo one; /bin/echo two >&2", "/bin/true"] {
        person.types(&format!("{line}\r"));
        person.sees("ready> ");
    }
    person.types("exit\r");
    person.end();
    let done = sandbox.events("command_complete");
    let output = |line: &str| {
        let event = done.iter().find(|event| event["cmd"] == line);
        event.unwrap_or_else(|| panic!("{done:?}"))["output"].clone()
    };
    let shown = output("/bin/echo one; /bin/echo two >&2");
    assert_eq!(shown["merged"], true, "{shown}");
    assert_eq!(shown["stdout"]["via"], "terminal", "{shown}");
    assert_eq!(shown["stdout"]["copy"], "one\r\ntwo\r\n", "{shown}");
    assert_eq!(output("/bin/true")["stdout"]["bytes"], 0);
    // Where nobody asked for it, nothing is kept.
    let sandbox = Sandbox::with_policy(ENFORCE);
    let mut person = prompt(&sandbox);
    person.types("/bin/echo one\r");
    person.sees("ready> ");
    person.types("exit\r");
    person.end();
    let done = sandbox.events("command_complete");
    assert_eq!(done[0]["output"]["mode"], "off", "{done:?}");
}

#[test]
fn rules_and_hosts_change_at_once() {
    let sandbox = Sandbox::with_policy(ENFORCE);
    std::fs::write(sandbox.project().join("later.sh"), "uname > third\n").unwrap();
    let mut person = prompt(&sandbox);
    person.types("uname > first; echo one-$((0+1))\r");
    person.sees("one-1");
    change(
        &sandbox,
        &format!("{ENFORCE}commands:\n  denied: [\"uname *\"]\nnet:\n  allowed: [x.test]\n"),
    );
    person.types("uname > second\r");
    person.sees("denied by policy");
    // Not only as a line: the guard has the new rules as well.
    person.types("sh later.sh; echo status-$?\r");
    person.sees("status-126");
    person.types("echo on-$((2+2))\r");
    person.sees("on-4");
}

#[test]
fn what_a_living_world_cannot_take_up_is_told_and_stricter_terms_stop_it() {
    let sandbox = Sandbox::with_policy(ENFORCE);
    std::fs::write(sandbox.project().join("secret"), "secret\n").unwrap();
    let mut person = prompt(&sandbox);
    person.types("echo one-$((0+1))\r");
    person.sees("one-1");
    let looser = ENFORCE.replace("\"/tmp/**\"", "\"/tmp/**\", \"/var/tmp/**\"");
    change(&sandbox, &looser);
    person.types("echo two-$((1+1))\r");
    person.sees("fs.write");
    person.sees("two-2");
    change(
        &sandbox,
        &format!("{ENFORCE}  hide: [\"$PROJECT/secret\"]\n"),
    );
    person.types("uname\r");
    person.sees("got stricter about fs.hide");
    person.types("cd /; exit 5\r");
    person.end();
    let mut person = prompt(&sandbox);
    std::fs::write(
        sandbox.project().join("peek.sh"),
        "cat secret > copy 2>&1\n",
    )
    .unwrap();
    person.types("sh peek.sh; echo peeked-$((1+1))\r");
    person.sees("peeked-2");
    let copy = std::fs::read_to_string(sandbox.project().join("copy")).unwrap();
    assert!(!copy.contains("secret\n"), "{copy}");
}

#[test]
fn a_policy_that_starts_to_enforce_stops_a_shell_without_a_world() {
    let sandbox = Sandbox::with_policy("mode: observe\n");
    let mut person = prompt(&sandbox);
    person.types("uname > /dev/null; echo one-$((0+1))\r");
    person.sees("one-1");
    change(&sandbox, ENFORCE);
    person.types("uname\r");
    person.sees("was started without one");
    person.types("cd /\r");
    person.types("exit 3\r");
    person.end();
}

#[test]
fn without_worlds_there_is_a_prompt_that_runs_nothing() {
    let sandbox = Sandbox::with_policy(ENFORCE);
    for level in ["landlock", "none"] {
        let mut command = sandbox.substrate();
        command
            .args(["-c", "uname"])
            .env("SUBSTRATE_TEST_WORLD_LEVEL", level);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(125), "{}", said(&output));
        let text = said(&output);
        assert!(text.contains(&format!("level `{level}`")), "{text}");
        assert!(text.contains("substrate world doctor"), "{text}");
        let mut command = sandbox.substrate();
        command
            .args(["-i"])
            .env("TERM", "xterm")
            .env("SUBSTRATE_TEST_WORLD_LEVEL", level);
        let mut person = Person::start(command);
        person.sees("runs nothing except");
        person.types("touch unheld\r");
        person.sees("outside a world? [y/N] ");
        person.types("n\r");
        person.types("cd /usr\r");
        person.types("touch /tmp/unheld\r");
        person.sees("outside a world? [y/N] ");
        person.types("n\r");
        person.types("exit\r");
        person.end();
        assert!(!sandbox.project().join("unheld").exists());
    }
    // A person can repair the machine from there, and it is written down.
    let mut command = sandbox.substrate();
    command
        .args(["-i"])
        .env("TERM", "xterm")
        .env("SUBSTRATE_TEST_WORLD_LEVEL", "none");
    let mut person = Person::start(command);
    person.sees("runs nothing except");
    person.types("touch repaired\r");
    person.sees("outside a world? [y/N] ");
    person.types("y\r");
    person.types("exit\r");
    person.end();
    assert!(sandbox.project().join("repaired").exists());
    let approved = sandbox.events("approval");
    assert_eq!(approved.last().unwrap()["cmd"], "touch repaired");
    let done = sandbox.events("command_complete");
    let span = done
        .iter()
        .find(|event| event["cmd"] == "touch repaired")
        .unwrap();
    assert_eq!(span["place"], "direct");
    assert_eq!(span["enforced"]["level"], "none");
}

#[test]
fn a_shell_started_where_its_world_has_nothing_goes_somewhere_else() {
    let sandbox = Sandbox::with_policy(&format!("{ENFORCE}  hide: [\"$PROJECT/hidden/**\"]\n"));
    let hidden = sandbox.project().join("hidden");
    std::fs::create_dir_all(hidden.join("sub")).unwrap();
    let mut command = sandbox.substrate();
    command
        .args(["-i", "--norc"])
        .env("TERM", "xterm")
        .current_dir(hidden.join("sub"));
    let mut person = Person::start(command);
    person.sees("is not in the world");
    person.types("pwd; echo here-$((1+1))\r");
    person.sees(sandbox.project().canonicalize().unwrap().to_str().unwrap());
    person.sees("here-2");
    assert!(Path::new("/").exists());
}

/// A line that a person must approve, asked about on a plain terminal.
fn asked(sandbox: &Sandbox, line: &str) -> Person {
    let mut command = sandbox.substrate();
    command.args(["-c", line]);
    let mut person = Person::start(command);
    person.sees("Choice, or Enter for");
    person
}

fn asking() -> Sandbox {
    let sandbox = Sandbox::with_policy(&format!(
        "{ENFORCE}commands:\n  ask: [\"rm *\", \"make *\"]\n"
    ));
    let build = sandbox.project().join("build");
    std::fs::create_dir(&build).unwrap();
    for name in ["a.o", "b.o"] {
        std::fs::write(build.join(name), "object\n").unwrap();
    }
    sandbox
}

#[test]
fn a_line_of_files_alone_is_previewed_and_its_result_applied() {
    let sandbox = asking();
    let build = sandbox.project().join("build");
    let mut person = asked(&sandbox, "rm -rv build");
    person.types("1\r");
    person.sees("removed 'build/a.o'");
    person.sees("changes:");
    person.sees("Choice, or Enter for");
    assert!(build.join("a.o").exists(), "nothing is real yet");
    person.types("1\r");
    person.sees("build/a.o");
    person.sees("Choice, or Enter for");
    person.types("2\r");
    person.confirms();
    let (status, shown) = person.end();
    assert_eq!(status, 0, "{shown}");
    assert!(!build.exists(), "{shown}");
    // It ran once: what was tried is what was applied.
    assert_eq!(shown.matches("removed 'build/a.o'").count(), 1, "{shown}");
    let done = sandbox.events("command_complete");
    assert_eq!(done.len(), 1);
    assert_eq!(
        done[0]["fs_diff"]["deletes"].as_array().unwrap().len(),
        3,
        "{}",
        done[0]
    );
    assert_eq!(done[0]["enforced"]["net"], "closed");
}

#[test]
fn a_refused_preview_leaves_nothing() {
    let sandbox = asking();
    let mut person = asked(&sandbox, "rm -r build");
    person.types("1\r");
    person.sees("changes:");
    person.sees("Choice, or Enter for");
    person.types("\r");
    let (status, shown) = person.end();
    assert_eq!(status, 126, "{shown}");
    assert!(sandbox.project().join("build/a.o").exists());
    let left = sandbox.run(["world", "status"]);
    assert!(!said(&left).contains("rm -r build"), "{}", said(&left));
}

#[test]
fn what_changed_meanwhile_is_not_overwritten_by_a_preview() {
    let sandbox = asking();
    let mut person = asked(&sandbox, "rm -r build");
    person.types("1\r");
    person.sees("Choice, or Enter for");
    std::fs::write(sandbox.project().join("build/a.o"), "somebody's work\n").unwrap();
    person.types("2\r");
    person.confirms();
    let (status, shown) = person.end();
    assert_eq!(status, 125, "{shown}");
    assert!(sandbox.project().join("build/a.o").exists(), "{shown}");
}

#[test]
fn only_lines_of_files_alone_can_be_previewed() {
    let sandbox = asking();
    for line in [
        "make all",
        "rm -r build; cd /",
        "rm -r /tmp/no-such-place/elsewhere",
        "X=1 rm -r build",
        "rm $X",
    ] {
        let mut person = asked(&sandbox, line);
        person.types("\r");
        let (_, shown) = person.end();
        assert!(!shown.contains("Preview"), "{line}: {shown}");
    }
}

/// A prompt whose policy has people asked about `uname`, and a script that starts it.
fn asking_inside() -> (Sandbox, Person) {
    let sandbox = Sandbox::with_policy(&format!("{ENFORCE}commands:\n  ask: [\"uname *\"]\n"));
    std::fs::write(
        sandbox.project().join("inner.sh"),
        "uname > asked.txt; echo status-$?\n",
    )
    .unwrap();
    let person = prompt(&sandbox);
    (sandbox, person)
}

/// Up to the choice that holds for the session, and what is proposed taken as it is.
const ALLOW_FOR_SESSION: &str = "\x1b[A\x1b[A\r";

#[test]
fn an_approval_holds_for_the_environment_that_it_was_given_in() {
    let (sandbox, mut person) = asking_inside();
    let script =
        |name: &str, text: &str| std::fs::write(sandbox.project().join(name), text).unwrap();
    script(
        "git.sh",
        "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.pushurl sh inner.sh\n",
    );
    script("path.sh", "PATH=/tmp:$PATH sh inner.sh\n");
    script("lang.sh", "LANG=C NO_COLOR=1 sh inner.sh\n");
    let mut asked = |line: &str, shown: &[&str], answer: &str| {
        person.types(&format!("{line}\r"));
        person.sees("Command: /usr/bin/uname");
        for shown in shown {
            person.sees(shown);
        }
        person.sees("> Deny");
        person.types(answer);
        if answer == ALLOW_FOR_SESSION {
            person.sees("Remember commands like");
            person.types("\r");
        }
        person.sees(if answer == "\r" {
            "status-126"
        } else {
            "status-0"
        });
        person.sees("ready> ");
        person.text()
    };
    let shown = asked("sh inner.sh", &["in "], ALLOW_FOR_SESSION);
    assert!(!shown.contains("Environment:"), "{shown}");
    asked(
        "sh git.sh",
        &[
            "Environment: GIT_CONFIG_COUNT=1",
            "Environment: GIT_CONFIG_KEY_0=remote.origin.pushurl",
        ],
        "\r",
    );
    asked("sh git.sh", &["with this environment"], ALLOW_FOR_SESSION);
    asked(
        "GIT_CONFIG_COUNT=2 sh inner.sh",
        &["Environment: GIT_CONFIG_COUNT=2"],
        "\r",
    );
    asked("sh path.sh", &["Environment: PATH=/tmp:"], "\r");
    asked(
        "export LD_DEBUG_OUTPUT=/tmp/x; sh inner.sh",
        &["Environment: LD_DEBUG_OUTPUT=/tmp/x"],
        "\r",
    );
    // A typed line is asked about in the environment of its shell.
    person.types("uname\r");
    person.sees("Environment: LD_DEBUG_OUTPUT=/tmp/x");
    person.sees("> Deny");
    person.types("\r");
    person.sees("User denied approval");
    person.sees("ready> ");
    // What is approved is not asked about again, whatever else is in the environment.
    person.types("unset LD_DEBUG_OUTPUT; sh inner.sh; sh git.sh; sh lang.sh; echo end-$((1+1))\r");
    person.sees("status-0\r\nstatus-0\r\nstatus-0\r\nend-2");
    // A variable that stands in the line was seen with it, and only then.
    person.sees("ready> ");
    person.types("export GIT_SSH=x; uname\r");
    person.sees("exactly this line");
    person.sees("> Deny");
    person.types(ALLOW_ONCE);
    person.sees("Linux");
    person.sees("ready> ");
}

#[test]
fn what_is_refused_for_its_environment_says_so() {
    let sandbox = Sandbox::with_policy(&format!("{ENFORCE}commands:\n  ask: [\"uname *\"]\n"));
    std::fs::write(sandbox.project().join("inner.sh"), "GIT_SSH=x uname\n").unwrap();
    let output = sandbox.run(["-c", "sh inner.sh"]);
    let said = said(&output);
    assert!(
        said.contains("because of its environment (GIT_SSH)"),
        "{said}"
    );
}

/// From the choice that is preselected up to the first, and taken.
const ALLOW_ONCE: &str = "\x1b[A\x1b[A\x1b[A\r";

#[test]
fn a_start_that_nobody_typed_is_asked_about_at_the_prompt() {
    let (sandbox, mut person) = asking_inside();
    let made = sandbox.project().join("asked.txt");
    person.types("sh inner.sh\r");
    person.sees("Command: /usr/bin/uname");
    person.sees("> Deny");
    person.types("\r");
    person.sees("User denied approval");
    person.sees("status-126");
    person.sees("ready> ");
    assert_eq!(std::fs::read(&made).unwrap(), b"");
    // What is typed before the question is for the program, and no answer.
    person.types("sleep 1; sh -c 'sh inner.sh; :'; cat\r");
    std::thread::sleep(std::time::Duration::from_millis(300));
    person.types("kkk\r");
    person.sees("Started by: sh inner.sh\r\nStarted by: sh -c 'sh inner.sh; :'\r\n");
    person.sees("> Deny");
    person.types("\r");
    person.sees("status-126");
    person.sees("kkk");
    person.types("\x04");
    person.sees("ready> ");
    person.types("sh inner.sh\r");
    person.sees("> Deny");
    person.types(ALLOW_ONCE);
    person.sees("status-0");
    person.sees("ready> ");
    assert_eq!(std::fs::read(&made).unwrap(), b"Linux\n");
    // The line editor has its terminal back, and programs theirs.
    person.types("stty -a | grep -o ' icanon'; echo on-$((2+2))\r");
    person.sees(" icanon");
    person.sees("on-4");
    let answers: Vec<String> = sandbox
        .events("approval")
        .iter()
        .map(|event| event["outcome"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(answers, ["refused", "refused", "once"]);
}

#[test]
fn a_question_does_not_destroy_what_a_program_has_drawn() {
    let (sandbox, mut person) = asking_inside();
    std::fs::write(
        sandbox.project().join("drawn.py"),
        "import os, signal, subprocess, sys, tty\n\
         drawn = lambda *_: os.write(1, b'\\x1b[H\\x1b[2Jdrawn-%d' % os.get_terminal_size().lines)\n\
         signal.signal(signal.SIGWINCH, drawn)\n\
         os.write(1, b'\\x1b[?1049h\\x1b[?1h')\n\
         tty.setraw(0)\n\
         drawn()\n\
         os.write(1, b'go-%d' % subprocess.call(['sh', 'inner.sh']))\n\
         key = os.read(0, 1)\n\
         os.write(1, b'\\x1b[?1l\\x1b[?1049lkey-' + key + b'\\r\\n')\n",
    )
    .unwrap();
    person.types("python3 drawn.py; stty sane\r");
    person.sees("drawn-50");
    person.sees("\x1b[2J");
    person.sees("\x1b[?1l");
    person.sees("> Deny");
    // Arrow keys are those of a plain terminal again.
    person.types("\x1b[A\x1b[A\x1b[A\r");
    person.sees("\x1b[?1h");
    person.sees("drawn-50");
    person.types("x");
    person.sees("key-x");
    person.sees("ready> ");
    let text = person.text();
    assert!(text.contains("go-0") && text.contains("drawn-49"), "{text}");
}

#[test]
fn nobody_is_asked_while_a_line_is_edited() {
    let (sandbox, mut person) = asking_inside();
    person.types("(sleep 1; sh inner.sh) &\r");
    person.sees("ready> ");
    person.types("echo typ");
    person.sees("status-126");
    person.types("ed-$((2+2))\r");
    person.sees("typed-4");
    assert!(sandbox.events("approval").is_empty());
}

#[test]
fn a_shell_in_a_world_chooses_no_program_that_runs_outside() {
    let sandbox = Sandbox::with_policy(ENFORCE);
    let marker = sandbox.project().join("outside");
    let script = format!(
        "#!/bin/sh\nreadlink /proc/self/ns/mnt > {}\n",
        marker.display()
    );
    std::fs::write(sandbox.project().join("chosen"), script).unwrap();
    std::fs::write(sandbox.project().join("rc"), "PS1='ready> '\n").unwrap();
    let mut command = sandbox.substrate();
    command
        .args(["-i", "--rcfile", "rc"])
        .env("TERM", "xterm")
        .env("EDITOR", "true")
        .env("PAGER", "true");
    let mut person = Person::start(command);
    person.sees("ready> ");
    person.types("chmod +x chosen; export EDITOR=$PWD/chosen VISUAL=$PWD/chosen PAGER=$PWD/chosen PATH=$PWD:$PATH; echo set-$((1+1))\r");
    person.sees("set-2");
    // Only what is typed at the prompt is a person's word.
    let at_the_prompt = || std::thread::sleep(std::time::Duration::from_millis(1000));
    at_the_prompt();
    person.types("substrate policy edit test; substrate trace list\r");
    person.sees("denied by policy");
    at_the_prompt();
    person.types("substrate policy edit test\r");
    person.sees("nothing was changed");
    at_the_prompt();
    person.types("substrate trace list\r");
    person.types("echo on-$((2+2))\r");
    person.sees("on-4");
    assert!(
        !marker.exists(),
        "{}",
        std::fs::read_to_string(&marker).unwrap()
    );
}

#[test]
fn start_up_files_can_be_asked_about() {
    let (sandbox, person) = asking_inside();
    drop(person);
    std::fs::write(sandbox.project().join("rc"), "PS1='ready> '\nsh inner.sh\n").unwrap();
    let mut command = sandbox.substrate();
    command.args(["-i", "--rcfile", "rc"]).env("TERM", "xterm");
    let mut person = Person::start(command);
    person.sees("> Deny");
    person.types(ALLOW_ONCE);
    person.sees("status-0");
    person.sees("ready> ");
}

/// The history of a shell in a world is the guarded side's to write.
#[test]
fn what_the_shell_made_of_a_line_has_no_authority() {
    let sandbox = Sandbox::with_policy(ENFORCE);
    std::fs::write(
        sandbox.project().join("env.sh"),
        "histchars='l^#'; history -s 'substrate policy use default'\n",
    )
    .unwrap();
    let mut person = prompt(&sandbox);
    person.types(". ./env.sh\r");
    person.sees("ready> ");
    person.types("ls\r");
    // What the shell made of it is shown, and refused.
    person.sees("substrate policy use default");
    person.sees("denied by policy");
    person.types("exit\r");
    let (_, text) = person.end();
    assert!(!text.contains("the policy in use is"), "{text}");
}

#[test]
fn a_program_that_prints_without_end_can_be_interrupted() {
    let sandbox = Sandbox::with_policy(ENFORCE);
    let mut person = prompt(&sandbox);
    person.types("yes flood\r");
    person.sees("flood\r\nflood");
    person.types("\x03");
    person.sees("ready> ");
    person.types("exit\r");
    person.end();
}
