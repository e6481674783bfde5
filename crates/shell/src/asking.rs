//! Asking a person at the terminal that controls us: about a line, and what becomes of a result.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use dialoguer::Input;
use dialoguer::console::Term;
use dialoguer::theme::SimpleTheme;
use substrate_broker::approvals::Approved;
use substrate_broker::person::Watch;
use substrate_changes::patch::{self, Paint};
use substrate_changes::pending::Pending;
use substrate_executor::front::{Choice, Given, Inquiry, Kind};
use substrate_sys::signals::{self, Signals};
use substrate_sys::{process_group, terminal};
use substrate_text::visible;
use substrate_trace::Answer;

use crate::menu;
use crate::notice::Notices;

/// The choices, in the order in which they are shown. The last one is chosen unless a person moves.
const CHOICES: [(&str, Answer); 4] = [
    ("Allow once", Answer::Once),
    ("Allow for session", Answer::Session),
    ("Allow always", Answer::Always),
    ("Deny", Answer::Refused),
];

/// What can be picked at the question.
#[derive(Clone, Copy)]
enum Pick {
    Answer(Answer),
    /// Try the line where nothing of it is real.
    Try,
    /// Show in full what trying it came to.
    Show,
}

/// Puts a question to the terminal that controls us and takes the answer from it, never from standard
/// input.
pub fn ask(inquiry: &dyn Inquiry, notices: Notices) -> std::io::Result<Given> {
    let tty = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/tty")?;
    // An interrupt at the question is an answer to it, not the end of the shell.
    let interrupts = Signals::take(&[signals::INTERRUPT, signals::QUIT])?;
    let _keys = KeysFrom::terminal(&tty)?;
    let screen = Screen::new(inquiry, tty)?;
    screen.say(&inquiry.text())?;
    let mut watch = screen.forget_keys();
    let answer = loop {
        match screen.choose(choices(inquiry))? {
            Pick::Answer(answer) => break answer,
            Pick::Try => screen.say(&inquiry.try_out())?,
            Pick::Show => show(inquiry, &screen, notices)?,
        }
        watch = screen.forget_keys();
    };
    let mut given = Given {
        answer,
        what: Vec::new(),
    };
    if matches!(given.answer, Answer::Session | Answer::Always) {
        match patterns(inquiry, &screen)? {
            Some(what) => given.what = what,
            None => given = Given::denied(),
        }
    }
    if given.answer != Answer::Refused && watch.keys_could_be_faked() {
        let (prompt, word) = word_prompt();
        let typed = screen.line(&prompt, "")?;
        if typed.trim() != word {
            given = Given::denied();
        }
    }
    while interrupts.next()?.is_some() {}
    // The menu is gone; what was answered stays on the screen.
    let named = CHOICES.iter().find(|(_, answer)| *answer == given.answer);
    if let Some((name, _)) = named {
        screen.say(&format!("Answer: {name}\n"))?;
    }
    Ok(given)
}

/// What can be chosen: without anything that could be remembered, once or not at all.
fn choices(inquiry: &dyn Inquiry) -> Vec<(&'static str, Pick)> {
    let lasting = inquiry.can_be_remembered();
    let look = match (inquiry.was_tried(), inquiry.can_be_tried()) {
        (true, _) => Some(("Show the changes", Pick::Show)),
        (false, true) => Some(("Preview the changes", Pick::Try)),
        (false, false) => None,
    };
    let answers = CHOICES
        .into_iter()
        .filter(|(_, answer)| lasting || matches!(answer, Answer::Once | Answer::Refused))
        .map(|(name, answer)| (name, Pick::Answer(answer)));
    look.into_iter().chain(answers).collect()
}

fn show(inquiry: &dyn Inquiry, screen: &Screen, notices: Notices) -> std::io::Result<()> {
    inquiry
        .show(&mut &screen.tty, paint(notices))
        .or_else(|error| screen.say(&format!("{error}\n")))
}

fn paint(notices: Notices) -> Paint {
    match notices.colour() {
        true => Paint::ANSI,
        false => Paint::VISIBLE,
    }
}

