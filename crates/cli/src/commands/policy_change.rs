//! `substrate policy init|use|diff|edit|reload`: choosing and changing policies.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use similar::TextDiff;
use substrate_broker::choice::is_id;
use substrate_broker::{BrokerError, Choice, Home, cache};
use substrate_policy::{Policy, compile};

use crate::ask;
use crate::asker::{Asker, Needs};
use crate::commands::policy_text::document_text;
use crate::failure::Failure;
use crate::out;

/// Writes a new policy that extends another one.
pub fn init(asker: &Asker, id: &str, from: &str, yes: bool) -> Result<(), Failure> {
    asker.require(Needs::Outside { yes })?;
    let home = asker.broker(Some("default".into()))?.home().clone();
    check_id(id)?;
    if id == from {
        return Err(Failure::Usage(format!(
            "`{id}` cannot extend itself; give the new policy another name"
        )));
    }
    let path = home.policies().join(format!("{id}.yaml"));
    if path.exists() {
        return Err(Failure::Refused(format!(
            "{} exists; `substrate policy edit {id}` opens it",
            path.display()
        )));
    }
    cache::make(&Choice::Name(from.to_owned()), &home)?;
    let text = format!(
        "# Lists are added to those of `{from}`; other values replace its values. docs/policy.md has all keys.\nid: {id}\nname: {id}\nextends: {from}\n"
    );
    write(&home, &path, text.as_bytes())?;
    Ok(out::print(&format!(
        "wrote {}\n`substrate policy edit {id}` opens it, `substrate policy use {id}` puts it to use\n",
        path.display()
    ))?)
}

/// Makes a policy the one in use.
pub fn choose(asker: &Asker, id: &str, yes: bool) -> Result<(), Failure> {
    asker.require(Needs::Outside { yes })?;
    let home = asker.broker(Some("default".into()))?.home().clone();
    let text = put_to_use(&home, id)?;
    Ok(out::print(&text)?)
}

/// Checks a policy and writes its name where the one in use is named.
pub fn put_to_use(home: &Home, id: &str) -> Result<String, Failure> {
    check_id(id)?;
    // What cannot be compiled is not put to use.
    let bytes = cache::make(&Choice::Name(id.to_owned()), home)?;
    let policy = Policy::open(std::sync::Arc::new(bytes)).map_err(BrokerError::Compiled)?;
    write(home, &home.active(), format!("{id}\n").as_bytes())?;
    Ok(format!(
        "the policy in use is {id} (mode {}); running shells use it from their next command on\n",
        policy.settings().mode.as_str()
    ))
}

/// Shows what differs between two policies, with everything resolved.
pub fn diff(asker: &Asker, one: &OsStr, other: Option<&OsStr>) -> Result<(), Failure> {
    let home = asker.broker(Some("default".into()))?.home().clone();
    let text = |choice: &Choice| -> Result<(String, String), Failure> {
        let bytes = cache::make(choice, &home)?;
        let policy = Policy::open(std::sync::Arc::new(bytes)).map_err(BrokerError::Compiled)?;
        let details = policy.details().map_err(BrokerError::Compiled)?;
        let name = details.files.first().cloned().unwrap_or_default();
        Ok((name, document_text(&details.document)))
    };
    let (old_choice, new_choice) = match other {
        Some(other) => (asker.choice(one), asker.choice(other)),
        None => (Choice::Active, asker.choice(one)),
    };
    let ((old_name, old), (new_name, new)) = (text(&old_choice)?, text(&new_choice)?);
    if old == new {
        return Ok(out::print("the policies say the same\n")?);
    }
    let diff = TextDiff::from_lines(&old, &new);
    let mut unified = diff.unified_diff();
    let shown = unified.header(&old_name, &new_name).to_string();
    out::print(&shown)?;
    Err(Failure::No)
}

/// Opens a policy in an editor; it takes effect when it is saved without mistakes.
pub fn edit(asker: &Asker, id: Option<&str>) -> Result<(), Failure> {
    asker.require(Needs::Person)?;
    let home = asker.broker(Some("default".into()))?.home().clone();
    let id = match id {
        Some(id) => id.to_owned(),
        None => substrate_broker::choice::active(&home),
    };
    check_id(&id)?;
    let path = home.policies().join(format!("{id}.yaml"));
    let before = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let Some(shipped) = compile::shipped(&id) else {
                return Err(BrokerError::NoPolicy(id).into());
            };
            shipped.text
        }
        Err(error) => return Err(failed("read", &path, error)),
    };
    home.ensure(&home.policies())
        .map_err(|error| failed("make", &home.policies(), error))?;
    let draft = home
        .policies()
        .join(format!(".{id}.draft.{}", std::process::id()));
    let result = edit_draft(asker, &home, &id, &before, &draft, &path);
    let _ = fs::remove_file(&draft);
    result
}

