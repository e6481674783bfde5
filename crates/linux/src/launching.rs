//! Steps on their way to a world that is ready, and what is done meanwhile.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;

use substrate_changes::pending::Pending;
use substrate_egress::network::Network;
use substrate_init::launch::{
    self, Init, LaunchError, Launching, Maps, NewNetwork, Plan, Progress,
};
use substrate_init::netplan::NetPlan;
use substrate_policy::terms::Mode;
use substrate_starts::{ExecJudge, NoRules};
use substrate_sys::errno::{EINVAL, ENOSPC, EPERM, EPIPE, EUSERS};
use substrate_sys::namespace::Namespaces;
use substrate_trace::{Enforced, WorldId};
use substrate_world::backend::ExecJob;
use substrate_world::error::WorldError;

use crate::doing::{Doing, Label};
use crate::guard::{Guard, Sockets, Terms};
use crate::host_file::Stream;
use crate::inside::Inside;
use crate::layout::Placement;
use crate::purpose::Purpose;
use crate::start::{Ask, Asked, Prepared};
use crate::steps::Steps;

/// A world that was not made, with the step that failed where it was one.
pub(crate) struct Failed {
    pub error: WorldError,
    pub label: Option<Label>,
}

impl From<WorldError> for Box<Failed> {
    fn from(error: WorldError) -> Box<Failed> {
        Box::new(Failed { error, label: None })
    }
}

impl Failed {
    fn launching(error: LaunchError, labels: &[Label]) -> Box<Failed> {
        let label = match &error {
            LaunchError::Step { number, .. } => labels.get(*number).cloned(),
            _ => None,
        };
        Box::new(Failed {
            error: world_error(error, label.as_ref()),
            label,
        })
    }
}

/// What a world begins with, besides its steps.
pub(crate) struct Beginning {
    pub maps: Option<Maps>,
    pub namespaces: Namespaces,
    pub network: Option<NewNetwork>,
    pub placement: Placement,
}

impl Beginning {
    fn plan(self, steps: Steps) -> (Plan, Vec<Label>) {
        let one_shot = self.placement == Placement::Isolated;
        let plan = Plan {
            namespaces: self.namespaces,
            maps: self.maps,
            network: self.network,
            steps: steps.steps,
            slots: steps.slots,
            ptmx: match self.namespaces.has(Namespaces::MOUNT) {
                true => c"/dev/pts/ptmx",
                false => c"/dev/ptmx",
            }
            .to_owned(),
            one_shot,
            die_with_thread: one_shot,
        };
        (plan, steps.labels)
    }
}

/// What is done while a world's first process takes its steps.
pub(crate) struct Meanwhile<'a> {
    /// What the caller does before the command starts, at the latest; false when it must not.
    pub begin: &'a mut dyn FnMut() -> bool,
    /// Where its writes are held back, which is written down.
    pub pending: Option<&'a mut Pending>,
    /// Its way to the network.
    pub gate: Option<Gate<'a>>,
    /// The command that it is made for.
    pub first: Option<First<'a>>,
}

impl Meanwhile<'_> {
    fn describe(&mut self) -> Result<(), WorldError> {
        let pending = self.pending.as_mut();
        Ok(pending.map_or(Ok(()), |pending| pending.begin())?)
    }
}

/// The gate of a world before it is opened.
pub(crate) struct Gate<'a> {
    pub network: &'a mut dyn Network,
    pub plan: NetPlan,
    /// Over which the sockets of the world's network come.
    pub ours: UnixStream,
}

impl Gate<'_> {
    fn open(self) -> Result<(), WorldError> {
        let sockets = self.plan.receive(self.ours.as_fd());
        let sockets = sockets.map_err(|error| WorldError::Network(error.to_string()))?;
        let started = self.network.start(sockets);
        started.map_err(WorldError::own("start the network's gate"))
    }
}

