//! The judgement: a line, a policy and facts in, a verdict with every reason out. Pure and total.

use std::borrow::Cow;

use substrate_command::{Invocation, Line, Word, harmless_assignment, is_builtin};
use substrate_compiled::paths;
use substrate_compiled::{Fit, Operand, OperandPattern, Rule, Stage, View};
use substrate_trace::{RuleRef, Verdict};

use crate::facts::Facts;
#[cfg(feature = "load")]
use crate::flows::Flows;
use crate::judge_effects;
use crate::judge_tools;
use crate::judgement::{Judgement, Reason};
use crate::policy::{List, Policy};
use crate::settings::OnUnparsed;

/// What is wrong with a policy that no rule can be read from.
const DAMAGED: &str = "the compiled policy is damaged";

/// Judges a line.
pub fn judge(policy: &Policy, line: &Line, facts: &dyn Facts) -> Judgement {
    let Some(rules) = policy.rules() else {
        return Judgement::of(vec![refusal(policy, DAMAGED)]);
    };
    let settings = policy.settings();
    let mut reasons = Vec::new();
    let mut direct = Vec::new();

    if line.operators && !settings.commands.allow_shell_operators {
        reasons.push(setting(
            policy,
            Verdict::Deny,
            None,
            "commands.allow_shell_operators",
            "shell operators are not allowed",
        ));
    }
    if let Some(why) = &line.unclear {
        reasons.extend(unparsed(policy, None, why, facts));
    }
    for (index, invocation) in line.invocations.iter().enumerate() {
        let Some(program) = invocation.argv.first() else {
            continue;
        };
        if let Some(why) = invocation
            .unclear
            .as_ref()
            .filter(|_| line.unclear.is_none())
        {
            reasons.extend(unparsed(policy, Some(index), why, facts));
        }
        let Some(command) = Command::look(invocation, program, facts) else {
            continue;
        };
        let Some(candidates) = rules.candidates(&command.names()) else {
            return Judgement::of(vec![refusal(policy, DAMAGED)]);
        };
        command_reasons(
            policy,
            index,
            invocation,
            line,
            &command,
            &candidates,
            facts,
            &mut reasons,
        );
        if is_direct(invocation, line, &command, &candidates, facts) {
            direct.push(index);
        }
    }
    match rules.pipelines() {
        Some(pipelines) => pipeline_reasons(line, &pipelines, facts, &mut reasons),
        None => return Judgement::of(vec![refusal(policy, DAMAGED)]),
    }
    let does = |invocation: &Invocation| !invocation.effects.is_empty();
    if line.called.is_some() || line.invocations.iter().any(does) {
        let Ok(rules) = policy.effects() else {
            return Judgement::of(vec![refusal(policy, DAMAGED)]);
        };
        if let Some(called) = &line.called {
            judge_tools::reasons(&rules.tools, &settings.id, called, &mut reasons);
            if settings.require_approval && judge_tools::wants_approval(&rules.tools, called, line)
            {
                let why = "this policy wants every command approved";
                reasons.push(approval(policy, Some(0), why));
            }
        }
        judge_effects::reasons(&rules, &settings.id, line, &direct, facts, &mut reasons);
    }
    Judgement::of(reasons)
}

/// Whether somebody vouches for the program, which nobody has described.
fn is_direct(
    invocation: &Invocation,
    line: &Line,
    command: &Command<'_>,
    candidates: &[Rule],
    facts: &dyn Facts,
) -> bool {
    let mut rules = candidates
        .iter()
        .filter(|rule| rule.list == List::Direct.number())
        .peekable();
    if rules.peek().is_none() {
        return false;
    }
    let view = command.view(invocation, line, facts, Meant::ANYTHING);
    rules.any(|rule| {
        let mut stages = rule.stages.iter();
        stages.all(|stage| stage.fits(&view, Fit::Strict, facts))
    })
}

