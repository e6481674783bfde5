//! Worlds on Linux: the backend that the rest of Substrate talks to.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use substrate_init::launch::{self, Command, End};
use substrate_policy::terms::{HomeMode, Mode, WorldSpec};
use substrate_relay::{self as relay, status_of};
use substrate_sys::process_group;
use substrate_sys::signals::Signals;
use substrate_trace::{Enforced, FsDiff, Level};

use crate::layout::Placement;
use crate::limits::Group;
use crate::live::Live;
use crate::make;
use crate::options::Options;
use crate::purpose::Purpose;
use crate::start::Asked;
use crate::streams::{self, Carried};
use substrate_changes::pending::{self, Pending};
use substrate_changes::{diff, gc};
use substrate_egress::network::{NetReport, NetworkMaker};
use substrate_starts::ExecJudge;
use substrate_world::backend::{
    Beside, ExecJob, ExecPlace, ExecResult, ExecStreams, Held, News, PolicyChange, Running, Status,
    Stdio, Used, WorldBackend, WorldHandle,
};
use substrate_world::error::WorldError;
use substrate_world::progress::OnProgress;

/// Selects the variant with a new root.
pub const HEAVY_VAR: &str = "SUBSTRATE_HEAVY_ISOLATION";
/// Debug builds only: the strongest level that is tried.
pub const TEST_LEVEL_VAR: &str = "SUBSTRATE_TEST_WORLD_LEVEL";

/// Makes worlds with the kernel of this machine.
pub struct Linux {
    options: Options,
    networks: Option<Box<NetworkMaker>>,
    judge: Option<Arc<dyn ExecJudge>>,
    sessions: Mutex<Vec<Arc<SessionWorld>>>,
    /// Worlds in which nothing runs any more, and which the kernel still takes apart.
    leaving: Mutex<Vec<Live>>,
}

