//! Small languages inside arguments that can start programs or touch files: sed, awk, editors.

use crate::effect::{Action, Effect, Object, Source};
use crate::findings::{Findings, Nested};
use crate::word::Word;

/// A `sed` script: `e` runs, `w` and `W` write, `r` and `R` read.
pub(crate) fn sed(word: &Word, findings: &mut Findings) {
    let text = word.text();
    let mut at = 0;
    while at < text.len() {
        at = skip_address(&text, at);
        let Some(&command) = text.get(at) else { return };
        at += 1;
        match command {
            b'e' | b'w' | b'W' | b'r' | b'R' => {
                let end = line_end(&text, at);
                sed_file(command, text[at..end].trim_ascii(), findings);
                at = end;
            }
            b's' | b'y' => {
                let Some(&delimiter) = text.get(at) else {
                    return;
                };
                at = skip_delimited(&text, at + 1, delimiter);
                at = skip_delimited(&text, at, delimiter);
                if command == b'y' {
                    continue;
                }
                while let Some(&flag) = text.get(at) {
                    at += 1;
                    match flag {
                        b'e' => findings.code(Source::Inline, word.clone()),
                        b'w' => {
                            let end = line_end(&text, at);
                            sed_file(b'w', text[at..end].trim_ascii(), findings);
                            at = end;
                        }
                        b'g' | b'p' | b'i' | b'I' | b'm' | b'M' | b'0'..=b'9' => {}
                        _ => {
                            at -= 1;
                            break;
                        }
                    }
                }
            }
            b'a' | b'i' | b'c' | b':' | b'b' | b't' | b'T' | b'#' => at = line_end(&text, at),
            _ => {}
        }
    }
}

fn sed_file(command: u8, argument: &[u8], findings: &mut Findings) {
    match command {
        b'e' if argument.is_empty() => findings.code(Source::Stdin, Word::default()),
        b'e' => findings.nested.push(Nested::text(Word::literal(argument))),
        _ if argument.is_empty()
            || matches!(argument, b"/dev/stdout" | b"/dev/stderr" | b"/dev/stdin") => {}
        b'w' | b'W' => findings
            .effects
            .push(Effect::path(Action::Write, Word::literal(argument))),
        _ => findings
            .effects
            .push(Effect::path(Action::Read, Word::literal(argument))),
    }
}

/// Skips blanks, separators and the address of a sed command.
fn skip_address(text: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'/' => at = skip_delimited(text, at + 1, b'/'),
            b'\\' => {
                let Some(&delimiter) = text.get(at + 1) else {
                    return text.len();
                };
                at = skip_delimited(text, at + 2, delimiter);
            }
            b'0'..=b'9'
            | b'$'
            | b','
            | b'~'
            | b'+'
            | b'!'
            | b';'
            | b'{'
            | b'}'
            | b'I'
            | b' '
            | b'\t'
            | b'\n' => at += 1,
            _ => return at,
        }
    }
    at
}

fn skip_delimited(text: &[u8], from: usize, delimiter: u8) -> usize {
    let mut at = from;
    let mut bracket = false;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'\\' => at += 1,
            b'[' if !bracket => bracket = true,
            b']' if bracket => bracket = false,
            _ if byte == delimiter && !bracket => return at + 1,
            b'\n' => return at,
            _ => {}
        }
        at += 1;
    }
    // An unclosed bracket swallows the delimiter; then brackets are taken as plain text.
    if bracket {
        let mut at = from;
        while let Some(&byte) = text.get(at) {
            match byte {
                b'\\' => at += 1,
                _ if byte == delimiter => return at + 1,
                _ => {}
            }
            at += 1;
        }
    }
    text.len()
}

fn line_end(text: &[u8], from: usize) -> usize {
    text[from.min(text.len())..]
        .iter()
        .position(|&byte| byte == b'\n')
        .map_or(text.len(), |length| from + length)
}

