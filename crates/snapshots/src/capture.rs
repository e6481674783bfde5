//! What passes through a stream: its length, its hash and, bounded, its beginning.

use std::io::{self, Read};

use sha2::{Digest, Sha256};
use substrate_trace::{Key, Stream, Via};

/// How much of a stream is copied.
pub const COPY: usize = 16 << 10;

/// Takes note of bytes as they pass.
#[derive(Debug, Default)]
pub struct Capture {
    hash: Sha256,
    bytes: u64,
    copy: Option<Vec<u8>>,
}

impl Capture {
    /// Nothing has passed yet. With `copy`, the beginning is kept.
    pub fn new(copy: bool) -> Self {
        Self {
            copy: copy.then(Vec::new),
            ..Self::default()
        }
    }

    /// These bytes pass.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        if let Some(copy) = &mut self.copy {
            let room = COPY.saturating_sub(copy.len());
            copy.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    }

    /// Everything up to the end of a reader passes.
    pub fn feed_from(&mut self, mut from: impl Read) -> io::Result<()> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(read) => self.feed(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// What a span says about it.
    pub fn stream(self, key: &Key, via: Via) -> Stream {
        let cut = self.bytes > self.copy.as_ref().map_or(0, Vec::len) as u64;
        let copy = self.copy.map(|copy| match cut {
            true => whole_words(copy),
            false => copy,
        });
        Stream {
            digest: key.content_digest(&self.hash.finalize().into()),
            bytes: self.bytes,
            via: Some(via),
            copy,
        }
    }
}

/// Without the last word, which may be half a secret that nobody would recognise as one.
fn whole_words(mut copy: Vec<u8>) -> Vec<u8> {
    let end = copy.iter().rposition(u8::is_ascii_whitespace);
    copy.truncate(end.map_or(0, |end| end + 1));
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_bounded_and_ends_with_a_whole_word() {
        let home = tempfile::tempdir().unwrap();
        let key = Key::load(home.path()).unwrap();
        let mut capture = Capture::new(true);
        let text = [b"word ".repeat(COPY / 5), b"ghp_halfasecret".to_vec()].concat();
        for part in text.chunks(1000) {
            capture.feed(part);
        }
        let stream = capture.stream(&key, Via::Pipe);
        let copy = stream.copy.unwrap();
        assert_eq!(stream.bytes, text.len() as u64);
        assert!(copy.len() <= COPY && copy.ends_with(b" "), "{}", copy.len());

        let mut short = Capture::new(true);
        short.feed(b"all of it");
        assert_eq!(short.stream(&key, Via::File).copy.unwrap(), b"all of it");
    }

    #[test]
    fn digests_are_keyed() {
        let streams = [1, 2].map(|_| {
            let home = tempfile::tempdir().unwrap();
            let key = Key::load(home.path()).unwrap();
            let mut capture = Capture::new(false);
            capture.feed(b"secret");
            capture.stream(&key, Via::Pipe)
        });
        assert_ne!(streams[0].digest, streams[1].digest);
        assert_ne!(streams[0].digest, substrate_trace::sha256_hex(b"secret"));
        assert_eq!(streams[0].copy, None);
    }
}
