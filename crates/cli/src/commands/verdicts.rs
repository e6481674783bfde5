//! `substrate policy test`: scores a file of commands with expected verdicts.

use crate::asker::Asker;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Value, json};
use substrate_broker::Moment;
use substrate_sys::environment;
use substrate_trace::Verdict;

use crate::commands::explain::{explain, verdict};
use crate::failure::Failure;
use crate::out;

#[derive(Default)]
struct Score {
    rows: usize,
    met: usize,
    asked: usize,
}

impl Score {
    fn rate(&self) -> f64 {
        if self.rows == 0 {
            1.0
        } else {
            self.met as f64 / self.rows as f64
        }
    }
}

/// Scores the file: `guard` must not be allowed, `pass` must not be denied.
pub fn run(
    asker: &Asker,
    file: &Path,
    policy: Option<OsString>,
    as_json: bool,
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

    let (mut guard, mut pass) = (Score::default(), Score::default());
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
        let explained = explain(&broker, command.as_bytes(), &cwd, path, &moment);
        let given = verdict(&explained.judgement);
        let (score, met) = match row.get("expect").and_then(Value::as_str) {
            Some("guard") => (&mut guard, given != Verdict::Allow),
            Some("pass") => (&mut pass, given != Verdict::Deny),
            _ => return Err(wrong("`expect` must be `guard` or `pass`")),
        };
        score.rows += 1;
        score.met += usize::from(met);
        score.asked += usize::from(given == Verdict::Ask);
        if !met {
            misses.push((
                command.to_owned(),
                row["expect"].as_str().unwrap_or_default().to_owned(),
                given,
            ));
        }
    }

    let asked = if pass.rows == 0 {
        0.0
    } else {
        pass.asked as f64 / pass.rows as f64
    };
    if as_json {
        let misses: Vec<Value> = misses
            .iter()
            .map(|(command, expect, given)| json!({"command": command, "expect": expect, "verdict": given.as_str()}))
            .collect();
        let report = json!({
            "policy": broker.info().id,
            "guard": {"rows": guard.rows, "met": guard.met, "rate": guard.rate()},
            "pass": {"rows": pass.rows, "met": pass.met, "rate": pass.rate(), "asked": asked},
            "misses": misses,
        });
        out::print(&format!("{report}\n"))?;
    } else {
        let mut report = String::new();
        for (command, expect, given) in &misses {
            report.push_str(&format!(
                "{expect} came out as {}: {command}\n",
                given.as_str()
            ));
        }
        report.push_str(&format!(
            "guard {}/{} ({:.4})\n",
            guard.met,
            guard.rows,
            guard.rate()
        ));
        report.push_str(&format!(
            "pass  {}/{} ({:.4}), asked {:.4}\n",
            pass.met,
            pass.rows,
            pass.rate(),
            asked
        ));
        out::print(&report)?;
    }
    if misses.is_empty() {
        Ok(())
    } else {
        Err(Failure::No)
    }
}
