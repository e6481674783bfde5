//! From a layout to the ordered list of steps that makes a world. Each group of steps says why
//! it stands where it stands; `Recipe::steps` is the order.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use substrate_init::launch::{Need, Parameter, Slot, Step};
use substrate_sys::landlock::{self, Handled};
use substrate_sys::mount::{Change, Expected, NODEV, NOEXEC, NOSUID, RDONLY};
use substrate_sys::real_path::real_path;
use substrate_sys::seccomp::{self, Filter};
use substrate_trace::WorldId;

use crate::c_text::{c, text};
use crate::doing::{Doing, Label};
use crate::id_maps::MapsBy;
use crate::layout::{Layout, What};
use crate::mark::MARK;
use crate::rights::{ALL, READ, around};

const NODES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];
/// Parts of `/proc` through which uid 0 without capabilities could still change the host.
const PROC_READ_ONLY: [&str; 5] = ["bus", "fs", "irq", "sys", "sysrq-trigger"];
/// Parts of `/proc` that tell about the host and are of no use in a world.
const PROC_MASKED: [&str; 4] = ["kcore", "keys", "key-users", "timer_list"];
/// What is done when the filter is built, for messages.
pub(crate) const FILTER: &str = "build the system call filter";
const NOTHING: &str = "/dev/.substrate-nothing";

/// What is needed to run programs at all, whatever `fs.read` says.
const RUNTIME: [&str; 8] = [
    "/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr",
];

/// Where the writes to a held place go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldAs {
    /// Into the upper directory of an overlay.
    Overlay {
        /// Upper directory.
        upper: PathBuf,
        /// Work directory.
        work: PathBuf,
    },
    /// Into a copy.
    Copy(PathBuf),
}

/// Everything that the steps are made from.
pub struct Recipe<'a> {
    /// The world.
    pub id: WorldId,
    /// Its places.
    pub layout: &'a Layout,
    /// Files of the host that the first command has as streams.
    pub streams: &'a [PathBuf],
    /// Where writes to held places go.
    pub held: &'a BTreeMap<PathBuf, HeldAs>,
    /// Who writes the id maps.
    pub maps: MapsBy,
    /// Its network is its own.
    pub own_network: bool,
    /// Over which that network comes, when another process makes it.
    pub network: Option<OwnedFd>,
    /// Entrances of its control groups.
    pub groups: Vec<OwnedFd>,
    /// Limits of each process.
    pub process_limits: Vec<(u32, u64)>,
    /// Size of its private directories in bytes; `None` leaves it to the kernel.
    pub private_size: Option<u64>,
    /// A fresh `/sys` cannot be had.
    pub mask_sys: bool,
    /// A new root instead of the host's made read-only.
    pub heavy: bool,
    /// Landlock's version; 0 without it.
    pub landlock_abi: u32,
    /// Options of the filter.
    pub filter: seccomp::Options,
}

/// The steps, and what each is about.
#[derive(Debug, Default)]
pub struct Steps {
    /// For the launcher.
    pub steps: Vec<(Step, Need)>,
    /// One for each step.
    pub labels: Vec<Label>,
    /// How many slots they use.
    pub slots: usize,
}

impl Steps {
    fn add(&mut self, doing: Doing, path: Option<&Path>, step: Step) {
        self.steps.push((step, Need::Required));
        self.labels.push(Label {
            doing,
            path: path.map(Path::to_owned),
            overlay_of: None,
        });
    }

    fn add_optional(&mut self, doing: Doing, path: Option<&Path>, step: Step) {
        self.add(doing, path, step);
        if let Some((_, need)) = self.steps.last_mut() {
            *need = Need::Optional;
        }
    }

    fn slot(&mut self) -> Slot {
        self.slots += 1;
        self.slots - 1
    }

    /// Takes a copy of what is mounted at a path, changed as said, into a new slot.
    fn take(&mut self, doing: Doing, path: &Path, set: u64, clear: u64) -> Slot {
        let slot = self.slot();
        self.add(doing, Some(path), Step::CloneTree(c(path), slot));
        if set | clear != 0 {
            let change = Change {
                set,
                clear,
                private: false,
                recursive: true,
            };
            self.add(doing, Some(path), Step::ChangeTree(slot, change));
        }
        slot
    }

