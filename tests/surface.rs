//! What a person meets first: options before and after names, homes, messages and where they lead.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use crate::common::{Sandbox, skip};

fn out(output: &std::process::Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}

fn has_worlds(sandbox: &Sandbox, test: &str) -> bool {
    let works = sandbox.run(["world", "doctor"]).status.success();
    if !works {
        skip(test, "this machine has no full worlds");
    }
    works
}

#[test]
fn options_work_before_and_after_a_name() {
    let sandbox = Sandbox::new();
    for arguments in [
        &["--policy", "restricted", "policy", "explain", "sudo id"][..],
        &["policy", "--policy", "restricted", "explain", "sudo id"],
        &["policy", "explain", "--policy", "restricted", "sudo id"],
        &["--policy=restricted", "policy", "explain", "sudo id"],
    ] {
        let output = sandbox.run(arguments);
        let text = out(&output);
        assert!(
            text.starts_with("deny under policy 'restricted'"),
            "{arguments:?} {text}"
        );
    }
    for arguments in [
        &["--policy", "restricted", "run", "--", "sudo", "id"][..],
        &["run", "--policy", "restricted", "--", "sudo", "id"],
    ] {
        assert_eq!(
            sandbox.run(arguments).status.code(),
            Some(126),
            "{arguments:?}"
        );
    }
    for arguments in [
        &["--policy", "locked", "policy", "show"][..],
        &["policy", "show", "--policy", "locked"],
        &["policy", "show", "locked"],
        &["allowed", "--policy", "locked"],
        &["--policy", "locked", "allowed"],
    ] {
        let text = out(&sandbox.run(arguments));
        assert!(text.contains("locked"), "{arguments:?} {text}");
    }
    // A name that has no use for an option says so, and a script of that name stays a script.
    let refused = sandbox.run(["--policy", "dev", "shim", "list"]);
    assert_eq!(refused.status.code(), Some(2), "{}", out(&refused));
    let script = sandbox.project().join("script");
    std::fs::write(&script, "echo ran").unwrap();
    assert_eq!(out(&sandbox.run(["--policy", "dev", "./script"])), "ran\n");
}

#[test]
fn home_is_where_the_variable_says_when_nothing_encloses_us() {
    let sandbox = Sandbox::new();
    let home = sandbox.project().join("other home");
    std::fs::create_dir(&home).unwrap();
    let mut command = sandbox.substrate();
    command.env_remove("SUBSTRATE_HOME").env("HOME", &home);
    assert!(command.args(["-c", "true"]).status().unwrap().success());
    assert!(home.join(".substrate/trace.jsonl").exists());
    // Whoever is inside a session has the home of that session, whatever he says.
    let inner = format!(
        "HOME={0} {1} -c 'true inner'; true",
        sandbox.project().display(),
        env!("CARGO_BIN_EXE_substrate"),
    );
    let mut command = sandbox.substrate();
    command.env_remove("SUBSTRATE_HOME").env("HOME", &home);
    let output = command.args(["-c", &inner]).output().unwrap();
    assert!(output.status.success(), "{}", out(&output));
    assert!(!sandbox.project().join(".substrate").exists());
    let trace = std::fs::read_to_string(home.join(".substrate/trace.jsonl")).unwrap();
    assert!(trace.contains("true inner"), "{trace}");
}

#[test]
fn a_user_without_a_passwd_entry_works() {
    let test = "a_user_without_a_passwd_entry_works";
    use std::os::unix::process::CommandExt;
    if substrate_sys::identity::user_id() != 0 {
        return skip(test, "only root can be somebody else");
    }
    let directory = tempfile::tempdir().unwrap();
    let (binary, home) = (
        directory.path().join("substrate"),
        directory.path().join("home"),
    );
    std::fs::copy(env!("CARGO_BIN_EXE_substrate"), &binary).unwrap();
    std::fs::create_dir(&home).unwrap();
    for path in [directory.path(), &home] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::os::unix::fs::chown(&home, Some(48_123), Some(48_123)).unwrap();
    let mut command = std::process::Command::new(&binary);
    command
        .args(["-c", "echo $HOME"])
        .current_dir(&home)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", &home)
        .uid(48_123)
        .gid(48_123);
    let output = command.output().unwrap();
    assert_eq!(out(&output), format!("{}\n", home.display()));
    let nowhere = command.env_remove("HOME").output().unwrap();
    assert_eq!(nowhere.status.code(), Some(125));
    assert!(
        out(&nowhere).contains("set HOME to a directory"),
        "{}",
        out(&nowhere)
    );
}

