//! Starting the engine's process, here or wherever a caller wants it to live.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use substrate_sys::process_group::{self, Change, Placement, Program};
use substrate_sys::terminal::Pty;

/// The language of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// bash, with everything.
    Bash,
    /// Any POSIX shell: lines, status and directory, but no completion or hooks of its own.
    Posix,
}

/// What is to be started.
pub struct Start<'a> {
    /// The shell's path.
    pub program: &'a Path,
    /// Its `argv[0]`.
    pub name: &'a OsStr,
    /// Its arguments.
    pub arguments: &'a [OsString],
    /// Variables to set, or to remove, on top of our own environment.
    pub environment: &'a [(OsString, Option<OsString>)],
    /// The directory to start in.
    pub cwd: &'a Path,
    /// Its standard input.
    pub control: BorrowedFd<'a>,
    /// Further descriptors with the numbers they get; the terminal is added by the launcher.
    pub descriptors: Vec<(BorrowedFd<'a>, i32)>,
    /// The number the engine's terminal gets.
    pub terminal_number: i32,
    /// Our terminal.
    pub terminal: BorrowedFd<'a>,
}

/// A started engine.
pub struct Launched {
    /// Its process id, as we see it.
    pub process: i32,
    /// Readable once it ended.
    pub ended: OwnedFd,
    /// Readable when [`Launched::change`] has something to say, where no signal tells us.
    pub news: Option<OwnedFd>,
    /// The terminal it has for itself, if it does not share ours.
    pub pty: Option<Pty>,
    /// What changed about it; waits if asked to.
    pub change: Box<dyn FnMut(bool) -> io::Result<Option<Change>>>,
}

/// Starts engines.
pub trait Launcher {
    /// Starts one: in its own process group that owns our terminal, or in a session of its own
    /// on a terminal of its own.
    fn launch(&mut self, start: &Start<'_>) -> io::Result<Launched>;
}

fn command(start: &Start<'_>) -> io::Result<Command> {
    let mut command = Command::new(start.program);
    command
        .arg0(start.name)
        .args(start.arguments)
        .current_dir(start.cwd)
        .stdin(Stdio::from(start.control.try_clone_to_owned()?));
    for (name, value) in start.environment {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Ok(command)
}

fn launched(process: i32, pty: Option<Pty>) -> io::Result<Launched> {
    Ok(Launched {
        process,
        ended: process_group::pidfd(process)?,
        news: None,
        pty,
        change: Box::new(move |wait| process_group::change_of(process, wait)),
    })
}

/// Starts the engine beside us, on our own terminal.
pub struct Beside;

impl Launcher for Beside {
    fn launch(&mut self, start: &Start<'_>) -> io::Result<Launched> {
        let mut descriptors = start.descriptors.clone();
        descriptors.push((start.terminal, start.terminal_number));
        descriptors.push((start.control, 0));
        let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::other);
        let arguments = start.arguments.iter().map(OsString::as_os_str);
        let argv: io::Result<Vec<CString>> = std::iter::once(start.name)
            .chain(arguments)
            .map(|word| text(word.as_bytes()))
            .collect();
        let program = Program {
            path: &text(start.program.as_os_str().as_bytes())?,
            argv: &argv?,
            env: &environment(start),
            cwd: &text(start.cwd.as_os_str().as_bytes())?,
        };
        let process = process_group::spawn_on(&program, start.terminal, &descriptors)?;
        launched(process, None)
    }
}

/// Our own environment, changed as the start says.
fn environment(start: &Start<'_>) -> Vec<CString> {
    let changed = |name: &OsStr| start.environment.iter().any(|(known, _)| known == name);
    let own = std::env::vars_os().filter(|(name, _)| !changed(name));
    let set = start.environment.iter();
    let set = set.filter_map(|(name, value)| Some((name.clone(), value.clone()?)));
    own.chain(set)
        .filter_map(|(mut entry, value)| {
            entry.push("=");
            entry.push(value);
            CString::new(entry.into_vec()).ok()
        })
        .collect()
}

/// Starts the engine in a session of its own, on a new terminal; bytes are passed between.
pub struct OnOwnTerminal;

impl Launcher for OnOwnTerminal {
    fn launch(&mut self, start: &Start<'_>) -> io::Result<Launched> {
        let pty = substrate_sys::terminal::open_pty()?;
        if let Ok(size) = substrate_sys::terminal::size(start.terminal) {
            substrate_sys::terminal::set_size(&pty.master, size)?;
        }
        let mut command = command(start)?;
        command
            .stdout(Stdio::from(pty.slave.try_clone()?))
            .stderr(Stdio::from(pty.slave.try_clone()?));
        let mut descriptors = start.descriptors.clone();
        descriptors.push((pty.slave.as_fd(), start.terminal_number));
        let placement = Placement {
            foreground_of: None,
            session_on: Some(pty.slave.as_fd()),
            descriptors,
        };
        let process = process_group::spawn(command, &placement)?;
        launched(process, Some(pty))
    }
}

/// Where a shell to run lines with is found: the user's bash, else `/bin/sh`.
pub fn find_shell(path: Option<&OsStr>) -> Option<(PathBuf, Dialect)> {
    let fixed = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"];
    let listed: Vec<PathBuf> = path
        .map(|path| {
            std::env::split_paths(path)
                .map(|dir| dir.join("bash"))
                .collect()
        })
        .unwrap_or_default();
    let absolute = listed.into_iter().filter(|path| path.is_absolute());
    fixed
        .iter()
        .map(PathBuf::from)
        .chain(absolute)
        .find(|path| is_executable(path))
        .map(|path| (path, Dialect::Bash))
        .or_else(|| {
            let sh = PathBuf::from("/bin/sh");
            is_executable(&sh).then_some((sh, Dialect::Posix))
        })
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path)
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}
