//! Builtins of the shell that carry code, set variables or change the directory.

use crate::analyse::{Analyser, Origin, Surroundings};
use crate::effect::{Action, Effect, Object, Source};
use crate::effects::{Runs, joined, split_assignment};
use crate::findings::{Findings, Nested};
use crate::flow::{self, Flow};
use crate::invoke::assignment_effects;
use crate::line::{Assignment, Cwd};
use crate::scope::{Scope, Value};
use crate::word::{Piece, Word};

impl Analyser<'_> {
    /// Follows a builtin; `false` when the name is none that matters here.
    pub fn builtin(
        &mut self,
        name: &[u8],
        argv: &[Word],
        scope: &mut Scope,
        place: &Surroundings,
        findings: &mut Findings,
    ) -> bool {
        let words = &argv[1..];
        let operands = || {
            words
                .iter()
                .skip_while(|word| is_option(word))
                .cloned()
                .collect::<Vec<Word>>()
        };
        findings.output = Some(Flow::bytes(Vec::new()));
        match name {
            b"echo" => findings.output = Some(Flow::text(flow::echo(argv))),
            b"printf" => self.printf(argv, scope, findings),
            b"cd" => self.change_directory(words, scope),
            b"pushd" => {
                scope.directories.push(scope.cwd.clone());
                match words.iter().find(|word| !is_option(word)) {
                    Some(word) if !word.known_prefix().starts_with(b"+") => {
                        scope.change_directory(word)
                    }
                    _ => scope.cwd = Cwd::Unknown,
                }
            }
            b"popd" => scope.cwd = scope.directories.pop().unwrap_or(Cwd::Unknown),
            b"eval" => {
                let rest = if words.first().and_then(Word::value) == Some(b"--") {
                    &words[1..]
                } else {
                    words
                };
                findings.output = None;
                if !rest.is_empty() {
                    let text = if rest.len() == 1 {
                        rest[0].clone()
                    } else {
                        joined(rest)
                    };
                    findings.nested.push(Nested::Text {
                        text,
                        positional: None,
                        zero: None,
                        here: true,
                        later: false,
                        via: None,
                    });
                }
            }
            b"exec" => {
                findings.output = None;
                let mut rest = words;
                while let Some(option) = rest.first().and_then(Word::value) {
                    match option {
                        b"-a" => rest = rest.get(2..).unwrap_or_default(),
                        b"--" => {
                            rest = &rest[1..];
                            break;
                        }
                        [b'-', flags @ ..]
                            if !flags.is_empty()
                                && flags.iter().all(|flag| b"cl".contains(flag)) =>
                        {
                            rest = &rest[1..]
                        }
                        _ => break,
                    }
                }
                self.wrap(rest, findings);
            }
            b"command" | b"builtin" => {
                findings.output = None;
                let options: Vec<&[u8]> = words
                    .iter()
                    .take_while(|word| is_option(word))
                    .filter_map(Word::value)
                    .collect();
                let asks = options
                    .iter()
                    .any(|option| option.iter().any(|flag| b"vV".contains(flag)));
                if !asks {
                    self.wrap(&operands(), findings);
                }
            }
            b"source" | b"." => {
                findings.output = None;
                if let Some(file) = operands().first() {
                    let input = file
                        .value()
                        .is_some_and(|path| matches!(path, b"/dev/stdin" | b"/dev/fd/0"));
                    if input && place.input.fed {
                        let positional = Some(operands()[1..].to_vec());
                        self.run_flow(&place.input, Runs::SHELL, positional, findings);
                    } else {
                        self.source_file(file, &operands()[1..], findings);
                    }
                }
            }
            b"trap" => {
                let rest = operands();
                let asks = words
                    .iter()
                    .take_while(|word| is_option(word))
                    .any(|word| word.value() != Some(b"--"));
                if !asks && rest.len() > 1 && rest[0].value() == Some(b"") {
                    // Signals that are ignored cannot stop what comes next.
                    let process = Object::Resource("process".to_owned());
                    findings.effects.push(Effect::new(Action::Write, process));
                }
                if let [text, _, ..] = rest.as_slice()
                    && !asks
                    && text
                        .value()
                        .is_none_or(|text| !text.is_empty() && text != b"-")
                {
                    findings.nested.push(later(text.clone()));
                }
            }
            b"alias" => {
                for word in words {
                    let prefix = word.known_prefix();
                    if let Some(equals) = prefix.iter().position(|&byte| byte == b'=') {
                        let body = word.tail(equals + 1);
                        scope
                            .aliases
                            .insert(prefix[..equals].to_vec(), vec![body.clone()]);
                        findings.nested.push(later(body));
                    }
                }
            }
            b"export" | b"declare" | b"typeset" | b"readonly" | b"local" => {
                self.declare(name, words, scope, findings)
            }
            b"set" => {
                // `set +o history`: what follows leaves no record.
                let off = |pair: &[Word]| {
                    matches!(
                        (pair[0].value(), pair[1].value()),
                        (Some(b"+o"), Some(b"history"))
                    )
                };
                if words.windows(2).any(off) {
                    findings.effects.push(no_record());
                }
                self.set(words, scope)
            }
            b"shift" => {
                let count = words.first().map_or(Some(1), |word| {
                    std::str::from_utf8(word.value()?)
                        .ok()?
                        .parse::<usize>()
                        .ok()
                });
                scope.positional = match (scope.positional.take(), count) {
                    (Some(list), Some(count)) if count <= list.len() => {
                        Some(list[count..].to_vec())
                    }
                    _ => None,
                };
            }
            b"unset" => {
                for word in operands() {
                    if let Some(name) = word.value() {
                        if name.starts_with(b"HIST") {
                            findings.effects.push(no_record());
                        }
                        scope.set(name, Value::Unset);
                        scope.functions.forget(name);
                    }
                }
            }
            b"unalias" => {
                for word in words {
                    match word.value() {
                        Some(b"-a") => scope.aliases.clear(),
                        Some(name) => {
                            scope.aliases.remove(name);
                        }
                        None => {}
                    }
                }
            }
            b"hash" => {
                // `hash -p /path name` makes the name mean that file from now on.
                if let Some(at) = words.iter().position(|word| word.value() == Some(b"-p"))
                    && let Some(path) = words.get(at + 1)
                {
                    findings.nested.push(Nested::Words {
                        argv: vec![path.clone()],
                        assignments: Vec::new(),
                        here: true,
                    });
                    for name in words
                        .get(at + 2..)
                        .unwrap_or_default()
                        .iter()
                        .filter_map(Word::value)
                    {
                        scope.aliases.insert(name.to_vec(), vec![path.clone()]);
                    }
                }
            }
            b"enable" => {
                if let Some(file) = value_after(words, b"-f") {
                    // The file becomes part of the shell itself.
                    findings
                        .effects
                        .push(Effect::path(Action::Read, file.clone()));
                    findings.code(Source::Environment, file);
                }
            }
            b"complete" | b"compgen" => {
                if let Some(text) = value_after(words, b"-C") {
                    findings.nested.push(later(text));
                }
                if let Some(list) = value_after(words, b"-W") {
                    findings.nested.extend(expanded_later(&list));
                }
            }
            b"bind" => {
                if let Some(file) = value_after(words, b"-f") {
                    findings.effects.push(Effect::path(Action::Read, file));
                }
                if let Some(binding) = value_after(words, b"-x") {
                    let colon = binding
                        .known_prefix()
                        .iter()
                        .position(|&byte| byte == b':')
                        .map_or(0, |at| at + 1);
                    let text = binding.tail(colon);
                    let bare = text
                        .value()
                        .map(|text| text.trim_ascii().trim_ascii_start().to_vec());
                    let text = bare.map_or(text, |bare| {
                        Word::literal(
                            bare.strip_prefix(b"\"")
                                .and_then(|bare| bare.strip_suffix(b"\""))
                                .unwrap_or(&bare),
                        )
                    });
                    findings.nested.push(later(text));
                }
            }
            b"mapfile" | b"readarray" => {
                if let Some(mut text) = value_after(words, b"-C") {
                    // The callback gets every line as an argument.
                    text.push_known(b" ");
                    text.pieces.push(Piece::Unknown(b"<input>".to_vec()));
                    findings.nested.push(later(text));
                }
                let name = words
                    .last()
                    .filter(|word| !is_option(word))
                    .and_then(Word::value)
                    .unwrap_or(b"MAPFILE");
                let value = self.carried(name, place);
                scope.set(name, value);
            }
            b"read" => self.read(words, scope, place),
            b"getopts" => {
                for word in words.iter().skip(1).filter_map(Word::value) {
                    scope.set(word, Value::Unknown);
                }
            }
            b"let" => {
                for word in words {
                    let text = word.text();
                    let end = text
                        .iter()
                        .position(|&byte| !(byte.is_ascii_alphanumeric() || byte == b'_'))
                        .unwrap_or(text.len());
                    scope.set(&text[..end], Value::Unknown);
                }
            }
            b"jobs" => {
                if words.first().and_then(Word::value) == Some(b"-x") {
                    self.wrap(&words[1..], findings);
                }
            }
            b"fc" => {
                if !words.iter().any(|word| {
                    word.value()
                        .is_some_and(|text| text.starts_with(b"-") && text.contains(&b'l'))
                }) {
                    findings.code(Source::Dynamic, Word::literal(b"fc".as_slice()));
                }
            }
            b"pwd" => {
                findings.output = Some(match self.working_directory(scope) {
                    Some(path) => Flow::bytes(path),
                    None => Flow::unknown(),
                });
            }
            b":" | b"true" | b"false" | b"test" | b"[" | b"exit" | b"return" | b"break"
            | b"continue" => {}
            _ => return false,
        }
        true
    }

    fn wrap(&mut self, argv: &[Word], findings: &mut Findings) {
        if !argv.is_empty() {
            findings.nested.push(Nested::Words {
                argv: argv.to_vec(),
                assignments: Vec::new(),
                here: true,
            });
        }
    }

    fn printf(&mut self, argv: &[Word], scope: &mut Scope, findings: &mut Findings) {
        if argv.get(1).and_then(Word::value) == Some(b"-v") {
            let printed = argv.get(2..).and_then(flow::printf);
            if let Some(name) = argv.get(2).and_then(Word::value) {
                scope.set(name, printed.map_or(Value::Unknown, Value::Text));
            }
            return;
        }
        findings.output = Some(flow::printf(argv).map_or_else(Flow::unknown, Flow::text));
    }

    fn change_directory(&mut self, words: &[Word], scope: &mut Scope) {
        let operand = words
            .iter()
            .find(|word| !matches!(word.value(), Some(b"-P" | b"-L" | b"-e" | b"-@" | b"--")));
        // With a search path for directories a relative name may lead anywhere.
        let searched = scope.variables.contains_key(b"CDPATH".as_slice());
        match operand {
            None => {
                scope.cwd = match self.home(scope) {
                    Some(home) => Cwd::Moved(vec![Word::literal(home)]),
                    None => Cwd::Unknown,
                }
            }
            Some(word) if word.value() == Some(b"-") || word.splits || searched => {
                scope.cwd = Cwd::Unknown
            }
            Some(word) => scope.change_directory(word),
        }
    }

    fn home(&self, scope: &Scope) -> Option<Vec<u8>> {
        match scope.variables.get(b"HOME".as_slice()) {
            Some(variable) => match &variable.value {
                Value::Text(pieces) => match pieces.as_slice() {
                    [Piece::Known(home)] => Some(home.clone()),
                    _ => None,
                },
                _ => None,
            },
            None => self.context.home.map(<[u8]>::to_vec),
        }
    }

    fn working_directory(&self, scope: &Scope) -> Option<Vec<u8>> {
        match &scope.cwd {
            Cwd::Start => self.context.pwd.map(<[u8]>::to_vec),
            Cwd::Moved(words) => match words.as_slice() {
                [word] => word
                    .value()
                    .filter(|path| path.starts_with(b"/"))
                    .map(<[u8]>::to_vec),
                _ => None,
            },
            Cwd::Unknown => None,
        }
    }

    fn source_file(&mut self, file: &Word, arguments: &[Word], findings: &mut Findings) {
        if let [Piece::Unknown(source)] = file.pieces.as_slice()
            && let Some(origin) = self.origins.get(source).cloned()
            && (origin.text.is_some() || origin.from.is_some())
        {
            match (origin.text, origin.from) {
                (Some(pieces), _) => {
                    let text = Word {
                        pieces,
                        splits: false,
                        quoted: true,
                    };
                    let positional = (!arguments.is_empty()).then(|| arguments.to_vec());
                    findings.nested.push(Nested::Text {
                        text,
                        positional,
                        zero: None,
                        here: true,
                        later: false,
                        via: None,
                    });
                }
                (None, Some((source, word))) => findings.code(source, word),
                (None, None) => {}
            }
            return;
        }
        findings.code(Source::File, file.clone());
    }

    fn declare(&mut self, name: &[u8], words: &[Word], scope: &mut Scope, findings: &mut Findings) {
        let flags: Vec<u8> = words
            .iter()
            .take_while(|word| is_option(word))
            .flat_map(|word| word.text().to_vec())
            .collect();
        let exported = name == b"export" && !flags.contains(&b'n')
            || flags.contains(&b'x') && name != b"readonly";
        // Attributes such as integer or reference change what the value means.
        let plain = !flags.iter().any(|flag| b"inulaA".contains(flag));
        // In a function `declare` makes local variables too, unless it is told not to.
        let local = matches!(name, b"local" | b"declare" | b"typeset") && !flags.contains(&b'g');
        for word in words.iter().skip_while(|word| is_option(word)) {
            if local {
                let text = word.known_prefix();
                let end = text
                    .iter()
                    .position(|&byte| !(byte.is_ascii_alphanumeric() || byte == b'_'));
                scope.make_local(&text[..end.unwrap_or(text.len())]);
            }
            match split_assignment(word) {
                #[cfg(feature = "parse")]
                Some((name, value)) if flags.contains(&b'n') && value.value().is_some() => {
                    let target = value.value().unwrap_or_default().to_vec();
                    scope.references.push((name, target));
                }
                Some((name, value)) => {
                    let array = matches!(value.pieces.as_slice(), [Piece::Unknown(text)] if text == b"(...)");
                    let stored = if plain && !array {
                        Value::Text(value.pieces.clone())
                    } else {
                        Value::Unknown
                    };
                    scope.set(&name, stored);
                    if exported {
                        scope.export(&name);
                    }
                    let set = Assignment {
                        name,
                        value,
                        exported,
                    };
                    assignment_effects(&set, false, findings);
                    findings.assignments.push(set);
                }
                None => match word.value() {
                    Some(name) if exported => scope.export(name),
                    Some(name)
                        if !flags.contains(&b'p')
                            && !flags.contains(&b'f')
                            && !scope.variables.contains_key(name) =>
                    {
                        scope.set(name, Value::Unknown);
                    }
                    Some(_) => {}
                    None => findings.unclear("which variables it sets is only known at run time"),
                },
            }
        }
    }

    fn set(&mut self, words: &[Word], scope: &mut Scope) {
        let mut rest = words;
        while let Some(word) = rest.first() {
            match word.value() {
                Some(b"--") => {
                    scope.positional = Some(rest[1..].to_vec());
                    return;
                }
                Some(b"-o" | b"+o") => rest = rest.get(2..).unwrap_or_default(),
                Some(text) if text.starts_with(b"-") || text.starts_with(b"+") => rest = &rest[1..],
                _ => {
                    scope.positional = Some(rest.to_vec());
                    return;
                }
            }
        }
    }

    fn read(&mut self, words: &[Word], scope: &mut Scope, place: &Surroundings) {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut plain = true;
        let mut skip = false;
        for word in words {
            match word.value() {
                _ if skip => skip = false,
                Some(b"-r") => {}
                Some(option) if option.starts_with(b"-") => {
                    plain = false;
                    skip = option.last().is_some_and(|flag| b"dinNptu".contains(flag));
                    if option.ends_with(b"a") {
                        skip = false;
                    }
                }
                Some(name) => names.push(name.to_vec()),
                None => plain = false,
            }
        }
        let line = place.input.literal().filter(|_| plain).map(|text| {
            let end = text
                .iter()
                .position(|&byte| byte == b'\n')
                .unwrap_or(text.len());
            text[..end].trim_ascii().to_vec()
        });
        match (line, names.as_slice()) {
            (Some(line), [name]) if !line.contains(&b'\\') => {
                let pieces = if line.is_empty() {
                    Vec::new()
                } else {
                    vec![Piece::Known(line)]
                };
                scope.set(name, Value::Text(pieces));
            }
            _ => {
                if names.is_empty() {
                    names.push(b"REPLY".to_vec());
                }
                for name in &names {
                    let value = self.carried(name, place);
                    scope.set(name, value);
                }
            }
        }
    }

    /// The value of a variable that is read: nobody knows it, but where it comes from.
    fn carried(&mut self, name: &[u8], place: &Surroundings) -> Value {
        let input = &place.input;
        if !input.fed {
            return Value::Unknown;
        }
        let shown = [b"$", name].concat();
        let origin = Origin {
            from: input.from.clone(),
            some: input.some,
            producers: input.producers.clone(),
            ..Origin::default()
        };
        self.origins.insert(shown.clone(), origin);
        Value::Text(vec![Piece::Unknown(shown)])
    }
}

