//! `substrate policy learn`: the smallest additions to a policy that let pass what happened.
//!
//! Only what a list leaves out can be added. What a rule refuses by name stays refused and is
//! listed, because a person wrote that rule.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use similar::TextDiff;
use substrate_broker::{Broker, Choice, Evaluation, Home, choice};
use substrate_command::{Action, Cwd, Invocation, Models, Object};
use substrate_compiled::paths;
use substrate_policy::Reason;
use substrate_policy::hosts::Host;
use substrate_policy::settings::HostEntry;
use substrate_policy::terms::HostRule;
use substrate_trace::Verdict;

use crate::args::LearnArgs;
use crate::asker::{Asker, Needs};
use crate::commands::trace::look::clean;
use crate::commands::whatif::reader;
use crate::commands::{past, policy_change, trace};
use crate::failure::Failure;
use crate::out;

/// Commands that share program and subcommand are covered by one pattern from this number on.
const ALIKE: usize = 3;

/// A list of the policy and an entry for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Addition {
    list: &'static str,
    entry: String,
}

/// What is proposed, with the commands that each entry is for.
type Proposal = BTreeMap<Addition, BTreeSet<String>>;

/// A command that stays refused, and by what.
struct Stays {
    command: String,
    rule: String,
}

/// What the past comes to under a policy.
#[derive(Default)]
struct Found {
    proposal: Proposal,
    stays: Vec<Stays>,
    /// Commands that are refused.
    refused: usize,
    /// Commands that are contained because nobody has described their programs.
    contained: usize,
}

/// Proposes, and writes the policy when asked to.
pub fn run(asker: &Asker, mut args: LearnArgs) -> Result<(), Failure> {
    if args.save {
        asker.require(Needs::Outside { yes: args.yes })?;
    }
    let (home, reader) = reader(asker)?;
    let filter = trace::filter(asker, &reader, std::mem::take(&mut args.wanted), None)?;
    let history = past::read(&reader, filter)?;
    let base = match &args.policy {
        Some(name) => name.clone(),
        None => choice::active(&home),
    };
    let broker = asker.broker(Some(base.clone().into()))?;
    let mut found = propose(&history.commands, &broker);
    generalise(&mut found.proposal, &broker.policy());
    let proposal = &found.proposal;
    let (id, path) = (
        args.name.clone(),
        home.policies().join(format!("{}.yaml", args.name)),
    );
    if !choice::is_id(&id) || id == base {
        return Err(Failure::Usage(format!(
            "`{id}` cannot be the name of the new policy: it must be another than `{base}`, of lower-case letters, digits and dashes"
        )));
    }
    let text = document(&id, &base, proposal);
    let passing = match proposal.is_empty() {
        true => 0,
        false => passing(asker, &home, &text, &history.commands, &broker)?,
    };
    if args.json {
        out::print(&format!("{}\n", as_json(&found, passing)))?;
    } else {
        out::print(&report(&path, &text, &found, passing)?)?;
    }
    if args.save && !proposal.is_empty() {
        policy_change::write(&home, &path, text.as_bytes())?;
        out::print(&format!(
            "wrote {}; `substrate policy use {id}` puts it to use\n",
            path.display()
        ))?;
    }
    match found.refused == 0 {
        true => Ok(()),
        false => Err(Failure::No),
    }
}

/// What each refused command lacks. A command that a rule refuses by name gains nothing from
/// additions, so there are none for it.
fn propose(commands: &[past::Past], broker: &Broker) -> Found {
    let mut found = Found::default();
    let (proposal, stays) = (&mut found.proposal, &mut found.stays);
    for past in commands {
        let evaluation = past.judge(broker);
        let command = clean(&past.text());
        let mut wanted: Result<Vec<Addition>, String> = refusals(&evaluation)
            .map(|reason| addition(reason, &evaluation, past))
            .collect();
        if let Ok(wanted) = &mut wanted {
            let hosts = past.refused_hosts.iter();
            wanted.extend(
                hosts
                    .filter(|(host, port)| !reaches(broker, host, *port))
                    .map(|(host, port)| host_addition(host, Some(*port))),
            );
        }
        match wanted {
            Ok(wanted) => {
                found.refused += usize::from(!wanted.is_empty());
                let vouched = vouched(&evaluation);
                found.contained += usize::from(!vouched.is_empty());
                for addition in wanted.into_iter().chain(vouched) {
                    proposal
                        .entry(addition)
                        .or_default()
                        .insert(command.clone());
                }
            }
            Err(rule) => {
                found.refused += 1;
                stays.push(Stays { command, rule });
            }
        }
    }
    found
}

/// What makes the programs known that are contained for being unknown.
fn vouched(evaluation: &Evaluation) -> Vec<Addition> {
    let reasons = evaluation.judgement.reasons.iter();
    let unknown = reasons.filter(|reason| {
        reason.verdict == Verdict::Isolate
            && reason.rule.list == "effects.isolated"
            && reason.rule.pattern == "exec:unknown"
    });
    let program = |reason: &Reason| {
        let invocation = evaluation.line.invocations.get(reason.invocation?)?;
        let name = std::str::from_utf8(invocation.argv.first()?.value()?).ok()?;
        let plain = |c: char| c.is_alphanumeric() || "+,./_-".contains(c);
        (!name.is_empty() && name.chars().all(plain)).then(|| Addition {
            list: "commands.direct",
            entry: format!("{name} *"),
        })
    };
    unknown.filter_map(program).collect()
}

