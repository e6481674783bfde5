//! What runs through a pipe, and the few programs whose output is known before they run.

use crate::effect::Source;
use crate::escape;
use crate::word::{Piece, Word};

/// Longest text that is carried along; beyond, it counts as unknown.
pub(crate) const MAX_TEXT: usize = 64 * 1024;

/// The invocations that something comes from, by number; without shell text nothing flows.
#[cfg(feature = "parse")]
pub(crate) type Producers = Vec<usize>;
#[cfg(not(feature = "parse"))]
pub(crate) type Producers = ();

/// What a command reads on standard input or writes to standard output.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flow {
    /// Something feeds it: a pipe or a redirection, not the terminal.
    pub fed: bool,
    /// The text itself, when known.
    pub text: Option<Vec<Piece>>,
    /// Where unknown text comes from.
    pub from: Option<(Source, Word)>,
    /// Names, and only some of those that there are.
    pub some: bool,
    /// The invocations that it comes from, by number.
    pub producers: Producers,
}

/// Most producers that are carried along.
#[cfg(feature = "parse")]
const MAX_PRODUCERS: usize = 64;

impl Flow {
    /// Known text.
    pub fn text(pieces: Vec<Piece>) -> Self {
        let known: usize = pieces.iter().map(piece_length).sum();
        if known > MAX_TEXT {
            return Self::unknown();
        }
        Self {
            fed: true,
            text: Some(pieces),
            ..Self::default()
        }
    }

    /// Known bytes.
    pub fn bytes(bytes: Vec<u8>) -> Self {
        Self::text(if bytes.is_empty() {
            Vec::new()
        } else {
            vec![Piece::Known(bytes)]
        })
    }

    /// Text from somewhere.
    pub fn source(source: Source, word: Word) -> Self {
        Self {
            fed: true,
            from: Some((source, word)),
            ..Self::default()
        }
    }

    /// The same; without shell text nothing flows.
    #[cfg(not(feature = "parse"))]
    pub fn by(self, (): &Producers) -> Self {
        self
    }

    /// The same, as it comes from these invocations too.
    #[cfg(feature = "parse")]
    pub fn by(mut self, producers: &[usize]) -> Self {
        let left = MAX_PRODUCERS.saturating_sub(self.producers.len());
        let new = producers
            .iter()
            .filter(|producer| !self.producers.contains(producer));
        let new: Vec<usize> = new.take(left).copied().collect();
        self.producers.extend(new);
        self
    }

    /// Text of which nothing is known.
    pub fn unknown() -> Self {
        Self {
            fed: true,
            ..Self::default()
        }
    }

    /// The text, when every byte of it is known.
    pub fn literal(&self) -> Option<&[u8]> {
        match self.text.as_deref()? {
            [] => Some(b""),
            [Piece::Known(bytes)] => Some(bytes),
            _ => None,
        }
    }

    /// This, and then that, on the same descriptor.
    pub fn then(self, next: Flow) -> Flow {
        // Nothing at all is no other name.
        let few = |flow: &Flow| flow.some || matches!(flow.text.as_deref(), Some([]));
        let some = few(&self) && few(&next) && (self.some || next.some);
        let from = match (self.from, next.from) {
            (Some(one), Some(other)) => Some(if rank(one.0) >= rank(other.0) {
                one
            } else {
                other
            }),
            (one, other) => one.or(other),
        };
        let text = match (self.text, next.text) {
            (Some(mut one), Some(other)) if from.is_none() => {
                for piece in other {
                    push_piece(&mut one, piece);
                }
                let length: usize = one.iter().map(piece_length).sum();
                (length <= MAX_TEXT).then_some(one)
            }
            _ => None,
        };
        Flow {
            fed: self.fed || next.fed,
            text,
            from,
            some,
            producers: self.producers,
        }
        .by(&next.producers)
    }

    /// This or that, depending on the way that the line goes.
    pub fn or(self, other: Flow) -> Flow {
        if self.text == other.text && self.from.is_none() && other.from.is_none() {
            return self.by(&other.producers);
        }
        Flow {
            text: None,
            ..self.then(other)
        }
    }

