//! One simple command: its arguments, its effects, and the commands inside it.

use std::ops::Range;

use crate::analyse::{Analyser, Surroundings};
use crate::args;
#[cfg(feature = "parse")]
use crate::args::Args;
use crate::condition::{consequences, is_inert, shows_only};
use crate::effect::{Action, Effect, Object, Source};
use crate::environment::{self, Runs};
use crate::findings::{Findings, Nested};
use crate::flow::{Flow, push_piece};
use crate::line::{Assignment, Cwd, Redirect, RedirectKind, Stage};
use crate::names::{IsFunction, is_builtin};
use crate::scope::{Scope, Value, Variable, moved};
use crate::word::{Piece, Word};
use crate::{sniff, verbs};

/// Most flows of a line that are noted.
#[cfg(feature = "parse")]
const MAX_FLOWS: usize = 1024;

impl Findings {
    pub fn unclear(&mut self, why: &str) {
        self.unclear.get_or_insert_with(|| why.to_owned());
    }

    pub fn code(&mut self, source: Source, word: Word) {
        self.effects
            .push(Effect::new(Action::RunCode, Object::Code(source, word)));
    }
}

impl Analyser<'_> {
    /// Fills in the invocation of that number and follows what is inside it; gives what it prints.
    pub fn invoke(
        &mut self,
        index: usize,
        argv: Vec<Word>,
        assignments: Vec<Assignment>,
        redirects: Vec<Redirect>,
        scope: &mut Scope,
        place: &Surroundings,
    ) -> Flow {
        let size: usize = argv.iter().map(|word| word.pieces.len() * 8 + 16).sum();
        if !self.spend(size + 64) || !self.descend() {
            return Flow::unknown();
        }
        let mut findings = Findings::default();
        redirect_effects(&redirects, &mut findings.effects);
        let prefixed = !argv.is_empty();
        // Assignments in front of a command hold only while it runs.
        let saved: Vec<(Vec<u8>, Option<Variable>)> = if prefixed {
            assignments
                .iter()
                .map(|set| (set.name.clone(), scope.variables.get(&set.name).cloned()))
                .collect()
        } else {
            Vec::new()
        };
        for set in &assignments {
            if prefixed {
                let value = Value::Text(set.value.pieces.clone());
                scope.variables.insert(
                    set.name.clone(),
                    Variable {
                        value,
                        exported: true,
                    },
                );
            }
            assignment_effects(set, prefixed, &mut findings);
        }
        let name = argv
            .first()
            .and_then(Word::value)
            .map(base_name)
            .map(<[u8]>::to_vec);
        let mut function = IsFunction::No;
        let mut handled = false;
        match &name {
            _ if argv.is_empty() => findings.output = Some(Flow::bytes(Vec::new())),
            None => self.dynamic_name(&argv, &mut findings),
            Some(name) => {
                function = self.is_function(name, scope, place);
                handled = function != IsFunction::Certainly
                    && self.builtin(name, &argv, scope, place, &mut findings);
                if !handled {
                    findings.output = None;
                }
            }
        }
        let tool = name
            .as_deref()
            .filter(|_| function != IsFunction::Certainly)
            .and_then(|name| self.tool(name));
        let (args, levels) = args::parse(&argv, tool.as_deref());
        if !levels.is_empty() && !handled {
            let before = findings.effects.len();
            self.tool_findings(&argv, &args, &levels, place, &mut findings);
            if !is_inert(&levels, &args, &argv) {
                let named = |effect: &Effect| {
                    matches!(effect.object, Object::Resource(_) | Object::Code(..))
                };
                let acts = findings.effects[before..].iter().any(named);
                let verb = verbs::below_model(&levels, &args, &argv, acts);
                findings.effects.extend(verb);
            }
        } else if levels.is_empty() && !handled && name.is_some() && function == IsFunction::No {
            for word in argv.iter().skip(1) {
                sniff::argument(word, &mut findings.effects);
            }
            findings.effects.extend(verbs::of_unknown(&argv));
            if !name.as_deref().is_some_and(is_builtin) {
                findings.effects.push(Effect::unknown_program());
            }
        } else if !is_inert(&levels, &args, &argv) {
            consequences(&levels, &args, &argv, false, &mut findings);
        }
        #[cfg(feature = "parse")]
        if !handled && function == IsFunction::No {
            self.special(name.as_deref(), &argv, &args, &mut findings);
        }
        let inert = !handled && shows_only(&levels, &args, &argv);
        drop(levels);
        let directory = findings
            .directories
            .iter()
            .fold(None, |from: Option<Cwd>, to| {
                Some(moved(from.as_ref().unwrap_or(&scope.cwd), to))
            });
        let source = place
            .source
            .clone()
            .unwrap_or_else(|| self.source_of(index));
        if let Some(invocation) = self.line.invocations.get_mut(index) {
            invocation.args = args;
            invocation.inert = inert;
            invocation.redirects = redirects;
            invocation.assignments = assignments;
            invocation.assignments.append(&mut findings.assignments);
            invocation.effects = findings.effects;
            if let Some(directory) = &directory {
                invocation.cwd = directory.clone();
            }
            invocation.unclear = invocation.unclear.take().or(findings.unclear);
        }
        let label = name
            .map(|name| String::from_utf8_lossy(&name).into_owned())
            .unwrap_or_default();
        let mut flow = findings.output;
        if function != IsFunction::No {
            flow = Some(self.call_function(index, &label, &argv, source.clone(), scope, place));
        }
        if let Some(invocation) = self.line.invocations.get_mut(index) {
            invocation.argv = argv;
        }
        let outside = directory.map(|directory| std::mem::replace(&mut scope.cwd, directory));
        let mut inner_flow: Option<Flow> = None;
        #[cfg(feature = "parse")]
        let outer = place.clone();
        let deeper = findings.deep.then(|| Surroundings {
            deep: true,
            ..place.clone()
        });
        let place = deeper.as_ref().unwrap_or(place);
        for nested in findings.nested {
            let printed = self.nested(index, &label, nested, source.clone(), scope, place);
            inner_flow = Some(match inner_flow {
                Some(before) => before.then(printed),
                None => printed,
            });
        }
        if let Some(outside) = outside {
            scope.cwd = outside;
        }
        for (name, variable) in saved {
            match variable {
                Some(variable) => scope.variables.insert(name, variable),
                None => scope.variables.remove(&name),
            };
        }
        self.depth -= 1;
        let flow = flow.or(inner_flow).unwrap_or_else(Flow::unknown);
        #[cfg(feature = "parse")]
        {
            self.note_flows(index, &outer);
            self.feed_consumers(index, &flow);
        }
        #[cfg(feature = "parse")]
        let flow = flow.by(&[index]);
        flow
    }

    /// Notes whose output an invocation reads or runs, and who reads what it writes to `>(…)`.
    #[cfg(feature = "parse")]
    fn note_flows(&mut self, index: usize, place: &Surroundings) {
        let Some(invocation) = self.line.invocations.get(index) else {
            return;
        };
        let (argv, effects) = (&invocation.argv, &invocation.effects);
        let (assignments, redirects) = (&invocation.assignments, &invocation.redirects);
        let origins = &self.origins;
        let of = |pieces: &[Piece]| -> Vec<usize> {
            pieces
                .iter()
                .filter_map(|piece| match piece {
                    Piece::Unknown(source) => origins.get(source),
                    _ => None,
                })
                .flat_map(|origin| origin.producers.iter().copied())
                .collect()
        };
        let mut from = Vec::new();
        if place.input.fed {
            from.extend(&place.input.producers);
            from.extend(of(place.input.text.as_deref().unwrap_or_default()));
        }
        // Of what only the run tells among its words, that which is code.
        let codes: Vec<&Word> = effects
            .iter()
            .filter_map(|effect| match &effect.object {
                Object::Code(_, code) if effect.action == Action::RunCode => Some(code),
                _ => None,
            })
            .collect();
        let hidden = effects.iter().any(|effect| {
            matches!(&effect.object, Object::Code(source, _)
                if !matches!(source, Source::File | Source::Inline | Source::Package))
        });
        let words = argv.iter().chain(assignments.iter().map(|set| &set.value));
        for word in words {
            let is_code = |code: &&Word| {
                word.pieces
                    .iter()
                    .any(|piece| matches!(piece, Piece::Unknown(_)) && code.pieces.contains(piece))
            };
            if hidden || codes.iter().any(is_code) {
                from.extend(of(&word.pieces));
            }
        }
        let mut edges: Vec<(usize, usize)> = from.into_iter().map(|from| (from, index)).collect();
        let targets = redirects.iter().map(|redirect| &redirect.target);
        for piece in argv.iter().chain(targets).flat_map(|word| &word.pieces) {
            if let Piece::Unknown(source) = piece
                && let Some(origin) = origins.get(source)
            {
                edges.extend(origin.consumers.clone().map(|to| (index, to)));
            }
        }
        for edge in edges {
            if edge.0 != edge.1
                && self.line.flows.len() < MAX_FLOWS
                && !self.line.flows.contains(&edge)
            {
                self.line.flows.push(edge);
            }
        }
    }

    /// Says where the code comes from that readers of `>(…)` run, now that their writer is known.
    #[cfg(feature = "parse")]
    fn feed_consumers(&mut self, index: usize, flow: &Flow) {
        let Some((source, word)) = &flow.from else {
            return;
        };
        let consumers: Vec<usize> = self
            .line
            .flows
            .iter()
            .filter(|(from, to)| *from == index && *to < index + MAX_FLOWS)
            .map(|(_, to)| *to)
            .collect();
        for consumer in consumers {
            let Some(invocation) = self.line.invocations.get_mut(consumer) else {
                continue;
            };
            for effect in &mut invocation.effects {
                if matches!(effect.object, Object::Code(Source::Stdin, _)) {
                    effect.object = Object::Code(*source, word.clone());
                }
            }
        }
    }

    /// What a few programs print or are, that no model can say.
    #[cfg(feature = "parse")]
    fn special(
        &mut self,
        name: Option<&[u8]>,
        argv: &[Word],
        args: &Args,
        findings: &mut Findings,
    ) {
        // A script that the line itself has written: what it does is known.
        if let Some(program) = argv.first()
            && program.known_prefix().contains(&b'/')
            && let Some(text) = self.written_text(program)
        {
            findings.nested.push(Nested::Text {
                text,
                positional: Some(argv.get(1..).unwrap_or_default().to_vec()),
                zero: None,
                here: false,
                later: false,
                via: None,
            });
        }
        let operands = || {
            let words = args.operands.iter().filter(|operand| !operand.subcommand);
            words.filter_map(|operand| argv.get(operand.index))
        };
        match name {
            // A new name in the directory for temporary files, or where its pattern says.
            Some(b"mktemp") if !args.options.iter().any(|option| option.value.is_some()) => {
                let pattern = operands().next();
                let start: Option<&[u8]> = match pattern.map(Word::value) {
                    None => Some(b"/tmp/tmp."),
                    Some(pattern) => pattern,
                };
                if let Some(start) = start {
                    let end =
                        start.len() - start.iter().rev().take_while(|byte| **byte == b'X').count();
                    let in_tmp = !start.contains(&b'/') && args.has("-t");
                    let mut text = Word::default();
                    if in_tmp {
                        text.push_known(b"/tmp/");
                    }
                    text.push_known(&start[..end]);
                    push_piece(&mut text.pieces, Piece::Unknown(b"<new>".to_vec()));
                    findings.output = Some(Flow::text(text.pieces));
                }
            }
            // Names that a pattern chooses are some of those that there are.
            Some(b"ls" | b"git") => {
                let lists = name == Some(b"ls")
                    || args
                        .subcommands
                        .first()
                        .is_some_and(|sub| sub == "ls-files");
                let chooses = |word: &Word| {
                    let glob = word
                        .pieces
                        .iter()
                        .any(|piece| matches!(piece, Piece::Glob(_)));
                    let text = word.text();
                    let letters = text.iter().any(u8::is_ascii_alphanumeric);
                    let name = text.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
                    letters
                        && (glob || text.contains(&b'*'))
                        && name.iter().any(u8::is_ascii_alphanumeric)
                };
                if lists && operands().next().is_some() && operands().all(chooses) {
                    findings.output = Some(Flow {
                        some: true,
                        ..Flow::unknown()
                    });
                }
            }
            _ => {}
        }
    }

    fn source_of(&self, index: usize) -> Range<usize> {
        self.line
            .invocations
            .get(index)
            .map(|invocation| invocation.source.clone())
            .unwrap_or_default()
    }

    /// Where in its pipeline an invocation stands, which what is inside it shares.
    pub fn stage_of(&self, index: usize) -> Option<Stage> {
        self.line
            .invocations
            .get(index)
            .map(|invocation| invocation.pipeline)
    }

    /// A program whose name only the run will tell.
    fn dynamic_name(&mut self, argv: &[Word], findings: &mut Findings) {
        findings.unclear("which program runs is only known at run time");
        if let Some(word) = argv.first()
            && let Some((source, _)) = self.origin_of(word)
        {
            findings.code(source, word.clone());
        }
    }

    /// Where the unknown parts of a word come from.
    pub fn origin_of(&self, word: &Word) -> Option<(Source, Word)> {
        word.pieces.iter().find_map(|piece| match piece {
            Piece::Unknown(source) => self
                .origins
                .get(source)
                .and_then(|origin| origin.from.clone()),
            _ => None,
        })
    }

    fn nested(
        &mut self,
        index: usize,
        label: &str,
        nested: Nested,
        source: Range<usize>,
        scope: &mut Scope,
        place: &Surroundings,
    ) -> Flow {
        match nested {
            Nested::Words {
                argv,
                assignments,
                here,
            } => {
                let mut inner = place.inside(index, label, source.clone());
                inner.program = true;
                let mut child;
                let scope = if here {
                    scope
                } else {
                    child = scope.for_child();
                    &mut child
                };
                let Some(number) = self.reserve_in(&inner, index, source, scope) else {
                    return Flow::unknown();
                };
                self.invoke(number, argv, assignments, Vec::new(), scope, &inner)
            }
            Nested::Text {
                text,
                positional,
                zero,
                here,
                later,
                via,
            } => {
                let mut inner = place.inside(index, via.as_deref().unwrap_or(label), source);
                inner.stage = self.stage_of(index);
                // The text does not read what its shell reads, unless something in it does.
                let mut child;
                let scope = if here && !later {
                    scope
                } else {
                    child = if here {
                        scope.clone()
                    } else {
                        scope.for_child()
                    };
                    &mut child
                };
                if let Some(zero) = zero {
                    scope.set(b"0", Value::Text(zero.pieces));
                }
                let outer = match positional {
                    Some(words) => Some(scope.positional.replace(words)),
                    None => None,
                };
                let flow = self.shell_text(index, &text, scope, &inner);
                if let Some(outer) = outer {
                    scope.positional = outer;
                }
                flow
            }
        }
    }

    fn reserve_in(
        &mut self,
        inner: &Surroundings,
        outer: usize,
        source: Range<usize>,
        scope: &Scope,
    ) -> Option<usize> {
        let stage = self.stage_of(outer);
        self.reserve(
            &Surroundings {
                stage,
                ..inner.clone()
            },
            source,
            scope,
        )
    }

    /// Shell text that is known wholly, in part, or not at all.
    fn shell_text(
        &mut self,
        index: usize,
        text: &Word,
        scope: &mut Scope,
        place: &Surroundings,
    ) -> Flow {
        if let Some(known) = text.value() {
            let known = known.to_vec();
            return self.nested_text(&known, scope, place);
        }
        let origin = self.origin_of(text);
        let known_bytes = text
            .pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Known(bytes) if !bytes.trim_ascii().is_empty()));
        let mut flow = Flow::unknown();
        let mut decides = !known_bytes;
        if known_bytes {
            // What is known is looked at with variables in place of what is not.
            let mut readable = Vec::new();
            for piece in &text.pieces {
                match piece {
                    Piece::Known(bytes) | Piece::Glob(bytes) => readable.extend_from_slice(bytes),
                    Piece::Unknown(source) => readable.extend_from_slice(&placeholder(source)),
                }
            }
            let starts = self.line.invocations.len();
            flow = self.nested_text(&readable, scope, place);
            decides = self.line.invocations[starts.min(self.line.invocations.len())..]
                .iter()
                .any(|invocation| {
                    invocation
                        .argv
                        .first()
                        .is_some_and(|word| !word.is_literal())
                });
        }
        if let Some(invocation) = self.line.invocations.get_mut(index) {
            invocation.unclear.get_or_insert_with(|| {
                "part of its shell text is only known at run time".to_owned()
            });
            let source = match (&origin, decides) {
                (Some((source, _)), _) if *source != Source::File => Some(*source),
                (Some((source, _)), true) => Some(*source),
                (None, true) => Some(Source::Dynamic),
                _ => None,
            };
            if let Some(source) = source {
                invocation.effects.push(Effect::new(
                    Action::RunCode,
                    Object::Code(source, text.clone()),
                ));
            }
        }
        flow
    }

    fn is_function(&self, name: &[u8], scope: &Scope, place: &Surroundings) -> IsFunction {
        match place.program {
            true => IsFunction::No,
            false => scope.functions.knows(name),
        }
    }
}

