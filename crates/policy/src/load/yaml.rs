//! YAML as a tree in which every node knows where it stands, so that each complaint can point at it.
//!
//! Policies are security files: aliases, anchors and tags are refused, a key may stand only once,
//! size and depth are bounded, and only `true`, `false` and plain numbers are not text.

use std::sync::Arc;

use granit_parser::{Event, Parser, ScalarStyle, Span};

use super::diagnostic::{LoadError, Position, Problem, SourceFile};

const MAX_BYTES: usize = 4 << 20;
const MAX_DEPTH: usize = 32;
const MAX_NODES: usize = 200_000;

/// A node and where it stands.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its value.
    pub value: Value,
    /// Where it stands.
    pub place: Position,
}

/// What a node is.
#[derive(Debug, Clone)]
pub enum Value {
    /// Nothing, or `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A plain number, as written.
    Number(String),
    /// Text.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping; keys in the order of the file.
    Map(Vec<(Key, Node)>),
}

/// The key of a mapping.
#[derive(Debug, Clone)]
pub struct Key {
    /// Its text.
    pub text: String,
    /// Where it stands.
    pub place: Position,
}

impl Node {
    /// Reads a file's text.
    pub fn parse(source: &Arc<SourceFile>) -> Result<Node, LoadError> {
        if source.text.len() > MAX_BYTES {
            return Err(LoadError::whole(
                source,
                format!("the file is larger than {} MiB", MAX_BYTES >> 20),
            ));
        }
        let mut reader = Reader {
            parser: Parser::new_from_str(&source.text),
            source,
            nodes: 0,
        };
        reader.document()
    }

