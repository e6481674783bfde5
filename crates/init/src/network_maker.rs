//! The process that makes a world's network while the world's first process gets to its files. The
//! rule of [`crate::child`] is its rule.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::child::{check, close_all_but, exit, loopback_up};
use crate::control::{Kind, Message};
use crate::netplan::{Made, NetPlan};

/// Makes the network of the world that `world` is the first process of.
pub(crate) fn live(
    world: RawFd,
    plan: &NetPlan,
    sockets: BorrowedFd<'_>,
    handover: BorrowedFd<'_>,
    keep: &[RawFd],
) -> ! {
    // SAFETY: plain system calls; the name is a C string.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        // What is typed at the owner's terminal is none of its business.
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"substrate-net".as_ptr(), 0, 0, 0);
    }
    close_all_but(keep);
    let mut message = Message::new(Kind::Export);
    // The world needs no more of it than that it is there; what goes on in it is for the gate.
    let sent = match new_network(world) {
        Ok(made) => message.send(handover, &[made.as_raw_fd()]),
        Err(error) => {
            message.kind = Kind::Failed;
            message.b = error.raw_os_error().unwrap_or(libc::EIO);
            let _ = message.send(handover, &[]);
            exit(1)
        }
    };
    let mut made = Made::new();
    let done = plan.run(&mut made);
    let sent = sent.and(made.send(done, sockets));
    exit(i32::from(sent.is_err()))
}

fn new_network(world: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: plain system calls without pointers.
    unsafe {
        check(libc::setns(world, libc::CLONE_NEWUSER))?;
        check(libc::unshare(libc::CLONE_NEWNET))?;
    }
    loopback_up()?;
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path is a C string.
    let fd = check(unsafe { libc::open(c"/proc/self/ns/net".as_ptr(), flags) })?;
    // SAFETY: the kernel just returned this descriptor and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