/// What the command lists say about one command.
#[expect(
    clippy::too_many_arguments,
    reason = "one call site; a struct would only rename the parameters"
)]
fn command_reasons(
    policy: &Policy,
    index: usize,
    invocation: &Invocation,
    line: &Line,
    command: &Command<'_>,
    candidates: &[Rule],
    facts: &dyn Facts,
    reasons: &mut Vec<Reason>,
) {
    let settings = policy.settings();
    let view = command.view(invocation, line, facts, Meant::by(candidates));
    let first = |list: List| {
        let fit = match list {
            List::Denied | List::Ask | List::Isolated => Fit::Generous,
            List::Allowed | List::AutoApprove | List::Direct => Fit::Strict,
        };
        candidates
            .iter()
            .filter(|rule| rule.list == list.number())
            .find(|rule| {
                rule.stages
                    .iter()
                    .all(|stage| stage.fits(&view, fit, facts))
            })
    };
    let mut add = |verdict, rule: RuleRef| {
        reasons.push(Reason {
            verdict,
            invocation: Some(index),
            rule,
        });
    };

    for (list, verdict) in [
        (List::Denied, Verdict::Deny),
        (List::Ask, Verdict::Ask),
        (List::Isolated, Verdict::Isolate),
    ] {
        // What only shows something is not what a rule is about.
        if invocation.inert {
            break;
        }
        if let Some(rule) = first(list) {
            add(verdict, reference(rule));
        }
    }
    // A wrapper such as `env` needs no rule of its own where the command inside is judged; nor do
    // builtins and functions, which start nothing.
    let starts_nothing = command.starts_nothing(line);
    match first(List::Allowed) {
        Some(rule) => add(Verdict::Allow, reference(rule)),
        None if starts_nothing => {}
        None => {
            let verdict = settings.commands.default.verdict();
            if verdict > Verdict::Allow {
                let at = settings.commands.default_at.clone().unwrap_or_default();
                let (list, reason) = if settings.commands.has_allowed {
                    ("commands.allowed", "Command not explicitly allowed")
                } else {
                    ("commands.default", "no rule allows this command")
                };
                add(
                    verdict,
                    RuleRef {
                        list: list.to_owned(),
                        pattern: at.pattern,
                        file: at.file.into(),
                        line: at.line,
                        reason: Some(reason.to_owned()),
                        policy: None,
                    },
                );
            }
        }
    }
    if settings.require_approval && !starts_nothing && first(List::AutoApprove).is_none() {
        reasons.push(approval(
            policy,
            Some(index),
            "this policy wants every command approved",
        ));
    }
}

/// What `--require-approval` asks about: every command that the policy does not approve by itself.
pub fn unapproved(policy: &Policy, line: &Line, facts: &dyn Facts) -> Vec<Reason> {
    const WHY: &str = "every command of this session needs approval";
    let Some(rules) = policy.rules().filter(|_| line.complete()) else {
        return vec![approval(policy, None, WHY)];
    };
    let mut reasons = Vec::new();
    if let Some(called) = &line.called {
        let passes = policy
            .effects()
            .is_ok_and(|rules| !judge_tools::wants_approval(&rules.tools, called, line));
        reasons.extend((!passes).then(|| approval(policy, Some(0), WHY)));
    }
    for (index, invocation) in line.invocations.iter().enumerate() {
        let Some(program) = invocation.argv.first() else {
            continue;
        };
        let command = Command::look(invocation, program, facts);
        let approved = command.as_ref().is_some_and(|command| {
            let candidates = rules.candidates(&command.names()).unwrap_or_default();
            let view = command.view(invocation, line, facts, Meant::ANYTHING);
            command.starts_nothing(line)
                || candidates
                    .iter()
                    .filter(|rule| rule.list == List::AutoApprove.number())
                    .any(|rule| {
                        rule.stages
                            .iter()
                            .all(|stage| stage.fits(&view, Fit::Strict, facts))
                    })
        });
        if !approved {
            reasons.push(approval(policy, Some(index), WHY));
        }
    }
    reasons
}

/// Whether one command of a line is exactly what a pattern names, as in `allowed`.
pub fn covers(stage: &Stage, line: &Line, index: usize, facts: &dyn Facts) -> bool {
    let Some(invocation) = line.invocations.get(index) else {
        return false;
    };
    let command = invocation
        .argv
        .first()
        .and_then(|program| Command::look(invocation, program, facts));
    command.is_some_and(|command| {
        let view = command.view(invocation, line, facts, Meant::ANYTHING);
        stage.fits(&view, Fit::Strict, facts)
    })
}

/// The directory that one command of a line runs in, when that is known.
pub fn directory_of(line: &Line, index: usize, facts: &dyn Facts) -> Option<Vec<u8>> {
    judge_effects::directory(&line.invocations.get(index)?.cwd, facts)
}

fn approval(policy: &Policy, invocation: Option<usize>, why: &str) -> Reason {
    let mut reason = setting(policy, Verdict::Ask, invocation, "approval.required", why);
    reason.rule.pattern = "*".to_owned();
    reason
}

/// An argument vector alone has no pipes, and that is all that is judged without the loader.
#[cfg(not(feature = "load"))]
fn pipeline_reasons(_: &Line, _: &[Rule], _: &dyn Facts, _: &mut [Reason]) {}

