//! Path patterns of a policy: variables, lexical normal form, and what a pattern covers.

use crate::glob::{self, Slash};

/// The variables that path patterns may use. Finding a value may cost something, so one is asked for
/// only when a pattern speaks of it.
pub trait Variables {
    /// `$HOME` and a leading `~`.
    fn home(&self) -> Option<&[u8]>;
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
    /// See [`Variables::project`].
    pub project: Option<&'a [u8]>,
    /// See [`Variables::substrate_home`].
    pub substrate_home: Option<&'a [u8]>,
}

impl Variables for Values<'_> {
    fn home(&self) -> Option<&[u8]> {
        self.home
    }

    fn project(&self) -> Option<&[u8]> {
        self.project
    }

    fn substrate_home(&self) -> Option<&[u8]> {
        self.substrate_home
    }
}

/// The pattern with its leading variable replaced; `None` when that variable has no value, and
/// then the pattern covers nothing.
pub fn expand(pattern: &[u8], vars: Vars<'_>) -> Option<Vec<u8>> {
    type Value = for<'a> fn(Vars<'a>) -> Option<&'a [u8]>;
    let names: [(&[u8], Value); 4] = [
        (b"$PROJECT", |vars| vars.project()),
        (b"$SUBSTRATE_HOME", |vars| vars.substrate_home()),
        (b"$HOME", |vars| vars.home()),
        (b"~", |vars| vars.home()),
    ];
    for (name, value) in names {
        let Some(rest) = pattern.strip_prefix(name) else {
            continue;
        };
        if rest.is_empty() || rest.starts_with(b"/") {
            let value = value(vars)?;
            let value = value.strip_suffix(b"/").unwrap_or(value);
            return Some([value, rest].concat());
        }
    }
    Some(pattern.to_vec())
}

/// Whether an expanded pattern covers a normalised absolute path. `X/**` covers `X` as well.
pub fn covers(pattern: &[u8], path: &[u8]) -> bool {
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
        assert_eq!(
            expand(b"$HOME/.ssh/**", vars),
            Some(b"/home/u/.ssh/**".to_vec())
        );
        assert_eq!(expand(b"~", vars), Some(b"/home/u".to_vec()));
        assert_eq!(expand(b"~other/x", vars), Some(b"~other/x".to_vec()));
        assert_eq!(expand(b"$PROJECT/**", vars), None);
    }
}