    fn attach(&mut self, doing: Doing, slot: Slot, path: &Path) {
        self.add(doing, Some(path), Step::Attach(slot, c(path)));
    }

    fn mount_new(
        &mut self,
        doing: Doing,
        path: &Path,
        kind: &str,
        parameters: &[(&str, Option<String>)],
        attributes: u64,
    ) {
        let slot = self.slot();
        let step = new_filesystem(kind, parameters, attributes, slot);
        self.add(doing, Some(path), step);
        self.attach(doing, slot, path);
    }

    fn make_dir(&mut self, doing: Doing, path: &Path, mode: u32) {
        self.add(doing, Some(path), Step::MakeDir(c(path), mode));
    }
}

/// What filling one place leaves for the next.
struct Filling {
    /// A directory that is covered by an empty one, which can cover others too.
    empty_dir: Option<PathBuf>,
    /// Files that cover others and are not needed by their own names any more.
    scratch: Vec<PathBuf>,
}

impl Recipe<'_> {
    /// The steps of the full level, in the only order that works.
    pub fn steps(mut self) -> io::Result<Steps> {
        let mut steps = Steps::default();
        // Capabilities are enough for this, and an owner who writes the id maps does it meanwhile.
        let early = (self.maps == MapsBy::Owner).then(|| take_devices(&mut steps));
        // Without an identity in the new user namespace no file can be made.
        self.become_somebody(&mut steps);
        let nodes = early.unwrap_or_else(|| take_devices(&mut steps));
        // Limits hold from before the first byte of work; the files lie on the host's tree.
        self.enter_groups(&mut steps);
        // Needs the host's /proc/sys, which is about to become read-only.
        self.close_user_namespaces(&mut steps);
        // What must stay writable, and what only the host's tree has, is taken while the tree
        // is as the host left it. An overlay is made now because its upper directory lies on a
        // mount that the next step makes read-only.
        let taken = self.take_from_host(&mut steps, nodes);
        // From here on nothing outside the world can be written, whatever comes later fails.
        self.make_read_only(&mut steps);
        // Own /proc first: the steps after it use /dev, and masks below /proc are part of it.
        self.mount_proc(&mut steps);
        self.mount_dev(&mut steps, &taken);
        // Parents before children, so that nothing is mounted over what was put below it.
        self.fill_places(&mut steps, &taken);
        // The locks last, and in this order: what comes before needs capabilities, Landlock and
        // the filter need no_new_privs, and the filter refuses what Landlock's making needs.
        self.lock(&mut steps)?;
        Ok(steps)
    }

    pub(crate) fn become_somebody(&self, steps: &mut Steps) {
        match self.maps {
            MapsBy::Owner => steps.add(Doing::AwaitMaps, None, Step::AwaitMaps),
            MapsBy::World(user, group) => {
                for (file, text) in [
                    ("setgroups", "deny".to_owned()),
                    ("uid_map", format!("{user} {user} 1")),
                    ("gid_map", format!("{group} {group} 1")),
                ] {
                    let path = Path::new("/proc/self").join(file);
                    let step = Step::Write(c(&path), text.into_bytes());
                    steps.add(Doing::WriteMap, Some(&path), step);
                }
            }
        }
        steps.add(
            Doing::SetHostName,
            None,
            Step::Hostname(c"substrate".to_owned()),
        );
    }

    fn enter_groups(&mut self, steps: &mut Steps) {
        for entrance in self.groups.drain(..) {
            let step = Step::WriteTo(entrance, b"0".to_vec());
            steps.add(Doing::EnterGroup, None, step);
        }
    }

    fn close_user_namespaces(&self, steps: &mut Steps) {
        if !self.filter.allow_userns {
            let path = Path::new("/proc/sys/user/max_user_namespaces");
            steps.add_optional(
                Doing::CloseUserNamespaces,
                Some(path),
                Step::Write(c(path), b"0".to_vec()),
            );
        }
    }

    pub(crate) fn enter_network(&mut self, steps: &mut Steps) {
        match self.network.take() {
            Some(comes) => steps.add(Doing::PrepareNetwork, None, Step::JoinNetwork(comes)),
            None if self.own_network => {
                steps.add(Doing::LoopbackUp, None, Step::LoopbackUp);
            }
            None => {}
        }
    }

    fn take_from_host(&self, steps: &mut Steps, nodes: Vec<(&'static str, Slot)>) -> Taken {
        let mut taken = Taken {
            nodes,
            ..Taken::default()
        };
        for (path, what) in &self.layout.places {
            let slot = match what {
                What::Host { writable } => {
                    let mut set = NOSUID;
                    if !path.starts_with("/dev") {
                        set |= NODEV;
                    }
                    if !writable {
                        set |= RDONLY;
                    }
                    steps.take(Doing::TakeFromHost, path, set, 0)
                }
                What::Held { .. } => match self.held.get(path) {
                    Some(HeldAs::Overlay { upper, work }) => overlay(steps, path, upper, work),
                    Some(HeldAs::Copy(copy)) => {
                        // Substrate's home may be reached through a link.
                        let copy = real_path(copy).unwrap_or_else(|_| copy.clone());
                        steps.take(Doing::TakeCopy, &copy, NOSUID | NODEV, 0)
                    }
                    None => continue,
                },
                _ => continue,
            };
            taken.places.insert(path.clone(), slot);
        }
        for path in self.streams {
            // What cannot be handed out is carried over byte by byte.
            let first = steps.steps.len();
            let slot = steps.take(Doing::TakeStream, path, RDONLY | NOSUID, 0);
            steps.add(Doing::HandOut, Some(path), Step::HandOut(slot));
            for (_, need) in &mut steps.steps[first..] {
                *need = Need::Optional;
            }
        }
        taken
    }

    fn make_read_only(&self, steps: &mut Steps) {
        let root = Path::new("/");
        let change = Change {
            set: RDONLY | NOSUID | NODEV,
            clear: 0,
            private: true,
            recursive: true,
        };
        if self.heavy {
            let cut_off = Change {
                set: 0,
                clear: 0,
                ..change
            };
            steps.add(Doing::CutOff, Some(root), Step::ChangeAt(c(root), cut_off));
            let slot = steps.slot();
            let doing = Doing::NewRoot;
            steps.add(doing, Some(root), Step::CloneTree(c(root), slot));
            steps.add(doing, Some(root), Step::ChangeTree(slot, change));
            steps.add(doing, Some(root), Step::Pivot(slot, c"/dev".to_owned()));
        } else {
            let step = Step::ChangeAt(c(root), change);
            steps.add(Doing::MakeTreeReadOnly, Some(root), step);
        }
    }

    fn mount_proc(&self, steps: &mut Steps) {
        let proc = Path::new("/proc");
        let attributes = NOSUID | NODEV | NOEXEC;
        steps.mount_new(Doing::Mount, proc, "proc", &[], attributes);
        for name in PROC_READ_ONLY {
            let path = proc.join(name);
            if path.exists() {
                let step = Step::Fix(c(&path), RDONLY);
                steps.add(Doing::MakeReadOnly, Some(&path), step);
            }
        }
    }

    fn mount_dev(&self, steps: &mut Steps, taken: &Taken) {
        let dev = Path::new("/dev");
        let source = format!("{MARK}{}", self.id);
        let mut parameters = vec![("source", Some(source)), ("mode", Some("0755".into()))];
        parameters.extend(self.size());
        steps.mount_new(Doing::Mount, dev, "tmpfs", &parameters, NOSUID | NOEXEC);
        for (node, slot) in &taken.nodes {
            let path = dev.join(node);
            steps.add(
                Doing::Make,
                Some(&path),
                Step::MakeFile(c(&path), 0o666, Vec::new()),
            );
            steps.attach(Doing::PutIn, *slot, &path);
        }
        let pts = dev.join("pts");
        steps.make_dir(Doing::Make, &pts, 0o755);
        let parameters = [
            ("newinstance", None),
            ("ptmxmode", Some("0666".to_owned())),
            ("mode", Some("0620".to_owned())),
        ];
        steps.mount_new(Doing::Mount, &pts, "devpts", &parameters, NOSUID | NOEXEC);
        for (name, to) in [
            ("ptmx", "pts/ptmx"),
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
        ] {
            let path = dev.join(name);
            let step = Step::MakeLink(c(Path::new(to)), c(&path));
            steps.add(Doing::Link, Some(&path), step);
        }
        steps.make_dir(Doing::Make, &dev.join("shm"), 0o1777);
    }

    fn mount_sys(&self, steps: &mut Steps) {
        let sys = Path::new("/sys");
        if self.mask_sys {
            let parameters = [("mode", Some("0555".to_owned()))];
            let attributes = RDONLY | NOSUID | NODEV | NOEXEC;
            steps.mount_new(Doing::Cover, sys, "tmpfs", &parameters, attributes);
        } else if self.own_network {
            let attributes = RDONLY | NOSUID | NODEV | NOEXEC;
            steps.mount_new(Doing::MountKernelView, sys, "sysfs", &[], attributes);
        }
    }

    fn size(&self) -> Option<(&'static str, Option<String>)> {
        self.private_size
            .map(|bytes| ("size", Some(bytes.to_string())))
    }

    fn fill_places(&mut self, steps: &mut Steps, taken: &Taken) {
        let masked: Vec<PathBuf> = PROC_MASKED
            .iter()
            .map(|name| Path::new("/proc").join(name))
            .filter(|path| path.exists())
            .collect();
        let nothing = Path::new(NOTHING);
        steps.add(
            Doing::Make,
            Some(nothing),
            Step::MakeFile(c(nothing), 0o444, Vec::new()),
        );
        for path in &masked {
            cover_with_file(steps, nothing, path, Expected::Anything);
        }
        let mut filling = Filling {
            empty_dir: None,
            scratch: vec![nothing.to_owned()],
        };
        let layout = self.layout;
        let (below_sys, others): (Vec<_>, Vec<_>) = layout
            .places
            .iter()
            .partition(|(path, _)| path.starts_with("/sys"));
        for (path, what) in others {
            self.fill_place(steps, taken, &mut filling, path, what);
        }
        // As late as can be, because it is made meanwhile: /sys shows the network of who mounts it.
        self.enter_network(steps);
        self.mount_sys(steps);
        // An empty cover has nothing below it.
        for (path, what) in below_sys.into_iter().filter(|_| !self.mask_sys) {
            self.fill_place(steps, taken, &mut filling, path, what);
        }
        for file in filling.scratch {
            steps.add(Doing::Remove, Some(&file), Step::Remove(c(&file)));
        }
        let root = Path::new("/");
        steps.add(Doing::GoTo, Some(root), Step::ChangeDir(c(root)));
    }

    fn fill_place(
        &self,
        steps: &mut Steps,
        taken: &Taken,
        filling: &mut Filling,
        path: &Path,
        what: &What,
    ) {
        let own_parent = path
            .parent()
            .and_then(|parent| self.layout.nearest(parent))
            .filter(|(_, what)| matches!(what, What::Private | What::Devices));
        if let Some((own, _)) = own_parent {
            self.make_place(steps, own, path, what);
        }
        match what {
            What::Devices | What::Proc | What::Sys => {}
            What::Private => self.mount_private(steps, path),
            What::Host { .. } | What::Held { .. } => {
                if let Some(slot) = taken.places.get(path) {
                    steps.attach(Doing::PutIn, *slot, path);
                }
            }
            What::Protected => steps.add(Doing::Protect, Some(path), Step::Fix(c(path), RDONLY)),
            What::Anchored | What::Fixed => {
                steps.add(Doing::Fix, Some(path), Step::Fix(c(path), 0));
            }
            What::NoDirectory => self.hide_directory(steps, filling, path),
            What::NoFile => {
                let expected = self.layout.expected(path);
                cover_with_file(steps, Path::new(NOTHING), path, expected);
            }
            What::File(_) if own_parent.is_some() => {}
            What::File(content) => {
                let file = PathBuf::from(format!("/dev/.substrate-{}", filling.scratch.len()));
                let step = Step::MakeFile(c(&file), 0o444, content.clone());
                steps.add(Doing::Make, Some(&file), step);
                cover_with_file(steps, &file, path, Expected::Anything);
                filling.scratch.push(file);
            }
        }
    }

    /// Covers a directory with an empty one. One serves for all, but for those that may not be there.
    fn hide_directory(&self, steps: &mut Steps, filling: &mut Filling, path: &Path) {
        let expected = self.layout.expected(path);
        let slot = match &filling.empty_dir {
            Some(first) => steps.take(Doing::Hide, first, 0, 0),
            None => {
                let parameters = [
                    ("mode", Some("0000".to_owned())),
                    ("size", Some("4k".to_owned())),
                    ("nr_inodes", Some("2".to_owned())),
                ];
                let attributes = RDONLY | NOSUID | NODEV | NOEXEC;
                let slot = steps.slot();
                let step = new_filesystem("tmpfs", &parameters, attributes, slot);
                steps.add(Doing::Hide, Some(path), step);
                slot
            }
        };
        let step = Step::Cover(slot, c(path), expected);
        steps.add(Doing::Hide, Some(path), step);
        if expected != Expected::Anything && filling.empty_dir.is_none() {
            filling.empty_dir = Some(path.to_owned());
        }
    }

    /// A place in a directory of the world's own has nothing to be mounted on yet.
    fn make_place(&self, steps: &mut Steps, own: &Path, path: &Path, what: &What) {
        let mut between: Vec<&Path> = path
            .ancestors()
            .skip(1)
            .take_while(|dir| *dir != own)
            .collect();
        between.reverse();
        for dir in between {
            steps.make_dir(Doing::Make, dir, 0o755);
        }
        let is_dir = match what {
            What::File(content) => {
                let step = Step::MakeFile(c(path), 0o444, content.clone());
                return steps.add(Doing::Make, Some(path), step);
            }
            What::Host { .. } | What::Held { .. } => {
                fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir())
            }
            What::Private => true,
            _ => return,
        };
        if is_dir {
            steps.make_dir(Doing::Make, path, 0o755);
        } else {
            let step = Step::MakeFile(c(path), 0o644, Vec::new());
            steps.add(Doing::Make, Some(path), step);
        }
    }

    fn mount_private(&self, steps: &mut Steps, path: &Path) {
        let run = path == Path::new("/run");
        let mode = if run { "0755" } else { "1777" };
        let mut parameters = vec![("mode", Some(mode.to_owned()))];
        parameters.extend(self.size());
        steps.mount_new(Doing::Mount, path, "tmpfs", &parameters, NOSUID | NODEV);
        if run {
            let user = substrate_sys::access::identity().0;
            steps.make_dir(Doing::Make, &path.join("lock"), 0o1777);
            steps.make_dir(Doing::Make, &path.join("user"), 0o755);
            steps.make_dir(
                Doing::Make,
                &path.join("user").join(user.to_string()),
                0o700,
            );
        }
    }

    fn lock(&self, steps: &mut Steps) -> io::Result<()> {
        for (resource, value) in &self.process_limits {
            let step = Step::Limit(*resource, *value);
            steps.add(Doing::LimitProcesses, None, step);
        }
        steps.add(Doing::HideFirstProcess, None, Step::Unreadable);
        if self.filter.hold_sockets {
            steps.add(Doing::AskSockets, None, Step::AskSockets);
        }
        steps.add(Doing::NoNewPrivileges, None, Step::NoNewPrivs);
        if self.landlock_abi > 0 {
            let step = Step::Landlock(self.handled(), self.rights());
            steps.add(Doing::RestrictByLandlock, None, step);
        }
        steps.add(Doing::DropCapabilities, None, Step::DropCaps);
        let filter = Filter::new(self.filter)?;
        steps.add(Doing::InstallFilter, None, Step::Seccomp(filter));
        Ok(())
    }

    fn handled(&self) -> Handled {
        Handled {
            // The network is held by its namespace and the gate, or not meant to be held.
            net: 0,
            ..Handled::all(self.landlock_abi)
        }
    }

    /// Landlock's view of the same places: the second lock, should a mount be walked around.
    fn rights(&self) -> Vec<(CString, u64)> {
        let mut rights: Vec<(CString, u64)> = Vec::new();
        // A hidden name that does not exist has nothing to be covered; where its directory is
        // read-only, Landlock can leave a gap for it.
        let gaps = self.layout.gaps();
        let layout = self.layout;
        for path in &layout.read {
            around(path, &gaps, READ, &mut rights);
        }
        if !layout.read.iter().any(|path| path == Path::new("/")) {
            let runtime = RUNTIME.iter().flat_map(real_path);
            rights.extend(runtime.map(|path| (c(&path), READ)));
            rights.push((c"/sys".to_owned(), READ));
        }
        for (path, what) in &layout.places {
            let access = match what {
                // What is written there is held back, and what was there is not the world's to read.
                What::Held { apart: true } => {
                    let readable = layout.readable(path);
                    rights.extend(readable.iter().map(|path| (c(path), ALL)));
                    continue;
                }
                What::Private | What::Devices | What::Held { apart: false } => ALL,
                What::Host { writable: true } => ALL,
                What::Host { writable: false } | What::File(_) => READ,
                What::Proc => READ | landlock::WRITE_FILE | landlock::TRUNCATE,
                _ => continue,
            };
            rights.push((c(path), access));
        }
        rights
    }
}

