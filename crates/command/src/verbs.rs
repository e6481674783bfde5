//! What verbs give away. Nobody can model every client of every service, but those that delete say so:
//! `fastly service delete`, `kafka-consumer-groups --delete`. The verbs are in `policies/parts/verbs.yaml`.

use crate::args::{Args, Levels};
use crate::effect::{Action, Effect, Object, UNKNOWN};
use crate::model::{Meaning, Tool};
use crate::word::Word;

include!(concat!(env!("OUT_DIR"), "/verbs.rs"));

/// Verbs are looked for in the parts of every word.
const EVERY: usize = usize::MAX;

/// How many words in front may be the subcommands of a program.
const LEADING: usize = 4;

/// What the first verb of a call says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Read,
    Write,
    /// Something ends that could be brought back.
    End,
    /// Something is lost.
    Lose,
}

/// Whether a list has a word.
fn lists_word(list: &str, word: &[u8]) -> bool {
    list.as_bytes()
        .split(|byte| *byte == b' ')
        .any(|known| known == word)
        && !word.is_empty()
}

impl Verb {
    fn of(word: &[u8]) -> Option<Verb> {
        let lists = [
            (LOST, Verb::Lose),
            (DELETE, Verb::End),
            (READ, Verb::Read),
            (WRITE, Verb::Write),
        ];
        let found = lists.into_iter().find(|(list, _)| lists_word(list, word));
        found.map(|(_, verb)| verb)
    }
}

/// The effect of a program without a model, by its own name and its first words.
pub(crate) fn of_unknown(argv: &[Word]) -> Option<Effect> {
    let (program, words) = argv.split_first()?;
    // A script of the project is looked at where it is written.
    let program = program.value().filter(|name| !name.contains(&b'/'));
    if only_shows(words) {
        return None;
    }
    let lost = |name: &[u8]| in_name(name, true).any(|verb| verb == Verb::Lose);
    let lost = program.is_some_and(lost)
        || deleting_option(&mut words.iter().filter_map(Word::value))
        || first(&mut leading(words), EVERY) == Some(Verb::Lose);
    lost.then(|| on(Action::Delete, UNKNOWN))
}

/// The effect of a call below the last word that its model knows; `acts` when the model says what it does.
pub(crate) fn below_model(
    levels: &Levels,
    args: &Args,
    argv: &[Word],
    acts: bool,
) -> Option<Effect> {
    let leaf = levels.last()?;
    let words: Vec<&Word> = args
        .operands
        .iter()
        .filter(|operand| !operand.subcommand)
        .filter_map(|operand| argv.get(operand.index))
        .collect();
    let unknown_options = args.options.iter().filter(|option| !option.known);
    let deleting = || deleting_option(&mut unknown_options.map(|option| option.name.as_slice()));
    let name = args
        .subcommands
        .last()
        .map(|name| Word::literal(name.as_bytes()));
    let looks = |name: &Word| first(&mut [name].into_iter(), EVERY) == Some(Verb::Read);
    let Some(service) = service(levels) else {
        if leaf.has_subcommands() {
            // What follows is no subcommand that the model knows.
            return of_unknown(argv);
        }
        let free = levels.iter().any(|level| level.free_text);
        let opaque = acts || free || name.as_ref().is_some_and(looks);
        let plain = levels.len() > 1 && !opaque && takes_text(leaf, args, argv);
        let lost = plain
            && (first(&mut words.iter().copied().take(2), 0) == Some(Verb::Lose) || deleting());
        return lost.then(|| on(Action::Delete, UNKNOWN));
    };
    if acts {
        return None;
    }
    // A word that only a pattern for anything fits says as little as an operand.
    let anything = |level: &Tool| level.all_names().any(|name| name == "*");
    let described = levels.len() > 1 && !anything(leaf);
    let undescribed = levels[1..].iter().rev().take_while(|level| anything(level));
    let count = match described {
        true => usize::from(name.as_ref().is_some_and(looks)),
        false => undescribed.count(),
    };
    let names = &args.subcommands[args.subcommands.len().saturating_sub(count)..];
    let names: Vec<Word> = names
        .iter()
        .map(|name| Word::literal(name.as_bytes()))
        .collect();
    let chain: Vec<&Word> = names
        .iter()
        .chain(words.into_iter().take(LEADING))
        .collect();
    let verb = match first(&mut chain.iter().copied(), 2) {
        None if deleting() => Some(Verb::Lose),
        found => found,
    };
    let unexplained = !chain.is_empty() && (!described || leaf.has_subcommands());
    match verb {
        Some(Verb::Read) => None,
        Some(Verb::Write) => Some(on(Action::Write, service)),
        Some(_) => Some(on(Action::Delete, service)),
        None => unexplained.then(|| on(Action::Write, service)),
    }
}

/// The service that the innermost level which names one is a client of.
fn service<'l>(levels: &'l Levels) -> Option<&'l str> {
    let mut named = levels.iter().rev();
    let named = named.find_map(|level| level.service.as_deref())?;
    (named != Tool::NO_SERVICE).then_some(named)
}

/// Whether the operands of a leaf mean nothing to its model.
fn takes_text(leaf: &Tool, args: &Args, argv: &[Word]) -> bool {
    let mut usages = leaf.usages.iter();
    let usage = usages.find(|usage| usage.when.holds(args, argv));
    usage.is_none_or(|usage| {
        usage
            .operands
            .iter()
            .all(|spec| spec.means == Meaning::Text)
    })
}

