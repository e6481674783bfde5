//! Lines of a file from either end, in bounded memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use memchr::{memchr, memrchr};

use crate::MAX_LINE;

/// How much is read at once; a longer line makes the buffer grow.
const CHUNK: usize = 256 << 10;

/// One line without its newline.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'b> {
    Whole(&'b [u8]),
    /// The last line, when no newline ends it.
    Unfinished(&'b [u8]),
    /// A line longer than [`MAX_LINE`].
    Oversized,
}

/// Lines from the beginning.
#[derive(Debug)]
pub(super) struct Forward<'f> {
    file: &'f File,
    offset: u64,
    buffer: Vec<u8>,
    /// The unread part of the buffer.
    start: usize,
    end: usize,
    done: bool,
}

impl<'f> Forward<'f> {
    pub(super) fn new(file: &'f File) -> Self {
        Self {
            file,
            offset: 0,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            done: false,
        }
    }

    pub(super) fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut oversized = false;
        let mut searched = 0;
        loop {
            let unread = &self.buffer[self.start..self.end];
            if let Some(length) = memchr(b'\n', &unread[searched..]) {
                let line = self.start..self.start + searched + length;
                self.start = line.end + 1;
                return Ok(Some(match oversized || line.len() > MAX_LINE {
                    true => Line::Oversized,
                    false => Line::Whole(&self.buffer[line]),
                }));
            }
            if self.done {
                let line = std::mem::replace(&mut self.start, self.end)..self.end;
                let oversized = oversized || line.len() > MAX_LINE;
                return Ok(match (oversized, line.is_empty()) {
                    (true, _) => Some(Line::Oversized),
                    (false, true) => None,
                    (false, false) => Some(Line::Unfinished(&self.buffer[line])),
                });
            }
            if unread.len() > MAX_LINE {
                oversized = true;
            }
            if oversized {
                self.start = self.end;
            }
            searched = self.end - self.start;
            self.fill()?;
        }
    }

    /// Moves what is unread to the front and reads more behind it.
    fn fill(&mut self) -> io::Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        let wanted = (2 * self.end).clamp(CHUNK, MAX_LINE + CHUNK);
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        let read = read_some(self.file, &mut self.buffer[self.end..], self.offset)?;
        self.offset += read as u64;
        self.end += read;
        self.done = read == 0;
        Ok(())
    }
}

/// Lines from the end.
#[derive(Debug)]
pub(super) struct Backward<'f> {
    file: &'f File,
    /// Where the buffer begins in the file.
    offset: u64,
    buffer: Vec<u8>,
    /// The unread part is everything before this.
    end: usize,
    /// Whether a newline stands behind the unread part.
    terminated: bool,
}

impl<'f> Backward<'f> {
    pub(super) fn new(file: &'f File) -> io::Result<Self> {
        Ok(Self {
            file,
            offset: file.metadata()?.len(),
            buffer: Vec::new(),
            end: 0,
            terminated: false,
        })
    }

    pub(super) fn next_line(&mut self) -> io::Result<Option<Line<'_>>> {
        let mut oversized = false;
        let mut searched = 0;
        loop {
            let fresh = self.end - searched;
            if let Some(newline) = memrchr(b'\n', &self.buffer[..fresh]) {
                let line = newline + 1..self.end;
                let terminated = std::mem::replace(&mut self.terminated, true);
                self.end = newline;
                if oversized || line.len() > MAX_LINE {
                    return Ok(Some(Line::Oversized));
                }
                // Behind the newline that ends the file there is no line.
                if line.is_empty() && !terminated {
                    searched = 0;
                    continue;
                }
                return Ok(Some(finished(&self.buffer[line], terminated)));
            }
            if self.offset == 0 {
                let terminated = std::mem::replace(&mut self.terminated, false);
                let line = 0..std::mem::take(&mut self.end);
                let oversized = oversized || line.len() > MAX_LINE;
                return Ok(match (oversized, line.is_empty() && !terminated) {
                    (true, _) => Some(Line::Oversized),
                    (false, true) => None,
                    (false, false) => Some(finished(&self.buffer[line], terminated)),
                });
            }
            if self.end > MAX_LINE {
                oversized = true;
            }
            if oversized {
                self.end = 0;
            }
            searched = self.end;
            self.fill()?;
        }
    }

    /// Reads the part of the file before the buffer and puts it in front.
    fn fill(&mut self) -> io::Result<()> {
        let wanted = self.end.max(CHUNK).min(MAX_LINE + CHUNK - self.end);
        let size = (wanted as u64).min(self.offset) as usize;
        let mut buffer = vec![0; size + self.end];
        buffer[size..].copy_from_slice(&self.buffer[..self.end]);
        self.offset -= size as u64;
        let mut filled = 0;
        while filled < size {
            let at = self.offset + filled as u64;
            match read_some(self.file, &mut buffer[filled..size], at)? {
                0 => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the file shrank",
                    ));
                }
                read => filled += read,
            }
        }
        self.end += size;
        self.buffer = buffer;
        Ok(())
    }
}

fn finished(line: &[u8], terminated: bool) -> Line<'_> {
    match terminated {
        true => Line::Whole(line),
        false => Line::Unfinished(line),
    }
}

fn read_some(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn file(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn owned(line: Line<'_>) -> Option<(Vec<u8>, bool)> {
        match line {
            Line::Whole(bytes) => Some((bytes.to_vec(), true)),
            Line::Unfinished(bytes) => Some((bytes.to_vec(), false)),
            Line::Oversized => None,
        }
    }

    fn forward(content: &[u8]) -> Vec<Option<(Vec<u8>, bool)>> {
        let file = file(content);
        let mut lines = Forward::new(&file);
        let mut all = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            all.push(owned(line));
        }
        all
    }

    fn backward(content: &[u8]) -> Vec<Option<(Vec<u8>, bool)>> {
        let file = file(content);
        let mut lines = Backward::new(&file).unwrap();
        let mut all = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            all.push(owned(line));
        }
        all.reverse();
        all
    }

    fn expected(content: &[u8]) -> Vec<Option<(Vec<u8>, bool)>> {
        content
            .split_inclusive(|&byte| byte == b'\n')
            .map(|line| match line.strip_suffix(b"\n") {
                Some(line) => Some((line.to_vec(), true)),
                None => Some((line.to_vec(), false)),
            })
            .collect()
    }

    #[test]
    fn lines_around_the_chunk_size() {
        for length in [CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 5 * CHUNK + 7] {
            let mut content = b"first\n".to_vec();
            content.extend(vec![b'x'; length]);
            content.extend_from_slice(b"\n\nlast\n");
            assert!(forward(&content) == expected(&content), "{length}");
            assert!(backward(&content) == expected(&content), "{length}");
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_passed_over() {
        let mut content = b"first\n".to_vec();
        content.extend(vec![b'x'; MAX_LINE + CHUNK + 1]);
        content.extend_from_slice(b"\nlast\n");
        let whole = |text: &str| Some((text.as_bytes().to_vec(), true));
        let lines = [whole("first"), None, whole("last")];
        assert!(forward(&content) == lines);
        assert!(backward(&content) == lines);
        content.truncate(content.len() - 6);
        assert!(forward(&content) == lines[..2]);
        assert!(backward(&content) == lines[..2]);
    }

    proptest! {
        #[test]
        fn both_ends_give_the_same_lines(content in "[a\n]{0,40}") {
            prop_assert_eq!(forward(content.as_bytes()), expected(content.as_bytes()));
            prop_assert_eq!(backward(content.as_bytes()), expected(content.as_bytes()));
        }
    }
}
