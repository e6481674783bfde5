//! Building netlink messages: headers, attributes, nesting, padding.

/// A run of messages under construction.
#[derive(Debug, Default)]
pub struct Messages {
    bytes: Vec<u8>,
    start: usize,
}

/// The request wants an acknowledgement.
pub const ACK: u16 = 0x4;
const REQUEST: u16 = 0x1;
/// Create what is not there.
pub const CREATE: u16 = 0x400;
/// At the end of the list.
pub const APPEND: u16 = 0x800;
const NESTED: u16 = 0x8000;

impl Messages {
    /// Starts a message of this type; `head` is the fixed part of its family.
    pub fn message(&mut self, kind: u16, flags: u16, head: &[u8]) -> &mut Self {
        self.start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes
            .extend_from_slice(&(flags | REQUEST).to_ne_bytes());
        self.bytes.extend_from_slice(&[0; 8]);
        self.bytes.extend_from_slice(head);
        self.close()
    }

    /// Adds an attribute with this value.
    pub fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        self.bytes
            .extend_from_slice(&((value.len() + 4) as u16).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.close()
    }

    /// Adds a big-endian number.
    pub fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attribute(kind, &value.to_be_bytes())
    }

    /// Adds a string with its final zero.
    pub fn string(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    /// Adds an attribute made of what `fill` adds.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&(kind | NESTED).to_ne_bytes());
        fill(self);
        let length = (self.bytes.len() - at) as u16;
        self.bytes[at..at + 2].copy_from_slice(&length.to_ne_bytes());
        self.close()
    }

    /// Pads to the alignment of netlink and writes the length of the open message.
    fn close(&mut self) -> &mut Self {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        let length = (self.bytes.len() - self.start) as u32;
        self.bytes[self.start..self.start + 4].copy_from_slice(&length.to_ne_bytes());
        self
    }

    /// The finished bytes.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_cover_padding_and_nesting() {
        let mut m = Messages::default();
        m.message(7, ACK, &[1, 0, 0, 0]).nest(4, |m| {
            m.string(1, "abc").string(2, "de");
        });
        m.message(8, 0, &[]);
        let bytes = m.finish();
        assert_eq!(bytes[..4], 40u32.to_ne_bytes());
        assert_eq!(bytes[6..8], 5u16.to_ne_bytes());
        assert_eq!(bytes[20..22], 20u16.to_ne_bytes());
        assert_eq!(bytes[22..24], 0x8004u16.to_ne_bytes());
        assert_eq!(bytes[32..34], 7u16.to_ne_bytes());
        assert_eq!(bytes[40..44], 16u32.to_ne_bytes());
        assert_eq!(bytes.len(), 56);
    }
}
