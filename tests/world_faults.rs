//! Isolated commands when things go wrong: killed at any step, a full disk, trees that cannot be read,
//! odd places. Nothing is lost, nothing stays that `world gc` does not find, and the message names the step.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{Sandbox, skip};

const NOBODY: u32 = 65534;

/// A sandbox, unless this machine has no full worlds.
fn sandbox(test: &str) -> Option<Sandbox> {
    let sandbox = Sandbox::with_policy("mode: observe\nfs: { write: [\"$PROJECT/**\"] }\n");
    if !sandbox.run(["world", "doctor"]).status.success() {
        skip(test, "this machine has no full worlds");
        return None;
    }
    fs::write(sandbox.project().join("file"), "before\n").unwrap();
    fs::create_dir(sandbox.project().join("dir")).unwrap();
    fs::write(sandbox.project().join("dir/deep"), "deep\n").unwrap();
    Some(sandbox)
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Names, modes and contents of a tree.
fn tree(root: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut rest = vec![root.to_owned()];
    while let Some(path) = rest.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let mut content = Vec::new();
        if meta.is_dir() {
            rest.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        } else if meta.is_file() {
            content = fs::read(&path).unwrap_or_default();
        }
        all.insert(path, (meta.mode(), content));
    }
    all
}

fn status(sandbox: &Sandbox) -> Vec<serde_json::Value> {
    let output = sandbox.run(["world", "status", "--json"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Directories that worlds have left below Substrate's home.
fn left(sandbox: &Sandbox) -> Vec<PathBuf> {
    ["worlds", "tmp", "snapshots/stage"]
        .iter()
        .filter_map(|place| fs::read_dir(sandbox.home().join(place)).ok())
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect()
}

/// Everything that is left is known to `status`, but for empty directories that were put aside, and
/// once nobody wants it and its time has come, `gc` removes it all.
fn all_is_found(sandbox: &Sandbox, when: &str) {
    let known: Vec<PathBuf> = status(sandbox)
        .iter()
        .map(|row| PathBuf::from(row["directory"].as_str().unwrap()))
        .collect();
    for dir in left(sandbox) {
        let name = dir.file_name().unwrap().to_string_lossy();
        assert!(
            known.contains(&dir) || name.starts_with(".aside-"),
            "{when}: {} is not listed",
            dir.display()
        );
    }
    for row in status(sandbox) {
        if let Some(world) = row["world"].as_str() {
            assert_ne!(row["state"], "running", "{when}: {row}");
            let output = sandbox.run(["world", "discard", world]);
            assert!(output.status.success(), "{when}: {}", text(&output.stderr));
        }
    }
    // What has no description yet might be a world in the making for a while.
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    for dir in left(sandbox) {
        fs::File::open(&dir)
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
    }
    let output = sandbox.run(["world", "gc"]);
    assert!(output.status.success(), "{when}: {}", text(&output.stderr));
    assert_eq!(left(sandbox), Vec::<PathBuf>::new(), "{when}");
}

fn no_strace(test: &str) -> bool {
    let works = Command::new("strace")
        .args(["-qq", "-o", "/dev/null", "true"])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !works {
        skip(test, "strace cannot trace here");
    }
    !works
}

/// The steps by which worlds are made, run, settled and applied.
const STEPS: &str = "mkdir,rename,unlink,unlinkat,rmdir,clone3,utimensat,chmod,sendmsg,recvmsg,write,\
                     waitid,fsync,fdatasync,renameat2,linkat,exit_group";

/// Kills the process at its n-th step; says whether it came that far.
fn killed_at(sandbox: &Sandbox, n: usize, arguments: &[&str]) -> bool {
    let mut command = Command::new("strace");
    sandbox.prepare(&mut command);
    let output = command
        .args(["-qq", "-o", "/dev/null", "-e"])
        .arg(format!("trace={STEPS}"))
        .arg("-e")
        .arg(format!("inject={STEPS}:signal=SIGKILL:when={n}"))
        .arg(env!("CARGO_BIN_EXE_substrate"))
        .args(arguments)
        .output()
        .unwrap();
    use std::os::unix::process::ExitStatusExt;
    output.status.signal() == Some(9) || output.status.code() == Some(137)
}

#[test]
fn the_owner_may_be_killed_at_any_step() {
    let test = "the_owner_may_be_killed_at_any_step";
    let Some(sandbox) = sandbox(test) else {
        return;
    };
    if no_strace(test) {
        return;
    }
    let before = tree(&sandbox.project());
    let line = [
        "run",
        "--isolated",
        "--",
        "sh",
        "-c",
        "echo x > file; echo y > new",
    ];
    let mut n = 1;
    while killed_at(&sandbox, n, &line) {
        assert!(before == tree(&sandbox.project()), "killed at step {n}");
        all_is_found(&sandbox, &format!("killed at step {n}"));
        n += 1;
        assert!(n < 500, "it never comes to its end");
    }
    assert!(n > 10, "only {n} steps were seen");
    assert!(before == tree(&sandbox.project()));
    assert_eq!(status(&sandbox).len(), 1, "the last run came to its end");
}

#[test]
fn an_apply_may_be_killed_at_any_step() {
    let test = "an_apply_may_be_killed_at_any_step";
    let Some(sandbox) = sandbox(test) else {
        return;
    };
    if no_strace(test) {
        return;
    }
    let before = tree(&sandbox.project());
    let line = "echo x > file; rm -r dir; mkdir new; echo y > new/y; ln -s y new/l";
    sandbox.run(["run", "--isolated", "--", "sh", "-c", line]);
    let apply = ["world", "apply", "-"];
    let mut n = 1;
    let mut after = None;
    while killed_at(&sandbox, n, &apply) {
        let again = sandbox.run(apply);
        let said = text(&again.stderr);
        assert!(again.status.success(), "killed at step {n}: {said}");
        let now = tree(&sandbox.project());
        assert!(after.get_or_insert_with(|| now.clone()) == &now, "step {n}");
        assert!(!now.contains_key(&sandbox.project().join("dir")));
        let undo = sandbox.run(["world", "undo", "-"]);
        let said = text(&undo.stderr);
        assert!(undo.status.success(), "killed at step {n}: {said}");
        assert!(before == tree(&sandbox.project()), "killed at step {n}");
        n += 1;
        assert!(n < 500, "it never comes to its end");
    }
    assert!(n > 10, "only {n} steps were seen");
}

#[test]
fn the_first_process_of_a_world_may_be_killed() {
    let Some(sandbox) = sandbox("the_first_process_of_a_world_may_be_killed") else {
        return;
    };
    let before = tree(&sandbox.project());
    let mut command = sandbox.substrate();
    command.args(["run", "--isolated", "--", "sh", "-c"]);
    command.arg("echo x > file; echo ready; sleep 1000");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut owner = command.spawn().unwrap();
    let mut out = owner.stdout.take().unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(&mut out, &mut ready).unwrap();
    let threads = fs::read_dir(format!("/proc/{}/task", owner.id())).unwrap();
    let first = threads
        .flat_map(|thread| fs::read_to_string(thread.unwrap().path().join("children")))
        .find_map(|text| text.split_whitespace().next().map(ToOwned::to_owned))
        .unwrap();
    let kill = Command::new("kill").args(["-9", &first]).status().unwrap();
    assert!(kill.success());
    // The end of the pipe says that everything in the world is gone.
    std::io::Read::read_to_end(&mut out, &mut Vec::new()).unwrap();
    let output = owner.wait_with_output().unwrap();
    assert!(!output.status.success());
    assert!(before == tree(&sandbox.project()));
    all_is_found(&sandbox, "the first process was killed");
}

/// Runs a script as root of a namespace of its own, where it may mount.
fn mounted(sandbox: &Sandbox, script: &str) -> Output {
    let mut command = Command::new("unshare");
    sandbox.prepare(&mut command);
    let how = if is_root() { "-m" } else { "-Urm" };
    command.args([how, "--propagation", "private", "sh", "-euc", script]);
    command.env("S", env!("CARGO_BIN_EXE_substrate"));
    command.output().unwrap()
}

#[test]
fn a_full_disk_is_named_and_leaves_nothing() {
    let Some(sandbox) = sandbox("a_full_disk_is_named_and_leaves_nothing") else {
        return;
    };
    let before = tree(&sandbox.project());
    // Results on a disk of their own, with fewer and fewer files left on it.
    let script = r#"
        mkdir -p "$SUBSTRATE_HOME/worlds"
        free=0
        while [ $free -lt 28 ]; do
            mount -t tmpfs -o "nr_inodes=$((free + 2))" small "$SUBSTRATE_HOME/worlds"
            code=0
            "$S" run --isolated -- sh -c 'echo x > file; echo y > new' > out 2>&1 || code=$?
            case $code in
                0 | 1 | 2) echo "$free fine" ;;
                125) grep -q 'substrate: .*No space left on device' out || { cat out; exit 1; }
                    echo "$free refused" ;;
                *) echo "code $code"; cat out; exit 1 ;;
            esac
            umount "$SUBSTRATE_HOME/worlds"
            free=$((free + 1))
        done
        rm -f out
        mount -t tmpfs -o size=1m small "$SUBSTRATE_HOME/worlds"
        code=0
        "$S" run --isolated -- sh -c 'echo x > file; head -c 4000000 /dev/zero > big' > /dev/null 2> "$HOME/said" || code=$?
        echo "big $code"; cat "$HOME/said"
        "$S" world status
        "$S" world discard -
        "$S" world gc
        ls "$SUBSTRATE_HOME/worlds"
    "#;
    let output = mounted(&sandbox, script);
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("0 refused") && said.contains("27 fine"),
        "{said}"
    );
    assert!(said.contains("big 1\n"), "its own status: {said}");
    assert!(said.contains("could not be recorded: cannot"), "{said}");
    assert!(said.ends_with("discarded\n0 removed\n"), "{said}");
    assert!(before == tree(&sandbox.project()), "{said}");
}

