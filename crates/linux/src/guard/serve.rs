//! The workers: each takes a call, brings it to its end, and takes the next. What is judged is compared with what was
//! committed at the exec stop, against TOCTOU (time of check to time of use).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use substrate_sys::alarm::Alarm;
use substrate_sys::errno::{EACCES, ERESTARTNOINTR};
use substrate_sys::notify::{Call, CallKind, Ready};
use substrate_sys::process_group::readable;
use substrate_sys::tracee::{Stop, Tracee};

use substrate_starts::look::{self, Asked, Finder, Found, Program, Unread, View};
use substrate_starts::{ExecVerdict, ProgramStart, Variables};

use super::{Shared, connect, say};

/// Most questions that wait for a person at once; more is a flood, not a question.
const MOST_QUESTIONS: usize = 16;
/// Starts after a crowd that another worker is woken for at once.
const CROWD: usize = 64;
/// How long one start keeps the next one waiting.
const PATIENCE: Duration = Duration::from_millis(3);

/// Starts a worker.
pub(super) fn add_worker(shared: &Arc<Shared>, leads: Option<u64>) -> io::Result<()> {
    Shared::add(&shared.workers);
    Shared::add(&shared.idle);
    let own = shared.clone();
    let started = thread::Builder::new()
        .name("substrate-guard".to_owned())
        .spawn(move || work(&own, leads));
    match started {
        Ok(_) => Ok(()),
        Err(error) => {
            Shared::take(&shared.workers);
            Shared::take(&shared.idle);
            Err(error)
        }
    }
}

/// Who takes the next call.
#[derive(Default)]
pub(super) struct Lead {
    /// How often it went from one worker to another.
    terms: u64,
    /// The leader is busy with a call, and from then on somebody else leads.
    until: Option<Instant>,
    /// When the alarm rings. Setting it costs more than being woken for nothing now and then, so it
    /// stays set while calls come and go.
    rings: Option<Instant>,
}

impl Lead {
    /// Has another worker take over after a time, if the call takes that long.
    fn lend(&mut self, time: Duration, relief: &Alarm) {
        let until = Instant::now() + time;
        self.until = Some(until);
        if self.rings.is_none_or(|rings| rings > until) {
            self.rings = Some(until);
            relief.ring_in(time);
        }
    }
}

fn lead(shared: &Shared) -> MutexGuard<'_, Lead> {
    shared.lead.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work(shared: &Arc<Shared>, mut leads: Option<u64>) {
    while let Some(term) = leads.or_else(|| stand_by(shared)) {
        let Some(call) = next(shared) else {
            // Should it be only this worker that cannot go on, another one does.
            lead(shared).lend(Duration::ZERO, &shared.relief);
            break;
        };
        let idle = Shared::take(&shared.idle);
        // Should one call take its time, the next one need not wait for it.
        let patience = match crowded(shared) {
            true => Duration::ZERO,
            false => PATIENCE,
        };
        if idle == 0 && may_grow(shared) {
            // One worker less is slower, not weaker.
            let _ = add_worker(shared, None);
        }
        lead(shared).lend(patience, &shared.relief);
        // Whatever goes wrong with one start, the next one still needs a guard.
        let started = catch_unwind(AssertUnwindSafe(|| handle(shared, &call)));
        Shared::add(&shared.idle);
        let mut lead = lead(shared);
        leads = Some(term).filter(|term| *term == lead.terms);
        if leads.is_some() {
            lead.until = None;
        }
        drop(lead);
        // It runs where we do, so nothing but waiting is left to be done.
        if let Ok(Some(tracee)) = started {
            tracee.let_go();
        }
    }
    Shared::take(&shared.workers);
    Shared::take(&shared.idle);
}

/// Waits until the leader has been busy for too long, and takes over.
fn stand_by(shared: &Shared) -> Option<u64> {
    loop {
        let ready = readable(&[shared.relief.as_fd(), shared.stopped.as_fd()], None).ok()?;
        if ready.get(1).is_some_and(|stopped| *stopped) {
            return None;
        }
        if !shared.relief.heard() {
            continue;
        }
        let mut lead = lead(shared);
        lead.rings = None;
        let Some(until) = lead.until else { continue };
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => {
                lead.until = None;
                lead.terms += 1;
                return Some(lead.terms);
            }
            left => lead.lend(left, &shared.relief),
        }
    }
}

