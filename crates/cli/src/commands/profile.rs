//! `substrate profile`: which policy a directory names, and whether a person trusts it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use substrate_broker::profile::{self, Profile};
use substrate_broker::state_file::now;
use substrate_broker::trust::{Standing, Trusted};
use substrate_broker::{Broker, BrokerError, Choice, cache};
use substrate_policy::Policy;
use substrate_text::visible;

use crate::args::ProfileCommand;
use crate::ask;
use crate::asker::{Asker, Needs};
use crate::failure::Failure;
use crate::out;

/// Runs a subcommand of `profile`.
pub fn run(asker: &Asker, command: &ProfileCommand) -> Result<(), Failure> {
    match command {
        ProfileCommand::Show { directory, json } => show(asker, directory.as_deref(), *json),
        ProfileCommand::List { json } => list(asker, *json),
        ProfileCommand::Trust { directory, session } => {
            trust(asker, directory.as_deref(), *session)
        }
        ProfileCommand::Revoke { directory, all } => revoke(asker, directory.as_deref(), *all),
    }
}

/// The directory that is meant: given, or the one that we are in; with links resolved, as judgements
/// look it up.
fn directory(asker: &Asker, given: Option<&Path>) -> Result<PathBuf, Failure> {
    let here = asker.cwd()?;
    let path = given.map_or(here.clone(), |given| here.join(given));
    let path = if path.file_name() == Some(profile::NAME.as_ref()) {
        path.parent().unwrap_or(&path).to_owned()
    } else {
        path
    };
    Ok(substrate_broker::facts::resolve(&path).unwrap_or(path))
}

/// A profile's policy and its content as one hash.
fn policy_of(broker: &Broker, name: &str) -> Result<Policy, Failure> {
    let loaded = cache::load(&Choice::Name(name.to_owned()), broker.home())?;
    Ok(loaded.policy)
}

fn show(asker: &Asker, given: Option<&Path>, as_json: bool) -> Result<(), Failure> {
    let broker = asker.broker(None)?;
    let directory = directory(asker, given)?;
    let Some(found) = profile::find(&directory) else {
        let active = broker.info();
        if as_json {
            let row = json!({"v": 1, "profile": null, "policy": active.id});
            return Ok(out::print(&format!("{row}\n"))?);
        }
        return Ok(out::print(&format!(
            "no {} here or above; the policy in use is {} ({})\n",
            profile::NAME,
            active.id,
            active.path
        ))?);
    };
    let path = found.path().display().to_string();
    let (policy, standing, problem) = match &found {
        Profile::Foreign { owner, .. } => {
            (None, "ignored", Some(format!("it belongs to user {owner}")))
        }
        Profile::Broken { problem, .. } => (None, "broken", Some(problem.clone())),
        Profile::Named {
            content, policy, ..
        } => match policy_of(&broker, policy) {
            Err(failure) => (Some(policy.clone()), "broken", Some(failure.to_string())),
            Ok(held) => {
                let details = held.details().map_err(BrokerError::Compiled)?;
                let standing = broker
                    .trust()
                    .standing(found.path(), content, &details.sha256)?;
                let word = match standing {
                    Standing::Trusted => "trusted",
                    Standing::Changed => "changed",
                    Standing::Untrusted => "untrusted",
                };
                (Some(policy.clone()), word, None)
            }
        },
    };
    if as_json {
        let row = json!({"v": 1, "profile": path, "policy": policy, "standing": standing, "problem": problem});
        return Ok(out::print(&format!("{row}\n"))?);
    }
    let meaning = match standing {
        "trusted" => "at your own prompt it replaces the policy in use; elsewhere both count",
        "changed" => {
            "it changed since it was trusted, so both it and the policy in use count; `substrate profile trust` trusts it as it is now"
        }
        "untrusted" => "both it and the policy in use count, the stricter answer decides",
        "ignored" => "somebody else's file has no say here",
        _ => {
            "where the policy enforces, only cd, exit and substrate work here until it is repaired"
        }
    };
    let text = format!(
        "{}\npolicy   {}\nstanding {standing}: {meaning}\n{}",
        visible(path.as_bytes()),
        policy.as_deref().unwrap_or("-"),
        problem
            .map(|problem| format!("problem  {}\n", visible(problem.as_bytes())))
            .unwrap_or_default()
    );
    Ok(out::print(&text)?)
}

