//! A menu that only keys can work: arrows move, Enter takes. What a terminal says by itself (answers to
//! what some program has asked it, mouse reports) moves and takes nothing.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use substrate_sys::process_group;
use substrate_sys::terminal::Modes;

/// What was pressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Up,
    Down,
    Enter,
    Leave,
}

/// Tells keys from what a terminal sends by itself.
#[derive(Default)]
struct Keyboard {
    state: State,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Plain,
    Escape,
    /// A control sequence, and its first number; `None` if it has no parameters.
    Sequence(Option<u16>),
    /// Something that was pasted, and how much of what ends it came last.
    Paste(usize),
    /// A string up to its terminator, and whether an escape came last.
    Text(bool),
    /// This many bytes belong to what came before.
    Skip(u8),
}

impl Keyboard {
    fn press(&mut self, byte: u8) -> Option<Key> {
        let (next, key) = match (self.state, byte) {
            (State::Plain, 0x1b) => (State::Escape, None),
            (State::Plain, b'\r' | b'\n') => (State::Plain, Some(Key::Enter)),
            (State::Plain, 0x03 | 0x04 | 0x1c) => (State::Plain, Some(Key::Leave)),
            (State::Plain, 0x90 | 0x98 | 0x9d..=0x9f) => (State::Text(false), None),
            (State::Escape, b'[') => (State::Sequence(None), None),
            (State::Plain, 0x9b) => (State::Sequence(Some(0)), None),
            // The rest of a letter in UTF-8 is no control character.
            (State::Plain, 0xc3..=0xdf) => (State::Skip(1), None),
            (State::Plain, 0xe0..=0xef) => (State::Skip(2), None),
            (State::Plain, 0xf0..=0xf4) => (State::Skip(3), None),
            (State::Plain, _) => (State::Plain, None),
            (State::Escape, b'P' | b']' | b'X' | b'^' | b'_') => (State::Text(false), None),
            (State::Escape, b'O' | b'N') => (State::Skip(1), None),
            (State::Escape, 0x1b) => (State::Escape, None),
            (State::Escape, _) => (State::Plain, None),
            (State::Sequence(None), b'A') => (State::Plain, Some(Key::Up)),
            (State::Sequence(None), b'B') => (State::Plain, Some(Key::Down)),
            // An old mouse report: the button and where it was pressed.
            (State::Sequence(None), b'M') => (State::Skip(3), None),
            (State::Sequence(Some(200)), b'~') => (State::Paste(0), None),
            (State::Sequence(_), 0x1b) => (State::Escape, None),
            (State::Sequence(_), 0x40..=0x7e) => (State::Plain, None),
            (State::Sequence(number), _) => (State::Sequence(Some(further(number, byte))), None),
            // Whoever pasted by mistake can leave.
            (State::Paste(_), 0x03) => (State::Plain, Some(Key::Leave)),
            (State::Paste(seen), _) => (pasted(seen, byte), None),
            (State::Text(_), 0x07 | 0x9c) | (State::Text(true), b'\\') => (State::Plain, None),
            (State::Text(_), _) => (State::Text(byte == 0x1b), None),
            (State::Skip(1), _) => (State::Plain, None),
            (State::Skip(left), _) => (State::Skip(left.saturating_sub(1)), None),
        };
        self.state = next;
        key
    }
}

/// The first number of a sequence, with one more byte of its parameters; past that number it is none.
fn further(number: Option<u16>, byte: u8) -> u16 {
    let number = number.unwrap_or(0);
    match byte {
        b'0'..=b'9' => number
            .saturating_mul(10)
            .saturating_add(u16::from(byte - b'0')),
        _ => u16::MAX,
    }
}

/// What a terminal sends after a paste.
const PASTE_ENDS: &[u8] = b"\x1b[201~";

fn pasted(seen: usize, byte: u8) -> State {
    let seen = match PASTE_ENDS.get(seen) {
        Some(expected) if *expected == byte => seen + 1,
        _ => usize::from(byte == 0x1b),
    };
    match seen == PASTE_ENDS.len() {
        true => State::Plain,
        false => State::Paste(seen),
    }
}

