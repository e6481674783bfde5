//! A person at a real terminal: waits for words on the screen and types.

use std::cell::RefCell;
use std::process::Command;
use std::time::{Duration, Instant};

use substrate_rig::{Replies, Screen};
use substrate_sys::process_group::Change;
use substrate_sys::terminal::Size;

/// How long something may take to appear before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program on a terminal of its own.
pub struct Person {
    screen: Screen,
    shown: RefCell<Vec<u8>>,
    seen: usize,
}

impl Person {
    /// Starts a program as the leader of a new terminal session.
    pub fn start(command: Command) -> Self {
        Self::at(command, Some(Replies::default()))
    }

    /// The same at a terminal that answers no program.
    pub fn at_a_mute_terminal(command: Command) -> Self {
        Self::at(command, None)
    }

    fn at(command: Command, replies: Option<Replies>) -> Self {
        let size = Size {
            rows: 50,
            columns: 200,
        };
        Self {
            screen: Screen::start(command, size, replies),
            shown: RefCell::default(),
            seen: 0,
        }
    }

    /// Types.
    pub fn types(&mut self, keys: &str) {
        self.screen.types(keys.as_bytes());
    }

    /// Types the word that is asked for on the screen.
    pub fn confirms(&mut self) {
        self.sees("To confirm, type ");
        let shown = self.text()[self.seen..].to_owned();
        let word: String = shown
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        self.types(&format!("{word}\r"));
    }

    /// Waits until something stands on the screen that was not there before, and reads on a little, as
    /// people do before they answer.
    pub fn sees(&mut self, wanted: &str) {
        let start = Instant::now();
        loop {
            if let Some(at) = self.text()[self.seen..].find(wanted) {
                self.seen += at + wanted.len();
                break;
            }
            assert!(
                start.elapsed() < PATIENCE && self.screen.ended().is_none() | self.waits(100),
                "{wanted:?} did not appear:\n{}",
                self.text()
            );
            self.waits(100);
        }
        std::thread::sleep(Duration::from_millis(300));
    }

    /// Everything that was shown.
    pub fn text(&self) -> String {
        self.waits(0);
        String::from_utf8_lossy(&self.shown.borrow()).into_owned()
    }

    /// Waits for the end; answers the status and what was shown.
    pub fn end(mut self) -> (i32, String) {
        let start = Instant::now();
        let status = loop {
            match self.screen.ended() {
                Some(Change::Exited(status)) => break status,
                Some(Change::Killed(signal)) => break 128 + signal,
                _ => {}
            }
            assert!(start.elapsed() < PATIENCE, "it goes on:\n{}", self.text());
            self.waits(50);
        };
        while self.waits(100) {}
        (status, self.text())
    }

    /// Waits until something is shown; false when nothing came in that time.
    fn waits(&self, milliseconds: u64) -> bool {
        let fresh = self.screen.take(Duration::from_millis(milliseconds));
        self.shown.borrow_mut().extend_from_slice(&fresh);
        !fresh.is_empty()
    }
}
