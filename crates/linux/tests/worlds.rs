//! Commands in worlds: what they see, what becomes of what they write, how they end.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use substrate_world::backend::ExecJob;
use substrate_world::backend::ExecStreams;
use substrate_world::backend::Held;

use substrate_changes::apply::ApplyOptions;
use substrate_changes::observer::Observer;
use substrate_changes::pending::Pending;
use substrate_changes::{apply, gc, patch};
use substrate_egress::gated;
use substrate_linux::limits::Groups;
use substrate_linux::options::Options;
use substrate_linux::{Linux, netprobe};
use substrate_policy::budget::own_cells;
use substrate_policy::terms::{HomeMode, HostPattern, HostRule, Mode, PathPattern, WorldSpec};
use substrate_starts::{ExecJudge, ExecVerdict, ProgramStart};
use substrate_trace::Level;
use substrate_world::backend::{ExecPlace, ExecRequest, ExecResult, Status, Stdio, WorldBackend};
use substrate_world::error::WorldError;

struct Rig {
    _dir: tempfile::TempDir,
    spec: WorldSpec,
    project: PathBuf,
}

impl Rig {
    fn new() -> Rig {
        Rig::below(Path::new("/var/tmp"), "project")
    }

    /// A home below `base` with a project of this name.
    fn below(base: &Path, name: &str) -> Rig {
        let dir = tempfile::tempdir_in(base).unwrap();
        let home = dir.path().canonicalize().unwrap().join("home");
        let project = home.join(name);
        fs::create_dir_all(&project).unwrap();
        fs::create_dir(home.join(".substrate")).unwrap();
        fs::create_dir(home.join(".ssh")).unwrap();
        fs::write(home.join(".ssh/id"), "secret").unwrap();
        fs::write(home.join("rc"), "mine").unwrap();
        fs::write(project.join("file"), "before").unwrap();
        let mut spec = WorldSpec {
            policy_id: "test".into(),
            project: Some(project.clone()),
            substrate_home: home.join(".substrate"),
            read: vec!["/".into()],
            write: vec![project.clone(), "/tmp".into()],
            hide: vec![PathPattern {
                glob: home.join(".ssh/**").into_os_string().into_vec(),
                base: home.join(".ssh"),
            }],
            home,
            ..WorldSpec::default()
        };
        spec.net.isolate = true;
        Rig {
            _dir: dir,
            spec,
            project,
        }
    }

    /// How many results there are; what lies aside is empty.
    fn results(&self) -> usize {
        let all = fs::read_dir(self.spec.substrate_home.join("worlds")).unwrap();
        let aside = |name: OsString| name.to_string_lossy().starts_with(".aside-");
        all.filter(|entry| !aside(entry.as_ref().unwrap().file_name()))
            .count()
    }

    fn shell(&self, line: &str) -> ExecRequest {
        ExecRequest {
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            cwd: self.project.clone(),
            ..ExecRequest::shell("/bin/sh", line)
        }
    }
}

fn job<'a>(request: &'a ExecRequest, streams: &'a ExecStreams) -> ExecJob<'a> {
    ExecJob { request, streams }
}

/// Standard streams that collect what a command says.
fn collecting() -> (Stdio, std::io::PipeReader) {
    let (reader, writer) = std::io::pipe().unwrap();
    let null: OwnedFd = File::open("/dev/null").unwrap().into();
    let other = writer.try_clone().unwrap();
    (Stdio::Given([null, writer.into(), other.into()]), reader)
}

fn exec(
    backend: &Linux,
    place: ExecPlace<'_>,
    request: ExecRequest,
) -> (Result<ExecResult, WorldError>, String) {
    let (stdio, mut reader) = collecting();
    let streams = ExecStreams::from(stdio);
    let result = backend.exec(place, job(&request, &streams));
    drop(streams);
    let mut said = Vec::new();
    reader.read_to_end(&mut said).unwrap();
    (result, String::from_utf8_lossy(&said).into_owned())
}

fn isolated(rig: &Rig, line: &str) -> (ExecResult, String) {
    let backend = Linux::new(Options::default());
    let (result, said) = exec(&backend, ExecPlace::fresh(&rig.spec), rig.shell(line));
    (result.unwrap_or_else(|error| panic!("{error}")), said)
}

/// Whether full worlds can be made here. Skips the test where not.
fn worlds_work(test: &str) -> bool {
    let scratch = tempfile::tempdir_in("/var/tmp").unwrap();
    let report = substrate_linux::probe::probe(scratch.path());
    if report.level == substrate_trace::Level::Full {
        return true;
    }
    substrate_rig::skip(test, &format!("no full worlds here: {report:#?}"));
    false
}

#[test]
fn a_command_ends_as_it_would_outside() {
    if !worlds_work("a_command_ends_as_it_would_outside") {
        return;
    }
    let rig = Rig::new();
    assert_eq!(isolated(&rig, "exit 7").0.status, Status::Exited(7));
    assert_eq!(isolated(&rig, "kill -9 $$").0.status, Status::Signaled(9));
    assert_eq!(isolated(&rig, "kill -TERM $$").0.status.code(), 143);
    let (result, said) = isolated(&rig, "echo out; echo err >&2; umask; pwd");
    assert_eq!(result.status, Status::Exited(0));
    assert!(said.starts_with("out\nerr\n"), "{said}");
    assert!(
        said.ends_with(&format!("{}\n", rig.project.display())),
        "{said}"
    );
}

#[test]
fn nothing_starts_before_the_caller_has_begun() {
    if !worlds_work("nothing_starts_before_the_caller_has_begun") {
        return;
    }
    let rig = Rig::new();
    let backend = Linux::new(Options::default());
    let note = rig.project.join("note");
    for place in [ExecPlace::fresh(&rig.spec), ExecPlace::once(&rig.spec)] {
        let (stdio, mut reader) = collecting();
        let (request, streams) = (rig.shell("cat note"), ExecStreams::from(stdio));
        let mut begin = || fs::write(&note, "begun").is_ok();
        let result = backend.exec_beside(place, job(&request, &streams), None, &mut begin);
        assert_eq!(result.unwrap().status, Status::Exited(0));
        drop(streams);
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, "begun");
        fs::remove_file(&note).unwrap();
    }
    backend.see_off();
    let before = rig.results();
    for place in [ExecPlace::fresh(&rig.spec), ExecPlace::once(&rig.spec)] {
        let (request, streams) = (rig.shell("touch started"), ExecStreams::default());
        let result = backend.exec_beside(place, job(&request, &streams), None, &mut || false);
        assert!(matches!(result, Err(WorldError::CalledOff)), "{result:?}");
        assert!(!rig.project.join("started").exists());
    }
    assert_eq!(rig.results(), before);
}

