//! People and approvals: every prompt on a real terminal, and everything by which the guarded side
//! might try to answer for a person.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::process::Command;

use crate::common::{Sandbox, script, skip};
use crate::person::Person;

/// The key that moves up.
const UP: &str = "\x1b[A";

const ASKS: &str = "mode: enforce\nworld: { enabled: off }\nfs: { outside: allow }\nnet: { unlisted: allow }\ncommands: { ask: [{ pattern: \"touch *\", reason: \"files are made with care\" }] }\n";

fn asked(sandbox: &Sandbox, arguments: &[&str]) -> Person {
    let mut command = sandbox.substrate();
    command.args(arguments).env("TERM", "xterm");
    Person::start(command)
}

fn exists(sandbox: &Sandbox, name: &str) -> bool {
    sandbox.project().join(name).exists()
}

fn grants(sandbox: &Sandbox) -> serde_json::Value {
    let output = sandbox.run(["approvals", "list", "--json"]);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn what_a_terminal_says_by_itself_answers_no_question() {
    let sandbox = Sandbox::with_policy(ASKS);
    for said in [
        "\x1b]99;i=j:p=?;\x1b\\\x1bP1$r2 q\x1b\\",
        "\x1b]52;c;akFBQQ==\x07\x1bP>|tmux 3.3a\x1b\\",
        "j \x1b[M !!\x1bOA",
    ] {
        let mut person = asked(&sandbox, &["-c", "touch a"]);
        person.sees("> Deny");
        person.types(said);
        std::thread::sleep(std::time::Duration::from_millis(200));
        person.types("\r");
        let (status, text) = person.end();
        assert_eq!(status, 126, "{text}");
        assert!(!exists(&sandbox, "a"), "{text}");
    }
}

#[test]
fn the_four_answers() {
    let sandbox = Sandbox::with_policy(ASKS);
    // Enter alone is no.
    let mut person = asked(&sandbox, &["-c", "touch a"]);
    person.sees("Command Approval Request");
    person.sees("Command: touch a");
    person.sees("files are made with care");
    person.sees("Would be remembered: commands like `touch a`");
    for choice in ["Allow once", "Allow for session", "Allow always", "> Deny"] {
        person.sees(choice);
    }
    person.types("\r");
    let (status, text) = person.end();
    assert_eq!(status, 126, "{text}");
    assert!(text.contains("User denied approval"), "{text}");
    assert!(!exists(&sandbox, "a"));

    // Once is once.
    for _ in 0..2 {
        let mut person = asked(&sandbox, &["-c", "touch a"]);
        person.sees("> Deny");
        person.types(&format!("{UP}{UP}{UP}\r"));
        assert_eq!(person.end().0, 0);
    }
    assert!(exists(&sandbox, "a"));

    // Always is shown, can be widened, and must still cover what was asked.
    let mut person = asked(&sandbox, &["-c", "touch b"]);
    person.sees("> Deny");
    person.types(&format!("{UP}\r"));
    person.sees("Remember commands like");
    person.types("x\r");
    person.sees("does not cover");
    person.sees("Remember commands like");
    person.types(&format!("{}*\r", "\x7f".repeat(2)));
    let (status, text) = person.end();
    assert_eq!(status, 0, "{text}");
    assert!(sandbox.run(["-c", "touch c"]).status.success());
    assert_eq!(grants(&sandbox)[0]["pattern"], "touch *");

    // For the session: of this terminal, and of nobody else.
    let id = grants(&sandbox)[0]["id"].as_str().unwrap().to_owned();
    let mut person = asked(&sandbox, &["approvals", "revoke", &id]);
    person.sees("revoked");
    assert_eq!(person.end().0, 0);
    let mut person = asked(&sandbox, &["-c", "touch d"]);
    person.sees("> Deny");
    person.types(&format!("{UP}{UP}\r"));
    person.sees("Remember commands like");
    person.types("\r");
    assert_eq!(person.end().0, 0);
    assert_eq!(sandbox.run(["-c", "touch d"]).status.code(), Some(126));

    let outcomes: Vec<String> = sandbox
        .events("approval")
        .iter()
        .map(|event| {
            format!(
                "{} {}",
                event["outcome"].as_str().unwrap(),
                event["remembered"]
            )
        })
        .collect();
    assert_eq!(
        outcomes,
        [
            "refused false",
            "once false",
            "once false",
            "always false",
            "always true",
            "session false",
            "nobody false"
        ]
    );
}

#[test]
fn what_was_typed_before_the_question_is_no_answer() {
    let sandbox = Sandbox::with_policy(ASKS);
    let mut person = asked(&sandbox, &["-c", "touch a"]);
    person.types(&format!("{UP}{UP}{UP}\r"));
    person.sees("> Deny");
    person.types("\r");
    assert_eq!(person.end().0, 126);
    assert!(!exists(&sandbox, "a"));
}

#[test]
fn an_interrupt_is_a_no_and_nothing_hides_on_the_screen() {
    let sandbox = Sandbox::with_policy(ASKS);
    let line = format!(
        "touch a \u{202e}b\x1b[2K g\u{0456}t {}END",
        "x".repeat(9000)
    );
    let mut person = asked(&sandbox, &["-c", &line]);
    person.sees("a \\u{202e}b\\u{1b}[2K");
    person.sees("characters are not shown here");
    person.sees("U+0456");
    person.sees("> Deny");
    person.types("\x03");
    let (status, text) = person.end();
    assert_eq!(status, 126, "{text}");
    assert!(text.contains("User denied approval"), "{text}");
}

#[test]
fn a_plain_terminal_asks_in_lines() {
    let sandbox = Sandbox::with_policy(ASKS);
    for answer in ["\n", "9\n", "yes\n"] {
        let mut person = in_lines(&sandbox);
        person.types(answer);
        let (ended, text) = person.end();
        assert_eq!(ended, 126, "{answer:?}: {text}");
    }
    for (confirmed, status) in [(true, 0), (false, 126)] {
        let mut person = in_lines(&sandbox);
        person.types("1\n");
        match confirmed {
            true => person.confirms(),
            false => person.types("1\n"),
        }
        let (ended, text) = person.end();
        assert_eq!(ended, status, "{text}");
    }
}

fn in_lines(sandbox: &Sandbox) -> Person {
    let mut command = sandbox.substrate();
    command.args(["-c", "touch a"]);
    let mut person = Person::start(command);
    person.sees("4) Deny");
    person.sees("Choice");
    person
}

/// Where a terminal does not say where its cursor is, nobody knows which of its bytes are keys.
#[test]
fn a_mute_terminal_is_asked_for_a_word() {
    let sandbox = Sandbox::with_policy(ASKS);
    let mute = || {
        let mut command = sandbox.substrate();
        command.args(["-c", "touch a"]).env("TERM", "xterm");
        let mut person = Person::at_a_mute_terminal(command);
        person.sees("4) Deny");
        person.sees("Choice");
        person
    };
    // Keys that would have chosen, and replies that would have ended the wait.
    for said in ["\x1b[A\x1b[A\x1b[A\r", "\x1b[0n\x1b[1;1R\r", "1\r1\r"] {
        let mut person = mute();
        person.types(said);
        let (status, text) = person.end();
        assert_eq!(status, 126, "{text}");
    }
    assert!(!exists(&sandbox, "a"));
    let mut person = mute();
    person.types("1\r");
    person.confirms();
    assert_eq!(person.end().0, 0);
    assert!(exists(&sandbox, "a"));
    // Where an answer is a line, too.
    std::fs::write(sandbox.project().join(".substrate-profile"), "test\n").unwrap();
    for confirmed in [false, true] {
        let mut command = sandbox.substrate();
        command.args(["profile", "trust"]).env("TERM", "xterm");
        let mut person = Person::at_a_mute_terminal(command);
        person.sees("Trust it?");
        person.types("y\r");
        match confirmed {
            true => person.confirms(),
            false => person.types("y\r"),
        }
        let (status, text) = person.end();
        assert_eq!(status == 0, confirmed, "{text}");
    }
}

#[test]
fn what_programs_asked_the_terminal_before_does_not_open_the_question() {
    let sandbox = Sandbox::with_policy(ASKS);
    // Their answers come all at once, however many, before those to our own questions.
    let many: String = (1..=24)
        .flat_map(|row| (1..=80).map(move |column| format!("\x1b[{row};{column}R")))
        .collect();
    let mut command = sandbox.substrate();
    command.args(["-c", "touch a"]).env("TERM", "xterm");
    let mut person = Person::at_a_mute_terminal(command);
    person.sees("Directory:");
    person.types(&many);
    person.sees("Choice");
    person.types("\r");
    assert_eq!(person.end().0, 126);
}

#[test]
fn what_is_pasted_moves_and_chooses_nothing() {
    let sandbox = Sandbox::with_policy(ASKS);
    let mut person = asked(&sandbox, &["-c", "touch a"]);
    person.sees("> Deny");
    person.types(&format!("\x1b[200~{UP}{UP}{UP}\r\x1b[201~"));
    std::thread::sleep(std::time::Duration::from_millis(200));
    person.types("\r");
    let (status, text) = person.end();
    assert_eq!(status, 126, "{text}");
    assert!(!exists(&sandbox, "a"), "{text}");
}

#[test]
fn without_a_person_the_answer_names_the_command_that_would_approve() {
    let sandbox = Sandbox::with_policy(ASKS);
    let output = sandbox.run(["-c", "touch 'a b'"]);
    assert_eq!(output.status.code(), Some(126));
    let text = String::from_utf8(output.stderr).unwrap();
    let (_, command) = text.trim_end().split_once("a person can run: ").unwrap();
    // Typed as it stands, in a shell of the person's own.
    let bin = std::path::Path::new(env!("CARGO_BIN_EXE_substrate"));
    let mut shell = Command::new("/bin/sh");
    sandbox.prepare(&mut shell);
    let path = format!(
        "{}:{}",
        bin.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    shell
        .args(["-c", command])
        .env("PATH", path)
        .env("TERM", "xterm");
    shell.current_dir("/");
    let mut person = Person::start(shell);
    person.sees("Allow it?");
    person.types("y\r");
    let (status, text) = person.end();
    assert_eq!(status, 0, "{text}");
    assert!(sandbox.run(["-c", "touch 'a b'"]).status.success());
    assert!(exists(&sandbox, "a b"));
}

#[test]
fn a_policy_can_forbid_questions_and_the_flag_can_demand_them() {
    let sandbox = Sandbox::with_policy(&format!("{ASKS}approval: {{ interactive: false }}\n"));
    let (status, text) = asked(&sandbox, &["-c", "touch a"]).end();
    assert_eq!(status, 126, "{text}");
    assert!(text.contains("approval.interactive: false"), "{text}");

    let sandbox = Sandbox::with_policy(
        "mode: observe\nworld: { enabled: off }\napproval: { auto_approve: [\"true\"] }\n",
    );
    let mut person = asked(&sandbox, &["--require-approval", "-c", "ls"]);
    person.sees("> Deny");
    person.types("\r");
    assert_eq!(person.end().0, 126);
    assert_eq!(
        asked(&sandbox, &["--require-approval", "-c", "/bin/true"])
            .end()
            .0,
        0
    );
}

/// What the guarded side tries: each is a shell line with `$SUB` for the binary; all of them answer yes.
const ATTACKS: [(&str, &str); 7] = [
    ("plainly", "$SUB approvals grant -- 'touch owned'"),
    (
        "nested",
        "$SUB --policy seen -c \"$SUB approvals grant -- 'touch owned'\"",
    ),
    (
        "a pty by script",
        "(sleep 1; echo y) | script -qec \"$SUB approvals grant -- 'touch owned'\" /dev/null",
    ),
    ("a pty by python", "python3 \"$TRY\" pty"),
    (
        "a clean environment",
        "env -i PATH=\"$PATH\" python3 \"$TRY\" pty",
    ),
    ("setsid", "setsid -w python3 \"$TRY\" pty"),
    (
        "a double fork that lost its parent",
        "python3 \"$TRY\" orphan",
    ),
];

const TRY: &str = r#"
import os, pty, sys, time, select
sub = os.environ.get("SUB") or open(os.path.dirname(sys.argv[0]) + "/sub").read().strip()
home = open(os.path.dirname(sys.argv[0]) + "/home").read().strip()
def attempt():
    pid, fd = pty.fork()
    if pid == 0:
        env = {"SUBSTRATE_HOME": home, "TERM": "xterm", "PATH": os.environ["PATH"]}
        os.execve(sub, [sub, "approvals", "grant", "--", "touch owned"], env)
    said, end = b"", time.time() + 20
    while time.time() < end:
        if select.select([fd], [], [], 0.2)[0]:
            try:
                got = os.read(fd, 4096)
            except OSError:
                break
            if not got:
                break
            said += got
            if b"Allow it?" in said:
                os.write(fd, b"y")
    os.waitpid(pid, 0)
    with open(os.path.dirname(sys.argv[0]) + "/said", "wb") as out:
        out.write(said)
if sys.argv[1] == "pty":
    attempt()
else:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.environ.pop("SUBSTRATE_PARENT_SPAN", None)
            for _ in range(100):
                if os.getppid() == 1:
                    break
                time.sleep(0.05)
            attempt()
            open(os.path.dirname(sys.argv[0]) + "/done", "w").close()
        os._exit(0)
    os.wait()
    end = time.time() + 40
    while time.time() < end and not os.path.exists(os.path.dirname(sys.argv[0]) + "/done"):
        time.sleep(0.1)
"#;

#[test]
fn nobody_below_a_session_approves_for_himself() {
    if Command::new("python3").arg("-V").output().is_err() {
        return skip(
            "nobody_below_a_session_approves_for_himself",
            "there is no python3",
        );
    }
    let sandbox = Sandbox::with_policy(ASKS);
    // The session itself only observes, so that nothing but the kernel's word stands in the way.
    sandbox.policy(
        "seen",
        "id: seen\nname: Seen\nmode: observe\nworld: { enabled: off }\n",
    );
    let tools = sandbox.project().join("tools");
    std::fs::create_dir(&tools).unwrap();
    let (sub, home) = (env!("CARGO_BIN_EXE_substrate"), sandbox.home());
    std::fs::write(tools.join("try.py"), TRY).unwrap();
    std::fs::write(tools.join("sub"), sub).unwrap();
    std::fs::write(tools.join("home"), home.to_str().unwrap()).unwrap();
    for (name, line) in ATTACKS {
        for left in ["said", "done"] {
            let _ = std::fs::remove_file(tools.join(left));
        }
        let mut command = sandbox.substrate();
        command
            .args(["--policy", "seen", "-c", line])
            .env("SUB", sub)
            .env("TRY", tools.join("try.py"))
            .env("TERM", "xterm");
        // On a terminal, so that there is one to be misused.
        let (_, text) = Person::start(command).end();
        let said = std::fs::read_to_string(tools.join("said")).unwrap_or_default();
        assert!(
            format!("{text}{said}").contains("a Substrate session encloses this process"),
            "{name}: {text}\n{said}"
        );
        assert_eq!(grants(&sandbox), serde_json::json!([]), "{name}");
    }
    for line in [
        "$SUB profile trust",
        "$SUB policy use seen --yes",
        "$SUB policy init other --yes",
        "$SUB init --yes",
        "$SUB uninstall --yes",
    ] {
        let mut command = sandbox.substrate();
        command
            .args(["--policy", "seen", "-c", line])
            .env("SUB", sub);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            text.contains("nothing was changed: a Substrate session encloses"),
            "{line}: {text}"
        );
    }
    // A file that was written past Substrate is not believed.
    let forged = "printf '{\"v\":1,\"entries\":[],\"digest\":\"\"}' > \"$SUBSTRATE_HOME/approvals.json\"; chmod 600 \"$SUBSTRATE_HOME/approvals.json\"";
    assert!(
        sandbox
            .run(["--policy", "seen", "-c", forged])
            .status
            .success()
    );
    let output = sandbox.run(["-c", "touch owned"]);
    assert_eq!(output.status.code(), Some(126));
    assert!(String::from_utf8_lossy(&output.stderr).contains("did not write it"));
    assert!(!exists(&sandbox, "owned"));
}

#[test]
fn keys_that_a_program_types_are_no_answer() {
    let sysctl = std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").unwrap_or_default();
    if sysctl.trim() == "0" || Command::new("python3").arg("-V").output().is_err() {
        return skip(
            "keys_that_a_program_types_are_no_answer",
            "the kernel forbids TIOCSTI, or there is no python3",
        );
    }
    let sandbox = Sandbox::with_policy(ASKS);
    let inject = sandbox.project().join("inject");
    script(
        &inject,
        "#!/usr/bin/env python3\nimport fcntl, termios, time\ntime.sleep(1)\nfor _ in range(20):\n    for key in b'\\x1b[A\\x1b[A\\x1b[A\\r':\n        fcntl.ioctl(0, termios.TIOCSTI, bytes([key]))\n    time.sleep(0.3)\n",
    );
    let mut shell = Command::new("/bin/sh");
    sandbox.prepare(&mut shell);
    shell
        .args([
            "-c",
            "./inject </dev/tty & exec \"$SUB\" -c 'touch injected'",
        ])
        .env("SUB", env!("CARGO_BIN_EXE_substrate"))
        .env("TERM", "xterm");
    let (status, text) = Person::start(shell).end();
    assert_eq!(status, 126, "{text}");
    assert!(text.contains("Other programs could type here"), "{text}");
    assert!(!exists(&sandbox, "injected"));
}

/// The shell at its prompt.
fn at_the_prompt(sandbox: &Sandbox) -> Person {
    let mut command = sandbox.substrate();
    command
        .args(["-i", "--norc", "--noprofile"])
        .env("TERM", "xterm")
        .env("PS1", "ready> ");
    let mut person = Person::start(command);
    person.types("echo up-$((1+1))\r");
    person.sees("up-2");
    person
}

#[test]
fn a_no_for_the_session_is_not_asked_again() {
    let sandbox = Sandbox::with_policy(ASKS);
    let mut person = at_the_prompt(&sandbox);
    person.types("touch a; echo end-$?\r");
    person.sees("> Deny");
    person.types("\x1b[B\r");
    person.sees("Answer: Deny for session");
    person.types("touch a; echo end-$?\r");
    person.sees("you refused this for the rest of the session");
    // Another one is asked about as ever, and a plain no holds once.
    for _ in 0..2 {
        person.types("touch b\r");
        person.sees("> Deny");
        person.types("\r");
        person.sees("User denied approval");
    }
    person.types("exit\r");
    person.end();
    assert!(!exists(&sandbox, "a") && !exists(&sandbox, "b"));
    let answers = sandbox.events("approval");
    let remembered = answers.iter().filter(|answer| answer["remembered"] == true);
    assert_eq!(remembered.count(), 1, "{answers:?}");
}

#[test]
fn the_prompt_asks_remembers_and_forgets() {
    let sandbox = Sandbox::with_policy(ASKS);
    sandbox.policy(
        "extra",
        "id: extra\nname: Extra\nmode: enforce\nworld: { enabled: off }\nfs: { outside: allow }\n",
    );
    let other = sandbox.project().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join(".substrate-profile"), "extra\n").unwrap();
    let mut person = at_the_prompt(&sandbox);
    person.types("touch a; echo end-$((1+1))\r");
    person.sees("> Deny");
    person.types(&format!("{UP}{UP}\r"));
    person.sees("Remember commands like");
    person.types("\r");
    person.sees("end-2");
    // Remembered for this session.
    person.types("touch a; echo again-$((1+1))\r");
    person.sees("again-2");
    // Another profile governs the prompt, and back: what was approved for the session has ended.
    person.types("cd other\r");
    person.types("cd ..\r");
    person.types("touch a\r");
    person.sees("> Deny");
    person.types("\r");
    person.sees("User denied approval");
    // A change of the policy counts for the next line, and is told.
    sandbox.policy(
        "test",
        &format!(
            "id: test\nname: Test\ntrace: {{ redact: [\"hunter2\"] }}\n{}",
            ASKS.replace("touch *", "date *")
        ),
    );
    person.types("touch b; echo made-$((1+1)) hunter2\r");
    person.sees("Policy reloaded");
    person.sees("made-2");
    // Also one that was told while he was looking at the prompt.
    sandbox.policy(
        "test",
        &format!(
            "id: test\nname: Test\ntrace: {{ redact: [\"hunter2\", \"swordfish\"] }}\n{}",
            ASKS.replace("touch *", "date *")
        ),
    );
    person.sees("Policy reloaded");
    person.types("echo later-$((1+1)) swordfish\r");
    person.sees("later-2");
    // What only a person may do, he may type here.
    person.types("substrate approvals grant -- date\r");
    person.sees("Allow it?");
    person.types("y\r");
    person.sees("approved ");
    person.types("date +dated-%%\r");
    person.sees("> Deny");
    person.types("\r");
    person.types("exit 7\r");
    assert_eq!(person.end().0, 7);
    assert!(exists(&sandbox, "a") && exists(&sandbox, "b"));
    assert_eq!(grants(&sandbox)[0]["pattern"], "date");
    assert!(!sandbox.events("policy_reload").is_empty());
    // So does what it takes out of the record.
    let said = format!("{:?}", sandbox.events("command_start"));
    assert!(
        said.contains("made-") && !said.contains("hunter2") && !said.contains("swordfish"),
        "{said}"
    );
}

