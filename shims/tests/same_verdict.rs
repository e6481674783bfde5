//! The quick check says what the full broker says, or leaves the question to it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

use std::ffi::{OsStr, OsString};
use std::path::Path;

use proptest::prelude::*;
use substrate_broker::{Answer as Full, Broker, Choice, Home, Input, Options, Origin, Request};
use substrate_shim::quick::{self, Answer, Policies, Question};

const WORDS: [&str; 27] = [
    "rm",
    "git",
    "curl",
    "ls",
    "cat",
    "env",
    "sh",
    "sudo",
    "-rf",
    "-r",
    "-f",
    "-c",
    "--force",
    "push",
    "status",
    "/",
    "/etc/passwd",
    "/tmp/x",
    "~/.ssh/id_rsa",
    "/srv/other/.ssh/id_rsa",
    "https://example.com",
    "-o",
    "rm -rf /",
    "A=1",
    "--",
    "*",
    "x",
];

const RULES: [&str; 10] = [
    "rm -rf /",
    "rm *",
    "git push *",
    "git push --force *",
    "curl *",
    "sudo *",
    "ls",
    "cat /etc/*",
    "env *",
    "git *",
];

const EFFECTS: [&str; 5] = [
    "delete:recursive:/",
    "read:@secrets",
    "connect:unlisted",
    "privilege",
    "write:outside",
];

fn pick(from: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(from), 0..=most)
}

fn policy(
    mode: &str,
    denied: &[&str],
    ask: &[&str],
    isolated: &[&str],
    allowed: &[&str],
    effects: &[&str],
) -> String {
    let list = |rules: &[&str]| {
        let rules: Vec<String> = rules.iter().map(|rule| format!("{rule:?}")).collect();
        format!("[{}]", rules.join(", "))
    };
    format!(
        "id: test\nname: T\nmode: {mode}\nfs: {{ write: [\"/tmp/**\"] }}\nnet: {{ allowed: [github.com] }}\n\
         world: {{ enabled: \"off\" }}\ncommands:\n  denied: {}\n  ask: {}\n  isolated: {}\n  allowed: {}\n\
         effects: {{ denied: {} }}\n",
        list(denied),
        list(ask),
        list(isolated),
        list(allowed),
        list(effects)
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn quick_is_full_or_leaves_it_to_full(
        enforce: bool,
        moved: bool,
        denied in pick(&RULES, 3), ask in pick(&RULES, 2), isolated in pick(&RULES, 2), allowed in pick(&RULES, 2),
        effects in pick(&EFFECTS, 2),
        argvs in prop::collection::vec(prop::collection::vec(prop::sample::select(&WORDS[..]), 1..6), 12),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let home = Home { path: directory.path().join("home"), user: directory.path().join("user") };
        std::fs::create_dir_all(home.policies()).unwrap();
        std::fs::create_dir_all(&home.user).unwrap();
        let mode = if enforce { "enforce" } else { "observe" };
        let text = policy(mode, &denied, &ask, &isolated, &allowed, &effects);
        std::fs::write(home.policies().join("test.yaml"), text).unwrap();
        std::fs::write(home.active(), "test\n").unwrap();
        let options = Options {
            choice: Choice::Active,
            ceilings: Vec::new(),
            require_approval: false,
            world: None,
            home_variable: moved.then(|| OsString::from("/srv/other")),
            unattended: false,
            session_start: "/".into(),
            caller: substrate_broker::Caller::own(),
        };
        let broker = Broker::open(home.clone(), options).unwrap();
        let policies = Policies::open(&home).unwrap_or_else(|_| panic!("the broker left no compiled policy"));
        let home_variable = moved.then_some(&b"/srv/other"[..]);
        let (cwd, search_path) = (Path::new("/"), OsStr::new("/usr/bin:/bin"));
        for argv in argvs {
            let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
            let full = broker.evaluate(&Request {
                input: Input::Argv(&argv),
                origin: Origin::Shim,
                cwd,
                search_path,
                variables: &[],
                aliases: &[],
                isolate: false,
                around: substrate_broker::Around::Nothing,
            });
            match quick::check(&policies, &home, &Question { argv: &argv, cwd, search_path, home_variable }) {
                Answer::Full => {}
                Answer::Deny(judged) => {
                    let Full::Deny(rule) = &full.answer else { panic!("{argv:?}: only the quick check denies") };
                    prop_assert_eq!(&judged.decisive, rule);
                }
                Answer::Run(judged) => {
                    prop_assert!(matches!(&full.answer, Full::Allow(_)), "{:?}: only the quick check allows", argv);
                    prop_assert_eq!(judged.would, full.would.map(|(outcome, _)| outcome));
                }
            }
        }
    }
}

#[test]
fn the_variable_home_takes_away_and_gives_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let home = Home {
        path: directory.path().join("home"),
        user: directory.path().join("user"),
    };
    std::fs::create_dir_all(home.policies()).unwrap();
    let text = "id: test\nname: T\nmode: enforce\nworld: { enabled: \"off\" }\n\
                fs: { write: [\"$HOME/.cache/**\"], hide: [\"$HOME/.ssh/**\"] }\n";
    std::fs::write(home.policies().join("test.yaml"), text).unwrap();
    std::fs::write(home.active(), "test\n").unwrap();
    let options = Options {
        choice: Choice::Active,
        ceilings: Vec::new(),
        require_approval: false,
        world: None,
        home_variable: None,
        unattended: false,
        session_start: "/".into(),
        caller: substrate_broker::Caller::own(),
    };
    Broker::open(home.clone(), options).unwrap();
    let policies = Policies::open(&home).unwrap_or_else(|_| panic!("no compiled policy"));
    let user = home.user.display().to_string();
    let denied = |line: &str, variable: Option<&[u8]>| {
        let argv: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let question = Question {
            argv: &argv,
            cwd: Path::new("/"),
            search_path: OsStr::new("/usr/bin:/bin"),
            home_variable: variable,
        };
        match quick::check(&policies, &home, &question) {
            Answer::Deny(_) => true,
            Answer::Run(_) => false,
            Answer::Full => panic!("{line}: nothing here needs the full broker"),
        }
    };
    let moved = Some(&b"/srv/other"[..]);
    for (line, variable, expected) in [
        ("cat /srv/other/.ssh/config", None, false),
        ("cat /srv/other/.ssh/config", moved, true),
        (&format!("cat {user}/.ssh/config"), moved, true),
        ("touch /srv/other/.cache/x", moved, true),
        (&format!("touch {user}/.cache/x"), moved, false),
    ] {
        assert_eq!(denied(line, variable), expected, "{line} {variable:?}");
    }
}
