//! Finds what worlds left behind, and throws results away.
//!
//! A result that waits for a decision is never rubbish. Rubbish is what was discarded or
//! damaged, what was applied long ago, and what an owner left that died while the command ran:
//! at once if nothing was written, after a day otherwise, so that work can be rescued. What
//! worlds need only while they run, temporary directories, the stages of replays and control
//! groups, bears the name of its owner and is rubbish as soon as that has ended.
//!
//! A result in which nothing was written is only put aside: taking its empty directories apart makes
//! some disks work, and nobody should wait for that. Whoever finds many when he runs a command in
//! a world removes some while that runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use substrate_trace::WorldId;

use crate::owner::Owner;
use crate::pending::{self, Pending, PendingError, State, io_error};
use crate::remove::{remove_path, remove_path_while};
use substrate_world::progress::{OnProgress, Progress, Stage};

/// How long the backups of an apply are kept for `undo`, unless told otherwise.
pub const KEEP_APPLIED: Duration = Duration::from_secs(14 * 24 * 3600);

/// Where worlds without namespaces have their temporary directories, below Substrate's home.
pub const SCRATCH: &str = "tmp";

/// Where replays lay out the files of then, below Substrate's home.
pub const STAGES: &str = "snapshots/stage";

/// How often what was left behind is looked for without being asked.
const NOW_AND_THEN: Duration = Duration::from_secs(3600);

/// How long the writes of a world are kept whose owner died.
pub const KEEP_ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// So much may lie aside. It takes little room, and ext4 steps over every inode that was freed in the
/// last minutes when it makes a file: removing one for each command makes all of them slower.
const MANY: usize = 256;

/// With more than this, commands are kept waiting for its removal.
const TOO_MANY: usize = 2 * MANY;

/// How many are removed while a command runs.
const AT_ONCE: usize = 4;

/// A directory without a readable description is left alone for this long: its world may just
/// be being made.
const KEEP_DAMAGED: Duration = Duration::from_secs(600);

/// What should become of a directory among the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Its command runs.
    Running,
    /// It waits for a decision.
    Waiting,
    /// An apply or undo of it was interrupted and has to be finished first.
    Interrupted,
    /// It was applied, and can still be undone.
    Applied,
    /// It was discarded, but something of it is left.
    Discarded,
    /// Its owner died while the command ran, and nobody wanted what it wrote.
    Abandoned,
    /// It was applied long ago.
    Expired,
    /// Its description cannot be read.
    Damaged,
}

impl Verdict {
    /// Whether it is to be removed.
    pub fn is_rubbish(self) -> bool {
        matches!(
            self,
            Verdict::Discarded | Verdict::Abandoned | Verdict::Expired | Verdict::Damaged
        )
    }

    /// The word used in JSON and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Running => "running",
            Verdict::Waiting => "waiting",
            Verdict::Interrupted => "interrupted",
            Verdict::Applied => "applied",
            Verdict::Discarded => "discarded",
            Verdict::Abandoned => "abandoned",
            Verdict::Expired => "expired",
            Verdict::Damaged => "damaged",
        }
    }
}

/// One directory among the results.
#[derive(Debug, Clone)]
pub struct Leftover {
    /// The directory.
    pub dir: PathBuf,
    /// What it is.
    pub verdict: Verdict,
    /// Its description, where it can be read.
    pub pending: Option<Pending>,
    /// It is a control group, which the kernel removes.
    pub group: bool,
}

/// What was removed, and what could not be.
#[derive(Debug, Default)]
pub struct Collected {
    /// Directories that are gone.
    pub removed: Vec<PathBuf>,
    /// Directories that are still there, and why.
    pub failed: Vec<(PathBuf, PendingError)>,
}

