//! DNS messages: reading queries and answers, writing both. Every input has an outcome.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Record types that are known by name.
pub mod kind {
    /// IPv4 address.
    pub const A: u16 = 1;
    /// Alias.
    pub const CNAME: u16 = 5;
    /// Name of an address.
    pub const PTR: u16 = 12;
    /// Mail exchangers.
    pub const MX: u16 = 15;
    /// Text.
    pub const TXT: u16 = 16;
    /// IPv6 address.
    pub const AAAA: u16 = 28;
    /// Service location.
    pub const SRV: u16 = 33;
    /// Anything there is.
    pub const ANY: u16 = 255;
}

/// Response codes.
pub mod code {
    /// No error.
    pub const OK: u8 = 0;
    /// The query cannot be read.
    pub const FORMAT: u8 = 1;
    /// The server cannot answer now.
    pub const FAILURE: u8 = 2;
    /// There is no such name.
    pub const NO_NAME: u8 = 3;
    /// This kind of query is not known.
    pub const NOT_IMPLEMENTED: u8 = 4;
    /// Not for you.
    pub const REFUSED: u8 = 5;
}

/// Seconds an answer may be remembered; the address of a name never changes within a world.
const TTL: u32 = 30;
/// Seconds a "no" may be remembered; an approval may turn it into a "yes".
const NEGATIVE_TTL: u32 = 2;
const HEADER: usize = 12;
const CLASS_IN: u16 = 1;
const OPT: u16 = 41;
/// What is offered and accepted over UDP; fits every common path.
pub const UDP_SIZE: u16 = 1232;

/// A query that could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    id: u16,
    recursion_desired: bool,
    question: Vec<u8>,
    /// The labels, joined by dots, in the case they came in; dots inside labels make it invalid.
    pub name: Vec<u8>,
    /// Record type asked for.
    pub kind: u16,
    /// The UDP size the client accepts, if it speaks EDNS.
    pub edns: Option<u16>,
}

/// What to do about bytes that are no query we answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// Nothing can be said.
    Ignore,
    /// This goes back.
    Reply(Vec<u8>),
}

/// Reads a query.
pub fn read_query(bytes: &[u8]) -> Result<Query, Unreadable> {
    let header = bytes.get(..HEADER).ok_or(Unreadable::Ignore)?;
    let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let flags = number(2);
    if flags & 0x8000 != 0 {
        return Err(Unreadable::Ignore);
    }
    let plain = |rcode: u8| {
        let mut out = header[..2].to_vec();
        let flags = 0x8080 | (flags & 0x7900) | u16::from(rcode);
        out.extend(flags.to_be_bytes());
        out.extend([0; 8]);
        Unreadable::Reply(out)
    };
    if flags & 0x7800 != 0 {
        return Err(plain(code::NOT_IMPLEMENTED));
    }
    if number(4) != 1 || number(6) != 0 {
        return Err(plain(code::FORMAT));
    }
    let format = || plain(code::FORMAT);
    let (name, at) = read_plain_name(bytes, HEADER).ok_or_else(format)?;
    let fixed = bytes.get(at..at + 4).ok_or_else(format)?;
    let kind = u16::from_be_bytes([fixed[0], fixed[1]]);
    let class = u16::from_be_bytes([fixed[2], fixed[3]]);
    let question = bytes[HEADER..at + 4].to_vec();
    if class != CLASS_IN && class != kind::ANY {
        return Err(plain(code::REFUSED));
    }
    let mut edns = None;
    let mut next = at + 4;
    for _ in 0..u32::from(number(8)) + u32::from(number(10)) {
        let record = read_record(bytes, next).ok_or_else(format)?;
        if record.kind == OPT {
            edns = Some(record.class);
        }
        next = record.end;
    }
    Ok(Query {
        id: number(0),
        recursion_desired: flags & 0x100 != 0,
        question,
        name,
        kind,
        edns,
    })
}

