//! Starting one program in our place and being invisible while it runs: its signals, its stops and
//! its end become ours.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, kill_process, setrlimit, waitpid,
};
use substrate_sys::mask::Mask;
pub use substrate_sys::process_info::Ending;

static PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Runs before `main`, where Rust's runtime ignores SIGPIPE: only here the caller's choice is seen.
extern "C" fn remember_sigpipe() {
    let mut old = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only reads the old one into `old`, which is large enough.
    let ignored = unsafe {
        libc::sigaction(libc::SIGPIPE, ptr::null(), old.as_mut_ptr()) == 0
            && old.assume_init().sa_sigaction == libc::SIG_IGN
    };
    PIPE_IGNORED.store(ignored, Ordering::Relaxed);
}

#[used]
// SAFETY: `.init_array` holds pointers to C functions that the loader calls once before `main`.
#[unsafe(link_section = ".init_array")]
static REMEMBER_SIGPIPE: extern "C" fn() = remember_sigpipe;

/// Whether SIGPIPE was ignored when this process started.
pub(crate) fn pipe_was_ignored() -> bool {
    PIPE_IGNORED.load(Ordering::Relaxed)
}

/// A program to start.
#[derive(Debug)]
pub struct Program<'a> {
    /// The file to execute.
    pub path: &'a CStr,
    /// Its arguments, `argv[0]` included.
    pub argv: &'a [CString],
    /// Its environment, `NAME=value` each.
    pub env: &'a [CString],
}

/// The signals that are passed on when somebody sends them to us alone.
const FORWARDED: [i32; 13] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGCONT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGWINCH,
    libc::SIGPIPE,
];

/// Starts the program and waits for its end. Signals sent to us go to it, its stops stop us, and it
/// has the signal mask and dispositions that we were started with. `started` gets its process id.
pub fn run(program: &Program<'_>, started: impl FnOnce(i32)) -> io::Result<Ending> {
    let waited = || FORWARDED.into_iter().chain([libc::SIGCHLD]);
    let original = Mask::of(waited()).block();
    let waited = signal_set(waited());
    let result = spawn(program, original).and_then(|child| {
        started(child);
        attend(child, &waited)
    });
    original.set();
    result
}

/// The same, with something to do on this thread while the program runs.
pub fn run_beside(program: &Program<'_>, beside: impl FnOnce(i32)) -> io::Result<Ending> {
    let waited = || FORWARDED.into_iter().chain([libc::SIGCHLD]);
    let original = Mask::of(waited()).block();
    let waited = signal_set(waited());
    let result = spawn(program, original).and_then(|child| {
        std::thread::scope(|threads| {
            // Every thread of ours has these signals blocked, so that this one gets them.
            let attended = threads.spawn(|| attend(child, &waited));
            beside(child);
            attended
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the program was not waited for")))
        })
    });
    original.set();
    result
}

/// Ends this process as the program ended, so that our parent cannot tell the difference.
pub fn end_like(ending: Ending) -> ! {
    match ending {
        Ending::Exit(status) => std::process::exit(status),
        Ending::Signal(signal) => {
            let none = Rlimit {
                current: Some(0),
                maximum: Some(0),
            };
            // The core limit keeps a second core file from replacing the program's own.
            let _ = setrlimit(Resource::Core, none);
            // SAFETY: plain system calls on our own process.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                Mask::of([signal]).unblock();
                libc::raise(signal);
            }
            std::process::exit(128 + signal)
        }
    }
}

/// What the child needs between clone and exec; it shares our memory until then.
struct Start {
    path: *const libc::c_char,
    argv: *const *const libc::c_char,
    env: *const *const libc::c_char,
    mask: Mask,
    parent: libc::pid_t,
    error: i32,
}

/// Room for the few calls between clone and exec.
const STACK: usize = 64 << 10;

