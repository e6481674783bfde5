//! The judge of program starts inside worlds: the broker's answer, what is said about it, and
//! what the trace keeps of it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use substrate_broker::env::{SUBSTRATE_JSON_ERRORS, json_errors};
use substrate_broker::facts::{Seen, find_program};
use substrate_broker::{
    Answer, Around, Broker, Evaluation, Input, Meaning, Origin, Request, Start,
};
use substrate_policy::settings::ExecRecord;
use substrate_starts::look::is_of_the_system;
use substrate_starts::{ExecJudge, ExecVerdict, Loaded, Program, ProgramStart, View};
use substrate_sys::environment;
use substrate_sys::real_path::real_path;
use substrate_text::command_line;
use substrate_trace::{
    Component, Event, Mode, Outcome, Redactor, Retention, RuleRef, SpanId, SpanInfo, Verdict,
    Writer, denial, denial_json,
};

use crate::copies::Copies;
use crate::ends::Ends;
use crate::front::{Front, Kind};
use crate::grant;
use crate::line::{Agreed, Environment, Line, Lines, Running, parent};
use crate::questions::{self, Desk, Question, Questions};
use crate::session::Session;
use crate::variables::{self, variables};

/// Where sentences go.
const STANDARD_ERROR: i32 = 2;
/// Most processes whose spans are remembered.
const REMEMBERED: usize = 1 << 16;
/// How far up the chain of parents spans are looked for.
const GENERATIONS: usize = 64;
/// How the command line of a prompt's engine ends.
const ENGINE: &str = "bash --noediting --norc --noprofile -i";

/// Judges program starts by the policies of a session.
pub struct StartJudge {
    broker: Broker,
    front: Arc<dyn Front>,
    search_path: OsString,
    writer: Result<Arc<Writer>, String>,
    /// Where starts that are let through are recorded, so are their ends.
    ends: OnceLock<Ends>,
    /// The descriptor of this process that refusals go to as JSON.
    json: Option<i32>,
    isolated: bool,
    lines: Mutex<Lines>,
    /// The environment of the session before anything changed it.
    first: Mutex<Option<Environment>>,
    copies: OnceLock<Copies>,
    /// What was refused last: who looks for a program along `PATH` tries several files.
    last: Mutex<Option<(i32, Vec<OsString>)>>,
    spans: Mutex<HashMap<i32, SpanId>>,
    desk: Mutex<Option<Desk>>,
}

impl StartJudge {
    /// A judge for worlds in which writes are held back, or not.
    pub fn new(
        broker: Broker,
        front: Arc<dyn Front>,
        search_path: &OsStr,
        writer: Result<Writer, String>,
        isolated: bool,
    ) -> StartJudge {
        // Shims are not there inside, so what a name means is found behind them.
        let home = &broker.home().path;
        let real = real_path(home).unwrap_or_else(|_| home.clone());
        let visible = std::env::split_paths(search_path)
            .filter(|directory| !directory.starts_with(home) && !directory.starts_with(&real));
        StartJudge {
            search_path: std::env::join_paths(visible).unwrap_or_else(|_| search_path.to_owned()),
            broker,
            front,
            writer: writer.map(Arc::new),
            ends: OnceLock::new(),
            json: None,
            isolated,
            lines: Mutex::default(),
            first: Mutex::default(),
            copies: OnceLock::new(),
            last: Mutex::default(),
            spans: Mutex::default(),
            desk: Mutex::default(),
        }
    }

    /// A judge for worlds that a session makes.
    pub fn of(session: &Session, isolated: bool) -> StartJudge {
        let broker = &session.broker;
        let redactor = Redactor::new(&broker.last_policy().settings().redact);
        let writer = Writer::open_with(&broker.home().path, Retention::default(), redactor);
        let mut judge = Self::new(
            broker.clone(),
            Arc::clone(&session.front),
            &session.search_path(),
            writer.map_err(|error| error.to_string()),
            isolated,
        );
        judge.begins_in(variables(&session.env));
        judge.json = json_errors(environment::get(&session.env, SUBSTRATE_JSON_ERRORS));
        judge
    }

    /// Says what the environment of the session is before anything has changed it.
    pub fn begins_in(&self, environment: Vec<(OsString, OsString)>) {
        *lock(&self.first) = Some(environment);
    }