#[test]
fn what_the_kernel_shows_can_be_hidden() {
    if !worlds_work("what_the_kernel_shows_can_be_hidden") {
        return;
    }
    let mut rig = Rig::new();
    // What is only the host's is not there to be hidden.
    for path in [
        "/sys/kernel",
        "/proc/cpuinfo",
        "/proc/self",
        "/proc/self/environ",
    ] {
        rig.spec.hide.push(PathPattern {
            glob: path.into(),
            base: path.into(),
        });
    }
    let line = "ls /sys/kernel 2>/dev/null | wc -l; wc -c < /proc/cpuinfo; ls /sys | wc -l";
    for isolate in [true, false] {
        rig.spec.net.isolate = isolate;
        let (_, said) = isolated(&rig, line);
        assert!(said.starts_with("0\n0\n"), "{said}");
        assert_ne!(said.lines().nth(2), Some("0"), "{said}");
    }
}

#[test]
fn streams_to_nowhere_lead_to_the_worlds_own() {
    if !worlds_work("streams_to_nowhere_lead_to_the_worlds_own") {
        return;
    }
    let rig = Rig::new();
    // Its standard input can only be read; neither its mode nor its times can be changed.
    let line = "cat; { echo x >&0; } 2>/dev/null || echo refused; \
                chmod 644 /proc/self/fd/0 2>/dev/null || echo kept; \
                touch -c -d @1 /proc/self/fd/0 2>/dev/null || echo kept; \
                stat -L -c %t:%T /proc/self/fd/0; readlink /proc/self/fd/0";
    let (_, said) = isolated(&rig, line);
    assert_eq!(said, "refused\nkept\nkept\n1:3\n/dev/null\n");
}

#[test]
fn new_files_get_the_mask_that_was_asked_for() {
    if !worlds_work("new_files_get_the_mask_that_was_asked_for") {
        return;
    }
    let rig = Rig::new();
    let backend = Linux::new(Options::default());
    let mut request = rig.shell("umask; touch new; stat -c %a new; stat -c %a /tmp /dev/shm");
    request.umask = Some(0o27);
    let (result, said) = exec(&backend, ExecPlace::fresh(&rig.spec), request);
    assert_eq!(result.unwrap().status, Status::Exited(0));
    assert_eq!(said, "0027\n640\n1777\n1777\n");
}

#[test]
fn an_allowed_name_is_reached_through_the_gate_and_no_other() {
    if !worlds_work("an_allowed_name_is_reached_through_the_gate_and_no_other") {
        return;
    }
    let mut rig = Rig::new();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        stream.write_all(b"hello\n").unwrap();
    });
    rig.spec.mode = Mode::Enforce;
    rig.spec.net.allowed = vec![HostRule {
        written: format!("host-loopback:{port}"),
        host: HostPattern::HostLoopback,
        ports: Some((port, port)),
        internal: false,
    }];
    let backend = Linux::new(Options::default()).with_network(gated::networks(
        Arc::new(|_| {}),
        own_cells(),
        None,
    ));
    let line = format!(
        "exec 3<>/dev/tcp/localhost/{port} && cat <&3; \
         getent hosts other.test || echo no such name"
    );
    let mut request = rig.shell("");
    request.program = "/bin/bash".into();
    request.argv = vec!["bash".into(), "-c".into(), line.into()];
    let (result, said) = exec(&backend, ExecPlace::fresh(&rig.spec), request);
    let result = result.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(said, "hello\nno such name\n");
    assert_eq!(result.enforced.net, "gate");
    assert_eq!(result.scopes_used, [format!("tcp:localhost:{port}")]);
    assert!(
        result
            .net
            .iter()
            .any(|u| u.host == "localhost" && u.rx == 6)
    );
    assert!(
        result
            .net
            .iter()
            .any(|u| u.host == "other.test" && u.refused > 0)
    );
    thread.join().unwrap();
}

#[test]
fn writes_are_held_wherever_the_project_lies() {
    if !worlds_work("writes_are_held_wherever_the_project_lies") {
        return;
    }
    let link = tempfile::tempdir_in("/var/tmp").unwrap();
    for (base, name) in [
        ("/var/tmp", "project"),
        ("/tmp", "below tmp"),
        ("/dev/shm", "on tmpfs"),
        ("/var/tmp", "spaces  and\nnewline,comma:colon\\"),
    ] {
        let mut rig = Rig::below(Path::new(base), name);
        if name == "project" {
            let behind = link.path().join("link");
            std::os::unix::fs::symlink(&rig.project, &behind).unwrap();
            rig.spec.project = Some(behind.clone());
            rig.spec.write = vec![behind];
        }
        let line = "cat file; echo after > file; mkdir d; echo new > d/new; rm -f gone; cat file";
        let backend = Linux::new(Options::default());
        let (result, said) = exec(&backend, ExecPlace::fresh(&rig.spec), rig.shell(line));
        let result = result.unwrap_or_else(|error| panic!("{name:?}: {error}"));
        assert_eq!(result.status, Status::Exited(0), "{name:?}: {said}");
        assert_eq!(said, "beforeafter\n", "{name:?}");
        assert_eq!(fs::read(rig.project.join("file")).unwrap(), b"before");
        assert!(!rig.project.join("d").exists());
        let held = result.held.unwrap();
        let diff = backend.fs_diff(&held, false, &mut |_| true).unwrap();
        assert_eq!(diff.writes, [rig.project.join("d/new")], "{name:?}");
        assert_eq!(diff.mods, [rig.project.join("file")], "{name:?}");
    }
}

#[test]
fn the_home_is_kept_apart_and_secrets_are_not_there() {
    if !worlds_work("the_home_is_kept_apart_and_secrets_are_not_there") {
        return;
    }
    let rig = Rig::new();
    let line = "cat ../rc ../.ssh/id; ls ../.substrate; echo changed > ../rc; cat ../rc";
    let (result, said) = isolated(&rig, line);
    assert!(said.starts_with("mine"), "{said}");
    assert!(said.ends_with("changed\n"), "{said}");
    assert!(
        !said.contains("secret") && !said.contains("worlds"),
        "{said}"
    );
    assert_eq!(fs::read(rig.spec.home.join("rc")).unwrap(), b"mine");
    assert_eq!(result.enforced.level, Level::Full);
    assert_eq!(result.enforced.fs, "overlay");
    assert_eq!(result.enforced.net, "closed");
}

