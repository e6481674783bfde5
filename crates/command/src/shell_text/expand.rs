//! Expansion of words: everything that is certain before the line runs, and nothing else.

use super::braces;
use super::lexer::{is_name_byte, is_name_start};
use super::parameter;
use super::syntax::{Form, Parameter, Part, RawWord, Script, Subscript};
use super::walk::Here;
use crate::analyse::{Analyser, Origin};
use crate::effect::Source;
use crate::flow::{Flow, MAX_TEXT, push_piece};
use crate::line::Cwd;
use crate::scope::{Scope, Value};
use crate::word::{Piece, Word};

/// Words under construction: one open, the others done.
#[derive(Default)]
struct Fields {
    done: Vec<Word>,
    current: Word,
    open: bool,
}

impl Fields {
    fn known(&mut self, bytes: &[u8]) {
        self.current.push_known(bytes);
        self.open = true;
    }

    fn piece(&mut self, piece: Piece) {
        push_piece(&mut self.current.pieces, piece);
        self.open = true;
    }

    fn cut(&mut self) {
        if self.open {
            self.done.push(std::mem::take(&mut self.current));
            self.open = false;
        }
    }

    /// Unquoted bytes, whose pattern characters count.
    fn patterns(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let length = match bytes[at] {
                b'*' | b'?' => 1,
                // A bracket is a pattern only when it is closed in the same stretch of text.
                b'[' => bytes[at + 1..]
                    .iter()
                    .skip(1)
                    .position(|&byte| byte == b']')
                    .map_or(0, |close| close + 3),
                _ => 0,
            };
            if length > 0 {
                self.piece(Piece::Glob(bytes[at..at + length].to_vec()));
                at += length;
                continue;
            }
            let plain = bytes[at + 1..]
                .iter()
                .position(|byte| b"*?[".contains(byte))
                .map_or(bytes.len(), |next| at + 1 + next);
            self.known(&bytes[at..plain]);
            at = plain;
        }
    }

    /// The result of an unquoted expansion: split into fields, patterns counted.
    fn split(&mut self, bytes: &[u8], separators: &[u8]) {
        let blank = |byte: u8| separators.contains(&byte) && byte.is_ascii_whitespace();
        let hard = |byte: u8| separators.contains(&byte) && !byte.is_ascii_whitespace();
        let mut at = 0;
        while at < bytes.len() {
            if !separators.contains(&bytes[at]) {
                let end = bytes[at..]
                    .iter()
                    .position(|byte| separators.contains(byte))
                    .map_or(bytes.len(), |length| at + length);
                self.patterns(&bytes[at..end]);
                at = end;
                continue;
            }
            while at < bytes.len() && blank(bytes[at]) {
                at += 1;
            }
            if at < bytes.len() && hard(bytes[at]) {
                self.open = true;
                at += 1;
                while at < bytes.len() && blank(bytes[at]) {
                    at += 1;
                }
            }
            self.cut();
        }
    }
}