/// Whom a world is made for.
enum For<'a> {
    /// Nobody in particular.
    Nobody,
    /// A session that is named by this.
    Session(ExecJob<'a>),
    /// This command, which starts as soon as it can.
    Command(ExecJob<'a>),
}

/// The world of a session.
struct SessionWorld {
    handle: WorldHandle,
    live: Mutex<Live>,
}

impl Default for Linux {
    fn default() -> Linux {
        let mut options = Options {
            heavy: std::env::var_os(HEAVY_VAR).is_some_and(|value| value == "1"),
            ..Options::default()
        };
        if cfg!(debug_assertions)
            && let Some(level) = std::env::var_os(TEST_LEVEL_VAR)
            && let Some(level) = Level::from_word(&level.to_string_lossy())
        {
            options.ceiling = level;
        }
        Linux::new(options)
    }
}

impl Linux {
    /// A backend whose worlds have no network of the host's.
    pub fn new(options: Options) -> Linux {
        Linux {
            options,
            networks: None,
            judge: None,
            sessions: Mutex::new(Vec::new()),
            leaving: Mutex::new(Vec::new()),
        }
    }

    /// The same with a network for every world that asks for its own.
    pub fn with_network(mut self, networks: Box<NetworkMaker>) -> Linux {
        self.networks = Some(networks);
        self
    }

    /// The same with a judge of every program start in its worlds.
    pub fn with_guard(mut self, judge: Arc<dyn ExecJudge>) -> Linux {
        self.judge = Some(judge);
        self
    }

    /// Starts a command in a session's world without waiting for it.
    pub fn start(&self, world: WorldHandle, job: ExecJob<'_>) -> Result<Command, WorldError> {
        let session = self.session(world)?;
        let mut live = lock(&session.live);
        let (command, mut carried) = live.start(job)?;
        live.carried.append(&mut carried);
        Ok(command)
    }

    fn session(&self, world: WorldHandle) -> Result<Arc<SessionWorld>, WorldError> {
        lock(&self.sessions)
            .iter()
            .find(|session| session.handle == world)
            .cloned()
            .ok_or(WorldError::Gone(world.id))
    }

    fn make(
        &self,
        spec: &WorldSpec,
        placement: Placement,
        what_for: For<'_>,
        again: Option<&Pending>,
        begin: &mut dyn FnMut() -> bool,
    ) -> Result<Live, WorldError> {
        let (job, first) = match what_for {
            For::Nobody => (None, None),
            For::Session(job) => (Some(job), None),
            For::Command(job) => (Some(job), Some(job)),
        };
        let request = job.map(|job| job.request);
        let purpose = Purpose {
            spec,
            placement,
            first,
            span: request
                .and_then(|request| request.span)
                .map_or_else(String::new, |span| span.to_string()),
            line: request.map_or_else(OsString::new, |request| request.line.clone()),
            cwd: request.map_or_else(|| PathBuf::from("/"), |request| request.cwd.clone()),
            streams: job.map_or_else(Vec::new, |job| streams::to_take(job.streams)),
            judge: self.judge.clone(),
            again,
            begin: RefCell::new(begin),
        };
        make::make(&purpose, &self.options, self.networks.as_deref())
    }

    fn exec_fresh(
        &self,
        spec: &WorldSpec,
        placement: Placement,
        job: ExecJob<'_>,
        again: Option<&Pending>,
        beside: Option<&mut Beside<'_>>,
        begin: &mut dyn FnMut() -> bool,
    ) -> Result<ExecResult, WorldError> {
        self.see_off();
        let signals = signals_of(job.streams)?;
        let mut live = self.make(spec, placement, For::Command(job), again, begin)?;
        let mut carried = Carried::default();
        let mut empty = false;
        let started = match live.first.take() {
            Some(asked) => asked.and_then(Asked::started),
            None => live.start(job),
        };
        let begun = started.is_ok();
        let status = started.and_then(|(mut command, streams)| {
            carried = streams;
            if live.pending.is_some() {
                // For the next one, which takes a little longer without.
                let _ = pending::make_ready(&spec.substrate_home);
            }
            gc::sweep(&spec.substrate_home, &mut || still_runs(&command));
            hand_out(&mut command, job.streams);
            let mut tap = |bytes: &[u8]| listen(job.streams, bytes);
            let watch = watch(&signals, spec, job.streams);
            let send = |command: &Command, signal| live.init.signal(command, signal);
            let end = relay::run(&mut command, &send, &watch, &mut tap, beside);
            let (end, ran_out) = end.map_err(WorldError::own("wait for the command"))?;
            empty = command.was_last();
            Ok((status_of(end, job.request, live.id)?, ran_out))
        });
        end(&mut live, empty)?;
        live.enforced.degraded.extend(carried.finish());
        let report = live.network.as_mut().map(|network| network.finish());
        if let Some(pending) = live.pending.as_mut().filter(|_| again.is_none()) {
            match &status {
                // What the command did stays whether or not there was room for a note.
                Ok((status, _)) => {
                    let isolated = placement == Placement::Isolated;
                    if let Err(error) = pending.finish(isolated.then(|| status.code())) {
                        live.enforced.degraded.push(error.to_string());
                    }
                }
                // How it would have ended nobody knows, but what it wrote is there.
                Err(WorldError::Gone(_) | WorldError::Own(..)) if begun => {
                    let _ = pending.finish(None);
                }
                Err(_) => {
                    // The command never ran, so there is nothing to keep.
                    let _ = substrate_changes::remove::remove_path(pending.dir());
                }
            }
        }
        let result = result(&live, status?, report.unwrap_or_default());
        lock(&self.leaving).push(live);
        Ok(result)
    }

    fn exec_in_session(
        &self,
        world: WorldHandle,
        job: ExecJob<'_>,
        beside: Option<&mut Beside<'_>>,
    ) -> Result<ExecResult, WorldError> {
        let session = self.session(world)?;
        let signals = signals_of(job.streams)?;
        let (mut command, carried) = lock(&session.live).start(job)?;
        hand_out(&mut command, job.streams);
        let mut tap = |bytes: &[u8]| listen(job.streams, bytes);
        let spec = lock(&session.live).spec.clone();
        let watch = watch(&signals, &spec, job.streams);
        let mut started = Started {
            command,
            carried,
            session: Arc::clone(&session),
        };
        let send = command_signals(&session);
        let end = relay::run(&mut started.command, &send, &watch, &mut tap, beside);
        started.settle();
        drop(started);
        let (end, ran_out) = end.map_err(WorldError::own("wait for the command"))?;
        let mut live = lock(&session.live);
        let status = (status_of(end, job.request, live.id)?, ran_out);
        let report = live.network.as_mut().map(|network| network.report());
        Ok(result(&live, status, report.unwrap_or_default()))
    }
}

impl WorldBackend for Linux {
    fn ensure_session(
        &self,
        spec: &WorldSpec,
        job: Option<ExecJob<'_>>,
    ) -> Result<WorldHandle, WorldError> {
        let mut sessions = lock(&self.sessions);
        if let Some(session) = sessions
            .iter()
            .find(|session| lock(&session.live).spec == *spec)
        {
            return Ok(session.handle);
        }
        let what_for = job.map_or(For::Nobody, For::Session);
        let live = self.make(spec, Placement::Session, what_for, None, &mut || true)?;
        Ok(enter(&mut sessions, live))
    }

    fn resume_session(
        &self,
        spec: &WorldSpec,
        job: ExecJob<'_>,
        earlier: &Held,
    ) -> Result<WorldHandle, WorldError> {
        let mut pending = Pending::of(earlier)?;
        pending.reopen()?;
        let (placement, what_for) = (Placement::Session, For::Session(job));
        match self.make(spec, placement, what_for, Some(&pending), &mut || true) {
            Ok(live) => Ok(enter(&mut lock(&self.sessions), live)),
            Err(error) => {
                pending.finish(None)?;
                Err(error)
            }
        }
    }

    fn exec_beside(
        &self,
        place: ExecPlace<'_>,
        job: ExecJob<'_>,
        beside: Option<&mut Beside<'_>>,
        begin: &mut dyn FnMut() -> bool,
    ) -> Result<ExecResult, WorldError> {
        let (spec, placement, again) = match place {
            ExecPlace::Fresh(spec) => (spec, Placement::Isolated, None),
            ExecPlace::Once(spec) => (spec, Placement::Session, None),
            ExecPlace::Again(spec, earlier) => {
                let earlier = Pending::find(&spec.substrate_home, &earlier)?;
                (spec, Placement::Isolated, Some(earlier))
            }
            ExecPlace::Session(_) if !begin() => return Err(WorldError::CalledOff),
            ExecPlace::Session(world) => return self.exec_in_session(world, job, beside),
        };
        self.exec_fresh(&spec, placement, job, again.as_ref(), beside, begin)
    }

    fn spawn(&self, world: WorldHandle, job: ExecJob<'_>) -> Result<Box<dyn Running>, WorldError> {
        let session = self.session(world)?;
        let (command, carried) = lock(&session.live).start(job)?;
        Ok(Box::new(Started {
            command,
            carried,
            session,
        }))
    }

    fn enforced(&self, world: WorldHandle) -> Result<Enforced, WorldError> {
        let session = self.session(world)?;
        let live = lock(&session.live);
        Ok(live.enforced.clone())
    }

    fn is_alive(&self, world: WorldHandle) -> bool {
        let Ok(session) = self.session(world) else {
            return false;
        };
        let live = lock(&session.live);
        let ended = process_group::readable(&[live.init.pidfd()], Some(Duration::ZERO));
        !ended.is_ok_and(|ended| ended.contains(&true))
    }

    fn is_empty(&self, world: WorldHandle) -> bool {
        let Ok(session) = self.session(world) else {
            return true;
        };
        let first = lock(&session.live).init.pid();
        let children = fs::read(format!("/proc/{first}/task/{first}/children"));
        children.map_or(true, |list| list.is_empty())
    }

    fn drain(&self, world: WorldHandle, patience: Duration) {
        let end = std::time::Instant::now() + patience;
        while !self.is_empty(world) && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn used(&self, world: WorldHandle) -> Result<Used, WorldError> {
        let session = self.session(world)?;
        let mut live = lock(&session.live);
        let report = live.network.as_mut().map(|network| network.report());
        let report = report.unwrap_or_default();
        Ok(Used {
            net: report.uses,
            scopes: report.scopes,
            degraded: report.degraded,
            limits: live.group.as_ref().map_or_else(Vec::new, Group::hits),
            put_aside: live.put_aside(),
        })
    }

    fn see_off(&self) {
        lock(&self.leaving).clear();
    }

    fn fs_diff(
        &self,
        held: &Held,
        hash: bool,
        progress: OnProgress<'_>,
    ) -> Result<FsDiff, WorldError> {
        if self.session(WorldHandle { id: held.world }).is_ok() {
            return Err(WorldError::Running(held.world));
        }
        let pending = Pending::of(held)?;
        Ok(diff::settle(&pending, hash, progress)?)
    }

    fn apply_policy(
        &self,
        world: WorldHandle,
        spec: &WorldSpec,
    ) -> Result<PolicyChange, WorldError> {
        let session = self.session(world)?;
        let mut live = lock(&session.live);
        let mut change = compare(&live.spec, spec);
        if spec.mode == Mode::Enforce && live.enforced.level != Level::Full {
            change.needs_restart.push("mode".into());
            change.tightened = true;
        }
        let net_changed = live.spec.net != spec.net || live.spec.mode != spec.mode;
        if net_changed && live.spec.net.isolate == spec.net.isolate && spec.net.isolate {
            match live.network.as_mut() {
                Some(network) => {
                    network
                        .update(spec)
                        .map_err(WorldError::own("change the network's terms"))?;
                    change.applied.push("net".into());
                    live.spec.net = spec.net.clone();
                    live.spec.mode = spec.mode;
                }
                None => change.needs_restart.push("net".into()),
            }
        }
        Ok(change)
    }

    fn end(&self, world: WorldHandle) -> Result<Option<Held>, WorldError> {
        let session = self.session(world)?;
        lock(&self.sessions).retain(|known| known.handle != world);
        let mut live = lock(&session.live);
        end(&mut live, false)?;
        live.carried.finish();
        if let Some(network) = live.network.as_mut() {
            network.finish();
        }
        let Some(mut pending) = live.pending.take() else {
            return Ok(None);
        };
        pending.finish(None)?;
        Ok(pending.held())
    }
}

/// Adds a world to those of sessions.
fn enter(sessions: &mut Vec<Arc<SessionWorld>>, live: Live) -> WorldHandle {
    let handle = WorldHandle { id: live.id };
    sessions.push(Arc::new(SessionWorld {
        handle,
        live: Mutex::new(live),
    }));
    handle
}

/// Gives the master of a command's terminal to whoever wants it instead of having it relayed.
fn hand_out(command: &mut Command, streams: &ExecStreams) {
    if let Some(taker) = &streams.master
        && let Some(master) = command.take_terminal()
    {
        (taker.0)(master);
    }
}

/// The signals that reach us in a command's place: only where its streams are ours, and so perhaps its terminal.
fn signals_of(streams: &ExecStreams) -> Result<Option<Signals>, WorldError> {
    match streams.stdio {
        Stdio::Inherit => Some(relay::take_signals()).transpose(),
        Stdio::Given(_) | Stdio::Terminal(..) => Ok(None),
    }
    .map_err(WorldError::own("take over signals"))
}

fn watch<'a>(
    signals: &'a Option<Signals>,
    spec: &WorldSpec,
    streams: &'a ExecStreams,
) -> relay::Watch<'a> {
    relay::Watch {
        signals: signals.as_ref(),
        patience: time_of(spec),
        abandoned: streams.abandoned.as_ref().map(AsFd::as_fd),
    }
}

