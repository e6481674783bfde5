//! The policies of a session: loaded at its start, looked at before every judgement, and swapped
//! whole when their files have changed for the better.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use substrate_compiled::stamp;
use substrate_policy::Policy;
use substrate_policy::settings::{Details, EffectRules};
use substrate_trace::Mode;

use super::cache;
use super::error::BrokerError;
use crate::choice::{Choice, FLOOR, open_compiled, read_compiled};
use crate::home::Home;
use crate::project;

/// Which policy it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyInfo {
    /// Its id.
    pub id: String,
    /// Its file, or `builtin:…`.
    pub path: String,
    /// Its content.
    pub sha256: String,
    /// Its mode.
    pub mode: Mode,
    /// The commit that is checked out where its file lies, when it lies in a repository.
    pub commit: Option<String>,
}

/// A policy and what is known about it.
#[derive(Debug, Clone)]
pub struct LoadedPolicy {
    /// How it was chosen.
    pub choice: Choice,
    /// The policy.
    pub policy: Policy,
    /// Which it is.
    pub info: Arc<PolicyInfo>,
    /// What effects are judged by.
    pub effects: Arc<EffectRules>,
    /// What judgements do not need.
    pub details: Arc<Details>,
}

impl LoadedPolicy {
    fn new(choice: &Choice, policy: Policy) -> Result<Self, BrokerError> {
        let details = policy.details().map_err(BrokerError::Compiled)?;
        let effects = policy.effects().map_err(BrokerError::Compiled)?;
        let info = PolicyInfo {
            id: policy.settings().id.clone(),
            path: details.files.first().cloned().unwrap_or_default(),
            sha256: details.sha256.clone(),
            mode: policy.settings().mode,
            commit: details
                .files
                .first()
                .filter(|file| file.starts_with('/'))
                .and_then(|file| project::commit(Path::new(file))),
        };
        Ok(Self {
            choice: choice.clone(),
            policy,
            info: Arc::new(info),
            effects,
            details,
        })
    }

    fn is_fresh(&self) -> bool {
        self.policy.stamp().is_ok_and(stamp::is_fresh)
    }
}

/// The policies that count, at one moment.
#[derive(Debug)]
pub struct State {
    /// The policy of the session.
    pub base: LoadedPolicy,
    /// Policies of the sessions around it, and the administrator's.
    pub ceilings: Vec<LoadedPolicy>,
    /// What is wrong with the administrator's policy, where it cannot be loaded and binds this user:
    /// nothing may run then but what leads out.
    pub unknown_floor: Option<String>,
}

/// Something about the policies that a person should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A changed policy is in force.
    Reloaded {
        /// Its file.
        file: PathBuf,
        /// Its content.
        sha256: String,
    },
    /// A changed file has mistakes; the last good version stays in force.
    Kept {
        /// The file.
        file: PathBuf,
        /// The content that stays.
        sha256: String,
        /// What is wrong.
        error: String,
    },
    /// Something else.
    Warning(String),
}

impl Note {
    /// In words.
    pub fn text(&self) -> String {
        match self {
            Note::Reloaded { file, .. } => format!("Policy reloaded: {}", file.display()),
            Note::Kept { error, .. } => {
                format!("{error}\nthe last good version of this policy stays in force")
            }
            Note::Warning(text) => text.clone(),
        }
    }
}

/// What was just looked at need not be looked at again at once.
pub(crate) const MOMENT: Duration = Duration::from_millis(5);

fn micros(time: Duration) -> u64 {
    time.as_micros().try_into().unwrap_or(u64::MAX)
}

/// How many warnings are remembered as said.
const MAX_SAID: usize = 1000;

/// Holds the policies and keeps them fresh.
#[derive(Debug)]
pub struct Policies {
    home: Home,
    choice: Choice,
    around: Vec<Choice>,
    loaded: Instant,
    /// When they were last found to be as they are on disk, in microseconds after `loaded`.
    looked: AtomicU64,
    state: RwLock<Arc<State>>,
    /// The policies are held for long, so nobody who cuts a cache file short may take them away.
    lasting: bool,
    /// Only one thread reloads; the others go on with what there is.
    reloading: Mutex<Failures>,
    profiles: Mutex<HashMap<String, LoadedPolicy>>,
    notes: Mutex<Vec<Note>>,
    said: Mutex<Vec<String>>,
}

