//! Asking a person: what the question is, what is recorded of the answer and what is remembered. How it
//! is put is the front's business; whoever is guarded cannot answer it.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use substrate_broker::approvals::{Approved, DEFAULT_SECONDS, Question};
use substrate_broker::{
    self as broker, Around, Evaluation, Input, Lasting, Origin, Request, Terms,
};
use substrate_changes::patch::Paint;
use substrate_policy::Reason;
use substrate_text::{unusual, visible};
use substrate_trace::{Answer, Approval, Event, SpanInfo};

use crate::front::{Given, Inquiry, Kind};
use crate::grant;
use crate::preview::{Preview, Trial};
use crate::questions::Questions;
use crate::session::{EXPLICITLY, Session};

/// What a judged request may do, and what was tried of it already.
pub struct Permit<'e> {
    /// On which terms it runs.
    pub terms: &'e Terms,
    /// What was tried and approved, to be applied instead of being run.
    pub preview: Option<Preview>,
}

/// The judgement carried out as far as it goes before anything runs: a refusal is recorded and said, a
/// question is asked, and what an observing policy would have done is written down. `None` is a refusal.
pub fn permit<'e>(
    session: &Session,
    request: &Request<'_>,
    evaluation: &'e Evaluation,
    span: &SpanInfo,
    trial: Option<&Trial<'_>>,
) -> Option<Permit<'e>> {
    let permit = match &evaluation.answer {
        broker::Answer::Allow(terms) => Permit {
            terms,
            preview: None,
        },
        broker::Answer::Deny(rule) => {
            let explained = rule.as_ref().is_some_and(|rule| rule.reason.is_some());
            let why = match (decided_by(evaluation, &request.input), explained) {
                (about, false) if !about.is_empty() => format!("{EXPLICITLY}; {about}"),
                (about, _) => about,
            };
            session.refuse(span, rule.as_ref(), &why);
            return None;
        }
        broker::Answer::Ask(terms, rule) => {
            match put(session, request, evaluation, span, trial, &[]) {
                Ok(preview) => Permit { terms, preview },
                Err(why) => {
                    session.refuse(span, rule.as_ref(), &why);
                    return None;
                }
            }
        }
    };
    note_remembered(session, evaluation, span);
    if let Some((outcome, rule)) = &evaluation.would {
        // The rule is the violation's; what runs was decided by another.
        let violation = SpanInfo {
            rule: rule.clone(),
            ..span.clone()
        };
        session.record_or_warn(&Event::policy_violation(&violation, *outcome));
    }
    Some(permit)
}

/// Longest command that a refusal names in full.
const LONGEST_NAMED: usize = 200;

/// Which command of several a line was refused for, where that is known. One command with its arguments
/// is named already, by the same words in front of every tool.
fn decided_by(evaluation: &Evaluation, input: &Input<'_>) -> String {
    let commands = &evaluation.line.invocations;
    let deciding = evaluation.judgement.deciding();
    let command = deciding
        .and_then(|reason| reason.invocation)
        .filter(|_| commands.len() > 1 && !matches!(input, Input::Argv(_)))
        .and_then(|index| commands.get(index));
    let Some(command) = command else {
        return String::new();
    };
    let words: Vec<_> = command.argv.iter().map(|word| word.text()).collect();
    let text = visible(&words.join(&b' '));
    match text.char_indices().nth(LONGEST_NAMED) {
        None => format!("it is about `{text}`"),
        Some((end, _)) => format!("it is about `{} …`", &text[..end]),
    }
}

/// Puts the questions about programs that were started inside to the person, and sends back what he says.
pub fn answer(session: &Session, questions: &Questions) {
    while let Some(start) = questions.next() {
        let around = || start.evaluation.environment.clone();
        let request = Request {
            input: Input::Argv(&start.argv),
            origin: Origin::Guard,
            cwd: &start.cwd,
            search_path: questions.search_path(),
            variables: &[],
            aliases: &[],
            isolate: false,
            around: Around::Asked(&around),
        };
        let (evaluation, span) = (&start.evaluation, &start.span);
        let put = put(session, &request, evaluation, span, None, &start.parents);
        // Whoever asked may be gone.
        let _ = start.reply.send(put.map(drop));
    }
}