    /// The same after a program changed it in a way that we do not follow.
    pub fn changed(&self) -> Flow {
        match (&self.text, &self.from) {
            (Some(pieces), None) => Flow::source(
                Source::Decoded,
                Word {
                    pieces: pieces.clone(),
                    splits: false,
                    quoted: true,
                },
            )
            .by(&self.producers),
            _ => Flow {
                fed: true,
                text: None,
                from: self.from.clone(),
                some: self.some,
                producers: self.producers.clone(),
            },
        }
    }
}

fn rank(source: Source) -> u8 {
    match source {
        Source::Network => 3,
        Source::Decoded => 2,
        Source::File => 1,
        _ => 0,
    }
}

pub(crate) fn piece_length(piece: &Piece) -> usize {
    match piece {
        Piece::Known(bytes) | Piece::Glob(bytes) | Piece::Unknown(bytes) => bytes.len(),
    }
}

/// Appends a piece, merging known neighbours.
pub(crate) fn push_piece(pieces: &mut Vec<Piece>, piece: Piece) {
    match (pieces.last_mut(), piece) {
        (Some(Piece::Known(last)), Piece::Known(bytes)) => last.extend_from_slice(&bytes),
        (_, Piece::Known(bytes)) if bytes.is_empty() => {}
        (_, piece) => pieces.push(piece),
    }
}

/// What `echo` writes for these operands.
pub(crate) fn echo(argv: &[Word]) -> Vec<Piece> {
    let mut words = argv.get(1..).unwrap_or_default();
    let (mut newline, mut escapes) = (true, false);
    while let Some(option) = words.first().and_then(Word::value) {
        let [b'-', flags @ ..] = option else { break };
        if flags.is_empty() || !flags.iter().all(|flag| b"neE".contains(flag)) {
            break;
        }
        newline &= !flags.contains(&b'n');
        escapes = flags
            .iter()
            .rfind(|&&flag| flag != b'n')
            .map_or(escapes, |&flag| flag == b'e');
        words = &words[1..];
    }
    let mut out = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            push_piece(&mut out, Piece::Known(b" ".to_vec()));
        }
        for piece in &word.pieces {
            let piece = match piece {
                Piece::Known(bytes) if escapes => {
                    let (bytes, ended) = escape::echo(bytes);
                    if ended {
                        push_piece(&mut out, Piece::Known(bytes));
                        return out;
                    }
                    Piece::Known(bytes)
                }
                other => other.clone(),
            };
            push_piece(&mut out, piece);
        }
    }
    if newline {
        push_piece(&mut out, Piece::Known(b"\n".to_vec()));
    }
    out
}

/// What `printf` writes, when its format is known and uses only plain conversions.
pub(crate) fn printf(argv: &[Word]) -> Option<Vec<Piece>> {
    let mut words = argv.get(1..)?;
    if words.first().and_then(Word::value) == Some(b"--") {
        words = &words[1..];
    }
    let (format, mut operands) = words.split_first()?;
    let format = format.value()?;
    let mut out: Vec<Piece> = Vec::new();
    loop {
        let mut used = false;
        let mut at = 0;
        let mut plain = Vec::new();
        while at < format.len() {
            if format[at] == b'\\' {
                plain.extend_from_slice(format.get(at..at + 2).unwrap_or(b"\\"));
                at += 2;
                continue;
            }
            if format[at] != b'%' {
                plain.push(format[at]);
                at += 1;
                continue;
            }
            let conversion = *format.get(at + 1)?;
            at += 2;
            if conversion == b'%' {
                plain.push(b'%');
                continue;
            }
            push_piece(&mut out, Piece::Known(escape::format(&plain)));
            plain.clear();
            used = true;
            let operand = operands.first();
            operands = operands.get(1..).unwrap_or_default();
            let Some(operand) = operand else { continue };
            match conversion {
                b's' => operand
                    .pieces
                    .iter()
                    .cloned()
                    .for_each(|piece| push_piece(&mut out, piece)),
                b'b' => {
                    let (bytes, ended) = escape::echo(operand.value()?);
                    push_piece(&mut out, Piece::Known(bytes));
                    if ended {
                        return Some(out);
                    }
                }
                b'd' | b'i' | b'u' => push_piece(&mut out, Piece::Known(operand.value()?.to_vec())),
                b'c' => push_piece(
                    &mut out,
                    Piece::Known(operand.value()?.iter().take(1).copied().collect()),
                ),
                _ => return None,
            }
        }
        push_piece(&mut out, Piece::Known(escape::format(&plain)));
        if operands.is_empty() || !used || out.len() > 4096 {
            return Some(out);
        }
    }
}

