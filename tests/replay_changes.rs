//! Deliberate changes: each is reported as the kind of difference that it is.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::path::PathBuf;
use std::process::Stdio;

use crate::common::{Sandbox, script, skip};

const POLICY: &str = "mode: observe\nfs: { write: [\"$PROJECT/**\"], share: [\"BIN/**\"], protect: [] }\ntrace: { output: bounded }\n";

/// One change: a line that is recorded, what happens to the world around it, and what a replay
/// then has to say.
struct Case {
    name: &'static str,
    line: &'static str,
    change: fn(&Sandbox),
    /// Further arguments of the replay.
    with: &'static [&'static str],
    /// The kinds of difference, sorted; none means the same.
    differs: &'static [&'static str],
    /// A kind of drift that has to be told.
    warns: &'static str,
}

fn tool(sandbox: &Sandbox) -> PathBuf {
    sandbox.home().parent().unwrap().join("bin/tool")
}

fn replace_tool(sandbox: &Sandbox, text: &str) {
    script(&tool(sandbox), &format!("#!/bin/sh\n{text}\n"));
}

fn rewrite_input(sandbox: &Sandbox) {
    std::fs::write(sandbox.project().join("input"), "rewritten\n").unwrap();
}

fn change_policy(sandbox: &Sandbox, text: &str) {
    let bin = tool(sandbox).parent().unwrap().display().to_string();
    let text = text.replace("BIN", &bin);
    sandbox.policy("test", &format!("id: test\nname: Test\n{text}"));
    std::fs::write(sandbox.home().join("active"), "test\n").unwrap();
}

/// The tool prints a line, writes a file and ends well.
const TOOL: &str = "echo printed; echo written > made";

