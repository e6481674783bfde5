//! Policies that change while they are in force.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use substrate_broker::facts::Seen;
use substrate_broker::{Answer, Broker, Note};
use substrate_broker::{Input, Origin, Request, Start};
use support::{Place, judge};

const COMMON: &str = "mode: enforce\nworld: { enabled: off }\nfs: { outside: allow }\n";

fn body(denied: &str) -> String {
    format!("{COMMON}commands: {{ denied: [\"{denied}\"] }}\n")
}

fn denied(broker: &Broker, line: &str, cwd: &Path) -> bool {
    matches!(judge(broker, line, cwd).answer, Answer::Deny(_))
}

#[test]
fn the_next_command_sees_every_kind_of_edit() {
    let place = Place::new();
    let path = place.policy("base", &body("touch *"));
    let broker = place.broker("base");
    let here = place.project();
    assert!(denied(&broker, "touch x", &here));
    std::thread::sleep(Duration::from_millis(10));
    // Moved into place, as editors do.
    place.policy("base", &body("ls *"));
    assert!(!denied(&broker, "touch x", &here) && denied(&broker, "ls", &here));
    // Written over.
    fs::write(&path, format!("id: base\nname: b\n{}", body("cat *"))).unwrap();
    assert!(!denied(&broker, "ls", &here) && denied(&broker, "cat x", &here));
    // A link that is swapped.
    for (name, list) in [("one", "head *"), ("two", "tail *")] {
        fs::write(
            here.join(name),
            format!("id: base\nname: b\n{}", body(list)),
        )
        .unwrap();
        let aside = path.with_extension("link");
        std::os::unix::fs::symlink(here.join(name), &aside).unwrap();
        fs::rename(&aside, &path).unwrap();
        assert!(
            denied(&broker, list.trim_end_matches(" *"), &here),
            "{name}"
        );
    }
    // What it extends.
    place.policy("parent", &body("wc *"));
    fs::remove_file(&path).unwrap();
    place.policy("base", "extends: parent\n");
    assert!(denied(&broker, "wc", &here));
    place.policy("parent", &body("sort *"));
    assert!(!denied(&broker, "wc", &here) && denied(&broker, "sort", &here));
    let notes = broker.take_notes();
    assert!(
        notes
            .iter()
            .all(|note| matches!(note, Note::Reloaded { .. })),
        "{notes:?}"
    );
    assert!(notes.len() >= 6, "{notes:?}");
}

/// The files of a world that are those of the host.
struct Plain(Vec<u8>, PathBuf);

impl Seen for Plain {
    fn program(&self) -> (&[u8], &[u8]) {
        (&self.0, &self.0)
    }

    fn real(&self, path: &Path) -> Option<PathBuf> {
        path.canonicalize().ok()
    }

    fn began(&self) -> &Path {
        &self.1
    }
}

fn start_denied(broker: &Broker, program: &str, cwd: &Path) -> bool {
    let argv = [OsString::from(program)];
    let request = Request {
        input: Input::Argv(&argv),
        origin: Origin::Guard,
        cwd,
        search_path: OsStr::new("/usr/bin:/bin"),
        variables: &[],
        aliases: &[],
        isolate: false,
        around: substrate_broker::Around::Nothing,
    };
    let seen = Plain(program.as_bytes().to_vec(), cwd.to_owned());
    let start = Start {
        isolated: false,
        by: &|| None,
        seen: &seen,
        also: &[],
        own_network: false,
    };
    matches!(
        broker.evaluate_start(&request, start).answer,
        Answer::Deny(_)
    )
}

#[test]
fn a_start_sees_edits_and_new_profiles_after_a_moment() {
    let place = Place::new();
    place.policy("base", &body("/usr/bin/id"));
    place.policy("strict", &body("/usr/bin/env"));
    let broker = place.broker("base");
    let here = place.project();
    let moment = || std::thread::sleep(Duration::from_millis(10));
    moment();
    // Judged often, so that nothing is believed for longer than a moment because it is asked often.
    for _ in 0..100 {
        assert!(start_denied(&broker, "/usr/bin/id", &here));
        assert!(!start_denied(&broker, "/usr/bin/env", &here));
    }
    place.policy("base", &body("/usr/bin/tail"));
    moment();
    assert!(start_denied(&broker, "/usr/bin/tail", &here));
    assert!(!start_denied(&broker, "/usr/bin/id", &here));
    fs::write(here.join(".substrate-profile"), "strict\n").unwrap();
    moment();
    assert!(start_denied(&broker, "/usr/bin/env", &here));
    fs::remove_file(here.join(".substrate-profile")).unwrap();
    assert!(
        !start_denied(&broker, "/usr/bin/env", &here),
        "one that was there is looked for"
    );
}

