//! `trace tree`: spans below those that started them.

use crate::asker::Asker;
use std::collections::{BTreeMap, HashMap};

use serde_json::{Value, json};
use substrate_trace::read::{Filter, Order, Reader, Record, Span};

use super::look::{self, Look, Tint};
use super::pages::Pages;
use super::{find, list, session, tell_skipped};
use crate::failure::Failure;
use crate::out;

/// Spans that name each other as parents end somewhere.
const DEEPEST: usize = 64;

/// Shows a session, or what is below one span.
pub fn run(
    asker: &Asker,
    reader: &Reader,
    span: Option<&str>,
    in_session: Option<&str>,
    as_json: bool,
) -> Result<(), Failure> {
    let root = span.map(|name| find(reader, name)).transpose()?;
    let session_id = match root.as_ref().and_then(|root| root.events.first()) {
        Some(record) => record.span.session_id.clone(),
        None => session(reader, in_session.unwrap_or("-"))?,
    };
    let tree = Tree::read(reader, session_id)?;
    let roots: Vec<&Span> = match &root {
        Some(root) => tree.spans.get(&root.id).into_iter().collect(),
        None => tree.roots(),
    };
    if as_json {
        let nodes: Vec<Value> = roots.iter().map(|span| tree.json(span, 0)).collect();
        let text = json!({"session_id": tree.session_id, "spans": nodes});
        return Ok(out::print(&format!("{text}\n"))?);
    }
    let look = Look::new(asker);
    let mut pages = Pages::new(asker, &look);
    let title = look.tint(Tint::Dim, &tree.session_id) + "\n";
    pages.write(title.as_bytes())?;
    let mut text = String::new();
    for (at, span) in roots.iter().enumerate() {
        tree.draw(&look, span, "", at + 1 == roots.len(), 0, &mut text);
    }
    pages.write(text.as_bytes())?;
    Ok(pages.finish()?)
}

struct Tree {
    session_id: String,
    /// By id; of each span the event that tells most. Ids sort by time.
    spans: BTreeMap<String, Span>,
    children: HashMap<String, Vec<String>>,
}

impl Tree {
    fn read(reader: &Reader, session_id: String) -> Result<Self, Failure> {
        let filter = Filter {
            session: Some(session_id.clone()),
            event_types: [
                "command_start",
                "command_complete",
                "builtin_command",
                "policy_violation",
            ]
            .map(str::to_owned)
            .to_vec(),
            ..Filter::default()
        };
        let mut spans: BTreeMap<String, Span> = BTreeMap::new();
        let mut records = reader.records(Order::OldestFirst, &filter);
        for record in records.by_ref() {
            let Record { span, .. } = record?;
            let tells = span.event_type != "policy_violation" || list::refused(&span);
            if tells && !span.span_id.is_empty() {
                spans.insert(span.span_id.clone(), span);
            }
        }
        tell_skipped(records.skipped());
        let mut children: HashMap<String, Vec<String>> = HashMap::new();
        for (id, span) in &spans {
            if let Some(parent) = &span.parent_span {
                children.entry(parent.clone()).or_default().push(id.clone());
            }
        }
        Ok(Self {
            session_id,
            spans,
            children,
        })
    }

    fn roots(&self) -> Vec<&Span> {
        let known = |span: &Span| {
            let parent = span.parent_span.as_ref();
            parent.is_some_and(|parent| self.spans.contains_key(parent))
        };
        self.spans.values().filter(|span| !known(span)).collect()
    }

    fn below(&self, span: &Span, depth: usize) -> Vec<&Span> {
        let ids = self.children.get(&span.span_id);
        ids.filter(|_| depth < DEEPEST)
            .into_iter()
            .flatten()
            .filter_map(|id| self.spans.get(id))
            .collect()
    }

    fn draw(
        &self,
        look: &Look,
        span: &Span,
        indent: &str,
        last: bool,
        depth: usize,
        text: &mut String,
    ) {
        let (branch, stem) = match (look.unicode, last) {
            (true, true) => ("└─ ", "   "),
            (true, false) => ("├─ ", "│  "),
            (false, true) => ("`- ", "   "),
            (false, false) => ("|- ", "|  "),
        };
        let (ended, end_tint) = match list::refused(span) {
            true => ("denied".to_owned(), Tint::Bad),
            false => look::ended(span),
        };
        let took = look::took(span);
        let mut command = look::command(span);
        if let Some(width) = look.width {
            let used = indent.chars().count() + 3 + 12 + 1 + ended.len() + 1 + took.len() + 2;
            command = look.cut(&command, width.saturating_sub(used).max(8));
        }
        let parts = [
            look.tint(Tint::Dim, look::short(&span.span_id)),
            look.tint(end_tint, &ended),
            look.tint(Tint::Dim, &took),
            command,
        ];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        text.push_str(&format!("{indent}{branch}{}\n", parts.join(" ")));
        let indent = format!("{indent}{stem}");
        let below = self.below(span, depth);
        for (at, child) in below.iter().enumerate() {
            let last = at + 1 == below.len();
            self.draw(look, child, &indent, last, depth + 1, text);
        }
    }

    fn json(&self, span: &Span, depth: usize) -> Value {
        let children: Vec<Value> = self
            .below(span, depth)
            .iter()
            .map(|child| self.json(child, depth + 1))
            .collect();
        json!({
            "span_id": span.span_id,
            "event_type": span.event_type,
            "cmd": span.cmd.as_ref().map(|cmd| cmd.to_string_lossy()),
            "verdict": span.verdict,
            "outcome": span.outcome,
            "exit": span.exit,
            "signal": span.signal,
            "duration_ms": span.duration_ms,
            "children": children,
        })
    }
}