/// A program that types into the terminal that it is started on, some seconds long.
fn injector(sandbox: &Sandbox, keys: &str) -> std::path::PathBuf {
    let path = sandbox.project().join("inject");
    script(
        &path,
        &format!(
            "#!/usr/bin/env python3\nimport fcntl, termios, time, os\nopen('injected', 'w').close()\ntty = os.open('/dev/tty', os.O_RDWR)\nfor key in b'{keys}':\n    fcntl.ioctl(tty, termios.TIOCSTI, bytes([key]))\n    time.sleep(0.02)\n"
        ),
    );
    path
}

fn cannot_type(test: &str) -> bool {
    let sysctl = std::fs::read_to_string("/proc/sys/dev/tty/legacy_tiocsti").unwrap_or_default();
    let forbidden = sysctl.trim() == "0" || Command::new("python3").arg("-V").output().is_err();
    if forbidden {
        skip(test, "the kernel forbids TIOCSTI, or there is no python3");
    }
    forbidden
}

#[test]
fn a_trap_of_the_waiting_engine_is_no_person() {
    if cannot_type("a_trap_of_the_waiting_engine_is_no_person") {
        return;
    }
    let sandbox = Sandbox::with_policy(ASKS);
    injector(&sandbox, "\\x1b[A\\x1b[A\\x1b[A\\r");
    let mut person = at_the_prompt(&sandbox);
    // Somebody who has no terminal wakes the engine while the question stands; its trap types.
    // Without job control it leaves the foreground to us, where the question is asked.
    person.types("trap 'set +m; ./inject' USR1\r");
    person.types("echo $$ > engine\r");
    person.types("touch owned\r");
    person.sees("> Deny");
    let engine = std::fs::read_to_string(sandbox.project().join("engine")).unwrap();
    let woken = Command::new("kill").args(["-USR1", engine.trim()]).status();
    assert!(woken.unwrap().success());
    person.sees("Other programs could type here");
    person.types("\r");
    person.sees("User denied approval");
    person.types("exit\r");
    person.end();
    assert!(exists(&sandbox, "injected"), "the trap has not run");
    assert!(!exists(&sandbox, "owned"));
}