/// A record of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// IPv4 address.
    A(Ipv4Addr),
    /// IPv6 address.
    Aaaa(Ipv6Addr),
    /// A name.
    Ptr(String),
}

impl Query {
    fn header(&self, out: &mut Vec<u8>, rcode: u8, counts: [u16; 3]) {
        out.extend(self.id.to_be_bytes());
        let desired = if self.recursion_desired { 0x100 } else { 0 };
        out.extend((0x8080 | desired | u16::from(rcode)).to_be_bytes());
        out.extend(1u16.to_be_bytes());
        for count in counts {
            out.extend(count.to_be_bytes());
        }
        out.extend(&self.question);
    }

    fn opt(&self, out: &mut Vec<u8>, why: Option<&str>) {
        if self.edns.is_none() {
            return;
        }
        out.push(0);
        out.extend(OPT.to_be_bytes());
        out.extend(UDP_SIZE.to_be_bytes());
        out.extend([0; 4]);
        const EXTENDED_ERROR: u16 = 15;
        const PROHIBITED: u16 = 18;
        match why {
            None => out.extend([0; 2]),
            Some(text) => {
                let text = &text.as_bytes()[..text.len().min(200)];
                out.extend((text.len() as u16 + 6).to_be_bytes());
                out.extend(EXTENDED_ERROR.to_be_bytes());
                out.extend((text.len() as u16 + 2).to_be_bytes());
                out.extend(PROHIBITED.to_be_bytes());
                out.extend(text);
            }
        }
    }

    /// An answer with these records; without any, "there is nothing of that type".
    pub fn answer(&self, records: &[Record]) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        let extra = u16::from(self.edns.is_some());
        let empty = u16::from(records.is_empty());
        self.header(&mut out, code::OK, [records.len() as u16, empty, extra]);
        for record in records {
            let (kind, data) = match record {
                Record::A(a) => (kind::A, a.octets().to_vec()),
                Record::Aaaa(a) => (kind::AAAA, a.octets().to_vec()),
                Record::Ptr(name) => (kind::PTR, encode_name(name)),
            };
            out.extend([0xc0, HEADER as u8]);
            out.extend(kind.to_be_bytes());
            out.extend(CLASS_IN.to_be_bytes());
            out.extend(TTL.to_be_bytes());
            out.extend((data.len() as u16).to_be_bytes());
            out.extend(data);
        }
        if records.is_empty() {
            authority(&mut out);
        }
        self.opt(&mut out, None);
        out
    }

    /// An answer without records; `why` is told to clients that understand it.
    pub fn fail(&self, rcode: u8, why: Option<&str>) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        let extra = u16::from(self.edns.is_some());
        let negative = u16::from(rcode == code::NO_NAME);
        self.header(&mut out, rcode, [0, negative, extra]);
        if rcode == code::NO_NAME {
            authority(&mut out);
        }
        self.opt(&mut out, why);
        out
    }

    /// Passes on what a resolver of the host answered: its answer section alone, and only if it
    /// holds nothing but what was asked for. Everything else it said could carry addresses.
    pub fn relay(&self, response: &[u8]) -> Vec<u8> {
        let Some(read) = read_response(response) else {
            return self.fail(code::FAILURE, None);
        };
        match read.rcode {
            code::OK => {}
            code::NO_NAME => return self.fail(code::NO_NAME, None),
            _ => return self.fail(code::FAILURE, None),
        }
        let wanted = |r: &ReadRecord| r.kind == self.kind || r.kind == kind::CNAME;
        if read.records.is_empty() || !read.records.iter().all(wanted) {
            return self.answer(&[]);
        }
        // Names may be compressed, pointing backwards only: the question has the same length,
        // so every pointer into the kept part stays right.
        let Some(body) = response.get(read.answers_at..read.answers_end) else {
            return self.fail(code::FAILURE, None);
        };
        if read.answers_at != HEADER + self.question.len() {
            return self.fail(code::FAILURE, None);
        }
        let mut out = Vec::with_capacity(HEADER + self.question.len() + body.len());
        self.header(&mut out, code::OK, [read.records.len() as u16, 0, 0]);
        out.extend(body);
        out
    }

    /// Cuts an answer down to a truncated one if it is too long for UDP.
    pub fn fit_udp(&self, answer: Vec<u8>) -> Vec<u8> {
        let limit = self.edns.unwrap_or(512).clamp(512, UDP_SIZE);
        if answer.len() <= limit.into() {
            return answer;
        }
        let mut out = Vec::new();
        self.header(&mut out, code::OK, [0, 0, 0]);
        out[2] |= 0x02;
        out
    }
}

