//! What an answer says that it cost, read as it passes.

use memchr::memmem;
use serde_json::Value;

use crate::sse::SseReader;
use crate::wire::Kind;

/// Longest answer in one piece that is read for its usage, and longest event of a streamed one.
pub(crate) const LONGEST: usize = 32 << 20;

/// Tokens, counted the same way whoever counts them: no token is in two of these, except that
/// `reasoning` is part of `output`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Usage {
    /// Read anew.
    pub input: u64,
    /// Read and put into the provider's cache.
    pub cache_write: u64,
    /// Read from the provider's cache.
    pub cache_read: u64,
    /// Written.
    pub output: u64,
    /// Of the written ones, those that were thought.
    pub reasoning: u64,
}

impl Usage {
    /// All of them.
    pub fn total(&self) -> u64 {
        let parts = [self.cache_write, self.cache_read, self.output];
        parts.into_iter().fold(self.input, u64::saturating_add)
    }

    /// Adds another answer's.
    pub fn add(&mut self, other: &Usage) {
        self.each(other, u64::saturating_add);
    }

    /// Of what is told several times in one answer the most counts.
    fn raise(&mut self, other: &Usage) {
        self.each(other, u64::max);
    }

    fn each(&mut self, other: &Usage, combine: impl Fn(u64, u64) -> u64) {
        for (own, other) in [
            (&mut self.input, other.input),
            (&mut self.cache_write, other.cache_write),
            (&mut self.cache_read, other.cache_read),
            (&mut self.output, other.output),
            (&mut self.reasoning, other.reasoning),
        ] {
            *own = combine(*own, other);
        }
    }

    /// What a JSON document of an answer, or one event of a streamed one, says.
    pub fn of(kind: Kind, value: &Value) -> Option<Usage> {
        match kind {
            Kind::Messages => {
                let whole = value.get("usage");
                let usage = whole.or_else(|| value.pointer("/message/usage"))?;
                usage.is_object().then(|| anthropic(usage))
            }
            Kind::Responses => {
                let whole = value.get("usage").filter(|usage| usage.is_object());
                let usage = whole.or_else(|| value.pointer("/response/usage"))?;
                usage.is_object().then(|| responses(usage))
            }
            Kind::Chat => {
                let usage = value.get("usage").filter(|usage| usage.is_object())?;
                Some(chat(usage))
            }
            Kind::Generate => {
                let last = match value {
                    Value::Array(parts) => parts.iter().rev().find_map(|p| p.get("usageMetadata")),
                    one => one.get("usageMetadata"),
                };
                last.filter(|usage| usage.is_object()).map(gemini)
            }
            Kind::Plain => None,
        }
    }
}

fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

fn anthropic(usage: &Value) -> Usage {
    Usage {
        input: number(usage, "/input_tokens"),
        cache_write: number(usage, "/cache_creation_input_tokens"),
        cache_read: number(usage, "/cache_read_input_tokens"),
        output: number(usage, "/output_tokens"),
        reasoning: 0,
    }
}

fn responses(usage: &Value) -> Usage {
    let cached = number(usage, "/input_tokens_details/cached_tokens");
    let written = number(usage, "/input_tokens_details/cache_write_tokens");
    Usage {
        input: number(usage, "/input_tokens").saturating_sub(cached.saturating_add(written)),
        cache_write: written,
        cache_read: cached,
        output: number(usage, "/output_tokens"),
        reasoning: number(usage, "/output_tokens_details/reasoning_tokens"),
    }
}

fn chat(usage: &Value) -> Usage {
    let cached = number(usage, "/prompt_tokens_details/cached_tokens");
    Usage {
        input: number(usage, "/prompt_tokens").saturating_sub(cached),
        cache_write: 0,
        cache_read: cached,
        output: number(usage, "/completion_tokens"),
        reasoning: number(usage, "/completion_tokens_details/reasoning_tokens"),
    }
}

fn gemini(usage: &Value) -> Usage {
    let cached = number(usage, "/cachedContentTokenCount");
    let prompt = number(usage, "/promptTokenCount");
    let tools = number(usage, "/toolUsePromptTokenCount");
    let thought = number(usage, "/thoughtsTokenCount");
    Usage {
        input: prompt.saturating_sub(cached).saturating_add(tools),
        cache_write: 0,
        cache_read: cached,
        output: number(usage, "/candidatesTokenCount").saturating_add(thought),
        reasoning: thought,
    }
}

/// Reads the usage of one answer from the bytes that pass.
#[derive(Debug)]
pub struct Meter {
    kind: Kind,
    reading: Reading,
    seen: Option<Usage>,
}

#[derive(Debug)]
enum Reading {
    /// Events, each of which may tell something.
    Events(SseReader),
    /// One document, which is complete only at its end.
    Document(Vec<u8>),
    /// It cannot be read.
    Lost,
}

