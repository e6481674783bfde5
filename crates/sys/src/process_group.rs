//! Process groups, waiting and signals, as job control needs them.

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitOptions, getpid, setpgid, waitpid};

use crate::mask::Mask;
pub use crate::pidfd::open as pidfd;
pub use crate::poll::{read, readable, write_all};
use crate::terminal::set_foreground;

/// What became of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It ended with this status.
    Exited(i32),
    /// This signal ended it.
    Killed(i32),
    /// This signal stopped it.
    Stopped(i32),
    /// It runs again.
    Continued,
}

/// Signals, by the names the shell uses.
pub mod signal {
    pub use libc::{
        SIGCHLD as CHLD, SIGCONT as CONT, SIGHUP as HUP, SIGINT as INT, SIGKILL as KILL,
        SIGPIPE as PIPE, SIGQUIT as QUIT, SIGSTOP as STOP, SIGTERM as TERM, SIGTSTP as TSTP,
        SIGTTIN as TTIN, SIGTTOU as TTOU, SIGWINCH as WINCH,
    };
}

/// How a job's first process is placed before it starts.
pub struct Placement<'a> {
    /// The terminal the new process group receives at once, when it is the caller's own.
    pub foreground_of: Option<BorrowedFd<'a>>,
    /// Starts a new session whose controlling terminal is this one, instead of a new group.
    pub session_on: Option<BorrowedFd<'a>>,
    /// Descriptors to hand over, each with the number it gets in the child.
    pub descriptors: Vec<(BorrowedFd<'a>, RawFd)>,
}

const RESET: [libc::c_int; 11] = [
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGHUP,
    libc::SIGTERM,
    libc::SIGPIPE,
    libc::SIGWINCH,
    libc::SIGCHLD,
    libc::SIGALRM,
];

/// Starts a command as the leader of its own process group or session, with default signals.
///
/// The answer is its process id; whoever calls must wait for it with [`change_of`].
pub fn spawn(mut command: Command, placement: &Placement<'_>) -> io::Result<i32> {
    let foreground = placement.foreground_of.map(|fd| fd.as_raw_fd());
    let session = placement.session_on.map(|fd| fd.as_raw_fd());
    let (descriptors, _moved) = out_of_the_way(&placement.descriptors)?;
    let place = move || -> io::Result<()> {
        crate::fdlimit::restore();
        // SAFETY: between fork and exec only async-signal-safe calls are made, on plain integers
        // and on data allocated before the fork.
        unsafe {
            default_signals();
            if let Some(terminal) = session {
                if libc::setsid() == -1 || libc::ioctl(terminal, libc::TIOCSCTTY, 0) == -1 {
                    return Err(io::Error::last_os_error());
                }
            } else {
                libc::setpgid(0, 0);
            }
            if let Some(terminal) = foreground {
                set_foreground(BorrowedFd::borrow_raw(terminal), libc::getpid())?;
            }
        }
        hand_over(&descriptors)
    };
    // SAFETY: `place` is async-signal-safe, see above.
    unsafe { command.pre_exec(place) };
    let child = command.spawn()?;
    i32::try_from(child.id()).map_err(io::Error::other)
}

/// A program to be started, with everything laid out for the kernel.
pub struct Program<'a> {
    /// Its file.
    pub path: &'a CStr,
    /// Its arguments, the zeroth included.
    pub argv: &'a [CString],
    /// Its whole environment.
    pub env: &'a [CString],
    /// Where it starts.
    pub cwd: &'a CStr,
}

/// What the child needs between clone and exec; it shares our memory until then.
struct Place {
    path: *const libc::c_char,
    argv: *const *const libc::c_char,
    env: *const *const libc::c_char,
    cwd: *const libc::c_char,
    terminal: RawFd,
    descriptors: *const Handed,
    count: usize,
    error: i32,
}

/// Room for the few calls between clone and exec.
const STACK: usize = 64 << 10;

/// Starts a program as the leader of its own process group that owns `terminal`, with default
/// signals and these descriptors. Nothing of our memory is copied, which takes longer the more we
/// have; we stand still until the program is in place.
///
/// The answer is its process id; whoever calls must wait for it with [`change_of`].
pub fn spawn_on(
    program: &Program<'_>,
    terminal: BorrowedFd<'_>,
    descriptors: &[(BorrowedFd<'_>, RawFd)],
) -> io::Result<i32> {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        let all = strings.iter().map(|string| string.as_ptr());
        all.chain([std::ptr::null()]).collect()
    };
    let (argv, env) = (pointers(program.argv), pointers(program.env));
    let (descriptors, _moved) = out_of_the_way(descriptors)?;
    let mut place = Place {
        path: program.path.as_ptr(),
        argv: argv.as_ptr(),
        env: env.as_ptr(),
        cwd: program.cwd.as_ptr(),
        terminal: terminal.as_raw_fd(),
        descriptors: descriptors.as_ptr(),
        count: descriptors.len(),
        error: 0,
    };
    let mut stack = vec![MaybeUninit::<u128>::uninit(); STACK / size_of::<u128>()];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: CLONE_VFORK keeps us still until the child has become the program or exited, so the
    // stack, the arrays and `place` outlive its use of them.
    let child = unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        libc::clone(become_leader, top.cast(), flags, (&raw mut place).cast())
    };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if place.error == 0 {
        return Ok(child);
    }
    // SAFETY: the child exited without becoming the program; a null status is legal.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    Err(io::Error::from_raw_os_error(place.error))
}

