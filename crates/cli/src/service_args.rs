//! Arguments of `daemon`.

use clap::Subcommand;

/// Subcommands of `daemon`.
#[derive(Debug, Subcommand)]
pub enum DaemonCommand {
    /// Start the service in the background
    Start,
    /// Let what runs come to its end, and stop the service
    Stop,
    /// Stop it and start it again, as after an upgrade
    Restart,
    /// Tell whether it runs, and what it keeps
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what it has logged
    Logs {
        /// Only so many lines
        #[arg(long, short = 'n', value_name = "LINES", default_value_t = 100)]
        lines: usize,
    },
    /// Serve in the foreground, as systemd wants it
    Run {
        /// End when nobody has needed it for so many seconds
        #[arg(long, value_name = "SECONDS")]
        idle: Option<u64>,
        /// Keep at most so many worlds
        #[arg(long, value_name = "NUMBER", default_value_t = 32)]
        worlds: usize,
        /// Keep a world for so many seconds after its last command
        #[arg(long, value_name = "SECONDS", default_value_t = 900)]
        keep: u64,
    },
}