/// Starts the program without posix_spawn, which in musl leaves two signals ignored.
fn spawn(program: &Program<'_>, mask: Mask) -> io::Result<i32> {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        let all = strings.iter().map(|string| string.as_ptr());
        all.chain([ptr::null()]).collect()
    };
    let (argv, env) = (pointers(program.argv), pointers(program.env));
    let mut start = Start {
        path: program.path.as_ptr(),
        argv: argv.as_ptr(),
        env: env.as_ptr(),
        mask,
        // SAFETY: a plain system call.
        parent: unsafe { libc::getpid() },
        error: 0,
    };
    let mut stack = vec![MaybeUninit::<u128>::uninit(); STACK / size_of::<u128>()];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: CLONE_VFORK keeps us still until the child has become the program or exited, so the
    // stack, the arrays and `start` outlive its use of them.
    let child = unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        libc::clone(become_child, top.cast(), flags, (&raw mut start).cast())
    };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if start.error == 0 {
        return Ok(child);
    }
    // It exited without becoming the program.
    let _ = waitpid(Pid::from_raw(child), WaitOptions::empty());
    Err(io::Error::from_raw_os_error(start.error))
}

extern "C" fn become_child(start: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` passes its own start and waits for us; everything here is a system call on
    // data that was laid out before.
    unsafe {
        let start = &mut *start.cast::<Start>();
        // Whoever kills us means the program, which he takes us for.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if libc::getppid() != start.parent {
            libc::_exit(127);
        }
        if !pipe_was_ignored() {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        }
        start.mask.set();
        substrate_sys::fdlimit::restore();
        libc::execve(start.path, start.argv, start.env);
        start.error = io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO);
        libc::_exit(127)
    }
}

fn attend(child: i32, waited: &libc::sigset_t) -> io::Result<Ending> {
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set is valid and `info` is large enough.
        let signal = unsafe { libc::sigwaitinfo(waited, info.as_mut_ptr()) };
        if signal < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            return Err(error);
        }
        if signal == libc::SIGCHLD {
            if let Some(ending) = reap(child)? {
                return Ok(ending);
            }
            continue;
        }
        // What the terminal sends goes to the whole process group, the child included.
        // SAFETY: sigwaitinfo filled `info`.
        let from_kernel = unsafe { info.assume_init().si_code } == libc::SI_KERNEL;
        if !from_kernel || signal == libc::SIGCONT {
            // SAFETY: the child has not been reaped, so its id is still its own.
            unsafe { libc::kill(child, signal) };
        }
    }
}

/// Takes every change of the child's state; answers its ending when it has one.
fn reap(child: i32) -> io::Result<Option<Ending>> {
    let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
    while let Some((_, status)) = retry_on_intr(|| waitpid(Pid::from_raw(child), options))? {
        if let Some(status) = status.exit_status() {
            return Ok(Some(Ending::Exit(status)));
        }
        if let Some(signal) = status.terminating_signal() {
            return Ok(Some(Ending::Signal(signal)));
        }
        // Whoever waits for us must see that the command stopped, and by what.
        if let Some(signal) = status.stopping_signal() {
            stop_like(signal);
            // It has not been reaped, so its id is still its own.
            let _ = Pid::from_raw(child).map(|child| kill_process(child, Signal::CONT));
        }
    }
    Ok(None)
}

/// Stops this process by the same signal, until somebody lets it go on. A signal that is ignored
/// here would not stop us; SIGSTOP always does.
fn stop_like(signal: i32) {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null new action only reads the old one.
    unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        if action.assume_init().sa_sigaction != libc::SIG_DFL {
            libc::raise(libc::SIGSTOP);
            return;
        }
        libc::raise(signal);
        Mask::of([signal]).unblock().set();
    }
}

fn signal_set(signals: impl IntoIterator<Item = i32>) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before anything is added to it.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use substrate_sys::fdlimit;

    #[test]
    fn what_we_start_gets_the_old_limit_back() {
        let (soft, hard) = fdlimit::get();
        fdlimit::raise(1).unwrap();
        assert_eq!(fdlimit::get(), (soft, hard), "never lower");
        if soft == hard {
            return;
        }
        fdlimit::raise(soft + 1).unwrap();
        assert_eq!(fdlimit::get(), (soft + 1, hard));
        let word = |text: &str| CString::new(text).unwrap();
        let script = format!("test $(ulimit -Sn) = {soft}");
        let argv = [word("sh"), word("-c"), word(&script)];
        let program = super::Program {
            path: &word("/bin/sh"),
            argv: &argv,
            env: &[word("PATH=/usr/bin:/bin")],
        };
        let ending = super::run(&program, |_| ()).unwrap();
        assert_eq!(ending, super::Ending::Exit(0));
        fdlimit::restore();
        assert_eq!(fdlimit::get(), (soft, hard));
    }
}
