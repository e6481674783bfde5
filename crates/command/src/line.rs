//! The result of an analysis: every simple command of a line, wherever it hides.

use std::ops::Range;

use crate::args::Args;
use crate::effect::Effect;
use crate::word::Word;

/// A line of shell text, taken apart.
#[derive(Debug, Clone, Default)]
pub struct Line {
    /// What one invocation prints another reads or runs, by number, beside what pipelines say: process and command substitutions,
    /// here-strings, descriptors.
    pub flows: Vec<(usize, usize)>,
    /// Every simple command, in source order, commands inside wrappers after the wrapper.
    pub invocations: Vec<Invocation>,
    /// `None` when the line was fully understood; else why not, in words for a person.
    pub unclear: Option<String>,
    /// The line uses shell operators: lists, pipes, redirections, substitutions, groups, compound commands.
    pub operators: bool,
    /// Names of functions that the line defines.
    pub functions: Vec<Vec<u8>>,
    /// The line is one literal simple command without assignments and redirections:
    /// its argv can be started without a shell, unless the name is a builtin, keyword, alias or function.
    pub plain: Option<Vec<Vec<u8>>>,
    /// It is no line at all but a call of this tool, whose effects are those of the one invocation.
    pub called: Option<Called>,
}

impl Line {
    /// Whether the line was fully understood; only then may an allow rule accept it.
    pub fn complete(&self) -> bool {
        self.unclear.is_none()
    }
}

/// The tool that a line stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Called {
    /// Its name.
    pub name: String,
    /// Whether its effects are all there are.
    pub known: bool,
}

/// One simple command: what a program start or a builtin call would get.
#[derive(Debug, Clone, Default)]
pub struct Invocation {
    /// The words; the first is the program as typed. Empty for a bare assignment or redirection.
    pub argv: Vec<Word>,
    /// The same words, read as options and operands.
    pub args: Args,
    /// Assignments before the command (`A=1 cmd`) or bare ones.
    pub assignments: Vec<Assignment>,
    /// Redirections of this command (those of an enclosing group are on each member).
    pub redirects: Vec<Redirect>,
    /// The wrappers around it, outermost first (`["sudo", "env"]`), by program name.
    pub via: Vec<String>,
    /// Index in `Line::invocations` of the command that wraps this one.
    pub parent: Option<usize>,
    /// Which pipeline of the line it belongs to, and at which stage; a lone command is stage 0 of its own.
    pub pipeline: Stage,
    /// What it does.
    pub effects: Vec<Effect>,
    /// It only shows something (`--help`, `--dry-run`).
    pub inert: bool,
    /// Where it runs.
    pub cwd: Cwd,
    /// `None` when every word that decides what runs is understood; else why not.
    pub unclear: Option<String>,
    /// Bytes of the line that it came from.
    pub source: Range<usize>,
}

/// A position in a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stage {
    /// Number of the pipeline within the line.
    pub pipeline: u32,
    /// Position, counted from 0.
    pub index: u32,
}

/// The directory an invocation runs in, as far as `cd` in the same line tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Cwd {
    /// Where the line starts.
    #[default]
    Start,
    /// After a `cd` (or `git -C`, `env -C`) to this word; relative ones are meant from `Start`.
    Moved(Vec<Word>),
    /// After a `cd` to somewhere unknown.
    Unknown,
}

/// An assignment in front of a command or on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Variable name.
    pub name: Vec<u8>,
    /// Value as far as known.
    pub value: Word,
    /// It will be in the environment of programs: stands before a command, or is `export`ed.
    pub exported: bool,
}

/// A redirection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// What kind of redirection.
    pub kind: RedirectKind,
    /// The file, for kinds that name one.
    pub target: Word,
}

/// Kinds of redirection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RedirectKind {
    /// `< file`
    Read,
    /// `> file`, `>| file`, `&> file`
    Write,
    /// `>> file`, `&>> file`
    Append,
    /// `<> file`
    ReadWrite,
    /// `>&2`, `<&3`, `2>&-`: no file is named.
    Duplicate,
    /// `<< EOF` or `<<< word`: text of the line itself, which is in `target` as far as known.
    Text,
}
