//! What came of a run: read from the trace, which has it from whoever saw it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use substrate_agents::{Descriptor, Outcome};
use substrate_changes::apply::{self, ApplyOptions};
use substrate_changes::pending::Pending;
use substrate_changes::risk;
use substrate_modelgate::{Limit, Spent, Usage};
use substrate_runtime::supervise::Ending;
use substrate_text::wire;
use substrate_trace::read::{Filter, Order, Reader, Span};
use substrate_trace::{FsDiff, NetUse, SessionId, SpanId, Tokens};

use super::gate::counted;
use super::plan::Login;

/// Most things of a kind that are listed.
const MOST: usize = 200;

/// A run that is over.
pub struct Run {
    /// How the agent is called.
    pub name: String,
    /// The program that it is.
    pub descriptor: Option<Descriptor>,
    /// Where its key is.
    pub login: Login,
    /// Where its gate leads.
    pub upstream: Option<String>,
    /// How its program ended.
    pub ending: Ending,
    /// How long it took.
    pub duration: Duration,
    /// Its session in the trace.
    pub session: SessionId,
    /// Its span, when it was permitted.
    pub span: Option<SpanId>,
    /// Its writes were held back.
    pub isolated: bool,
    /// Nobody watched it.
    pub headless: bool,
    /// What its models cost.
    pub spent: Spent,
    /// The limit that it ran into.
    pub ran_out: Option<Limit>,
    /// How many tokens it had.
    pub limit: Option<u64>,
    /// What it printed, where that was caught.
    pub output: Option<Vec<u8>>,
}

impl Run {
    /// All tokens together.
    pub fn usage(&self) -> Usage {
        let mut all = Usage::default();
        self.spent.models.values().for_each(|usage| all.add(usage));
        all
    }

    /// The same for the trace.
    pub fn tokens(&self) -> Tokens {
        counted(&self.usage(), self.spent.charged)
    }

    /// What that cost in dollars, where every model has a price.
    pub fn cost(&self) -> Option<f64> {
        let descriptor = self.descriptor.as_ref()?;
        let costs = self
            .spent
            .models
            .iter()
            .map(|(model, usage)| descriptor.cost(model, usage));
        (!self.spent.models.is_empty()).then(|| costs.sum::<Option<f64>>())?
    }
}

/// What was refused, and how often.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The command, host or request.
    pub what: String,
    /// Why.
    pub why: String,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Report {
    /// What changed.
    pub changes: Option<FsDiff>,
    /// What of that runs later, and why.
    pub later: Vec<(PathBuf, String)>,
    /// What was refused, and how often.
    pub refused: BTreeMap<Refusal, u64>,
    /// What became of writes that were held back: `keep`, `apply` or `discard`.
    pub settled: Option<String>,
    /// Something was refused that a person would have been asked about.
    pub asked: bool,
    /// Whom it talked to.
    pub net: Vec<NetUse>,
    /// Limits that it ran into.
    pub limits: Vec<String>,
    /// Its spans.
    pub spans: Vec<String>,
    /// What could not be held as asked.
    pub degraded: Vec<String>,
}

impl Report {
    /// Reads it from the trace below this home. `settings` of the client are not as they were.
    pub fn read(home: &Path, run: &Run, since: SystemTime, settings: Vec<PathBuf>) -> Report {
        let mut report = Report::default();
        let filter = Filter {
            session: Some(run.session.to_string()),
            since: Some(since - Duration::from_secs(1)),
            ..Filter::default()
        };
        let main = run.span.map(|span| span.to_string());
        if let Ok(reader) = Reader::open(home) {
            for record in reader.records(Order::OldestFirst, &filter).flatten() {
                report.take(&record.span, main.as_deref());
            }
        }
        match report.is_held(run) {
            true => report.find_later_in_held(home, main.as_deref()),
            false => report.find_later(),
        }
        let why = "the client runs what its settings name";
        report
            .later
            .extend(settings.into_iter().map(|path| (path, why.to_owned())));
        report
    }

