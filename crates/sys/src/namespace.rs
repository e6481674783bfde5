//! Namespaces: making a process in new ones, and who it is there.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// A set of namespace kinds, as the kernel's own flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Namespaces(u64);

impl Namespaces {
    /// None.
    pub const NONE: Namespaces = Namespaces(0);
    /// Users and capabilities.
    pub const USER: Namespaces = Namespaces(libc::CLONE_NEWUSER as u64);
    /// Mounts.
    pub const MOUNT: Namespaces = Namespaces(libc::CLONE_NEWNS as u64);
    /// Process ids.
    pub const PID: Namespaces = Namespaces(libc::CLONE_NEWPID as u64);
    /// Network.
    pub const NET: Namespaces = Namespaces(libc::CLONE_NEWNET as u64);
    /// System V and POSIX queues.
    pub const IPC: Namespaces = Namespaces(libc::CLONE_NEWIPC as u64);
    /// Host name.
    pub const UTS: Namespaces = Namespaces(libc::CLONE_NEWUTS as u64);

    /// Both sets together.
    pub const fn and(self, other: Namespaces) -> Namespaces {
        Namespaces(self.0 | other.0)
    }

    /// Whether all of `other` are in the set.
    pub const fn has(self, other: Namespaces) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Gives the calling thread mounts of its own: what is mounted from now on is seen by it and by
/// what it starts, and goes with them. Without the right to do so, it takes a user namespace in
/// which it stays who it is; that needs a process with one thread.
pub fn own_mounts() -> io::Result<()> {
    // SAFETY: descriptors stay shared, which is what `unshare` could make unsound.
    if unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.is_err() {
        let (user, group) = crate::access::identity();
        // SAFETY: as above.
        unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS) }?;
        std::fs::write("/proc/self/setgroups", "deny")?;
        std::fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
        std::fs::write("/proc/self/gid_map", format!("{group} {group} 1"))?;
    }
    crate::mount::change_at(
        c"/",
        crate::mount::Change {
            set: 0,
            clear: 0,
            private: true,
            recursive: true,
        },
    )
}

#[repr(C)]
#[derive(Default)]
struct CloneArgs {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// Which side of a fork is running.
pub enum Side {
    /// The new process.
    Child,
    /// The old one.
    Parent {
        /// The new process.
        pid: i32,
        /// A handle on it.
        pidfd: OwnedFd,
    },
}

/// Forks into new namespaces. No signal is sent when the child ends, so that a `wait` for any
/// child elsewhere in the process does not take it; it is waited for by its pidfd.
///
/// # Safety
/// The child must not allocate, panic or return: the locks of other threads are held for ever there.
pub unsafe fn fork_into(namespaces: Namespaces) -> io::Result<Side> {
    let mut pidfd: i32 = -1;
    let args = CloneArgs {
        flags: namespaces.0 | libc::CLONE_PIDFD as u64,
        pidfd: (&raw mut pidfd) as u64,
        ..CloneArgs::default()
    };
    // SAFETY: without CLONE_VM this is a fork: the child continues on a copy of this stack.
    let rc = unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<CloneArgs>()) };
    match rc {
        0 => Ok(Side::Child),
        pid if pid > 0 => Ok(Side::Parent {
            pid: pid as i32,
            // SAFETY: CLONE_PIDFD stored a new descriptor that nobody else owns.
            pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
        }),
        _ => Err(io::Error::last_os_error()),
    }
}