#[test]
fn what_programs_expect_is_there() {
    if !worlds_work("what_programs_expect_is_there") {
        return;
    }
    let rig = Rig::new();
    let line = "for n in null zero full random urandom tty ptmx pts shm fd stdin stdout stderr; \
                do test -e /dev/$n || test -L /dev/$n || echo no $n; done; \
                echo x > /dev/null; head -c 3 /dev/zero | wc -c; uname -n; ls /tmp | wc -l; \
                echo a > /tmp/a && cat /tmp/a; test -w /dev/shm && echo shm; \
                grep -c substrate:wld_ /proc/self/mountinfo; ls /sys/class/net; \
                readlink /proc/self/ns/mnt >/dev/null && echo proc; id -u";
    let (_, said) = isolated(&rig, line);
    let user = substrate_sys::access::identity().0;
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "3");
    assert_eq!(lines[1], "substrate");
    assert_eq!(&lines[2..5], ["0", "a", "shm"]);
    assert_ne!(lines[5], "0");
    assert_eq!(&lines[6..], ["lo", "proc", &user.to_string()]);
}

#[test]
fn bytes_arrive_as_bytes_and_scripts_without_a_head_run() {
    if !worlds_work("bytes_arrive_as_bytes_and_scripts_without_a_head_run") {
        return;
    }
    let rig = Rig::new();
    let script = rig.project.join("script");
    fs::write(&script, "printf '%s|' \"$@\"").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let odd = OsString::from_vec(b"\xff\n x".to_vec());
    let request = ExecRequest {
        program: "./script".into(),
        argv: vec!["zero".into(), "one".into(), odd.clone()],
        env: vec![("PATH".into(), "/usr/bin:/bin".into())],
        cwd: rig.project.clone(),
        ..ExecRequest::default()
    };
    let (stdio, mut reader) = collecting();
    let streams = ExecStreams::from(stdio);
    let backend = Linux::new(Options::default());
    let place = ExecPlace::fresh(&rig.spec);
    backend.exec(place, job(&request, &streams)).unwrap();
    drop(streams);
    let mut said = Vec::new();
    reader.read_to_end(&mut said).unwrap();
    assert_eq!(said, [b"one|", odd.as_bytes(), b"|"].concat());
}

#[test]
fn a_result_is_whole_though_somebody_was_still_writing() {
    if !worlds_work("a_result_is_whole_though_somebody_was_still_writing") {
        return;
    }
    let rig = Rig::new();
    let backend = Linux::new(Options::default());
    let writers = "for i in 1 2 3 4 5 6 7 8; do setsid sh -c 'while :; do echo x >> grows; done' & done; sleep 0.05";
    let busy = format!("echo x > grows; {writers}");
    for (line, daemon) in [(busy.as_str(), true), ("echo x > grows", false)] {
        let (stdio, _reader) = collecting();
        let (request, streams) = (rig.shell(line), ExecStreams::from(stdio));
        // The world may still be there now, but nothing may run in it.
        let place = ExecPlace::fresh(&rig.spec);
        let result = backend.exec_beside(place, job(&request, &streams), None, &mut || true);
        let held = Pending::of(&result.unwrap().held.unwrap()).unwrap();
        let mut roots = held.meta().roots.iter();
        let root = roots.find(|root| root.target == rig.project).unwrap();
        let written = || fs::metadata(root.upper.join("grows")).unwrap().len();
        let before = written();
        assert!(before >= 2 && (before > 2) == daemon, "{line}: {before}");
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(written(), before, "{line}");
        backend.see_off();
    }
}

#[test]
fn a_world_knows_whether_somebody_is_left_in_it() {
    if !worlds_work("a_world_knows_whether_somebody_is_left_in_it") {
        return;
    }
    let rig = Rig::new();
    let backend = Linux::new(Options::default());
    let world = backend.ensure_session(&rig.spec, None).unwrap();
    for (line, last) in [
        ("true", true),
        ("sh -c true & wait", true),
        ("setsid sleep 60 &", false),
        ("true", false),
    ] {
        let (stdio, _reader) = collecting();
        let (request, streams) = (rig.shell(line), ExecStreams::from(stdio));
        let mut command = backend.start(world, job(&request, &streams)).unwrap();
        command.await_start().unwrap();
        command.wait().unwrap();
        assert_eq!(command.was_last(), last, "{line}");
    }
    backend.end(world).unwrap();
}

#[test]
fn what_cannot_start_is_named_and_leaves_nothing() {
    if !worlds_work("what_cannot_start_is_named_and_leaves_nothing") {
        return;
    }
    let rig = Rig::new();
    let backend = Linux::new(Options::default());
    let mut request = rig.shell("true");
    request.program = "no-such-program".into();
    let (result, _) = exec(&backend, ExecPlace::fresh(&rig.spec), request);
    assert!(matches!(result, Err(WorldError::NotFound(_))), "{result:?}");
    let mut request = rig.shell("true");
    request.cwd = "/var/tmp/no such directory".into();
    let (result, _) = exec(&backend, ExecPlace::fresh(&rig.spec), request);
    assert!(matches!(result, Err(WorldError::Cwd { .. })), "{result:?}");
    let mut request = rig.shell("true");
    request.program = "/etc/passwd".into();
    let (result, _) = exec(&backend, ExecPlace::fresh(&rig.spec), request);
    let error = result.unwrap_err().to_string();
    assert!(
        error.contains("/etc/passwd") && error.contains("executing"),
        "{error}"
    );
    assert_eq!(rig.results(), 0);
}

