//! The home directory has two names: the passwd entry's, and what the variable `HOME` says. Shells
//! and programs go by the variable, so rules that take something away count in both places; rules
//! that permit count in the passwd entry's only, because anybody can set a variable.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

mod support;

use std::path::PathBuf;

use substrate_broker::{Answer, Broker, Evaluation, Origin, Request};
use substrate_policy::terms::{Place as Where, WorldSpec};
use substrate_trace::Verdict;
use support::{Place, request};

const POLICY: &str = r#"mode: enforce
fs:
  write: ["$PROJECT/**", "$HOME/.cache/**"]
  hide: ["$HOME/.ssh/**"]
  protect: ["~/.cache/settings"]
effects:
  denied: ["delete:recursive:$HOME", "read:@secrets"]
commands:
  denied: ["chmod 777 ~/open", "~/bin/tool *"]
"#;

fn broker(place: &Place, variable: Option<&str>) -> Broker {
    let mut options = place.options("test", false);
    options.home_variable = variable.map(Into::into);
    Broker::open(place.home(), options).unwrap()
}

fn verdict(broker: &Broker, line: &str, place: &Place) -> Verdict {
    judge(broker, line, place).judgement.verdict
}

fn judge(broker: &Broker, line: &str, place: &Place) -> Evaluation {
    broker.evaluate(&request(line, &place.project(), Origin::OneShot))
}

#[test]
fn what_is_taken_away_is_taken_away_in_both() {
    let place = Place::new();
    place.policy("test", POLICY);
    let broker = broker(&place, Some("/srv/x/"));
    let passwd = place.home().user.display().to_string();
    for home in ["~", "$HOME", "/srv/x", "/srv/../srv/x", &passwd] {
        for line in [
            format!("cat {home}/.ssh/id_rsa"),
            format!("cat < {home}/.ssh/known_hosts"),
            format!("echo x > {home}/.cache/settings"),
            format!("rm -rf {home}"),
            format!("rm -rf {home}/"),
            format!("find {home} -delete"),
            format!("cat {home}/.aws/credentials"),
            format!("chmod 777 {home}/open"),
            format!("{home}/bin/tool x"),
        ] {
            assert_eq!(verdict(&broker, &line, &place), Verdict::Deny, "{line}");
        }
    }
    assert_eq!(verdict(&broker, "cd && rm -rf .", &place), Verdict::Deny);
    assert_eq!(verdict(&broker, "cat ~/notes", &place), Verdict::Allow);
}

#[test]
fn what_is_permitted_does_not_follow_the_variable() {
    let place = Place::new();
    place.policy("test", POLICY);
    place.policy(
        "list",
        "mode: enforce\ncommands:\n  allowed: [\"cat ~/notes\", \"~/bin/tool *\"]\n",
    );
    let passwd = place.home().user.display().to_string();
    let moved = broker(&place, Some("/srv/x"));
    for (line, expected) in [
        ("touch ~/.cache/x".to_owned(), Verdict::Deny),
        ("touch /srv/x/.cache/x".to_owned(), Verdict::Deny),
        (format!("touch {passwd}/.cache/x"), Verdict::Allow),
    ] {
        assert_eq!(verdict(&moved, &line, &place), expected, "{line}");
    }
    let mut options = place.options("list", false);
    options.home_variable = Some("/srv/x".into());
    let list = Broker::open(place.home(), options).unwrap();
    for (line, expected) in [
        ("cat ~/notes".to_owned(), Verdict::Deny),
        ("/srv/x/bin/tool".to_owned(), Verdict::Deny),
        (format!("cat {passwd}/notes"), Verdict::Allow),
    ] {
        assert_eq!(verdict(&list, &line, &place), expected, "{line}");
    }
}

