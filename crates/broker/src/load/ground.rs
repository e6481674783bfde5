//! On which ground a line stands: the policies of every directory that it works in.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use substrate_command::{Invocation, Line};
use substrate_policy::{Facts, Judgement, Reason, directory_of};
use substrate_trace::{Mode, RuleRef, Verdict};

use super::policies::{LoadedPolicy, Policies, State};
use super::trust::{Standing, Trust};
use crate::choice::FLOOR;
use crate::facts::{Machine, resolve};
use crate::profile::{self, Profile};

/// One policy that counts for a line.
#[derive(Debug)]
pub struct Layer {
    /// The policy.
    pub held: LoadedPolicy,
    /// What is not about permission is taken from this one.
    pub primary: bool,
    /// It comes from a profile, which may not take the ways out.
    profile: bool,
}

impl Layer {
    /// A judgement without what the layer has no say in: `cd`, `exit` and `substrate` stay usable
    /// under any profile.
    pub fn sift(&self, judgement: Judgement, line: &Line) -> Judgement {
        if !self.profile {
            return judgement;
        }
        Judgement::of(
            judgement
                .reasons
                .into_iter()
                .filter(|reason| !about_a_way_out(reason, line))
                .collect(),
        )
    }

    /// Notes whose rules these are, where they are not those of the policy that the line runs under.
    pub fn name(&self, judgement: &mut Judgement) {
        for reason in judgement.reasons.iter_mut().filter(|_| !self.primary) {
            reason.rule.policy = Some(self.held.info.id.clone());
        }
    }
}

/// A profile that was found, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileUse {
    /// Its file.
    pub path: PathBuf,
    /// The policy that it names, where it names one.
    pub policy: Option<String>,
    /// What became of it.
    pub standing: Use,
}

/// What became of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// The stricter of it and the session's policy counts.
    Combined(Standing),
    /// It counts in place of the session's policy.
    Replaced,
    /// It cannot be followed.
    Broken(String),
    /// It has no say.
    Foreign(u32),
}

impl std::fmt::Display for ProfileUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.path.display();
        let policy = self.policy.as_deref().unwrap_or("?");
        match &self.standing {
            Use::Combined(Standing::Changed) => {
                write!(
                    f,
                    "{policy} ({path}, combined: changed since it was trusted)"
                )
            }
            Use::Combined(_) => write!(f, "{policy} ({path}, combined)"),
            Use::Replaced => write!(f, "{policy} ({path}, trusted)"),
            Use::Broken(problem) => write!(f, "broken ({path}: {problem})"),
            Use::Foreign(owner) => write!(f, "ignored ({path} belongs to user {owner})"),
        }
    }
}

/// Everything that governs a line.
#[derive(Debug)]
pub struct Ground {
    /// The policies that count.
    pub layers: Vec<Layer>,
    /// The profiles that were found.
    pub profiles: Vec<ProfileUse>,
    /// Profiles that cannot be followed, as reasons.
    broken: Vec<Reason>,
    /// Reasons that count whatever the mode of the policies is.
    sealed: Vec<Reason>,
    /// What governs the directory that the line starts in.
    here: Vec<String>,
}

impl Ground {
    /// The session's own policies.
    pub fn of_session(state: &State) -> Self {
        let mut ground = Self {
            layers: Vec::new(),
            profiles: Vec::new(),
            broken: Vec::new(),
            sealed: Vec::new(),
            here: Vec::new(),
        };
        ground.add(&state.base, false);
        ground.close(state);
        ground
    }

