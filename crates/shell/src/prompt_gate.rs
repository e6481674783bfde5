//! The gate behind the prompt: judges typed lines by the broker and records what became of them.

use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use substrate_broker::env::is_taken_over;
use substrate_broker::{Answer, Around, Evaluation, Input, Origin, Request, person};
use substrate_changes::gc;
use substrate_policy::terms::{Place, WorldSpec};
use substrate_runtime::supervise::Ending;
use substrate_sys::memfd;
use substrate_text::visible;
use substrate_trace::{Completion, Enforced, Event, PARENT_SPAN_VAR, SpanInfo, Used};
use substrate_world::backend::Tap;

use crate::asking;
use crate::gate::{Borrowed, Decision, Gate, Hint, Outcome, Recall, Standing, Submission, Verdict};
use crate::names::Names;
use crate::notice::Announcer;
use crate::past;
use crate::policy_watch::{self, PolicyWatch};
use crate::session_world::Quarters;
use substrate_executor::approval;
use substrate_executor::contained::{self, Contained};
use substrate_executor::exit_status::{DENIED, FAILED};
use substrate_executor::front::Kind;
use substrate_executor::limits::{tell_limits, tell_put_aside};
use substrate_executor::preview::{self, Preview, Trial};
use substrate_executor::recording::{self, Recording};
use substrate_executor::session::Session;
use substrate_executor::shell_path::shell_path;
use substrate_executor::snapshot::Before;
use substrate_executor::variables;
use substrate_executor::walk;

/// What Substrate's own commands do at the prompt.
pub trait OwnCommands {
    /// Carries out a whole line that only the front end may carry out, such as an approval; `None`
    /// for every other line. `variables` are those of the shell that it may take over.
    fn carry_out(
        &self,
        session: &Session,
        line: &[u8],
        cwd: &Path,
        variables: &dyn Fn() -> Vec<(OsString, OsString)>,
    ) -> Option<Ending>;

    /// Words that can stand in place of the last one given, if the first names Substrate.
    fn complete(&self, session: &Session, words: &[OsString]) -> Vec<OsString>;
}

/// Judges and records for the front end.
pub struct PromptGate<'s> {
    session: &'s Session,
    own: &'s dyn OwnCommands,
    quarters: &'s Quarters,
    announcer: Announcer,
    watch: Option<PolicyWatch>,
    /// The line that was decided last, until it has come to its end.
    current: Option<(SpanInfo, Evaluation)>,
    /// When it got the terminal.
    began: Option<Instant>,
    /// The project before that line.
    before: Option<Before>,
    /// What was tried of it and approved, to be applied instead of being run.
    preview: Option<Preview>,
    /// What it shows, where that passes through us.
    recording: Recording,
    /// What the engine exported before the first line.
    first: Option<Rc<Vec<(OsString, OsString)>>>,
}

impl<'s> PromptGate<'s> {
    /// A gate for the lines of this session.
    pub fn new(
        session: &'s Session,
        own: &'s dyn OwnCommands,
        quarters: &'s Quarters,
        announcer: Announcer,
    ) -> Self {
        Self {
            session,
            own,
            quarters,
            announcer,
            watch: None,
            current: None,
            began: None,
            before: None,
            preview: None,
            recording: Recording::default(),
            first: None,
        }
    }

    fn evaluate(&self, line: &[u8], cwd: &Path, names: &Names) -> Evaluation {
        let (aliases, known) = (bytes(&names.aliases), known(names));
        let search_path = self.search_path(names);
        let around = Around::Nothing;
        let request = request(line, cwd, &search_path, &known, &aliases, around);
        self.session.broker.evaluate(&request)
    }

    /// What the engine exported before the first line.
    fn environment_at_first(
        &mut self,
        submission: &Submission<'_>,
    ) -> Rc<Vec<(OsString, OsString)>> {
        let quarters = self.quarters;
        let first = self.first.get_or_insert_with(|| {
            let first = (submission.variables)();
            if let Some(world) = quarters.world() {
                world.begins_in(&first);
            }
            Rc::new(first)
        });
        Rc::clone(first)
    }

    /// Where the engine looks for programs, which start-up files may have changed.
    fn search_path(&self, names: &Names) -> OsString {
        let told = names.search_path.clone();
        told.unwrap_or_else(|| self.session.search_path())
    }
}

