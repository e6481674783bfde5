//! `substrate` as a shell: `-c`, scripts, standard input, the prompt.

use crate::asker::Asker;
use std::ffi::{CString, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::working_directory::working_directory;
use substrate_broker::enclosure::Trace;
use substrate_broker::env::{SUBSTRATE_JSON_ERRORS, SUBSTRATE_WORLD};
use substrate_broker::{BrokerError, person, project};
use substrate_executor::front::Kind;
use substrate_executor::job::{self, Job};
use substrate_executor::oneshot;
use substrate_executor::session::Session;
use substrate_runtime::supervise::Ending;
use substrate_shell::arrival;
use substrate_shell::engine::Startup;
use substrate_shell::notice::Notices;
use substrate_shell::prompt_gate::PromptGate;
use substrate_shell::repl::{self, NotStarted, ReplOptions};
use substrate_shell::session_world::Quarters;
use substrate_shell::standard_input;
use substrate_sys::environment;
use substrate_sys::real_path::real_path;
use substrate_trace::Mode;

use crate::args;
use crate::commands;
use crate::commands::replay;
use crate::failure::Failure;
use crate::out;
use crate::replay_args::ReplayArgs;
use crate::shell_args::{self, About, Listing, ShellArgs};
use crate::start_up;
use crate::worlds::{begin, begin_once};

/// Runs in shell mode.
pub fn run(arguments: &[OsString]) -> Ending {
    run_in(arguments, environment::raw())
}

/// The same in this environment instead of ours.
pub fn run_in(arguments: &[OsString], env: Vec<CString>) -> Ending {
    let notices = Notices::new(&env);
    let parsed = match shell_args::parse(arguments) {
        Ok(parsed) => parsed,
        Err(problem) => return report(&notices, &Failure::Usage(problem)),
    };
    match parsed.about {
        Some(About::Help) => return print(&notices, &args::help()),
        Some(About::Version) => return print(&notices, &args::version()),
        None => {}
    }
    if let Some(span) = &parsed.replay {
        return replay::run(
            &Asker::own(),
            ReplayArgs {
                span: Some(span.to_string_lossy().into_owned()),
                verbose: parsed.replay_verbose,
                policy: parsed.policy,
                ..ReplayArgs::default()
            },
        );
    }
    match start(parsed, env, notices) {
        Ok(ending) => ending,
        Err(failure) => report(&notices, &failure),
    }
}

fn start(
    mut parsed: ShellArgs,
    mut env: Vec<CString>,
    notices: Notices,
) -> Result<Ending, Failure> {
    if parsed.no_world {
        // The same switch as the variable, so that what runs below agrees; only observing heeds it.
        environment::set(&mut env, SUBSTRATE_WORLD, b"disabled");
    }
    if parsed.json_errors {
        environment::set(&mut env, SUBSTRATE_JSON_ERRORS, b"2");
    }
    let asker = Asker::with(env.clone());
    let prompts = wants_prompt(&parsed);
    let cwd = match working_directory(&env) {
        Err(error) if prompts => somewhere(&notices, &error),
        result => result.map_err(BrokerError::Cwd)?,
    };
    let policy = parsed.policy.take();
    let chosen = policy.is_some();
    // A person who logs in must get a prompt; one below a session has that session's.
    let enclosed = prompts.then(|| asker.enclosure()).flatten();
    let start = leads_to(&asker, &parsed, &cwd).unwrap_or_else(|| cwd.clone());
    let broker = if prompts && policy.is_none() && enclosed.is_none() {
        let tell = |text: &str| notices.say(Kind::Warning, text);
        asker.broker_for_a_prompt(parsed.require_approval, &cwd, &tell)?
    } else {
        asker.broker_at(policy, parsed.require_approval, &start)?
    };
    if chosen && broker.in_world() && broker.info().mode == Mode::Enforce {
        let text = format!(
            "policy '{}' judges lines here; files and network are held by the world around it, under its own policy",
            broker.info().id
        );
        notices.say(Kind::Info, &text);
    }
    let one_command = parsed.command || (!parsed.operands.is_empty() && !parsed.stdin);
    let mut session = match one_command {
        true => begin_once(broker, env, notices),
        false => begin(broker, env, notices),
    };
    session.record = parsed.record;
    let wanted = start_up::Wanted {
        login: parsed.login,
        rc_file: None,
    };
    let reads = parsed.login || parsed.interactive || job::reads_rc_for_ssh(&session.env);
    if !prompts && reads && !start_up::may_be_read(&session, &wanted, &cwd) {
        let without = ["--noprofile", "--norc"].map(OsString::from);
        parsed.options.extend(without);
    }
    // After the others, because bash wants its long options first.
    if parsed.login {
        parsed.options.push(OsString::from("-l"));
    }
    if parsed.interactive && !prompts {
        parsed.options.push(OsString::from("-i"));
    }
    let job = if parsed.command {
        let text = parsed.operands.remove(0);
        Job::Line {
            text,
            options: parsed.options,
            parameters: parsed.operands,
        }
    } else if !parsed.operands.is_empty() && !parsed.stdin {
        let path = parsed.operands.remove(0);
        Job::Script {
            path,
            options: parsed.options,
            parameters: parsed.operands,
        }
    } else {
        if parsed.record {
            let problem = "--record: there is nothing to follow here; it goes with -c or a script";
            return Err(Failure::Usage(problem.to_owned()));
        }
        if prompts {
            if let Some(listing) = &parsed.listing {
                list(&session, listing, &cwd);
            }
            return Ok(prompt(&session, &parsed, &cwd, enclosed));
        }
        let arguments = standard_input::Arguments {
            options: &parsed.options,
            listing: parsed.listing.as_ref().map(|listing| listing.option),
            parameters: &parsed.operands,
        };
        return Ok(standard_input::run(&session, &arguments, &cwd));
    };
    Ok(oneshot::run(&session, &job, None, &cwd))
}

/// The work tree that a line goes to first (`cd app && make`, as ssh and cron send it), if no session encloses
/// whoever gives it: as if he had been there already. Where a work tree is around us, that is the project.
fn leads_to(asker: &Asker, parsed: &ShellArgs, cwd: &Path) -> Option<PathBuf> {
    let text = parsed.operands.first().filter(|_| parsed.command)?;
    if !text.as_bytes().trim_ascii_start().starts_with(b"cd ") || asker.enclosure().is_some() {
        return None;
    }
    let home = asker.home().ok()?.user;
    let known = [(b"HOME".to_vec(), home.as_os_str().as_bytes().to_vec())];
    let models = substrate_command::model::NoModels;
    let mut context = substrate_command::Context::new(&models);
    context.variables = &known;
    let line = substrate_command::analyse(text.as_bytes(), &context);
    let to = arrival::begins_with(text.as_bytes(), &line, cwd, &home)?;
    // No link leads to a project that the line does not name.
    let real = real_path(&to).ok().filter(|real| *real == to)?;
    project::find(&real, cwd, &home).filter(|found| real.starts_with(found))
}

/// Whether lines are read from a person.
fn wants_prompt(parsed: &ShellArgs) -> bool {
    let terminal = || std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let elsewhere = parsed.command || (!parsed.operands.is_empty() && !parsed.stdin);
    let person = if parsed.interactive {
        std::io::stdin().is_terminal()
    } else {
        !parsed.stdin && terminal()
    };
    !elsewhere && person
}

/// Prints the settings that `-o` or `-O` alone asks for.
fn list(session: &Session, listing: &Listing, cwd: &Path) {
    let job = Job::Line {
        text: listing.command.into(),
        options: Vec::new(),
        parameters: Vec::new(),
    };
    oneshot::run(session, &job, None, cwd);
}

/// A directory to be in when the one that we were started in is gone.
fn somewhere(notices: &Notices, error: &std::io::Error) -> PathBuf {
    let place = PathBuf::from("/");
    let text = format!(
        "cannot tell the working directory ({error}); going to {}",
        place.display()
    );
    notices.say(Kind::Warning, &text);
    let _ = std::env::set_current_dir(&place);
    place
}

/// How a prompt ends whose terminal is gone.
const HUNG_UP: i32 = 129;

/// The shell that a person types at.
fn prompt(session: &Session, parsed: &ShellArgs, cwd: &Path, enclosed: Option<Trace>) -> Ending {
    // A prompt that the guarded side has opened is nobody's own.
    if person::barrier_of(session.broker.caller(), enclosed).is_none() {
        session.broker.own_prompt();
    }
    // Before the terminal is taken over and any other thread runs: a world is a copy of what is here.
    let quarters = Quarters::find(session, cwd);
    let unheld = matches!(quarters, Quarters::Refused(_));
    let given = |name: &str| parsed.options.iter().any(|option| option == name);
    let rc_file = parsed
        .options
        .iter()
        .position(|option| option == "--rcfile");
    let rc_file = rc_file.and_then(|at| parsed.options.get(at + 1));
    let wanted = start_up::Wanted {
        login: parsed.login,
        rc_file: rc_file.map(OsString::as_os_str),
    };
    // What nobody holds starts nothing by itself either, nor does what the policy refuses.
    let without = unheld || !start_up::may_be_read(session, &wanted, cwd);
    let options = ReplOptions {
        startup: Startup {
            login: parsed.login,
            no_rc: given("--norc") || without,
            no_profile: given("--noprofile") || without,
            rc_file: rc_file.map(Into::into),
            history_elsewhere: quarters.world().is_some(),
        },
        shell_history: quarters
            .world()
            .map(|_| session.broker.home().user.join(".bash_history")),
        home: Some(session.broker.home().path.clone()),
        redact: |line| {
            substrate_trace::Redactor::new::<&[u8]>(&[])
                .line(line)
                .into_owned()
                .into()
        },
        launcher: quarters.launcher(),
        ..ReplOptions::default()
    };
    let announcer = options.announcer.clone();
    let gate = PromptGate::new(session, &commands::AtThePrompt, &quarters, announcer);
    let ended = repl::run(options, &gate);
    if let Some(world) = quarters.world() {
        world.finish(session, matches!(ended, Ok(HUNG_UP)));
    }
    match ended {
        Ok(status) => Ending::Exit(status),
        Err(NotStarted(why)) => last_resort(session, parsed.login, &why, cwd),
    }
}

/// What serves when there can be no prompt of ours: a plain shell, where the policy lets one be started.
fn last_resort(session: &Session, login: bool, why: &str, cwd: &Path) -> Ending {
    let text = format!("{why}; a plain sh is tried, whose lines nobody judges");
    session.front.say(Kind::Warning, &text);
    let mut argv = vec![OsString::from("/bin/sh")];
    argv.extend(login.then(|| OsString::from("-l")));
    argv.push(OsString::from("-i"));
    oneshot::run(session, &Job::Argv(argv), None, cwd)
}

fn print(notices: &Notices, text: &str) -> Ending {
    match out::print(text) {
        Ok(()) => Ending::Exit(0),
        Err(error) => report(notices, &Failure::Output(error)),
    }
}

fn report(notices: &Notices, failure: &Failure) -> Ending {
    notices.say(Kind::Failed, &failure.to_string());
    if let Some(hint) = failure.hint() {
        notices.say(Kind::Info, hint);
    }
    Ending::Exit(failure.run_code())
}
