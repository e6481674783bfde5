//! An answer on its way to the client: passed on as it comes, and read for its usage meanwhile.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use crate::body::{self, Body};
use crate::client::Client;
use crate::dial::Line;
use crate::head::{self, Answer, Bad, Framing, Headers};
use crate::usage::{Meter, Usage};
use crate::wire::Kind;

/// How long a host may think without a word.
const SILENCE: Duration = Duration::from_secs(15 * 60);
/// Interim answers before the real one.
const MOST_INTERIM: usize = 8;

/// Why there is no whole answer.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The client is gone.
    Client,
    /// The host: what is wrong with its answer.
    Host(String),
    /// The host closed a connection that was used before, without a word.
    Stale,
}

impl From<Bad> for Broken {
    fn from(bad: Bad) -> Broken {
        Broken::Host(bad.0.to_owned())
    }
}

/// What has come from the host and is not used yet.
pub(crate) struct Incoming {
    pub line: Line,
    bytes: Vec<u8>,
}

impl Incoming {
    pub(crate) fn new(line: Line) -> Incoming {
        Incoming {
            line,
            bytes: Vec::new(),
        }
    }

    /// Waits for more, as long as the client does; false at the end.
    fn more(&mut self, client: &Client) -> Result<bool, Broken> {
        let since = Instant::now();
        let mut buffer = [0; 16 << 10];
        loop {
            match self.line.read(&mut buffer) {
                Ok(Some(0)) => return Ok(false),
                Ok(Some(length)) => {
                    self.bytes.extend_from_slice(&buffer[..length]);
                    return Ok(true);
                }
                Ok(None) if client.is_gone() => return Err(Broken::Client),
                Ok(None) if since.elapsed() > SILENCE => {
                    return Err(Broken::Host("it says nothing any more".to_owned()));
                }
                Ok(None) => {}
                Err(error) => return Err(Broken::Host(error.to_string())),
            }
        }
    }

    /// The head of the answer to a request of this method.
    pub(crate) fn head(&mut self, method: &str, client: &Client) -> Result<Answer, Broken> {
        for _ in 0..MOST_INTERIM {
            let end = loop {
                if let Some(end) = head::end(&self.bytes) {
                    break end;
                }
                if self.bytes.len() > head::LONGEST_ANSWER {
                    return Err(Broken::Host("its head is too long".to_owned()));
                }
                let nothing = self.bytes.is_empty() && self.line.used;
                match self.more(client) {
                    Ok(true) => {}
                    Ok(false) | Err(Broken::Host(_)) if nothing => return Err(Broken::Stale),
                    Ok(false) => return Err(Broken::Host("it ends too early".to_owned())),
                    Err(broken) => return Err(broken),
                }
            };
            let head = head::answer(&self.bytes[..end], method)?;
            self.bytes.drain(..end);
            match head.status {
                100 | 102..=199 => {}
                101 => return Err(Broken::Host("it speaks another protocol".to_owned())),
                _ => return Ok(head),
            }
        }
        Err(Broken::Host("it does not come to an end".to_owned()))
    }

    /// Passes the answer on. `settle` is called with what it cost before the client has its last byte: the
    /// next request then knows. Tells whether the connection can be used again.
    pub(crate) fn pass(
        &mut self,
        answer: &Answer,
        kind: Kind,
        client: &mut Client,
        keep: bool,
        settle: &mut dyn FnMut(Result<Option<Usage>, Usage>),
    ) -> Result<bool, Broken> {
        let events = head::all(&answer.headers, "content-type").any(|kind| {
            kind.trim_start()
                .to_ascii_lowercase()
                .starts_with("text/event-stream")
        });
        let mut passing = Passing {
            meter: Meter::new(kind, events),
            body: Body::new(answer.framing),
            chunks: matches!(answer.framing, Framing::Chunked | Framing::Close),
        };
        let mut out = client_head(answer, keep && !self.is_odd(answer));
        let end = self.pass_body(&mut passing, &mut out, client);
        match &end {
            Ok(()) => settle(Ok(passing.meter.end())),
            Err(_) => {
                passing.meter.end();
                settle(Err(passing.meter.so_far()));
            }
        }
        end?;
        if passing.chunks {
            out.extend_from_slice(body::LAST_CHUNK);
        }
        client.stream.write_all(&out).map_err(|_| Broken::Client)?;
        Ok(answer.keep && self.bytes.is_empty())
    }

    /// More has come already than such an answer has.
    fn is_odd(&self, answer: &Answer) -> bool {
        answer.framing == Framing::Length(0) && !self.bytes.is_empty()
    }

    /// Passes on everything but the last piece, which stays in `out`.
    fn pass_body(
        &mut self,
        passing: &mut Passing,
        out: &mut Vec<u8>,
        client: &mut Client,
    ) -> Result<(), Broken> {
        loop {
            let used = passing.take(&self.bytes, out)?;
            self.bytes.drain(..used);
            if passing.body.is_done() {
                return Ok(());
            }
            if !out.is_empty() {
                client.stream.write_all(out).map_err(|_| Broken::Client)?;
                out.clear();
            }
            if !self.more(client)? {
                return match passing.body.may_end() {
                    true => Ok(()),
                    false => Err(Broken::Host("it ends too early".to_owned())),
                };
            }
        }
    }
}

struct Passing {
    meter: Meter,
    body: Body,
    /// It goes to the client in chunks.
    chunks: bool,
}

impl Passing {
    fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Bad> {
        let Passing {
            meter,
            body,
            chunks,
        } = self;
        // What came at one time goes on as one chunk.
        let mut content = Vec::new();
        let used = body.take(bytes, &mut |piece| content.extend_from_slice(piece))?;
        meter.pass(&content);
        match chunks {
            true => body::chunk(&content, out),
            false => out.append(&mut content),
        }
        Ok(used)
    }
}

/// Headers of an answer that are about one connection, or about ways around the gate.
const NOT_PASSED: [&str; 14] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "te",
    "trailer",
    "transfer-encoding",
    "content-length",
    "upgrade",
    "set-cookie",
    "alt-svc",
    "location",
    "refresh",
    "strict-transport-security",
];

fn client_head(answer: &Answer, keep: bool) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {} {}\r\n", answer.status, reason(answer.status));
    push_headers(
        &answer.headers,
        |name| !NOT_PASSED.contains(&name),
        &mut text,
    );
    match answer.framing {
        Framing::Length(length) => {
            let told = head::all(&answer.headers, "content-length").next();
            let empty = matches!(answer.status, 204 | 304);
            if !empty {
                let length = length.to_string();
                // The answer to a `HEAD` tells of a body that does not come.
                text.push_str(&format!("content-length: {}\r\n", told.unwrap_or(&length)));
            }
        }
        Framing::Chunked | Framing::Close => text.push_str("transfer-encoding: chunked\r\n"),
    }
    text.push_str(if keep {
        "\r\n"
    } else {
        "connection: close\r\n\r\n"
    });
    text.into_bytes()
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        529 => "Overloaded",
        _ => "Status",
    }
}

pub(crate) fn push_headers(headers: &Headers, passes: impl Fn(&str) -> bool, text: &mut String) {
    for (name, value) in headers.iter().filter(|(name, _)| passes(name)) {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
}

/// So that a broken connection is told apart from one that this side closes.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
    )
}
