//! `substrate agent run`: one agent, in a world, until it ends.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Instant, SystemTime};

use substrate_agents::Auth;
use substrate_broker::facts::Machine;
use substrate_broker::person::Barrier;
use substrate_broker::{Broker, Caller};
use substrate_executor::exit_status::FAILED;
use substrate_executor::front::{
    Choice, Front, Given, GivenStdio, GivenStreams, HeldChanges, Inquiry, Kind, Streams,
};
use substrate_executor::hosted;
use substrate_executor::hosting::Hosting;
use substrate_executor::isolation::Isolation;
use substrate_executor::session::Session;
use substrate_linux::probe;
use substrate_modelgate::Ledger;
use substrate_policy::terms::{Mode, WorldSpec};
use substrate_runtime::supervise::Ending;
use substrate_shell::notice::Notices;
use substrate_shell::terminal_front::Terminal;
use substrate_sys::environment;
use substrate_trace::{AgentEvent, Level, SessionId, SpanId};
use substrate_world::backend::Held;
use substrate_world::progress::Progress;

use super::gate::{self, Book};
use super::plan::{self, Login, Plan};
use super::report::{Report, Run};
use super::screen;
use super::watch::Watch;
use crate::agent_run_args::AgentRunArgs;
use crate::asker::Asker;
use crate::failure::Failure;
use crate::out;
use crate::worlds::ThisMachine;

/// The policy of agents, unless another is named.
const PRESET: &str = "agent";
/// How much of what a client prints is kept for the answer: its end, where the result stands.
const MOST_OUTPUT: usize = 1 << 20;

/// Runs an agent.
pub fn run(asker: &Asker, args: &AgentRunArgs, arguments: &[OsString]) -> Result<Ending, Failure> {
    let notices = Notices::new(&environment::raw());
    start(asker, args, arguments, notices).or_else(|failure| {
        notices.say(Kind::Failed, &failure.to_string());
        Ok(Ending::Exit(failure.run_code()))
    })
}

fn start(
    asker: &Asker,
    args: &AgentRunArgs,
    arguments: &[OsString],
    notices: Notices,
) -> Result<Ending, Failure> {
    check(args)?;
    if asker.is_at_a_prompt() {
        return elsewhere(asker, arguments);
    }
    let cwd = asker.cwd()?;
    let plan = plan::make(asker, args, arguments, environment::raw())?;
    if args.json && args.goal.is_none() && plan.descriptor.is_some() {
        let text = "--json tells the end of a run that nobody watches; add -p GOAL";
        return Err(Failure::Usage(text.to_owned()));
    }
    let policy = args.policy.clone().unwrap_or_else(|| PRESET.into());
    let broker = asker.broker_at(Some(policy), false, &cwd)?;
    for warning in broker.take_warnings() {
        notices.say(Kind::Warning, &warning);
    }
    let spec = terms(&broker, &cwd);
    need_a_world(&spec)?;
    let ledger = Arc::new(ledger(args, &plan, &spec)?);
    let seconds = args.timeout.as_deref().map(plan::seconds).transpose()?;
    plan.make_home()?;
    tell_login(&plan, &notices);
    let agent = Agent {
        args,
        cwd: &cwd,
        spec: &spec,
        ledger: &ledger,
        notices,
    };
    let (ran, report) = agent.run(broker, &plan, seconds)?;
    match args.json {
        true => out::print(&format!("{}\n", report.to_json(&ran)))?,
        false => notices_of(&screen::text(&ran, &report)),
    }
    Ok(ran.ending)
}

/// A process at whose prompt something was typed stays what it is; another one runs the agent.
fn elsewhere(asker: &Asker, arguments: &[OsString]) -> Result<Ending, Failure> {
    let status = Command::new(std::env::current_exe()?)
        .args(arguments.iter().skip(1))
        .envs(asker.shell_variables())
        .current_dir(asker.cwd()?)
        .status()?;
    Ok(match status.signal() {
        Some(signal) => Ending::Signal(signal),
        None => Ending::Exit(status.code().unwrap_or(FAILED)),
    })
}

/// What is asked for and cannot be had.
fn check(args: &AgentRunArgs) -> Result<(), Failure> {
    if args.detach {
        let text = "-d needs the service that keeps agents, and this build has none; without -d the \
                    agent runs here";
        return Err(Failure::Usage(text.to_owned()));
    }
    Ok(())
}

