//! `trace show`: everything about one span.

use crate::asker::Asker;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use substrate_trace::read::{Reader, Record, RecordedStream, Span, SpanEvents};
use substrate_trace::{Authenticity, FsDiff, Key};

use super::look::{self, Look, Tint, clean};
use super::pages::Pages;
use super::{find, list, raw};
use crate::failure::Failure;

/// How many files of a kind are listed.
const LISTED: usize = 40;

/// Shows a span, for a person or as its lines.
pub fn run(
    asker: &Asker,
    home: &Path,
    reader: &Reader,
    name: &str,
    as_json: bool,
) -> Result<(), Failure> {
    let found = find(reader, name)?;
    let look = Look::new(asker);
    let mut pages = Pages::new(asker, &look);
    if as_json {
        for record in &found.events {
            pages.write(&raw(record))?;
        }
        return Ok(pages.finish()?);
    }
    let mut page = Page {
        look: &look,
        text: String::new(),
    };
    if let Some(main) = found.main() {
        page.span(&main.span);
        page.events(&found);
        page.effects(&main.span);
        page.replay(home, main);
    }
    let children: Vec<Record> = reader
        .children(&found.id)
        .collect::<Result<_, _>>()
        .map_err(Failure::Trace)?;
    page.children(&children);
    pages.write(page.text.as_bytes())?;
    Ok(pages.finish()?)
}

struct Page<'a> {
    look: &'a Look,
    text: String,
}

