//! Arguments of `substrate replay`.

use std::ffi::OsString;
use std::time::SystemTime;

use crate::trace_args::moment;

/// Arguments of `replay`.
#[derive(Debug, Default, clap::Args)]
pub struct ReplayArgs {
    /// The span: its id, the beginning or end of it, or `-` for the last
    #[arg(required_unless_present_any = ["last", "session", "since"])]
    pub span: Option<String>,
    /// The last command, or the last N, each from its own files
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1", conflicts_with = "span")]
    pub last: Option<usize>,
    /// A whole session, each command on the result of the one before, up to the first difference:
    /// its id, the end of it, or `-` for the last
    #[arg(long, value_name = "ID", conflicts_with_all = ["span", "last"])]
    pub session: Option<String>,
    /// What ended since then (90s, 30m, 2h, 7d, 4w, a date, a time), each from its own files
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with = "span")]
    pub since: Option<SystemTime>,
    /// Say where it runs, what it uses, and what is not as it was
    #[arg(long)]
    pub verbose: bool,
    /// As JSON, one object a line for each command
    #[arg(long)]
    pub json: bool,
    /// Keep what it changes, for `substrate world diff`
    #[arg(long)]
    pub keep: bool,
    /// On today's files instead of those of then
    #[arg(long)]
    pub here: bool,
    /// Accept the new result: later replays compare with it
    #[arg(long)]
    pub update: bool,
    /// Judge by this policy
    #[arg(long, value_name = "NAME|FILE")]
    pub policy: Option<OsString>,
}
