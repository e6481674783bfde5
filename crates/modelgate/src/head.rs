//! The heads of requests and answers. Only what can be read in one way is read at all: what one side
//! takes for the end of a message the other must not take for its middle.

use httparse::{EMPTY_HEADER, Status};

/// Longest head of a request.
pub(crate) const LONGEST_REQUEST: usize = 64 << 10;
/// Longest head of an answer.
pub(crate) const LONGEST_ANSWER: usize = 256 << 10;
const MOST_HEADERS: usize = 128;

/// A head that is not understood, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bad(pub &'static str);

/// How the body of a message ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// After so many bytes.
    Length(u64),
    /// With a last chunk.
    Chunked,
    /// With the connection.
    Close,
}

pub(crate) type Headers = Vec<(String, String)>;

/// The head of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub method: String,
    /// Without the query.
    pub path: String,
    pub query: Option<String>,
    /// Names in lower case.
    pub headers: Headers,
    pub framing: Framing,
    /// The connection may be used again.
    pub keep: bool,
    /// The client waits for a word before it sends the body.
    pub expects: bool,
}

/// The head of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub status: u16,
    pub headers: Headers,
    pub framing: Framing,
    pub keep: bool,
}

/// Where a head ends, once all of it is there.
pub(crate) fn end(bytes: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4)
}

/// Understands the whole head of a request.
pub(crate) fn request(bytes: &[u8]) -> Result<Request, Bad> {
    lines_end_properly(bytes)?;
    let mut space = [EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut space);
    match parsed.parse(bytes) {
        Ok(Status::Complete(length)) if length == bytes.len() => {}
        _ => return Err(Bad("it is no HTTP request")),
    }
    if parsed.version != Some(1) {
        return Err(Bad("only HTTP/1.1 is spoken here"));
    }
    let headers = headers(parsed.headers)?;
    let target = parsed.path.unwrap_or_default();
    if !target.starts_with('/') || target.contains('#') {
        return Err(Bad("its target is no path"));
    }
    if all(&headers, "host").count() > 1 {
        return Err(Bad("it names its host more than once"));
    }
    if all(&headers, "upgrade").next().is_some() || has_token(&headers, "connection", "upgrade") {
        return Err(Bad("no other protocol is spoken here"));
    }
    let framing = framing(&headers)?.unwrap_or(Framing::Length(0));
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (target, None),
    };
    Ok(Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: path.to_owned(),
        query,
        framing,
        keep: !has_token(&headers, "connection", "close"),
        expects: has_token(&headers, "expect", "100-continue"),
        headers,
    })
}

