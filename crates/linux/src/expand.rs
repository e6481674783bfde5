//! Path patterns of a policy, turned into the paths that exist when a world starts.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use substrate_compiled::glob::{Slash, matches};
use substrate_policy::terms::PathPattern;
use substrate_sys::getdents::{self, EntryType};

/// How many directory entries are looked at for the patterns of one directory.
const MOST_ENTRIES: usize = 1_000_000;
/// How many places one pattern may stand for; each is mounted on.
const MOST_MATCHES: usize = 2_000;

/// What the patterns of one list stand for now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Expansion {
    /// Existing paths; of nested ones only the outermost.
    pub paths: Vec<PathBuf>,
    /// Paths without wildcards that do not exist yet.
    pub missing: Vec<PathBuf>,
    /// Names that do not exist yet in directories that a pattern with wildcards leads to.
    pub absent: Vec<PathBuf>,
    /// Where not all was found, and why: nothing that was asked for is held there.
    pub cut_short: Option<Unknown>,
}

/// A place that could not be searched, and why.
pub type Unknown = (PathBuf, String);

/// A pattern, component by component.
struct Compiled<'a> {
    /// The number of its list.
    list: usize,
    parts: Vec<&'a [u8]>,
    /// How many components have no wildcards.
    fixed: usize,
    found: usize,
}

impl<'a> Compiled<'a> {
    fn new(list: usize, pattern: &'a PathPattern) -> Self {
        let parts = pattern.glob.split(|byte| *byte == b'/');
        let mut parts: Vec<&[u8]> = parts.filter(|part| !part.is_empty()).collect();
        // `dir/**` names the directory and all below it: masking the directory does both.
        while parts.len() > 1 && parts.last() == Some(&&b"**"[..]) {
            parts.pop();
        }
        let fixed = parts.iter().take_while(|part| is_plain(part)).count();
        Compiled {
            list,
            parts,
            fixed,
            found: 0,
        }
    }

    fn base(&self) -> PathBuf {
        let names = self.parts[..self.fixed].iter().map(|part| plain(part));
        std::iter::once(OsString::from("/")).chain(names).collect()
    }
}

/// Searches for everything that the patterns of these lists match, in one walk. Symlinks are
/// matched, not followed.
pub fn expand<const N: usize>(lists: [&[PathPattern]; N]) -> [Expansion; N] {
    let numbered = lists.iter().enumerate();
    let patterns = numbered
        .flat_map(|(list, patterns)| patterns.iter().map(move |p| Compiled::new(list, p)))
        .collect();
    let mut search = Search {
        entries: 0,
        patterns,
        results: std::array::from_fn(|_| Expansion::default()),
    };
    for (base, states) in search.plain_ones() {
        search.entries = 0;
        search.walk(&base, &states);
    }
    for result in &mut search.results {
        result.paths = outermost(std::mem::take(&mut result.paths));
    }
    search.results
}

fn outermost(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    paths.dedup();
    let mut outermost: Vec<PathBuf> = Vec::with_capacity(paths.len());
    for path in paths {
        let outer = outermost.last();
        if !outer.is_some_and(|outer| path.starts_with(outer)) {
            outermost.push(path);
        }
    }
    outermost
}

/// What an error says about a path that was to be looked at: nothing if there is nothing, or nothing
/// that this user could ever open. A directory of his own he could open again in the world.
pub fn closed(path: &Path, error: &io::Error) -> Option<Unknown> {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match error.kind() {
        NotFound | NotADirectory => None,
        PermissionDenied => {
            let ours = |dir: &&Path| {
                let meta = fs::symlink_metadata(dir);
                meta.is_ok_and(|meta| meta.uid() == substrate_sys::access::identity().0)
            };
            // The lowest that can be looked at is the one that cannot be entered.
            let seen = |dir: &&Path| fs::symlink_metadata(dir).is_ok();
            let dir = path.ancestors().find(seen).filter(ours)?;
            let reason = "is a directory of yours that cannot be searched; open it (chmod u+rx)";
            Some((dir.to_owned(), reason.to_owned()))
        }
        _ => Some((path.to_owned(), format!("cannot be searched ({error})"))),
    }
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

/// Positions in patterns, by the numbers of the patterns.
type States = Vec<(usize, usize)>;

struct Search<'a, const N: usize> {
    entries: usize,
    patterns: Vec<Compiled<'a>>,
    results: [Expansion; N],
}

