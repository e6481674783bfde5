//! The engine: an interactive shell that reads our lines, and only ours, and runs them.
//!
//! Its standard input is a socket, one control line at a time; unlike a pipe, a socket cannot be
//! opened again through `/proc` by a program that wants to slip a line in. A line of the user's is
//! run as a sourced file would be, with the terminal as its standard input: bash then never
//! changes where it reads commands from, whatever the line does (`set -o vi` in an interactive
//! `eval` makes it read the terminal).
//!
//! An interrupt must not meet the engine while it reads a control line, or it would run the rest
//! of it as a line of its own. So a line is read while the front end still owns the terminal; the
//! engine then asks for it and waits. What is read afterwards, while keys still raise signals, is
//! sent twice and harmless in every part.

mod bound;
mod carried;
mod console;
mod door;
mod launch;
mod posix;
pub mod quote;
mod script;
mod traps;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use substrate_relay::display::{self, Display};
use substrate_sys::process_group::{self, Change, signal};
use substrate_sys::{memfd, terminal};
use substrate_world::backend::Beside as Aside;
use substrate_world::backend::Tap;

pub use bound::{Bound, Then};
pub use carried::Carried;
pub use console::{Asked, Console};
pub use launch::{Beside, Dialect, Launched, Launcher, OnOwnTerminal, Start, find_shell};
pub use script::Report;

use crate::blocked;
use crate::names::Names;
use door::Door;
use script::Run;

/// Why an engine could not be started or spoken to.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No shell was found.
    #[error("no bash and no /bin/sh on this machine")]
    NoShell,
    /// The channel to the engine could not be made.
    #[error("cannot make a channel to the shell engine: {0}")]
    Channel(#[source] io::Error),
    /// The shell's process could not be started.
    #[error("cannot start {path}: {error}", path = .0.display(), error = .1)]
    Launch(PathBuf, #[source] io::Error),
    /// The shell ended before it was ready.
    #[error("the shell engine ended while it started ({0})")]
    EndedEarly(Ending),
}

/// How an engine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By itself, with this status: `exit`, or a program that took its place.
    Exited(i32),
    /// By a signal.
    Killed(i32),
    /// The terminal hung up and the engine was told.
    HungUp,
    /// We ended it: it read commands that nobody would have judged.
    Strayed,
    /// We ended it: it did not answer any more.
    Silent,
}

impl std::fmt::Display for Ending {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(status) => write!(formatter, "status {status}"),
            Self::Killed(number) => write!(formatter, "signal {number}"),
            Self::HungUp => write!(formatter, "hang-up"),
            Self::Strayed => write!(formatter, "it had begun to read what it was not sent"),
            Self::Silent => write!(formatter, "it did not answer any more"),
        }
    }
}

/// Which start-up files are read.
#[derive(Clone, Debug, Default)]
pub struct Startup {
    /// As a login shell.
    pub login: bool,
    /// Not the interactive start-up files.
    pub no_rc: bool,
    /// Not the login start-up files.
    pub no_profile: bool,
    /// This file instead of `~/.bashrc`.
    pub rc_file: Option<PathBuf>,
    /// The front end writes `~/.bash_history`; what the engine writes at its end goes with its world.
    pub history_elsewhere: bool,
}

/// What came of running a line.
pub enum Ran {
    /// The engine is ready for the next one.
    Ready(Box<Report>),
    /// The engine ended.
    Ended(Ending),
}

/// The modes of our terminal, which a shell that is interrupted sets as it likes them; they come back at the end.
struct KeptModes(Option<(std::fs::File, terminal::Modes)>);

impl KeptModes {
    fn of_the_terminal() -> Self {
        let terminal = std::fs::File::open("/dev/tty");
        Self(terminal.ok().and_then(|terminal| {
            let modes = terminal::Modes::of(&terminal).ok()?;
            Some((terminal, modes))
        }))
    }
}

impl Drop for KeptModes {
    fn drop(&mut self) {
        if let Some((terminal, modes)) = &self.0 {
            let _ = modes.apply(terminal);
        }
    }
}

/// What was asked of the engine has started something that wants the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnsTerminal;

/// A running engine.
pub struct Engine {
    dialect: Dialect,
    door: Door,
    /// It was told what can be asked of it.
    can_be_asked: bool,
    /// What it lacked was brought back.
    repaired: bool,
    control: UnixStream,
    launched: Launched,
    received: Vec<u8>,
    marks: u64,
    report: Report,
    names: Option<Names>,
    bound: Vec<Bound>,
    size: Option<terminal::Size>,
    typed_ahead: Vec<u8>,
    /// Keys for the next line's programs, from before it.
    typed_before: Vec<u8>,
    /// Keys that were passed on while it started.
    passed: Vec<u8>,
    /// The file that it executes.
    image: PathBuf,
    /// What it reads commands from, once that was seen.
    input: PathBuf,
    /// Where it keeps what it reads commands into, once that was seen.
    buffer: Option<u64>,
    /// The line that runs speaks of `suspend`.
    may_suspend: bool,
    running: bool,
    /// When the line that runs began.
    began: Option<Instant>,
    time_limit: Option<Duration>,
    overdue: Overdue,
    display: Display,
    /// Gets what the next line's programs show.
    tap: Option<Tap>,
}

/// How a line that takes too long is ended.
#[derive(Clone, Copy, Default)]
struct Overdue {
    /// When the next step is due.
    next: Option<Instant>,
    steps: u32,
}

impl Overdue {
    fn is_now(self) -> bool {
        self.next.is_some_and(|next| next <= Instant::now())
    }
}

enum Waited<T> {
    Got(T),
    Ended(Ending),
}