#[test]
fn a_session_is_one_world_with_the_project_in_place() {
    if !worlds_work("a_session_is_one_world_with_the_project_in_place") {
        return;
    }
    let mut rig = Rig::new();
    let backend = Linux::new(Options::default());
    let world = backend.ensure_session(&rig.spec, None).unwrap();
    assert_eq!(backend.ensure_session(&rig.spec, None).unwrap(), world);
    let run = |line: &str| {
        let (result, said) = exec(&backend, ExecPlace::Session(world), rig.shell(line));
        (result.unwrap_or_else(|error| panic!("{error}")), said)
    };
    let (_, first) = run("readlink /proc/self/ns/mnt");
    assert_eq!(first, run("readlink /proc/self/ns/mnt").1);
    run("echo after > file; echo held > ../rc; echo tmp > /tmp/kept");
    assert_eq!(fs::read(rig.project.join("file")).unwrap(), b"after\n");
    assert_eq!(fs::read(rig.spec.home.join("rc")).unwrap(), b"mine");
    assert_eq!(run("cat ../rc /tmp/kept").1, "held\ntmp\n");
    run("sleep 1000 >/dev/null 2>&1 & echo $! > /tmp/pid");
    assert_eq!(run("kill -0 $(cat /tmp/pid) && echo alive").1, "alive\n");
    assert_eq!(run("cat ../.ssh/id; exit 3").0.status, Status::Exited(3));
    let held = Held {
        world: world.id,
        home: rig.spec.substrate_home.clone(),
    };
    assert!(matches!(
        backend.fs_diff(&held, false, &mut |_| true),
        Err(WorldError::Running(_))
    ));
    assert_eq!(backend.end(world).unwrap().as_ref(), Some(&held));
    assert_eq!(
        backend.fs_diff(&held, false, &mut |_| true).unwrap().mods,
        [rig.spec.home.join("rc")]
    );
    let (result, _) = exec(&backend, ExecPlace::Session(world), rig.shell("true"));
    assert!(matches!(result, Err(WorldError::Gone(_))));
    rig.spec.home_mode = HomeMode::ReadOnly;
    let world = backend.ensure_session(&rig.spec, None).unwrap();
    let (_, said) = exec(
        &backend,
        ExecPlace::Session(world),
        rig.shell("echo x > ../rc; cat ../rc"),
    );
    assert!(
        said.contains("Read-only file system") && said.ends_with("mine"),
        "{said}"
    );
}

#[test]
fn changed_terms_are_sorted_into_now_and_later() {
    if !worlds_work("changed_terms_are_sorted_into_now_and_later") {
        return;
    }
    let rig = Rig::new();
    let backend = Linux::new(Options::default());
    let world = backend.ensure_session(&rig.spec, None).unwrap();
    let same = backend.apply_policy(world, &rig.spec).unwrap();
    assert!(same.needs_restart.is_empty() && !same.tightened);
    let mut looser = rig.spec.clone();
    looser.write.push("/opt".into());
    let change = backend.apply_policy(world, &looser).unwrap();
    assert_eq!(change.needs_restart, ["fs.write"]);
    assert!(!change.tightened);
    let mut stricter = rig.spec.clone();
    stricter.write.clear();
    stricter.allow_ptrace = true;
    let change = backend.apply_policy(world, &stricter).unwrap();
    assert_eq!(change.needs_restart, ["fs.write", "world.allow"]);
    assert!(change.tightened);
}

#[test]
fn a_terminal_of_the_world_is_a_real_one() {
    if !worlds_work("a_terminal_of_the_world_is_a_real_one") {
        return;
    }
    let rig = Rig::new();
    let backend = Linux::new(Options::default());
    let world = backend.ensure_session(&rig.spec, None).unwrap();
    let line = "tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo all; \
                ps -o sid= -p $$ | tr -d ' '; read x; echo got $x; cat; echo after";
    let (request, streams) = (rig.shell(line), Stdio::Terminal(31, 97).into());
    let mut command = backend.start(world, job(&request, &streams)).unwrap();
    let mut terminal = File::from(command.take_terminal().unwrap());
    let mut said = String::new();
    let mut until = |terminal: &mut File, text: &str| {
        let mut buffer = [0; 4096];
        while !said.contains(text) {
            let got = terminal.read(&mut buffer).unwrap_or(0);
            assert_ne!(got, 0, "the terminal ended before {text:?}: {said}");
            said.push_str(&String::from_utf8_lossy(&buffer[..got]));
        }
    };
    until(&mut terminal, "all\r\n");
    terminal.write_all(b"typed\r").unwrap();
    until(&mut terminal, "got typed");
    // What `cat` says again shows that it runs; then Ctrl-C is a signal for it.
    terminal.write_all(b"ping\r").unwrap();
    until(&mut terminal, "ping\r\nping\r\n");
    terminal.write_all(b"\x03").unwrap();
    let end = command.wait().unwrap();
    assert!(
        matches!(end, substrate_init::launch::End::Signaled(2)),
        "{end:?}"
    );
    assert!(said.starts_with("/dev/pts/0\r\n31 97\r\n"), "{said}");
}

fn weak() -> Linux {
    Linux::new(Options {
        ceiling: Level::Landlock,
        groups: Groups::Off,
        ..Options::default()
    })
}

#[test]
fn without_namespaces_landlock_and_a_copy_hold() {
    let mut rig = Rig::new();
    let backend = weak();
    let outside = rig.spec.home.parent().unwrap().join("outside");
    fs::write(&outside, "outside").unwrap();
    let line = format!(
        "echo changed > file; cat file; cat ../.ssh/id; echo x >> {0}; cat {0}; echo t > $TMPDIR/t; \
         cat $TMPDIR/t; (setsid sleep 1000 >/dev/null 2>&1 &); exit 4",
        outside.display()
    );
    let (result, said) = exec(&backend, ExecPlace::fresh(&rig.spec), rig.shell(&line));
    let result = result.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(result.status, Status::Exited(4), "{said}");
    assert!(
        said.starts_with("changed\n") && said.ends_with("outsidet\n"),
        "{said}"
    );
    assert!(!said.contains("secret"), "{said}");
    assert_eq!(fs::read(rig.project.join("file")).unwrap(), b"before");
    assert_eq!(fs::read(&outside).unwrap(), b"outside");
    assert_eq!(result.enforced.level, Level::Landlock);
    assert_eq!(result.enforced.fs, "landlock+copy");
    assert!(
        result
            .enforced
            .degraded
            .iter()
            .any(|d| d.contains("no full world"))
    );
    let held = result.held.unwrap();
    assert_eq!(
        backend.fs_diff(&held, false, &mut |_| true).unwrap().mods,
        [rig.project.join("file")]
    );

    let world = backend.ensure_session(&rig.spec, None).unwrap();
    let line = format!(
        "echo real > file; echo x >> {}; cat ../.ssh/id",
        outside.display()
    );
    let (result, said) = exec(&backend, ExecPlace::Session(world), rig.shell(&line));
    assert_eq!(result.unwrap().enforced.fs, "landlock");
    assert!(!said.contains("secret"), "{said}");
    assert_eq!(fs::read(rig.project.join("file")).unwrap(), b"real\n");
    assert_eq!(fs::read(&outside).unwrap(), b"outside");

    rig.spec.mode = Mode::Enforce;
    let (result, _) = exec(&backend, ExecPlace::fresh(&rig.spec), rig.shell("true"));
    assert!(
        matches!(
            result,
            Err(WorldError::TooWeak {
                level: Level::Landlock,
                ..
            })
        ),
        "{result:?}"
    );
}

