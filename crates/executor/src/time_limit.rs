//! `--timeout` for a command that no world holds: when its time is up, it and what it started are asked to
//! end, and ended if they do not.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use substrate_runtime::supervise::Ending;
use substrate_sys::process_group::{readable, signal};
use substrate_sys::{pidfd, process_info};

use crate::front::Kind;
use crate::session::Session;

/// How a command that ran out of time ends, as `timeout` has it.
const TIMED_OUT: i32 = 124;

/// How often is looked for what was started meanwhile.
const ROUNDS: usize = 50;
/// Between the request to end and the end.
const GRACE: Duration = Duration::from_secs(2);

/// Watches one command.
#[derive(Default)]
pub struct TimeLimit {
    watch: RefCell<Option<JoinHandle<bool>>>,
}

impl TimeLimit {
    /// One for a child that is about to be started. From before that on, what loses its parent stays below this process,
    /// and is found when the time is up.
    pub fn prepared(time: Option<Duration>) -> Self {
        if time.is_some() {
            let _ = process_info::adopt_orphans();
        }
        Self::default()
    }

    /// Begins to count for a child that was just started.
    pub fn begin(&self, child: i32, time: Duration) {
        let Ok(process) = pidfd::open(child) else {
            return;
        };
        let watch = std::thread::spawn(move || {
            if has_ended(&process, time) {
                return false;
            }
            let all = all_below_us();
            for one in &all {
                let _ = pidfd::send(one.as_fd(), signal::TERM);
                // A stopped one would not hear it.
                let _ = pidfd::send(one.as_fd(), signal::CONT);
            }
            await_all(&all);
            // Whoever starts others meanwhile is outrun, as far as that goes.
            for _ in 0..ROUNDS {
                let left = all_below_us();
                if left.is_empty() {
                    break;
                }
                for one in &left {
                    let _ = pidfd::kill(one.as_fd());
                }
                await_all(&left);
            }
            true
        });
        self.watch.replace(Some(watch));
    }

    /// Whether the time was up before the command ended; once everything that it started has ended too.
    pub fn is_over(&self) -> bool {
        let watch = self.watch.take();
        watch.is_some_and(|watch| watch.join().unwrap_or(false))
    }
}

/// Says that a command was ended because its time was up, and how it ended by that.
pub fn tell_timeout(session: &Session) -> Ending {
    let seconds = session.timeout.unwrap_or_default().as_secs();
    let text = format!("the command was ended: it took longer than {seconds} s (--timeout)");
    session.front.say(Kind::Failed, &text);
    Ending::Exit(TIMED_OUT)
}

/// Gives all of them the same moment to end.
fn await_all(processes: &[OwnedFd]) {
    let end = Instant::now() + GRACE;
    for process in processes {
        has_ended(process, end.saturating_duration_since(Instant::now()));
    }
}

fn has_ended(process: &OwnedFd, patience: Duration) -> bool {
    readable(&[process.as_fd()], Some(patience)).is_ok_and(|ended| ended.contains(&true))
}

/// Everything that runs below this process, each by a descriptor, so that no later process with its number is
/// taken for it.
fn all_below_us() -> Vec<OwnedFd> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for number in numbers {
        if let Some(parent) = parent_of(number) {
            children.entry(parent).or_default().push(number);
        }
    }
    let mut all = Vec::new();
    let mut waiting = vec![std::process::id().cast_signed()];
    while let Some(parent) = waiting.pop() {
        for number in children.remove(&parent).unwrap_or_default() {
            if let Ok(process) = pidfd::open(number)
                && parent_of(number) == Some(parent)
            {
                if !has_ended(&process, Duration::ZERO) {
                    all.push(process);
                }
                waiting.push(number);
            }
        }
    }
    all
}

fn parent_of(process: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may hold anything, parentheses included.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(1)?.parse().ok()
}
