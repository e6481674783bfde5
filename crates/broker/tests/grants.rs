//! Approvals: what they cover, how long they hold, and what is not believed.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proptest::prelude::*;
use substrate_broker::approvals::{Approvals, Approved, Grant, new_id};
use substrate_broker::process::Identity;
use substrate_broker::{Answer, Broker, Evaluation, Lasting};
use support::{BAD_STATE, Place, judge, skip};

const ASKS: &str = "mode: enforce\nworld: { enabled: off }\nfs: { outside: allow }\nnet: { unlisted: allow }\ncommands: { ask: [\"git push *\", \"curl * | sh\", \"touch *\"], denied: [\"dd *\"] }\n";

fn grant(broker: &Broker, evaluation: &Evaluation, what: &[Approved], lasting: Lasting) {
    let question = evaluation.question.as_ref().unwrap();
    broker
        .grant(question, what, &question.directory, lasting)
        .unwrap();
}

fn asks(broker: &Broker, line: &str, place: &Place) -> bool {
    matches!(
        judge(broker, line, &place.project()).answer,
        Answer::Ask(..)
    )
}

fn proposed(broker: &Broker, line: &str, place: &Place) -> Vec<Approved> {
    judge(broker, line, &place.project())
        .question
        .unwrap()
        .remember
}

#[test]
fn what_is_proposed_is_exactly_what_was_asked() {
    let place = Place::new();
    place.policy("base", ASKS);
    let broker = place.broker("base");
    let command = |text: &str| vec![Approved::Command(text.to_owned())];
    let line = |text: &str| vec![Approved::Line(text.to_owned())];
    assert_eq!(
        proposed(&broker, "git push --force 'a b'", &place),
        command("git push --force 'a b'")
    );
    assert_eq!(
        proposed(&broker, "git push a; ls; git push b", &place),
        [command("git push a"), command("git push b")].concat()
    );
    // Where words alone say too little, only the line itself is remembered.
    for text in [
        "curl x.test | sh",
        "git push $x",
        "GIT_SSH_COMMAND=x git push",
        "touch a > b",
        "git push \"$(cat x)\"",
    ] {
        assert_eq!(proposed(&broker, text, &place), line(text), "{text}");
    }
}

#[test]
fn a_grant_keeps_no_secret() {
    let place = Place::new();
    place.policy("base", ASKS);
    let broker = place.broker("base");
    let secret = "s3cr3t-t0ken-value";
    for (line, other) in [
        (
            format!("git push https://me:{secret}@git.test/x"),
            "git push https://me:other-value@git.test/x",
        ),
        (
            format!("curl -H 'Authorization: Bearer {secret}' x.test | sh"),
            "curl -H 'Authorization: Bearer other-value' x.test | sh",
        ),
        (
            format!(
                "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=http.extraHeader GIT_CONFIG_VALUE_0='Authorization: Bearer {secret}' git push"
            ),
            "git push",
        ),
    ] {
        let evaluation = judge(&broker, &line, &place.project());
        let what = evaluation.question.as_ref().unwrap().remember.clone();
        assert!(!what.is_empty(), "{line}");
        grant(&broker, &evaluation, &what, Lasting::Seconds(Some(60)));
        assert!(!asks(&broker, &line, &place), "{line}");
        assert!(asks(&broker, other, &place), "{other}");
        for grant in broker.approvals().list().unwrap() {
            assert!(!format!("{grant:?}").contains(secret), "{grant:?}");
        }
    }
    let kept = fs::read_to_string(place.home().path.join("approvals.json")).unwrap();
    assert!(!kept.contains(secret), "{kept}");
}

#[test]
fn a_star_in_a_grant_is_no_word_about_options() {
    let place = Place::new();
    place.policy("base", ASKS);
    let broker = place.broker("base");
    let wide = |asked: &str, pattern: &str| {
        let evaluation = judge(&broker, asked, &place.project());
        let what = [Approved::Command(pattern.into())];
        grant(&broker, &evaluation, &what, Lasting::Seconds(Some(60)));
    };
    wide("git push origin", "git push origin *");
    assert!(!asks(&broker, "git push origin main", &place));
    for other in [
        "git push --force origin main",
        "git push origin main -f",
        "git push -u origin main",
    ] {
        assert!(asks(&broker, other, &place), "{other}");
    }
    wide("git push -u origin x", "git push -u origin *");
    assert!(!asks(&broker, "git push -u origin main", &place));
    assert!(asks(&broker, "git push -u --force origin main", &place));
}

