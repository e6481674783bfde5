//! `trace export`: spans for spreadsheets and for collectors of OpenTelemetry.

use std::ffi::OsStr;
use std::io::IsTerminal;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use substrate_text::visible;
use substrate_trace::read::{Filter, Order, Reader, Span};

use super::pages::{Pages, Wanted};
use super::{list, tell_skipped};
use crate::failure::Failure;
use crate::trace_args::Format;

const CSV_HEAD: &str = "ts,span_id,parent_span,session_id,agent_id,policy_id,verdict,outcome,place,exit,signal,duration_ms,cwd,cmd,files_changed,hosts\r\n";

/// Writes all spans that fit, oldest first.
pub fn run(reader: &Reader, mut filter: Filter, format: &Format) -> Result<(), Failure> {
    filter.ran = true;
    filter.event_types = ["command_complete", "builtin_command", "policy_violation"]
        .map(str::to_owned)
        .to_vec();
    // An export goes into a file or another program; nobody pages through it.
    let mut pages = Pages::unpaged();
    let otlp = format.otlp_json;
    let on_terminal = std::io::stdout().is_terminal();
    let head = match otlp {
        true => otlp_head(),
        false => CSV_HEAD.to_owned(),
    };
    pages.write(head.as_bytes())?;
    let mut first = true;
    let mut records = reader.records(Order::OldestFirst, &filter);
    for record in records.by_ref() {
        let span = record?.span;
        if span.event_type == "policy_violation" && !list::refused(&span) {
            continue;
        }
        let text = match (otlp, first) {
            (true, true) => otlp_span(&span).to_string(),
            (true, false) => format!(",{}", otlp_span(&span)),
            (false, _) => csv(&span, on_terminal),
        };
        first = false;
        if pages.write(text.as_bytes())? == Wanted::Enough {
            return Ok(());
        }
    }
    tell_skipped(records.skipped());
    if otlp {
        pages.write(b"]}]}]}\n")?;
    }
    Ok(pages.finish()?)
}

/// One line. A terminal would act on what programs read as it is.
fn csv(span: &Span, on_terminal: bool) -> String {
    let number = |value: Option<i32>| value.map(|value| value.to_string()).unwrap_or_default();
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let os = |value: Option<&OsStr>| value.unwrap_or_default().to_string_lossy().into_owned();
    let mut hosts: Vec<&str> = span.hosts().collect();
    hosts.sort_unstable();
    hosts.dedup();
    let changed = span.fs_diff.as_ref().map(|diff| {
        let kinds = [&diff.writes, &diff.mods, &diff.deletes, &diff.created_dirs];
        kinds.map(Vec::len).iter().sum::<usize>().to_string()
    });
    let fields = [
        span.ts.clone(),
        span.span_id.clone(),
        text(&span.parent_span),
        span.session_id.clone(),
        text(&span.agent_id),
        text(&span.policy_id),
        text(&span.verdict),
        text(&span.outcome),
        text(&span.place),
        number(span.exit),
        number(span.signal),
        span.duration_ms
            .map(|ms| ms.to_string())
            .unwrap_or_default(),
        os(span.cwd.as_ref().map(|cwd| cwd.as_os_str())),
        os(span.cmd.as_deref()),
        changed.unwrap_or_default(),
        hosts.join(" "),
    ];
    let shown = |field: String| match on_terminal {
        true => visible(field.as_bytes()),
        false => field,
    };
    fields.map(|field| quoted(&shown(field))).join(",") + "\r\n"
}

/// A field of RFC 4180. One that a spreadsheet would take for a formula gets a quote in front.
fn quoted(field: &str) -> String {
    let formula = field.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let field = match formula {
        true => format!("'{field}"),
        false => field.to_owned(),
    };
    match field.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field,
    }
}

fn otlp_head() -> String {
    let resource = json!({"attributes": [attribute("service.name", "substrate".into())]});
    let scope = json!({"name": "substrate", "version": env!("CARGO_PKG_VERSION")});
    format!(
        r#"{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{{"scope":{scope},"spans":["#
    )
}

