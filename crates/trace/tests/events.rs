//! Every event: valid by the schema, read back as it was, redacted and signed.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may panic too"
)]

mod common;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use common::span;
use proptest::prelude::*;
use serde_json::Value;
use substrate_trace::read::Record;
use substrate_trace::{
    AgentEvent, Answer, Approval, Authenticity, ClientUse, Completion, Enforced, Environment,
    Event, FsDiff, Key, Level, MARK, MAX_LINE, Mode, NetAttempt, NetUse, Outcome, Output,
    PolicyReload, RateLimit, Redactor, ReplayContext, RuleRef, SpanId, SpanInfo, Stdin, Stream,
    Tokens, ToolUse, Used, Verdict, Via, WorldEvent, WorldId,
};

fn schema() -> Value {
    serde_json::from_str(include_str!("../../../schemas/span.json")).unwrap()
}

/// Fails unless the line is valid and the schema knows each of its fields.
fn check(line: &[u8]) {
    let value: Value = serde_json::from_slice(line).unwrap();
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator
        .iter_errors(&value)
        .map(|e| e.to_string())
        .collect();
    assert!(errors.is_empty(), "{errors:?}\n{value}");
    let known = |value: &Value, schema: &Value| {
        for key in value.as_object().unwrap().keys() {
            assert!(schema["properties"].get(key).is_some(), "{key} in {value}");
        }
    };
    known(&value, &schema);
    for part in ["replay_context", "fs_diff", "enforced", "rule", "output"] {
        if value.get(part).is_some_and(Value::is_object) {
            known(&value[part], &schema["definitions"][part]);
        }
    }
}

fn bytes(text: &[u8]) -> OsString {
    OsString::from_vec(text.to_vec())
}

fn replay() -> ReplayContext {
    let vars = [
        ("PATH", "/usr/bin:/bin"),
        ("LANG", "C.UTF-8"),
        ("DB_PASSWORD", "x"),
    ];
    let vars = vars.map(|(name, value)| (name.into(), value.into()));
    ReplayContext {
        env: Environment::record(vars, None),
        umask: 0o022,
        cwd: "/srv/project".into(),
        policy_id: "default".into(),
        policy_hash: Some("ab".repeat(32)),
        policy_commit: Some("0123abc".into()),
        world_image_version: Some("linux-6.1/full".into()),
        stdin: Stdin::Content {
            digest: "cd".repeat(32),
            bytes: 3,
        },
        base_tree: Some("tree".into()),
        after_tree: Some("after".into()),
        tools: vec![("/usr/bin/printf".into(), "ef".repeat(32))],
    }
}

/// A span with every field set.
fn full_span() -> SpanInfo {
    let mut span = span("printf '%s' \u{1f512}");
    span.parent_span = Some(SpanId::new());
    span.world_id = Some(WorldId::new());
    span.profile = Some("strict".into());
    span.mode = Mode::Enforce;
    span.agent_id = "claude".into();
    span.cwd = bytes(b"/srv/\xff").into();
    span.argv = vec!["printf".into(), "%s".into(), bytes(b"\xfe")];
    span.verdict = Some(Verdict::Isolate);
    span.rule = Some(RuleRef {
        list: "commands.isolated".into(),
        pattern: "printf *".into(),
        file: "builtin:default.yaml".into(),
        line: 31,
        reason: Some("test".into()),
        policy: None,
    });
    span.reason = Some("because".into());
    span.place = Some("isolated");
    span.degraded = vec!["limits: no cgroup".into()];
    span.replay = Some(replay());
    span.tool = Some(ToolUse {
        name: "claude:Write".into(),
        effects: vec!["write:/srv/x".into()],
    });
    span.client = Some(ClientUse {
        name: "claude".into(),
        session: Some("5f1c".into()),
        call: Some("toolu_1".into()),
        agent: Some("explore".into()),
    });
    span
}

