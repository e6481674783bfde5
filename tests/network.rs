//! The network of worlds through the command line: what passes, what is refused, what is said and
//! what is recorded. All servers are on this machine's loopback, under names of the policy's own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};

use crate::common::{Sandbox, script, skip};

/// An HTTP server on loopback: `/N` answers with N bytes. The thread ends with the test process.
fn serve() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(&stream).lines();
                let first = lines.next().and_then(Result::ok).unwrap_or_default();
                while lines
                    .next()
                    .and_then(Result::ok)
                    .is_some_and(|l| !l.is_empty())
                {}
                let path = first
                    .split(' ')
                    .nth(1)
                    .unwrap_or("/")
                    .trim_start_matches('/');
                let size: usize = path.parse().unwrap_or(2);
                let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {size}\r\n\r\n");
                let mut out = &stream;
                let _ = out.write_all(head.as_bytes());
                let _ = out.write_all(&vec![b'x'; size]);
            });
        }
    });
    port
}

/// A port where nothing listens.
fn closed_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A sandbox whose worlds know `a.test` and `b.test`, both on loopback.
fn sandbox(mode: &str, net: &str, worlds: &str) -> Sandbox {
    let sandbox = Sandbox::with_policy(&format!(
        "mode: {mode}\nfs: {{ write: [\"$PROJECT/**\"] }}\n\
         net:\n  resolve: {{ a.test: 127.0.0.1, b.test: 127.0.0.1 }}\n{net}\n\
         commands: {{ default: allow }}\nworld: {{ enabled: {worlds} }}\n"
    ));
    // Neither the line nor the guard knows what a program of one's own reaches for.
    script(
        &sandbox.project().join("get"),
        "#!/usr/bin/env python3\n\
         import sys, urllib.request\n\
         host, port = sys.argv[1:3]\n\
         out, path = sys.argv[3:5] or ('/dev/stdout', '')\n\
         url = f'http://{host}:{port}/{path}'\n\
         body = urllib.request.urlopen(url, timeout=20).read()\n\
         open(out, 'wb').write(body)\n",
    );
    sandbox
}