/// Looks at everything that worlds have left below a home; `groups` is what their backend knows of
/// elsewhere.
pub fn survey(
    home: &Path,
    keep_applied: Duration,
    groups: &[Leftover],
) -> Result<Vec<Leftover>, PendingError> {
    let results = pending::dirs(&pending::worlds_dir(home))?;
    let mut all: Vec<Leftover> = results
        .into_iter()
        .map(|dir| {
            let pending = Pending::load(&dir).ok();
            let verdict = judge(&dir, pending.as_ref(), keep_applied);
            Leftover {
                dir,
                verdict,
                pending,
                group: false,
            }
        })
        .collect();
    for place in [SCRATCH, STAGES] {
        for dir in pending::dirs(&home.join(place))? {
            let name = dir.file_name().and_then(|name| name.to_str());
            let verdict = match name.and_then(Owner::of_mark) {
                Some(owner) => of_owner(owner),
                None if age(&dir) > KEEP_DAMAGED => Verdict::Damaged,
                None => Verdict::Running,
            };
            all.push(Leftover {
                dir,
                verdict,
                pending: None,
                group: false,
            });
        }
    }
    all.extend(groups.iter().cloned());
    Ok(all)
}

/// What lies somewhere in the name of this process is rubbish once it has ended.
pub fn of_owner(owner: Owner) -> Verdict {
    match owner.is_alive() {
        true => Verdict::Running,
        false => Verdict::Abandoned,
    }
}

/// Clears up without being asked, at most once an hour. What cannot be removed stays for
/// [`collect`] to tell of.
pub fn now_and_then(home: &Path, groups: impl FnOnce() -> Vec<Leftover>) {
    let stamp = pending::worlds_dir(home).join(".cleared");
    if fs::metadata(&stamp).is_ok() && age(&stamp) < NOW_AND_THEN {
        return;
    }
    // Before the work, so that many commands at once do not all begin it.
    if fs::write(&stamp, "").is_ok() {
        let _ = collect_results(home, KEEP_APPLIED, &groups(), &mut |_| true);
    }
}

fn judge(dir: &Path, pending: Option<&Pending>, keep_applied: Duration) -> Verdict {
    let Some(pending) = pending else {
        return match age(dir) > KEEP_DAMAGED {
            true => Verdict::Damaged,
            false => Verdict::Running,
        };
    };
    match pending.meta().state {
        _ if pending.is_running() => Verdict::Running,
        State::Running if age_of(pending) > KEEP_ABANDONED || wrote_nothing(pending) => {
            Verdict::Abandoned
        }
        State::Running => Verdict::Waiting,
        State::Finished => Verdict::Waiting,
        State::Applying | State::Undoing => Verdict::Interrupted,
        State::Applied if age(&dir.join("meta.json")) > keep_applied => Verdict::Expired,
        State::Applied => Verdict::Applied,
        State::Discarded => Verdict::Discarded,
    }
}

fn wrote_nothing(pending: &Pending) -> bool {
    let empty = |path: &Path| fs::read_dir(path).is_ok_and(|mut names| names.next().is_none());
    let roots = &pending.meta().roots;
    let missing = |path: &Path| fs::symlink_metadata(path).is_err();
    roots.iter().all(|r| missing(&r.upper) || empty(&r.upper))
}

/// How long a path has not been changed; a moment in the future is no time at all.
fn age(path: &Path) -> Duration {
    fs::symlink_metadata(path)
        .and_then(|m| m.modified())
        .ok()
        .and_then(|then| SystemTime::now().duration_since(then).ok())
        .unwrap_or(Duration::ZERO)
}

/// Removes the rubbish below a home, and what was put aside. One that resists does not keep the others.
pub fn collect(
    home: &Path,
    keep_applied: Duration,
    groups: &[Leftover],
    progress: OnProgress<'_>,
) -> Result<Collected, PendingError> {
    let mut done = collect_results(home, keep_applied, groups, progress)?;
    for dir in pending::aside(home) {
        // Under another name first, so that what was ready for a new result is not taken for one.
        match take(&dir).and_then(|taken| remove_path(&taken)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let error = io_error("remove", &dir)(error);
                done.failed.push((dir, error));
            }
            _ => {}
        }
    }
    Ok(done)
}