#[test]
fn projects_lie_anywhere() {
    let Some(sandbox) = sandbox("projects_lie_anywhere") else {
        return;
    };
    let script = r#"
        mkdir -p "$HOME/real" "$HOME/bound" "$HOME/ram" "$HOME/with mounts/sub"
        mount --bind "$HOME/real" "$HOME/bound"
        mount -t tmpfs ram "$HOME/ram"
        mount -t tmpfs sub "$HOME/with mounts/sub"
        ln -s ram "$HOME/linked"
        odd="$HOME/spaces and
newline"
        mkdir "$odd"
        for place in bound ram linked "with mounts" "spaces and
newline"; do
            cd "$HOME/$place"
            mkdir -p .git; echo before > file
            "$S" run --isolated -- sh -c 'echo after > file; echo new > made; cat file' > out 2> err || { cat err; exit 1; }
            [ "$(cat out)" = after ] && [ "$(cat file)" = before ] && [ ! -e made ] || { echo "$place"; exit 1; }
            "$S" world apply - > /dev/null
            [ "$(cat file)" = after ] && [ "$(cat made)" = new ] || { echo "$place: not applied"; exit 1; }
            "$S" world undo - > /dev/null
            [ "$(cat file)" = before ] && [ ! -e made ] || { echo "$place: not undone"; exit 1; }
            "$S" world discard - > /dev/null
            echo "fine: $place"
        done
    "#;
    let output = mounted(&sandbox, script);
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("fine: ").count(), 5, "{said}");
    all_is_found(&sandbox, "projects anywhere");
}

