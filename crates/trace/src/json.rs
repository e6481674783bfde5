//! A small JSON writer into one buffer. Bytes that are not UTF-8 become `{"b64": …}`.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use substrate_text::base64;

/// JSON text in the making; keys and values are added in order.
#[derive(Debug, Default)]
pub struct Json {
    out: Vec<u8>,
}

impl Json {
    /// An empty buffer.
    pub fn new() -> Self {
        Self {
            out: Vec::with_capacity(1024),
        }
    }

    /// The text written so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.out
    }

    /// Gives the text away.
    pub fn into_bytes(self) -> Vec<u8> {
        self.out
    }

    /// Starts an object.
    pub fn open_object(&mut self) -> &mut Self {
        self.separate();
        self.out.push(b'{');
        self
    }

    /// Ends an object.
    pub fn close_object(&mut self) -> &mut Self {
        self.out.push(b'}');
        self
    }

    /// Starts an array.
    pub fn open_array(&mut self) -> &mut Self {
        self.separate();
        self.out.push(b'[');
        self
    }

    /// Ends an array.
    pub fn close_array(&mut self) -> &mut Self {
        self.out.push(b']');
        self
    }

    /// Writes the key of the value that follows.
    pub fn key(&mut self, name: &str) -> &mut Self {
        self.string(name);
        self.out.push(b':');
        self
    }

    /// Writes `null`.
    pub fn null(&mut self) -> &mut Self {
        self.raw("null")
    }

    /// Writes `true` or `false`.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.raw(if value { "true" } else { "false" })
    }

    /// Writes an integer.
    pub fn int(&mut self, value: impl Into<i128>) -> &mut Self {
        let value = value.into();
        // What fits costs a tenth of what the largest numbers do.
        let Ok(mut left) = u64::try_from(value) else {
            return self.display(value);
        };
        let mut digits = [0; 20];
        let mut start = digits.len();
        loop {
            start -= 1;
            digits[start] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        self.separate();
        self.out.extend_from_slice(&digits[start..]);
        self
    }

    /// Writes milliseconds with three decimals.
    pub fn millis(&mut self, value: std::time::Duration) -> &mut Self {
        let micros = value.as_micros();
        self.display(format_args!("{}.{:03}", micros / 1000, micros % 1000))
    }

    /// Writes a string.
    pub fn string(&mut self, value: &str) -> &mut Self {
        self.separate();
        self.out.push(b'"');
        escape(value, &mut self.out);
        self.out.push(b'"');
        self
    }

    /// Writes something whose text needs no escaping, such as an id, as a string.
    pub fn plain(&mut self, value: impl Display) -> &mut Self {
        self.separate();
        self.out.push(b'"');
        // Writing to a Vec cannot fail.
        let _ = write!(self.out, "{value}");
        self.out.push(b'"');
        self
    }

    /// Writes a string, or `{"b64": …}` when the bytes are not UTF-8.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        match std::str::from_utf8(value) {
            Ok(text) => self.string(text),
            Err(_) => {
                self.open_object().key("b64");
                self.out.push(b'"');
                base64::push(value, &mut self.out);
                self.out.push(b'"');
                self.close_object()
            }
        }
    }

    /// Writes an OS string or path as [`Json::bytes`] does.
    pub fn os(&mut self, value: impl AsRef<OsStr>) -> &mut Self {
        self.bytes(value.as_ref().as_bytes())
    }

    /// Writes an array of OS strings or paths.
    pub fn os_array<T: AsRef<OsStr>>(&mut self, values: &[T]) -> &mut Self {
        self.open_array();
        for value in values {
            self.os(value);
        }
        self.close_array()
    }

    /// Writes an array of strings.
    pub fn string_array<T: AsRef<str>>(&mut self, values: &[T]) -> &mut Self {
        self.open_array();
        for value in values {
            self.string(value.as_ref());
        }
        self.close_array()
    }

    fn raw(&mut self, text: &str) -> &mut Self {
        self.separate();
        self.out.extend_from_slice(text.as_bytes());
        self
    }

    fn display(&mut self, value: impl Display) -> &mut Self {
        self.separate();
        let _ = write!(self.out, "{value}");
        self
    }

    /// Every value ends in another byte than these, so the last byte tells
    /// whether a comma is due.
    fn separate(&mut self) {
        if !matches!(self.out.last(), None | Some(b'{' | b'[' | b':')) {
            self.out.push(b',');
        }
    }
}

/// Appends `text` as the inside of a JSON string. All control characters are
/// escaped, C1 too, so that a trace shown on a terminal cannot steer it.
pub fn escape(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let bytes = text.as_bytes();
    let mut done = 0;
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        let (short, control, width) = match byte {
            b'"' | b'\\' => (Some(byte), byte, 1),
            b'\n' => (Some(b'n'), byte, 1),
            b'\t' => (Some(b't'), byte, 1),
            b'\r' => (Some(b'r'), byte, 1),
            0..0x20 | 0x7f => (None, byte, 1),
            0xc2 if matches!(bytes.get(at + 1), Some(0x80..=0x9f)) => (None, bytes[at + 1], 2),
            _ => {
                at += 1;
                continue;
            }
        };
        out.extend_from_slice(&bytes[done..at]);
        match short {
            Some(letter) => out.extend_from_slice(&[b'\\', letter]),
            None => out.extend_from_slice(&[
                b'\\',
                b'u',
                b'0',
                b'0',
                HEX[usize::from(control >> 4)],
                HEX[usize::from(control & 15)],
            ]),
        }
        at += width;
        done = at;
    }
    out.extend_from_slice(&bytes[done..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoded(bytes: &[u8]) -> String {
        let mut json = Json::new();
        json.bytes(bytes);
        String::from_utf8(json.into_bytes()).unwrap()
    }

    #[test]
    fn values_are_separated() {
        let mut json = Json::new();
        json.open_object();
        json.key("a").int(1);
        json.key("b").open_array().close_array();
        json.key("c").open_array().int(-1).null().bool(true);
        json.string("x").open_object().close_object().close_array();
        json.key("d")
            .millis(std::time::Duration::from_micros(1_234_005));
        json.close_object();
        assert_eq!(
            String::from_utf8(json.into_bytes()).unwrap(),
            r#"{"a":1,"b":[],"c":[-1,null,true,"x",{}],"d":1234.005}"#
        );
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            encoded("a\"\\\n\t\r\0\u{1b}\u{7f}\u{9b}é🔒".as_bytes()),
            r#""a\"\\\n\t\r\u0000\u001b\u007f\u009bé🔒""#
        );
    }

    proptest! {
        #[test]
        fn every_byte_string_comes_back_exactly(bytes: Vec<u8>) {
            let value: serde_json::Value = serde_json::from_str(&encoded(&bytes)).unwrap();
            let back = match &value {
                serde_json::Value::String(text) => text.clone().into_bytes(),
                other => base64::decode(other["b64"].as_str().unwrap()).unwrap(),
            };
            prop_assert_eq!(back, bytes);
        }

        #[test]
        fn every_string_comes_back_exactly(text: String) {
            let value: serde_json::Value = serde_json::from_str(&encoded(text.as_bytes())).unwrap();
            prop_assert_eq!(value.as_str().unwrap(), text);
        }
    }
}