fn terms(broker: &Broker, cwd: &Path) -> WorldSpec {
    let facts = Machine::new(cwd, cwd, broker.home(), std::ffi::OsStr::new(""));
    broker.world_spec(&facts)
}

/// In `enforce` no world is made that does not hold; else one that does not is refused here, because
/// nothing of what is promised to whoever starts an agent would hold in it.
fn need_a_world(spec: &WorldSpec) -> Result<(), Failure> {
    if spec.mode == Mode::Enforce {
        return Ok(());
    }
    let level = probe::probe(&spec.substrate_home).level;
    match level {
        Level::Full => Ok(()),
        level => Err(Failure::Refused(format!(
            "an agent runs in a world only, and this machine gives level `{level}`; `substrate world \
             doctor` tells what to do"
        ))),
    }
}

/// What the agent may spend: the least of what the policy and the person say.
fn ledger(args: &AgentRunArgs, plan: &Plan, spec: &WorldSpec) -> Result<Ledger, Failure> {
    let wanted = args.budget.as_deref().map(plan::tokens).transpose()?;
    let limit = match (spec.limits.tokens, wanted) {
        (Some(policy), Some(wanted)) => Some(policy.min(wanted)),
        (policy, wanted) => policy.or(wanted),
    };
    let uncounted = plan.through.is_none() && !matches!(plan.login, Login::None);
    if limit.is_some() && uncounted || wanted.is_some() && plan.through.is_none() {
        let which = if wanted.is_some() {
            "--budget"
        } else {
            "guards.tokens of the policy"
        };
        return Err(Failure::Refused(format!(
            "{which}: tokens are counted at the model gate, and {} does not go through it here{}",
            plan.name,
            match key_names(plan) {
                names if names.is_empty() => String::new(),
                names => format!("; set {}", names.join(" or ")),
            }
        )));
    }
    let turns = args.max_turns.filter(|_| plan.gate_counts_turns());
    Ok(Ledger::new(limit).with_turns(turns))
}

fn key_names(plan: &Plan) -> Vec<String> {
    let models = plan
        .descriptor
        .iter()
        .flat_map(|descriptor| &descriptor.models);
    models
        .flat_map(|model| &model.keys)
        .map(|key| key.env.clone())
        .collect()
}

/// A key that is in the world is said to be: whatever runs there can read it and carry it to wherever the
/// policy lets it connect.
fn tell_login(plan: &Plan, notices: &Notices) {
    let Login::Inside(keys) = &plan.login else {
        return;
    };
    let what = match keys.is_empty() {
        true => "the client's own log-in".to_owned(),
        false => keys.join(", "),
    };
    let gated = plan
        .descriptor
        .as_ref()
        .is_some_and(|descriptor| descriptor.auth == Auth::Gated);
    let hint = match gated {
        true => "; with a key in a variable it would stay outside, and tokens would be counted",
        false => "",
    };
    notices.say(
        Kind::Info,
        &format!(
            "{what} is inside the world, where everything that {} starts can read it{hint}",
            plan.name
        ),
    );
}

fn notices_of(text: &str) {
    // The screen is for a person; standard output is the agent's.
    let _ = io::Write::write_all(&mut io::stderr(), text.as_bytes());
}

/// A run that is about to begin.
struct Agent<'a> {
    args: &'a AgentRunArgs,
    cwd: &'a Path,
    spec: &'a WorldSpec,
    ledger: &'a Arc<Ledger>,
    notices: Notices,
}

