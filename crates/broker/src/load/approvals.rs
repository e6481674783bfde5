//! Grants: what a person has approved, for which policy, where, and how long.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use substrate_command::environment::assignment_changes_meaning;
use substrate_command::{Line, Models, RedirectKind};
use substrate_policy::{Facts, Reason, covers, pattern};
use substrate_trace::Redactor;

use super::caller::Caller;
use super::meaning::Meaning;
use super::process::Identity;
use super::state_file::{StateError, StateFile, bytes_json, json_bytes, now};
use crate::home::Home;

/// How long `Allow always` holds when nobody says otherwise.
pub const DEFAULT_SECONDS: u64 = 90 * 24 * 3600;

/// What is approved.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Approved {
    /// Commands that fit a pattern, as in `allowed`.
    Command(String),
    /// This line, byte for byte.
    Line(String),
    /// A command or line with a secret in it, which is not kept: what is shown of it, and the digest of the
    /// whole with the id of its grant.
    Secret {
        /// Without the secret.
        shown: String,
        /// SHA-256 of the grant's id and the text.
        digest: String,
    },
}

impl Approved {
    /// The pattern or the line.
    pub fn text(&self) -> &str {
        match self {
            Approved::Command(text) | Approved::Line(text) => text,
            Approved::Secret { shown, .. } => shown,
        }
    }

    /// The form in which a grant of this id keeps it: what is secret in it goes.
    pub fn kept(&self, id: &str) -> Self {
        let (Approved::Command(text) | Approved::Line(text)) = self else {
            return self.clone();
        };
        let shown = Redactor::new::<&[u8]>(&[])
            .line(text.as_bytes())
            .into_owned();
        match shown == text.as_bytes() {
            true => self.clone(),
            false => Approved::Secret {
                shown: String::from_utf8_lossy(&shown).into_owned(),
                digest: digest(id, text),
            },
        }
    }
}

/// Nobody who reads it learns the text or that two grants have the same.
fn digest(id: &str, text: &str) -> String {
    substrate_trace::sha256_hex(format!("{id}\0{text}").as_bytes())
}

/// One grant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// A short name for it.
    pub id: String,
    /// The policy that asked.
    pub policy_id: String,
    /// The content of every policy that counted.
    pub policy_sha256: String,
    /// It holds in this directory and below.
    pub directory: PathBuf,
    /// What.
    pub what: Approved,
    /// In which environment.
    pub environment: Meaning,
    /// When it was given, in seconds since 1970.
    pub given: u64,
    /// When it ends, in seconds since 1970.
    pub expires: Option<u64>,
    /// It ends with this process, and holds for what that process started.
    pub session: Option<Identity>,
}

impl Grant {
    /// Whether it has not ended.
    pub fn is_current(&self) -> bool {
        self.expires.is_none_or(|end| now() < end)
            && self.session.as_ref().is_none_or(Identity::is_alive)
    }

    fn to_json(&self) -> Value {
        let (kind, text) = match &self.what {
            Approved::Command(text) => ("command", text),
            Approved::Line(text) => ("line", text),
            Approved::Secret { shown, .. } => ("secret", shown),
        };
        let digest = match &self.what {
            Approved::Secret { digest, .. } => Some(digest),
            _ => None,
        };
        json!({
            "digest": digest,
            "id": self.id,
            "policy": self.policy_id,
            "policy_sha256": self.policy_sha256,
            "directory": bytes_json(self.directory.as_os_str().as_bytes()),
            "kind": kind,
            "pattern": text,
            "environment": self.environment.to_json(),
            "given": self.given,
            "expires": self.expires,
            "session": self.session.as_ref().map(|process| json!({"pid": process.pid, "start": process.start, "boot": process.boot})),
        })
    }

    fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
        let pattern = text("pattern")?;
        let session = match value.get("session") {
            None | Some(Value::Null) => None,
            Some(process) => Some(Identity {
                pid: u32::try_from(process.get("pid")?.as_u64()?).ok()?,
                start: process.get("start")?.as_u64()?,
                boot: process.get("boot")?.as_str()?.to_owned(),
            }),
        };
        let expires = match value.get("expires") {
            None | Some(Value::Null) => None,
            Some(end) => Some(end.as_u64()?),
        };
        Some(Self {
            id: text("id")?,
            policy_id: text("policy")?,
            policy_sha256: text("policy_sha256")?,
            directory: PathBuf::from(OsStr::from_bytes(&json_bytes(value.get("directory")?)?)),
            what: match value.get("kind")?.as_str()? {
                "command" => Approved::Command(pattern),
                "line" => Approved::Line(pattern),
                "secret" => Approved::Secret {
                    shown: pattern,
                    digest: text("digest")?,
                },
                _ => return None,
            },
            environment: Meaning::from_json(value.get("environment"))?,
            given: value.get("given")?.as_u64()?,
            expires,
            session,
        })
    }
}

