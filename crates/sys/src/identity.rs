//! Who we are.

use rustix::fs::Mode;
use rustix::process;

/// The real user id.
pub fn user_id() -> u32 {
    process::getuid().as_raw()
}

/// The effective user id.
pub fn effective_user_id() -> u32 {
    process::geteuid().as_raw()
}

/// The file mode creation mask, left as it is. Only start-up code calls this, before there are threads
/// that could create a file in between.
pub fn umask() -> u32 {
    let mask = process::umask(Mode::RWXG | Mode::RWXO);
    process::umask(mask);
    mask.as_raw_mode()
}

/// On how many processors this thread may run, at least one.
pub fn processors() -> usize {
    let set = rustix::thread::sched_getaffinity(None);
    set.map_or(1, |set| set.count().max(1) as usize)
}
