//! A command that a client asked for, from request to answer: checked, paid for, run by the executor on a
//! thread of its own, and told.

use std::ffi::{CString, OsString};
use std::io::{self, PipeReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use substrate_api::errors::{Code, Problem};
use substrate_api::execute::{Budget, ExecuteRequest, ExecuteResponse};
use substrate_api::{Bytes, VERSION};
use substrate_broker::env::SUBSTRATE_AGENT_ID;
use substrate_broker::{Broker, BrokerError, Caller, Choice, Options, choice};
use substrate_executor::front::{GivenStdio, GivenStreams};
use substrate_executor::isolation::Isolation;
use substrate_executor::job::Job;
use substrate_executor::oneshot;
use substrate_executor::session::{Identity, Session};
use substrate_sys::environment;
use substrate_sys::poll::{self, Wanted};
use substrate_sys::terminal::Size;
use substrate_text::base64;
use substrate_trace::{Component, Event, RateLimit, SpanInfo, Stdin, sha256_hex};
use substrate_world::backend::Master;

use crate::accounts::{self, Account, Kind, UsedUp};
use crate::attempt::{Attempt, Keyed, State};
use crate::front::{About, ApiFront, Heard, OnNotice, Parts, verdict};
use crate::locked::lock;
use crate::service::Service;
use crate::who;

/// Most bytes of each output stream that an answer carries.
pub(crate) const OUTPUT: usize = 8 << 20;
/// Most commands that run, wait for a place or wait for a person.
const UNFINISHED: usize = 400;
/// How long a question waits where the client does not say.
const PATIENCE: Duration = Duration::from_secs(600);
/// No question waits longer.
const LONGEST_PATIENCE: Duration = Duration::from_secs(24 * 3600);
/// Running time is taken from a budget in pieces of so many milliseconds.
const SLICE: u64 = 500;

/// Who acts where no agent does.
pub(crate) const HUMAN: &str = "human";

/// A request that makes sense.
pub(crate) struct Prepared {
    pub agent: String,
    job: Job,
    about: Bytes,
    cwd: PathBuf,
    env: Vec<(String, OsString)>,
    stdin: Option<Vec<u8>>,
    request: ExecuteRequest,
}

pub(crate) fn bad(text: impl Into<String>) -> Problem {
    Problem::new(Code::BadRequest, text)
}

/// The agent that a request names.
pub(crate) fn agent_of(agent: Option<&str>) -> Result<String, Problem> {
    match agent {
        None | Some("") => Err(bad("agent_id is required for API calls")),
        Some(name) if !accounts::is_name(name) => Err(bad(
            "agent_id: 1 to 64 letters, digits and ._@:+- are a name, and it begins with no dot",
        )),
        // Worlds of a person serve his own lines only.
        Some(HUMAN) => Err(bad(
            "agent_id: `human` is who types at a prompt; an agent has another name",
        )),
        Some(name) => Ok(name.to_owned()),
    }
}

/// Refuses a document of another version.
pub(crate) fn same_version(v: u32) -> Result<(), Problem> {
    match v {
        VERSION => Ok(()),
        v => Err(Problem::new(
            Code::Version,
            format!("this service speaks version {VERSION}, not {v}"),
        )
        .hint("`substrate daemon restart` starts the service that belongs to a newer client")),
    }
}

/// The policy that a request names beside the one in use.
pub(crate) fn profile_of(profile: Option<&str>) -> Result<Option<String>, Problem> {
    match profile {
        Some(name) if !choice::is_id(name) => Err(bad(
            "profile: the id of a policy is expected, as `substrate policy list` shows them",
        )),
        other => Ok(other.map(ToOwned::to_owned)),
    }
}

/// The directory of a request.
pub(crate) fn directory(service: &Service, cwd: Option<&Bytes>) -> Result<PathBuf, Problem> {
    let named = cwd.map(|cwd| OsString::from(cwd.clone()));
    let cwd = PathBuf::from(named.unwrap_or_else(|| service.user_home().to_owned()));
    match cwd.is_absolute() && cwd.is_dir() {
        true => Ok(cwd),
        false => Err(bad("cwd: an absolute path to a directory is expected")),
    }
}

/// Understands a request, or says what is wrong with it.
pub(crate) fn prepare(
    service: &Service,
    request: ExecuteRequest,
    pty: bool,
) -> Result<Prepared, Problem> {
    same_version(request.v)?;
    let agent = agent_of(request.agent_id.as_deref())?;
    profile_of(request.profile.as_deref())?;
    let (job, about) = match (&request.cmd, &request.argv) {
        (Some(cmd), None) if !cmd.as_slice().is_empty() => {
            let job = Job::Line {
                text: cmd.clone().into(),
                options: Vec::new(),
                parameters: Vec::new(),
            };
            (job, cmd.clone())
        }
        (None, Some(argv)) if !argv.is_empty() => {
            let argv: Vec<OsString> = argv.iter().cloned().map(OsString::from).collect();
            let about = substrate_text::command_line(&argv).into();
            (Job::Argv(argv), about)
        }
        _ => return Err(bad("either `cmd`, a line, or `argv`, a list, is expected")),
    };
    if about.as_slice().contains(&0) {
        return Err(bad("a command cannot contain a NUL byte"));
    }
    let cwd = directory(service, request.cwd.as_ref())?;
    let stdin = match &request.stdin_b64 {
        Some(_) if pty => return Err(bad("stdin_b64 and a terminal exclude each other")),
        Some(text) => Some(base64::decode(text).ok_or_else(|| bad("stdin_b64: bad base64"))?),
        None => None,
    };
    Ok(Prepared {
        agent,
        job,
        about,
        cwd,
        env: variables(&request)?,
        stdin,
        request,
    })
}

fn variables(request: &ExecuteRequest) -> Result<Vec<(String, OsString)>, Problem> {
    let one = |(name, value): (&String, &Bytes)| {
        let good = !name.is_empty() && !name.contains(['=', '\0']);
        if !good || value.as_slice().contains(&0) {
            return Err(bad(format!(
                "env: {:?} cannot be a variable",
                substrate_text::visible(name.as_bytes())
            )));
        }
        Ok((name.clone(), OsString::from(value.clone())))
    };
    request.env.iter().map(one).collect()
}

/// What a command reads and writes.
pub(crate) enum Ends {
    /// Pipes; what comes out is collected.
    Collected,
    /// The same from a terminal of this size.
    CollectedTerminal(Size),
    /// A terminal that somebody else looks after.
    Terminal(GivenStdio, OnNotice),
}

/// Starts a command on a thread of its own, unless its client has started it before under the same key.
pub(crate) fn start(
    service: &Arc<Service>,
    caller: Caller,
    prepared: Prepared,
    key: Option<&str>,
    ends: Ends,
) -> Result<Arc<Attempt>, Problem> {
    if service.is_ending() {
        let text = "the service is about to end";
        return Err(Problem::new(Code::Ending, text).hint("ask again: another one is started"));
    }
    if service.attempts.unfinished() >= UNFINISHED {
        let text = format!("{UNFINISHED} commands run or wait already");
        return Err(Problem::new(Code::Busy, text).hint("ask again in a moment"));
    }
    let failed = |error: io::Error| Problem::new(Code::Failed, error.to_string());
    let (abandoned, wanted) = io::pipe().map_err(failed)?;
    let attempt = Attempt::new(&prepared.agent, wanted);
    service.attempts.add(&attempt);
    if let Some(key) = key {
        let text = serde_json::to_string(&prepared.request).unwrap_or_default();
        match service
            .attempts
            .keyed(&attempt, key, &sha256_hex(text.as_bytes()))
        {
            Keyed::New => {}
            Keyed::Same(earlier) => {
                finish(service, &attempt, Err(bad("never started")));
                return Ok(earlier);
            }
            Keyed::Other => {
                let problem = Problem::new(
                    Code::Conflict,
                    "this Idempotency-Key was used for another request",
                );
                finish(service, &attempt, Err(problem.clone()));
                return Err(problem);
            }
        }
    }
    let (service, ours) = (Arc::clone(service), Arc::clone(&attempt));
    let run = move || {
        let _slot = service.slot(&ours.agent);
        let result = run(&service, &ours, caller, prepared, abandoned, ends);
        finish(&service, &ours, result);
    };
    std::thread::Builder::new()
        .name("substrate-job".to_owned())
        .spawn(run)
        .map_err(|error| Problem::new(Code::Busy, format!("cannot start a thread: {error}")))?;
    Ok(attempt)
}

fn finish(service: &Service, attempt: &Attempt, result: Result<ExecuteResponse, Problem>) {
    let size = result.as_ref().map_or(0, |response| {
        response.stdout_b64.len() + response.stderr_b64.len()
    });
    attempt.set(State::Over(Arc::new(result)));
    service.attempts.over(attempt, size);
}

/// How a broker is set up that judges for a client.
pub(crate) fn options(
    service: &Service,
    caller: Caller,
    profile: Option<&str>,
    cwd: PathBuf,
) -> Options {
    let around = who::ceilings(&caller, service.ceilings);
    let (choice, ceilings) = match profile {
        None => (Choice::Active, around),
        Some(name) => {
            let mut all = around;
            if !all.contains(&Choice::Active) {
                all.insert(0, Choice::Active);
            }
            (Choice::Name(name.to_owned()), all)
        }
    };
    Options {
        choice,
        ceilings,
        require_approval: false,
        world: None,
        home_variable: std::env::var_os("HOME"),
        unattended: false,
        session_start: cwd,
        caller,
    }
}

fn run(
    service: &Arc<Service>,
    attempt: &Arc<Attempt>,
    caller: Caller,
    prepared: Prepared,
    abandoned: PipeReader,
    ends: Ends,
) -> Result<ExecuteResponse, Problem> {
    let request = &prepared.request;
    let failed = |error: io::Error| Problem::new(Code::Failed, error.to_string());
    let (streams, outlet, notice) = match ends {
        Ends::Terminal(stdio, notice) => (stdio, None, Some(notice)),
        Ends::Collected => {
            let (stdio, outlet) = pipes(prepared.stdin.as_deref()).map_err(failed)?;
            (stdio, Some(outlet), None)
        }
        Ends::CollectedTerminal(size) => {
            let (stdio, outlet) = shown(size).map_err(failed)?;
            (stdio, Some(outlet), None)
        }
    };
    let stdin = match (&streams, &prepared.stdin) {
        (GivenStdio::Terminal(..), _) => Stdin::Tty,
        (_, Some(_)) => Stdin::Pipe,
        (_, None) => Stdin::None,
    };
    let patience = request.approval_timeout_ms.map(Duration::from_millis);
    let front = Arc::new(ApiFront::new(Parts {
        service: Arc::clone(service),
        attempt: Arc::clone(attempt),
        about: About {
            cmd: prepared.about.clone(),
            cwd: prepared.cwd.clone().into_os_string().into(),
        },
        approval: request.approval,
        patience: patience.unwrap_or(PATIENCE).min(LONGEST_PATIENCE),
        stdin,
        streams: GivenStreams {
            stdio: streams,
            abandoned: Some(abandoned.into()),
        },
        notice,
    }));
    let account = who::account(&caller, &prepared.agent);
    if request.budget.is_some() {
        who::outside(&caller, "budgets are narrowed outside sessions only")?;
    }
    let options = options(
        service,
        caller,
        request.profile.as_deref(),
        prepared.cwd.clone(),
    );
    let broker = Broker::open(service.home.clone(), options).map_err(|error| match error {
        BrokerError::NoPolicy(_) if request.profile.is_some() => bad(format!("profile: {error}")),
        error => Problem::new(Code::Failed, error.to_string()),
    })?;
    expected_policy(request, &broker)?;
    let identity = Identity {
        session: service.session_of(&prepared.agent),
        parent: None,
        agent: prepared.agent.clone(),
        umask: substrate_sys::identity::umask(),
    };
    let worlds = Arc::clone(&service.worlds);
    let env = environment(service, &prepared);
    let session = Session::begin_as(broker, env, front.clone(), worlds, identity);
    let account = service.accounts().and_then(|all| all.open(&account));
    let account = Arc::new(account.map_err(failed)?);
    pay(&account, request.budget).map_err(|up| refuse(&session, &prepared, up))?;

    let started = Instant::now();
    let clock = Clock::start(attempt, &account, request.timeout_ms).map_err(|error| {
        Problem::new(
            Code::Busy,
            format!("nobody could end the command in time: {error}"),
        )
    })?;
    let isolation = request.isolated.then(|| Isolation {
        keep: true,
        ..Isolation::default()
    });
    let ending = oneshot::run(&session, &prepared.job, isolation.as_ref(), &prepared.cwd);
    clock.stop();
    drop(session);
    let heard = front.heard();
    let sent = heard.done.iter().flat_map(|done| &done.net);
    account.count(Kind::Egress, sent.map(|used| used.tx).sum());
    let mut response = response(heard, ending.status(), started.elapsed());
    if let Some(outlet) = outlet {
        let out = outlet.wait();
        response.truncated = out.truncated;
        response.stdout_b64 = base64::encode(&out.stdout);
        response.stderr_b64 = base64::encode(&out.stderr);
    }
    response.attempt = attempt.id.clone();
    response.limit = attempt.limit().map(ToOwned::to_owned);
    Ok(response)
}

fn expected_policy(request: &ExecuteRequest, broker: &Broker) -> Result<(), Problem> {
    let now = &broker.info().sha256;
    match &request.expect_policy {
        Some(expected) if expected != now => Err(Problem::new(
            Code::Conflict,
            format!("the policy is another one by now: {now}"),
        )
        .hint("look at it again (`substrate policy show`), then send its new hash")),
        _ => Ok(()),
    }
}

fn environment(service: &Service, prepared: &Prepared) -> Vec<CString> {
    let mut env = service.environment();
    for (name, value) in &prepared.env {
        environment::set(&mut env, name, value.as_bytes());
    }
    environment::set(&mut env, "PWD", prepared.cwd.as_os_str().as_bytes());
    environment::set(&mut env, SUBSTRATE_AGENT_ID, prepared.agent.as_bytes());
    env
}

/// Takes one command from the budget, and sees that something is left of the rest.
fn pay(account: &Account, budget: Option<Budget>) -> Result<(), UsedUp> {
    account.narrow(budget.unwrap_or_default());
    account.used_up(Kind::Runtime)?;
    account.used_up(Kind::Egress)?;
    account.take(Kind::Execs, 1).map(drop)
}

/// Records that a budget did not reach.
fn refuse(session: &Session, prepared: &Prepared, up: UsedUp) -> Problem {
    let mut span = SpanInfo::new(Component::Broker, session.id(), None);
    let info = session.broker.info();
    span.policy_id = info.id.clone();
    span.mode = info.mode;
    span.agent_id = prepared.agent.clone();
    span.cwd = prepared.cwd.clone();
    span.cmd = OsString::from(prepared.about.clone());
    span.reason = Some("budget_exceeded".to_owned());
    let limit = RateLimit {
        limit: up.kind.limit().to_owned(),
        bytes: 1,
        used: up.used,
        total: up.total,
    };
    session.record_or_warn(&Event::rate_limit(&span, &limit));
    let text = format!("Budget exceeded: max {} reached", up.kind.what());
    let mut problem = Problem::new(Code::Budget, text);
    problem.hint = Some(format!(
        "{} of {} are used; `GET /v1/agents` lists it; whoever set the budget has to decide how this goes on",
        up.used, up.total
    ));
    problem.span_id = Some(span.span_id.to_string());
    problem
}

fn response(heard: Heard, exit: i32, ran: Duration) -> ExecuteResponse {
    let done = heard.done.unwrap_or_default();
    let fs_diff = done.fs_diff.filter(|diff| !diff.is_empty());
    ExecuteResponse {
        v: VERSION,
        exit,
        signal: done.signal,
        span_id: heard
            .span
            .as_ref()
            .map_or_else(String::new, |span| span.span_id.to_string()),
        scopes_used: done.scopes_used.into_iter().map(Bytes::from).collect(),
        fs_diff: fs_diff.and_then(|diff| serde_json::to_value(diff).ok()),
        verdict: heard.span.as_ref().map(verdict).unwrap_or_default(),
        notices: heard.notices,
        duration_ms: millis(match done.duration.is_zero() {
            true => ran,
            false => done.duration,
        }),
        ..ExecuteResponse::default()
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Ends a command when its time is over: its own, or its agent's.
struct Clock {
    over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Clock {
    fn start(
        attempt: &Arc<Attempt>,
        account: &Arc<Account>,
        timeout: Option<u64>,
    ) -> io::Result<Clock> {
        let over = Arc::new((Mutex::new(false), Condvar::new()));
        let (attempt, account) = (Arc::clone(attempt), Arc::clone(account));
        let watched = Arc::clone(&over);
        let thread = std::thread::Builder::new()
            .name("substrate-clock".to_owned())
            .spawn(move || watch(&attempt, &account, timeout, &watched))?;
        Ok(Clock {
            over,
            thread: Some(thread),
        })
    }

    fn stop(mut self) {
        *lock(&self.over.0) = true;
        self.over.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(
    attempt: &Attempt,
    account: &Account,
    timeout: Option<u64>,
    over: &(Mutex<bool>, Condvar),
) {
    let started = Instant::now();
    let end = timeout.map(|timeout| started + Duration::from_millis(timeout));
    let mut paid = Duration::ZERO;
    loop {
        let Ok(slice) = account.take(Kind::Runtime, SLICE) else {
            attempt.abandon(Some("budget.max_runtime_ms"));
            return;
        };
        paid += Duration::from_millis(slice);
        let next = (started + paid).min(end.unwrap_or(started + paid));
        let waits = lock(&over.0);
        let left = next.saturating_duration_since(Instant::now());
        let ended = over.1.wait_timeout_while(waits, left, |over| !*over);
        let ended = *ended.unwrap_or_else(PoisonError::into_inner).0;
        if ended || end.is_some_and(|end| Instant::now() >= end) {
            let unused = paid.saturating_sub(started.elapsed());
            account.give_back(Kind::Runtime, millis(unused));
            if !ended {
                attempt.abandon(Some("timeout_ms"));
            }
            return;
        }
    }
}

/// What a command printed.
#[derive(Default)]
struct Out {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    truncated: bool,
}

/// Where the output of a command is collected.
struct Outlet {
    /// Closed once the command has ended.
    ended: OwnedFd,
    collected: std::sync::mpsc::Receiver<Out>,
}

impl Outlet {
    /// What it printed, once it has ended. What it left in the background may print on: that is read and
    /// dropped, so that it is not stopped by a full pipe.
    fn wait(self) -> Out {
        drop(self.ended);
        self.collected.recv().unwrap_or_default()
    }
}

fn pipes(stdin: Option<&[u8]>) -> io::Result<(GivenStdio, Outlet)> {
    let (stdout, out) = io::pipe()?;
    let (stderr, err) = io::pipe()?;
    let (end, ended) = io::pipe()?;
    let input: OwnedFd = match stdin {
        None => std::fs::File::open("/dev/null")?.into(),
        Some(bytes) => fed(bytes)?,
    };
    let (send, collected) = std::sync::mpsc::channel();
    std::thread::Builder::new()
        .name("substrate-output".to_owned())
        .spawn(move || {
            let pipes: [OwnedFd; 2] = [stdout.into(), stderr.into()];
            collect(pipes.map(Some), &end, &send);
        })?;
    let outlet = Outlet {
        ended: ended.into(),
        collected,
    };
    Ok((GivenStdio::Streams([input, out.into(), err.into()]), outlet))
}

/// A terminal whose master is read as a pipe would be.
fn shown(size: Size) -> io::Result<(GivenStdio, Outlet)> {
    let (end, ended) = io::pipe()?;
    let (send, collected) = std::sync::mpsc::channel();
    let waiting = Mutex::new(Some((end, send)));
    let master = Master(Box::new(move |master| {
        let Some((end, send)) = lock(&waiting).take() else {
            return;
        };
        let read = move || collect([Some(master), None], &end, &send);
        let reader = std::thread::Builder::new().name("substrate-output".to_owned());
        // Without a reader there is no output, which the answer shows.
        drop(reader.spawn(read));
    }));
    let outlet = Outlet {
        ended: ended.into(),
        collected,
    };
    Ok((GivenStdio::Terminal(size, master), outlet))
}

/// Standard input from memory: a pipe with a thread behind it, because programs look for one.
fn fed(bytes: &[u8]) -> io::Result<OwnedFd> {
    let (reader, mut writer) = io::pipe()?;
    let bytes = bytes.to_vec();
    std::thread::Builder::new()
        .name("substrate-input".to_owned())
        // Whoever stops reading has what he wants.
        .spawn(move || drop(writer.write_all(&bytes)))?;
    Ok(reader.into())
}

fn collect(mut open: [Option<OwnedFd>; 2], end: &PipeReader, send: &std::sync::mpsc::Sender<Out>) {
    let mut out = Out::default();
    let mut buffer = vec![0; 64 * 1024];
    let mut told = false;
    for pipe in open.iter().flatten() {
        let _ = poll::set_nonblocking(pipe);
    }
    loop {
        // Asked first: what it printed before its end is in the pipes then.
        let ended = told || has_ended(end);
        let mut quiet = true;
        for (pipe, sink) in open.iter_mut().zip([&mut out.stdout, &mut out.stderr]) {
            let Some(reader) = pipe else { continue };
            match poll::read(&*reader, &mut buffer) {
                Ok(0) => *pipe = None,
                Ok(got) => {
                    quiet = false;
                    let room = OUTPUT.saturating_sub(sink.len()).min(got);
                    sink.extend_from_slice(&buffer[..room]);
                    out.truncated |= room < got;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => quiet = false,
                Err(_) => *pipe = None,
            }
        }
        if !quiet {
            continue;
        }
        let over = open.iter().all(Option::is_none);
        if (over || ended) && !told {
            told = true;
            if over && !ended {
                // Closed its output and runs on.
                let _ = poll::wait(&mut [Wanted::read(end.as_fd())]);
            }
            let _ = send.send(std::mem::take(&mut out));
        }
        if over {
            return;
        }
        out = match told {
            true => Out::default(),
            false => out,
        };
        let mut wanted: Vec<Wanted<'_>> = open
            .iter()
            .flatten()
            .map(|pipe| Wanted::read(pipe.as_fd()))
            .collect();
        if !told {
            wanted.push(Wanted::read(end.as_fd()));
        }
        if poll::wait(&mut wanted).is_err() {
            return;
        }
    }
}

fn has_ended(end: &PipeReader) -> bool {
    let mut wanted = [Wanted::read(end.as_fd())];
    let now = poll::wait_until(&mut wanted, Some(Instant::now()));
    now.is_ok_and(|ready| ready.contains(&true))
}

/// A document as JSON that clients get.
pub(crate) fn json(document: &impl serde::Serialize) -> Value {
    serde_json::to_value(document).unwrap_or_default()
}
