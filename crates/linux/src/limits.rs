//! Limits of a world: a control group where one can be made, else per-process limits.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use substrate_policy::terms::{Limits, WorldSpec};
use substrate_sys::access;
use substrate_trace::{Enforced, WorldId};
use substrate_world::error::{Words, WorldError};

use crate::mountinfo::{self, Mount};
use substrate_changes::gc::{self, Leftover};
use substrate_changes::owner::Owner;

/// Period of a CPU quota, in microseconds.
const PERIOD: u64 = 100_000;

/// What the names of our groups start with.
const GROUP: &str = "substrate-";

/// Where control groups can be made for a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hierarchy {
    /// One tree for all controllers; new groups go into this directory.
    V2(PathBuf),
    /// A tree for each controller: its name, and where new groups go.
    V1(Vec<(String, PathBuf)>),
}

/// The controllers that limits need.
const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];

/// Finds the groups that this process may put new ones into, without changing any.
/// `own` is the text of `/proc/self/cgroup`.
pub fn discover(mounts: &[Mount], own: &str) -> Option<Hierarchy> {
    let path_of = |controller: &str| {
        own.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':');
            let names = parts.nth(1)?;
            names
                .split(',')
                .any(|name| name == controller)
                .then(|| parts.next())?
        })
    };
    let place = |mount: &Mount, path: &str| {
        // A path above the mount's own root cannot be reached through it.
        let below = Path::new(path).strip_prefix(&mount.root).ok()?;
        Some(mount.at.join(below))
    };
    let unified = mounts.iter().find(|m| m.kind == "cgroup2");
    if let (Some(mount), Some(path)) = (unified, path_of(""))
        && let Some(own) = place(mount, path)
        && let Some(parent) = delegated(&own, &mount.at)
    {
        return Some(Hierarchy::V2(parent));
    }
    let trees: Vec<(String, PathBuf)> = CONTROLLERS
        .iter()
        .filter_map(|name| {
            let mount = mounts.iter().find(|m| {
                m.kind == "cgroup" && m.options.split(',').any(|option| option == *name)
            })?;
            let place = place(mount, path_of(name)?)?;
            writable(&place).then(|| ((*name).to_owned(), place))
        })
        .collect();
    (!trees.is_empty()).then_some(Hierarchy::V1(trees))
}

/// The nearest group at or above our own that we may make groups in and that passes the
/// controllers on. Groups of others are never changed to make it so.
fn delegated(own: &Path, top: &Path) -> Option<PathBuf> {
    own.ancestors()
        .take_while(|dir| dir.starts_with(top))
        .find(|dir| {
            let passed = fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
            let all = CONTROLLERS
                .iter()
                .filter(|name| **name != "cpu")
                .all(|name| passed.split_whitespace().any(|word| word == *name));
            all && writable(dir) && writable(&dir.join("cgroup.procs"))
        })
        .map(Path::to_owned)
}

fn writable(path: &Path) -> bool {
    substrate_sys::access::writable(path)
}

/// A control group of one world. It is removed when this is dropped.
#[derive(Debug)]
pub struct Group {
    v2: bool,
    dirs: Vec<(String, PathBuf)>,
    /// What was asked for and has no controller here.
    pub missing: Vec<&'static str>,
}

