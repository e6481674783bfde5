//! Who keeps worlds: one for each set of terms, made when it is first asked for, ended when nobody has used
//! it for long, when there are too many, or when its policy says something else by now.

use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use substrate_broker::person::Barrier;
use substrate_broker::{Broker, Caller, Home};
use substrate_changes::pending::Pending;
use substrate_executor::contained;
use substrate_executor::front::{Choice, Front, Given, HeldChanges, Inquiry, Kind, Streams};
use substrate_executor::guarded::StartJudge;
use substrate_executor::line::{Environment, Line};
use substrate_executor::network::Teller;
use substrate_executor::questions::Questions;
use substrate_executor::session::{Identity, Session};
use substrate_executor::worlds::{Oversight, Worlds};
use substrate_trace::{Enforced, Event, SessionId, SpanId, SpanInfo, WorldEvent};
use substrate_world::backend::{
    ExecJob, ExecRequest, ExecStreams, Held, Running, Used, WorldBackend, WorldHandle,
};
use substrate_world::error::WorldError;
use substrate_world::progress::Progress;

use crate::terms::{self, Terms};

/// How kept worlds are called in lists of commands.
const SHOWN: &str = "(kept world)";

/// How many worlds are kept, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Most worlds at once.
    pub worlds: usize,
    /// How long one waits in which nothing runs.
    pub idle: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            worlds: 32,
            idle: Duration::from_secs(15 * 60),
        }
    }
}

/// Why there is no kept world for somebody.
#[derive(Debug, thiserror::Error)]
pub enum NoWorld {
    /// There are as many as there may be, and all are in use.
    #[error("{0} worlds are kept, as many as there may be, and all are in use")]
    Full(usize),
    /// The service has another idea of the policy than who asks.
    #[error("the policy is another one by now")]
    OtherPolicy,
    /// It is about to end.
    #[error("the service is about to end")]
    Ending,
    /// The terms are about another home.
    #[error("the service keeps worlds for {0} only")]
    OtherHome(PathBuf),
    /// The policy cannot be opened.
    #[error("{0}")]
    Policy(String),
    /// It could not be made.
    #[error(transparent)]
    World(#[from] WorldError),
}

/// All worlds that are kept.
pub struct Keeper {
    home: Home,
    worlds: Arc<dyn Worlds>,
    bounds: Bounds,
    kept: Mutex<HashMap<String, Arc<Slot>>>,
    coming: AtomicUsize,
    ending: AtomicBool,
    counts: Counts,
}

/// Where a world is, or is being made while others wait for it.
#[derive(Default)]
struct Slot(Mutex<Option<Arc<Kept>>>);

/// How often a world was there already.
#[derive(Debug, Default)]
pub struct Counts {
    made: AtomicU32,
    reused: AtomicU32,
}

impl Counts {
    /// How many were made, and how often one that was there served.
    pub fn read(&self) -> (u32, u32) {
        let count = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        (count(&self.made), count(&self.reused))
    }
}

impl Keeper {
    /// Keeps worlds of this machine for a home.
    pub fn new(home: Home, worlds: Arc<dyn Worlds>, bounds: Bounds) -> Keeper {
        Keeper {
            home,
            worlds,
            bounds,
            kept: Mutex::default(),
            coming: AtomicUsize::new(0),
            ending: AtomicBool::new(false),
            counts: Counts::default(),
        }
    }

    /// Where worlds come from.
    pub fn worlds(&self) -> Arc<dyn Worlds> {
        Arc::clone(&self.worlds)
    }

    /// The home that they are kept for.
    pub fn home(&self) -> &Home {
        &self.home
    }

    /// How often worlds were reused.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The world on these terms, in use from now on: the one that lives, or a new one.
    pub fn world(&self, terms: &Terms) -> Result<InUse, NoWorld> {
        if self.ending.load(Ordering::Acquire) {
            return Err(NoWorld::Ending);
        }
        if terms.spec.substrate_home != self.home.path {
            return Err(NoWorld::OtherHome(self.home.path.clone()));
        }
        let slot = Arc::clone(lock(&self.kept).entry(terms.key()).or_default());
        // Whoever asks for the same one meanwhile waits here for it.
        let mut place = lock(&slot.0);
        if let Some(kept) = place.as_ref().filter(|kept| kept.is_alive()) {
            self.counts.reused.fetch_add(1, Ordering::Relaxed);
            return Ok(InUse::of(kept));
        }
        *place = None;
        // Counted before there is room for it, so that many at once do not find the same room.
        let _coming = Coming::one(&self.coming);
        let made = self.make_room().and_then(|()| self.make(terms));
        let kept = made.inspect_err(|_| {
            // Nobody else may be left waiting for a place that stays empty.
            lock(&self.kept).retain(|_, other| !Arc::ptr_eq(other, &slot));
        })?;
        self.counts.made.fetch_add(1, Ordering::Relaxed);
        let kept = Arc::new(kept);
        *place = Some(Arc::clone(&kept));
        let used = InUse::of(&kept);
        drop(place);
        self.retire(terms);
        Ok(used)
    }

