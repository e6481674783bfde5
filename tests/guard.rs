//! What gets past the guard of an enforcing world: nothing that starts a program. Every attack runs
//! twice, as root and as an ordinary user where that can be had: without the rules it has to work,
//! with them it must not.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::Sandbox;
use crate::person::Person;

const NOBODY: u32 = 65534;
const ATTACKS: &str = include_str!("guard/attacks.txt");

const RULES: &str = "commands: { denied: [\"rm -rf *\", \"git push *\", \"forbidden *\", \"harmless danger-*\"] }\n";
const NO_RULES: &str = "commands: { denied: [\"no-such-program\"] }\n";

/// A sandbox with a policy that enforces, for this user or an ordinary one.
struct Rig {
    sandbox: Sandbox,
    user: Option<u32>,
}

impl Rig {
    fn new(rules: &str, user: Option<u32>) -> Rig {
        let policy = format!(
            "mode: enforce\nfs: {{ read: [\"/**\"], write: [\"$PROJECT/**\", \"/tmp/**\"] }}\n{rules}"
        );
        let rig = Rig {
            sandbox: Sandbox::with_policy(&policy),
            user,
        };
        fs::create_dir(rig.path("victim")).unwrap();
        fs::write(rig.path("victim/keep"), "").unwrap();
        rig
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.sandbox.project().join(name)
    }

    fn compile(&self, source: &str, program: &str) {
        self.compile_with(&["-O1", "-static", "-pthread", "-o"], source, program);
    }

    fn compile_with(&self, options: &[&str], source: &str, program: &str) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/guard")
            .join(source);
        let compiled = Command::new("gcc")
            .args(options)
            .arg(self.path(program))
            .arg(source)
            .status()
            .unwrap();
        assert!(compiled.success());
    }

    /// Everything belongs to whoever will run.
    fn hand_over(&self) {
        if let Some(user) = self.user {
            give(self.sandbox.home().parent().unwrap(), user);
        }
    }

    fn command(&self, line: &str) -> Command {
        let program = self.path("substrate");
        if !program.exists() {
            // By another process: a child that another test forks meanwhile would hold the new file
            // open for writing, and such a file cannot be run.
            let mut copy = Command::new("cp");
            copy.arg(env!("CARGO_BIN_EXE_substrate")).arg(&program);
            assert!(copy.status().unwrap().success());
        }
        self.hand_over();
        let mut command = Command::new(program);
        self.sandbox.prepare(&mut command);
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        // Names that no reading of the line can know.
        command
            .env("T", "rm")
            .env("TOUCH", "touch")
            .env("MKDIR", "mkdir")
            .args(["-c", line]);
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    fn survives(&self) -> bool {
        self.path("victim/keep").exists()
    }
}

fn give(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            if !entry.file_type().unwrap().is_symlink() {
                give(&entry.path(), user);
            }
        }
    }
}

/// Whom to be: this user, and an ordinary one when this is root.
fn users() -> Vec<Option<u32>> {
    if fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0) {
        vec![None, Some(NOBODY)]
    } else {
        vec![None]
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn has(tool: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", "command -v \"$1\"", "sh", tool])
        .stdout(Stdio::null())
        .status();
    found.is_ok_and(|status| status.success())
}

/// The outcome of every attack, by name.
fn attack(rules: &str, user: Option<u32>) -> BTreeMap<String, String> {
    let rig = Rig::new(rules, user);
    fs::create_dir(rig.path("attacks")).unwrap();
    for attack in ATTACKS.split("== ").skip(1) {
        let (name, text) = attack.split_once('\n').unwrap();
        fs::write(rig.path(&format!("attacks/{name}.sh")), text).unwrap();
    }
    fs::write(rig.path("driver.sh"), include_str!("guard/driver.sh")).unwrap();
    rig.compile("calls.c", "calls");
    let set_up = "git init -q --bare victim.git && git init -q work && \
                  git -C work -c user.name=a -c user.email=a@example.test commit -q --allow-empty -m x";
    let made = Command::new("sh")
        .args(["-c", set_up])
        .current_dir(rig.sandbox.project())
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .status()
        .unwrap();
    assert!(made.success());
    let output = rig.run("bash driver.sh");
    let text = String::from_utf8_lossy(&output.stdout);
    let outcomes = text.lines().filter_map(|line| line.split_once(' '));
    outcomes
        .map(|(name, outcome)| (name.to_owned(), outcome.to_owned()))
        .collect()
}