fn collect_results(
    home: &Path,
    keep_applied: Duration,
    groups: &[Leftover],
    progress: OnProgress<'_>,
) -> Result<Collected, PendingError> {
    let rubbish: Vec<Leftover> = survey(home, keep_applied, groups)?
        .into_iter()
        .filter(|l| l.verdict.is_rubbish())
        .collect();
    let mut done = Collected::default();
    let total = Some(rubbish.len() as u64);
    for (number, leftover) in rubbish.into_iter().enumerate() {
        let result = match leftover.pending {
            Some(mut pending) => throw_away(&mut pending),
            None if leftover.group => {
                fs::remove_dir(&leftover.dir).map_err(io_error("remove", &leftover.dir))
            }
            None => erase(&leftover.dir),
        };
        match result {
            Ok(()) => done.removed.push(leftover.dir),
            Err(e) => done.failed.push((leftover.dir, e)),
        }
        let now = Progress {
            stage: Stage::Removing,
            done: number as u64 + 1,
            total,
        };
        if !progress(now) {
            break;
        }
    }
    Ok(done)
}

/// Throws a result away. Refuses while its command runs or an apply of it is half done.
pub fn discard(pending: &mut Pending) -> Result<(), DiscardError> {
    if pending.is_running() {
        return Err(DiscardError::Running);
    }
    if matches!(pending.meta().state, State::Applying | State::Undoing) {
        return Err(DiscardError::Unfinished);
    }
    Ok(throw_away(pending)?)
}

/// Puts a result aside that changed nothing, or removes it where that is not possible. Files that were
/// opened for writing and left as they were lie in it as copies; those take room, and go at once.
/// Without its description, which goes before its own files, what a crash leaves of it is rubbish.
pub fn forget(pending: &mut Pending) -> Result<(), PendingError> {
    let _lock = pending.lock()?;
    remove_stores(pending)?;
    if wrote_nothing(pending) && pending.put_aside().is_ok() {
        return Ok(());
    }
    let path = pending.dir().join(pending::META);
    remove_path(&path).map_err(io_error("remove", &path))?;
    remove_path(pending.dir()).map_err(io_error("remove", pending.dir()))
}

/// Removes some of what was put aside where there is much of it, for as long as the caller waits for
/// something else. Commands that ran side by side have left one result each, so more than one goes at
/// a time; each is taken by whoever renames it first. What cannot be removed stays for [`collect`].
pub fn sweep(home: &Path, waits: &mut dyn FnMut() -> bool) {
    let mut aside = pending::aside(home);
    aside.retain(|dir| !pending::is_ready(dir));
    let above = aside.len().saturating_sub(MANY);
    let too_many = aside.len() > TOO_MANY;
    let mut goes_on = || too_many || waits();
    let mut left = AT_ONCE.min(above);
    for dir in aside {
        if left == 0 || !goes_on() {
            return;
        }
        if take(&dir).is_ok_and(|taken| remove_path_while(&taken, &mut goes_on).is_ok()) {
            left -= 1;
        }
    }
}

/// Makes what was put aside ours to remove. Whoever took it before may have died over it.
fn take(dir: &Path) -> io::Result<PathBuf> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let name = name.split('~').next().unwrap_or_default();
    let taken = dir.with_file_name(format!("{name}~{}", WorldId::new()));
    fs::rename(dir, &taken)?;
    Ok(taken)
}

/// Throws a result away even if an apply of it is half done and can be neither finished nor
/// undone: the host stays as it is now, and what was kept for going back is gone.
pub fn discard_anyway(pending: &mut Pending) -> Result<(), DiscardError> {
    if pending.is_running() {
        return Err(DiscardError::Running);
    }
    Ok(throw_away(pending)?)
}

