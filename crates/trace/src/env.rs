//! The environment as the trace keeps it: a few harmless names, and a keyed hash of the rest.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::Key;
use crate::digest::hex;

/// Names whose values are stored; a trailing `*` stands for any ending.
pub const STORED: &[&str] = &[
    "CI",
    "CLICOLOR",
    "COLORTERM",
    "COLUMNS",
    "HOME",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "LINES",
    "LOGNAME",
    "NO_COLOR",
    "PATH",
    "PWD",
    "SHELL",
    "SOURCE_DATE_EPOCH",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
];

/// Names that differ from one start to the next without meaning anything. They are
/// neither stored nor hashed, so that an equal hash can mean an equal environment.
pub const IGNORED: &[&str] = &[
    "_",
    "OLDPWD",
    "SHLVL",
    "SUBSTRATE_*",
    "SHIM_*",
    "WINDOWID",
    "SSH_AUTH_SOCK",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "XDG_SESSION_ID",
];

fn listed(name: &OsStr, list: &[&str]) -> bool {
    list.iter().any(|entry| match entry.strip_suffix('*') {
        Some(start) => name.as_bytes().starts_with(start.as_bytes()),
        None => name == *entry,
    })
}

/// What is kept of an environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// The stored names and values, sorted.
    pub stored: Vec<(OsString, OsString)>,
    /// Keyed hash of everything else; `None` without a key. Keyed, because a plain hash
    /// of a short secret can be guessed.
    pub hash: Option<String>,
}

impl Environment {
    /// Sorts out an environment, such as `std::env::vars_os()`.
    pub fn record(vars: impl IntoIterator<Item = (OsString, OsString)>, key: Option<&Key>) -> Self {
        let (mut stored, mut rest): (Vec<_>, Vec<_>) = vars
            .into_iter()
            .filter(|(name, _)| !listed(name, IGNORED))
            .partition(|(name, _)| listed(name, STORED));
        stored.sort();
        rest.sort();
        let hash = key.map(|key| {
            let mut mac = key.hmac();
            mac.update(b"substrate environment 1\0");
            for (name, value) in &rest {
                // Neither part can hold a NUL, so it separates without doubt.
                mac.update(name.as_bytes());
                mac.update(b"\0");
                mac.update(value.as_bytes());
                mac.update(b"\0");
            }
            hex(&mac.finalize())
        });
        Self { stored, hash }
    }

    /// The variables of an environment that only the hash stands for.
    pub fn unstored(
        vars: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> impl Iterator<Item = (OsString, OsString)> {
        vars.into_iter()
            .filter(|(name, _)| !listed(name, IGNORED) && !listed(name, STORED))
    }

    /// The value of a stored name.
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        let found = self.stored.iter().find(|(stored, _)| stored == name)?;
        Some(&found.1)
    }

    /// The locale that programs see: `LC_ALL`, else `LC_CTYPE`, else `LANG`.
    pub fn locale(&self) -> Option<&OsStr> {
        ["LC_ALL", "LC_CTYPE", "LANG"]
            .iter()
            .filter_map(|name| self.get(name))
            .find(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(vars: &[(&str, &str)], key: &Key) -> Environment {
        let vars = vars.iter().map(|(n, v)| (n.into(), v.into()));
        Environment::record(vars, Some(key))
    }

    #[test]
    fn only_listed_names_are_stored_and_the_rest_is_hashed() {
        let temp = tempfile::tempdir().unwrap();
        let key = Key::load(temp.path()).unwrap();
        let base = [("PATH", "/bin"), ("LC_ALL", ""), ("LANG", "C.UTF-8")];
        let one = record(
            &[&base[..], &[("DB_PASSWORD", "x"), ("A", "1")]].concat(),
            &key,
        );
        let names: Vec<_> = one.stored.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["LANG", "LC_ALL", "PATH"]);
        assert_eq!(one.locale(), Some(OsStr::new("C.UTF-8")));

        let other_order = record(
            &[&[("A", "1"), ("DB_PASSWORD", "x")], &base[..]].concat(),
            &key,
        );
        assert_eq!(one, other_order);
        let noise = [
            ("SHLVL", "3"),
            ("_", "/bin/x"),
            ("SUBSTRATE_PARENT_SPAN", "y"),
        ];
        let with_noise = record(
            &[&base[..], &[("DB_PASSWORD", "x"), ("A", "1")], &noise].concat(),
            &key,
        );
        assert_eq!(one, with_noise);

        let changed = record(
            &[&base[..], &[("DB_PASSWORD", "y"), ("A", "1")]].concat(),
            &key,
        );
        assert_ne!(one.hash, changed.hash);
        let shifted = record(
            &[&base[..], &[("DB_PASSWORD", "xA"), ("", "1")]].concat(),
            &key,
        );
        assert_ne!(one.hash, shifted.hash);
        let other = tempfile::tempdir().unwrap();
        let elsewhere = record(&base, &Key::load(other.path()).unwrap());
        assert_ne!(elsewhere.hash, record(&base, &key).hash);
    }

    #[test]
    fn names_and_values_are_bytes() {
        let odd = OsString::from(OsStr::from_bytes(b"\xff"));
        let env = Environment::record(
            [("TZ".into(), odd.clone()), (odd.clone(), odd.clone())],
            None,
        );
        assert_eq!(env.get("TZ"), Some(odd.as_os_str()));
        assert_eq!(env.hash, None);
    }
}