/// Understands the whole head of an answer to a request of this method.
pub(crate) fn answer(bytes: &[u8], method: &str) -> Result<Answer, Bad> {
    lines_end_properly(bytes)?;
    let mut space = [EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Response::new(&mut space);
    match parsed.parse(bytes) {
        Ok(Status::Complete(length)) if length == bytes.len() => {}
        _ => return Err(Bad("it is no HTTP answer")),
    }
    let headers = headers(parsed.headers)?;
    let status = parsed.code.unwrap_or(0);
    let empty = method == "HEAD" || matches!(status, 100..=199 | 204 | 304);
    let framing = match (framing(&headers)?, empty) {
        (_, true) => Framing::Length(0),
        (told, false) => told.unwrap_or(Framing::Close),
    };
    let keep = parsed.version == Some(1) && !has_token(&headers, "connection", "close");
    Ok(Answer {
        status,
        keep: keep && framing != Framing::Close,
        headers,
        framing,
    })
}

/// A line that ends with a bare line feed, or has a carriage return within, is two lines to some.
fn lines_end_properly(bytes: &[u8]) -> Result<(), Bad> {
    let odd = |at: usize| match bytes[at] {
        b'\n' => at == 0 || bytes[at - 1] != b'\r',
        b'\r' => bytes.get(at + 1) != Some(&b'\n'),
        _ => false,
    };
    match memchr::memchr2_iter(b'\n', b'\r', bytes).any(odd) {
        true => Err(Bad("a line of its head does not end as lines do")),
        false => Ok(()),
    }
}

fn headers(parsed: &[httparse::Header<'_>]) -> Result<Headers, Bad> {
    let one = |header: &httparse::Header<'_>| {
        let value = std::str::from_utf8(header.value).map_err(|_| Bad("a header is no text"))?;
        Ok((header.name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    parsed.iter().map(one).collect()
}

/// The values of a header.
pub(crate) fn all<'a>(headers: &'a Headers, name: &'a str) -> impl Iterator<Item = &'a str> {
    let same = headers.iter().filter(move |(known, _)| known == name);
    same.map(|(_, value)| value.as_str())
}

fn has_token(headers: &Headers, name: &str, token: &str) -> bool {
    all(headers, name)
        .flat_map(|value| value.split(','))
        .any(|word| word.trim().eq_ignore_ascii_case(token))
}

/// How the body ends, when the head says so.
fn framing(headers: &Headers) -> Result<Option<Framing>, Bad> {
    let mut lengths = all(headers, "content-length");
    let mut codings = all(headers, "transfer-encoding");
    match (lengths.next(), codings.next()) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(Bad("it says in two ways how long it is")),
        (None, Some(coding)) => match codings.next() {
            None if coding.eq_ignore_ascii_case("chunked") => Ok(Some(Framing::Chunked)),
            _ => Err(Bad("its transfer encoding is not `chunked`")),
        },
        (Some(length), None) => {
            let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
            match (length.parse(), lengths.next()) {
                (Ok(length), None) if digits => Ok(Some(Framing::Length(length))),
                _ => Err(Bad("it does not say clearly how long it is")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(lines: &str) -> Result<Request, Bad> {
        request(format!("{lines}\r\n\r\n").as_bytes())
    }

    #[test]
    fn a_plain_request_is_read() {
        let head = "POST /v1/messages?beta=true HTTP/1.1\r\nHost: x\r\nContent-Length: 5";
        let request = read(head).unwrap();
        assert_eq!(
            (&*request.path, request.query.as_deref()),
            ("/v1/messages", Some("beta=true"))
        );
        assert_eq!((request.framing, request.keep), (Framing::Length(5), true));
    }

    #[test]
    fn what_two_sides_could_read_differently_is_refused() {
        for head in [
            "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
            "POST / HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 5",
            "POST / HTTP/1.1\r\nContent-Length: 5, 5",
            "POST / HTTP/1.1\r\nContent-Length: +5",
            "POST / HTTP/1.1\r\nContent-Length: 0x5",
            "POST / HTTP/1.1\r\nContent-Length: ",
            "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999",
            "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            "POST / HTTP/1.1\r\nTransfer-Encoding : chunked",
            "POST / HTTP/1.1\r\nTransfer-Encoding: \x0bchunked",
            "POST / HTTP/1.1\r\n Content-Length: 5",
            "POST / HTTP/1.1\r\nX: a\r\n Content-Length: 5",
            "POST / HTTP/1.1\nContent-Length: 5",
            "POST / HTTP/1.1\r\nX: a\rContent-Length: 5",
            "POST / HTTP/1.0\r\nHost: x",
            "POST  / HTTP/1.1\r\nHost: x",
            "POST http://elsewhere/ HTTP/1.1\r\nHost: x",
            "CONNECT elsewhere:443 HTTP/1.1\r\nHost: x",
            "GET / HTTP/1.1\r\nHost: x\r\nHost: y",
            "GET / HTTP/1.1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket",
            "GET / HTTP/1.1\r\nUpgrade: h2c",
            "GET /a b HTTP/1.1\r\nHost: x",
            "PRI * HTTP/2.0",
        ] {
            assert!(read(head).is_err(), "{head:?}");
        }
        let many = "\r\nX: y".repeat(MOST_HEADERS + 1);
        assert!(read(&format!("GET / HTTP/1.1{many}")).is_err());
    }

    #[test]
    fn an_answer_ends_where_it_says() {
        let of = |lines: &str, method| answer(format!("{lines}\r\n\r\n").as_bytes(), method);
        let close = of("HTTP/1.1 200 OK\r\nX: y", "GET").unwrap();
        assert_eq!((close.framing, close.keep), (Framing::Close, false));
        let head = of("HTTP/1.1 200 OK\r\nContent-Length: 7", "HEAD").unwrap();
        assert_eq!(head.framing, Framing::Length(0));
        let both = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nTransfer-Encoding: chunked";
        assert!(of(both, "GET").is_err());
        assert!(of("HTTP/1.1 200 OK\r\nX: \u{0}", "GET").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_may_come(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = request(&bytes);
            let _ = answer(&bytes, "GET");
        }

        #[test]
        fn a_head_that_is_read_has_one_length(
            names in proptest::collection::vec(prop_oneof![
                Just("Content-Length: 3"), Just("content-length:3"), Just("Content-Length: 4"),
                Just("Transfer-Encoding: chunked"), Just("transfer-encoding: CHUNKED"),
                Just("Transfer-Encoding: x"), Just("X: y"),
            ], 0..5),
        ) {
            let lines = names.join("\r\n");
            let head = format!("POST / HTTP/1.1\r\nHost: x\r\n{lines}");
            let framings = names.iter().filter(|name| !name.starts_with('X')).count();
            if let Ok(request) = read(head.trim_end()) {
                prop_assert!(framings <= 1);
                prop_assert!(framings == 1 || request.framing == Framing::Length(0));
            }
        }
    }
}
