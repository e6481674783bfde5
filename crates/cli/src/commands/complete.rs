//! Completion of Substrate's own commands at its prompt: subcommands, options, policies, spans.

use std::ffi::OsString;

use clap::{Arg, Command, CommandFactory};
use substrate_changes::pending::Pending;
use substrate_executor::session::Session;
use substrate_policy::compile;
use substrate_trace::read::{Filter, Order, Reader};

use crate::args::Cli;

/// How many of the newest spans are offered.
const SPANS: usize = 50;

/// Words that can stand in place of the last one, if the first names Substrate.
pub fn words(session: &Session, words: &[OsString]) -> Vec<OsString> {
    let [first, between @ .., last] = words else {
        return Vec::new();
    };
    let (Some(last), true) = (last.to_str(), first == "substrate") else {
        return Vec::new();
    };
    let mut command = Cli::command();
    let mut before = None;
    for word in between {
        // What follows is a program and its own arguments, of which we know nothing.
        if word == "--" {
            return Vec::new();
        }
        let found = word.to_str().and_then(|word| command.find_subcommand(word));
        if let Some(found) = found.cloned() {
            command = found;
        }
        before = word.to_str();
    }
    let mut offered = match before.and_then(|word| option(&command, word)) {
        Some(option) => values(session, option),
        None if last.starts_with('-') => options(&command),
        None => operands(session, &command),
    };
    offered.retain(|word| word.starts_with(last));
    offered.into_iter().map(OsString::from).collect()
}

/// The option that this word is, if it wants a value.
fn option<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let name = word.strip_prefix("--")?;
    command
        .get_arguments()
        .find(|argument| argument.get_long() == Some(name) && argument.get_action().takes_values())
}

fn options(command: &Command) -> Vec<String> {
    let names = command.get_arguments().filter_map(Arg::get_long);
    names.map(|name| format!("--{name}")).collect()
}

fn operands(session: &Session, command: &Command) -> Vec<String> {
    let mut offered: Vec<String> = command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| command.get_name().to_owned())
        .collect();
    for argument in command.get_positionals() {
        offered.extend(values(session, argument));
    }
    offered
}

/// What an argument can be, as far as that is known.
fn values(session: &Session, argument: &Arg) -> Vec<String> {
    let home = session.broker.home();
    match argument.get_id().as_str() {
        "span" => spans(&home.path),
        "result" => {
            let waiting = Pending::list(&home.path).unwrap_or_default();
            let worlds = waiting
                .iter()
                .map(|result| result.meta().span_id.to_string());
            worlds.collect()
        }
        "policy" | "policies" | "one" | "other" => policies(session),
        "name" if argument.is_positional() => policies(session),
        _ => argument
            .get_possible_values()
            .iter()
            .map(|value| value.get_name().to_owned())
            .collect(),
    }
}

fn policies(session: &Session) -> Vec<String> {
    let mut ids: Vec<String> = compile::shipped_ids().map(str::to_owned).collect();
    let files = std::fs::read_dir(session.broker.home().policies());
    for entry in files.into_iter().flatten().flatten() {
        let path = entry.path();
        let is_policy = path
            .extension()
            .is_some_and(|end| end == "yaml" || end == "yml");
        if let Some(id) = path
            .file_stem()
            .and_then(|id| id.to_str())
            .filter(|_| is_policy)
        {
            ids.push(id.to_owned());
        }
    }
    ids.sort();
    ids.dedup();
    ids
}

/// The newest spans that ended or were refused.
fn spans(home: &std::path::Path) -> Vec<String> {
    let filter = Filter {
        event_types: ["command_complete", "policy_violation"]
            .map(str::to_owned)
            .to_vec(),
        ..Filter::default()
    };
    let Ok(reader) = Reader::open(home) else {
        return Vec::new();
    };
    let records = reader.records(Order::NewestFirst, &filter).flatten();
    records
        .take(SPANS)
        .map(|record| record.span.span_id)
        .collect()
}
