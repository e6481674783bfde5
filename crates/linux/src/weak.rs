//! The level without namespaces: Landlock, the system call filter and per-process limits, and
//! a copy of what may be written, because nothing can be mounted.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use substrate_init::launch::{Need, Step};
use substrate_policy::terms::WorldSpec;
use substrate_sys::landlock::{self, Handled};
use substrate_sys::namespace::Namespaces;
use substrate_sys::real_path::real_path;
use substrate_sys::seccomp::{self, Filter};
use substrate_trace::{Enforced, Level, WorldId};

use crate::c_text::c;
use crate::doing::{Doing, Label};
use crate::expand;
use crate::ground::{Astray, Ground};
use crate::held;
use crate::launching::{Beginning, Meanwhile, launch_steps};
use crate::layout::{Host, Layout, Placement, What};
use crate::limits;
use crate::live::Live;
use crate::mountinfo;
use crate::options::Options;
use crate::purpose::Purpose;
use crate::rights::{ALL, READ, around};
use crate::steps::{FILTER, Steps};
use crate::streams::Carried;
use substrate_changes::gc;
use substrate_changes::owner::Owner;
use substrate_changes::pending;
use substrate_changes::root::RootKind;
use substrate_world::error::WorldError;

const USE_DEVICE: u64 = READ | landlock::WRITE_FILE | landlock::TRUNCATE | landlock::IOCTL_DEV;
const DEVICES: [&str; 9] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
    "/proc/self",
];

/// Makes a world of this level. `why` says why it is not a full one.
pub fn make(purpose: &Purpose<'_>, options: &Options, why: &str) -> Result<Live, WorldError> {
    let id = WorldId::new();
    let scratch = scratch_dir(purpose.spec, id)?;
    build(purpose, options, why, id, &scratch).inspect_err(|_| {
        // A world that was not made leaves nothing behind.
        let result = pending::worlds_dir(&purpose.spec.substrate_home).join(id.to_string());
        for dir in [scratch, result] {
            let _ = substrate_changes::remove::remove_path(&dir);
        }
    })
}

fn build(
    purpose: &Purpose<'_>,
    options: &Options,
    why: &str,
    id: WorldId,
    scratch: &Path,
) -> Result<Live, WorldError> {
    let spec = purpose.spec;
    let own = WorldError::own;
    let mounts = mountinfo::read().map_err(own("read /proc/self/mountinfo"))?;
    let host = Host {
        mounts,
        ..Host::default()
    };
    let mut enforced = Enforced {
        level: Level::Landlock,
        fs: "landlock".to_owned(),
        net: if spec.net.isolate { "closed" } else { "host" }.to_owned(),
        exec: "none".to_owned(),
        limits: "none".to_owned(),
        degraded: vec![
            format!("no full world: {why}"),
            "processes of the host are visible".to_owned(),
        ],
    };
    let ground = Ground::of(spec);
    let mut world = Writable::default();
    let mut pending = None;
    match purpose.placement {
        Placement::Session => {
            let roots = lead("fs.write", &spec.write, &ground, &mut enforced);
            let common = |root: &PathBuf| root == Path::new("/tmp");
            world
                .roots
                .extend(roots.into_iter().filter(|root| !common(root)));
            if !spec.protect.is_empty() {
                enforced
                    .degraded
                    .push("fs.protect: not held without mounts".to_owned());
            }
        }
        Placement::Isolated => {
            enforced.fs = "landlock+copy".to_owned();
            let project = spec.project.iter().flat_map(real_path).next();
            let held = [What::Held { apart: false }];
            pending = purpose.pending(id, held.iter())?;
            if let (Some(pending), Some(project)) = (pending.as_mut(), project) {
                let copy = match earlier(purpose, &project)? {
                    Some(copy) => copy,
                    None => held::copy_whole(pending, &project, "no user namespaces")?,
                };
                world.roots.push(copy.clone());
                enforced
                    .degraded
                    .push(format!("{} is worked on as a copy", project.display()));
                world.moved.push((project, copy));
            }
        }
    }
    if let Some(pending) = pending.as_mut() {
        pending.begin()?;
    }
    world.roots.push(scratch.to_owned());
    world.moved.push(("/tmp".into(), scratch.to_owned()));
    let (group, process_limits) =
        limits::limit(id, spec, &options.groups, &host.mounts, &mut enforced);
    let mut steps = Steps::default();
    for entrance in limits::entrances(group.as_ref())? {
        add(
            &mut steps,
            Doing::EnterGroup,
            Step::WriteTo(entrance, b"0".to_vec()),
        );
    }
    for (resource, value) in process_limits {
        add(
            &mut steps,
            Doing::LimitProcesses,
            Step::Limit(resource, value),
        );
    }
    add(&mut steps, Doing::HideFirstProcess, Step::Unreadable);
    add(&mut steps, Doing::NoNewPrivileges, Step::NoNewPrivs);
    let abi = landlock::abi();
    let handled = Handled {
        net: if spec.net.isolate {
            Handled::all(abi).net
        } else {
            0
        },
        ..Handled::all(abi)
    };
    let rights = rights(spec, &world, &host, &ground, &mut enforced);
    add(
        &mut steps,
        Doing::RestrictByLandlock,
        Step::Landlock(handled, rights),
    );
    add(&mut steps, Doing::DropCapabilities, Step::DropCaps);
    let filter = Filter::new(seccomp::Options {
        allow_ptrace: spec.allow_ptrace,
        allow_userns: false,
        refuse_internet: spec.net.isolate,
        notify_exec: purpose.judge.is_some(),
        refuse_setid: purpose.placement == Placement::Session,
        // Connected from outside, a socket would not be bound by Landlock either.
        hold_sockets: false,
    })
    .map_err(WorldError::own(FILTER))?;
    add(&mut steps, Doing::InstallFilter, Step::Seccomp(filter));
    let beginning = Beginning {
        maps: None,
        namespaces: Namespaces::NONE,
        network: None,
        placement: purpose.placement,
    };
    let mut begin = || purpose.begin.borrow_mut()();
    let meanwhile = Meanwhile {
        begin: &mut begin,
        pending: None,
        gate: None,
        first: None,
    };
    let mut launched = launch_steps(steps, beginning, meanwhile).map_err(|failed| failed.error)?;
    let guard = launched.guard(id, purpose, &[], &mut enforced)?;
    Ok(Live {
        id,
        init: launched.init,
        guard,
        network: None,
        group,
        pending,
        enforced,
        spec: spec.clone(),
        moved: world.moved,
        scratch: Some(scratch.to_owned()),
        layout: Layout::default(),
        streams: Vec::new(),
        first: None,
        carried: Carried::default(),
        // What would have to be watched cannot be fixed in its place either.
        kept_out: None,
    })
}

