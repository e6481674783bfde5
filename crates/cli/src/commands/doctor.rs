//! `substrate doctor`: what is and is not enforced on this machine.

use crate::asker::Asker;
use crate::clients;
use crate::commands::mirrors;
use std::path::Path;

use serde_json::{Value, json};
use substrate_agents::Shelf;
use substrate_broker::choice::FLOOR;
use substrate_broker::{Broker, Caller, person, project};
use substrate_executor::shell_path::shell_path;
use substrate_linux::{netprobe, probe, trial};
use substrate_sys::environment;
use substrate_trace::Level;

use crate::commands::agent::plan::user_home;
use crate::commands::agent::providers;
use crate::commands::agent_doctor::{self, Found};
use crate::commands::shim;
use crate::failure::Failure;
use crate::out;

/// One line of the report.
pub struct Check {
    /// What was looked at.
    pub what: &'static str,
    /// How it is.
    pub state: State,
    /// What was found, and what to do about it.
    pub found: String,
}

/// How something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// As it should be.
    Good,
    /// Usable, with a limit that is named.
    Limited,
    /// Not usable.
    Bad,
}

/// Prints the report; fails when something is not usable.
pub fn run(asker: &Asker, as_json: bool) -> Result<(), Failure> {
    let checks = checks(asker)?;
    if as_json {
        let rows: Vec<Value> = checks
            .iter()
            .map(|check| json!({"check": check.what, "state": word(check.state), "found": check.found}))
            .collect();
        out::print(&format!("{}\n", Value::Array(rows)))?;
    } else {
        let mut text = String::new();
        for check in &checks {
            text.push_str(&format!(
                "{:<8} {:<14} {}\n",
                word(check.state),
                check.what,
                check.found
            ));
        }
        out::print(&text)?;
    }
    if checks.iter().any(|check| check.state == State::Bad) {
        Err(Failure::No)
    } else {
        Ok(())
    }
}

fn word(state: State) -> &'static str {
    match state {
        State::Good => "ok",
        State::Limited => "limited",
        State::Bad => "bad",
    }
}

fn checks(asker: &Asker) -> Result<Vec<Check>, Failure> {
    let cwd = asker.cwd()?;
    let mut checks = Vec::new();
    let mut add = |what, state, found: String| checks.push(Check { what, state, found });

    match asker.broker(None) {
        Ok(broker) => {
            let info = broker.info().clone();
            let warnings = broker.take_warnings();
            let state = if warnings.is_empty() {
                State::Good
            } else {
                State::Limited
            };
            let note = warnings
                .first()
                .map(|_| "; its file has mistakes, the last good version is used")
                .unwrap_or_default();
            add(
                "policy",
                state,
                format!(
                    "{} ({}), mode {}{note}",
                    info.id,
                    info.path,
                    info.mode.as_str()
                ),
            );
            let home = broker.home();
            match home.unsafe_ownership() {
                Some(problem) => add("home", State::Bad, problem),
                None => add("home", State::Good, home.path.display().to_string()),
            }
            match substrate_trace::Writer::open(&home.path) {
                Ok(_) => add(
                    "trace",
                    State::Good,
                    home.path.join("trace.jsonl").display().to_string(),
                ),
                Err(error) => add("trace", State::Bad, error.to_string()),
            }
            if let Some((state, found)) = package_clients(asker, &broker) {
                add("package clients", state, found);
            }
            let here = project::find(&cwd, &cwd, &home.user);
            for found in agent_doctor::checks(home, here.as_deref()) {
                let (state, found) = match found {
                    Found::Good(found) => (State::Good, found),
                    Found::Limited(found) => (State::Limited, found),
                    Found::Bad(found) => (State::Bad, found),
                };
                add("agent client", state, found);
            }
            match here {
                Some(project) => add("project", State::Good, project.display().to_string()),
                None => add(
                    "project",
                    State::Limited,
                    "none here: $PROJECT is empty in the home directory and above it".to_owned(),
                ),
            }
        }
        Err(failure) => add("policy", State::Bad, failure.to_string()),
    }
    let (state, found) = worlds(asker);
    add("worlds", state, found);
    if Path::new(FLOOR).exists() {
        add("floor", State::Good, format!("{FLOOR} holds for everyone"));
    }
    if let Some(problems) = shim::problems(asker) {
        match problems.first() {
            Some(_) => add("shims", State::Limited, problems.join("; ")),
            None => add("shims", State::Good, "first on PATH".to_owned()),
        }
    }
    match shell_path() {
        Some(path) if path.ends_with("bash") => {
            add("engine", State::Good, path.display().to_string())
        }
        Some(path) => add(
            "engine",
            State::Limited,
            format!(
                "{}: there is no bash, so lines have the language of sh",
                path.display()
            ),
        ),
        None => add(
            "engine",
            State::Bad,
            "neither bash nor sh was found".to_owned(),
        ),
    }
    for row in netprobe::rows() {
        let state = match row.works && row.fix.is_none() {
            true => State::Good,
            false => State::Limited,
        };
        let fix = row.fix.map(|fix| format!("; {fix}")).unwrap_or_default();
        add(row.what, state, row.found + &fix);
    }
    if person::programs_may_type() {
        add("terminals", State::Limited, "the kernel lets programs type into their terminal (dev.tty.legacy_tiocsti is not 0): answers are confirmed with a word where another program has it".to_owned());
    }
    if Caller::own().enclosure().is_some() {
        add("session", State::Limited, "a Substrate session encloses this terminal: nothing can be approved or trusted from here".to_owned());
    }
    add(
        "line layer",
        State::Good,
        "judges every line before it runs; cooperative, like the shims".to_owned(),
    );
    for (state, found) in agents(asker) {
        add("agent", state, found);
    }
    Ok(checks)
}

