//! `substrate allowed`: what may run here, under which policy, from which files.

use crate::asker::Asker;
use std::ffi::OsString;

use serde_json::{Value, json};
use substrate_broker::env::SUBSTRATE_AGENT_ID;
use substrate_broker::{Around, Input, Origin, Request};
use substrate_text::visible;

use crate::failure::Failure;
use crate::out;

/// The parts of a policy that say what may run.
const PARTS: [(&str, &str); 12] = [
    ("commands", "denied"),
    ("commands", "ask"),
    ("commands", "isolated"),
    ("commands", "allowed"),
    ("commands", "default"),
    ("effects", "denied"),
    ("effects", "ask"),
    ("fs", "read"),
    ("fs", "write"),
    ("fs", "hide"),
    ("net", "allowed"),
    ("net", "denied"),
];

/// Prints it.
pub fn run(asker: &Asker, policy: Option<OsString>, as_json: bool) -> Result<(), Failure> {
    let broker = asker.broker(policy)?;
    let cwd = asker.cwd()?;
    // An empty line is judged by whatever governs this directory, and by nothing else.
    let here = broker.evaluate(&Request {
        input: Input::Line(b""),
        origin: Origin::OneShot,
        cwd: &cwd,
        search_path: "".as_ref(),
        variables: &[],
        aliases: &[],
        isolate: false,
        around: Around::Nothing,
    });
    let details = broker.details();
    let document: Value = serde_json::from_str(&details.document).unwrap_or_default();
    let in_force = broker.in_force();
    let grants = broker.approvals().list().unwrap_or_default();
    if as_json {
        let mut rules = serde_json::Map::new();
        for (part, list) in PARTS {
            if let Some(value) = document.get(part).and_then(|part| part.get(list)) {
                rules.insert(format!("{part}.{list}"), value.clone());
            }
        }
        let shown = json!({
            "v": 1,
            "directory": cwd.display().to_string(),
            "policies": in_force.iter().map(|info| json!({"id": info.id, "path": info.path, "mode": info.mode.as_str(), "sha256": info.sha256})).collect::<Vec<_>>(),
            "files": details.files,
            "profile": here.profile_text(),
            "rules": rules,
            "approved": grants.iter().map(|grant| json!({"id": grant.id, "pattern": grant.what.text(), "directory": grant.directory.display().to_string()})).collect::<Vec<_>>(),
        });
        return Ok(out::print(&format!("{shown:#}\n"))?);
    }
    let mut text = format!("In {}:\n", cwd.display());
    for (number, info) in in_force.iter().enumerate() {
        let role = if number == 0 { "policy" } else { "and also" };
        text.push_str(&format!(
            "{role} {} ({}, mode {})\n",
            info.id,
            info.path,
            info.mode.as_str()
        ));
    }
    text.push_str(&format!("from {}\n", details.files.join(", ")));
    if let Some(profile) = here.profile_text() {
        text.push_str(&format!("profile {}\n", visible(profile.as_bytes())));
    }
    for (part, list) in PARTS {
        let Some(value) = document.get(part).and_then(|part| part.get(list)) else {
            continue;
        };
        text.push_str(&format!("{part}.{list}\n"));
        match value {
            Value::Array(items) => {
                for item in items {
                    text.push_str(&format!("  {}\n", entry(item)));
                }
            }
            other => text.push_str(&format!("  {}\n", entry(other))),
        }
    }
    for grant in &grants {
        text.push_str(&format!(
            "approved {} in {}\n",
            visible(grant.what.text().as_bytes()),
            grant.directory.display()
        ));
    }
    text.push_str("`substrate policy explain LINE` says what would become of a line\n");
    if std::env::var_os(SUBSTRATE_AGENT_ID).is_some_and(|agent| agent != "human") {
        text.push_str(
            "what is refused is refused again however it is written: take another way, or tell the person what \
             you need and why\n",
        );
    }
    Ok(out::print(&text)?)
}

fn entry(value: &Value) -> String {
    let text = value
        .as_str()
        .or_else(|| value.get("pattern").and_then(Value::as_str));
    let reason = value.get("reason").and_then(Value::as_str);
    match (text, reason) {
        (Some(text), Some(reason)) => format!("{text}   # {reason}"),
        (Some(text), None) => text.to_owned(),
        (None, _) => value.to_string(),
    }
}
