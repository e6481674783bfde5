//! The doors in front of other programs' shells. Claude Code starts every line, every hook and every server as
//! `PREFIX 'LINE'` when its settings say so; our link of that name is the prefix. What is broken there runs
//! nothing, so that this holds where a hook that dies would not.

use std::ffi::{CString, OsStr, OsString};
use std::path::Path;

use substrate_adapters::Client;
use substrate_adapters::hook::newest_call;
use substrate_adapters::setup::{CLAUDE_SHELL, Program};
use substrate_broker::env::SUBSTRATE_AGENT_ID;
use substrate_executor::exit_status::DENIED;
use substrate_executor::front::Kind;
use substrate_runtime::supervise::Ending;
use substrate_shell::notice::Notices;
use substrate_sys::environment;
use substrate_trace::PARENT_SPAN_VAR;

use crate::asker::Asker;
use crate::commands::hook;
use crate::shell_mode;

/// Where Claude Code says which conversation something belongs to.
const SESSION: &str = "CLAUDE_CODE_SESSION_ID";

/// Whether we were started as a door.
pub fn is_one(arguments: &[OsString]) -> bool {
    let name = arguments.first().map(Path::new).and_then(Path::file_name);
    name == Some(OsStr::new(CLAUDE_SHELL))
}

/// Runs what comes through it: our own hook as that, everything else as a line that is judged.
pub fn run(arguments: &[OsString]) -> Ending {
    let [_, line] = arguments else {
        let notices = Notices::new(&environment::raw());
        let text = format!("{CLAUDE_SHELL} takes one line, as Claude Code writes it");
        notices.say(Kind::Failed, &text);
        return Ending::Exit(DENIED);
    };
    let asker = Asker::own();
    if is_our_hook(&asker, line) {
        return hook::carry_out(&asker, Client::Claude.name(), None);
    }
    let words = ["substrate", "-c", "--"].map(OsString::from);
    let words = [&words[..], std::slice::from_ref(line)].concat();
    shell_mode::run_in(&words, environment_of_the_call(&asker))
}

/// Our environment, with the agent's name and the span of its newest call, below which the line runs. It
/// links spans together; no decision rests on it.
fn environment_of_the_call(asker: &Asker) -> Vec<CString> {
    let mut env = environment::raw();
    if environment::get(&env, SUBSTRATE_AGENT_ID).is_none() {
        environment::set(
            &mut env,
            SUBSTRATE_AGENT_ID,
            Client::Claude.name().as_bytes(),
        );
    }
    let session = asker
        .variable(SESSION)
        .and_then(|session| session.into_string().ok());
    let newest = session.zip(asker.home().ok());
    let newest = newest.and_then(|(session, home)| newest_call(&home, Client::Claude, &session));
    if let Some(parent) = newest.filter(|_| environment::get(&env, PARENT_SPAN_VAR).is_none()) {
        environment::set(&mut env, PARENT_SPAN_VAR, parent.to_string().as_bytes());
    }
    env
}

/// Whether a line is what `agent setup` wrote, to the letter: the hook has to see the client, and not be judged
/// as a command of its agent.
fn is_our_hook(asker: &Asker, line: &OsStr) -> bool {
    let Ok(path) = std::env::current_exe() else {
        return false;
    };
    let Ok(home) = asker.home() else {
        return false;
    };
    let program = Program { path, home };
    line == OsStr::new(&program.hook(Client::Claude, None))
}
