//! Files that a line itself writes, and may run.

use crate::analyse::Analyser;
use crate::flow::{Flow, MAX_TEXT, piece_length, push_piece};
use crate::word::Word;

/// Most files of a line whose content is kept.
const MAX_FILES: usize = 32;

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
fn plain_path(path: &[u8]) -> &[u8] {
    path.strip_prefix(b"./").unwrap_or(path)
}