#[test]
fn hidden_names_that_appear_later_stay_hidden_in_a_read_only_home() {
    if !worlds_work("hidden_names_that_appear_later_stay_hidden_in_a_read_only_home") {
        return;
    }
    let mut rig = Rig::new();
    let late = rig.spec.home.join(".netrc");
    rig.spec.home_mode = HomeMode::ReadOnly;
    rig.spec.hide.push(PathPattern {
        glob: late.clone().into_os_string().into_vec(),
        base: late.clone(),
    });
    let backend = Linux::new(Options::default());
    let world = backend.ensure_session(&rig.spec, None).unwrap();
    fs::write(&late, "late").unwrap();
    let line = "cat ../.netrc ../rc; echo x > new; cat new; ls /bin/sh";
    let (_, said) = exec(&backend, ExecPlace::Session(world), rig.shell(line));
    assert!(said.contains("denied") && !said.contains("late"), "{said}");
    assert!(said.ends_with("minex\n/bin/sh\n"), "{said}");
}

#[test]
fn hidden_names_that_appear_later_stay_hidden_without_namespaces() {
    let rig = Rig::new();
    let backend = weak();
    let world = backend.ensure_session(&rig.spec, None).unwrap();
    fs::write(rig.spec.home.join("late"), "late").unwrap();
    let (_, said) = exec(
        &backend,
        ExecPlace::Session(world),
        rig.shell("cat ../late ../rc"),
    );
    assert!(said.contains("denied") && said.ends_with("mine"), "{said}");
}

/// A rig whose `~/.cache` may be written and lies in the overlay of the home, as does what is below
/// `~/.local/share/app`.
fn with_open_places() -> Rig {
    let mut rig = Rig::new();
    for place in [".cache", ".local/share/app"] {
        let place = rig.spec.home.join(place);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("old"), "old").unwrap();
        rig.spec.write.push(place);
    }
    rig
}

fn result_of(rig: &Rig, result: &ExecResult) -> Pending {
    Pending::find(&rig.spec.substrate_home, &result.world.to_string()).unwrap()
}

#[test]
fn nothing_crosses_the_border_of_what_may_be_written_in_the_home() {
    if !worlds_work("nothing_crosses_the_border_of_what_may_be_written_in_the_home") {
        return;
    }
    let rig = with_open_places();
    let (_, said) = isolated(
        &rig,
        "cd ../; ln rc .cache/link; ln .cache/old hard; rm -rf .cache; rmdir .cache; mv .cache away; \
         mv .local away; mv .local/share away; ls -d .cache .local/share/app; echo $?",
    );
    assert_eq!(said.matches("cross-device").count(), 2, "{said}");
    assert_eq!(said.matches("busy").count(), 5, "{said}");
    assert!(said.ends_with(".cache\n.local/share/app\n0\n"), "{said}");
}

#[test]
fn what_may_be_written_in_the_home_is_told_from_the_rest_by_its_path() {
    if !worlds_work("what_may_be_written_in_the_home_is_told_from_the_rest_by_its_path") {
        return;
    }
    let rig = with_open_places();
    let (result, _) = isolated(
        &rig,
        "echo 1 > ../.cache/new; echo 2 > ../.cachet; echo 3 > ../.local/share/app/new; \
         echo 4 > ../.local/share/other; chmod 700 ../.cache; echo 5 > file",
    );
    let pending = result_of(&rig, &result);
    let overlays = pending.meta().roots.iter();
    let targets: Vec<&Path> = overlays.map(|root| root.target.as_path()).collect();
    assert_eq!(targets, [rig.spec.home.as_path(), rig.project.as_path()]);
    let totals = patch::totals(&pending, &mut |_| true).unwrap();
    assert_eq!((totals.created, totals.modified, totals.held), (4, 1, 2));
    let options = ApplyOptions::default();
    let mut quietly = |_| true;
    apply::apply(
        &mut pending.clone(),
        &options,
        &mut Observer::new(&mut quietly),
    )
    .unwrap();
    let home = |name: &str| fs::read_to_string(rig.spec.home.join(name)).ok();
    assert_eq!(home(".cache/new").as_deref(), Some("1\n"));
    assert_eq!(home(".local/share/app/new").as_deref(), Some("3\n"));
    assert_eq!((home(".cachet"), home(".local/share/other")), (None, None));
    let mode = fs::metadata(rig.spec.home.join(".cache")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o700);
}

#[test]
fn an_open_place_belongs_to_the_overlay_that_it_lies_in() {
    if !worlds_work("an_open_place_belongs_to_the_overlay_that_it_lies_in") {
        return;
    }
    let mut rig = with_open_places();
    let shared = rig.spec.home.join(".shared");
    fs::create_dir_all(shared.join("app")).unwrap();
    rig.spec.write.push(shared.join("app"));
    rig.spec.share.push(shared);
    rig.spec.hold.push(rig.spec.home.join(".local"));
    let (result, said) = isolated(
        &rig,
        "echo 1 > ../.local/share/app/new; echo 2 > ../.shared/app/new; echo 3 > ../.cache/new",
    );
    assert_eq!(said, "");
    let pending = result_of(&rig, &result);
    let totals = patch::totals(&pending, &mut |_| true).unwrap();
    assert_eq!((totals.created, totals.held), (3, 0));
    // Whoever empties his cache meanwhile still gets what was written into it.
    fs::remove_dir_all(rig.spec.home.join(".cache")).unwrap();
    let options = ApplyOptions {
        force: true,
        ..ApplyOptions::default()
    };
    let mut quietly = |_| true;
    apply::apply(
        &mut pending.clone(),
        &options,
        &mut Observer::new(&mut quietly),
    )
    .unwrap();
    for (place, text) in [(".local/share", "1\n"), (".shared", "2\n")] {
        let file = rig.spec.home.join(place).join("app/new");
        assert_eq!(fs::read_to_string(file).unwrap(), text);
    }
    assert_eq!(
        fs::read_to_string(rig.spec.home.join(".cache/new")).unwrap(),
        "3\n"
    );
}

