//! Commands of the past as the trace has them, for judging them again.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use substrate_broker::{Around, Broker, Evaluation, Input, Origin, Request};
use substrate_text::command_line;
use substrate_trace::read::{Filter, Order, Reader, Span};

use crate::failure::Failure;

/// A command of the past and how often it was given.
pub struct Past {
    what: What,
    /// Where.
    pub cwd: PathBuf,
    search_path: OsString,
    /// `HOME`, as the shell had it.
    home: Vec<(Vec<u8>, Vec<u8>)>,
    /// How often.
    pub count: u64,
    /// The newest span of it.
    pub span_id: String,
    /// Hosts that it was kept from.
    pub refused_hosts: Vec<(String, u16)>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum What {
    Line(OsString),
    Argv(Vec<OsString>),
}

impl Past {
    /// The command as a line.
    pub fn text(&self) -> OsString {
        match &self.what {
            What::Line(line) => line.clone(),
            What::Argv(argv) => command_line(argv),
        }
    }

    /// What a broker says about it today.
    pub fn judge(&self, broker: &Broker) -> Evaluation {
        let input = match &self.what {
            What::Line(line) => Input::Line(line.as_bytes()),
            What::Argv(argv) => Input::Argv(argv),
        };
        broker.evaluate(&Request {
            input,
            origin: Origin::Past,
            cwd: &self.cwd,
            search_path: &self.search_path,
            variables: &self.home,
            aliases: &[],
            isolate: false,
            around: Around::Nothing,
        })
    }
}

/// What the trace holds.
pub struct History {
    /// Each command once for each directory, oldest first.
    pub commands: Vec<Past>,
    /// How many events could not be judged again, because the command was not kept whole.
    pub lost: u64,
}

/// Reads the commands that ran or were refused.
pub fn read(reader: &Reader, mut filter: Filter) -> Result<History, Failure> {
    filter.ran = true;
    filter.event_types = ["command_complete", "builtin_command", "policy_violation"]
        .map(str::to_owned)
        .to_vec();
    let mut history = History {
        commands: Vec::new(),
        lost: 0,
    };
    let mut places: HashMap<(What, PathBuf), usize> = HashMap::new();
    let mut last = String::new();
    for record in reader.records(Order::OldestFirst, &filter) {
        let record = record?;
        let span = &record.span;
        let Some(what) = what(span) else {
            let kept = !span.redacted && !span.shortened;
            history.lost += u64::from(!kept && span.tool.is_none());
            continue;
        };
        let cwd = span.cwd.clone().unwrap_or_default();
        let at = *places
            .entry((what.clone(), cwd.clone()))
            .or_insert_with(|| {
                let context = record.replay_context();
                let context = context.unwrap_or_default();
                let home = context.env.get("HOME").cloned();
                history.commands.push(Past {
                    what,
                    cwd,
                    search_path: context.path.unwrap_or_default(),
                    home: home
                        .map(|home| (b"HOME".to_vec(), home.into_vec()))
                        .into_iter()
                        .collect(),
                    count: 0,
                    span_id: String::new(),
                    refused_hosts: Vec::new(),
                });
                history.commands.len() - 1
            });
        let Some(past) = history.commands.get_mut(at) else {
            continue;
        };
        // A span that was observed to break a rule has two events.
        past.count += u64::from(span.span_id != last);
        past.span_id.clone_from(&span.span_id);
        last.clone_from(&span.span_id);
        for refused in span.net.iter().filter(|used| used.refused > 0) {
            let host = (refused.host.clone(), refused.port);
            if !past.refused_hosts.contains(&host) {
                past.refused_hosts.push(host);
            }
        }
    }
    Ok(history)
}

/// What is to be judged. The words are what ran when the line is only their spelling.
fn what(span: &Span) -> Option<What> {
    if span.redacted || span.shortened || span.tool.is_some() {
        return None;
    }
    let line = span.cmd.clone().filter(|line| !line.is_empty())?;
    match &span.argv {
        Some(argv) if command_line(argv) == line => Some(What::Argv(argv.clone())),
        _ => Some(What::Line(line)),
    }
}
