//! Making a world: facts, layout, held places, limits, network, launch; and again with less
//! where the kernel refuses a part that can be done without or in another way.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use substrate_changes::pending::Pending;
use substrate_egress::network::{Network, NetworkMaker};
use substrate_init::launch::NewNetwork;
use substrate_init::netplan::NetPlan;
use substrate_policy::terms::{Mode, WorldSpec};
use substrate_sys::errno::{ELOOP, ENOENT, ENOTDIR, ESTALE};
use substrate_sys::namespace::Namespaces;
use substrate_sys::{kernel_file, landlock, seccomp};
use substrate_trace::{Enforced, Level, WorldId};
use substrate_world::error::WorldError;

use crate::doing::Doing;
use crate::held;
use crate::id_maps::{IdMaps, maps};
use crate::inside::Inside;
use crate::kept_out::KeptOut;
use crate::launching::{Beginning, Failed, First, Gate, Meanwhile, launch_steps};
use crate::layout::{self, Host, Layout, Placement};
use crate::limits;
use crate::live::Live;
use crate::mountinfo;
use crate::options::Options;
use crate::purpose::Purpose;
use crate::sockets;
use crate::steps::{FILTER, HeldAs, Recipe};
use crate::streams::Carried;

/// Makes a world as strong as this machine lets it be. In `enforce`, anything less than full
/// is refused.
pub fn make(
    purpose: &Purpose<'_>,
    options: &Options,
    networks: Option<&NetworkMaker>,
) -> Result<Live, WorldError> {
    let refused = if options.ceiling == Level::Full {
        match full(purpose, options, networks) {
            Ok(live) => return Ok(live),
            Err(failed) if falls_back(&failed) => failed.error.to_string(),
            Err(failed) => return Err(failed.error),
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
fn falls_back(failed: &Failed) -> bool {
    match &failed.error {
        WorldError::Namespaces(_) | WorldError::Maps(_) => true,
        WorldError::Step { source, .. } => {
            let doing = failed.label.as_ref().map(|label| label.doing);
            matches!(
                doing,
                Some(Doing::WriteMap | Doing::MakeTreeReadOnly | Doing::Mount)
            ) && source.kind() == io::ErrorKind::PermissionDenied
        }
        _ => false,
    }
}

/// How often a world is planned anew because something that it hides or protects was moved meanwhile.
const MOST_MOVED: usize = 5;

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
) -> Result<Live, Box<Failed>> {
    let mut learnt = Learnt::default();
    // Every round learns one thing, and there are only so many to learn.
    loop {
        match attempt(purpose, options, networks, &learnt) {
            Err(failed) if learnt.learns(&failed, options) => {}
            made_or_not => return made_or_not,
        }
    }
}

impl Learnt {
    /// Whether a failed attempt has taught something by which the next may succeed.
    fn learns(&mut self, failed: &Failed, options: &Options) -> bool {
        let Some(label) = &failed.label else {
            return false;
        };
        if let Some(target) = &label.overlay_of {
            let reason = format!("no overlay ({})", failed.error);
            return self.no_overlay.insert(target.clone(), reason).is_none();
        }
        match label.doing {
            Doing::Hide | Doing::Protect | Doing::Fix if was_moved(&failed.error) => {
                self.moved += 1;
                self.moved <= MOST_MOVED
            }
            Doing::MountKernelView => !std::mem::replace(&mut self.mask_sys, true),
            Doing::NewRoot if options.heavy => {
                let why = failed.error.to_string();
                self.not_heavy.replace(why).is_none()
            }
            _ => false,
        }
    }

    /// Held places that get a copy in place of an overlay, with the reasons.
    fn without_overlays(&self, options: &Options, layout: &Layout) -> BTreeMap<PathBuf, String> {
        let mut reasons = self.no_overlay.clone();
        if options.no_overlay {
            let all = layout.places.keys().cloned();
            reasons.extend(all.map(|path| (path, "overlays are switched off".to_owned())));
        }
        reasons
    }
}

/// Whether what a step was about was moved away meanwhile.
fn was_moved(error: &WorldError) -> bool {
    match error {
        WorldError::Step { source, .. } => {
            matches!(source.errno, Some(ENOENT | ENOTDIR | ELOOP | ESTALE))
        }
        _ => false,
    }
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
    let own = WorldError::own;
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
    let pending = purpose.pending(id, layout.places.values())?;
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

/// Its parts in the order in which they come to be.
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
    let held = match pending.as_mut() {
        Some(pending) => {
            let no_overlay = learnt.without_overlays(options, &layout);
            held::hold(&mut layout, pending, &host.mounts, maps.by, &no_overlay)?
        }
        None => BTreeMap::new(),
    };
    let mut enforced = Enforced {
        level: Level::Full,
        fs: fs_word(&held),
        net: net_word(spec, network.is_some()).to_owned(),
        exec: "none".to_owned(),
        limits: "none".to_owned(),
        degraded: std::mem::take(&mut layout.notes),
    };
    let (group, process_limits) =
        limits::limit(id, spec, &options.groups, &host.mounts, &mut enforced);
    let wires = Wires::new(spec, network.as_mut())?;
    let landlock_abi = landlock::abi();
    note_landlock(landlock_abi, spec, &mut enforced)?;
    note_allowances(spec, learnt, &mut enforced);
    let steps = Recipe {
        id,
        layout: &layout,
        streams: &purpose.streams,
        held: &held,
        maps: maps.by,
        own_network: spec.net.isolate,
        network: wires.joining,
        groups: limits::entrances(group.as_ref())?,
        process_limits,
        private_size: spec.limits.memory,
        mask_sys: learnt.mask_sys,
        heavy: options.heavy && learnt.not_heavy.is_none(),
        landlock_abi,
        filter: filter(purpose),
    };
    let steps = steps.steps().map_err(WorldError::own(FILTER))?;
    let inside = Inside {
        world: id,
        level: Level::Full,
        layout: &layout,
        streams: &[],
        moved: &[],
        scratch: None,
        gated: network.is_some(),
        substrate_home: &spec.substrate_home,
    };
    let (plan, ours) = (wires.plan, wires.ours);
    let mut begin = || purpose.begin.borrow_mut()();
    let meanwhile = Meanwhile {
        begin: &mut begin,
        pending: pending.as_mut(),
        gate: network.as_mut().map(|network| Gate {
            network: network.as_mut(),
            plan,
            ours,
        }),
        first: purpose.first.map(|job| First::new(job, inside)),
    };
    let beginning = Beginning {
        maps: maps.lines,
        namespaces: namespaces(),
        network: wires.made,
        placement: purpose.placement,
    };
    let kept_out = keep_out(spec, &layout, &mut enforced)?;
    let mut launched = launch_steps(steps, beginning, meanwhile)?;
    let guard = launched.guard(id, purpose, &layout.admitted, &mut enforced)?;
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
        first: launched.first,
        carried: Carried::default(),
        kept_out,
    })
}

