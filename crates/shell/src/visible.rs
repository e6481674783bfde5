//! Text that somebody else wrote, shown so that it cannot pretend to be something it is not.

/// Longer texts are cut in the middle; what is cut is counted.
const SHOWN: usize = 4000;

/// The text with everything made visible that a terminal would act on, hide or reorder.
pub fn visible(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_hidden(c) {
                text.extend(c.escape_default());
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shorten(text)
}

fn shorten(text: String) -> String {
    let count = text.chars().count();
    if count <= SHOWN {
        return text;
    }
    let half = SHOWN / 2;
    let head: String = text.chars().take(half).collect();
    let tail: String = text.chars().skip(count - half).collect();
    format!(
        "{head}\n    [... {} characters are not shown here ...]\n{tail}",
        count - 2 * half
    )
}

/// Characters that move the cursor, turn the direction of writing, join, or take no room.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            u32::from(c),
            0xAD | 0x34F
                | 0x61C
                | 0x115F..=0x1160
                | 0x17B4..=0x17B5
                | 0x180B..=0x180F
                | 0x200B..=0x200F
                | 0x2028..=0x202E
                | 0x2060..=0x206F
                | 0x3164
                | 0xFE00..=0xFE0F
                | 0xFEFF
                | 0xFFA0
                | 0xFFF0..=0xFFFB
                | 0x1D173..=0x1D17A
                | 0xE0000..=0xE0FFF
        )
        || (c != ' ' && c.is_whitespace())
}

/// A warning when characters stand among the text that may look like others: those that are not ASCII.
pub fn unusual(bytes: &[u8]) -> Option<String> {
    let mut found: Vec<char> = String::from_utf8_lossy(bytes)
        .chars()
        .filter(|c| !c.is_ascii() && !is_hidden(*c))
        .collect();
    found.dedup();
    if found.is_empty() {
        return None;
    }
    let shown: Vec<String> = found
        .iter()
        .take(8)
        .map(|c| format!("{c} (U+{:04X})", u32::from(*c)))
        .collect();
    let more = if found.len() > 8 { ", ..." } else { "" };
    Some(format!(
        "some characters are not ASCII and may look like others: {}{more}",
        shown.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_acts_on_the_terminal() {
        for (given, shown) in [
            ("ls\x1b[2K\rrm", "ls\\u{1b}[2K\\rrm"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("a\u{200b}b", "a\\u{200b}b"),
            ("a\u{a0}b", "a\\u{a0}b"),
            ("a\tb\n", "a\\tb\\n"),
            ("größe ok", "größe ok"),
        ] {
            assert_eq!(visible(given.as_bytes()), shown);
        }
        assert_eq!(visible(b"a\xff"), "a\\xff");
        let all: Vec<u8> = (0..=255).collect();
        assert!(visible(&all).chars().all(|c| !c.is_control()));
    }

    #[test]
    fn long_text_says_what_is_missing() {
        let text = format!("{}END", "x".repeat(100_000));
        let shown = visible(text.as_bytes());
        assert!(shown.len() < 5000 && shown.ends_with("END"));
        assert!(shown.contains("96003 characters are not shown"), "{shown}");
    }

    #[test]
    fn look_alikes_are_named() {
        assert_eq!(unusual(b"git push"), None);
        let warned = unusual("g\u{0456}t".as_bytes()).unwrap();
        assert!(warned.contains("U+0456"), "{warned}");
    }
}
