//! Files that a line itself writes, and may run.

use crate::analyse::Analyser;
use crate::flow::Flow;
#[cfg(feature = "parse")]
use crate::flow::{MAX_TEXT, piece_length, push_piece};
use crate::word::Word;

/// Most files of a line whose content is kept.
#[cfg(feature = "parse")]
const MAX_FILES: usize = 32;

// Where no shell text is read, nothing would come of it.
#[cfg(not(feature = "parse"))]
impl Analyser<'_> {
    pub(crate) fn keep_file(&mut self, _path: &Word, _flow: &Flow, _appends: bool) {}

    pub(crate) fn written_text(&self, _path: &Word) -> Option<Word> {
        None
    }
}

#[cfg(feature = "parse")]
impl Analyser<'_> {
    /// Keeps what a line puts into a file.
    pub(crate) fn keep_file(&mut self, path: &Word, flow: &Flow, appends: bool) {
        let (Some(path), Some(pieces)) = (path.value().map(plain_path), &flow.text) else {
            return;
        };
        if self.files.len() >= MAX_FILES && !self.files.contains_key(path) {
            return;
        }
        let kept = self.files.entry(path.to_vec()).or_default();
        if !appends {
            kept.clear();
        }
        let length: usize = kept.iter().chain(pieces).map(piece_length).sum();
        if length <= MAX_TEXT {
            for piece in pieces {
                push_piece(kept, piece.clone());
            }
        }
    }

    /// What the line has put into a file that is run now.
    pub(crate) fn written_text(&self, path: &Word) -> Option<Word> {
        let pieces = self.files.get(plain_path(path.value()?))?;
        (!pieces.is_empty()).then(|| Word {
            pieces: pieces.clone(),
            splits: false,
            quoted: true,
        })
    }
}

/// A path without `./` in front.
#[cfg(feature = "parse")]
fn plain_path(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"./").unwrap_or(path)
}
