//! A person at a real terminal: waits for words on the screen and types.

use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use substrate_sys::process_group::{self, Change, Placement};
use substrate_sys::terminal::{self, Pty, Size};

/// How long something may take to appear before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program on a terminal of its own.
pub struct Person {
    pty: Pty,
    process: i32,
    screen: Vec<u8>,
    seen: usize,
    ended: Option<Change>,
}

impl Person {
    /// Starts a program as the leader of a new terminal session.
    pub fn start(mut command: Command) -> Self {
        let pty = terminal::open_pty().unwrap();
        let size = Size {
            rows: 50,
            columns: 200,
        };
        terminal::set_size(&pty.master, size).unwrap();
        command
            .stdin(Stdio::from(pty.slave.try_clone().unwrap()))
            .stdout(Stdio::from(pty.slave.try_clone().unwrap()))
            .stderr(Stdio::from(pty.slave.try_clone().unwrap()));
        let placement = Placement {
            foreground_of: None,
            session_on: Some(pty.slave.as_fd()),
            descriptors: Vec::new(),
        };
        let process = process_group::spawn(command, &placement).unwrap();
        Self {
            pty,
            process,
            screen: Vec::new(),
            seen: 0,
            ended: None,
        }
    }

    /// Types.
    pub fn types(&mut self, keys: &str) {
        process_group::write_all(&self.pty.master, keys.as_bytes()).unwrap();
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
                start.elapsed() < PATIENCE && self.ended().is_none() | self.pump(100),
                "{wanted:?} did not appear:\n{}",
                self.text()
            );
            self.pump(100);
        }
        let quiet = Instant::now();
        while quiet.elapsed() < Duration::from_millis(300) {
            self.pump(50);
        }
    }

    /// Everything that was shown.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen).into_owned()
    }

    /// Waits for the end; answers the status and what was shown.
    pub fn end(mut self) -> (i32, String) {
        let start = Instant::now();
        let status = loop {
            match self.ended() {
                Some(Change::Exited(status)) => break status,
                Some(Change::Killed(signal)) => break 128 + signal,
                _ => {}
            }
            assert!(start.elapsed() < PATIENCE, "it goes on:\n{}", self.text());
            self.pump(50);
        };
        while self.pump(50) {}
        (status, self.text())
    }

    fn ended(&mut self) -> Option<Change> {
        if self.ended.is_none() {
            self.ended = match process_group::change_of(self.process, false) {
                Ok(Some(change @ (Change::Exited(_) | Change::Killed(_)))) => Some(change),
                _ => None,
            };
        }
        self.ended
    }

    /// Reads what comes within the time; false when nothing came.
    fn pump(&mut self, milliseconds: u64) -> bool {
        let time = Some(Duration::from_millis(milliseconds));
        let ready = process_group::readable(&[self.pty.master.as_fd()], time).unwrap();
        if ready.first() != Some(&true) {
            return false;
        }
        let mut buffer = [0; 65536];
        match process_group::read(&self.pty.master, &mut buffer) {
            Ok(count) if count > 0 => {
                self.screen.extend_from_slice(&buffer[..count]);
                true
            }
            _ => false,
        }
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = process_group::send(self.process, process_group::signal::KILL);
            let _ = process_group::change_of(self.process, true);
        }
    }
}
