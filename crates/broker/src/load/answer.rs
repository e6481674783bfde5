//! What a broker answers: the verdict, everything that led to it, and the terms of a permission.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use substrate_command::Line;
use substrate_policy::Judgement;
use substrate_policy::terms::Place;
use substrate_trace::{Outcome, RuleRef};

use super::approvals::{Grant, Question};
use super::ground::ProfileUse;
use super::meaning::Meaning;
use super::policies::PolicyInfo;
use crate::facts::{Found, find_program};

/// The verdict on a request and everything that led to it.
#[derive(Debug)]
pub struct Evaluation {
    /// The line, understood.
    pub line: Line,
    /// What all policies together say, whatever their mode.
    pub judgement: Judgement,
    /// What is to be done.
    pub answer: Answer,
    /// What `enforce` would have done, when the policy only observes.
    pub would: Option<(Outcome, Option<RuleRef>)>,
    /// The policy that the line runs under.
    pub policy: Arc<PolicyInfo>,
    /// The profiles that were found, and what became of them.
    pub profiles: Vec<ProfileUse>,
    /// What a person is asked, when the answer is to ask.
    pub question: Option<Question>,
    /// What a person has approved before, when that is why the answer is not to ask.
    pub approved: Vec<Grant>,
    /// The environment that the question or the approval is about.
    pub environment: Meaning,
    /// What plain names were found to mean while it was judged.
    pub found: Found,
}

impl Evaluation {
    /// The file that a command's name means: the one that was judged. Nothing is looked up twice.
    pub fn program(&self, typed: &OsStr, search_path: &OsStr, cwd: &Path) -> Option<PathBuf> {
        match self.found.get(typed.as_bytes()) {
            Some(found) => found.clone(),
            None => find_program(typed, search_path, cwd),
        }
    }

    /// The profiles in one line, for the span.
    pub fn profile_text(&self) -> Option<String> {
        let texts: Vec<String> = self.profiles.iter().map(ToString::to_string).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}

/// What would become of a request. Nobody can run anything on the strength of it.
#[derive(Debug)]
pub struct Explanation {
    /// The line, understood.
    pub line: Line,
    /// What all policies together say, whatever their mode.
    pub judgement: Judgement,
    /// Where it would run, by name.
    pub place: &'static str,
    /// What `enforce` would have done, when the policy only observes and it would run.
    pub would: Option<Outcome>,
    /// The policy that it would run under.
    pub policy: Arc<PolicyInfo>,
    /// The profiles that were found, and what became of them.
    pub profiles: Vec<ProfileUse>,
    /// What a person has approved before, when that is why nobody would be asked.
    pub approved: Vec<Grant>,
}

/// What is to be done. Permission comes with its terms; nobody can take one without the other.
#[derive(Debug)]
#[must_use]
pub enum Answer {
    /// Run it on these terms.
    Allow(Terms),
    /// Ask a person, then run it on these terms.
    Ask(Terms, Option<RuleRef>),
    /// Do not run it.
    Deny(Option<RuleRef>),
}

/// On which terms something may run.
#[derive(Debug, Clone)]
pub struct Terms {
    /// Where it runs.
    pub place: Place,
}
