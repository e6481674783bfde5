//! The `agent` preset on lines of many kinds: what does harm is never plainly allowed, everyday work is
//! never refused and seldom asked about. The lines are our own; `docs/verdicts.md` tells of others.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

mod support;

use substrate_trace::Verdict;
use support::{Place, judge};

const GUARD: &str = include_str!("data/agent_guard.txt");
const PASS: &str = include_str!("data/agent_pass.txt");

fn verdicts<'t>(text: &'t str) -> Vec<(&'t str, Verdict)> {
    let place = Place::new();
    let broker = place.broker("agent");
    let judged = |line: &'t str| {
        let found = judge(&broker, line, &place.project()).judgement;
        let isolated = found.isolate && found.verdict == Verdict::Allow;
        (
            line,
            if isolated {
                Verdict::Isolate
            } else {
                found.verdict
            },
        )
    };
    text.lines().map(judged).collect()
}

#[test]
fn harm_is_never_plainly_allowed() {
    let allowed: Vec<&str> = verdicts(GUARD)
        .into_iter()
        .filter(|(_, verdict)| *verdict == Verdict::Allow)
        .map(|(line, _)| line)
        .collect();
    assert!(allowed.is_empty(), "{allowed:#?}");
}

#[test]
fn everyday_work_flows() {
    let found = verdicts(PASS);
    let with = |which: Verdict| -> Vec<&str> {
        let chosen = found.iter().filter(|(_, verdict)| *verdict == which);
        chosen.map(|(line, _)| *line).collect()
    };
    assert_eq!(with(Verdict::Deny), Vec::<&str>::new());
    let asked = with(Verdict::Ask);
    assert!(asked.len() * 50 < found.len(), "{asked:#?}");
}

#[test]
fn a_place_may_itself_be_what_is_looked_for() {
    let place = Place::new();
    let broker = place.broker("agent");
    let project = place.project();
    let name = project.file_name().unwrap().to_str().unwrap();
    let verdict = |line: &str| judge(&broker, line, &project).judgement.verdict;
    let delete = |root: &str, name: &str| format!("find {root} -name '{name}' -exec rm -rf {{}} +");
    for root in [project.to_str().unwrap(), "$PWD", &format!("../{name}/")] {
        assert_eq!(verdict(&delete(root, name)), Verdict::Ask, "{root}");
        assert_eq!(verdict(&delete(root, "*.pyc")), Verdict::Allow, "{root}");
    }
}

/// `@system` names `/opt`, `/srv` and `/var` as a whole; people keep projects there.
#[test]
fn what_fs_write_names_is_no_part_of_the_system() {
    let place = Place::in_directory(std::path::Path::new("/var/tmp"));
    place.policy(
        "own",
        "mode: enforce\nworld: { enabled: off }\n\
         fs: { write: [\"/**\", \"$PROJECT/**\", \"/var/lib/mine/**\"] }\n\
         effects: { ask: [\"write:@system\"], denied: [\"delete:recursive:@system\"] }\n",
    );
    let project = place.project();
    std::os::unix::fs::symlink("/etc", project.join("link")).unwrap();
    for (policy, line, verdict) in [
        ("own", "echo a > file", Verdict::Allow),
        ("own", "rm -rf build", Verdict::Allow),
        ("own", "rm -rf build/*", Verdict::Allow),
        ("own", "touch /var/lib/mine/x", Verdict::Allow),
        ("own", "touch /var/lib/mine/../x", Verdict::Ask),
        ("own", "touch /var/lib/x", Verdict::Ask),
        ("own", "echo a > link/x", Verdict::Ask),
        ("own", "rm -rf /var", Verdict::Deny),
        ("own", "rm -rf /var/*", Verdict::Deny),
        ("own", "rm -rf /var/lib", Verdict::Deny),
        ("own", "rm -rf /", Verdict::Deny),
        ("agent", "echo a > file", Verdict::Allow),
        ("agent", "touch /var/tmp/x", Verdict::Allow),
        ("agent", "touch /var/x", Verdict::Ask),
        ("agent", "rm -rf /var/tmp/../lib", Verdict::Deny),
    ] {
        let broker = place.broker(policy);
        let found = judge(&broker, line, &project).judgement.verdict;
        assert_eq!(found, verdict, "{policy}: {line}");
    }
}
