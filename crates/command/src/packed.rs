//! Compiled bytes that are decoded when somebody looks, if at all.

use std::ops::Deref;
use std::sync::Arc;

/// Bytes in compiled form that are shared with whoever keeps the whole, because a copy of what is
/// hardly ever looked at costs more than the look.
#[derive(Clone, Default)]
pub struct Packed {
    whole: Option<Arc<dyn AsRef<[u8]> + Send + Sync>>,
    start: usize,
    length: usize,
}

impl Packed {
    /// A part of bytes, which must lie in them.
    pub fn part(whole: &Arc<dyn AsRef<[u8]> + Send + Sync>, part: &[u8]) -> Self {
        let start = part
            .as_ptr()
            .addr()
            .wrapping_sub((**whole).as_ref().as_ptr().addr());
        Self {
            whole: Some(whole.clone()),
            start,
            length: part.len(),
        }
    }

    /// A copy of bytes.
    pub fn copy(bytes: &[u8]) -> Self {
        let whole: Arc<dyn AsRef<[u8]> + Send + Sync> = Arc::new(bytes.to_vec());
        Self {
            whole: Some(whole),
            start: 0,
            length: bytes.len(),
        }
    }

    /// A part of these bytes, which must lie in them.
    pub(crate) fn inner(&self, part: &[u8]) -> Self {
        self.whole
            .as_ref()
            .map_or_else(Self::default, |whole| Self::part(whole, part))
    }
}

impl Deref for Packed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let whole = self.whole.as_ref().map(|whole| (**whole).as_ref());
        whole
            .and_then(|whole| whole.get(self.start..)?.get(..self.length))
            .unwrap_or_default()
    }
}

impl PartialEq for Packed {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Packed {}

impl std::fmt::Debug for Packed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}
