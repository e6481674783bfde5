//! The writer beside other writers, on a full disk, and with files in its way.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic too")]

mod common;

use std::collections::HashSet;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use common::{HOME, child, command, lines, span};
use substrate_trace::{Error, Event, Redactor, Retention, Writer};

const PROCESSES: usize = 8;
const EVENTS: usize = 1000;

fn home_of_child() -> PathBuf {
    std::env::var_os(HOME).unwrap().into()
}

/// What a line of the concurrent tests says about who wrote it.
fn label(value: &serde_json::Value) -> String {
    let cmd = value["cmd"].as_str().unwrap();
    cmd.split(' ').next().unwrap().to_owned()
}

fn write_many(retention: Retention) {
    let home = home_of_child();
    let writer = Writer::open_with(&home, retention, Redactor::default()).unwrap();
    for number in 0..EVENTS {
        // Some lines are far longer than a page or a pipe's atomic write.
        let filling = if number % 100 == 7 {
            100_000
        } else {
            number % 50
        };
        let label = format!("{}-{number}", std::process::id());
        let span = span(&format!("{label} {}", "x".repeat(filling)));
        writer.write(&Event::command_start(&span)).unwrap();
    }
}

#[test]
#[ignore = "runs as a child of many_processes_write_whole_lines"]
fn child_writes_many() {
    write_many(Retention::default());
}

#[test]
fn many_processes_write_whole_lines() {
    let temp = tempfile::tempdir().unwrap();
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| child("child_writes_many", temp.path()))
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let lines = lines(temp.path());
    assert_eq!(lines.len(), PROCESSES * EVENTS);
    let labels: HashSet<String> = lines.iter().map(label).collect();
    assert_eq!(labels.len(), PROCESSES * EVENTS);
}

#[test]
#[ignore = "runs as a child of rotation_among_many_processes_loses_nothing"]
fn child_writes_many_and_rotates() {
    write_many(Retention {
        max_bytes: 200_000,
        files: 1000,
    });
}

#[test]
fn rotation_among_many_processes_loses_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| child("child_writes_many_and_rotates", temp.path()))
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let mut labels = HashSet::new();
    let mut files = 0;
    for entry in std::fs::read_dir(temp.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "jsonl") {
            continue;
        }
        files += 1;
        for line in std::fs::read_to_string(path).unwrap().lines() {
            assert!(labels.insert(label(&serde_json::from_str(line).unwrap())));
        }
    }
    assert_eq!(labels.len(), PROCESSES * EVENTS);
    assert!(files > 20, "{files}");
}

#[test]
fn retention_keeps_the_newest_lines() {
    let temp = tempfile::tempdir().unwrap();
    let retention = Retention {
        max_bytes: 2000,
        files: 3,
    };
    let writer = Writer::open_with(temp.path(), retention, Redactor::default()).unwrap();
    for number in 0..100 {
        writer
            .write(&Event::command_start(&span(&format!("cmd-{number}"))))
            .unwrap();
    }
    let mut names: Vec<_> = std::fs::read_dir(temp.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "trace.1.jsonl",
            "trace.2.jsonl",
            "trace.jsonl",
            "trace.lock"
        ]
    );
    assert_eq!(lines(temp.path()).last().unwrap()["cmd"], "cmd-99");
    for name in names {
        let found = temp.path().join(name).metadata().unwrap();
        assert!(found.len() <= 2000);
        assert_eq!(found.mode() & 0o777, 0o600);
    }
}

#[test]
fn a_writer_follows_when_another_rotates_or_removes_the_file() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("trace.jsonl");
    let writer = Writer::open(temp.path()).unwrap();
    writer.write(&Event::command_start(&span("first"))).unwrap();
    std::fs::rename(&path, temp.path().join("trace.1.jsonl")).unwrap();
    writer
        .write(&Event::command_start(&span("second")))
        .unwrap();
    assert_eq!(lines(temp.path())[0]["cmd"], "second");

    // Opened, but removed before its first write.
    let writer = Writer::open(temp.path()).unwrap();
    std::fs::remove_file(&path).unwrap();
    writer.write(&Event::command_start(&span("third"))).unwrap();
    assert_eq!(lines(temp.path())[0]["cmd"], "third");
}

