//! The ends of program starts that leave a span: nobody waits for such a process but its own parent, so it is
//! looked at until it is gone.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use substrate_trace::{Completion, Event, SpanInfo, Writer};

/// How often they are looked at.
const EVERY: Duration = Duration::from_millis(50);

/// A program that runs.
struct Running {
    span: SpanInfo,
    process: i32,
    /// When the process itself began, as the kernel counts: numbers are used again.
    born: Option<u64>,
    began: Instant,
}

impl Running {
    fn goes_on(&self) -> bool {
        self.born.is_some() && birth(self.process) == self.born
    }

    fn end(self, writer: &Writer) {
        let done = Completion {
            duration: self.began.elapsed(),
            ..Completion::default()
        };
        // The world that it ran in has more to lose than this record.
        let _ = writer.write(&Event::command_complete(&self.span, &done));
    }
}

/// When a process began; nothing once it has ended.
fn birth(process: i32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Records how programs end. What still runs when it is dropped has ended with its world.
pub struct Ends {
    starts: Option<Sender<Running>>,
    thread: Option<JoinHandle<()>>,
}

impl Ends {
    /// Begins to watch.
    pub fn watch(writer: Arc<Writer>) -> Self {
        let (starts, heard) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("ends".to_owned())
            .spawn(move || watch(&heard, &writer));
        Self {
            starts: Some(starts),
            thread: thread.ok(),
        }
    }

    /// A process runs another program from here on.
    pub fn began(&self, span: SpanInfo, process: i32) {
        let running = Running {
            span,
            process,
            born: birth(process),
            began: Instant::now(),
        };
        if let Some(starts) = &self.starts {
            let _ = starts.send(running);
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.starts = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(heard: &Receiver<Running>, writer: &Writer) {
    let mut running: Vec<Running> = Vec::new();
    loop {
        let next = match running.is_empty() {
            true => heard.recv().map_err(|_| RecvTimeoutError::Disconnected),
            false => heard.recv_timeout(EVERY),
        };
        match next {
            Ok(new) => {
                // The program before it in the same process ended with this start.
                for old in running.extract_if(.., |old| old.process == new.process) {
                    old.end(writer);
                }
                running.push(new);
            }
            Err(RecvTimeoutError::Timeout) => {
                for ended in running.extract_if(.., |running| !running.goes_on()) {
                    ended.end(writer);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                for left in running {
                    left.end(writer);
                }
                return;
            }
        }
    }
}