#[test]
fn no_way_of_starting_a_program_gets_past_the_rules() {
    for tool in ["gcc", "git", "python3"] {
        if !has(tool) {
            crate::common::skip(
                "no_way_of_starting_a_program_gets_past_the_rules",
                &format!("{tool} is missing"),
            );
            return;
        }
    }
    for user in users() {
        let without = attack(NO_RULES, user);
        let with = attack(RULES, user);
        for attack in ATTACKS.split("== ").skip(1) {
            let (name, text) = attack.split_once('\n').unwrap();
            let outcome = with.get(name).map_or("lost", String::as_str);
            if outcome == "absent" {
                crate::common::skip(&format!("guard: {name}"), "its tool is missing");
                continue;
            }
            assert!(
                outcome == "told" || outcome == "alive",
                "{name} as {user:?}: {outcome}"
            );
            if !text.contains("# control: any") {
                let control = without.get(name).map(String::as_str);
                assert_eq!(control, Some("dead"), "{name} as {user:?} attacks nothing");
            }
        }
        let told = with.values().filter(|outcome| *outcome == "told").count();
        assert!(
            told * 10 > with.len() * 8,
            "{told} of {}: {with:?}",
            with.len()
        );
    }
}

#[test]
fn what_runs_is_what_was_judged() {
    if !has("gcc") {
        crate::common::skip("what_runs_is_what_was_judged", "gcc is missing");
        return;
    }
    let run = |rules: &str, rounds: u32| {
        let rig = Rig::new(rules, None);
        rig.compile("race.c", "harmless");
        fs::hard_link(rig.path("harmless"), rig.path("forbidden")).unwrap();
        fs::copy(rig.path("harmless"), rig.path("race")).unwrap();
        let output = rig.run(&format!("./race {rounds} & ./race {rounds}; wait"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let count = |word: &str| -> u32 {
            let lines = text.lines().map(|line| {
                let mut words = line.split(' ').skip_while(|found| *found != word);
                words.nth(1).unwrap().parse::<u32>().unwrap()
            });
            lines.sum()
        };
        assert_eq!(count("rounds"), 2 * rounds, "{text} {output:?}");
        (count("fine"), count("forbidden"), count("refused"))
    };
    let (_, forbidden, _) = run(NO_RULES, 100);
    assert!(forbidden > 0, "the race is never lost, so it shows nothing");
    let (fine, forbidden, refused) = run(RULES, 5000);
    assert_eq!(forbidden, 0);
    assert!(fine > 0 && refused > 0, "{fine} fine, {refused} refused");
}

#[test]
fn what_a_person_approved_runs_in_the_environment_that_was_judged() {
    let test = "what_a_person_approved_runs_in_the_environment_that_was_judged";
    if !has("gcc") {
        return crate::common::skip(test, "gcc is missing");
    }
    let run = |rules: &str, granted: bool, rounds: u32| {
        let rig = Rig::new(rules, None);
        rig.compile("race.c", "harmless");
        fs::copy(rig.path("harmless"), rig.path("race")).unwrap();
        if granted {
            let mut command = rig.sandbox.substrate();
            command.args(["approvals", "grant", "--", "./harmless status-"]);
            let mut person = Person::start(command);
            person.sees("Allow it?");
            person.types("y\r");
            person.confirms();
            assert_eq!(person.end().0, 0);
        }
        let output = rig.run(&format!("./race {rounds} env"));
        let text = text(&output.stdout);
        let count = |word: &str| -> u32 {
            let mut words = text
                .trim_end()
                .split(' ')
                .skip_while(|found| *found != word);
            words
                .nth(1)
                .unwrap_or_else(|| panic!("{text} {output:?}"))
                .parse()
                .unwrap()
        };
        (
            count("fine"),
            count("forbidden"),
            count("refused") + count("killed"),
        )
    };
    let (_, forbidden, _) = run(NO_RULES, false, 100);
    assert!(forbidden > 0, "the race is never lost, so it shows nothing");
    let (fine, forbidden, refused) = run("commands: { ask: [\"harmless *\"] }\n", true, 3000);
    assert_eq!(forbidden, 0);
    assert!(fine > 0 && refused > 0, "{fine} fine, {refused} refused");
}

/// A program that does nothing but name the file that the kernel is to start in its place.
fn stub(starter: &str) -> Vec<u8> {
    const HEADER: u64 = 64;
    const PART: u64 = 56;
    let name = [starter.as_bytes(), b"\0"].concat();
    let code = [0xb8, 60, 0, 0, 0, 0x31, 0xff, 0x0f, 0x05];
    let (name_at, name_length) = (HEADER + 2 * PART, name.len() as u64);
    let code_at = name_at + name_length;
    let total = code_at + code.len() as u64;
    let part = |kind: u32, rights: u32, at: u64, length: u64, align: u64| {
        let numbers = [at, at, at, length, length, align];
        let head = [kind, rights].into_iter().flat_map(u32::to_le_bytes);
        head.chain(numbers.into_iter().flat_map(u64::to_le_bytes))
            .collect::<Vec<u8>>()
    };
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([3_u16, 62].into_iter().flat_map(u16::to_le_bytes));
    file.extend(1_u32.to_le_bytes());
    file.extend([code_at, HEADER, 0].into_iter().flat_map(u64::to_le_bytes));
    file.extend(0_u32.to_le_bytes());
    let sizes = [HEADER as u16, PART as u16, 2, 0, 0, 0];
    file.extend(sizes.into_iter().flat_map(u16::to_le_bytes));
    file.extend(part(3, 4, name_at, name_length, 1));
    file.extend(part(1, 5, 0, total, 4096));
    [file, name, code.to_vec()].concat()
}

#[test]
fn a_program_that_names_a_refused_one_as_its_loader_does_not_start_it() {
    const NAME: &str = "a_program_that_names_a_refused_one_as_its_loader_does_not_start_it";
    if !has("gcc") || !cfg!(target_arch = "x86_64") {
        return crate::common::skip(NAME, "gcc for x86_64 is missing");
    }
    let flip = r#"
import os, threading
def flip():
    while True:
        for to in "/lib64/ld-linux-x86-64.so.2", "forbidden":
            os.symlink(to, "new"); os.rename("new", "i")
threading.Thread(target=flip, daemon=True).start()
for _ in range(300):
    try: os.waitpid(os.posix_spawn("./innocent", ["innocent", "x"], {}), 0)
    except OSError: pass
os._exit(0)
"#;
    let ways = [
        ("forbidden", "./innocent x; true"),
        // Read-only in this world, and yet made in another.
        ("forbidden", "./.envrc x; true"),
        ("i", "ln -s forbidden i; ./innocent x; true"),
        ("i", "ln -s /bin/true i; python3 flip.py"),
    ];
    for user in users() {
        for kind in ["-static", "-static-pie"] {
            for (starter, line) in ways {
                for (rules, survives) in [(NO_RULES, false), (RULES, true)] {
                    let rig = Rig::new(rules, user);
                    let bare = [
                        "-O1",
                        "-nostdlib",
                        "-fno-stack-protector",
                        "-fPIE",
                        kind,
                        "-o",
                    ];
                    rig.compile_with(&bare, "bare.c", "forbidden");
                    crate::common::script(&rig.path("innocent"), "");
                    fs::write(rig.path("innocent"), stub(starter)).unwrap();
                    fs::copy(rig.path("innocent"), rig.path(".envrc")).unwrap();
                    fs::write(rig.path("flip.py"), flip).unwrap();
                    let output = rig.run(line);
                    // Another user may not open this pipe again, so nothing is said there.
                    let told = user.is_some() || text(&output.stderr).contains("forbidden *");
                    assert_eq!(
                        rig.survives(),
                        survives,
                        "{user:?} {kind} {line} {output:?}"
                    );
                    assert!(told || !survives, "{user:?} {kind} {line} {output:?}");
                }
            }
        }
    }
}

#[test]
fn a_loader_runs_only_what_cannot_be_replaced_meanwhile() {
    const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
    if !Path::new(LOADER).exists() {
        return crate::common::skip(
            "a_loader_runs_only_what_cannot_be_replaced_meanwhile",
            LOADER,
        );
    }
    let rig = Rig::new(RULES, None);
    fs::copy("/bin/echo", rig.path("echo")).unwrap();
    std::os::unix::fs::symlink("/bin/echo", rig.path("link")).unwrap();
    let status = |line: &str| {
        let output = rig.run(&format!("read L <<< {LOADER}; {line}"));
        (output.status.code(), text(&output.stderr))
    };
    let fine = (Some(0), String::new());
    for line in [
        "$L /bin/echo x",
        "$L --argv0 y /usr/bin/echo x",
        "ldd ./echo",
        "$L --verify ./echo",
        "$L --list ./echo",
        "LD_TRACE_LOADED_OBJECTS=1 $L ./echo",
    ] {
        assert_eq!(status(line), fine, "{line}");
    }
    for line in [
        "$L ./echo x",
        "$L ./link x",
        "$L $PWD/link x",
        "$L --argv0 --list ./echo x",
        "LD_TRACE=1 $L ./echo x",
        "cd /usr/bin; $L ./echo x",
        "cp $L own; LD_TRACE_LOADED_OBJECTS=1 ./own ./echo x",
    ] {
        let (code, said) = status(line);
        assert_eq!(code, Some(126), "{line} {said}");
        assert!(said.contains("start the program itself"), "{line} {said}");
    }
}

#[test]
fn a_dead_owner_leaves_nothing_running() {
    let rig = Rig::new(RULES, None);
    let mut owner = rig
        .command("echo started; sleep 1; while :; do $T -rf victim 2>/dev/null; touch still; sleep 0.1; done")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 8];
    std::io::Read::read_exact(owner.stdout.as_mut().unwrap(), &mut line).unwrap();
    owner.kill().unwrap();
    owner.wait().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert!(rig.survives());
    assert!(!rig.path("still").exists());
}

#[test]
fn a_refusal_names_the_rule_and_leaves_a_span_below_the_line() {
    let rig = Rig::new(RULES, None);
    let output = rig.run("sh -c '$T -rf victim'; echo $?");
    assert!(rig.survives());
    assert_eq!(output.stdout, b"126\n", "{output:?}");
    let text = rig.sandbox.normal(&output.stderr);
    assert!(
        text.starts_with(
            "🔒 denied by policy 'test' (rm -rf *, /sandbox/home/policies/test.yaml:5)"
        ),
        "{text}"
    );
    let violations = rig.sandbox.events("policy_violation");
    assert_eq!(violations.len(), 1, "{violations:?}");
    let done = rig.sandbox.events("command_complete");
    assert_eq!(done.len(), 1);
    assert_eq!(violations[0]["parent_span"], done[0]["span_id"]);
    assert_eq!(violations[0]["session_id"], done[0]["session_id"]);
    assert_eq!(violations[0]["world_id"], done[0]["world_id"]);
    assert_eq!(violations[0]["component"], "world");
    assert_eq!(violations[0]["rule"]["pattern"], "rm -rf *");
    assert_eq!(violations[0]["argv"][1], "-rf");
    assert_eq!(done[0]["enforced"]["exec"], "guard");
    assert_eq!(rig.sandbox.events("command_start").len(), 1);
}

#[test]
fn every_start_or_none_is_recorded_as_the_policy_says() {
    let line = "sh -c '/bin/true; env /bin/true'; $T -rf victim";
    let starts = |setting: &str| {
        let rig = Rig::new(&format!("{RULES}trace: {{ execs: \"{setting}\" }}\n"), None);
        rig.run(line);
        assert!(rig.survives());
        (
            rig.sandbox.events("command_start"),
            rig.sandbox.events("policy_violation").len(),
            rig.sandbox.events("command_complete").len(),
        )
    };
    let (all, refused, ended) = starts("all");
    assert_eq!(refused, 1);
    // The line, sh, true, env, and true again in env's place.
    assert_eq!(all.len(), 5, "{all:?}");
    let parent = |at: usize| &all[at]["parent_span"];
    assert_eq!(parent(1), &all[0]["span_id"]);
    assert_eq!(parent(2), &all[1]["span_id"]);
    assert_eq!(parent(3), &all[1]["span_id"]);
    assert_eq!(parent(4), &all[3]["span_id"]);
    assert_eq!(ended, 5);
    let (some, refused, ended) = starts("denied");
    assert_eq!((some.len(), refused, ended), (1, 1, 1));
    let (some, refused, ended) = starts("off");
    assert_eq!((some.len(), refused, ended), (1, 0, 1));
}

#[test]
fn refusals_of_starts_are_data_too() {
    let rig = Rig::new(RULES, None);
    let output = rig
        .command("$T -rf victim; true")
        .env("SUBSTRATE_JSON_ERRORS", "2")
        .output()
        .unwrap();
    assert!(rig.survives());
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find(|line| line.starts_with('{')).unwrap();
    let told: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!(told["verdict"], "deny", "{told}");
    assert!(
        told["rule"].is_string() && told["file"].is_string() && told["line"].is_number(),
        "{told}"
    );
    assert!(!text.contains("denied by policy"), "{text}");
}

#[test]
fn what_needs_approval_is_refused_where_nobody_is() {
    let rules = "commands: { ask: [\"touch *\"], isolated: [\"mkdir *\"], nested: deny }\n";
    let rig = Rig::new(rules, None);
    let output = rig.run("$TOUCH there; $MKDIR here");
    assert!(!rig.path("there").exists());
    assert!(!rig.path("here").exists());
    let text = rig.sandbox.normal(&output.stderr);
    assert!(text.contains("needs a person's approval"), "{text}");
    assert!(text.contains("substrate approvals grant"), "{text}");
    assert!(text.contains("run it as its own line"), "{text}");
}

/// Helpers that nobody has described are a program's own work, and no line of anybody's.
#[test]
fn a_policy_without_nested_worlds_lets_unknown_helpers_start() {
    let rules = "commands: { nested: deny }\n\
                 effects: { isolated: [\"exec:unknown\", \"run_code:inline\"] }\n";
    let rig = Rig::new(rules, None);
    std::os::unix::fs::symlink("/bin/true", rig.path("helper")).unwrap();
    let output = rig
        .command("sh -c '$HELPER && echo helped'")
        .env("HELPER", "./helper")
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"helped\n", "{output:?}");
    let output = rig
        .command("$CODE -e 'print 1'")
        .env("CODE", "perl")
        .output()
        .unwrap();
    assert!(!output.status.success(), "{output:?}");
}

