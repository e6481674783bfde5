//! DNS messages: reading queries and answers, writing both. Every input has an outcome.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use domain::base::iana::{Class, ExtendedErrorCode, Opcode};
pub use domain::base::iana::{Rcode, Rtype};
use domain::base::message_builder::{
    AdditionalBuilder, AnswerBuilder, MessageBuilder, PushError, StaticCompressor,
};
use domain::base::name::{Name, ParsedName, ToLabelIter};
use domain::base::opt::ExtendedError;
use domain::base::wire::ParseError;
use domain::base::{Message, Record as Rr, Serial, Ttl};
use domain::rdata::{A, Aaaa, Cname, Mx, Ptr, Soa, Srv, Txt};

/// How long an answer may be remembered; the address of a name never changes within a world.
const TTL: Ttl = Ttl::from_secs(30);
/// How long a "no" may be remembered; an approval may turn it into a "yes".
const NEGATIVE_TTL: Ttl = Ttl::from_secs(2);
/// What is offered and accepted over UDP; fits every common path.
pub const UDP_SIZE: u16 = 1232;

/// A query that could be read.
#[derive(Debug, Clone)]
pub struct Query {
    /// Its header and question.
    message: Message<Vec<u8>>,
    /// The labels, joined by dots, in the case they came in; dots inside labels make it invalid.
    pub name: Vec<u8>,
    /// Record type asked for.
    pub kind: Rtype,
    class: Class,
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
    let message = Message::from_slice(bytes).map_err(|_| Unreadable::Ignore)?;
    if message.header().qr() {
        return Err(Unreadable::Ignore);
    }
    let refused = |rcode| Unreadable::Reply(header_only(message, rcode));
    if message.header().opcode() != Opcode::QUERY {
        return Err(refused(Rcode::NOTIMP));
    }
    let query = plain_query(message).map_err(|_| refused(Rcode::FORMERR))?;
    match query.class {
        Class::IN | Class::ANY => Ok(query),
        _ => Err(refused(Rcode::REFUSED)),
    }
}

fn plain_query(message: &Message<[u8]>) -> Result<Query, ParseError> {
    let question = message.sole_question()?;
    let mut section = message.question();
    section.next();
    let end = section.pos();
    let name = question.qname();
    // A name that begins or goes on elsewhere is none that a client sends.
    let plain = end == HEADER + usize::from(name.compose_len()) + 4;
    if !plain || message.header_counts().ancount() != 0 {
        return Err(ParseError::form_error("not a plain query"));
    }
    let mut edns = None;
    for record in message.iter() {
        let (record, _) = record?;
        if record.rtype() == Rtype::OPT {
            edns = Some(record.class().to_int());
        }
    }
    let mut own = message.as_slice()[..end].to_vec();
    // Only the question is kept.
    own[6..HEADER].fill(0);
    Ok(Query {
        message: Message::from_octets(own).map_err(|_| ParseError::ShortInput)?,
        name: joined(name),
        kind: question.qtype(),
        class: question.qclass(),
        edns,
    })
}

fn joined(name: &ParsedName<&[u8]>) -> Vec<u8> {
    // A dot inside a label must not turn into a separator.
    let plain = |b: u8| if b == b'.' { b' ' } else { b };
    let labels = name.iter().filter(|label| !label.is_root());
    let labels: Vec<Vec<u8>> = labels
        .map(|label| label.iter().map(plain).collect())
        .collect();
    labels.join(&b'.')
}

const HEADER: usize = 12;

