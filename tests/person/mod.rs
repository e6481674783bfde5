//! A person at a real terminal: waits for words on the screen and types.

use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use substrate_rig::Replies;
use substrate_sys::process_group::{self, Change, Placement};
use substrate_sys::terminal::{self, Pty, Size};

/// How long something may take to appear before the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program on a terminal of its own.
pub struct Person {
    terminal: Arc<Terminal>,
    process: i32,
    seen: usize,
    ended: Option<Change>,
}

/// A terminal, which shows and answers whether somebody looks or not.
struct Terminal {
    pty: Pty,
    screen: Mutex<Vec<u8>>,
    shown: Condvar,
    gone: AtomicBool,
}

impl Terminal {
    fn on(self: &Arc<Self>, mut replies: Option<Replies>) {
        let terminal = Arc::clone(self);
        std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while !terminal.gone.load(Ordering::SeqCst) {
                let wait = Some(Duration::from_millis(50));
                let ready = process_group::readable(&[terminal.pty.master.as_fd()], wait);
                if !ready.is_ok_and(|ready| ready.contains(&true)) {
                    continue;
                }
                let Ok(count) = process_group::read(&terminal.pty.master, &mut buffer) else {
                    return;
                };
                terminal.screen.lock().unwrap().extend(&buffer[..count]);
                terminal.shown.notify_all();
                if let Some(replies) = &mut replies {
                    let reply = replies.to(&buffer[..count]);
                    let _ = process_group::write_all(&terminal.pty.master, &reply);
                }
            }
        });
    }
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

    fn at(mut command: Command, replies: Option<Replies>) -> Self {
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
        let terminal = Arc::new(Terminal {
            pty,
            screen: Mutex::new(Vec::new()),
            shown: Condvar::new(),
            gone: AtomicBool::new(false),
        });
        terminal.on(replies);
        Self {
            terminal,
            process,
            seen: 0,
            ended: None,
        }
    }

    /// Types.
    pub fn types(&mut self, keys: &str) {
        process_group::write_all(&self.terminal.pty.master, keys.as_bytes()).unwrap();
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
                start.elapsed() < PATIENCE && self.ended().is_none() | self.waits(100),
                "{wanted:?} did not appear:\n{}",
                self.text()
            );
            self.waits(100);
        }
        std::thread::sleep(Duration::from_millis(300));
    }

    /// Everything that was shown.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.terminal.screen.lock().unwrap()).into_owned()
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
            self.waits(50);
        };
        while self.waits(100) {}
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

    /// Waits until something is shown; false when nothing came in that time.
    fn waits(&self, milliseconds: u64) -> bool {
        let screen = self.terminal.screen.lock().unwrap();
        let before = screen.len();
        let time = Duration::from_millis(milliseconds);
        let shown = &self.terminal.shown;
        let waited = shown.wait_timeout_while(screen, time, |screen| screen.len() == before);
        waited.unwrap().0.len() > before
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = process_group::send(self.process, process_group::signal::KILL);
            let _ = process_group::change_of(self.process, true);
        }
        self.terminal.gone.store(true, Ordering::SeqCst);
    }
}