const CASES: &[Case] = &[
    Case {
        name: "an input file was edited, and today's files are wanted",
        line: "cat input",
        change: rewrite_input,
        with: &["--here"],
        differs: &["stdout"],
        warns: "files",
    },
    Case {
        name: "an input file was edited, and the snapshot is used",
        line: "cat input",
        change: rewrite_input,
        with: &[],
        differs: &[],
        warns: "",
    },
    Case {
        name: "an edited input leads to another file",
        line: "sort input > sorted",
        change: rewrite_input,
        with: &["--here"],
        differs: &["file"],
        warns: "files",
    },
    Case {
        name: "an input file is gone",
        line: "cat input",
        change: |sandbox| std::fs::remove_file(sandbox.project().join("input")).unwrap(),
        with: &["--here"],
        differs: &["exit", "stderr", "stdout"],
        warns: "files",
    },
    Case {
        name: "an input file is not executable any more",
        line: "./run",
        change: |sandbox| std::fs::write(sandbox.project().join("run"), "x").unwrap(),
        with: &["--here"],
        differs: &["exit", "stderr", "stdout"],
        warns: "files",
    },
    Case {
        name: "a file came into being",
        line: "ls",
        change: |sandbox| std::fs::write(sandbox.project().join("zzz"), "").unwrap(),
        with: &["--here"],
        differs: &["stdout"],
        warns: "files",
    },
    Case {
        name: "an ignored file, which is never kept, was edited",
        line: "cat local.conf",
        change: |sandbox| std::fs::write(sandbox.project().join("local.conf"), "b\n").unwrap(),
        with: &[],
        differs: &["stdout"],
        warns: "",
    },
    Case {
        name: "a tool was replaced by one that prints something else",
        line: "tool",
        change: |sandbox| replace_tool(sandbox, "echo other; echo written > made"),
        with: &[],
        differs: &["stdout"],
        warns: "tool",
    },
    Case {
        name: "a tool was replaced by one that does the same",
        line: "tool",
        change: |sandbox| replace_tool(sandbox, "echo written > made; echo printed"),
        with: &[],
        differs: &[],
        warns: "tool",
    },
    Case {
        name: "a tool complains now",
        line: "tool",
        change: |sandbox| replace_tool(sandbox, &format!("{TOOL}; echo careful >&2")),
        with: &[],
        differs: &["stderr"],
        warns: "tool",
    },
    Case {
        name: "a tool fails now",
        line: "tool",
        change: |sandbox| replace_tool(sandbox, &format!("{TOOL}; exit 3")),
        with: &[],
        differs: &["exit"],
        warns: "tool",
    },
    Case {
        name: "a tool is killed now",
        line: "tool",
        change: |sandbox| replace_tool(sandbox, &format!("{TOOL}; kill -9 $$")),
        with: &[],
        differs: &["exit", "signal"],
        warns: "tool",
    },
    Case {
        name: "a tool is gone",
        line: "tool",
        change: |sandbox| std::fs::remove_file(tool(sandbox)).unwrap(),
        with: &[],
        differs: &["exit", "file", "stderr", "stdout"],
        warns: "tool",
    },
    Case {
        name: "a tool writes something else",
        line: "tool",
        change: |sandbox| replace_tool(sandbox, "echo printed; echo else > made"),
        with: &[],
        differs: &["file"],
        warns: "tool",
    },
    Case {
        name: "a tool writes one more file",
        line: "tool",
        change: |sandbox| replace_tool(sandbox, &format!("{TOOL}; echo more > more")),
        with: &[],
        differs: &["file"],
        warns: "tool",
    },
    Case {
        name: "a tool writes nothing",
        line: "tool",
        change: |sandbox| replace_tool(sandbox, "echo printed"),
        with: &[],
        differs: &["file"],
        warns: "tool",
    },
    Case {
        name: "a tool deletes a file",
        line: "tool",
        change: |sandbox| replace_tool(sandbox, &format!("{TOOL}; rm input")),
        with: &[],
        differs: &["file"],
        warns: "tool",
    },
    Case {
        name: "a tool gives its file another mode",
        line: "tool",
        change: |sandbox| replace_tool(sandbox, &format!("{TOOL}; chmod 700 made")),
        with: &[],
        differs: &["file"],
        warns: "tool",
    },
    Case {
        name: "a tool makes a symlink of its file",
        line: "tool",
        change: |sandbox| replace_tool(sandbox, "echo printed; ln -s input made"),
        with: &[],
        differs: &["file"],
        warns: "tool",
    },
    Case {
        name: "a tool makes a directory of its file",
        line: "tool",
        change: |sandbox| replace_tool(sandbox, "echo printed; mkdir made"),
        with: &[],
        differs: &["file"],
        warns: "tool",
    },
    Case {
        name: "the environment has changed, and the command prints it",
        line: "echo $FLAVOUR",
        change: |_| {},
        with: &["FLAVOUR=other"],
        differs: &["stdout"],
        warns: "environment",
    },
    Case {
        name: "the environment has changed, and the command does not care",
        line: "echo fixed",
        change: |_| {},
        with: &["FLAVOUR=other"],
        differs: &[],
        warns: "environment",
    },
    Case {
        name: "the environment is the one of then",
        line: "echo $FLAVOUR",
        change: |_| {},
        with: &[],
        differs: &[],
        warns: "",
    },
    Case {
        name: "the policy has changed in words only",
        line: "cat input",
        change: |sandbox| change_policy(sandbox, &format!("{POLICY}# another line\n")),
        with: &[],
        differs: &[],
        warns: "policy",
    },
    Case {
        name: "the policy hides the input now",
        line: "cat input 2> /dev/null; true",
        change: |sandbox| {
            let policy = POLICY.replace("protect: []", "protect: [], hide: [\"$PROJECT/input\"]");
            change_policy(sandbox, &policy);
        },
        with: &[],
        differs: &["stdout"],
        warns: "policy",
    },
    Case {
        name: "the output depends on the time",
        line: "date +%s%N",
        change: |_| {},
        with: &[],
        differs: &["stdout"],
        warns: "",
    },
    Case {
        name: "a file depends on the time",
        line: "date +%s%N > now",
        change: |_| {},
        with: &[],
        differs: &["file"],
        warns: "",
    },
    Case {
        name: "the errors depend on chance",
        line: "head -c 16 /dev/urandom | od -x >&2",
        change: |_| {},
        with: &[],
        differs: &["stderr"],
        warns: "",
    },
];

fn prepared() -> Sandbox {
    let sandbox = Sandbox::new();
    let project = sandbox.project();
    std::fs::write(project.join("input"), "b\na\n").unwrap();
    std::fs::write(project.join(".gitignore"), "local.conf\n").unwrap();
    std::fs::write(project.join("local.conf"), "a\n").unwrap();
    script(&project.join("run"), "#!/bin/sh\necho ran\n");
    std::fs::create_dir(sandbox.home().parent().unwrap().join("bin")).unwrap();
    replace_tool(&sandbox, TOOL);
    change_policy(&sandbox, POLICY);
    sandbox
}

fn substrate(sandbox: &Sandbox) -> std::process::Command {
    let mut command = sandbox.substrate();
    let bin = sandbox.home().parent().unwrap().join("bin");
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    command.env("FLAVOUR", "plain");
    command
}

fn no_worlds(sandbox: &Sandbox, test: &str) -> bool {
    let works = sandbox.run(["world", "doctor"]).status.success();
    if !works {
        skip(test, "this machine has no full worlds");
    }
    !works
}

