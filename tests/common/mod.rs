//! A hermetic place to run `substrate` in: its own home, a fixed locale, a throw-away directory.

#![allow(dead_code, reason = "every test file uses its own part of this")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop"
)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A home, a project and the binary under test.
pub struct Sandbox {
    directory: tempfile::TempDir,
}

impl Sandbox {
    /// A fresh one; nothing is configured.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["home/policies", "project/.git"] {
            std::fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        // As if the package clients of this machine had been asked and named no host.
        std::fs::write(directory.path().join("home/clients.json"), "{}\n").unwrap();
        Self { directory }
    }

    /// A fresh one whose policy in use is this text, with id `test`.
    pub fn with_policy(text: &str) -> Self {
        let sandbox = Self::new();
        sandbox.policy("test", &format!("id: test\nname: Test\n{text}"));
        std::fs::write(sandbox.home().join("active"), "test\n").unwrap();
        sandbox
    }

    /// Substrate's home.
    pub fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    /// A work tree.
    pub fn project(&self) -> PathBuf {
        self.directory.path().join("project")
    }

    /// Writes a policy file.
    pub fn policy(&self, id: &str, text: &str) -> PathBuf {
        let path = self.home().join("policies").join(format!("{id}.yaml"));
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The binary, to be run in the project with a small fixed environment.
    pub fn substrate(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_substrate"));
        self.prepare(&mut command);
        command
    }

    /// Gives any command the same surroundings.
    pub fn prepare(&self, command: &mut Command) {
        command
            .current_dir(self.project())
            .env_clear()
            .env("PATH", substrate_rig::search_path())
            .env("SUBSTRATE_HOME", self.home())
            .env("HOME", self.directory.path())
            .env("LANG", "C.UTF-8")
            .env("TERM", "dumb")
            // Worlds of a test end with its commands, unless it is about the service.
            .env("SUBSTRATE_SERVICE", "off")
            .stdin(Stdio::null());
        substrate_rig::as_from_a_login(command);
    }

    /// Runs with arguments and collects everything.
    pub fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Output {
        self.substrate().args(arguments).output().unwrap()
    }

    /// Text with the sandbox's own paths taken out.
    pub fn normal(&self, bytes: &[u8]) -> String {
        let path = self.directory.path().to_str().unwrap().to_owned();
        String::from_utf8_lossy(bytes).replace(&path, "/sandbox")
    }

    /// The events of the trace, as JSON.
    pub fn trace(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.home().join("trace.jsonl")).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The events of one kind.
    pub fn events(&self, kind: &str) -> Vec<serde_json::Value> {
        self.trace()
            .into_iter()
            .filter(|event| event["event_type"] == kind)
            .collect()
    }
}

/// Says loudly that a test did not run, and counts it.
pub fn skip(test: &str, reason: &str) {
    substrate_rig::skip(test, reason);
}

/// An executable script.
pub fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}
