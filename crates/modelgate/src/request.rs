//! What a request asks for: read whole before it leaves, and forwarded as it was read.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};

use crate::wire::Kind;

/// Longest body of a request; providers take less.
pub(crate) const LONGEST_BODY: usize = 32 << 20;
/// Most parts of a body: each takes many times the two bytes that it may be written with.
const MOST_PARTS: usize = 1 << 20;
/// A long text without a space is a picture or a document, and costs less than its length.
const BINARY: usize = 4096;
const TOKENS_OF_BINARY: u64 = 1600;

/// What a request asks for.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The body as it leaves.
    pub body: Vec<u8>,
    /// The same, understood.
    pub value: Value,
    /// The model, where the request names one.
    pub model: Option<String>,
    /// What it may cost at most.
    pub most: u64,
}

/// What was understood of a body.
pub(crate) struct Understood {
    value: Value,
    model: Option<String>,
    most: u64,
    rewritten: Option<Vec<u8>>,
}

impl Understood {
    /// With the body that it was read from.
    pub fn of(self, body: Vec<u8>) -> Asked {
        Asked {
            body: self.rewritten.unwrap_or(body),
            value: self.value,
            model: self.model,
            most: self.most,
        }
    }
}

/// Reads the body of a request. `longest_answer` counts where it does not say how long its answer may be.
pub(crate) fn read(
    kind: Kind,
    path: &str,
    body: &[u8],
    longest_answer: u64,
) -> Result<Understood, String> {
    if memchr::memchr3_iter(b',', b'[', b'{', body)
        .nth(MOST_PARTS)
        .is_some()
    {
        return Err("its body has too many parts".to_owned());
    }
    let strict: Strict =
        serde_json::from_slice(body).map_err(|error| format!("its body is no JSON: {error}"))?;
    let mut value = strict.0;
    if !value.is_object() {
        return Err("its body is no JSON object".to_owned());
    }
    let most = match kind.costs() {
        true => tokens(&value).saturating_add(longest(kind, &value).unwrap_or(longest_answer)),
        false => 0,
    };
    let rewritten = kind == Kind::Chat && ask_for_usage(&mut value);
    Ok(Understood {
        model: model(kind, path, &value),
        rewritten: rewritten.then(|| value.to_string().into_bytes()),
        value,
        most,
    })
}

/// Chat completions say what a streamed answer cost only when asked to.
fn ask_for_usage(value: &mut Value) -> bool {
    let streamed = value.get("stream") == Some(&Value::Bool(true));
    if !streamed || value.pointer("/stream_options/include_usage") == Some(&Value::Bool(true)) {
        return false;
    }
    match value.get_mut("stream_options") {
        Some(Value::Object(options)) => {
            options.insert("include_usage".to_owned(), Value::Bool(true));
        }
        _ => value["stream_options"] = json!({"include_usage": true}),
    }
    true
}

fn model(kind: Kind, path: &str, value: &Value) -> Option<String> {
    let named = match kind {
        Kind::Generate => path.rsplit('/').next()?.split(':').next(),
        _ => value.get("model").and_then(Value::as_str),
    };
    named.map(|name| name.chars().take(100).collect())
}

/// How long the answer may become, in tokens.
fn longest(kind: Kind, value: &Value) -> Option<u64> {
    let number = |pointer: &str| value.pointer(pointer).and_then(Value::as_u64);
    match kind {
        Kind::Messages => number("/max_tokens"),
        Kind::Responses => number("/max_output_tokens"),
        Kind::Chat => {
            let answers = number("/n").unwrap_or(1);
            let one = number("/max_completion_tokens").or_else(|| number("/max_tokens"))?;
            Some(one.saturating_mul(answers))
        }
        Kind::Generate => {
            let answers = number("/generationConfig/candidateCount").unwrap_or(1);
            Some(number("/generationConfig/maxOutputTokens")?.saturating_mul(answers))
        }
        Kind::Plain => None,
    }
}

/// About how many tokens a request is: four bytes are one, which is the usual measure.
fn tokens(value: &Value) -> u64 {
    fn bytes(value: &Value) -> u64 {
        match value {
            Value::String(text) if is_binary(text) => TOKENS_OF_BINARY * 4 + text.len() as u64 / 25,
            Value::String(text) => text.len() as u64 + 2,
            Value::Array(all) => all.iter().map(bytes).sum::<u64>() + 1,
            Value::Object(all) => all
                .iter()
                .map(|(key, one)| key.len() as u64 + bytes(one))
                .sum(),
            _ => 4,
        }
    }
    bytes(value).div_ceil(4)
}