/// Why a result was not thrown away.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiscardError {
    /// The command has not finished.
    #[error("the command still runs; wait for it or stop it")]
    Running,
    /// The host would be left half changed, with no way back.
    #[error(
        "an apply of this result was interrupted; finish it with `world apply` or take it back with \
         `world undo`. Where neither can be done, `world discard --force` leaves the host as it is"
    )]
    Unfinished,
    /// It could not be removed.
    #[error(transparent)]
    Pending(#[from] PendingError),
}

fn throw_away(pending: &mut Pending) -> Result<(), PendingError> {
    let _lock = pending.lock()?;
    match pending.forsake() {
        // Then what takes the room goes first.
        Err(PendingError::Io { source, .. }) if source.kind() == io::ErrorKind::StorageFull => {}
        other => other?,
    }
    remove_stores(pending)?;
    erase(pending.dir())
}

/// A root's writes may lie outside the result's own directory.
fn remove_stores(pending: &Pending) -> Result<(), PendingError> {
    for root in &pending.meta().roots {
        if let Some(base) = root.work.parent()
            && !base.starts_with(pending.dir())
        {
            remove_path(base).map_err(io_error("remove", base))?;
        }
    }
    Ok(())
}

/// Removes the description last, so that what is left over after a crash is found again; what
/// says that it was thrown away must not go before it.
fn erase(dir: &Path) -> Result<(), PendingError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(io_error("list", dir)(e)),
    };
    let mut last = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io_error("list", dir))?;
        match entry.file_name().to_str() {
            Some(pending::META) => last.insert(0, entry.path()),
            Some(pending::DISCARDED) => last.push(entry.path()),
            _ => remove_path(&entry.path()).map_err(io_error("remove", &entry.path()))?,
        }
    }
    for path in last {
        remove_path(&path).map_err(io_error("remove", &path))?;
    }
    remove_path(dir).map_err(io_error("remove", dir))
}

/// How long ago a result was made.
pub fn age_of(pending: &Pending) -> Duration {
    let created = pending.meta().created;
    let then = UNIX_EPOCH + Duration::new(u64::try_from(created.0).unwrap_or(0), created.1);
    SystemTime::now()
        .duration_since(then)
        .unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_takes_a_few_of_many_and_what_others_left_half_done() {
        let home = tempfile::tempdir().unwrap();
        let worlds = pending::worlds_dir(home.path());
        let make = |name: &str| fs::create_dir_all(worlds.join(name).join("work-0")).unwrap();
        make("wld_0");
        make(".aside-wld_0~1");
        (1..MANY).for_each(|number| make(&format!(".aside-wld_{number}")));
        let left = || pending::aside(home.path()).len();
        sweep(home.path(), &mut || true);
        assert_eq!(left(), MANY, "that is not much yet");
        (0..6).for_each(|number| make(&format!(".aside-wld_more{number}")));
        // Nobody waits, or not for long.
        sweep(home.path(), &mut || false);
        let mut rounds = 0;
        sweep(home.path(), &mut || {
            rounds += 1;
            rounds < 3
        });
        assert_eq!(left(), MANY + 6);
        sweep(home.path(), &mut || true);
        assert_eq!(left(), MANY + 6 - AT_ONCE);
        sweep(home.path(), &mut || true);
        assert_eq!(left(), MANY);
        (0..=MANY).for_each(|number| make(&format!(".aside-wld_flood{number}")));
        sweep(home.path(), &mut || false);
        assert_eq!(left(), TOO_MANY + 1 - AT_ONCE);
        // What is ready for use counts for nothing, except to a collector.
        pending::make_ready(home.path()).unwrap();
        collect(home.path(), KEEP_APPLIED, &[], &mut |_| true).unwrap();
        assert_eq!(left(), 0);
        assert!(worlds.join("wld_0/work-0").exists());
        // A name that was taken twice does not grow.
        let dead = worlds.join(".aside-wld_5~1");
        fs::create_dir(&dead).unwrap();
        let taken = take(&take(&dead).unwrap()).unwrap();
        let name = taken.file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(name.matches('~').count(), 1, "{name}");
        assert!(take(&dead).is_err(), "only one can take it");
    }
}
