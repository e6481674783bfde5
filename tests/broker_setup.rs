//! Setting up, choosing, trusting and removing: the commands by which a person changes what holds.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;

use crate::common::{Sandbox, script, skip};
use crate::person::Person;

const BASE: &str = "mode: enforce\nworld: { enabled: off }\nfs: { outside: allow }\ncommands: { denied: [\"sleep *\"] }\n";

fn typed(sandbox: &Sandbox, arguments: &[&str]) -> Person {
    let mut command = sandbox.substrate();
    command.args(arguments).env("TERM", "xterm");
    Person::start(command)
}

fn said(sandbox: &Sandbox, arguments: &[&str]) -> (Option<i32>, String) {
    let output = sandbox.run(arguments);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), sandbox.normal(&text))
}

#[test]
fn a_dry_run_changes_nothing() {
    // With whatever clients this machine really has: they must not leave logs or caches either.
    let sandbox = Sandbox::new();
    let top = sandbox.home().join("..").canonicalize().unwrap();
    let all = || {
        let mut found = Vec::new();
        let mut left = vec![top.clone()];
        while let Some(path) = left.pop() {
            // The clients that are asked have homes of their own there.
            if path.file_name().is_some_and(|name| name == ".rustup") {
                continue;
            }
            let meta = fs::symlink_metadata(&path).unwrap();
            if meta.is_dir() {
                left.extend(
                    fs::read_dir(&path)
                        .unwrap()
                        .map(|entry| entry.unwrap().path()),
                );
            }
            found.push((path, meta.len(), meta.modified().unwrap()));
        }
        found.sort();
        found
    };
    fs::create_dir(top.join(".rustup")).unwrap();
    let before = all();
    let arguments = ["init", "--dry-run", "--preset", "dev", "--mode", "observe"];
    let (code, text) = said(&sandbox, &arguments);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(all(), before, "{text}");
}