/// What a person is asked about, and what would be remembered with the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Which policy asks.
    pub policy_id: String,
    /// The content of every policy that counted.
    pub policy_sha256: String,
    /// Where a remembered answer would hold.
    pub directory: PathBuf,
    /// The environment that an answer holds in.
    pub environment: Meaning,
    /// Why.
    pub reasons: Vec<Reason>,
    /// What would be remembered, one entry for each thing that was asked about; empty when nothing
    /// can be remembered.
    pub remember: Vec<Approved>,
}

/// The grants of a home.
#[derive(Debug, Clone)]
pub struct Approvals {
    file: StateFile,
}

impl Approvals {
    /// Those of a home.
    pub fn new(home: &Home) -> Self {
        Self {
            file: StateFile::new(home, "approvals"),
        }
    }

    /// Every grant that has not ended. Entries that make no sense are left out.
    pub fn list(&self) -> Result<Vec<Grant>, StateError> {
        let entries = self.file.read()?;
        Ok(entries
            .iter()
            .filter_map(Grant::from_json)
            .filter(Grant::is_current)
            .collect())
    }

    /// Remembers a grant; the same one given again replaces the older.
    pub fn add(&self, grant: &Grant) -> Result<(), StateError> {
        self.change(|grants| {
            grants.retain(|old| {
                (
                    &old.policy_sha256,
                    &old.directory,
                    &old.what,
                    &old.environment,
                    &old.session,
                ) != (
                    &grant.policy_sha256,
                    &grant.directory,
                    &grant.what,
                    &grant.environment,
                    &grant.session,
                )
            });
            grants.push(grant.clone());
        })
    }

    /// Takes grants back: those whose id begins so. Answers what is gone.
    pub fn revoke(&self, ids: &[String]) -> Result<Vec<Grant>, StateError> {
        self.take(|grant| {
            ids.iter()
                .any(|id| !id.is_empty() && grant.id.starts_with(id))
        })
    }

    /// Takes back what was granted until this process ends.
    pub fn end_session(&self, process: &Identity) -> Result<Vec<Grant>, StateError> {
        self.take(|grant| grant.session.as_ref() == Some(process))
    }

    /// Forgets everything, also a file that is damaged.
    pub fn clear(&self) -> Result<(), StateError> {
        self.file.clear()
    }

