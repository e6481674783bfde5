//! Operators of `${name…}` on values that are known.

use crate::flow::MAX_TEXT;
use crate::scope::Value;
use crate::word::{Piece, Word};

/// Longest value on which patterns are tried, since each position may be compared with all of the rest.
const MAX_MATCHED: usize = 1024;

/// The value after an operator.
pub(crate) fn apply(operator: &[u8], value: &Value, operand: &Word) -> Value {
    let other = || Value::Text(operand.pieces.clone());
    let nothing = Value::Text(Vec::new());
    match operator {
        b":-" | b":=" => match emptiness(value) {
            Some(true) => other(),
            Some(false) => value.clone(),
            None => Value::Unknown,
        },
        b"-" | b"=" => match value {
            Value::Unset => other(),
            Value::Unknown => Value::Unknown,
            _ => value.clone(),
        },
        b":+" => match emptiness(value) {
            Some(true) => nothing,
            Some(false) => other(),
            None => Value::Unknown,
        },
        b"+" => match value {
            Value::Unset => nothing,
            Value::Unknown => Value::Unknown,
            _ => other(),
        },
        b":?" | b"?" => value.clone(),
        _ => match (literal(value), operand.has_unknown()) {
            (Some(bytes), false) => {
                transform(operator, &bytes, operand).map_or(Value::Unknown, |bytes| {
                    Value::Text(if bytes.is_empty() {
                        Vec::new()
                    } else {
                        vec![Piece::Known(bytes)]
                    })
                })
            }
            _ => Value::Unknown,
        },
    }
}

/// Whether a value is empty, if that is certain.
fn emptiness(value: &Value) -> Option<bool> {
    match value {
        Value::Unset => Some(true),
        Value::Unknown => None,
        Value::Array(words) => Some(words.is_empty()),
        Value::Text(pieces) => {
            if pieces
                .iter()
                .any(|piece| matches!(piece, Piece::Known(bytes) if !bytes.is_empty()))
            {
                return Some(false);
            }
            pieces.is_empty().then_some(true)
        }
    }
}

fn literal(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Text(pieces) => match pieces.as_slice() {
            [] => Some(Vec::new()),
            [Piece::Known(bytes)] => Some(bytes.clone()),
            _ => None,
        },
        Value::Unset => Some(Vec::new()),
        _ => None,
    }
}

fn transform(operator: &[u8], bytes: &[u8], operand: &Word) -> Option<Vec<u8>> {
    let text = operand.text();
    match operator {
        b"^^" if text.is_empty() => Some(bytes.to_ascii_uppercase()),
        b",," if text.is_empty() => Some(bytes.to_ascii_lowercase()),
        b"^" | b"," if text.is_empty() => {
            let mut changed = bytes.to_vec();
            if let Some(first) = changed.first_mut() {
                *first = if operator == b"^" {
                    first.to_ascii_uppercase()
                } else {
                    first.to_ascii_lowercase()
                };
            }
            Some(changed)
        }
        b"@" => match text.as_ref() {
            b"U" => Some(bytes.to_ascii_uppercase()),
            b"L" => Some(bytes.to_ascii_lowercase()),
            b"E" => Some(crate::escape::ansi_c(bytes)),
            _ => None,
        },
        b":" => substring(bytes, &text),
        _ if bytes.len() > MAX_MATCHED || text.len() > MAX_MATCHED => None,
        b"#" => Some(
            bytes[(0..=bytes.len())
                .find(|&end| matches(&text, &bytes[..end]))
                .unwrap_or(0)..]
                .to_vec(),
        ),
        b"##" => Some(
            bytes[(0..=bytes.len())
                .rfind(|&end| matches(&text, &bytes[..end]))
                .unwrap_or(0)..]
                .to_vec(),
        ),
        b"%" => {
            let start = (0..=bytes.len())
                .rfind(|&start| matches(&text, &bytes[start..]))
                .unwrap_or(bytes.len());
            Some(bytes[..start].to_vec())
        }
        b"%%" => {
            let start = (0..=bytes.len())
                .find(|&start| matches(&text, &bytes[start..]))
                .unwrap_or(bytes.len());
            Some(bytes[..start].to_vec())
        }
        b"/" | b"//" | b"/#" | b"/%" => replace(operator, bytes, &text),
        _ => None,
    }
}

fn substring(bytes: &[u8], operand: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(operand).ok()?;
    let (offset, length) = match text.split_once(':') {
        Some((offset, length)) => (offset, Some(length.trim().parse::<isize>().ok()?)),
        None => (text, None),
    };
    let offset = offset.trim();
    let offset = if offset.is_empty() {
        0
    } else {
        offset.parse::<isize>().ok()?
    };
    let size = isize::try_from(bytes.len()).ok()?;
    let start = if offset < 0 {
        size.checked_add(offset)?
    } else {
        offset
    };
    if start < 0 || start > size {
        return Some(Vec::new());
    }
    let end = match length {
        None => size,
        Some(length) if length < 0 => size.checked_add(length)?,
        Some(length) => start.checked_add(length)?.min(size),
    };
    bytes
        .get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
        .map(<[u8]>::to_vec)
}