#[test]
fn an_isolated_world_satisfies_what_wants_isolation() {
    let rules = "commands: { isolated: [\"mkdir *\"] }\nworld: { on_finish: discard }\n";
    let rig = Rig::new(rules, None);
    let output = rig.run("mkdir here && sh -c 'mkdir here/below && echo made'");
    assert_eq!(output.stdout, b"made\n", "{output:?}");
    assert!(!rig.path("here").exists());
}

#[test]
fn the_world_of_a_session_satisfies_what_is_isolated_below_its_line() {
    let rules = "commands: { isolated: [\"mkdir *\"] }\ntrace: { execs: all }\n";
    let rig = Rig::new(rules, None);
    let output = rig.run("$MKDIR here && echo made");
    assert_eq!(output.stdout, b"made\n", "{output:?}");
    assert!(
        rig.path("here").is_dir(),
        "the session's project is the real one"
    );
    let starts = rig.sandbox.events("command_start");
    let mkdir = starts.iter().find(|event| {
        let program = event["argv"][0].as_str().unwrap_or_default();
        program.ends_with("mkdir")
    });
    assert_eq!(mkdir.unwrap()["verdict"], "isolate", "{starts:#?}");
}

#[test]
fn observing_records_and_refuses_nothing() {
    let sandbox = Sandbox::with_policy(
        "mode: observe\nfs: { write: [\"$PROJECT/**\"] }\nworld: { enabled: \"on\" }\n\
         commands: { denied: [\"touch *\"] }\n",
    );
    let output = sandbox
        .substrate()
        .args(["-c", "$TOUCH there"])
        .env("TOUCH", "touch")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(sandbox.project().join("there").exists());
    let violations = sandbox.events("policy_violation");
    let would = violations
        .iter()
        .find(|event| event["component"] == "world")
        .unwrap();
    assert_eq!(would["outcome"], "would_deny");
    assert_eq!(
        sandbox.events("command_complete")[0]["enforced"]["exec"],
        "observed"
    );
}

