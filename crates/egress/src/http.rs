//! HTTP/1 requests on one connection: where each begins and which host it is for.
//!
//! Strict on purpose: whatever two servers could read in two ways (bare line feeds, doubled
//! lengths, unknown codings) is refused, because a request hidden from us would go anywhere.
//! An `Upgrade` passes as an ordinary request; if the server really switches, what follows is
//! no longer HTTP/1 and the connection ends.

use super::record::Reason;

const MAX_HEAD: usize = 64 * 1024;
const MAX_LINE: usize = 4 * 1024;

/// Follows the requests of one client.
#[derive(Debug)]
pub struct Requests {
    state: State,
    /// The part of a head or line that is not complete yet.
    held: Vec<u8>,
    forward: Option<Forward>,
}

/// How requests are put to a forwarding proxy: the target becomes absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forward {
    /// `http://host` or `http://host:port`.
    pub origin: String,
    /// Value of `Proxy-Authorization`.
    pub authorization: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Body(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailer(usize),
}

/// The authority of a request: host and port, as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Authority<'a> {
    /// Host, without brackets.
    pub host: &'a [u8],
    /// Port, when there is one.
    pub port: Option<u16>,
}

impl Requests {
    /// Before the first request.
    pub fn new(forward: Option<Forward>) -> Requests {
        Requests {
            state: State::Head,
            held: Vec::new(),
            forward,
        }
    }

    /// Whether this first byte can begin a request.
    pub fn begins_with(first: u8) -> bool {
        first.is_ascii_uppercase() || matches!(first, b'\r')
    }

    /// Bytes of a head or line that is not complete yet.
    pub fn held(&self) -> &[u8] {
        &self.held
    }

    /// Takes bytes from the client; what may go on is appended to `out`. Nothing of a request
    /// goes on before `judge` has seen every authority that its head names.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        out: &mut Vec<u8>,
        judge: impl Fn(Authority<'_>) -> Option<Reason>,
    ) -> Result<(), Reason> {
        while !bytes.is_empty() {
            match self.state {
                State::Body(left) => {
                    let n = pass(&mut bytes, left, out);
                    self.state = if n == left {
                        State::Head
                    } else {
                        State::Body(left - n)
                    };
                }
                State::Chunk(left) => {
                    let n = pass(&mut bytes, left, out);
                    self.state = if n == left {
                        State::ChunkEnd
                    } else {
                        State::Chunk(left - n)
                    };
                }
                State::Head => {
                    self.hold(&mut bytes, MAX_HEAD)?;
                    if self.held == b"\r\n" {
                        self.held.clear();
                    } else if self.held.ends_with(b"\r\n\r\n") {
                        self.head(out, &judge)?;
                    }
                }
                State::ChunkSize => {
                    self.hold(&mut bytes, MAX_LINE)?;
                    if let Some(line) = self.held.strip_suffix(b"\r\n") {
                        let size = chunk_size(line)?;
                        self.state = if size == 0 {
                            State::Trailer(0)
                        } else {
                            State::Chunk(size)
                        };
                        out.append(&mut self.held);
                    }
                }
                State::ChunkEnd => {
                    let (head, rest) = bytes.split_at(bytes.len().min(2 - self.held.len()));
                    bytes = rest;
                    self.held.extend_from_slice(head);
                    if !b"\r\n".starts_with(&self.held) {
                        return Err(Reason::HttpRequest("has a bad chunk"));
                    }
                    if self.held.len() == 2 {
                        self.state = State::ChunkSize;
                        out.append(&mut self.held);
                    }
                }
                State::Trailer(seen) => {
                    self.hold(&mut bytes, MAX_LINE)?;
                    if self.held.ends_with(b"\r\n") {
                        let seen = seen + self.held.len();
                        if seen > MAX_HEAD {
                            return Err(Reason::HttpRequest("has an oversized trailer"));
                        }
                        let last = self.held == b"\r\n";
                        self.state = if last {
                            State::Head
                        } else {
                            State::Trailer(seen)
                        };
                        out.append(&mut self.held);
                    }
                }
            }
        }
        Ok(())
    }

