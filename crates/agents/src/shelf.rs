//! Where descriptors lie: those that come with Substrate, and a person's own in Substrate's home.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use substrate_sys::bounded::{self, Links, Unread};

use crate::descriptor::Descriptor;
use crate::load::{LoadError, parse};

const LONGEST_FILE: u64 = 1 << 20;
const MOST_FILES: usize = 200;

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$((
            concat!("builtin:agents/", $name, ".yaml"),
            include_str!(concat!("../../../policies/agents/", $name, ".yaml")),
        )),*]
    };
}

/// The descriptors that Substrate comes with: file name and text.
pub fn shipped() -> &'static [(&'static str, &'static str)] {
    shipped![
        "claude",
        "codex",
        "gemini",
        "cursor-agent",
        "opencode",
        "copilot",
        "aider",
        "mock",
    ]
}

/// All descriptors, by name.
#[derive(Debug, Default)]
pub struct Shelf {
    descriptors: BTreeMap<String, Descriptor>,
    /// Files that were not taken, and why.
    pub broken: Vec<ShelfError>,
}

/// Why a file was not taken.
#[derive(Debug)]
pub enum ShelfError {
    /// It cannot be read.
    Unread(PathBuf, Unread),
    /// It is wrong.
    Wrong(LoadError),
    /// Its name is not that of the agent in it.
    Misnamed(PathBuf, String),
}

impl fmt::Display for ShelfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShelfError::Unread(path, why) => write!(f, "{}: {why}", path.display()),
            ShelfError::Wrong(error) => error.fmt(f),
            ShelfError::Misnamed(path, name) => write!(
                f,
                "{}: this describes `{name}`; name the file {name}.yaml",
                path.display()
            ),
        }
    }
}

impl std::error::Error for ShelfError {}

impl Shelf {
    /// Those that Substrate comes with.
    pub fn shipped() -> Shelf {
        let mut shelf = Shelf::default();
        for (name, text) in shipped() {
            match parse(text, name) {
                Ok(descriptor) => shelf.put(descriptor),
                Err(error) => shelf.broken.push(ShelfError::Wrong(error)),
            }
        }
        shelf
    }

    /// Those, and a person's own, which take the place of shipped ones of the same name.
    pub fn with_own(home: &Path) -> Shelf {
        let mut shelf = Shelf::shipped();
        let Ok(entries) = fs::read_dir(home.join("agents")) else {
            return shelf;
        };
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "yaml")
        });
        files.sort();
        for path in files.into_iter().take(MOST_FILES) {
            match read(&path) {
                Ok(descriptor) => shelf.put(descriptor),
                Err(error) => shelf.broken.push(error),
            }
        }
        shelf
    }

    fn put(&mut self, descriptor: Descriptor) {
        self.descriptors.insert(descriptor.name.clone(), descriptor);
    }

    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<&Descriptor> {
        self.descriptors.get(name)
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Descriptor> {
        self.descriptors.values()
    }
}

fn read(path: &Path) -> Result<Descriptor, ShelfError> {
    let unread = |why| ShelfError::Unread(path.to_owned(), why);
    let bytes = bounded::read(path, Links::Follow, LONGEST_FILE).map_err(unread)?;
    let text = String::from_utf8_lossy(&bytes);
    let descriptor = parse(&text, &path.display().to_string()).map_err(ShelfError::Wrong)?;
    match path
        .file_stem()
        .is_some_and(|stem| stem == descriptor.name.as_str())
    {
        true => Ok(descriptor),
        false => Err(ShelfError::Misnamed(path.to_owned(), descriptor.name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::{Access, Auth};
    use crate::load::schema;

    #[test]
    fn what_is_shipped_is_right() {
        let shelf = Shelf::shipped();
        let broken: Vec<String> = shelf.broken.iter().map(ToString::to_string).collect();
        assert_eq!(broken, Vec::<String>::new());
        assert_eq!(shelf.all().count(), shipped().len());
        for descriptor in shelf.all() {
            let named = format!("builtin:agents/{}.yaml", descriptor.name);
            assert_eq!(descriptor.file, named);
            assert!(descriptor.headless.is_some(), "{named}");
            let reached = !descriptor.hosts.is_empty() || !descriptor.models.is_empty();
            assert!(reached, "{named}");
            assert!(
                descriptor.auth != Auth::Inside || !descriptor.login.is_empty(),
                "{named}"
            );
            // A client refreshes its log-in, which has to arrive in the person's home.
            for login in &descriptor.login {
                let mut homes = descriptor.home.iter();
                let real =
                    homes.any(|home| home.access == Access::Write && login.starts_with(&home.path));
                assert!(real, "{named}: {}", login.display());
            }
        }
    }

    #[test]
    fn the_schema_knows_what_the_loader_knows() {
        let schema = serde_json::from_str(schema()).unwrap();
        let schema = jsonschema::draft7::new(&schema).unwrap();
        for (name, text) in shipped() {
            let source = std::sync::Arc::new(substrate_policy::diagnostic::SourceFile {
                name: (*name).to_owned(),
                path: None,
                text: (*text).to_owned(),
            });
            let json = substrate_policy::yaml::Node::parse(&source)
                .unwrap()
                .to_json();
            let errors: Vec<String> = schema
                .iter_errors(&json)
                .map(|error| error.to_string())
                .collect();
            assert_eq!(errors, Vec::<String>::new(), "{name}");
        }
        for wrong in [
            serde_json::json!({"name": "x", "command": ["x"]}),
            serde_json::json!({"name": "x", "command": ["x"], "auth": "none", "comand": 1}),
            serde_json::json!({"name": "X", "command": ["x"], "auth": "none"}),
        ] {
            assert!(!schema.is_valid(&wrong), "{wrong}");
        }
    }

    #[test]
    fn a_persons_own_take_the_place_of_shipped_ones() {
        let dir = tempfile::tempdir().unwrap();
        let agents = dir.path().join("agents");
        fs::create_dir(&agents).unwrap();
        let own = "name: claude\ntitle: Mine\ncommand: [claude]\nauth: none\n";
        fs::write(agents.join("claude.yaml"), own).unwrap();
        fs::write(agents.join("other.yaml"), own).unwrap();
        fs::write(agents.join("bad.yaml"), "nme: bad").unwrap();
        fs::write(agents.join("notes.txt"), "no descriptor").unwrap();
        let shelf = Shelf::with_own(dir.path());
        assert_eq!(shelf.get("claude").unwrap().title, "Mine");
        assert!(shelf.get("codex").is_some());
        let broken: Vec<String> = shelf.broken.iter().map(ToString::to_string).collect();
        assert_eq!(broken.len(), 2, "{broken:?}");
        assert!(
            broken[0].contains("bad.yaml:1:1: `nme` is not a known key"),
            "{broken:?}"
        );
        assert!(
            broken[1].contains("name the file claude.yaml"),
            "{broken:?}"
        );
    }
}
