//! What a world can do, whatever it is made of.

use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use substrate_policy::terms::WorldSpec;
use substrate_trace::{Enforced, FsDiff, Level, NetUse, SpanId, WorldId};
use thiserror::Error;

/// Something that makes worlds and runs commands in them. Linux namespaces are one; a virtual
/// machine or another host can be others.
pub trait WorldBackend: Send + Sync {
    /// The world of a session: the one that lives, or a new one. Its project is writable. What it holds
    /// back is listed under the span, line and directory of the request.
    fn ensure_session(
        &self,
        spec: &WorldSpec,
        request: Option<&ExecRequest>,
    ) -> Result<WorldHandle, WorldError>;

    /// Runs a command to its end, attending to something else meanwhile. Descriptors that are terminals
    /// are relayed. What it wrote is whole then, but its world may still be there until
    /// [`WorldBackend::see_off`]. `begin` is called before the command starts, as a rule while its world
    /// is being made, and not always only once; nothing starts when it says no.
    fn exec_beside(
        &self,
        place: Place<'_>,
        request: &ExecRequest,
        beside: Option<&mut Beside<'_>>,
        begin: &mut dyn FnMut() -> bool,
    ) -> Result<ExecResult, WorldError>;

    /// Runs a command to its end.
    fn exec(&self, place: Place<'_>, request: &ExecRequest) -> Result<ExecResult, WorldError> {
        let result = self.exec_beside(place, request, None, &mut || true);
        self.see_off();
        result
    }

    /// Starts a command in a session's world without waiting for it: its terminal, if it has one, is
    /// the caller's to relay.
    fn spawn(
        &self,
        world: WorldHandle,
        request: &ExecRequest,
    ) -> Result<Box<dyn Running>, WorldError>;

    /// What really holds the world of a session.
    fn enforced(&self, world: WorldHandle) -> Result<Enforced, WorldError>;

    /// Whether the world of a session is still there.
    fn is_alive(&self, world: WorldHandle) -> bool;

    /// Waits until nothing runs in the world of a session, but no longer than this.
    fn drain(&self, world: WorldHandle, patience: Duration);

    /// What the world of a session used since it was made.
    fn used(&self, world: WorldHandle) -> Result<Used, WorldError>;

    /// What a world that has ended changed, as far as it was held back.
    fn fs_diff(&self, world: WorldHandle) -> Result<FsDiff, WorldError>;

    /// Brings changed terms to a world that lives.
    fn apply_policy(
        &self,
        world: WorldHandle,
        spec: &WorldSpec,
    ) -> Result<PolicyChange, WorldError>;

    /// Ends a session's world and everything in it; what it held back waits.
    fn end(&self, world: WorldHandle) -> Result<Option<Held>, WorldError>;

    /// Waits until worlds whose commands have ended are gone.
    fn see_off(&self);
}

/// Something else to attend to while a command runs: when `fd` can be read, `call` is made with our
/// terminal as it was before.
pub struct Beside<'a> {
    /// What is waited for.
    pub fd: BorrowedFd<'a>,
    /// What is done then.
    pub call: &'a mut dyn FnMut(),
}

/// A command that was started in a session's world and that nobody waits for yet.
pub trait Running: Send {
    /// Its process id, as the host numbers it.
    fn pid(&self) -> i32;

    /// The master of its terminal, once.
    fn take_terminal(&mut self) -> Option<OwnedFd>;

    /// Can be read when there is news.
    fn events(&self) -> BorrowedFd<'_>;

    /// Waits for news.
    fn next(&mut self) -> io::Result<News>;
}

/// What became of a running command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// This signal stopped it.
    Stopped(i32),
    /// It ended.
    Ended(Status),
    /// It went with its world.
    Lost,
}

/// What a world used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Used {
    /// What was exchanged with whom.
    pub net: Vec<NetUse>,
    /// `tcp:host:port` of everything that was reached.
    pub scopes: Vec<String>,
    /// What could not be enforced as asked.
    pub degraded: Vec<String>,
    /// How often limits were run into, by name.
    pub limits: Vec<(&'static str, u64)>,
}

