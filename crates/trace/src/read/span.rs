//! One event as read back: every field that may be missing is optional, what is not
//! known is passed over.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Deserialize;
use serde::de::Deserializer;

use crate::{Enforced, FsDiff, NetAttempt, NetUse, RuleRef, Tokens};
use substrate_text::time::parse;
use substrate_text::wire::{self, Bytes};

/// An event and the line it came from.
#[derive(Debug, Clone)]
pub struct Record {
    /// The line without its newline, byte for byte; [`crate::Key::verify`] wants it so.
    pub raw: Vec<u8>,
    /// What it says.
    pub span: Span,
}

impl Record {
    /// Understands a line; `None` if it is not an event.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let span = serde_json::from_slice(line).ok()?;
        Some(Self {
            raw: line.to_vec(),
            span,
        })
    }

    /// What a replay needs; understood only when asked for, because it is a third of
    /// the line and searches have no use for it.
    pub fn replay_context(&self) -> Option<RecordedReplay> {
        #[derive(Deserialize)]
        struct Only {
            replay_context: Option<RecordedReplay>,
        }
        serde_json::from_slice::<Only>(&self.raw)
            .ok()?
            .replay_context
    }
}

/// The fields of an event. They are what was recorded, not checked: a line may come
/// from an older or newer version, or from someone else.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct Span {
    /// Version of the format.
    #[serde(default)]
    pub v: u32,
    /// When, in RFC 3339.
    pub ts: String,
    /// What kind of event.
    pub event_type: String,
    /// The session.
    #[serde(default, deserialize_with = "or_default")]
    pub session_id: String,
    /// The span.
    #[serde(default, deserialize_with = "or_default")]
    pub span_id: String,
    /// The span that encloses it.
    #[serde(default)]
    pub parent_span: Option<String>,
    /// Who wrote it.
    #[serde(default, deserialize_with = "or_default")]
    pub component: String,
    /// The process.
    #[serde(default)]
    pub pid: Option<u32>,
    /// The world.
    #[serde(default)]
    pub world_id: Option<String>,
    /// The policy.
    #[serde(default)]
    pub policy_id: Option<String>,
    /// The profile that chose it.
    #[serde(default)]
    pub profile: Option<String>,
    /// `observe` or `enforce`.
    #[serde(default)]
    pub mode: Option<String>,
    /// The actor.
    #[serde(default)]
    pub agent_id: Option<String>,
    /// The working directory.
    #[serde(default, deserialize_with = "wire::optional::deserialize")]
    pub cwd: Option<PathBuf>,
    /// The command as a line.
    #[serde(default, deserialize_with = "wire::optional::deserialize")]
    pub cmd: Option<OsString>,
    /// The command as words.
    #[serde(default, deserialize_with = "optional_list")]
    pub argv: Option<Vec<OsString>>,
    /// Secrets were taken out; it cannot be run again.
    #[serde(default)]
    pub redacted: bool,
    /// The command was too long to be kept; it cannot be run again.
    #[serde(default)]
    pub shortened: bool,
    /// What the policy answered.
    #[serde(default)]
    pub verdict: Option<String>,
    /// What became of it, or what a person answered.
    #[serde(default)]
    pub outcome: Option<String>,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// The rule that decided.
    #[serde(default)]
    pub rule: Option<RuleRef>,
    /// Where it ran.
    #[serde(default)]
    pub place: Option<String>,
    /// What could not be given.
    #[serde(default, deserialize_with = "or_default")]
    pub degraded: Vec<String>,
    /// The exit status.
    #[serde(default)]
    pub exit: Option<i32>,
    /// The signal that ended it.
    #[serde(default)]
    pub signal: Option<i32>,
    /// How long it ran.
    #[serde(default)]
    pub duration_ms: Option<f64>,
    /// Time on the processors.
    #[serde(default)]
    pub cpu_ms: Option<f64>,
    /// Bytes that its largest process held at most.
    #[serde(default)]
    pub memory_peak: Option<u64>,
    /// What held it.
    #[serde(default)]
    pub enforced: Option<Enforced>,
    /// What it used.
    #[serde(default, deserialize_with = "list")]
    pub scopes_used: Vec<OsString>,
    /// What it exchanged with whom.
    #[serde(default, deserialize_with = "or_default")]
    pub net: Vec<NetUse>,
    /// What it changed.
    #[serde(default)]
    pub fs_diff: Option<FsDiff>,
    /// What it printed.
    #[serde(default)]
    pub output: Option<RecordedOutput>,
    /// Of an approval: the pattern that is remembered.
    #[serde(default)]
    pub pattern: Option<String>,
    /// Of an approval: it was given earlier.
    #[serde(default)]
    pub remembered: Option<bool>,
    /// Of a network refusal: what was tried.
    #[serde(default)]
    pub attempt: Option<NetAttempt>,
    /// Of a reload: the policy file.
    #[serde(default, deserialize_with = "wire::optional::deserialize")]
    pub file: Option<PathBuf>,
    /// Of a reload: why the new policy was not taken.
    #[serde(default)]
    pub error: Option<String>,
    /// Of a rate limit: the field that sets it.
    #[serde(default)]
    pub limit: Option<String>,
    /// Of a rate limit: how much was asked for.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// Of a rate limit: how much was used before.
    #[serde(default)]
    pub used: Option<u64>,
    /// Of a rate limit: how much there is.
    #[serde(default)]
    pub total: Option<u64>,
    /// Of a world: what happened to it.
    #[serde(default)]
    pub action: Option<String>,
    /// Of a world: more about that.
    #[serde(default)]
    pub detail: Option<String>,
    /// Of an agent: the program that it is.
    #[serde(default)]
    pub provider: Option<String>,
    /// Of an agent: the model that answered.
    #[serde(default)]
    pub model: Option<String>,
    /// Of an agent: what that cost.
    #[serde(default)]
    pub tokens: Option<Tokens>,
    /// It is no command but a call of this tool.
    #[serde(default)]
    pub tool: Option<String>,
    /// What the tool does, in the words of effect rules.
    #[serde(default, deserialize_with = "or_default")]
    pub effects: Vec<String>,
    /// The agent's client that it comes from.
    #[serde(default, deserialize_with = "or_default")]
    pub client: RecordedClient,
}