    fn make(&self, terms: &Terms) -> Result<Kept, NoWorld> {
        let broker = Broker::open(self.home.clone(), terms.options(Caller::own()))
            .map_err(|error| NoWorld::Policy(error.to_string()))?;
        if terms::said(&broker) != terms.policy {
            return Err(NoWorld::OtherPolicy);
        }
        Ok(Kept::make(broker, terms, &self.worlds)?)
    }

    /// Ends worlds in which nothing runs until there is room for one more.
    fn make_room(&self) -> Result<(), NoWorld> {
        loop {
            let mut all = self.list();
            if all.len() + self.coming.load(Ordering::Acquire) <= self.bounds.worlds {
                return Ok(());
            }
            all.retain(|kept| kept.idle_since().is_some());
            all.sort_by_key(|kept| kept.idle_since());
            let Some(oldest) = all.first() else {
                return Err(NoWorld::Full(self.bounds.worlds));
            };
            self.end(oldest);
        }
    }

    /// Lets the worlds of the same project and agent under an earlier form of the same policy end.
    fn retire(&self, terms: &Terms) {
        let older = |kept: &Arc<Kept>| {
            let known = &kept.terms;
            (&known.choice, &known.ceilings, &known.agent, known.project)
                == (&terms.choice, &terms.ceilings, &terms.agent, terms.project)
                && known.policy != terms.policy
        };
        for kept in self.list().iter().filter(|kept| older(kept)) {
            kept.retired.store(true, Ordering::Release);
        }
        self.sweep();
    }

    /// Ends what nobody has used for long, what is retired, and what died.
    pub fn sweep(&self) {
        for kept in self.list() {
            let Some(since) = kept.idle_since() else {
                continue;
            };
            let over = since.elapsed() >= self.bounds.idle && kept.is_empty();
            if over || kept.retired.load(Ordering::Acquire) || !kept.is_alive() {
                self.end(&kept);
            }
        }
    }

    /// Every world that is kept.
    pub fn list(&self) -> Vec<Arc<Kept>> {
        let slots: Vec<Arc<Slot>> = lock(&self.kept).values().cloned().collect();
        let there = |slot: &Arc<Slot>| slot.0.try_lock().ok()?.clone();
        slots.iter().filter_map(there).collect()
    }

    /// Ends one, unless it came into use meanwhile.
    pub fn end(&self, kept: &Arc<Kept>) {
        let key = kept.terms.key();
        let slot = lock(&self.kept).get(&key).cloned();
        let Some(slot) = slot else { return };
        let mut place = lock(&slot.0);
        let same = place.as_ref().is_some_and(|there| Arc::ptr_eq(there, kept));
        if !same || kept.idle_since().is_none() && kept.is_alive() {
            return;
        }
        *place = None;
        drop(place);
        lock(&self.kept).retain(|_, other| !Arc::ptr_eq(other, &slot));
        kept.end(&self.worlds);
    }

    /// Ends all of them; nothing is kept from now on.
    pub fn end_all(&self) {
        self.ending.store(true, Ordering::Release);
        let slots: Vec<Arc<Slot>> = lock(&self.kept).drain().map(|(_, slot)| slot).collect();
        for slot in slots {
            let kept = lock(&slot.0).take();
            if let Some(kept) = kept {
                kept.end(&self.worlds);
            }
        }
    }
}

/// A world that is about to be there.
struct Coming<'k>(&'k AtomicUsize);

impl Coming<'_> {
    fn one(count: &AtomicUsize) -> Coming<'_> {
        count.fetch_add(1, Ordering::AcqRel);
        Coming(count)
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A world that is kept.
pub struct Kept {
    terms: Terms,
    broker: Broker,
    backend: Box<dyn WorldBackend>,
    world: WorldHandle,
    enforced: Enforced,
    judge: Arc<StartJudge>,
    teller: Teller,
    front: Arc<Speakers>,
    line: Line,
    made: SystemTime,
    next: AtomicU32,
    uses: Mutex<Uses>,
    retired: AtomicBool,
}

struct Uses {
    now: usize,
    since: Instant,
    total: u64,
}