#[test]
fn debuggers_work_where_the_policy_lets_them() {
    if !has("strace") {
        crate::common::skip(
            "debuggers_work_where_the_policy_lets_them",
            "strace is missing",
        );
        return;
    }
    let closed = Rig::new(RULES, None);
    let output = closed.run("strace -f -o log sh -c '/bin/true; true'");
    assert!(!output.status.success());
    let open = Rig::new(&format!("{RULES}world: {{ allow: [ptrace] }}\n"), None);
    let output = open.run("strace -f -o log sh -c '/bin/true; true'");
    assert!(output.status.success(), "{output:?}");
    assert!(
        fs::read_to_string(open.path("log"))
            .unwrap()
            .contains("execve")
    );
    open.run("strace -f -o log $T -rf victim");
    assert!(open.survives());
    assert_eq!(
        open.sandbox.events("command_complete")[0]["enforced"]["exec"],
        "guard, without re-check"
    );
}

/// A line that is one command, and the program of `run`, are started by Substrate itself.
#[test]
fn the_command_that_a_world_is_made_for_is_judged_like_any_other() {
    let ways = [
        ("cp \"$(command -v rm)\" x", vec!["./x", "-rf", "victim"]),
        ("ln -s \"$(command -v rm)\" y", vec!["./y", "-rf", "victim"]),
        (
            "printf '#!%s -rf\\n' \"$(readlink -f \"$(command -v rm)\")\" > z; chmod 755 z",
            vec!["./z", "victim"],
        ),
    ];
    for (rules, survives) in [(NO_RULES, false), (RULES, true)] {
        for (set_up, words) in &ways {
            for run in [false, true] {
                let rig = Rig::new(rules, None);
                let made = Command::new("sh")
                    .args(["-c", set_up])
                    .current_dir(rig.sandbox.project())
                    .status();
                assert!(made.unwrap().success());
                let output = if run {
                    let mut command = rig.sandbox.substrate();
                    command.args(["run", "--"]).args(words);
                    command.output().unwrap()
                } else {
                    rig.run(&words.join(" "))
                };
                assert_eq!(rig.survives(), survives, "{words:?} {run} {output:?}");
                if survives {
                    assert_eq!(output.status.code(), Some(126), "{output:?}");
                }
            }
        }
    }
}

