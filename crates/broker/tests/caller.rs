//! Whoever asks through a socket is judged by what encloses him, not by what encloses the one who answers.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use substrate_broker::enclosure::{self, Trace};
use substrate_broker::person::{self, Barrier};
use substrate_broker::process::Identity;
use substrate_broker::{Caller, Choice, Home};

/// Names the socket to connect to for the copies of this program that play the client.
const SOCKET: &str = "CALLER_TEST_SOCKET";
/// Set for a client that a session encloses.
const ENCLOSED: &str = "CALLER_TEST_ENCLOSED";

/// Not a test of its own: the client of the others, in a process of its own.
#[test]
fn client() {
    let Some(socket) = std::env::var_os(SOCKET) else {
        return;
    };
    if std::env::var_os(ENCLOSED).is_some() {
        enclosure::mark();
    }
    let mut stream = UnixStream::connect(socket).unwrap();
    // Until the other side has seen enough.
    let _ = stream.read(&mut [0]);
}

fn start(socket: &Path, enclosed: bool) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "client", "--nocapture"])
        .env(SOCKET, socket)
        .stdout(Stdio::null());
    if enclosed {
        command.env(ENCLOSED, "1");
    }
    command.spawn().unwrap()
}

/// A client and the connection that it made.
fn connected(enclosed: bool) -> (Child, UnixStream) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let child = start(&path, enclosed);
    let (stream, _) = listener.accept().unwrap();
    (child, stream)
}

#[test]
fn a_peer_below_a_session_has_no_more_than_that_session() {
    let (mut child, stream) = connected(true);
    let caller = Caller::peer(&stream).unwrap();
    assert_eq!(caller.pid(), child.id());
    assert!(!caller.is_own() && caller.is_marked());
    let trace = caller.enclosure();
    assert!(trace.is_some(), "the mark is on the peer, not on us");
    assert_eq!(person::barrier(&caller), trace.map(Barrier::Enclosed));
    drop(stream);
    child.wait().unwrap();
}

#[test]
fn a_peer_outside_every_session_has_no_terminal_of_ours() {
    if Caller::own().enclosure().is_some() {
        substrate_rig::does_not_apply("caller", "a session encloses the tests");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    // Below us it would be below the program that asks, which counts as Substrate itself.
    let orphan = Command::new("sh")
        .args(["-c", r#""$0" --exact client >/dev/null &"#])
        .arg(std::env::current_exe().unwrap())
        .env(SOCKET, &path)
        .status();
    assert!(orphan.unwrap().success());
    let (stream, _) = listener.accept().unwrap();
    let caller = Caller::peer(&stream).unwrap();
    assert_eq!(caller.enclosure(), None);
    assert_eq!(person::barrier(&caller), Some(Barrier::NoTerminal));
}

#[test]
fn a_dead_peer_is_nobody() {
    let (mut child, stream) = connected(false);
    let caller = Caller::peer(&stream).unwrap();
    let below = Identity::of(std::process::id()).unwrap();
    assert!(caller.is_below(&below));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!caller.is_alive() && !caller.is_below(&below));
    assert!(caller.identity().is_none() && caller.session().is_none());
    assert!(caller.enclosure().is_some());
    assert!(Caller::peer(&stream).is_err());
}

#[test]
fn grants_of_a_session_count_only_below_it() {
    let (mut one, of_one) = connected(false);
    let (mut other, of_other) = connected(false);
    let session = Caller::peer(&of_one).unwrap().identity().unwrap();
    assert!(Caller::peer(&of_one).unwrap().is_below(&session));
    assert!(!Caller::peer(&of_other).unwrap().is_below(&session));
    assert!(!Caller::own().is_below(&session), "we are above it");
    drop((of_one, of_other));
    one.wait().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_broker_decides_for_its_caller() {
    let (mut child, stream) = connected(true);
    let directory = tempfile::tempdir().unwrap();
    let home = Home {
        path: directory.path().join(".substrate"),
        user: directory.path().to_owned(),
    };
    let options = substrate_broker::Options {
        choice: Choice::Active,
        ceilings: Vec::new(),
        require_approval: false,
        world: None,
        home_variable: None,
        unattended: false,
        session_start: directory.path().to_owned(),
        caller: Caller::peer(&stream).unwrap(),
    };
    let broker = substrate_broker::Broker::open(home, options).unwrap();
    assert_eq!(broker.caller().pid(), child.id());
    assert!(matches!(
        person::barrier(broker.caller()),
        Some(Barrier::Enclosed(
            Trace::Mark | Trace::Ancestor(_) | Trace::Started(_)
        ))
    ));
    drop(stream);
    child.wait().unwrap();
}
