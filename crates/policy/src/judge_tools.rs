//! Judging calls of tools by their names; what they do is judged as the effects of commands are.

use substrate_command::{Action, Called, Line};
use substrate_compiled::glob::{self, Slash};
use substrate_trace::{RuleRef, Verdict};

use crate::judgement::Reason;
use crate::settings::{PathEntry, ToolRule, ToolRules};

/// Adds what the rules over names give reason for.
pub(crate) fn reasons(rules: &ToolRules, policy: &str, called: &Called, reasons: &mut Vec<Reason>) {
    let mut add = |verdict, rule| {
        reasons.push(Reason {
            verdict,
            invocation: Some(0),
            rule,
        });
    };
    for verdict in [Verdict::Deny, Verdict::Ask] {
        if let Some(rule) = first(rules, verdict, &called.name) {
            add(verdict, rule.rule.clone());
        }
    }
    if let Some(rule) = first(rules, Verdict::Allow, &called.name) {
        add(Verdict::Allow, rule.rule.clone());
    } else if let Some(closed) = closed_by(rules, &called.name) {
        let reason = "Tool not explicitly allowed".to_owned();
        add(
            Verdict::Deny,
            RuleRef {
                reason: Some(reason),
                ..closed.rule.clone()
            },
        );
    } else if !called.known {
        let at = rules.default_at.clone().unwrap_or_else(|| PathEntry {
            pattern: "ask".to_owned(),
            file: format!("policy:{policy}"),
            line: 0,
        });
        add(
            rules.default.verdict(),
            RuleRef {
                list: "tools.default".to_owned(),
                pattern: at.pattern,
                file: at.file.into(),
                line: at.line,
                reason: Some(format!("nobody says what {} does", called.name)),
                policy: None,
            },
        );
    }
}

/// Whether a session that wants everything approved has to ask about a call: neither its name is
/// allowed, nor does it only read.
pub(crate) fn wants_approval(rules: &ToolRules, called: &Called, line: &Line) -> bool {
    let effects = || line.invocations.iter().flat_map(|step| &step.effects);
    let only_reads = called.known
        && effects().all(|effect| matches!(effect.action, Action::Read | Action::List));
    !only_reads && first(rules, Verdict::Allow, &called.name).is_none()
}

/// Whether a pattern means a tool. What permits is read by the letter; what forbids also means the same
/// name in another case.
pub(crate) fn means(pattern: &str, name: &str, verdict: Verdict) -> bool {
    let fits = |pattern: &str, name: &str| {
        glob::matches(pattern.as_bytes(), name.as_bytes(), Slash::Ordinary)
    };
    fits(pattern, name)
        || verdict > Verdict::Allow
            && fits(&pattern.to_ascii_lowercase(), &name.to_ascii_lowercase())
}

fn first<'a>(rules: &'a ToolRules, verdict: Verdict, name: &str) -> Option<&'a ToolRule> {
    let mut rules = rules.rules.iter();
    rules.find(|rule| rule.verdict == verdict && means(&rule.rule.pattern, name, verdict))
}

/// The entry of `allowed` that speaks of tools of this kind, which makes the list a complete one.
fn closed_by<'a>(rules: &'a ToolRules, name: &str) -> Option<&'a ToolRule> {
    let kind = |name: &str| name.split(':').next().unwrap_or_default().to_owned();
    let mut allowed = rules
        .rules
        .iter()
        .filter(|rule| rule.verdict == Verdict::Allow);
    allowed.find(|rule| kind(&rule.rule.pattern) == kind(name))
}