/// Whether calls come faster than one worker brings them to their end. Where they do not, it would
/// take longer to wake another one for each than to judge.
fn crowded(shared: &Shared) -> bool {
    let workers = shared.workers.load(Ordering::Acquire);
    let busy = workers.saturating_sub(shared.idle.load(Ordering::Acquire));
    if busy > 1 || shared.listener.has_call() {
        shared.crowd.store(CROWD, Ordering::Release);
        return true;
    }
    let left = |left: usize| left.checked_sub(1);
    shared
        .crowd
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, left)
        .is_ok()
}

/// One worker for each processor, besides those that wait for a person or another machine.
fn may_grow(shared: &Shared) -> bool {
    let count = |counter: &AtomicUsize| counter.load(Ordering::Acquire);
    let waiting = count(&shared.asking) + count(&shared.connecting);
    let busy = count(&shared.workers).saturating_sub(waiting);
    // Asking reads files of the machine's control groups.
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    busy < *PROCESSORS.get_or_init(|| thread::available_parallelism().map_or(2, |n| n.get().max(2)))
}

fn next(shared: &Shared) -> Option<Call> {
    loop {
        match shared.listener.wait(shared.stopped.as_fd()) {
            Ok(Ready::Call) => match shared.listener.receive() {
                Ok(Some(call)) => return Some(call),
                Ok(None) => {}
                Err(_) => return None,
            },
            Ok(Ready::Over | Ready::Stopped) | Err(_) => return None,
        }
    }
}

/// A call that fails unless it is answered otherwise.
struct Answer<'a> {
    shared: &'a Shared,
    call: &'a Call,
    given: bool,
}

impl Answer<'_> {
    fn pass(mut self) -> bool {
        self.given = true;
        self.shared.listener.pass(self.call)
    }

    fn done(mut self) {
        self.given = true;
        self.shared.listener.done(self.call);
    }

    fn fail(mut self, errno: i32) {
        self.given = true;
        self.shared.listener.fail(self.call, errno);
    }

    /// Says why, then fails.
    fn refuse(self, why: &str) {
        if !why.is_empty() {
            say::on_stderr(self.call.thread, why);
        }
        self.fail(EACCES);
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        if !self.given {
            self.shared.listener.fail(self.call, EACCES);
        }
    }
}

/// Brings one call to its end. What was found to be in order is still held then.
fn handle(shared: &Arc<Shared>, call: &Call) -> Option<Tracee> {
    let answer = Answer {
        shared,
        call,
        given: false,
    };
    if call.kind == CallKind::Connect {
        match connect::connect(shared, call) {
            Ok(()) => answer.done(),
            Err(errno) => answer.fail(errno),
        }
        return None;
    }
    let own = shared.own_starts.as_ref();
    if let Some(tag) = own.and_then(|own| own.take(call.thread)) {
        shared.judge.begins(call.thread, tag);
        answer.pass();
        return None;
    }
    let (asked, cwd, view) = match read(shared, call) {
        Ok(read) => read,
        Err(Unread::Errno(errno)) => {
            answer.fail(errno);
            return None;
        }
        Err(Unread::Refused(_)) if !shared.terms.enforce => {
            answer.pass();
            return None;
        }
        Err(Unread::Refused(error)) => {
            answer.refuse(&format!(
                "substrate: refused: what is to be started cannot be read ({error})"
            ));
            return None;
        }
    };
    if !shared.listener.is_waiting(call) {
        return None;
    }
    let finder = Finder {
        thread: call.thread,
        view: &view,
        cwd: &cwd,
        images: &shared.images,
        compared: shared.terms.recheck,
        roots_change: shared.terms.roots_change,
    };
    let program = match finder.find(&asked) {
        Found::Missing(errno) => {
            answer.fail(errno);
            return None;
        }
        Found::File(program) => Some(Arc::new(program)),
        Found::Unknown => None,
    };
    let interpreter = program.as_ref().and_then(|program| {
        let (program, argv) = finder.interpreter(program, &script_name(&asked), &asked.argv)?;
        Some((Arc::new(program), argv))
    });
    let (last, words) = match &interpreter {
        Some((program, argv)) => (Some(program), argv),
        None => (program.as_ref(), &asked.argv),
    };
    let only_lists = || look::only_lists(call.thread, asked.variables);
    let loaded = last.and_then(|program| finder.loaded(program, words, only_lists));
    let starter = last.and_then(|program| finder.starter(program));
    let named = named(&asked, program.as_deref());
    let start = ProgramStart {
        world: shared.world,
        thread: call.thread,
        named,
        argv: asked.argv,
        program,
        interpreter,
        starter: starter.map(Arc::new),
        loaded,
        cwd,
        variables: Variables::at(call.thread, asked.variables),
        view: &view,
        in_place: false,
    };
    let mut verdict = shared.judge.judge(&start);
    if verdict == ExecVerdict::Ask {
        verdict = ask(shared, &start);
        if !shared.listener.is_waiting(call) {
            return None;
        }
    }
    match verdict {
        ExecVerdict::Deny(why) => answer.refuse(&why),
        ExecVerdict::Ask => answer.refuse("substrate: refused: nobody can be asked"),
        ExecVerdict::Allow if !shared.terms.recheck => {
            answer.pass();
        }
        ExecVerdict::Allow => return watch(shared, answer, &start),
    }
    None
}

