//! Settings of an agent's client that run something the next time it is started, with or without a world:
//! what became of them while it ran.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use substrate_sys::bounded::{self, Links};
use substrate_trace::sha256_hex;

const LONGEST: u64 = 16 << 20;
const MOST_FILES: usize = 2000;
const DEEPEST: usize = 12;

/// How settings were.
pub struct Watch {
    paths: Vec<PathBuf>,
    before: BTreeMap<PathBuf, String>,
}

impl Watch {
    /// Looks at them.
    pub fn begin(paths: Vec<PathBuf>) -> Watch {
        let before = look(&paths);
        Watch { paths, before }
    }

    /// Those that are not as they were.
    pub fn changed(&self) -> Vec<PathBuf> {
        let after = look(&self.paths);
        let all = self.before.keys().chain(after.keys());
        let mut changed: Vec<PathBuf> = all
            .filter(|path| self.before.get(*path) != after.get(*path))
            .cloned()
            .collect();
        changed.sort();
        changed.dedup();
        changed
    }
}

fn look(paths: &[PathBuf]) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = MOST_FILES;
    for path in paths {
        look_into(path, 0, &mut left, &mut found);
    }
    found
}

/// A directory and what is in it; no link leads further. Where there is more than is looked at, its list of names
/// is told apart at least.
fn look_into(path: &Path, depth: usize, left: &mut usize, found: &mut BTreeMap<PathBuf, String>) {
    let is_dir = path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    if !is_dir || depth > DEEPEST {
        return note(path, found);
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    names.sort();
    if names.len() > *left {
        let text: Vec<String> = names
            .iter()
            .map(|name| name.display().to_string())
            .collect();
        found.insert(path.to_owned(), sha256_hex(text.join("\n").as_bytes()));
        return;
    }
    *left -= names.len();
    for name in names {
        look_into(&name, depth + 1, left, found);
    }
}

fn note(path: &Path, found: &mut BTreeMap<PathBuf, String>) {
    if path.symlink_metadata().is_err() {
        return;
    }
    let digest = match bounded::read(path, Links::Follow, LONGEST) {
        Ok(content) => sha256_hex(&what_runs(&content)),
        Err(why) => why.to_string(),
    };
    found.insert(path.to_owned(), digest);
}

/// The part of a file that names programs: clients keep their state beside it.
fn what_runs(content: &[u8]) -> Vec<u8> {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(content) else {
        return content.to_vec();
    };
    let mut parts = Vec::new();
    collect(&value, &mut parts);
    parts.join("\n").into_bytes()
}

fn collect(value: &serde_json::Value, parts: &mut Vec<String>) {
    const NAMES: [&str; 13] = [
        "awsAuthRefresh",
        "awsCredentialExport",
        "otelHeadersHelper",
        "fileSuggestion",
        "discoveryCommand",
        "hooks",
        "mcpServers",
        "mcp",
        "mcp_servers",
        "apiKeyHelper",
        "statusLine",
        "env",
        "enabledPlugins",
    ];
    match value {
        serde_json::Value::Object(all) => {
            for (key, value) in all {
                match NAMES.contains(&key.as_str()) {
                    // Clients write empty ones by themselves.
                    true if value.as_object().is_some_and(serde_json::Map::is_empty) => {}
                    true => parts.push(format!("{key} {value}")),
                    false => collect(value, parts),
                }
            }
        }
        serde_json::Value::Array(all) => all.iter().for_each(|one| collect(one, parts)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_runs_counts() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("settings.json");
        fs::write(
            &file,
            r#"{"theme":"dark","projects":{"/p":{"mcpServers":{}}}}"#,
        )
        .unwrap();
        let watch = Watch::begin(vec![file.clone(), dir.path().join("hooks.toml")]);
        assert!(watch.changed().is_empty());
        fs::write(
            &file,
            r#"{"theme":"light","projects":{"/p":{"mcpServers":{}},"/q":{}}}"#,
        )
        .unwrap();
        assert!(watch.changed().is_empty());
        fs::write(
            &file,
            r#"{"projects":{"/p":{"mcpServers":{"x":{"command":"sh"}}}}}"#,
        )
        .unwrap();
        fs::write(dir.path().join("hooks.toml"), "x").unwrap();
        assert_eq!(watch.changed(), [dir.path().join("hooks.toml"), file]);
    }

    #[test]
    fn what_is_deep_in_a_directory_is_seen_and_links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let plugins = dir.path().join("plugins");
        std::fs::create_dir_all(plugins.join("cache/m/p/hooks")).unwrap();
        let hooks = plugins.join("cache/m/p/hooks/hooks.json");
        std::fs::write(&hooks, "{\"hooks\":{\"a\":1}}").unwrap();
        std::os::unix::fs::symlink("/", plugins.join("out")).unwrap();
        let watch = Watch::begin(vec![plugins.clone()]);
        assert_eq!(watch.changed(), Vec::<PathBuf>::new());
        std::fs::write(&hooks, "{\"hooks\":{\"a\":2}}").unwrap();
        std::fs::create_dir(plugins.join("new")).unwrap();
        std::fs::write(plugins.join("new/plugin.js"), "x").unwrap();
        assert_eq!(watch.changed(), [hooks, plugins.join("new/plugin.js")]);
    }
}