fn replace(operator: &[u8], bytes: &[u8], operand: &[u8]) -> Option<Vec<u8>> {
    let slash = operand
        .iter()
        .position(|&byte| byte == b'/')
        .unwrap_or(operand.len());
    let pattern = &operand[..slash];
    let replacement = operand.get(slash + 1..).unwrap_or_default();
    if pattern.is_empty() {
        return Some(bytes.to_vec());
    }
    let longest =
        |from: usize| (from + 1..=bytes.len()).rfind(|&end| matches(pattern, &bytes[from..end]));
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let fits = match operator {
            b"/#" if at > 0 => None,
            b"/%" => longest(at).filter(|&end| end == bytes.len()),
            _ => longest(at),
        };
        match fits {
            Some(end) => {
                out.extend_from_slice(replacement);
                at = end;
                if operator != b"//" {
                    out.extend_from_slice(&bytes[at..]);
                    return Some(out);
                }
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
        if out.len() > MAX_TEXT {
            return None;
        }
    }
    Some(out)
}

/// Whether a shell pattern fits a text; `*`, `?` and simple brackets.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        let step = match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some(b'?') if t < text.len() => Some(1),
            Some(b'[') if t < text.len() => bracket(&pattern[p..], text[t]),
            Some(b'\\')
                if pattern
                    .get(p + 1)
                    .is_some_and(|byte| text.get(t) == Some(byte)) =>
            {
                Some(2)
            }
            Some(byte) if text.get(t) == Some(byte) => Some(1),
            None if t == text.len() => return true,
            _ => None,
        };
        match (step, star) {
            (Some(length), _) => {
                p += length;
                t += 1;
            }
            (None, Some((after, from))) if from < text.len() => {
                star = Some((after, from + 1));
                p = after;
                t = from + 1;
            }
            _ => return false,
        }
    }
}

/// Length of the bracket expression if it holds the byte.
fn bracket(pattern: &[u8], byte: u8) -> Option<usize> {
    let negated = matches!(pattern.get(1), Some(b'!' | b'^'));
    let start = if negated { 2 } else { 1 };
    let end = pattern
        .get(start + 1..)?
        .iter()
        .position(|&byte| byte == b']')?
        + start
        + 1;
    let set = &pattern[start..end];
    let mut found = false;
    let mut at = 0;
    while at < set.len() {
        if let [low, b'-', high] = set[at..].get(..3).unwrap_or_default() {
            found |= (*low..=*high).contains(&byte);
            at += 3;
        } else {
            found |= set[at] == byte;
            at += 1;
        }
    }
    (found != negated).then_some(end + 1)
}

#[cfg(test)]
mod tests {
    use super::{apply, matches};
    use crate::scope::Value;
    use crate::word::{Piece, Word};

    fn value(text: &str) -> Value {
        Value::Text(if text.is_empty() {
            Vec::new()
        } else {
            vec![Piece::Known(text.as_bytes().to_vec())]
        })
    }

    #[test]
    fn follows_bash() {
        let cases = [
            ("", ":-", "rm", "rm"),
            ("ls", ":-", "rm", "ls"),
            ("ls", ":+", "rm", "rm"),
            ("xrm", "#", "x", "rm"),
            ("a/b/c", "##", "*/", "c"),
            ("a.tar.gz", "%", ".*", "a.tar"),
            ("a.tar.gz", "%%", ".*", "a"),
            ("rXm", "/", "X/", "rm"),
            ("XrXm", "//", "X/", "rm"),
            ("abcrmxyz", ":", "3:2", "rm"),
            ("abcrm", ":", " -2", "rm"),
            ("RM", ",,", "", "rm"),
            ("rm", "^", "", "Rm"),
        ];
        for (start, operator, operand, expected) in cases {
            let found = apply(operator.as_bytes(), &value(start), &Word::from(operand));
            assert_eq!(found, value(expected), "${{{start}{operator}{operand}}}");
        }
    }

    #[test]
    fn unknown_stays_unknown() {
        assert_eq!(
            apply(b":-", &Value::Unknown, &Word::from("rm")),
            Value::Unknown
        );
        assert_eq!(
            apply(b"#", &value("rm"), &Word::unknown("$x")),
            Value::Unknown
        );
    }

    #[test]
    fn patterns_fit_without_blowing_up() {
        assert!(matches(b"*a*b*[c-d]", b"xxaxxbxxc"));
        assert!(!matches(b"[!a]", b"a"));
        assert!(!matches(
            "*a".repeat(200).as_bytes(),
            "b".repeat(1000).as_bytes()
        ));
    }
}
