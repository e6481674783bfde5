//! A day's ordinary work under the presets: every task does under them what it does without.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::skip;

/// Tasks, one a line: what they need, then what is run. Each finds what the ones before it left.
const TASKS: &str = include_str!("tasks.txt");

/// A home and a project as somebody has them, outside `/tmp`.
struct Desk {
    place: tempfile::TempDir,
}

impl Desk {
    fn new() -> Desk {
        let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let desk = Desk { place };
        let project = desk.project();
        fs::create_dir_all(project.join("src")).unwrap();
        for (name, text) in [
            (
                "a.c",
                "#include <stdio.h>\nint main(void) { puts(\"hi\"); return 0; }\n",
            ),
            (
                "b.cc",
                "#include <iostream>\nint main() { std::cout << \"hi\\n\"; }\n",
            ),
            (
                "Makefile",
                "all: a\na: a.c\n\tcc -o a a.c\ntest:\n\tpython3 -c 'print(2)'\nclean:\n\trm -f a\n",
            ),
            (
                "package.json",
                "{\"name\":\"x\",\"version\":\"1.0.0\",\"scripts\":{\"test\":\"node -e 'process.exit(0)'\",\"build\":\"echo built\"}}\n",
            ),
            (
                "test_x.py",
                "import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(1, 1)\n",
            ),
            ("src/main.rs", "fn main() { println!(\"hi\"); }\n"),
            (
                "m.go",
                "package main\nimport \"fmt\"\nfunc main() { fmt.Println(\"hi\") }\n",
            ),
            (".gitignore", "a\nb\n*.o\ntarget\n.venv\n"),
        ] {
            fs::write(project.join(name), text).unwrap();
        }
        let mut git = Command::new("sh");
        git.arg("-c").arg(
            "git init -q . && git config user.name n && git config user.email n@example.test \
             && git add -A && git commit -qm first",
        );
        assert!(desk.at(&mut git).status().unwrap().success());
        let home = desk.place.path().join(".substrate");
        fs::create_dir(&home).unwrap();
        fs::write(home.join("clients.json"), "{}\n").unwrap();
        desk
    }

    fn project(&self) -> PathBuf {
        self.place.path().join("project")
    }

    fn at<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .current_dir(self.project())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.place.path())
            .env("SUBSTRATE_HOME", self.place.path().join(".substrate"))
            .env("LANG", "C.UTF-8")
            .env("SUBSTRATE_SERVICE", "off")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("RUSTUP_HOME", toolchains())
            .stdin(Stdio::null())
    }

    /// Runs a task, by bash alone or under a preset.
    fn run(&self, preset: Option<&str>, task: &str) -> (Option<i32>, String) {
        let mut command = match preset {
            None => Command::new("bash"),
            Some(preset) => {
                let mut substrate = Command::new(env!("CARGO_BIN_EXE_substrate"));
                substrate.args(["--policy", preset]);
                substrate
            }
        };
        let output = self.at(command.args(["-c", task])).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }
}

/// Where rustup keeps what it has installed, which is this machine's and not the desk's.
fn toolchains() -> PathBuf {
    let home = std::env::var_os("HOME").unwrap_or_default();
    let set = std::env::var_os("RUSTUP_HOME").map(PathBuf::from);
    set.unwrap_or_else(|| Path::new(&home).join(".rustup"))
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir: PathBuf| Path::new(&dir).join(program).is_file())
}

fn everyday_tasks(test: &str, preset: &str) {
    let desk = Desk::new();
    let bare = Desk::new();
    let mut failed = Vec::new();
    let mut refused = false;
    for line in TASKS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        if let Some(note) = line.strip_prefix("? ") {
            let (presets, _) = note.split_once(": ").unwrap_or_else(|| panic!("{line}"));
            refused = presets.split(' ').any(|named| named == preset);
            continue;
        }
        let refused = std::mem::take(&mut refused);
        let (needs, task) = line.split_once(" | ").unwrap_or_else(|| panic!("{line}"));
        if let Some(missing) = needs.split_whitespace().find(|program| !is_there(program)) {
            skip(test, &format!("{missing} is not installed"));
            continue;
        }
        let (plain, _) = bare.run(None, task);
        let (code, said) = desk.run(Some(preset), task);
        // A task that works after all is no exception any more.
        if plain != Some(0) || (code == plain) == refused {
            failed.push(format!(
                "{task}\n  bash: {plain:?}, {preset}: {code:?}\n{said}"
            ));
        }
        let held = said.contains("held back");
        assert!(!held, "{task}: its work is not there\n{said}");
    }
    assert!(
        failed.is_empty(),
        "{} failed\n{}",
        failed.len(),
        failed.join("\n")
    );
}

#[test]
fn everyday_tasks_work_under_agent() {
    everyday_tasks("everyday_tasks_work_under_agent", "agent");
}

#[test]
fn everyday_tasks_work_under_dev() {
    everyday_tasks("everyday_tasks_work_under_dev", "dev");
}
