//! `substrate ps` and `substrate stop`: what runs now, in which world, for whom, and an end to it.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use substrate_broker::process::read_whole;
use substrate_sys::pidfd;
use substrate_sys::process_group::{readable, signal};
use substrate_trace::PARENT_SPAN_VAR;
use substrate_trace::read::{Filter, Order, Reader, Span};

use crate::asker::{Asker, Needs};
use crate::commands::daemon;
use crate::commands::trace::look::{self, Look, Tint, clean};
use crate::failure::Failure;
use crate::out;

/// Between the request to end and the end.
const GRACE: Duration = Duration::from_secs(3);

/// Lists what runs.
pub fn ps(asker: &Asker, as_json: bool) -> Result<(), Failure> {
    let home = asker.home()?;
    let spans = running(&Reader::open(&home.path)?)?;
    if as_json {
        let rows: Vec<Value> = spans.iter().map(row).collect();
        return Ok(out::print(&format!("{}\n", Value::Array(rows)))?);
    }
    let look = Look::new(asker);
    let head = format!(
        "{:<12}  {:>7}  {:<9}  {:<10}  {:<10}  {:<12}  COMMAND",
        "SPAN", "PID", "SINCE", "AGENT", "POLICY", "WORLD"
    );
    let mut text = look.tint(Tint::Dim, &head) + "\n";
    for span in &spans {
        let name = |text: Option<&str>| clean(std::ffi::OsStr::new(text.unwrap_or("-")));
        let world = span.world_id.as_deref().map(look::short);
        text.push_str(&format!(
            "{:<12}  {:>7}  {:<9}  {}  {}  {:<12}  {}\n",
            look::short(&span.span_id),
            span.pid.unwrap_or_default(),
            look.age(span.time()),
            look.fit(&name(span.agent_id.as_deref()), 10),
            look.fit(&name(span.policy_id.as_deref()), 10),
            name(world.or(span.place.as_deref())),
            look::command(span),
        ));
    }
    if spans.is_empty() {
        text = "nothing runs under Substrate now\n".to_owned();
    }
    if let Some(status) = daemon::ask(&home.path)?.filter(|status| !status.worlds.is_empty()) {
        text.push_str(&format!(
            "kept by the service:\n{}",
            daemon::world_lines(&status)
        ));
    }
    Ok(out::print(&text)?)
}

fn row(span: &Span) -> Value {
    json!({
        "span_id": span.span_id,
        "session_id": span.session_id,
        "pid": span.pid,
        "since": span.ts,
        "agent_id": span.agent_id,
        "policy_id": span.policy_id,
        "mode": span.mode,
        "place": span.place,
        "world_id": span.world_id,
        "cwd": span.cwd.as_ref().map(|cwd| cwd.to_string_lossy()),
        "cmd": span.cmd.as_ref().map(|cmd| cmd.to_string_lossy()),
    })
}

/// Spans that began, have not ended, and whose process is still there; oldest first.
fn running(reader: &Reader) -> Result<Vec<Span>, Failure> {
    let filter = Filter {
        event_types: ["command_start", "command_complete"]
            .map(str::to_owned)
            .to_vec(),
        ..Filter::default()
    };
    let mut begun: Vec<Span> = Vec::new();
    let mut ended = HashSet::new();
    for record in reader.records(Order::OldestFirst, &filter) {
        let span = record?.span;
        match span.event_type.as_str() {
            "command_start" => begun.push(span),
            _ => {
                ended.insert(span.span_id);
            }
        }
    }
    begun.retain(|span| !ended.contains(&span.span_id) && look::is_there(span));
    Ok(begun)
}

/// Ends spans.
pub fn stop(asker: &Asker, names: &[String], all: bool) -> Result<(), Failure> {
    asker.require(Needs::Outside { yes: true })?;
    let home = asker.home()?;
    let spans = running(&Reader::open(&home.path)?)?;
    let named = |span: &&Span| {
        all || names.iter().any(|name| {
            !name.is_empty()
                && (span.span_id.ends_with(name.as_str())
                    || span.pid.is_some_and(|pid| *name == pid.to_string()))
        })
    };
    let wanted: Vec<&Span> = spans.iter().filter(named).collect();
    if wanted.is_empty() {
        let text = "nothing of that name runs; `substrate ps` shows what does".to_owned();
        return Err(Failure::Missing(text));
    }
    let mut text = String::new();
    for span in wanted {
        let left = end(span);
        let what = match left {
            0 => "stopped",
            _ => "still there",
        };
        let command = look::command(span);
        text.push_str(&format!(
            "{what} {}  {command}\n",
            look::short(&span.span_id)
        ));
    }
    Ok(out::print(&text)?)
}

/// Asks everything that a span has started to end, and ends what does not; how much is left then.
fn end(span: &Span) -> usize {
    let mut all = started_by(span);
    if all.is_empty()
        && let Some(pid) = span.pid.and_then(|pid| i32::try_from(pid).ok())
        && let Ok(process) = pidfd::open(pid)
        && look::is_there(span)
    {
        // It has started nothing that can be told: it is asked itself.
        all.push(process);
    }
    let began = SystemTime::now();
    for process in &all {
        let _ = pidfd::send(process.as_fd(), signal::TERM);
        let _ = pidfd::send(process.as_fd(), signal::CONT);
    }
    let left = |all: &[OwnedFd]| {
        let alive = all
            .iter()
            .filter(|process| pidfd::is_alive(process.as_fd()));
        alive.count()
    };
    while left(&all) > 0 && began.elapsed().is_ok_and(|passed| passed < GRACE) {
        std::thread::sleep(Duration::from_millis(20));
    }
    // What it has started meanwhile goes too.
    all.extend(started_by(span));
    for process in &all {
        let _ = pidfd::kill(process.as_fd());
        let _ = readable(&[process.as_fd()], Some(Duration::from_secs(1)));
    }
    left(&all)
}

/// The processes whose first environment says that this span has started them.
fn started_by(span: &Span) -> Vec<OwnedFd> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let own = std::process::id();
    let mut found: HashMap<i32, OwnedFd> = HashMap::new();
    for number in numbers.filter(|number| u32::try_from(*number) != Ok(own)) {
        // The descriptor first, so that what is read belongs to what is ended.
        let Ok(process) = pidfd::open(number) else {
            continue;
        };
        let environment = read_whole(&format!("/proc/{number}/environ")).unwrap_or_default();
        let value = environment.split(|byte| *byte == 0).find_map(|entry| {
            entry
                .strip_prefix(PARENT_SPAN_VAR.as_bytes())?
                .strip_prefix(b"=")
        });
        let is_ours = value.is_some_and(|value| value.ends_with(span.span_id.as_bytes()));
        if is_ours && !span.span_id.is_empty() {
            found.insert(number, process);
        }
    }
    found.into_values().collect()
}
