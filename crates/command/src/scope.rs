//! What a shell knows while it runs a line: variables, functions, aliases, directories.

use std::collections::BTreeMap;

#[cfg(feature = "parse")]
use crate::flow::Flow;
use crate::line::Cwd;
use crate::shell_text::state::Functions;
use crate::word::{Piece, Word};

/// The value of a variable as far as it can be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(Vec<Piece>),
    Array(Vec<Word>),
    Unset,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub value: Value,
    pub exported: bool,
}

/// Most names that a name is followed through.
#[cfg(feature = "parse")]
const MAX_REFERENCES: usize = 8;

#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    pub variables: BTreeMap<Vec<u8>, Variable>,
    pub functions: Functions,
    /// The texts that each alias may stand for.
    pub aliases: BTreeMap<Vec<u8>, Vec<Word>>,
    /// `$1`, `$2`, …, when known.
    pub positional: Option<Vec<Word>>,
    pub cwd: Cwd,
    /// What `pushd` put aside, newest last.
    pub directories: Vec<Cwd>,
    /// A function of the line is being followed.
    pub in_function: bool,
    /// Names that stand for other names (`declare -n`).
    #[cfg(feature = "parse")]
    pub references: Vec<(Vec<u8>, Vec<u8>)>,
    /// What `exec` put on descriptors.
    #[cfg(feature = "parse")]
    pub descriptors: Vec<(u8, Flow)>,
    /// What the variables that it made its own were before.
    pub locals: Vec<(Vec<u8>, Option<Variable>)>,
}

impl Scope {
    /// The name that a name stands for.
    #[cfg(feature = "parse")]
    pub fn referred<'n>(&'n self, name: &'n [u8]) -> &'n [u8] {
        let mut name = name;
        for _ in 0..MAX_REFERENCES {
            match self.references.iter().rfind(|(from, _)| from == name) {
                Some((_, target)) => name = target,
                None => break,
            }
        }
        name
    }

    /// What `exec` last put on a descriptor.
    #[cfg(feature = "parse")]
    pub fn descriptor(&self, number: u8) -> Option<&Flow> {
        let mut all = self.descriptors.iter();
        all.rfind(|(known, _)| *known == number)
            .map(|(_, flow)| flow)
    }

    pub fn set(&mut self, name: &[u8], value: Value) {
        #[cfg(feature = "parse")]
        let name = &self.referred(name).to_vec();
        let exported = self
            .variables
            .get(name)
            .is_some_and(|variable| variable.exported);
        self.variables
            .insert(name.to_vec(), Variable { value, exported });
    }

    /// Makes a variable the function's own: what it was comes back when the function ends.
    pub fn make_local(&mut self, name: &[u8]) {
        if self.in_function && !self.locals.iter().any(|(known, _)| known == name) {
            let before = self.variables.get(name).cloned();
            self.locals.push((name.to_vec(), before));
        }
    }

    pub fn export(&mut self, name: &[u8]) {
        self.variables
            .entry(name.to_vec())
            .or_insert(Variable {
                value: Value::Unknown,
                exported: true,
            })
            .exported = true;
    }

    /// What a program started from here inherits.
    pub fn for_child(&self) -> Scope {
        Scope {
            functions: self.functions.for_child(),
            variables: self
                .variables
                .iter()
                .filter(|(_, variable)| variable.exported)
                .map(|(name, variable)| (name.clone(), variable.clone()))
                .collect(),
            cwd: self.cwd.clone(),
            #[cfg(feature = "parse")]
            descriptors: self.descriptors.clone(),
            ..Scope::default()
        }
    }

    /// Moves to a directory.
    pub fn change_directory(&mut self, to: &Word) {
        self.cwd = moved(&self.cwd, to);
    }
}

/// The directory after going from one to another.
pub(crate) fn moved(from: &Cwd, to: &Word) -> Cwd {
    let prefix = to.known_prefix();
    if prefix.starts_with(b"/") {
        return Cwd::Moved(vec![to.clone()]);
    }
    // Only a word that is known not to be absolute can be appended.
    if prefix.is_empty() && to.value().is_none() {
        return Cwd::Unknown;
    }
    match from {
        Cwd::Start => Cwd::Moved(vec![to.clone()]),
        Cwd::Moved(words) if words.len() < 64 => {
            let mut words = words.clone();
            words.push(to.clone());
            Cwd::Moved(words)
        }
        Cwd::Moved(_) | Cwd::Unknown => Cwd::Unknown,
    }
}
