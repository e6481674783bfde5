//! The front of a command that a client of the service asked for: what it is told waits for the answer, its
//! questions wait for a person, and its streams are pipes or a terminal of the service.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use substrate_api::approvals::Waiting;
use substrate_api::execute::{Approval, Rule, Verdict};
use substrate_broker::Caller;
use substrate_broker::person::Barrier;
use substrate_executor::front::{
    Choice, Front, Given, GivenStreams, HeldChanges, Inquiry, Kind, Streams,
};
use substrate_policy::way_on::way_on;
use substrate_text::visible;
use substrate_trace::{Completion, SpanInfo, Stdin};
use substrate_world::backend::Held;
use substrate_world::progress::Progress;

use crate::attempt::{Attempt, State};
use crate::locked::lock;
use crate::service::Service;

/// Most notices of one command, and the longest of them.
const MOST_NOTICES: usize = 100;
const LONGEST_NOTICE: usize = 4096;

/// What is known of the command before it is judged, for a question about it.
pub(crate) struct About {
    pub cmd: substrate_api::Bytes,
    pub cwd: substrate_api::Bytes,
}

/// For one command.
pub(crate) struct ApiFront {
    service: Arc<Service>,
    attempt: Arc<Attempt>,
    about: About,
    approval: Approval,
    patience: Duration,
    stdin: Stdin,
    streams: Mutex<Option<GivenStreams>>,
    heard: Mutex<Heard>,
    /// Told of notices as they come.
    notice: Option<OnNotice>,
}

/// Told of notices as they come.
pub(crate) type OnNotice = Box<dyn Fn(&str) + Send + Sync>;

/// What was heard of the command.
#[derive(Default)]
pub(crate) struct Heard {
    pub notices: Vec<String>,
    pub span: Option<SpanInfo>,
    pub done: Option<Completion>,
}

/// What a front is made of.
pub(crate) struct Parts {
    pub service: Arc<Service>,
    pub attempt: Arc<Attempt>,
    pub about: About,
    pub approval: Approval,
    pub patience: Duration,
    pub stdin: Stdin,
    pub streams: GivenStreams,
    pub notice: Option<OnNotice>,
}

impl ApiFront {
    pub fn new(parts: Parts) -> ApiFront {
        ApiFront {
            service: parts.service,
            attempt: parts.attempt,
            about: parts.about,
            approval: parts.approval,
            patience: parts.patience,
            stdin: parts.stdin,
            streams: Mutex::new(Some(parts.streams)),
            heard: Mutex::default(),
            notice: parts.notice,
        }
    }

    /// What was heard, once the command is over.
    pub fn heard(&self) -> Heard {
        std::mem::take(&mut lock(&self.heard))
    }

    fn question(&self, inquiry: &dyn Inquiry) -> Waiting {
        Waiting {
            id: substrate_trace::unique("ask"),
            agent_id: self.attempt.agent.clone(),
            attempt: self.attempt.id.clone(),
            cmd: self.about.cmd.clone(),
            cwd: self.about.cwd.clone(),
            text: inquiry.text(),
            patterns: inquiry
                .proposed()
                .iter()
                .map(|proposed| visible(proposed.text().as_bytes()))
                .collect(),
            can_be_remembered: inquiry.can_be_remembered(),
            waited_ms: 0,
        }
    }
}

impl Front for ApiFront {
    fn say(&self, kind: Kind, text: &str) {
        let line = self.line(kind, text);
        let line: String = line.chars().take(LONGEST_NOTICE).collect();
        if let Some(notice) = &self.notice {
            notice(&line);
        }
        let mut heard = lock(&self.heard);
        if heard.notices.len() < MOST_NOTICES {
            heard.notices.push(line);
        }
    }

    fn ended(&self, span: &SpanInfo, done: Option<&Completion>) {
        let mut heard = lock(&self.heard);
        heard.span = Some(span.clone());
        heard.done = done.cloned();
    }

    fn line(&self, kind: Kind, text: &str) -> String {
        format!("{}{text}", kind.sign(true))
    }

    /// A person elsewhere can be asked, whoever the caller is: he cannot answer himself.
    fn barrier(&self, _: &Caller) -> Option<Barrier> {
        (self.approval == Approval::Refuse).then_some(Barrier::NoTerminal)
    }

    fn ask(&self, inquiry: &dyn Inquiry) -> io::Result<Given> {
        let question = self.question(inquiry);
        let id = question.id.clone();
        let queue = &self.service.queue;
        let Some(put) = queue.put(question) else {
            return Ok(Given::denied());
        };
        // Whoever hears of the question finds it.
        self.attempt.set(State::Asking(id));
        // Whoever waits for a person keeps nobody else from running.
        let given = self.service.beside_the_slots(&self.attempt.agent, || {
            queue.wait(put, self.patience, &|| self.attempt.is_wanted())
        });
        self.attempt.set(State::Running);
        Ok(given)
    }

    fn settle(&self, _: &Held, _: &dyn HeldChanges) -> Option<Choice> {
        None
    }

    fn progress(&self) -> Box<dyn FnMut(Progress) -> bool> {
        let attempt = Arc::clone(&self.attempt);
        Box::new(move |_| attempt.is_wanted())
    }

    fn streams(&self) -> io::Result<Streams> {
        let streams = lock(&self.streams).take();
        streams
            .map(Streams::Given)
            .ok_or_else(|| io::Error::other("the streams of this command are in use"))
    }

    fn stdin(&self) -> Stdin {
        self.stdin.clone()
    }
}

/// How a span was judged, as clients see it.
pub(crate) fn verdict(span: &SpanInfo) -> Verdict {
    let verdict = span.verdict.map_or("deny", |verdict| verdict.as_str());
    Verdict {
        verdict: verdict.to_owned(),
        place: span.place.map(ToOwned::to_owned),
        policy: span.policy_id.clone(),
        policy_sha256: span
            .replay
            .as_ref()
            .and_then(|replay| replay.policy_hash.clone())
            .unwrap_or_default(),
        rule: span.rule.as_ref().map(Rule::from),
        reason: span.reason.clone(),
        hint: span.rule.as_ref().map(|rule| way_on(&rule.list).to_owned()),
    }
}
