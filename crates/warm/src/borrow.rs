//! The side that runs a command: its world is borrowed from the service where that has one for it, and made
//! for this command alone where it has not.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use substrate_broker::approvals::Approved;
use substrate_changes::patch::Paint;
use substrate_executor::front::{Front, Inquiry};
use substrate_executor::worlds::Borrowing;
use substrate_init::launch::Command;
use substrate_policy::terms::{Mode, WorldSpec};
use substrate_relay::{self as relay, status_of};
use substrate_sys::{identity, terminal};
use substrate_trace::{Enforced, FsDiff};
use substrate_world::backend::{
    Beside, ExecJob, ExecPlace, ExecRequest, ExecResult, Held, PolicyChange, Running, Stdio, Used,
    WorldBackend, WorldHandle,
};
use substrate_world::error::WorldError;
use substrate_world::progress::OnProgress;

use crate::channel::{Channel, MAX_FDS};
use crate::terms::Terms;
use crate::words::{Asked, Borrow, Started, ToBorrower, ToKeeper, VERSION};

/// Finds who keeps worlds.
pub trait Lender: Send + Sync {
    /// A connection to him, who may be started for it; or why there is none.
    fn connect(&self) -> Result<OwnedFd, String>;

    /// That a command ran without him.
    fn missed(&self, front: &dyn Front, observes: bool, missed: &Cold);
}

/// Why a command runs in a world of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cold {
    /// Nobody who keeps worlds is there.
    Nobody(String),
    /// Whoever keeps them has none for it.
    NotThere(String),
}

/// Runs what may run in a kept world there, and everything else as another backend does.
pub struct Warm {
    cold: Box<dyn WorldBackend>,
    lender: Arc<dyn Lender>,
    borrowing: Borrowing,
}

/// Why a command did not run in a kept world.
enum Missed {
    /// It can run in one of its own.
    Cold(Cold),
    /// It cannot run, or has run and something went wrong.
    Failed(WorldError),
}

impl From<WorldError> for Missed {
    fn from(error: WorldError) -> Missed {
        Missed::Failed(error)
    }
}

fn nobody(why: String) -> Missed {
    Missed::Cold(Cold::Nobody(why))
}

fn not_there(why: String) -> Missed {
    Missed::Cold(Cold::NotThere(why))
}

impl Warm {
    /// With another backend for what no kept world serves.
    pub fn new(cold: Box<dyn WorldBackend>, lender: Arc<dyn Lender>, borrowing: Borrowing) -> Warm {
        Warm {
            cold,
            lender,
            borrowing,
        }
    }

    fn in_kept_world(&self, spec: &WorldSpec, job: ExecJob<'_>) -> Result<ExecResult, Missed> {
        let Borrowing {
            broker,
            front,
            line,
            seconds,
        } = &self.borrowing;
        let cold = |why: &str| not_there(why.to_owned());
        // What one command may take is ours to watch; the world is the same.
        let mut kept = spec.clone();
        kept.limits.seconds = *seconds;
        let terms = Terms::of(broker, &kept, &line.agent);
        let terms = terms.ok_or_else(|| cold("no kept world serves such terms"))?;
        let streams = Given::of(job).map_err(|error| not_there(error.to_string()))?;
        let signals = match job.streams.stdio {
            Stdio::Inherit => Some(relay::take_signals()).transpose(),
            Stdio::Given(_) | Stdio::Terminal(..) => Ok(None),
        };
        let signals = signals.map_err(WorldError::own("take over signals"))?;
        let channel = Channel::new(self.lender.connect().map_err(nobody)?);
        let borrow = ToKeeper::Borrow(Box::new(Borrow {
            v: VERSION,
            terms,
            request: ExecRequest {
                umask: job.request.umask.or(Some(identity::umask())),
                ..job.request.clone()
            },
            line: line.clone(),
            numbers: streams.numbers.clone(),
            terminal: streams.terminal,
            attended: front.barrier(broker.caller()).is_none(),
        }));
        let lost = |error: io::Error| nobody(format!("the service is gone: {error}"));
        channel.send(&borrow, &streams.fds()).map_err(lost)?;
        let conversation = Conversation {
            channel: &channel,
            front: front.as_ref(),
            lost: RefCell::new(false),
        };
        let (started, mut fds) = conversation.await_start()?;
        let mut terminal = (fds.len() > 1).then(|| fds.remove(1));
        if let (Some(taker), true) = (&job.streams.master, terminal.is_some()) {
            terminal
                .take()
                .into_iter()
                .for_each(|master| (taker.0)(master));
        }
        let events = fds.pop().ok_or_else(|| cold("the service sent no news"))?;
        let mut command = Command::begun(started.pid, events, terminal);
        let watch = relay::Watch {
            signals: signals.as_ref(),
            patience: patience(spec),
            abandoned: job.streams.abandoned.as_ref().map(AsFd::as_fd),
        };
        let mut tap = |bytes: &[u8]| {
            if let Some(tap) = &job.streams.tap {
                (tap.0)(bytes);
            }
        };
        let mut hear = || conversation.attend();
        let mut beside = Beside {
            fd: channel.as_fd(),
            call: &mut hear,
        };
        let send = |_: &Command, signal| channel.send(&ToKeeper::Signal(signal), &[]);
        let end = relay::run(&mut command, &send, &watch, &mut tap, Some(&mut beside));
        let (end, ran_out) = end.map_err(WorldError::own("wait for the command"))?;
        let status = status_of(end, job.request, started.world)?;
        let used = conversation.await_report().unwrap_or_default();
        let mut enforced = started.enforced;
        enforced.degraded.extend(used.degraded);
        let mut limits_reached: Vec<_> = used.limits.into_iter().map(|(name, _)| name).collect();
        if ran_out {
            limits_reached.push("time".into());
        }
        Ok(ExecResult {
            world: started.world,
            status,
            enforced,
            scopes_used: used.scopes,
            net: used.net,
            limits_reached,
            put_aside: used.put_aside,
            held: None,
        })
    }
}

