//! Bytes in JSON: a string, or `{"b64": …}` when they are not UTF-8. For `#[serde(with = …)]`: this module
//! for one path or string, [`list`] for several, [`optional`] for one that may be absent.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::base64;

/// Bytes as they stand in JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        write(&self.0, out)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(Either)
    }
}

impl From<Bytes> for OsString {
    fn from(bytes: Bytes) -> Self {
        OsString::from_vec(bytes.0)
    }
}

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
                let decoded = base64::decode(&text);
                bytes = Some(decoded.ok_or_else(|| A::Error::custom("bad base64"))?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        let bytes = bytes.map(Bytes);
        bytes.ok_or_else(|| A::Error::missing_field("b64"))
    }
}

fn write<S: Serializer>(bytes: &[u8], out: S) -> Result<S::Ok, S::Error> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return out.serialize_str(text);
    }
    let mut map = out.serialize_map(Some(1))?;
    map.serialize_entry("b64", &base64::encode(bytes))?;
    map.end()
}

fn read<'de, D: Deserializer<'de>, T: From<OsString>>(input: D) -> Result<T, D::Error> {
    Ok(OsString::from(Bytes::deserialize(input)?).into())
}

/// Writes one path or string.
pub fn serialize<S: Serializer, T: AsRef<OsStr>>(one: &T, out: S) -> Result<S::Ok, S::Error> {
    write(one.as_ref().as_bytes(), out)
}

/// Reads one path or string.
pub fn deserialize<'de, D: Deserializer<'de>, T: From<OsString>>(input: D) -> Result<T, D::Error> {
    read(input)
}

struct One<'a>(&'a OsStr);

impl Serialize for One<'_> {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        write(self.0.as_bytes(), out)
    }
}

/// Several paths or strings.
pub mod list {
    use super::*;

    /// Writes them.
    pub fn serialize<S: Serializer, T: AsRef<OsStr>>(
        list: &[T],
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.collect_seq(list.iter().map(|one| One(one.as_ref())))
    }

    /// Reads them.
    pub fn deserialize<'de, D: Deserializer<'de>, T: From<OsString>>(
        input: D,
    ) -> Result<Vec<T>, D::Error> {
        let all = Vec::<Bytes>::deserialize(input)?.into_iter();
        Ok(all.map(|one| OsString::from(one).into()).collect())
    }
}

/// A path or string that may be absent.
pub mod optional {
    use super::*;

    /// Writes it, or null.
    pub fn serialize<S: Serializer, T: AsRef<OsStr>>(
        one: &Option<T>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        match one {
            Some(one) => out.serialize_some(&One(one.as_ref())),
            None => out.serialize_none(),
        }
    }

    /// Reads it; null is none.
    pub fn deserialize<'de, D: Deserializer<'de>, T: From<OsString>>(
        input: D,
    ) -> Result<Option<T>, D::Error> {
        let one = Option::<Bytes>::deserialize(input)?;
        Ok(one.map(|one| OsString::from(one).into()))
    }
}

/// Pairs of strings, such as an environment.
pub mod pairs {
    use super::*;

    /// Writes them.
    pub fn serialize<S: Serializer>(
        pairs: &[(OsString, OsString)],
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.collect_seq(pairs.iter().map(|(name, value)| (One(name), One(value))))
    }

    /// Reads them.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Vec<(OsString, OsString)>, D::Error> {
        let all = Vec::<(Bytes, Bytes)>::deserialize(input)?.into_iter();
        Ok(all
            .map(|(name, value)| (name.into(), value.into()))
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug, Clone)]
    struct All {
        #[serde(with = "super")]
        one: PathBuf,
        #[serde(with = "super::list")]
        many: Vec<PathBuf>,
        #[serde(with = "super::optional")]
        perhaps: Option<std::ffi::OsString>,
        #[serde(with = "super::pairs")]
        env: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    }

    #[test]
    fn every_name_comes_back_exactly() {
        use std::os::unix::ffi::OsStringExt;
        let odd = std::ffi::OsString::from_vec(b"a\n\xff\"b".to_vec());
        let all = All {
            one: odd.clone().into(),
            many: vec![odd.clone().into(), "plain".into(), PathBuf::new()],
            perhaps: Some(odd.clone()),
            env: vec![("A".into(), odd)],
        };
        let text = serde_json::to_string(&all).unwrap();
        assert!(text.contains("b64") && text.contains("\"plain\""), "{text}");
        assert_eq!(serde_json::from_str::<All>(&text).unwrap(), all);
        let none = All {
            perhaps: None,
            ..all
        };
        let text = serde_json::to_string(&none).unwrap();
        assert_eq!(serde_json::from_str::<All>(&text).unwrap(), none);
        assert!(serde_json::from_str::<super::Bytes>("{\"b64\":\"*\"}").is_err());
        assert!(serde_json::from_str::<super::Bytes>("{}").is_err());
    }
}
