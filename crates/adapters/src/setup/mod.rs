//! Setting clients up: what is written into their own settings, what was there before, and the way back.
//!
//! A settings file is changed as text: comments, order and layout stay. What cannot be understood is left
//! alone. Of everything that was written a record is kept, so that undoing restores a file byte for byte
//! when nobody has changed it since, and else takes out only what is ours.

mod document;
mod file;
mod plan;
mod record;

use std::path::{Path, PathBuf};

pub use document::{Problem, Want};
pub use plan::{CLAUDE_SHELL, Plan, Program, Scope, plan, settings_directory};
pub use record::{Record, list};

use crate::client::Client;
use file::Place;
use substrate_broker::Home;

/// Why a client was not set up, or a setup not undone.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A settings file is not what it should be; it was left alone.
    #[error("{}: {problem}; it was left alone", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: Problem,
    },
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The record of what was written makes no sense.
    #[error("{}: this record of a setup is damaged", .0.display())]
    Record(PathBuf),
}

/// What becomes of one settings file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The file.
    pub path: PathBuf,
    /// Its text before; `None` where there was no file.
    pub before: Option<String>,
    /// Its text after; `None` where there is to be no file.
    pub after: Option<String>,
}

impl Change {
    /// Whether anything is different afterwards.
    pub fn is_one(&self) -> bool {
        self.before != self.after
    }
}

/// What setting a client up would change.
pub fn changes(plan: &Plan) -> Result<Vec<Change>, SetupError> {
    plan.files
        .iter()
        .map(|wanted| {
            let before = file::read(&wanted.path, Place::of(plan.scope, &plan.root))?;
            readable(plan.client, before.as_deref())
                .map_err(|problem| settings(&wanted.path, problem))?;
            let after = document::with(before.as_deref(), &wanted.wants)
                .map_err(|problem| settings(&wanted.path, problem))?;
            Ok(Change {
                path: wanted.path.clone(),
                before,
                after: Some(after),
            })
        })
        .collect()
}

/// Sets a client up: the record first, so that whatever is written can be taken back.
pub fn carry_out(home: &Home, plan: &Plan, changes: &[Change]) -> Result<(), SetupError> {
    for link in &plan.links {
        file::link(home, link)?;
    }
    let record = Record::of(
        plan,
        changes,
        Record::load(home, plan.client, plan.scope, &plan.root)?,
    );
    record.save(home)?;
    for change in changes.iter().filter(|change| change.is_one()) {
        let text = change.after.as_deref().unwrap_or_default();
        let place = Place::of(plan.scope, &plan.root);
        file::write(&change.path, place, change.before.as_deref(), text)?;
    }
    Ok(())
}

/// What undoing a setup would change.
pub fn undone(record: &Record) -> Result<Vec<Change>, SetupError> {
    record
        .files
        .iter()
        .map(|written| {
            let now = file::read(&written.path, Place::of(record.scope, &record.root))?;
            let after = match &now {
                None => None,
                Some(text) if record::digest(text) == written.digest => written.before.clone(),
                Some(text) => {
                    let rest = document::without(text, &written.wants)
                        .map_err(|problem| settings(&written.path, problem))?;
                    // A file that we made and that holds nothing goes.
                    (written.before.is_some() || rest.trim() != "{}").then_some(rest)
                }
            };
            Ok(Change {
                path: written.path.clone(),
                before: now,
                after,
            })
        })
        .collect()
}

/// Undoes a setup, and forgets it.
pub fn undo(home: &Home, record: &Record, changes: &[Change]) -> Result<(), SetupError> {
    for change in changes.iter().filter(|change| change.is_one()) {
        let (place, before) = (
            Place::of(record.scope, &record.root),
            change.before.as_deref(),
        );
        match &change.after {
            Some(text) => file::write(&change.path, place, before, text)?,
            None => file::remove(&change.path, place, before)?,
        }
    }
    for directory in record.made.iter().rev() {
        // One that somebody uses by now stays.
        let _ = std::fs::remove_dir(directory);
    }
    record.forget(home)
}

/// How a setup stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Everything that was written is there.
    Stands,
    /// It is there, and somebody has changed the file since.
    Edited(PathBuf),
    /// Something that was written is gone.
    Gone(PathBuf),
    /// A file makes no sense any more.
    Unreadable(PathBuf, String),
}

/// How a setup stands.
pub fn standing(record: &Record) -> Standing {
    let mut edited = None;
    for written in &record.files {
        let path = || written.path.clone();
        let place = Place::of(record.scope, &record.root);
        let text = match file::read(&written.path, place) {
            Ok(Some(text)) => text,
            Ok(None) => return Standing::Gone(path()),
            Err(error) => return Standing::Unreadable(path(), error.to_string()),
        };
        if let Err(problem) = readable(record.client, Some(&text)) {
            return Standing::Unreadable(path(), problem.to_string());
        }
        if record::digest(&text) == written.digest {
            continue;
        }
        match document::with(Some(&text), &written.wants) {
            Ok(same) if same == text => edited = Some(path()),
            Ok(_) => return Standing::Gone(path()),
            Err(problem) => return Standing::Unreadable(path(), problem.to_string()),
        }
    }
    edited.map_or(Standing::Stands, Standing::Edited)
}

/// Whether the client reads a text at all. Most read plain JSON only, and pass over the rest without a word
/// to anybody who does not look.
fn readable(client: Client, text: Option<&str>) -> Result<(), Problem> {
    let reads_comments = matches!(client, Client::Gemini | Client::Opencode);
    match text.filter(|text| !text.trim().is_empty() && !reads_comments) {
        Some(text) => document::is_plain(text),
        None => Ok(()),
    }
}

fn settings(path: &Path, problem: Problem) -> SetupError {
    SetupError::Settings {
        path: path.to_owned(),
        problem,
    }
}

/// The client that a plan or a record is for, in words.
pub fn title(client: Client, scope: Scope, root: &Path) -> String {
    match scope {
        Scope::User => format!("{client} (user, {})", root.display()),
        Scope::Project => format!("{client} (project {})", root.display()),
    }
}
