//! A client that waits: one request, one answer, over any stream.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::errors::{ErrorBody, Problem};

/// Longest head of an answer.
const LONGEST_HEAD: usize = 16 * 1024;
/// Longest body of an answer.
const LONGEST_BODY: usize = 64 << 20;
/// Most fields of a head.
const MOST_FIELDS: usize = 64;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The conversation broke.
    #[error("the service does not answer: {0}")]
    Io(#[from] io::Error),
    /// The answer is none.
    #[error("the service sent something that is no answer: {0}")]
    Garbled(String),
    /// The service said no.
    #[error("{problem}")]
    Refused {
        /// The status of HTTP.
        status: u16,
        /// What went wrong.
        problem: Problem,
    },
}

/// Asks for something.
pub fn get<T: DeserializeOwned>(stream: impl Read + Write, path: &str) -> Result<T, Error> {
    understand(send(stream, "GET", path, &[])?)
}

/// Sends something.
pub fn post<T: DeserializeOwned>(
    stream: impl Read + Write,
    path: &str,
    body: &impl Serialize,
) -> Result<T, Error> {
    let body = serde_json::to_vec(body).map_err(|error| Error::Garbled(error.to_string()))?;
    understand(send(stream, "POST", path, &body)?)
}

/// An answer as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status of HTTP.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// Sends a request, and waits for its answer.
pub fn send(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    body: &[u8],
) -> Result<Answer, Error> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: substrate\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    match stream.write_all(body) {
        // Whoever has heard enough may have answered.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
        other => other?,
    }
    let mut text = Vec::new();
    let most = LONGEST_HEAD + LONGEST_BODY;
    match stream.take(most as u64 + 1).read_to_end(&mut text) {
        // It closed with something of ours unread, and has answered before.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset && !text.is_empty() => {}
        other => drop(other?),
    }
    if text.len() > most {
        return Err(Error::Garbled("it is too long".to_owned()));
    }
    answer(&text)
}

fn answer(text: &[u8]) -> Result<Answer, Error> {
    let garbled = |what: &str| Error::Garbled(what.to_owned());
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let parsed = response.parse(text);
    let at = match parsed.map_err(|error| Error::Garbled(error.to_string()))? {
        httparse::Status::Complete(at) => at,
        httparse::Status::Partial => return Err(garbled("it ends in the middle of its head")),
    };
    let field = |name: &str| {
        let mut all = response.headers.iter();
        all.find(|field| field.name.eq_ignore_ascii_case(name))
            .map(|field| field.value)
    };
    let rest = &text[at..];
    let chunked = field("transfer-encoding").is_some();
    let body = match (chunked, field("content-length")) {
        (true, _) => unchunked(rest).ok_or_else(|| garbled("its parts do not fit"))?,
        (false, None) => rest.to_vec(),
        (false, Some(length)) => {
            let length = std::str::from_utf8(length)
                .ok()
                .and_then(|n| n.parse().ok());
            let body = length.and_then(|length: usize| rest.get(..length));
            body.ok_or_else(|| garbled("it ends too early"))?.to_vec()
        }
    };
    Ok(Answer {
        status: response.code.unwrap_or_default(),
        body,
    })
}

fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let httparse::Status::Complete((at, length)) = httparse::parse_chunk_size(rest).ok()?
        else {
            return None;
        };
        let length = usize::try_from(length).ok()?;
        if length == 0 {
            return Some(body);
        }
        let end = at.checked_add(length)?;
        body.extend_from_slice(rest.get(at..end)?);
        rest = rest.get(end..)?.strip_prefix(b"\r\n")?;
    }
}

fn understand<T: DeserializeOwned>(answer: Answer) -> Result<T, Error> {
    if (200..300).contains(&answer.status) {
        let body = serde_json::from_slice(&answer.body);
        return body.map_err(|error| Error::Garbled(error.to_string()));
    }
    match serde_json::from_slice::<ErrorBody>(&answer.body) {
        Ok(ErrorBody { error, .. }) => Err(Error::Refused {
            status: answer.status,
            problem: error,
        }),
        Err(_) => Err(Error::Garbled(format!("status {}", answer.status))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whole_or_not_at_all() {
        let whole = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        assert_eq!((whole.status, whole.body.as_slice()), (200, &b"{}"[..]));
        let parts =
            b"HTTP/1.1 404 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n";
        let parts = answer(parts).unwrap();
        assert_eq!((parts.status, parts.body.as_slice()), (404, &b"{}"[..]));
        for bad in [
            &b""[..],
            b"HTTP/1.1 200 OK\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{}",
            b"nonsense\r\n\r\n",
        ] {
            assert!(matches!(answer(bad), Err(Error::Garbled(_))), "{bad:?}");
        }
    }

    #[test]
    fn what_the_service_refuses_is_told_in_its_words() {
        let body = br#"{"v":1,"error":{"code":"forbidden","message":"no","hint":"ask"}}"#;
        let refused = understand::<()>(Answer {
            status: 403,
            body: body.to_vec(),
        });
        assert_eq!(refused.unwrap_err().to_string(), "no; ask");
    }
}