/// Files that could not be used, as they were then: there is no need to try them again.
type Failures = HashMap<Vec<u8>, Vec<u8>>;

/// A policy, and why it is not the newest version of its file.
struct Acquired {
    held: LoadedPolicy,
    failed: Option<(BrokerError, Vec<u8>)>,
}

impl Policies {
    /// Loads the policies.
    pub fn open(home: Home, choice: Choice, around: Vec<Choice>) -> Result<Self, BrokerError> {
        Self::load(home, choice, around, false)
    }

    /// Loads the policies for a prompt that there must be.
    pub fn open_whatever_happens(
        home: Home,
        choice: Choice,
        around: Vec<Choice>,
    ) -> Result<Self, BrokerError> {
        Self::load(home, choice, around, true)
    }

    fn load(
        home: Home,
        choice: Choice,
        around: Vec<Choice>,
        rescue: bool,
    ) -> Result<Self, BrokerError> {
        let mut start = Start {
            home: &home,
            lasting: rescue,
            notes: Vec::new(),
            failures: Failures::new(),
        };
        let base = match start.get(&choice) {
            Err(error) if rescue => start.stand_in(&choice, &error)?,
            result => result?,
        };
        let (mut held, mut unknown_floor) = (Vec::new(), None);
        for ceiling in ceilings(&choice, &around) {
            match start.get(&ceiling) {
                Err(error) if rescue && is_floor(&ceiling) => {
                    start.failed(&ceiling);
                    start.notes.push(Note::Warning(floor_warning(&error)));
                    unknown_floor = floor_binds().then(|| error.to_string());
                }
                result => held.push(result?),
            }
        }
        let Start {
            notes, failures, ..
        } = start;
        Ok(Self {
            home,
            choice,
            around,
            loaded: Instant::now(),
            looked: AtomicU64::new(0),
            lasting: rescue,
            state: RwLock::new(Arc::new(State {
                base,
                ceilings: held,
                unknown_floor,
            })),
            reloading: Mutex::new(failures),
            profiles: Mutex::default(),
            notes: Mutex::new(notes),
            said: Mutex::default(),
        })
    }

    /// The policies as they are on disk now, or as they were when they were last good.
    pub fn current(&self) -> Arc<State> {
        let now = self.loaded.elapsed();
        let state = self.snapshot();
        if now < MOMENT {
            return state;
        }
        if self.is_fresh(&state) {
            self.looked.store(micros(now), Ordering::Release);
            return state;
        }
        // Whoever finds somebody else reloading waits for the outcome: its own judgement must see the
        // edit that was finished before it was asked.
        let mut failures = lock(&self.reloading);
        let state = self.snapshot();
        if self.is_fresh(&state) {
            return state;
        }
        self.reload(&state, &mut failures)
    }

    /// The policies as they are, or were a moment ago, on disk: programs are started in floods, and
    /// looking takes longer than judging.
    pub fn lately(&self) -> Arc<State> {
        let since = micros(self.loaded.elapsed()).checked_sub(self.looked.load(Ordering::Acquire));
        match since {
            Some(since) if since < micros(MOMENT) => self.snapshot(),
            _ => self.current(),
        }
    }

    /// The policies as they were found last.
    pub fn last(&self) -> Arc<State> {
        self.snapshot()
    }

