//! The way to an answer that only a person at this terminal can have given.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use substrate_broker::person::Watch;
use substrate_sys::process_group;
use substrate_sys::terminal::{self, Modes};
use substrate_trace::SpanId;

/// What is known of a terminal from before its question stands on the screen.
pub struct Passage {
    watch: Watch,
    answered: bool,
}

impl Passage {
    /// Drops what was typed before, and everything that the terminal still has to say to programs, and watches who
    /// types from now on.
    pub fn open(tty: &File, answers: bool) -> Self {
        let _ = terminal::discard_input(tty);
        std::thread::sleep(Duration::from_millis(50));
        let watch = Watch::begin();
        let answered = answers && hears(tty).unwrap_or(false);
        let _ = terminal::discard_input(tty);
        Self { watch, answered }
    }

    /// Whether the terminal has said everything that it had to say, so that keys are keys.
    pub fn is_clear(&self) -> bool {
        self.answered
    }

    /// What a person must type so that an answer counts, and the question for it; `None` where a key is enough.
    pub fn word(&self) -> Option<Word> {
        let why = match self.answered {
            true => return self.word_of_a_line(),
            false => "This terminal does not tell keys from its own replies.",
        };
        Some(Word::new(why))
    }

    /// The same for a line that is there already, as a whole.
    pub fn word_of_a_line(&self) -> Option<Word> {
        let faked = self.watch.keys_could_be_faked();
        faked.then(|| Word::new("Other programs could type here."))
    }
}

/// A word that nobody can know who does not see the terminal.
pub struct Word {
    /// What asks for it.
    pub prompt: String,
    word: String,
}

impl Word {
    fn new(why: &str) -> Self {
        let id = SpanId::new().to_string();
        let word = id[id.len().saturating_sub(5)..].to_owned();
        Self {
            prompt: format!("{why} To confirm, type {word}"),
            word,
        }
    }

    /// Whether this is it.
    pub fn is(&self, typed: &str) -> bool {
        typed.trim() == self.word
    }
}

/// Whether a terminal of this kind can be asked where its cursor is.
pub fn answers(term: Option<&OsStr>) -> bool {
    term.is_some_and(|term| term != "dumb" && !term.is_empty())
}

/// How long a terminal may take to answer; over a slow line the answer is late, and keys wait for it.
const PATIENCE: Duration = Duration::from_millis(600);

/// How often the cursor is put somewhere.
const PLACES: usize = 3;

/// Puts the cursor to places that nobody could foretell, asks where it is, and drops everything up to these answers.
/// A terminal answers in order, so what programs have asked it before is dropped, too.
fn hears(mut tty: &File) -> io::Result<bool> {
    let places = places(tty);
    let mut asked = b"\x1b7\x1b[?6l".to_vec();
    let mut expected = Vec::new();
    for (row, column) in places {
        asked.extend_from_slice(format!("\x1b[{row};{column}H\x1b[6n").as_bytes());
        expected.extend_from_slice(format!("\x1b[{row};{column}R").as_bytes());
    }
    asked.extend_from_slice(b"\x1b8");
    let modes = Modes::of(tty)?;
    modes.editing().apply(tty)?;
    tty.write_all(&asked)?;
    let heard = hear(tty, &expected);
    modes.apply(tty)?;
    heard
}

fn hear(mut tty: &File, expected: &[u8]) -> io::Result<bool> {
    let end = Instant::now() + PATIENCE;
    let mut heard = Vec::new();
    while !heard.ends_with(expected) {
        let left = end.saturating_duration_since(Instant::now());
        let ready = process_group::readable(&[tty.as_fd()], Some(left))?;
        let mut byte = [0_u8; 1];
        if !ready.contains(&true) || tty.read(&mut byte)? == 0 {
            return Ok(false);
        }
        heard.push(byte[0]);
        let surplus = heard.len().saturating_sub(expected.len());
        heard.drain(..surplus);
    }
    Ok(true)
}

/// Places on the screen, at random.
fn places(tty: &File) -> [(u16, u16); PLACES] {
    let size = terminal::size(tty).ok();
    let known = size.filter(|size| size.rows > 0 && size.columns > 0);
    let (rows, columns) = known.map_or((24, 80), |size| (size.rows, size.columns));
    std::array::from_fn(|_| {
        let id = SpanId::new().to_string();
        let digits = |from: usize| {
            let end = id.len().saturating_sub(from);
            let part = id.get(end.saturating_sub(4)..end).unwrap_or_default();
            u16::from_str_radix(part, 16).unwrap_or(0)
        };
        (digits(0) % rows + 1, digits(4) % columns + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_on_the_screen_and_differ() {
        let pty = terminal::open_pty().unwrap();
        terminal::set_size(
            &pty.master,
            terminal::Size {
                rows: 10,
                columns: 40,
            },
        )
        .unwrap();
        let tty = File::from(pty.slave.try_clone().unwrap());
        let all: Vec<(u16, u16)> = (0..20).flat_map(|_| places(&tty)).collect();
        assert!(
            all.iter()
                .all(|(row, column)| (1..=10).contains(row) && (1..=40).contains(column))
        );
        assert!(all.iter().any(|place| *place != all[0]));
    }
}