impl Engine {
    /// Starts an engine in a directory and waits until it is ready for a line.
    pub fn start(
        shell: (&Path, Dialect),
        startup: &Startup,
        cwd: &Path,
        console: &mut Console,
        launcher: &mut dyn Launcher,
        aside: Option<&mut Aside<'_>>,
    ) -> Result<Self, EngineError> {
        let mut engine = Self::launch(shell, startup, cwd, console, launcher)?;
        engine.become_ready(console, aside)?;
        Ok(engine)
    }

    /// Starts an engine in a directory; it has the terminal and reads its start-up files until
    /// [`Engine::become_ready`] answers.
    pub fn launch(
        shell: (&Path, Dialect),
        startup: &Startup,
        cwd: &Path,
        console: &mut Console,
        launcher: &mut dyn Launcher,
    ) -> Result<Self, EngineError> {
        let (program, dialect) = shell;
        let (control, engine_side) = UnixStream::pair().map_err(EngineError::Channel)?;
        let door = Door::below(substrate_sys::fdlimit::get().0);
        let terminal_number = match dialect {
            Dialect::Bash => door.control() - 1,
            Dialect::Posix => posix::TERMINAL,
        };
        let setup_number = door.control() - 2;
        let setup = memfd::sealed(c"setup", &script::setup(&door, &startup_files(startup)))
            .map_err(EngineError::Channel)?;
        let mut arguments: Vec<OsString> = Vec::new();
        let mut environment = vec![("PS1".into(), Some(OsString::new()))];
        let mut descriptors = Vec::new();
        if dialect == Dialect::Bash {
            arguments.extend(["--noediting", "--norc", "--noprofile"].map(OsString::from));
            // Else bash would cut the user's history file to its default size while it starts.
            environment.push(("HISTFILE".into(), Some(OsString::new())));
            descriptors.push((setup.as_fd(), setup_number));
        } else {
            environment.push(("PS2".into(), Some(OsString::new())));
        }
        arguments.push("-i".into());
        let base = program.file_name().unwrap_or_else(|| OsStr::new("sh"));
        let mut name = OsString::new();
        if startup.login {
            name.push("-");
        }
        name.push(base);
        let start = Start {
            program,
            name: &name,
            arguments: &arguments,
            environment: &environment,
            cwd,
            control: engine_side.as_fd(),
            descriptors,
            terminal_number,
            terminal: console.terminal(),
        };
        let launched = launcher
            .launch(&start)
            .map_err(|error| EngineError::Launch(program.to_path_buf(), error))?;
        drop(engine_side);
        let mut engine = Self {
            dialect,
            door,
            can_be_asked: false,
            repaired: false,
            control,
            launched,
            received: Vec::new(),
            marks: 0,
            report: Report::default(),
            names: None,
            bound: Vec::new(),
            size: console.size(),
            typed_ahead: console.take_typed(),
            typed_before: Vec::new(),
            passed: Vec::new(),
            image: PathBuf::new(),
            input: PathBuf::new(),
            buffer: None,
            may_suspend: false,
            running: false,
            began: None,
            time_limit: None,
            overdue: Overdue::default(),
            display: Display::default(),
            tap: None,
        };
        if engine.launched.pty.is_some() {
            console.pass_through();
        }
        match engine.first_lines(startup, setup_number, terminal_number) {
            Ok(()) => Ok(engine),
            // It has ended already; whoever waits for it to be ready finds that out.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(engine),
            Err(error) => {
                engine.return_terminal(console);
                Err(EngineError::Channel(error))
            }
        }
    }

    /// Waits until a launched engine has read its start-up files, and takes the terminal back.
    pub fn become_ready(
        &mut self,
        console: &mut Console,
        aside: Option<&mut Aside<'_>>,
    ) -> Result<(), EngineError> {
        let started = self.wait_for(console, true, aside, script::take_report);
        self.return_terminal(console);
        let passed = std::mem::take(&mut self.passed);
        if !matches!(started, Ok(Waited::Got(_))) {
            // Its terminal went with it, and what was typed there is still to be read.
            console.keep_typed(passed);
        }
        match started {
            Ok(Waited::Got(report)) => {
                if report.terminal.starts_with(b"/") {
                    self.door = self.door.clone().on(&report.terminal);
                }
                self.took(report);
                self.image = self.image_now();
                self.learn_buffer();
                Ok(())
            }
            Ok(Waited::Ended(ending)) => Err(EngineError::EndedEarly(ending)),
            Err(error) => Err(EngineError::Channel(error)),
        }
    }

    fn first_lines(&mut self, startup: &Startup, setup: i32, terminal: i32) -> io::Result<()> {
        let mut control = Vec::new();
        match self.dialect {
            Dialect::Bash => control = script::first(&self.door, setup, terminal),
            Dialect::Posix => {
                control.extend_from_slice(posix::SETUP.as_bytes());
                if startup.login && !startup.no_profile {
                    control.extend_from_slice(
                        format!("{} <&9 9>&-\n", group(posix::PROFILE)).as_bytes(),
                    );
                }
                control.extend_from_slice(b"PS1= PS2=\n");
                control.extend_from_slice(posix::REPORT.as_bytes());
            }
        }
        process_group::write_all(&self.control, &control)
    }

    /// The engine's process id.
    pub fn process(&self) -> i32 {
        self.launched.process
    }

    /// What the engine last said about itself.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Lets the next line see this status in `$?`, for a line that did not run in the engine.
    pub fn set_status(&mut self, status: i32) {
        self.report.status = status;
        if self.dialect == Dialect::Bash {
            let assignment = format!("__substrate_s={status}\n");
            let _ = process_group::write_all(&self.control, assignment.as_bytes());
        }
    }

