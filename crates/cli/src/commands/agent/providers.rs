//! `substrate agent providers`: the agent programs that are known.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use substrate_agents::{Auth, Descriptor, NoModel, Shelf, choose};
use substrate_broker::facts::find_program;
use substrate_sys::environment;

use super::plan::user_home;
use crate::asker::Asker;
use crate::failure::Failure;
use crate::out;

/// What is known about one of them on this machine.
pub struct Provider<'a> {
    /// What its file says.
    pub descriptor: &'a Descriptor,
    /// Where its program is.
    pub program: Option<PathBuf>,
    /// Where its key would live.
    pub key: Key,
}

/// Where the key of an agent would live if it were started now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// Outside: in this variable.
    Outside(String),
    /// Inside.
    Inside,
    /// It needs none.
    NotNeeded,
    /// Nowhere; these variables are looked at.
    Missing(String),
}

impl Key {
    fn word(&self) -> &'static str {
        match self {
            Key::Outside(_) => "outside",
            Key::Inside => "inside",
            Key::NotNeeded => "none",
            Key::Missing(_) => "missing",
        }
    }

    /// In a sentence.
    pub fn sentence(&self) -> String {
        match self {
            Key::Outside(variable) => format!("its key stays outside ({variable})"),
            Key::Inside => "its log-in goes inside, and its tokens are not counted".to_owned(),
            Key::NotNeeded => "it needs no key".to_owned(),
            Key::Missing(why) => why.clone(),
        }
    }
}

/// All of them, as this machine has them.
pub fn known<'a>(asker: &Asker, shelf: &'a Shelf, home: &Path) -> Vec<Provider<'a>> {
    let search_path = asker.variable("PATH").unwrap_or_default();
    let of = |descriptor: &'a Descriptor| Provider {
        descriptor,
        program: program(descriptor, &search_path),
        key: key(asker, descriptor, home),
    };
    shelf.all().map(of).collect()
}

fn program(descriptor: &Descriptor, search_path: &OsStr) -> Option<PathBuf> {
    match descriptor.command[0].as_str() {
        "substrate" => std::env::current_exe().ok(),
        name => find_program(OsStr::new(name), search_path, Path::new("/")),
    }
}

fn key(asker: &Asker, descriptor: &Descriptor, home: &Path) -> Key {
    let set = |name: &str| {
        let value = asker.variable(name)?;
        (!value.is_empty()).then(|| value.to_string_lossy().into_owned())
    };
    let missing = match choose(descriptor, set) {
        Ok(chosen) => return Key::Outside(chosen.variable.to_owned()),
        Err(missing) => missing,
    };
    let logged_in = descriptor.login.iter().any(|path| home.join(path).exists());
    let inside = logged_in || descriptor.keys.iter().any(|name| set(name).is_some());
    match (descriptor.auth, missing) {
        (Auth::None, _) => Key::NotNeeded,
        (_, NoModel::NoKey(_)) if inside => Key::Inside,
        (Auth::Inside, _) => Key::Missing(format!(
            "not logged in; set {} or log in",
            descriptor.keys.join(" or ")
        )),
        (_, why) => Key::Missing(why.to_string()),
    }
}

/// Prints the table.
pub fn run(asker: &Asker, as_json: bool) -> Result<(), Failure> {
    let home = asker.home()?;
    let shelf = Shelf::with_own(&home.path);
    let user = user_home(&environment::raw(), &home);
    let all = known(asker, &shelf, &user);
    let text = match as_json {
        true => format!("{}\n", Value::from(all.iter().map(row).collect::<Vec<_>>())),
        false => table(&all),
    };
    out::print(&text)?;
    for broken in &shelf.broken {
        out::print(&format!("{broken}\n"))?;
    }
    match shelf.broken.is_empty() {
        true => Ok(()),
        false => Err(Failure::No),
    }
}

fn row(provider: &Provider<'_>) -> Value {
    let descriptor = provider.descriptor;
    let install = descriptor.install.as_ref();
    json!({
        "name": descriptor.name,
        "title": descriptor.title,
        "file": descriptor.file,
        "program": provider.program.as_ref().map(|path| path.to_string_lossy()),
        "install": install.map(|(manager, package)| json!({ manager.as_str(): package })),
        "auth": descriptor.auth,
        "key": provider.key.word(),
        "hosts": descriptor.hosts.iter().map(|rule| &rule.written).collect::<Vec<_>>(),
        "models": descriptor.models.iter().map(|model| json!({
            "wire": model.wire,
            "host": model.host.as_ref().map(ToString::to_string),
            "keys": model.keys.iter().map(|key| &key.env).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "home": descriptor.home.iter().map(|entry| json!({
            "path": entry.path.to_string_lossy(),
            "access": entry.access,
        })).collect::<Vec<_>>(),
    })
}

fn table(all: &[Provider<'_>]) -> String {
    let mut text = format!("{:<14} {:<26} {}\n", "AGENT", "PROGRAM", "KEY");
    for provider in all {
        let install = match (&provider.program, &provider.descriptor.install) {
            (Some(_), _) => "here".to_owned(),
            (None, Some((manager, package))) if manager != "script" => {
                format!("{manager}: {package}")
            }
            (None, _) => "not here".to_owned(),
        };
        let key = provider.key.sentence();
        text.push_str(&format!(
            "{:<14} {install:<26} {key}\n",
            provider.descriptor.name
        ));
    }
    text
}

/// The version that a program tells, in a line. Only for somebody whom nothing encloses: it is started.
pub fn version(provider: &Provider<'_>) -> Option<String> {
    let words = &provider.descriptor.version;
    let program = provider.program.as_ref().filter(|_| !words.is_empty())?;
    let mut command = Command::new("timeout");
    command.arg("5").arg(program).args(words);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let first = output
        .stdout
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    let text: String = substrate_text::visible(first).chars().take(60).collect();
    (output.status.success() && !text.is_empty()).then_some(text)
}
