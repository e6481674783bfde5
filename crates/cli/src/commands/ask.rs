//! Questions that management commands put to a person, and the broker they work with.

use std::ffi::OsString;
use std::io::Write;

use dialoguer::console::Term;
use dialoguer::theme::SimpleTheme;
use dialoguer::{Confirm, Input, Select};
use substrate_broker::env::SUBSTRATE_HOME;
use substrate_broker::person::Watch;
use substrate_broker::{Broker, BrokerError, Caller, Home};
use substrate_executor::session::working_directory;
use substrate_shell::asking::{KeysFrom, word_prompt};
use substrate_sys::{environment, terminal};

use crate::failure::Failure;
use crate::shell_mode::open_broker;

/// The broker for a policy, or for the one in use.
pub fn broker(policy: Option<OsString>) -> Result<Broker, Failure> {
    let env = environment::raw();
    let cwd = working_directory(&env).map_err(BrokerError::Cwd)?;
    open_broker(policy, false, &env, &cwd)
}

/// Substrate's home, found without a policy: a broken one must not keep anybody from it.
pub fn home() -> Result<Home, Failure> {
    let own = std::env::var_os(SUBSTRATE_HOME);
    let caller = Caller::own();
    let home = caller.home(&caller.ancestors(), own.as_deref());
    Ok(home.map_err(BrokerError::from)?)
}

/// A terminal to put a question to.
struct Screen {
    term: Term,
    watch: Watch,
    _keys: KeysFrom,
}

impl Screen {
    /// The terminal, with what was typed before dropped.
    fn open() -> Result<Self, Failure> {
        let failed = |error| Failure::File {
            what: "cannot open the terminal".to_owned(),
            error,
        };
        let tty = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .map_err(failed)?;
        let keys = KeysFrom::terminal(&tty).map_err(failed)?;
        let watch = Watch::begin();
        let _ = terminal::discard_input(&tty);
        let other = tty.try_clone().map_err(failed)?;
        Ok(Self {
            term: Term::read_write_pair(tty, other),
            watch,
            _keys: keys,
        })
    }

    /// Whether it was a person who answered; where somebody else could have, a word on the screen decides.
    fn is_a_person(&self) -> bool {
        if !self.watch.keys_could_be_faked() {
            return true;
        }
        let (prompt, word) = word_prompt();
        let typed = Input::<String>::with_theme(&SimpleTheme)
            .with_prompt(prompt)
            .allow_empty(true)
            .interact_text_on(&self.term);
        typed.is_ok_and(|typed| typed.trim() == word)
    }
}

/// Shows a text on the terminal and asks yes or no; the answer is no unless a person says yes.
pub fn confirm(text: &str, question: &str) -> Result<bool, Failure> {
    let mut screen = Screen::open()?;
    screen.term.write_all(text.as_bytes())?;
    let answer = Confirm::with_theme(&SimpleTheme)
        .with_prompt(question)
        .default(false)
        .interact_on_opt(&screen.term);
    Ok(answer.ok().flatten().unwrap_or(false) && screen.is_a_person())
}

/// Whether a person typed the line that we carry out; asked only where a program could have typed it.
pub fn typed_by_a_person() -> Result<bool, Failure> {
    Ok(Screen::open()?.is_a_person())
}

/// Lets a person choose; `None` when he does not.
pub fn choose(question: &str, items: &[&str], default: usize) -> Result<Option<usize>, Failure> {
    let screen = Screen::open()?;
    let answer = Select::with_theme(&SimpleTheme)
        .with_prompt(question)
        .items(items.iter().copied())
        .default(default)
        .interact_on_opt(&screen.term);
    let _ = screen.term.show_cursor();
    Ok(answer.unwrap_or(None).filter(|_| screen.is_a_person()))
}
