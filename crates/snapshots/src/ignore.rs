//! What a project itself says is not worth keeping: `.gitignore`, read without running git.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use std::path::Path;

use substrate_compiled::glob::{Slash, matches};
use substrate_sys::bounded::Unread;

/// The project's own file of rules that are not shared.
pub(crate) const EXCLUDE: &str = ".git/info/exclude";
/// Longest file of rules. The commands of a session can make one as long as they like.
pub(crate) const LIMIT: u64 = 1 << 20;

/// The text of a file of rules; `None` when it is too long. What is no file has no rules.
pub(crate) fn rules(read: Result<Vec<u8>, Unread>) -> Option<Vec<u8>> {
    match read {
        Ok(text) => Some(text),
        Err(Unread::TooLarge(_)) => None,
        Err(_) => Some(Vec::new()),
    }
}

/// Why a project with such a file is not kept: what its rules leave out may be private.
pub(crate) fn too_long(path: &Path) -> String {
    format!("{} has more than {LIMIT} bytes", path.display())
}

/// The rules of one file, for names below the directory it lies in.
#[derive(Debug, Default)]
pub(crate) struct Rules(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    pattern: Vec<u8>,
    /// Names that fit are kept after all.
    keep: bool,
    only_dirs: bool,
    /// Compared with the path from the directory, not with the last name alone.
    whole: bool,
}

impl Rules {
    pub fn parse(text: &[u8]) -> Self {
        Self(text.split(|byte| *byte == b'\n').filter_map(rule).collect())
    }

    /// What the last rule that fits says; `None` when none does.
    fn verdict(&self, path: &[u8], is_dir: bool) -> Option<bool> {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        self.0
            .iter()
            .rev()
            .filter(|rule| is_dir || !rule.only_dirs)
            .find(|rule| {
                let text = if rule.whole { path } else { name };
                matches(&rule.pattern, text, Slash::Separator)
            })
            .map(|rule| !rule.keep)
    }
}

fn rule(line: &[u8]) -> Option<Rule> {
    let mut line = line.strip_suffix(b"\r").unwrap_or(line);
    while line.ends_with(b" ") && !line.ends_with(b"\\ ") {
        line = &line[..line.len() - 1];
    }
    if line.starts_with(b"#") {
        return None;
    }
    let (keep, line) = match line.strip_prefix(b"!") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let (only_dirs, line) = match line.strip_suffix(b"/") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    let whole = line.contains(&b'/');
    let line = line.strip_prefix(b"/").unwrap_or(line);
    if line.is_empty() {
        return None;
    }
    let mut pattern = line.to_vec();
    for at in 1..pattern.len() {
        // Git takes both spellings of "none of these".
        if pattern[at] == b'^' && pattern[at - 1] == b'[' {
            pattern[at] = b'!';
        }
    }
    Some(Rule {
        pattern,
        keep,
        only_dirs,
        whole,
    })
}

/// The rules in force at one directory: its own and those above, with the length of the path
/// to where each belongs.
#[derive(Debug, Default)]
pub(crate) struct Stack(Vec<(usize, Rules)>);

impl Stack {
    /// Adds the rules of a directory whose relative path has this length.
    pub fn push(&mut self, depth: usize, rules: Rules) {
        self.0.push((depth, rules));
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn truncate(&mut self, length: usize) {
        self.0.truncate(length);
    }

    /// Whether a name, given relative to the project, is not worth keeping.
    pub fn ignores(&self, path: &OsStr, is_dir: bool) -> bool {
        let path = path.as_bytes();
        self.0
            .iter()
            .rev()
            .find_map(|(depth, rules)| {
                let below = &path[(*depth).min(path.len())..];
                rules.verdict(below.strip_prefix(b"/").unwrap_or(below), is_dir)
            })
            .unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_mean_what_they_mean_to_git() {
        let text = b"# a comment\n\n*.o\n!keep.o\n/build\ndocs/*.html\ntarget/\n**/deep/x\nlogs/**\n\\#odd\nspace \\ \n[^a]z\n";
        let mut stack = Stack::default();
        stack.push(0, Rules::parse(text));
        stack.push(3, Rules::parse(b"!special.o\nlocal\n/own\n"));
        for (path, is_dir, ignored) in [
            ("main.o", false, true),
            ("src/main.o", false, true),
            ("keep.o", false, false),
            ("build", true, true),
            ("src/build", true, false),
            ("docs/a.html", false, true),
            ("docs/sub/a.html", false, false),
            ("target", true, true),
            ("target", false, false),
            ("a/target", true, true),
            ("a/deep/x", false, true),
            ("deep/x", false, true),
            ("logs/1/2", false, true),
            ("#odd", false, true),
            ("bz", false, true),
            ("az", false, false),
            ("sub/special.o", false, false),
            ("sub/other.o", false, true),
            ("sub/local", false, true),
            ("sub/own", false, true),
            ("sub/x/own", false, false),
        ] {
            assert_eq!(stack.ignores(OsStr::new(path), is_dir), ignored, "{path}");
        }
    }
}
