//! `substrate agent usage`: what agents cost, as the trace has it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use substrate_agents::Shelf;
use substrate_modelgate::Usage;
use substrate_text::visible;
use substrate_trace::read::{Filter, Order, Reader};
use substrate_trace::{Error, Tokens};

use crate::asker::Asker;
use crate::failure::Failure;
use crate::out;

/// What one agent had one model do.
#[derive(Default)]
struct Row {
    provider: Option<String>,
    answers: u64,
    usage: Usage,
    charged: u64,
}

type Rows = BTreeMap<(String, String), Row>;

/// Prints the table, of one agent or of all.
pub fn run(asker: &Asker, name: Option<String>, as_json: bool) -> Result<(), Failure> {
    let home = asker.home()?;
    let filter = Filter {
        event_types: vec!["agent_event".to_owned()],
        agent: name,
        ..Filter::default()
    };
    let rows = match Reader::open(&home.path) {
        Ok(reader) => collect(&reader, &filter)?,
        Err(error) => return Err(error.into()),
    };
    let shelf = Shelf::with_own(&home.path);
    let text = match as_json {
        true => format!(
            "{}\n",
            Value::from(
                rows.iter()
                    .map(|row| object(row, &shelf))
                    .collect::<Vec<_>>()
            )
        ),
        false => table(&rows, &shelf),
    };
    Ok(out::print(&text)?)
}

fn collect(reader: &Reader, filter: &Filter) -> Result<Rows, Error> {
    let mut rows = Rows::new();
    for record in reader.records(Order::OldestFirst, filter) {
        let span = record?.span;
        let (Some(agent), Some(tokens)) = (span.agent_id, span.tokens) else {
            continue;
        };
        // The end of a run repeats what its answers said, and adds what was only charged.
        let (model, counted) = match span.action.as_deref() {
            Some("answered") => (span.model.unwrap_or_else(|| "unnamed".to_owned()), tokens),
            Some("ended") if tokens.charged > 0 => {
                ("answers that broke off".to_owned(), charged(&tokens))
            }
            _ => continue,
        };
        let row = rows.entry((agent, model)).or_default();
        row.provider = row.provider.take().or(span.provider);
        row.answers += u64::from(span.action.as_deref() == Some("answered"));
        row.charged = row.charged.saturating_add(counted.charged);
        row.usage.add(&usage(&counted));
    }
    Ok(rows)
}

fn charged(tokens: &Tokens) -> Tokens {
    Tokens {
        charged: tokens.charged,
        ..Tokens::default()
    }
}

fn usage(tokens: &Tokens) -> Usage {
    Usage {
        input: tokens.input,
        cache_write: tokens.cache_write,
        cache_read: tokens.cache_read,
        output: tokens.output,
        reasoning: tokens.reasoning,
    }
}

fn cost(row: &Row, model: &str, shelf: &Shelf) -> Option<f64> {
    shelf.get(row.provider.as_deref()?)?.cost(model, &row.usage)
}

fn object(((agent, model), row): (&(String, String), &Row), shelf: &Shelf) -> Value {
    json!({
        "agent": agent,
        "provider": row.provider,
        "model": model,
        "answers": row.answers,
        "usage": row.usage,
        "charged": row.charged,
        "cost_usd": cost(row, model, shelf),
    })
}

fn table(rows: &Rows, shelf: &Shelf) -> String {
    let mut text = format!(
        "{:<16} {:<28} {:>8} {:>12} {:>12} {:>10} {:>10}\n",
        "AGENT", "MODEL", "ANSWERS", "READ", "CACHED", "WRITTEN", "COST"
    );
    for ((agent, model), row) in rows {
        let usage = &row.usage;
        let read = usage.input + usage.cache_write + usage.cache_read + row.charged;
        let cost = cost(row, model, shelf).map_or("-".to_owned(), |cost| format!("${cost:.4}"));
        text.push_str(&format!(
            "{:<16} {:<28} {:>8} {read:>12} {:>12} {:>10} {cost:>10}\n",
            visible(agent.as_bytes()),
            visible(model.as_bytes()),
            row.answers,
            usage.cache_read,
            usage.output,
        ));
    }
    text
}
