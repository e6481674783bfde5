//! `trace stats`: counting.

use crate::asker::Asker;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Value, json};
use substrate_trace::read::{Filter, Order, Reader, Span};

use super::look::{self, Look, Tint, clean};
use super::{list, tell_skipped};
use crate::failure::Failure;
use crate::out;

/// What is counted.
#[derive(Default)]
struct Stats {
    spans: u64,
    failed: u64,
    refused: u64,
    would: u64,
    total_ms: f64,
    first: Option<String>,
    last: Option<String>,
    commands: HashMap<String, Use>,
    rules: HashMap<String, u64>,
    hosts: HashMap<String, u64>,
    agents: BTreeMap<String, u64>,
    /// The longest, unsorted; never many more than asked for.
    slowest: Vec<(f64, String, String)>,
}

#[derive(Default, Clone, Copy)]
struct Use {
    runs: u64,
    failed: u64,
    ms: f64,
}

/// Counts what fits and shows the first so many of each.
pub fn run(
    asker: &Asker,
    reader: &Reader,
    mut filter: Filter,
    top: usize,
    as_json: bool,
) -> Result<(), Failure> {
    filter.ran = true;
    filter.event_types = ["command_complete", "policy_violation"]
        .map(str::to_owned)
        .to_vec();
    let mut stats = Stats::default();
    let mut records = reader.records(Order::OldestFirst, &filter);
    for record in records.by_ref() {
        stats.add(&record?.span, top);
    }
    tell_skipped(records.skipped());
    stats.keep_slowest(top);
    let text = match as_json {
        true => format!("{}\n", stats.json(top)),
        false => stats.text(&Look::new(asker), top),
    };
    Ok(out::print(&text)?)
}

impl Stats {
    fn add(&mut self, span: &Span, top: usize) {
        self.first.get_or_insert_with(|| span.ts.clone());
        self.last = Some(span.ts.clone());
        for host in span.hosts() {
            *self.hosts.entry(host.to_owned()).or_default() += 1;
        }
        if span.event_type == "policy_violation" {
            match span.outcome.as_deref() {
                Some("deny") => self.refused += 1,
                _ => self.would += 1,
            }
            let rule = span.rule.as_ref().map(|rule| rule.pattern.clone());
            if let Some(rule) = rule.or_else(|| span.reason.clone()) {
                *self.rules.entry(rule).or_default() += 1;
            }
            if !list::refused(span) {
                return;
            }
        }
        self.spans += 1;
        let agent = span.agent_id.clone().unwrap_or_default();
        *self.agents.entry(agent).or_default() += 1;
        let failed = span.exit.is_some_and(|exit| exit != 0);
        self.failed += u64::from(failed);
        let ms = span.duration_ms.unwrap_or(0.0);
        self.total_ms += ms;
        let used = self.commands.entry(program(span)).or_default();
        used.runs += 1;
        used.failed += u64::from(failed);
        used.ms += ms;
        if ms > 0.0 {
            self.slowest
                .push((ms, span.span_id.clone(), look::command(span)));
            if self.slowest.len() > 1000 + 2 * top {
                self.keep_slowest(top);
            }
        }
    }

    fn keep_slowest(&mut self, top: usize) {
        self.slowest.sort_by(|a, b| b.0.total_cmp(&a.0));
        self.slowest.truncate(top);
    }

    fn json(&self, top: usize) -> Value {
        let commands: Vec<Value> = ranked(&self.commands, top, |used| used.runs)
            .map(|(name, used)| {
                json!({"command": name, "runs": used.runs, "failed": used.failed, "ms": used.ms})
            })
            .collect();
        let slowest: Vec<Value> = self
            .slowest
            .iter()
            .map(|(ms, id, cmd)| json!({"span_id": id, "ms": ms, "cmd": cmd}))
            .collect();
        let counted = |counts, what: &str| -> Vec<Value> {
            ranked(counts, top, |count: &u64| *count)
                .map(|(name, count)| json!({what: name, "count": count}))
                .collect()
        };
        json!({
            "spans": self.spans,
            "failed": self.failed,
            "denied": self.refused,
            "would_deny": self.would,
            "ms": self.total_ms,
            "first": self.first,
            "last": self.last,
            "agents": self.agents,
            "commands": commands,
            "slowest": slowest,
            "rules": counted(&self.rules, "rule"),
            "hosts": counted(&self.hosts, "host"),
        })
    }

    fn text(&self, look: &Look, top: usize) -> String {
        let mut text = format!(
            "{} spans, {} failed, {} denied, {} would have been, {} in all\n",
            self.spans,
            self.failed,
            self.refused,
            self.would,
            look::duration(self.total_ms)
        );
        if let (Some(first), Some(last)) = (&self.first, &self.last) {
            text.push_str(&clean(OsStr::new(&format!("{first} to {last}"))));
            text.push('\n');
        }
        let mut section = |title: &str, rows: Vec<String>| {
            if !rows.is_empty() {
                text.push_str(&format!("\n{}\n", look.tint(Tint::Bold, title)));
                text.extend(rows);
            }
        };
        let commands = ranked(&self.commands, top, |used| used.runs);
        let commands = commands.map(|(name, used)| {
            let failed = match used.failed {
                0 => String::new(),
                count => format!("{count} failed"),
            };
            let name = look.fit(&clean(OsStr::new(name)), 24);
            let ms = look::duration(used.ms);
            let failed = look.tint(Tint::Bad, &format!("{failed:<12}"));
            format!("{:>8}  {name} {failed} {ms:>8}\n", used.runs)
        });
        section("commands", commands.collect());
        let slowest = self.slowest.iter().map(|(ms, id, cmd)| {
            let cmd = match look.width {
                Some(width) => look.cut(cmd, width.saturating_sub(25).max(8)),
                None => cmd.clone(),
            };
            format!("{:>8}  {}  {cmd}\n", look::duration(*ms), look::short(id))
        });
        section("slowest", slowest.collect());
        let counted = |counts| -> Vec<String> {
            ranked(counts, top, |count: &u64| *count)
                .map(|(name, count)| format!("{count:>8}  {}\n", clean(OsStr::new(name))))
                .collect()
        };
        section("refused by", counted(&self.rules));
        section("hosts", counted(&self.hosts));
        let agents: HashMap<String, u64> = self.agents.clone().into_iter().collect();
        section("agents", counted(&agents));
        text
    }
}

/// The entries with the highest counts; equal ones by name.
fn ranked<T>(
    all: &HashMap<String, T>,
    top: usize,
    count: impl Fn(&T) -> u64,
) -> impl Iterator<Item = (&String, &T)> {
    let mut sorted: Vec<(&String, &T)> = all.iter().collect();
    sorted.sort_by_key(|(name, value)| (Reverse(count(value)), *name));
    sorted.into_iter().take(top)
}

/// The name of the program: the base name of the first word.
pub fn program(span: &Span) -> String {
    let argv = span.argv.as_ref().and_then(|argv| argv.first());
    let word = match (argv, &span.cmd) {
        (Some(word), _) => word.as_bytes(),
        (None, Some(line)) => line
            .as_bytes()
            .split(|byte| byte.is_ascii_whitespace() || b";&|()<>".contains(byte))
            .find(|word| !word.is_empty())
            .unwrap_or_default(),
        (None, None) => b"",
    };
    let path = Path::new(OsStr::from_bytes(word));
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}
