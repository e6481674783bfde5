//! What this machine gives to worlds, found out by doing it, with the reason and the way out
//! for whatever it does not give.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use substrate_init::launch::{self, Maps, Need, Plan, Step};
use substrate_policy::terms::Limits;
use substrate_sys::namespace::Namespaces;
use substrate_sys::real_path::real_path;
use substrate_sys::seccomp::{self, Filter};
use substrate_sys::{landlock, process_info};
use substrate_trace::{Level, WorldId};

use crate::doing::Doing;
use crate::id_maps;
use crate::layout::{Layout, What};
use crate::limits::{self, Group, Hierarchy};
use crate::mark;
use crate::mountinfo;
use crate::netprobe;
use crate::steps::{FILTER, HeldAs, Steps};
use crate::trial::{Row, attempt, recipe};

/// What this machine gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The strongest level.
    pub level: Level,
    /// The table.
    pub rows: Vec<Row>,
}

/// Tries everything. `scratch` is a directory on the filesystem that results will be kept on;
/// what is made there is removed.
pub fn probe(scratch: &Path) -> Report {
    let mut rows = Vec::new();
    let user = namespace_rows(&mut rows);
    let tree = tree_row();
    let overlay = overlay_row(scratch);
    let full = user && tree.works;
    rows.extend([tree, overlay]);
    let abi = landlock::abi();
    rows.push(Row {
        what: "Landlock",
        works: abi > 0,
        found: match abi {
            0 => "not available".to_owned(),
            abi => format!("ABI {abi}"),
        },
        fix: (abi == 0).then(|| {
            "use a kernel with CONFIG_SECURITY_LANDLOCK (5.13 or newer) and `landlock` in the \
             boot parameter lsm="
                .to_owned()
        }),
    });
    rows.extend(seccomp_rows());
    rows.extend(netprobe::rows());
    rows.push(group_row());
    rows.push(pidfd_row());
    let level = match (full, abi > 0) {
        (true, _) => Level::Full,
        (false, true) => Level::Landlock,
        (false, false) => Level::None,
    };
    Report { level, rows }
}

const KINDS: [(&str, Namespaces); 5] = [
    ("mount namespaces", Namespaces::MOUNT),
    ("process namespaces", Namespaces::PID),
    ("network namespaces", Namespaces::NET),
    ("IPC namespaces", Namespaces::IPC),
    ("host name namespaces", Namespaces::UTS),
];

fn namespace_rows(rows: &mut Vec<Row>) -> bool {
    let with_maps = |namespaces: Namespaces| {
        let (steps, maps) = identity_steps();
        attempt(namespaces, maps, None, steps)
    };
    let mut all = true;
    let user = with_maps(Namespaces::USER);
    rows.push(row("user namespaces", &user, user_namespace_fix));
    all &= user.is_ok();
    for (what, kind) in KINDS {
        let tried = with_maps(Namespaces::USER.and(kind));
        all &= tried.is_ok();
        rows.push(row(what, &tried, |error| {
            if user.is_err() {
                Some("needs user namespaces, see above".to_owned())
            } else if error.raw_os_error() == Some(substrate_sys::errno::ENOSPC) {
                Some("raise the matching limit in /proc/sys/user/".to_owned())
            } else {
                Some("the kernel was built without them".to_owned())
            }
        }));
    }
    all
}

fn identity_steps() -> (Steps, Option<Maps>) {
    let mut steps = Steps::default();
    let Ok(maps) = id_maps::maps() else {
        return (steps, None);
    };
    let layout = Layout::default();
    let held = BTreeMap::new();
    recipe(&layout, &held, maps.by).become_somebody(&mut steps);
    // The host name needs a namespace of its own; the maps are what is tried here.
    steps
        .steps
        .retain(|(step, _)| !matches!(step, Step::Hostname(_)));
    steps
        .labels
        .retain(|label| label.doing != Doing::SetHostName);
    (steps, maps.lines)
}