#[test]
fn a_slip_of_the_pen_in_a_policy_is_told_with_what_was_meant() {
    let sandbox = Sandbox::new();
    let path = sandbox.policy(
        "slip",
        "id: slip\nname: Slip\ncommands:\n  deny: [\"x\"]\nfss: {}\n",
    );
    let text = out(&sandbox.run([
        std::ffi::OsStr::new("policy"),
        "validate".as_ref(),
        path.as_os_str(),
    ]));
    assert!(text.contains("did you mean `denied`?"), "{text}");
    assert!(text.contains("did you mean `fs`?"), "{text}");
}

#[test]
fn every_document_is_in_the_binary() {
    let sandbox = Sandbox::new();
    let policy = out(&sandbox.run(["help", "policy"]));
    assert!(
        policy.contains(include_str!("../docs/policy.md")),
        "{policy}"
    );
    assert!(policy.ends_with("`substrate policy --help` lists its options.\n"));
    assert_eq!(
        out(&sandbox.run(["help", "worlds"])),
        include_str!("../docs/worlds.md")
    );
    assert!(out(&sandbox.run(["help"])).contains("  worlds        what a world contains"));
    let unknown = sandbox.run(["help", "nonsense"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        out(&unknown).contains("substrate help NAME"),
        "{}",
        out(&unknown)
    );
    assert!(out(&sandbox.run(["help", "run"])).contains("--timeout"));
}

#[test]
fn a_command_ends_when_its_time_is_up() {
    let sandbox = Sandbox::new();
    let (begun, child) = (Instant::now(), sandbox.project().join("child"));
    // In a session of its own, below a parent that has ended.
    let script = format!(
        "(setsid sh -c 'echo $$ > {}; exec sleep 77.25' &); sleep 60",
        child.display()
    );
    let output = sandbox.run(["run", "--timeout", "1s", "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(124), "{}", out(&output));
    assert!(
        out(&output).contains("longer than 1 s (--timeout)"),
        "{}",
        out(&output)
    );
    assert!(
        begun.elapsed() < Duration::from_secs(55),
        "it was waited for"
    );
    let child = std::fs::read_to_string(child).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let left = std::fs::read_to_string(format!("/proc/{}/cmdline", child.trim()));
    assert!(
        !left.is_ok_and(|line| line.contains("77.25")),
        "what it started ended too"
    );
    // One that ignores the request is ended.
    let stubborn = "trap '' TERM; while :; do sleep 0.1; done";
    let output = sandbox.run(["run", "--timeout", "1s", "--", "sh", "-c", stubborn]);
    assert_eq!(output.status.code(), Some(124), "{}", out(&output));
    let quick = sandbox.run(["run", "--timeout", "30s", "--", "sh", "-c", "exit 3"]);
    assert_eq!((quick.status.code(), out(&quick)), (Some(3), String::new()));
    if has_worlds(&sandbox, "a_command_ends_when_its_time_is_up") {
        let arguments = ["run", "--isolated", "--timeout", "1s", "--", "sleep", "60"];
        let output = sandbox.run(arguments);
        assert_eq!(output.status.code(), Some(124), "{}", out(&output));
        assert!(
            !out(&output).contains("world.limits.time"),
            "{}",
            out(&output)
        );
    }
}

#[test]
fn spans_say_what_a_command_took() {
    let sandbox = Sandbox::new();
    sandbox.run([
        "-c",
        "true; i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done",
    ]);
    let done = sandbox.events("command_complete").pop().unwrap();
    assert!(done["cpu_ms"].as_f64().unwrap() > 5.0, "{done}");
    assert!(done["memory_peak"].as_u64().unwrap() > 500_000, "{done}");
    let shown = out(&sandbox.run(["trace", "show"]));
    assert!(shown.contains("of processor time"), "{shown}");
}

#[test]
fn the_commit_of_a_policy_is_recorded() {
    let sandbox = Sandbox::with_policy("mode: observe\n");
    sandbox.run(["-c", "true"]);
    let commit = |sandbox: &Sandbox| {
        let done = sandbox.events("command_complete").pop().unwrap();
        done["replay_context"]["policy_commit"].clone()
    };
    assert!(commit(&sandbox).is_null());
    let git = sandbox.home().join(".git");
    std::fs::create_dir(&git).unwrap();
    let id = "0123456789abcdef0123456789abcdef01234567";
    std::fs::write(git.join("HEAD"), id).unwrap();
    sandbox.run(["-c", "true"]);
    assert_eq!(commit(&sandbox), id);
}

#[test]
fn times_are_those_of_the_place_and_files_stay_as_they_are() {
    let sandbox = Sandbox::new();
    sandbox.run(["-c", "true"]);
    let mut command = sandbox.substrate();
    let shown = command
        .env("TZ", "XXX-05:30")
        .args(["trace", "show"])
        .output()
        .unwrap();
    let shown = out(&shown);
    let when = shown.lines().find(|line| line.starts_with("when")).unwrap();
    assert!(when.contains(" +05:30 ("), "{when}");
    let raw = out(&sandbox
        .substrate()
        .env("TZ", "XXX-05:30")
        .args(["trace", "show", "--json"])
        .output()
        .unwrap());
    let event: serde_json::Value = serde_json::from_str(raw.lines().next().unwrap()).unwrap();
    let ts = event["ts"].as_str().unwrap();
    assert!(ts.ends_with('Z'), "{ts}");
    let at = substrate_text::time::parse(ts).unwrap() + Duration::from_secs(5 * 3600 + 1800);
    let local = substrate_text::time::Utc(at).to_string();
    assert!(
        when.contains(&format!("{} {}", &local[..10], &local[11..19])),
        "{when} {local}"
    );
}

#[test]
fn no_preset_keeps_private_files_in_snapshots_and_old_ones_can_be_removed() {
    let test = "no_preset_keeps_private_files_in_snapshots_and_old_ones_can_be_removed";
    for preset in ["default", "dev", "agent", "ci", "locked", "restricted"] {
        let sandbox = Sandbox::new();
        if preset != "default" && !has_worlds(&sandbox, test) {
            return;
        }
        let project = sandbox.project();
        std::fs::create_dir(project.join("secrets")).unwrap();
        for name in [".env", "secrets/key", "plain"] {
            std::fs::write(project.join(name), format!("content of {name}")).unwrap();
        }
        let output = sandbox.run(["--policy", preset, "-c", "ls > list"]);
        let kept = contents(&sandbox);
        if preset == "default" {
            assert!(
                kept.iter().any(|text| text == "content of plain"),
                "{}",
                out(&output)
            );
        }
        for text in ["content of .env", "content of secrets/key"] {
            assert!(!kept.iter().any(|kept| kept == text), "{preset}: {text}");
        }
    }
    let sandbox = Sandbox::with_policy("mode: observe\nprivacy: { ignore_paths: [] }\n");
    for name in [".env", "plain"] {
        std::fs::write(sandbox.project().join(name), format!("content of {name}")).unwrap();
    }
    sandbox.run(["-c", "true > one"]);
    assert!(contents(&sandbox).contains(&"content of .env".to_owned()));
    sandbox.policy("test", "id: test\nname: Test\nmode: observe\n");
    std::fs::remove_file(sandbox.project().join(".env")).unwrap();
    sandbox.run(["-c", "true > two"]);
    let output = sandbox.run(["trace", "prune", "--private"]);
    let screen = out(&output);
    assert!(output.status.success(), "{screen}");
    let kept = contents(&sandbox);
    assert!(!kept.contains(&"content of .env".to_owned()), "{screen}");
    assert!(kept.contains(&"content of plain".to_owned()), "{screen}");
}

/// What the snapshots of a home hold.
fn contents(sandbox: &Sandbox) -> Vec<String> {
    let directories = std::fs::read_dir(sandbox.home().join("snapshots/objects"));
    let directories = directories.into_iter().flatten().flatten();
    let files = directories.flat_map(|directory| std::fs::read_dir(directory.path()).unwrap());
    files
        .map(|file| {
            String::from_utf8_lossy(&std::fs::read(file.unwrap().path()).unwrap()).into_owned()
        })
        .collect()
}

#[test]
fn the_hint_about_what_is_held_names_a_command_that_works() {
    let test = "the_hint_about_what_is_held_names_a_command_that_works";
    let sandbox = Sandbox::with_policy("mode: observe\nfs: { write: [\"$PROJECT/**\"] }\n");
    if !has_worlds(&sandbox, test) {
        return;
    }
    let outside = sandbox.project().parent().unwrap().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let write = format!("--write={}", outside.display());
    let line = format!("echo x > {}/file", outside.display());
    let output = sandbox.run(["run", "--isolated", &write, "--", "sh", "-c", &line]);
    let text = out(&output);
    let hint = text
        .split('`')
        .find(|part| part.starts_with("substrate world apply"))
        .unwrap_or_else(|| panic!("{text}"));
    assert!(hint.contains("--held"), "{text}");
    let words: Vec<&str> = hint.split(' ').skip(1).collect();
    let applied = sandbox.run(&words);
    assert!(applied.status.success(), "{}", out(&applied));
    assert!(outside.join("file").exists());
}

fn at_the_prompt(sandbox: &Sandbox, rc: &str) -> crate::person::Person {
    std::fs::write(sandbox.project().join("rc"), rc).unwrap();
    let mut command = sandbox.substrate();
    command
        .args(["--rcfile", "rc", "-i"])
        .env("TERM", "xterm")
        .env("NO_COLOR", "1");
    let mut person = crate::person::Person::start(command);
    person.sees("ready> ");
    person
}

#[test]
fn a_command_of_several_rows_is_asked_for_and_kept_as_in_bash() {
    let sandbox = Sandbox::new();
    let file = sandbox.project().join("kept");
    let rc = format!(
        "PS1='ready> '\nPS2='more-$((1+1))> '\nHISTFILE={}\nHISTSIZE=100\nset -o history\n",
        file.display()
    );
    let mut person = at_the_prompt(&sandbox, &rc);
    person.types("for i in 1 2; do\r");
    person.sees("more-2> ");
    person.types("echo row-$i\r");
    person.sees("more-2> ");
    person.types("done | tac\r");
    person.sees("row-2");
    person.sees("row-1");
    person.sees("ready> ");
    // An interrupt gives up all of it.
    person.types("echo 'a\r");
    person.sees("more-2> ");
    person.types("\x03");
    person.sees("ready> ");
    person.types("echo 'b\r");
    person.sees("more-2> ");
    person.types("c'; shopt -s lithist\r");
    person.sees("ready> ");
    person.types("if true; then\r");
    person.sees("more-2> ");
    person.types("echo kept-$((2+2)); fi\r");
    person.sees("kept-4");
    person.sees("ready> ");
    person.types("exit\r");
    assert_eq!(person.end().0, 0);
    let kept = std::fs::read_to_string(file).unwrap();
    assert!(
        kept.contains("for i in 1 2; do echo row-$i; done | tac\n"),
        "{kept}"
    );
    assert!(kept.contains("echo 'b\nc'; shopt -s lithist\n"), "{kept}");
    assert!(
        kept.contains("if true; then\necho kept-$((2+2)); fi\n"),
        "{kept}"
    );
}

#[test]
fn a_directory_alone_is_gone_to_where_the_shell_is_told_so() {
    let sandbox = Sandbox::new();
    for name in ["plain", "my docs", "true"] {
        std::fs::create_dir(sandbox.project().join(name)).unwrap();
    }
    let mut person = at_the_prompt(&sandbox, "PS1='ready> '\n");
    person.types("plain\r");
    person.sees("plain: command not found");
    person.types("shopt -s autocd\r");
    person.sees("ready> ");
    person.types("plain\r");
    person.sees("cd -- plain");
    person.types("echo at-${PWD##*/}\r");
    person.sees("at-plain");
    person.types("../my\\ docs\r");
    person.sees("cd -- ../my\\ docs");
    person.types("..\r");
    person.sees("cd -- ..");
    person.types("true && echo now-${PWD##*/}\r");
    person.sees("now-project");
    // What is a command is one.
    person.types("true\r");
    person.types("echo still-${PWD##*/}\r");
    person.sees("still-project");
    person.types("exit\r");
    assert_eq!(person.end().0, 0);
    let lines: Vec<_> = sandbox
        .events("command_complete")
        .iter()
        .map(|event| event["cmd"].clone())
        .collect();
    assert!(lines.contains(&"cd -- plain".into()), "{lines:?}");
}

#[test]
fn the_prompt_says_that_it_is_substrates_unless_it_shall_not() {
    let sandbox = Sandbox::new();
    let mut person = at_the_prompt(&sandbox, "PS1='first\\nready> '\n");
    person.types("echo one\r");
    person.sees("[default] ready> ");
    person.types("SUBSTRATE_PROMPT_SIGN=off\r");
    person.types("echo here-$((1+1))\r");
    person.sees("here-2\r\n");
    person.sees("ready> ");
    let text = person.text();
    assert!(
        !text[text.rfind("here-2").unwrap()..].contains("[default]"),
        "{text}"
    );
    person.types("exit\r");
    assert_eq!(person.end().0, 0);
}

#[test]
fn refusals_are_data_for_programs_that_ask() {
    let sandbox = Sandbox::new();
    let told = |text: &[u8]| -> serde_json::Value { serde_json::from_slice(text).unwrap() };
    for arguments in [
        &[
            "--json-errors",
            "--policy",
            "restricted",
            "-c",
            "true; sudo id",
        ][..],
        &[
            "--json-errors",
            "--policy",
            "restricted",
            "run",
            "--",
            "sudo",
            "id",
        ],
        &[
            "run",
            "--json-errors",
            "--policy",
            "restricted",
            "--",
            "sudo",
            "id",
        ],
    ] {
        let output = sandbox.run(arguments);
        assert_eq!(output.status.code(), Some(126));
        let error = told(&output.stderr);
        assert_eq!(error["verdict"], "deny", "{error}");
        assert_eq!(error["rule"], "sudo *", "{error}");
        assert_eq!(error["list"], "commands.denied", "{error}");
        assert_eq!(error["file"], "builtin:default.yaml", "{error}");
        assert!(error["line"].as_u64().unwrap() > 0, "{error}");
        assert!(!error["reason"].as_str().unwrap().is_empty(), "{error}");
        assert!(
            error["hint"].as_str().unwrap().contains("policy explain"),
            "{error}"
        );
    }
    // On a descriptor of one's own, beside the sentence.
    let line = format!(
        "{} --policy restricted -c 'sudo id' 5>errors; {} --policy restricted -c 'sudo id' 5>&-",
        env!("CARGO_BIN_EXE_substrate"),
        env!("CARGO_BIN_EXE_substrate")
    );
    let mut shell = std::process::Command::new("sh");
    sandbox.prepare(&mut shell);
    let output = shell
        .env("SUBSTRATE_JSON_ERRORS", "5")
        .args(["-c", &line])
        .output()
        .unwrap();
    let said = out(&output);
    assert_eq!(said.matches("denied by policy").count(), 2, "{said}");
    let errors = std::fs::read(sandbox.project().join("errors")).unwrap();
    assert_eq!(told(&errors)["rule"], "sudo *");
}

#[test]
fn a_held_prompt_leaves_no_history_behind_as_a_result() {
    let sandbox = Sandbox::new();
    if !has_worlds(
        &sandbox,
        "a_held_prompt_leaves_no_history_behind_as_a_result",
    ) {
        return;
    }
    std::fs::write(sandbox.project().join("rc"), "PS1='ready> '\n").unwrap();
    let mut command = sandbox.substrate();
    command
        .args(["--policy", "restricted", "--rcfile", "rc", "-i"])
        .env("TERM", "xterm");
    let mut person = crate::person::Person::start(command);
    person.sees("ready> ");
    person.types("echo typed-$((1+1))\r");
    person.sees("typed-2");
    person.types("exit\r");
    let (status, screen) = person.end();
    assert_eq!(status, 0);
    assert!(!screen.contains("held back"), "{screen}");
    let waiting = out(&sandbox.run(["world", "status"]));
    assert!(!waiting.contains("waiting"), "{waiting}");
    let home = sandbox.project().join("..");
    let kept = std::fs::read_to_string(home.join(".bash_history")).unwrap();
    assert!(kept.contains("echo typed-$((1+1))\n"), "{kept}");
}

#[test]
fn what_runs_is_listed_and_can_be_ended() {
    let sandbox = Sandbox::new();
    assert_eq!(
        out(&sandbox.run(["ps"])),
        "nothing runs under Substrate now\n"
    );
    let mut places = vec![&["-c", "sleep 71.5 & trap '' TERM; sleep 71.5; sleep 71.5"][..]];
    if has_worlds(&sandbox, "what_runs_is_listed_and_can_be_ended") {
        places.push(&["run", "--isolated", "--", "sleep", "71.5"]);
    }
    for arguments in places {
        let mut child = sandbox
            .substrate()
            .args(arguments)
            .env("SUBSTRATE_AGENT_ID", "bot")
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let row = loop {
            let rows = out(&sandbox.run(["ps", "--json"]));
            let rows: serde_json::Value = serde_json::from_str(&rows).unwrap();
            if let Some(row) = rows.get(0) {
                break row.clone();
            }
            assert!(begun.elapsed() < Duration::from_secs(20));
        };
        assert_eq!(row["agent_id"], "bot");
        assert!(row["cmd"].as_str().unwrap().contains("sleep 71.5"), "{row}");
        let shown = out(&sandbox.run(["ps"]));
        assert!(
            shown.contains("sleep 71.5") && shown.contains("bot"),
            "{shown}"
        );
        std::thread::sleep(Duration::from_millis(300));
        let span = row["span_id"].as_str().unwrap();
        let stopped = sandbox.run(["stop", &span[span.len() - 12..]]);
        assert!(stopped.status.success(), "{}", out(&stopped));
        assert!(out(&stopped).starts_with("stopped "), "{}", out(&stopped));
        assert!(begun.elapsed() < Duration::from_secs(40));
        child.wait().unwrap();
        let left = std::process::Command::new("pgrep")
            .args(["-f", "^sleep 71.5$"])
            .output();
        assert!(
            left.is_ok_and(|left| left.stdout.is_empty()),
            "nothing is left"
        );
        assert_eq!(
            out(&sandbox.run(["ps"])),
            "nothing runs under Substrate now\n"
        );
    }
    assert_eq!(sandbox.run(["stop", "nothing"]).status.code(), Some(1));
    // Inside a session nobody ends what others run.
    let inner = format!("{} stop --all", env!("CARGO_BIN_EXE_substrate"));
    let output = sandbox.run(["-c", &inner]);
    assert!(
        out(&output).contains("nothing was changed"),
        "{}",
        out(&output)
    );
}

#[test]
fn a_command_that_was_killed_does_not_run_for_ever() {
    let sandbox = Sandbox::new();
    let mut child = sandbox
        .substrate()
        .args(["-c", "sleep 72.5; true"])
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while sandbox.events("command_start").is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20));
    }
    assert!(out(&sandbox.run(["trace", "list"])).contains(" running "));
    child.kill().unwrap();
    child.wait().unwrap();
    let shown = out(&sandbox.run(["trace", "list"]));
    assert!(
        shown.contains(" ended ") && !shown.contains(" running "),
        "{shown}"
    );
}