fn edit_draft(
    asker: &Asker,
    home: &Home,
    id: &str,
    before: &str,
    draft: &Path,
    path: &Path,
) -> Result<(), Failure> {
    write_new(draft, before.as_bytes()).map_err(|error| failed("write", draft, error))?;
    loop {
        open_editor(asker, draft)?;
        let text = fs::read_to_string(draft).map_err(|error| failed("read", draft, error))?;
        if text == before {
            return Ok(out::print("nothing was changed\n")?);
        }
        match cache::make(&Choice::File(draft.to_owned()), home) {
            Ok(bytes) => {
                let policy =
                    Policy::open(std::sync::Arc::new(bytes)).map_err(BrokerError::Compiled)?;
                if policy.settings().id != id {
                    let text = format!(
                        "the file says `id: {}`, not `id: {id}`\n",
                        policy.settings().id
                    );
                    if ask::confirm(&text, "Edit it again?")? {
                        continue;
                    }
                    return Err(Failure::Refused("nothing was changed".to_owned()));
                }
                write(home, path, text.as_bytes())?;
                return Ok(out::print(&format!(
                    "wrote {}; running shells use it from their next command on\n",
                    path.display()
                ))?);
            }
            Err(error) => {
                if !ask::confirm(&format!("{error}\n"), "Edit it again?")? {
                    return Err(Failure::Refused(
                        "nothing was changed: the file has mistakes".to_owned(),
                    ));
                }
            }
        }
    }
}

fn open_editor(asker: &Asker, path: &Path) -> Result<(), Failure> {
    let set = |name: &str| asker.variable(name).filter(|value| !value.is_empty());
    let editor = set("VISUAL")
        .or_else(|| set("EDITOR"))
        .unwrap_or_else(|| OsString::from("vi"));
    // `EDITOR` may carry options, so a shell reads it, as git does.
    let status = Command::new("/bin/sh")
        .arg("-c")
        .arg("exec $0 \"$1\"")
        .arg(&editor)
        .arg(path)
        .envs(asker.shell_variables())
        .current_dir(asker.cwd()?)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Refused(format!(
            "nothing was changed: {} ended with {status}",
            editor.display()
        ))),
        Err(error) => Err(failed("start", Path::new(&editor), error)),
    }
}

/// Reads the policy in use anew and says what is in force.
pub fn reload(asker: &Asker) -> Result<(), Failure> {
    let broker = asker.broker(None)?;
    let home = broker.home();
    match cache::make(&Choice::Active, home) {
        Ok(_) => {
            let info = broker.info();
            Ok(out::print(&format!(
                "policy {} is in force ({}, mode {}, sha256 {}); running shells look before every command\n",
                info.id,
                info.path,
                info.mode.as_str(),
                info.sha256.get(..12).unwrap_or_default()
            ))?)
        }
        Err(error) => Err(error.into()),
    }
}

fn check_id(id: &str) -> Result<(), Failure> {
    if is_id(id) {
        Ok(())
    } else {
        Err(Failure::Usage(format!(
            "`{id}` is not the name of a policy: lower-case letters, digits and dashes"
        )))
    }
}

/// Replaces a file of the home at once.
pub fn write(home: &Home, path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let directory: PathBuf = path.parent().unwrap_or(&home.path).to_owned();
    home.ensure(&directory)
        .map_err(|error| failed("make", &directory, error))?;
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let aside = directory.join(format!(".{name}.{}", std::process::id()));
    write_new(&aside, bytes)
        .and_then(|()| fs::rename(&aside, path))
        .map_err(|error| {
            let _ = fs::remove_file(&aside);
            failed("write", path, error)
        })
}

fn write_new(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?
        .write_all(bytes)
}

fn failed(what: &str, path: &Path, error: std::io::Error) -> Failure {
    Failure::File {
        what: format!("cannot {what} {}", path.display()),
        error,
    }
}
