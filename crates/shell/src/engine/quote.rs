//! Quoting for the engine: one physical line of plain characters, whatever the bytes.

/// Quotes bytes as a `$'…'` word that holds no newline, quote or history character.
pub fn ansi_c(bytes: &[u8]) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(bytes.len() + 8);
    quoted.extend_from_slice(b"$'");
    for &byte in bytes {
        match byte {
            b'\\' => quoted.extend_from_slice(b"\\\\"),
            b'\'' => quoted.extend_from_slice(b"\\'"),
            b'\n' => quoted.extend_from_slice(b"\\n"),
            // Three octal digits: a following digit cannot be taken for a part of the number.
            b'!' | 0x01..=0x1f | 0x7f => {
                quoted.extend_from_slice(format!("\\{byte:03o}").as_bytes())
            }
            // A NUL cannot be part of any word; bash would cut the text there.
            0 => {}
            _ => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

/// Quotes bytes in single quotes, as every POSIX shell reads them; newlines stay.
pub fn single(bytes: &[u8]) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(bytes.len() + 2);
    quoted.push(b'\'');
    for &byte in bytes {
        match byte {
            b'\'' => quoted.extend_from_slice(b"'\\''"),
            0 => {}
            _ => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

/// How long the quoted word is that the text starts with.
pub fn word_length(text: &[u8]) -> usize {
    let mut at = 0;
    // `'` for plain quotes, `$` for those in which a backslash escapes.
    let mut open: Option<u8> = None;
    while let Some(&byte) = text.get(at) {
        match (open, byte) {
            (Some(b'$') | None, b'\\') => at += 1,
            (Some(_), b'\'') => open = None,
            (None, b'\'') if at > 0 && text.get(at - 1) == Some(&b'$') => open = Some(b'$'),
            (None, b'\'') => open = Some(b'\''),
            (None, b' ' | b'\t' | b'\n') => return at,
            _ => {}
        }
        at += 1;
    }
    at.min(text.len())
}

/// Reads one word as `trap -p` and `alias -p` print it: single quotes, `\'` between them, or `$'…'`.
pub fn unquote(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&first, after)) = rest.split_first() {
        match first {
            b'\'' => {
                let end = after
                    .iter()
                    .position(|&b| b == b'\'')
                    .unwrap_or(after.len());
                plain.extend_from_slice(after.get(..end).unwrap_or_default());
                rest = after.get(end + 1..).unwrap_or_default();
            }
            b'\\' => {
                if let Some((&next, later)) = after.split_first() {
                    plain.push(next);
                    rest = later;
                } else {
                    rest = after;
                }
            }
            b'$' if after.first() == Some(&b'\'') => {
                let (text, later) = unquote_ansi_c(after.get(1..).unwrap_or_default());
                plain.extend_from_slice(&text);
                rest = later;
            }
            other => {
                plain.push(other);
                rest = after;
            }
        }
    }
    plain
}

fn unquote_ansi_c(mut rest: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut plain = Vec::new();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'\'' => break,
            b'\\' => {
                let Some((&escape, after)) = rest.split_first() else {
                    break;
                };
                rest = after;
                match escape {
                    b'n' => plain.push(b'\n'),
                    b't' => plain.push(b'\t'),
                    b'r' => plain.push(b'\r'),
                    b'a' => plain.push(7),
                    b'b' => plain.push(8),
                    b'v' => plain.push(11),
                    b'f' => plain.push(12),
                    b'E' | b'e' => plain.push(27),
                    b'0'..=b'7' => {
                        let mut value = u32::from(escape - b'0');
                        for _ in 0..2 {
                            match rest.split_first() {
                                Some((&digit @ b'0'..=b'7', after)) => {
                                    value = value * 8 + u32::from(digit - b'0');
                                    rest = after;
                                }
                                _ => break,
                            }
                        }
                        plain.push(u8::try_from(value & 0xff).unwrap_or(0));
                    }
                    other => plain.push(other),
                }
            }
            other => plain.push(other),
        }
    }
    (plain, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoting_leaves_one_line() {
        assert_eq!(ansi_c(b"a'b\\c\nd!1"), b"$'a\\'b\\\\c\\nd\\0411'");
        assert_eq!(single(b"it's"), b"'it'\\''s'");
    }

    #[test]
    fn a_word_ends_where_its_quotes_do() {
        for (text, word) in [
            ("'a b' DEBUG", "'a b'"),
            ("'it'\\''s x' y", "'it'\\''s x'"),
            ("$'a\\' b' c", "$'a\\' b'"),
            ("plain", "plain"),
        ] {
            assert_eq!(&text[..word_length(text.as_bytes())], word);
        }
    }

    #[test]
    fn unquote_reads_what_bash_prints() {
        assert_eq!(unquote(b"'it'\\''s'"), b"it's");
        assert_eq!(unquote(b"$'a\\nb\\033c\\'d'"), b"a\nb\x1bc'd");
        assert_eq!(unquote(b"plain"), b"plain");
    }
}
