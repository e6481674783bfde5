//! `substrate daemon`: the service of this user.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use substrate_api::client;
use substrate_api::service::Status;
use substrate_broker::{Caller, Home};
use substrate_daemon::life::{self, NoService};
use substrate_daemon::setup::Setup;
use substrate_sys::bounded::{self, Links, Unread};
use substrate_sys::{pidfd, process_group, signals};
use substrate_text::visible;
use substrate_warm::keep::Bounds;

use crate::args;
use crate::asker::{self, Asker};
use crate::commands::when;
use crate::failure::Failure;
use crate::out;
use crate::service;
use crate::service_args::DaemonCommand;
use crate::worlds::ThisMachine;

/// How long a service may take for its end.
const STOPPING: Duration = Duration::from_secs(40);
/// Longest log that is shown.
const LONGEST_LOG: u64 = 16 << 20;

/// Runs a subcommand of `daemon`.
pub fn run(asker: &Asker, command: &DaemonCommand) -> Result<(), Failure> {
    let home = asker.home()?;
    match command {
        DaemonCommand::Status { json } => status(&home, *json),
        DaemonCommand::Logs { lines } => logs(&home, *lines),
        DaemonCommand::Start => {
            outside(asker)?;
            start(&home)
        }
        DaemonCommand::Stop => {
            outside(asker)?;
            stop(&home)
        }
        DaemonCommand::Restart => {
            outside(asker)?;
            stop(&home)?;
            start(&home)
        }
        DaemonCommand::Run { idle, worlds, keep } => {
            outside(asker)?;
            let bounds = Bounds {
                worlds: *worlds,
                idle: Duration::from_secs(*keep),
            };
            serve(home, bounds, *idle)
        }
    }
}

/// A service that a session encloses would serve everybody with that session's surroundings.
fn outside(asker: &Asker) -> Result<(), Failure> {
    match asker.enclosure() {
        None => Ok(()),
        Some(trace) => {
            let barrier = substrate_broker::person::Barrier::Enclosed(trace);
            Err(Failure::Refused(format!("nothing was changed: {barrier}")))
        }
    }
}

fn serve(home: Home, bounds: Bounds, idle: Option<u64>) -> Result<(), Failure> {
    let setup = Setup {
        home,
        worlds: Arc::new(ThisMachine),
        bounds,
        idle: idle.map(Duration::from_secs),
        version: args::version().trim().to_owned(),
        ceilings: |caller: &Caller| asker::ceilings(&caller.ancestors()),
    };
    life::run(setup).map_err(|error| match error {
        NoService::Running(_) => Failure::Refused(error.to_string()),
        NoService::Cannot { what, source } => Failure::File {
            what: format!("the service cannot {what}"),
            error: source,
        },
    })
}

fn start(home: &Home) -> Result<(), Failure> {
    home.ensure(&home.path)?;
    if let Some(holder) = service::holder(&home.path)? {
        return Ok(out::print(&format!(
            "it runs already (process {})\n",
            holder.pid
        ))?);
    }
    service::launch(&home.path, None)?;
    // It answers, or there is something to say.
    service::connect(&home.path)?;
    match service::holder(&home.path)? {
        Some(holder) => Ok(out::print(&format!("it runs (process {})\n", holder.pid))?),
        None => Err(Failure::Missing(format!(
            "the service has ended at once; {} says why",
            service::log_file(&home.path).display()
        ))),
    }
}

fn stop(home: &Home) -> Result<(), Failure> {
    let Some(holder) = service::holder(&home.path)? else {
        return Ok(out::print("it does not run\n")?);
    };
    let pid = i32::try_from(holder.pid).map_err(io::Error::other)?;
    let Ok(process) = pidfd::open(pid) else {
        return Ok(out::print("it has just ended\n")?);
    };
    // Looked at again now that its number cannot come to mean another process.
    if service::holder(&home.path)?.as_ref() == Some(&holder) {
        process_group::send(pid, signals::TERMINATE)?;
    }
    let end = Instant::now() + STOPPING;
    while pidfd::is_alive(std::os::fd::AsFd::as_fd(&process)) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    match pidfd::is_alive(std::os::fd::AsFd::as_fd(&process)) {
        false => Ok(out::print("it has ended\n")?),
        true => Err(Failure::Refused(format!(
            "process {pid} has not ended within {} s; `substrate daemon logs` may say why",
            STOPPING.as_secs()
        ))),
    }
}

/// What the service says of itself.
pub fn ask(home: &Path) -> Result<Option<Status>, Failure> {
    let Some(stream) = service::find(home)? else {
        return Ok(None);
    };
    Ok(Some(client::get(stream, "/v1/status")?))
}

fn status(home: &Home, as_json: bool) -> Result<(), Failure> {
    let status = ask(&home.path)?;
    if as_json {
        let status = status.map_or(serde_json::json!({"v": 1, "running": false}), |status| {
            serde_json::to_value(status).unwrap_or_default()
        });
        return Ok(out::print(&format!("{status}\n"))?);
    }
    let Some(status) = status else {
        return Ok(out::print(
            "it does not run; it starts when something needs it\n",
        )?);
    };
    let seconds = status.uptime_ms / 1000;
    let mut text = format!(
        "running     process {}, {}, for {}\n\
         commands    {} running, {} questions waiting\n\
         worlds      {} made, {} times reused ({})\n\
         memory      {} MiB\n",
        status.pid,
        visible(status.version.as_bytes()),
        when::lasting(seconds),
        status.running,
        status.waiting,
        status.worlds_made,
        status.worlds_reused,
        share(status.worlds_made, status.worlds_reused),
        status.memory_bytes >> 20,
    );
    text.push_str(&world_lines(&status));
    Ok(out::print(&text)?)
}

/// The worlds that are kept, a line each.
pub fn world_lines(status: &Status) -> String {
    let mut text = String::new();
    for world in &status.worlds {
        let project = world.project.as_ref().map(substrate_api::Bytes::as_slice);
        text.push_str(&format!(
            "  {}  {} for {} in {}, policy {}, {} commands, {}\n",
            world.id,
            world.level,
            visible(world.agent_id.as_bytes()),
            project.map_or("no project".to_owned(), visible),
            visible(world.policy.as_bytes()),
            world.served,
            match world.idle_ms {
                Some(idle) => format!("idle for {}", when::lasting(idle / 1000)),
                None => "in use".to_owned(),
            },
        ));
    }
    text
}

fn share(made: u32, reused: u32) -> String {
    match u64::from(made) + u64::from(reused) {
        0 => "no command yet".to_owned(),
        all => format!("{} %", u64::from(reused) * 100 / all),
    }
}

fn logs(home: &Home, lines: usize) -> Result<(), Failure> {
    let path = service::log_file(&home.path);
    let text = match bounded::read(&path, Links::Refuse, LONGEST_LOG) {
        Ok(text) => text,
        Err(Unread::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(out::print("nothing has been logged\n")?);
        }
        Err(error) => {
            return Err(Failure::File {
                what: path.display().to_string(),
                error: error.into(),
            });
        }
    };
    let all: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let all = all.strip_suffix(&[&b""[..]]).unwrap_or(&all);
    let shown: Vec<String> = all[all.len().saturating_sub(lines)..]
        .iter()
        .map(|line| visible(line) + "\n")
        .collect();
    Ok(out::print(&shown.concat())?)
}
