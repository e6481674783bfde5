//! Every line through the broker: refusals, isolation, approvals, what is recorded and what is told.

use std::process::Command;
use std::time::Duration;

use crate::common::skip;
use crate::terminal::{Setup, Terminal, shell_under_test, text_of};

/// The key that moves up.
const UP: &str = "\x1b[A";

const DENIES: &str = "mode: enforce\nworld: { enabled: off }\nfs: { outside: allow }\nnet: { unlisted: allow }\n\
    commands:\n  denied: [{ pattern: \"touch forbidden*\", reason: \"not that one\" }, \"/**/hidden-tool\"]\n  \
    ask: [\"touch asked*\"]\n";

const ISOLATES: &str = "mode: observe\nworld: { on_finish: discard }\n\
    fs: { write: [\"$PROJECT/**\"], outside: allow }\n\
    commands: { isolated: [\"env *\"] }\n";

fn denying() -> Terminal {
    let mut setup = Setup::new();
    setup.policy(DENIES);
    let mut t = setup.start();
    t.wait_for("<0>");
    t
}

#[test]
fn the_verdict_shows_while_one_types_and_a_refused_line_does_not_run() {
    let mut t = denying();
    t.wait_for("ready> ");
    t.keys("touch forbidden-file");
    t.wait_for("deny: touch forbidden*");
    assert!(t.raw().contains("\x1b[4;31m"), "the line is tinted");
    t.keys("\r");
    t.wait_for("not that one");
    assert_eq!(t.finish().1, 126, "hooks see the status, too");
    assert!(t.output("echo status-$?").contains("status-126"));
    assert!(!t.path("forbidden-file").exists());
    // It stays in every history.
    t.wait_for("ready> ");
    t.keys(format!("{UP}{UP}"));
    t.wait_for("touch forbidden-file");
    t.keys("\x03");
    t.wait_for("<130>");
    assert!(
        t.output("history | tail -n 4")
            .contains("touch forbidden-file")
    );
    assert!(
        t.content(".substrate/history")
            .contains("touch forbidden-file")
    );
    assert_eq!(t.traced("policy_violation"), ["touch forbidden-file"]);
    assert!(
        !t.traced("command_start")
            .contains(&"touch forbidden-file".to_owned())
    );
    // An asked-about line says so before Enter.
    t.wait_for("ready> ");
    t.keys("touch asked");
    t.wait_for("ask: touch asked*");
    t.keys("\x03");
}

#[test]
fn what_a_line_means_is_judged_and_not_how_it_is_spelt() {
    let mut setup = Setup::new();
    setup.policy(DENIES);
    setup.rc(
        "PS1='ready> '\nPROMPT_COMMAND='printf \"<%s>\\n\" $?'\nalias zz='touch forbidden-alias'\n",
    );
    let mut t = setup.start();
    t.wait_for("<0>");
    assert_eq!(t.run("zz").1, 126);
    assert_eq!(t.run("true; t\"\"ouch forbidden-quoted").1, 126);
    t.keys("\x1b[200~true\ntouch forbidden-pasted\n\x1b[201~\r");
    t.wait_for("not that one");
    assert_eq!(t.finish().1, 126);
    for name in ["forbidden-alias", "forbidden-quoted", "forbidden-pasted"] {
        assert!(!t.path(name).exists(), "{name}");
    }
    // A sourced file is one command, with its path.
    std::fs::write(t.path("lines.sh"), "sourced=yes\n").unwrap();
    t.output(". ./lines.sh");
    assert!(t.output("echo got-$sourced").contains("got-yes"));
    assert!(
        t.traced("builtin_command")
            .contains(&". ./lines.sh".to_owned())
    );
}

#[test]
fn programs_are_found_where_the_shell_now_finds_them() {
    let mut setup = Setup::new();
    setup.policy(DENIES);
    let tool = setup.file("tools/hidden-tool", "#!/bin/sh\necho ran > ran.txt\n");
    crate::common::script(&tool, "#!/bin/sh\necho ran > ran.txt\n");
    setup.rc("PS1='ready> '\nPROMPT_COMMAND='printf \"<%s>\\n\" $?'\nPATH=~/tools:$PATH\n");
    let mut t = setup.start();
    t.wait_for("<0>");
    assert_eq!(t.run("hidden-tool").1, 126);
    assert!(!t.path("ran.txt").exists());
}

