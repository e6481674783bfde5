//! The subcommands.

mod agent;
mod agent_doctor;
mod agent_setup;
mod allowed;
mod approvals;
mod complete;
mod daemon;
mod doctor;
pub mod door;
mod explain;
mod explore;
mod help;
pub mod hook;
mod init;
mod kept;
mod learn;
mod login_shell;
mod mcp;
mod mirrors;
mod past;
mod policy;
mod policy_change;
mod policy_text;
mod profile;
mod prompt;
mod questions;
pub mod replay;
mod results;
mod run;
mod running;
pub mod shim;
pub mod shim_exec;
mod trace;
mod uninstall;
mod verdicts;
mod whatif;
pub mod when;
mod world;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};
use substrate_command::{Context, analyse};
use substrate_executor::front::Kind;
use substrate_executor::session::Session;
use substrate_runtime::supervise::Ending;
use substrate_shell::notice::Notices;
use substrate_shell::prompt_gate::OwnCommands;
use substrate_sys::{environment, process_group};

use crate::agent_args::AgentCommand;
use crate::agent_run_args::AgentRunCommand;
use crate::args::{Cli, Command, PolicyCommand, RunArgs, SHIM_EXEC, in_order, is_subcommand};
use crate::asker::Asker;
use crate::failure::Failure;
use crate::out;

/// Runs a subcommand.
pub fn run(arguments: &[OsString], asker: &Asker) -> Ending {
    if arguments.get(1).is_some_and(|name| name == SHIM_EXEC) {
        return shim_exec::run(arguments);
    }
    if arguments.get(1).is_some_and(|name| name == hook::NAME)
        && let Some(ending) = hook::run(asker, arguments)
    {
        return ending;
    }
    if arguments.get(1).is_some_and(|name| name == "help")
        && let Some(shown) = help::run(asker, &arguments[2..])
    {
        return match shown {
            Ok(()) => Ending::Exit(0),
            Err(failure) => report(&Notices::new(&environment::raw()), &failure),
        };
    }
    if let Some(args) = RunArgs::alone(arguments) {
        return run::run(asker, args);
    }
    let notices = Notices::new(&environment::raw());
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => {
            // clap knows which of its messages are answers and which are complaints.
            let _ = error.print();
            if error.kind() == clap::error::ErrorKind::InvalidSubcommand
                && arguments.get(1).is_some_and(|name| name == "help")
            {
                let _ = out::print(&help::topics());
            }
            return Ending::Exit(error.exit_code());
        }
    };
    if let Err(failure) = reachable(&cli.command, asker) {
        return report(&notices, &failure);
    }
    let result = match cli.command {
        Command::Run(args) => return run::run(asker, args),
        Command::Replay(args) => return replay::run(asker, args),
        Command::Policy(PolicyCommand::Explain(args)) => explain::run(asker, &args),
        Command::Policy(PolicyCommand::Test {
            file,
            policy,
            totals,
            by,
            json,
        }) => {
            let shape = verdicts::Shape { totals, by, json };
            verdicts::run(asker, &file, policy, &shape)
        }
        Command::Policy(PolicyCommand::Whatif {
            policy,
            wanted,
            json,
        }) => whatif::run(asker, policy, wanted, json),
        Command::Policy(PolicyCommand::Learn(args)) => learn::run(asker, args),
        Command::Policy(command) => policy::run(asker, command),
        Command::Trace(args) => trace::run(asker, args),
        Command::Shim(command) => shim::run(asker, command),
        Command::World(command) => match world::run(asker, &command) {
            Ok(ending) => return ending,
            Err(failure) => Err(failure),
        },
        Command::Profile(command) => profile::run(asker, &command),
        Command::Approvals(command) => approvals::run(asker, &command),
        Command::Ps { json } => running::ps(asker, json),
        Command::Stop { spans, all } => running::stop(asker, &spans, all),
        Command::Allowed { policy, json } => allowed::run(asker, policy, json),
        Command::Agent(command) => match agent::run(asker, command, arguments) {
            Ok(ending) => return ending,
            Err(failure) => Err(failure),
        },
        Command::Init(args) => init::run(asker, &args),
        Command::Uninstall(args) => uninstall::run(asker, &args),
        Command::Doctor { json } => doctor::run(asker, json),
        Command::Completions { shell } => completions(shell),
        Command::Man { out } => man(asker, out),
        Command::Prompt { json } => prompt::run(asker, json),
        Command::Daemon(command) => daemon::run(asker, &command),
        Command::Mcp => mcp::run(),
        Command::Hook { client, event } => {
            return hook::carry_out(asker, &client, event.as_deref());
        }
    };
    match result {
        Ok(()) => Ending::Exit(0),
        Err(failure) => report(&notices, &failure),
    }
}

/// Refuses what can do nothing in a world, which shows nothing of Substrate's home.
fn reachable(command: &Command, asker: &Asker) -> Result<(), Failure> {
    let needs_home = !matches!(
        command,
        Command::Run(_)
            | Command::Policy(
                PolicyCommand::Explain(_)
                    | PolicyCommand::Validate { .. }
                    | PolicyCommand::Schema { .. }
                    | PolicyCommand::Test { .. }
            )
            | Command::Completions { .. }
            | Command::Man { .. }
            | Command::Prompt { .. }
            | Command::Agent(AgentCommand::Run(AgentRunCommand::Mock { .. }))
            | Command::Mcp
            | Command::Hook { .. }
    );
    match needs_home && asker.is_in_world() {
        true => Err(Failure::Refused(
            "this world shows nothing of Substrate's home, which this command needs: type it as a whole line at \
             the session's prompt, or run it outside"
                .to_owned(),
        )),
        false => Ok(()),
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
    let words = in_order(&words).unwrap_or(words);
    let own = words.first()? == "substrate"
        && is_subcommand(&words)
        && words
            .get(1)
            .is_some_and(|name| name != "run" && name != SHIM_EXEC);
    if !own || session.barrier().is_some() {
        return None;
    }
    let asker = Asker::at_a_prompt(cwd, variables());
    Some(process_group::interruptible(|| run(&words, &asker)))
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

fn man(asker: &Asker, directory: Option<PathBuf>) -> Result<(), Failure> {
    if let Some(directory) = directory {
        return Ok(clap_mangen::generate_to(
            Cli::command(),
            asker.path(&directory),
        )?);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command()).render(&mut page)?;
    Ok(out::write(&page)?)
}
