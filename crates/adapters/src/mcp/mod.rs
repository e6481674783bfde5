//! Substrate as a server of the Model Context Protocol over standard streams: one JSON message a line. What a
//! client asks for is carried out by our own program, as anybody would start it, so that nothing is judged,
//! contained or recorded differently here.

mod call;
mod kept;
mod tools;
mod wire;

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use call::Running;
use kept::Kept;
use wire::{Message, Refusal};

/// Revisions of the protocol that are spoken, newest first.
pub const REVISIONS: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// How many calls go on side by side.
const MAX_CALLS: usize = 8;

/// How long what still runs may take to end when the client is gone.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// A server for one client.
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    /// Our program, which carries calls out.
    program: PathBuf,
    out: Mutex<Box<dyn Write + Send>>,
    running: Mutex<HashMap<String, Running>>,
    calls: AtomicUsize,
    kept: Kept,
    client: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// A server that carries calls out by this program and answers here.
    pub fn new(program: PathBuf, out: Box<dyn Write + Send>) -> Self {
        Self {
            shared: Arc::new(Shared {
                program,
                out: Mutex::new(out),
                running: Mutex::default(),
                calls: AtomicUsize::new(0),
                kept: Kept::default(),
                client: Mutex::default(),
            }),
        }
    }

    /// Serves until the client ends; what still runs for it ends too.
    pub fn serve(&self, mut input: impl BufRead) -> std::io::Result<()> {
        while let Some(line) = wire::line(&mut input)? {
            match line.as_deref().map(wire::read) {
                None => self.send(&wire::failure(&Value::Null, &wire::too_long())),
                Some(Err(refusal)) => self.send(&wire::failure(&Value::Null, &refusal)),
                Some(Ok(message)) => self.take(message),
            }
        }
        for running in lock(&self.shared.running).values() {
            running.cancel();
        }
        let begun = Instant::now();
        while self.shared.calls.load(Ordering::SeqCst) > 0 && begun.elapsed() < LAST_WORDS {
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn take(&self, message: Message) {
        match message {
            Message::Request { id, method, params } if method == "tools/call" => {
                self.begin(id, params);
            }
            Message::Request { id, method, params } => {
                let answer = match self.answer(&method, &params) {
                    Ok(result) => wire::success(&id, result),
                    Err(refusal) => wire::failure(&id, &refusal),
                };
                self.send(&answer);
            }
            Message::Notification { method, params } if method == "notifications/cancelled" => {
                let name = params
                    .get("requestId")
                    .map(Value::to_string)
                    .unwrap_or_default();
                if let Some(running) = lock(&self.shared.running).get(&name) {
                    running.cancel();
                }
            }
            // Others are nothing to us, and answers to questions that we never ask even less.
            Message::Notification { .. } | Message::Answer => {}
        }
    }

    fn answer(&self, method: &str, params: &Map<String, Value>) -> Result<Value, Refusal> {
        match method {
            "initialize" => Ok(self.initialize(params)),
            "ping" => Ok(json!({})),
            "tools/list" => Ok(json!({ "tools": tools::list() })),
            _ => Err(wire::unknown_method(method)),
        }
    }

    /// The client's revision where we speak it, else our newest.
    fn initialize(&self, params: &Map<String, Value>) -> Value {
        let wanted = params.get("protocolVersion").and_then(Value::as_str);
        let spoken = REVISIONS.into_iter().find(|known| wanted == Some(known));
        let name = params
            .get("clientInfo")
            .and_then(|info| info["name"].as_str());
        let fits = |c: &char| c.is_ascii_alphanumeric() || "-_.".contains(*c);
        let name = name.map(|name| name.chars().filter(fits).take(64).collect::<String>());
        *lock(&self.shared.client) = name.filter(|name| !name.is_empty());
        json!({
            "protocolVersion": spoken.unwrap_or(REVISIONS[0]),
            "capabilities": { "tools": {} },
            "serverInfo": {
                "name": "substrate", "title": "Substrate", "version": env!("CARGO_PKG_VERSION"),
            },
            "instructions": tools::INSTRUCTIONS,
        })
    }

    /// Carries a call out beside others; its answer comes when it is done.
    fn begin(&self, id: Value, params: Map<String, Value>) {
        let busy = self.shared.calls.fetch_add(1, Ordering::SeqCst) >= MAX_CALLS;
        let plan = match busy {
            true => Err(wire::busy()),
            false => tools::plan(&params, &self.shared.kept),
        };
        let plan = match plan {
            Ok(plan) => plan,
            Err(refusal) => {
                self.shared.calls.fetch_sub(1, Ordering::SeqCst);
                return self.send(&wire::failure(&id, &refusal));
            }
        };
        let token = params
            .get("_meta")
            .and_then(|meta| meta.get("progressToken"))
            .cloned();
        let running = Running::default();
        lock(&self.shared.running).insert(id.to_string(), running.clone());
        let server = self.clone();
        thread::spawn(move || {
            let agent = lock(&server.shared.client).clone();
            let progress = |seconds: u64| {
                if let Some(token) = &token {
                    server.send(&wire::progress(token, seconds));
                }
            };
            let result = call::carry_out(
                &server.shared.program,
                plan,
                agent,
                &running,
                &server.shared.kept,
                &progress,
            );
            lock(&server.shared.running).remove(&id.to_string());
            server.shared.calls.fetch_sub(1, Ordering::SeqCst);
            // A call that was called off has no answer.
            if !running.is_cancelled() {
                server.send(&wire::success(&id, result));
            }
        });
    }

    fn send(&self, message: &Value) {
        let mut out = lock(&self.shared.out);
        // A client that hears nothing any more also says nothing more.
        let _ = out
            .write_all(format!("{message}\n").as_bytes())
            .and_then(|()| out.flush());
    }
}
