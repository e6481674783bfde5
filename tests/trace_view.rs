//! `trace view` in a real browser, driven over the WebDriver protocol.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test may stop"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{Sandbox, skip};
use serde_json::{Value, json};

const POLICY: &str = "mode: enforce\nworld: { enabled: \"off\" }\nfs: { write: [\"/**\"], protect: [] }\ncommands:\n  denied:\n    - { pattern: \"forbidden *\", reason: \"because\" }\n";

/// A headless browser; it ends with the test.
struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    fn open(test: &str) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let started = Command::new("chromedriver")
            .arg(format!("--port={port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(driver) = started else {
            skip(test, "chromedriver is not installed (chromium-driver)");
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Self {
            driver,
            port,
            session: String::new(),
            _profile: profile,
        };
        for _ in 0..600 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let data = format!("--user-data-dir={}", browser._profile.path().display());
        let arguments = json!([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-quic",
            "--window-size=1280,720",
            data
        ]);
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let made = browser.ask("POST", "/session", &wanted);
        browser.session = made["sessionId"].as_str().unwrap().to_owned();
        Some(browser)
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let body = body.to_string();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        // The driver keeps connections open, so the length says where an answer ends.
        let mut stream = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            match line.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().unwrap();
                }
                Some(_) => {}
                None if line.trim_end().is_empty() => break,
                None => assert!(line.starts_with("HTTP/1.1 "), "{line}"),
            }
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).unwrap();
        let value: Value = serde_json::from_slice(&answer).unwrap();
        assert!(value["value"]["error"].is_null(), "{path}: {value}");
        value["value"].clone()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", &format!("/session/{}{path}", self.session), body)
    }

    fn go(&self, url: &str) {
        self.post("/url", &json!({"url": url}));
    }

    fn script(&self, text: &str) -> Value {
        self.post("/execute/sync", &json!({"script": text, "args": []}))
    }

    /// Presses keys as a person does, on whatever has the focus.
    fn keys(&self, keys: &str) {
        let presses: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                [
                    json!({"type": "keyDown", "value": key}),
                    json!({"type": "keyUp", "value": key}),
                ]
            })
            .collect();
        self.post(
            "/actions",
            &json!({"actions": [{"type": "key", "id": "keyboard", "actions": presses}]}),
        );
    }

    /// The commands that are listed, and the title of the details.
    fn shown(&self) -> (Vec<String>, String) {
        let found = self.script("return [[...document.querySelectorAll('.row .command')].map(e => e.textContent), document.querySelector('#details h2')?.textContent ?? '']");
        let rows = found[0].as_array().unwrap();
        (
            rows.iter()
                .map(|row| row.as_str().unwrap().trim().to_owned())
                .collect(),
            found[1].as_str().unwrap().to_owned(),
        )
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            self.ask("DELETE", &format!("/session/{}", self.session), &json!({}));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn recorded() -> Sandbox {
    let sandbox = Sandbox::with_policy(POLICY);
    sandbox.run(["-c", "/bin/echo first"]);
    sandbox.run(["-c", "/bin/false --really"]);
    sandbox.run(["-c", "forbidden thing"]);
    sandbox.run([
        "-c",
        "/bin/echo '</script><img src=x onerror=\"document.title=1\">'",
    ]);
    let mut agent = sandbox.substrate();
    agent.env("SUBSTRATE_AGENT_ID", "robot");
    agent
        .args(["-c", "/bin/echo password=hunter2secret"])
        .output()
        .unwrap();
    sandbox
}

#[test]
fn the_page_is_private_and_is_where_it_says() {
    use std::os::unix::fs::PermissionsExt;
    let sandbox = recorded();
    let output = sandbox.run(["trace", "view"]);
    assert!(output.status.success(), "{output:?}");
    let path = String::from_utf8(output.stdout).unwrap();
    let path = std::path::Path::new(path.trim());
    assert_eq!(path, sandbox.home().join("trace.html"));
    let mode = std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let page = std::fs::read_to_string(path).unwrap();
    assert!(!page.contains("hunter2secret"), "a secret is in the page");
    let printed = sandbox.run(["trace", "view", "-o", "-", "-n", "1"]);
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.starts_with("<!doctype html>"));
    assert!(!printed.contains("/bin/false --really"), "only the newest");
}