    fn snapshot(&self) -> Arc<State> {
        self.state
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn is_fresh(&self, state: &State) -> bool {
        let has_floor = state.ceilings.iter().any(|held| is_floor(&held.choice));
        let wants_floor = !is_floor(&self.choice) && Path::new(FLOOR).exists();
        state.unknown_floor.is_none()
            && has_floor == wants_floor
            && state.base.choice == self.choice
            && std::iter::once(&state.base)
                .chain(&state.ceilings)
                .all(LoadedPolicy::is_fresh)
    }

    /// Reads what has changed. A floor that is gone goes only with its file.
    fn reload(&self, state: &State, failures: &mut Failures) -> Arc<State> {
        let mut changed = false;
        let old = |choice: &Choice| {
            std::iter::once(&state.base)
                .chain(&state.ceilings)
                .find(|held| held.choice == *choice)
        };
        let mut renew = |choice: &Choice| -> Result<LoadedPolicy, Option<String>> {
            let old = old(choice);
            if let Some(old) = old.filter(|old| old.is_fresh()) {
                return Ok(old.clone());
            }
            if failures
                .get(&choice.key())
                .is_some_and(|stamp| stamp::is_fresh(stamp))
            {
                return old.cloned().ok_or(None);
            }
            match acquire(choice, &self.home, self.lasting) {
                Ok(Acquired { held, failed: None }) => {
                    failures.remove(&choice.key());
                    let same = old.is_some_and(|old| old.info == held.info);
                    if !same {
                        changed = true;
                        self.note(Note::Reloaded {
                            file: held.info.path.clone().into(),
                            sha256: held.info.sha256.clone(),
                        });
                    }
                    Ok(held)
                }
                Ok(Acquired {
                    held,
                    failed: Some((error, stamp)),
                }) => {
                    failures.insert(choice.key(), stamp);
                    let held = old.cloned().unwrap_or(held);
                    self.note(kept(&held, &error));
                    Ok(held)
                }
                Err(error) => {
                    failures.insert(choice.key(), cache::attempt(choice, &self.home).stamp);
                    match old.cloned() {
                        Some(old) => {
                            self.note(kept(&old, &error));
                            Ok(old)
                        }
                        None => {
                            self.warn_once(&match is_floor(choice) {
                                true => floor_warning(&error),
                                false => error.to_string(),
                            });
                            Err(Some(error.to_string()))
                        }
                    }
                }
            }
        };
        let base = renew(&self.choice).unwrap_or_else(|_| state.base.clone());
        let (mut held, mut unknown_floor) = (Vec::new(), None);
        for ceiling in ceilings(&self.choice, &self.around) {
            match renew(&ceiling) {
                Ok(policy) => held.push(policy),
                // One that appeared with mistakes in it: what it asks for is not known.
                Err(problem) if is_floor(&ceiling) && floor_binds() => {
                    unknown_floor = problem.or_else(|| state.unknown_floor.clone());
                }
                Err(_) => {}
            }
        }
        let new = Arc::new(State {
            base,
            ceilings: held,
            unknown_floor,
        });
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = new.clone();
        if changed {
            lock(&self.profiles).clear();
        }
        new
    }

    /// The policy of a profile, by name.
    pub fn profile(&self, id: &str) -> Result<LoadedPolicy, BrokerError> {
        let known = lock(&self.profiles).get(id).cloned();
        if let Some(held) = known.filter(LoadedPolicy::is_fresh) {
            return Ok(held);
        }
        let acquired = acquire(&Choice::Name(id.to_owned()), &self.home, self.lasting)?;
        if let Some((error, _)) = &acquired.failed {
            self.warn_once(&kept(&acquired.held, error).text());
        }
        lock(&self.profiles).insert(id.to_owned(), acquired.held.clone());
        Ok(acquired.held)
    }

    /// What happened since this was last asked.
    pub fn take_notes(&self) -> Vec<Note> {
        std::mem::take(&mut *lock(&self.notes))
    }

    /// Whether anything happened since.
    pub fn has_notes(&self) -> bool {
        !lock(&self.notes).is_empty()
    }

    fn note(&self, note: Note) {
        lock(&self.notes).push(note);
    }

    /// Adds a warning, unless it has been given before.
    pub fn warn_once(&self, text: &str) {
        let mut said = lock(&self.said);
        if said.len() < MAX_SAID && !said.iter().any(|known| known == text) {
            said.push(text.to_owned());
            self.note(Note::Warning(text.to_owned()));
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn kept(held: &LoadedPolicy, error: &BrokerError) -> Note {
    Note::Kept {
        file: held.info.path.clone().into(),
        sha256: held.info.sha256.clone(),
        error: error.to_string(),
    }
}

/// The policies that nobody below may loosen, without the session's own.
fn ceilings(choice: &Choice, around: &[Choice]) -> Vec<Choice> {
    let floor = Path::new(FLOOR)
        .exists()
        .then(|| Choice::File(FLOOR.into()));
    let mut all: Vec<Choice> = Vec::new();
    for ceiling in floor.iter().chain(around) {
        if ceiling != choice && !all.contains(ceiling) {
            all.push(ceiling.clone());
        }
    }
    all
}

/// What loading for the first time gathers.
struct Start<'a> {
    home: &'a Home,
    lasting: bool,
    notes: Vec<Note>,
    failures: Failures,
}

impl Start<'_> {
    fn get(&mut self, choice: &Choice) -> Result<LoadedPolicy, BrokerError> {
        let Acquired { held, failed } = acquire(choice, self.home, self.lasting)?;
        if let Some((error, stamp)) = failed {
            self.failures.insert(choice.key(), stamp);
            self.notes.push(kept(&held, &error));
        }
        Ok(held)
    }

    /// Notes how the files look that could not be used, so that a repair is seen.
    fn failed(&mut self, choice: &Choice) {
        let stamp = cache::attempt(choice, self.home).stamp;
        self.failures.insert(choice.key(), stamp);
    }

    /// The shipped policy in place of one that was never any good.
    fn stand_in(
        &mut self,
        choice: &Choice,
        error: &BrokerError,
    ) -> Result<LoadedPolicy, BrokerError> {
        self.failed(choice);
        let held = self.get(&Choice::Shipped("default"))?;
        self.notes.push(Note::Warning(format!(
            "{error}\nuntil this is repaired, the shipped policy `default` serves here (mode {}); `substrate policy edit` and `substrate doctor` help",
            held.info.mode.as_str()
        )));
        Ok(held)
    }
}

fn is_floor(choice: &Choice) -> bool {
    matches!(choice, Choice::File(path) if path == Path::new(FLOOR))
}

/// Whether a floor that nobody can read still holds this user. Root must be able to repair it, and
/// nothing here guards against root.
fn floor_binds() -> bool {
    substrate_sys::identity::user_id() != 0
}

fn floor_warning(error: &BrokerError) -> String {
    match floor_binds() {
        true => {
            format!("{error}\nuntil root repairs it, only `cd`, `exit` and `substrate` work here")
        }
        false => format!("{error}\nuntil it is repaired, it does not hold for root"),
    }
}

/// A policy from the cache while that is fresh, else from its files, else the last good one.
fn acquire(choice: &Choice, home: &Home, lasting: bool) -> Result<Acquired, BrokerError> {
    let path = choice.cache_file(home);
    let cached = match lasting {
        true => read_compiled(&path),
        false => open_compiled(&path),
    };
    if let Some(policy) = cached
        .as_ref()
        .filter(|policy| policy.stamp().is_ok_and(stamp::is_fresh))
    {
        return Ok(Acquired {
            held: LoadedPolicy::new(choice, policy.clone())?,
            failed: None,
        });
    }
    let attempt = cache::attempt(choice, home);
    match (attempt.result, cached) {
        (Ok(bytes), _) => {
            // A cache that cannot be written costs time, not safety.
            let _ = cache::store(&path, &bytes, home);
            let policy = Policy::open(Arc::new(bytes)).map_err(BrokerError::Compiled)?;
            Ok(Acquired {
                held: LoadedPolicy::new(choice, policy)?,
                failed: None,
            })
        }
        (Err(error), Some(policy)) => Ok(Acquired {
            held: LoadedPolicy::new(choice, policy)?,
            failed: Some((error, attempt.stamp)),
        }),
        (Err(error), None) => Err(error),
    }
}