    /// What the environment of a start makes of its words.
    fn meaning(&self, start: &ProgramStart<'_>) -> Meaning {
        let Ok(environment) = start.variables.read() else {
            return Meaning::unreadable();
        };
        let line = lock(&self.lines).of(start.thread);
        let session = lock(&self.first);
        let first = line.as_ref().and_then(|running| running.first.as_ref());
        let first = first.or(session.as_ref());
        variables::meaning(environment, first.unwrap_or(environment))
    }

    /// A judge for the worlds of replays, where commands look for programs along this path.
    pub fn replaying(broker: &Broker, front: Arc<dyn Front>, search_path: &OsStr) -> StartJudge {
        let redactor = Redactor::new(&broker.policy().settings().redact);
        let writer = Writer::open_with(&broker.home().path, Retention::default(), redactor);
        let writer = writer.map_err(|error| error.to_string());
        Self::new(broker.clone(), front, search_path, writer, true)
    }

    /// Has questions put to whoever holds what this returns; without it nobody can be asked.
    pub fn questions(&self) -> io::Result<Questions> {
        let (desk, questions) = questions::pair(&self.search_path)?;
        *lock(&self.desk) = Some(desk);
        Ok(questions)
    }

    /// Says that a command which runs beside others is about to be asked for, with what its environment is
    /// before anything changes it. Questions about it go to whoever holds what this returns.
    pub fn expect(&self, tag: u32, line: Line, first: Environment) -> io::Result<Questions> {
        let (desk, questions) = questions::pair(&self.search_path)?;
        let running = Running {
            line,
            first: Some(first),
            desk: Some(Mutex::new(desk)),
        };
        lock(&self.lines).expect(tag, running);
        Ok(questions)
    }

    /// Whether somebody attends to questions about that command.
    pub fn attended_to(&self, tag: u32, now: bool) {
        let running = lock(&self.lines).expected(tag);
        if let Some(desk) = running.as_ref().and_then(|running| running.desk.as_ref()) {
            lock(desk).attended = now;
        }
    }

    /// Says that it has ended.
    pub fn end(&self, tag: u32) {
        lock(&self.lines).end(tag);
    }

    /// Whether somebody attends to questions about what a thread starts.
    fn is_attended(&self, thread: i32) -> bool {
        let running = lock(&self.lines).of(thread);
        match running.as_ref().and_then(|running| running.desk.as_ref()) {
            Some(desk) => lock(desk).attended,
            None => lock(&self.desk).as_ref().is_some_and(|desk| desk.attended),
        }
    }

    /// Sends a question to whoever attends to them; `None` when nobody does.
    fn send(&self, thread: i32, question: Question) -> Option<()> {
        let running = lock(&self.lines).of(thread);
        match running.as_ref().and_then(|running| running.desk.as_ref()) {
            Some(desk) => Some(lock(desk))
                .filter(|desk| desk.attended)?
                .send(question),
            None => lock(&self.desk)
                .as_ref()
                .filter(|desk| desk.attended)?
                .send(question),
        }
    }

    /// Whether somebody attends to questions from now on; what comes otherwise is refused.
    pub fn attended(&self, now: bool) {
        if let Some(desk) = lock(&self.desk).as_mut() {
            desk.attended = now;
        }
    }

    /// Puts a start to the person; `None` when there is nobody.
    fn put(&self, start: &ProgramStart<'_>, evaluation: Evaluation) -> Option<Result<(), String>> {
        let (reply, answer) = mpsc::channel();
        let question = Question {
            argv: renamed(start.named.as_os_str(), &start.argv),
            cwd: start.cwd.clone(),
            parents: self.parents(start.thread),
            span: self.span(start, &evaluation)?,
            evaluation,
            reply,
        };
        self.send(start.thread, question)?;
        answer.recv().ok()
    }

    /// The commands that led to a start, the nearest first; in place of the shell behind a prompt
    /// stands what was typed there.
    fn parents(&self, process: i32) -> Vec<String> {
        let mut all = parents(process);
        if all.last().is_some_and(|last| last.ends_with(ENGINE)) {
            all.pop();
            let running = lock(&self.lines).of(process);
            all.extend(running.map(|running| running.line.cmd.to_string_lossy().into_owned()));
        }
        // Between fork and exec a process has the words of the one above it.
        all.dedup();
        all
    }

