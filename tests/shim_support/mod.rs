//! A home with shims, and a way to run the same thing bare and shimmed.

#![allow(dead_code, reason = "every test file uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common::Sandbox;

/// Where the tools of the tests are; fixed, so that nobody's own wrappers come in between.
pub const TOOLS: &str = "/usr/local/bin:/usr/bin:/bin";

/// Observes, and would deny one thing.
pub const OBSERVE: &str = "mode: observe\nfs: { write: [\"/**\"], protect: [] }\ncommands:\n  denied:\n    - { pattern: \"git push *\", reason: \"no pushing\" }\n";

/// The same, enforced, without worlds.
pub const ENFORCE: &str = "mode: enforce\nworld: { enabled: \"off\" }\nfs: { write: [\"/**\"], protect: [] }\ncommands:\n  denied:\n    - { pattern: \"git push *\", reason: \"no pushing\" }\n";

/// A sandbox whose tools are shimmed.
pub struct Rig {
    /// Where everything is.
    pub sandbox: Sandbox,
    /// A directory of the test's own tools, on PATH behind the shims.
    pub bin: PathBuf,
}

impl Rig {
    /// Installs shims under a policy; tools of the test itself are written first.
    pub fn new(policy: &str, own: &[(&str, &str)], shims: &[&str]) -> Self {
        let sandbox = Sandbox::with_policy(policy);
        let bin = sandbox.home().join("../bin");
        std::fs::create_dir(&bin).unwrap();
        let bin = bin.canonicalize().unwrap();
        for (name, text) in own {
            crate::common::script(&bin.join(name), text);
        }
        let rig = Self { sandbox, bin };
        let output = rig.shim(["install"].iter().chain(shims));
        assert!(output.status.success(), "{output:?}");
        rig
    }

    /// Runs `substrate shim …`.
    pub fn shim<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Output {
        let mut command = self.sandbox.substrate();
        command
            .env("PATH", self.path(true))
            .arg("shim")
            .args(arguments);
        command.output().unwrap()
    }

    /// The directory of shims.
    pub fn shims(&self) -> PathBuf {
        self.sandbox.home().join("shims")
    }

    /// PATH with or without the shims.
    pub fn path(&self, shimmed: bool) -> OsString {
        let mut path = OsString::new();
        if shimmed {
            path.push(self.shims());
            path.push(":");
        }
        path.push(&self.bin);
        path.push(":");
        path.push(TOOLS);
        path
    }

    /// A command in the sandbox's surroundings.
    pub fn command(&self, program: impl AsRef<OsStr>, shimmed: bool) -> Command {
        let mut command = Command::new(program);
        self.sandbox.prepare(&mut command);
        command
            .env("PATH", self.path(shimmed))
            .env_remove("SUBSTRATE_HOME");
        command
    }

    /// A line, run by a shell with shims.
    pub fn sh(&self, line: &str) -> Output {
        self.command("/bin/sh", true)
            .args(["-c", line])
            .output()
            .unwrap()
    }

    /// Waits until this many commands have been recorded as complete: watchers write a moment later.
    pub fn completed(&self, count: usize) -> Vec<serde_json::Value> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let events = self.sandbox.events("command_complete");
            if events.len() >= count || Instant::now() > deadline {
                assert_eq!(events.len(), count, "{:?}", self.sandbox.trace());
                return events;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Whether the kernel tells endings to watchers, so that the tool can take the shim's place.
pub fn keeps_endings() -> bool {
    substrate_sys::process_info::keeps_endings()
}

/// Whether a program is there.
pub fn has(program: &str) -> bool {
    TOOLS
        .split(':')
        .any(|directory| Path::new(directory).join(program).is_file())
}

/// What came out, for comparing: process ids that a shell mentions are taken out.
pub fn told(output: &Output) -> (Option<i32>, Option<i32>, String, String) {
    use std::os::unix::process::ExitStatusExt;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let notes = text(&output.stderr);
    let notes: Vec<&str> = notes
        .split(' ')
        .filter(|word| !word.chars().all(|c| c.is_ascii_digit()))
        .collect();
    (
        output.status.code(),
        output.status.signal(),
        text(&output.stdout),
        notes.join(" "),
    )
}
