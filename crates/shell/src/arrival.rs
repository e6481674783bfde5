//! Where a line has led the engine: whether it said so itself, and what would be left behind.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use substrate_command::Line;
use substrate_text::visible;

/// The directory that a line changes to by its own words, without anything that only the run decides: a
/// variable, `cd -`, a function, a symlink in the way. Whoever started in `from` stands there afterwards
/// unless something else had a hand in it. What the line only leads to, such as an alias or a script, is not
/// its own words.
pub fn named(text: &[u8], line: &Line, from: &Path, home: &Path) -> Option<PathBuf> {
    let mut at = None;
    for invocation in &line.invocations {
        let mut words = invocation.argv.iter();
        let Some(name @ (b"cd" | b"pushd")) = words.next().and_then(|word| word.value()) else {
            continue;
        };
        let written = text.get(invocation.source.clone()).unwrap_or_default();
        let own = invocation.parent.is_none() && invocation.via.is_empty();
        if !own || !written.trim_ascii_start().starts_with(name) {
            return None;
        }
        let mut operands = Vec::new();
        for word in words {
            match word.value()? {
                b"--" | b"-L" | b"-P" | b"-e" if operands.is_empty() => {}
                value => operands.push(value),
            }
        }
        let before = at.as_deref().unwrap_or(from);
        at = Some(match operands.as_slice() {
            [] => home.to_owned(),
            [word] if word.starts_with(b"-") || word.starts_with(b"+") => return None,
            [word] => joined(before, word),
            _ => return None,
        });
    }
    at
}

/// Whether a line is one that changes the directory: `cd -`, `popd`, `cd "$x"`.
pub fn changes(line: &[u8]) -> bool {
    let first = line.split(|byte| !byte.is_ascii_alphanumeric()).next();
    matches!(first, Some(b"cd" | b"pushd" | b"popd"))
}

/// The directory of a line that begins with its one `cd`.
pub fn begins_with(text: &[u8], line: &Line, from: &Path, home: &Path) -> Option<PathBuf> {
    let names = line.invocations.iter();
    let names = names.filter_map(|invocation| invocation.argv.first()?.value());
    let changes = names.filter(|name| matches!(*name, b"cd" | b"pushd" | b"popd"));
    (changes.count() == 1)
        .then(|| named(text, line, from, home))
        .flatten()
}

fn joined(from: &Path, word: &[u8]) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in from.join(OsStr::from_bytes(word)).components() {
        match component {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// What runs in the engine's world besides the engine: what it has started, and what has lost its parent.
pub fn processes_beside(engine: i32) -> Vec<String> {
    let children = |process: i32| -> Vec<i32> {
        let list = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
        let list = list.unwrap_or_default();
        list.split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect()
    };
    let mut all = children(engine);
    if let Some(first) = parent(engine) {
        all.extend(children(first).into_iter().filter(|child| *child != engine));
    }
    all.iter()
        .filter_map(|process| fs::read(format!("/proc/{process}/comm")).ok())
        .map(|name| visible(name.trim_ascii_end()))
        .take(MOST_NAMED)
        .collect()
}

/// More names than these help nobody.
const MOST_NAMED: usize = 8;

fn parent(process: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_written_out_is_named() {
        let models = substrate_command::model::NoModels;
        let mut context = substrate_command::Context::new(&models);
        let known = [(b"HOME".to_vec(), b"/home/u".to_vec())];
        context.variables = &known;
        let named = |text: &str| {
            let line = substrate_command::analyse(text.as_bytes(), &context);
            named(
                text.as_bytes(),
                &line,
                Path::new("/home/u/a"),
                Path::new("/home/u"),
            )
        };
        for (line, to) in [
            ("cd ../b", "/home/u/b"),
            ("cd -- /srv/x/", "/srv/x"),
            ("cd ~/b && make", "/home/u/b"),
            ("cd", "/home/u"),
            ("cd ..; cd b", "/home/u/b"),
            ("pushd ../b", "/home/u/b"),
        ] {
            assert_eq!(named(line).as_deref(), Some(Path::new(to)), "{line}");
        }
        for line in [
            "cd -",
            "cd $x",
            "cd \"$(pwd)\"",
            "z b",
            "popd",
            "pushd +1",
            "make",
            "PROMPT_COMMAND='cd ../b'",
        ] {
            assert_eq!(named(line), None, "{line}");
        }
    }

    #[test]
    fn a_line_begins_with_its_one_change_of_directory() {
        let models = substrate_command::model::NoModels;
        let context = substrate_command::Context::new(&models);
        let first = |text: &str| {
            let line = substrate_command::analyse(text.as_bytes(), &context);
            begins_with(text.as_bytes(), &line, Path::new("/"), Path::new("/h"))
        };
        let app = Some(PathBuf::from("/srv/app"));
        assert_eq!(first("cd /srv/app && make"), app);
        assert_eq!(first("cd /srv/app && make; cd /srv/other"), None);
        assert_eq!(first("cd /srv/app; false && cd /srv/other"), None);
        assert_eq!(first("cd /srv/app; popd"), None);
    }

    #[test]
    fn only_a_change_of_directory_that_was_typed_leads_back() {
        for line in ["cd -", "popd", "cd \"$x\"", "pushd +1"] {
            assert!(changes(line.as_bytes()), "{line}");
        }
        for line in ["ls", "z other", "cdx", ". there.sh; cd -", ""] {
            assert!(!changes(line.as_bytes()), "{line}");
        }
    }
}