impl<const N: usize> Search<'_, N> {
    /// Looks up the patterns without wildcards; the others by the directory they begin in, so that those
    /// with one beginning share one walk.
    fn plain_ones(&mut self) -> Vec<(PathBuf, States)> {
        let mut bases: Vec<(PathBuf, States)> = Vec::new();
        for number in 0..self.patterns.len() {
            let (base, fixed) = (self.patterns[number].base(), self.patterns[number].fixed);
            if fixed == self.patterns[number].parts.len() {
                self.look_up(number, base);
                continue;
            }
            match bases.iter_mut().find(|(known, _)| *known == base) {
                Some((_, states)) => states.push((number, fixed)),
                None => bases.push((base, vec![(number, fixed)])),
            }
        }
        bases
    }

    fn look_up(&mut self, pattern: usize, path: PathBuf) {
        let list = self.patterns[pattern].list;
        match fs::symlink_metadata(&path) {
            Ok(_) => self.found(pattern, path),
            Err(error) => match closed(&path, &error) {
                Some(unknown) => self.give_up(list, unknown),
                None => self.results[list].missing.push(path),
            },
        }
    }

    fn found(&mut self, number: usize, path: PathBuf) {
        let pattern = &mut self.patterns[number];
        let list = pattern.list;
        pattern.found += 1;
        if pattern.found <= MOST_MATCHES {
            return self.results[list].paths.push(path);
        }
        let reason = format!(
            "more than {MOST_MATCHES} places match `{}`; remove what does not belong there, \
             or name the places that count",
            pattern.parts[pattern.fixed..]
                .iter()
                .map(|part| String::from_utf8_lossy(part))
                .collect::<Vec<_>>()
                .join("/")
        );
        self.give_up(list, (path, reason));
    }

    fn give_up(&mut self, list: usize, unknown: Unknown) {
        self.results[list].cut_short.get_or_insert(unknown);
    }

    /// All lists that have a pattern among these miss something.
    fn give_up_all(&mut self, states: &[(usize, usize)], unknown: &Unknown) {
        for (pattern, _) in states {
            self.give_up(self.patterns[*pattern].list, unknown.clone());
        }
    }

    /// Walks a directory with the pattern positions that are still open there.
    fn walk(&mut self, dir: &Path, states: &[(usize, usize)]) {
        let entries = File::open(dir).and_then(getdents::read_dir);
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => {
                if let Some(unknown) = closed(dir, &error) {
                    self.give_up_all(states, &unknown);
                }
                return;
            }
        };
        self.entries += entries.len();
        if self.entries > MOST_ENTRIES {
            let reason = format!(
                "more than {MOST_ENTRIES} files would have to be searched; name directories with \
                 fewer in the policy"
            );
            return self.give_up_all(states, &(dir.to_owned(), reason));
        }
        self.miss(dir, &entries, states);
        for (name, kind) in entries {
            self.meet(dir, &name, kind, states);
        }
    }

    /// Notes what patterns name in this very directory and is not there. Any number of directories
    /// between is as good as none for the first of them only.
    fn miss(&mut self, dir: &Path, entries: &[(OsString, EntryType)], states: &[(usize, usize)]) {
        for (number, position) in states {
            let pattern = &self.patterns[*number];
            let rest = match pattern.parts.get(*position..) {
                Some([first, rest @ ..]) if *first == b"**" && *position == pattern.fixed => rest,
                other => other.unwrap_or_default(),
            };
            let [name] = rest else { continue };
            let missing = plain(name);
            if !is_plain(name) || entries.iter().any(|(known, _)| *known == missing) {
                continue;
            }
            let absent = dir.join(missing);
            let (list, base) = (pattern.list, pattern.base());
            if (rest.len() == pattern.parts.len() - position || dir == base)
                && !self.results[list].absent.contains(&absent)
            {
                self.results[list].absent.push(absent);
            }
        }
    }

    fn meet(&mut self, dir: &Path, name: &OsStr, kind: EntryType, states: &[(usize, usize)]) {
        let mut next = States::new();
        let mut hit = [false; N];
        for (number, position) in states {
            let pattern = &self.patterns[*number];
            let list = pattern.list;
            if step(
                &pattern.parts,
                *number,
                *position,
                name.as_bytes(),
                &mut next,
            ) && !hit[list]
            {
                hit[list] = true;
                self.found(*number, dir.join(name));
            }
        }
        // What a list has as a whole it need not look into.
        next.retain(|(pattern, _)| !hit[self.patterns[*pattern].list]);
        if next.is_empty() || !is_dir(dir, name, kind) {
            return;
        }
        next.sort_unstable();
        next.dedup();
        self.walk(&dir.join(name), &next);
    }
}

