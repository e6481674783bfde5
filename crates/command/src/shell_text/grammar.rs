//! Commands: lists, pipelines, compound commands and redirections.

use std::rc::Rc;

use super::lexer::{Fault, Mask, Parse, Parser, Pending, is_meta, is_name_byte, is_name_start};
use super::syntax::{
    Body, Command, Connector, Item, Kind, List, Part, RawAssignment, RawWord, RedirectOp,
    RedirectTarget, Redirection, Simple,
};
use crate::names::is_keyword;

/// A text as far as it could be read.
pub(crate) struct Program {
    pub list: List,
    /// The first thing that is not shell syntax, and the start of the top-level command that it is in.
    pub fault: Option<(Fault, usize)>,
}

impl Parser<'_> {
    /// Everything up to the end of the text, or up to the first top-level command that cannot be read.
    pub fn program(&mut self) -> Program {
        let mut list = List::default();
        let fault = match self.items_into(&mut list, true) {
            Ok(()) if self.peek().is_none() => None,
            Ok(()) => Some((
                Fault {
                    why: "something is left over",
                },
                self.pos,
            )),
            Err(fault) => Some((fault, self.item_start)),
        };
        if !self.pending.is_empty() {
            self.trail.doubt = Some("a here-document has no end");
        }
        Program { list, fault }
    }

    /// Takes what a shell reads before it runs something; false where the text ends before that.
    pub(crate) fn first_line(&mut self) -> Parse<bool> {
        loop {
            self.skip_blanks();
            match self.peek() {
                None => return Ok(false),
                Some(b'#') => {
                    self.comment();
                    continue;
                }
                Some(b'\n') => {
                    self.bump();
                    self.here_documents()?;
                    return Ok(self.trail.doubt.is_none());
                }
                Some(_) => {}
            }
            self.pipeline()?;
            self.skip_blanks();
            if self.eat_two(b'&', b'&') || self.eat_two(b'|', b'|') {
                self.skip_separators()?;
                continue;
            }
            match self.peek() {
                Some(b'&' | b';') => self.bump(),
                Some(b'\n' | b'#') | None => {}
                Some(_) => return self.fault("something is left over"),
            }
        }
    }

    /// A list that must reach the end of the (bounded) text.
    pub(crate) fn whole(&mut self) -> Parse<List> {
        let list = self.list()?;
        if self.peek().is_some() {
            return self.fault("something is left over");
        }
        Ok(list)
    }

    /// Commands up to the first thing that cannot continue a list.
    pub(crate) fn list(&mut self) -> Parse<List> {
        let mut list = List::default();
        self.items_into(&mut list, false)?;
        Ok(list)
    }

    fn items_into(&mut self, list: &mut List, top: bool) -> Parse<()> {
        loop {
            self.skip_separators()?;
            if self.at_list_end() {
                return Ok(());
            }
            if top {
                self.item_start = self.pos;
            }
            let (stages, prefixed) = self.pipeline()?;
            self.skip_blanks();
            let next = match self.peek() {
                Some(b'&') if self.eat_two(b'&', b'&') => Connector::And,
                Some(b'|') if self.eat_two(b'|', b'|') => Connector::Or,
                Some(b'&') => {
                    self.bump();
                    Connector::Background
                }
                Some(b';') if !matches!(self.peek_second(), Some(b';' | b'&')) => {
                    self.bump();
                    Connector::Sequence
                }
                Some(b'\n' | b'#') => Connector::Sequence,
                _ => Connector::End,
            };
            list.items.push(Item {
                stages,
                prefixed,
                next,
            });
            match next {
                Connector::End => return Ok(()),
                Connector::And | Connector::Or => {
                    self.skip_separators()?;
                    if self.at_list_end() {
                        return self.fault("a command is missing after `&&` or `||`");
                    }
                }
                Connector::Background | Connector::Sequence => {
                    self.skip_blanks();
                    if matches!(self.peek(), Some(b';' | b'&')) && !self.at_list_end() {
                        return self.fault("a command is missing before `;` or `&`");
                    }
                }
            }
        }
    }

    /// Blanks, newlines (with the here-documents that begin there) and comments.
    fn skip_separators(&mut self) -> Parse<()> {
        loop {
            self.skip_blanks();
            match self.peek() {
                Some(b'\n') => {
                    self.bump();
                    self.here_documents()?;
                }
                Some(b'#') => self.comment(),
                _ => return Ok(()),
            }
        }
    }

    fn comment(&mut self) {
        let rest = &self.text[self.pos..self.end];
        self.pos += rest
            .iter()
            .position(|&byte| byte == b'\n')
            .unwrap_or(rest.len());
    }

    /// Whether the next token closes an enclosing construct.
    fn at_list_end(&mut self) -> bool {
        match self.peek() {
            None | Some(b')') => true,
            Some(b';') => matches!(self.peek_second(), Some(b';' | b'&')),
            Some(_) => matches!(
                self.next_keyword(),
                Some(b"}" | b"then" | b"else" | b"elif" | b"fi" | b"do" | b"done" | b"esac")
            ),
        }
    }

    /// The keyword that the next word is, without taking it.
    fn next_keyword(&mut self) -> Option<&'static [u8]> {
        self.peek()?;
        let mut word = [0u8; 9];
        let mut length = 0;
        let mut at = self.pos;
        while at < self.end && length < word.len() {
            let byte = self.text[at];
            if byte == b'\\' && self.text.get(at + 1) == Some(&b'\n') && at + 1 < self.end {
                at += 2;
                continue;
            }
            if is_meta(byte) {
                break;
            }
            word[length] = byte;
            length += 1;
            at += 1;
        }
        crate::names::keyword(&word[..length])
    }

    fn eat_keyword(&mut self, keyword: &[u8]) -> bool {
        if self.next_keyword() != Some(keyword) {
            return false;
        }
        for _ in 0..keyword.len() {
            self.peek();
            self.bump();
        }
        true
    }

    fn expect_keyword(&mut self, keyword: &[u8], why: &'static str) -> Parse<()> {
        self.skip_separators()?;
        if self.eat_keyword(keyword) {
            Ok(())
        } else {
            self.fault(why)
        }
    }

    /// Takes `time`, and where a pipeline starts `!`, in front of a command.
    fn prefixes(&mut self, first: bool) -> bool {
        let mut prefixed = false;
        loop {
            self.skip_blanks();
            let start = self.pos;
            match self.next_keyword() {
                Some(b"!") if first => {
                    self.eat_keyword(b"!");
                    prefixed = true;
                }
                Some(b"time") => {
                    self.eat_keyword(b"time");
                    self.skip_blanks();
                    for option in [b"-p".as_slice(), b"--"] {
                        let rest = &self.text[self.pos..self.end];
                        if rest.starts_with(option)
                            && rest.get(option.len()).is_none_or(|&byte| is_meta(byte))
                        {
                            self.pos += option.len();
                            self.skip_blanks();
                        }
                    }
                    // The second reader takes `time` for a program.
                    self.trail.masks.push((start..self.pos, Mask::Blank));
                    prefixed = true;
                }
                _ => {
                    // `!(…)` where patterns are off: the negation needs no blank.
                    if first && self.peek() == Some(b'!') && self.peek_second() == Some(b'(') {
                        self.bump();
                        prefixed = true;
                        continue;
                    }
                    break;
                }
            }
        }
        prefixed
    }

    fn pipeline(&mut self) -> Parse<(Vec<Command>, bool)> {
        let prefixed = self.prefixes(true);
        let mut stages = Vec::new();
        if prefixed
            && (self.at_list_end() || matches!(self.peek(), Some(b'\n' | b';' | b'&' | b'#')))
        {
            return Ok((stages, true));
        }
        loop {
            stages.push(self.command()?);
            self.skip_blanks();
            if self.peek() != Some(b'|') || self.peek_second() == Some(b'|') {
                return Ok((stages, prefixed));
            }
            self.bump();
            if self.eat(b'&')
                && let Some(stage) = stages.last_mut()
            {
                let target = RawWord {
                    parts: vec![Part::Text(b"1".to_vec())],
                    span: self.pos..self.pos,
                };
                let redirect = Redirection {
                    descriptor: b"2".to_vec(),
                    kind: RedirectOp::DuplicateOut,
                    target: RedirectTarget::Word(target),
                };
                match &mut stage.kind {
                    Kind::Simple(simple) => simple.redirects.push(redirect),
                    _ => stage.redirects.push(redirect),
                }
            }
            self.skip_separators()?;
            self.prefixes(false);
            if self.at_list_end() {
                return self.fault("a command is missing after `|`");
            }
        }
    }

    fn command(&mut self) -> Parse<Command> {
        self.enter()?;
        self.skip_blanks();
        let start = self.pos;
        let kind = match self.peek() {
            Some(b'(') if self.peek_second() == Some(b'(') && self.closes_as_arithmetic() => {
                self.pos += 2;
                let parts = self.arithmetic(b')')?;
                self.eat(b')');
                Kind::Arithmetic(parts)
            }
            Some(b'(') => {
                self.bump();
                let list = self.list()?;
                if !self.eat(b')') {
                    return self.fault("a parenthesis is not closed");
                }
                Kind::Subshell(list)
            }
            _ => match self.next_keyword() {
                Some(keyword) => self.compound(keyword, start)?,
                None => {
                    let command = self.simple()?;
                    self.leave();
                    return Ok(command);
                }
            },
        };
        let mut redirects = Vec::new();
        if !matches!(kind, Kind::Function { .. } | Kind::Coproc { .. }) {
            loop {
                self.skip_blanks();
                match self.redirection()? {
                    Some(redirect) => redirects.push(redirect),
                    None => break,
                }
            }
        }
        self.leave();
        Ok(Command { kind, redirects })
    }

    fn compound(&mut self, keyword: &'static [u8], start: usize) -> Parse<Kind> {
        self.eat_keyword(keyword);
        match keyword {
            b"{" => {
                let list = self.list()?;
                self.expect_keyword(b"}", "a brace is not closed")?;
                Ok(Kind::Group(list))
            }
            b"if" => self.conditional(),
            b"while" | b"until" => {
                let condition = self.list()?;
                let body = self.do_group()?;
                Ok(Kind::Loop { condition, body })
            }
            b"for" => self.for_loop(false),
            b"select" => self.for_loop(true),
            b"case" => self.case(),
            b"function" => {
                self.skip_blanks();
                let Some(name) = self.word()? else {
                    return self.fault("a function has no name");
                };
                let name = name.parts.iter().fold(Vec::new(), |mut name, part| {
                    if let Part::Text(text) | Part::Quoted(text) = part {
                        name.extend_from_slice(text);
                    }
                    name
                });
                self.skip_blanks();
                if self.eat(b'(') {
                    self.skip_blanks();
                    if !self.eat(b')') {
                        return self.fault("a function's parentheses are not empty");
                    }
                }
                self.function_body(name)
            }
            b"[[" => self.test(),
            b"coproc" => self.coproc(start),
            _ => self.fault("a keyword stands where a command should"),
        }
    }

    fn conditional(&mut self) -> Parse<Kind> {
        let mut branches = Vec::new();
        let mut otherwise = None;
        loop {
            let condition = self.list()?;
            self.expect_keyword(b"then", "`then` is missing")?;
            let body = self.list()?;
            branches.push((condition, body));
            self.skip_separators()?;
            if self.eat_keyword(b"elif") {
                continue;
            }
            if self.eat_keyword(b"else") {
                otherwise = Some(self.list()?);
            }
            self.expect_keyword(b"fi", "`fi` is missing")?;
            return Ok(Kind::If {
                branches,
                otherwise,
            });
        }
    }

    fn do_group(&mut self) -> Parse<List> {
        self.skip_separators()?;
        if self.eat_keyword(b"{") {
            let body = self.list()?;
            self.expect_keyword(b"}", "a brace is not closed")?;
            return Ok(body);
        }
        self.expect_keyword(b"do", "`do` is missing")?;
        let body = self.list()?;
        self.expect_keyword(b"done", "`done` is missing")?;
        Ok(body)
    }

    fn for_loop(&mut self, select: bool) -> Parse<Kind> {
        self.skip_blanks();
        if self.peek() == Some(b'(') && self.peek_second() == Some(b'(') {
            self.pos += 2;
            let header = self.arithmetic(b')')?;
            if !self.eat(b')') {
                return self.fault("a parenthesis is not closed");
            }
            self.skip_blanks();
            self.eat(b';');
            let body = self.do_group()?;
            return Ok(Kind::CountingFor { header, body });
        }
        let Some(word) = self.word()? else {
            return self.fault("a loop has no variable");
        };
        let Some(name) = word.plain().map(<[u8]>::to_vec) else {
            return self.fault("a loop has no variable");
        };
        self.skip_separators()?;
        let mut words = None;
        if self.eat_keyword(b"in") {
            let mut list = Vec::new();
            loop {
                self.skip_blanks();
                match self.word()? {
                    Some(word) if !word.span.is_empty() && self.text[word.span.start] == b'#' => {
                        self.pos = word.span.start;
                        break;
                    }
                    Some(word) => list.push(word),
                    None => break,
                }
            }
            words = Some(list);
        }
        self.skip_blanks();
        self.eat(b';');
        let body = self.do_group()?;
        Ok(Kind::For {
            name,
            words,
            select,
            body,
        })
    }

    fn case(&mut self) -> Parse<Kind> {
        self.skip_blanks();
        let Some(subject) = self.word()? else {
            return self.fault("`case` has no word");
        };
        self.expect_keyword(b"in", "`in` is missing")?;
        let mut arms = Vec::new();
        loop {
            self.skip_separators()?;
            if self.eat_keyword(b"esac") {
                return Ok(Kind::Case { subject, arms });
            }
            self.eat(b'(');
            let mut patterns = Vec::new();
            loop {
                self.skip_blanks();
                let Some(pattern) = self.word()? else {
                    return self.fault("a pattern is missing");
                };
                patterns.push(pattern);
                self.skip_blanks();
                if self.eat(b')') {
                    break;
                }
                if !self.eat(b'|') {
                    return self.fault("a pattern is not closed");
                }
            }
            let body = self.list()?;
            arms.push((patterns, body));
            self.skip_separators()?;
            if self.eat(b';') {
                // `;;`, `;&` or `;;&`
                self.eat(b';');
                self.eat(b'&');
            } else if self.next_keyword() != Some(b"esac") {
                return self.fault("`esac` is missing");
            }
        }
    }

    fn function_body(&mut self, name: Vec<u8>) -> Parse<Kind> {
        self.skip_separators()?;
        let body = self.command()?;
        if matches!(body.kind, Kind::Simple(_)) {
            return self.fault("a function has no body");
        }
        Ok(Kind::Function {
            name,
            body: Rc::new(body),
        })
    }

    fn test(&mut self) -> Parse<Kind> {
        let mut words = Vec::new();
        loop {
            self.skip_separators()?;
            match self.peek() {
                None => return self.fault("`[[` is not closed"),
                Some(b';') => return self.fault("`[[` is not closed"),
                _ => {}
            }
            let masks = self.trail.masks.len();
            match self.word()? {
                Some(word) if word.plain() == Some(b"]]") => return Ok(Kind::Test(words)),
                Some(word) => {
                    if matches!(word.plain(), Some(b"=" | b"==" | b"!=" | b"=~")) {
                        self.trail.masks.truncate(masks);
                    }
                    if word.plain() == Some(b"!") {
                        // The second reader knows it at the beginning only, and it changes no command.
                        self.trail.masks.push((word.span.clone(), Mask::Blank));
                    }
                    words.push(word);
                }
                None => self.bump(),
            }
        }
    }

    fn coproc(&mut self, start: usize) -> Parse<Kind> {
        self.skip_blanks();
        let mut name = b"COPROC".to_vec();
        let named = {
            let from = self.pos;
            let splices = self.trail.splices.len();
            let word_end = self.text[from..self.end]
                .iter()
                .position(|&byte| is_meta(byte))
                .map_or(self.end, |length| from + length);
            let word = &self.text[from..word_end];
            let mut found = false;
            if !word.is_empty() && word.iter().all(|&byte| is_name_byte(byte)) && !is_keyword(word)
            {
                self.pos = word_end;
                self.skip_blanks();
                found = self.peek() == Some(b'(')
                    || matches!(
                        self.next_keyword(),
                        Some(
                            b"{" | b"if"
                                | b"while"
                                | b"until"
                                | b"for"
                                | b"case"
                                | b"select"
                                | b"[["
                        )
                    );
                if found {
                    name = word.to_vec();
                } else {
                    self.pos = from;
                    self.trail.splices.truncate(splices);
                }
            }
            found
        };
        let end = if named {
            self.pos
        } else {
            start + b"coproc".len()
        };
        // The second reader does not know co-processes; it is shown the command alone.
        self.trail.masks.push((start..end, Mask::Blank));
        let body = Box::new(self.command()?);
        Ok(Kind::Coproc { name, body })
    }

    /// A simple command, or the definition of a function.
    fn simple(&mut self) -> Parse<Command> {
        let mut simple = Simple {
            span: self.pos..self.pos,
            ..Simple::default()
        };
        loop {
            self.skip_blanks();
            if let Some(redirect) = self.redirection()? {
                simple.redirects.push(redirect);
                simple.span.end = self.pos;
                continue;
            }
            match self.peek() {
                Some(b'#') => break,
                Some(b'(') => {
                    let [word] = simple.words.as_slice() else {
                        return self.fault("a parenthesis is out of place");
                    };
                    if !simple.assignments.is_empty() || !simple.redirects.is_empty() {
                        return self.fault("a parenthesis is out of place");
                    }
                    let Some(name) = word.plain().map(<[u8]>::to_vec) else {
                        return self.fault("a parenthesis is out of place");
                    };
                    self.bump();
                    self.skip_blanks();
                    if !self.eat(b')') {
                        return self.fault("a parenthesis is out of place");
                    }
                    let kind = self.function_body(name)?;
                    return Ok(Command {
                        kind,
                        redirects: Vec::new(),
                    });
                }
                _ => {}
            }
            let masks = self.trail.masks.len();
            let Some(mut word) = self.word()? else {
                break;
            };
            if self.takes_array(&simple, &word) {
                self.uncover_equals(masks);
                self.array(&mut word)?;
            }
            simple.span.end = self.pos;
            if simple.words.is_empty() {
                match assignment(word) {
                    Ok(assignment) => {
                        self.uncover_equals(masks);
                        simple.assignments.push(assignment);
                    }
                    Err(word) => {
                        if word.plain() == Some(b"[") {
                            // A command like any other; the second reader has a narrower grammar for it.
                            self.trail.masks.push((word.span.clone(), Mask::Letters));
                        }
                        simple.words.push(word);
                    }
                }
            } else {
                simple.words.push(word);
            }
        }
        if simple.words.is_empty() && simple.assignments.is_empty() && simple.redirects.is_empty() {
            return self.fault("a command is missing");
        }
        if let Some(name) = simple.words.first() {
            self.trail.names.push((name.span.start, self.unseen > 0));
        }
        Ok(Command {
            kind: Kind::Simple(simple),
            redirects: Vec::new(),
        })
    }

    /// Shows the equals signs of an assignment to the second reader after all.
    fn uncover_equals(&mut self, from: usize) {
        let mut masks = self.trail.masks.split_off(from);
        masks.retain(|(_, mask)| *mask != Mask::Equals);
        self.trail.masks.append(&mut masks);
    }

    /// Whether a `(` right after this word starts an array: `a=(` first, or after `declare` and its kin.
    fn takes_array(&mut self, simple: &Simple, word: &RawWord) -> bool {
        if self.text.get(self.pos) != Some(&b'(') || self.pos >= self.end {
            return false;
        }
        let [Part::Text(text)] = word.parts.as_slice() else {
            return false;
        };
        let declares = simple.words.first().is_none_or(|name| {
            matches!(
                name.plain(),
                Some(b"declare" | b"typeset" | b"local" | b"export" | b"readonly")
            )
        });
        let [name @ .., b'='] = text.as_slice() else {
            return false;
        };
        let name = name.strip_suffix(b"+").unwrap_or(name);
        declares
            && name.first().is_some_and(|&byte| is_name_start(byte))
            && name.iter().all(|&byte| is_name_byte(byte))
    }

    fn array(&mut self, word: &mut RawWord) -> Parse<()> {
        self.enter()?;
        self.bump();
        let mut elements = Vec::new();
        loop {
            self.skip_separators()?;
            if self.eat(b')') {
                break;
            }
            match self.word()? {
                Some(element) => elements.push(element),
                None => return self.fault("an array is not closed"),
            }
        }
        word.parts.push(Part::Array(elements));
        word.span.end = self.pos;
        self.leave();
        Ok(())
    }

    /// A redirection, if one starts here.
    fn redirection(&mut self) -> Parse<Option<Redirection>> {
        let Some(first) = self.peek() else {
            return Ok(None);
        };
        let start = self.pos;
        let mut descriptor = Vec::new();
        if first.is_ascii_digit() {
            let length = self.text[start..self.end]
                .iter()
                .take_while(|byte| byte.is_ascii_digit())
                .count();
            if !matches!(self.text.get(start + length), Some(b'<' | b'>'))
                || start + length >= self.end
            {
                return Ok(None);
            }
            descriptor = self.text[start..start + length].to_vec();
            self.pos += length;
        } else if first == b'{' {
            let length = self.text[start + 1..self.end]
                .iter()
                .take_while(|&&byte| is_name_byte(byte))
                .count();
            let after = &self.text[start + 1 + length..self.end];
            if length == 0 || !matches!(after, [b'}', b'<' | b'>', ..]) {
                return Ok(None);
            }
            descriptor = self.text[start + 1..start + 1 + length].to_vec();
            self.pos += length + 2;
            self.trail.masks.push((start..self.pos, Mask::Blank));
        }
        let operator = self.pos;
        let kind = match (self.peek(), self.peek_second()) {
            (Some(b'<' | b'>'), Some(b'(')) if self.pos == start => return Ok(None),
            (Some(b'&'), Some(b'>')) if self.pos == start => {
                self.eat_two(b'&', b'>');
                if self.eat(b'>') {
                    RedirectOp::BothAppend
                } else {
                    RedirectOp::Both
                }
            }
            (Some(b'>'), Some(b'>')) => {
                self.eat_two(b'>', b'>');
                RedirectOp::Append
            }
            (Some(b'>'), Some(b'|')) => {
                self.eat_two(b'>', b'|');
                RedirectOp::Write
            }
            (Some(b'>'), Some(b'&')) => {
                self.eat_two(b'>', b'&');
                RedirectOp::DuplicateOut
            }
            (Some(b'<'), Some(b'&')) => {
                self.eat_two(b'<', b'&');
                RedirectOp::DuplicateIn
            }
            (Some(b'<'), Some(b'>')) => {
                self.eat_two(b'<', b'>');
                self.trail.masks.push((operator..self.pos, Mask::Read));
                RedirectOp::ReadWrite
            }
            (Some(b'<'), Some(b'<')) => {
                self.eat_two(b'<', b'<');
                if !self.eat(b'<') {
                    return self.here_document(descriptor, operator).map(Some);
                }
                RedirectOp::Text
            }
            (Some(b'>'), _) => {
                self.bump();
                RedirectOp::Write
            }
            (Some(b'<'), _) => {
                self.bump();
                RedirectOp::Read
            }
            _ => return Ok(None),
        };
        self.skip_blanks();
        let Some(target) = self.word()? else {
            return self.fault("a redirection has no target");
        };
        Ok(Some(Redirection {
            descriptor,
            kind,
            target: RedirectTarget::Word(target),
        }))
    }

    fn here_document(&mut self, descriptor: Vec<u8>, operator: usize) -> Parse<Redirection> {
        let strip_tabs = self.eat(b'-');
        self.trail.masks.push((operator..self.pos, Mask::Read));
        self.skip_blanks();
        let Some(word) = self.word()? else {
            return self.fault("a here-document has no delimiter");
        };
        let mut expands = true;
        let mut delimiter = Vec::new();
        for part in &word.parts {
            match part {
                Part::Text(text) => delimiter.extend_from_slice(text),
                Part::Quoted(text) => {
                    expands = false;
                    delimiter.extend_from_slice(text);
                }
                Part::Double(parts) => {
                    expands = false;
                    for part in parts {
                        match part {
                            Part::Quoted(text) => delimiter.extend_from_slice(text),
                            _ => return self.fault("a here-document's delimiter is not plain"),
                        }
                    }
                }
                _ => return self.fault("a here-document's delimiter is not plain"),
            }
        }
        let slot = self.bodies.len();
        self.bodies.push(Body::default());
        self.pending.push(Pending {
            slot,
            delimiter,
            expands,
            strip_tabs,
        });
        Ok(Redirection {
            descriptor,
            kind: RedirectOp::Text,
            target: RedirectTarget::HereDocument(slot),
        })
    }
}