impl Group {
    /// Makes a group with these limits.
    pub fn make(
        hierarchy: &Hierarchy,
        name: &str,
        limits: &Limits,
    ) -> Result<Group, (PathBuf, io::Error)> {
        let mut group = Group {
            v2: matches!(hierarchy, Hierarchy::V2(_)),
            dirs: Vec::new(),
            missing: Vec::new(),
        };
        match hierarchy {
            Hierarchy::V2(parent) => {
                let dir = parent.join(name);
                fs::create_dir(&dir).map_err(|e| (dir.clone(), e))?;
                group.dirs.push((String::new(), dir));
            }
            Hierarchy::V1(trees) => {
                for (controller, parent) in trees {
                    if wanted(limits, controller) {
                        let dir = parent.join(name);
                        fs::create_dir(&dir).map_err(|e| (dir.clone(), e))?;
                        group.dirs.push((controller.clone(), dir));
                    }
                }
            }
        }
        if let Some(cpu) = limits.cpu_milli {
            let quota = u64::from(cpu) * PERIOD / 1000;
            let done = if group.v2 {
                group.set("cpu", "cpu.max", &format!("{quota} {PERIOD}"))
            } else {
                group
                    .set("cpu", "cpu.cfs_period_us", &PERIOD.to_string())
                    .and_then(|_| group.set("cpu", "cpu.cfs_quota_us", &quota.to_string()))
            };
            group.note("cpu", done)?;
        }
        if let Some(memory) = limits.memory {
            let file = if group.v2 {
                "memory.max"
            } else {
                "memory.limit_in_bytes"
            };
            let done = group.set("memory", file, &memory.to_string());
            group.note("memory", done)?;
        }
        if let Some(pids) = limits.pids {
            let done = group.set("pids", "pids.max", &pids.to_string());
            group.note("pids", done)?;
        }
        Ok(group)
    }

    /// The word for `Enforced::limits`.
    pub fn kind(&self) -> &'static str {
        if self.v2 { "cgroup2" } else { "cgroup1" }
    }

    fn dir(&self, controller: &str) -> Option<&Path> {
        let mut dirs = self.dirs.iter();
        dirs.find(|(name, _)| self.v2 || name == controller)
            .map(|(_, dir)| dir.as_path())
    }

    /// Writes a value and reads it back: a file that takes anything limits nothing.
    fn set(&self, controller: &str, file: &str, value: &str) -> Result<(), (PathBuf, io::Error)> {
        let missing = || io::Error::from(io::ErrorKind::NotFound);
        let dir = self
            .dir(controller)
            .ok_or_else(|| (PathBuf::from(file), missing()))?;
        let path = dir.join(file);
        let write = || -> io::Result<()> {
            File::options()
                .write(true)
                .open(&path)?
                .write_all(value.as_bytes())?;
            let now = fs::read_to_string(&path)?;
            let same = now.trim() == value
                || match (now.trim().parse::<u64>(), value.parse::<u64>()) {
                    // Memory is counted in pages.
                    (Ok(now), Ok(value)) => now.abs_diff(value) < 65_536,
                    _ => false,
                };
            if same {
                Ok(())
            } else {
                Err(io::Error::other(format!(
                    "wrote {value}, reads {}",
                    now.trim()
                )))
            }
        };
        write().map_err(|e| (path.clone(), e))
    }

    fn note(
        &mut self,
        what: &'static str,
        done: Result<(), (PathBuf, io::Error)>,
    ) -> Result<(), (PathBuf, io::Error)> {
        match done {
            Err((_, error)) if error.kind() == io::ErrorKind::NotFound => {
                self.missing.push(what);
                Ok(())
            }
            other => other,
        }
    }

    /// Descriptors into which a process writes `0` to enter the group.
    pub fn entrances(&self) -> Result<Vec<OwnedFd>, (PathBuf, io::Error)> {
        self.dirs
            .iter()
            .map(|(_, dir)| {
                // Moving a thread that says `0` is the only way in for which the kernel does
                // not hold up every fork and exit on the machine; that takes milliseconds.
                let one = match self.v2 {
                    true => "cgroup.procs",
                    false => "tasks",
                };
                let path = dir.join(one);
                let file = File::options().write(true).open(&path);
                file.map(OwnedFd::from).map_err(|e| (path, e))
            })
            .collect()
    }

    /// Which limits were run into.
    pub fn reached(&self) -> Vec<Words> {
        let hits = self.hits();
        hits.iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// How often each limit was run into, as far as the kernel counts.
    pub fn hits(&self) -> Vec<(Words, u64)> {
        let count = |controller: &str, file: &str, key: &str| {
            let path = self.dir(controller)?.join(file);
            let text = fs::read_to_string(path).ok()?;
            text.lines().find_map(|line| {
                let mut words = line.split_whitespace();
                (words.next()? == key).then(|| words.next()?.parse::<u64>().ok())?
            })
        };
        let memory = if self.v2 {
            count("memory", "memory.events", "oom_kill")
        } else {
            count("memory", "memory.oom_control", "oom_kill")
        };
        let pids = count("pids", "pids.events", "max");
        [("memory", memory), ("pids", pids)]
            .into_iter()
            .filter_map(|(name, count)| Some((name.into(), count?)))
            .collect()
    }
}