fn is_dir(dir: &Path, name: &OsStr, kind: EntryType) -> bool {
    match kind {
        EntryType::Dir => true,
        EntryType::Unknown => fs::symlink_metadata(dir.join(name)).is_ok_and(|meta| meta.is_dir()),
        _ => false,
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

    fn one(patterns: &[PathPattern]) -> Expansion {
        let [found] = expand([patterns]);
        found
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
        let found = one(&[at("**/.git/hooks/**"), at("**/.git/config")]);
        assert_eq!(
            names(&found),
            [
                ".git/hooks",
                "sub/.git/config",
                "sub/.git/hooks",
                "sub/deep/er/.git/config"
            ]
        );
        assert_eq!(names(&one(&[at("*.env")])), ["x.env"]);
        assert_eq!(names(&one(&[at("**/*.env")])), ["sub/y.env", "x.env"]);
        assert_eq!(names(&one(&[at("sub/**")])), ["sub"]);
        assert_eq!(names(&one(&[at("sub/**"), at("sub/y.env")])), ["sub"]);
        let found = one(&[at("plain"), at("none/**"), at("gone")]);
        assert_eq!(names(&found), ["plain"]);
        assert_eq!(found.missing, [root.join("none"), root.join("gone")]);
    }

    #[test]
    fn names_that_are_not_there_yet_are_told_where_a_pattern_leads() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        for path in [".git/hooks/a", "sub/.git/config", "sub/deep/x"] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let at = |text: &str| pattern(format!("{}/{text}", root.display()));
        let absent = |patterns: &[&str]| {
            let patterns: Vec<_> = patterns.iter().map(|text| at(text)).collect();
            let mut found = one(&patterns).absent;
            found.sort();
            let below = |path: &PathBuf| path.strip_prefix(root).unwrap().display().to_string();
            found.iter().map(below).collect::<Vec<_>>()
        };
        assert_eq!(
            absent(&["**/.git/commondir"]),
            [".git/commondir", "sub/.git/commondir"]
        );
        assert_eq!(absent(&["**/.git/hooks/**"]), ["sub/.git/hooks"]);
        assert_eq!(absent(&["**/.git/config"]), [".git/config"]);
        // Any directory may get one; the first is where it is looked for.
        assert_eq!(absent(&["**/.envrc"]), [".envrc"]);
        assert_eq!(absent(&["*/x", "*.env", "**/*.pem"]), [".git/x", "sub/x"]);
    }

    #[test]
    fn a_list_looks_into_what_only_another_one_has() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/.git/hooks")).unwrap();
        fs::write(dir.path().join("a/.git/hooks/.env"), "").unwrap();
        let at = |text: &str| pattern(format!("{}/{text}", dir.path().display()));
        let [first, second] = expand([&[at("**/.git/hooks/**")], &[at("**/.env")]]);
        assert_eq!(first.paths, [dir.path().join("a/.git/hooks")]);
        assert_eq!(second.paths, [dir.path().join("a/.git/hooks/.env")]);
    }

    #[test]
    fn too_many_matches_are_said_and_cost_other_patterns_nothing() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..=MOST_MATCHES {
            fs::create_dir_all(dir.path().join(format!("decoys/{n}/.env"))).unwrap();
        }
        fs::create_dir(dir.path().join("keys")).unwrap();
        fs::write(dir.path().join("keys/a.pem"), "").unwrap();
        let at = |text: &str| pattern(format!("{}/{text}", dir.path().display()));
        let [many, few] = expand([&[at("**/.env")], &[at("keys/*.pem")]]);
        let (_, reason) = many.cut_short.unwrap();
        assert!(reason.contains("`**/.env`"), "{reason}");
        assert_eq!(few.cut_short, None);
        assert_eq!(few.paths, [dir.path().join("keys/a.pem")]);
    }
}
