//! A host tree, a pending result over it, and a way to run something in the overlay.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at the first surprise"
)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use substrate_changes::change::ChangeKind;
use substrate_changes::diff::{self, Found};
use substrate_changes::pending::{NewPending, Pending};
use substrate_changes::root::RootKind;

/// A host directory and a home for results, gone with the value.
pub struct Rig {
    pub dir: tempfile::TempDir,
    pub host: PathBuf,
    pub home: PathBuf,
}

impl Drop for Rig {
    fn drop(&mut self) {
        // A temporary directory cannot be removed while it holds closed ones.
        if substrate_sys::identity::effective_user_id() != 0 {
            let mut chmod = Command::new("chmod");
            let _ = chmod.args(["-Rf", "u+rwX"]).arg(self.dir.path()).status();
        }
    }
}

impl Rig {
    pub fn new() -> Self {
        Self::within(tempfile::tempdir().unwrap())
    }

    pub fn within(dir: tempfile::TempDir) -> Self {
        let home = dir.path().join("home");
        fs::create_dir(&home).unwrap();
        Self::with_home(dir, home)
    }

    /// The same with a home on another file system, where the host's files cannot be moved to.
    pub fn apart(elsewhere: &tempfile::TempDir) -> Self {
        Self::with_home(tempfile::tempdir().unwrap(), elsewhere.path().to_owned())
    }

    fn with_home(dir: tempfile::TempDir, home: PathBuf) -> Self {
        let host = dir.path().join("host");
        fs::create_dir(&host).unwrap();
        Self { dir, host, home }
    }

