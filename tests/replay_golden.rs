//! Golden spans: recorded commands of many kinds replay as the same, twice in a row.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::Command;

use crate::common::{Sandbox, skip};

const POLICY: &str =
    "mode: observe\nfs: { write: [\"$PROJECT/**\"], protect: [] }\ntrace: { output: bounded }\n";

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A package and the index that it is installed from, made without any tool of a package manager.
const WHEEL: &str = r#"
import zipfile
name = "wheels/demo-1.0-py3-none-any.whl"
files = {
    "demo.py": "def greet():\n    return 'hello'\n",
    "demo-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
    "demo-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "demo-1.0.dist-info/RECORD": "demo.py,,\ndemo-1.0.dist-info/METADATA,,\ndemo-1.0.dist-info/WHEEL,,\ndemo-1.0.dist-info/RECORD,,\n",
}
with zipfile.ZipFile(name, "w") as wheel:
    for path, text in files.items():
        wheel.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), text)
"#;

/// The lines, in the order in which they are recorded: later ones build on what earlier ones left.
const LINES: &[&str] = &[
    // Pure output.
    "/bin/true",
    "echo hello world",
    "printf 'a\\tb\\n' >&2",
    "echo out; echo err >&2",
    "pwd; umask; echo $LANG",
    "seq 1 100000",
    "head -c 300000 /dev/zero | tr '\\0' x",
    "date -u -d @0 +%F",
    // Failures and signals.
    "false",
    "exit 7",
    "ls no-such-file",
    "no-such-command-here --flag; exit 5",
    "diff input other",
    "kill -9 $$",
    "kill -TERM $$",
    "set -o pipefail; false | cat",
    // Pipes and the language.
    "sort input | uniq -c | sort -rn",
    "cat input | tr a-z A-Z | tee upper | wc -l",
    "for i in 1 2 3; do echo $((i * i)); done > squares",
    "f() { echo \"f $1\"; }; f x; a=(1 2 3); echo ${#a[@]} ${a[*]}",
    "cat <<'END' > here\nline $one\nline two\nEND",
    "(cd sub && pwd && ls) | sort",
    "sleep 0.01 & wait $!; echo done",
    // Files.
    "echo new > created; mkdir -p a/b/c; echo deep > a/b/c/deep",
    "rm created; rm -r a",
    "mv other renamed; ln -s input link; ln input hard; cat hard; rm hard",
    "chmod 600 input; chmod +x script.sh; ./script.sh",
    "umask 077; echo private > private",
    "sed -i s/b/B/ input; awk '{print NR, $0}' input",
    "split -l 1 input part-; cat part-*; rm part-aa",
    "find . -name '*.c' -o -name Makefile | grep -v .git | sort",
    // Bytes that are no text.
    "printf '\\377\\376\\n' | tee bytes | od -c",
    "echo odd > $'\\377name'; ls | od -c | head -3",
    // Tools.
    "git log --oneline; git ls-files | wc -l",
    "git hash-object script.sh; git grep -n main",
    "make",
    "make; ./main",
    "gcc -O1 -o direct main.c part.c && ./direct",
    "make clean",
    "tar cf all.tar --sort=name --mtime=@0 --owner=0 --group=0 sub script.sh; tar tf all.tar",
    "tar xf all.tar -C sub; gzip -n all.tar",
    "sqlite3 db 'create table t(a, b); insert into t values (1, 2), (3, 4);'",
    "sqlite3 db 'update t set b = b + 1 where a = 3; select * from t'",
    "python3 -c 'import json; print(json.dumps({\"a\": [1, 2]}))'",
    "python3 -c 'open(\"py.txt\", \"w\").write(\"x\" * 9)'; wc -c py.txt",
    "python3 -c 'raise SystemExit(3)'",
    "python3 -m pip install --quiet --no-compile --no-cache-dir --no-index --find-links=wheels --target=lib --disable-pip-version-check demo",
    "PYTHONPATH=lib python3 -B -c 'import demo; print(demo.greet())'",
    "perl -e 'print \"perl $_\\n\" for 1..3'",
    "jq -c .b data.json",
];

