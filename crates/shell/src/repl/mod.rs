//! The front end: it reads lines, has them judged, and lets the engine run them.

mod completion;
mod continuation;
mod editor;
mod highlight;
mod history;
mod joined;
mod keys;
mod lent;
mod plain;
mod prompt;
mod recall;
mod words;

use std::cell::RefCell;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustyline::error::ReadlineError;
use substrate_broker::env::SUBSTRATE_EDIT_MODE;
use substrate_sys::bounded::{self, Links};
use substrate_world::backend::Beside as Aside;

use self::lent::Lent;
use crate::engine::{
    Beside, Console, Dialect, Ending, Engine, EngineError, Launcher, Ran, Startup, Then,
    find_shell, quote,
};
use crate::gate::{Arrival, End, Gate, Submission};
use crate::notice::Announcer;
use editor::{Pressed, Shared, Signals};
use highlight::Painter;
use history::SharedHistory;
use keys::Keys;
use prompt::{Looks, Prompt};
use recall::shown;

pub use continuation::is_complete;
pub use history::Redact;
pub use prompt::git_branch;

/// How a session is to be.
pub struct ReplOptions {
    /// Which start-up files the shell reads.
    pub startup: Startup,
    /// The shell to use as the engine; found if not given.
    pub shell: Option<PathBuf>,
    /// Where the history file lives; none keeps it in memory.
    pub home: Option<PathBuf>,
    /// The history file of the user's own shell, where that shell cannot write it itself.
    pub shell_history: Option<PathBuf>,
    /// Takes secrets out of lines before they reach the disk.
    pub redact: Redact,
    /// Our own prompt, whatever `PS1` says.
    pub own_prompt: bool,
    /// vi keys from the start; otherwise the shell's `set -o vi` or the inputrc decides.
    pub vi: Option<bool>,
    /// Where the engine is started.
    pub launcher: Box<dyn Launcher>,
    /// Says what happens while a line is edited.
    pub announcer: Announcer,
}

impl Default for ReplOptions {
    fn default() -> Self {
        Self {
            startup: Startup::default(),
            shell: None,
            home: None,
            shell_history: None,
            redact: |line| std::borrow::Cow::Borrowed(line),
            own_prompt: false,
            vi: None,
            launcher: Box::new(Beside),
            announcer: Announcer::default(),
        }
    }
}

/// The status of a shell that could not do its work.
const FAILED: i32 = 125;
/// The status after an interrupt at the prompt.
const INTERRUPTED: i32 = 130;

/// What the prompt may have open at once, besides what it has got: the engine's ends, the editor's, files.
const DESCRIPTORS: usize = 16;

/// Why there was no prompt, in words.
#[derive(Debug)]
pub struct NotStarted(pub String);

/// Runs a session on the terminal until its shell ends; the answer is the status to exit with.
pub fn run(options: ReplOptions, gate: &dyn Gate) -> Result<i32, NotStarted> {
    let looks = Looks::from_environment(|name| std::env::var_os(name));
    let Some(terminal) = terminal() else {
        say("there is no terminal to talk to; give a command with -c, or a script");
        return Ok(FAILED);
    };
    let spare: io::Result<Vec<OwnedFd>> = (0..DESCRIPTORS).map(|_| terminal.try_clone()).collect();
    spare.map_err(|error| NotStarted(format!("a prompt needs more descriptors: {error}")))?;
    let mut console = Console::take_over(terminal)
        .map_err(|error| NotStarted(format!("cannot take over the terminal: {error}")))?;
    let mut options = options;
    // Before anything is started that could have to wait for a person.
    gate.listen(true);
    // The engine reads its start-up files while everything else gets ready.
    let launched = launch_first(&mut options, &mut console);
    gate.engine_starts();
    options.vi = options.vi.or_else(vi_setting);
    let file = options.home.as_ref().map(|home| home.join("history"));
    let mut history = SharedHistory::new(file, options.redact);
    history.set_recall(gate.remembered());
    let refreshed = history.refresh();
    let painter = Painter::new();
    let keys = (looks.cursor && io::stdout().is_terminal())
        .then(Keys::install)
        .and_then(Result::ok);
    let not_started = |error: EngineError| NotStarted(error.to_string());
    let Launching {
        shell,
        dialect,
        cwd,
        engine,
    } = launched.map_err(not_started)?;
    let (shell, engine, starting) = match engine {
        Ok(engine) => (shell, engine, true),
        Err(error) => {
            let failed = (error, shell.as_path(), dialect);
            let (shell, engine) = in_its_place(failed, &mut options, &cwd, &mut console, gate)
                .map_err(not_started)?;
            (shell, engine, false)
        }
    };
    let shared = Shared {
        cwd: RefCell::new(cwd),
        engine: Rc::new(RefCell::new(engine)),
        gate,
        shell: RefCell::new(shell),
        looks,
    };
    let reader = match keys {
        Some(keys) => Reader::rich(&shared, keys, history, painter, &options.announcer),
        None => Reader::plain(history),
    };
    if starting {
        let ready = attended(shared.gate, |aside| {
            let mut engine = shared.engine.borrow_mut();
            engine.become_ready(&mut console, aside)
        });
        if let Err(error) = ready {
            let (shell, cwd) = (shared.shell.borrow().clone(), shared.cwd.borrow().clone());
            let failed = (error, shell.as_path(), dialect);
            let (shell, engine) =
                in_its_place(failed, &mut options, &cwd, &mut console, shared.gate)
                    .map_err(not_started)?;
            shared.shell.replace(shell);
            shared.engine.replace(engine);
        }
    }
    let here = shared.engine.borrow().cwd();
    shared
        .cwd
        .replace(here.unwrap_or_else(|_| PathBuf::from("/")));
    let mut session = Session {
        console,
        shared: &shared,
        options,
        reader,
        exit_warned: false,
        ends_of_file: 0,
        history_warned: false,
        initial: None,
        typed: false,
    };
    session.note_history(refreshed);
    Ok(session.talk())
}

