//! From what a client tells to a verdict, and the span that says so.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::json;
use substrate_broker::enclosure::Trace;
use substrate_broker::env::SUBSTRATE_AGENT_ID;
use substrate_broker::{Answer, Around, Broker, Evaluation, Input, Origin, Request};
use substrate_command::ToolCall;
use substrate_executor::grant;
use substrate_executor::variables::{meaning, variables};
use substrate_policy::terms::Place;
use substrate_sys::environment;
use substrate_trace::{
    AgentEvent, ClientUse, Completion, Component, Mode, Outcome, PARENT_SPAN_VAR, ParentSpan,
    Redactor, Retention, RuleRef, SessionId, SpanId, SpanInfo, ToolUse, Verdict as Judged, Writer,
    denial,
};

use super::answer::Verdict;
use super::conversation::{self, Conversation};
use super::event::{Call, Deed, Event, Happening};
use super::{CANARY, HookError, Surroundings};
use crate::client::Client;

/// Judges and records.
pub fn judge(
    client: Client,
    event: &Event,
    broker: &Broker,
    around: &Surroundings,
) -> Result<Verdict, HookError> {
    let hook = Hook::new(client, event, broker, around);
    match &event.happening {
        Happening::Told(action, detail) => {
            hook.told(action, detail.clone());
            Ok(Verdict::Pass)
        }
        Happening::After { call, failed } => {
            hook.after(call, *failed);
            Ok(Verdict::Pass)
        }
        Happening::Before(call) => hook.before(call),
    }
}

struct Hook<'a> {
    client: Client,
    event: &'a Event,
    broker: &'a Broker,
    around: &'a Surroundings,
    conversation: Option<Conversation>,
    enclosing: Option<ParentSpan>,
}

impl<'a> Hook<'a> {
    fn new(client: Client, event: &'a Event, broker: &'a Broker, around: &'a Surroundings) -> Self {
        let open = |session: &String| Conversation::open(broker.home(), client, session).ok();
        let enclosing = environment::get(&around.env, PARENT_SPAN_VAR);
        Self {
            client,
            event,
            broker,
            around,
            conversation: event.session.as_ref().and_then(open),
            enclosing: enclosing.and_then(|value| std::str::from_utf8(value).ok()?.parse().ok()),
        }
    }

    fn told(&self, action: &str, detail: Option<String>) {
        if action == "session_start" {
            conversation::forget_old(self.broker.home());
        }
        let told = AgentEvent {
            action: action.to_owned(),
            detail,
            ..AgentEvent::default()
        };
        let span = self.span(&self.directory());
        self.write(&substrate_trace::Event::agent_event(&span, &told));
    }

    fn after(&self, call: &Call, failed: bool) {
        let mut span = self.span(&self.directory());
        describe(&mut span, call);
        let conversation = self.conversation.as_ref().zip(self.event.call.as_ref());
        let judged = conversation.and_then(|(conversation, call)| conversation.find(call));
        let mut done = Completion {
            exit: Some(i32::from(failed)),
            ..Completion::default()
        };
        if let Some(judged) = judged {
            span.span_id = judged.span;
            let since = SystemTime::now().duration_since(judged.at);
            done.duration = since.unwrap_or_default();
        }
        self.write(&substrate_trace::Event::command_complete(&span, &done));
    }

    fn before(&self, call: &Call) -> Result<Verdict, HookError> {
        // What the client does by itself on seeing a line is judged first: if it may not, neither may the line.
        if let Deed::Line {
            itself: Some((effects, known)),
            ..
        } = &call.deed
        {
            let itself = Call {
                name: format!("{}:apply_patch", self.client),
                deed: Deed::Effects {
                    effects: effects.clone(),
                    known: *known,
                },
                input: call.input.clone(),
            };
            match self.before(&itself)? {
                Verdict::Pass => {}
                refused => return Ok(refused),
            }
        }
        let tool;
        let (input, cwd) = match &call.deed {
            Deed::Line {
                text, directory, ..
            } => {
                let here = self.directory();
                let cwd = directory.as_ref().map_or(here.clone(), |to| here.join(to));
                (Input::Line(text), cwd)
            }
            Deed::Effects { effects, known } => {
                tool = ToolCall {
                    name: call.name.clone(),
                    effects: effects.clone(),
                    known: *known,
                };
                (Input::Tool(&tool), self.directory())
            }
        };
        let environment = || {
            let all = variables(&self.around.env);
            meaning(&all, &all)
        };
        let request = Request {
            input,
            origin: Origin::OneShot,
            cwd: &cwd,
            search_path: environment::get(&self.around.env, "PATH")
                .map(OsStr::from_bytes)
                .unwrap_or_default(),
            variables: &[],
            aliases: &[],
            isolate: false,
            around: Around::Asked(&environment),
        };
        let evaluation = self.broker.evaluate(&request);
        let mut span = self.span(&cwd);
        describe(&mut span, call);
        judged(&mut span, &evaluation);
        self.decide(call, &request, &evaluation, span)
    }