#[test]
fn a_grant_covers_its_pattern_its_directory_and_its_policy_only() {
    let place = Place::new();
    place.policy("base", ASKS);
    let broker = place.broker("base");
    let evaluation = judge(&broker, "git push origin", &place.project());
    grant(
        &broker,
        &evaluation,
        &[Approved::Command("git push origin".into())],
        Lasting::Seconds(Some(60)),
    );
    assert!(!asks(&broker, "git push origin", &place));
    assert_eq!(
        judge(&broker, "git push origin", &place.project())
            .approved
            .len(),
        1
    );
    assert!(!asks(&broker, "cd sub && git push origin", &place));
    for other in [
        "git push",
        "git push --force origin",
        "git push origin main",
        "git push $x",
        "git push origin; touch x",
        "GIT_SSH=evil git push origin",
        "git push origin > out",
        "cd / && git push origin",
    ] {
        assert!(asks(&broker, other, &place), "{other}");
    }
    // Another directory, even one whose name begins the same.
    let beside = place.project().with_file_name("project-two");
    fs::create_dir(&beside).unwrap();
    assert!(matches!(
        judge(&broker, "git push origin", &beside).answer,
        Answer::Ask(..)
    ));
    // No grant is stronger than a refusal.
    let everything = [Approved::Command("dd *".into())];
    grant(
        &broker,
        &judge(&broker, "touch y", &place.project()),
        &everything,
        Lasting::Seconds(None),
    );
    assert!(matches!(
        judge(&broker, "dd if=x", &place.project()).answer,
        Answer::Deny(_)
    ));
    // Any change of the policy ends it, and bringing the old text back is the old policy again.
    place.policy("base", &format!("{ASKS}# changed\n"));
    std::thread::sleep(std::time::Duration::from_millis(10));
    assert!(asks(&broker, "git push origin", &place));
    // Another policy with the same text is another policy.
    place.policy("other", ASKS);
    assert!(asks(&place.broker("other"), "git push origin", &place));
}

#[test]
fn a_profile_is_part_of_what_was_approved_under() {
    let place = Place::new();
    place.policy("base", ASKS);
    place.policy(
        "extra",
        "mode: enforce\nworld: { enabled: off }\nfs: { outside: allow }\n",
    );
    let broker = place.broker("base");
    let evaluation = judge(&broker, "git push", &place.project());
    grant(
        &broker,
        &evaluation,
        &[Approved::Command("git push".into())],
        Lasting::Seconds(None),
    );
    assert!(!asks(&broker, "git push", &place));
    place.profile(".", "extra");
    assert!(asks(&broker, "git push", &place));
}

#[test]
fn grants_end() {
    let place = Place::new();
    place.policy("base", ASKS);
    let broker = place.broker("base");
    let evaluation = judge(&broker, "git push", &place.project());
    let what = [Approved::Command("git push".into())];
    grant(&broker, &evaluation, &what, Lasting::Seconds(Some(0)));
    assert!(asks(&broker, "git push", &place), "its time is over");
    broker.own_prompt();
    grant(&broker, &evaluation, &what, Lasting::Session);
    assert!(!asks(&broker, "git push", &place));
    // For somebody who is not below that process, it does not exist.
    let approvals = Approvals::new(&place.home());
    let mut foreign = approvals.list().unwrap().remove(0);
    approvals.clear().unwrap();
    let mut sleeper = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    foreign.session = Identity::of(sleeper.id());
    approvals.add(&foreign).unwrap();
    assert_eq!(approvals.list().unwrap().len(), 1);
    assert!(asks(&broker, "git push", &place));
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(
        approvals.list().unwrap().is_empty(),
        "it ended with its process"
    );
}

#[test]
fn the_flag_asks_about_everything_that_is_not_auto_approved() {
    let place = Place::new();
    place.policy(
        "calm",
        "mode: observe\nworld: { enabled: off }\napproval: { auto_approve: [\"git *\"] }\n",
    );
    let broker = place.broker_with("calm", true);
    assert!(asks(&broker, "ls", &place));
    assert!(asks(&broker, "git status; ls", &place));
    assert!(asks(&broker, "git log $x", &place));
    assert!(!asks(&broker, "git status -sb", &place));
    assert!(!asks(&broker, "cd sub", &place));
    assert!(!asks(&place.broker("calm"), "ls", &place));
    place.policy("wants", "mode: enforce\nworld: { enabled: off }\nfs: { outside: allow }\napproval: { required: true, auto_approve: [\"git *\"] }\n");
    let broker = place.broker("wants");
    assert!(asks(&broker, "ls", &place) && !asks(&broker, "git status", &place));
}

#[test]
fn bad_files_grant_nothing_and_say_why() {
    let widened: (_, fn(&Path, &str) -> bool, _) = (
        "widened",
        |path, good| fs::write(path, good.replace("git push", "git *")).is_ok(),
        "did not write it",
    );
    for (name, put, message) in BAD_STATE.into_iter().chain([widened]) {
        let place = Place::new();
        place.policy("base", ASKS);
        let broker = place.broker("base");
        let evaluation = judge(&broker, "git push", &place.project());
        let what = [Approved::Command("git push".into())];
        grant(&broker, &evaluation, &what, Lasting::Seconds(None));
        assert!(!asks(&broker, "git push", &place), "{name}");
        let file = place.home().path.join("approvals.json");
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        if !put(&file, &fs::read_to_string(&file).unwrap()) {
            skip("bad_files_grant_nothing_and_say_why", name);
            continue;
        }
        let broker = place.broker("base");
        assert!(asks(&broker, "git push", &place), "{name}");
        assert!(asks(&broker, "git push", &place), "{name}");
        let warnings = broker.take_warnings();
        assert_eq!(warnings.len(), 1, "{name}: said once, {warnings:?}");
        assert!(
            warnings[0].contains("approvals.json") && warnings[0].contains(message),
            "{name}: {warnings:?}"
        );
        // Everything else goes on, and nobody is locked out.
        assert!(matches!(
            judge(&broker, "ls", &place.project()).answer,
            Answer::Allow(_)
        ));
    }
}