    /// Puts a line that did not run into the engine's own history, for `!!` and `fc`.
    pub fn remember(&mut self, line: &[u8]) {
        if self.dialect == Dialect::Bash && !line.is_empty() {
            let control = [
                b"__substrate_remember ".as_slice(),
                &quote::ansi_c(line),
                b"\n",
            ];
            let _ = process_group::write_all(&self.control, &control.concat());
        }
    }

    /// The language of the engine.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Lets the next lines take this long.
    pub fn set_time_limit(&mut self, limit: Option<Duration>) {
        self.time_limit = limit;
    }

    /// The engine's working directory as the kernel knows it.
    pub fn cwd(&self) -> io::Result<PathBuf> {
        std::fs::read_link(format!("/proc/{}/cwd", self.launched.process))
    }

    /// What was typed for the last line's programs on the engine's own terminal but not read.
    pub fn take_typed_ahead(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.typed_ahead)
    }

    /// Whether programs have a terminal that is not ours.
    pub fn has_own_terminal(&self) -> bool {
        self.launched.pty.is_some()
    }

    /// Lets the programs of the next line have keys that were typed before it, on the engine's own
    /// terminal.
    pub fn type_before(&mut self, keys: Vec<u8>) {
        self.typed_before = keys;
    }

    /// Readable once the engine ended.
    pub fn ended(&self) -> std::os::fd::BorrowedFd<'_> {
        self.launched.ended.as_fd()
    }

    /// Where programs print while no line runs, if that is not our own terminal.
    pub fn output(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.launched.pty.as_ref().map(|pty| pty.master.as_fd())
    }

    /// A new file that the engine sees too: where we find it, and what it is called in the engine.
    pub fn scratch_file(&self, name: &str) -> (PathBuf, PathBuf) {
        let inside = std::env::temp_dir().join(name);
        match &self.launched.news {
            // In a world of its own it has a temporary directory of its own.
            Some(_) => {
                let inside = Path::new("/tmp").join(name);
                let root = format!("/proc/{}/root", self.launched.process);
                (PathBuf::from(format!("{root}{}", inside.display())), inside)
            }
            None => (inside.clone(), inside),
        }
    }

    /// How the engine ended, if it did.
    pub fn ending(&mut self) -> Option<Ending> {
        match (self.launched.change)(false) {
            Ok(Some(Change::Exited(status))) => Some(Ending::Exited(status)),
            Ok(Some(Change::Killed(number))) => Some(Ending::Killed(number)),
            _ => None,
        }
    }

    /// Runs a line with the terminal, and takes the terminal back when it is done.
    ///
    /// `remembered` is the line as the engine's own history keeps it, empty if it must not;
    /// `aside` is attended to while the line runs.
    pub fn run(
        &mut self,
        text: &[u8],
        remembered: &[u8],
        prefix: Option<&[u8]>,
        console: &mut Console,
        aside: Option<&mut Aside<'_>>,
    ) -> io::Result<Ran> {
        self.names = None;
        let size = console.size();
        if size != self.size {
            self.size = size;
            self.tell_size(console);
        }
        let control = match self.dialect {
            Dialect::Bash => {
                let run = Run {
                    before: &self.report,
                    remembered,
                    prefix,
                };
                script::line(text, &run, &self.door)
            }
            Dialect::Posix => posix::line(text, self.report.status, prefix.unwrap_or_default()),
        };
        self.received.clear();
        self.learn_buffer();
        if self.strayed() {
            return Ok(Ran::Ended(self.end(Ending::Strayed)));
        }
        self.may_suspend = text.windows(SUSPEND.len()).any(|word| word == SUSPEND);
        process_group::write_all(&self.control, &control)?;
        if let Waited::Ended(ending) = self.wait_for(console, false, None, take_begin)? {
            console.take();
            return Ok(Ran::Ended(ending));
        }
        if self.launched.pty.is_some() {
            console.pass_through();
            self.type_again();
        } else {
            console.give(self.launched.process);
        }
        let report = match self.dialect {
            Dialect::Bash => script::report(&self.door),
            Dialect::Posix => posix::REPORT.into(),
        };
        let go = [b"\n".as_slice(), &report].concat();
        process_group::write_all(&self.control, &go)?;
        self.running = true;
        self.began = Some(Instant::now());
        self.overdue = Overdue {
            next: self.time_limit.map(|limit| Instant::now() + limit),
            steps: 0,
        };
        let waited = self.wait_for(console, true, aside, script::take_report);
        self.overdue = Overdue::default();
        self.tap = None;
        let waited = waited?;
        self.running = false;
        self.return_terminal(console);
        Ok(match waited {
            Waited::Got(report) => {
                self.took(report.clone());
                Ran::Ready(Box::new(report))
            }
            Waited::Ended(ending) => Ran::Ended(ending),
        })
    }

    /// Lets somebody hear what the next line shows, where that passes through us.
    pub fn listen(&mut self, tap: Option<Tap>) {
        self.tap = tap;
    }

    /// Asks the engine something while no line runs; `None` if it could not answer in time.
    pub fn ask(&mut self, words: &[&[u8]], patience: Duration) -> Option<Vec<u8>> {
        self.ask_watching(words, patience, false).unwrap_or(None)
    }

    /// The same for what may start programs of the user's; one that opens a terminal, which is not theirs now,
    /// is ended at once.
    pub fn ask_unless(
        &mut self,
        words: &[&[u8]],
        patience: Duration,
    ) -> Result<Option<Vec<u8>>, OwnsTerminal> {
        self.ask_watching(words, patience, true)
    }

    fn ask_watching(
        &mut self,
        words: &[&[u8]],
        patience: Duration,
        watches: bool,
    ) -> Result<Option<Vec<u8>>, OwnsTerminal> {
        let mut wanted = false;
        let answer = self.question(words, patience, watches, &mut wanted);
        match wanted {
            true => Err(OwnsTerminal),
            false => Ok(answer),
        }
    }

    /// Ends what a question has started and what keeps it from being answered.
    fn end_question(&self) {
        for process in blocked::companions(self.launched.process) {
            let _ = process_group::send(process, signal::CONT);
            let _ = process_group::send(process, signal::KILL);
        }
    }

    fn question(
        &mut self,
        words: &[&[u8]],
        patience: Duration,
        watches: bool,
        wanted: &mut bool,
    ) -> Option<Vec<u8>> {
        if self.dialect != Dialect::Bash {
            return None;
        }
        self.marks += 1;
        let mark = self.marks;
        self.received.clear();
        let first = !std::mem::replace(&mut self.can_be_asked, true);
        let control = script::question(words, mark, first, &self.door);
        process_group::write_all(&self.control, &control).ok()?;
        let deadline = Instant::now() + patience;
        let mut interrupted = false;
        let mut kept = None;
        let mut rounds = 0;
        loop {
            if let Some(answer) = script::take_answer(&mut self.received, mark) {
                return (!interrupted).then_some(answer);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                rounds += 1;
                if rounds > ROUNDS {
                    return None;
                }
                if interrupted {
                    // A program that is stopped, or that does not heed an interrupt.
                    self.end_question();
                }
                // The engine is busy with the question, not reading, so this ends the question.
                interrupted = true;
                kept.get_or_insert_with(KeptModes::of_the_terminal);
                let _ = process_group::send(self.launched.process, signal::INT);
            }
            let wait = match (interrupted, watches) {
                (true, _) => CHECK * 5,
                (false, true) => left.min(CHECK),
                (false, false) => left,
            };
            let ready = process_group::readable(
                &[self.control.as_fd(), self.launched.ended.as_fd()],
                Some(wait),
            )
            .ok()?;
            if ready.first() == Some(&true) {
                if !self.receive() {
                    return None;
                }
            } else if ready.get(1) == Some(&true) {
                return None;
            } else if *wanted {
                // What comes after the program that was ended.
                self.end_question();
            } else if watches {
                let companions = blocked::companions(self.launched.process);
                if companions.into_iter().any(blocked::has_a_terminal) {
                    *wanted = true;
                    self.end_question();
                }
            }
        }
    }

    /// The names of the functions that the engine knows.
    pub fn functions(&mut self) -> Vec<OsString> {
        let answer = self.ask(&[b"__substrate_functions"], Duration::from_secs(2));
        let answer = answer.unwrap_or_default();
        answer
            .split(|&byte| byte == b'\n')
            .filter(|name| !name.is_empty() && !name.starts_with(b"__substrate_"))
            .map(|name| OsString::from_vec(name.to_vec()))
            .collect()
    }

    /// The variables that the engine has exported.
    pub fn variables(&mut self) -> Vec<(OsString, OsString)> {
        let answer = self.ask(&[b"__substrate_variables"], Duration::from_secs(2));
        let answer = answer.unwrap_or_default();
        let split = |entry: &[u8]| {
            let at = entry.iter().position(|&byte| byte == b'=')?;
            let (name, value) = entry.split_at(at);
            let value = value.get(1..).unwrap_or_default();
            Some((
                OsString::from_vec(name.to_vec()),
                OsString::from_vec(value.to_vec()),
            ))
        };
        answer
            .split(|&byte| byte == 0)
            .filter_map(split)
            .filter(|(name, _)| !name.as_bytes().starts_with(b"__substrate_"))
            .collect()
    }

    /// The aliases that the engine knows, asked once per line.
    pub fn names(&mut self) -> &Names {
        if self.names.is_none() {
            let answer = self
                .ask(&[b"__substrate_names"], Duration::from_secs(2))
                .unwrap_or_default();
            let mut parts = answer.splitn(3, |&byte| byte == 0);
            let mut part = || parts.next().unwrap_or_default();
            let mut names = read_names(part());
            self.bound = bound::read(part(), part());
            let path = &self.report.search_path;
            names.search_path = (!path.is_empty()).then(|| OsString::from_vec(path.clone()));
            names.home = self.report.home.clone().map(OsString::from_vec);
            self.names = Some(names);
        }
        self.names.get_or_insert_with(Names::default)
    }

    /// The keys that commands are bound to; known with the names.
    pub fn bound(&mut self) -> &[Bound] {
        self.names();
        &self.bound
    }

    /// Runs a command that is bound to a key, as readline would: with the line, and the cursor as a
    /// number of characters. The answer is what it made of them; `Err` is an engine that ended.
    pub fn run_bound(
        &mut self,
        bound: &Bound,
        line: &[u8],
        cursor: usize,
        console: &mut Console,
        aside: Option<&mut Aside<'_>>,
    ) -> io::Result<Result<(Vec<u8>, usize), Ending>> {
        let text = script::key(bound, line, cursor);
        match self.run(&text, b"", None, console, aside)? {
            Ran::Ended(ending) => return Ok(Err(ending)),
            Ran::Ready(_) => {}
        }
        let answer = self.ask(&[b"__substrate_key"], Duration::from_secs(2));
        let answer = answer.unwrap_or_default();
        let mut parts = answer.splitn(2, |&byte| byte == 0);
        let number = parts.next().unwrap_or_default();
        let number = std::str::from_utf8(number)
            .ok()
            .and_then(|text| text.parse().ok());
        let line = parts.next().unwrap_or(line).to_vec();
        Ok(Ok((line, number.unwrap_or(0))))
    }

    /// A copy of the engine's state, for a line that runs elsewhere.
    pub fn state(&mut self) -> Carried {
        Carried {
            script: self
                .ask(&[b"__substrate_state"], Duration::from_secs(5))
                .unwrap_or_default(),
            cwd: self.cwd().unwrap_or_else(|_| PathBuf::from("/")),
        }
    }

    /// The same for an engine that takes the place of this one.
    pub fn whole_state(&mut self) -> Vec<u8> {
        let mut script = self.state().script;
        let rest = self.ask(&[b"__substrate_rest"], Duration::from_secs(5));
        script.extend_from_slice(&rest.unwrap_or_default());
        script
    }

    /// Tells the engine and its jobs that the terminal is gone, and waits a little for its end.
    pub fn hang_up(&mut self) {
        // bash passes a hang-up on to its jobs only between lines. The kernel tells nobody but us, so
        // what the line has started is told here, and the rest of the line is not run.
        let deadline = Instant::now() + Duration::from_secs(2);
        while self.running && Instant::now() < deadline {
            for group in self.started_by_line() {
                let _ = process_group::send_group(group, signal::HUP);
                let _ = process_group::send_group(group, signal::CONT);
            }
            let _ = process_group::send(self.launched.process, signal::INT);
            let wait = Some(Duration::from_millis(100));
            let ready = process_group::readable(&[self.control.as_fd()], wait);
            if !ready.is_ok_and(|ready| ready.contains(&true)) {
                continue;
            }
            if !self.receive() || script::take_report(&mut self.received).is_some() {
                self.running = false;
            }
        }
        let _ = process_group::send(self.launched.process, signal::HUP);
        let _ = process_group::send(self.launched.process, signal::CONT);
        let patience = Some(Duration::from_secs(2));
        let _ = process_group::readable(&[self.launched.ended.as_fd()], patience);
        let _ = (self.launched.change)(false);
    }

    /// The process groups of the engine's children that are not older than the line that runs.
    fn started_by_line(&self) -> Vec<i32> {
        let Some(began) = self.began else {
            return Vec::new();
        };
        let engine = self.launched.process;
        let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
        let uptime = read("/proc/uptime".to_owned());
        let uptime = uptime.split(' ').next().and_then(|text| text.parse().ok());
        let oldest = uptime.unwrap_or(0.0) - began.elapsed().as_secs_f64() - TICK;
        let children = read(format!("/proc/{engine}/task/{engine}/children"));
        let mut groups: Vec<i32> = children
            .split_ascii_whitespace()
            .filter_map(|child| {
                let stat = read(format!("/proc/{child}/stat"));
                let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
                let started: f64 = fields.get(19)?.parse().ok()?;
                (started * TICK >= oldest).then(|| fields.get(2)?.parse().ok())?
            })
            .filter(|group| *group != engine)
            .collect();
        groups.dedup();
        groups
    }

    fn tell_size(&self, console: &Console) {
        match (&self.launched.pty, console.size()) {
            (Some(pty), Some(size)) => {
                let _ = terminal::set_size(&pty.master, size);
            }
            _ => {
                let _ = process_group::send(self.launched.process, signal::WINCH);
            }
        }
    }

    /// Reads what the engine sent; false if it closed the channel.
    fn receive(&mut self) -> bool {
        let mut buffer = [0_u8; 16 * 1024];
        // A shell that ends with control text unread resets the channel: closed all the same.
        let count = process_group::read(&self.control, &mut buffer).unwrap_or(0);
        self.received
            .extend_from_slice(buffer.get(..count).unwrap_or_default());
        count > 0
    }

    fn wait_for<T>(
        &mut self,
        console: &mut Console,
        passing: bool,
        mut aside: Option<&mut Aside<'_>>,
        mut take: impl FnMut(&mut Vec<u8>) -> Option<T>,
    ) -> io::Result<Waited<T>> {
        let mut idle_checks = 0;
        loop {
            if let Some(taken) = take(&mut self.received) {
                if passing {
                    self.pass_output(console);
                }
                return Ok(Waited::Got(taken));
            }
            let relay = self.launched.pty.as_ref().filter(|_| passing);
            let news = self.launched.news.as_ref().map(AsFd::as_fd);
            let mut watched = vec![
                self.control.as_fd(),
                self.launched.ended.as_fd(),
                console.signals(),
                news.unwrap_or_else(|| console.signals()),
                aside
                    .as_ref()
                    .map_or_else(|| console.signals(), |aside| aside.fd),
            ];
            if let Some(pty) = relay {
                watched.push(console.terminal());
                watched.push(pty.master.as_fd());
            }
            let patience = CHECK;
            let due = self
                .overdue
                .next
                .map(|next| next.saturating_duration_since(Instant::now()));
            let wait = due.map_or(patience, |due| patience.min(due));
            let ready = process_group::readable(&watched, Some(wait))?;
            if due.is_some_and(|due| due <= wait) && self.overdue.is_now() {
                self.press(console);
            }
            let is_ready = |index: usize| ready.get(index).copied().unwrap_or(false);
            // Before any key is passed on.
            if self.strayed() {
                return Ok(Waited::Ended(self.end(Ending::Strayed)));
            }
            if !ready.contains(&true) {
                if !self.waits_for_us() {
                    idle_checks = 0;
                    continue;
                }
                idle_checks += 1;
                match idle_checks {
                    2 | 4 | 6 => self.nudge(idle_checks / 2),
                    12 => return Ok(Waited::Ended(self.end(Ending::Silent))),
                    _ => {}
                }
                continue;
            }
            if is_ready(4)
                && let Some(other) = aside.as_mut()
            {
                if !self.give_way(console, other.call) {
                    aside = None;
                }
                continue;
            }
            if is_ready(5) && !self.pass_input(console) {
                return Ok(self.hung_up());
            }
            if is_ready(6) {
                self.pass_output(console);
            }
            if (is_ready(2) || is_ready(3))
                && let Some(ending) = self.heed(console, passing)
            {
                self.pass_output(console);
                return Ok(Waited::Ended(ending));
            }
            if is_ready(0) && !self.receive() || is_ready(1) {
                self.pass_output(console);
                return Ok(Waited::Ended(self.see_out()));
            }
        }
    }

    /// Lets somebody else have the person's terminal as it was before the line, and gives the
    /// programs theirs again.
    fn give_way(&mut self, console: &Console, call: &mut dyn FnMut() -> bool) -> bool {
        let since = Instant::now();
        // What led to this is shown first.
        self.pass_output(console);
        let _ = process_group::write_all(console.terminal(), &self.display.plain());
        console.restore();
        let more = call();
        if let Some(pty) = &self.launched.pty {
            console.pass_through();
            let _ = process_group::write_all(console.terminal(), &self.display.again());
            display::repaint(&pty.master);
        }
        // What a person takes to answer is not the line's.
        if let Some(next) = &mut self.overdue.next {
            *next += since.elapsed();
        }
        more
    }

    /// Ends what runs too long: interrupted as by the key, so that a loop ends with its program;
    /// then the program is told, then killed, and what even that does not end goes with its shell.
    fn press(&mut self, console: &Console) {
        let engine = self.launched.process;
        let foreground = match &self.launched.pty {
            Some(pty) => terminal::foreground(&pty.master),
            None => terminal::foreground(console.terminal()),
        };
        let group = match self.overdue.steps {
            0..=2 => foreground.unwrap_or(engine),
            _ => engine,
        };
        let number = match self.overdue.steps {
            0 => signal::INT,
            1 if group == engine => signal::INT,
            1 => signal::TERM,
            _ => signal::KILL,
        };
        let _ = process_group::send_group(group, number);
        // A stopped program does not hear.
        let _ = process_group::send_group(group, signal::CONT);
        self.overdue.steps += 1;
        self.overdue.next = Some(Instant::now() + Duration::from_secs(2));
    }

    /// Takes note of what it said about itself.
    fn took(&mut self, report: Report) {
        if let Some(control) = report.traps.fenced(&self.door) {
            let _ = process_group::write_all(&self.control, &control);
        }
        self.report = report;
    }

    /// The engine waits for a line and yet owes an answer, so something swallowed our words: says them again, then
    /// everything, and from the third time on also takes back what control text stands on.
    fn nudge(&mut self, times: u32) {
        if self.dialect != Dialect::Bash {
            return;
        }
        let lowered = self.fit_limit();
        let mut control = b"\n".to_vec();
        if times > 2 {
            self.repaired = true;
            control.extend_from_slice(&self.door.repair());
        }
        if times > 1 || lowered {
            let definitions = quote::ansi_c(self.door.definitions().as_bytes());
            let again = [
                b"\\builtin eval ",
                definitions.as_slice(),
                b"; __substrate_again",
            ]
            .concat();
            control.extend_from_slice(&self.door.scoped(&again));
            control.push(b'\n');
            self.can_be_asked = false;
        }
        control.extend_from_slice(&script::report(&self.door));
        let _ = process_group::write_all(&self.control, &control);
    }

    /// Keeps below the limit of descriptors, which a line may have lowered; whether it has.
    fn fit_limit(&mut self) -> bool {
        let limits = format!("/proc/{}/limits", self.launched.process);
        let limits = std::fs::read_to_string(limits).unwrap_or_default();
        let files = limits
            .lines()
            .find(|line| line.starts_with("Max open files"));
        let limit = files.and_then(|line| line.split_whitespace().nth(3)?.parse().ok());
        let Some(limit) = limit.filter(|limit| i64::from(self.door.control()) >= *limit) else {
            return false;
        };
        let door = Door::below(u64::try_from(limit).unwrap_or(0));
        self.door = door.on(&self.report.terminal);
        true
    }

    /// Whether, since this was last asked, words of the shell that control text stands on had to be taken back
    /// from the user.
    pub fn was_repaired(&mut self) -> bool {
        std::mem::take(&mut self.repaired)
    }

    fn image_now(&self) -> PathBuf {
        std::fs::read_link(format!("/proc/{}/exe", self.launched.process)).unwrap_or_default()
    }

    /// Learns where the engine keeps the commands that it reads, while it reads ours.
    fn learn_buffer(&mut self) {
        let end = Instant::now() + CHECK;
        while self.dialect == Dialect::Bash && self.buffer.is_none() && Instant::now() < end {
            // It has just reported and is about to read.
            if let Some((address, COMMANDS, from)) = blocked::reading(self.launched.process)
                && from.as_os_str().as_bytes().starts_with(b"socket:")
            {
                self.buffer = Some(address);
                self.input = from;
                return;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Whether the engine reads commands that we did not send. A program that a line has put in its place may
    /// read what it likes.
    fn strayed(&self) -> bool {
        let Some((address, count, from)) = blocked::reading(self.launched.process) else {
            return false;
        };
        let others = Some(address) == self.buffer && from != self.input;
        (others || count == COMMANDS && from.starts_with("/dev"))
            && self.dialect == Dialect::Bash
            && (self.image.as_os_str().is_empty() || self.image == self.image_now())
    }

    /// Waits for the end of an engine that has closed its channel: it exits, a program has taken its place,
    /// or it has put something else where its commands come from.
    fn see_out(&mut self) -> Ending {
        loop {
            let ended = process_group::readable(&[self.launched.ended.as_fd()], Some(CHECK));
            match ended {
                Ok(ended) if !ended.contains(&true) => {}
                _ => return self.ending().unwrap_or(Ending::Exited(0)),
            }
            if self.strayed() {
                return self.end(Ending::Strayed);
            }
        }
    }

    /// Ends the engine, which cannot be trusted or used any more.
    fn end(&mut self, why: Ending) -> Ending {
        let _ = process_group::send(self.launched.process, signal::KILL);
        let _ = process_group::readable(&[self.launched.ended.as_fd()], Some(CHECK * 10));
        let _ = self.ending();
        why
    }

    /// Whether the engine sits in a read of its control channel, as the kernel knows.
    fn waits_for_us(&self) -> bool {
        let process = self.launched.process;
        let on_control = std::fs::read_link(format!("/proc/{process}/fd/0"))
            .is_ok_and(|path| path.as_os_str().as_bytes().starts_with(b"socket:"));
        let reads = std::fs::read_to_string(format!("/proc/{process}/syscall"))
            .is_ok_and(|call| call.starts_with(READ_FROM_STDIN));
        on_control && reads
    }

    fn hung_up<T>(&mut self) -> Waited<T> {
        self.hang_up();
        Waited::Ended(Ending::HungUp)
    }

    /// Acts on signals that arrived; an ending if the session is over.
    fn heed(&mut self, console: &mut Console, passing: bool) -> Option<Ending> {
        let asked = console.asked();
        if asked.hang_up {
            self.hang_up();
            return Some(Ending::HungUp);
        }
        if asked.resized && self.launched.pty.is_some() {
            self.tell_size(console);
        }
        match (self.launched.change)(false) {
            // It wanted to read the terminal while that was not its own.
            Ok(Some(Change::Stopped(signal::TTIN))) => Some(self.end(Ending::Strayed)),
            Ok(Some(Change::Stopped(_))) if !(passing && self.may_suspend) => {
                // Somebody else stopped it. Were we to stop as well, the next keys would go to whatever
                // is outside, at a moment that a program has chosen.
                let _ = process_group::send(self.launched.process, signal::CONT);
                None
            }
            Ok(Some(Change::Stopped(_))) => {
                // `suspend`: the whole shell stops, front end included.
                if self.launched.pty.is_some() {
                    console.restore();
                    console.suspend();
                    console.pass_through();
                    self.tell_size(console);
                } else {
                    console.take();
                    console.suspend();
                    console.give(self.launched.process);
                }
                let _ = process_group::send(self.launched.process, signal::CONT);
                None
            }
            Ok(Some(Change::Exited(status))) => Some(Ending::Exited(status)),
            Ok(Some(Change::Killed(number))) => Some(Ending::Killed(number)),
            _ => None,
        }
    }

    /// Passes keys to the engine's own terminal; false if ours is gone.
    fn pass_input(&mut self, console: &Console) -> bool {
        let Some(pty) = &self.launched.pty else {
            return true;
        };
        let mut buffer = [0_u8; 4096];
        match process_group::read(console.terminal(), &mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                let keys = buffer.get(..count).unwrap_or_default();
                let _ = process_group::write_all(&pty.master, keys);
                if !self.running {
                    self.passed.extend_from_slice(keys);
                }
                true
            }
        }
    }

    /// Passes on what programs printed on the engine's own terminal so far.
    fn pass_output(&mut self, console: &Console) {
        let Some(pty) = &self.launched.pty else {
            return;
        };
        let mut buffer = [0_u8; 64 * 1024];
        // More than a terminal holds, so whatever has ended is shown whole; whoever prints without end
        // must not keep keys, questions and time limits waiting.
        let mut left = 256 * 1024_usize;
        while left > 0
            && let Ok(ready) = process_group::readable(&[pty.master.as_fd()], Some(Duration::ZERO))
        {
            if ready.first() != Some(&true) {
                break;
            }
            match process_group::read(&pty.master, &mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    left = left.saturating_sub(count);
                    let text = buffer.get(..count).unwrap_or_default();
                    self.display.saw(text);
                    if let Some(Tap(hear)) = self.tap.as_ref().filter(|_| self.running) {
                        hear(text);
                    }
                    let _ = process_group::write_all(console.terminal(), text);
                }
            }
        }
    }

    fn return_terminal(&mut self, console: &mut Console) {
        if self.launched.pty.is_some() {
            self.gather_typed_ahead();
            console.restore();
        } else {
            console.take();
        }
    }

    /// Types what was typed ahead and never read. It has been echoed when it was typed.
    fn type_again(&mut self) {
        let keys = std::mem::take(&mut self.typed_before);
        let Some(pty) = self.launched.pty.as_ref().filter(|_| !keys.is_empty()) else {
            return;
        };
        let Ok(modes) = terminal::Modes::of(&pty.slave) else {
            return;
        };
        let _ = modes.unechoed().apply(&pty.slave);
        let _ = process_group::write_all(&pty.master, &keys);
        // Looking has the kernel bring them there, while they are not echoed.
        terminal::has_input(&pty.slave);
        let _ = modes.apply(&pty.slave);
    }

    /// Takes back what was passed to the engine's terminal but no program read.
    fn gather_typed_ahead(&mut self) {
        let Some(pty) = &self.launched.pty else {
            return;
        };
        let Ok(modes) = terminal::Modes::of(&pty.slave) else {
            return;
        };
        let _ = modes.editing().apply(&pty.slave);
        let mut buffer = [0_u8; 4096];
        while terminal::has_input(&pty.slave) {
            match process_group::read(&pty.slave, &mut buffer) {
                Ok(0) | Err(_) => break,
                Ok(count) => self
                    .typed_ahead
                    .extend_from_slice(buffer.get(..count).unwrap_or_default()),
            }
        }
        let _ = modes.apply(&pty.slave);
    }
}