/// Lets the person narrow or widen what is remembered; `None` when he thinks better of it.
fn patterns(inquiry: &dyn Inquiry, screen: &Screen) -> std::io::Result<Option<Vec<Approved>>> {
    let mut all = Vec::new();
    for (at, what) in inquiry.proposed().iter().enumerate() {
        let Approved::Command(proposed) = what else {
            all.push(what.clone());
            continue;
        };
        let mut text = proposed.clone();
        loop {
            let typed = screen.line(
                "Remember commands like (Enter, or edit; empty: deny)",
                &text,
            )?;
            if typed.trim().is_empty() {
                return Ok(None);
            }
            match inquiry.fits(at, typed.trim()) {
                Ok(()) => {
                    all.push(Approved::Command(typed.trim().to_owned()));
                    break;
                }
                Err(problem) => screen.say(&format!("{}\n", visible(problem.as_bytes())))?,
            }
            text = typed;
        }
    }
    Ok(Some(all))
}

/// Prompts read keys from standard input when that is a terminal, whichever it is; while this lives, it
/// is the one that controls us.
pub struct KeysFrom {
    before: Option<OwnedFd>,
}

impl KeysFrom {
    /// Reads from this terminal until dropped.
    pub fn terminal(tty: impl AsFd) -> std::io::Result<Self> {
        let before = std::io::stdin().as_fd().try_clone_to_owned().ok();
        process_group::replace_stdin(tty)?;
        Ok(Self { before })
    }
}

impl Drop for KeysFrom {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = process_group::replace_stdin(before);
        }
    }
}

/// Asks for a word that nobody can know who does not see the terminal; the question and the word.
pub fn word_prompt() -> (String, String) {
    let id = substrate_trace::SpanId::new().to_string();
    let word = id[id.len().saturating_sub(5)..].to_owned();
    let text = format!("Other programs could type here. To confirm, type {word}");
    (text, word)
}

/// The terminal, as far as it goes: with a cursor that moves, or line by line.
struct Screen {
    tty: fs::File,
    term: Option<Term>,
}

impl Screen {
    fn new(inquiry: &dyn Inquiry, tty: fs::File) -> std::io::Result<Self> {
        let dumb = inquiry
            .variable("TERM")
            .is_none_or(|term| term == "dumb" || term.is_empty());
        let term = if dumb {
            None
        } else {
            Some(Term::read_write_pair(tty.try_clone()?, tty.try_clone()?))
        };
        Ok(Self { tty, term })
    }

    fn say(&self, text: &str) -> std::io::Result<()> {
        (&self.tty).write_all(text.as_bytes())
    }

    /// Drops what was typed before the question stood on the screen, and watches who types from now on.
    fn forget_keys(&self) -> Watch {
        let _ = terminal::discard_input(&self.tty);
        std::thread::sleep(Duration::from_millis(50));
        let watch = Watch::begin();
        if self.term.is_some() {
            let _ = menu::settle(&self.tty);
        }
        let _ = terminal::discard_input(&self.tty);
        watch
    }

    fn choose(&self, choices: Vec<(&'static str, Pick)>) -> std::io::Result<Pick> {
        let last = choices.len().saturating_sub(1);
        let chosen = match &self.term {
            Some(_) => {
                let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
                menu::choose(&self.tty, &names, last).unwrap_or(None)
            }
            None => {
                let mut menu = String::new();
                for (number, (name, _)) in choices.iter().enumerate() {
                    menu.push_str(&format!("{}) {name}\n", number + 1));
                }
                self.say(&menu)?;
                let typed = self.line(&format!("Choice, or Enter for {}", last + 1), "")?;
                let number = typed.trim().parse::<usize>().ok();
                number.and_then(|number| number.checked_sub(1))
            }
        };
        Ok(chosen
            .and_then(|at| choices.get(at))
            .map_or(Pick::Answer(Answer::Refused), |(_, pick)| *pick))
    }

    fn line(&self, prompt: &str, text: &str) -> std::io::Result<String> {
        match &self.term {
            Some(term) => Input::<String>::with_theme(&SimpleTheme)
                .with_prompt(prompt)
                .with_initial_text(text)
                .allow_empty(true)
                .interact_text_on(term)
                .map_err(|dialoguer::Error::IO(error)| error),
            None => {
                let default = if text.is_empty() {
                    String::new()
                } else {
                    format!(" [{}]", visible(text.as_bytes()))
                };
                self.say(&format!("{prompt}{default}: "))?;
                let mut line = String::new();
                BufReader::new(&self.tty).read_line(&mut line)?;
                let typed = line.trim();
                Ok(if typed.is_empty() { text } else { typed }.to_owned())
            }
        }
    }
}

/// Asks on the terminal; anything unclear, and the end of input, keeps the result.
pub fn settle(pending: &Pending, sentence: &str, notices: Notices) -> Choice {
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
                let shown = patch::patch(pending, paint(notices), &mut terminal, &mut |_| true);
                if let Err(error) = shown {
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
