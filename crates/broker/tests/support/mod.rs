//! A home and a project of their own.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "every test file uses its own part of this"
)]

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use substrate_broker::{
    Broker, BrokerError, Choice, Evaluation, Home, Input, Options, Origin, Request,
};

pub struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    pub fn new() -> Self {
        Self::in_directory(&std::env::temp_dir())
    }

    pub fn in_directory(around: &Path) -> Self {
        let directory = tempfile::tempdir_in(around).unwrap();
        for name in ["home/policies", "project/.git", "project/sub"] {
            std::fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        Self { directory }
    }

    pub fn home(&self) -> Home {
        Home {
            path: self.directory.path().join("home"),
            user: self.directory.path().to_owned(),
        }
    }

    pub fn project(&self) -> PathBuf {
        self.directory.path().join("project")
    }

    pub fn policy(&self, id: &str, body: &str) -> PathBuf {
        let path = self.home().policies().join(format!("{id}.yaml"));
        // As editors do it: written aside, then moved into place.
        let aside = path.with_extension("tmp");
        std::fs::write(&aside, format!("id: {id}\nname: {id}\n{body}")).unwrap();
        std::fs::rename(&aside, &path).unwrap();
        path
    }

    pub fn profile(&self, directory: &str, name: &str) {
        let directory = self.project().join(directory);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(".substrate-profile"), name).unwrap();
    }

    /// A program that does nothing.
    pub fn program(&self, path: &Path) {
        std::fs::write(path, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }

    pub fn broker(&self, policy: &str) -> Broker {
        self.broker_with(policy, false)
    }

    pub fn broker_with(&self, policy: &str, require_approval: bool) -> Broker {
        Broker::open(self.home(), self.options(policy, require_approval)).unwrap()
    }

    pub fn try_broker(&self, policy: &str) -> Result<Broker, BrokerError> {
        Broker::open(self.home(), self.options(policy, false))
    }

    pub fn broker_for_a_person(&self, policy: &str) -> Broker {
        Broker::open_for_a_person(self.home(), self.options(policy, false)).unwrap()
    }

    pub fn options(&self, policy: &str, require_approval: bool) -> Options {
        Options {
            choice: Choice::Name(policy.to_owned()),
            ceilings: Vec::new(),
            require_approval,
            world: None,
            home_variable: None,
            unattended: false,
            session_start: self.project(),
            caller: substrate_broker::Caller::own(),
        }
    }
}

pub fn request<'a>(line: &'a str, cwd: &'a Path, origin: Origin) -> Request<'a> {
    Request {
        input: Input::Line(line.as_bytes()),
        origin,
        cwd,
        search_path: OsStr::new("/usr/bin:/bin"),
        variables: &[],
        aliases: &[],
        isolate: false,
        around: substrate_broker::Around::Nothing,
    }
}

pub fn judge(broker: &Broker, line: &str, cwd: &Path) -> Evaluation {
    broker.evaluate(&request(line, cwd, Origin::OneShot))
}

/// Says loudly that a test, or a part of it, did not run, and counts it.
#[allow(clippy::print_stderr, reason = "a skip must be seen")]
/// Says loudly that a test did not run, and counts it.
pub fn skip(test: &str, reason: &str) {
    substrate_rig::skip(test, reason);
}

/// Puts something where a state file should be, given what stood there; false where that takes more
/// rights than we have.
type Put = fn(&Path, &str) -> bool;

/// State files that must not be believed, with a word of the message about each.
pub const BAD_STATE: [(&str, Put, &str); 11] = [
    (
        "cut short",
        |path, good| written(path, &good[..good.len() / 2]),
        "damaged",
    ),
    ("empty", |path, _| written(path, ""), "damaged"),
    (
        "another version",
        |path, good| written(path, &good.replace("\"v\": 1", "\"v\": 2")),
        "version 2",
    ),
    (
        "no version",
        |path, good| written(path, &good.replace("\"v\": 1,", "")),
        "version null",
    ),
    (
        "without a digest",
        |path, _| written(path, "{\"v\":1,\"entries\":[]}"),
        "did not write it",
    ),
    (
        "open to others",
        |path, _| std::fs::set_permissions(path, Permissions::from_mode(0o640)).is_ok(),
        "chmod 600",
    ),
    (
        "of another user",
        |path, _| std::os::unix::fs::chown(path, Some(65_534), None).is_ok(),
        "belongs to user 65534",
    ),
    (
        "a directory",
        |path, _| {
            std::fs::remove_file(path)
                .and_then(|()| std::fs::create_dir(path))
                .is_ok()
        },
        "not a regular file",
    ),
    (
        "a link",
        |path, good| {
            let real = path.with_extension("real");
            written(&real, good)
                && std::fs::remove_file(path).is_ok()
                && std::os::unix::fs::symlink(real, path).is_ok()
        },
        "",
    ),
    (
        "a pipe that nobody writes to",
        |path, _| {
            let make = || std::process::Command::new("mkfifo").arg(path).status();
            std::fs::remove_file(path).is_ok() && make().is_ok_and(|made| made.success())
        },
        "not a regular file",
    ),
    (
        "four megabytes and more",
        |path, good| written(path, &format!("{good}{}", " ".repeat(5 << 20))),
        "larger than",
    ),
];

fn written(path: &Path, text: &str) -> bool {
    let private = std::fs::write(path, text)
        .and_then(|()| std::fs::set_permissions(path, Permissions::from_mode(0o600)));
    private.is_ok()
}