#[test]
fn a_result_is_not_opened_again_where_less_may_be_written_today() {
    if !worlds_work("a_result_is_not_opened_again_where_less_may_be_written_today") {
        return;
    }
    let mut rig = with_open_places();
    let (result, _) = isolated(&rig, "echo 1 > ../.cache/new");
    let pending = result_of(&rig, &result);
    let backend = Linux::new(Options::default());
    let again = |rig: &Rig| {
        let place = ExecPlace::again(&rig.spec, &pending.meta().world_id);
        exec(
            &backend,
            place,
            rig.shell("cat ../.cache/new; rmdir ../.cache"),
        )
    };
    let (result, said) = again(&rig);
    assert!(
        result.is_ok() && said.starts_with("1\n") && said.contains("busy"),
        "{said}"
    );
    rig.spec.write.retain(|path| !path.ends_with(".cache"));
    let error = again(&rig).0.unwrap_err().to_string();
    assert!(error.contains("another way"), "{error}");
}

#[test]
fn what_was_written_is_kept_when_the_first_process_dies() {
    if !worlds_work("what_was_written_is_kept_when_the_first_process_dies") {
        return;
    }
    let rig = Rig::new();
    for place in [ExecPlace::fresh(&rig.spec), ExecPlace::once(&rig.spec)] {
        let (stdio, mut reader) = collecting();
        let (request, streams) = (
            rig.shell("echo work > ../work; echo written; sleep 60"),
            ExecStreams::from(stdio),
        );
        let ended = std::thread::scope(|scope| {
            let backend = Linux::new(Options::default());
            let (thread, of_run) = std::sync::mpsc::channel();
            let run = scope.spawn(move || {
                thread
                    .send(fs::read_link("/proc/thread-self").unwrap())
                    .unwrap();
                backend.exec(place, job(&request, &streams)).map(|_| ())
            });
            let mut said = [0; 8];
            reader.read_exact(&mut said).unwrap();
            let dirs = rig.spec.substrate_home.join("worlds");
            let newest = fs::read_dir(dirs)
                .unwrap()
                .flatten()
                .map(|entry| entry.path());
            let pending = newest
                .filter_map(|dir| Pending::load(&dir).ok())
                .find(Pending::is_running);
            kill_first_process(&Path::new("/proc").join(of_run.recv().unwrap()));
            (run.join().unwrap(), pending.unwrap())
        });
        let (result, pending) = ended;
        assert!(
            result
                .unwrap_err()
                .to_string()
                .contains("not there any more")
        );
        let kept = Pending::load(pending.dir()).unwrap();
        assert!(!kept.is_running());
        assert_eq!(patch::totals(&kept, &mut |_| true).unwrap().created, 1);
        gc::discard(&mut kept.clone()).unwrap();
    }
}

/// Kills the first process of the world that a thread has made.
fn kill_first_process(thread: &Path) {
    let children = fs::read_to_string(thread.join("children")).unwrap();
    let is_first = |child: &&str| {
        let name = fs::read_to_string(format!("/proc/{child}/comm"));
        name.is_ok_and(|name| name == "substrate-world\n")
    };
    let first = children.split_whitespace().find(is_first).unwrap();
    let killed = std::process::Command::new("kill")
        .args(["-9", first])
        .status();
    assert!(killed.unwrap().success());
}

/// Lets the start of one program wait until another one has been judged.
struct Slow {
    other: Mutex<bool>,
    judged: Condvar,
}

impl ExecJudge for Slow {
    fn judge(&self, start: &ProgramStart<'_>) -> ExecVerdict {
        let mut other = self.other.lock().unwrap();
        if start.named.ends_with("true") {
            *other = true;
            self.judged.notify_all();
        } else if start.named.ends_with("false") {
            let long = Duration::from_secs(60);
            let waited = self.judged.wait_timeout_while(other, long, |other| !*other);
            if waited.unwrap().1.timed_out() {
                return ExecVerdict::Deny("nobody else was judged".to_owned());
            }
        }
        ExecVerdict::Allow
    }

    fn ask(&self, _: &ProgramStart<'_>) -> ExecVerdict {
        ExecVerdict::Deny("nobody is here".to_owned())
    }
}

#[test]
fn a_start_that_takes_its_time_does_not_hold_up_others() {
    if !worlds_work("a_start_that_takes_its_time_does_not_hold_up_others") {
        return;
    }
    let mut rig = Rig::new();
    rig.spec.mode = Mode::Enforce;
    let judge = Slow {
        other: Mutex::new(false),
        judged: Condvar::new(),
    };
    let backend = Linux::new(Options::default()).with_guard(Arc::new(judge));
    let request = rig.shell("/bin/false & sleep 0.2; /bin/true; wait $!; echo $?");
    let (result, said) = exec(&backend, ExecPlace::fresh(&rig.spec), request);
    assert_eq!(
        (result.unwrap().status, said.as_str()),
        (Status::Exited(0), "1\n")
    );
}

#[test]
fn the_probe_finds_the_gate_that_worlds_have() {
    if !worlds_work("the_probe_finds_the_gate_that_worlds_have") {
        return;
    }
    for _ in 0..5 {
        let rows = netprobe::rows();
        assert!(!rows[0].found.contains("cannot"), "{:?}", rows[0]);
    }
}

fn glob(path: PathBuf) -> PathPattern {
    PathPattern {
        base: path.clone(),
        glob: path.into_os_string().into_vec(),
    }
}

/// Runs a line in a session of its own.
fn in_session(rig: &Rig, line: &str) -> (Result<ExecResult, WorldError>, String) {
    let backend = Linux::new(Options::default());
    match backend.ensure_session(&rig.spec, None) {
        Ok(world) => exec(&backend, ExecPlace::Session(world), rig.shell(line)),
        Err(error) => (Err(error), String::new()),
    }
}

/// Runs a line in a session, in an isolated world and in one that works on a copy.
fn everywhere(rig: &Rig, line: &str) -> Vec<(Result<ExecResult, WorldError>, String)> {
    let copies = Linux::new(Options {
        no_overlay: true,
        ..Options::default()
    });
    vec![
        in_session(rig, line),
        exec(
            &Linux::new(Options::default()),
            ExecPlace::fresh(&rig.spec),
            rig.shell(line),
        ),
        exec(&copies, ExecPlace::fresh(&rig.spec), rig.shell(line)),
    ]
}