fn row(
    what: &'static str,
    tried: &Result<(), (String, io::Error)>,
    fix: impl FnOnce(&io::Error) -> Option<String>,
) -> Row {
    match tried {
        Ok(()) => Row {
            what,
            works: true,
            found: "yes".to_owned(),
            fix: None,
        },
        Err((doing, error)) => Row {
            what,
            works: false,
            found: format!("cannot {doing}: {error}"),
            fix: fix(error),
        },
    }
}

/// The switches that distributions and containers use to close user namespaces, each looked at
/// only when they are closed.
fn user_namespace_fix(error: &io::Error) -> Option<String> {
    let read = |path: &str| {
        fs::read_to_string(path)
            .ok()
            .map(|text| text.trim().to_owned())
    };
    if read("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return Some("sysctl -w kernel.unprivileged_userns_clone=1".to_owned());
    }
    if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        return Some(
            "AppArmor closes them to unconfined programs: install an AppArmor profile for \
             substrate with the `userns` rule, or \
             sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
                .to_owned(),
        );
    }
    if read("/proc/sys/user/max_user_namespaces").as_deref() == Some("0") {
        let inside = mark::enclosing().is_some();
        return Some(if inside {
            "this is a world already; `world.allow: [userns]` opens them in it".to_owned()
        } else {
            "sysctl -w user.max_user_namespaces=15000".to_owned()
        });
    }
    if Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists() {
        return Some(
            "this is a container whose filter refuses them: start it with \
             --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
                .to_owned(),
        );
    }
    match error.kind() {
        io::ErrorKind::InvalidInput => {
            Some("use a kernel with CONFIG_USER_NS, 5.12 or newer".to_owned())
        }
        _ => None,
    }
}

fn all_kinds() -> Namespaces {
    KINDS
        .iter()
        .fold(Namespaces::USER, |all, (_, kind)| all.and(*kind))
}

/// A whole world without places of its own: read-only tree, /proc, /dev, locks.
fn tree_row() -> Row {
    world_row(
        "a read-only tree with its own /proc and /dev",
        &Layout::default(),
        &BTreeMap::new(),
        |error| {
            Some(match error.raw_os_error() {
            Some(substrate_sys::errno::ENOSYS) => "use kernel 5.12 or newer (mount_setattr)".to_owned(),
            _ => "in a container, /proc is partly covered, so no fresh one can be mounted: start \
                  it with --security-opt systempaths=unconfined"
                .to_owned(),
        })
        },
    )
}

fn world_row(
    what: &'static str,
    layout: &Layout,
    held: &BTreeMap<PathBuf, HeldAs>,
    fix: impl FnOnce(&io::Error) -> Option<String>,
) -> Row {
    let tried = match id_maps::maps() {
        Ok(maps) => {
            let steps = recipe(layout, held, maps.by).steps();
            steps
                .map_err(|error| (FILTER.to_owned(), error))
                .and_then(|steps| attempt(all_kinds(), maps.lines, None, steps))
        }
        Err(error) => Err(("find out who we are".to_owned(), io::Error::other(error))),
    };
    row(what, &tried, fix)
}

fn overlay_row(scratch: &Path) -> Row {
    let dir = scratch.join(format!("probe-{}", WorldId::new()));
    let [lower, upper, work] = ["lower", "upper", "work"].map(|name| dir.join(name));
    let made = [&lower, &upper, &work]
        .iter()
        .try_for_each(fs::create_dir_all)
        .and_then(|()| real_path(&lower));
    let row = match made {
        Err(error) => Row {
            what: "overlays",
            works: false,
            found: format!("cannot make {}: {error}", dir.display()),
            fix: None,
        },
        Ok(lower) => {
            let mut layout = Layout::default();
            layout
                .places
                .insert(lower.clone(), What::Held { apart: false });
            let held = BTreeMap::from([(lower, HeldAs::Overlay { upper, work })]);
            world_row("overlays", &layout, &held, |_| {
                Some(
                    "projects are copied instead; overlays need kernel 5.11 and a filesystem \
                     with user attributes under Substrate's home"
                        .to_owned(),
                )
            })
        }
    };
    let _ = substrate_changes::remove::remove_path(&dir);
    row
}

