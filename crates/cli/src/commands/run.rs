//! `substrate run -- ARGV`: one program, no shell.

use crate::asker::Asker;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::working_directory::working_directory;
use substrate_broker::BrokerError;
use substrate_broker::env::{SUBSTRATE_JSON_ERRORS, SUBSTRATE_WORLD};
use substrate_executor::front::Kind;
use substrate_executor::isolation::Isolation;
use substrate_executor::job::Job;
use substrate_executor::oneshot;
use substrate_runtime::supervise::Ending;
use substrate_shell::notice::Notices;
use substrate_sys::environment;

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::worlds::begin_once;

/// Runs the program.
pub fn run(asker: &Asker, args: RunArgs) -> Ending {
    let notices = Notices::new(&environment::raw());
    start(asker, args, notices).unwrap_or_else(|failure| {
        notices.say(Kind::Failed, &failure.to_string());
        Ending::Exit(failure.run_code())
    })
}

fn start(asker: &Asker, args: RunArgs, notices: Notices) -> Result<Ending, Failure> {
    let mut env = environment::raw();
    if args.json_errors {
        environment::set(&mut env, SUBSTRATE_JSON_ERRORS, b"2");
    }
    if args.no_world {
        environment::set(&mut env, SUBSTRATE_WORLD, b"disabled");
    }
    let here = asker.cwd()?;
    let isolation = Isolation {
        write: existing("--write", &args.write)?,
        hide: existing("--hide", &args.hide)?,
        no_net: args.no_net,
        keep: true,
        again: None,
    };
    let cwd = match &args.chdir {
        None => here,
        Some(dir) => enter(&here, dir, &mut env)?,
    };
    // The broker is chosen by our own surroundings; the variables are the program's.
    let own;
    let asker = match args.no_world {
        true => {
            own = Asker::with(env.clone());
            &own
        }
        false => asker,
    };
    if args.isolated && asker.is_in_world() {
        return Err(Failure::Refused(
            "--isolated: no world can be made inside a world; what runs here is held by the one around it".to_owned(),
        ));
    }
    let broker = asker.broker_at(args.policy, args.require_approval, &cwd)?;
    set_variables(&args.setenv, &mut env)?;
    let mut session = begin_once(broker, env, notices);
    session.record = args.record;
    session.timeout = args.timeout;
    let isolation = args.isolated.then_some(&isolation);
    Ok(oneshot::run(
        &session,
        &Job::Argv(args.argv),
        isolation,
        &cwd,
    ))
}

/// Absolute paths that must be there: a slip of the pen must not pass for protection.
fn existing(flag: &str, paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let real = |path: &PathBuf| {
        std::fs::symlink_metadata(path)
            .and_then(|_| std::path::absolute(path))
            .map_err(|error| Failure::File {
                what: format!("{flag} {}", path.display()),
                error,
            })
    };
    paths.iter().map(real).collect()
}

fn enter(here: &Path, dir: &Path, env: &mut Vec<CString>) -> Result<PathBuf, Failure> {
    let cwd = here.join(dir);
    std::env::set_current_dir(&cwd).map_err(|error| Failure::File {
        what: format!("--chdir {}", dir.display()),
        error,
    })?;
    environment::set(env, "PWD", cwd.as_os_str().as_bytes());
    working_directory(env).map_err(|error| BrokerError::Cwd(error).into())
}

pub(super) fn set_variables(settings: &[OsString], env: &mut Vec<CString>) -> Result<(), Failure> {
    for setting in settings {
        let bytes = setting.as_bytes();
        let at = bytes.iter().position(|byte| *byte == b'=');
        let name = at.and_then(|at| OsStr::from_bytes(&bytes[..at]).to_str());
        match (name, at) {
            (Some(name), Some(at)) if !name.is_empty() => {
                environment::set(env, name, &bytes[at + 1..]);
            }
            _ => {
                let text = format!("--setenv {}: NAME=VALUE is expected", setting.display());
                return Err(Failure::Usage(text));
            }
        }
    }
    Ok(())
}