fn full_completion() -> Completion {
    Completion {
        exit: Some(137),
        signal: Some(9),
        duration: Duration::from_micros(1_234_567),
        used: Some(Used {
            cpu: Duration::from_micros(2_345),
            memory: Some(4096),
        }),
        enforced: Some(Enforced {
            level: Level::Landlock,
            fs: "landlock".into(),
            net: "none".into(),
            exec: "guard".into(),
            limits: "rlimits".into(),
            degraded: vec!["overlay: no user namespaces".into()],
        }),
        scopes_used: vec!["tcp:example.com:443".into(), bytes(b"fs.write:/srv/\xff")],
        net: vec![NetUse {
            host: "example.com".into(),
            port: 443,
            tx: 1,
            rx: 2,
            refused: 3,
        }],
        fs_diff: Some(FsDiff {
            root: "/srv".into(),
            writes: vec![bytes(b"/srv/\xff").into()],
            mods: vec!["/srv/a".into()],
            deletes: vec!["/srv/b".into()],
            created_dirs: vec!["/srv/c".into()],
            truncated: true,
            tree_hash: Some("hash".into()),
            summary: Some("4 changes".into()),
            strategy: "overlay".into(),
        }),
        output: Output::Recorded {
            stdout: Some(Stream {
                digest: "ab".repeat(32),
                bytes: 7,
                via: Some(Via::Pipe),
                copy: Some(b"out\xff".to_vec()),
            }),
            stderr: Some(Stream {
                digest: "cd".repeat(32),
                ..Stream::default()
            }),
            merged: true,
        },
    }
}

fn line(event: Event<'_>) -> Vec<u8> {
    event.line(&Redactor::default(), None).unwrap()
}

#[test]
fn every_event_is_valid_and_known_to_the_reader() {
    let full = full_span();
    let plain = span("ls");
    let (done, nothing) = (full_completion(), Completion::default());
    let approval = Approval {
        answer: Answer::Session,
        pattern: Some("git push *".into()),
        remembered: true,
    };
    let loaded = PolicyReload {
        file: "policies/default.yaml".into(),
        policy_hash: Some("ab".repeat(32)),
        error: None,
    };
    let kept = PolicyReload {
        policy_hash: None,
        error: Some("line 3: unknown key".into()),
        ..loaded.clone()
    };
    let limit = RateLimit {
        limit: "net.egress_budget.total_bytes".into(),
        bytes: 1,
        used: 2,
        total: 3,
    };
    let attempt = NetAttempt {
        host: "b.test".into(),
        port: 443,
        why: "not-allowed".into(),
        program: Some(OsString::from_vec(b"/bin/\xff".to_vec())),
        pid: Some(7),
    };
    let unknown = NetAttempt {
        program: None,
        pid: None,
        ..attempt.clone()
    };
    let world = WorldEvent {
        action: "applied".into(),
        detail: Some("4 files".into()),
        enforced: done.enforced.clone(),
        fs_diff: done.fs_diff.clone(),
    };
    let agent = AgentEvent {
        action: "answered".into(),
        provider: Some("mock".into()),
        model: Some("m-1".into()),
        tokens: Some(Tokens {
            input: 3,
            output: 4,
            ..Tokens::default()
        }),
        ..AgentEvent::default()
    };
    let bare_agent = AgentEvent {
        action: "started".into(),
        ..AgentEvent::default()
    };
    let bare_world = WorldEvent {
        action: "started".into(),
        ..WorldEvent::default()
    };
    let prompt = AgentEvent {
        action: "prompt".into(),
        detail: Some("do it".into()),
        ..AgentEvent::default()
    };
    for span in [&full, &plain] {
        for event in [
            Event::command_start(span),
            Event::command_complete(span, &done),
            Event::command_complete(span, &nothing),
            Event::builtin_command(span, &nothing),
            Event::policy_violation(span, Outcome::Deny),
            Event::policy_violation(span, Outcome::WouldDeny),
            Event::policy_violation(span, Outcome::WouldAsk),
            Event::net_refusal(span, Outcome::WouldDeny, &attempt),
            Event::net_refusal(span, Outcome::Deny, &unknown),
            Event::approval(span, &approval),
            Event::policy_reload(span, &loaded),
            Event::policy_reload(span, &kept),
            Event::rate_limit(span, &limit),
            Event::world_event(span, &world),
            Event::world_event(span, &bare_world),
            Event::agent_event(span, &prompt),
            Event::agent_event(span, &AgentEvent::default()),
            Event::agent_event(span, &agent),
            Event::agent_event(span, &bare_agent),
        ] {
            let line = line(event);
            assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1);
            check(&line);
            let record = Record::parse(&line).unwrap();
            assert_eq!(record.span.event_type, event.kind());
            assert_eq!(record.span.span_id, span.span_id.to_string());
            let counted = record.span.tokens.is_some();
            assert_eq!(counted, record.span.model.as_deref() == Some("m-1"));
            assert!(!counted || record.span.tokens == agent.tokens);
        }
    }
}

