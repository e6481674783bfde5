//! The listening end of a filter that notifies: program starts come in, answers go out.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: both sides take turns, so the scheduler may keep them
/// on one processor.
const SYNC_WAKE_UP: u64 = 1;

/// The listener of a filter. When its last holder closes it, every further start fails.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
}

/// The calls that are put to a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// Starting a program.
    Execve,
    /// Starting a program below a directory.
    ExecveAt,
    /// Connecting a socket.
    Connect,
}

/// A system call that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// Names the notification.
    pub id: u64,
    /// The thread that made the call, as numbered here.
    pub thread: i32,
    /// Which call it is.
    pub kind: CallKind,
    /// The arguments.
    pub args: [u64; 6],
}

/// What became of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ready {
    /// A call can be received.
    Call,
    /// Nobody is left who could make one.
    Over,
    /// The other descriptor became readable.
    Stopped,
}

impl Listener {
    /// Takes over a listener as a filter gave it.
    pub fn new(fd: OwnedFd) -> Listener {
        // Kernels before 6.6 do not know it; it only saves time.
        // SAFETY: the argument of this request is a plain number.
        unsafe {
            libc::ioctl(
                fd.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS,
                SYNC_WAKE_UP,
            )
        };
        Listener { fd }
    }

    /// Waits for a call, or for `stop` to become readable.
    pub fn wait(&self, stop: BorrowedFd<'_>) -> io::Result<Ready> {
        let mut entries = [
            PollFd::new(&self.fd, PollFlags::IN),
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
        ];
        retry_on_intr(|| poll(&mut entries, None))?;
        Ok(match (entries[0].revents(), entries[1].revents()) {
            (_, stop) if !stop.is_empty() => Ready::Stopped,
            (call, _) if call.contains(PollFlags::IN) => Ready::Call,
            _ => Ready::Over,
        })
    }

    /// Whether a call waits to be received.
    pub fn has_call(&self) -> bool {
        let mut entry = [PollFd::new(&self.fd, PollFlags::IN)];
        poll(&mut entry, Some(&Timespec::default())) == Ok(1)
            && entry[0].revents().contains(PollFlags::IN)
    }

    /// Takes the next call; `None` when its caller has died meanwhile.
    pub fn receive(&self) -> io::Result<Option<Call>> {
        // SAFETY: an all-zero notification is what the kernel asks for.
        let mut got: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the request's number names the size of `got`, which the kernel fills.
        let rc = unsafe {
            libc::ioctl(
                self.fd.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_RECV,
                &raw mut got,
            )
        };
        if rc < 0 {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::ENOENT | libc::EINTR) => Ok(None),
                _ => Err(error),
            };
        }
        Ok(Some(Call {
            id: got.id,
            thread: got.pid.cast_signed(),
            kind: match i64::from(got.data.nr) {
                libc::SYS_execveat => CallKind::ExecveAt,
                libc::SYS_connect => CallKind::Connect,
                _ => CallKind::Execve,
            },
            args: got.data.args,
        }))
    }

    /// Whether the caller still waits. What was read of its process before this says yes was
    /// its own, not that of another process with a number used again.
    pub fn is_waiting(&self, call: &Call) -> bool {
        // SAFETY: the request reads one number.
        unsafe {
            libc::ioctl(
                self.fd.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
                &raw const call.id,
            ) == 0
        }
    }

    /// Lets the call go on; false when its caller has died.
    pub fn pass(&self, call: &Call) -> bool {
        self.answer(call, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32)
    }

    /// Makes the call fail; false when its caller has died.
    pub fn fail(&self, call: &Call, errno: i32) -> bool {
        self.answer(call, -errno, 0)
    }

    /// Answers a call that was carried out for its caller.
    pub fn done(&self, call: &Call) -> bool {
        self.answer(call, 0, 0)
    }

    fn answer(&self, call: &Call, error: i32, flags: u32) -> bool {
        let answer = libc::seccomp_notif_resp {
            id: call.id,
            val: 0,
            error,
            flags,
        };
        loop {
            // SAFETY: the request's number names the size of `answer`.
            let rc = unsafe {
                libc::ioctl(
                    self.fd.as_raw_fd(),
                    libc::SECCOMP_IOCTL_NOTIF_SEND,
                    &raw const answer,
                )
            };
            // A caller without an answer would wait for ever.
            if rc == 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return rc == 0;
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