/// Lets a start go on and looks at what came of it; what may run on is still held.
fn watch(shared: &Arc<Shared>, answer: Answer<'_>, start: &ProgramStart<'_>) -> Option<Tracee> {
    let mut tracee = match take(shared, start.thread) {
        Ok(tracee) => tracee,
        Err(None) => {
            answer.fail(ERESTARTNOINTR);
            return None;
        }
        Err(Some(error)) => {
            answer.refuse(&format!(
                "substrate: refused: a start that cannot be watched ({error}); \
                 `world.allow: [ptrace]` lets debuggers work"
            ));
            return None;
        }
    };
    let watched = Watched::begin(shared, start.thread);
    // Whoever does not wait for the answer any more is about to end or to ask again.
    answer.pass();
    // Asked for before the answer, a stop would wake the caller twice.
    tracee.stop();
    watched.will_stop();
    let stop = tracee.wait();
    drop(watched);
    match stop {
        Ok(Stop::Exec(process)) => match in_place(shared, process, &tracee, start) {
            Ok(()) => return Some(tracee),
            Err(why) => {
                say::on_stderr(process, &why);
                tracee.kill();
            }
        },
        Ok(Stop::NoExec) => return Some(tracee),
        Ok(Stop::Gone) => {}
        Err(_) => tracee.kill(),
    }
    None
}