/// How an unknown piece stands in text that is read again.
fn placeholder(source: &[u8]) -> Vec<u8> {
    let name = source.strip_prefix(b"$").unwrap_or_default();
    let name = name
        .strip_prefix(b"{")
        .and_then(|name| name.strip_suffix(b"}"))
        .unwrap_or(name);
    let plain = name
        .first()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
        && name
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let name: &[u8] = if plain { name } else { b"_" };
    [b"${", name, b"}"].concat()
}

/// The name behind the last slash.
pub(crate) fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}

/// What an assignment makes programs run.
pub(crate) fn assignment_effects(set: &Assignment, prefixed: bool, findings: &mut Findings) {
    // Left set in the shell, separators decide how later lines are split.
    if set.name == b"IFS" && !prefixed {
        let plain = set
            .value
            .value()
            .is_some_and(|text| text.iter().all(u8::is_ascii_whitespace));
        if !plain {
            findings.code(Source::Environment, assignment_text(set));
        }
        return;
    }
    match environment::runs(&set.name, &set.value) {
        Runs::Nothing => {}
        Runs::Code => findings.code(Source::Environment, assignment_text(set)),
        Runs::Shell => {
            findings.code(Source::Environment, assignment_text(set));
            findings.nested.push(Nested::Text {
                text: set.value.clone(),
                positional: None,
                zero: None,
                here: true,
                later: true,
                via: Some(String::from_utf8_lossy(&set.name).into_owned()),
            });
        }
    }
}

fn assignment_text(set: &Assignment) -> Word {
    let mut word = Word::literal([set.name.as_slice(), b"="].concat());
    set.value
        .pieces
        .iter()
        .cloned()
        .for_each(|piece| push_piece(&mut word.pieces, piece));
    word
}

fn redirect_effects(redirects: &[Redirect], effects: &mut Vec<Effect>) {
    for redirect in redirects {
        let actions: &[Action] = match redirect.kind {
            RedirectKind::Read => &[Action::Read],
            RedirectKind::Write | RedirectKind::Append => &[Action::Write],
            RedirectKind::ReadWrite => &[Action::Read, Action::Write],
            RedirectKind::Duplicate | RedirectKind::Text => continue,
        };
        if let Some(connection) = sniff::network_device(&redirect.target) {
            effects.push(connection);
            continue;
        }
        for &action in actions {
            sniff::path(action, &redirect.target, effects);
        }
    }
}
