//! What the front end asks about a line, and what it tells about one that ran.
//!
//! The front end knows nothing of policies, worlds or traces: it shows what a [`Gate`] answers,
//! and runs what it is told to.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use substrate_world::backend::Tap;

use crate::engine::Carried;
use crate::names::Names;

/// How a line that is still being typed would be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It would run as it is.
    Allow,
    /// It would run in a world of its own.
    Isolate,
    /// It would be asked about first.
    Ask,
    /// It would be refused.
    Deny,
}

/// The verdict on a line that is still being typed, with a note short enough to stand beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The verdict, shown as a tint of the line.
    pub verdict: Verdict,
    /// A few words: what would happen and by which rule, without control characters.
    pub note: String,
    /// The line was not fully understood, as half a line cannot be.
    pub unclear: bool,
}

/// A complete line, ready to be judged.
pub struct Submission<'a> {
    /// The text after history expansion, exactly as the engine would run it.
    pub line: &'a [u8],
    /// Whether it came from the keyboard and nowhere else: only then may it be one of Substrate's own
    /// commands, which act with the person's authority.
    pub typed: bool,
    /// The engine's working directory, read from the kernel.
    pub cwd: &'a Path,
    /// Aliases the line may use.
    pub names: &'a Names,
    /// The process id of the engine.
    pub engine: i32,
}

/// What the gate may have of the front end while a line is carried out.
pub trait FrontEnd {
    /// Names the functions of the shell; asked of the engine.
    fn functions(&mut self) -> Vec<OsString>;

    /// What the shell has exported; asked of the engine.
    fn variables(&mut self) -> Vec<(OsString, OsString)>;

    /// Puts the terminal into line mode; to be called before anybody is asked on it.
    fn line_mode(&mut self);

    /// Lends a copy of the engine's state, and the terminal, for a line that runs elsewhere.
    fn lend(&mut self) -> Borrowed<'_>;

    /// Has the engine run the line.
    fn run(&mut self, how: InEngine) -> Outcome;
}

/// How the engine runs a line.
#[derive(Default)]
pub struct InEngine {
    /// Variables that its programs get.
    pub exports: Vec<(&'static str, String)>,
    /// Hears what it shows, where the engine's terminal is ours.
    pub tap: Option<Tap>,
    /// How long it may take before it is ended.
    pub time_limit: Option<Duration>,
}

/// How a line was carried out.
pub enum End {
    /// The engine ran it.
    Ran,
    /// It did not run; the message is shown and the status becomes `$?`.
    Refused {
        /// Text for the person, one or more lines.
        message: String,
        /// The status the next line sees in `$?`.
        status: i32,
    },
    /// It ran outside the engine, with this status.
    Elsewhere(i32),
}

/// What a line that runs elsewhere may use while it runs.
pub struct Borrowed<'a> {
    /// The engine's variables, functions, aliases, options, umask and directory.
    pub state: Carried,
    /// The terminal, in the modes programs expect; the front end's process group owns it.
    pub terminal: std::os::fd::BorrowedFd<'a>,
}

/// What became of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The status the shell claims.
    pub status: i32,
    /// From the terminal being handed over to its return.
    pub duration: Duration,
    /// Time on the processors, where that is known.
    pub cpu: Option<Duration>,
    /// Where the engine stood afterwards.
    pub cwd: PathBuf,
}

/// A line has led the engine to another directory.
pub struct Arrival<'a> {
    /// The line.
    pub line: &'a [u8],
    /// Whether a person typed it, see [`Submission::typed`].
    pub typed: bool,
    /// Where the engine stood before it, read from the kernel.
    pub from: &'a Path,
    /// Where it stands now, read from the kernel.
    pub to: &'a Path,
    /// What the engine's lines may use.
    pub names: &'a Names,
    /// The process id of the engine.
    pub engine: i32,
}

/// What the prompt says about the policy in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The policy's id.
    pub policy: String,
    /// `observe` or `enforce`.
    pub mode: String,
    /// What the kernel holds lines by: the level of the session's world, if that is worth a word.
    pub level: Option<String>,
}

/// One line of the past, for searching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// The line.
    pub line: String,
    /// Where it ran, if known.
    pub cwd: Option<PathBuf>,
    /// How it ended, if known.
    pub status: Option<i32>,
    /// How it was judged, if known.
    pub verdict: Option<String>,
}

/// Looks up lines of the past.
pub type Recall = Box<dyn FnOnce() -> Vec<Remembered>>;

/// The judge and recorder behind a prompt.
pub trait Gate {
    /// How the line would be judged now; asked while one types, so it must be quick and quiet.
    fn hint(&self, line: &[u8], cwd: &Path, names: &Names) -> Option<Hint>;

    /// Carries a complete line out: judges it, asks the person on the terminal where that is needed, has it run
    /// where it belongs, and records what became of it.
    ///
    /// The front end owns the terminal meanwhile, see [`FrontEnd::line_mode`]; what was typed
    /// ahead is still unread, so a prompt of the gate's must discard it first.
    fn submit(&self, submission: &Submission<'_>, front_end: &mut dyn FrontEnd) -> End;

    /// What the prompt shows about the policy for a directory.
    fn standing(&self, cwd: &Path) -> Standing;

    /// Finds older lines with what is known about them, oldest first, when somebody first
    /// searches for one.
    fn remembered(&self) -> Recall {
        Box::new(Vec::new)
    }

    /// The engine reads its start-up files: the time for work that need not come first.
    fn engine_starts(&self) {}

    /// From now on programs that the engine starts may need a person's word, or no more: while a
    /// line is edited nobody is asked. The descriptor can be read when somebody waits for it.
    fn listen(&self, wanted: bool) -> Option<OwnedFd> {
        let _ = wanted;
        None
    }

    /// Puts to the person what waits for his word. The terminal is in line mode.
    fn attend(&self) {}

    /// A prompt is about to be shown.
    fn before_prompt(&self) {}

    /// Completions that the engine cannot know, such as span ids: words for the last one given.
    fn complete(&self, words: &[OsString]) -> Vec<OsString> {
        let _ = words;
        Vec::new()
    }

    /// Whether the engine must be started anew where it has arrived, as it can do nothing there from where it
    /// lives. A person may be asked; the terminal is in line mode.
    fn leads_on(&self, arrival: &Arrival<'_>) -> bool {
        let _ = arrival;
        false
    }

    /// Prepares that; the engine is gone then. False if the new one lives like the old one.
    fn move_on(&self, engine: i32) -> bool {
        let _ = engine;
        false
    }

    /// The new engine is there, and is about to take up the state of the old one.
    fn moved_on(&self, engine: i32) {
        let _ = engine;
    }

    /// The engine ended without being asked to; a new one is about to start.
    fn engine_lost(&self, how: &str) {
        let _ = how;
    }
}
