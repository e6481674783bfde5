//! What the words of an unknown program give away. Nobody can model every client of every service, but
//! those that delete say so: `fastly service delete`, `kafka-consumer-groups --delete`.

use crate::effect::{Action, Effect, Object};
use crate::model::UNKNOWN;
use crate::word::Word;

/// Verbs by which programs delete something that cannot be brought back.
const VERBS: [&[u8]; 19] = [
    b"decommission",
    b"del",
    b"delete",
    b"deleteall",
    b"deregister",
    b"destroy",
    b"drop",
    b"erase",
    b"nuke",
    b"obliterate",
    b"prune",
    b"purge",
    b"remove",
    b"revoke",
    b"rm",
    b"rmi",
    b"terminate",
    b"uninstall",
    b"wipe",
];

/// How many words in front may be the subcommands of a program.
const LEADING: usize = 4;

/// The effect of a program without a model, by its own name and its first words.
pub(crate) fn deletes(argv: &[Word]) -> Option<Effect> {
    let (program, words) = argv.split_first()?;
    // A script of the project is looked at where it is written.
    let program = program.value().filter(|name| !name.contains(&b'/'));
    let options = words.iter().filter_map(Word::value);
    let options = options.filter(|word| word.starts_with(b"-") && !word.starts_with(b"--no-"));
    let only_shows = |word: &Word| matches!(word.value(), Some(b"--dry-run" | b"--help"));
    if words.iter().any(only_shows) {
        return None;
    }
    let leading = words.iter().filter_map(Word::value);
    let leading = leading.filter(|word| !word.starts_with(b"-")).take(LEADING);
    let mut all = program.into_iter().chain(options).chain(leading);
    all.any(says_delete).then(|| {
        let object = Object::Resource(UNKNOWN.to_owned());
        Effect::new(Action::Delete, object)
    })
}

/// Whether a name such as `delete-job`, `apps:destroy` or `DeleteInstance` has one of the verbs in it.
fn says_delete(word: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_:.".contains(byte);
    if word.len() > 40 || !word.iter().all(plain) {
        return false;
    }
    let mut parts = word.split(|byte| !byte.is_ascii_alphanumeric());
    parts.any(|part| {
        let mut rest = part;
        while !rest.is_empty() {
            // A part ends before the next capital that follows a small letter.
            let end = rest
                .windows(2)
                .position(|pair| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase())
                .map_or(rest.len(), |at| at + 1);
            let verb = rest[..end].to_ascii_lowercase();
            if VERBS.binary_search(&verb.as_slice()).is_ok() {
                return true;
            }
            rest = &rest[end..];
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(line: &str) -> bool {
        let argv: Vec<Word> = line.split(' ').map(Word::from).collect();
        deletes(&argv).is_some()
    }

    #[test]
    fn verbs_are_sorted() {
        assert!(VERBS.is_sorted());
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
        ] {
            assert!(says(line), "{line}");
        }
        for line in [
            "x status",
            "x show a b c d delete",
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
