//! `substrate shim-exec`: takes over from a shim that could not decide alone. The tool is found
//! already, and whatever runs takes the place of this process, as it would have taken the shim's.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::working_directory::working_directory;
use substrate_broker::enclosure::OwnHome;
use substrate_broker::env::{SHIM_BYPASS, SUBSTRATE_WORLD};
use substrate_broker::{
    Answer, Around, Broker, BrokerError, Caller, Choice, Evaluation, Home, Input, Options, Origin,
    Request, Terms,
};
use substrate_executor::exit_status::FAILED;
use substrate_executor::front::Kind;
use substrate_executor::job::Job;
use substrate_executor::oneshot::Once;
use substrate_executor::session::Session;
use substrate_executor::variables::{meaning, variables};
use substrate_executor::walk::{Command, Here, NotRun, Passage, Placed, Ran, Way, walk};
use substrate_policy::terms::Place;
use substrate_runtime::supervise::Ending;
use substrate_shell::notice::Notices;
use substrate_shim::{guard, record, start, tool};
use substrate_sys::environment;
use substrate_text::command_line;
use substrate_trace::{Component, SpanInfo};

use crate::asker::ceilings;
use crate::failure::Failure;
use crate::worlds::begin;

/// What a shim hands over.
struct Order {
    home: PathBuf,
    target: PathBuf,
    /// What the tool gets, `argv[0]` first.
    argv: Vec<OsString>,
    /// How many arguments this process has.
    arguments: usize,
}

/// Runs what a shim handed over.
pub fn run(arguments: &[OsString]) -> Ending {
    let env = environment::raw();
    let notices = Notices::new(&env);
    let result = parse(arguments).and_then(|order| take_over(&order, env, notices));
    result.unwrap_or_else(|failure| {
        notices.say(Kind::Failed, &failure.to_string());
        Ending::Exit(failure.run_code())
    })
}

/// Read by hand, because the way of every `ask` and `isolate` leads through here.
fn parse(arguments: &[OsString]) -> Result<Order, Failure> {
    let wrong = || {
        Failure::Usage(
            "usage: substrate shim-exec --home DIR --target PATH --span ID -- ARGV0 [ARG]..."
                .to_owned(),
        )
    };
    let words: Vec<&OsStr> = arguments.iter().skip(2).map(OsString::as_os_str).collect();
    let [
        home_name,
        home,
        target_name,
        target,
        span_name,
        // Shims name the span that is to be written. Nothing is on record of it yet, and whoever else calls this could
        // name somebody's: it gets an id of its own.
        _,
        end,
        argv @ ..,
    ] = words.as_slice()
    else {
        return Err(wrong());
    };
    let names = [*home_name, *target_name, *span_name, *end];
    if names != ["--home", "--target", "--span", "--"].map(OsStr::new) || argv.is_empty() {
        return Err(wrong());
    }
    Ok(Order {
        home: home.into(),
        target: target.into(),
        argv: argv.iter().map(|word| word.into()).collect(),
        arguments: arguments.len(),
    })
}

fn take_over(order: &Order, env: Vec<CString>, notices: Notices) -> Result<Ending, Failure> {
    let home =
        Home::find(Some(order.home.as_os_str()), None, || false).map_err(BrokerError::from)?;
    let (cwd, lost) = match working_directory(&env) {
        Ok(cwd) => (cwd, false),
        Err(_) => (PathBuf::from("/"), true),
    };
    let name = order.target.file_name().unwrap_or_default().to_owned();
    let judged: Vec<OsString> = std::iter::once(name)
        .chain(order.argv.iter().skip(1).cloned())
        .collect();
    let given_path = environment::get(&env, "PATH").map(OsStr::from_bytes);
    let search_path = tool::judged_path(&order.target, given_path, &home.shims());
    let environment = variables(&env);
    let around = || meaning(&environment, &environment);
    let request = Request {
        input: Input::Argv(&judged),
        origin: Origin::Shim,
        cwd: &cwd,
        search_path: &search_path,
        variables: &[],
        aliases: &[],
        isolate: false,
        around: Around::Asked(&around),
    };

    let options = Options {
        choice: Choice::Active,
        ceilings: Vec::new(),
        require_approval: false,
        world: environment::get(&env, SUBSTRATE_WORLD)
            .map(|value| OsStr::from_bytes(value).to_owned()),
        home_variable: environment::get(&env, "HOME")
            .map(|value| OsStr::from_bytes(value).to_owned()),
        unattended: false,
        session_start: cwd.clone(),
        caller: Caller::own(),
    };
    let around = options.caller.ancestors();
    let open = |home: Home| {
        let ceilings = ceilings(&around);
        Broker::open(
            home,
            Options {
                ceilings,
                ..options.clone()
            },
        )
    };
    let broker = open(home.clone())?;
    // A shim of another home is no way out of the session around it.
    let enclosing = match around.is_empty() {
        true => None,
        false => {
            let theirs = options.caller.home(&around, OwnHome::default());
            let theirs = theirs.map_err(BrokerError::from)?;
            (theirs.path != home.path)
                .then(|| open(theirs))
                .transpose()?
        }
    };
    let session = begin(broker, env, notices);
    let target = order.target.clone().into_os_string();
    let job = Job::Argv(
        std::iter::once(target)
            .chain(judged.iter().skip(1).cloned())
            .collect(),
    );
    let command = Command {
        request,
        cmd: command_line(&judged),
        argv: judged.clone(),
    };
    let mut guarded = Guarded {
        order,
        enclosing,
        lost,
        once: Once::new(&job, None, &cwd),
    };
    Ok(walk(&session, &command, &mut guarded).ending())
}

