//! The names that a shell has given meaning to.

use std::ffi::OsString;

/// What the shell knows about the names in a line; asked of the engine, so a hint and not a fact.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Aliases, each with its replacement text.
    pub aliases: Vec<(OsString, OsString)>,
    /// Where the shell looks for programs, if it said so.
    pub search_path: Option<OsString>,
    /// What the shell puts for `~`, if it said so.
    pub home: Option<OsString>,
}