impl Kept {
    fn make(broker: Broker, terms: &Terms, worlds: &Arc<dyn Worlds>) -> Result<Kept, WorldError> {
        let front = Arc::new(Speakers::default());
        let session = session(&broker, &front, worlds, &terms.agent);
        let cwd = terms.spec.project.clone();
        let line = Line {
            session: session.id(),
            span: SpanId::new(),
            agent: terms.agent.clone(),
            isolated: false,
            cwd: cwd.unwrap_or_else(|| terms.spec.home.clone()),
            cmd: SHOWN.into(),
            environment: Default::default(),
            seen: false,
            agreed: Vec::new(),
            replaced: false,
        };
        let teller = Teller::new(&session);
        let wire = teller
            .wire_of_command(&session, &terms.spec, &line.cwd, None)
            .map_err(WorldError::Network)?;
        let judge = Arc::new(StartJudge::of(&session, false));
        judge.begin(line.clone());
        let backend = worlds.backend(Oversight {
            judge: Some(judge.clone()),
            network: Some(wire),
            borrowing: None,
        });
        let label = ExecRequest {
            cwd: line.cwd.clone(),
            line: line.cmd.clone(),
            span: Some(line.span),
            ..ExecRequest::default()
        };
        let streams = ExecStreams::default();
        let job = ExecJob {
            request: &label,
            streams: &streams,
        };
        let world = backend.ensure_session(&terms.spec, Some(job))?;
        let enforced = backend.enforced(world)?;
        let kept = Kept {
            terms: terms.clone(),
            broker,
            backend,
            world,
            enforced,
            judge,
            teller,
            front,
            line,
            made: SystemTime::now(),
            next: AtomicU32::new(1),
            uses: Mutex::new(Uses {
                now: 0,
                since: Instant::now(),
                total: 0,
            }),
            retired: AtomicBool::new(false),
        };
        kept.teller.begin(&kept.span());
        kept.tell(&session, "started", Some(&kept.enforced));
        Ok(kept)
    }

    /// The terms that it was made on.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Its id.
    pub fn world(&self) -> WorldHandle {
        self.world
    }

    /// What really holds it.
    pub fn enforced(&self) -> &Enforced {
        &self.enforced
    }

    /// When it was made.
    pub fn made(&self) -> SystemTime {
        self.made
    }

    /// How many commands run in it, and how many ran.
    pub fn uses(&self) -> (usize, u64) {
        let uses = lock(&self.uses);
        (uses.now, uses.total)
    }

    /// Whether it is there.
    pub fn is_alive(&self) -> bool {
        self.backend.is_alive(self.world)
    }

    /// Since when nobody uses it; nothing while somebody does.
    pub fn idle_since(&self) -> Option<Instant> {
        let uses = lock(&self.uses);
        (uses.now == 0).then_some(uses.since)
    }

    /// Whether nothing was left running in it.
    fn is_empty(&self) -> bool {
        self.backend.is_empty(self.world)
    }

    fn span(&self) -> SpanInfo {
        let mut span = self.line.span();
        span.world_id = Some(self.world.id);
        span.policy_id = self.broker.info().id.clone();
        span.mode = self.terms.spec.mode;
        span
    }

    fn tell(&self, session: &Session, action: &str, enforced: Option<&Enforced>) {
        let event = WorldEvent {
            action: action.to_owned(),
            enforced: enforced.cloned(),
            ..WorldEvent::default()
        };
        session.record_or_warn(&Event::world_event(&self.span(), &event));
    }

    /// Starts a command. Questions about what it starts go to whoever holds what comes back.
    pub fn start(
        &self,
        request: &ExecRequest,
        streams: &ExecStreams,
        lent: Lent,
    ) -> Result<Command<'_>, WorldError> {
        let tag = self.next.fetch_add(1, Ordering::Relaxed).max(1);
        let before = self.backend.used(self.world).unwrap_or_default();
        self.teller.begin(&SpanInfo {
            policy_id: self.broker.info().id.clone(),
            mode: self.terms.spec.mode,
            world_id: Some(self.world.id),
            ..lent.line.span()
        });
        self.front.add(tag, lent.speaker, lent.unicode);
        let questions = self.judge.expect(tag, lent.line, lent.first);
        let questions = questions.map_err(WorldError::own("make a socket pair"));
        self.judge.attended_to(tag, lent.attended);
        let request = ExecRequest {
            tag,
            ..request.clone()
        };
        let job = ExecJob {
            request: &request,
            streams,
        };
        let started = questions.and_then(|questions| {
            let running = self.backend.spawn(self.world, job)?;
            Ok((questions, running))
        });
        match started {
            Ok((questions, running)) => Ok(Command {
                kept: self,
                tag,
                before,
                questions,
                running,
            }),
            Err(error) => {
                self.forget(tag);
                Err(error)
            }
        }
    }

    fn forget(&self, tag: u32) {
        self.judge.end(tag);
        self.front.remove(tag);
    }

    /// Ends it; what it held back of `$HOME` is settled as the policy says.
    fn end(&self, worlds: &Arc<dyn Worlds>) {
        self.backend.drain(self.world, Duration::ZERO);
        let session = session(&self.broker, &self.front, worlds, &self.terms.agent);
        let held = self.backend.end(self.world).ok().flatten();
        self.teller.finish();
        if let Some(pending) = held.and_then(|held| Pending::of(&held).ok()) {
            contained::settle_home(&session, &self.span(), &self.terms.spec, pending);
        }
        self.tell(&session, "ended", None);
    }
}

