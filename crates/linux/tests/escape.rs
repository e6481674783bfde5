//! Attempts to leave a world, as this user and, when this is root, again as an ordinary one.
//! Every attempt must be refused, and what must work beside it has to work.
//!
//! The attempts themselves are `escape.c`; this program is the harness, and, started with
//! `world`, the owner of one world.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use substrate_world::backend::ExecJob;
use substrate_world::backend::ExecStreams;

use substrate_linux::Linux;
use substrate_linux::limits::Groups;
use substrate_linux::limits::Hierarchy;
use substrate_linux::options::Options;
use substrate_policy::terms::{Mode, PathPattern, WorldSpec};
use substrate_starts::{ExecJudge, ExecVerdict, ProgramStart};
use substrate_sys::access;
use substrate_trace::Level;
use substrate_world::backend::{ExecPlace, ExecRequest, WorldBackend};

const NOBODY: u32 = 65534;

/// The world of an enforcing session: the project is real, and every program start is judged.
const SESSION: [&str; 2] = ["session=1", "guard=1"];

/// Permits every start, so that what holds is the world and not a rule.
struct Lenient;

impl ExecJudge for Lenient {
    fn judge(&self, _: &ProgramStart<'_>) -> ExecVerdict {
        ExecVerdict::Allow
    }

    fn ask(&self, _: &ProgramStart<'_>) -> ExecVerdict {
        ExecVerdict::Allow
    }
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "world") {
        return own_a_world(&arguments[1..]);
    }
    let filter = arguments
        .iter()
        .find(|word| !word.as_bytes().starts_with(b"-"))
        .map(|word| word.to_string_lossy().into_owned());
    if arguments.iter().any(|word| word == "--list") {
        println!("escape: test");
        return ExitCode::SUCCESS;
    }
    if let Err(why) = substrate_world_works() {
        skip("all of it", &why);
        return ExitCode::SUCCESS;
    }
    let user = access::identity().0;
    let mut suites = vec![Suite::new(user, filter.clone())];
    if user == 0 {
        suites.push(Suite::new(NOBODY, filter));
    } else {
        skip("the suite as root", &format!("this is uid {user}"));
    }
    let mut failed = 0;
    for suite in &mut suites {
        suite.run();
        println!(
            "escape: {} attempts as uid {}, {} failed",
            suite.count,
            suite.user,
            suite.failed.len()
        );
        for name in &suite.failed {
            println!("escape: FAILED as uid {}: {name}", suite.user);
        }
        failed += suite.failed.len();
    }
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Whether this machine has full worlds; attempts to leave none say nothing.
fn substrate_world_works() -> Result<(), String> {
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let report = substrate_linux::probe::probe(scratch.path());
    match report.level {
        Level::Full => Ok(()),
        level => Err(format!("this machine gives worlds of level {level}")),
    }
}

/// Says loudly what was not tried, and counts it.
fn skip(what: &str, reason: &str) {
    substrate_rig::skip(&format!("escape, {what}"), reason);
}

/// Owns one world: `world KEY=VALUE… -- PROGRAM ARGUMENT…`.
fn own_a_world(arguments: &[OsString]) -> ExitCode {
    let split = arguments.iter().position(|word| word == "--").unwrap();
    let (settings, command) = (&arguments[..split], &arguments[split + 1..]);
    let mut spec = WorldSpec {
        policy_id: "escape".into(),
        read: vec!["/".into()],
        ..WorldSpec::default()
    };
    spec.net.isolate = true;
    let mut options = Options::default();
    let (mut session, mut late, mut guard) = (false, false, false);
    let mut cwd = PathBuf::from("/");
    for setting in settings {
        let at = setting.as_bytes().iter().position(|b| *b == b'=').unwrap();
        let key = setting.as_bytes()[..at].to_vec();
        let value = OsString::from_vec(setting.as_bytes()[at + 1..].to_vec());
        let path = PathBuf::from(&value);
        let number = || value.to_str().and_then(|text| text.parse::<u64>().ok());
        match key.as_slice() {
            b"project" => {
                spec.project = Some(path.clone());
                cwd = path.clone();
                spec.write.push(path);
            }
            b"home" => spec.home = path,
            b"substrate" => spec.substrate_home = path,
            b"write" => spec.write.push(path),
            b"hide" => spec.hide.push(pattern(&path)),
            b"protect" => spec.protect.push(pattern(&path)),
            b"share" => spec.share.push(path),
            b"socket" => spec.sockets.push(path),
            b"read" => spec.read = vec![path],
            b"net" => spec.net.isolate = value != "host",
            b"allow" => {
                spec.allow_ptrace |= value == "ptrace";
                spec.allow_userns |= value == "userns";
            }
            b"pids" => spec.limits.pids = number().map(|n| n as u32),
            b"memory" => spec.limits.memory = number(),
            b"groups" if value == "off" => options.groups = Groups::Off,
            b"group" => {
                let (name, dir) = value.to_str().unwrap().split_once(':').unwrap();
                let tree = (name.to_owned(), PathBuf::from(dir));
                options.groups = Groups::At(Hierarchy::V1(vec![tree]));
            }
            b"enforce" => spec.mode = Mode::Enforce,
            b"session" => session = true,
            // The command is not known when the world is made.
            b"late" => (session, late) = (true, true),
            b"guard" => guard = true,
            b"heavy" => options.heavy = true,
            b"copy" => options.no_overlay = true,
            b"level" => options.ceiling = Level::from_word(value.to_str().unwrap()).unwrap(),
            other => panic!("setting {}", String::from_utf8_lossy(other)),
        }
    }
    let mut backend = Linux::new(options);
    if guard {
        backend = backend.with_guard(Arc::new(Lenient));
    }
    let request = ExecRequest {
        program: command[0].clone(),
        argv: command.to_vec(),
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd,
        ..ExecRequest::default()
    };
    let streams = ExecStreams::default();
    let job = ExecJob {
        request: &request,
        streams: &streams,
    };
    let result = if session {
        let first = (!late).then_some(job);
        let world = backend
            .ensure_session(&spec, first)
            .unwrap_or_else(|e| panic!("{e}"));
        backend.exec(ExecPlace::Session(world), job)
    } else {
        backend.exec(ExecPlace::fresh(&spec), job)
    };
    match result {
        Ok(result) => {
            eprintln!("{:?}", result.enforced);
            ExitCode::from(result.status.code() as u8)
        }
        Err(error) => {
            eprintln!("no world: {error}");
            ExitCode::from(125)
        }
    }
}

