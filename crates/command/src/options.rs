//! The options of a tool, in compiled form until one is looked for: most words are none.

use std::ops::Deref;
use std::sync::OnceLock;

use crate::codec::{self, Packed};
use crate::model::Opt;

/// A list of options.
#[derive(Clone, Default)]
pub struct Options {
    list: OnceLock<Vec<Opt>>,
    packed: Packed,
    undashed: bool,
}

impl Options {
    /// Options in compiled form; `undashed` as [`Options::undashed`] says it of them.
    pub(crate) fn packed(packed: Packed, undashed: bool) -> Self {
        Self {
            list: OnceLock::new(),
            packed,
            undashed,
        }
    }

    /// Whether a spelling without a dash is among them, so that any word may be an option.
    pub fn undashed(&self) -> bool {
        self.undashed
    }
}

impl From<Vec<Opt>> for Options {
    fn from(list: Vec<Opt>) -> Self {
        let undashed = list
            .iter()
            .flat_map(|option| &option.names)
            .any(|name| !name.starts_with('-'));
        Self {
            list: list.into(),
            packed: Packed::default(),
            undashed,
        }
    }
}

impl Deref for Options {
    type Target = [Opt];

    fn deref(&self) -> &[Opt] {
        // A checksum has vouched for these bytes: what cannot be read was never written.
        self.list
            .get_or_init(|| codec::decode_options(&self.packed).unwrap_or_default())
    }
}

impl<'a> IntoIterator for &'a Options {
    type Item = &'a Opt;
    type IntoIter = std::slice::Iter<'a, Opt>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl PartialEq for Options {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Options {}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}