fn make_project(project: &Path) {
    let write = |name: &str, text: &str| std::fs::write(project.join(name), text).unwrap();
    std::fs::create_dir(project.join("sub")).unwrap();
    std::fs::create_dir(project.join("wheels")).unwrap();
    write("input", "b\na\nb\n");
    write("other", "a\nb\n");
    write("sub/one", "1\n");
    write("sub/two", "2\n");
    write("data.json", "{\"a\": 1, \"b\": {\"c\": [true, null]}}\n");
    write("script.sh", "#!/bin/sh\necho from the script\n");
    write(
        "main.c",
        "#include <stdio.h>\n#include \"part.h\"\nint main(void) { printf(\"%d\\n\", part()); return 0; }\n",
    );
    write(
        "part.c",
        "#include \"part.h\"\nint part(void) { return 42; }\n",
    );
    write("part.h", "int part(void);\n");
    write(
        "Makefile",
        "main: main.o part.o\n\tgcc -o main main.o part.o\n%.o: %.c part.h\n\tgcc -c -o $@ $<\nclean:\n\trm -f main *.o\n",
    );
    for step in [
        &["git", "init", "-q", "."][..],
        &["git", "add", "-A"],
        &[
            "git",
            "-c",
            "user.name=T",
            "-c",
            "user.email=t@example.com",
            "commit",
            "-q",
            "-m",
            "start",
        ],
        &["python3", "-c", WHEEL],
    ] {
        let mut command = Command::new(step[0]);
        command
            .args(&step[1..])
            .current_dir(project)
            .env("PATH", PATH);
        command
            .env("HOME", project)
            .env("GIT_CONFIG_GLOBAL", "/dev/null");
        assert!(command.status().unwrap().success(), "{step:?}");
    }
}

fn record(sandbox: &Sandbox, line: &OsStr) {
    let mut command = sandbox.substrate();
    command
        .env("PATH", PATH)
        .args([OsStr::new("--record"), OsStr::new("-c"), line]);
    command.output().unwrap();
}

#[test]
fn golden_spans_replay_as_the_same_twice() {
    let sandbox = Sandbox::with_policy(POLICY);
    if !sandbox.run(["world", "doctor"]).status.success() {
        return skip(
            "golden_spans_replay_as_the_same_twice",
            "this machine has no full worlds",
        );
    }
    for tool in ["git", "make", "gcc", "sqlite3", "jq", "perl"] {
        let found = PATH
            .split(':')
            .any(|dir| Path::new(dir).join(tool).exists());
        if !found {
            return skip(
                "golden_spans_replay_as_the_same_twice",
                &format!("there is no {tool}"),
            );
        }
    }
    let project = sandbox.project();
    std::fs::remove_dir(project.join(".git")).unwrap();
    make_project(&project);
    for line in LINES {
        record(&sandbox, OsStr::new(line));
    }
    record(
        &sandbox,
        &OsString::from_vec(b"printf '%s\\n' '\xff\xfe' > raw; cat raw".to_vec()),
    );
    let count = LINES.len() + 1;
    assert!(count >= 40);
    let recorded = sandbox.events("command_complete");
    assert_eq!(recorded.len(), count);
    for (event, line) in recorded.iter().zip(LINES) {
        assert_eq!(event["output"]["mode"], "bounded", "{line}");
        assert_eq!(event["fs_diff"]["strategy"], "snapshot", "{line}: {event}");
    }
    let before = listing(&project);
    for round in 1..=2 {
        let mut command = sandbox.substrate();
        command
            .env("PATH", PATH)
            .args(["replay", "--json", "--last", &count.to_string()]);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let mut different = Vec::new();
        let answers: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for (answer, line) in answers.iter().zip(LINES.iter().chain(&["raw bytes"])) {
            if answer["same"] != true {
                different.push(format!("{line}: {answer:#}"));
            }
        }
        assert!(
            different.is_empty(),
            "round {round}: {}",
            different.join("\n")
        );
        assert_eq!(
            answers.len(),
            count,
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(output.status.code(), Some(0));
    }
    assert_eq!(listing(&project), before, "a replay touched the host");
}

/// Every name below a directory with its length and time of writing.
fn listing(dir: &Path) -> Vec<String> {
    use std::os::unix::fs::MetadataExt;
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = path.symlink_metadata().unwrap();
        all.push(format!(
            "{path:?} {} {} {:o}",
            meta.len(),
            meta.mtime_nsec(),
            meta.mode()
        ));
        if meta.is_dir() {
            all.extend(listing(&path));
        }
    }
    all.sort();
    all
}