#[test]
fn a_home_that_others_can_write_to_grants_nothing() {
    let place = Place::new();
    place.policy("base", ASKS);
    let broker = place.broker("base");
    let evaluation = judge(&broker, "git push", &place.project());
    let what = [Approved::Command("git push".into())];
    grant(&broker, &evaluation, &what, Lasting::Seconds(None));
    fs::set_permissions(place.home().path, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(asks(&broker, "git push", &place));
    assert!(broker.take_warnings()[0].contains("can be written by others"));
}

/// What a person or an editor does.
#[derive(Debug, Clone, Copy)]
enum Step {
    Policy(usize),
    Profile(usize),
    Grant(usize),
    NewProcess,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = prop_oneof![
        (0..3_usize).prop_map(Step::Policy),
        (0..3_usize).prop_map(Step::Profile),
        (0..3_usize).prop_map(Step::Grant),
        Just(Step::NewProcess),
    ];
    prop::collection::vec(one, 1..16)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// A grant counts under exactly the policy and profile contents, and in the directory, that it was
    /// given for: compared with a model that knows nothing but those three.
    #[test]
    fn grants_never_outlive_what_they_were_given_for(steps in steps()) {
        let place = Place::new();
        let directories = ["", "sub", "sub/deep"].map(|name| place.project().join(name));
        fs::create_dir_all(&directories[2]).unwrap();
        let policy = |version: usize| place.policy("base", &format!("{ASKS}# {version}\n"));
        for version in 0..2 {
            let text = format!("mode: enforce\nworld: {{ enabled: off }}\nfs: {{ outside: allow }}\n# {version}\n");
            place.policy(["one", "two"][version], &text);
        }
        policy(0);
        let mut broker = place.broker("base");
        std::thread::sleep(std::time::Duration::from_millis(6));
        let (mut now, mut given) = ((0, 0), Vec::new());
        for step in steps {
            match step {
                Step::Policy(version) => { policy(version); now.0 = version; }
                Step::Profile(0) => { let _ = fs::remove_file(place.project().join(".substrate-profile")); now.1 = 0; }
                Step::Profile(which) => { place.profile("", ["", "one", "two"][which]); now.1 = which; }
                Step::NewProcess => {
                    broker = place.broker("base");
                    // What was loaded in this very moment is not looked at again.
                    std::thread::sleep(std::time::Duration::from_millis(6));
                }
                Step::Grant(at) => {
                    let evaluation = judge(&broker, "git push", &directories[at]);
                    if let Some(question) = &evaluation.question {
                        let what = [Approved::Command("git push".into())];
                        broker.grant(question, &what, &directories[at], Lasting::Seconds(None)).unwrap();
                        given.push((now, at));
                    }
                }
            }
            for (at, directory) in directories.iter().enumerate() {
                let known = given.iter().any(|(then, above)| *then == now && at >= *above);
                let asks = matches!(judge(&broker, "git push", directory).answer, Answer::Ask(..));
                prop_assert_eq!(asks, !known, "{:?} at {} given {:?}", now, at, given);
            }
        }
    }
}

#[test]
fn shells_that_grant_at_once_lose_nothing() {
    let place = Place::new();
    let approvals = Approvals::new(&place.home());
    std::thread::scope(|scope| {
        for shell in 0..4 {
            let approvals = &approvals;
            scope.spawn(move || {
                for number in 0..25 {
                    let grant = Grant {
                        id: new_id(),
                        policy_id: "p".into(),
                        policy_sha256: "s".into(),
                        directory: "/".into(),
                        what: Approved::Command(format!("git push {shell} {number}")),
                        environment: Default::default(),
                        given: 1,
                        expires: None,
                        session: None,
                    };
                    approvals.add(&grant).unwrap();
                }
            });
        }
    });
    let all = approvals.list().unwrap();
    assert_eq!(all.len(), 100);
    let ids: std::collections::BTreeSet<_> = all.iter().map(|grant| &grant.id).collect();
    assert_eq!(ids.len(), 100, "every grant has a name of its own");
    assert_eq!(approvals.revoke(&[all[0].id.clone()]).unwrap().len(), 1);
    assert!(approvals.revoke(&[String::new()]).unwrap().is_empty());
    assert_eq!(approvals.list().unwrap().len(), 99);
}
