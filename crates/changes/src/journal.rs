//! What an apply is about to do, written down before it does anything.
//!
//! The plan is synced first. Then new content is *staged*: copied under temporary names next to
//! where it belongs, invisible to anybody who does not look for it. Only when all of it lies on
//! the disk is the mark `staged` set and the plan *committed*, one rename a step. No progress is
//! written: at every moment the state of a step can be told from the file system, so a crash
//! anywhere can be finished or undone.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::entry::{Attributes, Entry};
use crate::pending::{Pending, PendingError, io_error, write_atomically};
use substrate_text::wire;

const PLAN: &str = "plan.jsonl";
const STAGED: &str = "staged";

/// What a step does to its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Action {
    /// Something new appears, with everything below it.
    Create,
    /// Something new takes the place of what is there.
    Replace,
    /// Mode, owner, times or attributes change in place.
    Meta,
    /// What is there goes, with everything below it.
    Delete,
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Step {
    /// Number of the root.
    pub root: usize,
    /// The name, relative to the root.
    #[serde(with = "wire")]
    pub path: PathBuf,
    /// What is done.
    pub action: Action,
    /// What the host had.
    pub old: Option<Entry>,
    /// What the world left.
    pub new: Option<Entry>,
    /// The host's own attributes, for a change in place.
    #[serde(default, skip_serializing_if = "AttributeList::is_empty")]
    pub attributes: AttributeList,
    /// Whether names can be moved between its directory and the backups.
    pub movable: bool,
    /// The host had changed it, and the apply was forced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
}

impl Step {
    /// The directory that the name is in.
    pub(crate) fn parent(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// The name within it; empty for the root itself.
    pub(crate) fn name(&self) -> OsString {
        self.path.file_name().unwrap_or_default().to_owned()
    }

    /// Whether it changes a directory in place, which is done when nothing is done in it any more.
    pub(crate) fn is_dir_meta(&self) -> bool {
        self.action == Action::Meta && self.new.is_some_and(|e| e.is_dir())
    }
}

/// Attributes as they stand in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct AttributeList(#[serde(with = "wire::list")] Vec<OsString>);

impl AttributeList {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&Attributes> for AttributeList {
    fn from(attributes: &Attributes) -> Self {
        use std::os::unix::ffi::OsStringExt;
        let pairs = attributes.iter().flat_map(|(name, value)| [name, value]);
        Self(pairs.map(|b| OsString::from_vec(b.clone())).collect())
    }
}

impl From<&AttributeList> for Attributes {
    fn from(list: &AttributeList) -> Self {
        use std::os::unix::ffi::OsStrExt;
        let pairs = list.0.chunks_exact(2);
        pairs
            .map(|p| (p[0].as_bytes().to_vec(), p[1].as_bytes().to_vec()))
            .collect()
    }
}

/// A directory whose mode keeps us from working in it and is opened for that time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opened {
    pub root: usize,
    #[serde(with = "wire")]
    pub path: PathBuf,
    pub mode: u32,
}

/// A file that the world gave a further name without changing it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Unchanged {
    pub root: usize,
    #[serde(with = "wire")]
    pub path: PathBuf,
    pub upper: Entry,
}

/// What holds for the whole plan.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Header {
    pub v: u32,
    /// The chosen host paths; none means all.
    #[serde(with = "wire::list")]
    pub chosen: Vec<PathBuf>,
    /// Whether roots outside what the policy lets be written take part.
    pub held: bool,
    /// Whether this leaves nothing of the result unapplied.
    pub whole: bool,
    pub opened: Vec<Opened>,
    pub unchanged: Vec<Unchanged>,
    /// Entries that will be copied, for progress.
    pub entries: u64,
}

/// A plan and where it is kept.
#[derive(Debug, Clone)]
pub(crate) struct Journal {
    pub dir: PathBuf,
    pub header: Header,
    pub steps: Vec<Step>,
    /// Part of the temporary names.
    tag: String,
}

