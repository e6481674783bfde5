//! Events as the trace records them, and the one place that puts them into JSON.
//!
//! Every line is an object `{"v":1,"ts":…,"event_type":…,…}` without spaces, in the
//! order written here; `replay_context` comes last because the digest closes the line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::env::Environment;
use crate::json::Json;
use crate::redact::Redactor;
use crate::shape::words;
use crate::{
    Component, Enforced, Error, FsDiff, Key, Mode, NetAttempt, NetUse, Outcome, RuleRef, SessionId,
    SpanId, Verdict, WorldId,
};
use substrate_text::time::Utc;

/// The longest line that is written or read, in bytes.
pub const MAX_LINE: usize = 16 << 20;

/// How much of a command is kept when the whole would make the line too long.
const SHORTENED: usize = 64 << 10;

/// Who runs what, where and under which verdict: what all events of a span share.
#[derive(Debug, Clone)]
pub struct SpanInfo {
    /// The session.
    pub session_id: SessionId,
    /// The span.
    pub span_id: SpanId,
    /// The span that encloses it.
    pub parent_span: Option<SpanId>,
    /// Who writes.
    pub component: Component,
    /// The process that runs the command, or that writes the event.
    pub pid: u32,
    /// The world it runs in.
    pub world_id: Option<WorldId>,
    /// The policy that was in force.
    pub policy_id: String,
    /// The profile that chose it.
    pub profile: Option<String>,
    /// Whether that policy enforces.
    pub mode: Mode,
    /// The actor: `human`, or the name of an agent.
    pub agent_id: String,
    /// The working directory.
    pub cwd: PathBuf,
    /// The command as a line; empty for events that are about no command.
    pub cmd: OsString,
    /// The exact words, where there is one program; empty for a line that a shell reads.
    pub argv: Vec<OsString>,
    /// What the policy answered.
    pub verdict: Option<Verdict>,
    /// The rule that decided.
    pub rule: Option<RuleRef>,
    /// Why, in a sentence.
    pub reason: Option<String>,
    /// Where it runs: `direct`, `isolated` or `session`.
    pub place: Option<&'static str>,
    /// What was asked for and could not be given; empty when all is well.
    pub degraded: Vec<String>,
    /// What a replay needs.
    pub replay: Option<ReplayContext>,
    /// It is no command but a call of this tool.
    pub tool: Option<ToolUse>,
    /// The agent's client that it comes from.
    pub client: Option<ClientUse>,
}

/// A call of a tool that is no command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolUse {
    /// Whose tool, and which.
    pub name: String,
    /// What it does, in the words of effect rules.
    pub effects: Vec<String>,
}

/// What the client of an agent calls things.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientUse {
    /// Which client.
    pub name: String,
    /// Its conversation.
    pub session: Option<String>,
    /// Its call of a tool.
    pub call: Option<String>,
    /// Its sub-agent.
    pub agent: Option<String>,
}

impl SpanInfo {
    /// A new span of a session; the caller fills in what it knows.
    pub fn new(component: Component, session_id: SessionId, parent_span: Option<SpanId>) -> Self {
        Self {
            session_id,
            span_id: SpanId::new(),
            parent_span,
            component,
            pid: std::process::id(),
            world_id: None,
            policy_id: String::new(),
            profile: None,
            mode: Mode::Observe,
            agent_id: "human".to_owned(),
            cwd: PathBuf::new(),
            cmd: OsString::new(),
            argv: Vec::new(),
            verdict: None,
            rule: None,
            reason: None,
            place: None,
            degraded: Vec::new(),
            replay: None,
            tool: None,
            client: None,
        }
    }
}

/// What it takes to run a command again under the same conditions.
#[derive(Debug, Clone, Default)]
pub struct ReplayContext {
    /// Stored variables and the hash of the rest; `PATH` and locale are taken from here.
    pub env: Environment,
    /// The file mode creation mask.
    pub umask: u32,
    /// The working directory.
    pub cwd: PathBuf,
    /// The policy.
    pub policy_id: String,
    /// Hash of its content.
    pub policy_hash: Option<String>,
    /// Commit of the repository that it came from.
    pub policy_commit: Option<String>,
    /// Kernel, level and tools that made up the world.
    pub world_image_version: Option<String>,
    /// What standard input was.
    pub stdin: Stdin,
    /// Id of the snapshot of the project taken before the command ran.
    pub base_tree: Option<String>,
    /// Id of the project as a world left it, where no second snapshot was taken.
    pub after_tree: Option<String>,
    /// The programs that the line names, each with the SHA-256 of its file.
    pub tools: Vec<(PathBuf, String)>,
}

