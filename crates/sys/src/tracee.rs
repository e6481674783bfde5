//! Holding a thread at the moment its exec is done: old threads are gone, nothing of the new
//! program has run.
//!
//! A tracer is a thread, not a process; everything here is for the thread that took the tracee,
//! which holds one at a time and starts no processes of its own.

use std::io;
use std::marker::PhantomData;

use rustix::io::Errno;
use rustix::process::{self, Pid, Signal, WaitOptions};

/// Thread ids follow process ids, so `-1` with this flag means what this thread traces.
const THIS_THREAD: WaitOptions = WaitOptions::from_bits_retain(0x2000_0000);
/// `__WALL`: threads and processes of every kind.
const ALL: WaitOptions = WaitOptions::from_bits_retain(libc::__WALL as u32);

/// The kernel's number for programs of this architecture.
#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xC000_00B7;

/// A thread whose next exec stops. Dropped without [`Tracee::let_go`], it is killed.
#[derive(Debug)]
pub struct Tracee {
    thread: i32,
    held: bool,
    /// A signal that was on its way when it stopped.
    signal: i32,
    /// Only the thread that took it may hold it.
    here: PhantomData<*const ()>,
}

/// Where a new program begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beginning {
    /// Its first instruction, which lies in its dynamic loader when it names one.
    pub instruction: u64,
    /// The array of its words.
    pub words: u64,
}

impl Beginning {
    /// The array of its variables, which comes after so many words.
    pub fn variables(&self, words: usize) -> u64 {
        self.words + (words as u64 + 1) * size_of::<usize>() as u64
    }
}

/// Where a tracee stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It has become another program, as this process.
    Exec(i32),
    /// Its exec failed.
    NoExec,
    /// It has ended.
    Gone,
}

impl Tracee {
    /// Takes a thread that waits in a system call. Should this process end, the tracee does too.
    pub fn take(thread: i32) -> io::Result<Tracee> {
        let options = libc::PTRACE_O_TRACEEXEC | libc::PTRACE_O_EXITKILL;
        request(libc::PTRACE_SEIZE, thread, options as usize)?;
        Ok(Tracee {
            thread,
            held: true,
            signal: 0,
            here: PhantomData,
        })
    }

    /// Asks for a stop. One is certain then: at the exec, or on the way back from a call that failed.
    pub fn stop(&self) {
        // It fails for one that has ended, or that took over the number of its process's first
        // thread in an exec, which stops it.
        let _ = request(libc::PTRACE_INTERRUPT, self.thread, 0);
    }

    /// Waits for that stop.
    pub fn wait(&mut self) -> io::Result<Stop> {
        loop {
            // An exec by another thread than the first changes the number, so any of ours will do.
            let (found, status) = match process::wait(ALL | THIS_THREAD) {
                Ok(Some((found, status))) => (found.as_raw_nonzero().get(), status),
                Err(Errno::INTR) => continue,
                Ok(None) | Err(Errno::CHILD) => {
                    self.held = false;
                    return Ok(Stop::Gone);
                }
                Err(error) => return Err(error.into()),
            };
            let Some(signal) = status.stopping_signal() else {
                self.held = false;
                return Ok(Stop::Gone);
            };
            self.thread = found;
            return Ok(match status.as_raw() >> 16 {
                libc::PTRACE_EVENT_EXEC => Stop::Exec(found),
                0 => {
                    self.signal = signal;
                    Stop::NoExec
                }
                _ => Stop::NoExec,
            });
        }
    }

    /// Where its new program begins and where its words lie, while it is stopped at an exec: at the
    /// stack pointer the kernel puts their number, then an array of them, then one of variables.
    pub fn beginning(&self) -> io::Result<Beginning> {
        let mut info = SyscallInfo::default();
        // SAFETY: the kernel writes no more than the given size to `info`, which is made of numbers.
        let rc = unsafe {
            let place = &raw mut info;
            let size = size_of::<SyscallInfo>();
            libc::syscall(libc::SYS_ptrace, GET_SYSCALL_INFO, self.thread, size, place)
        };
        if rc < 0 {
            return Err(io::Error::last_os_error());
        }
        if info.arch != NATIVE {
            return Err(io::Error::other("it is made for another architecture"));
        }
        Ok(Beginning {
            instruction: info.instruction_pointer,
            words: info.stack_pointer + size_of::<usize>() as u64,
        })
    }

    /// Lets a stopped tracee run on, unwatched.
    pub fn let_go(mut self) {
        // Only death takes a tracee out of its stop. To kill what is dying could hit another program:
        // the exec of one thread ends all others and takes over the number of the first.
        if request(libc::PTRACE_DETACH, self.thread, self.signal as usize).is_err()
            && !matches!(self.wait(), Ok(Stop::Gone) | Err(_))
        {
            return self.kill();
        }
        self.held = false;
    }

    /// Kills it and waits until it is gone.
    pub fn kill(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // It was not waited for, so the number is still its own.
        if let Some(thread) = Pid::from_raw(self.thread) {
            let _ = process::kill_process(thread, Signal::KILL);
        }
        while self.held {
            match self.wait() {
                Ok(Stop::Gone) | Err(_) => self.held = false,
                Ok(_) => {
                    let _ = request(libc::PTRACE_CONT, self.thread, 0);
                }
            }
        }
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if self.held {
            self.end();
        }
    }
}

/// The start of what `PTRACE_GET_SYSCALL_INFO` tells.
#[repr(C)]
#[derive(Default)]
struct SyscallInfo {
    op: u32,
    arch: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
}

const GET_SYSCALL_INFO: libc::c_long = 0x420e;

/// C libraries differ in the types of their `ptrace`, so the kernel is asked by number.
fn request(what: impl Into<i64>, thread: i32, data: usize) -> io::Result<()> {
    // SAFETY: none of the requests made here takes a pointer.
    let rc = unsafe { libc::syscall(libc::SYS_ptrace, what.into(), thread, 0_usize, data) };
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
