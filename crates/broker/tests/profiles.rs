//! Profiles, trust and the policies they combine.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;

use proptest::prelude::*;
use substrate_broker::state_file::now;
use substrate_broker::trust::Trusted;
use substrate_broker::{Answer, Broker, Origin};
use substrate_trace::Verdict;
use support::{BAD_STATE, Place, judge, request, skip};

const BASE: &str = "mode: enforce\nworld: { enabled: off }\nfs: { outside: allow }\nnet: { unlisted: allow }\ncommands: { denied: [\"dd *\"] }\n";
const STRICT: &str = "mode: enforce\nworld: { enabled: off }\nfs: { outside: allow }\nnet: { unlisted: allow }\ncommands: { denied: [\"touch *\", \"cd *\"] }\n";
const LOOSE: &str = "mode: observe\nworld: { enabled: off }\n";

fn denied(broker: &Broker, line: &str, cwd: &Path) -> bool {
    matches!(judge(broker, line, cwd).answer, Answer::Deny(_))
}

#[test]
fn a_profile_adds_and_takes_nothing_away() {
    let place = Place::new();
    place.policy("base", BASE);
    place.policy("strict", STRICT);
    place.policy("loose", LOOSE);
    place.profile("strict", "strict\n");
    place.profile("loose", "loose\n");
    let broker = place.broker("base");
    let (top, strict, loose) = (
        place.project(),
        place.project().join("strict"),
        place.project().join("loose"),
    );
    assert!(!denied(&broker, "touch x", &top));
    assert!(denied(&broker, "touch x", &strict));
    assert!(denied(&broker, "dd if=/dev/zero", &strict));
    assert!(denied(&broker, "dd if=/dev/zero", &loose));
    assert!(!denied(&broker, "touch x", &loose));
    // By the directory of each command, from outside in and from inside out.
    assert!(denied(&broker, "cd strict && touch x", &top));
    assert!(denied(
        &broker,
        "cd strict && rm -rf ../victim; touch y",
        &top
    ));
    assert!(denied(&broker, "cd .. && touch x", &strict));
    assert!(!denied(&broker, "cd loose && touch x", &top));
    // The ways out stay open under any profile.
    assert!(!denied(&broker, "cd ..", &strict));
    assert!(!denied(&broker, "exit", &strict));
    // A link does not lead around it.
    std::os::unix::fs::symlink(&strict, top.join("link")).unwrap();
    assert!(denied(&broker, "touch x", &top.join("link")));
    let told = judge(&broker, "touch x", &strict).profile_text().unwrap();
    assert!(
        told.starts_with("strict (") && told.ends_with("combined)"),
        "{told}"
    );
}

/// Puts something where a profile should be.
type Put = fn(&Path);

const BAD: [(&str, Put, &str); 12] = [
    ("empty", |path| fs::write(path, "").unwrap(), "empty"),
    (
        "a way up",
        |path| fs::write(path, "../../x").unwrap(),
        "`../../x` is not the name",
    ),
    (
        "unknown",
        |path| fs::write(path, "unknown").unwrap(),
        "no policy `unknown`",
    ),
    (
        "a policy with mistakes",
        |path| fs::write(path, "faulty").unwrap(),
        "denid",
    ),
    (
        "a directory",
        |path| fs::create_dir(path).unwrap(),
        "directory",
    ),
    (
        "a link to nothing",
        |path| symlink("/nowhere/at/all", path).unwrap(),
        "link to nothing",
    ),
    (
        "a link to itself",
        |path| symlink(path, path).unwrap(),
        // What goes before and after differs between C libraries.
        "ymbolic link",
    ),
    (
        "a device",
        |path| symlink("/dev/zero", path).unwrap(),
        "not a regular file",
    ),
    (
        "a pipe",
        |path| {
            let made = std::process::Command::new("mkfifo").arg(path).status();
            assert!(made.unwrap().success());
        },
        "pipe",
    ),
    (
        "ten megabytes",
        |path| fs::write(path, vec![b'a'; 10 << 20]).unwrap(),
        "larger than",
    ),
    (
        "not text",
        |path| fs::write(path, b"\xff\xfe\0").unwrap(),
        "not hold text",
    ),
    (
        "unreadable",
        |path| {
            fs::write(path, "loose").unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
        },
        "cannot be read",
    ),
];