/// The same as an ordinary user, if this is root.
fn as_ordinary_user(sandbox: &Sandbox, line: &str) -> Output {
    let mut command = Command::new("setpriv");
    sandbox.prepare(&mut command);
    if is_root() {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    }
    command
        .args(["sh", "-c", line])
        .env("S", env!("CARGO_BIN_EXE_substrate"));
    command.output().unwrap()
}

fn give_away(path: &Path) {
    if !is_root() {
        return;
    }
    let mut rest = vec![path.to_owned()];
    while let Some(path) = rest.pop() {
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        if path.is_dir() {
            rest.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
    }
}

#[test]
fn files_that_cannot_be_read_are_not_lost() {
    let test = "files_that_cannot_be_read_are_not_lost";
    let Some(sandbox) = sandbox(test) else {
        return;
    };
    let project = sandbox.project();
    fs::write(project.join("closed"), "closed\n").unwrap();
    fs::create_dir(project.join("shut")).unwrap();
    fs::write(project.join("shut/inner"), "inner\n").unwrap();
    let top = sandbox.home().parent().unwrap().to_owned();
    give_away(&top);
    for (name, mode) in [("closed", 0), ("shut", 0)] {
        fs::set_permissions(project.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let line = "$S run --isolated -- sh -c 'echo new > made; cat closed; rm -f file; mv dir moved; exit 5'; \
                echo code $?; $S world diff - --stat; $S world apply - && $S world undo -; cat file dir/deep";
    let output = as_ordinary_user(&sandbox, line);
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(said.contains("code 5") && said.contains("undone"), "{said}");
    assert!(text(&output.stdout).ends_with("before\ndeep\n"), "{said}");
    let mode = |name: &str| fs::metadata(project.join(name)).unwrap().mode() & 0o777;
    assert_eq!((mode("closed"), mode("shut")), (0, 0), "{said}");
    if !is_root() {
        return skip(test, "the part with files of another user needs root");
    }
    // What belongs to somebody else and cannot be read cannot be copied either; that is said.
    chown(project.join("closed"), Some(0), Some(0)).unwrap();
    let output = as_ordinary_user(&sandbox, "$S run --isolated -- sh -c 'echo new > made'");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(
        said.contains("closed") && said.contains("belongs to somebody else"),
        "{said}"
    );
    assert!(!project.join("made").exists());
}

/// The long form, with ten times as many, is `scripts/world-stress`.
#[test]
fn a_large_project_is_held_compared_and_applied() {
    let Some(sandbox) = sandbox("a_large_project_is_held_compared_and_applied") else {
        return;
    };
    let files: usize = std::env::var("SUBSTRATE_STRESS_FILES")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(20_000);
    for dir in 0..files.div_ceil(100) {
        let dir = sandbox.project().join(format!("d{dir}"));
        fs::create_dir(&dir).unwrap();
        for file in 0..100 {
            fs::write(dir.join(format!("f{file}")), "before\n").unwrap();
        }
    }
    let line = "for d in d*; do echo after > $d/f1; rm $d/f2; echo new > $d/new; done; rm -rf d0";
    let output = sandbox.run(["run", "--isolated", "--", "sh", "-c", line]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(sandbox.project().join("d0/f0").exists());
    let apply = sandbox.run(["world", "apply", "-"]);
    assert!(apply.status.success(), "{}", text(&apply.stderr));
    assert!(!sandbox.project().join("d0").exists());
    let last = sandbox
        .project()
        .join(format!("d{}", files.div_ceil(100) - 1));
    assert_eq!(fs::read_to_string(last.join("f1")).unwrap(), "after\n");
    assert!(!last.join("f2").exists() && last.join("new").exists());
    let undo = sandbox.run(["world", "undo", "-"]);
    assert!(undo.status.success(), "{}", text(&undo.stderr));
    assert_eq!(fs::read_to_string(last.join("f2")).unwrap(), "before\n");
    assert!(sandbox.project().join("d0/f99").exists() && !last.join("new").exists());
    all_is_found(&sandbox, "a large project");
}