/// How many bytes an interactive bash asks for when it reads commands; `read` asks for one, or for more.
const COMMANDS: u64 = 1024;

/// The builtin by which a person stops the whole shell.
const SUSPEND: &[u8] = b"suspend";

/// How often a question that is not answered is ended in harder ways.
const ROUNDS: u32 = 3;

/// How often an engine that says nothing is looked at.
const CHECK: Duration = Duration::from_millis(100);

/// What `/proc` counts the start of a process in, in seconds.
const TICK: f64 = 0.01;

/// How `/proc/PID/syscall` shows a read of descriptor 0.
#[cfg(target_arch = "x86_64")]
const READ_FROM_STDIN: &str = "0 0x0 ";
#[cfg(not(target_arch = "x86_64"))]
const READ_FROM_STDIN: &str = "63 0x0 ";

fn take_begin(received: &mut Vec<u8>) -> Option<()> {
    let at = received.windows(2).position(|pair| pair == b"B\0")?;
    received.drain(..at + 2);
    Some(())
}

fn group(text: &str) -> String {
    format!("{{ {text}; }}")
}

fn read_names(aliases: &[u8]) -> Names {
    let mut names = Names::default();
    // A replacement with a newline in it goes on until the quote closes; its tail is no `alias`.
    for entry in split_before(aliases, b"\nalias ") {
        let entry = entry.strip_prefix(b"alias ").unwrap_or(entry);
        let entry = entry.strip_prefix(b"-- ").unwrap_or(entry);
        if let Some(at) = entry.iter().position(|&byte| byte == b'=') {
            let (name, value) = entry.split_at(at);
            let value = value.get(1..).unwrap_or_default();
            let value = value.strip_suffix(b"\n").unwrap_or(value);
            names.aliases.push((
                OsString::from_vec(name.to_vec()),
                OsString::from_vec(quote::unquote(value)),
            ));
        }
    }
    names
}

