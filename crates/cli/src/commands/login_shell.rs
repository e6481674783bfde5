//! Substrate as the login shell: `/etc/shells` and `chsh`, and the way back.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use substrate_broker::Home;
use substrate_sys::identity;

use crate::commands::policy_change;
use crate::failure::Failure;
use crate::out;

const SHELLS: &str = "/etc/shells";
const PASSWD: &str = "/etc/passwd";

/// What making Substrate the login shell takes.
#[derive(Debug)]
pub struct Plan {
    user: String,
    shell: PathBuf,
    before: PathBuf,
    /// `/etc/shells` does not know the shell yet.
    unlisted: bool,
}

/// What has to be done, or why it cannot be. `None` when it has been done.
pub fn plan() -> Result<Option<Plan>, Failure> {
    let refused = |text: String| Err(Failure::Refused(text));
    let Some((user, before)) = own_entry() else {
        return refused(format!(
            "the login shell cannot be changed from here: {PASSWD} has no entry for user {}",
            identity::user_id()
        ));
    };
    let shell = fs::read_link("/proc/self/exe")?;
    if shell == before {
        return Ok(None);
    }
    if let Some(problem) = unsafe_shell(&shell) {
        return refused(format!(
            "{} cannot be a login shell: {problem}; install it, for example in /usr/local/bin",
            shell.display()
        ));
    }
    let unlisted = !listed(&shell);
    if unlisted && identity::user_id() != 0 {
        return refused(format!(
            "{SHELLS} does not name {path}, and only root can add it: echo {path} >> {SHELLS}",
            path = shell.display()
        ));
    }
    Ok(Some(Plan {
        user,
        shell,
        before,
        unlisted,
    }))
}

impl Plan {
    /// What it will change, one line each.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if self.unlisted {
            text.push_str(&format!("add {} to {SHELLS}\n", self.shell.display()));
        }
        text.push_str(&format!(
            "change the login shell of {} from {} to {} (chsh)\n",
            self.user,
            self.before.display(),
            self.shell.display()
        ));
        text
    }

    /// Does it. What stood there before is written down first, so that `uninstall` can bring it back.
    pub fn carry_out(&self, home: &Home) -> Result<String, Failure> {
        try_as_login_shell(&self.shell)?;
        let record = json!({
            "user": self.user,
            "shell": self.shell.to_string_lossy(),
            "before": self.before.to_string_lossy(),
            "listed": self.unlisted,
        });
        policy_change::write(home, &record_file(home), format!("{record:#}\n").as_bytes())?;
        if self.unlisted {
            edit_shells(|lines| lines.push(self.shell.to_string_lossy().into_owned()))?;
        }
        chsh(&self.user, &self.shell)?;
        Ok(format!(
            "the login shell of {} is {}; `substrate uninstall` brings {} back\n",
            self.user,
            self.shell.display(),
            self.before.display()
        ))
    }
}

/// The way back from what `init` did.
#[derive(Debug)]
pub struct Undo {
    user: String,
    shell: PathBuf,
    before: PathBuf,
    /// The passwd entry names the shell.
    in_use: bool,
    /// `init` added the shell to `/etc/shells`, and we may take it out.
    listed: bool,
    record: PathBuf,
}

/// What there is to undo: what `init` wrote down, or a login shell that somebody set by hand.
pub fn undo(home: &Home) -> Option<Undo> {
    let (user, current) = own_entry()?;
    let own = fs::read_link("/proc/self/exe").ok();
    let record: Option<Value> = fs::read(record_file(home))
        .ok()
        .and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let recorded = |name: &str| Some(PathBuf::from(record.as_ref()?.get(name)?.as_str()?));
    let shell = recorded("shell").or_else(|| own.filter(|own| *own == current))?;
    let before = recorded("before")
        .filter(|path| *path != shell && is_usable(path))
        .or_else(|| {
            ["/bin/bash", "/bin/sh"]
                .map(PathBuf::from)
                .into_iter()
                .find(|path| is_usable(path))
        })?;
    let added = record
        .as_ref()
        .is_some_and(|record| record.get("listed") == Some(&Value::Bool(true)));
    Some(Undo {
        in_use: current == shell,
        listed: added && identity::user_id() == 0 && listed(&shell),
        record: record_file(home),
        user,
        shell,
        before,
    })
}

impl Undo {
    /// What it will change, one line each.
    pub fn text(&self) -> String {
        let mut text = String::new();
        if self.in_use {
            text.push_str(&format!(
                "change the login shell of {} from {} back to {} (chsh)\n",
                self.user,
                self.shell.display(),
                self.before.display()
            ));
        }
        if self.listed {
            text.push_str(&format!("take {} out of {SHELLS}\n", self.shell.display()));
        }
        text
    }

