//! Takes secrets out of command lines before they reach the disk.
//!
//! One pass over words serves both kinds of input: an argument vector is its words
//! already, and a line is split into words whose bytes remember where they came from.

mod tables;
mod words;

use std::borrow::Cow;
use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::glob;
use tables::{
    GLUED_PASS, HEADERS, MAYBE, OPTIONS, Part, SCHEMES, SHORTEST_TOKEN, SURE, TOKENS, TOOLS,
};
use words::{Word, split};

/// What stands where a secret stood.
pub const MARK: &str = "[redacted]";

/// How often a word that is itself a line is looked into (`sh -c "ssh host '…'"`).
const NESTING: u32 = 3;

/// Finds secrets and replaces them by [`MARK`].
#[derive(Debug, Clone, Default)]
pub struct Redactor {
    extra: Vec<Vec<u8>>,
}

impl Redactor {
    /// A redactor that also hides every word, or value after `=`, that fits one of
    /// `extra`: plain globs in which `*` is anything and `?` any one byte.
    pub fn new<P: AsRef<[u8]>>(extra: &[P]) -> Self {
        Self {
            extra: extra.iter().map(|p| p.as_ref().to_vec()).collect(),
        }
    }

    /// A line or other text without its secrets; borrowed if there were none.
    pub fn line<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        replace(text, self.secrets_of_line(text, NESTING))
    }

    /// An argument vector without its secrets; borrowed if there were none.
    pub fn argv<'a>(&self, argv: &'a [OsString]) -> Cow<'a, [OsString]> {
        let words: Vec<&[u8]> = argv.iter().map(|word| word.as_bytes()).collect();
        let mut found = self.secrets_of_words(&words, NESTING);
        if found.is_empty() {
            return Cow::Borrowed(argv);
        }
        found.sort_by_key(|secret| secret.word);
        let mut clean = argv.to_vec();
        for of_word in found.chunk_by(|a, b| a.word == b.word) {
            let at = of_word[0].word;
            let ranges = of_word.iter().map(|secret| secret.range.clone()).collect();
            clean[at] = OsString::from_vec(replace(words[at], ranges).into_owned());
        }
        Cow::Owned(clean)
    }

    /// What a command printed, without its secrets. Quotes mean nothing there, so every line is
    /// also looked at by itself.
    pub fn output<'a>(&self, text: &'a [u8]) -> Cow<'a, [u8]> {
        let mut ranges = self.secrets_of_line(text, NESTING);
        let mut start = 0;
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let found = self.secrets_of_line(line, NESTING).into_iter();
            ranges.extend(found.map(|range| range.start + start..range.end + start));
            start += line.len();
        }
        replace(text, ranges)
    }

    fn secrets_of_line(&self, text: &[u8], nesting: u32) -> Vec<Range<usize>> {
        let mut ranges = private_keys(text);
        for command in split(text) {
            let words: Vec<&[u8]> = command.iter().map(Word::bytes).collect();
            for secret in self.secrets_of_words(&words, nesting) {
                ranges.push(command[secret.word].source(secret.range));
            }
        }
        ranges
    }

    fn secrets_of_words(&self, words: &[&[u8]], nesting: u32) -> Vec<Secret> {
        let mut pass = Pass {
            words,
            found: Vec::new(),
            setting: false,
        };
        // An operand may have the name of a tool, so every one seen counts.
        let mut tools = Vec::new();
        for (at, &word) in words.iter().enumerate() {
            pass.tokens(at);
            pass.urls(at);
            pass.assignments(at);
            pass.headers(at);
            pass.quoted_pairs(at);
            pass.flags(at);
            for &(tool, tool_at) in &tools {
                pass.options(at, tool, tool_at);
            }
            if tools.len() < 4
                && let Some(tool) = known_tool(word)
            {
                tools.push((tool, at));
            }
            self.extra_patterns(&mut pass, at);
            for range in private_keys(word) {
                pass.add(at, range);
            }
            if nesting > 0 && word.iter().any(u8::is_ascii_whitespace) {
                for range in self.secrets_of_line(word, nesting - 1) {
                    pass.add(at, range);
                }
            }
        }
        pass.found
    }

    fn extra_patterns(&self, pass: &mut Pass<'_>, at: usize) {
        let word = pass.words[at];
        for pattern in &self.extra {
            if glob::matches(pattern, word) {
                pass.add(at, 0..word.len());
            } else if let Some(equals) = position(word, b'=')
                && glob::matches(pattern, &word[equals + 1..])
            {
                pass.add(at, equals + 1..word.len());
            }
        }
    }
}

