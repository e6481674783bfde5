//! What the syntax of a line tells before anything is followed.

use super::lexer;
use super::syntax::{Command, Connector, Item, Kind, List, Part, Simple};

/// Finds what a loop body may change.
#[derive(Default)]
pub(crate) struct Assigned<'a> {
    pub names: Vec<&'a [u8]>,
    pub moves: bool,
}

impl<'a> Assigned<'a> {
    pub fn list(&mut self, list: &'a List) {
        for command in list.items.iter().flat_map(|item| &item.stages) {
            self.command(command);
        }
    }

    fn command(&mut self, command: &'a Command) {
        match &command.kind {
            Kind::Simple(simple) => self.simple(simple),
            Kind::Group(list) => self.list(list),
            Kind::If {
                branches,
                otherwise,
            } => {
                for (condition, body) in branches {
                    self.list(condition);
                    self.list(body);
                }
                otherwise.iter().for_each(|list| self.list(list));
            }
            Kind::Loop { condition, body } => {
                self.list(condition);
                self.list(body);
            }
            Kind::For { name, body, .. } => {
                self.names.push(name);
                self.list(body);
            }
            Kind::CountingFor { body, .. } => self.list(body),
            Kind::Case { arms, .. } => arms.iter().for_each(|(_, body)| self.list(body)),
            Kind::Subshell(_)
            | Kind::Function { .. }
            | Kind::Test(_)
            | Kind::Arithmetic(_)
            | Kind::Coproc { .. } => {}
        }
    }

    fn simple(&mut self, simple: &'a Simple) {
        let first = simple.words.first().and_then(|word| word.plain());
        if first.is_none() {
            self.names.extend(
                simple
                    .assignments
                    .iter()
                    .map(|assignment| assignment.name.as_slice()),
            );
        }
        match first {
            Some(b"cd" | b"pushd" | b"popd" | b"eval" | b"source" | b".") => self.moves = true,
            Some(
                b"read" | b"export" | b"declare" | b"local" | b"typeset" | b"readonly" | b"printf"
                | b"mapfile" | b"readarray" | b"getopts" | b"unset" | b"let",
            ) => {
                // Generous: every word that could be a variable's name may be one.
                for word in &simple.words[1..] {
                    if let Some(Part::Text(text)) = word.parts.first() {
                        let end = text
                            .iter()
                            .position(|&byte| !lexer::is_name_byte(byte))
                            .unwrap_or(text.len());
                        if end > 0 {
                            self.names.push(&text[..end]);
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether nothing of the same list runs after this command.
pub(crate) fn diverges(item: &Item) -> bool {
    match item.stages.as_slice() {
        [command] => match &command.kind {
            Kind::Simple(simple) => {
                let name = simple.words.first().and_then(|word| word.plain());
                matches!(name, Some(b"exit" | b"return" | b"break" | b"continue"))
            }
            Kind::Group(list) => list.items.last().is_some_and(diverges),
            _ => false,
        },
        _ => false,
    }
}

/// Whether a list is more than one simple command without redirections and substitutions.
pub(crate) fn uses_operators(list: &List) -> bool {
    match list.items.as_slice() {
        [] => false,
        [item] => {
            if matches!(item.next, Connector::Background) {
                return true;
            }
            match item.stages.as_slice() {
                [] => false,
                [
                    Command {
                        kind: Kind::Simple(simple),
                        ..
                    },
                ] => {
                    !simple.redirects.is_empty()
                        || simple
                            .words
                            .iter()
                            .any(|word| word.parts.iter().any(runs_commands))
                        || simple
                            .assignments
                            .iter()
                            .any(|assignment| assignment.value.iter().any(runs_commands))
                }
                _ => true,
            }
        }
        _ => true,
    }
}

fn runs_commands(part: &Part) -> bool {
    match part {
        Part::Substitution { .. } | Part::Process { .. } => true,
        Part::Double(parts) | Part::Arithmetic { parts, .. } => parts.iter().any(runs_commands),
        Part::Parameter(parameter) => parameter.operand.iter().any(runs_commands),
        Part::Array(words) => words
            .iter()
            .any(|word| word.parts.iter().any(runs_commands)),
        Part::Text(_) | Part::Quoted(_) | Part::ExtendedGlob(_) => false,
    }
}

/// The words of a line that is one simple command of text and quotes only.
pub(crate) fn plain_argv(list: &List) -> Option<Vec<Vec<u8>>> {
    let [item] = list.items.as_slice() else {
        return None;
    };
    let [
        Command {
            kind: Kind::Simple(simple),
            ..
        },
    ] = item.stages.as_slice()
    else {
        return None;
    };
    if item.prefixed
        || item.next == Connector::Background
        || !simple.assignments.is_empty()
        || !simple.redirects.is_empty()
    {
        return None;
    }
    simple
        .words
        .iter()
        .map(|word| plain_word(&word.parts))
        .collect()
}

fn plain_word(parts: &[Part]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        match part {
            Part::Text(text) => {
                if text.iter().any(|byte| b"*?[{}~".contains(byte)) && !(index == 0 && text == b"[")
                {
                    return None;
                }
                bytes.extend_from_slice(text);
            }
            Part::Quoted(text) => bytes.extend_from_slice(text),
            Part::Double(inner) => bytes.extend(
                plain_word(inner)
                    .filter(|_| inner.iter().all(|part| matches!(part, Part::Quoted(_))))?,
            ),
            _ => return None,
        }
    }
    Some(bytes)
}

/// Whether a condition is one command whose answer never changes: `true`, `:`, `false`, `[ 1 ]`.
pub(crate) fn is_constant(condition: &List) -> bool {
    let [item] = condition.items.as_slice() else {
        return false;
    };
    let [
        Command {
            kind: Kind::Simple(simple),
            ..
        },
    ] = item.stages.as_slice()
    else {
        return matches!(
            item.stages.as_slice(),
            [Command {
                kind: Kind::Arithmetic(_),
                ..
            }]
        );
    };
    let words: Option<Vec<&[u8]>> = simple.words.iter().map(|word| word.plain()).collect();
    match words.as_deref() {
        Some([name]) => {
            let name = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
            matches!(name, b"true" | b"false" | b":")
        }
        Some([b"[", _, b"]"] | [b"test", _]) => true,
        _ => false,
    }
}

/// Whether something in the list is started without waiting for it.
pub(crate) fn starts_background(list: &List) -> bool {
    list.items.iter().any(|item| {
        item.next == Connector::Background
            || item.stages.iter().any(|command| match &command.kind {
                Kind::Subshell(list) | Kind::Group(list) => starts_background(list),
                Kind::If {
                    branches,
                    otherwise,
                } => {
                    branches.iter().any(|(_, body)| starts_background(body))
                        || otherwise.as_ref().is_some_and(starts_background)
                }
                _ => false,
            })
    })
}
