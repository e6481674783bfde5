//! What becomes of a result on the host: applied exactly, refused on conflict, undone exactly,
//! and finished or undone after a crash at any point.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at the first surprise"
)]

mod common;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use common::{Node, Rig, assert_same, listing, overlays_work, shell, snapshot};
use substrate_changes::apply::{self, ApplyOptions, RunsLater};
use substrate_changes::apply_error::ApplyError;
use substrate_changes::change::Conflict;
use substrate_changes::diff;
use substrate_changes::observer::Observer;
use substrate_changes::pending::{Pending, State};

fn all() -> ApplyOptions {
    ApplyOptions::default()
}

fn only(paths: &[PathBuf]) -> ApplyOptions {
    ApplyOptions {
        paths: paths.to_vec(),
        ..all()
    }
}

fn force() -> ApplyOptions {
    ApplyOptions {
        force: true,
        ..all()
    }
}

fn apply_all(pending: &mut Pending) -> apply::Applied {
    apply::apply(pending, &all(), &mut Observer::new(&mut |_| true)).unwrap()
}

fn undo(pending: &mut Pending) -> Result<u64, ApplyError> {
    apply::undo(pending, false, &mut Observer::new(&mut |_| true))
}

fn conflicts(rig: &Rig, pending: &mut Pending) -> Vec<(String, Conflict)> {
    match apply::apply(pending, &all(), &mut Observer::new(&mut |_| true)) {
        Err(ApplyError::Conflicts(list)) => list
            .into_iter()
            .map(|(p, c)| (p.strip_prefix(&rig.host).unwrap().display().to_string(), c))
            .collect(),
        other => panic!("{other:?}"),
    }
}

/// A host with a little of everything.
fn build(rig: &Rig) {
    for name in [
        "edit", "drop", "mode", "attr", "times", "d/a", "d/s/b", "gone/x/y", "gone/z", "f2d",
        "link",
    ] {
        rig.file(name, &format!("old {name}\n"));
    }
    for dir in ["d2f/in", "again/sub"] {
        fs::create_dir_all(rig.host.join(dir)).unwrap();
    }
    rig.file("d2f/in/file", "1");
    rig.file("again/one", "1");
    rig.file("again/two", "2");
    fs::set_permissions(rig.host.join("edit"), Permissions::from_mode(0o640)).unwrap();
}

/// Does a little of everything.
const EVERYTHING: &str = r#"
    echo more >> edit; rm drop; chmod 751 mode; xattr attr user.k v; touch -d @12345.678 times
    mkdir -p new/deep; echo 1 > new/deep/f; chmod 500 new/deep; ln -s ../edit new/l; ln -s /nowhere out
    rm -r gone; rm f2d; mkdir f2d; echo 1 > f2d/in; rm -r d2f; echo file > d2f
    rm -r again; mkdir again; echo 2b > again/two; mkdir again/sub
    mv d/s moved; echo h > h1; ln h1 h2; ln link link2; mkfifo pipe
    truncate -s 1000000 sparse; echo end >> sparse; : > empty
    xattr d user.dir 1; chmod 711 d; chmod 700 .
"#;

fn expected(script: &str) -> BTreeMap<PathBuf, Node> {
    let plain = Rig::new();
    build(&plain);
    shell(&plain.host, script);
    snapshot(&plain.host)
}

/// Times of what the two runs wrote at different moments cannot be compared.
fn without_new_times(mut tree: BTreeMap<PathBuf, Node>) -> BTreeMap<PathBuf, Node> {
    for node in tree.values_mut() {
        node.mtime = node.mtime.filter(|&t| t == (12345, 678_000_000));
    }
    tree
}

type Make = fn(&Rig, &str, &str) -> Pending;

/// Every way a result can be held: by overlay or copy, with the home here or elsewhere.
fn each_way(test: &str, mut run: impl FnMut(Rig, Make, &str)) {
    let mut ways: Vec<(Make, &str)> = vec![(Rig::copied, "copy")];
    if overlays_work(test) {
        ways.push((Rig::overlay, "overlay"));
    }
    for (make, name) in ways {
        run(Rig::new(), make, name);
        let elsewhere = tempfile::tempdir_in("/dev/shm").expect("a second file system");
        run(
            Rig::apart(&elsewhere),
            make,
            &format!("{name}, home elsewhere"),
        );
    }
}

