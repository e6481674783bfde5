//! Server-sent events, in whatever pieces they come.

/// Finds the data of each event in a stream of bytes.
#[derive(Debug)]
pub struct SseReader {
    longest: usize,
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// The event is longer than what is kept; nothing of it is told.
    skipping: bool,
    /// A part of the line was not kept, so that it is not empty.
    line_lost: bool,
    /// The last byte was a carriage return, whose line feed belongs to the same end.
    after_return: bool,
    /// Nothing has come yet, so a byte order mark may.
    at_start: bool,
}

impl SseReader {
    /// Keeps at most so many bytes of one event.
    pub fn new(longest: usize) -> SseReader {
        SseReader {
            longest,
            line: Vec::new(),
            data: Vec::new(),
            has_data: false,
            skipping: false,
            line_lost: false,
            after_return: false,
            at_start: true,
        }
    }

    /// Takes the next bytes and tells the data of each event that they complete.
    pub fn push(&mut self, mut bytes: &[u8], tell: &mut dyn FnMut(&[u8])) {
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', bytes) else {
                self.keep(bytes);
                return;
            };
            self.keep(&bytes[..end]);
            self.after_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            self.end_line(tell);
        }
    }

    /// The stream is over; what was not ended by an empty line is told all the same.
    pub fn end(&mut self, tell: &mut dyn FnMut(&[u8])) {
        if !self.line.is_empty() || self.line_lost {
            self.end_line(tell);
        }
        self.end_event(tell);
    }

    fn keep(&mut self, bytes: &[u8]) {
        match self.line.len() + self.data.len() + bytes.len() <= self.longest {
            true => self.line.extend_from_slice(bytes),
            false => {
                self.skipping = true;
                self.line_lost = true;
            }
        }
    }

    fn end_line(&mut self, tell: &mut dyn FnMut(&[u8])) {
        let mut line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.at_start) && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        let whole = !std::mem::take(&mut self.line_lost);
        if line.is_empty() && whole {
            self.end_event(tell);
        } else if let Some(data) = line.strip_prefix(b"data:") {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data
                .extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
        }
        line.clear();
        self.line = line;
    }

    fn end_event(&mut self, tell: &mut dyn FnMut(&[u8])) {
        if self.has_data && !self.skipping {
            tell(&self.data);
        }
        self.data.clear();
        self.has_data = false;
        self.skipping = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(pieces: &[&[u8]], longest: usize) -> Vec<Vec<u8>> {
        let mut reader = SseReader::new(longest);
        let mut told = Vec::new();
        for piece in pieces {
            reader.push(piece, &mut |data| told.push(data.to_vec()));
        }
        reader.end(&mut |data| told.push(data.to_vec()));
        told
    }

    #[test]
    fn events_end_in_every_way_that_they_may() {
        let text = b"\xef\xbb\xbfdata: a\ndata:b\n\n: comment\nid: 1\n\r\ndata\n\ndata: c\r\rdata: d\r\n\r\ndata: e";
        let told = events(&[text], 1000);
        assert_eq!(told, [&b"a\nb"[..], b"c", b"d", b"e"]);
    }

    #[test]
    fn an_event_that_is_too_long_hides_only_itself() {
        let long = [&b"data: "[..], &[b'x'; 100], b"\ndata: y\n\ndata: z\n\n"].concat();
        assert_eq!(events(&[&long], 50), [b"z"]);
        let pieces: Vec<&[u8]> = long.chunks(1).collect();
        assert_eq!(events(&pieces, 50), [b"z"]);
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            text in proptest::collection::vec(
                prop_oneof![
                    Just(&b"data: {\"usage\":1}"[..]), Just(&b"data:"[..]), Just(&b"\n"[..]),
                    Just(&b"\r\n"[..]), Just(&b"\r"[..]), Just(&b"event: x"[..]),
                    Just(&b"\xff\x00 "[..]), Just(&b": ping"[..]),
                ], 0..40),
            cuts in proptest::collection::vec(0usize..500, 0..20),
        ) {
            let text = text.concat();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &text[cut[0]..cut[1]]).collect();
            prop_assert_eq!(events(&pieces, 1000), events(&[&text], 1000));
        }

        #[test]
        fn anything_may_come(pieces in proptest::collection::vec(
            proptest::collection::vec(any::<u8>(), 0..60), 0..20)) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let all = events(&pieces, 64);
            prop_assert!(all.iter().all(|event| event.len() <= 64));
        }
    }
}
