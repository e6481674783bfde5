//! Running a job in a world, and settling what it left.

use std::ffi::{CString, OsString};
use std::io::{ErrorKind, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use substrate_broker::Evaluation;
use substrate_changes::apply::{self, ApplyOptions};
use substrate_changes::diff;
use substrate_changes::gc;
use substrate_changes::observer::Observer;
use substrate_changes::patch::{self, Paint, ShowError, Totals};
use substrate_changes::pending::Pending;
use substrate_policy::settings::Snapshots;
use substrate_policy::terms::{Mode, OnFinish, WorldSpec};
use substrate_runtime::supervise::Ending;
use substrate_sys::usage;
use substrate_text::visible;
use substrate_trace::{Completion, Event, FsDiff, SpanInfo, WorldEvent};
use substrate_world::backend::{
    self, Beside, ExecPlace, ExecRequest, ExecResult, ExecStreams, Status, Stdio,
};
use substrate_world::error::WorldError;

use crate::approval;
use crate::exit_status::{DENIED, FAILED, NOT_FOUND};
use crate::front::{Choice, GivenStdio, GivenStreams, HeldChanges, Kind, Streams};
use crate::guarded::StartJudge;
use crate::hosting::Hosting;
use crate::isolation::Isolation;
use crate::limits::{tell_limits, tell_put_aside};
use crate::line::Line;
use crate::network::Teller;
use crate::recording::{self, Recording};
use crate::session::Session;
use crate::snapshot::Before;
use crate::switches;
use crate::time_limit::tell_timeout;
use crate::variables::variables;
use crate::worlds::{Borrowing, Oversight};

/// What is to run in a world.
pub struct Contained<'a> {
    /// The file to execute.
    pub program: &'a CString,
    /// Its arguments.
    pub argv: &'a [CString],
    /// The guard of the world judges its start too.
    pub judged: bool,
    /// Where.
    pub cwd: &'a Path,
    /// How it was judged.
    pub evaluation: &'a Evaluation,
    /// The terms of the world.
    pub spec: &'a WorldSpec,
    /// How long the policy lets a command take, which may be longer than its terms do.
    pub seconds: Option<u32>,
    /// Its writes are held back.
    pub isolated: bool,
    /// What was asked for about the isolation, besides the policy's.
    pub isolation: Option<&'a Isolation>,
    /// Further descriptors that it gets, with their numbers.
    pub descriptors: Vec<(i32, BorrowedFd<'a>)>,
    /// What its world has besides, where it is an agent.
    pub hosting: Option<&'a Hosting>,
}

/// Runs it to its end, records it, and settles what an isolated world held back.
pub fn run(
    session: &Session,
    job: &Contained<'_>,
    mut span: SpanInfo,
    before: Option<Before>,
) -> Ending {
    span.place = Some(if job.isolated { "isolated" } else { "session" });
    let teller = Teller::new(session);
    let judge = Arc::new(StartJudge::of(session, job.isolated));
    judge.begin_line(&span, job.evaluation);
    let questions = match judge.questions() {
        Ok(questions) => questions,
        Err(error) => {
            session
                .front
                .say(Kind::Failed, &format!("cannot make a socket pair: {error}"));
            return Ending::Exit(FAILED);
        }
    };
    let mut answer = || {
        approval::answer(session, &questions);
        true
    };
    let mut beside = Beside {
        fd: questions.bell(),
        call: &mut answer,
    };
    let mut oversight = Oversight::default();
    if judge.has_a_say(job.spec.mode) {
        oversight.judge = Some(judge);
    }
    if !job.isolation.is_some_and(|isolation| isolation.no_net) {
        match teller.wire_of_command(session, job.spec, job.cwd, job.hosting) {
            Ok(wire) => oversight.network = Some(wire),
            Err(why) => {
                session.front.say(Kind::Failed, &why);
                return Ending::Exit(FAILED);
            }
        }
    }
    if !job.isolated && job.hosting.is_none() && session.borrows() {
        oversight.borrowing = Some(Borrowing {
            broker: session.broker.clone(),
            front: Arc::clone(&session.front),
            line: Line::new(&span, job.evaluation),
            seconds: job.seconds,
        });
    }
    let worlds = session.worlds.backend(oversight);
    teller.begin(&span);
    let (mut streams, recording) = match session.front.streams() {
        Ok(Streams::Own(own)) => {
            let recording = Recording::begin(session, own, true);
            (ExecStreams::default(), recording)
        }
        Ok(Streams::Given(given)) => (elsewhere_streams(given), Recording::default()),
        Err(error) => {
            let text = format!("there are no streams for the command: {error}");
            session.front.say(Kind::Failed, &text);
            return Ending::Exit(FAILED);
        }
    };
    let request = request(session, job, &span);
    streams.fds = descriptors(job);
    streams.tap = recording.tap();
    let mut recorded = None;
    let mut begin = || *recorded.get_or_insert_with(|| session.record_start(&span));
    let started = Instant::now();
    let used_before = usage::of_children();
    let own_streams = !matches!(streams.stdio, Stdio::Given(_) | Stdio::Terminal(..));
    let again = job.isolation.and_then(|isolation| isolation.again.as_ref());
    let earlier_id = again.map(|held| held.world.to_string());
    let place = if let Some(earlier_id) = &earlier_id {
        ExecPlace::again(job.spec, earlier_id)
    } else if job.isolated {
        ExecPlace::fresh(job.spec)
    } else {
        ExecPlace::once(job.spec)
    };
    let command = backend::ExecJob {
        request: &request,
        streams: &streams,
    };
    let result = worlds.exec_beside(place, command, Some(&mut beside), &mut begin);
    // A world that could not be made ends a command that has begun.
    let begun = begin();
    teller.finish();
    drop(streams);
    let duration = started.elapsed();
    // A process that runs commands for several cannot tell whose children used what.
    let used = own_streams.then(|| recording::used_since(used_before));
    let output = recording.finish(session);
    if !begun {
        return Ending::Exit(FAILED);
    }
    let mut result = match result {
        Ok(result) => result,
        Err(error) => {
            let ending = failed(session, &span, &error, duration);
            if let WorldError::Gone(world) = error {
                tell_kept(session, &span, &job.spec.substrate_home, &world.to_string());
            }
            return ending;
        }
    };
    if let Some(hosting) = job.hosting {
        let not_held = hosting.not_held.iter().cloned();
        result.enforced.degraded.extend(not_held);
    }
    session.tell_weakness(&result.enforced);
    span.world_id = Some(result.world);
    if let Some(replay) = &mut span.replay {
        replay.world_image_version = Some(recording::image(result.enforced.level.as_str()));
    }
    match (session.timeout, job.seconds) {
        // It was not the policy's time that was up.
        (Some(time), of_policy)
            if of_policy.is_none_or(|policy| time.as_secs() < policy.into()) =>
        {
            let others = result
                .limits_reached
                .iter()
                .filter(|limit| *limit != "time");
            tell_limits(session, &span, &others.cloned().collect::<Vec<_>>());
        }
        _ => tell_limits(session, &span, &result.limits_reached),
    }
    let put_aside = tell_put_aside(session, &result.put_aside);
    result.enforced.degraded.extend(put_aside);
    tell_switches(session, job.evaluation, job.spec, result.status.code());
    let ran_out = result.limits_reached.iter().any(|limit| limit == "time");
    let ending = match result.status {
        _ if ran_out && session.timeout.is_some() => tell_timeout(session),
        Status::Exited(status) => Ending::Exit(status),
        Status::Signaled(signal) => Ending::Signal(signal),
    };
    // A replay compares contents by this hash.
    let hashed = session.broker.last_details().trace.snapshot != Snapshots::Off;
    let mut progress = session.front.progress();
    let settled = result
        .held
        .as_ref()
        .map(|held| worlds.fs_diff(held, hashed, &mut progress));
    drop(progress);
    let held = result.held.as_ref().and_then(|held| Pending::of(held).ok());
    let held_back = match settled {
        Some(Err(error)) => {
            let text = format!("the changes of the command could not be recorded: {error}");
            session.front.say(Kind::Warning, &text);
            None
        }
        other => other.and_then(Result::ok),
    };
    let unchanged = held_back.as_ref().is_some_and(FsDiff::is_empty);
    let fs_diff = match (before, &held) {
        (Some(before), Some(pending)) if job.isolated => {
            let after = before.after_world(pending, !unchanged);
            if let Some(replay) = &mut span.replay {
                replay.after_tree = after;
            }
            held_back
        }
        // A session's world writes to the project itself.
        (Some(before), _) if !job.isolated => before.changes_with(held_back),
        _ => held_back,
    };
    let done = Completion {
        duration,
        fs_diff,
        output,
        used: used.filter(|used| !used.cpu.is_zero()),
        ..Completion::default()
    };
    finish(session, &span, &result, ending, done);
    if let Some(mut pending) = held {
        if again.is_some() {
            // Recorded just now; were it not, the next look would do it.
            let _ = pending.explored();
        }
        if unchanged {
            let _ = gc::forget(&mut pending);
        } else {
            worlds.see_off();
            if job.isolated {
                settle_result(session, job, &span, pending);
            } else {
                settle_home(session, &span, job.spec, pending);
            }
        }
    }
    if job.isolated {
        gc::now_and_then(&job.spec.substrate_home, || session.worlds.leftovers());
    }
    ending
}

fn request(session: &Session, job: &Contained<'_>, span: &SpanInfo) -> ExecRequest {
    let os = |text: &CString| OsString::from_vec(text.as_bytes().to_vec());
    ExecRequest {
        program: os(job.program),
        argv: job.argv.iter().map(os).collect(),
        env: variables(&session.child_env(span)),
        cwd: job.cwd.to_owned(),
        umask: None,
        span: Some(span.span_id),
        line: span.cmd.clone(),
        judged: job.judged,
        tag: 0,
    }
}

fn elsewhere_streams(given: GivenStreams) -> ExecStreams {
    let (stdio, master) = match given.stdio {
        GivenStdio::Streams(streams) => (Stdio::Given(streams), None),
        GivenStdio::Terminal(size, master) => {
            (Stdio::Terminal(size.rows, size.columns), Some(master))
        }
    };
    ExecStreams {
        stdio,
        master,
        abandoned: given.abandoned,
        ..ExecStreams::default()
    }
}

fn descriptors(job: &Contained<'_>) -> Vec<(i32, OwnedFd)> {
    let descriptors = job.descriptors.iter();
    descriptors
        .filter_map(|(number, fd)| Some((*number, fd.try_clone_to_owned().ok()?)))
        .collect()
}

fn failed(session: &Session, span: &SpanInfo, error: &WorldError, duration: Duration) -> Ending {
    let status = match error {
        WorldError::NotFound(_) => NOT_FOUND,
        // By the guard, which has said why, or by the kernel.
        WorldError::Start { source, .. } if source.kind() == ErrorKind::PermissionDenied => DENIED,
        _ => FAILED,
    };
    let text = match error {
        WorldError::Start { program, .. } if status == DENIED => {
            format!("{}: Permission denied", program.display())
        }
        _ => error.to_string(),
    };
    session.front.say(Kind::Failed, &text);
    if status == FAILED {
        session
            .front
            .say(Kind::Info, "nothing was run outside a world instead");
    }
    let done = Completion {
        exit: Some(status),
        duration,
        ..Completion::default()
    };
    session.complete(span, &done);
    Ending::Exit(status)
}

fn finish(
    session: &Session,
    span: &SpanInfo,
    result: &ExecResult,
    ending: Ending,
    done: Completion,
) {
    let mut scopes: Vec<OsString> = result.scopes_used.iter().map(OsString::from).collect();
    scopes.extend(recording::write_scopes(done.fs_diff.as_ref()));
    let done = Completion {
        exit: Some(ending.status()),
        signal: match ending {
            Ending::Signal(signal) => Some(signal),
            Ending::Exit(_) => None,
        },
        enforced: Some(result.enforced.clone()),
        scopes_used: scopes,
        net: result.net.clone(),
        ..done
    };
    session.complete(span, &done);
}

/// Says what a line that failed in a world may have missed there.
pub fn tell_switches(session: &Session, evaluation: &Evaluation, spec: &WorldSpec, status: i32) {
    if status != 0 {
        for hint in switches::hints(&evaluation.line, spec) {
            session.front.say(Kind::Info, &hint);
        }
    }
}

/// Says what a world held back that died under its command.
fn tell_kept(session: &Session, span: &SpanInfo, home: &Path, world: &str) {
    let Ok(mut pending) = Pending::find(home, world) else {
        return;
    };
    let totals = patch::totals(&pending, &mut |_| true);
    if totals.as_ref().is_ok_and(Totals::is_empty) {
        let _ = gc::forget(&mut pending);
        return;
    }
    keep(session, span, &pending, &sentence(&totals));
}

/// What a result consists of, in words.
fn sentence(totals: &Result<Totals, ShowError>) -> String {
    match totals {
        Ok(totals) => totals.sentence(),
        Err(error) => format!("its changes cannot be shown: {error}"),
    }
}

/// What a result is to whoever chooses.
struct Left<'a> {
    pending: &'a Pending,
    sentence: &'a str,
}