#[test]
fn a_line_that_a_program_typed_at_the_prompt_changes_nothing() {
    if cannot_type("a_line_that_a_program_typed_at_the_prompt_changes_nothing") {
        return;
    }
    let sandbox = Sandbox::with_policy(ASKS);
    sandbox.policy(
        "seen",
        "id: seen\nname: Seen\nmode: observe\nworld: { enabled: off }\n",
    );
    for line in [
        "substrate policy use seen --yes",
        "substrate approvals grant -- \\'touch owned\\'",
        "substrate profile trust",
    ] {
        let _ = std::fs::remove_file(sandbox.project().join("injected"));
        std::fs::write(sandbox.project().join(".substrate-profile"), "seen\n").unwrap();
        injector(&sandbox, &format!("{line}\\r"));
        let mut person = at_the_prompt(&sandbox);
        person.types("(sleep 1; ./inject; sleep 60) &\r");
        person.sees("Other programs could type here");
        person.types("y\r");
        person.sees("nothing was changed");
        person.types("kill %1; exit\r");
        person.end();
    }
    let active = std::fs::read_to_string(sandbox.home().join("active")).unwrap();
    assert_eq!(active, "test\n");
    assert_eq!(grants(&sandbox), serde_json::json!([]));
    assert!(!sandbox.home().join("trust.json").exists());
}

/// Outside worlds a program shares the person's terminal and can stop reading wherever it likes.
#[test]
fn what_a_program_left_unread_is_no_command_of_ours() {
    let sandbox = Sandbox::with_policy(ASKS);
    sandbox.policy(
        "seen",
        "id: seen\nname: Seen\nmode: observe\nworld: { enabled: off }\n",
    );
    for term in ["xterm", "dumb"] {
        let mut command = sandbox.substrate();
        command.args(["-i", "--norc"]).env("TERM", term);
        let mut person = Person::start(command);
        person.types("stty -icanon; echo what-$((1+1)); head -c 14; stty icanon\r");
        person.sees("what-2");
        person.types("please, do not substrate policy use seen --yes\r");
        person.types("substrate policy use seen --yes\r");
        person.types("echo over-$((1+1))\r");
        person.sees("over-2");
        let active = std::fs::read_to_string(sandbox.home().join("active")).unwrap();
        assert_eq!(active, "test\n", "{}", person.text());
    }
    let mut person = at_the_prompt(&sandbox);
    person.types("substrate policy use seen --yes\r");
    person.sees("the policy in use is seen");
}
