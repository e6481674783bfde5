//! The reader on good, damaged and foreign files.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic too")]

mod common;

use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use common::span;
use substrate_trace::read::{Exit, Filter, FindError, Follow, Order, Reader, Skipped};
use substrate_trace::{
    Completion, Event, FsDiff, NetUse, Outcome, Redactor, Retention, SpanInfo, Verdict, Writer,
};

fn write(home: &Path, commands: &[&str]) {
    let writer = Writer::open(home).unwrap();
    for command in commands {
        writer.write(&Event::command_start(&span(command))).unwrap();
    }
}

fn append(home: &Path, bytes: &[u8]) {
    let path = home.join("trace.jsonl");
    let mut file = std::fs::File::options()
        .append(true)
        .create(true)
        .open(path)
        .unwrap();
    file.write_all(bytes).unwrap();
}

fn commands(home: &Path, order: Order, filter: &Filter) -> (Vec<String>, Skipped) {
    let reader = Reader::open(home).unwrap();
    let mut records = reader.records(order, filter);
    let commands = records
        .by_ref()
        .map(|record| record.unwrap().span.cmd.unwrap().into_string().unwrap())
        .collect();
    (commands, records.skipped())
}

fn all(home: &Path) -> Vec<String> {
    commands(home, Order::OldestFirst, &Filter::default()).0
}

#[test]
fn no_trace_reads_as_an_empty_one() {
    let temp = tempfile::tempdir().unwrap();
    assert!(all(temp.path()).is_empty());
    assert!(all(&temp.path().join("nothing")).is_empty());
    let reader = Reader::open(temp.path()).unwrap();
    assert!(matches!(reader.find("-"), Err(FindError::Empty)));
}

#[test]
fn both_orders_over_rotated_files() {
    let temp = tempfile::tempdir().unwrap();
    let retention = Retention {
        max_bytes: 1500,
        files: 100,
    };
    let writer = Writer::open_with(temp.path(), retention, Redactor::default()).unwrap();
    let names: Vec<String> = (0..60).map(|number| format!("cmd-{number}")).collect();
    for name in &names {
        writer.write(&Event::command_start(&span(name))).unwrap();
    }
    assert!(temp.path().join("trace.10.jsonl").exists());
    assert_eq!(all(temp.path()), names);
    let (mut newest_first, _) = commands(temp.path(), Order::NewestFirst, &Filter::default());
    newest_first.reverse();
    assert_eq!(newest_first, names);
}

#[test]
fn damaged_lines_are_skipped_and_counted() {
    let temp = tempfile::tempdir().unwrap();
    write(temp.path(), &["one"]);
    append(temp.path(), b"not json\n{\"a\":1}\n\n  \n\xff\xfe\0\n[]\n");
    write(temp.path(), &["two"]);
    append(temp.path(), &vec![b'x'; substrate_trace::MAX_LINE + 1]);
    append(temp.path(), b"\n");
    write(temp.path(), &["three"]);
    append(temp.path(), b"{\"v\":1,\"ts\":\"2026-");
    let expected = Skipped {
        torn: 1,
        foreign: 4,
        oversized: 1,
    };
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let (mut found, skipped) = commands(temp.path(), order, &Filter::default());
        found.sort();
        assert_eq!(found, ["one", "three", "two"]);
        assert_eq!(skipped, expected);
    }
    assert_eq!(
        expected.to_string(),
        "skipped 6 unreadable lines of the trace (1 torn, 4 foreign, 1 too long)"
    );
}

#[test]
fn a_last_line_that_only_lacks_its_newline_counts() {
    let temp = tempfile::tempdir().unwrap();
    write(temp.path(), &["one", "two"]);
    let path = temp.path().join("trace.jsonl");
    let mut text = std::fs::read(&path).unwrap();
    text.pop();
    std::fs::write(&path, text).unwrap();
    assert_eq!(all(temp.path()), ["one", "two"]);
}

#[test]
fn what_is_not_a_file_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/zero", temp.path().join("trace.jsonl")).unwrap();
    assert!(Reader::open(temp.path()).is_err());
}