fn split_before<'a>(text: &'a [u8], mark: &[u8]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    let mut start = 0;
    for at in 0..text.len() {
        if text.get(at..).is_some_and(|rest| rest.starts_with(mark)) {
            pieces.push(text.get(start..at).unwrap_or_default());
            start = at + 1;
        }
    }
    pieces.push(text.get(start..).unwrap_or_default());
    pieces
}

/// The commands that read the start-up files as bash itself would.
fn startup_files(startup: &Startup) -> Vec<u8> {
    let mut text = Vec::new();
    for (name, fallback) in [
        ("HISTFILE", Some("~/.bash_history")),
        ("HISTSIZE", None),
        ("HISTFILESIZE", None),
        ("PS1", Some("'\\s-\\v\\$ '")),
    ] {
        match (std::env::var_os(name), fallback) {
            (Some(value), _) => {
                text.extend_from_slice(format!("{name}=").as_bytes());
                text.extend_from_slice(&quote::single(value.as_bytes()));
            }
            (None, fallback) => {
                text.extend_from_slice(format!("\\builtin unset -v {name}").as_bytes());
                if let Some(value) = fallback {
                    text.extend_from_slice(format!("; {name}={value}").as_bytes());
                }
            }
        }
        text.push(b'\n');
    }
    if startup.login {
        if !startup.no_profile {
            text.extend_from_slice(LOGIN_FILES.as_bytes());
        }
    } else if !startup.no_rc {
        text.extend_from_slice(SYSTEM_RC.as_bytes());
        text.extend_from_slice(b"__substrate_x=");
        match &startup.rc_file {
            Some(path) => text.extend_from_slice(&quote::single(path.as_os_str().as_bytes())),
            None => text.extend_from_slice(b"~/.bashrc"),
        }
        text.extend_from_slice(
            b"\nif [[ -r $__substrate_x ]]; then \\builtin . \"$__substrate_x\"; fi\n",
        );
    }
    text.extend_from_slice(HISTORY.as_bytes());
    if startup.history_elsewhere {
        text.extend_from_slice(HISTORY_ELSEWHERE.as_bytes());
    }
    text
}