/// The command that a world is made for, on its way.
pub(crate) struct First<'a> {
    job: ExecJob<'a>,
    inside: Inside<'a>,
    state: OnItsWay<'a>,
}

/// How far that command has come.
enum OnItsWay<'a> {
    Waiting,
    Prepared(Prepared<'a>),
    Done(Result<Asked, WorldError>),
}

impl<'a> First<'a> {
    /// One that waits for its world.
    pub(crate) fn new(job: ExecJob<'a>, inside: Inside<'a>) -> First<'a> {
        First {
            job,
            inside,
            state: OnItsWay::Waiting,
        }
    }

    /// Once its streams are there.
    fn prepare(&mut self, streams: &[Stream]) {
        if matches!(self.state, OnItsWay::Waiting) {
            let inside = Inside {
                streams,
                ..self.inside
            };
            self.state = match Prepared::new(&inside, self.job) {
                Ok(prepared) => OnItsWay::Prepared(prepared),
                Err(error) => OnItsWay::Done(Err(error)),
            };
        }
    }

    /// Once nothing but the rest of the steps can go wrong.
    fn ask(&mut self, launching: &Launching) {
        let send: Ask<'_> = &|parts, fds| launching.ask(parts, fds);
        self.state = match std::mem::replace(&mut self.state, OnItsWay::Waiting) {
            OnItsWay::Prepared(prepared) => OnItsWay::Done(prepared.ask(send)),
            other => other,
        };
    }

    fn asked(self) -> Option<Result<Asked, WorldError>> {
        match self.state {
            OnItsWay::Done(asked) => Some(asked),
            _ => None,
        }
    }
}

/// What the first process hands out while it takes its steps.
struct HandedOut<'a> {
    labels: &'a [Label],
    /// How many streams are still to come.
    due: usize,
    streams: Vec<Stream>,
    listener: Option<OwnedFd>,
    sockets: Option<OwnedFd>,
}