impl PromptGate<'_> {
    /// A full disk must be repairable: a person may let one line run that leaves no trace.
    fn runs_unrecorded(&self, submission: &Submission<'_>) -> bool {
        (submission.line_mode)();
        self.session.barrier().is_none()
            && asking::confirm("run this line unrecorded?").unwrap_or(false)
    }

    /// Whether a line that belongs in the session's world may run in the engine as that now is; an
    /// error says why not.
    fn fits(&self, spec: &WorldSpec) -> Result<(), String> {
        match self.quarters {
            Quarters::World(world) => world.fit(spec),
            Quarters::Refused(why) => Err(why.clone()),
            Quarters::Beside => Err(
                "the policy wants lines in a session world, and this shell was started without one; \
                 leave it with `exit` and start a new one"
                    .to_owned(),
            ),
        }
    }

    /// A machine without worlds must be repairable: a person may let one line run that nothing holds.
    fn runs_unheld(&self, span: &SpanInfo) -> bool {
        let agreed = matches!(self.quarters, Quarters::Refused(_))
            && self.session.barrier().is_none()
            && asking::confirm("run this line all the same, outside a world?").unwrap_or(false);
        if agreed {
            approval::record(
                self.session,
                span,
                substrate_trace::Answer::Once,
                None,
                false,
            );
        }
        agreed
    }
}

fn request<'a>(
    line: &'a [u8],
    cwd: &'a Path,
    search_path: &'a std::ffi::OsStr,
    variables: &'a [(Vec<u8>, Vec<u8>)],
    aliases: &'a [(Vec<u8>, Vec<u8>)],
    around: Around<'a>,
) -> Request<'a> {
    Request {
        input: Input::Line(line),
        origin: Origin::Prompt,
        cwd,
        search_path,
        variables,
        aliases,
        isolate: false,
        around,
    }
}

/// What the engine said about the variables that its lines may use.
fn known(names: &Names) -> Vec<(Vec<u8>, Vec<u8>)> {
    let home = names.home.clone().map(OsString::into_vec);
    home.map(|home| (b"HOME".to_vec(), home))
        .into_iter()
        .collect()
}

fn bytes(pairs: &[(OsString, OsString)]) -> Vec<(Vec<u8>, Vec<u8>)> {
    pairs
        .iter()
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect()
}

