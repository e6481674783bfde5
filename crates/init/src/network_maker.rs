//! The process that makes a world's network while the world's first process gets to its files. The
//! rule of [`crate::bare`] holds here.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Signal, set_parent_process_death_signal, setsid};
use rustix::thread::{
    ThreadNameSpaceType, UnshareFlags, move_into_thread_name_spaces, set_name, unshare_unsafe,
};

use crate::bare::{close_all_but, exit, loopback_up, number};
use crate::control::{Kind, Message};
use crate::netplan::{Made, NetPlan};

/// Makes the network of the world that `world` is the first process of.
pub(crate) fn live(
    world: BorrowedFd<'_>,
    plan: &NetPlan,
    sockets: BorrowedFd<'_>,
    handover: BorrowedFd<'_>,
    keep: &[RawFd],
) -> ! {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // What is typed at the owner's terminal is none of its business.
    let _ = setsid();
    let _ = set_name(c"substrate-net");
    close_all_but(keep);
    let mut message = Message::new(Kind::Export);
    // The world needs no more of it than that it is there; what goes on in it is for the gate.
    let sent = match new_network(world) {
        Ok(made) => message.send(handover, &[made.as_fd()]),
        Err(error) => {
            message.kind = Kind::Failed;
            message.b = number(&error);
            let _ = message.send(handover, &[]);
            exit(1)
        }
    };
    let mut made = Made::new();
    let done = plan.run(&mut made);
    let sent = sent.and(made.send(done, sockets));
    exit(i32::from(sent.is_err()))
}

fn new_network(world: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    move_into_thread_name_spaces(world, ThreadNameSpaceType::USER)?;
    // SAFETY: descriptors stay shared, which is what `unshare` could make unsound.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    loopback_up()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(open(c"/proc/self/ns/net", flags, Mode::empty())?)
}