/// Puts a path into one list of a world's terms.
type SetPath = fn(&mut WorldSpec, PathBuf);

#[test]
fn a_link_out_of_the_project_opens_nothing() {
    if !worlds_work("a_link_out_of_the_project_opens_nothing") {
        return;
    }
    let mut rig = Rig::new();
    let outside = rig.spec.home.with_file_name("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("victim"), "whole").unwrap();
    let link = rig.project.join("build");
    std::os::unix::fs::symlink(&outside, &link).unwrap();
    std::os::unix::fs::symlink("/", rig.project.join("all")).unwrap();
    let plain = rig.spec.clone();
    let line = format!(
        "echo broken > {}/victim; grep ' rw' /proc/mounts",
        outside.display()
    );
    for path in ["build", "all", "build/deeper/..", "all/var"] {
        let path = rig.project.join(path);
        let settings: [(&str, SetPath); 4] = [
            ("fs.write", |spec, path| spec.write = vec![path]),
            ("fs.read", |spec, path| {
                spec.read = vec!["/usr".into(), path]
            }),
            ("fs.share", |spec, path| spec.share = vec![path]),
            ("world.sockets", |spec, path| spec.sockets = vec![path]),
        ];
        for (setting, set) in settings {
            rig.spec = plain.clone();
            set(&mut rig.spec, path.clone());
            rig.spec.mode = Mode::Enforce;
            for (result, _) in everywhere(&rig, &line) {
                match result {
                    Err(WorldError::NotHeld {
                        setting: at,
                        reason,
                        ..
                    }) => {
                        assert_eq!(at, setting);
                        assert!(reason.contains("is a symlink that leads to"), "{reason}");
                    }
                    // Where it leads nowhere there is nothing to open.
                    Ok(result) if path.ends_with("..") => drop(result),
                    other => panic!("{setting} {}: {other:?}", path.display()),
                }
            }
            rig.spec.mode = Mode::Observe;
            let note = format!("{setting} {}", path.display());
            for (result, said) in everywhere(&rig, &line) {
                if let Ok(result) = result {
                    assert!(
                        result
                            .enforced
                            .degraded
                            .iter()
                            .any(|n| n.starts_with(&note)),
                        "{result:?}"
                    );
                }
                assert!(
                    !said.contains(&format!(" {} ", outside.display())),
                    "{said}"
                );
                assert_eq!(fs::read(outside.join("victim")).unwrap(), b"whole");
            }
        }
    }
}

#[test]
fn links_that_stay_inside_or_are_the_systems_are_followed() {
    if !worlds_work("links_that_stay_inside_or_are_the_systems_are_followed") {
        return;
    }
    let mut rig = Rig::new();
    rig.spec.mode = Mode::Enforce;
    fs::create_dir_all(rig.project.join("out/build")).unwrap();
    std::os::unix::fs::symlink("out/build", rig.project.join("build")).unwrap();
    // The home itself is reached through a link.
    let other = rig.spec.home.with_file_name("link");
    std::os::unix::fs::symlink(&rig.spec.home, &other).unwrap();
    fs::create_dir(other.join(".cache")).unwrap();
    rig.spec.write = vec![rig.project.join("build"), other.join(".cache")];
    let line = "echo made > out/build/new; echo cached > ../.cache/new; echo no > file";
    let (result, said) = in_session(&rig, line);
    result.unwrap_or_else(|error| panic!("{error}"));
    let read = |path: PathBuf| fs::read_to_string(path).unwrap();
    assert_eq!(read(rig.project.join("out/build/new")), "made\n", "{said}");
    assert_eq!(read(rig.spec.home.join(".cache/new")), "cached\n");
    assert_eq!(read(rig.project.join("file")), "before");
}

#[test]
fn what_cannot_all_be_found_is_not_held_by_halves() {
    if !worlds_work("what_cannot_all_be_found_is_not_held_by_halves") {
        return;
    }
    let mut rig = Rig::new();
    for n in 0..2200 {
        fs::create_dir_all(rig.project.join(format!("a/{n}/.git/hooks"))).unwrap();
    }
    fs::create_dir_all(rig.project.join(".git/hooks")).unwrap();
    fs::write(rig.project.join(".env"), "secret").unwrap();
    let hooks = glob(rig.project.join("**/.git/hooks/**"));
    let line = "echo planted > .git/hooks/pre-commit; cat .env";
    for hide in [false, true] {
        rig.spec.hide = vec![glob(rig.project.join(".env"))];
        rig.spec.protect.clear();
        match hide {
            true => rig.spec.hide.push(hooks.clone()),
            false => rig.spec.protect.push(hooks.clone()),
        }
        rig.spec.mode = Mode::Enforce;
        for (result, said) in everywhere(&rig, line) {
            let error = result.unwrap_err().to_string();
            assert!(
                error.contains("more than 2000 places match `**/.git/hooks`"),
                "{error}"
            );
            assert!(
                error.contains("remove what does not belong there"),
                "{error}"
            );
            assert_eq!(said, "");
        }
        assert!(!rig.project.join(".git/hooks/pre-commit").exists());
        rig.spec.mode = Mode::Observe;
        let (result, said) = in_session(&rig, "cat .env");
        let degraded = result.unwrap().enforced.degraded;
        assert!(
            degraded.iter().any(|note| note.contains("more than 2000")),
            "{degraded:?}"
        );
        assert!(
            !said.contains("secret"),
            "a pattern pays for no other: {said}"
        );
    }
}

#[test]
fn reading_is_narrowed_in_the_overlay_of_the_home_too() {
    if !worlds_work("reading_is_narrowed_in_the_overlay_of_the_home_too") {
        return;
    }
    let mut rig = Rig::new();
    rig.spec.hide.clear();
    let notes = rig.spec.home.join("notes");
    fs::create_dir(&notes).unwrap();
    fs::write(notes.join("one"), "noted").unwrap();
    let key = rig.spec.home.join(".ssh/id");
    let line = format!(
        "cat {} ../rc; ls -A ..; cat file; cat ../notes/one; echo more > ../notes/two && cat ../notes/two",
        key.display()
    );
    for (read, told) in [(vec![], false), (vec![notes], true)] {
        rig.spec.read = vec![rig.project.clone()];
        rig.spec.read.extend(read);
        for (number, (result, said)) in everywhere(&rig, &line).into_iter().enumerate() {
            result.unwrap_or_else(|error| panic!("{error}"));
            assert!(said.contains("before"), "{said}");
            // A whole home is not copied where no overlay serves; it is read-only then.
            assert_eq!(said.contains("more"), told && number < 2, "{said}");
            assert!(!said.contains("secret") && !said.contains("mine"), "{said}");
            assert_eq!(said.contains("noted"), told, "{said}");
        }
    }
}

#[test]
fn what_is_hidden_stays_hidden_when_a_parent_is_to_be_renamed() {
    if !worlds_work("what_is_hidden_stays_hidden_when_a_parent_is_to_be_renamed") {
        return;
    }
    let mut rig = Rig::new();
    rig.spec.mode = Mode::Enforce;
    for path in ["config/secrets/deep/a", "deploy/prod/key"] {
        let path = rig.project.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "hush").unwrap();
    }
    let hidden = ["config/secrets/**", "deploy/prod/key"];
    rig.spec
        .hide
        .extend(hidden.map(|path| glob(rig.project.join(path))));
    let line = "mv config c2; mv deploy d2; mv deploy/prod d3; \
        find . -type f -exec cat {} + 2>/dev/null; ls";
    for (result, said) in everywhere(&rig, line) {
        let result = result.unwrap_or_else(|error| panic!("{error}"));
        assert!(!said.contains("hush"), "{said}");
        let kept = Pending::find(&rig.spec.substrate_home, &result.world.to_string());
        if let Ok(mut pending) = kept {
            let mut go_on = |_| true;
            let mut watch = Observer::new(&mut go_on);
            let _ = apply::apply(&mut pending, &ApplyOptions::default(), &mut watch);
        }
        assert!(rig.project.join("config/secrets/deep/a").exists(), "{said}");
        assert!(rig.project.join("deploy/prod/key").exists(), "{said}");
        let (_, said) = in_session(&rig, "cat */secrets/deep/a */key */prod/key c2 d2 d3");
        assert!(!said.contains("hush"), "{said}");
    }
}