#[test]
fn shims_stay_first_whatever_changes_the_path() {
    let sandbox = Sandbox::new();
    assert!(sandbox.run(["shim", "install", "git"]).status.success());
    let shims = sandbox.home().join("shims");
    let substrate = std::path::Path::new(env!("CARGO_BIN_EXE_substrate"));
    let project = sandbox.project();
    // As `activate` of a virtual environment does it.
    std::fs::write(
        project.join("activate"),
        "PATH=/venv/bin:$PATH; export PATH\n",
    )
    .unwrap();
    std::fs::write(
        project.join("activate.fish"),
        "set -gx PATH /venv/bin $PATH\n",
    )
    .unwrap();
    let cases = [
        (
            "bash",
            "--rcfile",
            "rc",
            "eval \"$(substrate shim init bash)\"\nPS1='ready> '\nPROMPT_COMMAND='true own'\neval \"$(substrate shim init bash)\"\n",
            ". ./activate",
            "echo \"first-${PATH%%:*} status-$?\"",
            "false",
        ),
        (
            "zsh",
            "-d",
            "-i",
            "eval \"$(substrate shim init zsh)\"\nPS1='ready> '\n",
            ". ./activate",
            "echo \"first-${PATH%%:*} status-$?\"",
            "false",
        ),
        (
            "fish",
            "-i",
            "-C",
            "source rc.fish",
            "source activate.fish",
            "echo \"first-$PATH[1]\"",
            "true",
        ),
    ];
    for (shell, first, second, rc, activate, show, fails) in cases {
        let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
            .any(|directory| directory.join(shell).exists());
        if !found {
            skip(
                "shims_stay_first_whatever_changes_the_path",
                &format!("there is no {shell}"),
            );
            continue;
        }
        let mut command = std::process::Command::new(shell);
        sandbox.prepare(&mut command);
        let path = format!(
            "{}:{}",
            substrate.parent().unwrap().display(),
            std::env::var("PATH").unwrap()
        );
        command
            .env("PATH", path)
            .env("TERM", "dumb")
            .env("ZDOTDIR", &project);
        match shell {
            "fish" => {
                let text = "substrate shim init fish | source\nfunction fish_prompt; echo 'ready> '; end\n";
                std::fs::write(project.join("rc.fish"), text).unwrap();
            }
            _ => {
                std::fs::write(project.join("rc"), rc).unwrap();
                std::fs::write(project.join(".zshrc"), rc).unwrap();
            }
        }
        command.arg(first).arg(second);
        match shell {
            "bash" => command.args(["-i"]),
            "fish" => command.arg(rc),
            _ => &mut command,
        };
        let mut person = crate::person::Person::start(command);
        person.sees("ready> ");
        person.types(&format!("{activate}\r"));
        person.sees("ready> ");
        person.types(&format!("{fails}; {show}\r"));
        person.sees(&format!("first-{}", shims.display()));
        person.types("exit\r");
        let (_, screen) = person.end();
        assert!(!screen.contains("first-/venv/bin"), "{shell}: {screen}");
        if shell != "fish" {
            assert!(screen.contains("status-1"), "{shell}: {screen}");
        }
    }
}

