//! The TLS server name, read from the client's first records as they pass.
//!
//! The hello may be spread over segments and records. After it, records are followed until the
//! client speaks of something else, because a hello that answers a retry request could name
//! another server.

use super::record::Reason;

/// What the bytes so far show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Not enough yet: hold everything back.
    More,
    /// The bytes up to this count may pass; the next ones must be looked at too.
    Pass(usize),
    /// Everything from here on may pass unseen.
    Done,
    /// Something speaks against it.
    Refuse(Reason),
}

/// Longest hello that is read; post-quantum keys make two kilobytes common.
const MAX_HELLO: usize = 64 * 1024;
const MAX_RECORD: usize = (1 << 14) + 256;
const HANDSHAKE: u8 = 22;
const CHANGE_CIPHER_SPEC: u8 = 20;
const CLIENT_HELLO: u8 = 1;

/// Follows one client's records.
#[derive(Debug, Default)]
pub struct Peek {
    greeted: bool,
}

impl Peek {
    /// Whether this first byte can begin TLS.
    pub fn begins_with(first: u8) -> bool {
        first == HANDSHAKE
    }

    /// Looks at all bytes held back so far; `judge` checks a server name, `None` meaning absent.
    pub fn look(
        &mut self,
        bytes: &[u8],
        judge: impl Fn(Option<&[u8]>) -> Option<Reason>,
    ) -> Progress {
        let mut passed = 0;
        loop {
            let rest = &bytes[passed..];
            let Some(&kind) = rest.first() else { break };
            match kind {
                HANDSHAKE => match self.handshake(rest, &judge) {
                    Progress::Pass(n) => passed += n,
                    Progress::More => break,
                    other => return other,
                },
                // Sent in the clear between the two hellos for the sake of middleboxes.
                CHANGE_CIPHER_SPEC if self.greeted => match record(rest) {
                    Some(Ok((_, length))) => passed += length,
                    Some(Err(reason)) => return Progress::Refuse(reason),
                    None => break,
                },
                _ if self.greeted => return Progress::Done,
                _ => return Progress::Refuse(Reason::Protocol),
            }
        }
        if passed > 0 {
            Progress::Pass(passed)
        } else {
            Progress::More
        }
    }

    fn handshake(
        &mut self,
        bytes: &[u8],
        judge: &impl Fn(Option<&[u8]>) -> Option<Reason>,
    ) -> Progress {
        let mut message = Vec::new();
        let mut at = 0;
        loop {
            let (body, length) = match record(&bytes[at..]) {
                None => return Progress::More,
                Some(Err(reason)) => return Progress::Refuse(reason),
                Some(Ok(found)) => found,
            };
            if bytes[at] != HANDSHAKE || body.is_empty() {
                return Progress::Refuse(Reason::Protocol);
            }
            message.extend_from_slice(body);
            at += length;
            if message[0] != CLIENT_HELLO {
                return if self.greeted {
                    Progress::Done
                } else {
                    Progress::Refuse(Reason::Protocol)
                };
            }
            if message.len() < 4 {
                continue;
            }
            let want = 4 + u24(&message[1..4]);
            if want > MAX_HELLO {
                return Progress::Refuse(Reason::Protocol);
            }
            if message.len() == want {
                break;
            }
            // Another message in the same record as a hello is unheard of from a client.
            if message.len() > want {
                return Progress::Refuse(Reason::Protocol);
            }
        }
        let against = match hello(&message[4..]) {
            None => Some(Reason::Protocol),
            Some(Hello { hidden: true, .. }) => Some(Reason::HiddenServerName),
            // Servers skip early data until the hello that answers a retry, which nobody would see behind it.
            Some(Hello { early: true, .. }) => Some(Reason::EarlyData),
            Some(Hello { name, .. }) => judge(name),
        };
        self.greeted = true;
        against.map_or(Progress::Pass(at), Progress::Refuse)
    }
}

/// One record: what it holds and how long it is. `None` when it is not complete.
fn record(bytes: &[u8]) -> Option<Result<(&[u8], usize), Reason>> {
    if bytes.get(1).is_some_and(|major| *major != 3) {
        return Some(Err(Reason::Protocol));
    }
    let head = bytes.get(..5)?;
    let length = usize::from(u16::from_be_bytes([head[3], head[4]]));
    if length > MAX_RECORD {
        return Some(Err(Reason::Protocol));
    }
    Some(Ok((bytes.get(5..5 + length)?, 5 + length)))
}