    /// The policies for a line. With `trust`, trusted profiles replace the session's policy.
    pub fn find(
        policies: &Policies,
        trust: Option<&Trust>,
        state: &Arc<State>,
        line: &Line,
        facts: &Machine<'_>,
        profiles_of: &dyn Fn(&Path) -> Rc<Vec<Profile>>,
    ) -> Self {
        let mut ground = Self {
            layers: Vec::new(),
            profiles: Vec::new(),
            broken: Vec::new(),
            sealed: Vec::new(),
            here: Vec::new(),
        };
        let all_out = line
            .invocations
            .iter()
            .all(|invocation| is_way_out(invocation, line));
        for (number, directory) in directories(line, facts).iter().enumerate() {
            let found = profiles_of(directory);
            let mut replaced = false;
            for profile in found.iter() {
                replaced |= ground.follow(policies, trust, profile, all_out);
            }
            if !replaced {
                ground.add(&state.base, false);
            }
            if number == 0 {
                // The first layer is what the start directory is under.
                ground.here = ground
                    .layers
                    .iter()
                    .map(|layer| format!("{} {}", layer.held.info.id, layer.held.info.sha256))
                    .collect();
            }
        }
        if let (Some(problem), false) = (&state.unknown_floor, all_out) {
            ground.sealed.push(floor_refusal(problem));
        }
        for profile in &ground.profiles {
            if matches!(profile.standing, Use::Broken(_) | Use::Foreign(_)) {
                policies.warn_once(&format!("the profile is {profile}"));
            }
        }
        ground.close(state);
        ground
    }

    /// Takes a profile into account; answers whether it replaces the session's policy.
    fn follow(
        &mut self,
        policies: &Policies,
        trust: Option<&Trust>,
        profile: &Profile,
        all_out: bool,
    ) -> bool {
        let path = profile.path().to_owned();
        if let Some(known) = self.profiles.iter().find(|known| known.path == path) {
            return known.standing == Use::Replaced;
        }
        let (policy, standing) = match profile {
            Profile::Foreign { owner, .. } => (None, Use::Foreign(*owner)),
            Profile::Broken { problem, .. } => (None, Use::Broken(problem.clone())),
            Profile::Named {
                content, policy, ..
            } => match policies.profile(policy) {
                Err(error) => (Some(policy.clone()), Use::Broken(error.to_string())),
                Ok(held) => {
                    let standing = trust.map_or(Ok(Standing::Untrusted), |trust| {
                        trust.standing(&path, content, &held.info.sha256)
                    });
                    let standing = standing.unwrap_or_else(|error| {
                        policies.warn_once(&error.to_string());
                        Standing::Untrusted
                    });
                    self.add(&held, true);
                    let standing = match standing {
                        Standing::Trusted => Use::Replaced,
                        other => Use::Combined(other),
                    };
                    (Some(policy.clone()), standing)
                }
            },
        };
        if let (Use::Broken(problem), false) = (&standing, all_out) {
            self.broken.push(refusal(&path, policy.as_deref(), problem));
        }
        let replaced = standing == Use::Replaced;
        self.profiles.push(ProfileUse {
            path,
            policy,
            standing,
        });
        replaced
    }

    fn add(&mut self, held: &LoadedPolicy, profile: bool) {
        let known = self
            .layers
            .iter_mut()
            .find(|layer| layer.held.choice == held.choice);
        match known {
            // The session's own policy has its full say even where a profile names it too.
            Some(layer) => layer.profile &= profile,
            None => self.layers.push(Layer {
                held: held.clone(),
                primary: false,
                profile,
            }),
        }
    }

    /// Adds what nobody can loosen, and settles which policy the rest is taken from.
    fn close(&mut self, state: &State) {
        let base = self
            .layers
            .iter()
            .position(|layer| layer.held.choice == state.base.choice);
        let replaced = self
            .profiles
            .first()
            .is_some_and(|profile| profile.standing == Use::Replaced);
        let primary = if replaced { 0 } else { base.unwrap_or(0) };
        if let Some(layer) = self.layers.get_mut(primary) {
            layer.primary = true;
            // Somebody chose it for himself, so there is nobody whom it could lock out.
            layer.profile &= !replaced;
        }
        for ceiling in &state.ceilings {
            self.add(ceiling, false);
        }
    }

    /// The policy that everything but permission is taken from.
    pub fn primary(&self) -> &LoadedPolicy {
        let layer = self.layers.iter().find(|layer| layer.primary);
        &layer.unwrap_or(&self.layers[0]).held
    }