/// What one command may take.
fn patience(spec: &WorldSpec) -> Option<Duration> {
    let seconds = spec.limits.seconds?;
    Some(Duration::from_secs(seconds.into()))
}

/// The streams of a command as they are sent along.
struct Given {
    numbers: Vec<i32>,
    owned: Vec<OwnedFd>,
    terminal: Option<(u16, u16)>,
}

impl Given {
    fn of(job: ExecJob<'_>) -> io::Result<Given> {
        let mut given = Given {
            numbers: Vec::new(),
            owned: Vec::new(),
            terminal: None,
        };
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let standard: [BorrowedFd<'_>; 3] = match &job.streams.stdio {
            Stdio::Inherit => [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
            Stdio::Given([stdin, stdout, stderr]) => {
                [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()]
            }
            Stdio::Terminal(rows, columns) => {
                given.terminal = Some((*rows, *columns));
                given.add_others(&job.streams.fds)?;
                return Ok(given);
            }
        };
        let inherits = matches!(job.streams.stdio, Stdio::Inherit);
        for (number, fd) in (0..).zip(standard) {
            if inherits && fd.is_terminal() {
                let size = terminal::size(fd).map_or((24, 80), |size| (size.rows, size.columns));
                given.terminal = Some(size);
            } else {
                given.add(number, fd)?;
            }
        }
        given.add_others(&job.streams.fds)?;
        Ok(given)
    }

    fn add_others(&mut self, fds: &[(i32, OwnedFd)]) -> io::Result<()> {
        for (number, fd) in fds {
            self.add(*number, fd.as_fd())?;
        }
        match self.owned.len() > MAX_FDS {
            true => Err(io::Error::other("there are too many descriptors")),
            false => Ok(()),
        }
    }

    fn add(&mut self, number: i32, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.numbers.push(number);
        self.owned.push(fd.try_clone_to_owned()?);
        Ok(())
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.owned.iter().map(AsFd::as_fd).collect()
    }
}

/// What is said while a command runs.
struct Conversation<'a> {
    channel: &'a Channel,
    front: &'a dyn Front,
    /// The other side is gone.
    lost: RefCell<bool>,
}

impl Conversation<'_> {
    /// Hears whether the command runs.
    fn await_start(&self) -> Result<(Started, Vec<OwnedFd>), Missed> {
        loop {
            let gone = || nobody("the service is gone".to_owned());
            let received = self
                .channel
                .receive()
                .map_err(|error| nobody(error.to_string()))?;
            let (message, fds) = received.ok_or_else(gone)?;
            match message {
                ToBorrower::Started(started) => return Ok((started, fds)),
                ToBorrower::Cold(why) => return Err(not_there(why)),
                ToBorrower::NotStarted(error) => return Err(Missed::Failed(error)),
                other => self.heed(other),
            }
        }
    }

    /// Takes one message while the command runs; says whether more can come.
    fn attend(&self) -> bool {
        match self.channel.receive() {
            Ok(Some((message, _))) => {
                self.heed(message);
                true
            }
            // Its world goes with it, and the command's end says so.
            Ok(None) | Err(_) => {
                self.lost.replace(true);
                false
            }
        }
    }

    /// Hears what the world used, once the command has ended.
    fn await_report(&self) -> Option<Used> {
        if *self.lost.borrow() {
            return None;
        }
        self.channel.send(&ToKeeper::Ended, &[]).ok()?;
        loop {
            match self.channel.receive().ok()??.0 {
                ToBorrower::Used(used) => return Some(used),
                other => self.heed(other),
            }
        }
    }

    fn heed(&self, message: ToBorrower) {
        match message {
            ToBorrower::Say(kind, text) => self.front.say_beside(kind, &text),
            ToBorrower::Ask(asked) => {
                let inquiry = Distant {
                    asked,
                    channel: self.channel,
                };
                let given = self.front.ask(&inquiry);
                let given = given.unwrap_or_else(|_| substrate_executor::front::Given::denied());
                let _ = self.channel.send(&ToKeeper::Answer(given), &[]);
            }
            ToBorrower::Cold(_)
            | ToBorrower::NotStarted(_)
            | ToBorrower::Started(_)
            | ToBorrower::Fit(_)
            | ToBorrower::Used(_) => {}
        }
    }
}

