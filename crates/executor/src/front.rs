//! The side that commands are run for: what it is told, how it is asked, what it chooses at the end.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd};

use serde::{Deserialize, Serialize};
use substrate_broker::Caller;
use substrate_broker::approvals::Approved;
use substrate_broker::person::Barrier;
use substrate_changes::patch::Paint;
use substrate_sys::terminal::Size;
use substrate_trace::{Answer, Completion, SpanInfo, Stdin};
use substrate_world::backend::{Held, Master};
use substrate_world::progress::Progress;

/// Kinds of notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Something was refused.
    Refused,
    /// Something is not as it should be, and work goes on.
    Warning,
    /// Substrate itself failed.
    Failed,
    /// Something worth knowing.
    Info,
    /// Something was done that somebody waited for.
    Done,
}

impl Kind {
    /// What a notice begins with.
    pub fn sign(self, unicode: bool) -> &'static str {
        match (self, unicode) {
            (Kind::Refused, true) => "🔒 ",
            (Kind::Warning, true) => "⚠️  substrate: ",
            (Kind::Warning, false) => "substrate: warning: ",
            (Kind::Done, true) => "\u{2713} ",
            _ => "substrate: ",
        }
    }
}

/// Whether an environment lets characters beyond ASCII be shown.
pub fn shows_unicode(variable: impl Fn(&str) -> Option<Vec<u8>>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| variable(name).filter(|value| !value.is_empty()))
        .unwrap_or_default()
        .to_ascii_uppercase();
    let has = |word: &[u8]| locale.windows(word.len()).any(|part| part == word);
    has(b"UTF-8") || has(b"UTF8")
}

/// A terminal, a shim, a replay or the client of a service.
pub trait Front: Send + Sync {
    /// Says something.
    fn say(&self, kind: Kind, text: &str);

    /// The same while a command has the terminal, which may be in raw mode then.
    fn say_beside(&self, kind: Kind, text: &str) {
        self.say(kind, text);
    }

    /// Hears how a command ended, or that it was refused and did not begin.
    fn ended(&self, _: &SpanInfo, _: Option<&Completion>) {}

    /// What is said, as one line without colours: for the standard error of a command.
    fn line(&self, kind: Kind, text: &str) -> String;

    /// What stands between this side and a person who could approve something for the caller.
    fn barrier(&self, caller: &Caller) -> Option<Barrier>;

    /// Puts a question to the person.
    fn ask(&self, inquiry: &dyn Inquiry) -> io::Result<Given>;

    /// Lets a person choose what becomes of a result; `None` when nobody is there.
    fn settle(&self, held: &Held, about: &dyn HeldChanges) -> Option<Choice>;

    /// Hears how far a long piece of work has come, until dropped.
    fn progress(&self) -> Box<dyn FnMut(Progress) -> bool>;

    /// What a command reads and writes; asked for once a command.
    fn streams(&self) -> io::Result<Streams>;

    /// What standard input is, without looking into it.
    fn stdin(&self) -> Stdin {
        Stdin::Unknown
    }

    /// Standard input where it is a file, from where the command will read it.
    fn stdin_file(&self) -> Option<File> {
        None
    }
}

/// What a person who chooses may know of a result.
pub trait HeldChanges {
    /// What it consists of, in a few words.
    fn sentence(&self) -> &str;

    /// Shows every change.
    fn show(&self, screen: &mut dyn Write, paint: Paint) -> Result<(), String>;
}

/// A question to a person: what it is about, what can be tried and what would be remembered.
pub trait Inquiry {
    /// Whether an answer can be remembered; else it is once or not at all.
    fn can_be_remembered(&self) -> bool;

    /// Whether the line can be tried where nothing of it is real, and has not been yet.
    fn can_be_tried(&self) -> bool;

    /// Whether it was tried, so that its changes can be shown.
    fn was_tried(&self) -> bool;

    /// Tries the line where it can do no harm, and says what it would change.
    fn try_out(&self) -> String;

    /// Shows in full what trying it came to.
    fn show(&self, screen: &mut dyn Write, paint: Paint) -> Result<(), String>;

    /// What an answer for longer would remember.
    fn proposed(&self) -> &[Approved];

    /// Whether a pattern that a person typed still covers what is asked about; `at` counts the proposals.
    fn fits(&self, at: usize, pattern: &str) -> Result<(), String>;

    /// A variable of the environment that the question is asked in.
    fn variable(&self, name: &str) -> Option<&OsStr>;

    /// The question in full, with everything that a stranger wrote made visible.
    fn text(&self) -> String;
}

/// The standard streams of a command.
pub enum Streams {
    /// Those of this process, which the front has.
    Own(Box<dyn OwnStreams>),
    /// Somebody else's, who may lose interest in the command.
    Given(GivenStreams),
}

/// The standard streams of this process, which whatever it starts inherits.
pub trait OwnStreams: Send {
    /// Where a stream leads.
    fn copy(&self, number: u8) -> io::Result<OwnedFd>;

    /// Leads a stream elsewhere, and answers where it led.
    fn replace(&self, number: u8, with: BorrowedFd<'_>) -> io::Result<OwnedFd>;

    /// Leads a stream where it led before.
    fn put_back(&self, number: u8, before: OwnedFd) -> io::Result<()>;
}

/// Streams that are not this process's.
#[derive(Debug)]
pub struct GivenStreams {
    /// Which.
    pub stdio: GivenStdio,
    /// Readable once nobody waits for the command any more: then it is ended.
    pub abandoned: Option<OwnedFd>,
}

/// What a command reads and writes for somebody else.
#[derive(Debug)]
pub enum GivenStdio {
    /// These.
    Streams([OwnedFd; 3]),
    /// A terminal of its own, of this size, whose master goes there.
    Terminal(Size, Master),
}

/// What a person answered.
#[derive(Debug, Serialize, Deserialize)]
pub struct Given {
    /// The answer.
    pub answer: Answer,
    /// What is remembered of it.
    pub what: Vec<Approved>,
    /// A no that holds until the session ends.
    #[serde(default)]
    pub for_session: bool,
}

impl Given {
    /// Nobody said yes.
    pub fn denied() -> Self {
        Self {
            answer: Answer::Refused,
            what: Vec::new(),
            for_session: false,
        }
    }

    pub(crate) fn patterns(&self) -> Option<String> {
        let texts: Vec<&str> = self.what.iter().map(Approved::text).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// What becomes of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// It is put on the host.
    Apply,
    /// It waits.
    Keep,
    /// It is thrown away.
    Discard,
}
