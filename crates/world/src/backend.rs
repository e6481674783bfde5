//! What a world can do, whatever it is made of.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use substrate_policy::terms::WorldSpec;
use substrate_text::wire;
use substrate_trace::{Enforced, FsDiff, NetUse, SpanId, WorldId};

use crate::error::{Words, WorldError};
use crate::progress::OnProgress;

/// Something that makes worlds and runs commands in them. Linux namespaces are one; a virtual
/// machine or another host can be others.
pub trait WorldBackend: Send + Sync {
    /// The world of a session: the one that lives, or a new one. Its project is writable. What it holds
    /// back is listed under the span, line and directory of the job.
    fn ensure_session(
        &self,
        spec: &WorldSpec,
        job: Option<ExecJob<'_>>,
    ) -> Result<WorldHandle, WorldError>;

    /// A new world for a session on top of what an earlier one of its worlds, which has ended, held back.
    fn resume_session(
        &self,
        spec: &WorldSpec,
        job: ExecJob<'_>,
        earlier: &Held,
    ) -> Result<WorldHandle, WorldError>;

    /// Runs a command to its end, attending to something else meanwhile. Descriptors that are terminals
    /// are relayed. What it wrote is whole then, but its world may still be there until
    /// [`WorldBackend::see_off`]. `begin` is called before the command starts, as a rule while its world
    /// is being made, and not always only once; nothing starts when it says no.
    fn exec_beside(
        &self,
        place: ExecPlace<'_>,
        job: ExecJob<'_>,
        beside: Option<&mut Beside<'_>>,
        begin: &mut dyn FnMut() -> bool,
    ) -> Result<ExecResult, WorldError>;

    /// Runs a command to its end.
    fn exec(&self, place: ExecPlace<'_>, job: ExecJob<'_>) -> Result<ExecResult, WorldError> {
        let result = self.exec_beside(place, job, None, &mut || true);
        self.see_off();
        result
    }

    /// Starts a command in a session's world without waiting for it: its terminal, if it has one, is
    /// the caller's to relay.
    fn spawn(&self, world: WorldHandle, job: ExecJob<'_>) -> Result<Box<dyn Running>, WorldError>;

    /// What really holds the world of a session.
    fn enforced(&self, world: WorldHandle) -> Result<Enforced, WorldError>;

    /// Whether the world of a session is still there.
    fn is_alive(&self, world: WorldHandle) -> bool;

    /// Whether nothing runs in the world of a session.
    fn is_empty(&self, world: WorldHandle) -> bool;

    /// Waits until nothing runs in the world of a session, but no longer than this.
    fn drain(&self, world: WorldHandle, patience: Duration);

    /// What the world of a session used since it was made.
    fn used(&self, world: WorldHandle) -> Result<Used, WorldError>;

    /// What a world that has ended changed, as far as it was held back. The first time also records
    /// against which state of the host, so it is asked for as soon as the command is done. With `hash`,
    /// short diffs have a hash too.
    fn fs_diff(
        &self,
        held: &Held,
        hash: bool,
        progress: OnProgress<'_>,
    ) -> Result<FsDiff, WorldError>;

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
/// terminal as it was before. It says whether to go on with that.
pub struct Beside<'a> {
    /// What is waited for.
    pub fd: BorrowedFd<'a>,
    /// What is done then.
    pub call: &'a mut dyn FnMut() -> bool,
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

    /// Sends a signal to its process group.
    fn signal(&self, signal: i32) -> io::Result<()>;

    /// Once it has ended: has what it wrote arrive where its streams lead, and others read on where it stopped.
    fn settle(&mut self);
}

/// What became of a running command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum News {
    /// This signal stopped it.
    Stopped(i32),
    /// It ended.
    Ended(Status),
    /// It went with its world.
    Lost,
}

/// What a world used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// What was exchanged with whom.
    pub net: Vec<NetUse>,
    /// `tcp:host:port` of everything that was reached.
    pub scopes: Vec<String>,
    /// What could not be enforced as asked.
    pub degraded: Vec<String>,
    /// How often limits were run into, by name.
    pub limits: Vec<(Words, u64)>,
    /// What was made under protected names.
    #[serde(default)]
    pub put_aside: Vec<PutAside>,
}

/// Something that was made in a session's project under a name that the policy protects, and is there no more.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PutAside {
    /// Its name.
    #[serde(with = "wire")]
    pub path: PathBuf,
    /// The name that it has now; none where it was removed.
    #[serde(with = "wire::optional")]
    pub now: Option<PathBuf>,
    /// Why it is still there, if it is.
    pub error: Option<String>,
}

