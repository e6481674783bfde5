//! How changes are shown: in counts, as a patch, as JSON.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends at the first surprise"
)]

mod common;

use std::fs;
use std::process::{Command, Stdio};

use common::{Rig, assert_same, shell, snapshot};
use substrate_changes::patch::{self, Paint, Totals};
use substrate_changes::pending::Pending;

fn shown(
    pending: &Pending,
    show: fn(
        &Pending,
        Paint,
        &mut dyn std::io::Write,
        substrate_world::progress::OnProgress<'_>,
    ) -> Result<Totals, patch::ShowError>,
    paint: Paint,
) -> String {
    let mut out = Vec::new();
    show(pending, paint, &mut out, &mut |_| true).unwrap();
    String::from_utf8(out).unwrap()
}

const SCRIPT: &str = "printf 'one\\nTWO\\nthree\\nfour' > text; printf 'a\\0b' > bin; ln -sfn new link; \
    echo x > 'new file'; chmod +x run; rm gone; mkdir d; head -c 2000000 /dev/zero > large; \
    printf '\\033[31mred\\n' > esc; rm swap; ln -s text swap; touch -d @5 dated";

fn build(rig: &Rig) {
    rig.file("text", "one\ntwo\nthree\n");
    rig.file("bin", "\0");
    rig.file("run", "#!\n");
    rig.file("gone", "bye\n");
    rig.file("swap", "file\n");
    rig.file("dated", "1\n");
    std::os::unix::fs::symlink("old", rig.host.join("link")).unwrap();
}

#[test]
fn counts_for_texts_and_sizes_for_the_rest() {
    let rig = Rig::new();
    build(&rig);
    let pending = rig.copied("1", SCRIPT);
    let host = rig.host.display();
    assert_eq!(
        shown(&pending, patch::stat, Paint::PLAIN),
        format!(
            "# {host}\n\
             M bin | 1 B -> 3 B\n\
             A d/\n\
             m dated | times\n\
             A esc | +1 -0\n\
             D gone | +0 -1\n\
             A large | 0 B -> 1.9 MiB\n\
             M link | old -> new\n\
             A new file | +1 -0\n\
             m run | mode 0644 -> 0755\n\
             T swap | 5 B -> 4 B\n\
             M text | +2 -1\n"
        )
    );
}

#[test]
fn the_patch_is_one_that_git_reads() {
    let rig = Rig::new();
    build(&rig);
    let pending = rig.copied("1", SCRIPT);
    let text = shown(&pending, patch::patch, Paint::PLAIN);
    for part in [
        "diff --git a/text b/text\n--- a/text\n+++ b/text\n@@ -1,3 +1,4 @@\n one\n-two\n+TWO\n three\n+four\n\\ No newline at end of file\n",
        "diff --git a/bin b/bin\n# binary, 1 B -> binary, 3 B\n",
        "# new directory, mode 0755: d\n",
        "diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n",
        "# nothing -> large, 1.9 MiB\n",
        "diff --git a/run b/run\nold mode 100644\nnew mode 100755\n",
        "deleted file mode 100644\n--- a/swap\n",
        "new file mode 120000\n--- /dev/null\n+++ b/swap\n@@ -0,0 +1 @@\n+text\n\\ No newline at end of file\n",
        "diff --git a/dated b/dated\n# changed: times\n",
    ] {
        assert!(text.contains(part), "{part}\nin\n{text}");
    }
}

/// `patch` stands for every program that reads patches.
#[test]
fn texts_come_out_right_when_the_patch_is_applied_elsewhere() {
    let rig = Rig::new();
    let build = |rig: &Rig| {
        rig.file(
            "a/one",
            &(0..60).map(|n| format!("line {n}\n")).collect::<String>(),
        );
        rig.file("two", "x\ny\n");
        rig.file("no newline", "x");
    };
    build(&rig);
    let script = "sed -i 's/line 7$/LINE/; s/line 44/x/; 30d' a/one; echo z >> two; printf 'y' > 'no newline'; echo 1 > new";
    let pending = rig.copied("1", script);
    let plain = Rig::new();
    build(&plain);
    let text = shown(&pending, patch::patch, Paint::PLAIN);
    let mut command = Command::new("patch");
    command.args(["-p1", "--no-backup-if-mismatch", "-s"]);
    let Ok(mut child) = command
        .current_dir(&plain.host)
        .stdin(Stdio::piped())
        .spawn()
    else {
        let said =
            "SKIPPED texts_come_out_right_when_the_patch_is_applied_elsewhere: no `patch` here\n";
        return std::io::Write::write_all(&mut std::io::stderr(), said.as_bytes()).unwrap();
    };
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    shell(&rig.host, script);
    let contents = |rig: &Rig| {
        let mut tree = snapshot(&rig.host);
        for node in tree.values_mut() {
            node.mtime = None;
        }
        tree
    };
    assert_same(&contents(&plain), &contents(&rig), "patched");
}

#[test]
fn a_terminal_is_not_steered_by_what_is_shown() {
    let rig = Rig::new();
    rig.file("f", "1\n");
    let pending = rig.copied(
        "1",
        "printf 'a\\033]0;x\\007b\\342\\200\\256c\\n' > f; : > \"$(printf 'n\\033m')\"",
    );
    for paint in [Paint::VISIBLE, Paint::ANSI] {
        for show in [patch::patch, patch::stat] {
            let text = shown(&pending, show, paint);
            let mut rest = text.clone();
            for code in [
                "\x1b[1m", "\x1b[36m", "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[0m",
            ] {
                rest = rest.replace(code, "");
            }
            assert!(!rest.contains(['\x1b', '\x07', '\u{202e}']), "{rest:?}");
        }
    }
    let text = shown(&pending, patch::patch, Paint::VISIBLE);
    assert!(text.contains("+a\\u{1b}]0;x\\u{7}b\\u{202e}c"), "{text}");
    assert!(text.contains(r#""b/n\033m""#), "{text}");
}

#[test]
fn json_tells_everything() {
    let rig = Rig::new();
    build(&rig);
    let mut pending = rig.copied("1", SCRIPT);
    rig.file("text", "host");
    let mut out = Vec::new();
    let totals = patch::json(&pending, &mut out, &mut |_| true).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(value["v"], 1);
    assert_eq!(value["roots"][0]["strategy"], "copy");
    let find = |name: &str| {
        let path = rig.host.join(name);
        let all = value["changes"].as_array().unwrap();
        all.iter()
            .find(|c| c["path"] == path.to_str().unwrap())
            .unwrap()
            .clone()
    };
    assert_eq!(find("run")["kind"], "meta");
    assert_eq!(find("run")["fields"], serde_json::json!(["mode"]));
    assert_eq!(find("run")["old"]["mode"], "0644");
    assert_eq!(find("swap")["new"]["type"], "symlink");
    assert_eq!(find("large")["new"]["size"], 2_000_000);
    assert_eq!(find("text")["conflict"], "changed on the host since");
    assert_eq!(value["totals"]["conflicts"], 1);
    assert_eq!(totals, patch::totals(&pending, &mut |_| true).unwrap());
    assert_eq!(
        totals.sentence(),
        "3 created, 6 changed, 1 deleted, 1 directory (1.9 MiB), 1 in conflict with the host"
    );
    let nothing = rig.copied("2", ":");
    assert_eq!(
        patch::totals(&nothing, &mut |_| true).unwrap().sentence(),
        "no changes"
    );
    pending.finish(None).unwrap();
    fs::remove_dir_all(nothing.dir()).unwrap();
}