    fn take(&self, which: impl Fn(&Grant) -> bool) -> Result<Vec<Grant>, StateError> {
        self.change(|grants| {
            let (gone, kept) = grants.drain(..).partition(|grant| which(grant));
            *grants = kept;
            gone
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Grant>) -> T) -> Result<T, StateError> {
        self.file.update(|entries| {
            let mut grants: Vec<Grant> = entries
                .iter()
                .filter_map(Grant::from_json)
                .filter(Grant::is_current)
                .collect();
            let result = change(&mut grants);
            *entries = grants.iter().map(Grant::to_json).collect();
            result
        })
    }
}

/// A short name that no other grant has.
pub fn new_id() -> String {
    let id = substrate_trace::SpanId::new().to_string();
    id[id.len().saturating_sub(8)..].to_owned()
}

/// What would be remembered for a line that was asked about for these reasons: the exact commands,
/// or the exact line where a command alone would say too little.
pub fn proposals(line: &Line, text: Option<&str>, reasons: &[Reason]) -> Vec<Approved> {
    let mut proposals = Vec::new();
    for reason in reasons {
        let proposal = match command_pattern(line, reason) {
            Some(pattern) => Approved::Command(pattern),
            None => match text {
                Some(text) => return vec![Approved::Line(text.to_owned())],
                None => return Vec::new(),
            },
        };
        if !proposals.contains(&proposal) {
            proposals.push(proposal);
        }
    }
    proposals
}

/// The command that a reason is about as a pattern for exactly it; `None` when the reason is about
/// more than the words of one command.
fn command_pattern(line: &Line, reason: &Reason) -> Option<String> {
    let invocation = line.invocations.get(invocation_of(line, reason)?)?;
    let words: Vec<&str> = invocation
        .argv
        .iter()
        .map(|word| std::str::from_utf8(word.value()?).ok())
        .collect::<Option<_>>()?;
    (!words.is_empty()).then(|| {
        words
            .iter()
            .map(|word| quoted(word))
            .collect::<Vec<_>>()
            .join(" ")
    })
}

/// The one command whose words say everything that a reason is about.
fn invocation_of(line: &Line, reason: &Reason) -> Option<usize> {
    let index = reason.invocation?;
    let invocation = line.invocations.get(index)?;
    let plain = line.complete()
        && invocation.unclear.is_none()
        && !reason.rule.pattern.contains('|')
        && invocation.assignments.is_empty()
        && !changes_environment(line)
        && invocation
            .redirects
            .iter()
            .all(|redirect| redirect.kind == RedirectKind::Duplicate);
    plain.then_some(index)
}

/// Whether something in a line (`export GIT_SSH=x; git push`) changes what the words of its commands mean.
fn changes_environment(line: &Line) -> bool {
    let sets = line
        .invocations
        .iter()
        .flat_map(|invocation| &invocation.assignments);
    sets.into_iter().any(assignment_changes_meaning)
}

/// A word as a pattern that means exactly it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=+,%^".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Whether grants that count for this caller cover every reason to ask; if so, those that do.
pub fn covering(
    caller: &Caller,
    question: &Question,
    grants: &[Grant],
    line: &Line,
    text: Option<&str>,
    models: &dyn Models,
    facts: &dyn Facts,
) -> Option<Vec<Grant>> {
    let mut used: Vec<Grant> = Vec::new();
    for reason in &question.reasons {
        let grant = grants
            .iter()
            .filter(|grant| {
                grant.policy_id == question.policy_id
                    && grant.policy_sha256 == question.policy_sha256
                    && grant.environment == question.environment
                    && grant
                        .session
                        .as_ref()
                        .is_none_or(|session| caller.is_below(session))
            })
            .find(|grant| match &grant.what {
                Approved::Line(line) => text == Some(line) && within(facts.cwd(), &grant.directory),
                Approved::Secret { digest: kept, .. } => {
                    let exact = command_pattern(line, reason);
                    let mut all = text.into_iter().chain(exact.as_deref());
                    all.any(|text| digest(&grant.id, text) == *kept)
                        && within(facts.cwd(), &grant.directory)
                }
                Approved::Command(pattern) => invocation_of(line, reason).is_some_and(|index| {
                    let directory = substrate_policy::directory_of(line, index, facts);
                    directory.is_some_and(|directory| within(&directory, &grant.directory))
                        && fits(pattern, line, index, models, facts).unwrap_or(false)
                }),
            })?;
        if !used.contains(grant) {
            used.push(grant.clone());
        }
    }
    Some(used)
}

/// Whether a pattern covers one command of a line; an error says what is wrong with the pattern.
pub fn fits(
    text: &str,
    line: &Line,
    index: usize,
    models: &dyn Models,
    facts: &dyn Facts,
) -> Result<bool, String> {
    let stages = pattern::command(text, &pattern::Sets::new(), models)?;
    match stages.as_slice() {
        [stage] => Ok(covers(stage, line, index, facts) && names_options(text, line, index)),
        _ => Err("a pattern with `|` cannot be remembered".to_owned()),
    }
}

/// Whether a pattern names every option of a command. What a person agreed to may come with other operands,
/// but `git push origin *` is no word about `--force`.
fn names_options(text: &str, line: &Line, index: usize) -> bool {
    let named: Vec<&[u8]> = text.split_whitespace().map(str::as_bytes).collect();
    let Some(invocation) = line.invocations.get(index) else {
        return false;
    };
    let words = invocation.argv.iter().skip(1).map(|word| word.text());
    words
        .take_while(|word| word.as_ref() != b"--")
        .filter(|word| word.len() > 1 && word.starts_with(b"-"))
        .all(|word| named.contains(&quoted(&String::from_utf8_lossy(&word)).as_bytes()))
}

/// Whether a pattern that a person edited still covers what was asked about.
pub fn still_covers(
    edited: &str,
    question: &Question,
    at: usize,
    line: &Line,
    models: &dyn Models,
    facts: &dyn Facts,
) -> Result<(), String> {
    let asked = question
        .remember
        .get(at)
        .map(Approved::text)
        .unwrap_or_default();
    let about = question
        .reasons
        .iter()
        .filter(|reason| command_pattern(line, reason).as_deref() == Some(asked));
    for reason in about {
        let index = invocation_of(line, reason).unwrap_or_default();
        if !fits(edited, line, index, models, facts)? {
            return Err(format!("`{edited}` does not cover `{asked}`"));
        }
    }
    Ok(())
}

/// Whether a directory lies in another, by name and by what the names stand for.
fn within(directory: &[u8], outer: &Path) -> bool {
    let directory = Path::new(OsStr::from_bytes(directory));
    let real = crate::facts::resolve(directory).unwrap_or_else(|| directory.to_owned());
    let outer = crate::facts::resolve(outer).unwrap_or_else(|| outer.to_owned());
    real.starts_with(outer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_so_that_they_mean_themselves() {
        assert_eq!(quoted("--force"), "--force");
        assert_eq!(quoted("*"), "'*'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a'b c"), "'a'\\''b c'");
        assert_eq!(quoted("@set"), "'@set'");
    }
}
