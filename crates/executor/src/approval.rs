//! Asking a person. The question goes to the terminal that controls us and the answer comes from it,
//! never from standard input; whoever is guarded cannot give it.

use std::cell::RefCell;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use dialoguer::console::Term;
use dialoguer::theme::SimpleTheme;
use dialoguer::{Input, Select};
use substrate_broker::approvals::{Approved, DEFAULT_SECONDS, Question};
use substrate_broker::person::{Barrier, Watch};
use substrate_broker::{Broker, Evaluation, Lasting, Request};
use substrate_changes::patch::Paint;
use substrate_policy::Reason;
use substrate_sys::signals::{self, Signals};
use substrate_sys::{process_group, terminal};
use substrate_text::{command_line, unusual, visible};
use substrate_trace::{Answer, Approval, Event, SpanInfo};

use crate::notice::Kind;
use crate::preview::{Preview, Trial};
use crate::session::Session;

/// The choices, in the order in which they are shown. The last one is chosen unless a person moves.
const CHOICES: [(&str, Answer); 4] = [
    ("Allow once", Answer::Once),
    ("Allow for session", Answer::Session),
    ("Allow always", Answer::Always),
    ("Deny", Answer::Refused),
];

/// What can be picked at the question.
#[derive(Clone, Copy)]
enum Pick {
    Answer(Answer),
    /// Try the line where nothing of it is real.
    Try,
    /// Show in full what trying it came to.
    Show,
}

/// Settles a line that a person must approve: `Ok` when it may run, else why not.
pub fn settle(
    session: &Session,
    request: &Request<'_>,
    evaluation: &Evaluation,
    span: &SpanInfo,
) -> Result<(), String> {
    settle_trying(session, request, evaluation, span, None).map(drop)
}

/// The same where the line may be tried first: what was tried and approved comes back, to be applied
/// instead of being run.
pub fn settle_trying(
    session: &Session,
    request: &Request<'_>,
    evaluation: &Evaluation,
    span: &SpanInfo,
    trial: Option<&Trial<'_>>,
) -> Result<Option<Preview>, String> {
    put(session, request, evaluation, span, trial, &[])
}

/// The same for a program that was started inside, by `parents`, the nearest first.
pub fn settle_start(
    session: &Session,
    request: &Request<'_>,
    evaluation: &Evaluation,
    span: &SpanInfo,
    parents: &[String],
) -> Result<(), String> {
    put(session, request, evaluation, span, None, parents).map(drop)
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
    if let Some(obstacle) = obstacle(session) {
        record(session, span, Answer::Nobody, None, false);
        return Err(format!(
            "this needs a person's approval, and {obstacle}. To approve it, a person can run: {}",
            grant_command(&session.broker, request, question)
        ));
    }
    let dialog = Dialog {
        session,
        request,
        evaluation,
        question,
        span,
        trial,
        preview: RefCell::new(None),
        parents,
    };
    let given = dialog.ask().unwrap_or_else(|error| {
        session.notices.say(
            Kind::Warning,
            &format!("the question could not be asked: {error}"),
        );
        Given::denied()
    });
    let pattern = given.patterns();
    record(session, span, given.answer, pattern, false);
    let preview = dialog.preview.take();
    if given.answer == Answer::Refused {
        if let Some(preview) = preview {
            preview.discard();
        }
        return Err("User denied approval".to_owned());
    }
    remember(session, question, &given);
    Ok(preview)
}

/// Writes down that an earlier approval let a line through.
pub fn note_remembered(session: &Session, evaluation: &Evaluation, span: &SpanInfo) {
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
    session
        .barrier()
        .map(|barrier: Barrier| barrier.to_string())
}

/// What a person can type elsewhere to approve this.
pub fn grant_command(broker: &Broker, request: &Request<'_>, question: &Question) -> String {
    let text = match request.input {
        substrate_broker::Input::Line(line) => String::from_utf8_lossy(line).into_owned(),
        substrate_broker::Input::Argv(argv) => command_line(argv).to_string_lossy().into_owned(),
    };
    if question.remember.is_empty() {
        return "it at his own prompt; it cannot be remembered".to_owned();
    }
    let mut words = vec!["substrate".to_owned(), "approvals".into(), "grant".into()];
    words.extend(broker.grant_flags());
    words.push("--cwd".into());
    words.push(request.cwd.to_string_lossy().into_owned());
    words.push("--".into());
    words.push(text);
    let mut command = command_line(&words).to_string_lossy().into_owned();
    let home = broker.home();
    if home.path != home.user.join(".substrate") {
        let path = command_line(&[&home.path]);
        command = format!("SUBSTRATE_HOME={} {command}", path.to_string_lossy());
    }
    visible(command.as_bytes())
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
        session.notices.say(
            Kind::Warning,
            &format!("this runs once; the approval could not be remembered: {error}"),
        );
    }
}