impl Agent<'_> {
    fn run(
        &self,
        broker: Broker,
        plan: &Plan,
        seconds: Option<u32>,
    ) -> Result<(Run, Report), Failure> {
        let home = broker.home().path.clone();
        let redact = broker.last_policy().settings().redact.clone();
        let provider = plan
            .descriptor
            .as_ref()
            .map(|descriptor| descriptor.name.clone());
        let book = Book::open(home.clone(), redact, provider);
        let services = plan
            .through
            .iter()
            .map(|through| gate::service(through, self.spec, self.ledger, &book));
        let hosting = plan.hosting(services.collect(), seconds);
        let watch = Watch::begin(plan.settings.clone());
        let (front, captured) = self.front()?;
        let since = SystemTime::now();
        let started = Instant::now();
        let (ending, session, span) = self.host(broker, plan, &hosting, front, &book);
        let output = captured.map(|reading| reading.join().unwrap_or_default());
        let spent = self.ledger.spent();
        let run = Run {
            name: plan.name.clone(),
            descriptor: plan.descriptor.clone(),
            login: plan.login.clone(),
            upstream: plan
                .through
                .as_ref()
                .map(|through| through.upstream.to_string()),
            ending,
            duration: started.elapsed(),
            session,
            span,
            isolated: self.args.isolated,
            headless: self.args.goal.is_some(),
            spent,
            ran_out: self.ledger.ran_out(),
            limit: self.ledger.limit(),
            output,
        };
        let report = Report::read(&home, &run, since, watch.changed());
        book.close(AgentEvent {
            action: "ended".to_owned(),
            detail: Some(report.outcome(&run).word().to_owned()),
            tokens: Some(run.tokens()),
            ..AgentEvent::default()
        });
        Ok((run, report))
    }

    fn host(
        &self,
        broker: Broker,
        plan: &Plan,
        hosting: &Hosting,
        front: AgentFront,
        book: &Book,
    ) -> (Ending, SessionId, Option<SpanId>) {
        let env: Vec<CString> = plan.env.clone();
        let session = Session::begin(broker, env, Arc::new(front), Arc::new(ThisMachine));
        let isolation = Isolation {
            keep: true,
            ..Isolation::default()
        };
        let isolation = self.args.isolated.then_some(&isolation);
        let begun = std::cell::Cell::new(None);
        let tell = |span: &substrate_trace::SpanInfo| {
            begun.set(Some(span.span_id));
            book.begin(span);
        };
        let ending = hosted::run(&session, &plan.argv, hosting, isolation, self.cwd, &tell);
        (ending, session.id(), begun.get())
    }

    /// The front, and what reads what the client prints, where that is part of the answer.
    fn front(&self) -> Result<(AgentFront, Option<Reading>), Failure> {
        let watched = io::stdin().is_terminal() && io::stdout().is_terminal();
        let mut front = AgentFront {
            terminal: Terminal::new(self.notices),
            quiet: watched && self.args.goal.is_none(),
            output: None,
        };
        if !self.args.json {
            return Ok((front, None));
        }
        let (reader, writer) = io::pipe()?;
        front.output = Some(writer.into());
        Ok((front, Some(thread::spawn(move || end_of(reader)))))
    }
}

/// A thread that reads what the client prints.
type Reading = JoinHandle<Vec<u8>>;

/// The end of what comes, all of which is read.
fn end_of(mut reader: impl Read) -> Vec<u8> {
    let mut kept = Vec::new();
    let mut buffer = [0; 64 << 10];
    while let Ok(length @ 1..) = reader.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..length]);
        let over = kept.len().saturating_sub(2 * MOST_OUTPUT);
        if over > 0 {
            kept.drain(..kept.len() - MOST_OUTPUT);
        }
    }
    let over = kept.len().saturating_sub(MOST_OUTPUT);
    kept.drain(..over);
    kept
}

/// A person at a terminal whose screen belongs to the agent as long as it runs.
struct AgentFront {
    terminal: Terminal,
    /// What would be said meanwhile is on the last screen, and in the trace.
    quiet: bool,
    /// Where standard output leads, when it is not ours.
    output: Option<OwnedFd>,
}

impl Front for AgentFront {
    fn say(&self, kind: Kind, text: &str) {
        self.terminal.say(kind, text);
    }

    fn say_beside(&self, kind: Kind, text: &str) {
        if !self.quiet {
            self.terminal.say_beside(kind, text);
        }
    }

    fn line(&self, kind: Kind, text: &str) -> String {
        self.terminal.line(kind, text)
    }

    fn barrier(&self, caller: &Caller) -> Option<Barrier> {
        self.terminal.barrier(caller)
    }

    fn ask(&self, inquiry: &dyn Inquiry) -> io::Result<Given> {
        self.terminal.ask(inquiry)
    }

    fn settle(&self, held: &Held, about: &dyn HeldChanges) -> Option<Choice> {
        self.terminal.settle(held, about)
    }

    fn progress(&self) -> Box<dyn FnMut(Progress) -> bool> {
        self.terminal.progress()
    }

    fn streams(&self) -> io::Result<Streams> {
        let Some(output) = &self.output else {
            return self.terminal.streams();
        };
        let nothing = OwnedFd::from(File::open("/dev/null")?);
        let errors = std::os::fd::AsFd::as_fd(&io::stderr()).try_clone_to_owned()?;
        Ok(Streams::Given(GivenStreams {
            stdio: GivenStdio::Streams([nothing, output.try_clone()?, errors]),
            abandoned: None,
        }))
    }
}