fn list(asker: &Asker, as_json: bool) -> Result<(), Failure> {
    let trusted = asker.broker(None)?.trust().list()?;
    if as_json {
        let rows: Vec<Value> = trusted
            .iter()
            .map(|entry| {
                json!({
                    "path": entry.path.display().to_string(),
                    "policy": entry.policy,
                    "since": substrate_text::time::to_the_minute(entry.since),
                    "session": entry.session.as_ref().map(|process| process.pid),
                })
            })
            .collect();
        return Ok(out::print(&format!("{}\n", Value::Array(rows)))?);
    }
    let mut text = String::new();
    for entry in &trusted {
        let until = entry
            .session
            .as_ref()
            .map(|process| format!("  until process {} ends", process.pid))
            .unwrap_or_default();
        text.push_str(&format!(
            "{}  {}  {}{until}\n",
            crate::commands::when::local(entry.since),
            entry.policy,
            visible(entry.path.as_os_str().as_bytes())
        ));
    }
    if text.is_empty() {
        text.push_str("no profile is trusted\n");
    }
    Ok(out::print(&text)?)
}

fn trust(asker: &Asker, given: Option<&Path>, session: bool) -> Result<(), Failure> {
    asker.require(Needs::Person)?;
    let broker = asker.broker(None)?;
    let directory = directory(asker, given)?;
    let (path, content, name) = match profile::find(&directory) {
        Some(Profile::Named {
            path,
            content,
            policy,
        }) => (path, content, policy),
        Some(Profile::Broken { path, problem }) => {
            return Err(Failure::Refused(format!("{}: {problem}", path.display())));
        }
        Some(Profile::Foreign { path, owner }) => {
            return Err(Failure::Refused(format!(
                "{} belongs to user {owner}, so it cannot be trusted",
                path.display()
            )));
        }
        None => {
            return Err(Failure::Missing(format!(
                "there is no {} in {} or above",
                profile::NAME,
                directory.display()
            )));
        }
    };
    let policy = policy_of(&broker, &name)?;
    let details = policy.details().map_err(BrokerError::Compiled)?;
    let session = if session {
        Some(broker.session().ok_or_else(|| {
            Failure::Refused("there is no session that the trust could end with".to_owned())
        })?)
    } else {
        None
    };
    let text = format!(
        "{} names the policy {} ({}, mode {}).\nAt your own prompt, in that directory and below, it will replace the policy in use, {}.\n",
        visible(path.as_os_str().as_bytes()),
        name,
        details.files.join(", "),
        policy.settings().mode.as_str(),
        broker.info().id,
    );
    if !ask::confirm(&text, "Trust it?")? {
        return Err(Failure::Refused("nothing was trusted".to_owned()));
    }
    broker.trust().add(&Trusted {
        path: path.clone(),
        policy: name,
        content_sha256: substrate_trace::sha256_hex(&content),
        policy_sha256: details.sha256.clone(),
        since: now(),
        session,
    })?;
    Ok(out::print(&format!("trusted {}\n", path.display()))?)
}

fn revoke(asker: &Asker, given: Option<&Path>, all: bool) -> Result<(), Failure> {
    asker.require(Needs::Person)?;
    let broker = asker.broker(None)?;
    if all {
        broker.trust().clear()?;
        return Ok(out::print("no profile is trusted any more\n")?);
    }
    let directory = directory(asker, given)?;
    let path = profile::find(&directory).map_or_else(
        || directory.join(profile::NAME),
        |profile| profile.path().to_owned(),
    );
    if broker.trust().revoke(&path)? {
        Ok(out::print(&format!(
            "{} is not trusted any more\n",
            path.display()
        ))?)
    } else {
        Err(Failure::Missing(format!(
            "{} was not trusted; `substrate profile list` shows what is",
            path.display()
        )))
    }
}
