//! What is asked of a broker: who asks, what is to run, and where.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use substrate_command::ToolCall;

use super::caller::Caller;
use super::meaning::Around;
use crate::choice::Choice;
use crate::facts::Seen;

/// How a broker is set up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which policy the session runs under.
    pub choice: Choice,
    /// Policies of the sessions around this one; none of them may be loosened.
    pub ceilings: Vec<Choice>,
    /// `--require-approval`.
    pub require_approval: bool,
    /// `SUBSTRATE_WORLD`.
    pub world: Option<OsString>,
    /// The variable `HOME` at the session's start.
    pub home_variable: Option<OsString>,
    /// Nobody would hear of what the world of the session holds back of `$HOME`: there it is read-only.
    pub unattended: bool,
    /// Where the session started.
    pub session_start: PathBuf,
    /// Who asks.
    pub caller: Caller,
}

/// Who asks. A trusted profile replaces the policy in use only at a person's own prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A line typed at the prompt of an interactive shell.
    Prompt,
    /// `-c`, `run`, or a line of standard input.
    OneShot,
    /// A script file.
    Script,
    /// A shim in front of a tool.
    Shim,
    /// A program start inside a world.
    Guard,
    /// A replay.
    Replay,
    /// A command of the past that somebody asks about.
    Past,
}

/// What is to be judged.
#[derive(Debug, Clone, Copy)]
pub enum Input<'a> {
    /// A line of shell text.
    Line(&'a [u8]),
    /// An argument vector that will be executed as it is.
    Argv(&'a [OsString]),
    /// A call of a tool that is no command; whoever asks carries it out.
    Tool(&'a ToolCall),
}

/// A request for a verdict.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What is to run.
    pub input: Input<'a>,
    /// Who asks.
    pub origin: Origin,
    /// Where.
    pub cwd: &'a Path,
    /// The `PATH` that programs are looked up in.
    pub search_path: &'a OsStr,
    /// Values of variables that the line may use and that it cannot have changed.
    pub variables: &'a [(Vec<u8>, Vec<u8>)],
    /// Aliases of the shell that will run the line.
    pub aliases: &'a [(Vec<u8>, Vec<u8>)],
    /// The caller asks for a fresh world, whatever the policy says.
    pub isolate: bool,
    /// The environment that it would run in.
    pub around: Around<'a>,
}

impl Request<'_> {
    /// What is to run, as text that a person reads and that a grant for a line holds.
    pub(crate) fn text(&self) -> Option<String> {
        match self.input {
            Input::Line(text) => String::from_utf8(text.to_vec()).ok(),
            Input::Argv(argv) => substrate_text::command_line(argv).into_string().ok(),
            // It cannot be typed, so no grant for a line may stand for it.
            Input::Tool(_) => None,
        }
    }
}

/// A program start inside a world, besides the argument vector of its request.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    /// How it looks from there.
    pub seen: &'a dyn Seen,
    /// What it also amounts to: the interpreter of a script, a program under another name. Rules
    /// that refuse, ask or isolate count for these too; that no rule allows them does not matter.
    pub also: &'a [Vec<OsString>],
    /// The world has a network of its own.
    pub own_network: bool,
    /// The world is a fresh one that holds its writes back.
    pub isolated: bool,
    /// Tells the name of the program that starts it, where that is an installed one.
    pub by: &'a dyn Fn() -> Option<OsString>,
}

/// How long an approval is to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lasting {
    /// As long as the session.
    Session,
    /// This many seconds; for ever without.
    Seconds(Option<u64>),
}
