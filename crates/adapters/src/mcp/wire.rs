//! JSON-RPC, one message a line.

use std::io::{self, BufRead, Read};

use serde_json::{Map, Value, json};

/// Longer than any message that makes sense.
const LONGEST: u64 = 4 << 20;

/// Something that a client said.
#[derive(Debug, PartialEq)]
pub enum Message {
    /// It wants an answer.
    Request {
        /// By this name.
        id: Value,
        /// To what.
        method: String,
        /// With what.
        params: Map<String, Value>,
    },
    /// It wants none.
    Notification {
        /// What it tells.
        method: String,
        /// With what.
        params: Map<String, Value>,
    },
    /// It answers something.
    Answer,
}

/// Why there is no result.
#[derive(Debug, PartialEq)]
pub struct Refusal {
    code: i32,
    message: String,
}

impl Refusal {
    fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

/// The next line: `None` at the end, `Some(None)` for one that is too long, of which nothing is kept.
pub fn line(input: &mut impl BufRead) -> io::Result<Option<Option<Vec<u8>>>> {
    let mut line = Vec::new();
    input.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.ends_with(b"\n") || (line.len() as u64) < LONGEST {
        return Ok(Some(Some(line)));
    }
    loop {
        line.clear();
        input.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
        if line.is_empty() || line.ends_with(b"\n") {
            return Ok(Some(None));
        }
    }
}

/// Understands a line.
pub fn read(line: &[u8]) -> Result<Message, Refusal> {
    let value: Value =
        serde_json::from_slice(line).map_err(|error| Refusal::new(-32700, error.to_string()))?;
    let wrong = || Refusal::new(-32600, "this is no request");
    let Value::Object(mut fields) = value else {
        return Err(wrong());
    };
    if fields.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(wrong());
    }
    let Some(method) = fields
        .get("method")
        .and_then(Value::as_str)
        .map(str::to_owned)
    else {
        let answer = fields.contains_key("result") || fields.contains_key("error");
        return if answer {
            Ok(Message::Answer)
        } else {
            Err(wrong())
        };
    };
    let params = match fields.remove("params") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(params)) => params,
        Some(_) => return Err(Refusal::new(-32602, "`params` must be an object")),
    };
    match fields.remove("id") {
        None => Ok(Message::Notification { method, params }),
        Some(id @ (Value::String(_) | Value::Number(_))) => {
            Ok(Message::Request { id, method, params })
        }
        Some(_) => Err(wrong()),
    }
}

pub fn success(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

pub fn failure(id: &Value, refusal: &Refusal) -> Value {
    let error = json!({ "code": refusal.code, "message": refusal.message });
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}

pub fn progress(token: &Value, seconds: u64) -> Value {
    let params =
        json!({ "progressToken": token, "progress": seconds, "message": "it is still running" });
    json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })
}

pub fn unknown_method(method: &str) -> Refusal {
    let method: String = method.chars().take(64).collect();
    Refusal::new(
        -32601,
        format!("there is no method `{}`", method.escape_debug()),
    )
}

pub fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new(-32602, message)
}

pub fn busy() -> Refusal {
    Refusal::new(-32000, "too many calls at once; wait for one of them")
}

pub fn too_long() -> Refusal {
    Refusal::new(-32600, format!("a message has more than {LONGEST} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_apart() {
        let request = read(br#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#).unwrap();
        assert!(matches!(request, Message::Request { .. }));
        let told = read(br#"{"jsonrpc":"2.0","method":"x","params":{}}"#).unwrap();
        assert!(matches!(told, Message::Notification { .. }));
        assert_eq!(
            read(br#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
            Ok(Message::Answer)
        );
        for wrong in [
            "",
            "[]",
            "7",
            "{}",
            "{\"jsonrpc\":\"1.0\",\"method\":\"x\"}",
            "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"x\"}",
            "{\"jsonrpc\":\"2.0\",\"id\":[],\"method\":\"x\"}",
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"x\",\"params\":[]}",
        ] {
            assert!(read(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let long = vec![b'x'; usize::try_from(LONGEST).unwrap() + 10];
        let mut input: &[u8] = &[&long[..], b"\n{}\n", b"rest"].concat();
        assert_eq!(line(&mut input).unwrap(), Some(None));
        assert_eq!(line(&mut input).unwrap(), Some(Some(b"{}\n".to_vec())));
        assert_eq!(line(&mut input).unwrap(), Some(Some(b"rest".to_vec())));
        assert_eq!(line(&mut input).unwrap(), None);
    }
}