/// What a person answered.
struct Given {
    answer: Answer,
    what: Vec<Approved>,
}

impl Given {
    fn denied() -> Self {
        Self {
            answer: Answer::Refused,
            what: Vec::new(),
        }
    }

    fn patterns(&self) -> Option<String> {
        let texts: Vec<&str> = self.what.iter().map(Approved::text).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

struct Dialog<'a> {
    session: &'a Session,
    request: &'a Request<'a>,
    evaluation: &'a Evaluation,
    question: &'a Question,
    span: &'a SpanInfo,
    trial: Option<&'a Trial<'a>>,
    preview: RefCell<Option<Preview>>,
    parents: &'a [String],
}

impl Dialog<'_> {
    fn ask(&self) -> std::io::Result<Given> {
        let tty = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/tty")?;
        // An interrupt at the question is an answer to it, not the end of the shell.
        let interrupts = Signals::take(&[signals::INTERRUPT, signals::QUIT])?;
        let _keys = KeysFrom::terminal(&tty)?;
        let screen = Screen::new(self.session, tty)?;
        screen.say(&self.text())?;
        let mut watch = screen.forget_keys();
        let answer = loop {
            match screen.choose(self.choices())? {
                Pick::Answer(answer) => break answer,
                Pick::Try => self.try_out(&screen)?,
                Pick::Show => self.show(&screen)?,
            }
            watch = screen.forget_keys();
        };
        let mut given = Given {
            answer,
            what: Vec::new(),
        };
        if matches!(given.answer, Answer::Session | Answer::Always) {
            match self.patterns(&screen)? {
                Some(what) => given.what = what,
                None => given = Given::denied(),
            }
        }
        if given.answer != Answer::Refused && watch.keys_could_be_faked() {
            let (prompt, word) = word_prompt();
            let typed = screen.line(&prompt, "")?;
            if typed.trim() != word {
                given = Given::denied();
            }
        }
        while interrupts.next()?.is_some() {}
        // The menu is gone; what was answered stays on the screen.
        let named = CHOICES.iter().find(|(_, answer)| *answer == given.answer);
        if let Some((name, _)) = named {
            screen.say(&format!("Answer: {name}\n"))?;
        }
        Ok(given)
    }

    /// What can be chosen: without anything that could be remembered, once or not at all.
    fn choices(&self) -> Vec<(&'static str, Pick)> {
        let forgetful = self.question.remember.is_empty();
        let look = match (self.trial, self.preview.borrow().as_ref()) {
            (_, Some(_)) => Some(("Show the changes", Pick::Show)),
            (Some(_), None) => Some(("Preview the changes", Pick::Try)),
            (None, None) => None,
        };
        let answers = CHOICES
            .into_iter()
            .filter(|(_, answer)| !forgetful || matches!(answer, Answer::Once | Answer::Refused))
            .map(|(name, answer)| (name, Pick::Answer(answer)));
        look.into_iter().chain(answers).collect()
    }

    /// Tries the line where it can do no harm, and says what it would change.
    fn try_out(&self, screen: &Screen) -> std::io::Result<()> {
        let Some(trial) = self.trial else {
            return Ok(());
        };
        match trial.run() {
            Ok(preview) => {
                screen.say(&preview.summary())?;
                screen
                    .say("If it is allowed, exactly this is applied; it does not run again.\n")?;
                *self.preview.borrow_mut() = Some(preview);
                Ok(())
            }
            Err(why) => screen.say(&format!(
                "It cannot be previewed: {}\n",
                visible(why.as_bytes())
            )),
        }
    }

    fn show(&self, screen: &Screen) -> std::io::Result<()> {
        let paint = match self.session.notices.colour() {
            true => Paint::ANSI,
            false => Paint::VISIBLE,
        };
        match self.preview.borrow().as_ref() {
            Some(preview) => preview
                .show(&mut &screen.tty, paint)
                .or_else(|error| screen.say(&format!("{error}\n")).map_err(|e| e.to_string()))
                .map_err(std::io::Error::other),
            None => Ok(()),
        }
    }

    fn text(&self) -> String {
        let command = std::os::unix::ffi::OsStrExt::as_bytes(self.span.cmd.as_os_str());
        let mut lines = vec![
            "Command Approval Request".to_owned(),
            format!("Command: {}", visible(command)),
        ];
        lines.extend(unusual(command).map(|warning| format!("Warning: {warning}")));
        for parent in self.parents {
            lines.push(format!("Started by: {}", visible(parent.as_bytes())));
        }
        lines.push(format!("Directory: {}", path(self.request.cwd)));
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
        for what in &self.question.remember {
            let kind = match what {
                Approved::Command(_) => "commands like",
                Approved::Line(_) => "exactly this line",
            };
            lines.push(format!(
                "Would be remembered: {kind} `{}` in {} and below",
                visible(what.text().as_bytes()),
                path(&self.question.directory)
            ));
        }
        lines.join("\n") + "\n"
    }

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

