//! `substrate hook CLIENT`: what the client of an agent starts before and after it does something. Clients
//! go on when a hook fails in any other way than with status 2, so that is how every failure ends here.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::working_directory::working_directory;
use substrate_adapters::Client;
use substrate_adapters::hook::{self, LONGEST, Surroundings};
use substrate_runtime::supervise::Ending;
use substrate_sys::{environment, poll};
use substrate_text::visible;

use crate::asker::Asker;

/// The name of the subcommand.
pub const NAME: &str = "hook";

/// The status that every client takes for a refusal.
const BLOCKED: i32 = 2;

/// How long a client may take to tell what it has to; its own limit is longer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long an answer may take in all, whatever holds it up: a client that waits longer than it was told to goes on.
const LONGEST_WAIT: Duration = Duration::from_secs(12);

/// Reads its arguments by hand, because every call of every tool waits for this; `None` where they are not
/// what clients write, for the parser that has the words for it.
pub fn run(asker: &Asker, arguments: &[OsString]) -> Option<Ending> {
    let words: Vec<&str> = arguments
        .get(2..)?
        .iter()
        .map(|word| word.to_str())
        .collect::<Option<_>>()?;
    let (client, event) = match words.as_slice() {
        [client] => (*client, None),
        [client, event] => (*client, Some(*event)),
        _ => return None,
    };
    if client.starts_with('-') || event.is_some_and(|event| event.starts_with('-')) {
        return None;
    }
    Some(carry_out(asker, client, event))
}

/// Answers a client.
pub fn carry_out(asker: &Asker, client: &str, event: Option<&str>) -> Ending {
    // A crash would end in a status that lets the client go on.
    std::panic::set_hook(Box::new(|_| {
        say("substrate has failed; this is a mistake in it");
        std::process::exit(BLOCKED);
    }));
    std::thread::spawn(|| {
        std::thread::sleep(LONGEST_WAIT);
        say("there was no verdict in time");
        std::process::exit(BLOCKED);
    });
    match answer(asker, client, event) {
        Ok(()) => Ending::Exit(0),
        Err(problem) => {
            say(&problem);
            Ending::Exit(BLOCKED)
        }
    }
}

fn say(problem: &str) {
    let text = format!(
        "substrate: {}; nothing was permitted\n",
        visible(problem.as_bytes())
    );
    let _ = std::io::stderr().write_all(text.as_bytes());
}

fn answer(asker: &Asker, client: &str, event: Option<&str>) -> Result<(), String> {
    let client: Client = client.parse().map_err(|error| format!("{error}"))?;
    let payload =
        payload().map_err(|error| format!("what {client} tells cannot be read: {error}"))?;
    let event = hook::read(client, event, &payload).map_err(|error| error.to_string())?;
    let env = environment::raw();
    let around = Surroundings {
        cwd: working_directory(&env).unwrap_or_else(|_| PathBuf::from("/")),
        env,
        program: std::env::current_exe()
            .map_err(|error| format!("cannot tell what runs: {error}"))?,
    };
    let directory = hook::directory(&event, &around);
    let broker = asker
        .broker_at(None, false, &directory)
        .map_err(|failure| failure.to_string())?;
    let answer = hook::run(client, &event, &broker, &around).map_err(|error| error.to_string())?;
    let Some(answer) = answer else { return Ok(()) };
    let mut out = std::io::stdout();
    out.write_all(format!("{answer}\n").as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| format!("the answer cannot be written: {error}"))
}

/// Everything on standard input, in time.
fn payload() -> std::io::Result<Vec<u8>> {
    let end = Instant::now() + PATIENCE;
    let mut input = std::io::stdin().lock();
    let mut all = Vec::new();
    let mut part = vec![0; 1 << 16];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let ready = poll::readable(&[std::io::stdin().as_fd()], Some(left))?;
        if !ready.contains(&true) {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        match input.read(&mut part)? {
            0 => return Ok(all),
            length => all.extend_from_slice(&part[..length]),
        }
        if all.len() > LONGEST {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
    }
}
