//! The path of a line that is run once: `-c`, a script, `run -- ARGV`.

use std::ffi::{CString, OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Instant;

use substrate_broker::{Around, Evaluation, Input, Origin, Request, Terms, enclosure};
use substrate_command::{is_builtin, is_keyword};
use substrate_policy::terms::Place;
use substrate_runtime::supervise::{self, Ending, Program};
use substrate_sys::bounded::{self, Links};
use substrate_sys::{environment, usage};
use substrate_text::command_line;
use substrate_trace::{Completion, Event, Mode, Output, SpanInfo};

use crate::approval;
use crate::contained::{self, Contained};
use crate::elsewhere;
use crate::exit_status::{DENIED, FAILED, NOT_FOUND};
use crate::front::{Kind, Streams};
use crate::isolation::Isolation;
use crate::preview::Trial;
use crate::recording::{self, Recording};
use crate::session::Session;
use crate::shell_path::shell_path;
use crate::snapshot::{self, Before};
use crate::time_limit::{TimeLimit, tell_timeout};
use crate::variables::variables;

/// What is to be run.
#[derive(Debug)]
pub enum Job {
    /// A line, as after `-c`, with the options and positional parameters that the shell gets.
    Line {
        /// The line.
        text: OsString,
        /// Options for the shell: `-l`, `-e`, …
        options: Vec<OsString>,
        /// `$0` and the positional parameters.
        parameters: Vec<OsString>,
    },
    /// A script file and its arguments.
    Script {
        /// The file, as typed.
        path: OsString,
        /// Options for the shell.
        options: Vec<OsString>,
        /// The positional parameters.
        parameters: Vec<OsString>,
    },
    /// What a shell reads from its standard input, which is there already, and the words after its name.
    Input {
        /// The text.
        text: Vec<u8>,
        /// Options and positional parameters.
        words: Vec<OsString>,
    },
    /// A program and its arguments; no shell reads them.
    Argv(Vec<OsString>),
}

/// Runs a job on the terms that the broker sets, and answers how it ended. With `isolation` it
/// runs in a fresh world, whatever the policy says.
pub fn run(session: &Session, job: &Job, isolation: Option<&Isolation>, cwd: &Path) -> Ending {
    let judged = match job.judged_text() {
        Ok(text) => text,
        Err((status, message)) => {
            session.front.say(Kind::Failed, &message);
            return Ending::Exit(status);
        }
    };
    let search_path = session.search_path();
    let around = || session.meaning();
    let request = Request {
        input: match job {
            Job::Argv(argv) => Input::Argv(argv),
            Job::Line { .. } | Job::Script { .. } | Job::Input { .. } => Input::Line(&judged),
        },
        origin: match job {
            Job::Script { .. } => Origin::Script,
            Job::Line { .. } | Job::Input { .. } | Job::Argv(_) => Origin::OneShot,
        },
        cwd,
        search_path: &search_path,
        variables: &[],
        aliases: &[],
        isolate: isolation.is_some(),
        around: Around::Asked(&around),
    };
    let evaluation = session.broker.evaluate(&request);
    session.heed_policy_changes();
    let (cmd, argv) = job.recorded();
    let span = session.span(&evaluation, cmd, argv, cwd);

    let line = match request.input {
        Input::Line(line) => Some(line),
        Input::Argv(_) | Input::Tool(_) => None,
    };
    let trial = line.and_then(|line| Trial::of(session, line, cwd, &evaluation, &span, &[]));
    let trial = trial.as_ref().filter(|_| matches!(job, Job::Line { .. }));
    let Some(permit) = approval::permit(session, &request, &evaluation, &span, trial) else {
        return Ending::Exit(DENIED);
    };
    if let Some(preview) = permit.preview {
        return preview.apply(session, span);
    }
    carry_out(
        session,
        job,
        isolation,
        cwd,
        &evaluation,
        permit.terms,
        span,
    )
}

/// Runs a job that was judged and permitted: place, run, settle, finish.
pub fn carry_out(
    session: &Session,
    job: &Job,
    isolation: Option<&Isolation>,
    cwd: &Path,
    evaluation: &Evaluation,
    terms: &Terms,
    mut span: SpanInfo,
) -> Ending {
    let search_path = session.search_path();
    let target = match job.target(evaluation, session, &search_path, cwd) {
        Ok(target) => target,
        Err((status, message)) => {
            session.front.say(Kind::Failed, &message);
            let done = Completion {
                exit: Some(status),
                ..Completion::default()
            };
            session.complete(&span, &done);
            return Ending::Exit(status);
        }
    };
    let before = Before::take(session, &mut span);
    if before.is_some() || terms.place != Place::Direct {
        let program = Path::new(OsStr::from_bytes(target.path.as_bytes()));
        recording::circumstances(session, evaluation, program, &mut span);
    }
    // Whatever a job names may be a copy, a link or a script of what a rule is about.
    let judged = evaluation.policy.mode == Mode::Enforce && !target.own_shell;
    let (spec, isolated) = match &terms.place {
        Place::Direct => return direct(session, &target, evaluation, span, before),
        Place::Isolated(spec) => (spec.as_ref(), true),
        Place::Session(spec) => (spec.as_ref(), false),
    };
    let mut narrowed = isolation.map(|isolation| isolation.narrow(spec));
    let of_policy = spec.limits.seconds;
    if let Some(time) = session.timeout {
        let seconds = u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        let spec = narrowed.get_or_insert_with(|| spec.clone());
        spec.limits.seconds = Some(of_policy.map_or(seconds, |policy| policy.min(seconds)));
    }
    let contained = Contained {
        program: &target.path,
        argv: &target.argv,
        judged,
        cwd,
        evaluation,
        spec: narrowed.as_ref().unwrap_or(spec),
        seconds: of_policy,
        isolated,
        isolation,
        descriptors: &[],
        hosting: None,
    };
    contained::run(session, &contained, span, before)
}

/// Runs a job on the host, as any shell would.
fn direct(
    session: &Session,
    target: &Target,
    evaluation: &Evaluation,
    mut span: SpanInfo,
    before: Option<Before>,
) -> Ending {
    span.place = Some("direct");
    if !session.record_start(&span) {
        return Ending::Exit(FAILED);
    }
    let env = session.child_env(&span);
    let started = Instant::now();
    let mut used = None;
    let (result, output) = match session.front.streams() {
        Ok(Streams::Own) => {
            enclosure::mark();
            let recording = Recording::begin(session, false);
            let program = Program {
                path: &target.path,
                argv: &target.argv,
                env: &env,
            };
            let limit = TimeLimit::default();
            let before = usage::of_children();
            let result = supervise::run(&program, |child| {
                if let Some(time) = session.timeout {
                    limit.begin(child, time);
                }
            });
            used = Some(recording::used_since(before));
            let result = result.map(|ending| match limit.is_over() {
                true => tell_timeout(session),
                false => ending,
            });
            (result, recording.finish(session))
        }
        Ok(Streams::Given(streams)) => {
            let program = target.elsewhere(&env, &span.cwd);
            (elsewhere::run(program, streams), Output::Off)
        }
        Err(error) => (Err(error), Output::Off),
    };
    let duration = started.elapsed();
    let ending = match result {
        Ok(ending) => ending,
        Err(error) => {
            let (status, text) = start_failure(&error, &target.shown);
            session.front.say(Kind::Failed, &text);
            Ending::Exit(status)
        }
    };
    let kept = before.is_some();
    let fs_diff = before.and_then(Before::changes);
    let done = Completion {
        exit: Some(ending.status()),
        signal: match ending {
            Ending::Signal(signal) => Some(signal),
            Ending::Exit(_) => None,
        },
        duration,
        scopes_used: recording::write_scopes(fs_diff.as_ref()).collect(),
        fs_diff,
        output,
        used,
        ..Completion::default()
    };
    record_builtins(session, evaluation, &span, &span.cwd);
    session.complete(&span, &done);
    if kept {
        snapshot::keep_within_share(session);
    }
    ending
}

/// Builtins change the shell, not the machine; each leaves a span of its own under the line's.
pub fn record_builtins(session: &Session, evaluation: &Evaluation, line: &SpanInfo, cwd: &Path) {
    for invocation in &evaluation.line.invocations {
        let name = invocation.argv.first().and_then(|word| word.value());
        if !name.is_some_and(is_builtin) || !invocation.via.is_empty() {
            continue;
        }
        let words: Vec<OsString> = invocation
            .argv
            .iter()
            .map(|word| OsString::from_vec(word.text().into_owned()))
            .collect();
        let mut span = session.span(evaluation, command_line(&words), words, cwd);
        span.parent_span = Some(line.span_id);
        span.replay = None;
        session.record_or_warn(&Event::builtin_command(&span, &Completion::default()));
    }
}

/// The program that is started for a job.
pub(crate) struct Target {
    pub path: CString,
    pub argv: Vec<CString>,
    shown: String,
    /// It is the shell that we chose, and not a program that the job names.
    own_shell: bool,
}

pub(crate) type Refusal = (i32, String);

/// Longest script that is judged.
const LONGEST_SCRIPT: u64 = 64 << 20;

/// A script as it will run. What comes through a pipe could not be read a second time.
fn script_text(path: &OsStr) -> std::io::Result<Vec<u8>> {
    Ok(bounded::read(path, Links::Follow, LONGEST_SCRIPT)?)
}

impl Target {
    /// The same for whoever starts it on other streams than ours.
    fn elsewhere<'a>(&self, env: &[CString], cwd: &'a Path) -> elsewhere::Program<'a> {
        let os = |text: &CString| OsString::from_vec(text.as_bytes().to_vec());
        elsewhere::Program {
            path: os(&self.path),
            argv: self.argv.iter().map(os).collect(),
            env: variables(env),
            cwd,
        }
    }
}

