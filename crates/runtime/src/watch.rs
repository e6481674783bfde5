//! A watcher: a small process of its own that waits for our end and tells about it, while we become
//! another program.
//!
//! It shares our memory and keeps it when we become something else, so starting it copies nothing
//! and nobody waits for anybody. It is our child, of the kind that sends no signal and that `wait`
//! does not see unless asked for clones; when we are gone, it is init's.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::time::Duration;

use rustix::process::{Pid, chdir, setpgid, setsid};
use rustix::thread::sched_yield;
use substrate_sys::mask::without_signals;
use substrate_sys::{identity, pidfd, process_group, process_info};

use crate::inherit::rename_process;
use crate::supervise::Ending;

/// What process listings show.
const NAME: &CStr = c"substrate-watch";

/// How long a program may run before the watcher settles down to wait.
const PATIENCE: Duration = Duration::from_millis(200);

/// Room for the watcher's calls, which take a quarter of it.
const STACK: usize = 64 << 10;

/// What the watcher needs.
struct Order<'a> {
    us: OwnedFd,
    arguments: usize,
    settle: Box<dyn Fn() + 'a>,
    task: Box<dyn Fn(Option<Ending>) + 'a>,
}

/// Starts a watcher for this process. When we, or whatever program we have become, have ended and
/// were reaped, it runs the task and is gone. It lets go of every descriptor, the directory and the
/// process group that it got from us at once, and of the terminal when the wait turns out to be long.
/// `arguments` is the number of our arguments; `settle` lets go of memory that is not needed then.
///
/// Until we have become another program, memory has two users: nothing should be allocated between
/// this call and that. The watcher itself touches none of it before we are gone.
pub fn start(arguments: usize, settle: impl Fn(), task: impl Fn(Option<Ending>)) -> io::Result<()> {
    let order = Order {
        us: pidfd::open(std::process::id().cast_signed())?,
        arguments,
        settle: Box::new(settle),
        task: Box::new(task),
    };
    // The watcher outlives this frame, so what it uses is never given back.
    let order = Box::leak(Box::new(order));
    let mut stack: Vec<u128> = Vec::new();
    stack.try_reserve_exact(STACK / size_of::<u128>())?;
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    std::mem::forget(stack);
    let idle = idle_machine();
    // SAFETY: the stack is new and nobody else's, and neither it nor the order is ever freed.
    let child = without_signals(|| unsafe {
        libc::clone(
            watcher,
            top.cast(),
            libc::CLONE_VM,
            ptr::from_mut(order).cast(),
        )
    });
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if idle {
        let_it_settle();
    }
    Ok(())
}

/// Lets the watcher run until it waits, which takes it a few microseconds. The kernel looks for a
/// better processor when a program is executed, and takes any over one on which somebody else is
/// ready; that move costs more than the watcher does. Giving way a second time takes the sleeper off
/// the list of the ready, where the scheduler leaves whoever has run more than his share.
fn let_it_settle() {
    sched_yield();
    sched_yield();
}

/// Whether nobody else runs, or at least half of our processors have nothing to do: then hardly
/// anybody takes the turn that we give up. It would be gone for milliseconds.
fn idle_machine() -> bool {
    let mut text = [0; 64];
    let read = File::open("/proc/loadavg").and_then(|mut file| file.read(&mut text));
    let running = text[..read.unwrap_or(0)]
        .split(|byte| matches!(byte, b' ' | b'/'))
        .nth(3)
        .and_then(|count| std::str::from_utf8(count).ok()?.parse::<usize>().ok());
    running.is_some_and(|running| running <= 1 || 2 * running <= identity::processors())
}

extern "C" fn watcher(order: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the order is leaked, and whoever made it does not look at it again.
    let order = unsafe { &*order.cast::<Order<'_>>() };
    let kept = order.us.as_raw_fd();
    // SAFETY: descriptors are this process's own: only memory is shared.
    unsafe {
        close_range(0, kept - 1);
        close_range(kept + 1, RawFd::MAX);
    }
    let _ = chdir(c"/");
    // Who does not know the leader of the session cannot leave it later.
    let _ = match process_group::own_session() {
        0 => setsid().map(drop),
        _ => setpgid(None, None),
    };
    rename_process(NAME, order.arguments);
    let us = order.us.as_fd();
    // Whoever still runs in this memory after so long has become another program.
    let ended = match process_info::wait_reaped(us, Some(PATIENCE)) {
        Ok(false) => {
            leave_session();
            (order.settle)();
            wait_with_little(us)
        }
        told => told.map(drop),
    };
    let ending = ended.and_then(|()| process_info::ending(order.us.as_fd()));
    (order.task)(ending.ok().flatten());
    // SAFETY: ends the watcher without running exit handlers of the program it came from.
    unsafe { libc::_exit(0) }
}

/// Lets go of the terminal. A new session is dear, because the scheduler makes a group for it, and
/// whoever leads a process group gets none: that of the session's leader takes us for a moment.
fn leave_session() {
    let _ = setpgid(None, Pid::from_raw(process_group::own_session()));
    let _ = setsid();
}

/// Waits for as long as it takes, without the pages of the program's text and constants. Those that
/// are needed come back by themselves, so everything here goes through one function of libc. The
/// kernel brings their neighbours along, up to the end of a mapping: what is marked otherwise than
/// the rest is a mapping of its own.
#[inline(never)]
fn wait_with_little(process: BorrowedFd<'_>) -> io::Result<()> {
    let mut parts = [(0_usize, 0_usize); 4];
    let mut poll = libc::pollfd {
        fd: process.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: the callback writes to `parts` only. What it finds is mapped from the file and never
    // written, so that dropping the pages loses nothing; `poll` is one valid entry.
    unsafe {
        libc::dl_iterate_phdr(Some(read_only_parts), (&raw mut parts).cast());
        for needed in [
            wait_with_little as *const () as usize,
            libc::syscall as *const () as usize,
        ] {
            let page = needed & !4095;
            libc::syscall(libc::SYS_madvise, page, 8192, libc::MADV_RANDOM);
        }
        for (start, length) in parts {
            libc::syscall(libc::SYS_madvise, start, length, libc::MADV_DONTNEED);
        }
        while libc::syscall(libc::SYS_poll, &raw mut poll, 1, -1) < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Where the program itself, which the loader describes first, has text and constants.
unsafe extern "C" fn read_only_parts(
    object: *mut libc::dl_phdr_info,
    _size: usize,
    parts: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: the loader passes a description that is valid during the call, and `wait_with_little`
    // passes its array.
    let (object, parts) = unsafe { (&*object, &mut *parts.cast::<[(usize, usize); 4]>()) };
    // SAFETY: the description says how many headers there are.
    let headers =
        unsafe { std::slice::from_raw_parts(object.dlpi_phdr, usize::from(object.dlpi_phnum)) };
    let read_only = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0);
    for (header, part) in read_only.zip(parts) {
        let start = (object.dlpi_addr + header.p_vaddr) as usize;
        let first = start & !4095;
        *part = (first, start + header.p_memsz as usize - first);
    }
    1
}

/// # Safety
/// Nothing in this process may go on using the descriptors.
unsafe fn close_range(first: RawFd, last: RawFd) {
    if first <= last {
        // SAFETY: passed on to the caller.
        unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
    }
}