/// Takes the thread that starts something; `None` when that has to be asked for anew. A start may fail
/// and the next one of the same thread be another worker's before the first has heard of it: nobody
/// can hold the thread twice, and it stops for the first only when it is not in a call any more.
fn take(shared: &Shared, thread: i32) -> Result<Tracee, Option<io::Error>> {
    loop {
        let error = match Tracee::take(thread) {
            Ok(tracee) => return Ok(tracee),
            Err(error) => error,
        };
        let mut all = watched(shared);
        let at = |all: &[(i32, bool)]| all.iter().position(|(watched, _)| *watched == thread);
        if at(&all).is_none() {
            // Nobody of ours: or not any more, and then it is free.
            drop(all);
            return Tracee::take(thread).map_err(|_| Some(error));
        }
        while let Some(found) = at(&all) {
            if all[found].1 {
                return Err(None);
            }
            all = shared
                .stopping
                .wait(all)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn watched(shared: &Shared) -> MutexGuard<'_, Vec<(i32, bool)>> {
    shared
        .watched
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// A thread whose stop a worker waits for, and whether it was asked to.
struct Watched<'a> {
    shared: &'a Shared,
    thread: i32,
}

impl<'a> Watched<'a> {
    fn begin(shared: &'a Shared, thread: i32) -> Self {
        watched(shared).push((thread, false));
        Self { shared, thread }
    }

    fn will_stop(&self) {
        let mut all = watched(self.shared);
        let own = all.iter_mut().find(|(thread, _)| *thread == self.thread);
        if let Some((_, asked)) = own {
            *asked = true;
        }
        drop(all);
        self.shared.stopping.notify_all();
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        // An exec gives a thread the number of another, so one number may be there twice.
        let mut all = watched(self.shared);
        if let Some(own) = all.iter().position(|(thread, _)| *thread == self.thread) {
            all.remove(own);
        }
        drop(all);
        self.shared.stopping.notify_all();
    }
}

/// Compares what a process has become with what was judged; anything else is judged anew.
fn in_place(
    shared: &Arc<Shared>,
    process: i32,
    tracee: &Tracee,
    judged: &ProgramStart<'_>,
) -> Result<(), String> {
    let unread = |error: io::Error| {
        format!("substrate: ended: what was started cannot be looked at ({error})")
    };
    let beginning = tracee.beginning().map_err(unread)?;
    let argv = look::words(process, beginning.words).map_err(unread)?;
    let expected = match &judged.interpreter {
        Some((program, argv)) => Some((program, argv)),
        None => judged
            .program
            .as_ref()
            .map(|program| (program, &judged.argv)),
    };
    let as_judged = expected
        .filter(|(program, words)| program.is_run_by(process) && **words == argv)
        .map(|(program, _)| program.clone());
    let is_as_judged = as_judged.is_some();
    let program = match as_judged {
        Some(program) => program,
        None => Arc::new(Program::running(process, &shared.images).map_err(unread)?),
    };
    let finder = Finder {
        thread: process,
        view: judged.view,
        cwd: &judged.cwd,
        images: &shared.images,
        compared: false,
        roots_change: shared.terms.roots_change,
    };
    let starter = finder.begun(&program, beginning.instruction);
    let starter = starter.map_err(unread)?;
    let variables = Variables::at(process, beginning.variables(argv.len()));
    // What a loader will do depends on its variables too, which may have changed, and a person's word may
    // depend on those of any program.
    let is_as_judged = is_as_judged && judged.variables.are_still(&variables);
    if is_as_judged && starter.is_none() && !program.image.loader {
        return Ok(());
    }
    let only_lists = || look::only_lists(process, beginning.variables(argv.len()));
    let start = ProgramStart {
        world: shared.world,
        loaded: finder.loaded(&program, &argv, only_lists),
        starter: starter.map(Arc::new),
        thread: process,
        named: program.path.clone(),
        argv,
        program: Some(program),
        interpreter: None,
        cwd: judged.cwd.clone(),
        variables,
        view: judged.view,
        in_place: true,
    };
    match shared.judge.judge(&start) {
        ExecVerdict::Allow => Ok(()),
        ExecVerdict::Deny(why) => Err(why),
        ExecVerdict::Ask => Err(
            "substrate: ended: what was started is not what was asked for, and needs approval"
                .to_owned(),
        ),
    }
}

/// Has a person asked while another worker takes over.
fn ask(shared: &Arc<Shared>, start: &ProgramStart<'_>) -> ExecVerdict {
    if Shared::add(&shared.asking) > MOST_QUESTIONS {
        Shared::take(&shared.asking);
        return ExecVerdict::Deny("substrate: refused: too many questions at once".to_owned());
    }
    if shared.idle.load(Ordering::Acquire) == 0 {
        let _ = add_worker(shared, None);
    }
    let mut lead = lead(shared);
    if lead.until.is_some() {
        lead.lend(Duration::ZERO, &shared.relief);
    }
    drop(lead);
    let verdict = shared.judge.ask(start);
    Shared::take(&shared.asking);
    verdict
}

fn read(shared: &Shared, call: &Call) -> Result<(Asked, PathBuf, View), Unread> {
    let asked = Asked::read(call)?;
    let cwd = fs::read_link(format!("/proc/{}/cwd", call.thread)).map_err(Unread::Refused)?;
    let view =
        View::of(call.thread, &shared.root, shared.terms.roots_change).map_err(Unread::Refused)?;
    Ok((asked, cwd, view))
}

/// The name under which the kernel tells an interpreter of its script.
fn script_name(asked: &Asked) -> OsString {
    if asked.directory == look::HERE || Path::new(&asked.path).is_absolute() {
        return asked.path.clone();
    }
    let mut name = OsString::from(format!("/dev/fd/{}", asked.directory));
    if !asked.path.is_empty() {
        name.push("/");
        name.push(&asked.path);
    }
    name
}

/// The file as the caller named it, in a way that reads as a path.
fn named(asked: &Asked, program: Option<&Program>) -> PathBuf {
    let bytes = asked.path.as_bytes();
    if bytes.is_empty() || look::is_own_link(&asked.path) {
        return program.map_or_else(
            || PathBuf::from(script_name(asked)),
            |program| program.path.clone(),
        );
    }
    if bytes.contains(&b'/') {
        PathBuf::from(&asked.path)
    } else {
        Path::new(".").join(&asked.path)
    }
}
