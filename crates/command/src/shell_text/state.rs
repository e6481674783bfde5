//! What is kept in mind while shell text is read, in places that argument vectors go through too.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::syntax::{Command, Unit};
use crate::line::Redirect;
use crate::names::IsFunction;

/// A function of the line, with the text that it was read from.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub body: Rc<Command>,
    pub unit: Rc<Unit>,
}

impl PartialEq for Function {
    fn eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.body, &other.body)
    }
}

/// Everything that a name may stand for, depending on the way that the line goes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Meanings {
    pub bodies: Vec<Function>,
    /// On no way is the name something else.
    pub certain: bool,
}

/// The functions that the line defines.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Functions(pub BTreeMap<Vec<u8>, Meanings>);

impl Functions {
    /// Whether a name is one of them.
    pub fn knows(&self, name: &[u8]) -> IsFunction {
        match self.0.get(name) {
            None => IsFunction::No,
            Some(meanings) if meanings.certain => IsFunction::Certainly,
            Some(_) => IsFunction::Perhaps,
        }
    }

    pub fn forget(&mut self, name: &[u8]) {
        self.0.remove(name);
    }

    /// What a program started from here inherits. They may have been exported, in one of several
    /// ways; a shell that was not given them looks for a program of the name.
    pub fn for_child(&self) -> Functions {
        let mut inherited = self.clone();
        for meanings in inherited.0.values_mut() {
            meanings.certain = false;
        }
        inherited
    }
}

/// Redirections of the groups around a command.
pub(crate) type Around = Rc<Vec<Redirect>>;

/// What is being followed.
#[derive(Debug, Default)]
pub(crate) struct Following {
    /// Functions and aliases being expanded, which are not entered again.
    pub active: Vec<Vec<u8>>,
    /// Variables of the loops around, and whether their bodies look at them.
    pub loops: Vec<(Vec<u8>, bool)>,
}
