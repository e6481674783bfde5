//! `substrate replay`: recorded commands once more, in fresh worlds, and what differs.

mod drift;
mod report;
mod select;

use crate::asker::Asker;
use crate::worlds::begin;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use substrate_executor::session::Session;
use substrate_executor::snapshot;
use substrate_executor::walk::{Command, Here, NotRun, Passage, Placed, Ran, Way, walk};

use serde_json::json;
use substrate_broker::{Answer, Around, Evaluation, Input, Origin, Request, Terms};
use substrate_executor::exit_status::{DENIED, FAILED};
use substrate_executor::front::Kind;
use substrate_executor::guarded::StartJudge;
use substrate_executor::recording;
use substrate_executor::worlds::{Oversight, Wire};
use substrate_policy::terms::{Place, WorldSpec};
use substrate_replay::{Accepted, Again, Outcome, Past, Refusal, Run, Warning, accept};
use substrate_runtime::supervise::Ending;
use substrate_shell::notice::Notices;
use substrate_sys::environment;
use substrate_trace::read::{Reader, Record};
use substrate_trace::{Component, Key, Redactor, Retention, SessionId, SpanInfo, Writer, denial};
use substrate_world::backend::WorldBackend;

use super::trace::look::Look;
use crate::failure::Failure;
use crate::out;
use crate::replay_args::ReplayArgs;

/// Replays: 0 the same, 1 not, 126 denied today, 125 not possible.
pub fn run(asker: &Asker, args: ReplayArgs) -> Ending {
    let notices = Notices::new(&environment::raw());
    match replay(asker, args, notices) {
        Ok(status) => Ending::Exit(status),
        Err(failure) => {
            notices.say(Kind::Failed, &failure.to_string());
            Ending::Exit(failure.run_code())
        }
    }
}

fn replay(asker: &Asker, mut args: ReplayArgs, notices: Notices) -> Result<i32, Failure> {
    let broker = asker.broker(args.policy.take())?;
    let session = begin(broker, environment::raw(), notices);
    let broker = &session.broker;
    let home = broker.home().path.clone();
    let records = select::select(&Reader::open(&home)?, &args)?;
    let key = Key::existing(&home)?;
    let redactor = Redactor::new(&broker.policy().settings().redact);
    let again = Again::new(&home, &key, &redactor);
    if records.len() > 1 {
        // Without it, spans that need no snapshot can still be run.
        let _ = again.several();
    }
    let several = records.len() > 1 || args.last.is_some_and(|n| n > 1) || args.session.is_some();
    let replays = Replays {
        session: &session,
        notices,
        look: Look::new(asker),
        key: &key,
        redactor: &redactor,
        several,
        args,
        again,
    };
    replays.all(&records)
}

/// What became of one span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Same,
    Different,
    /// The new result is the record now.
    Updated,
    /// It cannot be run again, which says nothing about the next one.
    Cannot,
    /// The trace is in doubt, or something failed: nothing more is run.
    Failed,
    Denied,
}

impl End {
    fn code(self) -> i32 {
        match self {
            End::Same | End::Updated => 0,
            End::Different => 1,
            End::Cannot | End::Failed => FAILED,
            End::Denied => DENIED,
        }
    }
}

struct Replays<'a> {
    session: &'a Session,
    notices: Notices,
    look: Look,
    key: &'a Key,
    redactor: &'a Redactor,
    several: bool,
    args: ReplayArgs,
    again: Again<'a>,
}

