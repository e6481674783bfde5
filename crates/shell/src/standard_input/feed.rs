//! Handing a stream to a shell, command by command.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use substrate_broker::{Answer, Around, Evaluation, Request, Terms};
use substrate_command::{Extent, first_command};
use substrate_executor::exit_status::{DENIED, FAILED};
use substrate_executor::front::Kind;
use substrate_executor::session::Session;
use substrate_executor::walk::{Command, Here, NotRun, Outcome, Passage, Placed, Ran, Way, walk};
use substrate_policy::terms::Place;
use substrate_sys::flags;
use substrate_sys::poll::{self, Wanted};
use substrate_sys::process_group;
use substrate_trace::{Completion, Mode, SpanInfo};

use super::quiet::{is_quiet, is_quiet_builtin};
use super::request;
use super::takes::takes_over;
use super::waits::{Waits, Watched, can_be_seen};
use crate::repl::is_complete;

/// How much a pipe of one page takes at once.
const PAGE: usize = 4096;

/// How much of the stream is judged at once, where that can be done.
const BATCH: usize = 64 << 10;

/// How long a program runs before it is looked at whether it waits for data.
const PROGRAM: Duration = Duration::from_millis(2);

/// How long a reader may take to take what it waits for.
const TAKEN: Duration = Duration::from_millis(50);

/// The stream, the shell, and what was handed over.
pub struct Feed<'a> {
    session: &'a Session,
    input: File,
    pipe: Option<OwnedFd>,
    shell: &'a Path,
    /// The shell's own span.
    parent: &'a SpanInfo,
    /// What was read and not yet handed over.
    text: Vec<u8>,
    at_end: bool,
    /// The shell has ended, or wants no more.
    over: bool,
    enforcing: bool,
    /// Every `read` so far takes whole lines.
    whole_lines: bool,
    /// The shell is an interactive one.
    pub interactive: bool,
    /// It replaces aliases.
    pub expands_aliases: bool,
    /// Nothing has changed what plain builtins mean.
    pub quiet_shell: bool,
}

/// The shell, while it is served.
struct Served {
    process: i32,
    ended: OwnedFd,
    watched: Watched,
}

impl<'a> Feed<'a> {
    pub fn new(
        session: &'a Session,
        input: File,
        pipe: OwnedFd,
        shell: &'a Path,
        parent: &'a SpanInfo,
    ) -> Self {
        Self {
            session,
            input,
            pipe: Some(pipe),
            shell,
            parent,
            text: Vec::new(),
            at_end: false,
            over: false,
            enforcing: parent.mode == Mode::Enforce,
            whole_lines: true,
            interactive: false,
            expands_aliases: false,
            quiet_shell: false,
        }
    }

    /// Serves the shell until it ends.
    pub fn serve(mut self, process: i32) {
        if let Ok(ended) = process_group::pidfd(process) {
            let mut shell = Served {
                process,
                ended,
                watched: Watched::new(process, self.interactive),
            };
            self.serve_until(&mut shell);
        }
        // What the shell did not read is there for whoever reads after it, as far as it can be given back.
        if let Ok(left) = i64::try_from(self.text.len()) {
            let _ = self.input.seek(SeekFrom::Current(-left));
        }
    }

    fn serve_until(&mut self, shell: &mut Served) {
        if !can_be_seen(shell.process) {
            return self.give_up("what a shell waits for cannot be seen on this machine");
        }
        self.until_next_command(shell);
        while !self.over && self.command(shell) {}
        // Without a writer the shell and its programs see the end of the stream.
        self.pipe = None;
    }

    /// Gives programs the data that they wait for, until the shell wants its next command.
    fn until_next_command(&mut self, shell: &mut Served) {
        loop {
            match self.next_wish(shell) {
                Some(Waits::Reader(most)) if self.data(most, &shell.ended) => {}
                Some(Waits::Reader(_)) | None => {
                    self.over = true;
                    return;
                }
                Some(_) => return,
            }
        }
    }

