//! The gate between a client and a scripted host.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod support;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use substrate_modelgate::{Event, Limit, Roots, Url, Wire};
use support::{Do, KEY, Upstream, answers, post, rig, rig_with, say};

const MESSAGES: &[&str] = &["POST /v1/messages", "GET /v1/models"];
const ASK: &str = r#"{"model":"m-1","max_tokens":100,"messages":[]}"#;
const COST: &str = r#"{"usage":{"input_tokens":7,"output_tokens":5}}"#;

#[test]
fn the_key_is_put_in_outside_and_what_the_client_brings_stays() {
    let upstream = Upstream::plain(answers(COST, "application/json"));
    let rig = rig(&upstream, Wire::Anthropic, MESSAGES, None);
    let headers = "X-Api-Key: own\r\nAuthorization: Bearer own\r\nCookie: own\r\nConnection: close, X-Hop\r\n\
                   X-Hop: own\r\nAnthropic-Version: 2023-06-01\r\nAccept-Encoding: gzip\r\n";
    let path = "/v1/messages?beta=true&key=own";
    let answer = rig.exchange(post(path, ASK, headers).as_bytes());
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with(COST), "{answer}");
    let sent = upstream.requests().remove(0);
    assert!(
        sent.starts_with("POST /v1/messages?beta=true HTTP/1.1\r\n"),
        "{sent}"
    );
    assert!(sent.contains(&format!("x-api-key: {KEY}\r\n")), "{sent}");
    assert!(sent.contains("anthropic-version: 2023-06-01\r\n"), "{sent}");
    assert!(sent.contains("accept-encoding: identity\r\n"), "{sent}");
    assert!(!sent.contains("own") && !sent.contains("gzip"), "{sent}");
    assert!(sent.ends_with(ASK));
    assert!(!answer.contains(KEY));
    assert_eq!(rig.ledger.spent().models["m-1"].total(), 12);
}

#[test]
fn tls_is_spoken_to_a_host_that_is_who_it_says() {
    let upstream = Upstream::tls(answers(COST, "application/json"), &["localhost"]);
    let rig = rig(&upstream, Wire::Anthropic, MESSAGES, None);
    let answer = rig.post("/v1/messages", ASK);
    assert!(answer.ends_with(COST), "{answer}");
    assert_eq!(rig.ledger.spent().total(), 12);
}

#[test]
fn a_host_that_is_not_who_it_says_gets_no_key() {
    let other = Upstream::tls(answers(COST, "application/json"), &["other.example"]);
    let unknown = Upstream::tls(answers(COST, "application/json"), &["localhost"]);
    let authority = Upstream::tls(Vec::new(), &["localhost"]);
    let rigs = [
        (rig(&other, Wire::Anthropic, MESSAGES, None), &other),
        (
            rig_with(&unknown, Wire::Anthropic, MESSAGES, None, |config| {
                config.roots = Roots::File(authority.ca.clone().unwrap());
            }),
            &unknown,
        ),
    ];
    for (rig, upstream) in &rigs {
        let answer = rig.post("/v1/messages", ASK);
        assert!(answer.starts_with("HTTP/1.1 502"), "{answer}");
        assert!(upstream.requests().is_empty());
        assert!(
            matches!(rig.events()[..], [Event::Unreachable(_)]),
            "{:?}",
            rig.events()
        );
        assert_eq!(rig.ledger.spent().total(), 0);
    }
}

#[test]
fn connections_to_the_host_are_used_again() {
    let script = [
        answers(COST, "application/json"),
        answers(COST, "application/json"),
    ]
    .concat();
    let upstream = Upstream::tls(script, &["localhost"]);
    let rig = rig(&upstream, Wire::Anthropic, MESSAGES, None);
    for _ in 0..4 {
        let answer = rig.post("/v1/messages", ASK);
        assert!(answer.ends_with(COST), "{answer}");
    }
    // Each connection follows its script, which ends after two answers.
    assert_eq!(*upstream.connections.lock().unwrap(), 2);
    assert_eq!(rig.ledger.spent().total(), 48);
}