    /// The verdict, and the events that go with it.
    fn decide(
        &self,
        call: &Call,
        request: &Request<'_>,
        evaluation: &Evaluation,
        mut span: SpanInfo,
    ) -> Result<Verdict, HookError> {
        match &evaluation.answer {
            Answer::Deny(rule) => {
                let why = why(&span, rule.as_ref(), "");
                self.refuse(&span, why)
            }
            Answer::Ask(_, rule) => {
                // A line that goes through us is asked about there, where nobody can answer.
                let through_us = matches!(call.deed, Deed::Line { .. }) && self.has_door();
                if self.client.asks() && !through_us {
                    let why = why(&span, rule.as_ref(), "");
                    self.permit(&span)?;
                    return Ok(Verdict::Ask(why.replacen("denied", "asked about", 1)));
                }
                let how = self.how_to_approve(request, evaluation);
                let why = why(&span, rule.as_ref(), &how);
                self.refuse(&span, why)
            }
            Answer::Allow(terms) => {
                if let Some((outcome, rule)) = &evaluation.would {
                    let mut span = span.clone();
                    span.rule.clone_from(rule);
                    self.write(&substrate_trace::Event::policy_violation(&span, *outcome));
                }
                let verdict = self.place(call, &terms.place, &mut span);
                match &verdict {
                    Verdict::Deny(why) => return self.refuse(&span, why.clone()),
                    _ => self.permit(&span)?,
                }
                Ok(verdict)
            }
        }
    }

    /// Where a permitted call is to happen, and whether it can be had to.
    fn place(&self, call: &Call, place: &Place, span: &mut SpanInfo) -> Verdict {
        if *place == Place::Direct {
            return Verdict::Pass;
        }
        if self.broker.caller().enclosure() == Some(Trace::World) {
            span.place = Some("session");
            return Verdict::Pass;
        }
        let isolated = matches!(place, Place::Isolated(_));
        match &call.deed {
            // What goes through us is put where it belongs when it comes by.
            Deed::Line { .. } if self.has_door() => Verdict::Pass,
            Deed::Line { text, key, .. } if self.client.rewrites() => {
                let mut input = call.input.clone();
                let line = self.through_us(text, span);
                input.insert((*key).to_owned(), json!(line));
                Verdict::Rewrite(input)
            }
            Deed::Line { .. } if isolated => {
                let how =
                    "this policy runs it in a world of its own: run it as `substrate -c 'LINE'`";
                Verdict::Deny(why(span, span.rule.as_ref(), how))
            }
            Deed::Effects { .. } if isolated => {
                let how = "this policy wants it in a world, where a tool of the client cannot be put: do it by a command in the shell, or start the agent in a world";
                Verdict::Deny(why(span, span.rule.as_ref(), how))
            }
            _ => {
                span.degraded
                    .push("world: a hook cannot put this into one".to_owned());
                Verdict::Pass
            }
        }
    }

    /// The line as one that runs through us, below the span of the call.
    fn through_us(&self, text: &[u8], span: &SpanInfo) -> String {
        let parent = ParentSpan {
            session: span.session_id,
            span: span.span_id,
        };
        let words = [
            self.around.program.as_os_str(),
            OsStr::new("-c"),
            OsStr::new("--"),
            OsStr::from_bytes(text),
        ];
        let line = substrate_text::command_line(&words);
        format!(
            "{PARENT_SPAN_VAR}={parent} {SUBSTRATE_AGENT_ID}={} {}",
            self.client,
            line.to_string_lossy()
        )
    }

    fn how_to_approve(&self, request: &Request<'_>, evaluation: &Evaluation) -> String {
        match (&evaluation.question, request.input) {
            (Some(question), Input::Line(_)) => {
                let command = grant::command(self.broker, request, question);
                format!("a person can approve {command}")
            }
            _ => "a person can allow it in the policy".to_owned(),
        }
    }

    fn refuse(&self, span: &SpanInfo, why: String) -> Result<Verdict, HookError> {
        self.write(&substrate_trace::Event::policy_violation(
            span,
            Outcome::Deny,
        ));
        Ok(Verdict::Deny(why))
    }

    /// Records what may happen. Where the policy enforces, nothing happens unrecorded.
    fn permit(&self, span: &SpanInfo) -> Result<(), HookError> {
        let mut span = span.clone();
        span.place = span.place.or(Some("direct"));
        if let Some((conversation, call)) = self.conversation.as_ref().zip(self.event.call.as_ref())
        {
            // Without it the end of the call is a span of its own.
            let _ = conversation.note(call, span.span_id);
        }
        match self.record(&substrate_trace::Event::command_start(&span)) {
            Err(error) if span.mode == Mode::Enforce => Err(HookError::Unrecorded(error)),
            _ => Ok(()),
        }
    }

