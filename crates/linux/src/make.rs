//! Making a world: facts, layout, held places, limits, network, launch; and again with less
//! where the kernel refuses a part that can be done without or in another way.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use substrate_init::launch::{
    self, Init, LaunchError, Launching, Maps, NewNetwork, Plan, Progress,
};
use substrate_init::netplan::NetPlan;
use substrate_policy::terms::{Mode, WorldSpec};
use substrate_sys::namespace::Namespaces;
use substrate_sys::{access, caps, kernel_file, landlock, seccomp};
use substrate_trace::{Enforced, Level, WorldId};

use substrate_starts::{ExecJudge, NoRules};

use crate::guard::{Guard, Sockets, Terms};
use crate::held;
use crate::layout::{self, Host, Layout, Placement, What};
use crate::limits::{self, Group, Hierarchy};
use crate::mountinfo;
use crate::sockets;
use crate::start::{Ask, Asked, Inside, Prepared};
use crate::steps::{
    FIX, HAND_OUT, HIDE, HeldAs, Label, MapsBy, NETWORK, PROTECT, Recipe, SOCKETS, Steps,
};
use crate::streams::{Carried, Stream};
use substrate_changes::pending::{NewPending, Pending};
use substrate_egress::network::{Network, NetworkMaker};
use substrate_world::backend::{ExecRequest, WorldError};

/// What is done when the filter is built, for messages.
pub(crate) const FILTER: &str = "build the system call filter";

/// Where control groups come from.
#[derive(Debug, Clone, Default)]
pub enum Groups {
    /// Looked for.
    #[default]
    Discover,
    /// Here.
    At(Hierarchy),
    /// Not used.
    Off,
}

/// What may be chosen about worlds besides their policy.
#[derive(Debug, Clone)]
pub struct Options {
    /// Nothing stronger than this is tried.
    pub ceiling: Level,
    /// Where control groups come from.
    pub groups: Groups,
    /// A new root instead of the host's made read-only.
    pub heavy: bool,
    /// Copies instead of overlays.
    pub no_overlay: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            ceiling: Level::Full,
            groups: Groups::Discover,
            heavy: false,
            no_overlay: false,
        }
    }
}

/// A world that lives, and all that belongs to it. The order of the fields is the order in
/// which they go: processes first, then what they used.
pub struct Live {
    /// Its id.
    pub id: WorldId,
    /// Its first process.
    pub init: Init,
    /// Who judges what is started in it.
    pub guard: Option<Guard>,
    /// What it serves.
    pub network: Option<Box<dyn Network>>,
    /// Its limits.
    pub group: Option<Group>,
    /// Its held writes.
    pub pending: Option<Pending>,
    /// What really holds it.
    pub enforced: Enforced,
    /// The terms it was made from.
    pub spec: WorldSpec,
    /// Where a directory of the host is found inside, when that is elsewhere.
    pub moved: Vec<(PathBuf, PathBuf)>,
    /// Directories that belong to nothing else and go with it.
    pub scratch: Option<PathBuf>,
    /// Its places.
    pub layout: Layout,
    /// Files of the host that its first command has as streams.
    pub streams: Vec<Stream>,
    /// The command that it was made for, when that was asked for already.
    pub first: Option<Result<Asked, WorldError>>,
    /// What is to be done about streams when it has ended.
    pub carried: Carried,
}

/// What a new world is for.
pub struct Purpose<'a> {
    /// The terms.
    pub spec: &'a WorldSpec,
    /// Whether writes are held back.
    pub placement: Placement,
    /// The span, for pending results.
    pub span: String,
    /// The command line, for pending results.
    pub line: std::ffi::OsString,
    /// Where the command starts, for pending results.
    pub cwd: PathBuf,
    /// Files of the host that the first command has as streams.
    pub streams: Vec<PathBuf>,
    /// The command that it is made for.
    pub first: Option<&'a ExecRequest>,
    /// Judges every program start inside.
    pub judge: Option<Arc<dyn ExecJudge>>,
    /// What an earlier world left, to be worked on.
    pub again: Option<&'a Pending>,
    /// What the caller does before a command starts, at the latest; false when none must. Called for
    /// every attempt at the world.
    pub begin: RefCell<&'a mut dyn FnMut() -> bool>,
}