    /// Moves bytes up to and including the next line feed into `held`.
    fn hold(&mut self, bytes: &mut &[u8], limit: usize) -> Result<(), Reason> {
        let line = bytes
            .iter()
            .position(|b| *b == b'\n')
            .map_or(bytes.len(), |at| at + 1);
        let (head, rest) = bytes.split_at(line);
        *bytes = rest;
        self.held.extend_from_slice(head);
        if self.held.len() > limit {
            return Err(Reason::HttpRequest("has an oversized head"));
        }
        // Checked once the line is complete; nothing of it has gone on before.
        if let Some(before) = self.held.strip_suffix(b"\n") {
            let start = before
                .iter()
                .rposition(|b| *b == b'\n')
                .map_or(0, |at| at + 1);
            let returns = before[start..].iter().filter(|b| **b == b'\r').count();
            if !before.ends_with(b"\r") || returns != 1 {
                return Err(Reason::HttpRequest(
                    "has a bare line feed or carriage return",
                ));
            }
        }
        Ok(())
    }

    fn head(
        &mut self,
        out: &mut Vec<u8>,
        judge: &impl Fn(Authority<'_>) -> Option<Reason>,
    ) -> Result<(), Reason> {
        let held = std::mem::take(&mut self.held);
        // No head has more fields than lines.
        let mut fields = vec![httparse::EMPTY_HEADER; held.iter().filter(|b| **b == b'\n').count()];
        let mut request = httparse::Request::new(&mut fields);
        match request.parse(&held) {
            Ok(httparse::Status::Complete(length)) if length == held.len() => {}
            Ok(_) => return Err(MALFORMED_LINE),
            Err(error) => return Err(malformed(error, &held)),
        }
        let (Some(method), Some(target)) = (request.method, request.path) else {
            return Err(MALFORMED_LINE);
        };
        if method == "CONNECT" {
            return Err(Reason::HttpRequest("asks for a tunnel (CONNECT)"));
        }
        let absolute = authority_of(target)?;
        let fields = read_fields(request.headers)?;
        let host = fields.host.ok_or(Reason::HttpRequest("has no Host"))?;
        let authority = parse_authority(host).ok_or(Reason::HttpRequest("has a bad Host"))?;
        if let Some(against) = judge(authority) {
            return Err(against);
        }
        if let Some(named) = absolute {
            let named = parse_authority(named).ok_or(Reason::HttpRequest("has a bad target"))?;
            if let Some(against) = judge(named) {
                return Err(against);
            }
        }
        self.state = match (fields.length, fields.chunked) {
            (Some(_), true) => return Err(Reason::HttpRequest("has two lengths")),
            (_, true) if request.version != Some(1) => {
                return Err(Reason::HttpRequest("is chunked in HTTP/1.0"));
            }
            // Once the server has switched, what was announced as a body would be a conversation that nobody follows.
            (Some(1..), false) | (None, true) if fields.upgrade => {
                return Err(Reason::HttpRequest("asks for an upgrade and has a body"));
            }
            (_, true) => State::ChunkSize,
            (Some(0) | None, false) => State::Head,
            (Some(length), false) => State::Body(length),
        };
        match &self.forward {
            Some(forward) if absolute.is_none() => forward.rewrite(method, target, &held, out),
            _ => out.extend_from_slice(&held),
        }
        Ok(())
    }
}

impl Forward {
    /// A head as the proxy wants it.
    fn rewrite(&self, method: &str, target: &str, head: &[u8], out: &mut Vec<u8>) {
        let path = if target == "*" { "" } else { target };
        out.extend(format!("{method} {}{path}", self.origin).into_bytes());
        let rest = &head[method.len() + 1 + target.len()..];
        let line = find(rest, b"\r\n").map_or(rest.len(), |at| at + 2);
        out.extend_from_slice(&rest[..line]);
        if let Some(authorization) = &self.authorization {
            out.extend(format!("Proxy-Authorization: {authorization}\r\n").into_bytes());
        }
        out.extend_from_slice(&rest[line..]);
    }
}

const MALFORMED_LINE: Reason = Reason::HttpRequest("has a malformed first line");

/// What is wrong with a head that cannot be read.
fn malformed(error: httparse::Error, head: &[u8]) -> Reason {
    use httparse::Error::{HeaderName, HeaderValue, Version};
    let line = &head[..find(head, b"\r\n").unwrap_or(head.len())];
    match error {
        Version if find(line, b" HTTP/2").is_some() => {
            Reason::HttpRequest("is HTTP/2 in clear text")
        }
        HeaderName | HeaderValue => Reason::HttpRequest("has a malformed header"),
        _ => MALFORMED_LINE,
    }
}

/// Moves at most `limit` bytes on and says how many.
fn pass(bytes: &mut &[u8], limit: u64, out: &mut Vec<u8>) -> u64 {
    let n = usize::try_from(limit)
        .unwrap_or(usize::MAX)
        .min(bytes.len());
    let (head, rest) = bytes.split_at(n);
    out.extend_from_slice(head);
    *bytes = rest;
    n as u64
}

/// The host that a target names itself; `None` for a path.
fn authority_of(target: &str) -> Result<Option<&[u8]>, Reason> {
    if target.starts_with('/') || target == "*" {
        return Ok(None);
    }
    let (scheme, rest) = target.split_at_checked(7).ok_or(MALFORMED_LINE)?;
    if !scheme.eq_ignore_ascii_case("http://") {
        return Err(MALFORMED_LINE);
    }
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    Ok(Some(&rest.as_bytes()[..end]))
}

#[derive(Default)]
struct Fields<'a> {
    host: Option<&'a [u8]>,
    length: Option<u64>,
    chunked: bool,
    upgrade: bool,
}