#[test]
fn an_attempt_is_read_as_it_was_written() {
    let attempt = NetAttempt {
        host: "b.test".into(),
        port: 0,
        why: "not-allowed".into(),
        program: Some(OsString::from_vec(b"/bin/\xff".to_vec())),
        pid: Some(7),
    };
    let info = full_span();
    let line = line(Event::net_refusal(&info, Outcome::Deny, &attempt));
    let record = Record::parse(&line).unwrap();
    assert_eq!(record.span.outcome.as_deref(), Some("deny"));
    assert_eq!(record.span.attempt, Some(attempt));
}

#[test]
fn what_is_read_is_what_was_written() {
    let (info, done) = (full_span(), full_completion());
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(1_772_368_496_789);
    let line = line(Event::command_complete(&info, &done).at(at));
    let record = Record::parse(&line).unwrap();
    let span = &record.span;
    assert_eq!(span.v, 1);
    assert_eq!(span.ts, "2026-03-01T12:34:56.789Z");
    assert_eq!(span.time(), Some(at));
    assert_eq!(span.session_id, info.session_id.to_string());
    assert_eq!(span.parent_span, info.parent_span.map(|id| id.to_string()));
    assert_eq!(span.world_id, info.world_id.map(|id| id.to_string()));
    assert_eq!(span.component, "shell");
    assert_eq!(span.pid, Some(std::process::id()));
    assert_eq!(span.agent_id.as_deref(), Some("claude"));
    assert_eq!(span.profile.as_deref(), Some("strict"));
    assert_eq!(span.mode.as_deref(), Some("enforce"));
    assert_eq!(span.cwd, Some(info.cwd.clone()));
    assert_eq!(span.cmd, Some(info.cmd.clone()));
    assert_eq!(span.argv, Some(info.argv.clone()));
    assert_eq!(span.verdict.as_deref(), Some("isolate"));
    assert_eq!(span.rule, info.rule);
    assert_eq!(span.degraded, info.degraded);
    assert_eq!((span.exit, span.signal), (Some(137), Some(9)));
    assert_eq!(span.duration_ms, Some(1234.567));
    assert_eq!((span.cpu_ms, span.memory_peak), (Some(2.345), Some(4096)));
    assert_eq!(span.enforced, done.enforced);
    assert_eq!(span.scopes_used, done.scopes_used);
    assert_eq!(span.net, done.net);
    assert_eq!(span.fs_diff, done.fs_diff);
    let stdout = span.output.as_ref().unwrap().stdout.as_ref().unwrap();
    assert_eq!(stdout.copy, Some(bytes(b"out\xff")));
    let paths: Vec<PathBuf> = span.paths().map(PathBuf::from).collect();
    assert_eq!(paths.len(), 5);
    assert!(span.hosts().all(|host| host == "example.com"));

    assert_eq!(span.tool.as_deref(), Some("claude:Write"));
    assert_eq!(span.effects, ["write:/srv/x"]);
    assert_eq!(span.client.name, "claude");
    assert_eq!(span.client.call.as_deref(), Some("toolu_1"));

    let context = record.replay_context().unwrap();
    assert_eq!(context.path, Some("/usr/bin:/bin".into()));
    let names: Vec<&String> = context.env.keys().collect();
    assert_eq!(names, ["LANG", "PATH"]);
    assert_eq!(context.umask, Some(0o022));
    assert_eq!(context.locale, Some("C.UTF-8".into()));
    assert_eq!(context.base_tree.as_deref(), Some("tree"));
    let stdin = context.stdin.unwrap();
    assert_eq!((stdin.kind.as_str(), stdin.bytes), ("content", Some(3)));
    assert_eq!(context.digest, None);
}

