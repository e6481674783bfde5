//! Wildcards over bytes. One small loop serves words and paths, because building an automaton
//! would cost more at start-up than all the matching that a command needs.

/// Whether `*` and `?` stop at a slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slash {
    /// A slash is a byte like any other: command words.
    Ordinary,
    /// A slash separates components; only `**` crosses it: paths.
    Separator,
}

/// Whether the pattern matches the whole text. `*` any bytes, `?` one byte, `[a-z]` and `[!a-z]` a
/// class, `**` crosses components, `\x` is `x`.
pub fn matches(pattern: &[u8], text: &[u8], slash: Slash) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to go on when a literal fails: the newest star, and the newest `**`, which may take a
    // slash that the newer `*` may not.
    let mut star: Option<(usize, usize)> = None;
    let mut deep: Option<(usize, usize)> = None;
    loop {
        match pattern.get(p) {
            Some(b'*') if pattern.get(p + 1) == Some(&b'*') => {
                let next = p + pattern[p..]
                    .iter()
                    .take_while(|byte| **byte == b'*')
                    .count();
                // `**/` also stands for no component at all.
                let whole = p == 0 || pattern[p - 1] == b'/';
                if slash == Slash::Separator
                    && whole
                    && pattern.get(next) == Some(&b'/')
                    && matches(&pattern[next + 1..], &text[t..], slash)
                {
                    return true;
                }
                deep = Some((next, t));
                star = None;
                p = next;
                continue;
            }
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some(_) => {
                if let Some(next) = text.get(t).and_then(|byte| one(pattern, p, *byte, slash)) {
                    p = next;
                    t += 1;
                    continue;
                }
            }
            None if t == text.len() => return true,
            None => {}
        }
        match (star, deep) {
            (Some((after, from)), _)
                if from < text.len() && (slash == Slash::Ordinary || text[from] != b'/') =>
            {
                star = Some((after, from + 1));
                (p, t) = (after, from + 1);
            }
            (_, Some((after, from))) if from < text.len() => {
                deep = Some((after, from + 1));
                star = None;
                (p, t) = (after, from + 1);
            }
            _ => return false,
        }
    }
}

/// Matches one byte against the pattern element at `p`; answers where the next element starts.
fn one(pattern: &[u8], p: usize, byte: u8, slash: Slash) -> Option<usize> {
    match pattern[p] {
        b'?' => (byte != b'/' || slash == Slash::Ordinary).then_some(p + 1),
        b'[' => match class(pattern, p, byte) {
            Some((hit, next)) => {
                (hit && (byte != b'/' || slash == Slash::Ordinary)).then_some(next)
            }
            None => (byte == b'[').then_some(p + 1),
        },
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        literal => (literal == byte).then_some(p + 1),
    }
}

/// Reads a bracket class at `p`; `None` when it is not closed, and then `[` is itself.
fn class(pattern: &[u8], p: usize, byte: u8) -> Option<(bool, usize)> {
    let mut at = p + 1;
    let negated = matches!(pattern.get(at), Some(b'!' | b'^'));
    if negated {
        at += 1;
    }
    let first = at;
    let mut hit = false;
    loop {
        let low = *pattern.get(at)?;
        if low == b']' && at > first {
            return Some((hit != negated, at + 1));
        }
        if pattern.get(at + 1) == Some(&b'-')
            && pattern.get(at + 2).is_some_and(|high| *high != b']')
        {
            let high = *pattern.get(at + 2)?;
            hit |= (low..=high).contains(&byte);
            at += 3;
        } else {
            hit |= low == byte;
            at += 1;
        }
    }
}

/// Whether the pattern has a wildcard.
pub fn is_pattern(pattern: &[u8]) -> bool {
    pattern
        .iter()
        .any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// The bytes before the first wildcard.
pub fn literal_prefix(pattern: &[u8]) -> &[u8] {
    let end = pattern
        .iter()
        .position(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'));
    &pattern[..end.unwrap_or(pattern.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(pattern: &str, text: &str) -> bool {
        matches(pattern.as_bytes(), text.as_bytes(), Slash::Ordinary)
    }

    fn path(pattern: &str, text: &str) -> bool {
        matches(pattern.as_bytes(), text.as_bytes(), Slash::Separator)
    }

    #[test]
    fn words() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("*", "a/b", true),
            ("a*b*c", "aXbYc", true),
            ("a*b*c", "aXbY", false),
            ("?", "/", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[", "[", true),
            ("[]a]", "]", true),
            (r"\*", "*", true),
            (r"\*", "a", false),
            ("*.example.com", "a.b.example.com", true),
        ] {
            assert_eq!(word(pattern, text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn paths() {
        for (pattern, text, expected) in [
            ("/a/*", "/a/b", true),
            ("/a/*", "/a/b/c", false),
            ("/a/**", "/a/b/c", true),
            ("/a/**/c", "/a/c", true),
            ("/a/**/c", "/a/b/b/c", true),
            ("**/.env", "/p/q/.env", true),
            ("**/.env", ".env", true),
            ("/a/**/.git/hooks/**", "/a/.git/hooks/pre-commit", true),
            ("/a/**/.git/hooks/**", "/a/b/.git/hooks/x/y", true),
            ("/a/**/.git/hooks/**", "/a/b/.gitx/hooks/x", false),
            ("/a?b", "/a/b", false),
            ("/a[/]b", "/a/b", false),
            ("/**/*.pem", "/x/y/k.pem", true),
        ] {
            assert_eq!(path(pattern, text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn many_stars_stay_fast() {
        let pattern = "*a".repeat(40);
        let text = "a".repeat(2000) + "b";
        assert!(!word(&pattern, &text));
    }

    proptest::proptest! {
        #[test]
        fn agrees_with_a_plain_recursion(pattern in "[ab*?/]{0,8}", text in "[ab/]{0,10}") {
            for slash in [Slash::Ordinary, Slash::Separator] {
                let ours = matches(pattern.as_bytes(), text.as_bytes(), slash);
                proptest::prop_assert_eq!(ours, slow(pattern.as_bytes(), text.as_bytes(), slash, true));
            }
        }
    }

    /// The definition, without cleverness; only for short inputs.
    fn slow(pattern: &[u8], text: &[u8], slash: Slash, start: bool) -> bool {
        let Some(&head) = pattern.first() else {
            return text.is_empty();
        };
        if head != b'*' {
            return !text.is_empty()
                && (head == text[0]
                    || (head == b'?' && (slash == Slash::Ordinary || text[0] != b'/')))
                && slow(&pattern[1..], &text[1..], slash, head == b'/');
        }
        let stars = pattern.iter().take_while(|byte| **byte == b'*').count();
        let rest = &pattern[stars..];
        let none = stars > 1 && start && slash == Slash::Separator && rest.first() == Some(&b'/');
        if none && slow(&rest[1..], text, slash, true) {
            return true;
        }
        (0..=text.len()).any(|n| {
            let crosses = slash == Slash::Separator && stars == 1 && text[..n].contains(&b'/');
            !crosses && slow(rest, &text[n..], slash, false)
        })
    }
}