fn header_only(message: &Message<[u8]>, rcode: Rcode) -> Vec<u8> {
    let mut builder = MessageBuilder::new_vec();
    let (header, asked) = (builder.header_mut(), message.header());
    header.set_id(asked.id());
    header.set_qr(true);
    header.set_opcode(asked.opcode());
    header.set_rd(asked.rd());
    header.set_ra(true);
    header.set_rcode(rcode);
    builder.finish()
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

type Target = StaticCompressor<Vec<u8>>;

impl Query {
    fn start(&self, rcode: Rcode) -> Result<AnswerBuilder<Target>, PushError> {
        let target = StaticCompressor::new(Vec::with_capacity(128));
        let builder = MessageBuilder::from_target(target).map_err(|_| PushError::ShortBuf)?;
        let mut answer = builder.start_answer(&self.message, rcode)?;
        answer.header_mut().set_ra(true);
        Ok(answer)
    }

    /// Ends an answer; `none` says how long there is nothing to be found, `why` why not.
    fn end(
        &self,
        answer: AnswerBuilder<Target>,
        none: bool,
        why: Option<&str>,
    ) -> Result<Vec<u8>, PushError> {
        let mut authority = answer.authority();
        if none {
            let (root, minute) = (Name::root_slice(), Ttl::from_secs(60));
            let soa = Soa::new(root, root, Serial(1), minute, minute, minute, NEGATIVE_TTL);
            authority.push((root, NEGATIVE_TTL, soa))?;
        }
        let mut additional = authority.additional();
        if self.edns.is_some() {
            edns(&mut additional, why)?;
        }
        Ok(additional.finish().into_target())
    }

    /// An answer with these records; without any, "there is nothing of that type".
    pub fn answer(&self, records: &[Record]) -> Vec<u8> {
        let build = || {
            let mut answer = self.start(Rcode::NOERROR)?;
            let question = self
                .message
                .sole_question()
                .map_err(|_| PushError::ShortBuf)?;
            let name = question.qname();
            for record in records {
                match record {
                    Record::A(address) => answer.push((name, TTL, A::new(*address)))?,
                    Record::Aaaa(address) => answer.push((name, TTL, Aaaa::new(*address)))?,
                    Record::Ptr(other) => {
                        let other = encode_name(other).unwrap_or_else(Name::root_vec);
                        answer.push((name, TTL, Ptr::new(other)))?;
                    }
                }
            }
            self.end(answer, records.is_empty(), None)
        };
        build().unwrap_or_default()
    }

    /// An answer without records; `why` is told to clients that understand it.
    pub fn fail(&self, rcode: Rcode, why: Option<&str>) -> Vec<u8> {
        let build = || self.end(self.start(rcode)?, rcode == Rcode::NXDOMAIN, why);
        build().unwrap_or_default()
    }

    /// Passes on what a resolver of the host answered: its answer section alone, each record read and
    /// written anew, and only if it holds nothing but what was asked for. Everything else it said
    /// could carry addresses.
    pub fn relay(&self, response: &[u8]) -> Vec<u8> {
        let message = Message::from_slice(response).ok();
        let Some(message) = message.filter(|_| read_response(response).is_some()) else {
            return self.fail(Rcode::SERVFAIL, None);
        };
        let copy = match message.header().rcode() {
            Rcode::NOERROR => self.copy(message),
            Rcode::NXDOMAIN => Some(self.fail(Rcode::NXDOMAIN, None)),
            _ => None,
        };
        copy.unwrap_or_else(|| self.fail(Rcode::SERVFAIL, None))
    }

    fn copy(&self, message: &Message<[u8]>) -> Option<Vec<u8>> {
        let mut answer = self.start(Rcode::NOERROR).ok()?;
        for record in message.answer().ok()? {
            let record = record.ok()?;
            match record.rtype() {
                kind if kind != self.kind && kind != Rtype::CNAME => {
                    return Some(self.answer(&[]));
                }
                Rtype::CNAME => answer.push(record.to_record::<Cname<_>>().ok()??).ok()?,
                Rtype::MX => answer.push(record.to_record::<Mx<_>>().ok()??).ok()?,
                Rtype::SRV => answer.push(record.to_record::<Srv<_>>().ok()??).ok()?,
                Rtype::TXT => answer.push(record.to_record::<Txt<_>>().ok()??).ok()?,
                _ => return None,
            }
        }
        match answer.counts().ancount() {
            0 => Some(self.answer(&[])),
            _ => Some(answer.finish().into_target()),
        }
    }

    /// Cuts an answer down to a truncated one if it is too long for UDP.
    pub fn fit_udp(&self, answer: Vec<u8>) -> Vec<u8> {
        let limit = self.edns.unwrap_or(512).clamp(512, UDP_SIZE);
        if answer.len() <= limit.into() {
            return answer;
        }
        let cut = self.start(Rcode::NOERROR).map(|mut cut| {
            cut.header_mut().set_tc(true);
            cut.finish().into_target()
        });
        cut.unwrap_or_default()
    }
}

fn edns(additional: &mut AdditionalBuilder<Target>, why: Option<&str>) -> Result<(), PushError> {
    let why = why.and_then(|text| {
        let text = &text[..text.floor_char_boundary(200)];
        ExtendedError::<Vec<u8>>::new_with_str(ExtendedErrorCode::PROHIBITED, text).ok()
    });
    additional.opt(|opt| {
        opt.set_udp_payload_size(UDP_SIZE);
        why.map_or(Ok(()), |why| opt.push(&why))
    })
}

fn encode_name(name: &str) -> Option<Name<Vec<u8>>> {
    Name::vec_from_str(name).ok()
}

/// Writes a query of our own; nothing for what is no name.
pub fn write_query(id: u16, name: &str, kind: Rtype) -> Option<Vec<u8>> {
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(id);
    builder.header_mut().set_rd(true);
    let mut question = builder.question();
    question.push((encode_name(name)?, kind)).ok()?;
    let mut additional = question.additional();
    let size = additional.opt(|opt| {
        opt.set_udp_payload_size(UDP_SIZE);
        Ok(())
    });
    size.ok().map(|()| additional.finish())
}

/// Whether a response answers this query of ours.
pub fn answers(query: &[u8], response: &[u8]) -> bool {
    match (Message::from_slice(query), Message::from_slice(response)) {
        (Ok(query), Ok(response)) => query.sole_question().is_ok() && response.is_answer(query),
        _ => false,
    }
}

/// A response of a resolver.
#[derive(Debug)]
pub struct Response {
    /// Response code.
    pub rcode: Rcode,
    /// More is to be had over TCP.
    pub truncated: bool,
    /// The answer section.
    pub records: Vec<ReadRecord>,
}

/// A record that was read.
#[derive(Debug)]
pub struct ReadRecord {
    /// Its address, for the two types that have one.
    pub address: Option<IpAddr>,
    /// Seconds it may be remembered.
    pub ttl: u32,
}

/// Reads a response.
pub fn read_response(bytes: &[u8]) -> Option<Response> {
    let message = Message::from_slice(bytes).ok()?;
    if !message.header().qr() || message.sole_question().is_err() {
        return None;
    }
    let truncated = message.header().tc();
    let mut records = Vec::new();
    for record in message.answer().ok()? {
        match record {
            Ok(record) => {
                let (v4, v6) = (record.to_record::<A>(), record.to_record::<Aaaa>());
                let v4 = v4.ok().flatten().map(|r: Rr<_, A>| r.data().addr().into());
                let v6 = v6
                    .ok()
                    .flatten()
                    .map(|r: Rr<_, Aaaa>| r.data().addr().into());
                records.push(ReadRecord {
                    address: v4.or(v6),
                    ttl: record.ttl().as_secs(),
                });
            }
            Err(_) if truncated => break,
            Err(_) => return None,
        }
    }
    Some(Response {
        rcode: message.header().rcode(),
        truncated,
        records,
    })
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

    fn asking(id: u16, name: &str, kind: Rtype) -> Vec<u8> {
        write_query(id, name, kind).unwrap()
    }

    #[test]
    fn a_query_is_read_and_answered() {
        let query = read_query(&asking(7, "A.Test", Rtype::A)).unwrap();
        assert_eq!(query.name, b"A.Test");
        assert_eq!((query.kind, query.edns), (Rtype::A, Some(UDP_SIZE)));
        let answer = query.answer(&[Record::A(Ipv4Addr::new(198, 18, 0, 1))]);
        assert!(answers(&asking(7, "a.test", Rtype::A), &answer));
        let read = read_response(&answer).unwrap();
        assert_eq!(read.rcode, Rcode::NOERROR);
        assert_eq!(read.records[0].address, Some("198.18.0.1".parse().unwrap()));
        assert_eq!(answer[..2], [0, 7]);
    }

    #[test]
    fn noes_say_why_and_how_long() {
        let query = read_query(&asking(7, "b.test", Rtype::A)).unwrap();
        let no = query.fail(Rcode::NXDOMAIN, Some("not in net.allowed"));
        assert_eq!(read_response(&no).unwrap().rcode, Rcode::NXDOMAIN);
        assert!(no.windows(18).any(|w| w == b"not in net.allowed"));
        let nothing = query.answer(&[]);
        let read = read_response(&nothing).unwrap();
        assert_eq!((read.rcode, read.records.len()), (Rcode::NOERROR, 0));
        assert_eq!(nothing[9], 1, "one authority record");
    }

    #[test]
    fn wrong_queries_get_the_right_errors() {
        let mut bytes = asking(7, "a.test", Rtype::A);
        let rcode = |bytes: &[u8]| match read_query(bytes) {
            Err(Unreadable::Reply(reply)) => Some(Rcode::masked_from_int(reply[3])),
            _ => None,
        };
        bytes[5] = 2;
        assert_eq!(rcode(&bytes), Some(Rcode::FORMERR));
        bytes[5] = 1;
        bytes[2] = 0x28;
        assert_eq!(rcode(&bytes), Some(Rcode::NOTIMP));
        bytes[2] = 0x80;
        assert!(matches!(read_query(&bytes), Err(Unreadable::Ignore)));
        assert!(matches!(read_query(&[0; 5]), Err(Unreadable::Ignore)));
        let mut chaos = asking(7, "version.bind", Rtype::TXT);
        let at = chaos.len() - 11 - 1;
        chaos[at] = 3;
        assert_eq!(rcode(&chaos), Some(Rcode::REFUSED));
        let mut looped = asking(7, "a", Rtype::A);
        looped[12] = 0xc0;
        assert_eq!(rcode(&looped), Some(Rcode::FORMERR));
    }

    #[test]
    fn a_dot_inside_a_label_is_no_separator() {
        let mut bytes = asking(7, "aXtest", Rtype::A);
        bytes[14] = b'.';
        assert_eq!(read_query(&bytes).unwrap().name, b"a test");
    }

    #[test]
    fn relayed_answers_lose_everything_but_the_answer() {
        let query = read_query(&asking(9, "a.test", Rtype::TXT)).unwrap();
        let ours = asking(1, "a.test", Rtype::TXT);
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

    /// A response to [`asking`] for `a.test` with these records.
    fn response(kind: Rtype, records: &[&[u8]]) -> Vec<u8> {
        let mut bytes = asking(1, "a.test", kind)[..HEADER + 12].to_vec();
        (bytes[2], bytes[7], bytes[11]) = (0x81, records.len() as u8, 0);
        bytes.extend(records.concat());
        bytes
    }

    #[test]
    fn names_that_lead_into_themselves_or_elsewhere_are_refused() {
        let query = read_query(&asking(9, "a.test", Rtype::MX)).unwrap();
        let relayed = |target: &[u8]| {
            let head = [
                0xc0,
                12,
                0,
                15,
                0,
                1,
                0,
                0,
                0,
                9,
                0,
                2 + target.len() as u8,
                0,
                5,
            ];
            query.relay(&response(Rtype::MX, &[&[&head, target].concat()]))
        };
        let good = relayed(&[1, b'm', 0xc0, 12]);
        assert!(good.ends_with(b"\x01m\xc0\x0c") || good.ends_with(b"\x01m\x01a\x04test\0"));
        let rcode = |bytes: &[u8]| {
            read_response(bytes)
                .unwrap_or_else(|| panic!("{bytes:x?}"))
                .rcode
        };
        assert_eq!(rcode(&good), Rcode::NOERROR);
        // Itself, forwards, beyond the end, and a label of no kind that there is.
        for target in [
            &[0xc0_u8, 38][..],
            &[0xc0, 60],
            &[0xff, 0xff],
            &[0x41, b'x', 0],
            &[5, b'x'],
        ] {
            assert_eq!(rcode(&relayed(target)), Rcode::SERVFAIL, "{target:x?}");
        }
        // The name of a query stands where it is asked for, not in the header before it.
        for pointer in [[0xc0, 2], [0xc0, 12]] {
            let mut query = asking(7, ".", Rtype::A);
            query.splice(HEADER..HEADER + 1, pointer);
            let Err(Unreadable::Reply(reply)) = read_query(&query) else {
                panic!("{pointer:x?}")
            };
            assert_eq!(Rcode::masked_from_int(reply[3]), Rcode::FORMERR);
        }
    }

    #[test]
    fn long_answers_are_truncated_for_udp() {
        let query = read_query(&asking(9, "a.test", Rtype::TXT)).unwrap();
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
            let query = read_query(&asking(9, "a.test", Rtype::TXT)).unwrap();
            let _ = query.relay(&bytes);
        }

        #[test]
        fn damaged_queries_have_an_outcome(at in 0usize..40, with in any::<u8>(), cut in 0usize..40) {
            let mut bytes = asking(7, "some.name.test", Rtype::A);
            let index = at % bytes.len();
            bytes[index] = with;
            bytes.truncate(cut);
            if let Ok(query) = read_query(&bytes) {
                let _ = query.fit_udp(query.fail(Rcode::NXDOMAIN, Some("x")));
            }
        }
    }
}
