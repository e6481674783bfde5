//! What comes of judging: a verdict, and every reason for it.

use substrate_trace::{RuleRef, Verdict};

/// What a policy says about a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The strictest answer of all parts.
    pub verdict: Verdict,
    /// Some part must run in a fresh world, whatever else holds.
    pub isolate: bool,
    /// Why: everything that is stricter than `allow`, and the rules that allowed the rest.
    pub reasons: Vec<Reason>,
}

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reason {
    /// What it alone would decide.
    pub verdict: Verdict,
    /// Which command of the line, when it is about one.
    pub invocation: Option<usize>,
    /// The rule.
    pub rule: RuleRef,
}

impl Judgement {
    /// A judgement without a word of doubt.
    pub fn allow() -> Self {
        Self {
            verdict: Verdict::Allow,
            isolate: false,
            reasons: Vec::new(),
        }
    }

    /// The stricter of two judgements, with the reasons of both.
    #[must_use]
    pub fn and(mut self, other: Judgement) -> Self {
        self.reasons.extend(other.reasons);
        Self::of(self.reasons)
    }

    /// The judgement that these reasons give.
    pub fn of(reasons: Vec<Reason>) -> Self {
        let verdict = reasons
            .iter()
            .map(|reason| reason.verdict)
            .max()
            .unwrap_or(Verdict::Allow);
        Self {
            verdict,
            isolate: reasons
                .iter()
                .any(|reason| reason.verdict == Verdict::Isolate),
            reasons,
        }
    }

    /// The reason that decided: the first of the strictest.
    pub fn deciding(&self) -> Option<&Reason> {
        self.reasons
            .iter()
            .find(|reason| reason.verdict == self.verdict)
    }
}