impl Journal {
    /// Writes a plan so that it survives a crash.
    pub(crate) fn write(
        pending: &Pending,
        number: u32,
        header: Header,
        steps: Vec<Step>,
    ) -> Result<Self, PendingError> {
        let journal = Self {
            dir: dir_of(pending, number),
            tag: tag_of(pending, number),
            header,
            steps,
        };
        let backups = journal.backups();
        std::fs::create_dir_all(&backups).map_err(io_error("make the directory", &backups))?;
        let mut text = Vec::new();
        let mut line = |value: Result<Vec<u8>, serde_json::Error>| {
            let value = value.map_err(|e| io_error("describe", &journal.dir)(e.into()))?;
            text.extend_from_slice(&value);
            text.push(b'\n');
            Ok::<(), PendingError>(())
        };
        line(serde_json::to_vec(&journal.header))?;
        for step in &journal.steps {
            line(serde_json::to_vec(step))?;
        }
        write_atomically(&journal.dir.join(PLAN), &text, true)?;
        Ok(journal)
    }

    /// Reads the plan of an apply; `None` if it had not come to write one.
    pub(crate) fn read(pending: &Pending, number: u32) -> Result<Option<Self>, PendingError> {
        let dir = dir_of(pending, number);
        let path = dir.join(PLAN);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(io_error("read", &path)(e)),
        };
        let damaged = |reason: String| PendingError::Damaged {
            path: path.clone(),
            reason,
        };
        let mut lines = BufReader::new(file).lines();
        let mut next = || lines.next().transpose().map_err(io_error("read", &path));
        let first = next()?.ok_or_else(|| damaged("it is empty".to_owned()))?;
        let header = serde_json::from_str(&first).map_err(|e| damaged(e.to_string()))?;
        let mut steps = Vec::new();
        while let Some(line) = next()? {
            steps.push(serde_json::from_str(&line).map_err(|e| damaged(e.to_string()))?);
        }
        Ok(Some(Self {
            dir,
            tag: tag_of(pending, number),
            header,
            steps,
        }))
    }

    /// Whether everything that is to be put in place lies ready.
    pub(crate) fn is_staged(&self) -> bool {
        self.dir.join(STAGED).exists()
    }

    /// Notes that it does, so that it survives a crash.
    pub(crate) fn mark_staged(&self) -> Result<(), PendingError> {
        write_atomically(&self.dir.join(STAGED), b"", true)
    }

    /// Where what was there is kept.
    pub(crate) fn backups(&self) -> PathBuf {
        self.dir.join("backup")
    }

    /// The temporary name of a step.
    pub(crate) fn temp(&self, step: usize) -> OsString {
        format!(".substrate-{}-{step}", self.tag).into()
    }

    /// The name used while two names change places on a file system that cannot do it at once.
    pub(crate) fn aside(&self, step: usize) -> OsString {
        format!(".substrate-{}-{step}.aside", self.tag).into()
    }

    /// The order that steps are done in: what appears and changes, then what goes, then
    /// directories in place, inner ones first.
    pub(crate) fn order(&self) -> Vec<usize> {
        let rank = |step: &Step| match step.action {
            Action::Delete => 1,
            _ if step.is_dir_meta() => 2,
            _ => 0,
        };
        let mut order: Vec<usize> = (0..self.steps.len()).collect();
        order.sort_by_key(|&n| {
            let rank = rank(&self.steps[n]);
            (rank, if rank == 2 { usize::MAX - n } else { n })
        });
        order
    }
}

/// The directory of one apply.
pub(crate) fn dir_of(pending: &Pending, number: u32) -> PathBuf {
    pending.dir().join(format!("apply-{number}"))
}

/// When an apply was begun, if it had come to write its plan.
pub(crate) fn begun(pending: &Pending, number: u32) -> Option<SystemTime> {
    let plan = dir_of(pending, number).join(PLAN);
    std::fs::metadata(plan)
        .and_then(|meta| meta.modified())
        .ok()
}

fn tag_of(pending: &Pending, number: u32) -> String {
    let id = &pending.meta().world_id;
    let tail = id.len().saturating_sub(12);
    format!("{}-{number}", &id[tail..])
}
