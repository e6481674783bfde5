//! The world that the engine of a prompt lives in: made before the first line, held against the
//! policy before every further one, ended with the session.

use std::cell::RefCell;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use substrate_broker::{Answer, Around, Evaluation, Input, Origin, Request};
use substrate_changes::pending::Pending;
use substrate_policy::terms::{PathPattern, Place, WorldSpec};
use substrate_sys::process_group::{self, Change};
use substrate_sys::terminal::{self, Modes};
use substrate_trace::{Enforced, Event, NetUse, SpanInfo, WorldEvent, WorldId};
use substrate_world::backend::{
    ExecJob, ExecRequest, ExecStreams, Held, News, PutAside, Running, Status, Stdio, WorldBackend,
    WorldHandle,
};
use substrate_world::error::{Words, WorldError};

use crate::baggage::Baggage;
use crate::engine::{Beside, Launched, Launcher, Start};
use substrate_executor::approval;
use substrate_executor::contained;
use substrate_executor::front::{Front, Kind};
use substrate_executor::guarded::StartJudge;
use substrate_executor::network::Teller;
use substrate_executor::questions::Questions;
use substrate_executor::session::Session;
use substrate_executor::variables::variables;
use substrate_executor::worlds::Oversight;

/// How the world of a prompt is called in lists of commands.
const SHOWN: &str = "(session)";

/// Where the engine of a prompt lives.
pub enum Quarters {
    /// Beside the front end, as no policy asked for a world when it started.
    Beside,
    /// In the world of the session.
    World(Rc<SessionWorld>),
    /// Beside the front end, because the world that the policy asks for could not be made; the text
    /// says why. Nothing but the shell's own housekeeping runs there.
    Refused(String),
}

impl Quarters {
    /// Finds out what the policy asks for here, and makes the world that it may ask for.
    pub fn find(session: &Session, cwd: &Path) -> Self {
        let evaluation = judged(session, cwd);
        let Some(spec) = session_terms(&evaluation) else {
            return Self::Beside;
        };
        match SessionWorld::make(session, &spec, &evaluation, cwd) {
            Ok(world) => Self::World(Rc::new(world)),
            Err(error) => {
                session.front.say(Kind::Failed, &error.to_string());
                session.front.say(
                    Kind::Info,
                    "there is a prompt, but it runs nothing except `cd`, `exit` and `substrate`",
                );
                Self::Refused(error.to_string())
            }
        }
    }

    /// What starts engines there.
    pub fn launcher(&self) -> Box<dyn Launcher> {
        match self {
            Self::World(world) => Box::new(InWorld(Rc::clone(world))),
            Self::Beside | Self::Refused(_) => Box::new(Beside),
        }
    }

    /// The world, if there is one.
    pub fn world(&self) -> Option<&SessionWorld> {
        match self {
            Self::World(world) => Some(world),
            Self::Beside | Self::Refused(_) => None,
        }
    }
}

/// What the policies want for a line that does nothing.
fn judged(session: &Session, cwd: &Path) -> Evaluation {
    let search_path = session.search_path();
    session.broker.evaluate(&Request {
        input: Input::Line(b":"),
        origin: Origin::Prompt,
        cwd,
        search_path: &search_path,
        variables: &[],
        aliases: &[],
        isolate: false,
        around: Around::Nothing,
    })
}

/// What the policies want the world of a session to be, if they want one.
fn session_terms(evaluation: &Evaluation) -> Option<WorldSpec> {
    match &evaluation.answer {
        Answer::Allow(terms) | Answer::Ask(terms, _) => match &terms.place {
            Place::Session(spec) => Some(spec.as_ref().clone()),
            _ => None,
        },
        Answer::Deny(..) => None,
    }
}

/// Adds what is hidden already.
fn keep_hidden(spec: &mut WorldSpec, hidden: &[PathPattern]) {
    for pattern in hidden {
        if !spec.hide.contains(pattern) {
            spec.hide.push(pattern.clone());
        }
    }
}

