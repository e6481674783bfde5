//! A policy of five command patterns and nothing else, against lines that try to get past it and lines that only look like it.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

mod support;

use substrate_trace::Verdict;
use support::{Place, judge};

const FIVE: &str = "mode: enforce
fs: { read: [\"/**\"], write: [\"/**\"] }
world: { enabled: off }
commands:
  denied: [\"sudo *\", \"rm -rf /\", \"chmod 777 *\", \"git push --force *\", \"curl * | @shells\"]
  sets: { shells: [sh, bash, dash, zsh] }
";

fn verdicts(lines: &str) -> Vec<(&str, Verdict)> {
    let place = Place::new();
    place.policy("five", FIVE);
    let broker = place.broker("five");
    let project = place.project();
    lines
        .lines()
        .map(|line| (line, judge(&broker, line, &project).judgement.verdict))
        .collect()
}

#[test]
fn no_way_around() {
    let mut missed = verdicts(include_str!("data/five_bypass.txt"));
    missed.retain(|(_, verdict)| *verdict != Verdict::Deny);
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn no_false_alarm() {
    let mut refused = verdicts(include_str!("data/five_alike.txt"));
    refused.retain(|(_, verdict)| *verdict != Verdict::Allow);
    assert!(refused.is_empty(), "{refused:#?}");
}