    /// Ends the stream with a word why.
    fn give_up(&mut self, why: &str) {
        let text = format!("{why}; run the text as a script: `substrate FILE`");
        self.session.front.say(Kind::Failed, &text);
        self.pipe = None;
    }

    /// Waits until somebody wants more and everything was taken; `None` once the shell has ended.
    fn next_wish(&self, shell: &mut Served) -> Option<Waits> {
        let Served { ended, watched, .. } = shell;
        let since = Instant::now();
        let mut pause = Duration::from_micros(10);
        loop {
            if !self.is_empty(ended)? {
                continue;
            }
            match watched.shell() {
                Waits::Nobody => {}
                waits => return Some(waits),
            }
            if since.elapsed() > PROGRAM {
                match watched.programs() {
                    Waits::Nobody => {}
                    waits => return Some(waits),
                }
            }
            let wait = Instant::now() + pause;
            if pause < Duration::from_millis(1) {
                std::thread::sleep(pause);
            } else if ready(
                poll::wait_until(&mut [Wanted::read(ended.as_fd())], Some(wait)),
                0,
            ) {
                return None;
            }
            pause = (pause * 5 / 4).min(Duration::from_millis(10));
        }
    }

    /// Waits until the pipe is empty; `None` once the shell has ended.
    fn is_empty(&self, ended: &OwnedFd) -> Option<bool> {
        let pipe = self.pipe.as_ref()?;
        let mut wanted = [Wanted::read(ended.as_fd()), Wanted::both(pipe.as_fd())];
        let seen = poll::wait(&mut wanted);
        (!ready_ref(&seen, 0)).then(|| ready_ref(&seen, 1))
    }

    /// Hands over data, no more than its reader takes at once: what is left would be run.
    fn data(&mut self, most: usize, ended: &OwnedFd) -> bool {
        if self.text.is_empty() && !self.fill(ended, Some(Duration::from_millis(50))) {
            return !self.at_end;
        }
        let mut count = most.min(PAGE).min(self.text.len());
        if most == 1 && !self.enforcing && self.whole_lines {
            // `read` takes bytes up to the end of a line; where nothing is refused it may have them at once.
            let line = self.text.iter().position(|byte| *byte == b'\n');
            count = line.map_or(self.text.len(), |at| at + 1).min(PAGE);
        }
        let data: Vec<u8> = self.text.drain(..count).collect();
        let written = self.write(&data, ended);
        self.take_back();
        written
    }

    /// Takes back what its reader has left: the shell would run it.
    fn take_back(&mut self) {
        let until = Some(Instant::now() + TAKEN);
        let pipe = self.pipe.as_ref().map(|pipe| Wanted::both(pipe.as_fd()));
        if pipe.is_none_or(|pipe| ready(poll::wait_until(&mut [pipe], until), 0)) {
            return;
        }
        let mut left = [0_u8; PAGE];
        // Opened anew, so that the shell's own reads go on waiting.
        let count = File::options()
            .read(true)
            .custom_flags(flags::O_NONBLOCK)
            .open("/proc/self/fd/0")
            .and_then(|mut pipe| pipe.read(&mut left))
            .unwrap_or(0);
        self.text.splice(..0, left.into_iter().take(count));
    }

