//! What is left to do when nobody waits for us any more: a small process of its own does it, once this
//! one has ended. It also gives back our memory, which takes longer than most of what is left.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{process_info, watch};

type Task = Box<dyn Fn() + Send + Sync>;

static LEFT: Mutex<Left> = Mutex::new(Left {
    open: Vec::new(),
    tasks: Vec::new(),
});

/// What is left to do: descriptors to be closed, and then the tasks.
#[derive(Default)]
struct Left {
    open: Vec<OwnedFd>,
    tasks: Vec<Task>,
}

fn left() -> MutexGuard<'static, Left> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leaves something for later. It is lost if that other process is killed, and must not use
/// descriptors that are open now: the other process has none of them.
pub fn add(task: impl Fn() + Send + Sync + 'static) {
    left().tasks.push(Box::new(task));
}

/// Leaves a descriptor to be closed later, because that takes its time.
pub fn close(descriptor: OwnedFd) {
    left().open.push(descriptor);
}

/// Has it done, by that process or, where there cannot be one, at once. What follows is our end.
/// `arguments` is the number of our arguments.
pub fn begin(arguments: usize) {
    let Left { open, tasks } = std::mem::take(&mut *left());
    if open.is_empty() && tasks.is_empty() {
        return;
    }
    let kept: Vec<RawFd> = open.iter().map(AsRawFd::as_raw_fd).collect();
    let tasks = Arc::new(tasks);
    let theirs = tasks.clone();
    let run = move |_| theirs.iter().for_each(|task| task());
    let later = alone() && process_info::keeps_endings();
    if later && watch::start(arguments, &kept, || (), run).is_ok() {
        // Both processes have them, and the other one closes them last.
        return;
    }
    drop(open);
    tasks.iter().for_each(|task| task());
}

/// Whether we are one thread: another one that ends with us may hold a lock of the allocator, and
/// nobody would ever give that back.
fn alone() -> bool {
    const NONE: u64 = 2;
    std::fs::metadata("/proc/self/task").is_ok_and(|threads| threads.nlink() == NONE + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_thread_is_noticed() {
        // The test runs beside the main thread of its program.
        assert!(!alone());
    }
}
