//! Asking a person what becomes of an isolated result.

use std::io::{BufRead, Write};

use substrate_broker::person::Watch;
use substrate_changes::patch::{self, Paint};
use substrate_changes::pending::Pending;

use crate::approval::word_prompt;
use crate::notice::{Kind, Notices};

/// What becomes of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// It is put on the host.
    Apply,
    /// It waits.
    Keep,
    /// It is thrown away.
    Discard,
}

/// Asks on the terminal; anything unclear, and the end of input, keeps the result.
pub fn ask(pending: &Pending, sentence: &str, notices: Notices) -> Choice {
    notices.say(
        Kind::Info,
        &format!("the isolated command changed: {sentence}"),
    );
    let Ok(mut terminal) = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/tty")
    else {
        return Choice::Keep;
    };
    // What was typed while the command ran was not an answer to this.
    let watch = Watch::begin();
    let _ = substrate_sys::terminal::discard_input(&terminal);
    let mut lines = match terminal.try_clone() {
        Ok(reading) => std::io::BufReader::new(reading).lines(),
        Err(_) => return Choice::Keep,
    };
    loop {
        let _ = terminal.write_all(b"[a]pply, show [d]iff, [k]eep for later, discard [x]? [k] ");
        let Some(Ok(answer)) = lines.next() else {
            return Choice::Keep;
        };
        match answer.trim().to_ascii_lowercase().as_str() {
            "a" | "apply" if is_a_person(&watch, &mut terminal, &mut lines) => {
                return Choice::Apply;
            }
            "x" | "discard" => return Choice::Discard,
            "" | "k" | "keep" => return Choice::Keep,
            "d" | "diff" => {
                let paint = if notices.colour() {
                    Paint::ANSI
                } else {
                    Paint::VISIBLE
                };
                if let Err(error) = patch::patch(pending, paint, &mut terminal, &mut |_| true) {
                    notices.say(Kind::Failed, &error.to_string());
                }
            }
            _ => {}
        }
    }
}

/// Whether a person gave the answer; where somebody else could have, a word on the screen decides.
fn is_a_person(
    watch: &Watch,
    terminal: &mut impl Write,
    lines: &mut impl Iterator<Item = std::io::Result<String>>,
) -> bool {
    if !watch.keys_could_be_faked() {
        return true;
    }
    let (prompt, word) = word_prompt();
    let _ = terminal.write_all(format!("{prompt}: ").as_bytes());
    matches!(lines.next(), Some(Ok(typed)) if typed.trim() == word)
}

/// Asks for a plain yes on the terminal; everything else, and no terminal, is a no.
pub fn confirm(question: &str) -> bool {
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/tty");
    let Ok(mut terminal) = opened else {
        return false;
    };
    let watch = Watch::begin();
    let _ = substrate_sys::terminal::discard_input(&terminal);
    let Ok(reading) = terminal.try_clone() else {
        return false;
    };
    let mut lines = std::io::BufReader::new(reading).lines();
    let _ = terminal.write_all(format!("{question} [y/N] ").as_bytes());
    let yes =
        matches!(lines.next(), Some(Ok(answer)) if matches!(answer.trim(), "y" | "Y" | "yes"));
    yes && is_a_person(&watch, &mut terminal, &mut lines)
}