extern "C" fn become_leader(place: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn_on` passes its own place and waits for us; everything here is a system call on
    // data that was laid out before, and signal actions are our own, not shared.
    unsafe {
        let place = &mut *place.cast::<Place>();
        default_signals();
        crate::fdlimit::restore();
        libc::setpgid(0, 0);
        let descriptors = std::slice::from_raw_parts(place.descriptors, place.count);
        let terminal = BorrowedFd::borrow_raw(place.terminal);
        let placed = set_foreground(terminal, libc::getpid()).and_then(|()| hand_over(descriptors));
        let entered = placed.is_ok() && libc::chdir(place.cwd) == 0;
        if entered {
            libc::execve(place.path, place.argv, place.env);
        }
        let error = placed.err().unwrap_or_else(io::Error::last_os_error);
        place.error = error.raw_os_error().unwrap_or(libc::EIO);
        libc::_exit(127)
    }
}

/// Signals as a program expects them.
///
/// # Safety
/// Only between clone and exec.
unsafe fn default_signals() {
    // SAFETY: async-signal-safe calls on plain integers.
    unsafe {
        for number in RESET {
            libc::signal(number, libc::SIG_DFL);
        }
        Mask::NONE.set();
    }
}

/// A descriptor, and the number that it gets.
type Handed = (RawFd, RawFd);

/// Descriptors and the numbers they get, none of which lies where another one goes: the terminal would
/// take the place of the channel that a shell is to read. What had to move lives as long as the second
/// part of the answer.
fn out_of_the_way(
    descriptors: &[(BorrowedFd<'_>, RawFd)],
) -> io::Result<(Vec<Handed>, Vec<OwnedFd>)> {
    let taken = |fd: RawFd| descriptors.iter().any(|(_, number)| *number == fd);
    let mut moved: Vec<OwnedFd> = Vec::new();
    let mut all = Vec::new();
    for (fd, number) in descriptors {
        let mut source = fd.as_raw_fd();
        while source != *number && taken(source) {
            let other = fd.try_clone_to_owned()?;
            source = other.as_raw_fd();
            moved.push(other);
        }
        all.push((source, *number));
    }
    Ok((all, moved))
}

/// Gives descriptors their numbers, open for the program.
fn hand_over(descriptors: &[Handed]) -> io::Result<()> {
    for (source, number) in descriptors {
        // SAFETY: plain integers; async-signal-safe.
        let done = unsafe {
            match source == number {
                true => libc::fcntl(*number, libc::F_SETFD, 0),
                false => libc::dup2(*source, *number),
            }
        };
        if done == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// The calling process's group; 0 when its leader is not in our process namespace, which is why libc is
/// asked: rustix says of these numbers that they are not 0.
pub fn own_group() -> i32 {
    // SAFETY: getpgrp takes no arguments and cannot fail.
    unsafe { libc::getpgrp() }
}

/// The calling process's session; 0 when its leader is not in our process namespace.
pub fn own_session() -> i32 {
    // SAFETY: getsid(0) asks about the caller and cannot fail.
    unsafe { libc::getsid(0) }
}

/// Puts the caller into a process group of its own, unless it leads one already.
pub fn lead_own_group() -> io::Result<()> {
    if own_group() != getpid().as_raw_nonzero().get() {
        setpgid(None, None)?;
    }
    Ok(())
}

/// Sends a signal to one process.
pub fn send(process: i32, number: i32) -> io::Result<()> {
    // SAFETY: plain integers; the result is checked.
    if unsafe { libc::kill(process, number) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sends a signal to a process group.
pub fn send_group(group: i32, number: i32) -> io::Result<()> {
    // SAFETY: plain integers; the result is checked.
    if unsafe { libc::killpg(group, number) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sets a signal to be ignored, or back to its default.
pub fn ignore(number: i32, ignored: bool) {
    let action = if ignored {
        libc::SIG_IGN
    } else {
        libc::SIG_DFL
    };
    // SAFETY: SIG_IGN and SIG_DFL are valid dispositions for every catchable signal.
    unsafe { libc::signal(number, action) };
}

/// What changed about a child: waits for it, or answers `None` at once if `wait` is false.
pub fn change_of(process: i32, wait: bool) -> io::Result<Option<Change>> {
    let process = crate::pidfd::number(process)?;
    let mut options = WaitOptions::UNTRACED | WaitOptions::CONTINUED;
    options.set(WaitOptions::NOHANG, !wait);
    let found = retry_on_intr(|| waitpid(Some(process), options))?;
    Ok(found.map(|(_, status)| {
        let stopped = status.stopping_signal().map(Change::Stopped);
        status
            .exit_status()
            .map(Change::Exited)
            .or(status.terminating_signal().map(Change::Killed))
            .or(stopped)
            .unwrap_or(Change::Continued)
    }))
}

/// Makes the descriptor our standard input.
pub fn replace_stdin(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::stdio::dup2_stdin(fd)?)
}

/// Keeps descriptors that `open` leaves open away from programs that are started later.
pub fn privately<T>(open: impl FnOnce() -> T) -> T {
    let before = descriptors();
    let result = open();
    for number in descriptors() {
        if !before.contains(&number) {
            // SAFETY: fcntl only sets a flag of the number, and refuses one that is closed again.
            unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
    result
}

/// The numbers of our open descriptors, as far as the kernel tells.
fn descriptors() -> Vec<RawFd> {
    let names = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    names
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_interrupt(_: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// Runs something during which an interrupt only sets what [`interrupted`] tells.
pub fn interruptible<T>(action: impl FnOnce() -> T) -> T {
    INTERRUPTED.store(false, Ordering::Relaxed);
    let handler: extern "C" fn(libc::c_int) = on_interrupt;
    // SAFETY: storing an atomic is async-signal-safe; sigaction is plain data, and what was there
    // before is put back as the kernel gave it.
    unsafe {
        let mut ours: libc::sigaction = std::mem::zeroed();
        let mut before: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = handler as usize;
        libc::sigemptyset(&raw mut ours.sa_mask);
        libc::sigaction(libc::SIGINT, &raw const ours, &raw mut before);
        let result = action();
        libc::sigaction(libc::SIGINT, &raw const before, std::ptr::null_mut());
        result
    }
}

/// Whether an interrupt came since [`interruptible`] began.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

static CAUGHT_WRITER: AtomicI32 = AtomicI32::new(-1);

extern "C" fn on_caught(number: libc::c_int) {
    let writer = CAUGHT_WRITER.load(Ordering::Relaxed);
    let byte = u8::try_from(number).unwrap_or(0);
    // SAFETY: write is async-signal-safe and `byte` outlives the call; errno is put back because
    // the interrupted code may be about to read it.
    unsafe {
        let before = *libc::__errno_location();
        libc::write(writer, (&raw const byte).cast(), 1);
        *libc::__errno_location() = before;
    }
}

/// Catches the signals and turns each arrival into one byte, its number, on the returned pipe.
///
/// One process can do this once; a second call fails.
pub fn catch(numbers: &[i32]) -> io::Result<OwnedFd> {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    if CAUGHT_WRITER
        .compare_exchange(-1, writer.as_raw_fd(), Ordering::SeqCst, Ordering::SeqCst)
        .is_err()
    {
        return Err(io::Error::from(io::ErrorKind::AlreadyExists));
    }
    // The handler uses the number for as long as the process lives.
    std::mem::forget(writer);
    for number in numbers {
        let handler: extern "C" fn(libc::c_int) = on_caught;
        // SAFETY: `on_caught` is async-signal-safe and lives forever; sigaction is plain data.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigemptyset(&raw mut action.sa_mask);
            if libc::sigaction(*number, &raw const action, std::ptr::null_mut()) == -1 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(reader)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_ends_with_its_status() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exit 7"]);
        let placement = Placement {
            foreground_of: None,
            session_on: None,
            descriptors: Vec::new(),
        };
        let process = spawn(command, &placement).unwrap();
        let ended = pidfd(process).unwrap();
        assert_eq!(readable(&[ended.as_fd()], None).unwrap(), [true]);
        assert_eq!(change_of(process, true).unwrap(), Some(Change::Exited(7)));
    }

    #[test]
    fn descriptors_that_go_where_another_lies_arrive_all_the_same() {
        let given = |text: &str| {
            let (from, mut to) = io::pipe().unwrap();
            io::Write::write_all(&mut to, text.as_bytes()).unwrap();
            from
        };
        let (one, two) = (given("one"), given("two"));
        let (first, second) = (one.as_raw_fd(), two.as_raw_fd());
        let mut command = Command::new("/bin/sh");
        command.args([
            "-c",
            "[ \"$(cat /dev/fd/$1 /dev/fd/$2)\" = twoone ]",
            "sh",
            &first.to_string(),
            &second.to_string(),
        ]);
        let placement = Placement {
            foreground_of: None,
            session_on: None,
            descriptors: vec![(one.as_fd(), second), (two.as_fd(), first)],
        };
        let process = spawn(command, &placement).unwrap();
        assert_eq!(change_of(process, true).unwrap(), Some(Change::Exited(0)));
    }
}