    /// The next command, from its judgement to its end; false at the end of the stream.
    fn command(&mut self, shell: &mut Served) -> bool {
        let Some(first) = self.extent(&shell.ended) else {
            return false;
        };
        let cwd = std::fs::read_link(format!("/proc/{}/cwd", shell.process));
        let cwd = cwd.unwrap_or_else(|_| PathBuf::from("/"));
        let session = self.session;
        let search_path = session.search_path();
        let around = || session.meaning();
        // Many at once where nothing is refused, else one.
        for length in [self.batch().max(first), first] {
            let text = self.text.get(..length).unwrap_or_default().to_vec();
            let request = request(&text, &cwd, &search_path, Around::Asked(&around));
            let evaluation = session.broker.evaluate(&request);
            let whole =
                matches!(&evaluation.answer, Answer::Allow(terms) if terms.place == Place::Direct);
            if !whole && length != first {
                continue;
            }
            self.text.drain(..length);
            let shown = text.strip_suffix(b"\n").unwrap_or(&text).to_vec();
            let command = Command {
                request,
                cmd: OsString::from_vec(shown),
                argv: Vec::new(),
            };
            let mut fed = Fed {
                text: &text,
                evaluation: Some(evaluation),
                is_nothing: false,
                feed: self,
                shell,
            };
            if let Outcome::Refused(status) = walk(session, &command, &mut fed) {
                // It leaves its status behind, and as many lines as it had.
                let lines = text.iter().filter(|byte| **byte == b'\n').count();
                let instead = format!("(exit {status}){}", "\n".repeat(lines.max(1)));
                self.hand_over(instead.as_bytes(), shell);
            }
            return true;
        }
        false
    }

    /// Gives the shell a command, and serves it until it wants the next one.
    fn hand_over(&mut self, text: &[u8], shell: &mut Served) {
        match self.write(text, &shell.ended) {
            true => self.until_next_command(shell),
            false => self.over = true,
        }
    }

    /// How long the next command is; `None` at the end of the stream.
    fn extent(&mut self, ended: &OwnedFd) -> Option<usize> {
        loop {
            let end = self.text.iter().rposition(|byte| *byte == b'\n');
            let lines = end.map_or(0, |at| at + 1);
            let mut extent = first_command(self.text.get(..lines).unwrap_or_default());
            if extent == Extent::Unclear && !self.at_end && !self.more_is_there() {
                let text = self.text.get(..lines).unwrap_or_default();
                let bash = self.shell.ends_with("bash");
                // What bash calls an error it shall report; all of it is judged.
                if is_complete(text, self.shell, bash) {
                    extent = Extent::Whole(lines);
                }
            }
            match extent {
                Extent::Whole(length) => return Some(length),
                _ if self.at_end => return Some(self.text.len()).filter(|length| *length > 0),
                _ => {}
            }
            if !self.fill(ended, None) && !self.at_end {
                return None;
            }
        }
    }

    /// How many bytes from here on are lines that can be judged at once.
    fn batch(&self) -> usize {
        if !self.quiet_shell {
            return 0;
        }
        let lines = self.text.split_inclusive(|byte| *byte == b'\n');
        let quiet = lines.take_while(|line| line.ends_with(b"\n") && is_quiet(line));
        let mut length = 0;
        for line in quiet {
            if length + line.len() > BATCH {
                break;
            }
            length += line.len();
        }
        length
    }

    fn more_is_there(&self) -> bool {
        let now = Some(Instant::now());
        ready(
            poll::wait_until(&mut [Wanted::read(self.input.as_fd())], now),
            0,
        )
    }

    /// Reads more of the stream; false if there is none, or not yet, or the shell has ended.
    fn fill(&mut self, ended: &OwnedFd, patience: Option<Duration>) -> bool {
        if self.at_end {
            return false;
        }
        let until = patience.map(|patience| Instant::now() + patience);
        let mut wanted = [
            Wanted::read(ended.as_fd()),
            Wanted::read(self.input.as_fd()),
        ];
        let seen = poll::wait_until(&mut wanted, until);
        if ready_ref(&seen, 0) || !ready_ref(&seen, 1) {
            return false;
        }
        let mut buffer = [0_u8; BATCH];
        let count = self.input.read(&mut buffer).unwrap_or(0);
        self.at_end = count == 0;
        self.text
            .extend_from_slice(buffer.get(..count).unwrap_or_default());
        count > 0
    }

    /// Writes everything; false if the shell has ended.
    fn write(&self, bytes: &[u8], ended: &OwnedFd) -> bool {
        for page in bytes.chunks(PAGE) {
            loop {
                match self.is_empty(ended) {
                    Some(true) => break,
                    Some(false) => {}
                    None => return false,
                }
            }
            let Some(pipe) = &self.pipe else {
                return false;
            };
            if process_group::write_all(pipe, page).is_err() {
                return false;
            }
        }
        true
    }
}

