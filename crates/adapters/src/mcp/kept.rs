//! Long answers, of which a client gets a part at a time.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// How much of each stream an answer holds.
pub const SHOWN: usize = 32 << 10;

/// How many long answers are kept.
pub const MAX_KEPT: usize = 16;

/// Long answers, for whoever reads on.
#[derive(Debug, Default)]
pub struct Kept {
    texts: Mutex<(u64, VecDeque<(u64, String)>)>,
}

impl Kept {
    /// Keeps a text and gives its handle.
    pub fn keep(&self, text: String) -> u64 {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.0 += 1;
        let handle = texts.0;
        texts.1.push_back((handle, text));
        if texts.1.len() > MAX_KEPT {
            texts.1.pop_front();
        }
        handle
    }

    /// Whether a text is still there.
    pub fn has(&self, handle: u64) -> bool {
        self.part(handle, 0).is_some()
    }

    /// A part of a text, and where the next begins.
    pub fn part(&self, handle: u64, offset: usize) -> Option<(String, Option<usize>)> {
        let texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, text) = texts.1.iter().find(|(known, _)| *known == handle)?;
        let (part, next) = cut(text, offset);
        Some((part.to_owned(), next))
    }
}

/// As much as is shown at a time, from a byte on, and where the next part begins.
pub fn cut(text: &str, offset: usize) -> (&str, Option<usize>) {
    let boundary = |at: usize| {
        (0..=at.min(text.len()))
            .rev()
            .find(|at| text.is_char_boundary(*at))
    };
    let begin = boundary(offset).unwrap_or(0);
    let end = boundary(begin.saturating_add(SHOWN)).unwrap_or(text.len());
    (&text[begin..end], (end < text.len()).then_some(end))
}