/// Makes a world as strong as this machine lets it be. In `enforce`, anything less than full
/// is refused.
pub fn make(
    purpose: &Purpose<'_>,
    options: &Options,
    networks: Option<&NetworkMaker>,
) -> Result<Live, WorldError> {
    let refused = if options.ceiling == Level::Full {
        match full(purpose, options, networks) {
            Err(error) if falls_back(&error) => error.to_string(),
            other => return other,
        }
    } else {
        format!("level `{}` was asked for", options.ceiling)
    };
    let level = if options.ceiling >= Level::Landlock && landlock::abi() > 0 {
        Level::Landlock
    } else {
        Level::None
    };
    if purpose.spec.mode == Mode::Enforce || level == Level::None {
        return Err(WorldError::TooWeak {
            level,
            reason: match level {
                Level::Landlock => format!(
                    "{refused} (Landlock alone holds neither `fs.protect` nor hosts by name nor unix sockets)"
                ),
                _ => refused,
            },
        });
    }
    crate::weak::make(purpose, options, &refused)
}

/// Failures that mean that this machine has no worlds, rather than that this one went wrong.
fn falls_back(error: &WorldError) -> bool {
    match error {
        WorldError::Namespaces(_) | WorldError::Maps(_) => true,
        WorldError::Step { doing, source, .. } => {
            matches!(
                *doing,
                "write the id map" | "make the tree read-only" | "mount"
            ) && source.kind() == io::ErrorKind::PermissionDenied
        }
        _ => false,
    }
}

/// How often a world is planned anew because something that it hides or protects was moved meanwhile.
const MOST_MOVED: usize = 5;
const ENOENT: i32 = 2;
const ENOTDIR: i32 = 20;
const ELOOP: i32 = 40;
const ESTALE: i32 = 116;

/// What the attempts have taught.
#[derive(Default)]
struct Learnt {
    no_overlay: BTreeMap<PathBuf, String>,
    mask_sys: bool,
    not_heavy: Option<String>,
    /// How often something was moved away while it was to be hidden or fixed.
    moved: usize,
}

fn full(
    purpose: &Purpose<'_>,
    options: &Options,
    networks: Option<&NetworkMaker>,
) -> Result<Live, WorldError> {
    let mut learnt = Learnt::default();
    // Every round learns one thing, and there are only so many to learn.
    loop {
        match attempt(purpose, options, networks, &learnt) {
            Ok(live) => return Ok(live),
            Err(failed) => learn(*failed, options, &mut learnt)?,
        }
    }
}

/// A failed attempt, with what the failed step was about.
struct Failed {
    error: WorldError,
    label: Option<Label>,
}

impl From<WorldError> for Box<Failed> {
    fn from(error: WorldError) -> Box<Failed> {
        Box::new(Failed { error, label: None })
    }
}

fn learn(failed: Failed, options: &Options, learnt: &mut Learnt) -> Result<(), WorldError> {
    let Some(label) = failed.label else {
        return Err(failed.error);
    };
    let path = label.path.as_deref();
    let gone = |error: &WorldError| match error {
        WorldError::Step { source, .. } => {
            matches!(
                source.raw_os_error(),
                Some(ENOENT | ENOTDIR | ELOOP | ESTALE)
            )
        }
        _ => false,
    };
    if let Some(target) = label.overlay_of
        && !learnt.no_overlay.contains_key(&target)
    {
        let reason = format!("no overlay ({})", failed.error);
        learnt.no_overlay.insert(target, reason);
    } else if [HIDE, PROTECT, FIX].contains(&label.doing)
        && gone(&failed.error)
        && learnt.moved < MOST_MOVED
    {
        learnt.moved += 1;
    } else if path == Some(Path::new("/sys")) && !learnt.mask_sys {
        learnt.mask_sys = true;
    } else if label.doing == "build a new root" && options.heavy && learnt.not_heavy.is_none() {
        learnt.not_heavy = Some(failed.error.to_string());
    } else {
        return Err(failed.error);
    }
    Ok(())
}

