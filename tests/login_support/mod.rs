//! A machine of its own for tests of logins: private `/etc`, `/home` and `/run`, throw-away users, its
//! own network, and the binary under test in `/usr/local/bin`.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::skip;
use crate::person::Person;

/// The first throw-away user; the second is the next one.
pub const ANN: u32 = 54_001;

/// Where the shell under test is on that machine.
pub const SHELL: &str = "/usr/local/bin/substrate";

/// The password of every throw-away user.
pub const PASSWORD: &str = "correct-horse-7";

/// The machine.
pub struct Machine {
    directory: tempfile::TempDir,
}

impl Machine {
    /// A fresh one with the users `ann` and `ben`, whose login shell is Substrate; nothing where this
    /// cannot be made, which is said aloud in the name of the test.
    pub fn new(test: &str, programs: &[&str]) -> Option<Self> {
        if substrate_sys::identity::effective_user_id() != 0 {
            skip(test, "only root can make users and mounts for it");
            return None;
        }
        for program in ["unshare", "su", "chpasswd"].iter().chain(programs) {
            let found = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"]
                .iter()
                .any(|directory| Path::new(directory).join(program).exists());
            if !found {
                skip(test, &format!("there is no {program}"));
                return None;
            }
        }
        let machine = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        // Users must be able to get to what lies in it.
        fs::set_permissions(machine.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["etc", "home", "run/sshd"] {
            fs::create_dir_all(machine.path(name)).unwrap();
        }
        let copied = Command::new("cp")
            .arg("-a")
            .arg("/etc/.")
            .arg(machine.path("etc"))
            .status();
        assert!(copied.unwrap().success(), "/etc cannot be copied");
        let _ = fs::remove_dir_all(machine.path("etc/substrate"));
        for (number, name) in ["ann", "ben"].iter().enumerate() {
            let id = ANN + u32::try_from(number).unwrap();
            machine.append(
                "etc/passwd",
                &format!("{name}:x:{id}:{id}::/home/{name}:{SHELL}\n"),
            );
            machine.append("etc/group", &format!("{name}:x:{id}:\n"));
            machine.append("etc/shadow", &format!("{name}:*:19000:0:99999:7:::\n"));
            machine.directory_of(&format!("home/{name}"), id);
        }
        machine.append("etc/shells", &format!("{SHELL}\n"));
        let trial = machine.run("true").status;
        if !trial.success() {
            skip(test, "mount and network namespaces cannot be made here");
            return None;
        }
        Some(machine)
    }

    /// Where something on the machine lies outside it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Adds to a file.
    pub fn append(&self, name: &str, text: &str) {
        let path = self.path(name);
        let before = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, before + text).unwrap();
    }

    /// Makes a directory of a user's.
    pub fn directory_of(&self, name: &str, user: u32) {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        chown(path, Some(user), Some(user)).unwrap();
    }

    /// Writes a file of a user's, and the directories above it.
    pub fn file_of(&self, name: &str, user: u32, text: &str) {
        let path = self.path(name);
        let home = self.path("home");
        let above: Vec<&Path> = path.ancestors().skip(1).collect();
        for directory in above.iter().rev().filter(|path| path.starts_with(&home)) {
            if !directory.exists() {
                fs::create_dir(directory).unwrap();
                chown(directory, Some(user), Some(user)).unwrap();
            }
        }
        fs::write(&path, text).unwrap();
        chown(path, Some(user), Some(user)).unwrap();
    }

    /// The login shell of a user, as the machine's passwd file says.
    pub fn shell_of(&self, user: &str) -> String {
        let passwd = fs::read_to_string(self.path("etc/passwd")).unwrap();
        let entry = passwd
            .lines()
            .find(|line| line.starts_with(&format!("{user}:")))
            .unwrap();
        entry.rsplit(':').next().unwrap().to_owned()
    }

    /// Gives a user another login shell.
    pub fn set_shell(&self, user: &str, shell: &str) {
        let passwd = fs::read_to_string(self.path("etc/passwd")).unwrap();
        let lines: Vec<String> = passwd
            .lines()
            .map(|line| match line.rsplit_once(':') {
                Some((rest, _)) if line.starts_with(&format!("{user}:")) => {
                    format!("{rest}:{shell}")
                }
                _ => line.to_owned(),
            })
            .collect();
        fs::write(self.path("etc/passwd"), lines.join("\n") + "\n").unwrap();
    }

    /// A program on the machine, as root; `before` is a script that root runs there first.
    pub fn command(&self, before: &str, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/login_support/enter"
        ));
        command
            .arg(self.path(""))
            .arg(env!("CARGO_BIN_EXE_substrate"))
            .arg(program)
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
            .env("BEFORE", before);
        command
    }

    /// Runs a script as root, with processes of its own that all end with it.
    pub fn run(&self, script: &str) -> Output {
        self.command("", "/bin/sh", &["-c", script])
            .env("OWN_PIDS", "1")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Somebody at a terminal of the machine.
    pub fn person(&self, before: &str, program: &str, arguments: &[&str]) -> Person {
        let mut command = self.command(before, program, arguments);
        command.env("TERM", "xterm");
        Person::start(command)
    }
}

/// Standard output and error together, as text.
pub fn text_of(output: &Output) -> String {
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    text
}
