//! The lines that programs are started for, as far as the judge of these starts has to know them.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use substrate_broker::ground::Use;
use substrate_broker::{Answer, Evaluation, Meaning};
use substrate_command::{Cwd, Word};
use substrate_sys::process_info;
use substrate_sys::real_path::real_path;
use substrate_text::wire;
use substrate_trace::{Component, SessionId, SpanId, SpanInfo};

use crate::questions::Desk;

/// How far up the chain of parents is followed.
const GENERATIONS: usize = 64;

/// A line that runs. It can be sent to whoever keeps the world that it runs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Its session.
    pub session: SessionId,
    /// Its span.
    pub span: SpanId,
    /// Whose it is.
    pub agent: String,
    /// Its writes are held back.
    pub isolated: bool,
    /// Where it began.
    #[serde(with = "wire")]
    pub cwd: PathBuf,
    /// As written.
    #[serde(with = "wire")]
    pub cmd: OsString,
    /// What its environment made of its words.
    pub environment: Meaning,
    /// A person has seen it as it stands, not only approved commands in it before.
    pub seen: bool,
    /// Commands of the line that a person has agreed to.
    pub agreed: Vec<Agreed>,
    /// It runs under a profile that a person trusts in place of the session's policy.
    pub replaced: bool,
}

/// A command that a person has agreed to, word by word, and where it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    /// The directory, links resolved.
    #[serde(with = "wire")]
    pub place: PathBuf,
    /// The words.
    #[serde(with = "wire::list")]
    pub words: Vec<OsString>,
}

impl Line {
    /// What has to be known of a line that was judged.
    pub fn new(span: &SpanInfo, evaluation: &Evaluation) -> Line {
        let seen = matches!(evaluation.answer, Answer::Ask(..));
        let asked = seen || !evaluation.approved.is_empty();
        let mut profiles = evaluation.profiles.iter();
        let replaced = profiles.any(|profile| profile.standing == Use::Replaced);
        let invocations = evaluation.line.invocations.iter();
        let agreed = invocations.filter(|_| asked || replaced).filter_map(|one| {
            Some(Agreed {
                place: place(&span.cwd, &one.cwd)?,
                words: values(&one.argv)?,
            })
        });
        Line {
            session: span.session_id,
            span: span.span_id,
            agent: span.agent_id.clone(),
            isolated: span.place == Some("isolated"),
            cwd: span.cwd.clone(),
            cmd: span.cmd.clone(),
            environment: evaluation.environment.clone(),
            seen,
            agreed: agreed.collect(),
            replaced,
        }
    }

    /// A span for something that happens below it.
    pub(crate) fn below(&self, component: Component, parent: Option<SpanId>) -> SpanInfo {
        let mut span = SpanInfo::new(component, self.session, Some(parent.unwrap_or(self.span)));
        span.agent_id = self.agent.clone();
        span.place = Some(if self.isolated { "isolated" } else { "session" });
        span
    }

    /// Its own span, as far as others have to know it.
    pub fn span(&self) -> SpanInfo {
        SpanInfo {
            span_id: self.span,
            parent_span: None,
            cwd: self.cwd.clone(),
            cmd: self.cmd.clone(),
            ..self.below(Component::Shell, None)
        }
    }
}

/// The words, when all of them are known.
fn values(words: &[Word]) -> Option<Vec<OsString>> {
    use std::os::unix::ffi::OsStringExt;
    let values = words.iter().map(|word| word.value());
    values
        .map(|value| Some(OsString::from_vec(value?.to_vec())))
        .collect()
}

/// The directory that a command of a line runs in, links resolved.
fn place(start: &Path, cwd: &Cwd) -> Option<PathBuf> {
    let path = match cwd {
        Cwd::Start => start.to_owned(),
        Cwd::Unknown => return None,
        Cwd::Moved(steps) => values(steps)?
            .iter()
            .fold(start.to_owned(), |at, step| at.join(step)),
    };
    real_path(path).ok()
}

/// An environment.
pub type Environment = Vec<(OsString, OsString)>;

/// A line, and what belongs to it while it runs.
pub(crate) struct Running {
    pub line: Line,
    /// What its environment was before anything changed it; that of the session where it does not say.
    pub first: Option<Environment>,
    /// Where questions about what it starts go; those of the session where it has none.
    pub desk: Option<Mutex<Desk>>,
}