fn attempt(
    purpose: &Purpose<'_>,
    options: &Options,
    networks: Option<&NetworkMaker>,
    learnt: &Learnt,
) -> Result<Live, Box<Failed>> {
    let spec = purpose.spec;
    let id = WorldId::new();
    let maps = maps()?;
    let own = |what| move |error| WorldError::Own(what, error);
    let network = match networks {
        Some(make) if spec.net.isolate => make(spec).map_err(own("prepare the network"))?,
        _ => None,
    };
    let mounts = mountinfo::read().map_err(own("read /proc/self/mountinfo"))?;
    let host = Host {
        mounts,
        // Without it no socket of the host can be found by path; there is nothing to hide then.
        sockets: sockets::parse(&kernel_file::read("/proc/net/unix").unwrap_or_default()),
        files: network.as_ref().map_or_else(Vec::new, |n| n.files()),
    };
    let layout = layout::lay_out(spec, purpose.placement, &host)?;
    let pending = new_pending(purpose, id, layout.places.values())?;
    let own = |_: &&Pending| purpose.again.is_none();
    let dir = pending.as_ref().filter(own).map(|p| p.dir().to_owned());
    let parts = Parts {
        id,
        maps,
        network,
        host,
        layout,
        pending,
    };
    build(purpose, options, learnt, parts).inspect_err(|_| {
        // A world that was not made leaves nothing behind.
        if let Some(dir) = dir {
            let _ = substrate_changes::remove::remove_path(&dir);
        }
    })
}

/// What an attempt has gathered before it changes anything.
struct Parts {
    id: WorldId,
    maps: IdMaps,
    network: Option<Box<dyn Network>>,
    host: Host,
    layout: Layout,
    pending: Option<Pending>,
}

