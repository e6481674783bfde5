//! A session: one broker, one trace, one identity for everything that runs under it.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use substrate_broker::env::{SUBSTRATE_AGENT_ID, SUBSTRATE_JSON_ERRORS, json_errors};
use substrate_broker::person::Barrier;
use substrate_broker::{Broker, Evaluation, Meaning, Note, enclosure};
use substrate_policy::settings::OutputRecord;
use substrate_policy::way_on::way_on;
use substrate_sys::environment;
use substrate_trace::{
    Completion, Component, Enforced, Environment, Event, Key, Level, Mode, Outcome,
    PARENT_SPAN_VAR, ParentSpan, PolicyReload, Redactor, ReplayContext, Retention, RuleRef,
    SessionId, SpanId, SpanInfo, Verdict, Writer, denial, denial_json,
};

use crate::front::{Front, Kind};
use crate::variables::{self, variables};
use crate::worlds::Worlds;

/// Who acts where no agent does.
const HUMAN: &str = "human";
/// What a refusal says by a rule without a reason of its own.
pub(crate) const EXPLICITLY: &str = "Command explicitly denied";

/// Whose a session is.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its id.
    pub session: SessionId,
    /// The span that it runs below.
    pub parent: Option<SpanId>,
    /// The actor: `human`, or the name of an agent.
    pub agent: String,
    /// What is masked out of the modes of new files.
    pub umask: u32,
}

impl Identity {
    /// What an environment says of this process.
    fn own(env: &[CString]) -> Identity {
        let enclosing = environment::get(env, PARENT_SPAN_VAR)
            .and_then(|value| std::str::from_utf8(value).ok())
            .and_then(|value| value.parse::<ParentSpan>().ok());
        let (session, parent) = match enclosing {
            Some(ParentSpan { session, span }) => (session, Some(span)),
            None => (SessionId::new(), None),
        };
        let agent = environment::get(env, SUBSTRATE_AGENT_ID)
            .filter(|value| !value.is_empty())
            .map_or_else(
                || HUMAN.to_owned(),
                |value| String::from_utf8_lossy(value).into_owned(),
            );
        Identity {
            session,
            parent,
            agent,
            umask: substrate_sys::identity::umask(),
        }
    }
}

/// Everything that the lines of a session share.
pub struct Session {
    /// Decides.
    pub broker: Broker,
    /// Whom commands are run for.
    pub front: Arc<dyn Front>,
    /// Where its worlds come from.
    pub worlds: Arc<dyn Worlds>,
    /// The environment that programs get, before Substrate's own variable.
    pub env: Vec<CString>,
    /// `--record`: a person wants to keep what commands print.
    pub record: bool,
    /// `--timeout`: how long a command may take.
    pub timeout: Option<Duration>,
    /// Opened anew before each event for as long as it cannot be, so that a repaired disk is used.
    writer: RefCell<Result<Writer, String>>,
    /// What it takes out.
    redact: RefCell<Vec<String>>,
    session_id: SessionId,
    parent: Option<SpanId>,
    agent_id: String,
    umask: u32,
    borrows: bool,
    warned: std::cell::Cell<bool>,
    /// That worlds hold less here was said.
    weak_told: std::cell::Cell<bool>,
    /// What a person does not want to be asked about again.
    refused: RefCell<HashSet<String>>,
}

impl Session {
    /// Begins a session; one that runs below another carries on its id.
    pub fn begin(
        broker: Broker,
        env: Vec<CString>,
        front: Arc<dyn Front>,
        worlds: Arc<dyn Worlds>,
    ) -> Self {
        let identity = Identity::own(&env);
        Self::begin_as(broker, env, front, worlds, identity)
    }

