//! As much of HTTP/1.1 as clients of models speak.

use std::io::{self, BufRead, Read, Write};

/// Larger than any request of a test.
const MAX_HEAD: usize = 64 * 1024;
const MAX_BODY: usize = 64 * 1024 * 1024;
const MAX_HEADERS: usize = 100;

/// A request.
#[derive(Debug, Default)]
pub struct Request {
    pub method: String,
    /// Without the query.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// Reads the next request of a connection; `None` at its end.
pub fn read(stream: &mut (impl BufRead + Reply)) -> io::Result<Option<Request>> {
    let Some(head) = read_head(stream)? else {
        return Ok(None);
    };
    let mut request = parse(&head)?;
    if request.header("expect").is_some() {
        stream.reply(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let chunked = request
        .header("transfer-encoding")
        .is_some_and(|value| value.contains("chunked"));
    request.body = match chunked {
        true => read_chunks(stream)?,
        false => {
            let length = request.header("content-length").unwrap_or("0").parse();
            read_exactly(stream, length.map_err(|_| bad("Content-Length"))?)?
        }
    };
    Ok(Some(request))
}

/// The way back to whom is read from.
pub trait Reply {
    /// Sends bytes at once.
    fn reply(&mut self, bytes: &[u8]) -> io::Result<()>;
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("bad {what}"))
}

fn read_head(stream: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    loop {
        let before = head.len();
        let limit = u64::try_from(MAX_HEAD - before).unwrap_or(0);
        stream.by_ref().take(limit).read_until(b'\n', &mut head)?;
        if head.len() == before {
            let nothing = head.is_empty() || before == MAX_HEAD;
            return if nothing { Ok(None) } else { Err(bad("head")) };
        }
        if head.ends_with(b"\r\n\r\n") {
            return Ok(Some(head));
        }
    }
}

fn parse(head: &[u8]) -> io::Result<Request> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    parsed.parse(head).map_err(|_| bad("request"))?;
    let path = parsed.path.unwrap_or_default();
    let headers = parsed.headers.iter().map(|header| {
        let value = String::from_utf8_lossy(header.value).into_owned();
        (header.name.to_ascii_lowercase(), value)
    });
    Ok(Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: path.split('?').next().unwrap_or_default().to_owned(),
        headers: headers.collect(),
        body: Vec::new(),
    })
}

fn read_exactly(stream: &mut impl BufRead, length: usize) -> io::Result<Vec<u8>> {
    if length > MAX_BODY {
        return Err(bad("length"));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(body)
}

fn read_chunks(stream: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        stream.by_ref().take(64).read_line(&mut line)?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| bad("chunk"))?;
        if body.len().saturating_add(size) > MAX_BODY {
            return Err(bad("length"));
        }
        body.extend(read_exactly(stream, size)?);
        read_exactly(stream, 2)?;
        if size == 0 {
            return Ok(body);
        }
    }
}

/// Writes a whole answer.
pub fn answer(
    stream: &mut impl Write,
    status: u16,
    kind: &str,
    body: &[u8],
    with_body: bool,
) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status} {}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        if status < 400 { "OK" } else { "Failed" },
        body.len()
    );
    let mut all = head.into_bytes();
    if with_body {
        all.extend_from_slice(body);
    }
    stream.write_all(&all)
}

/// Begins an answer in chunks.
pub fn begin_events(stream: &mut impl Write) -> io::Result<()> {
    stream.write_all(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n",
    )
}

/// Sends one chunk; an empty one ends the answer.
pub fn chunk(stream: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let mut all = format!("{:x}\r\n", bytes.len()).into_bytes();
    all.extend_from_slice(bytes);
    all.extend_from_slice(b"\r\n");
    stream.write_all(&all)
}