#[test]
fn secrets_reach_no_part_of_the_line() {
    let secret = "hunter2hunter2";
    let mut span = span(&format!(
        "curl -u me:{secret} https://u:{secret}@example.com"
    ));
    span.argv = vec!["x".into(), "--password".into(), secret.into()];
    span.reason = Some(format!("curl --token {secret} is not allowed"));
    let mut replay = replay();
    replay
        .env
        .stored
        .push(("TMPDIR".into(), format!("https://u:{secret}@h").into()));
    span.replay = Some(replay);
    let mut done = full_completion();
    if let Output::Recorded {
        stdout: Some(stdout),
        ..
    } = &mut done.output
    {
        stdout.copy = Some(format!("Authorization: Bearer {secret}\n").into_bytes());
    }
    let approval = Approval {
        answer: Answer::Always,
        pattern: Some(format!("curl -u me:{secret}")),
        remembered: false,
    };
    let world = WorldEvent {
        action: "failed".into(),
        detail: Some(format!("PASSWORD={secret}")),
        ..WorldEvent::default()
    };
    let agent = AgentEvent {
        action: "refused".into(),
        detail: Some(format!("PASSWORD={secret}")),
        ..AgentEvent::default()
    };
    for event in [
        Event::command_complete(&span, &done),
        Event::approval(&span, &approval),
        Event::world_event(&span, &world),
        Event::agent_event(&span, &agent),
    ] {
        let line = String::from_utf8(line(event)).unwrap();
        assert!(!line.contains(secret), "{line}");
        assert!(line.contains(MARK));
        assert!(Record::parse(line.as_bytes()).unwrap().span.redacted);
        check(line.as_bytes());
    }
}

#[test]
fn a_secret_in_the_output_does_not_forbid_a_replay() {
    let mut done = full_completion();
    if let Output::Recorded {
        stdout: Some(stdout),
        ..
    } = &mut done.output
    {
        stdout.copy = Some(b"password: hunter2".to_vec());
    }
    let span = full_span();
    let record = Record::parse(&line(Event::command_complete(&span, &done))).unwrap();
    assert!(!record.span.redacted);
}

#[test]
fn a_signed_line_shows_every_change() {
    let temp = tempfile::tempdir().unwrap();
    let key = Key::load(temp.path()).unwrap();
    let (span, done) = (full_span(), full_completion());
    let event = Event::command_complete(&span, &done);
    let line = event.line(&Redactor::default(), Some(&key)).unwrap();
    check(&line);
    let record = Record::parse(&line).unwrap();
    assert_eq!(key.verify(&record.raw), Authenticity::Genuine);
    assert!(record.replay_context().unwrap().digest.is_some());

    let text = String::from_utf8(record.raw.clone()).unwrap();
    for (from, to) in [
        ("printf", "rm -rf"),
        ("\"exit\":137", "\"exit\":0"),
        ("/usr/bin:", "/tmp/bin:"),
        ("{\"v\":1,", "{\"v\":1, "),
        ("\"digest\"", "\"digesT\""),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text);
        assert_ne!(
            key.verify(changed.as_bytes()),
            Authenticity::Genuine,
            "{to}"
        );
    }
    // A second command hidden behind the first: the last of two equal keys would win.
    let doubled = text.replacen(",\"argv\":", ",\"argv\":[\"id\"],\"argv\":", 1);
    assert_eq!(key.verify(doubled.as_bytes()), Authenticity::Altered);
    assert_eq!(key.verify(b""), Authenticity::Unsigned);
}

