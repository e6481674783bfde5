//! `substrate approvals`: what people have approved.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};
use substrate_api::approvals::Waiting;
use substrate_broker::approvals::{Approved, DEFAULT_SECONDS, Grant};
use substrate_broker::{Answer, Around, Input, Lasting, Origin, Request};
use substrate_sys::environment;
use substrate_text::{unusual, visible};

use crate::args::{ApprovalsCommand, GrantArgs};
use crate::ask;
use crate::asker::{Asker, Needs};
use crate::commands::questions::{self, Reply};
use crate::commands::when;
use crate::failure::Failure;
use crate::out;

/// Runs a subcommand of `approvals`.
pub fn run(asker: &Asker, command: &ApprovalsCommand) -> Result<(), Failure> {
    match command {
        ApprovalsCommand::List { json } => list(asker, *json),
        ApprovalsCommand::Revoke { ids, all } => revoke(asker, ids, *all),
        ApprovalsCommand::Grant(args) => grant(asker, args),
        ApprovalsCommand::Pending { json } => questions::pending(asker, *json),
        ApprovalsCommand::Answer {
            question,
            once,
            always,
            refuse,
        } => {
            let choice = match (once, always, refuse) {
                (true, ..) => Some(Reply::Once),
                (_, true, _) => Some(Reply::Always),
                (.., true) => Some(Reply::Refuse),
                _ => None,
            };
            questions::answer(asker, question.as_deref(), choice, &|question| {
                remember(asker, question)
            })
        }
    }
}

fn list(asker: &Asker, as_json: bool) -> Result<(), Failure> {
    let broker = asker.broker(None)?;
    let grants = broker.approvals().list()?;
    if as_json {
        let rows: Vec<Value> = grants.iter().map(row).collect();
        return Ok(out::print(&format!("{}\n", Value::Array(rows)))?);
    }
    let mut text = String::new();
    for grant in &grants {
        text.push_str(&format!("{}\n", line(grant)));
    }
    if text.is_empty() {
        text.push_str("nothing is approved\n");
    }
    Ok(out::print(&text)?)
}

fn row(grant: &Grant) -> Value {
    let kind = match grant.what {
        Approved::Command(_) => "command",
        Approved::Line(_) => "line",
        Approved::Secret { .. } => "secret",
    };
    json!({
        "id": grant.id,
        "kind": kind,
        "pattern": grant.what.text(),
        "directory": grant.directory.display().to_string(),
        "environment": environment_of(grant),
        "policy": grant.policy_id,
        "policy_sha256": grant.policy_sha256,
        "given": substrate_text::time::to_the_minute(grant.given),
        "expires": grant.expires.map(substrate_text::time::to_the_minute),
        "session": grant.session.as_ref().map(|process| process.pid),
    })
}

fn line(grant: &Grant) -> String {
    let until = match (&grant.session, grant.expires) {
        (Some(process), _) => format!("until process {} ends", process.pid),
        (None, Some(end)) => format!("until {}", when::local(end)),
        (None, None) => "until revoked".to_owned(),
    };
    let exactly = match grant.what {
        Approved::Command(_) => "",
        Approved::Line(_) => " (this line only)",
        Approved::Secret { .. } => " (exactly this; its secret is not kept)",
    };
    let environment = environment_of(grant).join(" ");
    let with = match environment.is_empty() {
        true => String::new(),
        false => format!(" with {environment}"),
    };
    format!(
        "{}  {}{exactly}{with}  in {}  policy {}  {until}",
        grant.id,
        visible(grant.what.text().as_bytes()),
        visible(grant.directory.as_os_str().as_bytes()),
        grant.policy_id,
    )
}

fn environment_of(grant: &Grant) -> Vec<String> {
    let variables = grant.environment.variables();
    let text = |(name, value): (&[u8], &[u8])| format!("{}={}", visible(name), visible(value));
    variables.map(text).collect()
}

