//! `substrate shim-exec`: takes over from a shim that could not decide alone. The tool is found
//! already, and whatever runs takes the place of this process, as it would have taken the shim's.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use substrate_broker::enclosure::OwnHome;
use substrate_broker::env::{SHIM_BYPASS, SUBSTRATE_WORLD};
use substrate_broker::{
    Answer, Around, Broker, BrokerError, Caller, Choice, Evaluation, Home, Input, Options, Origin,
    Request,
};
use substrate_executor::approval;
use substrate_executor::exit_status::{DENIED, FAILED};
use substrate_executor::front::Kind;
use substrate_executor::oneshot::{self, Job};
use substrate_executor::session::{Session, working_directory};
use substrate_executor::variables::{meaning, variables};
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

    let caller = Caller::own();
    let around = caller.ancestors();
    let open = |home: Home| {
        Broker::open(
            home,
            Options {
                choice: Choice::Active,
                ceilings: ceilings(&around),
                require_approval: false,
                world: environment::get(&env, SUBSTRATE_WORLD)
                    .map(|value| OsStr::from_bytes(value).to_owned()),
                home_variable: environment::get(&env, "HOME")
                    .map(|value| OsStr::from_bytes(value).to_owned()),
                session_start: cwd.clone(),
                caller: caller.clone(),
            },
        )
    };
    let broker = open(home.clone())?;
    let mut evaluation = broker.evaluate(&request);
    // A shim of another home is no way out of the session around it.
    if !around.is_empty() {
        let session_home = caller
            .home(&around, OwnHome::default())
            .map_err(BrokerError::from)?;
        if session_home.path != home.path {
            let theirs = open(session_home)?.evaluate(&request);
            if strictness(&theirs) > strictness(&evaluation) {
                evaluation = theirs;
            }
        }
    }
    let session = begin(broker, env, notices);
    let mut span = session.span(&evaluation, command_line(&judged), judged.clone(), &cwd);
    span.component = Component::Shim;
    if lost {
        if session.enforces() {
            notices.say(Kind::Failed, "nothing was run, because the working directory is gone and nothing can be judged by it");
            return Ok(Ending::Exit(FAILED));
        }
        span.degraded
            .push("the working directory is gone".to_owned());
    }
    let bypass =
        session.variable(SHIM_BYPASS) == Some(OsStr::new("1")) && session.broker.allows_bypass();
    if bypass {
        (span.verdict, span.rule) = (None, None);
        guard::bypassed(&mut span);
        return Ok(run_direct(&session, order, span));
    }
    let Some(permit) = approval::permit(&session, &request, &evaluation, &span, None) else {
        return Ok(Ending::Exit(DENIED));
    };
    Ok(match permit.terms.place {
        Place::Isolated(_) => {
            let argv = std::iter::once(order.target.clone().into_os_string())
                .chain(judged.iter().skip(1).cloned());
            let job = Job::Argv(argv.collect());
            oneshot::carry_out(&session, &job, None, &cwd, &evaluation, permit.terms, span)
        }
        // A shim guards a command of somebody else's shell, which lives outside every world; only what
        // the policy isolates by name leaves that shell's side.
        Place::Direct | Place::Session(_) => run_direct(&session, order, span),
    })
}

fn strictness(evaluation: &Evaluation) -> u8 {
    match &evaluation.answer {
        Answer::Deny(_) => 3,
        Answer::Ask(..) => 2,
        Answer::Allow(terms) => u8::from(matches!(terms.place, Place::Isolated(_))),
    }
}

/// Becomes the tool.
fn run_direct(session: &Session, order: &Order, mut span: SpanInfo) -> Ending {
    span.place = Some("direct");
    if !session.record_start(&span) {
        return Ending::Exit(FAILED);
    }
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
