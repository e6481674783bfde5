//! What this process was started with, seen before anything of ours changes it, and how a program
//! that takes our place gets it back untouched.

use std::ffi::{CStr, CString};
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// Bit n: standard descriptor n was closed.
static CLOSED: AtomicU8 = AtomicU8::new(0);

/// Runs before `main`, where Rust's runtime opens `/dev/null` in place of closed descriptors.
extern "C" fn remember_closed() {
    let mut closed = 0;
    for fd in 0..3 {
        // SAFETY: asking for the flags of a descriptor changes nothing.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            closed |= 1 << fd;
        }
    }
    CLOSED.store(closed, Ordering::Relaxed);
}

#[used]
// SAFETY: `.init_array` holds pointers to C functions that the loader calls once before `main`.
#[unsafe(link_section = ".init_array")]
static REMEMBER_CLOSED: extern "C" fn() = remember_closed;

/// Whether this standard descriptor was closed when the process started.
pub fn was_closed(fd: u8) -> bool {
    CLOSED.load(Ordering::Relaxed) & (1 << fd) != 0
}

/// Closes the standard descriptors that were closed when the process started. What is opened
/// afterwards may get their numbers, so this comes right before another program is started.
pub fn close_again() {
    for fd in 0..3_u8 {
        if was_closed(fd) {
            // SAFETY: Rust's runtime put `/dev/null` there; nothing owns the number.
            unsafe { libc::close(i32::from(fd)) };
        }
    }
}

/// The path that was given to execve for this process, or for the script it interprets.
pub fn exec_path() -> Option<&'static CStr> {
    // SAFETY: the auxiliary vector's string lies on the initial stack and is never freed.
    unsafe {
        let path = libc::getauxval(libc::AT_EXECFN) as *const libc::c_char;
        (!path.is_null()).then(|| CStr::from_ptr(path))
    }
}

/// A program that we can become: everything that the kernel wants to know, laid out beforehand.
#[derive(Debug)]
pub struct Successor<'a> {
    path: &'a CStr,
    argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
}

impl<'a> Successor<'a> {
    /// Lays out a program, its arguments and its environment.
    pub fn new(path: &'a CStr, argv: &'a [CString], env: &'a [CString]) -> Self {
        let pointers = |strings: &'a [CString]| {
            let all = strings.iter().map(|string| string.as_ptr());
            all.chain([ptr::null()]).collect()
        };
        Self {
            path,
            argv: pointers(argv),
            env: pointers(env),
        }
    }

    /// Becomes the program, which gets descriptors and signal dispositions as we got them. Returns
    /// only to say why that failed. Allocates nothing.
    pub fn take_over(&self) -> io::Error {
        let pipe = if crate::supervise::pipe_was_ignored() {
            libc::SIG_IGN
        } else {
            libc::SIG_DFL
        };
        close_again();
        // SAFETY: the arrays end with a null pointer and their strings outlive the call; setting a
        // disposition to a constant is always sound.
        unsafe {
            libc::signal(libc::SIGPIPE, pipe);
            libc::execve(self.path.as_ptr(), self.argv.as_ptr(), self.env.as_ptr());
        }
        let error = io::Error::last_os_error();
        // SAFETY: as above; a failed exec leaves us running, and writes to closed pipes must not
        // end us.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        error
    }
}

/// Replaces what process listings show of this process, so that nobody who looks for the program
/// that we stand in for finds us instead. For forked helpers only: the arguments are gone after it.
pub fn rename_process(name: &CStr, arguments: usize) {
    // SAFETY: PR_SET_NAME copies up to 16 bytes of a string that ends with NUL.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    let Some((start, length)) = argument_area(arguments) else {
        return;
    };
    let kept = name.to_bytes().len().min(length.saturating_sub(1));
    // SAFETY: `argument_area` gave memory of our own initial stack that holds the argument strings;
    // nothing reads them after this, as the function's contract says.
    unsafe {
        ptr::write_bytes(start, 0, length);
        ptr::copy_nonoverlapping(name.as_ptr().cast::<u8>(), start, kept);
    }
}

/// Where the kernel laid the argument strings: one after the other, below the environment's.
fn argument_area(arguments: usize) -> Option<(*mut u8, usize)> {
    if arguments == 0 {
        return None;
    }
    // SAFETY: the kernel puts argc, the argv pointers, a null, and then the envp pointers on the
    // initial stack in one piece, and nothing in this program moves `environ`.
    unsafe {
        let env = environ;
        if env.is_null() || !(*env.sub(1)).is_null() {
            return None;
        }
        let argv = env.sub(1 + arguments);
        let last = CStr::from_ptr(*argv.add(arguments - 1));
        let start = (*argv).cast::<u8>().cast_mut();
        let end = last
            .as_ptr()
            .cast::<u8>()
            .add(last.to_bytes_with_nul().len());
        let length = usize::try_from(end.offset_from(start)).ok()?;
        Some((start, length))
    }
}