/// What the pipeline rules say: a command fits the first pattern, and what it prints reaches one that fits the next.
#[cfg(feature = "load")]
fn pipeline_reasons(line: &Line, rules: &[Rule], facts: &dyn Facts, reasons: &mut Vec<Reason>) {
    if rules.is_empty() || line.invocations.len() < 2 {
        return;
    }
    let commands: Vec<Option<Command<'_>>> = line
        .invocations
        .iter()
        .map(|invocation| {
            invocation
                .argv
                .first()
                .and_then(|program| Command::look(invocation, program, facts))
        })
        .collect();
    let views: Vec<Option<View<'_>>> = line
        .invocations
        .iter()
        .zip(&commands)
        .map(|(invocation, command)| {
            let command = command.as_ref().filter(|_| !invocation.inert)?;
            Some(command.view(invocation, line, facts, Meant::ANYTHING))
        })
        .collect();
    let mut flows: Option<Flows> = None;
    for rule in rules {
        let verdict = match rule.list {
            list if list == List::Denied.number() => Verdict::Deny,
            list if list == List::Ask.number() => Verdict::Ask,
            list if list == List::Isolated.number() => Verdict::Isolate,
            _ => continue,
        };
        let mut reached: Option<Vec<usize>> = None;
        for pattern in &rule.stages {
            let fits = |at: &usize| {
                let view = views.get(*at).and_then(Option::as_ref);
                view.is_some_and(|view| pattern.fits(view, Fit::Generous, facts))
            };
            let found: Vec<usize> = match &reached {
                None => (0..views.len()).filter(fits).collect(),
                Some(from) => {
                    let flows = flows.get_or_insert_with(|| Flows::of(line));
                    flows.reach(from).into_iter().filter(fits).collect()
                }
            };
            let none = found.is_empty();
            reached = Some(found);
            if none {
                break;
            }
        }
        if let Some(index) = reached.and_then(|found| found.first().copied()) {
            reasons.push(Reason {
                verdict,
                invocation: Some(index),
                rule: reference(rule),
            });
        }
    }
}

/// What the rules for a command look at; finding out what they do not look at would take time.
#[derive(Clone, Copy)]
struct Meant {
    paths: bool,
    strictly: bool,
}

impl Meant {
    const ANYTHING: Meant = Meant {
        paths: true,
        strictly: true,
    };

    fn by(rules: &[Rule]) -> Meant {
        let permits = [List::Allowed, List::AutoApprove, List::Direct].map(List::number);
        Meant {
            paths: rules.iter().any(speaks_of_paths),
            strictly: rules.iter().any(|rule| permits.contains(&rule.list)),
        }
    }
}

/// A command's program, looked up.
struct Command<'a> {
    typed: &'a [u8],
    /// What was typed as a path, in normal form.
    path: Option<Vec<u8>>,
    resolved: Option<Vec<u8>>,
    cwd: Option<Vec<u8>>,
}

impl<'a> Command<'a> {
    /// `None` when the program's name is not known; that is a reason of its own.
    fn look(invocation: &Invocation, program: &'a Word, facts: &dyn Facts) -> Option<Self> {
        let typed = program.value()?;
        let cwd = judge_effects::directory(&invocation.cwd, facts);
        let resolved = facts.program(typed, cwd.as_deref().unwrap_or(facts.cwd()));
        let path = typed
            .contains(&b'/')
            .then(|| paths::absolute(cwd.as_deref().unwrap_or(facts.cwd()), typed));
        Some(Self {
            typed,
            path,
            resolved,
            cwd,
        })
    }

    /// Whether the plain name would have started the same program.
    fn by_name(&self, facts: &dyn Facts) -> bool {
        let found = || facts.program(paths::base_name(self.typed), facts.cwd());
        self.path.is_none() || (self.resolved.is_some() && found() == self.resolved)
    }

    /// Builtins and functions of the line run inside the shell.
    fn starts_nothing(&self, line: &Line) -> bool {
        self.resolved.is_none()
            && (is_builtin(self.typed) || line.functions.iter().any(|name| name == self.typed))
    }

    fn names(&self) -> Vec<&[u8]> {
        let mut names = vec![paths::base_name(self.typed)];
        if let Some(resolved) = &self.resolved {
            let name = paths::base_name(resolved);
            if name != names[0] {
                names.push(name);
            }
        }
        names
    }