#[test]
fn missing_programs_and_failing_starts_stay_what_they_are() {
    let rig = Rig::new(RULES, None);
    let line = "no-such-program; echo $?; ./victim; echo $?; /etc/passwd; echo $?; \
                python3 -c 'import subprocess; subprocess.run([\"also-not-there\"])' 2>&1 | tail -1; \
                ln -s /usr/bin linked; \
                python3 -c 'import subprocess; subprocess.run([\"linked/not-there\"])' 2>&1 | tail -1";
    let output = rig.run(line);
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(&lines[..3], ["127", "126", "126"], "{output:?}");
    assert!(lines[3].starts_with("FileNotFoundError"), "{text}");
    assert!(lines[4].starts_with("FileNotFoundError"), "{text}");
}

#[test]
fn a_start_that_follows_a_failed_one_is_not_taken_for_somebody_elses() {
    if !has("dash") {
        crate::common::skip(
            "a_start_that_follows_a_failed_one_is_not_taken_for_somebody_elses",
            "dash is missing",
        );
        return;
    }
    let rig = Rig::new(RULES, None);
    // Without an interpreter line the kernel refuses it, and dash tries the shell at once.
    crate::common::script(&rig.path("bare"), "exit 0\n");
    let often = "i=0; while [ $i -lt 300 ]; do ./bare || echo $?; i=$((i+1)); done";
    let output = rig.run(&format!(
        "for n in 1 2 3 4; do dash -c '{often}' & done; wait"
    ));
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        Default::default()
    );
}