fn seccomp_rows() -> Vec<Row> {
    let try_filter = |notify_exec: bool| {
        let mut steps = Steps::default();
        let filter = Filter::new(seccomp::Options {
            notify_exec,
            ..seccomp::Options::default()
        })
        .map_err(|error| (FILTER.to_owned(), error))?;
        for step in [Step::NoNewPrivs, Step::Seccomp(filter)] {
            steps.steps.push((step, Need::Required));
        }
        attempt(Namespaces::NONE, None, None, steps)
    };
    vec![
        row("system call filters", &try_filter(false), |_| {
            Some("use a kernel with CONFIG_SECCOMP_FILTER".to_owned())
        }),
        row(
            "judging program starts in the kernel",
            &try_filter(true),
            |_| Some("use kernel 5.19 or newer (seccomp user notification)".to_owned()),
        ),
        descriptors_row(),
    ]
}

fn descriptors_row() -> Row {
    let works = seccomp::listeners_pass_descriptors();
    Row {
        what: "answering system calls with descriptors",
        works,
        found: if works { "yes" } else { "not available" }.to_owned(),
        fix: (!works).then(|| {
            "nothing needs it yet; kernel 5.9 or newer has it (SECCOMP_IOCTL_NOTIF_ADDFD)"
                .to_owned()
        }),
    }
}

fn group_row() -> Row {
    let mounts = mountinfo::read().unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let fix = "limits fall back to single processes; with systemd, start the shell by \
               `systemd-run --user --scope -p Delegate=yes`";
    let limits = Limits {
        pids: Some(64),
        ..Limits::default()
    };
    let tried = match limits::discover(&mounts, &own) {
        None => Err("no group that we may make others in".to_owned()),
        Some(hierarchy) => Group::make(&hierarchy, &limits::group_name(WorldId::new()), &limits)
            .map(|_| match hierarchy {
                Hierarchy::V2(dir) => format!("version 2 at {}", dir.display()),
                Hierarchy::V1(trees) => {
                    let names: Vec<&str> = trees.iter().map(|(name, _)| name.as_str()).collect();
                    format!("version 1: {}", names.join(", "))
                }
            })
            .map_err(|(path, error)| format!("{}: {error}", path.display())),
    };
    let works = tried.is_ok();
    Row {
        what: "control groups",
        works,
        found: tried.unwrap_or_else(|why| why),
        fix: (!works).then(|| fix.to_owned()),
    }
}

fn pidfd_row() -> Row {
    let plan = Plan {
        namespaces: Namespaces::NONE,
        maps: None,
        network: None,
        steps: Vec::new(),
        slots: 0,
        ptmx: c"/dev/ptmx".to_owned(),
        one_shot: true,
        die_with_thread: true,
    };
    let works = launch::launch(plan).is_ok_and(|init| {
        let told = |_| process_info::ending(init.pidfd());
        init.kill()
            .and_then(told)
            .is_ok_and(|ending| ending.is_some())
    });
    Row {
        what: "exit status by pidfd",
        works,
        found: if works { "yes" } else { "not available" }.to_owned(),
        fix: (!works)
            .then(|| "shims wait for their tools instead; kernel 6.15 changes that".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_says_what_was_found_and_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let report = probe(dir.path());
        // The proxy has a row only where there is one.
        let rows = report.rows.iter().filter(|row| row.what != "proxy");
        assert_eq!(rows.count(), 16);
        for row in &report.rows {
            assert!(!row.found.is_empty(), "{}", row.what);
            assert!(!row.works || row.fix.is_none(), "{}", row.what);
        }
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            0,
            "nothing is left"
        );
        let full = report.rows[..7].iter().all(|row| row.works);
        assert_eq!(report.level == Level::Full, full, "{report:#?}");
    }
}
