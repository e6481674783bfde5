//! Arguments of those subcommands of `agent` that run agents and tell about the programs that they are.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;

/// Running agents.
#[derive(Debug, Subcommand)]
pub enum AgentRunCommand {
    /// Run an agent in a world: claude, codex, gemini, … or any command after --
    Run(Box<AgentRunArgs>),
    /// List the agent programs that are known, whether they are here, and where their keys live
    Providers {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Tell what agents had their models read and write, and what that cost
    Usage {
        /// Only this agent
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Not without a service, which is not there yet
    #[command(hide = true, aliases = ["attach", "send", "stop", "suspend", "resume"])]
    Service {
        /// What it would be about
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Be a client that carries out the lines of a file: `say TEXT`, `run COMMAND`, `ask TEXT`
    #[command(hide = true)]
    Mock {
        /// What it is to do, when no file says it
        #[arg(long)]
        goal: Option<String>,
        /// The file
        script: Option<PathBuf>,
    },
}

/// Arguments of `agent run`.
#[derive(Debug, clap::Args)]
pub struct AgentRunArgs {
    /// How it is called in the trace; else as its program
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Judge by this policy; else by the preset `agent`
    #[arg(long, value_name = "NAME|FILE")]
    pub policy: Option<OsString>,
    /// Hold back what it writes as a result to look at, apply or discard
    #[arg(long)]
    pub isolated: bool,
    /// Tokens that its models may read and write: 500k, 2M
    #[arg(long, value_name = "TOKENS")]
    pub budget: Option<String>,
    /// Do this without a terminal's face, and end
    #[arg(short = 'p', long = "prompt", value_name = "GOAL")]
    pub goal: Option<String>,
    /// With -p: this many turns at most
    #[arg(long, value_name = "N", requires = "goal")]
    pub max_turns: Option<u64>,
    /// It may take this long: 90s, 10m, 2h
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
    /// Tell the end as JSON on standard output, with what the client printed in it
    #[arg(long)]
    pub json: bool,
    /// Set a variable for it; keys of your own environment are not passed on
    #[arg(long, value_name = "NAME=VALUE")]
    pub setenv: Vec<OsString>,
    /// Not without a service, which is not there yet
    #[arg(short = 'd', long, hide = true)]
    pub detach: bool,
    /// A provider and its arguments, or a command after --
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "PROVIDER [ARGS] | -- COMMAND"
    )]
    pub words: Vec<OsString>,
}
