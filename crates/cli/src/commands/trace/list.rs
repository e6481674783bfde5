//! `trace list`, `grep`, `violations` and `tail`: one line a span, or an event.

use crate::asker::Asker;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use substrate_sys::process_group;
use substrate_trace::read::{Filter, Follow, Order, Reader, Record, Span};

use super::look::{self, Look, Tint, clean};
use super::pages::{Pages, Wanted};
use super::{raw, tell_skipped};
use crate::failure::Failure;
use crate::out;

/// Spans that fit: all of them oldest first, or the newest so many.
pub fn spans(
    asker: &Asker,
    reader: &Reader,
    mut filter: Filter,
    last: Option<usize>,
    json: bool,
) -> Result<(), Failure> {
    filter.ran = true;
    filter.event_types = ["command_complete", "builtin_command", "policy_violation"]
        .map(str::to_owned)
        .to_vec();
    if last.is_some() {
        // Only on the way back it is known whether a command that began has ended.
        filter.event_types.push("command_start".to_owned());
    }
    let look = Look::new(asker);
    let mut ended = HashSet::new();
    let row = |record: &Record| match json {
        true => raw(record),
        false => look.row(&record.span).into_bytes(),
    };
    let head = (!json).then(|| look.head());
    print(
        Pages::new(asker, &look),
        reader,
        &filter,
        last,
        head,
        |span| is_row(span, &mut ended),
        row,
    )
}

/// Whether an event stands for its span. Every span has one that does.
fn is_row(span: &Span, ended: &mut HashSet<String>) -> bool {
    match span.event_type.as_str() {
        "command_complete" => {
            ended.insert(span.span_id.clone());
            true
        }
        "command_start" => !ended.remove(&span.span_id),
        // What ran all the same has an event of its own.
        "policy_violation" => refused(span),
        _ => true,
    }
}

/// Whether a violation kept its command from running.
pub fn refused(span: &Span) -> bool {
    span.outcome.as_deref() == Some("deny") && span.place.is_none()
}

/// What the policy refused or would have refused.
pub fn violations(
    asker: &Asker,
    reader: &Reader,
    mut filter: Filter,
    last: Option<usize>,
    json: bool,
) -> Result<(), Failure> {
    filter.event_types = ["policy_violation", "rate_limit"]
        .map(str::to_owned)
        .to_vec();
    let look = Look::new(asker);
    let row = |record: &Record| match json {
        true => raw(record),
        false => violation(&look, &record.span).into_bytes(),
    };
    let pages = Pages::new(asker, &look);
    print(pages, reader, &filter, last, None, |_| true, row)
}

fn violation(look: &Look, span: &Span) -> String {
    let (verdict, tint) = match span.event_type.as_str() {
        "rate_limit" => ("limit".to_owned(), Tint::Odd),
        _ => look::verdict(span),
    };
    let mut text = format!(
        "{}  {}  {}  {}\n",
        look.tint(Tint::Dim, look::short(&span.span_id)),
        look.fit(&look.age(span.time()), 8),
        look.tint(tint, &look.fit(&verdict, 10)),
        look::command(span)
    );
    let mut why = Vec::new();
    if let Some(rule) = &span.rule {
        why.push(format!("{} {}: {}", rule.list, rule, rule.pattern));
    }
    why.extend(span.reason.clone());
    why.extend(span.limit.clone());
    if !why.is_empty() {
        let why = clean(OsStr::new(&why.join("; ")));
        text.push_str(&format!("{:14}{}\n", "", look.tint(Tint::Dim, &why)));
    }
    text
}

