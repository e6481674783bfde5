//! When parts of a tool model apply, and the effects that a call has by itself.

use crate::args::{Args, Levels};
use crate::effect::{Effect, Object};
use crate::findings::Findings;
use crate::model::{Condition, Subject, Test, Tool, fits};
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
        level
            .inert
            .as_ref()
            .is_some_and(|condition| condition.holds(args, argv))
    })
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