#[test]
fn everything_is_carried_over_and_comes_back() {
    let expected = without_new_times(expected(EVERYTHING));
    each_way(
        "everything_is_carried_over_and_comes_back",
        |rig, make, way| {
            build(&rig);
            let before = snapshot(&rig.host);
            let mut pending = make(&rig, "1", EVERYTHING);
            assert_same(
                &snapshot(&rig.host),
                &before,
                "a world leaves the host alone",
            );
            let applied = apply_all(&mut pending);
            assert!(applied.whole, "{way}");
            assert_same(&without_new_times(snapshot(&rig.host)), &expected, way);
            assert_eq!(listing(&pending), [""; 0], "{way}: nothing is left to do");
            assert_eq!(pending.meta().state, State::Applied);
            let blocks = fs::metadata(rig.host.join("sparse")).unwrap().blocks();
            assert!(blocks * 512 < 500_000, "{way}: holes stay holes");

            undo(&mut pending).unwrap();
            assert_same(&snapshot(&rig.host), &before, way);
            assert_eq!(pending.meta().state, State::Finished);
            assert!(matches!(undo(&mut pending), Err(ApplyError::NotApplied)));

            apply_all(&mut pending);
            assert_same(
                &without_new_times(snapshot(&rig.host)),
                &expected,
                "applied again",
            );
        },
    );
}

/// Ends the work at the n-th point.
fn crash_at(n: &mut u64) -> impl FnMut(&'static str) -> bool + '_ {
    move |_| {
        let now = *n == 0;
        *n = n.saturating_sub(1);
        now
    }
}

#[test]
fn a_crash_at_any_point_can_be_finished_and_can_be_undone() {
    let expected = without_new_times(expected(EVERYTHING));
    each_way(
        "a_crash_at_any_point_can_be_finished_and_can_be_undone",
        |rig, make, way| {
            build(&rig);
            let before = snapshot(&rig.host);
            let mut pending = make(&rig, "1", EVERYTHING);
            let mut points = 0;
            loop {
                let mut left = points;
                let result = apply::apply(
                    &mut pending,
                    &all(),
                    &mut Observer::crashing(&mut |_| true, &mut crash_at(&mut left)),
                );
                if result.is_ok() {
                    break;
                }
                assert!(
                    matches!(result, Err(ApplyError::Interrupted)),
                    "{way} {points}: {result:?}"
                );
                let what = format!("{way}, crash {points}");
                // Even points are finished and then undone, odd ones undone at once; and the undo
                // crashes as well, at a point that wanders.
                if points % 2 == 0 {
                    apply::resume(&mut pending, &mut Observer::new(&mut |_| true)).unwrap();
                    if pending.meta().applies > 0 {
                        assert_same(&without_new_times(snapshot(&rig.host)), &expected, &what);
                    }
                }
                if pending.meta().applies > 0 {
                    let mut left = points * 7 % 40;
                    let undone = apply::undo(
                        &mut pending,
                        false,
                        &mut Observer::crashing(&mut |_| true, &mut crash_at(&mut left)),
                    );
                    if undone.is_err() {
                        assert!(
                            matches!(undone, Err(ApplyError::Interrupted)),
                            "{what}: {undone:?}"
                        );
                        apply::resume(&mut pending, &mut Observer::new(&mut |_| true)).unwrap();
                    }
                }
                assert_same(&snapshot(&rig.host), &before, &what);
                assert_eq!(
                    (pending.meta().state, pending.meta().applies),
                    (State::Finished, 0)
                );
                points += 1;
            }
            assert!(points > 40, "{way}: {points} points");
            assert_same(&without_new_times(snapshot(&rig.host)), &expected, way);
        },
    );
}

#[test]
fn a_crash_at_any_point_of_an_undo_can_be_finished() {
    each_way(
        "a_crash_at_any_point_of_an_undo_can_be_finished",
        |rig, make, way| {
            build(&rig);
            let before = snapshot(&rig.host);
            let mut pending = make(&rig, "1", EVERYTHING);
            let mut points = 0;
            loop {
                apply_all(&mut pending);
                let mut left = points;
                let undone = apply::undo(
                    &mut pending,
                    false,
                    &mut Observer::crashing(&mut |_| true, &mut crash_at(&mut left)),
                );
                if undone.is_ok() {
                    break;
                }
                assert!(
                    matches!(undone, Err(ApplyError::Interrupted)),
                    "{way}: {undone:?}"
                );
                let again = apply::apply(&mut pending, &all(), &mut Observer::new(&mut |_| true));
                if pending.meta().state == State::Undoing {
                    assert!(matches!(again, Err(ApplyError::Unfinished("undo"))));
                }
                apply::undo(&mut pending, false, &mut Observer::new(&mut |_| true)).unwrap();
                assert_same(
                    &snapshot(&rig.host),
                    &before,
                    &format!("{way}, crash {points}"),
                );
                points += 1;
            }
            assert!(points > 20, "{way}: {points} points");
            assert_same(&snapshot(&rig.host), &before, way);
        },
    );
}

#[test]
fn a_file_system_that_cannot_exchange_names_is_as_safe() {
    let expected = without_new_times(expected(EVERYTHING));
    for elsewhere in [None, Some(tempfile::tempdir_in("/dev/shm").unwrap())] {
        let rig = elsewhere.as_ref().map_or_else(Rig::new, Rig::apart);
        build(&rig);
        let before = snapshot(&rig.host);
        let mut pending = rig.copied("1", EVERYTHING);
        let mut asides = 0;
        for points in 0.. {
            let mut left = points;
            let mut crash = |step: &'static str| {
                asides += u64::from(step == "moved in");
                crash_at(&mut left)(step)
            };
            let mut quiet = |_: substrate_world::progress::Progress| true;
            let mut watch = Observer::crashing(&mut quiet, &mut crash).without_exchange();
            let applied = apply::apply(&mut pending, &all(), &mut watch);
            let mut left = points;
            let mut crash = crash_at(&mut left);
            let mut quiet = |_: substrate_world::progress::Progress| true;
            let mut watch = Observer::crashing(&mut quiet, &mut crash).without_exchange();
            if points % 2 == 0 && apply::resume(&mut pending, &mut watch).is_ok() {
                let found = without_new_times(snapshot(&rig.host));
                if pending.meta().applies > 0 {
                    assert_same(&found, &expected, &format!("crash {points}, resumed"));
                }
            }
            if pending.meta().applies > 0 {
                let mut quiet = |_: substrate_world::progress::Progress| true;
                let mut watch = Observer::new(&mut quiet).without_exchange();
                apply::undo(&mut pending, false, &mut watch).unwrap();
            }
            assert_same(
                &snapshot(&rig.host),
                &before,
                &format!("crash {points}, undone"),
            );
            if applied.is_ok() {
                break;
            }
        }
        assert!(asides > 5, "{asides}");
    }
}

