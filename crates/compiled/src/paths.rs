//! Path patterns of a policy: variables, lexical normal form, and what a pattern covers.

use std::borrow::Cow;

use crate::glob::{self, Slash};

/// The variables that path patterns may use. Finding a value may cost something, so one is asked for
/// only when a pattern speaks of it.
pub trait Variables {
    /// `$HOME` and a leading `~`: the home directory that the passwd entry names.
    fn home(&self) -> Option<&[u8]>;
    /// What else the variable `HOME` says, newest first. Shells and programs go by it, so rules that
    /// take something away mean these directories too; rules that permit do not, or whoever sets the
    /// variable would choose what he may do.
    fn other_homes(&self) -> &[Vec<u8>];
    /// `$PROJECT`.
    fn project(&self) -> Option<&[u8]>;
    /// `$SUBSTRATE_HOME`.
    fn substrate_home(&self) -> Option<&[u8]>;
}

/// Variables, whoever knows them.
pub type Vars<'a> = &'a dyn Variables;

/// Variables whose values are known beforehand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Values<'a> {
    /// See [`Variables::home`].
    pub home: Option<&'a [u8]>,
    /// See [`Variables::other_homes`].
    pub other_homes: &'a [Vec<u8>],
    /// See [`Variables::project`].
    pub project: Option<&'a [u8]>,
    /// See [`Variables::substrate_home`].
    pub substrate_home: Option<&'a [u8]>,
}

impl Variables for Values<'_> {
    fn home(&self) -> Option<&[u8]> {
        self.home
    }

    fn other_homes(&self) -> &[Vec<u8>] {
        self.other_homes
    }

    fn project(&self) -> Option<&[u8]> {
        self.project
    }

    fn substrate_home(&self) -> Option<&[u8]> {
        self.substrate_home
    }
}

/// A pattern's leading variable, and what follows it.
fn variable(pattern: &[u8]) -> Option<(&[u8], &[u8])> {
    if !matches!(pattern.first(), Some(b'$' | b'~')) {
        return None;
    }
    let names: [&[u8]; 4] = [b"$PROJECT", b"$SUBSTRATE_HOME", b"$HOME", b"~"];
    names.into_iter().find_map(|name| {
        let rest = pattern.strip_prefix(name)?;
        (rest.is_empty() || rest.starts_with(b"/")).then_some((name, rest))
    })
}

fn joined(value: &[u8], rest: &[u8]) -> Vec<u8> {
    [value.strip_suffix(b"/").unwrap_or(value), rest].concat()
}

/// The pattern with its leading variable replaced; `None` when that variable has no value, and
/// then the pattern covers nothing.
pub fn expand<'p>(pattern: &'p [u8], vars: Vars<'_>) -> Option<Cow<'p, [u8]>> {
    let Some((name, rest)) = variable(pattern) else {
        return Some(Cow::Borrowed(pattern));
    };
    let value = match name {
        b"$PROJECT" => vars.project(),
        b"$SUBSTRATE_HOME" => vars.substrate_home(),
        _ => vars.home(),
    };
    value.map(|value| Cow::Owned(joined(value, rest)))
}

/// Everything that the pattern of a rule means that takes something away: [`expand`], and the same
/// in every other home.
pub fn expand_all<'v>(pattern: &'v [u8], vars: Vars<'v>) -> impl Iterator<Item = Cow<'v, [u8]>> {
    expand(pattern, vars)
        .into_iter()
        .chain(elsewhere(pattern, vars))
}

/// What a pattern for the home directory means in the other homes.
pub(crate) fn elsewhere<'v>(
    pattern: &'v [u8],
    vars: Vars<'v>,
) -> impl Iterator<Item = Cow<'v, [u8]>> {
    let (homes, rest) = match variable(pattern) {
        Some((b"$HOME" | b"~", rest)) => (vars.other_homes(), rest),
        _ => (&[][..], &b""[..]),
    };
    homes.iter().map(|home| Cow::Owned(joined(home, rest)))
}