#[test]
fn tool_models_profiles_and_what_profiles_extend_are_reloaded_too() {
    let place = Place::new();
    place.policy(
        "base",
        "mode: enforce\nworld: { enabled: off }\nfs: { read: [\"/**\"], write: [\"$PROJECT/**\"], outside: deny }\n",
    );
    let broker = place.broker("base");
    let here = place.project();
    let model = |text: &str| {
        fs::create_dir_all(place.home().tools()).unwrap();
        fs::write(place.home().tools().join("own.yaml"), text).unwrap();
    };
    assert!(!denied(&broker, "frobnicate /etc/x", &here));
    std::thread::sleep(Duration::from_millis(10));
    model("tools:\n  - names: [frobnicate]\n    operands: write...\n");
    assert!(denied(&broker, "frobnicate /etc/x", &here));
    model("tools:\n  - names: [frobnicate]\n    operands: read...\n");
    assert!(!denied(&broker, "frobnicate /etc/x", &here));
    model("tools:\n  - names: [frobnicate]\n    operands: write...\n");
    assert!(denied(&broker, "frobnicate /etc/x", &here));
    broker.take_notes();
    // One with mistakes keeps the last good ones, and is told once.
    model("tools: [");
    for _ in 0..3 {
        assert!(denied(&broker, "frobnicate /etc/x", &here));
    }
    let notes = broker.take_notes();
    assert!(matches!(notes.as_slice(), [Note::Kept { .. }]), "{notes:?}");
    fs::remove_file(place.home().tools().join("own.yaml")).unwrap();
    assert!(!denied(&broker, "frobnicate /etc/x", &here));

    // The policy of a profile, what that extends, and the file itself.
    place.policy("outer", &body("wc *"));
    place.policy("inner", "extends: outer\n");
    place.profile(".", "inner\n");
    assert!(denied(&broker, "wc", &here));
    place.policy("outer", &body("sort *"));
    assert!(!denied(&broker, "wc", &here) && denied(&broker, "sort", &here));
    place.policy("inner", &body("head *"));
    assert!(!denied(&broker, "sort", &here) && denied(&broker, "head x", &here));
    place.profile(".", "outer");
    assert!(!denied(&broker, "head x", &here) && denied(&broker, "sort", &here));
    fs::remove_file(here.join(".substrate-profile")).unwrap();
    assert!(!denied(&broker, "sort", &here));
}

#[test]
fn what_editors_leave_beside_a_policy_changes_nothing() {
    let place = Place::new();
    let path = place.policy("base", &body("touch *"));
    let broker = place.broker("base");
    let here = place.project();
    std::thread::sleep(Duration::from_millis(10));
    for name in [
        ".base.yaml.swp",
        "base.yaml~",
        "4913",
        "#base.yaml#",
        ".base.yaml.kate-swp",
    ] {
        fs::write(path.with_file_name(name), "commands: [").unwrap();
        assert!(denied(&broker, "touch x", &here), "{name}");
    }
    assert!(broker.take_notes().is_empty());
    // Moved away, written anew: at every moment the rule that was there last holds.
    fs::rename(&path, path.with_file_name("base.yaml~")).unwrap();
    assert!(denied(&broker, "touch x", &here));
    fs::write(&path, "").unwrap();
    assert!(denied(&broker, "touch x", &here));
    place.policy("base", &body("ls *"));
    assert!(!denied(&broker, "touch x", &here) && denied(&broker, "ls", &here));
}