    /// The value under a key, if this is a mapping that has it.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries
                .iter()
                .find(|(found, _)| found.text == key)
                .map(|(_, node)| node),
            _ => None,
        }
    }

    /// The entries of a mapping.
    pub fn entries(&self) -> &[(Key, Node)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a sequence.
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// Text, or a plain scalar as it was written.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) | Value::Number(text) => Some(text),
            _ => None,
        }
    }

    /// A truth value.
    pub fn bool(&self) -> Option<bool> {
        match self.value {
            Value::Bool(value) => Some(value),
            _ => None,
        }
    }

    /// A whole number.
    pub fn integer(&self) -> Option<u64> {
        match &self.value {
            Value::Number(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// The same data without places, for the schema.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Number(text) => {
                serde_json::from_str(text).unwrap_or_else(|_| Json::String(text.clone()))
            }
            Value::Text(text) => Json::String(text.clone()),
            Value::List(items) => Json::Array(items.iter().map(Node::to_json).collect()),
            Value::Map(entries) => Json::Object(
                entries
                    .iter()
                    .map(|(key, node)| (key.text.clone(), node.to_json()))
                    .collect(),
            ),
        }
    }

    /// The node that a JSON pointer names.
    pub fn at_pointer(&self, pointer: &str) -> &Node {
        let mut node = self;
        for step in pointer.split('/').skip(1) {
            let step = step.replace("~1", "/").replace("~0", "~");
            let next = match &node.value {
                Value::Map(_) => node.get(&step),
                Value::List(items) => step
                    .parse::<usize>()
                    .ok()
                    .and_then(|index| items.get(index)),
                _ => None,
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node
    }

    /// Puts `over` on top of `self`: mappings are merged, sequences appended, the rest replaced.
    pub fn merge(self, over: Node) -> Node {
        match (self.value, over.value) {
            (Value::Map(mut base), Value::Map(entries)) => {
                for (key, node) in entries {
                    match base.iter().position(|(found, _)| found.text == key.text) {
                        Some(at) => {
                            let (_, old) = base.remove(at);
                            base.insert(at, (key, old.merge(node)));
                        }
                        None => base.push((key, node)),
                    }
                }
                Node {
                    value: Value::Map(base),
                    place: over.place,
                }
            }
            (Value::List(mut base), Value::List(items)) => {
                base.extend(items);
                Node {
                    value: Value::List(base),
                    place: over.place,
                }
            }
            (_, value) => Node {
                value,
                place: over.place,
            },
        }
    }
}

struct Reader<'a> {
    parser: Parser<'a, granit_parser::StrInput<'a>>,
    source: &'a Arc<SourceFile>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Node, LoadError> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentEnd => {}
                Event::DocumentStart(..) if root.is_none() => {
                    let (event, span) = self.next()?;
                    root = Some(self.node(event, span, 0)?);
                }
                Event::DocumentStart(..) => {
                    return Err(self.complain(
                        span,
                        "a second YAML document",
                        Some("keep one policy in a file"),
                    ));
                }
                Event::StreamEnd => break,
                _ => return Err(self.complain(span, "unexpected YAML", None)),
            }
        }
        root.ok_or_else(|| LoadError::whole(self.source, "the file is empty"))
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, LoadError> {
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
            return Err(self.complain(span, "nested too deep or too large", None));
        }
        let mut place = self.place(span);
        let value = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_extras(span, anchor, tag.is_some())?;
                scalar(&text, style)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.refuse_extras(span, anchor, tag.is_some())?;
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break,
                        (event, span) => items.push(self.node(event, span, depth + 1)?),
                    }
                }
                Value::List(items)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.refuse_extras(span, anchor, tag.is_some())?;
                let mut entries: Vec<(Key, Node)> = Vec::new();
                loop {
                    let (event, span) = self.next()?;
                    let text = match event {
                        Event::MappingEnd => break,
                        Event::Scalar(text, _, 0, None) => text.into_owned(),
                        _ => return Err(self.complain(span, "a key must be plain text", None)),
                    };
                    let key = Key {
                        text,
                        place: self.place(span),
                    };
                    if let Some((first, _)) =
                        entries.iter().find(|(found, _)| found.text == key.text)
                    {
                        let message = format!(
                            "`{}` is given twice, first on line {}",
                            key.text, first.place.line
                        );
                        return Err(self.complain(span, message, Some("remove one of them")));
                    }
                    let (event, span) = self.next()?;
                    let node = self.node(event, span, depth + 1)?;
                    entries.push((key, node));
                }
                if let (Some((first, _)), Some((_, last))) = (entries.first(), entries.last()) {
                    place.range = first.place.range.start..last.place.range.end;
                }
                Value::Map(entries)
            }
            Event::Alias(_) => {
                return Err(self.complain(
                    span,
                    "aliases (`*name`) are not allowed in policies",
                    None,
                ));
            }
            _ => return Err(self.complain(span, "unexpected YAML", None)),
        };
        Ok(Node { value, place })
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), LoadError> {
        match self.parser.next_event() {
            Some(Ok(found)) => Ok(found),
            Some(Err(error)) => {
                let at = error
                    .marker()
                    .byte_offset()
                    .unwrap_or(self.source.text.len());
                Err(LoadError::one(Problem {
                    place: self.source.place(at..at),
                    message: error.kind().to_string(),
                    hint: None,
                }))
            }
            None => Err(LoadError::whole(self.source, "the file ends too early")),
        }
    }

    fn refuse_extras(&self, span: Span, anchor: usize, tagged: bool) -> Result<(), LoadError> {
        if anchor != 0 {
            return Err(self.complain(span, "anchors (`&name`) are not allowed in policies", None));
        }
        if tagged {
            return Err(self.complain(
                span,
                "tags (`!name`) are not allowed in policies",
                Some("quote the text"),
            ));
        }
        Ok(())
    }

    fn place(&self, span: Span) -> Position {
        let end = self.source.text.len();
        let start = span.start.byte_offset().unwrap_or(end).min(end);
        let stop = span.end.byte_offset().unwrap_or(end).clamp(start, end);
        self.source.place(start..stop)
    }

    fn complain(&self, span: Span, message: impl Into<String>, hint: Option<&str>) -> LoadError {
        LoadError::one(Problem {
            place: self.place(span),
            message: message.into(),
            hint: hint.map(str::to_owned),
        })
    }
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return Value::Text(text.to_owned());
    }
    match text {
        "" | "~" | "null" => Value::Null,
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        _ if is_number(text) => Value::Number(text.to_owned()),
        _ => Value::Text(text.to_owned()),
    }
}

/// Only what JSON would also call a number; `0755`, `1_000` and `1.2.3` stay text.
fn is_number(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit() || first == '-')
        && serde_json::from_str::<serde_json::Number>(text).is_ok()
}