impl HeldChanges for Left<'_> {
    fn sentence(&self) -> &str {
        self.sentence
    }

    fn show(&self, screen: &mut dyn Write, paint: Paint) -> Result<(), String> {
        let shown = patch::patch(self.pending, paint, screen, &mut |_| true);
        shown.map(drop).map_err(|error| error.to_string())
    }
}

/// What becomes of a result: a person decides where there is one, else the policy.
fn settle_result(session: &Session, job: &Contained<'_>, span: &SpanInfo, pending: Pending) {
    let mut progress = session.front.progress();
    let totals = patch::totals(&pending, &mut progress);
    drop(progress);
    let sentence = sentence(&totals);
    if totals.is_err() {
        return keep(session, span, &pending, &sentence);
    }
    let chosen = match job.spec.on_finish {
        OnFinish::Ask => pending.held().and_then(|held| {
            let about = Left {
                pending: &pending,
                sentence: &sentence,
            };
            session.front.settle(&held, &about)
        }),
        _ => None,
    };
    let kept = job.isolation.is_some_and(|isolation| isolation.keep);
    let choice = match (chosen, kept, job.spec.on_finish, job.spec.mode) {
        (Some(choice), ..) => choice,
        (_, true, ..) | (_, _, OnFinish::Keep, _) => Choice::Keep,
        (_, _, OnFinish::Apply, _) => Choice::Apply,
        (_, _, OnFinish::Discard, _) => Choice::Discard,
        // Nobody can be asked: observing must not break work, enforcing must not lose the question.
        (_, _, OnFinish::Ask, Mode::Observe) => Choice::Apply,
        (_, _, OnFinish::Ask, Mode::Enforce) => Choice::Keep,
    };
    carry_out(session, span, pending, choice, &sentence, chosen.is_some());
}