#[test]
fn a_cover_does_not_land_on_what_was_put_in_its_place() {
    if !worlds_work("a_cover_does_not_land_on_what_was_put_in_its_place") {
        return;
    }
    let mut rig = Rig::new();
    rig.spec.mode = Mode::Enforce;
    for (path, text) in [("a/secrets/key", "hush"), ("b/secrets/key", "decoy")] {
        let path = rig.project.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let pattern = glob(rig.project.join("**/secrets/**"));
    rig.spec.hide.push(pattern);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    let said = std::thread::scope(|scope| {
        scope.spawn(|| {
            let dir = File::open(&rig.project).unwrap();
            while !stop.load(order) {
                let exchange = substrate_sys::at::Rename::Exchange;
                substrate_sys::at::rename(&dir, "a", &dir, "b", exchange).unwrap();
            }
        });
        let line = "cat a/secrets/key b/secrets/key";
        let said: Vec<_> = (0..60).map(|_| in_session(&rig, line)).collect();
        stop.store(true, order);
        said
    });
    assert!(said.iter().any(|(result, _)| result.is_ok()));
    for (result, said) in said {
        assert!(!said.contains("hush"), "{said}");
        if let Err(error) = result {
            assert!(error.to_string().contains("cannot"), "{error}");
        }
    }
}

#[test]
fn a_home_in_a_directory_of_the_worlds_own_is_there_with_what_is_protected() {
    if !worlds_work("a_home_in_a_directory_of_the_worlds_own_is_there_with_what_is_protected") {
        return;
    }
    let mut rig = Rig::below(Path::new("/tmp"), "project");
    rig.spec.mode = Mode::Enforce;
    let home = rig.spec.home.clone();
    for path in [".cargo/bin/tool", ".cargo/env", ".config/fish/conf"] {
        fs::create_dir_all(home.join(path).parent().unwrap()).unwrap();
        fs::write(home.join(path), "mine").unwrap();
    }
    rig.spec
        .write
        .extend([".cache", ".npm", ".cargo"].map(|name| home.join(name)));
    let protected = ["rc", ".cargo/bin/**", ".cargo/env", ".config/fish/**"];
    rig.spec.protect = protected.map(|path| glob(home.join(path))).into();
    for (result, said) in everywhere(&rig, "cat ../rc; echo no > ../rc; cat ../.ssh/id file") {
        result.unwrap_or_else(|error| panic!("{error}"));
        assert!(
            said.starts_with("mine") && said.ends_with("before"),
            "{said}"
        );
        assert!(
            said.contains("Read-only") && !said.contains("secret"),
            "{said}"
        );
    }
}

#[test]
fn a_unix_datagram_socket_is_no_stream_for_a_world() {
    if !worlds_work("a_unix_datagram_socket_is_no_stream_for_a_world") {
        return;
    }
    let rig = Rig::new();
    let (one, other) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let null: OwnedFd = File::open("/dev/null").unwrap().into();
    let streams = ExecStreams::from(Stdio::Given([null, one.into(), other.into()]));
    let request = rig.shell("true");
    let backend = Linux::new(Options::default());
    let result = backend.exec(ExecPlace::fresh(&rig.spec), job(&request, &streams));
    assert!(
        matches!(result, Err(WorldError::OpenDatagrams(1))),
        "{result:?}"
    );
}

#[test]
fn who_is_let_in_does_not_take_the_owner_for_his_peer() {
    if !worlds_work("who_is_let_in_does_not_take_the_owner_for_his_peer") {
        return;
    }
    let mut rig = Rig::new();
    let path = rig.spec.home.join("agent.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    rig.spec.sockets = vec![path.clone()];
    let line = format!(
        "python3 -c 'import socket as s; c = s.socket(s.AF_UNIX); c.connect(\"{}\"); c.send(b\"hi\")'",
        path.display()
    );
    for (result, said) in everywhere(&rig, &line) {
        assert_eq!(result.unwrap().status, Status::Exited(0), "{said}");
        let (mut there, _) = listener.accept().unwrap();
        let mut got = String::new();
        there.read_to_string(&mut got).unwrap();
        assert_eq!(got, "hi");
        // It has ended, so nothing that it might be trusted with can be told of it.
        if let Ok(peer) = substrate_sys::peer::of(&there) {
            assert_ne!(peer.pid, std::process::id());
            assert!(!substrate_sys::pidfd::is_alive(peer.pidfd.as_fd()));
        }
    }
}
