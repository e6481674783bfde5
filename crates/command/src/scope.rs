//! What a shell knows while it runs a line: variables, functions, aliases, directories.

use std::collections::BTreeMap;
#[cfg(feature = "parse")]
use std::rc::Rc;

use crate::line::Cwd;
#[cfg(feature = "parse")]
use crate::syntax::{Command, Unit};
use crate::word::{Piece, Word};

/// The value of a variable as far as it can be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Text(Vec<Piece>),
    #[cfg(feature = "parse")]
    Array(Vec<Word>),
    Unset,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub value: Value,
    pub exported: bool,
}

/// A function of the line, with the text that it was read from.
#[cfg(feature = "parse")]
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub body: Rc<Command>,
    pub unit: Rc<Unit>,
}

#[cfg(feature = "parse")]
impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.body, &other.body)
    }
}

/// Everything that a name may stand for, depending on the way that the line goes.
#[cfg(feature = "parse")]
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Functions {
    pub bodies: Vec<Function>,
    /// On no way is the name something else.
    pub certain: bool,
}

/// Adds what is not there yet.
#[cfg(feature = "parse")]
fn unite<T: Clone + PartialEq>(all: &mut Vec<T>, others: &[T]) {
    for other in others {
        if !all.contains(other) {
            all.push(other.clone());
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    pub variables: BTreeMap<Vec<u8>, Variable>,
    #[cfg(feature = "parse")]
    pub functions: BTreeMap<Vec<u8>, Functions>,
    /// The texts that each alias may stand for.
    pub aliases: BTreeMap<Vec<u8>, Vec<Word>>,
    /// `$1`, `$2`, …, when known.
    pub positional: Option<Vec<Word>>,
    pub cwd: Cwd,
    /// What `pushd` put aside, newest last.
    pub directories: Vec<Cwd>,
    /// A function of the line is being followed.
    pub in_function: bool,
    /// What the variables that it made its own were before.
    pub locals: Vec<(Vec<u8>, Option<Variable>)>,
}

impl Scope {
    pub fn set(&mut self, name: &[u8], value: Value) {
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

    /// Gives variables back that the function had made its own.
    #[cfg(feature = "parse")]
    pub fn leave_function(&mut self) {
        for (name, before) in std::mem::take(&mut self.locals) {
            match before {
                Some(variable) => self.variables.insert(name, variable),
                None => self.variables.remove(&name),
            };
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

    /// What a program started from here inherits. Functions may have been exported, in one of several
    /// ways; a shell that was not given them looks for a program of the name.
    pub fn for_child(&self) -> Scope {
        Scope {
            #[cfg(feature = "parse")]
            functions: self
                .functions
                .iter()
                .map(|(name, functions)| {
                    let bodies = functions.bodies.clone();
                    let certain = false;
                    (name.clone(), Functions { bodies, certain })
                })
                .collect(),
            variables: self
                .variables
                .iter()
                .filter(|(_, variable)| variable.exported)
                .map(|(name, variable)| (name.clone(), variable.clone()))
                .collect(),
            cwd: self.cwd.clone(),
            ..Scope::default()
        }
    }

    /// Forgets whatever differs between this and another way the line may have gone.
    #[cfg(feature = "parse")]
    pub fn blur(&mut self, other: &Scope) {
        for (name, variable) in &other.variables {
            match self.variables.get_mut(name) {
                Some(mine) if mine.value == variable.value => {}
                Some(mine) => mine.value = Value::Unknown,
                None => {
                    let exported = variable.exported;
                    self.variables.insert(
                        name.clone(),
                        Variable {
                            value: Value::Unknown,
                            exported,
                        },
                    );
                }
            }
        }
        for (name, mine) in &mut self.variables {
            if !other.variables.contains_key(name) {
                mine.value = Value::Unknown;
            }
        }
        if self.positional != other.positional {
            self.positional = None;
        }
        if self.cwd != other.cwd {
            self.cwd = Cwd::Unknown;
        }
        if self.directories != other.directories {
            self.directories.clear();
        }
        for (name, mine) in &mut self.functions {
            mine.certain &= other.functions.contains_key(name);
        }
        for (name, theirs) in &other.functions {
            match self.functions.get_mut(name) {
                Some(mine) => {
                    unite(&mut mine.bodies, &theirs.bodies);
                    mine.certain &= theirs.certain;
                }
                None => {
                    let bodies = theirs.bodies.clone();
                    let certain = false;
                    self.functions
                        .insert(name.clone(), Functions { bodies, certain });
                }
            }
        }
        for (name, theirs) in &other.aliases {
            unite(self.aliases.entry(name.clone()).or_default(), theirs);
        }
    }

    /// Whether both know the same functions and aliases.
    #[cfg(feature = "parse")]
    pub fn same_names(&self, other: &Scope) -> bool {
        self.functions == other.functions && self.aliases == other.aliases
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