/// A start-of-authority record of the root, which limits how long a "no" is remembered.
fn authority(out: &mut Vec<u8>) {
    const SOA: u16 = 6;
    out.push(0);
    out.extend(SOA.to_be_bytes());
    out.extend(CLASS_IN.to_be_bytes());
    out.extend(NEGATIVE_TTL.to_be_bytes());
    out.extend(22u16.to_be_bytes());
    out.extend([0, 0]);
    for number in [1u32, 60, 60, 60, NEGATIVE_TTL] {
        out.extend(number.to_be_bytes());
    }
}

/// Writes a query of our own.
pub fn write_query(id: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut out = id.to_be_bytes().to_vec();
    out.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    out.extend(encode_name(name));
    out.extend(kind.to_be_bytes());
    out.extend(CLASS_IN.to_be_bytes());
    out.push(0);
    out.extend(OPT.to_be_bytes());
    out.extend(UDP_SIZE.to_be_bytes());
    out.extend([0; 6]);
    out
}

/// Whether a response answers this query of ours.
pub fn answers(query: &[u8], response: &[u8]) -> bool {
    let end = read_plain_name(query, HEADER).map(|(_, end)| end + 4);
    let Some(question) = end.and_then(|end| query.get(HEADER..end)) else {
        return false;
    };
    response.len() >= HEADER + question.len()
        && response[..2] == query[..2]
        && response[2] & 0x80 != 0
        && response[4..6] == [0, 1]
        && response[HEADER..HEADER + question.len()].eq_ignore_ascii_case(question)
}

/// A response of a resolver.
#[derive(Debug)]
pub struct Response {
    /// Response code.
    pub rcode: u8,
    /// More is to be had over TCP.
    pub truncated: bool,
    /// The answer section.
    pub records: Vec<ReadRecord>,
    answers_at: usize,
    answers_end: usize,
}

/// A record that was read.
#[derive(Debug)]
pub struct ReadRecord {
    /// Its type.
    pub kind: u16,
    /// Its address, for the two types that have one.
    pub address: Option<IpAddr>,
    /// Seconds it may be remembered.
    pub ttl: u32,
    class: u16,
    end: usize,
}

/// Reads a response.
pub fn read_response(bytes: &[u8]) -> Option<Response> {
    let header = bytes.get(..HEADER)?;
    let number = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    if header[2] & 0x80 == 0 || number(4) != 1 {
        return None;
    }
    let answers_at = skip_name(bytes, HEADER)? + 4;
    let mut at = answers_at;
    let truncated = header[2] & 0x02 != 0;
    let mut records = Vec::new();
    for _ in 0..number(6) {
        match read_record(bytes, at) {
            Some(record) => {
                at = record.end;
                records.push(record);
            }
            None if truncated => break,
            None => return None,
        }
    }
    let rcode = header[3] & 0x0f;
    Some(Response {
        rcode,
        truncated,
        records,
        answers_at,
        answers_end: at,
    })
}

