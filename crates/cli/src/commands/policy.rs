//! `substrate policy`: validate, show, list, schema.

use crate::asker::Asker;
use crate::commands::policy_text::yaml;
use std::ffi::OsString;

use serde_json::{Value, json};
use substrate_broker::choice::{self, Choice};
use substrate_broker::{Broker, BrokerError, cache};
use substrate_policy::{Policy, compile, tools};

use crate::args::{PolicyCommand, SchemaName};
use crate::commands::policy_change;
use crate::failure::Failure;
use crate::out;

/// Runs a subcommand of `policy`.
pub fn run(asker: &Asker, command: PolicyCommand) -> Result<(), Failure> {
    match command {
        PolicyCommand::Validate { policies } => validate(asker, policies),
        PolicyCommand::Show { name, policy, json } => show(asker, name.or(policy), json),
        PolicyCommand::List { json } => list(asker, json),
        PolicyCommand::Schema { of } => schema(of),
        PolicyCommand::Init { name, from, yes } => policy_change::init(asker, &name, &from, yes),
        PolicyCommand::Use { name, yes } => policy_change::choose(asker, &name, yes),
        PolicyCommand::Diff { one, other } => policy_change::diff(asker, &one, other.as_deref()),
        PolicyCommand::Edit { name } => policy_change::edit(asker, name.as_deref()),
        PolicyCommand::Reload => policy_change::reload(asker),
        PolicyCommand::Explain(_)
        | PolicyCommand::Test { .. }
        | PolicyCommand::Whatif { .. }
        | PolicyCommand::Learn(_) => Ok(()),
    }
}

fn broker(asker: &Asker, policy: Option<OsString>) -> Result<Broker, Failure> {
    asker.broker(policy)
}

fn validate(asker: &Asker, policies: Vec<OsString>) -> Result<(), Failure> {
    let home = broker(asker, Some("default".into())).map(|broker| broker.home().clone())?;
    let choices: Vec<Choice> = if policies.is_empty() {
        vec![Choice::Active]
    } else {
        policies.iter().map(|policy| asker.choice(policy)).collect()
    };
    let mut failed = false;
    for choice in choices {
        match cache::make(&choice, &home) {
            Ok(bytes) => {
                let policy =
                    Policy::open(std::sync::Arc::new(bytes)).map_err(BrokerError::Compiled)?;
                let details = policy.details().map_err(BrokerError::Compiled)?;
                let file = details.files.first().cloned().unwrap_or_default();
                out::print(&format!(
                    "{file}: ok ({}, {})\n",
                    policy.settings().id,
                    policy.settings().mode.as_str()
                ))?;
            }
            Err(error) => {
                failed = true;
                out::print(&format!("{error}\n"))?;
            }
        }
    }
    if failed { Err(Failure::No) } else { Ok(()) }
}

fn show(asker: &Asker, policy: Option<OsString>, as_json: bool) -> Result<(), Failure> {
    let broker = broker(asker, policy)?;
    let details = broker.details();
    let document: Value = serde_json::from_str(&details.document).unwrap_or(Value::Null);
    if as_json {
        let shown = json!({
            "v": 1,
            "id": broker.info().id,
            "mode": broker.info().mode.as_str(),
            "files": details.files,
            "sha256": details.sha256,
            "policy": document,
        });
        return Ok(out::print(&format!("{shown:#}\n"))?);
    }
    let mut text = format!(
        "# {} from {}\n# sha256 {}\n",
        broker.info().id,
        details.files.join(", "),
        details.sha256
    );
    yaml(&document, 0, &mut text);
    Ok(out::print(&text)?)
}

fn list(asker: &Asker, as_json: bool) -> Result<(), Failure> {
    let broker = broker(asker, Some("default".into()))?;
    let home = broker.home();
    let active = choice::active(home);
    let mut ids: Vec<String> = compile::shipped_ids().map(str::to_owned).collect();
    for entry in std::fs::read_dir(home.policies())
        .into_iter()
        .flatten()
        .flatten()
    {
        let path = entry.path();
        let id = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default()
            .to_owned();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
            && choice::is_id(&id)
            && !ids.contains(&id)
        {
            ids.push(id);
        }
    }
    ids.sort();
    let mut rows = Vec::new();
    for id in ids {
        let row = match cache::load(&Choice::Name(id.clone()), home) {
            Ok(loaded) => {
                let details = loaded.policy.details().map_err(BrokerError::Compiled)?;
                json!({
                    "id": id,
                    "mode": loaded.policy.settings().mode.as_str(),
                    "name": details.name,
                    "origin": details.files.first(),
                    "active": id == active,
                    "error": loaded.stale.map(|error| error.to_string()),
                })
            }
            Err(error) => {
                json!({"id": id, "mode": null, "name": null, "origin": home.policies().join(format!("{id}.yaml")).display().to_string(), "active": id == active, "error": error.to_string()})
            }
        };
        rows.push(row);
    }
    if as_json {
        return Ok(out::print(&format!("{}\n", Value::Array(rows)))?);
    }
    let mut text = String::new();
    for row in rows {
        let cell = |name: &str| row[name].as_str().unwrap_or("-").to_owned();
        let mark = if row["active"] == true { "*" } else { " " };
        let broken = row["error"]
            .as_str()
            .map(|_| "  (broken: see `substrate policy validate`)")
            .unwrap_or_default();
        text.push_str(&format!(
            "{mark} {:<14} {:<8} {}  [{}]{broken}\n",
            cell("id"),
            cell("mode"),
            cell("name"),
            cell("origin")
        ));
    }
    Ok(out::print(&text)?)
}

fn schema(of: SchemaName) -> Result<(), Failure> {
    Ok(out::print(match of {
        SchemaName::Policy => compile::schema(),
        SchemaName::Tool => tools::schema(),
        SchemaName::Span => include_str!("../../../../schemas/span.json"),
    })?)
}
