//! `substrate replay`: recorded commands once more, in fresh worlds, and what differs.

mod drift;
mod report;
mod select;

use crate::asker::Asker;
use crate::worlds::begin;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use substrate_executor::approval;
use substrate_executor::session::Session;

use serde_json::json;
use substrate_broker::{Answer, Around, Evaluation, Input, Origin, Request};
use substrate_executor::exit_status::{DENIED, FAILED};
use substrate_executor::front::Kind;
use substrate_executor::guarded::StartJudge;
use substrate_executor::recording;
use substrate_executor::worlds::{Oversight, Wire, Worlds};
use substrate_policy::terms::Place;
use substrate_replay::{Accepted, Again, Past, Refusal, Run, accept};
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
use crate::worlds::ThisMachine;

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
        let request = Request {
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
        };
        let evaluation = self.session.broker.evaluate(&request);
        let span = span(&past, &evaluation);
        let permit = approval::permit(self.session, &request, &evaluation, &span, None);
        let Some(permit) = permit else {
            return self.denied(record, &evaluation);
        };
        let Place::Isolated(spec) = &permit.terms.place else {
            let why =
                "today's policy has no world for it (`world.enabled`), and a replay needs one";
            return self.stopped(record, End::Failed, Kind::Failed, why);
        };
        let private =
            substrate_executor::snapshot::private(&self.session.broker, past.root.as_deref());
        let mut warnings = drift::around(&self.session.broker, &past);
        let (env, warning) = drift::environment(&past, self.key);
        warnings.extend(warning);
        let (stdin, warning) = drift::stdin(&past, self.key);
        warnings.extend(warning);
        let backend = match self.world(&span, &evaluation, &search_path) {
            Ok(backend) => backend,
            Err(error) => {
                let text = error.to_string();
                return self.stopped(record, End::Failed, Kind::Failed, &text);
            }
        };
        let run = Run {
            backend: backend.as_ref(),
            spec,
            private,
            env,
            stdin,
            chained,
            keep: self.args.keep,
        };
        let mut outcome = match self.again.run(&past, run) {
            Ok(outcome) => outcome,
            Err(error) => {
                let text = error.to_string();
                return self.stopped(record, End::Failed, Kind::Failed, &text);
            }
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

    fn tell(
        &self,
        past: &Past,
        outcome: &substrate_replay::Outcome,
        updated: bool,
    ) -> Result<(), Failure> {
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

    /// A refusal was said and recorded where all are.
    fn denied(&self, record: &Record, evaluation: &Evaluation) -> Result<End, Failure> {
        let why = match &evaluation.answer {
            Answer::Deny(rule) => (rule, "a replay is judged by today's policy"),
            Answer::Ask(_, rule) => (rule, "today it needs a person's approval"),
            Answer::Allow(_) => (&None, ""),
        };
        let text = denial(&evaluation.policy.id, why.0.as_ref(), why.1);
        self.answer(record, End::Denied, &text)?;
        Ok(End::Denied)
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

    /// What makes its world: every program start in there is judged by today's policy too, and
    /// what is refused belongs to the span.
    fn world(
        &self,
        span: &SpanInfo,
        evaluation: &Evaluation,
        search_path: &OsStr,
    ) -> std::io::Result<Box<dyn WorldBackend>> {
        let front = Arc::clone(&self.session.front);
        let judge = StartJudge::replaying(&self.session.broker, front, search_path);
        judge.begin_line(span, evaluation);
        let spent = self.session.broker.egress_cells()?;
        let wire = Wire {
            on_event: Arc::new(|_| ()),
            spent,
            following: None,
            services: Vec::new(),
        };
        Ok(ThisMachine.backend(Oversight {
            judge: Some(Arc::new(judge)),
            network: Some(wire),
            borrowing: None,
        }))
    }

    /// Makes the new result the record.
    fn accept(&self, past: &Past, outcome: &substrate_replay::Outcome) -> Result<(), Failure> {
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

/// What is asked, refused and started again belongs to the span that is replayed.
fn span(past: &Past, evaluation: &Evaluation) -> SpanInfo {
    let session = past.span.session_id.parse();
    let session = session.unwrap_or_else(|_| SessionId::new());
    let mut span = SpanInfo::new(Component::Replay, session, None);
    if let Ok(id) = past.span.span_id.parse() {
        span.span_id = id;
    }
    span.policy_id.clone_from(&evaluation.policy.id);
    span.mode = evaluation.policy.mode;
    span.cwd.clone_from(&past.cwd);
    span.cmd = past.line();
    span
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
