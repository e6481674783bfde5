//! The quick check: compiled policies, mapped, and one judgement of our own argv. What it cannot
//! decide alone it leaves to the full `substrate`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use substrate_broker::choice::{FLOOR, open_compiled};
use substrate_broker::facts::Machine;
use substrate_broker::home::{Home, bytes};
use substrate_broker::{Choice, choice, profile};
use substrate_command::analyse::{Context, analyse_argv};
use substrate_compiled::stamp;
use substrate_policy::{Judgement, Policy, judge};
use substrate_trace::{Mode, Outcome, RuleRef, Verdict};

/// The policies that count, as the broker would load them.
#[derive(Debug)]
pub struct Policies {
    /// The policy in use.
    pub base: Policy,
    floor: Option<Policy>,
}

/// Why there is nothing to judge by.
#[derive(Debug)]
pub struct NoPolicies {
    /// What is known of the mode: a file that is out of date still tells.
    pub mode: Option<Mode>,
}

impl Policies {
    /// Opens the compiled policies of a home. Damaged, foreign and out of date are all the same: not there.
    pub fn open(home: &Home) -> Result<Self, NoPolicies> {
        let base = open_compiled(&Choice::Active.cache_file(home));
        let floor = Path::new(FLOOR)
            .exists()
            .then(|| open_compiled(&Choice::File(FLOOR.into()).cache_file(home)));
        let all = || [Some(&base), floor.as_ref()].into_iter().flatten();
        let fresh = |policy: &Option<Policy>| {
            policy
                .as_ref()
                .is_some_and(|policy| policy.stamp().is_ok_and(stamp::is_fresh))
        };
        let complete = all().all(fresh);
        let mode = all().flatten().map(|policy| policy.settings().mode).max();
        match base {
            Some(base) if complete => Ok(Self {
                base,
                floor: floor.flatten(),
            }),
            _ => Err(NoPolicies { mode }),
        }
    }

    /// Whether refusals are carried out.
    pub fn mode(&self) -> Mode {
        self.layers()
            .map(|(_, mode)| mode)
            .max()
            .unwrap_or(Mode::Enforce)
    }

    /// Whether every policy lets `SHIM_BYPASS=1` pass.
    pub fn allow_bypass(&self) -> bool {
        self.layers()
            .all(|(policy, _)| policy.settings().allow_bypass)
    }

    /// Each policy with its mode, in the broker's order, so that the same rule decides.
    fn layers(&self) -> impl Iterator<Item = (&Policy, Mode)> {
        [&self.base]
            .into_iter()
            .chain(&self.floor)
            .map(|policy| (policy, policy.settings().mode))
    }
}

/// What a policy in `observe` certainly is, without reading it: the built-in default.
pub fn only_the_default(home: &Home) -> bool {
    choice::active(home) == "default"
        && !home.policies().join("default.yaml").exists()
        && !Path::new(FLOOR).exists()
}

/// Whether a profile brings a policy of its own, by the directory's name or by where that leads; in
/// a directory that is gone nobody can tell.
pub fn has_profile(cwd: &Path, real: Option<&Path>) -> bool {
    profile::present(cwd) || real.is_none_or(|real| real != cwd && profile::present(real))
}

/// What is judged.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The tool's name and its arguments.
    pub argv: &'a [OsString],
    /// Where it will run.
    pub cwd: &'a Path,
    /// Where programs are looked up, without shims.
    pub search_path: &'a OsStr,
    /// The variable `HOME`.
    pub home_variable: Option<&'a [u8]>,
}

/// The quick answer.
#[derive(Debug)]
pub enum Answer {
    /// It may run.
    Run(Judged),
    /// It may not.
    Deny(Judged),
    /// Only the full `substrate` can tell, or can do what it takes.
    Full,
}

/// What the span says about the judgement.
#[derive(Debug)]
pub struct Judged {
    /// The strictest verdict of all policies, whatever their mode.
    pub verdict: Verdict,
    /// The rule that decided it.
    pub rule: Option<RuleRef>,
    /// The rule that refuses, or would.
    pub decisive: Option<RuleRef>,
    /// What `enforce` would have done.
    pub would: Option<Outcome>,
}

/// Judges an argv by the compiled policies, as the broker does.
pub fn check(policies: &Policies, home: &Home, question: &Question<'_>) -> Answer {
    let facts = Machine::new(question.cwd, question.cwd, home, question.search_path)
        .with_home(question.home_variable);
    let mut context = Context::new(&policies.base);
    context.home = Some(question.home_variable.unwrap_or(bytes(&home.user)));
    context.pwd = Some(bytes(question.cwd));
    let argv: Vec<Vec<u8>> = question
        .argv
        .iter()
        .map(|word| word.as_bytes().to_vec())
        .collect();
    let line = analyse_argv(&argv, &context);
    // Shell text inside the arguments is read by the full analysis only.
    if !line.complete()
        || line
            .invocations
            .iter()
            .any(|invocation| invocation.unclear.is_some())
    {
        return Answer::Full;
    }
    let mut strict = Judgement::allow();
    let mut lenient = Judgement::allow();
    for (policy, mode) in policies.layers() {
        let judgement = judge(policy, &line, &facts);
        match mode {
            Mode::Enforce => strict = strict.and(judgement),
            Mode::Observe => lenient = lenient.and(judgement),
        }
    }
    if policies.layers().any(|(policy, _)| policy.damaged()) {
        return Answer::Full;
    }
    let deciding = |judgement: &Judgement| judgement.deciding().map(|reason| reason.rule.clone());
    let would = match lenient.verdict {
        Verdict::Deny => Some(Outcome::WouldDeny),
        Verdict::Ask => Some(Outcome::WouldAsk),
        _ => None,
    };
    let refused = strict.verdict == Verdict::Deny;
    // Which of two policies refused is for the full check to say.
    if refused && policies.floor.is_some() {
        return Answer::Full;
    }
    if !refused && (strict.isolate || lenient.isolate || strict.verdict == Verdict::Ask) {
        return Answer::Full;
    }
    let decisive = if refused {
        deciding(&strict)
    } else {
        deciding(&lenient).filter(|_| would.is_some())
    };
    let all = strict.and(lenient);
    let judged = Judged {
        verdict: if all.verdict == Verdict::Allow && all.isolate {
            Verdict::Isolate
        } else {
            all.verdict
        },
        rule: deciding(&all).filter(|_| all.verdict != Verdict::Allow),
        decisive,
        would: would.filter(|_| !refused),
    };
    if refused {
        Answer::Deny(judged)
    } else {
        Answer::Run(judged)
    }
}