#[test]
fn a_home_in_a_permitted_directory_is_still_a_home() {
    let place = Place::new();
    place.policy(
        "test",
        "mode: enforce\nfs: { write: [\"$PROJECT/**\", \"/srv/**\"] }\n",
    );
    let project = place.project().display().to_string();
    let broker = broker(&place, Some("/srv/x"));
    for (line, expected) in [
        ("rm -rf ~/documents", Verdict::Deny),
        ("touch /srv/x/file", Verdict::Deny),
        ("touch /srv/other", Verdict::Allow),
        (&format!("touch {project}/file"), Verdict::Allow),
    ] {
        assert_eq!(verdict(&broker, line, &place), expected, "{line}");
    }
    // A project inside that home is a project.
    let parent = place.home().user.parent().unwrap().display().to_string();
    let inside = self::broker(&place, Some(&parent));
    let line = format!("touch {project}/file");
    assert_eq!(verdict(&inside, &line, &place), Verdict::Allow);
}

#[test]
fn a_variable_that_names_no_directory_adds_nothing() {
    let place = Place::new();
    place.policy("test", POLICY);
    let passwd = place.home().user.display().to_string();
    for variable in [None, Some("relative"), Some(passwd.as_str())] {
        let broker = broker(&place, variable);
        let line = "cat /srv/x/.ssh/config";
        assert_eq!(verdict(&broker, line, &place), Verdict::Allow);
        let line = format!("cat {passwd}/.ssh/config");
        assert_eq!(verdict(&broker, &line, &place), Verdict::Deny);
    }
    // With an empty one bash puts nothing for the tilde, so this is the root.
    let broker = broker(&place, Some(""));
    let object = judge(&broker, "rm -rf ~/", &place);
    let object = &object.line.invocations[0].argv[2];
    assert_eq!(object.value(), Some(&b"/"[..]));
}

#[test]
fn a_shell_that_says_where_its_home_is_now_is_believed() {
    let place = Place::new();
    place.policy("test", POLICY);
    let broker = broker(&place, Some("/srv/x"));
    let variables = [(b"HOME".to_vec(), b"/srv/later".to_vec())];
    let cwd = place.project();
    for line in [
        "rm -rf ~",
        "rm -rf /srv/later",
        "rm -rf /srv/x",
        "cat /srv/x/.ssh/config",
        "cat ~/.ssh/config",
    ] {
        let asked = Request {
            variables: &variables,
            ..request(line, &cwd, Origin::Prompt)
        };
        let found = broker.evaluate(&asked).judgement.verdict;
        assert_eq!(found, Verdict::Deny, "{line}");
    }
}

fn world(evaluation: Evaluation) -> WorldSpec {
    let Answer::Allow(terms) = evaluation.answer else {
        panic!("{evaluation:?}");
    };
    match terms.place {
        Where::Session(spec) | Where::Isolated(spec) => *spec,
        Where::Direct => panic!("it needs a world"),
    }
}

#[test]
fn worlds_hide_and_protect_in_both_and_open_one() {
    let place = Place::new();
    place.policy("test", POLICY);
    let user = place.home().user;
    let spec = world(judge(&broker(&place, Some("/srv/x")), "true", &place));
    let bases = |patterns: &[substrate_policy::terms::PathPattern]| -> Vec<PathBuf> {
        patterns
            .iter()
            .map(|pattern| pattern.base.clone())
            .collect()
    };
    let both = |path: &str| [user.join(path), PathBuf::from("/srv/x").join(path)];
    let hidden = bases(&spec.hide);
    assert!(
        both(".ssh").iter().all(|path| hidden.contains(path)),
        "{hidden:?}"
    );
    let protected = bases(&spec.protect);
    assert!(
        both(".cache/settings")
            .iter()
            .all(|path| protected.contains(path)),
        "{protected:?}"
    );
    assert_eq!(spec.write, [place.project(), user.join(".cache")]);
    assert_eq!(spec.home, user);
    // A shell that moves its home does not change the terms of the world that it lives in.
    let cwd = place.project();
    let variables = [(b"HOME".to_vec(), b"/srv/later".to_vec())];
    let later = broker(&place, Some("/srv/x")).evaluate(&Request {
        variables: &variables,
        ..request("true", &cwd, Origin::Prompt)
    });
    assert_eq!(world(later), spec);
}