fn refusals(evaluation: &Evaluation) -> impl Iterator<Item = &Reason> {
    let reasons = evaluation.judgement.reasons.iter();
    reasons.filter(|reason| reason.verdict >= Verdict::Ask)
}

/// What would have to be added for one reason to go away, or the rule that forbids it.
fn addition(
    reason: &Reason,
    evaluation: &Evaluation,
    past: &past::Past,
) -> Result<Addition, String> {
    let rule = &reason.rule;
    let named = || format!("{} `{}` ({rule})", rule.list, rule.pattern);
    let invocation = reason
        .invocation
        .and_then(|index| evaluation.line.invocations.get(index))
        .ok_or_else(named)?;
    let found = match rule.list.as_str() {
        "commands.allowed" | "commands.default" => pattern(invocation).map(|entry| Addition {
            list: "commands.allowed",
            entry,
        }),
        "approval.required" => pattern(invocation).map(|entry| Addition {
            list: "approval.auto_approve",
            entry,
        }),
        "fs.read" => path(invocation, past, &rule.pattern, |action| {
            action == Action::Read
        })
        .map(|entry| Addition {
            list: "fs.read",
            entry,
        }),
        "fs.write" => path(invocation, past, &rule.pattern, |action| {
            action != Action::Read
        })
        .map(|entry| Addition {
            list: "fs.write",
            entry,
        }),
        "net.allowed" => {
            let mut effects = invocation.effects.iter();
            effects.find_map(|effect| match &effect.object {
                Object::Host { host, port } if host.text() == rule.pattern.as_bytes() => {
                    Some(host_addition(&rule.pattern, *port))
                }
                _ => None,
            })
        }
        _ => None,
    };
    found.ok_or_else(named)
}

/// The exact words of a command as a pattern; words that only the run knows cannot be named.
fn pattern(invocation: &Invocation) -> Option<String> {
    let words: Option<Vec<String>> = invocation
        .argv
        .iter()
        .map(|word| {
            let word = std::str::from_utf8(word.value()?).ok()?;
            let plain = !word.is_empty()
                && word
                    .chars()
                    .all(|c| c.is_alphanumeric() || "@%+=:,./_-".contains(c));
            match (plain, word.contains(['\'', '*', '?', '[', '\n'])) {
                (true, _) => Some(word.to_owned()),
                (false, false) => Some(format!("'{word}'")),
                (false, true) => None,
            }
        })
        .collect();
    words.map(|words| words.join(" "))
}

/// The file or tree that an effect names, as an entry of `fs`.
fn path(
    invocation: &Invocation,
    past: &past::Past,
    shown: &str,
    wanted: impl Fn(Action) -> bool,
) -> Option<String> {
    let effect = invocation.effects.iter().find(|effect| {
        matches!(&effect.object, Object::Path(word) if wanted(effect.action) && word.text() == shown.as_bytes())
    })?;
    let Object::Path(word) = &effect.object else {
        return None;
    };
    let value = word.value()?;
    if !value.starts_with(b"/") && invocation.cwd != Cwd::Start {
        return None;
    }
    let full = paths::absolute(past.cwd.as_os_str().as_bytes(), value);
    let tree = effect.recursive || Path::new(OsStr::from_bytes(&full)).is_dir();
    let full = String::from_utf8(full).ok()?;
    if full.contains(['*', '?', '[', '$']) || full == "/" {
        return None;
    }
    Some(match tree {
        true => format!("{full}/**"),
        false => full,
    })
}

fn host_addition(host: &str, port: Option<u16>) -> Addition {
    let own = HostRule::parse(host).is_ok_and(|rule| rule.is_own_loopback());
    let entry = match port {
        _ if own => "localhost:*".to_owned(),
        None | Some(0 | 80 | 443) => host.to_owned(),
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
    };
    Addition {
        list: "net.allowed",
        entry,
    }
}

/// Whether the policy lets a host be reached by now.
fn reaches(broker: &Broker, host: &str, port: u16) -> bool {
    let Some(host) = Host::parse(host) else {
        return false;
    };
    // Port 0 stands for a name that was only looked up.
    let port = Some(port).filter(|port| *port != 0);
    let policy = broker.policy();
    let Ok(effects) = policy.effects() else {
        return false;
    };
    let net = &effects.net;
    let rules = |entry: &HostEntry| {
        let rules = entry.rule.iter().chain(&entry.members);
        rules.cloned().collect::<Vec<_>>()
    };
    let allowed = net.allowed.iter().flat_map(rules);
    let denied = net.denied.iter().flat_map(rules);
    allowed.into_iter().any(|rule| rule.allows(&host, port))
        && !denied.into_iter().any(|rule| rule.denies(&host, port))
}

