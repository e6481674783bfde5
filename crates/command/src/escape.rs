//! Backslash escapes of `$'…'`, `echo -e` and `printf`.

/// The bytes that `$'text'` stands for; a NUL ends them, as in the shell.
pub(crate) fn ansi_c(text: &[u8]) -> Vec<u8> {
    let (mut bytes, _) = expand(text, Dialect::Quotes);
    if let Some(end) = bytes.iter().position(|&byte| byte == 0) {
        bytes.truncate(end);
    }
    bytes
}

/// The bytes that `echo -e text` or `printf %b text` writes; the flag tells that `\c` ended the output.
pub(crate) fn echo(text: &[u8]) -> (Vec<u8>, bool) {
    expand(text, Dialect::Echo)
}

/// The bytes of a `printf` format without its conversions.
pub(crate) fn format(text: &[u8]) -> Vec<u8> {
    expand(text, Dialect::Format).0
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    Quotes,
    Echo,
    Format,
}

fn expand(text: &[u8], dialect: Dialect) -> (Vec<u8>, bool) {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        at += 1;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let Some(&escape) = text.get(at) else {
            out.push(b'\\');
            break;
        };
        at += 1;
        match escape {
            b'a' => out.push(7),
            b'b' => out.push(8),
            b'e' | b'E' => out.push(27),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(11),
            b'\\' => out.push(b'\\'),
            b'\'' | b'"' | b'?' if dialect != Dialect::Echo => out.push(escape),
            b'c' if dialect == Dialect::Quotes => {
                if let Some(&control) = text.get(at) {
                    at += 1;
                    out.push(control.to_ascii_uppercase() & 0x1f);
                }
            }
            b'c' if dialect == Dialect::Echo => return (out, true),
            b'0'..=b'7' => {
                // `echo` wants a zero first and then allows three digits more.
                let most = if dialect == Dialect::Echo && escape == b'0' {
                    4
                } else {
                    3
                };
                let digits = run(&text[at - 1..], most, |byte| {
                    byte.is_ascii_digit() && byte < b'8'
                });
                at += digits.len() - 1;
                out.push(number(digits, 8) as u8);
            }
            b'x' => {
                let braced = text.get(at) == Some(&b'{');
                let from = if braced { at + 1 } else { at };
                let digits = run(&text[from..], if braced { 8 } else { 2 }, |byte| {
                    byte.is_ascii_hexdigit()
                });
                if digits.is_empty() {
                    out.extend_from_slice(b"\\x");
                } else {
                    out.push(number(digits, 16) as u8);
                    at = from + digits.len();
                    if braced && text.get(at) == Some(&b'}') {
                        at += 1;
                    }
                }
            }
            b'u' | b'U' => {
                let digits = run(&text[at..], if escape == b'u' { 4 } else { 8 }, |byte| {
                    byte.is_ascii_hexdigit()
                });
                match char::from_u32(number(digits, 16)).filter(|_| !digits.is_empty()) {
                    Some(character) => {
                        at += digits.len();
                        out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                    }
                    None => out.extend_from_slice(&[b'\\', escape]),
                }
            }
            _ => out.extend_from_slice(&[b'\\', escape]),
        }
    }
    (out, false)
}

fn run(text: &[u8], most: usize, fits: impl Fn(u8) -> bool) -> &[u8] {
    let length = text
        .iter()
        .take(most)
        .take_while(|&&byte| fits(byte))
        .count();
    &text[..length]
}

fn number(digits: &[u8], base: u32) -> u32 {
    digits.iter().fold(0u32, |value, &digit| {
        value
            .wrapping_mul(base)
            .wrapping_add((digit as char).to_digit(base).unwrap_or(0))
    })
}

#[cfg(test)]
mod tests {
    use super::{ansi_c, echo};

    #[test]
    fn reads_every_escape_of_ansi_quotes() {
        assert_eq!(ansi_c(br"\x72\x6d"), b"rm");
        assert_eq!(ansi_c(br"\162\155"), b"rm");
        assert_eq!(ansi_c(br"\u0072\U0000006d"), b"rm");
        assert_eq!(ansi_c(br"a\tb\n\e\\\'"), b"a\tb\n\x1b\\'");
        assert_eq!(ansi_c(br"\cA\q"), b"\x01\\q");
        assert_eq!(ansi_c(br"rm\0 ignored"), b"rm");
        assert_eq!(ansi_c(br"\x{72}m"), b"rm");
        assert_eq!(ansi_c(b"\\"), b"\\");
        assert_eq!(ansi_c(b"\\x"), b"\\x");
        assert_eq!(ansi_c("\\u00e9".as_bytes()), "é".as_bytes());
    }

    #[test]
    fn echo_stops_at_backslash_c() {
        assert_eq!(echo(br"a\0162m\cxyz"), (b"arm".to_vec(), true));
    }
}
