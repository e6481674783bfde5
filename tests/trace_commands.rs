//! `substrate trace`: what people and programs read of what happened.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::process::Output;

use crate::common::Sandbox;
use crate::person::Person;
use serde_json::Value;

const POLICY: &str = "mode: enforce\nworld: { enabled: \"off\" }\nfs: { write: [\"/**\"], protect: [] }\ncommands:\n  denied:\n    - { pattern: \"forbidden *\", reason: \"because\" }\n";

/// A trace of four spans: one that works, one that fails, one that is refused, one of an agent.
fn recorded() -> Sandbox {
    let sandbox = Sandbox::with_policy(POLICY);
    sandbox.run(["-c", "/bin/echo first, of \"all\""]);
    sandbox.run(["-c", "/bin/false --really"]);
    sandbox.run(["-c", "forbidden thing"]);
    let mut agent = sandbox.substrate();
    agent.env("SUBSTRATE_AGENT_ID", "robot");
    agent.args(["-c", "cd /; /bin/true"]).output().unwrap();
    sandbox
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn lines(output: &Output) -> Vec<Value> {
    let parse = |line: &str| serde_json::from_str(line).unwrap();
    text(output).lines().map(parse).collect()
}

fn commands(output: &Output) -> Vec<String> {
    let command = |event: &Value| event["cmd"].as_str().unwrap().to_owned();
    lines(output).iter().map(command).collect()
}

#[test]
fn a_list_has_one_line_for_each_span() {
    let sandbox = recorded();
    let shown = text(&sandbox.run(["trace", "list"]));
    let rows: Vec<Vec<&str>> = shown
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        [
            "SPAN",
            "WHEN",
            "VERDICT",
            "EXIT",
            "TIME",
            "AGENT",
            "DIRECTORY",
            "COMMAND"
        ]
    );
    assert_eq!(rows.len(), 6, "{shown}");
    assert_eq!(&rows[1][3..5], ["allow", "0"], "{shown}");
    assert!(
        shown
            .lines()
            .nth(1)
            .unwrap()
            .ends_with("/bin/echo first, of \"all\"")
    );
    assert_eq!(&rows[2][3..5], ["allow", "1"], "{shown}");
    assert_eq!(&rows[3][3..5], ["deny", "-"], "{shown}");
    assert_eq!(&rows[4][3..5], ["allow", "builtin"], "{shown}");
    assert!(rows[5].contains(&"robot"), "{shown}");
    let ids: Vec<String> = sandbox
        .events("command_complete")
        .iter()
        .map(|event| event["span_id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(rows[1][0], &ids[0][ids[0].len() - 12..]);

    let bare = text(&sandbox.run(["trace"]));
    assert_eq!(bare.lines().count(), 6, "{bare}");
    let two = commands(&sandbox.run(["trace", "list", "-n", "2", "--json"]));
    assert_eq!(two, ["cd /", "cd /; /bin/true"]);
}

#[test]
fn a_command_whose_end_nobody_recorded_has_ended_with_its_process() {
    let sandbox = recorded();
    let path = sandbox.home().join("trace.jsonl");
    let whole = std::fs::read_to_string(&path).unwrap();
    let complete = whole
        .lines()
        .position(|line| line.contains("/bin/false") && line.contains("command_complete"));
    let kept: Vec<&str> = whole
        .lines()
        .enumerate()
        .filter(|(at, _)| Some(*at) != complete)
        .map(|(_, line)| line)
        .collect();
    std::fs::write(&path, kept.join("\n") + "\n").unwrap();
    let shown = text(&sandbox.run(["trace", "list"]));
    // Its process is gone, so that nobody records its end any more.
    assert_eq!(shown.matches(" ended ").count(), 1, "{shown}");
    assert_eq!(shown.lines().count(), 6, "{shown}");
}

#[test]
fn conditions_are_combined() {
    let sandbox = recorded();
    let grep = |arguments: &[&str]| {
        let all = ["trace", "grep", "--json"].iter().chain(arguments);
        commands(&sandbox.run(all))
    };
    assert_eq!(grep(&["first"]), ["/bin/echo first, of \"all\""]);
    assert_eq!(grep(&["/bin/*"]).len(), 2);
    assert_eq!(grep(&["--exit", "failed"]), ["/bin/false --really"]);
    assert_eq!(grep(&["--exit", "1", "/bin/"]), ["/bin/false --really"]);
    assert_eq!(grep(&["--exit", "0", "false"]), [""; 0]);
    assert_eq!(grep(&["--verdict", "deny"]), ["forbidden thing"]);
    assert_eq!(grep(&["--agent", "robot"]), ["cd /", "cd /; /bin/true"]);
    assert_eq!(grep(&["--cwd", ".", "--agent", "human"]).len(), 3);
    assert_eq!(grep(&["--cwd", "/nowhere"]), [""; 0]);
    assert_eq!(grep(&["--since", "1h"]).len(), 5);
    assert_eq!(grep(&["--until", "1h"]), [""; 0]);
    assert_eq!(grep(&["--session", "-"]), ["cd /", "cd /; /bin/true"]);
    assert_eq!(grep(&["-n", "1"]), ["cd /; /bin/true"]);
    let bad = sandbox.run(["trace", "grep", "--since", "yesterday"]);
    assert_eq!(bad.status.code(), Some(2), "{bad:?}");
}

#[test]
fn a_span_is_shown_whole() {
    let sandbox = recorded();
    let id = sandbox.events("policy_violation")[0]["span_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let shown = text(&sandbox.run(["trace", "show", &id[id.len() - 12..]]));
    assert!(shown.starts_with("forbidden thing\n"), "{shown}");
    for part in [
        id.as_str(),
        "verdict    deny",
        "'test' (enforce)",
        "forbidden * in commands.denied",
        "because",
    ] {
        assert!(shown.contains(part), "{part} is missing in {shown}");
    }
    let last = text(&sandbox.run(["trace", "-"]));
    assert!(last.contains("record     genuine"), "{last}");
    assert!(last.contains("builtin"), "its child is missing in {last}");
    assert_eq!(lines(&sandbox.run(["trace", "-", "--json"])).len(), 2);

    let path = sandbox.home().join("trace.jsonl");
    let forged = std::fs::read_to_string(&path)
        .unwrap()
        .replace("first,", "worst,");
    std::fs::write(&path, forged).unwrap();
    let echo = commands_id(&sandbox, "worst");
    let shown = text(&sandbox.run(["trace", "show", &echo]));
    assert!(shown.contains("record     altered"), "{shown}");

    let unknown = sandbox.run(["trace", "show", "ffffffffffff"]);
    assert_eq!(unknown.status.code(), Some(1), "{unknown:?}");
    assert!(
        String::from_utf8_lossy(&unknown.stderr).contains("no span"),
        "{unknown:?}"
    );
}

fn commands_id(sandbox: &Sandbox, word: &str) -> String {
    let found = lines(&sandbox.run(["trace", "grep", "--json", word]));
    found[0]["span_id"].as_str().unwrap().to_owned()
}

#[test]
fn a_tree_puts_spans_below_their_parents() {
    let sandbox = recorded();
    let binary = env!("CARGO_BIN_EXE_substrate");
    let output = sandbox.run(["-c", &format!("{binary} -c '/bin/echo below'; /bin/true")]);
    assert!(output.status.success(), "{output:?}");
    let shown = text(&sandbox.run(["trace", "tree"]));
    let rows: Vec<&str> = shown.lines().collect();
    assert_eq!(rows.len(), 3, "{shown}");
    assert!(rows[0].starts_with("ses_"), "{shown}");
    assert!(
        rows[1].starts_with("└─ ") && rows[1].contains("-c '/bin/echo below'"),
        "{shown}"
    );
    assert!(
        rows[2].starts_with("   └─ ") && rows[2].ends_with("/bin/echo below"),
        "{shown}"
    );

    let tree = &lines(&sandbox.run(["trace", "tree", "--json"]))[0];
    assert_eq!(tree["spans"][0]["children"][0]["cmd"], "/bin/echo below");
    let below = commands_id(&sandbox, "/bin/echo below");
    let shown = text(&sandbox.run(["trace", "tree", &below]));
    assert_eq!(shown.lines().count(), 2, "{shown}");
}

#[test]
fn statistics_count() {
    let sandbox = recorded();
    let stats = &lines(&sandbox.run(["trace", "stats", "--json"]))[0];
    assert_eq!(stats["spans"], 4, "{stats}");
    assert_eq!(stats["failed"], 1, "{stats}");
    assert_eq!(stats["denied"], 1, "{stats}");
    assert_eq!(stats["agents"]["robot"], 1, "{stats}");
    assert_eq!(stats["rules"][0]["rule"], "forbidden *", "{stats}");
    assert_eq!(stats["slowest"].as_array().unwrap().len(), 3, "{stats}");
    let shown = text(&sandbox.run(["trace", "stats"]));
    assert!(
        shown.starts_with("4 spans, 1 failed, 1 denied, 0 would have been"),
        "{shown}"
    );
}

#[test]
fn violations_say_which_rule() {
    let sandbox = recorded();
    let shown = text(&sandbox.run(["trace", "violations"]));
    let rows: Vec<&str> = shown.lines().collect();
    assert_eq!(rows.len(), 2, "{shown}");
    assert!(
        rows[0].contains("deny") && rows[0].ends_with("forbidden thing"),
        "{shown}"
    );
    assert!(
        rows[1].contains("commands.denied")
            && rows[1].contains("test.yaml:8: forbidden *; because"),
        "{shown}"
    );
}

#[test]
fn events_are_followed_as_they_come() {
    use std::io::{BufRead, BufReader};
    let sandbox = recorded();
    let mut tail = sandbox.substrate();
    tail.args(["trace", "tail", "-f", "-n", "1", "--json"]);
    let mut tail = tail.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(tail.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("command_complete"));
    sandbox.run(["-c", "/bin/echo later"]);
    let start = lines.next().unwrap().unwrap();
    assert!(
        start.contains("command_start") && start.contains("later"),
        "{start}"
    );
    let end = lines.next().unwrap().unwrap();
    assert!(
        end.contains("command_complete") && end.contains("later"),
        "{end}"
    );
    tail.kill().unwrap();
    tail.wait().unwrap();
}

#[test]
fn an_export_to_a_terminal_steers_nothing() {
    let sandbox = Sandbox::with_policy("mode: observe\nworld: { enabled: off }\n");
    let steering = "\u{1b}]0;title\u{7}\u{1b}[2J\u{202e}";
    sandbox.run(["-c", &format!("/bin/echo '{steering}'")]);
    let piped = text(&sandbox.run(["trace", "export", "--csv"]));
    assert!(
        piped.contains(steering),
        "programs read it as it is: {piped:?}"
    );
    let mut command = sandbox.substrate();
    command
        .args(["trace", "export", "--csv"])
        .env("TERM", "xterm");
    let (status, shown) = Person::start(command).end();
    assert_eq!(status, 0, "{shown}");
    assert!(
        shown.contains("\\u{1b}]0;title") && shown.contains("\\u{202e}"),
        "{shown:?}"
    );
    assert!(
        !shown.contains(['\u{1b}', '\u{7}', '\u{202e}']),
        "{shown:?}"
    );
}

#[test]
fn exports_are_what_other_programs_read() {
    let sandbox = recorded();
    let csv = text(&sandbox.run(["trace", "export", "--csv"]));
    let rows: Vec<&str> = csv.split("\r\n").collect();
    assert_eq!(rows.len(), 7, "{csv}");
    assert!(rows[0].starts_with("ts,span_id,"), "{csv}");
    assert!(
        rows[1].contains(",\"/bin/echo first, of \"\"all\"\"\","),
        "{csv}"
    );

    let otlp = &lines(&sandbox.run(["trace", "export", "--otlp-json"]))[0];
    let spans = otlp["resourceSpans"][0]["scopeSpans"][0]["spans"]
        .as_array()
        .unwrap();
    assert_eq!(spans.len(), 5);
    assert_eq!(spans[1]["name"], "false");
    assert_eq!(spans[1]["status"]["code"], 2);
    assert_eq!(spans[1]["spanId"].as_str().unwrap().len(), 16);
    assert_eq!(spans[3]["parentSpanId"], spans[4]["spanId"]);
    let nanos = |span: &Value, key: &str| span[key].as_str().unwrap().parse::<u128>().unwrap();
    assert!(nanos(&spans[0], "startTimeUnixNano") < nanos(&spans[0], "endTimeUnixNano"));

    let neither = sandbox.run(["trace", "export"]);
    assert_eq!(neither.status.code(), Some(2), "{neither:?}");
}

#[test]
fn pruning_removes_old_files_only() {
    let sandbox = recorded();
    let old = sandbox.home().join("trace.1.jsonl");
    std::fs::write(&old, "{}\n").unwrap();
    let without = sandbox.run(["trace", "prune"]);
    assert_eq!(without.status.code(), Some(2), "{without:?}");
    let nothing = &lines(&sandbox.run(["trace", "prune", "--keep", "1K", "--json"]))[0];
    assert_eq!(nothing["files"], 0);
    let shown = text(&sandbox.run(["trace", "prune", "--keep", "0"]));
    assert_eq!(shown, "removed 1 files, 3 bytes; 0 snapshots, 0 bytes\n");
    assert!(!old.exists());
    assert_eq!(sandbox.events("command_complete").len(), 3);
}

#[test]
fn an_empty_trace_and_damaged_lines_are_no_failure() {
    let sandbox = Sandbox::new();
    assert_eq!(text(&sandbox.run(["trace", "list"])), "");
    assert_eq!(text(&sandbox.run(["trace", "grep", "x"])), "");
    let sandbox = recorded();
    let path = sandbox.home().join("trace.jsonl");
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("not an event\n{whole}{{\"torn")).unwrap();
    let output = sandbox.run(["trace", "grep"]);
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 6);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("skipped 2 unreadable lines"), "{said}");
}

