//! Commands on standard input: each is judged when it is complete, then handed to one bash.

use std::ffi::OsString;
use std::io::{BufRead, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use substrate_broker::{Answer, Input, Origin, Request};
use substrate_policy::terms::Place;
use substrate_runtime::supervise::Ending;
use substrate_trace::{Completion, Event, PARENT_SPAN_VAR, ParentSpan};

use crate::repl::is_complete;
use substrate_executor::approval;
use substrate_executor::front::Kind;
use substrate_executor::oneshot::{self, FAILED, Job, shell_path};
use substrate_executor::session::Session;

/// What the shell is started with.
pub struct Arguments<'a> {
    /// Its options.
    pub options: &'a [OsString],
    /// `-o` or `-O` without a name, which must come last: bash lists its settings first.
    pub listing: Option<&'a str>,
    /// The positional parameters.
    pub parameters: &'a [OsString],
}

impl Arguments<'_> {
    fn words(&self) -> Vec<OsString> {
        let mut words = self.options.to_vec();
        words.push("-s".into());
        match self.listing {
            Some(option) => words.push(option.into()),
            None => {
                words.push("--".into());
                words.extend(self.parameters.iter().cloned());
            }
        }
        words
    }
}

/// Runs what comes on standard input until its end, or until the shell exits.
pub fn run(session: &Session, arguments: &Arguments<'_>, cwd: &Path) -> Ending {
    let mut input = std::io::stdin().lock();
    if needs_world(session, cwd) {
        // A world is made for a text as a whole.
        let mut text = Vec::new();
        if let Err(error) = input.read_to_end(&mut text) {
            session.front.say(
                Kind::Failed,
                &format!("cannot read standard input: {error}"),
            );
            return Ending::Exit(FAILED);
        }
        let mut given = vec![OsString::from("bash")];
        given.extend(arguments.parameters.iter().cloned());
        let job = Job::Line {
            text: OsString::from_vec(text),
            options: arguments.options.to_vec(),
            parameters: given,
        };
        return oneshot::run(session, &job, None, cwd);
    }
    let Some(shell) = shell_path() else {
        session
            .front
            .say(Kind::Failed, "there is neither bash nor sh on this machine");
        return Ending::Exit(FAILED);
    };
    let mut child = match Command::new(&shell)
        .args(arguments.words())
        .stdin(Stdio::piped())
        .spawn()
    {
        Ok(child) => child,
        Err(error) => {
            session
                .front
                .say(Kind::Failed, &format!("{}: {error}", shell.display()));
            return Ending::Exit(FAILED);
        }
    };
    let Some(mut commands) = child.stdin.take() else {
        return Ending::Exit(FAILED);
    };
    let bash = shell.ends_with("bash");
    let mut text = Vec::new();
    loop {
        let more = input.read_until(b'\n', &mut text).unwrap_or(0);
        if text.is_empty() || (more > 0 && !is_complete(&text, &shell, bash)) {
            if more == 0 {
                break;
            }
            continue;
        }
        let judged = judge(session, &text, cwd);
        // A refused command leaves only its status behind.
        let sent = judged.unwrap_or_else(|status| format!("(exit {status})\n").into_bytes());
        if commands
            .write_all(&sent)
            .and_then(|()| commands.flush())
            .is_err()
            || more == 0
        {
            break;
        }
        text.clear();
    }
    drop(commands);
    match child.wait() {
        Ok(status) => match status.signal() {
            Some(signal) => Ending::Signal(signal),
            None => Ending::Exit(status.code().unwrap_or(FAILED)),
        },
        Err(_) => Ending::Exit(FAILED),
    }
}

fn request<'a>(line: &'a [u8], cwd: &'a Path, search_path: &'a std::ffi::OsStr) -> Request<'a> {
    Request {
        input: Input::Line(line),
        origin: Origin::OneShot,
        cwd,
        search_path,
        variables: &[],
        aliases: &[],
        isolate: false,
    }
}

fn needs_world(session: &Session, cwd: &Path) -> bool {
    let search_path = session.search_path();
    match session
        .broker
        .evaluate(&request(b":", cwd, &search_path))
        .answer
    {
        Answer::Allow(terms) | Answer::Ask(terms, _) => terms.place != Place::Direct,
        Answer::Deny(_) => false,
    }
}

/// The text for bash, with its span for what it starts; or the status of a refusal.
fn judge(session: &Session, text: &[u8], cwd: &Path) -> Result<Vec<u8>, i32> {
    let search_path = session.search_path();
    let request = request(text, cwd, &search_path);
    let evaluation = session.broker.evaluate(&request);
    session.heed_policy_changes();
    if evaluation.line.invocations.is_empty() && evaluation.line.complete() {
        return Ok(text.to_vec());
    }
    let shown = text.strip_suffix(b"\n").unwrap_or(text);
    let mut span = session.span(
        &evaluation,
        OsString::from_vec(shown.to_vec()),
        Vec::new(),
        cwd,
    );
    let refuse = |rule: Option<&substrate_trace::RuleRef>, why: &str| {
        session.refuse(&span, rule, why);
        Err(oneshot::DENIED)
    };
    let terms = match &evaluation.answer {
        Answer::Allow(terms) => terms,
        Answer::Deny(rule) => return refuse(rule.as_ref(), ""),
        Answer::Ask(terms, rule) => match approval::settle(session, &request, &evaluation, &span) {
            Ok(()) => terms,
            Err(why) => return refuse(rule.as_ref(), &why),
        },
    };
    if terms.place != Place::Direct {
        session.front.say(
            Kind::Failed,
            "a command on standard input cannot be isolated on its own; run it with `substrate -c`",
        );
        return Err(FAILED);
    }
    if let Some((outcome, rule)) = &evaluation.would {
        let mut violation = span.clone();
        violation.rule = rule.clone();
        session.record_or_warn(&Event::policy_violation(&violation, *outcome));
    }
    span.place = Some("direct");
    if !session.record_start(&span) {
        return Err(FAILED);
    }
    oneshot::record_builtins(session, &evaluation, &span, cwd);
    // Its end is bash's to know; only that it was handed over is certain here.
    session.record_or_warn(&Event::command_complete(&span, &Completion::default()));
    let parent = ParentSpan {
        session: span.session_id,
        span: span.span_id,
    };
    let mut sent = format!("export {PARENT_SPAN_VAR}={parent}\n").into_bytes();
    sent.extend_from_slice(text);
    Ok(sent)
}