/// Decodes base64, ignoring blanks and newlines.
pub(crate) fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0u32, 0);
    for &byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' | b'\n' | b'\r' | b' ' | b'\t' => continue,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(out)
}

/// Decodes base32, ignoring blanks and newlines.
pub(crate) fn base32(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for &byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'2'..=b'7' => byte - b'2' + 26,
            b'=' | b'\n' | b'\r' | b' ' | b'\t' => continue,
            _ => return None,
        };
        bits = bits << 5 | u32::from(value);
        count += 5;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    Some(out)
}

/// Decodes plain hexadecimal, ignoring blanks and newlines.
pub(crate) fn hexadecimal(text: &[u8]) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .iter()
        .copied()
        .filter(|byte| !byte.is_ascii_whitespace())
        .collect();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits
        .chunks_exact(2)
        .map(|pair| {
            let high = (pair[0] as char).to_digit(16)?;
            let low = (pair[1] as char).to_digit(16)?;
            Some((high * 16 + low) as u8)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{base32, base64, echo, hexadecimal, printf};
    use crate::word::{Piece, Word};

    fn words(list: &[&str]) -> Vec<Word> {
        list.iter().map(|&word| Word::from(word)).collect()
    }

    fn known(text: &str) -> Vec<Piece> {
        vec![Piece::Known(text.as_bytes().to_vec())]
    }

    #[test]
    fn echo_joins_its_operands() {
        assert_eq!(
            echo(&words(&["echo", "rm", "-rf", "/"])),
            known("rm -rf /\n")
        );
        assert_eq!(echo(&words(&["echo", "-n", "rm"])), known("rm"));
        assert_eq!(echo(&words(&["echo", "-ne", "\\x72m"])), known("rm"));
        assert_eq!(echo(&words(&["echo", "-x", "a"])), known("-x a\n"));
        assert_eq!(echo(&words(&["echo"])), known("\n"));
    }

    #[test]
    fn printf_follows_plain_conversions() {
        assert_eq!(printf(&words(&["printf", "\\x72\\155"])), Some(known("rm")));
        assert_eq!(
            printf(&words(&["printf", "%s-%s\\n", "a", "b", "c"])),
            Some(known("a-b\nc-\n"))
        );
        assert_eq!(
            printf(&words(&["printf", "%b", "\\0162m"])),
            Some(known("rm"))
        );
        assert_eq!(printf(&words(&["printf", "100%%"])), Some(known("100%")));
        assert_eq!(printf(&words(&["printf", "%08x", "1"])), None);
        assert_eq!(printf(&words(&["printf"])), None);
    }

    #[test]
    fn decodes_the_common_encodings() {
        assert_eq!(
            base64(b"cm0gLXJmIC8=\n").as_deref(),
            Some(b"rm -rf /".as_slice())
        );
        assert_eq!(base64(b"!"), None);
        assert_eq!(
            base32(b"OJWSALLSMYQC6===").as_deref(),
            Some(b"rm -rf /".as_slice())
        );
        assert_eq!(hexadecimal(b"72 6d\n").as_deref(), Some(b"rm".as_slice()));
        assert_eq!(hexadecimal(b"7"), None);
    }
}
