//! Perl and Ruby, which no grammar is brought for: calls of a known name whose arguments are plain text.
//! Such code is never understood as a whole.

use crate::effect::{Action, Effect};
use crate::findings::{Findings, Nested};
use crate::word::Word;

/// Most calls that are noted.
const MAX_FOUND: usize = 64;

/// What is done to the text that stands first in a call.
#[derive(Clone, Copy)]
enum Does {
    Shell,
    Delete,
    DeleteAll,
    Open,
    Write,
}

const CALLS: [(&[u8], Does); 17] = [
    (b"system", Does::Shell),
    (b"exec", Does::Shell),
    (b"qx", Does::Shell),
    (b"popen", Does::Shell),
    (b"spawn", Does::Shell),
    (b"unlink", Does::Delete),
    (b"rmdir", Does::Delete),
    (b"rmtree", Does::DeleteAll),
    (b"remove_tree", Does::DeleteAll),
    (b"rm_rf", Does::DeleteAll),
    (b"rm_r", Does::DeleteAll),
    (b"remove_entry_secure", Does::DeleteAll),
    (b"delete", Does::Delete),
    (b"truncate", Does::Write),
    (b"open", Does::Open),
    (b"new", Does::Open),
    (b"write", Does::Write),
];

/// Notes what is plain in code.
pub(super) fn read(text: &[u8], findings: &mut Findings) {
    let mut at = 0;
    let mut found = 0;
    while at < text.len() && found < MAX_FOUND {
        let byte = text[at];
        if byte == b'`' {
            let Some(length) = text[at + 1..].iter().position(|byte| *byte == b'`') else {
                return;
            };
            let command = &text[at + 1..at + 1 + length];
            found += 1;
            note(Does::Shell, &[command], findings);
            at += length + 2;
            continue;
        }
        if !byte.is_ascii_alphabetic() {
            at += 1;
            continue;
        }
        let end = text[at..]
            .iter()
            .position(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_'))
            .map_or(text.len(), |length| at + length);
        let called = CALLS.iter().find(|(name, _)| *name == &text[at..end]);
        if text[at..end] == *b"qx" && text.get(end) == Some(&b'(') {
            let inner = &text[end + 1..];
            let length = inner.iter().position(|byte| *byte == b')');
            note(
                Does::Shell,
                &[&inner[..length.unwrap_or(inner.len())]],
                findings,
            );
            found += 1;
            at = end + 1 + length.unwrap_or(inner.len());
            continue;
        }
        // A variable or a method of something else that only has such a name is none.
        let named = at > 0 && matches!(text[at - 1], b'$' | b'@' | b'%' | b'_');
        at = end;
        let Some((name, does)) = called.filter(|_| !named) else {
            continue;
        };
        // `delete` and `write` are said of many things, files among them by their class.
        let class = text[..end - name.len()].ends_with(b"File.");
        if matches!(*name, b"delete" | b"write" | b"new" | b"truncate") && !class {
            continue;
        }
        let texts = arguments(&text[end..]);
        if !texts.is_empty() {
            found += 1;
            let texts: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
            note(*does, &texts, findings);
        }
    }
}

/// The texts that stand behind a name, separated by commas, as far as all of them are plain.
fn arguments(text: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = text.trim_ascii_start();
    rest = rest.strip_prefix(b"(").unwrap_or(rest).trim_ascii_start();
    let mut texts = Vec::new();
    while texts.len() < 16 {
        let (quote, skip) = match rest {
            [quote @ (b'"' | b'\''), ..] => (*quote, 1),
            [b'q', b'q', open @ (b'{' | b'(' | b'[' | b'/' | b'|'), ..] => (closing(*open), 3),
            [b'q', open @ (b'{' | b'(' | b'[' | b'/' | b'|'), ..] => (closing(*open), 2),
            [open @ (b'{' | b'/' | b'|'), ..] if texts.is_empty() => (closing(*open), 1),
            // A file handle in front, as `open` has it.
            _ if texts.is_empty() => {
                let Some(comma) = rest.iter().position(|byte| *byte == b',') else {
                    return texts;
                };
                let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"$_ ".contains(byte);
                if !rest[..comma].iter().all(plain) {
                    return texts;
                }
                rest = rest[comma + 1..].trim_ascii_start();
                if !matches!(rest.first(), Some(b'"' | b'\'')) {
                    return texts;
                }
                continue;
            }
            _ => return texts,
        };
        let inner = &rest[skip..];
        let Some(length) = inner.iter().position(|byte| *byte == quote) else {
            return texts;
        };
        texts.push(inner[..length].to_vec());
        rest = inner[length + 1..].trim_ascii_start();
        match rest.strip_prefix(b",") {
            Some(more) => rest = more.trim_ascii_start(),
            None => return texts,
        }
    }
    texts
}

fn closing(open: u8) -> u8 {
    match open {
        b'{' => b'}',
        b'(' => b')',
        b'[' => b']',
        other => other,
    }
}

fn note(does: Does, texts: &[&[u8]], findings: &mut Findings) {
    // What is put into a text at run time makes it another.
    if texts
        .iter()
        .any(|text| text.contains(&b'$') || text.windows(2).any(|pair| pair == b"#{"))
    {
        return;
    }
    let mut path = |action, text: &[u8], all| {
        let mut effect = Effect::path(action, Word::literal(text));
        effect.recursive = all;
        findings.effects.push(effect);
    };
    match (does, texts) {
        (Does::Shell, [text]) => findings.nested.push(Nested::text(Word::literal(*text))),
        (Does::Shell, argv) => findings.nested.push(Nested::Words {
            argv: argv.iter().map(|text| Word::literal(*text)).collect(),
            assignments: Vec::new(),
            here: false,
        }),
        (Does::Delete, texts) => texts
            .iter()
            .for_each(|text| path(Action::Delete, text, false)),
        (Does::DeleteAll, texts) => texts
            .iter()
            .for_each(|text| path(Action::Delete, text, true)),
        (Does::Write, [text, ..]) => path(Action::Write, text, false),
        // Perl: `open(F, ">name")`, `open(F, "<", name)`; Ruby: `File.open(name, "w")`.
        (Does::Open, [first, rest @ ..]) => {
            let marks = first
                .iter()
                .take_while(|byte| b"+<>| ".contains(byte))
                .count();
            let (mode, name) = first.split_at(marks);
            let (mode, name) = match (name, rest) {
                (b"", [name, ..]) => (mode, *name),
                (name, [mode, ..]) => (*mode, name),
                (name, []) => (mode, name),
            };
            if mode.contains(&b'|') || name.ends_with(b"|") {
                let command = name.strip_suffix(b"|").unwrap_or(name);
                findings.nested.push(Nested::text(Word::literal(command)));
            } else if mode.iter().any(|byte| b">wa+".contains(byte)) {
                path(Action::Write, name, false);
            } else {
                path(Action::Read, name, false);
            }
        }
        _ => {}
    }
}
