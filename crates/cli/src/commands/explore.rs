//! `substrate world explore`: a shell inside what an isolated command left.

use crate::asker::Asker;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use substrate_executor::front::Kind;
use substrate_executor::isolation::Isolation;
use substrate_executor::job::Job;
use substrate_executor::oneshot;
use substrate_executor::shell_path::shell_path;
use substrate_runtime::supervise::Ending;
use substrate_shell::notice::Notices;
use substrate_sys::environment;
use substrate_text::visible;

use crate::commands::results;
use crate::failure::Failure;
use crate::worlds::begin;

/// Runs the shell, or the program.
pub fn run(asker: &Asker, result: &str, argv: &[OsString]) -> Ending {
    let notices = Notices::new(&environment::raw());
    start(asker, result, argv, notices).unwrap_or_else(|failure| {
        notices.say(Kind::Failed, &failure.to_string());
        Ending::Exit(failure.run_code())
    })
}

fn start(
    asker: &Asker,
    result: &str,
    argv: &[OsString],
    notices: Notices,
) -> Result<Ending, Failure> {
    let mut pending = results::find(&asker.home()?, result)?;
    let missing = |error: &dyn std::fmt::Display| Failure::Missing(error.to_string());
    let argv = if argv.is_empty() {
        let shell = shell_path().ok_or_else(|| missing(&"neither bash nor sh was found"))?;
        vec![shell.into_os_string()]
    } else {
        argv.to_vec()
    };
    let mut env = environment::raw();
    // Where the command ran is where its results are; it may be gone by now.
    let cwd = Some(pending.meta().cwd.clone()).filter(|cwd| cwd.is_dir());
    let cwd = cwd.map_or_else(|| asker.cwd(), Ok)?;
    // What is typed there is no part of the result.
    environment::set(&mut env, "HISTFILE", b"");
    environment::set(&mut env, "PWD", cwd.as_os_str().as_bytes());
    let broker = asker.broker_at(None, false, &cwd)?;
    let session = begin(broker, env, notices);
    let lock = pending.explore().map_err(|error| missing(&error))?;
    let cmd = visible(pending.meta().cmd.as_bytes());
    notices.say(
        Kind::Info,
        &format!("inside what `{cmd}` left; what is changed here is added to it"),
    );
    let isolation = Isolation {
        keep: true,
        write: pending
            .meta()
            .roots
            .iter()
            .map(|root| root.target.clone())
            .collect(),
        again: Some(
            pending
                .held()
                .ok_or_else(|| missing(&"its world has no name"))?,
        ),
        ..Isolation::default()
    };
    // From here on its description says that somebody is in it; deciding about it needs the lock.
    drop(lock);
    Ok(oneshot::run(
        &session,
        &Job::Argv(argv),
        Some(&isolation),
        &cwd,
    ))
}