/// Whether an expanded pattern covers a normalised absolute path. `X/**` covers `X` as well.
pub fn covers(pattern: &[u8], path: &[u8]) -> bool {
    // Most patterns end in a name, and most paths end in another.
    if let (Some(last), Some(end)) = (pattern.last(), path.last())
        && !matches!(last, b'*' | b'?' | b']' | b'/')
        && last != end
    {
        return false;
    }
    if let Some(base) = pattern.strip_suffix(b"/**") {
        if !glob::is_pattern(base) {
            return beneath(base, path);
        }
        if glob::matches(base, path, Slash::Separator) {
            return true;
        }
    }
    if !glob::is_pattern(pattern) {
        let pattern = pattern.strip_suffix(b"/").unwrap_or(pattern);
        return pattern == path || (pattern.is_empty() && path == b"/");
    }
    glob::matches(pattern, path, Slash::Separator)
}

/// Whether `path` is `base` or below it; `base` is normalised, without a trailing slash.
pub fn beneath(base: &[u8], path: &[u8]) -> bool {
    let base = base.strip_suffix(b"/").unwrap_or(base);
    path.strip_prefix(base)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// `path` as seen from `directory`, in lexical normal form: no `//`, `.` or `..`, no trailing slash.
pub fn absolute(directory: &[u8], path: &[u8]) -> Vec<u8> {
    let mut components: Vec<&[u8]> = Vec::new();
    let from = if path.starts_with(b"/") {
        &b""[..]
    } else {
        directory
    };
    for component in from
        .split(|byte| *byte == b'/')
        .chain(path.split(|byte| *byte == b'/'))
    {
        match component {
            b"" | b"." => {}
            b".." => {
                components.pop();
            }
            name => components.push(name),
        }
    }
    if components.is_empty() {
        return b"/".to_vec();
    }
    let mut result = Vec::with_capacity(from.len() + path.len() + 1);
    for component in components {
        result.push(b'/');
        result.extend_from_slice(component);
    }
    result
}

/// The last component.
pub fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_form() {
        for (directory, path, expected) in [
            ("/p", "a", "/p/a"),
            ("/p", "../a", "/a"),
            ("/p", "/a//b/./c/..", "/a/b"),
            ("/", "../..", "/"),
            ("/p", "", "/p"),
            ("/p", "//", "/"),
        ] {
            assert_eq!(
                absolute(directory.as_bytes(), path.as_bytes()),
                expected.as_bytes(),
                "{path} from {directory}"
            );
        }
    }

    #[test]
    fn cover() {
        for (pattern, path, expected) in [
            ("/tmp/**", "/tmp", true),
            ("/tmp/**", "/tmp/a/b", true),
            ("/tmp/**", "/tmpx", false),
            ("/**", "/", true),
            ("/**", "/a", true),
            ("/", "/", true),
            ("/", "/a", false),
            ("/a/*/c/**", "/a/b/c", true),
            ("**/.env", "/p/.env", true),
            ("/p/.env", "/p/.env", true),
        ] {
            assert_eq!(
                covers(pattern.as_bytes(), path.as_bytes()),
                expected,
                "{pattern} on {path}"
            );
        }
    }

    #[test]
    fn variables() {
        let vars = &Values {
            home: Some(b"/home/u"),
            ..Values::default()
        };
        let expand = |pattern| expand(pattern, vars).map(Cow::into_owned);
        assert_eq!(expand(b"$HOME/.ssh/**"), Some(b"/home/u/.ssh/**".to_vec()));
        assert_eq!(expand(b"~"), Some(b"/home/u".to_vec()));
        assert_eq!(expand(b"~other/x"), Some(b"~other/x".to_vec()));
        assert_eq!(expand(b"$PROJECT/**"), None);
    }

    #[test]
    fn homes_that_only_the_variable_names() {
        let others = [b"/srv/x".to_vec()];
        let vars = &Values {
            home: Some(b"/home/u"),
            other_homes: &others,
            ..Values::default()
        };
        let all = |pattern: &'static [u8]| {
            let found = expand_all(pattern, vars);
            found.map(Cow::into_owned).collect::<Vec<_>>()
        };
        for pattern in [&b"$HOME/.ssh/**"[..], b"~/.ssh/**"] {
            assert_eq!(
                expand(pattern, vars).as_deref(),
                Some(&b"/home/u/.ssh/**"[..])
            );
            assert_eq!(
                all(pattern),
                [b"/home/u/.ssh/**".to_vec(), b"/srv/x/.ssh/**".to_vec()]
            );
        }
        assert_eq!(all(b"/etc/**"), [b"/etc/**".to_vec()]);
        assert_eq!(all(b"$HOMER"), [b"$HOMER".to_vec()]);
    }
}
