//! What was written for a client, so that it can be taken back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use substrate_broker::Home;
use substrate_sys::bounded::{self, Links};
use substrate_trace::sha256_hex;

use super::document::Want;
use super::file::{self, Place};
use super::plan::{Plan, Scope};
use super::{Change, SetupError, document};
use crate::client::Client;

const DIRECTORY: &str = "setups";

/// A record holds the settings as they were.
const LONGEST: u64 = 64 << 20;

/// A setup that was carried out.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The client.
    pub client: Client,
    /// For whom.
    pub scope: Scope,
    /// The directory of the user's settings for it, or the project.
    pub root: PathBuf,
    /// The files.
    pub files: Vec<Written>,
    /// Directories that were made for them, outermost first.
    pub made: Vec<PathBuf>,
}

/// One file that was changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    /// The file.
    pub path: PathBuf,
    /// Its text before the first setup; `None` where there was no file.
    pub before: Option<String>,
    /// The digest of its text after.
    pub digest: String,
    /// What was wanted in it.
    pub wants: Vec<Want>,
}

/// The digest by which an edit is noticed.
pub fn digest(text: &str) -> String {
    sha256_hex(text.as_bytes())
}

impl Record {
    /// The record of a setup that is about to be carried out. What an earlier one found is what undoing
    /// leads back to, as long as nobody has changed the file since.
    pub fn of(plan: &Plan, changes: &[Change], earlier: Option<Record>) -> Record {
        let earlier_of = |path: &Path| {
            let files = earlier.iter().flat_map(|record| &record.files);
            files
                .into_iter()
                .find(|written| written.path == path)
                .cloned()
        };
        let files = plan.files.iter().zip(changes).map(|(wanted, change)| {
            let earlier = earlier_of(&change.path);
            let now = change.before.as_deref().map(digest);
            let untouched = earlier.filter(|earlier| now.as_ref() == Some(&earlier.digest));
            let mut wants = wanted.wants.clone();
            let (before, known) = match untouched {
                Some(earlier) => (earlier.before, earlier.wants),
                None => (change.before.clone(), Vec::new()),
            };
            // A field that somebody else had set so is not ours to take away.
            wants.retain(|want| {
                known.contains(want) || !document::has_field(before.as_deref(), want)
            });
            wants.extend(
                known
                    .into_iter()
                    .filter(|want| !wanted.wants.contains(want)),
            );
            Written {
                path: change.path.clone(),
                before,
                digest: digest(change.after.as_deref().unwrap_or_default()),
                wants,
            }
        });
        let missing = changes
            .iter()
            .flat_map(|change| file::missing_directories(&change.path));
        let mut made: Vec<PathBuf> = earlier
            .iter()
            .flat_map(|record| record.made.clone())
            .collect();
        made.extend(missing);
        Record {
            client: plan.client,
            scope: plan.scope,
            root: plan.root.clone(),
            files: files.collect(),
            made,
        }
    }

    fn path(home: &Home, client: Client, scope: Scope, root: &Path) -> PathBuf {
        let digest = sha256_hex(root.as_os_str().as_encoded_bytes());
        let place = digest.get(..16).unwrap_or(&digest);
        let name = format!("{client}-{}-{place}.json", scope.word());
        home.path.join(DIRECTORY).join(name)
    }

    /// The record of a setup, if there was one.
    pub fn load(
        home: &Home,
        client: Client,
        scope: Scope,
        root: &Path,
    ) -> Result<Option<Record>, SetupError> {
        read(&Self::path(home, client, scope, root))
    }

    /// Keeps it.
    pub fn save(&self, home: &Home) -> Result<(), SetupError> {
        let path = Self::path(home, self.client, self.scope, &self.root);
        let ensured = home.ensure(&home.path.join(DIRECTORY));
        ensured.map_err(|error| SetupError::File {
            path: path.clone(),
            error,
        })?;
        let before = file::read(&path, Place::User)?;
        let text = format!("{:#}\n", self.to_json());
        file::write(&path, Place::User, before.as_deref(), &text)
    }

    /// Forgets it.
    pub fn forget(&self, home: &Home) -> Result<(), SetupError> {
        let path = Self::path(home, self.client, self.scope, &self.root);
        file::remove(&path, Place::User, None)
    }

    fn to_json(&self) -> Value {
        let files: Vec<Value> = self.files.iter().map(Written::to_json).collect();
        json!({
            "v": 1, "client": self.client.name(), "scope": self.scope.word(), "root": self.root,
            "files": files, "made": self.made,
        })
    }

    fn from_json(value: &Value) -> Option<Record> {
        let path = |value: &Value| value.as_str().map(PathBuf::from);
        let scope = match value["scope"].as_str()? {
            "user" => Scope::User,
            "project" => Scope::Project,
            _ => return None,
        };
        Some(Record {
            client: value["client"].as_str()?.parse().ok()?,
            scope,
            root: path(&value["root"])?,
            files: value["files"]
                .as_array()?
                .iter()
                .map(Written::from_json)
                .collect::<Option<_>>()?,
            made: value["made"]
                .as_array()?
                .iter()
                .map(path)
                .collect::<Option<_>>()?,
        })
    }
}

impl Written {
    fn to_json(&self) -> Value {
        let want = |want: &Want| match want {
            Want::Element(names, value) => json!({ "element": value, "of": names }),
            Want::Field(names, value) => json!({ "field": value, "of": names }),
        };
        let wants: Vec<Value> = self.wants.iter().map(want).collect();
        json!({ "path": self.path, "before": self.before, "sha256": self.digest, "wants": wants })
    }

    fn from_json(value: &Value) -> Option<Written> {
        let want = |value: &Value| {
            let names = value["of"].as_array()?.iter();
            let names = names
                .map(|name| name.as_str().map(str::to_owned))
                .collect::<Option<_>>()?;
            match (value.get("element"), value.get("field")) {
                (Some(element), None) => Some(Want::Element(names, element.clone())),
                (None, Some(field)) => Some(Want::Field(names, field.clone())),
                _ => None,
            }
        };
        let before = match &value["before"] {
            Value::Null => None,
            text => Some(text.as_str()?.to_owned()),
        };
        Some(Written {
            path: PathBuf::from(value["path"].as_str()?),
            before,
            digest: value["sha256"].as_str()?.to_owned(),
            wants: value["wants"]
                .as_array()?
                .iter()
                .map(want)
                .collect::<Option<_>>()?,
        })
    }
}

fn read(path: &Path) -> Result<Option<Record>, SetupError> {
    let bytes = match bounded::read(path, Links::Refuse, LONGEST).map_err(io::Error::from) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let path = path.to_owned();
            return Err(SetupError::File { path, error });
        }
    };
    let value: Option<Value> = serde_json::from_slice(&bytes).ok();
    let record = value.as_ref().and_then(Record::from_json);
    record
        .map(Some)
        .ok_or_else(|| SetupError::Record(path.to_owned()))
}

/// Every setup of a home.
pub fn list(home: &Home) -> Result<Vec<Record>, SetupError> {
    let entries = fs::read_dir(home.path.join(DIRECTORY))
        .into_iter()
        .flatten();
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|kind| kind == "json"));
    paths.sort();
    let records: Result<Vec<Option<Record>>, SetupError> =
        paths.iter().map(|path| read(path)).collect();
    Ok(records?.into_iter().flatten().collect())
}