#[test]
fn no_browser_is_started_from_inside_a_session() {
    let sandbox = Sandbox::with_policy(POLICY);
    let tools = sandbox.project().join("tools");
    std::fs::create_dir(&tools).unwrap();
    crate::common::script(
        &tools.join("xdg-open"),
        "#!/bin/sh\ntouch \"$(dirname \"$0\")/started\"\n",
    );
    let line = format!(
        "PATH={}:$PATH {} trace view --open",
        tools.display(),
        env!("CARGO_BIN_EXE_substrate")
    );
    let output = sandbox.run(["-c", &line]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!tools.join("started").exists());
}

#[test]
fn a_person_filters_and_walks_by_keyboard() {
    let test = "a_person_filters_and_walks_by_keyboard";
    let Some(browser) = Browser::open(test) else {
        return;
    };
    let sandbox = recorded();
    let page = sandbox.project().join("view.html");
    sandbox.run(["trace", "view", "-o", page.to_str().unwrap()]);
    let url = format!("file://{}", page.display());
    browser.go(&url);

    let (rows, details) = browser.shown();
    assert_eq!(rows.len(), 5, "{rows:?}");
    assert_eq!(rows[0], "/bin/echo first");
    // What a command holds is text, whatever it looks like.
    assert!(rows[3].contains("</script><img src=x"), "{rows:?}");
    assert_eq!(
        browser.script("return [document.title, document.images.length]"),
        json!(["Substrate trace", 0])
    );
    assert!(details.starts_with("/bin/echo password="), "{details}");
    let bars = browser
        .script("return [...document.querySelectorAll('.bar')].map(e => e.offsetWidth > 0 && e.getBoundingClientRect().right <= innerWidth)");
    assert_eq!(bars, json!([true, true, true, true, true]));

    browser.keys("gj");
    assert_eq!(browser.shown().1, "/bin/false --really");
    browser.keys("jkk");
    assert_eq!(browser.shown().1, "/bin/echo first");
    browser.keys("f");
    let (rows, _) = browser.shown();
    assert_eq!(rows, ["/bin/false --really", "forbidden thing"]);
    browser.keys("G");
    let panel = browser.script("return document.querySelector('#details').innerText");
    let panel = panel.as_str().unwrap();
    for part in ["deny by policy 'test' (enforce)", "forbidden *", "because"] {
        assert!(panel.contains(part), "{panel}");
    }
    browser.keys("f/first");
    assert_eq!(browser.shown().0, ["/bin/echo first"]);
    // The view is in the address.
    let kept = browser.script("return location.href");
    assert!(kept.as_str().unwrap().contains("q=first"), "{kept}");
    browser.go("about:blank");
    browser.go(kept.as_str().unwrap());
    assert_eq!(browser.shown().0, ["/bin/echo first"]);
    browser.script("document.querySelector('#search').focus()");
    browser.keys("\u{e00c}");
    assert_eq!(browser.shown().0.len(), 5);
    browser.script("document.querySelector('#verdicts [data-verdict=allow]').click()");
    assert_eq!(browser.shown().0, ["forbidden thing"]);

    let theme = "return document.documentElement.dataset.theme";
    let before = browser.script(theme);
    browser.script("document.activeElement.blur()");
    browser.keys("t");
    assert_ne!(browser.script(theme), before);

    // Nothing was loaded, and nothing was kept from running.
    let loaded = browser.script("return performance.getEntriesByType('resource').length");
    assert_eq!(loaded, json!(0));
    let log = browser.post("/se/log", &json!({"type": "browser"}));
    assert_eq!(log, json!([]), "the browser complains");
}
