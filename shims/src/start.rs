//! Starting the tool: in our place where the kernel tells endings to a watcher, else as a child that
//! we stand in for.

use std::convert::Infallible;
use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use substrate_broker::env::SUBSTRATE_SHIM_MODE;
use substrate_runtime::inherit::{self, Successor};
use substrate_runtime::supervise::{self, Ending, Program};
use substrate_runtime::watch;
use substrate_sys::errno::ENOEXEC;
use substrate_sys::marker::{self, Mark};
use substrate_sys::{environment, process_info};

use crate::notice::Notices;
use crate::{DENIED, NOT_FOUND};

/// A tool that may run.
#[derive(Debug)]
pub struct Tool<'a> {
    /// The file.
    pub target: &'a Path,
    /// Its name, for messages.
    pub name: &'a OsStr,
    /// Its arguments.
    pub argv: Vec<CString>,
    /// Its environment.
    pub env: Vec<CString>,
    /// The environment that we got, for when the other is too large by that little.
    pub given_env: &'a [CString],
    /// How many arguments this process was started with.
    pub arguments: usize,
}

/// Starts the tool. `complete` hears how it ended and after how long, in this process or another;
/// `settle` lets go of memory while that takes long.
pub fn run(
    tool: Tool<'_>,
    notices: &Notices,
    settle: &dyn Fn(),
    complete: &dyn Fn(Option<Ending>, Duration),
) -> Ending {
    let path = match c_string(tool.target.as_os_str()) {
        Ok(path) => path,
        Err(error) => return not_started(&tool, notices, &error),
    };
    // Whoever loses his parents is known by the mark, and cannot approve for himself either. Only a
    // kernel that forbids lowering one's own limits refuses it, and then ancestors still tell.
    let _ = marker::set(Mark::Shim);
    let started = Instant::now();
    let told = |ending| complete(ending, started.elapsed());
    let forced = environment::get(tool.given_env, SUBSTRATE_SHIM_MODE);
    let in_place = match forced {
        Some(b"exec") => true,
        Some(b"spawn") => false,
        _ => process_info::keeps_endings(),
    };
    let first = Successor::new(&path, &tool.argv, &tool.env);
    let watched = in_place && watch::start(tool.arguments, settle, told).is_ok();
    if watched || forced == Some(b"exec") {
        let error = first.take_over();
        let Err(error) = otherwise(&tool, &path, error, |path, argv, env| {
            Err::<Infallible, _>(Successor::new(path, argv, env).take_over())
        });
        return not_started(&tool, notices, &error);
    }
    inherit::close_again();
    let spawn = |path: &CStr, argv: &[CString], env: &[CString]| {
        supervise::run(&Program { path, argv, env }, |_| ())
    };
    let ended = spawn(&path, &tool.argv, &tool.env)
        .or_else(|error| otherwise(&tool, &path, error, spawn))
        .unwrap_or_else(|error| not_started(&tool, notices, &error));
    told(Some(ended));
    ended
}

/// Tries again without our variable, if that made it too large; and, as every shell does with a
/// script that has no first line for the kernel, through `/bin/sh`.
fn otherwise<T>(
    tool: &Tool<'_>,
    path: &CStr,
    error: io::Error,
    start: impl Fn(&CStr, &[CString], &[CString]) -> io::Result<T>,
) -> io::Result<T> {
    match error.kind() {
        io::ErrorKind::ArgumentListTooLong => start(path, &tool.argv, tool.given_env),
        _ if error.raw_os_error() == Some(ENOEXEC) => {
            let mut argv = vec![CString::from(c"sh"), path.to_owned()];
            argv.extend(tool.argv.iter().skip(1).cloned());
            start(c"/bin/sh", &argv, &tool.env)
        }
        _ => Err(error),
    }
}

fn not_started(tool: &Tool<'_>, notices: &Notices, error: &io::Error) -> Ending {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or(&text);
    notices.plain(&format!("{}: {text}", tool.name.display()));
    Ending::Exit(if error.kind() == io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        DENIED
    })
}

/// A text for the kernel. What came from it has no NUL byte inside.
pub fn c_string(text: &OsStr) -> io::Result<CString> {
    Ok(CString::new(text.as_bytes())?)
}
