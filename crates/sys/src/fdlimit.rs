//! How many descriptors this process may have open.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The soft limit before we raised it; 0 while we have not.
static BEFORE: AtomicU64 = AtomicU64::new(0);

/// The soft and the hard limit.
pub fn get() -> (u64, u64) {
    let limit = getrlimit(Resource::Nofile);
    let number = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    (number(limit.current), number(limit.maximum))
}

/// Raises this process's soft limit to `wanted`, as far as the hard one lets it. What it starts
/// gets the old one back, because programs that use `select` break above 1024.
pub fn raise(wanted: u64) -> io::Result<()> {
    let (soft, hard) = get();
    let higher = wanted.min(hard);
    if higher <= soft {
        return Ok(());
    }
    let _ = BEFORE.compare_exchange(0, soft, Ordering::Relaxed, Ordering::Relaxed);
    set(higher, hard)
}

/// What programs that this process starts get.
pub fn handed_on() -> (u64, u64) {
    let (soft, hard) = get();
    match BEFORE.load(Ordering::Relaxed) {
        0 => (soft, hard),
        before => (before.min(hard), hard),
    }
}

/// Takes the raise back, in a child that is about to become another program. Only system calls.
pub fn restore() {
    let before = BEFORE.load(Ordering::Relaxed);
    if before != 0 {
        let (_, hard) = get();
        let _ = set(before.min(hard), hard);
    }
}

fn set(soft: u64, hard: u64) -> io::Result<()> {
    let limit = Rlimit {
        current: Some(soft),
        maximum: Some(hard),
    };
    Ok(setrlimit(Resource::Nofile, limit)?)
}
