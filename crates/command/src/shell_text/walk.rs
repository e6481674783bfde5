//! Goes through a parsed line the way a shell would run it, following every branch.

use std::ops::Range;
use std::rc::Rc;

use super::check;
use super::lexer::{Parser, is_name_start};
use super::state::{Function, Meanings};
use super::survey::{
    Assigned, diverges, is_constant, plain_argv, starts_background, uses_operators,
};
use super::syntax::{
    Command, Connector, Item, Kind, List, Part, RawAssignment, RawWord, RedirectOp, RedirectTarget,
    Redirection, Simple, Unit,
};
use super::{flat, lexer};
use crate::analyse::{Analyser, Origin, Surroundings};
use crate::effect::{Action, Effect, Object, Source};
use crate::flow::Flow;
use crate::line::{Assignment, Cwd, Redirect, RedirectKind};
use crate::names::is_keyword;
use crate::scope::{Scope, Value};
use crate::word::{Piece, Word};

/// Most values of a loop that are followed one by one.
const MAX_ITERATIONS: usize = 32;

/// Most descriptors of a shell that are followed.
const MAX_DESCRIPTORS: usize = 16;

/// Most ways to read a command whose words are aliases.
const MAX_READINGS: usize = 16;

/// What the walk carries down: the text that spans are meant in, and the place in the line.
#[derive(Clone)]
pub(crate) struct Here {
    pub unit: Rc<Unit>,
    pub place: Surroundings,
}

impl Here {
    /// The source text of a span, for messages and as the name of an unknown piece.
    pub fn text(&self, span: &Range<usize>) -> &[u8] {
        self.unit.text.get(span.clone()).unwrap_or_default()
    }

    fn source(&self, span: &Range<usize>) -> Range<usize> {
        self.place.source.clone().unwrap_or_else(|| span.clone())
    }
}