#[test]
fn bad_profiles_loosen_nothing_and_lock_nobody_out() {
    for (name, put, message) in BAD {
        let place = Place::new();
        place.policy("base", BASE);
        place.policy("loose", LOOSE);
        place.policy("faulty", "commands: { denid: [] }\n");
        let bad = place.project().join("bad");
        fs::create_dir(&bad).unwrap();
        let path = bad.join(".substrate-profile");
        put(&path);
        if name == "unreadable" && fs::read(&path).is_ok() {
            substrate_rig::does_not_apply(
                "bad_profiles_loosen_nothing_and_lock_nobody_out: unreadable",
                "root can read everything",
            );
            continue;
        }
        let broker = place.broker("base");
        broker.own_prompt();
        assert!(denied(&broker, "touch x", &bad), "{name}");
        assert!(denied(&broker, "dd if=x", &bad), "{name}");
        assert!(
            denied(&broker, "cd bad && touch x", &place.project()),
            "{name}"
        );
        assert!(!denied(&broker, "cd ..", &bad), "{name}");
        assert!(!denied(&broker, "exit", &bad), "{name}");
        assert!(!denied(&broker, "substrate profile show", &bad), "{name}");
        assert!(!denied(&broker, "touch x", &place.project()), "{name}");
        let warnings = broker.take_warnings();
        assert_eq!(warnings.len(), 1, "{name}: said once, {warnings:?}");
        assert!(
            warnings[0].contains("bad/.substrate-profile") && warnings[0].contains(message),
            "{name}: {warnings:?}"
        );
        // Where nothing is enforced, nothing is refused.
        let broker = place.broker("loose");
        assert!(!denied(&broker, "touch x", &bad), "{name}");
        assert!(judge(&broker, "touch x", &bad).would.is_some(), "{name}");
    }
}

