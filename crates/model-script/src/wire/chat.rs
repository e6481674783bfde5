//! OpenAI's chat completions, which many others speak too.

use serde_json::{Value, json};

use super::{event, halves, names};
use crate::talk::{Asked, Told, Turn, text_of};

pub fn read(body: &Value) -> Asked {
    let mut asked = Asked {
        tools: names(&body["tools"]),
        stream: body["stream"] == true,
        model: body["model"].as_str().unwrap_or_default().to_owned(),
        json: body["response_format"]["type"]
            .as_str()
            .is_some_and(|kind| kind.starts_with("json")),
        ..Asked::default()
    };
    for message in body["messages"].as_array().into_iter().flatten() {
        let text = text_of(&message["content"]);
        let calls = message["tool_calls"]
            .as_array()
            .is_some_and(|calls| !calls.is_empty());
        match message["role"].as_str() {
            Some("assistant") if calls => asked.turns.push(Turn::Called),
            Some("assistant") => asked.turns.push(Turn::Said(text)),
            Some("user") => asked.turns.push(Turn::User(text)),
            _ => {}
        }
    }
    asked
}

fn calls(told: &Told) -> Vec<Value> {
    let calls = told.calls.iter().enumerate();
    calls
        .map(|(index, (id, call))| {
            json!({
                "index": index, "id": id, "type": "function",
                "function": { "name": call.tool, "arguments": call.input.to_string() },
            })
        })
        .collect()
}

fn finish(told: &Told) -> &'static str {
    match told.calls.is_empty() {
        true => "stop",
        false => "tool_calls",
    }
}

fn usage(told: &Told) -> Value {
    let (input, output) = (told.usage.input, told.usage.output);
    json!({ "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output })
}

pub fn whole(asked: &Asked, told: &Told) -> Value {
    let mut message = json!({ "role": "assistant", "content": told.text });
    if !told.calls.is_empty() {
        message["tool_calls"] = calls(told).into();
    }
    json!({
        "id": format!("chat_{}", told.id), "object": "chat.completion", "created": 1, "model": asked.model,
        "choices": [{ "index": 0, "message": message, "finish_reason": finish(told) }],
        "usage": usage(told),
    })
}

pub fn events(asked: &Asked, told: &Told) -> Vec<String> {
    let chunk = |delta: Value, finish: Option<&str>| {
        json!({
            "id": format!("chat_{}", told.id), "object": "chat.completion.chunk", "created": 1, "model": asked.model,
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
        })
    };
    let mut events = Vec::new();
    for part in told.text.iter().flat_map(|text| halves(text)) {
        let delta = json!({ "role": "assistant", "content": part });
        events.push(event(None, &chunk(delta, None)));
    }
    if !told.calls.is_empty() {
        let delta = json!({ "role": "assistant", "tool_calls": calls(told) });
        events.push(event(None, &chunk(delta, None)));
    }
    let mut last = chunk(json!({}), Some(finish(told)));
    last["usage"] = usage(told);
    events.push(event(None, &last));
    events.push("data: [DONE]\n\n".to_owned());
    events
}
