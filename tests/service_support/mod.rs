//! A home with a service of its own, and clients of it.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use substrate_api::client::{self, Answer};

use crate::common::Sandbox;

/// A policy in which worlds are kept: everything of the project is real, `mv` is denied.
pub const ENFORCE: &str = "mode: enforce\ncommands: { denied: [\"mv *\"], ask: [\"git push *\"] }\n\
                           fs: { write: [\"$PROJECT/**\", \"/tmp/**\"] }\n";

/// A policy under which commands run on the host.
pub const DIRECT: &str = "mode: enforce\ncommands: { denied: [\"mv *\"], ask: [\"git push *\"] }\n\
                          fs: { write: [\"/**\"] }\nworld: { enabled: off }\n";

/// A home whose service ends with it.
pub struct Place {
    pub sandbox: Sandbox,
}

impl Place {
    pub fn new(policy: &str) -> Place {
        Place {
            sandbox: Sandbox::with_policy(policy),
        }
    }

    /// The binary, with the service in use.
    pub fn command(&self) -> Command {
        let mut command = self.sandbox.substrate();
        command.env_remove("SUBSTRATE_SERVICE");
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).output().unwrap()
    }

    /// What a line prints.
    pub fn line(&self, line: &str) -> String {
        let output = self.run(&["-c", line]);
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The world that a line runs in; the numbers of namespaces come again, its id does not.
    pub fn world(&self) -> String {
        self.line("true");
        let spans = self.sandbox.events("command_complete");
        let last = spans.last().unwrap();
        last["world_id"].as_str().unwrap().to_owned()
    }

    pub fn start(&self) -> &Place {
        let output = self.run(&["daemon", "start"]);
        assert!(output.status.success(), "{output:?}");
        self
    }

    pub fn socket(&self) -> PathBuf {
        self.sandbox.home().join("sock/agent.sock")
    }

    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        let long = Some(Duration::from_secs(60));
        stream.set_read_timeout(long).unwrap();
        stream
    }

    pub fn send(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        client::send(self.connect(), method, path, body).unwrap()
    }

    pub fn get(&self, path: &str) -> Value {
        let answer = self.send("GET", path, b"");
        let body = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(answer.status, 200, "{path}: {body}");
        body
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let answer = self.send("POST", path, body.to_string().as_bytes());
        let body = serde_json::from_slice(&answer.body).unwrap();
        (answer.status, body)
    }

    /// What came of a command of `tester`.
    pub fn execute(&self, request: Value) -> (u16, Value) {
        let mut request = request;
        let fields = request.as_object_mut().unwrap();
        fields.entry("agent_id").or_insert_with(|| json!("tester"));
        let project = self.sandbox.project();
        fields
            .entry("cwd")
            .or_insert_with(|| json!(project.to_str().unwrap()));
        self.post("/v1/execute", &request)
    }

    /// The same where it has to have run.
    pub fn ran(&self, request: Value) -> Value {
        let (status, answer) = self.execute(request);
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// The process of the service, if there is one.
    pub fn pid(&self) -> Option<u32> {
        let output = self.run(&["daemon", "status", "--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        status["pid"].as_u64().and_then(|pid| pid.try_into().ok())
    }

    /// A service in the foreground.
    pub fn in_foreground(&self, change: impl FnOnce(&mut Command)) -> Child {
        let mut command = self.command();
        command.args(["daemon", "run"]).stdout(Stdio::null());
        change(&mut command);
        let child = command.spawn().unwrap();
        until("it listens", || UnixStream::connect(self.socket()).is_ok());
        child
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.run(&["daemon", "stop"]);
    }
}

/// What a command wrote.
pub fn text(answer: &Value, stream: &str) -> String {
    let encoded = answer[stream].as_str().unwrap();
    let bytes = substrate_text::base64::decode(encoded).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits until something is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !so() {
        assert!(Instant::now() < end, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a process is there and has not ended.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}
