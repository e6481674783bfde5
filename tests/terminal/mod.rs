//! A person at a terminal: types keys, reads what appears, on a real pseudo-terminal.
//!
//! The shell under test is the binary itself (in the tests of the crate `shell`, its example
//! `repl`), or the program that `SUBSTRATE_BIN` names. In `session_repl` every session lives in a
//! world.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use substrate_rig::{Replies, Screen};
use substrate_sys::process_group::Change;
use substrate_sys::terminal::{self, Size};
use tempfile::TempDir;

/// How long something may take to appear before the test fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sessions in a world whose project is where they start.
const POLICY: &str = "id: test\nname: Test\nmode: enforce\nfs:\n  read: [\"/**\"]\n  \
    write: [\"$PROJECT/**\", \"~/**\", \"/tmp/**\"]\n";

/// Whether the engine lives in a world.
pub fn in_world() -> bool {
    module_path!().starts_with("session_repl")
}

/// The shell under test.
pub fn shell_under_test() -> PathBuf {
    if let Some(path) = std::env::var_os("SUBSTRATE_BIN") {
        return PathBuf::from(path);
    }
    if let Some(path) = option_env!("CARGO_BIN_EXE_substrate") {
        return PathBuf::from(path);
    }
    let test = std::env::current_exe().unwrap();
    let path = test
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("examples/repl");
    assert!(
        path.exists(),
        "{} is not built: run cargo build --examples",
        path.display()
    );
    path
}

/// Whether a program is installed.
pub fn installed(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// A session to be started: a home directory of its own and an environment of its own.
pub struct Setup {
    pub home: TempDir,
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    pub name: Option<OsString>,
    pub environment: Vec<(OsString, OsString)>,
    pub size: Size,
}

impl Setup {
    pub fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let policies = home.path().join(".substrate/policies");
        std::fs::create_dir_all(&policies).unwrap();
        let mut setup = Self {
            program: shell_under_test(),
            arguments: match in_world() {
                true => vec!["--policy".into(), "test".into(), "-i".into()],
                false => vec!["-i".into()],
            },
            name: None,
            environment: Vec::new(),
            size: Size {
                rows: 24,
                columns: 80,
            },
            home,
        };
        if in_world() {
            std::fs::write(policies.join("test.yaml"), POLICY).unwrap();
        }
        let base = setup.home.path().to_path_buf();
        setup.set("HOME", &base);
        setup.set("SUBSTRATE_HOME", base.join(".substrate"));
        setup.set("PATH", substrate_rig::search_path());
        setup.set("TERM", "xterm");
        setup.set("LANG", "C.UTF-8");
        setup.rc("PS1='ready> '\nPROMPT_COMMAND='printf \"<%s>\\n\" $?'\n");
        setup
    }

    pub fn set(&mut self, name: &str, value: impl AsRef<OsStr>) -> &mut Self {
        self.environment.retain(|(known, _)| known != name);
        self.environment.push((name.into(), value.as_ref().into()));
        self
    }

    pub fn unset(&mut self, name: &str) -> &mut Self {
        self.environment.retain(|(known, _)| known != name);
        self
    }

    pub fn argument(&mut self, argument: &str) -> &mut Self {
        self.arguments.push(argument.into());
        self
    }

    /// Makes this text, with id `test`, the policy in use.
    pub fn policy(&mut self, text: &str) -> &mut Self {
        let text = format!("id: test\nname: Test\n{text}");
        self.file(".substrate/policies/test.yaml", &text);
        self.file(".substrate/active", "test\n");
        self
    }

    /// Writes `~/.bashrc`.
    pub fn rc(&mut self, text: &str) -> &mut Self {
        self.file(".bashrc", text);
        self
    }

    /// Writes a file below the home directory.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn start(self) -> Terminal {
        let mut command = Command::new(&self.program);
        if let Some(name) = &self.name {
            std::os::unix::process::CommandExt::arg0(&mut command, name);
        }
        command
            .args(&self.arguments)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(self.home.path());
        let screen = Screen::start(command, self.size, Some(Replies::default()));
        Terminal {
            process: screen.process(),
            screen,
            raw: Vec::new(),
            seen: 0,
            home: self.home,
        }
    }
}