impl Meter {
    /// For the answer to a request of this kind, which is streamed as events or not.
    pub fn new(kind: Kind, events: bool) -> Meter {
        let reading = match (kind.costs(), events) {
            (false, _) => Reading::Lost,
            (true, true) => Reading::Events(SseReader::new(LONGEST)),
            (true, false) => Reading::Document(Vec::new()),
        };
        Meter {
            kind,
            reading,
            seen: None,
        }
    }

    /// Takes note of bytes that pass.
    pub fn pass(&mut self, bytes: &[u8]) {
        let Meter {
            kind,
            reading,
            seen,
        } = self;
        match reading {
            Reading::Events(reader) => reader.push(bytes, &mut |data| tell(*kind, data, seen)),
            Reading::Document(document) if document.len() + bytes.len() <= LONGEST => {
                document.extend_from_slice(bytes);
            }
            Reading::Document(_) => *reading = Reading::Lost,
            Reading::Lost => {}
        }
    }

    /// What the answer has said so far.
    pub fn so_far(&self) -> Usage {
        self.seen.unwrap_or_default()
    }

    /// What the whole answer said, when it said something.
    pub fn end(&mut self) -> Option<Usage> {
        match &mut self.reading {
            Reading::Events(reader) => {
                reader.end(&mut |data| tell(self.kind, data, &mut self.seen))
            }
            Reading::Document(document) => tell(self.kind, document, &mut self.seen),
            Reading::Lost => {}
        }
        self.seen
    }
}

/// Most events have no word of it and are not taken apart.
fn tell(kind: Kind, data: &[u8], seen: &mut Option<Usage>) {
    if memmem::find(data, b"usage").is_none() {
        return;
    }
    let value: Option<Value> = serde_json::from_slice(data).ok();
    if let Some(usage) = value.and_then(|value| Usage::of(kind, &value)) {
        seen.get_or_insert_default().raise(&usage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(kind: Kind, events: bool, text: &str) -> Option<Usage> {
        let mut meter = Meter::new(kind, events);
        meter.pass(text.as_bytes());
        meter.end()
    }

    #[test]
    fn each_wire_counts_every_token_once() {
        let messages = json!({"usage": {"input_tokens": 3, "cache_creation_input_tokens": 5,
            "cache_read_input_tokens": 7, "output_tokens": 11}});
        let responses = json!({"usage": {"input_tokens": 10, "output_tokens": 11,
            "input_tokens_details": {"cached_tokens": 7},
            "output_tokens_details": {"reasoning_tokens": 4}}});
        let chat = json!({"usage": {"prompt_tokens": 10, "completion_tokens": 11,
            "prompt_tokens_details": {"cached_tokens": 7}}});
        let gemini = json!({"usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 8,
            "thoughtsTokenCount": 3, "cachedContentTokenCount": 7}});
        for (kind, value, total) in [
            (Kind::Messages, &messages, 26),
            (Kind::Responses, &responses, 21),
            (Kind::Chat, &chat, 21),
            (Kind::Generate, &gemini, 21),
            (Kind::Generate, &json!([{"x": 1}, gemini.clone()]), 21),
        ] {
            let usage = read(kind, false, &value.to_string()).unwrap();
            assert_eq!(usage.total(), total, "{kind:?}");
            assert_eq!((usage.cache_read, usage.output), (7, 11), "{kind:?}");
        }
    }

    #[test]
    fn a_streamed_answer_tells_in_parts() {
        let messages = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":\
            {\"input_tokens\":25,\"cache_read_input_tokens\":100,\"output_tokens\":1}}}\n\n\
            event: content_block_delta\ndata: {\"delta\":{\"text\":\"\\\"usage\\\": 1\"}}\n\n\
            event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15}}\n\n";
        let usage = read(Kind::Messages, true, messages).unwrap();
        assert_eq!((usage.input, usage.cache_read, usage.output), (25, 100, 15));
        let responses = "data: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\n\
            data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":2,\"output_tokens\":3}}}\n\n";
        assert_eq!(read(Kind::Responses, true, responses).unwrap().total(), 5);
        let chat = "data: {\"choices\":[],\"usage\":null}\n\n\
            data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2,\"completion_tokens\":3}}\n\ndata: [DONE]\n\n";
        assert_eq!(read(Kind::Chat, true, chat).unwrap().total(), 5);
        let gemini = "data: {\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":1}}\r\n\r\n\
            data: {\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":6}}\r\n\r\n";
        assert_eq!(read(Kind::Generate, true, gemini).unwrap().total(), 15);
    }

    #[test]
    fn an_answer_that_says_nothing_is_not_taken_for_free() {
        assert_eq!(read(Kind::Messages, false, "{\"content\":[]}"), None);
        assert_eq!(read(Kind::Messages, false, "{\"usage\": \"none\"}"), None);
        assert_eq!(read(Kind::Chat, true, "data: [DONE]\n\n"), None);
        assert_eq!(
            read(Kind::Plain, false, "{\"usage\":{\"input_tokens\":1}}"),
            None
        );
    }
}
