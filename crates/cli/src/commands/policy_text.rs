//! A policy with everything resolved, as text.

use serde_json::Value;

/// A policy's merged document as block YAML.
pub fn document_text(document: &str) -> String {
    let document: Value = serde_json::from_str(document).unwrap_or(Value::Null);
    let mut text = String::new();
    yaml(&document, 0, &mut text);
    text
}

/// JSON as block YAML; texts are quoted, which is always right.
pub fn yaml(value: &Value, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(entries) => {
            for (key, value) in entries {
                text.push_str(&format!("{indent}{key}:"));
                nested(value, depth, text);
            }
        }
        Value::Array(items) => {
            for item in items {
                match item {
                    Value::Object(entries) => {
                        let inner: Vec<String> = entries
                            .iter()
                            .map(|(key, value)| format!("{key}: {value}"))
                            .collect();
                        text.push_str(&format!("{indent}- {{{}}}\n", inner.join(", ")));
                    }
                    item => text.push_str(&format!("{indent}- {item}\n")),
                }
            }
        }
        value => text.push_str(&format!("{indent}{value}\n")),
    }
}

fn nested(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(entries) if entries.is_empty() => text.push_str(" {}\n"),
        Value::Array(items) if items.is_empty() => text.push_str(" []\n"),
        Value::Object(_) | Value::Array(_) => {
            text.push('\n');
            yaml(value, depth + 1, text);
        }
        value => text.push_str(&format!(" {value}\n")),
    }
}
