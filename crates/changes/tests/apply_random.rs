//! Random trees and random work on them: done in a world and applied, the result is the same as
//! done without a world; and undone, it is what it was.
//!
//! `SUBSTRATE_RANDOM_CASES` sets how many cases run and `SUBSTRATE_RANDOM_SEED` where they start;
//! a failure names its seed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at the first surprise"
)]

mod common;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Rig, assert_same, listing, overlays_work, snapshot};
use substrate_changes::apply::{self, ApplyOptions};
use substrate_changes::copy::clone_tree;
use substrate_changes::diff;
use substrate_changes::observer::Observer;
use substrate_changes::root::RootKind;
use substrate_sys::at::{self, Rename};
use substrate_sys::{getdents, openat2, xattr};

const NAMES: &[&[u8]] = &[
    b"a", b"b", b"c", b"d", b"e f", b".wh.a", b".wh..wh..opq", b"new\nline", b"\xff\xfe\x01", b"work",
    b"a-rather-long-name-that-repeats-a-rather-long-name-that-repeats-a-rather-long-name-that-repeats",
];

/// splitmix64: the same cases everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn path(&mut self) -> PathBuf {
        let depth = 1 + self.below(4);
        let mut path = PathBuf::new();
        for _ in 0..depth {
            // The first names are taken more often, so that operations meet.
            let pick = self
                .below(NAMES.len() as u64)
                .min(self.below(NAMES.len() as u64));
            path.push(OsStr::from_bytes(NAMES[pick as usize]));
        }
        path
    }

    fn moment(&mut self) -> (i64, u32) {
        (
            self.below(2_000_000_000) as i64,
            self.below(1_000_000_000) as u32,
        )
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = match self.below(10) {
            0 => 0,
            1 => 70_000 + self.below(100_000),
            _ => self.below(200),
        };
        let seed = self.next() as u8;
        (0..length).map(|n| (n as u8) ^ seed).collect()
    }
}

/// The directory of a path, not following any symlink, and the name in it.
fn place(root: &OwnedFd, path: &Path) -> io::Result<(OwnedFd, OsString)> {
    let dir = openat2::dir_beneath(root, path.parent().unwrap())?;
    Ok((dir, path.file_name().unwrap().to_owned()))
}

fn is_dir(dir: &OwnedFd, name: &OsStr) -> bool {
    at::stat(dir, name).is_ok_and(|s| s.mode & 0o170_000 == 0o040_000)
}

fn is_file(dir: &OwnedFd, name: &OsStr) -> bool {
    at::stat(dir, name).is_ok_and(|s| s.mode & 0o170_000 == 0o100_000)
}

fn open_write(dir: &OwnedFd, name: &OsStr) -> io::Result<File> {
    use std::os::fd::AsRawFd;
    if !is_file(dir, name) {
        return at::create_new(dir, name, 0o644);
    }
    let path = Path::new("/proc/self/fd").join(dir.as_raw_fd().to_string());
    fs::OpenOptions::new().write(true).open(path.join(name))
}

fn remove_tree(dir: &OwnedFd, name: &OsStr) -> io::Result<()> {
    if !is_dir(dir, name) {
        return at::unlink(dir, name);
    }
    let inner = at::open_dir(dir, name)?;
    for (child, _) in getdents::read_dir(&inner)? {
        remove_tree(&inner, &child)?;
    }
    at::rmdir(dir, name)
}

fn full(dir: &OwnedFd, name: &OsStr) -> PathBuf {
    use std::os::fd::AsRawFd;
    Path::new("/proc/self/fd")
        .join(dir.as_raw_fd().to_string())
        .join(name)
}