/// A range of one word that must not be stored.
struct Secret {
    word: usize,
    range: Range<usize>,
}

/// One look at the words of a command; each method finds one kind of secret.
struct Pass<'a> {
    words: &'a [&'a [u8]],
    found: Vec<Secret>,
    /// A word in front says that settings are changed.
    setting: bool,
}

impl Pass<'_> {
    fn add(&mut self, word: usize, range: Range<usize>) {
        if !range.is_empty() {
            self.found.push(Secret { word, range });
        }
    }

    /// Adds a value unless it only names where the secret is, such as `$TOKEN`.
    fn add_value(&mut self, word: usize, range: Range<usize>) {
        if !is_reference(&self.words[word][range.clone()]) {
            self.add(word, range);
        }
    }

    /// Adds the word after `at`, up to bytes that only close it, as the value of a name.
    fn add_next(&mut self, at: usize, sensitivity: Sensitivity, closing: &[u8]) {
        let Some(value) = self.words.get(at + 1) else {
            return;
        };
        // An option follows: this one had no value.
        if value.starts_with(b"-") {
            return;
        }
        let closed = value.iter().rev().take_while(|byte| closing.contains(byte));
        let end = value.len() - closed.count();
        if sensitivity.covers(&value[..end]) {
            self.add_value(at + 1, 0..end);
        }
    }

    fn tokens(&mut self, at: usize) {
        let word = self.words[at];
        if word.len() < SHORTEST_TOKEN {
            return;
        }
        let mut from = 0;
        while from < word.len() {
            let starts = from == 0 || !is_name_byte(word[from - 1]);
            match starts.then(|| token_at(&word[from..])).flatten() {
                Some((prefix, length)) => {
                    self.add(at, from + prefix..from + length);
                    from += length;
                }
                None => from += 1,
            }
        }
    }

    /// `scheme://user:secret@host`, and `https://secret@host` when it looks random.
    fn urls(&mut self, at: usize) {
        let word = self.words[at];
        let mut from = 0;
        while let Some(found) = find(&word[from..], b"://") {
            let start = from + found + 3;
            from = start;
            let length = word[start..]
                .iter()
                .position(|b| {
                    matches!(b, b'/' | b'?' | b'#' | b'"' | b'\'' | b'<' | b'>')
                        || b.is_ascii_whitespace()
                })
                .unwrap_or(word.len() - start);
            let authority = &word[start..start + length];
            let Some(end) = authority.iter().rposition(|&byte| byte == b'@') else {
                continue;
            };
            match position(&authority[..end], b':') {
                Some(colon) => self.add_value(at, start + colon + 1..start + end),
                None if looks_random(&authority[..end]) => self.add_value(at, start..start + end),
                None => {}
            }
        }
    }

    /// `NAME=value`, `--name=value`, `?name=value&…`, `-e NAME=value`.
    fn assignments(&mut self, at: usize) {
        let word = self.words[at];
        let mut from = 0;
        while let Some(found) = position(&word[from..], b'=') {
            let equals = from + found;
            from = equals + 1;
            let start = name_start(word, equals);
            let sure = sensitivity(&word[start..equals]);
            let first = start == 0;
            let dashed = word[start..].starts_with(b"-");
            let lower = word[start..equals].iter().any(u8::is_ascii_lowercase);
            let end = if first && (dashed || !lower) {
                word.len()
            } else {
                from + value_length(&word[from..], first)
            };
            if sure.covers(&word[from..end]) {
                self.add_value(at, from..end);
                from = end;
            }
        }
    }

    /// `Authorization: Bearer …`, in one word or spread over several.
    fn headers(&mut self, at: usize) {
        let word = self.words[at];
        let mut from = 0;
        while let Some(found) = position(&word[from..], b':') {
            let colon = from + found;
            from = colon + 1;
            let name = &word[name_start(word, colon)..colon];
            let listed = contains_ignore_case(HEADERS, name);
            if colon + 1 == word.len() {
                // YAML's `password: x` has the same form, and JSON's without its quotes.
                if listed || sensitivity(name).is_named() {
                    let scheme = self
                        .words
                        .get(at + 1)
                        .is_some_and(|next| contains_ignore_case(SCHEMES, next));
                    self.add_next(at + usize::from(scheme), Sensitivity::Sure, b",}");
                }
                return;
            }
            let spaced = word[from] == b' ';
            if !(listed || spaced && sensitivity(name).is_named()) {
                continue;
            }
            let line = word[from..]
                .iter()
                .position(|&byte| matches!(byte, b'\n' | b'\r'))
                .unwrap_or(word.len() - from);
            let value = &word[from..from + line];
            let mut skip = leading_spaces(value);
            if let Some(space) = position(&value[skip..], b' ')
                && contains_ignore_case(SCHEMES, &value[skip..skip + space])
            {
                skip += space;
                skip += leading_spaces(&value[skip..]);
            }
            self.add_value(at, from + skip..from + line);
            from += line;
        }
    }

    /// `"password": "…"` in JSON and its relatives.
    fn quoted_pairs(&mut self, at: usize) {
        let word = self.words[at];
        let mut from = 0;
        while let Some(found) = position(&word[from..], b':') {
            let colon = from + found;
            from = colon + 1;
            let Some(quote @ (b'"' | b'\'')) = colon.checked_sub(1).map(|i| word[i]) else {
                continue;
            };
            let name = &word[name_start(word, colon - 1)..colon - 1];
            let open = from + leading_spaces(&word[from..]);
            if word.get(open) != Some(&quote) || !sensitivity(name).is_named() {
                continue;
            }
            let mut end = open + 1;
            while end < word.len() && word[end] != quote {
                end += 1 + usize::from(word[end] == b'\\');
            }
            let end = end.min(word.len());
            self.add_value(at, open + 1..end);
            from = end;
        }
    }

    /// `--password value`; also `aws_secret_access_key = value` and `config set x.token value`.
    fn flags(&mut self, at: usize) {
        let word = self.words[at];
        let dashes = word.iter().take_while(|&&byte| byte == b'-').count();
        let name = &word[dashes.min(word.len())..];
        if !name
            .iter()
            .all(|&byte| is_name_byte(byte) || matches!(byte, b'.' | b':' | b'/'))
        {
            return;
        }
        match dashes {
            0 => {
                let equals = self.words.get(at + 1) == Some(&&b"="[..]);
                let setting =
                    self.setting && name.iter().any(|byte| matches!(byte, b'_' | b'.' | b'/'));
                self.setting |= matches!(name, b"set" | b"config");
                if !equals && !setting {
                    return;
                }
                let sensitivity = sensitivity(name);
                if sensitivity.is_named() {
                    self.add_next(at + usize::from(equals), sensitivity, b"");
                }
            }
            // One dash and one or two letters is for the tools' own tables.
            1 if name.len() < 3 => {}
            1 | 2 if !name.starts_with(b"no-") => self.add_next(at, sensitivity(name), b""),
            _ => {}
        }
    }

    /// Options that mean a secret only for the tool in front of them.
    fn options(&mut self, at: usize, tool: &str, tool_at: usize) {
        let word = self.words[at];
        for option in OPTIONS {
            let Some(glued) = word.strip_prefix(option.flag.as_bytes()) else {
                continue;
            };
            if !option.tools.contains(&tool)
                || !option.after.is_empty()
                    && !self.words[tool_at..at.min(tool_at + 8)].contains(&option.after.as_bytes())
            {
                continue;
            }
            let long = option.flag.starts_with("--");
            let (value, start) = match glued {
                [] if option.next => (at + 1, 0),
                [b'=', _, ..] if long => (at, option.flag.len() + 1),
                [_, ..] if option.attached => (at, option.flag.len()),
                _ => continue,
            };
            let Some(text) = self.words.get(value).and_then(|word| word.get(start..)) else {
                continue;
            };
            let skip = match option.part {
                Part::Whole => Some(0),
                Part::After(byte) => position(text, byte).map(|at| at + 1),
            };
            if let Some(skip) = skip {
                self.add_value(value, start + skip..start + text.len());
            }
        }
    }
}

