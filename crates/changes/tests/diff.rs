//! What a world did, as the diff tells it, for every way an overlay and a copy can show it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at the first surprise"
)]

mod common;

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;

use common::{Rig, listing, overlays_work};
use substrate_changes::diff::{self, MAX_DIRS, MAX_FILES};
use substrate_changes::pending::Pending;
use substrate_changes::root::RootKind;
use substrate_sys::at;

/// Runs a script both ways and expects the same changes from both.
fn both(test: &str, build: impl Fn(&Rig), script: &str, expected: &[&str]) {
    let rig = Rig::new();
    build(&rig);
    assert_eq!(listing(&rig.copied("copy", script)), expected, "by copy");
    if overlays_work(test) {
        let rig = Rig::new();
        build(&rig);
        assert_eq!(
            listing(&rig.overlay("overlay", script)),
            expected,
            "by overlay"
        );
    }
}

#[test]
fn plain_changes() {
    both(
        "plain_changes",
        |rig| {
            rig.file("a/keep", "1");
            rig.file("a/edit", "1");
            rig.file("a/drop", "1");
        },
        "echo new > a/new; echo more >> a/edit; rm a/drop; mkdir -p d/e; echo x > d/e/f; ln -s ../a d/l",
        &[
            "deleted a/drop",
            "modified a/edit",
            "created a/new",
            "created d",
            "created d/e",
            "created d/e/f",
            "created d/l",
        ],
    );
}

#[test]
fn a_file_that_was_only_opened_for_writing_is_no_change() {
    both(
        "a_file_that_was_only_opened_for_writing_is_no_change",
        |rig| {
            rig.file("f", "1");
            rig.file("d/g", "1");
        },
        ": >> f; chmod 700 d; chmod 755 d; touch d/x; rm d/x; touch -r d/g ref; mv d/g d/h; mv d/h d/g; rm ref",
        &[],
    );
}

#[test]
fn metadata_alone() {
    both(
        "metadata_alone",
        |rig| {
            for name in ["mode", "times", "attr", "d/x"] {
                rig.file(name, "1");
            }
        },
        "chmod 4711 mode; touch -d @1000 times; xattr attr user.a b; chmod 711 d; xattr . user.d 1",
        &[
            "meta[attributes] ",
            "meta[attributes] attr",
            "meta[mode] d",
            "meta[mode] mode",
            "meta[times] times",
        ],
    );
}

#[test]
fn a_directory_that_was_removed_and_made_again() {
    both(
        "a_directory_that_was_removed_and_made_again",
        |rig| {
            for name in ["d/a", "d/b", "d/s/c", "d/s/same"] {
                rig.file(name, "1");
            }
        },
        "cp -a d/s/same keep; rm -r d; mkdir -p d/s; echo 2 > d/b; mv keep d/s/same",
        &["deleted d/a", "modified d/b", "deleted d/s/c"],
    );
}

#[test]
fn types_change_both_ways() {
    both(
        "types_change_both_ways",
        |rig| {
            rig.file("f", "1");
            rig.file("d/x/y", "1");
            rig.file("s", "1");
        },
        "rm f; mkdir f; echo 1 > f/in; rm -r d; echo 1 > d; rm s; ln -s f s",
        &[
            "type_changed d",
            "deleted d/x",
            "deleted d/x/y",
            "type_changed f",
            "created f/in",
            "type_changed s",
        ],
    );
}

#[test]
fn a_whole_tree_deleted_is_listed_name_by_name() {
    both(
        "a_whole_tree_deleted_is_listed_name_by_name",
        |rig| {
            rig.file("d/e/f", "1");
            rig.file("d/g", "1");
        },
        "rm -r d",
        &["deleted d", "deleted d/e", "deleted d/e/f", "deleted d/g"],
    );
}

#[test]
fn renames_are_a_deletion_and_a_creation() {
    both(
        "renames_are_a_deletion_and_a_creation",
        |rig| {
            rig.file("a", "1");
            rig.file("d/x", "1");
        },
        "mv a b; mv d e",
        &[
            "deleted a",
            "created b",
            "deleted d",
            "deleted d/x",
            "created e",
            "created e/x",
        ],
    );
}