/// Replaces many commands of one kind by a pattern for the kind. A tool that has subcommands is a kind
/// for each of them.
fn generalise(proposal: &mut Proposal, models: &dyn Models) {
    let mut kinds: BTreeMap<(&'static str, String), Vec<Addition>> = BTreeMap::new();
    for addition in proposal.keys() {
        if matches!(addition.list, "commands.allowed" | "approval.auto_approve") {
            let mut words = addition.entry.split(' ');
            let (Some(program), Some(next)) = (words.next(), words.next()) else {
                continue;
            };
            let name = program.rsplit('/').next().unwrap_or(program);
            let model = models.tool(name.as_bytes());
            let kind = match model.is_some_and(|tool| !tool.subcommands.is_empty()) {
                true if next.starts_with('-') => continue,
                true => format!("{program} {next} *"),
                false => format!("{program} *"),
            };
            kinds
                .entry((addition.list, kind))
                .or_default()
                .push(addition.clone());
        }
    }
    for ((list, entry), alike) in kinds {
        if alike.len() < ALIKE {
            continue;
        }
        let commands: BTreeSet<String> = alike
            .iter()
            .filter_map(|addition| proposal.remove(addition))
            .flatten()
            .collect();
        proposal.insert(Addition { list, entry }, commands);
    }
}

/// The policy that adds what is proposed.
fn document(id: &str, base: &str, proposal: &Proposal) -> String {
    let mut text = format!(
        "# Lets pass what `{base}` refused so far; its lists are added to those of `{base}`.\nid: {id}\nname: {base}, and what was learned\nextends: {base}\n"
    );
    let mut section = "";
    let mut list = "";
    for (addition, commands) in proposal {
        let (group, name) = addition.list.split_once('.').unwrap_or((addition.list, ""));
        if group != section {
            text.push_str(&format!("{group}:\n"));
            section = group;
        }
        if addition.list != list {
            text.push_str(&format!("  {name}:\n"));
            list = addition.list;
        }
        let example = commands.first().map(String::as_str).unwrap_or_default();
        let example: String = example.chars().take(60).collect();
        let more = match commands.len() {
            0 | 1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        text.push_str(&format!(
            "    - {}  # {example}{more}\n",
            Value::from(addition.entry.as_str())
        ));
    }
    text
}

/// How many of the commands that were refused pass under the proposal, by trying it.
fn passing(
    asker: &Asker,
    home: &Home,
    text: &str,
    commands: &[past::Past],
    base: &Broker,
) -> Result<usize, Failure> {
    let draft = home
        .path
        .join(format!(".learn.{}.yaml", std::process::id()));
    let result = write_new(&draft, text.as_bytes())
        .map_err(|error| Failure::File {
            what: format!("cannot write {}", draft.display()),
            error,
        })
        .and_then(|()| asker.broker(Some(OsString::from(&draft))));
    let _ = fs::remove_file(&draft);
    let _ = fs::remove_file(Choice::File(draft).cache_file(home));
    let broker = result?;
    let refused = |past: &past::Past, broker: &Broker| {
        refusals(&past.judge(broker)).next().is_some()
            || past
                .refused_hosts
                .iter()
                .any(|(host, port)| !reaches(broker, host, *port))
    };
    Ok(commands
        .iter()
        .filter(|past| refused(past, base) && !refused(past, &broker))
        .count())
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?
        .write_all(bytes)
}

fn as_json(found: &Found, passing: usize) -> Value {
    let additions: Vec<Value> = found
        .proposal
        .iter()
        .map(|(addition, commands)| {
            json!({"list": addition.list, "entry": addition.entry, "for": commands})
        })
        .collect();
    let stays: Vec<Value> = found
        .stays
        .iter()
        .map(|stays| json!({"cmd": stays.command, "rule": stays.rule}))
        .collect();
    json!({"refused": found.refused, "contained": found.contained, "pass_with_additions": passing, "additions": additions, "stay_refused": stays})
}

fn report(path: &PathBuf, text: &str, found: &Found, passing: usize) -> Result<String, Failure> {
    let Found {
        proposal,
        stays,
        refused,
        contained,
    } = found;
    if *refused == 0 && *contained == 0 {
        return Ok("nothing that happened would be refused\n".to_owned());
    }
    let mut shown = String::new();
    if !proposal.is_empty() {
        let (before, old) = match fs::read_to_string(path) {
            Ok(text) => (text, path.display().to_string()),
            Err(_) => (String::new(), "/dev/null".to_owned()),
        };
        let diff = TextDiff::from_lines(&before, text);
        let mut unified = diff.unified_diff();
        let new = path.display().to_string();
        shown.push_str(&unified.header(&old, &new).to_string());
    }
    shown.push_str(&format!(
        "# {refused} commands are refused; {passing} of them would pass with this\n"
    ));
    if *contained > 0 {
        shown.push_str(&format!(
            "# {contained} commands are contained because nobody has described their programs; `commands.direct` vouches for them\n"
        ));
    }
    for stays in stays {
        shown.push_str(&format!(
            "# stays refused: {}, by {}\n",
            stays.command,
            clean(stays.rule.as_ref())
        ));
    }
    Ok(shown)
}