impl Gate for PromptGate<'_> {
    fn hint(&mut self, line: &[u8], cwd: &Path, names: &Names) -> Option<Hint> {
        let evaluation = self.evaluate(line, cwd, names);
        let verdict = match evaluation.judgement.verdict {
            substrate_trace::Verdict::Allow if evaluation.judgement.isolate => Verdict::Isolate,
            substrate_trace::Verdict::Allow => return None,
            substrate_trace::Verdict::Isolate => Verdict::Isolate,
            substrate_trace::Verdict::Ask => Verdict::Ask,
            substrate_trace::Verdict::Deny => Verdict::Deny,
        };
        let rule = &evaluation.judgement.deciding()?.rule;
        let mode = if evaluation.would.is_some() {
            "would "
        } else {
            ""
        };
        let name = match verdict {
            Verdict::Deny => "deny",
            Verdict::Ask => "ask",
            Verdict::Isolate | Verdict::Allow => "isolate",
        };
        let note = format!("{mode}{name}: {}", rule.pattern);
        Some(Hint {
            verdict,
            note: visible(note.as_bytes()).chars().take(60).collect(),
            unclear: !evaluation.line.complete(),
        })
    }

    fn decide(&mut self, submission: &Submission<'_>) -> Decision {
        // In a world it has a terminal of its own and cannot type on this one.
        let beside = self.quarters.world().is_none().then_some(submission.engine);
        let beside = beside.and_then(|engine| u32::try_from(engine).ok());
        person::engine_waits(beside.unwrap_or_default());
        let own = self.own;
        if submission.line.trim_ascii_start().starts_with(b"substrate") {
            (submission.line_mode)();
        }
        let held = self.quarters.world().is_some();
        let exported = || {
            let mut all = (submission.variables)();
            all.retain(|(name, value)| is_taken_over(name.as_bytes(), value.as_bytes(), held));
            all
        };
        let carried = submission
            .typed
            .then(|| own.carry_out(self.session, submission.line, submission.cwd, &exported));
        if let Some(ending) = carried.flatten() {
            return told(ending.status());
        }
        let aliases = bytes(&submission.names.aliases);
        let known = known(submission.names);
        let search_path = self.search_path(submission.names);
        let first = self.environment_at_first(submission);
        let around = || variables::meaning(&(submission.variables)(), &first);
        let request = request(
            submission.line,
            submission.cwd,
            &search_path,
            &known,
            &aliases,
            Around::Asked(&around),
        );
        let evaluation = self.session.broker.evaluate(&request);
        self.session.heed_policy_changes();
        let line = OsString::from_vec(submission.line.to_vec());
        let mut span = self
            .session
            .span(&evaluation, line, Vec::new(), submission.cwd);
        let functions = match evaluation.answer {
            Answer::Ask(..) => {
                (submission.line_mode)();
                (submission.functions)()
            }
            _ => Vec::new(),
        };
        let aliases = submission.names.aliases.iter().map(|(name, _)| name);
        let known = preview::names(functions.iter().chain(aliases));
        let (line, cwd) = (submission.line, submission.cwd);
        let trial = Trial::of(self.session, line, cwd, &evaluation, &span, &known);
        let permit = approval::permit(self.session, &request, &evaluation, &span, trial.as_ref());
        let Some(permit) = permit else {
            return told(DENIED);
        };
        self.preview = permit.preview;
        let terms = permit.terms;
        // A line of builtins alone changes nothing that a snapshot would show.
        self.before = match starts_nothing(&evaluation) {
            true => None,
            false => Before::take(self.session, &mut span),
        };
        if let Some(shell) = self.before.as_ref().and_then(|_| shell_path()) {
            recording::circumstances(self.session, &evaluation, &shell, &mut span);
        }
        let decision = match &terms.place {
            Place::Isolated(_) => Decision::Elsewhere,
            _ if self.preview.is_some() => Decision::Elsewhere,
            place => {
                if let Place::Session(spec) = place
                    && let Err(why) = self.fits(spec)
                    && !starts_nothing(&evaluation)
                {
                    self.session.front.say(Kind::Failed, &why);
                    (submission.line_mode)();
                    if !self.runs_unheld(&span) {
                        return told(FAILED);
                    }
                }
                match self.quarters.world() {
                    Some(world) => {
                        span.place = Some("session");
                        span.world_id = Some(world.id());
                        world.begin(&span, &evaluation);
                    }
                    None => span.place = Some("direct"),
                }
                if !self.session.record_start(&span) && !self.runs_unrecorded(submission) {
                    return told(FAILED);
                }
                let parent = self.session.parent_of(&span);
                Decision::Run {
                    exports: vec![(PARENT_SPAN_VAR, parent)],
                }
            }
        };
        self.current = Some((span, evaluation));
        decision
    }

    /// The start was recorded when the line was decided, before anything of it could run.
    fn started(&mut self, _: &Submission<'_>) {
        self.began = Some(Instant::now());
        if self.quarters.world().is_some() {
            self.recording = Recording::begin_at_prompt(self.session);
        }
    }

    fn tap(&mut self) -> Option<Tap> {
        self.recording.tap()
    }

    fn time_limit(&mut self) -> Option<Duration> {
        self.quarters.world()?.time_limit()
    }

    fn run_elsewhere(&mut self, submission: &Submission<'_>, borrowed: &Borrowed<'_>) -> Outcome {
        let started = Instant::now();
        let before = self.before.take();
        let status = match (self.current.take(), self.preview.take()) {
            (Some((span, _)), Some(preview)) => preview.apply(self.session, span).status(),
            (Some((span, evaluation)), None) => isolated(
                self.session,
                submission,
                borrowed,
                span,
                &evaluation,
                before,
            ),
            (None, _) => FAILED,
        };
        Outcome {
            status,
            duration: started.elapsed(),
            cpu: None,
            cwd: submission.cwd.to_owned(),
            ended: false,
        }
    }

    fn finished(&mut self, _: &[u8], outcome: &Outcome) {
        // A refused line has left its violation, an isolated one was recorded where it ran.
        let Some((span, evaluation)) = self.current.take() else {
            return;
        };
        if span.place.is_none() {
            return;
        }
        walk::record_builtins(self.session, &evaluation, &span);
        let fs_diff = self.before.take().and_then(Before::changes);
        let mut done = Completion {
            exit: Some(outcome.status),
            duration: outcome.duration,
            scopes_used: recording::write_scopes(fs_diff.as_ref()).collect(),
            fs_diff,
            output: std::mem::take(&mut self.recording).finish(self.session),
            used: outcome.cpu.map(|cpu| Used { cpu, memory: None }),
            ..Completion::default()
        };
        if let Some(world) = self.quarters.world() {
            let used = world.used();
            let mut limits = used.limits;
            let began = self.began.take();
            if let (Some(began), Some(limit)) = (began, world.time_limit())
                && began.elapsed() >= limit
            {
                limits.push("time".into());
            }
            tell_limits(self.session, &span, &limits);
            let put_aside = tell_put_aside(self.session, &used.put_aside);
            let spec = world.spec();
            contained::tell_switches(self.session, &evaluation, &spec, outcome.status);
            let mut enforced = world.enforced();
            enforced.degraded.extend(put_aside);
            done.enforced = Some(enforced);
            done.scopes_used
                .extend(used.scopes.into_iter().map(OsString::from));
            done.net = used.net;
        }
        if let Quarters::Refused(why) = self.quarters {
            done.enforced = Some(Enforced {
                degraded: vec![format!("no world: {why}")],
                ..Enforced::default()
            });
        }
        self.session
            .record_or_warn(&Event::command_complete(&span, &done));
    }

    fn standing(&mut self, cwd: &Path) -> Standing {
        // An empty line is judged by whatever governs the directory.
        let here = self.evaluate(b"", cwd, &Names::default());
        Standing {
            policy: here.policy.id.clone(),
            mode: here.policy.mode.as_str().to_owned(),
            level: match (self.quarters, here.policy.mode) {
                (Quarters::World(world), _) => Some(world.enforced().level.as_str().to_owned()),
                (_, substrate_trace::Mode::Enforce) => Some("none".to_owned()),
                (_, substrate_trace::Mode::Observe) => None,
            },
        }
    }

    /// Lines of the trace that a person typed, which no start of the shell waits for.
    fn remembered(&mut self) -> Recall {
        let home = self.session.broker.home().path.clone();
        Box::new(move || past::lines(&home))
    }

    fn complete(&mut self, words: &[OsString]) -> Vec<OsString> {
        self.own.complete(self.session, words)
    }

    fn engine_starts(&mut self) {
        // Without a watch, changes are told with the next line.
        self.watch = policy_watch::announce(self.session, &self.announcer).ok();
        let home = self.session.broker.home().path.clone();
        let worlds = Arc::clone(&self.session.worlds);
        std::thread::spawn(move || gc::now_and_then(&home, || worlds.leftovers()));
    }

    fn listen(&mut self, wanted: bool) -> Option<OwnedFd> {
        self.quarters.world()?.listen(wanted)
    }

    fn attend(&mut self) {
        let since = Instant::now();
        if let Some(world) = self.quarters.world() {
            world.attend(self.session);
        }
        // What a person takes to answer is not the line's.
        if let Some(began) = &mut self.began {
            *began += since.elapsed();
        }
    }

    fn before_prompt(&mut self) {
        self.session.heed_policy_changes();
    }
}

