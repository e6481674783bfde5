//! What is run once, and the program that is started for it.

use std::ffi::{CString, OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use substrate_broker::Evaluation;
use substrate_command::{is_builtin, is_keyword};
use substrate_sys::bounded::{self, Links};
use substrate_sys::environment;
use substrate_text::command_line;

use crate::elsewhere;
use crate::exit_status::{DENIED, FAILED, NOT_FOUND};
use crate::session::Session;
use crate::shell_path::shell_path;
use crate::variables::variables;
use crate::walk::NotRun;

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

/// The program that is started for a job.
pub(crate) struct Target {
    pub path: CString,
    pub argv: Vec<CString>,
    shown: String,
    /// It is the shell that we chose, and not a program that the job names.
    pub own_shell: bool,
}

/// Longest script that is judged.
const LONGEST_SCRIPT: u64 = 64 << 20;

/// A script as it will run. What comes through a pipe could not be read a second time.
fn script_text(path: &OsStr) -> std::io::Result<Vec<u8>> {
    Ok(bounded::read(path, Links::Follow, LONGEST_SCRIPT)?)
}

impl Target {
    /// The file.
    pub(crate) fn program(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.path.as_bytes()))
    }

    /// The same for whoever starts it on other streams than ours.
    pub(crate) fn elsewhere<'a>(&self, env: &[CString], cwd: &'a Path) -> elsewhere::Program<'a> {
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
    pub(crate) fn judged_text(&self) -> Result<Vec<u8>, NotRun> {
        match self {
            Job::Line { text, .. } => Ok(text.as_bytes().to_vec()),
            Job::Script { path, .. } => script_text(path).map_err(|error| {
                let status = if error.kind() == std::io::ErrorKind::NotFound {
                    NOT_FOUND
                } else {
                    DENIED
                };
                NotRun::new(
                    status,
                    format!("{}: {}", path.display(), plain_error(&error)),
                )
            }),
            Job::Input { text, .. } => Ok(text.clone()),
            Job::Argv(_) => Ok(Vec::new()),
        }
    }

    /// What the trace shows: the line, or the exact words.
    pub(crate) fn recorded(&self) -> (OsString, Vec<OsString>) {
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

    pub(crate) fn target(
        &self,
        evaluation: &Evaluation,
        session: &Session,
        search_path: &OsStr,
        cwd: &Path,
    ) -> Result<Target, NotRun> {
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
    fn shell(&self) -> Result<Target, NotRun> {
        let path = shell_path()
            .ok_or_else(|| NotRun::new(FAILED, "there is neither bash nor sh on this machine"))?;
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
pub fn reads_rc_for_ssh(env: &[CString]) -> bool {
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
) -> Result<Target, NotRun> {
    let name = argv
        .first()
        .ok_or_else(|| NotRun::new(2, "there is no command to run"))?;
    match evaluation.program(name, search_path, cwd) {
        Some(path) => target(&path, argv),
        None if name.as_bytes().contains(&b'/') && Path::new(name).is_dir() => {
            let why = format!("{}: Is a directory", name.display());
            Err(NotRun::new(DENIED, why))
        }
        None if name.as_bytes().contains(&b'/') => {
            let why = format!("{}: No such file or directory", name.display());
            Err(NotRun::new(NOT_FOUND, why))
        }
        None => {
            let why = format!("{}: command not found", name.display());
            Err(NotRun::new(NOT_FOUND, why))
        }
    }
}

fn target(path: &Path, argv: &[OsString]) -> Result<Target, NotRun> {
    let c_string = |text: &OsStr| {
        CString::new(text.as_bytes()).map_err(|_| NotRun::new(2, "an argument contains a NUL byte"))
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

/// What is said of a program that could not be started.
pub(crate) fn start_failure(error: &std::io::Error, target: &Target) -> NotRun {
    let status = if error.kind() == std::io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        DENIED
    };
    NotRun::new(status, format!("{}: {}", target.shown, plain_error(error)))
}

/// The system's words without Rust's `(os error 2)`.
fn plain_error(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}