#[test]
fn a_streamed_answer_is_not_held_back() {
    let first = "data: {\"message\":{\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\n";
    let last = "data: {\"usage\":{\"output_tokens\":9}}\n\n";
    let chunk = |text: &str| say(format!("{:x}\r\n{text}\r\n", text.len()));
    let upstream = Upstream::plain(vec![
        Do::Read,
        say(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        ),
        chunk(first),
        Do::Wait(Duration::from_secs(2)),
        chunk(last),
        say("0\r\n\r\n"),
    ]);
    let rig = rig(&upstream, Wire::Anthropic, MESSAGES, None);
    let mut stream = rig.connect();
    let started = Instant::now();
    let body = r#"{"model":"m","stream":true,"max_tokens":10}"#;
    stream
        .write_all(post("/v1/messages", body, "").as_bytes())
        .unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while !seen.contains(first) {
        let length = stream.read(&mut buffer).unwrap();
        assert!(length > 0, "{seen}");
        seen.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    while !seen.ends_with("0\r\n\r\n") {
        let length = stream.read(&mut buffer).unwrap();
        assert!(length > 0, "{seen}");
        seen.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
    assert!(seen.contains(last));
    let spent = rig.ledger.spent();
    assert_eq!((spent.models["m"].input, spent.models["m"].output), (3, 9));
    assert_eq!(rig.ledger.open(), 0);
}

#[test]
fn only_what_is_listed_passes() {
    let upstream = Upstream::plain(answers(COST, "application/json"));
    let rig = rig(&upstream, Wire::Anthropic, MESSAGES, None);
    for (method, path) in [
        ("POST", "/v1/files"),
        ("DELETE", "/v1/messages"),
        ("POST", "/v1/messages/../files"),
        ("POST", "/v1/%6dessages"),
        ("GET", "/v1/organizations/api_keys"),
    ] {
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{{}}");
        let answer = rig.exchange(request.as_bytes());
        assert!(
            answer.starts_with("HTTP/1.1 403"),
            "{method} {path} {answer}"
        );
        assert!(answer.contains(r#""type":"error""#), "{answer}");
    }
    assert!(upstream.requests().is_empty());
    let answer = rig.exchange(b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(rig.ledger.spent().requests, 0);
}

#[test]
fn a_budget_that_is_used_up_is_said_before_anything_leaves() {
    let upstream = Upstream::plain(answers(COST, "application/json"));
    let rig = rig(&upstream, Wire::Anthropic, MESSAGES, Some(130));
    assert!(rig.post("/v1/messages", ASK).ends_with(COST));
    let answer = rig.post("/v1/messages", &ASK.replace("100", "119"));
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("x-should-retry: false"), "{answer}");
    assert!(
        answer.contains("token budget of this agent is used up: 12 of 130"),
        "{answer}"
    );
    assert_eq!(upstream.requests().len(), 1);
    assert_eq!(rig.ledger.ran_out(), Some(Limit::Tokens));
    let told = rig.events().into_iter().find_map(|event| match event {
        Event::RanOut {
            wanted,
            used,
            limit,
        } => Some((wanted, used, limit)),
        _ => None,
    });
    let (wanted, used, limit) = told.expect("the end of the budget is told");
    assert_eq!((used, limit), (12, 130));
    assert!(wanted >= 119, "{wanted}");
    assert_eq!(
        rig.ledger.spent().total(),
        12,
        "a refused request costs nothing"
    );
}

#[test]
fn an_answer_that_breaks_off_is_charged() {
    let upstream = Upstream::plain(vec![
        Do::Read,
        say(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 5000\r\n\r\n\
             data: {\"message\":{\"usage\":{\"input_tokens\":3,\"output_tokens\":1}}}\n\n",
        ),
    ]);
    let mut rig = rig(&upstream, Wire::Anthropic, MESSAGES, None);
    let answer = rig.post("/v1/messages", ASK);
    assert!(answer.contains("input_tokens"), "{answer}");
    rig.gate.take().unwrap().finish();
    let spent = rig.ledger.spent();
    assert_eq!(spent.models["m-1"].total(), 4);
    assert!(spent.total() >= 100, "{spent:?}");
    assert!(
        matches!(rig.events()[..], [Event::Broke(_)]),
        "{:?}",
        rig.events()
    );
}

#[test]
fn a_client_that_hangs_up_ends_its_request() {
    let upstream = Upstream::plain(vec![Do::Read, Do::Wait(Duration::from_secs(60))]);
    let rig = rig(&upstream, Wire::Anthropic, MESSAGES, None);
    let mut stream = rig.connect();
    stream
        .write_all(post("/v1/messages", ASK, "").as_bytes())
        .unwrap();
    while upstream.requests().is_empty() {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(rig.ledger.open(), 1);
    drop(stream);
    let end = Instant::now() + Duration::from_secs(5);
    while rig.ledger.open() > 0 && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(rig.ledger.open(), 0);
    assert!(rig.ledger.spent().charged >= 100);
}

#[test]
fn an_answer_that_does_not_say_what_it_cost_is_charged() {
    let upstream = Upstream::plain(answers("{}", "application/json"));
    let rig = rig(&upstream, Wire::Anthropic, MESSAGES, None);
    assert!(rig.post("/v1/messages", ASK).ends_with("{}"));
    assert!(rig.ledger.spent().charged >= 100);
}

#[test]
fn errors_of_the_host_pass_and_cost_nothing() {
    let body = r#"{"type":"error","error":{"type":"overloaded_error","message":"x"}}"#;
    let answer = format!(
        "HTTP/1.1 529 Overloaded\r\nContent-Length: {}\r\nRetry-After: 3\r\n\r\n{body}",
        body.len()
    );
    let upstream = Upstream::plain(vec![Do::Read, say(answer)]);
    let rig = rig(&upstream, Wire::Anthropic, MESSAGES, None);
    let answer = rig.post("/v1/messages", ASK);
    assert!(answer.starts_with("HTTP/1.1 529"), "{answer}");
    assert!(
        answer.contains("retry-after: 3") && answer.ends_with(body),
        "{answer}"
    );
    assert_eq!(rig.ledger.spent().total(), 0);
}

#[test]
fn the_host_cannot_lead_elsewhere() {
    for answer in [
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nxx",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nxx",
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nxx",
        "SSH-2.0-OpenSSH\r\n\r\n",
    ] {
        let upstream = Upstream::plain(vec![Do::Read, say(answer)]);
        let rig = rig(&upstream, Wire::Anthropic, MESSAGES, None);
        let seen = rig.post("/v1/messages", ASK);
        assert!(seen.starts_with("HTTP/1.1 502"), "{answer} {seen}");
        assert!(!seen.to_lowercase().contains("\nlocation"), "{seen}");
    }
    let headers =
        "HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nAlt-Svc: h3=\":443\"\r\nX-Request-Id: 7\r\n";
    let upstream = Upstream::plain(vec![
        Do::Read,
        say(format!(
            "HTTP/1.1 100 Continue\r\n\r\n{headers}Content-Length: {}\r\n\r\n{COST}",
            COST.len()
        )),
    ]);
    let rig = rig(&upstream, Wire::Anthropic, MESSAGES, None);
    let seen = rig.post("/v1/messages", ASK);
    assert!(
        seen.contains("x-request-id: 7") && seen.ends_with(COST),
        "{seen}"
    );
    assert!(
        !seen.contains("set-cookie") && !seen.contains("alt-svc"),
        "{seen}"
    );
}

#[test]
fn what_the_provider_would_fetch_is_judged() {
    let upstream = Upstream::plain(answers(COST, "application/json"));
    let rig = rig(&upstream, Wire::Anthropic, MESSAGES, None);
    let fetch = |host: &str| {
        format!(
            r#"{{"max_tokens":9,"messages":[{{"content":[{{"type":"image","source":{{"type":"url","url":"https://{host}/x"}}}}]}}]}}"#
        )
    };
    let answer = rig.post("/v1/messages", &fetch("evil.example"));
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("evil.example:443"), "{answer}");
    for body in [
        r#"{"max_tokens":9,"tools":[{"type":"web_fetch_20250910","name":"web_fetch"}]}"#,
        r#"{"max_tokens":9,"tools":[{"type":"web_fetch_20250910"}],"tools":[]}"#,
        r#"{"max_tokens":9,"mcp_servers":[{"url":"https://evil.example/sse"}]}"#,
        "not json",
        "",
    ] {
        let answer = rig.post("/v1/messages", body);
        assert!(answer.starts_with("HTTP/1.1 400"), "{body} {answer}");
    }
    let zipped = post(
        "/v1/messages",
        ASK,
        "Content-Encoding: zstd\r\nConnection: close\r\n",
    );
    assert!(rig.exchange(zipped.as_bytes()).starts_with("HTTP/1.1 400"));
    assert!(upstream.requests().is_empty());
    assert!(
        rig.post("/v1/messages", &fetch("pictures.example"))
            .ends_with(COST)
    );
}

#[test]
fn a_gate_that_observes_tells_and_passes() {
    let upstream = Upstream::plain(answers(COST, "application/json"));
    let rig = rig_with(&upstream, Wire::Anthropic, MESSAGES, None, |config| {
        config.enforce = false
    });
    let body = r#"{"max_tokens":9,"mcp_servers":[{"url":"https://evil.example/sse"}]}"#;
    assert!(rig.post("/v1/messages", body).ends_with(COST));
    assert!(
        matches!(&rig.events()[0], Event::WouldRefuse { why, .. } if why.contains("evil.example"))
    );
    assert!(rig.post("/v1/messages", "not json").ends_with(COST));
}

#[test]
fn usage_is_asked_for_and_read_on_every_wire() {
    let chat = "data: {\"choices\":[]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":4,\"completion_tokens\":6}}\n\ndata: [DONE]\n\n";
    let responses = "event: response.completed\ndata: {\"response\":{\"usage\":{\"input_tokens\":4,\"output_tokens\":6}}}\n\n";
    let gemini =
        "data: {\"usageMetadata\":{\"promptTokenCount\":4,\"candidatesTokenCount\":6}}\r\n\r\n";
    for (wire, route, path, body, answer) in [
        (
            Wire::Openai,
            "POST /v1/chat/completions",
            "/v1/chat/completions",
            r#"{"model":"m","stream":true}"#,
            chat,
        ),
        (
            Wire::Openai,
            "POST /v1/responses",
            "/v1/responses",
            r#"{"model":"m","stream":true}"#,
            responses,
        ),
        (
            Wire::Gemini,
            "POST /v1beta/models/*:streamGenerateContent",
            "/v1beta/models/m:streamGenerateContent?alt=sse&key=own",
            "{}",
            gemini,
        ),
    ] {
        let upstream = Upstream::plain(answers(answer, "text/event-stream; charset=utf-8"));
        let rig = rig(&upstream, wire, &[route], None);
        let seen = rig.post(path, body);
        assert!(seen.ends_with(answer), "{seen}");
        assert_eq!(rig.ledger.spent().models["m"].total(), 10, "{path}");
        let sent = upstream.requests().remove(0);
        assert_eq!(
            sent.contains("include_usage"),
            path.ends_with("completions"),
            "{sent}"
        );
        assert!(!sent.contains("own"), "{sent}");
    }
}

#[test]
fn a_base_of_the_hosts_own_takes_the_place_of_the_worlds() {
    let upstream = Upstream::plain(answers(COST, "application/json"));
    let port = upstream.address.port();
    let rig = rig_with(
        &upstream,
        Wire::Openai,
        &["POST /v1/responses"],
        None,
        |config| {
            config.base = "/v1".to_owned();
            config.upstream =
                Url::parse(&format!("http://127.0.0.1:{port}/tenant/openai")).unwrap();
        },
    );
    rig.post("/v1/responses", "{}");
    let sent = upstream.requests().remove(0);
    assert!(
        sent.starts_with("POST /tenant/openai/responses HTTP/1.1\r\nhost: 127.0.0.1:"),
        "{sent}"
    );
}

#[test]
fn one_connection_carries_many_requests_and_waits_for_a_word() {
    let script = (0..3)
        .flat_map(|_| answers(COST, "application/json"))
        .collect();
    let upstream = Upstream::plain(script);
    let rig = rig(&upstream, Wire::Anthropic, MESSAGES, None);
    let mut stream = rig.connect();
    let two = post("/v1/messages", ASK, "").repeat(2);
    stream.write_all(two.as_bytes()).unwrap();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        ASK.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    while !seen.contains("100 Continue") {
        let length = stream.read(&mut buffer).unwrap();
        assert!(length > 0, "{seen}");
        seen.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
    stream.write_all(ASK.as_bytes()).unwrap();
    stream.read_to_string(&mut seen).unwrap();
    assert_eq!(seen.matches(COST).count(), 3, "{seen}");
    assert_eq!(upstream.requests().len(), 3);
}

#[test]
fn smuggled_requests_and_huge_heads_stop_at_the_gate() {
    let upstream = Upstream::plain(answers(COST, "application/json"));
    let rig = rig(&upstream, Wire::Anthropic, MESSAGES, None);
    let inner = "POST /v1/files HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
    for request in [
        format!(
            "POST /v1/messages HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{inner}"
        ),
        format!(
            "POST /v1/messages HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n{inner}"
        ),
        format!(
            "POST /v1/messages HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 9\r\n\r\n{inner}"
        ),
        format!("POST /v1/messages HTTP/1.1\nContent-Length: 0\n\n{inner}"),
        format!(
            "POST /v1/messages HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;x\r\n{{}}\r\n0\r\n\r\n{inner}"
        ),
        format!(
            "GET /v1/models HTTP/1.1\r\nX: {}\r\n\r\n",
            "a".repeat(100_000)
        ),
        format!("GET /v1/models HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(500)),
        "GET /v1/models HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n".to_owned(),
        "CONNECT evil.example:443 HTTP/1.1\r\n\r\n".to_owned(),
        "GET http://evil.example/v1/models HTTP/1.1\r\n\r\n".to_owned(),
        "POST /v1/messages HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n".to_owned(),
    ] {
        let answer = rig.exchange(request.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 4"), "{request:.80} {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    }
    assert!(upstream.requests().is_empty(), "{:?}", upstream.requests());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn hostile_requests_end(pieces in proptest::collection::vec(prop_oneof![
        Just(&b"POST /v1/messages HTTP/1.1\r\n"[..]), Just(&b"GET /v1/models HTTP/1.1\r\n"[..]),
        Just(&b"Content-Length: 4\r\n"[..]), Just(&b"Transfer-Encoding: chunked\r\n"[..]),
        Just(&b"\r\n"[..]), Just(&b"\n"[..]), Just(&b"{}"[..]), Just(&b"2\r\n{}\r\n0\r\n\r\n"[..]),
        Just(&b"\x00\xff"[..]), Just(&b"Connection: close\r\n"[..]), Just(&b"X: y\r\n"[..]),
    ], 0..12)) {
        let upstream = Upstream::plain(answers(COST, "application/json"));
        let rig = rig(&upstream, Wire::Anthropic, MESSAGES, None);
        let mut stream = rig.connect();
        let _ = stream.write_all(&pieces.concat());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        for request in upstream.requests() {
            prop_assert!(request.starts_with("POST /v1/messages HTTP/1.1\r\n")
                || request.starts_with("GET /v1/models HTTP/1.1\r\n"));
        }
        prop_assert_eq!(rig.ledger.open(), 0);
    }

    #[test]
    fn hostile_answers_end(pieces in proptest::collection::vec(prop_oneof![
        Just(&b"HTTP/1.1 200 OK\r\n"[..]), Just(&b"HTTP/1.1 100 Continue\r\n\r\n"[..]),
        Just(&b"Content-Length: 3\r\n"[..]), Just(&b"Transfer-Encoding: chunked\r\n"[..]),
        Just(&b"Content-Type: text/event-stream\r\n"[..]), Just(&b"\r\n"[..]), Just(&b"\n"[..]),
        Just(&b"data: {\"usage\":{\"output_tokens\":18446744073709551615}}\n\n"[..]),
        Just(&b"5\r\nhello\r\n"[..]), Just(&b"0\r\n\r\n"[..]), Just(&b"\x00\xff"[..]),
    ], 0..12)) {
        let upstream = Upstream::plain(vec![Do::Read, Do::Send(pieces.concat())]);
        let rig = rig(&upstream, Wire::Anthropic, MESSAGES, None);
        let _ = rig.post("/v1/messages", ASK);
        drop(rig.gate);
        prop_assert_eq!(rig.ledger.open(), 0);
        prop_assert_eq!(rig.ledger.spent().requests, 1);
    }
}
