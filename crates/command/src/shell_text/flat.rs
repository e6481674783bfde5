//! A generous reading of text that is not valid shell: commands as they look, cut at operators.

use std::ops::Range;

use crate::names::is_keyword;
use crate::word::Word;

/// Most commands that are cut out of one text.
const MAX_COMMANDS: usize = 1024;

/// The stretches of text that look like simple commands, from a position on.
pub(crate) fn commands(text: &[u8], start: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut from = start;
    let mut at = start;
    while at < text.len() && found.len() < MAX_COMMANDS {
        match text[at] {
            b'\\' => at += 2,
            quote @ (b'\'' | b'"') => {
                at = closing(text, at + 1, quote).map_or(at + 1, |end| end + 1)
            }
            b';' | b'|' | b'\n' | b'(' | b')' | b'`' => {
                push(text, from..at, &mut found);
                at += 1;
                from = at;
            }
            b'&' if text.get(at + 1) != Some(&b'>')
                && (at == 0 || !matches!(text[at - 1], b'>' | b'<')) =>
            {
                push(text, from..at, &mut found);
                at += 1;
                from = at;
            }
            _ => at += 1,
        }
    }
    push(text, from..text.len(), &mut found);
    found
}

/// Words of a stretch that the parser does not accept even by itself.
pub(crate) fn words(text: &[u8]) -> Vec<Word> {
    text.split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty())
        .take(MAX_COMMANDS)
        .map(|word| {
            let bare: Vec<u8> = word
                .iter()
                .copied()
                .filter(|byte| !b"'\"\\`".contains(byte))
                .collect();
            if bare.contains(&b'$') {
                Word::unknown(bare)
            } else {
                Word::literal(bare)
            }
        })
        .collect()
}

fn closing(text: &[u8], from: usize, quote: u8) -> Option<usize> {
    let mut at = from;
    while at < text.len() {
        match text[at] {
            b'\\' if quote == b'"' => at += 1,
            byte if byte == quote => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

fn push(text: &[u8], range: Range<usize>, found: &mut Vec<Range<usize>>) {
    let Range { mut start, mut end } = range;
    end = end.min(text.len());
    loop {
        while start < end && text[start].is_ascii_whitespace() {
            start += 1;
        }
        let length = text[start.min(end)..end]
            .iter()
            .position(|byte| byte.is_ascii_whitespace())
            .unwrap_or(end.saturating_sub(start));
        // A keyword in front hides the command behind it.
        if length == 0 || !is_keyword(&text[start..start + length]) {
            break;
        }
        start += length;
    }
    while end > start && text[end - 1].is_ascii_whitespace() {
        end -= 1;
    }
    if start < end {
        found.push(start..end);
    }
}

#[cfg(test)]
mod tests {
    use super::commands;

    #[test]
    fn cuts_at_operators_and_drops_keywords() {
        let text = b"if true; then rm -rf / | 'a;b' (x";
        let found: Vec<&[u8]> = commands(text, 0)
            .into_iter()
            .map(|range| &text[range])
            .collect();
        assert_eq!(found, [b"true".as_slice(), b"rm -rf /", b"'a;b'", b"x"]);
    }
}
