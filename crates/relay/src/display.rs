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
/// No terminal takes more numbers in one sequence.
const MOST_NUMBERS: usize = 256;

/// Ends whatever string or sequence was left open, which would swallow the question, and undoes
/// what would hide it: character sets, colours, insertion, a scrolling region, rows that do not wrap.
const FIT: &str = "\x18\x1b\\\x0f\x1b(B\x1b[0m\x1b[4l\x1b[?6l\x1b[?7h\x1b[r";

/// Follows what is shown on a terminal.
#[derive(Debug, Default)]
pub struct Display {
    reading: Reading,
    /// The last bytes, which tell whether the next one goes on with a letter.
    last: [u8; 3],
    modes: State,
    /// What was put away to be restored.
    saved: Vec<(u16, bool)>,
}

#[derive(Debug, Default)]
struct State {
    on: Vec<u16>,
    other_screen: bool,
    cursor_hidden: bool,
}

#[derive(Debug, Default)]
enum Reading {
    #[default]
    Text,
    Escape,
    Control(Control),
}

/// A control sequence as far as it was read.
#[derive(Debug, Default)]
struct Control {
    /// It began with `?`.
    private: bool,
    numbers: Vec<u16>,
    number: u16,
    /// Something is in it that none of those that are looked for has.
    other: bool,
}

impl Control {
    fn push(&mut self, byte: u8) {
        match byte {
            b'0'..=b'9' => {
                let number = self.number.saturating_mul(10);
                self.number = number.saturating_add(u16::from(byte - b'0'));
            }
            b';' => self.end_number(),
            b'?' if !self.private && self.numbers.is_empty() && self.number == 0 => {
                self.private = true
            }
            _ => self.other = true,
        }
    }

    fn end_number(&mut self) {
        if self.numbers.len() < MOST_NUMBERS {
            self.numbers.push(self.number);
        }
        self.number = 0;
    }
}

/// Begins a control sequence, in one byte.
const CSI: u8 = 0x9b;

impl Display {
    /// Takes note of what is about to be shown.
    pub fn saw(&mut self, mut bytes: &[u8]) {
        while let Some((&first, rest)) = bytes.split_first() {
            if matches!(self.reading, Reading::Text) {
                let Some(at) = bytes.iter().position(|byte| matches!(*byte, 0x1b | CSI)) else {
                    self.pass(bytes);
                    return;
                };
                let (before, from) = bytes.split_at(at);
                self.pass(before);
                if from.first() == Some(&0x1b) {
                    self.reading = Reading::Escape;
                } else if !self.is_in_a_letter() {
                    self.reading = Reading::Control(Control::default());
                }
                self.pass(from.get(..1).unwrap_or_default());
                bytes = from.get(1..).unwrap_or_default();
                continue;
            }
            self.read(first);
            self.pass(&[first]);
            bytes = rest;
        }
    }

    /// Remembers the last bytes.
    fn pass(&mut self, bytes: &[u8]) {
        for &byte in bytes
            .get(bytes.len().saturating_sub(3)..)
            .unwrap_or_default()
        {
            self.last.rotate_left(1);
            self.last[2] = byte;
        }
    }

    /// Whether the next byte, the second half of something in UTF-8, belongs to a letter. After 0xc2 it is the control
    /// character itself, spelt as one.
    fn is_in_a_letter(&self) -> bool {
        let [third, second, first] = self.last;
        let goes_on = |byte: u8| (0x80..0xc0).contains(&byte);
        matches!(first, 0xc3..=0xf4)
            || goes_on(first) && matches!(second, 0xe0..=0xf4)
            || goes_on(first) && goes_on(second) && matches!(third, 0xf0..=0xf4)
    }

    fn read(&mut self, byte: u8) {
        self.reading = match (std::mem::take(&mut self.reading), byte) {
            (Reading::Text, _) => Reading::Text,
            (_, 0x1b) => Reading::Escape,
            // Cancelled.
            (_, 0x18 | 0x1a) => Reading::Text,
            // Other control characters act, and the sequence goes on.
            (reading, 0..0x20 | 0x7f) => reading,
            (_, CSI) => Reading::Control(Control::default()),
            (Reading::Escape, b'[') => Reading::Control(Control::default()),
            (Reading::Escape, b'c') => {
                *self = Self::default();
                Reading::Text
            }
            (Reading::Escape, _) => Reading::Text,
            (Reading::Control(mut control), 0x20..=0x3f) => {
                control.push(byte);
                Reading::Control(control)
            }
            (Reading::Control(control), _) => {
                self.obey(control, byte);
                Reading::Text
            }
        };
    }

    fn obey(&mut self, mut control: Control, last: u8) {
        control.end_number();
        if !control.private || control.other {
            return;
        }
        for mode in control.numbers {
            let saved = |saved: &[(u16, bool)]| saved.contains(&(mode, true));
            match last {
                b'h' | b'l' => self.modes.set(mode, last == b'h'),
                b'r' => self.modes.set(mode, saved(&self.saved)),
                b's' => {
                    let is_on = self.modes.is_on(mode);
                    self.saved.retain(|(known, _)| *known != mode);
                    self.saved.extend(is_on.map(|on| (mode, on)));
                }
                _ => return,
            }
        }
    }

