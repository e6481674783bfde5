//! Anthropic's Messages.

use serde_json::{Value, json};

use super::{halves, names, typed};
use crate::talk::{Asked, Told, Turn, text_of};

pub fn read(body: &Value) -> Asked {
    let mut asked = Asked {
        tools: names(&body["tools"]),
        stream: body["stream"] == true,
        model: body["model"].as_str().unwrap_or_default().to_owned(),
        json: body["output_config"]["format"].is_object() || body["output_format"].is_object(),
        ..Asked::default()
    };
    for message in body["messages"].as_array().into_iter().flatten() {
        let text = text_of(&message["content"]);
        let parts = message["content"].as_array().into_iter().flatten();
        let calls = parts.filter(|part| part["type"] == "tool_use").count();
        asked.turns.push(match message["role"].as_str() {
            Some("assistant") if calls > 0 => Turn::Called,
            Some("assistant") => Turn::Said(text),
            _ => Turn::User(text),
        });
    }
    asked
}

fn blocks(told: &Told) -> Vec<Value> {
    let text = told
        .text
        .iter()
        .map(|text| json!({ "type": "text", "text": text }));
    let calls = told.calls.iter().map(|(id, call)| {
        json!({ "type": "tool_use", "id": format!("toolu_{id}"), "name": call.tool, "input": call.input })
    });
    text.chain(calls).collect()
}

fn stop(told: &Told) -> &'static str {
    match told.calls.is_empty() {
        true => "end_turn",
        false => "tool_use",
    }
}

pub fn whole(asked: &Asked, told: &Told) -> Value {
    json!({
        "id": format!("msg_{}", told.id), "type": "message", "role": "assistant", "model": asked.model,
        "content": blocks(told), "stop_reason": stop(told), "stop_sequence": null,
        "usage": { "input_tokens": told.usage.input, "output_tokens": told.usage.output },
    })
}

pub fn events(asked: &Asked, told: &Told) -> Vec<String> {
    let mut begin = whole(asked, told);
    begin["content"] = json!([]);
    begin["stop_reason"] = Value::Null;
    begin["usage"]["output_tokens"] = json!(1);
    let mut events = vec![typed(&json!({ "type": "message_start", "message": begin }))];
    for (index, block) in blocks(told).into_iter().enumerate() {
        events.extend(block_events(index, block));
    }
    events.push(typed(&json!({
        "type": "message_delta", "delta": { "stop_reason": stop(told), "stop_sequence": null },
        "usage": { "output_tokens": told.usage.output },
    })));
    events.push(typed(&json!({ "type": "message_stop" })));
    events
}

fn block_events(index: usize, mut block: Value) -> Vec<String> {
    let (field, kind, key) = match block["type"] == "text" {
        true => ("text", "text_delta", "text"),
        false => ("input", "input_json_delta", "partial_json"),
    };
    let whole = match &block[field] {
        Value::String(text) => text.clone(),
        input => input.to_string(),
    };
    block[field] = if field == "text" {
        json!("")
    } else {
        json!({})
    };
    let start = json!({ "type": "content_block_start", "index": index, "content_block": block });
    let mut events = vec![typed(&start)];
    for part in halves(&whole) {
        let delta = json!({ "type": kind, key: part });
        events.push(typed(
            &json!({ "type": "content_block_delta", "index": index, "delta": delta }),
        ));
    }
    events.push(typed(
        &json!({ "type": "content_block_stop", "index": index }),
    ));
    events
}