fn build(
    purpose: &Purpose<'_>,
    options: &Options,
    learnt: &Learnt,
    parts: Parts,
) -> Result<Live, Box<Failed>> {
    let Parts {
        id,
        maps,
        mut network,
        host,
        mut layout,
        mut pending,
    } = parts;
    let spec = purpose.spec;
    let own = |what| move |error| WorldError::Own(what, error);
    let mut held = BTreeMap::new();
    if let Some(pending) = pending.as_mut() {
        let mut no_overlay = learnt.no_overlay.clone();
        if options.no_overlay {
            let all = layout.places.keys().cloned();
            no_overlay.extend(all.map(|path| (path, "overlays are switched off".to_owned())));
        }
        held = held::hold(&mut layout, pending, &host.mounts, maps.by, &no_overlay)?;
    }
    let mut enforced = Enforced {
        level: Level::Full,
        fs: fs_word(&held),
        net: "host".to_owned(),
        exec: "none".to_owned(),
        limits: "none".to_owned(),
        degraded: std::mem::take(&mut layout.notes),
    };
    let (group, process_limits) = limit(id, spec, options, &host, &mut enforced);
    let groups = match &group {
        Some(group) => group
            .entrances()
            .map_err(|(path, source)| WorldError::Group { path, source })?,
        None => Vec::new(),
    };
    let (ours, theirs) = UnixStream::pair().map_err(own("make a socket pair"))?;
    let plan = match network.as_mut() {
        Some(network) => network.plan().map_err(own(NETWORK))?,
        // It stays closed: there is nothing to prepare in it.
        None => NetPlan::default(),
    };
    let (mut made, mut joining) = (None, None);
    if spec.net.isolate {
        let new = NewNetwork::new(plan.clone(), theirs.into()).map_err(own(NETWORK))?;
        (made, joining) = (Some(new.0), Some(new.1));
        enforced.net = if network.is_some() { "gate" } else { "closed" }.to_owned();
    }
    let abi = landlock::abi();
    if abi == 0 {
        let unread = !spec.read.iter().any(|path| path == Path::new("/"));
        if unread && spec.mode == Mode::Enforce {
            return Err(Box::<Failed>::from(WorldError::TooWeak {
                level: Level::Full,
                reason: "fs.read needs Landlock, which this kernel does not have".to_owned(),
            }));
        }
        enforced.degraded.push(if unread {
            "fs.read: Landlock is not available, so everything can be read".to_owned()
        } else {
            "Landlock is not available; mounts alone hold files".to_owned()
        });
    }
    for (open, name) in [(spec.allow_ptrace, "ptrace"), (spec.allow_userns, "userns")] {
        if open {
            enforced.degraded.push(format!("world.allow: {name}"));
        }
    }
    if let Some(reason) = &learnt.not_heavy {
        enforced.degraded.push(format!("heavy isolation: {reason}"));
    }
    let steps = Recipe {
        id,
        layout: &layout,
        streams: &purpose.streams,
        held: &held,
        maps: maps.by,
        own_network: spec.net.isolate,
        network: joining,
        groups,
        process_limits,
        private_size: spec.limits.memory,
        mask_sys: learnt.mask_sys,
        heavy: options.heavy && learnt.not_heavy.is_none(),
        landlock_abi: abi,
        filter: seccomp::Options {
            allow_ptrace: spec.allow_ptrace,
            allow_userns: spec.allow_userns,
            notify_exec: purpose.judge.is_some(),
            // What is held back loses the bits when it is applied.
            refuse_setid: purpose.placement == Placement::Session,
            hold_sockets: true,
            ..seccomp::Options::default()
        },
    }
    .steps()
    .map_err(own(FILTER))?;
    let gated = network.is_some();
    let mut opened = Ok(());
    let mut open = network.as_mut().map(|network| {
        || {
            let sockets = plan.receive(ours.as_fd());
            opened = match sockets {
                Ok(sockets) => network
                    .start(sockets)
                    .map_err(own("start the network's gate")),
                Err(error) => Err(WorldError::Network(error.to_string())),
            };
            opened.is_ok()
        }
    });
    let mut first = purpose.first.map(|request| First {
        request,
        inside: Inside {
            world: id,
            level: Level::Full,
            layout: &layout,
            streams: &[],
            moved: &[],
            scratch: None,
            gated,
            substrate_home: &spec.substrate_home,
        },
        prepared: None,
        asked: None,
    });
    let mut described = Ok(());
    let mut may_begin = false;
    let mut chores = || {
        described = pending.as_mut().map_or(Ok(()), Pending::begin);
        may_begin = described.is_ok() && purpose.begin.borrow_mut()();
        may_begin
    };
    let meanwhile = Meanwhile {
        chores: Some(&mut chores),
        gate: open
            .as_mut()
            .map(|open| (ours.as_fd(), open as &mut dyn FnMut() -> bool)),
        first: first.as_mut(),
    };
    let beginning = Beginning {
        maps: maps.lines,
        namespaces: namespaces(),
        network: made,
        placement: purpose.placement,
    };
    let launched = launch_steps(steps, beginning, meanwhile);
    let mut launched = match launched {
        Ok(launched) => launched,
        Err((error, label)) => {
            let error = launch_error(error, label.as_ref());
            return Err(Box::new(Failed { error, label }));
        }
    };
    described.map_err(WorldError::from)?;
    if !may_begin {
        return Err(WorldError::CalledOff.into());
    }
    opened?;
    let first = first.and_then(|first| first.asked);
    let guard = guard(id, purpose, &mut launched, &layout.admitted, &mut enforced)?;
    Ok(Live {
        id,
        init: launched.init,
        guard,
        network,
        group,
        pending,
        enforced,
        spec: spec.clone(),
        moved: Vec::new(),
        scratch: None,
        layout,
        streams: launched.streams,
        first,
        carried: Carried::default(),
    })
}