/// How much a name says about its value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sensitivity {
    /// The value is a secret.
    Sure,
    /// The value is a key, or the name of a file that holds one.
    Key,
    /// The value is a secret if it looks random.
    Maybe,
    No,
}

impl Sensitivity {
    /// The name alone says that a secret follows.
    fn is_named(self) -> bool {
        matches!(self, Self::Sure | Self::Key)
    }

    fn covers(self, value: &[u8]) -> bool {
        match self {
            Self::Sure => true,
            Self::Key => !is_path(value),
            Self::Maybe => looks_random(value),
            Self::No => false,
        }
    }
}

fn sensitivity(name: &[u8]) -> Sensitivity {
    let name = &name[name.len().saturating_sub(64)..];
    let compact: Vec<u8> = name
        .iter()
        .filter(|byte| byte.is_ascii_alphanumeric())
        .map(u8::to_ascii_lowercase)
        .collect();
    let ends = |list: &[&str]| list.iter().any(|end| compact.ends_with(end.as_bytes()));
    let separated = |end: &str| {
        let Some(before) = name.len().checked_sub(end.len()) else {
            return false;
        };
        name[before..].eq_ignore_ascii_case(end.as_bytes())
            && (before == 0 || !name[before - 1].is_ascii_alphanumeric())
    };
    // PWD is the working directory, MYSQL_PWD a password.
    let pwd = compact.ends_with(b"pwd") && compact != b"pwd" && compact != b"oldpwd";
    let glued = GLUED_PASS.iter().any(|word| compact == word.as_bytes());
    if compact.ends_with(b"privatekey") || compact.ends_with(b"accesskey") {
        Sensitivity::Key
    } else if ends(SURE) || pwd || glued || separated("pass") {
        Sensitivity::Sure
    } else if name.ends_with(b"_KEY") && !name.iter().any(u8::is_ascii_lowercase) {
        Sensitivity::Key
    } else if MAYBE.iter().any(|end| separated(end)) {
        Sensitivity::Maybe
    } else {
        Sensitivity::No
    }
}