/// The world of a session.
pub struct SessionWorld {
    backend: Box<dyn WorldBackend>,
    teller: Teller,
    judge: Arc<StartJudge>,
    questions: Questions,
    /// `/tmp` of the last world, on its way into this one.
    baggage: RefCell<Option<Baggage>>,
    env: Vec<(OsString, OsString)>,
    front: Arc<dyn Front>,
    state: RefCell<State>,
}

struct State {
    /// What events of the world belong to.
    span: SpanInfo,
    world: WorldHandle,
    spec: WorldSpec,
    /// What earlier worlds of the session hid in their projects stays hidden.
    hidden_before: Vec<PathPattern>,
    enforced: Enforced,
    /// What has been announced as due with the next shell.
    announced: Vec<Words>,
    net: Vec<NetUse>,
    hits: Vec<(Words, u64)>,
    put_aside: Vec<PutAside>,
}

/// What the world used while a line ran.
#[derive(Default)]
pub struct Used {
    /// What it exchanged with whom.
    pub net: Vec<NetUse>,
    /// What that comes to as scopes.
    pub scopes: Vec<String>,
    /// Limits that were run into.
    pub limits: Vec<Words>,
    /// What was made under protected names.
    pub put_aside: Vec<PutAside>,
}

impl SessionWorld {
    fn make(
        session: &Session,
        spec: &WorldSpec,
        evaluation: &Evaluation,
        cwd: &Path,
    ) -> Result<Self, WorldError> {
        let mut span = session.span(evaluation, SHOWN.into(), Vec::new(), cwd);
        span.replay = None;
        span.place = Some("session");
        let teller = Teller::new(session);
        let wire = teller.wire(session, spec).map_err(WorldError::Network)?;
        teller.begin(&span);
        let judge = Arc::new(StartJudge::of(session, false));
        judge.begin_line(&span, evaluation);
        let questions = judge
            .questions()
            .map_err(WorldError::own("make a socket pair"))?;
        judge.attended(false);
        let backend = session.worlds.backend(Oversight {
            judge: Some(judge.clone()),
            network: Some(wire),
            borrowing: None,
        });
        let label = label(&span);
        let world = backend.ensure_session(
            spec,
            Some(ExecJob {
                request: &label,
                streams: &ExecStreams::default(),
            }),
        )?;
        let enforced = backend.enforced(world)?;
        span.world_id = Some(world.id);
        tell_of(session, &span, "started", Some(&enforced));
        Ok(Self {
            backend,
            teller,
            judge,
            questions,
            baggage: RefCell::default(),
            env: variables(&session.env),
            front: Arc::clone(&session.front),
            state: RefCell::new(State {
                span,
                world,
                spec: spec.clone(),
                hidden_before: Vec::new(),
                enforced,
                announced: Vec::new(),
                net: Vec::new(),
                hits: Vec::new(),
                put_aside: Vec::new(),
            }),
        })
    }

    /// Its id.
    pub fn id(&self) -> WorldId {
        self.state.borrow().world.id
    }

    /// What really holds it.
    pub fn enforced(&self) -> Enforced {
        self.state.borrow().enforced.clone()
    }

    /// The terms that it was made from.
    pub fn spec(&self) -> WorldSpec {
        self.state.borrow().spec.clone()
    }

    /// What one line may take.
    pub fn time_limit(&self) -> Option<Duration> {
        let seconds = self.state.borrow().spec.limits.seconds?;
        Some(Duration::from_secs(seconds.into()))
    }