/// What standard input was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Stdin {
    /// Not looked at.
    #[default]
    Unknown,
    /// Closed, or `/dev/null`.
    None,
    /// A terminal.
    Tty,
    /// A pipe or socket whose content is not known.
    Pipe,
    /// Known content, by its digest and length.
    Content {
        /// As [`Key::content_digest`] gives it.
        digest: String,
        /// Length.
        bytes: u64,
    },
}

/// How a command ended and what it did.
#[derive(Debug, Clone, Default)]
pub struct Completion {
    /// The exit status, as a shell shows it: 128+n after signal n. `None` if unknown.
    pub exit: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// How long it ran.
    pub duration: Duration,
    /// What held it.
    pub enforced: Option<Enforced>,
    /// What it used: `fs.write:/p/x`, `tcp:host:443`.
    pub scopes_used: Vec<OsString>,
    /// What it exchanged with whom.
    pub net: Vec<NetUse>,
    /// What it changed.
    pub fs_diff: Option<FsDiff>,
    /// What it printed.
    pub output: Output,
    /// What it took, where that is known.
    pub used: Option<Used>,
}

/// What a command took of the machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    /// Time on the processors, with what it waited for.
    pub cpu: Duration,
    /// Bytes that its largest process held at most.
    pub memory: Option<u64>,
}

/// What is known about the output of a command.
#[derive(Debug, Clone, Default)]
pub enum Output {
    /// Nothing: its output was left untouched.
    #[default]
    Off,
    /// Digests, with copies where they are wanted; a stream that nobody could read is absent.
    Recorded {
        /// Standard output.
        stdout: Option<Stream>,
        /// Standard error.
        stderr: Option<Stream>,
        /// Both went to one place; it is recorded as standard output.
        merged: bool,
    },
}

words! {
    /// What a stream led to, which is what the command saw of it.
    Via {
        /// A regular file.
        File = "file",
        /// A pipe.
        Pipe = "pipe",
        /// A terminal.
        Terminal = "terminal",
    }
}

/// One output stream.
#[derive(Debug, Clone, Default)]
pub struct Stream {
    /// As [`Key::content_digest`] gives it.
    pub digest: String,
    /// Length.
    pub bytes: u64,
    /// What it led to.
    pub via: Option<Via>,
    /// Its beginning, if the policy wants a copy.
    pub copy: Option<Vec<u8>>,
}

words! {
    /// What came of asking a person.
    Answer {
        /// Allowed this once.
        Once = "once",
        /// Allowed for the session.
        Session = "session",
        /// Allowed always.
        Always = "always",
        /// Refused.
        Refused = "refused",
        /// Nobody could be asked.
        Nobody = "nobody",
    }
}

/// An approval, given now or remembered.
#[derive(Debug, Clone)]
pub struct Approval {
    /// The answer.
    pub answer: Answer,
    /// The pattern that is remembered with it.
    pub pattern: Option<String>,
    /// The answer was given earlier and still holds.
    pub remembered: bool,
}

/// A policy file that was read again.
#[derive(Debug, Clone)]
pub struct PolicyReload {
    /// The file.
    pub file: PathBuf,
    /// Hash of the content now in force.
    pub policy_hash: Option<String>,
    /// Why the new content was not taken; the policy before it stays.
    pub error: Option<String>,
}

/// A budget that was used up.
#[derive(Debug, Clone, Default)]
pub struct RateLimit {
    /// The field of the policy that sets it, such as `net.egress_budget.total_bytes`.
    pub limit: String,
    /// How much was asked for.
    pub bytes: u64,
    /// How much was used before.
    pub used: u64,
    /// How much there is.
    pub total: u64,
}

/// Something that happened to a world.
#[derive(Debug, Clone, Default)]
pub struct WorldEvent {
    /// What: `started`, `ended`, `applied`, `kept`, `discarded`, `undone`, `removed`, `failed`.
    pub action: String,
    /// More about it.
    pub detail: Option<String>,
    /// What holds in it.
    pub enforced: Option<Enforced>,
    /// The change it was about.
    pub fs_diff: Option<FsDiff>,
}

