//! The shape of a tool model file, before its short notations are read.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A string of the file and where it stands.
pub type Text = Spanned<String>;

/// A whole file.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub tools: Vec<ToolEntry>,
}

/// One tool or subcommand.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolEntry {
    pub names: Spanned<Vec<Text>>,
    pub style: Option<Text>,
    pub options: Option<Spanned<TextOrList<OptionEntry>>>,
    pub operands: Option<Text>,
    pub keys: Option<Keys>,
    #[serde(default)]
    pub usages: Vec<UsageEntry>,
    #[serde(default)]
    pub effects: Vec<Spanned<TextOr<EffectEntry>>>,
    #[serde(default)]
    pub produces: Vec<Spanned<TextOr<ProductEntry>>>,
    pub stdin: Option<Text>,
    pub recursive: Option<Spanned<TextOrList<Text>>>,
    pub inert: Option<Vec<Text>>,
    #[serde(default)]
    pub subcommands: Vec<ToolEntry>,
    #[serde(default)]
    pub inherit: bool,
    #[serde(default)]
    pub service: Option<Text>,
    #[serde(default, rename = "free-text")]
    pub free_text: bool,
    pub language: Option<Text>,
    #[serde(default, rename = "own-work")]
    pub own_work: Vec<Text>,
}

/// An element of `options`.
pub type OptionEntry = Spanned<TextOr<KeyedOption>>;

/// An option whose value is `key=value`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyedOption {
    pub option: Text,
    pub keys: Keys,
}

/// An element of `usages`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageEntry {
    pub operands: Text,
    pub keys: Option<Keys>,
    #[serde(default)]
    pub when: Vec<Text>,
    #[serde(default)]
    pub all: Vec<Text>,
    #[serde(default)]
    pub unless: Vec<Text>,
}

/// An element of `effects` that has a condition.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EffectEntry {
    pub effect: Text,
    #[serde(default)]
    pub when: Vec<Text>,
    #[serde(default)]
    pub all: Vec<Text>,
    #[serde(default)]
    pub unless: Vec<Text>,
}

/// An element of `produces` that has a condition.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProductEntry {
    pub what: Text,
    #[serde(default)]
    pub when: Vec<Text>,
    #[serde(default)]
    pub all: Vec<Text>,
    #[serde(default)]
    pub unless: Vec<Text>,
}

/// Key patterns and what their values mean, in the order of the file, which decides.
pub struct Keys(pub Vec<(String, Text)>);

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeysVisitor;
        impl<'de> Visitor<'de> for KeysVisitor {
            type Value = Keys;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from key patterns to meanings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let mut keys = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    keys.push(entry);
                }
                Ok(Keys(keys))
            }
        }
        deserializer.deserialize_map(KeysVisitor)
    }
}

/// A short notation, or the map that says the same at length.
pub enum TextOr<T> {
    Text(String),
    Map(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for TextOrVisitor<T> {
            type Value = TextOr<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a map")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TextOr::Text(text.to_owned()))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(TextOr::Map)
            }
        }
        deserializer.deserialize_any(TextOrVisitor(PhantomData))
    }
}

/// One string that says it all, or a list.
pub enum TextOrList<T> {
    Text(String),
    List(Vec<T>),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOrList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrListVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for TextOrListVisitor<T> {
            type Value = TextOrList<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list")
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TextOrList::Text(text.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = seq.next_element()? {
                    list.push(item);
                }
                Ok(TextOrList::List(list))
            }
        }
        deserializer.deserialize_any(TextOrListVisitor(PhantomData))
    }
}