#[test]
fn what_changed_on_the_host_is_not_overwritten() {
    each_way(
        "what_changed_on_the_host_is_not_overwritten",
        |rig, make, way| {
            for name in [
                "edit", "drop", "mode", "vanish", "dir/a", "same", "parent/x", "here/x",
            ] {
                rig.file(name, "1");
            }
            let script = "echo 2 > edit; rm drop; chmod 600 mode; echo 2 > vanish; rm -r dir; \
            echo 2 > new; echo 2 > same; echo 2 > parent/new; echo 2 > here/new";
            let mut pending = make(&rig, "1", script);
            rig.file("edit", "host");
            rig.file("drop", "host");
            rig.file("mode", "h");
            fs::remove_file(rig.host.join("vanish")).unwrap();
            rig.file("dir/b", "host");
            rig.file("new", "host");
            rig.file("other", "host");
            rig.file("here/other", "host");
            fs::remove_dir_all(rig.host.join("parent")).unwrap();
            let before = snapshot(&rig.host);
            let found = conflicts(&rig, &mut pending);
            assert_same(&snapshot(&rig.host), &before, "nothing happens");
            let expected = [
                ("dir/b", Conflict::AppearedSince),
                ("drop", Conflict::ChangedSince),
                ("edit", Conflict::ChangedSince),
                ("mode", Conflict::ChangedSince),
                ("new", Conflict::AppearedSince),
                ("parent", Conflict::VanishedSince),
                ("parent/new", Conflict::ParentGone),
                ("vanish", Conflict::VanishedSince),
            ];
            assert_eq!(found, expected.map(|(p, c)| (p.to_owned(), c)), "{way}");

            apply::apply(&mut pending, &force(), &mut Observer::new(&mut |_| true)).unwrap();
            for (name, content) in [
                ("edit", "2\n"),
                ("new", "2\n"),
                ("vanish", "2\n"),
                ("parent/new", "2\n"),
            ] {
                assert_eq!(rig.read(name), content);
            }
            assert!(!rig.host.join("dir").exists());
            assert_eq!(rig.read("other"), "host");
            assert_eq!(rig.read("here/other"), "host");
            undo(&mut pending).unwrap();
            assert_same(
                &snapshot(&rig.host),
                &before,
                "the host's own changes come back",
            );
            assert_eq!(
                conflicts(&rig, &mut pending).len(),
                expected.len(),
                "and are still in the way"
            );
        },
    );
}

