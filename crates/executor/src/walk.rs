//! The path of a command, whoever it is run for and however: judge, ask, place, begin, run, settle, finish.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use substrate_broker::{Answer, Evaluation, Input, Request, Terms};
use substrate_command::is_builtin;
use substrate_runtime::supervise::Ending;
use substrate_text::command_line;
use substrate_trace::{Completion, Event, SpanInfo};

use crate::approval;
use crate::contained::{self, Contained};
use crate::exit_status::{DENIED, FAILED};
use crate::front::Kind;
use crate::preview::Trial;
use crate::recording;
use crate::session::Session;
use crate::snapshot::{self, Before};

/// What is to be judged, and what the trace shows of it.
pub struct Command<'a> {
    /// What the broker is asked.
    pub request: Request<'a>,
    /// The command as one line.
    pub cmd: OsString,
    /// Its exact words, where it is more than that line.
    pub argv: Vec<OsString>,
}

/// How the commands of one door are run: once, by an engine, from a stream, in front of a tool, again. It says
/// what is special about them; the walk is the same for all.
pub trait Way {
    /// Judges.
    fn judge(&mut self, session: &Session, request: &Request<'_>) -> Evaluation {
        session.broker.evaluate(request)
    }

    /// What is recorded of a command.
    fn span(
        &mut self,
        session: &Session,
        evaluation: &Evaluation,
        command: &Command<'_>,
    ) -> SpanInfo {
        let (cmd, argv) = (command.cmd.clone(), command.argv.clone());
        session.span(evaluation, cmd, argv, command.request.cwd)
    }

    /// Whether anybody has to permit it, once it is judged.
    fn passage(&mut self, _: &Session, _: &Evaluation, _: &mut SpanInfo) -> Passage {
        Passage::Judged
    }

    /// Names that mean something else to its shell, for a line that a person may see tried before he answers.
    fn known_names(&mut self) -> Option<Vec<OsString>> {
        None
    }

    /// Whether the project is compared before and after.
    fn compares(&self, _: &Evaluation) -> bool {
        true
    }

    /// Whether what runs here leaves a record of its own.
    fn is_recorded(&self) -> bool {
        true
    }

    /// Where a command runs that may: on terms, unless nobody had to permit it.
    fn place<'w>(
        &'w mut self,
        session: &'w Session,
        evaluation: &'w Evaluation,
        terms: Option<&'w Terms>,
        span: &mut SpanInfo,
    ) -> Result<Placed<'w>, NotRun>;
}

/// What stands between a judged command and its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// The judgement.
    Judged,
    /// Nothing.
    Free,
    /// It does not run, which was said; this is its status.
    Closed(i32),
}

/// Where a permitted command runs.
pub enum Placed<'w> {
    /// In a world.
    World(Contained<'w>),
    /// As its door runs commands.
    Here(Here<'w>),
}

/// A command that its door runs by itself.
pub struct Here<'w> {
    /// The program, to be noted for a replay.
    pub program: Option<&'w Path>,
    /// Whether a person lets it run although it cannot be recorded.
    pub unrecorded: Box<dyn FnOnce() -> bool + 'w>,
    /// Runs it to its end.
    pub run: Box<dyn FnOnce(&SpanInfo) -> Ran + 'w>,
}

impl<'w> Here<'w> {
    /// What is run like this, and only on record.
    pub fn new(run: impl FnOnce(&SpanInfo) -> Ran + 'w) -> Self {
        Self {
            program: None,
            unrecorded: Box::new(|| false),
            run: Box::new(run),
        }
    }
}

/// Why a permitted command does not run.
pub struct NotRun {
    /// Its status.
    pub status: i32,
    /// What is said, unless it was said already.
    pub why: String,
}

impl NotRun {
    /// One with a status and a reason.
    pub fn new(status: i32, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { status, why }
    }
}

/// What became of a command that ran here.
#[derive(Default)]
pub struct Ran {
    /// How it ended, as far as that is known.
    pub ending: Option<Ending>,
    /// What else is known of it; nothing where its end is recorded by whoever sees it.
    pub done: Option<Completion>,
}

/// How a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing ran.
    Refused(i32),
    /// It ran in a world.
    Contained(Ending),
    /// It ran here.
    Here(Option<Ending>),
}

impl Outcome {
    /// How it ended for whoever waits.
    pub fn ending(self) -> Ending {
        match self {
            Outcome::Refused(status) => Ending::Exit(status),
            Outcome::Contained(ending) => ending,
            Outcome::Here(ending) => ending.unwrap_or(Ending::Exit(0)),
        }
    }
}

