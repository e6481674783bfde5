//! Commands on standard input: each is judged when it is complete, then handed to one bash.
//!
//! bash reads a pipe of ours. It gets one command at a time, and the next when it waits for it: what a
//! program or `read` takes from the same stream in between is data, and is not judged.

mod doubt;
mod feed;
mod quiet;
mod takes;
mod waits;

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use substrate_broker::{Answer, Around, Evaluation, Input, Origin, Request, Terms};
use substrate_policy::terms::Place;
use substrate_runtime::supervise::{self, Ending, Program};
use substrate_sys::{environment, memfd, process_group, splice};
use substrate_text::command_line;
use substrate_trace::{Completion, Mode, SpanInfo};

use substrate_executor::exit_status::FAILED;
use substrate_executor::front::Kind;
use substrate_executor::job::Job;
use substrate_executor::oneshot;
use substrate_executor::session::Session;
use substrate_executor::shell_path::shell_path;
use substrate_executor::walk::{Command, Here, NotRun, Placed, Ran, Way, walk};

use feed::Feed;

/// Most bytes of a text that is judged as a whole.
const LONGEST: u64 = 64 << 20;

/// What the shell is started with.
pub struct Arguments<'a> {
    /// Its options.
    pub options: &'a [OsString],
    /// `-o` or `-O` without a name, which must come last: bash lists its settings first.
    pub listing: Option<&'a str>,
    /// The positional parameters.
    pub parameters: &'a [OsString],
}

impl Arguments<'_> {
    fn interactive(&self) -> bool {
        self.options.iter().any(|option| option == "-i")
    }

    /// The same for a bash that puts nothing in place of `!`, which is judged as it stands.
    fn unexpanded(&self) -> Vec<OsString> {
        let mut words = self.words();
        let before = words.iter().rposition(|word| word == "-s").unwrap_or(0);
        words.insert(before, "+H".into());
        words
    }

    /// Whether the shell replaces aliases, as an interactive one does, or under POSIX rules.
    fn expands_aliases(&self, shell: &Path, env: &[CString]) -> bool {
        let said = |name: &str| environment::get(env, name).unwrap_or_default();
        let posix = |text: &[u8]| {
            text.split(|byte| *byte == b':')
                .any(|option| option == b"posix")
        };
        let options = self.options.iter().map(|option| option.as_bytes());
        self.interactive()
            || !shell.ends_with("bash")
            || options
                .into_iter()
                .any(|option| matches!(option, b"posix" | b"--posix" | b"expand_aliases"))
            || environment::get(env, "POSIXLY_CORRECT").is_some()
            || posix(said("SHELLOPTS"))
            || said("BASHOPTS")
                .split(|byte| *byte == b':')
                .any(|option| option == b"expand_aliases")
    }

    fn words(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        if self.interactive() {
            // A line editor reads ahead of what is run, and there is nobody to edit.
            words.push("--noediting".into());
        }
        words.extend(self.options.iter().cloned());
        words.push("-s".into());
        match self.listing {
            Some(option) => words.push(option.into()),
            None => {
                words.push("--".into());
                words.extend(self.parameters.iter().cloned());
            }
        }
        words
    }
}

/// Runs what comes on standard input until its end, or until the shell exits.
pub fn run(session: &Session, arguments: &Arguments<'_>, cwd: &Path) -> Ending {
    let search_path = session.search_path();
    let evaluation = session
        .broker
        .evaluate(&request(b":", cwd, &search_path, Around::Nothing));
    match needs_world(&evaluation) {
        true => in_a_world(session, arguments, cwd).unwrap_or_else(|error| {
            session.front.say(Kind::Failed, &cannot_be_handed(&error));
            Ending::Exit(FAILED)
        }),
        false => beside_us(session, arguments, evaluation.policy.mode, cwd),
    }
}

fn cannot_be_handed(error: &std::io::Error) -> String {
    format!("standard input cannot be handed to a shell: {error}")
}

/// A world is made for a text as a whole, which is judged as a whole; its shell reads it as a file.
fn in_a_world(session: &Session, arguments: &Arguments<'_>, cwd: &Path) -> std::io::Result<Ending> {
    let mut text = Vec::new();
    let input = std::io::stdin().lock();
    input.take(LONGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(std::io::Error::other(
            "it is longer than 64 MiB; put the commands into a file, and the data into another",
        ));
    }
    let mut file = File::from(memfd::sealed(c"standard input", &text)?);
    file.rewind()?;
    process_group::replace_stdin(file)?;
    let job = Job::Input {
        text: doubt::without_doubtful(session, &text, cwd),
        words: arguments.words(),
    };
    Ok(oneshot::run(session, &job, None, cwd))
}

