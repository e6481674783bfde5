//! A line as words, roughly as a shell splits it. It need not be exact: a word that was
//! cut in the wrong place is still looked at.

use std::ops::Range;

/// The bytes of a word without quotes, each with its place in the line.
pub(super) struct Word {
    bytes: Vec<u8>,
    places: Vec<usize>,
}

impl Word {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The part of the line that a part of the word came from.
    pub(super) fn source(&self, range: Range<usize>) -> Range<usize> {
        self.places[range.start]..self.places[range.end - 1] + 1
    }
}

/// The commands of a line, each as its words.
pub(super) fn split(text: &[u8]) -> Vec<Vec<Word>> {
    let mut commands = Vec::new();
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        let mut take = |at: usize| {
            let word = word.get_or_insert_with(|| Word {
                bytes: Vec::new(),
                places: Vec::new(),
            });
            word.bytes.push(text[at]);
            word.places.push(at);
        };
        match byte {
            b'\\' if at + 1 < text.len() => {
                // A continued line is one line.
                if text[at + 1] != b'\n' {
                    take(at + 1);
                }
                at += 1;
            }
            b'\'' => {
                at += 1;
                while at < text.len() && text[at] != b'\'' {
                    take(at);
                    at += 1;
                }
            }
            b'"' => {
                at += 1;
                while at < text.len() && text[at] != b'"' {
                    if text[at] == b'\\'
                        && matches!(text.get(at + 1), Some(b'"' | b'\\' | b'$' | b'`'))
                    {
                        at += 1;
                    }
                    take(at);
                    at += 1;
                }
            }
            b';' | b'|' | b'&' | b'(' | b')' | b'\n' | b'`' => {
                words.extend(word.take());
                if !words.is_empty() {
                    commands.push(std::mem::take(&mut words));
                }
            }
            b' ' | b'\t' | b'\r' | b'<' | b'>' => words.extend(word.take()),
            _ => take(at),
        }
        at += 1;
    }
    words.extend(word);
    if !words.is_empty() {
        commands.push(words);
    }
    commands
}
