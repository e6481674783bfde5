//! Start-up files under a policy that enforces without worlds: nothing in them runs unjudged.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use crate::common::Sandbox;
use crate::person::Person;

const POLICY: &str =
    "mode: enforce\nworld: { enabled: \"off\" }\ncommands: { denied: [\"uname *\"] }\n";

#[test]
fn a_start_up_file_that_does_what_is_refused_is_not_read() {
    let sandbox = Sandbox::with_policy(POLICY);
    let file = sandbox.project().join("rc");
    std::fs::write(&file, "PS1='mine> '\nuname -a > said\n").unwrap();
    let prompt = || {
        let mut command = sandbox.substrate();
        command.args(["-i", "--rcfile", "rc"]).env("TERM", "xterm");
        Person::start(command)
    };
    let mut person = prompt();
    person.sees("is a start-up file");
    person.types("echo on-$((1+1))\r");
    person.sees("on-2");
    person.types("exit\r");
    person.end();
    assert!(!sandbox.project().join("said").exists());
    assert_eq!(
        sandbox.events("policy_violation")[0]["rule"]["pattern"],
        "uname *"
    );
    // One that does nothing of the kind is read, although part of it is only known when it runs.
    std::fs::write(&file, "PS1='mine> '\neval \"$(echo true)\"\n").unwrap();
    let mut person = prompt();
    person.sees("mine> ");
    person.types("exit\r");
    person.end();
    // An alias is judged when it is used, unless the file uses it itself.
    for (text, is_read) in [
        ("PS1='mine> '\nalias zz='uname -a'\n", true),
        (
            "shopt -s expand_aliases\nalias zz='uname -a'\nzz > said\n",
            false,
        ),
    ] {
        std::fs::write(&file, text).unwrap();
        let mut person = prompt();
        person.sees(if is_read {
            "mine> "
        } else {
            "is a start-up file"
        });
        person.types("exit\r");
        person.end();
    }
    assert!(!sandbox.project().join("said").exists());
    // Login files of a line.
    let home = sandbox.project().join("home");
    std::fs::create_dir(&home).unwrap();
    std::fs::write(home.join(".profile"), "uname -a; echo profile-read\n").unwrap();
    let output = sandbox
        .substrate()
        .env("HOME", &home)
        .args(["-l", "-c", "echo line"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("line") && !said.contains("profile-read"),
        "{output:?}"
    );
}

#[test]
fn what_cannot_be_judged_is_not_read_either() {
    let sandbox = Sandbox::with_policy(POLICY);
    let home = sandbox.project().join("home");
    let profile = home.join(".profile");
    let lay = |make: &dyn Fn()| {
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir(&home).unwrap();
        make();
    };
    let line = |words: &[&str], ssh: bool| {
        let mut command = sandbox.substrate();
        command.env("HOME", &home).args(words);
        if ssh {
            command.env("SSH_CLIENT", "192.0.2.1 1 22").env("SHLVL", "");
        }
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(said.contains("the line"), "{output:?}");
        said
    };
    // Longer than anything that is judged.
    lay(&|| {
        let text = format!("{}\necho was-read\n", "#".repeat(5 << 20));
        std::fs::write(&profile, text).unwrap();
    });
    assert!(!line(&["-l", "-c", "echo the line"], false).contains("was-read"));
    // No file at all: bash would wait for a writer.
    lay(&|| {
        let made = std::process::Command::new("mkfifo").arg(&profile).status();
        assert!(made.unwrap().success());
    });
    line(&["-l", "-c", "echo the line"], false);
    // Somebody else's, who is not root.
    lay(&|| {
        std::fs::write(&profile, "uname; echo was-read\n").unwrap();
        let _ = std::os::unix::fs::chown(&profile, Some(54_001), None);
    });
    assert!(!line(&["-l", "-c", "echo the line"], false).contains("was-read"));
    // What `ssh host command` has bash read.
    lay(&|| std::fs::write(home.join(".bashrc"), "uname; echo was-read\n").unwrap());
    assert!(!line(&["-c", "echo the line; true"], true).contains("was-read"));
}