/// One shell gets every command when it is judged; it has a span of its own, above those of its commands.
fn beside_us(session: &Session, arguments: &Arguments<'_>, mode: Mode, cwd: &Path) -> Ending {
    let Some(shell) = shell_path() else {
        let why = "there is neither bash nor sh on this machine";
        let error = std::io::Error::other(why);
        session.front.say(Kind::Failed, &cannot_be_handed(&error));
        return Ending::Exit(FAILED);
    };
    let mut words = vec![shell.file_name().unwrap_or_default().to_owned()];
    words.extend(match mode == Mode::Enforce && shell.ends_with("bash") {
        true => arguments.unexpanded(),
        false => arguments.words(),
    });
    let search_path = session.search_path();
    let command = Command {
        request: request(b"", cwd, &search_path, Around::Nothing),
        cmd: command_line(&words),
        argv: words.clone(),
    };
    let mut fed = FedShell {
        shell: &shell,
        words: &words,
        arguments,
    };
    walk(session, &command, &mut fed).ending()
}

/// The shell whose commands come from the stream.
struct FedShell<'a> {
    shell: &'a Path,
    words: &'a [OsString],
    arguments: &'a Arguments<'a>,
}

impl Way for FedShell<'_> {
    fn compares(&self, _: &Evaluation) -> bool {
        false
    }

    fn place<'w>(
        &'w mut self,
        session: &'w Session,
        _: &'w Evaluation,
        _: Option<&'w Terms>,
        _: &mut SpanInfo,
    ) -> Result<Placed<'w>, NotRun> {
        Ok(Placed::Here(Here::new(|span| {
            let ended = self.run(session, span).unwrap_or_else(|error| {
                session.front.say(Kind::Failed, &cannot_be_handed(&error));
                Ending::Exit(FAILED)
            });
            Ran {
                ending: Some(ended),
                done: Some(Completion::default()),
            }
        })))
    }
}

impl FedShell<'_> {
    fn run(&self, session: &Session, span: &SpanInfo) -> std::io::Result<Ending> {
        let input = std::io::stdin().as_fd().try_clone_to_owned()?;
        let (ours, pipe) = splice::pipe()?;
        // One page: it can be written to again as soon as everything in it was read.
        splice::set_pipe_size(pipe.as_fd(), 1);
        substrate_sys::poll::set_blocking(&ours)?;
        process_group::replace_stdin(ours)?;
        let path = c_string(self.shell.as_os_str())?;
        let argv: Result<Vec<CString>, _> = self.words.iter().map(|word| c_string(word)).collect();
        let program = Program {
            path: &path,
            argv: &argv?,
            env: &session.child_env(span),
        };
        let (arguments, shell) = (self.arguments, self.shell);
        let mut feed = Feed::new(session, File::from(input), pipe, shell, span);
        feed.interactive = arguments.interactive();
        feed.expands_aliases = arguments.expands_aliases(shell, &session.env);
        feed.quiet_shell = arguments.options.is_empty() && !is_prepared(&session.env);
        supervise::run_beside(&program, |process| feed.serve(process))
    }
}

/// Whether the environment gives a new bash functions or a file to read first.
fn is_prepared(env: &[CString]) -> bool {
    let starts = |entry: &CString, name: &[u8]| entry.as_bytes().starts_with(name);
    env.iter()
        .any(|entry| starts(entry, b"BASH_FUNC_") || starts(entry, b"BASH_ENV="))
}

fn c_string(text: &OsStr) -> std::io::Result<CString> {
    CString::new(text.as_bytes()).map_err(std::io::Error::other)
}

fn request<'a>(
    line: &'a [u8],
    cwd: &'a Path,
    search_path: &'a OsStr,
    around: Around<'a>,
) -> Request<'a> {
    Request {
        input: Input::Line(line),
        origin: Origin::OneShot,
        cwd,
        search_path,
        variables: &[],
        aliases: &[],
        isolate: false,
        around,
    }
}

fn needs_world(evaluation: &Evaluation) -> bool {
    match &evaluation.answer {
        Answer::Allow(terms) | Answer::Ask(terms, _) => terms.place != Place::Direct,
        Answer::Deny(_) => false,
    }
}