/// What was taken from the host before its tree became read-only.
#[derive(Default)]
struct Taken {
    nodes: Vec<(&'static str, Slot)>,
    places: BTreeMap<PathBuf, Slot>,
}

fn take_devices(steps: &mut Steps) -> Vec<(&'static str, Slot)> {
    let mut nodes = Vec::new();
    for node in NODES {
        let path = Path::new("/dev").join(node);
        if path.exists() {
            // Devices can be written on a read-only mount; their modes and times are the host's.
            let slot = steps.take(Doing::TakeDevice, &path, RDONLY, 0);
            nodes.push((node, slot));
        }
    }
    nodes
}

fn overlay(steps: &mut Steps, target: &Path, upper: &Path, work: &Path) -> Slot {
    let first = steps.steps.len();
    let mut parameters = vec![(text("source"), Parameter::Text(text("substrate")))];
    for (key, dir) in [("lowerdir", target), ("upperdir", upper), ("workdir", work)] {
        let slot = steps.slot();
        let step = match dir == target {
            true => Step::OpenPlace(c(dir), slot),
            false => Step::Open(c(dir), slot),
        };
        steps.add(Doing::OpenLayer, Some(dir), step);
        parameters.push((text(key), Parameter::Slot(slot)));
    }
    for flag in ["userxattr", "volatile"] {
        parameters.push((text(flag), Parameter::Flag));
    }
    let slot = steps.slot();
    let step = Step::NewFilesystem {
        kind: text("overlay"),
        parameters,
        attributes: NOSUID | NODEV,
        slot,
    };
    steps.add(Doing::MakeOverlay, Some(target), step);
    steps.add(
        Doing::WriteToOverlay,
        Some(target),
        Step::CheckWritable(slot),
    );
    for label in &mut steps.labels[first..] {
        label.overlay_of = Some(target.to_owned());
    }
    slot
}

fn cover_with_file(steps: &mut Steps, file: &Path, path: &Path, expected: Expected) {
    let slot = steps.take(Doing::Hide, file, RDONLY, 0);
    let step = Step::Cover(slot, c(path), expected);
    steps.add(Doing::Hide, Some(path), step);
}

fn new_filesystem(
    kind: &str,
    parameters: &[(&str, Option<String>)],
    attributes: u64,
    slot: Slot,
) -> Step {
    Step::NewFilesystem {
        kind: text(kind),
        parameters: parameters
            .iter()
            .map(|(key, value)| {
                let value = match value {
                    Some(value) => Parameter::Text(text(value)),
                    None => Parameter::Flag,
                };
                (text(key), value)
            })
            .collect(),
        attributes,
        slot,
    }
}