#[test]
fn what_the_host_changed_while_the_world_ran_is_a_conflict() {
    let rig = Rig::new();
    rig.file("both", "1");
    rig.file("mine", "1");
    let mut pending = rig.pending("1");
    let paths = pending
        .add_root(&rig.host, substrate_changes::root::RootKind::Copy, false)
        .unwrap();
    substrate_changes::copy::clone_tree(&rig.host, &paths.upper, &mut |_| Ok(())).unwrap();
    pending.mark_copied(paths.index).unwrap();
    shell(&paths.upper, "echo 2 > both; echo 2 > mine; echo 2 > new");
    rig.file("both", "host");
    rig.file("new", "host");
    pending.finish(Some(0)).unwrap();
    diff::settle(&pending, false, &mut |_| true).unwrap();
    let meanwhile = Conflict::ChangedMeanwhile;
    assert_eq!(
        conflicts(&rig, &mut pending),
        [
            ("both".to_owned(), meanwhile),
            ("new".to_owned(), meanwhile)
        ]
    );
}

#[test]
fn chosen_paths_are_applied_and_the_rest_waits() {
    each_way(
        "chosen_paths_are_applied_and_the_rest_waits",
        |rig, make, way| {
            build(&rig);
            let before = snapshot(&rig.host);
            let mut pending = make(&rig, "1", EVERYTHING);
            let host = |p: &str| rig.host.join(p);
            let some = only(&[host("new/l"), host("gone/z"), host("f2d/in"), host("h2")]);
            let applied =
                apply::apply(&mut pending, &some, &mut Observer::new(&mut |_| true)).unwrap();
            assert!(!applied.whole);
            assert_eq!(pending.meta().state, State::Finished);
            assert!(host("new/l").is_symlink() && !host("new/deep").exists());
            assert!(host("gone/x/y").exists() && !host("gone/z").exists());
            assert_eq!(rig.read("f2d/in"), "1\n");
            assert_eq!(rig.read("h2"), "h\n");
            assert!(host("drop").exists());
            let partly = snapshot(&rig.host);

            apply_all(&mut pending);
            assert_same(
                &without_new_times(snapshot(&rig.host)),
                &without_new_times(expected(EVERYTHING)),
                way,
            );
            undo(&mut pending).unwrap();
            assert_same(&snapshot(&rig.host), &partly, "one undo for each apply");
            undo(&mut pending).unwrap();
            assert_same(&snapshot(&rig.host), &before, way);

            let none = only(&[host("no/such")]);
            let result = apply::apply(&mut pending, &none, &mut Observer::new(&mut |_| true));
            assert!(matches!(result, Err(ApplyError::NotChanged(_))));
        },
    );
}

#[test]
fn undo_refuses_where_the_host_changed_since() {
    each_way(
        "undo_refuses_where_the_host_changed_since",
        |rig, make, way| {
            build(&rig);
            let before = snapshot(&rig.host);
            let mut pending = make(&rig, "1", EVERYTHING);
            apply_all(&mut pending);
            rig.file("new/deep/g", "host");
            rig.file("edit", "host");
            rig.file("drop", "host");
            rig.file("elsewhere", "host");
            let with = snapshot(&rig.host);
            let Err(ApplyError::UndoConflicts(list)) = undo(&mut pending) else {
                panic!("{way}");
            };
            let host = |p: &str| rig.host.join(p);
            assert_eq!(list, [host("drop"), host("edit"), host("new")]);
            assert_same(&snapshot(&rig.host), &with, "nothing happens");
            for name in ["new/deep/g", "drop", "elsewhere"] {
                fs::remove_file(host(name)).unwrap();
            }
            apply::undo(&mut pending, true, &mut Observer::new(&mut |_| true)).unwrap();
            assert_same(&snapshot(&rig.host), &before, way);
        },
    );
}

