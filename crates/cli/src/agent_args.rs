//! Arguments of `substrate agent`.

use clap::Subcommand;

use crate::agent_run_args::AgentRunCommand;

/// Subcommands of `agent`.
#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Have an agent's client ask Substrate before it does something, by its own settings
    Setup(SetupArgs),
    /// Agents at work.
    #[command(flatten)]
    Run(AgentRunCommand),
}

/// Arguments of `agent setup`.
#[derive(Debug, clap::Args)]
pub struct SetupArgs {
    /// The client: claude, codex, gemini, cursor, opencode, copilot; without it, what is set up is listed
    pub client: Option<String>,
    /// In the user's own settings (the default)
    #[arg(long, conflicts_with = "project")]
    pub user: bool,
    /// In the settings of the project here
    #[arg(long)]
    pub project: bool,
    /// Take back what was set up
    #[arg(long, requires = "client")]
    pub undo: bool,
    /// Change nothing, say what would change
    #[arg(long)]
    pub dry_run: bool,
    /// Ask nothing
    #[arg(long)]
    pub yes: bool,
}