    /// Begins a session of which somebody else says whose it is.
    pub fn begin_as(
        broker: Broker,
        env: Vec<CString>,
        front: Arc<dyn Front>,
        worlds: Arc<dyn Worlds>,
        identity: Identity,
    ) -> Self {
        let writer = RefCell::new(open_trace(&broker));
        let redact = RefCell::new(broker.last_policy().settings().redact.clone());
        // Everything that this session starts carries the mark from here on; who borrows a world must not
        // look as if another session had started him.
        let borrows = worlds.may_be_kept(&broker);
        if !borrows {
            enclosure::mark();
        }
        Self {
            broker,
            front,
            worlds,
            env,
            record: false,
            timeout: None,
            writer,
            redact,
            session_id: identity.session,
            parent: identity.parent,
            agent_id: identity.agent,
            umask: identity.umask,
            borrows,
            warned: false.into(),
            weak_told: false.into(),
            refused: RefCell::default(),
        }
    }

    /// Says once what a world of an observing session could not be given; the span has it each time. One that
    /// enforces refuses instead, or says what holds at its start.
    pub(crate) fn tell_weakness(&self, enforced: &Enforced) {
        let weak = enforced.level != Level::Full;
        if self.enforces() || !weak || self.weak_told.replace(true) {
            return;
        }
        let lost = match enforced.degraded.first() {
            Some(lost) => format!(" ({})", substrate_text::visible(lost.as_bytes())),
            None => String::new(),
        };
        let text = format!(
            "worlds hold less on this machine: level {}, fs {}, net {}{lost}; `substrate world doctor` says what would help",
            enforced.level, enforced.fs, enforced.net
        );
        self.front.say(Kind::Warning, &text);
    }

    /// Whether a person has refused this for as long as the session lasts.
    pub(crate) fn is_refused(&self, what: &str) -> bool {
        self.refused.borrow().contains(what)
    }

    /// Refuses this from here on without a question.
    pub(crate) fn refuse_from_now_on(&self, what: String) {
        self.refused.borrow_mut().insert(what);
    }

    /// Its id.
    pub fn id(&self) -> SessionId {
        self.session_id
    }

    /// Whether somebody may keep the worlds that its lines run in.
    pub fn borrows(&self) -> bool {
        self.borrows
    }

    /// What is to be recorded of what commands print.
    pub fn output_record(&self) -> OutputRecord {
        match self.record {
            true => OutputRecord::Bounded,
            false => self.broker.last_details().trace.output,
        }
    }

    /// The key that vouches for what is recorded.
    pub fn key(&self) -> Option<Key> {
        let writer = self.writer.borrow();
        writer.as_ref().ok()?.key().ok().cloned()
    }

    /// What stands between this session and a person who could approve something.
    pub fn barrier(&self) -> Option<Barrier> {
        self.front.barrier(self.broker.caller())
    }

    /// Tells the person and the trace what happened to the policies since the last line.
    pub fn heed_policy_changes(&self) {
        // What is taken out of the record is the policy's to say.
        let policy = self.broker.last_policy();
        let redact = &policy.settings().redact;
        if *self.redact.borrow() != *redact {
            self.redact.replace(redact.clone());
            *self.writer.borrow_mut() = open_trace(&self.broker);
        }
        if self.broker.has_notes() {
            let say = |kind, text: &str| self.front.say(kind, text);
            self.policy_teller()
                .tell(&say, &|event| self.record_or_warn(event));
        }
    }

    /// What it takes to tell of changed policies, from any thread.
    pub fn policy_teller(&self) -> PolicyTeller {
        PolicyTeller {
            broker: self.broker.clone(),
            session_id: self.session_id,
            parent: self.parent,
            agent_id: self.agent_id.clone(),
        }
    }