#[test]
fn nothing_is_written_through_a_symlink() {
    let rig = Rig::new();
    rig.file("dir/a", "1");
    let outside = rig.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a"), "theirs").unwrap();
    let mut pending = rig.copied("1", "echo 2 > dir/a; echo 2 > dir/new");
    fs::remove_dir_all(rig.host.join("dir")).unwrap();
    std::os::unix::fs::symlink(&outside, rig.host.join("dir")).unwrap();
    assert!(!conflicts(&rig, &mut pending).is_empty());
    apply::apply(&mut pending, &force(), &mut Observer::new(&mut |_| true)).unwrap();
    assert_eq!(fs::read(outside.join("a")).unwrap(), b"theirs");
    assert!(!outside.join("new").exists());
    assert_eq!(
        rig.read("dir/new"),
        "2\n",
        "the link gave way to the directory"
    );
}

#[test]
fn another_directory_in_place_of_the_root_is_refused() {
    let rig = Rig::new();
    rig.file("a", "1");
    let mut pending = rig.copied("1", "echo 2 > a");
    fs::rename(&rig.host, rig.dir.path().join("was")).unwrap();
    fs::create_dir(&rig.host).unwrap();
    let result = apply::apply(&mut pending, &force(), &mut Observer::new(&mut |_| true));
    assert!(
        matches!(result, Err(ApplyError::RootReplaced(_))),
        "{result:?}"
    );
}

#[test]
fn setuid_is_taken_away_and_what_runs_later_is_told() {
    let rig = Rig::new();
    rig.file("old", "1");
    fs::set_permissions(rig.host.join("old"), Permissions::from_mode(0o4755)).unwrap();
    rig.file("package.json", "{}");
    let script = "echo '#!' > tool; chmod 4755 tool; chmod 2750 old; mkdir -p .git/hooks; \
        echo x > .git/hooks/pre-commit; echo '{\"scripts\":{\"install\":\"x\"}}' > package.json; echo 1 > plain";
    let mut pending = rig.copied("1", script);
    let applied = apply_all(&mut pending);
    let flags: Vec<_> = applied
        .check
        .flags
        .iter()
        .map(|f| {
            (
                f.path.strip_prefix(&rig.host).unwrap().to_str().unwrap(),
                f.reason,
            )
        })
        .collect();
    assert_eq!(
        flags,
        [
            (".git/hooks/pre-commit", RunsLater::GitHook),
            ("package.json", RunsLater::PackageScripts),
            ("tool", RunsLater::NewExecutable),
            ("tool", RunsLater::Setuid),
        ]
    );
    let mode = |p: &str| fs::metadata(rig.host.join(p)).unwrap().mode() & 0o7777;
    assert_eq!(mode("tool"), 0o755);
    assert_eq!(mode("old"), 0o750);
}

#[test]
fn held_roots_wait_to_be_asked_for() {
    let rig = Rig::new();
    let other = rig.dir.path().join("other");
    fs::create_dir(&other).unwrap();
    let mut pending = rig.pending("1");
    for (path, held) in [(&rig.host, false), (&other, true)] {
        let kind = substrate_changes::root::RootKind::Copy;
        let paths = pending.add_root(path, kind, held).unwrap();
        substrate_changes::copy::clone_tree(path, &paths.upper, &mut |_| Ok(())).unwrap();
        pending.mark_copied(paths.index).unwrap();
        shell(&paths.upper, "echo 1 > f; echo 1 > g");
    }
    pending.finish(Some(0)).unwrap();
    let applied = apply_all(&mut pending);
    assert!(!applied.whole && rig.host.join("f").exists() && !other.join("f").exists());
    let chosen = only(&[other.join("f")]);
    apply::apply(&mut pending, &chosen, &mut Observer::new(&mut |_| true)).unwrap();
    assert!(other.join("f").exists() && !other.join("g").exists());
    let held = ApplyOptions {
        held: true,
        ..all()
    };
    let applied = apply::apply(&mut pending, &held, &mut Observer::new(&mut |_| true)).unwrap();
    assert!(applied.whole && other.join("g").exists());
}

#[test]
fn nothing_stays_behind_when_there_is_no_space() {
    if !overlays_work("nothing_stays_behind_when_there_is_no_space") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let small = dir.path().join("small");
    fs::create_dir(&small).unwrap();
    let mount = "mount -t tmpfs -o size=1m tmpfs \"$SMALL\"";
    let env = [("SMALL", small.as_path())];
    common::in_namespace(mount, "a_full_host", &env);
    common::in_namespace(mount, "a_full_home", &env);
}

