//! The service from its start to its end, and the worlds that it keeps.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::skip;
use crate::service_support::{DIRECT, ENFORCE, Place, is_alive, until};

const NS: &str = "readlink /proc/self/ns/mnt";

#[test]
fn lines_of_a_project_share_a_world_without_anybody_starting_a_service() {
    let place = Place::new(ENFORCE);
    let first = place.run(&["-c", "echo kept > /tmp/note; readlink /proc/self/ns/mnt"]);
    assert_eq!(String::from_utf8_lossy(&first.stderr), "", "no warning");
    let first = String::from_utf8(first.stdout).unwrap();
    assert_eq!(place.line(NS), first.trim());
    assert_eq!(place.line("cat /tmp/note"), "kept");
    assert_ne!(
        std::fs::read_link("/proc/self/ns/mnt").unwrap().to_str(),
        Some(first.trim())
    );
    // 100 commands in all, one world.
    for _ in 0..97 {
        assert_eq!(place.line("true"), "");
    }
    let status = place.get("/v1/status");
    assert_eq!(status["worlds_made"], 1, "{status}");
    assert_eq!(status["worlds_reused"], 99, "{status}");
    let spans = place.sandbox.events("command_complete");
    assert_eq!(spans.len(), 100);
    let world = &spans[0]["world_id"];
    assert!(spans.iter().all(|span| span["world_id"] == *world));
    assert!(spans.iter().all(|span| span["place"] == "session"));
}

#[test]
fn what_a_kept_world_denies_and_changes_is_as_in_a_cold_one() {
    let place = Place::new(ENFORCE);
    let project = place.sandbox.project();
    std::fs::write(project.join("old"), "old").unwrap();
    for warm in [true, false] {
        let run = |line: &str| {
            let mut command = place.command();
            if !warm {
                command.env("SUBSTRATE_SERVICE", "off");
            }
            command.args(["-c", line]).output().unwrap()
        };
        let refused = run("sh -c 'mv old new'");
        assert_eq!(refused.status.code(), Some(126), "{warm}: {refused:?}");
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            said.contains("denied by policy 'test' (mv *,"),
            "{warm}: {said}"
        );
        assert!(project.join("old").exists());
        assert_eq!(run("exit 7").status.code(), Some(7));
        assert_eq!(run("kill -9 $$").status.code(), None, "{warm}");
        assert_eq!(run("nonexistent-program").status.code(), Some(127));
        assert!(!run("touch /usr/x").status.success());
        let written = run("umask; date +%N > written; cat");
        assert_eq!(written.stdout, b"0022\n", "{warm}");
    }
    let spans = place.sandbox.events("command_complete");
    let writes: Vec<&Value> = spans
        .iter()
        .filter(|span| span["cmd"].as_str().unwrap().starts_with("umask"))
        .map(|span| &span["fs_diff"])
        .collect();
    assert_eq!(writes.len(), 2);
    for diff in writes {
        let changed = format!("{}{}", diff["writes"], diff["mods"]);
        assert!(changed.contains("written"), "{diff}");
    }
}

