//! Command rules: their encoding, an index by program name, and the one function that says whether
//! a rule fits a command.

use std::borrow::Cow;

use crate::codec::{Decoder, Encoder};
use crate::file::{find_sorted, write_sorted};
use crate::glob::{self, Slash};
use crate::paths::{self, Vars};

/// How closely a command must fit a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// For rules that restrict: what the pattern does not name does not save the command.
    Generous,
    /// For rules that permit: what the pattern does not name does not fit.
    Strict,
}

/// A rule of a policy's command lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Which list it stands in; the meaning is the policy's.
    pub list: u8,
    /// The pattern as written.
    pub pattern: String,
    /// The file it stands in.
    pub file: String,
    /// The line in that file.
    pub line: u32,
    /// Why, in the words of whoever wrote it.
    pub reason: Option<String>,
    /// One for a plain command, more for `a | b`.
    pub stages: Vec<Stage>,
}

/// The pattern of one command.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stage {
    /// Which programs; any of these.
    pub programs: Vec<Program>,
    /// Options that must be there, by canonical name, with a glob for the value where one is given.
    pub options: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The other words.
    pub operands: Vec<OperandPattern>,
}

/// Which program a pattern means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A base name, wildcards allowed.
    Name(Vec<u8>),
    /// A path, wildcards allowed, variables at the front.
    Path(Vec<u8>),
}

/// A word of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperandPattern {
    /// A lone `*`: any number of words, options included.
    Any,
    /// A glob for one word.
    Word(Vec<u8>),
}

/// A command as the rules see it.
#[derive(Debug, Clone, Default)]
pub struct View<'a> {
    /// Base names: of what was typed and of what will run.
    pub names: Vec<&'a [u8]>,
    /// Full paths: what will run, and what was typed when it had a slash.
    pub paths: Vec<&'a [u8]>,
    /// The name alone decides what runs; a typed path to some file of that name does not fit `Strict`.
    pub by_name: bool,
    /// Options by canonical name.
    pub options: Vec<(&'a [u8], Option<&'a [u8]>)>,
    /// The other words.
    pub operands: Vec<Operand<'a>>,
    /// Every word is known exactly and nothing about the command is unclear.
    pub clear: bool,
}

/// A word of a command, in every form that a rule may mean.
#[derive(Debug, Clone, Default)]
pub struct Operand<'a> {
    /// As typed, as canonical subcommand, as normalised and as resolved path.
    pub forms: Vec<Cow<'a, [u8]>>,
    /// When not exact: the bytes that are known at the front.
    pub prefix: Option<&'a [u8]>,
    /// It may be the value of the option before it.
    pub maybe_value: bool,
}

impl Stage {
    /// Whether the command fits.
    pub fn fits(&self, view: &View<'_>, fit: Fit, vars: Vars<'_>) -> bool {
        self.program_fits(view, fit, vars)
            && self.options_fit(view, fit)
            && self.operands_fit(view, fit, vars)
    }

    fn program_fits(&self, view: &View<'_>, fit: Fit, vars: Vars<'_>) -> bool {
        self.programs.iter().any(|program| match program {
            Program::Name(name) => {
                (view.by_name || fit == Fit::Generous)
                    && match fit {
                        Fit::Generous => view
                            .names
                            .iter()
                            .any(|seen| glob::matches(name, seen, Slash::Ordinary)),
                        // Both names: neither a link called `git` nor a `git` that is a link to something else.
                        Fit::Strict => view
                            .names
                            .first()
                            .is_some_and(|typed| glob::matches(name, typed, Slash::Ordinary)),
                    }
            }
            Program::Path(pattern) => meanings(pattern, fit, vars).any(|pattern| {
                view.paths
                    .iter()
                    .any(|seen| glob::matches(&pattern, seen, Slash::Separator))
            }),
        })
    }

    fn options_fit(&self, view: &View<'_>, fit: Fit) -> bool {
        let named = self.options.iter().all(|(name, value)| {
            view.options.iter().any(|(seen, seen_value)| {
                seen == name
                    && value.as_ref().is_none_or(|value| {
                        seen_value.is_some_and(|seen| glob::matches(value, seen, Slash::Ordinary))
                    })
            })
        });
        let open = self.operands.contains(&OperandPattern::Any);
        named
            && (fit == Fit::Generous
                || open
                || view
                    .options
                    .iter()
                    .all(|(seen, _)| self.options.iter().any(|(name, _)| name == seen)))
    }