fn revoke(asker: &Asker, ids: &[String], all: bool) -> Result<(), Failure> {
    asker.require(Needs::Person)?;
    let broker = asker.broker(None)?;
    if all {
        broker.approvals().clear()?;
        return Ok(out::print("all approvals are revoked\n")?);
    }
    let gone = broker.approvals().revoke(ids)?;
    if gone.is_empty() {
        return Err(Failure::Missing(
            "there is no such approval; `substrate approvals list` shows them".to_owned(),
        ));
    }
    let mut text = String::new();
    for grant in &gone {
        text.push_str(&format!("revoked {}\n", line(grant)));
    }
    Ok(out::print(&text)?)
}

/// What is to last is granted here, at the terminal: to the service a process that asks is as good as any other.
fn remember(asker: &Asker, question: &Waiting) -> Result<(), Failure> {
    grant(
        asker,
        &GrantArgs {
            line: question.cmd.clone().into(),
            policy: None,
            require_approval: false,
            cwd: Some(OsString::from(question.cwd.clone()).into()),
            pattern: None,
            expires: None,
        },
    )
}

fn grant(asker: &Asker, args: &GrantArgs) -> Result<(), Failure> {
    asker.require(Needs::Person)?;
    let seconds = match &args.expires {
        None => Some(DEFAULT_SECONDS),
        Some(text) => when::seconds(text).map_err(Failure::Usage)?,
    };
    let env = environment::raw();
    let here = asker.cwd()?;
    let cwd = args.cwd.as_ref().map_or(here.clone(), |cwd| here.join(cwd));
    let broker = asker.broker_at(args.policy.clone(), args.require_approval, &cwd)?;
    let search_path = environment::get(&env, "PATH")
        .map(OsStr::from_bytes)
        .unwrap_or_default();
    let request = Request {
        input: Input::Line(args.line.as_bytes()),
        origin: Origin::OneShot,
        cwd: &cwd,
        search_path,
        variables: &[],
        aliases: &[],
        isolate: false,
        around: Around::Nothing,
    };
    let evaluation = broker.evaluate(&request);
    let question = match (&evaluation.answer, &evaluation.question) {
        (Answer::Ask(..), Some(question)) => question,
        (Answer::Deny(rule), _) => {
            let rule = rule.as_ref().map(ToString::to_string).unwrap_or_default();
            return Err(Failure::Refused(format!(
                "this is denied ({rule}), and an approval does not help against that; change the policy"
            )));
        }
        _ => return Ok(out::print("this needs no approval here\n")?),
    };
    let what: Vec<Approved> = match &args.pattern {
        None => question.remember.clone(),
        Some(pattern) => {
            for at in 0..question.remember.len() {
                broker
                    .try_pattern(&request, &evaluation, at, pattern)
                    .map_err(Failure::Usage)?;
            }
            vec![Approved::Command(pattern.clone())]
        }
    };
    if what.is_empty() {
        return Err(Failure::Refused(
            "this cannot be remembered, because it is not text".to_owned(),
        ));
    }
    let mut text = String::from("Command Approval Request\n");
    text.push_str(&format!("Command: {}\n", visible(args.line.as_bytes())));
    if let Some(warning) = unusual(args.line.as_bytes()) {
        text.push_str(&format!("Warning: {warning}\n"));
    }
    for reason in &question.reasons {
        let rule = &reason.rule;
        text.push_str(&format!(
            "Reason: {} ({} `{}`, {rule})\n",
            rule.reason.as_deref().unwrap_or("a person is to be asked"),
            rule.list,
            rule.pattern
        ));
    }
    for what in &what {
        text.push_str(&format!(
            "Will be remembered: `{}` in {} and below\n",
            visible(what.text().as_bytes()),
            visible(question.directory.as_os_str().as_bytes())
        ));
    }
    if !ask::confirm(&text, "Allow it?")? {
        return Err(Failure::Refused("nothing was approved".to_owned()));
    }
    let granted = broker.grant(
        question,
        &what,
        &question.directory,
        Lasting::Seconds(seconds),
    )?;
    let mut text = String::new();
    for grant in &granted {
        text.push_str(&format!("approved {}\n", line(grant)));
    }
    Ok(out::print(&text)?)
}
