//! What a terminal says by itself when programs ask it how it is and where its cursor stands.

/// Listens to what is shown and answers as terminals do.
#[derive(Default)]
pub struct Replies {
    /// The sequence that is being read, after its escape.
    sequence: Option<Vec<u8>>,
    cursor: (u16, u16),
}

impl Replies {
    /// Hears what a program shows; the answer goes back as if it had been typed.
    pub fn to(&mut self, shown: &[u8]) -> Vec<u8> {
        let mut answer = Vec::new();
        for &byte in shown {
            match (&mut self.sequence, byte) {
                (_, 0x1b) => self.sequence = Some(Vec::new()),
                (None, _) => {}
                (Some(sequence), b'[') if sequence.is_empty() => sequence.push(byte),
                (Some(sequence), b'0'..=b'9' | b';' | b'?') if sequence.first() == Some(&b'[') => {
                    sequence.push(byte);
                }
                (Some(_), _) => {
                    let sequence = self.sequence.take().unwrap_or_default();
                    answer.extend(self.obey(sequence.get(1..).unwrap_or_default(), byte));
                }
            }
        }
        answer
    }

    fn obey(&mut self, parameters: &[u8], last: u8) -> Vec<u8> {
        let text = String::from_utf8_lossy(parameters);
        let mut numbers = text.split(';').map(|number| number.parse().unwrap_or(1));
        match (last, text.as_ref()) {
            (b'H', _) => {
                let mut number = || numbers.next().unwrap_or(1);
                self.cursor = (number(), number());
                Vec::new()
            }
            (b'n', "5") => b"\x1b[0n".to_vec(),
            (b'n', "6") => format!("\x1b[{};{}R", self.cursor.0, self.cursor.1).into_bytes(),
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_where_it_was_put() {
        let mut replies = Replies::default();
        assert_eq!(replies.to(b"text\x1b[5n\x1b[31m"), b"\x1b[0n");
        assert_eq!(replies.to(b"\x1b7\x1b[?6l\x1b[3;4"), b"");
        assert_eq!(replies.to(b"2H\x1b[6n\x1b8"), b"\x1b[3;42R");
    }
}
