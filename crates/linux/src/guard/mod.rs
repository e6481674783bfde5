//! The exec guard: every program start inside a world is judged by what the kernel will really
//! run, and looked at once more when it is in place.
//!
//! The world's filter puts each `execve` and `execveat` to a listener on our side. A worker reads
//! what is to be started, asks an [`ExecJudge`], and lets the call go on or fail. What was read
//! can change until the kernel reads it again, so the worker holds the process at the end of its
//! exec, when the old threads are gone and the new program has not begun, and compares. Closing
//! the listener makes every further start fail, so a dead guard lets nothing pass. The commands
//! that the world's first process starts for its owner were judged before: it says which process is
//! about to become one, and that process's next call passes, once.

mod connect;
mod say;
mod serve;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use substrate_init::own_starts::OwnStarts;
use substrate_starts::{ExecJudge, image, look};
use substrate_sys::alarm::Alarm;
use substrate_sys::notify::Listener;
use substrate_trace::WorldId;

pub use connect::Sockets;

/// On which terms starts are guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Look again at what is in place after the exec. Needs that nobody else traces.
    pub recheck: bool,
    /// Refusals are carried out; else a start that cannot be read goes on.
    pub enforce: bool,
    /// Processes of the world may have different roots.
    pub roots_change: bool,
}

impl Terms {
    /// The word for `enforced.exec`.
    pub fn word(self) -> &'static str {
        match (self.enforce, self.recheck) {
            (true, true) => "guard",
            (true, false) => "guard, without re-check",
            (false, _) => "observed",
        }
    }
}

/// A guard at work. Dropping it makes every further start in its world fail.
#[derive(Debug)]
pub struct Guard {
    shared: Arc<Shared>,
    /// Closing this tells the workers to end.
    _stop: UnixStream,
}

struct Shared {
    world: WorldId,
    listener: Listener,
    own_starts: Option<OwnStarts>,
    judge: Arc<dyn ExecJudge>,
    terms: Terms,
    stopped: UnixStream,
    lead: Mutex<serve::Lead>,
    /// Threads that are held until their starts are done, and whether they were asked to stop.
    watched: Mutex<Vec<(i32, bool)>>,
    /// That has changed.
    stopping: Condvar,
    /// Calls another worker to take over.
    relief: Alarm,
    images: image::Images,
    root: look::Root,
    workers: AtomicUsize,
    idle: AtomicUsize,
    asking: AtomicUsize,
    /// Workers that may have to wait for the other side of a connection.
    connecting: AtomicUsize,
    /// Starts another worker.
    another: fn(&Arc<Shared>) -> io::Result<()>,
    sockets: Option<Sockets>,
    /// Starts for which another worker is to be woken at once.
    crowd: AtomicUsize,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("terms", &self.terms).finish()
    }
}

impl Guard {
    /// Starts to guard what a listener brings; what is the first process's own was judged before.
    pub fn start(
        world: WorldId,
        listener: OwnedFd,
        own_starts: Option<OwnStarts>,
        judge: Arc<dyn ExecJudge>,
        terms: Terms,
        sockets: Option<Sockets>,
    ) -> io::Result<Guard> {
        let (stop, stopped) = UnixStream::pair()?;
        let shared = Arc::new(Shared {
            world,
            listener: Listener::new(listener),
            own_starts,
            judge,
            terms,
            stopped,
            lead: Mutex::default(),
            watched: Mutex::default(),
            stopping: Condvar::new(),
            relief: Alarm::new()?,
            images: image::Images::default(),
            root: look::Root::default(),
            workers: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            asking: AtomicUsize::new(0),
            connecting: AtomicUsize::new(0),
            another: |shared| serve::add_worker(shared, None),
            sockets,
            crowd: AtomicUsize::new(0),
        });
        serve::add_worker(&shared, Some(0))?;
        Ok(Guard {
            shared,
            _stop: stop,
        })
    }

    /// On which terms it guards.
    pub fn terms(&self) -> Terms {
        self.shared.terms
    }
}

impl Shared {
    fn add(counter: &AtomicUsize) -> usize {
        counter.fetch_add(1, Ordering::AcqRel) + 1
    }

    fn take(counter: &AtomicUsize) -> usize {
        counter.fetch_sub(1, Ordering::AcqRel) - 1
    }
}
