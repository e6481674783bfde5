//! The first process of a world, from the clone until it is ready. The rule of [`crate::bare`] holds here.
//!
//! When a step fails, its number and the errno go to the parent, which knows what they mean.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};

use rustix::fs::Mode;
use rustix::process::{Signal, set_parent_process_death_signal, setsid, umask};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::thread::set_name;
use substrate_sys::marker::{self, Mark};

use crate::bare::{close_all_but, exit, number};
use crate::control::{Kind, Message};
use crate::keeper::{Keeper, MAX_RUNNING};
use crate::step::{self, Need, Step};

/// All that the first process needs, prepared before the clone.
pub(crate) struct Birth<'a> {
    pub steps: &'a [(Step, Need)],
    pub slots: &'a mut [Option<OwnedFd>],
    /// Its end of the control socket.
    pub control: RawFd,
    /// Where the guard of its filter hears of the starts that are its own.
    pub own_starts: Option<RawFd>,
    /// Something harmless for descriptors 0 to 2.
    pub null: RawFd,
    /// Descriptors to keep, in rising order.
    pub keep: &'a [RawFd],
    /// Memory for the stack of a starting command.
    pub stack: &'a mut [MaybeUninit<u8>],
    /// Where terminals come from.
    pub ptmx: &'a CStr,
    /// The world ends with its first command.
    pub one_shot: bool,
    /// The process is the first of a process namespace, so its end ends all others.
    pub owns_processes: bool,
    /// End when the thread that made the world ends.
    pub die_with_thread: bool,
}

/// Lives the life of a world's first process.
pub(crate) fn live(mut birth: Birth<'_>) -> ! {
    // SAFETY: the parent kept these open across the clone.
    let [control, null] =
        [birth.control, birth.null].map(|fd| unsafe { BorrowedFd::borrow_raw(fd) });
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // Out of the owner's session: its terminal is none of the world's business, and a stop
    // of the owner's job is no stop of the world.
    let _ = setsid();
    let _ = (dup2_stdin(null), dup2_stdout(null), dup2_stderr(null));
    let _ = set_name(c"substrate-world");
    // Whoever keeps the world need not be in a session; whatever lives in it is.
    let _ = marker::set(Mark::Session);
    close_all_but(birth.keep);
    substrate_sys::fdlimit::restore();
    // The mask of the owner must not decide about the files of a world; commands get it back.
    let mask = umask(Mode::empty());
    take_steps(&mut birth, control);
    umask(mask);
    if !birth.die_with_thread {
        // From here on the closed control socket is the sign that the owner is gone.
        let _ = set_parent_process_death_signal(None);
    }
    if Message::new(Kind::Ready).send(control, &[]).is_err() {
        exit(1);
    }
    let keeper = Keeper {
        control,
        stack: birth.stack,
        ptmx: birth.ptmx,
        one_shot: birth.one_shot,
        owns_processes: birth.owns_processes,
        own_starts: birth.own_starts,
        running: [const { None }; MAX_RUNNING],
    };
    keeper.serve()
}

/// Takes every step, and tells of what it makes and of what it cannot.
fn take_steps(birth: &mut Birth<'_>, control: BorrowedFd<'_>) {
    for (at, (step, need)) in birth.steps.iter().enumerate() {
        let mut message = Message::new(Kind::Missing);
        message.a = at as i32;
        match step::take(step, birth.slots, control) {
            Ok(None) => {}
            Ok(Some(fd)) => {
                message.kind = Kind::Export;
                if message.send(control, &[fd.as_fd()]).is_err() {
                    exit(1);
                }
            }
            Err(error) => {
                message.b = number(&error);
                if *need == Need::Required {
                    message.kind = Kind::Failed;
                }
                if message.send(control, &[]).is_err() || *need == Need::Required {
                    exit(1);
                }
            }
        }
    }
    for slot in birth.slots.iter_mut() {
        *slot = None;
    }
}
