//! What programs have switched on at the terminal that their output is relayed to, so that a
//! question can be put in between and everything be as before afterwards.

use std::os::fd::AsFd;
use std::time::Duration;

use substrate_sys::terminal::{self, Modes, Size};

/// Modes that would garble a question or its answer: the cursor keys of full-screen programs, the
/// mouse, reports of focus and of pastes.
const ON: [u16; 11] = [1, 9, 1000, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004];
/// The ways to ask for a screen beside the one that scrolls.
const OTHER_SCREEN: [u16; 3] = [47, 1047, 1049];
/// The cursor, which is there unless somebody hides it.
const CURSOR: u16 = 25;
/// Longer sequences are none of those that are looked for.
const LONGEST: usize = 64;

/// Ends whatever string or sequence was left open, which would swallow the question, and undoes
/// what would hide it: character sets, colours, insertion, a scrolling region, rows that do not wrap.
const FIT: &str = "\x18\x1b\\\x0f\x1b(B\x1b[0m\x1b[4l\x1b[?6l\x1b[?7h\x1b[r";

/// Follows what is shown on a terminal.
#[derive(Debug, Default)]
pub struct Display {
    reading: Reading,
    on: Vec<u16>,
    other_screen: bool,
    cursor_hidden: bool,
}

#[derive(Debug, Default)]
enum Reading {
    #[default]
    Text,
    Escape,
    Control(Vec<u8>),
}

impl Display {
    /// Takes note of what is about to be shown.
    pub fn saw(&mut self, mut bytes: &[u8]) {
        while let Some((&first, rest)) = bytes.split_first() {
            if matches!(self.reading, Reading::Text) {
                let Some(at) = bytes.iter().position(|&byte| byte == 0x1b) else {
                    return;
                };
                self.reading = Reading::Escape;
                bytes = bytes.get(at + 1..).unwrap_or_default();
                continue;
            }
            self.read(first);
            bytes = rest;
        }
    }

    fn read(&mut self, byte: u8) {
        self.reading = match std::mem::take(&mut self.reading) {
            Reading::Text => Reading::Text,
            _ if byte == 0x1b => Reading::Escape,
            Reading::Escape if byte == b'[' => Reading::Control(Vec::new()),
            Reading::Escape => {
                if byte == b'c' {
                    *self = Self::default();
                }
                Reading::Text
            }
            Reading::Control(mut text) => match byte {
                0x20..=0x3f if text.len() < LONGEST => {
                    text.push(byte);
                    Reading::Control(text)
                }
                b'h' | b'l' => {
                    self.set(&text, byte == b'h');
                    Reading::Text
                }
                _ => Reading::Text,
            },
        };
    }

    fn set(&mut self, text: &[u8], on: bool) {
        let Some(numbers) = text.strip_prefix(b"?") else {
            return;
        };
        for number in numbers.split(|&byte| byte == b';') {
            let number = std::str::from_utf8(number).unwrap_or_default().parse();
            let Ok(mode) = number else {
                continue;
            };
            if mode == CURSOR {
                self.cursor_hidden = !on;
            } else if OTHER_SCREEN.contains(&mode) {
                self.other_screen = on;
            } else if ON.contains(&mode) {
                self.on.retain(|known| *known != mode);
                self.on.extend(on.then_some(mode));
            }
        }
    }

    /// What makes the terminal fit for a question. On a screen of its own the program's picture
    /// gives way; it is drawn anew later.
    pub fn plain(&self) -> Vec<u8> {
        let mut text = String::from(FIT);
        text.push_str(match self.other_screen {
            true => "\x1b[H\x1b[2J",
            false => "\x1b[999;1H\r\n",
        });
        if self.cursor_hidden {
            text.push_str("\x1b[?25h");
        }
        for mode in &self.on {
            text.push_str(&format!("\x1b[?{mode}l"));
        }
        text.into_bytes()
    }

    /// What makes it again what the program takes it for.
    pub fn again(&self) -> Vec<u8> {
        let mut text = String::new();
        if self.other_screen {
            text.push_str("\x1b[H\x1b[2J");
        }
        for mode in &self.on {
            text.push_str(&format!("\x1b[?{mode}h"));
        }
        if self.cursor_hidden {
            text.push_str("\x1b[?25l");
        }
        text.into_bytes()
    }
}

/// Has a program that draws on the terminal behind this master draw itself anew. Its window is one
/// row smaller for a moment, because many draw only when the size has really changed.
pub fn repaint(master: impl AsFd) {
    let drawn = Modes::of(&master).is_ok_and(|modes| !modes.is_line_mode());
    let Ok(size) = terminal::size(&master) else {
        return;
    };
    if !drawn || size.rows < 2 {
        return;
    }
    let smaller = Size {
        rows: size.rows - 1,
        ..size
    };
    let _ = terminal::set_size(&master, smaller);
    std::thread::sleep(Duration::from_millis(30));
    let _ = terminal::set_size(&master, size);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_switched_on_is_switched_off_and_on_again() {
        let mut display = Display::default();
        let plain = String::from_utf8(display.plain()).unwrap();
        assert!(plain.starts_with("\x18\x1b\\"), "an open string ends");
        assert!(plain.contains("\x1b[0m") && plain.contains("\x1b(B") && plain.contains("\x1b[r"));
        assert!(plain.ends_with("\x1b[999;1H\r\n"), "on a row of its own");
        assert_eq!(display.again(), b"");
        display.saw(b"text\x1b[?1049h\x1b[1;24r\x1b[?1h\x1b=\x1b[?2004;1006h\x1b[?25l");
        let plain = String::from_utf8(display.plain()).unwrap();
        assert!(plain.contains("\x1b[2J") && plain.contains("\x1b[?25h"));
        assert!(plain.ends_with("\x1b[?1l\x1b[?2004l\x1b[?1006l"));
        let again = String::from_utf8(display.again()).unwrap();
        assert!(again.ends_with("\x1b[?1h\x1b[?2004h\x1b[?1006h\x1b[?25l"));
        display.saw(b"\x1b[?1006;2004l\x1b[?1l\x1b[?25h\x1b[?1049l");
        assert_eq!(display.plain(), Display::default().plain());
    }

    #[test]
    fn sequences_are_seen_wherever_they_are_cut() {
        let text = b"a\x1b[?1049hb\x1b[31mc\x1b[?1000h";
        for cut in 0..text.len() {
            let mut display = Display::default();
            display.saw(&text[..cut]);
            display.saw(&text[cut..]);
            assert!(display.other_screen && display.on == [1000], "{cut}");
        }
        let mut display = Display::default();
        display.saw(b"\x1b[?1049h\x1bc");
        assert!(!display.other_screen, "a full reset leaves nothing on");
        display.saw(&[b"\x1b[".as_slice(), &[b'1'; 500], b"\x1b[?25l"].concat());
        assert!(display.cursor_hidden);
    }
}
