//! Words: quoting, parameters and substitutions, read byte by byte into parts.

use std::ops::Range;
use std::rc::Rc;

use super::syntax::{Body, Form, Parameter, Part, RawWord, Script, Subscript, Unit};

/// Why the text is not (or not yet understood as) a shell program, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub why: &'static str,
}

pub(crate) type Parse<T> = Result<T, Fault>;

/// What a second reading of the same text needs to know to be comparable with ours.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    /// Where each simple command's name starts; the flag says that the second reading may not see it.
    pub names: Vec<(usize, bool)>,
    /// Ranges that the second reader is known to misread, and what to put there instead.
    pub masks: Vec<(Range<usize>, Mask)>,
    /// Line continuations, which are taken out before the second reading.
    pub splices: Vec<usize>,
    /// Something was read that we accept but do not vouch for.
    pub doubt: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mask {
    /// Blanks, newlines kept.
    Blank,
    /// `<` and blanks: a here-document operator turned into a plain redirection.
    Read,
    /// Letters: an extended pattern turned into a plain word.
    Letters,
    /// A letter in place of an equals sign that makes no assignment.
    Equals,
}

/// A here-document whose body has not been read yet.
#[derive(Debug)]
pub(crate) struct Pending {
    pub slot: usize,
    pub delimiter: Vec<u8>,
    pub expands: bool,
    pub strip_tabs: bool,
}

/// Reads shell text; a recursive descent bounded in depth and in work.
pub(crate) struct Parser<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) pos: usize,
    pub(crate) end: usize,
    pub(crate) depth: usize,
    pub(crate) max_depth: usize,
    /// Bytes looked at more than once (look-ahead for `((`), so that nesting cannot make it quadratic.
    pub(crate) rescans: usize,
    /// How often a byte may still be looked at; a reading that does not advance ends by this.
    looks: usize,
    /// Where the top-level command that is being read starts.
    pub(crate) item_start: usize,
    /// Inside text that a second reading does not show at the same place.
    pub(crate) unseen: usize,
    pub(crate) pending: Vec<Pending>,
    pub(crate) bodies: Vec<Body>,
    pub(crate) trail: Trail,
}

pub(crate) fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

pub(crate) fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

pub(crate) fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Whether an unquoted byte ends a word.
pub(crate) fn is_meta(byte: u8) -> bool {
    matches!(
        byte,
        b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>'
    )
}

fn push_text(parts: &mut Vec<Part>, byte: u8) {
    if let Some(Part::Text(text)) = parts.last_mut() {
        text.push(byte);
    } else {
        parts.push(Part::Text(vec![byte]));
    }
}