#[test]
fn hooks_leave_no_spans_and_builtins_do() {
    let mut setup = Setup::new();
    setup
        .rc("PS1='$(true) ready> '\nPROMPT_COMMAND=('ls / > /dev/null' 'printf \"<%s>\\n\" $?')\n");
    let mut t = setup.start();
    t.wait_for("<0>");
    t.output("cd /usr");
    t.output("export X=1");
    t.output("");
    assert_eq!(t.traced("command_start"), ["cd /usr", "export X=1"]);
    assert_eq!(t.traced("command_complete"), ["cd /usr", "export X=1"]);
    assert_eq!(t.traced("builtin_command"), ["cd /usr", "export X=1"]);
    // What a line starts knows the line's span.
    t.output("sh -c 'echo $SUBSTRATE_PARENT_SPAN' > parent.txt; cd");
    t.output("sh -c 'echo $SUBSTRATE_PARENT_SPAN' > parent.txt");
    let events = t.trace();
    let start = events
        .iter()
        .rfind(|event| event["event_type"] == "command_start")
        .unwrap();
    let wanted = format!(
        "{}/{}\n",
        start["session_id"].as_str().unwrap(),
        start["span_id"].as_str().unwrap()
    );
    assert_eq!(t.content("parent.txt"), wanted);
}

/// A session in which lines with `env` run in a world of their own; nothing where there are no worlds.
fn isolating(test: &str) -> Option<Terminal> {
    let mut setup = Setup::new();
    setup.policy(ISOLATES);
    setup.file("project/.git/HEAD", "ref: refs/heads/main\n");
    let mut t = setup.start();
    t.wait_for("<0>");
    t.output("cd project");
    if t.run("env true").1 != 0 {
        skip(test, "this machine gives no worlds");
        return None;
    }
    Some(t)
}

#[test]
fn an_isolated_line_has_the_state_and_cannot_change_it() {
    let Some(mut t) = isolating("an_isolated_line_has_the_state_and_cannot_change_it") else {
        return;
    };
    t.output(
        "x='a b'; arr=(1 '2 3'); f() { echo \"f:$1:$x\"; }; alias g=f; umask 027; set -o noglob",
    );
    // Longer than one argument of a program may be.
    t.output("long() { :; }; big=$(head -c 300000 /dev/zero | tr '\\0' b)");
    let output = t.output(
        "env true; g iso; echo ${arr[1]} $(umask) ${PWD##*/} * ${#big}; echo kept > held.txt; x=changed; cd /",
    );
    assert!(output.contains("f:iso:a b"), "{output}");
    assert!(output.contains("2 3 0027 project * 300000"), "{output}");
    assert!(
        output.contains("cannot change this shell: the directory, variable x"),
        "{output}"
    );
    assert!(
        t.output("echo \"x=$x ${PWD##*/}\"")
            .contains("x=a b project")
    );
    assert!(!t.path("project/held.txt").exists());
    assert_eq!(t.run("env sh -c 'exit 7'").1, 7);
    assert!(t.output("env sh -c 'exit 7'; true").is_empty());
    assert!(
        t.traced("command_complete")
            .iter()
            .any(|line| line.starts_with("env true; g"))
    );
}

#[test]
fn an_isolated_line_has_the_terminal() {
    let Some(mut t) = isolating("an_isolated_line_has_the_terminal") else {
        return;
    };
    t.keys("env sh -c 'read answer; echo got-$answer'\r");
    t.settle(Duration::from_millis(800));
    t.keys("typed\r");
    t.wait_for("got-typed");
    t.finish();
    t.keys("env sh -c 'echo go-$((1+1)); sleep 1000'\r");
    t.wait_for("go-2");
    t.settle(Duration::from_millis(200));
    t.keys("\x03");
    assert_eq!(t.finish().1, 130);
    assert!(t.output("echo alive-$((2+2))").contains("alive-4"));
}

