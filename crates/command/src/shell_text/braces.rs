//! Brace expansion: `{a,b}` and `{1..9}`, bounded.

use std::rc::Rc;

use super::lexer::{is_name_byte, is_name_start};
use super::syntax::{Parameter, Part};

/// Most words that one word may become.
const MAX_WORDS: usize = 1024;

/// A byte in which braces count, or a part that they cannot look into.
#[derive(Clone, Copy)]
enum Atom<'a> {
    Byte(u8),
    Part(&'a Part),
}

/// The words that a word becomes; `None` when they are too many to follow.
pub(crate) fn expand(parts: &[Part]) -> Option<Vec<Vec<Part>>> {
    let atoms: Vec<Atom> = parts
        .iter()
        .flat_map(|part| match part {
            Part::Text(text) => text.iter().map(|&byte| Atom::Byte(byte)).collect(),
            other => vec![Atom::Part(other)],
        })
        .collect();
    let mut budget = MAX_WORDS * 64;
    let words = sequence(&atoms, &mut budget, 0)?;
    Some(words.iter().map(|word| parts_of(word)).collect())
}

/// Whether a word could have braces to expand.
pub(crate) fn may_expand(parts: &[Part]) -> bool {
    let byte = |wanted: u8| {
        parts
            .iter()
            .any(|part| matches!(part, Part::Text(text) if text.contains(&wanted)))
    };
    byte(b'{') && byte(b'}') && (byte(b',') || byte(b'.'))
}

fn parts_of(atoms: &[Atom]) -> Vec<Part> {
    let mut parts = Vec::new();
    for atom in atoms {
        match (atom, parts.last_mut()) {
            // Braces are expanded as text, before variables: `$x{a,b}` is `$xa $xb`.
            (Atom::Byte(byte), Some(Part::Parameter(parameter)))
                if !parameter.braced && joins(&parameter.name, *byte) =>
            {
                let mut name = parameter.name.clone();
                name.push(*byte);
                let span = parameter.span.clone();
                *parameter = Rc::new(Parameter::plain(name, span));
            }
            (Atom::Byte(byte), Some(Part::Text(text))) => text.push(*byte),
            (Atom::Byte(byte), _) => parts.push(Part::Text(vec![*byte])),
            (Atom::Part(part), _) => parts.push((*part).clone()),
        }
    }
    parts
}

/// Whether a byte behind an unbraced name becomes part of it.
fn joins(name: &[u8], byte: u8) -> bool {
    name.first().is_some_and(|&first| is_name_start(first)) && is_name_byte(byte)
}

fn sequence<'a>(
    atoms: &[Atom<'a>],
    budget: &mut usize,
    depth: usize,
) -> Option<Vec<Vec<Atom<'a>>>> {
    if depth > 32 {
        return None;
    }
    let mut results: Vec<Vec<Atom<'a>>> = vec![Vec::new()];
    let mut at = 0;
    while at < atoms.len() {
        let alternatives = match atoms[at] {
            Atom::Byte(b'{') => group(&atoms[at..], budget, depth)?,
            _ => None,
        };
        match alternatives {
            None => {
                *budget = budget.checked_sub(results.len())?;
                results.iter_mut().for_each(|word| word.push(atoms[at]));
                at += 1;
            }
            Some((alternatives, length)) => {
                if results.len().checked_mul(alternatives.len())? > MAX_WORDS {
                    return None;
                }
                let mut next = Vec::with_capacity(results.len() * alternatives.len());
                for word in &results {
                    for alternative in &alternatives {
                        *budget = budget.checked_sub(word.len() + alternative.len() + 1)?;
                        next.push(word.iter().chain(alternative).copied().collect());
                    }
                }
                results = next;
                at += length;
            }
        }
    }
    Some(results)
}

type Group<'a> = (Vec<Vec<Atom<'a>>>, usize);

/// The alternatives of a brace group that starts here, with its length; `Some(None)` when it is plain text.
fn group<'a>(atoms: &[Atom<'a>], budget: &mut usize, depth: usize) -> Option<Option<Group<'a>>> {
    let mut open = 0usize;
    let mut commas = vec![0];
    for (at, atom) in atoms.iter().enumerate() {
        *budget = budget.checked_sub(1)?;
        match atom {
            Atom::Byte(b'{') => open += 1,
            Atom::Byte(b',') if open == 1 => commas.push(at),
            Atom::Byte(b'}') => {
                open -= 1;
                if open > 0 {
                    continue;
                }
                if commas.len() == 1 {
                    return Some(range(&atoms[1..at])?.map(|words| (words, at + 1)));
                }
                commas.push(at);
                let mut words = Vec::new();
                for pair in commas.windows(2) {
                    words.extend(sequence(&atoms[pair[0] + 1..pair[1]], budget, depth + 1)?);
                    if words.len() > MAX_WORDS {
                        return None;
                    }
                }
                return Some(Some((words, at + 1)));
            }
            _ => {}
        }
    }
    Some(None)
}