    /// Does it. A shell that somebody still logs in with stays listed.
    pub fn carry_out(&self) -> Result<String, Failure> {
        if self.in_use {
            chsh(&self.user, &self.before)?;
        }
        let mut text = match self.in_use {
            true => format!(
                "the login shell of {} is {} again\n",
                self.user,
                self.before.display()
            ),
            false => String::new(),
        };
        if self.listed {
            let name = self.shell.to_string_lossy().into_owned();
            if used_by_anybody(&self.shell) {
                text.push_str(&format!(
                    "{SHELLS} still names {name}, because others log in with it\n"
                ));
            } else {
                edit_shells(|lines| lines.retain(|line| line.trim() != name))?;
                text.push_str(&format!("took {name} out of {SHELLS}\n"));
            }
        }
        let _ = fs::remove_file(&self.record);
        Ok(text)
    }
}

fn record_file(home: &Home) -> PathBuf {
    home.path.join("login-shell.json")
}

/// The name and login shell of this user.
fn own_entry() -> Option<(String, PathBuf)> {
    let uid = identity::user_id().to_string();
    entries()
        .into_iter()
        .find(|fields| fields.get(2) == Some(&uid))
        .and_then(|fields| {
            let shell = fields.get(6).filter(|shell| !shell.is_empty());
            let shell = shell.map_or("/bin/sh", String::as_str);
            Some((fields.first()?.clone(), PathBuf::from(shell)))
        })
}

fn used_by_anybody(shell: &Path) -> bool {
    entries()
        .iter()
        .any(|fields| fields.get(6).is_some_and(|used| Path::new(used) == shell))
}

fn entries() -> Vec<Vec<String>> {
    let text = fs::read(PASSWD).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .map(|line| line.split(':').map(str::to_owned).collect())
        .collect()
}

fn listed(shell: &Path) -> bool {
    fs::read_to_string(SHELLS)
        .unwrap_or_default()
        .lines()
        .any(|line| Path::new(line.trim()) == shell)
}

fn is_usable(path: &Path) -> bool {
    path.is_absolute()
        && fs::metadata(path)
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// Whoever can replace a login shell has the account, so only its user and root may be able to.
fn unsafe_shell(shell: &Path) -> Option<String> {
    if !is_usable(shell) {
        return Some("it is not a program that stays where it is".to_owned());
    }
    let owners = [0, identity::user_id()];
    shell.ancestors().find_map(|path| {
        let meta = fs::metadata(path).ok()?;
        let sticky = meta.is_dir() && meta.mode() & 0o1000 != 0;
        if !owners.contains(&meta.uid()) {
            Some(format!("{} belongs to user {}", path.display(), meta.uid()))
        } else if meta.mode() & 0o022 != 0 && !sticky {
            Some(format!("others can write to {}", path.display()))
        } else {
            None
        }
    })
}

/// Starts the shell the way a login does, before anybody has to rely on it.
fn try_as_login_shell(shell: &Path) -> Result<(), Failure> {
    let mut name = std::ffi::OsString::from("-");
    name.push(shell.file_name().unwrap_or(OsStr::new("substrate")));
    let status = Command::new(shell)
        .arg0(name)
        .args(["-c", "exit 0"])
        .stdin(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::Refused(format!(
            "the login shell was not changed: a trial of {} ended with {status}",
            shell.display()
        ))),
        Err(error) => Err(Failure::File {
            what: format!("cannot start {}", shell.display()),
            error,
        }),
    }
}

/// The system's own tool knows about passwords, locks and directories of users.
fn chsh(user: &str, shell: &Path) -> Result<(), Failure> {
    let tool = ["/usr/bin/chsh", "/bin/chsh"]
        .into_iter()
        .find(|path| is_usable(Path::new(path)))
        .ok_or_else(|| {
            Failure::Missing(format!(
                "there is no chsh here; as root: usermod -s {} {user}",
                shell.display()
            ))
        })?;
    let status = Command::new(tool)
        .arg("-s")
        .arg(shell)
        .arg(user)
        .status()
        .map_err(|error| Failure::File {
            what: format!("cannot start {tool}"),
            error,
        })?;
    if status.success() {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "the login shell is as it was: {tool} -s {} {user} ended with {status}",
        shell.display()
    )))
}

/// Replaces `/etc/shells` at once, with the rights it had.
fn edit_shells(edit: impl FnOnce(&mut Vec<String>)) -> Result<(), Failure> {
    let failed = |error| Failure::File {
        what: format!("cannot change {SHELLS}"),
        error,
    };
    let (text, mode) = match fs::read_to_string(SHELLS) {
        Ok(text) => (text, fs::metadata(SHELLS).map_err(failed)?.mode() & 0o777),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => (String::new(), 0o644),
        Err(error) => return Err(failed(error)),
    };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    edit(&mut lines);
    let aside = format!("{SHELLS}.{}", std::process::id());
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&aside)
        .and_then(|mut file| {
            file.write_all((lines.join("\n") + "\n").as_bytes())?;
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&aside, SHELLS));
    written.map_err(|error| {
        let _ = fs::remove_file(&aside);
        failed(error)
    })
}

/// Says what would be done.
pub fn say_would(text: &str) -> Result<(), Failure> {
    for line in text.lines() {
        out::print(&format!("would {line}\n"))?;
    }
    Ok(())
}
