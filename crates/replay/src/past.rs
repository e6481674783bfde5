//! A span as the trace has it, checked before anything of it is run.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use substrate_trace::read::{Record, RecordedReplay, Span};
use substrate_trace::{Authenticity, Key};
use substrate_world::backend::ExecRequest;
use thiserror::Error;

use substrate_snapshots::{Store, Tree};

/// Why a span cannot be run again.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// It is no command that ended.
    #[error("it is not a command that ended, but {0}")]
    NotEnded(String),
    /// Secrets were taken out.
    #[error("secrets were taken out of its command line")]
    Redacted,
    /// It was cut.
    #[error("its command line was too long to be kept")]
    Shortened,
    /// The line is not as it was written.
    #[error("its line in the trace was altered after it was written, or is of another home")]
    Altered,
    /// Nothing vouches for it.
    #[error("its line in the trace has no digest that vouches for it")]
    Unsigned,
    /// The snapshot that it names is not there.
    #[error("its snapshot {0} is gone; --here runs it on today's files")]
    SnapshotGone(String),
    /// It lacks a part.
    #[error("its record has no {0}")]
    Lacks(&'static str),
}

impl Refusal {
    /// Whether the trace itself is in doubt, so that nothing after it should be run either.
    pub fn is_doubt(&self) -> bool {
        matches!(self, Refusal::Altered | Refusal::Unsigned)
    }
}

/// A span that may be run again.
#[derive(Debug)]
pub struct Past {
    /// What was recorded.
    pub span: Span,
    /// The circumstances.
    pub context: RecordedReplay,
    /// The project before it, where that was recorded.
    pub base: Option<Tree>,
    /// Today's files are wanted in its place.
    pub here: bool,
    /// The project after it, where that was recorded.
    pub after: Option<Tree>,
    /// Where the project is.
    pub root: Option<PathBuf>,
    /// Where it was started.
    pub cwd: PathBuf,
}

impl Past {
    /// Checks that a line is genuine and has all that it takes. With `here`, no snapshot is
    /// needed.
    pub fn new(home: &Path, key: &Key, record: &Record, here: bool) -> Result<Self, Refusal> {
        let span = record.span.clone();
        match key.verify(&record.raw) {
            Authenticity::Genuine => {}
            Authenticity::Altered => return Err(Refusal::Altered),
            Authenticity::Unsigned if span.event_type == "command_complete" => {
                return Err(Refusal::Unsigned);
            }
            Authenticity::Unsigned => return Err(Refusal::NotEnded(span.event_type)),
        }
        if span.event_type != "command_complete" {
            return Err(Refusal::NotEnded(span.event_type));
        }
        if span.redacted {
            return Err(Refusal::Redacted);
        }
        if span.shortened {
            return Err(Refusal::Shortened);
        }
        let context = record
            .replay_context()
            .ok_or(Refusal::Lacks("replay_context"))?;
        let store = Store::open(home);
        let base = match &context.base_tree {
            Some(id) => match store.tree(id) {
                None if !here => return Err(Refusal::SnapshotGone(id.clone())),
                tree => tree,
            },
            None => None,
        };
        let snapshot = span.fs_diff.as_ref();
        let snapshot = snapshot.filter(|diff| diff.strategy == "snapshot");
        let after = context
            .after_tree
            .as_deref()
            .or(snapshot.and_then(|diff| diff.tree_hash.as_deref()))
            .and_then(|id| store.tree(id));
        let cwd = context.cwd.clone().or_else(|| span.cwd.clone());
        Ok(Self {
            cwd: cwd.ok_or(Refusal::Lacks("working directory"))?,
            root: base.as_ref().map(|base| base.root.clone()),
            base,
            here,
            after,
            span,
            context,
        })
    }

    /// The exact words, when no shell read them.
    pub fn argv(&self) -> Option<&[OsString]> {
        self.span.argv.as_deref().filter(|argv| !argv.is_empty())
    }

    /// The line, when a shell read it.
    pub fn line(&self) -> OsString {
        self.span.cmd.clone().unwrap_or_default()
    }

    /// The variables that were recorded.
    pub fn env(&self) -> Vec<(OsString, OsString)> {
        let stored = self.context.env.iter();
        stored
            .map(|(name, value)| (name.into(), value.clone()))
            .collect()
    }

    /// What it takes to run it, with these variables and without streams.
    pub(crate) fn request(&self, env: Vec<(OsString, OsString)>) -> ExecRequest {
        let line = self.line();
        let (program, argv) = match self.argv() {
            Some(argv) => (argv[0].clone(), argv.to_vec()),
            None => {
                let argv = vec!["bash".into(), "-c".into(), "--".into(), line.clone()];
                ("bash".into(), argv)
            }
        };
        ExecRequest {
            program,
            argv,
            env,
            cwd: self.cwd.clone(),
            umask: self.context.umask,
            line,
            ..ExecRequest::default()
        }
    }
}
