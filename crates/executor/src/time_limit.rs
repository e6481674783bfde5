//! `--timeout` for a command that no world holds: when its time is up, it and what it started are asked to
//! end, and ended if they do not.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::Duration;

use substrate_runtime::supervise::Ending;
use substrate_sys::pidfd;
use substrate_sys::process_group::{readable, signal};

use crate::front::Kind;
use crate::session::Session;

/// How a command that ran out of time ends, as `timeout` has it.
const TIMED_OUT: i32 = 124;

/// Between the request to end and the end.
const GRACE: Duration = Duration::from_secs(2);

/// Watches one command.
#[derive(Default)]
pub struct TimeLimit {
    watch: RefCell<Option<JoinHandle<bool>>>,
}

impl TimeLimit {
    /// Begins to count for a child that was just started.
    pub fn begin(&self, child: i32, time: Duration) {
        let Ok(process) = pidfd::open(child) else {
            return;
        };
        let watch = std::thread::spawn(move || {
            if has_ended(&process, time) {
                return false;
            }
            let all = family(child, process);
            for one in &all {
                let _ = pidfd::send(one.as_fd(), signal::TERM);
                // A stopped one would not hear it.
                let _ = pidfd::send(one.as_fd(), signal::CONT);
            }
            for one in &all {
                if !has_ended(one, GRACE) {
                    let _ = pidfd::kill(one.as_fd());
                }
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

fn has_ended(process: &OwnedFd, patience: Duration) -> bool {
    readable(&[process.as_fd()], Some(patience)).is_ok_and(|ended| ended.contains(&true))
}

/// A process and everything below it, each by a descriptor, so that no later process with its number is
/// taken for it.
fn family(child: i32, process: OwnedFd) -> Vec<OwnedFd> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for number in numbers {
        if let Some(parent) = parent_of(number) {
            children.entry(parent).or_default().push(number);
        }
    }
    let mut all = vec![process];
    let mut waiting = vec![child];
    while let Some(parent) = waiting.pop() {
        for number in children.remove(&parent).unwrap_or_default() {
            if let Ok(process) = pidfd::open(number)
                && parent_of(number) == Some(parent)
            {
                all.push(process);
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
