//! Bytes in JSON, with a schema.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use substrate_text::wire;

/// A string, or `{"b64": …}` when it is not UTF-8.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(wire::Bytes);

impl Bytes {
    /// The bytes themselves.
    pub fn as_slice(&self) -> &[u8] {
        &self.0.0
    }
}

impl From<OsString> for Bytes {
    fn from(text: OsString) -> Bytes {
        Bytes(wire::Bytes(text.into_vec()))
    }
}

impl From<&str> for Bytes {
    fn from(text: &str) -> Bytes {
        Bytes(wire::Bytes(text.as_bytes().to_vec()))
    }
}

impl From<Bytes> for OsString {
    fn from(bytes: Bytes) -> OsString {
        bytes.0.into()
    }
}

impl JsonSchema for Bytes {
    fn schema_name() -> Cow<'static, str> {
        "Bytes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A string, or its bytes in base64 where it is not UTF-8.",
            "oneOf": [
                { "type": "string" },
                {
                    "type": "object",
                    "required": ["b64"],
                    "properties": { "b64": { "type": "string", "contentEncoding": "base64" } }
                }
            ]
        })
    }
}