    pub fn file(&self, path: &str, content: &str) -> PathBuf {
        let path = self.host.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    pub fn read(&self, path: &str) -> String {
        String::from_utf8(fs::read(self.host.join(path)).unwrap()).unwrap()
    }

    pub fn pending(&self, id: &str) -> Pending {
        let mut pending = Pending::create(
            &self.home,
            NewPending {
                world_id: format!("wld_{id}"),
                span_id: format!("spn_{id}"),
                policy_id: "default".to_owned(),
                cwd: self.host.clone(),
                cmd: "sh -c script".into(),
            },
        )
        .unwrap();
        pending.begin().unwrap();
        pending
    }

    /// Runs a script in the host directory under an overlay and records the result.
    pub fn overlay(&self, id: &str, script: &str) -> Pending {
        let mut pending = self.pending(id);
        let paths = pending
            .add_root(&self.host, RootKind::Overlay, false)
            .unwrap();
        run_in_overlay(&self.host, &paths.upper, &paths.work, script);
        pending.finish(Some(0)).unwrap();
        diff::settle(&pending, false, &mut |_| true).unwrap();
        pending
    }

    /// The same on a copy.
    pub fn copied(&self, id: &str, script: &str) -> Pending {
        let mut pending = self.pending(id);
        let paths = pending.add_root(&self.host, RootKind::Copy, false).unwrap();
        substrate_changes::copy::clone_tree(&self.host, &paths.upper, &mut |_| Ok(())).unwrap();
        pending.mark_copied(paths.index).unwrap();
        shell(&paths.upper, script);
        pending.finish(Some(0)).unwrap();
        diff::settle(&pending, false, &mut |_| true).unwrap();
        pending
    }
}

/// Scripts may set attributes with `xattr PATH NAME VALUE`, which no common tool does.
const PRELUDE: &str = r#"
xattr() { XATTR="$1:$2:$3" "$SELF" --quiet --exact common::sets_an_attribute --ignored >/dev/null; }
"#;

#[test]
#[ignore = "only does what the scripts of other tests ask for"]
fn sets_an_attribute() {
    let asked = std::env::var("XATTR").unwrap();
    let [path, name, value] = asked.split(':').collect::<Vec<_>>()[..] else {
        panic!("{asked}");
    };
    let here = fs::File::open(".").unwrap();
    let path = if path == "." { "" } else { path };
    substrate_sys::xattr::set(&here, path, name.as_bytes(), value.as_bytes()).unwrap();
}

/// Runs a script in a directory; it must succeed.
pub fn shell(dir: &Path, script: &str) {
    let status = Command::new("sh")
        .args(["-euc", &format!("{PRELUDE}{script}")])
        .env("SELF", std::env::current_exe().unwrap())
        .current_dir(dir)
        .status()
        .unwrap();
    assert!(status.success(), "{script}");
}

/// Mounts an overlay over its own lower directory in a namespace of its own and runs a script there.
pub fn run_in_overlay(lower: &Path, upper: &Path, work: &Path, script: &str) {
    let script = format!("{PRELUDE}{script}");
    run_mounted(
        lower,
        upper,
        work,
        "sh",
        &["-euc".as_ref(), script.as_ref()],
    );
}

/// The same with a program of its own.
pub fn run_mounted(lower: &Path, upper: &Path, work: &Path, program: &str, args: &[&OsStr]) {
    let mount = r#"mount -t overlay overlay \
        -o "lowerdir=$LOWER,upperdir=$UPPER,workdir=$WORK,userxattr,volatile" "$LOWER"
        cd "$LOWER"; exec "$@""#;
    let status = Command::new("unshare")
        .args(["-Urm", "sh", "-euc", mount, "sh", program])
        .args(args)
        .env("SELF", std::env::current_exe().unwrap())
        .env("LOWER", lower)
        .env("UPPER", upper)
        .env("WORK", work)
        .status()
        .unwrap();
    assert!(status.success(), "in the overlay: {program} {args:?}");
}

/// Whether overlays can be mounted here. Skips the test where not.
pub fn overlays_work(test: &str) -> bool {
    let probe = Command::new("unshare")
        .args(["-Urm", "sh", "-ec"])
        .arg("d=$(mktemp -d); mount -t tmpfs t $d; mkdir $d/l $d/u $d/w; mount -t overlay o -o lowerdir=$d/l,upperdir=$d/u,workdir=$d/w,userxattr $d/l; touch $d/l/x; umount $d/l; umount $d; rmdir $d")
        .output();
    if probe.is_ok_and(|o| o.status.success()) {
        return true;
    }
    skip(test, "no overlay in a user namespace here");
    false
}

/// Says loudly that a test did not run, and counts it.
pub fn skip(test: &str, reason: &str) {
    substrate_rig::skip(test, reason);
}

/// `kind path` of every change, for comparison.
pub fn listing(pending: &Pending) -> Vec<String> {
    diff::changes(pending, &mut |_| true)
        .unwrap()
        .iter()
        .map(line)
        .collect()
}

fn line(found: &Found) -> String {
    let change = &found.change;
    let path = String::from_utf8_lossy(change.path.as_os_str().as_encoded_bytes());
    let conflict = found.conflict.map(|c| format!(" ({})", c.as_str()));
    let what = match change.kind {
        ChangeKind::Meta => {
            let f = change.fields;
            let names = [
                (f.mode, "mode"),
                (f.owner, "owner"),
                (f.times, "times"),
                (f.attributes, "attributes"),
            ];
            let set: Vec<_> = names.iter().filter(|n| n.0).map(|n| n.1).collect();
            format!("meta[{}]", set.join(","))
        }
        kind => kind.as_str().to_owned(),
    };
    format!("{what} {path}{}", conflict.unwrap_or_default())
}

/// Everything about a name that an apply must carry over.
#[derive(Debug, PartialEq, Eq)]
pub struct Node {
    pub kind: char,
    pub mode: u32,
    pub content: Vec<u8>,
    pub mtime: Option<(i64, i64)>,
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// The first path with the same inode.
    pub first: PathBuf,
}

/// All names below a directory. What is closed to us is opened for the time of the look.
pub fn snapshot(dir: &Path) -> BTreeMap<PathBuf, Node> {
    let mut opened = Vec::new();
    let all = look_at_all(dir, &mut opened);
    for (path, mode) in opened.into_iter().rev() {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    all
}

fn look_at_all(dir: &Path, opened: &mut Vec<(PathBuf, u32)>) -> BTreeMap<PathBuf, Node> {
    let root = substrate_sys::identity::effective_user_id() == 0;
    let mut all = BTreeMap::new();
    let mut inodes: BTreeMap<u64, PathBuf> = BTreeMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(path) = todo.pop() {
        let full = match path.as_os_str().is_empty() {
            true => dir.to_owned(),
            false => dir.join(&path),
        };
        let meta = fs::symlink_metadata(&full).unwrap();
        let mode = meta.mode() & 0o7777;
        let kind = meta.file_type();
        let needed = if kind.is_dir() { 0o500 } else { 0o400 };
        if !root && !kind.is_symlink() && mode & needed != needed {
            fs::set_permissions(&full, fs::Permissions::from_mode(mode | 0o700)).unwrap();
            opened.push((full.clone(), mode));
        }
        let (kind, content) = if kind.is_dir() {
            for entry in fs::read_dir(&full).unwrap() {
                todo.push(path.join(entry.unwrap().file_name()));
            }
            ('d', Vec::new())
        } else if kind.is_symlink() {
            let target = fs::read_link(&full).unwrap();
            ('l', target.into_os_string().into_encoded_bytes())
        } else if kind.is_file() {
            let first = inodes.entry(meta.ino()).or_insert_with(|| path.clone());
            *first = path.clone().min(first.clone());
            ('f', fs::read(&full).unwrap())
        } else {
            ('o', Vec::new())
        };
        let node = Node {
            kind,
            mode,
            content,
            mtime: (kind == 'f').then(|| (meta.mtime(), meta.mtime_nsec())),
            attributes: match kind {
                'l' => Vec::new(),
                _ => attributes(&full),
            },
            first: match kind {
                'f' => meta.ino().to_string().into(),
                _ => PathBuf::new(),
            },
        };
        all.insert(path, node);
    }
    for node in all.values_mut().filter(|n| n.kind == 'f') {
        let ino = node.first.to_str().unwrap().parse().unwrap();
        node.first = inodes[&ino].clone();
    }
    all
}

fn attributes(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let dir = fs::File::open(path.parent().unwrap()).unwrap();
    let name = path.file_name().unwrap();
    let mut names = substrate_sys::xattr::list(&dir, name).unwrap();
    names.retain(|n| n.starts_with(b"user."));
    names.sort();
    let value = |n: &Vec<u8>| substrate_sys::xattr::get(&dir, name, n).unwrap();
    names
        .iter()
        .map(|n| (n.clone(), value(n).unwrap_or_default()))
        .collect()
}

/// Says what differs between two trees, and fails if anything does.
#[track_caller]
pub fn assert_same(
    found: &BTreeMap<PathBuf, Node>,
    expected: &BTreeMap<PathBuf, Node>,
    what: &str,
) {
    let mut wrong = Vec::new();
    for path in found.keys().chain(expected.keys()) {
        let (a, b) = (found.get(path), expected.get(path));
        if a != b {
            wrong.push(format!("{path:?}:\n  found    {a:?}\n  expected {b:?}"));
        }
    }
    wrong.dedup();
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

/// Runs one ignored test of this binary in a namespace of its own, after a script that prepares it.
pub fn in_namespace(prepare: &str, test: &str, env: &[(&str, &Path)]) {
    let mut command = Command::new("unshare");
    let script = format!("{prepare}\nexec \"$SELF\" --quiet --exact {test} --ignored --nocapture");
    command.args(["-Urm", "sh", "-euc", &script]);
    command.env("SELF", std::env::current_exe().unwrap());
    let output = command.envs(env.iter().copied()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{test} in a namespace: {said}");
    let ran = String::from_utf8_lossy(&output.stdout);
    assert!(ran.contains("1 passed"), "{test} did not run: {ran}");
}
