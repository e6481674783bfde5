//! The environment as far as it changes what the words of a command mean.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};
use serde_json::Value;
use substrate_command::environment::{changes_meaning, is_usual};
use substrate_trace::Redactor;

use super::state_file::{bytes_json, json_bytes};

/// Longer values are told by their hash.
const LONGEST: usize = 1024;
/// More variables are told by one hash.
const MOST: usize = 32;

/// Variables that make programs run, fetch or keep something else than their words say, sorted by name. An
/// approval holds for one such environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meaning(Vec<(Vec<u8>, Vec<u8>)>);

impl Serialize for Meaning {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(out)
    }
}

impl<'de> Deserialize<'de> for Meaning {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(input)?;
        Self::from_json(Some(&value)).ok_or_else(|| D::Error::custom("no list of variables"))
    }
}

impl Meaning {
    /// That of an environment. Variables that most sessions have say something only where they are not as they
    /// were at first.
    pub fn of<'e>(
        environment: impl IntoIterator<Item = (&'e [u8], &'e [u8])>,
        at_first: impl Fn(&[u8]) -> Option<&'e [u8]>,
    ) -> Self {
        let says = |(name, value): &(&[u8], &[u8])| {
            changes_meaning(name, value) && !(is_usual(name) && at_first(name) == Some(value))
        };
        let told = environment.into_iter().filter(says);
        let mut all: Vec<(Vec<u8>, Vec<u8>)> = told
            .map(|(name, value)| (bounded(name), bounded(&unsecret(name, value))))
            .collect();
        all.sort();
        if let Some(rest) = all.get(MOST..).filter(|rest| !rest.is_empty()) {
            let text: Vec<u8> = rest
                .iter()
                .flat_map(|(name, value)| [name, value])
                .flatten()
                .copied()
                .collect();
            let more = format!(
                "{} more, sha256 {}",
                rest.len(),
                substrate_trace::sha256_hex(&text)
            );
            all.truncate(MOST);
            all.push((b"...".to_vec(), more.into_bytes()));
        }
        Self(all)
    }

    /// That of an environment which cannot be read: like no other.
    pub fn unreadable() -> Self {
        let like_no_other = substrate_trace::SpanId::new().to_string().into_bytes();
        Self(vec![(b"(unreadable)".to_vec(), like_no_other)])
    }

    /// Whether nothing changes what words mean.
    pub fn is_plain(&self) -> bool {
        self.0.is_empty()
    }

    /// The variables.
    pub fn variables(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    /// Without the variables that somebody could read of in a text.
    pub fn unsaid(&self, text: &[u8]) -> Self {
        let said = |name: &[u8]| text.windows(name.len()).any(|part| part == name);
        Self(
            self.0
                .iter()
                .filter(|(name, _)| !said(name))
                .cloned()
                .collect(),
        )
    }

    pub(crate) fn to_json(&self) -> Value {
        let pair = |(name, value): &(Vec<u8>, Vec<u8>)| {
            Value::Array(vec![bytes_json(name), bytes_json(value)])
        };
        Value::Array(self.0.iter().map(pair).collect())
    }

    /// Of an entry from before there was such a thing, the plain one.
    pub(crate) fn from_json(value: Option<&Value>) -> Option<Self> {
        let Some(value) = value else {
            return Some(Self::default());
        };
        let pair = |entry: &Value| Some((json_bytes(entry.get(0)?)?, json_bytes(entry.get(1)?)?));
        Some(Self(
            value.as_array()?.iter().map(pair).collect::<Option<_>>()?,
        ))
    }
}

/// A value as it may be kept and shown: one with a secret in it by its hash.
fn unsecret<'v>(name: &[u8], value: &'v [u8]) -> Cow<'v, [u8]> {
    let setting = [name, b"=", value].concat();
    let redactor = Redactor::new::<&[u8]>(&[]);
    match redactor.line(&setting) {
        Cow::Borrowed(_) => Cow::Borrowed(value),
        Cow::Owned(_) => {
            let hash = substrate_trace::sha256_hex(value);
            Cow::Owned(format!("{}, sha256 {hash}", substrate_trace::MARK).into_bytes())
        }
    }
}

fn bounded(text: &[u8]) -> Vec<u8> {
    match text.len() <= LONGEST {
        true => text.to_vec(),
        false => format!(
            "{} bytes, sha256 {}",
            text.len(),
            substrate_trace::sha256_hex(text)
        )
        .into_bytes(),
    }
}

/// Where the environment of a request is found out, once a person's word matters.
#[derive(Clone, Copy)]
pub enum Around<'a> {
    /// There is none, or it is nobody's business.
    Nothing,
    /// Here.
    Asked(&'a dyn Fn() -> Meaning),
}

impl Around<'_> {
    /// What it is.
    pub fn meaning(self) -> Meaning {
        match self {
            Self::Nothing => Meaning::default(),
            Self::Asked(find) => find(),
        }
    }
}

impl fmt::Debug for Around<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Asked(_) => "Asked",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(environment: &[(&str, &str)], at_first: &[(&str, &'static str)]) -> Vec<String> {
        let bytes = environment
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let first = |name: &[u8]| {
            let known = at_first.iter().find(|(known, _)| known.as_bytes() == name);
            known.map(|(_, value)| value.as_bytes())
        };
        let meaning = Meaning::of(bytes, first);
        let text = |(name, value): (&[u8], &[u8])| {
            format!(
                "{}={}",
                String::from_utf8_lossy(name),
                String::from_utf8_lossy(value)
            )
        };
        meaning.variables().map(text).collect()
    }

    #[test]
    fn what_changes_the_meaning_counts_and_the_usual_only_when_it_changed() {
        assert_eq!(
            of(
                &[
                    ("LANG", "C"),
                    ("PATH", "/usr/bin"),
                    ("GIT_SSH_COMMAND", "x"),
                    ("GIT_CONFIG_COUNT", "1")
                ],
                &[("PATH", "/usr/bin")]
            ),
            ["GIT_CONFIG_COUNT=1", "GIT_SSH_COMMAND=x"]
        );
        assert_eq!(
            of(&[("PATH", "/tmp:/usr/bin")], &[("PATH", "/usr/bin")]),
            ["PATH=/tmp:/usr/bin"]
        );
    }

    #[test]
    fn it_is_bounded_and_still_tells_one_from_another() {
        let long = "x".repeat(5000);
        let other = format!("{long}y");
        let told = of(&[("LD_PRELOAD", &long)], &[]);
        assert!(told[0].len() < 120 && told != of(&[("LD_PRELOAD", &other)], &[]));
        let names: Vec<String> = (0..1000).map(|n| format!("GIT_CONFIG_KEY_{n}")).collect();
        let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "a")).collect();
        let told = of(&many, &[]);
        assert_eq!(told.len(), MOST + 1);
        let mut changed = many.clone();
        changed[999].1 = "b";
        assert_ne!(told, of(&changed, &[]));
    }

    #[test]
    fn it_survives_being_written_down() {
        let meaning = Meaning(vec![(b"A\xff".to_vec(), b"b".to_vec())]);
        assert_eq!(Meaning::from_json(Some(&meaning.to_json())), Some(meaning));
        assert_eq!(Meaning::from_json(None), Some(Meaning::default()));
        assert_eq!(Meaning::from_json(Some(&Value::from("x"))), None);
        assert_ne!(Meaning::unreadable(), Meaning::unreadable());
    }
}
