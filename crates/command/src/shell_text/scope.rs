//! What only the walk over shell text does to a scope.

use super::state::Meanings;
use crate::line::Cwd;
use crate::scope::{Scope, Value, Variable};

impl Scope {
    /// Gives variables back that the function had made its own.
    pub fn leave_function(&mut self) {
        for (name, before) in std::mem::take(&mut self.locals) {
            match before {
                Some(variable) => self.variables.insert(name, variable),
                None => self.variables.remove(&name),
            };
        }
    }

    /// Forgets whatever differs between this and another way the line may have gone.
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
        for (name, mine) in &mut self.functions.0 {
            mine.certain &= other.functions.0.contains_key(name);
        }
        for (name, theirs) in &other.functions.0 {
            match self.functions.0.get_mut(name) {
                Some(mine) => {
                    unite(&mut mine.bodies, &theirs.bodies);
                    mine.certain &= theirs.certain;
                }
                None => {
                    let bodies = theirs.bodies.clone();
                    let certain = false;
                    self.functions
                        .0
                        .insert(name.clone(), Meanings { bodies, certain });
                }
            }
        }
        for (name, theirs) in &other.aliases {
            unite(self.aliases.entry(name.clone()).or_default(), theirs);
        }
    }

    /// Whether both know the same functions and aliases.
    pub fn same_names(&self, other: &Scope) -> bool {
        self.functions == other.functions && self.aliases == other.aliases
    }
}

/// Adds what is not there yet.
fn unite<T: Clone + PartialEq>(all: &mut Vec<T>, others: &[T]) {
    for other in others {
        if !all.contains(other) {
            all.push(other.clone());
        }
    }
}