    /// Says which line is about to run. What a person agreed to in it is not asked about again.
    pub fn begin_line(&self, span: &SpanInfo, evaluation: &Evaluation) {
        self.begin(Line::new(span, evaluation));
    }

    /// The same for a line that is known as far as need be.
    pub fn begin(&self, line: Line) {
        let running = Running {
            line,
            first: None,
            desk: None,
        };
        lock(&self.lines).begin(running);
        lock(&self.spans).clear();
    }

    fn evaluate<T>(
        &self,
        start: &ProgramStart<'_>,
        then: impl FnOnce(&Request<'_>, Evaluation) -> T,
    ) -> T {
        let named = start.named.as_os_str();
        let file = start.program.as_ref();
        let seen = Inside {
            named: named.as_bytes(),
            file: file
                .map_or(named, |program| program.path.as_os_str())
                .as_bytes(),
            view: start.view,
            began: self.began(start),
        };
        let also = self.other_names(start);
        let argv = renamed(named, &start.argv);
        let around = || self.meaning(start);
        let request = Request {
            input: Input::Argv(&argv),
            origin: Origin::Guard,
            cwd: &start.cwd,
            search_path: &self.search_path,
            variables: &[],
            aliases: &[],
            isolate: false,
            around: Around::Asked(&around),
        };
        let evaluation = self.broker.evaluate_start(
            &request,
            Start {
                seen: &seen,
                also: &also,
                // A living world keeps the network that it has.
                own_network: self.broker.last_details().world.isolate_network,
                isolated: self.isolated,
                by: &|| starter(start),
            },
        );
        then(&request, evaluation)
    }

    fn began(&self, start: &ProgramStart<'_>) -> PathBuf {
        let running = lock(&self.lines).of(start.thread);
        running.map_or_else(|| start.cwd.clone(), |running| running.line.cwd.clone())
    }

    /// What a start also amounts to, besides the file that it names.
    fn other_names(&self, start: &ProgramStart<'_>) -> Vec<Vec<OsString>> {
        let mut all: Vec<Vec<OsString>> = Vec::new();
        // Programs with many faces go by what they are called.
        let called = start.argv.first().map(|name| Path::new(name.as_os_str()));
        if let Some(name) = called.and_then(Path::file_name) {
            let bytes = name.as_bytes();
            let name = OsStr::from_bytes(bytes.strip_prefix(b"-").unwrap_or(bytes));
            all.push(renamed(name, &start.argv));
        }
        // A link that the system itself has put there, as `sh`, means what it says.
        if let Some(program) = &start.program
            && !(is_of_the_system(&start.named) && is_of_the_system(&program.path))
        {
            all.extend(self.faces(program, &start.argv));
        }
        if let Some((program, argv)) = &start.interpreter {
            all.push(argv.clone());
            all.extend(self.faces(program, argv));
        }
        if let Some(starter) = &start.starter {
            all.extend(self.faces(starter, &start.argv));
        }
        if let Some(loaded) = &start.loaded {
            all.push(loaded.argv.clone());
            let program = loaded.program.iter();
            all.extend(program.flat_map(|program| self.faces(program, &loaded.argv)));
        }
        let git: Vec<Vec<OsString>> = all.iter().filter_map(|argv| as_git(argv)).collect();
        all.extend(git);
        let own = start
            .named
            .file_name()
            .map(|name| renamed(name, &start.argv));
        all.retain(|argv| Some(argv) != own.as_ref());
        all.sort();
        all.dedup();
        all
    }

    /// The names of a file: its own, and those of what it is a copy of.
    fn faces(&self, program: &Program, argv: &[OsString]) -> Vec<Vec<OsString>> {
        let mut names: Vec<&OsStr> = program.path.file_name().into_iter().collect();
        if !is_of_the_system(&program.path) {
            names.extend(self.copies().names(program));
        }
        names.iter().map(|name| renamed(name, argv)).collect()
    }

    fn copies(&self) -> &Copies {
        self.copies
            .get_or_init(|| Copies::find(&self.search_path, &|name| self.broker.speaks_of(name)))
    }

    fn span(&self, start: &ProgramStart<'_>, evaluation: &Evaluation) -> Option<SpanInfo> {
        let running = lock(&self.lines).of(start.thread)?;
        let mut span = running
            .line
            .below(Component::World, self.parent_span(start));
        let deciding = evaluation
            .judgement
            .deciding()
            .filter(|_| evaluation.judgement.verdict != Verdict::Allow);
        span.pid = start.thread.unsigned_abs();
        span.world_id = Some(start.world);
        span.policy_id = evaluation.policy.id.clone();
        span.mode = evaluation.policy.mode;
        span.profile = evaluation.profile_text();
        span.cwd = start.cwd.clone();
        span.argv = renamed(start.named.as_os_str(), &start.argv);
        span.cmd = command_line(&span.argv);
        span.verdict = Some(match evaluation.judgement.verdict {
            Verdict::Allow if evaluation.judgement.isolate => Verdict::Isolate,
            verdict => verdict,
        });
        span.rule = deciding.map(|reason| reason.rule.clone());
        span.reason = deciding.and_then(|reason| reason.rule.reason.clone());
        Some(span)
    }

    /// The span of the nearest process above that has one; before an exec, also its own.
    fn parent_span(&self, start: &ProgramStart<'_>) -> Option<SpanId> {
        let spans = lock(&self.spans);
        if spans.is_empty() {
            return None;
        }
        let mut process = start.thread;
        for _ in 0..GENERATIONS {
            if let Some(span) = spans.get(&process) {
                return Some(*span);
            }
            process = parent(process)?;
        }
        None
    }

    fn record(&self, event: &Event<'_>) -> Result<(), String> {
        match &self.writer {
            Ok(writer) => writer.write(event).map_err(|error| error.to_string()),
            Err(error) => Err(error.clone()),
        }
    }

    /// Refuses a start: records it, and says which rule it was.
    fn refuse(
        &self,
        start: &ProgramStart<'_>,
        evaluation: &Evaluation,
        rule: Option<&RuleRef>,
        why: &str,
    ) -> ExecVerdict {
        let again = Some((start.thread, start.argv.clone()));
        if std::mem::replace(&mut *lock(&self.last), again.clone()) == again {
            return ExecVerdict::Deny(String::new());
        }
        if self.recorded(ExecRecord::Denied)
            && let Some(span) = self.span(start, evaluation)
        {
            let _ = self.record(&Event::policy_violation(&span, Outcome::Deny));
        }
        let own = rule.and_then(|rule| rule.reason.as_deref());
        let reason = match (own, why) {
            (own, "") => own.unwrap_or("Command explicitly denied").to_owned(),
            (None, why) => why.to_owned(),
            (Some(own), why) => format!("{own}; {why}"),
        };
        ExecVerdict::Deny(self.told(start, evaluation, rule, &reason))
    }

    /// What a refusal says on the standard error of whoever started it: a sentence, or JSON where that was asked
    /// for there.
    fn told(
        &self,
        start: &ProgramStart<'_>,
        evaluation: &Evaluation,
        rule: Option<&RuleRef>,
        reason: &str,
    ) -> String {
        let policy = &evaluation.policy.id;
        let said = start.variables.read().ok().and_then(|all| {
            let set = all.iter().find(|(name, _)| name == SUBSTRATE_JSON_ERRORS);
            json_errors(set.map(|(_, value)| value.as_bytes()))
        });
        let sentence = || {
            self.front
                .line(Kind::Refused, &denial(policy, rule, reason))
        };
        let wanted = self
            .json
            .or(said.filter(|number| *number == STANDARD_ERROR));
        let Some(number) = wanted else {
            return sentence();
        };
        let verdict = evaluation.judgement.verdict;
        let line = command_line(&renamed(start.named.as_os_str(), &start.argv));
        let hint = format!(
            "`substrate policy explain -- {}` says what it is about",
            line.to_string_lossy()
        );
        let json = denial_json(verdict, policy, rule, reason, &hint);
        if number == STANDARD_ERROR {
            return String::from_utf8_lossy(json.trim_ascii_end()).into_owned();
        }
        let _ = substrate_sys::streams::write_to(number, &json);
        sentence()
    }

    /// Whether it can refuse something in a world of this mode, or has something to record.
    pub fn has_a_say(&self, mode: Mode) -> bool {
        mode == Mode::Enforce || self.recorded(ExecRecord::Denied)
    }

    /// Whether starts of this kind leave a span.
    fn recorded(&self, kind: ExecRecord) -> bool {
        // Looked up once for every start, by its judgement.
        match self.broker.last_details().trace.execs {
            ExecRecord::All => true,
            ExecRecord::Denied => kind == ExecRecord::Denied,
            ExecRecord::Off => false,
        }
    }

    fn allow(&self, start: &ProgramStart<'_>, evaluation: &Evaluation) -> ExecVerdict {
        if let Some((outcome, rule)) = &evaluation.would
            && self.recorded(ExecRecord::Denied)
            && let Some(mut span) = self.span(start, evaluation)
        {
            span.rule = rule.clone();
            let _ = self.record(&Event::policy_violation(&span, *outcome));
        }
        if !self.recorded(ExecRecord::All) {
            return ExecVerdict::Allow;
        }
        let Some(span) = self.span(start, evaluation) else {
            return ExecVerdict::Allow;
        };
        let mut spans = lock(&self.spans);
        if spans.len() >= REMEMBERED {
            spans.clear();
        }
        spans.insert(start.thread, span.span_id);
        drop(spans);
        match self.record(&Event::command_start(&span)) {
            Err(error) if evaluation.policy.mode == Mode::Enforce => {
                ExecVerdict::Deny(self.front.line(
                    Kind::Failed,
                    &format!("not started, because it cannot be recorded: {error}"),
                ))
            }
            _ => {
                if let Ok(writer) = &self.writer {
                    let ends = self.ends.get_or_init(|| Ends::watch(Arc::clone(writer)));
                    ends.began(span, start.thread);
                }
                ExecVerdict::Allow
            }
        }
    }

    /// Whether a person has agreed to exactly these words, here, in the line that runs.
    fn is_agreed(&self, start: &ProgramStart<'_>, denied: bool) -> bool {
        let Some(running) = lock(&self.lines).of(start.thread) else {
            return false;
        };
        let line = &running.line;
        if denied && !line.replaced {
            return false;
        }
        let file = start.program.as_ref();
        let same_program = |typed: &[u8]| {
            let typed = Path::new(OsStr::from_bytes(typed));
            let found = if typed.as_os_str().as_bytes().contains(&b'/') {
                start.view.real(&start.cwd.join(typed))
            } else {
                find_program(typed.as_os_str(), &self.search_path, &start.cwd)
                    .and_then(|path| real_path(path).ok())
            };
            found.is_some() && found == file.map(|file| file.path.clone())
        };
        let same_words = line.agreed.iter().any(|Agreed { place, words }| {
            *place == start.cwd
                && words
                    .first()
                    .is_some_and(|typed| same_program(typed.as_bytes()))
                && words.iter().skip(1).eq(start.argv.iter().skip(1))
        });
        // What the line itself says of variables was agreed to with it.
        let text = line.cmd.as_bytes();
        let unsaid = |meaning: Meaning| match line.seen {
            true => meaning.unsaid(text),
            false => meaning,
        };
        same_words && unsaid(self.meaning(start)) == unsaid(line.environment.clone())
    }
}

impl StartJudge {
    fn refused_by_person(&self, start: &ProgramStart<'_>, why: &str) -> ExecVerdict {
        self.evaluate(start, |_, evaluation| {
            let rule = evaluation.judgement.deciding().map(|reason| &reason.rule);
            self.refuse(start, &evaluation, rule, why)
        })
    }
}

impl ExecJudge for StartJudge {
    fn begins(&self, process: i32, tag: u32) {
        lock(&self.lines).begins(process, tag);
    }

