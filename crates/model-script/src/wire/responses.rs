//! OpenAI's Responses.

use serde_json::{Value, json};

use super::{names, typed};
use crate::script::Call;
use crate::talk::{Asked, Told, Turn, text_of};

pub fn read(body: &Value) -> Asked {
    let mut asked = Asked {
        tools: names(&body["tools"]),
        stream: body["stream"] == true,
        model: body["model"].as_str().unwrap_or_default().to_owned(),
        json: body["text"]["format"]["type"] == "json_schema",
        ..Asked::default()
    };
    if let Some(text) = body["input"].as_str() {
        asked.turns.push(Turn::User(text.to_owned()));
    }
    let mut last = String::new();
    for item in body["input"].as_array().into_iter().flatten() {
        let kind = item["type"].as_str().unwrap_or("message");
        if kind == "message" {
            let text = text_of(&item["content"]);
            asked.turns.push(match item["role"].as_str() {
                Some("assistant") => Turn::Said(text),
                _ => Turn::User(text),
            });
        } else if kind.ends_with("_call") {
            // Calls of one turn are items of their own; their ids say which turn it was.
            let id = item["call_id"].as_str().unwrap_or_default();
            let turn = id.rsplit_once('_').map_or(id, |(turn, _)| turn);
            if turn != last {
                asked.turns.push(Turn::Called);
            }
            turn.clone_into(&mut last);
        }
    }
    asked
}

fn items(told: &Told) -> Vec<Value> {
    let text = told.text.iter().map(|text| {
        json!({
            "type": "message", "id": format!("msg_{}", told.id), "role": "assistant", "status": "completed",
            "content": [{ "type": "output_text", "text": text, "annotations": [] }],
        })
    });
    let calls = told.calls.iter().map(|(id, call)| call_item(id, call));
    text.chain(calls).collect()
}

fn call_item(id: &str, call: &Call) -> Value {
    let mut item = match &call.input {
        Value::String(input) => json!({ "type": "custom_tool_call", "input": input }),
        input => json!({ "type": "function_call", "arguments": input.to_string() }),
    };
    item["id"] = json!(format!("fc_{id}"));
    item["call_id"] = json!(id);
    item["name"] = json!(call.tool);
    item["status"] = json!("completed");
    if let Some(namespace) = &call.namespace {
        item["namespace"] = json!(namespace);
    }
    item
}

pub fn whole(asked: &Asked, told: &Told) -> Value {
    json!({
        "id": format!("resp_{}", told.id), "object": "response", "created_at": 1, "status": "completed",
        "model": asked.model, "output": items(told),
        "usage": {
            "input_tokens": told.usage.input, "input_tokens_details": { "cached_tokens": 0 },
            "output_tokens": told.usage.output, "output_tokens_details": { "reasoning_tokens": 0 },
            "total_tokens": told.usage.input + told.usage.output,
        },
    })
}

pub fn events(asked: &Asked, told: &Told) -> Vec<String> {
    let response = whole(asked, told);
    let created = json!({ "id": response["id"], "object": "response", "status": "in_progress" });
    let mut events = vec![typed(
        &json!({ "type": "response.created", "response": created }),
    )];
    for (index, item) in items(told).into_iter().enumerate() {
        let added =
            json!({ "type": "response.output_item.added", "output_index": index, "item": item });
        events.push(typed(&added));
        let done =
            json!({ "type": "response.output_item.done", "output_index": index, "item": item });
        events.push(typed(&done));
    }
    events.push(typed(
        &json!({ "type": "response.completed", "response": response }),
    ));
    events
}
