//! Attempts to get more from the service than a session gave.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::service_support::{DIRECT, ENFORCE, Place, text, until};

/// What a program below a session gets from the service by itself.
const CLIENT: &str = "
import socket, sys
def ask(method, path, body=b''):
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1])
    s.sendall(f'{method} {path} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\nContent-Length: {len(body)}\\r\\n\\r\\n'.encode() + body)
    out = b''
    while chunk := s.recv(65536):
        out += chunk
    return out.split(b'\\r\\n\\r\\n', 1)[-1].decode()
";

fn python(place: &Place, program: &str) -> Command {
    let mut command = Command::new("python3");
    with(place, &mut command, program);
    command
}

fn with(place: &Place, command: &mut Command, program: &str) {
    place.sandbox.prepare(command);
    command
        .args(["-c", &format!("{CLIENT}\n{program}")])
        .arg(place.socket());
}

/// The same below a session that cannot be seen: only its mark is left.
fn marked(place: &Place, program: &str) -> Output {
    let mark = 0x5355_4253_5452_4154_u64;
    let mut command = Command::new("prlimit");
    command
        .arg(format!("--rttime={mark}:{mark}"))
        .arg("python3");
    with(place, &mut command, program);
    command.output().unwrap()
}

#[test]
fn a_process_below_a_session_gets_its_session_and_answers_nothing() {
    let place = Place::new(DIRECT);
    place
        .sandbox
        .policy("open", "id: open\nname: Open\nmode: observe\n");
    place.start();
    std::fs::write(place.sandbox.project().join("victim"), "here").unwrap();
    let program = "
import json, os
print(ask('POST', '/v1/execute', json.dumps({'cmd': 'mv victim gone', 'agent_id': 'anybody', 'cwd': os.getcwd(), 'profile': 'open', 'approval': 'refuse'}).encode()))
print(ask('GET', '/v1/approvals'))
print(ask('POST', '/v1/approvals/any', b'{\"answer\":\"once\"}'))
print(ask('POST', '/v1/worlds/warm', b'{}'))
print(ask('POST', '/v1/worlds/restart', b'{}'))
print(ask('GET', '/v1/results'))
print(ask('GET', '/v1/attempts/x'))
print(ask('GET', '/v1/events'))
print(ask('GET', '/v1/trace/-'))
print(ask('GET', '/v1/agents'))
print(ask('GET', '/v1/worlds'))
print(ask('GET', '/v1/status'))
print(ask('POST', '/v1/execute', json.dumps({'cmd': 'true', 'agent_id': 'anybody', 'budget': {'max_execs': 0}}).encode()))
print(ask('POST', '/v1/execute', json.dumps({'cmd': 'true', 'agent_id': 'anybody', 'approval': 'later'}).encode()))
";
    let check = |output: Output| {
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let answers: Vec<Value> = said
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(answers[0]["exit"], 126, "{said}");
        for refused in &answers[1..] {
            assert_eq!(refused["error"]["code"], "forbidden", "{said}");
        }
        assert!(place.sandbox.project().join("victim").exists());
    };
    check(marked(&place, program));
    // Visibly below one: a line of a session on the host.
    let file = place.sandbox.project().join("attack.py");
    std::fs::write(&file, format!("{CLIENT}\n{program}")).unwrap();
    let line = format!("python3 attack.py {}", place.socket().display());
    check(place.run(&["-c", &line]));
    // By another name, after its parents have gone.
    let line = format!(
        "setsid sh -c 'sleep 1; python3 attack.py {} > out' >/dev/null 2>&1 &",
        place.socket().display()
    );
    assert!(place.run(&["-c", &line]).status.success());
    until("it is done", || {
        std::fs::read_to_string(place.sandbox.project().join("out"))
            .is_ok_and(|said| said.lines().count() == 14)
    });
    let said = std::fs::read(place.sandbox.project().join("out")).unwrap();
    check(Output {
        status: Default::default(),
        stdout: said,
        stderr: Vec::new(),
    });
}

#[test]
fn a_process_in_a_world_does_not_reach_the_socket() {
    let place = Place::new(ENFORCE);
    place.start();
    let file = place.sandbox.project().join("attack.py");
    std::fs::write(&file, format!("{CLIENT}\nprint(ask('GET', '/v1/status'))")).unwrap();
    let line = format!("python3 attack.py {}", place.socket().display());
    for answer in [
        place.ran(json!({ "cmd": line })),
        place.ran(json!({ "cmd": format!("ls {}", place.sandbox.home().display()) })),
        place.ran(json!({ "cmd": format!("python3 attack.py {}", place.sandbox.home().join("sock/worlds.sock").display()) })),
    ] {
        assert_ne!(answer["exit"], 0, "{answer}");
        assert_eq!(text(&answer, "stdout_b64"), "", "{answer}");
    }
    // Nor through the descriptors of others: nobody of outside is there.
    let look = place.ran(json!({ "cmd": "ls /proc | grep -c '^[0-9]'; ls -l /proc/1/fd 2>&1" }));
    let said = text(&look, "stdout_b64");
    assert!(!said.contains("socket:"), "{said}");
}

#[test]
fn an_agent_cannot_take_anothers_world_by_its_name() {
    let place = Place::new(ENFORCE);
    place.start();
    place.ran(json!({ "cmd": "echo mine > /tmp/secret", "agent_id": "one" }));
    let other = place.ran(json!({ "cmd": "cat /tmp/secret", "agent_id": "two" }));
    assert_ne!(other["exit"], 0);
    // A person's world serves no agent, and below a session no name opens a kept world at all.
    place.line("echo person > /tmp/secret");
    let human = place.execute(json!({ "cmd": "cat /tmp/secret", "agent_id": "human" }));
    assert_eq!(human.0, 400, "{}", human.1);
    let program = "
import json, os
print(ask('POST', '/v1/execute', json.dumps({'cmd': 'cat /tmp/secret', 'agent_id': 'one', 'cwd': os.getcwd()}).encode()))
";
    let output = marked(&place, program);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_ne!(answer["exit"], 0, "{answer}");
}

#[test]
fn another_user_is_not_heard() {
    let place = Place::new(DIRECT);
    place.start();
    if !rustix::process::geteuid().is_root() {
        return crate::common::skip(
            "another_user_is_not_heard",
            "only root can be somebody else",
        );
    }
    let open = |path: &std::path::Path| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
    };
    // As if the directories were open to everybody.
    for path in [
        place.sandbox.home().parent().unwrap(),
        &place.sandbox.home(),
        &place.sandbox.home().join("sock"),
        &place.socket(),
    ] {
        open(path);
    }
    let mut command = python(&place, "print(ask('GET', '/v1/status'))");
    let output = command
        .uid(65534)
        .gid(65534)
        .current_dir("/")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!said.contains("uptime"), "{said}");
}

#[test]
fn a_peer_that_has_ended_gets_nothing() {
    let place = Place::new(DIRECT);
    place.start();
    // Sends its request and is gone before anybody can ask who it was; its child holds the connection.
    let program = "
import os, time
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
if os.fork():
    os._exit(0)
time.sleep(0.5)
body = b'{\"cmd\":\"touch reached\",\"agent_id\":\"a\",\"cwd\":\"' + os.getcwd().encode() + b'\"}'
s.sendall(b'POST /v1/execute HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: %d\\r\\n\\r\\n' % len(body) + body)
s.settimeout(10)
print(s.recv(65536).decode())
";
    let output = python(&place, program).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.is_empty() || said.contains("403") || said.contains("126"),
        "{said}"
    );
    assert!(!place.sandbox.project().join("reached").exists(), "{said}");
}