fn push_quoted(parts: &mut Vec<Part>, bytes: &[u8]) {
    if let Some(Part::Quoted(text)) = parts.last_mut() {
        text.extend_from_slice(bytes);
    } else {
        parts.push(Part::Quoted(bytes.to_vec()));
    }
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a [u8], max_depth: usize) -> Self {
        Self {
            text,
            pos: 0,
            end: text.len(),
            depth: 0,
            max_depth,
            rescans: 0,
            looks: 8192 + 128 * text.len(),
            item_start: 0,
            unseen: 0,
            pending: Vec::new(),
            bodies: Vec::new(),
            trail: Trail::default(),
        }
    }

    pub(crate) fn fault<T>(&self, why: &'static str) -> Parse<T> {
        Err(Fault { why })
    }

    pub(crate) fn enter(&mut self) -> Parse<()> {
        self.depth += 1;
        if self.depth > self.max_depth {
            return self.fault("it is nested too deeply");
        }
        Ok(())
    }

    pub(crate) fn leave(&mut self) {
        self.depth -= 1;
    }

    /// The next byte, past any line continuation.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        match self.looks.checked_sub(1) {
            Some(left) => self.looks = left,
            None => {
                self.trail.doubt = Some("the line takes too long to read");
                self.end = self.pos;
            }
        }
        while self.pos + 1 < self.end
            && self.text[self.pos] == b'\\'
            && self.text[self.pos + 1] == b'\n'
        {
            if self
                .trail
                .splices
                .last()
                .is_none_or(|&last| last < self.pos)
            {
                self.trail.splices.push(self.pos);
            }
            self.pos += 2;
        }
        (self.pos < self.end).then(|| self.text[self.pos])
    }

    /// The byte after the next one, past any line continuation.
    pub(crate) fn peek_second(&mut self) -> Option<u8> {
        self.peek()?;
        let mut at = self.pos + 1;
        while at + 1 < self.end && self.text[at] == b'\\' && self.text[at + 1] == b'\n' {
            at += 2;
        }
        (at < self.end).then(|| self.text[at])
    }

    pub(crate) fn bump(&mut self) {
        self.pos += 1;
    }

    /// Takes the next byte if it is this one.
    pub(crate) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        if found {
            self.pos += 1;
        }
        found
    }

    /// Takes two bytes if they are these.
    pub(crate) fn eat_two(&mut self, first: u8, second: u8) -> bool {
        if self.peek() == Some(first) && self.peek_second() == Some(second) {
            self.bump();
            self.peek();
            self.bump();
            return true;
        }
        false
    }

    pub(crate) fn skip_blanks(&mut self) {
        while self.peek().is_some_and(is_blank) {
            self.pos += 1;
        }
    }

    /// A word, or `None` where the next byte cannot start one.
    pub(crate) fn word(&mut self) -> Parse<Option<RawWord>> {
        let Some(first) = self.peek() else {
            return Ok(None);
        };
        let start = self.pos;
        let mut parts = Vec::new();
        if is_meta(first) && !self.at_process_substitution() {
            return Ok(None);
        }
        while let Some(byte) = self.peek() {
            match byte {
                b'<' | b'>' if self.at_process_substitution() => {
                    let from = self.pos;
                    self.bump();
                    self.peek();
                    self.bump();
                    let body = self.commands_until_parenthesis()?;
                    parts.push(Part::Process {
                        body,
                        span: from..self.pos,
                    });
                }
                b'(' if self.ends_as_extended_glob(&parts) => self.extended_glob(&mut parts)?,
                _ if is_meta(byte) => break,
                b'\'' => {
                    let bytes = self.single_quotes()?;
                    push_quoted(&mut parts, &bytes);
                }
                b'"' => {
                    self.bump();
                    parts.push(Part::Double(self.double_quotes()?));
                }
                b'\\' => {
                    self.bump();
                    match self.text.get(self.pos).filter(|_| self.pos < self.end) {
                        Some(&escaped) => {
                            if is_blank(escaped) {
                                // At the end of a line the second reader loses this one.
                                self.trail
                                    .masks
                                    .push((self.pos - 1..self.pos + 1, Mask::Letters));
                            }
                            push_quoted(&mut parts, &[escaped]);
                            self.bump();
                        }
                        None => push_text(&mut parts, b'\\'),
                    }
                }
                b'$' => self.dollar(&mut parts, false)?,
                b'`' => self.backticks(&mut parts, false)?,
                0 => return self.fault("it holds a NUL byte"),
                _ => {
                    // In some places the second reader takes these for operators.
                    match byte {
                        b'%' | b'@' | b'+' | b',' | b':' | b'^' | b'~' => self.cover(Mask::Letters),
                        b'=' => self.cover(Mask::Equals),
                        _ => {}
                    }
                    push_text(&mut parts, byte);
                    self.bump();
                }
            }
        }
        // The second reader takes a brace at the start of a word for a group.
        if matches!(parts.first(), Some(Part::Text(text)) if text.len() > 1 && text[0] == b'{') {
            self.trail.masks.push((start..start + 1, Mask::Letters));
        }
        Ok(Some(RawWord {
            parts,
            span: start..self.pos,
        }))
    }

    fn cover(&mut self, mask: Mask) {
        self.trail.masks.push((self.pos..self.pos + 1, mask));
    }

    fn at_process_substitution(&mut self) -> bool {
        matches!(self.peek(), Some(b'<' | b'>')) && self.peek_second() == Some(b'(')
    }

    fn ends_as_extended_glob(&self, parts: &[Part]) -> bool {
        match parts {
            [Part::Text(text)] if text == b"!" => !self.command_position(),
            [.., Part::Text(text)] => {
                matches!(text.last(), Some(b'!' | b'@' | b'?' | b'*' | b'+'))
            }
            _ => false,
        }
    }

    /// `!(…)` after a word has begun; what is inside stays a pattern.
    fn extended_glob(&mut self, parts: &mut Vec<Part>) -> Parse<()> {
        let start = self.pos - 1;
        if let Some(Part::Text(text)) = parts.last_mut() {
            text.pop();
            if text.is_empty() {
                parts.pop();
            }
        }
        let mut open = 0usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'(' => open += 1,
                b')' => open -= 1,
                b'\\' => self.bump(),
                b'$' | b'`' => return self.fault("a pattern holds an expansion"),
                b'\'' | b'"' => return self.fault("a pattern holds quotes"),
                b'\n' => return self.fault("a pattern is not closed"),
                _ => {}
            }
            self.bump();
            if open == 0 {
                let span = start..self.pos.min(self.end);
                self.trail.masks.push((span.clone(), Mask::Letters));
                parts.push(Part::ExtendedGlob(span));
                return Ok(());
            }
        }
        self.fault("a pattern is not closed")
    }

    /// Whether `!` just read stands where a command may start (then `!(…)` negates a subshell).
    fn command_position(&self) -> bool {
        let before = &self.text[..self.pos.saturating_sub(1)];
        match before.iter().rposition(|&byte| !is_blank(byte)) {
            None => true,
            Some(at) => matches!(before[at], b';' | b'&' | b'|' | b'(' | b'\n' | b'{'),
        }
    }

    fn single_quotes(&mut self) -> Parse<Vec<u8>> {
        self.bump();
        let from = self.pos;
        match self.text[from..self.end]
            .iter()
            .position(|&byte| byte == b'\'')
        {
            Some(length) => {
                self.pos = from + length + 1;
                let bytes = &self.text[from..from + length];
                if bytes.contains(&0) {
                    return self.fault("it holds a NUL byte");
                }
                Ok(bytes.to_vec())
            }
            None => self.fault("a single quote is not closed"),
        }
    }

    /// The inside of `"…"`, the opening quote already taken.
    pub(crate) fn double_quotes(&mut self) -> Parse<Vec<Part>> {
        self.enter()?;
        let mut parts = Vec::new();
        loop {
            match self.peek() {
                None => return self.fault("a double quote is not closed"),
                Some(b'"') => {
                    self.bump();
                    self.leave();
                    return Ok(parts);
                }
                Some(byte) => self.quoted_byte(byte, &mut parts, true)?,
            }
        }
    }

    /// One unit of text in which only `$`, backtick and backslash count.
    fn quoted_byte(&mut self, byte: u8, parts: &mut Vec<Part>, quote_escapes: bool) -> Parse<()> {
        match byte {
            b'\\' => {
                self.bump();
                match self
                    .text
                    .get(self.pos)
                    .filter(|_| self.pos < self.end)
                    .copied()
                {
                    Some(escaped @ (b'$' | b'`' | b'\\')) => {
                        push_quoted(parts, &[escaped]);
                        self.bump();
                    }
                    Some(b'"') if quote_escapes => {
                        push_quoted(parts, b"\"");
                        self.bump();
                    }
                    _ => push_quoted(parts, b"\\"),
                }
                Ok(())
            }
            b'$' => self.dollar(parts, true),
            b'`' => self.backticks(parts, quote_escapes),
            0 => self.fault("it holds a NUL byte"),
            _ => {
                push_quoted(parts, &[byte]);
                self.bump();
                Ok(())
            }
        }
    }

    /// What a `$` starts.
    fn dollar(&mut self, parts: &mut Vec<Part>, quoted: bool) -> Parse<()> {
        let start = self.pos;
        self.bump();
        match self.peek() {
            Some(b'(') if self.peek_second() == Some(b'(') && self.closes_as_arithmetic() => {
                self.bump();
                self.peek();
                self.bump();
                let inner = self.arithmetic(b')')?;
                self.eat(b')');
                parts.push(Part::Arithmetic {
                    parts: inner,
                    span: start..self.pos,
                });
            }
            Some(b'(') => {
                self.bump();
                let body = self.commands_until_parenthesis()?;
                parts.push(Part::Substitution {
                    body,
                    span: start..self.pos,
                });
            }
            Some(b'[') => {
                self.bump();
                let inner = self.arithmetic(b']')?;
                parts.push(Part::Arithmetic {
                    parts: inner,
                    span: start..self.pos,
                });
            }
            Some(b'{') => {
                self.bump();
                self.braced_parameter(start, parts, quoted)?;
            }
            Some(b'\'') if !quoted => {
                let bytes = self.ansi_quotes()?;
                push_quoted(parts, &bytes);
            }
            Some(b'"') if !quoted => {
                self.bump();
                parts.push(Part::Double(self.double_quotes()?));
            }
            Some(byte) if is_name_start(byte) => {
                let mut name = Vec::new();
                while let Some(byte) = self.peek().filter(|&byte| is_name_byte(byte)) {
                    name.push(byte);
                    self.bump();
                }
                parts.push(self.plain_parameter(name, start));
            }
            Some(byte @ (b'0'..=b'9' | b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!')) => {
                self.bump();
                parts.push(self.plain_parameter(vec![byte], start));
            }
            _ if quoted => push_quoted(parts, b"$"),
            _ => push_text(parts, b'$'),
        }
        Ok(())
    }

    fn plain_parameter(&self, name: Vec<u8>, start: usize) -> Part {
        Part::Parameter(Rc::new(Parameter::plain(name, start..self.pos)))
    }

    /// Whether what follows `((` ends in `))` at its own level; else it is a subshell in a subshell.
    pub(crate) fn closes_as_arithmetic(&mut self) -> bool {
        let mut open = 0usize;
        let mut at = self.pos;
        let mut quote = 0u8;
        while at < self.end {
            let byte = self.text[at];
            self.rescans += 1;
            if self.rescans > 64 * (self.end + 64) {
                return false;
            }
            match byte {
                b'\\' => at += 1,
                _ if quote != 0 && byte == quote => quote = 0,
                _ if quote != 0 => {}
                b'\'' | b'"' => quote = byte,
                b'(' => open += 1,
                b')' => {
                    open = open.saturating_sub(1);
                    // Two are open at the start; the first to close the inner one decides.
                    if open == 1 {
                        return self.text.get(at + 1) == Some(&b')') && at + 1 < self.end;
                    }
                }
                _ => {}
            }
            at += 1;
        }
        false
    }

    /// The inside of an arithmetic expression up to its closing byte, for the substitutions in it.
    pub(crate) fn arithmetic(&mut self, close: u8) -> Parse<Vec<Part>> {
        self.enter()?;
        let mut parts = Vec::new();
        let mut open = 0usize;
        loop {
            match self.peek() {
                None => return self.fault("an arithmetic expression is not closed"),
                Some(byte) if byte == close && open == 0 => {
                    self.bump();
                    self.leave();
                    return Ok(parts);
                }
                Some(b'"') => {
                    self.bump();
                    parts.push(Part::Double(self.double_quotes()?));
                }
                Some(b'\'') => {
                    self.single_quotes()?;
                }
                Some(byte) => {
                    match byte {
                        b'(' | b'[' => open += 1,
                        b')' | b']' => open = open.saturating_sub(1),
                        _ => {}
                    }
                    self.quoted_byte(byte, &mut parts, false)?;
                }
            }
        }
    }

    fn commands_until_parenthesis(&mut self) -> Parse<Rc<Script>> {
        self.enter()?;
        let list = self.list()?;
        if !self.eat(b')') {
            return self.fault("a parenthesis is not closed");
        }
        self.leave();
        Ok(Rc::new(Script { list, own: None }))
    }

    /// `` `…` ``: the inside is read as a program of its own once its backslashes are gone.
    fn backticks(&mut self, parts: &mut Vec<Part>, in_quotes: bool) -> Parse<()> {
        self.enter()?;
        let start = self.pos;
        let mut at = start + 1;
        let mut inner = Vec::new();
        let mut changed = false;
        loop {
            match self.text.get(at).filter(|_| at < self.end).copied() {
                None => return self.fault("a backtick is not closed"),
                Some(b'`') => break,
                Some(b'\\') => {
                    match self.text.get(at + 1).filter(|_| at + 1 < self.end).copied() {
                        Some(next @ (b'`' | b'\\' | b'$')) => {
                            inner.push(next);
                            changed = true;
                        }
                        Some(b'"') if in_quotes => {
                            inner.push(b'"');
                            changed = true;
                        }
                        Some(next) => inner.extend_from_slice(&[b'\\', next]),
                        None => inner.push(b'\\'),
                    }
                    at += 2;
                }
                Some(byte) => {
                    inner.push(byte);
                    at += 1;
                }
            }
        }
        let script = if changed {
            let mut parser = Parser::new(&inner, self.max_depth);
            parser.depth = self.depth;
            parser.unseen = 1;
            let list = parser.whole()?;
            self.trail.doubt = self.trail.doubt.or(parser.trail.doubt);
            // Whoever reads the raw text sees other commands there, so that range is kept from him.
            self.trail.masks.push((start..at + 1, Mask::Letters));
            let bodies = std::mem::take(&mut parser.bodies);
            Script {
                list,
                own: Some(Rc::new(Unit {
                    text: inner,
                    bodies,
                })),
            }
        } else {
            let end = self.end;
            self.end = at;
            self.pos = start + 1;
            let list = self.whole()?;
            self.end = end;
            Script { list, own: None }
        };
        self.pos = at + 1;
        self.leave();
        parts.push(Part::Substitution {
            body: Rc::new(script),
            span: start..self.pos,
        });
        Ok(())
    }

    /// `${…}`, the brace already taken.
    fn braced_parameter(&mut self, start: usize, parts: &mut Vec<Part>, quoted: bool) -> Parse<()> {
        self.enter()?;
        if self
            .peek()
            .is_some_and(|byte| is_blank(byte) || byte == b'|' || byte == b'\n')
        {
            // The newest shells run what is inside; older ones refuse it.
            self.trail.doubt = Some("`${ …; }` runs commands only in some shells");
            self.eat(b'|');
            let list = self.list()?;
            if !self.eat(b'}') {
                return self.fault("a brace is not closed");
            }
            self.leave();
            parts.push(Part::Substitution {
                body: Rc::new(Script { list, own: None }),
                span: start..self.pos,
            });
            return Ok(());
        }
        let mut form = Form::Value;
        let second = self.peek_second();
        match self.peek() {
            Some(b'#')
                if second.is_some_and(|byte| {
                    is_name_byte(byte) || matches!(byte, b'@' | b'*' | b'!' | b'$')
                }) =>
            {
                form = Form::Length;
                self.bump();
            }
            Some(b'!')
                if second.is_some_and(|byte| {
                    is_name_byte(byte) || matches!(byte, b'@' | b'*' | b'#')
                }) =>
            {
                form = Form::Indirect;
                self.bump();
            }
            _ => {}
        }
        let mut name = Vec::new();
        while let Some(byte) = self.peek().filter(|&byte| is_name_byte(byte)) {
            name.push(byte);
            self.bump();
        }
        if name.is_empty() {
            match self.peek() {
                Some(byte @ (b'@' | b'*' | b'#' | b'?' | b'-' | b'$' | b'!')) => {
                    name.push(byte);
                    self.bump();
                }
                _ => return self.fault("a parameter has no name"),
            }
        }
        let mut subscript = None;
        if self.eat(b'[') {
            let all = matches!(self.peek(), Some(b'@' | b'*')) && self.peek_second() == Some(b']');
            let inner = self.arithmetic(b']')?;
            subscript = Some(if all {
                Subscript::All
            } else {
                Subscript::Element(inner)
            });
        }
        let operator = self.parameter_operator();
        let patterns = matches!(operator.first(), Some(b'#' | b'%' | b'/' | b'^' | b','));
        let operand = self.parameter_operand(quoted && !patterns)?;
        self.leave();
        parts.push(Part::Parameter(Rc::new(Parameter {
            name,
            form,
            subscript,
            braced: true,
            operator,
            operand,
            span: start..self.pos,
        })));
        Ok(())
    }

    fn parameter_operator(&mut self) -> Vec<u8> {
        let Some(first) = self.peek().filter(|byte| b":-=?+#%/^,@*".contains(byte)) else {
            return Vec::new();
        };
        self.bump();
        let doubles: &[u8] = match first {
            b':' => b"-=?+",
            b'#' => b"#",
            b'%' => b"%",
            b'/' => b"/#%",
            b'^' => b"^",
            b',' => b",",
            _ => b"",
        };
        match self.peek().filter(|byte| doubles.contains(byte)) {
            Some(second) => {
                self.bump();
                vec![first, second]
            }
            None => vec![first],
        }
    }

    fn parameter_operand(&mut self, quotes_are_text: bool) -> Parse<Vec<Part>> {
        let mut parts = Vec::new();
        loop {
            match self.peek() {
                None => return self.fault("a brace is not closed"),
                Some(b'}') => {
                    self.bump();
                    return Ok(parts);
                }
                Some(b'\'') if !quotes_are_text => {
                    let bytes = self.single_quotes()?;
                    push_quoted(&mut parts, &bytes);
                }
                Some(b'"') => {
                    self.bump();
                    parts.push(Part::Double(self.double_quotes()?));
                }
                Some(b'\\') => {
                    self.bump();
                    if let Some(&escaped) = self.text.get(self.pos).filter(|_| self.pos < self.end)
                    {
                        push_quoted(&mut parts, &[escaped]);
                        self.bump();
                    }
                }
                Some(b'$') => self.dollar(&mut parts, quotes_are_text)?,
                Some(b'`') => self.backticks(&mut parts, quotes_are_text)?,
                Some(b'<' | b'>') if !quotes_are_text && self.at_process_substitution() => {
                    let from = self.pos;
                    self.pos += 2;
                    let body = self.commands_until_parenthesis()?;
                    parts.push(Part::Process {
                        body,
                        span: from..self.pos,
                    });
                }
                Some(0) => return self.fault("it holds a NUL byte"),
                Some(byte) => {
                    push_text(&mut parts, byte);
                    self.bump();
                }
            }
        }
    }

    /// `$'…'`, positioned at the quote.
    fn ansi_quotes(&mut self) -> Parse<Vec<u8>> {
        let from = self.pos + 1;
        let mut at = from;
        while at < self.end && self.text[at] != b'\'' {
            at += if self.text[at] == b'\\' { 2 } else { 1 };
        }
        if at >= self.end {
            return self.fault("a single quote is not closed");
        }
        self.pos = at + 1;
        Ok(crate::escape::ansi_c(&self.text[from..at]))
    }

    /// Reads the bodies of the here-documents announced so far; stands after a newline.
    pub(crate) fn here_documents(&mut self) -> Parse<()> {
        for pending in std::mem::take(&mut self.pending) {
            let start = self.pos;
            let mut line_start = start;
            let mut joined = false;
            let (body_end, next) = loop {
                if line_start >= self.end {
                    self.trail.doubt = Some("a here-document has no end");
                    break (self.end, self.end);
                }
                let rest = &self.text[line_start..self.end];
                let length = rest
                    .iter()
                    .position(|&byte| byte == b'\n')
                    .unwrap_or(rest.len());
                let mut line = &rest[..length];
                if pending.strip_tabs {
                    while let [b'\t', tail @ ..] = line {
                        line = tail;
                    }
                }
                let next = (line_start + length + 1).min(self.end);
                if !joined && line == pending.delimiter {
                    break (line_start, next);
                }
                joined = pending.expands
                    && line.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1;
                line_start = next.max(line_start + 1);
            };
            let mut parts = Vec::new();
            if pending.expands {
                let end = self.end;
                self.end = body_end;
                self.pos = start;
                self.unseen += 1;
                let splices = self.trail.splices.len();
                self.enter()?;
                while let Some(byte) = self.peek() {
                    self.quoted_byte(byte, &mut parts, false)?;
                }
                self.leave();
                self.unseen -= 1;
                // The range is masked as a whole, continuations included.
                self.trail.splices.truncate(splices);
                self.end = end;
            } else if body_end > start {
                parts.push(Part::Quoted(self.text[start..body_end].to_vec()));
            }
            if pending.strip_tabs {
                strip_tabs(&mut parts);
            }
            self.trail.masks.push((start..next, Mask::Blank));
            self.pos = next;
            if let Some(body) = self.bodies.get_mut(pending.slot) {
                body.parts = parts;
            }
        }
        Ok(())
    }
}

fn strip_tabs(parts: &mut [Part]) {
    let mut at_line_start = true;
    for part in parts {
        if let Part::Quoted(text) = part {
            let mut kept = Vec::with_capacity(text.len());
            for &byte in text.iter() {
                if at_line_start && byte == b'\t' {
                    continue;
                }
                at_line_start = byte == b'\n';
                kept.push(byte);
            }
            *text = kept;
        } else {
            at_line_start = false;
        }
    }
}
