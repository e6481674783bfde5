//! `substrate policy test`: scores a file of commands with expected verdicts.

use crate::asker::Asker;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Value, json};
use substrate_broker::{Explanation, Moment};
use substrate_sys::environment;
use substrate_text::visible;
use substrate_trace::Verdict;

use crate::commands::explain::explain;
use crate::failure::Failure;
use crate::out;
use substrate_broker::explained::verdict;

/// What is wanted of the report.
pub struct Shape {
    /// No row is printed, so that nobody learns them by heart.
    pub totals: bool,
    /// Rows are also counted by this field of theirs.
    pub by: Option<String>,
    pub json: bool,
}

/// What is expected of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// Not plainly allowed.
    Guard,
    /// Not refused, and seldom asked about.
    Pass,
    /// Reasonable people disagree: counted, never missed.
    Either,
}

impl Expect {
    fn read(text: &str) -> Option<Self> {
        match text {
            "guard" => Some(Expect::Guard),
            "pass" => Some(Expect::Pass),
            "either" => Some(Expect::Either),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Expect::Guard => "guard",
            Expect::Pass => "pass",
            Expect::Either => "either",
        }
    }

    fn met_by(self, given: Verdict) -> bool {
        match self {
            Expect::Guard => given != Verdict::Allow,
            Expect::Pass => given != Verdict::Deny,
            Expect::Either => true,
        }
    }
}

/// What became of the rows of one expectation.
#[derive(Default)]
struct Score {
    rows: usize,
    met: usize,
    asked: usize,
    isolated: usize,
    /// Isolated, and the world of the session does not do: each gets one of its own.
    fresh: usize,
}

impl Score {
    fn count(&mut self, expect: Expect, explained: &Explanation) -> bool {
        let given = verdict(&explained.judgement);
        let met = expect.met_by(given);
        self.rows += 1;
        self.met += usize::from(met);
        self.asked += usize::from(given == Verdict::Ask);
        self.isolated += usize::from(given == Verdict::Isolate);
        self.fresh += usize::from(given == Verdict::Isolate && explained.place == "isolated");
        met
    }

    fn part(&self, of: usize) -> f64 {
        of as f64 / self.rows.max(1) as f64
    }

    /// How many came out right; of none, all did.
    fn rate(&self) -> f64 {
        match self.rows {
            0 => 1.0,
            _ => self.part(self.met),
        }
    }

    fn json(&self) -> Value {
        json!({
            "rows": self.rows,
            "met": self.met,
            "rate": self.rate(),
            "asked": self.part(self.asked),
            "isolated": self.part(self.isolated),
            "fresh": self.part(self.fresh),
        })
    }
}

#[derive(Default)]
struct Scores {
    guard: Score,
    pass: Score,
    either: Score,
}

impl Scores {
    fn of(&mut self, expect: Expect) -> &mut Score {
        match expect {
            Expect::Guard => &mut self.guard,
            Expect::Pass => &mut self.pass,
            Expect::Either => &mut self.either,
        }
    }

    fn text(&self, before: &str) -> String {
        let (guard, pass) = (&self.guard, &self.pass);
        let mut text = format!(
            "{before}guard {}/{} ({:.4})\n",
            guard.met,
            guard.rows,
            guard.rate()
        );
        text.push_str(&format!(
            "{before}pass  {}/{} ({:.4}), asked {:.4}, isolated {:.4}, of these in a fresh world {:.4}\n",
            pass.met,
            pass.rows,
            pass.rate(),
            pass.part(pass.asked),
            pass.part(pass.isolated),
            pass.part(pass.fresh)
        ));
        if self.either.rows > 0 {
            text.push_str(&format!("{before}either {}\n", self.either.rows));
        }
        text
    }

    fn json(&self) -> Value {
        json!({
            "guard": self.guard.json(),
            "pass": self.pass.json(),
            "either": self.either.json(),
        })
    }
}

struct Miss {
    command: String,
    expect: Expect,
    given: Verdict,
}

/// Scores the file: `guard` must not be allowed, `pass` must not be denied.
pub fn run(
    asker: &Asker,
    file: &Path,
    policy: Option<OsString>,
    shape: &Shape,
) -> Result<(), Failure> {
    let text = std::fs::read_to_string(asker.path(file)).map_err(|error| Failure::File {
        what: format!("cannot read {}", file.display()),
        error,
    })?;
    let env = environment::raw();
    let cwd = asker.cwd()?;
    let broker = asker.broker(policy)?;
    let path = environment::get(&env, "PATH")
        .map(OsStr::from_bytes)
        .unwrap_or_default();

    let mut all = Scores::default();
    let mut parts: BTreeMap<String, Scores> = BTreeMap::new();
    let mut misses = Vec::new();
    let moment = Moment::default();
    for (number, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let wrong =
            |what: &str| Failure::Usage(format!("{}:{}: {what}", file.display(), number + 1));
        let row: Value =
            serde_json::from_str(line).map_err(|error| wrong(&format!("not JSON: {error}")))?;
        let command = row
            .get("command")
            .and_then(Value::as_str)
            .ok_or_else(|| wrong("`command` is missing"))?;
        let expect = row.get("expect").and_then(Value::as_str);
        let expect = expect
            .and_then(Expect::read)
            .ok_or_else(|| wrong("`expect` must be `guard`, `pass` or `either`"))?;
        let explained = explain(&broker, command.as_bytes(), &cwd, path, &moment);
        let met = all.of(expect).count(expect, &explained);
        if let Some(field) = &shape.by {
            let part = row.get(field).and_then(Value::as_str).unwrap_or("-");
            let part = parts.entry(part.to_owned()).or_default();
            part.of(expect).count(expect, &explained);
        }
        if !met {
            misses.push(Miss {
                command: command.to_owned(),
                expect,
                given: verdict(&explained.judgement),
            });
        }
    }

    let missed = !misses.is_empty();
    if shape.totals {
        misses.clear();
    }
    out::print(&match shape.json {
        true => as_json(&broker.info().id, &all, &parts, &misses, shape),
        false => as_text(&all, &parts, &misses),
    })?;
    match missed {
        false => Ok(()),
        true => Err(Failure::No),
    }
}

fn as_json(
    policy: &str,
    all: &Scores,
    parts: &BTreeMap<String, Scores>,
    misses: &[Miss],
    shape: &Shape,
) -> String {
    let mut report = all.json();
    report["policy"] = json!(policy);
    if shape.by.is_some() {
        let parts = parts.iter().map(|(name, part)| (name.clone(), part.json()));
        report["by"] = Value::Object(parts.collect());
    }
    if !shape.totals {
        let row = |miss: &Miss| json!({"command": miss.command, "expect": miss.expect.name(), "verdict": miss.given.as_str()});
        report["misses"] = misses.iter().map(row).collect();
    }
    format!("{report}\n")
}

fn as_text(all: &Scores, parts: &BTreeMap<String, Scores>, misses: &[Miss]) -> String {
    let mut report = String::new();
    for miss in misses {
        report.push_str(&format!(
            "{} came out as {}: {}\n",
            miss.expect.name(),
            miss.given.as_str(),
            visible(miss.command.as_bytes())
        ));
    }
    for (name, part) in parts {
        report.push_str(&format!("{}\n", visible(name.as_bytes())));
        report.push_str(&part.text("  "));
    }
    report.push_str(&all.text(""));
    report
}
