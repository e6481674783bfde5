//! Lines of the past, from the trace.

use std::path::Path;

use substrate_trace::read::{Filter, Order, Reader};

use crate::gate::Remembered;

/// How many of the newest lines are looked up.
const MOST: usize = 10_000;

/// The newest lines that ended or were refused, oldest first, with directory, status and verdict.
pub fn lines(home: &Path) -> Vec<Remembered> {
    let Ok(reader) = Reader::open(home) else {
        return Vec::new();
    };
    let filter = Filter {
        event_types: ["command_complete", "policy_violation"]
            .map(str::to_owned)
            .to_vec(),
        ..Filter::default()
    };
    let mut found: Vec<Remembered> = Vec::new();
    for record in reader.records(Order::NewestFirst, &filter).flatten() {
        let span = record.span;
        let refused = span.outcome.as_deref() == Some("deny");
        let would = span.event_type == "policy_violation" && !refused;
        if would || span.component != "shell" {
            continue;
        }
        let Some(line) = span.cmd.as_ref().and_then(|line| line.to_str()) else {
            continue;
        };
        let entry = Remembered {
            line: line.to_owned(),
            cwd: span.cwd.clone(),
            status: if refused { Some(126) } else { span.exit },
            verdict: span.verdict.clone(),
        };
        if found.last() != Some(&entry) {
            found.push(entry);
        }
        if found.len() >= MOST {
            break;
        }
    }
    found.reverse();
    found
}