/// `1..5`, `a..e`, `01..10..2`; `Some(None)` when it is none of these.
fn range<'a>(atoms: &[Atom<'a>]) -> Option<Option<Vec<Vec<Atom<'a>>>>> {
    let mut text = Vec::new();
    for atom in atoms {
        match atom {
            Atom::Byte(byte) => text.push(*byte),
            Atom::Part(_) => return Some(None),
        }
    }
    let Ok(text) = String::from_utf8(text) else {
        return Some(None);
    };
    let fields: Vec<&str> = text.split("..").collect();
    let (first, last, step) = match fields.as_slice() {
        [first, last] => (*first, *last, 1),
        [first, last, step] => match step.parse::<i64>() {
            Ok(step) => (*first, *last, step.unsigned_abs().max(1)),
            Err(_) => return Some(None),
        },
        _ => return Some(None),
    };
    let count = |from: i64, to: i64| from.abs_diff(to) / step;
    let values = |from: i64, to: i64| -> Option<Vec<i64>> {
        if count(from, to) >= MAX_WORDS as u64 {
            return None;
        }
        let step = i64::try_from(step).ok()?;
        Some(
            (0..=count(from, to) as i64)
                .map(|n| {
                    if from <= to {
                        from + n * step
                    } else {
                        from - n * step
                    }
                })
                .collect(),
        )
    };
    let words: Vec<Vec<u8>> = if let (Ok(from), Ok(to)) =
        (first.parse::<i64>(), last.parse::<i64>())
    {
        let padded = |text: &str| {
            text.trim_start_matches('-').starts_with('0') && text.trim_start_matches('-').len() > 1
        };
        let width = if padded(first) || padded(last) {
            first.len().max(last.len())
        } else {
            0
        };
        values(from, to)?
            .into_iter()
            .map(|value| format!("{value:0width$}").into_bytes())
            .collect()
    } else if let ([from], [to]) = (first.as_bytes(), last.as_bytes()) {
        if !from.is_ascii_alphabetic() || !to.is_ascii_alphabetic() {
            return Some(None);
        }
        values(i64::from(*from), i64::from(*to))?
            .into_iter()
            .map(|value| vec![value as u8])
            .collect()
    } else {
        return Some(None);
    };
    Some(Some(
        words
            .into_iter()
            .map(|word| word.into_iter().map(Atom::Byte).collect())
            .collect(),
    ))
}

#[cfg(test)]
mod tests {
    use super::expand;
    use crate::shell_text::syntax::Part;

    fn texts(text: &str) -> Option<Vec<String>> {
        let words = expand(&[Part::Text(text.as_bytes().to_vec())])?;
        Some(
            words
                .iter()
                .map(|parts| {
                    parts
                        .iter()
                        .map(|part| match part {
                            Part::Text(text) => String::from_utf8_lossy(text).into_owned(),
                            _ => "?".to_owned(),
                        })
                        .collect()
                })
                .collect(),
        )
    }

    #[test]
    fn expands_as_bash_does() {
        let cases: [(&str, &[&str]); 12] = [
            ("{rm,-rf,/}", &["rm", "-rf", "/"]),
            ("a{b,c}d{e,f}", &["abde", "abdf", "acde", "acdf"]),
            ("{a,{b,c}}", &["a", "b", "c"]),
            ("{1..3}", &["1", "2", "3"]),
            ("{c..a}", &["c", "b", "a"]),
            ("{01..03..2}", &["01", "03"]),
            ("{a}", &["{a}"]),
            ("{}", &["{}"]),
            ("{a,b", &["{a,b"]),
            ("x{,y}", &["x", "xy"]),
            ("{-1..1}", &["-1", "0", "1"]),
            ("{a..3}", &["{a..3}"]),
        ];
        for (text, expected) in cases {
            assert_eq!(
                texts(text).as_deref(),
                Some(expected.map_owned().as_slice()),
                "{text}"
            );
        }
    }

    #[test]
    fn gives_up_on_explosions() {
        assert_eq!(texts(&"{a,b}".repeat(30)), None);
        assert_eq!(texts("{1..1000000000}"), None);
        assert_eq!(texts(&"{".repeat(100_000)), None);
    }

    trait Owned {
        fn map_owned(&self) -> Vec<String>;
    }

    impl Owned for &[&str] {
        fn map_owned(&self) -> Vec<String> {
            self.iter().map(|&text| text.to_owned()).collect()
        }
    }
}