fn on(action: Action, resource: &str) -> Effect {
    Effect::new(action, Object::Resource(resource.to_owned()))
}

/// The words that may be subcommands: those in front that are no options.
fn leading(words: &[Word]) -> impl Iterator<Item = &Word> {
    let plain = words
        .iter()
        .filter(|word| !word.known_prefix().starts_with(b"-"));
    plain.take(LEADING)
}

/// What the first verb says; of so many words the parts count too. One that is often a noun yields to a verb that
/// follows at once: `backup describe`, `status delete`.
fn first(words: &mut dyn Iterator<Item = &Word>, in_parts: usize) -> Option<Verb> {
    let mut noun = None;
    for (at, word) in words.enumerate() {
        let name = word.value().unwrap_or_default();
        let found = in_name(name, at < in_parts && noun.is_none()).next();
        match (noun, found) {
            (Some(_), Some(verb)) => return Some(verb),
            (Some(_), None) => break,
            (None, Some(verb)) if is_noun(name) => noun = Some(verb),
            (None, None) => {}
            (None, verb) => return verb,
        }
    }
    noun
}

/// Whether the part of a name that says something is often the name of a thing: `backup`, `log-groups`.
fn is_noun(name: &[u8]) -> bool {
    let mut parts = name.split(|byte| !byte.is_ascii_alphanumeric());
    let part = parts.find(|part| Verb::of(part).is_some());
    lists_word(NOUN, part.unwrap_or(name))
}

/// Whether the call is told to do nothing, and not told otherwise.
fn only_shows(words: &[Word]) -> bool {
    let mut shows = false;
    for word in words.iter().filter_map(Word::value) {
        match word {
            b"--" => break,
            b"--dry-run" | b"--dryrun" | b"--help" => shows = true,
            b"--no-dry-run" | b"--dry-run=false" | b"--dry-run=none" => shows = false,
            _ => {}
        }
    }
    shows
}

fn deleting_option(words: &mut dyn Iterator<Item = &[u8]>) -> bool {
    let deletes = |word: &[u8]| {
        word.starts_with(b"-")
            && !word.starts_with(b"--no-")
            && in_name(word, true).any(|verb| verb == Verb::Lose)
    };
    for word in words {
        if deletes(word) {
            return true;
        }
    }
    false
}

/// The verbs of a name such as `delete-job`, `apps:destroy` or `DeleteInstance`; without `parts` the name itself.
fn in_name(word: &[u8], parts: bool) -> std::vec::IntoIter<Verb> {
    verbs_in(word, parts).into_iter()
}

#[inline(never)]
fn verbs_in(word: &[u8], parts: bool) -> Vec<Verb> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_:.".contains(byte);
    let readable = word.len() <= 40 && word.iter().all(plain);
    let mut rest = if readable { word } else { b"" };
    let mut found = Vec::new();
    if !parts {
        found.extend(Verb::of(&rest.to_ascii_lowercase()));
        return found;
    }
    while !rest.is_empty() {
        let start = rest
            .iter()
            .position(u8::is_ascii_alphanumeric)
            .unwrap_or(rest.len());
        let part = &rest[start..];
        // A part ends before the next capital that follows a small letter.
        let end = part
            .windows(2)
            .position(|pair| {
                !pair[1].is_ascii_alphanumeric()
                    || pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase()
            })
            .map_or(part.len(), |at| at + 1);
        rest = &part[end..];
        found.extend(Verb::of(&part[..end].to_ascii_lowercase()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(line: &str) -> bool {
        let argv: Vec<Word> = line.split(' ').map(Word::from).collect();
        of_unknown(&argv).is_some()
    }

    #[test]
    fn what_is_lost_is_deleted() {
        let words = |list: &'static str| list.split_whitespace().map(str::as_bytes);
        assert!(words(LOST).all(|verb| lists_word(DELETE, verb)));
        let other = |verb: &[u8]| lists_word(READ, verb) || lists_word(WRITE, verb);
        assert!(!words(DELETE).any(other));
        assert!(!words(READ).any(|verb| lists_word(WRITE, verb)));
        assert!(words(NOUN).all(|noun| lists_word(DELETE, noun) || other(noun)));
        assert!(lists_word(READ, b"list") && !lists_word(READ, b"lis") && !lists_word(READ, b""));
    }

    #[test]
    fn programs_that_delete_say_so() {
        for line in [
            "fastly service delete --service-id x",
            "x apps:destroy",
            "x ecs DeleteInstance",
            "kafka-delete-records x",
            "kafka-consumer-groups --group g --delete",
            "hdfs dfs -rm -r /x",
            "crictl rmi --prune",
            "k3s-uninstall.sh",
            "x status delete",
            "x delete -- --dry-run",
            "x delete --dry-run --no-dry-run",
            "x delete --dry-run=none",
        ] {
            assert!(says(line), "{line}");
        }
        for line in [
            "x status",
            "x show a b c d delete",
            "x list delete-me.txt/x",
            "x get old-jobs remove",
            "x stop",
            "x backup describe",
            "x get backup delete",
            "x --message delete-it.txt/x",
            "./scripts/delete-old.sh",
            "x model deletion",
            "x undeleted",
            "x farm",
            "x delete --dry-run",
            "x sync --no-delete",
        ] {
            assert!(!says(line), "{line}");
        }
    }
}