fn terminal() -> Option<OwnedFd> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return stdin.as_fd().try_clone_to_owned().ok();
    }
    let tty = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/tty");
    tty.ok().map(OwnedFd::from)
}

fn say(text: &str) {
    let _ = writeln!(io::stderr(), "substrate: {text}");
}

/// A first engine that is on its way.
struct Launching {
    shell: PathBuf,
    dialect: Dialect,
    cwd: PathBuf,
    engine: Result<Engine, EngineError>,
}

/// Starts the first engine's process.
fn launch_first(
    options: &mut ReplOptions,
    console: &mut Console,
) -> Result<Launching, EngineError> {
    let (shell, dialect) = match &options.shell {
        Some(shell) => {
            let bash = shell.file_name().is_some_and(|name| name == "bash");
            (
                shell.clone(),
                if bash { Dialect::Bash } else { Dialect::Posix },
            )
        }
        None => find_shell(std::env::var_os("PATH").as_deref()).ok_or(EngineError::NoShell)?,
    };
    if dialect == Dialect::Posix {
        say("there is no bash here; a plain sh serves, without completion and hooks");
    }
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let engine = Engine::launch(
        (&shell, dialect),
        &options.startup,
        &cwd,
        console,
        options.launcher.as_mut(),
    );
    Ok(Launching {
        shell,
        dialect,
        cwd,
        engine,
    })
}

/// Starts another engine in place of a first one that failed, in plainer ways as long as the better
/// ones fail.
fn in_its_place(
    failed: (EngineError, &Path, Dialect),
    options: &mut ReplOptions,
    cwd: &Path,
    console: &mut Console,
    gate: &dyn Gate,
) -> Result<(PathBuf, Engine), EngineError> {
    let (error, shell, dialect) = failed;
    match start_again(Err(error), (shell, dialect), options, cwd, console, gate) {
        Ok(engine) => Ok((shell.to_path_buf(), engine)),
        Err(error) if dialect == Dialect::Bash => {
            let sh = PathBuf::from("/bin/sh");
            say(&format!("{error}; a plain sh serves"));
            let engine = Engine::start(
                (&sh, Dialect::Posix),
                &Startup::default(),
                cwd,
                console,
                options.launcher.as_mut(),
                None,
            )?;
            Ok((sh, engine))
        }
        Err(error) => Err(error),
    }
}

/// Starts an engine; if the start-up files end it, once more without them.
fn start_engine(
    shell: (&Path, Dialect),
    options: &mut ReplOptions,
    cwd: &Path,
    console: &mut Console,
    gate: &dyn Gate,
) -> Result<Engine, EngineError> {
    let launcher = options.launcher.as_mut();
    let first = attended(gate, |aside| {
        Engine::start(shell, &options.startup, cwd, console, launcher, aside)
    });
    start_again(first, shell, options, cwd, console, gate)
}

