//! The client's side of a connection: its requests, as they come.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::Duration;

use substrate_sys::poll;

use crate::body::Body;
use crate::head::{self, Bad, Framing, Request};
use crate::refusal::Why;
use crate::request::LONGEST_BODY;

/// How long a client may keep its connection without asking anything.
const BETWEEN: Duration = Duration::from_secs(10 * 60);

/// The client's side of a connection.
pub(crate) struct Client {
    pub stream: TcpStream,
    bytes: Vec<u8>,
}

impl Client {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Client> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(BETWEEN))?;
        stream.set_write_timeout(Some(BETWEEN))?;
        Ok(Client {
            stream,
            bytes: Vec::new(),
        })
    }

    /// Whether it has hung up.
    pub(crate) fn is_gone(&self) -> bool {
        match poll::readable(&[self.stream.as_fd()], Some(Duration::ZERO)) {
            Ok(ready) if ready == [true] => !matches!(self.stream.peek(&mut [0]), Ok(1..)),
            _ => false,
        }
    }

    fn more(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 64 << 10];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(length) => {
                    self.bytes.extend_from_slice(&buffer[..length]);
                    return Ok(length > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The next head; `None` when there is no further request.
    pub(crate) fn head(&mut self) -> io::Result<Option<Result<Request, Stop>>> {
        loop {
            let end = head::end(&self.bytes);
            if end.unwrap_or(self.bytes.len()) > head::LONGEST_REQUEST {
                let why = "its head is too long".to_owned();
                return Ok(Some(Err(Stop::new(Why::LongHead, why))));
            }
            if let Some(end) = end {
                let head = head::request(&self.bytes[..end]);
                self.bytes.drain(..end);
                return Ok(Some(head.map_err(Stop::unreadable)));
            }
            if !self.more()? {
                return Ok(None);
            }
        }
    }

    /// The whole body that belongs to a head.
    pub(crate) fn body(&mut self, head: &Request) -> io::Result<Result<Vec<u8>, Stop>> {
        let long = || Stop::new(Why::LongBody, "its body is too long".to_owned());
        if matches!(head.framing, Framing::Length(length) if length > LONGEST_BODY as u64) {
            return Ok(Err(long()));
        }
        if head.expects && head.framing != Framing::Length(0) {
            self.stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let (mut body, mut content) = (Body::new(head.framing), Vec::new());
        while !body.is_done() {
            match body.take(&self.bytes, &mut |piece| content.extend_from_slice(piece)) {
                Ok(used) => self.bytes.drain(..used),
                Err(bad) => return Ok(Err(Stop::unreadable(bad))),
            };
            if content.len() > LONGEST_BODY {
                return Ok(Err(long()));
            }
            if !body.is_done() && !self.more()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(Ok(content))
    }
}

/// Why a request goes no further.
pub(crate) struct Stop {
    pub why: Why,
    pub text: String,
    /// Where its body ends is not known, or it was not read.
    pub close: bool,
    /// The event was told already.
    pub told: bool,
}

impl Stop {
    pub(crate) fn new(why: Why, text: String) -> Stop {
        Stop {
            why,
            text,
            close: true,
            told: false,
        }
    }

    pub(crate) fn unreadable(bad: Bad) -> Stop {
        Stop::new(Why::Unreadable, bad.0.to_owned())
    }

    /// With the body read, the connection can go on.
    pub(crate) fn after_body(mut self) -> Stop {
        self.close = false;
        self
    }
}
