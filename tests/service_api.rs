//! The API as its clients meet it.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::{script, skip};
use crate::service_support::{DIRECT, ENFORCE, Place, text, until};

/// Runs curl as somebody would who has only read the documentation.
fn curl(place: &Place, path: &str, rest: &[&str]) -> (u16, Value) {
    let output = Command::new("curl")
        .args(["-s", "-w", "\n%{http_code}", "--unix-socket"])
        .arg(place.socket())
        .args(rest)
        .arg(format!("http://localhost{path}"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.trim_end().rsplit_once('\n').unwrap();
    let body = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"));
    (status.parse().unwrap(), body)
}

#[test]
fn the_calls_of_the_first_description_work_as_they_stand_there() {
    let place = Place::new(DIRECT);
    place.start();
    std::fs::create_dir(place.sandbox.home().join("bin")).unwrap();
    script(
        &place.sandbox.home().join("bin/npm"),
        "#!/bin/sh\necho \"npm $*\"; echo note >&2\n",
    );
    let mut stop = place.command();
    stop.args(["daemon", "stop"]).output().unwrap();
    let path = format!(
        "{}/bin:{}",
        place.sandbox.home().display(),
        std::env::var("PATH").unwrap()
    );
    let started = place
        .command()
        .env("PATH", path)
        .args(["daemon", "start"])
        .output()
        .unwrap();
    assert!(started.status.success(), "{started:?}");
    let call = [
        "-X",
        "POST",
        "-d",
        r#"{"cmd":"npm test","agent_id":"claude"}"#,
    ];
    let (status, answer) = curl(&place, "/v1/execute", &call);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["exit"], 0, "{answer}");
    assert_eq!(text(&answer, "stdout_b64"), "npm test\n");
    assert_eq!(text(&answer, "stderr_b64"), "note\n");
    assert!(answer["span_id"].as_str().unwrap().starts_with("spn_"));
    assert!(answer["scopes_used"].is_array());
    assert_eq!(answer.get("fs_diff"), None, "{answer}");
    let (status, found) = curl(&place, "/v1/capabilities", &[]);
    assert_eq!((status, &found["api"]), (200, &json!([1])));
    let span = answer["span_id"].as_str().unwrap();
    let (status, trace) = curl(&place, &format!("/v1/trace/{span}"), &[]);
    assert_eq!(status, 200);
    let kinds: Vec<&Value> = trace["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["event_type"])
        .collect();
    assert_eq!(kinds, ["command_start", "command_complete"]);
    assert_eq!(trace["events"][0]["agent_id"], "claude");
    assert_eq!(curl(&place, "/v1/trace/spn_none", &[]).0, 404);
}

#[test]
fn requests_that_make_no_sense_are_refused_with_a_sentence() {
    let place = Place::new(DIRECT);
    place.start();
    let required = "agent_id is required for API calls";
    let long = "x".repeat(65);
    for (body, status, says) in [
        (r#"{"cmd":"true"}"#, 400, required),
        (r#"{"cmd":"true","agent_id":""}"#, 400, required),
        (
            r#"{"cmd":"true","agent_id":"../x"}"#,
            400,
            "agent_id: 1 to 64",
        ),
        (
            &format!(r#"{{"cmd":"true","agent_id":"{long}"}}"#),
            400,
            "agent_id: 1 to 64",
        ),
        (r#"{"agent_id":"a"}"#, 400, "either `cmd`"),
        (
            r#"{"agent_id":"a","cmd":"x","argv":["y"]}"#,
            400,
            "either `cmd`",
        ),
        (
            r#"{"agent_id":"a","cmd":"x","cwd":"relative"}"#,
            400,
            "cwd: an absolute path",
        ),
        (
            r#"{"agent_id":"a","cmd":"x","cwd":"/nonexistent"}"#,
            400,
            "cwd: an absolute path",
        ),
        (
            r#"{"agent_id":"a","cmd":"x","env":{"A=B":"c"}}"#,
            400,
            "cannot be a variable",
        ),
        (
            r#"{"agent_id":"a","cmd":"x","profile":"../../x"}"#,
            400,
            "profile: the id",
        ),
        (
            r#"{"agent_id":"a","cmd":"x","stdin_b64":"?"}"#,
            400,
            "bad base64",
        ),
        (
            r#"{"agent_id":"a","cmd":"x","v":2}"#,
            400,
            "speaks version 1, not 2",
        ),
        (
            r#"{"agent_id":"a","cmd":"x","sudo":true}"#,
            400,
            "unknown field `sudo`",
        ),
        (r#"{"agent_id":"a","cmd":1}"#, 400, "not what is expected"),
        ("{", 400, "not what is expected"),
        ("\u{fffd}", 400, "not what is expected"),
        (r#"{"agent_id":"a","cmd":"a\u0000b"}"#, 400, "NUL"),
    ] {
        let answer = place.send("POST", "/v1/execute", body.as_bytes());
        let error: Value = serde_json::from_slice(&answer.body).unwrap();
        let message = error["error"]["message"].as_str().unwrap();
        assert_eq!(answer.status, status, "{body}: {error}");
        assert!(message.contains(says), "{body}: {error}");
        assert_eq!(error["v"], 1);
    }
    for (method, path, status) in [
        ("GET", "/v1/execute", 405),
        ("POST", "/v1/stream", 405),
        ("GET", "/v1/stream", 400),
        ("GET", "/", 404),
        ("GET", "/v1/attempts/att_none", 404),
        ("GET", "/v1/results/none", 404),
    ] {
        let answer = place.send(method, path, b"");
        assert_eq!(answer.status, status, "{method} {path}");
        let error: Value = serde_json::from_slice(&answer.body).unwrap();
        assert!(
            error["error"]["message"].is_string(),
            "{method} {path}: {error}"
        );
    }
    assert!(place.sandbox.trace().is_empty(), "nothing of it ran");
}

#[test]
fn a_command_gets_what_the_request_says_and_every_byte_arrives() {
    let place = Place::new(DIRECT);
    place.start();
    let every: Vec<u8> = (0..=255).collect();
    let encoded = substrate_text::base64::encode(&every);
    let answer = place.ran(json!({ "cmd": "cat; cat /dev/null", "stdin_b64": encoded }));
    assert_eq!(answer["stdout_b64"], encoded.as_str());
    let answer = place.ran(json!({ "argv": ["printf", "%s|", "a b", "$HOME", ""] }));
    assert_eq!(text(&answer, "stdout_b64"), "a b|$HOME||");
    let answer = place.ran(json!({
        "cmd": "printf '%s' \"$X-$SUBSTRATE_AGENT_ID\"; pwd", "cwd": "/usr",
        "env": { "X": { "b64": "/w==" }, "SUBSTRATE_AGENT_ID": "forged" }
    }));
    assert_eq!(
        answer["stdout_b64"],
        substrate_text::base64::encode(b"\xff-tester/usr\n").as_str()
    );
    let answer = place.ran(json!({ "cmd": "exit 9" }));
    assert_eq!(answer["exit"], 9);
    let answer = place.ran(json!({ "cmd": "kill -9 $$" }));
    assert_eq!(
        (&answer["exit"], &answer["signal"]),
        (&json!(137), &json!(9))
    );
    let answer = place.ran(json!({ "cmd": "head -c 20000000 /dev/zero" }));
    assert_eq!(answer["truncated"], true);
    let answer =
        place.ran(json!({ "cmd": "tty; stty size; ls --color=auto /; exit 3", "pty": true }));
    let shown = text(&answer, "stdout_b64");
    assert!(
        shown.starts_with("/dev/pts/") && shown.contains("24 80"),
        "{shown}"
    );
    assert_eq!(answer["exit"], 3);
    // What it leaves in the background neither holds up the answer nor dies of it.
    let begun = Instant::now();
    let answer =
        place.ran(json!({ "cmd": "(sleep 2; echo late; echo there > late) & echo early" }));
    assert_eq!(text(&answer, "stdout_b64"), "early\n");
    assert!(begun.elapsed() < Duration::from_secs(2));
    until("the background ends", || {
        place.sandbox.project().join("late").exists()
    });
}

#[test]
fn what_is_refused_is_an_answer_that_says_by_which_rule() {
    for policy in [ENFORCE, DIRECT] {
        let place = Place::new(policy);
        place.start();
        let answer = place.ran(json!({ "cmd": "mv a b" }));
        assert_eq!(answer["exit"], 126, "{answer}");
        let verdict = &answer["verdict"];
        assert_eq!(verdict["verdict"], "deny");
        assert_eq!(verdict["rule"]["pattern"], "mv *");
        assert_eq!(verdict["rule"]["list"], "commands.denied");
        assert_eq!(verdict["rule"]["line"], 4);
        assert!(
            answer["notices"][0]
                .as_str()
                .unwrap()
                .contains("denied by policy 'test'")
        );
        assert_eq!(verdict["policy"], "test");
        let hash = verdict["policy_sha256"].as_str().unwrap().to_owned();
        let answer = place.ran(json!({ "cmd": "echo x > made; true", "expect_policy": hash }));
        assert_eq!(answer["exit"], 0, "{answer}");
        let diff = answer["fs_diff"].to_string();
        assert!(diff.contains("/made"), "{answer}");
        let (status, error) = place.execute(json!({ "cmd": "true", "expect_policy": "0" }));
        assert_eq!((status, &error["error"]["code"]), (409, &json!("conflict")));
    }
}

#[test]
fn a_profile_narrows_and_never_widens() {
    let place = Place::new(DIRECT);
    place
        .sandbox
        .policy("open", "id: open\nname: Open\nmode: observe\n");
    let strict = DIRECT.replace("mv *", "touch *");
    place
        .sandbox
        .policy("strict", &format!("id: strict\nname: Strict\n{strict}"));
    place.start();
    let exit = |request: Value| place.ran(request)["exit"].clone();
    assert_eq!(exit(json!({ "cmd": "mv a b", "profile": "open" })), 126);
    assert_eq!(exit(json!({ "cmd": "mv a b", "profile": "strict" })), 126);
    assert_eq!(exit(json!({ "cmd": "touch a", "profile": "strict" })), 126);
    assert_eq!(exit(json!({ "cmd": "touch a" })), 0);
    let (status, error) = place.execute(json!({ "cmd": "true", "profile": "nobody" }));
    assert_eq!(status, 400, "{error}");
}

#[test]
fn fifty_calls_of_ten_that_are_allowed_are_ten() {
    let place = Place::new(DIRECT);
    place.start();
    let call = || place.execute(json!({ "cmd": "true", "budget": { "max_execs": 10 } }));
    let answers: Vec<(u16, Value)> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..50).map(|_| scope.spawn(call)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let ran = answers.iter().filter(|(status, _)| *status == 200).count();
    assert_eq!(ran, 10);
    let (_, refused) = answers.iter().find(|(status, _)| *status == 429).unwrap();
    assert_eq!(
        refused["error"]["message"],
        "Budget exceeded: max executions reached"
    );
    let limits = place.sandbox.events("rate_limit");
    assert_eq!(limits.len(), 40);
    assert_eq!(limits[0]["limit"], "max_execs");
    assert_eq!(limits[0]["reason"], "budget_exceeded");
    assert_eq!(
        (&limits[0]["used"], &limits[0]["total"]),
        (&json!(10), &json!(10))
    );
    assert_eq!(refused["error"]["span_id"].as_str().unwrap().len(), 40);
    // It outlives the service, and asking for more does not give more.
    place.run(&["daemon", "stop"]);
    place.start();
    let more = place.execute(json!({ "cmd": "true", "budget": { "max_execs": 1000 } }));
    assert_eq!(more.0, 429);
    let other = place.execute(json!({ "cmd": "true", "agent_id": "other" }));
    assert_eq!(other.0, 200);
    let agents = place.get("/v1/agents");
    assert_eq!(agents["agents"][1]["execs"], 10, "{agents}");
}

#[test]
fn time_that_is_over_ends_a_command_and_all_it_started() {
    for policy in [ENFORCE, DIRECT] {
        let place = Place::new(policy);
        place.start();
        let begun = Instant::now();
        let answer = place.ran(json!({ "cmd": "sleep 1000; true", "timeout_ms": 300 }));
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert_eq!(answer["limit"], "timeout_ms", "{answer}");
        assert_ne!(answer["exit"], 0);
        let budget = json!({ "max_runtime_ms": 700 });
        let answer =
            place.ran(json!({ "cmd": "sleep 1000; true", "budget": budget, "agent_id": "b" }));
        assert_eq!(answer["limit"], "budget.max_runtime_ms", "{answer}");
        let (status, error) = place.execute(json!({ "cmd": "true", "agent_id": "b" }));
        assert_eq!(status, 429);
        assert_eq!(
            error["error"]["message"],
            "Budget exceeded: max runtime reached"
        );
        // Time that was not used comes back.
        let budget = json!({ "max_runtime_ms": 100_000 });
        place.ran(json!({ "cmd": "true", "budget": budget, "agent_id": "c" }));
        let agents = place.get("/v1/agents");
        let third = &agents["agents"].as_array().unwrap()[1];
        assert!(third["runtime_ms"].as_u64().unwrap() < 5000, "{agents}");
    }
}

#[test]
fn a_question_waits_for_its_answer_in_each_way_that_a_client_may_choose() {
    let place = Place::new(DIRECT);
    place.start();
    script(
        &place.sandbox.home().join("git"),
        "#!/bin/sh\necho \"pushed $*\"\n",
    );
    let path = format!("{}:/usr/bin:/bin", place.sandbox.home().display());
    let push = |approval: &str| json!({ "cmd": "git push origin", "approval": approval, "env": { "PATH": path } });
    let answer = place.ran(push("refuse"));
    assert_eq!(answer["exit"], 126, "{answer}");
    // Later: a place to ask again.
    let (status, pending) = place.execute(push("later"));
    assert_eq!(status, 202, "{pending}");
    assert_eq!(pending["state"], "asking");
    let waiting = place.get("/v1/approvals");
    assert_eq!(waiting["waiting"][0]["id"], pending["approval"]);
    assert_eq!(waiting["waiting"][0]["agent_id"], "tester");
    let shown = place.run(&["approvals", "pending"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("git push origin"), "{shown}");
    let question = format!("/v1/approvals/{}", pending["approval"].as_str().unwrap());
    let attempt = format!("/v1/attempts/{}", pending["attempt"].as_str().unwrap());
    assert_eq!(place.send("GET", &attempt, b"").status, 202);
    let (status, error) = place.post(&question, &json!({ "answer": "always" }));
    assert_eq!(status, 400, "a client does not answer for longer: {error}");
    let (status, answered) = place.post(&question, &json!({ "answer": "once" }));
    assert_eq!((status, &answered["by"]), (200, &json!("client")));
    until("it has run", || {
        place.send("GET", &attempt, b"").status == 200
    });
    let done = place.get(&attempt);
    assert_eq!(text(&done, "stdout_b64"), "pushed push origin\n");
    // Waiting: the request itself is answered.
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| place.ran(push("wait")));
        until("it waits", || {
            place.get("/v1/approvals")["waiting"][0].is_object()
        });
        let id = place.get("/v1/approvals")["waiting"][0]["id"].clone();
        let path = format!("/v1/approvals/{}", id.as_str().unwrap());
        assert_eq!(place.post(&path, &json!({ "answer": "refuse" })).0, 200);
        assert_eq!(waits.join().unwrap()["exit"], 126);
    });
    let mut short = push("wait");
    short["approval_timeout_ms"] = json!(200);
    assert_eq!(place.ran(short)["exit"], 126, "nobody answered");
    let outcomes: Vec<Value> = place
        .sandbox
        .events("approval")
        .iter()
        .map(|event| event["outcome"].clone())
        .collect();
    assert_eq!(outcomes, ["nobody", "once", "refused", "nobody"]);
    assert_eq!(place.get("/v1/approvals")["waiting"], json!([]));
    // A client that leaves takes its question along.
    let mut stream = place.connect();
    let body = push("wait")
        .to_string()
        .replace("\"cmd\"", "\"agent_id\":\"tester\",\"cmd\"");
    write!(
        stream,
        "POST /v1/execute HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    until("it waits", || {
        place.get("/v1/approvals")["waiting"][0].is_object()
    });
    drop(stream);
    until("it is gone", || {
        place.get("/v1/approvals")["waiting"] == json!([])
    });
}

/// Whoever waits for a person keeps no place among the commands that run.
#[test]
fn any_number_of_questions_keeps_nobody_from_running() {
    let place = Place::new(DIRECT);
    place.start();
    let asked: Vec<Value> = (0..80)
        .map(|n| {
            let push = json!({ "cmd": format!("git push origin {n}"), "approval": "later" });
            place.execute(push).1
        })
        .collect();
    assert!(
        asked.iter().all(|one| one["state"] == "asking"),
        "{asked:?}"
    );
    assert_eq!(place.ran(json!({ "cmd": "true" }))["exit"], 0);
    for one in asked {
        let question = format!("/v1/approvals/{}", one["approval"].as_str().unwrap());
        assert_eq!(place.post(&question, &json!({ "answer": "refuse" })).0, 200);
    }
    until("all are over", || place.get("/v1/status")["running"] == 0);
    assert_eq!(place.ran(json!({ "cmd": "true" }))["exit"], 0);
}

#[test]
fn a_key_is_run_once_however_often_it_is_sent() {
    let place = Place::new(DIRECT);
    place.start();
    let body = |cmd: &str| {
        let cwd = place.sandbox.project();
        json!({ "cmd": cmd, "agent_id": "a", "cwd": cwd.to_str() }).to_string()
    };
    let send = |body: &str| {
        let header = "Idempotency-Key: one";
        curl(&place, "/v1/execute", &["-H", header, "-d", body])
    };
    let first = send(&body("echo x >> runs; cat runs"));
    let again = send(&body("echo x >> runs; cat runs"));
    assert_eq!(first, again);
    assert_eq!(text(&again.1, "stdout_b64"), "x\n");
    assert_eq!(send(&body("true")).0, 409);
    let attempt = format!("/v1/attempts/{}", first.1["attempt"].as_str().unwrap());
    assert_eq!(place.get(&attempt), first.1);
}

#[test]
fn who_hangs_up_ends_his_command_and_who_deletes_an_attempt_does_too() {
    let place = Place::new(DIRECT);
    place.start();
    let pid_file = place.sandbox.project().join("pid");
    let body = json!({ "cmd": "echo $$ > pid; exec sleep 1000", "agent_id": "a",
                       "cwd": place.sandbox.project().to_str() })
    .to_string();
    let alive = || {
        let pid = std::fs::read_to_string(&pid_file).unwrap_or_default();
        pid.trim()
            .parse()
            .is_ok_and(crate::service_support::is_alive)
    };
    let mut stream = place.connect();
    write!(
        stream,
        "POST /v1/execute HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    until("it runs", alive);
    drop(stream);
    until("it ends", || !alive());
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            curl(
                &place,
                "/v1/execute",
                &["-H", "Idempotency-Key: k", "-d", &body],
            )
        });
        until("it runs", alive);
        let attempts = || place.get("/v1/status")["running"] == 1;
        until("it counts", attempts);
        let answer = curl(
            &place,
            "/v1/execute",
            &[
                "-m",
                "1",
                "-H",
                "Idempotency-Key: k",
                "-X",
                "POST",
                "-d",
                "{}",
            ],
        );
        assert_eq!(answer.0, 400);
        Command::new("kill")
            .arg(std::fs::read_to_string(&pid_file).unwrap().trim())
            .status()
            .unwrap();
        assert_eq!(waits.join().unwrap().1["signal"], 15);
    });
}

#[test]
fn garbage_slow_senders_and_floods_hurt_nobody_else() {
    let place = Place::new(DIRECT);
    place.start();
    for garbage in [
        &b"\x00\xff\x16\x03\x01"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/execute HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /v1/execute HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/execute HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"GET /v1/stream HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    ] {
        let mut stream = place.connect();
        stream.write_all(garbage).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    // A head that never ends, a body that never comes, one that is too long.
    let mut slow: Vec<_> = (0..20).map(|_| place.connect()).collect();
    for stream in &mut slow {
        stream
            .write_all(b"POST /v1/execute HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n")
            .unwrap();
    }
    let large = place.send("POST", "/v1/execute", &vec![b' '; 17 << 20]);
    assert_eq!(large.status, 413);
    let before = place.get("/v1/status")["memory_bytes"].as_u64().unwrap();
    for _ in 0..20 {
        place.ran(json!({ "cmd": "head -c 3000000 /dev/zero" }));
    }
    let after = place.get("/v1/status")["memory_bytes"].as_u64().unwrap();
    assert!(after < before + (300 << 20), "{before} {after}");
    assert_eq!(place.ran(json!({ "cmd": "true" }))["exit"], 0);
}

#[test]
fn many_clients_lose_nothing_and_get_their_own_answers() {
    for policy in [ENFORCE, DIRECT] {
        let place = Place::new(policy);
        place.start();
        let spans: BTreeSet<String> = std::thread::scope(|scope| {
            let client = |number: usize| {
                let place = &place;
                move || -> Vec<String> {
                    let one = |round: usize| {
                        let word = format!("{number}-{round}");
                        let agent = format!("a{}", number % 2);
                        let answer =
                            place.ran(json!({ "cmd": format!("echo {word}"), "agent_id": agent }));
                        assert_eq!(text(&answer, "stdout_b64"), format!("{word}\n"), "{answer}");
                        answer["span_id"].as_str().unwrap().to_owned()
                    };
                    (0..10).map(one).collect()
                }
            };
            let all: Vec<_> = (0..24).map(|number| scope.spawn(client(number))).collect();
            all.into_iter()
                .flat_map(|one| one.join().unwrap())
                .collect()
        });
        assert_eq!(spans.len(), 240);
        let complete = place.sandbox.events("command_complete");
        let recorded: BTreeSet<String> = complete
            .iter()
            .map(|event| event["span_id"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(recorded, spans);
        assert_eq!(place.get("/v1/status")["running"], 0);
    }
}

#[test]
fn events_come_as_they_are_written_and_go_on_where_a_client_was() {
    let place = Place::new(DIRECT);
    place.start();
    let mut listen = Command::new("curl");
    listen
        .args(["-s", "-N", "-m", "60", "--unix-socket"])
        .arg(place.socket());
    let read = |extra: &[&str], wanted: usize| {
        let mut listen = Command::new("curl");
        listen
            .args(["-s", "-N", "-m", "60", "--unix-socket"])
            .arg(place.socket());
        let mut child = listen
            .args(extra)
            .arg("http://localhost/v1/events")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        if extra.is_empty() {
            std::thread::sleep(Duration::from_millis(500));
            place.ran(json!({ "cmd": "/bin/true" }));
        }
        let mut ids = Vec::new();
        let lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        for line in lines.map_while(Result::ok) {
            if let Some(id) = line.strip_prefix("id: ") {
                ids.push(id.to_owned());
            }
            if ids.len() == wanted {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        ids
    };
    let ids = read(&[], 2);
    assert!(
        ids[0].ends_with("command_start") && ids[1].ends_with("command_complete"),
        "{ids:?}"
    );
    place.ran(json!({ "cmd": "/bin/false" }));
    let resumed = read(&["-H", &format!("Last-Event-ID: {}", ids[0])], 3);
    assert_eq!(resumed[0], ids[1]);
    assert!(resumed[2].ends_with("command_complete"));
}

#[test]
fn worlds_are_made_before_they_are_needed_and_ended_when_somebody_wishes() {
    let place = Place::new(ENFORCE);
    let warmed = place.run(&["world", "warm"]);
    assert!(warmed.status.success(), "{warmed:?}");
    place.line("true");
    let status = place.get("/v1/status");
    assert_eq!(
        (&status["worlds_made"], &status["worlds_reused"]),
        (&json!(1), &json!(1))
    );
    let shown = place.run(&["world", "status"]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(
        shown.contains("kept by the service") && shown.contains("for human in"),
        "{shown}"
    );
    let first = status["worlds"][0]["id"].clone();
    assert!(place.run(&["world", "restart"]).status.success());
    assert_eq!(place.get("/v1/worlds")["worlds"], json!([]));
    place.line("true");
    assert_ne!(place.get("/v1/worlds")["worlds"][0]["id"], first);
    let isolated = place.ran(json!({ "cmd": "echo x > held; cat held", "isolated": true }));
    assert_eq!(isolated["verdict"]["place"], "isolated", "{isolated}");
    assert!(!place.sandbox.project().join("held").exists());
    let results = place.get("/v1/results");
    let world = results["results"][0]["world_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let diff = place.get(&format!("/v1/results/{world}"));
    assert!(diff["fs_diff"].to_string().contains("held"), "{diff}");
}

#[test]
fn the_description_is_what_is_served() {
    let place = Place::new(DIRECT);
    place.start();
    let document = place.get("/v1/openapi.json");
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    let known = place.get("/v1/capabilities")["routes"]
        .as_array()
        .unwrap()
        .len();
    let methods: usize = paths
        .values()
        .map(|path| path.as_object().unwrap().len())
        .sum();
    assert_eq!(methods, known);
    for (path, methods) in paths {
        for method in methods.as_object().unwrap().keys() {
            let at = path.replace("{id}", "none").replace("{span}", "none");
            if at == "/v1/events" {
                continue;
            }
            let answer = place.send(&method.to_uppercase(), &at, b"");
            assert_ne!(answer.status, 405, "{method} {path}");
            let error = String::from_utf8_lossy(&answer.body).into_owned();
            assert!(!error.contains("nothing at this path"), "{method} {path}");
        }
    }
    let found = Command::new("schemathesis").arg("--version").output();
    if found.is_err() {
        return skip(
            "the_description_is_what_is_served",
            "schemathesis is not installed",
        );
    }
    schemathesis(&place);
}

/// Has a tester of others' make up requests from the description, through a socket of loopback that leads to
/// the service.
fn schemathesis(place: &Place) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let socket = place.socket();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(service) = std::os::unix::net::UnixStream::connect(&socket) else {
                continue;
            };
            let (mut from, mut to) = (client.try_clone().unwrap(), service.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
            let (mut from, mut to) = (service, client);
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Both);
            });
        }
    });
    // Commands that it makes up are only judged: nothing may run.
    place.sandbox.policy(
        "test",
        "id: test\nname: Test\nmode: enforce\ncommands: { default: deny }\n",
    );
    let output = Command::new("schemathesis")
        .args([
            "run",
            "--max-examples",
            "15",
            "--no-color",
            "--request-timeout",
            "20",
        ])
        .args(["--phases", "examples,coverage,fuzzing"])
        .args([
            "--checks",
            "not_a_server_error,response_schema_conformance,content_type_conformance",
        ])
        .args([
            "--exclude-path",
            "/v1/events",
            "--exclude-path",
            "/v1/stream",
        ])
        .args(["--url", &format!("http://127.0.0.1:{port}")])
        .arg(format!("http://127.0.0.1:{port}/v1/openapi.json"))
        .current_dir(place.sandbox.project())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
}

#[test]
fn the_clients_of_the_documentation_work() {
    let place = Place::new(DIRECT);
    place.start();
    let page = include_str!("../docs/api.md");
    for (language, program) in [("python", "python3"), ("sh", "sh")] {
        let from = page
            .find(&format!("<!-- run by the tests -->\n```{language}\n"))
            .unwrap();
        let code = page[from..]
            .split_once(&format!("```{language}\n"))
            .unwrap()
            .1;
        let code = code.split_once("\n```").unwrap().0;
        let mut command = Command::new(program);
        place.sandbox.prepare(&mut command);
        let file = place.sandbox.project().join("client");
        std::fs::write(&file, code).unwrap();
        let output = command.arg(&file).arg(place.socket()).output().unwrap();
        assert_eq!(output.stdout, b"hello\n", "{language}: {output:?}");
        assert_eq!(output.status.code(), Some(3), "{language}");
    }
}

#[test]
fn a_command_is_explained_as_it_would_be_judged() {
    let place = Place::new(ENFORCE);
    place.start();
    let ask = |request: Value| place.post("/v1/explain", &request);
    let project = place.sandbox.project();
    let (status, answer) =
        ask(json!({"agent_id": "tester", "cmd": "echo hello", "cwd": project.to_str().unwrap()}));
    assert_eq!(
        (status, &answer["verdict"]),
        (200, &json!("allow")),
        "{answer}"
    );
    let printed = place
        .command()
        .current_dir(&project)
        .args(["policy", "explain", "--json", "echo hello"])
        .output()
        .unwrap();
    let printed: Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert_eq!(answer, printed);
    let before = place.sandbox.trace().len();
    let (status, answer) =
        ask(json!({"agent_id": "tester", "argv": ["sudo", "id"], "profile": "locked"}));
    assert_eq!(
        (status, &answer["verdict"]),
        (200, &json!("deny")),
        "{answer}"
    );
    assert_eq!(place.sandbox.trace().len(), before);
    for (request, wrong) in [
        (json!({"cmd": "true"}), "agent_id is required for API calls"),
        (
            json!({"agent_id": "tester"}),
            "either `cmd`, a line, or `argv`, a list, is expected",
        ),
        (
            json!({"agent_id": "tester", "cmd": "true", "cwd": "."}),
            "cwd: an absolute path to a directory is expected",
        ),
        (
            json!({"agent_id": "tester", "cmd": "true", "v": 9}),
            "this service speaks version 1, not 9",
        ),
    ] {
        let (status, answer) = ask(request);
        assert_eq!(
            (status, answer["error"]["message"].as_str()),
            (400, Some(wrong)),
            "{answer}"
        );
    }
}