/// Lets the engine do something; meanwhile program starts that need a person's word are put to him.
fn attended<T>(gate: &dyn Gate, act: impl FnOnce(Option<&mut Aside<'_>>) -> T) -> T {
    let bell = gate.listen(true);
    let mut attend = || {
        gate.attend();
        true
    };
    let mut aside = bell.as_ref().map(|bell| Aside {
        fd: bell.as_fd(),
        call: &mut attend,
    });
    let done = act(aside.as_mut());
    gate.listen(false);
    done
}

/// If the start-up files ended an engine, starts one without them.
fn start_again(
    first: Result<Engine, EngineError>,
    shell: (&Path, Dialect),
    options: &mut ReplOptions,
    cwd: &Path,
    console: &mut Console,
    gate: &dyn Gate,
) -> Result<Engine, EngineError> {
    match first {
        Err(EngineError::EndedEarly(ending)) if ending != Ending::HungUp => {
            say(&format!(
                "the shell ended in its start-up files ({ending}); it starts without them"
            ));
            let bare = Startup {
                no_rc: true,
                no_profile: true,
                ..options.startup.clone()
            };
            let launcher = options.launcher.as_mut();
            attended(gate, |aside| {
                Engine::start(shell, &bare, cwd, console, launcher, aside)
            })
        }
        result => result,
    }
}

/// What came of reading a line.
enum Read {
    Line(Vec<u8>),
    /// The line is to be opened in an editor first.
    Edit(Vec<u8>),
    /// A key was pressed that a command of the shell is bound to; the prompt took this many rows.
    Pressed(Box<Pressed>, usize),
    Interrupted,
    EndOfFile,
    /// The terminal or the engine is gone.
    Lost,
}

/// What the session does next.
enum Next {
    Prompt,
    /// This text comes next, as if it had been typed.
    Line(Vec<u8>),
    End(i32),
}

/// How lines are read: with an editor, or as the terminal itself gathers them.
enum Reader<'s, 'g> {
    Rich {
        editor: Box<editor::LineEditor<'s, 'g>>,
        keys: Keys,
        signals: Signals,
    },
    Plain {
        history: SharedHistory,
        /// Keys that were typed before the next line.
        ahead: Vec<u8>,
        /// So many of the next were typed while a program had the terminal.
        left: usize,
    },
}

impl<'s, 'g> Reader<'s, 'g> {
    fn rich(
        shared: &'s Shared<'g>,
        keys: Keys,
        history: SharedHistory,
        painter: Painter,
        announcer: &Announcer,
    ) -> Self {
        let signals = Signals::default();
        match editor::make(shared, keys.flow(), history, painter, &signals, announcer) {
            Ok(editor) => Self::Rich {
                editor: Box::new(editor),
                keys,
                signals,
            },
            Err(error) => {
                say(&format!("cannot set up the line editor: {error}"));
                Self::plain(SharedHistory::new(None, |line| {
                    std::borrow::Cow::Borrowed(line)
                }))
            }
        }
    }

    fn plain(history: SharedHistory) -> Self {
        Self::Plain {
            history,
            ahead: Vec::new(),
            left: 0,
        }
    }

    /// Keys that wait for the next line.
    fn take_ahead(&mut self) -> Vec<u8> {
        match self {
            Self::Rich { keys, .. } => keys.take_pending(),
            Self::Plain { ahead, .. } => std::mem::take(ahead),
        }
    }

    fn history(&mut self) -> &mut SharedHistory {
        match self {
            Self::Rich { editor, .. } => editor.history_mut(),
            Self::Plain { history, .. } => history,
        }
    }
}

struct Session<'s, 'g> {
    console: Console,
    shared: &'s Shared<'g>,
    options: ReplOptions,
    reader: Reader<'s, 'g>,
    exit_warned: bool,
    ends_of_file: u32,
    history_warned: bool,
    /// What the next line begins with, before and after the cursor.
    initial: Option<(String, String)>,
    /// Whether every byte of the line in hand came from the keyboard. What the engine had a hand in
    /// (its history, key bindings, an editor) never carries the person's authority.
    typed: bool,
}

impl Session<'_, '_> {
    /// From the first prompt to the last.
    fn talk(mut self) -> i32 {
        let mut ran_something = true;
        let mut next = Next::Prompt;
        loop {
            let read = match next {
                Next::End(status) => return status,
                Next::Line(text) => {
                    self.typed = false;
                    Read::Line(text)
                }
                Next::Prompt => {
                    self.typed = self.initial.is_none();
                    let refreshed = self.reader.history().refresh();
                    self.note_history(refreshed);
                    self.options.announcer.set_editing(true);
                    self.shared.gate.before_prompt();
                    self.read(std::mem::take(&mut ran_something))
                }
            };
            self.options.announcer.set_editing(false);
            next = match read {
                Read::Line(text) => {
                    self.ends_of_file = 0;
                    ran_something = true;
                    self.handle(&text)
                }
                Read::Edit(text) => self.edit(&text, None),
                Read::Pressed(pressed, rows) => self.press(&pressed, rows),
                Read::Interrupted => {
                    self.shared.engine.borrow_mut().set_status(INTERRUPTED);
                    self.run_hooks()
                }
                Read::EndOfFile => self.end_of_file(),
                Read::Lost => self.lost(),
            };
        }
    }

    /// Runs the command that is bound to a key, where the line was, and goes on with what it made of
    /// the line. Such commands are part of the shell, as prompt hooks are.
    fn press(&mut self, pressed: &Pressed, rows: usize) -> Next {
        let erase = format!("\x1b[{rows}A\r\x1b[J");
        let terminal = self.console.terminal();
        let _ = substrate_sys::process_group::write_all(terminal, erase.as_bytes());
        let line = keys::to_bytes(&pressed.line);
        let before = pressed.line.get(..pressed.position).unwrap_or_default();
        let cursor = before.chars().count();
        let done = attended(self.shared.gate, |aside| {
            let mut engine = self.shared.engine.borrow_mut();
            engine.run_bound(&pressed.bound, &line, cursor, &mut self.console, aside)
        });
        let (line, cursor) = match done {
            Ok(Ok(done)) => done,
            Ok(Err(ending)) => return self.engine_ended(ending),
            Err(_) => return self.engine_ended(Ending::Killed(0)),
        };
        if pressed.bound.then == Then::Submit && !line.is_empty() {
            let _ = writeln!(io::stderr(), "{}", shown(&line));
            return Next::Line(line);
        }
        let (line, cursor) = match pressed.bound.then {
            Then::Complete => {
                let question = pressed.question.as_ref();
                let changed = question.and_then(|question| {
                    completion::with_answer(&line, question, &pressed.line, pressed.position)
                });
                let (line, at) = changed.unwrap_or((pressed.line.clone(), pressed.position));
                let cursor = line.get(..at).unwrap_or_default().chars().count();
                (line, cursor)
            }
            // Nothing was chosen.
            Then::Replace | Then::Submit if line.is_empty() => {
                (pressed.line.clone(), before.chars().count())
            }
            _ => (keys::to_text(&line), cursor),
        };
        let at = line
            .char_indices()
            .nth(cursor)
            .map_or(line.len(), |(at, _)| at);
        let (left, right) = line.split_at(at);
        self.initial = Some((left.to_owned(), right.to_owned()));
        Next::Prompt
    }

    /// A line that was typed: history expansion and `fc` first, then the path of every line.
    fn handle(&mut self, text: &[u8]) -> Next {
        let text = match self.expand_history(text) {
            Ok(text) => text,
            Err(message) => {
                say(&message);
                self.shared.engine.borrow_mut().set_status(1);
                return Next::Prompt;
            }
        };
        if let Some(next) = self.reissue(&text) {
            return next;
        }
        let text = self.change_into(&text).unwrap_or(text);
        self.remember(&text);
        if self.is_exit(&text) && self.warns_of_stopped_jobs() {
            self.shared.engine.borrow_mut().set_status(1);
            return Next::Prompt;
        }
        self.judge_and_run(&text)
    }

    /// The line that changes to a directory whose name is all that was typed, if the shell is to do that
    /// (`autocd`) and the name is nothing else.
    fn change_into(&self, text: &[u8]) -> Option<Vec<u8>> {
        if !self.shared.engine.borrow().report().changes_directory {
            return None;
        }
        let word = text.trim_ascii();
        let plain = |byte: &u8| {
            byte.is_ascii_alphanumeric() || b"/._-+,@%~\\ ".contains(byte) || *byte >= 0x80
        };
        let one = !word.is_empty() && words::command_at_end(&keys::to_text(word)).words.len() == 1;
        if !one || !word.iter().all(plain) {
            return None;
        }
        let mut engine = self.shared.engine.borrow_mut();
        let question: [&[u8]; 2] = [b"__substrate_is_directory", word];
        let answer = engine.ask(&question, Duration::from_secs(2))?;
        if answer != b"yes" {
            return None;
        }
        let line = [b"cd -- ", word].concat();
        let _ = writeln!(io::stderr(), "{}", shown(&line));
        Some(line)
    }

    /// The path of a line: judged, run where it belongs, reported.
    fn judge_and_run(&mut self, text: &[u8]) -> Next {
        if text.trim_ascii().is_empty() {
            // Nothing to judge, but jobs may have ended and hooks expect a prompt.
            return self.run_hooks();
        }
        let cwd = self.shared.cwd.borrow().clone();
        let (names, process) = {
            let mut engine = self.shared.engine.borrow_mut();
            (engine.names().clone(), engine.process())
        };
        let submission = Submission {
            line: text,
            typed: self.typed,
            cwd: &cwd,
            names: &names,
            engine: process,
        };
        let gate = self.shared.gate;
        let mut lent = Lent {
            session: self,
            line: text,
            next: None,
        };
        let end = gate.submit(&submission, &mut lent);
        let next = lent.next;
        match end {
            End::Ran => {
                let status = self.shared.engine.borrow().report().status;
                self.reader.history().note_outcome(status, Some("allow"));
                match next.unwrap_or(Next::Prompt) {
                    Next::Prompt => self.arrive(text, &cwd),
                    next => next,
                }
            }
            End::Refused { message, status } => {
                if !message.is_empty() {
                    let _ = writeln!(io::stderr(), "{}", message.trim_end());
                }
                self.did_not_run_here(text, status, "deny")
            }
            End::Elsewhere(status) => {
                self.console.take();
                self.did_not_run_here(text, status, "isolate")
            }
        }
    }

    /// What the engine has of a line that it did not run.
    fn did_not_run_here(&mut self, text: &[u8], status: i32, verdict: &str) -> Next {
        let remembered = self.remembered(text);
        let mut engine = self.shared.engine.borrow_mut();
        engine.remember(&remembered);
        engine.set_status(status);
        drop(engine);
        self.reader.history().note_outcome(status, Some(verdict));
        self.run_hooks()
    }

    /// Lets the engine's prompt hooks see the status of a line that did not run there.
    fn run_hooks(&mut self) -> Next {
        self.run_in_engine(b"", b"", &[])
    }

    /// The line as the engine's own history keeps it: in one row where that can be, and not at all if there is a
    /// secret in it.
    fn remembered(&self, text: &[u8]) -> Vec<u8> {
        if (self.options.redact)(text) != text {
            return Vec::new();
        }
        match self.shared.engine.borrow().report().joins_lines {
            true => joined::in_one_row(text),
            false => text.to_vec(),
        }
    }

    fn run_in_engine(
        &mut self,
        text: &[u8],
        remembered: &[u8],
        exports: &[(&str, String)],
    ) -> Next {
        let mut prefix = Vec::new();
        for (name, value) in exports {
            prefix.extend_from_slice(format!("export {name}=").as_bytes());
            prefix.extend_from_slice(&quote::single(value.as_bytes()));
            prefix.push(b'\n');
        }
        let prefix = (!prefix.is_empty()).then_some(prefix.as_slice());
        if self.shared.engine.borrow().has_own_terminal() {
            let ahead = self.reader.take_ahead();
            self.shared.engine.borrow_mut().type_before(ahead);
        }
        let ran = attended(self.shared.gate, |aside| {
            let mut engine = self.shared.engine.borrow_mut();
            engine.run(text, remembered, prefix, &mut self.console, aside)
        });
        if self.shared.engine.borrow_mut().was_repaired() {
            say(
                "commands of the shell that the prompt stands on were redefined; they are its own again",
            );
        }
        match ran {
            Ok(Ran::Ready(_)) => {
                let engine = self.shared.engine.borrow();
                if let Ok(cwd) = engine.cwd() {
                    self.shared.cwd.replace(cwd);
                }
                Next::Prompt
            }
            Ok(Ran::Ended(ending)) => self.engine_ended(ending),
            Err(error) => {
                say(&format!("lost touch with the shell: {error}"));
                self.engine_ended(Ending::Killed(0))
            }
        }
    }

    /// A line is over that may have led to another directory, where the engine cannot live on as it does.
    fn arrive(&mut self, text: &[u8], from: &Path) -> Next {
        let to = self.shared.cwd.borrow().clone();
        if to == from || self.shared.engine.borrow().dialect() != Dialect::Bash {
            return Next::Prompt;
        }
        let (names, process) = {
            let mut engine = self.shared.engine.borrow_mut();
            (engine.names().clone(), engine.process())
        };
        let arrival = Arrival {
            line: text,
            typed: self.typed,
            from,
            to: &to,
            names: &names,
            engine: process,
        };
        if !self.shared.gate.leads_on(&arrival) {
            return Next::Prompt;
        }
        let (state, status) = {
            let mut engine = self.shared.engine.borrow_mut();
            let typed = engine.take_typed_ahead();
            self.console.keep_typed(typed);
            (engine.whole_state(), engine.report().status)
        };
        let moved = self.shared.gate.move_on(process);
        let directory = if moved { to } else { from.to_owned() };
        let startup = Startup {
            no_rc: true,
            no_profile: true,
            ..self.options.startup.clone()
        };
        let startup = std::mem::replace(&mut self.options.startup, startup);
        let shell = self.shared.shell.borrow().clone();
        let shell = (shell.as_path(), Dialect::Bash);
        let (options, gate) = (&mut self.options, self.shared.gate);
        let started = start_engine(shell, options, &directory, &mut self.console, gate);
        self.options.startup = startup;
        let engine = match started {
            Ok(engine) => engine,
            Err(error) => {
                say(&error.to_string());
                return Next::End(FAILED);
            }
        };
        let process = engine.process();
        self.shared.cwd.replace(engine.cwd().unwrap_or(directory));
        self.shared.engine.replace(engine);
        self.shared.gate.moved_on(process);
        let mut program = b"eval ".to_vec();
        program.extend_from_slice(&quote::single(&state));
        program.extend_from_slice(b" 2>/dev/null");
        let next = self.run_in_engine(&program, b"", &[]);
        self.shared.engine.borrow_mut().set_status(status);
        next
    }

    /// An engine that left by itself ends the session; one that was killed is replaced.
    fn engine_ended(&mut self, ending: Ending) -> Next {
        let status = match ending {
            Ending::Exited(status) => return Next::End(status),
            Ending::HungUp => return Next::End(129),
            Ending::Killed(number) => 128 + number,
            Ending::Strayed | Ending::Silent => FAILED,
        };
        let cwd = self.shared.cwd.borrow().clone();
        say(&format!(
            "the shell ended ({ending}); its jobs and variables are gone, a new one starts in {}",
            cwd.display()
        ));
        self.shared.gate.engine_lost(&ending.to_string());
        let dialect = {
            let mut engine = self.shared.engine.borrow_mut();
            self.console.keep_typed(engine.take_typed_ahead());
            engine.dialect()
        };
        // The new one continues a session: the login files had their turn.
        self.options.startup.login = false;
        let directory = if cwd.is_dir() {
            cwd
        } else {
            PathBuf::from("/")
        };
        let shell = self.shared.shell.borrow().clone();
        let shell = (shell.as_path(), dialect);
        let (options, gate) = (&mut self.options, self.shared.gate);
        match start_engine(shell, options, &directory, &mut self.console, gate) {
            Ok(mut engine) => {
                engine.set_status(status);
                self.shared.cwd.replace(engine.cwd().unwrap_or(directory));
                self.shared.engine.replace(engine);
                Next::Prompt
            }
            Err(error) => {
                say(&error.to_string());
                Next::End(FAILED)
            }
        }
    }

    fn lost(&mut self) -> Next {
        if self.console.asked().hang_up {
            self.shared.engine.borrow_mut().hang_up();
            return Next::End(129);
        }
        let ending = self.shared.engine.borrow_mut().ending();
        match ending {
            Some(ending) => self.engine_ended(ending),
            None => {
                self.shared.engine.borrow_mut().hang_up();
                Next::End(129)
            }
        }
    }

    fn end_of_file(&mut self) -> Next {
        let limit = {
            let engine = self.shared.engine.borrow();
            let setting = String::from_utf8_lossy(&engine.report().ignore_eof).into_owned();
            match setting.as_str() {
                "" => 0,
                number => number.parse().unwrap_or(10),
            }
        };
        if self.ends_of_file < limit {
            self.ends_of_file += 1;
            say("use \"exit\" to leave the shell");
            return Next::Prompt;
        }
        let login = self.shared.engine.borrow().report().login;
        let _ = writeln!(io::stderr(), "{}", if login { "logout" } else { "exit" });
        if self.warns_of_stopped_jobs() {
            return Next::Prompt;
        }
        self.judge_and_run(b"exit")
    }

    fn is_exit(&mut self, text: &[u8]) -> bool {
        let first = text
            .trim_ascii()
            .split(|byte| byte.is_ascii_whitespace() || *byte == b';')
            .next();
        let leaves = matches!(first, Some(b"exit" | b"logout"));
        if !leaves && first != Some(b"jobs") {
            self.exit_warned = false;
        }
        leaves
    }

    /// Stopped jobs are worth one warning before the shell leaves them.
    fn warns_of_stopped_jobs(&mut self) -> bool {
        if self.exit_warned {
            return false;
        }
        let stopped = self
            .shared
            .engine
            .borrow_mut()
            .ask(&[b"__substrate_stopped"], Duration::from_secs(2))
            .is_some_and(|answer| !answer.is_empty());
        if stopped {
            let _ = writeln!(io::stderr(), "There are stopped jobs.");
            self.exit_warned = true;
        }
        stopped
    }

    fn remember(&mut self, text: &[u8]) {
        let cwd = self.shared.cwd.borrow().clone();
        let kept = self.reader.history().remember(text, &cwd);
        self.note_history(kept);
        if let Some(file) = self.options.shell_history.clone() {
            let control = self.shared.engine.borrow().report().history_control.clone();
            let ignored = text.first() == Some(&b' ')
                && [&b"ignorespace"[..], b"ignoreboth"].iter().any(|word| {
                    control
                        .split(|byte| *byte == b':')
                        .any(|part| part == *word)
                });
            let line = match ignored {
                true => Vec::new(),
                false => self.remembered(text),
            };
            if !line.is_empty() {
                let written = history::append_to_shell(&file, &line);
                self.note_history(written);
            }
        }
        if let Reader::Rich { signals, .. } = &self.reader {
            let line = keys::to_text(text);
            let word = words::command_at_end(line.trim_end()).words.pop();
            *signals
                .last_word
                .lock()
                .unwrap_or_else(PoisonError::into_inner) =
                word.map(|word| word.raw).unwrap_or_default();
        }
    }

    fn note_history(&mut self, result: io::Result<()>) {
        if let Err(error) = result
            && !std::mem::replace(&mut self.history_warned, true)
        {
            say(&format!(
                "the history file cannot be used, lines are kept in memory only: {error}"
            ));
        }
    }

    fn prompt(&self) -> Prompt {
        let engine = self.shared.engine.borrow();
        let report = engine.report();
        match &report.prompt {
            Some(expanded) if !self.options.own_prompt => {
                let prompt = prompt::from_shell(expanded, self.shared.looks);
                if !report.sign {
                    return prompt;
                }
                let cwd = self.shared.cwd.borrow();
                let standing = self.shared.gate.standing(&cwd);
                prompt::signed(prompt, &standing, self.shared.looks)
            }
            _ => {
                let cwd = self.shared.cwd.borrow();
                let standing = self.shared.gate.standing(&cwd);
                prompt::own(&cwd, &standing, report.status, is_root(), self.shared.looks)
            }
        }
    }

    fn read(&mut self, ran_something: bool) -> Read {
        let prompt = self.prompt();
        let (vi, ahead) = {
            let mut engine = self.shared.engine.borrow_mut();
            (engine.report().vi, engine.take_typed_ahead())
        };
        let vi = vi || self.options.vi == Some(true);
        let still_waits = self.console.take_left();
        match &mut self.reader {
            Reader::Plain {
                ahead: pending,
                left,
                ..
            } => {
                pending.extend(ahead);
                *left = still_waits.unwrap_or(*left);
                self.typed &= pending.is_empty() && *left == 0;
                let bash = self.shared.engine.borrow().dialect() == Dialect::Bash;
                let terminal = self.console.terminal();
                let shell = self.shared.shell.borrow();
                let read = plain::read(&prompt.0, pending, terminal, &shell, bash);
                if let Read::Line(text) = &read {
                    *left = left.saturating_sub(text.len() + 1);
                }
                read
            }
            Reader::Rich {
                editor,
                keys,
                signals,
            } => {
                let Some(modes) = self.console.edit() else {
                    return Read::Lost;
                };
                keys.push_pending(&ahead);
                if let Some(left) = still_waits {
                    keys.set_left(left);
                }
                // Somebody typed this for a program, which could stop reading wherever it liked.
                self.typed &= !keys.has_foreign();
                if ran_something {
                    to_line_start(&self.console, self.shared.looks);
                }
                editor::set_mode(editor, vi);
                signals.wants_editor.store(false, Ordering::SeqCst);
                let (ended, output) = {
                    let engine = self.shared.engine.borrow();
                    let output = engine.output().map(|fd| fd.try_clone_to_owned());
                    (engine.ended().try_clone_to_owned().ok(), output)
                };
                let output = output.and_then(Result::ok);
                let watched = keys::Engine {
                    ended: ended.as_ref().map(AsFd::as_fd),
                    output: output.as_ref().map(AsFd::as_fd),
                };
                let mut first = self.initial.take().unwrap_or_default();
                let bash = self.shared.engine.borrow().dialect() == Dialect::Bash;
                let more = {
                    let engine = self.shared.engine.borrow();
                    prompt::from_shell(&engine.report().continuation, self.shared.looks)
                };
                let shell = self.shared.shell.borrow().clone();
                let mut rows_before = String::new();
                let line = loop {
                    let (left, right) = std::mem::take(&mut first);
                    let prompt = if rows_before.is_empty() {
                        &prompt
                    } else {
                        &more
                    };
                    let read = keys.feed(&self.console, watched, &modes, || {
                        editor.readline_with_initial(prompt, (&left, &right))
                    });
                    match read {
                        Some(Ok(row)) if !signals.interrupted() && !keys.flow().is_lost() => {
                            rows_before.push_str(&row);
                            let text = keys::to_bytes(&rows_before);
                            if continuation::is_complete(&text, &shell, bash) {
                                break Some(Ok(rows_before));
                            }
                            // The rest is asked for as bash asks.
                            rows_before.push('\n');
                        }
                        Some(Ok(row)) => {
                            if let Some(pressed) = signals.pressed().as_mut() {
                                pressed.position += rows_before.len();
                                pressed.line.insert_str(0, &rows_before);
                            }
                            break Some(Ok(rows_before + &row));
                        }
                        // What was begun is told to be unfinished by the shell itself.
                        Some(Err(ReadlineError::Eof)) if !rows_before.is_empty() => {
                            break Some(Ok(rows_before));
                        }
                        other => break other,
                    }
                };
                self.typed &= !keys.took_left();
                // Keys for a program with a terminal of its own stay as they are until it gets them.
                if !self.shared.engine.borrow().has_own_terminal() {
                    self.console.restore();
                }
                if keys.flow().is_lost() {
                    return Read::Lost;
                }
                let pressed = signals.take_pressed().map(Box::new);
                match line.unwrap_or(Err(ReadlineError::Eof)) {
                    Ok(line) if let Some(pressed) = pressed => {
                        let columns = self.console.size().map_or(80, |size| size.columns);
                        let rows = rows(&format!("{}{line}", prompt.0), columns.into());
                        Read::Pressed(pressed, rows)
                    }
                    Ok(line) if signals.wants_editor.load(Ordering::SeqCst) => {
                        Read::Edit(keys::to_bytes(&line))
                    }
                    Ok(line) => Read::Line(keys::to_bytes(&line)),
                    Err(ReadlineError::Interrupted) => Read::Interrupted,
                    Err(ReadlineError::Eof) => Read::EndOfFile,
                    Err(_) => Read::Lost,
                }
            }
        }
    }
}

/// If the last output did not end its line, marks that and starts a new one: the editor writes
/// its prompt over the line it is on.
fn to_line_start(console: &Console, looks: Looks) {
    let Some(columns) = console
        .size()
        .map(|size| usize::from(size.columns))
        .filter(|&columns| columns > 1)
    else {
        return;
    };
    let mark = if looks.unicode { "\u{23ce}" } else { "%" };
    let text = format!("{}{}\r", looks.paint("2", mark), " ".repeat(columns - 1));
    let _ = substrate_sys::process_group::write_all(console.terminal(), text.as_bytes());
}

/// How many rows a text takes on the screen.
fn rows(text: &str, columns: usize) -> usize {
    let wide = columns.max(1);
    let row = |line: &str| line.chars().count() / wide + 1;
    text.split('\n').map(row).sum()
}

/// Longest inputrc that is looked at.
const INPUTRC_LIMIT: u64 = 1 << 20;

/// The editing style that the environment or the inputrc asks for.
fn vi_setting() -> Option<bool> {
    if let Some(mode) = std::env::var_os(SUBSTRATE_EDIT_MODE) {
        return Some(mode == "vi");
    }
    let path = std::env::var_os("INPUTRC").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME")?;
        Some(Path::new(&home).join(".inputrc"))
    })?;
    let content = bounded::read(path, Links::Follow, INPUTRC_LIMIT).ok()?;
    String::from_utf8_lossy(&content)
        .lines()
        .filter_map(|line| line.trim().strip_prefix("set editing-mode"))
        .map(|mode| mode.trim() == "vi")
        .next_back()
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|data| {
        use std::os::unix::fs::MetadataExt;
        data.uid() == 0
    })
}