#[test]
fn our_own_commands_say_where_they_work_in_a_held_session() {
    use std::os::unix::process::CommandExt;
    if substrate_sys::identity::user_id() != 0 {
        let test = "our_own_commands_say_where_they_work_in_a_held_session";
        return skip(test, "only root can be somebody who may not read");
    }
    // As in a world: the policy in use is there and cannot be read.
    let place = tempfile::tempdir().unwrap();
    let (binary, home) = (place.path().join("substrate"), place.path().join("home"));
    std::fs::copy(env!("CARGO_BIN_EXE_substrate"), &binary).unwrap();
    std::fs::create_dir_all(home.join("policies")).unwrap();
    std::fs::write(home.join("clients.json"), "{}\n").unwrap();
    std::fs::write(home.join("active"), "mine\n").unwrap();
    let mine = home.join("policies/mine.yaml");
    std::fs::write(&mine, "id: mine\nname: Mine\n").unwrap();
    std::fs::set_permissions(&mine, std::fs::Permissions::from_mode(0o600)).unwrap();
    let open = home.join("policies/open.yaml");
    std::fs::write(&open, "id: open\nname: Open\n").unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    for path in [&home, &home.join("policies"), &open, &home.join("active")] {
        std::os::unix::fs::chown(path, Some(48_123), Some(48_123)).unwrap();
    }
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&binary);
        command
            .args(arguments)
            .current_dir("/")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("SUBSTRATE_HOME", &home)
            .uid(48_123)
            .gid(48_123);
        out(&command.output().unwrap())
    };
    let outside = run(&["allowed"]);
    assert!(
        outside.contains("mine.yaml: Permission denied"),
        "{outside}"
    );
    assert!(!outside.contains("whole line"), "{outside}");
    let line = format!("{} allowed | cat", binary.display());
    let inside = run(&["--policy", "open", "-c", &line]);
    assert!(
        inside.contains("as a whole line at the session's prompt"),
        "{inside}"
    );
}

#[test]
fn shims_tell_refusals_as_data_too() {
    let sandbox = Sandbox::with_policy(
        "mode: enforce\nworld: { enabled: off }\ncommands: { denied: [\"git push *\"] }\n",
    );
    assert!(sandbox.run(["shim", "install", "git"]).status.success());
    let mut shim = std::process::Command::new(sandbox.home().join("shims/git"));
    sandbox.prepare(&mut shim);
    let output = shim
        .args(["push", "origin"])
        .env("SUBSTRATE_JSON_ERRORS", "2")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(126), "{}", out(&output));
    let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(error["rule"], "git push *", "{error}");
    assert_eq!(error["list"], "commands.denied", "{error}");
}