fn pattern(path: &Path) -> PathPattern {
    PathPattern {
        glob: path.as_os_str().as_bytes().to_vec(),
        base: path.to_owned(),
    }
}

/// What an attempt must come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Must {
    BeRefused,
    Work,
}
use Must::{BeRefused, Work};

struct Suite {
    user: u32,
    filter: Option<String>,
    count: usize,
    failed: Vec<String>,
}

/// A throw-away host: a project, a home with secrets, and things outside.
struct Tree {
    dir: tempfile::TempDir,
    root: PathBuf,
    user: u32,
}

impl Tree {
    fn new(user: u32) -> Tree {
        // Not below /tmp, so that what is outside the project is really there to be seen.
        let dir = tempfile::Builder::new()
            .prefix("substrate escape ")
            .tempdir_in("/var/tmp")
            .unwrap();
        let root = dir.path().canonicalize().unwrap();
        let tree = Tree { dir, root, user };
        for path in [
            "home/project/.git/hooks",
            "home/.ssh",
            "home/.substrate",
            "outside",
        ] {
            fs::create_dir_all(tree.root.join(path)).unwrap();
        }
        for (path, text) in [
            ("home/.ssh/id", "secret key"),
            ("home/.netrc", "secret password"),
            ("home/visible", "seen"),
            ("home/.substrate/key", "secret of substrate"),
            ("home/project/.git/config", "[core]"),
            ("home/project/.env", "secret token"),
            ("home/project/file", "project"),
            ("outside/file", "outside"),
        ] {
            fs::write(tree.root.join(path), text).unwrap();
        }
        let out = Command::new("gcc")
            .args(["-O1", "-o"])
            .arg(tree.root.join("home/project/escape"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/escape.c"))
            .output()
            .expect("gcc is needed to build the attempts");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        fs::copy(std::env::current_exe().unwrap(), tree.root.join("owner")).unwrap();
        tree.give_away(&tree.root);
        tree
    }

    fn give_away(&self, path: &Path) {
        fs::set_permissions(&self.root, fs::Permissions::from_mode(0o755)).unwrap();
        if self.user == access::identity().0 {
            return;
        }
        chown(path, Some(self.user), Some(self.user)).unwrap();
        if path.is_dir() {
            for entry in fs::read_dir(path).unwrap() {
                self.give_away(&entry.unwrap().path());
            }
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// The owner of a world on this tree, to be run as the suite's user.
    fn owner(&self, settings: &[String], command: &[&OsStr]) -> Command {
        let mut owner = Command::new(self.at("owner"));
        owner.args(self.arguments(settings, command));
        owner.current_dir("/").stdin(Stdio::null());
        if self.user != access::identity().0 {
            owner.uid(self.user).gid(self.user);
        }
        owner
    }

    fn arguments(&self, settings: &[String], command: &[&OsStr]) -> Vec<OsString> {
        let mut all: Vec<OsString> = vec!["world".into()];
        for (key, path) in [
            ("project", "home/project"),
            ("home", "home"),
            ("substrate", "home/.substrate"),
            ("hide", "home/.ssh/**"),
            ("hide", "home/.netrc"),
            ("hide", "home/project/**/.env"),
            ("protect", "home/project/**/.git/hooks/**"),
            ("protect", "home/project/**/.git/config"),
        ] {
            let mut word = OsString::from(format!("{key}="));
            word.push(self.at(path));
            all.push(word);
        }
        all.extend(settings.iter().map(OsString::from));
        all.push("--".into());
        all.extend(command.iter().map(|word| (*word).to_owned()));
        all
    }
}

impl Suite {
    fn new(user: u32, filter: Option<String>) -> Suite {
        Suite {
            user,
            filter,
            count: 0,
            failed: Vec::new(),
        }
    }

    fn judge(&mut self, name: &str, good: bool, said: &str) {
        self.count += 1;
        if !good {
            println!("--- {name} (uid {}):\n{said}", self.user);
            self.failed.push(name.to_owned());
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.filter
            .as_ref()
            .is_none_or(|filter| name.contains(filter.as_str()))
    }

    /// Runs one attempt in a world of its own.
    fn attempt(&mut self, tree: &Tree, must: Must, settings: &[&str], words: &[&str]) {
        let name = format!("{} [{}]", words.join(" "), settings.join(" "));
        if !self.wants(&name) {
            return;
        }
        let settings: Vec<String> = settings.iter().map(|s| (*s).to_owned()).collect();
        let program = tree.at("home/project/escape");
        let mut command = vec![program.as_os_str()];
        command.extend(words.iter().map(OsStr::new));
        let out = tree.owner(&settings, &command).output().unwrap();
        let said = format!(
            "{}{}({})",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr),
            out.status
        );
        let expected = if must == BeRefused { 0 } else { 1 };
        self.judge(&name, out.status.code() == Some(expected), &said);
    }

    fn run(&mut self) {
        let tree = Tree::new(self.user);
        let heavy_session = ["session=1", "guard=1", "heavy=1"];
        for kind in [&[][..], &SESSION, &heavy_session, &["heavy=1"], &["copy=1"]] {
            self.files(&tree, kind);
        }
        for kind in [&[][..], &SESSION] {
            self.kernel(&tree, kind);
            self.sockets(&tree, kind);
            self.odd_names(&tree, kind);
            self.own_sockets(&tree, kind);
            self.own_directories(&tree, kind);
            self.switches(&tree, kind);
            self.limits(&tree, kind);
            self.other_mounts(&tree, kind);
            self.descriptors(&tree, kind);
            self.terminal(&tree, kind);
        }
        for kind in [&SESSION[..], &heavy_session] {
            self.protected(&tree, kind);
        }
        self.shut(&tree);
        self.setuid(&tree);
        self.modes(&tree);
        self.streams(&tree);
        self.life(&tree);
        self.weak(&tree);
        self.weak_session(&tree);
        self.untouched(&tree);
        drop(tree.dir);
    }

    /// A directory that its owner has shut while a world is made can be opened again inside.
    fn shut(&mut self, tree: &Tree) {
        if self.user == 0 {
            return;
        }
        let shut = tree.at("home/project/shut");
        fs::create_dir(&shut).unwrap();
        for name in [".env", "key"] {
            fs::write(shut.join(name), "secret").unwrap();
        }
        tree.give_away(&shut);
        let mode = |bits| fs::set_permissions(&shut, fs::Permissions::from_mode(bits)).unwrap();
        mode(0o000);
        for named in [None, Some(format!("hide={}/key", shut.display()))] {
            let mut settings = vec!["session=1".to_owned(), "enforce=1".to_owned()];
            settings.extend(named);
            let out = tree.owner(&settings, &[OsStr::new("/bin/true")]).output();
            let said = String::from_utf8_lossy(&out.unwrap().stderr).into_owned();
            let good = said.contains("cannot be searched");
            self.judge("a hidden path in a directory that is shut", good, &said);
        }
        mode(0o700);
        fs::remove_dir_all(&shut).unwrap();
    }

    fn files(&mut self, tree: &Tree, kind: &[&str]) {
        let path = |p: &str| tree.at(p).display().to_string();
        // A whole home is not copied where no overlay serves; it is read-only then.
        let home = if kind.contains(&"copy=1") {
            BeRefused
        } else {
            Work
        };
        for (must, words) in [
            (Work, vec!["write_file".into(), path("home/project/new")]),
            (Work, vec!["write_file".into(), "/tmp/new".into()]),
            (Work, vec!["write_file".into(), "/dev/shm/new".into()]),
            (home, vec!["write_file".into(), path("home/new")]),
            (Work, vec!["read_file".into(), path("outside/file")]),
            (Work, vec!["read_file".into(), path("home/visible")]),
            (Work, vec!["open_write".into(), "/dev/null".into()]),
            (BeRefused, vec!["write_file".into(), path("outside/file")]),
            (BeRefused, vec!["write_file".into(), path("outside/new")]),
            (BeRefused, vec!["write_file".into(), "/usr/new".into()]),
            (BeRefused, vec!["write_file".into(), "/etc/new".into()]),
            (
                BeRefused,
                vec![
                    "write_file".into(),
                    format!("/proc/self/root{}", path("outside/new")),
                ],
            ),
            (BeRefused, vec!["read_file".into(), path("home/.ssh/id")]),
            (BeRefused, vec!["read_file".into(), path("home/.netrc")]),
            (
                BeRefused,
                vec!["read_file".into(), path("home/project/.env")],
            ),
            (
                BeRefused,
                vec!["read_file".into(), path("home/.substrate/key")],
            ),
            (
                BeRefused,
                vec!["read_by_root_links".into(), path("home/.ssh/id")],
            ),
            (
                BeRefused,
                vec!["read_by_root_links".into(), path("home/.netrc")],
            ),
            (
                BeRefused,
                vec![
                    "hard_link".into(),
                    path("home/.ssh/id"),
                    path("home/project/link"),
                ],
            ),
            (
                BeRefused,
                vec!["hard_link".into(), path("home/.netrc"), path("home/link")],
            ),
            (
                BeRefused,
                vec!["bind_mount".into(), path("home"), path("home/project/mnt")],
            ),
            (BeRefused, vec!["unmount".into(), path("home/.ssh")]),
            (
                BeRefused,
                vec![
                    "write_file".into(),
                    path("home/project/.git/hooks/pre-commit"),
                ],
            ),
            (
                BeRefused,
                vec!["write_file".into(), path("home/project/.git/config")],
            ),
        ] {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            self.attempt(tree, must, kind, &words);
        }
        self.attempt(tree, BeRefused, kind, &["remount"]);
        self.attempt(tree, BeRefused, kind, &["by_handle"]);
        let only = format!("read={}", path("home/project"));
        let kind: Vec<&str> = kind.iter().copied().chain([only.as_str()]).collect();
        self.attempt(
            tree,
            BeRefused,
            &kind,
            &["read_file", &path("outside/file")],
        );
        self.attempt(
            tree,
            Work,
            &kind,
            &["read_file", &path("home/project/file")],
        );
    }

    fn kernel(&mut self, tree: &Tree, kind: &[&str]) {
        let me = std::process::id().to_string();
        for words in [
            vec!["keys"],
            vec!["kernel_doors"],
            vec!["privileges"],
            vec!["user_namespace"],
            vec!["trace_child"],
            vec!["look_into_first"],
            vec!["kill_first"],
            vec!["odd_sockets"],
            vec!["signal_pid", &me],
            vec!["ptrace_pid", &me],
            #[cfg(target_arch = "x86_64")]
            vec!["int_80"],
            #[cfg(target_arch = "x86_64")]
            vec!["x32"],
            vec!["open_write", "/proc/sys/kernel/core_pattern"],
            vec!["open_write", "/proc/sys/kernel/hostname"],
            vec!["open_write", "/proc/sys/vm/overcommit_memory"],
            vec!["open_write", "/proc/sysrq-trigger"],
            vec!["open_write", "/sys/kernel/mm/transparent_hugepage/enabled"],
            vec!["open_write", "/sys/fs/cgroup/cgroup.procs"],
            vec!["open_write", "/sys/fs/cgroup/pids/cgroup.procs"],
            vec!["open_write", "/dev/kmsg"],
            vec!["open_write", "/dev/mem"],
            vec!["read_file", "/proc/kcore"],
            vec!["read_file", "/proc/keys"],
        ] {
            self.attempt(tree, BeRefused, kind, &words);
        }
    }

    /// Sockets of the host, by path, by abstract name and over TCP. Each is connected to from
    /// outside first, so that a dead one cannot pass for a refusal.
    fn sockets(&mut self, tree: &Tree, kind: &[&str]) {
        let in_tmp = tempfile::Builder::new().prefix("escape").tempdir().unwrap();
        fs::set_permissions(in_tmp.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let paths = [
            tree.at("outside/s"),
            tree.at("home/project/s"),
            in_tmp.path().join("s"),
        ];
        let listeners: Vec<UnixListener> = paths
            .iter()
            .map(|path| {
                let _ = fs::remove_file(path);
                let listener = UnixListener::bind(path).unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
                tree.give_away(path);
                UnixStream::connect(path).unwrap();
                listener
            })
            .collect();
        for path in &paths {
            let path = path.display().to_string();
            self.attempt(tree, BeRefused, kind, &["connect_path", &path]);
            let allowed = format!("socket={path}");
            let kind: Vec<&str> = kind.iter().copied().chain([allowed.as_str()]).collect();
            self.attempt(tree, Work, &kind, &["connect_path", &path]);
        }
        drop(listeners);
        for path in &paths {
            let _ = fs::remove_file(path);
        }
        let name = format!("substrate-escape-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        UnixStream::connect_addr(&address).unwrap();
        self.attempt(tree, BeRefused, kind, &["connect_abstract", &name]);
        let host: Vec<&str> = kind.iter().copied().chain(["net=host"]).collect();
        self.attempt(tree, BeRefused, &host, &["connect_abstract", &name]);
        drop(listener);
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port().to_string();
        self.attempt(tree, BeRefused, kind, &["connect_tcp", &port]);
        self.attempt(tree, Work, &host, &["connect_tcp", &port]);
    }

    /// Sockets of the host that the table of the kernel names otherwise, or not yet, and those of other
    /// types, where the world sees the host's own files.
    fn odd_names(&mut self, tree: &Tree, kind: &[&str]) {
        let project = tree.at("home/project");
        std::env::set_current_dir(&project).unwrap();
        let listen = |name: &str| {
            let _ = fs::remove_file(name);
            let listener = UnixListener::bind(name).unwrap();
            listener.set_nonblocking(true).unwrap();
            fs::set_permissions(name, fs::Permissions::from_mode(0o777)).unwrap();
            listener
        };
        let names = ["relative", "moved", "hardlink", "new\nline"];
        let listeners = ["relative", "before", "temporary", "new\nline"].map(listen);
        fs::rename("before", "moved").unwrap();
        fs::hard_link("temporary", "hardlink").unwrap();
        fs::remove_file("temporary").unwrap();
        std::env::set_current_dir("/").unwrap();
        let ways = [
            "path",
            "nonblocking",
            "relative",
            "by_link",
            "by_root",
            "flipping",
        ];
        for host in [false, true] {
            let network = ["net=host"].into_iter().filter(|_| host);
            let kind: Vec<&str> = kind.iter().copied().chain(network).collect();
            for name in names {
                let path = project.join(name).display().to_string();
                for way in ways {
                    let attempt = format!("connect_{way}");
                    self.attempt(tree, BeRefused, &kind, &[&attempt, &path]);
                }
            }
        }
        for (name, listener) in names.iter().zip(&listeners) {
            let reached = listener.accept().is_ok();
            self.judge(&format!("{name:?} was reached"), !reached, "somebody came");
        }
        for (number, way) in [
            (2, "connect_datagrams"),
            (2, "send_datagram"),
            (5, "connect_seqpacket"),
        ] {
            let path = project.join("served").display().to_string();
            let mut server = Command::new(tree.at("home/project/escape"))
                .args(["connect_listen", &path, &number.to_string()])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            server
                .stdout
                .as_mut()
                .unwrap()
                .read_exact(&mut [0; 6])
                .unwrap();
            self.attempt(tree, BeRefused, kind, &[way, &path]);
            server.kill().unwrap();
            server.wait().unwrap();
        }
        let late = project.join("late");
        let _ = fs::remove_file(&late);
        let (bound, at) = (std::sync::mpsc::channel(), late.clone());
        let binder = std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(300));
            bound.0.send(UnixListener::bind(at).unwrap()).unwrap();
        });
        let path = late.display().to_string();
        if kind.contains(&"session=1") {
            self.attempt(tree, BeRefused, kind, &["connect_later", &path]);
        }
        binder.join().unwrap();
        for name in names.iter().chain(&["served", "late"]) {
            let _ = fs::remove_file(project.join(name));
        }
    }

    /// What a world makes itself it can connect to, wherever that lies.
    fn own_sockets(&mut self, tree: &Tree, kind: &[&str]) {
        for dir in [
            tree.at("home/project"),
            tree.at("home"),
            "/tmp".into(),
            "/dev/shm".into(),
        ] {
            let dir = dir.display().to_string();
            self.attempt(tree, Work, kind, &["own_sockets", &dir]);
            let host: Vec<&str> = kind.iter().copied().chain(["net=host"]).collect();
            self.attempt(tree, Work, &host, &["own_sockets", &dir]);
        }
    }

    /// The host's sockets of docker, D-Bus and ssh-agent live below `/run` and `/tmp`, of which
    /// nothing is there, whatever listens when.
    fn own_directories(&mut self, tree: &Tree, kind: &[&str]) {
        let settings: Vec<String> = kind.iter().map(|s| (*s).to_owned()).collect();
        let script = "ls -A /run /run/user/* /tmp /dev/shm; cat /proc/net/unix | wc -l";
        let command = [OsStr::new("sh"), OsStr::new("-c"), OsStr::new(script)];
        let out = tree.owner(&settings, &command).output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        let user = self.user;
        let expected = format!("/dev/shm:\n\n/run:\nlock\nuser\n\n/run/user/{user}:\n\n/tmp:\n1\n");
        self.judge("nothing of /run and /tmp", said == expected, &said);
    }

    /// In a session the project is real, so a protected path must not be movable either.
    fn protected(&mut self, tree: &Tree, session: &[&str]) {
        let path = |p: &str| tree.at(p).display().to_string();
        let (git, elsewhere) = (path("home/project/.git"), path("home/project/.git2"));
        self.attempt(tree, BeRefused, session, &["rename_away", &git, &elsewhere]);
        let hooks = path("home/project/.git/hooks");
        self.attempt(
            tree,
            BeRefused,
            session,
            &["rename_away", &hooks, &elsewhere],
        );
        let (file, other) = (path("home/project/file"), path("home/project/other"));
        self.attempt(tree, Work, session, &["rename_away", &file, &other]);
        self.attempt(tree, Work, session, &["rename_away", &other, &file]);
    }

    fn switches(&mut self, tree: &Tree, kind: &[&str]) {
        let ptrace = with(kind, &["allow=ptrace"]);
        self.attempt(tree, Work, &ptrace, &["trace_child"]);
        let userns = with(kind, &["allow=userns"]);
        self.attempt(tree, Work, &userns, &["user_namespace_works"]);
        self.attempt(tree, BeRefused, &userns, &["remount"]);
    }

    fn limits(&mut self, tree: &Tree, kind: &[&str]) {
        let memory = format!("memory={}", 64 << 20);
        // Per-process limits do not count root's processes; the kernel says so, and so do we.
        if self.user != 0 {
            let settings = with(kind, &["groups=off", "pids=32"]);
            self.attempt(tree, BeRefused, &settings, &["fork_many", "200"]);
        }
        let settings = with(kind, &["groups=off", &memory]);
        self.attempt(tree, BeRefused, &settings, &["eat_memory", "256"]);
        let unlimited = with(kind, &["groups=off"]);
        self.attempt(tree, Work, &unlimited, &["eat_memory", "128"]);
        self.attempt(tree, Work, kind, &["fork_many", "200"]);
        if access::identity().0 != 0 || self.user != 0 {
            return;
        }
        // Control groups of version 1, in directories of this test's own.
        for (controller, setting, words) in [
            ("pids", "pids=32".to_owned(), ["fork_many", "200"]),
            ("memory", memory.clone(), ["eat_memory", "256"]),
        ] {
            let own = PathBuf::from(format!(
                "/sys/fs/cgroup/{controller}/substrate-escape-{}",
                std::process::id()
            ));
            if fs::create_dir(&own).is_err() {
                skip(
                    &format!("{controller} by control group"),
                    "none can be made here",
                );
                continue;
            }
            let group = format!("group={controller}:{}", own.display());
            self.attempt(tree, BeRefused, &with(kind, &[&group, &setting]), &words);
            let left = fs::read_dir(&own)
                .unwrap()
                .filter(|entry| entry.as_ref().unwrap().path().is_dir())
                .count();
            self.judge(&format!("no {controller} group is left"), left == 0, "");
            fs::remove_dir(&own).unwrap();
        }
    }

    fn setuid(&mut self, tree: &Tree) {
        if access::identity().0 != 0 || self.user == 0 {
            return;
        }
        let program = tree.at("outside/setuid");
        fs::copy(tree.at("home/project/escape"), &program).unwrap();
        chown(&program, Some(0), Some(0)).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        let outside = Command::new(&program)
            .arg("effective_root")
            .uid(self.user)
            .gid(self.user)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&outside.stdout).into_owned();
        self.judge(
            "setuid works outside",
            outside.status.code() == Some(1),
            &said,
        );
        for kind in [vec![], SESSION.map(str::to_owned).to_vec()] {
            let command = [program.as_os_str(), OsStr::new("effective_root")];
            let out = tree.owner(&kind, &command).output().unwrap();
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            self.judge("setuid inside", out.status.code() == Some(0), &said);
        }
    }

    /// Where writes are real, no file is left that runs with its owner's rights; what is held
    /// back loses the bits when it is applied. Device files are the host's own.
    fn modes(&mut self, tree: &Tree) {
        let real = ["session=1"];
        self.attempt(tree, BeRefused, &real, &["setid_file"]);
        self.attempt(tree, Work, &[], &["setid_file"]);
        for kind in [&[][..], &real] {
            self.attempt(tree, Work, kind, &["setgid_directory"]);
            self.attempt(tree, BeRefused, kind, &["change_path", "/dev/null"]);
            self.attempt(tree, Work, kind, &["open_write", "/dev/null"]);
        }
    }

    /// A file of the host as a stream can be read or written, which is what it was given for,
    /// but not changed in any other way.
    fn streams(&mut self, tree: &Tree) {
        for kind in [
            vec![],
            vec!["session=1".to_owned()],
            vec!["late=1".to_owned()],
        ] {
            for (stream, path) in [
                ("0", "outside/file"),
                ("0", "home/visible"),
                ("0", "home/.ssh/id"),
                ("1", "outside/log"),
                ("0", "/dev/null"),
                ("1", "/dev/null"),
            ] {
                let path = tree.at(path);
                let words = ["change_stream", stream];
                let (status, said) = self.with_stream(tree, &kind, stream, &path, &words);
                let name = format!("{words:?} on {} {kind:?}", path.display());
                self.judge(&name, status == Some(0), &said);
            }
            let path = tree.at("outside/file");
            let (status, said) =
                self.with_stream(tree, &kind, "both", &path, &["change_stream", "0"]);
            self.judge(
                &format!("open both ways {kind:?}"),
                status == Some(0),
                &said,
            );
            for stream in ["0", "both"] {
                if kind != ["late=1"] {
                    let words = ["seek_input"];
                    let (status, said) = self.with_stream(tree, &kind, stream, &path, &words);
                    self.judge(&format!("seek {stream} {kind:?}"), status == Some(1), &said);
                }
            }
            let log = tree.at("outside/log");
            fs::write(&log, "").unwrap();
            self.with_stream(tree, &kind, "1", &log, &["read_file", "/etc/hostname"]);
            let said = fs::read_to_string(&log).unwrap();
            self.judge(&format!("output {kind:?}"), said.contains("worked"), &said);
            // Whoever reads the same input next goes on where the command stopped.
            let command = [OsStr::new("head"), OsStr::new("-c4")];
            let mut input = File::open(&path).unwrap();
            let stdin = input.try_clone().unwrap();
            let out = tree.owner(&kind, &command).stdin(stdin).output().unwrap();
            let mut rest = String::new();
            input.read_to_string(&mut rest).unwrap();
            let good = out.stdout == b"outs" && (rest == "ide" || kind == ["late=1"]);
            self.judge(&format!("a shared position {kind:?}"), good, &rest);
        }
    }

    /// Runs an attempt with a file as one of its streams.
    fn with_stream(
        &self,
        tree: &Tree,
        settings: &[String],
        stream: &str,
        path: &Path,
        words: &[&str],
    ) -> (Option<i32>, String) {
        let program = tree.at("home/project/escape");
        let mut command = vec![program.as_os_str()];
        command.extend(words.iter().map(OsStr::new));
        let mut owner = tree.owner(settings, &command);
        match stream {
            "0" => owner.stdin(File::open(path).unwrap()),
            "both" => {
                let both = File::options().read(true).write(true).open(path);
                owner.stdin(both.unwrap())
            }
            _ => {
                let log = File::options().append(true).create(true).open(path);
                let log = log.unwrap();
                if path.starts_with(&tree.root) {
                    chown(path, Some(self.user), Some(self.user)).unwrap();
                }
                owner.stdout(log)
            }
        };
        let out = owner.output().unwrap();
        let said = [out.stdout, out.stderr].concat();
        (
            out.status.code(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }

    /// The same hidden files, seen through another mount that exists only for this attempt.
    fn other_mounts(&mut self, tree: &Tree, kind: &[&str]) {
        if access::identity().0 != 0 {
            skip("other mounts of hidden files", "needs root to mount");
            return;
        }
        let alias = tree.at("outside/alias");
        fs::create_dir_all(&alias).unwrap();
        for (source, seen) in [
            ("home", "alias/.ssh/id"),
            ("home/.ssh", "alias/id"),
            ("home", "alias/.netrc"),
        ] {
            for (must, path) in [(BeRefused, seen), (Work, "file")] {
                let target = tree.at("outside").join(path);
                let program = tree.at("home/project/escape");
                let command = [
                    program.as_os_str(),
                    OsStr::new("read_file"),
                    target.as_os_str(),
                ];
                let mut script = Command::new("unshare");
                script.args(["--mount", "--propagation", "private", "sh", "-c"]);
                script.arg(r#"mount --bind "$1" "$2" && shift 2 && exec "$@""#);
                script.arg("sh").arg(tree.at(source)).arg(&alias);
                if self.user != 0 {
                    let user = self.user.to_string();
                    script.args([
                        "setpriv",
                        "--reuid",
                        &user,
                        "--regid",
                        &user,
                        "--clear-groups",
                    ]);
                }
                script.arg(tree.at("owner"));
                script.args(tree.arguments(&owned(kind), &command));
                let out = script.current_dir("/").output().unwrap();
                let expected = if must == BeRefused { 0 } else { 1 };
                let said = format!(
                    "{}{}",
                    String::from_utf8_lossy(&out.stdout),
                    String::from_utf8_lossy(&out.stderr)
                );
                let name = format!("{source} mounted elsewhere, {path} {kind:?}");
                self.judge(&name, out.status.code() == Some(expected), &said);
            }
        }
    }

    /// A directory that is open in the owner must not arrive, by accident or as a stream.
    fn descriptors(&mut self, tree: &Tree, kind: &[&str]) {
        let program = tree.at("home/project/escape");
        let command = [program.as_os_str(), OsStr::new("inherited_directories")];
        let inner = tree.owner(&owned(kind), &command);
        let mut script = Command::new("sh");
        script.args(["-c", r#"exec 9</ 8>/dev/null; exec "$@""#, "sh"]);
        script.arg(inner.get_program()).args(inner.get_args());
        if self.user != access::identity().0 {
            script.uid(self.user).gid(self.user);
        }
        let out = script.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        self.judge(
            "open directories stay outside",
            out.status.code() == Some(0),
            &said,
        );
        let mut owner = tree.owner(&owned(kind), &command);
        let out = owner.stdin(File::open("/").unwrap()).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let refused =
            out.status.code() == Some(125) && said.contains("descriptor 0 is a directory");
        self.judge("a directory as standard input", refused, &said);
    }

    /// Nothing outlives the command, and nothing outlives the owner.
    fn life(&mut self, tree: &Tree) {
        // Whoever still runs holds the pipe open; its end is the proof that all are gone.
        let (mut reader, writer) = std::io::pipe().unwrap();
        let program = tree.at("home/project/escape");
        let command = [program.as_os_str(), OsStr::new("daemon_stays")];
        let status = tree
            .owner(&[], &command)
            .stdout(writer)
            .stderr(Stdio::null())
            .status()
            .unwrap();
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        self.judge("a daemon ends with its command", status.success(), "");

        for settings in [vec![], SESSION.map(str::to_owned).to_vec()] {
            let (mut reader, writer) = std::io::pipe().unwrap();
            let script = OsStr::new("echo started; (setsid sleep 1000 &) ; sleep 1000");
            let command = [OsStr::new("sh"), OsStr::new("-c"), script];
            let mut owner = tree
                .owner(&settings, &command)
                .stdout(writer)
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut started = [0; 8];
            reader.read_exact(&mut started).unwrap();
            owner.kill().unwrap();
            owner.wait().unwrap();
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).unwrap();
            self.judge(
                "the world ends with its owner",
                &started == b"started\n",
                "",
            );
        }
    }

    /// On a terminal a command gets one of the world's own, relayed; ours stays out of reach.
    fn terminal(&mut self, tree: &Tree, kind: &[&str]) {
        let script = "tty; stty size; test -t 0 && test -t 1 && echo both; read x; echo got=$x";
        let command = [OsStr::new("sh"), OsStr::new("-c"), OsStr::new(script)];
        let inner = tree.owner(&owned(kind), &command);
        let mut line = OsString::from("stty rows 33 cols 99; exec");
        for word in std::iter::once(inner.get_program()).chain(inner.get_args()) {
            line.push(" '");
            line.push(word);
            line.push("'");
        }
        let mut outer = Command::new("script");
        outer.args(["-q", "-e", "-c"]).arg(line).arg("/dev/null");
        outer.env("SHELL", "/bin/sh").current_dir("/");
        outer.stdin(Stdio::piped()).stdout(Stdio::piped());
        if self.user != access::identity().0 {
            outer.uid(self.user).gid(self.user);
        }
        let mut child = outer
            .spawn()
            .expect("script(1) of util-linux is needed for a terminal");
        let mut said = Vec::new();
        let mut out = child.stdout.take().unwrap();
        let mut buffer = [0; 1024];
        // Typed only once the command asks, as a person would.
        while !String::from_utf8_lossy(&said).contains("both") {
            match out.read(&mut buffer) {
                Ok(got) if got > 0 => said.extend_from_slice(&buffer[..got]),
                _ => break,
            }
        }
        let mut keys = child.stdin.take().unwrap();
        keys.write_all(b"hello\r").unwrap();
        let _ = out.read_to_end(&mut said);
        drop(keys);
        let status = child.wait().unwrap();
        let said = String::from_utf8_lossy(&said).into_owned();
        let good = ["/dev/pts/0", "33 99", "both", "got=hello"]
            .iter()
            .all(|text| said.contains(text));
        self.judge("a relayed terminal", good && status.success(), &said);
    }

    /// The level without namespaces, where Landlock alone keeps secrets and the host's files.
    fn weak(&mut self, tree: &Tree) {
        let outside = tree.at("outside/file");
        let before = snapshot(&tree.at("home/project"));
        let script = format!(
            "echo inside > file && cat file; cat ../.ssh/id ../.netrc ../.substrate/key; \
             echo x >> '{0}'; kill -0 {1} && echo signalled; exit 6",
            outside.display(),
            std::process::id()
        );
        let command = [OsStr::new("sh"), OsStr::new("-c"), OsStr::new(&script)];
        let out = tree
            .owner(&["level=landlock".to_owned()], &command)
            .output()
            .unwrap();
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
        let ran = out.status.code() == Some(6) && said.starts_with("inside\n");
        self.judge("level landlock runs", ran, &said);
        let held = !said.contains("secret") && !said.contains("signalled");
        self.judge("level landlock holds", held, &said);
        let untouched = before == snapshot(&tree.at("home/project"))
            && fs::read(&outside).unwrap() == b"outside";
        self.judge("level landlock leaves the host alone", untouched, &said);
    }

    /// A session of that level works on the project itself, and on nothing else of the host.
    fn weak_session(&mut self, tree: &Tree) {
        let outside = tree.at("outside/file");
        let script = format!(
            "echo inside > file && cat file; cat ../.ssh/id ../.netrc ../.substrate/key .env; \
             echo x >> '{0}'; echo x > ../new; kill -0 {1} && echo signalled; exit 6",
            outside.display(),
            std::process::id()
        );
        let command = [OsStr::new("sh"), OsStr::new("-c"), OsStr::new(&script)];
        let settings = owned(&with(&SESSION, &["level=landlock"]));
        let out = tree.owner(&settings, &command).output().unwrap();
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
        let file = tree.at("home/project/file");
        let real = fs::read(&file).unwrap() == b"inside\n";
        fs::write(&file, "project").unwrap();
        let ran = real && out.status.code() == Some(6) && said.starts_with("inside\n");
        self.judge("a session of level landlock runs", ran, &said);
        let held = !said.contains("secret")
            && !said.contains("signalled")
            && !tree.at("home/new").exists()
            && fs::read(&outside).unwrap() == b"outside";
        self.judge("a session of level landlock holds", held, &said);
    }

    /// After a command that deletes the whole project, inside a world only, the project on the
    /// host is what it was.
    fn untouched(&mut self, tree: &Tree) {
        let project = tree.at("home/project");
        for kind in [
            vec![],
            vec!["heavy=1".to_owned()],
            vec!["copy=1".to_owned()],
        ] {
            let before = snapshot(&project);
            let script = OsStr::new("rm -rf ./* ./.[!.]* ; ls -A; echo new > made; exit 7");
            let command = [OsStr::new("sh"), OsStr::new("-c"), script];
            let out = tree.owner(&kind, &command).output().unwrap();
            let after = snapshot(&project);
            let said = format!(
                "{}{}",
                String::from_utf8_lossy(&out.stdout),
                String::from_utf8_lossy(&out.stderr)
            );
            self.judge(
                "deleting the project runs",
                out.status.code() == Some(7),
                &said,
            );
            let gone = !String::from_utf8_lossy(&out.stdout).contains("file");
            self.judge("and the files are gone inside", gone, &said);
            self.judge(
                "and the project is untouched",
                before == after,
                &format!("{before:?}\n{after:?}"),
            );
        }
        let _ = std::io::stdout().flush();
    }
}

/// The settings of a kind of world, and more.
fn with<'a>(kind: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [kind, more].concat()
}

fn owned(settings: &[&str]) -> Vec<String> {
    settings
        .iter()
        .map(|setting| (*setting).to_owned())
        .collect()
}

type Snapshot = BTreeMap<PathBuf, (u32, u64, i64, i64, Vec<u8>)>;

/// Everything about a tree: names, modes, sizes, times, contents.
fn snapshot(root: &Path) -> Snapshot {
    let mut all = BTreeMap::new();
    let mut rest = vec![root.to_owned()];
    while let Some(path) = rest.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let mut content = Vec::new();
        if meta.is_dir() {
            rest.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        } else if meta.is_file() {
            content = fs::read(&path).unwrap();
        }
        let what = (
            meta.mode(),
            meta.len(),
            meta.mtime(),
            meta.mtime_nsec(),
            content,
        );
        all.insert(path, what);
    }
    all
}
