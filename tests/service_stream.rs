//! Commands on terminals over a WebSocket.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tungstenite::{Message, WebSocket};

use crate::common::skip;
use crate::service_support::{DIRECT, ENFORCE, Place, is_alive, until};

/// A client that looks at a terminal.
struct Screen {
    socket: WebSocket<UnixStream>,
    shown: Vec<u8>,
    told: Vec<Value>,
}

impl Screen {
    fn connect(place: &Place, query: &str) -> Screen {
        let url = format!("ws://localhost/v1/stream{query}");
        let (socket, _) = tungstenite::client(url, place.connect()).unwrap();
        Screen {
            socket,
            shown: Vec::new(),
            told: Vec::new(),
        }
    }

    fn open(place: &Place, cmd: &str, more: Value) -> Screen {
        let mut screen = Screen::connect(place, "");
        let project = place.sandbox.project();
        let mut open = json!({
            "execute": { "agent_id": "tester", "cmd": cmd, "cwd": project.to_str(), "env": { "TERM": "xterm" } },
            "size": { "rows": 30, "columns": 100 },
        });
        for (key, value) in more.as_object().unwrap() {
            open[key] = value.clone();
        }
        screen.text(&open);
        screen
    }

    fn text(&mut self, document: &Value) {
        let text = document.to_string();
        self.socket.send(Message::Text(text.into())).unwrap();
    }

    fn keys(&mut self, keys: &[u8]) {
        self.socket
            .send(Message::Binary(keys.to_vec().into()))
            .unwrap();
    }

    /// The next frame; false when there is none any more.
    fn take(&mut self) -> bool {
        match self.socket.read() {
            Ok(Message::Binary(bytes)) => self.shown.extend_from_slice(&bytes),
            Ok(Message::Text(text)) => self.told.push(serde_json::from_str(&text).unwrap()),
            Ok(Message::Close(_)) | Err(_) => return false,
            Ok(_) => {}
        }
        true
    }

    fn wait_for(&mut self, bytes: &[u8]) {
        let there = |shown: &[u8]| shown.windows(bytes.len()).any(|part| part == bytes);
        while !there(&self.shown) {
            let more = self.take();
            assert!(
                more,
                "{:?} did not come: {:?} {:?}",
                String::from_utf8_lossy(bytes),
                String::from_utf8_lossy(&self.shown),
                self.told
            );
        }
    }

    /// What it came to.
    fn exit(&mut self) -> Value {
        while self.take() {}
        let last = self.told.last().cloned().unwrap_or_default();
        assert!(last["exit"].is_object(), "{:?}", self.told);
        last["exit"].clone()
    }

    /// Its id, and how far its client has come.
    fn place(&mut self) -> (String, u64) {
        while self.told.is_empty() {
            assert!(self.take());
        }
        let told = &self.told[0]["terminal"];
        let terminal = told["terminal"].as_str().unwrap().to_owned();
        (terminal, told["offset"].as_u64().unwrap())
    }
}

#[test]
fn bytes_go_both_ways_untouched_and_the_size_is_the_clients() {
    for policy in [ENFORCE, DIRECT] {
        let place = Place::new(policy);
        place.start();
        let raw = "tty; stty size; stty raw -echo; printf ready; head -c 256; printf done; stty sane; exit 5";
        let mut screen = Screen::open(&place, raw, json!({}));
        screen.wait_for(b"ready");
        let said = String::from_utf8_lossy(&screen.shown).into_owned();
        assert!(
            said.contains("/dev/pts/") && said.contains("30 100"),
            "{said}"
        );
        screen.shown.clear();
        let every: Vec<u8> = (0..=255).collect();
        for part in every.chunks(37) {
            screen.keys(part);
        }
        screen.wait_for(b"done");
        assert_eq!(&screen.shown[..256], every.as_slice());
        let exit = screen.exit();
        assert_eq!(exit["exit"], 5, "{exit}");
        assert!(exit["span_id"].as_str().unwrap().starts_with("spn_"));
        let mut screen = Screen::open(
            &place,
            "trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.05; done",
            json!({}),
        );
        screen.wait_for(b"up");
        screen.text(&json!({ "resize": { "rows": 41, "columns": 142 } }));
        screen.wait_for(b"41 142");
        assert_eq!(screen.exit()["exit"], 0);
        let mut screen = Screen::open(&place, "mv a b", json!({}));
        let refused = screen.exit();
        assert_eq!(refused["exit"], 126);
        assert_eq!(refused["verdict"]["rule"]["pattern"], "mv *");
        assert!(
            screen.told.iter().any(|told| told["notice"].is_string()),
            "{:?}",
            screen.told
        );
    }
}