fn u24(bytes: &[u8]) -> usize {
    bytes
        .iter()
        .take(3)
        .fold(0, |n, b| n << 8 | usize::from(*b))
}

struct Hello<'a> {
    name: Option<&'a [u8]>,
    hidden: bool,
    early: bool,
}

/// Reads a hello's server name; `None` when its structure does not add up.
fn hello(body: &[u8]) -> Option<Hello<'_>> {
    const SERVER_NAME: u16 = 0;
    const EARLY_DATA: u16 = 42;
    const ENCRYPTED_HELLO: u16 = 0xfe0d;
    const ENCRYPTED_NAME_DRAFT: u16 = 0xffce;
    let mut r = Reader(body);
    r.take(2 + 32)?;
    let session = r.u8()?;
    r.take(session.into())?;
    let suites = r.u16()?;
    r.take(suites.into())?;
    let compressions = r.u8()?;
    r.take(compressions.into())?;
    let mut found = Hello {
        name: None,
        hidden: false,
        early: false,
    };
    if r.0.is_empty() {
        return Some(found);
    }
    let length = r.u16()?;
    let mut extensions = Reader(r.take(length.into())?);
    if !r.0.is_empty() {
        return None;
    }
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let length = extensions.u16()?;
        let value = extensions.take(length.into())?;
        match kind {
            SERVER_NAME if found.name.is_some() => return None,
            SERVER_NAME => found.name = Some(server_name(value)?),
            EARLY_DATA => found.early = true,
            ENCRYPTED_HELLO | ENCRYPTED_NAME_DRAFT => found.hidden = true,
            _ => {}
        }
    }
    Some(found)
}

/// The one host name of the extension; servers disagree about lists, so others are refused.
fn server_name(value: &[u8]) -> Option<&[u8]> {
    let mut r = Reader(value);
    if usize::from(r.u16()?) != r.0.len() || r.u8()? != 0 {
        return None;
    }
    let length = r.u16()?;
    let name = r.take(length.into())?;
    (r.0.is_empty() && !name.is_empty()).then_some(name)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|b| b[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|b| u16::from_be_bytes([b[0], b[1]]))
    }
}