#[test]
fn what_a_direct_command_changed_is_recorded() {
    let sandbox = Sandbox::with_policy(POLICY);
    let project = sandbox.project();
    for (name, content) in [(".gitignore", "*.log\n"), ("old", "old"), ("kept", "kept")] {
        std::fs::write(project.join(name), content).unwrap();
    }
    sandbox.run([
        "-c",
        "rm old; echo new > new; echo more >> kept; echo x > x.log",
    ]);
    let event = sandbox.events("command_complete").pop().unwrap();
    let diff = &event["fs_diff"];
    let path = |name: &str| serde_json::json!([project.join(name).to_str().unwrap()]);
    assert_eq!(diff["strategy"], "snapshot", "{event}");
    assert_eq!(diff["writes"], path("new"), "{event}");
    assert_eq!(diff["mods"], path("kept"), "{event}");
    assert_eq!(diff["deletes"], path("old"), "{event}");
    let base = event["replay_context"]["base_tree"].as_str().unwrap();
    assert!(sandbox.home().join("snapshots/trees").join(base).exists());
    let found = commands(&sandbox.run(["trace", "grep", "--json", "--path", "new"]));
    assert_eq!(found.len(), 1);
}

#[test]
fn snapshots_are_for_work_trees_and_can_be_switched_off() {
    let outside = Sandbox::with_policy(POLICY);
    std::fs::remove_dir(outside.project().join(".git")).unwrap();
    let off = Sandbox::with_policy(&format!("{POLICY}trace: {{ snapshot: \"off\" }}\n"));
    for sandbox in [outside, off] {
        sandbox.run(["-c", "echo x > x"]);
        let event = sandbox.events("command_complete").pop().unwrap();
        assert!(event["fs_diff"].is_null(), "{event}");
        assert!(event["replay_context"]["base_tree"].is_null(), "{event}");
        assert!(!sandbox.home().join("snapshots").exists());
    }
}

#[test]
fn private_paths_are_never_kept() {
    let policy =
        format!("{POLICY}privacy: {{ ignore_paths: [\"$PROJECT/private\", \"**/.env\"] }}\n");
    let sandbox = Sandbox::with_policy(&policy);
    std::fs::create_dir(sandbox.project().join("private")).unwrap();
    for name in ["private/a", ".env"] {
        std::fs::write(sandbox.project().join(name), "the secret text").unwrap();
    }
    let output = sandbox.run(["-c", "echo x > x"]);
    assert!(output.status.success(), "{output:?}");
    assert!(sandbox.home().join("snapshots").exists());
    let grep = std::process::Command::new("grep")
        .args(["-rl", "the secret text"])
        .arg(sandbox.home())
        .output()
        .unwrap();
    assert_eq!(grep.status.code(), Some(1), "{grep:?}");
}