/// A running session.
pub struct Terminal {
    screen: Screen,
    pub process: i32,
    raw: Vec<u8>,
    seen: usize,
    pub home: TempDir,
}

impl Terminal {
    /// A session with the usual start-up file, at its first prompt.
    pub fn ready() -> Self {
        let mut terminal = Setup::new().start();
        terminal.wait_for("<0>");
        terminal
    }

    /// Types bytes. Substrate's own commands are a person's, who types them at a prompt: what is there
    /// before it counts as typed for the program that ran.
    pub fn keys(&mut self, bytes: impl AsRef<[u8]>) {
        if bytes.as_ref().starts_with(b"substrate ") {
            self.await_prompt();
        }
        self.screen.types(bytes.as_ref());
    }

    /// Waits for the prompt, where it is the one that tests set.
    fn await_prompt(&mut self) {
        let end = Instant::now() + Duration::from_secs(5);
        let shown = |text: &str| text.trim_end_matches(['\r', '\n']).ends_with("ready> ");
        while !shown(&self.unseen()) && Instant::now() < end {
            self.pump(Duration::from_millis(50));
        }
    }

    /// Types a line, waits for its end, and answers its output and status.
    pub fn run(&mut self, line: &str) -> (String, i32) {
        self.keys(format!("{line}\r"));
        self.finish()
    }

    /// Types a line that must succeed, and answers its output.
    pub fn output(&mut self, line: &str) -> String {
        let (output, status) = self.run(line);
        assert_eq!(status, 0, "{line}: {output}");
        output
    }

    /// Waits for the end of the line that runs, and answers its output and status.
    pub fn finish(&mut self) -> (String, i32) {
        let start = Instant::now();
        loop {
            let text = self.text();
            let fresh = text.get(self.seen..).unwrap_or_default();
            if let Some((before, status, length)) = find_status(fresh) {
                self.seen += length;
                return (after_echo(&before), status);
            }
            self.read_more(start, "the end of the line");
        }
    }

    /// Waits until the text appears after what was seen so far.
    pub fn wait_for(&mut self, wanted: &str) -> String {
        let start = Instant::now();
        loop {
            let text = self.text();
            let fresh = text.get(self.seen..).unwrap_or_default();
            if let Some(at) = fresh.find(wanted) {
                let before = fresh.get(..at).unwrap_or_default().to_owned();
                self.seen += at + wanted.len();
                return before;
            }
            self.read_more(start, wanted);
        }
    }

    /// Everything that appeared so far, without escape sequences.
    pub fn text(&self) -> String {
        clean(&self.raw)
    }

    /// Everything that appeared so far, as it came.
    pub fn raw(&self) -> String {
        String::from_utf8_lossy(&self.raw).into_owned()
    }

    /// What appeared after what was seen so far.
    pub fn unseen(&self) -> String {
        self.text().get(self.seen..).unwrap_or_default().to_owned()
    }

    fn read_more(&mut self, start: Instant, wanted: &str) {
        if start.elapsed() > PATIENCE || !self.pump(Duration::from_millis(200)) {
            panic!(
                "{wanted:?} did not appear; the terminal shows:\n{}\n",
                self.text()
            );
        }
    }

    /// Reads what comes within the time; false once the terminal is gone.
    fn pump(&mut self, time: Duration) -> bool {
        if self.screen.is_over() {
            let last = self.screen.take(Duration::ZERO);
            self.raw.extend_from_slice(&last);
            return false;
        }
        let fresh = self.screen.take(time);
        self.raw.extend_from_slice(&fresh);
        self.ended().is_none()
    }

    /// Reads until a text comes, keeps nothing before it, and counts one byte value on the way.
    pub fn count_until(&mut self, counted: u8, wanted: &str) -> u64 {
        let same = [counted; 65536];
        let mut count = 0;
        loop {
            let before = self.raw.len();
            assert!(self.pump(PATIENCE), "{wanted:?} did not appear");
            let fresh = &self.raw[before..];
            if same.starts_with(fresh) {
                count += fresh.len() as u64;
                self.raw.truncate(before);
                continue;
            }
            count += fresh.iter().filter(|byte| **byte == counted).count() as u64;
            if self.raw().contains(wanted) {
                self.seen = 0;
                return count;
            }
            // What may be the beginning of the text stays.
            let keep = self.raw.len().min(wanted.len());
            self.raw.drain(..self.raw.len() - keep);
        }
    }

