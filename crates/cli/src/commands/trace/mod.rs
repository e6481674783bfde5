//! `substrate trace`: reading what happened.

mod export;
mod list;
pub mod look;
pub mod pages;
mod prune;
mod show;
mod stats;
mod tree;
mod view;

use crate::asker::Asker;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use substrate_executor::front::Kind;
use substrate_shell::notice::Notices;
use substrate_sys::environment;
use substrate_trace::read::{Filter, FindError, Order, Reader, Record, Skipped, SpanEvents};

use crate::failure::Failure;
use crate::trace_args::{FilterArgs, TraceArgs, TraceCommand};

/// Runs a subcommand of `trace`, or shows one span.
pub fn run(asker: &Asker, args: TraceArgs) -> Result<(), Failure> {
    let home = asker.home()?;
    let command = args.command.unwrap_or(match args.span {
        Some(span) => TraceCommand::Show {
            span,
            json: args.json,
        },
        None => TraceCommand::List {
            last: 20,
            wanted: FilterArgs::default(),
            json: args.json,
        },
    });
    if let TraceCommand::Prune {
        keep,
        before,
        private,
        json,
    } = command
    {
        let what = prune::What {
            keep,
            before,
            private,
        };
        return prune::run(asker, &home, &what, json);
    }
    let reader = Reader::open(&home.path)?;
    match command {
        TraceCommand::List { last, wanted, json } => {
            let filter = filter(asker, &reader, wanted, None)?;
            list::spans(asker, &reader, filter, Some(last), json)
        }
        TraceCommand::Grep {
            text,
            last,
            wanted,
            json,
        } => {
            let filter = filter(asker, &reader, wanted, text.as_deref())?;
            list::spans(asker, &reader, filter, last, json)
        }
        TraceCommand::Violations { last, wanted, json } => {
            let filter = filter(asker, &reader, wanted, None)?;
            list::violations(asker, &reader, filter, last, json)
        }
        TraceCommand::Tail {
            last,
            follow,
            wanted,
            json,
        } => {
            let filter = filter(asker, &reader, wanted, None)?;
            list::tail(asker, &home.path, &reader, &filter, last, follow, json)
        }
        TraceCommand::Tree {
            span,
            session,
            json,
        } => tree::run(asker, &reader, span.as_deref(), session.as_deref(), json),
        TraceCommand::Show { span, json } => show::run(asker, &home.path, &reader, &span, json),
        TraceCommand::Stats { top, wanted, json } => {
            let filter = filter(asker, &reader, wanted, None)?;
            stats::run(asker, &reader, filter, top, json)
        }
        TraceCommand::Export { format, wanted } => {
            let filter = filter(asker, &reader, wanted, None)?;
            export::run(&reader, filter, &format)
        }
        TraceCommand::View(mut args) => {
            let filter = filter(asker, &reader, std::mem::take(&mut args.wanted), None)?;
            view::run(asker, &home.path, &reader, filter, &args)
        }
        TraceCommand::Prune { .. } => Ok(()),
    }
}

/// The conditions that arguments name.
pub fn filter(
    asker: &Asker,
    reader: &Reader,
    args: FilterArgs,
    text: Option<&OsStr>,
) -> Result<Filter, Failure> {
    let session = args
        .session
        .map(|name| session(reader, &name))
        .transpose()?;
    let absolute = |path: std::path::PathBuf| asker.absolute(&path).unwrap_or(path);
    Ok(Filter {
        command: text.map(|text| text.as_bytes().to_vec()),
        cwd: args.cwd.map(absolute),
        exit: args.exit,
        verdict: args.verdict,
        agent: args.agent,
        path: args.path.map(absolute),
        host: args.host,
        since: args.since,
        until: args.until,
        session,
        ..Filter::default()
    })
}

/// The id of a session that a text names; `-` is the last.
pub fn session(reader: &Reader, name: &str) -> Result<String, Failure> {
    if name.len() == 40 && name.starts_with("ses_") {
        return Ok(name.to_owned());
    }
    for record in reader.records(Order::NewestFirst, &Filter::default()) {
        let id = record?.span.session_id;
        if name == "-" && !id.is_empty() || name.len() >= 4 && id.ends_with(name) {
            return Ok(id);
        }
    }
    Err(Failure::Missing(format!(
        "no session '{}' in the trace; give its id, or four or more letters of its end",
        name.escape_debug()
    )))
}

/// The span that a text names.
pub fn find(reader: &Reader, name: &str) -> Result<SpanEvents, Failure> {
    reader.find(name).map_err(|error| match error {
        FindError::Read(error) => Failure::Trace(error),
        error => Failure::Missing(error.to_string()),
    })
}

/// The line of a record as it was written.
fn raw(record: &Record) -> Vec<u8> {
    let mut line = record.raw.clone();
    line.push(b'\n');
    line
}

/// Says what could not be read, if anything.
pub fn tell_skipped(skipped: Skipped) {
    if skipped.total() > 0 {
        Notices::new(&environment::raw()).say(Kind::Warning, &skipped.to_string());
    }
}