#[test]
fn every_change_is_told_as_what_it_is() {
    assert!(CASES.len() >= 20);
    let mut wrong = Vec::new();
    for case in CASES {
        let sandbox = prepared();
        if no_worlds(&sandbox, "every_change_is_told_as_what_it_is") {
            return;
        }
        substrate(&sandbox)
            .args(["--record", "-c", case.line])
            .output()
            .unwrap();
        (case.change)(&sandbox);
        let mut command = substrate(&sandbox);
        command.args(["replay", "-", "--json"]);
        for argument in case.with {
            match argument.split_once('=') {
                Some((name, value)) => command.env(name, value),
                None => command.arg(argument),
            };
        }
        let output = command.output().unwrap();
        let Ok(answer) = serde_json::from_slice::<serde_json::Value>(&output.stdout) else {
            wrong.push(format!("{}: {output:?}", case.name));
            continue;
        };
        let kinds = |list: &serde_json::Value| {
            let mut kinds: Vec<String> = list
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one["what"].as_str().unwrap().to_owned())
                .collect();
            kinds.sort();
            kinds.dedup();
            kinds
        };
        let status = i32::from(!case.differs.is_empty());
        let warned = kinds(&answer["warnings"]);
        let told = case.warns.is_empty() || warned.iter().any(|what| what == case.warns);
        if kinds(&answer["differences"]) != case.differs
            || output.status.code() != Some(status)
            || !told
        {
            wrong.push(format!("{}: {answer:#}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_differs_is_shown_line_by_line() {
    let sandbox = prepared();
    if no_worlds(&sandbox, "what_differs_is_shown_line_by_line") {
        return;
    }
    substrate(&sandbox)
        .args(["--record", "-c", "tool"])
        .output()
        .unwrap();
    replace_tool(&sandbox, "echo changed; echo else > made");
    let output = substrate(&sandbox)
        .args(["replay", "-", "--verbose"])
        .output()
        .unwrap();
    let said = sandbox.normal(&output.stdout);
    for part in [
        "[replay] world: full",
        "[replay] scopes: fs.write:/sandbox/project/made",
        "[replay] warn: tool: /sandbox/bin/tool is not the file of then",
        "\ndifferent\n",
        "  stdout: 8 bytes as before, but others\n",
        "    -printed\n    +changed\n",
        "  file: /sandbox/project/made has another content\n",
        "    -written\n    +else\n",
    ] {
        assert!(said.contains(part), "{part:?} in {said}");
    }
}

#[test]
fn standard_input_is_taken_again_when_it_is_the_same() {
    let sandbox = prepared();
    if no_worlds(
        &sandbox,
        "standard_input_is_taken_again_when_it_is_the_same",
    ) {
        return;
    }
    let given = sandbox.home().join("given");
    std::fs::write(&given, "one\ntwo\n").unwrap();
    let open = || Stdio::from(std::fs::File::open(&given).unwrap());
    substrate(&sandbox)
        .args(["--record", "-c", "cat"])
        .stdin(open())
        .output()
        .unwrap();
    let event = sandbox.events("command_complete").remove(0);
    assert_eq!(event["replay_context"]["stdin"]["kind"], "content");
    assert_eq!(event["replay_context"]["stdin"]["bytes"], 8);
    let replay = |stdin: Stdio| {
        let mut command = substrate(&sandbox);
        let output = command
            .args(["replay", "-", "--verbose"])
            .stdin(stdin)
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
        )
    };
    let (code, said) = replay(open());
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = replay(Stdio::null());
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("[replay] warn: stdin: it was a file"),
        "{said}"
    );
    std::fs::write(&given, "other\n").unwrap();
    let (code, _) = replay(open());
    assert_eq!(code, Some(1));
}

#[test]
fn what_today_denies_or_asks_about_is_not_run() {
    for (list, sandbox) in [("denied", prepared()), ("ask", prepared())] {
        substrate(&sandbox)
            .args(["-c", "cat input"])
            .output()
            .unwrap();
        let strict = POLICY.replace("observe", "enforce");
        change_policy(
            &sandbox,
            &format!("{strict}commands: {{ {list}: [\"cat *\"] }}\n"),
        );
        let output = substrate(&sandbox).args(["replay", "-"]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(126), "{said}");
        assert!(said.contains("cat *"), "{said}");
        // As everything that is refused: recorded, for the span that it is about.
        let then = sandbox.events("command_complete").pop().unwrap();
        let refused = sandbox.events("policy_violation").pop().unwrap();
        assert_eq!(refused["component"], "replay");
        assert_eq!(refused["span_id"], then["span_id"]);
    }
}