/// The name of a world's group, which tells whose it is should it be left behind.
pub(crate) fn group_name(id: WorldId) -> String {
    Owner::current().mark(&format!("{GROUP}{id}"))
}

/// Control groups whose owners could not remove them any more.
pub fn leftovers() -> Vec<Leftover> {
    let mounts = mountinfo::read().unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(hierarchy) = discover(&mounts, &own) else {
        return Vec::new();
    };
    left(&hierarchy)
        .into_iter()
        .map(|(dir, owner)| Leftover {
            dir,
            verdict: gc::of_owner(owner),
            pending: None,
            group: true,
        })
        // The groups of those that run are theirs, and may be another user's.
        .filter(|leftover| leftover.verdict.is_rubbish())
        .collect()
}

/// Groups that worlds have left in a hierarchy, with their owners.
fn left(hierarchy: &Hierarchy) -> Vec<(PathBuf, Owner)> {
    let parents: Vec<&PathBuf> = match hierarchy {
        Hierarchy::V2(parent) => vec![parent],
        Hierarchy::V1(trees) => trees.iter().map(|(_, parent)| parent).collect(),
    };
    let mut found: Vec<(PathBuf, Owner)> = parents
        .into_iter()
        .filter_map(|parent| fs::read_dir(parent).ok())
        .flat_map(|entries| entries.flatten())
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let owner = Owner::of_mark(name.strip_prefix(GROUP)?)?;
            Some((entry.path(), owner))
        })
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    // Controllers that are mounted together share their directories.
    found.dedup_by(|a, b| a.0 == b.0);
    found
}

