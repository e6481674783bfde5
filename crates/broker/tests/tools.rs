//! Calls of tools: judged by their names and by what they do, by the same policy as commands.

#![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod support;

use std::ffi::OsStr;
use std::path::Path;

use substrate_broker::{Answer, Around, Broker, Evaluation, Input, Origin, Request};
use substrate_command::{Effect, ToolCall};
use substrate_policy::terms::Place as Where;
use substrate_trace::Verdict;
use support::Place;

fn call(name: &str, effects: &[&str]) -> ToolCall {
    ToolCall {
        name: name.to_owned(),
        effects: effects
            .iter()
            .map(|text| Effect::parse(text).unwrap())
            .collect(),
        known: !effects.is_empty(),
    }
}

fn judge(broker: &Broker, name: &str, effects: &[&str], cwd: &Path) -> Evaluation {
    let call = call(name, effects);
    broker.evaluate(&Request {
        input: Input::Tool(&call),
        origin: Origin::OneShot,
        cwd,
        search_path: OsStr::new("/usr/bin:/bin"),
        variables: &[],
        aliases: &[],
        isolate: false,
        around: Around::Nothing,
    })
}

fn decided(evaluation: &Evaluation) -> (Verdict, String) {
    let judgement = &evaluation.judgement;
    let list = judgement.deciding().map(|reason| reason.rule.list.clone());
    (judgement.verdict, list.unwrap_or_default())
}

const POLICY: &str = "mode: enforce
fs: { read: ['/**'], write: ['$PROJECT/**'], hide: ['$HOME/.ssh/id_rsa'] }
net: { allowed: [docs.example], unlisted: ask }
effects: { denied: [{ pattern: 'write:remote', reason: 'others see this' }], isolated: ['run_code:inline'] }
tools:
  denied: [{ pattern: 'mcp:github/delete_*', reason: 'nothing is deleted there', match: ['mcp:github/Delete_repo'], not_match: ['mcp:github/create_issue'] }]
  ask: ['claude:Task']
  allowed: ['mcp:github/*']
";

#[test]
fn names_and_effects_decide_together() {
    let place = Place::new();
    place.policy("p", POLICY);
    let broker = place.broker("p");
    let project = place.project();
    for (name, effects, verdict, list) in [
        ("claude:Write", &["write:./src/x"][..], Verdict::Allow, ""),
        (
            "claude:Write",
            &["write:/etc/passwd"],
            Verdict::Deny,
            "fs.write",
        ),
        (
            "claude:Read",
            &["read:~/.ssh/id_rsa"],
            Verdict::Deny,
            "fs.hide",
        ),
        (
            "claude:Write",
            &["write:./../escaped"],
            Verdict::Deny,
            "fs.write",
        ),
        (
            "claude:WebFetch",
            &["connect:docs.example:443"],
            Verdict::Allow,
            "",
        ),
        (
            "claude:WebFetch",
            &["connect:evil.example:443"],
            Verdict::Ask,
            "net.allowed",
        ),
        ("claude:Task", &["read:."], Verdict::Ask, "tools.ask"),
        (
            "mcp:github/create_issue",
            &[],
            Verdict::Allow,
            "tools.allowed",
        ),
        (
            "mcp:github/create_issue",
            &["write:remote"],
            Verdict::Deny,
            "effects.denied",
        ),
        (
            "mcp:github/delete_repo",
            &["read:."],
            Verdict::Deny,
            "tools.denied",
        ),
        (
            "mcp:GitHub/DELETE_repo",
            &["read:."],
            Verdict::Deny,
            "tools.denied",
        ),
        (
            "mcp:GITHUB/create_issue",
            &["read:."],
            Verdict::Deny,
            "tools.allowed",
        ),
        (
            "mcp:other/create_issue",
            &["read:."],
            Verdict::Deny,
            "tools.allowed",
        ),
        ("claude:Unheard", &[], Verdict::Ask, "tools.default"),
    ] {
        let evaluation = judge(&broker, name, effects, &project);
        let wanted = (verdict, list.to_owned());
        assert_eq!(decided(&evaluation), wanted, "{name} {effects:?}");
    }
}