/// What the client of an agent calls things.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RecordedClient {
    /// Which client; empty where none was.
    pub name: String,
    /// Its conversation.
    pub session: Option<String>,
    /// Its call of a tool.
    pub call: Option<String>,
    /// Its sub-agent.
    pub agent: Option<String>,
}

impl Span {
    /// When it happened.
    pub fn time(&self) -> Option<SystemTime> {
        parse(&self.ts)
    }

    /// Every path that it is known to have changed.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let diff = self.fs_diff.as_ref().into_iter().flat_map(|diff| {
            [&diff.writes, &diff.mods, &diff.deletes, &diff.created_dirs]
                .into_iter()
                .flatten()
                .map(PathBuf::as_path)
        });
        diff.chain(self.scopes("fs.write:").map(Path::new))
    }

    /// Every host that it is known to have talked to, or tried to.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        let net = self.net.iter().map(|used| used.host.as_str());
        let tcp = self.scopes("tcp:").chain(self.scopes("udp:"));
        let names = tcp.filter_map(|scope| Some(scope.to_str()?.rsplit_once(':')?.0));
        net.chain(names)
    }

    fn scopes(&self, kind: &str) -> impl Iterator<Item = &std::ffi::OsStr> {
        use std::os::unix::ffi::OsStrExt;
        self.scopes_used
            .iter()
            .filter_map(move |scope| scope.as_bytes().strip_prefix(kind.as_bytes()))
            .map(std::ffi::OsStr::from_bytes)
    }
}

/// What was recorded of the output.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RecordedOutput {
    /// `off`, `digest` or `bounded`.
    pub mode: String,
    /// Both streams went to one place, which is recorded as `stdout`.
    pub merged: bool,
    /// Standard output.
    pub stdout: Option<RecordedStream>,
    /// Standard error.
    pub stderr: Option<RecordedStream>,
}

/// What was recorded of one stream.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RecordedStream {
    /// Length.
    pub bytes: u64,
    /// As [`crate::Key::content_digest`] gave it.
    pub digest: String,
    /// `file`, `pipe` or `terminal`.
    pub via: Option<String>,
    /// Its beginning, without secrets.
    #[serde(deserialize_with = "wire::optional::deserialize")]
    pub copy: Option<OsString>,
}

/// What was recorded for a replay.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RecordedReplay {
    /// The value of `PATH`.
    #[serde(deserialize_with = "wire::optional::deserialize")]
    pub path: Option<OsString>,
    /// Stored variables.
    #[serde(deserialize_with = "variables")]
    pub env: BTreeMap<String, OsString>,
    /// Keyed hash of the other variables.
    pub env_hash: Option<String>,
    /// The file mode creation mask, in octal digits.
    #[serde(deserialize_with = "octal")]
    pub umask: Option<u32>,
    /// The locale.
    #[serde(deserialize_with = "wire::optional::deserialize")]
    pub locale: Option<OsString>,
    /// The working directory.
    #[serde(deserialize_with = "wire::optional::deserialize")]
    pub cwd: Option<PathBuf>,
    /// The policy.
    pub policy_id: Option<String>,
    /// Hash of its content.
    pub policy_hash: Option<String>,
    /// Commit of the repository that it came from.
    pub policy_commit: Option<String>,
    /// Kernel, level and tools that made up the world.
    pub world_image_version: Option<String>,
    /// Id of the snapshot of the project.
    pub base_tree: Option<String>,
    /// Id of the project as a world left it.
    pub after_tree: Option<String>,
    /// The programs that the line names.
    pub tools: Vec<RecordedTool>,
    /// What standard input was.
    pub stdin: Option<RecordedStdin>,
    /// The keyed digest of the line; [`crate::Key::verify`] checks it.
    pub digest: Option<String>,
}

/// A program that a line names.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RecordedTool {
    /// Its file.
    #[serde(deserialize_with = "wire::deserialize")]
    pub path: PathBuf,
    /// The SHA-256 of its content, in hexadecimal.
    pub sha256: String,
}

/// What was recorded of standard input.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RecordedStdin {
    /// `unknown`, `none`, `tty`, `pipe` or `content`.
    pub kind: String,
    /// Of the content, as [`crate::Key::content_digest`] gave it.
    pub digest: Option<String>,
    /// Length of the content.
    pub bytes: Option<u64>,
}

fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    d: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(d)?.unwrap_or_default())
}

fn optional_list<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Vec<OsString>>, D::Error> {
    let all = Option::<Vec<Bytes>>::deserialize(d)?;
    Ok(all.map(|all| all.into_iter().map(OsString::from).collect()))
}

fn list<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<OsString>, D::Error> {
    Ok(optional_list(d)?.unwrap_or_default())
}

fn variables<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<String, OsString>, D::Error> {
    let all = Option::<BTreeMap<String, Bytes>>::deserialize(d)?.unwrap_or_default();
    Ok(all.into_iter().map(|(k, v)| (k, v.into())).collect())
}

fn octal<'de, D: Deserializer<'de>>(d: D) -> Result<Option<u32>, D::Error> {
    let text = Option::<String>::deserialize(d)?;
    Ok(text.and_then(|text| u32::from_str_radix(&text, 8).ok()))
}
