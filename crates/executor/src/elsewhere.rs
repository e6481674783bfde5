//! A program on the host whose streams are somebody else's, and who may lose interest in it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use substrate_runtime::supervise::Ending;
use substrate_sys::process_group::readable;
use substrate_sys::{pidfd, process_group, signals, start, terminal};
use substrate_world::backend::Master;

use crate::exit_status::FAILED;
use crate::front::{GivenStdio, GivenStreams};

/// What a command that nobody waits for has for putting its things in order.
const GRACE: Duration = Duration::from_secs(2);

/// What is to be started.
pub(crate) struct Program<'a> {
    pub path: OsString,
    pub argv: Vec<OsString>,
    pub env: Vec<(OsString, OsString)>,
    pub cwd: &'a Path,
}

/// Runs it to its end.
pub(crate) fn run(program: Program<'_>, streams: GivenStreams) -> io::Result<Ending> {
    let mut argv = program.argv.into_iter();
    let mut command = Command::new(program.path);
    command
        .arg0(argv.next().unwrap_or_default())
        .args(argv)
        .env_clear()
        .envs(program.env)
        .current_dir(program.cwd);
    let has_terminal = matches!(streams.stdio, GivenStdio::Terminal(..));
    let ([stdin, stdout, stderr], master) = standard(streams.stdio)?;
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    start::apart(&mut command, has_terminal);
    let mut child = command.spawn()?;
    // Our copies of its streams would keep readers waiting after its end.
    drop(command);
    if let Some((give, master)) = master {
        (give.0)(master);
    }
    let leader = i32::try_from(child.id()).map_err(io::Error::other)?;
    let process = pidfd::open(leader)?;
    attend(&process, leader, streams.abandoned.as_ref())?;
    let status = child.wait()?;
    Ok(match status.signal() {
        Some(signal) => Ending::Signal(signal),
        None => Ending::Exit(status.code().unwrap_or(FAILED)),
    })
}

type Standard = ([OwnedFd; 3], Option<(Master, OwnedFd)>);

/// The streams themselves, and the master of a terminal with who gets it.
fn standard(stdio: GivenStdio) -> io::Result<Standard> {
    match stdio {
        GivenStdio::Streams(streams) => Ok((streams, None)),
        GivenStdio::Terminal(size, give) => {
            let pty = terminal::open_pty()?;
            terminal::set_size(&pty.slave, size)?;
            let copy = || pty.slave.try_clone();
            let streams = [copy()?, copy()?, copy()?];
            Ok((streams, Some((give, pty.master))))
        }
    }
}

/// Waits for the end of a process, and brings it about once nobody else waits.
fn attend(process: &OwnedFd, leader: i32, abandoned: Option<&OwnedFd>) -> io::Result<()> {
    let Some(abandoned) = abandoned else {
        return readable(&[process.as_fd()], None).map(drop);
    };
    let ready = readable(&[process.as_fd(), abandoned.as_fd()], None)?;
    if ready.first() == Some(&true) {
        return Ok(());
    }
    let end = Instant::now() + GRACE;
    let _ = process_group::send_group(leader, signals::TERMINATE);
    let left = end.saturating_duration_since(Instant::now());
    if readable(&[process.as_fd()], Some(left))?.first() != Some(&true) {
        let _ = process_group::send_group(leader, signals::KILL);
    }
    Ok(())
}