/// A command of a session's world, as the rest of Substrate sees it.
struct Started {
    command: Command,
    carried: Carried,
    session: Arc<SessionWorld>,
}

impl Running for Started {
    fn pid(&self) -> i32 {
        self.command.pid()
    }

    fn take_terminal(&mut self) -> Option<OwnedFd> {
        self.command.take_terminal()
    }

    fn events(&self) -> BorrowedFd<'_> {
        self.command.events()
    }

    fn next(&mut self) -> io::Result<News> {
        Ok(match self.command.next()? {
            launch::News::Stopped(signal) => News::Stopped(signal),
            launch::News::Ended(End::Exited(status)) => News::Ended(Status::Exited(status)),
            launch::News::Ended(End::Signaled(signal)) => News::Ended(Status::Signaled(signal)),
            launch::News::Ended(End::NotStarted(_)) => News::Lost,
        })
    }

    fn signal(&self, signal: i32) -> io::Result<()> {
        lock(&self.session.live).init.signal(&self.command, signal)
    }

    fn settle(&mut self) {
        self.carried.settle();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // What runs on in the background may still write.
        lock(&self.session.live).carried.append(&mut self.carried);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere leaves a world as it was; it is still the same world.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there is nothing to be heard of a command yet.
fn still_runs(command: &Command) -> bool {
    let heard = process_group::readable(&[command.events()], Some(Duration::ZERO));
    heard.is_ok_and(|heard| !heard.contains(&true))
}

fn listen(streams: &ExecStreams, bytes: &[u8]) {
    if let Some(tap) = &streams.tap {
        (tap.0)(bytes);
    }
}

/// A session's lock is held only for the moment of sending, so that other commands can start.
fn command_signals(session: &SessionWorld) -> impl Fn(&Command, i32) -> io::Result<()> + '_ {
    |command, signal| lock(&session.live).init.signal(command, signal)
}