impl Replays<'_> {
    fn all(mut self, records: &[Record]) -> Result<i32, Failure> {
        let chained = self.args.session.is_some();
        let mut ends = Vec::new();
        for record in records {
            let end = self.one(record, chained)?;
            ends.push(end);
            let diverged = chained && end == End::Different;
            if diverged || matches!(end, End::Failed | End::Denied) {
                break;
            }
        }
        if self.several && !self.args.json {
            out::print(&summary(&ends, records.len()))?;
        }
        // What differs says more than what could not be run; a refusal says most.
        let worst = [End::Denied, End::Failed, End::Different, End::Cannot];
        let worst = worst.iter().find(|end| ends.contains(end));
        Ok(worst.map_or(0, |end| end.code()))
    }

    fn one(&mut self, record: &Record, chained: bool) -> Result<End, Failure> {
        let home = self.session.broker.home().path.clone();
        let past = match Past::new(&home, self.key, record, self.args.here) {
            Ok(past) => past,
            Err(refusal) => return self.refused(record, &refusal),
        };
        let (line, search_path) = (past.line(), past.context.path.clone());
        let search_path = search_path.unwrap_or_default();
        let command = Command {
            request: Request {
                input: match past.argv() {
                    Some(argv) => Input::Argv(argv),
                    None => Input::Line(line.as_bytes()),
                },
                origin: Origin::Replay,
                cwd: &past.cwd,
                search_path: &search_path,
                variables: &[],
                aliases: &[],
                isolate: true,
                around: Around::Nothing,
            },
            cmd: line.clone(),
            argv: Vec::new(),
        };
        let mut once_more = OnceMore {
            past: &past,
            key: self.key,
            chained,
            keep: self.args.keep,
            search_path: &search_path,
            again: &mut self.again,
            warnings: Vec::new(),
            found: Found::Refused(String::new()),
        };
        walk(self.session, &command, &mut once_more);
        let (found, mut warnings) = (once_more.found, once_more.warnings);
        let mut outcome = match found {
            Found::Outcome(outcome) => *outcome,
            // It was said and recorded where all refusals are.
            Found::Refused(why) => {
                self.answer(record, End::Denied, &why)?;
                return Ok(End::Denied);
            }
            Found::Failed(why) => return self.stopped(record, End::Failed, Kind::Failed, &why),
        };
        warnings.extend(drift::held(&past, &outcome.enforced));
        outcome.warnings.splice(0..0, warnings);
        let updated = self.args.update && !outcome.is_same();
        if updated {
            self.accept(&past, &outcome)?;
        }
        self.tell(&past, &outcome, updated)?;
        Ok(match (outcome.is_same(), updated) {
            (true, _) => End::Same,
            (false, true) => End::Updated,
            (false, false) => End::Different,
        })
    }

    fn tell(&self, past: &Past, outcome: &Outcome, updated: bool) -> Result<(), Failure> {
        if self.args.json {
            let line = format!("{}\n", report::json(past, outcome, updated));
            return Ok(out::print(&line)?);
        }
        let mut text = String::new();
        if self.args.verbose {
            text.push_str(&report::verbose(outcome));
        }
        let word = report::verdict(outcome, updated);
        let compared = report::compared(outcome);
        match self.several {
            true => text.push_str(&report::head(&self.look, past, word, &compared)),
            false => {
                let verdict = self.look.tint(word.1, word.0);
                text.push_str(&format!("{verdict}{compared}\n"));
            }
        }
        if !self.args.verbose {
            text.push_str(&report::drift(outcome));
        }
        text.push_str(&report::differences(&self.look, outcome));
        Ok(out::print(&text)?)
    }

    fn refused(&self, record: &Record, refusal: &Refusal) -> Result<End, Failure> {
        let end = match refusal.is_doubt() {
            true => End::Failed,
            false => End::Cannot,
        };
        self.stopped(record, end, Kind::Failed, &refusal.to_string())
    }

    /// Says why a span was not run.
    fn stopped(&self, record: &Record, end: End, kind: Kind, why: &str) -> Result<End, Failure> {
        let id = self.answer(record, end, why)?;
        self.notices
            .say(kind, &format!("cannot replay {id}: {why}"));
        Ok(end)
    }

    /// Answers a program that there is no comparison.
    fn answer(&self, record: &Record, end: End, why: &str) -> Result<String, Failure> {
        let id = substrate_text::visible(record.span.span_id.as_bytes());
        if self.args.json {
            let verdict = match end {
                End::Denied => "denied",
                _ => "impossible",
            };
            let line = json!({"span_id": id, "verdict": verdict, "same": null, "why": why});
            out::print(&format!("{line}\n"))?;
        }
        Ok(id)
    }

    /// Makes the new result the record.
    fn accept(&self, past: &Past, outcome: &Outcome) -> Result<(), Failure> {
        let home = &self.session.broker.home().path;
        let info = self.session.broker.info();
        let tools = past.context.tools.iter().map(|tool| tool.path.clone());
        let now = Accepted {
            policy_id: info.id.clone(),
            policy_hash: info.sha256.clone(),
            mode: info.mode,
            world_image_version: recording::image(outcome.enforced.level.as_str()),
            tools: substrate_snapshots::tools(home, &tools.collect::<Vec<_>>()),
        };
        let writer = Writer::open_with(home, Retention::default(), self.redactor.clone())?;
        match accept(&writer, past, outcome, now)? {
            true => Ok(()),
            false => Err(Failure::Missing(
                "the span's ids are not ones that can be written".to_owned(),
            )),
        }
    }
}

/// A recorded command, once more.
struct OnceMore<'r, 'a> {
    past: &'r Past,
    key: &'r Key,
    chained: bool,
    keep: bool,
    search_path: &'r OsStr,
    again: &'r mut Again<'a>,
    warnings: Vec<Warning>,
    found: Found,
}

/// What running it again came to.
enum Found {
    Outcome(Box<Outcome>),
    /// By today's policy, in these words.
    Refused(String),
    Failed(String),
}