fn put(
    session: &Session,
    request: &Request<'_>,
    evaluation: &Evaluation,
    span: &SpanInfo,
    trial: Option<&Trial<'_>>,
    parents: &[String],
) -> Result<Option<Preview>, String> {
    let Some(question) = &evaluation.question else {
        return Err("this needs a person's approval".to_owned());
    };
    let asked_about = asked_about(question, span);
    if session.is_refused(&asked_about) {
        record(session, span, Answer::Refused, None, true);
        return Err("you refused this for the rest of the session".to_owned());
    }
    if let Some(obstacle) = obstacle(session) {
        record(session, span, Answer::Nobody, None, false);
        return Err(format!(
            "this needs a person's approval, and {obstacle}. To approve it, a person can run: {}",
            grant::command(&session.broker, request, question)
        ));
    }
    let inquiry = Asked {
        session,
        request,
        evaluation,
        question,
        span,
        trial,
        preview: RefCell::new(None),
        parents,
    };
    let given = session.front.ask(&inquiry).unwrap_or_else(|error| {
        session.front.say(
            Kind::Warning,
            &format!("the question could not be asked: {error}"),
        );
        Given::denied()
    });
    if given.for_session && given.answer == Answer::Refused {
        session.refuse_from_now_on(asked_about);
    }
    let pattern = given.patterns();
    record(session, span, given.answer, pattern, false);
    let preview = inquiry.preview.take();
    let why = match given.answer {
        Answer::Once | Answer::Session | Answer::Always => None,
        Answer::Refused => Some("User denied approval"),
        Answer::Nobody => Some("nobody answered in time"),
    };
    if let Some(why) = why {
        if let Some(preview) = preview {
            preview.discard();
        }
        return Err(why.to_owned());
    }
    remember(session, question, &given);
    Ok(preview)
}

/// What a no is about: the same commands in the same place, by the same policy.
fn asked_about(question: &Question, span: &SpanInfo) -> String {
    let texts: Vec<&str> = question.remember.iter().map(Approved::text).collect();
    let line = visible(span.cmd.as_bytes());
    let what = match texts.is_empty() {
        true => line,
        false => texts.join("\n"),
    };
    let place = path(&question.directory);
    format!("{}\n{place}\n{what}", question.policy_sha256)
}

/// Writes down that an earlier approval let a line through.
fn note_remembered(session: &Session, evaluation: &Evaluation, span: &SpanInfo) {
    if evaluation.approved.is_empty() {
        return;
    }
    let texts: Vec<&str> = evaluation
        .approved
        .iter()
        .map(|grant| grant.what.text())
        .collect();
    let lasting = if evaluation
        .approved
        .iter()
        .any(|grant| grant.session.is_some())
    {
        Answer::Session
    } else {
        Answer::Always
    };
    record(session, span, lasting, Some(texts.join("; ")), true);
}

/// Writes down what a person answered.
pub fn record(
    session: &Session,
    span: &SpanInfo,
    answer: Answer,
    pattern: Option<String>,
    remembered: bool,
) {
    let approval = Approval {
        answer,
        pattern,
        remembered,
    };
    session.record_or_warn(&Event::approval(span, &approval));
}

fn obstacle(session: &Session) -> Option<String> {
    if !session.broker.details().interactive {
        return Some("the policy says `approval.interactive: false`".to_owned());
    }
    session.barrier().map(|barrier| barrier.to_string())
}

fn remember(session: &Session, question: &Question, given: &Given) {
    let lasting = match given.answer {
        Answer::Session => Lasting::Session,
        Answer::Always => Lasting::Seconds(Some(DEFAULT_SECONDS)),
        _ => return,
    };
    let granted = session
        .broker
        .grant(question, &given.what, &question.directory, lasting);
    if let Err(error) = granted {
        session.front.say(
            Kind::Warning,
            &format!("this runs once; the approval could not be remembered: {error}"),
        );
    }
}

