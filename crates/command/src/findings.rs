//! What is found out about one command before it enters the line.

use crate::effect::Effect;
use crate::flow::Flow;
use crate::line::Assignment;
use crate::word::Word;

/// A command found inside another.
#[derive(Debug)]
pub(crate) enum Nested {
    /// An argument vector.
    Words {
        argv: Vec<Word>,
        assignments: Vec<Assignment>,
        /// It runs in this shell, not in a process that only inherits from it.
        here: bool,
    },
    /// Shell text.
    Text {
        text: Word,
        /// `$1`, `$2`, … of the text; `None` leaves those of the shell around it.
        positional: Option<Vec<Word>>,
        /// `$0` of the text, where it is given.
        zero: Option<Word>,
        here: bool,
        /// Runs later, if at all: what it sets does not count for what follows.
        later: bool,
        /// What to call the wrapper, when it is not the program.
        via: Option<String>,
    },
}

impl Nested {
    /// Shell text for a new shell.
    pub fn text(text: Word) -> Self {
        Nested::Text {
            text,
            positional: None,
            zero: None,
            here: false,
            later: false,
            via: None,
        }
    }
}

/// What is found out about one command.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub effects: Vec<Effect>,
    pub nested: Vec<Nested>,
    /// Directories that the command goes to, one from the other.
    pub directories: Vec<Word>,
    pub assignments: Vec<Assignment>,
    pub unclear: Option<String>,
    /// What it prints; `None` when nested commands tell.
    pub output: Option<Flow>,
    /// What its nested commands do to a path is done to everything below it.
    pub deep: bool,
}
