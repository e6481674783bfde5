//! A program on a terminal of its own, which shows and answers whether somebody looks or not.

use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use substrate_sys::process_group::{self, Change, Placement};
use substrate_sys::terminal::{self, Pty, Size};

use crate::{Replies, as_from_a_login};

/// How long a program may take to end once its terminal is gone.
const GRACE: Duration = Duration::from_secs(5);

/// A program and its terminal.
pub struct Screen {
    seat: Option<Seat>,
    process: i32,
    ended: Option<Change>,
}

/// The terminal, and whoever reads it.
struct Seat {
    pty: Arc<Pty>,
    shown: Arc<Shown>,
    reader: Option<JoinHandle<()>>,
}

/// What was shown and nobody has taken yet.
#[derive(Default)]
struct Shown {
    bytes: Mutex<Vec<u8>>,
    more: Condvar,
    /// Nothing more will come.
    over: AtomicBool,
    /// Nobody wants more.
    unwanted: AtomicBool,
}

impl Screen {
    /// Starts a program as the leader of a new session on a terminal that answers programs as `replies` does.
    #[allow(clippy::unwrap_used, reason = "a test may stop")]
    pub fn start(mut command: Command, size: Size, replies: Option<Replies>) -> Self {
        let pty = terminal::open_pty().unwrap();
        terminal::set_size(&pty.master, size).unwrap();
        let slave = || Stdio::from(pty.slave.try_clone().unwrap());
        command.stdin(slave()).stdout(slave()).stderr(slave());
        as_from_a_login(&mut command);
        let placement = Placement {
            foreground_of: None,
            session_on: Some(pty.slave.as_fd()),
            descriptors: Vec::new(),
        };
        let process = process_group::spawn(command, &placement).unwrap();
        let (pty, shown) = (Arc::new(pty), Arc::new(Shown::default()));
        let reader = {
            let (pty, shown) = (Arc::clone(&pty), Arc::clone(&shown));
            std::thread::spawn(move || follow(&pty, &shown, replies))
        };
        let seat = Seat {
            pty,
            shown,
            reader: Some(reader),
        };
        Self {
            seat: Some(seat),
            process,
            ended: None,
        }
    }

    /// Its process.
    pub fn process(&self) -> i32 {
        self.process
    }

    /// Types.
    #[allow(clippy::unwrap_used, reason = "a test may stop")]
    pub fn types(&self, keys: &[u8]) {
        process_group::write_all(self.master(), keys).unwrap();
    }

    /// What was shown since this was asked last; waits so long for something.
    pub fn take(&self, time: Duration) -> Vec<u8> {
        let Some(Seat { shown, .. }) = &self.seat else {
            return Vec::new();
        };
        let bytes = shown.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let nothing = |bytes: &mut Vec<u8>| bytes.is_empty() && !shown.over.load(Ordering::SeqCst);
        let waited = shown.more.wait_timeout_while(bytes, time, nothing);
        let (mut bytes, _) = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut bytes)
    }

    /// Whether nothing more will be shown.
    pub fn is_over(&self) -> bool {
        let seat = self.seat.as_ref();
        seat.is_none_or(|seat| seat.shown.over.load(Ordering::SeqCst))
    }

    /// How the program ended, if it did.
    pub fn ended(&mut self) -> Option<Change> {
        if self.ended.is_none() {
            self.ended = match process_group::change_of(self.process, false) {
                Ok(Some(change @ (Change::Exited(_) | Change::Killed(_)))) => Some(change),
                _ => None,
            };
        }
        self.ended
    }

    /// The terminal as the person has it.
    #[allow(clippy::expect_used, reason = "a test may stop")]
    pub fn master(&self) -> BorrowedFd<'_> {
        let seat = self.seat.as_ref().expect("the terminal is there");
        seat.pty.master.as_fd()
    }

    /// The terminal as programs have it.
    #[allow(clippy::expect_used, reason = "a test may stop")]
    pub fn slave(&self) -> BorrowedFd<'_> {
        let seat = self.seat.as_ref().expect("the terminal is there");
        seat.pty.slave.as_fd()
    }

    /// Takes the terminal away, as a closed window does.
    pub fn hang_up(&mut self) {
        self.seat = None;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.shown.unwanted.store(true, Ordering::SeqCst);
        // It has a copy of the terminal, which is there for as long.
        let _ = self.reader.take().map(JoinHandle::join);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.ended().is_some() {
            return;
        }
        let _ = process_group::send(self.process, process_group::signal::HUP);
        self.seat = None;
        let start = Instant::now();
        while self.ended().is_none() && start.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(10));
        }
        if self.ended().is_none() {
            let _ = process_group::send(self.process, process_group::signal::KILL);
            let _ = process_group::change_of(self.process, true);
        }
    }
}

fn follow(pty: &Pty, shown: &Shown, mut replies: Option<Replies>) {
    let mut buffer = [0; 65536];
    while !shown.unwanted.load(Ordering::SeqCst) {
        let wait = Some(Duration::from_millis(50));
        let ready = process_group::readable(&[pty.master.as_fd()], wait);
        if !ready.is_ok_and(|ready| ready.contains(&true)) {
            continue;
        }
        let Ok(count @ 1..) = process_group::read(&pty.master, &mut buffer) else {
            break;
        };
        let fresh = buffer.get(..count).unwrap_or_default();
        let mut bytes = shown.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        bytes.extend_from_slice(fresh);
        drop(bytes);
        shown.more.notify_all();
        if let Some(replies) = &mut replies {
            let _ = process_group::write_all(&pty.master, &replies.to(fresh));
        }
    }
    shown.over.store(true, Ordering::SeqCst);
    shown.more.notify_all();
}