impl Job {
    /// The text that is judged.
    fn judged_text(&self) -> Result<Vec<u8>, Refusal> {
        match self {
            Job::Line { text, .. } => Ok(text.as_bytes().to_vec()),
            Job::Script { path, .. } => script_text(path).map_err(|error| {
                let status = if error.kind() == std::io::ErrorKind::NotFound {
                    NOT_FOUND
                } else {
                    DENIED
                };
                (
                    status,
                    format!("{}: {}", path.display(), plain_error(&error)),
                )
            }),
            Job::Input { text, .. } => Ok(text.clone()),
            Job::Argv(_) => Ok(Vec::new()),
        }
    }

    /// What the trace shows: the line, or the exact words.
    fn recorded(&self) -> (OsString, Vec<OsString>) {
        match self {
            Job::Line {
                text,
                options,
                parameters,
            } if options.is_empty() && parameters.is_empty() => (text.clone(), Vec::new()),
            Job::Line {
                text,
                options,
                parameters,
            } => {
                let mut argv = vec![OsString::from("bash")];
                argv.extend(options.iter().cloned());
                argv.extend(command_string(text));
                argv.extend(parameters.iter().cloned());
                (text.clone(), argv)
            }
            Job::Script {
                path, parameters, ..
            } => {
                let mut argv = vec![OsString::from("bash"), path.clone()];
                argv.extend(parameters.iter().cloned());
                (command_line(&argv), argv)
            }
            Job::Input { words, .. } => {
                let mut argv = vec![OsString::from("bash")];
                argv.extend(words.iter().cloned());
                (command_line(&argv), argv)
            }
            Job::Argv(argv) => (command_line(argv), argv.clone()),
        }
    }