    /// Reads for a while whatever comes.
    pub fn settle(&mut self, time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time && self.pump(Duration::from_millis(50)) {}
    }

    /// How the session ended, if it did.
    pub fn ended(&mut self) -> Option<Change> {
        self.screen.ended()
    }

    /// Waits for the session to end.
    pub fn wait_end(&mut self) -> Change {
        let start = Instant::now();
        loop {
            if let Some(change) = self.ended() {
                while self.pump(Duration::from_millis(20)) {}
                return change;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "the session goes on:\n{}",
                self.text()
            );
            self.pump(Duration::from_millis(100));
        }
    }

    pub fn resize(&mut self, rows: u16, columns: u16) {
        terminal::set_size(self.screen.master(), Size { rows, columns }).unwrap();
    }

    /// The terminal's own modes, as `stty` would see them.
    pub fn modes(&self) -> terminal::Modes {
        terminal::Modes::of(self.screen.slave()).unwrap()
    }

    /// The process group that owns the terminal.
    pub fn foreground(&self) -> i32 {
        terminal::foreground(self.screen.master()).unwrap_or(-1)
    }

    /// Takes the terminal away, as a closed window does.
    pub fn hang_up(&mut self) {
        self.screen.hang_up();
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// The events of the trace, as JSON; what is being written is none yet.
    pub fn trace(&self) -> Vec<serde_json::Value> {
        self.content(".substrate/trace.jsonl")
            .split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// The lines of the events of one kind.
    pub fn traced(&self, kind: &str) -> Vec<String> {
        self.trace()
            .iter()
            .filter(|event| event["event_type"] == kind)
            .map(|event| event["cmd"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    pub fn content(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Waits until a file has this in it.
    pub fn wait_for_file(&mut self, name: &str, wanted: &str) {
        let start = Instant::now();
        while !self.content(name).contains(wanted) {
            assert!(
                start.elapsed() < PATIENCE,
                "{name} has {:?}, not {wanted:?}",
                self.content(name)
            );
            if !self.pump(Duration::from_millis(50)) {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// The first `<status>` that the prompt hook printed: what is before it, it, and how far it goes.
fn find_status(text: &str) -> Option<(String, i32, usize)> {
    for (at, _) in text.match_indices('<') {
        let rest = text.get(at + 1..)?;
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let tail = rest.get(digits.len()..)?;
        if !digits.is_empty() && tail.starts_with(">\n") {
            let before = text.get(..at)?.to_owned();
            return Some((before, digits.parse().ok()?, at + digits.len() + 3));
        }
    }
    None
}

/// What follows the editing of the line: the editor's last redraw ends with the line's own echo.
fn after_echo(text: &str) -> String {
    match text.rfind("ready> ") {
        Some(at) => {
            let rest = text.get(at..).unwrap_or_default();
            rest.split_once('\n')
                .map_or_else(String::new, |(_, output)| output.to_owned())
        }
        None => text.to_owned(),
    }
}

/// Text without escape sequences and carriage returns.
pub fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\r' | '\x07' => {}
            '\x1b' => match characters.next() {
                Some('[') => {
                    for next in characters.by_ref() {
                        if ('\u{40}'..='\u{7e}').contains(&next) {
                            break;
                        }
                    }
                }
                Some(']') => {
                    for next in characters.by_ref() {
                        if next == '\x07' || next == '\\' {
                            break;
                        }
                    }
                }
                Some('(' | ')') => {
                    characters.next();
                }
                _ => {}
            },
            other => plain.push(other),
        }
    }
    plain
}

/// Waits until a condition holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} did not come true");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a process still runs.
pub fn is_alive(process: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .trim_start()
            .starts_with('Z')
    })
}

/// The path of a file as text.
pub fn text_of(path: &Path) -> String {
    path.display().to_string()
}