    fn view<'v>(
        &'v self,
        invocation: &'v Invocation,
        line: &Line,
        facts: &dyn Facts,
        meant: Meant,
    ) -> View<'v> {
        let args = &invocation.args;
        let mut subcommands = args.subcommands.iter();
        let operands = args
            .operands
            .iter()
            .filter_map(|operand| {
                let word = invocation.argv.get(operand.index)?;
                let canonical = if operand.subcommand {
                    subcommands.next()
                } else {
                    None
                };
                Some(Operand {
                    forms: self.forms(word, canonical, facts, meant.paths),
                    prefix: (!word.is_literal()).then(|| word.known_prefix()),
                    maybe_value: operand.maybe_value,
                })
            })
            .collect();
        View {
            names: self.names(),
            paths: self
                .resolved
                .as_deref()
                .into_iter()
                .chain(self.path.is_some().then_some(self.typed))
                .chain(self.path.as_deref())
                .collect(),
            by_name: meant.strictly && self.by_name(facts),
            options: args
                .options
                .iter()
                .map(|option| {
                    (
                        option.name.as_slice(),
                        option.value.as_ref().and_then(Word::value),
                    )
                })
                .collect(),
            operands,
            clear: line.complete()
                && invocation.unclear.is_none()
                && invocation.argv.iter().all(Word::is_literal)
                && invocation
                    .assignments
                    .iter()
                    .all(|assignment| harmless_assignment(&assignment.name)),
        }
    }

    /// Every text that a rule may mean by this word.
    fn forms<'v>(
        &self,
        word: &'v Word,
        canonical: Option<&'v String>,
        facts: &dyn Facts,
        with_paths: bool,
    ) -> Vec<Cow<'v, [u8]>> {
        let mut forms = Vec::new();
        let Some(value) = word.value() else {
            if !word.has_unknown() {
                forms.push(word.text());
                // `rm -rf /*` is `rm -rf /` for whoever has to live with it.
                if let Some(directory) = word.text().strip_suffix(b"/*") {
                    forms.push(if directory.is_empty() {
                        Cow::Borrowed(b"/")
                    } else {
                        directory.to_vec().into()
                    });
                }
            }
            return forms;
        };
        forms.push(Cow::Borrowed(value));
        forms.extend(canonical.map(|name| Cow::Borrowed(name.as_bytes())));
        if with_paths && !value.is_empty() {
            let relative = !value.starts_with(b"/");
            if let Some(cwd) = self.cwd.as_deref().or((!relative).then_some(&b"/"[..])) {
                let absolute = paths::absolute(cwd, value);
                forms.extend(
                    facts
                        .real(&absolute)
                        .filter(|real| *real != absolute)
                        .map(Cow::Owned),
                );
                forms.push(Cow::Owned(absolute));
            }
        }
        forms
    }
}

/// Whether comparing paths, which costs system calls, can make a difference to the rule.
fn speaks_of_paths(rule: &Rule) -> bool {
    rule.stages
        .iter()
        .flat_map(|stage| &stage.operands)
        .any(|operand| match operand {
            OperandPattern::Any => false,
            OperandPattern::Word(word) => {
                word.contains(&b'/') || matches!(word.first(), Some(b'~' | b'$' | b'.'))
            }
        })
}

fn reference(rule: &Rule) -> RuleRef {
    let list = List::ALL
        .into_iter()
        .find(|list| list.number() == rule.list)
        .map_or("commands", List::name);
    RuleRef {
        list: list.to_owned(),
        pattern: rule.pattern.clone(),
        file: rule.file.clone().into(),
        line: rule.line,
        reason: rule.reason.clone(),
        policy: None,
    }
}

fn unparsed(
    policy: &Policy,
    invocation: Option<usize>,
    why: &str,
    facts: &dyn Facts,
) -> Option<Reason> {
    let verdict = match policy.settings().commands.on_unparsed {
        OnUnparsed::Guard if facts.guarded() => return None,
        OnUnparsed::Guard | OnUnparsed::Ask => Verdict::Ask,
        OnUnparsed::Isolate => Verdict::Isolate,
        OnUnparsed::Deny => Verdict::Deny,
    };
    Some(setting(
        policy,
        verdict,
        invocation,
        "commands.on_unparsed",
        why,
    ))
}

fn refusal(policy: &Policy, why: &str) -> Reason {
    setting(policy, Verdict::Deny, None, "policy", why)
}

fn setting(
    policy: &Policy,
    verdict: Verdict,
    invocation: Option<usize>,
    list: &str,
    why: &str,
) -> Reason {
    Reason {
        verdict,
        invocation,
        rule: RuleRef {
            list: list.to_owned(),
            pattern: list.rsplit('.').next().unwrap_or(list).to_owned(),
            file: format!("policy:{}", policy.settings().id).into(),
            line: 0,
            reason: Some(why.to_owned()),
            policy: None,
        },
    }
}