    /// The value of an environment variable.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        environment::get(&self.env, name).map(OsStr::from_bytes)
    }

    /// What its environment makes of the words of a command.
    pub fn meaning(&self) -> Meaning {
        let environment = variables(&self.env);
        variables::meaning(&environment, &environment)
    }

    /// Where programs are looked up.
    pub fn search_path(&self) -> OsString {
        self.variable("PATH")
            .unwrap_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"))
            .to_owned()
    }

    /// A span for a command that was judged.
    pub fn span(
        &self,
        evaluation: &Evaluation,
        cmd: OsString,
        argv: Vec<OsString>,
        cwd: &Path,
    ) -> SpanInfo {
        let mut span = SpanInfo::new(Component::Shell, self.session_id, self.parent);
        let deciding = evaluation
            .judgement
            .deciding()
            .filter(|_| evaluation.judgement.verdict != Verdict::Allow);
        span.policy_id = evaluation.policy.id.clone();
        span.mode = evaluation.policy.mode;
        span.profile = evaluation.profile_text();
        span.agent_id = self.agent_id.clone();
        span.cwd = cwd.to_owned();
        span.cmd = cmd;
        span.argv = argv;
        span.verdict = Some(match evaluation.judgement.verdict {
            Verdict::Allow if evaluation.judgement.isolate => Verdict::Isolate,
            verdict => verdict,
        });
        span.rule = deciding.map(|reason| reason.rule.clone());
        span.reason = deciding.and_then(|reason| reason.rule.reason.clone());
        span.replay = Some(self.replay_context(evaluation, cwd));
        span
    }

    fn replay_context(&self, evaluation: &Evaluation, cwd: &Path) -> ReplayContext {
        let key = self.key();
        ReplayContext {
            env: Environment::record(variables(&self.env), key.as_ref()),
            umask: self.umask,
            cwd: cwd.to_owned(),
            policy_id: evaluation.policy.id.clone(),
            policy_hash: Some(evaluation.policy.sha256.clone()),
            policy_commit: evaluation.policy.commit.clone(),
            stdin: self.front.stdin(),
            ..ReplayContext::default()
        }
    }

    /// Writes an event. What to do when that fails is the caller's decision, by mode.
    pub fn record(&self, event: &Event<'_>) -> Result<(), String> {
        let mut writer = self.writer.borrow_mut();
        if writer.is_err() {
            *writer = open_trace(&self.broker);
        }
        match &*writer {
            Ok(writer) => writer.write(event).map_err(|error| error.to_string()),
            // The session whose world this is records it as part of its own line.
            Err(_) if self.broker.in_world() => Ok(()),
            Err(error) => Err(error.clone()),
        }
    }

    /// Writes an event that must not stop anything; says once when it cannot be written.
    pub fn record_or_warn(&self, event: &Event<'_>) {
        if let Err(error) = self.record(event) {
            self.warn_unrecorded(&error);
        }
    }

    fn warn_unrecorded(&self, error: &str) {
        if !self.warned.replace(true) {
            self.front
                .say(Kind::Warning, &format!("this is not recorded: {error}"));
        }
    }

    /// Records how a command ended, and tells whom it was run for.
    pub fn complete(&self, span: &SpanInfo, done: &Completion) {
        self.record_or_warn(&Event::command_complete(span, done));
        self.front.ended(span, Some(done));
    }

    /// Refuses a command: records the violation and says which rule it was, and `why` beyond that.
    pub fn refuse(&self, span: &SpanInfo, rule: Option<&RuleRef>, why: &str) {
        let own = rule.and_then(|rule| rule.reason.as_deref());
        let reason = match (own, why) {
            (own, "") => own.unwrap_or(EXPLICITLY).to_owned(),
            (None, why) => why.to_owned(),
            (Some(own), why) => format!("{own}; {why}"),
        };
        self.record_or_warn(&Event::policy_violation(span, Outcome::Deny));
        if !self.tell_program(span, rule, &reason) {
            self.front
                .say(Kind::Refused, &denial(&span.policy_id, rule, &reason));
            if let Some(rule) = rule.filter(|_| span.agent_id != HUMAN) {
                self.front.say(Kind::Info, way_on(&rule.list));
            }
        }
        self.front.ended(span, None);
    }

    /// Tells a program that asked for it why something was refused; whether that takes the place of the sentence.
    fn tell_program(&self, span: &SpanInfo, rule: Option<&RuleRef>, reason: &str) -> bool {
        let value = environment::get(&self.env, SUBSTRATE_JSON_ERRORS);
        let Some(number) = json_errors(value) else {
            return false;
        };
        let verdict = span.verdict.unwrap_or(Verdict::Deny);
        let line = OsStr::from_bytes(span.cmd.as_bytes());
        let words = ["substrate", "policy", "explain", "--"].map(OsStr::new);
        let explain = substrate_text::command_line(&[&words[..], &[line]].concat());
        let hint = match verdict {
            Verdict::Ask => {
                "a person can approve it: `substrate approvals grant` with the line".to_owned()
            }
            _ => format!("`{}` says what it is about", explain.to_string_lossy()),
        };
        let told = denial_json(verdict, &span.policy_id, rule, reason, &hint);
        substrate_sys::streams::write_to(number, &told).is_ok() && number == 2
    }

    /// Records that a command begins; false when it must not, because nothing may run unrecorded here.
    #[must_use]
    pub fn record_start(&self, span: &SpanInfo) -> bool {
        let Err(error) = self.record(&Event::command_start(span)) else {
            return true;
        };
        if self.enforces() {
            let text = format!("nothing was run, because it cannot be recorded: {error}");
            self.front.say(Kind::Failed, &text);
            return false;
        }
        self.warn_unrecorded(&error);
        true
    }

    /// Whether refusals are carried out in this session.
    pub fn enforces(&self) -> bool {
        self.broker.info().mode == Mode::Enforce
    }

    /// The environment for a program that this span starts.
    pub fn child_env(&self, span: &SpanInfo) -> Vec<CString> {
        let mut env = self.env.clone();
        let parent = self.parent_of(span);
        environment::set(&mut env, PARENT_SPAN_VAR, parent.as_bytes());
        env
    }

    /// The value by which what this span starts knows it.
    pub fn parent_of(&self, span: &SpanInfo) -> String {
        let parent = ParentSpan {
            session: span.session_id,
            span: span.span_id,
        };
        parent.to_string()
    }
}

