//! Asking a person at the terminal that controls us: about a line, and what becomes of a result.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};

use dialoguer::Input;
use dialoguer::console::Term;
use dialoguer::theme::SimpleTheme;
use substrate_broker::approvals::Approved;
use substrate_changes::patch::Paint;
use substrate_executor::front::{Choice, Given, HeldChanges, Inquiry, Kind};
use substrate_sys::process_group;
use substrate_sys::signals::{self, Signals};
use substrate_text::visible;
use substrate_trace::Answer;

use crate::menu;
use crate::notice::Notices;
use crate::passage::{self, Passage, Word};

/// What stands below them: a no that is not asked for again.
const NEVER: &str = "Deny for session";

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
    /// No, and not to be asked again in this session.
    Never,
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
    let mut passage = screen.passage();
    let mut for_session = false;
    let answer = loop {
        match screen.choose(choices(inquiry), &passage)? {
            Pick::Answer(answer) => break answer,
            Pick::Never => {
                for_session = true;
                break Answer::Refused;
            }
            Pick::Try => screen.say(&inquiry.try_out())?,
            Pick::Show => show(inquiry, &screen, notices)?,
        }
        passage = screen.passage();
    };
    let mut given = Given {
        answer,
        what: Vec::new(),
        for_session,
    };
    if matches!(given.answer, Answer::Session | Answer::Always) {
        match patterns(inquiry, &screen, &passage)? {
            Some(what) => given.what = what,
            None => given = Given::denied(),
        }
    }
    if given.answer != Answer::Refused
        && let Some(word) = passage.word()
        && !word.is(&screen.line(&word.prompt, "", &passage)?)
    {
        given = Given::denied();
    }
    while interrupts.next()?.is_some() {}
    // The menu is gone; what was answered stays on the screen.
    let named = CHOICES.iter().find(|(_, answer)| *answer == given.answer);
    let named = named.map(|(name, _)| match given.for_session {
        true => NEVER,
        false => *name,
    });
    if let Some(name) = named {
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
    look.into_iter()
        .chain(answers)
        .chain([(NEVER, Pick::Never)])
        .collect()
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
fn patterns(
    inquiry: &dyn Inquiry,
    screen: &Screen,
    passage: &Passage,
) -> std::io::Result<Option<Vec<Approved>>> {
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
                passage,
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
struct KeysFrom {
    before: Option<OwnedFd>,
}

impl KeysFrom {
    /// Reads from this terminal until dropped.
    fn terminal(tty: impl AsFd) -> std::io::Result<Self> {
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

/// The terminal, as far as it goes: with a cursor that moves, or line by line.
struct Screen {
    tty: fs::File,
    term: Option<Term>,
}

impl Screen {
    fn new(inquiry: &dyn Inquiry, tty: fs::File) -> std::io::Result<Self> {
        let term = match passage::answers(inquiry.variable("TERM")) {
            true => Some(Term::read_write_pair(tty.try_clone()?, tty.try_clone()?)),
            false => None,
        };
        Ok(Self { tty, term })
    }

    fn say(&self, text: &str) -> std::io::Result<()> {
        (&self.tty).write_all(text.as_bytes())
    }

    fn passage(&self) -> Passage {
        Passage::open(&self.tty, self.term.is_some())
    }

    fn choose(
        &self,
        choices: Vec<(&'static str, Pick)>,
        passage: &Passage,
    ) -> std::io::Result<Pick> {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        // A plain no is what somebody says who only presses Enter.
        let plain = choices
            .iter()
            .position(|(_, pick)| matches!(pick, Pick::Answer(Answer::Refused)));
        let first = plain.unwrap_or_default();
        let chosen = match passage.is_clear() {
            true => menu::choose(&self.tty, &names, first).unwrap_or(None),
            false => by_number(&self.tty, &names, first)?,
        };
        Ok(chosen
            .and_then(|at| choices.get(at))
            .map_or(Pick::Answer(Answer::Refused), |(_, pick)| *pick))
    }

    fn line(&self, prompt: &str, text: &str, passage: &Passage) -> std::io::Result<String> {
        match self.term.as_ref().filter(|_| passage.is_clear()) {
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

/// Lets a person choose by a number, line by line.
fn by_number(mut tty: &fs::File, names: &[&str], first: usize) -> std::io::Result<Option<usize>> {
    let mut menu = String::new();
    for (number, name) in names.iter().enumerate() {
        menu.push_str(&format!("{}) {name}\n", number + 1));
    }
    menu.push_str(&format!("Choice, or Enter for {}: ", first + 1));
    tty.write_all(menu.as_bytes())?;
    let typed = Lines::of(tty)?.next().unwrap_or_default();
    let number = typed.trim().parse::<usize>().ok();
    Ok(number.and_then(|number| number.checked_sub(1)))
}

/// What is typed, line by line.
struct Lines(std::io::Lines<BufReader<fs::File>>);

impl Lines {
    fn of(tty: &fs::File) -> std::io::Result<Self> {
        Ok(Self(BufReader::new(tty.try_clone()?).lines()))
    }

    /// The next line; `None` at the end.
    fn next(&mut self) -> Option<String> {
        self.0.next()?.ok()
    }
}

/// A terminal for questions that are answered by a line.
struct Plain {
    tty: fs::File,
    lines: Lines,
    passage: Passage,
}

impl Plain {
    /// The terminal that controls us, with what was typed before dropped: it was no answer to this. It is asked
    /// whether it tells keys from its replies where it may be able to.
    fn open(asked: bool) -> std::io::Result<Self> {
        let tty = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/tty")?;
        let answers = asked && passage::answers(std::env::var_os("TERM").as_deref());
        let passage = Passage::open(&tty, answers);
        Ok(Self {
            lines: Lines::of(&tty)?,
            tty,
            passage,
        })
    }

    fn asks(&mut self, question: &str) -> Option<String> {
        self.tty.write_all(question.as_bytes()).ok()?;
        Some(self.lines.next()?.trim().to_ascii_lowercase())
    }

    /// Whether a person gave the answer; where somebody else could have, a word on the screen decides.
    fn is_a_person(&mut self) -> bool {
        let word = self.passage.word();
        word.is_none_or(|word| self.hears(&word))
    }

    fn hears(&mut self, word: &Word) -> bool {
        let typed = self.asks(&format!("{}: ", word.prompt));
        typed.is_some_and(|typed| word.is(&typed))
    }
}

/// Asks on the terminal; anything unclear, and the end of input, keeps the result.
pub fn settle(about: &dyn HeldChanges, notices: Notices) -> Choice {
    notices.say(
        Kind::Info,
        &format!("the isolated command changed: {}", about.sentence()),
    );
    let Ok(mut terminal) = Plain::open(true) else {
        return Choice::Keep;
    };
    loop {
        let asked = terminal.asks("[a]pply, show [d]iff, [k]eep for later, discard [x]? [k] ");
        let Some(answer) = asked else {
            return Choice::Keep;
        };
        match answer.as_str() {
            "a" | "apply" if terminal.is_a_person() => return Choice::Apply,
            "x" | "discard" if terminal.is_a_person() => return Choice::Discard,
            "" | "k" | "keep" => return Choice::Keep,
            "d" | "diff" => {
                if let Err(why) = about.show(&mut terminal.tty, paint(notices)) {
                    notices.say(Kind::Failed, &why);
                }
            }
            _ => {}
        }
    }
}

/// Asks for a plain yes on the terminal; everything else is a no.
pub fn confirm(question: &str) -> std::io::Result<bool> {
    let mut terminal = Plain::open(true)?;
    let answer = terminal.asks(&format!("{question} [y/N] "));
    Ok(matches!(answer.as_deref(), Some("y" | "yes")) && terminal.is_a_person())
}

/// Lets a person choose on the terminal; `None` when he does not.
pub fn choose(question: &str, items: &[&str], first: usize) -> std::io::Result<Option<usize>> {
    let mut terminal = Plain::open(true)?;
    terminal.tty.write_all(format!("{question}\n").as_bytes())?;
    let chosen = match terminal.passage.is_clear() {
        true => menu::choose(&terminal.tty, items, first)?,
        false => by_number(&terminal.tty, items, first)?,
    };
    Ok(chosen.filter(|at| *at < items.len() && terminal.is_a_person()))
}

/// Whether a person typed the line that is carried out; asked only where a program could have typed it.
pub fn typed_by_a_person() -> std::io::Result<bool> {
    let mut terminal = Plain::open(false)?;
    let word = terminal.passage.word_of_a_line();
    Ok(word.is_none_or(|word| terminal.hears(&word)))
}