/// A question with everything that it takes to answer it.
struct Asked<'a> {
    session: &'a Session,
    request: &'a Request<'a>,
    evaluation: &'a Evaluation,
    question: &'a Question,
    span: &'a SpanInfo,
    trial: Option<&'a Trial<'a>>,
    preview: RefCell<Option<Preview>>,
    parents: &'a [String],
}

impl Inquiry for Asked<'_> {
    fn can_be_remembered(&self) -> bool {
        !self.question.remember.is_empty()
    }

    fn can_be_tried(&self) -> bool {
        self.trial.is_some() && self.preview.borrow().is_none()
    }

    fn was_tried(&self) -> bool {
        self.preview.borrow().is_some()
    }

    fn try_out(&self) -> String {
        let Some(trial) = self.trial else {
            return String::new();
        };
        match trial.run() {
            Ok(preview) => {
                let summary = preview.summary();
                *self.preview.borrow_mut() = Some(preview);
                format!(
                    "{summary}If it is allowed, exactly this is applied; it does not run again.\n"
                )
            }
            Err(why) => format!("It cannot be previewed: {}\n", visible(why.as_bytes())),
        }
    }

    fn show(&self, screen: &mut dyn Write, paint: Paint) -> Result<(), String> {
        match self.preview.borrow().as_ref() {
            Some(preview) => preview.show(screen, paint),
            None => Ok(()),
        }
    }

    fn proposed(&self) -> &[Approved] {
        &self.question.remember
    }

    fn fits(&self, at: usize, pattern: &str) -> Result<(), String> {
        let broker = &self.session.broker;
        broker.try_pattern(self.request, self.evaluation, at, pattern)
    }

    fn variable(&self, name: &str) -> Option<&OsStr> {
        self.session.variable(name)
    }

    fn text(&self) -> String {
        let command = self.span.cmd.as_bytes();
        let mut lines = vec![
            "Command Approval Request".to_owned(),
            format!("Command: {}", visible(command)),
        ];
        lines.extend(unusual(command).map(|warning| format!("Warning: {warning}")));
        for parent in self.parents {
            lines.push(format!("Started by: {}", visible(parent.as_bytes())));
        }
        lines.push(format!("Directory: {}", path(self.request.cwd)));
        for (name, value) in self.evaluation.environment.variables() {
            lines.push(format!("Environment: {}={}", visible(name), visible(value)));
        }
        let agent = &self.span.agent_id;
        if agent != "human" {
            lines.push(format!("Asked by: {}", visible(agent.as_bytes())));
        }
        for reason in &self.question.reasons {
            lines.push(self.reason(reason));
        }
        lines.extend(
            self.evaluation
                .profile_text()
                .map(|profile| format!("Profile: {}", visible(profile.as_bytes()))),
        );
        let environment = match self.question.environment.is_plain() {
            true => "",
            false => ", with this environment",
        };
        for what in &self.question.remember {
            let what = &what.kept("");
            let kind = match what {
                Approved::Command(_) => "commands like",
                Approved::Line(_) | Approved::Secret { .. } => "exactly this line",
            };
            lines.push(format!(
                "Would be remembered: {kind} `{}` in {} and below{environment}",
                visible(what.text().as_bytes()),
                path(&self.question.directory)
            ));
        }
        lines.join("\n") + "\n"
    }
}

impl Asked<'_> {
    fn reason(&self, reason: &Reason) -> String {
        let rule = &reason.rule;
        let words: Vec<String> = reason
            .invocation
            .and_then(|index| self.evaluation.line.invocations.get(index))
            .into_iter()
            .flat_map(|invocation| invocation.argv.iter())
            .map(|word| visible(&word.text()))
            .collect();
        let about = if words.is_empty() {
            String::new()
        } else {
            format!("`{}`: ", words.join(" "))
        };
        let why = rule.reason.as_deref().unwrap_or("a person is to be asked");
        let text = format!(
            "Reason: {about}{why} (policy '{}', {} `{}`, {rule})",
            self.question.policy_id, rule.list, rule.pattern
        );
        visible(text.as_bytes())
    }
}

fn path(path: &Path) -> String {
    visible(path.as_os_str().as_bytes())
}