/// An `awk` program: `system(…)`, pipes to and from commands, redirections.
pub(crate) fn awk(word: &Word, findings: &mut Findings) {
    let text = word.text();
    let mut at = 0;
    let mut before: &[u8] = b"";
    while at < text.len() {
        match text[at] {
            b'"' => {
                let end = skip_string(&text, at + 1);
                let literal = unescape(&text[at + 1..end.saturating_sub(1).max(at + 1)]);
                let after = text[end..].trim_ascii_start();
                findings.effects.extend(special_file(&literal));
                if after.starts_with(b"|") && !after.starts_with(b"||") {
                    // `"command" | getline`
                    findings.nested.push(Nested::text(Word::literal(literal)));
                } else if before.ends_with(b">") || before.ends_with(b">>") {
                    findings
                        .effects
                        .push(Effect::path(Action::Write, Word::literal(literal)));
                } else if gets_line(before) {
                    findings
                        .effects
                        .push(Effect::path(Action::Read, Word::literal(literal)));
                } else if (before.ends_with(b"|") && !before.ends_with(b"||"))
                    || before.ends_with(b"|&")
                    || is_system(before)
                {
                    findings.nested.push(Nested::text(Word::literal(literal)));
                }
                at = end;
            }
            b'/' if matches!(
                before.last(),
                None | Some(b'~' | b'(' | b',' | b'!' | b'{' | b';' | b'&' | b'|')
            ) =>
            {
                at = skip_delimited(&text, at + 1, b'/');
            }
            b'#' => at = line_end(&text, at),
            _ => at += 1,
        }
        before = text[..at.min(text.len())].trim_ascii_end();
        // A call whose argument is computed is code that we do not read.
        if is_system(before)
            && !text[at.min(text.len())..]
                .trim_ascii_start()
                .starts_with(b"\"")
        {
            findings.code(Source::Dynamic, word.clone());
            at += 1;
        }
    }
}

/// `/inet/tcp/LOCAL/HOST/PORT`, by which gawk connects.
fn special_file(text: &[u8]) -> Option<Effect> {
    let mut parts = text.split(|&byte| byte == b'/').skip(1);
    if !matches!(parts.next()?, b"inet" | b"inet4" | b"inet6") {
        return None;
    }
    let host = Word::literal(parts.nth(2)?);
    let port = parts
        .next()
        .and_then(|port| std::str::from_utf8(port).ok()?.parse().ok());
    Some(Effect::new(Action::Connect, Object::Host { host, port }))
}

/// `getline <`, `getline line <`, `getline a[n] <`: a file is read.
fn gets_line(before: &[u8]) -> bool {
    let Some(head) = before.strip_suffix(b"<") else {
        return false;
    };
    let variable = |byte: &u8| byte.is_ascii_alphanumeric() || b"_$[] ".contains(byte);
    let start = head.iter().rposition(|byte| !variable(byte));
    head[start.map_or(0, |at| at + 1)..]
        .trim_ascii_start()
        .starts_with(b"getline")
}

fn is_system(before: &[u8]) -> bool {
    before
        .strip_suffix(b"(")
        .is_some_and(|head| head.trim_ascii_end().ends_with(b"system"))
}

fn skip_string(text: &[u8], from: usize) -> usize {
    let mut at = from;
    while let Some(&byte) = text.get(at) {
        at += 1;
        match byte {
            b'\\' => at += 1,
            b'"' => return at,
            _ => {}
        }
    }
    text.len()
}

fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(&byte) = bytes.next() {
        match byte {
            b'\\' => out.extend(bytes.next()),
            _ => out.push(byte),
        }
    }
    out
}

/// An editor's command, or a value of that kind: `!command` is shell text, `w file` a write.
pub(crate) fn editor(word: &Word, findings: &mut Findings) {
    let text = word.text();
    for command in text.split(|&byte| byte == b'|' || byte == b'\n').take(64) {
        let command = command.trim_ascii_start();
        let command = command.strip_prefix(b":").unwrap_or(command);
        let command = command
            .strip_prefix(b"silent")
            .map_or(command, |rest| rest.strip_prefix(b"!").unwrap_or(rest))
            .trim_ascii_start();
        // A range such as `%` or `1,5` in front filters text through the command.
        let ranged = command
            .iter()
            .take_while(|byte| b"%0123456789,.$'<>".contains(byte))
            .count();
        let command = &command[ranged..];
        if let Some(position) = command.iter().position(|&byte| byte == b'!')
            && matches!(
                command[..position].trim_ascii(),
                b"" | b"r" | b"read" | b"w" | b"write" | b"terminal" | b"term"
            )
        {
            // Everything behind the mark belongs to the shell, bars included.
            let start = command.as_ptr() as usize - text.as_ptr() as usize + position + 1;
            findings
                .nested
                .push(Nested::text(word_from(word, &text, start)));
            return;
        }
        let (verb, rest) = command.split_at(
            command
                .iter()
                .position(|&byte| byte == b' ')
                .unwrap_or(command.len()),
        );
        let file = rest.trim_ascii();
        match verb {
            b"w" | b"write" | b"saveas" | b"sav" | b"w!" | b"write!" if !file.is_empty() => {
                findings
                    .effects
                    .push(Effect::path(Action::Write, Word::literal(file)));
            }
            b"r" | b"read" | b"e" | b"edit" if !file.is_empty() => {
                findings
                    .effects
                    .push(Effect::path(Action::Read, Word::literal(file)));
            }
            b"so" | b"source" if !file.is_empty() => {
                findings.code(Source::File, Word::literal(file))
            }
            b"py" | b"python" | b"py3" | b"python3" | b"lua" | b"perl" | b"ruby" => {
                findings.code(Source::Inline, Word::literal(file));
            }
            _ if command.windows(7).any(|window| window == b"system(") => {
                findings.code(Source::Inline, word.clone())
            }
            _ => {}
        }
    }
}

