//! A command of several rows in one, as bash's history keeps it (`cmdhist`).

/// Words after which a new row goes on with the same command, or begins the first of a list.
const OPEN: &[&str] = &[
    "do", "then", "else", "elif", "if", "while", "until", "in", "{", "(", "!", "&&", "||", "|",
    "|&", ";;", ";", "&", ";&", ";;&", "time",
];

/// The text in one row. Where a row ends inside quotes or a here-document, or with a comment, that would be another
/// text; it stays as it is.
pub fn in_one_row(text: &[u8]) -> Vec<u8> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    if !text.contains(&b'\n') {
        return text.to_vec();
    }
    let mut joined = Vec::with_capacity(text.len() + 8);
    let mut quote: Option<u8> = None;
    let mut word_start = true;
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (Some(_), b'\n') => return text.to_vec(),
            (None, b'<') if bytes.peek() == Some(&b'<') => return text.to_vec(),
            (None, b'#') if word_start => return text.to_vec(),
            (None, b'\\') if bytes.peek() == Some(&b'\n') => {
                bytes.next();
                continue;
            }
            (Some(b'\'') | None, b'\'') | (Some(b'"') | None, b'"') | (Some(b'`') | None, b'`') => {
                quote = quote.is_none().then_some(byte);
                joined.push(byte);
            }
            (None | Some(b'"' | b'`'), b'\\') => {
                joined.push(byte);
                joined.extend(bytes.next());
            }
            (None, b'\n') => {
                while joined
                    .last()
                    .is_some_and(|byte| matches!(byte, b' ' | b'\t'))
                {
                    joined.pop();
                }
                joined.extend_from_slice(match goes_on(&joined) {
                    true => b" ",
                    false => b"; ",
                });
                while bytes.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
                    bytes.next();
                }
            }
            _ => joined.push(byte),
        }
        word_start = matches!(byte, b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(');
    }
    joined
}

/// Whether what was written so far cannot end a command, so that no `;` may follow.
fn goes_on(text: &[u8]) -> bool {
    let word = text
        .rsplit(|byte| byte.is_ascii_whitespace())
        .next()
        .unwrap_or_default();
    let word = String::from_utf8_lossy(word);
    word.is_empty()
        || OPEN.contains(&word.as_ref())
        || word.ends_with([';', '&', '|', '(', '{'])
        // A function's name, or a pattern of a `case`.
        || word.ends_with(')') && !word.contains("$(") && !word.ends_with("))")
}

#[cfg(test)]
mod tests {
    use super::in_one_row;

    #[test]
    fn rows_become_one_as_in_bash() {
        for (rows, row) in [
            (
                "for i in 1 2\ndo\n  echo $i\ndone",
                "for i in 1 2; do echo $i; done",
            ),
            (
                "for i in 1; do\necho $i\ndone | tac",
                "for i in 1; do echo $i; done | tac",
            ),
            ("if a\nthen b\nelse c\nfi", "if a; then b; else c; fi"),
            ("a |\n  b", "a | b"),
            ("a &&\nb", "a && b"),
            ("f() {\n  a\n  b\n}", "f() { a; b; }"),
            ("echo a \\\n  b", "echo a   b"),
            ("case x in\na) b ;;\nesac", "case x in a) b ;; esac"),
            ("plain", "plain"),
        ] {
            let joined = in_one_row(rows.as_bytes());
            assert_eq!(String::from_utf8(joined).unwrap(), row);
        }
        for rows in ["echo 'a\nb'", "cat <<E\nx\nE", "a # note\nb"] {
            assert_eq!(in_one_row(rows.as_bytes()), rows.as_bytes(), "{rows}");
        }
    }
}
