//! What worlds leave is found again, and what is still wanted stays.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at the first surprise"
)]

mod common;

use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use common::{Rig, assert_same, overlays_work, snapshot};
use substrate_changes::apply::{self, ApplyOptions};
use substrate_changes::apply_error::ApplyError;
use substrate_changes::gc::{self, DiscardError, KEEP_APPLIED, Verdict};
use substrate_changes::observer::Observer;
use substrate_changes::pending::Pending;
use substrate_changes::root::RootKind;

fn verdict(rig: &Rig, id: &str) -> Option<Verdict> {
    gc::survey(&rig.home, KEEP_APPLIED, &[])
        .unwrap()
        .into_iter()
        .find(|l| l.dir.ends_with(format!("wld_{id}")))
        .map(|l| l.verdict)
}

fn collect(rig: &Rig) -> Vec<String> {
    let done = gc::collect(&rig.home, KEEP_APPLIED, &[], &mut |_| true).unwrap();
    assert!(done.failed.is_empty(), "{:?}", done.failed);
    let name = |p: &Path| p.file_name().unwrap().to_str().unwrap().to_owned();
    done.removed.iter().map(|p| name(p)).collect()
}

fn edit_meta(pending: &Pending, edit: impl Fn(&mut serde_json::Value)) {
    let path = pending.dir().join("meta.json");
    let mut meta = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    edit(&mut meta);
    fs::write(&path, serde_json::to_vec(&meta).unwrap()).unwrap();
}

fn kill_owner(pending: &Pending) {
    // Start time 0 is nobody's: the process with this id is another one.
    edit_meta(pending, |meta| meta["owner"]["start"] = 0.into());
}

fn make_old(path: &Path, by: Duration) {
    let then = SystemTime::now() - by - Duration::from_secs(60);
    let file = File::open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(then)).unwrap();
}

#[test]
fn only_rubbish_is_removed() {
    let rig = Rig::new();
    rig.file("f", "1");
    let apply = |pending: &mut Pending| {
        apply::apply(
            pending,
            &ApplyOptions::default(),
            &mut Observer::new(&mut |_| true),
        )
        .unwrap()
    };
    let mut running = rig.pending("running");
    running
        .add_root(&rig.host, RootKind::Overlay, false)
        .unwrap();
    rig.copied("waiting", "echo 2 > f");
    let mut fresh = rig.copied("applied", "echo 3 > g");
    apply(&mut fresh);
    let mut old = rig.copied("expired", "echo 3 > h");
    apply(&mut old);
    make_old(&old.dir().join("meta.json"), KEEP_APPLIED);
    let mut dead = rig.pending("dead");
    dead.add_root(&rig.host, RootKind::Overlay, false).unwrap();
    dead.begin().unwrap();
    kill_owner(&dead);
    let mut rescued = rig.pending("rescued");
    let paths = rescued
        .add_root(&rig.host, RootKind::Overlay, false)
        .unwrap();
    rescued.begin().unwrap();
    fs::write(paths.upper.join("work of hours"), "x").unwrap();
    kill_owner(&rescued);
    let young = rig.home.join("worlds/wld_young");
    fs::create_dir(&young).unwrap();
    let damaged = rig.home.join("worlds/wld_damaged");
    fs::create_dir(&damaged).unwrap();
    fs::write(damaged.join("meta.json"), "{").unwrap();
    make_old(&damaged, Duration::from_secs(600));

    for (id, expected) in [
        ("running", Verdict::Running),
        ("waiting", Verdict::Waiting),
        ("applied", Verdict::Applied),
        ("expired", Verdict::Expired),
        ("dead", Verdict::Abandoned),
        ("rescued", Verdict::Waiting),
        ("young", Verdict::Running),
        ("damaged", Verdict::Damaged),
    ] {
        assert_eq!(verdict(&rig, id), Some(expected), "{id}");
    }
    assert_eq!(collect(&rig), ["wld_damaged", "wld_dead", "wld_expired"]);
    assert_eq!(collect(&rig), [""; 0]);

    apply(&mut rescued);
    assert_eq!(rig.read("work of hours"), "x");
}

#[test]
fn what_was_put_aside_is_seen_by_nobody_but_the_collector() {
    let rig = Rig::new();
    let aside = || {
        let all = fs::read_dir(rig.home.join("worlds")).unwrap().flatten();
        all.filter(|entry| entry.path().is_dir()).count()
    };
    for id in ["1", "2", "3"] {
        let mut pending = rig.pending(id);
        pending
            .add_root(&rig.host, RootKind::Overlay, false)
            .unwrap();
        pending.begin().unwrap();
        pending.finish(Some(0)).unwrap();
        gc::forget(&mut pending).unwrap();
        assert_eq!(verdict(&rig, id), None);
        assert!(Pending::find(&rig.home, &format!("wld_{id}")).is_err());
        assert!(!pending.dir().exists());
    }
    assert_eq!(Pending::list(&rig.home).unwrap().len(), 0);
    assert_eq!(aside(), 3);
    assert_eq!(collect(&rig), [""; 0]);
    assert_eq!(aside(), 0);

    // Copies of files that were opened and left as they were take room, and go at once.
    let mut pending = rig.pending("4");
    let paths = pending
        .add_root(&rig.host, RootKind::Overlay, false)
        .unwrap();
    fs::write(paths.upper.join("copy"), "x").unwrap();
    pending.begin().unwrap();
    pending.finish(Some(0)).unwrap();
    gc::forget(&mut pending).unwrap();
    assert_eq!(aside(), 0);
}