/// Writes of a world that were held back and wait for a decision, below Substrate's home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Held {
    /// The world that wrote.
    pub world: WorldId,
}

/// A world that lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorldHandle {
    /// Its id.
    pub id: WorldId,
}

/// Where a command runs.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// In a fresh world that ends with it; its writes are held back.
    Fresh(&'a WorldSpec),
    /// In the world of a session that is this one command.
    Once(&'a WorldSpec),
    /// In a fresh world on top of what an earlier one left, which waits under this id; its writes are
    /// added to that.
    Again(&'a WorldSpec, &'a str),
    /// In the world of a session.
    Session(WorldHandle),
}

/// A command for a world.
#[derive(Debug, Default)]
pub struct ExecRequest {
    /// The file to run; a name without a slash is looked up on the `PATH` of `env`.
    pub program: OsString,
    /// Its arguments, the zeroth included.
    pub argv: Vec<OsString>,
    /// Its whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where it starts.
    pub cwd: PathBuf,
    /// The mask for new files; `None` keeps ours.
    pub umask: Option<u32>,
    /// Its standard streams.
    pub stdio: Stdio,
    /// Further descriptors and the numbers they get; one of 0, 1 and 2 among them takes the place
    /// of the terminal there.
    pub fds: Vec<(i32, OwnedFd)>,
    /// A further number that the command's terminal gets.
    pub terminal_at: Option<i32>,
    /// The span that it belongs to.
    pub span: Option<SpanId>,
    /// The line as written, for the list of pending results.
    pub line: OsString,
    /// Gets every byte that a relayed terminal shows.
    pub tap: Option<Tap>,
}

/// Gets bytes as they pass.
pub type Listener = dyn Fn(&[u8]) + Send + Sync;

/// Listens to a relayed terminal.
pub struct Tap(pub Box<Listener>);

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tap")
    }
}

impl ExecRequest {
    /// A line for a shell.
    pub fn shell(shell: impl Into<OsString>, line: impl Into<OsString>) -> ExecRequest {
        let (shell, line) = (shell.into(), line.into());
        let name = PathBuf::from(&shell)
            .file_name()
            .map_or_else(|| shell.clone(), ToOwned::to_owned);
        ExecRequest {
            argv: vec![name, "-c".into(), line.clone()],
            program: shell,
            line,
            ..ExecRequest::default()
        }
    }
}

/// The standard streams of a command.
#[derive(Debug, Default)]
pub enum Stdio {
    /// Those of this process. Each that is a terminal becomes one terminal of the world, whose
    /// bytes are relayed; the others are passed as they are.
    #[default]
    Inherit,
    /// These, passed as they are.
    Given([OwnedFd; 3]),
    /// A terminal of the world of this many rows and columns, whose master the caller gets.
    Terminal(u16, u16),
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It exited.
    Exited(i32),
    /// A signal ended it.
    Signaled(i32),
}

impl Status {
    /// The number a shell shows: 128+n for a signal.
    pub fn code(self) -> i32 {
        match self {
            Status::Exited(code) => code,
            Status::Signaled(signal) => 128 + signal,
        }
    }
}

/// What came of a command.
#[derive(Debug, Clone)]
pub struct ExecResult {
    /// Where it ran.
    pub world: WorldId,
    /// How it ended.
    pub status: Status,
    /// What really held it.
    pub enforced: Enforced,
    /// What it used, as far as the world knows by itself: connections.
    pub scopes_used: Vec<String>,
    /// What it exchanged with whom.
    pub net: Vec<NetUse>,
    /// Limits that it ran into: `memory`, `pids`, `time`.
    pub limits_reached: Vec<&'static str>,
    /// Its writes, where they were held back.
    pub held: Option<Held>,
}