impl<'a> HandedOut<'a> {
    fn expected(labels: &'a [Label]) -> HandedOut<'a> {
        let streams = labels.iter().filter(|label| label.doing == Doing::HandOut);
        HandedOut {
            labels,
            due: streams.count(),
            streams: Vec::new(),
            listener: None,
            sockets: None,
        }
    }

    fn doing(&self, number: usize) -> Option<Doing> {
        self.labels.get(number).map(|label| label.doing)
    }

    /// A step without which the world works did not succeed.
    fn missing(&mut self, number: usize) {
        // Numbers come from the first process: what was not expected is not counted.
        let stream = self.doing(number) == Some(Doing::HandOut);
        self.due = self.due.saturating_sub(usize::from(stream));
    }

    fn take(&mut self, number: usize, fd: OwnedFd) {
        match self.doing(number) {
            Some(Doing::HandOut) => {
                self.due = self.due.saturating_sub(1);
                // One that cannot be looked at is carried over byte by byte.
                self.streams.extend(Stream::new(fd));
            }
            Some(Doing::AskSockets) => self.sockets = Some(fd),
            _ => self.listener = Some(fd),
        }
    }
}

/// A world that is ready for commands.
pub(crate) struct Launched {
    pub init: Init,
    pub streams: Vec<Stream>,
    /// The command that it was made for, when that was asked for already.
    pub first: Option<Result<Asked, WorldError>>,
    /// The end of its filter at which program starts are judged.
    listener: Option<OwnedFd>,
    /// Where its sockets can be asked for.
    sockets: Option<OwnedFd>,
}

/// Has a first process take its steps. A failed step tells more than what failed on this side meanwhile.
pub(crate) fn launch_steps(
    steps: Steps,
    beginning: Beginning,
    mut meanwhile: Meanwhile<'_>,
) -> Result<Launched, Box<Failed>> {
    let (plan, labels) = beginning.plan(steps);
    let failed = |error| Failed::launching(error, &labels);
    let launching = launch::begin(plan).map_err(failed)?;
    let described = meanwhile.describe();
    let may_begin = described.is_ok() && (meanwhile.begin)();
    let mut out = HandedOut::expected(&labels);
    let mut opened = Ok(());
    let mut ready = false;
    while !(ready && meanwhile.gate.is_none()) {
        let sockets: Option<BorrowedFd<'_>> = meanwhile.gate.as_ref().map(|gate| gate.ours.as_fd());
        let progress = match ready {
            true => Progress::Other,
            false => launching.next(sockets).map_err(failed)?,
        };
        match progress {
            Progress::Ready => ready = true,
            Progress::Other => opened = meanwhile.gate.take().map_or(Ok(()), Gate::open),
            Progress::Missing(number) => out.missing(number),
            Progress::Export(number, fd) => out.take(number, fd),
        }
        let Some(first) = meanwhile.first.as_mut().filter(|_| out.due == 0) else {
            continue;
        };
        first.prepare(&out.streams);
        if may_begin && opened.is_ok() && meanwhile.gate.is_none() {
            first.ask(&launching);
        }
    }
    described?;
    if !may_begin {
        return Err(WorldError::CalledOff.into());
    }
    opened?;
    let (streams, listener, sockets) = (out.streams, out.listener, out.sockets);
    Ok(Launched {
        init: launching.into_init(),
        streams,
        first: meanwhile.first.and_then(First::asked),
        listener,
        sockets,
    })
}

impl Launched {
    /// Has its starts judged from its first command on.
    pub(crate) fn guard(
        &mut self,
        id: WorldId,
        purpose: &Purpose<'_>,
        admitted: &[PathBuf],
        enforced: &mut Enforced,
    ) -> Result<Option<Guard>, WorldError> {
        if purpose.judge.is_none() && self.sockets.is_none() {
            return Ok(None);
        }
        // The start of the command waits for the guard; without one it never becomes its program.
        let own = WorldError::own("guard program starts");
        let listener = self.listener.take();
        let listener = listener.ok_or_else(|| own(io::ErrorKind::NotFound.into()))?;
        let spec = purpose.spec;
        let enforce = spec.mode == Mode::Enforce;
        let terms = Terms {
            recheck: enforce && !spec.allow_ptrace,
            enforce,
            roots_change: spec.allow_userns,
        };
        let diag = self.sockets.take();
        let sockets = diag.map(|diag| Sockets::new(diag, spec.net.isolate, admitted.to_owned()));
        let sockets = sockets.transpose().map_err(own)?;
        let judge: Arc<dyn ExecJudge> = match purpose.judge.clone() {
            Some(judge) => {
                enforced.exec = terms.word().to_owned();
                judge
            }
            None => Arc::new(NoRules),
        };
        let own_starts = self.init.take_own_starts();
        Guard::start(id, listener, own_starts, judge, terms, sockets)
            .map(Some)
            .map_err(own)
    }
}

/// Why there is no network: this machine gives none, or something went wrong this time.
fn no_network(error: io::Error) -> WorldError {
    match error.raw_os_error() {
        Some(EPERM | EINVAL | ENOSPC | EUSERS) => WorldError::Namespaces(error.into()),
        Some(EPIPE) => WorldError::Died,
        _ => WorldError::Network(error.to_string()),
    }
}

fn world_error(error: LaunchError, label: Option<&Label>) -> WorldError {
    match error {
        LaunchError::Own(what, error) => WorldError::Own(what.into(), error.into()),
        LaunchError::Clone(error) => WorldError::Namespaces(error.into()),
        LaunchError::Maps(error) => WorldError::Maps(error.into()),
        LaunchError::Died => WorldError::Died,
        LaunchError::Step { error, .. } => match label {
            Some(label) if label.doing == Doing::PrepareNetwork => no_network(error),
            _ => WorldError::Step {
                doing: label
                    .map_or("take a step", |label| label.doing.as_str())
                    .into(),
                path: label.and_then(|label| label.path.clone()),
                source: error.into(),
            },
        },
    }
}
