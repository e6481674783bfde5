//! `substrate policy explain`: what would become of a line. The JSON is a contract that other
//! programs build on; `docs/policy.md` describes it.

use std::ffi::OsStr;
use std::io::{BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use substrate_broker::{Answer, Broker, BrokerError, Evaluation, Input, Origin, Request};
use substrate_command::{Effect, Invocation, Object};
use substrate_policy::Reason;
use substrate_shell::session::working_directory;
use substrate_sys::environment;
use substrate_trace::{RuleRef, Verdict};

use crate::args::ExplainArgs;
use crate::failure::Failure;
use crate::out;
use crate::shell_mode::open_broker;

/// Explains one line, or every line of standard input.
pub fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let env = environment::raw();
    let here = working_directory(&env).map_err(BrokerError::Cwd)?;
    let cwd = args.cwd.as_ref().map_or(here.clone(), |cwd| here.join(cwd));
    let broker = open_broker(args.policy.clone(), false, &env, &cwd)?;
    let path = environment::get(&env, "PATH")
        .map(OsStr::from_bytes)
        .unwrap_or_default();
    if args.jsonl {
        return lines(&broker, &cwd, path);
    }
    let line = args.line.clone().unwrap_or_default();
    let evaluation = explain(&broker, line.as_bytes(), &cwd, path);
    if args.json {
        let mut text = object(&evaluation).to_string();
        text.push('\n');
        out::print(&text)?;
    } else {
        out::print(&tree(&evaluation, out::colours()))?;
    }
    Ok(())
}

/// The verdict on a line.
pub fn explain(broker: &Broker, line: &[u8], cwd: &Path, path: &OsStr) -> Evaluation {
    broker.evaluate(&Request {
        input: Input::Line(line),
        origin: Origin::OneShot,
        cwd,
        search_path: path,
        variables: &[],
        aliases: &[],
        isolate: false,
    })
}

fn lines(broker: &Broker, cwd: &Path, path: &OsStr) -> Result<(), Failure> {
    let mut output = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let mut input = std::io::BufReader::with_capacity(1 << 16, std::io::stdin().lock());
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let mut answer = answer(broker, &line, cwd, path).to_string();
        answer.push('\n');
        match output.write_all(answer.as_bytes()) {
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => return Ok(()),
            result => result?,
        }
    }
    match output.flush() {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

/// The answer to one line of input: its own fields, then ours.
fn answer(broker: &Broker, line: &[u8], cwd: &Path, path: &OsStr) -> Value {
    let asked: Value = match serde_json::from_slice(line) {
        Ok(asked @ Value::Object(_)) => asked,
        Ok(_) => return problem(Value::Null, "a line must be a JSON object with `command`"),
        Err(error) => return problem(Value::Null, &format!("not JSON: {error}")),
    };
    let Some(command) = asked.get("command").and_then(bytes) else {
        return problem(asked, "`command` must be a string or {\"b64\": …}");
    };
    let cwd = match asked.get("cwd") {
        None | Some(Value::Null) => cwd.to_owned(),
        Some(value) => match bytes(value) {
            Some(bytes) => cwd.join(PathBuf::from(OsStr::from_bytes(&bytes))),
            None => return problem(asked, "`cwd` must be a string or {\"b64\": …}"),
        },
    };
    merge(asked, object(&explain(broker, &command, &cwd, path)))
}

fn problem(asked: Value, text: &str) -> Value {
    merge(asked, json!({"v": 1, "verdict": null, "error": text}))
}

fn merge(asked: Value, ours: Value) -> Value {
    match (asked, ours) {
        (Value::Object(mut asked), Value::Object(ours)) => {
            asked.extend(ours);
            Value::Object(asked)
        }
        (_, ours) => ours,
    }
}

/// Bytes in JSON: a string or `{"b64": …}`.
fn bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.clone().into_bytes()),
        Value::Object(object) => substrate_trace::json::from_base64(object.get("b64")?.as_str()?),
        _ => None,
    }
}

fn bytes_json(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::String(text.to_owned()),
        Err(_) => json!({"b64": substrate_trace::json::to_base64(bytes)}),
    }
}

/// The evaluation as the contract says it.
pub fn object(evaluation: &Evaluation) -> Value {
    let place = match &evaluation.answer {
        Answer::Allow(terms) | Answer::Ask(terms, _) => terms.place.name(),
        Answer::Deny(_) => "direct",
    };
    let verdict = verdict(evaluation);
    json!({
        "v": 1,
        "verdict": verdict.as_str(),
        "isolate": evaluation.judgement.isolate,
        "place": place,
        "mode": evaluation.policy.mode.as_str(),
        "policy": {
            "id": evaluation.policy.id,
            "path": evaluation.policy.path,
            "sha256": evaluation.policy.sha256,
        },
        "reasons": evaluation.judgement.reasons.iter().map(|reason| reason_json(reason, evaluation)).collect::<Vec<_>>(),
        "commands": evaluation.line.invocations.iter().map(|invocation| command_json(invocation, evaluation)).collect::<Vec<_>>(),
        "profile": evaluation.profile_text(),
        "approved": evaluation.approved.iter().map(|grant| json!({"id": grant.id, "pattern": grant.what.text()})).collect::<Vec<_>>(),
        "error": evaluation.line.unclear,
    })
}