#[test]
fn what_the_service_cannot_give_runs_in_a_world_of_its_own() {
    let place = Place::new(ENFORCE);
    let shared = place.world();
    let own = |change: &str| {
        let line = format!("{change}; exec \"$0\" -c true");
        let mut command = Command::new("sh");
        place.sandbox.prepare(&mut command);
        command.env_remove("SUBSTRATE_SERVICE");
        let output = command
            .args(["-c", &line, env!("CARGO_BIN_EXE_substrate")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{change}: {output:?}");
        let spans = place.sandbox.events("command_complete");
        spans.last().unwrap()["world_id"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(own("true"), shared);
    for change in [
        "ulimit -n 200",
        "ulimit -S -f 100000",
        "export SUBSTRATE_SERVICE=off",
    ] {
        let world = own(change);
        assert_ne!(world, shared, "{change}");
    }
    place.sandbox.policy(
        "test",
        &format!("id: test\nname: Test\n{ENFORCE}world: {{ reuse_session: false }}\n"),
    );
    assert_ne!(place.world(), place.world());
}

#[test]
fn a_changed_policy_another_project_and_another_agent_get_worlds_of_their_own() {
    let place = Place::new(ENFORCE);
    let first = place.world();
    let other = tempfile::tempdir().unwrap();
    std::fs::create_dir(other.path().join(".git")).unwrap();
    let there = place
        .command()
        .current_dir(other.path())
        .args(["-c", "true"])
        .output()
        .unwrap();
    assert!(there.status.success(), "{there:?}");
    let there = place.sandbox.events("command_complete");
    assert_ne!(there.last().unwrap()["world_id"], first.as_str());
    place.ran(json!({ "cmd": "true" }));
    let agent = place.sandbox.events("command_complete");
    assert_ne!(agent.last().unwrap()["world_id"], first.as_str());
    assert_eq!(place.world(), first, "and it is still there");
    place.line("echo secret > /tmp/secret");
    let tighter = ENFORCE.replace("\"mv *\"", "\"mv *\", \"ls *\"");
    place
        .sandbox
        .policy("test", &format!("id: test\nname: Test\n{tighter}"));
    assert_eq!(place.run(&["-c", "ls /"]).status.code(), Some(126));
    assert_ne!(place.world(), first);
    assert!(!place.run(&["-c", "cat /tmp/secret"]).status.success());
}

#[test]
fn services_that_start_at_once_are_one() {
    for _ in 0..3 {
        let place = Place::new(ENFORCE);
        let worlds: Vec<String> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| place.world())).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(worlds.iter().all(|world| *world == worlds[0]), "{worlds:?}");
        let second = place.run(&["daemon", "run"]);
        assert_eq!(second.status.code(), Some(1));
        let said = String::from_utf8_lossy(&second.stderr).into_owned();
        assert!(said.contains("a service already runs"), "{said}");
    }
}

#[test]
fn a_killed_service_takes_its_worlds_along_and_the_next_command_starts_another() {
    let place = Place::new(ENFORCE);
    let first = place.world();
    let mut running = place.command();
    let mut running = running
        .args(["-c", "echo $$ > pid; sleep 1000"])
        .spawn()
        .unwrap();
    until("it runs", || place.sandbox.project().join("pid").exists());
    let service = place.pid().unwrap();
    let world = {
        let children = std::fs::read_to_string(format!("/proc/{service}/task/{service}/children"));
        children.unwrap_or_default()
    };
    Command::new("kill")
        .args(["-9", &service.to_string()])
        .status()
        .unwrap();
    assert!(!running.wait().unwrap().success());
    for child in world.split_whitespace() {
        let child = child.parse().unwrap();
        until("its world ends", || !is_alive(child));
    }
    assert_ne!(place.world(), first);
    assert_ne!(place.pid(), Some(service));
}

#[test]
fn a_client_that_is_killed_leaves_nothing_running() {
    let place = Place::new(ENFORCE);
    place.line("true");
    let mut client = place
        .command()
        .args(["-c", "sleep 4321 & echo > started; sleep 4321"])
        .spawn()
        .unwrap();
    until("it runs", || {
        place.sandbox.project().join("started").exists()
    });
    client.kill().unwrap();
    client.wait().unwrap();
    let running = || place.get("/v1/worlds")["worlds"][0]["running"].as_u64();
    until("the world is free", || running() == Some(0));
}

#[test]
fn a_service_whose_socket_or_home_is_gone_ends() {
    let place = Place::new(ENFORCE);
    let first = place.world();
    let service = place.pid().unwrap();
    std::fs::remove_file(place.socket()).unwrap();
    until("it ends", || !is_alive(service));
    assert_ne!(place.world(), first);
    let second = place.pid().unwrap();
    std::fs::remove_dir_all(place.sandbox.home()).unwrap();
    until("the second ends", || !is_alive(second));
}

#[test]
fn a_stale_socket_is_replaced_and_what_another_listens_at_is_not_trusted() {
    let place = Place::new(ENFORCE);
    let sockets = place.sandbox.home().join("sock");
    std::fs::create_dir(&sockets).unwrap();
    std::fs::set_permissions(&sockets, std::fs::Permissions::from_mode(0o700)).unwrap();
    drop(std::os::unix::net::UnixListener::bind(place.socket()).unwrap());
    let first = place.world();
    assert_eq!(place.world(), first);
    place.run(&["daemon", "stop"]);
    // A listener that is no service of ours: nothing is sent to it, and the command runs without.
    let script = format!(
        "import socket,time\ns=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\ns.bind('{}')\ns.listen(9)\n\
         open('{}','w')\nc,_=s.accept()\nprint(c.recv(10))\ntime.sleep(100)\n",
        sockets.join("worlds.sock").display(),
        place.sandbox.project().join("listens").display(),
    );
    let mut impostor = Command::new("python3")
        .args(["-c", &script])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    until("it listens", || {
        place.sandbox.project().join("listens").exists()
    });
    assert_ne!(place.world(), place.world(), "each in a world of its own");
    impostor.kill().unwrap();
    let heard = impostor.wait_with_output().unwrap();
    assert!(["", "b''\n"].contains(&&*String::from_utf8_lossy(&heard.stdout)));
}

#[test]
fn it_tells_systemd_how_it_stands_and_takes_its_socket() {
    let place = Place::new(ENFORCE);
    let heard = place.sandbox.project().join("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&heard).unwrap();
    let mut service = place.in_foreground(|command| {
        command.env("NOTIFY_SOCKET", &heard);
    });
    let mut buffer = [0; 64];
    let got = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..got], b"READY=1");
    Command::new("kill")
        .arg(service.id().to_string())
        .status()
        .unwrap();
    let got = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..got], b"STOPPING=1");
    assert!(service.wait().unwrap().success());
    assert!(!place.socket().exists());
    if Command::new("systemd-socket-activate")
        .arg("--version")
        .output()
        .is_err()
    {
        return skip(
            "it_tells_systemd",
            "systemd-socket-activate is not installed",
        );
    }
    std::fs::create_dir_all(place.sandbox.home().join("sock")).unwrap();
    let mut activate = Command::new("systemd-socket-activate");
    place.sandbox.prepare(&mut activate);
    let mut activate = activate
        .env_remove("SUBSTRATE_SERVICE")
        .args(["-E", "SUBSTRATE_HOME", "-E", "HOME", "-l"])
        .arg(place.socket())
        .args([env!("CARGO_BIN_EXE_substrate"), "daemon", "run", "--idle=1"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until("the socket is there", || place.socket().exists());
    let status = place.get("/v1/status");
    assert_eq!(status["pid"], activate.id());
    assert!(
        activate.wait().unwrap().success(),
        "it ends when nobody needs it"
    );
}

#[test]
fn units_for_systemd_hold_and_are_verified() {
    let units = concat!(env!("CARGO_MANIFEST_DIR"), "/../../units");
    let mut names: Vec<String> = std::fs::read_dir(units)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "substrate-agent.service",
            "substrate.service",
            "substrate.socket"
        ]
    );
    let text = std::fs::read_to_string(format!("{units}/substrate-agent.service")).unwrap();
    for line in [
        "Type=notify",
        "Restart=always",
        "RestartSec=5",
        "WantedBy=multi-user.target",
    ] {
        assert!(text.lines().any(|there| there == line), "{line}");
    }
    if Command::new("systemd-analyze")
        .arg("--version")
        .output()
        .is_err()
    {
        return skip("units_for_systemd", "systemd-analyze is not installed");
    }
    // The program that they name is not installed where the tests run.
    let place = tempfile::tempdir().unwrap();
    for name in &names {
        let text = std::fs::read_to_string(format!("{units}/{name}")).unwrap();
        let text = text
            .replace("/usr/bin/substrate", "/bin/true")
            .replace("%h/.local/bin/substrate", "/bin/true");
        std::fs::write(place.path().join(name), text).unwrap();
    }
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no"])
        .args(names.iter().map(|name| place.path().join(name)))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let about: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("substrate"))
        .collect();
    assert!(about.is_empty(), "{about:?}");
}