impl Used {
    /// What was used since an earlier report.
    pub fn since(&self, earlier: &Used) -> Used {
        let fresh = |used: &NetUse| {
            let same = |old: &&NetUse| (&old.host, old.port) == (&used.host, used.port);
            let known = earlier.net.iter().find(same);
            let mut fresh = used.clone();
            if let Some(old) = known {
                fresh.tx = used.tx.saturating_sub(old.tx);
                fresh.rx = used.rx.saturating_sub(old.rx);
                fresh.refused = used.refused.saturating_sub(old.refused);
            }
            (fresh.tx + fresh.rx + fresh.refused > 0 || known.is_none()).then_some(fresh)
        };
        let net: Vec<NetUse> = self.net.iter().filter_map(fresh).collect();
        let reached = |scope: &&String| {
            let mut used = net.iter().filter(|used| used.tx + used.rx > 0);
            used.any(|used| **scope == format!("tcp:{}:{}", used.host, used.port))
        };
        let run_into = |(name, now): &&(Words, u64)| {
            let before = earlier.limits.iter().find(|(known, _)| known == name);
            before.map_or(0, |(_, count)| *count) < *now
        };
        let new = |text: &&String| !earlier.degraded.contains(text);
        let not_told = |aside: &&PutAside| !earlier.put_aside.contains(aside);
        Used {
            scopes: self.scopes.iter().filter(reached).cloned().collect(),
            degraded: self.degraded.iter().filter(new).cloned().collect(),
            limits: self.limits.iter().filter(run_into).cloned().collect(),
            put_aside: self.put_aside.iter().filter(not_told).cloned().collect(),
            net,
        }
    }
}

/// Writes of a world that were held back and wait for a decision, below Substrate's home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The world that wrote first.
    pub world: WorldId,
    /// The home below which they wait.
    #[serde(with = "wire")]
    pub home: PathBuf,
}

/// A world that lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WorldHandle {
    /// Its id.
    pub id: WorldId,
}

/// Where a command runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum ExecPlace<'a> {
    /// In a fresh world that ends with it; its writes are held back.
    Fresh(Cow<'a, WorldSpec>),
    /// In the world of a session that is this one command.
    Once(Cow<'a, WorldSpec>),
    /// In a fresh world on top of what an earlier one left, which waits under this id; its writes are
    /// added to that.
    Again(Cow<'a, WorldSpec>, Cow<'a, str>),
    /// In the world of a session.
    Session(WorldHandle),
}

/// A command for a world: what can be written down of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// The file to run; a name without a slash is looked up on the `PATH` of `env`.
    #[serde(with = "wire")]
    pub program: OsString,
    /// Its arguments, the zeroth included.
    #[serde(with = "wire::list")]
    pub argv: Vec<OsString>,
    /// Its whole environment.
    #[serde(with = "wire::pairs")]
    pub env: Vec<(OsString, OsString)>,
    /// Where it starts.
    #[serde(with = "wire")]
    pub cwd: PathBuf,
    /// The mask for new files; `None` keeps ours.
    pub umask: Option<u32>,
    /// The span that it belongs to.
    pub span: Option<SpanId>,
    /// The line as written, for the list of pending results.
    #[serde(with = "wire")]
    pub line: OsString,
    /// Whoever judges program starts in the world judges this one too; else it was judged before.
    #[serde(default)]
    pub judged: bool,
    /// By this they know it, where several commands run in one world.
    #[serde(default)]
    pub tag: u32,
}

/// The streams of a command, which are descriptors of this process: a world elsewhere carries their bytes.
#[derive(Debug, Default)]
pub struct ExecStreams {
    /// The standard ones.
    pub stdio: Stdio,
    /// Further descriptors and the numbers they get; one of 0, 1 and 2 among them takes the place
    /// of the terminal there.
    pub fds: Vec<(i32, OwnedFd)>,
    /// A further number that the command's terminal gets.
    pub terminal_at: Option<i32>,
    /// Gets every byte that a relayed terminal shows.
    pub tap: Option<Tap>,
    /// Gets the master of [`Stdio::Terminal`] as soon as the command runs.
    pub master: Option<Master>,
    /// Readable once nobody waits for the command any more: then it is ended.
    pub abandoned: Option<OwnedFd>,
}

impl From<Stdio> for ExecStreams {
    fn from(stdio: Stdio) -> ExecStreams {
        ExecStreams {
            stdio,
            ..ExecStreams::default()
        }
    }
}

/// A command with its streams.
#[derive(Debug, Clone, Copy)]
pub struct ExecJob<'a> {
    /// What is to run.
    pub request: &'a ExecRequest,
    /// What it reads and writes.
    pub streams: &'a ExecStreams,
}

impl<'a> ExecPlace<'a> {
    /// In a fresh world on these terms.
    pub fn fresh(spec: &'a WorldSpec) -> ExecPlace<'a> {
        ExecPlace::Fresh(Cow::Borrowed(spec))
    }

    /// In the world of a session that is this one command.
    pub fn once(spec: &'a WorldSpec) -> ExecPlace<'a> {
        ExecPlace::Once(Cow::Borrowed(spec))
    }

    /// In a fresh world on top of what an earlier one left.
    pub fn again(spec: &'a WorldSpec, earlier: &'a str) -> ExecPlace<'a> {
        ExecPlace::Again(Cow::Borrowed(spec), Cow::Borrowed(earlier))
    }
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

/// Takes the master of a command's terminal.
pub struct Master(pub Box<dyn Fn(OwnedFd) + Send + Sync>);

impl std::fmt::Debug for Master {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Master")
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Serialize, Deserialize)]
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
    pub limits_reached: Vec<Words>,
    /// What was made under protected names since the world began.
    #[serde(default)]
    pub put_aside: Vec<PutAside>,
    /// Its writes, where they were held back.
    pub held: Option<Held>,
}

/// What changed terms mean for a world that lives.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PolicyChange {
    /// Holds already.
    pub applied: Vec<Words>,
    /// Holds for the next world only.
    pub needs_restart: Vec<Words>,
    /// Something of that got stricter, so nothing should run here any more.
    pub tightened: bool,
}