#[test]
fn odd_names_are_ordinary() {
    let odd = OsString::from_vec(b"\n \xff\xfe*".to_vec());
    both(
        "odd_names_are_ordinary",
        |rig| {
            fs::write(rig.host.join(&odd), "1").unwrap();
            rig.file(".wh.x", "1");
            rig.file("x", "1");
        },
        "for f in *; do echo 2 >> \"$f\"; done; echo 1 > .wh..wh..opq; rm .wh.x",
        &[
            "modified \n \u{fffd}\u{fffd}*",
            "created .wh..wh..opq",
            "deleted .wh.x",
            "modified x",
        ],
    );
}

#[test]
fn attributes_of_overlays_are_nobodys_change() {
    both(
        "attributes_of_overlays_are_nobodys_change",
        |rig| {
            rig.file("f", "1");
            rig.file("g", "1");
            rig.file("h", "1");
        },
        "xattr f user.overlay.opaque y; xattr h user.own y; chmod 600 g; chmod 644 g",
        &["meta[attributes] h"],
    );
}

#[test]
fn paths_may_be_deeper_and_longer_than_the_kernel_takes_at_once() {
    let rig = Rig::new();
    let name = "n".repeat(120);
    let mut pending = rig.pending("1");
    let paths = pending
        .add_root(&rig.host, RootKind::Overlay, false)
        .unwrap();
    let mut here: std::os::fd::OwnedFd = fs::File::open(&paths.upper).unwrap().into();
    for _ in 0..100 {
        at::mkdir(&here, &name, 0o755).unwrap();
        here = at::open_dir(&here, &name).unwrap();
    }
    at::create_new(&here, "leaf", 0o644).unwrap();
    let found = listing(&pending);
    assert_eq!(found.len(), 101);
    assert_eq!(
        found[100].len(),
        "created ".len() + 100 * 121 + "leaf".len()
    );
}

#[test]
fn what_the_world_may_not_read_itself_is_still_compared() {
    both(
        "what_the_world_may_not_read_itself_is_still_compared",
        |rig| {
            rig.file("f", "1");
        },
        "mkdir d; echo 1 > d/x; chmod 000 d/x d; echo 2 > f; chmod 000 f",
        &["created d", "created d/x", "modified f"],
    );
}

#[test]
fn a_single_file_can_be_a_root() {
    let rig = Rig::new();
    let file = rig.file("one", "1");
    rig.file("other", "1");
    let mut pending = rig.pending("1");
    let paths = pending.add_root(&file, RootKind::Copy, false).unwrap();
    substrate_changes::copy::clone_tree(&file, &paths.upper, &mut |_| Ok(())).unwrap();
    pending.mark_copied(paths.index).unwrap();
    assert_eq!(listing(&pending), [""; 0]);
    fs::write(&paths.upper, "2").unwrap();
    pending.finish(Some(0)).unwrap();
    let diff = diff::settle(&pending, false, &mut |_| true).unwrap();
    assert_eq!(diff.mods, [file]);
}

#[test]
fn what_the_host_does_meanwhile_is_not_the_worlds_doing() {
    for overlay in [false, true] {
        if overlay && !overlays_work("what_the_host_does_meanwhile_is_not_the_worlds_doing") {
            continue;
        }
        let rig = Rig::new();
        for name in ["opened", "theirs", "gone", "d/x", "mine"] {
            rig.file(name, "1");
        }
        let script = ": >> opened; chmod 600 opened; chmod 644 opened; echo 2 > mine";
        let pending = match overlay {
            true => rig.overlay("o", script),
            false => rig.copied("c", script),
        };
        rig.file("opened", "host");
        rig.file("theirs", "host");
        rig.file("d/new", "host");
        fs::remove_file(rig.host.join("gone")).unwrap();
        assert_eq!(listing(&pending), ["modified mine"], "overlay: {overlay}");
    }
}

fn lists(pending: &Pending) -> substrate_trace::FsDiff {
    diff::settle(pending, false, &mut |_| true).unwrap()
}