/// Has the starts of a new world judged from its first command on.
pub(crate) fn guard(
    id: WorldId,
    purpose: &Purpose<'_>,
    launched: &mut Launched,
    admitted: &[PathBuf],
    enforced: &mut Enforced,
) -> Result<Option<Guard>, WorldError> {
    if purpose.judge.is_none() && launched.sockets.is_none() {
        return Ok(None);
    }
    // The start of the command waits for the guard; without one it never becomes its program.
    let own = |error| WorldError::Own("guard program starts", error);
    let listener = launched.listener.take();
    let listener = listener.ok_or_else(|| own(io::ErrorKind::NotFound.into()))?;
    let spec = purpose.spec;
    let enforce = spec.mode == Mode::Enforce;
    let terms = Terms {
        recheck: enforce && !spec.allow_ptrace,
        enforce,
        roots_change: spec.allow_userns,
    };
    let diag = launched.sockets.take();
    let sockets = diag.map(|diag| Sockets::new(diag, spec.net.isolate, admitted.to_owned()));
    let sockets = sockets.transpose().map_err(own)?;
    let judge: Arc<dyn ExecJudge> = match purpose.judge.clone() {
        Some(judge) => {
            enforced.exec = terms.word().to_owned();
            judge
        }
        None => Arc::new(NoRules),
    };
    let own_starts = launched.init.take_own_starts();
    Guard::start(id, listener, own_starts, judge, terms, sockets)
        .map(Some)
        .map_err(own)
}

pub(crate) fn new_pending<'a>(
    purpose: &Purpose<'_>,
    id: WorldId,
    mut places: impl Iterator<Item = &'a What>,
) -> Result<Option<Pending>, WorldError> {
    if let Some(earlier) = purpose.again {
        return Ok(Some(earlier.clone()));
    }
    if !places.any(|what| matches!(what, What::Held { .. })) {
        return Ok(None);
    }
    let new = NewPending {
        world_id: id.to_string(),
        span_id: purpose.span.clone(),
        policy_id: purpose.spec.policy_id.clone(),
        cwd: purpose.cwd.clone(),
        cmd: purpose.line.clone(),
    };
    Ok(Some(Pending::create(&purpose.spec.substrate_home, new)?))
}

fn fs_word(held: &BTreeMap<PathBuf, HeldAs>) -> String {
    let kinds: BTreeSet<&str> = held
        .values()
        .map(|held| match held {
            HeldAs::Overlay { .. } => "overlay",
            HeldAs::Copy(_) => "copy",
        })
        .collect();
    match kinds.len() {
        0 => "binds".to_owned(),
        _ => kinds.into_iter().collect::<Vec<_>>().join("+"),
    }
}

/// Limits by a control group where one can be made, else of each process.
pub(crate) fn limit(
    id: WorldId,
    spec: &WorldSpec,
    options: &Options,
    host: &Host,
    enforced: &mut Enforced,
) -> (Option<Group>, Vec<(u32, u64)>) {
    let limits = &spec.limits;
    if limits.cpu_milli.is_none() && limits.memory.is_none() && limits.pids.is_none() {
        return (None, Vec::new());
    }
    let hierarchy = match &options.groups {
        Groups::Off => None,
        Groups::At(hierarchy) => Some(hierarchy.clone()),
        Groups::Discover => {
            let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
            limits::discover(&host.mounts, &own)
        }
    };
    if let Some(hierarchy) = hierarchy {
        match Group::make(&hierarchy, &limits::group_name(id), limits) {
            Ok(group) => {
                enforced.limits = group.kind().to_owned();
                for what in &group.missing {
                    enforced
                        .degraded
                        .push(format!("limits.{what}: no controller here"));
                }
                return (Some(group), Vec::new());
            }
            Err((path, error)) => enforced
                .degraded
                .push(format!("limits: {}: {error}", path.display())),
        }
    }
    let (set, missing) = limits::per_process(limits);
    enforced.limits = "rlimits".to_owned();
    for what in missing {
        enforced
            .degraded
            .push(format!("limits.{what}: needs a control group"));
    }
    if access::identity().0 == 0 && limits.pids.is_some() {
        enforced
            .degraded
            .push("limits.pids: the kernel does not count root's processes".to_owned());
    }
    (None, set)
}