    fn take(&mut self, span: &Span, main: Option<&str>) {
        match span.event_type.as_str() {
            "command_complete" => {
                if self.spans.len() < MOST {
                    self.spans.push(span.span_id.clone());
                }
                if main == Some(span.span_id.as_str()) {
                    self.changes.clone_from(&span.fs_diff);
                    self.net.clone_from(&span.net);
                    let held = span.enforced.iter().flat_map(|enforced| &enforced.degraded);
                    self.degraded.extend(held.cloned());
                }
            }
            "policy_violation" if span.outcome.as_deref() == Some("deny") => self.refuse(span),
            "agent_event" if span.action.as_deref() == Some("refused") => {
                let detail = span.detail.clone().unwrap_or_default();
                let (what, why) = detail.split_once(": ").unwrap_or((&detail, ""));
                self.count(what.to_owned(), why.to_owned());
            }
            "rate_limit" => self.limits.extend(span.limit.clone()),
            "world_event" if main == Some(span.span_id.as_str()) => {
                let settles = ["keep", "apply", "discard"];
                let action = span.action.as_deref();
                if let Some(action) = action.filter(|action| settles.contains(action)) {
                    self.settled = Some(action.to_owned());
                }
            }
            _ => {}
        }
    }

    fn refuse(&mut self, span: &Span) {
        let what = match (&span.attempt, &span.cmd) {
            (Some(attempt), _) if attempt.port == 0 => attempt.host.clone(),
            (Some(attempt), _) => format!("{}:{}", attempt.host, attempt.port),
            (None, cmd) => cmd
                .as_ref()
                .map(|cmd| cmd.to_string_lossy().into_owned())
                .unwrap_or_default(),
        };
        let rule = span
            .rule
            .as_ref()
            .map(|rule| format!("{} `{}`", rule.list, rule.pattern));
        self.asked |= span.verdict.as_deref() == Some("ask");
        let why = match &span.attempt {
            Some(attempt) => Some(attempt.why.clone()),
            None => rule.or_else(|| span.reason.clone()),
        };
        self.count(what, why.unwrap_or_default());
    }

    fn count(&mut self, what: String, why: String) {
        if self.refused.len() < MOST {
            *self.refused.entry(Refusal { what, why }).or_default() += 1;
        }
    }

    /// Whether its writes wait for a decision.
    pub fn is_held(&self, run: &Run) -> bool {
        run.isolated && matches!(self.settled.as_deref(), None | Some("keep"))
    }

    /// Files of a result that waits and would run once it is applied.
    fn find_later_in_held(&mut self, home: &Path, span: Option<&str>) {
        let pending = span.and_then(|span| Pending::find(home, span).ok());
        let Some(pending) = pending else { return };
        if let Ok(check) = apply::check(&pending, &ApplyOptions::default(), &mut |_| true) {
            let flags = check.flags.into_iter();
            self.later
                .extend(flags.map(|flag| (flag.path, flag.reason.as_str().to_owned())));
        }
    }

    /// Files that are on the host now and run there.
    fn find_later(&mut self) {
        let discarded = self.settled.as_deref() == Some("discard");
        let Some(changes) = self.changes.as_ref().filter(|_| !discarded) else {
            return;
        };
        for (paths, created) in [(&changes.writes, true), (&changes.mods, false)] {
            for path in paths {
                if let Some(reason) = risk::of_host_file(path, created) {
                    self.later.push((path.clone(), reason.as_str().to_owned()));
                }
            }
        }
    }

    /// How a run that nobody watched came out.
    pub fn outcome(&self, run: &Run) -> Outcome {
        match run.ran_out {
            Some(Limit::Tokens) => return Outcome::Budget,
            Some(Limit::Turns) => return Outcome::MaxTurns,
            None => {}
        }
        if self.limits.iter().any(|limit| limit == "world.limits.time") {
            return Outcome::Cancelled;
        }
        let told = run.descriptor.as_ref().and_then(|descriptor| {
            let outcomes = descriptor.outcomes.as_ref()?;
            let last = last_object(run.output.as_deref()?)?;
            outcomes
                .words
                .get(last.pointer(&outcomes.at)?.as_str()?)
                .copied()
        });
        match (told, run.ending) {
            (Some(Outcome::Completed) | None, Ending::Exit(0)) if self.asked => Outcome::AwaitUser,
            (Some(outcome), _) => outcome,
            (None, Ending::Signal(_)) => Outcome::Cancelled,
            (None, Ending::Exit(0)) => Outcome::Completed,
            (None, Ending::Exit(_)) => Outcome::Failed,
        }
    }

