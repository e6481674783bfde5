//! The server: a thread for every connection, and a record of what was asked.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::http::{self, Request};
use crate::script::Script;
use crate::talk::{Asked, Place, place, tell};
use crate::wire::{Endpoint, Wire};

/// How the server is set up.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A port of loopback; 0 for any that is free.
    pub port: u16,
    /// A file that gets a line of JSON for every request.
    pub log: Option<PathBuf>,
}

/// A running server. It ends with the process.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    script: Script,
    log: Option<Mutex<File>>,
    requests: Mutex<Vec<Value>>,
}

impl Server {
    /// Starts to listen on loopback.
    pub fn start(script: Script, options: &Options) -> io::Result<Self> {
        let open = |path: &PathBuf| OpenOptions::new().create(true).append(true).open(path);
        let log = options.log.as_ref().map(open).transpose()?.map(Mutex::new);
        let listener = TcpListener::bind(("127.0.0.1", options.port))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            script,
            log,
            requests: Mutex::default(),
        });
        let serving = shared.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = serving.clone();
                // What goes wrong on one connection is the client's to see.
                thread::spawn(move || shared.serve(stream).ok());
            }
        });
        Ok(Self { address, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Every request so far: `method`, `path`, `headers`, `body`, `conversation`, `step`, `problem`.
    pub fn requests(&self) -> Vec<Value> {
        lock(&self.shared.requests).clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection that can be answered while it is read.
struct Connection(BufReader<TcpStream>);

impl io::Read for Connection {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl io::BufRead for Connection {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.0.consume(amount);
    }
}

impl http::Reply for Connection {
    fn reply(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.get_mut().write_all(bytes)
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut connection = Connection(BufReader::new(stream));
        while let Some(request) = http::read(&mut connection)? {
            let body = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
            let stream = connection.0.get_mut();
            match (request.method.as_str(), Endpoint::of(&request.path)) {
                ("POST", Some(Endpoint::Answer(wire))) => {
                    if !self.answer(stream, wire, &request, body)? {
                        return Ok(());
                    }
                }
                (_, endpoint) => {
                    self.remember(&request, body, json!({}));
                    errand(stream, endpoint, &request)?;
                }
            }
        }
        Ok(())
    }

    /// Answers as the script says; `false` when the connection is to end.
    fn answer(
        &self,
        stream: &mut TcpStream,
        wire: Wire,
        request: &Request,
        body: Value,
    ) -> io::Result<bool> {
        let asked = wire.read(&request.path, &body);
        let place = place(&self.script, &asked);
        let told = tell(place.as_ref(), &asked, request.body.len());
        let missing = told
            .calls
            .iter()
            .find(|(_, call)| !offers(&asked, &call.tool));
        let problem = missing.map(|(_, call)| format!("the tool {} is not offered", call.tool));
        self.remember(
            request,
            body,
            json!({
                "conversation": place.as_ref().map(|place| place.conversation),
                "step": place.as_ref().map(|place| place.step),
                "problem": problem,
            }),
        );
        let answer = place.as_ref().and_then(|Place { answer, .. }| *answer);
        let (status, cut) = answer.map_or((None, false), |answer| (answer.status, answer.cut));
        thread::sleep(Duration::from_millis(
            answer.map_or(0, |answer| answer.delay_ms),
        ));
        if let Some(status) = status {
            let body = wire.failure(status).to_string();
            http::answer(stream, status, JSON, body.as_bytes(), true)?;
            return Ok(true);
        }
        if !asked.stream {
            let body = wire.whole(&asked, &told).to_string();
            let sent = if cut { body.len() / 2 } else { body.len() };
            if cut {
                stream.write_all(
                    format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: {JSON}\r\ncontent-length: {}\r\n\r\n",
                        body.len()
                    )
                    .as_bytes(),
                )?;
                stream.write_all(&body.as_bytes()[..sent])?;
                return Ok(false);
            }
            http::answer(stream, 200, JSON, body.as_bytes(), true)?;
            return Ok(true);
        }
        let events = wire.events(&asked, &told);
        let sent = if cut { events.len() / 2 } else { events.len() };
        http::begin_events(stream)?;
        for event in &events[..sent] {
            http::chunk(stream, event.as_bytes())?;
        }
        if !cut {
            http::chunk(stream, b"")?;
        }
        Ok(!cut)
    }

    fn remember(&self, request: &Request, body: Value, more: Value) {
        let headers: serde_json::Map<String, Value> = request
            .headers
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().into()))
            .collect();
        let mut entry =
            json!({ "method": request.method, "path": request.path, "headers": headers });
        if let (Value::Object(entry), Value::Object(more)) = (&mut entry, more) {
            entry.extend(more);
        }
        entry["body"] = body;
        if let Some(log) = &self.log {
            // A log that cannot be written shows in the test that reads it.
            let _ = lock(log).write_all(format!("{entry}\n").as_bytes());
        }
        lock(&self.requests).push(entry);
    }
}

const JSON: &str = "application/json";

fn offers(asked: &Asked, tool: &str) -> bool {
    asked.tools.iter().any(|offered| offered == tool)
}

/// What a client asks beside answers of the model.
fn errand(stream: &mut TcpStream, endpoint: Option<Endpoint>, request: &Request) -> io::Result<()> {
    let with_body = request.method != "HEAD";
    let (status, body) = match endpoint {
        Some(Endpoint::Count(wire)) => {
            let tokens = u64::try_from(request.body.len() / 4).unwrap_or(u64::MAX);
            (200, wire.count(tokens))
        }
        Some(Endpoint::Models) => (
            200,
            json!({ "object": "list", "data": [{ "id": "scripted", "object": "model" }], "models": [] }),
        ),
        _ if !with_body => (200, Value::Null),
        _ => (
            404,
            json!({ "error": { "message": "there is nothing here" } }),
        ),
    };
    http::answer(stream, status, JSON, body.to_string().as_bytes(), with_body)
}