/// Lets a person choose; `None` when he leaves without a choice.
pub fn choose(tty: &File, items: &[&str], first: usize) -> io::Result<Option<usize>> {
    let modes = Modes::of(tty)?;
    modes.editing().apply(tty)?;
    let chosen = pick(tty, items, first);
    let gone = erase(tty, items.len());
    modes.apply(tty)?;
    gone.and(chosen)
}

/// How long nothing comes after an escape that is a key.
const ALONE: Duration = Duration::from_millis(200);

fn pick(mut tty: &File, items: &[&str], first: usize) -> io::Result<Option<usize>> {
    let mut keyboard = Keyboard::default();
    let mut at = first;
    draw(tty, items, at)?;
    loop {
        let mut byte = [0_u8; 1];
        // A key that is an escape and no more; a sequence comes in one piece.
        let alone = keyboard.state == State::Escape
            && !process_group::readable(&[tty.as_fd()], Some(ALONE))?.contains(&true);
        if alone || tty.read(&mut byte)? == 0 {
            return Ok(None);
        }
        let count = items.len().max(1);
        match keyboard.press(byte[0]) {
            None => continue,
            Some(Key::Enter) => return Ok(Some(at)),
            Some(Key::Leave) => return Ok(None),
            Some(Key::Up) => at = (at + count - 1) % count,
            Some(Key::Down) => at = (at + 1) % count,
        }
        erase(tty, items.len())?;
        draw(tty, items, at)?;
    }
}

fn draw(mut tty: &File, items: &[&str], at: usize) -> io::Result<()> {
    let mut text = String::new();
    for (number, item) in items.iter().enumerate() {
        let mark = if number == at { '>' } else { ' ' };
        text.push_str(&format!("{mark} {item}\r\n"));
    }
    tty.write_all(text.as_bytes())
}

/// Takes the menu off the screen.
fn erase(mut tty: &File, lines: usize) -> io::Result<()> {
    tty.write_all("\x1b[1A\r\x1b[2K".repeat(lines).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut keyboard = Keyboard::default();
        bytes
            .iter()
            .filter_map(|byte| keyboard.press(*byte))
            .collect()
    }

    #[test]
    fn arrows_and_enter_are_keys() {
        assert_eq!(
            keys(b"\x1b[A\x1b[B\r\x03"),
            [Key::Up, Key::Down, Key::Enter, Key::Leave]
        );
    }

    #[test]
    fn after_a_paste_keys_are_keys_again() {
        assert_eq!(keys(b"\x1b[200~\r\x1b[201~\x1b[A\r"), [Key::Up, Key::Enter]);
        assert_eq!(keys(b"\x1b[200~abc\x03\r"), [Key::Leave, Key::Enter]);
        assert_eq!(keys(b"\x1b[2;200~\x1b[A"), [Key::Up]);
    }

    #[test]
    fn letters_leave_the_next_key_a_key() {
        for letter in ["А", "Û", "ß", "盛", "🐛"] {
            assert_eq!(
                keys(format!("{letter}\x03").as_bytes()),
                [Key::Leave],
                "{letter}"
            );
        }
    }

    #[test]
    fn what_a_terminal_says_is_none() {
        for said in [
            &b"\x1b]99;i=j:p=?;\x1b\\\x1bP1$r2 q\x1b\\"[..],
            b"\x1b]52;c;akFBQQ==\x07\x1bP>|tmux 3.3a\x1b\\",
            b"\x1b[<0;10;10M\x1b[<0;10;10m\x1b[M !!\x1b[I\x1b[O",
            b"\x1b[12;40R\x1b[?64;1;2c\x1b[0n\x1b[1;2A",
            b"\x9b12;40R\x90 j\r \x9c",
            b"\x9bA\xc2\x9bA\xc3\x9bA",
            b"jk \tabc",
            b"\x1bOA\x1b_G\r\x1b\\",
            b"\x1bP\r\n",
            b"\x1b[200~\x1b[A\r\n\x1b[20\x1b[A\r\x1b[201~\x1b[201~",
            b"\x1b[200~\x1b[A\r",
        ] {
            assert_eq!(keys(said), [], "{}", said.escape_ascii());
        }
    }
}