#[test]
fn a_first_run_and_a_last_one() {
    let sandbox = Sandbox::new();
    fs::remove_file(sandbox.home().join("clients.json")).unwrap();
    // A client of this machine, with a mirror of its own.
    let bin = sandbox.home().join("../bin");
    fs::create_dir(&bin).unwrap();
    script(
        &bin.join("npm"),
        "#!/bin/sh\necho https://npm.mirror.test:8443/x/\n",
    );
    let run = |arguments: &[&str]| {
        let mut command = sandbox.substrate();
        let path = format!("{}:/usr/bin:/bin", bin.display());
        let output = command.args(arguments).env("PATH", path).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), sandbox.normal(&text))
    };
    let (code, text) = run(&["init", "--dry-run", "--preset", "dev", "--mode", "observe"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("would write /sandbox/home/policies/own.yaml"),
        "{text}"
    );
    assert!(
        !sandbox.home().join("active").exists() && !sandbox.home().join("clients.json").exists()
    );
    // Nobody is there to be asked.
    let (code, text) = run(&["init"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("`--yes` goes on without one"), "{text}");

    let (code, text) = run(&["init", "--yes", "--preset", "agent", "--mode", "observe"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("the policy in use is own (mode observe)"),
        "{text}"
    );
    assert!(text.contains("@npm: npm.mirror.test:8443"), "{text}");
    let clients: serde_json::Value =
        serde_json::from_slice(&fs::read(sandbox.home().join("clients.json")).unwrap()).unwrap();
    assert_eq!(clients["npm"], serde_json::json!(["npm.mirror.test:8443"]));
    // Once more changes nothing.
    let (code, text) = run(&["init", "--yes", "--preset", "agent", "--mode", "observe"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("own.yaml is as it should be"), "{text}");
    let (_, text) = run(&["policy", "list"]);
    assert!(text.lines().any(|line| line.starts_with("* own")), "{text}");

    let (code, text) = run(&["uninstall", "--yes"]);
    assert_eq!(code, Some(0), "{text}");
    for name in ["active", "clients.json", "cache", "policies/own.yaml"] {
        assert!(!sandbox.home().join(name).exists(), "{name} is left");
    }
    let (code, _) = run(&["uninstall", "--yes", "--purge"]);
    assert_eq!(code, Some(0));
    assert!(!sandbox.home().exists());
}

#[test]
fn policies_are_made_chosen_compared_and_edited() {
    let sandbox = Sandbox::with_policy(BASE);
    let (code, text) = said(
        &sandbox,
        &["policy", "init", "mine", "--from", "test", "--yes"],
    );
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = said(&sandbox, &["policy", "init", "mine", "--yes"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("exists"), "{text}");
    assert_eq!(
        said(&sandbox, &["policy", "use", "no-such", "--yes"]).0,
        Some(1)
    );
    assert_eq!(
        said(&sandbox, &["policy", "use", "../x", "--yes"]).0,
        Some(2)
    );
    let (code, text) = said(&sandbox, &["policy", "use", "mine", "--yes"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("mine (mode enforce)"), "{text}");
    let (code, text) = said(&sandbox, &["policy", "diff", "test", "mine"]);
    assert_eq!(code, Some(1));
    assert!(
        text.contains("-id: \"test\"") && text.contains("+id: \"mine\""),
        "{text}"
    );
    assert_eq!(said(&sandbox, &["policy", "diff", "mine"]).0, Some(0));
    let (code, text) = said(&sandbox, &["policy", "reload"]);
    assert_eq!(code, Some(0));
    assert!(text.contains("policy mine is in force"), "{text}");

    // An edit with a mistake does not take effect; the next one without does.
    let editor = sandbox.project().join("editor");
    script(
        &editor,
        "#!/bin/sh\nif grep -q denid \"$1\"; then sed -i s/denid/denied/ \"$1\"; else echo 'commands: { denid: [\"date *\"] }' >> \"$1\"; fi\n",
    );
    let mut command = sandbox.substrate();
    command
        .args(["policy", "edit", "mine"])
        .env("EDITOR", &editor)
        .env("TERM", "xterm");
    let mut person = Person::start(command);
    person.sees("`denid` is not a known key here");
    person.sees("Edit it again?");
    assert_eq!(said(&sandbox, &["-c", "date"]).0, Some(0));
    person.types("y\r");
    let (status, text) = person.end();
    assert_eq!(status, 0, "{text}");
    assert_eq!(said(&sandbox, &["-c", "date"]).0, Some(126));
    assert_eq!(
        said(&sandbox, &["-c", "sleep 0"]).0,
        Some(126),
        "what it extends still holds"
    );
    let drafts = fs::read_dir(sandbox.home().join("policies"))
        .unwrap()
        .filter(|entry| {
            entry
                .as_ref()
                .unwrap()
                .file_name()
                .to_string_lossy()
                .contains("draft")
        });
    assert_eq!(drafts.count(), 0);
}

#[test]
fn profiles_are_shown_trusted_and_revoked() {
    let sandbox = Sandbox::with_policy(BASE);
    sandbox.policy("strict", "id: strict\nname: Strict\nmode: enforce\nworld: { enabled: off }\nfs: { outside: allow }\ncommands: { denied: [\"date *\"] }\n");
    let (_, text) = said(&sandbox, &["profile", "show"]);
    assert!(text.contains("the policy in use is test"), "{text}");
    fs::write(sandbox.project().join(".substrate-profile"), "strict\n").unwrap();
    let (_, text) = said(&sandbox, &["profile", "show"]);
    assert!(text.contains("standing untrusted"), "{text}");
    // Both count.
    let (code, text) = said(&sandbox, &["-c", "date"]);
    assert_eq!(code, Some(126), "{text}");
    assert_eq!(said(&sandbox, &["-c", "sleep 0"]).0, Some(126));
    assert_eq!(said(&sandbox, &["-c", "true"]).0, Some(0));
    let told = sandbox.events("command_complete").pop().unwrap();
    assert!(
        told["profile"].as_str().unwrap().starts_with("strict ("),
        "{told}"
    );
    let (_, text) = said(&sandbox, &["policy", "explain", "date"]);
    assert!(
        text.contains("profile strict (/sandbox/project/.substrate-profile, combined)"),
        "{text}"
    );
    let (_, text) = said(&sandbox, &["allowed"]);
    assert!(
        text.contains("policy test") && text.contains("profile strict"),
        "{text}"
    );

    let (code, text) = said(&sandbox, &["profile", "trust"]);
    assert_eq!(code, Some(1));
    assert!(text.contains("no terminal"), "{text}");
    let mut person = typed(&sandbox, &["profile", "trust"]);
    person.sees("names the policy strict");
    person.sees("Trust it?");
    person.types("\r");
    assert_eq!(person.end().0, 1, "Enter alone is no");
    let mut person = typed(&sandbox, &["profile", "trust"]);
    person.sees("Trust it?");
    person.types("y\r");
    assert_eq!(person.end().0, 0);
    assert!(
        said(&sandbox, &["profile", "show"])
            .1
            .contains("standing trusted")
    );
    assert!(
        said(&sandbox, &["profile", "list"])
            .1
            .contains("strict  /sandbox/project/.substrate-profile")
    );
    // A one-shot is no prompt: the policy in use stays the ceiling.
    assert_eq!(said(&sandbox, &["-c", "sleep 0"]).0, Some(126));
    fs::write(sandbox.project().join(".substrate-profile"), "test\n").unwrap();
    assert!(
        said(&sandbox, &["profile", "show"])
            .1
            .contains("standing changed")
    );
    let person = typed(&sandbox, &["profile", "revoke"]);
    assert_eq!(person.end().0, 0);
    assert!(
        said(&sandbox, &["profile", "list"])
            .1
            .contains("no profile is trusted")
    );
}

#[test]
fn a_bad_profile_is_named_and_can_be_left() {
    let sandbox = Sandbox::with_policy(BASE);
    fs::write(
        sandbox.project().join(".substrate-profile"),
        "../../etc/x\n",
    )
    .unwrap();
    let (code, text) = said(&sandbox, &["-c", "true"]);
    assert_eq!(code, Some(126));
    assert!(
        text.contains("`../../etc/x` is not the name of a policy"),
        "{text}"
    );
    assert!(
        text.contains("Repair or remove it, or `cd` elsewhere"),
        "{text}"
    );
    assert_eq!(said(&sandbox, &["-c", "cd /"]).0, Some(0));
}

/// Chooses an item that is some keys down from the one that is marked.
fn choose(person: &mut Person, question: &str, down: usize) {
    person.sees(question);
    person.types(&format!("{}\r", "\x1b[B".repeat(down)));
}

#[test]
fn package_clients_are_asked_when_a_policy_first_names_them() {
    let sandbox = Sandbox::new();
    let known = sandbox.home().join("clients.json");
    fs::remove_file(&known).unwrap();
    let (bin, theirs) = (sandbox.home().join("../bin"), sandbox.project().join("bin"));
    for (place, host) in [(&theirs, "evil.test"), (&bin, "npm.mirror.test:8443")] {
        fs::create_dir_all(place).unwrap();
        let text = format!("#!/bin/sh\necho https://{host}/x/\n");
        crate::common::script(&place.join("npm"), &text);
    }
    let path = format!("{}:{}:/usr/bin:/bin", theirs.display(), bin.display());
    let explain = |host: &str| {
        let line = format!("npm install --registry https://{host}/ left");
        let mut command = sandbox.substrate();
        command.args(["policy", "explain", "--policy", "agent", "--json", &line]);
        let output = command.env("PATH", &path).output().unwrap();
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        told.to_string().contains("is not an allowed host")
    };
    assert!(
        !explain("npm.mirror.test:8443"),
        "its own mirror is allowed without `init`"
    );
    assert!(explain("elsewhere.test"));
    let clients: serde_json::Value = serde_json::from_slice(&fs::read(&known).unwrap()).unwrap();
    // A program that the project brings along is not asked.
    assert_eq!(clients["npm"], serde_json::json!(["npm.mirror.test:8443"]));
}

#[test]
fn init_asks_at_a_terminal_and_does_what_was_answered() {
    let sandbox = Sandbox::new();
    let policies: Vec<String> = ["active", "policies/own.yaml", "shims"]
        .iter()
        .map(|name| sandbox.home().join(name).display().to_string())
        .collect();
    let nothing = || {
        policies
            .iter()
            .all(|path| !std::path::Path::new(path).exists())
    };
    let start = || {
        let mut command = sandbox.substrate();
        command
            .arg("init")
            .env("TERM", "xterm")
            .env("PATH", "/usr/bin:/bin");
        Person::start(command)
    };
    // Whoever leaves at a question has changed nothing.
    let mut person = start();
    person.sees("Which policy to start from?");
    person.types("\x1b");
    let (status, text) = person.end();
    assert_eq!(status, 1, "{text}");
    assert!(text.contains("nothing was changed") && nothing(), "{text}");

    let mut person = start();
    choose(&mut person, "Which policy to start from?", 0);
    choose(&mut person, "Which mode?", 2);
    person.sees("Shims guard tools");
    person.sees("Install them?");
    person.types("y\r");
    // Whether it can be the login shell depends on the machine; whatever is offered is declined.
    person.sees("login shell");
    if person.text().contains("Make it your login shell?") {
        person.types("n\r");
    }
    let (status, text) = person.end();
    assert_eq!(status, 0, "{text}");
    assert!(
        text.contains("the policy in use is own (mode enforce)"),
        "{text}"
    );
    assert!(sandbox.home().join("shims/git").exists(), "{text}");
    let own = fs::read_to_string(sandbox.home().join("policies/own.yaml")).unwrap();
    assert!(own.contains("mode: enforce"), "{own}");
    // And back: shown first, and Enter alone is no.
    let mut person = typed(&sandbox, &["uninstall"]);
    person.sees("Substrate will");
    person.sees("Go on?");
    person.types("\r");
    assert_eq!(person.end().0, 1);
    assert!(!nothing());
    let mut person = typed(&sandbox, &["uninstall"]);
    person.sees("Go on?");
    person.types("y\r");
    let (status, text) = person.end();
    assert_eq!(status, 0, "{text}");
    assert!(nothing(), "{text}");
}

#[test]
fn uninstall_settles_what_worlds_have_left() {
    let sandbox = Sandbox::with_policy(
        "mode: observe\nfs: { read: [\"/**\"], write: [\"$PROJECT/**\"] }\nworld: { on_finish: keep }\n",
    );
    if !sandbox.run(["world", "doctor"]).status.success() {
        return skip(
            "uninstall_settles_what_worlds_have_left",
            "worlds cannot be made here",
        );
    }
    let made = || {
        let (_, text) = said(&sandbox, &["run", "--isolated", "--", "touch", "kept"]);
        let (_, status) = said(&sandbox, &["world", "status"]);
        assert!(status.contains("waiting"), "{text}\n{status}");
    };
    made();
    // Nobody is there to be asked: it is named and stays, everything else goes.
    let (code, text) = said(&sandbox, &["uninstall", "--yes"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("these results of isolated commands stay") && text.contains("touch kept"),
        "{text}"
    );
    assert!(said(&sandbox, &["world", "status"]).1.contains("waiting"));
    assert!(!sandbox.home().join("cache").exists() || !sandbox.home().join("active").exists());
    // A person is asked.
    for (answer, left) in [("n", true), ("y", false)] {
        let mut person = typed(&sandbox, &["uninstall"]);
        person.sees("Go on?");
        person.types("y\r");
        person.sees("never taken over");
        person.sees("touch kept");
        person.sees("Throw them away?");
        person.types(&format!("{answer}\r"));
        let (status, text) = person.end();
        assert_eq!(status, 0, "{text}");
        assert_eq!(sandbox.home().join("worlds").exists(), left, "{text}");
    }
    // Everything goes, those results too, and nothing of a world is left in the project.
    made();
    let (code, text) = said(&sandbox, &["uninstall", "--yes", "--purge"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(!sandbox.home().exists(), "{text}");
    let left: Vec<_> = fs::read_dir(sandbox.project())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, [".git"], "{text}");
}