impl Analyser<'_> {
    /// Reads shell text and follows it; `top` when it is the line itself.
    pub fn text(
        &mut self,
        text: &[u8],
        scope: &mut Scope,
        place: &Surroundings,
        top: bool,
    ) -> Flow {
        if !self.spend(text.len() + 64) {
            return Flow::unknown();
        }
        let limits = self.context.limits;
        let mut parser = Parser::new(text, limits.max_depth);
        let program = parser.program();
        let bodies = std::mem::take(&mut parser.bodies);
        let trail = std::mem::take(&mut parser.trail);
        let here = Here {
            unit: Rc::new(Unit {
                text: text.to_vec(),
                bodies,
            }),
            place: place.clone(),
        };
        if top {
            self.line.operators = uses_operators(&program.list);
            if program.fault.is_none() && trail.doubt.is_none() {
                self.line.plain = plain_argv(&program.list);
            }
        }
        let mut flow = self.list(&program.list, scope, &here);
        let missed = match program.fault {
            Some((fault, start)) => {
                self.unclear_here(
                    place,
                    format!("the shell text cannot be read: {}", fault.why),
                );
                if top {
                    self.line.operators = true;
                }
                flow = Flow::unknown();
                flat::commands(text, start)
            }
            None => {
                if let Some(doubt) = trail.doubt {
                    self.unclear_here(place, doubt.to_owned());
                }
                match check::second_reading(text, &trail, limits.deadline) {
                    Ok(()) => Vec::new(),
                    Err(disagreement) => {
                        self.unclear_here(place, disagreement.why.to_owned());
                        if top {
                            self.line.plain = None;
                        }
                        disagreement.missed
                    }
                }
            }
        };
        self.fragments(text, &missed, scope, &here);
        flow
    }

    /// Commands that only a generous reading finds; they count, but what they print does not.
    fn fragments(&mut self, text: &[u8], spans: &[Range<usize>], scope: &Scope, here: &Here) {
        for span in spans {
            let Some(fragment) = text.get(span.clone()) else {
                continue;
            };
            if !self.spend(fragment.len() + 64) {
                return;
            }
            let mut parser = Parser::new(fragment, self.context.limits.max_depth);
            let program = parser.program();
            let unit = Rc::new(Unit {
                text: fragment.to_vec(),
                bodies: std::mem::take(&mut parser.bodies),
            });
            let place = Surroundings {
                source: Some(here.source(span)),
                ..here.place.clone()
            };
            self.list(
                &program.list,
                &mut scope.clone(),
                &Here {
                    unit: unit.clone(),
                    place: place.clone(),
                },
            );
            if let Some((_, start)) = program.fault {
                let words = flat::words(&fragment[start..]);
                if let Some(index) = self
                    .reserve(&place, 0..0, scope)
                    .filter(|_| !words.is_empty())
                {
                    self.invoke(
                        index,
                        words,
                        Vec::new(),
                        Vec::new(),
                        &mut scope.clone(),
                        &place,
                    );
                }
            }
        }
    }

    fn unclear_here(&mut self, place: &Surroundings, why: String) {
        if let Some(parent) = place
            .parent
            .and_then(|parent| self.line.invocations.get_mut(parent))
        {
            parent.unclear.get_or_insert_with(|| why.clone());
        }
        self.unclear(why);
    }

    /// A loop without end that starts commands without waiting fills the machine with processes.
    fn mark_endless(&mut self, first: usize) {
        if let Some(invocation) = self.line.invocations.get_mut(first) {
            let processes = Object::Resource("process".to_owned());
            invocation
                .effects
                .push(Effect::new(Action::Exec, processes));
        }
    }

    /// Follows a list; gives what it prints.
    pub fn list(&mut self, list: &List, scope: &mut Scope, here: &Here) -> Flow {
        let mut output = Flow::bytes(Vec::new());
        let mut rest = list.items.as_slice();
        while !rest.is_empty() {
            let last = rest.iter().position(|item| !item.next.chains());
            let (chain, others) = rest.split_at(last.map_or(rest.len(), |at| at + 1));
            rest = others;
            let background = chain
                .last()
                .is_some_and(|item| item.next == Connector::Background);
            let flow = if background {
                self.chain(chain, &mut scope.clone(), here)
            } else {
                self.chain(chain, scope, here)
            };
            output = output.then(flow);
        }
        output
    }

    /// Follows commands connected by `&&` and `||`, of which only the first is certain to run.
    fn chain(&mut self, items: &[Item], scope: &mut Scope, here: &Here) -> Flow {
        let mut output = Flow::bytes(Vec::new());
        let mut certain: Option<Scope> = None;
        // What held before the command whose failure an `||` waits for.
        let mut earlier: Option<Scope> = None;
        for (index, item) in items.iter().enumerate() {
            let flow = if index > 0 && items[index - 1].next == Connector::Or {
                let mut other = scope.clone();
                if let Some(earlier) = &earlier {
                    other.blur(earlier);
                }
                let flow = self.pipeline(item, &mut other, here);
                if !diverges(item) {
                    scope.blur(&other);
                }
                flow
            } else {
                if item.next == Connector::Or {
                    earlier = Some(scope.clone());
                }
                self.pipeline(item, scope, here)
            };
            output = output.then(flow);
            if index == 0 && items.len() > 1 {
                certain = Some(scope.clone());
            }
        }
        if let Some(certain) = certain {
            scope.blur(&certain);
        }
        output
    }

    fn pipeline(&mut self, item: &Item, scope: &mut Scope, here: &Here) -> Flow {
        match item.stages.as_slice() {
            [] => Flow::bytes(Vec::new()),
            [command] => self.command(command, scope, here),
            stages => {
                let mut stage = here.place.stage.unwrap_or_else(|| self.new_pipeline());
                let mut flow = here.place.input.clone();
                for (index, command) in stages.iter().enumerate() {
                    if index > 0 {
                        stage = self.next_stage(stage.pipeline);
                    }
                    let mut inner = here.clone();
                    inner.place.stage = Some(stage);
                    inner.place.input = flow;
                    flow = self.command(command, &mut scope.clone(), &inner);
                }
                flow
            }
        }
    }

    pub(crate) fn command(&mut self, command: &Command, scope: &mut Scope, here: &Here) -> Flow {
        if !self.spend(64) || !self.descend() {
            return Flow::unknown();
        }
        let flow = match &command.kind {
            Kind::Simple(simple) => self.simple_command(simple, scope, here),
            _ => self.compound(command, scope, here),
        };
        self.depth -= 1;
        flow
    }

    fn compound(&mut self, command: &Command, scope: &mut Scope, here: &Here) -> Flow {
        let mut inner;
        let mut here = here;
        let mut silent = false;
        let mut files = Vec::new();
        if !command.redirects.is_empty() {
            let redirects = self.redirections(&command.redirects, scope, here);
            inner = here.clone();
            silent = writes_output_elsewhere(&redirects);
            files = output_files(&redirects);
            if let Some(input) = self.input_of(&redirects, scope) {
                inner.place.input = input;
            }
            let mut all = inner.place.redirects.to_vec();
            all.extend(redirects.into_iter().map(|(_, redirect)| redirect));
            inner.place.redirects = Rc::new(all);
            here = &inner;
        }
        let flow = match &command.kind {
            Kind::Simple(simple) => self.simple_command(simple, scope, here),
            Kind::Group(list) => self.list(list, scope, here),
            Kind::Subshell(list) => self.list(list, &mut scope.clone(), here),
            Kind::If {
                branches,
                otherwise,
            } => self.conditional(branches, otherwise.as_ref(), scope, here),
            Kind::Loop { condition, body } => {
                let before = scope.clone();
                self.forget_assigned(&[condition, body], scope);
                let flow = self.list(condition, scope, here);
                let first = self.line.invocations.len();
                let flow = flow.then(self.body(body, scope, here));
                if is_constant(condition) && starts_background(body) {
                    self.mark_endless(first);
                }
                scope.blur(&before);
                flow
            }
            Kind::For {
                name,
                words,
                select,
                body,
            } => self.for_loop(name, words.as_deref(), *select, body, scope, here),
            Kind::CountingFor { header, body } => {
                let before = scope.clone();
                self.arithmetic(header, scope, here);
                self.forget_assigned(&[body], scope);
                let first = self.line.invocations.len();
                let flow = self.body(body, scope, here);
                let endless = |part: &Part| matches!(part, Part::Text(text) | Part::Quoted(text) if ends_never(text));
                if header.iter().any(endless) && starts_background(body) {
                    self.mark_endless(first);
                }
                scope.blur(&before);
                flow
            }
            Kind::Case { subject, arms } => {
                self.expand_one(&subject.parts, scope, here);
                let before = scope.clone();
                let mut flow = Flow::bytes(Vec::new());
                let mut ends = Vec::new();
                for (patterns, body) in arms {
                    for pattern in patterns {
                        self.expand_one(&pattern.parts, scope, here);
                    }
                    let mut branch = before.clone();
                    flow = flow.then(self.list(body, &mut branch, here));
                    ends.push(branch);
                }
                ends.iter().for_each(|end| scope.blur(end));
                flow
            }
            Kind::Function { name, body } => {
                self.define(name, body, scope, here);
                Flow::bytes(Vec::new())
            }
            Kind::Test(words) => {
                for word in words {
                    self.expand_one(&word.parts, scope, here);
                }
                Flow::bytes(Vec::new())
            }
            Kind::Arithmetic(parts) => {
                self.arithmetic(parts, scope, here);
                Flow::bytes(Vec::new())
            }
            Kind::Coproc { name, body } => {
                // What it reads comes through a pipe from whoever holds the other end.
                let mut inner = here.clone();
                inner.place.input = Flow::unknown();
                let printed = self.command(body, &mut scope.clone(), &inner);
                // Whoever opens the descriptors in its array reads what it prints.
                let source = [b"<coproc ", name.as_slice(), b">"].concat();
                let origin = Origin {
                    from: printed.from,
                    producers: printed.producers,
                    ..Origin::default()
                };
                self.origins.insert(source.clone(), origin);
                let end = Word {
                    pieces: vec![Piece::Unknown(source)],
                    splits: false,
                    quoted: true,
                };
                scope.set(name, Value::Array(vec![end.clone(), end]));
                Flow::bytes(Vec::new())
            }
        };
        for (file, appends) in &files {
            self.keep_file(file, &flow, *appends);
        }
        // A redirection of the group itself is an effect even when no command inside shows it.
        if silent {
            Flow::bytes(Vec::new())
        } else {
            flow
        }
    }

    fn conditional(
        &mut self,
        branches: &[(List, List)],
        otherwise: Option<&List>,
        scope: &mut Scope,
        here: &Here,
    ) -> Flow {
        let mut flow = Flow::bytes(Vec::new());
        let mut ends = Vec::new();
        for (condition, body) in branches {
            flow = flow.then(self.list(condition, scope, here));
            let mut branch = scope.clone();
            flow = flow.then(self.list(body, &mut branch, here));
            ends.push(branch);
        }
        if let Some(body) = otherwise {
            let mut branch = scope.clone();
            flow = flow.then(self.list(body, &mut branch, here));
            ends.push(branch);
        }
        ends.iter().for_each(|end| scope.blur(end));
        flow
    }

    fn for_loop(
        &mut self,
        name: &[u8],
        words: Option<&[RawWord]>,
        select: bool,
        body: &List,
        scope: &mut Scope,
        here: &Here,
    ) -> Flow {
        let mut values: Vec<Value> = match words {
            Some(words) => self
                .expand_all(words, scope, here)
                .into_iter()
                .map(|word| match word.splits {
                    true => self.one_of(name, &word),
                    false => Value::Text(word.pieces),
                })
                .collect(),
            None => match &scope.positional {
                Some(words) => words
                    .iter()
                    .map(|word| Value::Text(word.pieces.clone()))
                    .collect(),
                None => vec![Value::Unknown],
            },
        };
        if values.is_empty() || select {
            values.push(Value::Unknown);
        }
        if values.len() > MAX_ITERATIONS {
            values.truncate(MAX_ITERATIONS);
            values.push(Value::Unknown);
        }
        let before = scope.clone();
        let mut flow = Flow::bytes(Vec::new());
        for value in values {
            self.forget_assigned(&[body], scope);
            self.following.loops.push((name.to_vec(), false));
            scope.set(name, value);
            flow = flow.then(self.body(body, scope, here));
            // A body that never looks at the variable does the same each time.
            if self.following.loops.pop().is_some_and(|(_, used)| !used) || self.budget == 0 {
                break;
            }
        }
        scope.blur(&before);
        flow
    }

    /// One of the words that an expansion gives: nobody knows it, but where it comes from.
    fn one_of(&mut self, name: &[u8], word: &Word) -> Value {
        let mut pieces = word.pieces.iter();
        let origin = pieces.find_map(|piece| match piece {
            Piece::Unknown(source) => self.origins.get(source).cloned(),
            _ => None,
        });
        let Some(origin) = origin else {
            return Value::Unknown;
        };
        let shown = [b"$", name].concat();
        self.origins.insert(shown.clone(), origin);
        Value::Text(vec![Piece::Unknown(shown)])
    }

    /// Follows the body of a loop; once more where it gave names a meaning that its next round will use.
    fn body(&mut self, body: &List, scope: &mut Scope, here: &Here) -> Flow {
        let before = scope.clone();
        let flow = self.list(body, scope, here);
        if scope.same_names(&before) {
            return flow;
        }
        flow.then(self.list(body, scope, here))
    }

    /// Notes a function, and looks at its body once with arguments that nobody knows.
    fn define(&mut self, name: &[u8], body: &Rc<Command>, scope: &mut Scope, here: &Here) {
        if !self.line.functions.iter().any(|known| known == name) {
            self.line.functions.push(name.to_vec());
        }
        let function = Function {
            body: body.clone(),
            unit: here.unit.clone(),
        };
        let functions = Meanings {
            bodies: vec![function],
            certain: true,
        };
        scope.functions.0.insert(name.to_vec(), functions);
        let mut inner = scope.clone();
        inner.positional = None;
        let first = self.line.invocations.len();
        self.following.active.push(name.to_vec());
        self.command(body, &mut inner, here);
        self.following.active.pop();
        self.mark_bomb(name, body, first);
    }

    /// A function that starts itself beside itself fills the machine with processes.
    fn mark_bomb(&mut self, name: &[u8], body: &Command, first: usize) {
        let background = match &body.kind {
            Kind::Group(list) | Kind::Subshell(list) => starts_background(list),
            _ => false,
        };
        let inside = self.line.invocations.get(first..).unwrap_or_default();
        let own: Vec<u32> = inside
            .iter()
            .filter(|invocation| invocation.argv.first().and_then(Word::value) == Some(name))
            .map(|invocation| invocation.pipeline.pipeline)
            .collect();
        let twice = own.windows(2).any(|pair| pair[0] == pair[1]);
        if twice || (background && !own.is_empty()) {
            self.mark_endless(first);
        }
    }

    /// Calls a function of the line.
    pub fn call(
        &mut self,
        function: &Function,
        argv: &[Word],
        scope: &mut Scope,
        place: &Surroundings,
    ) -> Flow {
        let outer = scope
            .positional
            .replace(argv.get(1..).unwrap_or_default().to_vec());
        let locals = std::mem::take(&mut scope.locals);
        let around = scope.in_function;
        let here = Here {
            unit: function.unit.clone(),
            place: place.clone(),
        };
        scope.in_function = true;
        let flow = self.command(&function.body, scope, &here);
        scope.leave_function();
        scope.in_function = around;
        scope.locals = locals;
        scope.positional = outer;
        flow
    }

    fn arithmetic(&mut self, parts: &[Part], scope: &mut Scope, here: &Here) {
        self.expand_one(parts, scope, here);
        // An assignment inside changes variables that we do not compute.
        for part in parts {
            let (Part::Quoted(text) | Part::Text(text)) = part else {
                continue;
            };
            if text.contains(&b'=') || text.windows(2).any(|pair| pair == b"++" || pair == b"--") {
                for name in text.split(|&byte| !lexer::is_name_byte(byte)) {
                    if name.first().is_some_and(|&byte| lexer::is_name_start(byte)) {
                        scope.set(name, Value::Unknown);
                    }
                }
            }
        }
    }

    fn simple_command(&mut self, simple: &Simple, scope: &mut Scope, here: &Here) -> Flow {
        let Some(index) = self.reserve(&here.place, simple.span.clone(), scope) else {
            return Flow::unknown();
        };
        let typed = simple.words.first().and_then(|word| word.plain());
        let declares = matches!(
            typed,
            Some(b"export" | b"declare" | b"typeset" | b"local" | b"readonly")
        );
        let mut argv = Vec::new();
        if declares {
            // Assignments among the words follow the rules of assignments, not of words.
            for word in &simple.words {
                argv.extend(self.expand_declaration(word, scope, here));
            }
        } else {
            argv = self.expand_all(&simple.words, scope, here);
        }
        let with_command = !simple.words.is_empty();
        let assignments: Vec<Assignment> = simple
            .assignments
            .iter()
            .map(|raw| self.assign(raw, with_command, scope, here))
            .collect();
        let own = self.redirections(&simple.redirects, scope, here);
        let silent = writes_output_elsewhere(&own);
        let files = output_files(&own);
        let mut place = here.place.clone();
        place.source = Some(here.source(&simple.span));
        match self.input_of(&own, scope) {
            Some(input) => place.input = input,
            None => {
                let kept = scope.descriptor(0).filter(|_| !place.input.fed);
                if let Some(input) = kept {
                    place.input = input.clone();
                }
            }
        }
        if let [only] = argv.as_slice()
            && only.value() == Some(b"exec")
        {
            self.keep_descriptors(&own, scope);
        }
        let aliased = simple
            .words
            .first()
            .and_then(|word| word.plain())
            .filter(|name| !is_keyword(name));
        let mut redirects = place.redirects.to_vec();
        redirects.extend(own.into_iter().map(|(_, redirect)| redirect));
        place.redirects = Rc::new(Vec::new());
        if argv.is_empty()
            && assignments.is_empty()
            && let [
                Redirect {
                    kind: RedirectKind::Read,
                    target,
                },
            ] = redirects.as_slice()
        {
            // `$(< file)` prints the file.
            let flow = Flow::source(Source::File, target.clone());
            self.invoke(index, argv, assignments, redirects, scope, &place);
            return flow;
        }
        if aliased.is_none() {
            place.program = false;
        }
        let texts = aliased.map_or_else(Vec::new, |name| {
            self.without_aliases(name, &simple.words, scope, here)
        });
        let mut flow = self.invoke(index, argv, assignments, redirects, scope, &place);
        if let Some(name) = aliased.filter(|_| !texts.is_empty()) {
            // An alias of the session is no program; one of this line may come too late to be one.
            if !scope.aliases.contains_key(name)
                && let Some(invocation) = self.line.invocations.get_mut(index)
            {
                invocation
                    .effects
                    .retain(|effect| !effect.is_unknown_program());
            }
            let mut inner = place.inside(index, "alias", here.source(&simple.span));
            inner.stage = self.stage_of(index);
            self.following.active.push(name.to_vec());
            let before = scope.clone();
            for (number, text) in texts.iter().enumerate() {
                let mut other = before.clone();
                let branch = if number == 0 { &mut *scope } else { &mut other };
                let printed = self.nested_text(text, branch, &inner);
                if number > 0 {
                    scope.blur(&other);
                }
                flow = if number == 0 {
                    printed
                } else {
                    flow.or(printed)
                };
            }
            self.following.active.pop();
        }
        for (file, appends) in &files {
            self.keep_file(file, &flow, *appends);
        }
        if silent {
            flow = Flow::bytes(Vec::new());
        }
        flow
    }

    /// What a command reads like with its first word's alias replaced, in every way that it may be.
    fn without_aliases(
        &mut self,
        name: &[u8],
        words: &[RawWord],
        scope: &Scope,
        here: &Here,
    ) -> Vec<Vec<u8>> {
        if self.following.active.iter().any(|active| active == name) {
            return Vec::new();
        }
        let rest_of = |number: usize| {
            let end = words.last().map_or(0, |last| last.span.end);
            let word = words.get(number);
            word.map_or(&b""[..], |word| here.text(&(word.span.start..end)))
        };
        let mut texts = Vec::new();
        let mut open: Vec<(Vec<u8>, usize)> = self
            .alias(name, scope)
            .into_iter()
            .map(|body| (body, 1))
            .collect();
        while let Some((text, number)) = open.pop() {
            // A blank at its end makes the next word an alias too.
            let next = words
                .get(number)
                .filter(|_| matches!(text.last(), Some(b' ' | b'\t')))
                .and_then(RawWord::plain)
                .map_or_else(Vec::new, |word| self.alias(word, scope));
            if texts.len() + open.len() + next.len() > MAX_READINGS {
                self.unclear("its aliases can be read in too many ways");
                return texts;
            }
            for body in next {
                open.push(([text.as_slice(), &body].concat(), number + 1));
            }
            texts.push([text.as_slice(), b" ", rest_of(number)].concat());
        }
        texts
    }

    /// The texts that a name may stand for.
    fn alias(&self, name: &[u8], scope: &Scope) -> Vec<Vec<u8>> {
        if let Some(words) = scope.aliases.get(name) {
            return words.iter().map(|word| word.text().into_owned()).collect();
        }
        let known = self.context.aliases.iter();
        let known = known.filter(|(alias, _)| alias == name);
        known.map(|(_, body)| body.clone()).take(1).collect()
    }

    /// Carries out an assignment; one in front of a command is undone by `invoke`.
    fn assign(
        &mut self,
        raw: &RawAssignment,
        with_command: bool,
        scope: &mut Scope,
        here: &Here,
    ) -> Assignment {
        if let Some(subscript) = &raw.subscript {
            self.expand_one(subscript, scope, here);
        }
        let mut elements = None;
        let value = if let Some(Part::Array(words)) = raw.value.last() {
            elements = Some(self.expand_all(words, scope, here));
            Word {
                pieces: vec![Piece::Unknown(b"(...)".to_vec())],
                splits: false,
                quoted: true,
            }
        } else {
            self.expand_value(&raw.value, scope, here)
        };
        let exported = with_command
            || scope
                .variables
                .get(&raw.name)
                .is_some_and(|variable| variable.exported);
        let assignment = Assignment {
            name: raw.name.clone(),
            value,
            exported,
        };
        if !with_command {
            let stored = match (elements, raw.append, &raw.subscript) {
                (_, _, Some(_)) => Value::Unknown,
                (Some(words), false, None) => Value::Array(words),
                (Some(words), true, None) => match scope
                    .variables
                    .get(&raw.name)
                    .map(|variable| &variable.value)
                {
                    Some(Value::Array(before)) => {
                        Value::Array(before.iter().cloned().chain(words).collect())
                    }
                    _ => Value::Unknown,
                },
                (None, false, None) => Value::Text(assignment.value.pieces.clone()),
                (None, true, None) => self.appended(&raw.name, &assignment.value, scope),
            };
            scope.set(&raw.name, stored);
        }
        assignment
    }

    fn appended(&mut self, name: &[u8], value: &Word, scope: &Scope) -> Value {
        match self.lookup(name, scope) {
            Value::Text(before) => {
                let mut pieces = before;
                value
                    .pieces
                    .iter()
                    .cloned()
                    .for_each(|piece| crate::flow::push_piece(&mut pieces, piece));
                Value::Text(pieces)
            }
            Value::Unset => Value::Text(value.pieces.clone()),
            _ => Value::Unknown,
        }
    }

    /// Redirections with the descriptor that each is about.
    fn redirections(
        &mut self,
        list: &[Redirection],
        scope: &mut Scope,
        here: &Here,
    ) -> Vec<(u8, Redirect)> {
        let redirects: Vec<(u8, Redirect)> = list
            .iter()
            .map(|redirection| {
                let target = match &redirection.target {
                    RedirectTarget::Word(word) => self.expand_one(&word.parts, scope, here),
                    RedirectTarget::HereDocument(slot) => {
                        let unit = here.unit.clone();
                        match unit.bodies.get(*slot) {
                            Some(body) => self.expand_one(&body.parts, scope, here),
                            None => Word::default(),
                        }
                    }
                };
                let duplicates = target.value().is_some_and(|value| {
                    value == b"-"
                        || value
                            .strip_suffix(b"-")
                            .unwrap_or(value)
                            .iter()
                            .all(u8::is_ascii_digit)
                });
                let (kind, default) = match redirection.kind {
                    RedirectOp::Read => (RedirectKind::Read, 0),
                    RedirectOp::Write => (RedirectKind::Write, 1),
                    RedirectOp::Append => (RedirectKind::Append, 1),
                    RedirectOp::ReadWrite => (RedirectKind::ReadWrite, 0),
                    RedirectOp::DuplicateIn => (RedirectKind::Duplicate, 0),
                    RedirectOp::DuplicateOut if duplicates => (RedirectKind::Duplicate, 1),
                    RedirectOp::DuplicateOut | RedirectOp::Both => (RedirectKind::Write, 1),
                    RedirectOp::BothAppend => (RedirectKind::Append, 1),
                    RedirectOp::Text => (RedirectKind::Text, 0),
                };
                let target = match (&redirection.target, redirection.kind) {
                    (RedirectTarget::Word(_), RedirectOp::Text) => {
                        let mut text = target;
                        text.push_known(b"\n");
                        text
                    }
                    _ => target,
                };
                let descriptor = match redirection.descriptor.as_slice() {
                    [] => default,
                    digits => std::str::from_utf8(digits)
                        .ok()
                        .and_then(|text| text.parse().ok())
                        .unwrap_or(u8::MAX),
                };
                (descriptor, Redirect { kind, target })
            })
            .collect();
        for (redirection, (_, redirect)) in list.iter().zip(&redirects) {
            self.name_descriptor(&redirection.descriptor, redirect, scope);
        }
        redirects
    }

    /// `{name}<file`: whoever uses the variable reads that, or feeds whoever reads it.
    fn name_descriptor(&mut self, name: &[u8], redirect: &Redirect, scope: &mut Scope) {
        if !name.first().is_some_and(|byte| is_name_start(*byte)) {
            return;
        }
        let origin = match redirect.target.pieces.as_slice() {
            [Piece::Unknown(source)] => self.origins.get(source).cloned(),
            _ => None,
        };
        let origin = origin.unwrap_or_else(|| {
            let flow = match redirect.kind {
                RedirectKind::Text => Flow::text(redirect.target.pieces.clone()),
                RedirectKind::Read | RedirectKind::ReadWrite => self.file_flow(&redirect.target),
                _ => Flow::unknown(),
            };
            Origin {
                from: flow.from,
                text: flow.text,
                some: flow.some,
                producers: flow.producers,
                ..Origin::default()
            }
        });
        let shown = [b"$", name].concat();
        self.origins.insert(shown.clone(), origin);
        scope.set(name, Value::Text(vec![Piece::Unknown(shown)]));
    }

    /// What redirections put on standard input.
    fn input_of(&self, redirects: &[(u8, Redirect)], scope: &Scope) -> Option<Flow> {
        let (_, redirect) = redirects.iter().rfind(|(descriptor, _)| *descriptor == 0)?;
        Some(match redirect.kind {
            // `<&3`, or what only the run tells: `<&${COPROC[0]}`.
            RedirectKind::Duplicate | RedirectKind::Read
                if let Some(flow) = self.duplicated(&redirect.target, scope) =>
            {
                flow
            }
            RedirectKind::Duplicate => return None,
            RedirectKind::Text => Flow::text(redirect.target.pieces.clone()),
            RedirectKind::Read | RedirectKind::ReadWrite => self.file_flow(&redirect.target),
            _ => return None,
        })
    }

    fn duplicated(&self, target: &Word, scope: &Scope) -> Option<Flow> {
        if let Some(digits) = target.value() {
            let digits = digits.strip_suffix(b"-").unwrap_or(digits);
            let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
            return scope.descriptor(number).cloned();
        }
        match target.pieces.as_slice() {
            [Piece::Unknown(source)] => self.origins.get(source).map(|origin| Flow {
                fed: true,
                text: origin.text.clone(),
                from: origin.from.clone(),
                some: origin.some,
                producers: origin.producers.clone(),
            }),
            _ => None,
        }
    }

    /// What `exec` without a command does to the descriptors of this shell.
    fn keep_descriptors(&mut self, own: &[(u8, Redirect)], scope: &mut Scope) {
        for (descriptor, redirect) in own {
            let flow = match redirect.kind {
                RedirectKind::Text => Flow::text(redirect.target.pieces.clone()),
                RedirectKind::Read | RedirectKind::ReadWrite => self.file_flow(&redirect.target),
                RedirectKind::Duplicate => match self.duplicated(&redirect.target, scope) {
                    Some(flow) => flow,
                    None => continue,
                },
                _ => continue,
            };
            if scope.descriptors.len() < MAX_DESCRIPTORS {
                scope.descriptors.push((*descriptor, flow));
            }
        }
    }

    /// Forgets every variable that a loop body sets, and the directory if it moves.
    fn forget_assigned(&mut self, lists: &[&List], scope: &mut Scope) {
        let mut finder = Assigned::default();
        lists.iter().for_each(|list| finder.list(list));
        for name in finder.names {
            scope.set(name, Value::Unknown);
        }
        if finder.moves {
            scope.cwd = Cwd::Unknown;
        }
    }
}

/// Whether the header of a counting loop has no condition.
fn ends_never(header: &[u8]) -> bool {
    let mut parts = header.split(|&byte| byte == b';');
    parts.next();
    parts
        .next()
        .is_some_and(|condition| condition.trim_ascii().is_empty())
        && parts.next().is_some()
}

/// The files that standard output goes to, and whether it is added to them.
fn output_files(redirects: &[(u8, Redirect)]) -> Vec<(Word, bool)> {
    let files = redirects.iter().filter(|(descriptor, redirect)| {
        *descriptor == 1 && matches!(redirect.kind, RedirectKind::Write | RedirectKind::Append)
    });
    files
        .map(|(_, redirect)| {
            let appends = redirect.kind == RedirectKind::Append;
            (redirect.target.clone(), appends)
        })
        .collect()
}

fn writes_output_elsewhere(redirects: &[(u8, Redirect)]) -> bool {
    redirects.iter().any(|(descriptor, redirect)| {
        *descriptor == 1 && matches!(redirect.kind, RedirectKind::Write | RedirectKind::Append)
    })
}
