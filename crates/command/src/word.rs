//! Words as the shell would hand them to a program, as far as that is known before it runs.

use std::borrow::Cow;

/// One part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes that will stand in the argument exactly so.
    Known(Vec<u8>),
    /// An unquoted pathname pattern (`*`, `?`, `[a-z]`, an extglob); the shell replaces it by matches.
    Glob(Vec<u8>),
    /// Something only the run will tell; holds the source text (`$x`, `$(date)`), for messages.
    Unknown(Vec<u8>),
}

/// A word of a command after every expansion that can be done statically.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Word {
    /// The parts, in order; adjacent `Known` parts are merged.
    pub pieces: Vec<Piece>,
    /// An unquoted expansion is among the parts, so the word may become none or several.
    pub splits: bool,
    /// Some part of the word was quoted in the source, so it is not an option or keyword by accident.
    pub quoted: bool,
}

impl Word {
    /// A word whose value is fully known.
    pub fn literal(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            pieces: vec![Piece::Known(bytes.into())],
            splits: false,
            quoted: false,
        }
    }

    /// A word of which nothing is known but its source text.
    pub fn unknown(source: impl Into<Vec<u8>>) -> Self {
        Self {
            pieces: vec![Piece::Unknown(source.into())],
            splits: true,
            quoted: false,
        }
    }

    /// The exact value, if there is nothing dynamic in the word.
    pub fn value(&self) -> Option<&[u8]> {
        match self.pieces.as_slice() {
            [] => Some(b""),
            [Piece::Known(bytes)] => Some(bytes),
            _ => None,
        }
    }

    /// Whether the whole value is known before the run.
    pub fn is_literal(&self) -> bool {
        self.value().is_some()
    }

    /// The known bytes before the first glob or unknown part.
    pub fn known_prefix(&self) -> &[u8] {
        match self.pieces.first() {
            Some(Piece::Known(bytes)) => bytes,
            _ => b"",
        }
    }

    /// The known bytes after the last glob or unknown part.
    pub fn known_suffix(&self) -> &[u8] {
        match self.pieces.last() {
            Some(Piece::Known(bytes)) => bytes,
            _ => b"",
        }
    }

    /// Whether a part is known only to the run (globs do not count).
    pub fn has_unknown(&self) -> bool {
        self.pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Unknown(_)))
    }

    /// Whether a part is an unquoted pathname pattern.
    pub fn has_glob(&self) -> bool {
        self.pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Glob(_)))
    }

    /// The word as text for people and JSON: known bytes as they are, dynamic parts as written.
    pub fn text(&self) -> Cow<'_, [u8]> {
        match self.pieces.as_slice() {
            [] => Cow::Borrowed(b""),
            [Piece::Known(bytes) | Piece::Glob(bytes) | Piece::Unknown(bytes)] => {
                Cow::Borrowed(bytes)
            }
            pieces => Cow::Owned(
                pieces
                    .iter()
                    .flat_map(|piece| match piece {
                        Piece::Known(bytes) | Piece::Glob(bytes) | Piece::Unknown(bytes) => {
                            bytes.iter().copied()
                        }
                    })
                    .collect(),
            ),
        }
    }

    /// The word without its first bytes, which must be known ones.
    pub fn tail(&self, from: usize) -> Word {
        let mut rest = self.clone();
        if let Some(Piece::Known(bytes)) = rest.pieces.first_mut() {
            bytes.drain(..from.min(bytes.len()));
            if bytes.is_empty() {
                rest.pieces.remove(0);
            }
        }
        rest
    }

    /// Appends known bytes, merging them with a known part before.
    pub fn push_known(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if let Some(Piece::Known(last)) = self.pieces.last_mut() {
            last.extend_from_slice(bytes);
        } else {
            self.pieces.push(Piece::Known(bytes.to_vec()));
        }
    }
}

impl From<&str> for Word {
    fn from(text: &str) -> Self {
        Self::literal(text.as_bytes())
    }
}