#[test]
fn an_abandoned_world_is_kept_for_a_day() {
    let rig = Rig::new();
    let mut dead = rig.pending("1");
    let paths = dead.add_root(&rig.host, RootKind::Overlay, false).unwrap();
    dead.begin().unwrap();
    fs::write(paths.upper.join("f"), "x").unwrap();
    kill_owner(&dead);
    assert_eq!(verdict(&rig, "1"), Some(Verdict::Waiting));
    edit_meta(&dead, |meta| {
        let made = meta["created"][0].as_i64().unwrap();
        meta["created"][0] = (made - 2 * 24 * 3600).into();
    });
    assert_eq!(verdict(&rig, "1"), Some(Verdict::Abandoned));
}

#[test]
fn what_a_real_overlay_leaves_can_be_removed() {
    if !overlays_work("what_a_real_overlay_leaves_can_be_removed") {
        return;
    }
    let rig = Rig::new();
    rig.file("a/b", "1");
    let before = snapshot(&rig.host);
    let mut pending = rig.overlay(
        "1",
        "rm -r a; mkdir -p closed/in; chmod 000 closed; mkfifo p",
    );
    let work = pending.meta().roots[0].work.join("work");
    let mode = fs::symlink_metadata(&work).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0, "the kernel leaves it closed");
    gc::discard(&mut pending).unwrap();
    assert!(!pending.dir().exists());
    assert_same(&snapshot(&rig.host), &before, "the host is untouched");
}

#[test]
fn writes_kept_elsewhere_go_too() {
    let rig = Rig::new();
    let store = rig.dir.path().join("store");
    fs::create_dir(&store).unwrap();
    fs::write(store.join("other"), "").unwrap();
    let mut pending = rig.pending("1");
    let paths = pending
        .add_root_in(&store, &rig.host, RootKind::Overlay, false)
        .unwrap();
    fs::write(paths.upper.join("f"), "x").unwrap();
    fs::set_permissions(&paths.upper, Permissions::from_mode(0o000)).unwrap();
    pending.finish(Some(0)).unwrap();
    gc::discard(&mut pending).unwrap();
    let left: Vec<_> = fs::read_dir(&store)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(left, ["other"]);
}

#[test]
fn what_is_in_use_is_not_discarded() {
    let rig = Rig::new();
    rig.file("f", "1");
    let mut running = rig.pending("1");
    assert!(matches!(
        gc::discard(&mut running),
        Err(DiscardError::Running)
    ));
    let mut half = rig.copied("2", "echo 2 > f; echo 3 > g");
    let mut points = 0;
    let mut crash = |_: &str| {
        points += 1;
        points > 6
    };
    let everything = ApplyOptions::default();
    let result = apply::apply(
        &mut half,
        &everything,
        &mut Observer::crashing(&mut |_| true, &mut crash),
    );
    assert!(matches!(result, Err(ApplyError::Interrupted)));
    assert_eq!(verdict(&rig, "2"), Some(Verdict::Interrupted));
    assert!(matches!(
        gc::discard(&mut half),
        Err(DiscardError::Unfinished)
    ));
    apply::undo(&mut half, false, &mut Observer::new(&mut |_| true)).unwrap();
    gc::discard(&mut half).unwrap();
    assert_eq!(rig.read("f"), "1");
    assert_eq!(collect(&rig), [""; 0]);
}

#[test]
fn an_apply_that_cannot_be_undone_can_be_given_up() {
    let rig = Rig::new();
    rig.file("d/f", "1");
    let mut half = rig.copied("1", "echo 2 > d/f; echo 3 > d/g");
    let mut points = 0;
    let mut crash = |_: &str| {
        points += 1;
        points > 6
    };
    let everything = ApplyOptions::default();
    let mut go_on = |_| true;
    let mut watch = Observer::crashing(&mut go_on, &mut crash);
    let result = apply::apply(&mut half, &everything, &mut watch);
    assert!(matches!(result, Err(ApplyError::Interrupted)));
    // Where the files were there is nothing any more, so there is no way back or forth.
    std::fs::remove_dir_all(rig.host.join("d")).unwrap();
    assert!(apply::undo(&mut half, false, &mut Observer::new(&mut |_| true)).is_err());
    assert!(matches!(
        gc::discard(&mut half),
        Err(DiscardError::Unfinished)
    ));
    gc::discard_anyway(&mut half).unwrap();
    assert!(!half.dir().exists());
    assert!(!rig.host.join("d").exists(), "the host stays as it is");
    assert_eq!(verdict(&rig, "1"), None);
}