    fn operands_fit(&self, view: &View<'_>, fit: Fit, vars: Vars<'_>) -> bool {
        match fit {
            Fit::Strict => view.clear && all_in_order(&self.operands, &view.operands, vars),
            Fit::Generous => some_in_order(&self.operands, &view.operands, vars),
        }
    }

    /// The literal names by which an index finds this stage; `None` when only trying it will tell.
    fn keys(&self) -> Option<Vec<&[u8]>> {
        self.programs
            .iter()
            .map(|program| match program {
                Program::Name(name) if !glob::is_pattern(name) && !name.contains(&b'\\') => {
                    Some(name.as_slice())
                }
                _ => None,
            })
            .collect()
    }
}

/// Every operand is accounted for by the pattern, in order.
fn all_in_order(patterns: &[OperandPattern], operands: &[Operand<'_>], vars: Vars<'_>) -> bool {
    match patterns.split_first() {
        None => operands.is_empty(),
        Some((OperandPattern::Any, rest)) => {
            // A trailing `*`, by far the most common, needs no search.
            rest.is_empty()
                || (0..=operands.len()).any(|skip| all_in_order(rest, &operands[skip..], vars))
        }
        Some((OperandPattern::Word(word), rest)) => {
            operands.split_first().is_some_and(|(operand, others)| {
                operand.is(word, Fit::Strict, vars) && all_in_order(rest, others, vars)
            })
        }
    }
}

/// Every word of the pattern is found, in order. Plain names right after the program are
/// subcommands: nothing but the value of an unknown option may stand before them.
fn some_in_order(patterns: &[OperandPattern], operands: &[Operand<'_>], vars: Vars<'_>) -> bool {
    let mut at = 0;
    let mut leading = true;
    for pattern in patterns {
        let OperandPattern::Word(word) = pattern else {
            leading = false;
            continue;
        };
        leading &= is_plain_name(word);
        let found = operands[at..]
            .iter()
            .enumerate()
            .find_map(|(skipped, operand)| {
                if operand.is(word, Fit::Generous, vars) {
                    return Some(Some(skipped));
                }
                (leading && !operand.maybe_value).then_some(None)
            });
        match found.flatten() {
            Some(skipped) => at += skipped + 1,
            None => return false,
        }
    }
    true
}

fn is_plain_name(word: &[u8]) -> bool {
    !glob::is_pattern(word)
        && !word.contains(&b'/')
        && !matches!(word.first(), Some(b'~' | b'$' | b'.' | b'@') | None)
}

/// What a pattern with a variable in front may mean.
fn meanings<'v>(
    pattern: &'v [u8],
    fit: Fit,
    vars: Vars<'v>,
) -> impl Iterator<Item = Cow<'v, [u8]>> {
    let others = (fit == Fit::Generous).then(|| paths::elsewhere(pattern, vars));
    paths::expand(pattern, vars)
        .into_iter()
        .chain(others.into_iter().flatten())
}

impl Operand<'_> {
    fn is(&self, word: &[u8], fit: Fit, vars: Vars<'_>) -> bool {
        meanings(word, fit, vars).any(|word| self.fits_glob(&word))
    }

    fn fits_glob(&self, word: &[u8]) -> bool {
        if self
            .forms
            .iter()
            .any(|form| glob::matches(word, form, Slash::Ordinary))
        {
            return true;
        }
        // Of a partly known word only the front can be compared, and only with an open end.
        self.prefix.is_some_and(|prefix| {
            let literal = glob::literal_prefix(word);
            word.last() == Some(&b'*')
                && literal.len() + 1 == word.len()
                && prefix.starts_with(literal)
        })
    }
}