fn lacks(sandbox: &Sandbox, test: &str) -> bool {
    let python = Command::new("python3").arg("--version").output();
    if !python.is_ok_and(|output| output.status.success()) {
        skip(test, "no python3");
        return true;
    }
    let output = sandbox.run(["world", "doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let full = report["level"] == "full";
    if !full {
        skip(test, "this machine has no full worlds");
    }
    !full
}

fn get(sandbox: &Sandbox, host: &str, port: u16, rest: &str) -> Output {
    sandbox.run(["-c", &format!("./get {host} {port} {rest}")])
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_host_that_the_line_names_is_refused_before_anything_starts() {
    let sandbox = sandbox("enforce", "  allowed: [a.test]", "on");
    for line in [
        "curl https://blocked.test/x",
        "wget -q http://blocked.test",
        "curl http://2130706433/",
        "git clone https://blocked.test/r.git",
    ] {
        let output = sandbox.run(["-c", line]);
        assert_eq!(output.status.code(), Some(126), "{line}: {output:?}");
        let host = if line.contains("2130706433") {
            "2130706433"
        } else {
            "blocked.test"
        };
        let text = said(&output);
        assert!(
            text.contains(host)
                && text.contains("test.yaml:7")
                && text.contains("is not an allowed host"),
            "{line}: {text}"
        );
    }
    let outcomes: Vec<_> = sandbox.events("policy_violation");
    assert_eq!(outcomes.len(), 4);
    assert!(sandbox.events("command_start").is_empty());
}

#[test]
fn names_pass_or_are_refused_aloud_and_both_are_recorded() {
    let port = serve();
    let sandbox = sandbox("enforce", &format!("  allowed: [\"a.test:{port}\"]"), "on");
    if lacks(
        &sandbox,
        "names_pass_or_are_refused_aloud_and_both_are_recorded",
    ) {
        return;
    }
    let output = get(&sandbox, "a.test", port, "");
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(0), &b"xx"[..]),
        "{output:?}"
    );
    assert_eq!(said(&output), "");
    let done = sandbox.events("command_complete").pop().unwrap();
    assert_eq!(done["enforced"]["net"], "gate");
    let scope = serde_json::json!(format!("tcp:a.test:{port}"));
    assert!(
        done["scopes_used"].as_array().unwrap().contains(&scope),
        "{done}"
    );
    let used = &done["net"][0];
    assert_eq!(
        (&used["host"], &used["port"], &used["refused"]),
        (&"a.test".into(), &port.into(), &0.into())
    );
    assert!(
        used["tx"].as_u64() > Some(20) && used["rx"].as_u64() > Some(20),
        "{used}"
    );

    // The neighbour at the same address, the address itself, another port.
    let output = get(&sandbox, "b.test", port, "");
    assert_ne!(output.status.code(), Some(0), "{output:?}");
    assert!(
        said(&output).contains("network: b.test: not in net.allowed"),
        "{}",
        said(&output)
    );
    let refused = sandbox.events("policy_violation").pop().unwrap();
    let attempt = &refused["attempt"];
    assert_eq!(
        (&attempt["host"], &attempt["why"]),
        (&"b.test".into(), &"not-allowed".into())
    );
    assert_eq!(refused["outcome"], "deny");
    assert!(
        attempt["program"].as_str().unwrap().contains("python"),
        "{attempt}"
    );
    assert!(attempt["pid"].as_u64() > Some(1), "{attempt}");
    let done = sandbox.events("command_complete").pop().unwrap();
    assert_eq!(refused["span_id"], done["span_id"]);
    assert!(done["net"][0]["refused"].as_u64() > Some(0), "{done}");
    let shown = sandbox.run(["trace", "show", "-"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains("b.test: not in net.allowed") && shown.contains("python"),
        "{shown}"
    );
    assert_ne!(get(&sandbox, "127.0.0.1", port, "").status.code(), Some(0));
    let other = serve();
    let output = get(&sandbox, "a.test", other, "");
    assert_ne!(output.status.code(), Some(0));
    assert!(
        said(&output).contains(&format!("a.test:{other}")),
        "{}",
        said(&output)
    );
    assert_eq!(get(&sandbox, "a.test", port, "").status.code(), Some(0));
}

#[test]
fn a_name_is_told_once_and_a_flood_of_names_briefly() {
    let sandbox = sandbox("enforce", "  allowed: [a.test]", "on");
    if lacks(&sandbox, "a_name_is_told_once_and_a_flood_of_names_briefly") {
        return;
    }
    script(
        &sandbox.project().join("many"),
        "#!/usr/bin/env python3\n\
         import socket\n\
         for name in ['same.test'] * 3 + [f'n{i}.test' for i in range(1, 41)]:\n\
         \x20   try: socket.gethostbyname(name)\n\
         \x20   except OSError: pass\n",
    );
    let output = sandbox.run(["-c", "./many"]);
    let text = said(&output);
    assert_eq!(text.matches("same.test").count(), 1, "{text}");
    assert!(
        text.lines().count() < 20 && text.contains("more was refused"),
        "{text}"
    );
    let names = sandbox.events("policy_violation");
    assert_eq!(
        names
            .iter()
            .filter(|e| e["attempt"]["host"] == "n40.test")
            .count(),
        1
    );
}

#[test]
fn what_is_allowed_and_down_is_said_and_recorded() {
    let port = closed_port();
    let sandbox = sandbox("enforce", &format!("  allowed: [\"a.test:{port}\"]"), "on");
    if lacks(&sandbox, "what_is_allowed_and_down_is_said_and_recorded") {
        return;
    }
    let output = get(&sandbox, "a.test", port, "");
    assert_ne!(output.status.code(), Some(0));
    assert!(
        said(&output).contains(&format!("network: a.test:{port}: ")),
        "{}",
        said(&output)
    );
    let event = sandbox.events("world_event").pop().unwrap();
    assert_eq!(event["action"], "unreachable");
    let done = sandbox.events("command_complete").pop().unwrap();
    assert!(
        done["scopes_used"].to_string().find("a.test").is_none(),
        "{done}"
    );
    assert!(
        sandbox.events("policy_violation").is_empty(),
        "not reached is not refused"
    );
}

#[test]
fn observing_lets_everything_pass_and_records_it() {
    let port = serve();
    let sandbox = sandbox(
        "observe",
        "  allowed: [a.test]\n  egress_budget: { total_bytes: 100 }",
        "on",
    );
    if lacks(&sandbox, "observing_lets_everything_pass_and_records_it") {
        return;
    }
    let output = get(&sandbox, "b.test", port, "/dev/null 5000");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(said(&output), "");
    let events = sandbox.events("policy_violation");
    let why = |word: &str| {
        events
            .iter()
            .any(|e| e["outcome"] == "would_deny" && e["attempt"]["why"] == word)
    };
    assert!(why("not-allowed") && why("budget"), "{events:#?}");
    let done = sandbox.events("command_complete").pop().unwrap();
    assert_eq!(done["net"][0]["refused"], 0);
}

#[test]
fn the_processes_of_a_session_spend_one_budget() {
    let port = serve();
    let net = format!("  allowed: [\"a.test:{port}\"]\n  egress_budget: {{ total_bytes: 100000 }}");
    let sandbox = sandbox("enforce", &net, "off");
    if lacks(&sandbox, "the_processes_of_a_session_spend_one_budget") {
        return;
    }
    let substrate = env!("CARGO_BIN_EXE_substrate");
    let fetch = format!("{substrate} run --isolated -- ./get a.test {port} /dev/null 60000");
    // A session of the kernel, as a terminal has one.
    let session = |script: &str| {
        let mut command = Command::new("setsid");
        command.args(["-w", "sh", "-c", script]);
        sandbox.prepare(&mut command);
        command.output().unwrap()
    };
    let output = session(&format!("{fetch} && echo first; {fetch} || echo second"));
    assert_eq!(output.stdout, b"first\nsecond\n", "{output:?}");
    assert!(
        said(&output).contains("Egress budget exceeded"),
        "{}",
        said(&output)
    );
    let limit = sandbox.events("rate_limit").pop().unwrap();
    assert_eq!(limit["limit"], "net.egress_budget.total_bytes");
    assert_eq!(
        (&limit["used"], &limit["total"]),
        (&100_000.into(), &100_000.into())
    );
    let passed: u64 = sandbox
        .events("command_complete")
        .iter()
        .flat_map(|done| done["net"].as_array().unwrap().clone())
        .map(|used| used["tx"].as_u64().unwrap() + used["rx"].as_u64().unwrap())
        .sum();
    assert_eq!(passed, 100_000, "to the byte");
    // A session within a session is still the same; another one has its own.
    let below = format!("{fetch} && {substrate} -c 'setsid -w {fetch}'; true");
    let output = session(&below);
    assert_eq!(
        said(&output).matches("Egress budget exceeded").count(),
        1,
        "{output:?}"
    );
    let left = std::fs::read_dir(sandbox.home().join("egress"))
        .unwrap()
        .count();
    assert!(left <= 2, "what ended sessions counted is removed");
}

#[test]
fn proxies_are_the_gates_business_and_their_problems_are_said() {
    let sandbox = sandbox("enforce", "  allowed: [a.test]", "on");
    if lacks(
        &sandbox,
        "proxies_are_the_gates_business_and_their_problems_are_said",
    ) {
        return;
    }
    let output = sandbox
        .substrate()
        .args(["-c", "env | grep -i _proxy; echo MINE=$MINE"])
        .env("https_proxy", "socks5://127.0.0.1:1080")
        .env("NO_PROXY", "localhost")
        .env("MINE", "kept")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "MINE=kept\n");
    assert!(
        said(&output).contains("https_proxy is not used"),
        "{}",
        said(&output)
    );
    let done = sandbox.events("command_complete").pop().unwrap();
    let degraded = done["enforced"]["degraded"].to_string();
    assert!(degraded.contains("https_proxy"), "{degraded}");
}

#[test]
fn a_network_that_is_not_isolated_is_said_to_be_the_hosts() {
    let port = serve();
    let sandbox = sandbox(
        "enforce",
        &format!("  allowed: [\"host-loopback:{port}\"]"),
        "on, isolate_network: false",
    );
    if lacks(
        &sandbox,
        "a_network_that_is_not_isolated_is_said_to_be_the_hosts",
    ) {
        return;
    }
    let output = get(&sandbox, "127.0.0.1", port, "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let done = sandbox.events("command_complete").pop().unwrap();
    assert_eq!(done["enforced"]["net"], "host", "{done}");
    let shown = sandbox.run(["trace", "show", "-"]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("net host"));
}

#[test]
fn unix_sockets_of_the_host_are_masked() {
    let sandbox = sandbox("enforce", "  allowed: [a.test]", "on");
    if lacks(&sandbox, "unix_sockets_of_the_host_are_masked") {
        return;
    }
    let path = sandbox.project().join("outside.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"outside");
        }
    });
    let talk = |serve: bool, name: &str| {
        let own = "l = socket.socket(socket.AF_UNIX); l.bind(name); l.listen()\n\
             threading.Thread(target=lambda: l.accept()[0].sendall(b'inside'), daemon=True).start()\n";
        let code = format!(
            "import socket, threading\nname = {name:?}\n{}s = socket.socket(socket.AF_UNIX)\n\
             s.connect(name)\nprint(s.recv(9).decode())\n",
            if serve { own } else { "" }
        );
        std::fs::write(sandbox.project().join("talk.py"), code).unwrap();
        sandbox.run(["-c", "python3 talk.py"])
    };
    let output = talk(false, path.to_str().unwrap());
    assert_ne!(output.status.code(), Some(0), "{output:?}");
    let output = talk(true, "inside.sock");
    assert_eq!(output.stdout, b"inside\n", "{output:?}");
}

