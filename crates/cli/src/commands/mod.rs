//! The subcommands.

mod allowed;
mod approvals;
pub mod ask;
mod clients;
mod complete;
mod doctor;
mod explain;
mod explore;
mod init;
mod learn;
mod login_shell;
mod past;
mod policy;
mod policy_change;
mod profile;
mod prompt;
pub mod replay;
mod run;
pub mod shim;
pub mod shim_exec;
mod trace;
mod uninstall;
mod verdicts;
mod whatif;
mod when;
mod world;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use clap::{CommandFactory, Parser};
use substrate_command::analyse::{Context, analyse};
use substrate_executor::front::Kind;
use substrate_executor::session::Session;
use substrate_runtime::supervise::Ending;
use substrate_shell::notice::Notices;
use substrate_shell::prompt_gate::OwnCommands;
use substrate_sys::{environment, process_group};

use crate::args::{Cli, Command, PolicyCommand, RunArgs, is_subcommand};
use crate::authority;
use crate::failure::Failure;
use crate::out;

/// Runs a subcommand.
pub fn run(arguments: &[OsString]) -> Ending {
    if arguments.get(1).is_some_and(|name| name == shim_exec::NAME) {
        return shim_exec::run(arguments);
    }
    if let Some(args) = RunArgs::alone(arguments) {
        return run::run(args);
    }
    let notices = Notices::new(&environment::raw());
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // clap knows which of its messages are answers and which are complaints.
            let _ = error.print();
            return Ending::Exit(error.exit_code());
        }
    };
    let result = match cli.command {
        Command::Run(args) => return run::run(args),
        Command::Replay(args) => return replay::run(args),
        Command::Policy(PolicyCommand::Explain(args)) => explain::run(&args),
        Command::Policy(PolicyCommand::Test { file, policy, json }) => {
            verdicts::run(&file, policy, json)
        }
        Command::Policy(PolicyCommand::Whatif {
            policy,
            wanted,
            json,
        }) => whatif::run(policy, wanted, json),
        Command::Policy(PolicyCommand::Learn(args)) => learn::run(args),
        Command::Policy(command) => policy::run(command),
        Command::Trace(args) => trace::run(args),
        Command::Shim(command) => shim::run(command),
        Command::World(command) => match world::run(&command) {
            Ok(ending) => return ending,
            Err(failure) => Err(failure),
        },
        Command::Profile(command) => profile::run(&command),
        Command::Approvals(command) => approvals::run(&command),
        Command::Allowed { json } => allowed::run(json),
        Command::Init(args) => init::run(&args),
        Command::Uninstall(args) => uninstall::run(&args),
        Command::Doctor { json } => doctor::run(json),
        Command::Completions { shell } => completions(shell),
        Command::Man => man(),
        Command::Prompt { json } => prompt::run(json),
    };
    match result {
        Ok(()) => Ending::Exit(0),
        Err(failure) => report(&notices, &failure),
    }
}

/// Substrate's own commands at a prompt of ours.
pub struct AtThePrompt;

impl OwnCommands for AtThePrompt {
    fn carry_out(
        &self,
        session: &Session,
        line: &[u8],
        cwd: &Path,
        variables: &dyn Fn() -> Vec<(OsString, OsString)>,
    ) -> Option<Ending> {
        typed(session, line, cwd, variables)
    }

    fn complete(&self, session: &Session, words: &[OsString]) -> Vec<OsString> {
        complete::words(session, words)
    }
}

/// Carries out a whole line that a person typed at a prompt of ours, when it is one of Substrate's own
/// commands: there he may approve, trust and change what nothing below the session may.
fn typed(
    session: &Session,
    line: &[u8],
    cwd: &Path,
    variables: &dyn Fn() -> Vec<(OsString, OsString)>,
) -> Option<Ending> {
    let context = Context::new(&session.broker);
    let words = analyse(line, &context).plain?;
    let words: Vec<OsString> = words.into_iter().map(OsString::from_vec).collect();
    let own = words.first()? == "substrate"
        && is_subcommand(&words)
        && words
            .get(1)
            .is_some_and(|name| name != "run" && name != shim_exec::NAME);
    if !own || session.barrier().is_some() {
        return None;
    }
    // The commands work where the person is, not where the front end was started.
    let before = std::env::current_dir();
    let moved = std::env::set_current_dir(cwd);
    let ending = match moved {
        Ok(()) => process_group::interruptible(|| authority::as_typed(variables(), || run(&words))),
        Err(_) => return None,
    };
    if let Ok(before) = before {
        let _ = std::env::set_current_dir(before);
    }
    Some(ending)
}

fn report(notices: &Notices, failure: &Failure) -> Ending {
    let text = failure.to_string();
    if !text.is_empty() {
        notices.say(Kind::Failed, &text);
    }
    if let Some(hint) = failure.hint() {
        notices.say(Kind::Info, hint);
    }
    Ending::Exit(failure.code())
}

fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "substrate", &mut script);
    Ok(out::write(&script)?)
}

fn man() -> Result<(), Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    Ok(out::write(&page)?)
}
