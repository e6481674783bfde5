//! The gate behind the prompt: judges typed lines by the broker and records what became of them.

use std::cell::{Cell, OnceCell, RefCell};
use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use substrate_broker::env::is_taken_over;
use substrate_broker::{Around, Evaluation, Input, Origin, Request, Terms, person};
use substrate_changes::gc;
use substrate_executor::approval;
use substrate_executor::contained::{self, Contained};
use substrate_executor::exit_status::FAILED;
use substrate_executor::front::Kind;
use substrate_executor::limits::{tell_limits, tell_put_aside};
use substrate_executor::recording::Recording;
use substrate_executor::session::Session;
use substrate_executor::shell_path::shell_path;
use substrate_executor::variables;
use substrate_executor::walk::{self, Command, Here, NotRun, Placed, Ran, Way, walk};
use substrate_policy::terms::{Place, WorldSpec};
use substrate_runtime::supervise::Ending;
use substrate_sys::memfd;
use substrate_text::visible;
use substrate_trace::{Completion, Enforced, PARENT_SPAN_VAR, SpanInfo, Used};

use crate::arrival;
use crate::asking;
use crate::gate::{
    Arrival, End, FrontEnd, Gate, Hint, InEngine, Recall, Standing, Submission, Verdict,
};
use crate::names::Names;
use crate::notice::Announcer;
use crate::past;
use crate::policy_watch::{self, PolicyWatch};
use crate::session_world::{Quarters, SessionWorld};

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
    watch: RefCell<Option<PolicyWatch>>,
    /// When the line that runs in the engine got the terminal.
    began: Cell<Option<Instant>>,
    /// What the engine exported before the first line.
    first: OnceCell<Vec<(OsString, OsString)>>,
    /// The projects that the session works in, or has worked in.
    projects: RefCell<Vec<PathBuf>>,
    /// What a new engine cannot take over was said.
    told_what_stays: Cell<bool>,
    /// The terms of the next world, while the engine moves there.
    ahead: RefCell<Option<WorldSpec>>,
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
            watch: RefCell::default(),
            began: Cell::default(),
            first: OnceCell::new(),
            projects: RefCell::new(
                quarters
                    .world()
                    .and_then(|world| world.spec().project)
                    .into_iter()
                    .collect(),
            ),
            told_what_stays: Cell::default(),
            ahead: RefCell::default(),
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
    fn environment_at_first(&self, front_end: &Shared<'_>) -> &[(OsString, OsString)] {
        self.first.get_or_init(|| {
            let first = front_end.borrow_mut().variables();
            if let Some(world) = self.quarters.world() {
                world.begins_in(&first);
            }
            first
        })
    }

    /// Whether a line says itself that it leads where it has led.
    fn meant(&self, arrival: &Arrival<'_>) -> bool {
        let evaluation = self.evaluate(arrival.line, arrival.from, arrival.names);
        let home = &self.session.broker.home().user;
        arrival::named(arrival.line, &evaluation.line, arrival.from, home).as_deref()
            == Some(arrival.to)
    }

    /// Where the engine looks for programs, which start-up files may have changed.
    fn search_path(&self, names: &Names) -> OsString {
        let told = names.search_path.clone();
        told.unwrap_or_else(|| self.session.search_path())
    }
}