/// The newest events, and with `follow` those that come.
pub fn tail(
    asker: &Asker,
    home: &Path,
    reader: &Reader,
    filter: &Filter,
    last: usize,
    follow: bool,
    json: bool,
) -> Result<(), Failure> {
    let look = Look::new(asker);
    let mut live = Follow::from_end(home, filter)?;
    let row = |record: &Record| match json {
        true => raw(record),
        false => event(&look, &record.span).into_bytes(),
    };
    for record in newest(reader, filter, last, |_| true)? {
        out::write(&row(&record))?;
    }
    if !follow {
        return Ok(());
    }
    while !process_group::interrupted() {
        for record in live.poll()? {
            match out::try_write(&row(&record)) {
                Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
                written => written?,
            }
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// One event in one line: the time of day, what happened, to what.
fn event(look: &Look, span: &Span) -> String {
    let time = look::clock(span);
    let (what, tint) = match span.event_type.as_str() {
        "command_start" => ("start".to_owned(), Tint::Calm),
        "command_complete" => {
            let (ended, tint) = look::ended(span);
            (format!("end {ended}"), tint)
        }
        "builtin_command" => ("builtin".to_owned(), Tint::Dim),
        "policy_violation" => look::verdict(span),
        "approval" => {
            let answer = span.outcome.as_deref().unwrap_or("");
            (format!("asked: {answer}"), Tint::Odd)
        }
        "policy_reload" => ("policy".to_owned(), Tint::Odd),
        "rate_limit" => ("limit".to_owned(), Tint::Odd),
        "world_event" => {
            let action = span.action.as_deref().unwrap_or("");
            (format!("world: {action}"), Tint::Calm)
        }
        "agent_event" => {
            let action = span.action.as_deref().unwrap_or("");
            (format!("agent: {action}"), Tint::Calm)
        }
        other => (other.to_owned(), Tint::Dim),
    };
    let what = clean(OsStr::new(&what));
    let more = [&span.detail, &span.error, &span.limit, &span.model];
    let more = more.into_iter().flatten().next().map(String::as_str);
    let mut text = look::command(span);
    if let Some(more) = more {
        text = format!("{text} ({})", clean(OsStr::new(more)));
    }
    if let Some(width) = look.width {
        text = look.cut(&text, width.saturating_sub(42).max(8));
    }
    format!(
        "{}  {}  {}  {text}\n",
        time,
        look.tint(Tint::Dim, &look.fit(look::short(&span.span_id), 12)),
        look.tint(tint, &look.fit(&what, 14)),
    )
}

/// Prints what fits: all of it as it is found, or the newest so many.
fn print(
    mut pages: Pages,
    reader: &Reader,
    filter: &Filter,
    last: Option<usize>,
    head: Option<String>,
    mut wanted: impl FnMut(&Span) -> bool,
    row: impl Fn(&Record) -> Vec<u8>,
) -> Result<(), Failure> {
    let mut head = head;
    let mut put = |record: &Record| {
        // A head without a table says nothing.
        if let Some(head) = head.take() {
            pages.write(head.as_bytes())?;
        }
        pages.write(&row(record))
    };
    match last {
        Some(last) => {
            for record in newest(reader, filter, last, wanted)? {
                if put(&record)? == Wanted::Enough {
                    break;
                }
            }
        }
        None => {
            let mut records = reader.records(Order::OldestFirst, filter);
            for record in records.by_ref() {
                let record = record?;
                if wanted(&record.span) && put(&record)? == Wanted::Enough {
                    break;
                }
            }
            tell_skipped(records.skipped());
        }
    }
    Ok(pages.finish()?)
}

/// The newest records that fit, oldest of them first.
fn newest(
    reader: &Reader,
    filter: &Filter,
    last: usize,
    mut wanted: impl FnMut(&Span) -> bool,
) -> Result<Vec<Record>, Failure> {
    let mut found = Vec::new();
    let mut records = reader.records(Order::NewestFirst, filter);
    while found.len() < last {
        match records.next() {
            Some(record) => {
                let record = record?;
                if wanted(&record.span) {
                    found.push(record);
                }
            }
            None => break,
        }
    }
    tell_skipped(records.skipped());
    found.reverse();
    Ok(found)
}