#[test]
fn a_torn_last_line_takes_no_other_with_it() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("trace.jsonl");
    std::fs::write(&path, "{\"v\":1,\"ts\":\"20").unwrap();
    let writer = Writer::open(temp.path()).unwrap();
    writer.write(&Event::command_start(&span("next"))).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let second = text.lines().nth(1).unwrap();
    let value: serde_json::Value = serde_json::from_str(second).unwrap();
    assert_eq!(value["cmd"], "next");

    // Torn by another process while this one has the file open.
    use std::io::Write;
    let mut other = std::fs::File::options().append(true).open(&path).unwrap();
    other.write_all(b"{\"v\":").unwrap();
    writer.write(&Event::command_start(&span("last"))).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.lines().last().unwrap().contains("\"cmd\":\"last\""));
}

#[test]
#[ignore = "runs as a child of a_write_cut_short_is_reported"]
fn child_writes_until_no_space_is_left() {
    let home = home_of_child();
    let writer = Writer::open(&home).unwrap();
    let long = span(&"x".repeat(1500));
    let error = (0..100)
        .find_map(|_| writer.write(&Event::command_start(&long)).err())
        .unwrap();
    assert!(matches!(error, Error::Write { .. }), "{error}");
    std::fs::write(home.join("message"), error.to_string()).unwrap();
}

/// A limit on the file's size cuts writes short exactly as a full disk does, and
/// needs no mount.
#[test]
fn a_write_cut_short_is_reported_and_hurts_no_other_line() {
    let temp = tempfile::tempdir().unwrap();
    let test = command("child_writes_until_no_space_is_left", temp.path());
    // Pipes, because the limit would also hold for a file that our own output goes to.
    let output = Command::new("/bin/sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 10; exec \"$0\" \"$@\""])
        .arg(test.get_program())
        .args(test.get_args())
        .env(HOME, temp.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let message = std::fs::read_to_string(temp.path().join("message")).unwrap();
    assert!(message.contains("trace.jsonl: File too large"), "{message}");

    let path = temp.path().join("trace.jsonl");
    let before = std::fs::read_to_string(&path).unwrap();
    assert!(!before.ends_with('\n'));
    let writer = Writer::open(temp.path()).unwrap();
    writer
        .write(&Event::command_start(&span("space again")))
        .unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with(&before));
    let whole: Vec<bool> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).is_ok())
        .collect();
    assert_eq!(whole.iter().filter(|whole| !**whole).count(), 1);
    assert!(whole.last().unwrap());
}

#[test]
fn what_stands_in_the_way_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("trace.jsonl");
    symlink(temp.path().join("elsewhere"), &path).unwrap();
    let error = Writer::open(temp.path()).unwrap_err();
    assert!(matches!(error, Error::WrongKind { .. }));
    assert_eq!(
        error.to_string(),
        format!(
            "{} is not a plain file; move it away and it will be made anew",
            path.display()
        )
    );
    assert!(!temp.path().join("elsewhere").exists());

    let error = Writer::open(&path.join("home")).unwrap_err();
    assert!(matches!(error, Error::Home { .. }), "{error}");
}

#[test]
fn a_damaged_key_does_not_stop_the_record() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::write(temp.path().join("key"), "short").unwrap();
    let writer = Writer::open(temp.path()).unwrap();
    assert!(matches!(writer.key(), Err(Error::KeyDamaged { .. })));
    let mut span = span("ls");
    span.replay = Some(Default::default());
    writer.write(&Event::command_start(&span)).unwrap();
    let digest = &lines(temp.path())[0]["replay_context"]["digest"];
    assert!(digest.is_null());
}
