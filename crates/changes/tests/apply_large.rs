//! A large project: compared, applied and undone in memory that hardly grows with it.
//!
//! `SUBSTRATE_LARGE_FILES` sets the number of files, 20 000 unless told otherwise. Alone in its
//! binary, since the peak of memory is the process's own.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at the first surprise"
)]

mod common;

use std::fs;
use std::path::Path;

use common::Rig;
use substrate_changes::apply::{self, ApplyOptions};
use substrate_changes::copy::clone_tree;
use substrate_changes::diff;
use substrate_changes::observer::Observer;
use substrate_changes::root::RootKind;

/// The most memory that this process has held so far, in KiB.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn fill(dir: &Path, files: usize, content: &str) {
    for n in 0..files {
        let at = dir.join(format!("d{}", n / 200));
        if n % 200 == 0 {
            fs::create_dir_all(&at).unwrap();
        }
        fs::write(at.join(format!("file {n}")), content).unwrap();
    }
}

fn count(dir: &Path) -> usize {
    let mut all = 0;
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        all += match entry.file_type().unwrap().is_dir() {
            true => count(&entry.path()),
            false => 1,
        };
    }
    all
}

#[test]
fn memory_stays_bounded() {
    let files: usize =
        std::env::var("SUBSTRATE_LARGE_FILES").map_or(20_000, |n| n.parse().unwrap());
    let rig = match Path::new("/dev/shm").is_dir() {
        true => Rig::within(tempfile::tempdir_in("/dev/shm").unwrap()),
        false => Rig::new(),
    };
    fill(&rig.host.join("kept"), files / 2, "1");
    fill(&rig.host.join("gone"), files / 2, "1");
    let mut pending = rig.pending("1");
    let before = peak();
    let paths = pending.add_root(&rig.host, RootKind::Copy, false).unwrap();
    clone_tree(&rig.host, &paths.upper, &mut |_| Ok(())).unwrap();
    pending.mark_copied(paths.index).unwrap();
    fs::remove_dir_all(paths.upper.join("gone")).unwrap();
    fill(&paths.upper.join("new"), files / 2, "2");
    fill(&paths.upper.join("kept"), 400, "changed");
    pending.finish(Some(0)).unwrap();

    let told = diff::settle(&pending, false, &mut |_| true).unwrap();
    let dirs = files / 2 / 200;
    let summary = format!(
        "{} dirs, {} files (truncated, see tree_hash)",
        2 * (dirs + 1),
        files + 400
    );
    assert_eq!(told.summary, Some(summary));
    let everything = ApplyOptions::default();
    let applied =
        apply::apply(&mut pending, &everything, &mut Observer::new(&mut |_| true)).unwrap();
    assert_eq!(applied.check.changes as usize, files + 400 + 2 * (dirs + 1));
    assert!(!rig.host.join("gone").exists());
    assert_eq!(count(&rig.host.join("new")), files / 2);
    assert_eq!(rig.read("kept/d1/file 399"), "changed");
    apply::undo(&mut pending, false, &mut Observer::new(&mut |_| true)).unwrap();
    assert_eq!(count(&rig.host.join("gone")), files / 2);
    assert!(!rig.host.join("new").exists());
    assert_eq!(rig.read("kept/d1/file 399"), "1");

    let grown = peak() - before;
    let bound = 12 * 1024 + files as u64 / 10;
    assert!(
        grown < bound,
        "{grown} KiB for {files} files, at most {bound}"
    );
}