/// A fatal alert that says access was denied.
pub const ALERT: &[u8] = &[21, 3, 3, 0, 2, 2, 49];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn extension(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut out = kind.to_be_bytes().to_vec();
        out.extend((value.len() as u16).to_be_bytes());
        out.extend(value);
        out
    }

    fn sni(name: &str) -> Vec<u8> {
        let mut value = ((name.len() + 3) as u16).to_be_bytes().to_vec();
        value.push(0);
        value.extend((name.len() as u16).to_be_bytes());
        value.extend(name.as_bytes());
        extension(0, &value)
    }

    fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
        let all = extensions.concat();
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 0x01, 1, 0]);
        body.extend((all.len() as u16).to_be_bytes());
        body.extend(all);
        let mut out = vec![1];
        out.extend(&(body.len() as u32).to_be_bytes()[1..]);
        out.extend(body);
        out
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        let one = |part: &[u8]| {
            let mut out = vec![22, 3, 1];
            out.extend((part.len() as u16).to_be_bytes());
            out.extend(part);
            out
        };
        message.chunks(size).flat_map(one).collect()
    }

    fn expect(name: &'static str) -> impl Fn(Option<&[u8]>) -> Option<Reason> {
        move |got| match got {
            None => Some(Reason::NoServerName),
            Some(got) if got.eq_ignore_ascii_case(name.as_bytes()) => None,
            Some(got) => Some(Reason::ServerName(String::from_utf8_lossy(got).into())),
        }
    }

    #[test]
    fn the_name_is_found_however_the_hello_is_cut() {
        let hello = message(&[
            extension(10, &[0, 2, 0, 29]),
            sni("a.test"),
            extension(16, &[0; 40]),
        ]);
        for size in [1, 2, 3, 7, 50, 5000] {
            let bytes = records(&hello, size);
            for end in 0..bytes.len() {
                let seen = Peek::default().look(&bytes[..end], expect("a.test"));
                assert_eq!(
                    seen,
                    Progress::More,
                    "size {size}, {end} of {}",
                    bytes.len()
                );
            }
            assert_eq!(
                Peek::default().look(&bytes, expect("a.test")),
                Progress::Pass(bytes.len())
            );
            assert_eq!(
                Peek::default().look(&bytes, expect("b.test")),
                Progress::Refuse(Reason::ServerName("a.test".into()))
            );
        }
    }

    #[test]
    fn hidden_missing_doubled_and_empty_names_are_refused() {
        let refused = |extensions: &[Vec<u8>]| {
            let bytes = records(&message(extensions), 5000);
            match Peek::default().look(&bytes, expect("a.test")) {
                Progress::Refuse(reason) => reason,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(refused(&[]), Reason::NoServerName);
        let ech = extension(0xfe0d, &[0; 50]);
        assert_eq!(refused(&[sni("a.test"), ech]), Reason::HiddenServerName);
        let early = extension(42, &[]);
        assert_eq!(refused(&[sni("a.test"), early]), Reason::EarlyData);
        assert_eq!(refused(&[sni("a.test"), sni("b.test")]), Reason::Protocol);
        assert_eq!(refused(&[sni("")]), Reason::Protocol);
        let two = extension(0, &[0, 10, 0, 0, 2, b'a', b'b', 0, 0, 2, b'c', b'd']);
        assert_eq!(refused(&[two]), Reason::Protocol);
    }

    #[test]
    fn a_second_hello_is_checked_too() {
        let first = records(&message(&[sni("a.test")]), 5000);
        let ccs = [20u8, 3, 3, 0, 1, 1];
        let mut peek = Peek::default();
        assert_eq!(
            peek.look(&first, expect("a.test")),
            Progress::Pass(first.len())
        );
        let mut second = ccs.to_vec();
        second.extend(records(&message(&[sni("b.test")]), 5000));
        assert_eq!(
            peek.look(&second, expect("a.test")),
            Progress::Refuse(Reason::ServerName("b.test".into()))
        );
        let mut peek = Peek::default();
        peek.look(&first, expect("a.test"));
        assert_eq!(peek.look(&ccs, expect("a.test")), Progress::Pass(6));
        assert_eq!(
            peek.look(&[23, 3, 3, 0, 9, 1], expect("a.test")),
            Progress::Done
        );
        let mut peek = Peek::default();
        peek.look(&first, expect("a.test"));
        let key_exchange = [22, 3, 3, 0, 4, 16, 0, 0, 0];
        assert_eq!(peek.look(&key_exchange, expect("a.test")), Progress::Done);
    }

    #[test]
    fn other_protocols_and_oversized_hellos_are_refused() {
        let look = |bytes: &[u8]| Peek::default().look(bytes, expect("a.test"));
        assert_eq!(look(&[22, 9]), Progress::Refuse(Reason::Protocol));
        assert_eq!(
            look(&[22, 3, 1, 0xff, 0xff]),
            Progress::Refuse(Reason::Protocol)
        );
        assert_eq!(look(&[22, 3, 1, 0, 0]), Progress::Refuse(Reason::Protocol));
        assert_eq!(
            look(&[22, 3, 1, 0, 4, 1, 0xff, 0, 0]),
            Progress::Refuse(Reason::Protocol)
        );
        assert_eq!(
            look(&[22, 3, 1, 0, 4, 2, 0, 0, 0]),
            Progress::Refuse(Reason::Protocol)
        );
    }

    proptest! {
        #[test]
        fn no_bytes_confuse_it(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() { *first = 22; }
            match Peek::default().look(&bytes, expect("a.test")) {
                Progress::Pass(n) => prop_assert!(n <= bytes.len()),
                Progress::Done => prop_assert!(false, "nothing was checked"),
                _ => {}
            }
        }

        #[test]
        fn a_damaged_hello_never_passes_for_another_name(at in 0usize..120, with in any::<u8>()) {
            let mut bytes = records(&message(&[sni("b.test")]), 5000);
            let index = at % bytes.len();
            bytes[index] = with;
            let name = std::cell::RefCell::new(None);
            let seen = Peek::default().look(&bytes, |got| {
                *name.borrow_mut() = got.map(<[u8]>::to_vec);
                expect("a.test")(got)
            });
            if let Progress::Pass(_) = seen {
                prop_assert_eq!(name.into_inner().unwrap().to_ascii_lowercase(), b"a.test".to_vec());
            }
        }
    }
}