    /// What makes the terminal fit for a question: everything is switched off that could be on, seen or not. On a
    /// screen of its own the program's picture gives way; it is drawn anew later.
    pub fn plain(&self) -> Vec<u8> {
        let mut text = String::from(FIT);
        text.push_str(match self.modes.other_screen {
            true => "\x1b[H\x1b[2J",
            false => "\x1b[999;1H\r\n",
        });
        text.push_str("\x1b[?25h");
        for mode in ON {
            text.push_str(&format!("\x1b[?{mode}l"));
        }
        text.into_bytes()
    }

    /// What makes it again what the program takes it for.
    pub fn again(&self) -> Vec<u8> {
        let mut text = String::new();
        if self.modes.other_screen {
            text.push_str("\x1b[H\x1b[2J");
        }
        for mode in &self.modes.on {
            text.push_str(&format!("\x1b[?{mode}h"));
        }
        if self.modes.cursor_hidden {
            text.push_str("\x1b[?25l");
        }
        text.into_bytes()
    }
}

impl State {
    fn set(&mut self, mode: u16, on: bool) {
        if mode == CURSOR {
            self.cursor_hidden = !on;
        } else if OTHER_SCREEN.contains(&mode) {
            self.other_screen = on;
        } else if ON.contains(&mode) {
            self.on.retain(|known| *known != mode);
            self.on.extend(on.then_some(mode));
        }
    }

    /// `None` for modes that are not looked for.
    fn is_on(&self, mode: u16) -> Option<bool> {
        match mode {
            CURSOR => Some(!self.cursor_hidden),
            _ if OTHER_SCREEN.contains(&mode) => Some(self.other_screen),
            _ if ON.contains(&mode) => Some(self.on.contains(&mode)),
            _ => None,
        }
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

    fn after(shown: &[u8]) -> String {
        let mut display = Display::default();
        display.saw(shown);
        String::from_utf8(display.again()).unwrap()
    }

    #[test]
    fn a_question_finds_everything_switched_off_and_a_program_finds_it_on_again() {
        let mut display = Display::default();
        let plain = String::from_utf8(display.plain()).unwrap();
        assert!(plain.starts_with("\x18\x1b\\"), "an open string ends");
        assert!(plain.contains("\x1b[0m") && plain.contains("\x1b(B") && plain.contains("\x1b[r"));
        assert!(plain.contains("\x1b[999;1H\r\n"), "on a row of its own");
        for off in ["\x1b[?1003l", "\x1b[?2004l", "\x1b[?1l", "\x1b[?25h"] {
            assert!(plain.contains(off), "nobody is trusted to have been seen");
        }
        assert_eq!(display.again(), b"");
        display.saw(b"text\x1b[?1049h\x1b[1;24r\x1b[?1h\x1b=\x1b[?2004;1006h\x1b[?25l");
        assert!(
            String::from_utf8(display.plain())
                .unwrap()
                .contains("\x1b[2J")
        );
        let again = String::from_utf8(display.again()).unwrap();
        assert!(again.ends_with("\x1b[?1h\x1b[?2004h\x1b[?1006h\x1b[?25l"));
        display.saw(b"\x1b[?1006;2004l\x1b[?1l\x1b[?25h\x1b[?1049l");
        assert_eq!(display.again(), b"");
    }

    #[test]
    fn sequences_are_seen_wherever_they_are_cut() {
        for text in [
            &b"a\x1b[?1049hb\x1b[31mc\x1b[?1000h"[..],
            "\u{9b}?1049h\u{26db}?\u{9b}?1000h".as_bytes(),
        ] {
            for cut in 0..text.len() {
                let mut display = Display::default();
                display.saw(&text[..cut]);
                display.saw(&text[cut..]);
                let State {
                    on, other_screen, ..
                } = &display.modes;
                assert!(*other_screen && *on == [1000], "{cut}");
            }
        }
        assert_eq!(
            after(b"\x1b[?1049h\x1bc"),
            "",
            "a full reset leaves nothing on"
        );
    }

    #[test]
    fn every_spelling_of_a_sequence_is_seen() {
        for shown in [
            &b"\x1b[?\n1003h"[..],
            b"\x1b\r[?10\x0703h",
            b"\x9b?1003h",
            b"\xc2\x9b?1003h",
            b"\x1b[\xc2\x1b[?1003h",
            b"\x1b\x9b?1003h",
            b"\x1b[?1;2;1003h\x1b[?1l",
            &[b"\x1b[?".as_slice(), &[b'0'; 500], b"1003h"].concat(),
            &[b"\x1b[".as_slice(), &[b'1'; 500], b"\x1b[?1003h"].concat(),
            b"\x1b[?1003h\x1b[?1003s\x1b[?1003l\x1b[?1003r",
        ] {
            assert_eq!(after(shown), "\x1b[?1003h", "{}", shown.escape_ascii());
        }
        for shown in [
            &b"\x1b[?10\x1803h"[..],
            "\u{26db}?1003h \u{1f41b}\u{9b}".as_bytes(),
            b"\x1b[1003h\x1b[?1003:1h\x1b[?1003 h",
            b"\x1b[?1003s\x1b[?1003h\x1b[?1003r",
            b"\x1b[?1003r",
        ] {
            assert_eq!(after(shown), "", "{}", shown.escape_ascii());
        }
    }
}
