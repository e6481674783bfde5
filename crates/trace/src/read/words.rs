//! Words and ids of the trace in other documents of ours, by serde.

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

use crate::{Answer, Level, Mode, SessionId, SpanId, WorldId};

/// A level; one that this version does not know counts as none, the smallest claim.
pub(crate) fn level<'de, D: Deserializer<'de>>(input: D) -> Result<Level, D::Error> {
    Ok(Level::from_word(&String::deserialize(input)?).unwrap_or(Level::None))
}

macro_rules! by_text {
    ($($name:ty, $read:expr;)+) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                let text = String::deserialize(input)?;
                let read: fn(&str) -> Option<$name> = $read;
                read(&text).ok_or_else(|| D::Error::custom(format_args!("{text:?} is none that is known")))
            }
        }
    )+};
}

by_text! {
    Level, Level::from_word;
    Mode, Mode::from_word;
    Answer, Answer::from_word;
    WorldId, |text| text.parse().ok();
    SpanId, |text| text.parse().ok();
    SessionId, |text| text.parse().ok();
}