const LOGIN_FILES: &str = r#"if [[ -r /etc/profile ]]; then \builtin . /etc/profile; fi
if [[ -r ~/.bash_profile ]]; then \builtin . ~/.bash_profile
elif [[ -r ~/.bash_login ]]; then \builtin . ~/.bash_login
elif [[ -r ~/.profile ]]; then \builtin . ~/.profile; fi
"#;

const SYSTEM_RC: &str = "if [[ -r /etc/bash.bashrc ]]; then \\builtin . /etc/bash.bashrc; fi\n";

/// In a world of its own, where the home is held, a file that ends with it takes the place of the usual one.
const HISTORY_ELSEWHERE: &str =
    "if [[ ${HISTFILE-} == ~/.bash_history ]]; then HISTFILE=/tmp/.bash_history; fi\n";

const HISTORY: &str = r#"HISTSIZE=${HISTSIZE-500} HISTFILESIZE=${HISTFILESIZE-${HISTSIZE-500}}
\builtin history -c
if [[ -n ${HISTFILE-} && -r $HISTFILE ]]; then \builtin history -r; fi
__substrate_settle_history
\builtin shopt -s execfail
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_with_their_quoting() {
        let names = read_names(b"alias ll='ls -l'\nalias q='it'\\''s\nalias two'\n");
        assert_eq!(names.aliases.first().unwrap().1, "ls -l");
    }
}