    /// All of it.
    pub fn to_json(&self, run: &Run) -> Value {
        let path = |path: &PathBuf| wire_text(path.as_os_str());
        let paths = |paths: &[PathBuf]| Value::from(paths.iter().map(path).collect::<Vec<_>>());
        let models = run
            .spent
            .models
            .iter()
            .map(|(model, usage)| (model.clone(), json!(usage)));
        let refused = self.refused.iter().map(
            |(refusal, count)| json!({"what": refusal.what, "why": refusal.why, "count": count}),
        );
        let net = self.net.iter().map(|used| {
            json!({"host": used.host, "port": used.port, "tx": used.tx, "rx": used.rx, "refused": used.refused})
        });
        let later = self
            .later
            .iter()
            .map(|(path, why)| json!({"path": wire_text(path.as_os_str()), "why": why}));
        json!({
            "v": 1,
            "agent": run.name,
            "provider": run.descriptor.as_ref().map(|descriptor| &descriptor.name),
            "outcome": self.outcome(run),
            "exit": run.ending.status(),
            "duration_ms": run.duration.as_millis() as u64,
            "session": run.session.to_string(),
            "span": run.span.map(|span| span.to_string()),
            "spans": self.spans,
            "key": match &run.login {
                Login::Outside(_) => "outside",
                Login::Inside(_) => "inside",
                Login::None => "none",
            },
            "usage": {
                "models": models.collect::<serde_json::Map<String, Value>>(),
                "requests": run.spent.requests,
                "charged": run.spent.charged,
                "total": run.spent.total(),
                "limit": run.limit,
                "cost_usd": run.cost(),
            },
            "changes": self.changes.as_ref().map(|diff| json!({
                "held": self.is_held(run),
                "settled": self.settled,
                "created": paths(&diff.writes),
                "modified": paths(&diff.mods),
                "deleted": paths(&diff.deletes),
                "truncated": diff.truncated,
            })),
            "runs_later": later.collect::<Vec<_>>(),
            "refused": refused.collect::<Vec<_>>(),
            "net": net.collect::<Vec<_>>(),
            "limits": self.limits,
            "degraded": self.degraded,
            "output": run.output.as_ref().map(|output| String::from_utf8_lossy(output)),
        })
    }
}

/// Bytes as JSON has them everywhere here.
fn wire_text(text: &std::ffi::OsStr) -> Value {
    wire::serialize(&text, serde_json::value::Serializer).unwrap_or(Value::Null)
}

/// The last JSON object that was printed: the whole, or the last line that is one.
fn last_object(output: &[u8]) -> Option<Value> {
    let object = |bytes: &[u8]| {
        serde_json::from_slice::<Value>(bytes)
            .ok()
            .filter(Value::is_object)
    };
    object(output).or_else(|| output.rsplit(|byte| *byte == b'\n').find_map(object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use substrate_agents::Shelf;

    fn run(provider: &str, ending: Ending, output: Option<&str>) -> Run {
        Run {
            name: provider.to_owned(),
            descriptor: Shelf::shipped().get(provider).cloned(),
            login: Login::None,
            upstream: None,
            ending,
            duration: Duration::ZERO,
            session: SessionId::new(),
            span: None,
            isolated: false,
            headless: true,
            spent: Spent::default(),
            ran_out: None,
            limit: None,
            output: output.map(|output| output.as_bytes().to_vec()),
        }
    }

    #[test]
    fn every_end_has_its_word() {
        let of = |run: &Run, report: &Report| report.outcome(run).word();
        let quiet = Report::default();
        assert_eq!(of(&run("mock", Ending::Exit(0), None), &quiet), "completed");
        assert_eq!(of(&run("mock", Ending::Exit(3), None), &quiet), "failed");
        assert_eq!(
            of(&run("mock", Ending::Signal(15), None), &quiet),
            "cancelled"
        );
        let claude =
            "{\"type\":\"system\"}\n{\"type\":\"result\",\"subtype\":\"error_max_turns\"}\n";
        assert_eq!(
            of(&run("claude", Ending::Exit(1), Some(claude)), &quiet),
            "max_turns"
        );
        let asked = Report {
            asked: true,
            ..Report::default()
        };
        assert_eq!(
            of(&run("mock", Ending::Exit(0), None), &asked),
            "await_user"
        );
        let late = Report {
            limits: vec!["world.limits.time".to_owned()],
            ..Report::default()
        };
        assert_eq!(
            of(&run("mock", Ending::Exit(137), None), &late),
            "cancelled"
        );
        for (limit, word) in [(Limit::Tokens, "budget"), (Limit::Turns, "max_turns")] {
            let mut run = run("mock", Ending::Exit(0), None);
            run.ran_out = Some(limit);
            assert_eq!(of(&run, &quiet), word);
        }
    }
}