fn open_trace(broker: &Broker) -> Result<Writer, String> {
    let redactor = Redactor::new(&broker.last_policy().settings().redact);
    Writer::open_with(&broker.home().path, Retention::default(), redactor)
        .map_err(|error| error.to_string())
}

/// What it takes to tell of changed policies, from any thread.
pub struct PolicyTeller {
    broker: Broker,
    session_id: SessionId,
    parent: Option<SpanId>,
    agent_id: String,
}

impl PolicyTeller {
    /// Says and records what happened to the policies since somebody was told last.
    pub fn tell(&self, say: &dyn Fn(Kind, &str), record: &dyn Fn(&Event<'_>)) {
        for note in self.broker.take_notes() {
            let (file, sha256, error) = match &note {
                Note::Reloaded { file, sha256 } => {
                    say(Kind::Done, "Policy reloaded");
                    (file, sha256, None)
                }
                Note::Kept {
                    file,
                    sha256,
                    error,
                } => {
                    say(Kind::Warning, &note.text());
                    (file, sha256, Some(error.clone()))
                }
                Note::Warning(text) => {
                    say(Kind::Warning, text);
                    continue;
                }
            };
            let info = self.broker.info();
            let mut span = SpanInfo::new(Component::Broker, self.session_id, self.parent);
            span.policy_id = info.id.clone();
            span.mode = info.mode;
            span.agent_id = self.agent_id.clone();
            let reload = PolicyReload {
                file: file.clone(),
                policy_hash: Some(sha256.clone()),
                error,
            };
            record(&Event::policy_reload(&span, &reload));
        }
    }
}