/// What a session left in `$HOME` outside `fs.write`. Nobody is asked about every file that a shell
/// leaves behind there: it is kept where the policy enforces, and is real where it only observes.
pub fn settle_home(session: &Session, span: &SpanInfo, spec: &WorldSpec, mut pending: Pending) {
    let totals = patch::totals(&pending, &mut |_| true);
    if totals.as_ref().is_ok_and(Totals::is_empty) {
        let _ = gc::discard(&mut pending);
        return;
    }
    let sentence = sentence(&totals);
    let choice = match (spec.on_finish, spec.mode) {
        (OnFinish::Apply, _) | (OnFinish::Ask, Mode::Observe) => Choice::Apply,
        (OnFinish::Keep, _) | (OnFinish::Ask, Mode::Enforce) => Choice::Keep,
        (OnFinish::Discard, _) => Choice::Discard,
    };
    carry_out(session, span, pending, choice, &sentence, false);
}

/// Does with a result what was chosen, and records it. `agreed` says that a person chose.
fn carry_out(
    session: &Session,
    span: &SpanInfo,
    mut pending: Pending,
    choice: Choice,
    sentence: &str,
    agreed: bool,
) {
    let action = match choice {
        Choice::Keep => return keep(session, span, &pending, sentence),
        Choice::Discard => {
            if let Err(error) = gc::discard(&mut pending) {
                session.front.say(Kind::Failed, &error.to_string());
            }
            "discard"
        }
        Choice::Apply => match apply_safely(session, &mut pending, agreed) {
            Ok(held_back) if held_back.is_empty() => "apply",
            Ok(held_back) => {
                let what = format!("{sentence}; held back: {}", held_back.join(", "));
                return keep(session, span, &pending, &what);
            }
            Err(error) => {
                let what = format!("{sentence}, and not applied: {error}");
                return keep(session, span, &pending, &what);
            }
        },
    };
    let event = WorldEvent {
        action: action.to_owned(),
        detail: Some(sentence.to_owned()),
        ..WorldEvent::default()
    };
    session.record_or_warn(&Event::world_event(span, &event));
}