impl Rule {
    fn encode(&self, to: &mut Encoder) {
        to.u8(self.list);
        to.text(&self.pattern);
        to.text(&self.file);
        to.u32(self.line);
        to.option(self.reason.as_deref(), Encoder::text);
        to.list(&self.stages, |to, stage| {
            to.list(&stage.programs, |to, program| match program {
                Program::Name(name) => {
                    to.u8(0);
                    to.bytes(name);
                }
                Program::Path(path) => {
                    to.u8(1);
                    to.bytes(path);
                }
            });
            to.list(&stage.options, |to, (name, value)| {
                to.bytes(name);
                to.option(value.as_deref(), Encoder::bytes);
            });
            to.list(&stage.operands, |to, operand| match operand {
                OperandPattern::Any => to.u8(0),
                OperandPattern::Word(word) => {
                    to.u8(1);
                    to.bytes(word);
                }
            });
        });
    }

    fn decode(from: &mut Decoder<'_>) -> Option<Rule> {
        Some(Rule {
            list: from.u8()?,
            pattern: from.text()?.to_owned(),
            file: from.text()?.to_owned(),
            line: from.u32()?,
            reason: from.option(|from| from.text().map(str::to_owned))?,
            stages: from.list(|from| {
                Some(Stage {
                    programs: from.list(|from| match from.u8()? {
                        0 => Some(Program::Name(from.bytes()?.to_vec())),
                        1 => Some(Program::Path(from.bytes()?.to_vec())),
                        _ => None,
                    })?,
                    options: from.list(|from| {
                        Some((
                            from.bytes()?.to_vec(),
                            from.option(|from| from.bytes().map(<[u8]>::to_vec))?,
                        ))
                    })?,
                    operands: from.list(|from| match from.u8()? {
                        0 => Some(OperandPattern::Any),
                        1 => Some(OperandPattern::Word(from.bytes()?.to_vec())),
                        _ => None,
                    })?,
                })
            })?,
        })
    }
}

/// All rules of a policy, found by program name.
#[derive(Debug, Clone, Copy)]
pub struct RuleTable<'a> {
    by_name: &'a [u8],
    others: &'a [u8],
    pipelines: &'a [u8],
}

impl<'a> RuleTable<'a> {
    /// Encodes rules; their order within a list is kept.
    pub fn encode(rules: &[Rule]) -> Vec<u8> {
        let mut named: std::collections::BTreeMap<Vec<u8>, (usize, Encoder)> =
            std::collections::BTreeMap::new();
        let (mut others, mut pipelines) = ((0, Encoder::new()), (0, Encoder::new()));
        for rule in rules {
            if rule.stages.len() > 1 {
                pipelines.0 += 1;
                rule.encode(&mut pipelines.1);
                continue;
            }
            match rule.stages.first().and_then(Stage::keys) {
                Some(keys) => {
                    for key in keys {
                        let entry = named.entry(key.to_vec()).or_default();
                        entry.0 += 1;
                        rule.encode(&mut entry.1);
                    }
                }
                None => {
                    others.0 += 1;
                    rule.encode(&mut others.1);
                }
            }
        }
        let counted = |(count, rules): (usize, Encoder)| {
            let mut list = Encoder::new();
            list.count(count);
            list.raw(&rules.finish());
            list.finish()
        };
        let by_name = write_sorted(
            named
                .into_iter()
                .map(|(key, rules)| (key, counted(rules)))
                .collect(),
        );
        let mut table = Encoder::new();
        table.bytes(&by_name);
        table.bytes(&counted(others));
        table.bytes(&counted(pipelines));
        table.finish()
    }

    /// Reads the table; rules are decoded when they are asked for.
    pub fn open(bytes: &'a [u8]) -> Option<Self> {
        let mut decoder = Decoder::new(bytes);
        Some(Self {
            by_name: decoder.bytes()?,
            others: decoder.bytes()?,
            pipelines: decoder.bytes()?,
        })
    }

    /// The rules of one command that may concern a program of one of these names; `None` when the
    /// table is broken.
    pub fn candidates(&self, names: &[&[u8]]) -> Option<Vec<Rule>> {
        let mut rules = Vec::new();
        for (at, name) in names.iter().enumerate() {
            if names[..at].contains(name) {
                continue;
            }
            if let Some(found) = find_sorted(self.by_name, name)? {
                rules.extend(decode_all(found)?);
            }
        }
        rules.extend(decode_all(self.others)?);
        Some(rules)
    }