/// The copy that an earlier world worked on, which is all that this level can open again.
fn earlier(purpose: &Purpose<'_>, project: &Path) -> Result<Option<PathBuf>, WorldError> {
    let Some(pending) = purpose.again else {
        return Ok(None);
    };
    let mut copy = None;
    for root in &pending.meta().roots {
        if root.kind != RootKind::Copy || root.target != project {
            return Err(WorldError::Again {
                path: root.target.clone(),
                reason: "without user namespaces only the copy of a project can be".to_owned(),
            });
        }
        copy = Some(root.upper.clone());
    }
    Ok(copy)
}

#[derive(Default)]
struct Writable {
    roots: Vec<PathBuf>,
    moved: Vec<(PathBuf, PathBuf)>,
}

fn add(steps: &mut Steps, doing: Doing, step: Step) {
    steps.steps.push((step, Need::Required));
    steps.labels.push(Label {
        doing,
        path: None,
        overlay_of: None,
    });
}

/// Where the paths of a setting lead. What leads out of where strangers could have put a link is left
/// out and said.
fn lead(
    setting: &str,
    paths: &[PathBuf],
    ground: &Ground,
    enforced: &mut Enforced,
) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in paths {
        match ground.resolve(path) {
            Ok(real) => found.push(real),
            Err(Astray::Missing(_)) => {}
            Err(astray) => enforced.degraded.push(format!("{setting}: {astray}")),
        }
    }
    found
}

/// A temporary directory of its own: the host's `/tmp` is everybody's.
fn scratch_dir(spec: &WorldSpec, id: WorldId) -> Result<PathBuf, WorldError> {
    let name = Owner::current().mark(&id.to_string());
    let dir = spec.substrate_home.join(gc::SCRATCH).join(name);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&dir)
        .map_err(WorldError::own("make a temporary directory"))?;
    real_path(&dir).map_err(WorldError::own("find the temporary directory"))
}

/// What Landlock is told: read all but what is hidden, write what is the world's.
fn rights(
    spec: &WorldSpec,
    world: &Writable,
    host: &Host,
    ground: &Ground,
    enforced: &mut Enforced,
) -> Vec<(CString, u64)> {
    let mut hidden: BTreeSet<PathBuf> = BTreeSet::new();
    let [found] = expand::expand([&spec.hide]);
    if let Some((path, reason)) = &found.cut_short {
        let note = format!("fs.hide: {} {reason}", path.display());
        enforced.degraded.push(note);
    }
    let own_home = real_path(&spec.substrate_home);
    let real = found.paths.iter().flat_map(real_path);
    for path in real.chain(found.missing).chain(own_home) {
        hidden.extend(mountinfo::aliases(&host.mounts, &path));
        hidden.insert(path);
    }
    let mut rights = Vec::new();
    for (setting, paths) in [("fs.read", &spec.read), ("fs.share", &spec.share)] {
        for root in lead(setting, paths, ground, enforced) {
            around(&root, &hidden, READ, &mut rights);
        }
    }
    for root in &world.roots {
        // The world's own copies lie in Substrate's home and are given by name.
        let mine = |path: &&PathBuf| !root.starts_with(path);
        let hidden = hidden.iter().filter(mine).cloned().collect();
        around(root, &hidden, ALL, &mut rights);
    }
    rights.extend(DEVICES.iter().map(|path| (c(Path::new(path)), USE_DEVICE)));
    rights
}