impl PromptGate<'_> {
    /// A full disk must be repairable: a person may let one line run that leaves no trace.
    fn runs_unrecorded(&self, front_end: &Shared<'_>) -> bool {
        front_end.borrow_mut().line_mode();
        self.session.barrier().is_none()
            && asking::confirm("run this line unrecorded?").unwrap_or(false)
    }

    /// Whether a line that belongs in the session's world may run in the engine as that now is; an
    /// error says why not.
    fn fits(&self, spec: &WorldSpec) -> Result<(), String> {
        match self.quarters {
            Quarters::World(world) => world.fit(self.session, spec),
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
    fn hint(&self, line: &[u8], cwd: &Path, names: &Names) -> Option<Hint> {
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

    fn submit(&self, submission: &Submission<'_>, front_end: &mut dyn FrontEnd) -> End {
        let front_end = &RefCell::new(front_end);
        if let Some(status) = self.own_command(submission, front_end) {
            return told(status);
        }
        let aliases = bytes(&submission.names.aliases);
        let known = known(submission.names);
        let search_path = self.search_path(submission.names);
        let first = self.environment_at_first(front_end);
        let around = || variables::meaning(&front_end.borrow_mut().variables(), first);
        let around = Around::Asked(&around);
        let (line, cwd) = (submission.line, submission.cwd);
        let command = Command {
            request: request(line, cwd, &search_path, &known, &aliases, around),
            cmd: OsString::from_vec(line.to_vec()),
            argv: Vec::new(),
        };
        let mut typed = TypedLine {
            gate: self,
            submission,
            front_end,
            shell: shell_path(),
            lent: None,
        };
        match walk(self.session, &command, &mut typed) {
            walk::Outcome::Refused(status) => told(status),
            walk::Outcome::Contained(ending) => End::Elsewhere(ending.status()),
            walk::Outcome::Here(_) => End::Ran,
        }
    }

    fn standing(&self, cwd: &Path) -> Standing {
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
    fn remembered(&self) -> Recall {
        let home = self.session.broker.home().path.clone();
        Box::new(move || past::lines(&home))
    }

    fn complete(&self, words: &[OsString]) -> Vec<OsString> {
        self.own.complete(self.session, words)
    }

    fn engine_starts(&self) {
        // Without a watch, changes are told with the next line.
        let watch = policy_watch::announce(self.session, &self.announcer).ok();
        self.watch.replace(watch);
        let home = self.session.broker.home().path.clone();
        let worlds = Arc::clone(&self.session.worlds);
        std::thread::spawn(move || gc::now_and_then(&home, || worlds.leftovers()));
    }

    fn listen(&self, wanted: bool) -> Option<OwnedFd> {
        self.quarters.world()?.listen(wanted)
    }

    fn attend(&self) {
        let since = Instant::now();
        if let Some(world) = self.quarters.world() {
            world.attend(self.session);
        }
        // What a person takes to answer is not the line's.
        if let Some(began) = self.began.get() {
            self.began.set(Some(began + since.elapsed()));
        }
    }

    fn before_prompt(&self) {
        self.session.heed_policy_changes();
    }

    /// Another project is another world: the old one's rules of the kernel cannot be loosened for what runs
    /// in it. Nothing but a person's own word opens one: the directory that he typed, or an answer.
    fn leads_on(&self, arrival: &Arrival<'_>) -> bool {
        let Some(world) = self.quarters.world() else {
            return false;
        };
        let Some(spec) = world.terms_for(self.session, arrival.to) else {
            return false;
        };
        let Some(project) = spec.project.clone() else {
            return false;
        };
        let shown = visible(project.as_os_str().as_bytes());
        let known = self.projects.borrow().contains(&project);
        let others = arrival::processes_beside(arrival.engine);
        // The way back needs no more than a `cd` that was typed: hooks of one project open no other.
        let meant =
            arrival.typed && (self.meant(arrival) || known && arrival::changes(arrival.line));
        let question = match (meant, others.is_empty()) {
            (true, true) => None,
            (_, true) => Some(format!("work in {shown} from here on?")),
            (_, false) => Some(format!(
                "work in {shown} from here on? That ends what still runs in this world ({})",
                others.join(", ")
            )),
        };
        if let Some(question) = question
            && !(self.session.barrier().is_none() && asking::confirm(&question).unwrap_or(false))
        {
            self.session.front.say(
                Kind::Info,
                &format!("what is written in {shown} is held back; `cd` there again to be asked once more"),
            );
            return false;
        }
        if !known {
            self.projects.borrow_mut().push(project);
        }
        self.ahead.replace(Some(spec));
        true
    }

    fn move_on(&self, engine: i32) -> bool {
        let (Some(world), Some(spec)) = (self.quarters.world(), self.ahead.take()) else {
            return false;
        };
        let project = spec.project.clone().unwrap_or_default();
        let shown = visible(project.as_os_str().as_bytes());
        match world.go_on(self.session, spec, engine) {
            Ok(()) => {
                let mut text = format!("{shown} is the project now");
                if !self.told_what_stays.replace(true) {
                    text.push_str(
                        ": variables, functions, aliases, options and /tmp come along; jobs, open descriptors, \
                         the directory stack and traps of DEBUG, ERR and RETURN do not",
                    );
                }
                self.session.front.say(Kind::Info, &text);
                true
            }
            Err(error) => {
                self.session.front.say(
                    Kind::Failed,
                    &format!("no world for {shown}: {error}; the shell stays where it was"),
                );
                false
            }
        }
    }

    fn moved_on(&self, engine: i32) {
        if let Some(world) = self.quarters.world() {
            world.unpack(engine);
        }
    }
}

/// The line does not run, and the person has been told why.
fn told(status: i32) -> End {
    End::Refused {
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

/// A line that was typed.
struct TypedLine<'a, 's, 'f> {
    gate: &'a PromptGate<'s>,
    submission: &'a Submission<'a>,
    front_end: &'a Shared<'f>,
    /// The shell that reads it in a world of its own.
    shell: Option<PathBuf>,
    lent: Option<Elsewhere>,
}

/// The front end while it lends itself.
type Shared<'f> = RefCell<&'f mut dyn FrontEnd>;

/// A line for a world of its own, which begins from a copy of the engine's state.
struct Elsewhere {
    shell: CString,
    argv: [CString; 4],
    /// The state and the line, in memory, because the state of a shell is often longer than an argument may be.
    program: OwnedFd,
    cwd: PathBuf,
}

impl Way for TypedLine<'_, '_, '_> {
    fn known_names(&mut self) -> Option<Vec<OsString>> {
        let mut front_end = self.front_end.borrow_mut();
        front_end.line_mode();
        let mut names = front_end.functions();
        let aliases = self.submission.names.aliases.iter();
        names.extend(aliases.map(|(name, _)| name.clone()));
        Some(names)
    }

    /// A line of builtins alone changes nothing that a snapshot would show.
    fn compares(&self, evaluation: &Evaluation) -> bool {
        !starts_nothing(evaluation)
    }

    fn place<'w>(
        &'w mut self,
        session: &'w Session,
        evaluation: &'w Evaluation,
        terms: Option<&'w Terms>,
        span: &mut SpanInfo,
    ) -> Result<Placed<'w>, NotRun> {
        let gate = self.gate;
        match terms.map(|terms| &terms.place) {
            Some(Place::Isolated(spec)) => return self.elsewhere(evaluation, spec),
            Some(Place::Session(spec)) => {
                if let Err(why) = gate.fits(spec)
                    && !starts_nothing(evaluation)
                {
                    session.front.say(Kind::Failed, &why);
                    self.front_end.borrow_mut().line_mode();
                    if !gate.runs_unheld(span) {
                        return Err(NotRun::new(FAILED, ""));
                    }
                }
            }
            Some(Place::Direct) | None => {}
        }
        if let Some(world) = gate.quarters.world() {
            span.place = Some("session");
            span.world_id = Some(world.id());
        }
        Ok(Placed::Here(Here {
            program: self.shell.as_deref(),
            unrecorded: Box::new(|| gate.runs_unrecorded(self.front_end)),
            run: Box::new(|span| gate.run_in_engine(evaluation, span, self.front_end)),
        }))
    }
}

impl TypedLine<'_, '_, '_> {
    /// In a world of its own.
    fn elsewhere<'w>(
        &'w mut self,
        evaluation: &'w Evaluation,
        spec: &'w WorldSpec,
    ) -> Result<Placed<'w>, NotRun> {
        let mut front_end = self.front_end.borrow_mut();
        let state = front_end.lend().state;
        let program = memfd::sealed(c"line", &state.program(self.submission.line));
        let shell = self.shell.clone().map(|path| path.into_os_string());
        let shell = shell.and_then(|path| CString::new(path.into_vec()).ok());
        let (Some(shell), Ok(program)) = (shell, program) else {
            return Err(NotRun::new(FAILED, "the line cannot be handed to a world"));
        };
        let read = format!("eval \"$(</proc/self/fd/{PROGRAM})\" {PROGRAM}<&-");
        let lent = self.lent.insert(Elsewhere {
            shell,
            argv: [
                CString::from(c"bash"),
                CString::from(c"--norc"),
                CString::from(c"-c"),
                CString::new(read).unwrap_or_default(),
            ],
            program,
            cwd: state.cwd,
        });
        Ok(Placed::World(Contained {
            program: &lent.shell,
            argv: &lent.argv,
            judged: false,
            cwd: &lent.cwd,
            evaluation,
            spec,
            seconds: spec.limits.seconds,
            isolated: true,
            isolation: None,
            descriptors: vec![(PROGRAM, lent.program.as_fd())],
            hosting: None,
        }))
    }
}