/// A question that somebody else has, to be put here.
struct Distant<'a> {
    asked: Asked,
    channel: &'a Channel,
}

impl Inquiry for Distant<'_> {
    fn can_be_remembered(&self) -> bool {
        self.asked.can_be_remembered
    }

    fn can_be_tried(&self) -> bool {
        false
    }

    fn was_tried(&self) -> bool {
        false
    }

    fn try_out(&self) -> String {
        String::new()
    }

    fn show(&self, _: &mut dyn Write, _: Paint) -> Result<(), String> {
        Err("there is nothing to show".to_owned())
    }

    fn proposed(&self) -> &[Approved] {
        &self.asked.proposed
    }

    fn fits(&self, at: usize, pattern: &str) -> Result<(), String> {
        let gone = |error: io::Error| format!("the service is gone: {error}");
        let asked = ToKeeper::Fits(at, pattern.to_owned());
        self.channel.send(&asked, &[]).map_err(gone)?;
        loop {
            match self.channel.receive::<ToBorrower>().map_err(gone)? {
                Some((ToBorrower::Fit(fits), _)) => return fits,
                Some(_) => {}
                None => return Err("the service is gone".to_owned()),
            }
        }
    }

    fn variable(&self, _: &str) -> Option<&OsStr> {
        None
    }

    fn text(&self) -> String {
        self.asked.text.clone()
    }
}

impl WorldBackend for Warm {
    fn exec_beside(
        &self,
        place: ExecPlace<'_>,
        job: ExecJob<'_>,
        beside: Option<&mut Beside<'_>>,
        begin: &mut dyn FnMut() -> bool,
    ) -> Result<ExecResult, WorldError> {
        let ExecPlace::Once(spec) = &place else {
            return self.cold.exec_beside(place, job, beside, begin);
        };
        if !begin() {
            return Err(WorldError::CalledOff);
        }
        match self.in_kept_world(spec, job) {
            Ok(result) => Ok(result),
            Err(Missed::Failed(error)) => Err(error),
            Err(Missed::Cold(why)) => {
                let observes = spec.mode == Mode::Observe;
                self.lender
                    .missed(self.borrowing.front.as_ref(), observes, &why);
                self.cold.exec_beside(place, job, beside, begin)
            }
        }
    }

    fn ensure_session(
        &self,
        spec: &WorldSpec,
        job: Option<ExecJob<'_>>,
    ) -> Result<WorldHandle, WorldError> {
        self.cold.ensure_session(spec, job)
    }

    fn resume_session(
        &self,
        spec: &WorldSpec,
        job: ExecJob<'_>,
        earlier: &Held,
    ) -> Result<WorldHandle, WorldError> {
        self.cold.resume_session(spec, job, earlier)
    }

    fn spawn(&self, world: WorldHandle, job: ExecJob<'_>) -> Result<Box<dyn Running>, WorldError> {
        self.cold.spawn(world, job)
    }

    fn enforced(&self, world: WorldHandle) -> Result<Enforced, WorldError> {
        self.cold.enforced(world)
    }

    fn is_alive(&self, world: WorldHandle) -> bool {
        self.cold.is_alive(world)
    }

    fn is_empty(&self, world: WorldHandle) -> bool {
        self.cold.is_empty(world)
    }

    fn drain(&self, world: WorldHandle, patience: Duration) {
        self.cold.drain(world, patience);
    }

    fn used(&self, world: WorldHandle) -> Result<Used, WorldError> {
        self.cold.used(world)
    }

    fn fs_diff(
        &self,
        held: &Held,
        hash: bool,
        progress: OnProgress<'_>,
    ) -> Result<FsDiff, WorldError> {
        self.cold.fs_diff(held, hash, progress)
    }

    fn apply_policy(
        &self,
        world: WorldHandle,
        spec: &WorldSpec,
    ) -> Result<PolicyChange, WorldError> {
        self.cold.apply_policy(world, spec)
    }

    fn end(&self, world: WorldHandle) -> Result<Option<Held>, WorldError> {
        self.cold.end(world)
    }

    fn see_off(&self) {
        self.cold.see_off();
    }
}