/// Asks the package clients anew whose hosts the policy names, and says which of its sets stand for none.
/// What a session encloses asks nobody.
fn package_clients(asker: &Asker, broker: &Broker) -> Option<(State, String)> {
    let policy = broker.policy();
    let names_sets = policy
        .effects()
        .is_ok_and(|effects| effects.net.allowed.iter().any(|entry| entry.rule.is_none()));
    if !names_sets {
        return None;
    }
    let asked = match asker.enclosure() {
        None => clients::learn(broker.home())
            .err()
            .map(|error| error.to_string()),
        Some(_) => None,
    };
    let renewed = asker.broker(None).ok();
    let broker = renewed.as_ref().unwrap_or(broker);
    let empty = clients::empty_sets(broker);
    let problems = match asker.enclosure() {
        None => mirrors::problems(broker),
        Some(_) => Vec::new(),
    };
    Some(match (asked, empty.as_slice()) {
        (Some(problem), _) => (State::Limited, problem),
        (None, _) if !problems.is_empty() => (State::Limited, problems.join("; ")),
        (None, []) => (
            State::Good,
            "every set of hosts that the policy names is known and can be reached".to_owned(),
        ),
        (None, empty) => {
            let empty = empty.join(", ");
            (
                State::Limited,
                format!("{empty}: no such client here, or it names no host"),
            )
        }
    })
}

/// What worlds are worth here, tried where their results would be kept.
fn worlds(asker: &Asker) -> (State, String) {
    let scratch = asker.home().ok().and_then(|home| {
        let scratch = home.path.join("worlds");
        home.ensure(&scratch).ok().map(|()| scratch)
    });
    let report = probe::probe(&scratch.unwrap_or_else(std::env::temp_dir));
    let missing: Vec<&trial::Row> = report.rows.iter().filter(|row| !row.works).collect();
    let Some(first) = missing.first() else {
        let held = "enforcing sessions and isolated commands are held by the kernel";
        return (State::Good, format!("level {}: {held}", report.level));
    };
    let names: Vec<&str> = missing.iter().map(|row| row.what).collect();
    let held = match report.level {
        Level::Full => "",
        _ => "; enforcing policies that want worlds run nothing here",
    };
    let fix = first.fix.as_deref();
    let fix = fix.unwrap_or("`substrate world doctor` has more");
    let text = format!(
        "level {}{held}; missing: {} ({}; {fix})",
        report.level,
        names.join(", "),
        first.found
    );
    (State::Limited, text)
}

/// The agent programs that are here, and descriptors that are wrong.
fn agents(asker: &Asker) -> Vec<(State, String)> {
    let Ok(home) = asker.home() else {
        return Vec::new();
    };
    let shelf = Shelf::with_own(&home.path);
    let broken = shelf
        .broken
        .iter()
        .map(|broken| (State::Limited, broken.to_string()));
    let mut lines: Vec<(State, String)> = broken.collect();
    for provider in providers::known(asker, &shelf, &user_home(&environment::raw(), &home)) {
        let Some(program) = provider
            .program
            .as_ref()
            .filter(|_| provider.descriptor.name != "mock")
        else {
            continue;
        };
        // What a session encloses has no program of its choice started for it.
        let version = asker
            .free()
            .then(|| providers::version(&provider))
            .flatten();
        let state = match provider.key {
            providers::Key::Outside(_) | providers::Key::NotNeeded => State::Good,
            providers::Key::Inside | providers::Key::Missing(_) => State::Limited,
        };
        let home = provider
            .descriptor
            .home
            .iter()
            .map(|entry| format!("~/{}", entry.path.display()));
        let home: Vec<String> = home.collect();
        let let_in = match home.is_empty() {
            true => String::new(),
            false => format!("; gets {}", home.join(", ")),
        };
        let name = &provider.descriptor.name;
        let told = version
            .map(|version| format!(" ({version})"))
            .unwrap_or_default();
        let key = provider.key.sentence();
        lines.push((
            state,
            format!("{name}: {}{told}; {key}{let_in}", program.display()),
        ));
    }
    lines
}