/// A trace with one event of each kind that filters tell apart.
fn varied(home: &Path) -> Vec<SpanInfo> {
    let writer = Writer::open(home).unwrap();
    let mut spans = Vec::new();

    let mut build = span("make \"all\"\ttarget");
    build.cwd = "/srv/a".into();
    let failed = Completion {
        exit: Some(2),
        ..Completion::default()
    };
    writer
        .write(&Event::command_complete(&build, &failed))
        .unwrap();

    let mut fetch = span("curl https://example.com");
    fetch.cwd = "/srv/ab".into();
    fetch.agent_id = "claude".into();
    fetch.parent_span = Some(build.span_id);
    let reached = Completion {
        exit: Some(0),
        net: vec![NetUse {
            host: "example.com".into(),
            port: 443,
            ..NetUse::default()
        }],
        scopes_used: vec!["udp:dns.example.org:53".into()],
        ..Completion::default()
    };
    writer
        .write(&Event::command_complete(&fetch, &reached))
        .unwrap();

    let mut odd = span("");
    odd.cmd = std::ffi::OsString::from_vec(b"touch make-\xff".to_vec());
    odd.cwd = PathBuf::from(std::ffi::OsString::from_vec(b"/srv/\xff/sub".to_vec()));
    let changed = Completion {
        exit: Some(0),
        fs_diff: Some(FsDiff {
            writes: vec!["/srv/a/new.rs".into()],
            ..FsDiff::default()
        }),
        scopes_used: vec!["fs.write:/srv/b/x".into()],
        ..Completion::default()
    };
    writer
        .write(&Event::command_complete(&odd, &changed))
        .unwrap();

    let mut denied = span("sudo make install");
    denied.verdict = Some(Verdict::Deny);
    writer
        .write(&Event::policy_violation(&denied, Outcome::WouldDeny))
        .unwrap();
    spans.extend([build, fetch, odd, denied]);
    spans
}

#[test]
fn filters_find_what_they_name_in_any_layout() {
    let temp = tempfile::tempdir().unwrap();
    let spans = varied(temp.path());
    // The same events as another program might lay them out.
    let other = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(temp.path().join("trace.jsonl")).unwrap();
    let mut respaced = String::new();
    for line in text.lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        respaced.push_str(&pretty.replace('\n', " "));
        respaced.push('\n');
    }
    std::fs::write(other.path().join("trace.jsonl"), respaced).unwrap();

    let text = |text: &str| Some(text.as_bytes().to_vec());
    let own = |text: &str| Some(text.to_owned());
    let path = |text: &str| Some(PathBuf::from(text));
    let none = Filter::default;
    let hour = Duration::from_secs(3600);
    let now = SystemTime::now();
    let cases: Vec<(Filter, &[usize])> = vec![
        (none(), &[0, 1, 2, 3]),
        (
            Filter {
                command: text("make"),
                ..none()
            },
            &[0, 2, 3],
        ),
        (
            Filter {
                command: text("\"all\"\tt"),
                ..none()
            },
            &[0],
        ),
        (
            Filter {
                command: Some(b"make-\xff".to_vec()),
                ..none()
            },
            &[2],
        ),
        (
            Filter {
                command: text("make *"),
                ..none()
            },
            &[0],
        ),
        (
            Filter {
                command: text("*make*"),
                ..none()
            },
            &[0, 2, 3],
        ),
        (
            Filter {
                command: text("nothing"),
                ..none()
            },
            &[],
        ),
        (
            Filter {
                cwd: path("/srv/a"),
                ..none()
            },
            &[0],
        ),
        (
            Filter {
                cwd: path("/srv"),
                ..none()
            },
            &[0, 1, 2, 3],
        ),
        (
            Filter {
                exit: Some(Exit::Is(2)),
                ..none()
            },
            &[0],
        ),
        (
            Filter {
                exit: Some(Exit::Is(0)),
                ..none()
            },
            &[1, 2],
        ),
        (
            Filter {
                exit: Some(Exit::Failed),
                ..none()
            },
            &[0],
        ),
        (
            Filter {
                verdict: own("deny"),
                ..none()
            },
            &[3],
        ),
        (
            Filter {
                verdict: own("would_deny"),
                ..none()
            },
            &[3],
        ),
        (
            Filter {
                verdict: own("allow"),
                ..none()
            },
            &[],
        ),
        (
            Filter {
                agent: own("claude"),
                ..none()
            },
            &[1],
        ),
        (
            Filter {
                path: path("/srv/a"),
                ..none()
            },
            &[2],
        ),
        (
            Filter {
                path: path("/srv/b/x"),
                ..none()
            },
            &[2],
        ),
        (
            Filter {
                path: path("*.rs"),
                ..none()
            },
            &[2],
        ),
        (
            Filter {
                path: path("/srv/a/new"),
                ..none()
            },
            &[],
        ),
        (
            Filter {
                host: own("example.com"),
                ..none()
            },
            &[1],
        ),
        (
            Filter {
                host: own("dns.example.org"),
                ..none()
            },
            &[1],
        ),
        (
            Filter {
                host: own("*.org"),
                ..none()
            },
            &[1],
        ),
        (
            Filter {
                host: own("example"),
                ..none()
            },
            &[],
        ),
        (
            Filter {
                since: Some(now - hour),
                until: Some(now + hour),
                ..none()
            },
            &[0, 1, 2, 3],
        ),
        (
            Filter {
                since: Some(now + hour),
                ..none()
            },
            &[],
        ),
        (
            Filter {
                until: Some(now - hour),
                ..none()
            },
            &[],
        ),
        (
            Filter {
                event_types: vec!["policy_violation".into()],
                ..none()
            },
            &[3],
        ),
        (
            Filter {
                event_types: vec!["policy".into()],
                ..none()
            },
            &[],
        ),
        (
            Filter {
                session: Some(spans[1].session_id.to_string()),
                ..none()
            },
            &[1],
        ),
        (
            Filter {
                parent: Some(spans[0].span_id.to_string()),
                ..none()
            },
            &[1],
        ),
        (
            Filter {
                command: text("curl"),
                agent: own("human"),
                ..none()
            },
            &[],
        ),
    ];
    for home in [temp.path(), other.path()] {
        let reader = Reader::open(home).unwrap();
        for (filter, expected) in &cases {
            for order in [Order::OldestFirst, Order::NewestFirst] {
                let mut found: Vec<usize> = reader
                    .records(order, filter)
                    .map(|record| {
                        let id = record.unwrap().span.span_id;
                        spans
                            .iter()
                            .position(|s| s.span_id.to_string() == id)
                            .unwrap()
                    })
                    .collect();
                found.sort_unstable();
                assert_eq!(found, *expected, "{filter:?}");
            }
        }
    }
}