#[test]
fn a_policy_that_gets_stricter_holds_a_command_that_runs() {
    let sandbox = sandbox("enforce", "  allowed: [\"a.test:*\", \"b.test:*\"]", "on");
    if lacks(
        &sandbox,
        "a_policy_that_gets_stricter_holds_a_command_that_runs",
    ) {
        return;
    }
    // A server that keeps its connections.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut byte = [0];
                while (&stream).read(&mut byte).is_ok_and(|got| got == 1) {
                    let _ = (&stream).write_all(&byte);
                }
            });
        }
    });
    script(
        &sandbox.project().join("keep"),
        "#!/usr/bin/env python3\n\
         import socket, sys, time\n\
         def alive(s):\n\
         \x20   try: s.sendall(b'x'); return s.recv(1) == b'x'\n\
         \x20   except OSError: return False\n\
         kept = [socket.create_connection((h, int(sys.argv[1]))) for h in ('a.test', 'b.test')]\n\
         assert all(map(alive, kept))\n\
         print('ready', flush=True)\n\
         end = time.time() + 10\n\
         while alive(kept[0]) and time.time() < end: time.sleep(0.1)\n\
         print('kept', alive(kept[0]), alive(kept[1]))\n\
         for h in ('a.test', 'b.test'):\n\
         \x20   try: print(h, alive(socket.create_connection((h, int(sys.argv[1])))))\n\
         \x20   except OSError: print(h, False)\n",
    );
    let mut command = sandbox.substrate();
    command.args(["-c", &format!("./keep {port}")]);
    let mut running = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let path = sandbox.home().join("policies/test.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"a.test:*\", ", "")).unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(rest, ["kept False True", "a.test False", "b.test True"]);
    running.wait().unwrap();
}