    fn write(&self, event: &substrate_trace::Event<'_>) {
        // What is refused stays refused, and what is over is over.
        let _ = self.record(event);
    }

    fn record(&self, event: &substrate_trace::Event<'_>) -> Result<(), String> {
        if self.is_canary() {
            return Ok(());
        }
        let policy = self.broker.last_policy();
        let redactor = Redactor::new(&policy.settings().redact);
        Writer::open_with(&self.broker.home().path, Retention::default(), redactor)
            .and_then(|writer| writer.write(event))
            .map_err(|error| error.to_string())
    }

    fn is_canary(&self) -> bool {
        let name = match &self.event.happening {
            Happening::Before(call) => call.name.split_once(':'),
            _ => None,
        };
        name == Some((self.client.name(), CANARY))
    }

    fn directory(&self) -> PathBuf {
        super::directory(self.event, self.around)
    }

    fn span(&self, cwd: &Path) -> SpanInfo {
        let (session, parent) = match (&self.enclosing, &self.conversation) {
            (Some(enclosing), _) => (enclosing.session, Some(enclosing.span)),
            (None, Some(conversation)) => (conversation.session, None),
            (None, None) => (SessionId::new(), None),
        };
        let mut span = SpanInfo::new(Component::Hook, session, parent);
        span.span_id = SpanId::new();
        span.cwd = cwd.to_owned();
        let agent = environment::get(&self.around.env, SUBSTRATE_AGENT_ID);
        let agent = agent.filter(|name| !name.is_empty());
        span.agent_id = agent.map_or_else(
            || self.client.name().to_owned(),
            |name| String::from_utf8_lossy(name).into_owned(),
        );
        let info = self.broker.info();
        span.policy_id.clone_from(&info.id);
        span.mode = info.mode;
        span.client = Some(ClientUse {
            name: self.client.name().to_owned(),
            session: self.event.session.clone(),
            call: self.event.call.clone(),
            agent: self.event.agent.clone(),
        });
        span
    }

    /// Whether every line of the client's shell comes through us by itself.
    fn has_door(&self) -> bool {
        let variable = |name: &str| {
            let value = environment::get(&self.around.env, name)?;
            Some(OsString::from_vec(value.to_vec()))
        };
        let is_us = |path: &OsStr| {
            let real = |path: &Path| substrate_sys::real_path::real_path(path).ok();
            let ours = real(&self.around.program);
            ours.is_some() && real(Path::new(path)) == ours
        };
        match self.client {
            Client::Claude => variable(SHELL_PREFIX).is_some_and(|prefix| is_us(&prefix)),
            Client::Opencode => variable("SHELL").is_some_and(|shell| is_us(&shell)),
            _ => false,
        }
    }
}

/// What Claude Code puts in front of every line.
const SHELL_PREFIX: &str = "CLAUDE_CODE_SHELL_PREFIX";

/// What is done, for the trace.
fn describe(span: &mut SpanInfo, call: &Call) {
    match &call.deed {
        Deed::Line { text, .. } => span.cmd = OsString::from_vec(text.clone()),
        Deed::Effects { effects, .. } => {
            let effects: Vec<String> = effects.iter().map(|effect| effect.text()).collect();
            let mut text = call.name.clone();
            for effect in &effects {
                text.push(' ');
                text.push_str(effect);
            }
            span.cmd = text.into();
            span.tool = Some(ToolUse {
                name: call.name.clone(),
                effects,
            });
        }
    }
}

fn judged(span: &mut SpanInfo, evaluation: &Evaluation) {
    let judgement = &evaluation.judgement;
    let deciding = judgement
        .deciding()
        .filter(|_| judgement.verdict != Judged::Allow);
    span.policy_id.clone_from(&evaluation.policy.id);
    span.mode = evaluation.policy.mode;
    span.profile = evaluation.profile_text();
    span.rule = deciding.map(|reason| reason.rule.clone());
    span.reason = deciding.and_then(|reason| reason.rule.reason.clone());
    span.verdict = Some(match judgement.verdict {
        Judged::Allow if judgement.isolate => Judged::Isolate,
        verdict => verdict,
    });
}

fn why(span: &SpanInfo, rule: Option<&RuleRef>, how: &str) -> String {
    let own = rule.and_then(|rule| rule.reason.as_deref());
    let reason = match (own, how) {
        (own, "") => own.unwrap_or_default().to_owned(),
        (None, how) => how.to_owned(),
        (Some(own), how) => format!("{own}; {how}"),
    };
    denial(&span.policy_id, rule, &reason)
}