/// The namespaces that the first process is born into; its network is made beside it.
fn namespaces() -> Namespaces {
    Namespaces::USER
        .and(Namespaces::MOUNT)
        .and(Namespaces::PID)
        .and(Namespaces::IPC)
        .and(Namespaces::UTS)
}

/// Who is who in a new world, and who writes that down.
pub(crate) struct IdMaps {
    pub by: MapsBy,
    pub lines: Option<Maps>,
}

/// With the privilege to do so, everybody keeps his number; else only we do.
pub(crate) fn maps() -> Result<IdMaps, WorldError> {
    const SETGID: u64 = 1 << 6;
    const SETUID: u64 = 1 << 7;
    let held = caps::effective().map_err(|e| WorldError::Own("read our capabilities", e))?;
    let (user, group) = access::identity();
    if held & (SETUID | SETGID) != SETUID | SETGID {
        return Ok(IdMaps {
            by: MapsBy::World(user, group),
            lines: None,
        });
    }
    let same = |path: &'static str| {
        let text = fs::read_to_string(path).map_err(|e| WorldError::Own("read the id map", e))?;
        Ok::<String, WorldError>(identity_lines(&text))
    };
    Ok(IdMaps {
        by: MapsBy::Owner,
        lines: Some(Maps {
            users: same("/proc/self/uid_map")?,
            groups: same("/proc/self/gid_map")?,
        }),
    })
}

/// Every number that exists in our namespace, mapped to itself.
fn identity_lines(map: &str) -> String {
    map.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (first, count) = (words.next()?, words.nth(1)?);
            Some(format!("{first} {first} {count}\n"))
        })
        .collect()
}

type StepFailure = (LaunchError, Option<Label>);

/// What a world begins with, besides its steps.
pub(crate) struct Beginning {
    pub maps: Option<Maps>,
    pub namespaces: Namespaces,
    pub network: Option<NewNetwork>,
    pub placement: Placement,
}

/// What can be done while a world's first process takes its steps.
pub(crate) struct Meanwhile<'a, 'b> {
    /// What nothing inside waits for, and what has to be done before the command starts; false when
    /// it must not.
    pub chores: Option<&'a mut dyn FnMut() -> bool>,
    /// Opens the gate, once this descriptor has the network's sockets; false when that fails.
    pub gate: Option<(BorrowedFd<'a>, &'a mut dyn FnMut() -> bool)>,
    /// Starts the command that the world is made for.
    pub first: Option<&'a mut First<'b>>,
}

/// The command that a world is made for, on its way.
pub(crate) struct First<'a> {
    request: &'a ExecRequest,
    inside: Inside<'a>,
    prepared: Option<Result<Prepared<'a>, WorldError>>,
    asked: Option<Result<Asked, WorldError>>,
}

impl First<'_> {
    /// Once its streams are there.
    fn prepare(&mut self, streams: &[Stream]) {
        let inside = Inside {
            streams,
            ..self.inside
        };
        self.prepared = Some(Prepared::new(&inside, self.request));
    }

    /// Once nothing but the rest of the steps can go wrong.
    fn ask(&mut self, launching: &Launching) {
        let send: Ask<'_> = &|parts, fds| launching.ask(parts, fds);
        let prepared = self.prepared.take();
        self.asked = prepared.map(|prepared| prepared.and_then(|prepared| prepared.ask(send)));
    }
}

/// A world that is ready for commands.
pub(crate) struct Launched {
    pub init: Init,
    pub streams: Vec<Stream>,
    /// The end of its filter at which program starts are judged.
    pub listener: Option<OwnedFd>,
    /// Where its sockets can be asked for.
    pub sockets: Option<OwnedFd>,
}