    /// Reasons from profiles that cannot be followed, if they count in this mode: that of the policy
    /// they would have added to.
    pub fn broken(&self, mode: Mode) -> Vec<Reason> {
        let strictest = self
            .layers
            .iter()
            .map(|layer| layer.held.info.mode)
            .max()
            .unwrap_or_default();
        let mut reasons = match mode {
            Mode::Enforce => self.sealed.clone(),
            Mode::Observe => Vec::new(),
        };
        if mode == strictest {
            reasons.extend(self.broken.iter().cloned());
        }
        reasons
    }

    /// The content of everything that counts, as one hash; grants are bound to it.
    pub fn fingerprint(&self) -> String {
        let mut all: Vec<String> = self
            .layers
            .iter()
            .map(|layer| format!("{} {}\n", layer.held.info.id, layer.held.info.sha256))
            .collect();
        all.sort();
        substrate_trace::sha256_hex(all.concat().as_bytes())
    }

    /// What governs the directory that the line starts in.
    pub fn here(&self) -> String {
        self.here.join("\n")
    }
}

/// The directories that a line works in, the one that it starts in first.
fn directories(line: &Line, facts: &Machine<'_>) -> Vec<PathBuf> {
    let mut all = vec![PathBuf::from(OsStr::from_bytes(facts.cwd()))];
    for index in 0..line.invocations.len() {
        if let Some(directory) = directory_of(line, index, facts) {
            let directory = PathBuf::from(OsStr::from_bytes(&directory));
            if !all.contains(&directory) {
                all.push(directory);
            }
        }
    }
    all
}

/// The profiles of a directory: of the path as it is written, and of where that leads.
pub fn profiles_of(directory: &Path) -> Vec<Profile> {
    let real = resolve(directory).unwrap_or_else(|| directory.to_owned());
    let mut all: Vec<Profile> = profile::find(&real).into_iter().collect();
    if real != directory
        && let Some(other) = profile::find(directory)
        && !all
            .iter()
            .any(|known| same_file(known.path(), other.path()))
    {
        all.push(other);
    }
    all
}

fn same_file(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (
        std::fs::symlink_metadata(one),
        std::fs::symlink_metadata(other),
    ) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}

fn about_a_way_out(reason: &Reason, line: &Line) -> bool {
    match reason.invocation {
        Some(index) => line
            .invocations
            .get(index)
            .is_some_and(|invocation| is_way_out(invocation, line)),
        None => {
            !line.invocations.is_empty()
                && line
                    .invocations
                    .iter()
                    .all(|invocation| is_way_out(invocation, line))
        }
    }
}

/// Commands by which a person gets out of a directory, or tells Substrate what to do.
fn is_way_out(invocation: &Invocation, line: &Line) -> bool {
    let name = invocation.argv.first().and_then(|word| word.value());
    line.complete()
        && invocation.unclear.is_none()
        && invocation.redirects.is_empty()
        && invocation.assignments.is_empty()
        && name.is_some_and(|name| {
            matches!(name, b"cd" | b"exit" | b"logout" | b"substrate")
                && !line.functions.iter().any(|function| function == name)
        })
}

fn refusal(path: &Path, policy: Option<&str>, problem: &str) -> Reason {
    Reason {
        verdict: Verdict::Deny,
        invocation: None,
        rule: RuleRef {
            list: "profile".to_owned(),
            pattern: policy.unwrap_or_default().to_owned(),
            file: path.to_owned(),
            line: 1,
            reason: Some(format!(
                "the profile of this directory cannot be followed: {problem}. Repair or remove it, or `cd` elsewhere"
            )),
            policy: None,
        },
    }
}

fn floor_refusal(problem: &str) -> Reason {
    // The rest has been shown with the warning.
    let problem = problem.lines().next().unwrap_or_default();
    Reason {
        verdict: Verdict::Deny,
        invocation: None,
        rule: RuleRef {
            list: "floor".to_owned(),
            pattern: "floor".to_owned(),
            file: FLOOR.into(),
            line: 1,
            reason: Some(format!(
                "what the administrator permits here cannot be told: {problem}. Root can repair it"
            )),
            policy: None,
        },
    }
}