/// Something that an agent did, or that happened to it.
#[derive(Debug, Clone, Default)]
pub struct AgentEvent {
    /// What: `started`, `answered`, `refused`, `would_refuse`, `broke`, `unreachable`, `ended`; in its conversation
    /// `session_start`, `session_end`, `prompt`, `turn_end`, `subagent_start`, `subagent_end`, …
    pub action: String,
    /// More about it.
    pub detail: Option<String>,
    /// The program that it is: the name of its descriptor.
    pub provider: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// What that cost, or all of it at the end.
    pub tokens: Option<Tokens>,
}

/// Tokens, counted so that none is in two of these, except that `reasoning` is part of `output`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "read", derive(serde::Serialize, serde::Deserialize))]
pub struct Tokens {
    /// Read anew.
    pub input: u64,
    /// Read and put into a cache.
    pub cache_write: u64,
    /// Read from a cache.
    pub cache_read: u64,
    /// Written.
    pub output: u64,
    /// Of the written ones, those that were thought.
    pub reasoning: u64,
    /// What was charged without being counted: answers that broke off.
    #[cfg_attr(feature = "read", serde(default))]
    pub charged: u64,
}

/// One line of the trace, ready to be written.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    span: &'a SpanInfo,
    at: SystemTime,
    body: Body<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Body<'a> {
    Start,
    Complete(&'a Completion),
    Builtin(&'a Completion),
    Violation(Outcome),
    NetRefusal(Outcome, &'a NetAttempt),
    Approval(&'a Approval),
    PolicyReload(&'a PolicyReload),
    RateLimit(&'a RateLimit),
    World(&'a WorldEvent),
    Agent(&'a AgentEvent),
}

impl<'a> Event<'a> {
    fn new(span: &'a SpanInfo, body: Body<'a>) -> Self {
        Self {
            span,
            at: SystemTime::now(),
            body,
        }
    }

    /// A command is about to run.
    pub fn command_start(span: &'a SpanInfo) -> Self {
        Self::new(span, Body::Start)
    }

    /// A command ended.
    pub fn command_complete(span: &'a SpanInfo, done: &'a Completion) -> Self {
        Self::new(span, Body::Complete(done))
    }

    /// A builtin of the shell ran.
    pub fn builtin_command(span: &'a SpanInfo, done: &'a Completion) -> Self {
        Self::new(span, Body::Builtin(done))
    }

    /// The policy was, or would have been, in the way.
    pub fn policy_violation(span: &'a SpanInfo, outcome: Outcome) -> Self {
        Self::new(span, Body::Violation(outcome))
    }

    /// The policy's network lists were, or would have been, in the way of an attempt.
    pub fn net_refusal(span: &'a SpanInfo, outcome: Outcome, attempt: &'a NetAttempt) -> Self {
        Self::new(span, Body::NetRefusal(outcome, attempt))
    }

    /// A person was asked.
    pub fn approval(span: &'a SpanInfo, approval: &'a Approval) -> Self {
        Self::new(span, Body::Approval(approval))
    }

    /// A policy file was read again.
    pub fn policy_reload(span: &'a SpanInfo, reload: &'a PolicyReload) -> Self {
        Self::new(span, Body::PolicyReload(reload))
    }

    /// A budget was used up.
    pub fn rate_limit(span: &'a SpanInfo, limit: &'a RateLimit) -> Self {
        Self::new(span, Body::RateLimit(limit))
    }

    /// Something happened to a world.
    pub fn world_event(span: &'a SpanInfo, event: &'a WorldEvent) -> Self {
        Self::new(span, Body::World(event))
    }

    /// An agent did something, or something happened to it.
    pub fn agent_event(span: &'a SpanInfo, event: &'a AgentEvent) -> Self {
        Self::new(span, Body::Agent(event))
    }

    /// The same event at another time than now.
    pub fn at(mut self, at: SystemTime) -> Self {
        self.at = at;
        self
    }

    /// The value of `event_type`.
    pub fn kind(&self) -> &'static str {
        match self.body {
            Body::Start => "command_start",
            Body::Complete(_) => "command_complete",
            Body::Builtin(_) => "builtin_command",
            Body::Violation(_) | Body::NetRefusal(..) => "policy_violation",
            Body::Approval(_) => "approval",
            Body::PolicyReload(_) => "policy_reload",
            Body::RateLimit(_) => "rate_limit",
            Body::World(_) => "world_event",
            Body::Agent(_) => "agent_event",
        }
    }

    /// What a replay needs, in the events that carry it. A start has it only to name its snapshot,
    /// which must not be pruned while the command runs.
    fn replay(&self) -> Option<&'a ReplayContext> {
        let replay = self.span.replay.as_ref();
        match self.body {
            Body::Start => replay.filter(|replay| replay.base_tree.is_some()),
            _ => replay,
        }
    }

    /// Whether the line ends with a digest.
    pub(crate) fn is_signed(&self) -> bool {
        self.replay().is_some()
    }

    /// The event as a line with its newline: without secrets, and with a digest if
    /// there is a key and something to replay.
    pub fn line(&self, redactor: &Redactor, key: Option<&Key>) -> Result<Vec<u8>, Error> {
        let mut line = self.encode(redactor, key, None);
        if line.len() > MAX_LINE {
            line = self.encode(redactor, key, Some(SHORTENED));
        }
        match line.len() {
            0..=MAX_LINE => Ok(line),
            length => Err(Error::TooLong { length }),
        }
    }

    fn encode(&self, redactor: &Redactor, key: Option<&Key>, limit: Option<usize>) -> Vec<u8> {
        let mut out = Encoder {
            json: Json::new(),
            redactor,
            redacted: false,
        };
        out.json.open_object();
        out.json.key("v").int(1);
        out.json.key("ts").plain(Utc(self.at));
        out.json.key("event_type").string(self.kind());
        out.span(self.span, limit);
        match self.body {
            Body::Start => {}
            Body::Complete(done) | Body::Builtin(done) => out.completion(done),
            Body::Violation(outcome) => {
                out.json.key("outcome").string(outcome.as_str());
            }
            Body::NetRefusal(outcome, attempt) => {
                out.json.key("outcome").string(outcome.as_str());
                out.json.key("attempt");
                attempt.write_json(&mut out.json);
            }
            Body::Approval(approval) => out.approval(approval),
            Body::PolicyReload(reload) => out.reload(reload),
            Body::RateLimit(limit) => {
                out.json.key("limit").string(&limit.limit);
                out.json.key("bytes").int(limit.bytes);
                out.json.key("used").int(limit.used);
                out.json.key("total").int(limit.total);
            }
            Body::World(event) => out.world(event),
            Body::Agent(event) => out.agent(event),
        }
        out.finish(self.replay(), key)
    }
}

/// The parts of a line in their order; remembers whether anything was taken out.
struct Encoder<'a> {
    json: Json,
    redactor: &'a Redactor,
    redacted: bool,
}

impl Encoder<'_> {
    fn span(&mut self, span: &SpanInfo, limit: Option<usize>) {
        let json = &mut self.json;
        json.key("session_id").plain(span.session_id);
        json.key("span_id").plain(span.span_id);
        json.key("parent_span");
        match span.parent_span {
            Some(parent) => json.plain(parent),
            None => json.null(),
        };
        json.key("component").string(span.component.as_str());
        json.key("pid").int(span.pid);
        json.key("world_id");
        match span.world_id {
            Some(world) => json.plain(world),
            None => json.null(),
        };
        json.key("policy_id").string(&span.policy_id);
        if let Some(profile) = &span.profile {
            json.key("profile").string(profile);
        }
        json.key("mode").string(span.mode.as_str());
        json.key("agent_id").string(&span.agent_id);
        json.key("cwd").os(&span.cwd);
        if !span.cmd.is_empty() || !span.argv.is_empty() {
            self.command(span, limit);
        }
        let json = &mut self.json;
        if let Some(verdict) = span.verdict {
            json.key("verdict").string(verdict.as_str());
        }
        if let Some(rule) = &span.rule {
            json.key("rule");
            rule.write_json(json);
        }
        self.text("reason", span.reason.as_deref());
        let json = &mut self.json;
        if let Some(place) = span.place {
            json.key("place").string(place);
        }
        if !span.degraded.is_empty() {
            json.key("degraded").string_array(&span.degraded);
        }
        if let Some(tool) = &span.tool {
            self.tool(tool);
        }
        if let Some(client) = &span.client {
            self.client(client);
        }
    }

    fn tool(&mut self, tool: &ToolUse) {
        self.text("tool", Some(&tool.name));
        self.json.key("effects").open_array();
        for effect in &tool.effects {
            self.bytes(effect.as_bytes());
        }
        self.json.close_array();
    }

    fn client(&mut self, client: &ClientUse) {
        self.json.key("client").open_object();
        self.json.key("name").string(&client.name);
        self.text("session", client.session.as_deref());
        self.text("call", client.call.as_deref());
        self.text("agent", client.agent.as_deref());
        self.json.close_object();
    }

    fn command(&mut self, span: &SpanInfo, limit: Option<usize>) {
        self.json.key("cmd");
        let cmd = span.cmd.as_encoded_bytes();
        match limit {
            Some(limit) if cmd.len() > limit => self.bytes(&cmd[..limit]),
            _ => self.bytes(cmd),
        }
        self.json.key("argv");
        if span.argv.is_empty() || limit.is_some() {
            self.json.null();
        } else {
            let argv = self.redactor.argv(&span.argv);
            self.redacted |= matches!(argv, std::borrow::Cow::Owned(_));
            self.json.os_array(&argv);
        }
        if limit.is_some() {
            self.json.key("shortened").bool(true);
        }
    }

    fn completion(&mut self, done: &Completion) {
        let json = &mut self.json;
        for (key, value) in [("exit", done.exit), ("signal", done.signal)] {
            json.key(key);
            match value {
                Some(value) => json.int(value),
                None => json.null(),
            };
        }
        json.key("duration_ms").millis(done.duration);
        if let Some(used) = &done.used {
            json.key("cpu_ms").millis(used.cpu);
            if let Some(memory) = used.memory {
                json.key("memory_peak").int(memory);
            }
        }
        self.enforced(done.enforced.as_ref());
        let json = &mut self.json;
        json.key("scopes_used").os_array(&done.scopes_used);
        if !done.net.is_empty() {
            json.key("net").open_array();
            for used in &done.net {
                used.write_json(json);
            }
            json.close_array();
        }
        self.fs_diff(done.fs_diff.as_ref());
        self.json.key("output").open_object();
        match &done.output {
            Output::Off => {
                self.json.key("mode").string("off");
            }
            Output::Recorded {
                stdout,
                stderr,
                merged,
            } => {
                let copied = [stdout, stderr]
                    .into_iter()
                    .flatten()
                    .any(|stream| stream.copy.is_some());
                let mode = if copied { "bounded" } else { "digest" };
                self.json.key("mode").string(mode);
                if *merged {
                    self.json.key("merged").bool(true);
                }
                for (key, stream) in [("stdout", stdout), ("stderr", stderr)] {
                    if let Some(stream) = stream {
                        self.stream(key, stream);
                    }
                }
            }
        }
        self.json.close_object();
    }

    fn stream(&mut self, key: &str, stream: &Stream) {
        self.json.key(key).open_object();
        self.json.key("bytes").int(stream.bytes);
        self.json.key("digest").string(&stream.digest);
        if let Some(via) = stream.via {
            self.json.key("via").string(via.as_str());
        }
        if let Some(copy) = &stream.copy {
            self.json.key("copy");
            // A secret in the output does not keep the command from being replayed.
            let copy = self.redactor.output(copy);
            self.json.bytes(&copy);
        }
        self.json.close_object();
    }

    fn enforced(&mut self, enforced: Option<&Enforced>) {
        self.json.key("enforced");
        match enforced {
            Some(enforced) => enforced.write_json(&mut self.json),
            None => drop(self.json.null()),
        }
    }

    fn fs_diff(&mut self, diff: Option<&FsDiff>) {
        self.json.key("fs_diff");
        match diff {
            Some(diff) => diff.write_json(&mut self.json),
            None => drop(self.json.null()),
        }
    }

    fn approval(&mut self, approval: &Approval) {
        self.json.key("outcome").string(approval.answer.as_str());
        self.json.key("remembered").bool(approval.remembered);
        self.text("pattern", approval.pattern.as_deref());
    }

    fn reload(&mut self, reload: &PolicyReload) {
        let outcome = if reload.error.is_some() {
            "kept"
        } else {
            "loaded"
        };
        self.json.key("outcome").string(outcome);
        self.json.key("file").os(&reload.file);
        self.text("policy_hash", reload.policy_hash.as_deref());
        self.text("error", reload.error.as_deref());
    }

    fn world(&mut self, event: &WorldEvent) {
        self.json.key("action").string(&event.action);
        self.text("detail", event.detail.as_deref());
        if event.enforced.is_some() {
            self.enforced(event.enforced.as_ref());
        }
        if event.fs_diff.is_some() {
            self.fs_diff(event.fs_diff.as_ref());
        }
    }

    fn agent(&mut self, event: &AgentEvent) {
        self.json.key("action").string(&event.action);
        self.text("detail", event.detail.as_deref());
        self.text("provider", event.provider.as_deref());
        self.text("model", event.model.as_deref());
        if let Some(tokens) = &event.tokens {
            let json = &mut self.json;
            json.key("tokens").open_object();
            for (key, count) in [
                ("input", tokens.input),
                ("cache_write", tokens.cache_write),
                ("cache_read", tokens.cache_read),
                ("output", tokens.output),
                ("reasoning", tokens.reasoning),
                ("charged", tokens.charged),
            ] {
                json.key(key).int(count);
            }
            json.close_object();
        }
    }

    fn finish(mut self, replay: Option<&ReplayContext>, key: Option<&Key>) -> Vec<u8> {
        // The stored variables may hold a secret too, and the mark stands before them.
        let values = replay.map_or(&[][..], |replay| &replay.env.stored);
        let env: Vec<_> = values
            .iter()
            .map(|(_, value)| self.redactor.line(value.as_encoded_bytes()))
            .collect();
        self.redacted |= env.iter().any(|v| matches!(v, std::borrow::Cow::Owned(_)));
        if self.redacted {
            self.json.key("redacted").bool(true);
        }
        let Some(replay) = replay else {
            self.json.close_object();
            let mut line = self.json.into_bytes();
            line.push(b'\n');
            return line;
        };
        let json = &mut self.json;
        json.key("replay_context").open_object();
        json.key("path")
            .bytes(redacted_value(replay, &env, "PATH").unwrap_or_default());
        json.key("env").open_object();
        for ((name, _), value) in replay.env.stored.iter().zip(&env) {
            json.key(&name.to_string_lossy()).bytes(value);
        }
        json.close_object();
        nullable(json, "env_hash", replay.env.hash.as_deref());
        json.key("umask")
            .plain(format_args!("{:04o}", replay.umask));
        json.key("locale");
        match replay.env.locale() {
            Some(locale) => json.os(locale),
            None => json.null(),
        };
        json.key("cwd").os(&replay.cwd);
        json.key("policy_id").string(&replay.policy_id);
        nullable(json, "policy_hash", replay.policy_hash.as_deref());
        nullable(json, "policy_commit", replay.policy_commit.as_deref());
        nullable(
            json,
            "world_image_version",
            replay.world_image_version.as_deref(),
        );
        nullable(json, "base_tree", replay.base_tree.as_deref());
        if let Some(after) = &replay.after_tree {
            json.key("after_tree").string(after);
        }
        if !replay.tools.is_empty() {
            json.key("tools").open_array();
            for (path, sha256) in &replay.tools {
                json.open_object();
                json.key("path").os(path);
                json.key("sha256").string(sha256);
                json.close_object();
            }
            json.close_array();
        }
        stdin(json, &replay.stdin);
        let mut line = match key {
            Some(key) => {
                let mut line = self.json.into_bytes();
                key.seal(&mut line);
                line
            }
            None => {
                json.key("digest").null();
                json.close_object().close_object();
                self.json.into_bytes()
            }
        };
        line.push(b'\n');
        line
    }

    /// A text that may quote the command; left out when absent.
    fn text(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.json.key(key);
            self.bytes(text.as_bytes());
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let clean = self.redactor.line(bytes);
        self.redacted |= matches!(clean, std::borrow::Cow::Owned(_));
        self.json.bytes(&clean);
    }
}

fn redacted_value<'a>(
    replay: &ReplayContext,
    values: &'a [std::borrow::Cow<'_, [u8]>],
    name: &str,
) -> Option<&'a [u8]> {
    let at = replay
        .env
        .stored
        .iter()
        .position(|(stored, _)| stored == name)?;
    Some(&values[at])
}

fn nullable(json: &mut Json, key: &str, value: Option<&str>) {
    json.key(key);
    match value {
        Some(value) => json.string(value),
        None => json.null(),
    };
}

fn stdin(json: &mut Json, stdin: &Stdin) {
    let kind = match stdin {
        Stdin::Unknown => "unknown",
        Stdin::None => "none",
        Stdin::Tty => "tty",
        Stdin::Pipe => "pipe",
        Stdin::Content { .. } => "content",
    };
    json.key("stdin").open_object();
    json.key("kind").string(kind);
    if let Stdin::Content { digest, bytes } = stdin {
        json.key("digest").string(digest);
        json.key("bytes").int(*bytes);
    }
    json.close_object();
}