#[test]
fn a_program_whose_directory_was_renamed_is_judged_by_its_new_name() {
    if !has("python3") {
        crate::common::skip(
            "a_program_whose_directory_was_renamed_is_judged_by_its_new_name",
            "python3 is missing",
        );
        return;
    }
    let rig = Rig::new("commands: { denied: [\"$PROJECT/b/tool *\"] }\n", None);
    fs::create_dir(rig.path("a")).unwrap();
    fs::copy("/usr/bin/touch", rig.path("a/tool")).unwrap();
    std::os::unix::fs::symlink("b", rig.path("link")).unwrap();
    let script = r#"
import os
def start(path, word):
    try: os.waitpid(os.posix_spawn(path, ["tool", word], {}), 0)
    except PermissionError: pass
for _ in range(50):
    start("a/tool", "allowed")
    os.rename("a", "b")
    start("link/tool", "refused")
    os.rename("b", "a")
"#;
    fs::write(rig.path("rename.py"), script).unwrap();
    rig.run("python3 rename.py");
    assert!(rig.path("allowed").exists());
    assert!(!rig.path("refused").exists());
}

#[test]
fn threads_that_start_programs_at_once_leave_one_of_them() {
    if !has("gcc") {
        crate::common::skip(
            "threads_that_start_programs_at_once_leave_one_of_them",
            "gcc is missing",
        );
        return;
    }
    let rig = Rig::new(RULES, None);
    rig.compile("threads.c", "threads");
    let output = rig.run("./threads 800 & ./threads 800; wait");
    // A thread that another one's start has ended may be told that it was refused; nobody listens.
    let said = text(&output.stdout);
    let counts: Vec<&str> = said
        .lines()
        .filter(|line| line.ends_with("wrong"))
        .collect();
    assert_eq!(counts, ["0 wrong", "0 wrong"]);
}

#[test]
fn long_arguments_and_odd_bytes_pass_unchanged() {
    let rig = Rig::new(RULES, None);
    let line = "python3 -c 'import subprocess; \
        a = [b\"x\" * 100000, b\"\", b\"\\xff\\xfe\", b\"two\\nlines\"] + [b\"w\"] * 5000; \
        r = subprocess.run([b\"printf\", b\"%s\\\\0\"] + a, stdout=subprocess.PIPE).stdout; \
        print(r == b\"\".join(x + b\"\\0\" for x in a))'";
    let output = rig.run(line);
    assert_eq!(output.stdout, b"True\n", "{output:?}");
}
