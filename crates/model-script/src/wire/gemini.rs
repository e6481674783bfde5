//! Gemini's `generateContent`.

use serde_json::{Value, json};

use super::names;
use crate::talk::{Asked, Told, Turn, text_of};

pub fn read(path: &str, body: &Value) -> Asked {
    let config = &body["generationConfig"];
    let model = path.rsplit('/').next().unwrap_or_default();
    let mut asked = Asked {
        tools: names(&body["tools"]),
        stream: path.ends_with(":streamGenerateContent"),
        model: model.split(':').next().unwrap_or_default().to_owned(),
        json: config["responseMimeType"] == "application/json",
        ..Asked::default()
    };
    for content in body["contents"].as_array().into_iter().flatten() {
        let text = text_of(&content["parts"]);
        let parts = content["parts"].as_array().into_iter().flatten();
        let calls = parts
            .filter(|part| part["functionCall"].is_object())
            .count();
        asked.turns.push(match content["role"].as_str() {
            Some("model") if calls > 0 => Turn::Called,
            Some("model") => Turn::Said(text),
            _ => Turn::User(text),
        });
    }
    asked
}

pub fn whole(told: &Told) -> Value {
    let text = told.text.iter().map(|text| json!({ "text": text }));
    let calls = told.calls.iter().map(
        |(id, call)| json!({ "functionCall": { "id": id, "name": call.tool, "args": call.input } }),
    );
    let parts: Vec<Value> = text.chain(calls).collect();
    let (input, output) = (told.usage.input, told.usage.output);
    json!({
        "candidates": [{ "content": { "role": "model", "parts": parts }, "finishReason": "STOP", "index": 0 }],
        "usageMetadata": {
            "promptTokenCount": input, "candidatesTokenCount": output, "totalTokenCount": input + output,
        },
        "modelVersion": "scripted",
    })
}
