//! Text that somebody else wrote, shown so that it cannot pretend to be something it is not.

/// Longer texts are cut in the middle; what is cut is counted.
const SHOWN: usize = 4000;

/// The text with everything made visible that a terminal would act on, hide or reorder; a long one is
/// cut in the middle.
pub fn visible(bytes: &[u8]) -> String {
    shorten(visible_whole(bytes))
}

/// The same without a cut.
pub fn visible_whole(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    push_visible(bytes, &[], &mut text);
    text
}

/// Adds the text with everything made visible but these characters.
pub fn push_visible(bytes: &[u8], kept: &[char], text: &mut String) {
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_hidden(c) && !kept.contains(&c) {
                text.extend(c.escape_default());
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
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

/// Characters that move the cursor, turn the direction of writing, join, look like a space or take no
/// room: from and to.
pub const HIDDEN: [(u32, u32); 20] = [
    (0x0, 0x1F),
    (0x7F, 0xA0),
    (0xAD, 0xAD),
    (0x34F, 0x34F),
    (0x61C, 0x61C),
    (0x115F, 0x1160),
    (0x1680, 0x1680),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2000, 0x200F),
    (0x2028, 0x202F),
    (0x205F, 0x206F),
    (0x3000, 0x3000),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFFB),
    (0x1D173, 0x1D17A),
    (0xE0000, 0xE0FFF),
];

fn is_hidden(c: char) -> bool {
    let code = u32::from(c);
    c != ' '
        && HIDDEN
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&code))
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
    fn controls_and_spaces_are_all_in_the_table() {
        for c in (0..=0x10FFFF).filter_map(char::from_u32) {
            assert!(
                c == ' ' || is_hidden(c) || !(c.is_control() || c.is_whitespace()),
                "{c:?}"
            );
        }
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
