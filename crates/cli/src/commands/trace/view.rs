//! `trace view`: spans as one page for a browser, with nothing in it that comes from elsewhere.

use crate::asker::Asker;
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use substrate_text::base64;
use substrate_trace::read::{Filter, Order, Reader, Record};
use substrate_trace::sha256_hex;

use super::tell_skipped;
use crate::failure::Failure;
use crate::out;
use crate::trace_args::ViewArgs;

const PAGE: &str = include_str!("view.html");
const STYLE: &str = include_str!("view.css");
const SCRIPT: &str = include_str!("view.js");

/// How many events of older spans are passed over in search of the beginnings of those shown.
const BEYOND: usize = 1000;

/// Writes the page, and opens it when asked to.
pub fn run(
    asker: &Asker,
    home: &Path,
    reader: &Reader,
    filter: Filter,
    args: &ViewArgs,
) -> Result<(), Failure> {
    let spans = spans(reader, filter, args.last)?;
    let page = page(&spans);
    let path = match &args.output {
        Some(path) if path.as_os_str() == "-" => return Ok(out::write(page.as_bytes())?),
        Some(path) => asker.path(path),
        None => home.join("trace.html"),
    };
    write(&path, page.as_bytes()).map_err(|error| Failure::File {
        what: format!("cannot write {}", path.display()),
        error,
    })?;
    out::print(&format!("{}\n", path.display()))?;
    match args.open {
        true => open(asker, &path),
        false => Ok(()),
    }
}

/// The newest spans, oldest first; each is the event that tells most, with the others below it.
fn spans(reader: &Reader, filter: Filter, last: usize) -> Result<Vec<Value>, Failure> {
    let mut spans: Vec<Value> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut beyond = 0;
    let mut records = reader.records(Order::NewestFirst, &filter);
    for record in records.by_ref() {
        let record = record?;
        let id = record.span.span_id.clone();
        let room = spans.len() < last;
        match places.get(&id).and_then(|&at| spans.get_mut(at)) {
            Some(span) => add(span, &record),
            None if room => {
                if !id.is_empty() {
                    places.insert(id, spans.len());
                }
                spans.push(value(&record));
            }
            None => beyond += 1,
        }
        if beyond > BEYOND {
            break;
        }
    }
    tell_skipped(records.skipped());
    spans.reverse();
    Ok(spans)
}

/// What the page shows of an event; what only a replay needs stays out.
fn value(record: &Record) -> Value {
    let mut value: Value = serde_json::from_slice(&record.raw).unwrap_or(Value::Null);
    if let Some(object) = value.as_object_mut() {
        object.remove("replay_context");
    }
    value
}

/// Adds an older event of the same span.
fn add(span: &mut Value, record: &Record) {
    let mut older = value(record);
    let rank = |event: &Value| match event["event_type"].as_str() {
        Some("command_complete" | "builtin_command") => 2,
        Some("policy_violation") => 1,
        _ => 0,
    };
    if rank(&older) > rank(span) {
        std::mem::swap(span, &mut older);
        if let (Some(events), Some(object)) = (
            older
                .as_object_mut()
                .and_then(|older| older.remove("events")),
            span.as_object_mut(),
        ) {
            object.insert("events".to_owned(), events);
        }
    }
    let Some(object) = span.as_object_mut() else {
        return;
    };
    let event = json!({
        "ts": older["ts"], "event_type": older["event_type"], "outcome": older["outcome"],
        "reason": older["reason"], "action": older["action"], "detail": older["detail"],
    });
    let events = object
        .entry("events")
        .or_insert_with(|| Value::Array(Vec::new()));
    if let Some(events) = events.as_array_mut() {
        events.insert(0, event);
    }
}

/// The page. Its policy for content lets nothing run or load but what is written here, by hash.
fn page(spans: &[Value]) -> String {
    // A command may hold `</script>`; in JSON every `<` can be written otherwise.
    let data = Value::from(spans)
        .to_string()
        .replace('<', "\\u003c")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029");
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'",
        source(SCRIPT),
        source(STYLE)
    );
    // The data goes in last, so that nothing in it is taken for a place to fill in.
    let (head, tail) = PAGE.split_once("{{data}}").unwrap_or((PAGE, ""));
    let fill = |part: &str| {
        part.replace("{{policy}}", &policy)
            .replace("{{style}}", STYLE)
            .replace("{{script}}", SCRIPT)
    };
    fill(head) + &data + &fill(tail)
}

/// A text as a source in a content security policy.
fn source(text: &str) -> String {
    let hex = sha256_hex(text.as_bytes());
    let bytes: Vec<u8> = (0..hex.len())
        .step_by(2)
        .filter_map(|at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok())
        .collect();
    format!("sha256-{}", base64::encode(&bytes))
}

/// Replaces the file; only its owner can read it.
fn write(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let aside = PathBuf::from(name);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&aside)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| fs::rename(&aside, path));
    if written.is_err() {
        let _ = fs::remove_file(&aside);
    }
    written
}

/// Shows the page to a person. Whoever runs below a session has no say in what program that starts.
fn open(asker: &Asker, path: &Path) -> Result<(), Failure> {
    if !asker.free() {
        return Err(Failure::Refused(
            "inside a session no browser is started; open the file from outside".to_owned(),
        ));
    }
    let started = Command::new("xdg-open")
        .arg(path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    match started {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::File {
            what: "cannot start xdg-open; open the file with your browser".to_owned(),
            error,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_spells_out_what_a_terminal_does() {
        let class: String = substrate_text::HIDDEN
            .iter()
            .map(|(from, to)| match from == to {
                true => format!("\\u{{{from:x}}}"),
                false => format!("\\u{{{from:x}}}-\\u{{{to:x}}}"),
            })
            .collect();
        assert!(SCRIPT.contains(&format!("/[{class}]/gu")), "{class}");
    }

    #[test]
    fn a_command_cannot_leave_the_data() {
        let text = page(&[json!({"cmd": "</script><script>alert(1)</script>{{script}}"})]);
        assert_eq!(text.matches("</script>").count(), 2, "data and program");
        assert!(!text.contains("<script>alert"));
        assert!(text.contains("\\u003c/script>\\u003cscript>alert(1)\\u003c/script>{{script}}"));
    }

    #[test]
    fn nothing_comes_from_elsewhere() {
        let text = page(&[]);
        assert!(text.contains("default-src 'none'; script-src 'sha256-"));
        for elsewhere in ["http:", "https:", " src=", "@import", "url("] {
            assert!(!text.contains(elsewhere), "{elsewhere}");
        }
    }
}
