//! The project follows the directory: an enforcing prompt that starts anywhere can work in the projects
//! that its person goes to, and in no others.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Sandbox;
use crate::person::Person;

const POLICY: &str = "mode: enforce\nfs:\n  read: [\"/**\"]\n  write: [\"$PROJECT/**\", \"/tmp/**\"]\n  \
                      hide: [\"$PROJECT/**/.env\"]\n";

/// A home with projects in it, outside `/tmp`, which every world has for itself.
struct Place {
    sandbox: Sandbox,
    home: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self::with_policy(POLICY)
    }

    fn with_policy(policy: &str) -> Self {
        let place = Self {
            sandbox: Sandbox::with_policy(policy),
            home: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap(),
        };
        for name in ["app", "other"] {
            std::fs::create_dir_all(place.path(name).join(".git")).unwrap();
            std::fs::write(place.path(name).join(".env"), "secret\n").unwrap();
        }
        std::fs::create_dir_all(place.path("plain")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().canonicalize().unwrap().join(name)
    }

    fn command(&self, from: &str) -> Command {
        let mut command = self.sandbox.substrate();
        command
            .env("HOME", self.path(""))
            .env("TERM", "xterm")
            .current_dir(self.path(from));
        command
    }

    fn prompt(&self, from: &str) -> Person {
        std::fs::write(self.path(".rc"), "PS1='ready> '\n").unwrap();
        let mut command = self.command(from);
        command.arg("-i").arg("--rcfile").arg(self.path(".rc"));
        let mut person = Person::start(command);
        person.sees("ready> ");
        person
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

#[test]
fn who_starts_at_home_can_work_in_a_project() {
    let place = Place::new();
    let mut person = place.prompt("");
    person.types("kept=one; f() { echo from-f-$kept; }; alias hi='echo alias-$kept'; echo t >/tmp/t; umask 027\r");
    person.sees("ready> ");
    person.types("cd app\r");
    person.sees("app is the project now");
    person.sees("ready> ");
    person.types("echo made >new && f && hi && cat /tmp/t && umask; echo rc-$((0))\r");
    person.sees("from-f-one");
    person.sees("alias-one");
    person.sees("0027");
    person.sees("rc-0");
    assert_eq!(place.read("app/new"), "made\n");
    person.types("exit\r");
    assert_eq!(person.end().0, 0);
}

#[test]
fn going_to_another_project_and_back_keeps_what_was_there() {
    let place = Place::new();
    std::fs::write(place.path("hold.sh"), "echo kept >~/held\n").unwrap();
    std::fs::write(place.path("hold3.sh"), "echo three >../app/three\n").unwrap();
    std::fs::write(
        place.path("app/peek.sh"),
        "cat .env $HOME/*/.env 2>&1 | sort -u\n",
    )
    .unwrap();
    std::fs::write(
        place.path("other/peek.sh"),
        "cat .env $HOME/app/.env 2>&1 | sort -u\n",
    )
    .unwrap();
    let mut person = place.prompt("app");
    person.types("sh ~/hold.sh; count=1; sh peek.sh; echo at-$((0+1))\r");
    person.sees("at-1");
    person.types("cd ../other\r");
    person.sees("other is the project now");
    person.sees("ready> ");
    person.types(
        "echo two >two; cat ~/held; sh peek.sh >seen; sh ~/hold3.sh; echo at-$((count+1))\r",
    );
    person.sees("at-2");
    assert_eq!(place.read("other/two"), "two\n");
    // What the first project hid stays hidden, and only this one is written.
    assert!(
        !place.read("other/seen").contains("secret"),
        "{}",
        place.read("other/seen")
    );
    assert!(!exists(&place.path("app/three")));
    person.types("cd ../app\r");
    person.sees("app is the project now");
    person.sees("ready> ");
    person.types("echo four >four; cat ~/held; echo at-$((count+3))\r");
    person.sees("at-4");
    assert_eq!(place.read("app/four"), "four\n");
    person.types("cd /; echo out-$((4+1)); cd -; echo five >five; echo at-$((4+1))\r");
    person.sees("at-5");
    assert_eq!(place.read("app/five"), "five\n");
    person.types("exit\r");
    let (status, text) = person.end();
    assert_eq!(status, 0);
    // One result for the whole session, said once, with a command that works.
    assert_eq!(text.matches("held back:").count(), 1, "{text}");
    let (_, command) = text.split_once("`substrate world apply").unwrap();
    let (words, _) = command.split_once('`').unwrap();
    let mut apply = place.command("");
    apply
        .args(["world", "apply"])
        .args(words.split_whitespace());
    let done = apply.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert_eq!(place.read("held"), "kept\n");
    assert_eq!(place.read("app/three"), "three\n");
}

#[test]
fn nothing_inside_leads_to_another_project() {
    let place = Place::new();
    std::os::unix::fs::symlink(place.path("other"), place.path("app/link")).unwrap();
    std::fs::write(place.path("app/to"), "../other\n").unwrap();
    let bad = format!("echo bad >{}\n", place.path("other/bad").display());
    std::fs::write(place.path("bad.sh"), bad).unwrap();
    for line in [
        "PROMPT_COMMAND='cd ../other'",
        "cd link",
        "cd \"$(cat to)\"",
        "cd .",
    ] {
        let mut person = place.prompt("app");
        if line == "cd ." {
            person.types("cd() { builtin cd ../other; }; echo set-$((1+1))\r");
            person.sees("set-2");
        }
        person.types(&format!("{line}\r"));
        person.sees("work in ");
        person.sees("[y/N]");
        person.types("\r");
        person.sees("is held back");
        person.types("\r");
        person.types("sh ~/bad.sh; echo at-$((0+1))\r");
        person.sees("at-1");
        assert!(!exists(&place.path("other/bad")), "{line}");
        person.types("exit\r");
        person.end();
    }
}

#[test]
fn a_work_tree_that_a_session_makes_widens_nothing() {
    let place = Place::new();
    std::fs::create_dir(place.path("app/sub")).unwrap();
    std::fs::write(place.path("bad.sh"), "echo bad >bad\n").unwrap();
    std::fs::write(place.path("peek.sh"), "cat ../.env\n").unwrap();
    std::fs::write(
        place.path("marks.sh"),
        "mkdir ~/.git ~/plain/.git sub/.git\n",
    )
    .unwrap();
    let mut person = place.prompt("app");
    // Around a project and at home the mark lies in what is held; below it, what is hidden stays so.
    person.types("sh ~/marks.sh; cd ~/plain\r");
    person.sees("ready> ");
    person.types("sh ~/bad.sh; cd ~/app/sub; sh ~/peek.sh; echo at-$((0+1))\r");
    person.sees("at-1");
    assert!(!exists(&place.path("plain/bad")));
    assert!(!person.text().contains("secret"), "{}", person.text());
    person.types("exit\r");
    person.end();
}

#[test]
fn what_still_runs_is_not_ended_without_a_word() {
    let place = Place::new();
    let mut person = place.prompt("app");
    person.types("sleep 300 &\r");
    person.sees("ready> ");
    person.types("cd ../other\r");
    person.sees("(sleep)");
    person.types("\r");
    person.sees("is held back");
    person.types("cd ../app; jobs; echo at-$((0+1))\r");
    person.sees("Running");
    person.sees("at-1");
    person.types("cd ../other\r");
    person.sees("[y/N]");
    person.types("y\r");
    person.sees("is the project now");
    person.sees("ready> ");
    person.types("echo two >two; echo at-$((1+1))\r");
    person.sees("at-2");
    assert_eq!(place.read("other/two"), "two\n");
    person.types("exit\r");
    person.end();
}