/// Splits `name=value`, `name+=value` and `name[i]=value`; gives other words back.
fn assignment(mut word: RawWord) -> Result<RawAssignment, RawWord> {
    let Some(Part::Text(text)) = word.parts.first() else {
        return Err(word);
    };
    if !text.first().is_some_and(|&byte| is_name_start(byte)) {
        return Err(word);
    }
    let length = text.iter().take_while(|&&byte| is_name_byte(byte)).count();
    let name = text[..length].to_vec();
    match &text[length..] {
        [b'=', value @ ..] => {
            let value = value.to_vec();
            let mut parts = std::mem::take(&mut word.parts);
            replace_first(&mut parts, value);
            Ok(RawAssignment {
                name,
                subscript: None,
                append: false,
                value: parts,
            })
        }
        [b'+', b'=', value @ ..] => {
            let value = value.to_vec();
            let mut parts = std::mem::take(&mut word.parts);
            replace_first(&mut parts, value);
            Ok(RawAssignment {
                name,
                subscript: None,
                append: true,
                value: parts,
            })
        }
        [b'[', ..] => element_assignment(name, length, word),
        _ => Err(word),
    }
}

fn element_assignment(
    name: Vec<u8>,
    length: usize,
    word: RawWord,
) -> Result<RawAssignment, RawWord> {
    for (index, part) in word.parts.iter().enumerate() {
        let Part::Text(text) = part else { continue };
        let from = if index == 0 { length } else { 0 };
        let Some(close) = text[from..]
            .iter()
            .position(|&byte| byte == b']')
            .map(|at| at + from)
        else {
            continue;
        };
        let (append, value) = match &text[close + 1..] {
            [b'=', value @ ..] => (false, value.to_vec()),
            [b'+', b'=', value @ ..] => (true, value.to_vec()),
            _ => return Err(word),
        };
        let mut subscript = word.parts[..index].to_vec();
        subscript.push(Part::Text(text[from..close].to_vec()));
        let mut parts = word.parts[index..].to_vec();
        replace_first(&mut parts, value);
        return Ok(RawAssignment {
            name,
            subscript: Some(subscript),
            append,
            value: parts,
        });
    }
    Err(word)
}

fn replace_first(parts: &mut Vec<Part>, text: Vec<u8>) {
    if text.is_empty() {
        parts.remove(0);
    } else {
        parts[0] = Part::Text(text);
    }
}