    fn judge(&self, start: &ProgramStart<'_>) -> ExecVerdict {
        self.evaluate(start, |_, evaluation| {
            match &evaluation.answer {
                Answer::Deny(_) if self.is_agreed(start, true) => {}
                Answer::Deny(rule) => return self.refuse(start, &evaluation, rule.as_ref(), ""),
                Answer::Ask(..) if self.is_agreed(start, false) => {}
                Answer::Ask(..) => return ExecVerdict::Ask,
                Answer::Allow(_) => {}
            }
            let enforced = evaluation.policy.mode == Mode::Enforce;
            if enforced && let Some(why) = start.loaded.as_ref().and_then(uncertain) {
                return self.refuse(start, &evaluation, None, why);
            }
            self.allow(start, &evaluation)
        })
    }

    fn ask(&self, start: &ProgramStart<'_>) -> ExecVerdict {
        self.evaluate(start, |request, evaluation| {
            let Some(question) = &evaluation.question else {
                return ExecVerdict::Deny(
                    self.front.line(Kind::Refused, "this needs a person's approval"),
                );
            };
            let hint = format!(
                "this needs a person's approval, which cannot be asked for here. To approve it, a person can run: {}",
                grant::command(&self.broker, request, question)
            );
            if !self.is_attended(start.thread) {
                let rule = evaluation.judgement.deciding().map(|reason| &reason.rule);
                return self.refuse(start, &evaluation, rule, &hint);
            }
            // A person who said no to the first file along `PATH` has said no to the others.
            if *lock(&self.last) == Some((start.thread, start.argv.clone())) {
                return ExecVerdict::Deny(String::new());
            }
            match self.put(start, evaluation) {
                Some(Ok(())) => ExecVerdict::Allow,
                Some(Err(why)) => self.refused_by_person(start, &why),
                None => self.refused_by_person(start, &hint),
            }
        })
    }
}

/// Why a loader may run something else than what is judged.
fn uncertain(loaded: &Loaded) -> Option<&'static str> {
    match &loaded.program {
        None => Some("a loader whose program cannot be told; name it by its path"),
        Some(_) if !loaded.certain => Some(
            "a loader told to run a file that could be replaced before it is loaded; \
             start the program itself",
        ),
        Some(_) => None,
    }
}

