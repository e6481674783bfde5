//! Settings of an agent's client that run something the next time it is started, with or without a world:
//! what became of them while it ran.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use substrate_sys::bounded::{self, Links};
use substrate_trace::sha256_hex;

const LONGEST: u64 = 16 << 20;
const MOST_FILES: usize = 1000;

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
    for path in paths {
        match path.is_dir() {
            true => {
                let entries = fs::read_dir(path).into_iter().flatten().flatten();
                for entry in entries.take(MOST_FILES) {
                    note(&entry.path(), &mut found);
                }
            }
            false => note(path, &mut found),
        }
    }
    found
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
    const NAMES: [&str; 8] = [
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
}