/// What changed terms mean for a world that lives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PolicyChange {
    /// Holds already.
    pub applied: Vec<&'static str>,
    /// Holds for the next world only.
    pub needs_restart: Vec<&'static str>,
    /// Something of that got stricter, so nothing should run here any more.
    pub tightened: bool,
}

/// Why a world or a command in it did not come about.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorldError {
    /// Namespaces are not to be had.
    #[error("cannot make namespaces: {0}; `substrate world doctor` tells why and what to do")]
    Namespaces(#[source] io::Error),
    /// The id maps were refused.
    #[error("cannot write the id maps of the world: {0}; `substrate world doctor` tells more")]
    Maps(#[source] io::Error),
    /// A step inside the world failed.
    #[error("making the world: cannot {doing}{}: {source}", named(path))]
    Step {
        /// What was being done.
        doing: &'static str,
        /// With which path.
        path: Option<PathBuf>,
        /// Why it failed.
        source: io::Error,
    },
    /// The network of the world could not be prepared.
    #[error("making the world's network: {0}")]
    Network(String),
    /// The first process of the world ended without a word.
    #[error("the world ended while it was being made; memory or process limits may be too low")]
    Died,
    /// Something on this side failed.
    #[error("cannot {0}: {1}")]
    Own(&'static str, #[source] io::Error),
    /// What a world left, or the place for it.
    #[error(transparent)]
    Held(Box<dyn std::error::Error + Send + Sync>),
    /// A copy that stands in for an overlay.
    #[error("cannot copy {}, which no overlay can cover ({reason}): {source}", path.display())]
    Copy {
        /// What was copied.
        path: PathBuf,
        /// Why no overlay serves.
        reason: String,
        /// Why it failed.
        source: io::Error,
    },
    /// What an earlier world left cannot be put in place as it was.
    #[error("what was written below {} cannot be opened again: {reason}", path.display())]
    Again {
        /// The place it was written to.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A control group.
    #[error("cannot limit the world through {}: {source}", path.display())]
    Group {
        /// The file or directory.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The policy asks for more than this machine gives.
    #[error(
        "the policy asks for a world, and this machine gives level `{level}`: {reason}; \
         `substrate world doctor` tells what to do"
    )]
    TooWeak {
        /// What it gives.
        level: Level,
        /// Why no more.
        reason: String,
    },
    /// A setting of the policy cannot be held as it says.
    #[error("the policy's `{setting}` cannot be held: {} {reason}", path.display())]
    NotHeld {
        /// The setting.
        setting: &'static str,
        /// The path that it is about.
        path: PathBuf,
        /// Why it cannot, and what to do.
        reason: String,
    },
    /// Whoever asked for the command does not want it to begin.
    #[error("the command was called off before it began")]
    CalledOff,
    /// A standard stream would lead out of the world.
    #[error("descriptor {0} is a directory, which would lead out of the world")]
    OpenDirectory(i32),
    /// A standard stream could be sent out of the world with.
    #[error(
        "descriptor {0} is a unix datagram socket, by which sockets of the host could be reached"
    )]
    OpenDatagrams(i32),
    /// No such program.
    #[error("{}: not found", .0.display())]
    NotFound(PathBuf),
    /// The command did not start.
    #[error("cannot start {} in the world ({doing}): {source}", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// How far it came.
        doing: &'static str,
        /// Why not further.
        source: io::Error,
    },
    /// The working directory is not there in the world.
    #[error("{}: {source} in the world; `fs.read`, `fs.hide` or a private /tmp may be why", path.display())]
    Cwd {
        /// The directory.
        path: PathBuf,
        /// Why it cannot be entered.
        source: io::Error,
    },
    /// Its changes are not complete yet.
    #[error("the world {0} still runs; its changes are known when it has ended")]
    Running(WorldId),
    /// The world is gone.
    #[error("the world {0} is not there any more")]
    Gone(WorldId),
}

fn named(path: &Option<PathBuf>) -> String {
    path.as_ref()
        .map_or_else(String::new, |path| format!(" {}", path.display()))
}
