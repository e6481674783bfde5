//! The one door for words to the person: standard error, in the characters and colours that the
//! terminal can show.

use std::ffi::CString;
use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use substrate_executor::front::{Kind, shows_unicode};
use substrate_sys::environment;

/// How notices look.
#[derive(Debug, Clone, Copy)]
pub struct Notices {
    unicode: bool,
    colour: bool,
}

impl Notices {
    /// Reads what the environment and the terminal allow.
    pub fn new(env: &[CString]) -> Self {
        let dumb = environment::get(env, "TERM").is_none_or(|term| term == b"dumb");
        let no_color = environment::get(env, "NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            unicode: shows_unicode(|name| environment::get(env, name).map(<[u8]>::to_vec)),
            colour: std::io::stderr().is_terminal() && !dumb && !no_color,
        }
    }

    /// Whether emoji and box characters can be shown.
    pub fn unicode(&self) -> bool {
        self.unicode
    }

    /// Whether standard error takes colours.
    pub fn colour(&self) -> bool {
        self.colour
    }

    /// Says something. A closed standard error is nobody's problem.
    pub fn say(&self, kind: Kind, text: &str) {
        let line = self.line(kind, text) + "\n";
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    /// The same while a command has the terminal, which may be in raw mode then.
    pub fn say_beside(&self, kind: Kind, text: &str) {
        let end = match std::io::stderr().is_terminal() {
            true => "\r\n",
            false => "\n",
        };
        let line = self.line(kind, text) + end;
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    /// The line that says something, without its end.
    pub fn line(&self, kind: Kind, text: &str) -> String {
        let (sign, colour) = self.sign(kind);
        if self.colour {
            format!("\x1b[{colour}m{sign}{text}\x1b[0m")
        } else {
            format!("{sign}{text}")
        }
    }

    /// What it says, without colours and the end of the line.
    pub fn plain(&self, kind: Kind, text: &str) -> String {
        format!("{}{text}", self.sign(kind).0)
    }

    fn sign(&self, kind: Kind) -> (&'static str, &'static str) {
        let colour = match kind {
            Kind::Refused | Kind::Failed => "31",
            Kind::Warning => "33",
            Kind::Info => "36",
            Kind::Done => "32",
        };
        (kind.sign(self.unicode), colour)
    }
}

/// Prints above the line that is being edited.
pub type Above = Box<dyn FnMut(String) + Send>;

/// Says things while a person edits a line, without destroying it.
#[derive(Clone, Default)]
pub struct Announcer {
    above: Arc<Mutex<Option<Above>>>,
    editing: Arc<AtomicBool>,
}

impl Announcer {
    /// Has announcements printed by this from now on.
    pub fn print_with(&self, above: Above) {
        *self.above.lock().unwrap_or_else(PoisonError::into_inner) = Some(above);
    }

    /// A line is being edited from now on, or no more.
    pub fn set_editing(&self, editing: bool) {
        self.editing.store(editing, Ordering::SeqCst);
    }

    /// Whether a line is being edited; while a program has the screen, news can wait.
    pub fn is_editing(&self) -> bool {
        self.editing.load(Ordering::SeqCst)
    }

    /// Says a line above the one that is being edited, or on standard error.
    pub fn say(&self, line: &str) {
        let text = format!("{line}\n");
        let mut above = self.above.lock().unwrap_or_else(PoisonError::into_inner);
        match above.as_mut().filter(|_| self.is_editing()) {
            Some(above) => above(text),
            None => {
                let _ = std::io::stderr().write_all(text.as_bytes());
            }
        }
    }
}
