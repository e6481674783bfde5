//! A program start as the kernel carries it out: which file, which interpreter, which image; and who
//! judges it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use substrate_trace::WorldId;

pub mod image;
pub mod look;

pub use image::{Image, same_content};
pub use look::{Loaded, Program, Variables, View};

/// Judges program starts. Called from several threads at once.
pub trait ExecJudge: Send + Sync {
    /// What is to become of a start. Must not wait for a person.
    fn judge(&self, start: &ProgramStart<'_>) -> ExecVerdict;

    /// Puts a start that [`ExecVerdict::Ask`] named to a person, however long that takes.
    fn ask(&self, start: &ProgramStart<'_>) -> ExecVerdict;

    /// Hears which process is about to become the command with this tag, before that starts anything.
    fn begins(&self, _process: i32, _tag: u32) {}
}

/// A program start, as the kernel will carry it out or has just done.
#[derive(Debug)]
pub struct ProgramStart<'a> {
    /// The world that it happens in.
    pub world: WorldId,
    /// The thread that starts it, as numbered on the host.
    pub thread: i32,
    /// The file as the caller named it; relative names are meant from `cwd`.
    pub named: PathBuf,
    /// The arguments, the zeroth included.
    pub argv: Vec<OsString>,
    /// The file; `None` when it cannot be told before the kernel opens it.
    pub program: Option<Arc<Program>>,
    /// For a script, the interpreter that runs it and the arguments that gets.
    pub interpreter: Option<(Arc<Program>, Vec<OsString>)>,
    /// The file that the kernel starts in place of what would run, where that is no loader of the
    /// system: it runs whatever it is made to.
    pub starter: Option<Arc<Program>>,
    /// For a dynamic loader, the program that it runs in its own place.
    pub loaded: Option<Loaded>,
    /// Where it starts, as seen in the world.
    pub cwd: PathBuf,
    /// The variables that it gets.
    pub variables: Variables,
    /// The files of the world, for following links.
    pub view: &'a View,
    /// The program is in place already: it can be let go or ended, nothing else.
    pub in_place: bool,
}

/// The answer to a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecVerdict {
    /// It may run.
    Allow,
    /// A person has to be asked.
    Ask,
    /// It may not; the text, unless it is empty, appears on its standard error.
    Deny(String),
}

/// Lets every start pass: for worlds whose starts are nobody's business.
#[derive(Debug)]
pub struct NoRules;

impl ExecJudge for NoRules {
    fn judge(&self, _: &ProgramStart<'_>) -> ExecVerdict {
        ExecVerdict::Allow
    }

    fn ask(&self, _: &ProgramStart<'_>) -> ExecVerdict {
        ExecVerdict::Allow
    }
}