/// The lines that run in a world.
#[derive(Default)]
pub(crate) struct Lines {
    /// The session's: whatever belongs to no command below.
    session: Option<Arc<Running>>,
    commands: Vec<Command>,
}

/// A command that runs beside others, and all that it starts.
struct Command {
    tag: u32,
    /// Known as soon as it is about to begin.
    process: Option<i32>,
    running: Arc<Running>,
}

impl Lines {
    /// The session's line is this from here on.
    pub fn begin(&mut self, running: Running) {
        self.session = Some(Arc::new(running));
    }

    /// A command with this tag is about to be asked for.
    pub fn expect(&mut self, tag: u32, running: Running) {
        self.commands.push(Command {
            tag,
            process: None,
            running: Arc::new(running),
        });
    }

    /// The command with this tag.
    pub fn expected(&self, tag: u32) -> Option<Arc<Running>> {
        let command = self.commands.iter().find(|command| command.tag == tag);
        command.map(|command| Arc::clone(&command.running))
    }

    /// This process becomes it.
    pub fn begins(&mut self, process: i32, tag: u32) {
        let mut commands = self.commands.iter_mut();
        if let Some(command) = commands.find(|command| command.tag == tag) {
            command.process = Some(process);
        }
    }

    /// It has ended. What it left in the background belongs to the session.
    pub fn end(&mut self, tag: u32) {
        self.commands.retain(|command| command.tag != tag);
    }

    /// The line that something of a thread belongs to.
    pub fn of(&self, thread: i32) -> Option<Arc<Running>> {
        if !self.commands.is_empty()
            && let Some(running) = self.command_above(thread)
        {
            return Some(running);
        }
        self.session.clone()
    }

    fn command_above(&self, thread: i32) -> Option<Arc<Running>> {
        let command = |process: i32| {
            let mut commands = self.commands.iter();
            let found = commands.find(|command| command.process == Some(process));
            found.map(|command| Arc::clone(&command.running))
        };
        if let Some(running) = command(thread) {
            return Some(running);
        }
        let mut process = process_of(thread)?;
        for _ in 0..GENERATIONS {
            if let Some(running) = command(process) {
                return Some(running);
            }
            process = parent(process)?;
        }
        None
    }
}

/// The process of a thread.
fn process_of(thread: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

/// The process above another, up to the first of a world.
pub(crate) fn parent(process: i32) -> Option<i32> {
    let parent = process_info::parent(process.unsigned_abs()).ok()?;
    i32::try_from(parent).ok().filter(|parent| *parent > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(cmd: &str) -> Running {
        let line = Line {
            session: SessionId::new(),
            span: SpanId::new(),
            agent: "human".into(),
            isolated: false,
            cwd: "/".into(),
            cmd: cmd.into(),
            environment: Meaning::default(),
            seen: false,
            agreed: Vec::new(),
            replaced: false,
        };
        Running {
            line,
            first: None,
            desk: None,
        }
    }

    #[test]
    fn a_start_belongs_to_the_command_that_is_above_it() {
        let mut lines = Lines::default();
        let me = std::process::id().cast_signed();
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let below = child.id().cast_signed();
        let of = |lines: &Lines, thread| lines.of(thread).map(|running| running.line.cmd.clone());
        assert_eq!(of(&lines, below), None);
        lines.begin(running("session"));
        lines.expect(7, running("one"));
        lines.expect(8, running("two"));
        assert_eq!(of(&lines, below), Some("session".into()));
        lines.begins(me, 8);
        assert_eq!(of(&lines, below), Some("two".into()));
        // A thread that is not the first of its process.
        let own_number = || {
            let path = fs::read_link("/proc/thread-self").unwrap();
            path.file_name().unwrap().to_str().unwrap().parse().unwrap()
        };
        let seen = std::thread::scope(|scope| {
            let ask = || lines.of(own_number());
            scope.spawn(ask).join().unwrap()
        });
        assert_eq!(
            seen.map(|running| running.line.cmd.clone()),
            Some("two".into())
        );
        lines.begins(below, 7);
        assert_eq!(of(&lines, below), Some("one".into()));
        lines.end(7);
        lines.end(8);
        assert_eq!(of(&lines, below), Some("session".into()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_line_can_be_sent() {
        let mut line = running("a").line;
        line.agreed.push(Agreed {
            place: "/x".into(),
            words: vec!["a\u{e9}".into(), "b".into()],
        });
        let text = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
    }
}
