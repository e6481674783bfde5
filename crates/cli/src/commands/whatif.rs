//! `substrate policy whatif`: which commands of the past another policy would decide differently.

use crate::asker::Asker;
use std::ffi::OsString;

use serde_json::{Value, json};
use substrate_broker::{Broker, Evaluation, Home};
use substrate_trace::read::Reader;
use substrate_trace::{Mode, RuleRef, Verdict};

use crate::commands::trace::look::{Look, Tint, clean};
use crate::commands::{past, trace};
use crate::failure::Failure;
use crate::out;
use crate::trace_args::FilterArgs;
use substrate_broker::explained::verdict;

/// What becomes of a command: the verdict, and whether it is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Decision {
    verdict: Verdict,
    observed: bool,
}

impl Decision {
    fn of(evaluation: &Evaluation) -> Self {
        let verdict = verdict(&evaluation.judgement);
        let refuses = verdict >= Verdict::Ask;
        Self {
            verdict,
            observed: refuses && evaluation.policy.mode == Mode::Observe,
        }
    }

    fn text(self) -> String {
        match self.observed {
            true => format!("would_{}", self.verdict.as_str()),
            false => self.verdict.as_str().to_owned(),
        }
    }

    fn tint(self) -> Tint {
        match self.verdict {
            _ if self.observed => Tint::Odd,
            Verdict::Allow => Tint::Good,
            Verdict::Isolate => Tint::Calm,
            Verdict::Ask => Tint::Odd,
            Verdict::Deny => Tint::Bad,
        }
    }
}

struct Change {
    past: past::Past,
    now: Decision,
    then: Decision,
    rule: Option<RuleRef>,
}

/// The trace of Substrate's home.
pub fn reader(asker: &Asker) -> Result<(Home, Reader), Failure> {
    let home = asker.home()?;
    let reader = Reader::open(&home.path)?;
    Ok((home, reader))
}

/// Judges the past by the policy in use and by the other one, and shows where they part.
pub fn run(
    asker: &Asker,
    policy: OsString,
    wanted: FilterArgs,
    as_json: bool,
) -> Result<(), Failure> {
    let (_, reader) = reader(asker)?;
    let filter = trace::filter(asker, &reader, wanted, None)?;
    let history = past::read(&reader, filter)?;
    let in_use = asker.broker(None)?;
    let other = asker.broker(Some(policy))?;
    let (commands, runs) = (
        history.commands.len(),
        history.commands.iter().map(|past| past.count).sum::<u64>(),
    );
    let mut changes: Vec<Change> = history
        .commands
        .into_iter()
        .filter_map(|past| change(past, &in_use, &other))
        .collect();
    changes.sort_by_key(|change| (change.then.verdict, change.past.count));
    changes.reverse();
    if as_json {
        let rows: Vec<Value> = changes.iter().map(json).collect();
        let text = json!({"commands": commands, "runs": runs, "not_judged": history.lost, "changes": rows});
        out::print(&format!("{text}\n"))?;
    } else {
        out::print(&text(asker, &changes, commands, runs, history.lost))?;
    }
    match changes.is_empty() {
        true => Ok(()),
        false => Err(Failure::No),
    }
}

fn change(past: past::Past, in_use: &Broker, other: &Broker) -> Option<Change> {
    let now = Decision::of(&past.judge(in_use));
    let evaluation = past.judge(other);
    let then = Decision::of(&evaluation);
    (now != then).then(|| Change {
        past,
        now,
        then,
        rule: evaluation
            .judgement
            .deciding()
            .map(|reason| reason.rule.clone()),
    })
}

fn json(change: &Change) -> Value {
    json!({
        "cmd": change.past.text().to_string_lossy(),
        "cwd": change.past.cwd.to_string_lossy(),
        "count": change.past.count,
        "span_id": change.past.span_id,
        "from": change.now.text(),
        "to": change.then.text(),
        "rule": change.rule.as_ref().map(|rule| json!({
            "list": rule.list, "pattern": rule.pattern, "file": rule.file.to_string_lossy(),
            "line": rule.line, "reason": rule.reason,
        })),
    })
}

fn text(asker: &Asker, changes: &[Change], commands: usize, runs: u64, lost: u64) -> String {
    let look = Look::new(asker);
    let mut text = String::new();
    for change in changes {
        let arrow = format!("{:>10} -> ", change.now.text());
        let then = look.tint(change.then.tint(), &format!("{:<10}", change.then.text()));
        text.push_str(&format!(
            "{arrow}{then} {:>4}x  {}  ({})\n",
            change.past.count,
            clean(&change.past.text()),
            clean(change.past.cwd.as_os_str())
        ));
        if let Some(rule) = &change.rule {
            let by = format!("{:>29}by {} `{}` ({rule})", "", rule.list, rule.pattern);
            text.push_str(&(look.tint(Tint::Dim, &clean(by.as_ref())) + "\n"));
        }
    }
    text.push_str(&format!(
        "{} of {commands} commands ({runs} runs) would be decided differently\n",
        changes.len()
    ));
    if lost > 0 {
        text.push_str(&format!(
            "{lost} events were not judged: the trace does not hold the whole command\n"
        ));
    }
    text
}