fn read_record(bytes: &[u8], at: usize) -> Option<ReadRecord> {
    let at = skip_name(bytes, at)?;
    let fixed = bytes.get(at..at + 10)?;
    let kind = u16::from_be_bytes([fixed[0], fixed[1]]);
    let class = u16::from_be_bytes([fixed[2], fixed[3]]);
    let ttl = u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]);
    let length = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
    let data = bytes.get(at + 10..at + 10 + length)?;
    let address = match kind {
        kind::A => <[u8; 4]>::try_from(data).ok().map(IpAddr::from),
        kind::AAAA => <[u8; 16]>::try_from(data).ok().map(IpAddr::from),
        _ => None,
    };
    Some(ReadRecord {
        kind,
        address,
        ttl,
        class,
        end: at + 10 + length,
    })
}

/// Where a name, compressed or not, ends.
fn skip_name(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *bytes.get(at)? {
            0 => return Some(at + 1),
            n if n & 0xc0 == 0xc0 => return bytes.get(at + 1).map(|_| at + 2),
            n if n & 0xc0 == 0 => at += 1 + usize::from(n),
            _ => return None,
        }
    }
}

/// A name without compression, as text; and where it ends.
fn read_plain_name(bytes: &[u8], start: usize) -> Option<(Vec<u8>, usize)> {
    let mut name = Vec::new();
    let mut at = start;
    loop {
        let length = usize::from(*bytes.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        if length > 63 || at + length - start > 254 {
            return None;
        }
        if !name.is_empty() {
            name.push(b'.');
        }
        let label = bytes.get(at..at + length)?;
        // A dot inside a label must not turn into a separator.
        name.extend(label.iter().map(|b| if *b == b'.' { b' ' } else { *b }));
        at += length;
    }
}

fn encode_name(name: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 2);
    for label in name.split('.').filter(|l| !l.is_empty()) {
        let label = &label.as_bytes()[..label.len().min(63)];
        out.push(label.len() as u8);
        out.extend(label);
    }
    out.push(0);
    out
}