fn enlarge(small: &Path) {
    let mut mount = std::process::Command::new("mount");
    mount.args(["-o", "remount,size=50m"]).arg(small);
    assert!(mount.status().unwrap().success());
}

/// Tries, fails for want of space, and succeeds when there is some.
fn full_then_not(rig: &Rig, small: &Path, mut pending: Pending) {
    let before = snapshot(&rig.host);
    let result = apply::apply(&mut pending, &all(), &mut Observer::new(&mut |_| true));
    let Err(ApplyError::Staging { source, .. }) = result else {
        panic!("{result:?}");
    };
    assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
    assert_same(&snapshot(&rig.host), &before, "nothing stays behind");
    assert_eq!(
        (pending.meta().state, pending.meta().applies),
        (State::Finished, 0)
    );
    enlarge(small);
    apply_all(&mut pending);
    assert_eq!(rig.read("little"), "2\n");
    assert_eq!(
        fs::metadata(rig.host.join("large")).unwrap().len(),
        3_000_000
    );
    undo(&mut pending).unwrap();
    assert_same(&snapshot(&rig.host), &before, "undone");
}

const LARGE: &str = "echo 2 > little; head -c 3000000 /dev/urandom > large; rm gone";

#[test]
#[ignore = "started by nothing_stays_behind_when_there_is_no_space in a namespace"]
fn a_full_host() {
    let small = PathBuf::from(std::env::var_os("SMALL").unwrap());
    let mut rig = Rig::new();
    rig.host = small.join("host");
    fs::create_dir(&rig.host).unwrap();
    rig.file("little", "1");
    rig.file("gone", "1");
    let pending = rig.copied("1", LARGE);
    full_then_not(&rig, &small, pending);
}

#[test]
#[ignore = "started by nothing_stays_behind_when_there_is_no_space in a namespace"]
fn a_full_home() {
    let small = PathBuf::from(std::env::var_os("SMALL").unwrap());
    let mut rig = Rig::new();
    rig.home = small.clone();
    rig.file("little", "1");
    rig.file("gone", &"x".repeat(2_000_000));
    rig.file("large", "1");
    let store = rig.dir.path().join("store");
    fs::create_dir(&store).unwrap();
    let mut pending = rig.pending("1");
    let kind = substrate_changes::root::RootKind::Copy;
    let paths = pending.add_root_in(&store, &rig.host, kind, false).unwrap();
    substrate_changes::copy::clone_tree(&rig.host, &paths.upper, &mut |_| Ok(())).unwrap();
    pending.mark_copied(paths.index).unwrap();
    shell(&paths.upper, LARGE);
    pending.finish(Some(0)).unwrap();
    full_then_not(&rig, &small, pending);
}

#[test]
fn what_is_mounted_below_a_copied_root_is_applied_too() {
    if !overlays_work("what_is_mounted_below_a_copied_root_is_applied_too") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mount = "mkdir \"$HOST/below\"; mount -t tmpfs tmpfs \"$HOST/below\"";
    let env = [("HOST", dir.path())];
    common::in_namespace(mount, "a_mount_below", &env);
}

#[test]
#[ignore = "started by what_is_mounted_below_a_copied_root_is_applied_too in a namespace"]
fn a_mount_below() {
    let mut rig = Rig::new();
    rig.host = PathBuf::from(std::env::var_os("HOST").unwrap());
    rig.file("here", "1");
    rig.file("below/edit", "1");
    rig.file("below/gone", "1");
    let before = snapshot(&rig.host);
    let script = "echo 2 > here; echo 2 > below/edit; rm below/gone; echo 2 > below/new";
    let mut pending = rig.copied("1", script);
    apply_all(&mut pending);
    for name in ["here", "below/edit", "below/new"] {
        assert_eq!(rig.read(name), "2\n", "{name}");
    }
    assert!(!rig.host.join("below/gone").exists());
    undo(&mut pending).unwrap();
    assert_same(&snapshot(&rig.host), &before, "undone");

    // An overlay shows nothing of it, so what a world puts there cannot be meant for it.
    let mut pending = rig.pending("2");
    let kind = substrate_changes::root::RootKind::Overlay;
    let paths = pending.add_root(&rig.host, kind, false).unwrap();
    shell(&paths.upper, "mkdir below; echo 3 > below/new");
    pending.finish(Some(0)).unwrap();
    let found = conflicts(&rig, &mut pending);
    assert!(
        found.contains(&("below/new".to_owned(), Conflict::OtherMount)),
        "{found:?}"
    );
}