/// One command of the stream.
struct Fed<'f, 'a> {
    text: &'f [u8],
    /// How it was judged while it was found out how much is judged at once.
    evaluation: Option<Evaluation>,
    /// There is no command in it.
    is_nothing: bool,
    feed: &'f mut Feed<'a>,
    shell: &'f mut Served,
}

impl Way for Fed<'_, '_> {
    fn judge(&mut self, session: &Session, request: &Request<'_>) -> Evaluation {
        let judged = self.evaluation.take();
        judged.unwrap_or_else(|| session.broker.evaluate(request))
    }

    fn passage(
        &mut self,
        session: &Session,
        evaluation: &Evaluation,
        span: &mut SpanInfo,
    ) -> Passage {
        let feed = &mut *self.feed;
        span.parent_span = Some(feed.parent.span_id);
        feed.enforcing = evaluation.policy.mode == Mode::Enforce;
        feed.quiet_shell &= keeps_meanings(evaluation);
        feed.whole_lines &= reads_whole_lines(evaluation);
        self.is_nothing = evaluation.line.invocations.is_empty() && evaluation.line.complete();
        if self.is_nothing {
            return Passage::Free;
        }
        if feed.enforcing
            && let Some(why) = takes_over(&evaluation.line, self.text, feed.expands_aliases)
        {
            session.refuse(span, None, why);
            return Passage::Closed(DENIED);
        }
        Passage::Judged
    }

    fn compares(&self, _: &Evaluation) -> bool {
        false
    }

    fn is_recorded(&self) -> bool {
        !self.is_nothing
    }

    fn place<'w>(
        &'w mut self,
        _: &'w Session,
        _: &'w Evaluation,
        terms: Option<&'w Terms>,
        _: &mut SpanInfo,
    ) -> Result<Placed<'w>, NotRun> {
        if terms.is_some_and(|terms| terms.place != Place::Direct) {
            let why = "a command on standard input cannot be isolated on its own; run it with `substrate -c`";
            return Err(NotRun::new(FAILED, why));
        }
        Ok(Placed::Here(Here::new(|_| {
            let began = Instant::now();
            self.feed.hand_over(self.text, self.shell);
            // The shell tells nobody how a command of it ended.
            let done = Completion {
                duration: began.elapsed(),
                ..Completion::default()
            };
            Ran {
                ending: None,
                done: Some(done),
            }
        })))
    }
}

/// Whether plain builtins mean the same after a command as before it.
fn keeps_meanings(evaluation: &Evaluation) -> bool {
    let line = &evaluation.line;
    let known = |name: &[u8]| !substrate_command::is_builtin(name) || is_quiet_builtin(name);
    line.complete()
        && line.functions.is_empty()
        && line.invocations.iter().all(|invocation| {
            let name = invocation.argv.first();
            name.is_none_or(|name| name.value().is_some_and(known))
        })
}

/// Whether every `read` of a command goes on to the end of a line; what one leaves of it, the shell runs.
fn reads_whole_lines(evaluation: &Evaluation) -> bool {
    let line = &evaluation.line;
    let is_name = |word: &[u8]| word == b"-r" || !word.starts_with(b"-");
    line.complete()
        && line.invocations.iter().all(|invocation| {
            let mut words = invocation.argv.iter().map(|word| word.value());
            words.next().flatten() != Some(b"read") || words.all(|word| word.is_some_and(is_name))
        })
}

fn ready_ref(seen: &std::io::Result<Vec<bool>>, index: usize) -> bool {
    seen.as_ref()
        .is_ok_and(|seen| seen.get(index).copied().unwrap_or(false))
}

fn ready(seen: std::io::Result<Vec<bool>>, index: usize) -> bool {
    ready_ref(&seen, index)
}