/// The rest of a word from a byte of its text on; unknown parts stay what they are when the start is known.
fn word_from(word: &Word, text: &[u8], start: usize) -> Word {
    if start <= word.known_prefix().len() {
        return word.tail(start);
    }
    Word::literal(&text[start.min(text.len())..])
}

/// Ways out of a database client into the shell or the file system.
pub(crate) fn client_escapes(word: &Word, findings: &mut Findings) {
    let text = word.text();
    for line in text.split(|&byte| byte == b'\n' || byte == b';').take(256) {
        let line = line.trim_ascii();
        let shell = [b"\\!".as_slice(), b".shell ", b".system ", b"system "];
        if let Some(command) = shell.iter().find_map(|prefix| line.strip_prefix(*prefix)) {
            findings
                .nested
                .push(Nested::text(Word::literal(command.trim_ascii())));
        }
        let upper = line.to_ascii_uppercase();
        let has = |needle: &[u8]| upper.windows(needle.len()).any(|window| window == needle);
        let reads = [
            b".read ".as_slice(),
            b".import ",
            b".open ",
            b".restore ",
            b"\\i ",
            b"\\ir ",
            b"\\include ",
            b"source ",
            b"\\. ",
            b"ATTACH ",
            b"attach ",
        ];
        if let Some(file) = reads.iter().find_map(|prefix| line.strip_prefix(*prefix)) {
            let file = file.trim_ascii();
            let word = file.strip_prefix(b"'").map_or_else(
                || file.split(u8::is_ascii_whitespace).next(),
                |quoted| quoted.split(|&byte| byte == b'\'').next(),
            );
            let word = Word::literal(word.unwrap_or_default());
            findings.effects.push(Effect::path(Action::Read, word));
        }
        for function in [
            b"READFILE(".as_slice(),
            b"LOAD_FILE(",
            b"PG_READ_FILE(",
            b"LO_IMPORT(",
            b"INFILE ",
        ] {
            let found = upper
                .windows(function.len())
                .position(|window| window == function);
            let rest = found.map(|at| line[at + function.len()..].trim_ascii_start());
            let quoted = rest.and_then(|rest| rest.strip_prefix(b"'").or(rest.strip_prefix(b"\"")));
            if let Some(file) =
                quoted.and_then(|text| text.split(|byte| b"'\"".contains(byte)).next())
            {
                findings
                    .effects
                    .push(Effect::path(Action::Read, Word::literal(file)));
            }
        }
        // `\\copy table from file`; with `to` the client writes it.
        if let Some(rest) = upper.strip_prefix(b"\\COPY ") {
            for (word, action) in [
                (b" FROM ".as_slice(), Action::Read),
                (b" TO ", Action::Write),
            ] {
                let Some(at) = rest.windows(word.len()).position(|part| part == word) else {
                    continue;
                };
                let start = line.len() - rest.len() + at + word.len();
                let file = line[start..]
                    .split(u8::is_ascii_whitespace)
                    .find(|part| !part.is_empty());
                let file = file.unwrap_or_default().trim_ascii();
                let file = file
                    .strip_prefix(b"'")
                    .and_then(|file| file.strip_suffix(b"'"))
                    .unwrap_or(file);
                let stream = [
                    b"stdin".as_slice(),
                    b"stdout",
                    b"pstdin",
                    b"pstdout",
                    b"program",
                ];
                if !file.is_empty() && !stream.iter().any(|name| file.eq_ignore_ascii_case(name)) {
                    findings
                        .effects
                        .push(Effect::path(action, Word::literal(file)));
                }
            }
        }
        if has(b"TO PROGRAM") || has(b"FROM PROGRAM") || has(b"XP_CMDSHELL") {
            findings.code(Source::Inline, word.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{awk, client_escapes, editor, sed};
    use crate::effect::Object;
    use crate::findings::{Findings, Nested};
    use crate::word::Word;

    fn found(read: fn(&Word, &mut Findings), text: &str) -> Vec<String> {
        let mut findings = Findings::default();
        read(&Word::from(text), &mut findings);
        let show = |word: &Word| String::from_utf8_lossy(&word.text()).into_owned();
        let effects = findings.effects.iter().map(|effect| match &effect.object {
            Object::Path(path) => format!("{} {}", effect.action.name(), show(path)),
            Object::Code(source, _) => format!("code {}", source.name()),
            other => format!("{other:?}"),
        });
        let nested = findings.nested.iter().map(|nested| match nested {
            Nested::Text { text, .. } => format!("sh {}", show(text)),
            Nested::Words { argv, .. } => format!("argv {}", argv.len()),
        });
        effects.chain(nested).collect()
    }

    #[test]
    fn sed_commands_that_reach_out() {
        assert_eq!(found(sed, "s/a/b/g"), Vec::<String>::new());
        assert_eq!(found(sed, "1e rm -rf /"), ["sh rm -rf /"]);
        assert_eq!(found(sed, "s/x/y/e"), ["code inline"]);
        assert_eq!(found(sed, "/a[/]b/w out.txt"), ["write out.txt"]);
        assert_eq!(found(sed, "s/e/w/;s|e|e|p"), Vec::<String>::new());
        assert_eq!(found(sed, "$!N;/^e/d;r /etc/passwd"), ["read /etc/passwd"]);
        assert_eq!(found(sed, "s/foo[/bar/w"), Vec::<String>::new());
    }

    #[test]
    fn awk_programs_that_reach_out() {
        assert_eq!(found(awk, "{print $1}"), Vec::<String>::new());
        assert_eq!(found(awk, "BEGIN{system(\"rm -rf /\")}"), ["sh rm -rf /"]);
        assert_eq!(found(awk, "{print | \"sh\"}"), ["sh sh"]);
        assert_eq!(found(awk, "{print > \"/tmp/x\"}"), ["write /tmp/x"]);
        assert_eq!(found(awk, "BEGIN{\"id\" | getline x}"), ["sh id"]);
        for program in [
            "BEGIN{getline < \"/x\"}",
            "BEGIN{while((getline l < \"/x\") > 0) print l}",
            "BEGIN{getline a[n]<\"/x\"}",
        ] {
            assert_eq!(found(awk, program), ["read /x"], "{program}");
        }
        assert_eq!(found(awk, "$1 < \"x\""), Vec::<String>::new());
        assert_eq!(found(awk, "{system($0)}"), ["code dynamic"]);
        let dials = found(awk, "BEGIN{s=\"/inet/tcp/0/10.0.0.1/4444\"}");
        assert!(dials[0].contains("4444"), "{dials:?}");
        assert_eq!(found(awk, "$1 > 5 {print \"a|b\"}"), Vec::<String>::new());
    }

    #[test]
    fn editor_commands_that_reach_out() {
        assert_eq!(found(editor, ":!rm -rf / | cat"), ["sh rm -rf / | cat"]);
        assert_eq!(found(editor, "%!sort"), ["sh sort"]);
        assert_eq!(found(editor, "w /etc/passwd"), ["write /etc/passwd"]);
        assert_eq!(found(editor, "status -s"), Vec::<String>::new());
        assert_eq!(found(editor, "!git log"), ["sh git log"]);
    }

    #[test]
    fn database_clients_have_ways_out() {
        assert_eq!(found(client_escapes, "\\! rm x"), ["sh rm x"]);
        assert_eq!(
            found(client_escapes, "COPY t TO PROGRAM 'sh'"),
            ["code inline"]
        );
        for text in [
            ".read /x",
            "\\i /x",
            "select readfile('/x')",
            "SELECT LOAD_FILE(\"/x\")",
            "attach '/x' as y",
            "LOAD DATA INFILE '/x' INTO TABLE t",
            "\\copy t from '/x' csv",
        ] {
            assert_eq!(found(client_escapes, text), ["read /x"], "{text}");
        }
        assert_eq!(
            found(client_escapes, "select source from t"),
            Vec::<String>::new()
        );
    }
}