    /// Lets the person narrow or widen what is remembered; `None` when he thinks better of it.
    fn patterns(&self, screen: &Screen) -> std::io::Result<Option<Vec<Approved>>> {
        let mut all = Vec::new();
        for (at, what) in self.question.remember.iter().enumerate() {
            let Approved::Command(proposed) = what else {
                all.push(what.clone());
                continue;
            };
            let mut text = proposed.clone();
            loop {
                let typed = screen.line(
                    "Remember commands like (Enter, or edit; empty: deny)",
                    &text,
                )?;
                if typed.trim().is_empty() {
                    return Ok(None);
                }
                match self.session.broker.try_pattern(
                    self.request,
                    self.evaluation,
                    at,
                    typed.trim(),
                ) {
                    Ok(()) => {
                        all.push(Approved::Command(typed.trim().to_owned()));
                        break;
                    }
                    Err(problem) => screen.say(&format!("{}\n", visible(problem.as_bytes())))?,
                }
                text = typed;
            }
        }
        Ok(Some(all))
    }
}

/// Prompts read keys from standard input when that is a terminal, whichever it is; while this lives, it
/// is the one that controls us.
pub struct KeysFrom {
    before: Option<OwnedFd>,
}

impl KeysFrom {
    /// Reads from this terminal until dropped.
    pub fn terminal(tty: impl AsFd) -> std::io::Result<Self> {
        let before = std::io::stdin().as_fd().try_clone_to_owned().ok();
        process_group::replace_stdin(tty)?;
        Ok(Self { before })
    }
}

impl Drop for KeysFrom {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = process_group::replace_stdin(before);
        }
    }
}

fn path(path: &Path) -> String {
    visible(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))
}

/// Asks for a word that nobody can know who does not see the terminal; the question and the word.
pub fn word_prompt() -> (String, String) {
    let id = substrate_trace::SpanId::new().to_string();
    let word = id[id.len().saturating_sub(5)..].to_owned();
    let text = format!("Other programs could type here. To confirm, type {word}");
    (text, word)
}

/// The terminal, as far as it goes: with a cursor that moves, or line by line.
struct Screen {
    tty: fs::File,
    term: Option<Term>,
}

impl Screen {
    fn new(session: &Session, tty: fs::File) -> std::io::Result<Self> {
        let dumb = session
            .variable("TERM")
            .is_none_or(|term| term == "dumb" || term.is_empty());
        let term = if dumb {
            None
        } else {
            Some(Term::read_write_pair(tty.try_clone()?, tty.try_clone()?))
        };
        Ok(Self { tty, term })
    }

    fn say(&self, text: &str) -> std::io::Result<()> {
        (&self.tty).write_all(text.as_bytes())
    }

    /// Drops what was typed before the question stood on the screen, and watches who types from now on.
    fn forget_keys(&self) -> Watch {
        let _ = terminal::discard_input(&self.tty);
        std::thread::sleep(Duration::from_millis(50));
        let watch = Watch::begin();
        let _ = terminal::discard_input(&self.tty);
        watch
    }

    fn choose(&self, choices: Vec<(&'static str, Pick)>) -> std::io::Result<Pick> {
        let last = choices.len().saturating_sub(1);
        let chosen = match &self.term {
            Some(term) => {
                let chosen = Select::with_theme(&SimpleTheme)
                    .items(choices.iter().map(|(name, _)| *name))
                    .default(last)
                    .interact_on_opt(term);
                let _ = term.show_cursor();
                chosen.unwrap_or(None)
            }
            None => {
                let mut menu = String::new();
                for (number, (name, _)) in choices.iter().enumerate() {
                    menu.push_str(&format!("{}) {name}\n", number + 1));
                }
                self.say(&menu)?;
                let typed = self.line(&format!("Choice, or Enter for {}", last + 1), "")?;
                let number = typed.trim().parse::<usize>().ok();
                number.and_then(|number| number.checked_sub(1))
            }
        };
        Ok(chosen
            .and_then(|at| choices.get(at))
            .map_or(Pick::Answer(Answer::Refused), |(_, pick)| *pick))
    }

    fn line(&self, prompt: &str, text: &str) -> std::io::Result<String> {
        match &self.term {
            Some(term) => Input::<String>::with_theme(&SimpleTheme)
                .with_prompt(prompt)
                .with_initial_text(text)
                .allow_empty(true)
                .interact_text_on(term)
                .map_err(|dialoguer::Error::IO(error)| error),
            None => {
                let default = if text.is_empty() {
                    String::new()
                } else {
                    format!(" [{}]", visible(text.as_bytes()))
                };
                self.say(&format!("{prompt}{default}: "))?;
                let mut line = String::new();
                BufReader::new(&self.tty).read_line(&mut line)?;
                let typed = line.trim();
                Ok(if typed.is_empty() { text } else { typed }.to_owned())
            }
        }
    }
}