#[test]
fn a_link_out_of_the_project_is_seen_through() {
    let place = Place::new();
    place.policy("p", POLICY);
    let project = place.project();
    std::os::unix::fs::symlink("/etc", project.join("inside")).unwrap();
    let evaluation = judge(
        &place.broker("p"),
        "claude:Write",
        &["write:./inside/x"],
        &project,
    );
    assert_eq!(decided(&evaluation), (Verdict::Deny, "fs.write".to_owned()));
}

#[test]
fn a_profile_further_down_counts() {
    let place = Place::new();
    place.policy("p", "mode: enforce\nfs: { write: ['$PROJECT/**'] }\n");
    place.policy("no", "mode: enforce\ntools: { denied: ['claude:Write'] }\n");
    place.profile("sub", "no");
    let broker = place.broker("p");
    let at = |directory: &Path| judge(&broker, "claude:Write", &["write:./x"], directory).judgement;
    assert_eq!(at(&place.project()).verdict, Verdict::Allow);
    assert_eq!(at(&place.project().join("sub")).verdict, Verdict::Deny);
}

#[test]
fn a_call_is_isolated_or_direct_and_no_line_is_granted_with_it() {
    let place = Place::new();
    place.policy("p", POLICY);
    let broker = place.broker("p");
    let project = place.project();
    let at = |effects: &[&str]| match judge(&broker, "claude:X", effects, &project).answer {
        Answer::Allow(terms) => terms.place,
        other => panic!("{other:?}"),
    };
    assert_eq!(at(&["read:."]), Where::Direct);
    assert!(matches!(at(&["run_code:inline"]), Where::Isolated(_)));
    let asked = judge(&broker, "claude:Task", &["read:."], &project);
    assert!(asked.question.unwrap().remember.is_empty());
}

#[test]
fn what_wants_approval_asks_about_calls_that_do_more_than_read() {
    let place = Place::new();
    let policy = "mode: enforce\nfs: { write: ['$PROJECT/**'] }\ntools: { allowed: ['claude:Edit'], default: allow }\n";
    place.policy("p", policy);
    place.policy("q", &format!("{policy}approval: {{ required: true }}\n"));
    let project = place.project();
    for broker in [place.broker_with("p", true), place.broker("q")] {
        let verdict = |name: &str, effects: &[&str]| {
            judge(&broker, name, effects, &project).judgement.verdict
        };
        assert_eq!(verdict("codex:patch", &["write:./x"]), Verdict::Ask);
        assert_eq!(verdict("codex:unknown", &[]), Verdict::Ask);
        assert_eq!(verdict("codex:read", &["read:./x"]), Verdict::Allow);
        assert_eq!(verdict("claude:Edit", &["write:./x"]), Verdict::Allow);
    }
}

#[test]
fn rules_that_cannot_be_meant_are_refused_with_their_place() {
    let place = Place::new();
    for (tools, said) in [
        ("denied: ['Write']", "does not say whose tools"),
        (
            "denied: ['mcp:github']",
            "does not name a server and a tool",
        ),
        ("denied: ['claude:a/b']", "does not name a tool"),
        ("denied: ['*:Write']", "must be said with letters"),
        (
            "denied: [{ pattern: 'mcp:a/*', match: ['mcp:b/x'] }]",
            "does not match its example",
        ),
        (
            "allowed: [{ pattern: 'mcp:a/*', not_match: ['mcp:a/x'] }]",
            "matches its example",
        ),
        ("default: isolate", "must be one of"),
        ("isolated: ['claude:Write']", "is not a known key"),
    ] {
        place.policy("p", &format!("tools: {{ {tools} }}\n"));
        let error = place.try_broker("p").unwrap_err().to_string();
        assert!(error.contains(said), "{tools}: {error}");
    }
}