fn wanted(limits: &Limits, controller: &str) -> bool {
    match controller {
        "cpu" => limits.cpu_milli.is_some(),
        "memory" => limits.memory.is_some(),
        _ => limits.pids.is_some(),
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (_, dir) in &self.dirs {
            // A group empties a moment after its last process was buried.
            for _ in 0..50 {
                match fs::remove_dir(dir) {
                    Err(error) if error.raw_os_error() == Some(substrate_sys::errno::EBUSY) => {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    _ => break,
                }
            }
        }
    }
}

/// Limits of each process, where no group can be made: resource numbers and values, and what
/// they cannot limit.
pub fn per_process(limits: &Limits) -> (Vec<(u32, u64)>, Vec<&'static str>) {
    let mut set = Vec::new();
    let mut missing = Vec::new();
    if let Some(pids) = limits.pids {
        set.push((substrate_sys::limit::PROCESSES, pids.into()));
    }
    if let Some(memory) = limits.memory {
        // Not the address space: managed runtimes reserve far more of it than they use.
        set.push((substrate_sys::limit::DATA, memory));
    }
    if limits.cpu_milli.is_some() {
        missing.push("cpu");
    }
    (set, missing)
}

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

/// Limits by a control group where one can be made, else of each process.
pub(crate) fn limit(
    id: WorldId,
    spec: &WorldSpec,
    groups: &Groups,
    mounts: &[Mount],
    enforced: &mut Enforced,
) -> (Option<Group>, Vec<(u32, u64)>) {
    let limits = &spec.limits;
    if limits.cpu_milli.is_none() && limits.memory.is_none() && limits.pids.is_none() {
        return (None, Vec::new());
    }
    let hierarchy = match groups {
        Groups::Off => None,
        Groups::At(hierarchy) => Some(hierarchy.clone()),
        Groups::Discover => {
            let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
            discover(mounts, &own)
        }
    };
    if let Some(hierarchy) = hierarchy {
        match Group::make(&hierarchy, &group_name(id), limits) {
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
    let (set, missing) = per_process(limits);
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

/// The entrances of a world's group, for its first process.
pub(crate) fn entrances(group: Option<&Group>) -> Result<Vec<OwnedFd>, WorldError> {
    let entrances = group.map_or_else(|| Ok(Vec::new()), Group::entrances);
    entrances.map_err(|(path, source)| WorldError::Group {
        path,
        source: source.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            cpu_milli: Some(1500),
            memory: Some(64 << 20),
            pids: Some(7),
            ..Limits::default()
        }
    }

    /// A directory that stands in for a control group file system.
    fn tree(files: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for file in files {
            fs::write(dir.path().join(file), "").unwrap();
        }
        dir
    }

    fn table(at: &Path, kind: &str, options: &str) -> Vec<Mount> {
        mountinfo::parse(
            format!(
                "30 1 0:30 / {} rw - {kind} {kind} {options}\n",
                at.display()
            )
            .as_bytes(),
        )
    }

    #[test]
    fn a_delegated_group_is_used_and_the_nearest_one_wins() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("user/app/term");
        fs::create_dir_all(&own).unwrap();
        for (group, passed) in [
            ("user", "cpu memory pids"),
            ("user/app", "memory pids"),
            ("user/app/term", ""),
        ] {
            let group = dir.path().join(group);
            fs::write(group.join("cgroup.subtree_control"), passed).unwrap();
            fs::write(group.join("cgroup.procs"), "").unwrap();
        }
        let mounts = table(dir.path(), "cgroup2", "rw");
        assert_eq!(
            discover(&mounts, "0::/user/app/term\n"),
            Some(Hierarchy::V2(dir.path().join("user/app")))
        );
        assert_eq!(discover(&mounts, "0::/other\n"), None);
    }

    #[test]
    fn version_one_has_a_tree_for_each_controller() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        let mounts = table(dir.path(), "cgroup", "rw,pids");
        assert_eq!(
            discover(&mounts, "8:pids:/a/b\n4:memory:/x\n0::/\n"),
            Some(Hierarchy::V1(vec![("pids".into(), dir.path().join("a/b"))]))
        );
        assert_eq!(discover(&mounts, "0::/\n"), None);
    }

    #[test]
    fn values_are_written_in_the_words_of_each_version() {
        let dir = tree(&[]);
        let group = dir.path().join("world");
        fs::create_dir(&group).unwrap();
        for file in [
            "cpu.max",
            "memory.max",
            "pids.max",
            "cgroup.procs",
            "memory.events",
        ] {
            fs::write(group.join(file), "").unwrap();
        }
        // The kernel fills a new group with its files; here they are there first, so the
        // making of the directory is what is left out.
        let made = Group {
            v2: true,
            dirs: vec![(String::new(), group.clone())],
            missing: Vec::new(),
        };
        made.set("cpu", "cpu.max", "150000 100000").unwrap();
        made.set(
            "memory",
            "memory.max",
            &limits().memory.unwrap().to_string(),
        )
        .unwrap();
        assert_eq!(
            fs::read_to_string(group.join("cpu.max")).unwrap(),
            "150000 100000"
        );
        assert_eq!(made.entrances().unwrap().len(), 1);
        assert!(made.reached().is_empty());
        fs::write(group.join("memory.events"), "low 0\noom_kill 2\n").unwrap();
        assert_eq!(made.reached(), ["memory"]);
        assert!(made.set("pids", "pids.none", "7").is_err());
        assert_eq!(made.kind(), "cgroup2");
    }

    #[test]
    fn without_a_group_processes_are_limited_one_by_one() {
        let (set, missing) = per_process(&limits());
        assert_eq!(set.len(), 2);
        assert_eq!(missing, ["cpu"]);
        assert_eq!(per_process(&Limits::default()), (vec![], vec![]));
    }
}