fn is_binary(text: &str) -> bool {
    let start = &text.as_bytes()[..text.len().min(BINARY)];
    start.len() == BINARY && !start.iter().any(u8::is_ascii_whitespace)
}

/// JSON in which no key comes twice: of two, one reader takes the first and another the last.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Strict, D::Error> {
        input.deserialize_any(Reader).map(Strict)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut input: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Strict(one)) = input.next_element()? {
            all.push(one);
        }
        Ok(Value::Array(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut input: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some((key, Strict(one))) = input.next_entry::<String, Strict>()? {
            if all.insert(key, one).is_some() {
                return Err(A::Error::custom("a key comes twice"));
            }
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn asked(kind: Kind, body: &Value) -> Asked {
        read(
            kind,
            "/v1beta/models/g-1:generateContent",
            body.to_string().as_bytes(),
            1000,
        )
        .unwrap()
        .of(body.to_string().into_bytes())
    }

    #[test]
    fn the_most_that_a_request_may_cost_is_known_beforehand() {
        let text = "word ".repeat(400);
        for (kind, body, longest) in [
            (
                Kind::Messages,
                json!({"max_tokens": 50, "messages": [text]}),
                50,
            ),
            (
                Kind::Responses,
                json!({"max_output_tokens": 60, "input": text}),
                60,
            ),
            (
                Kind::Chat,
                json!({"max_tokens": 10, "n": 3, "messages": [text]}),
                30,
            ),
            (Kind::Chat, json!({"messages": [text]}), 1000),
            (
                Kind::Generate,
                json!({"generationConfig": {"maxOutputTokens": 9}, "contents": [text]}),
                9,
            ),
        ] {
            let most = asked(kind, &body).most;
            assert!(
                (longest + 500..longest + 540).contains(&most),
                "{kind:?} {most}"
            );
        }
        let picture = json!({"max_tokens": 0, "data": "A".repeat(1 << 20)});
        assert!(asked(Kind::Messages, &picture).most < 20_000);
        assert_eq!(asked(Kind::Plain, &json!({"x": text})).most, 0);
    }

    #[test]
    fn usage_is_asked_for_where_it_would_not_come() {
        let asks = |body: Value| {
            let asked = asked(Kind::Chat, &body);
            let sent: Value = serde_json::from_slice(&asked.body).unwrap();
            sent.pointer("/stream_options/include_usage").cloned()
        };
        assert_eq!(asks(json!({"stream": true})), Some(json!(true)));
        assert_eq!(
            asks(json!({"stream": true, "stream_options": null})),
            Some(json!(true))
        );
        let off = json!({"stream": true, "stream_options": {"include_usage": false, "x": 1}});
        assert_eq!(asks(off), Some(json!(true)));
        assert_eq!(asks(json!({"stream": false})), None);
        let body = br#"{ "stream":true, "stream_options":{"include_usage":true}, "t":1.0 }"#;
        let asked = read(Kind::Chat, "", body, 0).unwrap().of(body.to_vec());
        assert_eq!(asked.body, body, "left as it was");
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for body in [
            r#"{"tools":[{"type":"web_fetch"}],"tools":[]}"#,
            r#"{"a":{"b":1,"b":2}}"#,
            r#"{"a":1}{"b":2}"#,
            r#"[1]"#,
            "",
            "{\"a\":\u{0}}",
        ] {
            assert!(
                read(Kind::Messages, "", body.as_bytes(), 0).is_err(),
                "{body}"
            );
        }
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert!(
            read(
                Kind::Messages,
                "",
                format!("{{\"a\":{deep}}}").as_bytes(),
                0
            )
            .is_err()
        );
    }

    #[test]
    fn the_model_is_named_by_the_request() {
        assert_eq!(asked(Kind::Generate, &json!({})).model.unwrap(), "g-1");
        assert_eq!(
            asked(Kind::Messages, &json!({"model": "c-2"}))
                .model
                .unwrap(),
            "c-2"
        );
        assert_eq!(asked(Kind::Messages, &json!({"model": 3})).model, None);
    }

    proptest! {
        #[test]
        fn any_body_may_come(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(Kind::Chat, "/", &bytes, 10);
        }
    }
}