fn otlp_span(span: &Span) -> Value {
    let end = span.time().unwrap_or(UNIX_EPOCH);
    let ms = span.duration_ms.unwrap_or(0.0).clamp(0.0, 1e12);
    let start = end - std::time::Duration::from_secs_f64(ms / 1000.0).min(since(end));
    let mut attributes = vec![attribute(
        "substrate.event",
        span.event_type.as_str().into(),
    )];
    let mut add = |name: &str, value: Option<Value>| {
        attributes.extend(value.map(|value| attribute(name, value)));
    };
    let lossy = |value: &OsStr| Value::from(value.to_string_lossy());
    let words = span.argv.as_ref().map(|argv| {
        let words: Vec<Value> = argv.iter().map(|word| lossy(word)).collect();
        Value::from(words)
    });
    add("process.command_line", span.cmd.as_deref().map(lossy));
    add("process.command_args", words);
    add("process.pid", span.pid.map(Value::from));
    add(
        "process.working_directory",
        span.cwd.as_ref().map(|cwd| lossy(cwd.as_os_str())),
    );
    add("process.exit.code", span.exit.map(Value::from));
    add("substrate.signal", span.signal.map(Value::from));
    add("substrate.agent", span.agent_id.clone().map(Value::from));
    add("substrate.policy", span.policy_id.clone().map(Value::from));
    add("substrate.verdict", span.verdict.clone().map(Value::from));
    add("substrate.outcome", span.outcome.clone().map(Value::from));
    add("substrate.place", span.place.clone().map(Value::from));
    add("substrate.world", span.world_id.clone().map(Value::from));
    let rule = span.rule.as_ref();
    add(
        "substrate.rule",
        rule.map(|rule| format!("{}: {rule}", rule.pattern).into()),
    );
    let scopes: Vec<Value> = span.scopes_used.iter().map(|scope| lossy(scope)).collect();
    add(
        "substrate.scopes",
        (!scopes.is_empty()).then(|| Value::from(scopes)),
    );
    let failed = span.exit.is_some_and(|exit| exit != 0) || span.outcome.is_some();
    let name = super::stats::program(span);
    json!({
        "traceId": hex_id(&span.session_id, 32),
        "spanId": hex_id(&span.span_id, 16),
        "parentSpanId": span.parent_span.as_deref().map(|id| hex_id(id, 16)).unwrap_or_default(),
        "name": name,
        "kind": 1,
        "startTimeUnixNano": since(start).as_nanos().to_string(),
        "endTimeUnixNano": since(end).as_nanos().to_string(),
        "attributes": attributes,
        "status": {"code": if failed { 2 } else { 1 }},
    })
}

fn since(at: SystemTime) -> std::time::Duration {
    at.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The last digits of an id: they are the random ones, and OpenTelemetry has fewer.
fn hex_id(id: &str, digits: usize) -> String {
    let bare = id.split_once('_').map_or(id, |(_, bare)| bare);
    let hex: String = bare.chars().filter(char::is_ascii_hexdigit).collect();
    let start = hex.len().saturating_sub(digits);
    format!("{:0>digits$}", &hex[start..])
}

/// A named value in the form of OTLP, where 64-bit numbers are strings.
fn attribute(name: &str, value: Value) -> Value {
    let value = match value {
        Value::Number(number) => json!({"intValue": number.to_string()}),
        Value::Array(values) => {
            let values: Vec<Value> = values
                .into_iter()
                .map(|value| json!({"stringValue": value}))
                .collect();
            json!({"arrayValue": {"values": values}})
        }
        value => json!({"stringValue": value}),
    };
    json!({"key": name, "value": value})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        for (field, wanted) in [
            ("plain text", "plain text"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("two\nlines", "\"two\nlines\""),
            ("=1+1", "'=1+1"),
            ("@x,y", "\"'@x,y\""),
        ] {
            assert_eq!(quoted(field), wanted);
        }
    }

    #[test]
    fn ids_have_the_length_that_is_asked_for() {
        let id = "spn_01a1e27c-3188-7001-a3f9-38e3debc9c61";
        assert_eq!(hex_id(id, 16), "a3f938e3debc9c61");
        assert_eq!(hex_id(id, 32), "01a1e27c31887001a3f938e3debc9c61");
        assert_eq!(hex_id("x", 16), "0000000000000000");
    }
}