/// Something that happens to the files of a home, at any moment.
#[derive(Debug, Clone, Copy)]
enum Happening {
    Good(usize),
    Mistake,
    CutShort(usize),
    Gone,
    Profile(usize),
    /// The cache is cut short, as by a machine that stopped.
    CacheDamaged(usize),
    CacheGone,
    /// What somebody who stopped in the middle of writing leaves.
    Leftovers,
    NewProcess,
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let one = prop_oneof![
        (0..2_usize).prop_map(Happening::Good),
        Just(Happening::Mistake),
        (1..7_usize).prop_map(Happening::CutShort),
        Just(Happening::Gone),
        (0..4_usize).prop_map(Happening::Profile),
        (0..2000_usize).prop_map(Happening::CacheDamaged),
        Just(Happening::CacheGone),
        Just(Happening::Leftovers),
        Just(Happening::NewProcess),
    ];
    prop::collection::vec(one, 1..14)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    /// Whatever happens to the files, every version of the policy denies `dd`, and so does every
    /// broker, at every moment.
    #[test]
    fn there_is_no_moment_without_a_valid_policy(happenings in happenings()) {
        let versions = ["touch *", "ls *"].map(|other| {
            format!("id: base\nname: b\n{COMMON}commands: {{ denied: [\"dd *\", \"{other}\"] }}\n")
        });
        let place = Place::new();
        let path = place.policy("base", "");
        fs::write(&path, &versions[0]).unwrap();
        place.policy("extra", &body("wc *"));
        let mut broker = place.broker_for_a_person("base");
        std::thread::sleep(std::time::Duration::from_millis(6));
        let here = place.project();
        for happening in &happenings {
            match *happening {
                Happening::Good(which) => fs::write(&path, &versions[which]).unwrap(),
                Happening::Mistake => fs::write(&path, "commands: [").unwrap(),
                Happening::CutShort(length) => fs::write(&path, &versions[0][..length]).unwrap(),
                Happening::Gone => { let _ = fs::remove_file(&path); }
                Happening::Profile(which) => place.profile(".", ["extra", "", "unknown", "base"][which]),
                Happening::CacheDamaged(length) => {
                    for entry in fs::read_dir(place.home().cache()).into_iter().flatten().flatten() {
                        let bytes = fs::read(entry.path()).unwrap();
                        fs::write(entry.path(), &bytes[..length.min(bytes.len())]).unwrap();
                    }
                }
                Happening::CacheGone => { let _ = fs::remove_dir_all(place.home().cache()); }
                Happening::Leftovers => {
                    fs::create_dir_all(place.home().cache()).unwrap();
                    fs::write(place.home().cache().join("0.new.1.0"), "half").unwrap();
                    fs::write(place.home().policies().join(".base.yaml.7"), "half").unwrap();
                }
                Happening::NewProcess => match place.try_broker("base") {
                    Ok(_) => {
                        broker = place.broker_for_a_person("base");
                        // What was loaded in this very moment is not looked at again.
                        std::thread::sleep(std::time::Duration::from_millis(6));
                    }
                    // Nothing is known any more: a one-shot does not run, and a person has a prompt.
                    Err(_) => {
                        let rescued = place.broker_for_a_person("base");
                        prop_assert_eq!(&rescued.info().id, "default");
                        prop_assert!(!rescued.take_warnings().is_empty());
                    }
                },
            }
            prop_assert!(denied(&broker, "dd if=x", &here), "after {:?}", happening);
        }
        // And a repair is seen by whoever still runs.
        fs::write(&path, format!("id: base\nname: b\n{}", body("cat *"))).unwrap();
        let _ = fs::remove_file(here.join(".substrate-profile"));
        prop_assert!(denied(&broker, "cat x", &here) && !denied(&broker, "dd if=x", &here));
    }
}

#[test]
fn a_mistake_keeps_the_last_good_policy_and_is_told_once() {
    let place = Place::new();
    let path = place.policy("base", &body("touch *"));
    let broker = place.broker("base");
    let here = place.project();
    std::thread::sleep(Duration::from_millis(10));
    fs::write(&path, "id: base\nname: b\ncommands: { denied: 7 }\n").unwrap();
    for _ in 0..3 {
        assert!(denied(&broker, "touch x", &here));
    }
    fs::remove_file(&path).unwrap();
    assert!(denied(&broker, "touch x", &here));
    let notes = broker.take_notes();
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes.iter().all(|note| matches!(note, Note::Kept { .. })));
    // A new process finds the last good one too, and says so.
    let other = place.broker("base");
    assert!(denied(&other, "touch x", &here));
    assert_eq!(other.take_notes().len(), 1);
    place.policy("base", &body("ls *"));
    assert!(denied(&broker, "ls", &here) && !denied(&broker, "touch x", &here));
    assert!(matches!(
        broker.take_notes().as_slice(),
        [Note::Reloaded { .. }]
    ));
}

#[test]
fn eight_threads_judge_while_the_policy_is_swapped() {
    const SWAPS: usize = 10_000;
    let place = Place::new();
    // Both versions deny `dd`, and each denies one of two others: a moment without a policy, or with
    // half of one, would show.
    let versions = ["touch *", "ls *"].map(|other| {
        format!("id: base\nname: b\n{COMMON}commands: {{ denied: [\"dd *\", \"{other}\"] }}\n")
    });
    let path = place.policy("base", "");
    fs::write(&path, &versions[0]).unwrap();
    let broker = place.broker("base");
    let here = place.project();
    let (done, judged) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    assert!(denied(&broker, "dd if=x", &here));
                    let both = judge(&broker, "touch x; ls", &here);
                    let rules: Vec<_> = both
                        .judgement
                        .reasons
                        .iter()
                        .map(|reason| reason.rule.pattern.as_str())
                        .collect();
                    assert!(rules == ["touch *"] || rules == ["ls *"], "{rules:?}");
                    judged.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let aside = path.with_extension("tmp");
        for number in 0..SWAPS {
            // Now and then a broken version, and one that is cut short.
            let text = match number % 50 {
                17 => "commands: [",
                33 => &versions[0][..40],
                _ => &versions[number % 2],
            };
            fs::write(&aside, text).unwrap();
            fs::rename(&aside, &path).unwrap();
        }
        while judged.load(Ordering::Relaxed) < 16 {
            std::thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
}