fn read_fields<'a>(fields: &[httparse::Header<'a>]) -> Result<Fields<'a>, Reason> {
    let mut found = Fields::default();
    for httparse::Header { name, value } in fields {
        if name.eq_ignore_ascii_case("host") {
            if found.host.replace(value).is_some() {
                return Err(Reason::HttpRequest("has two Hosts"));
            }
        } else if name.eq_ignore_ascii_case("upgrade") {
            found.upgrade = true;
        } else if name.eq_ignore_ascii_case("content-length") {
            let digits = std::str::from_utf8(value)
                .ok()
                .filter(|v| !v.is_empty() && v.len() < 20 && v.bytes().all(|b| b.is_ascii_digit()));
            let length = digits.and_then(|v| v.parse().ok());
            let length = length.ok_or(Reason::HttpRequest("has a bad Content-Length"))?;
            if found.length.replace(length).is_some() {
                return Err(Reason::HttpRequest("has two lengths"));
            }
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            if found.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err(Reason::HttpRequest("has an unknown Transfer-Encoding"));
            }
            found.chunked = true;
        } else if is_read_as_framing(name) {
            return Err(Reason::HttpRequest(
                "has a field that some servers read as another",
            ));
        }
    }
    Ok(found)
}

/// Servers that hand fields on as variables take `_` for `-`: to them these say where a request ends, or whom it is for.
fn is_read_as_framing(name: &str) -> bool {
    let plain = name.replace('_', "-");
    let framing = ["host", "content-length", "transfer-encoding"];
    framing
        .iter()
        .any(|known| plain.eq_ignore_ascii_case(known))
}