/// The files of a world, for the broker.
struct Inside<'a> {
    named: &'a [u8],
    file: &'a [u8],
    view: &'a View,
    began: PathBuf,
}

impl Seen for Inside<'_> {
    fn program(&self) -> (&[u8], &[u8]) {
        (self.named, self.file)
    }

    fn real(&self, path: &Path) -> Option<PathBuf> {
        self.view.real(path)
    }

    fn began(&self) -> &Path {
        &self.began
    }
}

/// `git-push …` as `git push …`.
fn as_git(argv: &[OsString]) -> Option<Vec<OsString>> {
    let command = argv.first()?.as_bytes().strip_prefix(b"git-")?;
    let mut words = renamed(OsStr::new("git"), argv);
    words.insert(1, OsStr::from_bytes(command).to_owned());
    Some(words)
}

/// The arguments with another name in front.
fn renamed(name: &OsStr, argv: &[OsString]) -> Vec<OsString> {
    std::iter::once(name.to_owned())
        .chain(argv.iter().skip(1).cloned())
        .collect()
}

/// The commands above a process, the nearest first, up to the world's first process.
fn parents(process: i32) -> Vec<String> {
    const SHOWN: usize = 8;
    let mut all = Vec::new();
    let mut at = process;
    while all.len() < SHOWN {
        let words = fs::read(format!("/proc/{at}/cmdline")).unwrap_or_default();
        let name = fs::read_to_string(format!("/proc/{at}/comm")).unwrap_or_default();
        if words.is_empty() || name.trim_end() == "substrate-world" {
            break;
        }
        let words: Vec<&OsStr> = words
            .strip_suffix(b"\0")
            .unwrap_or(&words)
            .split(|byte| *byte == 0)
            .map(OsStr::from_bytes)
            .collect();
        all.push(command_line(&words).to_string_lossy().into_owned());
        match parent(at) {
            Some(next) => at = next,
            None => break,
        }
    }
    all
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The installed program that makes a start, by its name. Worlds hold these directories read-only. Once the
/// new program is in place nobody can tell any more.
fn starter(start: &ProgramStart<'_>) -> Option<OsString> {
    if start.in_place {
        return None;
    }
    let program = std::fs::read_link(format!("/proc/{}/exe", start.thread)).ok()?;
    let name = program.file_name()?.to_owned();
    let installed = ["/usr", "/bin", "/sbin", "/opt"];
    installed
        .iter()
        .any(|root| program.starts_with(root))
        .then_some(name)
}