#[test]
fn the_trace_shape_has_absolute_paths_and_no_hash_when_short() {
    let rig = Rig::new();
    rig.file("m", "1");
    rig.file("x/y", "1");
    let pending = rig.copied("1", "echo 2 > m; echo 1 > w; mkdir n; rm -r x");
    let diff = lists(&pending);
    let path = |p: &str| rig.host.join(p);
    assert_eq!(diff.root, rig.host);
    assert_eq!(diff.writes, [path("w")]);
    assert_eq!(diff.mods, [path("m")]);
    assert_eq!(diff.deletes, [path("x"), path("x/y")]);
    assert_eq!(diff.created_dirs, [path("n")]);
    assert_eq!(diff.strategy, "copy");
    assert_eq!(
        (diff.truncated, diff.tree_hash, diff.summary),
        (false, None, None)
    );
}

#[test]
fn a_thousand_files_are_listed_and_one_more_is_not() {
    let rig = Rig::new();
    let script = "i=0; while [ $i -lt 1000 ]; do echo $i > f$i; i=$((i+1)); done";
    let exact = lists(&rig.copied("1", script));
    assert_eq!((exact.writes.len(), exact.truncated), (MAX_FILES, false));
    let more = lists(&rig.copied("2", &format!("{script}; mkdir d; echo x > z")));
    assert_eq!((more.writes.len(), more.truncated), (MAX_FILES, true));
    assert_eq!(
        more.summary.as_deref(),
        Some("1 dirs, 1001 files (truncated, see tree_hash)")
    );
    assert!(more.tree_hash.unwrap().starts_with("sha256:"));
    let dirs = lists(&rig.copied(
        "3",
        "i=0; while [ $i -lt 101 ]; do mkdir d$i; i=$((i+1)); done",
    ));
    assert_eq!((dirs.created_dirs.len(), dirs.truncated), (MAX_DIRS, true));
}

#[test]
fn equal_work_has_an_equal_hash_and_one_byte_makes_another() {
    let rig = Rig::new();
    rig.file("old", "1");
    let script =
        "i=0; while [ $i -lt 1200 ]; do echo $i > f$i; i=$((i+1)); done; ln -s x l; chmod 600 old";
    let hash = |id: &str, more: &str| {
        let pending = rig.copied(id, &format!("{script}; {more}"));
        let short = diff::settle(&pending, false, &mut |_| true)
            .unwrap()
            .tree_hash;
        let always = diff::settle(&pending, true, &mut |_| true)
            .unwrap()
            .tree_hash;
        assert_eq!(short, always, "when hashing began makes no difference");
        short.unwrap()
    };
    let plain = hash("1", ":");
    assert_eq!(
        plain,
        hash("2", "touch -d @1000 f1"),
        "times are not hashed"
    );
    let others = [
        hash("3", "echo x > f3"),
        hash("4", "echo x > f1150"),
        hash("5", "chmod 601 f7"),
        hash("6", "ln -sfn y l"),
        hash("7", "xattr f9 user.a b"),
        hash("8", "rm f5"),
    ];
    for (n, other) in others.iter().enumerate() {
        assert_ne!(&plain, other, "case {n}");
        assert!(!others[..n].contains(other), "case {n}");
    }
}

#[test]
fn progress_is_told_and_can_end_the_walk() {
    let rig = Rig::new();
    let pending = rig.copied(
        "1",
        "i=0; while [ $i -lt 500 ]; do echo $i > f$i; i=$((i+1)); done",
    );
    let mut seen = Vec::new();
    diff::changes(&pending, &mut |p| {
        seen.push(p.done);
        true
    })
    .unwrap();
    assert!(seen.len() > 3 && seen.is_sorted());
    let stopped = diff::changes(&pending, &mut |_| false);
    assert!(matches!(stopped, Err(diff::DiffError::Stopped)));
}

#[test]
fn looking_again_does_not_move_the_base() {
    let rig = Rig::new();
    rig.file("mine", "1");
    rig.file("theirs", "1");
    let pending = rig.copied(
        "1",
        "echo 2 > mine; : >> theirs; chmod 600 theirs; chmod 644 theirs",
    );
    rig.file("mine", "host");
    rig.file("theirs", "host");
    let again = lists(&pending);
    assert_eq!(again.mods, [rig.host.join("mine")]);
    assert_eq!(
        listing(&pending),
        ["modified mine (changed on the host since)"]
    );
}