fn session(
    broker: &Broker,
    front: &Arc<Speakers>,
    worlds: &Arc<dyn Worlds>,
    agent: &str,
) -> Session {
    let front: Arc<dyn Front> = front.clone();
    let identity = Identity {
        session: SessionId::new(),
        parent: None,
        agent: agent.to_owned(),
        umask: substrate_sys::identity::umask(),
    };
    let env: Vec<CString> = Vec::new();
    Session::begin_as(broker.clone(), env, front, Arc::clone(worlds), identity)
}

/// A world that somebody uses.
pub struct InUse {
    kept: Arc<Kept>,
}

impl InUse {
    fn of(kept: &Arc<Kept>) -> InUse {
        let mut uses = lock(&kept.uses);
        uses.now += 1;
        uses.total += 1;
        InUse {
            kept: Arc::clone(kept),
        }
    }

    /// The world.
    pub fn kept(&self) -> &Arc<Kept> {
        &self.kept
    }
}

impl std::ops::Deref for InUse {
    type Target = Kept;

    fn deref(&self) -> &Kept {
        &self.kept
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut uses = lock(&self.kept.uses);
        uses.now -= 1;
        uses.since = Instant::now();
    }
}

/// What comes with a command that is to run in a kept world.
pub struct Lent {
    /// Its line.
    pub line: Line,
    /// Its environment, before anything changes that.
    pub first: Environment,
    /// Where notices about it go.
    pub speaker: Speaker,
    /// Whether these may have characters beyond ASCII.
    pub unicode: bool,
    /// Whether somebody attends to questions about it.
    pub attended: bool,
}

/// A command that runs in a kept world.
pub struct Command<'k> {
    kept: &'k Kept,
    tag: u32,
    before: Used,
    /// About what it starts.
    pub questions: Questions,
    /// It.
    pub running: Box<dyn Running>,
}

impl Command<'_> {
    /// What the world used since it began.
    pub fn used(&self) -> Used {
        let now = self.kept.backend.used(self.kept.world).unwrap_or_default();
        now.since(&self.before)
    }

    /// A session that can put its questions to this front.
    pub fn session(&self, front: Arc<dyn Front>, worlds: Arc<dyn Worlds>, line: &Line) -> Session {
        let identity = Identity {
            session: line.session,
            parent: Some(line.span),
            agent: line.agent.clone(),
            umask: substrate_sys::identity::umask(),
        };
        let broker = self.kept.broker.clone();
        Session::begin_as(broker, Vec::new(), front, worlds, identity)
    }
}

impl Drop for Command<'_> {
    fn drop(&mut self) {
        self.kept.teller.begin(&self.kept.span());
        self.kept.forget(self.tag);
    }
}

/// Says things to whoever a command runs for.
pub type Speaker = Arc<dyn Fn(Kind, &str) + Send + Sync>;

/// Whoever has a command running in a world: notices of its guard and its gate go to all of them.
#[derive(Default)]
struct Speakers(Mutex<Vec<Listener>>);

#[derive(Clone)]
struct Listener {
    tag: u32,
    speaker: Speaker,
    unicode: bool,
}

impl Speakers {
    fn add(&self, tag: u32, speaker: Speaker, unicode: bool) {
        lock(&self.0).push(Listener {
            tag,
            speaker,
            unicode,
        });
    }

    fn remove(&self, tag: u32) {
        lock(&self.0).retain(|listener| listener.tag != tag);
    }

    /// The one who came last, as a rule the only one.
    fn last(&self) -> Option<Listener> {
        lock(&self.0).last().cloned()
    }
}

impl Front for Speakers {
    fn say(&self, kind: Kind, text: &str) {
        if let Some(listener) = self.last() {
            (listener.speaker)(kind, text);
        }
    }

    fn line(&self, kind: Kind, text: &str) -> String {
        let unicode = self.last().is_none_or(|listener| listener.unicode);
        format!("{}{text}", kind.sign(unicode))
    }

    fn barrier(&self, _: &Caller) -> Option<Barrier> {
        Some(Barrier::NoTerminal)
    }

    fn ask(&self, _: &dyn Inquiry) -> io::Result<Given> {
        Ok(Given::denied())
    }

    fn settle(&self, _: &Held, _: &dyn HeldChanges) -> Option<Choice> {
        None
    }

    fn progress(&self) -> Box<dyn FnMut(Progress) -> bool> {
        Box::new(|_| true)
    }

    fn streams(&self) -> io::Result<Streams> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves worlds as they were.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