fn is_option(word: &Word) -> bool {
    word.value()
        .is_some_and(|text| text.len() > 1 && text.starts_with(b"-"))
}

/// The shell's history is switched off.
fn no_record() -> Effect {
    Effect::new(Action::Delete, Object::Resource("log".to_owned()))
}

fn later(text: Word) -> Nested {
    Nested::Text {
        text,
        positional: None,
        zero: None,
        here: true,
        later: true,
        via: None,
    }
}

/// Text that the shell expands without taking it for a command: only its substitutions run, which is
/// what becomes of the body of a here-document.
fn expanded_later(text: &Word) -> Option<Nested> {
    const END: &[u8] = b"\n__end_of_words__\n";
    let signs = |piece: &Piece| match piece {
        Piece::Known(bytes) => bytes.iter().any(|byte| b"$`".contains(byte)),
        Piece::Glob(_) | Piece::Unknown(_) => true,
    };
    if !text.pieces.iter().any(signs) {
        return None;
    }
    let mut body = Word::literal([b": <<", END[1..].trim_ascii_end(), b"\n"].concat());
    for piece in text.pieces.iter().cloned() {
        flow::push_piece(&mut body.pieces, piece);
    }
    body.push_known(END);
    Some(later(body))
}

/// The value of an option that stands as `-X value` or `-Xvalue`.
fn value_after(words: &[Word], option: &[u8]) -> Option<Word> {
    words.iter().enumerate().find_map(|(index, word)| {
        let prefix = word.known_prefix();
        if word.value() == Some(option) {
            words.get(index + 1).cloned()
        } else if prefix.starts_with(option) && prefix.len() > option.len() {
            Some(word.tail(option.len()))
        } else {
            None
        }
    })
}