/// Begins to watch protected names that nothing has yet, before anything can make one.
fn keep_out(
    spec: &WorldSpec,
    layout: &Layout,
    enforced: &mut Enforced,
) -> Result<Option<KeptOut>, WorldError> {
    if layout.absent.is_empty() {
        return Ok(None);
    }
    match KeptOut::watch(&layout.absent) {
        Err(error) if spec.mode == Mode::Enforce => Err(WorldError::NotHeld {
            setting: "fs.protect".into(),
            path: layout.absent.first().cloned().unwrap_or_default(),
            reason: format!("does not exist yet and cannot be watched ({error})"),
        }),
        Err(error) => {
            let note = format!("fs.protect: names that do not exist yet are not watched ({error})");
            enforced.degraded.push(note);
            Ok(None)
        }
        Ok(watched) => Ok(watched),
    }
}

/// What a network of a world's own is made over.
struct Wires {
    plan: NetPlan,
    ours: UnixStream,
    made: Option<NewNetwork>,
    joining: Option<OwnedFd>,
}

impl Wires {
    fn new(spec: &WorldSpec, network: Option<&mut Box<dyn Network>>) -> Result<Wires, WorldError> {
        let own = WorldError::own;
        let prepare = Doing::PrepareNetwork.as_str();
        let (ours, theirs) = UnixStream::pair().map_err(own("make a socket pair"))?;
        // A network that stays closed has nothing to be prepared in it.
        let plan = network.map_or_else(|| Ok(NetPlan::default()), |network| network.plan());
        let plan = plan.map_err(own(prepare))?;
        let (made, joining) = if spec.net.isolate {
            let new = NewNetwork::new(plan.clone(), theirs.into()).map_err(own(prepare))?;
            (Some(new.0), Some(new.1))
        } else {
            (None, None)
        };
        Ok(Wires {
            plan,
            ours,
            made,
            joining,
        })
    }
}

fn net_word(spec: &WorldSpec, gated: bool) -> &'static str {
    match (spec.net.isolate, gated) {
        (false, _) => "host",
        (true, true) => "gate",
        (true, false) => "closed",
    }
}

fn note_landlock(abi: u32, spec: &WorldSpec, enforced: &mut Enforced) -> Result<(), WorldError> {
    if abi > 0 {
        return Ok(());
    }
    let unread = !spec.read.iter().any(|path| path == Path::new("/"));
    if unread && spec.mode == Mode::Enforce {
        return Err(WorldError::TooWeak {
            level: Level::Full,
            reason: "fs.read needs Landlock, which this kernel does not have".to_owned(),
        });
    }
    enforced.degraded.push(if unread {
        "fs.read: Landlock is not available, so everything can be read".to_owned()
    } else {
        "Landlock is not available; mounts alone hold files".to_owned()
    });
    Ok(())
}

fn note_allowances(spec: &WorldSpec, learnt: &Learnt, enforced: &mut Enforced) {
    for (open, name) in [(spec.allow_ptrace, "ptrace"), (spec.allow_userns, "userns")] {
        if open {
            enforced.degraded.push(format!("world.allow: {name}"));
        }
    }
    if let Some(reason) = &learnt.not_heavy {
        enforced.degraded.push(format!("heavy isolation: {reason}"));
    }
}

fn filter(purpose: &Purpose<'_>) -> seccomp::Options {
    seccomp::Options {
        allow_ptrace: purpose.spec.allow_ptrace,
        allow_userns: purpose.spec.allow_userns,
        notify_exec: purpose.judge.is_some(),
        // What is held back loses the bits when it is applied.
        refuse_setid: purpose.placement == Placement::Session,
        hold_sockets: true,
        ..seccomp::Options::default()
    }
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

/// The namespaces that the first process is born into; its network is made beside it.
fn namespaces() -> Namespaces {
    Namespaces::USER
        .and(Namespaces::MOUNT)
        .and(Namespaces::PID)
        .and(Namespaces::IPC)
        .and(Namespaces::UTS)
}