#[test]
fn spans_are_found_by_parts_of_their_id() {
    let temp = tempfile::tempdir().unwrap();
    let writer = Writer::open(temp.path()).unwrap();
    let spans: Vec<SpanInfo> = (0..20).map(|n| span(&format!("cmd-{n}"))).collect();
    for span in &spans {
        writer.write(&Event::command_start(span)).unwrap();
        writer
            .write(&Event::command_complete(span, &Completion::default()))
            .unwrap();
    }
    let reader = Reader::open(temp.path()).unwrap();
    let id = spans[7].span_id.to_string();
    for text in [&id, &id[4..], &id[id.len() - 12..]] {
        let found = reader.find(text).unwrap();
        assert_eq!(found.id, id);
        assert_eq!(found.events.len(), 2);
        let main = &found.main().unwrap().span;
        assert_eq!(main.event_type, "command_complete");
        assert_eq!(main.cmd, Some("cmd-7".into()));
    }
    assert_eq!(reader.find("-").unwrap().id, spans[19].span_id.to_string());

    let error = reader.find(&id[..10]).unwrap_err();
    let FindError::Ambiguous { ids, .. } = &error else {
        unreachable!("{error}");
    };
    assert_eq!(ids.len(), 8);
    assert!(matches!(
        reader.find("00000000"),
        Err(FindError::Unknown { .. })
    ));
    for bad in [
        "",
        "abc",
        "spn_",
        "\u{1b}[2J",
        "wld_0123456789",
        "../../etc",
        &"0".repeat(99),
    ] {
        assert!(
            matches!(reader.find(bad), Err(FindError::NotAnId { .. })),
            "{bad}"
        );
    }
}

#[test]
fn children_are_found_by_their_parent() {
    let temp = tempfile::tempdir().unwrap();
    let writer = Writer::open(temp.path()).unwrap();
    let parent = span("parent");
    for name in ["a", "b"] {
        let mut child = span(name);
        child.parent_span = Some(parent.span_id);
        writer.write(&Event::command_start(&child)).unwrap();
    }
    writer
        .write(&Event::command_complete(&parent, &Completion::default()))
        .unwrap();
    let reader = Reader::open(temp.path()).unwrap();
    let children: Vec<_> = reader
        .children(&parent.span_id.to_string())
        .map(|record| record.unwrap().span.cmd.unwrap())
        .collect();
    assert_eq!(children, ["a", "b"]);
}

#[test]
fn following_sees_new_lines_across_rotations() {
    let temp = tempfile::tempdir().unwrap();
    let home = temp.path();
    let names = |follow: &mut Follow| -> Vec<String> {
        let records = follow.poll().unwrap();
        let commands = records.into_iter().map(|record| record.span.cmd.unwrap());
        commands.map(|cmd| cmd.into_string().unwrap()).collect()
    };
    let mut early = Follow::from_end(home, &Filter::default()).unwrap();
    assert!(names(&mut early).is_empty());
    write(home, &["before"]);
    assert_eq!(names(&mut early), ["before"]);

    let mut follow = Follow::from_end(home, &Filter::default()).unwrap();
    assert!(names(&mut follow).is_empty());
    write(home, &["one"]);
    append(home, b"{\"half\":");
    assert_eq!(names(&mut follow), ["one"]);
    append(home, b"1}\n");
    write(home, &["two"]);
    assert_eq!(names(&mut follow), ["two"]);
    assert_eq!(follow.skipped().foreign, 1);

    // Two rotations between two looks.
    write(home, &["three"]);
    std::fs::rename(home.join("trace.jsonl"), home.join("trace.2.jsonl")).unwrap();
    write(home, &["four"]);
    std::fs::rename(home.join("trace.jsonl"), home.join("trace.1.jsonl")).unwrap();
    write(home, &["five"]);
    assert_eq!(names(&mut follow), ["three", "four", "five"]);
    assert!(names(&mut follow).is_empty());

    // The file is gone altogether.
    std::fs::remove_file(home.join("trace.jsonl")).unwrap();
    write(home, &["six"]);
    let seen = names(&mut follow);
    assert_eq!(seen.last().unwrap(), "six");
}
