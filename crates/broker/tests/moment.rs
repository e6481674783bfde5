//! Explaining says what evaluating would say, and a moment does not outlive a change for long.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

mod support;

use std::path::Path;
use std::time::Duration;

use substrate_broker::{Answer, Broker, Moment, Origin};
use substrate_policy::terms;
use substrate_trace::Verdict;
use support::{Place, request};

const LINES: &[&str] = &[
    "ls -la src",
    "git push --force",
    "sudo id",
    "pip install x",
    "cat ~/.ssh/id_rsa",
    "cd sub && make",
    "rm -rf \"$x\"",
    "echo a | sh",
    "if",
];

fn verdict(broker: &Broker, line: &str, cwd: &Path, moment: &Moment) -> Verdict {
    let request = request(line, cwd, Origin::OneShot);
    broker.explain(&request, moment).judgement.verdict
}

#[test]
fn an_explanation_is_the_evaluation_without_the_permission() {
    let place = Place::new();
    place.profile("sub", "locked");
    let moment = Moment::default();
    for policy in ["agent", "default", "locked"] {
        let broker = place.broker(policy);
        for cwd in [place.project(), place.project().join("sub")] {
            for line in LINES {
                let request = request(line, &cwd, Origin::OneShot);
                let full = broker.evaluate(&request);
                let short = broker.explain(&request, &Moment::default());
                let kept = broker.explain(&request, &moment);
                let place = match &full.answer {
                    Answer::Allow(terms) | Answer::Ask(terms, _) => terms.place.name(),
                    Answer::Deny(_) => terms::Place::Direct.name(),
                };
                assert_eq!(short.judgement, full.judgement, "{policy}: {line}");
                assert_eq!(short.place, place, "{policy}: {line}");
                assert_eq!(short.policy, full.policy, "{policy}: {line}");
                assert_eq!(short.profiles, full.profiles, "{policy}: {line}");
                // A moment belongs to whoever asks; it was begun with another policy here.
                if policy == "agent" {
                    assert_eq!(kept.judgement, full.judgement, "{line}");
                }
            }
        }
    }
}

#[test]
fn a_change_counts_with_the_next_moment() {
    let place = Place::new();
    place.policy("test", "mode: enforce\n");
    let broker = place.broker("test");
    let (cwd, moment) = (place.project(), Moment::default());
    let later = || std::thread::sleep(Duration::from_millis(120));
    assert_eq!(verdict(&broker, "ls", &cwd, &moment), Verdict::Allow);
    place.policy("test", "mode: enforce\ncommands: { denied: [ls] }\n");
    later();
    assert_eq!(verdict(&broker, "ls", &cwd, &moment), Verdict::Deny);
    assert_eq!(verdict(&broker, "id", &cwd, &moment), Verdict::Allow);
    place.policy("strict", "mode: enforce\ncommands: { denied: [id] }\n");
    place.profile("", "strict");
    later();
    assert_eq!(verdict(&broker, "id", &cwd, &moment), Verdict::Deny);
    // What was looked up in one directory does not count in another.
    assert_eq!(
        verdict(&broker, "id", Path::new("/"), &moment),
        Verdict::Allow
    );
}