/// A value that only says where the secret comes from: nothing to hide, and the
/// command can still be replayed.
fn is_reference(value: &[u8]) -> bool {
    let value = match value {
        [quote @ (b'"' | b'\''), inner @ .., last] if quote == last => inner,
        other => other,
    };
    let variable = |name: &[u8]| name.iter().all(|&b| b.is_ascii_alphanumeric() || b == b'_');
    match value {
        [] | [b'$'] | b"-" | b"true" | b"false" | b"null" | b"none" | b"yes" | b"no" => true,
        [b'$', b'{', name @ .., b'}'] | [b'$', name @ ..] if variable(name) => true,
        [b'$', b'(', .., b')'] | [b'<', .., b'>'] => true,
        [b'e', b'n', b'v', b':', name @ ..] => variable(name),
        mark => mark == MARK.as_bytes() || mark.iter().all(|&byte| byte == b'*'),
    }
}

fn is_path(value: &[u8]) -> bool {
    let start = [&b"~/"[..], b"./", b"../"];
    let end = [&b".pem"[..], b".key", b".crt", b".pub", b".p12", b".json"];
    start.iter().any(|s| value.starts_with(s)) || end.iter().any(|e| value.ends_with(e))
}

/// Long, of mixed kinds and without repetition, as generated secrets are.
fn looks_random(value: &[u8]) -> bool {
    let legal =
        |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'_' | b'-' | b'.');
    if value.len() < 20 || !value.iter().all(legal) || is_path(value) || value.starts_with(b"/") {
        return false;
    }
    if value.len() >= 32 && value.iter().all(u8::is_ascii_hexdigit) {
        return true;
    }
    let kinds = [
        u8::is_ascii_lowercase,
        u8::is_ascii_uppercase,
        u8::is_ascii_digit,
    ];
    let mixed = kinds.iter().all(|kind| value.iter().any(kind));
    mixed && entropy(value) > 3.5
}

/// Shannon entropy in bits for each byte. The logarithm of short numbers needs no large table, which
/// every shim would carry.
fn entropy(value: &[u8]) -> f32 {
    let mut counts = [0_u32; 256];
    for &byte in value {
        counts[usize::from(byte)] += 1;
    }
    let total = value.len() as f32;
    counts
        .iter()
        .filter(|&&count| count > 0)
        .map(|&count| count as f32 / total)
        .map(|share| -share * share.log2())
        .sum()
}

