//! What all requests share.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use substrate_broker::{Caller, Choice, Home};
use substrate_executor::front::{Front, Kind};
use substrate_executor::worlds::Worlds;
use substrate_init::control;
use substrate_trace::SessionId;
use substrate_warm::borrow::{Cold, Lender};
use substrate_warm::keep::{Bounds, Keeper};
use substrate_warm::lend;
use substrate_warm::worlds::Borrowed;
use tokio::sync::watch;

use crate::accounts::Accounts;
use crate::attempt::Attempts;
use crate::locked::lock;
use crate::queue::Queue;
use crate::setup::Setup;
use crate::terminals::Terminals;

/// Commands at once; more wait.
pub(crate) const COMMANDS: usize = 64;
/// Of these for one agent, so that none keeps all others from running.
const OF_ONE_AGENT: usize = 48;

/// Variables of whoever started the service that commands get.
const HANDED_ON: [&str; 14] = [
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
];

/// What all requests share.
pub(crate) struct Service {
    pub home: Home,
    pub version: String,
    pub started: Instant,
    pub bounds: Bounds,
    pub keeper: Arc<Keeper>,
    pub worlds: Arc<dyn Worlds>,
    pub ceilings: fn(&Caller) -> Vec<Choice>,
    pub queue: Queue,
    pub attempts: Attempts,
    pub terminals: Terminals,
    sessions: Mutex<BTreeMap<String, SessionId>>,
    slots: Slots,
    last_use: Mutex<Instant>,
    connections: AtomicUsize,
    ending: AtomicBool,
    end: watch::Sender<bool>,
}

impl Service {
    pub fn new(setup: &Setup, keeper: Arc<Keeper>) -> Service {
        let lender = Arc::new(OwnWorlds(Arc::clone(&keeper)));
        let worlds = Borrowed::new(Arc::clone(&setup.worlds), lender);
        Service {
            home: setup.home.clone(),
            version: setup.version.clone(),
            started: Instant::now(),
            bounds: setup.bounds,
            keeper,
            worlds: Arc::new(worlds),
            ceilings: setup.ceilings,
            queue: Queue::default(),
            attempts: Attempts::default(),
            terminals: Terminals::default(),
            sessions: Mutex::default(),
            slots: Slots::default(),
            last_use: Mutex::new(Instant::now()),
            connections: AtomicUsize::new(0),
            ending: AtomicBool::new(false),
            end: watch::Sender::new(false),
        }
    }

    /// The session of an agent: all its commands are one in the trace.
    pub fn session_of(&self, agent: &str) -> SessionId {
        let mut sessions = lock(&self.sessions);
        *sessions
            .entry(agent.to_owned())
            .or_insert_with(SessionId::new)
    }

    /// What agents used; opened for each request, so that a home whose directory was removed is noticed.
    pub fn accounts(&self) -> io::Result<Accounts> {
        Accounts::of(&self.home)
    }

    /// The environment of commands before what a request adds.
    pub fn environment(&self) -> Vec<CString> {
        let entry = |name: &&str| {
            let value = std::env::var_os(name)?;
            let mut entry = OsString::from(name);
            entry.push("=");
            entry.push(value);
            CString::new(entry.as_bytes()).ok()
        };
        HANDED_ON.iter().filter_map(entry).collect()
    }

    /// The directory of a request that names none.
    pub fn user_home(&self) -> &OsStr {
        self.home.user.as_os_str()
    }

    /// Waits for a place among the commands that run.
    pub fn slot(self: &Arc<Service>, agent: &str) -> Slot {
        self.slots.wait(agent);
        self.touch();
        Slot(Arc::clone(self), agent.to_owned())
    }

    /// Gives the place of a command back while it waits for something else than the machine.
    pub fn beside_the_slots<T>(&self, agent: &str, waits: impl FnOnce() -> T) -> T {
        self.slots.free_one(agent);
        let waited = waits();
        self.slots.wait(agent);
        waited
    }

    /// How many commands run.
    pub fn running(&self) -> usize {
        lock(&self.slots.taken).all
    }

    pub fn connected(self: &Arc<Service>) -> Connection {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.touch();
        Connection(Arc::clone(self))
    }

    fn touch(&self) {
        *lock(&self.last_use) = Instant::now();
    }

    /// How long nobody has needed it.
    pub fn unused_for(&self) -> Duration {
        let used = self.connections.load(Ordering::Relaxed) > 0
            || self.running() > 0
            || self.queue.len() > 0
            || !self.keeper.list().is_empty()
            || !self.terminals.is_empty();
        if used {
            self.touch();
        }
        lock(&self.last_use).elapsed()
    }

    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// Takes no more work.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Release);
        self.end.send_replace(true);
    }

    /// Hears of the end.
    pub fn ends(&self) -> watch::Receiver<bool> {
        self.end.subscribe()
    }

    /// Waits for running commands, and ends those that take too long.
    pub fn drain(&self, patience: Duration) {
        self.end();
        let end = Instant::now() + patience;
        while self.running() > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        for attempt in self.attempts.running() {
            attempt.abandon(None);
        }
        let end = Instant::now() + patience;
        while self.running() > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Commands that may run at once.
#[derive(Default)]
struct Slots {
    taken: Mutex<Taken>,
    free: Condvar,
}

#[derive(Default)]
struct Taken {
    all: usize,
    by: HashMap<String, usize>,
}

impl Slots {
    fn wait(&self, agent: &str) {
        let taken = lock(&self.taken);
        let full = |taken: &mut Taken| {
            let own = taken.by.get(agent).copied().unwrap_or_default();
            taken.all >= COMMANDS || own >= OF_ONE_AGENT
        };
        let mut taken = self
            .free
            .wait_while(taken, full)
            .unwrap_or_else(PoisonError::into_inner);
        taken.all += 1;
        *taken.by.entry(agent.to_owned()).or_default() += 1;
    }

    fn free_one(&self, agent: &str) {
        let mut taken = lock(&self.taken);
        taken.all -= 1;
        if let Some(own) = taken.by.get_mut(agent) {
            *own -= 1;
            if *own == 0 {
                taken.by.remove(agent);
            }
        }
        drop(taken);
        self.free.notify_all();
    }
}

/// A place among the commands that run.
pub(crate) struct Slot(Arc<Service>, String);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.slots.free_one(&self.1);
        self.0.touch();
    }
}

/// Somebody is connected.
pub(crate) struct Connection(Arc<Service>);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
        self.0.touch();
    }
}

/// The worlds that this very process keeps, for its own commands.
struct OwnWorlds(Arc<Keeper>);

impl Lender for OwnWorlds {
    fn connect(&self) -> Result<OwnedFd, String> {
        let (ours, theirs) = control::pair().map_err(|error| error.to_string())?;
        let keeper = Arc::clone(&self.0);
        std::thread::Builder::new()
            .name("substrate-lend".to_owned())
            .spawn(move || lend::converse(&keeper, theirs))
            .map_err(|error| error.to_string())?;
        Ok(ours)
    }

    fn missed(&self, front: &dyn Front, _: bool, missed: &Cold) {
        let (Cold::Nobody(why) | Cold::NotThere(why)) = missed;
        front.say(
            Kind::Info,
            &format!("this ran in a world of its own: {why}"),
        );
    }
}