#[test]
fn a_command_that_is_too_long_is_shortened_and_says_so() {
    let mut span = span("x");
    span.argv = vec![bytes(&vec![1; MAX_LINE / 6])];
    span.cmd = bytes(&vec![b'a'; MAX_LINE / 6]);
    let line = line(Event::command_start(&span));
    assert!(line.len() < 100_000);
    check(&line);
    let read = Record::parse(&line).unwrap().span;
    assert!(read.shortened);
    assert_eq!(read.argv, None);

    span.degraded = vec!["x".repeat(MAX_LINE)];
    let event = Event::command_start(&span);
    let error = event.line(&Redactor::default(), None).unwrap_err();
    assert!(matches!(error, substrate_trace::Error::TooLong { .. }));
}

#[test]
fn older_and_newer_lines_are_understood() {
    let old = br#"{"ts":"2024-01-01T00:00:00Z","event_type":"command_complete","session_id":"8c1f0d52-5bd8-4b0b-9b0b-111111111111","component":"shell","cmd":"ls","exit":0}"#;
    let span = Record::parse(old).unwrap().span;
    assert_eq!((span.v, span.exit), (0, Some(0)));
    assert!(span.time().is_some());
    let new = br#"{"v":2,"ts":"2030-01-01T00:00:00.000Z","event_type":"command_dreamt","span_id":"spn_x","fs_diff":{"root":"/","moves":[1]},"enforced":{"level":"microvm"},"later":{"a":[1]},"scopes_used":null,"session_id":null}"#;
    let span = Record::parse(new).unwrap().span;
    assert_eq!(span.enforced.unwrap().level, Level::None);
    for foreign in [
        &b"{}"[..],
        b"[1]",
        b"\"x\"",
        b"{\"ts\":1,\"event_type\":\"x\"}",
        b"\xff\xfe",
        b"",
    ] {
        assert!(Record::parse(foreign).is_none());
    }
}

/// The lines of the documentation are real lines.
#[test]
fn documented_lines_are_valid() {
    let text = include_str!("../../../docs/trace.md");
    let mut kinds = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("{\"v\":1")) {
        check(line.as_bytes());
        let record = Record::parse(line.as_bytes()).unwrap();
        *kinds.entry(record.span.event_type).or_insert(0) += 1;
    }
    for kind in [
        "command_start",
        "command_complete",
        "policy_violation",
        "approval",
    ] {
        assert!(kinds.contains_key(kind), "{kind}");
    }
    let properties = schema();
    for field in properties["properties"].as_object().unwrap().keys() {
        assert!(
            text.contains(&format!("`{field}`")),
            "{field} is not documented"
        );
    }
}

proptest! {
    #[test]
    fn commands_and_paths_of_any_bytes_come_back(
        cmd: Vec<u8>,
        argv: Vec<Vec<u8>>,
        cwd: Vec<u8>,
        wrote: Vec<u8>,
    ) {
        let mut info = span("");
        info.cmd = bytes(&cmd);
        info.argv = argv.iter().map(|word| bytes(word)).collect();
        info.cwd = bytes(&cwd).into();
        let mut done = Completion::default();
        done.scopes_used.push(bytes(&wrote));
        done.fs_diff = Some(FsDiff { writes: vec![bytes(&wrote).into()], ..FsDiff::default() });
        let line = line(Event::command_complete(&info, &done));
        let read = Record::parse(&line).unwrap().span;
        prop_assert_eq!(read.cwd, Some(info.cwd.clone()));
        prop_assert_eq!(read.scopes_used, done.scopes_used);
        prop_assert_eq!(read.fs_diff, done.fs_diff);
        if !read.redacted {
            prop_assert_eq!(read.cmd.unwrap_or_default(), info.cmd);
            prop_assert_eq!(read.argv.unwrap_or_default(), info.argv);
        }
    }
}
