//! The start of a program without what Rust's runtime does before `main`: reading the memory map for
//! the bounds of the stack, a second stack and handlers for its overflow. That is a third of what
//! a program costs that lives for a moment.

use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStringExt;

use crate::inherit::was_closed;

/// Defines `main` for a binary with `#![no_main]`, by a function that gets the arguments and never
/// returns.
#[macro_export]
macro_rules! main {
    ($run:path) => {
        // SAFETY: a binary has one `main`, and this one has the signature that the C library calls.
        #[unsafe(no_mangle)]
        extern "C" fn main(
            count: std::ffi::c_int,
            words: *const *const std::ffi::c_char,
        ) -> std::ffi::c_int {
            // SAFETY: the C library passes what the kernel laid out for this process.
            $run(unsafe { $crate::entry::begin(count, words) })
        }
    };
}

/// Does what every program needs of the runtime, and reads the arguments: standard descriptors that
/// were closed lead to `/dev/null`, so that nothing else gets their numbers, and a closed pipe is
/// an error and not the end.
///
/// # Safety
/// `words` must hold `count` strings that live as long as the process, or be null.
pub unsafe fn begin(
    count: std::ffi::c_int,
    words: *const *const std::ffi::c_char,
) -> Vec<OsString> {
    #[cfg(target_env = "gnu")]
    few_pages();
    if (0..3).any(was_closed) {
        // SAFETY: opens a file by a constant path; a number above the standard ones is closed again.
        unsafe {
            loop {
                let fd = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
                if fd > 2 {
                    libc::close(fd);
                }
                if !(0..=1).contains(&fd) {
                    break;
                }
            }
        }
    }
    // SAFETY: setting a disposition to a constant is always sound.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let count = if words.is_null() { 0 } else { count };
    (0..usize::try_from(count).unwrap_or_default())
        // SAFETY: the caller promises so many strings.
        .map(|at| unsafe { CStr::from_ptr(*words.add(at)) })
        .map(|word| OsString::from_vec(word.to_bytes().to_vec()))
        .collect()
}

/// What was freed is used again instead of being given back, and threads share it instead of reserving
/// memory of their own: most programs of ours live for a moment, in which fresh pages are what costs.
#[cfg(target_env = "gnu")]
fn few_pages() {
    const KEPT: std::ffi::c_int = 1 << 20;
    // SAFETY: sets numbers of the allocator, before there is a second thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT);
        libc::mallopt(libc::M_TOP_PAD, KEPT / 4);
    }
}
