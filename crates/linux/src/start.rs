//! Starting a command in a world: what it gets, asked for while the world is still being made or
//! when it lives.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use substrate_init::launch::{Command, Parts, StartError};
use substrate_init::starter;
use substrate_relay::start_error;
use substrate_sys::bounded::{self, Links};
use substrate_sys::real_path::real_path;
use substrate_trace::WorldId;

use crate::inside::Inside;
use crate::streams::{Carried, Streams};
use substrate_egress::proxy::VARIABLES;
use substrate_world::backend::{ExecJob, ExecRequest};
use substrate_world::error::WorldError;

const BEGUN_WITHOUT_STREAMS: &str =
    "hand a descriptor to the command, which had begun and was ended";

/// Sends a request to the first process of a world.
pub(crate) type Ask<'a> = &'a dyn Fn(&Parts<'_>, &[BorrowedFd<'_>]) -> Result<Command, StartError>;

/// A command with all that it gets.
pub(crate) struct Prepared<'a> {
    job: ExecJob<'a>,
    world: WorldId,
    program: PathBuf,
    /// What starts the program, where that is neither the first process nor a starter.
    by: &'static [&'static str],
    cwd: PathBuf,
    env: Vec<Vec<u8>>,
    streams: Streams,
}

/// A command that was asked for.
pub struct Asked {
    world: WorldId,
    command: Command,
    streams: Streams,
    program: PathBuf,
    cwd: PathBuf,
}

impl<'a> Prepared<'a> {
    /// Finds what a command needs inside.
    pub(crate) fn new(inside: &Inside<'_>, job: ExecJob<'a>) -> Result<Prepared<'a>, WorldError> {
        let ExecJob {
            request,
            streams: given,
        } = job;
        let program = find_program(request, inside.substrate_home)?;
        let by_sh = request.judged && (!kernel_knows(&program) || starter::file().is_err());
        // A link to it may lie in a directory that the world has to itself.
        let cwd = real_path(&request.cwd).unwrap_or_else(|_| request.cwd.clone());
        let mut env: Vec<Vec<u8>> = request
            .env
            .iter()
            .map(|(name, value)| [name.as_bytes(), b"=", value.as_bytes()].concat())
            .collect();
        if let Some(scratch) = inside.scratch {
            env.retain(|variable| !variable.starts_with(b"TMPDIR="));
            env.push([b"TMPDIR=", scratch.as_os_str().as_bytes()].concat());
        }
        if inside.gated {
            // The gate goes through the user's proxies itself, and a world cannot reach them.
            env.retain(|variable| !is_proxy(variable));
        }
        let mut streams = Streams::default();
        streams.add(&given.stdio, inside)?;
        for (number, fd) in &given.fds {
            if let Some(bit) = 1_u8.checked_shl(number.unsigned_abs()) {
                streams.terminal_for &= !bit;
            }
            if let Some(null) = streams.null_for.get_mut(number.unsigned_abs() as usize) {
                *null = None;
            }
            streams.pass(*number, fd.as_fd(), inside)?;
        }
        Ok(Prepared {
            job,
            world: inside.world,
            program,
            by: if by_sh { &BY_SH } else { &[] },
            cwd: inside.moved(&cwd),
            env,
            streams,
        })
    }

    /// Asks for it.
    pub(crate) fn ask(self, send: Ask<'_>) -> Result<Asked, WorldError> {
        let request = self.job.request;
        let by = self.by.iter().map(OsStr::new);
        let words = request.argv.iter().map(OsString::as_os_str);
        let (program, argv): (&OsStr, Vec<&OsStr>) = match self.by {
            [] => (self.program.as_os_str(), words.collect()),
            _ => {
                let named = std::iter::once(self.program.as_os_str());
                (
                    OsStr::new("/bin/sh"),
                    by.chain(named).chain(words.skip(1)).collect(),
                )
            }
        };
        let parts = Parts {
            program,
            argv: &argv,
            env: &self.env,
            cwd: self.cwd.as_os_str(),
            umask: request.umask,
            terminal_for: self.streams.terminal_for,
            terminal_at: self.job.streams.terminal_at,
            size: self.streams.size,
            null_for: self.streams.null_for,
            fds: &self.streams.numbers,
            judged: request.judged && self.by.is_empty(),
            tag: request.tag,
        };
        let fds: Vec<BorrowedFd<'_>> = self.streams.fds.iter().map(AsFd::as_fd).collect();
        let command = send(&parts, &fds).map_err(|error| match error {
            StartError::Own(error) => WorldError::own("send the command to the world")(error),
            _ => WorldError::Gone(self.world),
        })?;
        Ok(Asked {
            world: self.world,
            command,
            streams: self.streams,
            program: self.program,
            cwd: self.cwd,
        })
    }
}

impl Asked {
    /// Waits until the command is about to become its program.
    pub(crate) fn started(mut self) -> Result<(Command, Carried), WorldError> {
        let carried = self
            .streams
            .begin()
            .map_err(WorldError::own(BEGUN_WITHOUT_STREAMS))?;
        match self.command.await_start() {
            Ok(()) => Ok((self.command, carried)),
            Err(error) => Err(start_error(error, self.world, self.program, self.cwd)),
        }
    }
}

/// What the guard sees in place of a start that it could not judge: a script that only shells run, or any
/// program where there can be no starter.
const BY_SH: [&str; 4] = ["sh", "-c", "exec \"$@\"", "sh"];

/// Whether a file begins as programs do. One that cannot be read is left to the kernel.
fn kernel_knows(path: &Path) -> bool {
    let mut head = [0_u8; 4];
    match bounded::open(path, Links::Follow).map(|mut file| file.read(&mut head)) {
        Ok(Ok(count)) => head[..count].starts_with(b"\x7fELF") || head[..count].starts_with(b"#!"),
        _ => true,
    }
}

fn is_proxy(variable: &[u8]) -> bool {
    let name = variable.split(|byte| *byte == b'=').next();
    let name = name.unwrap_or_default();
    VARIABLES.iter().any(|known| known.as_bytes() == name)
}

/// The file that a request names; a bare name is looked up on its own `PATH`, without the
/// shims, which do not exist inside.
fn find_program(request: &ExecRequest, substrate_home: &Path) -> Result<PathBuf, WorldError> {
    let program = Path::new(&request.program);
    if request.program.as_bytes().contains(&b'/') {
        return Ok(request.cwd.join(program));
    }
    let path = request.env.iter().find(|(name, _)| name == "PATH");
    let path = path.map_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"), |(_, value)| {
        value
    });
    let home = real_path(substrate_home).ok();
    std::env::split_paths(path)
        .map(|dir| request.cwd.join(dir).join(program))
        .find(|file| {
            let inside = home.as_ref().is_some_and(|home| {
                real_path(file).is_ok_and(|real| real.starts_with(home)) || file.starts_with(home)
            });
            let runs = fs::metadata(file)
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
            runs && !inside
        })
        .ok_or_else(|| WorldError::NotFound(program.to_owned()))
}
