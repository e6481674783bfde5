//! When parts of a tool model apply, and the effects that a call has by itself.

use crate::args::{Args, Levels, OptionUse};
use crate::effect::{Effect, Object};
use crate::findings::Findings;
use crate::model::{Condition, Meaning, Subject, Test, Tool, fits};
use crate::sniff;
use crate::word::{Piece, Word};

impl Condition {
    /// Whether a call meets the condition.
    pub fn holds(&self, args: &Args, argv: &[Word]) -> bool {
        let meets = |entry: &String| match Test::read(entry) {
            Test::Option(name) => args.has(name),
            Test::Value(name, pattern) => args
                .options
                .iter()
                .filter(|option| option.name == name.as_bytes())
                .filter_map(|option| option.value.as_ref())
                .any(|value| fits_word(pattern, value)),
            Test::EndOfOptions => args.end_of_options,
            Test::Operand(pattern) => args
                .operands
                .iter()
                .filter(|operand| !operand.subcommand)
                .filter_map(|operand| argv.get(operand.index))
                .any(|word| fits_word(pattern, word)),
        };
        (self.any.is_empty() || self.any.iter().any(meets))
            && self.all.iter().all(meets)
            && !self.none.iter().any(meets)
    }
}

/// Whether a word fits a pattern of a model; what is unknown is fitted by `*` only.
fn fits_word(pattern: &str, word: &Word) -> bool {
    match word.value() {
        Some(text) => fits(pattern, text),
        None => {
            let mut text = Vec::new();
            for piece in &word.pieces {
                match piece {
                    Piece::Known(bytes) => text.extend_from_slice(bytes),
                    // No pattern holds this byte, so only `*` takes it.
                    Piece::Glob(_) | Piece::Unknown(_) => text.push(0),
                }
            }
            fits(pattern, &text)
        }
    }
}

/// Whether the call only shows something.
pub(crate) fn is_inert(levels: &Levels, args: &Args, argv: &[Word]) -> bool {
    levels.iter().any(|level| {
        let Some(condition) = &level.inert else {
            return false;
        };
        let stands = |entry: &String| match Test::read(entry) {
            Test::Option(name) => stands(name, None, args),
            Test::Value(name, pattern) => stands(name, Some(pattern), args),
            _ => true,
        };
        condition.holds(args, argv)
            && (condition.any.is_empty()
                || condition.any.iter().any(|entry| {
                    let alone = Condition {
                        any: vec![entry.clone()],
                        ..Condition::default()
                    };
                    stands(entry) && alone.holds(args, argv)
                }))
    })
}

/// Whether the call is inert and starts nothing of what its words name: a wrapper that has a command is
/// judged as one.
pub(crate) fn shows_only(levels: &Levels, args: &Args, argv: &[Word]) -> bool {
    let wraps = levels.last().is_some_and(|leaf| {
        let mut specs = leaf.usages.iter().flat_map(|usage| &usage.operands);
        specs.any(|spec| matches!(spec.means, Meaning::Command | Meaning::CommandUntil))
    });
    let bare = args.operands.iter().all(|operand| operand.subcommand);
    (!wraps || bare) && is_inert(levels, args, argv)
}

/// Whether an option that makes a call inert is the last word on it: `--dry-run=false`, `--no-dry-run`
/// and `--no-…` that nobody knows take it back.
fn stands(name: &str, pattern: Option<&str>, args: &Args) -> bool {
    let fits = |value: &Option<Word>| match (pattern, value) {
        (None, _) => true,
        (Some(pattern), Some(value)) => fits_word(pattern, value),
        (Some(_), None) => false,
    };
    let given = |option: &OptionUse| option.name == name.as_bytes() && fits(&option.value);
    let Some(last) = args.options.iter().rposition(given) else {
        return false;
    };
    // What only the run knows may say no.
    let denied = |value: &Option<Word>| {
        let no: [&[u8]; 5] = [b"false", b"none", b"no", b"off", b"0"];
        value.as_ref().is_some_and(|value| {
            let says_no = |value: &[u8]| no.iter().any(|no| value.eq_ignore_ascii_case(no));
            value.value().is_none_or(says_no)
        })
    };
    let takes_back = |option: &OptionUse| {
        option.name == name.as_bytes()
            || option.name.starts_with(b"--no-") && (!option.known || negates(&option.name, name))
    };
    !denied(&args.options[last].value) && !args.options[last + 1..].iter().any(takes_back)
}

/// Whether an option is another with `no-` in front.
fn negates(option: &[u8], name: &str) -> bool {
    let plain = option.strip_prefix(b"--no-");
    plain == name.strip_prefix("--").map(str::as_bytes)
}

/// Effects of the call itself, at every level.
pub(crate) fn consequences(
    levels: &Levels,
    args: &Args,
    argv: &[Word],
    recursive: bool,
    findings: &mut Findings,
) {
    let effects = levels
        .iter()
        .flat_map(|level: &std::borrow::Cow<Tool>| &level.effects);
    for effect in effects.filter(|effect| effect.when.holds(args, argv)) {
        let object = match &effect.what.to {
            Subject::Unspecified => Object::Unspecified,
            Subject::Resource(name) => Object::Resource(name.clone()),
            Subject::Path(path) => Object::Path(Word::literal(path.as_bytes())),
            Subject::Code(source) => Object::Code(*source, Word::default()),
            Subject::Host(host) => Object::Host {
                host: Word::literal(host.as_bytes()),
                port: None,
            },
            Subject::WorkingDirectory => Object::Path(Word::literal(b".".as_slice())),
            Subject::OptionValue(name) => {
                let values = args
                    .options
                    .iter()
                    .filter(|option| option.name == name.as_bytes());
                for value in values.filter_map(|option| option.value.as_ref()) {
                    sniff::path(effect.what.action, value, &mut findings.effects);
                }
                continue;
            }
        };
        let recursive = recursive && matches!(object, Object::Path(_));
        findings.effects.push(Effect {
            action: effect.what.action,
            object,
            recursive,
        });
    }
}