    /// Whether a rule names this program; a broken table may.
    pub fn names(&self, name: &[u8]) -> bool {
        !matches!(find_sorted(self.by_name, name), Some(None))
    }

    /// The rules over pipelines.
    pub fn pipelines(&self) -> Option<Vec<Rule>> {
        decode_all(self.pipelines)
    }
}

fn decode_all(bytes: &[u8]) -> Option<Vec<Rule>> {
    Decoder::new(bytes).list(Rule::decode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> OperandPattern {
        if text == "*" {
            OperandPattern::Any
        } else {
            OperandPattern::Word(text.as_bytes().to_vec())
        }
    }

    fn stage(program: &str, options: &[&str], operands: &[&str]) -> Stage {
        Stage {
            programs: vec![Program::Name(program.as_bytes().to_vec())],
            options: options
                .iter()
                .map(|name| (name.as_bytes().to_vec(), None))
                .collect(),
            operands: operands.iter().map(|text| word(text)).collect(),
        }
    }

    fn view<'a>(program: &'a str, options: &[&'a str], operands: &[&'a str]) -> View<'a> {
        View {
            names: vec![program.as_bytes()],
            paths: vec![],
            by_name: true,
            options: options.iter().map(|name| (name.as_bytes(), None)).collect(),
            operands: operands
                .iter()
                .map(|text| Operand {
                    forms: vec![text.as_bytes().into()],
                    prefix: None,
                    maybe_value: false,
                })
                .collect(),
            clear: true,
        }
    }

    #[test]
    fn generous_and_strict() {
        let vars = &paths::Values::default();
        let root = stage("rm", &["-r", "-f"], &["/"]);
        assert!(root.fits(
            &view("rm", &["-f", "-r", "-v"], &["/tmp/x", "/"]),
            Fit::Generous,
            vars
        ));
        assert!(!root.fits(&view("rm", &["-f", "-r"], &["/tmp/x"]), Fit::Generous, vars));
        assert!(!root.fits(&view("rm", &["-f", "-r", "-v"], &["/"]), Fit::Strict, vars));

        let push = stage("git", &[], &["push", "*"]);
        assert!(push.fits(&view("git", &[], &["push", "origin"]), Fit::Generous, vars));
        assert!(!push.fits(&view("git", &[], &["log", "push"]), Fit::Generous, vars));
        assert!(push.fits(&view("git", &["-q"], &["push"]), Fit::Strict, vars));

        let build = stage("cargo", &[], &["build"]);
        assert!(build.fits(&view("cargo", &[], &["build"]), Fit::Strict, vars));
        assert!(!build.fits(
            &view("cargo", &["--release"], &["build"]),
            Fit::Strict,
            vars
        ));
        assert!(!build.fits(&view("cargo", &[], &["build", "x"]), Fit::Strict, vars));
    }

    #[test]
    fn the_table_finds_rules_by_name() {
        let rule = |program: &str, list| Rule {
            list,
            pattern: format!("{program} *"),
            file: "p.yaml".into(),
            line: 3,
            reason: Some("because".into()),
            stages: vec![stage(program, &[], &["*"])],
        };
        let mut piped = rule("curl", 0);
        piped.stages.push(stage("sh", &[], &[]));
        let rules = [rule("git", 0), rule("git", 1), rule("g*", 2), piped.clone()];
        let bytes = RuleTable::encode(&rules);
        let table = RuleTable::open(&bytes).unwrap();
        let found = table.candidates(&[b"git", b"git"]).unwrap();
        assert_eq!(
            found,
            vec![rules[0].clone(), rules[1].clone(), rules[2].clone()]
        );
        assert_eq!(table.candidates(&[b"ls"]).unwrap(), vec![rules[2].clone()]);
        assert_eq!(table.pipelines().unwrap(), vec![piped]);
    }

    proptest::proptest! {
        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            if let Some(table) = RuleTable::open(&bytes) {
                let _ = table.candidates(&[b"git"]);
                let _ = table.pipelines();
            }
        }
    }
}