#[test]
fn nothing_typed_ahead_answers_a_question() {
    let mut t = denying();
    t.keys(format!("sleep 0.7\rtouch asked-file\r{UP}{UP}{UP}\r"));
    t.wait_for("Command Approval Request");
    t.wait_for("> Deny");
    t.settle(Duration::from_millis(500));
    assert!(!t.path("asked-file").exists());
    t.keys("\r");
    t.wait_for("User denied approval");
    t.finish();
    assert!(t.output("echo status-$?").contains("status-126"));
    t.keys("touch asked-file\r");
    t.wait_for("> Deny");
    t.settle(Duration::from_millis(300));
    t.keys(format!("{UP}{UP}{UP}\r"));
    t.finish();
    assert!(t.path("asked-file").exists());
}

#[test]
fn a_full_disk_is_repaired_by_hand() {
    let mut setup = Setup::new();
    setup.policy(DENIES);
    let shell = shell_under_test();
    // A small disk of the test's own, filled to the last byte.
    let script = format!(
        "mkdir disk && mount -t tmpfs -o size=256k tmpfs disk && cp -r .substrate disk/home && \
         {{ cat /dev/zero > disk/fill 2>/dev/null; export SUBSTRATE_HOME=$PWD/disk/home; exec {} -i; }}",
        shell.display()
    );
    let probe = Command::new("unshare").args(["-Urm", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        skip("a_full_disk_is_repaired_by_hand", "no user namespaces here");
        return;
    }
    setup.program = "/usr/bin/unshare".into();
    setup.arguments = ["-Urm", "sh", "-c", &script].map(Into::into).to_vec();
    let mut t = setup.start();
    t.wait_for("ready> ");
    t.keys("touch unrecorded\r");
    t.wait_for("cannot be recorded");
    t.wait_for("run this line unrecorded? [y/N] ");
    t.settle(Duration::from_millis(200));
    t.keys("\r");
    t.wait_for("<125>");
    assert!(!t.path("unrecorded").exists());
    t.keys("rm disk/fill\r");
    t.wait_for("run this line unrecorded? [y/N] ");
    t.settle(Duration::from_millis(200));
    t.keys("y\r");
    t.wait_for("<0>");
    // There is room again, and nobody is asked.
    t.keys("touch recorded\r");
    t.wait_for("<0>");
    t.keys("substrate trace list\r");
    t.wait_for("touch recorded");
    assert!(t.path("recorded").exists());
}

#[test]
fn a_changed_policy_is_told_above_the_line_that_is_typed() {
    let mut t = denying();
    t.wait_for("ready> ");
    t.keys("echo half-$((2*4))");
    t.wait_for("echo half");
    let changed = DENIES.replace("not that one", "nor this one");
    let text = format!("id: test\nname: Test\n{changed}");
    std::fs::write(t.path(".substrate/policies/test.yaml"), text).unwrap();
    t.wait_for("Policy reloaded");
    t.wait_for("echo half-$((2*4))");
    t.keys("\r");
    t.wait_for("\nhalf-8\n");
    t.finish();
    // While a program has the screen, the news waits.
    t.keys("sleep 2; echo over-$((3*3))\r");
    t.settle(Duration::from_millis(300));
    std::fs::write(
        t.path(".substrate/policies/test.yaml"),
        format!("id: test\nname: Test\n{DENIES}"),
    )
    .unwrap();
    let before = t.wait_for("\nover-9\n");
    assert!(!before.contains("reloaded"), "{before}");
    t.wait_for("Policy reloaded");
}

#[test]
fn substrate_s_own_commands_work_at_the_prompt() {
    let mut setup = Setup::new();
    setup.policy(DENIES);
    setup.set("PATH", "/usr/bin:/bin");
    let mut t = setup.start();
    t.wait_for("<0>");
    assert!(t.output("substrate policy list").contains("* test"));
    assert!(t.output("substrate prompt").contains("test:enforce"));
    t.keys("substrate trace tail -f\r");
    t.settle(Duration::from_millis(500));
    t.keys("\x03");
    t.finish();
    assert!(t.output("echo alive-$((2+2))").contains("alive-4"));
    // What only a person may do is done here, and by nothing that a line starts.
    let shell = shell_under_test();
    let line = format!(
        "sh -c '{} approvals grant \"touch asked-one\"'",
        shell.display()
    );
    let (output, status) = t.run(&line);
    assert!(output.contains("at a person's own terminal"), "{output}");
    assert_eq!(status, 126);
    t.run(&format!(
        "x=approvals; sh -c \"{} $x grant 'touch asked-one'\"",
        shell.display()
    ));
    assert!(!t.output("substrate approvals list").contains("asked-one"));
    t.keys("substrate approvals grant 'touch asked-two'\r");
    t.settle(Duration::from_millis(700));
    let shown = t.unseen();
    assert!(shown.contains("touch asked-two"), "{shown}");
    assert!(
        !shown.contains("nothing was changed") && !shown.contains("denied"),
        "{shown}"
    );
}

#[test]
fn substrate_s_own_commands_see_what_the_shell_has_exported() {
    let mut setup = Setup::new();
    setup.policy("mode: observe\nworld: { enabled: off }\n");
    setup.set("EDITOR", "false");
    let editor = setup.file("edit.sh", "printf '%s' \"$TOLD-$1\" > edited\n");
    let mut t = setup.start();
    t.wait_for("<0>");
    t.output(&format!("export TOLD=yes EDITOR='sh {}'", text_of(&editor)));
    t.keys("substrate policy edit test\r");
    t.finish();
    assert!(t.content("edited").starts_with("yes-"), "{}", t.text());
    // Nothing that the shell exports chooses another home.
    t.output("export SUBSTRATE_HOME=/nonexistent HOME=/nonexistent");
    assert!(t.output("substrate policy list").contains("* test"));
}

#[test]
fn substrate_s_own_words_are_completed() {
    let mut t = denying();
    t.output("true");
    t.output("");
    let span = t
        .trace()
        .iter()
        .find(|event| event["event_type"] == "command_complete")
        .map(|event| event["span_id"].as_str().unwrap().to_owned())
        .unwrap();
    for (keys, wanted) in [
        ("substrate pol\t", "substrate policy "),
        ("substrate policy expl\t", "explain "),
        ("substrate policy explain --js\t", "--json"),
        ("substrate policy show lock\t", "locked "),
        ("substrate policy explain --policy rest\t", "restricted "),
        ("substrate replay spn_\t", span.as_str()),
        ("substrate trace spn_\t", span.as_str()),
    ] {
        t.wait_for("ready> ");
        t.keys(keys);
        t.wait_for(wanted);
        t.keys("\x03");
        t.wait_for("<130>");
    }
}

#[test]
fn ctrl_r_searches_the_trace() {
    let mut setup = Setup::new();
    setup.policy(DENIES);
    for (line, directory) in [
        ("echo old-$((6*7)) # here", "/usr"),
        ("echo old-$((6*8)) # there", "/var"),
        ("touch forbidden-then", "/usr"),
    ] {
        let _ = Command::new(shell_under_test())
            .args(["-c", line])
            .env_clear()
            .envs(setup.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(directory)
            .output()
            .unwrap();
    }
    let mut t = setup.start();
    t.wait_for("ready> ");
    t.keys("\x12dir:/usr old");
    t.wait_for("echo old-$((6*7)) # here");
    t.keys("\r");
    t.wait_for("\nold-42\n");
    t.finish();
    t.wait_for("ready> ");
    t.keys("\x12verdict:deny ");
    t.wait_for("touch forbidden-then");
    t.keys("\x03");
}

#[test]
fn there_is_a_prompt_without_home_and_history() {
    let mut setup = Setup::new();
    setup
        .set("HOME", "/nonexistent")
        .set("SUBSTRATE_HOME", "/proc/nonexistent")
        .unset("LANG");
    let mut t = setup.start();
    t.settle(Duration::from_millis(600));
    t.keys("echo works-$((7*7))\r");
    t.wait_for("works-49");
    t.keys("echo twice-$((8*8))\r");
    t.wait_for("twice-64");
    assert!(t.text().matches("history file cannot be used").count() <= 1);
}