impl Page<'_> {
    fn line(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            let name = self.look.tint(Tint::Dim, &format!("{name:<10}"));
            self.text.push_str(&format!("{name} {value}\n"));
        }
    }

    fn plain(&mut self, name: &str, value: Option<&str>) {
        self.line(name, &clean(OsStr::new(value.unwrap_or(""))));
    }

    fn span(&mut self, span: &Span) {
        let command = look::command(span);
        self.text
            .push_str(&(self.look.tint(Tint::Bold, &command) + "\n\n"));
        self.plain("span", Some(&span.span_id));
        self.plain("session", Some(&span.session_id));
        self.plain("parent", span.parent_span.as_deref());
        self.line(
            "when",
            &format!("{} ({})", look::when(span), self.look.age(span.time())),
        );
        let cwd = span.cwd.as_ref().map(|cwd| clean(cwd.as_os_str()));
        self.line("directory", &cwd.unwrap_or_default());
        if let Some(argv) = &span.argv {
            let words: Vec<String> = argv.iter().map(|word| clean(word)).collect();
            self.line("argv", &format!("{words:?}"));
        }
        self.plain("agent", span.agent_id.as_deref());
        let (verdict, tint) = look::verdict(span);
        let policy = span.policy_id.as_deref().unwrap_or("?");
        let mode = span.mode.as_deref().unwrap_or("?");
        let by = clean(OsStr::new(&format!(" by policy '{policy}' ({mode})")));
        self.line("verdict", &(self.look.tint(tint, &verdict) + &by));
        if let Some(rule) = &span.rule {
            let rule = format!("{} in {}, {rule}", rule.pattern, rule.list);
            self.plain("rule", Some(&rule));
        }
        self.plain("reason", span.reason.as_deref());
        let (ended, tint) = look::ended(span);
        let took = match look::took(span) {
            took if took.is_empty() => took,
            took => format!(" after {took}"),
        };
        self.line("exit", &(self.look.tint(tint, &ended) + &took));
        if let Some(cpu) = span.cpu_ms {
            let memory = span.memory_peak.map_or_else(String::new, |bytes| {
                format!(", {} of memory", substrate_text::size::human(bytes))
            });
            let text = format!("{} of processor time{memory}", look::duration(cpu));
            self.line("used", &text);
        }
        let place = [span.place.as_deref(), span.world_id.as_deref()];
        let place: Vec<&str> = place.into_iter().flatten().collect();
        self.plain("place", Some(&place.join(" ")));
        if let Some(enforced) = &span.enforced {
            let held = format!(
                "{}: fs {}, net {}, exec {}, limits {}",
                enforced.level, enforced.fs, enforced.net, enforced.exec, enforced.limits
            );
            self.plain("enforced", Some(&held));
            for lost in &enforced.degraded {
                self.plain("degraded", Some(lost));
            }
        }
        for lost in &span.degraded {
            self.plain("degraded", Some(lost));
        }
    }

    /// What else was written about it.
    fn events(&mut self, found: &SpanEvents) {
        for record in &found.events {
            let span = &record.span;
            let detail = match span.event_type.as_str() {
                "policy_violation" if list::refused(span) => continue,
                "policy_violation" if span.attempt.is_some() => {
                    self.attempt(span);
                    continue;
                }
                "policy_violation" => span.reason.as_deref(),
                "approval" => span.pattern.as_deref(),
                "world_event" | "agent_event" => span.detail.as_deref(),
                "rate_limit" => span.limit.as_deref(),
                _ => continue,
            };
            let what = span.outcome.as_deref().or(span.action.as_deref());
            let text = format!("{} {}", what.unwrap_or(""), detail.unwrap_or(""));
            let name = span.event_type.split('_').next_back().unwrap_or("event");
            self.plain(name, Some(text.trim()));
        }
    }

    /// What was tried in vain, by whom.
    fn attempt(&mut self, span: &Span) {
        let Some(attempt) = &span.attempt else { return };
        let mut text = format!(
            "{} {}",
            span.outcome.as_deref().unwrap_or(""),
            span.reason.as_deref().unwrap_or(&attempt.host)
        );
        if let Some(program) = &attempt.program {
            text.push_str(&format!(" ({}", program.to_string_lossy()));
            if let Some(pid) = attempt.pid {
                text.push_str(&format!(", process {pid}"));
            }
            text.push(')');
        }
        self.plain("network", Some(&text));
    }

    fn effects(&mut self, span: &Span) {
        // Written files are shown by name below.
        let scopes = span.scopes_used.iter().map(|scope| scope.to_string_lossy());
        let scopes: Vec<_> = scopes
            .filter(|scope| !scope.starts_with("fs.write:"))
            .collect();
        self.plain("scopes", Some(&scopes.join(" ")));
        for used in &span.net {
            let refused = match used.refused {
                0 => String::new(),
                count => format!(", {count} refused"),
            };
            let text = format!(
                "{}:{}, sent {} bytes, received {}{refused}",
                used.host, used.port, used.tx, used.rx
            );
            self.plain("network", Some(&text));
        }
        if let Some(diff) = &span.fs_diff {
            self.diff(diff);
        }
        let Some(output) = &span.output else { return };
        for (name, stream) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            if let Some(stream) = stream {
                let via = stream.via.as_deref().unwrap_or("");
                let merged = if output.merged {
                    ", stderr with it"
                } else {
                    ""
                };
                let text = format!("{} bytes, {via}{merged}", stream.bytes);
                self.plain(name, Some(&text));
                self.copy(stream);
            }
        }
    }

    /// The beginning of what it printed.
    fn copy(&mut self, stream: &RecordedStream) {
        let Some(copy) = &stream.copy else { return };
        let copy = copy.as_encoded_bytes();
        let lines: Vec<&[u8]> = copy.split_inclusive(|byte| *byte == b'\n').collect();
        for line in lines.iter().take(LISTED) {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            self.text
                .push_str(&format!("{:11}{}\n", "", clean(OsStr::from_bytes(line))));
        }
        if lines.len() > LISTED || (copy.len() as u64) < stream.bytes {
            self.text.push_str(&format!("{:11}…\n", ""));
        }
    }

    fn diff(&mut self, diff: &FsDiff) {
        let root = clean(diff.root.as_os_str());
        let strategy = clean(OsStr::new(&diff.strategy));
        self.line("files", &format!("below {root} ({strategy})"));
        for (sign, tint, paths) in [
            ("+", Tint::Good, &diff.created_dirs),
            ("+", Tint::Good, &diff.writes),
            ("~", Tint::Odd, &diff.mods),
            ("-", Tint::Bad, &diff.deletes),
        ] {
            for path in paths.iter().take(LISTED) {
                let shown = path.strip_prefix(&diff.root).unwrap_or(path);
                let shown = format!("{sign} {}", clean(shown.as_os_str()));
                self.text
                    .push_str(&format!("{:11}{}\n", "", self.look.tint(tint, &shown)));
            }
            if paths.len() > LISTED {
                let more = paths.len() - LISTED;
                self.text
                    .push_str(&format!("{:11}{sign} {more} more\n", ""));
            }
        }
        if diff.is_empty() && !diff.truncated && diff.strategy != "skipped" {
            self.text.push_str(&format!("{:11}no changes\n", ""));
        }
        self.plain("", diff.summary.as_deref());
    }

    /// Whether it could be run again.
    fn replay(&mut self, home: &Path, main: &Record) {
        let Some(context) = main.replay_context() else {
            return;
        };
        let genuine = Key::existing(home).map(|key| key.verify(&main.raw));
        let (text, tint) = match (genuine, main.span.redacted, main.span.shortened) {
            (_, true, _) => ("cannot be replayed: secrets were taken out", Tint::Odd),
            (_, _, true) => ("cannot be replayed: the command was too long", Tint::Odd),
            (Ok(Authenticity::Genuine), ..) => ("genuine", Tint::Good),
            (Ok(Authenticity::Altered), ..) => ("altered after it was written", Tint::Bad),
            (Ok(Authenticity::Unsigned), ..) => ("without a digest", Tint::Odd),
            (Err(_), ..) => ("unchecked: the key cannot be read", Tint::Odd),
        };
        self.line("record", &self.look.tint(tint, text));
        self.plain("snapshot", context.base_tree.as_deref());
        self.plain("system", context.world_image_version.as_deref());
        for tool in &context.tools {
            let text = format!("{} sha256 {}", tool.path.display(), tool.sha256);
            self.plain("program", Some(&text));
        }
        let stdin = context
            .stdin
            .as_ref()
            .filter(|stdin| stdin.kind != "unknown");
        let stdin = stdin.map(|stdin| match stdin.bytes {
            Some(bytes) => format!("{bytes} bytes"),
            None => stdin.kind.clone(),
        });
        self.plain("stdin", stdin.as_deref());
        let umask = context.umask.map(|umask| format!("{umask:04o}"));
        self.plain("umask", umask.as_deref());
    }

    fn children(&mut self, children: &[Record]) {
        let rows: Vec<String> = children
            .iter()
            .filter(|record| {
                matches!(
                    record.span.event_type.as_str(),
                    "command_complete" | "builtin_command"
                ) || list::refused(&record.span)
            })
            .map(|record| self.look.row(&record.span))
            .collect();
        if !rows.is_empty() {
            self.text.push('\n');
            self.text.push_str(&self.look.head());
            self.text.extend(rows);
        }
    }
}