#[test]
fn udp_is_refused_when_the_policy_is_read() {
    let sandbox = Sandbox::new();
    let path = sandbox.policy(
        "udp",
        "id: udp\nname: U\nnet:\n  allowed: [a.test]\n  allow_udp: [\"a.test:53\"]\n",
    );
    let output = sandbox.run(["policy", "validate", path.to_str().unwrap()]);
    assert_ne!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(
        text.contains("UDP cannot be let out of a world") && text.contains("udp.yaml:5"),
        "{text}"
    );
}

#[test]
fn the_doctor_says_what_the_network_gives() {
    let sandbox = Sandbox::with_policy("mode: observe\n");
    let output = sandbox
        .substrate()
        .args(["doctor", "--json"])
        .env("https_proxy", "http://user:hunter-two@proxy.test:3128")
        .output()
        .unwrap();
    let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = |name: &str| {
        let rows = rows.as_array().unwrap().iter();
        rows.clone()
            .find(|row| row["check"] == name)
            .unwrap()
            .clone()
    };
    assert!(
        row("host resolver")["found"]
            .as_str()
            .unwrap()
            .contains(":53")
    );
    assert!(
        row("proxy")["found"]
            .as_str()
            .unwrap()
            .contains("proxy.test:3128")
    );
    assert!(!String::from_utf8_lossy(&output.stdout).contains("hunter-two"));
    let gate = row("network gate");
    if gate["state"] == "ok" {
        assert!(
            gate["found"].as_str().unwrap().contains("nftables"),
            "{gate}"
        );
    } else {
        skip(
            "the_doctor_says_what_the_network_gives",
            "the gate is limited here",
        );
    }
}

#[test]
fn a_published_port_lives_and_dies_with_its_world() {
    let port = closed_port();
    let sandbox = sandbox(
        "enforce",
        "  allowed: [a.test]",
        &format!("on, publish: [{port}]"),
    );
    if lacks(&sandbox, "a_published_port_lives_and_dies_with_its_world") {
        return;
    }
    std::fs::write(sandbox.project().join("file"), "from the world\n").unwrap();
    let line = format!("exec python3 -m http.server {port} --bind 127.0.0.1");
    let mut child = sandbox
        .substrate()
        .args(["-c", &line])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let fetch = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.write_all(b"GET /file HTTP/1.0\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.ends_with("from the world\n").then_some(())
    };
    eventually("the world's server answers", || fetch().is_some());
    // Without its gate the world has no network; the rest of the machine keeps its own.
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the port is closed", || {
        TcpStream::connect(("127.0.0.1", port)).is_err()
    });
    assert!(TcpStream::connect(("127.0.0.1", serve())).is_ok());
}

/// Waits until something is true, for at most half a minute.
fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    for _ in 0..600 {
        if is() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("never: {what}");
}