/// A command of somebody else's shell, in front of which a shim stands.
struct Guarded<'a> {
    order: &'a Order,
    /// Who decides for the session around it, where that is another home's.
    enclosing: Option<Broker>,
    /// Its working directory is gone.
    lost: bool,
    /// How it runs in a world.
    once: Once<'a>,
}

impl Way for Guarded<'_> {
    fn judge(&mut self, session: &Session, request: &Request<'_>) -> Evaluation {
        let evaluation = session.broker.evaluate(request);
        let theirs = self.enclosing.as_ref().map(|them| them.evaluate(request));
        match theirs {
            Some(theirs) if strictness(&theirs) > strictness(&evaluation) => theirs,
            _ => evaluation,
        }
    }

    fn passage(&mut self, session: &Session, _: &Evaluation, span: &mut SpanInfo) -> Passage {
        span.component = Component::Shim;
        if self.lost {
            if session.enforces() {
                let why = "nothing was run, because the working directory is gone and nothing can be judged by it";
                session.front.say(Kind::Failed, why);
                return Passage::Closed(FAILED);
            }
            span.degraded
                .push("the working directory is gone".to_owned());
        }
        let bypass = session.variable(SHIM_BYPASS) == Some(OsStr::new("1"));
        if bypass && session.broker.allows_bypass() {
            (span.verdict, span.rule) = (None, None);
            guard::bypassed(span);
            return Passage::Free;
        }
        Passage::Judged
    }

    fn compares(&self, evaluation: &Evaluation) -> bool {
        leaves_its_shell(evaluation)
    }

    /// The shell that it belongs to lives outside every world; only what the policy isolates by name leaves its side.
    fn place<'w>(
        &'w mut self,
        session: &'w Session,
        evaluation: &'w Evaluation,
        terms: Option<&'w Terms>,
        span: &mut SpanInfo,
    ) -> Result<Placed<'w>, NotRun> {
        if terms.is_some() && leaves_its_shell(evaluation) {
            return self.once.place(session, evaluation, terms, span);
        }
        let order = self.order;
        // Where the kernel tells nobody how it ended, this waits for it, and records it.
        Ok(Placed::Here(Here::new(|span| Ran {
            ending: Some(become_tool(session, order, span.clone())),
            done: None,
        })))
    }
}

/// Whether it runs in a world of its own.
fn leaves_its_shell(evaluation: &Evaluation) -> bool {
    match &evaluation.answer {
        Answer::Allow(terms) | Answer::Ask(terms, _) => matches!(terms.place, Place::Isolated(_)),
        Answer::Deny(_) => false,
    }
}

fn strictness(evaluation: &Evaluation) -> u8 {
    match &evaluation.answer {
        Answer::Deny(_) => 3,
        Answer::Ask(..) => 2,
        Answer::Allow(terms) => u8::from(matches!(terms.place, Place::Isolated(_))),
    }
}

/// Becomes the tool.
fn become_tool(session: &Session, order: &Order, span: SpanInfo) -> Ending {
    let argv: std::io::Result<Vec<CString>> = order
        .argv
        .iter()
        .map(|word| start::c_string(word))
        .collect();
    let tool = start::Tool {
        target: &order.target,
        name: order.target.file_name().unwrap_or_default(),
        argv: argv.unwrap_or_default(),
        env: record::child_env(&span, &session.env),
        given_env: &session.env,
        arguments: order.arguments,
    };
    let home: &Path = &session.broker.home().path;
    let policy = session.broker.policy();
    let notices = substrate_shim::notice::Notices::new(&session.env);
    start::run(tool, &notices, &|| (), &|ending, duration| {
        let ended = (ending, duration);
        record::complete(home, &policy.settings().redact, &span, ended, |_| {
            span.replay.clone()
        });
    })
}
