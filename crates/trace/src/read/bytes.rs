//! Deserializers for bytes (a string or `{"b64": …}`), paths and open word sets.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use crate::Level;
use substrate_text::base64;

/// Bytes as they stand in JSON.
pub(crate) struct Bytes(pub Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or {\"b64\": …}")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Bytes, E> {
                Ok(Bytes(text.as_bytes().to_vec()))
            }

            fn visit_string<E: Error>(self, text: String) -> Result<Bytes, E> {
                Ok(Bytes(text.into_bytes()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Bytes, A::Error> {
                let mut bytes = None;
                while let Some(key) = map.next_key::<String>()? {
                    if key == "b64" {
                        let text: String = map.next_value()?;
                        bytes = Some(
                            base64::decode(&text).ok_or_else(|| A::Error::custom("bad base64"))?,
                        );
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                bytes
                    .map(Bytes)
                    .ok_or_else(|| A::Error::missing_field("b64"))
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl From<Bytes> for OsString {
    fn from(bytes: Bytes) -> Self {
        OsString::from_vec(bytes.0)
    }
}

/// One path.
pub(crate) mod path {
    use super::*;
    use std::path::PathBuf;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<PathBuf, D::Error> {
        Ok(OsString::from(Bytes::deserialize(d)?).into())
    }
}

/// A list of paths.
pub(crate) mod paths {
    use super::*;
    use std::path::PathBuf;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<PathBuf>, D::Error> {
        let all = Vec::<Bytes>::deserialize(d)?;
        Ok(all.into_iter().map(|b| OsString::from(b).into()).collect())
    }
}

/// A level; one that this version does not know counts as none, the smallest claim.
pub(crate) fn level<'de, D: Deserializer<'de>>(d: D) -> Result<Level, D::Error> {
    Ok(Level::from_word(&String::deserialize(d)?).unwrap_or(Level::None))
}

/// Bytes that may be absent.
pub(crate) fn optional_bytes<'de, D: Deserializer<'de>>(
    d: D,
) -> Result<Option<OsString>, D::Error> {
    Ok(Option::<Bytes>::deserialize(d)?.map(OsString::from))
}