/// The token at the start of `text`: how much of it says the kind, and its length.
fn token_at(text: &[u8]) -> Option<(usize, usize)> {
    if let Some(length) = json_web_token(text) {
        return Some((3, length));
    }
    let found = TOKENS
        .iter()
        .find(|token| text.starts_with(token.prefix.as_bytes()))?;
    let prefix = found.prefix.len();
    let body = &text[prefix..];
    let length = body
        .iter()
        .take_while(|&&byte| found.body.has(byte))
        .count();
    let body = &body[..length];
    let run = body
        .split(|byte| !byte.is_ascii_alphanumeric())
        .map(<[u8]>::len)
        .max()
        .unwrap_or(0);
    (length >= found.least && run >= found.run).then_some((prefix, prefix + length))
}

/// `eyJ….….…`: two parts of base64 JSON and a signature.
fn json_web_token(text: &[u8]) -> Option<usize> {
    if !text.starts_with(b"eyJ") {
        return None;
    }
    let part = |text: &[u8]| {
        text.iter()
            .take_while(|&&b| tables::Body::Dashed.has(b))
            .count()
    };
    let header = part(text);
    let payload = part(text.get(header + 1..)?);
    let signature_at = header + payload + 2;
    let dots = text[header] == b'.' && text.get(signature_at - 1) == Some(&b'.');
    (dots && header >= 10 && payload >= 10)
        .then(|| signature_at + part(text.get(signature_at..).unwrap_or_default()))
}

/// The insides of PEM private keys; an unfinished one reaches to the end.
fn private_keys(text: &[u8]) -> Vec<Range<usize>> {
    const CLOSE: &[u8] = b"PRIVATE KEY-----";
    let mut ranges = Vec::new();
    let mut from = 0;
    while let Some(begin) = find(&text[from..], b"-----BEGIN ") {
        let begin = from + begin + 11;
        let label = &text[begin..text.len().min(begin + 48)];
        let Some(close) = find(label, CLOSE) else {
            from = begin;
            continue;
        };
        let start = begin + close + CLOSE.len();
        let end = find(&text[start..], b"-----END ").map_or(text.len(), |at| start + at);
        if start < end {
            ranges.push(start..end);
        }
        from = end;
    }
    ranges
}

fn known_tool(word: &[u8]) -> Option<&'static str> {
    if word.starts_with(b"-") {
        return None;
    }
    let name = word.rsplit(|&byte| byte == b'/').next()?;
    let mut tools = TOOLS.iter().flat_map(|tools| tools.iter());
    tools.find(|tool| tool.as_bytes() == name).copied()
}

/// Where the value of `name=value` ends inside a larger word.
fn value_length(value: &[u8], form: bool) -> usize {
    value
        .iter()
        .position(|byte| match byte {
            b'&' | b';' => true,
            // Connection strings separate by spaces, unless the word is one assignment.
            b'"' | b'\'' | b',' | b')' | b'}' => !form,
            other => !form && other.is_ascii_whitespace(),
        })
        .unwrap_or(value.len())
}

fn name_start(word: &[u8], end: usize) -> usize {
    let length = word[..end]
        .iter()
        .rev()
        .take(128)
        .take_while(|&&byte| is_name_byte(byte) || byte == b'.')
        .count();
    end - length
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn leading_spaces(text: &[u8]) -> usize {
    text.iter().take_while(|&&byte| byte == b' ').count()
}

fn position(text: &[u8], byte: u8) -> Option<usize> {
    text.iter().position(|&other| other == byte)
}

fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        from += position(&text[from..], needle[0])?;
        if text[from..].starts_with(needle) {
            return Some(from);
        }
        from += 1;
    }
}

fn contains_ignore_case(list: &[&str], name: &[u8]) -> bool {
    list.iter()
        .any(|entry| name.eq_ignore_ascii_case(entry.as_bytes()))
}

fn replace(text: &[u8], mut ranges: Vec<Range<usize>>) -> Cow<'_, [u8]> {
    if ranges.is_empty() {
        return Cow::Borrowed(text);
    }
    ranges.sort_by_key(|range| range.start);
    let mut clean = Vec::with_capacity(text.len());
    let mut done = 0;
    for range in ranges {
        if range.end <= done {
            continue;
        }
        // A range that overlaps the one before only lengthens it.
        if range.start >= done {
            clean.extend_from_slice(&text[done..range.start]);
            clean.extend_from_slice(MARK.as_bytes());
        }
        done = range.end;
    }
    clean.extend_from_slice(&text[done..]);
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests;
