//! Path patterns of a policy, turned into the paths that exist when a world starts.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use substrate_compiled::glob::{Slash, matches};
use substrate_policy::terms::PathPattern;

/// How many directory entries one world start looks at, so that a huge tree cannot stall it.
const MOST_ENTRIES: usize = 200_000;
/// How many places one world start mounts on.
const MOST_MATCHES: usize = 2_000;

/// What the patterns stand for now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expansion {
    /// Existing paths; of nested ones only the outermost.
    pub paths: Vec<PathBuf>,
    /// Paths without wildcards that do not exist yet.
    pub missing: Vec<PathBuf>,
    /// The search was cut short below this directory.
    pub cut_short: Option<PathBuf>,
}

/// A pattern, component by component.
struct Compiled<'a> {
    parts: Vec<&'a [u8]>,
}

/// Searches for everything that the patterns match. Symlinks are matched, not followed.
pub fn expand(patterns: &[PathPattern]) -> Expansion {
    let mut search = Search {
        entries: 0,
        result: Expansion::default(),
    };
    let compiled: Vec<Compiled<'_>> = patterns
        .iter()
        .map(|pattern| {
            let mut parts: Vec<&[u8]> = pattern
                .glob
                .split(|byte| *byte == b'/')
                .filter(|part| !part.is_empty())
                .collect();
            // `dir/**` names the directory and all below it: masking the directory does both.
            while parts.len() > 1 && parts.last() == Some(&&b"**"[..]) {
                parts.pop();
            }
            Compiled { parts }
        })
        .collect();
    // Patterns with one base share one walk.
    let mut bases: Vec<(PathBuf, Vec<(usize, usize)>)> = Vec::new();
    for (index, pattern) in compiled.iter().enumerate() {
        let fixed = pattern.parts.iter().take_while(|p| is_plain(p)).count();
        let base: PathBuf = std::iter::once(OsString::from("/"))
            .chain(pattern.parts[..fixed].iter().map(|p| plain(p)))
            .collect();
        if fixed == pattern.parts.len() {
            if fs::symlink_metadata(&base).is_ok() {
                search.found(base);
            } else {
                search.result.missing.push(base);
            }
            continue;
        }
        match bases.iter_mut().find(|(known, _)| *known == base) {
            Some((_, states)) => states.push((index, fixed)),
            None => bases.push((base, vec![(index, fixed)])),
        }
    }
    for (base, states) in bases {
        search.walk(&base, &compiled, &states);
    }
    let mut paths = std::mem::take(&mut search.result.paths);
    paths.sort();
    paths.dedup();
    let mut outermost: Vec<PathBuf> = Vec::with_capacity(paths.len());
    for path in paths {
        if !outermost
            .last()
            .is_some_and(|outer| path.starts_with(outer))
        {
            outermost.push(path);
        }
    }
    search.result.paths = outermost;
    search.result
}

fn is_plain(part: &[u8]) -> bool {
    !part.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// A component without wildcards, its backslashes taken away.
fn plain(part: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(part.len());
    let mut escaped = false;
    for byte in part {
        if *byte == b'\\' && !escaped {
            escaped = true;
            continue;
        }
        escaped = false;
        bytes.push(*byte);
    }
    OsStr::from_bytes(&bytes).to_owned()
}

struct Search {
    entries: usize,
    result: Expansion,
}

impl Search {
    fn found(&mut self, path: PathBuf) {
        if self.result.paths.len() < MOST_MATCHES {
            self.result.paths.push(path);
        } else if self.result.cut_short.is_none() {
            self.result.cut_short = Some(path);
        }
    }

    /// Walks a directory with the pattern positions that are still open there.
    fn walk(&mut self, dir: &Path, patterns: &[Compiled<'_>], states: &[(usize, usize)]) {
        let Ok(entries) = fs::read_dir(dir) else {
            return;
        };
        for entry in entries.flatten() {
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                self.result.cut_short.get_or_insert_with(|| dir.to_owned());
                return;
            }
            let name = entry.file_name();
            let mut next = Vec::new();
            let mut hit = false;
            for (pattern, position) in states {
                let parts = &patterns[*pattern].parts;
                hit |= step(parts, *pattern, *position, name.as_bytes(), &mut next);
            }
            if hit {
                self.found(entry.path());
                continue;
            }
            if !next.is_empty() && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                next.sort_unstable();
                next.dedup();
                self.walk(&entry.path(), patterns, &next);
            }
        }
    }
}

/// Takes one name further along a pattern; true when the pattern ends with it.
fn step(
    parts: &[&[u8]],
    pattern: usize,
    position: usize,
    name: &[u8],
    next: &mut Vec<(usize, usize)>,
) -> bool {
    let Some(part) = parts.get(position) else {
        return false;
    };
    if *part == b"**" {
        // Any number of components: stay here, or go on behind the stars with this name.
        next.push((pattern, position));
        return step(parts, pattern, position + 1, name, next);
    }
    if !matches(part, name, Slash::Separator) {
        return false;
    }
    if position + 1 == parts.len() {
        return true;
    }
    next.push((pattern, position + 1));
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(glob: String) -> PathPattern {
        PathPattern {
            glob: glob.into_bytes(),
            base: PathBuf::new(),
        }
    }

    #[test]
    fn patterns_find_what_exists_and_name_what_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for path in [
            ".git/hooks/a",
            "sub/.git/hooks/b",
            "sub/.git/config",
            "sub/deep/er/.git/config",
            "x.env",
            "sub/y.env",
            "plain",
        ] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink("sub", root.join("link")).unwrap();
        let at = |text: &str| pattern(format!("{}/{text}", root.display()));
        let names = |found: &Expansion| -> Vec<String> {
            found
                .paths
                .iter()
                .map(|p| p.strip_prefix(root).unwrap().display().to_string())
                .collect()
        };
        let found = expand(&[at("**/.git/hooks/**"), at("**/.git/config")]);
        assert_eq!(
            names(&found),
            [
                ".git/hooks",
                "sub/.git/config",
                "sub/.git/hooks",
                "sub/deep/er/.git/config"
            ]
        );
        assert_eq!(names(&expand(&[at("*.env")])), ["x.env"]);
        assert_eq!(names(&expand(&[at("**/*.env")])), ["sub/y.env", "x.env"]);
        assert_eq!(names(&expand(&[at("sub/**")])), ["sub"]);
        assert_eq!(names(&expand(&[at("sub/**"), at("sub/y.env")])), ["sub"]);
        let found = expand(&[at("plain"), at("none/**"), at("gone")]);
        assert_eq!(names(&found), ["plain"]);
        assert_eq!(found.missing, [root.join("none"), root.join("gone")]);
    }
}
