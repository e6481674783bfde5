//! Base64 as RFC 4648 has it, padded and strict.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Adds the base64 text of some bytes.
pub fn push(bytes: &[u8], out: &mut Vec<u8>) {
    for chunk in bytes.chunks(3) {
        let group = chunk
            .iter()
            .fold(0_u32, |n, &byte| n << 8 | u32::from(byte))
            << (8 * (3 - chunk.len()));
        for i in 0..4 {
            out.push(if i <= chunk.len() {
                ALPHABET[(group >> (18 - 6 * i) & 63) as usize]
            } else {
                b'='
            });
        }
    }
}

/// The text for some bytes.
pub fn encode(bytes: &[u8]) -> String {
    let mut out = Vec::new();
    push(bytes, &mut out);
    String::from_utf8(out).unwrap_or_default()
}

/// The bytes that a text stands for; `None` if it is not padded standard base64.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let groups = text.len() / 4;
    for (number, chunk) in text.chunks(4).enumerate() {
        let padding = chunk.iter().rev().take_while(|&&byte| byte == b'=').count();
        if padding > 2 || padding > 0 && number + 1 != groups {
            return None;
        }
        let mut group = 0_u32;
        for &byte in &chunk[..4 - padding] {
            let value = match byte {
                b'A'..=b'Z' => byte - b'A',
                b'a'..=b'z' => byte - b'a' + 26,
                b'0'..=b'9' => byte - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            group = group << 6 | u32::from(value);
        }
        group <<= 6 * padding;
        // Bits that padding leaves over must be zero: one text for one value.
        if group & ((1 << (8 * padding)) - 1) != 0 {
            return None;
        }
        out.extend_from_slice(&group.to_be_bytes()[1..4 - padding]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_the_standard_one() {
        for (bytes, text) in [
            (&b"\xff"[..], "/w=="),
            (b"\xff\xfe", "//4="),
            (b"\xff\xfea", "//5h"),
            (b"\xff\xfeab", "//5hYg=="),
        ] {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text).unwrap(), bytes);
        }
        for bad in ["/", "/w=", "/w==/w==", "/x==", "====", "/w=w", "é==="] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}