/// Applies a result. Without a person to agree, what would run later stays behind with its reasons.
fn apply_safely(
    session: &Session,
    pending: &mut Pending,
    agreed: bool,
) -> Result<Vec<String>, String> {
    let all = ApplyOptions::default();
    let mut tell = session.front.progress();
    let check = apply::check(pending, &all, &mut tell).map_err(|error| error.to_string())?;
    if !agreed && !check.flags.is_empty() {
        return Ok(check
            .flags
            .iter()
            .map(|flag| flag.path.display().to_string())
            .collect());
    }
    apply::apply(pending, &all, &mut Observer::new(&mut tell))
        .map_err(|error| error.to_string())?;
    Ok(Vec::new())
}

/// What an apply of a result can come to.
enum Outlook {
    /// At least a part of it is put on the host.
    Applies,
    /// Nothing, unless what lies outside `fs.write` is asked for.
    Held,
    /// Nothing whatever is asked for: this place cannot be written by us.
    Never(PathBuf),
}

fn outlook(pending: &Pending) -> Outlook {
    let found = diff::outlook(pending, &mut |_| true);
    match found {
        Ok(found) if found.all_barred => Outlook::Never(found.barred.unwrap_or_default()),
        Ok(found) if found.all_held => Outlook::Held,
        // What cannot be looked at says so when it is applied.
        _ => Outlook::Applies,
    }
}

fn keep(session: &Session, span: &SpanInfo, pending: &Pending, what: &str) {
    let id = &pending.meta().span_id;
    let short = &id[id.len().saturating_sub(12)..];
    let show = format!("`substrate world diff {short}` shows it");
    let next = match outlook(pending) {
        Outlook::Applies => format!("{show}, `substrate world apply {short}` takes it over"),
        Outlook::Held => format!(
            "all of it lies outside `fs.write`; {show}, `substrate world apply --held {short}` takes it over all the same"
        ),
        Outlook::Never(path) => format!(
            "it can never be applied, because you may not write {}; {show}, `substrate world discard {short}` throws it away",
            visible(path.as_os_str().as_bytes())
        ),
    };
    session
        .front
        .say(Kind::Info, &format!("held back: {what}; {next}"));
    let event = WorldEvent {
        action: "keep".to_owned(),
        detail: Some(what.to_owned()),
        ..WorldEvent::default()
    };
    session.record_or_warn(&Event::world_event(span, &event));
}