/// What one command of a world may take.
fn time_of(spec: &WorldSpec) -> Option<Duration> {
    spec.limits
        .seconds
        .map(|seconds| Duration::from_secs(seconds.into()))
}

fn result(live: &Live, (status, ran_out): (Status, bool), report: NetReport) -> ExecResult {
    let mut limits_reached = live.group.as_ref().map_or_else(Vec::new, Group::reached);
    if ran_out {
        limits_reached.push("time".into());
    }
    let mut enforced = live.enforced.clone();
    enforced.degraded.extend(report.degraded);
    ExecResult {
        world: live.id,
        status,
        enforced,
        scopes_used: report.scopes,
        net: report.uses,
        limits_reached,
        put_aside: live.put_aside(),
        held: live.pending.as_ref().and_then(Pending::held),
    }
}

/// Which terms a live world cannot take up, and whether they got stricter.
fn compare(now: &WorldSpec, next: &WorldSpec) -> PolicyChange {
    let mut change = PolicyChange::default();
    let gone = |old: &[PathBuf], new: &[PathBuf]| {
        old.iter()
            .any(|path| !new.iter().any(|n| path.starts_with(n)))
    };
    let added = |old: &[substrate_policy::terms::PathPattern],
                 new: &[substrate_policy::terms::PathPattern]| {
        new.iter().any(|pattern| !old.contains(pattern))
    };
    for (name, differs, tighter) in [
        (
            "fs.read",
            now.read != next.read,
            gone(&now.read, &next.read),
        ),
        (
            "fs.write",
            now.write != next.write,
            gone(&now.write, &next.write),
        ),
        (
            "fs.share",
            now.share != next.share,
            gone(&now.share, &next.share),
        ),
        (
            "fs.hide",
            now.hide != next.hide,
            added(&now.hide, &next.hide),
        ),
        (
            "fs.protect",
            now.protect != next.protect,
            added(&now.protect, &next.protect),
        ),
        (
            "world.sockets",
            now.sockets != next.sockets,
            gone(&now.sockets, &next.sockets),
        ),
        (
            "world.home",
            now.home_mode != next.home_mode,
            next.home_mode == HomeMode::ReadOnly,
        ),
        (
            "world.limits",
            now.limits != next.limits,
            now.limits.narrowed(next.limits) != now.limits,
        ),
        (
            "world.publish",
            now.publish != next.publish,
            now.publish.iter().any(|port| !next.publish.contains(port)),
        ),
        (
            "world.allow",
            (now.allow_ptrace, now.allow_userns) != (next.allow_ptrace, next.allow_userns),
            (now.allow_ptrace && !next.allow_ptrace) || (now.allow_userns && !next.allow_userns),
        ),
        (
            "world.isolate_network",
            now.net.isolate != next.net.isolate,
            next.net.isolate,
        ),
    ] {
        if differs {
            change.needs_restart.push(name.into());
            change.tightened |= tighter;
        }
    }
    change
}

/// Ends a world. The end of the first process is the end of all others; only then is the result whole,
/// unless nobody else was left: then there is nothing to wait for but the kernel's own work.
fn end(live: &mut Live, empty: bool) -> Result<(), WorldError> {
    live.init
        .begin_end()
        .map_err(WorldError::own("end the world"))?;
    if let Some(network) = live.network.as_mut() {
        network.drain();
    }
    if empty {
        return Ok(());
    }
    live.init.wait().map_err(WorldError::own("end the world"))
}