    /// Brings the terms of a line to the world: what can change in a living one changes, the rest is
    /// announced once. An error says why the line must not run here.
    pub fn fit(&self, session: &Session, line: &WorldSpec) -> Result<(), String> {
        let mut state = self.state.borrow_mut();
        let wanted = match (&line.project, &state.spec.project) {
            // Where no project is, the world stays that of the last one.
            (None, Some(project)) => session_terms(&judged(session, project)),
            _ => None,
        };
        let mut wanted = as_seen_from(&wanted.unwrap_or_else(|| line.clone()), &state.spec);
        keep_hidden(&mut wanted, &state.hidden_before);
        let change = match self.backend.apply_policy(state.world, &wanted) {
            Ok(change) => change,
            // The engine went with it; the front end is about to find out and starts both anew.
            Err(WorldError::Gone(_)) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        if !change.needs_restart.is_empty() && state.announced != change.needs_restart {
            self.front.say(
                Kind::Info,
                &format!(
                    "the policy changed {}; that holds for the next shell: leave this one with `exit`",
                    change.needs_restart.join(", ")
                ),
            );
        }
        state.announced.clone_from(&change.needs_restart);
        if change.tightened {
            return Err(format!(
                "the policy got stricter about {}, which a running shell cannot take up; leave it with \
                 `exit` and start a new one",
                change.needs_restart.join(", ")
            ));
        }
        Ok(())
    }

    /// What is started and what the network tells from here on belongs to this line.
    pub fn begin(&self, span: &SpanInfo, evaluation: &Evaluation) {
        self.teller.begin(span);
        self.judge.begin_line(span, evaluation);
    }

    /// Says what the engine exports before anything has changed it.
    pub fn begins_in(&self, environment: &[(OsString, OsString)]) {
        self.judge.begins_in(environment.to_vec());
    }

    /// Has program starts that need a person's word wait for [`Self::attend`] from now on, or refuses
    /// them; the descriptor tells when one waits.
    pub fn listen(&self, wanted: bool) -> Option<OwnedFd> {
        self.judge.attended(wanted);
        if !wanted {
            self.questions.forget();
        }
        self.questions.bell().try_clone_to_owned().ok()
    }

    /// Puts to the person what waits.
    pub fn attend(&self, session: &Session) {
        approval::answer(session, &self.questions);
    }

    /// What was used since this was last asked.
    pub fn used(&self) -> Used {
        let mut state = self.state.borrow_mut();
        // What a job in the background does between two lines belongs to the session.
        self.teller.begin(&state.span);
        let Ok(report) = self.backend.used(state.world) else {
            return Used::default();
        };
        let net = since(&state.net, &report.net);
        let reached = |(name, now): &(Words, u64)| {
            let before = state.hits.iter().find(|(known, _)| known == name);
            (before.map_or(0, |(_, count)| *count) < *now).then(|| name.clone())
        };
        let limits = report.limits.iter().filter_map(reached).collect();
        let scopes = report
            .scopes
            .into_iter()
            .filter(|scope| {
                net.iter().any(|used| {
                    used.tx + used.rx > 0 && *scope == format!("tcp:{}:{}", used.host, used.port)
                })
            })
            .collect();
        state.net = report.net;
        state.hits = report.limits;
        let known = std::mem::replace(&mut state.put_aside, report.put_aside);
        let fresh = state
            .put_aside
            .iter()
            .filter(|aside| !known.contains(aside));
        Used {
            net,
            scopes,
            limits,
            put_aside: fresh.cloned().collect(),
        }
    }

    /// Ends the world; what it held back of `$HOME` is settled as the policy says. Jobs that were just
    /// told of a hang-up get a moment to put their things in order.
    pub fn finish(&self, session: &Session, hung_up: bool) {
        let state = self.state.borrow();
        if hung_up {
            self.backend.drain(state.world, Duration::from_secs(2));
        }
        let held = match self.backend.end(state.world) {
            Ok(held) => held,
            Err(WorldError::Gone(_)) => None,
            Err(error) => {
                self.front.say(Kind::Warning, &error.to_string());
                None
            }
        };
        self.teller.finish();
        if let Some(pending) = held.and_then(|held| Pending::of(&held).ok()) {
            contained::settle_home(session, &state.span, &state.spec, pending);
        }
        tell_of(session, &state.span, "ended", None);
    }

    /// What a world for another project is to be made of.
    pub fn terms_for(&self, session: &Session, directory: &Path) -> Option<WorldSpec> {
        let mut spec = session_terms(&judged(session, directory))?;
        let state = self.state.borrow();
        let project = spec.project.as_ref()?;
        // What lies in the project is its own to write already. A session could make a work tree of any
        // directory in it, and what is hidden around that must stay hidden.
        if let Some(current) = &state.spec.project
            && project.starts_with(current)
        {
            return None;
        }
        // Outside all projects the world stays that of the last one.
        if !directory.starts_with(project) {
            return None;
        }
        keep_hidden(&mut spec, &state.hidden_before);
        keep_hidden(&mut spec, &state.spec.hide);
        Some(spec)
    }

    /// Ends the world, and makes another one of the same session for other terms. What was held back of
    /// `$HOME` and what lies in `/tmp` is there as well. An error says why the world is still, or again,
    /// the old one's like.
    pub fn go_on(&self, session: &Session, spec: WorldSpec, inside: i32) -> Result<(), WorldError> {
        let mut state = self.state.borrow_mut();
        let baggage = Baggage::pack(&spec.substrate_home, inside).unwrap_or_else(|error| {
            self.front
                .say(Kind::Warning, &format!("/tmp does not come along: {error}"));
            None
        });
        let held = self.backend.end(state.world)?;
        tell_of(session, &state.span, "ended", None);
        self.teller.finish();
        let before = state.spec.clone();
        let made = self.make_again(session, &state, &spec, held.as_ref());
        let (world, now, failed) = match made {
            Ok(world) => (world, spec, None),
            Err(error) => {
                let again = self.make_again(session, &state, &before, None)?;
                (again, before.clone(), Some(error))
            }
        };
        state.enforced = self.backend.enforced(world)?;
        state.world = world;
        state.span.world_id = Some(world.id);
        if let Some(project) = now.project.clone().filter(|_| failed.is_none()) {
            state.span.cwd = project;
        }
        state.hidden_before.clone_from(&now.hide);
        state.spec = now;
        state.announced.clear();
        state.net.clear();
        state.hits.clear();
        state.put_aside.clear();
        tell_of(session, &state.span, "started", Some(&state.enforced));
        drop(state);
        self.baggage.replace(baggage);
        failed.map_or(Ok(()), Err)
    }

    /// Puts what lay in `/tmp` of the last world there.
    pub fn unpack(&self, inside: i32) {
        if let Some(baggage) = self.baggage.take()
            && let Err(error) = baggage.unpack(inside)
        {
            self.front.say(
                Kind::Warning,
                &format!("not all of /tmp came along: {error}"),
            );
        }
    }

    /// A world on these terms with what the last one held back, which becomes a result of its own where
    /// that cannot be.
    fn make_again(
        &self,
        session: &Session,
        state: &State,
        spec: &WorldSpec,
        held: Option<&Held>,
    ) -> Result<WorldHandle, WorldError> {
        let label = label(&state.span);
        let streams = ExecStreams::default();
        let job = ExecJob {
            request: &label,
            streams: &streams,
        };
        if let Some(held) = held {
            match self.backend.resume_session(spec, job, held) {
                Ok(world) => return Ok(world),
                Err(_) => {
                    if let Ok(pending) = Pending::of(held) {
                        contained::settle_home(session, &state.span, &state.spec, pending);
                    }
                }
            }
        }
        self.backend.ensure_session(spec, Some(job))
    }

    /// The living world: this one, or a new one on the same terms if it is gone.
    fn living(&self) -> Result<WorldHandle, WorldError> {
        let mut state = self.state.borrow_mut();
        if self.backend.is_alive(state.world) {
            return Ok(state.world);
        }
        let _ = self.backend.end(state.world);
        let world = self.backend.ensure_session(&state.spec, None)?;
        state.enforced = self.backend.enforced(world)?;
        state.world = world;
        state.net.clear();
        state.hits.clear();
        state.put_aside.clear();
        Ok(world)
    }
}

/// What is listed with what a world of the session held back.
fn label(span: &SpanInfo) -> ExecRequest {
    ExecRequest {
        cwd: span.cwd.clone(),
        line: span.cmd.clone(),
        span: Some(span.span_id),
        ..ExecRequest::default()
    }
}

fn tell_of(session: &Session, span: &SpanInfo, action: &str, enforced: Option<&Enforced>) {
    let event = WorldEvent {
        action: action.to_owned(),
        enforced: enforced.cloned(),
        ..WorldEvent::default()
    };
    session.record_or_warn(&Event::world_event(span, &event));
}

/// The terms of a line as they would be in the project that the world was made for: another project
/// is another `$PROJECT`, not another policy.
fn as_seen_from(line: &WorldSpec, world: &WorldSpec) -> WorldSpec {
    let mut seen = line.clone();
    let (Some(here), Some(there)) = (&line.project, &world.project) else {
        return seen;
    };
    if here == there {
        return seen;
    }
    let moved = |path: &Path| path.strip_prefix(here).ok().map(|rest| there.join(rest));
    for list in [&mut seen.read, &mut seen.write, &mut seen.share] {
        for path in list.iter_mut() {
            if let Some(new) = moved(path) {
                *path = new;
            }
        }
    }
    for list in [&mut seen.hide, &mut seen.protect] {
        for pattern in list.iter_mut() {
            *pattern = moved_pattern(pattern, here, there);
        }
    }
    seen.project.clone_from(&world.project);
    seen
}

fn moved_pattern(pattern: &PathPattern, here: &Path, there: &Path) -> PathPattern {
    let (from, to) = (here.as_os_str().as_encoded_bytes(), there.as_os_str());
    let rest = pattern.glob.strip_prefix(from);
    let Some(rest) = rest.filter(|rest| rest.first().is_none_or(|byte| *byte == b'/')) else {
        return pattern.clone();
    };
    let base = pattern.base.strip_prefix(here).unwrap_or(Path::new(""));
    PathPattern {
        glob: [to.as_encoded_bytes(), rest].concat(),
        base: there.join(base),
    }
}

/// What was exchanged between two reports.
fn since(before: &[NetUse], now: &[NetUse]) -> Vec<NetUse> {
    now.iter()
        .filter_map(|used| {
            let known = before
                .iter()
                .find(|old| (&old.host, old.port) == (&used.host, used.port));
            let mut fresh = used.clone();
            if let Some(old) = known {
                fresh.tx = used.tx.saturating_sub(old.tx);
                fresh.rx = used.rx.saturating_sub(old.rx);
                fresh.refused = used.refused.saturating_sub(old.refused);
            }
            (fresh.tx + fresh.rx + fresh.refused > 0 || known.is_none()).then_some(fresh)
        })
        .collect()
}

/// Starts engines in the session's world, each on a terminal of the world's own.
struct InWorld(Rc<SessionWorld>);

impl Launcher for InWorld {
    fn launch(&mut self, start: &Start<'_>) -> io::Result<Launched> {
        let quarters = &self.0;
        let world = quarters.living().map_err(io::Error::other)?;
        let (mut request, streams) = request(quarters, start)?;
        let spawn = |request: &ExecRequest| {
            let streams = &streams;
            quarters.backend.spawn(world, ExecJob { request, streams })
        };
        let command = match spawn(&request) {
            Err(WorldError::Cwd { path, source }) => {
                request.cwd = match &quarters.state.borrow().spec.project {
                    Some(project) if *project != path => project.clone(),
                    _ => PathBuf::from("/"),
                };
                quarters.front.say(
                    Kind::Warning,
                    &format!(
                        "{} is not in the world ({source}); the shell starts in {}",
                        path.display(),
                        request.cwd.display()
                    ),
                );
                spawn(&request)
            }
            started => started,
        };
        launched(command.map_err(io::Error::other)?, start)
    }
}

fn request(quarters: &SessionWorld, start: &Start<'_>) -> io::Result<(ExecRequest, ExecStreams)> {
    let mut env = quarters.env.clone();
    for (name, value) in start.environment {
        env.retain(|(known, _)| known != name);
        if let Some(value) = value {
            env.push((name.clone(), value.clone()));
        }
    }
    let size = terminal::size(start.terminal).map_or((24, 80), |size| (size.rows, size.columns));
    let mut fds = vec![(0, start.control.try_clone_to_owned()?)];
    for (fd, number) in &start.descriptors {
        fds.push((*number, fd.try_clone_to_owned()?));
    }
    let mut argv = vec![start.name.to_owned()];
    argv.extend(start.arguments.iter().cloned());
    let request = ExecRequest {
        program: start.program.as_os_str().to_owned(),
        argv,
        env,
        cwd: start.cwd.to_owned(),
        ..ExecRequest::default()
    };
    let streams = ExecStreams {
        stdio: Stdio::Terminal(size.0, size.1),
        fds,
        terminal_at: Some(start.terminal_number),
        ..ExecStreams::default()
    };
    Ok((request, streams))
}

fn launched(mut command: Box<dyn Running>, start: &Start<'_>) -> io::Result<Launched> {
    let master = command
        .take_terminal()
        .ok_or_else(|| io::Error::other("the world gave no terminal"))?;
    let pty = terminal::other_side(master)?;
    // The inner terminal starts with the settings that the person is used to.
    if let Ok(modes) = Modes::of(start.terminal) {
        let _ = modes.apply(&pty.slave);
    }
    let process = command.pid();
    let ended = process_group::pidfd(process)?;
    let gone = ended.try_clone()?;
    Ok(Launched {
        process,
        ended,
        news: Some(command.events().try_clone_to_owned()?),
        pty: Some(pty),
        change: Box::new(move |wait| {
            // Once the process is over, word of how it ended is on its way.
            let at_hand = [command.events(), gone.as_fd()];
            let ready = process_group::readable(&at_hand, Some(Duration::ZERO))?;
            if !wait && !ready.contains(&true) {
                return Ok(None);
            }
            Ok(Some(match command.next()? {
                News::Stopped(number) => Change::Stopped(number),
                News::Ended(Status::Exited(status)) => Change::Exited(status),
                News::Ended(Status::Signaled(number)) => Change::Killed(number),
                // As if the world's first process had been killed, which it was.
                News::Lost => Change::Killed(process_group::signal::KILL),
            }))
        }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(project: &str) -> WorldSpec {
        WorldSpec {
            project: Some(project.into()),
            write: vec![project.into(), "/var/cache".into()],
            protect: vec![PathPattern {
                glob: format!("{project}/**/.envrc").into_bytes(),
                base: project.into(),
            }],
            ..WorldSpec::default()
        }
    }

    #[test]
    fn another_project_is_not_another_policy() {
        assert_eq!(
            as_seen_from(&spec("/src/b"), &spec("/src/a")),
            spec("/src/a")
        );
        let mut stricter = spec("/src/b");
        stricter.write.remove(1);
        assert_ne!(as_seen_from(&stricter, &spec("/src/a")), spec("/src/a"));
        let neighbour = spec("/src/a2");
        let seen = as_seen_from(&neighbour, &spec("/src/a"));
        assert_eq!(seen.protect, spec("/src/a").protect);
    }

    #[test]
    fn a_line_is_told_what_it_used_and_no_more() {
        let used = |host: &str, tx, rx| NetUse {
            host: host.into(),
            port: 443,
            tx,
            rx,
            refused: 0,
        };
        let before = [used("a.test", 10, 20), used("b.test", 1, 1)];
        let now = [
            used("a.test", 15, 20),
            used("b.test", 1, 1),
            used("c.test", 2, 3),
        ];
        assert_eq!(
            since(&before, &now),
            [used("a.test", 5, 0), used("c.test", 2, 3)]
        );
    }
}
