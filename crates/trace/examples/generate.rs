//! Writes a trace of many plausible spans for measurements: `generate HOME SPANS`.

use std::error::Error;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use substrate_trace::{
    Completion, Component, Environment, Event, FsDiff, Redactor, ReplayContext, Retention,
    SessionId, SpanInfo, Stdin, Verdict, Writer,
};

const COMMANDS: &[&[&str]] = &[
    &["git", "status", "-sb"],
    &["cargo", "test", "--workspace"],
    &["ls", "-la", "src"],
    &["grep", "-rn", "fn main", "crates"],
    &["make", "-j2", "all"],
    &["python3", "-m", "pytest", "-q"],
    &["npm", "run", "build"],
    &["sed", "-n", "1,40p", "README.md"],
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1);
    let home = PathBuf::from(args.next().ok_or("give a directory")?);
    let spans: u64 = match args.next() {
        Some(count) => count.to_string_lossy().parse()?,
        None => 1_000_000,
    };
    // One file, so that other programs can be measured on the same bytes.
    let retention = Retention {
        max_bytes: u64::MAX,
        files: 2,
    };
    let writer = Writer::open_with(&home, retention, Redactor::default())?;
    let vars = [
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("LANG", "C.UTF-8"),
        ("HOME", "/home/me"),
    ];
    let vars = vars.map(|(name, value)| (name.into(), value.into()));
    let session = SessionId::new();
    let mut span = SpanInfo::new(Component::Shell, session, None);
    span.policy_id = "default".into();
    span.verdict = Some(Verdict::Allow);
    span.place = Some("direct");
    span.replay = Some(ReplayContext {
        env: Environment::record(vars, writer.key().ok()),
        umask: 0o022,
        policy_id: "default".into(),
        stdin: Stdin::Tty,
        ..ReplayContext::default()
    });
    let begin = SystemTime::now() - Duration::from_secs(spans);
    for number in 0..spans {
        let command = COMMANDS[(number % COMMANDS.len() as u64) as usize];
        span.span_id = substrate_trace::SpanId::new();
        span.cwd = format!("/srv/project-{}", number % 17).into();
        span.argv = command.iter().map(Into::into).collect();
        span.argv.push(format!("--run={number}").into());
        span.cmd = substrate_text::command_line(&span.argv);
        let done = Completion {
            exit: Some(i32::from(number % 10 == 3)),
            duration: Duration::from_micros(number % 1_000_000),
            fs_diff: (number % 5 == 0).then(|| FsDiff {
                root: span.cwd.clone(),
                writes: vec![span.cwd.join(format!("out-{number}.o"))],
                strategy: "snapshot".into(),
                ..FsDiff::default()
            }),
            ..Completion::default()
        };
        let at = begin + Duration::from_secs(number);
        writer.write(&Event::command_complete(&span, &done).at(at))?;
    }
    Ok(())
}