fn chunk_size(line: &[u8]) -> Result<u64, Reason> {
    let digits = line.split(|b| *b == b';').next().unwrap_or(line);
    let text = std::str::from_utf8(digits)
        .ok()
        .filter(|t| (1..=15).contains(&t.len()) && t.bytes().all(|b| b.is_ascii_hexdigit()));
    text.and_then(|t| u64::from_str_radix(t, 16).ok())
        .ok_or(Reason::HttpRequest("has a bad chunk"))
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`; nothing else.
pub fn parse_authority(text: &[u8]) -> Option<Authority<'_>> {
    let (host, port) = if let Some(rest) = text.strip_prefix(b"[") {
        let end = rest.iter().position(|b| *b == b']')?;
        (&rest[..end], &rest[end + 1..])
    } else {
        let end = text.iter().position(|b| *b == b':').unwrap_or(text.len());
        text.split_at(end)
    };
    let port = match port.strip_prefix(b":") {
        Some(digits) if digits.iter().all(u8::is_ascii_digit) => {
            Some(std::str::from_utf8(digits).ok()?.parse().ok()?)
        }
        Some(_) => return None,
        None if port.is_empty() => None,
        None => return None,
    };
    (!host.is_empty()).then_some(Authority { host, port })
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w == what)
}

/// The answer to a request that was refused.
pub fn refusal(text: &str) -> Vec<u8> {
    let body = format!("substrate: {text}\n");
    format!(
        "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn judge(authority: Authority<'_>) -> Option<Reason> {
        let good = authority.host.eq_ignore_ascii_case(b"a.test")
            && authority.port.is_none_or(|p| p == 80);
        (!good).then(|| Reason::HttpHost(String::from_utf8_lossy(authority.host).into()))
    }

    fn run(bytes: &[u8], step: usize) -> (Vec<u8>, Result<(), Reason>) {
        let mut requests = Requests::new(None);
        let mut out = Vec::new();
        for part in bytes.chunks(step) {
            if let Err(reason) = requests.feed(part, &mut out, judge) {
                return (out, Err(reason));
            }
        }
        (out, Ok(()))
    }

    #[test]
    fn requests_pass_unchanged_however_they_are_cut() {
        let text: &[u8] = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n\
            POST /x HTTP/1.1\r\nhost: A.TEST:80\r\nContent-Length: 12\r\n\r\nHost: b.test\
            POST /y HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n\
            5;x=y\r\nhello\r\n0\r\nTrailer: z\r\n\r\n\
            GET http://a.test/z HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n\
            OPTIONS * HTTP/1.0\r\nHost: a.test\r\n\r\n\
            GET /\xc3\xa9 HTTP/1.1\r\nHost:a.test\t \r\nX: \xff\r\nEmpty:\r\n\r\n";
        for step in [1, 2, 3, 7, 64, 4096] {
            let (out, result) = run(text, step);
            assert_eq!(result, Ok(()), "step {step}");
            assert_eq!(out, text, "step {step}");
        }
    }

    #[test]
    fn a_later_request_for_another_host_is_stopped_before_its_first_byte() {
        let first = b"GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc";
        let mut text = first.to_vec();
        text.extend(b"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n");
        for step in [1, 5, 4096] {
            let (out, result) = run(&text, step);
            assert_eq!(result, Err(Reason::HttpHost("b.test".into())));
            assert_eq!(out, first);
        }
    }

    #[test]
    fn whatever_could_be_read_in_two_ways_is_refused() {
        let heads: &[&[u8]] = &[
            b"GET / HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\nHost: a.test\n\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nX: 1\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\rX: 1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost : a.test\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\n folded\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: b.test@a.test\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test:443\r\n\r\n",
            b"GET http://b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET http://a.test@b.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET https://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"CONNECT a.test:80 HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET /\r\n\r\n",
            b"GET  / HTTP/1.1\r\nHost: a.test\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: +1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 99999999999999999999\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: xchunked\r\n\r\n",
            b"GET / HTTP/1.0\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\nContent-Length: 99\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\nupgrade: h2c\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nTransfer_Encoding: chunked\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nCONTENT_LENGTH: 5\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\ncontent_length: 5\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\r\nX: a\0b\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost:\x0ca.test\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a.test\x0c\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: \x0c1\r\n\r\n",
            b"GET /\xff HTTP/1.1\r\nHost: a.test\r\n\r\n",
        ];
        for head in heads {
            for step in [1, 4096] {
                let (out, result) = run(head, step);
                assert!(result.is_err(), "{}", String::from_utf8_lossy(head));
                assert_eq!(out, b"", "{}", String::from_utf8_lossy(head));
            }
        }
        for chunks in [
            "x\r\n",
            "-1\r\n",
            "5\nhello",
            "ffffffffffffffffff\r\n",
            "1\r\naXX",
            "\r\n",
        ] {
            let mut text =
                b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            text.extend(chunks.as_bytes());
            assert!(run(&text, 4096).1.is_err(), "{chunks:?}");
        }
    }

    #[test]
    fn heads_and_lines_have_limits() {
        let mut long = b"GET / HTTP/1.1\r\nHost: a.test\r\nX: ".to_vec();
        long.resize(MAX_HEAD + 10, b'a');
        assert!(run(&long, 1000).1.is_err());
    }

    #[test]
    fn a_forwarding_proxy_gets_absolute_targets() {
        let forward = Forward {
            origin: "http://a.test".into(),
            authorization: Some("Basic eDp5".into()),
        };
        let mut requests = Requests::new(Some(forward));
        let mut out = Vec::new();
        let text =
            b"GET /p?q HTTP/1.1\r\nHost: a.test\r\n\r\nOPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n";
        requests.feed(text, &mut out, judge).unwrap();
        let want = "GET http://a.test/p?q HTTP/1.1\r\nProxy-Authorization: Basic eDp5\r\n\
            Host: a.test\r\n\r\nOPTIONS http://a.test HTTP/1.1\r\n\
            Proxy-Authorization: Basic eDp5\r\nHost: a.test\r\n\r\n";
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_pass_without_the_right_host(
            bytes in proptest::collection::vec(any::<u8>(), 0..400), step in 1usize..50
        ) {
            let (out, _) = run(&bytes, step);
            if !out.is_empty() {
                prop_assert!(find(&out.to_ascii_lowercase(), b"host").is_some());
            }
        }

        #[test]
        fn cutting_makes_no_difference(step in 1usize..40, at in 0usize..200, with in any::<u8>()) {
            let mut text = b"POST /y HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n\
                5;x=y\r\nhello\r\n0\r\nTrailer: z\r\n\r\nGET / HTTP/1.1\r\nHost: a.test\r\n\r\n".to_vec();
            let index = at % text.len();
            text[index] = with;
            prop_assert_eq!(run(&text, step), run(&text, text.len()));
        }
    }
}