#[test]
fn nothing_below_a_session_starts_a_service_or_gets_a_kept_world() {
    let place = Place::new(DIRECT);
    let own = env!("CARGO_BIN_EXE_substrate");
    let inner = place.run(&["-c", &format!("{own} daemon start; {own} daemon run")]);
    let said = String::from_utf8_lossy(&inner.stderr).into_owned();
    assert_eq!(
        said.matches("a Substrate session encloses").count(),
        2,
        "{said}"
    );
    assert_eq!(place.pid(), None);
}

#[test]
fn an_upgraded_program_replaces_the_service_of_the_old_one() {
    let place = Place::new(ENFORCE);
    let program = place.sandbox.home().join("substrate");
    let install = || {
        let new = program.with_extension("new");
        std::fs::copy(env!("CARGO_BIN_EXE_substrate"), &new).unwrap();
        std::fs::rename(&new, &program).unwrap();
    };
    let run = || {
        let mut command = Command::new(&program);
        place.sandbox.prepare(&mut command);
        command.env_remove("SUBSTRATE_SERVICE");
        let output = command.args(["-c", "true"]).output().unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{output:?}"
        );
    };
    let holder = || {
        let lock = place.sandbox.home().join("sock/service.lock");
        let text = std::fs::read_to_string(lock).unwrap_or_default();
        text.split(' ').next().and_then(|pid| pid.parse().ok())
    };
    install();
    run();
    let old: u32 = holder().unwrap();
    install();
    run();
    until("the old one ends", || !is_alive(old));
    run();
    let new = holder().unwrap();
    assert!(new != old && is_alive(new));
    // Of another place: left alone.
    place.line("true");
    assert_eq!(holder(), Some(new));
    Command::new("kill").arg(new.to_string()).status().unwrap();
    until("the new one ends", || !is_alive(new));
}