impl Analyser<'_> {
    /// The words that a command gets.
    pub fn expand_all(&mut self, words: &[RawWord], scope: &mut Scope, here: &Here) -> Vec<Word> {
        let mut fields = Fields::default();
        for word in words {
            self.expand_word(&word.parts, &mut fields, scope, here);
        }
        fields.done
    }

    fn expand_word(&mut self, parts: &[Part], fields: &mut Fields, scope: &mut Scope, here: &Here) {
        if !braces::may_expand(parts) {
            self.expand_parts(parts, fields, scope, here);
            fields.cut();
            return;
        }
        match braces::expand(parts) {
            Some(words) => {
                for parts in words {
                    self.expand_parts(&parts, fields, scope, here);
                    fields.cut();
                }
            }
            None => {
                self.unclear("a brace expansion is too large");
                self.expand_parts(parts, fields, scope, here);
                fields.current.splits = true;
                fields.piece(Piece::Unknown(b"{...}".to_vec()));
                fields.cut();
            }
        }
    }

    fn expand_parts(
        &mut self,
        parts: &[Part],
        fields: &mut Fields,
        scope: &mut Scope,
        here: &Here,
    ) {
        let mut rest = parts;
        if let Some((Part::Text(text), others)) = parts.split_first()
            && text.first() == Some(&b'~')
            && let Some(length) = self.tilde(text, others.is_empty(), fields, scope)
        {
            fields.patterns(&text[length..]);
            rest = others;
        }
        for part in rest {
            self.part(part, false, fields, scope, here);
        }
    }

    /// A tilde at the start of a text; gives how many bytes it took.
    fn tilde(
        &mut self,
        text: &[u8],
        whole: bool,
        fields: &mut Fields,
        scope: &Scope,
    ) -> Option<usize> {
        // A colon behind the tilde makes bash stop expanding the word half way.
        if text.contains(&b':') {
            fields.piece(Piece::Unknown(text.to_vec()));
            return Some(text.len());
        }
        let end = text.iter().position(|&byte| byte == b'/');
        // `~"user"` is no tilde expansion: the prefix must end in this text.
        if end.is_none() && !whole {
            return None;
        }
        let prefix = &text[..end.unwrap_or(text.len())];
        let value = match prefix {
            b"~" => self.lookup(b"HOME", scope),
            b"~+" => self.lookup(b"PWD", scope),
            _ => Value::Unknown,
        };
        match value {
            Value::Text(pieces) => pieces.into_iter().for_each(|piece| fields.piece(piece)),
            _ => fields.piece(Piece::Unknown(prefix.to_vec())),
        }
        fields.open = true;
        Some(prefix.len())
    }

    fn part(
        &mut self,
        part: &Part,
        quoted: bool,
        fields: &mut Fields,
        scope: &mut Scope,
        here: &Here,
    ) {
        if !self.spend(8) {
            return;
        }
        match part {
            Part::Text(text) if quoted => fields.known(text),
            Part::Text(text) => fields.patterns(text),
            Part::Quoted(bytes) => {
                fields.known(bytes);
                fields.current.quoted = true;
            }
            Part::Double(parts) => {
                // `"$@"` without arguments is no word at all; every other quoted thing is at least an empty one.
                let vanishes = matches!(parts.as_slice(), [Part::Parameter(parameter)] if parameter.name == b"@");
                if !vanishes {
                    fields.open = true;
                    fields.current.quoted = true;
                }
                for part in parts {
                    self.part(part, true, fields, scope, here);
                }
            }
            Part::Parameter(parameter) => {
                let value = self.parameter(parameter, scope, here);
                self.place_value(
                    value,
                    here.text(&parameter.span),
                    quoted,
                    parameter,
                    fields,
                    scope,
                );
            }
            Part::Substitution { body, span } => {
                let source = here.text(span).to_vec();
                let flow = self.substitution(body, span, scope, here);
                match flow.text {
                    Some(mut pieces) => {
                        strip_newlines(&mut pieces);
                        self.pieces(pieces, quoted, fields, scope);
                    }
                    None => {
                        self.origins.insert(
                            source.clone(),
                            Origin {
                                from: flow.from,
                                producers: flow.producers,
                                some: flow.some,
                                ..Origin::default()
                            },
                        );
                        fields.piece(Piece::Unknown(source));
                        fields.current.splits |= !quoted;
                    }
                }
            }
            Part::Process { body, span } => {
                let source = here.text(span).to_vec();
                let mut inner = here.clone();
                let written = source.starts_with(b">");
                if !written {
                    inner.place.input = Flow::default();
                } else if !inner.place.input.fed {
                    inner.place.input = Flow::unknown();
                }
                let first = self.line.invocations.len();
                let flow = self.script(body, span, scope, &inner);
                let last = if written {
                    self.line.invocations.len()
                } else {
                    first
                };
                self.origins.insert(
                    source.clone(),
                    Origin {
                        from: flow.from,
                        text: flow.text,
                        some: flow.some,
                        producers: flow.producers,
                        consumers: first..last,
                    },
                );
                fields.piece(Piece::Unknown(source));
            }
            Part::Arithmetic { parts, span } => {
                for part in parts {
                    self.part(part, true, &mut Fields::default(), scope, here);
                }
                fields.piece(Piece::Unknown(here.text(span).to_vec()));
            }
            Part::ExtendedGlob(span) => fields.piece(Piece::Glob(here.text(span).to_vec())),
            Part::Array(words) => {
                self.expand_all(words, scope, here);
                fields.piece(Piece::Unknown(b"(...)".to_vec()));
            }
        }
    }

    fn substitution(
        &mut self,
        body: &Script,
        span: &std::ops::Range<usize>,
        scope: &mut Scope,
        here: &Here,
    ) -> Flow {
        let mut inner = here.clone();
        inner.place.redirects = Default::default();
        self.script(body, span, scope, &inner)
    }

    /// Follows the commands of a substitution in a shell of their own.
    fn script(
        &mut self,
        body: &Script,
        span: &std::ops::Range<usize>,
        scope: &mut Scope,
        here: &Here,
    ) -> Flow {
        if !self.descend() {
            return Flow::unknown();
        }
        let mut inner = here.clone();
        inner.place.stage = None;
        if let Some(unit) = &body.own {
            inner.place.source.get_or_insert_with(|| span.clone());
            inner.unit = unit.clone();
        }
        let flow = self.list(&body.list, &mut scope.clone(), &inner);
        self.depth -= 1;
        flow
    }

    fn place_value(
        &mut self,
        value: Value,
        source: &[u8],
        quoted: bool,
        parameter: &Parameter,
        fields: &mut Fields,
        scope: &Scope,
    ) {
        match value {
            Value::Text(pieces) => self.pieces(pieces, quoted, fields, scope),
            Value::Array(words) => {
                for (index, word) in words.into_iter().enumerate() {
                    if index > 0 {
                        fields.cut();
                        fields.open = quoted;
                    }
                    fields.current.quoted |= quoted;
                    fields.open |= quoted;
                    self.pieces(word.pieces, quoted, fields, scope);
                }
            }
            Value::Unset => {}
            Value::Unknown => {
                let many =
                    parameter.name == b"@" || matches!(parameter.subscript, Some(Subscript::All));
                let number = matches!(parameter.name.as_slice(), b"?" | b"#" | b"$" | b"!")
                    || parameter.form == Form::Length;
                fields.piece(Piece::Unknown(source.to_vec()));
                fields.current.splits |= (!quoted && !number) || many;
            }
        }
    }

    fn pieces(&mut self, pieces: Vec<Piece>, quoted: bool, fields: &mut Fields, scope: &Scope) {
        let length: usize = pieces
            .iter()
            .map(|piece| matches!(piece, Piece::Known(bytes) if !bytes.is_empty()) as usize)
            .sum();
        let bytes: usize = pieces
            .iter()
            .map(|piece| match piece {
                Piece::Known(bytes) | Piece::Glob(bytes) | Piece::Unknown(bytes) => bytes.len(),
            })
            .sum();
        if !self.spend(bytes + length) {
            return;
        }
        if quoted {
            fields.open = true;
            pieces.into_iter().for_each(|piece| fields.piece(piece));
            return;
        }
        let separators = match self.lookup(b"IFS", scope) {
            Value::Text(pieces) => Word {
                pieces,
                splits: false,
                quoted: false,
            }
            .value()
            .map(<[u8]>::to_vec),
            Value::Unset => Some(b" \t\n".to_vec()),
            _ => None,
        };
        for piece in pieces {
            match piece {
                Piece::Known(bytes) => match &separators {
                    Some(separators) => fields.split(&bytes, separators),
                    None => {
                        fields.current.splits = true;
                        fields.piece(Piece::Unknown(bytes));
                    }
                },
                Piece::Glob(bytes) => fields.piece(Piece::Glob(bytes)),
                Piece::Unknown(bytes) => {
                    fields.piece(Piece::Unknown(bytes));
                    fields.current.splits = true;
                }
            }
        }
    }

    /// One word without splitting: a redirection's target, a here-document, the inside of `[[ ]]`.
    pub fn expand_one(&mut self, parts: &[Part], scope: &mut Scope, here: &Here) -> Word {
        let mut fields = Fields::default();
        let mut rest = parts;
        if let Some((Part::Text(text), others)) = parts.split_first()
            && text.first() == Some(&b'~')
            && let Some(length) = self.tilde(text, others.is_empty(), &mut fields, scope)
        {
            fields.patterns(&text[length..]);
            rest = others;
        }
        for part in rest {
            match part {
                Part::Text(text) => fields.patterns(text),
                Part::Parameter(_) | Part::Substitution { .. } => {
                    self.part(part, true, &mut fields, scope, here)
                }
                other => self.part(other, false, &mut fields, scope, here),
            }
        }
        self.single(fields)
    }

    fn single(&mut self, mut fields: Fields) -> Word {
        fields.cut();
        let mut words = fields.done.into_iter();
        let mut word = words.next().unwrap_or_default();
        for next in words {
            word.push_known(b" ");
            next.pieces
                .into_iter()
                .for_each(|piece| push_piece(&mut word.pieces, piece));
        }
        word.splits = false;
        word
    }

    /// The right side of an assignment: no splitting, no patterns, tildes after `:` too.
    pub fn expand_value(&mut self, parts: &[Part], scope: &mut Scope, here: &Here) -> Word {
        let mut fields = Fields::default();
        for (index, part) in parts.iter().enumerate() {
            match part {
                Part::Text(text) => {
                    let mut start = index == 0;
                    for (number, field) in text.split(|&byte| byte == b':').enumerate() {
                        if number > 0 {
                            fields.known(b":");
                            start = true;
                        }
                        let last = number == text.iter().filter(|&&byte| byte == b':').count();
                        let whole = !last || index + 1 == parts.len();
                        let taken = if start && field.first() == Some(&b'~') {
                            self.tilde(field, whole, &mut fields, scope).unwrap_or(0)
                        } else {
                            0
                        };
                        fields.known(&field[taken..]);
                        start = false;
                    }
                }
                other => self.part(other, true, &mut fields, scope, here),
            }
        }
        let word = self.single(fields);
        let length: usize = word.text().len();
        if length > MAX_TEXT {
            return Word {
                pieces: vec![Piece::Unknown(b"(long)".to_vec())],
                splits: false,
                quoted: false,
            };
        }
        word
    }

    /// A word of `export` and its kin: `name=value` is one word, whatever the value.
    pub fn expand_declaration(
        &mut self,
        word: &RawWord,
        scope: &mut Scope,
        here: &Here,
    ) -> Vec<Word> {
        if let Some((Part::Text(text), rest)) = word.parts.split_first()
            && let Some(equals) = text.iter().position(|&byte| byte == b'=')
            && text.first().is_some_and(|&byte| is_name_start(byte))
            && text[..equals]
                .iter()
                .all(|&byte| is_name_byte(byte) || byte == b'+')
        {
            let mut value = Vec::with_capacity(word.parts.len());
            if equals + 1 < text.len() {
                value.push(Part::Text(text[equals + 1..].to_vec()));
            }
            value.extend(rest.iter().cloned());
            let mut result = Word::literal(&text[..=equals]);
            for piece in self.expand_value(&value, scope, here).pieces {
                push_piece(&mut result.pieces, piece);
            }
            return vec![result];
        }
        self.expand_all(std::slice::from_ref(word), scope, here)
    }

    /// A variable's value as far as it is known here.
    pub fn lookup(&mut self, name: &[u8], scope: &Scope) -> Value {
        let name = scope.referred(name);
        if let Some(variable) = scope.variables.get(name) {
            return variable.value.clone();
        }
        let known = |bytes: &[u8]| Value::Text(vec![Piece::Known(bytes.to_vec())]);
        match name {
            b"IFS" => return known(b" \t\n"),
            b"HOME" => {
                if let Some(home) = self.context.home {
                    return known(home);
                }
            }
            b"PWD" => {
                return match (&scope.cwd, self.context.pwd) {
                    (Cwd::Start, Some(pwd)) => known(pwd),
                    (Cwd::Moved(words), pwd) => {
                        directory(words, pwd).map_or(Value::Unknown, |path| known(&path))
                    }
                    _ => Value::Unknown,
                };
            }
            b"@" | b"*" => {
                return match &scope.positional {
                    Some(words) => Value::Array(words.clone()),
                    None => Value::Unknown,
                };
            }
            b"#" => {
                return match &scope.positional {
                    Some(words) if words.iter().all(|word| !word.splits) => {
                        known(words.len().to_string().as_bytes())
                    }
                    _ => Value::Unknown,
                };
            }
            [b'1'..=b'9', ..] if name.iter().all(u8::is_ascii_digit) => {
                let index = std::str::from_utf8(name)
                    .ok()
                    .and_then(|text| text.parse::<usize>().ok());
                return match (&scope.positional, index) {
                    (Some(words), Some(index))
                        if words.iter().take(index).all(|word| !word.splits) =>
                    {
                        words
                            .get(index - 1)
                            .map_or(Value::Unset, |word| Value::Text(word.pieces.clone()))
                    }
                    _ => Value::Unknown,
                };
            }
            _ => {}
        }
        match self
            .context
            .variables
            .iter()
            .find(|(variable, _)| variable == name)
        {
            Some((_, value)) => known(value),
            // Where a world is, that is `/tmp`; elsewhere somebody has said so.
            None if name == b"TMPDIR" => known(b"/tmp"),
            None => Value::Unknown,
        }
    }

    /// The value of `${…}`.
    fn parameter(&mut self, parameter: &Parameter, scope: &mut Scope, here: &Here) -> Value {
        for (name, used) in &mut self.following.loops {
            // `${!x}` and `$x` both look at it; so may text that is read again.
            *used |= *name == parameter.name || parameter.form == Form::Indirect;
        }
        let operand = if parameter.operand.is_empty() {
            Word::default()
        } else if matches!(parameter.operator.first(), Some(b'/')) {
            // Kept in two halves by `parameter::replace`, which looks at the parts itself.
            let mut word = Word::default();
            for part in &parameter.operand {
                match part {
                    Part::Text(text) => word.push_known(text),
                    other => {
                        let piece = self.expand_one(std::slice::from_ref(other), scope, here);
                        piece
                            .pieces
                            .into_iter()
                            .for_each(|piece| push_piece(&mut word.pieces, piece));
                    }
                }
            }
            word
        } else {
            self.expand_one(&parameter.operand, scope, here)
        };
        let mut value = self.lookup(&parameter.name, scope);
        if parameter.form == Form::Indirect {
            value = match value {
                Value::Text(pieces) if parameter.operator.is_empty() => match pieces.as_slice() {
                    [Piece::Known(name)] => {
                        let name = name.clone();
                        self.lookup(&name, scope)
                    }
                    _ => Value::Unknown,
                },
                _ => Value::Unknown,
            };
        }
        if let Some(subscript) = &parameter.subscript {
            value = self.element(value, subscript, scope, here);
        } else if let Value::Array(words) = &value
            && !matches!(parameter.name.as_slice(), b"@" | b"*")
        {
            value = words
                .first()
                .map_or(Value::Unset, |word| Value::Text(word.pieces.clone()));
        }
        if parameter.form == Form::Length {
            return match value {
                Value::Text(pieces) => match pieces.as_slice() {
                    [] => Value::Text(vec![Piece::Known(b"0".to_vec())]),
                    [Piece::Known(bytes)] => {
                        Value::Text(vec![Piece::Known(bytes.len().to_string().into_bytes())])
                    }
                    _ => Value::Unknown,
                },
                _ => Value::Unknown,
            };
        }
        if parameter.operator.is_empty() {
            return value;
        }
        let result = parameter::apply(&parameter.operator, &value, &operand);
        if matches!(parameter.operator.as_slice(), b":=" | b"=") {
            scope.set(&parameter.name, result.clone());
        }
        if parameter.operator == b"@" && operand.value() == Some(b"P") {
            // Prompt expansion runs the substitutions that the value holds.
            let origin = Origin {
                from: Some((Source::Dynamic, Word::default())),
                ..Origin::default()
            };
            self.origins
                .insert(here.text(&parameter.span).to_vec(), origin);
        }
        result
    }

    fn element(
        &mut self,
        value: Value,
        subscript: &Subscript,
        scope: &mut Scope,
        here: &Here,
    ) -> Value {
        match subscript {
            Subscript::All => match value {
                Value::Text(pieces) => Value::Array(vec![Word {
                    pieces,
                    splits: false,
                    quoted: false,
                }]),
                other => other,
            },
            Subscript::Element(parts) => {
                let index = self.expand_one(parts, scope, here);
                let number = index
                    .value()
                    .and_then(|text| std::str::from_utf8(text).ok()?.parse::<usize>().ok());
                match (value, number) {
                    (Value::Array(words), Some(number))
                        if words.iter().all(|word| !word.splits) =>
                    {
                        words
                            .get(number)
                            .map_or(Value::Unset, |word| Value::Text(word.pieces.clone()))
                    }
                    (Value::Text(pieces), Some(0)) => Value::Text(pieces),
                    _ => Value::Unknown,
                }
            }
        }
    }
}

fn directory(words: &[Word], pwd: Option<&[u8]>) -> Option<Vec<u8>> {
    let mut path: Vec<u8> = pwd.unwrap_or_default().to_vec();
    for word in words {
        let part = word.value()?;
        if part.starts_with(b"/") {
            path = part.to_vec();
        } else if path.is_empty() || part.split(|&byte| byte == b'/').any(|name| name == b"..") {
            return None;
        } else {
            path.push(b'/');
            path.extend_from_slice(part);
        }
    }
    Some(path)
}

fn strip_newlines(pieces: &mut Vec<Piece>) {
    while let Some(Piece::Known(bytes)) = pieces.last_mut() {
        while bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        if !bytes.is_empty() {
            return;
        }
        pieces.pop();
    }
}