impl Way for OnceMore<'_, '_> {
    /// What is asked, refused and started again belongs to the span that is replayed.
    fn span(&mut self, _: &Session, evaluation: &Evaluation, command: &Command<'_>) -> SpanInfo {
        let past = &self.past.span;
        let session = past.session_id.parse();
        let session = session.unwrap_or_else(|_| SessionId::new());
        let mut span = SpanInfo::new(Component::Replay, session, None);
        if let Ok(id) = past.span_id.parse() {
            span.span_id = id;
        }
        span.policy_id.clone_from(&evaluation.policy.id);
        span.mode = evaluation.policy.mode;
        span.cwd = command.request.cwd.to_owned();
        span.cmd.clone_from(&command.cmd);
        span
    }

    fn passage(&mut self, _: &Session, evaluation: &Evaluation, _: &mut SpanInfo) -> Passage {
        let (rule, why) = match &evaluation.answer {
            Answer::Deny(rule) => (rule.as_ref(), "a replay is judged by today's policy"),
            Answer::Ask(_, rule) => (rule.as_ref(), "today it needs a person's approval"),
            Answer::Allow(_) => (None, ""),
        };
        self.found = Found::Refused(denial(&evaluation.policy.id, rule, why));
        Passage::Judged
    }

    /// It starts from the files of then, and is compared with what they were afterwards.
    fn compares(&self, _: &Evaluation) -> bool {
        false
    }

    /// Its record is the one that it is compared with.
    fn is_recorded(&self) -> bool {
        false
    }

    fn place<'w>(
        &'w mut self,
        session: &'w Session,
        evaluation: &'w Evaluation,
        terms: Option<&'w Terms>,
        _: &mut SpanInfo,
    ) -> Result<Placed<'w>, NotRun> {
        let Some(Place::Isolated(spec)) = terms.map(|terms| &terms.place) else {
            let why =
                "today's policy has no world for it (`world.enabled`), and a replay needs one";
            self.found = Found::Failed(why.to_owned());
            return Err(NotRun::new(FAILED, ""));
        };
        Ok(Placed::Here(Here::new(|span| {
            self.found = self
                .run(session, evaluation, spec, span)
                .unwrap_or_else(Found::Failed);
            Ran::default()
        })))
    }
}

impl OnceMore<'_, '_> {
    fn run(
        &mut self,
        session: &Session,
        evaluation: &Evaluation,
        spec: &WorldSpec,
        span: &SpanInfo,
    ) -> Result<Found, String> {
        let past = self.past;
        let private = snapshot::private(&session.broker, past.root.as_deref());
        self.warnings.extend(drift::around(&session.broker, past));
        let (env, warning) = drift::environment(past, self.key);
        self.warnings.extend(warning);
        let (stdin, warning) = drift::stdin(past, self.key);
        self.warnings.extend(warning);
        let backend = self.world(session, evaluation, span);
        let backend = backend.map_err(|error| error.to_string())?;
        let run = Run {
            backend: backend.as_ref(),
            spec,
            private,
            env,
            stdin,
            chained: self.chained,
            keep: self.keep,
        };
        let outcome = self.again.run(past, run);
        let outcome = outcome.map_err(|error| error.to_string())?;
        Ok(Found::Outcome(Box::new(outcome)))
    }

    /// What makes its world: every program start in there is judged by today's policy too, and
    /// what is refused belongs to the span.
    fn world(
        &self,
        session: &Session,
        evaluation: &Evaluation,
        span: &SpanInfo,
    ) -> std::io::Result<Box<dyn WorldBackend>> {
        let front = Arc::clone(&session.front);
        let judge = StartJudge::replaying(&session.broker, front, self.search_path);
        judge.begin_line(span, evaluation);
        let wire = Wire {
            on_event: Arc::new(|_| ()),
            spent: session.broker.egress_cells()?,
            following: None,
            services: Vec::new(),
        };
        Ok(session.worlds.backend(Oversight {
            judge: Some(Arc::new(judge)),
            network: Some(wire),
            borrowing: None,
        }))
    }
}

/// One line about several spans.
fn summary(ends: &[End], asked: usize) -> String {
    let count = |wanted: End| ends.iter().filter(|end| **end == wanted).count();
    let mut parts = vec![format!("{} the same", count(End::Same))];
    for (end, text) in [
        (End::Different, "different"),
        (End::Updated, "updated"),
        (End::Cannot, "not replayable"),
        (End::Failed, "failed"),
        (End::Denied, "denied"),
    ] {
        if count(end) > 0 {
            parts.push(format!("{} {text}", count(end)));
        }
    }
    let left = match asked - ends.len() {
        0 => String::new(),
        left => format!("; stopped, {left} not run"),
    };
    format!("{} of {asked}: {}{left}\n", ends.len(), parts.join(", "))
}
