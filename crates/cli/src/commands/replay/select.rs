//! Which spans are replayed.

use std::collections::BTreeMap;

use substrate_trace::read::{Filter, Order, Reader, Record};

use crate::commands::trace::{find, session, tell_skipped};
use crate::failure::Failure;
use crate::replay_args::ReplayArgs;

/// The spans that the arguments name, in the order in which they began.
pub fn select(reader: &Reader, args: &ReplayArgs) -> Result<Vec<Record>, Failure> {
    if let Some(name) = &args.span {
        let found = find(reader, name)?;
        return match found.main() {
            Some(record) => Ok(vec![record.clone()]),
            None => Err(Failure::Missing(format!("{} has no events", found.id))),
        };
    }
    let named = args.session.as_deref();
    let filter = Filter {
        event_types: vec!["command_complete".to_owned()],
        session: named.map(|name| session(reader, name)).transpose()?,
        since: args.since,
        ..Filter::default()
    };
    let mut ended: BTreeMap<String, Record> = BTreeMap::new();
    let mut records = reader.records(Order::OldestFirst, &filter);
    for record in records.by_ref() {
        let record = record?;
        // Of several ends the newest counts: it may be one that was accepted later.
        ended.insert(record.span.span_id.clone(), record);
    }
    tell_skipped(records.skipped());
    // What another one starts is run by that one.
    let starts = |record: &Record| {
        let parent = record.span.parent_span.as_ref();
        !parent.is_some_and(|parent| ended.contains_key(parent))
    };
    let mut all: Vec<Record> = ended.values().filter(|r| starts(r)).cloned().collect();
    if let Some(last) = args.last {
        all.drain(..all.len().saturating_sub(last));
    }
    match all.is_empty() {
        true => Err(Failure::Missing("no command that ended fits".to_owned())),
        false => Ok(all),
    }
}