#[test]
fn full_screen_programs_work() {
    let place = Place::new(ENFORCE);
    place.start();
    for (program, version) in [("vim", "--version"), ("fzf", "--version")] {
        if std::process::Command::new(program)
            .arg(version)
            .output()
            .is_err()
        {
            return skip(
                "full_screen_programs_work",
                &format!("{program} is not installed"),
            );
        }
    }
    let mut screen = Screen::open(&place, "vim -u NONE -N written", json!({}));
    screen.wait_for(b"[New]");
    screen.keys(b"i");
    std::thread::sleep(Duration::from_millis(300));
    screen.keys("gr\u{fc}\u{df}e".as_bytes());
    screen.keys(b"\x1b");
    std::thread::sleep(Duration::from_millis(300));
    screen.keys(b":wq\r");
    assert_eq!(screen.exit()["exit"], 0);
    let written = std::fs::read_to_string(place.sandbox.project().join("written")).unwrap();
    assert_eq!(written, "gr\u{fc}\u{df}e\n");
    let mut screen = Screen::open(
        &place,
        "printf 'one\\ntwo\\nthree\\n' | fzf > chosen",
        json!({}),
    );
    screen.wait_for(b"3/3");
    screen.keys(b"tw");
    screen.wait_for(b"1/3");
    screen.keys(b"\r");
    assert_eq!(screen.exit()["exit"], 0);
    let chosen = std::fs::read_to_string(place.sandbox.project().join("chosen")).unwrap();
    assert_eq!(chosen, "two\n");
}

#[test]
fn a_terminal_survives_its_connection_and_ends_with_its_lease() {
    let place = Place::new(ENFORCE);
    place.start();
    let line = "echo $$ > pid; echo first; read x; echo second-$x; read y; echo third-$y";
    let mut screen = Screen::open(&place, line, json!({ "lease_ms": 20_000 }));
    let (terminal, _) = screen.place();
    screen.wait_for(b"first\r\n");
    let seen = screen.shown.len();
    drop(screen);
    let mut back = Screen::connect(&place, &format!("?terminal={terminal}&since={seen}"));
    back.keys(b"a\n");
    back.wait_for(b"second-a");
    assert!(!String::from_utf8_lossy(&back.shown).contains("first"));
    // Two at once see the same.
    let mut other = Screen::connect(&place, &format!("?terminal={terminal}"));
    other.wait_for(b"second-a");
    assert!(String::from_utf8_lossy(&other.shown).starts_with("first"));
    other.keys(b"b\n");
    back.wait_for(b"third-b");
    assert_eq!(back.exit()["exit"], 0);
    assert_eq!(other.exit()["exit"], 0);
    // The end can still be asked for.
    let mut late = Screen::connect(&place, &format!("?terminal={terminal}&since=0"));
    assert_eq!(late.exit()["exit"], 0);
    let mut screen = Screen::open(
        &place,
        "echo up; exec sleep 1000",
        json!({ "lease_ms": 300 }),
    );
    screen.wait_for(b"up");
    drop(screen);
    until("it ends", || place.get("/v1/status")["running"] == 0);
    let mut screen = Screen::open(&place, "echo up; exec sleep 1000", json!({}));
    screen.wait_for(b"up");
    screen.text(&json!({ "end": {} }));
    assert_ne!(screen.exit()["exit"], 0);
}

#[test]
fn a_slow_reader_holds_up_nobody_else_and_loses_nothing() {
    let place = Place::new(DIRECT);
    place.start();
    let mut slow = Screen::open(&place, "seq 1 600000; echo finished", json!({}));
    slow.place();
    // It does not read; others are served meanwhile.
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(place.ran(json!({ "cmd": "echo x" }))["exit"], 0);
    }
    let mut quick = Screen::open(&place, "seq 1 1000; echo finished", json!({}));
    quick.wait_for(b"finished");
    assert!(begun.elapsed() < Duration::from_secs(20));
    slow.wait_for(b"finished");
    let lines = String::from_utf8(slow.shown.clone()).unwrap();
    let expected: String = (1..=600_000).map(|n| format!("{n}\r\n")).collect();
    assert!(lines.starts_with(&expected), "every line came, in order");
}

#[test]
fn garbage_ends_the_conversation_and_nothing_else() {
    let place = Place::new(DIRECT);
    place.start();
    let mut screen = Screen::connect(&place, "");
    screen.text(&json!({ "execute": { "cmd": "true" } }));
    while screen.take() {}
    assert_eq!(
        screen.told[0]["error"]["message"],
        "agent_id is required for API calls"
    );
    let mut screen = Screen::connect(&place, "");
    screen.keys(b"\0\xff");
    while screen.take() {}
    assert_eq!(screen.told[0]["error"]["code"], "bad_request");
    let mut screen = Screen::open(&place, "echo $$ > pid; echo up; exec sleep 1000", json!({}));
    screen.wait_for(b"up");
    let (terminal, _) = screen.place();
    screen.text(&json!({ "resize": "large" }));
    while screen.take() {}
    let pid = std::fs::read_to_string(place.sandbox.project().join("pid")).unwrap();
    let pid = pid.trim().parse().unwrap();
    assert!(is_alive(pid), "the command goes on");
    let mut back = Screen::connect(&place, &format!("?terminal={terminal}"));
    back.wait_for(b"up");
    back.text(&json!({ "end": {} }));
    back.exit();
    until("it ends", || !is_alive(pid));
}