/// One random operation; what cannot be done is refused alike with and without a world.
fn operate(root: &OwnedFd, random: &mut Random, base: bool) -> io::Result<()> {
    let (kind, path, other) = (
        random.below(if base { 11 } else { 22 }),
        random.path(),
        random.path(),
    );
    let (bytes, mtime, mode) = (random.bytes(), random.moment(), random.below(0o2000) as u32);
    if kind == 0 {
        // Directories on the way, so that the rest has somewhere to happen.
        let mut at = PathBuf::new();
        for name in &path {
            at.push(name);
            let (dir, name) = place(root, &at)?;
            let _ = at::mkdir(dir, name, 0o755);
        }
        return Ok(());
    }
    if kind == 9 && bytes.len() > 150 {
        return deep(root, &path, &bytes, mtime);
    }
    let (dir, name) = place(root, &path)?;
    let dated = |dir: &OwnedFd, name: &OsStr| at::set_mtime(dir, name, mtime);
    match kind {
        1..=4 => {
            let mut file = open_write(&dir, &name)?;
            file.set_len(0)?;
            file.write_all(&bytes)?;
            dated(&dir, &name)
        }
        5 | 6 => at::mkdir(&dir, &name, 0o755),
        7 => at::symlink(other, &dir, &name),
        8 if !is_link(&dir, &name) => {
            let own: &[u8] = if base { b"user.b" } else { b"user.w" };
            let attribute = [&b"user.k"[..], own, b"user.long"][bytes.len() % 3];
            xattr::set(&dir, &name, attribute, &bytes[..bytes.len().min(900)])
        }
        9 => {
            let file = open_write(&dir, &name)?;
            file.set_len(300_000)?;
            file.write_all_at(&bytes[..bytes.len().min(50)], 200_000)?;
            dated(&dir, &name)
        }
        // What its owner cannot read cannot be copied for a world either.
        10 if !is_link(&dir, &name) && base => at::chmod(&dir, &name, mode | 0o700),
        10 if !is_link(&dir, &name) => at::chmod(&dir, &name, mode),
        11 => {
            let file = open_write(&dir, &name)?;
            file.write_all_at(&bytes, file.metadata()?.len())?;
            dated(&dir, &name)
        }
        12 => at::unlink(&dir, &name),
        13 => remove_tree(&dir, &name),
        14 if !is_dir(&dir, &name) => {
            let (to, new) = place(root, &other)?;
            at::rename(&dir, &name, &to, &new, Rename::Replace)
        }
        15 => {
            // An overlay cannot rename a lower directory and `mv` copies it then, so both do.
            let (to, new) = place(root, &other)?;
            if !is_dir(&dir, &name) || other.starts_with(&path) || at::stat(&to, &new).is_ok() {
                return Ok(());
            }
            clone_tree(&full(&dir, &name), &full(&to, &new), &mut |_| Ok(()))?;
            remove_tree(&dir, &name)
        }
        16 => {
            let (to, new) = place(root, &other)?;
            match is_file(&dir, &name) {
                true => at::link(&dir, &name, &to, &new),
                false => Ok(()),
            }
        }
        17 => {
            // A directory that is renamed into place.
            at::mkdir(root, "fresh", 0o755)?;
            let inner = at::open_dir(root, "fresh")?;
            at::create_new(&inner, "in", 0o600)?.write_all(&bytes)?;
            at::set_mtime(&inner, "in", mtime)?;
            at::rename(root, "fresh", &dir, &name, Rename::NoReplace)
                .or_else(|_| remove_tree(root, OsStr::new("fresh")))
        }
        18 if is_file(&dir, &name) => dated(&dir, &name),
        19 => {
            remove_tree(&dir, &name)?;
            at::mkdir(&dir, &name, 0o750)
        }
        20 => {
            remove_tree(&dir, &name)?;
            at::create_new(&dir, &name, 0o640)?.write_all(&bytes)?;
            dated(&dir, &name)
        }
        21 => match bytes.len() % 3 {
            0 => at::mkfifo(&dir, &name, 0o600),
            1 => xattr::remove(&dir, &name, b"user.k"),
            _ => at::chmod(root, "", 0o700 | mode & 0o77),
        },
        _ => Ok(()),
    }
}

fn is_link(dir: &OwnedFd, name: &OsStr) -> bool {
    at::stat(dir, name).is_ok_and(|s| s.mode & 0o170_000 == 0o120_000)
}

/// A hundred levels down.
fn deep(root: &OwnedFd, path: &Path, bytes: &[u8], mtime: (i64, u32)) -> io::Result<()> {
    let (dir, name) = place(root, path)?;
    at::mkdir(&dir, &name, 0o755)?;
    let mut here = at::open_dir(&dir, &name)?;
    for _ in 0..100 {
        at::mkdir(&here, "down", 0o755)?;
        here = at::open_dir(&here, "down")?;
    }
    at::create_new(&here, "leaf", 0o644)?.write_all(bytes)?;
    at::set_mtime(&here, "leaf", mtime)
}

fn operate_many(dir: &Path, seed: u64, count: u64, base: bool) {
    let root = at::open_dir_path(dir).unwrap();
    let mut random = Random(seed);
    for _ in 0..count {
        let _ = operate(&root, &mut random, base);
    }
}

/// Does the work of all cases: on the plain copies, on the copies that worlds hold, and in
/// overlays. In a namespace, where we may mount and no mode keeps us out, as nothing differs then.
#[test]
#[ignore = "started by the tests below in a namespace"]
fn works_on_all_cases() {
    let list = fs::read_to_string(std::env::var_os("CASES").unwrap()).unwrap();
    for line in list.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let seed: u64 = fields[1].parse().unwrap();
        let dir = Path::new(fields[0]);
        match fields[2..] {
            [lower, upper, work] => {
                let options =
                    format!("lowerdir={lower},upperdir={upper},workdir={work},userxattr,volatile");
                let mut mount = Command::new("mount");
                mount.args(["-t", "overlay", "overlay", "-o", &options, lower]);
                assert!(mount.status().unwrap().success(), "{options}");
                operate_many(dir, seed, 40, false);
                assert!(
                    Command::new("umount")
                        .arg(lower)
                        .status()
                        .unwrap()
                        .success()
                );
            }
            _ => operate_many(dir, seed, 40, false),
        }
    }
}