pub(crate) fn launch_steps(
    steps: Steps,
    beginning: Beginning,
    mut meanwhile: Meanwhile<'_, '_>,
) -> Result<Launched, StepFailure> {
    let one_shot = beginning.placement == Placement::Isolated;
    let namespaces = beginning.namespaces;
    let plan = Plan {
        namespaces,
        maps: beginning.maps,
        network: beginning.network,
        steps: steps.steps,
        slots: steps.slots,
        ptmx: match namespaces.has(Namespaces::MOUNT) {
            true => c"/dev/pts/ptmx",
            false => c"/dev/ptmx",
        }
        .to_owned(),
        one_shot,
        die_with_thread: one_shot,
    };
    let labels = &steps.labels;
    let failed = |error: LaunchError| {
        let label = match &error {
            LaunchError::Step { number, .. } => labels.get(*number).cloned(),
            _ => None,
        };
        (error, label)
    };
    let is_stream = |number: usize| {
        let label = labels.get(number);
        label.is_some_and(|label| label.doing == HAND_OUT)
    };
    let launching = launch::begin(plan).map_err(failed)?;
    let may_start = meanwhile.chores.take().is_none_or(|chores| chores());
    let (mut streams, mut listener, mut world_sockets) = (Vec::new(), None, None);
    let is_diag = |number: usize| {
        let label = labels.get(number);
        label.is_some_and(|label| label.doing == SOCKETS)
    };
    let mut due = labels
        .iter()
        .filter(|label| label.doing == HAND_OUT)
        .count();
    let (mut ready, mut gate_works) = (false, true);
    while !(ready && meanwhile.gate.is_none()) {
        let sockets = meanwhile.gate.as_ref().map(|(sockets, _)| *sockets);
        let progress = match ready {
            true => Progress::Other,
            false => launching.next(sockets).map_err(failed)?,
        };
        match progress {
            Progress::Ready => ready = true,
            Progress::Other => gate_works = meanwhile.gate.take().is_none_or(|(_, open)| open()),
            Progress::Missing(number) => due -= usize::from(is_stream(number)),
            Progress::Export(number, fd) if is_stream(number) => {
                due -= 1;
                // One that cannot be looked at is carried over byte by byte.
                streams.extend(Stream::new(fd));
            }
            Progress::Export(number, fd) if is_diag(number) => world_sockets = Some(fd),
            Progress::Export(_, fd) => listener = Some(fd),
        }
        if let Some(first) = meanwhile
            .first
            .as_mut()
            .filter(|first| first.asked.is_none())
        {
            if due == 0 && first.prepared.is_none() {
                first.prepare(&streams);
            }
            if first.prepared.is_some() && may_start && gate_works && meanwhile.gate.is_none() {
                first.ask(&launching);
            }
        }
    }
    Ok(Launched {
        init: launching.into_init(),
        streams,
        listener,
        sockets: world_sockets,
    })
}

/// Why there is no network: this machine gives none, or something went wrong this time.
fn no_network(error: io::Error) -> WorldError {
    const EPERM: i32 = 1;
    const EINVAL: i32 = 22;
    const ENOSPC: i32 = 28;
    const EPIPE: i32 = 32;
    const EUSERS: i32 = 87;
    match error.raw_os_error() {
        Some(EPERM | EINVAL | ENOSPC | EUSERS) => WorldError::Namespaces(error),
        Some(EPIPE) => WorldError::Died,
        _ => WorldError::Network(error.to_string()),
    }
}

pub(crate) fn launch_error(error: LaunchError, label: Option<&Label>) -> WorldError {
    match error {
        LaunchError::Own(what, error) => WorldError::Own(what, error),
        LaunchError::Clone(error) => WorldError::Namespaces(error),
        LaunchError::Maps(error) => WorldError::Maps(error),
        LaunchError::Died => WorldError::Died,
        LaunchError::Step { error, .. } => match label {
            Some(label) if label.doing == NETWORK => no_network(error),
            _ => WorldError::Step {
                doing: label.map_or("take a step", |label| label.doing),
                path: label.and_then(|label| label.path.clone()),
                source: error,
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_keeps_the_number_he_has() {
        assert_eq!(
            identity_lines("         0          0 4294967295\n"),
            "0 0 4294967295\n"
        );
        assert_eq!(
            identity_lines("0 100000 1000\n1000 1000 1\n"),
            "0 0 1000\n1000 1000 1\n"
        );
    }
}