impl PromptGate<'_> {
    /// One of Substrate's own commands, which the front end carries out itself; its status.
    fn own_command(&self, submission: &Submission<'_>, front_end: &Shared<'_>) -> Option<i32> {
        // In a world it has a terminal of its own and cannot type on this one.
        let held = self.quarters.world().is_some();
        let beside = (!held).then_some(submission.engine);
        let beside = beside.and_then(|engine| u32::try_from(engine).ok());
        person::engine_waits(beside.unwrap_or_default());
        if submission.line.trim_ascii_start().starts_with(b"substrate") {
            front_end.borrow_mut().line_mode();
        }
        let exported = || {
            let mut all = front_end.borrow_mut().variables();
            all.retain(|(name, value)| is_taken_over(name.as_bytes(), value.as_bytes(), held));
            all
        };
        let (line, cwd) = (submission.line, submission.cwd);
        let carried = submission
            .typed
            .then(|| self.own.carry_out(self.session, line, cwd, &exported));
        carried.flatten().map(Ending::status)
    }

    /// Has the engine run a line, and gathers what is known of it afterwards.
    fn run_in_engine(
        &self,
        evaluation: &Evaluation,
        span: &SpanInfo,
        front_end: &Shared<'_>,
    ) -> Ran {
        let session = self.session;
        let world = self.quarters.world();
        let recording = match world {
            Some(world) => {
                world.begin(span, evaluation);
                Recording::begin_at_prompt(session)
            }
            None => Recording::default(),
        };
        let limit = world.and_then(SessionWorld::time_limit);
        self.began.set(Some(Instant::now()));
        let outcome = front_end.borrow_mut().run(InEngine {
            exports: vec![(PARENT_SPAN_VAR, session.parent_of(span))],
            tap: recording.tap(),
            time_limit: limit,
        });
        let began = self.began.take();
        let mut done = Completion {
            duration: outcome.duration,
            output: recording.finish(session),
            used: outcome.cpu.map(|cpu| Used { cpu, memory: None }),
            ..Completion::default()
        };
        if let Some(world) = world {
            let used = world.used();
            let mut limits = used.limits;
            if let (Some(began), Some(limit)) = (began, limit)
                && began.elapsed() >= limit
            {
                limits.push("time".into());
            }
            tell_limits(session, span, &limits);
            let put_aside = tell_put_aside(session, &used.put_aside);
            contained::tell_switches(session, evaluation, &world.spec(), outcome.status);
            let mut enforced = world.enforced();
            enforced.degraded.extend(put_aside);
            done.enforced = Some(enforced);
            done.scopes_used = used.scopes.into_iter().map(OsString::from).collect();
            done.net = used.net;
        }
        if let Quarters::Refused(why) = self.quarters {
            done.enforced = Some(Enforced {
                degraded: vec![format!("no world: {why}")],
                ..Enforced::default()
            });
        }
        Ran {
            ending: Some(Ending::Exit(outcome.status)),
            done: Some(done),
        }
    }
}

/// The descriptor from which a world's shell reads its line, out of the way of what people type.
const PROGRAM: i32 = 199;
