//! Substrate inside Substrate: in a world of a session it is a shell that judges, beside the guard outside.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

use crate::login_support::{Machine, text_of};

/// Runs lines as `ann`, in a project of hers.
fn as_ann(machine: &Machine, lines: &str) -> String {
    let script = format!(
        "cat > /run/lines <<'END'\ncd; git init -q app; cd app; umask 022\n{lines}\nEND\nsu -s /bin/bash ann /run/lines"
    );
    text_of(&machine.run(&script))
}

#[test]
fn a_line_in_a_world_is_judged_by_both() {
    let Some(machine) = Machine::new("a_line_in_a_world_is_judged_by_both", &["git"]) else {
        return;
    };
    for policy in ["agent", "ci", "restricted"] {
        let said = as_ann(
            &machine,
            &format!(
                "S='substrate --policy {policy} -c'\n\
                 $S 'substrate -c \"echo made > made; cat made\"'; echo one-$?\n\
                 $S 'substrate --policy locked -c \"chmod 700 made\"'; echo two-$?\n\
                 $S 'substrate -c \"git push --force o x\"; substrate run -- git push --force o x' ; echo three-$?\n\
                 $S 'substrate run -- cat made'; echo four-$?\n\
                 $S 'substrate --policy nobody -c true'; echo five-$?\n\
                 substrate --policy {policy} run --isolated -- substrate -c 'echo isolated'; echo six-$?\n\
                 $S 'substrate run --isolated -- true'; echo seven-$?"
            ),
        );
        assert!(said.contains("made\none-0"), "{policy}: {said}");
        assert!(
            said.contains("two-126"),
            "the inner policy: {policy}: {said}"
        );
        assert!(
            said.contains("three-126"),
            "the outer policy: {policy}: {said}"
        );
        assert!(said.contains("made\nfour-0"), "{policy}: {said}");
        assert!(
            said.contains("only shipped policies can be named"),
            "{policy}: {said}"
        );
        assert!(said.contains("five-125"), "{policy}: {said}");
        assert!(said.contains("isolated\nsix-0"), "{policy}: {said}");
        assert!(
            said.contains("no world can be made inside a world"),
            "{policy}: {said}"
        );
        assert!(!said.contains("not recorded"), "{policy}: {said}");
    }
}

#[test]
fn what_needs_the_home_says_so_in_a_world() {
    let Some(machine) = Machine::new("what_needs_the_home_says_so_in_a_world", &["git"]) else {
        return;
    };
    for command in [
        "approvals list",
        "trace list",
        "world status",
        "policy show",
        "ps",
        "doctor",
    ] {
        let said = as_ann(
            &machine,
            &format!("substrate --policy agent -c 'substrate {command}'; echo status-$?"),
        );
        assert!(
            said.contains("shows nothing of Substrate's home"),
            "{command}: {said}"
        );
        assert!(!said.contains("status-0"), "{command}: {said}");
    }
    let said = as_ann(
        &machine,
        "substrate --policy agent -c \"substrate policy explain 'sudo id'\"; echo status-$?",
    );
    assert!(said.contains("deny"), "{said}");
}