    fn target(
        &self,
        evaluation: &Evaluation,
        session: &Session,
        search_path: &OsStr,
        cwd: &Path,
    ) -> Result<Target, Refusal> {
        match self {
            Job::Argv(argv) => program(evaluation, argv, search_path, cwd),
            Job::Line {
                options,
                parameters,
                ..
            } if options.is_empty() && parameters.len() <= 1 => {
                match plain_command(evaluation, session) {
                    Some(argv) if !needs_a_shell(evaluation, &argv, search_path, cwd) => {
                        program(evaluation, &argv, search_path, cwd)
                    }
                    _ => self.shell(),
                }
            }
            Job::Line { .. } | Job::Script { .. } | Job::Input { .. } => self.shell(),
        }
    }

    /// The user's bash, or `/bin/sh` where there is none.
    fn shell(&self) -> Result<Target, Refusal> {
        let path = shell_path().ok_or_else(|| {
            (
                FAILED,
                "there is neither bash nor sh on this machine".to_owned(),
            )
        })?;
        let name = path.file_name().unwrap_or_default().to_owned();
        let is_bash = name == "bash";
        let mut argv = vec![name];
        match self {
            Job::Line {
                text,
                options,
                parameters,
            } => {
                argv.extend(understood(options, is_bash));
                argv.extend(command_string(text));
                argv.extend(parameters.iter().cloned());
            }
            Job::Script {
                path,
                options,
                parameters,
            } => {
                argv.extend(understood(options, is_bash));
                argv.push(OsString::from("--"));
                argv.push(path.clone());
                argv.extend(parameters.iter().cloned());
            }
            Job::Input { words, .. } => argv.extend(understood(words, is_bash)),
            Job::Argv(words) => argv.extend(words.iter().cloned()),
        }
        let shell = target(&path, &argv)?;
        Ok(Target {
            own_shell: true,
            ..shell
        })
    }
}

/// The words that make a shell take this text and no other: without the dashes a text that begins with
/// one would be an option, and the next word the text.
fn command_string(text: &OsStr) -> [OsString; 3] {
    ["-c".into(), "--".into(), text.to_owned()]
}

