//! Bodies: chunks taken apart and put together.

use crate::head::{Bad, Framing};

/// Longest line before a chunk, and most of a trailer.
const LONGEST_LINE: usize = 4096;

/// Takes a body apart, in whatever pieces it comes.
#[derive(Debug)]
pub(crate) struct Body {
    state: State,
    /// A line between chunks, as far as it has come.
    line: Vec<u8>,
    trailer: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// So many bytes are still to come.
    Length(u64),
    /// Until the connection ends.
    Close,
    /// A line with the size of a chunk.
    Size,
    /// So many bytes of a chunk.
    Chunk(u64),
    /// The end of the line behind a chunk.
    AfterChunk,
    /// Lines behind the last chunk.
    Trailer,
    Done,
}

impl Body {
    /// One that ends like this.
    pub(crate) fn new(framing: Framing) -> Body {
        let state = match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size,
            Framing::Close => State::Close,
        };
        Body {
            state,
            line: Vec::new(),
            trailer: 0,
        }
    }

    /// Whether all of it has come.
    pub(crate) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Whether it may end with the connection.
    pub(crate) fn may_end(&self) -> bool {
        matches!(self.state, State::Done | State::Close)
    }

    /// Takes bytes, hands on what is content, and tells how many bytes belonged to this body.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        content: &mut dyn FnMut(&[u8]),
    ) -> Result<usize, Bad> {
        let mut at = 0;
        while at < bytes.len() && self.state != State::Done {
            let rest = &bytes[at..];
            at += match self.state {
                State::Length(left) => {
                    let (now, left) = part(rest, left);
                    content(now);
                    self.state = if left == 0 {
                        State::Done
                    } else {
                        State::Length(left)
                    };
                    now.len()
                }
                State::Chunk(left) => {
                    let (now, left) = part(rest, left);
                    content(now);
                    self.state = if left == 0 {
                        State::AfterChunk
                    } else {
                        State::Chunk(left)
                    };
                    now.len()
                }
                State::Close => {
                    content(rest);
                    rest.len()
                }
                State::Size | State::AfterChunk | State::Trailer => self.between(rest)?,
                State::Done => 0,
            };
        }
        Ok(at)
    }

    /// A piece of a line between chunks.
    fn between(&mut self, bytes: &[u8]) -> Result<usize, Bad> {
        let end = memchr::memchr(b'\n', bytes);
        let piece = &bytes[..end.map_or(bytes.len(), |end| end + 1)];
        self.line.extend_from_slice(piece);
        self.trailer += piece.len() * usize::from(self.state == State::Trailer);
        if self.line.len() > LONGEST_LINE || self.trailer > LONGEST_LINE {
            return Err(Bad("a line between chunks is too long"));
        }
        if end.is_some() {
            let line = std::mem::take(&mut self.line);
            let line = line
                .strip_suffix(b"\r\n")
                .ok_or(Bad("a chunk does not end as chunks do"))?;
            self.state = self.after(line)?;
        }
        Ok(piece.len())
    }

    fn after(&self, line: &[u8]) -> Result<State, Bad> {
        match self.state {
            State::AfterChunk if line.is_empty() => Ok(State::Size),
            State::AfterChunk => Err(Bad("a chunk is longer than it says")),
            State::Trailer if line.is_empty() => Ok(State::Done),
            State::Trailer => Ok(State::Trailer),
            _ => match size(line).ok_or(Bad("the size of a chunk is no number"))? {
                0 => Ok(State::Trailer),
                size => Ok(State::Chunk(size)),
            },
        }
    }
}

fn part(bytes: &[u8], left: u64) -> (&[u8], u64) {
    let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    (&bytes[..length], left - length as u64)
}

/// Extensions are nobody's; what stands in one some take for something else.
fn size(line: &[u8]) -> Option<u64> {
    let fits = (1..=15).contains(&line.len()) && line.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(line).ok().filter(|_| fits)?;
    u64::from_str_radix(text, 16).ok()
}

/// A piece of a body as a chunk.
pub(crate) fn chunk(bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.is_empty() {
        out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
        out.extend_from_slice(bytes);
        out.extend_from_slice(b"\r\n");
    }
}

/// What comes after the last chunk.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(framing: Framing, pieces: &[&[u8]]) -> Result<(Vec<u8>, usize, bool), Bad> {
        let mut body = Body::new(framing);
        let (mut content, mut used) = (Vec::new(), 0);
        for piece in pieces {
            let taken = body.take(piece, &mut |bytes| content.extend_from_slice(bytes))?;
            used += taken;
            if taken < piece.len() {
                break;
            }
        }
        Ok((content, used, body.is_done()))
    }

    #[test]
    fn a_body_ends_where_it_ends() {
        assert_eq!(
            read(Framing::Length(3), &[b"abcdef"]).unwrap(),
            (b"abc".into(), 3, true)
        );
        assert_eq!(
            read(Framing::Close, &[b"abc"]).unwrap(),
            (b"abc".into(), 3, false)
        );
        let chunked = b"3\r\nabc\r\n1\r\nd\r\n0\r\nX: y\r\n\r\nGET /";
        let read = read(Framing::Chunked, &[chunked]).unwrap();
        assert_eq!(read, (b"abcd".into(), chunked.len() - 5, true));
    }

    #[test]
    fn chunks_that_could_be_read_in_two_ways_are_refused() {
        for text in [
            &b"3;x=y\r\nabc\r\n"[..],
            b"3 \r\nabc\r\n",
            b"+3\r\nabc\r\n",
            b"0x3\r\nabc\r\n",
            b"\r\nabc",
            b"3\nabc\r\n",
            b"3\r\nabcd\r\n",
            b"3\r\nabc\n",
            b"ffffffffffffffff\r\n",
            b"g\r\n",
        ] {
            assert!(read(Framing::Chunked, &[text]).is_err(), "{text:?}");
        }
        assert!(read(Framing::Chunked, &[&[b'1'; 5000]]).is_err());
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            contents in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..30), 0..8),
            cuts in proptest::collection::vec(0usize..300, 0..20),
        ) {
            let mut text = Vec::new();
            contents.iter().for_each(|content| chunk(content, &mut text));
            text.extend_from_slice(LAST_CHUNK);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            let read = read(Framing::Chunked, &pieces).unwrap();
            prop_assert_eq!(read, (contents.concat(), text.len(), true));
        }

        #[test]
        fn any_bytes_may_come(pieces in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..40), 0..10)) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let _ = read(Framing::Chunked, &pieces);
        }
    }
}
