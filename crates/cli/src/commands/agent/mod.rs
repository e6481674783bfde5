//! `substrate agent`: agents in worlds.

mod gate;
mod mock;
pub mod plan;
pub mod providers;
mod report;
mod run;
mod screen;
mod usage;
mod vault;
mod watch;

use std::ffi::OsString;

use substrate_runtime::supervise::Ending;

use crate::agent_args::AgentCommand;
use crate::agent_run_args::AgentRunCommand;
use crate::asker::Asker;
use crate::commands::agent_setup;
use crate::failure::Failure;

/// Carries out a subcommand. `arguments` are the words as they were typed.
pub fn run(
    asker: &Asker,
    command: AgentCommand,
    arguments: &[OsString],
) -> Result<Ending, Failure> {
    match command {
        AgentCommand::Setup(args) => agent_setup::run(asker, &args).map(|()| Ending::Exit(0)),
        AgentCommand::Run(AgentRunCommand::Run(args)) => run::run(asker, &args, arguments),
        AgentCommand::Run(AgentRunCommand::Providers { json }) => {
            providers::run(asker, json).map(|()| Ending::Exit(0))
        }
        AgentCommand::Run(AgentRunCommand::Usage { name, json }) => {
            usage::run(asker, name, json).map(|()| Ending::Exit(0))
        }
        AgentCommand::Run(AgentRunCommand::Service { .. }) => Err(Failure::Refused(
            "agents that outlive their terminal need the service that keeps them, and this build has \
             none; `substrate agent run` runs one here"
                .to_owned(),
        )),
        AgentCommand::Run(AgentRunCommand::Mock { goal, script }) => mock::run(goal, script),
    }
}