/// The address that a reverse name asks about.
pub fn reverse_address(name: &str) -> Option<IpAddr> {
    if let Some(head) = name.strip_suffix(".in-addr.arpa") {
        let mut parts = head.rsplit('.').map(|p| p.parse::<u8>().ok());
        let octets = [
            parts.next()??,
            parts.next()??,
            parts.next()??,
            parts.next()??,
        ];
        return parts.next().is_none().then(|| IpAddr::from(octets));
    }
    let head = name.strip_suffix(".ip6.arpa")?;
    let mut bits = 0u128;
    let mut count = 0;
    for part in head.rsplit('.') {
        let digit = part.chars().next()?.to_digit(16)?;
        if part.len() != 1 {
            return None;
        }
        bits = bits << 4 | u128::from(digit);
        count += 1;
    }
    (count == 32).then(|| IpAddr::from(Ipv6Addr::from_bits(bits)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_query_is_read_and_answered() {
        let query = read_query(&write_query(7, "A.Test", kind::A)).unwrap();
        assert_eq!(query.name, b"A.Test");
        assert_eq!((query.kind, query.edns), (kind::A, Some(UDP_SIZE)));
        let answer = query.answer(&[Record::A(Ipv4Addr::new(198, 18, 0, 1))]);
        assert!(answers(&write_query(7, "a.test", kind::A), &answer));
        let read = read_response(&answer).unwrap();
        assert_eq!(read.rcode, code::OK);
        assert_eq!(read.records[0].address, Some("198.18.0.1".parse().unwrap()));
        assert_eq!(answer[..2], [0, 7]);
    }

    #[test]
    fn noes_say_why_and_how_long() {
        let query = read_query(&write_query(7, "b.test", kind::A)).unwrap();
        let no = query.fail(code::NO_NAME, Some("not in net.allowed"));
        assert_eq!(read_response(&no).unwrap().rcode, code::NO_NAME);
        assert!(no.windows(18).any(|w| w == b"not in net.allowed"));
        let nothing = query.answer(&[]);
        let read = read_response(&nothing).unwrap();
        assert_eq!((read.rcode, read.records.len()), (code::OK, 0));
        assert_eq!(nothing[9], 1, "one authority record");
    }

    #[test]
    fn wrong_queries_get_the_right_errors() {
        let mut bytes = write_query(7, "a.test", kind::A);
        let rcode = |bytes: &[u8]| match read_query(bytes) {
            Err(Unreadable::Reply(reply)) => Some(reply[3] & 15),
            _ => None,
        };
        bytes[5] = 2;
        assert_eq!(rcode(&bytes), Some(code::FORMAT));
        bytes[5] = 1;
        bytes[2] = 0x28;
        assert_eq!(rcode(&bytes), Some(code::NOT_IMPLEMENTED));
        bytes[2] = 0x80;
        assert_eq!(read_query(&bytes), Err(Unreadable::Ignore));
        assert_eq!(read_query(&[0; 5]), Err(Unreadable::Ignore));
        let mut chaos = write_query(7, "version.bind", kind::TXT);
        let at = chaos.len() - 11 - 1;
        chaos[at] = 3;
        assert_eq!(rcode(&chaos), Some(code::REFUSED));
        let mut looped = write_query(7, "a", kind::A);
        looped[12] = 0xc0;
        assert_eq!(rcode(&looped), Some(code::FORMAT));
    }

    #[test]
    fn a_dot_inside_a_label_is_no_separator() {
        let mut bytes = write_query(7, "aXtest", kind::A);
        bytes[14] = b'.';
        assert_eq!(read_query(&bytes).unwrap().name, b"a test");
    }

    #[test]
    fn relayed_answers_lose_everything_but_the_answer() {
        let query = read_query(&write_query(9, "a.test", kind::TXT)).unwrap();
        let ours = write_query(1, "a.test", kind::TXT);
        let mut response = ours[..HEADER + 12].to_vec();
        response[2] = 0x81;
        response[7] = 1;
        response[11] = 1;
        response.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 9, 0, 3, 2, b'h', b'i']);
        response.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 10, 0, 0, 1]);
        let out = query.relay(&response);
        assert_eq!(out[..2], [0, 9]);
        assert!(out.ends_with(b"\x02hi"));
        assert_eq!(out[11], 0);
        response[HEADER + 12 + 3] = 1;
        let read = read_response(&query.relay(&response)).unwrap();
        assert_eq!(
            read.records.len(),
            0,
            "an address in answer to TXT is dropped"
        );
    }

    #[test]
    fn long_answers_are_truncated_for_udp() {
        let query = read_query(&write_query(9, "a.test", kind::TXT)).unwrap();
        let cut = query.fit_udp(vec![0; 2000]);
        assert!(read_response(&cut).unwrap().truncated);
        assert_eq!(query.fit_udp(vec![0; 1000]).len(), 1000);
    }

    #[test]
    fn reverse_names() {
        let ip = |t: &str| Some(t.parse::<IpAddr>().unwrap());
        assert_eq!(reverse_address("1.0.18.198.in-addr.arpa"), ip("198.18.0.1"));
        assert_eq!(reverse_address("0.18.198.in-addr.arpa"), None);
        let v6: String = "1000000000000000000000000000008f"
            .chars()
            .flat_map(|c| [c, '.'])
            .collect();
        assert_eq!(reverse_address(&format!("{v6}ip6.arpa")), ip("f800::1"));
        assert_eq!(reverse_address("a.test"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_confuse_the_readers(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_query(&bytes);
            let _ = read_response(&bytes);
            let query = read_query(&write_query(9, "a.test", kind::TXT)).unwrap();
            let _ = query.relay(&bytes);
        }

        #[test]
        fn damaged_queries_have_an_outcome(at in 0usize..40, with in any::<u8>(), cut in 0usize..40) {
            let mut bytes = write_query(7, "some.name.test", kind::A);
            let index = at % bytes.len();
            bytes[index] = with;
            bytes.truncate(cut);
            if let Ok(query) = read_query(&bytes) {
                let _ = query.fit_udp(query.fail(code::NO_NAME, Some("x")));
            }
        }
    }
}
