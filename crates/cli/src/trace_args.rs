//! Arguments of `substrate trace`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::{Args, Subcommand};
use substrate_trace::read::parse_time;

/// Arguments of `trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// What to do with it
    #[command(subcommand)]
    pub command: Option<TraceCommand>,
    /// A span: its id, the beginning or end of it, or `-` for the last
    pub span: Option<String>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Subcommands of `trace`.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// List the newest spans, newest last
    List {
        /// How many
        #[arg(short = 'n', long, default_value_t = 20)]
        last: usize,
        #[command(flatten)]
        wanted: FilterArgs,
        /// As JSON lines
        #[arg(long)]
        json: bool,
    },
    /// Show the newest events as they were written
    Tail {
        /// How many
        #[arg(short = 'n', long, default_value_t = 10)]
        last: usize,
        /// Go on as events arrive
        #[arg(short, long)]
        follow: bool,
        #[command(flatten)]
        wanted: FilterArgs,
        /// As JSON lines
        #[arg(long)]
        json: bool,
    },
    /// Find spans, oldest first; all conditions must hold
    Grep {
        /// Text in the command line; with * or ? a glob for all of it
        text: Option<OsString>,
        /// Only the newest so many
        #[arg(short = 'n', long)]
        last: Option<usize>,
        #[command(flatten)]
        wanted: FilterArgs,
        /// As JSON lines
        #[arg(long)]
        json: bool,
    },
    /// Show spans below those that started them
    Tree {
        /// Begin with this span; without it, the whole session
        span: Option<String>,
        /// Another session than the last: its id, or the end of it
        #[arg(long, value_name = "ID", conflicts_with = "span")]
        session: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show everything about one span
    Show {
        /// Its id, the beginning or end of it, or `-` for the last
        #[arg(default_value = "-")]
        span: String,
        /// Its events as JSON lines, as they were written
        #[arg(long)]
        json: bool,
    },
    /// Count: commands, failures, refusals, hosts, what took longest
    Stats {
        /// How many of each
        #[arg(short = 'n', long, default_value_t = 10)]
        top: usize,
        #[command(flatten)]
        wanted: FilterArgs,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// List what the policy refused, or would have refused
    Violations {
        /// Only the newest so many
        #[arg(short = 'n', long)]
        last: Option<usize>,
        #[command(flatten)]
        wanted: FilterArgs,
        /// As JSON lines
        #[arg(long)]
        json: bool,
    },
    /// Write spans in a form that other programs read
    Export {
        #[command(flatten)]
        format: Format,
        #[command(flatten)]
        wanted: FilterArgs,
    },
    /// Write spans as a page for a browser: a timeline with filters and details
    View(ViewArgs),
    /// Remove the oldest files of the trace; the one being written stays
    Prune {
        /// Keep at most so much, such as 200M
        #[arg(long, value_name = "SIZE", value_parser = size)]
        keep: Option<u64>,
        /// Remove what is older, such as 30d
        #[arg(long, value_name = "TIME", value_parser = moment)]
        before: Option<SystemTime>,
        /// Remove the snapshots that hold files which the policy in use calls private
        #[arg(long)]
        private: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// Arguments of `trace view`.
#[derive(Debug, Args)]
pub struct ViewArgs {
    /// Where to write it, `-` for standard output [default: trace.html in Substrate's home]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Open it in a browser
    #[arg(long)]
    pub open: bool,
    /// How many spans, the newest
    #[arg(short = 'n', long, default_value_t = 2000)]
    pub last: usize,
    #[command(flatten)]
    pub wanted: FilterArgs,
}

/// Forms of `trace export`.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Format {
    /// A table with a head line (RFC 4180)
    #[arg(long)]
    pub csv: bool,
    /// OpenTelemetry's JSON for traces
    #[arg(long)]
    pub otlp_json: bool,
}

/// Conditions on spans.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Conditions")]
pub struct FilterArgs {
    /// The working directory is this one, or below it
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// The exit status: a number, or `failed`
    #[arg(long, value_name = "STATUS", value_parser = exit)]
    pub exit: Option<substrate_trace::read::Exit>,
    /// allow, isolate, ask, deny, would_deny, would_ask, or an answer to a question
    #[arg(long)]
    pub verdict: Option<String>,
    /// Who: `human`, or the name of an agent
    #[arg(long)]
    pub agent: Option<String>,
    /// Changed this file, or one below it; with * or ? a glob
    #[arg(long)]
    pub path: Option<PathBuf>,
    /// Reached, or tried to reach, this host; with * or ? a glob
    #[arg(long)]
    pub host: Option<String>,
    /// In this session: its id, or the end of it, or `-` for the last
    #[arg(long, value_name = "ID")]
    pub session: Option<String>,
    /// Not before: 90s, 30m, 2h, 7d, 2026-03-01, 2026-03-01T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub since: Option<SystemTime>,
    /// Not after
    #[arg(long, value_name = "TIME", value_parser = moment)]
    pub until: Option<SystemTime>,
}

fn exit(text: &str) -> Result<substrate_trace::read::Exit, String> {
    use substrate_trace::read::Exit;
    match text {
        "failed" => Ok(Exit::Failed),
        _ => text
            .parse()
            .map(Exit::Is)
            .map_err(|_| "give a number, or `failed`".to_owned()),
    }
}

/// A moment, or how long ago it was.
pub fn moment(text: &str) -> Result<SystemTime, String> {
    let midnight = || parse_time(&format!("{text}T00:00:00Z"));
    if let Some(at) = parse_time(text).or_else(midnight) {
        return Ok(at);
    }
    ago(text)
        .and_then(|ago| SystemTime::now().checked_sub(ago))
        .ok_or_else(|| "give 90s, 30m, 2h, 7d, 4w, a date, or a time in RFC 3339".to_owned())
}

fn ago(text: &str) -> Option<Duration> {
    let unit = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 604_800,
        _ => return None,
    };
    let count: u64 = text.get(..text.len() - 1)?.parse().ok()?;
    Some(Duration::from_secs(count.checked_mul(unit)?))
}

/// A number of bytes.
fn size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M')) => (&text[..at], 20),
        Some((at, 'G')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let count: Option<u64> = digits.parse().ok();
    count
        .and_then(|count| count.checked_mul(1 << shift))
        .ok_or_else(|| "give a number of bytes, with K, M or G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_moments_or_ages() {
        let at = moment("2026-03-01").unwrap();
        assert_eq!(moment("2026-03-01T01:00:00+01:00").unwrap(), at);
        let hour = moment("1h").unwrap().elapsed().unwrap().as_secs();
        assert!((3600..3700).contains(&hour), "{hour}");
        for bad in [
            "",
            "h",
            "1",
            "-1h",
            "1y",
            "99999999999999999999w",
            "yesterday",
            "é",
        ] {
            assert!(moment(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("2K", 2048),
            ("3M", 3 << 20),
            ("1G", 1 << 30),
        ] {
            assert_eq!(size(text), Ok(bytes));
        }
        for bad in ["", "M", "1.5G", "1T", "-1", "99999999999G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