/// The line does not run, and the person has been told why.
fn told(status: i32) -> Decision {
    Decision::Refuse {
        message: String::new(),
        status,
    }
}

/// Builtins and functions of the line alone start no program and need no world.
fn starts_nothing(evaluation: &Evaluation) -> bool {
    evaluation.line.complete()
        && evaluation.line.invocations.iter().all(|invocation| {
            let name = invocation
                .argv
                .first()
                .and_then(|word| word.value())
                .unwrap_or_default();
            invocation.argv.is_empty()
                || matches!(
                    name,
                    b"cd" | b"exit" | b"logout" | b"pwd" | b"export" | b"alias" | b"substrate"
                )
        })
}

/// Runs a line in a world, from a copy of the engine's state.
fn isolated(
    session: &Session,
    submission: &Submission<'_>,
    borrowed: &Borrowed<'_>,
    span: SpanInfo,
    evaluation: &Evaluation,
    before: Option<Before>,
) -> i32 {
    let (Answer::Allow(terms) | Answer::Ask(terms, _)) = &evaluation.answer else {
        return FAILED;
    };
    let Place::Isolated(spec) = &terms.place else {
        return FAILED;
    };
    // A file in memory, because the state of a shell is often longer than an argument may be.
    let program = memfd::sealed(c"line", &borrowed.state.program(submission.line));
    let shell = shell_path().and_then(|path| CString::new(path.into_os_string().into_vec()).ok());
    let (Some(shell), Ok(program)) = (shell, program) else {
        session
            .front
            .say(Kind::Failed, "the line cannot be handed to a world");
        return FAILED;
    };
    let read = format!("eval \"$(</proc/self/fd/{PROGRAM})\" {PROGRAM}<&-");
    let argv = [
        CString::from(c"bash"),
        CString::from(c"--norc"),
        CString::from(c"-c"),
        CString::new(read).unwrap_or_default(),
    ];
    let job = Contained {
        program: &shell,
        argv: &argv,
        judged: false,
        cwd: &borrowed.state.cwd,
        evaluation,
        spec,
        seconds: spec.limits.seconds,
        isolated: true,
        isolation: None,
        descriptors: &[(PROGRAM, program.as_fd())],
        hosting: None,
    };
    contained::run(session, &job, span, before).status()
}

/// The descriptor from which a world's shell reads its line, out of the way of what people type.
const PROGRAM: i32 = 199;
