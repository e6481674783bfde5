//! Arguments of the subcommands; help, completions and manual come from the same declarations.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::LazyLock;

use crate::service_args::DaemonCommand;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::agent_args::AgentCommand;
use crate::replay_args::ReplayArgs;
use crate::trace_args::{FilterArgs, TraceArgs};

/// A shell that checks, contains and records what it runs.
#[derive(Debug, Parser)]
#[command(
    name = "substrate",
    version = named_version(),
    about = "A shell that checks, contains and records what it runs",
    override_usage = "substrate [-l] [-i] [-c LINE [NAME [ARG]...] | SCRIPT [ARG]...]\n       substrate COMMAND [ARG]...",
    after_help = "In shell mode Substrate takes the options of bash, and before them:
      --policy NAME|FILE    judge by this policy
      --replay SPAN         run a recorded command again and compare (--replay-verbose: say more)
      --record              keep what the command prints: its digest and its beginning
      --require-approval    ask before every command that is not auto-approved
      --json-errors         tell refusals as JSON on standard error
      --no-world            run without worlds (only where the policy observes)

Exit codes: the command's own; 126 denied; 127 not found; 125 Substrate itself failed;
128+n ended by signal n; 2 usage. Management commands: 0 yes, 1 no, 2 usage."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run one program without a shell in between
    Run(RunArgs),
    /// Check, show and explain policies
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Read what happened
    #[command(args_conflicts_with_subcommands = true)]
    Trace(TraceArgs),
    /// Run a recorded command again in a fresh world and say what differs
    Replay(ReplayArgs),
    /// Put guards in front of tools, for other shells
    #[command(subcommand)]
    Shim(ShimCommand),
    /// Look at, take over or throw away what isolated commands did
    #[command(subcommand)]
    World(WorldCommand),
    /// Show and trust the profiles of directories
    #[command(subcommand)]
    Profile(ProfileCommand),
    /// Show, give and revoke approvals
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// List what runs now under Substrate, in which world, for whom
    Ps {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// End what runs
    Stop {
        /// Its span, or the end of that, or the process as `ps` shows it
        #[arg(value_name = "SPAN", required_unless_present = "all")]
        spans: Vec<String>,
        /// Everything
        #[arg(long, conflicts_with = "spans")]
        all: bool,
    },
    /// Tell what may run here, under which policy, from which files
    Allowed {
        /// Under this policy instead of the one in use
        #[arg(long, value_name = "NAME|FILE")]
        policy: Option<OsString>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Set Substrate up
    Init(InitArgs),
    /// Remove what was set up
    Uninstall(UninstallArgs),
    /// Tell what is and is not enforced on this machine
    Doctor {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    Man {
        /// Write the pages of all commands into this directory
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    /// Print the policy in force and its mode, for a prompt
    Prompt {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// The service: worlds that stay warm between commands, and an API on a unix socket
    #[command(subcommand)]
    Daemon(DaemonCommand),
    /// Run AI agents in worlds, tell which are known, set up their clients
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Serve the Model Context Protocol over standard streams: run, explain, diff, apply, replay, trace
    Mcp,
    /// Judge what an agent's client is about to do; clients start this, with what they do on standard input
    Hook {
        /// The client: claude, codex, gemini, cursor, opencode, copilot
        client: String,
        /// The occasion, for clients that do not say it themselves
        event: Option<String>,
    },
}

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Judge by this policy
    #[arg(long, value_name = "NAME|FILE")]
    pub policy: Option<OsString>,
    /// Run it in a fresh world, whatever the policy says; what it writes is held back
    #[arg(long)]
    pub isolated: bool,
    /// With --isolated: let it write here too (held back like the rest)
    #[arg(long, value_name = "PATH", requires = "isolated")]
    pub write: Vec<PathBuf>,
    /// With --isolated: hide this from it too
    #[arg(long, value_name = "PATH", requires = "isolated")]
    pub hide: Vec<PathBuf>,
    /// With --isolated: no network at all, whatever the policy allows
    #[arg(long, requires = "isolated")]
    pub no_net: bool,
    /// Set a variable for it
    #[arg(long, value_name = "NAME=VALUE")]
    pub setenv: Vec<OsString>,
    /// Run it in this directory
    #[arg(long, value_name = "DIR")]
    pub chdir: Option<PathBuf>,
    /// Keep what it prints: its digest and its beginning
    #[arg(long)]
    pub record: bool,
    /// End it after so long, such as 90s, 30m or 2h; it exits with 124 then
    #[arg(long, value_name = "TIME", value_parser = crate::commands::when::span)]
    pub timeout: Option<std::time::Duration>,
    /// Ask before everything that is not auto-approved
    #[arg(long)]
    pub require_approval: bool,
    /// Tell refusals as JSON on standard error
    #[arg(long)]
    pub json_errors: bool,
    /// Run it without a world (only where the policy observes)
    #[arg(long, conflicts_with = "isolated")]
    pub no_world: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "ARGV")]
    pub argv: Vec<OsString>,
}

impl RunArgs {
    /// Understands a `run` without declaring all the other subcommands first, which takes longer
    /// than the rest of the start. What it does not understand is left to the whole parser, which
    /// has the right words for it.
    pub fn alone(arguments: &[OsString]) -> Option<Self> {
        let arguments = arguments.get(1..)?;
        if arguments.first()? != "run" {
            return None;
        }
        if let Some(plain) = Self::plain(&arguments[1..]) {
            return Some(plain);
        }
        let matches = Self::augment_args(clap::Command::new("run"))
            .try_get_matches_from(arguments)
            .ok()?;
        Self::from_arg_matches(&matches).ok()
    }

    /// The form that programs use: `--isolated`, with `--no-net` or without, or nothing at all.
    /// Declaring even one subcommand takes a tenth of a millisecond, which this need not wait for.
    fn plain(arguments: &[OsString]) -> Option<Self> {
        let end = arguments.iter().position(|argument| argument == "--")?;
        let (isolated, no_net) = match &arguments[..end] {
            [] => (false, false),
            [flag] if flag == "--isolated" => (true, false),
            [first, second] if first == "--isolated" && second == "--no-net" => (true, true),
            _ => return None,
        };
        let argv = arguments[end + 1..].to_vec();
        (!argv.is_empty()).then_some(Self {
            policy: None,
            isolated,
            write: Vec::new(),
            hide: Vec::new(),
            no_net,
            setenv: Vec::new(),
            chdir: None,
            record: false,
            timeout: None,
            require_approval: false,
            json_errors: false,
            no_world: false,
            argv,
        })
    }
}

/// Subcommands of `policy`.
#[derive(Debug, Subcommand)]
pub enum PolicyCommand {
    /// Check policy files; without one, the policy in use
    Validate {
        /// Files or names
        #[arg(value_name = "NAME|FILE")]
        policies: Vec<OsString>,
    },
    /// Show the policy in use, with everything resolved
    Show {
        /// Another policy
        #[arg(value_name = "NAME|FILE", conflicts_with = "policy")]
        name: Option<OsString>,
        /// The same
        #[arg(long, value_name = "NAME|FILE")]
        policy: Option<OsString>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// List the policies that exist
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Say what would become of a line, and why, without running it
    Explain(ExplainArgs),
    /// Score a file of commands with expected verdicts
    Test {
        /// JSON lines: {"command": …, "expect": "guard"|"pass"|"either"}
        file: PathBuf,
        /// Judge by this policy
        #[arg(long, value_name = "NAME|FILE")]
        policy: Option<OsString>,
        /// Totals only, no row
        #[arg(long)]
        totals: bool,
        /// Totals for every value of this field of the rows, too
        #[arg(long, value_name = "FIELD")]
        by: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Say which commands of the past another policy would decide differently
    Whatif {
        /// The other policy
        #[arg(value_name = "NAME|FILE")]
        policy: OsString,
        #[command(flatten)]
        wanted: FilterArgs,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Propose the smallest additions that would let pass what happened, as a diff to review
    Learn(LearnArgs),
    /// Write a new policy that extends another one
    Init {
        /// Its name
        name: String,
        /// What it extends
        #[arg(long, default_value = "default", value_name = "NAME")]
        from: String,
        /// Do it without a terminal
        #[arg(long)]
        yes: bool,
    },
    /// Make a policy the one in use
    Use {
        /// Its name
        name: String,
        /// Do it without a terminal
        #[arg(long)]
        yes: bool,
    },
    /// Show what differs between two policies; with one, between the policy in use and it
    Diff {
        /// The first, or only, policy
        #[arg(value_name = "NAME|FILE")]
        one: OsString,
        /// The second
        #[arg(value_name = "NAME|FILE")]
        other: Option<OsString>,
    },
    /// Open a policy in $EDITOR; it takes effect when it has no mistakes
    Edit {
        /// Its name; without one, the policy in use
        name: Option<String>,
    },
    /// Read the policy in use anew and say what is in force
    Reload,
    /// Print a JSON schema
    Schema {
        /// Which one
        #[arg(default_value = "policy")]
        of: SchemaName,
    },
}

/// Arguments of `policy learn`.
#[derive(Debug, clap::Args)]
pub struct LearnArgs {
    /// The policy to add to; without it, the one in use
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// The name of the policy that holds the additions
    #[arg(long, default_value = "learned")]
    pub name: String,
    /// Write that policy
    #[arg(long)]
    pub save: bool,
    /// Do it without a terminal
    #[arg(long, requires = "save")]
    pub yes: bool,
    #[command(flatten)]
    pub wanted: FilterArgs,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// The schemas there are.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum SchemaName {
    /// Policy files
    Policy,
    /// Tool models
    Tool,
    /// Trace events
    Span,
}

/// Arguments of `policy explain`.
#[derive(Debug, clap::Args)]
pub struct ExplainArgs {
    /// The line
    #[arg(required_unless_present_any = ["jsonl", "tool"], conflicts_with = "jsonl")]
    pub line: Option<OsString>,
    /// Not a line but a call of this tool: mcp:SERVER/TOOL, or CLIENT:TOOL such as claude:Write
    #[arg(long, value_name = "TOOL", conflicts_with_all = ["line", "jsonl"])]
    pub tool: Option<String>,
    /// With --tool: what the call does, as effect rules write it; without any, nobody knows
    #[arg(long, value_name = "EFFECT", requires = "tool")]
    pub effect: Vec<String>,
    /// Judge by this policy
    #[arg(long, value_name = "NAME|FILE")]
    pub policy: Option<OsString>,
    /// As if typed in this directory
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// Read {"command": …, "cwd": …} lines on standard input, write one answer a line
    #[arg(long)]
    pub jsonl: bool,
}

/// Subcommands of `shim`.
#[derive(Debug, Subcommand)]
pub enum ShimCommand {
    /// Make shims; without names, renew those there are, or make the preset `dev`
    Install {
        /// Names of tools
        #[arg(value_name = "TOOL")]
        tools: Vec<OsString>,
        /// The tools of a preset that are on this machine
        #[arg(long)]
        preset: Option<Preset>,
    },
    /// Remove shims
    Remove {
        /// Names of tools
        #[arg(value_name = "TOOL", required_unless_present = "all")]
        tools: Vec<OsString>,
        /// All of them
        #[arg(long)]
        all: bool,
    },
    /// List the shims
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Tell what each shim stands for and whether PATH leads to it
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the line for a shell's rc file, and how agents get the shims
    Init {
        /// The shell; without it, your login shell
        shell: Option<ShimShell>,
    },
}

/// Sets of tools.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Preset {
    /// Tools that fetch, publish, build or reach other machines
    Dev,
    /// Those, and tools that remove, overwrite or change rights
    Agent,
}

/// Shells with an rc file that we know.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum ShimShell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
    /// Any POSIX shell
    Sh,
}

/// Subcommands of `world`.
#[derive(Debug, Subcommand)]
pub enum WorldCommand {
    /// List what worlds have left
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Find out what this machine gives to worlds, by trying
    Doctor {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what an isolated command changed
    Diff {
        /// Its span or world: an id, a part of it, or `-` for the newest
        result: String,
        /// One line a file
        #[arg(long)]
        stat: bool,
        /// As a patch (the default)
        #[arg(long)]
        patch: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Open a shell in what an isolated command left; what is changed there is added to it
    Explore {
        /// Its span or world: an id, a part of it, or `-` for the newest
        result: String,
        /// Run this instead of a shell
        #[arg(last = true, value_name = "ARGV")]
        argv: Vec<OsString>,
    },
    /// Take over what an isolated command changed
    Apply {
        /// Its span or world: an id, a part of it, or `-` for the newest
        result: String,
        /// Only these files or directories
        paths: Vec<PathBuf>,
        /// Also what lies outside what the policy lets be written
        #[arg(long)]
        held: bool,
        /// Overwrite what changed on the host meanwhile
        #[arg(long)]
        force: bool,
        /// Only say what would happen
        #[arg(long)]
        dry_run: bool,
    },
    /// Bring back what the last apply changed
    Undo {
        /// Its span or world: an id, a part of it, or `-` for the newest; without one, what was applied last in this project
        result: Option<String>,
        /// Also where the host changed since
        #[arg(long)]
        force: bool,
    },
    /// Throw away what an isolated command changed
    Discard {
        /// Its span or world: an id, a part of it, or `-` for the newest
        result: String,
        /// Also where an interrupted apply can be neither finished nor undone; the host stays as it is
        #[arg(long)]
        force: bool,
    },
    /// Make the world of this project before it is needed
    Warm {
        /// For the commands of this agent
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
    },
    /// End the worlds that are kept for this project; the next command makes a new one
    Restart {
        /// Those of all projects
        #[arg(long)]
        all: bool,
    },
    /// Clear away what crashed or finished worlds have left
    Gc {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// Subcommands of `profile`.
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Show the profile of a directory and what it means there
    Show {
        /// The directory; without one, this one
        directory: Option<PathBuf>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// List the profiles that are trusted
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Trust a profile as it is now: at your own prompt it replaces the policy in use
    Trust {
        /// The directory; without one, this one
        directory: Option<PathBuf>,
        /// Only until this session ends
        #[arg(long)]
        session: bool,
    },
    /// Trust a profile no longer
    Revoke {
        /// The directory; without one, this one
        directory: Option<PathBuf>,
        /// All of them
        #[arg(long, conflicts_with = "directory")]
        all: bool,
    },
}

/// Subcommands of `approvals`.
#[derive(Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// List what is approved
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Take approvals back
    Revoke {
        /// Ids, or how they begin
        #[arg(value_name = "ID", required_unless_present = "all")]
        ids: Vec<String>,
        /// All of them, also those in a file that is damaged
        #[arg(long)]
        all: bool,
    },
    /// Approve a line before it is run
    Grant(GrantArgs),
    /// List the questions of clients of the service that wait for you
    Pending {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Answer one of them
    Answer {
        /// Its id, or how it ends; without one, the only one that waits
        question: Option<String>,
        /// Allow it this once
        #[arg(long, group = "choice")]
        once: bool,
        /// Allow it until it is revoked
        #[arg(long, group = "choice")]
        always: bool,
        /// Refuse it
        #[arg(long, group = "choice")]
        refuse: bool,
    },
}

/// Arguments of `approvals grant`.
#[derive(Debug, clap::Args)]
pub struct GrantArgs {
    /// The line
    pub line: OsString,
    /// The policy that asks
    #[arg(long, value_name = "NAME|FILE")]
    pub policy: Option<OsString>,
    /// As a session with --require-approval would ask
    #[arg(long)]
    pub require_approval: bool,
    /// As if typed in this directory
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Remember this pattern instead of the exact command
    #[arg(long)]
    pub pattern: Option<String>,
    /// How long: 90m, 12h, 30d, never; without it, 90 days
    #[arg(long, value_name = "TIME")]
    pub expires: Option<String>,
}

/// Arguments of `init`.
#[derive(Debug, clap::Args)]
pub struct InitArgs {
    /// The policy to start from
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Whether refusals are carried out
    #[arg(long)]
    pub mode: Option<ModeName>,
    /// Install shims
    #[arg(long, value_name = "PRESET", num_args = 0..=1, default_missing_value = "dev")]
    pub shims: Option<Preset>,
    /// Make Substrate your login shell (/etc/shells and chsh)
    #[arg(long)]
    pub login_shell: bool,
    /// Ask nothing; what is not given stays as the preset says
    #[arg(long)]
    pub yes: bool,
    /// Change nothing, say what would change
    #[arg(long)]
    pub dry_run: bool,
}

/// The modes of a policy.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum ModeName {
    /// Nothing is refused, everything is recorded
    Observe,
    /// Refusals are carried out
    Enforce,
}

impl From<ModeName> for substrate_trace::Mode {
    fn from(mode: ModeName) -> Self {
        match mode {
            ModeName::Observe => Self::Observe,
            ModeName::Enforce => Self::Enforce,
        }
    }
}

/// Arguments of `uninstall`.
#[derive(Debug, clap::Args)]
pub struct UninstallArgs {
    /// Remove policies, keys, the trace and results of isolated commands as well
    #[arg(long)]
    pub purge: bool,
    /// Ask nothing
    #[arg(long)]
    pub yes: bool,
    /// Remove nothing, say what would go
    #[arg(long)]
    pub dry_run: bool,
}

/// The name of the subcommand that only shims use.
pub const SHIM_EXEC: &str = "shim-exec";

/// Whether the first argument is a subcommand's name; everything else is for a shell.
pub fn is_subcommand(arguments: &[OsString]) -> bool {
    let Some(first) = arguments.get(1).and_then(|first| first.to_str()) else {
        return false;
    };
    first == SHIM_EXEC || is_name(first.as_ref())
}

/// Whether a word is the name of a subcommand.
pub fn is_name(word: &OsStr) -> bool {
    word == "help" || NAMES.iter().any(|name| word == *name)
}

/// Our own options that may stand in front of a subcommand's name, and whether a value follows.
const IN_FRONT: [(&str, bool); 5] = [
    ("--policy", true),
    ("--record", false),
    ("--require-approval", false),
    ("--no-world", false),
    ("--json-errors", false),
];

/// Names with further names below them.
const PARENTS: [&str; 8] = [
    "policy",
    "trace",
    "shim",
    "world",
    "profile",
    "approvals",
    "agent",
    "daemon",
];

/// The same arguments with what stands in front of a subcommand's name put where the subcommand reads it:
/// `--policy x policy explain LINE` is `policy explain --policy x LINE`. A subcommand that has no such
/// option says so.
pub fn in_order(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let front = in_front(arguments.get(1..)?);
    let mut rest = arguments.get(1 + front..)?;
    let name = rest.first().filter(|name| is_name(name))?;
    // Most names are not looked at any further, because that takes longer than the rest of the start.
    let between = PARENTS.iter().any(|parent| name == *parent) && in_front(&rest[1..]) > 0;
    if front == 0 && !between {
        return None;
    }
    let mut options = arguments[1..=front].to_vec();
    let mut ordered = vec![arguments[0].clone()];
    let root = Cli::command();
    let mut level = &root;
    while let Some(below) = rest.first().and_then(|name| level.find_subcommand(name)) {
        ordered.push(rest[0].clone());
        rest = &rest[1..];
        level = below;
        let between = match level.has_subcommands() {
            true => in_front(rest),
            false => 0,
        };
        options.extend_from_slice(&rest[..between]);
        rest = &rest[between..];
    }
    ordered.append(&mut options);
    ordered.extend_from_slice(rest);
    Some(ordered)
}

/// How many words at the beginning are our own options.
fn in_front(words: &[OsString]) -> usize {
    let mut at = 0;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        let name = word.split('=').next().unwrap_or(word);
        let Some((_, valued)) = IN_FRONT.iter().find(|(known, _)| *known == name) else {
            break;
        };
        at += if *valued && name == word { 2 } else { 1 };
    }
    at.min(words.len())
}

/// The policy that a Substrate process was told to judge by, from its arguments.
pub fn policy_of(arguments: &[OsString]) -> Option<OsString> {
    let ordered = in_order(arguments);
    let arguments = ordered.as_deref().unwrap_or(arguments);
    if !is_subcommand(arguments) {
        return crate::shell_args::parse(arguments).ok()?.policy;
    }
    let mut words = arguments.iter().skip(2).take_while(|word| *word != "--");
    while let Some(word) = words.next() {
        if word == "--policy" {
            return words.next().cloned();
        }
        if let Some(value) = word.as_bytes().strip_prefix(b"--policy=") {
            return Some(OsStr::from_bytes(value).to_owned());
        }
    }
    None
}

/// Kept apart from clap, because the way to `-c` must not build a parser. A test compares.
const NAMES: [&str; 21] = [
    "run",
    "policy",
    "trace",
    "replay",
    "shim",
    "world",
    "profile",
    "approvals",
    "ps",
    "stop",
    "allowed",
    "init",
    "uninstall",
    "doctor",
    "completions",
    "man",
    "prompt",
    "daemon",
    "agent",
    "mcp",
    "hook",
];

/// The version, and the commit that it was built from where `scripts/build` has said so.
fn named_version() -> &'static str {
    static NAMED: LazyLock<String> = LazyLock::new(|| {
        let version = env!("CARGO_PKG_VERSION");
        match option_env!("SUBSTRATE_COMMIT").filter(|commit| !commit.is_empty()) {
            Some(commit) => format!("{version} ({commit})"),
            None => version.to_owned(),
        }
    });
    &NAMED
}

/// The help text.
pub fn help() -> String {
    Cli::command().render_help().to_string()
}

/// Name and version.
pub fn version() -> String {
    Cli::command().render_version()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declarations_are_sound() {
        Cli::command().debug_assert();
        let declared: Vec<String> = Cli::command()
            .get_subcommands()
            .map(|sub| sub.get_name().to_owned())
            .collect();
        assert_eq!(declared, NAMES);
        let parents: Vec<String> = Cli::command()
            .get_subcommands()
            .filter(|sub| sub.has_subcommands())
            .map(|sub| sub.get_name().to_owned())
            .collect();
        let mut known = PARENTS.map(str::to_owned);
        known.sort();
        let mut parents = parents;
        parents.sort();
        assert_eq!(parents, known);
    }

    #[test]
    fn options_in_front_of_a_name_go_where_they_are_read() {
        let words = |line: &str| -> Vec<OsString> {
            line.split(' ')
                .filter(|word| !word.is_empty())
                .map(OsString::from)
                .collect()
        };
        for (given, ordered) in [
            (
                "s --policy x policy explain l",
                "s policy explain --policy x l",
            ),
            ("s --policy=x policy show", "s policy show --policy=x"),
            (
                "s policy --policy x explain l",
                "s policy explain --policy x l",
            ),
            (
                "s --policy x run --isolated -- policy",
                "s run --policy x --isolated -- policy",
            ),
            (
                "s --record --policy x run -- t",
                "s run --record --policy x -- t",
            ),
            (
                "s --no-world policy --policy x explain l",
                "s policy explain --no-world --policy x l",
            ),
        ] {
            assert_eq!(in_order(&words(given)).unwrap(), words(ordered), "{given}");
        }
        for left in [
            "s policy explain --policy x l",
            "s --policy policy",
            "s --policy x ./policy",
            "s --policy x -c policy",
            "s --polic x policy",
            "s --policy",
            "s",
        ] {
            assert_eq!(in_order(&words(left)), None, "{left}");
        }
        for (given, policy) in [
            ("s run --policy x -- t", Some("x")),
            ("s --policy=x run -- t --policy y", Some("x")),
            ("s run -- t --policy y", None),
            ("s --policy x -c l", Some("x")),
            ("s -c l --policy y", None),
        ] {
            let found = policy_of(&words(given));
            assert_eq!(found.as_deref(), policy.map(OsStr::new), "{given}");
        }
    }

    #[test]
    fn the_plain_form_is_what_the_parser_makes_of_it() {
        let words = |line: &str| -> Vec<OsString> { line.split(' ').map(OsString::from).collect() };
        for line in [
            "-- true",
            "--isolated -- sh -c x",
            "--isolated --no-net -- true",
            "-- -- a",
            "-- run --isolated",
        ] {
            let plain = RunArgs::plain(&words(line)).unwrap();
            let full = [words("substrate run"), words(line)].concat();
            let Command::Run(parsed) = Cli::parse_from(full).command else {
                panic!("{line} is not a run");
            };
            assert_eq!(format!("{plain:?}"), format!("{parsed:?}"), "{line}");
        }
        for line in [
            "--",
            "true",
            "--isolated --isolated -- true",
            "--no-net -- true",
            "--policy -- true",
            "--help -- true",
        ] {
            assert!(RunArgs::plain(&words(line)).is_none(), "{line}");
        }
    }
}