/// Walks a command from request to record.
pub fn walk(session: &Session, command: &Command<'_>, way: &mut dyn Way) -> Outcome {
    // Judge.
    let evaluation = way.judge(session, &command.request);
    session.heed_policy_changes();
    let mut span = way.span(session, &evaluation, command);

    // Ask.
    let terms = match way.passage(session, &evaluation, &mut span) {
        Passage::Closed(status) => return Outcome::Refused(status),
        Passage::Free => None,
        Passage::Judged => {
            let known = match evaluation.answer {
                Answer::Ask(..) => way.known_names(),
                _ => None,
            };
            let trial = trial(session, command, &evaluation, &span, known.as_deref());
            let permit = approval::permit(
                session,
                &command.request,
                &evaluation,
                &span,
                trial.as_ref(),
            );
            let Some(permit) = permit else {
                return Outcome::Refused(DENIED);
            };
            if let Some(preview) = permit.preview {
                return Outcome::Contained(preview.apply(session, span));
            }
            Some(permit.terms)
        }
    };

    // Place.
    let compares = way.compares(&evaluation);
    let recorded = way.is_recorded();
    let placed = match way.place(session, &evaluation, terms, &mut span) {
        Ok(placed) => placed,
        Err(NotRun { status, why }) => {
            if !why.is_empty() {
                session.front.say(Kind::Failed, &why);
            }
            if recorded {
                let done = Completion {
                    exit: Some(status),
                    ..Completion::default()
                };
                session.complete(&span, &done);
            }
            return Outcome::Refused(status);
        }
    };

    // Begin.
    let before = match compares {
        true => Before::take(session, &mut span),
        false => None,
    };
    let program = match &placed {
        Placed::World(job) => Some(Path::new(OsStr::from_bytes(job.program.as_bytes()))),
        Placed::Here(here) => here.program.filter(|_| before.is_some()),
    };
    if let Some(program) = program {
        recording::circumstances(session, &evaluation, program, &mut span);
    }

    // Run, settle, finish; a world begins when it is ready, and settles what it held back.
    let here = match placed {
        Placed::World(job) => {
            return Outcome::Contained(contained::run(session, &job, span, before));
        }
        Placed::Here(here) => here,
    };
    span.place.get_or_insert("direct");
    if !recorded {
        return Outcome::Here((here.run)(&span).ending);
    }
    if !session.record_start(&span) && !(here.unrecorded)() {
        return Outcome::Refused(FAILED);
    }
    let ran = (here.run)(&span);
    let ending = ran.ending;
    if let Some(done) = ran.done {
        record_builtins(session, &evaluation, &span);
        finish(session, &span, before, ending, done);
    }
    Outcome::Here(ending)
}

/// What a person may see of a line before he answers.
fn trial<'a>(
    session: &'a Session,
    command: &Command<'a>,
    evaluation: &'a Evaluation,
    span: &'a SpanInfo,
    known: Option<&[OsString]>,
) -> Option<Trial<'a>> {
    let Input::Line(line) = command.request.input else {
        return None;
    };
    let known: Vec<&[u8]> = known?.iter().map(|name| name.as_bytes()).collect();
    Trial::of(session, line, command.request.cwd, evaluation, span, &known)
}

/// Records how a command that ran here ended, and what it changed.
fn finish(
    session: &Session,
    span: &SpanInfo,
    before: Option<Before>,
    ending: Option<Ending>,
    done: Completion,
) {
    let kept = before.is_some();
    let fs_diff = before.and_then(Before::changes);
    let written: Vec<OsString> = recording::write_scopes(fs_diff.as_ref()).collect();
    let mut done = Completion {
        exit: ending.map(Ending::status),
        signal: match ending {
            Some(Ending::Signal(signal)) => Some(signal),
            _ => None,
        },
        fs_diff,
        ..done
    };
    done.scopes_used.splice(0..0, written);
    session.complete(span, &done);
    if kept {
        snapshot::keep_within_share(session);
    }
}

/// Builtins change the shell, not the machine; each leaves a span of its own under the line's.
fn record_builtins(session: &Session, evaluation: &Evaluation, line: &SpanInfo) {
    for invocation in &evaluation.line.invocations {
        let name = invocation.argv.first().and_then(|word| word.value());
        if !name.is_some_and(is_builtin) || !invocation.via.is_empty() {
            continue;
        }
        let words: Vec<OsString> = invocation
            .argv
            .iter()
            .map(|word| OsString::from_vec(word.text().into_owned()))
            .collect();
        let mut span = session.span(evaluation, command_line(&words), words, &line.cwd);
        span.parent_span = Some(line.span_id);
        span.replay = None;
        session.record_or_warn(&Event::builtin_command(&span, &Completion::default()));
    }
}