#[test]
fn a_profile_of_somebody_else_has_no_say() {
    let place = Place::new();
    place.policy("base", BASE);
    place.policy("strict", STRICT);
    place.policy("loose", LOOSE);
    let here = place.project().join("p");
    for name in ["strict\n", "loose\n", "../../x"] {
        place.profile("p", name);
        let path = here.join(".substrate-profile");
        if chown(&path, Some(65_534), None).is_err() {
            return skip(
                "a_profile_of_somebody_else_has_no_say",
                "only root can give files away",
            );
        }
        // Directly, and behind a link of ours.
        for linked in [false, true] {
            if linked {
                fs::rename(&path, here.join("his")).unwrap();
                symlink("his", &path).unwrap();
            }
            let broker = place.broker("base");
            broker.own_prompt();
            assert!(!denied(&broker, "touch x", &here), "{name:?} {linked}");
            assert!(denied(&broker, "dd if=x", &here), "{name:?} {linked}");
            let warnings = broker.take_warnings();
            assert!(
                warnings.len() == 1 && warnings[0].contains("belongs to user 65534"),
                "{warnings:?}"
            );
        }
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_line_is_under_the_stricter_of_all_its_directories() {
    const CAREFUL: &str = "mode: enforce\nworld: { enabled: off }\nfs: { outside: allow }\nnet: { unlisted: allow }\ncommands: { denied: [\"rm *\"] }\n";
    let place = Place::new();
    place.policy("base", CAREFUL);
    place.policy("loose", LOOSE);
    place.policy("strict", STRICT);
    place.profile("evil", "loose\n");
    place.profile("victim", "strict\n");
    let (top, evil) = (place.project(), place.project().join("evil"));
    let broker = place.broker("base");
    broker.own_prompt();
    let denied = |line: &str, cwd: &Path| {
        let answer = broker.evaluate(&request(line, cwd, Origin::Prompt)).answer;
        matches!(answer, Answer::Deny(_))
    };
    let line = "cd evil && rm -rf ../victim";
    assert!(denied(line, &top), "an untrusted profile loosens nothing");
    let trusted = Trusted {
        path: evil.canonicalize().unwrap().join(".substrate-profile"),
        policy: "loose".into(),
        content_sha256: substrate_trace::sha256_hex(b"loose\n"),
        policy_sha256: place.broker("loose").info().sha256.clone(),
        since: now(),
        session: None,
    };
    broker.trust().add(&trusted).unwrap();
    assert!(!denied("rm -rf x", &evil), "it is trusted there");
    for line in [
        line,
        "cd evil; rm -rf ../victim",
        "pushd evil && rm -rf ../victim",
        "(cd evil && rm -rf ../victim)",
        "env -C evil rm -rf ../victim",
        "cd evil && cd .. && rm -rf victim",
    ] {
        assert!(denied(line, &top), "{line}");
    }
    assert!(denied("cd .. && rm -rf victim", &evil));
    assert!(denied("cd ../victim && touch x", &evil));
}

#[test]
fn trust_replaces_only_at_the_own_prompt_and_only_what_was_trusted() {
    let place = Place::new();
    place.policy("base", BASE);
    let policy = place.policy("loose", LOOSE);
    place.profile("p", "loose\n");
    let here = place.project().join("p");
    let broker = place.broker("base");
    let is_denied = |broker: &Broker, origin| {
        matches!(
            broker.evaluate(&request("dd if=x", &here, origin)).answer,
            Answer::Deny(_)
        )
    };
    let path = here.canonicalize().unwrap().join(".substrate-profile");
    let trust = |content: &str| {
        let sha = place.broker("loose").info().sha256.clone();
        let trusted = Trusted {
            path: path.clone(),
            policy: "loose".into(),
            content_sha256: substrate_trace::sha256_hex(content.as_bytes()),
            policy_sha256: sha,
            since: now(),
            session: None,
        };
        broker.trust().add(&trusted).unwrap();
    };
    trust("loose\n");
    assert!(
        is_denied(&broker, Origin::Prompt),
        "not known to be a person's prompt"
    );
    broker.own_prompt();
    for origin in [
        Origin::OneShot,
        Origin::Script,
        Origin::Shim,
        Origin::Guard,
        Origin::Replay,
    ] {
        assert!(is_denied(&broker, origin), "{origin:?}");
    }
    assert!(!is_denied(&broker, Origin::Prompt));
    // Leaving the directory in the same line brings the session's policy back.
    let line = "cd .. && dd if=x";
    assert!(matches!(
        broker
            .evaluate(&request(line, &here, Origin::Prompt))
            .answer,
        Answer::Deny(_)
    ));
    // Neither another content nor another policy behind the name is trusted.
    std::fs::write(&path, "loose").unwrap();
    assert!(is_denied(&broker, Origin::Prompt));
    trust("loose");
    assert!(!is_denied(&broker, Origin::Prompt));
    std::fs::write(&policy, format!("id: loose\nname: other\n{LOOSE}")).unwrap();
    assert!(is_denied(&broker, Origin::Prompt));
    trust("loose");
    assert!(!is_denied(&broker, Origin::Prompt));
    assert!(broker.trust().revoke(&path).unwrap());
    assert!(is_denied(&broker, Origin::Prompt));
}

#[test]
fn a_refusal_names_the_policy_that_refused() {
    let place = Place::new();
    place.policy("base", BASE);
    let strict = "mode: enforce\nworld: { enabled: off }\ncommands:\n  denied: [\"ls *\"]\n";
    place.policy("strict", strict);
    place.profile("p", "strict\n");
    let broker = place.broker("base");
    let said = |line: &str| {
        let evaluation = judge(&broker, line, &place.project().join("p"));
        let Answer::Deny(rule) = &evaluation.answer else {
            panic!("{line} is not denied");
        };
        substrate_trace::denial(&evaluation.policy.id, rule.as_ref(), "")
    };
    let (of_profile, of_base) = (said("ls x"), said("dd if=x"));
    assert!(
        of_profile.starts_with("denied by policy 'strict' (ls *, "),
        "{of_profile}"
    );
    assert!(
        of_base.starts_with("denied by policy 'base' ("),
        "{of_base}"
    );
    let unwritten = said("touch x");
    assert!(unwritten.ends_with(", policy:strict)"), "{unwritten}");
    // A setting without a line has a file and no number.
    place.policy("strict", &strict.replace("denied", "allowed"));
    let unlisted = said("cat x");
    assert!(
        unlisted.starts_with("denied by policy 'strict' ("),
        "{unlisted}"
    );
    assert!(!unlisted.contains(":0)"), "{unlisted}");
}

#[test]
fn a_bad_trust_list_trusts_nothing_and_says_why() {
    let altered: (_, fn(&Path, &str) -> bool, _) = (
        "written by somebody else",
        |path, good| std::fs::write(path, good.replace("\"since\": 1", "\"since\": 2")).is_ok(),
        "did not write it",
    );
    for (name, put, message) in BAD_STATE.into_iter().chain([altered]) {
        let place = Place::new();
        place.policy("base", BASE);
        place.policy("loose", LOOSE);
        place.profile("p", "loose\n");
        let here = place.project().join("p");
        let broker = place.broker("base");
        broker.own_prompt();
        let path = here.canonicalize().unwrap().join(".substrate-profile");
        let trusted = Trusted {
            path: path.clone(),
            policy: "loose".into(),
            content_sha256: substrate_trace::sha256_hex(b"loose\n"),
            policy_sha256: place.broker("loose").info().sha256.clone(),
            since: 1,
            session: None,
        };
        broker.trust().add(&trusted).unwrap();
        let is_denied = |line: &str| {
            let answer = broker
                .evaluate(&request(line, &here, Origin::Prompt))
                .answer;
            matches!(answer, Answer::Deny(_))
        };
        assert!(!is_denied("dd if=x"), "{name}: trusted at first");
        let file = place.home().path.join("trust.json");
        if !put(&file, &std::fs::read_to_string(&file).unwrap()) {
            continue;
        }
        // Nothing is loosened, it is said once, and the ways out stay open.
        assert!(is_denied("dd if=x") && is_denied("dd if=x"), "{name}");
        let warnings = broker.take_warnings();
        assert_eq!(warnings.len(), 1, "{name}: {warnings:?}");
        assert!(
            warnings[0].contains("trust.json") && warnings[0].contains(message),
            "{name}: {warnings:?}"
        );
        assert!(!is_denied("cd ..") && !is_denied("exit"), "{name}");
        // Taking everything back repairs it wherever a file can be put in its place.
        assert_eq!(
            broker.trust().clear().is_ok(),
            name != "a directory",
            "{name}"
        );
        assert!(is_denied("dd if=x"), "{name}");
        if name != "a directory" {
            broker.trust().add(&trusted).unwrap();
            assert!(!is_denied("dd if=x"), "{name}: trusted again");
        }
    }
}

fn strictness(broker: &Broker, line: &str, cwd: &Path) -> (u8, Verdict) {
    let evaluation = judge(broker, line, cwd);
    let answer = match evaluation.answer {
        Answer::Allow(_) => 0,
        Answer::Ask(..) => 1,
        Answer::Deny(_) => 2,
    };
    (answer, evaluation.judgement.verdict)
}

fn policies() -> impl Strategy<Value = String> {
    let pattern = prop::sample::select(vec![
        "touch *",
        "rm *",
        "git *",
        "git push *",
        "ls",
        "make *",
    ]);
    let list = || prop::collection::vec(pattern.clone(), 0..3);
    (any::<bool>(), list(), list(), list(), list(), 0..4_usize).prop_map(
        |(enforce, denied, ask, isolated, allowed, default)| {
            let default = ["allow", "isolate", "ask", "deny"][default];
            let mode = if enforce { "enforce" } else { "observe" };
            format!(
                "mode: {mode}\nworld: {{ enabled: off }}\nfs: {{ outside: allow }}\ncommands:\n  denied: {denied:?}\n  ask: {ask:?}\n  isolated: {isolated:?}\n  allowed: {allowed:?}\n  default: {default}\n"
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn no_untrusted_profile_makes_anything_less_strict(base in policies(), profile in policies()) {
        let place = Place::new();
        place.policy("base", &base);
        place.policy("other", &profile);
        place.profile("p", "other");
        let (plain, with) = (place.project().join("sub"), place.project().join("p"));
        let broker = place.broker("base");
        broker.own_prompt();
        for line in ["touch x", "rm -rf x", "git push", "ls | make all", "cd . && git status", "eval \"$x\"", "cd ..", "exit 3"] {
            let (before, after) = (strictness(&broker, line, &plain), strictness(&broker, line, &with));
            prop_assert!(after.0 >= before.0, "{line}: {before:?} became {after:?}");
            prop_assert!(after.1 >= before.1, "{line}: {before:?} became {after:?}");
        }
    }
}
