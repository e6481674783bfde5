//! Fields of what a stranger wrote: each is there and of the right kind, or the whole makes no sense.

use std::path::PathBuf;

use serde_json::{Map, Value};

/// Names that clients make up are short; more of them is somebody's play.
const LONGEST_NAME: usize = 256;

/// A text that has to be there.
pub fn text<'a>(fields: &'a Map<String, Value>, key: &str) -> Result<&'a str, String> {
    optional(fields, key)?.ok_or_else(|| format!("`{key}` is missing"))
}

/// A text that may be missing, or null.
pub fn optional<'a>(fields: &'a Map<String, Value>, key: &str) -> Result<Option<&'a str>, String> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.contains('\0') => {
            Err(format!("`{key}` holds a zero byte"))
        }
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{key}` is no text")),
    }
}

/// A name of the client's, which only the trace holds; one that is no name is as good as none.
pub fn name(fields: &Map<String, Value>, key: &str) -> Option<String> {
    let name = fields.get(key)?.as_str()?;
    (!name.is_empty() && name.len() <= LONGEST_NAME).then(|| name.to_owned())
}

/// A text or a list of texts, of which there must be one.
pub fn texts<'a>(fields: &'a Map<String, Value>, key: &str) -> Result<Vec<&'a str>, String> {
    match fields.get(key) {
        Some(Value::Array(items)) if !items.is_empty() => items
            .iter()
            .map(|item| match item.as_str() {
                Some(text) if !text.contains('\0') => Ok(text),
                _ => Err(format!("`{key}` holds something that is no text")),
            })
            .collect(),
        _ => Ok(vec![text(fields, key)?]),
    }
}

/// An object that has to be there; some clients write it as a text of JSON.
pub fn object(fields: &Map<String, Value>, key: &str) -> Result<Map<String, Value>, String> {
    let wrong = || format!("`{key}` is no object");
    match fields.get(key) {
        Some(Value::Object(object)) => Ok(object.clone()),
        Some(Value::String(text)) => serde_json::from_str(text).map_err(|_| wrong()),
        None | Some(Value::Null) => Ok(Map::new()),
        Some(_) => Err(wrong()),
    }
}

/// A directory that the client says it is in.
pub fn directory(fields: &Map<String, Value>, key: &str) -> Result<Option<PathBuf>, String> {
    match optional(fields, key)? {
        None | Some("") => Ok(None),
        Some(path) if path.starts_with('/') => Ok(Some(PathBuf::from(path))),
        Some(_) => Err(format!("`{key}` is no absolute path")),
    }
}