struct Case {
    seed: u64,
    plain: Rig,
    overlay: Rig,
    copy: Rig,
    pending: Vec<substrate_changes::pending::Pending>,
}

fn prepare(seed: u64, list: &mut String) -> Case {
    // Syncing takes nearly all the time on a disk, so only some of the cases are there.
    let rig = || match Path::new("/dev/shm").is_dir() && !seed.is_multiple_of(10) {
        true => Rig::within(tempfile::tempdir_in("/dev/shm").unwrap()),
        false => Rig::new(),
    };
    let (plain, overlay, copy) = (rig(), rig(), rig());
    operate_many(&plain.host, seed, 40, true);
    for rig in [&overlay, &copy] {
        fs::remove_dir(&rig.host).unwrap();
        clone_tree(&plain.host, &rig.host, &mut |_| Ok(())).unwrap();
    }
    let work = seed.wrapping_mul(3) + 1;
    let mut line = |dir: &Path, more: &[&Path]| {
        list.push_str(&format!("{}\t{work}", dir.display()));
        for path in more {
            list.push_str(&format!("\t{}", path.display()));
        }
        list.push('\n');
    };
    line(&plain.host, &[]);
    let mut over = overlay.pending("1");
    let paths = over
        .add_root(&overlay.host, RootKind::Overlay, false)
        .unwrap();
    line(&overlay.host, &[&overlay.host, &paths.upper, &paths.work]);
    let mut copied = copy.pending("1");
    let paths = copied.add_root(&copy.host, RootKind::Copy, false).unwrap();
    clone_tree(&copy.host, &paths.upper, &mut |_| Ok(())).unwrap();
    copied.mark_copied(paths.index).unwrap();
    line(&paths.upper, &[]);
    Case {
        seed,
        plain,
        overlay,
        copy,
        pending: vec![over, copied],
    }
}

fn verify(mut case: Case) -> usize {
    let expected = snapshot(&case.plain.host);
    let mut changes = 0;
    for (rig, pending) in [&case.overlay, &case.copy]
        .into_iter()
        .zip(&mut case.pending)
    {
        let what = format!(
            "seed {} by {}",
            case.seed,
            pending.meta().roots[0].kind.as_str()
        );
        let before = snapshot(&rig.host);
        pending.finish(Some(0)).unwrap();
        diff::settle(pending, false, &mut |_| true).expect(&what);
        changes += listing(pending).len();
        assert_same(
            &snapshot(&rig.host),
            &before,
            &format!("{what}: the host is untouched"),
        );
        let everything = ApplyOptions::default();
        apply::apply(pending, &everything, &mut Observer::new(&mut |_| true)).expect(&what);
        assert_same(&snapshot(&rig.host), &expected, &what);
        // As root, whom no closed directory keeps from comparing what is in it.
        if substrate_sys::identity::effective_user_id() == 0 {
            assert_eq!(listing(pending), [""; 0], "{what}: nothing is left");
        }
        apply::undo(pending, false, &mut Observer::new(&mut |_| true)).expect(&what);
        assert_same(&snapshot(&rig.host), &before, &format!("{what}: undone"));
    }
    changes
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |v| v.parse().unwrap())
}

#[test]
fn worlds_do_what_plain_runs_do() {
    if !overlays_work("worlds_do_what_plain_runs_do") {
        return;
    }
    let first = number("SUBSTRATE_RANDOM_SEED", 1);
    let cases = number("SUBSTRATE_RANDOM_CASES", 100);
    let mut changes = 0;
    let seeds: Vec<u64> = (first..first + cases).collect();
    for batch in seeds.chunks(50) {
        let mut list = String::new();
        let prepared: Vec<Case> = batch.iter().map(|&s| prepare(s, &mut list)).collect();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cases");
        fs::write(&file, list).unwrap();
        common::in_namespace(":", "works_on_all_cases", &[("CASES", &file)]);
        changes += prepared.into_iter().map(verify).sum::<usize>();
    }
    assert!(
        changes as u64 > cases * 20,
        "only {changes} changes in {cases} cases"
    );
}

/// Root may do everything, so most errors only show as somebody else.
#[test]
fn worlds_do_what_plain_runs_do_for_an_ordinary_user() {
    let test = "worlds_do_what_plain_runs_do_for_an_ordinary_user";
    if substrate_sys::identity::effective_user_id() != 0 {
        return worlds_do_what_plain_runs_do();
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let binary = dir.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&binary)
        .args(["--exact", "worlds_do_what_plain_runs_do", "--nocapture"])
        .env("TMPDIR", dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test}: {said}");
    std::io::stderr().write_all(&output.stderr).unwrap();
}