/// What the policies say, whatever the mode makes of it.
pub fn verdict(evaluation: &Evaluation) -> Verdict {
    match evaluation.judgement.verdict {
        Verdict::Allow if evaluation.judgement.isolate => Verdict::Isolate,
        verdict => verdict,
    }
}

fn reason_json(reason: &Reason, evaluation: &Evaluation) -> Value {
    let invocation = reason
        .invocation
        .and_then(|index| evaluation.line.invocations.get(index));
    json!({
        "verdict": reason.verdict.as_str(),
        "argv": invocation.map(argv_json),
        "rule": rule_json(&reason.rule),
        "via": invocation.map(|invocation| invocation.via.clone()).unwrap_or_default(),
    })
}

fn rule_json(rule: &RuleRef) -> Value {
    json!({
        "list": rule.list,
        "pattern": rule.pattern,
        "file": bytes_json(rule.file.as_os_str().as_bytes()),
        "line": rule.line,
        "reason": rule.reason,
    })
}

fn argv_json(invocation: &Invocation) -> Value {
    invocation
        .argv
        .iter()
        .map(|word| bytes_json(&word.text()))
        .collect()
}

fn command_json(invocation: &Invocation, evaluation: &Evaluation) -> Value {
    json!({
        "argv": argv_json(invocation),
        "via": invocation.via,
        "effects": invocation.effects.iter().map(|effect| Value::String(effect_text(effect))).collect::<Vec<_>>(),
        "complete": invocation.unclear.is_none() && evaluation.line.complete(),
    })
}

/// An effect in the words of effect rules: `delete:recursive:/x`.
fn effect_text(effect: &Effect) -> String {
    let mut text = effect.action.name().to_owned();
    if effect.recursive {
        text.push_str(":recursive");
    }
    let object = match &effect.object {
        Object::Path(word) => String::from_utf8_lossy(&word.text()).into_owned(),
        Object::Host { host, port } => {
            let host = String::from_utf8_lossy(&host.text()).into_owned();
            port.map_or(host.clone(), |port| format!("{host}:{port}"))
        }
        Object::Port(port) => port.map_or_else(String::new, |port| port.to_string()),
        Object::Code(source, _) => source.name().to_owned(),
        Object::Resource(name) => name.clone(),
        Object::Unspecified => String::new(),
    };
    if !object.is_empty() {
        text.push(':');
        text.push_str(&object);
    }
    text
}

/// The evaluation for a person: verdict, the tree of commands, and why.
fn tree(evaluation: &Evaluation, colours: bool) -> String {
    let paint = |verdict: Verdict, text: &str| {
        let code = match verdict {
            Verdict::Allow => "32",
            Verdict::Isolate => "36",
            Verdict::Ask => "33",
            Verdict::Deny => "31",
        };
        if colours {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    };
    let verdict = verdict(evaluation);
    let policy = &evaluation.policy;
    let mut text = format!(
        "{} under policy '{}' ({}, {})\n",
        paint(verdict, verdict.as_str()),
        policy.id,
        policy.path,
        policy.mode.as_str()
    );
    for profile in &evaluation.profiles {
        text.push_str(&format!(
            "profile {}\n",
            visible(profile.to_string().as_bytes())
        ));
    }
    for grant in &evaluation.approved {
        text.push_str(&format!(
            "a person has approved `{}` ({})\n",
            visible(grant.what.text().as_bytes()),
            grant.id
        ));
    }
    if let Some((outcome, _)) = &evaluation.would
        && matches!(evaluation.answer, Answer::Allow(_))
    {
        text.push_str(&format!(
            "the policy only observes: it runs, and the trace says {}\n",
            outcome.as_str()
        ));
    }
    if let Some(why) = &evaluation.line.unclear {
        text.push_str(&format!("not fully understood: {why}\n"));
    }
    for (index, invocation) in evaluation.line.invocations.iter().enumerate() {
        let words: Vec<String> = invocation
            .argv
            .iter()
            .map(|word| visible(&word.text()))
            .collect();
        let depth = invocation.via.len() + 1;
        text.push_str(&format!("{}{}\n", "  ".repeat(depth), words.join(" ")));
        for effect in &invocation.effects {
            text.push_str(&format!(
                "{}  {}\n",
                "  ".repeat(depth),
                visible(effect_text(effect).as_bytes())
            ));
        }
        let about = evaluation
            .judgement
            .reasons
            .iter()
            .filter(|reason| reason.invocation == Some(index));
        for reason in about {
            text.push_str(&format!(
                "{}  {}\n",
                "  ".repeat(depth),
                reason_text(reason, &paint)
            ));
        }
    }
    for reason in evaluation
        .judgement
        .reasons
        .iter()
        .filter(|reason| reason.invocation.is_none())
    {
        text.push_str(&format!("  {}\n", reason_text(reason, &paint)));
    }
    text
}

fn reason_text(reason: &Reason, paint: &impl Fn(Verdict, &str) -> String) -> String {
    let rule = &reason.rule;
    let why = rule
        .reason
        .as_deref()
        .map(|why| format!(": {why}"))
        .unwrap_or_default();
    format!(
        "{} by {} `{}` ({rule}){why}",
        paint(reason.verdict, reason.verdict.as_str()),
        rule.list,
        rule.pattern
    )
}

fn visible(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .flat_map(|c| {
            if c.is_control() {
                c.escape_default().collect::<Vec<_>>()
            } else {
                vec![c]
            }
        })
        .collect()
}
