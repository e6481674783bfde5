//! An explanation as JSON: a contract that other programs build on, which `docs/policy.md` describes.

use std::os::unix::ffi::OsStrExt;

use serde_json::{Map, Value, json};
use substrate_command::Invocation;
use substrate_policy::{Judgement, Reason};
use substrate_text::wire::Bytes;
use substrate_trace::{RuleRef, Verdict};

use super::Explanation;

/// A field of the contract, and how it is written.
type Field = (
    &'static str,
    fn(&Explanation, &mut Vec<u8>) -> std::io::Result<()>,
);

/// The contract. It is written without building a document first: this is what a program waits for
/// that asks about every line.
const FIELDS: [Field; 11] = [
    ("v", |_, to| value(&1, to)),
    ("verdict", |explained, to| {
        value(verdict(&explained.judgement).as_str(), to)
    }),
    ("isolate", |explained, to| {
        value(&explained.judgement.isolate, to)
    }),
    ("place", |explained, to| value(explained.place, to)),
    ("mode", |explained, to| {
        value(explained.policy.mode.as_str(), to)
    }),
    ("policy", |explained, to| {
        let policy = &explained.policy;
        to.extend_from_slice(b"{\"id\":");
        value(&policy.id, to)?;
        to.extend_from_slice(b",\"path\":");
        value(&policy.path, to)?;
        to.extend_from_slice(b",\"sha256\":");
        value(&policy.sha256, to)?;
        to.push(b'}');
        Ok(())
    }),
    ("reasons", |explained, to| {
        write_list(&explained.judgement.reasons, to, |reason, to| {
            write_reason(reason, explained, to)
        })
    }),
    ("commands", |explained, to| {
        write_list(&explained.line.invocations, to, |invocation, to| {
            write_command(invocation, explained, to)
        })
    }),
    ("profile", |explained, to| {
        let texts: Vec<String> = explained.profiles.iter().map(ToString::to_string).collect();
        value(&(!texts.is_empty()).then(|| texts.join("; ")), to)
    }),
    ("approved", |explained, to| {
        write_list(&explained.approved, to, |grant, to| {
            value(&json!({"id": grant.id, "pattern": grant.what.text()}), to)
        })
    }),
    ("error", |explained, to| value(&explained.line.unclear, to)),
];

/// Writes what was asked, with the fields of the contract added or put in place of its own.
pub fn write(
    asked: &Map<String, Value>,
    explained: &Explanation,
    to: &mut Vec<u8>,
) -> std::io::Result<()> {
    to.push(b'{');
    for (name, given) in asked {
        value(name, to)?;
        to.push(b':');
        match FIELDS.iter().find(|(ours, _)| ours == name) {
            Some((_, field)) => field(explained, to)?,
            None => value(given, to)?,
        }
        to.push(b',');
    }
    for (name, field) in FIELDS.iter().filter(|(name, _)| !asked.contains_key(*name)) {
        value(*name, to)?;
        to.push(b':');
        field(explained, to)?;
        to.push(b',');
    }
    if to.last() == Some(&b',') {
        to.pop();
    }
    to.extend_from_slice(b"}\n");
    Ok(())
}

fn value<T: serde::Serialize + ?Sized>(of: &T, to: &mut Vec<u8>) -> std::io::Result<()> {
    Ok(serde_json::to_writer(to, of)?)
}

fn write_list<T>(
    items: &[T],
    to: &mut Vec<u8>,
    mut each: impl FnMut(&T, &mut Vec<u8>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    to.push(b'[');
    for (number, item) in items.iter().enumerate() {
        if number > 0 {
            to.push(b',');
        }
        each(item, to)?;
    }
    to.push(b']');
    Ok(())
}

fn write_bytes(bytes: &[u8], to: &mut Vec<u8>) -> std::io::Result<()> {
    match std::str::from_utf8(bytes) {
        Ok(text) => value(text, to),
        Err(_) => value(&Bytes(bytes.to_vec()), to),
    }
}

fn write_argv(invocation: &Invocation, to: &mut Vec<u8>) -> std::io::Result<()> {
    write_list(&invocation.argv, to, |word, to| {
        write_bytes(&word.text(), to)
    })
}

fn write_reason(reason: &Reason, explained: &Explanation, to: &mut Vec<u8>) -> std::io::Result<()> {
    let invocation = reason
        .invocation
        .and_then(|index| explained.line.invocations.get(index));
    to.extend_from_slice(b"{\"verdict\":");
    value(reason.verdict.as_str(), to)?;
    to.extend_from_slice(b",\"argv\":");
    match invocation {
        Some(invocation) => write_argv(invocation, to)?,
        None => value(&(), to)?,
    }
    to.extend_from_slice(b",\"rule\":");
    write_rule(&reason.rule, to)?;
    to.extend_from_slice(b",\"via\":");
    let via = invocation.map_or(&[][..], |invocation| &invocation.via);
    value(via, to)?;
    to.push(b'}');
    Ok(())
}

fn write_rule(rule: &RuleRef, to: &mut Vec<u8>) -> std::io::Result<()> {
    to.extend_from_slice(b"{\"list\":");
    value(&rule.list, to)?;
    to.extend_from_slice(b",\"pattern\":");
    value(&rule.pattern, to)?;
    to.extend_from_slice(b",\"file\":");
    write_bytes(rule.file.as_os_str().as_bytes(), to)?;
    to.extend_from_slice(b",\"line\":");
    value(&rule.line, to)?;
    to.extend_from_slice(b",\"reason\":");
    value(&rule.reason, to)?;
    to.push(b'}');
    Ok(())
}

fn write_command(
    invocation: &Invocation,
    explained: &Explanation,
    to: &mut Vec<u8>,
) -> std::io::Result<()> {
    to.extend_from_slice(b"{\"argv\":");
    write_argv(invocation, to)?;
    to.extend_from_slice(b",\"via\":");
    value(&invocation.via, to)?;
    to.extend_from_slice(b",\"effects\":");
    write_list(&invocation.effects, to, |effect, to| {
        value(&effect.text(), to)
    })?;
    to.extend_from_slice(b",\"complete\":");
    let complete = invocation.unclear.is_none() && explained.line.complete();
    value(&complete, to)?;
    to.push(b'}');
    Ok(())
}

/// What the policies say, whatever the mode makes of it.
pub fn verdict(judgement: &Judgement) -> Verdict {
    match judgement.verdict {
        Verdict::Allow if judgement.isolate => Verdict::Isolate,
        verdict => verdict,
    }
}