/// The options that a shell understands: one that is not bash knows the letters, and no long options.
fn understood(options: &[OsString], is_bash: bool) -> Vec<OsString> {
    let mut all = Vec::new();
    let mut options = options.iter();
    while let Some(option) = options.next() {
        if is_bash || !option.as_bytes().starts_with(b"--") {
            all.push(option.clone());
        } else if option == "--rcfile" {
            options.next();
        }
    }
    all
}

/// The words of a line that needs no shell: one literal command whose name means nothing to bash.
fn plain_command(evaluation: &Evaluation, session: &Session) -> Option<Vec<OsString>> {
    let argv = evaluation.line.plain.as_ref()?;
    let name = argv.first()?;
    let function = [b"BASH_FUNC_", name.as_slice(), b"%%="].concat();
    let known_to_bash = is_builtin(name)
        || is_keyword(name)
        || session
            .env
            .iter()
            .any(|entry| entry.as_bytes().starts_with(&function))
        || environment::get(&session.env, "BASH_ENV").is_some()
        || reads_rc_for_ssh(&session.env);
    (!known_to_bash).then(|| {
        argv.iter()
            .map(|word| OsString::from_vec(word.clone()))
            .collect()
    })
}

/// Whether bash would read `~/.bashrc` for a command, as it does for the first shell below an ssh login:
/// what people set there counts for `ssh host command`.
fn reads_rc_for_ssh(env: &[CString]) -> bool {
    let set = |name| environment::get(env, name).is_some();
    let level = environment::get(env, "SHLVL").and_then(|level| {
        let text = std::str::from_utf8(level).ok()?;
        text.trim().parse::<i64>().ok()
    });
    (set("SSH_CLIENT") || set("SSH2_CLIENT")) && level.unwrap_or(0) < 1
}

/// Whether bash has more to say to a name than the kernel: it reads a script without a first line that
/// names its interpreter itself, and tells a name that is too long from one that is not there.
fn needs_a_shell(
    evaluation: &Evaluation,
    argv: &[OsString],
    search_path: &OsStr,
    cwd: &Path,
) -> bool {
    let Some(name) = argv.first() else {
        return false;
    };
    match evaluation.program(name, search_path, cwd) {
        Some(path) => !kernel_knows(&path),
        None => name.len() > LONGEST_NAME && name.as_bytes().contains(&b'/'),
    }
}

/// The longest name that no file system refuses.
const LONGEST_NAME: usize = 255;

/// Whether a file begins as programs do. One that cannot be read is left to the kernel.
fn kernel_knows(path: &Path) -> bool {
    let mut head = [0_u8; 4];
    match bounded::open(path, Links::Follow).map(|mut file| file.read(&mut head)) {
        Ok(Ok(count)) => head[..count].starts_with(b"\x7fELF") || head[..count].starts_with(b"#!"),
        _ => true,
    }
}

pub(crate) fn program(
    evaluation: &Evaluation,
    argv: &[OsString],
    search_path: &OsStr,
    cwd: &Path,
) -> Result<Target, Refusal> {
    let name = argv
        .first()
        .ok_or_else(|| (2, "there is no command to run".to_owned()))?;
    match evaluation.program(name, search_path, cwd) {
        Some(path) => target(&path, argv),
        None if name.as_bytes().contains(&b'/') && Path::new(name).is_dir() => {
            Err((DENIED, format!("{}: Is a directory", name.display())))
        }
        None if name.as_bytes().contains(&b'/') => Err((
            NOT_FOUND,
            format!("{}: No such file or directory", name.display()),
        )),
        None => Err((NOT_FOUND, format!("{}: command not found", name.display()))),
    }
}

fn target(path: &Path, argv: &[OsString]) -> Result<Target, Refusal> {
    let c_string = |text: &OsStr| {
        CString::new(text.as_bytes()).map_err(|_| (2, "an argument contains a NUL byte".to_owned()))
    };
    Ok(Target {
        path: c_string(path.as_os_str())?,
        argv: argv
            .iter()
            .map(|word| c_string(word))
            .collect::<Result<_, _>>()?,
        shown: path.display().to_string(),
        own_shell: false,
    })
}

fn start_failure(error: &std::io::Error, shown: &str) -> (i32, String) {
    let status = if error.kind() == std::io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        DENIED
    };
    (status, format!("{shown}: {}", plain_error(error)))
}

/// The system's words without Rust's `(os error 2)`.
fn plain_error(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
