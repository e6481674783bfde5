//! Bytes and paths in JSON: a string, or `{"b64": …}` when they are not UTF-8.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use substrate_text::base64;

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Wire<'a> {
    Text(std::borrow::Cow<'a, str>),
    Base64 { b64: String },
}

fn write<S: Serializer>(bytes: &[u8], out: S) -> Result<S::Ok, S::Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Wire::Text(text.into()),
        Err(_) => Wire::Base64 {
            b64: base64::encode(bytes),
        },
    }
    .serialize(out)
}

fn read<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<u8>, D::Error> {
    match Wire::deserialize(input)? {
        Wire::Text(text) => Ok(text.into_owned().into_bytes()),
        Wire::Base64 { b64 } => base64::decode(&b64).ok_or_else(|| D::Error::custom("bad base64")),
    }
}

/// One path.
pub(crate) mod path {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(path: &Path, out: S) -> Result<S::Ok, S::Error> {
        write(path.as_os_str().as_bytes(), out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<PathBuf, D::Error> {
        Ok(OsString::from_vec(read(input)?).into())
    }
}

/// Several paths.
pub(crate) mod paths {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct One(#[serde(with = "super::path")] PathBuf);

    pub(crate) fn serialize<S: Serializer>(paths: &[PathBuf], out: S) -> Result<S::Ok, S::Error> {
        out.collect_seq(paths.iter().cloned().map(One))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        input: D,
    ) -> Result<Vec<PathBuf>, D::Error> {
        let all = Vec::<One>::deserialize(input)?;
        Ok(all.into_iter().map(|One(path)| path).collect())
    }
}

/// One OS string.
pub(crate) mod os {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(text: &OsString, out: S) -> Result<S::Ok, S::Error> {
        write(text.as_bytes(), out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<OsString, D::Error> {
        Ok(OsString::from_vec(read(input)?))
    }
}

/// A list of byte strings.
pub(crate) mod list {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct One(#[serde(serialize_with = "put", deserialize_with = "read")] Vec<u8>);

    fn put<S: Serializer>(bytes: &[u8], out: S) -> Result<S::Ok, S::Error> {
        write(bytes, out)
    }

    pub(crate) fn serialize<S: Serializer, T: AsRef<std::ffi::OsStr>>(
        list: &[T],
        out: S,
    ) -> Result<S::Ok, S::Error> {
        out.collect_seq(list.iter().map(|one| One(one.as_ref().as_bytes().to_vec())))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: From<OsString>>(
        input: D,
    ) -> Result<Vec<T>, D::Error> {
        let all = Vec::<One>::deserialize(input)?;
        Ok(all
            .into_iter()
            .map(|one| OsString::from_vec(one.0).into())
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    struct Both {
        #[serde(with = "path")]
        one: PathBuf,
        #[serde(with = "list")]
        many: Vec<PathBuf>,
    }

    #[test]
    fn every_name_comes_back_exactly() {
        let odd = PathBuf::from(OsString::from_vec(b"a\n\xff\"b".to_vec()));
        let both = Both {
            one: odd.clone(),
            many: vec![odd, PathBuf::from("plain"), PathBuf::new()],
        };
        let text = serde_json::to_string(&both).unwrap();
        assert!(text.contains("b64") && text.contains("\"plain\""), "{text}");
        assert_eq!(serde_json::from_str::<Both>(&text).unwrap(), both);
    }
}
